"""Rényi curves: composition, scaling, conversion, and everything they refuse."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from tellers.privacy import DEFAULT_ORDERS, RdpCurve
from tellers.privacy.rdp import check_orders

curves = st.lists(st.floats(0, 1e6), min_size=DEFAULT_ORDERS.size, max_size=DEFAULT_ORDERS.size).map(
    lambda values: RdpCurve(DEFAULT_ORDERS, np.array(values))
)
DELTAS = [1e-12, 1e-8, 1e-5, 1e-3, 0.1, 0.9]


def gaussian_delta(mu, epsilon):
    """The exact delta of a Gaussian release whose mean moves by mu standard deviations."""
    return math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


# The grid ---------------------------------------------------------------------------------------------------


def test_the_default_grid_is_dense_and_wide():
    assert DEFAULT_ORDERS[0] == 1.25
    assert DEFAULT_ORDERS[-1] >= 512
    assert set(range(2, 65)) <= set(DEFAULT_ORDERS)
    assert np.all(np.diff(DEFAULT_ORDERS) > 0)
    assert DEFAULT_ORDERS.size >= 100
    assert check_orders(None) is DEFAULT_ORDERS
    with pytest.raises(ValueError, match="read-only"):
        DEFAULT_ORDERS[0] = 2.0


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([], "non-empty"),
        (2.0, "one-dimensional"),
        ([[2.0, 3.0]], "one-dimensional"),
        ([1.0, 2.0], "orders > 1, got 1.0"),
        ([0.5], "orders > 1, got 0.5"),
        ([2.0, math.nan], "got nan"),
        ([2.0, math.inf], "got inf"),
        ([3.0, 2.0], "strictly increasing"),
        ([2.0, 2.0], "strictly increasing"),
    ],
)
def test_bad_grids_are_refused(orders, message):
    with pytest.raises(ValueError, match=message):
        check_orders(orders)


def test_a_grid_is_copied_and_frozen():
    mine = np.array([2.0, 3.0])
    grid = check_orders(mine)
    mine[0] = 1.5
    assert grid.tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        grid[0] = 5.0


# Curves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.1], "2 of them"),
        ([[0.1, 0.2]], "one Rényi value per order"),
        ([0.1, math.nan], "NaN at order 3"),
        ([-1e-12, 0.1], "negative one at order 2"),
        ([0.1, -math.inf], "negative one at order 3"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        RdpCurve(np.array([2.0, 3.0]), np.array(values))


def test_values_are_copied_and_frozen():
    values = np.array([1.0, 2.0])
    curve = RdpCurve([2.0, 3.0], values)
    values[0] = 0.0
    assert curve.values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 0.0


@given(curves, curves)
def test_composition_commutes(first, second):
    np.testing.assert_array_equal((first + second).values, (second + first).values)


@given(curves, curves, curves)
def test_composition_associates(a, b, c):
    np.testing.assert_allclose(((a + b) + c).values, (a + (b + c)).values, rtol=1e-14)


@given(curves, st.integers(0, 50))
def test_scaling_is_repeated_addition(curve, times):
    total = RdpCurve.zero()
    for _ in range(times):
        total = total + curve
    np.testing.assert_allclose((times * curve).values, total.values, rtol=1e-13)
    np.testing.assert_array_equal((times * curve).values, (curve * times).values)


@given(curves, curves, st.sampled_from(DELTAS))
def test_composition_never_costs_less(first, second, delta):
    for conversion in ("tight", "classic"):
        together = (first + second).epsilon(delta, conversion=conversion)
        assert together >= max(c.epsilon(delta, conversion=conversion) for c in (first, second)) - 1e-12


def test_nothing_costs_nothing():
    assert RdpCurve.zero().epsilon(1e-5) == 0.0
    endless = RdpCurve(DEFAULT_ORDERS, np.full(DEFAULT_ORDERS.size, np.inf))
    assert (0 * endless).epsilon(1e-5) == 0.0
    assert endless.epsilon(1e-5) == math.inf


def test_one_finite_order_is_enough():
    values = np.full(DEFAULT_ORDERS.size, np.inf)
    values[10] = 0.5
    epsilon, order = RdpCurve(DEFAULT_ORDERS, values).epsilon_and_order(1e-5)
    assert math.isfinite(epsilon)
    assert order == DEFAULT_ORDERS[10]


@pytest.mark.parametrize("times", [-1, -0.5, math.nan, math.inf])
def test_bad_numbers_of_repetitions_are_refused(times):
    with pytest.raises(ValueError, match=r"repetitions|finite"):
        RdpCurve.zcdp(0.1) * times


@pytest.mark.parametrize("other", ["2", None, True, [2], RdpCurve.zero()])
def test_curves_scale_by_numbers_only(other):
    with pytest.raises(TypeError):
        RdpCurve.zcdp(0.1) * other


def test_curves_add_to_curves_only():
    with pytest.raises(TypeError):
        RdpCurve.zcdp(0.1) + 0.5
    with pytest.raises(TypeError):
        sum([RdpCurve.zcdp(0.1)])  # starts from the number 0, which is no curve


def test_curves_on_different_grids_do_not_add():
    with pytest.raises(ValueError, match="same grid"):
        RdpCurve.zcdp(0.1, orders=[2, 3]) + RdpCurve.zcdp(0.1, orders=[2, 4])
    # Equal grids need not be the same object.
    total = RdpCurve.zcdp(0.1, orders=[2, 3]) + RdpCurve.zcdp(0.1, orders=[2.0, 3.0])
    np.testing.assert_allclose(total.values, [0.4, 0.6])


@pytest.mark.parametrize("rho", [math.nan, math.inf, -1.0, "1"])
def test_bad_rho_is_refused(rho):
    with pytest.raises(ValueError):
        RdpCurve.zcdp(rho)


# Conversion -------------------------------------------------------------------------------------------------


@given(curves, st.sampled_from(DELTAS))
def test_tight_conversion_is_that_of_dp_accounting(curve, delta):
    rdp = pytest.importorskip("dp_accounting").rdp
    expected, _ = rdp.compute_epsilon(curve.orders, curve.values, delta)
    assert curve.epsilon(delta) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", [0.0, 1e-30, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e6])
def test_tight_conversion_is_that_of_dp_accounting_for_gaussians(rho, delta):
    rdp = pytest.importorskip("dp_accounting").rdp
    curve = RdpCurve.zcdp(rho)
    expected, order = rdp.compute_epsilon(curve.orders, curve.values, delta)
    epsilon, our_order = curve.epsilon_and_order(delta)
    assert epsilon == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if epsilon > 0:
        assert our_order == order


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("mu", [0.01, 0.1, 0.5, 1.0, 4.0, 20.0])
def test_epsilon_is_never_below_the_exact_one_of_a_gaussian(mu, delta):
    epsilon = RdpCurve.zcdp(mu**2 / 2).epsilon(delta)
    assert gaussian_delta(mu, epsilon) <= delta if epsilon > 0 else gaussian_delta(mu, 1e-9) <= delta


def test_classic_conversion_is_the_printed_formula():
    curve = RdpCurve.zcdp(0.02, orders=range(2, 51))
    expected = min(0.02 * order + math.log(1e5) / (order - 1) for order in range(2, 51))
    assert curve.epsilon(1e-5, conversion="classic") == pytest.approx(expected, rel=1e-14)


@given(curves, st.sampled_from(DELTAS))
def test_tight_is_never_above_classic(curve, delta):
    assert curve.epsilon(delta) <= curve.epsilon(delta, conversion="classic") + 1e-12


@given(curves)
def test_a_smaller_delta_costs_more(curve):
    epsilons = [curve.epsilon(delta) for delta in DELTAS]
    assert all(a >= b for a, b in itertools.pairwise(epsilons))


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf, "1e-5", None])
def test_bad_delta_is_refused(delta):
    with pytest.raises(ValueError, match="0 < delta < 1"):
        RdpCurve.zcdp(0.1).epsilon(delta)


def test_unknown_conversions_are_refused():
    with pytest.raises(ValueError, match="'tight' or 'classic', got 'loose'"):
        RdpCurve.zcdp(0.1).epsilon(1e-5, conversion="loose")


def test_one_vote_moves_two_counts():
    # 461 queries at sigma = 40. A vote leaves one class and enters another, so the histogram moves by
    # sqrt(2) and one answer has rho = 1/sigma^2; with sensitivity 1, a slip easily made, it would be half.
    assert (461 * RdpCurve.zcdp(1 / 40**2)).epsilon(1e-5) == pytest.approx(3.457, abs=0.002)
    assert (461 * RdpCurve.zcdp(1 / (2 * 40**2))).epsilon(1e-5) < 2.4


# Pure privacy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 5.0, 50.0, 700.0])
def test_the_pure_curve_is_randomised_response(epsilon):
    curve = RdpCurve.pure(epsilon)
    log_p, log_q = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    order, cap = DEFAULT_ORDERS, np.minimum(epsilon, DEFAULT_ORDERS * epsilon**2 / 2)
    direct = np.logaddexp(order * log_p + (1 - order) * log_q, order * log_q + (1 - order) * log_p)
    direct, slack = direct / (order - 1), 1e-14 / (order - 1)
    assert np.all(curve.values <= direct + slack)
    assert np.all(curve.values <= cap * (1 + 1e-12))
    assert np.all(curve.values >= np.minimum(direct, cap) * (1 - 1e-9) - slack)


@given(st.floats(0.01, 8), st.integers(0, 10**6))
def test_the_pure_curve_covers_every_pure_release(epsilon, seed):
    # Any two distributions with ratios within e^epsilon; randomised response is the worst of them.
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(6, 0.5)) + 1e-12
    # Scaling q back to sum 1 moves every ratio by at most e^(epsilon/2), so they stay within e^epsilon.
    q = p * np.exp(rng.choice([-0.5, 0.5], size=6) * epsilon)
    p, q = p / p.sum(), q / q.sum()
    assert np.max(np.abs(np.log(p / q))) <= epsilon + 1e-9
    for a, b in ((p, q), (q, p)):
        exponent = DEFAULT_ORDERS[:, None] * np.log(a) + (1 - DEFAULT_ORDERS[:, None]) * np.log(b)
        divergence = np.logaddexp.reduce(exponent, axis=1) / (DEFAULT_ORDERS - 1)
        assert np.all(divergence <= RdpCurve.pure(epsilon).values * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_pure_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon > 0"):
        RdpCurve.pure(epsilon)


def test_functions_of_the_order():
    curve = RdpCurve.from_function(np.sqrt, orders=[4.0, 9.0])
    assert curve.values.tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="one Rényi value per order"):
        RdpCurve.from_function(lambda order: order[:1], orders=[4.0, 9.0])
