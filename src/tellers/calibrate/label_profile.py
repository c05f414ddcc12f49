"""Ballots on many labels: an assumed profile to make some up from, and what tells one proxy from another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr

from ..errors import require_count, require_fraction, require_positive
from ..label_votes import LabelVotes
from ..mechanisms.labels.outcomes import distinct_ballots

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelProfile:
    """How teachers are expected to vote on many labels, from public assumptions alone.

    A label is true in a share `yes_rate` of the examples, and a share `agreement` of all votes is right; both
    are one number for all labels, or one per label. Teachers say yes as often as it is true, so a rare label
    is missed more often than it is imagined. `correlation` ties the labels of an example together, and the
    mistakes of a teacher on it. As in `Consensus`, a `concentration` below 2 makes most votes easy.

    Nothing in it comes from private data; a wrong assumption only gives a worse plan.

    >>> LabelProfile(yes_rate=0.2)
    LabelProfile(yes_rate=0.2, agreement=0.95, correlation=0.0, concentration=1.5)
    >>> LabelProfile(yes_rate=0.1, agreement=0.7)
    Traceback (most recent call last):
        ...
    ValueError: Expected an agreement above 0.8 for a yes rate of 0.1: who always says no is ...
    """

    yes_rate: float | tuple[float, ...] = 0.1
    agreement: float | tuple[float, ...] = 0.95
    correlation: float = 0.0
    concentration: float = 1.5

    def __post_init__(self) -> None:
        for name in ("yes_rate", "agreement"):
            given = getattr(self, name)
            for value in given if isinstance(given, Sequence) else (given,):
                require_fraction(**{name: value})
            if isinstance(given, Sequence):
                object.__setattr__(self, name, tuple(float(value) for value in given))
        rates, right = np.broadcast_arrays(*self._each(None))
        for rate, share in zip(rates.ravel(), right.ravel(), strict=True):
            least = 1 - 2 * min(rate, 1 - rate)
            if share <= least:
                raise ValueError(
                    f"Expected an agreement above {least:.3g} for a yes rate of {rate:.3g}: who always says "
                    f"{'no' if rate <= 0.5 else 'yes'} is nearly as good as that, got {share:.3g}."
                )
        if not 0 <= self.correlation < 1:
            raise ValueError(f"Expected 0 <= correlation < 1, got correlation={self.correlation!r}.")
        require_positive(concentration=self.concentration)

    def votes(
        self, n_teachers: int, n_labels: int, *, n_queries: int, seed: int
    ) -> tuple[LabelVotes, Booleans]:
        """Return made-up votes and which labels were true, (queries, labels).

        >>> votes, truth = LabelProfile(correlation=0.3).votes(50, 22, n_queries=4, seed=7)
        >>> votes.n_teachers, truth.shape
        (50, (4, 22))
        """
        require_count(n_teachers=n_teachers, n_labels=n_labels, n_queries=n_queries)
        rate, right = self._each(n_labels)
        rng = np.random.default_rng(seed)
        truth = self._uniforms(rng, (n_queries, n_labels)) < rate
        # As many votes are yes as labels are true: missed ones make up for imagined ones.
        missed, imagined = (1 - right) / (2 * rate), (1 - right) / (2 * (1 - rate))
        wrong = np.where(truth, missed, imagined)
        c = self.concentration
        hard = betaincinv(c * wrong, c * (1 - wrong), self._uniforms(rng, wrong.shape))
        ballots = np.empty((n_teachers, n_queries, n_labels), dtype=np.uint8)
        for teacher in range(n_teachers):
            ballots[teacher] = truth ^ (self._uniforms(rng, wrong.shape) < hard)
        return LabelVotes.from_ballots(ballots, n_labels=n_labels), truth

    def _each(self, n_labels: int | None) -> tuple[Floats, Floats]:
        rate, right = np.asarray(self.yes_rate, dtype=float), np.asarray(self.agreement, dtype=float)
        for name, values in (("yes_rate", rate), ("agreement", right)):
            if n_labels is not None and values.shape not in ((), (n_labels,)):
                raise ValueError(
                    f"Expected one {name} for all labels, or one for each of {n_labels}, got {values.size}."
                )
        if rate.ndim and right.ndim and rate.size != right.size:
            raise ValueError(
                f"Expected as many values of yes_rate as of agreement, got {rate.size} and {right.size}."
            )
        return rate, right

    def _uniforms(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return uniform numbers, in each row correlated as a Gaussian copula has it."""
        if self.correlation == 0:
            return rng.random(shape)
        shared = rng.standard_normal((shape[0], 1)) * np.sqrt(self.correlation)
        own = rng.standard_normal(shape) * np.sqrt(1 - self.correlation)
        return np.asarray(ndtr(shared + own))


@dataclass(frozen=True)
class BallotTraits:
    """What about a proxy's ballots decides which mechanism suits them.

    `agreement`: the share of teachers on the larger side of a label, on average; `shared_yes`: the share of
    yes votes that a majority joins, which says more where labels are rare. `ones` and `most_ones`: how many
    labels a ballot says yes to, on average and at the 90th percentile. `top_set`: the share of teachers
    that cast the most popular set of labels; `top_set_if_independent`: what it would be if they disagreed
    on every label for itself. `correlation`: the mean absolute correlation between two labels' votes.
    """

    n_teachers: int
    n_queries: int
    n_labels: int
    agreement: float
    shared_yes: float
    ones: float
    most_ones: int
    top_set: float
    top_set_if_independent: float
    correlation: float


def ballot_traits(votes: LabelVotes) -> BallotTraits:
    """Return what a proxy's ballots are like; private where the votes are.

    >>> votes = LabelVotes.from_ballots([[[1, 0, 0]], [[1, 0, 0]], [[0, 1, 0]], [[1, 0, 0]]], n_labels=3)
    >>> traits = ballot_traits(votes)
    >>> traits.ones, traits.top_set, round(traits.top_set_if_independent, 2)
    (1.0, 0.75, 0.56)
    """
    votes.require_all_labels("a plan")
    sides = _sides(votes)
    ones = votes.block().sum(axis=2)
    winning = 2 * votes.sums > votes.n_teachers * votes.resolution
    return BallotTraits(
        n_teachers=votes.n_teachers,
        n_queries=len(votes),
        n_labels=votes.n_labels,
        agreement=float(sides.mean()),
        shared_yes=float(votes.sums[winning].sum() / max(1, votes.sums.sum())),
        ones=float(ones.mean()),
        most_ones=max(1, int(np.quantile(ones, 0.9, method="higher"))),
        top_set=float(_top_sets(votes)[0].mean() / votes.n_teachers),
        top_set_if_independent=float(np.prod(sides, axis=1).mean()),
        correlation=_correlation(votes),
    )


def label_gaps(votes: LabelVotes) -> NDArray[np.int64]:
    """Return by how many votes each label was decided, (queries, labels); private where the votes are.

    >>> label_gaps(LabelVotes.from_sums([[45, 20]], n_teachers=50))
    array([[40, 10]])
    """
    return np.asarray(np.abs(2 * votes.sums - votes.n_teachers * votes.resolution))


def set_gaps(votes: LabelVotes) -> NDArray[np.int64]:
    """Return by how many ballots the most popular set of labels led, (queries); private where the votes are.

    >>> set_gaps(LabelVotes.from_ballots([[[1, 0]], [[1, 0]], [[1, 0]], [[0, 0]]], n_labels=2))
    array([2])
    """
    first, second = _top_sets(votes)
    return first - second


def _sides(votes: LabelVotes) -> Floats:
    share = votes.sums / (votes.n_teachers * votes.resolution)
    return np.asarray(np.maximum(share, 1 - share))


def _top_sets(votes: LabelVotes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, query, of_teacher = distinct_ballots(votes.block())
    counts = np.bincount(of_teacher.ravel(), minlength=query.size)
    # Sorted by query and then by count, downwards: the first and the second of each query.
    order = np.lexsort((-counts, query))
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    ends = np.append(starts[1:], query.size)
    first = counts[order[starts]]
    second = np.where(ends - starts > 1, counts[order[np.minimum(starts + 1, query.size - 1)]], 0)
    return first, second


def _correlation(votes: LabelVotes) -> float:
    cells = votes.block().reshape(-1, votes.n_labels).astype(np.float64)
    cells = cells[:, cells.std(axis=0) > 0]
    if cells.shape[1] < 2:
        return 0.0
    pairs = np.corrcoef(cells, rowvar=False)[np.triu_indices(cells.shape[1], 1)]
    return float(np.abs(pairs).mean())
