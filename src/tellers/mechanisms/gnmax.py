"""GNMax: the class with the most votes after Gaussian noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from ..privacy.noise import Noise
from ..privacy.rdp import Floats, RdpCurve
from ..privacy.release import Cost, Release
from ..privacy.votes import Unit, Votes
from ._argmax import group_classes, win_probabilities
from ._fields import noise_sigma
from ._gaussian import GaussianArgmax
from ._laws import DiscreteGaussian
from ._outcomes import Outcomes, assemble
from .gap_bounds import gap_envelope, gap_log_moves
from .registry import register
from .suprema import answer_price


@register("gnmax", "Gaussian noise, the winner")
@dataclass(frozen=True)
class GNMax(GaussianArgmax):
    """Report the class that leads after Gaussian noise of standard deviation sigma on every count.

    Guarantee: one query costs at most `price`, about 0.64 order / sigma^2 for orders well below
               sigma, and never more than the noisy histogram's order / sigma^2.
    Assumes:   one unit moves one vote from one class to another, gives it, or keeps it back; noise from a
               secure source.
    Reference: Papernot et al. 2018, Proposition 8 for the histogram; the arg max bound is derived in
               the documentation, "The price of an arg max".

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[200, 50], [30, 220]], n_teachers=250)
    >>> GNMax(sigma=5.0).release(votes, noise.seeded(7)).labels
    array([0, 1])
    >>> few = Votes.from_counts([[20, 5]], n_teachers=25)
    >>> import numpy as np
    >>> np.exp(GNMax(sigma=5.0).outcomes(few).log_labels).round(3)
    array([[0.   , 0.983, 0.017]])
    >>> GNMax(sigma=5.0).log_envelope(few, order=8.0, offsets=[1.0])[1].shape
    (1, 14)
    """

    sigma: float = noise_sigma(example=40.0)
    symmetric: ClassVar[bool] = True
    one_price: ClassVar[bool] = True
    publishable: ClassVar[tuple[str, ...]] = ("envelope", "gnss")
    confidential: ClassVar[bool] = True

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most one query can cost, whatever the votes.

        >>> from tellers import Unit
        >>> round((461 * GNMax(sigma=40.0).price(Unit())).epsilon(1e-5), 2)
        2.69
        """
        return answer_price(self.sigma, unit, orders)

    def histogram_price(self, unit: Unit) -> RdpCurve:
        """Return the price of showing the whole noisy histogram, which also bounds its arg max.

        >>> from tellers import Unit
        >>> round((461 * GNMax(sigma=40.0).histogram_price(Unit())).epsilon(1e-5), 2)
        3.46
        """
        return RdpCurve.zcdp(unit.l2**2 / (2 * self.sigma**2)).as_price()

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw the noise and return the winners."""
        noisy = votes.counts + noise.discrete_gaussian(self.sigma, votes.counts.shape)
        return Release(noise.break_ties(noisy), Cost(self.price(votes.unit) * len(votes)))

    def outcomes(self, votes: Votes) -> Outcomes:
        """Return how likely each class is to win, at these votes and at every neighbour."""
        groups = group_classes(votes.counts, unit=votes.unit)
        return assemble(groups, win_probabilities(groups, DiscreteGaussian(self.sigma)))

    def log_envelope(self, votes: Votes, *, order: float, offsets: Sequence[float]) -> tuple[float, Floats]:
        """Return the envelope, and how fast log(1 + it / offset) moves, (offsets, distances); private."""
        table = gap_envelope(votes.n_teachers, votes.n_classes, sigma=self.sigma, order=order)
        return float(table[votes.gap].sum()), gap_log_moves(table, votes.gap, offsets)
