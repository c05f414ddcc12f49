"""What the lines of a ledger add up to: sums of every account, and the rules of reserving and settling.

Sums are whole numbers: how many of which items are paid for, reservations at their full price. What was
settled is taken off as the same numbers that were put on, so nothing is ever rounded away.
"""

import json
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..errors import BudgetExhausted, LedgerConflict
from ..privacy._price import Price
from ..privacy.budget import Accountant, Budget, Debit
from ..privacy.rdp import DEFAULT_ORDERS, RdpCurve
from ..privacy.release import Release
from ._bills import BILLS, NUMBERED, Bills, Events, Payment, read_terms, write_terms
from ._lines import READABLE, SCHEMA, Line, LineFinder, LineStore, changed, read_release, write_release
from .base import (
    AccountState,
    Charge,
    Entry,
    canonical,
    charge_all,
    refuse_known,
    refuse_unknown,
    require_groups_pay,
    require_same,
)

ALL_TICKS = 2**80
"""More than any clock has: what was never afforded leaves nothing."""

# Rényi values at the order of a budget, in whole steps, rounded up: sums of them are exact.
_STEPS = 2**70
_INFINITE, _HUGE = 2**200, 2.0**100

CHECKPOINT_EVERY = 1000
"""Lines between two checkpoints, at the least; the larger the last one was, the more."""

_MOST_PENDING = 100_000
_NEWEST_EVENTS = 64


@dataclass(eq=False)
class AccountSums:
    """What is debited to one account. Shown to readers as it is: whoever changes it takes a copy first."""

    accountant: Accountant
    bills: Bills
    paid: dict[tuple[str, int | None], int] = field(default_factory=dict)
    ticks: int = 0
    events: int = 0
    deltas: dict[float, int] = field(default_factory=dict)
    held: int = 0
    _ones: dict[tuple[str, int | None], int] = field(default_factory=dict)  # whole steps by item and kind
    _spent: Price | None = None

    def copy(self) -> "AccountSums":
        return AccountSums(
            self.accountant,
            self.bills,
            self.paid.copy(),
            self.ticks,
            self.events,
            self.deltas.copy(),
            self.held,
            self._ones,  # the same for good
        )

    def add(self, payment: Payment, *, times: int = 1, events: int = 0) -> None:
        """Put a payment on, or take one off with times=-1."""
        for n, name, kind in payment.terms:
            left = self.paid.get((name, kind), 0) + times * n
            if left:
                self.paid[name, kind] = left
            else:
                self.paid.pop((name, kind), None)
        self.held += times * self.steps(payment)
        self.ticks += times * (payment.ticks or 0)
        self.events += events
        if payment.delta:
            left = self.deltas.get(payment.delta, 0) + times
            if left:
                self.deltas[payment.delta] = left
            else:
                self.deltas.pop(payment.delta, None)
        self._spent = None

    def steps(self, payment: Payment) -> int:
        """Return the value of a payment at the order of this account's budget, in whole steps."""
        if self.accountant.clock is not None:
            return 0
        return sum(
            n * (self._ones.get((name, kind)) or self._one(name, kind)) for n, name, kind in payment.terms
        )

    def _one(self, name: str, kind: int | None) -> int:
        curve, order = self.bills.items[name].curve(kind), self.accountant.held_at
        at = np.flatnonzero(curve.orders == order)
        if at.size == 0:
            raise ValueError(
                f"Expected curves that have the order {order:g} at which the budget is held. Build them on "
                "the default grid, or name one of their orders: Accountant(budget, order=...)."
            )
        value = float(curve.values[at[0]])
        steps = self._ones[name, kind] = math.ceil(value * _STEPS) if value < _HUGE else _INFINITE
        return steps

    @property
    def spent(self) -> Price:
        """Return everything debited so far, as a curve, with ticks, events and delta."""
        if self._spent is None:
            values, lines = np.zeros(self.bills.orders.size), self.bills.lines
            # In one order, however the sums were come by: to the last bit they are the same for everybody.
            order = {paid: (lines.get(paid[0], 0), -1 if paid[1] is None else paid[1]) for paid in self.paid}
            for name, kind in sorted(self.paid, key=order.__getitem__):
                values = values + self.bills.items[name].curve(kind).values * self.paid[name, kind]
            delta = math.fsum(n * delta for delta, n in self.deltas.items())
            self._spent = Price(self.bills.orders, values, (), self.ticks, self.events, delta)
        return self._spent

    @property
    def state(self) -> AccountState:
        held = self.accountant
        return AccountState(held.budget, held.held_at, self.spent, held.clock, held.for_tests)

    def debit(self, payment: Payment, *, key: str, account: str | None) -> tuple[Payment, int]:
        """Return a payment with what it turns the clock down by, and its events, or refuse it."""
        price = self.bills.price(payment)
        if self.accountant.clock is None:
            limit = _limit(self.accountant)
            after = self.held + self.steps(payment)
            # Where rounding may decide, and where tests took a delta, the curve itself does. It rounds once
            # for each item; see `_limit` for what rounding does to the budget.
            if payment.delta or self.deltas or not after < limit - (limit * (len(self.paid) + 64) >> 50):
                self.accountant.require(self.spent, price, key=key, account=account)
            return payment, 0
        found = self.accountant.debit(self.spent, price)
        if found is None:
            self.accountant.require(self.spent, price, key=key, account=account)
            raise AssertionError("Expected a refusal of what a clock has no room for.")
        left = self.accountant.ticks - self.ticks
        return payment._replace(ticks=found.ticks, left=left), found.events

    def debit_at(self, payment: Payment) -> Debit | None:
        """Return what was debited for a payment on the clock, as it was worked out when it was reserved."""
        if payment.left is None:
            return None
        before = Price(
            self.bills.orders, np.zeros(self.bills.orders.size), (), self.accountant.ticks - payment.left
        )
        return self.accountant.debit(before, self.bills.price(payment))

    def charged_ticks(self, reserved: Payment, used: Payment) -> int | None:
        """Return what a settled question turned the clock down by; without a clock None.

        What came out and was not paid for takes all that is left: it was never afforded.
        """
        clock = self.accountant.clock
        if clock is None:
            return None
        debit = self.debit_at(reserved)
        if debit is None:
            raise ValueError("Expected what was left on the clock before the question.")
        price, asked = self.bills.price(used), self.bills.price(reserved)
        back = debit.returned([(item.key, n, kind) for n, item, kind in price.terms])
        if back is not None and not used.delta:
            return debit.ticks - back
        kept = bool((price.values <= asked.values * (1 + 1e-9)).all())
        kept = kept and used.delta <= reserved.delta and debit.covers(price, clock.kappa)
        return debit.ticks if kept else ALL_TICKS

    def n_events(self, payment: Payment) -> int:
        """Return how many events of the clock a payment takes."""
        if self.accountant.clock is None:
            return 0
        return sum(n * self.accountant.table(self.bills.items[name]).events for n, name, _ in payment.terms)

    def to_json(self) -> dict[str, Any]:
        lines = self.bills.lines
        said: dict[str, Any] = {}
        if self.paid:
            rows = [[n, lines[name], kind] for (name, kind), n in self.paid.items()]
            said["paid"] = sorted(rows, key=lambda row: (row[1], -1 if row[2] is None else row[2]))
        if self.ticks:
            said["ticks"] = self.ticks
        if self.events:
            said["events"] = self.events
        if self.deltas:
            said["deltas"] = [[n, delta] for delta, n in sorted(self.deltas.items())]
        return said

    def load(self, said: Mapping[str, Any]) -> None:
        """Begin with the sums of a checkpoint."""
        for n, number, kind in said.get("paid", ()):
            self.add(Payment(((int(n), self.bills.name(number), kind),)))
        self.ticks, self.events = int(said.get("ticks", 0)), int(said.get("events", 0))
        self.deltas = {float(delta): int(n) for n, delta in said.get("deltas", ())}


_limits: dict[Accountant, int] = {}


def _limit(accountant: Accountant) -> int:
    """Return a value that fits a budget at its order, in whole steps: the largest, less what is rounded.

    Guarantee: what stays below it, as a float with a relative error of less than n / 2^50, by n / 2^50 of the
               limit at least, is not refused by `Accountant.require`.
    Assumes:   float64.
    Reference: value <-> epsilon is two additions of log1p(-1/order) and of a term that is no larger than both
               it and epsilon together, where anything fits at all; 1e-13 of them is hundreds of roundings.
    """
    found = _limits.get(accountant)
    if found is None:
        if len(_limits) > 10_000:
            _limits.clear()
        most = accountant.value_left(RdpCurve.zero([accountant.held_at]))
        added = accountant.budget.epsilon - math.log1p(-1 / accountant.held_at)
        found = _limits[accountant] = math.floor(most * _STEPS) - math.ceil(1e-13 * added * _STEPS)
    return found


class Reserved(NamedTuple):
    """A question that is in flight: what its line says, and what each account was debited."""

    line: Line
    paid: dict[str | None, Payment]


@dataclass(frozen=True, eq=False)
class View:
    """The sums of a ledger at one line, for whoever only looks."""

    head: Line
    sums: dict[str | None, AccountSums]
    n_questions: int
    n_settled: int
    state: "LedgerState"


@dataclass(eq=False)
class LedgerState:
    """What the lines read so far add up to.

    `find` returns the reserved line of a key that is not remembered here; without it everything in flight
    is remembered.
    """

    find: Callable[[str], Line | None] | None = None
    head: Line | None = None
    terms: dict[str, Any] = field(default_factory=dict)
    sums: dict[str | None, AccountSums] = field(default_factory=dict)
    pending: dict[str, Reserved] = field(default_factory=dict)
    events: Events = field(default_factory=Events)
    opened: dict[str, tuple[int, str]] = field(default_factory=dict)
    n_questions: int = 0
    n_settled: int = 0
    checkpoint: int = 0
    spacing: int = field(default_factory=lambda: CHECKPOINT_EVERY)
    is_closed: bool = False
    _bills: Bills | None = None
    _own: set[str | None] = field(default_factory=set)  # whose sums were copied since they were last shown

    @property
    def bills(self) -> Bills:
        """Return how prices are read and written here."""
        if self._bills is None:
            raise ValueError("Expected the terms before anything else.")
        return self._bills

    @property
    def schema(self) -> int:
        return self.bills.schema

    def show(self) -> View:
        """Return the sums as they are now; they are not changed any more."""
        assert self.head is not None
        self._own.clear()
        return View(self.head, dict(self.sums), self.n_questions, self.n_settled, self)

    # --- Reading ---

    def add(self, line: Line) -> None:
        """Read the next line, after checking that it is the next one and that it was not changed."""
        line.require_follows(self.head)
        try:
            if self.is_closed:
                raise ValueError("Expected no line after the one that closed the ledger.")
            self._read(line, json.loads(line.body))
        except (
            BudgetExhausted, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
            IndexError,
        ):  # fmt: skip
            raise LedgerConflict(
                f"Line {line.number} of the ledger, {line.kind!r}, does not make sense there. "
                "A newer version of tellers may have written it: update, or restore the file."
            ) from None
        self.head = line

    def _read(self, line: Line, body: dict[str, Any]) -> None:
        kind, key = line.kind, line.key
        if (kind == "opened") != (self.head is None):
            raise ValueError(kind)
        if kind == "opened":
            self._read_opened(body)
        elif kind == "account" and key and key not in self.sums:
            self._read_account(line, body)
        elif kind == "price":
            self.bills.add(key, body, number=line.number)
        elif kind == "reserved":
            self._read_reserved(line, body)
        elif kind == "settled":
            self._read_settled(key, body)
        elif kind == "closed":
            self.is_closed = True
        elif self.schema < NUMBERED:
            raise ValueError(kind)
        elif kind == "event":
            self.events.add(key, line.body, number=line.number)
        elif kind == "checkpoint" and key == str(line.number):
            if body != self.to_json():
                raise ValueError("Expected the sums of the lines before.")
            self._note_checkpoint(line)
        elif kind != "trusted" or key != str(line.number):
            raise ValueError(kind)

    def _read_opened(self, body: dict[str, Any]) -> None:
        schema = body.get("schema", 2)
        if schema not in READABLE:
            raise ValueError(schema)
        orders = RdpCurve.zero(body["orders"]).orders
        if np.array_equal(orders, DEFAULT_ORDERS):
            orders = DEFAULT_ORDERS
        self._bills, self.terms = Bills(schema, orders, read_terms(body)), body
        self.sums[None] = AccountSums(self.bills.accountant, self.bills)

    def _read_account(self, line: Line, body: dict[str, Any]) -> None:
        accountant = read_terms(body)
        if (accountant.rule != self.bills.accountant.rule) or (
            accountant.clock is None and accountant.held_at not in self.bills.orders
        ):
            raise ValueError(line.kind)
        self.sums[line.key] = AccountSums(accountant, self.bills)
        self.opened[line.key] = (line.number, line.hash)

    def payments(self, said: Any, also: Mapping[str, Any]) -> dict[str | None, Payment]:
        """Return what every account pays; null means what the main one pays."""
        main = self.bills.read(said)
        named = {name: main if paid is None else self.bills.read(paid) for name, paid in also.items()}
        if not named.keys() <= self.sums.keys():
            raise ValueError("Expected accounts that were opened.")
        paid: dict[str | None, Payment] = {None: main}
        paid.update(named)
        return paid

    def _read_reserved(self, line: Line, body: dict[str, Any]) -> None:
        key, paid = line.key, self.payments(body["price"], body.get("also", {}))
        if key in self.pending or not isinstance(body.get("event", {}), (dict, int)):
            raise ValueError(key)
        for account, payment in paid.items():
            sums = self.sums[account]
            if sums.accountant.clock is None:
                if payment.ticks is not None:
                    raise ValueError("Expected no ticks without a clock.")
                continue
            found, _ = sums.debit(payment, key=key, account=account)
            if payment.ticks != found.ticks or payment.left not in (None, found.left):
                raise ValueError("Expected the ticks that the price takes at what was left.")
            paid[account] = found  # versions before the fourth do not say what was left
        self._reserve(line, paid)

    def _read_settled(self, key: str, body: dict[str, Any]) -> None:
        asked, charged = self.reserved(key), self.payments(body["charged"], body.get("also", {}))
        if asked is None or asked.paid.keys() != charged.keys():
            raise ValueError(key)
        for account, payment in charged.items():
            reserved = asked.paid[account]
            expected = self.sums[account].charged_ticks(reserved, payment)
            if payment.ticks != expected or payment.delta < reserved.delta:
                raise ValueError("Expected the ticks and the delta that the outcome takes of the price.")
        read_release(body, self.bills.price(charged[None]))  # refuses one that could not be shown
        self._settle(key, asked, charged)

    def reserved(self, key: str) -> Reserved | None:
        """Return a question that was reserved and, as far as is known here, not settled."""
        found = self.pending.get(key)
        if found is None and self.find is not None:
            line = self.find(key)
            if line is not None:
                if not line.is_intact:
                    raise changed(line.number)
                body = json.loads(line.body)
                found = Reserved(line, self.payments(body["price"], body.get("also", {})))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint says of the lines before it."""
        assert self.head is not None
        newest = sorted((number, name) for name, number in self.events.lines.items())[-_NEWEST_EVENTS:]
        return {
            "accounts": {name or "": sums.to_json() for name, sums in self.sums.items()},
            "items": sorted([number, name] for name, number in self.bills.lines.items()),
            "opened": {name: list(place) for name, place in self.opened.items()},
            "events": [list(one) for one in newest],
            "questions": self.n_questions,
            "settled": self.n_settled,
        }

    def _note_checkpoint(self, line: Line) -> None:
        self.checkpoint = line.number
        self.spacing = max(CHECKPOINT_EVERY, 8 * len(line.body) // 300)

    @classmethod
    def at_checkpoint(
        cls, store: LineStore, find: Callable[[str], Line | None], *, known: int | None = None
    ) -> "LedgerState | None":
        """Return the state that the last checkpoint of a ledger says, or None where there is none.

        The lines that it names are compared with their hashes; whether the sums are those of the lines before
        is for whoever verifies the whole. Who has the ledger open, and saw it up to the line `known`, goes by
        no checkpoint after that one: those are compared with the lines.
        """
        first, last = store.numbered([0]), store.last("checkpoint")
        if last is not None and known is not None and last.number > known:
            seen = [number for number in store.of_kind("checkpoint", "", after=-1) if number <= known]
            last = next(iter(store.numbered(seen[-1:])), None)
        if not first or last is None or not last.is_intact:
            return None
        state = cls(find)
        state.add(first[0])
        if state.schema < NUMBERED:
            return None
        try:
            body = json.loads(last.body)
            opened: dict[str, list[Any]] = body["opened"]
            named = [number for number, _ in (*body["items"], *body["events"])]
            there = {
                line.number: line for line in store.numbered([*named, *(at for at, _ in opened.values())])
            }
            for number, name in body["items"]:
                state.bills.add(
                    _expected(there, number, "price", name).key, json.loads(there[number].body), number=number
                )
            for number, name in body["events"]:
                state.events.add(
                    _expected(there, number, "event", name).key, there[number].body, number=number
                )
            for name, (number, digest) in opened.items():
                line = _expected(there, number, "account", name)
                if line.hash != digest:
                    raise KeyError(name)
                state._read_account(line, json.loads(line.body))
            for name, said in body["accounts"].items():
                state.sums[name or None].load(said)
            state.n_questions, state.n_settled = int(body["questions"]), int(body["settled"])
        except (
            KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError
        ):  # fmt: skip
            raise LedgerConflict(
                f"Line {last.number} of the ledger, 'checkpoint', does not fit the lines that it names. "
                "Somebody or something changed them; restore the ledger from a backup."
            ) from None
        state.head = last
        state._note_checkpoint(last)
        return state

    # --- Writing: every method checks first, and changes nothing where it refuses ---

    def _sums(self, account: str | None) -> AccountSums:
        """Return the sums of an account, to be changed."""
        if account not in self._own:
            self.sums[account] = self.sums[account].copy()
            self._own.add(account)
        return self.sums[account]

    def _reserve(self, line: Line, paid: dict[str | None, Payment]) -> None:
        for account, payment in paid.items():
            sums = self._sums(account)
            sums.add(payment, events=sums.n_events(payment))
        if self.schema >= NUMBERED and self.find is not None and len(self.pending) >= _MOST_PENDING:
            del self.pending[next(iter(self.pending))]
        self.pending[line.key] = Reserved(line, paid)
        self.n_questions += 1

    def _settle(self, key: str, asked: Reserved, charged: dict[str | None, Payment]) -> None:
        for account, payment in charged.items():
            sums = self._sums(account)
            sums.add(asked.paid[account], times=-1)
            sums.add(payment)
        self.pending.pop(key, None)
        self.n_settled += 1

    def _line(self, kind: str, key: str, text: str) -> Line:
        self.head = Line.following(self.head, kind, key, text)
        return self.head

    def _require_open(self) -> None:
        if self.is_closed:
            raise LedgerConflict(
                "Expected a ledger that is in use, got one that was rewritten into another, which goes on. "
                "Nothing was charged. Open that one."
            )

    def write_account(self, name: str, budget: Budget) -> list[Line]:
        """Open an account, or do nothing where it is open with this budget."""
        self._require_open()
        held = self.sums.get(name)
        if held is not None:
            require_same(name, held.accountant, budget)
            return []
        body = write_terms(self.bills.accountant.beside(budget))
        if self.schema < BILLS:
            del body["rule"]
        return [self.note_account(name, body)]

    def note_account(self, name: str, body: dict[str, Any]) -> Line:
        """Write down the terms of an account."""
        line = self._line("account", name, canonical(body))
        self._read_account(line, body)
        return line

    def write_reserved(
        self,
        key: str,
        price: RdpCurve,
        also: Mapping[str, RdpCurve],
        event: dict[str, Any],
        store: LineFinder,
    ) -> list[Line]:
        """Debit a price, and named accounts theirs, or refuse. That the key is free was looked up."""
        self._require_open()
        if key in self.pending:
            refuse_known(key, is_settled=False)
        booked = self.bills.booked
        paid: dict[str | None, Payment] = {
            None: self.sums[None].debit(booked(price), key=key, account=None)[0]
        }
        if len(self.sums) > 1:
            groups = [name for name in self.sums if name is not None]
            require_groups_pay(key, also, event=event, accounts=groups)
        for name in also:
            if not name or name not in self.sums:  # the main account has no name, and pays the price
                raise LedgerConflict(
                    f"Expected an account that was opened, got {name!r}. Nothing was charged; open it with "
                    "open_account(name, budget), or look for a slip in its name."
                )
        for name, curve in also.items():
            paid[name] = self.sums[name].debit(booked(curve), key=key, account=name)[0]
        # Two who ask the same at once would write the same line, and one whose commit was lost would take
        # the other's for its own: no two reservations have the same mark.
        return self.note_reserved(key, paid, event=event, mark=secrets.token_hex(8), store=store)

    def note_reserved(
        self,
        key: str,
        paid: dict[str | None, Payment],
        *,
        event: dict[str, Any],
        mark: str,
        store: LineFinder,
    ) -> list[Line]:
        """Write down what every account is debited for a question."""
        lines = self._write_items(paid.values())
        payments = self._payments("price", paid)
        if self.schema < NUMBERED:
            text = canonical({"event": event, "mark": mark, **payments})
        else:
            name, repeated, own = self.events.split(event)
            number = self.events.lines.get(name)
            if number is None:
                found = store.named("event", [name]).get(name)
                if found is None:
                    found = self._line("event", name, repeated)
                    lines.append(found)
                self.events.add(name, found.body, number=found.number)
                number = found.number
            said = canonical(payments["price"])
            others = f'"also":{canonical(payments["also"])},' if "also" in payments else ""
            text = f'{{{others}"asked":{own},"event":{number},"mark":"{mark}","price":{said}}}'
        line = self._line("reserved", key, text)
        self._reserve(line, paid)
        lines.append(line)
        return lines

    def write_settled(
        self, key: str, release: Release, used: Mapping[str, RdpCurve] | None, *, is_settled: bool
    ) -> tuple[list[Line], bool]:
        """Record the outcome and give back what was not used; say whether it kept to its price.

        A named account is charged what `used` says of it; without that, what the main account is charged if
        the same was reserved on both, and else all that was reserved.
        """
        # The books and not the ticket say what was reserved.
        asked = None if is_settled else self.reserved(key)
        if asked is None:
            refuse_unknown(key, is_settled=is_settled)
        self._require_open()
        bills, worst = self.bills, release.cost.worst
        reserved = {account: bills.price(payment) for account, payment in asked.paid.items()}
        also = {name: price for name, price in reserved.items() if name is not None}
        main, named, all_kept = charge_all(key, reserved[None], also, worst=worst, used=used)
        charged: dict[str | None, Payment] = {}
        for account, price in asked.paid.items():
            payment = bills.booked(main if account is None else named[account])
            ticks = self.sums[account].charged_ticks(price, payment)
            all_kept = all_kept and ticks != ALL_TICKS
            charged[account] = payment if ticks is None else payment._replace(ticks=ticks)
        shown = write_release(release) if all_kept else None
        return self.note_settled(key, asked, charged, shown=shown), all_kept

    def note_settled(
        self,
        key: str,
        asked: Reserved,
        charged: dict[str | None, Payment],
        *,
        shown: dict[str, Any] | None,
    ) -> list[Line]:
        """Write down what came out, and what every account is charged for it."""
        said = canonical(shown)  # first: what cannot be written is refused before anything is
        lines = self._write_items(charged.values())
        payments = canonical(self._payments("charged", charged))
        lines.append(self._line("settled", key, f'{payments[:-1]},"release":{said}}}'))
        self._settle(key, asked, charged)
        return lines

    def write_checkpoint(self) -> list[Line]:
        """Return a checkpoint where one is due."""
        if self.schema < NUMBERED or self.head is None or self.is_closed:
            return []
        if self.head.number - self.checkpoint < self.spacing:
            return []
        line = self._line("checkpoint", str(self.head.number + 1), canonical(self.to_json()))
        self._note_checkpoint(line)
        return [line]

    def write_note(self, kind: str, body: dict[str, Any]) -> list[Line]:
        """Return a line that says something of the ledger itself: `trusted`, or `closed` in any version."""
        self._require_open()
        assert self.head is not None
        if self.schema < NUMBERED and kind != "closed":
            raise LedgerConflict(
                f"Expected a ledger of version {NUMBERED} to write {kind!r} into, got one of version "
                f"{self.schema}. Rewrite it first: tellers ledger compact."
            )
        number = str(self.head.number + 1)
        line = self._line(kind, "" if kind == "closed" else number, canonical(body))
        self.is_closed = kind == "closed"
        return [line]

    def _write_items(self, payments: Iterable[Payment]) -> list[Line]:
        lines = []
        for name in self.bills.new(payments):
            line = self._line("price", name, self.bills.body(name))
            self.bills.note_line(name, line.number)
            lines.append(line)
        return lines

    def _payments(self, name: str, paid: Mapping[str | None, Payment]) -> dict[str, Any]:
        """Return the part of a body that holds what each account pays; null is what the main one does."""
        write, main = self.bills.write, paid[None]
        said = write(main)
        also = {
            account: None if payment == main or write(payment) == said else write(payment)
            for account, payment in paid.items()
            if account is not None
        }
        return {name: said, **({"also": also} if also else {})}

    # --- Entries ---

    def event(self, body: Mapping[str, Any], store: LineStore) -> dict[str, Any]:
        """Return the event that a reserved line tells of, a copy of one's own."""
        if self.schema < NUMBERED:
            return dict(body.get("event", {}))
        number = body["event"]
        repeated = self.events.said(number)
        if repeated is None:
            line = next(iter(store.numbered([number])), None)
            if line is None or not line.is_intact:
                raise changed(number)
            repeated = json.loads(line.body)
        return {**json.loads(canonical(repeated)), **body["asked"]}

    def entry(self, reserved: Line, settled: Line | None, store: LineStore) -> Entry:
        """Return a question as it stands: what was reserved, what is charged, and what came out."""
        body = json.loads(reserved.body)
        asked = self.payments(body["price"], body.get("also", {}))
        release, charged = None, asked
        if settled is not None:
            outcome = json.loads(settled.body)
            charged = self.payments(outcome["charged"], outcome.get("also", {}))
            release = read_release(outcome, self.bills.price(charged[None]))
        paid = {account: self._paid(account, payment, asked[account]) for account, payment in charged.items()}
        also = {
            name: Charge(self.bills.price(asked[name]), price)
            for name, price in paid.items()
            if name is not None
        }
        return Entry(
            reserved.key, self.event(body, store), self.bills.price(asked[None]), charged=paid[None],
            is_settled=settled is not None, release=release, also=also,
        )  # fmt: skip

    def _paid(self, account: str | None, payment: Payment, asked: Payment) -> Price:
        """Return a price as it is added up: on a clock by its ticks, and no longer by its items."""
        price = self.bills.price(payment)
        if payment.ticks is None:
            return price
        events = self.sums[account].n_events(asked)
        return Price(price.orders, price.values, (), payment.ticks, events, price.delta)


def _expected(there: Mapping[int, Line], number: int, kind: str, key: str) -> Line:
    line = there[number]
    if (line.kind, line.key) != (kind, key) or not line.is_intact:
        raise KeyError(number)
    return line


def opening(accountant: Accountant, *, before: Mapping[str, Any] | None = None) -> Line:
    """Return the first line of a new ledger: its terms, and which one it goes on from, if any."""
    # No two ledgers begin with the same line, also with the same budget.
    body = {"schema": SCHEMA, **write_terms(accountant), "orders": DEFAULT_ORDERS.tolist()}
    body["mark"] = secrets.token_hex(16)
    return Line.after(None, "opened", key="", body={**body, **({"before": dict(before)} if before else {})})


def checked(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines of a whole chain, each checked against the ones before."""
    state = LedgerState()
    for line in lines:
        state.add(line)
        yield line


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
