"""Asking for the labels of a pool: the order, the moment of stopping, and going on after a cut."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Perceptron

from tellers import (
    SILENT,
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    MemoryLedger,
    NoisyHistogram,
    Room,
    SqliteLedger,
    Unit,
    Votes,
    noise,
)
from tellers.errors import BudgetExhausted, KeyReused, LedgerConflict
from tellers.mechanisms import EVENTS
from tellers.runs import label_pool
from tellers.runs.labelling import guaranteed_epsilon, most_expected
from tellers.students import least_confident
from tellers.teachers import VotedPool

N_TEACHERS = 100
X = np.linspace(-1, 1, 60)[:, None]
TRUTH = (X[:, 0] > 0.1).astype(int)


@dataclass
class Teachers:
    """Teachers who agree on everything; remembers which rows were voted on."""

    n_classes: int = 2
    seen: list = field(default_factory=list)

    def vote(self, rows):
        self.seen.extend(np.searchsorted(X[:, 0], np.asarray(rows)[:, 0]).tolist())
        labels = (np.asarray(rows)[:, 0] > 0.1).astype(int)
        return Votes.from_ballots(np.tile(labels, (N_TEACHERS, 1)), n_classes=2)


def a_room(mechanism=None, epsilon=50.0, ledger=None, teachers=None):
    ledger = ledger or MemoryLedger(Accountant(Budget(epsilon=epsilon, delta=1e-5)))
    return Room(teachers or Teachers(), mechanism or GNMax(sigma=8.0), ledger, noise.secure())


@pytest.mark.parametrize("order", ["given", "shuffled", "typical", "active"])
def test_every_row_is_asked_once_and_answered(order):
    room = a_room()
    student = LogisticRegression() if order == "active" else None
    labels = label_pool(room, X, seed=7, order=order, student=student)
    assert sorted(labels.rows) == list(range(60)) == sorted(room.ensemble.seen)
    # A unanimous vote of 100 against noise of 8 loses with a probability below 1e-15.
    assert (labels.labels == TRUTH[labels.rows]).all()
    assert labels.stopped_by == "the end of the pool"
    assert (labels.n_lost, labels.n_answered, len(labels)) == (0, 60, 60)
    assert (labels.rows.tolist() == list(range(60))) == (order == "given")


def test_the_active_order_asks_what_the_student_is_least_sure_of():
    room = a_room()
    labels = label_pool(
        room, X, seed=7, order="active", student=LogisticRegression(), first=10, per_round=5, n_queries=15
    )
    student = LogisticRegression().fit(X[labels.rows[:10]], labels.labels[:10])
    left = np.setdiff1d(np.arange(60), labels.rows[:10])
    assert sorted(labels.rows[10:]) == sorted(left[least_confident(student, X[left], 5)])
    assert labels.stopped_by == "the number of queries"


def test_the_same_seed_asks_the_same_rows_and_another_does_not():
    first, again, other = (
        label_pool(a_room(), X, seed=seed, n_queries=20).rows.tolist() for seed in (7, 7, 8)
    )
    assert first == again != other


def test_stopping_at_a_number_of_labels_never_passes_it():
    room = a_room()
    labels = label_pool(room, X, seed=7, n_labels=17)
    assert (labels.n_answered, labels.stopped_by) == (17, "the number of labels")
    assert len(room.ensemble.seen) == 17


def test_silence_does_not_count_as_a_label():
    room = a_room(ConfidentGNMax(sigma=4.0, threshold=99, sigma_threshold=20.0))
    labels = label_pool(room, X, seed=7, n_labels=16, batch=4)
    silent = labels.labels == SILENT
    assert labels.n_answered == 16
    assert silent.sum() == len(labels) - 16
    # A check passes with probability 0.53: sixteen in a row, or fewer than sixteen of all rows, below 1e-4.
    assert silent.any()


def test_the_budget_is_used_to_the_last_query_it_pays_for():
    mechanism, budget = GNMax(sigma=30.0), Budget(epsilon=1.0, delta=1e-5)
    room = a_room(mechanism, epsilon=1.0)
    labels = label_pool(room, X, seed=7, batch=8)
    accountant, n = Accountant(budget), 0
    while accountant.affords(n * mechanism.price(Unit()), mechanism.price(Unit())):
        n += 1
    assert 1 < n < 60
    assert (len(labels), labels.stopped_by) == (n, "the budget")
    assert accountant.epsilon(room.ledger.spent) <= 1.0


def test_a_budget_that_pays_for_nothing_is_an_error():
    room = a_room(GNMax(sigma=1.0), epsilon=0.01)
    with pytest.raises(BudgetExhausted, match="past the budget"):
        label_pool(room, X, seed=7)
    assert room.ledger.entries() == []


def test_a_run_that_was_cut_goes_on_without_a_second_charge(tmp_path):
    accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
    mechanism = GNMax(sigma=30.0)

    def go_on(**limits):
        with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
            room = a_room(mechanism, ledger=ledger)
            return label_pool(room, X, seed=7, batch=7, **limits), ledger.spent.values, room.ensemble.seen

    part, _, _ = go_on(n_queries=7)
    whole, spent, seen = go_on()
    again, spent_again, seen_again = go_on()
    assert part.rows.tolist() == whole.rows[:7].tolist()
    assert part.labels.tolist() == whole.labels[:7].tolist()
    assert sorted(part.rows.tolist() + seen) == sorted(whole.rows.tolist())
    assert again.labels.tolist() == whole.labels.tolist()
    assert (spent_again == spent).all()
    assert seen_again == []


def test_what_was_lost_stays_charged_and_is_never_asked_again():
    class Dies(Exception):
        pass

    class DiesOnce(MemoryLedger):
        def settle(self, ticket, release):
            if ticket.key == "pool/10":
                raise Dies
            super().settle(ticket, release)

    ledger = DiesOnce(Accountant(Budget(epsilon=50.0, delta=1e-5)))
    room = a_room(ledger=ledger)
    with pytest.raises(Dies):
        label_pool(room, X, seed=7)
    labels = label_pool(room, X, seed=7)
    assert labels.n_lost == 10
    assert len(labels) == 50
    assert len(room.ensemble.seen) == 60 == len(set(room.ensemble.seen))
    np.testing.assert_allclose(ledger.spent.values, (60 * room.price(1)).values)


def test_another_order_under_the_same_key_is_refused():
    room = a_room()
    label_pool(room, X, seed=7, n_queries=10)
    with pytest.raises(LedgerConflict, match="other queries"):
        label_pool(room, X, seed=8, n_queries=10)


INTERACTIVE = InteractiveGNMax(sigma=8.0, threshold=40, sigma_threshold=10.0, student_confidence=0.9)
WARM_UP = ConfidentGNMax(sigma=8.0, threshold=60, sigma_threshold=10.0)


def test_the_student_speaks_after_the_warm_up():
    room = a_room(INTERACTIVE)
    student = LogisticRegression(C=1000)
    labels = label_pool(
        room, X, seed=7, student=student, first=30, per_round=15, warm_up=WARM_UP, n_queries=60
    )
    used = [entry.event["mechanism"] for entry in room.ledger.entries()]
    assert used == 3 * ["ConfidentGNMax"] + 4 * ["InteractiveGNMax"]
    # Agreement between a sure student and 100 of 100 teachers is not paid for: its own label comes back.
    handed_back = (labels.labels != SILENT) & ~labels.by_teachers
    assert not handed_back[:30].any()
    assert handed_back[30:].sum() >= 10
    assert (labels.labels[handed_back] == TRUTH[labels.rows[handed_back]]).mean() > 0.9


def test_an_interactive_run_resumes_too():
    room = a_room(INTERACTIVE)
    options = {"student": LogisticRegression(), "first": 20, "per_round": 10, "warm_up": WARM_UP}
    part = label_pool(room, X, seed=7, n_queries=30, **options)
    whole = label_pool(room, X, seed=7, **options)
    assert whole.rows[:30].tolist() == part.rows.tolist()
    assert whole.labels[:30].tolist() == part.labels.tolist()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"student": LogisticRegression(C=3.0)}, "other probabilities of the student"),
        ({"seed": 8}, "other queries"),
        ({"warm_up": replace(WARM_UP, sigma=9.0)}, "another mechanism"),
    ],
    ids=["student", "seed", "mechanism"],
)
def test_a_run_that_asks_something_else_under_its_key_is_refused(changed, says):
    room = a_room(INTERACTIVE)
    options = {"student": LogisticRegression(), "first": 20, "per_round": 10, "warm_up": WARM_UP, "seed": 7}
    label_pool(room, X, n_queries=30, **options)
    n_entries = len(room.ledger.entries())
    with pytest.raises(KeyReused, match=f"{says}.*Go on as it began"):
        label_pool(room, X, **{**options, **changed})
    assert len(room.ledger.entries()) == n_entries


def test_histograms_come_out_beside_their_leaders():
    labels = label_pool(a_room(NoisyHistogram(sigma=8.0)), X, seed=7, n_queries=20, batch=6)
    assert labels.values.shape == (20, 2)
    assert (labels.values.argmax(axis=1) == labels.labels).all()


def test_a_room_may_be_asked_by_row_number():
    pool = VotedPool(Votes.from_ballots(np.tile(TRUTH, (N_TEACHERS, 1)), n_classes=2))
    labels = label_pool(a_room(teachers=pool), X, seed=7, queries=np.arange(60))
    assert (labels.labels == TRUTH[labels.rows]).all()


def test_progress_ends_with_everything():
    seen = []
    label_pool(a_room(), X, seed=7, n_queries=25, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(10, 25), (20, 25), (25, 25)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": "random"}, "one of given, shuffled, typical, active"),
        ({"batch": 0}, "batch"),
        ({"n_queries": 0}, "n_queries"),
        ({"n_labels": -1}, "n_labels"),
        ({"first": 10}, "only where a student takes part"),
        ({"order": "active"}, "Expected a student"),
        ({"order": "active", "student": LogisticRegression(), "warm_up": WARM_UP}, "Expected no warm_up"),
        ({"queries": np.arange(59)}, "one query per row"),
    ],
)
def test_wrong_arguments_cost_nothing(wrong, message):
    room = a_room()
    with pytest.raises((ValueError, TypeError), match=message):
        label_pool(room, X, seed=7, **wrong)
    assert room.ledger.entries() == []


def test_an_interactive_mechanism_needs_a_warm_up_and_a_student_that_can_speak():
    with pytest.raises(TypeError, match="warm_up"):
        label_pool(a_room(INTERACTIVE), X, seed=7, student=LogisticRegression())
    with pytest.raises(TypeError, match="predict_proba"):
        label_pool(a_room(INTERACTIVE), X, seed=7, student=Perceptron(), warm_up=WARM_UP)


@dataclass(frozen=True)
class MyGNMax:
    """GNMax by another name: what a name stands for is not known to those who read books later."""

    sigma: float

    def price(self, unit):
        return GNMax(self.sigma).price(unit)

    def release(self, votes, source):
        return GNMax(self.sigma).release(votes, source)


@pytest.mark.parametrize(
    ("mechanism", "stated"),
    [
        (GNMax(sigma=8.0), "spent"),
        (NoisyHistogram(sigma=8.0), "spent"),
        (ConfidentGNMax(sigma=8.0, threshold=60.0, sigma_threshold=8.0), "most"),
        (MyGNMax(sigma=8.0), "most"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_was_spent_is_stated_only_where_every_query_has_one_price(mechanism, stated):
    room = a_room(mechanism)
    label_pool(room, X, seed=7, n_queries=10)
    accountant, most = room.ledger.accountant, most_expected(20, mechanism)
    spent = accountant.epsilon(room.ledger.spent)
    expected = {"spent": spent, "most": accountant.epsilon(most)}[stated]
    assert guaranteed_epsilon(room.ledger, accountant, most=most) == expected
    assert spent < accountant.epsilon(most)


def test_books_know_every_mechanism_and_which_have_one_price():
    assert {name: getattr(kind, "one_price", False) for name, kind in EVENTS.items()} == {
        "ConfidentGNMax": False, "GNMax": True, "InteractiveGNMax": False, "LNMax": True,
        "NoisyHistogram": True, "TestedGNMax": False, "GaussianSum": True,
        "AdaptiveGNThreshold": True, "Binary": True, "ConfidentBinary": False, "ConfidentGNThreshold": False,
        "ConfidentPowerset": False, "ConfidentTau": False, "GNThreshold": True, "PartialPowerset": True,
        "ConfidentDependentBinary": False, "DependentBinary": False, "Powerset": True, "Tau": True,
    }  # fmt: skip
