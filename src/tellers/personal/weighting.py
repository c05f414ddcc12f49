"""Weighting: everybody votes, and the more generous count for more."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..mechanisms.base import Mechanism
from ..mechanisms.scaling import scaled
from ..rdp import RdpCurve
from ..votes import Unit
from .consent import Group
from .plan import charges_by_unit, left, prices_by_unit, require_members, whole_shares

Integers = NDArray[np.int64]

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
class Weighting:
    """Teachers learn from one group each, and each ballot counts its group's weight in votes.

    `plain` is the mechanism for as many teachers of one vote each; `mechanism` is scaled to the votes that
    there are, so that the weights matter only in proportion to each other.

    Guarantee: one person's change moves one ballot of their group's weight; `prices` bounds what that costs.
    Assumes:   parts that hold one group each; weights fixed from budgets, before any vote.
    Reference: Mühl and Boenisch 2022, section 3.3.

    >>> from tellers import GNMax
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = Weighting(groups, GNMax(40.0), 4, (np.arange(2), np.arange(2, 4)), weight_of=(1, 2))
    >>> plan.weights(10, key="q0"), plan.mechanism
    (array([1, 1, 2, 2]), GNMax(sigma=60.0))
    >>> low, high = plan.prices(10, key="q0").values()
    >>> round(float(high.values[0] / low.values[0]), 1)
    4.0
    """

    groups: tuple[Group, ...]
    plain: Mechanism
    n_teachers: int
    members: tuple[Integers, ...] = field(repr=False)
    weight_of: tuple[int, ...]
    mechanism: Mechanism = field(init=False, repr=False)
    variant: ClassVar[str] = "weighting"

    def __post_init__(self) -> None:
        require_members(self.groups, self.members, self.n_teachers)
        if len(self.weight_of) != len(self.groups):
            raise ValueError(
                f"Expected a weight for each of {len(self.groups)} groups, got {len(self.weight_of)}."
            )
        require_count(
            **{
                f"weight of {group.name!r}": weight
                for group, weight in zip(self.groups, self.weight_of, strict=True)
            }
        )
        object.__setattr__(self, "weight_of", tuple(int(weight) for weight in self.weight_of))
        object.__setattr__(self, "mechanism", scaled(self.plain, self.n_votes / self.n_teachers))

    @property
    def n_votes(self) -> int:
        """Return how many votes every query holds."""
        return sum(weight * len(own) for weight, own in zip(self.weight_of, self.members, strict=True))

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return the unit of each group: one ballot of its weight."""
        return tuple(Unit.of_weight(weight) for weight in self.weight_of)

    @property
    def summary(self) -> tuple[str, ...]:
        """Return lines for the operator: the electorate, and every group."""
        lines = [f"weighting: {self.n_teachers} teachers with {self.n_votes} votes; {self.mechanism}"]
        for group, own, weight in zip(self.groups, self.members, self.weight_of, strict=True):
            share = weight * len(own) / self.n_votes
            lines.append(
                f"{group.name}: {group.n_persons} persons behind {len(own)} teachers of {weight} "
                f"{'vote' if weight == 1 else 'votes'} each, {share:.0%} of all votes"
            )
        return tuple(lines)

    def weights(self, n_queries: int, *, key: str) -> Integers | None:
        """Return every teacher's weight, the same in all queries; None where all are 1."""
        weights = np.zeros(self.n_teachers, dtype=np.int64)
        for own, weight in zip(self.members, self.weight_of, strict=True):
            weights[own] = weight
        return None if np.all(weights == 1) else weights

    def prices(self, n_queries: int, *, key: str) -> dict[str, RdpCurve]:
        """Return the most that a batch can cost each group."""
        return prices_by_unit(self, n_queries)

    def charges(self, answered: ArrayLike, *, key: str) -> dict[str, RdpCurve]:
        """Return what a batch did cost each group: silence its check alone.

        >>> from tellers import GNMax
        >>> plan = Weighting((Group("all", 0.7, 9),), GNMax(40.0), 2, (np.arange(2),), weight_of=(1,))
        >>> list(plan.charges([True, True], key="q0"))
        ['all']
        """
        return charges_by_unit(self, answered)

    def using(self, mechanism: Mechanism) -> "Weighting":
        """Return the same plan for another mechanism, described for as many teachers of one vote each.

        >>> from tellers import GNMax
        >>> plan = Weighting((Group("all", 0.7, 9),), GNMax(40.0), 2, (np.arange(2),), weight_of=(3,))
        >>> plan.using(GNMax(10.0)).mechanism
        GNMax(sigma=30.0)
        """
        return self if mechanism == self.plain else replace(self, plain=mechanism)

    def without(self, names: Iterable[str]) -> "Weighting":
        """Return the plan in which these groups' teachers are silent and the noise fits who is left.

        What divides all weights that are left is taken out of them: only their proportions matter.

        >>> from tellers import GNMax
        >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
        >>> plan = Weighting(groups, GNMax(40.0), 4, (np.arange(2), np.arange(2, 4)), weight_of=(1, 2))
        >>> plan.without(["low"]).weights(10, key="q0"), plan.without(["low"]).mechanism
        (array([0, 0, 1, 1]), GNMax(sigma=20.0))
        """
        rest = left(self.groups, names)
        common = math.gcd(*(self.weight_of[at] for at in rest))
        return replace(
            self,
            groups=tuple(self.groups[at] for at in rest),
            members=tuple(self.members[at] for at in rest),
            weight_of=tuple(self.weight_of[at] // common for at in rest),
        )
