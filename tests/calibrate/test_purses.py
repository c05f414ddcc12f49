"""Plans of publications that accounts can pay."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import GNMax, Votes
from tellers.runs import plan_group_publication
from tellers.runs.personal import Asked, Group, Weighting
from tellers.runs.personal.publishing import distances_of, publication_prices
from tellers.runs.publication_plan import Purse

GROUPS = (Group("low", 0.7, 50), Group("high", 1.4, 50))
PLAN = Weighting(GROUPS, GNMax(12.0), 60, (np.arange(30), np.arange(30, 60)), weight_of=(1, 2))
VOTES = Votes.from_ballots(np.zeros((60, 10), dtype=int), n_classes=4)
PROXY = Asked(PLAN, VOTES.weighted(PLAN.weights(10, key="proxy")))
KNOWN = {"n_queries": 500, "delta": 1e-5}


@pytest.mark.campaign
@settings(max_examples=25, deadline=None)
@given(
    most=st.floats(1e-4, 2.0),
    order=st.sampled_from([2.0, 5.0, 12.0, 40.0]),
    group=st.sampled_from([None, "low", "high"]),
)
def test_a_purse_can_pay_what_is_planned(most, order, group):
    plan = plan_group_publication(PROXY, **KNOWN, purses=[Purse(group, order, most)])
    if plan.method == "independent":
        return
    prices = publication_prices(distances_of(PROXY).shares, plan, n_releases=2, orders=[order])
    dearest = max(float(price.values[0]) for price in prices.values())
    paid = dearest if group is None else float(prices[group].values[0])
    assert paid <= most * (1 + 1e-9)


def test_less_in_a_purse_is_never_a_better_plan():
    free = plan_group_publication(PROXY, **KNOWN)
    assert free.method == "envelope"
    # At the plan's own order every price that is finite can be paid from a purse without a bottom.
    assert plan_group_publication(PROXY, **KNOWN, purses=[Purse("low", free.order, math.inf)]) == free
    expected = []
    for most in (1.0, 0.1, 0.01):
        plan = plan_group_publication(PROXY, **KNOWN, purses=[Purse("high", free.order, most)])
        expected.append(plan.expected_epsilon)
    assert expected == sorted(expected)
    assert expected[-1] > free.expected_epsilon


@pytest.mark.parametrize("method", [None, "envelope", "gnss"])
def test_an_empty_purse_publishes_nothing(method):
    assert (
        plan_group_publication(PROXY, **KNOWN, method=method, purses=[Purse("low", 8.0, 0.0)]).method
        == "independent"
    )
