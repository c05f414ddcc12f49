"""Powerset voting: a ballot is one vote for one set of labels, and the most popular set wins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ...privacy._scipy import roots_legendre
from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.release import SILENT, Cost, Release
from ...privacy.votes import Integers, Unit, Votes
from .._admission import require_label_votes, require_one_ballot
from .._argmax import ClassGroups, group_classes, win_probabilities
from .._check import check_outcomes
from .._fields import check_sigma, check_threshold, label_cap, label_count, noise_sigma
from .._flip_probability import log_q_gnmax
from .._laws import DiscreteGaussian, Grid
from .._outcomes import Outcomes, assemble, chunks
from ..published import gaussian_bound, log_accept
from ..registry import check_parameters, parameter, register
from ..suprema import argmax_item, check_item
from ._outcomes import distinct_ballots
from ._perlabel import Mask, is_number, listed, require_cap
from ._rules import few_labels


def n_sets(n_labels: int, max_labels: int = 0) -> int:
    """Return how many sets of labels there are."""
    if not max_labels or max_labels >= n_labels:
        return 1 << n_labels
    return sum(math.comb(n_labels, size) for size in range(max_labels + 1))


@dataclass(frozen=True)
class ManyBins(DiscreteGaussian):
    """The noise of an arg max over e^`log_bins` bins, nearly all of them alike.

    The largest of so many draws sits sqrt(2 log bins) deviations out and varies by sigma over that: the grid
    reaches there, steps accordingly, and keeps 1 - F accurate where F is 1 to sixteen digits.
    """

    log_bins: float = 0.0

    def grid(self, low: float, high: float, *, n_classes: int) -> Grid:
        """Return every whole number that matters, at a stride the width of the maximum allows."""
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


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """Outcomes of some distinct tallies, and where a ballot's cost is found: row `query`, class `column`."""

    outcomes: Outcomes
    ballot: Integers
    query: Integers
    column: Integers


@dataclass(frozen=True, eq=False, repr=False)
class PowersetOutcomes:
    """Elections over sets, in parts that add up, and which distinct ballot each teacher cast; private."""

    parts: list[Part]
    n_ballots: int
    of_teacher: Integers

    def __repr__(self) -> str:
        return f"PowersetOutcomes(<private>, n_queries={self.of_teacher.shape[1]})"


@dataclass(frozen=True, eq=False, repr=False)
class Bins:
    """The sets that were voted for, query by query, and how many others there are.

    `sets` (distinct, labels) in the order of their `query`, each with a `column` of `counts` (queries,
    columns), which has zeros behind the last one; `of_teacher` (teachers, queries) says which set a teacher
    voted for.
    """

    sets: Integers
    query: Integers
    column: Integers
    counts: Integers
    of_teacher: Integers
    n_sets: int

    @classmethod
    def of(cls, ballots: Integers, n_sets: int) -> "Bins":
        """Return the bins of ballots (teachers, queries, labels)."""
        n_queries = ballots.shape[1]
        sets, query, of_teacher = distinct_ballots(ballots)
        voted = np.bincount(query, minlength=n_queries)
        # One column more than needed: there is always room for a bin without votes.
        counts = np.zeros((n_queries, int(voted.max()) + 1), dtype=np.int64)
        column = np.arange(query.size) - (np.cumsum(voted) - voted)[query]
        counts[query, column] = np.bincount(of_teacher.ravel(), minlength=query.size)
        return cls(sets, query, column, counts, of_teacher, n_sets)

    @property
    def voted(self) -> Integers:
        """Return how many sets of each query have votes."""
        return np.bincount(self.query, minlength=len(self.counts))

    def log_q(self, sigma: float, *, drawn: bool = False) -> Floats:
        """Return, per query, the log of a bound on P[Powerset does not answer with the most popular set].

        Guarantee: the sum over all other sets, voted for or not, of the chance to overtake it; at most
                   1 - 1 / sets.
        Assumes:   noise sigma on the count of every set; ties at random.
        Reference: Dullerud et al. 2022, Proposition B.1 (Papernot et al. 2018, Proposition 7, over 2^k sets).
        """
        counts = -np.sort(-self.counts, axis=1)
        gaps = counts[:, :1] - counts[:, 1:]
        distinct, place = np.unique(gaps, return_inverse=True)
        pairs = np.stack([distinct, np.zeros_like(distinct)], axis=1)
        one = log_q_gnmax(pairs, sigma, drawn=drawn)[place.reshape(gaps.shape)]
        # Columns without votes are room, not sets; all sets nobody voted for count once, together.
        rivals = np.where(counts[:, 1:] > 0, one, -np.inf)
        empty = self.n_sets - self.voted.astype(object)
        log_empty = np.array([math.log(n) if n > 0 else -math.inf for n in empty])
        # The last column is always without votes, so its gap is the whole top count.
        union = np.logaddexp(np.logaddexp.reduce(rivals, axis=1), log_empty + one[:, -1])
        return np.asarray(np.minimum(union, math.log1p(-1 / self.n_sets)))

    def parts(self, election: "SetVoting", own: Integers, query: Integers) -> list[Part]:
        """Return the outcomes of every query, for ballots that voted for the sets `own` in `query`.

        Tallies that are alike up to the names of the sets are evaluated once.
        """
        rank = np.argsort(np.argsort(-self.counts, axis=1, kind="stable"), axis=1)
        tallies, which = np.unique(-np.sort(-self.counts, axis=1), axis=0, return_inverse=True)
        which = which.reshape(-1)
        column = rank[query, self.column[own]]
        n_distinct = 1 + (np.diff(tallies, axis=1) != 0).sum(axis=1)
        ours, found = which[query], []
        for rows in chunks(n_distinct):
            place = np.full(len(tallies), -1)
            place[rows] = np.arange(rows.size)
            ballot = np.flatnonzero(place[ours] >= 0)
            groups = self._groups(tallies[rows], election.thresholds(tallies[rows]))
            outcomes = election.bin_outcomes(groups, math.log(self.n_sets))
            found.append(Part(outcomes, ballot, place[ours[ballot]], column[ballot]))
        return found

    def _groups(self, tallies: Integers, thresholds: Integers | None) -> ClassGroups:
        groups = group_classes(tallies, thresholds)
        size = groups.size.astype(np.float64)
        rows, empty = np.arange(len(tallies)), groups.of_class[:, -1]
        size[rows, empty] = float(self.n_sets) - (tallies > 0).sum(axis=1)
        return ClassGroups(groups.value, groups.offset, size, groups.of_class)  # type: ignore[arg-type]

    def winners(self, sigma: float, noise: Noise, max_labels: int) -> Integers:
        """Return the winning set of every query, as 0 and 1 per label."""
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


# There are 2^k sets and at most as many ballots as teachers: all sets without a vote are alike. They enter as
# one group of bins, so that time depends on the number of distinct ballots only. Their largest noise is drawn
# at once, by its distribution function, in floating point: an exact draw would need the maximum of 2^k whole
# numbers and its ties. The noise of sets that somebody voted for is whole and exact.


# 2^k must fit a float: more labels need a cap on how many of them a set may hold.
_MOST_LABELS = 1000


class SetVoting:
    """Vote on sets of labels: inside each of `label_groups` the most popular set wins, after noise."""

    sigma: float
    n_labels: int
    max_labels: int = 0
    resolution: ClassVar[int] = 1
    multilabel: ClassVar[bool] = True
    price_method: ClassVar[str] = "labels-rdp"
    answers_whole_queries: ClassVar[bool] = True
    needs_ballots: ClassVar[bool] = True
    has_check: ClassVar[bool] = False
    threshold: float
    sigma_threshold: float

    def __post_init__(self) -> None:
        check_parameters(self)
        require_cap(self)
        if n_sets(self.n_labels, self.max_labels) > 2**_MOST_LABELS:
            raise ValueError(
                f"Expected at most {_MOST_LABELS} labels, or a cap max_labels on the size of a set, got "
                f"{self.n_labels} labels."
            )

    @property
    def label_groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups of labels that are voted on together."""
        return (tuple(range(self.n_labels)),)

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most one query can cost: an arg max per group, whatever the number of sets."""
        return self.check_price(unit, orders) + self.answer_price(unit, orders=orders)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the check costs, where there is one."""
        require_one_ballot(unit)
        if not self.has_check:
            return RdpCurve.zero(orders)
        return check_item(float(self.sigma_threshold), 1, tuple(check_orders(orders))).price()

    def answer_price(
        self, unit: Unit, orders: ArrayLike | None = None, *, n_labels: int | None = None
    ) -> RdpCurve:
        """Return the most that the winning sets cost, however many labels are told."""
        require_one_ballot(unit)
        group = argmax_item(float(self.sigma), 1, tuple(check_orders(orders)))
        return group.price() * len(self.label_groups)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Check every query where there is a check, and tell the winning sets of those that pass."""
        require_label_votes(self, votes)
        opened = np.ones(len(votes), dtype=np.bool_)
        if self.has_check:
            margin = self.bins(votes)[0][1].counts.max(axis=1) - math.ceil(self.threshold)
            opened = margin + noise.discrete_gaussian(self.sigma_threshold, margin.shape) >= 0
        labels = np.full(votes.sums.shape, SILENT, dtype=np.int64)
        rows = np.flatnonzero(opened)
        for group, bins in self.bins(votes[rows]) if rows.size else ():
            labels[rows[:, None], group] = bins.winners(self.sigma, noise, self.max_labels)
        cost = self.check_price(votes.unit) * len(votes) + self.answer_price(votes.unit) * rows.size
        return Release(labels, Cost(cost), np.broadcast_to(opened[:, None], labels.shape).copy())

    def outcomes(self, votes: Votes) -> PowersetOutcomes:
        """Return who wins how often, at these votes and at every neighbour, per distinct ballot."""
        ballots = self._fitted(votes)
        _, query, of_teacher = distinct_ballots(ballots)
        parts = []
        for _, bins in self.bins(votes):
            # Which set of this group a whole ballot voted for: any teacher that cast it knows.
            own = np.empty(query.size, dtype=np.int64)
            own[of_teacher.ravel()] = bins.of_teacher.ravel()
            parts += bins.parts(self, own, query)
        return PowersetOutcomes(parts, query.size, of_teacher)

    def bin_outcomes(self, groups: ClassGroups, log_bins: float) -> Outcomes:
        """Return the outcomes of one group's election."""
        wins = win_probabilities(groups, ManyBins(self.sigma, log_bins))
        check = check_outcomes(groups, self.sigma_threshold) if self.has_check else None
        return assemble(groups, wins, check)

    def thresholds(self, counts: Integers) -> Integers | None:
        """Return the whole number that the top count must reach, where there is a check."""
        if not self.has_check:
            return None
        return np.full(counts.shape, math.ceil(self.threshold), dtype=np.int64)

    def plain_rates(self, n_labels: int | None = None) -> tuple[float, float]:
        """Return what check and answers cost per order if all noisy counts were told."""
        check = 1 / (2 * self.sigma_threshold**2) if self.has_check else 0.0
        return check, len(self.label_groups) / self.sigma**2

    def published_rows(self, votes: Votes, grid: Floats, told: Mask | None, drawn: bool) -> Floats:
        """Return the paper's cost of every query: an arg max over sets, and its check; private."""
        every, sigma = [bins for _, bins in self.bins(votes)], self.sigma
        each = [gaussian_bound(bins.log_q(sigma, drawn=drawn), sigma, orders=grid) for bins in every]
        rows = np.sum(each, axis=0)
        if not self.has_check:
            return np.asarray(rows)
        margin = every[0].counts.max(axis=1) - (math.ceil(self.threshold) if drawn else self.threshold)
        accept, reject = log_accept(margin, self.sigma_threshold, drawn=drawn)
        checks = gaussian_bound(np.minimum(accept, reject), math.sqrt(2) * self.sigma_threshold, orders=grid)
        weights = np.exp(accept) if told is None else told.any(axis=1).astype(np.float64)
        return np.asarray(checks + rows * weights[:, None])

    def _fitted(self, votes: Votes) -> Integers:
        require_label_votes(self, votes)
        if votes.ballots is None:
            raise ValueError("Expected votes with ballots, got sums alone: sets are counted, not labels.")
        ballots = votes.block()
        return few_labels(self.n_labels, self.max_labels).fit(ballots) if self.max_labels else ballots

    def bins(self, votes: Votes) -> list[tuple[list[int], Bins]]:
        """Return the labels of every group, and the sets of them that were voted for; private."""
        ballots = self._fitted(votes)
        return [
            (list(group), Bins.of(ballots[:, :, list(group)], n_sets(len(group), self.max_labels)))
            for group in self.label_groups
        ]


@register("powerset", "the most popular set of labels")
@dataclass(frozen=True)
class Powerset(SetVoting):
    """Report the set of labels with the most ballots after Gaussian noise on the count of every set.

    Guarantee: one query costs at most `price`, that of one arg max: about 0.64 order / sigma^2, however many
               labels there are.
    Assumes:   ballots of 0 and 1; with `max_labels` only sets of at most so many labels take part, and of a
               larger ballot the first ones count. The noise of sets nobody voted for is drawn in floats.
    Reference: Dullerud et al. 2022, Definition 8.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 0, 1]]] * 45 + [[[0, 0, 0]]] * 5, n_labels=3)
    >>> Powerset(sigma=2.0, n_labels=3).release(votes, noise.seeded(7)).labels
    array([[1, 0, 1]])
    """

    sigma: float = noise_sigma(example=7.0)
    n_labels: int = label_count()
    max_labels: int = label_cap()
    one_price: ClassVar[bool] = True


@register("confident-powerset", "powerset, silent where the teachers do not agree")
@dataclass(frozen=True)
class ConfidentPowerset(SetVoting):
    """Powerset voting that answers only where the noisy count of the top set reaches `threshold` ballots.

    Guarantee: one query costs at most `price`: the check and the answer. Silence costs its check alone.
    Assumes:   as `Powerset`; the check's noise has standard deviation `sigma_threshold`.
    Reference: Papernot et al. 2018, Algorithm 1, on sets of labels.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 26 + [[[0, 0]]] * 24, n_labels=2)
    >>> confident = ConfidentPowerset(sigma=2.0, n_labels=2, threshold=40, sigma_threshold=3.0)
    >>> confident.release(votes, noise.seeded(7)).labels
    array([[-1, -1]])
    """

    sigma: float = noise_sigma(example=7.0)
    n_labels: int = label_count()
    threshold: float = check_threshold(example=25.0)
    sigma_threshold: float = check_sigma(example=12.0)
    max_labels: int = label_cap()
    has_check: ClassVar[bool] = True


@register("partial-powerset", "the most popular set of each group of labels")
@dataclass(frozen=True)
class PartialPowerset(SetVoting):
    """Powerset voting inside declared groups of labels, one election per group; costs add over groups.

    Between the extremes: every label a group of its own is Binary voting, all in one group is Powerset.
    Labels that are in no group have an election of their own.

    Guarantee: one query costs at most `price`: an arg max per group.
    Assumes:   as `Powerset`; the groups are public and do not overlap.
    Reference: "Many labels".

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 0, 1]]] * 45 + [[[0, 0, 0]]] * 5, n_labels=3)
    >>> PartialPowerset(sigma=2.0, n_labels=3, groups=((0, 2),)).release(votes, noise.seeded(7)).labels
    array([[1, 0, 1]])
    """

    sigma: float = noise_sigma(example=7.0)
    n_labels: int = label_count()
    groups: tuple[tuple[int, ...], ...] = parameter(
        "labels that are voted on together", form="groups", example=((0, 1), (2, 3))
    )
    one_price: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.groups
        groups = tuple(listed(group) for group in listed(given))
        every = [label for group in groups for label in group]
        whole = all(is_number(label) and label in range(self.n_labels) for label in every)
        # What is no list has no groups, and is not the same as no groups.
        whole = whole and (bool(groups) or (isinstance(given, Sequence) and not given))
        if not whole or not all(groups) or len(set(every)) < len(every):
            raise ValueError(
                f"Expected groups of labels 0..{self.n_labels - 1}, none empty and no label twice, got "
                f"{self.groups!r}."
            )
        object.__setattr__(self, "groups", tuple(tuple(int(label) for label in group) for group in groups))

    @property
    def label_groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the declared groups, and every other label by itself."""
        grouped = {label for group in self.groups for label in group}
        return (*self.groups, *((label,) for label in range(self.n_labels) if label not in grouped))
