"""How a ledger writes prices: every item once, and bills that name items and how many."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..privacy._clock import Clock, ClockTable
from ..privacy._price import Item, Price, Term, itemised
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import Floats, RdpCurve
from .base import canonical

# Versions 1 and 2 wrote the values of a curve in every line. From version 3 on an item (a query, or a label)
# has a line of its own, "price", when it is first paid for: its values by kind of outcome, and on a clock its
# table. A payment is {"bill": [[n, item], [n, item, kind], ...]}, with "ticks" on a clock, and "delta" where
# it has one. Whoever reads a ledger needs no mechanism and no table of his own.

BILLS = 3
"""The first version that writes bills."""


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


@dataclass(eq=False)
class Bills:
    """The items that a ledger knows, and how it reads and writes what is paid for them."""

    schema: int
    orders: Floats
    accountant: Accountant
    items: dict[str, Item] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _said: dict[str, dict[str, Any]] = field(default_factory=dict)

    def curve(self, values: list[float | str]) -> RdpCurve:
        """Return a stored curve, on the grid of this ledger."""
        return RdpCurve(self.orders, np.array([float(value) for value in values]))

    def add(self, name: str, body: dict[str, Any]) -> None:
        """Read the line of an item."""
        if name in self.items or name != _name(body) or self.schema < BILLS:
            raise ValueError("Expected an item under its own name, once.")
        self.items[name] = self._item(body)

    def booked(self, price: RdpCurve) -> Price:
        """Return a price in the items of this ledger; those that are new are worked out now."""
        bill = itemised(price)
        named = Price.of(bill.terms, like=price)
        if bill.ticks or bill.events or np.any(bill.values > named.values * (1 + 1e-9)):
            # It costs more than the items it names: what was spent before is in it, and is paid again.
            bill = replace(itemised(RdpCurve(bill.orders, bill.values)), delta=bill.delta)
        if self.schema < BILLS:
            # Old ledgers have no place for a delta of its own, and nothing that pays for it.
            return (
                itemised(RdpCurve(price.orders, np.full(price.orders.size, np.inf))) if bill.delta else bill
            )
        terms: list[Term] = []
        for n, item, kind in bill.terms:
            name = self._names.get(item.key) or self._note(item)
            terms.append((n, self.items.get(name) or self._item(self._said[name]), kind))
        return Price.of(terms, like=price, delta=bill.delta)

    def new(self, *prices: Price) -> dict[str, dict[str, Any]]:
        """Return the lines, by name, of items that booked prices name and the ledger has none of yet."""
        if self.schema < BILLS:
            return {}
        named = [self._names[item.key] for price in prices for _, item, _ in price.terms]
        return {name: self._said[name] for name in named if name not in self.items}

    def write(self, price: Price, *, ticks: int | None = None) -> Any:
        """Return a booked price as JSON can hold it."""
        if self.schema < BILLS:
            return write_curve(price)
        bill = [
            [n, self._names[item.key], *([] if kind is None else [kind])] for n, item, kind in price.terms
        ]
        said: dict[str, Any] = {"bill": bill}
        if ticks is not None:
            said["ticks"] = ticks
        return {**said, "delta": price.delta} if price.delta else said

    def read(self, said: Any) -> tuple[Price, int | None]:
        """Return a price that was written, and the ticks on it."""
        if self.schema < BILLS:
            return itemised(self.curve(said)), None
        terms = [(_count(n), self.items[name], kind[0] if kind else None) for n, name, *kind in said["bill"]]
        price = Price.of(terms, like=RdpCurve.zero(self.orders), delta=float(said.get("delta", 0.0)))
        return price, said.get("ticks")

    def _note(self, item: Item) -> str:
        body: dict[str, Any] = {"kinds": [write_curve(curve) for curve in item.curves]}
        if self.accountant.clock is not None:
            # What came out may have no table. It is written down all the same, and gives nothing back.
            table = item.table(self.accountant.clock.kappa)
            body |= {} if table is None else {"clock": table.to_json()}
        name = _name(body)
        self._said[name] = body
        self._names[item.key] = name
        self._names[self._item(body).key] = name
        return name

    def _item(self, body: dict[str, Any]) -> Item:
        table = ClockTable.from_json(body["clock"]) if "clock" in body else None
        item = Item(tuple(self.curve(values) for values in body["kinds"]), table)
        self._names.setdefault(item.key, _name(body))
        return item


def _name(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(body).encode("ascii")).hexdigest()[:32]


def _count(n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"Expected how many, a whole number above 0, got {n!r}.")
    return n
