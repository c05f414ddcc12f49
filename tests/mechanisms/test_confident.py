"""Confident-GNMax: silence is an outcome, and it is charged."""

import math
import warnings

import numpy as np
import pytest

from tellers import SILENT, ConfidentGNMax, GNMax, RdpCurve, Unit, Votes, exact_cost, noise
from tellers.mechanisms import check_supremum, divergences
from tellers.mechanisms._check import log_pass_and_fail
from tellers.privacy import DEFAULT_ORDERS
from tellers.testing import random_votes

MECHANISM = ConfidentGNMax(sigma=5.0, threshold=30, sigma_threshold=8.0)


@pytest.mark.parametrize("field", ["sigma", "sigma_threshold"])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None])
def test_bad_noise_is_refused(field, bad):
    with pytest.raises(ValueError, match=f"{field} > 0"):
        ConfidentGNMax(**{"sigma": 5.0, "threshold": 30, "sigma_threshold": 8.0, field: bad})


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "200"])
def test_bad_thresholds_are_refused(bad):
    with pytest.raises(ValueError, match="threshold"):
        ConfidentGNMax(sigma=5.0, threshold=bad, sigma_threshold=8.0)


def test_the_price_is_check_and_answer():
    price = MECHANISM.price(Unit()).values
    np.testing.assert_array_equal(price, check_supremum(8.0).values + GNMax(5.0).price(Unit()).values)
    np.testing.assert_array_equal(MECHANISM.check_price(Unit()).values, check_supremum(8.0).values)


def test_other_units_pay_for_how_far_they_move_the_margin():
    larger, odd = (
        Unit(l1=4.0, l2=2 * math.sqrt(2.0), linf=2.0),
        Unit(l1=3.0, l2=1.5 * math.sqrt(2.0), linf=1.5),
    )
    price = MECHANISM.check_price(larger).values
    np.testing.assert_array_equal(price, check_supremum(8.0, weight=2).values)
    assert np.all(price <= 4 * DEFAULT_ORDERS / (2 * 8.0**2))
    np.testing.assert_allclose(MECHANISM.check_price(odd).values, 2.25 * DEFAULT_ORDERS / (2 * 8.0**2))


def test_silence_costs_its_check_alone():
    votes = Votes.from_counts([[20, 5]] * 40, n_teachers=25)
    silent = ConfidentGNMax(sigma=5.0, threshold=1000, sigma_threshold=8.0).release(votes, noise.seeded(1))
    assert np.all(silent.labels == SILENT)
    assert not silent.answered.any()
    # No votes come near the threshold: the check tells next to nothing, and that is what it costs.
    assert (silent.cost.worst.values <= 40 * check_supremum(8.0).values).all()
    assert silent.cost.worst.epsilon(1e-5) < 1e-6


def test_answers_cost_what_came_out():
    votes = random_votes(np.random.default_rng(4), 60, n_classes=4, n_queries=200)
    release = MECHANISM.release(votes, noise.seeded(4))
    n_answered = int(release.answered.sum())
    assert 0 < n_answered < 200
    np.testing.assert_array_equal(release.answered, release.labels != SILENT)
    item = MECHANISM.item(Unit(), n_teachers=60, n_classes=4)
    expected = (200 - n_answered) * item.price(0) + n_answered * item.price(1)
    np.testing.assert_allclose(release.cost.worst.values, expected.values)
    apart = 200 * check_supremum(8.0) + n_answered * GNMax(5.0).price(Unit())
    assert (release.cost.worst.values <= apart.values * (1 + 1e-12)).all()


def test_outcomes_are_the_check_times_the_winner():
    votes = Votes.from_counts([[20, 5], [13, 12]], n_teachers=25)
    outcomes = MECHANISM.outcomes(votes)
    log_pass, log_fail = log_pass_and_fail(np.array([-10.0, -17.0]), 8.0)
    np.testing.assert_allclose(outcomes.log_labels[:, 0], log_fail)
    winner = GNMax(5.0).outcomes(votes).log_labels[:, 1:]
    np.testing.assert_allclose(outcomes.log_labels[:, 1:], winner + log_pass[:, None], rtol=1e-9)


def test_a_fractional_threshold_is_its_ceiling():
    votes = random_votes(np.random.default_rng(4), 60, n_classes=4, n_queries=20)
    fraction = ConfidentGNMax(sigma=5.0, threshold=29.3, sigma_threshold=8.0)
    np.testing.assert_array_equal(fraction.outcomes(votes).log_labels, MECHANISM.outcomes(votes).log_labels)
    same = [m.release(votes, noise.seeded(3)).labels for m in (fraction, MECHANISM)]
    np.testing.assert_array_equal(*same)


def test_a_threshold_out_of_reach_or_no_threshold_leave_one_part():
    votes = random_votes(np.random.default_rng(4), 60, n_classes=4, n_queries=50)
    always = ConfidentGNMax(sigma=5.0, threshold=-1e4, sigma_threshold=8.0)
    never = ConfidentGNMax(sigma=5.0, threshold=1e4, sigma_threshold=8.0)
    expected = divergences(GNMax(5.0).outcomes(votes))
    np.testing.assert_allclose(divergences(always.outcomes(votes)), expected, rtol=1e-6, atol=1e-12)
    assert divergences(never.outcomes(votes)).max() < 1e-12


def test_the_joint_cost_is_at_most_that_of_both_parts_released():
    votes = random_votes(np.random.default_rng(4), 60, n_classes=4, n_queries=200)
    joint = divergences(MECHANISM.outcomes(votes))
    bound = divergences(GNMax(5.0).outcomes(votes)).max(axis=(1, 2)) + check_supremum(8.0).values
    assert np.all(joint.max(axis=(1, 2)) <= bound * (1 + 1e-9))


@pytest.mark.parametrize("sigma", [0.1, 1.0, 40.0, 1e4])
@pytest.mark.parametrize("threshold", [-1e6, 0, 2500, 1e6])
@pytest.mark.parametrize("counts", [[5000, 0, 0], [2500, 2500], [1, 0], [1667, 1667, 1666]])
def test_extremes_are_finite_and_silent(sigma, threshold, counts):
    mechanism = ConfidentGNMax(sigma=sigma, threshold=threshold, sigma_threshold=3 * sigma)
    votes = Votes.from_counts([counts], n_teachers=sum(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = mechanism.outcomes(votes)
        curve = exact_cost(mechanism, votes).cost.reveal()
    assert np.all(np.isfinite(outcomes.log_labels))
    assert np.exp(outcomes.log_labels).sum() == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.isfinite(curve.values))
    assert np.all(curve.values <= mechanism.price(votes.unit).values * (1 + 1e-9))
    assert isinstance(curve, RdpCurve)


@pytest.mark.parametrize("threshold", [-1e30, 1e30])
def test_a_threshold_beyond_every_count_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold in votes"):
        ConfidentGNMax(sigma=5.0, threshold=threshold, sigma_threshold=8.0)
