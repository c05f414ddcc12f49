"""LNMax: the class with the most votes after Laplace noise, PATE's first aggregator."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from numpy.typing import ArrayLike

from ..errors import as_floats, require_positive
from ..noise import Noise
from ..rdp import RdpCurve
from ..release import Cost, Release
from ..votes import Unit, Votes
from .argmax import group_classes, win_probabilities
from .laws import DiscreteLaplace
from .outcomes import Outcomes, assemble


@dataclass(frozen=True)
class LNMax:
    """Report the class that leads after Laplace noise of scale 1/gamma on every count.

    Guarantee: one query is (2 gamma, 0)-differentially private for one changed ballot. Its Rényi price is
               that of two releases of randomised response at gamma each, about gamma^2 order.
    Assumes:   one unit moves one vote from one class to another; noise from a secure source.
    Reference: Papernot et al. 2017, Theorem 2, charge 2 gamma^2 order for one release at 2 gamma. A moved
               vote shifts two counts by one, each under noise of its own: the privacy loss of a shifted
               discrete Laplace is +-gamma, exactly that of randomised response, and the two add up.

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[200, 50], [30, 220]], n_teachers=250)
    >>> LNMax(gamma=0.5).release(votes, noise.seeded(7)).labels
    array([0, 1])
    """

    gamma: float
    symmetric: ClassVar[bool] = True
    one_price: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(gamma=self.gamma)
        as_floats(self)

    def price(self, unit: Unit) -> RdpCurve:
        """Return the most one query can cost, whatever the votes.

        >>> from tellers import Unit
        >>> bool(LNMax(gamma=0.05).price(Unit()).values.max() <= 0.1)
        True
        """
        if unit.is_one_ballot:
            return laplace_price(self.gamma * unit.linf)
        return RdpCurve.pure(self.gamma * unit.l1).as_price()

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw the noise and return the winners.

        >>> from tellers import Votes, noise
        >>> len(LNMax(gamma=0.05).release(Votes.from_counts([[2, 1]], n_teachers=3), noise.secure()))
        1
        """
        noisy = votes.counts + noise.discrete_laplace(1 / Fraction(self.gamma), votes.counts.shape)
        return Release(noise.break_ties(noisy), Cost(self.price(votes.unit) * len(votes)))

    def outcomes(self, votes: Votes) -> Outcomes:
        """Return how likely each class is to win, at these votes and at every neighbour.

        >>> import math
        >>> from tellers import Votes
        >>> outcomes = LNMax(gamma=0.5).outcomes(Votes.from_counts([[20, 5]], n_teachers=25))
        >>> round(sum(math.exp(p) for p in outcomes.log_labels[0]), 9)
        1.0
        """
        groups = group_classes(votes.counts, unit=votes.unit)
        return assemble(groups, win_probabilities(groups, DiscreteLaplace(1 / self.gamma)))


def laplace_price(gamma: float, orders: ArrayLike | None = None) -> RdpCurve:
    """Return what moving one vote costs under Laplace noise of scale 1/gamma on every count.

    Guarantee: the divergence of the noisy histogram, both directions; it bounds that of its arg max.
    Assumes:   one vote leaves a class and enters another; discrete Laplace noise.
    Reference: see `LNMax`.

    >>> bool(laplace_price(0.05, orders=[8.0]).values[0] <= 0.05**2 * 8.0)
    True
    """
    return 2 * RdpCurve.pure(gamma, orders).as_price()
