"""A checkpoint says what all lines before it say, a forged one is found, and no sum passes the budget."""

import json
import math
import random
import sqlite3
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, MemoryLedger, RdpCurve, Release, SqliteLedger
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.ledger import _bills, _chain, _state, sqlite
from tellers.ledger._bills import Bills
from tellers.ledger._lines import Line
from tellers.ledger._state import AccountSums, LedgerState
from tellers.ledger.base import canonical
from tellers.privacy import DEFAULT_ORDERS
from tellers.privacy._clock import ClockTable
from tellers.privacy._price import Item, delta_of, with_delta

SECURE = {"noise": "secure"}
ACCOUNTANT = Accountant(Budget(epsilon=8.0, delta=1e-5), for_tests=1e-6)
TABLE = ClockTable((0, 2**20), ((2**13, 2**12), (2**10, 2**10)), kappa=1e-12)


def items(rng, *, clock):
    """Return prices of queries, some with kinds of outcome."""
    if clock:
        return [Item((RdpCurve.zcdp(1e-4), RdpCurve.zcdp(1e-5)), TABLE)]
    two = Item((RdpCurve.zcdp(rng.uniform(1e-6, 1e-5)), RdpCurve.zcdp(1e-6)))
    return [two, *(Item((RdpCurve.zcdp(rng.uniform(1e-6, 1e-5)),)) for _ in range(3))]


def fill(ledger, rng, n, *, first=0):
    """Ask and settle at random: groups, students, refunds, tests, overruns, and some that stay open."""
    clock = ledger.accountant.clock is not None
    known, tickets = items(rng, clock=clock), []
    for k in range(first, first + n):
        item = rng.choice(known)
        price = rng.randint(1, 5) * item.price()
        if not clock and rng.random() < 0.05:
            price = with_delta(price, 1e-9)
        also = {name: price for name in ledger.accounts() if name.startswith("group/") or rng.random() < 0.5}
        event = {**SECURE, "mechanism": f"m{rng.randint(0, n)}", "queries": k}
        try:
            tickets.append((ledger.reserve(f"q{k}", price, event=event, also=also), item))
        except BudgetExhausted:
            assert clock
        if tickets and rng.random() < 0.7:
            ticket, item = tickets.pop(rng.randrange(len(tickets)))
            kind = rng.randrange(len(item.curves))
            ((count, *_),) = ticket.price.terms
            used = with_delta(rng.randint(0, count) * item.price(kind), delta_of(ticket.price))
            if rng.random() < 0.05 and not clock:
                used = 7 * ticket.price
            with suppress(LedgerConflict):  # it cost more than its price
                ledger.settle(ticket, Release(np.array([kind]), Cost(used)))
    return tickets


@pytest.fixture
def often(monkeypatch):
    """Write checkpoints often, and forget events soon."""
    monkeypatch.setattr(_state, "CHECKPOINT_EVERY", 20)
    monkeypatch.setattr(_state, "_NEWEST_EVENTS", 4)
    monkeypatch.setattr(_state, "_MOST_PENDING", 5)
    monkeypatch.setattr(_bills, "_MOST_KEPT", 6)


def state_of(store, *, checkpoint):
    """Return what the lines add up to, from the last checkpoint on or from the beginning."""
    state = LedgerState()
    if checkpoint:
        state = LedgerState.at_checkpoint(store, partial(_chain._reserved, store))
        assert state is not None
    for line in store.after(-1 if state.head is None else state.head.number):
        state.add(line)
    return state


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", ["renyi", "clock"])
def test_a_ledger_that_is_opened_at_a_checkpoint_is_the_one_that_is_read_whole(often, rule, seed):
    rng = random.Random(seed)
    accountant = ACCOUNTANT if rule == "renyi" else Accountant.by("clock", ACCOUNTANT.budget)
    ledger = MemoryLedger(accountant)
    ledger.open_account("group/all", Budget(6.0, 1e-5))
    ledger.open_account("student/alice", Budget(4.0, 1e-5))
    in_flight = fill(ledger, rng, 60)
    ledger.open_account("student/late", Budget(4.0, 1e-5))
    in_flight += fill(ledger, rng, 60, first=60)
    whole, short = (state_of(ledger._store, checkpoint=checkpoint) for checkpoint in (False, True))
    assert short.to_json() == whole.to_json()
    assert (short.checkpoint, short.spacing) == (whole.checkpoint, whole.spacing)
    for name, sums in whole.sums.items():
        other, shown = short.sums[name], ledger.view().sums[name]
        assert sums.held == other.held == shown.held
        np.testing.assert_array_equal(sums.spent.values, other.spent.values)  # to the last bit
        np.testing.assert_array_equal(sums.spent.values, shown.spent.values)
    # What was in flight before the checkpoint is settled by who never read its line, and goes on alike.
    ledger._state = ledger._shown = None
    for ticket, item in in_flight[:20]:
        used = with_delta(item.price(0), delta_of(ticket.price))
        ledger.settle(ticket, Release(np.array([0]), Cost(used)))
    fill(ledger, rng, 30, first=200)
    ledger.verify()
    kinds = [line.kind for line in ledger.lines()]
    assert kinds.count("checkpoint") >= 3
    assert kinds.count("event") > 6


def forge(path, change, *, hashes):
    """Change the last checkpoint of a file, and make the hashes from there on fit if so told."""
    connection = sqlite3.connect(path)
    for trigger in ("never_changed", "never_removed", "only_added"):
        connection.execute(f"DROP TRIGGER {trigger}")
    rows = [Line(*row) for row in connection.execute(f"SELECT {sqlite._COLUMNS} FROM lines ORDER BY number")]
    at = max(line.number for line in rows if line.kind == "checkpoint")
    body = json.loads(rows[at].body)
    change(body)
    head = rows[at - 1]
    for line in rows[at:]:
        text = canonical(body) if line.number == at else line.body
        new = Line.following(head, line.kind, line.key, text)
        if not hashes:
            new = replace(line, body=text)
        head = new
        connection.execute(
            "UPDATE lines SET body = ?, previous = ?, hash = ? WHERE number = ?",
            (new.body, new.previous, new.hash, new.number),
        )
        if not hashes:
            break
    for statement in sqlite.TABLES[1:]:
        connection.execute(statement)
    connection.commit()
    connection.close()


FORGED = {
    "less is spent": lambda body: body["accounts"][""]["paid"][0].__setitem__(0, 1),
    "nothing is spent": lambda body: body["accounts"].__setitem__("", {}),
    "an account is not there": lambda body: body["opened"].clear(),
    "fewer questions": lambda body: body.__setitem__("questions", 1),
    "an item is not there": lambda body: body["items"].pop(),
    "an event is another": lambda body: body["events"][0].__setitem__(0, 1),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_checkpoint_is_found(often, tmp_path, what):
    path = tmp_path / "spend.db"
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ledger.open_account("student/alice", Budget(4.0, 1e-5))
        fill(ledger, random.Random(1), 40)
    # Without the hashes it is found by whoever opens the ledger.
    forge(path, FORGED[what], hashes=False)
    with pytest.raises(LedgerConflict, match=r"not the one that was written|fit the lines"):
        SqliteLedger(path, ACCOUNTANT).verify()


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_checkpoint_with_a_chain_that_fits_is_found_by_verify_and_by_who_follows(
    often, tmp_path, what
):
    path = tmp_path / "spend.db"
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ledger.open_account("student/alice", Budget(4.0, 1e-5))
        fill(ledger, random.Random(1), 40)
    forge(path, FORGED[what], hashes=True)
    connection = sqlite3.connect(path)
    lines = [Line(*row) for row in connection.execute(f"SELECT {sqlite._COLUMNS} FROM lines ORDER BY number")]
    connection.close()
    with pytest.raises(LedgerConflict, match="'checkpoint', does not make sense"):
        list(_state.checked(lines))
    with pytest.raises(LedgerConflict, match=r"'checkpoint', does not"):
        SqliteLedger(path, ACCOUNTANT).verify()


@contextmanager
def going_on(ledger):
    """Let a turn go on, so that whoever looks reads apart."""
    ledger._turns.hold()
    try:
        yield
    finally:
        ledger._turns.resume()


@pytest.mark.parametrize("looks", ["after a turn that failed", "while a turn goes on"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_checkpoint_that_is_forged_in_use_is_refused_by_who_has_the_ledger_open(
    often, tmp_path, looks, is_first
):
    """Whatever was forgotten since: what a program saw of a ledger is not read from a newer checkpoint."""
    path = tmp_path / "spend.db"
    with SqliteLedger(path, ACCOUNTANT, timeout=5) as ledger:
        fill(ledger, random.Random(1), 3 if is_first else 40)
        assert ledger.spent.values.any()
        head = list(ledger.lines())[-1]
        body = {"accounts": {"": {}}, "items": [], "opened": {}, "events": [], "questions": 0, "settled": 0}
        forged = Line.after(head, "checkpoint", key=str(head.number + 1), body=body)
        connection = sqlite3.connect(path)
        sqlite.SqliteStore(connection).append([forged])
        connection.commit()
        connection.close()
        with going_on(ledger) if looks == "while a turn goes on" else nullcontext():
            ledger._state = None
            with pytest.raises(LedgerConflict, match="'checkpoint', does not make sense"):
                ledger.view()
        with pytest.raises(LedgerConflict, match="'checkpoint', does not make sense"):
            ledger.reserve("next", RdpCurve.zcdp(1e-6), event=SECURE)


def test_a_ledger_that_was_forgotten_is_read_from_a_checkpoint_that_was_seen(often, tmp_path):
    path, rng = tmp_path / "spend.db", random.Random(2)
    with SqliteLedger(path, ACCOUNTANT) as ledger, SqliteLedger(path, ACCOUNTANT) as other:
        fill(ledger, rng, 40)
        seen = ledger.view()
        fill(other, rng, 40, first=40)
        ledger._state = None
        assert ledger.view().head == other.view().head
        assert ledger.view().state.to_json() == other.view().state.to_json()
        assert ledger.view().head.number > seen.head.number


def test_ctrl_c_while_somebody_reads_apart_leaves_no_half_of_a_line(tmp_path, monkeypatch):
    path = tmp_path / "spend.db"
    with SqliteLedger(path, ACCOUNTANT) as ledger, SqliteLedger(path, ACCOUNTANT) as other:
        fill(other, random.Random(3), 3)
        add = AccountSums.add

        def interrupted(self, *given, **named):
            add(self, *given, **named)
            raise KeyboardInterrupt

        with going_on(ledger):
            ledger.view()
            fill(other, random.Random(4), 1, first=3)
            with monkeypatch.context() as patched:
                patched.setattr(AccountSums, "add", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    ledger.view()
            np.testing.assert_array_equal(ledger.spent.values, other.spent.values)


# --- Sums in whole steps ---


def tried(accountant, spent, price):
    """Return whether a ledger lets a price pass on top of others, and whether the accountant would."""
    bills = Bills(4, DEFAULT_ORDERS, accountant)
    sums = AccountSums(accountant, bills)
    for one in spent:
        sums.add(bills.booked(one))
    payment = bills.booked(price)
    try:
        accountant.require(sums.spent, bills.price(payment), key="q")
        expected = True
    except BudgetExhausted:
        expected = False
    try:
        sums.debit(payment, key="q", account=None)
    except BudgetExhausted:
        return False, expected
    return True, expected


def at_order(accountant, value):
    return RdpCurve(DEFAULT_ORDERS, np.where(accountant.held_at == DEFAULT_ORDERS, value, 2 * value + 1))


@pytest.mark.parametrize("seed", range(4))
def test_no_sum_passes_that_the_accountant_would_refuse(seed):
    rng, n_passed, n_refused = random.Random(seed), 0, 0
    for _ in range(60):
        order = rng.choice([None, float(rng.choice(DEFAULT_ORDERS.tolist()))])
        budget = Budget(10 ** rng.uniform(-5, 1), 10 ** rng.uniform(-12, -2))
        try:
            accountant = Accountant(budget, order=order)
        except ValueError:
            continue
        most = accountant.value_left(RdpCurve.zero())
        for n in (1, 3, 40):
            for share in (0.3, 1 - 1e-6, 1 - 2**-30, 1 - 2**-40, 1 - 2**-50, 1.0, 1 + 2**-50, 1 + 1e-9):
                curve = at_order(accountant, most * share / n)
                passed, expected = tried(accountant, [curve] * (n - 1), curve)
                assert passed == expected
                n_passed, n_refused = n_passed + passed, n_refused + (not passed)
    assert n_passed > 100
    assert n_refused > 100


def test_no_price_passes_by_being_strange():
    accountant = Accountant(Budget(1.0, 1e-5))
    most, nothing = accountant.value_left(RdpCurve.zero()), RdpCurve.zero()
    infinite = RdpCurve(DEFAULT_ORDERS, np.where(accountant.held_at <= DEFAULT_ORDERS, np.inf, 0.1))
    tiny = Item((at_order(accountant, most * 2.0**-60),))
    for spent, price in (
        ([], nothing),
        ([], infinite),
        ([], 10**30 * tiny.price()),
        ([], 2**59 * tiny.price()),
        ([2**59 * tiny.price()], 2**59 * tiny.price()),
        ([2**60 * tiny.price()], tiny.price()),
        ([at_order(accountant, most)], nothing),
        ([at_order(accountant, most)], at_order(accountant, 5e-324)),
        ([], at_order(accountant, 1e300)),
        ([], RdpCurve(DEFAULT_ORDERS, np.where(accountant.held_at == DEFAULT_ORDERS, most / 2, np.inf))),
    ):
        assert len(set(tried(accountant, spent, price))) == 1
    # What is taken off again leaves nothing, also of what is infinite.
    bills = Bills(4, DEFAULT_ORDERS, accountant)
    sums = AccountSums(accountant, bills)
    for price in (infinite, 10**40 * tiny.price(), at_order(accountant, 1e-300)):
        payment = bills.booked(price)
        sums.add(payment)
        sums.add(payment, times=-1)
    assert (sums.held, sums.paid) == (0, {})
    assert math.isfinite(sums.spent.values.max())


def change_lines(path, kind, old, new):
    """Change lines of a file, and leave their hashes as they were."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER IF EXISTS never_changed")
    with connection:
        found = connection.execute(
            "UPDATE lines SET body = replace(body, ?, ?) WHERE kind = ? AND instr(body, ?)",
            (old, new, kind, old),
        )
    assert found.rowcount == 1
    connection.close()


def test_a_changed_line_before_the_checkpoint_gives_nothing_back_and_tells_nothing(often, tmp_path):
    path, (one,) = tmp_path / "spend.db", items(random.Random(0), clock=True)
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        ticket = ledger.reserve("open", 3 * one.price(), event={**SECURE, "mechanism": "first"})
        for k in range(40):
            ledger.reserve(f"q{k}", one.price(), event={**SECURE, "mechanism": f"m{k}"})
    change_lines(path, "reserved", '"bill":[[3,', '"bill":[[30,')
    change_lines(path, "event", '"mechanism":"m0"', '"mechanism":"m9"')
    with SqliteLedger(path, ACCOUNTANT) as ledger:
        with pytest.raises(LedgerConflict, match="not the one that was written"):
            ledger.settle(ticket, Release(np.array([1]), Cost(one.price())))
        np.testing.assert_allclose(ledger.spent.values, 43 * one.price().values)
        with pytest.raises(LedgerConflict, match="not the one that was written"):
            ledger.asked("q0")
