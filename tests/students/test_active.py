"""Students that choose their questions: the least confident rows first, none of them twice."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from tellers import SILENT, Cost, RdpCurve, Release
from tellers.errors import BudgetExhausted
from tellers.students import ask_in_rounds, least_confident

X = np.linspace(-1, 1, 101)[:, None]
TRUTH = (X[:, 0] > 0.31).astype(np.int64)
SIZES = {"first": 10, "per_round": 5, "n_rounds": 4}


class Teacher:
    """Answers from a table and remembers what it was asked."""

    def __init__(self, answers=TRUTH):
        self.answers, self.asked = answers, []

    def __call__(self, indices):
        self.asked.append(indices.tolist())
        return self.answers[indices]


class Fixed:
    """A fitted student with probabilities as they are given."""

    def predict_proba(self, X):
        return np.asarray(X)


def test_the_least_confident_come_first():
    pool = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.5, 0.5]]
    assert least_confident(Fixed(), pool, 3).tolist() == [1, 3, 2]
    assert least_confident(Fixed(), pool, 9).tolist() == [1, 3, 2, 0]
    assert least_confident(Fixed(), pool, 0).tolist() == []
    assert least_confident(Fixed(), pool, 1).dtype == np.int64


def test_margins_do_where_there_are_no_probabilities():
    two = RidgeClassifier().fit([[0.0], [1.0]], [0, 1])
    assert least_confident(two, [[0.0], [0.45], [2.0]], 2).tolist() == [1, 0]

    class Three:
        def decision_function(self, X):
            return np.array([[5.0, 4.9, 0.0], [1.0, 0.0, 0.0], [0.0, 0.2, 0.5]])

    assert least_confident(Three(), X[:3], 3).tolist() == [0, 2, 1]
    with pytest.raises(TypeError, match="predict_proba or decision_function, got object"):
        least_confident(object(), X, 1)


def test_rounds_are_as_long_as_told_and_add_up():
    teacher = Teacher()
    rounds = list(ask_in_rounds(teacher, LogisticRegression(), X, **SIZES, seed=7))
    assert [now.n_new for now in rounds] == [10, 5, 5, 5, 5]
    assert [len(now.indices) for now in rounds] == [10, 15, 20, 25, 30]
    last = rounds[-1]
    assert last.indices.tolist() == [i for asked in teacher.asked for i in asked]
    np.testing.assert_array_equal(last.labels, TRUTH[last.indices])
    assert len(set(last.indices.tolist())) == 30


def test_it_asks_where_it_matters():
    last = list(ask_in_rounds(Teacher(), LogisticRegression(C=100), X, **SIZES, seed=7))[-1]
    assert np.abs(X[last.indices[10:], 0] - 0.31).max() < 0.35
    assert (last.student.predict(X) == TRUTH).mean() >= 0.97


@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(n_estimators=10)])
def test_a_seed_reproduces(estimator):
    asked = []
    for seed in (7, np.random.default_rng(7), 8):
        teacher = Teacher()
        list(ask_in_rounds(teacher, estimator, X, **SIZES, seed=seed))
        asked.append(teacher.asked)
    assert asked[0] == asked[1] != asked[2]


def test_silent_rows_are_not_asked_again():
    answers = np.where(np.arange(101) % 2, TRUTH, SILENT)
    teacher = Teacher(answers)
    rounds = list(
        ask_in_rounds(teacher, LogisticRegression(), X, first=10, per_round=10, n_rounds=50, seed=7)
    )
    # Every row once: then the pool is empty, and the rounds end early.
    assert sorted(i for asked in teacher.asked for i in asked) == list(range(101))
    assert rounds[-1].n_new == 1
    np.testing.assert_array_equal(rounds[-1].labels, answers[rounds[-1].indices])


def test_without_two_classes_the_order_is_random_and_there_is_no_student():
    rounds = list(ask_in_rounds(Teacher(np.zeros(101, dtype=int)), LogisticRegression(), X, **SIZES, seed=7))
    assert [now.student for now in rounds] == [None] * 5
    assert rounds[-1].indices.tolist() == np.random.default_rng(7).permutation(101)[:30].tolist()


def test_a_release_is_as_good_as_its_labels():
    def ask(indices):
        return Release(TRUTH[indices], Cost(RdpCurve.zero()))

    plain, released = (
        list(ask_in_rounds(how, LogisticRegression(), X, **SIZES, seed=7))[-1] for how in (Teacher(), ask)
    )
    assert plain.indices.tolist() == released.indices.tolist()


def test_an_exhausted_budget_passes_through_and_the_last_round_stands():
    teacher, seen = Teacher(), []

    def ask(indices):
        if len(teacher.asked) == 3:
            raise BudgetExhausted("enough")
        return teacher(indices)

    with pytest.raises(BudgetExhausted):
        seen.extend(ask_in_rounds(ask, LogisticRegression(), X, **SIZES, seed=7))
    assert [now.n_new for now in seen] == [10, 5, 5]
    assert seen[-1].student is not None


def test_nothing_is_asked_before_the_round_is_wanted():
    teacher = Teacher()
    rounds = ask_in_rounds(teacher, LogisticRegression(), X, **SIZES, seed=7)
    assert teacher.asked == []
    next(rounds)
    assert len(teacher.asked) == 1


@pytest.mark.parametrize("wrong", [{"first": 0}, {"per_round": 0}, {"n_rounds": -1}, {"first": 2.5}])
def test_bad_sizes_are_refused_at_once(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ask_in_rounds(Teacher(), LogisticRegression(), X, **{**SIZES, **wrong}, seed=7)
    with pytest.raises(ValueError, match="n_pool"):
        ask_in_rounds(Teacher(), LogisticRegression(), X[:0], **SIZES, seed=7)


def test_an_answer_for_every_question():
    with pytest.raises(ValueError, match="one label per row, 10 of them"):
        next(ask_in_rounds(lambda indices: TRUTH[indices][1:], LogisticRegression(), X, **SIZES, seed=7))
