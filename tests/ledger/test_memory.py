"""The ledger in memory: nothing is overspent, nothing is answered twice, nothing is forgotten."""

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    Cost,
    GNMax,
    MemoryLedger,
    RdpCurve,
    Release,
    Sealed,
    Unit,
    Votes,
    describe,
    noise,
)
from tellers.errors import BudgetExhausted, InsecureNoise, LedgerConflict
from tellers.ledger import Ticket
from tellers.privacy._clock import ClockTable
from tellers.privacy._price import Item

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.01)


def open_ledger(epsilon=1.0, **options):
    return MemoryLedger(Accountant(Budget(epsilon=epsilon, delta=1e-5)), **options)


def a_release(cost=ONE, label=3):
    return Release(np.array([label]), Cost(cost))


def test_the_four_beats_of_an_answer():
    votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    mechanism, source = ConfidentGNMax(sigma=40.0, threshold=150, sigma_threshold=60.0), noise.secure()
    with open_ledger(epsilon=2.0) as ledger:
        for n, row in enumerate(votes):
            ticket = ledger.reserve(f"q{n}", mechanism.price(row.unit), event=describe(mechanism, source))
            release = mechanism.release(row, source)
            ledger.settle(ticket, release)
            assert ledger.find(f"q{n}").labels.tolist() == release.labels.tolist()
        assert 0 < ledger.accountant.epsilon(ledger.spent) <= (2 * mechanism.price(Unit())).epsilon(1e-5)


def test_a_debit_comes_before_the_noise():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)
    assert ledger.find("q0") is None
    assert (ticket.key, ticket.price, ticket.event) == ("q0", ONE, SECURE)


def test_what_is_never_settled_stays_charged():
    ledger = open_ledger()
    for n in range(3):
        ledger.reserve(f"q{n}", ONE, event=SECURE)
    np.testing.assert_allclose(ledger.spent.values, 3 * ONE.values)


def test_what_was_not_used_flows_back():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", 3 * ONE, event=SECURE)
    ledger.settle(ticket, a_release(ONE))
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_a_price_past_the_budget_is_refused_and_leaves_no_trace():
    ledger = open_ledger()
    ledger.reserve("q0", ONE, event=SECURE)
    with pytest.raises(BudgetExhausted, match="'q1'"):
        ledger.reserve("q1", 100 * ONE, event=SECURE)
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)
    ledger.reserve("q1", ONE, event=SECURE)  # the key is still free


def test_a_key_is_reserved_once():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    with pytest.raises(LedgerConflict, match="'q0' was reserved before"):
        ledger.reserve("q0", ONE, event=SECURE)
    ledger.settle(ticket, a_release())
    with pytest.raises(LedgerConflict, match="'q0' was reserved before"):
        ledger.reserve("q0", ONE, event=SECURE)
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_a_ticket_is_settled_once():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    ledger.settle(ticket, a_release(label=3))
    with pytest.raises(LedgerConflict, match="settled before"):
        ledger.settle(ticket, a_release(0 * ONE, label=4))
    assert ledger.find("q0").labels.tolist() == [3]
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_a_ticket_from_elsewhere_is_refused():
    ticket = open_ledger().reserve("q0", ONE, event=SECURE)
    with pytest.raises(LedgerConflict, match="never reserved"):
        open_ledger().settle(ticket, a_release())


def test_what_cost_more_than_its_price_is_charged_in_full_and_said():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    with pytest.raises(LedgerConflict, match="more than its price"):
        ledger.settle(ticket, a_release(2 * ONE))
    np.testing.assert_allclose(ledger.spent.values, 2 * ONE.values)


def test_what_was_charged_in_full_is_not_given_back_by_trying_again():
    # The labels of the first attempt are out; a second settlement with a smaller cost must not refund them.
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    with pytest.raises(LedgerConflict):
        ledger.settle(ticket, a_release(2 * ONE))
    with pytest.raises(LedgerConflict):
        ledger.settle(ticket, a_release(0 * ONE))
    np.testing.assert_allclose(ledger.spent.values, 2 * ONE.values)


def test_the_books_and_not_the_ticket_say_what_was_reserved():
    ledger = open_ledger()
    ledger.reserve("q0", ONE, event=SECURE)
    forged = Ticket("q0", 1000 * ONE, SECURE)
    with pytest.raises(LedgerConflict):
        ledger.settle(forged, a_release(500 * ONE))


def test_what_another_ledger_spent_is_a_price():
    item = Item((ONE,), ClockTable((0,), ((2**33,),), kappa=1e-12))
    sources = Accountant(Budget(3.0, 1e-5)), Accountant.by("clock", Budget(3.0, 1e-5))
    for source in sources:
        before = MemoryLedger(source)
        for n in range(2):
            before.settle(before.reserve(f"q{n}", item.price(), event=SECURE), a_release(item.price()))
        for carried in (before.spent, before.spent + item.price(), 2 * before.spent):
            ledger = MemoryLedger(sources[0])
            ledger.open_account("student", Budget(3.0, 1e-5))
            ledger.reserve("before", carried, event=SECURE, also={"student": carried})
            for spent in (ledger.spent, ledger.accounts()["student"].spent):
                assert np.allclose(spent.values, carried.values)
            with pytest.raises(ValueError, match="clock"):
                MemoryLedger(sources[1]).reserve("before", carried, event=SECURE)
            with pytest.raises(ValueError, match="clock has a table for"):
                # What was spent by Rényi divergence is not nothing on a clock.
                sources[1].affords(MemoryLedger(sources[0]).spent + ONE, item.price())


def test_the_books_and_not_their_holder_say_what_the_budget_is():
    ledger = open_ledger()
    assert not ledger.spent.values.any()
    ledger.accountant = Accountant(Budget(100.0, 1e-5))
    with pytest.raises(BudgetExhausted, match="past the budget of 1"):
        ledger.reserve("q0", 20 * ONE, event=SECURE)


def test_a_kind_of_outcome_is_one_that_there_is():
    item = Item((RdpCurve.zcdp(0.001), RdpCurve.zcdp(0.01)))
    for kind in (-1, 2, True):
        with pytest.raises(ValueError, match="kinds of outcome"):
            item.price(kind)


def test_a_cost_on_other_orders_does_not_spoil_the_books():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    shifted = RdpCurve(ONE.orders + 0.001, 0.5 * ONE.values)
    with pytest.raises((ValueError, LedgerConflict)):
        ledger.settle(ticket, a_release(shifted))
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_prices_on_other_orders_are_refused():
    ledger = open_ledger()
    with pytest.raises(ValueError, match="same grid"):
        ledger.reserve("q0", RdpCurve.zcdp(0.01, orders=[2.0, 3.0]), event=SECURE)
    assert ledger.spent.epsilon(1e-5) == 0.0
    ledger.reserve("q0", ONE, event=SECURE)


@pytest.mark.parametrize("event", [{"noise": "seeded"}, {}, {"noise": None}, {"noise": "Secure"}])
def test_only_secure_noise_is_booked(event):
    ledger = open_ledger()
    with pytest.raises(InsecureNoise, match=r"noise\.secure\(\)"):
        ledger.reserve("q0", ONE, event=event)
    assert ledger.spent.epsilon(1e-5) == 0.0
    assert open_ledger(allow_seeded=True).reserve("q0", ONE, event=event).key == "q0"


def test_descriptions_tell_the_noise():
    mechanism = GNMax(sigma=40.0)
    with pytest.raises(InsecureNoise):
        open_ledger().reserve("q0", ONE, event=describe(mechanism, noise.seeded(1)))
    open_ledger().reserve("q0", ONE, event=describe(mechanism, noise.secure()))


def test_sealed_costs_are_not_kept():
    ledger = open_ledger()
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    ledger.settle(ticket, Release(np.array([3]), Cost(ONE, Sealed(0.5 * ONE))))
    assert ledger.find("q0").cost.tight is None


def test_a_record_is_what_was_released():
    ledger = open_ledger()
    labels, by_teachers = np.array([3, 1]), np.array([True, False])
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    ledger.settle(ticket, Release(labels, Cost(ONE), by_teachers))
    labels[:] = 9
    with contextlib.suppress(ValueError):  # a record that cannot be written is as good as a copy
        ledger.find("q0").labels[:] = 7
    assert ledger.find("q0").labels.tolist() == [3, 1]
    assert ledger.find("q0").answered.tolist() == [True, False]


def test_an_event_is_what_it_was():
    ledger, event = open_ledger(), {"noise": "secure", "mechanism": "GNMax"}
    ticket = ledger.reserve("q0", ONE, event=event)
    event["mechanism"] = "another"
    assert ticket.event["mechanism"] == "GNMax"


def test_its_repr_keeps_quiet():
    ledger = open_ledger()
    ledger.settle(ledger.reserve("secret-key", ONE, event=SECURE), a_release())
    assert "secret-key" not in repr(ledger)


def test_ctrl_c_in_a_write_gives_nothing_back_twice():
    """What is written is there by number and by key: an outcome that is not found would come again."""

    class Interrupted(dict):
        def setdefault(self, kind, *given):
            if kind == "settled":
                raise KeyboardInterrupt
            return super().setdefault(kind, *given)

    ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    ledger.reserve("another", ONE, event=SECURE)
    ticket = ledger.reserve("q0", ONE, event=SECURE)
    index, ledger._store._by_kind = ledger._store._by_kind, Interrupted(ledger._store._by_kind)
    with contextlib.suppress(KeyboardInterrupt):
        ledger.settle(ticket, Release(np.array([3]), Cost(0.0 * ONE)))
        ledger.find("q0")
    ledger._store._by_kind = index
    with pytest.raises(LedgerConflict, match="settled before"):
        ledger.settle(ticket, Release(np.array([3]), Cost(0.0 * ONE)))
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_racing_threads_never_pass_the_budget():
    ledger = open_ledger(epsilon=1.5)
    n_fit = 0
    while ledger.accountant.affords(n_fit * ONE, ONE):
        n_fit += 1
    granted, refused = [], []
    start = threading.Barrier(8)

    def ask(worker):
        start.wait()
        for n in range(25):
            try:
                ticket = ledger.reserve(f"{worker}-{n}", ONE, event=SECURE)
                granted.append(ticket.key)
                if n % 2:
                    ledger.settle(ticket, a_release())
            except BudgetExhausted:
                refused.append((worker, n))
            assert ledger.accountant.epsilon(ledger.spent) <= 1.5

    threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == n_fit
    assert len(granted) + len(refused) == 200
    assert ledger.spent.epsilon(1e-5) <= 1.5


def test_racing_threads_share_no_key():
    ledger, winners = open_ledger(), []
    start = threading.Barrier(8)

    def ask():
        start.wait()
        with contextlib.suppress(LedgerConflict):
            winners.append(ledger.reserve("q0", ONE, event=SECURE))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_a_copy_is_the_same_books_and_none_leaves_the_process():
    books = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    assert copy.deepcopy({"ledger": books})["ledger"] is books
    with pytest.raises(TypeError, match="begin the budget again"):
        pickle.dumps(books)
