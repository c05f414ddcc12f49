"""The clock's arithmetic against its definition, step by step."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from tellers import Accountant, Budget, RdpCurve
from tellers.errors import BudgetExhausted
from tellers.mechanisms._clock import CheckClock, kept
from tellers.privacy._clock import TICKS, Clock, ClockTable, potential
from tellers.privacy._price import Item, Price


def hockey_stick(level: float, k: float) -> float:
    """Return the potential by integrating its definition."""
    mean = math.sqrt(level)

    def above(x: float) -> float:
        return max(0.0, math.exp(-x * x / 2) - math.exp(k - (x - mean) ** 2 / 2)) / math.sqrt(2 * math.pi)

    edge = mean / 2 - k / mean
    return quad(above, edge - 12, edge, epsabs=0, epsrel=1e-11, limit=400)[0]


@pytest.mark.parametrize("level", [0.01, 0.25, 1.0, 9.0])
@pytest.mark.parametrize("k", [0.0, 0.1, 1.0, 3.0])
def test_the_potential_is_the_hockey_stick_of_two_gaussians(level, k):
    assert float(potential(level, k)) == pytest.approx(hockey_stick(level, k), rel=1e-8)


def test_the_potential_at_negative_k_is_the_other_direction():
    k, level = np.linspace(0.01, 5, 50), np.linspace(0.01, 4, 50)
    other = -np.expm1(-k) + np.exp(-k) * potential(level, k)
    assert potential(level, -k) == pytest.approx(other, rel=1e-12)


def test_the_potential_grows_with_what_is_left_and_ends_at_the_hinge():
    k = np.linspace(-4, 4, 81)
    grid = np.array([potential(level, k) for level in (0.0, 1e-6, 1e-3, 0.1, 1.0, 10.0)])
    assert (np.diff(grid, axis=0) >= -1e-15).all()
    assert grid[0] == pytest.approx(np.maximum(0, 1 - np.exp(k)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_a_clock_starts_as_high_as_delta_allows(epsilon, delta):
    clock = Clock.for_delta(delta)
    start = clock.start(epsilon, delta)
    assert clock.kappa * clock.events <= 0.0101 * delta
    assert potential(start / TICKS, epsilon) + clock.kappa * clock.events <= delta
    assert potential(start * 1.0001 / TICKS, epsilon) + clock.kappa * clock.events > delta


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 3.7e-4, 1e-2])
def test_terms_for_fewer_events_leave_each_of_them_more(delta, checked):
    usual, before = Clock.for_delta(delta), math.inf
    for n in (1, 50, 51, 4_000, 99_999, 10**7):
        clock = Clock.for_events(delta, n, checked=checked)
        assert min(n, usual.events) <= clock.events <= max(50, 2.5 * n)
        assert usual.kappa <= clock.kappa <= before
        before = clock.kappa
        share = 0.02 if not checked or clock.events > 1000 else 0.05 if clock.events > 100 else 0.1
        assert 0 < clock.kappa * clock.events <= 1.001 * share * delta
        start = clock.start(1.0, delta)
        assert potential(start / TICKS, 1.0) + clock.kappa * clock.events <= delta


def test_terms_go_by_the_price_of_a_query_and_are_enough_for_it():
    budget, rate = Budget(1.0, 1e-5), 1e-3
    item = Item((RdpCurve.zcdp(rate / 2),), ClockTable((0,), ((round(rate * TICKS),),), kappa=1e-12))
    for n_labels in (1, 7):
        price = n_labels * item.price()
        sized = Accountant.by("clock", budget, price=price)
        n = sized.n_affordable(price, 10**5)
        assert n >= Accountant.by("clock", budget).n_affordable(price, 10**5) - 1
        assert n * n_labels < sized.clock.events < 5 * n * n_labels
    # Two events of each, as a check and an answer are, are counted; without a clock price terms are usual.
    twice = Item(item.curves, ClockTable((0,), ((round(rate * TICKS),),), kappa=1e-12, events=2)).price()
    once = Accountant.by("clock", budget, price=item.price()).clock.events
    assert Accountant.by("clock", budget, price=twice).clock.events > once
    assert Accountant.by("clock", budget, price=RdpCurve.zcdp(rate)) == Accountant.by("clock", budget)


def test_a_clock_that_saw_all_its_events_says_so():
    item = Item((RdpCurve.zcdp(1e-9),), ClockTable((0,), ((1,),), kappa=1e-12))
    accountant = Accountant(Budget(1.0, 1e-5), clock=Clock(1e-12, 3))
    with pytest.raises(BudgetExhausted, match=r"100\.00% of the clock .* is left, and 0 of its 3 events"):
        accountant.require(3 * item.price(), item.price(), key="q")


def one_by_one(table: ClockTable, left: int, n: int) -> tuple[int, int]:
    """Return how many steps fit, each at the cheapest level that it still reaches, and what is left."""
    for done in range(n):
        found = [p for at, p in zip(table.levels, table.dearest, strict=True) if left >= at + p]
        if not found:
            return done, left
        left -= min(found)
    return n, left


def test_many_steps_at_once_are_as_many_single_ones():
    draw = np.random.default_rng(20)
    for _ in range(2000):
        levels = sorted({0, *draw.integers(1, 300, draw.integers(0, 6)).tolist()})
        prices = sorted(draw.integers(1, 20, len(levels)).tolist(), reverse=True)
        table = ClockTable(tuple(levels), (tuple(prices),), kappa=0.0)
        left, n = int(draw.integers(0, 500)), int(draw.integers(1, 60))
        done, rest = one_by_one(table, left, n)
        assert table.after(left, n) == (rest if done == n else None)
        assert table.after(left, done) == rest


@pytest.mark.parametrize(
    "said",
    [
        {"levels": (1, 2), "prices": ((3, 2),)},
        {"levels": (0, 0), "prices": ((3, 2),)},
        {"levels": (0, 5), "prices": ((2, 3),)},
        {"levels": (0, 5), "prices": ((2, 1), (0, -1))},
        {"levels": (0, 5), "prices": ((2,),)},
        {"levels": (0, 5), "prices": ((0, 0),)},
        {"levels": (0,), "prices": ((2,),), "events": 0},
    ],
)
def test_a_table_that_makes_no_sense_is_refused(said):
    with pytest.raises(ValueError, match="Expected"):
        ClockTable(**{"kappa": 1e-12, **said})


def test_a_delta_that_is_all_set_aside_is_refused():
    with pytest.raises(ValueError, match="which the clock sets aside"):
        Clock(1e-10, 100_000).start(1.0, 1e-5)


def test_what_was_spent_stays_in_the_sum_whatever_is_added():
    orders = RdpCurve.zero().orders
    spent = Price(orders, RdpCurve.zcdp(0.5).values, delta=1e-9)  # as a ledger adds up: values, and no terms
    one = Item((RdpCurve.zcdp(0.01),)).price()
    for price in (one, RdpCurve.zcdp(0.01), 1 * one):
        for total in (spent + price, price + spent):
            assert total.values == pytest.approx(0.51 * orders)
            assert total.delta == 1e-9
    assert (3 * spent).values == pytest.approx(1.5 * orders)
    assert (3 * spent).delta == pytest.approx(3e-9)
    with pytest.raises(ValueError, match="whole number"):
        0.5 * spent


def test_an_account_beside_a_clock_sets_aside_for_fewer_events_where_its_delta_is_smaller():
    main = Clock.for_delta(1e-5)
    for delta in (1e-3, 1e-5, 1e-6, 1e-9):
        beside = main.beside(delta)
        assert beside.kappa == main.kappa  # the tables are those of the ledger
        assert beside.events * beside.kappa <= 0.1 * delta * (1 + 1e-9)
        assert potential(beside.start(1.0, delta) / TICKS, 1.0) + beside.events * beside.kappa <= delta
    with pytest.raises(ValueError, match="delta of at least"):
        main.beside(1e-12)


def brute(start, counts):
    """Return what any order of these steps leaves at the least, trying every order one by one."""
    if not any(n for _, n in counts):
        return start
    found = []
    for at, (table, n) in enumerate(counts):
        if n:
            _, left = one_by_one(table, start, 1)
            fits = one_by_one(table, start, 1)[0] == 1
            rest = [(t, m - (i == at)) for i, (t, m) in enumerate(counts)]
            found.append(brute(left, rest) if fits else None)
    return None if None in found else min(found)


def some_table(draw, top):
    levels = sorted({0, *draw.integers(1, top, 3).tolist()})
    prices = sorted(draw.integers(1, 12, len(levels)).tolist(), reverse=True)
    return ClockTable(tuple(levels), (tuple(prices),), kappa=0.0)


def test_items_without_an_order_take_what_their_dearest_order_takes_or_more():
    draw = np.random.default_rng(21)
    n_left = n_equal = 0
    for _ in range(300):
        epsilon = 1.0
        accountant = Accountant(Budget(epsilon, 1e-5), clock=Clock(1e-12, 100))
        start = accountant.clock.start(epsilon, 1e-5)
        tables = [some_table(draw, 60) for _ in range(3)]
        items = [Item((RdpCurve.zcdp(0.01 * (at + 1)),), table) for at, table in enumerate(tables)]
        begin, ns = int(draw.integers(20, 90)), draw.integers(0, 3, 3).tolist()
        zero = RdpCurve.zero()
        spent = Price(zero.orders, zero.values, (), start - begin)
        for n, item in zip(ns, items, strict=True):
            spent = spent + n * item.price()
        least = brute(begin, list(zip(tables, ns, strict=True)))
        left = accountant._left_on_clock(spent)
        assert left is None or (least is not None and left <= least)
        if sum(n > 0 for n in ns) <= 1:
            assert left == least
        # Whatever is asked next takes at least its price at the level that is left after it.
        if left is None:
            continue
        n_left, n_equal = n_left + 1, n_equal + (left == least)
        assert accountant.left(spent) == left / start
        for item, table in zip(items, tables, strict=True):
            after = accountant._left_on_clock(spent + item.price())
            fits = accountant.affords(spent, item.price())
            assert fits == (one_by_one(table, left, 1)[0] == 1)
            assert after is None or after + table.dearest_at(after) <= left
    assert n_left > 100
    assert n_equal > 50


def test_a_table_that_is_worked_out_is_told_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TELLERS_CACHE", str(tmp_path))
    with caplog.at_level("INFO", logger="tellers.mechanisms"):
        first = kept.__wrapped__(CheckClock(3.25), 1e-12)
        again = kept.__wrapped__(CheckClock(3.25), 1e-12)
    assert first == again
    assert [one.getMessage() for one in caplog.records] == [
        f"Working out clock prices (check), once, for {tmp_path} ..."
    ]
