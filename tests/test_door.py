"""The room: price, reserve, vote, draw, settle, in this order and no other."""

import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import scipy.sparse

from tellers import (
    SILENT,
    Accountant,
    Budget,
    ConfidentGNMax,
    Cost,
    GNMax,
    InteractiveGNMax,
    MemoryLedger,
    Release,
    Room,
    Sealed,
    SqliteLedger,
    Unit,
    Votes,
    describe,
    exact_cost,
    noise,
)
from tellers.errors import BudgetExhausted, InsecureNoise, KeyReused, LedgerConflict, Unsettled
from tellers.ledger import Vault
from tellers.runs.room import RoomQuestion

N_TEACHERS = 100
SURE = GNMax(sigma=8.0)


@dataclass
class Agreed:
    """Teachers who all vote for the class that the query is; remembers how often it was asked."""

    n_classes: int = 4
    asked: list = field(default_factory=list)

    def vote(self, X):
        self.asked.append(len(X))
        return Votes.from_ballots(np.tile(np.asarray(X), (N_TEACHERS, 1)), n_classes=self.n_classes)


def a_ledger(epsilon=20.0, **options):
    return MemoryLedger(Accountant(Budget(epsilon=epsilon, delta=1e-5)), **options)


def a_room(mechanism=SURE, ensemble=None, ledger=None, source=None):
    return Room(ensemble or Agreed(), mechanism, ledger or a_ledger(), source or noise.secure())


def test_an_answer_is_the_vote_and_its_price_is_on_the_books():
    room = a_room()
    release = room.ask([3, 1, 0], key="batch")
    # A unanimous vote of 100 against noise of 8 loses with a probability below 1e-15.
    assert release.labels.tolist() == [3, 1, 0]
    np.testing.assert_allclose(room.ledger.spent.values, (3 * SURE.price(Unit())).values)
    (entry,) = room.ledger.entries()
    assert len(entry.event.pop("queries")) == 64  # a fingerprint of the public queries
    assert entry.event == {
        "mechanism": "GNMax",
        "parameters": {"sigma": 8.0},
        "n_classes": 4,
        "noise": "secure",
        "unit": "one ballot",
        "n_queries": 3,
    }


def test_the_same_key_is_answered_from_the_books():
    room = a_room()
    first = room.ask([3, 1], key="batch")
    spent = room.ledger.spent
    again = room.ask([3, 1], key="batch")
    assert again.labels.tolist() == first.labels.tolist()
    assert room.ensemble.asked == [2]
    np.testing.assert_array_equal(room.ledger.spent.values, spent.values)


def test_the_same_key_is_answered_when_nothing_is_left():
    price = SURE.price(Unit()).epsilon(1e-5)
    room = a_room(ledger=a_ledger(epsilon=1.2 * price))
    first = room.ask([3], key="q0")
    with pytest.raises(BudgetExhausted, match="'q1'"):
        room.ask([3], key="q1")
    assert room.ask([3], key="q0").labels.tolist() == first.labels.tolist()


def test_the_same_key_for_another_batch_is_refused():
    room = a_room()
    room.ask([3, 1], key="batch")
    with pytest.raises(LedgerConflict, match="with 2 queries, and now with 1"):
        room.ask([3], key="batch")


def test_teachers_are_not_asked_what_cannot_be_paid():
    room = a_room(ledger=a_ledger(epsilon=0.1))
    with pytest.raises(BudgetExhausted):
        room.ask([3, 1], key="batch")
    assert room.ensemble.asked == []
    assert room.ledger.entries() == []


def test_the_price_is_on_the_books_before_the_teachers_vote():
    ledger = a_ledger()

    class Looks(Agreed):
        def vote(self, X):
            np.testing.assert_allclose(ledger.spent.values, (2 * SURE.price(Unit())).values)
            return super().vote(X)

    a_room(ensemble=Looks(), ledger=ledger).ask([1, 2], key="batch")


def test_silence_costs_its_check_alone():
    room = a_room(ConfidentGNMax(sigma=8.0, threshold=300.0, sigma_threshold=20.0))
    release = room.ask([1, 2], key="batch")
    assert release.labels.tolist() == [SILENT, SILENT]
    votes = room.ensemble.vote([1, 2])
    silent = room.mechanism.item(Unit(), n_teachers=votes.n_teachers, n_classes=votes.n_classes).price(0)
    np.testing.assert_allclose(room.ledger.spent.values, (2 * silent).values)
    assert (silent.values <= room.mechanism.check_price(Unit()).values).all()


def test_seeded_noise_is_refused_before_anything_happens():
    room = a_room(source=noise.seeded(7))
    with pytest.raises(InsecureNoise):
        room.ask([3], key="q0")
    assert room.ensemble.asked == []
    a_room(source=noise.seeded(7), ledger=a_ledger(allow_seeded=True)).ask([3], key="q0")


def test_sealed_costs_stay_in_the_room():
    class Tight(GNMax):
        def release(self, votes, noise):
            release = super().release(votes, noise)
            return replace(release, cost=Cost(release.cost.worst, Sealed(0.5 * release.cost.worst)))

    room = a_room(Tight(sigma=8.0))
    assert room.ask([3], key="q0").cost.tight is None
    assert room.ask([3], key="q0").cost.tight is None


class Raises:
    def vote(self, X):
        raise ConnectionError("teacher 17 is away")


class Returns:
    def __init__(self, value):
        self.value = value

    def vote(self, X):
        return self.value


OTHER_UNIT = Votes.from_counts([[100, 0]], n_teachers=100).replaced(unit=Unit(4.0, 2.0, 2.0))


@pytest.mark.parametrize(
    ("ensemble", "error", "message"),
    [
        (Raises(), ConnectionError, "teacher 17"),
        (Returns(np.array([3])), TypeError, "votes on classes for GNMax, got ndarray.* stays charged"),
        (Returns(None), TypeError, "votes on classes for GNMax, got NoneType.* stays charged"),
        (Returns(Agreed().vote([1, 2])), ValueError, "votes on 1 queries, got 2.* stays charged"),
        (Returns(OTHER_UNIT), ValueError, "another unit.* stays charged"),
    ],
)
def test_teachers_that_fail_leave_the_price_charged(ensemble, error, message):
    room = a_room(ensemble=ensemble)
    with pytest.raises(error, match=message):
        room.ask([3], key="q0")
    np.testing.assert_allclose(room.ledger.spent.values, SURE.price(Unit()).values)
    with pytest.raises(LedgerConflict, match="not settled"):
        room.ask([3], key="q0")


INTERACTIVE = InteractiveGNMax(sigma=8.0, threshold=30, sigma_threshold=5.0, student_confidence=0.9)


def test_a_mechanism_that_listens_hears_the_student():
    release = a_room(INTERACTIVE).ask([3, 2], key="batch", student=[[0.0, 0.0, 0.0, 1.0], [0.25] * 4])
    # The student knows the first, teachers tell the second: each wrong with probability below 1e-8.
    assert release.labels.tolist() == [3, 2]
    assert release.answered.tolist() == [False, True]


@pytest.mark.parametrize(
    ("mechanism", "student", "error"),
    [
        (INTERACTIVE, None, TypeError),
        (INTERACTIVE, [[0.25] * 4], ValueError),
        (SURE, [[0.25] * 4] * 2, TypeError),
    ],
)
def test_a_student_that_does_not_fit_costs_nothing(mechanism, student, error):
    room = a_room(mechanism)
    with pytest.raises(error, match="student probabilities"):
        room.ask([3, 2], key="batch", student=student)
    assert room.ledger.entries() == []


def test_no_queries_are_refused():
    room = a_room()
    with pytest.raises(ValueError, match="at least one query"):
        room.ask([], key="batch")
    assert room.ledger.entries() == []


def test_rows_are_counted_by_shape_where_there_is_no_length():
    class Sparse:
        shape = (2, 7)

    room = a_room(ensemble=Returns(Agreed().vote([1, 2])))
    assert room.ask(Sparse(), key="batch").labels.tolist() == [1, 2]


def test_a_record_is_returned_and_nobody_can_change_it():
    room = a_room()
    first = room.ask([3], key="q0")
    with pytest.raises(ValueError, match="read-only"):
        first.labels[:] = 0
    assert isinstance(first, Release)


def test_a_room_is_quiet():
    room = a_room()
    room.ask([3], key="secret-key")
    assert "secret-key" not in repr(room)


def test_one_key_has_one_answer_among_racing_askers(tmp_path):
    # Much noise: answers that were drawn twice would differ.
    mechanism, accountant = GNMax(sigma=400.0), Accountant(Budget(epsilon=20.0, delta=1e-5))
    ledger = SqliteLedger(tmp_path / "spend.db", accountant)
    room = Room(Agreed(n_classes=10), mechanism, ledger, noise.secure())
    answers, start = [], threading.Barrier(6)

    def ask():
        start.wait()
        while True:
            try:
                answers.append(tuple(room.ask([3] * 20, key="batch").labels.tolist()))
                return
            except LedgerConflict:
                continue  # the winner is not done yet

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert len(set(answers)) == 1
    assert room.ensemble.asked == [20]
    np.testing.assert_allclose(ledger.spent.values, (20 * mechanism.price(Unit())).values)


def test_a_batch_outlives_the_room(tmp_path):
    accountant = Accountant(Budget(epsilon=20.0, delta=1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        first = a_room(ledger=ledger).ask([3, 1], key="batch")
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        again = a_room(ensemble=Raises(), ledger=ledger).ask([3, 1], key="batch")
    assert again.labels.tolist() == first.labels.tolist()


@pytest.mark.parametrize("first", [[0, 1], np.array([[0.5, 1.0], [2.0, 3.0]]), [["a", 1], ["b", 2]]])
def test_a_key_belongs_to_its_queries(first):
    class Whatever:
        def vote(self, X):
            return Votes.from_ballots(np.zeros((N_TEACHERS, len(X)), dtype=int), n_classes=2)

    room = a_room(ensemble=Whatever())
    room.ask(first, key="q0")
    spent = room.ledger.spent
    assert room.ask(list(first), key="q0").labels.tolist() == [0, 0]
    with pytest.raises(LedgerConflict, match="asked before, with other queries"):
        room.ask(first[::-1], key="q0")
    assert (room.ledger.spent.values == spent.values).all()


def test_a_key_belongs_to_what_the_student_believes():
    room = a_room(INTERACTIVE)
    belief = np.array([[0.1, 0.2, 0.3, 0.4], [0.25] * 4])
    first = room.ask([3, 2], key="batch", student=belief)
    spent = room.ledger.spent
    again = room.ask([3, 2], key="batch", student=belief.tolist())
    assert again.labels.tolist() == first.labels.tolist()
    for other in (belief[::-1], np.add(belief, [[1e-12, -1e-12, 0, 0], [0] * 4])):
        with pytest.raises(KeyReused, match="'batch' was asked before, with other probabilities"):
            room.ask([3, 2], key="batch", student=other)
    assert (room.ledger.spent.values == spent.values).all()
    assert room.ensemble.asked == [2]


@pytest.mark.parametrize("other", [GNMax(sigma=8.5), ConfidentGNMax(8.0, threshold=60, sigma_threshold=12.0)])
def test_a_key_belongs_to_its_mechanism(other):
    room = a_room()
    room.ask([3, 1], key="batch")
    with pytest.raises(KeyReused, match="another mechanism"):
        replace(room, mechanism=other).ask([3, 1], key="batch")
    assert len(room.ledger.entries()) == 1


def test_a_key_that_waits_for_its_answer_belongs_to_its_question_too():
    room = a_room(ensemble=Raises())
    with pytest.raises(ConnectionError):
        room.ask([3, 1], key="batch")
    with pytest.raises(Unsettled):
        room.ask([3, 1], key="batch")
    for other, batch in ((room, [1, 3]), (room, [3]), (replace(room, mechanism=GNMax(sigma=9.0)), [3, 1])):
        with pytest.raises(KeyReused):
            other.ask(batch, key="batch")
    assert len(room.ledger.entries()) == 1


def test_books_that_do_not_say_what_the_student_believed_are_replayed():
    room = a_room(INTERACTIVE)
    price = 2 * INTERACTIVE.price(Unit())
    # As versions wrote it that kept no fingerprint of the student's probabilities.
    event = {**describe(INTERACTIVE, noise.secure()), "n_queries": 2}
    ticket = room.ledger.reserve("batch", price, event=event)
    room.ledger.settle(ticket, Release(np.array([3, 2]), Cost(price)))
    assert room.ask([3, 2], key="batch", student=[[0.25] * 4] * 2).labels.tolist() == [3, 2]
    with pytest.raises(KeyReused, match="2 queries, and now with 1"):
        room.ask([3], key="batch", student=[[0.25] * 4])


def test_sparse_queries_are_told_apart_too():
    class Whatever:
        def vote(self, X):
            return Votes.from_ballots(np.zeros((N_TEACHERS, X.shape[0]), dtype=int), n_classes=2)

    room = a_room(ensemble=Whatever())
    room.ask(scipy.sparse.csr_matrix([[0, 1], [1, 0]]), key="q0")
    room.ask(scipy.sparse.coo_matrix([[0, 1], [1, 0]]), key="q0")
    with pytest.raises(LedgerConflict, match="other queries"):
        room.ask(scipy.sparse.csr_matrix([[1, 0], [0, 1]]), key="q0")


def test_a_vault_gets_the_exact_cost_and_nobody_else(tmp_path):
    vault = Vault(tmp_path / "costs.sealed", Vault.new_key())
    accountant = Accountant(Budget(epsilon=20.0, delta=1e-5))
    mechanism = ConfidentGNMax(sigma=8.0, threshold=60, sigma_threshold=12.0)
    with SqliteLedger(tmp_path / "spend.db", accountant, vault=vault) as ledger:
        release = a_room(mechanism, ledger=ledger).ask([3, 1], key="q0")
        assert release.cost.tight is None
        assert ledger.find("q0").cost.tight is None
        worst = ledger.spent
    kept = vault.read().reveal()["q0"]
    votes = Agreed().vote([3, 1])
    np.testing.assert_allclose(kept.values, exact_cost(mechanism, votes).cost.reveal().values)
    # A unanimous vote costs far less than the price, which holds for any votes.
    assert (kept.values < worst.values).all()


@dataclass
class Busy(MemoryLedger):
    """A ledger that does not answer the first times it is to settle something; what it was told may count."""

    error: type[OSError] = TimeoutError
    times: int = 2
    is_written: bool = False

    def settle(self, ticket, release, *, used=None):
        if self.times:
            self.times -= 1
            if self.is_written and self.find(ticket.key) is None:
                super().settle(ticket, release, used=used)
            raise self.error("busy")
        super().settle(ticket, release, used=used)


@pytest.mark.parametrize("error", [TimeoutError, ConnectionError])
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_what_was_drawn_is_recorded_as_soon_as_the_ledger_answers(error, is_written, times):
    accountant = Accountant(Budget(epsilon=20.0, delta=1e-5))
    room = a_room(ledger=Busy(accountant, error=error, times=times, is_written=is_written))
    release = room.ask([3, 1], key="batch")
    assert release.labels.tolist() == room.ledger.find("batch").labels.tolist() == [3, 1]
    np.testing.assert_allclose(room.ledger.spent.values, (2 * SURE.price(Unit())).values)


def test_a_ledger_that_stays_away_keeps_the_charge_and_gives_nothing():
    room = a_room(ledger=Busy(Accountant(Budget(epsilon=20.0, delta=1e-5)), times=99))
    with pytest.raises(TimeoutError):
        room.ask([3], key="batch")
    assert room.ledger.find("batch") is None
    assert room.ledger.spent.epsilon(1e-5) > 0


# --- Several questions at once ---


class Failing:
    """Votes as it is asked, but for rows of nines, on which its teachers fail."""

    def vote(self, X):
        if 9 in X:
            raise RuntimeError("A teacher failed.")
        return Votes.from_ballots(np.tile(np.asarray(X), (250, 1)), n_classes=10)


def test_several_questions_are_charged_and_answered_as_one_after_the_other(tmp_path):
    accountant = Accountant(Budget(epsilon=2.0, delta=1e-5))
    alone, together = (SqliteLedger(tmp_path / f"{name}.db", accountant) for name in ("alone", "together"))
    rooms = [Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure()) for ledger in (alone, together)]
    asked = [RoomQuestion([n % 8, 3], key=f"q{n}") for n in range(12)]
    for one in asked:
        rooms[0].ask(one.X, key=one.key)
    found = rooms[1].ask_all(asked)
    assert [release.labels.tolist() for release in found] == [list(one.X) for one in asked]
    np.testing.assert_array_equal(together.spent.values, alone.spent.values)
    told = [
        [(e.key, e.event["queries"], e.is_settled) for e in ledger.entries()] for ledger in (alone, together)
    ]
    assert told[0] == told[1]


def test_of_several_questions_each_is_refused_for_itself(tmp_path):
    one = GNMax(sigma=20.0).price(Unit())
    accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        room = Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure())
        room.ask([7], key="before")
        n_left = 0
        while accountant.affords((n_left + 1) * one, one):
            n_left += 1
        asked = [
            RoomQuestion([1], key="good"),
            RoomQuestion([9], key="failing"),  # charged: that teachers fail may be private too
            RoomQuestion([7], key="before"),  # on record
            RoomQuestion([6], key="before"),  # another question
            RoomQuestion([], key="empty"),
            RoomQuestion([2], key="good"),  # the key of one that is asked with it
            RoomQuestion([1], key="stranger", account="nobody"),
            RoomQuestion([1] * n_left, key="dear"),
            RoomQuestion([5], key="last"),
        ]
        found = room.ask_all(asked)
        kinds = [type(each).__name__ for each in found]
        assert kinds == [
            "Release", "RuntimeError", "Release", "KeyReused", "ValueError", "KeyReused", "LedgerConflict",
            "BudgetExhausted", "Release",
        ]  # fmt: skip
        assert [found[at].labels.tolist() for at in (0, 2, 8)] == [[1], [7], [5]]
        assert [(e.key, e.is_settled) for e in ledger.entries()] == [
            ("before", True), ("good", True), ("failing", False), ("last", True),
        ]  # fmt: skip
        np.testing.assert_allclose(ledger.spent.values, (4 * one).values, rtol=1e-12)


def test_a_question_that_comes_twice_at_once_is_answered_twice_and_charged_once(tmp_path):
    one = GNMax(sigma=20.0).price(Unit())
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))) as ledger:
        room = Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure())
        found = room.ask_all([RoomQuestion([label], key=f"q{label}") for label in (1, 2, 1)])
        assert [release.labels.tolist() for release in found] == [[1], [2], [1]]
        np.testing.assert_allclose(ledger.spent.values, (2 * one).values, rtol=1e-12)


def test_a_cost_that_cannot_be_sealed_is_said_to_its_own_question(tmp_path, monkeypatch):
    vault = Vault(tmp_path / "costs.sealed", Vault.new_key())
    accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant, vault=vault) as ledger:
        room = Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure())
        put = Vault.put

        def full(self, key, cost):
            if key == "q1":
                raise OSError("No space left.")
            put(self, key, cost)

        monkeypatch.setattr(Vault, "put", full)
        found = room.ask_all([RoomQuestion([label], key=f"q{label}") for label in (1, 2)])
        assert [type(each).__name__ for each in found] == ["OSError", "Release"]
    assert list(vault.read().reveal()) == ["q2"]


@pytest.mark.parametrize("error", [TimeoutError, ConnectionError])
def test_outcomes_whose_writing_was_not_acknowledged_are_given_where_they_were_written(
    tmp_path, monkeypatch, error
):
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))) as ledger:
        room = Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure())
        settle_all, calls = ledger.settle_all, []

        def lost(outcomes):
            found = settle_all(outcomes)
            calls.append(len(found))
            if len(calls) == 1:
                raise error("The answer was lost.")
            return found

        monkeypatch.setattr(ledger, "settle_all", lost)
        found = room.ask_all([RoomQuestion([label], key=f"q{label}") for label in (1, 2)])
        assert [release.labels.tolist() for release in found] == [[1], [2]]
        assert calls[0] == 2


def test_outcomes_do_not_wait_one_after_the_other_for_a_ledger_that_is_away(tmp_path, monkeypatch):
    """Before, the last of 64 was told after 193 times the ledger's timeout."""
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))) as ledger:
        room = Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure())
        calls = []

        def away(outcomes):
            calls.append(len(outcomes))
            raise TimeoutError("Others hold it.")

        monkeypatch.setattr(ledger, "settle_all", away)
        found = room.ask_all([RoomQuestion([1], key=f"q{n}") for n in range(5)])
        assert [type(each) for each in found] == [TimeoutError] * 5
        assert calls == [5, 5, 5]
        assert [(e.key, e.is_settled) for e in ledger.entries()] == [(f"q{n}", False) for n in range(5)]


def test_outcomes_that_cannot_be_written_stay_charged_and_are_not_given(tmp_path, monkeypatch):
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))) as ledger:
        room = Room(Failing(), GNMax(sigma=20.0), ledger, noise.secure())

        def full(outcomes):
            raise OSError("No space left.")

        monkeypatch.setattr(ledger, "settle_all", full)
        with pytest.raises(OSError, match="No space"):
            room.ask_all([RoomQuestion([1], key="a"), RoomQuestion([2], key="b")])
        assert [(e.key, e.is_settled) for e in ledger.entries()] == [("a", False), ("b", False)]
