"""What a real ledger lets an attack do: it is asked, paid and settled like any other, from state to state."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tellers import Accountant, Budget, Cost, MemoryLedger, RdpCurve, Release
from tellers.errors import BudgetExhausted
from tellers.privacy import DEFAULT_ORDERS
from tellers.privacy._clock import TICKS, Clock, ClockTable
from tellers.privacy._price import Price, as_price, charges

from . import own_tables
from .adaptive_value import NOTHING, Family, Move

EVENT = {"noise": "secure"}


@dataclass(frozen=True, eq=False)
class Question:
    """Something that may be asked: the pairs it may have, and its price by kind of outcome.

    A question that several accounts pay for has prices by account, the main one's under None.
    """

    family: Family
    kinds: tuple[Price, ...]
    others: dict[str, tuple[Price, ...]] = field(default_factory=dict)

    @property
    def price(self) -> RdpCurve:
        """Return what is reserved: the item at its dearest."""
        return whole(self.kinds)


def whole(kinds: tuple[Price, ...]) -> RdpCurve:
    ((_, item, _),) = kinds[0].terms
    return item.price()


def clock_table(levels, prices, *, kappa: float, cheaper: float = 1.0, events: int = 1) -> ClockTable:
    """Return a table in ticks; `cheaper` plants a fault."""
    rows = [[math.ceil(cheaper * one * TICKS) for one in row] for row in prices]
    return ClockTable(
        tuple(math.ceil(level * TICKS) for level in levels), tuple(map(tuple, rows)), kappa, events
    )


def solved(family: Family, *, kappa: float, shares=None, cheaper: float = 1.0, **how: Any) -> ClockTable:
    """Return the table of a family, solved from its definition."""
    return clock_table(
        *own_tables.table(family, kappa=kappa, shares=shares, **how), kappa=kappa, cheaper=cheaper
    )


def curves(family: Family, shares=None) -> list[RdpCurve]:
    """Return what the Rényi rule charges for every kind: at each order the least that is sound."""
    shares = (1.0,) * family.n_kinds if shares is None else shares
    share = np.array([shares[kind] for kind in family.kinds])
    values = []
    for order in DEFAULT_ORDERS:
        with np.errstate(over="ignore"):
            terms = np.log(family.p) - (order - 1) * family.s
        low, high = 0.0, float(np.abs(family.s).max()) * 1.001
        high = high if min(shares) > 0 else high / max(min(s for s in shares if s > 0), 1e-3) * 50
        for _ in range(60):
            middle = (low + high) / 2
            kept = np.logaddexp.reduce(terms - (order - 1) * middle * share, axis=1).max() <= 0
            low, high = (low, middle) if kept else (middle, high)
        values.append(high)
    return [RdpCurve(DEFAULT_ORDERS, share * np.array(values)) for share in shares]


def question(family: Family, table: ClockTable | None = None, *, rdp=None) -> Question:
    """Return a question with this table, and with these curves or those of its family."""
    n = family.n_kinds if table is None else len(table.prices)
    return Question(family, charges(rdp or [RdpCurve.zcdp(1e-6)] * n, table))


@dataclass(frozen=True)
class Arithmetic:
    """Ask an `Accountant` alone, as a ledger with nothing in flight does: debit, outcome, refund.

    `merge` says how many ticks count as none: a state then stands for one with a little more left.
    """

    accountant: Accountant
    questions: tuple[Question, ...]
    merge: int = 1
    start: tuple[int, int] = (0, 0)

    def moves(self, state: tuple[int, int]) -> list[Move]:
        zero = RdpCurve.zero()
        spent = Price(zero.orders, zero.values, (), *state)
        found = []
        for one in self.questions:
            debit = (
                self.accountant.debit(spent, one.price) if self.accountant.affords(spent, one.price) else None
            )
            if debit is None:
                continue
            after = []
            for kind in one.kinds:
                back = debit.returned([(item.key, n, which) for n, item, which in kind.terms])
                ticks = state[0] + debit.ticks - back
                after.append((ticks - ticks % self.merge, state[1] + debit.events))
            found.append(Move(one.family, tuple(after)))
        return found


@dataclass(frozen=True)
class Held:
    """Ask an `Accountant` that holds its budget by Rényi divergence, with nothing in flight."""

    accountant: Accountant
    questions: tuple[Question, ...]
    # How many were asked, by question and kind: their sum is what was spent.
    start: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, accountant, questions):
        return cls(accountant, tuple(questions), tuple((0,) * len(one.kinds) for one in questions))

    def moves(self, state):
        spent = RdpCurve.zero()
        for one, counts in zip(self.questions, state, strict=True):
            for kind, n in zip(one.kinds, counts, strict=True):
                spent = spent + n * kind
        found = []
        for number, one in enumerate(self.questions):
            if not self.accountant.affords(spent, one.price):
                continue
            after = []
            for kind in range(len(one.kinds)):
                counts = [list(row) for row in state]
                counts[number][kind] += 1
                after.append(tuple(map(tuple, counts)))
            found.append(Move(one.family, tuple(after)))
        return found


@dataclass(frozen=True)
class State:
    """What a ledger looks like, and how it came to be: two histories that look alike are one state."""

    looks: tuple[Any, ...]
    # In flight: question, the pair that was fixed, and the name under which it was reserved.
    pending: tuple[tuple[int, int | None, str], ...] = field(default=(), compare=False)
    batch: tuple[int, ...] | None = None
    history: tuple[Any, ...] = field(default=(), compare=False)


@dataclass
class Books:
    """Ask a real ledger: reserve, let outcomes come, settle; other accounts pay as well.

    `n_in_flight` questions may wait at once, each with its pair fixed when it was reserved (`fixed`), or only
    when it is answered. `batch` questions are paid for at once, and answered one after the other. The
    pairs are those of the account whose people the attack is after.
    """

    make: Callable[[], MemoryLedger]
    questions: tuple[Question, ...]
    accounts: dict[str, Budget] = field(default_factory=dict)
    n_in_flight: int = 0
    fixed: bool = True
    batch: int = 0
    # Which kind is settled when a kind comes out: faults are planted here.
    settled_as: Callable[[int], int] = lambda kind: kind
    start: State = field(init=False)
    _at: tuple[Any, ...] = field(default=("none",), init=False)
    _ledger: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.start = self._look((), (), None)

    def _replayed(self, history: tuple[Any, ...]) -> MemoryLedger:
        """Return the ledger after a history; one that goes on from the last is only carried on."""
        if history[: len(self._at)] != self._at:
            self._ledger, self._at = self.make(), ()
            for name, budget in self.accounts.items():
                self._ledger.open_account(name, budget)
            self._tickets: dict[str, Any] = {}
        for act in history[len(self._at) :]:
            what, key, number, counts = act
            one = self.questions[number]
            if what == "reserve":
                also = {name: counts * whole(kinds) for name, kinds in one.others.items()}
                self._tickets[key] = self._ledger.reserve(key, counts * one.price, event=EVENT, also=also)
            else:
                used = {name: _sum(kinds, counts) for name, kinds in one.others.items()}
                done = Release(np.zeros(1, int), Cost(_sum(one.kinds, counts)))
                self._ledger.settle(self._tickets[key], done, used=used)
            self._at = (*self._at, act)
        return self._ledger

    def _look(self, history, pending, batch) -> State:
        ledger = self._replayed(history)
        spent = [ledger.spent, *(account.spent for _, account in sorted(ledger.accounts().items()))]
        seen = tuple(_seen(ledger.accountant, one) for one in spent)
        charged = {entry.key: _seen(ledger.accountant, entry.charged) for entry in ledger.entries()}
        waiting = tuple(
            sorted((number, -1 if row is None else row, charged[key]) for number, row, key in pending)
        )
        return State((*seen, waiting, len(batch) if batch else 0, batch), pending, batch, history)

    def _reserved(self, state: State, number: int, n: int) -> tuple[tuple[Any, ...], str] | None:
        key = f"q{len(state.history)}"
        history = (*state.history, ("reserve", key, number, n))
        try:
            self._replayed(history)
        except BudgetExhausted:
            return None
        return history, key

    def moves(self, state: State) -> list[Move]:
        if state.batch is not None:
            return [self._within_batch(state)]
        found = []
        for place, (number, row, key) in enumerate(state.pending):
            rest = state.pending[:place] + state.pending[place + 1 :]
            family = self.questions[number].family
            after = tuple(
                self._look((*state.history, ("settle", key, number, self._counts(kind, family))), rest, None)
                for kind in range(family.n_kinds)
            )
            found.append(Move(family if row is None else family.only([row]), after))
        if len(state.pending) < max(1, self.n_in_flight):
            for number, one in enumerate(self.questions):
                made = self._reserved(state, number, max(1, self.batch))
                if made is None:
                    continue
                history, key = made
                if self.batch:
                    after = self._look(history, ((number, None, key),), ())
                    found += [Move(NOTHING, (after,))]
                elif self.n_in_flight and self.fixed:
                    for row in range(len(one.family.p)):
                        waiting = (*state.pending, (number, row, key))
                        found.append(Move(NOTHING, (self._look(history, waiting, None),)))
                elif self.n_in_flight:
                    waiting = (*state.pending, (number, None, key))
                    found.append(Move(NOTHING, (self._look(history, waiting, None),)))
                else:
                    after = tuple(
                        self._look(
                            (*history, ("settle", key, number, self._counts(kind, one.family))), (), None
                        )
                        for kind in range(one.family.n_kinds)
                    )
                    found.append(Move(one.family, after))
        return found

    def _counts(self, kind: int, family: Family) -> tuple[int, ...]:
        as_kind = self.settled_as(kind) if family.n_kinds > 1 else kind
        return tuple(int(as_kind == j) for j in range(family.n_kinds))

    def _within_batch(self, state: State) -> Move:
        ((number, _, key),) = state.pending
        family, after = self.questions[number].family, []
        for kind in range(family.n_kinds):
            seen = tuple(sorted((*state.batch, kind)))
            if len(seen) < self.batch:
                looks = (*state.looks[:-2], len(seen), seen)
                after.append(replace(state, looks=looks, batch=seen))
            else:
                counts = tuple(seen.count(j) for j in range(family.n_kinds))
                after.append(self._look((*state.history, ("settle", key, number, counts)), (), None))
        return Move(family, tuple(after))


def _sum(kinds, counts) -> RdpCurve:
    total: RdpCurve = RdpCurve.zero()
    for kind, n in zip(kinds, counts, strict=True):
        if n:
            total = n * kind if not total.values.any() else total + n * kind
    return total


def _seen(accountant, spent):
    """Return what a ledger says was spent, by its rule."""
    price = as_price(spent)
    if accountant.clock is not None:
        return price.ticks, price.events
    return round(accountant.left(spent), 12)


def on_a_clock(epsilon: float, delta: float, clock: Clock | None = None) -> Accountant:
    """Return an accountant on a clock."""
    return Accountant(Budget(epsilon, delta), clock=clock or Clock.for_delta(delta))


def epsilon_for(table: ClockTable, n: int, *, delta: float, clock: Clock | None = None) -> float:
    """Return the epsilon of a budget on a clock that n questions of a table use up, to 1e-5 or so."""
    low, high = 0, TICKS
    while table.steps(high, n) is None:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if table.steps(middle, n) is None else (low, middle)
    clock = clock or Clock.for_delta(delta)
    most = (delta - clock.events * clock.kappa) * (1 - 1e-9)
    below, above = 0.0, 10.0
    for _ in range(20):
        middle = (below + above) / 2
        fits = float(own_tables.w(high / TICKS, middle)) <= most
        below, above = (below, middle) if fits else (middle, above)
    return above
