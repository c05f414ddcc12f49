"""How a ledger writes prices: every item once, and bills that name items and how many."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..privacy._clock import Clock, ClockTable
from ..privacy._price import Item, Price, Term, itemised
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import Floats, RdpCurve
from .base import canonical

# Versions 1 and 2 wrote the values of a curve in every line. From version 3 on an item (a query, or a label)
# has a line of its own, "price", when it is first paid for: its values by kind of outcome, and on a clock its
# table. A payment is {"bill": [[n, item], [n, item, kind], ...]}, with "ticks" on a clock, and "delta" where
# it has one. Version 3 names an item by its hash, version 4 by the number of its line; a reservation on a
# clock then says too how much was "left" before it. Whoever reads a ledger needs no mechanism and no table
# of his own.

BILLS = 3
"""The first version that writes bills."""

NUMBERED = 4
"""The first version that names items and events by the numbers of their lines, and has checkpoints."""


class Payment(NamedTuple):
    """What one account pays: how many of which items, by name, and of which kind of outcome."""

    terms: tuple[tuple[int, str, int | None], ...]
    delta: float = 0.0
    ticks: int | None = None
    left: int | None = None


def write_curve(curve: RdpCurve) -> list[float | str]:
    """Return the values of a curve as JSON can hold them."""
    return [value if value < float("inf") else "inf" for value in curve.values.tolist()]


def write_terms(accountant: Accountant) -> dict[str, Any]:
    """Return the terms that an account is opened with: its budget, and the rule by which it is held."""
    budget, clock = accountant.budget, accountant.clock
    said: dict[str, Any] = {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}
    if clock is not None:
        terms = {"kappa": clock.kappa, "events": clock.events, "tables": clock.tables}
        return {**said, "rule": "clock", "clock": terms}
    tests = {"for_tests": float(accountant.for_tests)} if accountant.for_tests else {}
    return {**said, "rule": "renyi", "held_at": accountant.held_at, **tests}


def read_terms(said: dict[str, Any]) -> Accountant:
    """Return the arithmetic that terms were written for; those of old versions name no rule."""
    budget = Budget(said["epsilon"], said["delta"])
    rule = said.get("rule", "renyi")
    if rule == "clock":
        terms = said["clock"]
        return Accountant(budget, clock=Clock(terms["kappa"], terms["events"], terms["tables"]))
    if rule != "renyi":
        raise ValueError(f"Expected a ledger held by 'renyi' or 'clock', got {rule!r}.")
    for_tests = said.get("for_tests", 0.0)
    usual = Accountant(budget, for_tests=for_tests)
    same = usual.held_at == said["held_at"]
    return usual if same else Accountant(budget, order=said["held_at"], for_tests=for_tests)


_MOST_KEPT = 1024
_MOST_COUNTED = 2**256  # sums of them are floats for as long as anybody asks


@dataclass(eq=False)
class Bills:
    """The items that a ledger knows, and how it reads and writes what is paid for them.

    An item has one name in all versions, the hash of what is said of it. `items` are those that were met;
    `lines` says in which line each of them stands, once it is on the books.
    """

    schema: int
    orders: Floats
    accountant: Accountant
    items: dict[str, Item] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)  # by the number of the line
    _by_key: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _bodies: dict[str, str] = field(default_factory=dict)
    # What was worked out before, of prices that are asked again and again.
    _booked: dict[int, tuple[RdpCurve, Payment]] = field(default_factory=dict)
    _prices: dict[Payment, Price] = field(default_factory=dict)

    def curve(self, values: list[float | str]) -> RdpCurve:
        """Return a stored curve, on the grid of this ledger."""
        return RdpCurve(self.orders, np.array([float(value) for value in values]))

    def add(self, name: str, body: dict[str, Any], *, number: int) -> None:
        """Read the line of an item."""
        if name in self.lines or name != _name(canonical(body)) or self.schema < BILLS:
            raise ValueError("Expected an item under its own name, once.")
        if name not in self.items:
            self.items[name] = self._item(body, name)
        self.note_line(name, number)

    def note_line(self, name: str, number: int) -> None:
        """Remember in which line an item stands."""
        self.lines[name], self._names[number] = number, name

    def booked(self, price: RdpCurve) -> Payment:
        """Return a price in the items of this ledger; those that are new are worked out now."""
        known = self._booked.get(id(price))
        if known is not None and known[0] is price:
            return known[1]
        payment = self._book(price)
        if len(self._booked) >= _MOST_KEPT:
            self._booked.clear()
        self._booked[id(price)] = price, payment
        return payment

    def _book(self, price: RdpCurve) -> Payment:
        if not np.array_equal(price.orders, self.orders):
            raise ValueError(
                "Expected a price on the same grid of orders as the ledger, got another one. Nothing was "
                "charged. Build it on the default grid."
            )
        bill = itemised(price)
        _require_plain(bill)
        named = Price.of(bill.terms, like=price)
        if bill.ticks or bill.events or np.any(bill.values > named.values * (1 + 1e-9)):
            # It costs more than the items it names: what was spent before is in it, and is paid again.
            bill = replace(itemised(RdpCurve(bill.orders, bill.values)), delta=bill.delta)
        if self.schema < BILLS:
            # Old ledgers have no place for a delta of its own, and nothing that pays for it.
            values = np.full(price.orders.size, np.inf) if bill.delta else bill.values
            return self._whole(RdpCurve(price.orders, values))
        terms: dict[tuple[str, int | None], int] = {}
        for n, item, kind in bill.terms:
            name = self.note(item)
            terms[name, kind] = terms.get((name, kind), 0) + n
        return Payment(tuple((n, name, kind) for (name, kind), n in terms.items()), float(bill.delta))

    def _whole(self, curve: RdpCurve) -> Payment:
        """Return the payment of one curve, as old versions write them."""
        if not curve.values.any():
            return Payment(())
        name = hashlib.sha256(curve.values.tobytes()).hexdigest()[:32]
        if name not in self.items:
            self.items[name] = Item((RdpCurve(self.orders, curve.values),))
        return Payment(((1, name, None),))

    def new(self, payments: Iterable[Payment]) -> list[str]:
        """Return the names of items that are paid and have no line yet."""
        if self.schema < BILLS:
            return []
        return list(
            dict.fromkeys(
                name for payment in payments for _, name, _ in payment.terms if name not in self.lines
            )
        )

    def body(self, name: str) -> str:
        """Return what the line of a new item says."""
        return self._bodies[name]

    def write(self, payment: Payment) -> Any:
        """Return a payment as JSON can hold it; its items have lines by now."""
        if self.schema < BILLS:
            return write_curve(self.price(payment))
        lines = self.lines if self.schema >= NUMBERED else None
        bill = [
            [n, name if lines is None else lines[name], *([] if kind is None else [kind])]
            for n, name, kind in payment.terms
        ]
        said: dict[str, Any] = {"bill": bill}
        if payment.ticks is not None:
            said["ticks"] = payment.ticks
            if payment.left is not None and lines is not None:
                said["left"] = payment.left
        return {**said, "delta": payment.delta} if payment.delta else said

    def read(self, said: Any) -> Payment:
        """Return a payment that was written."""
        if self.schema < BILLS:
            return self._whole(self.curve(said))
        terms = tuple(
            (_count(n), self.name(item), self._kind(self.name(item), kind)) for n, item, *kind in said["bill"]
        )
        ticks, left = said.get("ticks"), said.get("left")
        for count in (ticks, left):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise ValueError(f"Expected whole ticks, got {count!r}.")
        return Payment(terms, float(said.get("delta", 0.0)), ticks, left)

    def name(self, item: Any) -> str:
        """Return the name of an item as bills say it: by its name, or by the number of its line."""
        if self.schema >= NUMBERED:
            return self._names[item]
        if item not in self.lines:
            raise KeyError(item)
        return str(item)

    def _kind(self, name: str, said: list[Any]) -> int | None:
        if not said:
            return None
        (kind,) = said
        self.items[name].curve(kind)  # refuses one that there is not
        return int(kind)

    def price(self, payment: Payment) -> Price:
        """Return the price of a payment, with its items."""
        key = payment if payment.ticks is None else payment._replace(ticks=None, left=None)
        known = self._prices.get(key)
        if known is None:
            terms: list[Term] = [(n, self.items[name], kind) for n, name, kind in payment.terms]
            known = Price.of(terms, like=RdpCurve.zero(self.orders), delta=payment.delta)
            if len(self._prices) >= _MOST_KEPT:
                self._prices.clear()
            self._prices[key] = known
        return known

    def note(self, item: Item) -> str:
        """Return the name of an item, which need not be on the books yet."""
        return self._by_key.get(item.key) or self._note(item)

    def _note(self, item: Item) -> str:
        body: dict[str, Any] = {"kinds": [write_curve(curve) for curve in item.curves]}
        if self.accountant.clock is not None:
            # What came out may have no table. It is written down all the same, and gives nothing back.
            table = item.table(self.accountant.clock.kappa)
            body |= {} if table is None else {"clock": table.to_json()}
        text = canonical(body)
        name = _name(text)
        if name not in self.items:
            self.items[name], self._bodies[name] = self._item(body, name), text
        self._by_key[item.key] = name
        return name

    def _item(self, body: dict[str, Any], name: str) -> Item:
        table = ClockTable.from_json(body["clock"]) if "clock" in body else None
        item = Item(tuple(self.curve(values) for values in body["kinds"]), table)
        if not item.curves:
            raise ValueError("Expected a kind of outcome, at least.")
        self._by_key.setdefault(item.key, name)
        return item


def _name(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _require_plain(bill: Price) -> None:
    """Refuse a price that could not be read back, or that others would pay less for."""
    for n, _, kind in bill.terms:
        if _count(n) > _MOST_COUNTED or not (kind is None or type(kind) is int):
            raise ValueError(f"Expected whole counts and kinds of outcome in a price, got {n}, {kind!r}.")
    if not 0 <= bill.delta < float("inf"):
        raise ValueError(f"Expected a price with a finite delta of at least 0, got {bill.delta}.")


def _count(n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"Expected how many, a whole number above 0, got {n!r}.")
    return n


# --- Events ---

REPEATED = (
    "groups",
    "mechanism",
    "n_classes",
    "n_queries",
    "n_teachers",
    "noise",
    "parameters",
    "unit",
)
"""What of an event is mostly the same for many questions, and has a line of its own."""


@dataclass(eq=False)
class Events:
    """The parts of events that repeat, each in a line of its own from version 4 on.

    Those that were not met for a while are forgotten here, and read again from their lines.
    """

    lines: dict[str, int] = field(default_factory=dict)  # by name
    _said: dict[int, dict[str, Any]] = field(default_factory=dict)  # by the number of the line
    _names: dict[str, str] = field(default_factory=dict)  # by their text

    def split(self, event: dict[str, Any]) -> tuple[str, str, str]:
        """Return name and text of the part that repeats, and the text of what is this question's own."""
        repeated = canonical({name: event[name] for name in REPEATED if name in event})
        name = self._names.get(repeated)
        if name is None:
            if len(self._names) >= _MOST_KEPT:
                self._names.clear()
            name = self._names[repeated] = _name(repeated)
        return name, repeated, canonical({key: said for key, said in event.items() if key not in REPEATED})

    def add(self, name: str, text: str, *, number: int) -> None:
        """Read the line of an event."""
        said = json.loads(text)
        if not isinstance(said, dict) or name != _name(canonical(said)) or name in self.lines:
            raise ValueError("Expected an event under its own name, once.")
        self.lines[name], self._said[number] = number, said
        if len(self.lines) > _MOST_KEPT:
            # The newest lines stay: checkpoints name them, and whoever wrote one must come to the same.
            oldest = min(self.lines, key=self.lines.__getitem__)
            del self._said[self.lines.pop(oldest)]

    def said(self, number: int) -> dict[str, Any] | None:
        """Return what a line of an event says, or None where it is not remembered."""
        return self._said.get(number)
