"""Partitions: disjoint, complete, even, and no further-reaching than they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.teachers import Partition, check_disjoint, partition
from tellers.teachers.partitions import assignment_key


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
    assert parts.relation.keeps == ("label",)
    assert "with the same label" in parts.relation.sentence


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(1, 40))
def test_a_person_has_one_teacher_and_a_teacher_may_have_nobody(persons, n_teachers):
    parts = partition(len(persons), n_teachers, seed=1, persons=persons)
    check_disjoint(parts.parts, persons=persons)
    assert sorted(np.concatenate(parts.parts).tolist()) == list(range(len(persons)))
    assert parts.unit == "one person"
    assert (parts.relation.change, parts.relation.keeps) == ("add or remove", ())
    assert "number of rows" not in parts.relation.public


@given(st.data())
def test_what_a_person_does_moves_nobody_else(data):
    """Rows of one person come, go, move and change places: every other row keeps its teacher."""
    names = st.sampled_from(["ann", "bo", "cy", "1", "01", "Ä", "zoe", "7"])
    persons = data.draw(st.lists(names, min_size=1, max_size=30))
    own = data.draw(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["0", "aaa"])), max_size=3))
    other = list(persons)
    if data.draw(st.booleans()):
        other = [name for name in persons if name != persons[0]]
    for place, name in own:
        other.insert(place, name)
    key = data.draw(st.integers(0, 99))
    seat = dict(
        zip(persons, teachers_of(partition(len(persons), 7, seed=key, persons=persons), len(persons)))
    )
    if other:
        for name, teacher in zip(
            other, teachers_of(partition(len(other), 7, seed=key, persons=other), len(other))
        ):
            assert seat.setdefault(name, teacher) == teacher


def test_one_entry_of_another_kind_gives_nobody_a_new_identity():
    """A column of numbers becomes one of texts, or of fractions, as soon as one entry does."""
    whole = teachers_of(partition(40, 9, seed=5, persons=np.arange(1, 41)), 40)
    for one in ("A7", 2.5, "40.5"):
        for kind in (list, np.asarray, lambda column: np.asarray(column, dtype=object)):
            column = kind([*range(1, 40), one])
            np.testing.assert_array_equal(
                teachers_of(partition(40, 9, seed=5, persons=column), 40)[:39], whole[:39]
            )
    texts = [f"{n}.0" for n in range(1, 41)]  # as tables with a fraction, or a gap, write whole numbers
    np.testing.assert_array_equal(teachers_of(partition(40, 9, seed=5, persons=texts), 40), whole)


def test_units_are_spread_evenly():
    """Ten thousand names on ten seats: chi-square with 9 degrees of freedom, false alarm 1e-6 per key."""
    for key in range(3):
        sizes = partition(10_000, 10, seed=key, persons=[f"person {n}" for n in range(10_000)]).sizes
        assert ((sizes - 1000) ** 2 / 1000).sum() < 47.0


def test_ids_name_records():
    parts = partition(5, 3, seed=1, ids=list("vwxyz"))
    assert parts.unit == "one record"
    assert parts.relation.change == "add or remove"
    with pytest.raises(ValueError, match="Leave one of the two out"):
        partition(2, 3, seed=1, ids=["a", "b"], persons=["a", "b"])


def test_a_key_may_be_drawn_fresh():
    keys = {assignment_key() for _ in range(3)}
    assert len(keys) == 3
    one = partition(50, 5, key=keys.pop(), persons=range(50))
    assert not np.array_equal(
        teachers_of(one, 50), teachers_of(partition(50, 5, key=keys.pop(), persons=range(50)), 50)
    )


def test_one_changed_label_may_move_others_which_is_why_the_relation_says_so():
    labels = np.random.default_rng(4).integers(3, size=90)
    changed = labels.copy()
    changed[11] = (changed[11] + 1) % 3
    one, two = (teachers_of(partition(90, 7, seed=5, labels=y), 90) for y in (labels, changed))
    assert np.sum(one != two) > 1
    assert partition(90, 7, seed=5).relation.keeps == ()


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
    names = ["a", "b", "c", "d"]
    parts = partition(5, sites=sites, site_names=names)
    assert [rows.tolist() for rows in parts] == [[1, 4], [0, 2], [3], []]
    assert parts.unit == "one site"
    assert (parts.relation.change, "names of sites" in parts.relation.public) == ("replace", True)
    assert len(partition(5, 4, sites=sites, site_names=names, persons=[1, 2, 1, 3, 2])) == 4
    with pytest.raises(ValueError, match="person of row 0 in part 1 and, by row 3, in part 2"):
        partition(5, sites=sites, site_names=names, persons=["SECRET", "x", "y", "SECRET", "z"])
    with pytest.raises(ValueError, match="one teacher per site, got n_teachers=2 for 4 sites"):
        partition(5, 2, sites=sites, site_names=names)
    with pytest.raises(ValueError, match="declared and never read off the rows"):
        partition(5, sites=sites)
    with pytest.raises(ValueError, match="3 declared sites in every row, got another in row 3"):
        partition(5, sites=sites, site_names=["a", "b", "x"])
    with pytest.raises(ValueError, match="different site_names, got one twice"):
        partition(5, sites=sites, site_names=["a", "b", "a"])
    with pytest.raises(ValueError, match="got no sites"):
        partition(5, 2, seed=1, site_names=names)


@pytest.mark.parametrize("bad", [None, np.nan, "", float("nan")])
def test_persons_must_be_known(bad):
    persons = np.array(["a", "b", bad, "c"], dtype=object)
    with pytest.raises(ValueError, match="every row of persons, got none in row 2"):
        partition(4, 2, seed=1, persons=persons)
    with pytest.raises(ValueError, match="every row of sites, got none in row 2"):
        partition(4, sites=persons, site_names=["a", "b", "c"])


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
        ({"n_teachers": None}, "n_teachers and a seed"),
        ({"seed": None}, "n_teachers and a seed"),
        ({"seed": -1}, "seed >= 0"),
        ({"seed": 1.5}, "seed >= 0"),
        ({"persons": [1, 2]}, "each of 6 rows in persons"),
        ({"labels": [[0] * 6]}, "each of 6 rows in labels"),
        ({"labels": [0] * 6, "persons": [0] * 6}, "got both"),
    ],
)
def test_partitions_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=words):
        partition(**{"n_rows": 6, "n_teachers": 2, "seed": 1, **options})


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "at least one part"),
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
