"""The noisy histogram: every count, with Gaussian noise; for students that learn from shares of votes."""

from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, Release
from ..privacy.votes import Unit, Votes
from ._fields import noise_sigma
from .registry import check_parameters, register
from .suprema import gaussian_price


@register("histogram", "all noisy counts, for a distilled student")
@dataclass(frozen=True)
class NoisyHistogram:
    """Report every count after Gaussian noise of standard deviation sigma: more than a label, and dearer.

    There are no `outcomes`: a changed ballot shifts two counts by one wherever it is cast, so all votes cost
    the same and an accountant that looks at them gains nothing. At whole orders the divergence equals
    `price`; between them it lies below by what the sum over integers differs from the integral, less than
    rounding for sigma above 2.

    Guarantee: one query costs order * l2^2 / (2 sigma^2), which is order / sigma^2 for one changed ballot.
    Assumes:   one unit moves the counts by at most unit.l2; noise from a secure source.
    Reference: Canonne, Kamath, Steinke 2020, Theorem 4 (each count); Papernot et al. 2018, Proposition 8.

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[200, 50], [30, 220]], n_teachers=250)
    >>> release = NoisyHistogram(sigma=5.0).release(votes, noise.seeded(7))
    >>> release.values
    array([[207,  49],
           [ 29, 212]])
    >>> release.labels
    array([0, 1])
    >>> round((461 * NoisyHistogram(sigma=40.0).price(votes.unit)).epsilon(1e-5), 2)
    3.46
    """

    sigma: float = noise_sigma(example=40.0)
    one_price: ClassVar[bool] = True
    price_method: ClassVar[str] = "histogram-rdp"
    noise_on_counts: ClassVar[str] = "gaussian"
    releases_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_parameters(self)

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return what one query costs, whatever the votes."""
        return gaussian_price(self.sigma, unit, orders)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw the noise and return the noisy counts; their leaders come along as labels, free of charge.

        Noisy counts can be negative and need not sum to the number of teachers.
        """
        noisy = votes.counts + noise.discrete_gaussian(self.sigma, votes.counts.shape)
        cost = Cost(self.price(votes.unit) * len(votes))
        return Release(noise.break_ties(noisy), cost, values=noisy)
