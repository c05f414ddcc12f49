"""A pool that is asked as one tested batch: all of it, or nothing, or at the full price afterwards."""

import numpy as np
import pytest

from tellers import SILENT, Accountant, Budget, GNMax, MemoryLedger, Room, Votes, noise
from tellers.errors import BudgetExhausted
from tellers.mechanisms import TestedGNMax
from tellers.runs.labelling import guaranteed_epsilon, label_pool, most_expected

MECHANISM = TestedGNMax(
    sigma=10.0, clear_cost=0.1, test_sigma=3.0, held_at=8.0, test_delta=1e-6, n_queries=12
)  # fmt: skip
POOL = np.arange(20.0)[:, None]


class Teachers:
    n_teachers, n_classes = 200, 4

    def __init__(self, lead=200):
        self.top, self.calls = (200 + lead) // 2, 0

    def vote(self, X):
        self.calls += 1
        counts = np.zeros((len(X), 4), dtype=int)
        rows, first = np.arange(len(X)), X[:, 0].astype(int) % 4
        counts[rows, first], counts[rows, (first + 1) % 4] = self.top, 200 - self.top
        return Votes.from_counts(counts, n_teachers=200)


def room_for(teachers, epsilon=3.0, mechanism=MECHANISM):
    accountant = Accountant(Budget(epsilon, 1e-5), order=8.0, for_tests=1e-6)
    return Room(teachers, mechanism, MemoryLedger(accountant, allow_seeded=True), noise.seeded(5))


@pytest.mark.parametrize("order", ["given", "shuffled", "typical"])
def test_the_whole_batch_is_asked_at_once(order):
    teachers = Teachers()
    room = room_for(teachers)
    labels = label_pool(room, POOL, seed=7, order=order)
    assert labels.passed is True
    assert teachers.calls == 1
    assert len(labels) == labels.n_answered == 12
    assert (labels.labels == labels.rows % 4).all()
    assert labels.stopped_by == "the number of queries"
    [entry] = room.ledger.entries()
    assert entry.event["n_queries"] == 12
    # A run that goes on reads what is on the books.
    assert label_pool(room, POOL, seed=7, order=order).labels.tolist() == labels.labels.tolist()
    assert teachers.calls == 1
    stated = guaranteed_epsilon(room.ledger, room.ledger.accountant, most=most_expected(12, MECHANISM))
    assert stated == MECHANISM.batch_price(Votes.from_counts([[1, 0]], n_teachers=1).unit, 12).epsilon(9e-6)


def test_a_failed_test_ends_the_run_silent():
    room = room_for(Teachers(lead=0))
    labels = label_pool(room, POOL, seed=7)
    assert labels.passed is False
    assert labels.n_answered == 0
    assert (labels.labels == SILENT).all()
    assert len(room.ledger.entries()) == 1


def test_after_a_failed_test_the_rows_may_be_asked_at_the_full_price():
    room = room_for(Teachers(lead=40), epsilon=2.9)
    labels = label_pool(room, POOL, seed=7, after_fail="full price", batch=5)
    assert labels.passed is False
    assert 0 < len(labels) <= 12
    assert len(set(labels.rows.tolist())) == len(labels)
    events = [entry.event for entry in room.ledger.entries()]
    assert [event["mechanism"] for event in events] == ["TestedGNMax"] + ["GNMax"] * (len(events) - 1)
    assert room.ledger.spent.delta == 1e-6
    assert room.ledger.accountant.epsilon(room.ledger.spent) <= 2.9
    again = label_pool(room, POOL, seed=7, after_fail="full price", batch=5)
    assert again.labels.tolist() == labels.labels.tolist()


def test_a_budget_that_only_pays_for_the_batch_ends_after_a_failure():
    room = room_for(Teachers(lead=0))
    price = room.price(12)
    epsilon = float(price.values[price.orders == 8.0][0]) + 2.0
    room = room_for(Teachers(lead=0), epsilon=epsilon)
    labels = label_pool(room, POOL, seed=7, after_fail="full price", batch=4)
    assert labels.passed is False
    assert labels.stopped_by in ("the budget", "the number of queries")


def test_a_batch_that_does_not_fit_is_not_asked_in_parts():
    teachers = Teachers()
    room = room_for(teachers, epsilon=1.4)
    with pytest.raises(BudgetExhausted):
        label_pool(room, POOL, seed=7)
    assert teachers.calls == 0
    assert room.ledger.entries() == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"order": "active"}, "order='active'"),
        ({"n_labels": 5}, "number of labels"),
        ({"n_queries": 11}, "n_queries=11"),
        ({"after_fail": "again"}, "after_fail"),
    ],
)
def test_what_would_ask_before_all_votes_are_in_is_refused(how, words):
    room = room_for(Teachers())
    with pytest.raises(ValueError, match=words):
        label_pool(room, POOL, seed=7, **how)
    with pytest.raises(ValueError, match="at least 12 rows"):
        label_pool(room, POOL[:9], seed=7)
    assert room.ledger.entries() == []


def test_a_mechanism_without_a_test_says_nothing_of_one():
    room = room_for(Teachers(), mechanism=GNMax(40.0))
    assert label_pool(room, POOL, seed=7, n_queries=4).passed is None
