"""The personalised variants: upsampling, vanishing and weighting, with the dealing of rows."""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count, require_positive
from ...mechanisms.base import scaled
from ...privacy.rdp import RdpCurve
from ...privacy.votes import Unit
from ...teachers.partitions import Partition, assignment_key, partition, seats
from .consent import Consent, Group, Integers
from .plan import (
    PersonalPlan,
    charge,
    checked_mask,
    left,
    require_each,
    require_members,
    whole_shares,
)

# --- Dealing: who sits in which hand, everybody equally often and nobody twice in one. ---
#
# One rule serves twice. Teachers are dealt into queries where not all of them vote, and people into several
# teachers where they count more than once. Nothing private is looked at.


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

    >>> from tellers.runs.personal import Group
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

    >>> from tellers.runs.personal import read_consent
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


# --- Upsampling: the more generous are learned from by several teachers. ---


_SEVERAL = (
    "Upsampled: a person is learned from by as many teachers as there are copies, {most} at most. "
    "The guarantee covers a person whose ballots all change, at the price of that many."
)


def copies_for(groups: Sequence[Group], *, precision: float = 0.1, most: int = 20) -> tuple[int, ...]:
    """Return how many teachers learn from a person of each group: whole numbers in proportion to the budgets.

    The smallest such numbers whose proportions are within `precision` of the budgets' are taken, and no group
    has more than its proportion: the strictest decides. Nobody has more than `most`; where that or the
    rounding cuts a group short, it leaves some of its budget unused.

    >>> groups = [Group(f"log {n}", float(np.log(n)), 10) for n in (2, 4, 8)]
    >>> copies_for(groups)
    (1, 2, 3)
    >>> copies_for([Group("low", 1.0, 10), Group("high", 1.5, 10)]), copies_for(groups, most=2)
    ((2, 3), (1, 2, 2))
    """
    return whole_shares([group.epsilon for group in groups], precision=precision, most=most)


@dataclass(frozen=True, eq=False)
class Upsampling(PersonalPlan):
    """Every person is copied to as many different teachers as their budget pays for; all vote once.

    With `grow="teachers"` there are more teachers, as many times as there are rows, and noise and threshold
    grow with them; with `grow="shares"` there are as many as before, which learn from more. `plain` is the
    mechanism for `n_plain` teachers and rows without copies, of `n_persons` people.

    Guarantee: one person's change moves as many ballots as they have copies; `prices` bounds what that costs.
    Assumes:   copies of a person sit in different teachers; numbers of copies fixed from budgets.
    Reference: Mühl and Boenisch 2022, section 3.1.

    >>> from tellers import GNMax
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = Upsampling(groups, GNMax(40.0), 10, copies_of=(1, 2))
    >>> plan.n_teachers, plan.mechanism, plan.weights(10, key="q0")
    (15, GNMax(sigma=60.0), None)
    >>> [unit.linf for unit in plan.units], list(plan.prices(10, key="q0"))
    ([1.0, 2.0], ['low', 'high'])
    >>> Upsampling(groups, GNMax(40.0), 10, copies_of=(1, 2), grow="shares").n_teachers
    10
    >>> rest = plan.without(["low"])
    >>> rest.n_teachers, rest.mechanism, rest.copies_of
    (5, GNMax(sigma=20.0), (1,))
    """

    n_plain: int
    copies_of: tuple[int, ...]
    grow: Literal["teachers", "shares"] = "teachers"
    n_persons: int = 0
    n_teachers: int = field(init=False)
    variant: ClassVar[str] = "upsampling"
    members: ClassVar[tuple[Integers, ...]] = ()

    def __post_init__(self) -> None:
        require_count(n_plain=self.n_plain)
        require_each(self.groups, self.copies_of, "a number of copies")
        if self.grow not in ("teachers", "shares"):
            raise ValueError(f"Expected grow='teachers' or 'shares', got {self.grow!r}.")
        for group, copies in zip(self.groups, self.copies_of, strict=True):
            require_count(**{f"copies of {group.name!r}": copies})
        n_persons = self.n_persons or sum(group.n_persons for group in self.groups)
        if self.n_plain > n_persons:
            raise ValueError(
                f"Expected at most one teacher per person, got {self.n_plain} for {n_persons} persons. Take "
                "fewer teachers."
            )
        n_teachers = self.n_plain
        if self.grow == "teachers":
            n_teachers = max(1, round(self.n_plain * self.n_copies / n_persons))
        if max(self.copies_of) > n_teachers:
            raise ValueError(
                f"Expected at most as many copies as teachers, got {max(self.copies_of)} copies for "
                f"{n_teachers} teachers. Take more teachers, or fewer copies: a coarser precision, or `most`."
            )
        object.__setattr__(self, "copies_of", tuple(int(copies) for copies in self.copies_of))
        object.__setattr__(self, "n_persons", n_persons)
        object.__setattr__(self, "n_teachers", n_teachers)
        object.__setattr__(self, "mechanism", scaled(self.plain, n_teachers / self.n_plain))

    @property
    def n_copies(self) -> int:
        """Return how many persons the teachers learn from, every copy counted."""
        return sum(
            group.n_persons * copies for group, copies in zip(self.groups, self.copies_of, strict=True)
        )

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return the unit of each group: as many ballots as a person has copies."""
        return tuple(Unit.of_ballots(copies) for copies in self.copies_of)

    def _told(self) -> Iterable[str]:
        yield f"{self.n_teachers} teachers instead of {self.n_plain}; {self.mechanism}"
        for group, copies in zip(self.groups, self.copies_of, strict=True):
            share, many = group.n_persons * copies / self.n_copies, "" if copies == 1 else "s"
            yield f"{copies} teacher{many} each, {share:.0%} of what is learned from"

    def weights(self, n_queries: int, *, key: str) -> Integers | None:
        """Return None: every ballot counts once."""
        return None

    def without(self, names: Iterable[str]) -> Self:
        """Return the plan for teachers that are trained anew, without the rows of these groups.

        Every teacher learned from every group, so silence would not help: new teachers are needed, and
        `assign_by_plan` deals them. Their parts are as large as before, so there are fewer of them, and a
        factor that all copies share is divided out: it would multiply teachers, noise and ballots alike, and
        one ballot has a sharper price than several. With `grow="shares"` there are as many, with smaller
        parts.
        """
        rest = left(self.groups, names)
        copies = [self.copies_of[at] for at in rest]
        factor = math.gcd(*copies) if self.grow == "teachers" else 1
        return self._only(rest, copies_of=tuple(number // factor for number in copies))


def upsampled_partition(
    consent: Consent, copies: Sequence[int], n_teachers: int, *, seed: int
) -> tuple[Integers, Partition]:
    """Copy every person to as many teachers as their group's `copies`, and return the rows and the parts.

    The parts number the rows of `X[source]`, in which every row stands as often as it was copied. No person
    is twice in one teacher. Persons are seated by name, each on their own; rows without persons by their
    places, and all teachers get equally many, give or take one. A group with 0 copies is left out; with one
    copy for all this is the plain partition of the same seed.

    >>> from tellers.runs.personal import read_consent
    >>> consent = read_consent([0.7, 1.4, 0.7, 1.4], delta=1e-5)
    >>> source, parts = upsampled_partition(consent, (1, 2), 3, seed=7)
    >>> source
    array([0, 1, 1, 2, 3, 3])
    >>> [source[part].tolist() for part in parts]
    [[1, 3], [0, 1], [2, 3]]
    """
    require_count(0, seed=seed)
    require_count(n_teachers=n_teachers)
    if len(copies) != len(consent.groups):
        raise ValueError(
            f"Expected copies for each of {len(consent.groups)} groups, got {len(copies)} numbers."
        )
    for number in copies:
        require_count(0, copies=number)
    if max(copies) > n_teachers:
        raise ValueError(
            f"Expected at most as many copies as teachers, got {max(copies)} copies for {n_teachers} "
            "teachers. Take more teachers, or fewer copies."
        )
    times = np.asarray(copies, dtype=np.int64)[consent.group_of]
    relation = consent.relation(n_teachers=max(1, int(times.max())))
    if all(number == 1 for number in copies) and consent.person_of is None:
        plain = partition(consent.n_rows, int(n_teachers), seed=int(seed))
        return np.arange(consent.n_rows), replace(plain, relation=relation)
    if consent.person_of is None and times.sum() < n_teachers:
        raise ValueError(
            f"Expected a person for every teacher, got {times.sum()} with all copies for {n_teachers} "
            "teachers. Take fewer teachers."
        )
    if consent.person_of is None:
        # Rows are dealt, so that all teachers get equally many.
        rng = np.random.default_rng(int(seed))
        order = rng.permutation(times.size)
        hands = deal(int(n_teachers), times[order], rng=rng)
        hands = [hands[at] for at in np.argsort(order)]
    else:
        # Nobody else's name or number has a say in where a person is seated.
        key, named = assignment_key(int(seed)), zip(consent.names, times, strict=True)
        hands = [seats([name], int(n_teachers), key=key, n_each=int(n))[0] for name, n in named if n]
    # Person p has the teachers from begins[p] on, one per copy.
    teachers = np.concatenate([np.empty(0, dtype=np.int64), *hands])
    begins = np.cumsum(times) - times
    codes = consent.persons
    repeats = times[codes]
    source = np.repeat(np.arange(consent.n_rows), repeats)
    which = np.arange(source.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)  # which copy
    teacher = teachers[begins[codes[source]] + which]
    by_teacher = np.argsort(teacher, kind="stable")
    parts = np.split(by_teacher, np.searchsorted(teacher[by_teacher], np.arange(1, n_teachers)))
    note = _SEVERAL.format(most=int(times.max()))
    notes = (note,) if times.max() > 1 else ()
    return source, Partition(tuple(parts), unit=consent.unit, notes=notes, relation=relation)


# --- Vanishing: one teacher, one vote, and the stricter sit out most queries. ---


# Products of frequencies and numbers of teachers that are whole come out a hair below.
_HAIR = 1e-12
# A batch is a good one if at most this much of any budget is lost to rounding; so long ones are tried.
_LITTLE = 1.02
_LONG = 1000
# Schedules of at most so many places are kept for a while.
_KEPT = 1 << 20
# Who votes less often than this does not vote: its teachers would be trained for nothing.
_RAREST = 1e-15


def frequencies_for(groups: Sequence[Group], *, power: float = 2.0) -> tuple[float, ...]:
    """Return how often each group votes: (epsilon / largest epsilon) ** power, so the most generous always.

    Epsilon grows about as the root of the number of queries, hence the default of 2; 4 is what the authors
    of the variant ran.

    >>> groups = [Group("low", 0.7, 50), Group("high", 1.4, 50)]
    >>> frequencies_for(groups), frequencies_for(groups, power=4)
    ((0.25, 1.0), (0.0625, 1.0))
    """
    require_positive(power=power)
    most = max(group.epsilon for group in groups)
    frequencies = tuple((group.epsilon / most) ** power for group in groups)
    for group, often in zip(groups, frequencies, strict=True):
        if often < _RAREST:
            raise ValueError(
                f"Expected budgets closer to each other for vanishing, got group {group.name!r} to vote in "
                f"{often:.1g} of all queries, which is never. Leave its rows out, or take a smaller power."
            )
    return frequencies


@dataclass(frozen=True, eq=False)
class Vanishing(PersonalPlan):
    """Teachers learn from one group each, and take part in a share of the queries, by a public schedule.

    A batch has a schedule of its own, drawn from the seed and the batch's key before anybody votes: each
    group sends the same number of teachers to every query, give or take one, and every teacher equally often,
    give or take one in the batch. Asking again under the same key gives the same schedule. A group is charged
    for its busiest teacher, so batches of `period` queries, or several times as many, waste nothing.

    Guarantee: whoever is absent costs nothing; whoever is present moves one vote, which `prices` bounds.
    Assumes:   parts that hold one group each; a schedule made from budgets, the seed and the key alone.
    Reference: Mühl and Boenisch 2022, section 3.2 and the appendix on vanishing.

    >>> from tellers import GNMax
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> members = (np.arange(4), np.arange(4, 8))
    >>> plan = Vanishing(groups, GNMax(40.0), 8, members, frequency_of=(0.25, 1.0), seed=7)
    >>> plan.weights(4, key="q0").sum(axis=0), plan.mechanism, plan.period
    (array([5, 5, 5, 5]), GNMax(sigma=25.0), 4)
    >>> low, high = plan.prices(4, key="q0").values()
    >>> round(float(high.values[0] / low.values[0]), 1)
    4.0
    >>> list(plan.charges([True] * 4, key="q0"))
    ['low', 'high']
    >>> plan.busiest(6), [plan.loss(size) for size in (1, 4, 6)]
    ((2, 6), [4.0, 1.0, 1.3333333333333333])
    >>> plan.without(["high"]).frequency_of, plan.without(["high"]).mechanism
    ((1.0,), GNMax(sigma=20.0))
    """

    n_teachers: int
    members: tuple[Integers, ...] = field(repr=False)
    frequency_of: tuple[float, ...]
    seed: int
    variant: ClassVar[str] = "vanishing"

    def __post_init__(self) -> None:
        require_members(self.groups, self.members, self.n_teachers)
        require_count(0, seed=self.seed)
        require_each(self.groups, self.frequency_of, "a frequency")
        require_positive(**{f"frequency {at}": often for at, often in enumerate(self.frequency_of)})
        if max(self.frequency_of) != 1:
            raise ValueError(
                f"Expected the most frequent group to vote always, got {max(self.frequency_of)}. "
                "Divide all frequencies by the largest."
            )
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "frequency_of", tuple(float(often) for often in self.frequency_of))
        object.__setattr__(self, "mechanism", scaled(self.plain, self.n_voters / self.n_teachers))

    @property
    def n_voters(self) -> float:
        """Return how many teachers take part in a query, on average."""
        return sum(often * len(own) for often, own in zip(self.frequency_of, self.members, strict=True))

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return the unit of each group where it takes part: one ballot of one vote."""
        return tuple(Unit() for _ in self.groups)

    @property
    def period(self) -> int:
        """Return the smallest batch that loses at most 2 % to rounding, or the best one where none does."""
        rarest = math.ceil(1 / min(self.frequency_of) * (1 - _HAIR))
        sizes: list[int] = sorted({*range(1, _LONG + 1), *(rarest * times for times in range(1, 21))})
        good = (size for size in sizes if self.loss(size) <= _LITTLE)
        return next(good, None) or min(sizes, key=self.loss)

    def _told(self) -> Iterable[str]:
        voters = f"{self.n_teachers} teachers, {self.n_voters:.4g} of them in a query on average"
        yield f"{voters}; {self.mechanism}; ask in batches of {self.period}"
        for own, often in zip(self.members, self.frequency_of, strict=True):
            yield f"{len(own)} teachers, each in {often:.3g} of all queries"

    def loss(self, n_queries: int) -> float:
        """Return how many times its fair share the busiest teacher can be charged in a batch, 1 at best."""
        require_count(n_queries=n_queries)
        fair = [n_queries * often for often in self.frequency_of]
        return max(1.0, *(n / share for n, share in zip(self.busiest(n_queries), fair, strict=True)))

    def busiest(self, n_queries: int) -> tuple[int, ...]:
        """Return in how many queries of a batch the busiest teacher of each group votes at most."""
        return tuple(
            math.ceil(math.ceil(n_queries * often * len(own) * (1 - _HAIR)) / len(own))
            for often, own in zip(self.frequency_of, self.members, strict=True)
        )

    def weights(self, n_queries: int, *, key: str) -> Integers | None:
        """Return who votes in which query, (teachers, queries) of 0 and 1; None where all always vote."""
        if self.n_voters == self.n_teachers:
            return None
        present = np.zeros((self.n_teachers, int(n_queries)), dtype=np.int64)
        for at, own in enumerate(self.members):
            present[own] = self._schedule(at, n_queries, key)
        return present

    def prices(self, n_queries: int, *, key: str) -> dict[str, RdpCurve]:
        """Return the most that a batch can cost each group: that of its busiest teacher."""
        prices = {}
        for at, group in enumerate(self.groups):
            busiest = int(self._schedule(at, n_queries, key).sum(axis=1).max(initial=0))
            prices[group.name] = self.mechanism.price(Unit()) * busiest
        return prices

    def charges(self, answered: ArrayLike, *, key: str) -> dict[str, RdpCurve]:
        """Return what a batch did cost each group: the most that it cost one of its teachers."""
        mask = checked_mask(answered)
        charges = {}
        for at, group in enumerate(self.groups):
            present = self._schedule(at, mask.size, key)
            counts = np.stack([present.sum(axis=1), present[:, mask].sum(axis=1)], axis=1)
            curves = [
                charge(self.mechanism, Unit(), n_queries=int(asked), n_answered=int(told))
                for asked, told in np.unique(counts, axis=0)
            ]
            charges[group.name] = RdpCurve.largest(curves)
        return charges

    def without(self, names: Iterable[str]) -> Self:
        """Return the plan in which these groups never vote; the most generous of those left always does."""
        rest = left(self.groups, names)
        most = max(self.frequency_of[at] for at in rest)
        return self._only(rest, frequency_of=tuple(self.frequency_of[at] / most for at in rest))

    def _schedule(self, at: int, n_queries: int, key: str) -> NDArray[np.int8]:
        """Return which of a group's teachers take part in which query of the batch under this key."""
        require_count(0, n_queries=n_queries)
        n_queries, often, n_own = int(n_queries), self.frequency_of[at], len(self.members[at])
        if often == 1:
            return np.ones((n_own, n_queries), dtype=np.int8)
        asked = (self.seed, key, self.groups[at].name, often, n_own, n_queries)
        # A batch is priced, voted on and charged by one schedule: it is drawn once, unless it is huge.
        return (_drawn if n_own * n_queries > _KEPT else _kept)(*asked)


def _drawn(seed: int, key: str, name: str, often: float, n_own: int, n_queries: int) -> NDArray[np.int8]:
    # A schedule is public: whoever knows plan and key can draw it too.
    words = json.dumps([int(seed), key, name]).encode()
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(words).digest(), "big"))
    # The shift decides in which queries the fractions add up to one more teacher, so that a group takes
    # its part of short batches too, on average.
    shift = int(rng.integers(1024)) / 1024
    reached = np.floor(np.arange(n_queries + 1) * (often * n_own * (1 + _HAIR)) + shift)
    sizes = np.diff(reached).astype(np.int64)
    present = np.zeros((n_own, n_queries), dtype=np.int8)
    hands = deal(n_own, sizes, rng=rng)
    if hands:
        present[np.concatenate(hands), np.repeat(np.arange(n_queries), sizes)] = 1
    present.flags.writeable = False
    return present


_kept = lru_cache(maxsize=32)(_drawn)


# --- Weighting: everybody votes, and the more generous count for more. ---


# The loudest ballot counts at most so many votes: beside it, the quietest is not heard anyway, and with more
# the noise grows past what exact costs are computed for.
_LOUDEST = 10_000


def weights_for(
    groups: Sequence[Group],
    *,
    shares: ArrayLike | None = None,
    denominator: int | None = None,
    precision: float = 0.02,
) -> tuple[int, ...]:
    """Return the whole weight of each group's teachers: in the proportions of the budgets, at least 1.

    Votes of real weights would need noise on the reals. On a common denominator they are whole, and so is the
    noise that is drawn, exactly: with every weight s times as large, the mechanism's noise and threshold are
    s times as large too, and nothing else changes. `denominator` is the weight of the quietest teachers; all
    others are rounded to whole votes, and are off by at most 1/(2 denominator) of themselves. Without it, the
    smallest is taken that keeps every error within `precision`: small weights make exact costs fast. What
    is charged follows from the rounded weights. Without `denominator` no ballot counts more than 10,000
    votes: where budgets are further apart, the most generous leave some of theirs unused. `shares` replaces
    the budgets as proportions.

    >>> groups = [Group("low", float(np.log(2)), 50), Group("high", float(np.log(8)), 50)]
    >>> weights_for(groups), weights_for(groups, denominator=4)
    ((1, 3), (4, 12))
    >>> weights_for(groups, shares=[1.0, 1.734])
    (4, 7)
    """
    wanted = [group.epsilon for group in groups] if shares is None else shares
    if np.shape(wanted) != (len(groups),):
        raise ValueError(f"Expected a share for each of {len(groups)} groups, got shape {np.shape(wanted)}.")
    most = _LOUDEST if denominator is None else None
    return whole_shares(wanted, smallest=denominator, precision=precision, most=most, nearest=True)


@dataclass(frozen=True, eq=False)
class Weighting(PersonalPlan):
    """Teachers learn from one group each, and each ballot counts its group's weight in votes.

    `plain` is the mechanism for as many teachers of one vote each; `mechanism` is scaled to the votes that
    there are, so that the weights matter only in proportion to each other.

    Guarantee: one person's change moves one ballot of their group's weight; `prices` bounds what that costs.
    Assumes:   parts that hold one group each; weights fixed from budgets, before any vote.
    Reference: Mühl and Boenisch 2022, section 3.3.

    >>> from tellers import GNMax
    >>> low, high = Group("low", 0.7, 50), Group("high", 1.4, 50)
    >>> teachers = (np.arange(2), np.arange(2, 4))
    >>> plan = Weighting((low, high), GNMax(40.0), 4, teachers, weight_of=(1, 2))
    >>> plan.weights(10, key="q0"), plan.mechanism
    (array([1, 1, 2, 2]), GNMax(sigma=60.0))
    >>> prices = plan.prices(10, key="q0")
    >>> round(float(prices["high"].values[0] / prices["low"].values[0]), 1)
    4.0
    >>> plan.without(["low"]).weights(10, key="q0"), plan.without(["low"]).mechanism
    (array([0, 0, 1, 1]), GNMax(sigma=20.0))
    """

    n_teachers: int
    members: tuple[Integers, ...] = field(repr=False)
    weight_of: tuple[int, ...]
    variant: ClassVar[str] = "weighting"

    def __post_init__(self) -> None:
        require_members(self.groups, self.members, self.n_teachers)
        require_each(self.groups, self.weight_of, "a weight")
        for group, weight in zip(self.groups, self.weight_of, strict=True):
            require_count(**{f"weight of {group.name!r}": weight})
        object.__setattr__(self, "weight_of", tuple(int(weight) for weight in self.weight_of))
        object.__setattr__(self, "mechanism", scaled(self.plain, self.n_votes / self.n_teachers))

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return the unit of each group: one ballot of its weight."""
        return tuple(Unit.of_weight(weight) for weight in self.weight_of)

    @property
    def n_votes(self) -> int:
        """Return how many votes every query holds."""
        return sum(weight * len(own) for weight, own in zip(self.weight_of, self.members, strict=True))

    def _told(self) -> Iterable[str]:
        yield f"{self.n_teachers} teachers with {self.n_votes} votes; {self.mechanism}"
        for own, weight in zip(self.members, self.weight_of, strict=True):
            share, many = weight * len(own) / self.n_votes, "" if weight == 1 else "s"
            yield f"{len(own)} teachers of {weight} vote{many} each, {share:.0%} of all votes"

    def weights(self, n_queries: int, *, key: str) -> Integers | None:
        """Return every teacher's weight, the same in all queries; None where all are 1."""
        weights = np.zeros(self.n_teachers, dtype=np.int64)
        for own, weight in zip(self.members, self.weight_of, strict=True):
            weights[own] = weight
        return None if np.all(weights == 1) else weights

    def without(self, names: Iterable[str]) -> Self:
        """Return the plan in which these groups' teachers are silent and the noise fits who is left.

        What divides all weights that are left is taken out of them: only their proportions matter.
        """
        rest = left(self.groups, names)
        common = math.gcd(*(self.weight_of[at] for at in rest))
        return self._only(rest, weight_of=tuple(self.weight_of[at] // common for at in rest))
