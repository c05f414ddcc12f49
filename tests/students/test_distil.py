"""Distillation: shares of votes become targets, and rows with weights teach them to any estimator."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tellers import Cost, NoisyHistogram, RdpCurve, Release, Votes, noise
from tellers.errors import SealedValue
from tellers.students import fit_distilled, soft_targets

VALUES = np.array([[160, 40, -7], [25, 25, 50], [0, 100, 0]])


def released(values):
    return Release(np.argmax(values, axis=1), Cost(RdpCurve.zero()), values=np.asarray(values))


def test_shares_are_kept_at_temperature_1():
    expected = [[0.8, 0.2, 0.0], [0.25, 0.25, 0.5], [0.0, 1.0, 0.0]]
    np.testing.assert_allclose(soft_targets(VALUES), expected)
    np.testing.assert_allclose(soft_targets(released(VALUES), 1.0), expected)


def test_temperatures_even_out_and_sharpen():
    np.testing.assert_allclose(soft_targets(VALUES, 2.0)[0], [2 / 3, 1 / 3, 0.0])
    np.testing.assert_allclose(soft_targets(VALUES, 0.5)[0], [16 / 17, 1 / 17, 0.0])
    for temperature in (1e-300, 1e-3, 1.0, 5.0, 1e300):
        targets = soft_targets(VALUES, temperature)
        np.testing.assert_allclose(targets.sum(axis=1), 1.0)
        np.testing.assert_array_equal(targets[[0, 1, 2], [0, 2, 1]], targets.max(axis=1))
    np.testing.assert_allclose(soft_targets(VALUES, 1e-300)[1], [0.0, 0.0, 1.0])
    np.testing.assert_allclose(soft_targets(VALUES, 1e300)[0], [0.5, 0.5, 0.0])


def test_a_floor_cuts_off_what_noise_left():
    np.testing.assert_allclose(soft_targets(VALUES, 5.0, floor=40)[0], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(soft_targets(VALUES, floor=-50), soft_targets(VALUES))


def test_a_query_with_nothing_left_says_nothing():
    np.testing.assert_allclose(soft_targets([[-3, 0, -1]], 5.0), np.full((1, 3), 1 / 3))
    np.testing.assert_allclose(soft_targets([[30, 20]], floor=30), [[0.5, 0.5]])


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_bad_temperatures_are_refused(temperature):
    with pytest.raises(ValueError, match="temperature > 0"):
        soft_targets(VALUES, temperature)
    with pytest.raises(ValueError, match="finite number for floor"):
        soft_targets(VALUES, floor=math.nan)


@pytest.mark.parametrize("values", [[1, 2, 3], [[1.0, math.nan]], [[1], [2]]])
def test_bad_values_are_refused(values):
    with pytest.raises(ValueError, match="queries x classes"):
        soft_targets(values)


def test_labels_alone_are_no_values():
    release = Release(np.array([0, 1]), Cost(RdpCurve.zero()))
    with pytest.raises(ValueError, match=r"labels alone.*fit_supervised"):
        soft_targets(release)


def test_votes_are_no_values():
    with pytest.raises(SealedValue):
        soft_targets(Votes.from_counts([[3, 4]], n_teachers=7))


def test_weighted_rows_are_the_cross_entropy_with_soft_targets():
    # With a column per query and no penalty, the best student repeats its targets.
    X, values = np.eye(3), np.array([[160, 40, 10], [25, 25, 50], [3, 94, 3]])
    student = fit_distilled(LogisticRegression(C=1e8, max_iter=10_000, tol=1e-10), X, values)
    np.testing.assert_allclose(student.predict_proba(X), soft_targets(values), atol=1e-3)
    hot = fit_distilled(LogisticRegression(C=1e8, max_iter=10_000, tol=1e-10), X, values, temperature=5.0)
    np.testing.assert_allclose(hot.predict_proba(X), soft_targets(values, 5.0), atol=1e-3)


def test_trees_and_pipelines_take_weights_too():
    X = np.arange(3.0)[:, None]
    tree = fit_distilled(DecisionTreeClassifier(), X, VALUES, seed=7)
    np.testing.assert_allclose(tree.predict_proba(X), soft_targets(VALUES))
    piped = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), DecisionTreeClassifier()))
    student = fit_distilled(piped, X, released(VALUES))
    np.testing.assert_allclose(student.predict_proba(X), soft_targets(VALUES))


def test_an_estimator_without_weights_is_refused():
    for estimator in (KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsClassifier())):
        with pytest.raises(TypeError, match="takes sample_weight, got KNeighborsClassifier"):
            fit_distilled(estimator, np.zeros((3, 1)), VALUES)


def test_what_cannot_be_learnt_from_is_refused():
    with pytest.raises(ValueError, match="one row of values per row of X, 2 of them, got 3"):
        fit_distilled(LogisticRegression(), np.zeros((2, 1)), VALUES)
    with pytest.raises(ValueError, match="at least 2 classes, got class 1 alone"):
        fit_distilled(LogisticRegression(), np.zeros((2, 1)), [[0, 9], [-1, 9]])
    with pytest.raises(ValueError, match="at least one released label"):
        fit_distilled(LogisticRegression(), np.zeros((0, 1)), np.zeros((0, 2)))


def test_a_student_learns_from_a_noisy_histogram():
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, size=(300, 1))
    counts = rng.binomial(100, 1 / (1 + np.exp(-6 * X[:, 0])))
    votes = Votes.from_counts(np.stack([100 - counts, counts], axis=1), n_teachers=100)
    release = NoisyHistogram(sigma=10.0).release(votes, noise.seeded(7))
    student = fit_distilled(LogisticRegression(C=1e4), X, release)
    # Soft targets carry how steep the answer is, which labels cannot: the slope was 6.
    assert student.coef_[0, 0] == pytest.approx(6.0, rel=0.25)
