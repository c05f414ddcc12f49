"""Exact Rényi costs: the divergence is evaluated, not bounded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..mechanisms._check import student_probabilities
from ..mechanisms._outcomes import chunks
from ..mechanisms.base import Mechanism
from ..mechanisms.divergence import divergences
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.sealed import Sealed
from ..privacy.votes import Unit, Votes
from ._label_exact import ANOTHER_TEACHER, Block, Integers, bound_because, label_blocks

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
# Bytes of costs that are kept from block to block, and what a kept tally takes beside its costs.
_ROOM, _BESIDE = 1 << 26, 512
# An odd number with many ones: its powers spread tallies over all hashes.
_FACTOR = 0x9E3779B97F4A7C15


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
    found = _summed(mechanism, [votes], grid, student=student, progress=progress)
    return _worst(*found, grid=grid, because=bound_because(mechanism, votes))


def exact_cost_of_parts(
    mechanism: Mechanism,
    parts: Iterable[Votes],
    *,
    orders: ArrayLike | None = None,
    progress: Progress | None = None,
) -> ExactCost:
    """Return the exact Rényi cost of votes that come in parts and are never in memory all at once.

    Guarantee: that of `exact_cost` on all of them at once, wherever they were cut, to rounding.
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
    found = _summed(mechanism, _joined(parts, grid), grid, progress=progress)
    because = bound_because(mechanism) or ("" if found[1] else ANOTHER_TEACHER)
    return _worst(*found, grid=grid, because=because)


def exact_epsilons(
    mechanism: Mechanism,
    votes: Votes,
    *,
    delta: float,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
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
    grid = check_orders(orders)
    return _of_teachers(*_summed(mechanism, [votes], grid, student=student, progress=progress))


def teacher_costs_of_parts(
    mechanism: Mechanism,
    parts: Iterable[Votes],
    *,
    orders: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Sealed[Floats]:
    """Return `teacher_costs` of votes that come in parts; shares of the parts add up to the whole."""
    grid = check_orders(orders)
    return _of_teachers(*_summed(mechanism, _joined(parts, grid), grid, progress=progress))


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
    for block in _blocks(mechanism, votes, check_orders(orders), student=student, known=_Known()):
        yield from enumerate(block.each(), start=block.first)


def _summed(
    mechanism: Mechanism,
    parts: Iterable[Votes],
    grid: Floats,
    *,
    student: ArrayLike | None = None,
    progress: Progress | None = None,
) -> tuple[Floats, bool, int]:
    """Return what all queries cost, whether that is known of each teacher, and how many they are.

    Where nobody knows who voted what there is one row: the worst ballot of each query. Equal tallies are
    found wherever they stand in a part, and from part to part as far as there is room to keep their costs.
    """
    sums, n_queries, by_teacher, known = None, 0, False, _Known()
    for votes in parts:
        by_teacher = votes.ballots is not None
        sums = sums or RunningSums((2, votes.n_teachers if by_teacher else 1, grid.size))
        for block in _blocks(mechanism, votes, grid, student=student, known=known, in_order=False):
            sums.add(block.total)
            if progress is not None:
                progress(block.n_queries)
        n_queries += len(votes)
    if sums is None:
        raise ValueError("Expected at least one part with votes, got none.")
    return sums.total, by_teacher, n_queries


def _of_teachers(totals: Floats, by_teacher: bool, _n_queries: int) -> Sealed[Floats]:
    if not by_teacher:
        raise ValueError("Expected votes with ballots, got counts alone: who cast which ballot is not known.")
    return Sealed(totals)


def _worst(totals: Floats, by_teacher: bool, n_queries: int, *, grid: Floats, because: str) -> ExactCost:
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
        if (part.n_teachers, part.n_classes) != (first.n_teachers, first.n_classes):
            raise ValueError(
                f"Expected every part to have {first.n_teachers} teachers and {first.n_classes} classes as "
                f"the first has, got one with {part.n_teachers} and {part.n_classes}."
            )
        if (part.ballots is None) != (first.ballots is None):
            raise ValueError("Expected all parts with ballots or all without, got both. Read them one way.")
        waiting.append(part)
        block, n_waiting = _block_size(part.n_classes, grid), sum(map(len, waiting))
        if n_waiting >= block:
            votes, rest = _concatenated(waiting), n_waiting % block
            yield votes[: n_waiting - rest] if rest else votes
            waiting = [votes[n_waiting - rest :]] if rest else []
    if waiting:
        yield _concatenated(waiting)


def _concatenated(parts: list[Votes]) -> Votes:
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([part.counts for part in parts])
    ballots = [part.ballots for part in parts if part.ballots is not None]
    return Votes(counts, parts[0].n_teachers, np.concatenate(ballots, axis=1) if ballots else None)


def _block_size(n_classes: int, grid: Floats, n_weights: int = 1) -> int:
    return max(1, min(_BLOCK, 20_000_000 // (2 * n_classes * grid.size * n_weights)))


def class_block(
    first: int,
    costs: Floats,
    ballots: Integers | None,
    which: Integers | None,
    *,
    common: Integers,
    tally: Integers | None = None,
) -> Block:
    """Return what queries from `first` on cost; `costs` is (2, tallies, weights, classes, orders).

    `which` (teachers, queries) says which of the weights a teacher's ballot had, -1 for an absent teacher;
    None where there is one weight for all. `common` is a ballot of each tally that many cast. `tally` says
    which one each query has; None where each has its own.
    """
    if ballots is None:
        worst = costs.max(axis=(2, 3))
        return Block(first, worst, None if tally is None else tally[None, :])
    n_tallies, n_weights, n_classes, n_orders = costs.shape[1:]
    rows, begins = costs.reshape(2, -1, n_orders), np.arange(n_tallies) * (n_weights * n_classes)
    begin = begins if tally is None else begins[tally]
    if which is None:
        of_ballot = (begin.astype(np.int32) + ballots).astype(np.int32, copy=False)
        return Block(first, rows, of_ballot, begins + common)
    # Whoever was absent has a row of their own, which costs nothing.
    of_teacher = np.where(which < 0, rows.shape[1], begin + which * n_classes + ballots)
    return Block(first, np.concatenate([rows, np.zeros((2, 1, n_orders))], axis=1), of_teacher)


def _blocks(
    mechanism: Mechanism,
    votes: Votes,
    grid: Floats,
    *,
    student: ArrayLike | None,
    known: "_Known",
    in_order: bool = True,
) -> Iterator[Block]:
    """Yield what the queries cost, some at a time, in their order or those with equal tallies together."""
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
    is_symmetric = beliefs is None and getattr(mechanism, "symmetric", False)
    tallies = votes.replaced(ballots=None)  # which need not be cut: a cost is one of counts
    order = _together(votes.counts, block) if is_symmetric and not in_order else None
    for start in range(0, len(votes), block):
        rows = slice(start, start + block) if order is None else order[start : start + block]
        part, ballots = tallies[rows], None if votes.ballots is None else votes.ballots[:, rows]
        units, which = _weights(part)
        if is_symmetric:
            yield _symmetric_block(start, mechanism, part, ballots, units, which, grid=grid, known=known)
            continue
        belief = None if beliefs is None else beliefs[rows]
        costs = [_class_costs(mechanism, part.replaced(unit=unit), grid, belief) for unit in units]
        yield class_block(start, np.stack(costs, axis=2), ballots, which, common=part.counts.argmax(axis=1))


def _together(counts: Integers, block: int) -> Integers | None:
    """Return an order in which equal tallies stand together, each where its first one was; None for as is.

    Tallies are compared by a hash: two that share one stand together too, and are told apart in their block.
    """
    if len(counts) <= block:
        return None
    factors = np.cumprod(np.full(counts.shape[1], _FACTOR, dtype=np.uint64))
    code = np.empty(len(counts), dtype=np.uint64)
    for start in range(0, len(counts), block):
        code[start : start + block] = (
            np.sort(counts[start : start + block], axis=1).astype(np.uint64) @ factors
        )
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return None if first.size == len(counts) else np.argsort(first[which], kind="stable")


def _weights(votes: Votes) -> tuple[list[Unit], Integers | None]:
    """Return the units to follow, and which of them sits behind each ballot; None where it is the same."""
    if votes.weights is None:
        return [votes.unit], None
    distinct, which = np.unique(votes.weights, return_inverse=True)
    units = [Unit.of_weight(int(weight)) for weight in distinct if weight > 0]
    if distinct.size == len(units) == 1:
        return units, None
    which = which.reshape(votes.n_teachers, -1) - (distinct.size - len(units))
    return units, np.broadcast_to(which, (votes.n_teachers, len(votes)))


def _symmetric_block(
    first: int,
    mechanism: Mechanism,
    votes: Votes,
    ballots: Integers | None,
    units: list[Unit],
    which: Integers | None,
    *,
    grid: Floats,
    known: "_Known",
) -> Block:
    """Evaluate each distinct sorted histogram once; the names of the classes do not matter."""
    distinct, tally = np.unique(-np.sort(-votes.counts, axis=1), axis=0, return_inverse=True)
    cost_of = partial(_ranked_costs, mechanism, grid=grid, worst=ballots is None)
    by_unit = [known.costs(Votes(distinct, votes.n_teachers, None, unit), cost_of) for unit in units]
    if ballots is not None:
        ballots = _ranked(votes.counts, ballots)
    common = np.zeros(len(distinct), dtype=np.int64)
    return class_block(
        first, np.stack(by_unit, axis=2), ballots, which, common=common, tally=tally.reshape(-1)
    )


def _ranked(counts: Integers, ballots: Integers) -> Integers:
    """Return each ballot as the rank of its class in the sorted histogram."""
    n_queries, n_classes = counts.shape
    rank = np.empty(counts.shape, dtype=np.min_scalar_type(n_classes))
    in_order = np.argsort(-counts, axis=1, kind="stable")
    np.put_along_axis(rank, in_order, np.arange(n_classes, dtype=rank.dtype)[None, :], axis=1)
    result, begins = np.empty(ballots.shape, dtype=rank.dtype), np.arange(n_queries) * n_classes
    step = max(1, _CACHED // n_queries)
    for i in range(0, len(ballots), step):
        at = begins + ballots[i : i + step].astype(np.int64, copy=False)
        result[i : i + step] = rank.reshape(-1)[at]
    return result


def _ranked_costs(mechanism: Mechanism, votes: Votes, *, grid: Floats, worst: bool) -> Floats:
    """Return what a ballot for each class costs, or the worst ballot alone: (2, queries, ballots, orders)."""
    costs = _class_costs(mechanism, votes, grid, None)
    return costs.max(axis=2, keepdims=True) if worst else costs


class _Known:
    """What tallies cost that came before: as many as there is room for, the first ones, which come often."""

    def __init__(self) -> None:
        self._costs: dict[tuple[Unit, bytes], Floats] = {}
        self._room = _ROOM

    def costs(self, votes: Votes, cost_of: Callable[[Votes], Floats]) -> Floats:
        """Return what each tally costs; only those that are new are evaluated. They all differ."""
        keys = [(votes.unit, row.tobytes()) for row in votes.counts]
        new = np.array([i for i, key in enumerate(keys) if key not in self._costs], dtype=np.int64)
        found = cost_of(votes[new])
        result = np.empty((2, len(keys), *found.shape[2:]))
        result[:, new] = found
        for i in np.setdiff1d(np.arange(len(keys)), new):
            result[:, i] = self._costs[keys[i]]
        each = result[:, 0].nbytes + votes.counts[0].nbytes + _BESIDE
        for i in new[: self._room // each]:
            self._costs[keys[i]] = result[:, i].copy()
            self._room -= each
        return result


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
