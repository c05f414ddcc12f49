"""Binary voting that asks causes first and does not ask what follows from them."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count, require_finite, require_positive
from ...label_votes import LabelVotes
from ...noise import Noise
from ...rdp import RdpCurve
from ...release import SILENT, Cost, Release
from ...votes import Unit
from .fields import store
from .implications import Implications, Pairs
from .perlabel import PerLabel, dearest_pair, require_label_votes, require_one_ballot
from .rules import Rule, free_ballots

Integers = NDArray[np.int64]


class CausesFirst(PerLabel):
    """Ask label after label in the order of their implications, and charge those that were asked.

    Before a query the price of all labels is reserved. What is charged is the price of the labels asked: each
    is a release of its own whose price does not depend on the votes, and whether it happens depends on
    earlier outcomes alone, which is what a Rényi filter allows.

    >>> from tellers.mechanisms.labels import DependentBinary
    >>> isinstance(DependentBinary(sigma=5.0, n_labels=3, negative=((0, 1),)), CausesFirst)
    True
    """

    sigma: float
    positive: Pairs
    negative: Pairs
    exact_is_bound: ClassVar[str] = (
        "it is that of telling all labels, and those that follow from others are not asked"
    )

    @property
    def implications(self) -> Implications:
        """Return what follows from what."""
        return Implications(self.n_labels, self.positive, self.negative)

    @property
    def rule(self) -> Rule:
        """Return that every ballot counts."""
        return free_ballots(self.n_labels, self.resolution)

    @property
    def sum_sigma(self) -> float:
        """Return the noise on the yes count alone: a margin of yes minus no moves twice as far."""
        return self.sigma / math.sqrt(2)

    def release(self, votes: LabelVotes, noise: Noise) -> Release:
        """Ask, infer, and charge what was asked; `answered` are the labels that teachers told.

        >>> from tellers import noise
        >>> from tellers.mechanisms.labels import DependentBinary
        >>> votes = LabelVotes.from_sums([[2, 30], [48, 45]], n_teachers=50)
        >>> one = DependentBinary(sigma=2.0, n_labels=2, negative=((0, 1),))
        >>> release = one.release(votes, noise.secure())
        >>> release.labels, release.answered
        (array([[0, 0],
               [1, 1]]), array([[ True, False],
               [ True,  True]]))
        """
        require_label_votes(self, votes)
        law, sums, implications = self.law(votes.n_teachers), self.fitted_sums(votes), self.implications
        labels = np.full(sums.shape, SILENT, dtype=np.int64)
        asked, told = np.zeros(sums.shape, dtype=np.bool_), np.zeros(sums.shape, dtype=np.bool_)
        for level in implications.levels:
            here = list(level)
            labels[:, here] = implications.infer(labels, here)
            open_ = labels[:, here] == SILENT
            asked[:, here] = open_
            # Noise is drawn for all of them, and dropped unseen where nothing is asked.
            given = sums[:, here] + noise.discrete_gaussian(law.sigma, open_.shape) >= law.threshold[here]
            sure = open_
            if law.bar is not None:
                margin = law.bar.margin(sums[:, here])
                sure = open_ & (margin + noise.discrete_gaussian(law.bar.sigma, open_.shape) >= 0)
            labels[:, here] = np.where(sure, given.astype(np.int64), labels[:, here])
            told[:, here] = sure
        # Every ballot counts, so the price of labels is the sum of their prices.
        answers = self.answer_price(votes.unit, 1) * int(told.sum())
        return Release(labels, Cost(self.asked_price(votes.unit, int(asked.sum())) + answers), told)

    def asked_price(self, unit: Unit, n_asked: int, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the checks of so many labels cost; those that follow are not asked.

        >>> from tellers.mechanisms.labels import DependentBinary
        >>> DependentBinary(sigma=5.0, n_labels=3).asked_price(Unit(), 2).epsilon(1e-5)
        0.0
        """
        require_one_ballot(unit)
        if not self.has_bar:
            return RdpCurve.zero(orders)
        return dearest_pair(self.rule, self.bar_sigma * self.resolution, 1, orders) * n_asked


@dataclass(frozen=True)
class DependentBinary(CausesFirst):
    """Binary voting with implications: labels that follow from others are inferred, and not charged.

    `positive` and `negative` are pairs (cause, effect) as in `Implications`, declared or learned from public
    label sets (`dependencies.learn_implications`).

    Guarantee: one query costs at most `price`, that of `Binary` on all labels, and is charged the labels that
               were asked. `outcomes` are those of all labels: what is released can be made from them, so
               the exact cost is an upper bound here.
    Assumes:   as `Binary`; the implications are public.
    Reference: Dullerud et al. 2022, appendix E (label dependencies); Feldman and Zrnic 2021 (filters).

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[3, 48, 30]], n_teachers=50)
    >>> one = DependentBinary(sigma=2.0, n_labels=3, positive=((1, 2),), negative=((0, 2),))
    >>> one.release(votes, noise.seeded(7)).labels
    array([[0, 1, 1]])
    """

    sigma: float
    n_labels: int
    positive: Pairs = ()
    negative: Pairs = ()
    resolution: int = 1

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        _check_fields(self)


@dataclass(frozen=True)
class ConfidentDependentBinary(CausesFirst):
    """Binary voting with implications that tells a label only where enough teachers agree.

    A label that stays silent implies nothing: its effects are asked.

    Guarantee: one query costs at most `price`, that of `ConfidentBinary` on all labels; a label that was
               asked is charged its check, and its answer where it was told.
    Assumes:   as `ConfidentBinary` and `DependentBinary`.
    Reference: as `DependentBinary`.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[3, 48], [26, 48]], n_teachers=50)
    >>> one = ConfidentDependentBinary(
    ...     sigma=2.0, n_labels=2, threshold=40, sigma_threshold=3.0, negative=((0, 1),)
    ... )
    >>> one.release(votes, noise.seeded(7)).labels
    array([[ 0,  0],
           [-1,  1]])
    """

    sigma: float
    n_labels: int
    threshold: float
    sigma_threshold: float
    positive: Pairs = ()
    negative: Pairs = ()
    resolution: int = 1
    has_bar: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma, sigma_threshold=self.sigma_threshold)
        require_finite(threshold=self.threshold)
        _check_fields(self)
        store(self, float, "threshold", "sigma_threshold")


def _check_fields(mechanism: CausesFirst) -> None:
    require_count(n_labels=mechanism.n_labels, resolution=mechanism.resolution)
    store(mechanism, float, "sigma")
    store(mechanism, int, "n_labels", "resolution")
    found = mechanism.implications  # refuses cycles, and pairs that are none
    object.__setattr__(mechanism, "positive", found.positive)
    object.__setattr__(mechanism, "negative", found.negative)
