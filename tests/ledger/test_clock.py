"""A ledger on a clock in one file: what a crash leaves charged, and what two programs may spend together."""

import json
import sqlite3
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, MemoryLedger, RdpCurve, Release, SqliteLedger
from tellers.errors import BudgetExhausted, LedgerConflict, Unsettled
from tellers.ledger import Ticket
from tellers.ledger._state import AccountSums
from tellers.ledger.opening import open_as_begun
from tellers.privacy._clock import Clock, ClockTable
from tellers.privacy._price import Item

from .. import forked

EVENT = {"noise": "secure"}
ACCOUNTANT = Accountant(Budget(1.0, 1e-5), clock=Clock(1e-12, 100))
START = ACCOUNTANT.clock.start(1.0, 1e-5)
# Dearer where less than half is left. A silent question gives three quarters back.
TABLE = ClockTable((0, START // 2), ((START // 50, START // 100), (START // 12, START // 25)), kappa=1e-12)
ITEM = Item((RdpCurve.zcdp(0.001), RdpCurve.zcdp(0.004)), TABLE)

PROGRAM = """
import json, os, sys, time
import numpy as np
from tellers import Accountant, Budget, Cost, RdpCurve, Release, SqliteLedger
from tellers.errors import BudgetExhausted
from tellers.privacy._clock import Clock, ClockTable
from tellers.privacy._price import Item

path, name, table, *crashes = sys.argv[1:]
table = ClockTable.from_json(json.loads(table))
item = Item((RdpCurve.zcdp(0.001), RdpCurve.zcdp(0.004)), table)
accountant = Accountant(Budget(1.0, 1e-5), clock=Clock(1e-12, 100))
with SqliteLedger(path, accountant) as ledger:
    ledger.open_account("student/alice", Budget(0.9, 1e-5))
    granted = 0
    try:
        while True:
            key = f"{name} {granted}"
            also = {"student/alice": item.price()}
            ticket = ledger.reserve(key, item.price(), event={"noise": "secure"}, also=also)
            granted += 1
            if crashes:
                os._exit(9)
            ledger.settle(ticket, Release(np.array([1]), Cost(item.price(granted % 2))))
            if granted == 1:
                print("begun", flush=True)
                sys.stdin.readline()
            time.sleep(0.001)
    except BudgetExhausted as refusal:
        print(json.dumps([granted, refusal.account]))
"""


def started(path, name, *more):
    words = [sys.executable, "-c", PROGRAM, str(path), name, json.dumps(TABLE.to_json()), *more]
    return forked.Popen(words, stdin=forked.subprocess.PIPE, stdout=forked.subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "clock.db"


def test_a_crash_between_reserve_and_settle_stays_charged(path):
    program = started(path, "crashed", "crash")
    program.communicate(timeout=60)
    assert program.returncode == 9
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        (entry,) = ledger.entries()
        assert (entry.key, entry.is_settled) == ("crashed 0", False)
        assert ledger.spent.ticks == TABLE.dearest[1]
        assert ledger.accounts()["student/alice"].spent.ticks == TABLE.dearest[1]
        with pytest.raises(Unsettled):
            ledger.reserve("crashed 0", ITEM.price(), event=EVENT)
        assert ledger.spent.ticks == TABLE.dearest[1]
        ledger.verify()


def test_a_ledger_keeps_its_terms_where_others_would_be_usual_today(path):
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ledger.reserve("one", ITEM.price(), event=EVENT)
    other = Accountant(ACCOUNTANT.budget, clock=Clock(4e-9, 50))
    with open_as_begun(path, other) as ledger:
        assert ledger.accountant == ACCOUNTANT
    for refused in (other, Accountant(ACCOUNTANT.budget)):
        with pytest.raises(LedgerConflict):
            SqliteLedger(path, refused)
    for refused in (Accountant(ACCOUNTANT.budget), Accountant(Budget(2.0, 1e-5), clock=ACCOUNTANT.clock)):
        with pytest.raises(LedgerConflict):
            open_as_begun(path, refused)


def test_two_programs_never_overspend_a_clock(path):
    both = [started(path, name) for name in ("one", "other")]
    for program in both:
        assert program.stdout.readline() == "begun\n"
    for program in both:
        program.stdin.write("go\n")
        program.stdin.flush()
    found = [json.loads(program.communicate(timeout=60)[0]) for program in both]
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ledger.verify()
        entries = ledger.entries()
        assert len(entries) == sum(granted for granted, _ in found)
        assert min(granted for granted, _ in found) >= 1  # both were at it
        state = ledger.accounts()["student/alice"]
        left = round(state.accountant.left(state.spent) * state.accountant.clock.start(0.9, 1e-5))
        # The account ran first: what is left of it is less than one more, and more than none.
        assert {account for _, account in found} == {"student/alice"}
        assert 0 <= left < TABLE.dearest[0]
        # Every entry was charged by one of the two rows of the table, as an answer or as silence.
        charged = sorted({entry.also["student/alice"].charged.ticks for entry in entries})
        assert set(charged) <= {price for row in TABLE.prices for price in row}
        assert sum(entry.charged.ticks for entry in entries) == ledger.spent.ticks <= START
        with pytest.raises(BudgetExhausted):
            ledger.reserve("over", ITEM.price(), event=EVENT, also={"student/alice": ITEM.price()})


@dataclass(frozen=True)
class Named:
    """A family by name, with a table that was worked out before."""

    name: str
    of: ClockTable

    def identity(self):
        return {"family": self.name}

    def table(self, kappa):
        return self.of


def test_a_bill_that_fits_in_one_order_alone_is_not_forgotten():
    # The first is cheap where much is left, and fits only if it is priced before the second. On the books
    # both go by their tables and not by their names, which may turn their order round.
    half = START // 2
    cheap_early = ClockTable((0, half), ((half, START // 8),), kappa=1e-12)
    flat = ClockTable((0, 1), ((5 * START // 8 - 1000,) * 2,), kappa=1e-12)
    for names in (("a", "b"), ("b", "a")):
        one, other = (
            Item((RdpCurve.zcdp(0.001),), Named(name, table))
            for name, table in zip(names, (cheap_early, flat), strict=True)
        )
        ledger, price = MemoryLedger(ACCOUNTANT), one.price() + other.price()
        with pytest.raises(BudgetExhausted):
            ledger.reserve("q0", price, event=EVENT)
        assert ledger.entries() == []


def test_tables_are_worked_out_while_others_may_write(path):
    made = []

    class Slow(Named):
        def table(self, kappa):
            if not made:
                # Another program writes meanwhile, and does not wait for the table.
                made.append(True)
                other = sqlite3.connect(path, timeout=0)
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
                other.close()
            return self.of

    price = Item((RdpCurve.zcdp(0.001), RdpCurve.zcdp(0.004)), Slow("slow", TABLE)).price()
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ledger.reserve("q0", price, event=EVENT)
        assert made
        assert ledger.spent.ticks == TABLE.dearest[1]


def test_what_came_out_without_a_table_keeps_what_was_reserved(path):
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ticket = ledger.reserve("q0", ITEM.price(), event=EVENT)
        ledger.settle(ticket, Release(np.array([1]), Cost(0.5 * ITEM.price())))
        assert ledger.find("q0") is not None
        assert ledger.spent.ticks == TABLE.dearest[1]
    with SqliteLedger(path, ACCOUNTANT) as ledger:  # read again, line by line
        assert ledger.spent.ticks == TABLE.dearest[1]


def test_another_question_is_no_cheaper_for_its_smaller_curve(path):
    cheap = ClockTable((0,), ((TABLE.dearest[1],),), kappa=1e-12)
    dear = ClockTable((0,), ((TABLE.dearest[1] + 1,),), kappa=1e-12)
    many = ClockTable((0,), ((1,),), kappa=1e-12, events=2)
    for n, (table, fits) in enumerate(((cheap, True), (dear, False), (many, False))):
        with SqliteLedger(path.with_name(f"{n}.db"), ACCOUNTANT) as ledger:
            ticket = ledger.reserve("q0", ITEM.price(), event=EVENT)
            release = Release(np.array([1]), Cost(Item((RdpCurve.zcdp(0.002),), table).price()))
            if fits:
                ledger.settle(ticket, release)
                assert ledger.spent.ticks == TABLE.dearest[1]
            else:
                with pytest.raises(LedgerConflict, match="more than its price"):
                    ledger.settle(ticket, release)
                assert ledger.find("q0") is None
                assert ACCOUNTANT.left(ledger.spent) == 0
            ledger.verify()


def test_an_account_that_pays_the_same_ticks_for_another_item_is_read_again(path):
    # The same curve and, on these two clocks, the same ticks; but not by the same table.
    dear_late = ClockTable((0, START // 2), ((START // 10, START // 20),), kappa=1e-12)
    flat = ClockTable((0,), ((START // 20,),), kappa=1e-12)
    one, other = (Item((RdpCurve.zcdp(0.001),), table).price() for table in (dear_late, flat))
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ledger.open_account("small", Budget(0.5, 1e-5))
        ledger.reserve("q0", one, event=EVENT, also={"small": other})
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        assert ledger.spent.ticks == ledger.accounts()["small"].spent.ticks == START // 20
        (entry,) = ledger.entries()
        assert entry.also["small"].reserved.terms[0][1].clock == flat
        # What came out is one question to the ledger, and says nothing of the other.
        release = Release(np.array([1]), Cost(one))
        ledger.settle(Ticket("q0", one, EVENT), release)
        assert ledger.find("q0") is not None
        assert ledger.accounts()["small"].spent.ticks == START // 20


def test_what_is_in_flight_is_not_added_up_anew_for_every_question(path, monkeypatch):
    item = Item((RdpCurve.zcdp(1e-6),), ClockTable((0,), ((START // 1000,),), kappa=1e-12))
    added, add = [], AccountSums.add
    monkeypatch.setattr(AccountSums, "add", lambda *both, **how: added.append(1) or add(*both, **how))
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        tickets = [ledger.reserve(f"q{n}", item.price(), event=EVENT) for n in range(60)]
        assert len(added) <= 2 * 60
        ledger.settle(tickets[7], Release(np.array([1]), Cost(0 * item.price())))
        assert ledger.spent.ticks == 59 * (START // 1000)
        values = ledger.spent.values
    added.clear()
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        assert np.array_equal(ledger.spent.values, values)
        assert len(added) <= 3 * 60
