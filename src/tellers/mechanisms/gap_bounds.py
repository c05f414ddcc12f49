"""Public tables that bound the exact cost of a query by its gap, so that a cost can be published.

The exact cost of a query looks at its whole histogram. An envelope U looks at one number only, the
gap between the two largest counts, and is computed before voting from public numbers: U(g) is at
least the two-sided cost of every histogram with gap g. The sum of U over the queries then bounds the
exact cost of the run, and how fast it can change is known, because U is a public function and one
changed ballot moves every gap by at most 2. A ballot may count several votes: everything below holds for any
weight, and a ballot of w votes moves every gap by at most 2 w.

How U is proved: a vote moves from a to b, R is the largest noisy count among the other classes, and
H(r) is (order - 1) times the larger direction of the divergence of {a, b, other} at threshold r. R has
the same law on both sides, so (order - 1) D <= log E exp H(R).
1. The top class is a or b. The other of the two lies at least g below it, and R is stochastically
   below the largest of m - 2 noisy counts that are all g below the top. Replace H by its running
   maximum from the left, which grows, and R by that larger variable.
2. It is neither. R is stochastically above the noisy count of the top class, and both a and b lie
   at least g below it. Replace H by its largest value over all pairs of classes that lie at least as
   far below the threshold, which falls, and R by that smaller variable.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_positive
from ..privacy._scipy import maximum_filter, maximum_filter1d
from ._check import log_pass_and_fail, whole_thresholds
from ._laws import DiscreteGaussian, Floats
from ._log_sum_sensitivity import largest_quotients, log_moves, slopes_up_to
from .suprema import ThreeWays, argmax_supremum, both_directions

Moves = tuple[tuple[int, float], ...]

# Expectations over R are trapezoid sums at sigma/32 or finer, distances are stepped by sigma/16: both
# errors are of second order and below 1e-3 of the result. The tables are raised by twice that.
_MARGIN = 1 + 2e-3
_FLOAT_RANGE = 600.0


@lru_cache(maxsize=64)
def gap_envelope(n_teachers: int, n_classes: int, *, sigma: float, order: float, weight: int = 1) -> Floats:
    """Return U, with U[g] at least the GNMax cost of every histogram whose top two counts differ by g.

    With a `weight` it is the cost of moving a ballot of that many votes, and `n_teachers` counts all votes.

    Guarantee: for every histogram of at most n_teachers votes over n_classes classes and every single move,
               both directions of the divergence at this order are at most U[gap]; U does not increase.
    Assumes:   discrete Gaussian noise, ties at random; the stated margin covers the quadrature.
    Reference: see "Publishing a cost close to the exact one".

    >>> table = gap_envelope(250, 10, sigma=40.0, order=12.0)
    >>> table.shape, bool(np.all(np.diff(table) <= 0))
    ((251,), True)
    """
    require_count(n_teachers=n_teachers, weight=weight)
    require_count(2, n_classes=n_classes)
    require_positive(sigma=sigma, order=order)
    cap = float(argmax_supremum(sigma, [order], weight=weight).values[0])
    if order * weight > 12 * sigma:
        # The noise hides next to nothing at such an order, and tails below 1e-16 would decide: no table.
        flat = np.full(n_teachers + 1, cap)
        flat.flags.writeable = False
        return flat
    law = DiscreteGaussian(sigma)
    stride = max(1, math.floor(sigma / 16))
    reach = math.ceil(order * weight)
    # One class leads the other by these many votes; two (weights) more because a ballot may move towards the
    # leader.
    leads = np.arange(0, n_teachers + 2 * weight + 1 + stride, stride)
    race = ThreeWays(law, deepest=int(leads[-1]), reach=reach, weight=weight)
    low = -int(leads[-1]) - race.spread
    y = np.arange(low, race.spread + reach + 1, stride / 2)
    away, towards = (np.empty((leads.size, y.size)) for _ in range(2))
    for i, lead in enumerate(leads):
        values = (order - 1) * np.maximum(both_directions(*race(int(lead)), order).max(axis=0), 0.0)
        # Thresholds below those of the race change nothing any more: repeat the first value.
        away[i] = np.interp(y, race.thresholds(int(lead)), values)
        # The move towards the leader is the way back from a lead of two more, seen from one vote higher.
        towards[i] = np.interp(y - weight, race.thresholds(int(lead)), values)
    # A lead of d before a move towards the leader is a lead of d + 2 (weights) after it.
    shift = -(-2 * weight // stride)
    moves = np.concatenate([away[: leads.size - shift], towards[shift:]])
    lead_of = np.concatenate([leads[: leads.size - shift], np.maximum(leads[shift:] - 2 * weight, 0)])

    gaps = np.arange(n_teachers + 1)
    involved = _expected_growing(law, moves, y, gaps, n_rivals=n_classes - 2)
    # Only leads of at least the gap can occur when the top class takes part; a step of slack for the grid.
    involved[lead_of[:, None] < gaps[None, :] - (stride - 1)] = -np.inf
    table = involved.max(axis=0)
    if n_classes > 2:
        table = np.maximum(table, _expected_falling(law, moves.max(axis=0), y, gaps))
    table = np.minimum(np.maximum(table, 0.0) / (order - 1) * _MARGIN + 1e-12, cap)
    table = np.maximum.accumulate(table[::-1])[::-1]
    table.flags.writeable = False
    return table


@lru_cache(maxsize=16)
def confident_envelope(
    n_teachers: int,
    n_classes: int,
    *,
    sigma: float,
    order: float,
    threshold: float,
    sigma_threshold: float,
    weight: int = 1,
    n_fewest: int | None = None,
) -> Floats:
    """Return W, with W[t, g] at least the Confident-GNMax cost of a query with top count t and gap g.

    With a `weight` it is the cost of moving a ballot of that many votes, and `n_teachers` counts all votes;
    `n_fewest` is how many the emptiest query holds, where they differ.

    Guarantee: bounds both directions over the joint outcome space of silence and answers; entries
               that no histogram can have are NaN.
    Assumes:   as `gap_envelope`; the check moves by at most the weight with one ballot.
    Reference: see "Publishing a cost close to the exact one", section on the check.
    """
    answer = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order, weight=weight)
    margin = np.arange(-weight, n_teachers + weight + 1, dtype=np.float64) - whole_thresholds(threshold)[0, 0]
    table = _checked(answer, margin, order=order, sigma_threshold=sigma_threshold, weight=weight)
    fewest = n_teachers if n_fewest is None else n_fewest
    possible = np.logical_or.reduce(
        [_possible(n_teachers, n_classes, n_votes) for n_votes in range(fewest, n_teachers + 1)]
    )
    table = np.where(possible, table, np.nan)
    table.flags.writeable = False
    return table


def margin_envelope(
    answer: Floats, lowest: int, highest: int, *, order: float, sigma_threshold: float, weight: int = 1
) -> Floats:
    """Return W, with W[m - lowest, g] at least the cost of a checked query with margin m and gap g.

    For checks whose margin is not the top count: an interactive one compares every class with a threshold of
    its own. `answer` is the `gap_envelope` of the same weight.

    Guarantee: as `confident_envelope`; every margin in lowest..highest is taken to go with every gap.
    Assumes:   one ballot moves the margin by at most the weight.
    Reference: see "Publishing a cost close to the exact one", section on the check.
    """
    require_positive(order=order, sigma_threshold=sigma_threshold)
    margin = np.arange(lowest - weight, highest + weight + 1, dtype=np.float64)
    return _checked(answer, margin, order=order, sigma_threshold=sigma_threshold, weight=weight)


def _checked(answer: Floats, margin: Floats, *, order: float, sigma_threshold: float, weight: int) -> Floats:
    """Return W for all margins but `weight` of them at either end, which a ballot can reach."""
    log_pass, log_fail = log_pass_and_fail(margin, sigma_threshold)
    tops = np.arange(weight, margin.size - weight)
    table = np.full((tops.size, answer.size), -np.inf)
    # Convex in the probability of passing on the other side: the furthest moves of the margin are the worst.
    for moved in (-weight, 0, weight):
        for here, there in ((tops, tops + moved), (tops + moved, tops)):
            fail = order * log_fail[here] + (1 - order) * log_fail[there]
            passed = order * log_pass[here] + (1 - order) * log_pass[there]
            both = np.logaddexp(fail[:, None], passed[:, None] + (order - 1) * answer[None, :])
            table = np.maximum(table, both / (order - 1))
    return np.asarray(np.maximum(table, 0.0) + 1e-12)


@dataclass(frozen=True, eq=False, repr=False)
class EnvelopeCost:
    """The envelope's cost of a run and its local sensitivities at every distance; private."""

    total: float
    local: Floats


def gap_cost(
    table: Floats,
    gaps: NDArray[np.int64],
    tops: NDArray[np.int64] | None = None,
    *,
    moves: Moves = ((1, 1.0),),
    step: int = 1,
    present: NDArray[np.float64] | None = None,
) -> EnvelopeCost:
    """Return the sum of U, with `tops` of W, over queries and its local sensitivity at distance 0, 1, 2, ...

    `moves` are the ballots that anybody may change, as (weight, share), and distances are counted in steps of
    `step` votes, until further ones change nothing. `present` says who takes part in which query, (members,
    queries): then it is the worst member's sum.

    Guarantee: local[d] times its share bounds how much the sum changes by any of these ballots, anywhere
               within d steps of here, over gaps, or pairs (top count, gap), that some histogram has.
    Assumes:   one ballot of weight w moves a top count (or margin) by at most w, and a gap by at most 2 w.
    Reference: Nissim, Raskhodnikova, Smith 2007, Definition 3.1.
    """
    if tops is None:
        table, tops = table[None], np.zeros_like(gaps)
    possible = ~np.isnan(table)
    change = np.zeros_like(table)
    for weight, share in moves:
        high, low = (_widened(np.where(possible, sign * table, -np.inf), weight, -np.inf) for sign in (1, -1))
        change = np.maximum(change, np.where(possible, np.maximum(high - table, table + low), 0.0) / share)
    if present is None:  # queries that are alike count together
        cells, times = np.unique(np.ravel_multi_index((tops, gaps), table.shape), return_counts=True)
        tops, gaps = np.unravel_index(cells, table.shape)
        present = times[None].astype(np.float64)
    local = []
    while True:
        local.append(float((present @ change[tops, gaps]).max()))
        wider = _widened(change, step, 0.0)
        if np.array_equal(wider, change):
            break
        change = wider
    total = float((present @ np.where(possible, table, 0.0)[tops, gaps]).max())
    return EnvelopeCost(total, np.maximum.accumulate(local))


def gap_log_moves(table: Floats, gaps: NDArray[np.int64], offsets: Sequence[float]) -> Floats:
    """Return how far one ballot moves log(1 + f / offset), f the sum of U, (offsets, distance 0, 1, 2, ...).

    Guarantee: entry d bounds it at all votes within d ballots of here; entries of neighbours interleave.
    Assumes:   one ballot moves every gap by at most 2; offsets are positive and were fixed before voting.
    Reference: "Publishing a cost close to the exact one", section on the logarithm.
    """
    require_positive(offset=min(offsets))
    high, low = (maximum_filter1d(sign * table, 5, mode="nearest") for sign in (1, -1))
    change = np.stack([high - table, table + low])
    # No quotient of sums is larger than the largest of its terms: there the slopes end.
    spare = min(offsets) / max(gaps.size, 1)
    slopes = slopes_up_to((change / (table + spare)).max(axis=1))
    tally = np.bincount(gaps, minlength=table.size).astype(np.float64)
    over = change[:, None, :] - slopes[..., None] * table
    excess = []
    for _ in range(-(-(table.size - 1) // 2) + 1):
        excess.append(over @ tally)
        # Every ballot moves every gap as it likes: after d of them a gap is anywhere within 2 d.
        over = maximum_filter1d(over, 5, axis=2, mode="nearest")
    found = [largest_quotients(slopes, np.stack(excess, axis=-1), offset) for offset in offsets]
    moves = [np.maximum(*log_moves(*quotients)) for quotients in found]
    return np.maximum.accumulate(np.stack(moves), axis=1)


def _widened(table: Floats, votes: int, outside: float) -> Floats:
    """Return the largest entry within so many votes of the top count and twice as many of the gap."""
    size = (2 * votes + 1 if len(table) > 1 else 1, 4 * votes + 1)
    return np.asarray(maximum_filter(table, size=size, mode="constant", cval=outside))


def _expected_growing(
    law: DiscreteGaussian, values: Floats, y: Floats, gaps: NDArray[np.int64], *, n_rivals: int
) -> Floats:
    """log E exp(running maximum from the left at R), R the largest of n_rivals counts `gap` below the top."""
    if n_rivals == 0:
        return np.repeat(values[:, :1], gaps.size, axis=1)
    growing = np.maximum.accumulate(values, axis=1)
    highest = growing[:, -1:]
    # P[R < y] for whole and half y, relative to the top; beyond the grid everything counts as its end.
    x = y[None, :] + gaps[:, None]
    cdf = np.exp(n_rivals * law.log_cdf(np.floor(x), x - np.floor(x)))
    mass = np.diff(cdf, axis=1, prepend=0.0)
    mass[:, -1] += 1 - cdf[:, -1]
    level = np.exp(growing - highest)
    left = np.concatenate([level[:, :1], level[:, :-1]], axis=1)
    blend = level if law.sigma < 16 else (left + level) / 2
    # Where the exponents span more than floats do, the sum may underflow: take the largest instead.
    whole = highest[:, 0] - growing[:, 0] > _FLOAT_RANGE
    with np.errstate(divide="ignore"):
        result: Floats = np.where(whole[:, None], 0.0, np.log(blend @ mass.T)) + highest
    return result


def _expected_falling(law: DiscreteGaussian, values: Floats, y: Floats, gaps: NDArray[np.int64]) -> Floats:
    """log E exp(running maximum from the right at R + gap), R the noise on the top count."""
    falling = np.maximum.accumulate(values[::-1])[::-1]
    highest = falling[0]
    if highest - falling[-1] > _FLOAT_RANGE:
        return np.full(gaps.size, highest)
    x = y[None, :] - gaps[:, None]
    cdf = np.exp(law.log_cdf(np.floor(x), x - np.floor(x)))
    mass = np.diff(cdf, axis=1, append=1.0)
    mass[:, 0] += cdf[:, 0]
    level = np.exp(falling - highest)
    right = np.append(level[1:], level[-1])
    blend = level if law.sigma < 16 else (level + right) / 2
    return np.asarray(np.log(mass @ blend) + highest)


def _possible(largest: int, n_classes: int, n_votes: int) -> NDArray[np.bool_]:
    """Say which (top, gap) some histogram has: a runner-up that fits, and room for all other votes."""
    top, gap = np.meshgrid(np.arange(largest + 1), np.arange(largest + 1), indexing="ij")
    second, rest = top - gap, n_votes - top
    return np.asarray((second >= 0) & (second <= rest) & (rest <= (n_classes - 1) * second))
