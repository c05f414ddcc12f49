"""Asking for many labels of every row of a pool: counting, stopping, going on, the order."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tellers import (
    SILENT,
    Accountant,
    Binary,
    Budget,
    ConfidentBinary,
    ConfidentPowerset,
    LabelVotes,
    MemoryLedger,
    Room,
    SqliteLedger,
    Unit,
    noise,
)
from tellers.runs import label_pool
from tellers.runs.labelling import most_expected
from tellers.students import fit_supervised, least_confident
from tellers.teachers import VotedPool

N_TEACHERS = 60
X = np.linspace(-1, 1, 40)[:, None]
TRUTH = np.stack([X[:, 0] > 0.1, X[:, 0] < -0.3, np.ones(40)], axis=1).astype(int)
SURE = Binary(sigma=4.0, n_labels=3)


def a_room(mechanism=SURE, epsilon=200.0, ledger=None, unsure=()):
    ballots = np.tile(TRUTH, (N_TEACHERS, 1, 1))
    for row, label in unsure:
        ballots[:30, row, label] = 1 - ballots[:30, row, label]
    pool = VotedPool(LabelVotes.from_ballots(ballots, n_labels=3))
    ledger = ledger or MemoryLedger(Accountant(Budget(epsilon=epsilon, delta=1e-5)))
    return Room(pool, mechanism, ledger, noise.secure())


def ask(room, **settings):
    return label_pool(room, X, queries=np.arange(40), **{"seed": 7, **settings})


@pytest.mark.parametrize("order", ["given", "shuffled", "active"])
def test_every_row_is_asked_once_and_answered(order):
    student = LogisticRegression() if order == "active" else None
    labels = ask(a_room(), order=order, student=student)
    assert sorted(labels.rows) == list(range(40))
    assert (labels.rows.tolist() == list(range(40))) == (order == "given")
    # All 60 teachers agree, 30 from the middle at noise 2.8: a wrong label has a probability below 1e-25.
    np.testing.assert_array_equal(labels.labels, TRUTH[labels.rows])
    assert (labels.n_answered, labels.n_told, len(labels)) == (40, 120, 40)
    assert labels.stopped_by == "the end of the pool"


CONFIDENT = ConfidentBinary(sigma=4.0, n_labels=3, threshold=45, sigma_threshold=2.0)


def test_a_row_is_answered_where_one_of_its_labels_was_told():
    # Agreed or split 30 to 30, a label is 15 from the bar at noise 2: on its other side once in 1e13.
    labels = ask(a_room(CONFIDENT, unsure=[(0, 0), (0, 1), (0, 2), (5, 1)]), order="given")
    assert (labels.labels[0] == SILENT).all()
    assert labels.labels[5].tolist() == [0, SILENT, 1]
    assert (labels.n_answered, labels.n_told) == (39, 116)


def test_a_number_of_labels_counts_rows_that_were_answered():
    everybody = [(row, label) for row in range(10) for label in range(3)]
    labels = ask(a_room(CONFIDENT, unsure=everybody), order="given", n_labels=4)
    assert (len(labels), labels.n_answered, labels.stopped_by) == (14, 4, "the number of labels")


def test_silence_everywhere_is_an_outcome_with_the_shape_of_labels():
    never = ConfidentPowerset(sigma=4.0, n_labels=3, threshold=5000, sigma_threshold=4.0)
    labels = ask(a_room(never), n_queries=6)
    assert labels.labels.shape == labels.by_teachers.shape == (6, 3)
    assert (labels.n_answered, labels.n_told, labels.stopped_by) == (0, 0, "the number of queries")
    with pytest.raises(ValueError, match="silence for every row and label"):
        fit_supervised(LogisticRegression(), X[labels.rows], labels.labels)


def test_the_budget_ends_it_where_one_more_row_does_not_fit():
    budget = Budget(epsilon=15.0, delta=1e-5)
    labels = ask(a_room(ledger=MemoryLedger(Accountant(budget))))
    assert labels.stopped_by == "the budget"
    price = [(n * SURE.price(Unit())).epsilon(1e-5) for n in (len(labels), len(labels) + 1)]
    assert price[0] <= 15 < price[1]
    assert most_expected(3, SURE).epsilon(1e-5) == (3 * SURE.price(Unit())).epsilon(1e-5)


def test_a_run_that_was_cut_short_goes_on_where_it_was(tmp_path):
    accountant = Accountant(Budget(epsilon=200.0, delta=1e-5))
    with SqliteLedger(tmp_path / "books.db", accountant) as ledger:
        first = ask(a_room(ledger=ledger), n_queries=13)
        spent = ledger.spent.epsilon(1e-5)
        again = ask(a_room(ledger=ledger), n_queries=13)
        np.testing.assert_array_equal(again.labels, first.labels)
        assert ledger.spent.epsilon(1e-5) == spent
        whole = ask(a_room(ledger=ledger))
    np.testing.assert_array_equal(whole.rows[:13], first.rows)
    assert sorted(whole.rows) == list(range(40))


# --- The student. ---


def test_each_label_is_taught_by_the_rows_where_it_was_told():
    released = TRUTH.copy()
    released[::2, 0] = SILENT
    released[:, 1] = SILENT
    student = fit_supervised(LogisticRegression(C=100), X, released, seed=7)
    alone = LogisticRegression(C=100).fit(X[1::2], TRUTH[1::2, 0])
    np.testing.assert_array_equal(student.predict(X)[:, 0], alone.predict(X))
    assert (student.predict(X)[:, 1] == 0).all()
    assert (student.predict_proba(X)[:, 2] == 1).all()
    assert student.silent_labels_ == [1]


def test_the_least_sure_rows_are_unsure_of_many_labels():
    student = fit_supervised(LogisticRegression(C=100), X, TRUTH)
    chosen = least_confident(student, X, 3)
    unsure = np.abs(student.predict_proba(X) - 0.5).mean(axis=1)
    np.testing.assert_array_equal(chosen, np.argsort(unsure, kind="stable")[:3])


@pytest.mark.parametrize("released", [[[0, 3]], [[0.5, 1]], [0, 1], [["a", "b"]]])
def test_labels_that_are_none_are_refused(released):
    with pytest.raises((TypeError, ValueError), match="Expected"):
        fit_supervised(LogisticRegression(), [[0.0]], released)
