"""A tested batch on the books: the bit, the proposal and the delta of the test, whatever comes out."""

from dataclasses import replace

import numpy as np
import pytest

from tellers import (
    SILENT,
    Accountant,
    Budget,
    GNMax,
    MemoryLedger,
    Room,
    SqliteLedger,
    Unit,
    Votes,
    describe,
    noise,
)
from tellers.cli.ledger import repriced, row
from tellers.errors import BudgetExhausted, Unsettled
from tellers.ledger.base import LedgerConflict
from tellers.mechanisms import TestedGNMax
from tellers.privacy._clock import Clock
from tellers.privacy._price import delta_of
from tellers.runs import reprice

MECHANISM = TestedGNMax(
    sigma=10.0, clear_cost=0.05, test_sigma=3.0, held_at=8.0, test_delta=1e-6, n_queries=3
)  # fmt: skip
FAILED, PASSED = MECHANISM.fail_price(Unit(), 3), MECHANISM.batch_price(Unit(), 3)
BUDGET = Budget(9.0, 1e-5)
ACCOUNTANT = Accountant(BUDGET, order=8.0, for_tests=2e-6)
CLEAR, TORN = [[200, 0, 0]] * 3, [[200, 0, 0], [90, 90, 20], [0, 100, 100]]


class Teachers:
    n_teachers, n_classes = 200, 3

    def __init__(self, counts):
        self.counts = counts

    def vote(self, X):
        return Votes.from_counts(self.counts, n_teachers=200)


class Gone(Teachers):
    def vote(self, X):
        raise ConnectionError("the power is gone")


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger(ACCOUNTANT, allow_seeded=True)
    else:
        with SqliteLedger(tmp_path / "books.db", ACCOUNTANT, allow_seeded=True) as opened:
            yield opened


def room_for(ledger, counts=CLEAR, mechanism=MECHANISM):
    return Room(Teachers(counts), mechanism, ledger, noise.seeded(3))


def test_a_batch_that_passes_is_charged_the_bit_and_the_proposal(ledger):
    release = room_for(ledger).ask([1, 2, 3], key="all")
    assert release.labels.tolist() == [0, 0, 0]
    assert np.array_equal(ledger.spent.values, PASSED.values)
    assert ledger.spent.delta == 1e-6
    [entry] = ledger.entries()
    assert entry.event["mechanism"] == "TestedGNMax"
    assert entry.event["parameters"]["clear_cost"] == 0.05
    assert entry.release.by_teachers.all()


def test_a_batch_that_fails_gets_the_proposal_back_and_never_the_delta(ledger):
    release = room_for(ledger, TORN).ask([1, 2, 3], key="all")
    assert release.labels.tolist() == [SILENT] * 3
    assert not release.answered.any()
    assert np.array_equal(ledger.spent.values, FAILED.values)
    assert ledger.spent.delta == 1e-6
    # The same key returns what was recorded, at no cost.
    assert room_for(ledger, TORN).ask([1, 2, 3], key="all").labels.tolist() == [SILENT] * 3
    assert ledger.spent.delta == 1e-6


def test_delta_runs_out_before_epsilon(ledger):
    room = room_for(ledger, TORN)
    for number in range(2):
        room.ask([1, 2, 3], key=f"try {number}")
    spent = ledger.spent
    with pytest.raises(BudgetExhausted, match="delta of tests to 3e-06, past the 2e-06"):
        room.ask([1, 2, 3], key="try 2")
    assert np.array_equal(ledger.spent.values, spent.values)
    # What has no delta of its own goes on.
    assert room_for(ledger, mechanism=GNMax(40.0)).ask([1, 2, 3], key="plain").answered.all()


def test_a_crash_before_settling_stays_charged(tmp_path):
    place = tmp_path / "books.db"
    with SqliteLedger(place, ACCOUNTANT, allow_seeded=True) as ledger, pytest.raises(ConnectionError):
        Room(Gone(CLEAR), MECHANISM, ledger, noise.seeded(3)).ask([1, 2, 3], key="all")
    with SqliteLedger(place, ACCOUNTANT, allow_seeded=True) as ledger:
        assert np.array_equal(ledger.spent.values, PASSED.values)
        assert ledger.spent.delta == 1e-6
        with pytest.raises(Unsettled):
            room_for(ledger).ask([1, 2, 3], key="all")
        room_for(ledger, TORN).ask([1, 2, 3], key="again")
        assert ledger.spent.delta == 2e-6
        ledger.verify()
    with SqliteLedger(place, ACCOUNTANT, allow_seeded=True) as ledger:
        assert ledger.spent.delta == 2e-6
        assert [entry.is_settled for entry in ledger.entries()] == [False, True]


@pytest.mark.parametrize("counts", [CLEAR, TORN])
def test_named_accounts_pay_as_well(ledger, counts):
    ledger.open_account("student/alice", Budget(9.0, 1e-5))
    ledger.open_account("student/bob", Budget(9.0, 4e-6))
    room_for(ledger, counts).ask([1, 2, 3], key="all", account="student/alice")
    alice = ledger.accounts()["student/alice"].spent
    assert np.array_equal(alice.values, ledger.spent.values)
    assert alice.delta == ledger.spent.delta == 1e-6
    # A fifth of bob's delta is for tests, as of the ledger's: that is less than one test.
    with pytest.raises(BudgetExhausted) as refusal:
        room_for(ledger, counts).ask([1, 2, 3], key="more", account="student/bob")
    assert refusal.value.account == "student/bob"
    assert ledger.spent.delta == 1e-6


def test_what_an_account_pays_of_delta_is_written_apart(ledger):
    ledger.open_account("student/alice", Budget(9.0, 1e-5))
    event = describe(MECHANISM, noise.secure())
    ticket = ledger.reserve("all", PASSED, event=event, also={"student/alice": replace(PASSED, delta=0.0)})
    ledger.settle(ticket, room_release(PASSED))
    assert ledger.spent.delta == 1e-6
    assert ledger.accounts()["student/alice"].spent.delta == 0.0
    ledger.verify()


def room_release(cost):
    votes = Votes.from_counts(CLEAR, n_teachers=200)
    return replace(MECHANISM.release(votes, noise.seeded(3)), cost=replace_cost(cost))


def replace_cost(cost):
    from tellers import Cost

    return Cost(cost)


@pytest.mark.parametrize(
    ("accountant", "words"),
    [
        (Accountant(BUDGET, order=9.0, for_tests=2e-6), "Rényi order 8"),
        (Accountant(BUDGET, order=8.0), "set aside"),
        (Accountant(BUDGET, clock=Clock.for_delta(1e-5)), "on a clock"),
    ],
)
def test_other_ledgers_are_refused_before_anything_is_charged(accountant, words):
    ledger = MemoryLedger(accountant, allow_seeded=True)
    with pytest.raises(ValueError, match=words):
        room_for(ledger).ask([1, 2, 3], key="all")
    assert ledger.entries() == []


def test_batches_of_another_size_are_refused_before_anything_is_charged(ledger):
    with pytest.raises(ValueError, match="one batch of 3 queries"):
        room_for(ledger).ask([1, 2], key="all")
    assert ledger.entries() == []


def test_teachers_that_are_not_those_of_the_price_get_no_answer_and_the_batch_stays_charged(ledger):
    teachers = Teachers(CLEAR)
    teachers.n_teachers = 100
    with pytest.raises(ValueError, match="100 teachers"):
        Room(teachers, MECHANISM, ledger, noise.seeded(3)).ask([1, 2, 3], key="all")
    assert np.array_equal(ledger.spent.values, PASSED.values)


def test_a_cost_without_its_delta_keeps_the_delta_on_the_books(ledger):
    ticket = ledger.reserve("all", PASSED, event=describe(MECHANISM, noise.secure()))
    ledger.settle(ticket, room_release(replace(FAILED, delta=0.0)))
    assert ledger.spent.delta == 1e-6
    with pytest.raises(LedgerConflict):
        ledger.settle(ticket, room_release(FAILED))


# More than was reserved ------------------------------------------------------------------------------------


@pytest.mark.parametrize("curve", [PASSED, FAILED])
def test_more_delta_than_was_reserved_is_charged_and_refused(ledger, curve):
    ticket = ledger.reserve("all", replace(PASSED, delta=1e-7), event=describe(MECHANISM, noise.secure()))
    with pytest.raises(LedgerConflict, match="cost more than its price"):
        ledger.settle(ticket, room_release(curve))
    assert ledger.spent.delta == 1e-6
    assert np.array_equal(ledger.spent.values, curve.values)
    [entry] = ledger.entries()
    assert entry.is_settled
    assert entry.release is None
    ledger.verify()


def test_past_what_was_set_aside_nothing_is_afforded_any_more(ledger):
    ticket = ledger.reserve("all", replace(PASSED, delta=0.0), event=describe(MECHANISM, noise.secure()))
    with pytest.raises(LedgerConflict, match="cost more than its price"):
        ledger.settle(ticket, room_release(replace(PASSED, delta=3e-6)))
    assert ledger.spent.delta == 3e-6
    # Whatever else is asked would be converted at a delta that is gone.
    with pytest.raises(BudgetExhausted, match="delta of tests"):
        room_for(ledger, mechanism=GNMax(40.0)).ask([1, 2, 3], key="plain")


def test_delta_beyond_the_price_is_charged_to_every_account_that_paid(ledger):
    ledger.open_account("student/alice", Budget(9.0, 1e-5))
    ledger.open_account("student/bob", Budget(9.0, 1e-5))
    price = replace(PASSED, delta=5e-7)
    ticket = ledger.reserve(
        "all", price, event=describe(MECHANISM, noise.secure()),
        also={"student/alice": price, "student/bob": 2 * price},
    )  # fmt: skip
    with pytest.raises(LedgerConflict, match="cost more than its price"):
        ledger.settle(ticket, room_release(PASSED))
    spent = {name: state.spent.delta for name, state in ledger.accounts().items()}
    assert (ledger.spent.delta, spent["student/alice"]) == (1e-6, 1e-6)
    assert spent["student/bob"] == pytest.approx(1.5e-6)
    ledger.verify()


def test_a_clock_is_stopped_by_a_delta_that_nothing_pays_for():
    ledger = MemoryLedger(Accountant(BUDGET, clock=Clock.for_delta(1e-5)), allow_seeded=True)
    price, votes = GNMax(40.0).price(Unit()), Votes.from_counts(CLEAR, n_teachers=200)
    ticket = ledger.reserve("one", price, event=describe(GNMax(40.0), noise.secure()))
    release = GNMax(40.0).release(votes[:1], noise.seeded(3))
    with pytest.raises(LedgerConflict, match="cost more than its price"):
        ledger.settle(ticket, replace(release, cost=replace_cost(replace(price, delta=1e-7))))
    assert ledger.accountant.left(ledger.spent) == 0
    with pytest.raises(BudgetExhausted):
        ledger.reserve("two", price, event=describe(GNMax(40.0), noise.secure()))


def test_an_old_ledger_has_no_place_for_a_delta_and_pays_with_all_there_is():
    from tellers.ledger._bills import Bills

    bills = Bills(2, PASSED.orders, Accountant(BUDGET))
    assert np.isinf(bills.price(bills.booked(PASSED)).values).all()
    assert np.array_equal(bills.price(bills.booked(replace(PASSED, delta=0.0))).values, PASSED.values)


def test_an_account_with_a_smaller_delta_is_refused_in_words(ledger):
    ledger.open_account("student/bob", Budget(9.0, 4e-6))
    assert ledger.accounts()["student/bob"].held_at == 8.0
    with pytest.raises(BudgetExhausted) as refusal:
        room_for(ledger).ask([1, 2, 3], key="all", account="student/bob")
    said = str(refusal.value)
    for words in (
        "account 'student/bob'",
        "delta of 4e-06",
        "same share",
        "an account with a delta of 5e-06",
    ):
        assert words in said
    assert ledger.entries() == []
    ledger.open_account("student/carol", Budget(9.0, 5e-6))
    assert len(room_for(ledger).ask([1, 2, 3], key="all", account="student/carol")) == 3


def test_a_question_is_told_with_the_delta_that_its_test_took(ledger):
    Room(Teachers(CLEAR), MECHANISM, ledger, noise.secure()).ask([1, 2, 3], key="b0")
    (entry,) = ledger.entries()
    told, delta = row(entry, BUDGET.delta), delta_of(entry.charged)
    assert delta == MECHANISM.test_delta
    assert (
        told["charged"] == entry.charged.epsilon(BUDGET.delta - delta) > entry.charged.epsilon(BUDGET.delta)
    )
    again = reprice([entry])
    assert delta_of(again.charged) == delta_of(again.repriced) == delta
    assert repriced(again, BUDGET.delta)["charged"] == told["charged"]
    assert repriced(again, BUDGET.delta)["repriced"] > again.repriced.epsilon(BUDGET.delta)
