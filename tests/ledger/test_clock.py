"""A ledger on a clock in one file: what a crash leaves charged, and what two programs may spend together."""

import json
import sys

import pytest

from tellers import Accountant, Budget, RdpCurve, SqliteLedger
from tellers.errors import BudgetExhausted, LedgerConflict, Unsettled
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
