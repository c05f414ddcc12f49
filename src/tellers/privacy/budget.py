"""Budgets and the arithmetic that says whether one more release fits."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..errors import BudgetExhausted, require_fraction, require_positive
from ._clock import TICKS, Clock, ClockTable
from ._price import Item, Price, delta_of, itemised
from .rdp import DEFAULT_ORDERS, Floats, RdpCurve


@dataclass(frozen=True)
class Budget:
    """The most that may ever be spent.

    >>> Budget(epsilon=2.0, delta=1e-5)
    Budget(epsilon=2.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require_fraction(delta=self.delta)


RULES = ("renyi", "clock")
"""By what a budget may be held: a Rényi divergence at one order, or a Gaussian clock."""


def clock_words(epsilon: float, left: float | None) -> str:
    """Return the one public number of what is held on a clock, with its name and what is left.

    >>> clock_words(2.0, 0.254)
    'epsilon 2 (clock): the budget of everything on the ledger; 25.4 % of the clock is left'
    >>> clock_words(2.0, 1.0)
    'epsilon 0: nothing was asked; the clock of epsilon 2 has not begun to run'
    """
    if left is not None and left >= 1:
        return f"epsilon 0: nothing was asked; the clock of epsilon {epsilon:g} has not begun to run"
    # Rounded down: what is left must not look like more.
    share = "" if left is None else f"; {math.floor(1000 * left) / 10:g} % of the clock is left"
    return f"epsilon {epsilon:g} (clock): the budget of everything on the ledger{share}"


@dataclass(frozen=True)
class Accountant:
    """Pure arithmetic over public curves: what has been spent, and what still fits.

    The budget is held at one Rényi order, fixed before the first release: the order at which it buys most
    of a cost that grows in proportion to the order, as Gaussian noise does. Taking the best order at each
    moment would be cheaper and is wrong: when later questions depend on earlier answers, every path may
    stay inside the budget at an order of its own while the whole does not. For mechanisms of one kind
    nothing is lost; `order` may be given for others, and must not depend on private data.

    With a `clock` the budget is held on a Gaussian clock instead: fewer ticks for the same queries, for one
    epsilon and delta alone. Each query is then priced by its table, at what is left after it. `for_tests` is
    the part of delta that tests with a delta of their own may use up; it is set aside from the beginning,
    because taking it later, where earlier outcomes happened to be harmless, would not be paid for.

    Guarantee: if every release was affordable when it was reserved, all of them together are
               (budget.epsilon, budget.delta)-differentially private, also when later queries depend on
               earlier outcomes and unused parts of a price were returned.
    Assumes:   prices are data-independent and each is known before its noise is drawn.
    Reference: Feldman and Zrnic 2021, Theorem 4.3 (a Rényi filter at a fixed order); see "Composition,
               filters and conversion" for a run that breaks the filter over all orders at once, and for the
               clock.

    >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
    >>> one = RdpCurve.zcdp(0.01)
    >>> accountant.affords(RdpCurve.zero(), one), accountant.affords(10 * one, one)
    (True, False)
    """

    budget: Budget
    order: float | None = None
    clock: Clock | None = None
    for_tests: float = 0.0

    def __post_init__(self) -> None:
        if self.clock is not None and (self.order is not None or self.for_tests):
            raise ValueError(
                "Expected a clock alone, got one with an order or with a part of delta for tests: those are "
                "of the rule by Rényi divergence. Leave them out."
            )
        if not 0 <= self.for_tests < self.budget.delta:
            raise ValueError(
                f"Expected a part of delta={self.budget.delta:g} for tests, at least 0 and less than all of "
                f"it, got {self.for_tests:g}."
            )
        if self.order is not None:
            require_positive(order=self.order - 1)
            if _most(np.array([float(self.order)]), self._converted)[0] < 1e-6 * self.budget.epsilon:
                raise ValueError(
                    f"Expected an order at which {self.budget} can pay for anything, got order={self.order}. "
                    f"Larger orders can; leave it out and order {_best_order(self.budget):g} is taken."
                )

    @classmethod
    def by(cls, rule: str, budget: Budget, *, price: RdpCurve | None = None) -> "Accountant":
        """Return the accountant of a new budget by a rule, on its usual terms.

        With the price of a query a clock has terms for as many events as such queries need, and a quarter
        more: where these are few, the budget pays for more of them.

        >>> Accountant.by("clock", Budget(epsilon=1.0, delta=1e-5)).clock.events
        100000
        >>> one = Item((RdpCurve.zcdp(0.01),), ClockTable((0,), ((2**33,),), kappa=1e-12)).price()
        >>> Accountant.by("clock", Budget(epsilon=1.0, delta=1e-5), price=one).clock.events
        50
        """
        if rule not in RULES:
            raise ValueError(f"Expected a rule, {' or '.join(RULES)}, got {rule!r}.")
        if rule != "clock":
            return cls(budget)
        usual = Clock.for_delta(budget.delta)
        return cls(budget, clock=usual if price is None else _fitting(usual, budget, itemised(price)))

    @classmethod
    def held(cls, budget: Budget, order: float) -> "Accountant":
        """Return the accountant of a budget that was begun at this order, also one too small for anything.

        >>> Accountant.held(Budget(epsilon=1.0, delta=1e-5), 32.0).held_at
        32.0
        """
        return cls(budget) if order == _best_order(budget) else cls(budget, order=order)

    def beside(self, budget: Budget) -> "Accountant":
        """Return the arithmetic of another budget by the same rule, for a named account, say.

        >>> Accountant(Budget(1.0, 1e-5), clock=Clock.for_delta(1e-5)).beside(Budget(0.5, 1e-6)).clock.kappa
        1e-12
        """
        if self.clock is not None:
            return Accountant(budget, clock=self.clock.beside(budget.delta))
        for_tests = self.for_tests / self.budget.delta * budget.delta
        try:
            return Accountant(budget, order=self.order, for_tests=for_tests)
        except ValueError:  # at that order it could pay for nothing
            return Accountant(budget, for_tests=for_tests)

    @property
    def held_at(self) -> float:
        """Return the Rényi order at which the budget is held."""
        return _best_order(self._converted) if self.order is None else float(self.order)

    @property
    def rule(self) -> str:
        """Return by which rule the budget is held: 'renyi' or 'clock'."""
        return "renyi" if self.clock is None else "clock"

    @property
    def _converted(self) -> Budget:
        """Return the budget that curves convert to: without the part of delta that is for tests."""
        return (
            Budget(self.budget.epsilon, self.budget.delta - self.for_tests) if self.for_tests else self.budget
        )

    @property
    def ticks(self) -> int:
        """Return the ticks that a budget on a clock begins with; 0 without a clock.

        >>> Accountant(Budget(1.0, 1e-5)).ticks, Accountant.by("clock", Budget(1.0, 1e-5)).ticks > 0
        (0, True)
        """
        return 0 if self.clock is None else _started(self.clock, self.budget)

    def epsilon(self, spent: RdpCurve) -> float:
        """Return the epsilon of what was spent, at the budget's delta: the smallest over all orders.

        It is exact for a list of releases that was fixed beforehand, and for any number of releases of one
        kind. While a run goes on, what is guaranteed is the budget. On a clock the
        budget is guaranteed and nothing smaller, once something was asked.

        >>> Accountant(Budget(epsilon=1.0, delta=1e-5)).epsilon(RdpCurve.zero())
        0.0
        """
        if self.clock is not None:
            return self.budget.epsilon if spent.values.any() else 0.0
        return spent.epsilon(self._converted.delta)

    def guarantee(self, spent: RdpCurve, *, most: RdpCurve, one_price: bool) -> float:
        """Return the epsilon that a run states: the one public number of a ledger that holds nothing else.

        `most` is the price of all queries that may be asked, fixed before the first; `one_price` says that
        every query costs its price, whatever comes out. Then what was spent is known beforehand, and is the
        statement; else what was spent is itself an outcome, and `most` or the budget stands.

        Guarantee: all releases together are (epsilon, budget.delta)-differentially private.
        Assumes:   every release was affordable when it was reserved; `most` is what it is said to be.
        Reference: Feldman and Zrnic 2021: what a filter states is its budget; see "Composition, filters".

        >>> accountant, one = Accountant(Budget(epsilon=1.0, delta=1e-5)), RdpCurve.zcdp(0.001)
        >>> accountant.guarantee(3 * one, most=9 * one, one_price=True) == (3 * one).epsilon(1e-5)
        True
        >>> accountant.guarantee(3 * one, most=900 * one, one_price=False)
        1.0
        """
        return self.epsilon(spent) if one_price else min(self.budget.epsilon, self.epsilon(most))

    def affords(self, spent: RdpCurve, price: RdpCurve) -> bool:
        """Return whether `price` fits on top of what was spent."""
        if self.clock is not None:
            return self.debit(spent, price) is not None
        return self._affords_delta(spent, price) and self._affords_value(spent, price)

    def _affords_delta(self, spent: RdpCurve, price: RdpCurve) -> bool:
        return delta_of(spent) + delta_of(price) <= self.for_tests * (1 + 1e-12)

    def _affords_value(self, spent: RdpCurve, price: RdpCurve) -> bool:
        return self._held(spent, price).epsilon(self._converted.delta) <= self.budget.epsilon

    def debit(self, spent: RdpCurve, price: RdpCurve) -> "Debit | None":
        """Return what a price turns the clock down by, after what was spent, or None where it does not fit.

        What was spent is ticks that were turned down, items that are not ticks yet, or both: a ledger of
        one's own may add up prices, and a planner does. Items do not tell in which order they were asked,
        and the order matters, because a table asks for less where more is left. Pricing them in an order of
        their own would price what is asked last as if much were left, and whoever chooses it by what came
        out before would get it too cheaply. So items of one table are priced one after the other, and those
        of several tables all at the level that is left after all of them.

        Guarantee: items take at least what ticks would have taken, in every order, whatever is asked next
                   because of what came out; for items of one table exactly that, at their dearest kind.
        Assumes:   prices that do not grow with the level.
        Reference: let b(S) be the largest level L with L + sum of p(L) over S <= start. With L = b(S + X)
                   the level M = L + p_X(L) has M + sum of p(M) over S <= L + p_X(L) + sum of p(L) over S
                   <= start, so M <= b(S): the step to X takes at least its price at the level after it,
                   as the filter with a Gaussian clock asks for. Steps of one table end no lower than b(S).

        >>> item = Item((RdpCurve.zcdp(0.01),), ClockTable((0,), ((2**33,),), kappa=1e-12))
        >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5), clock=Clock.for_delta(1e-5))
        >>> accountant.debit(3 * item.price(), item.price()).ticks == 2**33
        True
        >>> accountant.n_affordable(item.price(), 1000), accountant.affords(9 * item.price(), item.price())
        (9, False)
        """
        if self.clock is None:
            raise ValueError("Expected a budget on a clock, got one held by Rényi divergence.")
        before, bill = itemised(spent), itemised(price)
        if bill.delta:
            raise ValueError(
                f"Expected a price without a delta of its own on a clock, got one that adds {bill.delta:g} "
                "for a test. What it costs is known at one Rényi order alone: hold the budget by Rényi "
                "divergence, Accountant(budget, order=..., for_tests=...)."
            )
        if bill.ticks or bill.events:
            raise ValueError(
                "Expected the price of questions on a clock, got what one was turned down by already: how "
                "much that takes of another clock is not known. Ask for the price of the same questions."
            )
        if before.delta:
            return None
        left = self._left_on_clock(before)
        if left is None:
            return None
        events, returned = self._events_left(before), []
        level, n_before = left, events
        for n, item, _ in bill.terms:
            table = self.table(item)
            steps = table.steps(left, n)
            if steps is None:
                return None
            left -= sum(times * table.dearest[at] for at, times in steps)
            events -= n * table.events
            kinds = tuple(min(table.dearest[at] - row[at] for at, _ in steps) for row in table.prices)
            returned.append((item.key, n, kinds, min(table.dearest[at] for at, _ in steps)))
        return None if events < 0 else Debit(level - left, n_before - events, tuple(returned), level=left)

    def _events_left(self, spent: RdpCurve) -> int:
        """Return how many events the clock may still see."""
        assert self.clock is not None
        before = itemised(spent)
        return (
            self.clock.events
            - before.events
            - sum(n * self.table(item).events for n, item, _ in before.terms)
        )

    def _left_on_clock(self, spent: Price) -> int | None:
        """Return the ticks left after what was spent, in whatever order, or None where it does not fit."""
        left, counts = self.ticks - spent.ticks, dict[tuple[object, ...], int]()
        tables: dict[tuple[object, ...], ClockTable] = {}
        for n, item, _ in spent.terms:
            counts[item.key] = counts.get(item.key, 0) + n
            tables[item.key] = self.table(item)
        if left < 0 or not tables:
            return left if left >= 0 else None
        if len(tables) == 1:
            ((key, table),) = tables.items()
            return table.after(left, counts[key])
        for level in sorted({level for table in tables.values() for level in table.levels}, reverse=True):
            after = left - sum(counts[key] * table.dearest_at(level) for key, table in tables.items())
            if after >= level:
                return after
        return None

    def table(self, item: Item) -> ClockTable:
        """Return the table by which an item turns this clock, or refuse an item that has none.

        >>> item = Item((RdpCurve.zcdp(0.01),), ClockTable((0,), ((2**33,),), kappa=1e-12))
        >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5), clock=Clock.for_delta(1e-5))
        >>> accountant.table(item).dearest == (2**33,)
        True
        """
        if self.clock is None:
            raise ValueError("Expected a budget on a clock, got one held by Rényi divergence.")
        table = item.table(self.clock.kappa)
        if table is None:
            raise ValueError(
                "Expected a price that the clock has a table for, got a Rényi curve alone. Ask with a "
                "mechanism that has one, or hold the budget by Rényi divergence: Accountant(budget)."
            )
        if table.kappa > self.clock.kappa:
            raise ValueError(f"Expected a table for kappa={self.clock.kappa:g}, got one for {table.kappa:g}.")
        return table

    def n_affordable(
        self, price: RdpCurve, most: int, *, spent_after: Callable[[int], RdpCurve] | None = None
    ) -> int:
        """Return how many queries of one price a ledger lets through, `most` at most.

        Before each query its whole price must fit. `spent_after(n)` says what n queries were charged, which
        grows with n: where it is not given, n times the price.

        >>> accountant, one = Accountant(Budget(epsilon=1.0, delta=1e-5)), RdpCurve.zcdp(0.001)
        >>> n = accountant.n_affordable(one, 1000)
        >>> accountant.affords((n - 1) * one, one), accountant.affords(n * one, one)
        (True, False)
        >>> accountant.n_affordable(one, 1000, spent_after=lambda n: n * (0.5 * one)) > n
        True
        """
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            spent = (middle - 1) * price if spent_after is None else spent_after(middle - 1)
            low, high = (middle, high) if self.affords(spent, price) else (low, middle - 1)
        return low

    def require(self, spent: RdpCurve, price: RdpCurve, *, key: str, account: str | None = None) -> None:
        """Refuse a price that does not fit, before anything is drawn; `account` says whose budget it is.

        >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> accountant.require(RdpCurve.zero(), RdpCurve.zcdp(9.0), key="q17")
        Traceback (most recent call last):
            ...
        tellers.errors.BudgetExhausted: Query 'q17' would take epsilon to ..., past the budget of 1.0. ...
        """
        if not self.affords(spent, price):
            if self.clock is not None:
                whose = "the budget" if account is None else f"account {account!r}"
                said = (
                    f"Query {key!r} does not fit: {self.left(spent):.2%} of the clock of {whose}, epsilon "
                    f"{self.budget.epsilon}, is left, and {self._events_left(spent):,} of its "
                    f"{self.clock.events:,} events."
                )
            elif not self._affords_delta(spent, price):
                after = delta_of(spent) + delta_of(price)
                whose = "" if account is None else f" of account {account!r}"
                said = (
                    f"Query {key!r} would take the delta of tests{whose} to {after:.3g}, past the "
                    f"{self.for_tests:g} that were set aside for them when the "
                    f"{'ledger' if account is None else 'account'} was opened."
                )
                if account is not None and self.for_tests:
                    # An account sets aside the share of its delta that the ledger sets aside of its own.
                    least = after * self.budget.delta / self.for_tests
                    said += (
                        f" Of its delta of {self.budget.delta:g} that is the same share as on the ledger: "
                        f"tests that take {after:.3g} need an account with a delta of {least:.3g}."
                    )
            else:
                after = self._held(spent, price).epsilon(self._converted.delta)
                whose = f"epsilon to {after:.4g}, past the budget"
                if account is not None:
                    whose = f"account {account!r} to epsilon {after:.4g}, past its budget"
                said = f"Query {key!r} would take {whose} of {self.budget.epsilon}."
            refusal = BudgetExhausted(f"{said} Raise the budget or stop here.")
            refusal.account = account
            raise refusal

    def left(self, spent: RdpCurve) -> float:
        """Return which share of the budget is left, from 1 to 0, at the order at which it is held.

        >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> accountant.left(RdpCurve.zero()), round(accountant.left(RdpCurve.zcdp(0.01)), 2)
        (1.0, 0.67)
        """
        if self.clock is not None:
            paid = itemised(spent)
            return (self._left_on_clock(paid) or 0) / self.ticks
        return self.value_left(spent) / float(_most(np.array([self.held_at]), self._converted)[0])

    def value_left(self, spent: RdpCurve) -> float:
        """Return the largest Rényi value that still fits, at the order at which the budget is held.

        >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> rho, nothing = accountant.value_left(RdpCurve.zero()) / accountant.held_at, RdpCurve.zero()
        >>> [accountant.affords(nothing, RdpCurve.zcdp(share * rho)) for share in (0.999, 1.001)]
        [True, False]
        """
        if self.clock is not None:
            raise ValueError(
                "Expected a budget held by Rényi divergence, got one on a clock: ask for `left`."
            )
        most = float(_most(np.array([self.held_at]), self._converted)[0])
        return max(0.0, most - float(self._held(spent).values[0]))

    def _held(self, *curves: RdpCurve) -> RdpCurve:
        """Return the sum of curves at the order at which the budget is held, where items do not matter."""
        curve, *others = curves
        for other in others:
            curve = RdpCurve.__add__(curve, other)
        at = np.flatnonzero(curve.orders == self.held_at)
        if at.size == 0:
            raise ValueError(
                f"Expected curves that have the order {self.held_at:g} at which the budget is held. Build "
                "them on the default grid, or name one of their orders: Accountant(budget, order=...)."
            )
        return RdpCurve(curve.orders[at], curve.values[at])


@dataclass(frozen=True)
class Debit:
    """What a clock was turned down by for a question, and how much of it each kind of outcome gives back."""

    ticks: int
    events: int
    # Of every item: its key, how many, what a kind gives back at least, and one that was not asked.
    items: tuple[tuple[tuple[object, ...], int, tuple[int, ...], int], ...]
    level: int = 0  # what was left after it

    def covers(self, used: Price, kappa: float) -> bool:
        """Return whether what was turned down pays for other items too, at the level after it.

        An item without a table is not judged here: what it costs on a clock is not known.
        """
        tables = [(n, item.table(kappa)) for n, item, _ in used.terms]
        known = [(n, table) for n, table in tables if table is not None]
        return (
            all(table.kappa <= kappa for _, table in known)
            and sum(n * table.dearest_at(self.level) for n, table in known) <= self.ticks
            and sum(n * table.events for n, table in known) <= self.events
        )

    def returned(self, used: Iterable[tuple[tuple[object, ...], int, int | None]]) -> int | None:
        """Return the ticks that these outcomes give back, or None where more came out than was paid for.

        Guarantee: what was charged is at least the price of each outcome at the level it was paid at.
        Assumes:   the questions were fixed when they were paid for.
        Reference: "Composition, filters and conversion": prices that do not grow with the level.
        """
        back, asked = 0, dict.fromkeys((key for key, *_ in self.items), 0)
        by_key = {key: (kinds, whole) for key, _, kinds, whole in self.items}
        for key, n, kind in used:
            if key not in asked:
                return None
            asked[key] += n
            back += 0 if kind is None else n * by_key[key][0][kind]
        for key, n, _, whole in self.items:
            if asked[key] > n:
                return None
            back += (n - asked[key]) * whole
        return back


@lru_cache(maxsize=256)
def _started(clock: Clock, budget: Budget) -> int:
    return clock.start(budget.epsilon, budget.delta)


def _fitting(usual: Clock, budget: Budget, price: Price) -> Clock:
    """Return the terms for as many events as a budget can pay for at this price, and a quarter more."""
    if not price.terms or price.orders[0] > 2 or any(item.clock is None for _, item, _ in price.terms):
        return usual
    # What is lost to a query at a full clock, about: twice its divergence at the smallest order.
    least = sum(n * min(curve.values[0] for curve in item.curves) for n, item, _ in price.terms)
    if least <= 0:
        return usual
    n_queries = _started(usual, budget) / TICKS / (2 * float(least) / price.orders[0])
    wanted = 1.25 * n_queries * sum(n for n, _, _ in price.terms)
    checked = any(len(item.curves) > 1 for _, item, _ in price.terms)
    clock = Clock.for_events(budget.delta, wanted, checked=checked)
    tables = [(n, item.table(clock.kappa)) for n, item, _ in price.terms]
    n_events = sum(n * table.events for n, table in tables if table is not None)
    return Clock.for_events(budget.delta, 1.25 * n_queries * n_events, checked=checked)


def smallest_on_clock(cost: RdpCurve, delta: float, *, price: RdpCurve | None = None) -> Budget:
    """Return the budget from which on a ledger on a clock can pay this cost, to a part in a million.

    With the price of a query its terms are those that `Accountant.by` has for such queries.

    Guarantee: an `Accountant` of this budget, held on a clock by `Accountant.by`, affords the cost.
    Assumes:   every item of the cost has a clock price.
    Reference: see `Clock.start`: a larger epsilon begins with more ticks.
    """
    nothing, low, high = RdpCurve.zero(cost.orders), 0.0, max(cost.epsilon(delta), 1e-3)

    def affords(epsilon: float) -> bool:
        return Accountant.by("clock", Budget(epsilon, delta), price=price).affords(nothing, cost)

    while not affords(high):
        low, high = high, 1.1 * high
        if high > 1e6:
            raise ValueError(
                "Expected a cost that a clock can pay, got more events than it has in it. Take Rényi's rule."
            )
    # A clock mostly asks for a little less than the Rényi epsilon.
    near = 0.8 * high
    if low == 0 and not affords(near):
        low = near
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if affords(middle) else (middle, high)
    return Budget(high, delta)


def smallest_budget(cost: RdpCurve, delta: float) -> Budget:
    """Return the budget from which on a ledger can pay this cost.

    It is above `cost.epsilon(delta)` where the order at which a budget is held is not the cheapest for this
    cost: by a hundredth or two for a few Gaussian queries, by more for a few of pure privacy.

    Guarantee: an `Accountant` of this budget, and of every larger one, affords the cost; of one a hair
               smaller it does not.
    Assumes:   the cost is on the default grid of orders, finite there, and not free at this delta.
    Reference: see `Accountant`: a budget is held at the order that buys most of a cost in proportion to it.
    """
    orders = cost.orders
    paid = cost.values + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    # Order a buys more than b at epsilon E if (E - added_a) / a > (E - added_b) / b: from some E on where b
    # is the larger order, and up to some E where it is the smaller.
    shares = (paid - cost.values) / orders
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (shares[:, None] - shares[None, :]) / (1 / orders[:, None] - 1 / orders[None, :])
    begins = np.where(orders[None, :] > orders[:, None], meet, 0.0).max(axis=1)
    ends = np.where(orders[None, :] < orders[:, None], meet, np.inf).min(axis=1)
    # While a budget is held at an order it fails until it reaches what is paid there.
    fails = (begins < ends) & (begins < paid)
    epsilon = float(np.minimum(paid, ends)[fails].max())
    budget = Budget(epsilon, delta)
    while not Accountant(budget).affords(RdpCurve.zero(orders), cost):
        epsilon *= 1 + 1e-13  # rounding put it a hair below
        budget = Budget(epsilon, delta)
    return budget


def _most(orders: Floats, budget: Budget) -> Floats:
    """Return the largest Rényi value that converts to the budget, at each order."""
    most: Floats = (
        budget.epsilon - np.log1p(-1 / orders) + (math.log(budget.delta) + np.log(orders)) / (orders - 1)
    )
    # Below this value the conversion gives epsilon 0 whatever the order.
    return np.maximum(most, -math.log1p(-(budget.delta**2)))


@lru_cache(maxsize=256)
def _best_order(budget: Budget) -> float:
    return float(DEFAULT_ORDERS[np.argmax(_most(DEFAULT_ORDERS, budget) / DEFAULT_ORDERS)])
