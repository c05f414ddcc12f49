"""The Ledger protocol, its records, and the rules that every backend keeps."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol, Self

import numpy as np

from ..errors import InsecureNoise, LedgerConflict, Unsettled
from ..privacy._clock import Clock
from ..privacy._price import delta_of, itemised, with_delta
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.release import Release


class Unusable(LedgerConflict):
    """A ledger cannot be used where it is, or as its server is; nothing is known against its lines."""


class Head(NamedTuple):
    """The last line of a ledger, at some moment: its number and its hash."""

    number: int
    hash: str


@dataclass(frozen=True)
class Ticket:
    """The receipt of a reservation: what was debited, for which question, before any noise was drawn.

    >>> Ticket("q0", RdpCurve.zcdp(0.1), {"noise": "secure"}).also
    {}
    """

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
    """A named account: its budget, the Rényi order or the clock it is held on, and what was debited so far.

    >>> state = AccountState(Budget(epsilon=1.0, delta=1e-5), 18.0, spent=RdpCurve.zcdp(0.01))
    >>> round(state.epsilon, 3), state.accountant.affords(state.spent, RdpCurve.zcdp(0.01))
    (0.546, True)
    """

    budget: Budget
    held_at: float
    spent: RdpCurve
    clock: Clock | None = None
    for_tests: float = 0.0

    @property
    def accountant(self) -> Accountant:
        """Return the arithmetic of this account, by its own rule."""
        if self.clock is not None:
            return Accountant(self.budget, clock=self.clock)
        return Accountant(self.budget, order=self.held_at, for_tests=self.for_tests)

    @property
    def epsilon(self) -> float:
        """Return the epsilon of what was spent, at the account's delta; on a clock, its budget's."""
        return self.accountant.epsilon(self.spent)


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
        self, key: str, price: RdpCurve, *, event: dict[str, Any], also: Mapping[str, RdpCurve] | None = None
    ) -> Ticket:
        """Debit a price, and named accounts theirs, before any noise is drawn; all of it or nothing."""
        ...

    def settle(self, ticket: Ticket, release: Release, *, used: Mapping[str, RdpCurve] | None = None) -> None:
        """Record the outcome and give back what was not used, to every account."""
        ...

    def entries(self, *, after: int = 0, limit: int | None = None, begins: str = "") -> list[Entry]:
        """Return everything on the ledger, oldest first, or a page of it: see `SqliteLedger.entries`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def canonical(value: Any) -> str:
    """Return the one JSON text of plain values: keys sorted, no spaces, ASCII, no NaN or infinity."""
    return _PLAIN.encode(value)


_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def require_key(key: object) -> None:
    """Refuse what is no key."""
    if not isinstance(key, str) or not key:
        raise TypeError(f"Expected a key that is a non-empty string, got {key!r}.")


def require_storable_event(key: object, event: dict[str, Any], *, allow_seeded: bool) -> dict[str, Any]:
    """Return a copy of an event that can be stored for good, or refuse key, event or noise."""
    require_key(key)
    if event.get("noise") != "secure" and not allow_seeded:
        raise InsecureNoise(
            f"Expected secure noise, got {event.get('noise')!r}. Use noise.secure(), or open the ledger "
            "with allow_seeded=True for an experiment that protects nobody."
        )
    try:
        text = canonical(event)
        stored: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"Expected an event of plain finite values, which can be stored: {error}. Use describe(...)."
        ) from None
    if text.count("[") + text.count("{") > MOST_NESTED and _is_too_deep(stored):
        raise TypeError(
            f"Expected an event that is nested in at most {MOST_NESTED} levels, got a deeper one, which not "
            "every program could read back. Nothing was charged. Use describe(...)."
        )
    return stored


MOST_NESTED = 100
"""How deep an event may be nested: a thousand levels are read by some programs, and not by others."""


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, (dict, list)) for each in level)


def refuse_known(key: str, *, is_settled: bool) -> NoReturn:
    """Refuse to reserve a key that is on the books."""
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
    """Refuse to settle a key that is settled, or that nobody reserved."""
    if is_settled:
        raise LedgerConflict(f"Key {key!r} was settled before; its release is on record.")
    raise LedgerConflict(f"Key {key!r} was never reserved here. Reserve before you draw.")


def charge(key: str, reserved: RdpCurve, *, used: RdpCurve) -> tuple[RdpCurve, bool]:
    """Return what a settled question is charged, and whether it kept to its price.

    More than was reserved was never afforded: the larger of the two is charged, at every order. A delta of
    its own is never given back, and more of it than was reserved is more than the price too.
    """
    if not np.array_equal(used.orders, reserved.orders):
        raise LedgerConflict(
            f"Key {key!r} was reserved on another grid of orders than its cost; all of the "
            "reservation stays charged. Build both on the same grid."
        )
    delta, kept = max(delta_of(used), delta_of(reserved)), delta_of(used) <= delta_of(reserved)
    if np.any(used.values > reserved.values * (1 + 1e-9)):
        used, kept = RdpCurve(used.orders, np.maximum(used.values, reserved.values)), False
    return with_delta(used, delta), kept


def overrun(key: str) -> LedgerConflict:
    """Return what to raise where a question cost more than its price, after it was charged."""
    return LedgerConflict(
        f"Key {key!r} cost more than its price; all of it is charged. Reserve one price per query."
    )


# --- Named accounts ---
#
# The main account stands for the data. A named one stands for whoever asks, or for a group of people in the
# data, and holds a budget of its own at an order of its own. These rules are the same in every backend.


def require_account(name: object, budget: object, *, beside: Accountant | None = None) -> None:
    """Refuse an account without a name, or without a budget."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"Expected the name of an account, a non-empty string, got {name!r}.")
    if name.encode("utf-8", "ignore").decode("utf-8") != name:
        # Half a character can be kept, and then not be shown: every page with the account on it would fail.
        raise ValueError(f"Expected the name of an account in whole characters, got {name!r}.")
    if not isinstance(budget, Budget):
        raise TypeError(f"Expected a Budget for account {name!r}, got {type(budget).__name__}.")
    try:
        held = Accountant(budget) if beside is None else beside.beside(budget)
        if held.clock is None:
            Accountant(budget, order=held.held_at, for_tests=held.for_tests)
    except ValueError:
        # Written down, it could not be read again, and neither could anything after it.
        raise ValueError(
            f"Expected a budget that can pay for something, got epsilon={budget.epsilon} for account "
            f"{name!r}: at delta={budget.delta} that is nothing. Take a larger epsilon."
        ) from None


def require_same(name: str, held: Accountant, budget: Budget) -> None:
    """Refuse to open an account a second time with another budget."""
    if held.budget != budget:
        raise LedgerConflict(
            f"Account {name!r} was opened with epsilon={held.budget.epsilon} and delta={held.budget.delta}, "
            f"got epsilon={budget.epsilon} and delta={budget.delta}. A budget is a promise and stays; open "
            "an account of another name."
        )


def charge_all(
    key: str,
    price: RdpCurve,
    also: Mapping[str, RdpCurve],
    *,
    worst: RdpCurve,
    used: Mapping[str, RdpCurve] | None,
) -> tuple[RdpCurve, dict[str, RdpCurve], bool]:
    """Return what a settled question is charged: the main account, each named one, and if all kept to it.

    A named account is charged what `used` says of it. Where `used` does not name it, it is charged what the
    main account is if the same was reserved on both, and else all that was reserved.
    """
    used = dict(used or {})
    for name in used:
        if name not in also:
            raise LedgerConflict(
                f"Nothing was reserved on account {name!r} for key {key!r}; all of the reservation stays "
                "charged. Name only accounts that `reserve` was given."
            )
    charged, all_kept = charge(key, price, used=worst)
    named: dict[str, RdpCurve] = {}
    for name, reserved in also.items():
        if name in used:
            named[name], kept = charge(key, reserved, used=used[name])
            all_kept = all_kept and kept
        else:
            # What a release cost of delta beyond its price, it cost everybody who paid for it.
            overrun = max(0.0, delta_of(charged) - delta_of(price))
            paid = charged if same(reserved, price) else reserved
            named[name] = with_delta(paid, delta_of(reserved) + overrun)
    return charged, named, all_kept


def same(one: RdpCurve, other: RdpCurve) -> bool:
    """Return whether two prices are the same by either rule: a clock goes by items and not by curves."""
    if not (np.array_equal(one.orders, other.orders) and np.array_equal(one.values, other.values)):
        return False
    bills = [
        [(n, item.key, kind) for n, item, kind in itemised(price).terms if item.clock is not None]
        for price in (one, other)
    ]
    return bills[0] == bills[1]


# --- Accounts of groups of people ---

GROUPS = "group/"
"""What the name of every such account begins with."""

_ASKED_BEFORE = (
    "Expected a ledger without answers to open accounts of groups on, got one on which something was asked "
    "already, and no group paid for it. Begin a new ledger, for data that was never asked."
)


def group_account(name: str) -> str:
    return f"{GROUPS}{name}"


def groups_on(ledger: Ledger) -> list[str]:
    """Return the groups that have an account on a ledger, sorted."""
    return sorted(name.removeprefix(GROUPS) for name in ledger.accounts() if name.startswith(GROUPS))


def open_group_accounts(ledger: Ledger, budgets: Mapping[str, Budget]) -> None:
    """Open an account per group of people, each with the budget its people agreed to.

    Groups share a ledger from its first question on, and stay the same: what was asked before their accounts
    were there was paid by none of them, and who changed groups would have two budgets.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=2.0, delta=1e-5)))
    >>> open_group_accounts(ledger, {"low": Budget(1.0, 1e-5), "high": Budget(2.0, 1e-5)})
    >>> sorted(ledger.accounts())
    ['group/high', 'group/low']
    >>> open_group_accounts(ledger, {"low": Budget(1.0, 1e-5)})
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Expected the groups of the ledger, 'high', 'low', got 'low'. ...
    """
    there, wanted = groups_on(ledger), sorted(budgets)
    if set(there) - set(wanted) or (there and there != wanted and ledger.entries(limit=1)):
        names = [", ".join(map(repr, some)) for some in (there, wanted)]
        raise LedgerConflict(
            f"Expected the groups of the ledger, {names[0]}, got {names[1]}. Whoever changed groups would "
            "have two budgets: keep the groups, or delete the data and begin again."
        )
    if not there and ledger.entries(limit=1):
        raise LedgerConflict(_ASKED_BEFORE)
    wanted_accounts, held = {group_account(name): budgets[name] for name in budgets}, ledger.accounts()
    for name, budget in wanted_accounts.items():  # all of them, before the first is opened
        require_account(name, budget)
        if name in held:
            require_same(name, held[name].accountant, budget)
    for name, budget in wanted_accounts.items():
        ledger.open_account(name, budget)
    # Somebody may have been faster with a question than the accounts were with opening; once all are open,
    # nothing is asked that they do not pay for. A long ledger that had them before is not read for it.
    asked = ledger.entries(limit=1 if there == wanted else None)
    if any(_unpaid(entry.also, entry.event, wanted_accounts) for entry in asked):
        raise LedgerConflict(_ASKED_BEFORE)


def require_no_groups(ledger: Ledger) -> None:
    """Refuse a ledger with accounts of groups to whoever would ask without charging them."""
    there = groups_on(ledger)
    if there:
        raise LedgerConflict(
            f"Expected the budgets of the people, since the ledger has accounts of groups "
            f"({', '.join(map(repr, there))}), got none. Ask by the plan that they were opened for."
        )


def require_groups_pay(
    key: str, also: Mapping[str, RdpCurve], *, event: Mapping[str, Any], accounts: Iterable[str]
) -> None:
    """Refuse a question for which a group of people neither pays nor is said to take no part.

    Whoever asks by another plan, or by none, would learn from the group's data at no cost to its budget.
    """
    missing = _unpaid(also, event, accounts)
    if missing:
        raise LedgerConflict(
            f"Expected every group of people on the ledger to pay for {key!r}, or to take no part, got "
            f"nothing for account {missing[0]!r}. Nothing was charged. Ask by the plan that the groups were "
            "opened for."
        )


def _unpaid(also: Iterable[str], event: Mapping[str, Any], accounts: Iterable[str]) -> list[str]:
    """Return the accounts of groups that neither paid for a question nor were said to take no part."""
    taking_part = event.get("groups")
    absent = taking_part.get("absent", ()) if isinstance(taking_part, Mapping) else ()
    spared = {*also, *(group_account(str(name)) for name in absent)}
    return [name for name in accounts if name.startswith(GROUPS) and name not in spared]
