"""No attack on a ledger reaches more than its budget: the exact adaptive value never passes delta.

What the ledger lets through is asked of the real one, with tables that are solved here from their definition,
so that the accountant's steps, refunds, reservations in flight, named accounts and batches are what is tried.
The tables that the library makes are tried in `test_clock_tables.py`.
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tellers import Budget, MemoryLedger
from tellers.privacy._clock import Clock

from .adaptive_value import Grid, Value
from .families import (
    arg_max,
    check,
    confident,
    gaussian,
    gaussian_sum,
    laplace,
    race,
    randomised_response,
)  # fmt: skip
from .games import Arithmetic, Books, Question, epsilon_for, on_a_clock, question, solved

KAPPA = 1e-13
"""What every table here is solved for: a clock with a larger kappa takes them too."""

GRIDS = Grid(-6, 10, 0.04), Grid(-6, 10, 0.01)
"""A coarse one, whose chords lie further above, and a fine one for what the coarse one does not settle."""


@lru_cache(maxsize=64)
def asked(seed: int, kappa: float = KAPPA) -> Question:
    """Return one of many questions: small electorates and long races, noise from 2 to 8, coins, sums."""
    draw = np.random.default_rng([seed, 77])
    sigma, other = draw.uniform(2, 8, 2)
    threshold, share = int(draw.integers(3, 8)), float(draw.choice([0.2, 0.5, 0.8, 1.0]))
    kind = seed % 7
    if kind == 0:
        family = race(gaussian(sigma), math.ceil(9 * sigma))
    elif kind == 1:
        family = arg_max(gaussian(sigma), int(draw.integers(3, 10)), 3)
    elif kind == 2:
        family = check(gaussian(sigma), math.ceil(6.5 * sigma))
    elif kind == 3:
        n_classes = int(draw.integers(2, 4))
        family = confident(gaussian(sigma), gaussian(other), 9, n_classes, threshold=threshold)
    elif kind == 4:
        family = randomised_response(float(draw.uniform(0.1, 0.6)))
    elif kind == 5:
        family = gaussian_sum(sigma, int(draw.integers(1, 3)))
    else:
        family = race(laplace(1 / sigma), math.ceil(9 * sigma))
    shares = (share, 1.0) if family.n_kinds == 2 else None
    if family.n_kinds == 2 and draw.random() < 0.5:
        shares = (1.0, share)
    return question(family, solved(family, kappa=kappa, shares=shares))


def budgeted(draw, some, *, most, n_states=150):
    """Return a random budget that affords up to `most` of one of these and hardly more, or None."""
    for _ in range(20):
        delta = float(10 ** draw.uniform(-6, -3))
        anchor, n = some[int(draw.integers(len(some)))], int(draw.integers(1, most + 1))
        epsilon = epsilon_for(anchor.price.terms[0][1].clock, n, delta=delta)
        if not 0.3 < epsilon < 4.0:
            continue
        accountant = on_a_clock(epsilon, delta)
        counts = [accountant.n_affordable(one.price, 99) for one in some]
        states = math.prod(len(one.kinds) * count + 1 for one, count in zip(some, counts, strict=True))
        most_loss = max(n * float(np.abs(one.family.s).max()) for one, n in zip(some, counts, strict=True))
        # Where all losses together stay below epsilon there is nothing to reach.
        if states <= n_states and most_loss > 1.4 * epsilon:
            return accountant
    return None


def setting(draw, *, pool, size, **limits):
    """Return random questions and a budget for them."""
    while True:
        some = tuple(asked(int(one)) for one in draw.choice(pool, size=size, replace=False))
        accountant = budgeted(draw, some, **limits)
        if accountant is not None:
            return some, accountant


def above(game, budget):
    """Return a bound from above of the exact adaptive value, over the budget's delta."""
    for grid in GRIDS:
        found = Value(game, grid).above(budget.epsilon) / budget.delta
        if found <= 1:
            break
    return found


def judged(seed, *, pool, most=5):
    """Return the ratio of one random setting of mixed questions on an accountant alone."""
    draw = np.random.default_rng(seed)
    some, accountant = setting(draw, pool=pool, size=int(draw.integers(1, 4)), most=most)
    # Ticks are rounded in favour of the attack, and only where that could matter one by one.
    found = above(Arithmetic(accountant, some, merge=accountant.ticks >> 12), accountant.budget)
    return found if found <= 1 else above(Arithmetic(accountant, some), accountant.budget)


def for_few_events(seed, most=5):
    """Return the ratio of one random setting whose tables are made for the kappa of fifty events."""
    draw = np.random.default_rng([seed, 5])
    while True:
        delta = float(f"1e-{draw.integers(3, 7)}")
        clock, number = Clock.for_events(delta, 50), int(draw.integers(7))
        one, n = asked(number, clock.kappa), int(draw.integers(2, most + 1))
        epsilon = epsilon_for(one.price.terms[0][1].clock, n, delta=delta, clock=clock)
        if 0.3 < epsilon < 4.0:
            break
    accountant = on_a_clock(epsilon, delta, clock)
    assert accountant.table(one.price.terms[0][1]).kappa == clock.kappa > 1e-10
    return above(Arithmetic(accountant, (one,), merge=accountant.ticks >> 12), accountant.budget)


def on_books(seed, *, pool, form):
    """Return the ratio of one random setting on a real ledger: of its accounts, the worst."""
    draw = np.random.default_rng([seed, 3])
    some, accountant = setting(
        draw, pool=pool, size=2, most={"in flight": 2, "batch": 4, "two accounts": 3}[form],
        n_states={"in flight": 12, "batch": 40, "two accounts": 24}[form],
    )  # fmt: skip

    def make():
        return MemoryLedger(accountant)

    if form == "in flight":
        few = tuple(replace(one, family=one.family.only(pairs(draw, one.family, 2))) for one in some)
        return above(Books(make, few, n_in_flight=2), accountant.budget)
    if form == "batch":
        return above(Books(make, some, batch=2), accountant.budget)
    # Two accounts pay, each on a clock of its own, and whoever has less left ends it. For the other one the
    # two questions have changed places, and so have their prices, where they have as many kinds.
    epsilon, delta = accountant.budget.epsilon, accountant.budget.delta
    other = Budget(float(epsilon * draw.uniform(0.7, 1.2)), float(delta * draw.uniform(0.1, 1)))
    theirs = some[::-1] if some[0].family.n_kinds == some[1].family.n_kinds else some
    both = tuple(replace(a, others={"other": b.kinds}) for a, b in zip(some, theirs, strict=True))
    watched = tuple(replace(a, family=b.family) for a, b in zip(both, theirs, strict=True))
    games = [Books(make, each, accounts={"other": other}) for each in (both, watched)]
    return max(above(game, budget) for game, budget in zip(games, (accountant.budget, other), strict=True))


def pairs(draw, family, n):
    """Return a few pairs, among them the one that tells most, in both orders."""
    chi = (family.p * np.expm1(family.s) ** 2).sum(axis=1)
    return np.unique([int(chi.argmax()), *draw.choice(len(family.p), size=n - 1)])


@pytest.mark.parametrize("seed", range(9))
def test_no_attack_passes_the_budget_of_a_clock(seed):
    assert judged(seed, pool=7) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_no_attack_passes_the_budget_of_a_clock_for_few_events(seed):
    assert for_few_events(seed) <= 1


@pytest.mark.parametrize("form", ["in flight", "batch", "two accounts"])
@pytest.mark.parametrize("seed", range(2))
def test_no_attack_passes_the_budget_of_a_ledger(form, seed):
    assert on_books(seed, pool=7, form=form) <= 1


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(10))
def test_no_attack_passes_the_budget_of_a_clock_in_many_settings(part):
    found = [judged(1000 * (part + 1) + n, pool=42) for n in range(50)]
    assert max(found) <= 1
    assert max(for_few_events(1000 * (part + 1) + n) for n in range(5)) <= 1
    # Where no attack comes near the budget, nothing would be judged.
    assert max(found) > 0.9


@pytest.mark.campaign
@pytest.mark.parametrize("form", ["in flight", "batch", "two accounts"])
def test_no_attack_passes_the_budget_of_a_ledger_in_many_settings(form):
    assert max(on_books(1000 + n, pool=42, form=form) for n in range(20)) <= 1
