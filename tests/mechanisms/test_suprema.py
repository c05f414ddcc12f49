"""The most a check or an arg max can cost: above everything a search finds, and not far above."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import GNMax, Votes
from tellers.mechanisms import argmax_supremum, check_supremum, divergences
from tellers.mechanisms._laws import DiscreteGaussian
from tellers.mechanisms.suprema import ThreeWays
from tellers.privacy import DEFAULT_ORDERS, RdpCurve
from tellers.testing import random_votes


def renyi(log_p, log_q, order):
    """Divergence of distributions given as columns, by definition."""
    return np.logaddexp.reduce(order * log_p + (1 - order) * log_q, axis=0) / (order - 1)


def both_ways(log_p, log_q, order):
    return np.maximum(renyi(log_p, log_q, order), renyi(log_q, log_p, order))


# The check --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 4.0, 40.0, 150.0])
def test_the_check_supremum_is_the_worst_margin(sigma):
    law, orders = DiscreteGaussian(sigma), [1.25, 2.0, 8.0, 64.0, 512.0]
    margin = np.arange(
        -math.ceil(2 * orders[-1] + 12 * sigma), math.ceil(2 * orders[-1] + 12 * sigma), dtype=float
    )
    coin = np.stack([law.log_cdf(margin), law.log_cdf(-margin - 1)])
    searched = np.array([both_ways(coin[:, :-1], coin[:, 1:], order).max() for order in orders])
    supremum = check_supremum(sigma, orders).values
    assert np.all(supremum >= searched * (1 - 1e-12))
    assert np.all(supremum <= searched * (1 + 1e-6))


@pytest.mark.parametrize("sigma", [0.1, 1.0, 40.0, 300.0, 1e4])
def test_a_check_costs_at_most_the_gaussian_price(sigma):
    share = check_supremum(sigma).values * 2 * sigma**2 / DEFAULT_ORDERS
    assert np.all(share <= 1 + 1e-12)
    if sigma >= 40:
        # 2/pi of it for orders well below sigma.
        assert share[0] == pytest.approx(2 / math.pi, rel=2e-3)


# The arg max ------------------------------------------------------------------------------------------------


def test_the_shares_of_the_histogram_price():
    sigma = 40.0
    price = argmax_supremum(sigma, [1.25, 2.0, sigma, 2 * sigma, 4 * sigma])
    share = price.values * sigma**2 / price.orders
    np.testing.assert_allclose(share, [0.640, 0.640, 0.663, 0.746, 0.895], atol=1.5e-3)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 3.0, 40.0, 199.0, 201.0, 1e3, 1e4])
def test_an_arg_max_costs_at_most_the_histogram(sigma):
    price = argmax_supremum(sigma).values
    histogram = RdpCurve(DEFAULT_ORDERS, DEFAULT_ORDERS / sigma**2).as_price().values
    assert np.all(price > 0.5 * histogram)
    assert np.all(price <= histogram)
    # Divergences grow with the order, and so does their supremum; the search may slip by its margin.
    assert np.all(np.diff(price) >= -5e-4 * price[1:])


def three_ways(law, behind, order, u):
    """Both directions of {a, b, other} for every whole threshold plus u, straight from sums over cells."""
    reach = math.ceil(9 * law.sigma)
    cells = np.arange(-behind - reach - 2, math.ceil(order) + reach + 3, dtype=np.float64)
    beyond = np.arange(cells[0], cells[-1] + 2 * reach + 3)
    sides = []
    for a, b in ((0, -behind), (-1, 1 - behind)):
        rows = []
        for own, rival in ((a, b), (b, a)):
            density = law.log_density(beyond - own)
            whole = np.logaddexp.accumulate((density + law.log_cdf(beyond - rival, 0.5))[::-1])[::-1]
            # From u to the end of a cell: density (1 - u), and the rival's distribution function at its mean.
            part = density + math.log1p(-u) + law.log_cdf(beyond - rival, (1 + u) / 2)
            rows.append(np.logaddexp(np.append(whole[1:], -np.inf), part)[: cells.size])
        before = [law.log_cdf(cells - n - 1) if u == 0 else law.log_cdf(cells - n, u) for n in (a, b)]
        sides.append(np.stack([*rows, before[0] + before[1]]))
    return both_ways(sides[0], sides[1], order).max()


@pytest.mark.parametrize(
    ("sigma", "orders"),
    [(0.3, [1.25, 2.0, 3.5]), (1.0, [1.25, 3.0, 9.0]), (2.5, [1.5, 6.0, 20.0]), (8.0, [2.0, 12.0, 48.0])],
)
def test_the_supremum_is_that_of_a_fine_search(sigma, orders):
    law, price = DiscreteGaussian(sigma), argmax_supremum(sigma).values
    for order in orders:
        ours = price[np.flatnonzero(order == DEFAULT_ORDERS)[0]]
        step = max(1, round(sigma / 8))
        distances = range(1, math.ceil(2 * order + 4 * sigma), step)
        searched = max(three_ways(law, behind, order, u) for behind in distances for u in (0, 0.2, 0.5, 0.8))
        assert searched <= ours
        assert searched >= ours * (1 - 0.01)


@pytest.mark.parametrize("sigma", [5.0, 40.0])
@pytest.mark.parametrize("orders", [[1.25, 50.0], [2, 3, 4, 5, 6, 7, 8, 400.0], [1.01, 20.0, 21.0, 300.0]])
def test_a_sparse_grid_costs_what_its_orders_cost_alone(sigma, orders):
    together = argmax_supremum(sigma, orders).values
    alone = [argmax_supremum(sigma, [order]).values[0] for order in orders]
    np.testing.assert_allclose(together, alone, rtol=1e-3)


@pytest.mark.parametrize("sigma", [0.5, 2.0, 15.9, 33.0, 120.0])
def test_the_default_grid_costs_what_its_orders_cost_alone(sigma):
    price = argmax_supremum(sigma).values
    for place in (0, 5, 13, 30, 77, 85, 100):
        alone = argmax_supremum(sigma, [DEFAULT_ORDERS[place]]).values[0]
        assert price[place] == pytest.approx(alone, rel=6e-4)


@pytest.mark.parametrize("sigma", [300.0, 700.0])
def test_wide_noise_is_rescaled_and_not_below_a_direct_search(sigma, monkeypatch):
    orders = (1.25, 2.0, 32.0, 512.0)
    rescaled = argmax_supremum(sigma, orders).values, check_supremum(sigma, orders).values
    monkeypatch.setattr("tellers.mechanisms.suprema._LARGE", 1e9)
    direct = [argmax_supremum(sigma + 1e-9, [order]).values[0] for order in orders]
    direct_check = check_supremum(sigma + 1e-9, orders).values
    # The direct search contains a margin of 3e-4 of its own; what it found lies below.
    assert np.all(rescaled[0] >= np.array(direct) * (1 - 3e-4))
    assert np.all(rescaled[1] >= direct_check * (1 - 1e-6))
    np.testing.assert_allclose(rescaled[0], direct, rtol=1e-3)
    np.testing.assert_allclose(rescaled[1], direct_check, rtol=1e-3)


@settings(max_examples=25)
@given(st.sampled_from([0.3, 1.0, 2.5, 8.0, 40.0]), st.integers(3, 12), st.integers(0, 10**6))
def test_no_histogram_costs_more(sigma, n_classes, seed):
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, int(rng.integers(1, 40)), n_classes=n_classes, n_queries=25)
    cost = divergences(GNMax(sigma).outcomes(votes)).max(axis=(0, 1, 2))
    assert np.all(cost <= argmax_supremum(sigma).values * (1 + 1e-9))


@pytest.mark.parametrize("n_classes", [3, 40])
def test_some_histogram_costs_nearly_as_much(n_classes):
    # Two leaders close together and the rest of the classes somewhere: within 1 % for orders below sigma.
    sigma, orders = 10.0, np.array([1.25, 2.0, 5.0])
    rows = [
        [t + d, t, *[r] * (n_classes - 2)] for t in (60,) for d in range(0, 12, 2) for r in range(0, 60, 6)
    ]
    cost = np.zeros(orders.size)
    for row in rows:
        votes = Votes.from_counts([row], n_teachers=sum(row))
        cost = np.maximum(cost, divergences(GNMax(sigma).outcomes(votes), orders=orders).max(axis=(0, 1, 2)))
    price = argmax_supremum(sigma, orders).values
    assert np.all(cost <= price)
    assert np.all(cost >= 0.99 * price)


def test_three_ways_are_distributions():
    race = ThreeWays(DiscreteGaussian(3.0), deepest=20, reach=10)
    for behind in (1, 2, 20):
        here, there = race(behind)
        assert here.shape == there.shape == (3, race.thresholds(behind).size)
        for side in (here, there):
            np.testing.assert_allclose(np.exp(side).sum(axis=0), 1.0, atol=1e-12)
    # One vote behind is one vote ahead after the move: the same race with the names exchanged.
    here, there = race(1)
    np.testing.assert_allclose(here[[1, 0, 2]], there, atol=1e-9)


def test_curves_are_remembered():
    assert argmax_supremum(7.0) is argmax_supremum(7.0)
    assert check_supremum(7.0) is check_supremum(7)
