"""Faults that the judge must find: each breaks the budget, by an attack that is played out."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest

from tellers import Accountant, Budget, MemoryLedger, RdpCurve
from tellers.ledger._state import AccountSums
from tellers.privacy._clock import TICKS, Clock, ClockTable
from tellers.privacy._price import Price

from . import own_tables
from .adaptive_value import Family, Grid, Move, Value
from .families import confident, gaussian, gaussian_sum, race
from .games import Arithmetic, Books, Held, curves, on_a_clock, question, solved

GRID = Grid(-6, 10, 0.01)
DELTA = 1e-5


def reached(game, budget):
    """Return the delta of an attack that was played out, over the budget's."""
    return Value(game, GRID).below(budget.epsilon) / budget.delta


def enough_for(price, n, *, delta=DELTA, clock=None):
    """Return a budget that n questions use up, and its accountant."""
    low, high = 0.05, 12.0
    for _ in range(40):
        epsilon = (low + high) / 2
        enough = on_a_clock(epsilon, delta, clock).n_affordable(price, n) >= n
        low, high = (low, epsilon) if enough else (epsilon, high)
    return on_a_clock(high, delta, clock)


KAPPA = Clock.for_delta(DELTA).kappa
SUM = gaussian_sum(3.0)
RACE = race(gaussian(4.0), 36)


@lru_cache(maxsize=8)
def tabled(cheaper=1.0):
    """Return the question of a noisy sum at its fair price, or at a part of it."""
    return question(SUM, solved(SUM, kappa=KAPPA, ladder=(0, 1, 4), cheaper=cheaper))


@pytest.mark.parametrize("cheaper", [1.0, 0.95])
@pytest.mark.parametrize("n", [1, 4])
def test_a_table_that_is_five_per_cent_too_cheap(n, cheaper):
    fair, asked = tabled(), tabled(cheaper)
    # As many as fit into the budget of n fair ones, and a hair over: with fair prices those are n.
    accountant = enough_for(asked.price, n)
    found = reached(Arithmetic(accountant, (asked,)), accountant.budget)
    assert (found > 1) == (cheaper < 1)
    assert found > 0.7
    assert on_a_clock(accountant.budget.epsilon, DELTA).n_affordable(fair.price, n) == n - (cheaper < 1)


@pytest.mark.parametrize("fault", [False, True])
def test_a_race_whose_price_is_that_of_the_information_alone(fault):
    # The limit for many small losses, taken for one question: 2 / sigma^2 is what it costs at the end.
    table = solved(RACE, kappa=KAPPA)
    cheap = ClockTable((0,), ((math.ceil(RACE.information * TICKS),),), KAPPA)
    one = question(RACE, cheap if fault else table)
    accountant = enough_for(one.price, 1)
    assert (reached(Arithmetic(accountant, (one,)), accountant.budget) > 1) == fault


SILENT = confident(gaussian(3.0), gaussian(3.0), 9, 2, threshold=4)


@pytest.mark.parametrize(
    ("fault", "settled_as"),
    [("none", lambda kind: kind), ("always refunded", lambda kind: 0), ("swapped", lambda kind: 1 - kind)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refunds_that_the_outcome_does_not_give(fault, settled_as):
    one = question(SILENT, solved(SILENT, kappa=KAPPA, shares=(0.3, 1.0)))
    accountant = enough_for(one.price, 2)
    game = Books(lambda: MemoryLedger(accountant), (one,), settled_as=settled_as)
    assert (reached(game, accountant.budget) > 1) == (fault != "none")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_table_whose_kinds_are_swapped(swapped):
    table = solved(SILENT, kappa=KAPPA, shares=(0.3, 1.0))
    one = question(SILENT, replace(table, prices=table.prices[::-1]) if swapped else table)
    accountant = enough_for(one.price, 3)
    assert (reached(Arithmetic(accountant, (one,)), accountant.budget) > 1) == swapped


def forgetful(add):
    """Return how an account adds up what was settled, and nothing that is in flight."""

    def forgets(self, payment, *, times=1, events=0):
        if payment.left is None and times == 1:  # what an outcome is charged
            add(self, payment)

    return forgets


@pytest.mark.parametrize("forgets", [False, True])
def test_a_clock_that_forgets_what_is_in_flight(forgets, monkeypatch):
    one = tabled()
    accountant = enough_for(one.price, 1)
    if forgets:
        monkeypatch.setattr(AccountSums, "add", forgetful(AccountSums.add))
    game = Books(lambda: MemoryLedger(accountant), (one,), n_in_flight=2)
    # Two are reserved where one fits, and both are answered.
    assert (reached(Limited(game, 4), accountant.budget) > 1) == forgets


@dataclass
class Limited:
    """A game that ends after so many moves, so that one without end can be looked at."""

    game: object
    most: int

    @property
    def start(self):
        return (self.game.start, self.most)

    def moves(self, state):
        inner, left = state
        found = self.game.moves(inner) if left else []
        return [replace(one, after=tuple((after, left - 1) for after in one.after)) for one in found]


class SetsNothingAside(Clock):
    """Begins with all of delta, whatever its events may break of it."""

    def start(self, epsilon, delta):
        return Clock(0.0 + 1e-300, 1).start(epsilon, delta)


class CountsNoEvents(Accountant):
    """Lets through more events than kappa was set aside for."""

    def debit(self, spent, price):
        events = 0 if not isinstance(spent, Price) else spent.events
        found = super().debit(spent if not events else replace(spent, events=0), price)
        return found and replace(found, events=1)


def rare(kappa):
    """Return a question that kappa pays for alone: a coin that tells everything, once in 1/kappa times."""
    p, q = (np.array([one, 1 - one]) for one in (kappa, kappa / 1000))
    return question(Family.of([(p, q)]), ClockTable((0,), ((1,),), kappa))


@pytest.mark.parametrize("clock", [Clock, SetsNothingAside])
def test_what_kappa_may_break_is_set_aside(clock):
    kappa, events = DELTA / 10, 5
    some = tabled(), rare(kappa)
    accountant = enough_for(some[0].price, 1, clock=clock(kappa, events))
    # A few ticks more, for the coins.
    budget = Budget(accountant.budget.epsilon + 1e-6, DELTA)
    accountant = Accountant(budget, clock=accountant.clock)
    assert (reached(Arithmetic(accountant, some), budget) > 1) == (clock is SetsNothingAside)


@pytest.mark.parametrize("kind", [Accountant, CountsNoEvents])
def test_no_more_events_are_let_through_than_were_counted_on(kind):
    kappa, events = DELTA / 10, 5
    accountant = kind(Budget(2.0, DELTA), clock=Clock(kappa, events))
    game = Limited(Arithmetic(accountant, (rare(kappa),)), 30)
    assert (reached(game, accountant.budget) > 1) == (kind is CountsNoEvents)


@dataclass(frozen=True)
class ReadsBefore(ClockTable):
    """Reads prices at the level before the step, where they are lower."""

    def steps(self, left, n):
        found = []
        for _ in range(n):
            at = max(i for i, level in enumerate(self.levels) if level <= left)
            if left < self.dearest[at]:
                return None
            found.append((at, 1))
            left -= self.dearest[at]
        return found


@pytest.mark.parametrize("kind", [ClockTable, ReadsBefore])
def test_prices_are_read_at_what_is_left_after_the_step(kind):
    table = solved(RACE, kappa=KAPPA, ladder=(0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 9))
    one = question(RACE, kind(table.levels, table.prices, table.kappa))
    accountant = enough_for(one.price, 1)
    assert (reached(Arithmetic(accountant, (one,)), accountant.budget) > 1) == (kind is ReadsBefore)


@lru_cache(maxsize=1)
def dear_at_the_end():
    """Return a race and a sum, with levels and prices of both: put before the sum, the race is cheap."""
    family, noise = race(gaussian(3.0), 30), gaussian_sum(8.0, 8)
    ladder = sorted((0, 0.5, 1, 2, 4, 0.999 / family.information))
    first = own_tables.table(family, kappa=1e-9, ladder=ladder)
    return (family, *first), (noise, *own_tables.table(noise, kappa=1e-9, ladder=(0,)))


def test_a_question_that_is_chosen_after_another_was_answered():
    """Why a reservation fixes its question.

    A race is reserved while much is left, and so it is cheap; then a sum, which takes the rest. Whoever may
    read the sum first, and then choose the question that was paid for, picks the race that was dear at the
    end. With the question fixed at its reservation the answers might as well come in the order of payment.
    """
    (family, levels, prices), (noise, *last) = dear_at_the_end()
    level = last[1][0][0] + prices[0][-1]
    delta = (float(own_tables.w(level, 2.0)) + 1e-7) * (1 + 1e-6)
    accountant = Accountant(Budget(2.0, delta), clock=Clock(1e-9, 100))
    tables = [own_table(levels, prices), own_table(*last)]

    def best(some, **how):
        asked = tuple(question(one, table) for one, table in zip(some, tables, strict=True))
        return reached(Limited(Books(lambda: MemoryLedger(accountant), asked, **how), 4), accountant.budget)

    assert best((family, noise), n_in_flight=2, fixed=False) > 1.1
    assert best((family, noise)) < 1
    # A few pairs, and in flight as before: the order of the answers helps nobody.
    few = family.only(np.arange(0, len(family.p), len(family.p) // 3))
    assert best((few, noise), n_in_flight=2) < 1


def own_table(levels, prices):
    ticks = [[math.ceil(one * TICKS) for one in row] for row in prices]
    return ClockTable(tuple(math.ceil(level * TICKS) for level in levels), tuple(map(tuple, ticks)), 1e-9)


@dataclass(frozen=True)
class AddsUp:
    """Ask an `Accountant` as a ledger of one's own does that adds up prices, and knows no ticks."""

    accountant: Accountant
    questions: tuple
    start: tuple

    def moves(self, counts):
        spent = sum((n * one.price for n, one in zip(counts, self.questions, strict=True)), RdpCurve.zero())
        return [
            Move(one.family, (tuple(n + (i == at) for i, n in enumerate(counts)),) * one.family.n_kinds)
            for at, one in enumerate(self.questions)
            if self.accountant.affords(spent, one.price)
        ]


class InAnOrderOfItsOwn(Accountant):
    """Prices what was spent in one order, whatever it was asked in: the most levels first."""

    def _left_on_clock(self, spent):
        left = self.ticks - spent.ticks
        for n, item, _ in sorted(spent.terms, key=lambda term: -len(self.table(term[1]).levels)):
            left = None if left is None else self.table(item).after(left, n)
        return left


@pytest.mark.parametrize("kind", [Accountant, InAnOrderOfItsOwn])
def test_prices_that_are_added_up_without_an_order(kind):
    """A sum is asked, then a race that is dear at the end; put first in the sum of prices, it looks cheap.

    What looks as if it were left buys another sum.
    """
    (family, levels, prices), (noise, *first) = dear_at_the_end()
    gap = prices[0][0] - prices[0][-1]
    more = gaussian_sum(math.ceil(1.02 / math.sqrt(gap)))
    tables = own_table(levels, prices), own_table(*first)
    tables = *tables, own_table(*own_tables.table(more, kappa=1e-9, ladder=(0,)))
    level = (tables[0].dearest[0] + tables[1].dearest[0]) / TICKS
    accountant = kind(
        Budget(2.0, (float(own_tables.w(level, 2.0)) + 1e-7) * (1 + 1e-6)), clock=Clock(1e-9, 100)
    )
    asked = [question(one, table) for one, table in zip((family, noise, more), tables, strict=True)]
    found = reached(Limited(AddsUp(accountant, tuple(asked), (0, 0, 0)), 4), accountant.budget)
    assert (found > 1) == (kind is InAnOrderOfItsOwn)


# --- The Rényi rule ---


class AtTheBestOrder(Accountant):
    """Takes the order at which what was spent looks cheapest, anew before every question."""

    def affords(self, spent, price):
        return (spent + price).epsilon(self.budget.delta) <= self.budget.epsilon


def coin(p, loss):
    """Return a coin that says yes with probability p here, and p e^-loss at the neighbour."""
    q = p * math.exp(-loss)
    return Family.of([(np.array([p, 1 - p]), np.array([q, 1 - q]))])


@pytest.mark.parametrize("kind", [Accountant, AtTheBestOrder])
def test_a_budget_that_is_held_at_the_best_order_of_the_moment(kind):
    coins = [coin(4.3e-4, 0.41), coin(7.85e-5, 2.133), coin(0.83, 1.615)]
    some = [question(one, rdp=curves(one)) for one in coins]
    accountant = kind(Budget(2.0, 1e-5))
    assert (reached(Limited(Held.of(accountant, some), 2), accountant.budget) > 1) == (kind is AtTheBestOrder)
