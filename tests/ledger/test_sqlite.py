"""The ledger in a file: nothing is lost by a crash, nothing is changed unseen, nobody overspends together."""

import gc
import json
import multiprocessing
import os
import pickle
import random
import sqlite3
import threading
import time

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    Cost,
    GNMax,
    NoisyHistogram,
    RdpCurve,
    Release,
    Sealed,
    SqliteLedger,
    Votes,
    describe,
    noise,
)
from tellers.errors import BudgetExhausted, InsecureNoise, LedgerConflict
from tellers.ledger import _lines, _state, opening, sqlite
from tellers.ledger._bills import write_curve
from tellers.ledger._lines import Line
from tellers.privacy import DEFAULT_ORDERS

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))


LAST_REMOVED = "DELETE FROM lines WHERE number = (SELECT max(number) FROM lines)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.db"


def open_ledger(path, **options):
    return SqliteLedger(path, ACCOUNTANT, **options)


def a_release(cost=ONE, label=3):
    return Release(np.array([label]), Cost(cost))


def written(path, n=3):
    """Make a ledger with a few settled questions and one that is not."""
    with open_ledger(path) as ledger:
        for k in range(n):
            ledger.settle(ledger.reserve(f"q{k}", 2 * ONE, event=SECURE), a_release(label=k))
        ledger.reserve("open", ONE, event=SECURE)
        return ledger.verify()


def tamper(path, *statements):
    connection = sqlite3.connect(path)
    for trigger in ("never_changed", "never_removed", "only_added"):
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_it_is_there_when_it_is_opened_again(path):
    written(path)
    with open_ledger(path) as ledger:
        np.testing.assert_allclose(ledger.spent.values, 4 * ONE.values)
        assert ledger.find("q1").labels.tolist() == [1]
        assert ledger.find("open") is None
        assert [entry.key for entry in ledger.entries()] == ["q0", "q1", "q2", "open"]
        np.testing.assert_array_equal(ledger.entries()[0].reserved.values, (2 * ONE).values)
        with pytest.raises(LedgerConflict, match="not settled"):
            ledger.reserve("open", ONE, event=SECURE)


def test_it_flushes_each_commit_to_the_disk(path):
    with open_ledger(path) as ledger:
        ledger.reserve("q0", ONE, event=SECURE)
        connection = ledger._connections["writing"]
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_closed_ledger_opens_again(path):
    ledger = open_ledger(path)
    ledger.close()
    ledger.close()
    ledger.reserve("q0", ONE, event=SECURE)
    ledger.close()
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_what_it_stores_reads_back_bit_for_bit(path):
    price = RdpCurve(DEFAULT_ORDERS, np.where(DEFAULT_ORDERS < 100, np.pi * 1e-3 * DEFAULT_ORDERS, np.inf))
    event = describe(GNMax(sigma=0.1 + 0.2), noise.secure())
    with open_ledger(path) as ledger:
        ledger.settle(ledger.reserve("q/é\U0001f600\0", price, event=event), a_release(price, label=-1))
    with open_ledger(path) as ledger:
        (entry,) = ledger.entries()
        assert (entry.key, entry.event, entry.is_settled) == ("q/é\U0001f600\0", event, True)
        np.testing.assert_array_equal(entry.charged.values, price.values)
        np.testing.assert_array_equal(ledger.find(entry.key).cost.worst.values, price.values)
        assert ledger.find(entry.key).labels.tolist() == [-1]


def test_sealed_costs_are_nowhere_in_the_file(path):
    tight = RdpCurve(DEFAULT_ORDERS, np.full(DEFAULT_ORDERS.shape, 0.000123456789))
    with open_ledger(path) as ledger:
        ticket = ledger.reserve("q0", ONE, event=SECURE)
        ledger.settle(ticket, Release(np.array([3]), Cost(ONE, Sealed(tight))))
        files = b"".join(p.read_bytes() for p in path.parent.iterdir())
    assert b"0.001" in files
    assert b"123456789" not in files
    assert b"tight" not in files


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lines SET body = '{}' WHERE number = 1",
        LAST_REMOVED,
        "INSERT OR REPLACE INTO lines SELECT * FROM lines WHERE number = 1",
        "INSERT OR REPLACE INTO lines SELECT 8, kind, key, body, previous, hash FROM lines WHERE number = 1",
        "INSERT INTO lines SELECT 99, 'settled', 'open', body, previous, hash FROM lines WHERE number = 2",
    ],
)
def test_an_honest_program_cannot_change_a_line(path, statement):
    head = written(path)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()
    assert open_ledger(path).verify() == head


TAMPERED = {
    "a smaller charge": "UPDATE lines SET body = replace(body, '0.00125', '0.00025') WHERE kind = 'price'",
    "another label": "UPDATE lines SET body = replace(body, '[0]', '[9]') WHERE kind = 'settled'",
    "another key": "UPDATE lines SET key = 'other' WHERE number = 1",
    "another budget": "UPDATE lines SET body = replace(body, '\"epsilon\":1.0', '\"epsilon\":9.0') "
    "WHERE number = 0",
    "a line removed": "DELETE FROM lines WHERE number = 3",
    "the first line removed": "DELETE FROM lines WHERE number = 0",
    "all lines removed": "DELETE FROM lines",
    "a line moved": "UPDATE lines SET number = 19 WHERE number = 1",
    "another hash": "UPDATE lines SET hash = previous WHERE number = 7",
    "bytes for text": "UPDATE lines SET body = CAST(body AS BLOB) WHERE number = 4",
    "an outcome of nothing": "UPDATE lines SET kind = 'settled' WHERE key = 'open'",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_changed_file_is_not_opened(path, what):
    written(path)
    tamper(path, TAMPERED[what])
    with pytest.raises(LedgerConflict, match=r"not the one that was written|lost its first line"):
        open_ledger(path)


@pytest.mark.parametrize("what", TAMPERED)
def test_a_file_changed_in_use_is_found_by_verify(path, what):
    written(path)
    with open_ledger(path) as ledger:
        head = ledger.verify()
        assert ledger.verify(head) == head
        tamper(path, TAMPERED[what])
        with pytest.raises(LedgerConflict):
            ledger.verify()


def test_missing_rules_are_found_by_verify(path):
    written(path)
    tamper(path)
    with pytest.raises(LedgerConflict, match="append-only were changed"):
        open_ledger(path).verify()


def test_a_line_that_was_put_in_before_the_first_is_found_and_not_believed(path):
    """Its own hash fits, and no line names it: whoever reads from the first line on does not meet it."""
    head = written(path)
    with open_ledger(path) as ledger:
        settled = next(line for line in ledger.lines() if line.kind == "settled")
    said = (-7, "settled", "forged", settled.body, settled.previous)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER only_added")
    sqlite.SqliteStore(connection).append([Line(*said, _lines._digest(*said))])
    connection.execute(sqlite.TABLES[-1])
    connection.commit()
    connection.close()
    with open_ledger(path) as ledger:
        with pytest.raises(LedgerConflict, match="before its first one"):
            ledger.verify(head)
        with pytest.raises(LedgerConflict, match="not the one that was written"):
            ledger.find("forged")


def test_a_chain_cut_short_is_found_by_a_head_kept_elsewhere(path):
    head = written(path)
    tamper(path, LAST_REMOVED)
    connection = sqlite3.connect(path)
    for statement in sqlite.TABLES[1:]:
        connection.execute(statement)
    connection.close()
    ledger = open_ledger(path)
    ledger.verify()
    with pytest.raises(LedgerConflict, match="cut short"):
        ledger.verify(head)


def test_lines_lost_in_use_stop_the_spending(path):
    written(path)
    with open_ledger(path) as ledger:
        tamper(path, LAST_REMOVED)
        with pytest.raises(LedgerConflict, match="lost lines"):
            ledger.reserve("q9", ONE, event=SECURE)


def test_a_forged_line_with_a_good_hash_must_still_make_sense(path):
    written(path)
    with open_ledger(path) as ledger:
        head = list(ledger.lines())[-1]
    for kind, key, body in (
        ("settled", "nobody", {"charged": write_curve(ONE), "release": None}),
        ("reserved", "q0", {"event": SECURE, "price": write_curve(ONE)}),
        ("reserved", "new", {"event": SECURE, "price": [0.1]}),
        ("opened", "again", {"orders": [2.0]}),
        ("refunded", "q0", {}),
    ):
        state = _state.LedgerState()
        terms = {"epsilon": 1.0, "delta": 1e-5, "held_at": 18.0, "orders": DEFAULT_ORDERS.tolist()}
        state.add(Line.after(None, "opened", key="", body=terms))
        state.add(Line.after(state.head, "reserved", key="q0", body={"price": write_curve(ONE)}))
        with pytest.raises(LedgerConflict, match="does not make sense"):
            state.add(Line.after(state.head, kind, key=key, body=body))
        np.testing.assert_array_equal(state.sums[None].spent.values, ONE.values)
    assert head.is_intact


def test_a_damaged_file_is_refused(path):
    written(path, n=20)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 600] = os.urandom(600)
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerConflict):
        open_ledger(path).verify()


def test_wherever_a_file_is_damaged_it_is_refused_in_words_or_as_good_as_it_was(path):
    # Seed 5 meets lengths of texts that are out of bounds, and texts that are none.
    written(path, n=20)
    with open_ledger(path) as ledger:
        n_entries = ledger.count()
    good, rng, refused = path.read_bytes(), random.Random(5), 0
    for _ in range(200):
        at, n = rng.randrange(100, len(good) - 600), rng.choice([1, 4, 50, 600])
        path.write_bytes(good[:at] + rng.randbytes(n) + good[at + n :])
        try:
            with open_ledger(path) as ledger:
                ledger.verify()
                assert ledger.count() == n_entries
        except LedgerConflict:
            refused += 1
        for rest in ("-wal", "-shm"):
            path.with_name(path.name + rest).unlink(missing_ok=True)
    assert 50 < refused < 180


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(2.0, 1e-5), (0.5, 1e-5), (1.0, 1e-6)], ids=["larger", "smaller", "delta"]
)
def test_another_budget_is_refused(path, epsilon, delta):
    written(path)
    with pytest.raises(LedgerConflict, match=r"begun with, epsilon=1\.0 and delta=1e-05, got"):
        SqliteLedger(path, Accountant(Budget(epsilon, delta)))


def test_another_order_is_refused(path):
    # A budget is held at one order; changing it on the way would be a filter over several at once.
    budget = Budget(epsilon=1.0, delta=1e-5)
    with SqliteLedger(path, Accountant(budget)):
        pass
    with pytest.raises(LedgerConflict, match="Rényi order"):
        SqliteLedger(path, Accountant(budget, order=64.0))
    with SqliteLedger(path, Accountant(budget)) as ledger:
        assert ledger.spent.epsilon(1e-5) == 0.0


def test_another_grid_of_orders_is_refused(path, monkeypatch):
    written(path)
    monkeypatch.setattr(_state, "DEFAULT_ORDERS", np.array([2.0, 3.0]))
    with pytest.raises(LedgerConflict, match="grid of orders"):
        open_ledger(path)


def test_another_version_is_refused(path):
    written(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(LedgerConflict, match=r"version 4 or older in spend\.db, got version 99"):
        open_ledger(path)


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path, tmp_path):
    path.write_text("these are not the books you are looking for\n" * 50)
    before = path.read_bytes()
    with pytest.raises(LedgerConflict, match="a file that is none"):
        open_ledger(path)
    assert path.read_bytes() == before
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE lines (number INTEGER)")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    with pytest.raises(LedgerConflict, match="a database of something else"):
        open_ledger(other)
    assert other.read_bytes() == before


@pytest.mark.parametrize("where", ["missing/spend.db", "."])
def test_a_path_that_cannot_be_written_is_said(tmp_path, where):
    with pytest.raises(OSError, match="Does its folder exist"):
        open_ledger(tmp_path / where)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the root user may write anywhere"
)
def test_a_file_that_may_not_be_written_is_said(path):
    written(path)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with pytest.raises(OSError, match="may you write"):
            open_ledger(path).reserve("q9", ONE, event=SECURE)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize("nowhere", ["", ":memory:"])
def test_memory_is_no_file(nowhere):
    with pytest.raises(ValueError, match="MemoryLedger"):
        open_ledger(nowhere)


def test_a_locked_file_is_waited_for_and_then_said(path):
    ledger = open_ledger(path, timeout=0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"free within 0\.2 s"):
        ledger.reserve("q0", ONE, event=SECURE)
    assert time.monotonic() - start < 10
    assert ledger.spent.epsilon(1e-5) == 0.0  # reading does not wait
    other.execute("COMMIT")
    other.close()
    ledger.reserve("q0", ONE, event=SECURE)


def test_a_file_moved_away_in_use_is_not_written_to(path):
    with open_ledger(path) as ledger:
        ledger.reserve("q0", ONE, event=SECURE)
        path.rename(path.with_name("moved.db"))
        with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
            ledger.reserve("q1", ONE, event=SECURE)


def test_a_file_moved_away_between_uses_is_not_begun_again(path):
    with open_ledger(path) as ledger:
        ledger.reserve("q0", ONE, event=SECURE)
    path.rename(path.with_name("moved.db"))
    with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
        ledger.reserve("q1", ONE, event=SECURE)
    assert not path.exists()
    path.with_name("moved.db").rename(path)
    ledger.reserve("q1", ONE, event=SECURE)


def test_only_secure_noise_is_booked(path):
    with pytest.raises(InsecureNoise):
        open_ledger(path).reserve("q0", ONE, event={"noise": "seeded"})
    assert open_ledger(path, allow_seeded=True).reserve("q0", ONE, event={"noise": "seeded"}).key == "q0"


@pytest.mark.parametrize("event", [{**SECURE, "x": np.zeros(2)}, {**SECURE, "x": float("nan")}])
def test_events_that_cannot_be_stored_are_refused(path, event):
    with open_ledger(path) as ledger:
        with pytest.raises(TypeError, match="plain finite values"):
            ledger.reserve("q0", ONE, event=event)
        assert ledger.entries() == []


@pytest.mark.parametrize("key", ["", None, 3])
def test_keys_are_words(path, key):
    with pytest.raises(TypeError, match="non-empty string"):
        open_ledger(path).reserve(key, ONE, event=SECURE)


def test_a_release_that_cannot_be_recorded_stays_charged(path):
    with open_ledger(path) as ledger:
        ticket = ledger.reserve("q0", ONE, event=SECURE)
        with pytest.raises(TypeError, match="stays charged"):
            ledger.settle(ticket, Release(np.array([0.5]), Cost(0 * ONE)))
        np.testing.assert_array_equal(ledger.spent.values, ONE.values)
        ledger.settle(ticket, a_release())


def test_an_empty_file_becomes_a_ledger(path):
    path.touch()  # what a crash in the middle of making one leaves behind
    open_ledger(path).reserve("q0", ONE, event=SECURE)


def test_its_repr_keeps_quiet(path):
    ledger = open_ledger(path)
    ledger.reserve("secret-key", ONE, event=SECURE)
    assert "secret-key" not in repr(ledger)
    assert "spend.db" in repr(ledger)


def test_it_travels_by_its_path(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ledger = SqliteLedger("spend.db", ACCOUNTANT, allow_seeded=True, timeout=5.0)
    ledger.reserve("q0", ONE, event=SECURE)
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.allow_seeded, again.timeout) == (True, 5.0)
    np.testing.assert_array_equal(again.spent.values, ONE.values)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_ledger_may_be_open_across_a_fork(path):
    for n in range(10):  # garbage: whichever thread collects it must not be inside SQLite at the fork
        forgotten = [open_ledger(path.with_name(f"{n}.db"))]
        forgotten.append(forgotten)
    ledger = open_ledger(path)
    ledger.reserve("before", ONE, event=SECURE)
    stop = threading.Event()

    def keep_busy():
        n = 0
        while not stop.is_set():
            ledger.find(f"nothing {n}")
            n += 1
            gc.collect(1)

    busy = threading.Thread(target=keep_busy)
    busy.start()

    def child(name):
        ledger.settle(ledger.reserve(name, ONE, event=SECURE), a_release())

    try:
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=child, args=(f"child {n}",)) for n in range(4)]
        for process in children:
            process.start()
        ledger.reserve("after", ONE, event=SECURE)
        for process in children:
            process.join(60)
            assert process.exitcode == 0
    finally:
        stop.set()
        busy.join()
    np.testing.assert_allclose(ledger.spent.values, 6 * ONE.values)
    ledger.verify()


def test_forgotten_ledgers_give_their_files_back(path):
    forgotten = open_ledger(path)
    forgotten.reserve("q0", ONE, event=SECURE)
    connection = forgotten._connections["writing"]
    del forgotten
    gc.collect()
    with open_ledger(path) as ledger:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
        np.testing.assert_array_equal(ledger.spent.values, ONE.values)


def test_two_ledgers_on_one_file_see_each_other(path):
    with open_ledger(path) as first, open_ledger(path) as second:
        ticket = first.reserve("q0", ONE, event=SECURE)
        with pytest.raises(LedgerConflict, match="'q0' was reserved before"):
            second.reserve("q0", ONE, event=SECURE)
        second.settle(ticket, a_release())
        assert first.find("q0").labels.tolist() == [3]
        while True:
            try:
                first.reserve(f"first {len(first.entries())}", ONE, event=SECURE)
                second.reserve(f"second {len(first.entries())}", ONE, event=SECURE)
            except BudgetExhausted:
                break
        assert ACCOUNTANT.epsilon(first.spent) <= 1.0
        np.testing.assert_array_equal(first.spent.values, second.spent.values)


def test_the_lines_of_the_first_version_are_read_for_ever():
    # Written out in full: if this text changes its hash or its meaning, old ledgers can no longer be read.
    first = Line.after(None, "opened", key="", body={"schema": 1, "orders": [2.0, 3.0]})
    second = Line.after(
        first, "reserved", key="q0", body={"event": {"noise": "secure"}, "price": [0.5, "inf"]}
    )
    assert second.body == '{"event":{"noise":"secure"},"price":[0.5,"inf"]}'
    assert json.loads(first.body)["orders"] == [2.0, 3.0]
    assert second.hash == "6d4df211628dc684f7727199eb0c88122d36762b6a95f5fffb0f61ce5000b681"


def _make(path, go, said):
    go.wait()
    try:
        with SqliteLedger(path, Accountant(Budget(epsilon=1.0, delta=1e-5))) as ledger:
            said.put(len(list(ledger.entries())))
    except Exception as error:
        said.put(repr(error))


def test_many_processes_may_make_the_same_ledger_at_once(tmp_path):
    # Looking at a file while another process makes it must see all of it or nothing.
    fork = multiprocessing.get_context("fork")
    for attempt in range(4):
        go, said = fork.Event(), fork.Queue()
        makers = [fork.Process(target=_make, args=(tmp_path / f"{attempt}.db", go, said)) for _ in range(5)]
        for maker in makers:
            maker.start()
        go.set()
        assert [said.get(timeout=60) for _ in makers] == [0] * 5
        for maker in makers:
            maker.join(timeout=60)


def test_a_released_histogram_is_kept(path):
    votes = Votes.from_counts([[20, 5], [3, 22]], n_teachers=25)
    mechanism, source = NoisyHistogram(sigma=40.0), noise.secure()
    with open_ledger(path) as ledger:
        price = 2 * mechanism.price(votes.unit)
        release = mechanism.release(votes, source)
        ledger.settle(ledger.reserve("q0", price, event=describe(mechanism, source)), release)
    with open_ledger(path) as ledger:
        np.testing.assert_array_equal(ledger.find("q0").values, release.values)
        ledger.verify()


def test_a_thread_that_hangs_inside_does_not_hold_the_others_for_ever(path):
    ledger = SqliteLedger(path, ACCOUNTANT, timeout=0.2)
    inside, go_on = threading.Event(), threading.Event()

    def hang(_store):
        inside.set()
        go_on.wait(30)

    thread = threading.Thread(target=ledger._look, args=(hang,))
    thread.start()
    inside.wait(10)
    try:
        with pytest.raises(TimeoutError, match="another thread"):
            ledger.find("q0")
        ledger.reserve("q0", ONE, event=SECURE)  # whoever writes does not wait for readers
    finally:
        go_on.set()
        thread.join()
    assert ledger.find("q0") is None


def test_questions_that_were_read_are_not_read_again(path, monkeypatch):
    read = []
    follow = Line.require_follows
    monkeypatch.setattr(Line, "require_follows", lambda self, head: read.append(1) or follow(self, head))
    ledger, other = SqliteLedger(path, ACCOUNTANT), SqliteLedger(path, ACCOUNTANT)
    for number in range(5):
        ledger.reserve(f"q{number}", 0.01 * ONE, event={**SECURE, "parameters": {"sigma": 1.0}})
    assert len(ledger.entries()) == 5
    read.clear()
    assert len(ledger.entries()) == 5
    assert read == []
    ticket = other.reserve("q5", 0.01 * ONE, event=SECURE)
    assert [entry.is_settled for entry in ledger.entries()] == [False] * 6
    other.settle(ticket, Release(np.array([1]), Cost(0.01 * ONE)))
    assert [entry.is_settled for entry in ledger.entries()] == [False] * 5 + [True]
    assert [entry.key for entry in ledger.entries()] == [entry.key for entry in other.entries()]
    ledger.entries()[0].event["parameters"]["sigma"] = 2.0  # one's own copy
    assert ledger.entries()[0].event["parameters"] == {"sigma": 1.0}


def test_a_budget_too_small_for_anything_can_be_opened_again_and_pays_for_nothing(tmp_path):
    SqliteLedger(tmp_path / "small.db", Accountant(Budget(epsilon=0.001, delta=1e-5))).close()
    with opening.open_ledger(tmp_path / "small.db") as ledger, pytest.raises(BudgetExhausted):
        ledger.reserve("q0", RdpCurve.zcdp(0.001), event={"noise": "secure"})


def test_what_a_killed_program_did_not_flush_is_flushed_before_it_is_seen(tmp_path, monkeypatch):
    # Its commit is in the log, complete, and nobody knows whether the disk has it: a power cut could take
    # back what was told since.
    accountant = Accountant(Budget(1.0, 1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        ledger.trust({"why": "a line"})
        left = tmp_path / "left"
        left.mkdir()
        for name in ("spend.db", "spend.db-wal"):
            (left / name).write_bytes((tmp_path / name).read_bytes())
    seen, flush = [], os.fsync

    def fsync(file):
        seen.append(os.path.realpath(f"/proc/self/fd/{file}"))
        flush(file)

    monkeypatch.setattr(sqlite.os, "fsync", fsync)
    with SqliteLedger(left / "spend.db", accountant) as again:
        assert str(left / "spend.db-wal") in seen
        assert again.head.number == 1
