"""Consent: every spelling of the same budgets, and every way in which they can be wrong."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.runs.personal import Consent, Group, read_consent

LEVELS = {"low": 0.7, "medium": 1.4, "high": 2.1}
NUMBERS = st.floats(1e-3, 1e3)


def test_a_column_levels_and_a_mapping_say_the_same():
    names = ["high", "low", "low", "medium", "high"]
    persons = ["ann", "bo", "cy", "di", "ann"]
    columns = [
        read_consent(names, delta=1e-5, levels=LEVELS, persons=persons),
        read_consent([LEVELS[name] for name in names], delta=1e-5, persons=persons),
        read_consent(np.array([LEVELS[name] for name in names]), delta=1e-5, persons=np.array(persons)),
        read_consent(dict(zip(persons, names, strict=True)), delta=1e-5, levels=LEVELS, persons=persons),
    ]
    for consent in columns:
        assert consent.group_of.tolist() == [2, 0, 0, 1]
        assert consent.persons.tolist() == [0, 1, 2, 3, 0]
        assert [g.epsilon for g in consent.groups] == [0.7, 1.4, 2.1]
        assert (consent.n_persons, consent.n_rows, consent.unit) == (4, 5, "one person")
    assert [g.name for g in columns[0].groups] == ["low", "medium", "high"]
    assert [g.name for g in columns[1].groups] == ["epsilon 0.7", "epsilon 1.4", "epsilon 2.1"]
    assert columns[0].groups[0].account == "group/low"


def test_levels_nobody_chose_are_no_groups():
    consent = read_consent(["low", "high"], delta=1e-5, levels=LEVELS)
    assert [g.name for g in consent.groups] == ["low", "high"]
    assert (consent.n_rows, consent.unit) == (2, "one record")


@pytest.mark.parametrize(
    ("budgets", "says"),
    [
        ([0.7, 0.0], "> 0 and finite, got another in row 1"),
        ([0.7, -2], "> 0 and finite, got another in row 1"),
        ([math.inf, 0.7], "> 0 and finite, got another in row 0"),
        ([10**400, 0.7], "> 0 and finite, got another in row 0"),
        ([0.7, math.nan], "none in row 1"),
        ([0.7, None], "none in row 1"),
        (np.ma.masked_array([0.7, 0.7], mask=[False, True]), "masked one in row 1"),
        ([], "one entry per row"),
        ([[0.7]], "one entry per row"),
    ],
)
def test_budgets_that_are_none(budgets, says):
    with pytest.raises(ValueError, match=says):
        read_consent(budgets, delta=1e-5)


@pytest.mark.parametrize("entry", ["low", "0.7", True, [0.7]])
def test_budgets_that_are_not_numbers(entry):
    budgets = np.empty(2, dtype=object)
    budgets[:] = [0.7, entry]
    with pytest.raises(TypeError, match=r"in row 1\. Names need `levels`"):
        read_consent(budgets, delta=1e-5)


def test_levels_that_are_not_there():
    with pytest.raises(
        ValueError, match=r"one of the levels 'low', 'medium', 'high', got something else in row 1"
    ):
        read_consent(["low", "hihg"], delta=1e-5, levels=LEVELS)
    with pytest.raises(ValueError, match=r"one of the levels .* got something else in row 0"):
        read_consent([0.7, "low"], delta=1e-5, levels=LEVELS)
    for epsilon in (0, -1.0, math.inf, math.nan, None):
        with pytest.raises(ValueError, match="level 'low' > 0 and finite"):
            read_consent(["low"], delta=1e-5, levels={"low": epsilon})
    with pytest.raises(ValueError, match="at least one level"):
        read_consent(["low"], delta=1e-5, levels={})
    with pytest.raises(ValueError, match="names of levels"):
        read_consent(["low"], delta=1e-5, levels={" ": 1.0})
    with pytest.raises(ValueError, match="at most 2 levels in use, got 3"):
        read_consent(list(LEVELS), delta=1e-5, levels=LEVELS, max_groups=2)


def test_a_column_taken_by_mistake_is_not_shown():
    """Whatever is in it may be a diagnosis, or a name: the row says where to look."""
    for budgets, levels in (
        (["low", "diabetes"], LEVELS),
        ([0.7, "diabetes"], None),
        ([0.7, -54321.0], None),
    ):
        with pytest.raises((TypeError, ValueError), match="in row 1") as refused:
            read_consent(budgets, delta=1e-5, levels=levels)
        assert "diabetes" not in str(refused.value)
        assert "54321" not in str(refused.value)


def test_levels_are_a_mapping():
    with pytest.raises(TypeError, match="levels as a mapping"):
        read_consent(["low"], delta=1e-5, levels=["low"])


def test_persons_who_disagree_or_are_missing():
    with pytest.raises(ValueError, match="different ones in rows 0 and 2"):
        read_consent([0.7, 1.4, 1.4], delta=1e-5, persons=["ann", "bo", "ann"])
    with pytest.raises(ValueError, match="none for the person of row 1") as refused:
        read_consent({"ann": 0.7}, delta=1e-5, persons=["ann", "bo"])
    assert "bo" not in str(refused.value)  # the row names the person to whoever holds the table
    with pytest.raises(ValueError, match="`persons`, one entry per row"):
        read_consent({"ann": 0.7}, delta=1e-5)
    with pytest.raises(ValueError, match="2 budgets and 1 persons"):
        read_consent([0.7, 1.4], delta=1e-5, persons=["ann"])
    with pytest.raises(ValueError, match="none in row 1"):
        read_consent([0.7, 1.4], delta=1e-5, persons=["ann", None])
    with pytest.raises(ValueError, match="none in row 0"):
        read_consent({"ann": None}, delta=1e-5, persons=["ann"])
    with pytest.raises(ValueError, match="delta"):
        read_consent([0.7], delta=0)


@given(st.lists(NUMBERS, min_size=1, max_size=200), st.integers(1, 20))
def test_nobody_is_in_a_group_above_their_budget(budgets, max_groups):
    consent = read_consent(budgets, delta=1e-5, max_groups=max_groups)
    held = np.array([group.epsilon for group in consent.groups])[consent.group_of]
    assert np.all(held <= budgets)
    assert len(consent.groups) == min(max_groups, len(set(budgets)))
    assert min(held) == min(budgets)
    rows = consent.summary()
    assert sum(row["persons"] for row in rows) == len(budgets)
    assert math.isclose(sum(row["share"] for row in rows), 1)
    wasted = sum(row["waste"] * row["persons"] for row in rows)
    assert math.isclose(wasted, np.sum(np.array(budgets) - held), rel_tol=1e-9, abs_tol=1e-9)
    if len(set(budgets)) <= max_groups:
        assert all(row["waste"] == 0 for row in rows)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=9, unique=True), st.integers(1, 4))
def test_bins_waste_as_little_as_possible(budgets, max_groups):
    consent = read_consent(budgets, delta=1e-5, max_groups=max_groups)
    wasted = sum(group.waste * group.n_persons for group in consent.groups)
    ordered = sorted(budgets)
    least = min(
        sum(budget - max(s for s in (ordered[0], *starts) if s <= budget) for budget in ordered)
        for starts in combinations(ordered[1:], min(max_groups, len(ordered)) - 1)
    )
    assert math.isclose(wasted, least, abs_tol=1e-9)


def test_many_thousand_budgets_are_binned_quickly_and_well():
    budgets = np.random.default_rng(3).uniform(1.0, 2.0, size=20_000)
    consent = read_consent(budgets, delta=1e-5)
    assert len(consent.groups) == 20
    wasted = sum(group.waste * group.n_persons for group in consent.groups) / len(budgets)
    assert wasted < 0.027  # twenty even bins of a uniform law waste 1/40


def test_close_budgets_have_names_of_their_own():
    consent = read_consent([0.3, 0.1 + 0.2, 1.0], delta=1e-5)
    assert len({group.name for group in consent.groups}) == 3


def test_nothing_about_a_person_is_printed():
    consent = read_consent([0.7, 1.4, 0.7], delta=1e-5, persons=["ann", "bo", "cy"])
    assert repr(consent) == "Consent(n_persons=3, groups=('epsilon 0.7', 'epsilon 1.4'), delta=1e-05)"
    with pytest.raises(ValueError, match="read-only"):
        consent.group_of[0] = 1


def test_a_consent_is_whole():
    low, high = Group("low", 0.7, 1), Group("high", 1.4, 1)
    of = np.array([0, 1])
    with pytest.raises(ValueError, match="as many persons"):
        Consent((low, high), np.array([0, 0]), 1e-5)
    with pytest.raises(ValueError, match="smallest budget to the largest"):
        Consent((high, low), of, 1e-5)
    with pytest.raises(ValueError, match="one twice"):
        Consent((low, Group("low", 1.4, 1)), of, 1e-5)
    with pytest.raises(ValueError, match=r"persons 0\.\.1"):
        Consent((low, high), of, 1e-5, person_of=np.array([0, 0]))
    with pytest.raises(ValueError, match="name"):
        Group(" ", 1.0, 1)
    with pytest.raises(ValueError, match="epsilon"):
        Group("low", 0.0, 1)
