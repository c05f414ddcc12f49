"""Weights with which every budget lasts equally long."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import Accountant, Budget, ConfidentGNMax, GNMax, Unit
from tellers.mechanisms.base import scaled
from tellers.runs.personal._optimise import weights_by_price

CONFIDENT = ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0)


def counted(accountant, price):
    """How often a price fits, by asking one after another."""
    n = 0
    while accountant.affords(n * price, price):
        n += 1
    return n


@settings(max_examples=15, deadline=None)
@given(
    epsilons=st.lists(st.floats(0.3, 6.0), min_size=2, max_size=6, unique=True),
    share=st.integers(1, 5),
)
def test_by_price_all_groups_can_ask_about_equally_often(epsilons, share):
    counts = [40 * (1 + (share * i) % 3) for i in range(len(epsilons))]
    found = weights_by_price(sorted(epsilons), counts, GNMax(sigma=40.0), delta=1e-5, denominator=200)
    assert list(found.weights) == sorted(found.weights)
    factor = np.dot(found.weights, counts) / sum(counts)
    assert factor == pytest.approx(200, rel=0.02)
    assert max(found.n_queries) < 1.06 * min(found.n_queries)
    for weight, epsilon, lasts in zip(found.weights, sorted(epsilons), found.n_queries, strict=True):
        price = scaled(GNMax(sigma=40.0), factor).price(Unit.of_weight(weight))
        assert counted(Accountant(Budget(epsilon, 1e-5)), price) == math.floor(lasts + 1e-6)


def test_by_price_weights_last_longer_than_weights_in_proportion_to_epsilon():
    epsilons, counts = [math.log(2), math.log(16)], [125, 125]
    found = weights_by_price(epsilons, counts, CONFIDENT, delta=1e-5)
    rule = scaled(CONFIDENT, 100.0)
    by_rule = [
        counted(Accountant(Budget(e, 1e-5)), rule.price(Unit.of_weight(w)))
        for e, w in zip(epsilons, (40, 160), strict=True)
    ]
    assert found.lasts > 1.02 * min(by_rule)


def test_equal_budgets_are_plain_votes():
    assert weights_by_price([1.0, 1.0], [10, 30], CONFIDENT, delta=1e-5).weights == (1, 1)


def test_bad_groups_are_refused():
    with pytest.raises(ValueError, match="n_teachers"):
        weights_by_price([1.0, 2.0], [4, 0], GNMax(sigma=4.0), delta=1e-5)
    with pytest.raises(ValueError, match="a budget and a number of teachers per group"):
        weights_by_price([1.0], [10, 20], GNMax(sigma=4.0), delta=1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        weights_by_price([1.0, -2.0], [10, 20], GNMax(sigma=4.0), delta=1e-5)
