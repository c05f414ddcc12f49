"""The noisy check, against its definition and in both tails."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers import noise
from tellers.mechanisms._argmax import group_classes
from tellers.mechanisms._check import check_outcomes, log_pass_and_fail, whole_thresholds
from tellers.mechanisms._laws import DiscreteGaussian


@pytest.mark.parametrize("sigma", [0.1, 1.0, 40.0, 1e4])
def test_pass_and_fail_sum_to_one(sigma):
    margin = np.arange(-5000.0, 5001.0, 7)
    log_pass, log_fail = log_pass_and_fail(margin, sigma)
    np.testing.assert_allclose(np.exp(log_pass) + np.exp(log_fail), 1.0, atol=1e-12)
    assert np.all(np.isfinite(log_pass))
    assert np.all(np.isfinite(log_fail))
    assert np.all(np.diff(log_pass) >= 0)


def test_a_margin_of_zero_passes_when_the_noise_is_not_negative():
    log_pass, _ = log_pass_and_fail(np.array([0.0]), 2.0)
    x = np.arange(0.0, 60.0)
    assert np.exp(log_pass[0]) == pytest.approx(np.exp(DiscreteGaussian(2.0).log_density(x)).sum(), abs=1e-12)


def test_draws_pass_as_often_as_they_should():
    # 40,000 draws per margin; five standard deviations, false alarm below 1e-6 each.
    for margin in (-4, -1, 0, 3):
        passed = np.mean(margin + noise.seeded(100 + margin).discrete_gaussian(3.0, 40_000) >= 0)
        expected = np.exp(log_pass_and_fail(np.array([float(margin)]), 3.0)[0][0])
        assert abs(passed - expected) < 5 * np.sqrt(expected * (1 - expected) / 40_000)


@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=6),
    st.lists(st.integers(-3, 9), min_size=6, max_size=6),
    st.booleans(),
)
def test_every_move_is_that_of_the_moved_votes(row, thresholds, one_for_all):
    counts = np.array([row])
    offsets = np.array([thresholds[: len(row)]])
    if one_for_all:
        offsets = np.array([[thresholds[0]]])
    groups = group_classes(counts, offsets)
    check = check_outcomes(groups, 2.0)
    expected = log_pass_and_fail((counts - offsets).max(axis=1).astype(float), 2.0)
    assert (check.log_pass[0], check.log_fail[0]) == (expected[0][0], expected[1][0])
    for a, b in itertools.permutations(range(len(row)), 2):
        if not row[a]:
            continue
        moved = counts.copy()
        moved[0, a] -= 1
        moved[0, b] += 1
        margin = (moved - offsets).max(axis=1)
        assert abs(margin - (counts - offsets).max(axis=1)) <= 1
        place = 0, groups.of_class[0, a], groups.of_class[0, b]
        expected = log_pass_and_fail(margin.astype(float), 2.0)
        assert check.log_pass_moved[place] == expected[0][0]
        assert check.log_fail_moved[place] == expected[1][0]


@given(st.floats(-300, 300), st.integers(0, 300))
def test_whole_counts_reach_a_threshold_when_they_reach_its_ceiling(threshold, count):
    assert (count >= threshold) == (count >= whole_thresholds(threshold)[0, 0])


def test_thresholds_of_a_student_are_rounded_up_class_by_class():
    beliefs = np.array([[0.25, 0.75], [0.0, 1.0]])
    assert whole_thresholds(10.2, 9 * beliefs).tolist() == [[13, 17], [11, 20]]
