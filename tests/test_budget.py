"""Budgets and the arithmetic that says whether one more release fits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers import Accountant, Budget, RdpCurve
from tellers.errors import BudgetExhausted, TellersError
from tellers.rdp import DEFAULT_ORDERS

ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, None, "1"])
def test_bad_epsilons_are_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon > 0"):
        Budget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, None])
def test_bad_deltas_are_refused(delta):
    with pytest.raises(ValueError, match="0 < delta < 1"):
        Budget(epsilon=1.0, delta=delta)


def test_budgets_are_frozen_and_comparable():
    assert Budget(1.0, 1e-5) == Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(AttributeError):
        Budget(1.0, 1e-5).epsilon = 2.0


def test_nothing_was_spent_at_first():
    assert ACCOUNTANT.epsilon(RdpCurve.zero()) == 0.0
    assert ACCOUNTANT.affords(RdpCurve.zero(), RdpCurve.zero())


@given(st.floats(1e-6, 1.0), st.floats(0.05, 20.0))
def test_queries_fit_until_the_budget_is_reached(rho, epsilon):
    accountant = Accountant(Budget(epsilon=epsilon, delta=1e-5))
    price = RdpCurve.zcdp(rho)
    # The number that fits, straight from the definition.
    low, high = 0, 2**40
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if (middle * price).epsilon(1e-5) <= epsilon else (low, middle - 1)
    assert accountant.affords(low * price, RdpCurve.zero())
    assert not accountant.affords(low * price, price)
    if low:
        assert accountant.affords((low - 1) * price, price)


def test_the_budget_itself_may_be_reached():
    price = RdpCurve.zcdp(0.01)
    exactly = Accountant(Budget(epsilon=price.epsilon(1e-5), delta=1e-5))
    assert exactly.affords(RdpCurve.zero(), price)
    exactly.require(RdpCurve.zero(), price, key="q0")


def test_a_price_that_does_not_fit_is_refused_with_its_key():
    said = r"'q17' would take epsilon to .*, past the budget of 1\.0"
    with pytest.raises(BudgetExhausted, match=said) as caught:
        ACCOUNTANT.require(RdpCurve.zero(), RdpCurve.zcdp(9.0), key="q17")
    assert isinstance(caught.value, TellersError)
    assert ACCOUNTANT.require(RdpCurve.zero(), RdpCurve.zcdp(1e-6), key="q17") is None


def test_what_costs_without_end_never_fits():
    endless = RdpCurve(DEFAULT_ORDERS, np.full(DEFAULT_ORDERS.size, np.inf))
    assert not ACCOUNTANT.affords(RdpCurve.zero(), endless)
    assert not ACCOUNTANT.affords(endless, RdpCurve.zero())


def test_curves_on_another_grid_are_refused():
    with pytest.raises(ValueError, match="same grid"):
        ACCOUNTANT.affords(RdpCurve.zero(), RdpCurve.zcdp(0.1, orders=[2.0, 3.0]))


@given(st.floats(1e-9, 10.0), st.floats(0, 10.0), st.floats(0, 10.0))
def test_whoever_spent_more_affords_less(price, spent, more):
    one, two = RdpCurve.zcdp(spent), RdpCurve.zcdp(spent + more)
    if ACCOUNTANT.affords(two, RdpCurve.zcdp(price)):
        assert ACCOUNTANT.affords(one, RdpCurve.zcdp(price))
