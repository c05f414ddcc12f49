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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..errors import require_count, require_positive
from ..privacy._scipy import maximum_filter1d
from ..privacy.rdp import DEFAULT_ORDERS
from ._check import log_pass_and_fail, whole_thresholds
from ._laws import DiscreteGaussian, Floats
from ._log_sum_sensitivity import largest_quotients, log_moves, slopes_up_to
from .suprema import ThreeWays, argmax_supremum, both_directions

Moves = tuple[tuple[int, float], ...]

# Expectations over R are trapezoid sums at sigma/32 or finer, distances are stepped by sigma/16: both
# errors are of second order and below 1e-3 of the result. The tables are raised by twice that.
_MARGIN = 1 + 2e-3
_FLOAT_RANGE = 600.0
# Cells of a table that are worked on at once: they stay in the cache.
_CELLS = 1 << 16


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
    return next(_envelopes(n_teachers, n_classes, sigma=sigma, orders=(order,), weight=weight))


# Tables of some orders are worked out together, few enough for a few hundred megabytes.
_ENTRIES = 1 << 24


@lru_cache(maxsize=64)
def gap_envelopes(n_teachers: int, n_classes: int, *, sigma: float, orders: tuple[float, ...]) -> Floats:
    """Return `gap_envelope` at several orders, (orders, gaps), also for a ballot that is kept back.

    Guarantee: as `gap_envelope`, and for a ballot that enters a class or leaves one alone.
    Assumes:   as `gap_envelope`; ballots of weight 1, ascending orders.
    Reference: see "The joint price of a check and its answer".

    >>> tables = gap_envelopes(50, 10, sigma=10.0, orders=(4.0, 8.0))
    >>> tables.shape, bool((tables[1] >= gap_envelope(50, 10, sigma=10.0, order=8.0) - 1e-9).all())
    ((2, 51), True)
    """
    require_count(n_teachers=n_teachers)
    require_count(2, n_classes=n_classes)
    found = _envelopes(n_teachers, n_classes, sigma=sigma, orders=orders, kept_back=True)
    tables = np.stack(list(found))
    tables.flags.writeable = False
    return tables


def _envelopes(
    n_teachers: int,
    n_classes: int,
    *,
    sigma: float,
    orders: tuple[float, ...],
    weight: int = 1,
    kept_back: bool = False,
) -> Iterator[Floats]:
    """Yield the envelope of every order; races of two classes are run once for many of them.

    `kept_back` covers a ballot of weight 1 that enters or leaves a class alone as well.
    """
    usual = set(orders) <= set(DEFAULT_ORDERS.tolist()) and len(orders) > 1
    price = argmax_supremum(sigma, None if usual else orders, weight=weight)  # the usual ones are kept
    caps = dict(zip(price.orders.tolist(), price.values.tolist(), strict=True))
    tables: dict[float, Floats] = {}
    for order in orders:
        if order * weight > 12 * sigma:
            # The noise hides next to nothing at such an order, and tails below 1e-16 would decide: no table.
            tables[order] = np.full(n_teachers + 1, caps[order])
    searched = [order for order in orders if order not in tables]
    while searched:
        n_fit = max(1, _ENTRIES // _n_entries(n_teachers, sigma, searched[-1], weight))
        some, searched = searched[:n_fit], searched[n_fit:]
        found = _searched(n_teachers, n_classes, sigma, some, weight=weight, kept_back=kept_back)
        for order, table in zip(some, found, strict=True):
            table = np.minimum(table, caps[order])
            table = np.maximum.accumulate(table[::-1])[::-1]
            tables[order] = np.pad(table, (0, n_teachers + 1 - table.size), mode="edge")
    for order in orders:
        tables[order].flags.writeable = False
        yield tables[order]


def _n_entries(n_teachers: int, sigma: float, order: float, weight: int) -> int:
    """Return about how many leads and thresholds one order takes, both ways."""
    stride = max(1, math.floor(sigma / 16))
    deepest = min(n_teachers, _far_lead(sigma, order, weight) + 4 * weight)
    return 2 * math.ceil((deepest + 1) / stride * (deepest + 20 * sigma + order * weight) * 2 / stride)


def _searched(
    n_teachers: int,
    n_classes: int,
    sigma: float,
    orders: Sequence[float],
    *,
    weight: int,
    kept_back: bool,
) -> Iterator[Floats]:
    """Yield the envelope of orders that are not too large for the noise, not yet capped by the price.

    Up to the gap from which on it stays the same, and before it is made to fall.
    """
    order = max(orders)
    law = DiscreteGaussian(sigma)
    stride = max(1, math.floor(sigma / 16))
    reach = math.ceil(order * weight)
    # One class leads the other by these many votes; two (weights) more because a ballot may move towards the
    # leader.
    leads = np.arange(0, n_teachers + 2 * weight + 1 + stride, stride)
    # The last two leads of those that are kept, one for either way to move, stand for all that are larger.
    far = -(-(_far_lead(sigma, order, weight) + 2 * weight) // stride) + 2
    is_cut = leads.size > far
    leads = leads[:far]
    race = ThreeWays(law, deepest=int(leads[-1]), reach=reach, weight=weight)
    y = np.arange(-int(leads[-1]) - race.spread, race.spread + reach + 1, stride / 2)
    away, towards = (np.empty((len(orders), leads.size, y.size)) for _ in range(2))
    for i, lead in enumerate(leads.tolist()):
        # The move towards the leader is the way back from a lead of two more, seen from one vote higher.
        # Thresholds below those of the race change nothing any more: repeat the first value.
        places, column = np.unique(race.column(lead, np.concatenate([y, y - weight])), return_inverse=True)
        sides = race(lead, places)
        for at, each in enumerate(orders):
            values = (each - 1) * np.maximum(both_directions(*sides, each).max(axis=0), 0.0)
            away[at, i], towards[at, i] = values[column].reshape(2, -1)
    # A lead of d before a move towards the leader is a lead of d + 2 (weights) after it.
    shift = -(-2 * weight // stride)
    lead_of = np.concatenate([leads[: leads.size - shift], np.maximum(leads[shift:] - 2 * weight, 0)])
    if is_cut:
        lead_of[[leads.size - shift - 1, -1]] = n_teachers
    # With all rivals further below than this no threshold is met: larger gaps cost the same.
    furthest = min(n_teachers, math.ceil(race.spread + sigma - y[0]))
    gaps = np.arange(furthest + 1)
    for at, each in enumerate(orders):
        moves = np.concatenate([away[at, : leads.size - shift], towards[at, shift:]])
        involved = _expected_growing(law, moves, y, gaps, n_rivals=n_classes - 2)
        # Only leads of at least the gap can occur when the top class takes part; a step of slack for the
        # grid.
        involved[lead_of[:, None] < gaps[None, :] - (stride - 1)] = -np.inf
        table = involved.max(axis=0)
        others = moves.max(axis=0)
        if kept_back:
            alone = _alone(law, y, each)
            # One class takes part, and all the others are rivals.
            entered = _expected_growing(law, alone, y, gaps, n_rivals=n_classes - 1).max(axis=0)
            table, others = np.maximum(table, entered), np.maximum(others, alone.max(axis=0))
        if n_classes > 2 or kept_back:
            table = np.maximum(table, _expected_falling(law, others, y, gaps))
        yield np.maximum(table, 0.0) / (each - 1) * _MARGIN + 1e-12


def _alone(law: DiscreteGaussian, y: Floats, order: float) -> Floats:
    """Return H for a ballot that leaves a class alone, and for one that enters it: that class against y."""
    rows = []
    for start in (0.0, 1.0):
        # The noisy count is y or more before and after the class has lost a vote of `start`.
        here, there = (
            np.stack([law.log_cdf(np.floor(at), at - np.floor(at)),
                      law.log_cdf(-np.floor(at), 1 - (at - np.floor(at)))])
            for at in (y - start, y - start + 1)
        )  # fmt: skip
        rows.append((order - 1) * np.maximum(both_directions(here, there, order).max(axis=0), 0.0))
    return np.stack(rows)


# Two tables are kept: with 5,000 teachers one takes 200 megabytes.
@lru_cache(maxsize=2)
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
    fewest = n_teachers if n_fewest is None else n_fewest
    among = _possible_gaps(n_teachers, n_classes, n_fewest=fewest)
    table = _checked(answer, margin, order=order, sigma_threshold=sigma_threshold, weight=weight, among=among)
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


def _checked(
    answer: Floats,
    margin: Floats,
    *,
    order: float,
    sigma_threshold: float,
    weight: int,
    among: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Floats:
    """Return W for all margins but `weight` of them at either end, which a ballot can reach.

    With `among` only for gaps between these two of every margin, and NaN elsewhere.
    """
    log_pass, log_fail = log_pass_and_fail(margin, sigma_threshold)
    tops = np.arange(weight, margin.size - weight)
    # Convex in the probability of passing on the other side: the furthest moves of the margin are the worst.
    moved = np.array([-weight, 0, weight])[:, None]
    here = np.concatenate([tops + 0 * moved, tops + moved])
    there = np.concatenate([tops + moved, tops + 0 * moved])
    fail, passed = (order * log[here] + (1 - order) * log[there] for log in (log_fail, log_pass))
    answered = (order - 1) * answer
    # exp of what is looked for is linear in exp of what the answer costs: a way that is the dearest at both
    # ends of the answers is so between them.
    ends = np.logaddexp(fail[..., None], passed[..., None] + np.array([answered.min(), answered.max()]))
    worst = (ends == ends.max(axis=0)).all(axis=2)
    starts, stops = (np.zeros_like(tops), np.full_like(tops, answer.size)) if among is None else among
    table = np.full((tops.size, answer.size), np.nan)
    for top, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        if start >= stop:
            continue
        which = worst[:, top].argmax()[None] if worst[:, top].any() else slice(None)
        both = np.logaddexp(fail[which, top, None], passed[which, top, None] + answered[None, start:stop])
        table[top, start:stop] = np.maximum(both.max(axis=0) / (order - 1), 0.0) + 1e-12
    return table


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
    if present is None:  # queries that are alike count together
        cells, times = np.unique(np.ravel_multi_index((tops, gaps), table.shape), return_counts=True)
        tops, gaps = np.unravel_index(cells, table.shape)
        present = times[None].astype(np.float64)
    total = float((present @ np.nan_to_num(table[tops, gaps], nan=0.0)).max())
    near = _within(_changes(table, moves), tops, gaps, step=step)
    local = [float((present @ change).max()) for change in near]
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
    places, times = np.unique(gaps, return_counts=True)
    over = change[:, None, :] - slopes[..., None] * table
    # Every ballot moves every gap as it likes: after d of them a gap is anywhere within 2 d.
    by_gap = np.ascontiguousarray(over.reshape(-1, table.size).T)[None]
    near = _within(by_gap, np.zeros_like(places), places)
    excess = np.stack([times.astype(np.float64) @ each for each in near], axis=-1).reshape(*slopes.shape, -1)
    found = [largest_quotients(slopes, excess, offset) for offset in offsets]
    moves = np.stack([np.maximum(*log_moves(*quotients)) for quotients in found])
    # From there on nothing changes any more.
    missing = -(-(table.size - 1) // 2) + 1 - moves.shape[1]
    return np.maximum.accumulate(np.pad(moves, ((0, 0), (0, missing)), mode="edge"), axis=1)


def _changes(table: Floats, moves: Moves) -> Floats:
    """Return the most that any of these ballots changes every entry by, per share; 0 where there is none."""
    change = np.zeros_like(table)
    for weight, share in moves:
        for rows in _blocks(table):
            here = table[rows]
            high, low = (_widened(table, rows, votes=weight, best=best) for best in (np.fmax, np.fmin))
            change[rows] = np.fmax(change[rows], np.maximum(high - here, here - low) / share)
    return change


def _within(
    table: Floats, tops: NDArray[np.int64], gaps: NDArray[np.int64], *, step: int = 1
) -> Iterator[Floats]:
    """Yield the largest entries within 0, 1, 2, ... steps of these cells, until further ones repeat.

    `table` may have more axes than tops and gaps: every entry of those is a table of its own. A step is
    `step` votes of the top count and twice as many of the gap.

    Windows of r votes around every cell are tabulated for r = step, 2 step, 4 step, ... A window of d votes,
    r <= d <= 2 r, is the union of the four of r votes at its corners, which is looked up for the given cells
    only. Where a corner lies outside, the nearest cell stands in: its window is not wider on the far side,
    since r <= d, and still meets the opposite one.
    """
    peak = table.max(axis=(0, 1))
    last_top, last_gap = table.shape[0] - 1, table.shape[1] - 1
    found = table[tops, gaps]
    yield found
    radius, distance, spare = 0, 0, np.empty_like(table)
    while not (found == peak).all():
        distance += step
        if distance > 2 * radius:
            for rows in _blocks(table):
                spare[rows] = _doubled(table, rows, radius) if radius else _widened(table, rows, votes=step)
            # The first one belongs to the caller.
            table, spare, radius = spare, table if radius else np.empty_like(table), 2 * radius or step
        off = distance - radius
        left, right = np.maximum(gaps - 2 * off, 0), np.minimum(gaps + 2 * off, last_gap)
        sides = (np.maximum(tops - off, 0), np.minimum(tops + off, last_top))[: 1 + (last_top > 0)]
        corners = [table[top, gap] for top in sides for gap in (left, right)]
        found = np.maximum.reduce(corners)
        yield found


def _blocks(table: Floats) -> Iterator[slice]:
    """Yield slices of rows that are small together."""
    n_rows = max(1, _CELLS // max(1, table[0].size))
    for start in range(0, len(table), n_rows):
        yield slice(start, min(start + n_rows, len(table)))


def _widened(table: Floats, rows: slice, *, votes: int, best: np.ufunc = np.fmax) -> Floats:
    """Return the best entry within so many votes of the top count and twice as many of the gap; no NaN."""
    tall, wide = votes if len(table) > 1 else 0, 2 * votes
    first, last = max(rows.start - tall, 0), min(rows.stop + tall, len(table))
    shape = (rows.stop - rows.start + 2 * tall, table.shape[1] + 2 * wide, *table.shape[2:])
    found = np.full(shape, np.nan)
    start = first - (rows.start - tall)
    found[start : start + last - first, wide : wide + table.shape[1]] = table[first:last]
    for axis, length in enumerate((2 * tall + 1, 2 * wide + 1)):
        found, size = found.swapaxes(0, axis), 1
        while size < length:  # windows of twice the length, and what is left of it at last
            more = min(size, length - size)
            found, size = best(found[:-more], found[more:]), size + more
        found = found.swapaxes(0, axis)
    return np.asarray(found)


def _doubled(table: Floats, rows: slice, votes: int) -> Floats:
    """Return the largest entry within twice as many votes as `table` does, which is of whole windows."""
    at, n_gaps = np.arange(rows.start, rows.stop), table.shape[1]
    tall = table[rows]
    if len(table) > 1:
        tall = np.maximum(table[np.maximum(at - votes, 0)], table[np.minimum(at + votes, len(table) - 1)])
    off = min(2 * votes, n_gaps - 1)
    wide = np.empty_like(tall)
    wide[:, :off], wide[:, off:] = tall[:, :1], tall[:, : n_gaps - off]
    np.maximum(wide[:, : n_gaps - off], tall[:, off:], out=wide[:, : n_gaps - off])
    np.maximum(wide[:, n_gaps - off :], tall[:, -1:], out=wide[:, n_gaps - off :])
    return wide


def _far_lead(sigma: float, order: float, weight: int) -> int:
    """Return a lead from which on the class behind changes no cost: H(r) is that of {a, other} alone.

    Let b be d votes behind a and let w votes move. Where b wins its noise is ahead of a's by d (but for a
    tie-break, below 1), whatever the threshold. By Hoelder its term q^order p^(1 - order) of the divergence
    is at most the sum of that of the noises over all such pairs, and by Chernoff, with squares completed and
    sums of exp(-(k - c)^2 / (2 sigma^2)) over whole k that are largest at whole c,

        exp(order (order - 1) w^2 / sigma^2 - (d - 1 - 2 order w)^2 / (4 sigma^2)),

    in the other direction less. From d - 1 = 4 order w + 13 sigma on that is below exp(-42), where all terms
    add up to 1 or more. The same square bounds what b takes from the terms of a and of the others:
    F(r) F(r + d) differs from F(r) by the product of two tails that are d apart. So H is the same to 1e-17,
    and where the threshold is as far below a, it is 0 to 1e-17.
    """
    return math.ceil(4 * order * weight + 13 * sigma) + 1


def _cdf_steps(
    law: DiscreteGaussian, y: Floats, gaps: NDArray[np.int64], *, power: int = 1
) -> tuple[Floats, Floats, Floats]:
    """Return P[noise < y + gap]^power at the first threshold, its steps up to the last one, and there.

    Thresholds are whole or half and evenly spaced, gaps are 0, 1, 2, ... or 0, -1, -2, ...: every row is a
    window on one list.
    """
    low, high = round(2 * y[0]), round(2 * y[-1])
    spacing, lowest = round(2 * (y[1] - y[0])), 2 * int(gaps.min())
    x = np.arange(low + lowest, high + 2 * int(gaps.max()) + 1) / 2
    cdf = np.exp(power * law.log_cdf(np.floor(x), x - np.floor(x)))
    windows = sliding_window_view(cdf[spacing:] - cdf[:-spacing], high - low - spacing + 1)[:, ::spacing]
    first = 2 * gaps - lowest
    return cdf[first], windows[first], cdf[first + high - low]


def _expected_growing(
    law: DiscreteGaussian, values: Floats, y: Floats, gaps: NDArray[np.int64], *, n_rivals: int
) -> Floats:
    """log E exp(running maximum from the left at R), R the largest of n_rivals counts `gap` below the top."""
    if n_rivals == 0:
        return np.repeat(values[:, :1], gaps.size, axis=1)
    growing = np.maximum.accumulate(values, axis=1)
    highest = growing[:, -1:]
    # P[R < y] for whole and half y, relative to the top; beyond the grid everything counts as its end.
    first, steps, last = _cdf_steps(law, y, gaps, power=n_rivals)
    level = np.exp(growing - highest)
    left = np.concatenate([level[:, :1], level[:, :-1]], axis=1)
    blend = level if law.sigma < 16 else (left + level) / 2
    # Where the exponents span more than floats do, the sum may underflow: take the largest instead.
    whole = highest[:, 0] - growing[:, 0] > _FLOAT_RANGE
    expected = blend[:, 1:] @ steps.T + blend[:, :1] * first + blend[:, -1:] * (1 - last)
    with np.errstate(divide="ignore"):
        result: Floats = np.where(whole[:, None], 0.0, np.log(expected)) + highest
    return result


def _expected_falling(law: DiscreteGaussian, values: Floats, y: Floats, gaps: NDArray[np.int64]) -> Floats:
    """log E exp(running maximum from the right at R + gap), R the noise on the top count."""
    falling = np.maximum.accumulate(values[::-1])[::-1]
    highest = falling[0]
    if highest - falling[-1] > _FLOAT_RANGE:
        return np.full(gaps.size, highest)
    first, steps, last = _cdf_steps(law, y, -gaps)
    level = np.exp(falling - highest)
    right = np.append(level[1:], level[-1])
    blend = level if law.sigma < 16 else (level + right) / 2
    expected = steps @ blend[:-1] + first * blend[0] + (1 - last) * blend[-1]
    return np.asarray(np.log(expected) + highest)


def _possible_gaps(
    largest: int, n_classes: int, *, n_fewest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first gap of every top count that some histogram has, and the one after the last.

    It has a runner-up that fits, and room for all other votes, of n_fewest to `largest` in all.
    """
    top = np.arange(largest + 1)
    # The runner-up has at most what the top leaves, and the others no more than it each.
    most = np.minimum(top, largest - top)
    least = np.maximum(-((top - n_fewest) // (n_classes - 1)), 0)
    return top - most, np.maximum(top - least, -1) + 1
