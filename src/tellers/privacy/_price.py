"""Prices: what a query costs at every Rényi order and on a clock, as one value that travels."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ._clock import ClockFamily, ClockTable
from .rdp import Floats, RdpCurve


@dataclass(frozen=True, eq=False)
class Item:
    """One thing that is paid for, a query or one of its labels: its price by kind of outcome.

    `curves` has one curve per public kind of outcome, silent and answered, say. `clock` works out the table
    for a ledger that holds its budget on a clock; an item without one cannot be paid there.
    """

    curves: tuple[RdpCurve, ...]
    clock: "ClockFamily | ClockTable | None" = None

    @cached_property
    def dearest(self) -> RdpCurve:
        """Return the largest value over all kinds, at each order."""
        return self.curves[0] if len(self.curves) == 1 else RdpCurve.largest(self.curves)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Return what two items have in common if they are the same."""
        clock = self.clock
        said = (
            None if clock is None else clock.to_json() if isinstance(clock, ClockTable) else clock.identity()
        )
        return tuple(curve.values.tobytes() for curve in self.curves), repr(said)

    def curve(self, kind: int | None) -> RdpCurve:
        """Return the curve of a kind of outcome, the dearest for None."""
        if kind is None:
            return self.dearest
        if isinstance(kind, bool) or not 0 <= kind < len(self.curves):
            raise ValueError(f"Expected one of {len(self.curves)} kinds of outcome, from 0, got {kind!r}.")
        return self.curves[kind]

    def table(self, kappa: float) -> ClockTable | None:
        """Return the clock's table, or None where the item has none."""
        if self.clock is None or isinstance(self.clock, ClockTable):
            return self.clock
        return self.clock.table(kappa)

    def price(self, kind: int | None = None) -> "Price":
        """Return the price of one of it: that of a kind, or of the dearest."""
        self.curve(kind)  # one that there is
        kind = None if kind is None else int(kind)
        found = self._prices.get(kind)
        if found is None:
            found = self._prices[kind] = Price.of([(1, self, kind)])
        return found

    @cached_property
    def _prices(self) -> "dict[int | None, Price]":
        return {}


Term = tuple[int, Item, int | None]


@dataclass(frozen=True, eq=False)
class Price(RdpCurve):
    """A Rényi curve that knows what it was added up from: so many items of each kind.

    It is a curve wherever a curve is expected. What is scaled by a fraction, or put together at each order,
    is a curve alone. `ticks` and `events` are what a clock was turned down by already, `delta` what is added
    to the delta of the run.
    """

    terms: tuple[Term, ...] = ()
    ticks: int = 0
    events: int = 0
    delta: float = 0.0

    @classmethod
    def of(cls, terms: Iterable[Term], *, like: RdpCurve | None = None, **also: Any) -> "Price":
        """Return the price of so many items of each kind, in one order whatever order they came in."""
        counted: dict[Any, list[Any]] = {}
        for n, item, kind in terms:
            if n:
                counted.setdefault((item.key, -1 if kind is None else kind), [0, item, kind])[0] += n
        bill: list[Term] = [(n, item, kind) for _, (n, item, kind) in sorted(counted.items(), key=_by_key)]
        orders = (
            bill[0][1].dearest.orders if bill else RdpCurve.zero(None if like is None else like.orders).orders
        )
        values: Floats = np.zeros(orders.size)
        for n, item, kind in bill:
            curve = item.curve(kind)
            if curve.orders is not orders and not np.array_equal(curve.orders, orders):
                raise ValueError(
                    "Expected prices on the same grid of orders; build them with the same `orders`."
                )
            values = values + curve.values * n
        return cls(orders, values, tuple(bill), **also)

    def __add__(self, other: RdpCurve) -> RdpCurve:
        if not isinstance(other, RdpCurve):
            return NotImplemented
        total = super().__add__(other)
        one, also = itemised(self), as_price(other)
        if also is None:
            if not (one.ticks or one.events or one.delta):
                return total
            also = itemised(other)  # what is no part of a curve must not get lost
        bill = Price.of((*one.terms, *also.terms), like=total)
        # The values are never those of the terms: what a clock was turned down by is in them, and in no term.
        return Price(
            total.orders, total.values, bill.terms, one.ticks + also.ticks, one.events + also.events,
            one.delta + also.delta,
        )  # fmt: skip

    __radd__ = __add__

    def __mul__(self, times: float) -> RdpCurve:
        if isinstance(times, bool) or not isinstance(times, (int, np.integer)) or times < 0:
            if self.ticks or self.events or self.delta:
                raise ValueError(
                    f"Expected a whole number of prices that take ticks or a delta of their own, got {times}."
                )
            return super().__mul__(times)
        if times == 1:
            return itemised(self)
        n, total = int(times), super().__mul__(times)
        bill = Price.of(((n * m, item, kind) for m, item, kind in itemised(self).terms), like=total)
        return Price(total.orders, total.values, bill.terms, n * self.ticks, n * self.events, n * self.delta)

    __rmul__ = __mul__


def as_price(curve: RdpCurve) -> Price | None:
    """Return a curve as a price: itself, or nothing at all where it is zero, or None where it is neither."""
    if isinstance(curve, Price):
        return itemised(curve)
    return None if curve.values.any() else Price(curve.orders, curve.values)


def itemised(curve: RdpCurve) -> Price:
    """Return a curve as a price: one that names no items is one item, which no clock has a table for.

    What a ledger spent by Rényi divergence names none either, and costs no less for that.
    """
    if isinstance(curve, Price) and (curve.terms or curve.ticks or curve.events or not curve.values.any()):
        return curve
    if not curve.values.any():
        return Price(curve.orders, curve.values)
    one = Item((RdpCurve(curve.orders, curve.values),))
    return Price.of([(1, one, None)], delta=delta_of(curve))  # one that it keeps would keep it too


def delta_of(price: RdpCurve) -> float:
    """Return what a price adds to the delta of a run."""
    return price.delta if isinstance(price, Price) else 0.0


def epsilon_of(price: RdpCurve, delta: float) -> float:
    """Return the epsilon of a price at a delta, of which it takes its own part first."""
    left = delta - delta_of(price)
    return price.epsilon(left) if left > 0 else math.inf


def with_delta(curve: RdpCurve, delta: float) -> RdpCurve:
    """Return the same cost with this delta of its own."""
    return curve if delta == delta_of(curve) else replace(itemised(curve), delta=delta)


def charges(curves: Sequence[RdpCurve], clock: ClockFamily | None = None) -> tuple[Price, ...]:
    """Return the prices of the kinds of outcome of one item."""
    item = Item(tuple(curves), clock)
    return tuple(item.price(kind) for kind in range(len(item.curves)))


def _by_key(counted: tuple[Any, Any]) -> Any:
    return counted[0]
