"""Vanishing: one teacher, one vote, and the stricter sit out most queries."""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_positive
from ..mechanisms.base import Mechanism
from ..mechanisms.scaling import scaled
from ..rdp import RdpCurve
from ..votes import Unit
from .consent import Group
from .dealing import deal
from .plan import charge, checked_mask, left, require_members

Integers = NDArray[np.int64]

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
class Vanishing:
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
    """

    groups: tuple[Group, ...]
    plain: Mechanism
    n_teachers: int
    members: tuple[Integers, ...] = field(repr=False)
    frequency_of: tuple[float, ...]
    seed: int
    mechanism: Mechanism = field(init=False, repr=False)
    variant: ClassVar[str] = "vanishing"

    def __post_init__(self) -> None:
        require_members(self.groups, self.members, self.n_teachers)
        require_count(0, seed=self.seed)
        if len(self.frequency_of) != len(self.groups):
            raise ValueError(
                f"Expected a frequency for each of {len(self.groups)} groups, got {len(self.frequency_of)}."
            )
        require_positive(**{f"frequency {at}": often for at, often in enumerate(self.frequency_of)})
        if max(self.frequency_of) != 1:
            raise ValueError(
                f"Expected the most frequent group to vote always, got {max(self.frequency_of)}. "
                "Divide all frequencies by the largest."
            )
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
        sizes = sorted({*range(1, _LONG + 1), *(rarest * times for times in range(1, 21))})
        best, least = 1, math.inf
        for size in sizes:
            loss = self.loss(size)
            if loss < least:
                best, least = size, loss
            if least <= _LITTLE:
                break
        return best

    @property
    def summary(self) -> tuple[str, ...]:
        """Return lines for the operator: the electorate, and every group."""
        head = f"vanishing: {self.n_teachers} teachers, {self.n_voters:.4g} of them in a query on average"
        lines = [f"{head}; {self.mechanism}; ask in batches of {self.period}"]
        for group, own, often in zip(self.groups, self.members, self.frequency_of, strict=True):
            lines.append(
                f"{group.name}: {group.n_persons} persons behind {len(own)} teachers, each in {often:.3g} of "
                "all queries"
            )
        return tuple(lines)

    def loss(self, n_queries: int) -> float:
        """Return how many times its fair share the busiest teacher can be charged in a batch, 1 at best.

        >>> from tellers import GNMax
        >>> groups, members = (Group("low", 0.7, 5), Group("high", 1.4, 5)), (np.arange(4), np.arange(4, 8))
        >>> plan = Vanishing(groups, GNMax(40.0), 8, members, frequency_of=(0.25, 1.0), seed=7)
        >>> [plan.loss(size) for size in (1, 4, 6)]
        [4.0, 1.0, 1.3333333333333333]
        """
        require_count(n_queries=n_queries)
        fair = [n_queries * often for often in self.frequency_of]
        return max(1.0, *(n / share for n, share in zip(self.busiest(n_queries), fair, strict=True)))

    def busiest(self, n_queries: int) -> tuple[int, ...]:
        """Return in how many queries of a batch the busiest teacher of each group votes at most.

        >>> from tellers import GNMax
        >>> groups, members = (Group("low", 0.7, 5), Group("high", 1.4, 5)), (np.arange(4), np.arange(4, 8))
        >>> plan = Vanishing(groups, GNMax(40.0), 8, members, frequency_of=(0.25, 1.0), seed=7)
        >>> plan.busiest(6)
        (2, 6)
        """
        sizes = [len(own) for own in self.members]
        in_hands = [
            math.ceil(n_queries * often * n * (1 - _HAIR))
            for often, n in zip(self.frequency_of, sizes, strict=True)
        ]
        return tuple(math.ceil(hands / n) for hands, n in zip(in_hands, sizes, strict=True))

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
        """Return what a batch did cost each group: the most that it cost one of its teachers.

        >>> from tellers import GNMax
        >>> group, own = Group("all", 0.7, 9), np.arange(2)
        >>> plan = Vanishing((group,), GNMax(4.0), 2, (own,), frequency_of=(1,), seed=7)
        >>> list(plan.charges([True, True], key="q0"))
        ['all']
        """
        mask = checked_mask(answered)
        charges = {}
        for at, group in enumerate(self.groups):
            present = self._schedule(at, mask.size, key)
            counts = np.stack([present.sum(axis=1), present[:, mask].sum(axis=1)], axis=1)
            curves = [
                charge(self.mechanism, Unit(), n_queries=int(asked), n_answered=int(told))
                for asked, told in np.unique(counts, axis=0)
            ]
            values = np.max([curve.values for curve in curves], axis=0)
            charges[group.name] = RdpCurve(curves[0].orders, values)
        return charges

    def using(self, mechanism: Mechanism) -> "Vanishing":
        """Return the same plan for another mechanism, described for as many teachers of one vote each.

        >>> from tellers import GNMax
        >>> group, own = Group("all", 0.7, 9), np.arange(2)
        >>> plan = Vanishing((group,), GNMax(4.0), 2, (own,), frequency_of=(1,), seed=7)
        >>> plan.using(GNMax(10.0)).mechanism
        GNMax(sigma=10.0)
        """
        return self if mechanism == self.plain else replace(self, plain=mechanism)

    def without(self, names: Iterable[str]) -> "Vanishing":
        """Return the plan in which these groups never vote; the most generous of those left always does.

        >>> from tellers import GNMax
        >>> groups, members = (Group("low", 0.7, 5), Group("high", 1.4, 5)), (np.arange(4), np.arange(4, 8))
        >>> plan = Vanishing(groups, GNMax(40.0), 8, members, frequency_of=(0.25, 1.0), seed=7)
        >>> plan.without(["high"]).frequency_of, plan.without(["high"]).mechanism
        ((1.0,), GNMax(sigma=20.0))
        """
        rest = left(self.groups, names)
        most = max(self.frequency_of[at] for at in rest)
        return replace(
            self,
            groups=tuple(self.groups[at] for at in rest),
            members=tuple(self.members[at] for at in rest),
            frequency_of=tuple(self.frequency_of[at] / most for at in rest),
        )

    def _schedule(self, at: int, n_queries: int, key: str) -> NDArray[np.int8]:
        """Return which of a group's teachers take part in which query of the batch under this key."""
        require_count(0, n_queries=n_queries)
        n_queries, often, n_own = int(n_queries), self.frequency_of[at], len(self.members[at])
        if often == 1:
            return np.ones((n_own, n_queries), dtype=np.int8)
        asked = (int(self.seed), key, self.groups[at].name, often, n_own, n_queries)
        # A batch is priced, voted on and charged by one schedule: it is drawn once, unless it is huge.
        return (_drawn if n_own * n_queries > _KEPT else _kept)(*asked)


def _drawn(seed: int, key: str, name: str, often: float, n_own: int, n_queries: int) -> NDArray[np.int8]:
    rng = _public_rng(seed, key, name)
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


def _public_rng(seed: int, key: str, name: str) -> np.random.Generator:
    """Return the generator of a schedule, which is public: whoever knows plan and key can draw it too."""
    words = json.dumps([int(seed), key, name]).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(words).digest(), "big"))
