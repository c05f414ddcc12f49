"""Exact Rényi costs: the divergence is evaluated, not bounded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ..mechanisms._check import student_probabilities
from ..mechanisms._outcomes import chunks
from ..mechanisms.base import Mechanism
from ..mechanisms.divergence import divergences
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.sealed import Sealed
from ..privacy.votes import Unit, Votes
from ._label_exact import ANOTHER_TEACHER, LabelBlock, bound_because, label_blocks

Integers = NDArray[np.int64]


# Sums worked on at once: what is in between stays in the cache.
_CACHED = 1 << 14


class RunningSums:
    """Sums that keep what rounding drops: their error does not grow with the number of terms.

    Guarantee: the total of n terms, none of them negative, is relatively off by at most u + (n u)^2 and
               terms of higher order, u = 2^-53.
    Assumes:   rounding to nearest, as floating-point units do it.
    Reference: Ogita, Rump, Oishi 2005, Proposition 4.5 (Sum2).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum, self._lost = np.zeros(shape), np.zeros(shape)

    def add(self, terms: Floats) -> None:
        """Add one term to every sum."""
        sums, lost, flat = self._sum.reshape(-1), self._lost.reshape(-1), terms.reshape(-1)
        for i in range(0, flat.size, _CACHED):
            term, old = flat[i : i + _CACHED], sums[i : i + _CACHED]
            new = old + term
            with np.errstate(invalid="ignore"):
                taken = new - old
                # What of either summand did not make it into the new sum (Knuth's two-sum).
                rest = (old - (new - taken)) + (term - taken)
            # Infinity has swallowed its rest.
            lost[i : i + _CACHED] += rest if np.isfinite(rest).all() else np.where(np.isfinite(rest), rest, 0)
            old[...] = new

    @property
    def total(self) -> Floats:
        """Return the sums; costs are not negative, which rounding does not know."""
        return np.asarray(np.maximum(self._sum + self._lost, 0.0))


def sums_by_teacher(
    costs: Floats, ballots: Integers, which: Integers | None = None, *, common: Integers
) -> Floats:
    """Sum, for every teacher, the costs of the ballots it cast, (directions, teachers, orders).

    `costs` is (directions, queries, weights, classes, orders), `ballots` (teachers, queries), and `which` the
    weight behind each ballot, -1 for an absent teacher, None where there is one weight for all. `common` is
    a ballot of each query that many cast: any will do, the commonest is the fastest.
    """
    if which is not None and (costs.shape[2] > 1 or (which < 0).any()):
        return _product(costs, ballots + np.maximum(which, 0) * costs.shape[3], which >= 0)
    # What the commonest ballot costs is added once for all teachers, and the product is left with those who
    # cast another: under consensus few.
    queries = np.arange(len(common))
    shared = costs[:, queries, 0, common, :]
    if not np.isfinite(shared).all():  # infinity cannot be taken away again
        return _product(costs, ballots, np.ones(ballots.shape, dtype=bool))
    apart = _product(costs - shared[:, :, None, None, :], ballots, ballots != common)
    apart += shared.sum(axis=1)[:, None, :]
    return apart


def _product(costs: Floats, rows: Integers, taken: NDArray[np.bool_]) -> Floats:
    """Sum, for every teacher, the rows of each query's costs that are taken: a sparse 0/1 matrix product."""
    n_teachers, n_queries = rows.shape
    n_rows = costs.shape[2] * costs.shape[3]
    shape = (n_teachers, n_queries * n_rows)
    at = np.flatnonzero(taken)  # few of all ballots: no other array is as large as they are
    columns = (at % n_queries) * n_rows + np.take(rows, at)
    pointers = np.concatenate([[0], np.cumsum(np.count_nonzero(taken, axis=1))])
    cast = csr_array((np.ones(at.size), columns, pointers), shape=shape)
    return np.stack([cast @ direction.reshape(shape[1], -1) for direction in costs])


# --- Exact Rényi costs: the divergence is evaluated, not bounded. ---
#
# A mechanism's outcome is discrete and its distribution can be computed, for the votes at hand and for
# every neighbour. The cost of a fixed list of queries for the unit behind teacher i is then
#
# max over the two directions of  sum over queries of  max over alternatives of i's ballot of
# D_order(here || there)   or   D_order(there || here),
#
# and the cost of the run is the largest over teachers: the local Rényi loss itself, since each query has
# noise of its own. Everything in this module looks at the votes: results are private and come out sealed.
#
# Where later queries depend on earlier answers, the sum along the path that was taken is what the
# papers report too; it is not a bound over all paths. The public price composes without this caveat.


Progress = Callable[[int], None]

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class ExactCost:
    """The exact cost of a run: sealed, and either per teacher or adding up each query's worst ballot.

    `forward` and `reverse` are its two directions; `bound_because` says why it is an upper bound, if it is.
    """

    cost: Sealed[RdpCurve]
    forward: Sealed[RdpCurve]
    reverse: Sealed[RdpCurve]
    per: Literal["teacher", "query"]
    n_queries: int
    bound_because: str = ""


def exact_cost(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    progress: Progress | None = None,
) -> ExactCost:
    """Return the exact Rényi cost of releasing these votes through this mechanism.

    Guarantee: with ballots, the divergence of the whole release between these votes and the worst
               neighbour, at every order, in the worse direction; with counts alone, an upper bound
               that lets another teacher be the worst in each query.
    Assumes:   the list of queries was fixed before the answers; the noise is the one `release` draws.
    Reference: Papernot et al. 2018 bound the forward direction (Theorem 6); see "The exact cost".

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> cost = exact_cost(GNMax(sigma=40.0), votes)
    >>> cost.per, cost.cost
    ('query', Sealed(<private>))
    """
    grid = check_orders(orders)
    totals = _summed(mechanism, votes, grid, student=student, progress=progress)
    return _worst(totals, grid, bound_because(mechanism, votes), votes.ballots is not None, len(votes))


def exact_cost_of_parts(
    mechanism: Mechanism,
    parts: Iterable[Votes],
    *,
    orders: ArrayLike | None = None,
    progress: Progress | None = None,
) -> ExactCost:
    """Return the exact Rényi cost of votes that come in parts and are never in memory all at once.

    Guarantee: that of `exact_cost` on all of them at once, wherever they were cut: it cuts them as that does.
    Assumes:   as `exact_cost`; the parts are votes of the same teachers, all with ballots or all without.
    Reference: see "The exact cost"; rounding does not grow with the number of queries, see "Scale".

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10], [130, 120], [249, 1]], n_teachers=250)
    >>> parts = (votes[i : i + 2] for i in (0, 2))
    >>> cost, whole = exact_cost_of_parts(GNMax(sigma=40.0), parts), exact_cost(GNMax(sigma=40.0), votes)
    >>> cost.n_queries, bool(np.allclose(cost.cost.reveal().values, whole.cost.reveal().values, rtol=1e-12))
    (3, True)
    """
    grid = check_orders(orders)
    totals, by_teacher, n_queries = _totals(mechanism, parts, grid, progress)
    because = bound_because(mechanism) or ("" if by_teacher else ANOTHER_TEACHER)
    return _worst(totals, grid, because, by_teacher, n_queries)


def exact_epsilons(
    mechanism: Mechanism,
    votes: Votes,
    *,
    delta: float,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Sealed[Floats]:
    """Return the exact epsilon after each query, sealed: what stopping there would have cost.

    Guarantee: entry k is the exact epsilon of the first k + 1 queries.
    Assumes:   the stopping point does not depend on this number; if it does, the stopping time is
               itself private and the guarantee is no longer the one printed.
    Reference: see "The exact cost".
    """
    grid = check_orders(orders)
    totals = np.zeros((2, votes.n_teachers if votes.ballots is not None else 1, grid.size))
    epsilons = np.empty(len(votes))
    for done, costs in query_costs(mechanism, votes, orders=grid, student=student):
        totals += costs
        epsilons[done] = RdpCurve(grid, totals.max(axis=(0, 1))).epsilon(delta)
        if progress is not None:
            progress(1)
    return Sealed(epsilons)


def teacher_costs(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Sealed[Floats]:
    """Return what the run cost the unit behind each teacher, sealed: (2 directions, teachers, orders).

    Guarantee: entry (d, i, k) is the divergence of the whole release when the ballots of teacher i change,
               by their weights, forward (0) or reverse (1), at order k. Where a teacher was absent it is 0.
    Assumes:   as `exact_cost`; weights and absences are public and were fixed before the votes.
    Reference: see "The exact cost".

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_ballots([[0, 1], [0, 1], [1, 1]], n_classes=2).weighted([1, 2, 1])
    >>> costs = teacher_costs(GNMax(sigma=4.0), votes, orders=[8.0]).reveal()
    >>> costs.shape, bool(costs[0, 1, 0] > costs[0, 0, 0] > 0)
    ((2, 3, 1), True)
    """
    if votes.ballots is None:
        raise ValueError("Expected votes with ballots, got counts alone: who cast which ballot is not known.")
    return Sealed(_summed(mechanism, votes, check_orders(orders), student=student, progress=progress))


def teacher_costs_of_parts(
    mechanism: Mechanism,
    parts: Iterable[Votes],
    *,
    orders: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Sealed[Floats]:
    """Return `teacher_costs` of votes that come in parts; shares of the parts add up to the whole."""
    totals, by_teacher, _ = _totals(mechanism, parts, check_orders(orders), progress)
    if not by_teacher:
        raise ValueError("Expected votes with ballots, got counts alone: who cast which ballot is not known.")
    return Sealed(totals)


def query_costs(
    mechanism: Mechanism,
    votes: Votes,
    *,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
) -> Iterator[tuple[int, Floats]]:
    """Yield (query, its cost to each teacher), (2 directions, teachers, orders), one query after another.

    With counts alone there is one row: the worst ballot. What is yielded is private.
    """
    for block in _blocks(mechanism, votes, check_orders(orders), student=student):
        yield from enumerate(block.each(), start=block.first)


def _summed(
    mechanism: Mechanism,
    votes: Votes,
    grid: Floats,
    *,
    student: ArrayLike | None = None,
    progress: Progress | None = None,
    sums: RunningSums | None = None,
) -> Floats:
    """Return the costs of all queries: to each teacher, or where nobody knows who voted what, the worst.

    With `sums` they are added to those of other votes.
    """
    sums = sums or RunningSums((2, 1 if votes.ballots is None else votes.n_teachers, grid.size))
    for block in _blocks(mechanism, votes, grid, student=student):
        sums.add(block.total)
        if progress is not None:
            progress(block.n_queries)
    return sums.total


def _totals(
    mechanism: Mechanism, parts: Iterable[Votes], grid: Floats, progress: Progress | None
) -> tuple[Floats, bool, int]:
    """Return the sums over all parts, whether they are those of teachers, and over how many queries."""
    sums, n_queries, by_teacher = None, 0, False
    for votes in _joined(parts, grid):
        by_teacher = votes.ballots is not None
        if sums is None:
            sums = RunningSums((2, votes.n_teachers if by_teacher else 1, grid.size))
        _summed(mechanism, votes, grid, progress=progress, sums=sums)
        n_queries += len(votes)
    if sums is None:
        raise ValueError("Expected at least one part with votes, got none.")
    return sums.total, by_teacher, n_queries


def _worst(totals: Floats, grid: Floats, because: str, by_teacher: bool, n_queries: int) -> ExactCost:
    return ExactCost(
        cost=Sealed(RdpCurve(grid, totals.max(axis=(0, 1)))),
        forward=Sealed(RdpCurve(grid, totals[0].max(axis=0))),
        reverse=Sealed(RdpCurve(grid, totals[1].max(axis=0))),
        per="teacher" if by_teacher else "query",
        n_queries=n_queries,
        bound_because=because,
    )


def _joined(parts: Iterable[Votes], grid: Floats) -> Iterator[Votes]:
    """Cut the parts anew, into the blocks that votes held at once are evaluated in."""
    waiting: list[Votes] = []
    first: Votes | None = None
    for part in parts:
        if part.weights is not None or part.unit != Unit():
            raise ValueError("Expected parts whose ballots count one vote each, got weighted ones.")
        first = part if first is None else first
        _require_alike(first, part)
        waiting.append(part)
        block, n_waiting = _block_size(part.n_classes, grid), sum(map(len, waiting))
        if n_waiting >= block:
            votes, rest = _concatenated(waiting), n_waiting % block
            yield votes[: n_waiting - rest] if rest else votes
            waiting = [votes[n_waiting - rest :]] if rest else []
    if waiting:
        yield _concatenated(waiting)


def _require_alike(first: Votes, part: Votes) -> None:
    if (part.n_teachers, part.n_classes) != (first.n_teachers, first.n_classes):
        raise ValueError(
            f"Expected every part to have {first.n_teachers} teachers and {first.n_classes} classes as the "
            f"first has, got one with {part.n_teachers} and {part.n_classes}."
        )
    if (part.ballots is None) != (first.ballots is None):
        raise ValueError("Expected all parts with ballots or all without, got both. Read them one way.")


def _concatenated(parts: list[Votes]) -> Votes:
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([part.counts for part in parts])
    ballots = [part.ballots for part in parts if part.ballots is not None]
    return Votes(counts, parts[0].n_teachers, np.concatenate(ballots, axis=1) if ballots else None)


def _block_size(n_classes: int, grid: Floats, n_weights: int = 1) -> int:
    return max(1, min(_BLOCK, 20_000_000 // (2 * n_classes * grid.size * n_weights)))


@dataclass(frozen=True, eq=False)
class _ClassBlock:
    """What queries from `first` on cost, (2, queries, weights, classes, orders).

    `which` (teachers, queries) says which of the weights a teacher's ballot had, -1 for an absent teacher;
    None where there is one weight for all.
    """

    first: int
    costs: Floats
    which: Integers | None
    votes: Votes

    @property
    def n_queries(self) -> int:
        return self.costs.shape[1]

    def each(self) -> Iterator[Floats]:
        """Yield what each query costs each teacher, (2, teachers, orders), or the worst ballot alone."""
        ballots, which = self.votes.ballots, self.which
        for i in range(self.n_queries):
            costs = self.costs[:, i]
            if ballots is None:
                yield costs.max(axis=(1, 2))[:, None, :]
            elif which is None:
                yield costs[:, 0, ballots[:, self.first + i], :]
            else:
                by_ballot = costs[:, which[:, i], ballots[:, self.first + i], :]
                yield np.where(which[:, i, None] >= 0, by_ballot, 0.0)

    @property
    def total(self) -> Floats:
        """Return the sum over the queries for every teacher, or of the worst ballots."""
        if self.votes.ballots is None:
            return np.asarray(self.costs.max(axis=(2, 3)).sum(axis=1)[:, None, :])
        rows = slice(self.first, self.first + self.n_queries)
        common = self.votes.counts[rows].argmax(axis=1)
        return sums_by_teacher(self.costs, self.votes.ballots[:, rows], self.which, common=common)


def _blocks(
    mechanism: Mechanism, votes: Votes, grid: Floats, *, student: ArrayLike | None
) -> "Iterator[_ClassBlock | LabelBlock]":
    """Yield what the queries cost, some at a time and in their order."""
    if not hasattr(mechanism, "outcomes"):
        raise TypeError(
            f"Expected a mechanism with outcomes, got {type(mechanism).__name__}, which is charged its "
            "price: mechanism.price(unit) per query."
        )
    if votes.space.kind == "labels":
        yield from label_blocks(mechanism, votes, grid)
        return
    beliefs = None if student is None else student_probabilities(student, votes)
    n_weights = 1 if votes.weights is None else np.unique(votes.weights).size
    block = _block_size(votes.n_classes, grid, n_weights)
    tallies = votes.replaced(ballots=None)  # which need not be cut: a cost is one of counts
    for start in range(0, len(votes), block):
        part = tallies[start : start + block]
        belief = None if beliefs is None else beliefs[start : start + block]
        units, which = _weights(part)
        costs = [_unit_costs(mechanism, part.replaced(unit=unit), grid, belief) for unit in units]
        yield _ClassBlock(start, np.stack(costs, axis=2), which, votes)


def _weights(votes: Votes) -> tuple[list[Unit], NDArray[np.int64] | None]:
    """Return the units to follow, and which of them sits behind each ballot."""
    if votes.weights is None:
        return [votes.unit], None
    distinct, which = np.unique(votes.weights, return_inverse=True)
    which = which.reshape(votes.weights.shape)
    if distinct[0] == 0:
        distinct, which = distinct[1:], which - 1
    if which.ndim == 1:
        which = np.broadcast_to(which[:, None], (votes.n_teachers, len(votes)))
    return [Unit.of_weight(int(weight)) for weight in distinct], which


def _unit_costs(mechanism: Mechanism, votes: Votes, grid: Floats, belief: Floats | None) -> Floats:
    if belief is None and getattr(mechanism, "symmetric", False):
        return _symmetric_costs(mechanism, votes, grid)
    return _class_costs(mechanism, votes, grid, belief)


def _symmetric_costs(mechanism: Mechanism, votes: Votes, grid: Floats) -> Floats:
    """Evaluate each distinct sorted histogram once; the names of the classes do not matter."""
    rank = np.argsort(np.argsort(-votes.counts, axis=1, kind="stable"), axis=1)
    distinct, inverse = np.unique(-np.sort(-votes.counts, axis=1), axis=0, return_inverse=True)
    sorted_votes = Votes(distinct, votes.n_teachers, None, votes.unit)
    costs = _class_costs(mechanism, sorted_votes, grid, None)
    return np.asarray(costs[:, inverse.reshape(-1)[:, None], rank, :])


def _class_costs(mechanism: Mechanism, votes: Votes, grid: Floats, student: Floats | None) -> Floats:
    result = np.empty((2, len(votes), votes.n_classes, grid.size))
    n_distinct = 1 + (np.diff(np.sort(votes.counts, axis=1), axis=1) != 0).sum(axis=1)
    for rows in chunks(n_distinct if student is None else np.full(len(votes), votes.n_classes)):
        context: dict[str, Any] = {} if student is None else {"student": student[rows]}
        outcomes = mechanism.outcomes(votes[rows], **context)
        by_group = divergences(outcomes, orders=grid)
        index = np.broadcast_to(outcomes.of_class[None, :, :, None], (2, *outcomes.of_class.shape, grid.size))
        result[:, rows] = np.take_along_axis(by_group, index, axis=2)
    return result
