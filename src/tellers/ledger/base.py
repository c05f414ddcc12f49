"""What a ledger promises."""

from dataclasses import dataclass
from typing import Any, Protocol

from ..rdp import RdpCurve
from ..release import Release


@dataclass(frozen=True)
class Ticket:
    """The receipt of a reservation: what was debited, for which question, before any noise was drawn."""

    key: str
    price: RdpCurve
    event: dict[str, Any]


class Ledger(Protocol):
    """Memory of what was spent: debit before noise is drawn, settle after.

    A key asked twice returns its recorded release and costs nothing more. A reservation that is
    never settled stays charged.
    """

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited so far, reservations included."""
        ...

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None."""
        ...

    def reserve(self, key: str, price: RdpCurve, *, event: dict[str, Any]) -> Ticket:
        """Debit a price before any noise is drawn, or refuse."""
        ...

    def settle(self, ticket: Ticket, release: Release) -> None:
        """Record the outcome and give back what was not used."""
        ...
