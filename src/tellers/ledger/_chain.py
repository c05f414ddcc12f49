"""The hash chain of durable ledgers, and the rules of reserving and settling over it."""

import hashlib
import json
import os
import secrets
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from ..errors import BudgetExhausted, LedgerConflict
from ..privacy._price import Price, delta_of, itemised
from ..privacy.budget import Accountant, Budget, Debit
from ..privacy.rdp import DEFAULT_ORDERS, RdpCurve
from ..privacy.release import Cost, NoiseLevel, Release
from ._bills import BILLS, Bills, read_terms, write_terms
from .base import (
    AccountState,
    Charge,
    Entry,
    Ticket,
    canonical,
    charge_all,
    refuse_known,
    refuse_overrun,
    refuse_unknown,
    require_account,
    require_affordable,
    require_groups_pay,
    require_same,
    require_storable_event,
)
from .vault import Vault

# Line 0 holds the terms: schema, budget, the rule by which it is held and the grid. After it a named account
# has one line, when it is opened, an item has one, when it is first paid for, and a question has at most two,
# one when it is reserved and one when it is settled. Lines are only ever added. Values are stored as floats
# that read back bit for bit; under `also`, null stands for what the main account pays. Sealed costs are not
# stored here at all.

SCHEMA = 3
"""The version of what lines say. Old versions are read for ever; a new one takes the next number."""

READABLE = (1, 2, 3)
"""The versions that are read and written on: 1 had no named accounts, 1 and 2 wrote whole curves."""

START = "0" * 64
"""What the first line follows."""


@dataclass(frozen=True)
class Line:
    """One line of the chain."""

    number: int
    kind: str
    key: str
    body: str
    previous: str
    hash: str

    @classmethod
    def after(cls, head: "Line | None", kind: str, *, key: str, body: dict[str, Any]) -> "Line":
        number, previous = (0, START) if head is None else (head.number + 1, head.hash)
        text = canonical(body)
        return cls(number, kind, key, text, previous, _digest(number, kind, key, text, previous))

    def require_follows(self, head: "Line | None") -> None:
        """Refuse a line that was changed, or that does not follow `head`."""
        number, previous = (0, START) if head is None else (head.number + 1, head.hash)
        if (self.number, self.previous) != (number, previous) or not self.is_intact:
            raise LedgerConflict(
                f"Line {self.number} of the ledger is not the one that was written: its hash does not fit. "
                "Somebody or something changed the file; restore it from a backup and do not spend on it."
            )

    @property
    def is_intact(self) -> bool:
        said = (self.number, self.kind, self.key, self.body, self.previous)
        plain = not any(isinstance(part, bytes) for part in said)
        return plain and self.hash == _digest(*said)


def _digest(*said: Any) -> str:
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


def write_release(release: Release) -> dict[str, Any]:
    """Return what a release showed, as JSON can hold it; the sealed cost stays behind."""
    labels = np.asarray(release.labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(
            f"Expected whole labels to record, got {labels.dtype}. The reservation stays charged; "
            "mechanisms release class numbers or SILENT."
        )
    said = {"labels": labels.tolist(), "by_teachers": np.asarray(release.answered, dtype=bool).tolist()}
    if release.values is not None:
        said["values"] = np.asarray(release.values).tolist()
    if release.noise_level is not None:
        said["noise_level"] = release.noise_level.as_dict()
    return said


def read_release(body: dict[str, Any], charged: RdpCurve) -> Release | None:
    """Return the release that a settled line records, or None where none was kept."""
    said = body["release"]
    if said is None:
        return None
    labels = np.array(said["labels"], dtype=np.int64)
    values = np.array(said["values"], dtype=np.int64) if "values" in said else None
    by_teachers = np.array(said["by_teachers"], dtype=np.bool_)
    level = NoiseLevel.from_dict(said["noise_level"]) if "noise_level" in said else None
    return Release(labels, Cost(charged), by_teachers, values=values, noise_level=level).record()


def opening(accountant: Accountant) -> Line:
    """Return the first line of a new ledger: its terms."""
    body = {"schema": SCHEMA, **write_terms(accountant), "orders": DEFAULT_ORDERS.tolist()}
    return Line.after(None, "opened", key="", body=body)


@dataclass(eq=False)
class LedgerState:
    """What the lines read so far add up to."""

    head: Line | None = None
    terms: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    pending: dict[str, Entry] = field(default_factory=dict)
    accountants: dict[str, Accountant] = field(default_factory=dict)
    _bills: Bills | None = None
    # By account, the main one without a name: settled charges, and what is in flight too, as far as it was
    # added up already; by key what is in flight on a clock.
    _charged: dict[str | None, Price] = field(default_factory=dict)
    _totals: dict[str | None, Price] = field(default_factory=dict)
    _debits: dict[tuple[str, str | None], Debit] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Read the next line, after checking that it is the next one and that it was not changed."""
        line.require_follows(self.head)
        try:
            self._read(line.kind, line.key, json.loads(line.body))
        except (
            BudgetExhausted, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
            IndexError,
        ):  # fmt: skip
            raise LedgerConflict(
                f"Line {line.number} of the ledger, {line.kind!r}, does not make sense there. "
                "A newer version of tellers may have written it: update, or restore the file."
            ) from None
        self.head = line

    @property
    def bills(self) -> Bills:
        """Return how prices are read and written here."""
        if self._bills is None:
            raise ValueError("Expected the terms before anything else.")
        return self._bills

    @property
    def spent(self) -> Price:
        """Return everything debited to the main account so far, reservations included."""
        return self._spent_by(None)

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account, with everything debited to it so far, reservations included."""
        return {name: self.account(name) for name in self.accountants}

    def account(self, name: str) -> AccountState:
        held, spent = self.accountants[name], self._spent_by(name)
        return AccountState(held.budget, held.held_at, spent, held.clock, held.for_tests)

    def accountant(self, account: str | None) -> Accountant:
        return self.bills.accountant if account is None else self.accountants[account]

    def debit(self, account: str | None, price: Price, *, key: str) -> Debit | None:
        """Return what a price turns the clock of an account down by, or None where it has no clock.

        What is past the clock is refused here again: the order in which a bill has its items may be another
        than that of the price that was asked for.
        """
        accountant = self.accountant(account)
        if accountant.clock is None:
            return None
        spent = self._spent_by(account)
        found = accountant.debit(spent, price)
        if found is None:
            accountant.require(spent, price, key=key, account=account)
        return found

    def charged_ticks(self, key: str, account: str | None, used: Price) -> int | None:
        """Return what a settled question turned the clock down by; without a clock None.

        What came out and was not paid for takes all that is left: it was never afforded.
        """
        debit = self._debits.get((key, account))
        if debit is None:
            return None
        back = debit.returned([(item.key, n, kind) for n, item, kind in used.terms])
        if back is not None and not used.delta:
            return debit.ticks - back
        reserved = self.pending[key].reserved if account is None else self.pending[key].also[account].reserved
        kept = bool((used.values <= reserved.values * (1 + 1e-9)).all())
        kept = kept and delta_of(used) <= delta_of(reserved) and debit.covers(used, self._kappa)
        return debit.ticks if kept else _ALL_TICKS

    @property
    def _kappa(self) -> float:
        clock = self.bills.accountant.clock
        return 0.0 if clock is None else clock.kappa

    def also(
        self, body: dict[str, Any], main: Price, ticks: int | None
    ) -> dict[str, tuple[Price, int | None]]:
        """Return what named accounts pay according to a body; null means what the main one pays."""
        said = body.get("also", {})
        return {name: (main, ticks) if paid is None else self.bills.read(paid) for name, paid in said.items()}

    def _spent_by(self, account: str | None) -> Price:
        # Reservations are added up afresh after each settlement, settled ones once: no price is ever
        # subtracted.
        if account in self._totals:
            return self._totals[account]
        total = self._charged.get(account) or _nothing(self._bills)
        for entry in self.pending.values():
            paid = entry if account is None else entry.also.get(account)
            if paid is not None:
                total = _sum(total, itemised(paid.charged))
        self._totals[account] = total
        return total

    def _read(self, kind: str, key: str, body: dict[str, Any]) -> None:
        if (kind == "opened") != (self.head is None):
            raise ValueError(kind)
        if kind == "opened":
            schema = body.get("schema", 2)
            if schema not in READABLE:
                raise ValueError(kind)
            orders = RdpCurve.zero(body["orders"]).orders
            self._bills, self.terms = Bills(schema, orders, read_terms(body)), body
        elif kind == "account" and key and key not in self.accountants:
            accountant = read_terms(body)
            if (accountant.rule != self.bills.accountant.rule) or (
                accountant.clock is None and accountant.held_at not in self.bills.orders
            ):
                raise ValueError(kind)
            self.accountants[key] = accountant
        elif kind == "price":
            self.bills.add(key, body)
        elif kind == "reserved" and key not in self.entries:
            self._read_reserved(key, body)
        elif kind == "settled":
            self._read_settled(key, body)
        else:
            raise ValueError(kind)

    def _read_reserved(self, key: str, body: dict[str, Any]) -> None:
        (price, ticks), event = self.bills.read(body["price"]), body.get("event", {})
        named = self.also(body, price, ticks)
        if not named.keys() <= self.accountants.keys() or not isinstance(event, dict):
            raise ValueError(key)
        paid: dict[str | None, Price] = {}
        for account, (curve, turned) in _paying((price, ticks), named):
            debit = self.debit(account, curve, key=key)
            if turned != (None if debit is None else debit.ticks):
                raise ValueError("Expected the ticks that the price takes at what was left.")
            if debit is not None:
                self._debits[key, account] = debit
            paid[account] = _paid(curve, turned, debit)
        also = {name: Charge(curve, paid[name]) for name, (curve, _) in named.items()}
        self.entries[key] = self.pending[key] = Entry(key, event, price, charged=paid[None], also=also)
        for account in paid.keys() & self._totals.keys():
            self._totals[account] = _sum(self._totals[account], paid[account])

    def _read_settled(self, key: str, body: dict[str, Any]) -> None:
        asked, (charged, ticks) = self.pending[key], self.bills.read(body["charged"])
        named = self.also(body, charged, ticks)
        if asked.also.keys() != named.keys():
            raise ValueError(key)
        paid: dict[str | None, Price] = {}
        for account, (curve, turned) in _paying((charged, ticks), named):
            reserved = asked.reserved if account is None else asked.also[account].reserved
            if turned != self.charged_ticks(key, account, curve) or delta_of(curve) < delta_of(reserved):
                raise ValueError("Expected the ticks and the delta that the outcome takes of the price.")
            paid[account] = _paid(curve, turned, self._debits.pop((key, account), None))
        also = {name: Charge(asked.also[name].reserved, paid[name]) for name in named}
        release = read_release(body, charged)
        self.entries[key] = replace(asked, charged=paid[None], is_settled=True, release=release, also=also)
        del self.pending[key]
        self._totals.clear()
        for account, price in paid.items():
            self._charged[account] = _sum(self._charged.get(account) or _nothing(self._bills), price)


_ALL_TICKS = 2**80
"""More than any clock has: what was never afforded leaves nothing."""


def _nothing(bills: Bills | None) -> Price:
    zero = RdpCurve.zero(None if bills is None else bills.orders)
    return Price(zero.orders, zero.values)


def _paid(price: Price, ticks: int | None, debit: Debit | None) -> Price:
    """Return a price as it is added up: on a clock by its ticks, and no longer by its items."""
    if ticks is None:
        return price
    events = 0 if debit is None else debit.events
    return Price(price.orders, price.values, (), ticks, events, price.delta)


def _sum(one: Price, other: Price) -> Price:
    return Price(
        one.orders, one.values + other.values, (), one.ticks + other.ticks, one.events + other.events,
        one.delta + other.delta,
    )  # fmt: skip


T = TypeVar("T")
P = TypeVar("P")


class ChainedLedger(ABC):
    """A ledger that is a chain of lines, only ever added to.

    A backend brings a way to read lines, and a way to append one while nobody else can. Everything that
    decides about money is here, once.
    """

    accountant: Accountant
    allow_seeded: bool
    timeout: float
    vault: Vault | None
    _state: LedgerState
    _lock: threading.RLock

    @abstractmethod
    def _title(self) -> str:
        """Return what to call this ledger in a message."""

    @abstractmethod
    def _read(self, look: Callable[[], T]) -> T:
        """Return what `look` makes of the ledger as it is now, with all that others wrote read in."""

    @abstractmethod
    def _write(self, next_lines: Callable[[], list[Line]]) -> None:
        """Append what `next_lines` returns, all or nothing; nobody else writes until it is durable."""

    @abstractmethod
    def _after(self, number: int) -> Iterator[Line]:
        """Return the stored lines after one, in order, while reading or writing; all of them after -1."""

    @abstractmethod
    def _require_rules(self) -> None:
        """Refuse storage whose own rules, which keep it append-only, were changed."""

    @abstractmethod
    def close(self) -> None:
        """Hand back what is open; what is written stays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited to the main account so far, by anyone, reservations included."""
        return self._read(lambda: self._state.spent)

    def open_account(self, name: str, budget: Budget) -> None:
        """Give a student, an analyst or a group a budget of its own, for good."""
        require_account(name, budget, beside=self.accountant)

        def next_lines() -> list[Line]:
            held = self._state.accountants.get(name)
            if held is not None:
                require_same(name, held, budget)
                return []
            body = write_terms(self.accountant.beside(budget))
            if self._state.bills.schema < BILLS:
                del body["rule"]
            return [Line.after(self._state.head, "account", key=name, body=body)]

        self._write(next_lines)

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account, with everything debited to it so far, reservations included."""
        return self._read(lambda: self._state.accounts())

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None."""
        entry = self._read(lambda: self._state.entries.get(key))
        return None if entry is None else entry.release

    def asked(self, key: str) -> dict[str, Any] | None:
        """Return the event that a key was reserved for, settled or not, or None."""
        entry = self._read(lambda: self._state.entries.get(key))
        return None if entry is None else _copied(entry.event)

    def reserve(
        self, key: str, price: RdpCurve, *, event: dict[str, Any], also: Mapping[str, RdpCurve] | None = None
    ) -> Ticket:
        """Debit a price, and named accounts theirs, before any noise is drawn; durable when this returns."""
        stored = require_storable_event(key, event, allow_seeded=self.allow_seeded)
        named = dict(also or {})
        self._work_out(price, *named.values())

        def next_lines() -> list[Line]:
            state = self._state
            if key in state.entries:
                refuse_known(key, is_settled=state.entries[key].is_settled)
            state.accountant(None).require(state.spent, price, key=key)
            require_groups_pay(key, named, event=stored, accounts=state.accountants)
            states = {name: state.account(name) for name in named if name in state.accountants}
            require_affordable(key, named, accounts=states)
            bills = state.bills
            booked = {account: bills.booked(each) for account, each in _paying(price, named)}
            debits = {account: state.debit(account, each, key=key) for account, each in booked.items()}
            ticks = {account: None if debit is None else debit.ticks for account, debit in debits.items()}
            # Two who ask the same at once would write the same line, and one whose commit was lost would take
            # the other's for its own: no two reservations have the same mark.
            body = {"event": stored, "mark": secrets.token_hex(8), **self._payments("price", booked, ticks)}
            return self._priced("reserved", key, body, booked)

        self._write(next_lines)
        return Ticket(key, price, json.loads(json.dumps(stored)), named)

    def settle(self, ticket: Ticket, release: Release, *, used: Mapping[str, RdpCurve] | None = None) -> None:
        """Record the outcome and give back what was not used, to every account.

        A named account is charged what `used` says of it; without that, what the main account is charged if
        the same was reserved on both, and else all that was reserved.
        """
        key, all_kept = ticket.key, True
        self._work_out(release.cost.worst, *dict(used or {}).values())

        def next_lines() -> list[Line]:
            nonlocal all_kept
            # The books and not the ticket say what was reserved.
            state = self._state
            asked = state.pending.get(key)
            if asked is None:
                refuse_unknown(key, is_settled=key in state.entries)
            also = {name: paid.reserved for name, paid in asked.also.items()}
            charged, named, all_kept = charge_all(
                key, asked.reserved, also, worst=release.cost.worst, used=used
            )
            booked = {account: state.bills.booked(each) for account, each in _paying(charged, named)}
            ticks = {account: state.charged_ticks(key, account, each) for account, each in booked.items()}
            all_kept = all_kept and _ALL_TICKS not in ticks.values()
            shown = write_release(release) if all_kept else None
            return self._priced(
                "settled", key, {"release": shown, **self._payments("charged", booked, ticks)}, booked
            )

        self._write(next_lines)
        if self.vault is not None and release.cost.tight is not None:
            self.vault.put(key, release.cost.tight)
        if not all_kept:
            refuse_overrun(key)

    def _work_out(self, *prices: RdpCurve) -> None:
        """Work out the tables of a clock before the books are held: it takes seconds, and others wait."""
        if self.accountant.clock is not None:
            for price in prices:
                for _, item, _ in itemised(price).terms:
                    item.table(self.accountant.clock.kappa)

    def _payments(
        self, name: str, booked: Mapping[str | None, Price], ticks: Mapping[str | None, int | None]
    ) -> dict[str, Any]:
        """Return the part of a body that holds what each account pays; null is what the main one does."""
        write, main = self._state.bills.write, booked[None]
        said = {
            account: None
            if write(price, ticks=ticks[account]) == write(main, ticks=ticks[None])
            else write(price, ticks=ticks[account])
            for account, price in booked.items()
            if account is not None
        }
        return {name: write(main, ticks=ticks[None]), **({"also": said} if said else {})}

    def _priced(
        self, kind: str, key: str, body: dict[str, Any], booked: Mapping[str | None, Price]
    ) -> list[Line]:
        """Return the next lines: items that are paid for the first time, and the line that pays them."""
        lines: list[Line] = []
        new = self._state.bills.new(*booked.values())
        for number, (which, name, said) in enumerate(
            [*(("price", name, item) for name, item in new.items()), (kind, key, body)]
        ):
            lines.append(Line.after(lines[-1] if number else self._state.head, which, key=name, body=said))
        return lines

    def entries(self) -> list[Entry]:
        """Return everything on the books, oldest first.

        What was read and checked before is not read again; `verify` reads everything.
        """
        found = self._read(lambda: list(self._state.entries.values()))
        return [replace(entry, event=_copied(entry.event)) for entry in found]

    def lines(self) -> list[Line]:
        """Return the chain as it is written, every line checked against the one before."""
        return self._read(lambda: checked(self._after(-1)))

    def verify(self, head: str | None = None) -> str:
        """Read all of the books again, check every hash, and return the last one.

        A chain cut short still holds together. `head` is what an earlier call returned: it must still be
        in the chain.
        """

        def look() -> list[str]:
            self._require_rules()
            return [line.hash for line in checked(self._after(-1))]

        hashes = self._read(look)
        if head is not None and head not in hashes:
            raise LedgerConflict(
                f"{self._title()} does not hold the line with hash {head[:16]}..., which it held before. "
                "It was replaced or cut short; restore it from a backup."
            )
        return hashes[-1]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread in at a time; others wait for it as long as for another program, not for ever."""
        lock = self._lock
        if not lock.acquire(timeout=self.timeout):
            raise TimeoutError(
                f"Expected {self._title()} to be free within {self.timeout:g} s, another thread holds it. "
                "Nothing was written; try again."
            )
        try:
            yield
        finally:
            lock.release()

    def _catch_up(self) -> None:
        """Read the lines that are new, each checked against the one before."""
        head = self._state.head
        lines = self._after(-1 if head is None else head.number - 1)
        if head is not None and next(lines, None) != head:
            raise LedgerConflict(
                f"{self._title()} lost lines that it had, or they were changed, while it was in use. "
                "Restore it from a backup and do not spend on it."
            )
        for line in lines:
            self._state.add(line)
        if head is None:
            require_terms(self._state.terms, self.accountant, self._title())


def _paying(main: P, also: Mapping[str, P]) -> list[tuple[str | None, P]]:
    """Return who pays what: the main account, which has no name, and the named ones."""
    return [(None, main), *((name, also[name]) for name in also)]


def _copied(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _copied(value) for name, value in plain.items()}
    return [_copied(value) for value in plain] if isinstance(plain, list) else plain


def checked(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of a whole chain, each checked against the one before."""
    state, found = LedgerState(), []
    for line in lines:
        state.add(line)
        found.append(line)
    return found


def require_terms(terms: dict[str, Any], accountant: Accountant, title: str) -> None:
    """Refuse books that were begun with another budget, or count at other orders."""
    if not terms:
        raise LedgerConflict(f"{title} lost its first line, which holds its budget. Restore it.")
    budget = accountant.budget
    if (terms["epsilon"], terms["delta"]) != (budget.epsilon, budget.delta):
        raise LedgerConflict(
            f"Expected the budget that {title} was begun with, epsilon={terms['epsilon']} and "
            f"delta={terms['delta']}, got epsilon={budget.epsilon} and delta={budget.delta}. A budget is a "
            "promise about the data and stays; open the ledger with its own."
        )
    rule = terms.get("rule", "renyi")
    if rule != accountant.rule:
        raise LedgerConflict(
            f"Expected the rule that {title} was begun with, {rule!r}, got {accountant.rule!r}. A ledger "
            "keeps its rule for good; open it with its own, or begin another."
        )
    if rule == "clock":
        if accountant.clock != read_terms(terms).clock:
            raise LedgerConflict(
                f"Expected the clock that {title} was begun with, {terms['clock']}, got "
                f"{accountant.clock}. Open the ledger with its own."
            )
    elif terms.get("for_tests", 0.0) != accountant.for_tests:
        raise LedgerConflict(
            f"Expected the part of delta that {title} set aside for tests, {terms.get('for_tests', 0.0):g}, "
            f"got {accountant.for_tests:g}. Open the ledger with its own."
        )
    elif terms["held_at"] != accountant.held_at:
        raise LedgerConflict(
            f"Expected the Rényi order at which {title} was begun, {terms['held_at']:g}, got "
            f"{accountant.held_at:g}. A budget is held at one order, fixed before the first release; open "
            "the ledger with its own."
        )
    if not np.array_equal(terms["orders"], DEFAULT_ORDERS):
        raise LedgerConflict(
            f"Expected the grid of orders that {title} was begun with, which is not the one of this "
            "version of tellers. Open it with the version that made it."
        )


# Fork safety: every ledger is closed before a fork, and both sides open it again
#
# A child must not use, or even close, a file or a connection that its parent opened, and it waits for ever
# for a thread that was inside a library. So a ledger is only ever entered with its own lock held, and a fork
# takes all of these locks, closes what is open, and gives the child new ones.

BEFORE_FORK: list[Callable[[], None]] = []
"""What else to do before a fork, with all locks held."""

_LEDGERS: "weakref.WeakSet[ChainedLedger]" = weakref.WeakSet()
# Held from before a fork until after it: meanwhile no ledger is made, and no other thread forks.
_gate = threading.RLock()
_handed_back: list[ChainedLedger] = []


def watch_forks(ledger: ChainedLedger) -> None:
    """Take care of a ledger at every fork from now on."""
    with _gate:
        _LEDGERS.add(ledger)


def _before_fork() -> None:
    _gate.acquire()
    _handed_back[:] = _LEDGERS
    for ledger in _handed_back:
        ledger._lock.acquire()
        with suppress(Exception):  # a connection that cannot be closed is a dead one
            ledger.close()
    for act in BEFORE_FORK:
        act()


def _after_fork_in_parent() -> None:
    for ledger in _handed_back:
        ledger._lock.release()
    _handed_back.clear()
    _gate.release()


def _after_fork_in_child() -> None:
    global _gate
    for ledger in _handed_back:
        ledger._lock = threading.RLock()
    _handed_back.clear()
    _gate = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
