"""The bins of Powerset voting: a few sets with votes, and all others, which are alike."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_legendre

from ...noise import Noise
from ..argmax import Groups, group_classes
from ..laws import DiscreteGaussian, Grid
from ..outcomes import Outcomes, chunks
from .outcomes import distinct_ballots

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def n_sets(n_labels: int, max_labels: int = 0) -> int:
    """Return how many sets of labels there are.

    >>> n_sets(4), n_sets(4, 1)
    (16, 5)
    """
    if not max_labels or max_labels >= n_labels:
        return 1 << n_labels
    return sum(math.comb(n_labels, size) for size in range(max_labels + 1))


@dataclass(frozen=True)
class ManyBins(DiscreteGaussian):
    """The noise of an arg max over e^`log_bins` bins, nearly all of them alike.

    The largest of so many draws sits sqrt(2 log bins) deviations out and varies by sigma over that: the grid
    reaches there, steps accordingly, and keeps 1 - F accurate where F is 1 to sixteen digits.

    >>> law = ManyBins(3.0, 200 * math.log(2))
    >>> bool(-1e-40 < law.log_cdf(np.array([45.0]), np.array([0.5]))[0] < 0)
    True
    """

    log_bins: float = 0.0

    def grid(self, low: float, high: float, *, n_classes: int) -> Grid:
        """Return every whole number that matters, at a stride the width of the maximum allows.

        >>> ManyBins(3.0, 200 * math.log(2)).grid(0, 50, n_classes=3).x.max() > 9 * 3 + 50 + 16 * 3
        True
        """
        out = math.sqrt(2 * max(self.log_bins, 1.0))
        stride = max(1, math.floor(0.12 * self.sigma / out))
        first = math.floor(low - 9.0 * self.sigma)
        last = math.ceil(high + (9.0 + out) * self.sigma)
        x = np.arange(first, last + stride, stride, dtype=np.float64)
        node, weight = _tie_rule(self.sigma / out)
        return Grid(
            np.tile(x, node.size),
            np.repeat(node, x.size),
            math.log(stride) + np.repeat(np.log(weight), x.size),
        )

    def log_cdf(self, x: Floats, u: Floats | float = 1.0) -> Floats:
        """Return log(P[X < x] + u P[X = x]), by way of its complement above 0.

        A tie-break so near to 1 that its distance counts is given by that distance, as -(1 - u).

        >>> law = ManyBins(3.0, 1.0)
        >>> at = np.array([-2.0, 2.0])
        >>> bool(np.allclose(law.log_cdf(at, 0.3), DiscreteGaussian(3.0).log_cdf(at, 0.3)))
        True
        """
        given = np.broadcast_to(np.asarray(u, dtype=np.float64), np.broadcast(x, u).shape)
        x = np.broadcast_to(x, given.shape)
        share, rest = np.where(given < 0, 1 + given, given), np.where(given < 0, -given, 1 - given)
        with np.errstate(divide="ignore"):
            plain = super().log_cdf(x, share)
        tail = super().log_cdf(-np.maximum(x, 1.0), rest)
        # P[X > x] + (1 - u) P[X = x] = P[X < -x] + (1 - u) P[X = -x] by symmetry.
        return np.asarray(np.where(x > 0, np.log1p(-np.exp(tail)), plain))


def _tie_rule(spread: float) -> tuple[Floats, Floats]:
    if spread > 0.3:
        # The integrand is about exp(u / spread) in the tie-break u; so many nodes integrate it to 1e-12.
        nodes, weights = roots_legendre(3 if spread > 8 else 6 if spread > 1 else 40)
        return (nodes + 1) / 2, weights / 2
    # From one whole number to the next so many bins fall by a factor of exp(1 / spread): the integrand is
    # exp(-c (1 - u)) with any c up to that, and some. Pieces that grow with the distance from 1 see each c.
    edges = np.exp(np.arange(-math.ceil(1 / spread) - 8, 1, 1.0))
    starts, ends = np.append(0.0, edges[:-1]), edges
    nodes, weights = roots_legendre(8)
    away = starts[:, None] + (ends - starts)[:, None] * (nodes + 1) / 2
    return -away.ravel(), ((ends - starts)[:, None] * weights / 2).ravel()


class Election(Protocol):
    """What a mechanism says about one election over bins."""

    def bin_outcomes(self, groups: Groups, log_bins: float) -> Outcomes:
        """Return who wins how often."""
        ...

    def thresholds(self, counts: Integers) -> Integers | None:
        """Return what the counts are checked against, if anything."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """Outcomes of some distinct tallies, and where a ballot's cost is found: row `query`, class `column`.

    >>> from tellers.mechanisms.labels import Powerset
    >>> bins = Bins.of(np.array([[[1, 0]], [[1, 0]], [[0, 0]]]), 4)
    >>> bins.parts(Powerset(2.0, 2), np.array([0, 1]), np.array([0, 0]))[0].query
    array([0, 0])
    """

    outcomes: Outcomes
    ballot: Integers
    query: Integers
    column: Integers


@dataclass(frozen=True, eq=False, repr=False)
class PowersetOutcomes:
    """Elections over sets, in parts that add up, and which distinct ballot each teacher cast; private.

    >>> from tellers import LabelVotes, Powerset
    >>> Powerset(2.0, 2).outcomes(LabelVotes.from_ballots([[[1, 0]], [[0, 0]]], n_labels=2))
    PowersetOutcomes(<private>, n_queries=1)
    """

    parts: list[Part]
    n_ballots: int
    of_teacher: Integers

    def __repr__(self) -> str:
        return f"PowersetOutcomes(<private>, n_queries={self.of_teacher.shape[1]})"


@dataclass(frozen=True, eq=False, repr=False)
class Bins:
    """The sets that were voted for, query by query, and how many others there are.

    `sets` (distinct, labels) in the order of their `query`; `counts` (queries, columns) with zeros behind the
    last one; `of_teacher` (teachers, queries) says which set a teacher voted for.
    """

    sets: Integers
    query: Integers
    counts: Integers
    of_teacher: Integers
    n_sets: int

    @classmethod
    def of(cls, ballots: Integers, n_sets: int) -> "Bins":
        """Return the bins of ballots (teachers, queries, labels).

        >>> bins = Bins.of(np.array([[[1, 0]], [[1, 0]], [[0, 0]]]), 4)
        >>> bins.counts, bins.sets.tolist()
        (array([[1, 2, 0]]), [[0, 0], [1, 0]])
        """
        n_queries = ballots.shape[1]
        sets, query, of_teacher = distinct_ballots(ballots)
        voted = np.bincount(query, minlength=n_queries)
        # One column more than needed: there is always room for a bin without votes.
        counts = np.zeros((n_queries, int(voted.max()) + 1), dtype=np.int64)
        counts[query, cls._columns(query, voted)] = np.bincount(of_teacher.ravel(), minlength=query.size)
        return cls(sets, query, counts, of_teacher, n_sets)

    @staticmethod
    def _columns(query: Integers, voted: Integers) -> Integers:
        first = np.concatenate([[0], np.cumsum(voted)[:-1]])
        return np.asarray(np.arange(query.size) - first[query])

    @property
    def voted(self) -> Integers:
        """Return how many sets of each query have votes.

        >>> Bins.of(np.array([[[1, 0]], [[0, 0]]]), 4).voted
        array([2])
        """
        return np.bincount(self.query, minlength=len(self.counts))

    @property
    def log_bins(self) -> float:
        """Return the logarithm of the number of all sets.

        >>> round(Bins.of(np.array([[[1, 0]]]), 4).log_bins, 4)
        1.3863
        """
        return math.log(self.n_sets)

    def parts(self, election: Election, own: Integers, query: Integers) -> list[Part]:
        """Return the outcomes of every query, for ballots that voted for the sets `own` in `query`.

        Tallies that are alike up to the names of the sets are evaluated once.

        >>> from tellers.mechanisms.labels import Powerset
        >>> bins = Bins.of(np.array([[[1, 0]], [[1, 0]], [[0, 0]]]), 4)
        >>> len(bins.parts(Powerset(2.0, 2), np.array([0, 1]), np.array([0, 0])))
        1
        """
        rank = np.argsort(np.argsort(-self.counts, axis=1, kind="stable"), axis=1)
        tallies, which = np.unique(-np.sort(-self.counts, axis=1), axis=0, return_inverse=True)
        which = which.reshape(-1)
        column = rank[query, self._columns(self.query, self.voted)[own]]
        n_distinct = 1 + (np.diff(tallies, axis=1) != 0).sum(axis=1)
        ours, found = which[query], []
        for rows in chunks(n_distinct):
            place = np.full(len(tallies), -1)
            place[rows] = np.arange(rows.size)
            ballot = np.flatnonzero(place[ours] >= 0)
            groups = self._groups(tallies[rows], election.thresholds(tallies[rows]))
            outcomes = election.bin_outcomes(groups, self.log_bins)
            found.append(Part(outcomes, ballot, place[ours[ballot]], column[ballot]))
        return found

    def _groups(self, tallies: Integers, thresholds: Integers | None) -> Groups:
        groups = group_classes(tallies, thresholds)
        size = groups.size.astype(np.float64)
        rows, empty = np.arange(len(tallies)), groups.of_class[:, -1]
        size[rows, empty] = float(self.n_sets) - (tallies > 0).sum(axis=1)
        return Groups(groups.value, groups.offset, size, groups.of_class)  # type: ignore[arg-type]

    def winners(self, sigma: float, noise: Noise, max_labels: int) -> Integers:
        """Return the winning set of every query, as 0 and 1 per label.

        >>> from tellers import noise
        >>> Bins.of(np.array([[[1, 0]]] * 50), 4).winners(2.0, noise.seeded(7), 0)
        array([[1, 0]])
        """
        counted = np.bincount(self.of_teacher.ravel(), minlength=self.query.size)
        noisy = counted + noise.discrete_gaussian(sigma, counted.shape)
        tie = noise.uniform(counted.shape)
        order = np.lexsort((tie, noisy, self.query))
        last = np.append(np.flatnonzero(np.diff(self.query[order])), order.size - 1)
        best = order[last]
        rest = float(self.n_sets) - self.voted
        empty, empty_tie = _largest_of(sigma, rest, noise)
        ahead = (empty > noisy[best]) | ((empty == noisy[best]) & (empty_tie > tie[best]))
        chosen: Integers = self.sets[best].copy()
        for row in np.flatnonzero(ahead):
            chosen[row] = self._unvoted(int(row), noise, max_labels)
        return chosen

    def _unvoted(self, row: int, noise: Noise, max_labels: int) -> Integers:
        """Return a set nobody voted for, all of them equally likely."""
        taken = {one.tobytes() for one in self.sets[self.query == row]}
        n_labels = self.sets.shape[1]
        while True:
            drawn = _random_set(n_labels, max_labels, noise)
            if drawn.tobytes() not in taken:
                return drawn


def _random_set(n_labels: int, max_labels: int, noise: Noise) -> Integers:
    if not max_labels or max_labels >= n_labels:
        return np.asarray(noise.integers_below(np.full(n_labels, 2, dtype=np.int64)))
    sizes = [math.comb(n_labels, size) for size in range(max_labels + 1)]
    at, size = _below(sum(sizes), noise), 0
    while at >= sizes[size]:
        at, size = at - sizes[size], size + 1
    chosen = np.zeros(n_labels, dtype=np.int64)
    left = list(range(n_labels))
    for _ in range(size):
        place = int(noise.integers_below(np.array([len(left)], dtype=np.int64))[0])
        chosen[left.pop(place)] = 1
    return np.asarray(chosen)


def _below(bound: int, noise: Noise) -> int:
    """Return a whole number below `bound`, however large, exactly uniform."""
    n_words = -(-bound.bit_length() // 32)
    while True:
        words = noise.integers_below(np.full(n_words, 2**32, dtype=np.int64))
        drawn = sum(int(word) << (32 * i) for i, word in enumerate(words)) >> (
            32 * n_words - bound.bit_length()
        )
        if drawn < bound:
            return drawn


def _largest_of(sigma: float, n_draws: Floats, noise: Noise) -> tuple[Floats, Floats]:
    """Return the largest of so many draws, and its tie-break: by the distribution function, in floats."""
    value = noise.uniform(n_draws.shape)
    with np.errstate(divide="ignore"):
        tail = -np.expm1(np.log(value) / np.maximum(n_draws, 1.0))
    reach = math.ceil(sigma * (math.sqrt(2 * math.log(max(float(n_draws.max()), 2.0))) + 12))
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    law = DiscreteGaussian(sigma)
    log_above = law.log_cdf(-x - 1)  # log P[X > x], falling
    at = np.searchsorted(-log_above, -np.log(tail), side="left")
    at = np.minimum(at, x.size - 1)
    share = (np.exp(law.log_cdf(-x[at])) - tail) / np.exp(law.log_density(x[at]))
    nobody = n_draws < 1
    return np.where(nobody, -np.inf, x[at]), np.clip(share, 0.0, 1.0)
