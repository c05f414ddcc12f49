"""What a ledger promises, and the rules that every backend keeps."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

import numpy as np

from ..budget import Accountant, Budget
from ..errors import InsecureNoise, LedgerConflict, Unsettled
from ..rdp import RdpCurve
from ..release import Release


@dataclass(frozen=True)
class Ticket:
    """The receipt of a reservation: what was debited, for which question, before any noise was drawn."""

    key: str
    price: RdpCurve
    event: dict[str, Any]
    also: Mapping[str, RdpCurve] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Charge:
    """What one named account was debited for a question, and what it is charged now.

    >>> paid = Charge(reserved=RdpCurve.zcdp(0.1), charged=RdpCurve.zcdp(0.05))
    >>> bool((paid.charged.values <= paid.reserved.values).all())
    True
    """

    reserved: RdpCurve
    charged: RdpCurve


@dataclass(frozen=True, eq=False)
class AccountState:
    """A named account: its budget, the Rényi order that is held at, and all that was debited so far.

    >>> state = AccountState(Budget(epsilon=1.0, delta=1e-5), 18.0, spent=RdpCurve.zcdp(0.01))
    >>> round(state.epsilon, 3), state.accountant.affords(state.spent, RdpCurve.zcdp(0.01))
    (0.546, True)
    """

    budget: Budget
    held_at: float
    spent: RdpCurve

    @property
    def accountant(self) -> Accountant:
        """Return the arithmetic of this account, at its own order."""
        return Accountant(self.budget, order=self.held_at)

    @property
    def epsilon(self) -> float:
        """Return the epsilon of what was spent, at the account's delta."""
        return self.spent.epsilon(self.budget.delta)


@dataclass(frozen=True, eq=False)
class Entry:
    """One question on the books: what was reserved for it, what is charged now, and what came out.

    `charged` is the whole reservation until it is settled. A question that is not settled, or that cost
    more than its price, has no release. `also` says the same for every named account that paid too.

    >>> entry = Entry("q0", {"noise": "secure"}, RdpCurve.zcdp(0.1), charged=RdpCurve.zcdp(0.1))
    >>> entry.is_settled, entry.release is None
    (False, True)
    """

    key: str
    event: dict[str, Any]
    reserved: RdpCurve
    charged: RdpCurve
    is_settled: bool = False
    release: Release | None = None
    also: Mapping[str, Charge] = field(default_factory=dict)


class Ledger(Protocol):
    """Memory of what was spent: debit before noise is drawn, settle after.

    The main account holds the budget of the data; named accounts hold those of whoever asks, or of groups
    of people. A key asked twice returns its recorded release and costs nothing more. A reservation that
    is never settled stays charged. `testing.check_ledger` tries all of it.
    """

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited so far, reservations included."""
        ...

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None."""
        ...

    def asked(self, key: str) -> dict[str, Any] | None:
        """Return the event that a key was reserved for, settled or not, or None."""
        ...

    def open_account(self, name: str, budget: Budget) -> None:
        """Give a student, an analyst or a group a budget of its own, for good."""
        ...

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account."""
        ...

    def reserve(
        self,
        key: str,
        price: RdpCurve,
        *,
        event: dict[str, Any],
        also: Mapping[str, RdpCurve] | None = None,
    ) -> Ticket:
        """Debit a price, and named accounts theirs, before any noise is drawn; all of it or nothing."""
        ...

    def settle(self, ticket: Ticket, release: Release, *, used: Mapping[str, RdpCurve] | None = None) -> None:
        """Record the outcome and give back what was not used, to every account."""
        ...

    def entries(self) -> list[Entry]:
        """Return everything on the books, oldest first."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


def canonical(value: Any) -> str:
    """Return the one JSON text of plain values: keys sorted, no spaces, ASCII, no NaN or infinity.

    >>> canonical({"b": 1.5, "a": [True, None]})
    '{"a":[true,null],"b":1.5}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def require_bookable(key: object, event: dict[str, Any], *, allow_seeded: bool) -> dict[str, Any]:
    """Return a copy of an event that can be stored for good, or refuse key, event or noise.

    >>> require_bookable("q0", {"noise": "secure", "n_queries": 3}, allow_seeded=False)
    {'n_queries': 3, 'noise': 'secure'}
    """
    if not isinstance(key, str) or not key:
        raise TypeError(f"Expected a key that is a non-empty string, got {key!r}.")
    if event.get("noise") != "secure" and not allow_seeded:
        raise InsecureNoise(
            f"Expected secure noise, got {event.get('noise')!r}. Use noise.secure(), or open the ledger "
            "with allow_seeded=True for an experiment that protects nobody."
        )
    try:
        stored: dict[str, Any] = json.loads(canonical(event))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected an event of plain finite values, which can be stored: {error}. Use describe(...)."
        ) from None
    return stored


def refuse_known(key: str, *, is_settled: bool) -> NoReturn:
    """Refuse to reserve a key that is on the books.

    >>> refuse_known("q0", is_settled=True)
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Key 'q0' was reserved before. Ask find(key) for its release; ...
    """
    if is_settled:
        raise LedgerConflict(
            f"Key {key!r} was reserved before. "
            "Ask find(key) for its release; use a new key for a new question."
        )
    raise Unsettled(
        f"Key {key!r} was reserved before and is not settled: somebody is at it, or was interrupted. "
        "Its price stays charged; a new key is a new question and is charged again."
    )


def refuse_unknown(key: str, *, is_settled: bool) -> NoReturn:
    """Refuse to settle a key that is settled, or that nobody reserved.

    >>> refuse_unknown("q0", is_settled=False)
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Key 'q0' was never reserved here. Reserve before you draw.
    """
    if is_settled:
        raise LedgerConflict(f"Key {key!r} was settled before; its release is on record.")
    raise LedgerConflict(f"Key {key!r} was never reserved here. Reserve before you draw.")


def charge(key: str, reserved: RdpCurve, *, used: RdpCurve) -> tuple[RdpCurve, bool]:
    """Return what a settled question is charged, and whether it kept to its price.

    More than was reserved was never afforded: the larger of the two is charged, at every order.

    >>> charged, kept = charge("q0", RdpCurve.zcdp(0.1), used=RdpCurve.zcdp(0.05))
    >>> bool(charged.values[0] == 1.25 * 0.05), kept
    (True, True)
    """
    if not np.array_equal(used.orders, reserved.orders):
        raise LedgerConflict(
            f"Key {key!r} was reserved on another grid of orders than its cost; all of the "
            "reservation stays charged. Build both on the same grid."
        )
    if np.any(used.values > reserved.values * (1 + 1e-9)):
        return RdpCurve(used.orders, np.maximum(used.values, reserved.values)), False
    return used, True


def refuse_overrun(key: str) -> NoReturn:
    """Say that a question cost more than its price, after it was charged.

    >>> refuse_overrun("q0")
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Key 'q0' cost more than its price; all of it is charged. ...
    """
    raise LedgerConflict(
        f"Key {key!r} cost more than its price; all of it is charged. Reserve one price per query."
    )
