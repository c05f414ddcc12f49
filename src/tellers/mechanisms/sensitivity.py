"""How far one ballot can move a published data-dependent cost: local and smooth sensitivity of a whole run.

A cost that looks at the votes may be released with noise in proportion to its smooth sensitivity. This module
bounds that for the costs of `bounds`, at ONE order that was fixed before voting. Everything here is private.

A query enters through its *effective gap*: the gap g at which m - 1 equal rivals would give the same q. One
changed ballot moves g by at most 2, whatever the votes, so cost and sensitivity are tables over g. After d
changed ballots g lies between two values that are known in closed form; the largest table entry between
them bounds every local sensitivity at distance d. Proofs: docs/maths/smooth-sensitivity.md.

A ballot may count several votes: g then moves by at most twice as many. Costs are those of a ballot of
`weight` votes, and distances are counted in steps of `step` votes. `moves` are the ballots that anybody may
change, as (weight, share): what such a ballot changes is divided by its share. Proofs:
docs/maths/personalised.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_positive
from ..privacy._scipy import maximum_filter1d, minimum_filter1d
from ..privacy.rdp import Floats
from ..privacy.votes import Integers, Votes
from . import _flip_probability as upset
from . import published as bounds
from .gap_bounds import Moves

_N_NODES = 320_000  # table entries: 64 per vote for 5,000 teachers, at most 512
_FILTERS = (maximum_filter1d, minimum_filter1d)
_CELLS = 1 << 17  # (query, distance) pairs worked on at once: bounds the memory, stays near the cache


def gnmax_local_sensitivities(
    counts: ArrayLike,
    n_teachers: int,
    *,
    sigma: float,
    order: float,
    drawn: bool = False,
    weight: int = 1,
    moves: Moves = ((1, 1.0),),
    step: int = 1,
) -> Floats:
    """Return a bound on the local sensitivity of `gnmax_cost` within d changed ballots, d = 0..n_teachers.

    Guarantee: entry d is at least the local sensitivity, summed over the queries, at all votes that d
               changed ballots can reach, and grows with d; neighbours' rows interleave as smooth
               sensitivity needs. It also holds for the plain sum of `gaussian_bound` where that
               grows with q, as it did at every order and sigma tried.
    Assumes:   counts sum to n_teachers in each query; order and sigma were fixed before voting.
    Reference: Papernot et al. 2018, appendix B, without its conditions C5 and C6;
               docs/maths/smooth-sensitivity.md.

    >>> local = gnmax_local_sensitivities([[180, 70]], 250, sigma=40.0, order=8.0)
    >>> local.shape, bool(np.all(np.diff(local) >= 0))
    ((251,), True)
    """
    votes = Votes.from_counts(counts, n_teachers=n_teachers)
    size = votes.n_teachers, votes.n_classes
    gauge = _gauge("gnmax", sigma, *size, order=order, drawn=drawn, weight=weight, moves=tuple(moves))
    return in_steps(_local_sensitivities(votes, gauge), step)


def gnmax_cost(
    counts: ArrayLike, n_teachers: int, *, sigma: float, order: float, drawn: bool = False, weight: int = 1
) -> float:
    """Return the 2018 cost of GNMax, summed over the queries, in the form whose sensitivity is proved.

    It is Theorem 6 at q rounded up to a fine grid, and the least of it over all larger q: a bound needs
    no exact q, and on the grid nothing has to be assumed about how Theorem 6 behaves between nodes.

    Guarantee: bounds D_order(P || P'); at most about a hundredth of a vote above `bounds.gaussian_bound`.
    Assumes:   as `bounds.published_gnmax`.
    Reference: Papernot et al. 2018, Theorem 6.

    >>> votes = Votes.from_counts([[180, 70]], n_teachers=250)
    >>> plain = bounds.published_gnmax(votes, 40.0, orders=[8.0])[0, 0]
    >>> bool(plain <= gnmax_cost(votes.counts, 250, sigma=40.0, order=8.0) < 1.001 * plain)
    True
    """
    votes = Votes.from_counts(counts, n_teachers=n_teachers)
    size = votes.n_teachers, votes.n_classes
    return _cost(votes, _gauge("gnmax", sigma, *size, order=order, drawn=drawn, weight=weight))


def lnmax_sensitivities(
    counts: ArrayLike, n_teachers: int, *, gamma: float, order: float, drawn: bool = False
) -> tuple[float, Floats]:
    """Return the 2017 cost of LNMax, summed over the queries, and a bound on its local sensitivities.

    The moment alpha(l) of 2017 is l times the cost at order l + 1, and so is its sensitivity.

    Guarantee: as `gnmax_cost`, for `bounds.laplace_bound`, and `gnmax_local_sensitivities`.
    Assumes:   as `bounds.published_lnmax`; counts sum to n_teachers in each query; order and gamma were fixed
               before voting.
    Reference: Papernot et al. 2017, Theorems 2 and 3, and section 3.3 (the idea of the sensitivities);
               docs/maths/smooth-sensitivity.md.
    """
    votes = Votes.from_counts(counts, n_teachers=n_teachers)
    size = votes.n_teachers, votes.n_classes
    gauge = _gauge("lnmax", gamma, *size, order=order, drawn=drawn)
    return _cost(votes, gauge), _local_sensitivities(votes, gauge)


def threshold_local_sensitivities(
    margins: ArrayLike,
    n_teachers: int,
    *,
    sigma_threshold: float,
    order: float,
    lowest: int | None = None,
    highest: int | None = None,
    drawn: bool = False,
    weight: int = 1,
    moves: Moves = ((1, 1.0),),
    step: int = 1,
) -> Floats:
    """Return a bound on the local sensitivity of checks' costs within d changed ballots, d = 0..n_teachers.

    `lowest` and `highest` are public limits of the margin; without both of them, the last entry has to be for
    margins of any size.

    Guarantee: entry d is at least the local sensitivity of the sum of `threshold_bound` over the checks at
               all votes that d changed ballots can reach, and grows with d; neighbours' entries interleave.
    Assumes:   whole margins, which one ballot moves by at most its weight; order fixed before voting.
    Reference: Papernot et al. 2018, appendix B, with distances from 0 and a running maximum.
    """
    require_positive(sigma_threshold=sigma_threshold)
    require_count(n_teachers=n_teachers)
    table = np.asarray(margins)
    if table.ndim != 1 or table.size == 0 or table.dtype.kind not in "iu":
        raise ValueError(
            f"Expected whole margins, one per check, got shape {table.shape} of {table.dtype}. "
            "Round thresholds up before subtracting them; see bounds.check_margins."
        )
    at, times = np.unique(table.astype(np.int64), return_counts=True)
    low, high = int(at[0]) - n_teachers - 1, int(at[-1]) + n_teachers + 1
    floor = low if lowest is None else max(low, lowest)
    ceiling = high if highest is None else min(high, highest)
    if floor > at[0] or ceiling < at[-1]:
        raise ValueError(f"Expected every margin in [{lowest}, {highest}], got one outside these limits.")
    reachable = np.arange(floor, ceiling + 1)
    logs = bounds.log_accept(reachable, sigma_threshold, drawn=drawn)
    cost = bounds.threshold_bound(*logs, sigma_threshold=sigma_threshold / weight, orders=[order])[:, 0]
    change = np.zeros(high - low + 1)  # 0 where the margin cannot go
    place = slice(floor - low, ceiling - low + 1)
    for own, share in moves:
        largest, smallest = (filtered(cost, 2 * own + 1, mode="nearest") for filtered in _FILTERS)
        change[place] = np.maximum(change[place], np.maximum(largest - cost, cost - smallest) / share)
    ahead = sliding_window_view(change, n_teachers + 1)
    behind = sliding_window_view(change[::-1], n_teachers + 1)
    local = np.zeros(n_teachers + 1)
    size = max(1, _CELLS // (n_teachers + 1))
    for part in (slice(i, i + size) for i in range(0, at.size, size)):
        reach = np.maximum(ahead[at[part] - low], behind[high - at[part]])
        np.maximum.accumulate(reach, axis=1, out=reach)
        local += times[part] @ reach
    # So many ballots are all of them. What is within their reach must not hang on where the margins are now:
    # a neighbour's would reach one further, with no entry here that bounds it.
    most = float(change.max())
    if lowest is None or highest is None:
        price = order * weight**2 / (2 * sigma_threshold**2)  # no check's cost is above it
        most = price / min(share for _, share in moves)
    local[-1] = max(local[-1], times.sum() * most)
    return in_steps(local, step)


@dataclass(frozen=True, eq=False, repr=False)
class CheckedMargins:
    """The noise of checks, their margins, which are private, and the public limits of these."""

    sigma: float
    margins: Integers
    lowest: int
    highest: int


def gaussian_sensitivities(
    votes: Votes,
    sigma: float,
    *,
    order: float,
    answered: ArrayLike | None = None,
    check: CheckedMargins | None = None,
    n_votes: int | None = None,
    weight: int = 1,
    moves: Moves = ((1, 1.0),),
    step: int = 1,
) -> tuple[float, Floats]:
    """Return the 2018 bound of answers, and of checks where there are any, and its local sensitivities.

    `answered` says which queries were answered, all if not said; `n_votes` how many votes each one holds, all
    teachers' if not said. `weight`, `moves` and `step` are those of the parts.

    Guarantee: as `gnmax_cost`, `bounds.threshold_bound` and their sensitivities, for the noise that is drawn.
    Assumes:   as these; the answers that were given are along the path that was taken.
    Reference: Papernot et al. 2018, appendix B.
    """
    n = votes.n_teachers if n_votes is None else n_votes
    total, local = 0.0, np.zeros(-(-n // step) + 1)
    if check is not None:
        odds = bounds.log_accept(check.margins, check.sigma, drawn=True)
        relative = check.sigma / weight
        total += float(bounds.threshold_bound(*odds, sigma_threshold=relative, orders=[order]).sum())
        local = local + threshold_local_sensitivities(
            check.margins, n, sigma_threshold=check.sigma, order=order, lowest=check.lowest,
            highest=check.highest, drawn=True, weight=weight, moves=moves, step=step,
        )  # fmt: skip
    counts = votes.counts if answered is None else votes.counts[np.asarray(answered, dtype=bool)]
    if len(counts):
        total += gnmax_cost(counts, n, sigma=sigma, order=order, drawn=True, weight=weight)
        local = local + gnmax_local_sensitivities(
            counts, n, sigma=sigma, order=order, drawn=True, weight=weight, moves=moves, step=step
        )
    return total, local


def in_steps(local: Floats, step: int) -> Floats:
    """Return every `step`-th entry, from the first one on, and the last one for whatever lies beyond."""
    if step == 1:
        return local
    last = local.size - 1
    return np.asarray(local[np.minimum(np.arange(-(-last // step) + 1) * step, last)])


def smooth_sensitivity(local: ArrayLike, beta: float) -> float:
    """Return the largest of exp(-beta d) * local[d].

    Guarantee: a beta-smooth upper bound on the local sensitivity, if the entries bound it at every
               distance and those of neighbours interleave (local[d] here <= local[d+1] there).
    Assumes:   entry d is for distance d = 0, 1, ...; a sum over several releases keeps the property.
    Reference: Nissim, Raskhodnikova, Smith 2007, Definition 2.2 and Claim 3.2.

    >>> round(smooth_sensitivity([0.0, 1.0, 4.0], 1.0), 4)
    0.5413
    """
    require_positive(beta=beta)
    row = np.asarray(local, dtype=np.float64)
    if row.ndim != 1 or row.size == 0 or not np.all(row >= 0):
        raise ValueError(f"Expected local sensitivities >= 0, one per distance, got shape {row.shape}.")
    return float(np.max(np.exp(-beta * np.arange(row.size)) * np.maximum.accumulate(row)))


@dataclass(frozen=True, eq=False)
class _Gauge:
    """Tables for one mechanism, ensemble size and order, in terms of x = -log q, which grows with the gap."""

    log_tail: Floats  # log P[a rival k votes behind wins the comparison], k = 0..n_teachers
    x: Floats  # -log q at the nodes, effective gaps 0, h, 2h, ..., n_teachers
    cost: Floats  # at the nodes; never grows with the gap
    above: Floats  # at least the sensitivity at every gap from here up
    below: Floats  # at least the sensitivity at every gap from here down

    def log_q(self, gaps: Integers) -> Floats:
        """Return the log of the union bound; `gaps` ascend along the last axis."""
        logs = self.log_tail[gaps]
        scale = logs[:, :1]
        return np.asarray(scale[:, 0] + np.log(np.exp(logs - scale).sum(axis=1)))


@lru_cache(maxsize=4)
def _gauge(
    kind: Literal["gnmax", "lnmax"],
    scale: float,
    n_teachers: int,
    n_classes: int,
    *,
    order: float,
    drawn: bool,
    weight: int = 1,
    moves: Moves = ((1, 1.0),),
) -> _Gauge:
    q_of = upset.log_q_gnmax if kind == "gnmax" else upset.log_q_lnmax
    bound = bounds.gaussian_bound if kind == "gnmax" else bounds.laplace_bound

    def log_tail_at(gaps: NDArray[np.generic]) -> Floats:
        one_rival = np.stack([gaps, np.zeros_like(gaps)], axis=1)  # q is its tail
        return q_of(one_rival, scale, drawn=drawn)

    n_per_vote = 1 << max(4, min(9, (_N_NODES // n_teachers).bit_length() - 1))
    log_tail = log_tail_at(np.arange(n_teachers + 1))
    nodes = np.arange(n_teachers * n_per_vote + 1) / n_per_vote
    if drawn:
        # Between whole gaps the tail is continued linearly: the density of that is log-concave, and so the
        # effective gap still moves by at most 2.
        left = np.minimum(nodes.astype(np.int64), n_teachers - 1)
        ratio = np.expm1(log_tail[left + 1] - log_tail[left])
        with np.errstate(divide="ignore"):
            tail = log_tail[left] + np.log1p((nodes - left) * ratio)
        tail[::n_per_vote] = log_tail
    else:
        tail = log_tail_at(nodes)
    log_q = tail + math.log(n_classes - 1)
    capped = np.minimum(log_q, math.log1p(-1 / n_classes))
    # q is that of the noise as it is; only what the noise hides is relative to the weight.
    cost = np.minimum.accumulate(bound(capped, scale / weight, orders=[order])[:, 0])
    # A move of 2 is 2 * n_per_vote nodes. One node more on either side covers all gaps between nodes,
    # and rounding errors in finding the node of a query.
    node, last, change = np.arange(cost.size), cost.size - 1, np.zeros(cost.size)
    for own, share in moves:
        reach = 2 * own * n_per_vote + 1
        grows = cost[np.maximum(node - reach, 0)] - cost[np.minimum(node + 1, last)]
        falls = cost[np.maximum(node - 1, 0)] - cost[np.minimum(node + reach, last)]
        change = np.maximum(change, np.maximum(grows, falls) / share)
    from_here_up = np.maximum.accumulate(change[::-1])[::-1]
    # Between two nodes values are interpolated, so each node must bound the cell before it as well.
    above = np.concatenate([from_here_up[:1], from_here_up[:-1]])
    return _Gauge(log_tail, -log_q, cost, above, np.maximum.accumulate(change))


def _cost(votes: Votes, gauge: _Gauge) -> float:
    counts = np.sort(votes.counts, axis=1)[:, ::-1]
    x = -gauge.log_q(counts[:, :1] - counts[:, 1:])
    node = np.searchsorted(gauge.x, x, side="right") - 1  # the node below: q rounded up
    return float(gauge.cost[np.maximum(node, 0)].sum())


def _local_sensitivities(votes: Votes, gauge: _Gauge) -> Floats:
    ranked = np.ascontiguousarray(np.sort(votes.counts, axis=1)[:, ::-1])
    rows, times = np.unique(ranked, axis=0, return_counts=True)  # unanimous queries share one row
    local = np.zeros(votes.n_teachers + 1)
    peak = float(gauge.below[-1])
    x = -gauge.log_q(rows[:, :1] - rows[:, 1:])
    # Above the peak of the table only ballots that widen the reach downwards matter, and the other way round.
    clear = np.interp(x, gauge.x, gauge.above) < peak
    torn = ~clear & (np.interp(x, gauge.x, gauge.below) < peak)
    local += peak * times[~clear & ~torn].sum()
    walks = ((clear, _towards_tie, gauge.above), (torn, _towards_unanimity, gauge.below))
    for chosen, walk, table in walks:
        for start in range(0, int(chosen.sum()), 4096):
            part = np.flatnonzero(chosen)[start : start + 4096]
            _add_walk(local, rows[part], times[part], walk=walk, gauge=gauge, table=table)
    return np.asarray(np.maximum.accumulate(local))


def _add_walk(
    local: Floats,
    rows: Integers,
    times: Integers,
    *,
    walk: Callable[[Integers, Integers, Floats], Floats],
    gauge: _Gauge,
    table: Floats,
) -> None:
    """Add the sensitivities of `rows` at every distance; a row that reached the peak stays there."""
    peak, first = float(gauge.below[-1]), 0
    while rows.size and first < local.size:
        last = min(local.size, first + max(16, _CELLS // len(rows)))
        x = walk(rows, np.arange(first, last), gauge.log_tail)
        values = np.interp(x, gauge.x, table)
        local[first:last] += times @ values
        done = values[:, -1] >= peak
        local[last:] += peak * times[done].sum()
        rows, times, first = rows[~done], times[~done], last


def _towards_tie(rows: Integers, distances: Integers, log_tail: Floats) -> Floats:
    """Return the least -log q after each number of moved votes: all from the first to the second class."""
    gaps = rows[:, :1] - rows[:, 1:]
    closest = gaps[:, :1] - 2 * distances
    scale = log_tail[np.maximum(closest, 0)]
    total = np.ones_like(scale)
    # The other gaps shrink by 1 a step: a window that slides along the reversed table.
    n_steps, n_votes = distances.size, log_tail.size - 1
    padded = np.concatenate([log_tail[::-1], np.full(n_steps + int(distances[-1]), log_tail[0])])
    windows = sliding_window_view(padded, n_steps)
    for rival in range(1, gaps.shape[1]):
        logs = windows[n_votes - gaps[:, rival] + distances[0]]
        np.subtract(logs, scale, out=logs)
        np.exp(logs, out=logs)
        total += logs
    # Past the tie another class is first and any q can be reached.
    return np.where(closest >= 0, -(scale + np.log(total)), -np.inf)


def _towards_unanimity(rows: Integers, distances: Integers, log_tail: Floats) -> Floats:
    """Return the largest -log q after each number of moved votes: from the largest rival to the top."""
    top, rivals = rows[:, 0], rows[:, 1:]
    sums = np.cumsum(rivals, axis=1)
    moved = np.minimum(distances, sums[:, -1:])
    # After levels[t-1] votes the t largest rivals are as small as the next one, and it joins them.
    n_level = np.arange(1, rivals.shape[1])
    levels = sums[:, :-1] - n_level * rivals[:, 1:]
    joined = np.zeros_like(moved)
    for t in range(levels.shape[1]):
        joined += moved > levels[:, t, None]
    level, extra = np.divmod(np.take_along_axis(sums, joined, axis=1) - moved, joined + 1)
    first = top[:, None] + moved
    scale = log_tail[first - level - (extra > 0)]
    # `extra` of the levelled rivals still have one vote more than the rest.
    total = -extra * np.expm1(log_tail[first - level] - scale)
    for rival in range(rivals.shape[1]):
        total += np.exp(log_tail[first - np.minimum(rivals[:, rival, None], level)] - scale)
    return np.asarray(-(scale + np.log(total)))
