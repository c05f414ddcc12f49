"""Public tables that bound the exact cost of a query by its gap, so that a cost can be published.

The exact cost of a query looks at its whole histogram. An envelope U looks at one number only, the
gap between the two largest counts, and is computed before voting from public numbers: U(g) is at
least the two-sided cost of every histogram with gap g. The sum of U over the queries then bounds the
exact cost of the run, and how fast it can change is known, because U is a public function and one
changed ballot moves every gap by at most 2.

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
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, maximum_filter1d

from .errors import require_count, require_positive
from .mechanisms.check import log_pass_and_fail, whole_thresholds
from .mechanisms.laws import DiscreteGaussian
from .mechanisms.suprema import ThreeWays, argmax_supremum, both_directions

Floats = NDArray[np.float64]

# Expectations over R are trapezoid sums at sigma/32 or finer, distances are stepped by sigma/16: both
# errors are of second order and below 1e-3 of the result. The tables are raised by twice that.
_MARGIN = 1 + 2e-3
_FLOAT_RANGE = 600.0


@lru_cache(maxsize=64)
def gap_envelope(n_teachers: int, n_classes: int, *, sigma: float, order: float) -> Floats:
    """Return U, with U[g] at least the GNMax cost of every histogram whose top two counts differ by g.

    Guarantee: for every histogram of n_teachers votes over n_classes classes and every single move,
               both directions of the divergence at this order are at most U[gap]; U does not increase.
    Assumes:   discrete Gaussian noise, ties at random; the stated margin covers the quadrature.
    Reference: see "Publishing a cost close to the exact one".

    >>> table = gap_envelope(250, 10, sigma=40.0, order=12.0)
    >>> table.shape, bool(np.all(np.diff(table) <= 0))
    ((251,), True)
    """
    require_count(n_teachers=n_teachers)
    require_count(2, n_classes=n_classes)
    require_positive(sigma=sigma, order=order)
    cap = float(argmax_supremum(sigma, [order]).values[0])
    if order > 12 * sigma:
        # The noise hides next to nothing at such an order, and tails below 1e-16 would decide: no table.
        flat = np.full(n_teachers + 1, cap)
        flat.flags.writeable = False
        return flat
    law = DiscreteGaussian(sigma)
    stride = max(1, math.floor(sigma / 16))
    reach = math.ceil(order)
    # One class leads the other by these many votes; two more because a vote may move towards the leader.
    leads = np.arange(0, n_teachers + 3 + stride, stride)
    race = ThreeWays(law, deepest=int(leads[-1]), reach=reach)
    low = -int(leads[-1]) - race.spread
    y = np.arange(low, race.spread + reach + 1, stride / 2)
    away, towards = (np.empty((leads.size, y.size)) for _ in range(2))
    for i, lead in enumerate(leads):
        values = (order - 1) * np.maximum(both_directions(*race(int(lead)), order).max(axis=0), 0.0)
        # Thresholds below those of the race change nothing any more: repeat the first value.
        away[i] = np.interp(y, race.thresholds(int(lead)), values)
        # The move towards the leader is the way back from a lead of two more, seen from one vote higher.
        towards[i] = np.interp(y - 1, race.thresholds(int(lead)), values)
    # A lead of d before a move towards the leader is a lead of d + 2 after it.
    shift = -(-2 // stride)
    moves = np.concatenate([away[: leads.size - shift], towards[shift:]])
    lead_of = np.concatenate([leads[: leads.size - shift], np.maximum(leads[shift:] - 2, 0)])

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


@lru_cache(maxsize=64)
def confident_envelope(
    n_teachers: int, n_classes: int, *, sigma: float, order: float, threshold: float, sigma_threshold: float
) -> Floats:
    """Return W, with W[t, g] at least the Confident-GNMax cost of a query with top count t and gap g.

    Guarantee: bounds both directions over the joint outcome space of silence and answers; entries
               that no histogram can have are NaN.
    Assumes:   as `gap_envelope`; the check moves by at most 1 with one ballot.
    Reference: see "Publishing a cost close to the exact one", section on the check.

    >>> table = confident_envelope(50, 3, sigma=10.0, order=8.0, threshold=40, sigma_threshold=20.0)
    >>> table.shape, bool(np.isnan(table[10, 20]))
    ((51, 51), True)
    """
    answer = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)
    margin = np.arange(-1, n_teachers + 2, dtype=np.float64) - whole_thresholds(threshold)[0, 0]
    log_pass, log_fail = log_pass_and_fail(margin, sigma_threshold)
    table = np.full((n_teachers + 1, n_teachers + 1), -np.inf)
    tops = np.arange(n_teachers + 1)
    for moved in (-1, 0, 1):
        for here, there in ((tops + 1, tops + 1 + moved), (tops + 1 + moved, tops + 1)):
            fail = order * log_fail[here] + (1 - order) * log_fail[there]
            passed = order * log_pass[here] + (1 - order) * log_pass[there]
            both = np.logaddexp(fail[:, None], passed[:, None] + (order - 1) * answer[None, :])
            table = np.maximum(table, both / (order - 1))
    table = np.where(_possible(n_teachers, n_classes), np.maximum(table, 0.0) + 1e-12, np.nan)
    table.flags.writeable = False
    return table


@dataclass(frozen=True, eq=False, repr=False)
class EnvelopeCost:
    """The envelope's cost of a run and its local sensitivities at every distance; private."""

    total: float
    local: Floats


def gap_cost(table: Floats, gaps: NDArray[np.int64]) -> EnvelopeCost:
    """Return the sum of U over the queries and its local sensitivity at distance 0, 1, 2, ...

    Guarantee: local[d] bounds how much the sum changes by one ballot anywhere within d ballots of here.
    Assumes:   one ballot moves every gap by at most 2.
    Reference: Nissim, Raskhodnikova, Smith 2007, Definition 3.1.

    >>> cost = gap_cost(gap_envelope(50, 3, sigma=10.0, order=8.0), np.array([40, 3]))
    >>> bool(np.all(np.diff(cost.local) >= 0))
    True
    """
    change = np.zeros_like(table)
    for step in (1, 2):
        difference = np.abs(table[step:] - table[:-step])
        change[step:] = np.maximum(change[step:], difference)
        change[:-step] = np.maximum(change[:-step], difference)
    tally = np.bincount(gaps, minlength=table.size).astype(np.float64)
    distances = range(table.size // 2 + 1)
    local = [float(maximum_filter1d(change, 4 * d + 1, mode="nearest") @ tally) for d in distances]
    return EnvelopeCost(float(table @ tally), np.maximum.accumulate(local))


def top_and_gap_cost(table: Floats, tops: NDArray[np.int64], gaps: NDArray[np.int64]) -> EnvelopeCost:
    """Return the sum of W over the queries and its local sensitivity at distance 0, 1, 2, ...

    Guarantee: as `gap_cost`, over pairs (top count, gap) that some histogram has.
    Assumes:   one ballot moves the top count by at most 1 and the gap by at most 2.
    Reference: Nissim, Raskhodnikova, Smith 2007, Definition 3.1.

    >>> table = confident_envelope(50, 3, sigma=10.0, order=8.0, threshold=40, sigma_threshold=20.0)
    >>> cost = top_and_gap_cost(table, np.array([45, 26]), np.array([41, 4]))
    >>> bool(np.all(np.diff(cost.local) >= 0))
    True
    """
    possible = ~np.isnan(table)
    high = maximum_filter(np.where(possible, table, -np.inf), size=(3, 5), mode="constant", cval=-np.inf)
    low = -maximum_filter(np.where(possible, -table, -np.inf), size=(3, 5), mode="constant", cval=-np.inf)
    change = np.where(possible, np.maximum(high - table, table - low), 0.0)
    tally = np.zeros_like(table)
    np.add.at(tally, (tops, gaps), 1.0)
    local = []
    while True:
        local.append(float((change * tally).sum()))
        wider = maximum_filter(change, size=(3, 5), mode="constant", cval=0.0)
        if np.array_equal(wider, change):
            break
        change = wider
    total = float(np.where(tally > 0, np.where(possible, table, 0.0) * tally, 0.0).sum())
    return EnvelopeCost(total, np.maximum.accumulate(local))


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
    result: Floats = np.log(mass @ blend) + highest
    return result


def _possible(n_teachers: int, n_classes: int) -> NDArray[np.bool_]:
    """Say which (top, gap) some histogram has: a runner-up that fits, and room for all other votes."""
    top, gap = np.meshgrid(np.arange(n_teachers + 1), np.arange(n_teachers + 1), indexing="ij")
    second, rest = top - gap, n_teachers - top
    return np.asarray((second >= 0) & (second <= rest) & (rest <= (n_classes - 1) * second))
