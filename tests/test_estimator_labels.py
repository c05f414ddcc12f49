"""The classifier of many labels: scikit-learn's checks, what is guaranteed, what comes out."""

import json
import math
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from tellers import (
    SILENT,
    Accountant,
    Binary,
    Budget,
    ConfidentBinary,
    DependentBinary,
    GNMax,
    GNThreshold,
    MemoryLedger,
    PartialPowerset,
    PateMultilabelClassifier,
    Powerset,
    Tau,
    Unit,
)
from tellers.data import measure
from tellers.errors import BudgetExhausted
from tellers.runs import NoGuaranteeWarning, Queries, Training, load_student

# Settings are given by the names of earlier versions here: all of them are still accepted.
pytestmark = pytest.mark.filterwarnings("ignore:.*is now .*=:DeprecationWarning")
BUDGET = Budget(epsilon=8.0, delta=1e-4)
X, Y = make_multilabel_classification(1200, 10, n_classes=4, n_labels=2, random_state=7)
PRIVATE, POOL, TEST = slice(0, 800), slice(800, 1000), slice(1000, 1200)


def pate(**settings) -> PateMultilabelClassifier:
    """Thirty quick teachers, and a budget for some tens of rows."""
    given = {"teacher": GaussianNB(), "student": GaussianNB(), "n_teachers": 30, "budget": BUDGET}
    return PateMultilabelClassifier(**{**given, "n_labels": 4, **settings})


def fitted(**settings) -> PateMultilabelClassifier:
    return pate(**settings).fit(X[PRIVATE], Y[PRIVATE], public=X[POOL])


# --- scikit-learn's own checks. They hand in classes of any two values, or of three, in one column. ---

_COLUMN = "Y is rows x labels, and this check hands in one dimension"
_VALUES = "labels are 0 and 1, and this check hands in other values or text"
EXPECTED = {
    "check_classifier_data_not_an_array": _VALUES,
    "check_classifier_not_supporting_multiclass": "three classes in a column are refused in words of our own",
    "check_classifiers_classes": _COLUMN,
    "check_classifiers_one_label": _COLUMN,
    "check_classifiers_regression_target": "fractions are refused in words of our own",
    "check_classifiers_train": _COLUMN,
    "check_dtype_object": _VALUES,
    "check_estimators_dtypes": _VALUES,
    "check_fit2d_1feature": _VALUES,
}


@pytest.mark.filterwarnings("ignore::tellers.runs.NoGuaranteeWarning")
@parametrize_with_checks(
    [PateMultilabelClassifier(teacher=GaussianNB(), student=GaussianNB())],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- A guarantee. ---


def test_a_fit_says_what_came_out_and_what_it_cost():
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoGuaranteeWarning)
        model = fitted(random_state=7)
    assert model.why_ == ""
    assert (model.unit_, model.n_teachers_, model.n_labels_, model.n_outputs_) == ("one record", 30, 4, 4)
    assert model.mechanism_ == Binary(sigma=6.0, n_labels=4)
    assert 0 < model.epsilon_ <= 8
    assert model.stopped_by_ == "the budget"
    assert model.labels_.shape == (model.n_queries_, 4)
    assert (model.n_answered_, model.n_told_) == (model.n_queries_, 4 * model.n_queries_)
    assert len(set(model.rows_)) == model.n_queries_
    # The student learnt from these rows and labels, and from nothing else.
    for label, told in enumerate(model.labels_.T):
        if len(set(told)) == 2:
            again = clone(model.student_.estimator).fit(X[POOL][model.rows_], told)
            np.testing.assert_array_equal(again.predict(X[TEST]), model.predict(X[TEST])[:, label])


def test_predictions_have_a_column_for_every_label():
    model = fitted(seeded_noise=False, random_state=7)
    said, chances = model.predict(X[TEST]), model.predict_proba(X[TEST])
    assert said.shape == chances.shape == (200, 4)
    np.testing.assert_array_equal(said, chances > 0.5)
    assert [classes.tolist() for classes in model.classes_] == [[0, 1]] * 4
    assert model.score(X[TEST], Y[TEST]) == pytest.approx((said == Y[TEST]).mean())
    weights = np.arange(200)
    wanted = np.average((said == Y[TEST]).mean(axis=1), weights=weights)
    assert model.score(X[TEST], Y[TEST], weights) == pytest.approx(wanted)


@pytest.mark.filterwarnings("ignore::tellers.runs.NoGuaranteeWarning")
@pytest.mark.parametrize(
    "mechanism",
    [
        Binary(sigma=4.0, n_labels=4),
        ConfidentBinary(sigma=4.0, n_labels=4, threshold=20, sigma_threshold=5.0),
        Tau(sigma=4.0, n_labels=4, max_norm=1.5),
        Powerset(sigma=3.0, n_labels=4),
        GNThreshold(sigma=3.0, n_labels=4, resolution=100),
        DependentBinary(sigma=4.0, n_labels=4, negative=((0, 2),)),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_every_mechanism_for_labels_teaches_something(mechanism):
    model = fitted(
        mechanism=mechanism, n_labels=None, n_queries=100, budget=Budget(200.0, 1e-4), seeded_noise=True,
        random_state=7,
    )  # fmt: skip
    guess = np.tile(Y[PRIVATE].mean(axis=0) > 0.5, (200, 1)).astype(int)
    assert model.score(X[TEST], Y[TEST]) > measure(Y[TEST], guess).accuracy
    assert model.epsilon_ == math.inf  # the noise was seeded


def test_what_is_left_open_is_read_off_and_promises_nothing():
    with pytest.warns(NoGuaranteeWarning, match="read off Y"):
        model = pate(n_labels=None, budget=None).fit(X[PRIVATE], Y[PRIVATE])
    assert model.epsilon_ == math.inf
    assert model.budget_ is None
    assert model.n_public_ == 800 - model.n_private_
    with pytest.raises(ValueError, match="no public pool"):
        pate(ledger=MemoryLedger(Accountant(BUDGET))).fit(X[PRIVATE], Y[PRIVATE])


def test_persons_and_sites_decide_who_is_protected():
    model = pate().fit(X[PRIVATE], Y[PRIVATE], public=X[POOL], persons=np.arange(800) // 2)
    assert model.unit_ == "one person"
    model = pate(n_teachers=None, site_names=range(40))
    model.fit(X[PRIVATE], Y[PRIVATE], public=X[POOL], sites=np.arange(800) % 40)
    assert (model.unit_, model.n_teachers_) == ("one site", 40)


def test_epsilon_is_the_price_of_what_could_be_asked():
    model = fitted(mechanism=Binary(sigma=9.0, n_labels=4), n_queries=5)
    wanted = (5 * model.mechanism_.price(Unit())).epsilon(1e-4)
    assert model.epsilon_ == pytest.approx(wanted)
    assert model.spent_.epsilon(1e-4) == pytest.approx(wanted)
    kept = fitted(n_queries=5, ledger=MemoryLedger(Accountant(BUDGET)), budget=None)
    assert kept.epsilon_ == 8


def test_a_folder_keeps_teachers_and_answers(tmp_path):
    settings = {"folder": tmp_path / "fit", "ledger": tmp_path / "books.db", "n_queries": 8}
    first, again = fitted(**settings), fitted(**settings)
    np.testing.assert_array_equal(again.labels_, first.labels_)
    assert again.spent_.epsilon(1e-4) == first.spent_.epsilon(1e-4)
    assert len(list((tmp_path / "fit" / "teachers").glob("teacher-*.skops"))) == 30


def test_a_fitted_classifier_holds_no_teacher_and_no_vote():
    model = fitted(teacher=DecisionTreeClassifier(max_depth=3), n_queries=5)
    content = pickle.dumps(model)
    assert b"DecisionTree" in content  # the parameter
    assert b"LabelVotes" not in content
    assert b"LabelEnsemble" not in content
    np.testing.assert_array_equal(pickle.loads(content).predict(X[TEST]), model.predict(X[TEST]))


def test_the_active_order_asks_for_what_the_student_is_unsure_of():
    model = fitted(order="active", first=5, per_round=5, n_queries=12, student=LogisticRegression())
    assert model.n_queries_ == 12


# --- Refused. ---


@pytest.mark.parametrize(
    ("settings", "targets", "words"),
    [
        ({"n_labels": 5}, Y, "each of the 5 labels declared, got 4"),
        ({"mechanism": Binary(sigma=4.0, n_labels=3)}, Y, "Expected n_outputs=3, as in the mechanism"),
        ({"mechanism": Binary(sigma=4.0, n_labels=3), "n_labels": None}, Y, "each of the 3 labels declared"),
        ({"mechanism": GNMax(sigma=4.0)}, Y, "Expected a mechanism for labels"),
        ({"thresholds": (0.5, 0.5)}, Y, "Expected one threshold"),
        ({"order": "best"}, Y, "Expected order"),
        ({}, Y * 3, "Expected 0 or 1 in Y"),
        ({}, Y[:, 0], "Expected Y of shape"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_charged(settings, targets, words):
    ledger = MemoryLedger(Accountant(BUDGET))
    with pytest.raises((TypeError, ValueError), match=words):
        pate(ledger=ledger, **settings).fit(X[PRIVATE], targets[PRIVATE], public=X[POOL])
    assert not ledger.entries()


def test_a_budget_for_nothing_and_silence_alone_are_said():
    with pytest.raises(BudgetExhausted) as refusal:
        fitted(budget=Budget(0.01, 1e-5))
    assert any("more noise" in note for note in refusal.value.__notes__)
    never = ConfidentBinary(sigma=9.0, n_labels=4, threshold=900, sigma_threshold=9.0)
    with pytest.raises(ValueError, match="silence for every row and label") as refusal:
        fitted(mechanism=never, n_queries=5)
    assert any("is spent" in note for note in refusal.value.__notes__)


def test_silence_is_left_out_of_the_student():
    careful = ConfidentBinary(sigma=6.0, n_labels=4, threshold=26, sigma_threshold=6.0)
    model = fitted(mechanism=careful, n_queries=40, budget=Budget(50.0, 1e-4))
    assert (model.labels_ == SILENT).any()
    assert model.n_told_ == (model.labels_ != SILENT).sum() < 160
    assert model.n_answered_ <= 40


# --- Export and model card. ---

NAMES = ["rain", "wind", "snow", "fog"]
EXPORTED = [
    Binary(6.0, 4),
    ConfidentBinary(6.0, 4, 24.0, 4.0),
    DependentBinary(6.0, 4, positive=((3, 1),), negative=((0, 2),)),
    GNThreshold(6.0, 4, (0.3, 0.4, 0.5, 0.6), max_labels=2),
    PartialPowerset(6.0, 4, ((0, 2), (1, 3))),
    Powerset(6.0, 4, max_labels=2),
    Tau(6.0, 4, 1.5, "l1"),
]


@pytest.mark.parametrize("mechanism", EXPORTED, ids=lambda mechanism: type(mechanism).__name__)
def test_a_student_is_exported_with_its_card(mechanism, tmp_path):
    model = fitted(mechanism=mechanism, n_labels=None, student=GaussianNB(), n_queries=20)
    measured = measure(Y[TEST], model.predict(X[TEST]), scores=model.predict_proba(X[TEST]))
    place = model.export(tmp_path / "student", name="days", label_names=NAMES, measured=measured)
    back = load_student(place)
    assert np.array_equal(back.predict_proba(X[TEST]), model.predict_proba(X[TEST]))
    card = json.loads((place / "card.json").read_text())
    assert card["labels"] == NAMES
    assert card["task"] == "say yes or no to 4 labels (days)"
    assert (card["epsilon"], card["delta"]) == (model.epsilon_, model.delta_)
    assert card["mechanism"]["name"] == type(mechanism).__name__
    assert (card["n_queries"], card["n_labels"]) == (model.n_queries_, model.n_told_)
    assert card["accuracy"] == measured.accuracy == pytest.approx(model.score(X[TEST], Y[TEST]))
    assert card["scores"]["macro_f1"] == measured.macro_f1
    named = {"groups": [["rain", "snow"], ["wind", "fog"]], "positive": [["fog", "wind"]]}
    assert all(card["mechanism"][key] == named[key] for key in named if key in card["mechanism"])
    words = (place / "card.md").read_text()
    for word in ("rain, wind, snow, fog", "(a guarantee)", "GaussianNB, one per label", "Balanced accuracy"):
        assert word in words


def test_without_names_or_measurements_the_card_says_so(tmp_path):
    model = fitted(student=GaussianNB(), n_queries=10)
    place = model.export(tmp_path / "student")
    card = json.loads((place / "card.json").read_text())
    assert card["labels"] == ["label 0", "label 1", "label 2", "label 3"]
    assert card["accuracy"] is None
    assert "scores" not in card
    with pytest.raises(FileExistsError, match="holds a student already"):
        model.export(place)
    model.export(place, overwrite=True, label_names=NAMES)
    assert json.loads((place / "card.json").read_text())["labels"] == NAMES


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c", "c"], ["a", "b", "c", " "]])
def test_label_names_are_one_for_each_label(names, tmp_path):
    model = fitted(student=GaussianNB(), n_queries=5)
    with pytest.raises(ValueError, match="Expected 4 different label_names"):
        model.export(tmp_path / "student", label_names=names)
    assert not (tmp_path / "student").exists()


def test_a_score_that_is_not_defined_is_left_out(tmp_path):
    model = fitted(student=GaussianNB(), n_queries=10)
    measured = measure(np.zeros_like(Y[TEST]), model.predict(X[TEST]))
    assert math.isnan(measured.auc)
    card = json.loads((model.export(tmp_path / "s", measured=measured) / "card.json").read_text())
    assert "auc" not in card["scores"]
    assert card["accuracy"] == measured.accuracy


def test_the_card_of_a_fit_without_a_guarantee(tmp_path):
    with pytest.warns(NoGuaranteeWarning):
        model = pate(n_labels=None, student=GaussianNB()).fit(X[PRIVATE], Y[PRIVATE])
    words = (model.export(tmp_path / "student") / "card.md").read_text()
    assert "Nothing is guaranteed" in words
    assert "read off Y" in words


def test_nothing_to_export(tmp_path):
    with pytest.raises(NotFittedError):
        pate().export(tmp_path / "student")


def test_a_network_is_exported_as_numbers(tmp_path):
    pytest.importorskip("torch", reason="A NETWORK AS STUDENT OF MANY LABELS WAS NOT EXPORTED: no torch")
    from tellers.nn.classifier import TorchClassifier, TorchLabelClassifier

    student = TorchLabelClassifier(TorchClassifier("mlp", epochs=2, device="cpu"))
    model = fitted(student=student, n_queries=20, random_state=7)
    place = model.export(tmp_path / "student", label_names=NAMES)
    assert (place / "student.safetensors").exists()
    assert np.array_equal(load_student(place).predict(X[TEST]), model.predict(X[TEST]))
    assert "TorchLabelClassifier" in (place / "card.md").read_text()


def test_outputs_have_a_name_of_their_own():
    with pytest.warns(DeprecationWarning, match=r"n_labels=...\) is now n_outputs=..."):
        model = PateMultilabelClassifier(n_labels=4)
    assert (model.n_outputs, clone(model).n_outputs, model.n_labels) == (4, 4, 4)
    with pytest.warns(DeprecationWarning, match="n_outputs"):
        assert model.set_params(n_labels=3).n_outputs == 3


@pytest.mark.parametrize("settings", [{"queries": Queries(max_labels=3)}, {"training": Training(floor=1.0)}])
def test_settings_of_classes_are_refused(settings):
    with pytest.raises(ValueError, match="which has no use for it"):
        pate(**settings).fit(X[PRIVATE], Y[PRIVATE], public=X[POOL])
