"""GNMax: its prices, its draws and its outcomes."""

import math
import warnings

import numpy as np
import pytest

from tellers import GNMax, Unit, Votes, exact_cost, noise
from tellers.privacy import DEFAULT_ORDERS
from tellers.testing import random_votes


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "40", True])
def test_bad_sigma_is_refused(bad):
    with pytest.raises(ValueError, match="sigma > 0"):
        GNMax(sigma=bad)


def test_the_histogram_price_has_sensitivity_sqrt_2():
    np.testing.assert_allclose(GNMax(40.0).histogram_price(Unit()).values, DEFAULT_ORDERS / 40**2)


def test_461_queries_at_sigma_40():
    # The numbers of the documentation: the arg max, and the histogram on the default orders.
    assert (461 * GNMax(40.0).price(Unit())).epsilon(1e-5) == pytest.approx(2.69, abs=0.005)
    assert (461 * GNMax(40.0).histogram_price(Unit())).epsilon(1e-5) == pytest.approx(3.457, abs=0.005)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 5.0, 40.0, 1e4])
def test_the_arg_max_is_never_dearer_than_the_histogram(sigma):
    mechanism = GNMax(sigma)
    assert np.all(mechanism.price(Unit()).values <= mechanism.histogram_price(Unit()).values)


def test_other_units_pay_the_histogram_price():
    larger = Unit(l1=4.0, l2=2 * math.sqrt(2.0), linf=2.0)
    np.testing.assert_allclose(GNMax(40.0).price(larger).values, 4 * DEFAULT_ORDERS / 40**2)


def test_a_release_answers_and_pays_for_every_query():
    votes = random_votes(np.random.default_rng(1), 50, n_classes=6, n_queries=30)
    release = GNMax(3.0).release(votes, noise.seeded(1))
    assert release.labels.shape == (30,)
    assert release.answered.all()
    assert release.cost.tight is None
    np.testing.assert_allclose(release.cost.worst.values, 30 * GNMax(3.0).price(Unit()).values)


def test_little_noise_answers_with_the_plurality():
    votes = random_votes(np.random.default_rng(1), 50, n_classes=6, n_queries=200)
    clear = votes[votes.gap > 8]
    labels = GNMax(0.5).release(clear, noise.seeded(1)).labels
    np.testing.assert_array_equal(labels, clear.counts.argmax(axis=1))


def test_no_queries_are_no_answers():
    empty = Votes.from_counts([[3, 2]], n_teachers=5)[:0]
    release = GNMax(3.0).release(empty, noise.seeded(1))
    assert len(release) == 0
    assert release.cost.worst.epsilon(1e-5) == 0.0


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 7.0, 40.0, 1e3, 1e4])
@pytest.mark.parametrize(
    "counts",
    [
        [5000, 0, 0],
        [2500, 2500],
        [1, 0],
        [0, 1, 0, 0],
        [1667, 1667, 1666],
        [4999, 1],
        [50] * 100,
        [5000] + [0] * 99,
        [5000, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
    ids=lambda counts: f"{len(counts)}x{max(counts)}",
)
def test_extremes_are_finite_and_silent(sigma, counts):
    votes = Votes.from_counts([counts], n_teachers=sum(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = GNMax(sigma).outcomes(votes)
        cost = exact_cost(GNMax(sigma), votes)
        curve = cost.cost.reveal()
    assert np.all(np.isfinite(outcomes.log_labels[:, 1:]))
    assert np.exp(outcomes.log_labels).sum() == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.isfinite(curve.values))
    assert np.all(curve.values >= 0)
    assert np.all(curve.values <= GNMax(sigma).price(votes.unit).values * (1 + 1e-9))
    # A divergence never falls with its order, but for rounding: (order - 1) D is a sum near 1.
    slack = 1e-13 * (1 + np.abs(outcomes.log_labels[:, 1:]).max())
    assert np.all(np.diff(curve.values) >= -1e-9 * curve.values[1:] - slack)


def test_unanimous_votes_cost_next_to_nothing():
    votes = Votes.from_counts([[5000, 0]], n_teachers=5000)
    assert exact_cost(GNMax(1.0), votes).cost.reveal().values.max() < 1e-12
