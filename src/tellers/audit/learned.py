"""A distinguisher that is learned from releases, and what its groups of outcomes prove of many queries."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .events import Direction
from .intervals import lower_bound, upper_bound
from .releases import Outcomes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Score = Callable[[Outcomes], Floats]

_MOST_GROUPS = 12
_MOST_BINS = 48
_FOR_ONE_OUTCOME = (
    25  # releases that an outcome of several columns must have, on average, to be weighed whole
)
_LEVELS = 48  # whole weights from the least to the largest score, so that sums lie on a lattice


def learn_score(here: Outcomes, there: Outcomes) -> Score:
    """Return a function that says how much each outcome, (rows, columns), speaks for `here`, as learned.

    A logarithm of frequencies, half a hit added to each: of whole outcomes where there are few, else of each
    column alone (large whole numbers in bins), and added. An outcome that was not among them scores 0.

    >>> here, there = np.zeros((9, 1), dtype=np.int32), np.ones((9, 1), dtype=np.int32)
    >>> learn_score(here, there)(np.array([[0], [1], [2]], dtype=np.int32)).round(2)
    array([ 2.94, -2.94,  0.  ])
    """
    both = np.concatenate([here, there])
    n_columns = both.shape[1]
    codes = _codes(both)
    whole = n_columns == 1 or np.unique(codes).size * _FOR_ONE_OUTCOME <= len(both)
    if whole and _few_values(codes):
        table = _table(codes[: len(here)], codes[len(here) :])
        return lambda rows: table(_codes(rows))
    each = [_binned(here[:, at], there[:, at]) for at in range(n_columns)]
    return lambda rows: np.asarray(sum(score(rows[:, at]) for at, score in enumerate(each)), dtype=np.float64)


def _codes(rows: Outcomes) -> NDArray[np.int64]:
    """Return one number per row, equal for equal rows and for no others but by a hash of 62 bits."""
    if rows.shape[1] == 1:
        return rows[:, 0].astype(np.int64)
    code = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        code = (code ^ (column.astype(np.int64) + 7).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return (code >> np.uint64(2)).astype(np.int64)


def _few_values(codes: Integers) -> bool:
    return np.unique(codes).size <= 4096


def _table(first: Integers, second: Integers) -> Callable[[Integers], Floats]:
    known, which = np.unique(np.concatenate([first, second]), return_inverse=True)
    which = which.reshape(-1)
    counts = [np.bincount(part, minlength=known.size) for part in (which[: first.size], which[first.size :])]
    # Half a hit each: an outcome that came on one side alone is not taken for impossible on the other.
    weights = np.log(counts[0] + 0.5) - np.log(counts[1] + 0.5) - np.log(first.size / second.size)

    def score(codes: Integers) -> Floats:
        place = np.minimum(np.searchsorted(known, codes), known.size - 1)
        return np.where(known[place] == codes, weights[place], 0.0)

    return score


def _binned(first: NDArray[np.int32], second: NDArray[np.int32]) -> Callable[[NDArray[np.int32]], Floats]:
    both = np.concatenate([first, second])
    if np.unique(both).size <= _MOST_BINS:
        table = _table(first.astype(np.int64), second.astype(np.int64))
        return lambda column: table(column.astype(np.int64))
    cuts = np.unique(np.quantile(both, np.linspace(0, 1, _MOST_BINS + 1)[1:-1]).astype(np.int64))
    place = [np.searchsorted(cuts, side, side="left") for side in (first, second)]
    table = _table(*place)
    return lambda column: table(np.searchsorted(cuts, column, side="left"))


@dataclass(frozen=True, eq=False)
class Groups:
    """Outcomes in a few groups, by their score: the last speaks most for one's own side.

    `weights` are whole and rise; `cuts` are the lowest scores of all groups but the first.

    >>> Groups(np.array([0.0]), np.array([0, 5])).counts(np.array([-1.0, 0.0, 2.0]))
    array([1, 2])
    """

    cuts: Floats
    weights: Integers

    def counts(self, scores: Floats) -> Integers:
        """Return how many scores fall into each group."""
        return np.bincount(np.searchsorted(self.cuts, scores, side="right"), minlength=self.weights.size)


def learn_groups(own: Floats, other: Floats) -> Groups:
    """Return groups of the scores of two sides, a high score speaking for the first; judge them on others.

    >>> groups = learn_groups(np.array([1.0, 1.0, -1.0]), np.array([-1.0, -1.0, 1.0]))
    >>> groups.cuts, groups.weights
    (array([1.]), array([ 0, 48]))
    """
    values = np.unique(np.concatenate([own, other]))
    if values.size > _MOST_GROUPS:
        both = np.sort(np.concatenate([own, other]))
        # Even shares in the middle, and thin ones at both ends, where ratios are largest.
        points = np.array([0.002, 0.01, 0.04, 0.12, 0.3, 0.5, 0.7, 0.88, 0.96, 0.99, 0.998])
        values = np.unique(np.concatenate([values[:1], both[(points * both.size).astype(int)]]))
    cuts = values[1:]
    place = [np.searchsorted(cuts, side, side="right") for side in (own, other)]
    shares = [(np.bincount(at, minlength=values.size) + 0.5) / (at.size + 1) for at in place]
    levels = np.maximum.accumulate(np.log(shares[0]) - np.log(shares[1]))
    span = max(float(levels[-1] - levels[0]), 1e-9)
    weights = np.round((levels - levels[0]) / span * _LEVELS).astype(np.int64)
    return Groups(cuts, weights)


def composed_epsilon(
    own: Integers, other: Integers, weights: Integers, *, n_queries: int, delta: float, miss: float
) -> float:
    """Return the epsilon that frequencies of one query's outcomes prove of `n_queries` such queries.

    Outcomes are in groups of rising weight. Each "this group or a higher one" has its probability bounded,
    from below on one side and from above on the other. Of all distributions within these bounds the lowest
    (highest) makes every sum of weights over queries lowest (highest), so the probabilities of "the sum is at
    least t" are bounded too, for all t at once, and one of them proves most.

    Guarantee: above the true epsilon at `delta` with chance at most `miss`.
    Assumes:   queries are answered independently, each with the same probabilities; groups and weights were
               chosen without these outcomes.
    Reference: Clopper and Pearson 1934; stochastic order is kept by sums of independent terms.

    >>> one = composed_epsilon(np.array([100, 900]), np.array([900, 100]), np.array([0, 1]),
    ...     n_queries=1, delta=1e-5, miss=0.05)
    >>> ten = composed_epsilon(np.array([100, 900]), np.array([900, 100]), np.array([0, 1]),
    ...     n_queries=10, delta=1e-5, miss=0.05)
    >>> round(one, 2), ten > 10
    (1.99, True)
    """
    n_cuts = weights.size - 1
    if n_cuts < 1:
        return 0.0
    above = [np.cumsum(counts[::-1])[::-1][1:] for counts in (own, other)]
    low = lower_bound(above[0], int(own.sum()), miss=miss / (2 * n_cuts))
    high = upper_bound(above[1], int(other.sum()), miss=miss / (2 * n_cuts))
    # A higher group lies within a lower one, so bounds carry over.
    low, high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)
    tails = [_tail_of_sums(bound, weights, n_queries) for bound in (low, high)]
    over = np.maximum(tails[0] - delta, 0.0)
    # Convolutions round; what is below that is no proof of anything.
    under = tails[1] + 1e-12
    return float(np.log(np.maximum(over / under, 1.0)).max())


def _tail_of_sums(above: Floats, weights: Integers, n: int) -> Floats:
    """Return P(sum >= t) for t = 0, 1, ..., of n independent weights with such tail probabilities."""
    tail = np.concatenate([[1.0], above, [0.0]])
    pmf = np.zeros(int(weights[-1]) + 1)
    np.add.at(pmf, weights, np.maximum(tail[:-1] - tail[1:], 0.0))
    total, base, left = np.ones(1), pmf, n
    while left:
        if left & 1:
            total = np.convolve(total, base)
        left >>= 1
        if left:
            base = np.convolve(base, base)
    return np.asarray(np.minimum(np.cumsum(total[::-1])[::-1], 1.0))


def prove_by_queries(
    here: Outcomes, there: Outcomes, *, n_queries: int, delta: float, miss: float
) -> tuple[float, Direction]:
    """Return what single queries, (queries, columns), prove of `n_queries` of them, and in which direction.

    The first quarter learns scores, groups and the direction; the rest is counted.

    Guarantee: as `composed_epsilon`.
    Assumes:   as `composed_epsilon`.
    Reference: as `composed_epsilon`.

    >>> rng = np.random.default_rng(7)
    >>> here, there = (np.array(rng.random((4000, 1)) < p, dtype=np.int32) for p in (0.6, 0.4))
    >>> epsilon, likelier = prove_by_queries(here, there, n_queries=1, delta=0.01, miss=0.05)
    >>> 0.2 < epsilon < np.log(0.59 / 0.4)
    True
    """
    first = [max(1, len(side) // 4) for side in (here, there)]
    score = learn_score(here[: first[0]], there[: first[1]])
    scores = [score(side) for side in (here, there)]
    best: tuple[float, Direction, Groups, int] | None = None
    ways: tuple[Direction, Direction] = ("here", "there")
    for way, likelier in enumerate(ways):
        own, other = scores[way] * (1 - 2 * way), scores[1 - way] * (1 - 2 * way)
        split = first[way], first[1 - way]
        groups = learn_groups(own[: split[0]], other[: split[1]])
        seems = composed_epsilon(
            groups.counts(own[: split[0]]), groups.counts(other[: split[1]]), groups.weights,
            n_queries=n_queries, delta=delta, miss=miss,
        )  # fmt: skip
        if best is None or seems > best[0]:
            best = seems, likelier, groups, way
    assert best is not None  # there are two directions
    _, likelier, groups, way = best
    own, other = scores[way] * (1 - 2 * way), scores[1 - way] * (1 - 2 * way)
    proved = composed_epsilon(
        groups.counts(own[first[way] :]), groups.counts(other[first[1 - way] :]), groups.weights,
        n_queries=n_queries, delta=delta, miss=miss,
    )  # fmt: skip
    return proved, likelier
