"""A ledger that lives as long as the process: for notebooks and tests."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..budget import Accountant
from ..errors import InsecureNoise, LedgerConflict
from ..rdp import RdpCurve
from ..release import Release
from .base import Ticket


@dataclass(eq=False)
class MemoryLedger:
    """Keep the books in memory: nothing is overspent, nothing is answered twice for two prices.

    Guarantee: the sum of all debits never passes the budget; seeded noise is refused.
    Assumes:   the process does not outlive its budget: what it spent is forgotten when it ends.
    Reference: Feldman and Zrnic 2021: returning the unused part of a price keeps the guarantee.

    >>> from tellers import Accountant, Budget, GNMax, Unit, describe, noise
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=0.5, delta=1e-5)))
    >>> mechanism, source = GNMax(sigma=40.0), noise.secure()
    >>> ticket = ledger.reserve("q0", mechanism.price(Unit()), event=describe(mechanism, source))
    >>> ledger.spent.epsilon(1e-5) > 0
    True
    """

    accountant: Accountant
    allow_seeded: bool = False
    _debits: dict[str, RdpCurve] = field(default_factory=dict, repr=False)
    _events: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    _releases: dict[str, Release] = field(default_factory=dict, repr=False)
    _closed: set[str] = field(default_factory=set, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited so far, reservations included.

        >>> from tellers import Accountant, Budget
        >>> MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5))).spent.epsilon(1e-5)
        0.0
        """
        with self._lock:
            total = RdpCurve.zero()
            for debit in self._debits.values():
                total = total + debit
            return total

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None.

        >>> from tellers import Accountant, Budget
        >>> MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5))).find("q0") is None
        True
        """
        with self._lock:
            return self._releases.get(key)

    def reserve(self, key: str, price: RdpCurve, *, event: dict[str, Any]) -> Ticket:
        """Debit a price before any noise is drawn, or refuse.

        >>> from tellers import Accountant, Budget, Cost
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
        >>> ledger.reserve("q0", RdpCurve.zcdp(9.0), event={"noise": "secure"})
        Traceback (most recent call last):
            ...
        tellers.errors.BudgetExhausted: Query 'q0' would take epsilon to ..., past the budget of 1.0. ...
        """
        if event.get("noise") != "secure" and not self.allow_seeded:
            raise InsecureNoise(
                f"Expected secure noise, got {event.get('noise')!r}. Use noise.secure(), or open the ledger "
                "with allow_seeded=True for an experiment that protects nobody."
            )
        with self._lock:
            if key in self._debits:
                raise LedgerConflict(
                    f"Key {key!r} was reserved before. "
                    "Ask find(key) for its release; use a new key for a new question."
                )
            self.accountant.require(self.spent, price, key=key)
            self._debits[key] = price
            self._events[key] = dict(event)
            return Ticket(key, price, dict(event))

    def settle(self, ticket: Ticket, release: Release) -> None:
        """Record the outcome and give back what was not used.

        >>> from tellers import Accountant, Budget, Cost
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=9.0, delta=1e-5)))
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.settle(ticket, Release(np.array([3]), Cost(RdpCurve.zcdp(0.05))))
        >>> float(ledger.spent.values[0]) == 1.25 * 0.05
        True
        """
        with self._lock:
            reserved = self._debits.get(ticket.key)
            if reserved is None:
                raise LedgerConflict(f"Key {ticket.key!r} was never reserved here.")
            if ticket.key in self._closed:
                raise LedgerConflict(f"Key {ticket.key!r} was settled before; its release is on record.")
            used = release.cost.worst
            if not np.array_equal(used.orders, reserved.orders):
                raise LedgerConflict(
                    f"Key {ticket.key!r} was reserved on another grid of orders than its cost; all of the "
                    "reservation stays charged. Build both on the same grid."
                )
            self._closed.add(ticket.key)
            # More than was reserved was never afforded: the larger of the two is charged, and said.
            if np.any(used.values > reserved.values * (1 + 1e-9)):
                self._debits[ticket.key] = RdpCurve(used.orders, np.maximum(used.values, reserved.values))
                raise LedgerConflict(
                    f"Key {ticket.key!r} cost more than its price; all of it is charged. "
                    "Reserve one price per query."
                )
            self._debits[ticket.key] = used
            self._releases[ticket.key] = release.record()

    def __enter__(self) -> "MemoryLedger":
        return self

    def __exit__(self, *_exc: object) -> None:
        return None
