"""Dealing: who sits in which hand, everybody equally often and nobody twice in one.

One rule serves twice. Teachers are dealt into queries where not all of them vote, and people into several
teachers where they count more than once. Nothing private is looked at.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..teachers.assignment import assignment_key
from ..teachers.partition import Partition, partition
from .consent import Consent, Group

Integers = NDArray[np.int64]


def deal(n_cards: int, hands: ArrayLike, *, rng: np.random.Generator) -> list[Integers]:
    """Deal hands of different cards, one after another, from decks shuffled anew whenever one runs out.

    After any number of hands, no card has been dealt more than once more often than any other.

    >>> hands = deal(4, [3, 3, 2], rng=np.random.default_rng(7))
    >>> [len(set(hand.tolist())) for hand in hands]
    [3, 3, 2]
    >>> np.bincount(np.concatenate(hands))
    array([2, 2, 2, 2])
    >>> deal(4, [5], rng=np.random.default_rng(7))
    Traceback (most recent call last):
        ...
    ValueError: Expected hands of 0 to 4 cards, as there are 4, got one of 5.
    """
    require_count(n_cards=n_cards)
    sizes = np.asarray(hands)
    if sizes.ndim != 1 or (sizes.size and sizes.dtype.kind not in "iu"):
        raise TypeError("Expected a list of whole numbers, the size of each hand.")
    sizes = sizes.astype(np.int64)
    wrong = sizes[(sizes < 0) | (sizes > n_cards)]
    if wrong.size:
        raise ValueError(
            f"Expected hands of 0 to {n_cards} cards, as there are {n_cards}, got one of {wrong[0]}."
        )
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    dealt = np.empty(total, dtype=np.int64)
    for begun in range(0, total, n_cards):
        deck = rng.permutation(n_cards)
        hand = int(np.searchsorted(ends, begun, side="right"))
        held = dealt[ends[hand] - sizes[hand] : begun]
        if held.size:
            _put_back(deck, held, int(ends[hand]) - begun, rng=rng)
        dealt[begun : begun + n_cards] = deck[: total - begun]
    return np.split(dealt, ends[:-1]) if ends.size else []


def _put_back(deck: Integers, held: Integers, n_next: int, *, rng: np.random.Generator) -> None:
    """Swap cards that the unfinished hand holds already from the top of the deck to further down.

    The hand has held.size + n_next <= n_cards cards in the end, so enough others lie below.
    """
    is_held = np.zeros(deck.size, dtype=bool)
    is_held[held] = True
    is_held = is_held[deck]
    clash = np.flatnonzero(is_held[:n_next])
    free = np.flatnonzero(~is_held[n_next:]) + n_next
    swap = rng.choice(free, size=clash.size, replace=False)
    deck[clash], deck[swap] = deck[swap], deck[clash]


def teachers_per_group(
    groups: Sequence[Group], n_teachers: int, *, min_persons: int | None = None
) -> tuple[int, ...]:
    """Return how many teachers each group gets when none mixes groups: by persons, and at least one.

    `min_persons` is how many a teacher needs to learn from; without it, half of an even share.

    >>> from tellers.personal.consent import Group
    >>> teachers_per_group([Group("low", 0.7, 75), Group("high", 1.4, 25)], 10)
    (7, 3)
    >>> teachers_per_group([Group("low", 0.7, 99), Group("high", 1.4, 1)], 10)
    Traceback (most recent call last):
        ...
    ValueError: Expected at least 5 persons in every group, ... got 1 in group 'high'. ...
    """
    require_count(n_teachers=n_teachers)
    n_persons = sum(group.n_persons for group in groups)
    if n_teachers < len(groups):
        raise ValueError(
            f"Expected at least one teacher per group, {len(groups)}, got n_teachers={n_teachers}. Take more "
            "teachers, or join groups."
        )
    if n_teachers > n_persons:
        raise ValueError(
            f"Expected at most one teacher per person, got n_teachers={n_teachers} for {n_persons} persons. "
            "Take fewer teachers."
        )
    least = max(1, n_persons // (2 * n_teachers)) if min_persons is None else min_persons
    require_count(min_persons=least)
    for group in groups:
        if group.n_persons < least:
            raise ValueError(
                f"Expected at least {least} persons in every group, as one teacher needs, got "
                f"{group.n_persons} in group {group.name!r}. Join it with a stricter one, take upsampling, "
                "or lower min_persons."
            )
    sizes = np.array([group.n_persons for group in groups], dtype=np.float64)
    counts = np.ones(len(groups), dtype=np.int64)
    for _ in range(int(n_teachers) - len(groups)):
        # The next teacher goes where the parts are largest, so that all parts end up nearly even.
        room = (counts + 1) * least <= sizes
        if not room.any():
            raise ValueError(
                f"Expected at least {least} persons per teacher in every group, which n_teachers="
                f"{n_teachers} for {n_persons} persons does not leave. Take fewer teachers."
            )
        counts[np.argmax(np.where(room, sizes / counts, -1.0))] += 1
    return tuple(counts.tolist())


def budget_pure_partition(consent: Consent, per_group: Sequence[int], *, seed: int) -> Partition:
    """Assign the rows so that every teacher learns from one group only: the first group's come first.

    Persons are seated by name among the teachers of their group, rows without persons by their places. With
    one group this is the plain partition of the same seed.

    >>> from tellers.personal.consent import read_consent
    >>> consent = read_consent([0.7, 1.4, 0.7, 1.4, 0.7, 0.7], delta=1e-5)
    >>> [part.tolist() for part in budget_pure_partition(consent, (2, 1), seed=7)]
    [[0, 2], [4, 5], [1, 3]]
    """
    require_count(0, seed=seed)
    if len(per_group) != len(consent.groups):
        raise ValueError(
            f"Expected a number of teachers for each of {len(consent.groups)} groups, got {len(per_group)}."
        )
    row_group = consent.group_of[consent.persons]
    generator, key = np.random.default_rng(int(seed)), assignment_key(int(seed))
    parts: list[Integers] = []
    for at, n_teachers in enumerate(per_group):
        rows = np.flatnonzero(row_group == at)
        if consent.person_of is None:
            own = partition(len(rows), int(n_teachers), seed=generator)
        else:
            who = [consent.names[person] for person in consent.person_of[rows]]
            own = partition(len(rows), int(n_teachers), key=key, persons=who)
        parts.extend(rows[part] for part in own)
    return Partition(tuple(parts), unit=consent.unit, relation=consent.relation())
