"""Partitions: disjoint, complete, even, and no further-reaching than they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.teachers.partition import Partition, check_disjoint, partition


def teachers_of(parts, n_rows):
    owner = np.full(n_rows, -1)
    for teacher, rows in enumerate(parts):
        owner[rows] = teacher
    return owner


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 9))
def test_every_row_goes_to_one_teacher(n_rows, n_teachers, seed):
    n_teachers = min(n_teachers, n_rows)
    parts = partition(n_rows, n_teachers, seed=seed)
    assert sorted(np.concatenate(parts.parts).tolist()) == list(range(n_rows))
    assert len(parts) == parts.n_teachers == n_teachers
    assert np.ptp(parts.sizes) <= 1
    assert parts.unit == "one record"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 20), st.integers(0, 9))
def test_stratified_parts_share_every_class(labels, n_teachers, seed):
    n_teachers = min(n_teachers, len(labels))
    parts = partition(len(labels), n_teachers, seed=seed, labels=labels)
    counts = np.array([np.bincount(np.array(labels)[rows], minlength=4) for rows in parts])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(parts.sizes) <= 1
    assert "keeps its label" in parts.notes[0]


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=80),
    st.integers(1, 20),
    st.sampled_from(["persons", "rows"]),
)
def test_a_person_has_one_teacher(persons, n_teachers, balance):
    n_persons = len(set(persons))
    n_teachers = min(n_teachers, n_persons)
    parts = partition(len(persons), n_teachers, seed=1, persons=persons, balance=balance)
    check_disjoint(parts.parts, persons=persons)
    assert sorted(np.concatenate(parts.parts).tolist()) == list(range(len(persons)))
    assert parts.unit == "one person"
    if balance == "persons":
        assert np.ptp([len({persons[row] for row in rows}) for rows in parts]) <= 1
    else:
        # The greedy rule's gap never exceeds the largest person.
        assert np.ptp(parts.sizes) <= np.bincount(persons).max()
        assert "keeps their number" in parts.notes[0]


def test_one_person_more_or_less_busy_moves_nobody_else():
    generator = np.random.default_rng(3)
    persons = np.concatenate([np.arange(50), generator.integers(50, size=150)])
    busier = np.concatenate([persons, np.full(40, 17)])
    before = teachers_of(partition(200, 8, seed=5, persons=persons), 200)
    after = teachers_of(partition(240, 8, seed=5, persons=busier), 240)
    np.testing.assert_array_equal(before, after[:200])


def test_one_changed_label_may_move_others_which_is_why_there_is_a_note():
    labels = np.random.default_rng(4).integers(3, size=90)
    changed = labels.copy()
    changed[11] = (changed[11] + 1) % 3
    one, two = (teachers_of(partition(90, 7, seed=5, labels=y), 90) for y in (labels, changed))
    assert np.sum(one != two) > 1
    assert partition(90, 7, seed=5).notes == ()


def test_the_seed_decides():
    same = [partition(50, 5, seed=s) for s in (1, 1, np.random.default_rng(1))]
    for other in same[1:]:
        np.testing.assert_array_equal(teachers_of(same[0], 50), teachers_of(other, 50))
    assert not np.array_equal(teachers_of(same[0], 50), teachers_of(partition(50, 5, seed=2), 50))


def test_rows_are_shuffled():
    # Sorted tables are common; a part of neighbouring rows would see one class only.
    first = partition(1000, 10, seed=1)[0]
    assert np.ptp(first) > 800


def test_sites_are_teachers():
    sites = ["b", "a", "b", "c", "a"]
    parts = partition(5, sites=sites)
    assert [rows.tolist() for rows in parts] == [[0, 2], [1, 4], [3]]
    assert parts.unit == "one site"
    assert len(partition(5, 3, sites=sites, persons=[1, 2, 1, 3, 2])) == 3
    with pytest.raises(ValueError, match="person of row 0 in part 0 and, by row 3, in part 2"):
        partition(5, sites=sites, persons=["SECRET", "x", "y", "SECRET", "z"])
    with pytest.raises(ValueError, match="one teacher per site, got n_teachers=2 for 3 sites"):
        partition(5, 2, sites=sites)


@pytest.mark.parametrize("bad", [None, np.nan, "", float("nan")])
def test_persons_must_be_known(bad):
    persons = np.array(["a", "b", bad, "c"], dtype=object)
    with pytest.raises(ValueError, match="every row of persons, got none in row 2"):
        partition(4, 2, seed=1, persons=persons)
    with pytest.raises(ValueError, match="every row of sites, got none in row 2"):
        partition(4, sites=persons)


def test_masked_and_numeric_gaps_are_gaps():
    with pytest.raises(ValueError, match="got none in row 1"):
        partition(3, 2, seed=1, persons=[1.0, np.nan, 2.0])
    with pytest.raises(ValueError, match="a masked one in row 2"):
        partition(3, 2, seed=1, persons=np.ma.array([1, 2, 3], mask=[False, False, True]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_rows": 0}, "n_rows >= 1"),
        ({"n_teachers": 0}, "n_teachers >= 1"),
        ({"n_teachers": 7}, "at most one teacher per row, got n_teachers=7 for 6 rows"),
        (
            {"n_teachers": 4, "persons": list("aabbcc")},
            "at most one teacher per person, got n_teachers=4 for 3",
        ),
        ({"n_teachers": None}, "n_teachers and a seed"),
        ({"seed": None}, "n_teachers and a seed"),
        ({"seed": -1}, "seed >= 0"),
        ({"seed": 1.5}, "seed >= 0"),
        ({"persons": [1, 2]}, "each of 6 rows in persons"),
        ({"labels": [[0] * 6]}, "each of 6 rows in labels"),
        ({"labels": [0] * 6, "persons": [0] * 6}, "got both"),
        ({"balance": "rows"}, "'rows' where persons alone are given"),
        ({"balance": "luck"}, "balance='persons'"),
    ],
)
def test_partitions_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=words):
        partition(**{"n_rows": 6, "n_teachers": 2, "seed": 1, **options})


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "at least one part"),
        ([[0, 1], np.array([], dtype=int)], "part 1 has none"),
        ([[0, 1], [2, 1]], "row 1 in part 0 and in part 1"),
        ([[0, 1], [2, 3, 2]], "row 2 twice in part 1"),
        ([[0, -1]], "negative"),
        ([[[0]]], "one dimension"),
    ],
)
def test_overlaps_are_refused(parts, words):
    with pytest.raises(ValueError, match=words):
        check_disjoint(parts)
    with pytest.raises(ValueError, match=words):
        Partition(tuple(np.array(part) for part in parts), unit="one record")


def test_shared_persons_are_named_by_their_rows_alone():
    persons = ["mallory", "bo", "bo", "mallory"]
    with pytest.raises(ValueError, match="person of row 1 in part 0 and, by row 2, in part 1") as caught:
        check_disjoint([[0, 1], [2, 3]], persons=persons)
    assert "bo" not in str(caught.value)
    assert "mallory" not in str(caught.value)
    check_disjoint([[0, 3], [2, 1]], persons=persons)
    check_disjoint([[0], [1]], persons=persons)
    with pytest.raises(ValueError, match="a person for every row, got 4 for parts up to row 5"):
        check_disjoint([[0], [5]], persons=persons)


def test_row_numbers_are_whole():
    with pytest.raises(TypeError, match="part 0 has dtype float64"):
        check_disjoint([[0.0, 1.0]])


def test_a_partition_says_its_unit_and_keeps_its_rows():
    rows = np.array([2, 0])
    parts = Partition((rows, np.array([1])), unit="one person", notes=("why",))
    assert repr(parts) == "Partition(n_teachers=2, unit='one person')"
    assert parts.summary == "2 teachers, 1 to 2 rows each (median 1.5); protected unit: one person"
    rows[0] = 1
    assert parts[0].tolist() == [2, 0]
    with pytest.raises(ValueError, match="read-only"):
        parts[0][0] = 1
    with pytest.raises(ValueError, match="a unit among 'one record', 'one person', 'one site', "):
        Partition((rows,), unit="one hospital")
