"""Powerset voting: a ballot is one vote for one set of labels, and the most popular set wins.

There are 2^k sets and at most as many ballots as teachers: all sets without a vote are alike. They enter as
one group of bins, so that time depends on the number of distinct ballots only. Their largest noise is drawn
at once, by its distribution function, in floating point: an exact draw would need the maximum of 2^k whole
numbers and its ties. The noise of sets that somebody voted for is whole and exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count, require_finite, require_positive
from ...label_votes import LabelVotes
from ...noise import Noise
from ...rdp import RdpCurve
from ...release import SILENT, Cost, Release
from ...votes import Unit
from ..argmax import Groups, win_probabilities
from ..check import check_outcomes
from ..outcomes import Outcomes, assemble
from ..suprema import argmax_supremum, check_supremum
from .bins import Bins, ManyBins, PowersetOutcomes, n_sets
from .fields import is_number, listed, store
from .outcomes import distinct_ballots
from .perlabel import require_label_votes, require_one_ballot
from .rules import few_labels

Integers = NDArray[np.int64]

# 2^k must fit a float: more labels need a cap on how many of them a set may hold.
_MOST_LABELS = 1000


class SetVoting:
    """Vote on sets of labels: inside each of `label_groups` the most popular set wins, after noise.

    >>> isinstance(Powerset(sigma=2.0, n_labels=3), SetVoting)
    True
    """

    sigma: float
    n_labels: int
    max_labels: int = 0
    resolution: ClassVar[int] = 1
    multilabel: ClassVar[bool] = True

    @property
    def needs_ballots(self) -> bool:
        """Return that sums alone do not do: sets are counted, not labels."""
        return True

    @property
    def label_groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups of labels that are voted on together."""
        return (tuple(range(self.n_labels)),)

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most one query can cost: an arg max per group, whatever the number of sets.

        >>> from tellers import GNMax, Unit
        >>> small, large = Powerset(sigma=9.0, n_labels=3), Powerset(sigma=9.0, n_labels=200)
        >>> one = GNMax(sigma=9.0).price(Unit()).values
        >>> bool((small.price(Unit()).values == one).all() and (large.price(Unit()).values == one).all())
        True
        """
        return self.check_price(unit, orders) + self.answer_price(unit, orders)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the check costs, where there is one.

        >>> from tellers import Unit
        >>> float(Powerset(sigma=9.0, n_labels=3).check_price(Unit()).values.max())
        0.0
        """
        require_one_ballot(unit)
        return RdpCurve.zero(orders)

    def answer_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the winning sets cost.

        >>> from tellers import Unit
        >>> one = Powerset(sigma=9.0, n_labels=4).answer_price(Unit()).values
        >>> two = PartialPowerset(sigma=9.0, n_labels=4, groups=((0, 1), (2, 3))).answer_price(Unit()).values
        >>> bool(np.allclose(two, 2 * one))
        True
        """
        require_one_ballot(unit)
        return argmax_supremum(self.sigma, orders) * len(self.label_groups)

    def release(self, votes: LabelVotes, noise: Noise) -> Release:
        """Draw the noise and return the labels of the winning sets.

        >>> from tellers import noise
        >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 50, n_labels=2)
        >>> Powerset(sigma=2.0, n_labels=2).release(votes, noise.secure()).labels.shape
        (1, 2)
        """
        require_label_votes(self, votes)
        labels = np.empty(votes.sums.shape, dtype=np.int64)
        for group, bins in self.bins(votes):
            labels[:, group] = bins.winners(self.sigma, noise, self.max_labels)
        return Release(labels, Cost(self.price(votes.unit) * len(votes)))

    def outcomes(self, votes: LabelVotes) -> PowersetOutcomes:
        """Return who wins how often, at these votes and at every neighbour, per distinct ballot.

        >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 50, n_labels=2)
        >>> Powerset(sigma=2.0, n_labels=2).outcomes(votes).n_ballots
        1
        """
        ballots = self._fitted(votes)
        _, query, of_teacher = distinct_ballots(ballots)
        parts = []
        for _, bins in self.bins(votes):
            # Which set of this group a whole ballot voted for: any teacher that cast it knows.
            own = np.empty(query.size, dtype=np.int64)
            own[of_teacher.ravel()] = bins.of_teacher.ravel()
            parts += bins.parts(self, own, query)
        return PowersetOutcomes(parts, query.size, of_teacher)

    def bin_outcomes(self, groups: Groups, log_bins: float) -> Outcomes:
        """Return the outcomes of one group's election.

        >>> from ..argmax import group_classes
        >>> len(Powerset(sigma=2.0, n_labels=2).bin_outcomes(group_classes(np.array([[6, 4, 0]])), 1.1))
        1
        """
        return assemble(groups, win_probabilities(groups, ManyBins(self.sigma, log_bins)))

    def thresholds(self, counts: Integers) -> Integers | None:
        """Return what the counts are checked against, where there is a check.

        >>> Powerset(sigma=2.0, n_labels=2).thresholds(np.array([[6, 4, 0]])) is None
        True
        """
        return None

    def _fitted(self, votes: LabelVotes) -> Integers:
        require_label_votes(self, votes)
        if votes.ballots is None:
            raise ValueError("Expected votes with ballots, got sums alone: sets are counted, not labels.")
        ballots = votes.block()
        return few_labels(self.n_labels, self.max_labels).fit(ballots) if self.max_labels else ballots

    def bins(self, votes: LabelVotes) -> list[tuple[list[int], Bins]]:
        """Return the labels of every group, and the sets of them that were voted for; private.

        >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 50, n_labels=2)
        >>> [(group, found.counts.tolist()) for group, found in Powerset(2.0, 2).bins(votes)]
        [([0, 1], [[50, 0]])]
        """
        ballots = self._fitted(votes)
        return [
            (list(group), Bins.of(ballots[:, :, list(group)], n_sets(len(group), self.max_labels)))
            for group in self.label_groups
        ]


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

    sigma: float
    n_labels: int
    max_labels: int = 0
    one_price: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_set_fields(self)


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

    sigma: float
    n_labels: int
    threshold: float
    sigma_threshold: float
    max_labels: int = 0

    def __post_init__(self) -> None:
        check_set_fields(self)
        require_positive(sigma_threshold=self.sigma_threshold)
        require_finite(threshold=self.threshold)
        store(self, float, "threshold", "sigma_threshold")

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the check costs, which is what silence costs.

        >>> from tellers import Unit
        >>> one = ConfidentPowerset(sigma=2.0, n_labels=2, threshold=40, sigma_threshold=30.0)
        >>> bool(one.check_price(Unit()).epsilon(1e-5) < one.price(Unit()).epsilon(1e-5))
        True
        """
        require_one_ballot(unit)
        return check_supremum(self.sigma_threshold, orders)

    def release(self, votes: LabelVotes, noise: Noise) -> Release:
        """Check every query, answer those that pass, and charge both.

        >>> from tellers import LabelVotes, noise
        >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 50, n_labels=2)
        >>> one = ConfidentPowerset(sigma=2.0, n_labels=2, threshold=400, sigma_threshold=3.0)
        >>> one.release(votes, noise.secure()).labels
        array([[-1, -1]])
        """
        (_, bins), *_ = self.bins(votes)
        margin = bins.counts.max(axis=1) - math.ceil(self.threshold)
        opened = margin + noise.discrete_gaussian(self.sigma_threshold, margin.shape) >= 0
        labels = np.full(votes.sums.shape, SILENT, dtype=np.int64)
        cost = self.check_price(votes.unit) * len(votes)
        if opened.any():
            rows = np.flatnonzero(opened)
            answers = Powerset(self.sigma, self.n_labels, self.max_labels).release(votes[rows], noise)
            labels[rows] = answers.labels
            cost = cost + answers.cost.worst
        return Release(labels, Cost(cost), np.broadcast_to(opened[:, None], labels.shape).copy())

    def thresholds(self, counts: Integers) -> Integers | None:
        """Return the whole number that the top count must reach.

        >>> one = ConfidentPowerset(sigma=2.0, n_labels=2, threshold=39.5, sigma_threshold=3.0)
        >>> one.thresholds(np.array([[45, 5]]))
        array([[40, 40]])
        """
        return np.full(counts.shape, math.ceil(self.threshold), dtype=np.int64)

    def bin_outcomes(self, groups: Groups, log_bins: float) -> Outcomes:
        """Return the outcomes of the election, silence among them.

        >>> from ..argmax import group_classes
        >>> groups = group_classes(np.array([[6, 4, 0]]), np.array([[5, 5, 5]]))
        >>> one = ConfidentPowerset(sigma=2.0, n_labels=2, threshold=5, sigma_threshold=3.0)
        >>> bool(np.isfinite(one.bin_outcomes(groups, math.log(3)).log_labels[0, 0]))
        True
        """
        wins = win_probabilities(groups, ManyBins(self.sigma, log_bins))
        return assemble(groups, wins, check_outcomes(groups, self.sigma_threshold))


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

    sigma: float
    n_labels: int
    groups: tuple[tuple[int, ...], ...]
    one_price: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_set_fields(self)
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
        """Return the declared groups, and every other label by itself.

        >>> PartialPowerset(sigma=2.0, n_labels=4, groups=((0, 2),)).label_groups
        ((0, 2), (1,), (3,))
        """
        grouped = {label for group in self.groups for label in group}
        return (*self.groups, *((label,) for label in range(self.n_labels) if label not in grouped))


def check_set_fields(mechanism: Any) -> None:
    """Refuse fields that are out of range, and store them as plain numbers.

    >>> Powerset(sigma=2.0, n_labels=1500)
    Traceback (most recent call last):
        ...
    ValueError: Expected at most 1000 labels, or a cap max_labels on the size of a set, got 1500 labels.
    """
    require_positive(sigma=mechanism.sigma)
    require_count(n_labels=mechanism.n_labels)
    require_count(0, max_labels=mechanism.max_labels)
    if mechanism.max_labels > mechanism.n_labels:
        raise ValueError(
            f"Expected max_labels <= n_labels={mechanism.n_labels} (0: no cap), got {mechanism.max_labels}."
        )
    if n_sets(mechanism.n_labels, mechanism.max_labels) > 2**_MOST_LABELS:
        raise ValueError(
            f"Expected at most {_MOST_LABELS} labels, or a cap max_labels on the size of a set, got "
            f"{mechanism.n_labels} labels."
        )
    store(mechanism, float, "sigma")
    store(mechanism, int, "n_labels", *(["max_labels"] if "max_labels" in vars(mechanism) else []))
