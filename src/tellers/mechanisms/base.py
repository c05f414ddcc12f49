"""What every mechanism answers: three questions."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ..rdp import RdpCurve
from ..release import Release
from ..votes import Unit
from .outcomes import Outcomes


@runtime_checkable
class Mechanism(Protocol):
    """A frozen description of one way to answer queries.

    Its fields are public and may be logged; votes arrive as arguments only. `price` and `release` are
    required; a mechanism without `outcomes` is charged its price.
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
    def outcomes(self) -> Callable[..., Outcomes]:
        """`outcomes(votes)`: how likely each outcome is, at these votes and at every neighbour."""
        ...
