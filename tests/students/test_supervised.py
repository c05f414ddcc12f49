"""Students that learn from labels: silence is left out, and what cannot be learnt from is refused."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from tellers import SILENT, ConfidentGNMax, Cost, RdpCurve, Release, Votes, noise
from tellers.errors import SealedValue
from tellers.students import fit_supervised
from tellers.students.fitting import fresh

X = np.array([[0.0], [0.2], [0.8], [1.0], [50.0]])
LABELS = np.array([0, 0, 1, 1, SILENT])


class Remembering(BaseEstimator):
    """Keeps what it was taught."""

    def fit(self, X, y):
        self.X_, self.y_ = X, y
        return self


class Plain:
    """Has fit and predict and nothing else."""

    def fit(self, X, y):
        self.best = np.bincount(y).argmax()

    def predict(self, X):
        return np.full(len(X), self.best)


def test_silent_rows_are_left_out():
    student = fit_supervised(Remembering(), X, LABELS)
    np.testing.assert_array_equal(student.X_, X[:4])
    np.testing.assert_array_equal(student.y_, [0, 0, 1, 1])


def test_a_release_is_as_good_as_its_labels():
    # The last label was the student's own, handed back by an interactive mechanism.
    by_teachers = np.array([True, True, True, False, False])
    release = Release(LABELS, Cost(RdpCurve.zero()), by_teachers)
    np.testing.assert_array_equal(fit_supervised(Remembering(), X, release).y_, [0, 0, 1, 1])


def test_the_estimator_stays_as_it_was():
    estimator = LogisticRegression()
    student = fit_supervised(estimator, X, LABELS)
    check_is_fitted(student)
    assert student is not estimator
    assert not hasattr(estimator, "classes_")


def test_anything_with_fit_and_predict_will_do():
    plain = Plain()
    student = fit_supervised(plain, X, [1, 1, 1, 0, SILENT])
    assert student.predict(X).tolist() == [1] * 5
    assert not hasattr(plain, "best")


def test_rows_come_as_lists_sparse_matrices_and_frames():
    class Frame:
        """As much of a data frame as is used."""

        shape = X.shape
        iloc = X

    for table in (X.tolist(), csr_matrix(X), Frame()):
        student = fit_supervised(LogisticRegression(), table, LABELS)
        assert student.predict([[0.0], [1.0]]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([SILENT] * 5, "at least one released label, got silence for every row"),
        ([3, SILENT, 3, SILENT, SILENT], "at least 2 classes, got class 3 alone, 2 times"),
        ([0, 1, 0, 1], r"one label per row, 5 of them, got shape \(4,\)"),
        ([[0, 1, 0, 1, 0]], "with 5 rows"),
        ([0.0, 1.0, 0.5, 1.0, 0.0], "whole labels"),
        ([0, 1, 0, 1, -2], "whole labels"),
        (list("abcde"), "whole labels"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        fit_supervised(LogisticRegression(), X, labels)


def test_no_rows_are_no_labels():
    with pytest.raises(ValueError, match="at least one released label"):
        fit_supervised(LogisticRegression(), np.zeros((0, 2)), np.zeros(0, dtype=int))


def test_votes_are_no_labels():
    votes = Votes.from_ballots(np.zeros((3, 5), dtype=int), n_classes=2)
    with pytest.raises(SealedValue):
        fit_supervised(LogisticRegression(), X, votes)


def test_a_seed_fills_in_what_was_left_open():
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=5))
    name = "randomforestclassifier__random_state"
    states = [fit_supervised(forest, X, LABELS, seed=s).get_params()[name] for s in (7, 7, 8)]
    assert states[0] == states[1] != states[2]
    assert forest.get_params()[name] is None
    chosen = RandomForestClassifier(n_estimators=5, random_state=3)
    assert fresh(chosen, seed=7).random_state == 3
    assert isinstance(fresh(Plain(), seed=7), Plain)


def test_a_student_of_confident_teachers_reads_digits():
    digits, truth = load_digits(return_X_y=True)
    rng = np.random.default_rng(7)
    # Fifty teachers who are right nine times in ten, on 400 queries.
    ballots = np.where(rng.random((50, 400)) < 0.9, truth[:400], rng.integers(10, size=(50, 400)))
    mechanism = ConfidentGNMax(sigma=5.0, threshold=35, sigma_threshold=8.0)
    release = mechanism.release(Votes.from_ballots(ballots, n_classes=10), noise.seeded(7))
    assert 0 < (release.labels == SILENT).sum() < 200
    student = fit_supervised(LogisticRegression(max_iter=2000), digits[:400] / 16, release)
    assert student.score(digits[400:] / 16, truth[400:]) > 0.85
