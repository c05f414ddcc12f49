"""Exact composition, against an independent library and against what it must bound."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tellers import RdpCurve
from tellers.accounting.costs import (
    discrete_gaussian_pld_epsilon,
    gaussian_dp_epsilon,
    gaussian_dp_mu,
    pure_dp_epsilon,
)
from tellers.errors import MissingExtra

DELTAS = [0.1, 1e-2, 1e-5, 1e-9]


def test_the_worked_example():
    mu = gaussian_dp_mu(40.0, 461)
    assert mu == pytest.approx(math.sqrt(2 * 461) / 40)
    assert round(gaussian_dp_epsilon(mu, 1e-5), 2) == 3.19


def test_checks_and_answers_add_in_squares():
    both = gaussian_dp_mu(40.0, 300, sigma_threshold=150.0, n_checks=461)
    assert both**2 == pytest.approx(gaussian_dp_mu(40.0, 300) ** 2 + 461 / 150**2)
    assert gaussian_dp_mu(40.0, 0) == 0.0


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.76, 3.0, 12.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_dp_agrees_with_an_independent_library(mu, delta):
    theirs = pytest.importorskip("dp_accounting").get_epsilon_gaussian(1 / mu, delta)
    ours = gaussian_dp_epsilon(mu, delta)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("delta", [0.4, 1e-5, 1e-100, 1e-300])
def test_gaussian_dp_never_breaks(mu, delta):
    epsilon = gaussian_dp_epsilon(mu, delta)
    assert 0 <= epsilon <= (mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))) * (1 + 1e-8)
    assert epsilon <= gaussian_dp_epsilon(2 * mu, delta)


@pytest.mark.parametrize("mu", [0.05, 0.8, 2.5])
def test_gaussian_dp_meets_its_definition(mu):
    epsilon = gaussian_dp_epsilon(mu, 1e-3)
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-3, rel=1e-6)


def test_gaussian_dp_is_below_the_renyi_number():
    for n in (1, 20, 461, 9000):
        rdp = (n * RdpCurve.zcdp(1 / 40**2)).epsilon(1e-5)
        assert gaussian_dp_epsilon(gaussian_dp_mu(40.0, n), 1e-5) < rdp


def test_nothing_released_costs_nothing():
    assert gaussian_dp_epsilon(0.0, 1e-5) == 0.0
    assert pure_dp_epsilon(0.1, 0, delta=1e-5) == 0.0
    assert discrete_gaussian_pld_epsilon(40.0, 0, delta=1e-5) == 0.0


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match="mu"):
        gaussian_dp_epsilon(bad, 1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        pure_dp_epsilon(bad, 3, delta=1e-5)
    with pytest.raises(ValueError, match="sigma"):
        gaussian_dp_mu(bad, 3)
    with pytest.raises(ValueError, match="delta"):
        gaussian_dp_epsilon(1.0, 2.0)


# --- Pure privacy: the binomial. ---


@pytest.mark.parametrize(
    ("epsilon", "n"), [(0.1, 100), (0.05, 200), (0.01, 10_000), (0.5, 7), (2.0, 40), (0.1, 1)]
)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_pure_composition_agrees_with_an_independent_library(epsilon, n, delta):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    honest = 1 / (1 + math.exp(-epsilon))
    # Every loss is plus or minus epsilon, which is the step of the grid: nothing is rounded.
    one = PrivacyLossDistribution.create_from_rounded_probability({1: honest, -1: 1 - honest}, 0, epsilon)
    theirs = one.self_compose(n).get_epsilon_for_delta(delta)
    # Theirs goes through a Fourier transform, which loses 2e-13 of mass: 1e-5 of epsilon at delta 1e-9.
    assert pure_dp_epsilon(epsilon, n, delta=delta) == pytest.approx(theirs, rel=1e-5, abs=1e-7)


def test_pure_composition_meets_its_definition():
    """Sum delta(epsilon) over every outcome of eleven randomised responses."""
    each, n, delta = 0.3, 11, 1e-3
    epsilon = pure_dp_epsilon(each, n, delta=delta)
    honest = 1 / (1 + math.exp(-each))
    total = sum(
        math.comb(n, j)
        * max(
            0.0,
            honest ** (n - j) * (1 - honest) ** j - math.exp(epsilon) * honest**j * (1 - honest) ** (n - j),
        )
        for j in range(n + 1)
    )
    assert total == pytest.approx(delta, rel=1e-6)


def test_pure_composition_keeps_its_accuracy_in_the_tail():
    """With 40 digits, delta at this epsilon is 1e-9 less 3.7e-17; a transform of floats is 2e-13 off."""
    assert pure_dp_epsilon(0.01, 10_000, delta=1e-9) == pytest.approx(6.171915022651816, rel=1e-12)


def test_two_halves_cost_less_than_the_whole():
    for n in (1, 10, 1000):
        assert pure_dp_epsilon(0.05, 2 * n, delta=1e-5) <= pure_dp_epsilon(0.1, n, delta=1e-5)


def test_pure_composition_is_below_the_others():
    for n in (1, 3, 50, 5000):
        epsilon = pure_dp_epsilon(0.1, n, delta=1e-5)
        assert epsilon <= 0.1 * n
        assert epsilon <= (n * RdpCurve.pure(0.1)).epsilon(1e-5)


def test_discrete_laplace_noise_is_randomised_response():
    """Shifted by one, it has two likelihood ratios only: e^gamma and e^-gamma."""
    gamma, x = 0.3, np.arange(-200, 201)
    log_ratio = -gamma * np.abs(x) + gamma * np.abs(x - 1)
    np.testing.assert_allclose(np.abs(log_ratio), gamma)


# --- The discrete Gaussian, through the optional library. ---


@pytest.mark.parametrize(("sigma", "n"), [(0.3, 3), (1.0, 10), (5.0, 100), (40.0, 461), (150.0, 9000)])
def test_discrete_noise_composes_like_continuous_noise(sigma, n):
    pytest.importorskip("dp_accounting")
    drawn = discrete_gaussian_pld_epsilon(sigma, n, delta=1e-5)
    continuous = gaussian_dp_epsilon(gaussian_dp_mu(sigma, n), 1e-5)
    assert drawn == pytest.approx(continuous, rel=0.25 if sigma < 1 else 3e-3 if sigma < 5 else 1e-5)
    assert drawn < (n * RdpCurve.zcdp(1 / sigma**2)).epsilon(1e-5)


def test_the_continuous_number_does_not_cover_discrete_noise():
    """Ten histograms at sigma = 1: the reason why Gaussian DP is shown and never claimed."""
    pytest.importorskip("dp_accounting")
    drawn = discrete_gaussian_pld_epsilon(1.0, 10, delta=1e-5)
    assert drawn > 1.001 * gaussian_dp_epsilon(gaussian_dp_mu(1.0, 10), 1e-5)


def test_discrete_noise_meets_its_definition():
    """One histogram at sigma = 1: sum delta over the two noisy counts that differ."""
    pytest.importorskip("dp_accounting")
    sigma, delta = 1.0, 1e-4
    epsilon = discrete_gaussian_pld_epsilon(sigma, 1, delta=delta)
    x = np.arange(-40, 41)
    mass = np.exp(-(x**2) / (2 * sigma**2))
    mass /= mass.sum()
    moved = np.roll(mass, 1)
    excess = np.outer(mass, mass) - math.exp(epsilon) * np.outer(moved, moved)
    total = np.maximum(excess, 0).sum()
    assert total <= delta
    assert total == pytest.approx(delta, rel=1e-3)


def test_checks_are_charged_too():
    pytest.importorskip("dp_accounting")
    both = discrete_gaussian_pld_epsilon(40.0, 300, delta=1e-5, sigma_threshold=150.0, n_checks=461)
    mu = gaussian_dp_mu(40.0, 300, sigma_threshold=150.0, n_checks=461)
    assert both == pytest.approx(gaussian_dp_epsilon(mu, 1e-5), rel=1e-5)
    assert both > discrete_gaussian_pld_epsilon(40.0, 300, delta=1e-5)


def test_a_delta_that_rounding_could_hide_behind_says_nothing():
    pytest.importorskip("dp_accounting")
    assert discrete_gaussian_pld_epsilon(40.0, 461, delta=1e-12) == math.inf
    assert discrete_gaussian_pld_epsilon(40.0, 461, delta=1e-10) < math.inf


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting.pld", None)
    with pytest.raises(MissingExtra, match=r"tellers\[accounting\]"):
        discrete_gaussian_pld_epsilon(40.0, 3, delta=1e-5)
