"""Upsampling: the more generous are learned from by several teachers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..mechanisms.base import Mechanism
from ..mechanisms.scaling import scaled
from ..rdp import RdpCurve
from ..teachers.assignment import assignment_key, seats
from ..teachers.partition import Partition, partition
from ..votes import Unit
from .consent import Consent, Group
from .dealing import deal
from .plan import charges_by_unit, left, prices_by_unit, require_own_names, whole_shares

Integers = NDArray[np.int64]

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
class Upsampling:
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
    """

    groups: tuple[Group, ...]
    plain: Mechanism
    n_plain: int
    copies_of: tuple[int, ...]
    grow: Literal["teachers", "shares"] = "teachers"
    n_persons: int = 0
    n_teachers: int = field(init=False)
    mechanism: Mechanism = field(init=False, repr=False)
    variant: ClassVar[str] = "upsampling"
    members: ClassVar[tuple[Integers, ...]] = ()

    def __post_init__(self) -> None:
        require_count(n_plain=self.n_plain)
        require_own_names(self.groups)
        if len(self.copies_of) != len(self.groups) or not self.groups:
            raise ValueError(
                f"Expected a number of copies for each of {len(self.groups)} groups, got "
                f"{len(self.copies_of)}."
            )
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

    @property
    def summary(self) -> tuple[str, ...]:
        """Return lines for the operator: the electorate, and every group."""
        lines = [f"upsampling: {self.n_teachers} teachers instead of {self.n_plain}; {self.mechanism}"]
        for group, copies in zip(self.groups, self.copies_of, strict=True):
            share = group.n_persons * copies / self.n_copies
            lines.append(
                f"{group.name}: {group.n_persons} persons behind {copies} "
                f"{'teacher' if copies == 1 else 'teachers'} each, {share:.0%} of what is learned from"
            )
        return tuple(lines)

    def weights(self, n_queries: int, *, key: str) -> Integers | None:
        """Return None: every ballot counts once."""
        return None

    def prices(self, n_queries: int, *, key: str) -> dict[str, RdpCurve]:
        """Return the most that a batch can cost each group."""
        return prices_by_unit(self, n_queries)

    def charges(self, answered: ArrayLike, *, key: str) -> dict[str, RdpCurve]:
        """Return what a batch did cost each group: silence its check alone.

        >>> from tellers import GNMax
        >>> plan = Upsampling((Group("all", 0.7, 9),), GNMax(40.0), 2, copies_of=(1,))
        >>> list(plan.charges([True, True], key="q0"))
        ['all']
        """
        return charges_by_unit(self, answered)

    def using(self, mechanism: Mechanism) -> "Upsampling":
        """Return the same plan for another mechanism, described for as many teachers of one vote each.

        >>> from tellers import GNMax
        >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
        >>> Upsampling(groups, GNMax(40.0), 10, copies_of=(1, 2)).using(GNMax(10.0)).mechanism
        GNMax(sigma=15.0)
        """
        return self if mechanism == self.plain else replace(self, plain=mechanism)

    def without(self, names: Iterable[str]) -> "Upsampling":
        """Return the plan for teachers that are trained anew, without the rows of these groups.

        Every teacher learned from every group, so silence would not help: new teachers are needed, and
        `seat` deals them. Their parts are as large as before, so there are fewer of them, and a factor that
        all copies share is divided out: it would multiply teachers, noise and ballots alike, and one ballot
        has a sharper price than several. With `grow="shares"` there are as many, with smaller parts.

        >>> from tellers import GNMax
        >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
        >>> plan = Upsampling(groups, GNMax(40.0), 10, copies_of=(1, 2)).without(["low"])
        >>> plan.n_teachers, plan.mechanism, plan.copies_of
        (5, GNMax(sigma=20.0), (1,))
        """
        rest = left(self.groups, names)
        copies = [self.copies_of[at] for at in rest]
        factor = math.gcd(*copies) if self.grow == "teachers" else 1
        return replace(
            self,
            groups=tuple(self.groups[at] for at in rest),
            copies_of=tuple(number // factor for number in copies),
        )


def upsampled_partition(
    consent: Consent, copies: Sequence[int], n_teachers: int, *, seed: int
) -> tuple[Integers, Partition]:
    """Copy every person to as many teachers as their group's `copies`, and return the rows and the parts.

    The parts number the rows of `X[source]`, in which every row stands as often as it was copied. No person
    is twice in one teacher. Persons are seated by name, each on their own; rows without persons by their
    places, and all teachers get equally many, give or take one. A group with 0 copies is left out; with one
    copy for all this is the plain partition of the same seed.

    >>> from tellers.personal.consent import read_consent
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
    # Person p has the teachers from begins[p] on, one per copy.
    teachers = _in_places(times, int(n_teachers), seed=int(seed))
    if consent.person_of is not None:
        teachers = _by_name(consent.names, times, int(n_teachers), seed=int(seed))
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


def _in_places(times: Integers, n_teachers: int, *, seed: int) -> Integers:
    """Return the teachers of every row's copies: dealt, so that all teachers get equally many."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(times.size)
    hands = deal(n_teachers, times[order], rng=rng)
    return np.concatenate([hands[at] for at in np.argsort(order)])


def _by_name(names: Sequence[str], times: Integers, n_teachers: int, *, seed: int) -> Integers:
    """Return the teachers of every person's copies, which nobody else's name or number has a say in."""
    key = assignment_key(seed)
    own = [
        seats([name], n_teachers, key=key, n_each=int(n))[0]
        for name, n in zip(names, times, strict=True)
        if n
    ]
    return np.concatenate(own) if own else np.empty(0, dtype=np.int64)
