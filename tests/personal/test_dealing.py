"""Dealing: hands without repeats, everybody equally often, and parts that hold one group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.runs.personal import Group, budget_pure_partition, deal, read_consent, teachers_per_group
from tellers.teachers import partition


@given(st.integers(1, 12), st.lists(st.integers(0, 12), max_size=40), st.integers(0, 99))
def test_hands_hold_different_cards_and_cards_come_equally_often(n_cards, hands, seed):
    sizes = [min(size, n_cards) for size in hands]
    dealt = deal(n_cards, np.array(sizes, dtype=np.int64), rng=np.random.default_rng(seed))
    assert [hand.size for hand in dealt] == sizes
    counts = np.zeros(n_cards, dtype=np.int64)
    for hand in dealt:
        assert len(set(hand.tolist())) == hand.size
        counts[hand] += 1
        assert np.ptp(counts) <= 1  # at any time, not only in the end


def test_every_card_is_as_likely_in_every_hand():
    # 4000 deals of a hand that straddles two decks; a share of 2/5 has a deviation of 0.0077, and 5 cards in
    # 3 hands beyond 4.5 deviations happen once in ten thousand.
    shares = np.zeros((3, 5))
    for seed in range(4000):
        for at, hand in enumerate(deal(5, [2, 2, 2], rng=np.random.default_rng(seed))):
            shares[at, hand] += 1 / 4000
    assert np.abs(shares - 0.4).max() < 4.5 * 0.0078


def test_hands_that_cannot_be_dealt():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="0 to 3 cards"):
        deal(3, [4], rng=rng)
    with pytest.raises(ValueError, match="0 to 3 cards"):
        deal(3, [-1], rng=rng)
    with pytest.raises(TypeError, match="whole numbers"):
        deal(3, [1.5], rng=rng)
    assert deal(3, [], rng=rng) == []


@given(st.lists(st.integers(5, 200), min_size=1, max_size=20), st.integers(0, 60))
def test_teachers_are_shared_out_by_persons(sizes, more):
    n_teachers = min(len(sizes) + more, sum(sizes))
    groups = [Group(f"g{at}", 1.0 + at, size) for at, size in enumerate(sizes)]
    counts = teachers_per_group(groups, n_teachers, min_persons=1)
    assert sum(counts) == n_teachers
    assert all(1 <= count <= size for count, size in zip(counts, sizes, strict=True))
    # No teacher could move to another group and leave the largest part smaller.
    parts = np.array(sizes) / counts
    if max(counts) > 1:
        assert min(size / (count - 1) for size, count in zip(sizes, counts, strict=True) if count > 1) >= (
            parts.max() - 1e-9
        )


def test_groups_too_small_for_a_teacher_are_refused():
    groups = [Group("low", 0.7, 990), Group("high", 1.4, 10)]
    with pytest.raises(ValueError, match=r"at least 25 persons in every group.* got 10 in group 'high'"):
        teachers_per_group(groups, 20)
    assert teachers_per_group(groups, 20, min_persons=10) == (19, 1)
    with pytest.raises(ValueError, match="at least one teacher per group, 2"):
        teachers_per_group(groups, 1)
    with pytest.raises(ValueError, match="at most one teacher per person"):
        teachers_per_group(groups, 1001)
    with pytest.raises(ValueError, match="at least 100 persons per teacher"):
        teachers_per_group([Group("all", 1.0, 990)], 10, min_persons=100)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=80),
    st.integers(0, 20),
    st.integers(0, 9),
)
def test_parts_hold_one_group_and_whole_persons(rows, more, seed):
    level = dict(rows)  # a person's last word
    persons = [person for person, _ in rows]
    consent = read_consent([[0.7, 1.4, 2.8][level[p]] for p in persons], delta=1e-5, persons=persons)
    n_teachers = min(len(consent.groups) + more, consent.n_persons)
    per_group = teachers_per_group(consent.groups, n_teachers, min_persons=1)
    parts = budget_pure_partition(consent, per_group, seed=seed)
    assert parts.n_teachers == n_teachers
    assert parts.unit == "one person"
    assert sorted(np.concatenate(parts.parts).tolist()) == list(range(len(rows)))
    owner = {}
    for teacher, part in enumerate(parts):
        assert len({level[persons[row]] for row in part}) <= 1
        for row in part:
            assert owner.setdefault(persons[row], teacher) == teacher
    group_of = np.repeat(np.arange(len(per_group)), per_group)
    for at, part in zip(group_of, parts, strict=True):
        assert set(consent.group_of[consent.persons[part]].tolist()) <= {int(at)}
    assert (parts.relation.change, parts.relation.keeps) == ("replace", ("budget",))


@pytest.mark.parametrize("persons", [None, [row // 3 for row in range(60)]])
def test_one_group_is_the_plain_partition(persons):
    consent = read_consent([1.0] * 60, delta=1e-5, persons=persons)
    ours, plain = budget_pure_partition(consent, (7,), seed=5), partition(60, 7, seed=5, persons=persons)
    assert ours.unit == plain.unit
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_partition_needs_teachers_for_every_group():
    consent = read_consent([0.7, 1.4], delta=1e-5)
    with pytest.raises(ValueError, match="each of 2 groups, got 1"):
        budget_pure_partition(consent, (2,), seed=5)
