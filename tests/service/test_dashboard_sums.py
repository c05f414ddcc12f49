"""The sums of the dashboard, kept up as the ledger grows, are those of all its entries read at once."""

import math
import pickle
import random

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, MemoryLedger, RdpCurve, Release
from tellers.privacy._clock import Clock, ClockTable
from tellers.privacy._price import Item
from tellers.privacy.release import SILENT
from tellers.service.dashboard import _sums
from tellers.service.dashboard._sums import BookSums, OutcomeCounts, accountants, n_queries, outcomes_of

RENYI = Accountant(Budget(8.0, 1e-5))
CLOCK = Accountant(Budget(1.0, 1e-5), clock=Clock(1e-12, 10_000))
START = CLOCK.clock.start(1.0, 1e-5)
TABLE = ClockTable((0,), ((START // 2000,), (START // 1000,)), kappa=1e-12)
CLOCKED = Item((RdpCurve.zcdp(1e-6), RdpCurve.zcdp(4e-6)), TABLE)
# What costs nothing bounded at high orders is added, and taken off again.
STEEP = RdpCurve(RdpCurve.zero().orders, np.where(RdpCurve.zero().orders > 100, np.inf, 1e-4))


def totals(entries):
    return OutcomeCounts(*map(sum, zip(OutcomeCounts(), *map(outcomes_of, entries), strict=True)))


def burn_down(accountant, costs, asked):
    """Return what was left after every question."""
    points, spent, total, so_far = [], 0.0, RdpCurve.zero(), 0
    budget, on_clock = accountant.budget.epsilon, accountant.clock is not None
    for cost, n in zip(costs, asked, strict=True):
        so_far += n
        spent, total = spent + cost.values, total + cost
        curve = RdpCurve(cost.orders, spent)
        left = 100.0 * accountant.left(total) if on_clock else max(0.0, budget - accountant.epsilon(curve))
        points.append((so_far, left))
    return [(0, 100.0 if on_clock else budget), *points]


def require_same(sums, ledger):
    """The sums are those of all entries, and the drawn points are some of all points, the last among them."""
    entries, states = ledger.entries(), ledger.accounts()
    held = accountants(ledger.accountant, states)
    burns = sums.burns(held)
    assert sums.n_read == len(entries)
    for name, accountant in held.items():
        mine = [entry for entry in entries if name is None or name in entry.also]
        found = sums.accounts.get(name, _sums.AccountHistory())
        assert found.outcomes == totals(mine)
        costs = [entry.charged if name is None else entry.also[name].charged for entry in mine]
        points = burn_down(accountant, costs, [n_queries(entry) for entry in mine])
        if len(points) <= 81:
            assert len(burns[name]) == len(points)
        assert len(burns[name]) <= 82
        assert burns[name][-1][0] == points[-1][0]
        every = dict(points)
        for asked, left in burns[name]:
            assert left == pytest.approx(every[asked], rel=1e-9, abs=1e-9)
        places = [at for at, entry in enumerate(entries) if name is None or name in entry.also]
        assert list(found.recent) == places[-_sums.N_RECENT :]


@pytest.mark.parametrize("accountant", [RENYI, CLOCK], ids=["renyi", "clock"])
@pytest.mark.parametrize("seed", range(4))
def test_sums_that_are_kept_up_are_those_of_all_entries(accountant, seed, monkeypatch):
    """Questions come, and are answered in any order, some never; sums are read now and then, and travel."""
    monkeypatch.setattr(_sums, "_MOST_LOOKS", 3)
    monkeypatch.setattr(_sums, "PAGE", 7)
    chance, ledger = random.Random(seed), MemoryLedger(accountant)
    for name in ("a", "b", "nobody"):
        ledger.open_account(name, accountant.budget)
    sums, tickets = BookSums(accountant.clock is not None), []
    for at in range(400):
        if tickets and chance.random() < 0.45:
            key, n, price = tickets.pop(chance.randrange(len(tickets)))
            kinds = [chance.randrange(2) for _ in range(n)]
            if accountant.clock is not None:
                used = sum((CLOCKED.price(kind) for kind in kinds), start=RdpCurve.zero())
            else:
                used = chance.choice([price, 0.5 * price, 0 * price])
            labels = np.array([chance.choice([SILENT, 0, 2]) for _ in kinds])
            told = np.array([chance.random() < 0.7 for _ in kinds])
            ledger.settle(key, Release(labels, Cost(used), told))
        else:
            n = chance.randrange(1, 4)
            price = CLOCKED.price() * n if accountant.clock is not None else n * RdpCurve.zcdp(1e-5)
            if accountant.clock is None and chance.random() < 0.2:
                price = STEEP
            who = chance.choice([[], ["a"], ["b"], ["a", "b"]])
            event = {"noise": "secure", "n_queries": n}
            ticket = ledger.reserve(f"q{at}", price, event=event, also=dict.fromkeys(who, price))
            tickets.append((ticket, n, price))
        if chance.random() < 0.1:
            sums.read(ledger, most=chance.choice([5, 1000]))
            sums.burns(accountants(ledger.accountant, ledger.accounts()))
            sums = pickle.loads(pickle.dumps(sums))
    for _ in range(200):  # those that were open longest are looked at now and then
        sums.read(ledger, most=1000)
    require_same(sums, ledger)
    assert len(sums._open) == len(tickets) > 3


def test_sums_hold_few_entries_and_few_points_however_long_the_ledger_is(monkeypatch):
    monkeypatch.setattr(_sums, "_MOST_OPEN", 10)
    ledger, one, read = MemoryLedger(RENYI), RdpCurve.zcdp(1e-7), []
    ledger.open_account("a", RENYI.budget)
    for at in range(1500):
        event = {"noise": "secure", "n_queries": 1}
        ticket = ledger.reserve(f"q{at}", one, event=event, also={"a": one})
        if at % 5:
            ledger.settle(ticket, Release(np.array([1]), Cost(one)))
    entries = ledger.entries

    def listed(**page):
        found = entries(**page)
        read.append(len(found))
        return found

    monkeypatch.setattr(ledger, "entries", listed)
    sums = BookSums(on_clock=False)
    sums.read(ledger, most=10_000)
    burns = sums.burns(accountants(RENYI, ledger.accounts()))
    assert max(read) <= _sums.PAGE
    assert sum(read) == 1500
    assert len(sums._open) == 10
    assert all(len(points) <= 82 for points in burns.values())
    assert len(pickle.dumps(sums)) < 1_000_000
    read.clear()
    sums.read(ledger, most=10_000)
    assert sum(read) < 100
    assert math.isclose(burns[None][-1][1], RENYI.budget.epsilon - RENYI.epsilon(ledger.spent), rel_tol=1e-9)
