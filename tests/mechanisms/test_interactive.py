"""Interactive-GNMax: teachers answer where they contradict the student."""

import math
import warnings

import numpy as np
import pytest

from tellers import SILENT, ConfidentGNMax, GNMax, InteractiveGNMax, Unit, Votes, exact_cost, noise
from tellers.mechanisms import check_supremum, divergences
from tellers.testing import random_votes

MECHANISM = InteractiveGNMax(sigma=5.0, threshold=10, sigma_threshold=8.0, student_confidence=0.8)
UNSURE, SURE = [0.25, 0.25, 0.25, 0.25], [0.05, 0.85, 0.05, 0.05]


def students(rng, n_queries, n_classes=4):
    return rng.dirichlet(np.full(n_classes, 0.3), size=n_queries)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, None])
def test_bad_confidence_is_refused(bad):
    with pytest.raises(ValueError, match="student_confidence"):
        InteractiveGNMax(sigma=5.0, threshold=10, sigma_threshold=8.0, student_confidence=bad)


@pytest.mark.parametrize("field", ["sigma", "sigma_threshold"])
def test_bad_noise_is_refused(field):
    arguments = {"sigma": 5.0, "threshold": 10, "sigma_threshold": 8.0, "student_confidence": 0.8, field: 0.0}
    with pytest.raises(ValueError, match=f"{field} > 0"):
        InteractiveGNMax(**arguments)


@pytest.mark.parametrize(
    ("student", "message"),
    [
        ([UNSURE], "shape"),
        ([UNSURE[:3], UNSURE[:3]], "shape"),
        (UNSURE, "shape"),
        ([UNSURE, [0.5, 0.6, -0.1, 0.0]], "row 1 is not"),
        ([UNSURE, [math.nan, 0.5, 0.5, 0.0]], "row 1 is not"),
        ([[0.5, 0.2, 0.2, 0.0], UNSURE], "row 0 does not"),
    ],
)
def test_bad_students_are_refused_by_row(student, message):
    votes = Votes.from_counts([[10, 5, 3, 2], [20, 0, 0, 0]], n_teachers=20)
    for use in (MECHANISM.outcomes, lambda v, **k: MECHANISM.release(v, noise.seeded(1), **k)):
        with pytest.raises(ValueError, match=message):
            use(votes, student=student)


def test_the_price_is_check_and_answer():
    expected = check_supremum(8.0).values + GNMax(5.0).price(Unit()).values
    np.testing.assert_array_equal(MECHANISM.price(Unit()).values, expected)
    np.testing.assert_array_equal(MECHANISM.check_price(Unit()).values, check_supremum(8.0).values)


def test_a_sure_student_keeps_its_label_and_an_unsure_one_hears_nothing():
    votes = Votes.from_counts([[2, 10, 4, 4]] * 40, n_teachers=20)
    never = InteractiveGNMax(sigma=5.0, threshold=1000, sigma_threshold=8.0, student_confidence=0.8)
    release = never.release(votes, noise.seeded(1), student=[SURE, UNSURE] * 20)
    assert release.labels.tolist() == [1, SILENT] * 20
    assert not release.answered.any()
    assert (release.cost.worst.values <= 40 * check_supremum(8.0).values).all()
    assert release.cost.worst.epsilon(1e-5) < 1e-6


def test_confidence_must_be_passed_and_not_just_reached():
    votes = Votes.from_counts([[10, 10]], n_teachers=20)
    never = InteractiveGNMax(sigma=5.0, threshold=1000, sigma_threshold=8.0, student_confidence=0.75)
    assert never.release(votes, noise.seeded(1), student=[[0.75, 0.25]]).labels[0] == SILENT
    assert never.release(votes, noise.seeded(1), student=[[0.25, 0.75 + 1e-9]]).labels[0] == 1


def test_answers_cost_what_came_out():
    rng = np.random.default_rng(6)
    votes = random_votes(rng, 60, n_classes=4, n_queries=200)
    release = MECHANISM.release(votes, noise.seeded(6), student=students(rng, 200))
    n_answered = int(release.answered.sum())
    assert 0 < n_answered < 200
    # Some labels are the student's own: those are no answers, and cost a check.
    assert np.any((release.labels != SILENT) & ~release.answered)
    item = MECHANISM.item(Unit(), n_teachers=60, n_classes=4)
    expected = (200 - n_answered) * item.price(0) + n_answered * item.price(1)
    np.testing.assert_allclose(release.cost.worst.values, expected.values)
    apart = 200 * check_supremum(8.0) + n_answered * GNMax(5.0).price(Unit())
    assert (release.cost.worst.values <= apart.values * (1 + 1e-12)).all()


def test_a_student_without_an_opinion_is_a_shifted_threshold():
    votes = random_votes(np.random.default_rng(8), 60, n_classes=4, n_queries=40)
    outcomes = MECHANISM.outcomes(votes, student=np.full((40, 4), 0.25))
    confident = ConfidentGNMax(sigma=5.0, threshold=10 + 60 / 4, sigma_threshold=8.0).outcomes(votes)
    np.testing.assert_array_equal(outcomes.log_labels, confident.log_labels)
    np.testing.assert_allclose(divergences(outcomes), divergences(confident), rtol=1e-12, atol=1e-15)


def test_permuting_votes_and_student_together_changes_nothing():
    rng = np.random.default_rng(8)
    votes, belief = random_votes(rng, 60, n_classes=4, n_queries=60), students(rng, 60)
    order = np.array([2, 0, 3, 1])
    permuted = Votes.from_counts(votes.counts[:, order], n_teachers=60)
    plain = exact_cost(MECHANISM, Votes.from_counts(votes.counts, n_teachers=60), student=belief)
    moved = exact_cost(MECHANISM, permuted, student=belief[:, order])
    np.testing.assert_allclose(plain.cost.reveal().values, moved.cost.reveal().values, rtol=1e-9)
    first = MECHANISM.outcomes(votes, student=belief).log_labels
    second = MECHANISM.outcomes(permuted, student=belief[:, order]).log_labels
    np.testing.assert_allclose(second[:, 1:], first[:, 1:][:, order], rtol=1e-9)


def test_it_does_not_claim_to_be_symmetric():
    # Permuting the votes alone matters: the student names classes.
    assert not getattr(MECHANISM, "symmetric", False)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 40.0, 1e4])
@pytest.mark.parametrize("belief", [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 3]])
@pytest.mark.parametrize("counts", [[5000, 0, 0], [2500, 2500, 0], [1667, 1667, 1666], [1, 0, 0]])
def test_extremes_are_finite_and_silent(sigma, belief, counts):
    mechanism = InteractiveGNMax(
        sigma=sigma, threshold=100, sigma_threshold=3 * sigma, student_confidence=0.5
    )
    votes = Votes.from_counts([counts], n_teachers=sum(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = mechanism.outcomes(votes, student=[belief])
        curve = exact_cost(mechanism, votes, student=[belief]).cost.reveal()
    assert np.all(np.isfinite(outcomes.log_labels))
    assert np.exp(outcomes.log_labels).sum() == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.isfinite(curve.values))
    assert np.all(curve.values <= mechanism.price(votes.unit).values * (1 + 1e-9))
