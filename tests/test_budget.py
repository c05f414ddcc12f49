"""Budgets and the arithmetic that says whether one more release fits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers import Accountant, Budget, RdpCurve
from tellers.errors import BudgetExhausted, TellersError
from tellers.privacy import DEFAULT_ORDERS

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


def coin(probability, loss):
    """A release that says yes with this probability, and e^-loss as often at the neighbour."""
    here = np.log([probability, 1 - probability])
    there = np.log([probability * math.exp(-loss), 1 - probability * math.exp(-loss)])
    order = DEFAULT_ORDERS
    both = [
        np.logaddexp(order * s[0] + (1 - order) * t[0], order * s[1] + (1 - order) * t[1]) / (order - 1)
        for s, t in ((here, there), (there, here))
    ]
    return RdpCurve(order, np.maximum(np.maximum(*both), 0))


def test_a_run_that_would_overdraw_a_filter_over_all_orders_is_refused():
    # Each path converts to less than epsilon 2 at an order of its own; together they need 1.86 times delta.
    accountant = Accountant(Budget(epsilon=2.0, delta=1e-5))
    first, if_no, if_yes = coin(4.3e-4, 0.41), coin(7.85e-5, 2.133), coin(0.83, 1.615)
    assert (first + if_no).epsilon(1e-5) < 2
    assert (first + if_yes).epsilon(1e-5) < 2
    assert not (accountant.affords(first, if_no) and accountant.affords(first, if_yes))


def test_the_order_depends_on_the_budget_alone_and_may_be_named():
    assert Accountant(Budget(2.0, 1e-5)).held_at == 10.0
    named = Accountant(Budget(2.0, 1e-5), order=64.0)
    assert named.held_at == 64.0
    assert named.affords(RdpCurve.zero(), RdpCurve.pure(1.8))
    assert not Accountant(Budget(2.0, 1e-5)).affords(RdpCurve.zero(), RdpCurve.pure(1.8))


@pytest.mark.parametrize("order", [1.0, 0.5, math.nan, 1.5])
def test_an_order_that_buys_nothing_is_refused(order):
    with pytest.raises(ValueError, match="order"):
        Accountant(Budget(1.0, 1e-5), order=order)


def test_curves_without_the_order_are_refused():
    with pytest.raises(ValueError, match="order 10"):
        Accountant(Budget(2.0, 1e-5)).affords(*[RdpCurve.zcdp(0.1, orders=[2.0, 3.0])] * 2)
