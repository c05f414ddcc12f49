"""What every mechanism answers: three questions."""

from typing import Protocol, runtime_checkable

from ..noise import Noise
from ..rdp import RdpCurve
from ..release import Release
from ..votes import Unit, Votes
from .outcomes import Outcomes


@runtime_checkable
class Mechanism(Protocol):
    """A frozen description of one way to answer queries.

    Its fields are public and may be logged; votes arrive as arguments only. `price` and `release`
    are required; a mechanism without `outcomes` is charged its price.
    """

    def price(self, unit: Unit) -> RdpCurve:
        """Return the most one query can cost, whatever the votes."""
        ...

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw noise and return what comes out, with its publishable cost."""
        ...

    def outcomes(self, votes: Votes) -> Outcomes:
        """Return how likely each outcome is, at these votes and at every neighbour."""
        ...
