"""Confident-GNMax: answer only where the teachers agree, and stay silent elsewhere."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import as_floats, require_finite, require_positive
from ..noise import Noise
from ..rdp import RdpCurve
from ..release import SILENT, Cost, Release
from ..votes import Unit, Votes
from .argmax import group_classes, win_probabilities
from .check import check_outcomes, whole_thresholds
from .gnmax import GNMax
from .laws import DiscreteGaussian
from .outcomes import Outcomes, assemble
from .suprema import check_supremum


@dataclass(frozen=True)
class ConfidentGNMax:
    """Answer by GNMax(sigma) where the noisy top count reaches the threshold; else stay silent.

    Guarantee: one query costs at most `price`: the check and the answer together. A silent query
               costs its check alone, which `release` accounts for, since silence is public.
    Assumes:   one unit moves one vote, gives it, or keeps it back; the check's noise has standard deviation
               sigma_threshold.
    Reference: Papernot et al. 2018, Algorithm 1 and section 4.2; the check has sensitivity 1.

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> ConfidentGNMax(sigma=5.0, threshold=200, sigma_threshold=9.0).release(votes, noise.seeded(7)).labels
    array([ 0, -1])
    """

    sigma: float
    threshold: float
    sigma_threshold: float
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma, sigma_threshold=self.sigma_threshold)
        require_finite(threshold=self.threshold)
        whole_thresholds(self.threshold)  # refuses what no count can be compared with
        as_floats(self)

    def price(self, unit: Unit) -> RdpCurve:
        """Return the most one query can cost: its check and its answer.

        >>> from tellers import Unit
        >>> mechanism = ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0)
        >>> mechanism.price(Unit()).epsilon(1e-5) > mechanism.check_price(Unit()).epsilon(1e-5)
        True
        """
        return self.check_price(unit) + GNMax(self.sigma).price(unit)

    def check_price(self, unit: Unit) -> RdpCurve:
        """Return the most the check alone can cost, which is what silence costs.

        >>> from tellers import Unit
        >>> mechanism = ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0)
        >>> bool(mechanism.check_price(Unit()).values[0] < 1.25 / (2 * 150**2))
        True
        """
        return check_price(self.sigma_threshold, unit)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Check every query, answer those that pass, and charge both.

        >>> from tellers import Votes, noise
        >>> votes = Votes.from_counts([[240, 10]], n_teachers=250)
        >>> mechanism = ConfidentGNMax(sigma=5.0, threshold=900, sigma_threshold=9.0)
        >>> mechanism.release(votes, noise.secure()).labels
        array([-1])
        """
        margin = (votes.counts - whole_thresholds(self.threshold)).max(axis=1)
        answered = margin + noise.discrete_gaussian(self.sigma_threshold, margin.shape) >= 0
        labels = np.full(len(votes), SILENT, dtype=np.int64)
        return answer(
            votes, noise, sigma=self.sigma, check=self.check_price(votes.unit), where=answered, labels=labels
        )

    def outcomes(self, votes: Votes) -> Outcomes:
        """Return how likely silence and each class are, at these votes and at every neighbour.

        >>> from tellers import Votes
        >>> mechanism = ConfidentGNMax(sigma=5.0, threshold=25, sigma_threshold=9.0)
        >>> np.exp(mechanism.outcomes(Votes.from_counts([[20, 5]], n_teachers=25)).log_labels).round(3)
        array([[0.692, 0.303, 0.005]])
        """
        groups = group_classes(votes.counts, whole_thresholds(self.threshold), unit=votes.unit)
        wins = win_probabilities(groups, DiscreteGaussian(self.sigma))
        return assemble(groups, wins, check_outcomes(groups, self.sigma_threshold))


def check_price(sigma: float, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
    """Return the most a noisy check costs: the two-outcome supremum, or the Gaussian price for odd units.

    A unit moves the checked margin by at most its l-infinity norm, whether by one ballot or by several.

    >>> from tellers import Unit
    >>> twice = Unit(l1=4.0, l2=2.0, linf=1.0)
    >>> bool(check_price(150.0, Unit()).values[0] <= check_price(150.0, twice).values[0])
    True
    """
    if unit.linf < 1 or not float(unit.linf).is_integer():
        return RdpCurve.zcdp(unit.linf**2 / (2 * sigma**2), orders).as_price()
    return check_supremum(sigma, orders, weight=int(unit.linf))


def answer(
    votes: Votes,
    noise: Noise,
    *,
    sigma: float,
    check: RdpCurve,
    where: NDArray[np.bool_],
    labels: NDArray[np.int64],
) -> Release:
    """Fill in the labels of the queries that passed their check, and charge checks and answers.

    >>> import numpy as np
    >>> from tellers import RdpCurve, Votes, noise
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> mask, labels = np.array([True, False]), np.array([-1, -1])
    >>> answer(votes, noise.seeded(7), sigma=5.0, check=RdpCurve.zero(), where=mask, labels=labels).labels
    array([ 0, -1])
    """
    cost = check * len(votes)
    if where.any():
        answers = GNMax(sigma).release(votes[np.flatnonzero(where)], noise)
        labels[where] = answers.labels
        cost = cost + answers.cost.worst
    return Release(labels, Cost(cost), where)
