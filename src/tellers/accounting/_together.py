"""The exact cost of ballots that change together: a person whose data sits in several teachers.

When u teachers hold a person's data, all u ballots may change at once. A query then costs the largest
divergence between the votes at hand and those in which the person's ballots, a multiset S of classes, are
replaced by another multiset T of u classes. Persons with equal S in a query share one cost.

How many T there are decides what is done (docs/maths/personalised.md has the proofs):

- few: all of them are looked at, classes in the same position counted once. Exact, in both directions.
- many, forward: for GNMax the largest divergence is reached with all u ballots in one class. With a check,
  the winner's part at its largest meets the check at its lowest and highest reachable margin: a bound.
- many, reverse: the tangent of log P_j bounds every P_j, again largest with all u ballots in one class.

Everything here looks at the votes: results are private, and come out sealed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mechanisms._argmax import log_win_slopes, log_wins
from ..mechanisms._check import log_pass_and_fail
from ..mechanisms._laws import DiscreteGaussian
from ..mechanisms._outcomes import Outcomes
from ..mechanisms.divergence import divergences
from ..privacy.rdp import Floats, check_orders
from ..privacy.sealed import Sealed
from ..privacy.votes import Votes
from ._label_exact import Integers, sums_of_rows
from .exact import teacher_costs

# Pairs of (ballots now, ballots then) per pass, and queries per block: memory stays flat.
_PAIRS = 1 << 13
_BLOCK = 256
_PLACES = 1 << 24
# Below this much noise whole counts no longer stand on one smooth log-concave curve: charge the price.
_SMOOTH = 1.0


def team_costs(
    mechanism: Any,
    votes: Votes,
    teams: ArrayLike,
    *,
    most: int = 300,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
) -> Sealed[Floats]:
    """Return what the run cost each person, sealed: (2 directions, persons, orders).

    `teams` (persons, u) holds the teachers with a person's data. Up to `most` alternatives per set of ballots
    are all looked at.

    Guarantee: entry (d, i, k) is at least the divergence of the whole release when all ballots of team i
               change, forward (0) or reverse (1), at order k; it is that divergence where all alternatives
               are looked at, and forward for GNMax always.
    Assumes:   as `exact_cost`; every ballot counts one vote. What is not looked at rests on log-concavity,
               which holds for Gaussian noise and, in all tests, for the noise that is drawn.
    Reference: docs/maths/personalised.md; for u = 1 `exact.teacher_costs`, which answers then.
    """
    table, grid = _teams(teams, votes), check_orders(orders)
    if table.shape[1] == 1:
        by_teacher = teacher_costs(mechanism, votes, orders=grid, student=student).reveal()
        return Sealed(np.ascontiguousarray(by_teacher[:, table[:, 0]]))
    search = _Search(DiscreteGaussian(mechanism.sigma), mechanism.check_sigma, table.shape[1], grid, most)
    totals = np.zeros((len(table), 2 * grid.size))
    for _, costs, which in _blocks(search, mechanism, votes, table, student):
        totals += sums_of_rows(costs.transpose(1, 0, 2).reshape(costs.shape[1], -1), which)
    return Sealed(np.ascontiguousarray(totals.reshape(len(table), 2, -1).transpose(1, 0, 2)))


def n_alternatives(sizes: tuple[int, ...], n_ballots: int) -> int:
    """Return how many sets of ballots differ, where `sizes` says how many classes are exchangeable."""
    ways = [1] + [0] * n_ballots
    for size in sizes:
        ways = [
            sum(ways[k - used] * len(_partitions(used, size, used)) for used in range(k + 1))
            for k in range(n_ballots + 1)
        ]
    return ways[n_ballots]


@dataclass(frozen=True, eq=False)
class _Search:
    """How the largest divergence over alternatives is found: the noise, and how far to look."""

    law: DiscreteGaussian
    sigma_threshold: float | None
    n_ballots: int
    grid: Floats
    most: int

    def costs(self, counts: Integers, thresholds: Integers, now: Integers) -> Floats:
        """Return the cost of every row, (2, rows, orders); exchangeable classes stand next to each other."""
        new = np.ones(counts.shape, dtype=bool)
        new[:, 1:] = False
        for part in (counts, thresholds, now):
            new[:, 1:] |= np.diff(part, axis=1) != 0
        patterns, of_row = np.unique(new, axis=0, return_inverse=True)
        result = np.empty((2, len(counts), self.grid.size))
        beyond = np.zeros(len(counts), dtype=bool)
        for i, pattern in enumerate(patterns):
            sizes = tuple(np.diff(np.append(np.flatnonzero(pattern), pattern.size)).tolist())
            rows = np.flatnonzero(of_row.reshape(-1) == i)
            if sum(sizes) != 2 and n_alternatives(sizes, self.n_ballots) > self.most:
                beyond[rows] = True
                continue
            then = _alternatives(sizes, self.n_ballots)
            step = max(1, _PAIRS // len(then))
            for some in (rows[k : k + step] for k in range(0, rows.size, step)):
                result[:, some] = self._enumerated(counts[some], thresholds[some], now[some], then=then)
        rows = np.flatnonzero(beyond)
        step = max(1, _PAIRS // counts.shape[1])
        for some in (rows[k : k + step] for k in range(0, rows.size, step)):
            result[:, some] = self._bounded(counts[some], thresholds[some], now[some])
        return result

    def _enumerated(self, counts: Integers, thresholds: Integers, now: Integers, *, then: Integers) -> Floats:
        moved = (counts - now)[:, None, :] + then[None, :, :]
        here, there = self._winners(counts, moved)
        if self.sigma_threshold is not None:
            passes, fails = log_pass_and_fail(_margin(counts, thresholds), self.sigma_threshold)
            passes_then, fails_then = log_pass_and_fail(
                _margin(moved, thresholds[:, None, :]), self.sigma_threshold
            )
            here = np.concatenate([fails[:, None, None], passes[:, None, None] + here], axis=2)
            there = np.concatenate([fails_then[..., None], passes_then[..., None] + there], axis=2)
        return _largest(here, there, self.grid)

    def _bounded(self, counts: Integers, thresholds: Integers, now: Integers) -> Floats:
        corners = self.n_ballots * np.eye(counts.shape[1], dtype=np.int64)
        winners = _largest(*self._winners(counts, (counts - now)[:, None, :] + corners), self.grid)
        winners[1] = self._tangent(counts, corners - now[:, None, :])
        if self.sigma_threshold is None:
            return winners
        # Convex in the probability of passing, which grows with the margin: largest at an end of its range.
        score = counts - now - thresholds
        highest = score.max(axis=1) + self.n_ballots
        spare = (score.max(axis=1, keepdims=True) - score).sum(axis=1)
        lowest = score.max(axis=1) + np.maximum(0, -(-(self.n_ballots - spare) // counts.shape[1]))
        ends = np.stack([lowest, highest], axis=1).astype(np.float64)
        passes, fails = log_pass_and_fail(_margin(counts, thresholds), self.sigma_threshold)
        passes_then, fails_then = log_pass_and_fail(ends, self.sigma_threshold)
        here = np.stack([fails, passes], axis=1)[None, :, None, None, :]
        there = np.stack([fails_then, passes_then], axis=2)[None, :, :, None, :]
        order = self.grid[None, None, None, :, None]
        sums = np.concatenate([order * here + (1 - order) * there, order * there + (1 - order) * here])
        part = (self.grid - 1) * winners
        total: Floats = np.logaddexp(sums[..., 0], sums[..., 1] + part[:, :, None, :]).max(axis=2)
        return np.asarray(np.maximum(total / (self.grid - 1), 0.0))

    def _winners(self, counts: Integers, moved: Integers) -> tuple[Floats, Floats]:
        both = np.concatenate([counts[:, None, :], moved], axis=1)
        logs = log_wins(both.reshape(-1, counts.shape[1]), self.law).reshape(both.shape)
        return logs[:, :1], logs[:, 1:]

    def _tangent(self, counts: Integers, moves: Integers) -> Floats:
        """Return a bound on the reverse divergence of the winner over all moves between these corners.

        log P_j is concave in the counts, so it stays below its tangent at the votes, and
        sum_j P_j (P'_j / P_j)^order <= sum_j P_j exp(order slope_j . move), which is convex in the move.
        """
        # All ballots leave one class for one other at most: the price of the noisy histogram always holds.
        price = self.grid * (self.n_ballots / self.law.sigma) ** 2
        if self.law.sigma < _SMOOTH:
            return np.broadcast_to(price, (len(counts), self.grid.size))
        logs, slopes = log_win_slopes(counts, self.law)
        tilt = np.einsum("rjl,rbl->rbj", slopes, moves.astype(np.float64))
        result = np.empty((len(counts), self.grid.size))
        for k, order in enumerate(self.grid):
            exponent = logs[:, None, :] + order * tilt
            top = exponent.max(axis=2)
            total = np.log(np.exp(exponent - top[..., None]).sum(axis=2)) + top
            result[:, k] = np.maximum(total.max(axis=1), 0.0) / (order - 1)
        # A divergence grows with its order, so what bounds a higher order bounds the lower ones.
        result = np.minimum.accumulate(np.minimum(result, price)[:, ::-1], axis=1)[:, ::-1]
        return result


def _blocks(
    search: _Search, mechanism: Any, votes: Votes, teams: Integers, student: ArrayLike | None
) -> Iterator[tuple[int, Floats, NDArray[np.int32]]]:
    """Yield (first query, costs (2, distinct, orders), which of them each person pays (persons, queries))."""
    assert votes.ballots is not None
    whole = mechanism.checked_against(votes, student)
    thresholds = np.broadcast_to(0 if whole is None else whole, votes.counts.shape).astype(np.int64)
    step = max(1, min(_BLOCK, _PLACES // len(teams)))
    for start in range(0, len(votes), step):
        rows, offsets = [], [0]
        stop = min(start + step, len(votes))
        which = np.empty((len(teams), stop - start), dtype=np.int32)
        for query in range(start, stop):
            now, place = _multisets(votes.ballots[:, query][teams], votes.n_classes)
            whole = np.broadcast_to(votes.counts[query], now.shape)
            limit = np.broadcast_to(thresholds[query], now.shape)
            # The names of the classes do not matter: those with the same part to play stand side by side.
            order = np.lexsort((now, limit, -whole), axis=1)
            rows.append([np.take_along_axis(part, order, axis=1) for part in (whole, limit, now)])
            which[:, query - start] = place + offsets[-1]
            offsets.append(offsets[-1] + len(now))
        parts = [np.concatenate(part) for part in zip(*rows, strict=True)]
        distinct, inverse = np.unique(np.concatenate(parts, axis=1), axis=0, return_inverse=True)
        costs = search.costs(*np.split(distinct, 3, axis=1))
        yield start, costs, inverse.reshape(-1).astype(np.int32)[which]


def _multisets(cast: Integers, n_classes: int) -> tuple[Integers, Integers]:
    """Return the distinct sets of ballots, as tallies (distinct, classes), and which one each person cast."""
    cast = np.sort(cast, axis=1)
    if float(n_classes) ** cast.shape[1] < 2.0**62:
        code = cast @ (n_classes ** np.arange(cast.shape[1], dtype=np.int64))
        _, first, place = np.unique(code, return_index=True, return_inverse=True)
    else:
        _, first, place = np.unique(cast, axis=0, return_index=True, return_inverse=True)
    tally = np.zeros((first.size, n_classes), dtype=np.int64)
    np.add.at(tally, (np.arange(first.size)[:, None], cast[first]), 1)
    return tally, place.reshape(-1)


def _margin(counts: Integers, thresholds: Integers) -> Floats:
    return np.asarray((counts - thresholds).max(axis=-1), dtype=np.float64)


def _largest(here: Floats, there: Floats, grid: Floats) -> Floats:
    """Return the largest divergence over alternatives, (2, rows, orders)."""
    shape = there.shape[:2]
    outcomes = Outcomes(
        here[:, 0],
        np.broadcast_to(here, there.shape)[:, None],
        there[:, None],
        np.ones((1, 1, 1, 1), dtype=np.int64),
        np.ones((shape[0], 1, shape[1]), dtype=bool),
        np.zeros((shape[0], 1), dtype=np.int64),
    )
    return divergences(outcomes, orders=grid)[:, :, 0]


@lru_cache(maxsize=4096)
def _alternatives(sizes: tuple[int, ...], n_ballots: int) -> Integers:
    """Return every set of `n_ballots` ballots as a tally, exchangeable classes in falling order."""
    if not sizes:
        return np.zeros((int(n_ballots == 0), 0), dtype=np.int64)
    parts = []
    for used in range(n_ballots + 1):
        rest = _alternatives(sizes[1:], n_ballots - used)
        for part in _partitions(used, sizes[0], used):
            head = np.broadcast_to(np.array(part, dtype=np.int64), (len(rest), sizes[0]))
            parts.append(np.concatenate([head, rest], axis=1))
    return np.concatenate(parts)


@lru_cache(maxsize=4096)
def _partitions(total: int, places: int, largest: int) -> tuple[tuple[int, ...], ...]:
    """Return the ways to write `total` as `places` falling whole numbers, none above `largest`."""
    if places == 0:
        return ((),) if total == 0 else ()
    found = []
    for first in range(min(total, largest), -(-total // places) - 1, -1):
        found += [(first, *rest) for rest in _partitions(total - first, places - 1, first)]
    return tuple(found)


def _teams(teams: ArrayLike, votes: Votes) -> Integers:
    table = np.asarray(teams)
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "iu":
        raise ValueError(
            "Expected teams as whole numbers of shape (persons, teachers with a person's data), "
            f"got shape {table.shape} of {table.dtype}."
        )
    if votes.ballots is None:
        raise ValueError("Expected votes with ballots, got counts alone: who cast which ballot is not known.")
    if votes.weights is not None:
        raise ValueError(
            "Expected ballots of one vote each, got weights. Persons in several teachers have none."
        )
    if table.min() < 0 or table.max() >= votes.n_teachers:
        raise ValueError(f"Expected teachers 0..{votes.n_teachers - 1} in teams, got one outside.")
    sorted_table = np.sort(table.astype(np.int64), axis=1)
    if (np.diff(sorted_table, axis=1) == 0).any():
        raise ValueError(
            "Expected distinct teachers in every team, got one that holds a person's data twice."
        )
    return sorted_table
