"""Tau voting: ballots are clipped to a norm, so that nobody has much to say on many labels at once."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ...errors import require_count, require_finite, require_positive
from .fields import require_norm, store
from .perlabel import PerLabel
from .rules import Norm, Rule, clipped_ballots

_PARTS = 100  # a clipped vote counts in hundredths


@dataclass(frozen=True)
class Tau(PerLabel):
    """Scale every ballot down to norm `max_norm`, then decide label by label as `Binary` does.

    Guarantee: one query costs at most `price`, the dearest pair of clipped ballots: for l2 at most
               0.637 min(n_labels, 2 max_norm^2) order / sigma^2 at orders well below sigma, since two ballots
               without a common label are that far apart.
    Assumes:   ballots of 0 and 1; a clipped vote is rounded down to 1 / `resolution`.
    Reference: Dullerud et al. 2022 (tau voting) charge max_norm^2 order / sigma^2, which the exact divergence
               exceeds; see "Many labels".

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 1, 0, 0]]] * 40 + [[[1, 1, 1, 1]]] * 10, n_labels=4)
    >>> Tau(sigma=2.0, n_labels=4, max_norm=1.5).release(votes, noise.seeded(7)).labels
    array([[1, 1, 0, 0]])
    """

    sigma: float
    n_labels: int
    max_norm: float
    norm: Norm = "l2"
    resolution: int = _PARTS
    one_price: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True
    votes_resolution: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_norm(self.max_norm, self.norm)
        require_count(n_labels=self.n_labels, resolution=self.resolution)
        store(self, float, "sigma", "max_norm")
        store(self, int, "n_labels", "resolution")

    @property
    def rule(self) -> Rule:
        """Return how ballots are clipped.

        >>> Tau(sigma=2.0, n_labels=4, max_norm=1.5).rule.values
        (0, 100, 100, 86, 75)
        """
        return clipped_ballots(self.n_labels, self.max_norm, self.norm, self.resolution)

    @property
    def sum_sigma(self) -> float:
        """Return the noise on the yes count alone, in votes.

        >>> round(Tau(sigma=2.0, n_labels=4, max_norm=1.5).sum_sigma, 4)
        1.4142
        """
        return self.sigma / math.sqrt(2)


@dataclass(frozen=True)
class ConfidentTau(PerLabel):
    """Tau voting that tells a label only where the noisy count of the larger side reaches `threshold`.

    Guarantee: one query costs at most `price`: the checks and the answers, each at its dearest pair of
               ballots. A silent label pays for its check alone.
    Assumes:   as `Tau`; the no count is the number of teachers minus the yes count.
    Reference: as `Tau`.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 26 + [[[0, 0]]] * 24, n_labels=2)
    >>> confident = ConfidentTau(sigma=2.0, n_labels=2, max_norm=1.5, threshold=40, sigma_threshold=3.0)
    >>> confident.release(votes, noise.seeded(7)).labels
    array([[-1,  0]])
    """

    sigma: float
    n_labels: int
    max_norm: float
    threshold: float
    sigma_threshold: float
    norm: Norm = "l2"
    resolution: int = _PARTS
    has_bar: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True
    votes_resolution: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma, sigma_threshold=self.sigma_threshold)
        require_finite(threshold=self.threshold)
        require_norm(self.max_norm, self.norm)
        require_count(n_labels=self.n_labels, resolution=self.resolution)
        store(self, float, "sigma", "max_norm", "threshold", "sigma_threshold")
        store(self, int, "n_labels", "resolution")

    @property
    def rule(self) -> Rule:
        """Return how ballots are clipped.

        >>> ConfidentTau(sigma=2.0, n_labels=2, max_norm=1.0, threshold=40, sigma_threshold=3.0).rule.values
        (0, 100, 70)
        """
        return clipped_ballots(self.n_labels, self.max_norm, self.norm, self.resolution)

    @property
    def sum_sigma(self) -> float:
        """Return the noise on the yes count alone, in votes.

        >>> one = ConfidentTau(sigma=2.0, n_labels=2, max_norm=1.0, threshold=40, sigma_threshold=3.0)
        >>> round(one.sum_sigma, 4)
        1.4142
        """
        return self.sigma / math.sqrt(2)
