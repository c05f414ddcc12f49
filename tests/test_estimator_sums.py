"""One Gaussian sum in the classifiers: planned, charged, stated, taught, and refused."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from tellers import Accountant, Budget, MemoryLedger, Unit
from tellers.data.metrics import auc
from tellers.errors import BudgetExhausted
from tellers.mechanisms import GaussianSum
from tellers.privacy import RdpCurve
from tellers.privacy.release import Cost, NoiseLevel, Release
from tellers.runs import (
    Groups,
    NoGuaranteeWarning,
    PateClassifier,
    PateMultilabelClassifier,
    Queries,
    Sums,
    Training,
    load_student,
)
from tellers.students import fit_sum, released_frequencies

pytestmark = pytest.mark.filterwarnings("ignore::tellers.runs.RepeatedFitWarning")

X, Y = make_multilabel_classification(3000, 8, n_classes=3, n_labels=2, random_state=7)
PRIVATE, POOL, TEST = slice(0, 2000), slice(2000, 2500), slice(2500, 3000)
ALONE = Training(n_jobs=1)
rng = np.random.default_rng(7)
ROWS = rng.normal(size=(3000, 5))
CLASSES = np.array(["a", "b", "c"])[(ROWS[:, :3] + [0.9, 0.0, -0.9]).argmax(axis=1)]


def many(**given):
    usual = {"n_outputs": 3, "n_teachers": 150, "training": ALONE, "random_state": 1}
    budget = {} if "ledger" in given else {"epsilon": 2.0}
    return PateMultilabelClassifier(**{"mechanism": "gaussian-sum", **usual, **budget, **given})


def fitted(**given):
    return many(**given).fit(X[PRIVATE], Y[PRIVATE], public=X[POOL])


# --- What it costs, and what is stated ---


@pytest.mark.parametrize("rule", ["renyi", "clock"])
def test_a_budget_alone_buys_a_prior_and_a_sum_and_no_more(rule):
    ledger = MemoryLedger(Accountant.by(rule, Budget(2.0, 1e-5)))
    pate = fitted(ledger=ledger)
    prior, scores = ledger.entries()
    assert prior.key.endswith("/prior")
    assert scores.key.endswith("/pool")
    assert (prior.event["n_queries"], scores.event["n_queries"]) == (1, 500)
    assert {one.event["mechanism"] for one in (prior, scores)} == {"GaussianSum"}
    # Two independent shifts: their squares add up, and 5 % of them are the prior's.
    squares = [1 / one.event["parameters"]["sigma"] ** 2 for one in (prior, scores)]
    assert squares[0] / sum(squares) == pytest.approx(0.05, abs=1e-4)
    assert pate.epsilon_ == 2.0
    assert ledger.accountant.left(ledger.spent) < 1e-3
    assert pate.mechanism_.sigma == scores.event["parameters"]["sigma"]
    with pytest.raises(BudgetExhausted, match="less noise than 150 teachers") as told:
        fitted(ledger=ledger)
    assert "Nothing was charged" in str(told.value)
    assert len(ledger.entries()) == 2


def test_books_of_its_own_state_the_price_of_both_and_a_declared_prior_is_not_bought():
    bought, declared = fitted(), fitted(mechanism=Sums(prior=[0.2, 0.5, 0.5]))
    for pate in (bought, declared):
        assert 1.99 < pate.epsilon_ == pate.spent_.epsilon(1e-5) <= 2.0
        assert (pate.unit_, pate.n_teachers_, pate.n_queries_) == ("one record", 150, 500)
        assert auc(Y[TEST], pate.decision_function(X[TEST])).mean() > 0.65
        assert pate.score(X[TEST], Y[TEST]) > 0.5
        assert not hasattr(pate, "predict_proba")
    assert declared.prior_.tolist() == [0.2, 0.5, 0.5]
    assert bought.prior_.shape == (3,)
    # What the prior does not cost is less noise for the scores.
    assert declared.mechanism_.sigma == pytest.approx(bought.mechanism_.sigma * 0.95**0.5, rel=1e-4)


def test_a_given_sum_is_asked_as_it_is_or_refused_before_its_prior_is_charged():
    pate = fitted(mechanism=Sums(mechanism=GaussianSum(6.0), prior=[0.2, 0.5, 0.5]))
    assert pate.mechanism_ == GaussianSum(6.0)
    assert pate.epsilon_ == pytest.approx(GaussianSum(6.0).price(Unit()).epsilon(1e-5))
    ledger = MemoryLedger(Accountant(Budget(2.0, 1e-5)))
    assert GaussianSum(4.3).price(Unit()).epsilon(1e-5) < 2.0  # but not with a prior
    with pytest.raises(BudgetExhausted, match="too dear"):
        fitted(mechanism=GaussianSum(4.3), ledger=ledger)
    assert not ledger.entries()


# --- Going on, keeping, and who is protected ---


def test_a_fit_goes_on_where_it_was_and_is_charged_once(tmp_path):
    settings = {"ledger": tmp_path / "fits.db", "training": Training(folder=tmp_path / "kept", n_jobs=1)}
    first, again = fitted(n_teachers=60, **settings), fitted(n_teachers=60, **settings)
    assert (again.labels_ == first.labels_).all()
    assert again.spent_.epsilon(1e-5) == first.spent_.epsilon(1e-5) <= again.epsilon_ == 8.0
    assert (again.predict(X[TEST]) == first.predict(X[TEST])).all()
    place = first.export(tmp_path / "student", label_names=["rain", "wind", "snow"])
    assert (load_student(place).predict(X[TEST]) == first.predict(X[TEST])).all()
    assert "GaussianSum (sigma = " in (place / "card.md").read_text()


def test_persons_are_the_unit_where_they_are_given():
    pate = many(n_teachers=100).fit(X[PRIVATE], Y[PRIVATE], public=X[POOL], persons=np.arange(2000) // 3)
    assert (pate.unit_, pate.n_teachers_, pate.n_private_) == ("one person", 100, None)


def test_without_labels_or_pool_nothing_is_guaranteed():
    with pytest.warns(NoGuaranteeWarning):
        pate = PateMultilabelClassifier(mechanism="gaussian-sum", training=ALONE).fit(X[:400], Y[:400])
    assert (pate.epsilon_, pate.n_teachers_) == (np.inf, 40)  # 5 rows each
    assert pate.mechanism_.sigma > 1


# --- One class per row ---


def test_of_classes_the_leader_answers_as_often_as_the_prior_says():
    pate = PateClassifier(
        mechanism="gaussian-sum", classes=["a", "b", "c"], epsilon=4.0, random_state=1,
        n_teachers=200, training=ALONE,
    )  # fmt: skip
    pate.fit(ROWS[PRIVATE], CLASSES[PRIVATE], public=ROWS[POOL])
    assert 3.99 < pate.epsilon_ <= 4.0
    assert pate.score(ROWS[TEST], CLASSES[TEST]) > 0.6
    shares = [(pate.predict(ROWS[POOL]) == one).mean() for one in "abc"]
    assert np.abs(shares - pate.prior_ / pate.prior_.sum()).max() < 0.02
    assert pate.decision_function(ROWS[:4]).shape == (4, 3)
    assert not hasattr(pate, "predict_proba")
    assert not hasattr(clone(pate), "predict_proba")


def test_of_two_classes_there_is_one_score_and_models_may_be_given():
    y = ROWS[:, 0] > 0
    pate = PateClassifier(
        teacher=GaussianNB(), student=Ridge(), mechanism=Sums(prior=[0.5, 0.5]), n_classes=2, epsilon=4.0,
        n_teachers=150,  training=ALONE, random_state=1,
    )  # fmt: skip
    pate.fit(ROWS[PRIVATE], y[PRIVATE].astype(int), public=ROWS[POOL])
    scores = pate.decision_function(ROWS[TEST])
    assert scores.shape == (500,)
    assert ((scores > 0) == pate.predict(ROWS[TEST])).all()
    assert pate.score(ROWS[TEST], y[TEST].astype(int)) > 0.8


def test_cuts_of_classes_give_each_its_share_and_shares_may_be_shrunk():
    level = NoiseLevel(sigma=1.0, steps=1000, n_teachers=10)
    values = np.random.default_rng(3).integers(-5000, 5000, size=(400, 3))
    release = Release(values.argmax(axis=1), Cost(RdpCurve.zero()), values=values, noise_level=level)
    shares = np.array([0.7, 0.2, 0.1])
    student = fit_sum(np.eye(400), release, estimator=LookUp(), frequencies=shares)
    counts = np.bincount(student.predict(np.eye(400)), minlength=3) / 400
    assert np.abs(counts - shares).max() < 0.01
    # All noise: the classes are alike. Hardly any: they stay as they are.
    for sigma, wanted in ((1e6, [0.5, 0.5]), (1e-3, [0.8, 0.2])):
        told = Release(
            np.array([0]), Cost(RdpCurve.zero()), values=np.array([[8000, 2000]]),
            noise_level=NoiseLevel(sigma, 1000, 10),
        )  # fmt: skip
        assert released_frequencies(told, shrink=True).tolist() == pytest.approx(wanted)
        assert released_frequencies(told).tolist() == [0.8, 0.2]


class LookUp:
    """A student that knows the pool by heart."""

    def fit(self, X, targets):
        self.targets = targets

    def predict(self, X):
        return X @ self.targets


# --- Refused before a teacher is trained ---

REFUSED = [
    ({"mechanism": "gnmax"}, 'or "gaussian-sum"'),
    ({"queries": Queries(n_queries=10)}, "Queries without n_queries"),
    ({"queries": Queries(order="given")}, "Queries without order"),
    ({"student": LogisticRegression()}, "Expected a regressor as student"),
    ({"thresholds": 0.3}, "Expected no thresholds"),
    ({"mechanism": Sums(prior=[0.1, 0.2])}, "a prior of 3 shares"),
    ({"epsilon": 0.02}, "less noise than 150 teachers"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_does_not_go_with_a_sum_is_refused(given, words):
    with pytest.raises((TypeError, ValueError, BudgetExhausted), match=words):
        fitted(**given)


def test_regressors_budgets_and_temperatures_do_not_go_with_classes():
    one = {"mechanism": "gaussian-sum", "n_classes": 2}
    y = Y[PRIVATE, 0]
    for given, budgets, words in (
        ({"teacher": Ridge()}, None, "Expected a classifier as teacher"),
        ({"training": Training(temperature=2.0)}, None, "without temperature"),
        ({"groups": Groups()}, np.full(2000, 1.0), "no budgets per person"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            PateClassifier(**one, **given).fit(X[PRIVATE], y, public=X[POOL], budgets=budgets)
