"""LNMax: pure privacy, its curve, its draws and its outcomes."""

import math
import warnings

import numpy as np
import pytest

from tellers import LNMax, RdpCurve, Unit, Votes, exact_cost, noise
from tellers.mechanisms import divergences
from tellers.mechanisms._laws import DiscreteLaplace
from tellers.privacy import DEFAULT_ORDERS
from tellers.testing import random_votes


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "40", True])
def test_bad_gamma_is_refused(bad):
    with pytest.raises(ValueError, match="gamma > 0"):
        LNMax(gamma=bad)


@pytest.mark.parametrize("gamma", [0.01, 0.05, 1.0, 4.0])
def test_the_price_is_that_of_two_shifted_counts(gamma):
    price = LNMax(gamma).price(Unit()).values
    # The loss of a discrete Laplace that moves by one vote, summed over the integers; two counts move.
    x = np.arange(-math.ceil(60 / gamma), math.ceil(60 / gamma) + 1, dtype=np.float64)
    here, there = (DiscreteLaplace(1 / gamma).log_density(x - shift) for shift in (0, 1))
    exponent = DEFAULT_ORDERS[:, None] * here + (1 - DEFAULT_ORDERS[:, None]) * there
    one = np.logaddexp.reduce(exponent, axis=1) / (DEFAULT_ORDERS - 1)
    np.testing.assert_allclose(price, 2 * one, rtol=1e-8)
    assert np.all(price <= RdpCurve.pure(2 * gamma).values * (1 + 1e-12))
    assert np.all(price <= 2 * gamma * (1 + 1e-12))
    assert np.all(price <= gamma**2 * DEFAULT_ORDERS * (1 + 1e-12))


@pytest.mark.parametrize(
    "gamma", [2, 0.5, np.float64(0.5), np.float32(0.5)], ids=lambda gamma: type(gamma).__name__
)
def test_any_number_may_say_gamma(gamma):
    votes = Votes.from_counts([[20, 5]], n_teachers=25)
    assert len(LNMax(gamma).release(votes, noise.seeded(1))) == 1
    assert LNMax(gamma).outcomes(votes).log_labels.shape == (1, 3)


def test_a_larger_unit_costs_more():
    larger = Unit(l1=4.0, l2=2 * math.sqrt(2.0), linf=2.0)
    np.testing.assert_array_equal(LNMax(0.05).price(larger).values, RdpCurve.pure(0.2).as_price().values)


@pytest.mark.parametrize("gamma", [0.05, 0.5, 3.0])
def test_likelihood_ratios_stay_within_2_gamma(gamma):
    votes = random_votes(np.random.default_rng(2), 40, n_classes=4, n_queries=300)
    outcomes = LNMax(gamma).outcomes(votes)
    ratio = np.where(outcomes.multiplicity > 0, outcomes.log_here - outcomes.log_there, 0.0)[outcomes.moves]
    assert np.abs(ratio).max() <= 2 * gamma + 1e-7
    # Two classes far apart in a two-horse race come close to it.
    two = LNMax(gamma).outcomes(Votes.from_counts([[400, 0]], n_teachers=400))
    assert np.abs(two.log_here - two.log_there)[two.moves].max() > 1.8 * gamma


def test_a_release_answers_and_pays_for_every_query():
    votes = random_votes(np.random.default_rng(1), 50, n_classes=6, n_queries=30)
    release = LNMax(0.3).release(votes, noise.seeded(1))
    assert release.labels.shape == (30,)
    assert release.answered.all()
    np.testing.assert_allclose(release.cost.worst.values, 30 * LNMax(0.3).price(Unit()).values)


@pytest.mark.parametrize("gamma", [1e-4, 1e-3, 0.05, 1.0, 10.0])
@pytest.mark.parametrize(
    "counts",
    [[5000, 0, 0], [2500, 2500], [1, 0], [0, 1, 0, 0], [1667, 1667, 1666], [50] * 100, [5000] + [0] * 99],
    ids=lambda counts: f"{len(counts)}x{max(counts)}",
)
def test_extremes_are_finite_and_silent(gamma, counts):
    votes = Votes.from_counts([counts], n_teachers=sum(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = LNMax(gamma).outcomes(votes)
        curve = exact_cost(LNMax(gamma), votes).cost.reveal()
    assert np.all(np.isfinite(outcomes.log_labels[:, 1:]))
    assert np.exp(outcomes.log_labels).sum() == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.isfinite(curve.values))
    assert np.all(curve.values <= LNMax(gamma).price(votes.unit).values * (1 + 1e-6) + 1e-12)


def test_both_directions_are_symmetric_for_a_swap():
    # One vote ahead against one vote behind: the same two distributions, names exchanged.
    votes = Votes.from_counts([[6, 5]], n_teachers=11)
    forward, reverse = divergences(LNMax(0.5).outcomes(votes))
    np.testing.assert_allclose(forward[0, 0], reverse[0, 0], rtol=1e-9)
