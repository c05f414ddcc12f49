"""The classifier: scikit-learn's own checks, what it guarantees, and what it says where it does not.

The noise of a guarantee has no seed. Where a test needs answers, the teachers agree, the noise upsets one in
2,000 of them, and a student of some forty bears three wrong ones: a false alarm in 10^8 runs. That all
answers of a short fit name one class, of three, comes once in 10^6.
"""

import math
import pickle
import types
import warnings
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    MemoryLedger,
    NoisyHistogram,
    PateClassifier,
    PateMultilabelClassifier,
    SqliteLedger,
    Unit,
)
from tellers.errors import BudgetExhausted, InsecureNoise
from tellers.privacy import Votes
from tellers.runs import Groups, NoGuaranteeWarning, Queries, Room, Training, load_student
from tellers.runs import fit as fitting
from tellers.teachers import Ensemble

# Settings are given by the names of earlier versions here: all of them are still accepted.
pytestmark = pytest.mark.filterwarnings("ignore:.*is now .*=:DeprecationWarning")
NAMES = np.array(["ash", "beech", "cedar"])
BUDGET = Budget(epsilon=8.0, delta=1e-4)


@pytest.fixture(scope="module")
def blobs():
    """Three clusters far apart: 900 private rows, 120 public ones, 300 to test on."""
    centers = [[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]]
    X, y = make_blobs(n_samples=1320, centers=centers, random_state=7)
    return types.SimpleNamespace(
        X=X[:900], y=y[:900], public=X[900:1020], X_test=X[1020:], y_test=y[1020:], names=NAMES[y[:900]]
    )


def pate(**settings) -> PateClassifier:
    """Thirty quick teachers with a budget for some forty labels."""
    return PateClassifier(**{"teacher": GaussianNB(), "n_teachers": 30, "budget": BUDGET, **settings})


# --- scikit-learn's own checks: classes and pool undeclared, and nothing expected to fail. ---


@pytest.mark.filterwarnings("ignore::tellers.runs.NoGuaranteeWarning")
@parametrize_with_checks([PateClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- A guarantee. ---


def test_ten_lines():
    X, y = load_digits(return_X_y=True)
    model = PateClassifier(
        teacher=LogisticRegression(max_iter=500), student=LogisticRegression(max_iter=500),
        mechanism=ConfidentGNMax(sigma=10, threshold=30, sigma_threshold=12),
        budget=Budget(epsilon=8.0, delta=1e-4), n_teachers=50, n_classes=10,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoGuaranteeWarning)
        model.fit(X[:1200], y[:1200], public=X[1200:1500])
    assert 0 < model.epsilon_ <= 8
    # 0.75 with a spread of 0.04 over the noise: eight spreads away. A guess is right once in ten.
    assert model.score(X[1500:], y[1500:]) > 0.4


def test_a_fit_says_what_came_out_and_what_it_cost(blobs):
    model = pate(n_classes=3, random_state=7).fit(blobs.X, blobs.y, public=blobs.public)
    assert model.score(blobs.X_test, blobs.y_test) > 0.9
    assert model.why_ == ""
    assert model.unit_ == "one record"
    assert model.notes_ == ()
    assert (model.n_teachers_, model.delta_, model.n_features_in_) == (30, 1e-4, 2)
    # Silence is cheaper than an answer, so what was spent is an outcome; what is guaranteed is the budget.
    assert model.spent_.epsilon(1e-4) < model.epsilon_ == 8
    assert model.stopped_by_ == "the budget"
    assert len(model.rows_) == len(model.labels_) == model.n_labels_
    assert model.n_labels_ <= model.n_queries_ <= len(blobs.public)
    assert model.answered_share_ == model.n_labels_ / model.n_queries_
    assert len(set(model.rows_)) == model.n_labels_
    # The student learnt from these rows and labels, and from nothing else.
    again = clone(model.student_).fit(blobs.public[model.rows_], model.labels_)
    assert_array_equal(again.predict(blobs.X_test), model.predict(blobs.X_test))


def test_what_is_left_open_comes_from_public_numbers(blobs):
    model = PateClassifier().fit(blobs.X, blobs.names, public=blobs.public, classes=NAMES)
    assert model.n_teachers_ == 45  # 1.5 times the root of 900
    assert model.mechanism_ == ConfidentGNMax(9.0, 27.0, sigma_threshold=0.24 * 45, expected_silence=0.5)
    assert model.budget_ == Budget(epsilon=8.0, delta=1e-5)
    assert 0 < model.epsilon_ <= 8
    assert model.score(blobs.X_test, NAMES[blobs.y_test]) > 0.9


def test_epsilon_is_what_was_fixed_beforehand(blobs):
    def fit(**settings):
        return pate(n_classes=3, n_queries=20, **settings).fit(blobs.X, blobs.y, public=blobs.public)

    noise = GNMax(sigma=9.0)
    flat = fit(mechanism=noise)  # one price, whatever comes out
    assert flat.epsilon_ == flat.spent_.epsilon(1e-4) == (20 * noise.price(Unit())).epsilon(1e-4)
    confident = ConfidentGNMax(sigma=9.0, threshold=18, sigma_threshold=11.0)
    capped = fit(mechanism=confident)  # the price of all that could be asked
    assert capped.epsilon_ == (20 * confident.price(Unit())).epsilon(1e-4) < 8
    # On books that are kept, an earlier fit may have set another cap: the budget stands.
    assert fit(mechanism=confident, ledger=MemoryLedger(Accountant(BUDGET))).epsilon_ == 8


@pytest.mark.parametrize("epsilon", [2.0, 5.0])
@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": GNMax(sigma=12.0)},
        {"mechanism": LNMax(gamma=0.05)},
        {"mechanism": ConfidentGNMax(sigma=8.0, threshold=10, sigma_threshold=12.0)},
        {"mechanism": NoisyHistogram(sigma=12.0), "temperature": 2.0},
        {"mechanism": GNMax(sigma=12.0), "order": "active", "first": 8, "per_round": 4},
        {
            "mechanism": InteractiveGNMax(
                sigma=12.0, threshold=10, sigma_threshold=14.0, student_confidence=0.5
            ),
            "warm_up": ConfidentGNMax(sigma=12.0, threshold=10, sigma_threshold=14.0),
            "first": 8,
        },
    ],
    ids=["gnmax", "lnmax", "confident", "distilled", "active", "interactive"],
)
def test_epsilon_stays_within_the_budget(blobs, settings, epsilon):
    model = pate(n_classes=3, budget=Budget(epsilon=epsilon, delta=1e-5), random_state=7, **settings)
    try:
        model.fit(blobs.X, blobs.y, public=blobs.public)
    except ValueError:  # a small budget may end before a second class was named
        assert "student_" not in vars(model)
    assert 0 < model.epsilon_ <= epsilon
    assert model.why_ == ""


def test_noise_is_secure_whatever_the_random_state(blobs):
    ledger = MemoryLedger(Accountant(BUDGET))
    model = PateClassifier(teacher=GaussianNB(), n_teachers=30, n_classes=3, ledger=ledger, random_state=7)
    model.fit(blobs.X, blobs.y, public=blobs.public)
    assert {entry.event["noise"] for entry in ledger.entries()} == {"secure"}


def test_stop_rules(blobs):
    few = pate(n_classes=3, n_queries=23, batch=7).fit(blobs.X, blobs.y, public=blobs.public)
    assert (few.n_queries_, few.stopped_by_) == (23, "the number of queries")
    labels = pate(n_classes=3, n_labels=12, order="given").fit(blobs.X, blobs.y, public=blobs.public)
    assert (labels.n_labels_, labels.stopped_by_) == (12, "the number of labels")
    assert labels.rows_.tolist() == sorted(labels.rows_)


def test_persons_and_sites(blobs):
    persons = np.arange(900) // 3
    model = pate(n_classes=3).fit(blobs.X, blobs.y, public=blobs.public, persons=persons)
    assert (model.unit_, model.relation_.change, model.n_private_) == ("one person", "add or remove", None)
    for owners in ({"persons": persons}, {"ids": np.arange(900)}):
        with pytest.raises(ValueError, match="How many there are is private"):
            pate(n_classes=3, n_teachers=None).fit(blobs.X, blobs.y, public=blobs.public, **owners)
    sites = [f"site {n % 30}" for n in range(900)]
    names = sorted(set(sites))
    model = pate(n_classes=3, n_teachers=None, site_names=names)
    model.fit(blobs.X, blobs.y, public=blobs.public, sites=sites)
    assert (model.unit_, model.n_teachers_, model.relation_.change) == ("one site", 30, "replace")
    with pytest.raises(ValueError, match="Expected site_names"):
        pate(n_classes=3, n_teachers=None).fit(blobs.X, blobs.y, public=blobs.public, sites=sites)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        pate(n_classes=3).fit(blobs.X, blobs.y, public=blobs.public, persons=persons[:-1])


def test_a_partition_that_looked_at_labels_says_so(blobs):
    model = pate(n_classes=3, stratified=True).fit(blobs.X, blobs.y, public=blobs.public)
    assert model.relation_.keeps == ("label",)
    assert (model.relation_.change, model.n_private_) == ("replace", len(blobs.X))


# --- No guarantee: it goes through, it warns, and epsilon is infinite. ---


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"settings": {"n_classes": 3}}, "No public pool was given"),
        ({"public": True}, "The classes were not declared"),
        ({"settings": {"n_classes": 3, "seeded_noise": True}, "public": True}, "drawn from random_state"),
    ],
    ids=["no pool", "no classes", "seeded noise"],
)
def test_without_a_guarantee_epsilon_is_infinite_and_says_why(blobs, declared, words):
    model = pate(random_state=7, **declared.get("settings", {}))
    with pytest.warns(NoGuaranteeWarning, match=words):
        model.fit(blobs.X, blobs.y, public=blobs.public if declared.get("public") else None)
    assert model.epsilon_ == math.inf
    assert words in model.why_
    assert model.score(blobs.X_test, blobs.y_test) > 0.9


@pytest.mark.filterwarnings("ignore::tellers.runs.NoGuaranteeWarning")
def test_a_seed_repeats_a_fit_only_where_nothing_is_guaranteed(blobs):
    fits = [pate(random_state=7).fit(blobs.X, blobs.y) for _ in range(2)]
    assert_array_equal(fits[0].rows_, fits[1].rows_)
    assert_array_equal(fits[0].labels_, fits[1].labels_)
    assert "random_state" in fits[0].why_
    assert "random_state" not in pate().fit(blobs.X, blobs.y).why_  # no seed: secure noise, even here


def test_a_ledger_is_not_charged_for_what_it_does_not_cover(blobs, tmp_path):
    with pytest.raises(ValueError, match=r"no public pool.*leave out the ledger"):
        pate(n_classes=3, ledger=tmp_path / "spend.db").fit(blobs.X, blobs.y)
    assert not (tmp_path / "spend.db").exists()


def test_seeded_noise_on_the_books_is_no_guarantee(blobs, tmp_path):
    ledger = MemoryLedger(Accountant(BUDGET), allow_seeded=True)
    settings = {"n_classes": 3, "ledger": ledger, "n_queries": 15}
    with pytest.warns(NoGuaranteeWarning):
        pate(seeded_noise=True, random_state=7, **settings).fit(blobs.X, blobs.y, public=blobs.public)
    later = pate(**settings).fit(blobs.X, blobs.y, public=blobs.public)
    assert later.epsilon_ == math.inf
    assert "seeded" in later.why_
    with pytest.warns(NoGuaranteeWarning), pytest.raises(InsecureNoise):
        pate(n_classes=3, seeded_noise=True, ledger=tmp_path / "a.db").fit(
            blobs.X, blobs.y, public=blobs.public
        )


# --- Classes. ---


def test_classes_are_declared_in_any_order_and_come_back_as_they_are(blobs):
    model = pate(classes=["cedar", "ash", "beech"]).fit(blobs.X, blobs.names, public=blobs.public)
    assert model.classes_.tolist() == NAMES.tolist()
    assert set(model.labels_) <= set(NAMES)
    assert (model.predict(blobs.X_test) == NAMES[blobs.y_test]).mean() > 0.9


def test_a_class_nobody_ever_named_has_its_column(blobs):
    # At this noise thirty agreeing teachers are overruled once in ten million answers.
    quiet = pate(classes=["ash", "beech", "birch", "cedar"], mechanism=GNMax(sigma=4.0))
    three = quiet.fit(blobs.X, blobs.names, public=blobs.public)
    shares = three.predict_proba(blobs.X_test)
    assert shares.shape == (300, 4)
    assert (shares[:, 2] == 0).all()
    assert np.allclose(shares.sum(axis=1), 1)
    two = blobs.y < 2
    model = pate(n_classes=3).fit(blobs.X[two], blobs.y[two], public=blobs.public[blobs.public[:, 1] < 4])
    scores = model.decision_function(blobs.X_test)
    assert scores.shape == (300, 3)
    assert_array_equal(scores.argmax(axis=1), model.predict(blobs.X_test))
    assert np.isfinite(scores).all()


def test_a_label_that_was_not_declared_is_not_printed(blobs):
    names = blobs.names.astype(object)
    names[17] = "patient zero"
    with pytest.raises(ValueError, match="3 declared classes in every row of y, got another in row 17") as at:
        pate(classes=NAMES).fit(blobs.X, names, public=blobs.public)
    assert "zero" not in str(at.value)


def test_text_among_the_features_is_not_printed(blobs):
    X = blobs.X.astype(object)
    X[17, 0] = "patient zero"
    with pytest.raises(ValueError, match="Expected numbers in X") as at:
        pate(n_classes=3).fit(X, blobs.y, public=blobs.public)
    assert at.value.__context__ is None


@pytest.mark.parametrize(
    "settings", [{"classes": ["ash"]}, {"classes": ["ash", "ash"]}, {"classes": NAMES, "n_classes": 4}]
)
def test_classes_that_make_no_sense(blobs, settings):
    with pytest.raises(ValueError, match="two or more classes, each named once"):
        pate(**settings).fit(blobs.X, blobs.names, public=blobs.public)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"order": "random"}, "order to be one of"),
        ({"batch": 0}, "batch >= 1"),
        ({"n_queries": 0}, "n_queries >= 1"),
        ({"temperature": 2.0}, "mechanism=NoisyHistogram"),
        ({"random_state": -1}, "random_state >= 0"),
        ({"n_teachers": 2000}, "at most one teacher per row"),
        ({"ledger": MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))}, "budget of the ledger"),
    ],
)
def test_parameters_that_make_no_sense(blobs, settings, words):
    with pytest.raises((ValueError, TypeError), match=words):
        pate(n_classes=3, **settings).fit(blobs.X, blobs.y, public=blobs.public)


def test_a_pool_with_other_features(blobs):
    with pytest.raises(ValueError, match="1 features, but PateClassifier is expecting 2"):
        pate(n_classes=3).fit(blobs.X, blobs.y, public=blobs.public[:, :1])


# --- Books that last. ---


def test_one_ledger_for_several_fits(blobs, tmp_path):
    books = {"ledger": tmp_path / "spend.db", "mechanism": GNMax(sigma=9.0)}
    settings = {"n_classes": 3, "n_queries": 15, **books}
    first = pate(**settings).fit(blobs.X, blobs.y, public=blobs.public)
    second = pate(**settings).fit(blobs.X, blobs.y, public=blobs.public)
    # What others ask of the same books may depend on answers, so what is stated is the budget.
    assert first.epsilon_ == second.epsilon_ == 8
    assert first.spent_.epsilon(first.delta_) < second.spent_.epsilon(second.delta_) <= 8


def test_the_same_fit_again_is_trained_and_charged_once(blobs, tmp_path):
    books = {"ledger": tmp_path / "spend.db", "folder": tmp_path / "fit"}
    settings = {"n_classes": 3, "n_teachers": 6, "n_jobs": 1, "mechanism": GNMax(sigma=6.0), **books}
    first = pate(**settings).fit(blobs.X, blobs.y, public=blobs.public)
    trained = {file: file.stat().st_mtime_ns for file in (tmp_path / "fit" / "teachers").iterdir()}
    # The student is not what was asked: another one learns from the same labels.
    second = pate(student=GaussianNB(), **settings).fit(blobs.X, blobs.y, public=blobs.public)
    assert_array_equal(first.rows_, second.rows_)
    assert_array_equal(first.labels_, second.labels_)
    assert second.epsilon_ == first.epsilon_
    assert trained == {file: file.stat().st_mtime_ns for file in (tmp_path / "fit" / "teachers").iterdir()}
    with pytest.raises(ValueError, match="teacher 0 of another one"):
        pate(**settings).fit(blobs.X + 1, blobs.y, public=blobs.public)
    # Another question is another question: nothing is left for it, and nothing is charged.
    with pytest.raises(BudgetExhausted):
        pate(order="given", **settings).fit(blobs.X, blobs.y, public=blobs.public)


def test_a_budget_too_small_for_one_query(blobs):
    model = pate(n_classes=3, mechanism=GNMax(sigma=0.5))
    with pytest.raises(BudgetExhausted, match=r"past the budget of 8\.0") as at:
        model.fit(blobs.X, blobs.y, public=blobs.public)
    assert at.value.__notes__ == [
        "On the ledger, with or without labels: epsilon 0 is spent.",
        "Take more noise, and more teachers to bear it, or a larger budget.",
    ]
    with pytest.raises(NotFittedError):
        model.predict(blobs.X_test)


def test_silence_is_an_error_that_says_what_it_cost(blobs):
    silent = ConfidentGNMax(sigma=9.0, threshold=500, sigma_threshold=9.0)
    model = pate(n_classes=3).fit(blobs.X, blobs.y, public=blobs.public)
    model.set_params(mechanism=silent)
    with pytest.raises(ValueError, match="silence for every row") as at:
        model.fit(blobs.X, blobs.y, public=blobs.public)
    assert f"epsilon {model.spent_.epsilon(1e-4):.4g} is spent" in at.value.__notes__[0]
    assert 0 <= model.epsilon_ <= 8  # 30 votes never come near 500: such a check tells next to nothing
    assert model.spent_.values.max() > 0
    assert model.n_labels_ == 0
    with pytest.raises(NotFittedError):  # the student of the fit before is gone too
        model.predict(blobs.X_test)


# --- Among scikit-learn's other parts. ---


def test_clones_share_their_books(blobs):
    settings = {"mechanism": GNMax(sigma=9.0), "ledger": MemoryLedger(Accountant(BUDGET))}
    model = pate(budget=None, n_classes=3, n_queries=15, **settings)
    first, second = (clone(model).fit(blobs.X, blobs.y, public=blobs.public) for _ in range(2))
    assert first.ledger is second.ledger is model.ledger
    assert first.spent_.epsilon(first.delta_) < second.spent_.epsilon(second.delta_)


def test_what_leaves_holds_no_teacher_no_vote_and_no_private_row(blobs):
    # A neighbour classifier keeps the rows it was fitted to.
    model = pate(n_classes=3, teacher=KNeighborsClassifier(1)).fit(blobs.X, blobs.y, public=blobs.public)
    assert not [v for v in vars(model).values() if isinstance(v, (Ensemble, Votes, Room, MemoryLedger))]
    content = pickle.dumps(model)
    assert not any(row.tobytes() in content for row in blobs.X)
    assert any(
        row.tobytes() in pickle.dumps(KNeighborsClassifier(1).fit(blobs.X, blobs.y)) for row in blobs.X
    )
    again = pickle.loads(content)
    assert_array_equal(again.predict(blobs.X_test), model.predict(blobs.X_test))
    assert again.epsilon_ == model.epsilon_


def test_preprocessing_inside_teacher_and_student(blobs):
    model = make_pipeline(StandardScaler(), LogisticRegression())
    fitted = pate(n_classes=3, teacher=model, student=model).fit(blobs.X, blobs.y, public=blobs.public)
    assert fitted.score(blobs.X_test, blobs.y_test) > 0.9
    # The student's scaler has seen the public rows that were answered, never a private one.
    assert np.allclose(fitted.student_[0].mean_, blobs.public[fitted.rows_].mean(axis=0))


def test_last_step_of_a_pipeline(blobs):
    halve = FunctionTransformer(lambda X: X / 2)
    steps = make_pipeline(halve, pate(n_classes=3))
    steps.fit(blobs.X, blobs.y, pateclassifier__public=blobs.public / 2)
    assert steps.score(blobs.X_test, blobs.y_test) > 0.9
    assert steps[-1].epsilon_ <= 8


def test_a_pool_routed_through_the_steps_in_front(blobs):
    if "transform_input" not in signature(Pipeline).parameters:
        pytest.skip("scikit-learn before 1.6 routes no pool through the steps in front")
    halve = FunctionTransformer(lambda X: X / 2)
    with config_context(enable_metadata_routing=True):
        model = pate(n_classes=3, order="given").set_fit_request(public=True, persons=True)
        steps = Pipeline([("halve", halve), ("pate", model)], transform_input=["public"])
        steps.fit(blobs.X, blobs.y, public=blobs.public, persons=np.arange(900))
    assert steps[-1].unit_ == "one person"
    again = clone(steps[-1].student_).fit(blobs.public[steps[-1].rows_] / 2, steps[-1].labels_)
    assert_array_equal(again.predict(blobs.X_test / 2), steps.predict(blobs.X_test))


def test_grid_search_and_cross_validation(blobs):
    search = GridSearchCV(pate(n_classes=3, student=LogisticRegression()), {"student__C": [0.1, 1.0]}, cv=2)
    search.fit(blobs.X, blobs.y, public=blobs.public)
    assert search.best_score_ > 0.9
    scores = cross_val_score(pate(n_classes=3), blobs.X, blobs.y, cv=2, params={"public": blobs.public})
    assert scores.min() > 0.9


def test_methods_are_those_of_the_student(blobs):
    assert not hasattr(pate(student=Perceptron()), "predict_proba")
    assert not hasattr(pate(student=GaussianNB()), "decision_function")
    model = pate(n_classes=3, student=Perceptron()).fit(blobs.X, blobs.y, public=blobs.public)
    assert model.decision_function(blobs.X_test).shape == (300, 3)
    with pytest.raises(AttributeError):
        model.predict_proba(blobs.X_test)


def test_torch_teachers_go_to_their_own_backend(blobs, monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    from tellers.teachers import torch as backend

    torch.set_num_threads(1)
    ensembles, real = [], backend.ensemble.train_networks

    def train(*data, options, **how):
        ensembles.append(real(*data, options=replace(options, engine="batched"), **how))
        return ensembles[-1]

    monkeypatch.setattr(backend.ensemble, "train_networks", train)
    network = backend.TorchClassifier("mlp", epochs=10, learning_rate=0.01, batch_size=10, device="cpu")
    model = pate(teacher=network, student=network, n_classes=3, n_jobs=1)
    model.fit(blobs.X, blobs.y, public=blobs.public)
    assert [len(ensemble) for ensemble in ensembles] == [30]
    assert model.score(blobs.X_test, blobs.y_test) > 0.9
    place = model.export(tmp_path / "student")
    assert (place / "student.safetensors").exists()
    assert_array_equal(load_student(place).predict(blobs.X_test), model.predict(blobs.X_test))


def test_older_scikit_learn(blobs, monkeypatch):
    """Before 1.6 the check of the data was a method of every estimator."""
    if not hasattr(fitting.validation, "validate_data"):
        pytest.skip("this is an older one, and every other test shows it")
    validate = fitting.validation.validate_data
    monkeypatch.delattr(fitting.validation, "validate_data")
    monkeypatch.setattr(PateClassifier, "_validate_data", validate, raising=False)
    model = pate(n_classes=3).fit(blobs.X, blobs.y, public=blobs.public)
    assert model.score(blobs.X_test, blobs.y_test) > 0.9


# --- Export. ---


def test_export(blobs, tmp_path: Path):
    model = pate(classes=NAMES).fit(blobs.X, blobs.names, public=blobs.public)
    place = model.export(tmp_path / "student", name="trees", accuracy=0.97)
    student = load_student(place)
    assert_array_equal(NAMES[student.predict(blobs.X_test)], model.predict(blobs.X_test))
    card = (place / "card.md").read_text()
    assert "tell 3 classes apart (trees)" in card
    assert "ash, beech, cedar" in card
    assert "97.0 %" in card
    assert "(a guarantee)" in card
    with pytest.raises(FileExistsError):
        model.export(place)


def test_the_card_of_a_fit_without_a_guarantee(blobs, tmp_path: Path):
    with pytest.warns(NoGuaranteeWarning):
        model = pate().fit(blobs.X, blobs.y)
    card = (model.export(tmp_path / "student") / "card.md").read_text()
    assert "Nothing is guaranteed" in card
    assert "read off y" in card


def test_nothing_to_export(tmp_path: Path):
    with pytest.raises(NotFittedError):
        pate().export(tmp_path / "student")


def test_a_ledger_may_be_open_already(blobs, tmp_path):
    with SqliteLedger(tmp_path / "spend.db", Accountant(BUDGET)) as ledger:
        model = pate(n_classes=3, ledger=ledger).fit(blobs.X, blobs.y, public=blobs.public)
        assert model.spent_.epsilon(1e-4) == ledger.spent.epsilon(1e-4)
    assert pickle.loads(pickle.dumps(model)).epsilon_ == model.epsilon_


OLD = {
    "queries": ["n_queries", "order", "batch", "first", "per_round", "warm_up", "seeded_noise"],
    "groups": [
        "levels", "max_groups", "variant", "weights", "denominator", "precision", "min_persons", "power",
        "copies", "most", "grow", "exhausted_leave",
    ],
    "training": ["n_jobs", "folder", "stratified", "site_names", "temperature", "floor"],
}  # fmt: skip


@pytest.mark.parametrize(("place", "name"), [(place, name) for place, names in OLD.items() for name in names])
def test_parameters_of_earlier_versions_are_accepted_and_say_where_they_are_now(place, name):
    kind = {"queries": Queries, "groups": Groups, "training": Training}[place]
    with pytest.warns(DeprecationWarning, match=rf"{place}={kind.__name__}\({name}=...\)") as told:
        model = PateClassifier(**{name: 7})
    assert told[0].filename == __file__
    assert getattr(model, place) == kind(**{name: 7})
    assert getattr(clone(model), place) == kind(**{name: 7})
    assert getattr(model, name) == 7
    with pytest.warns(DeprecationWarning, match=kind.__name__):
        model.set_params(**{name: 8})
    assert model.get_params()[place] == kind(**{name: 8})


def test_a_cap_on_labels_has_a_name_of_its_own(blobs):
    with pytest.warns(DeprecationWarning, match=r"queries=Queries\(max_labels=...\)"):
        assert pate(n_labels=5).queries == Queries(max_labels=5)
    # All of fifteen questions have one class once in five million runs.
    settings = Queries(max_labels=15, batch=1)
    model = pate(n_classes=3, queries=settings).fit(blobs.X, blobs.y, public=blobs.public)
    assert (model.n_labels_, model.stopped_by_) == (15, "the number of labels")
    with pytest.raises(TypeError, match="max_labels"):
        PateClassifier(max_labels=5)


@pytest.mark.parametrize("kind", [PateClassifier, PateMultilabelClassifier])
def test_epsilon_and_delta_make_a_budget(kind):
    assert kind(epsilon=2.0, delta=1e-6).budget == Budget(2.0, 1e-6)
    assert kind(epsilon=2.0).budget == Budget(2.0, 1e-5)
    again = clone(kind(epsilon=2.0, delta=1e-6))
    assert again.set_params(epsilon=3.0).budget == Budget(3.0, 1e-6)
    assert again.set_params(delta=1e-7).budget == Budget(3.0, 1e-7)
    with pytest.raises(ValueError, match="got both"):
        kind(epsilon=2.0, budget=Budget(2.0, 1e-6))
    with pytest.raises(ValueError, match="delta alone"):
        kind(delta=1e-6)
    with pytest.raises(ValueError, match="epsilon"):
        kind(epsilon=-1.0)


def test_a_constructor_has_a_dozen_parameters():
    assert len(PateClassifier().get_params()) == 12
