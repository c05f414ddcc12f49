"""What every personalised variant answers, and the arithmetic that they share.

All of them come down to whole votes: ballots that count several votes or none, a mechanism scaled to the
electorate, and one `Unit` per group that says how far its people can move a tally. With equal budgets that is
plain PATE.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...accounting.costs import independent_cost
from ...errors import require_count, require_fraction
from ...mechanisms.base import Mechanism
from ...privacy.rdp import RdpCurve
from ...privacy.votes import Unit
from .consent import Group, Integers

# Ratios of budgets are quotients of logarithms, say: a hair below a whole number is that number.
_HAIR = 1e-9
# Shares further apart than this are as good as that far: whole numbers, and noise in proportion, stay exact.
_FAR = 2.0**40


def charge(mechanism: Mechanism, unit: Unit, *, n_queries: int, n_answered: int) -> RdpCurve:
    """Return what queries cost once it is public how many were answered: silence costs its check alone.

    This is, to the last bit, what the mechanism's own release charges where the number of its teachers is not
    known. A release that knows it may charge less for a check and its answer together; groups, whose ballots
    may count several votes, pay for both one by one.
    """
    require_count(0, n_queries=n_queries, n_answered=n_answered)
    if n_answered > n_queries:
        raise ValueError(f"Expected at most {n_queries} answered queries, got {n_answered}.")
    return independent_cost(mechanism, n_queries, n_answers=n_answered, unit=unit)


@dataclass(frozen=True, eq=False)
class PersonalPlan(ABC):
    """A public description of who votes how loudly, and of what a batch costs each group.

    It is what a room needs, and what there is to tell. Everything in it follows from budgets, numbers of
    people, a seed and a key; no vote was looked at. `groups` take part, the strictest first; `plain` is the
    mechanism for teachers of one vote each, `mechanism` the one for the votes that there are.

    >>> from tellers import GNMax
    >>> from tellers.runs.personal import Weighting
    >>> groups, teachers = (Group("low", 0.7, 9), Group("high", 1.4, 9)), (np.arange(2), np.arange(2, 4))
    >>> plan = Weighting(groups, GNMax(40.0), 4, teachers, weight_of=(1, 2))
    >>> plan.weights(10, key="q0"), plan.using(GNMax(10.0)).mechanism
    (array([1, 1, 2, 2]), GNMax(sigma=15.0))
    >>> list(plan.prices(2, key="q0")), list(plan.without(["low"]).charges([True, True], key="q0"))
    (['low', 'high'], ['high'])
    """

    groups: tuple[Group, ...]
    plain: Mechanism
    mechanism: Mechanism = field(init=False, repr=False)
    variant: ClassVar[str]

    if TYPE_CHECKING:  # fields of the variants, or worked out by them

        @property
        def n_teachers(self) -> int: ...

        @property
        def members(self) -> tuple[Integers, ...]: ...

    @property
    @abstractmethod
    def units(self) -> tuple[Unit, ...]:
        """Return how far one person of each group can move a tally that they take part in."""

    @property
    def summary(self) -> tuple[str, ...]:
        """Return lines for the operator: the variant, the electorate, and every group."""
        electorate, *seats = self._told()
        lines = [
            f"{group.name}: {group.n_persons} persons behind {seat}"
            for group, seat in zip(self.groups, seats, strict=True)
        ]
        return (f"{self.variant}: {electorate}", *lines)

    @abstractmethod
    def _told(self) -> Iterable[str]:
        """Yield words for the electorate, and for what every group sits behind."""

    @abstractmethod
    def weights(self, n_queries: int, *, key: str) -> Integers | None:
        """Return how much each teacher's ballot counts in each query of a batch; None for one vote each."""

    @abstractmethod
    def without(self, names: Iterable[str]) -> Self:
        """Return the plan in which these groups take no part any more, scaled to who is left."""

    def prices(self, n_queries: int, *, key: str) -> dict[str, RdpCurve]:
        """Return the most that a batch can cost each group."""
        return {
            group.name: self.mechanism.price(unit) * n_queries
            for group, unit in zip(self.groups, self.units, strict=True)
        }

    def charges(self, answered: ArrayLike, *, key: str) -> dict[str, RdpCurve]:
        """Return what a batch did cost each group: silence its check alone."""
        mask = checked_mask(answered)
        return {
            group.name: charge(self.mechanism, unit, n_queries=mask.size, n_answered=int(mask.sum()))
            for group, unit in zip(self.groups, self.units, strict=True)
        }

    def using(self, mechanism: Mechanism) -> Self:
        """Return the same plan for another mechanism, described for as many teachers of one vote each."""
        return self if mechanism == self.plain else replace(self, plain=mechanism)

    def _only(self, rest: Sequence[int], **own: Any) -> Self:
        """Return the plan of some of the groups, with what is the variant's own."""
        if self.members:
            own["members"] = tuple(self.members[at] for at in rest)
        return replace(self, groups=tuple(self.groups[at] for at in rest), **own)


def whole_shares(
    shares: ArrayLike,
    *,
    smallest: int | None = None,
    precision: float = 0.02,
    most: int | None = None,
    nearest: bool = False,
) -> tuple[int, ...]:
    """Return whole numbers in the proportions of `shares`, as small as the precision allows.

    The smallest share becomes `smallest`, s, and every other is rounded down to a whole number: it is below
    its proportion by a relative error under 1/s, and never above. With `nearest` it is rounded to the nearest
    and is off by at most 1/(2s) of itself, either way. Without `smallest` the first s is taken whose errors
    are all within `precision`. None passes `most`: where no s keeps within both, the one with the least error
    is taken.
    """
    require_fraction(precision=precision)
    table = np.asarray(shares, dtype=np.float64)
    if table.ndim != 1 or table.size == 0 or not np.all(np.isfinite(table) & (table > 0)):
        raise ValueError("Expected shares > 0 and finite, at least one.")
    with np.errstate(over="ignore"):
        ratios = np.minimum(table / table.min(), _FAR)
    if most is not None:
        require_count(most=most)
    if smallest is not None:
        require_count(smallest=smallest)
        return tuple(_rounded(ratios * smallest, most, nearest).tolist())
    # With 1/s below the precision no error is above it, so the search ends.
    candidates = range(1, int(np.ceil(1 / precision)) + 1)
    best, least = _rounded(ratios, most, nearest), np.inf
    for s in candidates:
        whole = _rounded(ratios * s, most, nearest)
        error = float(np.max(np.abs(1 - whole / (ratios * s))))
        if error < least - _HAIR:
            best, least = whole, error
        if error <= precision:
            break
    return tuple(best.tolist())


def _rounded(values: NDArray[np.float64], most: int | None, nearest: bool) -> Integers:
    whole = np.rint(values) if nearest else np.floor(values * (1 + _HAIR))
    if most is None and whole.max() > _FAR:
        raise ValueError("Expected whole numbers below 2**40, got shares that are too far apart for that.")
    return (whole if most is None else np.minimum(whole, most)).astype(np.int64)


def ranges(per_group: Sequence[int]) -> tuple[Integers, ...]:
    """Return the teachers of each group when the first group's come first."""
    return tuple(np.split(np.arange(sum(per_group)), np.cumsum(per_group)[:-1]))


def left(groups: Sequence[Group], names: Iterable[str]) -> list[int]:
    """Return which groups are left when those of these names are gone."""
    gone = {names} if isinstance(names, str) else set(names)
    unknown = gone - {group.name for group in groups}
    if unknown:
        raise ValueError(
            f"Expected names of groups that take part, got {sorted(unknown)[0]!r}. "
            f"There are {', '.join(repr(group.name) for group in groups)}."
        )
    rest = [at for at, group in enumerate(groups) if group.name not in gone]
    if not rest:
        raise ValueError("Expected at least one group to be left, got all of them to leave.")
    return rest


def require_each(groups: Sequence[Group], values: Sequence[object], what: str) -> None:
    """Refuse two groups of one name, who would pay from one account, and other than one value per group."""
    names = [group.name for group in groups]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"Expected every group to have a name of its own, got {twice[0]!r} twice.")
    if len(values) != len(groups) or not groups:
        raise ValueError(f"Expected {what} for each of {len(groups)} groups, got {len(values)}.")


def require_members(groups: Sequence[Group], members: Sequence[Integers], n_teachers: int) -> None:
    """Refuse teachers that are shared by groups, that do not exist, or a group without any."""
    require_each(groups, members, "teachers")
    for group, own in zip(groups, members, strict=True):
        if len(own) == 0:
            raise ValueError(f"Expected a teacher for group {group.name!r}, got none.")
    everybody = np.concatenate([np.asarray(own) for own in members])
    if everybody.dtype.kind not in "iu" or everybody.min() < 0 or everybody.max() >= n_teachers:
        raise ValueError(f"Expected teachers 0..{n_teachers - 1}, got one outside.")
    if np.unique(everybody).size < everybody.size:
        raise ValueError("Expected every teacher in one group, got one in two.")


def checked_mask(answered: ArrayLike) -> NDArray[np.bool_]:
    """Return the mask of answered queries, refusing anything but one truth value per query."""
    mask = np.asarray(answered)
    if mask.ndim != 1 or (mask.size and mask.dtype != np.bool_):
        raise TypeError("Expected one truth value per query: whether it was answered.")
    return mask.astype(np.bool_)
