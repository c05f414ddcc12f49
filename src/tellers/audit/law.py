"""How likely every outcome is at two neighbouring votes, where a mechanism states it."""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..divergence import pair_divergences
from ..label_votes import LabelVotes
from ..mechanisms import Mechanism
from ..mechanisms.labels.outcomes import LabelOutcomes
from ..mechanisms.outcomes import Outcomes
from ..rdp import RdpCurve, check_orders
from ..votes import Votes

Floats = NDArray[np.float64]
AnyVotes = Votes | LabelVotes


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """Two votes on one query that differ in one teacher's ballot; `student` where a mechanism asks for it.

    Made up for an audit and nobody's, so they may be shown, unlike votes that were cast.

    >>> Pair(Votes.from_counts([[30, 20]], n_teachers=50), Votes.from_counts([[29, 21]], n_teachers=50))
    Pair([30, 20] | [29, 21], n_teachers=50)
    """

    here: AnyVotes
    there: AnyVotes
    student: Floats | None = None

    def __post_init__(self) -> None:
        kinds = {type(self.here), type(self.there)}
        shapes = {_tally(self.here).shape, _tally(self.there).shape}
        if len(kinds) > 1 or len(shapes) > 1 or len(self.here) != 1:
            raise ValueError("Expected two votes of one kind on one query each, got others.")
        if self.here.n_teachers != self.there.n_teachers:
            raise ValueError(
                f"Expected votes of the same teachers, got {self.here.n_teachers} and "
                f"{self.there.n_teachers}. A neighbour changes one ballot and takes none away."
            )
        moved = np.abs(_tally(self.here) - _tally(self.there))
        one = getattr(self.here, "resolution", 1)
        # Of one ballot that changes no sum moves by more than a vote, and no class but two.
        if moved.max() > one or (isinstance(self.here, Votes) and moved.sum() > 2):
            raise ValueError("Expected votes that differ in one ballot, got votes that differ in more.")

    def __repr__(self) -> str:
        sides = " | ".join(str(_tally(votes)[0].tolist()) for votes in (self.here, self.there))
        return f"Pair({sides}, n_teachers={self.here.n_teachers})"


@dataclass(frozen=True, eq=False)
class Law:
    """Log-probabilities of one query's outcomes, (columns, values and silence), which are independent.

    A class is one column; of many labels each is one. Silence comes last, so that -1 finds it.

    >>> law = Law(np.log([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.5, 0.25]]))
    >>> law.losses(np.array([[0], [1], [-1]])).round(3)
    array([ 0.693, -0.693,  0.   ])
    """

    here: Floats
    there: Floats

    def losses(self, outcomes: NDArray[Any]) -> Floats:
        """Return the logarithm of how much likelier each outcome, (releases, columns), is here than there."""
        with np.errstate(invalid="ignore"):
            table = np.where(np.isneginf(self.here) & np.isneginf(self.there), 0.0, self.here - self.there)
        # A label that no teacher gave is told by the student: for the law that is silence.
        return np.asarray(table[np.arange(len(table)), np.maximum(outcomes, -1)].sum(axis=-1))

    def curves(self, orders: ArrayLike | None = None) -> tuple[RdpCurve, RdpCurve]:
        """Return the exact Rényi cost of telling the two apart, in both directions.

        >>> forward, reverse = Law(np.log([[0.6, 0.3, 0.1]]), np.log([[0.5, 0.4, 0.1]])).curves([2.0])
        >>> float(forward.values[0].round(4)), float(reverse.values[0].round(4))
        (0.044, 0.0488)
        """
        grid = check_orders(orders)
        # An outcome that neither side can have says nothing; any probability it has on both sides would do.
        never = np.isneginf(self.here) & np.isneginf(self.there)
        here, there = (np.where(never, -800.0, side).T for side in (self.here, self.there))
        total = pair_divergences(here, there, grid).sum(axis=1)
        return RdpCurve(grid, total[0]), RdpCurve(grid, total[1])

    def hockey_stick(self, n_queries: int, *, delta: float) -> float:
        """Return the epsilon of so many queries at a delta, of the larger direction: exact, not converted.

        Guarantee: delta(epsilon) = E max(0, 1 - e^(epsilon - loss)) is `delta`, to within rounding. With more
                   than some hundred thousand different totals, losses lie on a grid and epsilon is off by at
                   most n_queries / 2 steps of it.
        Assumes:   queries are answered independently, by this law.
        Reference: Balle and Wang 2018, Theorem 5.

        >>> law = Law(np.log([[0.6, 0.4]]), np.log([[0.5, 0.5]]))
        >>> round(law.hockey_stick(1, delta=0.01), 4), round(float(np.log(0.49 / 0.4)), 4)
        (0.2029, 0.2029)
        """
        sides = ((self.here, self.there), (self.there, self.here))
        return max(_hockey_stick(*_losses(own, other, n_queries), delta) for own, other in sides)

    def epsilon(self, n_queries: int, *, delta: float) -> float:
        """Return the exact Rényi cost of so many queries, converted at a delta, the larger direction.

        >>> Law(np.log([[0.6, 0.3, 0.1]]), np.log([[0.5, 0.4, 0.1]])).epsilon(9, delta=0.01) > 1
        True
        """
        return max((curve * n_queries).epsilon(delta) for curve in self.curves())


def stated_law(mechanism: Mechanism, pair: Pair) -> Law | None:
    """Return the law of a mechanism's outcomes at a pair of votes, or None where labels are not independent.

    Guarantee: what `mechanism.outcomes` says, which `testing.check_mechanism` compares with releases.
    Assumes:   nothing beyond that.
    Reference: "Exact cost".

    >>> from tellers import GNMax
    >>> pair = Pair(Votes.from_counts([[3, 2]], n_teachers=5), Votes.from_counts([[2, 3]], n_teachers=5))
    >>> stated_law(GNMax(sigma=2.0), pair).losses(np.array([[0], [1]])).round(2)
    array([ 0.56, -0.56])
    """
    if not hasattr(mechanism, "outcomes"):
        return None
    listens = "student" in inspect.signature(mechanism.release).parameters
    asked = {"student": pair.student} if listens and pair.student is not None else {}
    sides = []
    # What follows from one label need not be asked of another: then labels are not independent.
    apart = not hasattr(mechanism, "implications")
    for votes in (pair.here, pair.there):
        found = mechanism.outcomes(votes, **asked)
        if isinstance(found, Outcomes):
            sides.append(np.roll(found.log_labels, -1, axis=1))
        elif isinstance(found, LabelOutcomes) and found.gate is None and apart:
            told = found.law.log_outcomes(found.sums[0])
            silent = told[2:] if len(told) > 2 else np.full((1, told.shape[1]), -np.inf)
            sides.append(np.concatenate([told[:2], silent]).T)
        else:
            return None
    return Law(*sides)


_MOST_TOTALS = 300_000


def _losses(own: Floats, other: Floats, n_queries: int) -> tuple[Floats, Floats]:
    """Return every total loss of so many queries, and how likely it is on one's own side."""
    losses, shares = np.zeros(1), np.ones(1)
    for mine, theirs in zip(own, other, strict=True):
        alive = ~np.isneginf(mine)
        one = _merged(mine[alive] - theirs[alive], np.exp(mine[alive]))
        losses, shares = _added((losses, shares), one)
    total, base, left = (np.zeros(1), np.ones(1)), (losses, shares), n_queries
    while left:
        if left & 1:
            total = _added(total, base)
        left >>= 1
        if left:
            base = _added(base, base)
    return total


def _added(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    if first[0].size * second[0].size > 40 * _MOST_TOTALS:
        first, second = (_on_grid(side) for side in (first, second))
    losses = np.add.outer(first[0], second[0]).ravel()
    return _merged(losses, np.multiply.outer(first[1], second[1]).ravel())


def _on_grid(side: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    losses, shares = side
    finite = np.isfinite(losses)
    step = max(np.ptp(losses[finite]), 1e-9) / 3000
    return _merged(np.where(finite, np.round(losses / step) * step, losses), shares)


def _merged(losses: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return equal losses once; what has no chance to be seen is left out, and its chance is nobody's."""
    kept = shares > 1e-22
    rounded = np.round(losses[kept], 11)
    distinct, which = np.unique(rounded, return_inverse=True)
    total = np.bincount(which.reshape(-1), weights=shares[kept], minlength=distinct.size)
    return np.asarray(distinct, dtype=np.float64), np.asarray(total, dtype=np.float64)


def _hockey_stick(losses: Floats, shares: Floats, delta: float) -> float:
    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return float((shares[above] * -np.expm1(epsilon - losses[above])).sum()) - delta

    if excess(0.0) <= 0:
        return 0.0
    top = float(losses[np.isfinite(losses)].max(initial=0.0))
    if excess(top) > 0:
        return float("inf")
    low, high = 0.0, top
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _tally(votes: AnyVotes) -> NDArray[np.int64]:
    return votes.sums if isinstance(votes, LabelVotes) else votes.counts
