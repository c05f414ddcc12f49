"""Named accounts: several budgets for one question, in memory and in a file, and through the room."""

import json
import pickle

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    Cost,
    GNMax,
    MemoryLedger,
    RdpCurve,
    Release,
    Room,
    SqliteLedger,
    Votes,
    noise,
)
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.ledger._bills import write_curve
from tellers.ledger._lines import Line
from tellers.ledger._state import LedgerState, opening

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
MAIN = Accountant(Budget(epsilon=4.0, delta=1e-5))
SMALL = Budget(epsilon=0.5, delta=1e-5)


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return MemoryLedger(MAIN) if request.param == "memory" else SqliteLedger(tmp_path / "spend.db", MAIN)


class Agreed:
    def vote(self, X):
        return Votes.from_ballots(np.tile(np.asarray(X), (250, 1)), n_classes=10)


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_account_has_a_name(ledger, name):
    with pytest.raises(TypeError, match="name of an account"):
        ledger.open_account(name, SMALL)


def test_an_account_has_a_budget(ledger):
    with pytest.raises(TypeError, match="Expected a Budget for account 'student/alice', got float"):
        ledger.open_account("student/alice", 0.5)


def test_a_budget_of_nothing_is_not_written_down(ledger):
    with pytest.raises(ValueError, match="Take a larger epsilon"):
        ledger.open_account("student/alice", Budget(epsilon=0.001, delta=1e-5))
    assert ledger.accounts() == {}
    ledger.open_account("student/alice", Budget(epsilon=0.02, delta=1e-5))
    assert list(ledger.accounts()) == ["student/alice"]


def test_a_budget_of_nothing_beside_what_is_set_aside_for_tests_is_not_written_down():
    ledger = MemoryLedger(Accountant(Budget(1.0, 1e-5), for_tests=9.9e-6))
    with pytest.raises(ValueError, match="budget that can pay for something"):
        ledger.open_account("student/small", Budget(0.01, 1e-5))
    ledger.open_account("student/larger", Budget(0.02, 1e-5))
    assert [state.epsilon for state in ledger.accounts().values()] == [0.0]


def test_the_smallest_budget_stops_first(ledger):
    ledger.open_account("student/alice", SMALL)
    ledger.open_account("student/bob", SMALL)
    room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
    n_asked = {}

    def ask_all(who):
        for n in range(1000):
            room.ask([n % 10], key=f"{who}/{n}", account=who)
            n_asked[who] = n + 1

    for who in ("student/alice", "student/bob"):
        with pytest.raises(BudgetExhausted, match=f"account '{who}'") as refusal:
            ask_all(who)
        assert refusal.value.account == who
    assert n_asked["student/alice"] == n_asked["student/bob"] > 1
    states = ledger.accounts()
    assert all(0 < state.epsilon <= 0.5 for state in states.values())
    total = states["student/alice"].spent + states["student/bob"].spent
    np.testing.assert_allclose(ledger.spent.values, total.values)
    room.ask([3], key="the operator's own")  # the data still has budget, and no account pays


def test_the_budget_of_the_data_stops_an_account_that_could_pay(ledger):
    ledger.open_account("student/rich", Budget(epsilon=100.0, delta=1e-5))
    room = Room(Agreed(), GNMax(sigma=5.0), ledger, noise.secure())

    def ask_all():
        for n in range(1000):
            room.ask([n % 10], key=f"{n}", account="student/rich")

    with pytest.raises(BudgetExhausted, match="past the budget of 4") as refusal:
        ask_all()
    assert refusal.value.account is None


def test_an_unknown_account_is_not_asked_for(ledger):
    room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
    with pytest.raises(LedgerConflict, match=r"'student/alise'.*Nothing was charged"):
        room.ask([3], key="q0", account="student/alise")
    assert ledger.entries() == []


def test_a_key_belongs_to_the_account_that_asked(ledger):
    for who in ("student/alice", "student/bob"):
        ledger.open_account(who, SMALL)
    room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
    first = room.ask([3], key="q0", account="student/alice")
    assert room.ask([3], key="q0", account="student/alice").labels.tolist() == first.labels.tolist()
    for other in ("student/bob", None):
        with pytest.raises(LedgerConflict, match="on another account"):
            room.ask([3], key="q0", account=other)
    assert ledger.accounts()["student/bob"].epsilon == 0.0


def test_a_refusal_travels_with_the_name_of_its_account(ledger):
    ledger.open_account("student/alice", SMALL)
    with pytest.raises(BudgetExhausted) as refusal:
        ledger.reserve("q0", ONE, event=SECURE, also={"student/alice": 100 * ONE})
    assert pickle.loads(pickle.dumps(refusal.value)).account == "student/alice"


def test_an_account_is_held_at_its_own_order(ledger):
    ledger.open_account("group/small", Budget(epsilon=0.1, delta=1e-7))
    state = ledger.accounts()["group/small"]
    assert state.held_at == Accountant(state.budget).held_at != MAIN.held_at
    n_fit = 0
    while state.accountant.affords(n_fit * 0.01 * ONE, 0.01 * ONE):
        n_fit += 1
    for n in range(n_fit):
        ledger.reserve(f"{n}", 0.01 * ONE, event=SECURE, also={"group/small": 0.01 * ONE})
    with pytest.raises(BudgetExhausted, match="group/small"):
        ledger.reserve("one more", 0.01 * ONE, event=SECURE, also={"group/small": 0.01 * ONE})


def test_other_orders_are_refused_before_anything_is_written(ledger):
    ledger.open_account("student/alice", SMALL)
    other = RdpCurve.zcdp(0.001, orders=[2.0, 3.0])
    with pytest.raises(ValueError, match=r"grid|order"):
        ledger.reserve("q0", ONE, event=SECURE, also={"student/alice": other})
    assert ledger.entries() == []


def test_the_same_price_is_written_once(tmp_path):
    with SqliteLedger(tmp_path / "spend.db", MAIN) as ledger:
        ledger.open_account("student/alice", SMALL)
        ticket = ledger.reserve("q0", ONE, event=SECURE, also={"student/alice": ONE})
        ledger.settle(ticket, Release(np.array([3]), Cost(0.5 * ONE)))
        lines = list(ledger.lines())[2:]
        assert [line.kind for line in lines] == ["price", "event", "reserved", "price", "settled"]
        reserved, settled = (json.loads(lines[at].body) for at in (2, 4))
        assert reserved["also"] == settled["also"] == {"student/alice": None}
        np.testing.assert_array_equal(ledger.accounts()["student/alice"].spent.values, (0.5 * ONE).values)


@pytest.mark.parametrize(
    ("kind", "key", "body"),
    [
        ("account", "alice", {"epsilon": 9.0, "delta": 1e-5, "held_at": 4.0}),
        ("account", "", {"epsilon": 9.0, "delta": 1e-5, "held_at": 4.0}),
        ("account", "bob", {"epsilon": 9.0}),
        ("account", "bob", {"epsilon": -1.0, "delta": 1e-5, "held_at": 4.0}),
        ("reserved", "q1", {"price": write_curve(ONE), "also": {"nobody": None}}),
        ("settled", "q0", {"charged": write_curve(ONE), "release": None}),
        ("settled", "q0", {"charged": write_curve(ONE), "release": None, "also": {"alice": None, "x": None}}),
    ],
)  # fmt: skip
def test_a_forged_line_about_accounts_must_still_make_sense(kind, key, body):
    state = LedgerState()
    old = {**json.loads(opening(MAIN).body), "schema": 2}
    state.add(Line.after(None, "opened", key="", body=old))
    terms = {"epsilon": 0.5, "delta": 1e-5, "held_at": 32.0}
    state.add(Line.after(state.head, "account", key="alice", body=terms))
    reserved = {"price": write_curve(ONE), "also": {"alice": None}}
    state.add(Line.after(state.head, "reserved", key="q0", body=reserved))
    with pytest.raises(LedgerConflict, match="does not make sense"):
        state.add(Line.after(state.head, kind, key=key, body=body))
    np.testing.assert_array_equal(state.sums["alice"].spent.values, ONE.values)


def test_half_a_character_is_no_name(ledger):
    with pytest.raises(ValueError, match="whole characters"):
        ledger.open_account("student/\udcff", Budget(epsilon=1.0, delta=1e-5))
    assert ledger.accounts() == {}
