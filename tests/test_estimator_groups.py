"""The classifier with a budget per person: equal ones are none at all, and nobody pays more than they said.

Where labels are looked at, teachers agree on clusters far apart and the noise upsets one answer in 2,000.
"""

import math
import pickle
import types

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.naive_bayes import GaussianNB

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    MemoryLedger,
    PateClassifier,
    SqliteLedger,
)
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.runs import Groups, ModelCard
from tellers.runs import fit as fitting
from tellers.runs.fit import public_result

# Settings are given by the names of earlier versions here: all of them are still accepted.
pytestmark = pytest.mark.filterwarnings("ignore:.*is now .*=:DeprecationWarning")
DELTA = 1e-4
LEVELS = {"low": 2.0, "high": 4.0}
VARIANTS = ["weighting", "vanishing", "upsampling"]


@pytest.fixture(scope="module")
def blobs():
    centers = [[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]]
    X, y = make_blobs(n_samples=1140, centers=centers, random_state=7)
    chosen = np.random.default_rng(3).choice(["low", "high"], size=900)
    return types.SimpleNamespace(X=X[:900], y=y[:900], public=X[900:1020], chosen=chosen, X_test=X[1020:])


def pate(**settings) -> PateClassifier:
    usual = {
        "teacher": GaussianNB(),
        "student": GaussianNB(),
        "n_teachers": 30,
        "n_classes": 3,
        "mechanism": GNMax(sigma=8.0),
        "n_jobs": 1,
    }
    return PateClassifier(**{**usual, "random_state": 7, **settings})


def fitted(blobs, *, budgets=None, **settings) -> PateClassifier:
    return pate(**settings).fit(blobs.X, blobs.y, public=blobs.public, budgets=budgets)


@pytest.mark.filterwarnings("ignore::tellers.runs.NoGuaranteeWarning")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("leave", [False, True])
@pytest.mark.parametrize(
    "mechanism", [GNMax(sigma=8.0), ConfidentGNMax(sigma=8.0, threshold=18, sigma_threshold=9.0)],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_equal_budgets_are_no_budgets_bit_for_bit(blobs, variant, leave, mechanism):
    same = {"budget": Budget(3.0, DELTA), "mechanism": mechanism, "seeded_noise": True}
    plain = fitted(blobs, **same)
    ours = fitted(blobs, budgets=np.full(900, 3.0), variant=variant, exhausted_leave=leave, **same)
    n = len(ours.rows_)
    if isinstance(mechanism, GNMax):
        assert_array_equal(ours.spent_.values, plain.spent_.values)
    # Groups pay for a check and its answer one by one, and are not asked as often.
    assert n == len(plain.rows_) if isinstance(mechanism, GNMax) else 0 < n <= len(plain.rows_)
    assert_array_equal(ours.labels_, plain.labels_[:n])
    assert_array_equal(ours.rows_, plain.rows_[:n])
    assert (ours.mechanism_, ours.n_teachers_) == (plain.mechanism_, plain.n_teachers_)
    secure = {name: value for name, value in same.items() if name != "seeded_noise"}
    promised = [
        fitted(blobs, n_queries=12, **secure).epsilon_,
        fitted(blobs, n_queries=12, budgets=np.full(900, 3.0), variant=variant, **secure).epsilon_,
    ]
    if isinstance(mechanism, GNMax):  # what a check hands back depends on noise, and those have no seed
        assert promised[0] == promised[1] < 3.0


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_group_stays_within_its_budget(blobs, variant):
    model = fitted(blobs, budgets=blobs.chosen, levels=LEVELS, variant=variant, batch=4)
    low, high = model.groups_
    assert [(row["name"], row["epsilon"]) for row in model.groups_] == [("low", 2.0), ("high", 4.0)]
    assert low["n_persons"] == int((blobs.chosen == "low").sum())
    for row in model.groups_:
        assert 0 < row["spent"] <= row["stated"] <= row["epsilon"]
        assert not row["has_left"]
        assert row["n_queries"] == model.n_queries_
        assert 0 <= row["budget_left"] < 1
    how = {"weighting": "weight", "vanishing": "frequency", "upsampling": "copies"}[variant]
    assert low[how] < high[how]
    assert model.epsilon_ == max(low["stated"], high["stated"]) <= 4.0
    assert model.stopped_by_ == "the budget"
    assert model.plan_.variant == variant
    assert model.n_teachers_ == (45 if variant == "upsampling" else 30)
    assert model.budget_ == Budget(4.0, 1e-5)
    assert model.score(blobs.X_test, model.predict(blobs.X_test)) == 1.0


def test_personal_budgets_buy_more_than_the_strictest_for_all(blobs):
    strict = fitted(blobs, budget=Budget(2.0, 1e-5), batch=1)
    ours = fitted(blobs, budgets=blobs.chosen, levels=LEVELS, batch=1)
    assert ours.n_labels_ > 1.5 * strict.n_labels_


def test_exhausted_groups_leave_and_the_others_go_on(blobs):
    alike = {"budgets": blobs.chosen, "levels": LEVELS, "weights": [1.0, 1.0], "batch": 1}
    stops, goes_on = fitted(blobs, **alike), fitted(blobs, **alike, exhausted_leave=True)
    assert goes_on.n_queries_ > stops.n_queries_ > 0
    low, high = goes_on.groups_
    assert low["has_left"]
    assert not high["has_left"]
    assert low["spent"] <= 2.0
    assert stops.groups_[1]["spent"] < high["spent"] <= 4.0
    # What was asked of some after others had left was not known beforehand: the budgets are what is promised.
    assert (low["stated"], high["stated"], goes_on.epsilon_) == (2.0, 4.0, 4.0)


def taught_by(monkeypatch):
    """Return the rows that every ensemble was trained on, one entry for each that is trained from now on."""
    train, seen = fitting.train_ensemble, []

    def watched(teacher, X, y, parts, **how):
        seen.append([X[part] for part in parts])
        return train(teacher, X, y, parts, **how)

    monkeypatch.setattr(fitting, "train_ensemble", watched)
    return seen


LEAVING = {"variant": "upsampling", "levels": {"low": 1.0, "high": 5.0}, "copies": [1, 2], "batch": 4}


def test_by_upsampling_the_others_go_on_with_teachers_who_never_saw_who_left(blobs, monkeypatch):
    seen = taught_by(monkeypatch)
    stops = fitted(blobs, budgets=blobs.chosen, **LEAVING)
    goes_on = fitted(blobs, budgets=blobs.chosen, **LEAVING, exhausted_leave=True)
    assert stops.rounds_ == ()
    first, then = goes_on.rounds_
    assert (first["absent"], first["n_teachers"], first["after"]) == ((), goes_on.n_teachers_, 0)
    assert (then["absent"], then["after"]) == (("low",), first["n_queries"])
    assert then["n_teachers"] < first["n_teachers"]
    assert goes_on.n_queries_ == then["after"] + then["n_queries"] > stops.n_queries_
    low, high = goes_on.groups_
    assert (low["has_left"], high["has_left"]) == (True, False)
    assert (low["n_queries"], high["n_queries"]) == (first["n_queries"], goes_on.n_queries_)
    assert low["spent"] <= 1.0
    assert stops.groups_[1]["spent"] < high["spent"] <= 5.0
    assert (low["stated"], high["stated"], goes_on.epsilon_) == (1.0, 5.0, 5.0)
    assert len(seen) == 3  # one ensemble for the fit that stops, two for the one that goes on
    allowed = {row.tobytes() for row in blobs.X[blobs.chosen == "high"]}
    learned = {row.tobytes() for part in seen[2] for row in part}
    assert learned == allowed
    assert not {row.tobytes() for part in seen[1] for row in part} <= allowed
    rounds = public_result(goes_on, "blobs").personal.rounds
    assert rounds[1].absent == ("low",)
    assert "trained without low, answered queries" in " ".join(ModelCard.from_result(
        public_result(goes_on, "blobs", accuracy=None)
    ).groups)  # fmt: skip


def test_rounds_go_on_with_a_folder_and_a_ledger(blobs, tmp_path, monkeypatch):
    kept = {**LEAVING, "exhausted_leave": True, "ledger": tmp_path / "spend.db", "folder": tmp_path / "fit"}
    kept["budget"] = Budget(6.0, DELTA)
    few = fitted(blobs, budgets=blobs.chosen, n_queries=4, **kept)
    assert [one["absent"] for one in few.rounds_] == [()]
    whole = fitted(blobs, budgets=blobs.chosen, **kept)
    assert [one["absent"] for one in whole.rounds_] == [(), ("low",)]
    assert_array_equal(whole.rows_[: few.n_labels_], few.rows_)
    assert sorted(path.name for path in (tmp_path / "fit").glob("teachers*")) == [
        "teachers", "teachers_without_0",
    ]  # fmt: skip
    seen = taught_by(monkeypatch)
    again = fitted(blobs, budgets=blobs.chosen, **kept)
    assert len(seen) == 1  # the round that the books are in, read from its folder
    assert_array_equal(again.labels_, whole.labels_)
    assert again.rounds_ == whole.rounds_
    assert_array_equal(again.spent_.values, whole.spent_.values)


def test_too_few_who_are_left_are_told(blobs):
    chosen = np.where(np.arange(900) < 3, "high", "low")
    settings = {"levels": {"low": 1.0, "high": 9.0}, "copies": [1, 3], "mechanism": GNMax(sigma=12.0)}
    with pytest.warns(UserWarning, match="some budget of high unused: without low too few people"):
        model = fitted(blobs, budgets=chosen, variant="upsampling", exhausted_leave=True, **settings)
    assert model.stopped_by_ == "the budget"
    assert len(model.rounds_) == 1


def test_the_generous_may_leave_first(blobs):
    # Weights by budgets cost with their square, and budgets pay for a little less than theirs.
    apart = {"low": 1.0, "high": 4.0}
    model = fitted(
        blobs, budgets=blobs.chosen, levels=apart, exhausted_leave=True, batch=1, mechanism=GNMax(sigma=20.0)
    )
    low, high = model.groups_
    assert (low["has_left"], high["has_left"]) == (False, True)
    assert 0.95 < low["spent"] <= 1.0
    assert 3.8 < high["spent"] <= 4.0
    # The books as a whole add up what some paid after others had left, and end nothing early.
    assert model.spent_.epsilon(1e-5) > 4.0
    assert model.epsilon_ == 4.0


def test_persons_and_a_mapping(blobs):
    persons = np.arange(900) // 3
    agreed = {person: "low" if person % 2 else "high" for person in range(300)}
    model = pate(levels=LEVELS).fit(blobs.X, blobs.y, public=blobs.public, persons=persons, budgets=agreed)
    assert model.unit_ == "one person"
    assert [row["n_persons"] for row in model.groups_] == [150, 150]


def test_an_interactive_mechanism_with_budgets(blobs):
    model = fitted(
        blobs, budgets=blobs.chosen, levels={"low": 4.0, "high": 8.0}, first=10, per_round=10,
        mechanism=InteractiveGNMax(sigma=8.0, threshold=14, sigma_threshold=9.0, student_confidence=0.9),
        warm_up=ConfidentGNMax(sigma=8.0, threshold=14, sigma_threshold=9.0), n_queries=30,
    )  # fmt: skip
    assert model.n_labels_ > 0
    assert all(row["spent"] <= row["stated"] <= row["epsilon"] for row in model.groups_)


@pytest.mark.filterwarnings("ignore::tellers.runs.NoGuaranteeWarning")
def test_without_a_pool_half_of_the_people_are_teachers(blobs):
    model = pate(levels=LEVELS).fit(blobs.X, blobs.y, budgets=blobs.chosen)
    assert sum(row["n_persons"] for row in model.groups_) == model.n_private_ == 450
    assert model.epsilon_ == math.inf
    assert all(row["stated"] == math.inf and row["spent"] <= row["epsilon"] for row in model.groups_)


def test_parameters_are_kept_and_cloned(blobs):
    chosen = {"levels": LEVELS, "variant": "vanishing", "power": 1.0, "min_persons": 5, "max_groups": 3}
    model = clone(pate(**chosen))
    assert model.groups == Groups(**chosen)
    model.fit(blobs.X, blobs.y, public=blobs.public, budgets=blobs.chosen)
    assert model.plan_.frequency_of == (0.5, 1.0)
    plain = model.set_params(levels=None, power=None, min_persons=None).fit(
        blobs.X, blobs.y, public=blobs.public
    )
    assert (plain.plan_, plain.groups_) == (None, ())


def test_more_groups_than_wanted_are_binned(blobs):
    budgets = np.random.default_rng(5).uniform(2.0, 4.0, 900)
    model = fitted(blobs, budgets=budgets, max_groups=3, batch=2)
    assert len(model.groups_) == 3
    assert model.groups_[0]["epsilon"] == budgets.min()
    assert sum(row["waste"] for row in model.groups_) > 0


def test_what_is_kept_names_no_person(blobs):
    persons = np.array([f"person-{at // 3}" for at in range(900)])
    agreed = {person: "low" if person.endswith("7") else "high" for person in persons.tolist()}
    model = pate(levels=LEVELS).fit(blobs.X, blobs.y, public=blobs.public, persons=persons, budgets=agreed)
    assert b"person-" not in pickle.dumps(model)


# --- What cannot work is refused before a teacher is trained. ---


@pytest.mark.parametrize(
    ("settings", "budgets", "words"),
    [
        ({}, [-1.0] + [2.0] * 899, "budgets > 0 and finite"),
        ({}, [math.inf] + [2.0] * 899, "budgets > 0 and finite"),
        ({}, [math.nan] + [2.0] * 899, "missing|NaN|value in every row"),
        ({}, ["low"] * 900, "Names need `levels`"),
        ({"levels": LEVELS}, ["medium"] * 900, "one of the levels 'low', 'high'"),
        ({"levels": LEVELS}, ["low"] * 899 + ["high"], "group 'high'|persons"),
        ({"levels": LEVELS}, {0: "low"}, "`persons`, one entry per row"),
        ({"levels": LEVELS}, None, "with levels, got no budgets"),
        ({"power": 2.0}, None, "with power, got no budgets"),
        ({"exhausted_leave": True}, None, "with exhausted_leave, got no budgets"),
        ({"variant": "averaging"}, None, "weighting, vanishing, upsampling"),
        ({"variant": "vanishing", "weights": [1, 2]}, [2.0] * 900, "options of vanishing"),
        ({"variant": "upsampling", "copies": [1, 60], "grow": "shares"}, [2.0] * 800 + [4.0] * 100, "copies"),
        ({"stratified": True}, [2.0] * 900, "no stratified with budgets"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_training(blobs, monkeypatch, settings, budgets, words):
    monkeypatch.setattr(fitting, "train_ensemble", lambda *_, **__: pytest.fail("teachers were trained"))
    settings = {"min_persons": 10, **settings} if "group 'high'" in words else settings
    with pytest.raises((ValueError, TypeError), match=words):
        fitted(blobs, budgets=budgets, **settings)


def test_sites_and_lengths(blobs):
    with pytest.raises(ValueError, match="no sites with budgets"):
        pate().fit(blobs.X, blobs.y, public=blobs.public, sites=np.arange(900) % 30, budgets=[2.0] * 900)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted(blobs, budgets=[2.0] * 899)


def test_a_group_that_cannot_pay_for_one_query(blobs):
    with pytest.raises(BudgetExhausted, match="group/low"):
        fitted(blobs, budgets=blobs.chosen, levels={"low": 0.01, "high": 4.0}, weights=[1.0, 1.0])


# --- One ledger for several fits. ---


def test_groups_keep_their_accounts_over_several_fits(blobs, tmp_path):
    books = {"ledger": tmp_path / "spend.db", "budget": Budget(4.0, DELTA), "levels": LEVELS}
    first = fitted(blobs, budgets=blobs.chosen, n_queries=4, **books)
    second = fitted(blobs, budgets=blobs.chosen, n_queries=4, **books)
    assert second.groups_[0]["spent"] > first.groups_[0]["spent"]
    assert second.groups_[0]["stated"] == 2.0
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(4.0, DELTA))) as ledger:
        assert sorted(ledger.accounts()) == ["group/high", "group/low"]


def test_one_ledger_is_for_groups_or_for_all_alike(blobs, monkeypatch):
    ledger = MemoryLedger(Accountant(Budget(4.0, DELTA)))
    fitted(blobs, budgets=blobs.chosen, levels=LEVELS, n_queries=4, ledger=ledger)
    monkeypatch.setattr(fitting, "train_ensemble", lambda *_, **__: pytest.fail("teachers were trained"))
    with pytest.raises(LedgerConflict, match="accounts of groups"):
        fitted(blobs, ledger=ledger)
    with pytest.raises(LedgerConflict, match="groups of the ledger"):
        fitted(blobs, budgets=[2.0] * 900, ledger=ledger)
    monkeypatch.undo()
    plain = MemoryLedger(Accountant(Budget(4.0, DELTA)))
    fitted(blobs, n_queries=4, ledger=plain)
    with pytest.raises(LedgerConflict, match="no group paid"):
        fitted(blobs, budgets=blobs.chosen, levels=LEVELS, ledger=plain)


def test_the_same_fit_again_is_free(blobs, tmp_path):
    kept = {"ledger": tmp_path / "spend.db", "folder": tmp_path / "private", "levels": LEVELS}
    first = fitted(blobs, budgets=blobs.chosen, n_queries=8, **kept)
    again = fitted(blobs, budgets=blobs.chosen, n_queries=8, **kept)
    assert_array_equal(again.labels_, first.labels_)
    assert again.groups_ == first.groups_


def test_the_card_of_a_fit_with_budgets(blobs, tmp_path):
    model = fitted(blobs, budgets=blobs.chosen, levels=LEVELS)
    told = public_result(model, "clusters", accuracy=None)["personal"]
    assert told["variant"] == "weighting"
    assert [row["stated"] for row in told["groups"]] == [row["stated"] for row in model.groups_]
    assert (model.export(tmp_path / "student") / "card.md").exists()
