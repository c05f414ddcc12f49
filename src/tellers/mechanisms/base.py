"""What every mechanism answers: three questions."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ..rdp import RdpCurve
from ..release import Release
from ..votes import Unit


@runtime_checkable
class Mechanism(Protocol):
    """A frozen description of one way to answer queries.

    Its fields are public and may be logged; votes arrive as arguments only. `price` and `release` are
    required; a mechanism without `outcomes` is charged its price.

    Two things a class may say of itself, as attributes that are True: `one_price`, every query costs its
    price, whatever comes out, so that what was spent is known beforehand; `symmetric`, permuted classes give
    permuted outcomes. Neither is assumed of a mechanism that does not say so, and `check_mechanism` holds it
    to its word. Where the divergence of its `outcomes` is above that of what is released, `exact_is_bound`
    says why: the exact cost is then an upper bound, and is called so.
    """

    def price(self, unit: Unit) -> RdpCurve:
        """Return the most one query can cost, whatever the votes."""
        ...

    @property
    def release(self) -> Callable[..., Release]:
        """`release(votes, noise)`: draw noise and return what comes out, with its publishable cost.

        A mechanism that listens to the student takes its probabilities as `student=`, here and below.
        """
        ...

    @property
    def outcomes(self) -> Callable[..., Any]:
        """`outcomes(votes)`: how likely each outcome is, at these votes and at every neighbour.

        `Outcomes`, or for many labels `LabelOutcomes` or `PowersetOutcomes`.
        """
        ...
