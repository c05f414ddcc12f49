"""The most a noisy check or a noisy arg max can cost, whatever the votes.

Revealing the arg max costs less than revealing the noisy histogram. Let a vote move from a to b
and let R be the largest noisy count among the other classes. R has the same law on both sides, and
telling it as well can only add, so the divergence is at most that of the three outcomes {a, b,
other} at a fixed threshold r, for the worst r and the worst distance of a and b. That is a search
over two numbers, valid for any number of classes. For a check there are two outcomes, and the search
is over whole margins only.

All of it is evaluated for the discrete noise that is drawn, ties included; by symmetry it suffices
that b is not ahead of a, in both directions of the divergence.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy._clock import ClockFamily
from ..privacy._price import Item, Price
from ..privacy.rdp import RdpCurve, check_orders
from ..privacy.votes import Unit
from ._clock import ArgmaxClock, CheckClock, KeptTables, SumClock, squared_moves
from ._laws import DiscreteGaussian, Floats

# The search steps by sigma/16 through a function of scale sigma and fits a parabola at the top, which
# misses less than 1e-4 of the maximum. Prices are raised by more than that.
_MARGIN = 1 + 3e-4
# How many distances lie between two that are looked at, and by how much the order grows until they are again.
_SCANNED, _SCANNED_AGAIN = 16, 1.5
# From this sigma on a divergence is smooth enough in the threshold to be looked for in two steps.
_SMOOTH = 16.0
# Above this order / sigma an arg max costs over 98 % of the histogram, which is charged instead.
_NEARLY_HISTOGRAM = 12.0
# Beyond this sigma the factor price * sigma^2 / order is a function of order / sigma to about 1e-4, which
# the margin covers.
_LARGE = 200.0
# With a weight above 1 and at least this much noise the factor is read off one table of order * weight /
# sigma; a margin on top covers the discreteness of the noise and the interpolation.
_FINE = 20.0
_TABLE_MARGIN = 1 + 1.5e-3


def answer_price(sigma: float, unit: Unit, orders: ArrayLike | None = None) -> Price:
    """Return the most a noisy arg max costs.

    Its supremum for one ballot, the histogram's price for others.
    """
    if unit.is_one_ballot:
        return argmax_item(float(sigma), int(unit.linf), tuple(check_orders(orders))).price()
    return gaussian_price(float(sigma), unit, orders)


def check_price(sigma: float, unit: Unit, orders: ArrayLike | None = None) -> Price:
    """Return the most a noisy check costs: the two-outcome supremum, or the Gaussian price for odd units.

    A unit moves the checked margin by at most its l-infinity norm, whether by one ballot or by several.
    """
    if unit.linf < 1 or not float(unit.linf).is_integer():
        curve = RdpCurve.zcdp(unit.linf**2 / (2 * sigma**2), orders).as_price()
        # Margins are whole, so they move by whole votes.
        return Item((curve,), CheckClock(float(sigma), max(1, int(unit.linf)))).price()
    return check_item(float(sigma), int(unit.linf), tuple(check_orders(orders))).price()


def gaussian_price(sigma: float, unit: Unit, orders: ArrayLike | None = None) -> Price:
    """Return what all counts with Gaussian noise cost: the squared distance that a unit moves them by."""
    curve = RdpCurve.zcdp(unit.l2**2 / (2 * sigma**2), orders).as_price()
    return Item((curve,), squared_moves(float(sigma), unit.l2, unit.linf)).price()


def range_price(sigma: float, n_moved: int) -> RdpCurve:
    """Return the most that it costs to tell which of some counts are in a range, below noise on each.

    Guarantee: bounds the divergence of all these noisy counts, of which one ballot moves `n_moved` by a vote.
    Reference: Gaussian noise, as `gaussian_price`.

    >>> round(float(range_price(256.0, 2).values[0] / range_price(256.0, 1).values[0]), 6)
    2.0
    """
    return gaussian_price(sigma, Unit(float(n_moved), math.sqrt(n_moved), 1.0))


def with_ranges(price: Price, sigma: float, n_moved: int) -> RdpCurve:
    """Return a price and that of the ranges of its counts: on a clock, where it can be, as one item.

    A clock takes items of several kinds at the dearest level of all of them, which costs more.

    >>> [n for n, _, _ in with_ranges(answer_price(8.0, Unit()), 256.0, 2).terms]
    [1]
    """
    total = price + range_price(sigma, n_moved)
    counts = {n for n, _, _ in price.terms}
    each = counts.pop() if len(counts) == 1 else n_moved + 1
    ranges = None if n_moved % each else squared_moves(sigma, math.sqrt(n_moved // each), 1.0)
    parts, times = list[ClockFamily](), list[int]()
    for _, item, _ in price.terms:
        whole = item.clock if isinstance(item.clock, SumClock) else None
        if ranges is None or not isinstance(item.clock, KeptTables):
            return total
        parts += [item.clock] if whole is None else whole.parts
        times += [1] if whole is None else [max(seen) for seen in zip(*whole.kinds, strict=True)]
    assert ranges is not None
    clock = SumClock((*parts, ranges), ((*times, 1),))
    return Item((RdpCurve(total.orders, total.values / each),), clock).price() * each


@lru_cache(maxsize=1024)
def argmax_item(sigma: float, weight: int, orders: tuple[float, ...]) -> Item:
    """Return a noisy arg max as one thing that is paid for."""
    return Item((_argmax_supremum(sigma, orders, weight),), ArgmaxClock(sigma, weight))


@lru_cache(maxsize=1024)
def check_item(sigma: float, weight: int, orders: tuple[float, ...]) -> Item:
    """Return a noisy check, or a label's yes or no, as one thing that is paid for."""
    return Item((_check_supremum(sigma, orders, weight),), CheckClock(sigma, weight))


def check_supremum(sigma: float, orders: ArrayLike | None = None, *, weight: int = 1) -> RdpCurve:
    """Return the most a noisy check can cost when one unit moves its margin by at most `weight`.

    Guarantee: an upper bound for every margin, both directions, on the noise that is drawn; for weight 1
               about 0.637 order / (2 sigma^2) for orders well below sigma, never above order / (2 sigma^2).
               A weight acts as if sigma were divided by it.
    Assumes:   whole margins, discrete Gaussian noise.
    Reference: see "The price of an arg max"; Papernot et al. 2018 charge order / (2 sigma^2).

    >>> curve = check_supremum(150.0, orders=[2.0])
    >>> round(float(curve.values[0]) * 2 * 150**2 / 2, 3)
    0.637
    """
    return _check_supremum(float(sigma), tuple(check_orders(orders)), int(weight))


def argmax_supremum(sigma: float, orders: ArrayLike | None = None, *, weight: int = 1) -> RdpCurve:
    """Return the most a noisy arg max can cost when one ballot of `weight` votes moves.

    Guarantee: an upper bound for every histogram and any number of classes, both directions, on the
               noise that is drawn; for weight 1 about 0.640 order / sigma^2 for orders well below sigma,
               never above order / sigma^2. A weight acts as if sigma were divided by it.
    Assumes:   one ballot leaves a class and enters another, or leaves or enters one alone: a teacher that
               abstains; discrete Gaussian noise, random ties.
    Reference: see "The price of an arg max"; Papernot et al. 2018, Proposition 8, charge order / sigma^2.

    >>> curve = argmax_supremum(40.0, orders=[2.0])
    >>> round(float(curve.values[0]) * 40**2 / 2, 2)
    0.64
    """
    return _argmax_supremum(float(sigma), tuple(check_orders(orders)), int(weight))


# Planners ask for hundreds of noise levels again and again, and a curve is small.
@lru_cache(maxsize=1024)
def _check_supremum(sigma: float, orders: tuple[float, ...], weight: int = 1) -> RdpCurve:
    grid = np.array(orders)
    if weight > 1 and sigma >= _FINE:
        return _tabulated(_check_supremum, sigma / weight, grid, weight**2 / (2 * sigma**2))
    if sigma > _LARGE:
        return _rescaled(_check_supremum, sigma, grid, 1 / (2 * sigma**2))
    law = DiscreteGaussian(sigma)
    # At order a the worst margin lies within about a (times the weight) of the threshold, plus the noise.
    reach = math.ceil(weight * grid[-1] + 9 * sigma) + weight
    margin = np.arange(-reach, reach + 1, dtype=np.float64)
    log_pass, log_fail = law.log_cdf(margin), law.log_cdf(-margin - 1)
    here = np.stack([log_pass, log_fail])
    values = np.zeros(grid.size)
    for i, order in enumerate(grid):
        both = both_directions(here[:, :-weight], here[:, weight:], order)
        values[i] = both.max()
    # Every whole margin within reach was looked at: no search error, only rounding.
    return RdpCurve(grid, np.minimum(values * (1 + 1e-9), weight**2 * grid / (2 * sigma**2))).as_price()


@lru_cache(maxsize=1024)
def _argmax_supremum(sigma: float, orders: tuple[float, ...], weight: int = 1) -> RdpCurve:
    grid = np.array(orders)
    if weight > 1 and sigma >= _FINE:
        return _tabulated(_argmax_supremum, sigma / weight, grid, weight**2 / sigma**2)
    if sigma > _LARGE:
        return _rescaled(_argmax_supremum, sigma, grid, 1 / sigma**2)
    histogram = weight**2 * grid / sigma**2
    searched = np.flatnonzero(grid * weight <= _NEARLY_HISTOGRAM * sigma)
    if searched.size == 0:
        return RdpCurve(grid, histogram).as_price()
    largest = grid[searched[-1]]
    step = max(1, math.floor(sigma / 16))
    # The rarer winner is at best 2 (order - 1) times the weight behind, plus the noise. A lead below the
    # weight is the other direction of one above it.
    behind = np.arange(weight, math.ceil(2 * largest * weight + 9 * sigma) + step, step)
    far = math.ceil(largest * weight)
    race = ThreeWays(DiscreteGaussian(sigma), deepest=int(behind[-1]), reach=far, weight=weight)
    table = lru_cache(maxsize=None)(lambda which: race(int(behind[which])))
    coarse = 4 * step

    def worst(which: int, order: float) -> float:
        """Return the dearest threshold: some of them, and all around the best of these."""
        here, there = table(which)
        if sigma < _SMOOTH:
            return float(both_directions(here, there, order).max())
        some = both_directions(here[:, ::coarse], there[:, ::coarse], order)
        found = float(some.max())
        for best in some.argmax(axis=1) * coarse:
            near = slice(max(0, best - coarse), best + coarse + 1)
            found = max(found, float(both_directions(here[:, near], there[:, near], order).max()))
        return found

    # The worst distance moves with the order: look at some of all, and from the last or the best walk uphill.
    values, at, scanned = np.empty(searched.size), 0, 0.0
    for i, order in enumerate(grid[searched]):
        value_at = lru_cache(maxsize=None)(lambda which, order=order: worst(which, order))
        if order > _SCANNED_AGAIN * scanned:
            scanned = order
            within = int(np.searchsorted(behind, 2 * order * weight + 9 * sigma)) + 1
            at = max([at, *range(0, within, _SCANNED)], key=value_at)
        stride = 1
        while stride:
            beside = [which for which in (at + stride, at - stride) if 0 <= which < behind.size]
            best = max([at, *beside], key=value_at)
            at, stride = best, stride // 2 if best == at else 2 * stride
        values[i] = value_at(at)
        if step > 1 and 0 < at < behind.size - 1:
            values[i] = _peak(value_at(at - 1), value_at(at), value_at(at + 1))
    price = histogram.copy()
    price[searched] = np.minimum(values * _MARGIN, histogram[searched])
    return RdpCurve(grid, price).as_price()


def _peak(left: float, middle: float, right: float) -> float:
    """Return the top of the parabola through three evenly spaced values, the middle being largest."""
    bend = left - 2 * middle + right
    return middle if bend >= 0 else middle - (left - right) ** 2 / (8 * bend)


class ThreeWays:
    """The outcomes {a, b, other} of a race of two classes against a threshold, at every threshold.

    a leads b by `behind` votes, and `weight` votes move; thresholds are the start and the middle of every
    whole cell, from `behind` + 9 sigma below a's count to `reach` + 9 sigma above it.
    """

    def __init__(self, law: DiscreteGaussian, *, deepest: int, reach: int, weight: int = 1) -> None:
        self.spread = math.ceil(9 * law.sigma) + 1 + weight
        self.reach = reach
        self.weight = weight
        self._origin = 2 * (deepest + self.spread) + reach + 4 * weight
        x = np.arange(-self._origin, self._origin + 1, dtype=np.float64)
        self._density = law.log_density(x)
        self._below, self._middle, self._late = law.log_cdf(x - 1), law.log_cdf(x, 0.5), law.log_cdf(x, 0.75)

    def thresholds(self, behind: int) -> Floats:
        """Return the thresholds relative to a's count, in the order of the columns."""
        return np.arange(-behind - self.spread, self.spread + self.reach + 1, 0.5)

    def column(self, behind: int, thresholds: Floats) -> NDArray[np.int64]:
        """Return the columns of whole and half thresholds, the first or the last one for those beyond."""
        last = 2 * (behind + 2 * self.spread + self.reach) + 1
        places = np.rint(2 * (thresholds + behind + self.spread))
        return np.asarray(np.clip(places, 0, last), dtype=np.int64)

    def __call__(self, behind: int, columns: NDArray[np.int64] | None = None) -> tuple[Floats, Floats]:
        """Return log-probabilities (3, thresholds), before and after a ballot moves from a to b.

        With `columns` these thresholds only.
        """
        first, last = -behind - self.spread, self.spread + self.reach
        moved = (-self.weight, self.weight - behind)
        return self._cells(first, last, (0, -behind), columns), self._cells(first, last, moved, columns)

    def _cells(self, first: int, last: int, at: tuple[int, int], columns: NDArray[np.int64] | None) -> Floats:
        a, b = (slice(self._origin + first - place, self._origin + last - place + 1) for place in at)
        rows = []
        for own, rival in ((a, b), (b, a)):
            # Winning inside cell x: p(x) times the integral of F(x-1) + u p(x) over u, its middle value.
            after = np.logaddexp.accumulate((self._density[own] + self._middle[rival])[::-1])[::-1]
            later = np.append(after[1:], -np.inf)
            # From the middle of the cell on, F(x-1) + u p(x) averages to its value at u = 3/4.
            half = math.log(0.5) + self._density[own] + self._late[rival]
            rows.append(_chosen(after, (later, half), columns))
        starts, middles = self._below[a] + self._below[b], self._middle[a] + self._middle[b]
        rows.append(_chosen(starts, (middles,), columns))
        result = np.stack(rows)
        # The race was cut off above; what is missing there is below 1e-18, and divided out.
        return np.asarray(result - np.log(np.exp(result).sum(axis=0)))


def _chosen(starts: Floats, middles: tuple[Floats, ...], columns: NDArray[np.int64] | None) -> Floats:
    """Return starts and middles of cells in turn, or these columns of them; logs of two parts are added."""
    if columns is None:
        added = np.logaddexp.reduce(middles) if len(middles) > 1 else middles[0]
        return np.asarray(np.stack([starts, added], axis=1).ravel())
    cells, found = columns >> 1, starts[columns >> 1]
    odd = (columns & 1).astype(np.bool_)
    at = [each[cells[odd]] for each in middles]
    found[odd] = np.logaddexp(*at) if len(at) > 1 else at[0]
    return np.asarray(found)


def both_directions(here: Floats, there: Floats, order: float) -> Floats:
    """Return the divergence in both directions, (2, columns), of columns of log-probabilities."""
    ratio = (order - 1) * (here - there)
    exponent = np.stack([here + ratio, there - ratio])
    top = exponent.max(axis=1)
    return np.asarray((np.log(np.exp(exponent - top[:, None]).sum(axis=1)) + top) / (order - 1))


def _rescaled(
    supremum: Callable[[float, tuple[float, ...]], RdpCurve], sigma: float, grid: Floats, histogram: float
) -> RdpCurve:
    """Large noise: the share of the histogram's price depends on order / sigma only, and grows with it."""
    scaled = np.maximum(grid * _LARGE / sigma, 1.25)
    distinct: NDArray[np.float64] = np.unique(scaled)
    curve = supremum(_LARGE, tuple(distinct))
    per_order = curve.values / distinct
    share = np.maximum.accumulate(per_order / per_order[-1]) * per_order[-1]
    at_sigma = share[np.searchsorted(distinct, scaled)] * (_LARGE / sigma) ** 2
    return RdpCurve(grid, np.minimum(at_sigma * _MARGIN, histogram) * grid).as_price()


def _tabulated(
    supremum: Callable[[float, tuple[float, ...]], RdpCurve], sigma: float, grid: Floats, histogram: float
) -> RdpCurve:
    """Fine noise and a weight: the same share, read off a table; `sigma` is the noise per weight."""
    # At any sigma the table's own histogram price is to this one as the noise is.
    ratios, shares = _shares(supremum, round(2 * histogram * sigma**2) / (2 * _LARGE**2))
    share = np.interp(np.log(grid / sigma), np.log(ratios), shares, right=1.0) * _TABLE_MARGIN
    return RdpCurve(grid, np.minimum(share, 1.0) * histogram * grid).as_price()


@lru_cache(maxsize=2)
def _shares(
    supremum: Callable[[float, tuple[float, ...]], RdpCurve], histogram: float
) -> tuple[Floats, Floats]:
    """Return (order / sigma, price as a share of the histogram's), the share growing from one to the next."""
    steps = np.geomspace(0.23, 1.1 * _NEARLY_HISTOGRAM, 60)
    ratios = np.concatenate([np.geomspace(1.25 / _LARGE, 0.2, 12), steps])
    curve = supremum(_LARGE, tuple(_LARGE * ratios))
    return ratios, np.maximum.accumulate(curve.values / curve.orders / histogram)
