"""A plain ledger, as a stranger might write one, to pass `check_ledger` and to plant faults in."""

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tellers import Accountant, Budget, RdpCurve, Release
from tellers.errors import LedgerConflict
from tellers.ledger.base import (
    AccountState,
    Charge,
    Entry,
    Ticket,
    charge_all,
    overrun,
    refuse_known,
    refuse_unknown,
    require_account,
    require_groups_pay,
    require_same,
    require_storable_event,
)
from tellers.privacy._price import Price, itemised
from tellers.privacy.budget import Debit


def require_affordable(
    key: str, also: Mapping[str, RdpCurve], *, accounts: Mapping[str, AccountState]
) -> None:
    """Refuse a question that one of its named accounts does not exist for, or cannot pay."""
    for name in also:
        if name not in accounts:
            raise LedgerConflict(f"Expected an account that was opened, got {name!r}. Nothing was charged.")
    for name, price in also.items():
        accounts[name].accountant.require(accounts[name].spent, price, key=key, account=name)


def in_ticks(price: RdpCurve, ticks: int, events: int) -> Price:
    """Return a price that a clock was turned down by already."""
    return Price(price.orders, price.values, (), ticks, events)


@dataclass(eq=False)
class PlainLedger:
    """Keep entries in a dict: a ledger that has nothing in common with the chain but its rules."""

    accountant: Accountant
    allow_seeded: bool = False
    _entries: dict[str, Entry] = field(default_factory=dict, init=False, repr=False)
    _accountants: dict[str, Accountant] = field(default_factory=dict, init=False, repr=False)
    # What clocks were turned down by for a question, by key and account; the main one has no name.
    _debits: dict[tuple[str, str | None], Debit] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited to the main account so far, reservations included."""
        with self._lock:
            total = RdpCurve.zero()
            for entry in self._entries.values():
                total = total + entry.charged
            return total

    def open_account(self, name: str, budget: Budget) -> None:
        """Give a student, an analyst or a group a budget of its own, for good."""
        require_account(name, budget, beside=self.accountant)
        with self._lock:
            if name in self._accountants:
                require_same(name, self._accountants[name], budget)
            else:
                self._accountants[name] = self.accountant.beside(budget)

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account, with everything debited to it so far, reservations included."""
        with self._lock:
            spent = dict.fromkeys(self._accountants, RdpCurve.zero())
            for entry in self._entries.values():
                for name, paid in entry.also.items():
                    spent[name] = spent[name] + paid.charged
            return {
                n: AccountState(a.budget, a.held_at, spent[n], a.clock) for n, a in self._accountants.items()
            }

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else entry.release

    def asked(self, key: str) -> dict[str, Any] | None:
        """Return the event that a key was reserved for, settled or not, or None."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else copy.deepcopy(entry.event)

    def reserve(
        self, key: str, price: RdpCurve, *, event: dict[str, Any], also: Mapping[str, RdpCurve] | None = None
    ) -> Ticket:
        """Debit a price, and named accounts theirs, before any noise is drawn; all of it or nothing."""
        stored = require_storable_event(key, event, allow_seeded=self.allow_seeded)
        with self._lock:
            if key in self._entries:
                refuse_known(key, is_settled=self._entries[key].is_settled)
            self.accountant.require(self.spent, price, key=key)
            named = dict(also or {})
            require_groups_pay(key, named, event=stored, accounts=self._accountants)
            states = self.accounts() if named else {}
            require_affordable(key, named, accounts=states)
            main = self._turned(key, price, account=None, spent=self.spent)
            paid = {
                name: Charge(curve, self._turned(key, curve, account=name, spent=states[name].spent))
                for name, curve in named.items()
            }
            self._entries[key] = Entry(key, stored, price, charged=main, also=paid)
            return Ticket(key, price, copy.deepcopy(stored), named)

    def _turned(self, key: str, price: RdpCurve, *, account: str | None, spent: RdpCurve) -> RdpCurve:
        """Return a price as it is added up: on a clock by what it turns it down by."""
        accountant = self.accountant if account is None else self._accountants[account]
        if accountant.clock is None:
            return price
        debit = accountant.debit(spent, price)
        assert debit is not None
        self._debits[key, account] = debit
        return in_ticks(price, debit.ticks, debit.events)

    def _used(self, key: str, used: RdpCurve, *, account: str | None, kept: bool) -> RdpCurve:
        """Return what a settled question is charged: on a clock what its outcomes cost where it was paid."""
        debit = self._debits.get((key, account))
        if debit is None:
            return used
        back = debit.returned([(item.key, n, kind) for n, item, kind in itemised(used).terms])
        # More than was paid for takes all that there is.
        return in_ticks(used, debit.ticks - (back or 0) if kept else 2**80, debit.events)

    def _pays_for(self, key: str, used: RdpCurve, *, account: str | None) -> bool:
        """Return whether what a clock was turned down by pays for what came out."""
        debit = self._debits.get((key, account))
        if debit is None or self.accountant.clock is None:
            return True
        bill = itemised(used)
        asked = [(item.key, n, kind) for n, item, kind in bill.terms]
        return debit.returned(asked) is not None or debit.covers(bill, self.accountant.clock.kappa)

    def settle(self, ticket: Ticket, release: Release, *, used: Mapping[str, RdpCurve] | None = None) -> None:
        """Record the outcome and give back what was not used, to every account.

        A named account is charged what `used` says of it; without that, what the main account is charged if
        the same was reserved on both, and else all that was reserved.
        """
        with self._lock:
            # The books and not the ticket say what was reserved.
            entry = self._entries.get(ticket.key)
            if entry is None or entry.is_settled:
                refuse_unknown(ticket.key, is_settled=entry is not None)
            reserved = {name: paid.reserved for name, paid in entry.also.items()}
            charged, named, kept = charge_all(
                ticket.key, entry.reserved, reserved, worst=release.cost.worst, used=used
            )
            worst, others = release.cost.worst, used or {}
            kept = kept and all(
                self._pays_for(ticket.key, worst if name is None else others.get(name, worst), account=name)
                for name in (None, *reserved)
            )
            record = release.record() if kept else None
            charged = self._used(ticket.key, charged, account=None, kept=kept)
            named = {
                name: self._used(ticket.key, curve, account=name, kept=kept) for name, curve in named.items()
            }
            paid = {name: Charge(reserved[name], curve) for name, curve in named.items()}
            self._entries[ticket.key] = replace(
                entry, charged=charged, is_settled=True, release=record, also=paid
            )
            if not kept:
                raise overrun(ticket.key)

    def entries(self) -> list[Entry]:
        """Return everything on the books, oldest first."""
        with self._lock:
            return [replace(entry, event=copy.deepcopy(entry.event)) for entry in self._entries.values()]

    def __enter__(self) -> "PlainLedger":
        return self

    def __exit__(self, *_exc: object) -> None:
        return None
