"""LNMax: the class with the most votes after Laplace noise, PATE's first aggregator."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from ..privacy._price import Item
from ..privacy.noise import Noise
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.release import Cost, Release
from ..privacy.votes import Unit, Votes
from ._argmax import group_classes, win_probabilities
from ._clock import LaplaceArgmaxClock, RangeClock
from ._laws import DiscreteLaplace
from ._outcomes import Outcomes, assemble
from .published import published_lnmax
from .registry import check_parameters, parameter, register
from .sensitivity import lnmax_sensitivities


@register("lnmax", "Laplace noise, the winner")
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
    >>> few, quiet = Votes.from_counts([[20, 5]], n_teachers=25), LNMax(gamma=0.2)
    >>> import numpy as np
    >>> round(float(np.exp(quiet.outcomes(few).log_labels).sum()), 9)
    1.0
    >>> bool(quiet.published(few, orders=[8.0]) < quiet.price(few.unit, [8.0]).values)
    True
    >>> quiet.published_sensitivities(few, order=8.0)[1].size
    26
    """

    gamma: float = parameter(
        "the noise on every count has scale 1 / gamma", above=0, example=0.05, in_votes=-1
    )
    symmetric: ClassVar[bool] = True
    one_price: ClassVar[bool] = True
    price_method: ClassVar[str] = "pure-dp-rdp"
    noise_on_counts: ClassVar[str] = "laplace"
    publishable: ClassVar[tuple[str, ...]] = ("gnss",)

    def __post_init__(self) -> None:
        check_parameters(self)

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most one query can cost, whatever the votes."""
        if unit.is_one_ballot:
            return _argmax_item(self.gamma, int(unit.linf), tuple(check_orders(orders))).price()
        curve = RdpCurve.pure(self.gamma * unit.l1, orders).as_price()
        return Item((curve,), RangeClock(self.gamma * unit.l1, pure=True)).price()

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw the noise and return the winners."""
        noisy = votes.counts + noise.discrete_laplace(1 / Fraction(self.gamma), votes.counts.shape)
        return Release(noise.break_ties(noisy), Cost(self.price(votes.unit) * len(votes)))

    def outcomes(self, votes: Votes) -> Outcomes:
        """Return how likely each class is to win, at these votes and at every neighbour."""
        groups = group_classes(votes.counts, unit=votes.unit)
        return assemble(groups, win_probabilities(groups, DiscreteLaplace(1 / self.gamma)))

    def published(self, votes: Votes, *, orders: ArrayLike | None = None, answered: Any = None) -> Floats:
        """Return the paper's data-dependent cost of all these votes, at each order; private."""
        return published_lnmax(votes, self.gamma, orders=orders, total=True)

    def published_sensitivities(
        self, votes: Votes, *, order: float, answered: ArrayLike | None = None
    ) -> tuple[float, Floats]:
        """Return the paper's bound of the forward direction, and its local sensitivities; private."""
        return lnmax_sensitivities(votes.counts, votes.n_teachers, gamma=self.gamma, order=order, drawn=True)


@lru_cache(maxsize=1024)
def _argmax_item(gamma: float, weight: int, orders: tuple[float, ...]) -> Item:
    # On a clock the arg max costs less than the noisy histogram that the curve is of.
    return Item((laplace_price(gamma * weight, orders),), LaplaceArgmaxClock(gamma, weight))


def laplace_price(gamma: float, orders: ArrayLike | None = None) -> RdpCurve:
    """Return what moving one vote costs under Laplace noise of scale 1/gamma on every count.

    Guarantee: the divergence of the noisy histogram, both directions; it bounds that of its arg max.
    Assumes:   one vote leaves a class and enters another; discrete Laplace noise.
    Reference: see `LNMax`.
    """
    return 2 * RdpCurve.pure(gamma, orders).as_price()
