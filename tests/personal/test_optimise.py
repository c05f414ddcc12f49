"""Weights with which every budget lasts equally long."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import Accountant, Budget, ConfidentGNMax, GNMax, Unit
from tellers.mechanisms.base import scaled
from tellers.runs.personal import Group
from tellers.runs.personal._optimise import times_paid, weights_by_price

CONFIDENT = ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0)


def counted(accountant, price):
    """How often a price fits, by asking one after another."""
    n = 0
    while accountant.affords(n * price, price):
        n += 1
    return n


def people(epsilons):
    return [Group(f"group {at}", epsilon, 50) for at, epsilon in enumerate(epsilons)]


@settings(max_examples=6, deadline=None)
@given(
    epsilons=st.lists(st.floats(0.3, 6.0), min_size=2, max_size=6, unique=True),
    share=st.integers(1, 5),
)
def test_by_price_all_groups_can_ask_about_equally_often(epsilons, share):
    counts = [40 * (1 + (share * i) % 3) for i in range(len(epsilons))]
    groups = people(sorted(epsilons))
    weights = weights_by_price(groups, counts, GNMax(sigma=40.0), delta=1e-5, denominator=200)
    assert list(weights) == sorted(weights)
    factor = np.dot(weights, counts) / sum(counts)
    assert factor == pytest.approx(200, rel=0.02)
    lasts = []
    for weight, group in zip(weights, groups, strict=True):
        accountant = Accountant(Budget(group.epsilon, 1e-5))
        price = scaled(GNMax(sigma=40.0), factor).price(Unit.of_weight(weight))
        lasts.append(times_paid(accountant, price))
        assert counted(accountant, price) == math.floor(lasts[-1] + 1e-6)
    assert max(lasts) < 1.06 * min(lasts)


def test_by_price_weights_last_longer_than_weights_in_proportion_to_epsilon():
    epsilons, counts = [math.log(2), math.log(16)], [125, 125]

    def lasts(weights):
        used = scaled(CONFIDENT, sum(weights) / 2)
        prices = [used.price(Unit.of_weight(weight)) for weight in weights]
        return min(counted(Accountant(Budget(e, 1e-5)), p) for e, p in zip(epsilons, prices, strict=True))

    by_price = weights_by_price(people(epsilons), counts, CONFIDENT, delta=1e-5)
    assert lasts(by_price) > 1.02 * lasts((40, 160))


def test_equal_budgets_are_plain_votes():
    assert weights_by_price(people([1.0, 1.0]), [10, 30], CONFIDENT, delta=1e-5) == (1, 1)
