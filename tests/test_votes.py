"""Votes: what they take, what they refuse and where, and that they stay private."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers import GNMax, Unit, Votes, noise
from tellers.errors import SealedValue

BALLOTS = np.array([[0, 1, 2], [0, 1, 0], [2, 1, 0], [0, 1, 1]])
COUNTS = np.array([[3, 0, 1], [0, 4, 0], [2, 1, 1]])


MAKERS = [
    pytest.param(lambda table: Votes.from_ballots(table, n_classes=3), id="ballots"),
    pytest.param(lambda table: Votes.from_counts(table, n_teachers=4), id="counts"),
]


def with_entry(table, place, value):
    changed = table.astype(np.float64)
    changed[place] = value
    return changed


# What comes in ----------------------------------------------------------------------------------------------


def test_ballots_are_counted():
    votes = Votes.from_ballots(BALLOTS, n_classes=3)
    np.testing.assert_array_equal(votes.counts, COUNTS)
    np.testing.assert_array_equal(votes.ballots, BALLOTS)
    assert (votes.n_teachers, votes.n_queries, votes.n_classes, len(votes)) == (4, 3, 3, 3)


def test_counts_have_no_ballots():
    votes = Votes.from_counts(COUNTS, n_teachers=4)
    assert votes.ballots is None
    assert (votes.n_teachers, votes.n_queries, votes.n_classes) == (4, 3, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float64])
def test_every_kind_of_whole_number_is_fine(dtype):
    np.testing.assert_array_equal(Votes.from_ballots(BALLOTS.astype(dtype), n_classes=3).counts, COUNTS)
    assert Votes.from_counts(COUNTS.astype(dtype), n_teachers=4).counts.dtype == np.int64


@given(st.integers(1, 40), st.integers(1, 15), st.integers(2, 9), st.integers(0, 10**6))
def test_counts_are_those_of_each_query(n_teachers, n_queries, n_classes, seed):
    ballots = np.random.default_rng(seed).integers(0, n_classes, (n_teachers, n_queries))
    votes = Votes.from_ballots(ballots, n_classes=n_classes)
    expected = [[np.sum(ballots[:, q] == c) for c in range(n_classes)] for q in range(n_queries)]
    np.testing.assert_array_equal(votes.counts, expected)
    np.testing.assert_array_equal(votes.top, np.max(expected, axis=1))
    ordered = np.sort(expected, axis=1)
    np.testing.assert_array_equal(votes.gap, ordered[:, -1] - ordered[:, -2])


def test_classes_without_a_vote_are_known_by_declaration():
    assert Votes.from_ballots([[0], [0]], n_classes=7).n_classes == 7
    assert Votes.from_ballots([[0], [0]], n_classes=np.int64(7)).counts.shape == (1, 7)


def test_a_whole_float_may_declare_the_number_of_classes():
    assert Votes.from_ballots([[0], [1]], n_classes=3.0).n_classes == 3
    assert Votes.from_counts([[1, 1]], n_teachers=2.0).n_teachers == 2


def test_votes_do_not_change_with_the_arrays_they_came_from():
    ballots, counts = BALLOTS.copy(), COUNTS.copy()
    first, second = Votes.from_ballots(ballots, n_classes=3), Votes.from_counts(counts, n_teachers=4)
    ballots[:], counts[:] = 1, 0
    np.testing.assert_array_equal(first.counts, COUNTS)
    np.testing.assert_array_equal(first.ballots, BALLOTS)
    np.testing.assert_array_equal(second.counts, COUNTS)
    for table in (first.counts, first.ballots, second.counts):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 5


# What is refused, and where ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "NaN or infinity at teacher 2, query 1"),
        (math.inf, "NaN or infinity at teacher 2, query 1"),
        (0.5, "a fraction at teacher 2, query 1"),
        (-1, "class id outside at teacher 2, query 1"),
        (3, "class id outside at teacher 2, query 1"),
        (2.0**60, "at teacher 2, query 1"),
        (-(2.0**70), "at teacher 2, query 1"),
    ],
)
def test_bad_ballots_are_named(value, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            Votes.from_ballots(with_entry(BALLOTS, (2, 1), value), n_classes=3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "NaN or infinity at query 1, class 2"),
        (-math.inf, "NaN or infinity at query 1, class 2"),
        (0.5, "a fraction at query 1, class 2"),
        (-1, "negative entry at query 1, class 2"),
        (2, "sum to n_teachers=4, which query 1 does not"),
        (2.0**60, "at query 1, class 2"),
        (-(2.0**70), "at query 1, class 2"),
    ],
)
def test_bad_counts_are_named(value, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            Votes.from_counts(with_entry(COUNTS, (1, 2), value), n_teachers=4)


def test_the_first_offending_place_is_named():
    ballots = with_entry(with_entry(BALLOTS, (3, 0), math.nan), (1, 2), math.nan)
    with pytest.raises(ValueError, match="teacher 1, query 2"):
        Votes.from_ballots(ballots, n_classes=3)
    with pytest.raises(ValueError, match="query 0, class 2"):
        Votes.from_counts([[4, 1, -1], [-1, 4, 1]], n_teachers=4)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("table", "kind", "message"),
    [
        ([0, 1, 2], ValueError, "looks like labels, not votes"),
        (3, ValueError, "shape"),
        (np.zeros((2, 2, 2)), ValueError, "shape"),
        (np.zeros((0, 3)), ValueError, "at least one"),
        (np.zeros((3, 0)), ValueError, "at least one"),
        ([["a", "b"]], TypeError, "whole numbers"),
        ([[True, False]], TypeError, "dtype bool"),
        ([[None, 1]], TypeError, "dtype object"),
        ([[1j, 0]], TypeError, "dtype complex"),
    ],
)
def test_what_are_no_votes_is_refused(make, table, kind, message):
    with pytest.raises(kind, match=message):
        make(table)


@pytest.mark.parametrize("make", MAKERS)
def test_axes_are_named_in_english(make):
    with pytest.raises(ValueError) as caught:
        make([0, 1, 2])
    assert "querys" not in str(caught.value)
    assert "classs" not in str(caught.value)


@pytest.mark.parametrize("bad", [0, 1, -3, 2.5, math.nan, None, "10", True])
def test_the_number_of_classes_is_declared(bad):
    with pytest.raises(ValueError, match="n_classes"):
        Votes.from_ballots(BALLOTS, n_classes=bad)


@pytest.mark.parametrize("bad", [0, -3, 2.5, math.nan, None, "10", True])
def test_the_number_of_teachers_is_declared(bad):
    with pytest.raises(ValueError, match="n_teachers"):
        Votes.from_counts(COUNTS, n_teachers=bad)


def test_one_class_is_no_vote():
    with pytest.raises(ValueError, match="at least 2 classes"):
        Votes.from_counts([[4], [4]], n_teachers=4)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("secret", [97123, 88.125, -76543])
def test_messages_carry_no_tally(make, secret):
    # These numbers appear in no shape, index or declaration, so they can only be leaked.
    with pytest.raises(ValueError) as caught:
        make(with_entry(COUNTS, (1, 1), secret))
    assert not re.search(r"97,?123|88\.125|76,?543", str(caught.value))


# Votes are not labels, and labels are not votes -------------------------------------------------------------


def test_labels_are_not_votes():
    votes = Votes.from_counts([[240, 10], [10, 240]], n_teachers=250)
    release = GNMax(sigma=1.0).release(votes, noise.seeded(7))
    for labels in (release.labels, release.labels.tolist()):
        with pytest.raises(ValueError, match="looks like labels"):
            Votes.from_counts(labels, n_teachers=250)
        with pytest.raises(ValueError, match="looks like labels"):
            Votes.from_ballots(labels, n_classes=2)
    with pytest.raises((ValueError, TypeError)):
        Votes.from_ballots(release, n_classes=2)


def test_votes_are_not_labels():
    votes = Votes.from_counts(COUNTS, n_teachers=4)
    for use in (np.asarray, np.array, np.mean, lambda v: np.array([v, v]), lambda v: np.equal(v, [0, 1, 2])):
        with pytest.raises(SealedValue, match="not labels"):
            use(votes)
    with pytest.raises(SealedValue):
        Votes.from_counts(votes, n_teachers=4)


def test_votes_do_not_print():
    votes = Votes.from_ballots(BALLOTS, n_classes=3)
    same_shape = Votes.from_ballots(np.zeros_like(BALLOTS), n_classes=3)
    for shown in (repr, str, "{}".format, "{!r}".format):
        assert shown(votes) == shown(same_shape) == "Votes(<private>, n_queries=3, n_teachers=4, n_classes=3)"


# Parts of a batch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (0, [0]),
        (-1, [2]),
        (np.int64(1), [1]),
        (slice(1, None), [1, 2]),
        ([2, 0], [2, 0]),
        (np.array([True, False, True]), [0, 2]),
        (np.array([1, 1, 1]), [1, 1, 1]),
        (slice(0, 0), []),
    ],
)
def test_parts_keep_counts_and_ballots_together(rows, expected):
    part = Votes.from_ballots(BALLOTS, n_classes=3)[rows]
    np.testing.assert_array_equal(part.counts, COUNTS[expected])
    np.testing.assert_array_equal(part.ballots, BALLOTS[:, expected])
    assert (part.n_teachers, part.n_classes) == (4, 3)
    assert Votes.from_counts(COUNTS, n_teachers=4)[rows].ballots is None


@pytest.mark.parametrize("row", [3, -4])
def test_queries_that_do_not_exist(row):
    with pytest.raises(IndexError):
        Votes.from_counts(COUNTS, n_teachers=4)[row]


def test_iterating_gives_single_queries():
    parts = list(Votes.from_ballots(BALLOTS, n_classes=3))
    assert [len(part) for part in parts] == [1, 1, 1]
    np.testing.assert_array_equal(np.concatenate([part.counts for part in parts]), COUNTS)


def test_the_unit_is_one_changed_ballot():
    unit = Votes.from_counts(COUNTS, n_teachers=4).unit
    moved = np.array([-1, 1, 0])
    assert unit == Unit()
    assert (unit.l1, unit.linf) == (np.abs(moved).sum(), np.abs(moved).max())
    assert unit.l2 == pytest.approx(np.linalg.norm(moved))
