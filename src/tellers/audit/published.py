"""Published claims that do not hold, as something that an audit can try."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import require_count, require_positive
from ..label_bounds import as_published_tau
from ..label_votes import LabelVotes
from ..mechanisms import Mechanism
from ..mechanisms.labels import Tau
from ..mechanisms.labels.adaptive import as_published_share
from ..noise import Noise
from ..rdp import RdpCurve
from ..release import Cost, Release
from ..votes import Unit
from .law import Pair


@dataclass(frozen=True)
class AdaptiveAsPublished:
    """GNThreshold at the middle of the largest gap between the sums, as printed: for audits only.

    Guarantee: none. The threshold jumps when one ballot changes which gap is the largest.
    Assumes:   nothing.
    Reference: the thesis on private audio tagging, Definition 11. A sound one: `AdaptiveGNThreshold`.

    >>> from tellers import noise
    >>> votes = LabelVotes.from_sums([[50, 25, 0]], n_teachers=50)
    >>> AdaptiveAsPublished(sigma=1.0, n_labels=3).release(votes, noise.seeded(7)).labels
    array([[1, 0, 0]])
    """

    sigma: float
    n_labels: int
    multilabel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(2, n_labels=self.n_labels)

    def price(self, unit: Unit) -> RdpCurve:
        """Return the price that was claimed: that of the labels, as if the threshold had been fixed.

        >>> float(AdaptiveAsPublished(sigma=5.0, n_labels=4).price(Unit()).values[3].round(6))
        0.16
        """
        if unit != Unit():
            raise ValueError(f"Expected a unit behind one ballot of one vote, got {unit}.")
        return RdpCurve.zcdp(self.n_labels / (2 * self.sigma**2))

    def release(self, votes: LabelVotes, noise: Noise) -> Release:
        """Take each query's threshold from its sums, and decide every label at it.

        >>> from tellers import noise
        >>> votes = LabelVotes.from_sums([[50, 26, 0]], n_teachers=50)
        >>> AdaptiveAsPublished(sigma=1.0, n_labels=3).release(votes, noise.seeded(7)).labels
        array([[1, 1, 0]])
        """
        distinct, which = np.unique(votes.sums, axis=0, return_inverse=True)
        shares = np.array([as_published_share(row / votes.n_teachers) for row in distinct])
        # A middle is whole or halfway between whole sums; rounding keeps it from lying a hair beside that.
        limits = np.round(shares * votes.n_teachers, 6)[which.reshape(-1)]
        noisy = votes.sums + noise.discrete_gaussian(self.sigma, votes.sums.shape)
        given = noisy > limits[:, None]
        return Release(given.astype(np.int64), Cost(self.price(votes.unit) * len(votes)))

    def pair(self, n_teachers: int) -> Pair:
        """Return the votes at which the threshold jumps: two gaps of equal size, and one ballot between them.

        >>> AdaptiveAsPublished(sigma=5.0, n_labels=3).pair(50)
        Pair([50, 25, 0] | [50, 26, 0], n_teachers=50)
        """
        require_count(4, n_teachers=n_teachers)
        sums = np.zeros((2, self.n_labels), dtype=np.int64)
        sums[:, 0] = n_teachers
        sums[:, 1] = n_teachers // 2
        sums[1, 1] += 1
        here, there = (LabelVotes.from_sums(row[None], n_teachers=n_teachers) for row in sums)
        return Pair(here, there)


def published_claim(mechanism: Mechanism) -> RdpCurve:
    """Return what a paper charges one query, where that is too little.

    Guarantee: none: that is why it is here.
    Assumes:   nothing.
    Reference: Dullerud et al. 2022 for tau voting; the thesis on private audio tagging for the threshold.

    >>> from tellers import Tau
    >>> tau = Tau(sigma=5.0, n_labels=4, max_norm=2**0.5)
    >>> bool((published_claim(tau).values < tau.price(Unit()).values).all())
    True
    """
    if isinstance(mechanism, Tau):
        return as_published_tau(mechanism.sigma, mechanism.max_norm, norm=mechanism.norm)
    if isinstance(mechanism, AdaptiveAsPublished):
        return mechanism.price(Unit())
    raise ValueError(
        f"Expected tau voting or the adaptive threshold, whose published prices do not hold, got "
        f"{type(mechanism).__name__}. Leave the published claim out: its own price is audited."
    )
