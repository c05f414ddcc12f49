"""Binary voting: every label is an election of its own, yes or no."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ...errors import require_count, require_finite, require_positive
from .fields import store
from .perlabel import PerLabel
from .rules import Rule, free_ballots


@dataclass(frozen=True)
class Binary(PerLabel):
    """Give each label that a majority says yes to, after Gaussian noise `sigma` on the yes and the no count.

    Guarantee: one query costs at most `price`, about 0.637 n_labels order / sigma^2, and never more than
               n_labels order / sigma^2: one unit can change its teacher's mind on every label.
    Assumes:   a strict majority decides; the noise of both counts is drawn as one on their difference.
    Reference: Dullerud et al. 2022, section 3 (Binary voting); its Definition 4 draws one noise and would
               cost 2 order / sigma^2 per label.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[48, 3, 30]], n_teachers=50)
    >>> Binary(sigma=2.0, n_labels=3).release(votes, noise.seeded(7)).labels
    array([[1, 0, 1]])
    """

    sigma: float
    n_labels: int
    resolution: int = 1
    one_price: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(n_labels=self.n_labels, resolution=self.resolution)
        store(self, float, "sigma")
        store(self, int, "n_labels", "resolution")

    @property
    def rule(self) -> Rule:
        """Return that every ballot counts.

        >>> Binary(sigma=2.0, n_labels=3).rule.is_free
        True
        """
        return free_ballots(self.n_labels, self.resolution)

    @property
    def sum_sigma(self) -> float:
        """Return the noise on the yes count alone: a margin of yes minus no moves twice as far.

        >>> round(Binary(sigma=2.0, n_labels=3).sum_sigma, 4)
        1.4142
        """
        return self.sigma / math.sqrt(2)


@dataclass(frozen=True)
class ConfidentBinary(PerLabel):
    """Tell a label only where the noisy count of the larger side reaches `threshold` votes; else be silent.

    Guarantee: one query costs at most `price`: a check and an answer per label. A silent label pays for its
               check alone.
    Assumes:   as `Binary`; the check's noise has standard deviation `sigma_threshold`.
    Reference: Dullerud et al. 2022, appendix (confident multi-label PATE); "Many labels".

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[48, 3, 26]], n_teachers=50)
    >>> confident = ConfidentBinary(sigma=2.0, n_labels=3, threshold=40, sigma_threshold=3.0)
    >>> confident.release(votes, noise.seeded(7)).labels
    array([[ 1,  0, -1]])
    """

    sigma: float
    n_labels: int
    threshold: float
    sigma_threshold: float
    resolution: int = 1
    has_bar: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma, sigma_threshold=self.sigma_threshold)
        require_finite(threshold=self.threshold)
        require_count(n_labels=self.n_labels, resolution=self.resolution)
        store(self, float, "sigma", "threshold", "sigma_threshold")
        store(self, int, "n_labels", "resolution")

    @property
    def rule(self) -> Rule:
        """Return that every ballot counts.

        >>> ConfidentBinary(sigma=2.0, n_labels=3, threshold=40, sigma_threshold=3.0).rule.is_free
        True
        """
        return free_ballots(self.n_labels, self.resolution)

    @property
    def sum_sigma(self) -> float:
        """Return the noise on the yes count alone.

        >>> round(ConfidentBinary(sigma=2.0, n_labels=3, threshold=40, sigma_threshold=3.0).sum_sigma, 4)
        1.4142
        """
        return self.sigma / math.sqrt(2)
