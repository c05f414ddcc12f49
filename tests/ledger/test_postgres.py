"""The ledger in a database: one chain, one writer at a time, nothing lost or doubled when the server dies."""

import contextlib
import io
import os
import pickle
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from tellers import Accountant, Budget, Cost, PostgresLedger, RdpCurve, Release, open_ledger
from tellers.errors import BudgetExhausted, LedgerConflict, Unsettled
from tellers.ledger import compact_ledger, export_ledger, import_ledger
from tellers.ledger._lines import Line
from tellers.ledger.sql import ledger_names, migrate
from tellers.ledger.sql.connection import LEDGERS, LINES, REVISION, make_engine, parse_url
from tellers.ledger.sql.postgres import fill

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))


def a_release(cost=ONE, label=3):
    return Release(np.array([label]), Cost(cost))


@pytest.fixture
def name(request):
    return request.node.name


@pytest.fixture
def ledger(database, name):
    with PostgresLedger(database, ACCOUNTANT, name=name, timeout=10.0) as opened:
        yield opened


@pytest.fixture
def own_ledger(own_database):
    with PostgresLedger(own_database, ACCOUNTANT) as opened:
        yield opened


def test_it_is_there_when_it_is_opened_again(database, ledger, name):
    ledger.settle(ledger.reserve("q0", 2 * ONE, event=SECURE), a_release(label=7))
    with open_ledger(database, name=name) as again:
        np.testing.assert_array_equal(again.spent.values, ONE.values)
        assert again.find("q0").labels.tolist() == [7]
        assert again.verify() == ledger.verify()
        assert again.accountant.budget == ACCOUNTANT.budget


def test_several_ledgers_in_one_database_are_strangers(own_database, own_ledger):
    own_ledger.reserve("q0", ONE, event=SECURE)
    with PostgresLedger(own_database, Accountant(Budget(2.0, 1e-6)), name="another 'one'") as other:
        assert other.spent.epsilon(1e-5) == 0.0
        other.reserve("q0", ONE, event=SECURE)
    assert ledger_names(own_database) == ["main", "another 'one'"]
    assert [line.kind for line in own_ledger.lines()] == ["opened", "price", "event", "reserved"]


@pytest.mark.parametrize(
    "key", ["q/é\U0001f600", "\0", "a\0b", "\ud800", "'; DROP TABLE tellers_lines; --", '"q"']
)
def test_any_key_is_a_key(ledger, key):
    ledger.settle(ledger.reserve(key, ONE, event={**SECURE, "words": key}), a_release())
    (entry,) = ledger.entries()
    assert (entry.key, entry.event["words"]) == (key, key)
    assert ledger.find(key).labels.tolist() == [3]


def test_a_key_too_long_to_be_stored_is_refused(ledger):
    with pytest.raises(ValueError, match="Nothing was charged"):
        ledger.reserve("q" * 5000, ONE, event=SECURE)
    assert ledger.entries() == []


def test_the_name_of_an_account_that_is_too_long_to_be_stored_is_refused(ledger):
    name = "".join(hex(k * 0x9E3779B1 % 2**32) for k in range(2000))  # which cannot be packed
    with pytest.raises(ValueError, match="at most 2000 characters"):
        ledger.open_account(name, Budget(0.5, 1e-5))
    assert ledger.accounts() == {}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tellers_lines SET body = '{}' WHERE number = 1",
        "DELETE FROM tellers_lines WHERE number = 2",
        "TRUNCATE tellers_lines",
        "INSERT INTO tellers_lines SELECT ledger, 9, 'settled', 'x', body, previous, hash FROM tellers_lines "
        "WHERE number = 1",
        "INSERT INTO tellers_lines SELECT ledger, 3, 'settled', 'x', body, previous, hash FROM tellers_lines "
        "WHERE number = 1",
        "UPDATE tellers_ledgers SET name = 'x'",
        "DELETE FROM tellers_ledgers",
    ],
)
def test_an_honest_program_cannot_change_a_line(postgres, database, ledger, statement):
    ledger.settle(ledger.reserve("q0", 2 * ONE, event=SECURE), a_release())
    head = ledger.verify()
    with pytest.raises(Exception, match=r"append-only|foreign key"):
        postgres.sql(statement, database.rpartition("/")[2])
    assert ledger.verify(head) == head


TAMPERED = {
    "a smaller charge": "UPDATE tellers_lines SET body = replace(body, '0.0', '0.00') WHERE number = 1",
    "another key": "UPDATE tellers_lines SET key = '\"other\"' WHERE number = 1",
    "a key that is no JSON": "UPDATE tellers_lines SET key = 'q0' WHERE number = 1",
    "another budget": "UPDATE tellers_lines SET body = replace(body, '\"epsilon\":1.0', '\"epsilon\":9.0') "
    "WHERE number = 0",
    "a line removed": "DELETE FROM tellers_lines WHERE number = 1",
    "the first line removed": "DELETE FROM tellers_lines WHERE number = 0",
    "all lines removed": "DELETE FROM tellers_lines WHERE number >= 0",
    "another hash": "UPDATE tellers_lines SET hash = previous WHERE number = 2",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_changed_tables_are_found(postgres, database, ledger, name, what):
    ledger.settle(ledger.reserve("q0", 2 * ONE, event=SECURE), a_release())
    # A superuser may step around triggers; they are there again afterwards.
    statement = f"SET session_replication_role = replica; {TAMPERED[what]} AND ledger = {ledger._ledger}"
    postgres.sql(statement, database.rpartition("/")[2])
    with pytest.raises(LedgerConflict, match=r"not the one that was written|lost"):
        PostgresLedger(database, ACCOUNTANT, name=name)
    with pytest.raises(LedgerConflict):
        ledger.verify()


def test_a_line_that_was_put_in_before_the_first_is_found(postgres, database, ledger):
    ledger.verify()
    forged = "SELECT ledger, -7, 'settled', '\"forged\"', body, previous, hash FROM tellers_lines"
    postgres.sql(
        f"SET session_replication_role = replica; INSERT INTO tellers_lines {forged} "
        f"WHERE ledger = {ledger._ledger} AND number = 0",
        database.rpartition("/")[2],
    )
    with pytest.raises(LedgerConflict, match="before its first one"):
        ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER tellers_never_changed ON tellers_lines",
        "ALTER TABLE tellers_lines DISABLE TRIGGER tellers_only_added",
        "ALTER TABLE tellers_lines DISABLE TRIGGER ALL",
        "CREATE OR REPLACE TRIGGER tellers_never_changed BEFORE DELETE ON tellers_lines FOR EACH ROW "
        "EXECUTE FUNCTION tellers_never()",
    ],
)
def test_missing_rules_are_found_by_verify(postgres, own_database, own_ledger, statement):
    own_ledger.verify()
    postgres.sql(statement, own_database.rpartition("/")[2])
    with pytest.raises(LedgerConflict, match="append-only were changed"):
        own_ledger.verify()


def test_rules_that_do_something_else_are_found_by_verify(postgres, own_database, own_ledger):
    postgres.sql(
        "CREATE OR REPLACE FUNCTION tellers_never() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN NEW; END $$",
        own_database.rpartition("/")[2],
    )
    with pytest.raises(LedgerConflict, match="append-only were changed"):
        own_ledger.verify()


def test_another_budget_is_refused(database, ledger, name):
    with pytest.raises(LedgerConflict, match=r"begun with, epsilon=1\.0 and delta=1e-05, got epsilon=2\.0"):
        PostgresLedger(database, Accountant(Budget(2.0, 1e-5)), name=name)


# --- The tables and their versions. ---


def test_the_migrations_make_the_tables_that_the_code_knows(own_database):
    from alembic.migration import MigrationContext

    with make_engine(parse_url(own_database), timeout=5.0).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "tellers_version"})
        assert context.get_current_revision() == REVISION
        for table in (LEDGERS, LINES):
            there = [column["name"] for column in sa.inspect(connection).get_columns(table.name)]
            assert there == [column.name for column in table.columns]


def test_migrating_again_changes_nothing(database, ledger):
    ledger.reserve("q0", ONE, event=SECURE)
    head = ledger.verify()
    assert migrate(database) == REVISION
    assert ledger.verify(head) == head


def test_two_may_migrate_at_once(postgres):
    postgres.sql("CREATE DATABASE at_once")
    errors = []

    def act():
        try:
            migrate(postgres.url("at_once"))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=act) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    PostgresLedger(postgres.url("at_once"), ACCOUNTANT).close()


def test_a_database_without_tables_says_how_to_make_them(postgres):
    with pytest.raises(LedgerConflict, match="tellers ledger init"):
        PostgresLedger(postgres.url("template1"), ACCOUNTANT)


def test_tables_of_another_version_are_refused(postgres, own_database):
    postgres.sql("UPDATE tellers_version SET version_num = 'tomorrow'", own_database.rpartition("/")[2])
    with pytest.raises(LedgerConflict, match="'lines', got 'tomorrow'"):
        PostgresLedger(own_database, ACCOUNTANT)


def test_a_ledger_that_is_not_there_is_not_made_without_a_budget(own_database):
    with pytest.raises(FileNotFoundError, match="named 'main'"):
        open_ledger(own_database)
    assert ledger_names(own_database) == []


# --- Passwords, and servers that are not there. ---


def test_its_repr_and_its_errors_keep_the_password(postgres, database, name):
    ledger = PostgresLedger(database, ACCOUNTANT, name=name)
    assert postgres.password not in repr(ledger)
    with pytest.raises(ConnectionError, match="whether user, password and database are right") as refusal:
        PostgresLedger(postgres.url(password="a-wrong-secret"), ACCOUNTANT, timeout=3.0)
    assert "a-wrong-secret" not in str(refusal.value)
    for bad in ("postgresql://u:se@cret@h:port/db", "mysql://u:secret@h/db"):
        with pytest.raises(ValueError, match="Expected") as refusal:
            PostgresLedger(bad, ACCOUNTANT)
        assert "secret" not in str(refusal.value)
        assert "cret" not in str(refusal.value)


def test_the_password_may_come_from_the_environment(postgres, database, name, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    without = database.replace(f":{postgres.password}@", "@")
    PostgresLedger(without, ACCOUNTANT, name=name).reserve("q0", ONE, event=SECURE)


def test_a_server_that_is_not_there_is_said_at_once():
    start = time.monotonic()
    with pytest.raises(ConnectionError, match="See whether it runs"):
        PostgresLedger("postgresql://tellers@127.0.0.1:1/privacy", ACCOUNTANT)
    assert time.monotonic() - start < 10


def test_a_server_that_does_not_flush_is_refused(postgres, database, monkeypatch, name):
    monkeypatch.setattr(sa.engine.CursorResult, "scalar", _fsync_off(sa.engine.CursorResult.scalar))
    with pytest.raises(LedgerConflict, match="fsync off"):
        PostgresLedger(database, ACCOUNTANT, name=name)


def _fsync_off(scalar):
    def patched(self):
        value = scalar(self)
        return "off" if value == "on" else value

    return patched


def test_a_user_with_few_rights_can_spend_and_cannot_change(postgres, own_database, own_ledger):
    name = own_database.rpartition("/")[2]
    postgres.sql("DROP ROLE IF EXISTS teller")
    postgres.sql("CREATE ROLE teller LOGIN PASSWORD 'teller'")
    little = postgres.url(name, user="teller", password="teller")
    with pytest.raises(PermissionError, match="SELECT on tellers_version, SELECT and INSERT"):
        PostgresLedger(little, ACCOUNTANT)
    postgres.sql(
        "GRANT SELECT ON tellers_version TO teller; GRANT SELECT, INSERT ON tellers_lines TO teller; "
        "GRANT SELECT, INSERT, UPDATE ON tellers_ledgers TO teller",
        name,
    )
    with PostgresLedger(little, ACCOUNTANT) as theirs:
        theirs.settle(theirs.reserve("q0", ONE, event=SECURE), a_release())
    assert own_ledger.find("q0").labels.tolist() == [3]
    postgres.sql("DROP OWNED BY teller", name)


# --- Writers that wait, and connections that break. ---


def test_another_writer_is_waited_for_and_then_said(postgres, database, name):
    import psycopg

    ledger = PostgresLedger(database, ACCOUNTANT, timeout=2.0, name=name)
    with psycopg.connect(database.replace("+psycopg", "")) as other:
        other.execute("SELECT * FROM tellers_ledgers FOR UPDATE")
        with pytest.raises(TimeoutError, match=r"free within 2 s.*Nothing was written"):
            ledger.reserve("q0", ONE, event=SECURE)
        assert ledger.spent.epsilon(1e-5) == 0.0  # reading does not wait
        other.rollback()
    ledger.reserve("q0", ONE, event=SECURE)


def test_a_writer_that_freezes_does_not_hold_the_others_for_ever(database, name):
    frozen, other = (PostgresLedger(database, ACCOUNTANT, timeout=t, name=name) for t in (2.0, 20.0))
    inside, go_on = threading.Event(), threading.Event()

    def slow_line():
        inside.set()
        go_on.wait(30)

    def freeze():
        with pytest.raises(ConnectionError):
            frozen._write(slow_line_once)

    calls = []

    def slow_line_once(*_turn):
        calls.append(1)
        slow_line()
        raise ConnectionError("never mind")

    thread = threading.Thread(target=freeze)
    start = time.monotonic()
    thread.start()
    assert inside.wait(30)
    other.reserve("q0", ONE, event=SECURE)
    assert 0.5 < time.monotonic() - start < 25  # it would sit on the lock for 30
    go_on.set()
    thread.join()


def test_a_server_that_freezes_is_given_up_and_the_next_connection_goes_on(database, name):
    with PostgresLedger(database, ACCOUNTANT, name=name, timeout=2.0) as ledger:
        ledger.reserve("before", ONE, event=SECURE)
        frozen = backend(ledger, "writing")
        os.kill(frozen, signal.SIGSTOP)
        try:
            start = time.monotonic()
            with pytest.raises(ConnectionError, match="Nothing was written"):
                ledger.reserve("q0", ONE, event=SECURE)
            assert 1 < time.monotonic() - start < 30
            ledger.reserve("q0", ONE, event=SECURE)
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert [entry.key for entry in ledger.entries()] == ["before", "q0"]


def backend(ledger, purpose):
    return ledger._connections[purpose].connection.dbapi_connection.info.backend_pid


def break_commits(monkeypatch, *, after, times=1):
    """Let commits of writers break, before or after the server made them; return how many are left."""
    commit, left = sa.Connection.commit, [times]

    def breaking(self):
        if left[0] and self.scalar(sa.text("SELECT pg_current_xact_id_if_assigned()")) is not None:
            left[0] -= 1
            if after:
                commit(self)
            raise sa.exc.OperationalError(
                "COMMIT", {}, Exception("server closed the connection unexpectedly")
            )
        commit(self)

    monkeypatch.setattr(sa.Connection, "commit", breaking)
    return left


@pytest.mark.parametrize("after", [False, True], ids=["before it was made", "after it was made"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_whose_answer_was_lost_is_neither_lost_nor_doubled(monkeypatch, ledger, after, times):
    left = break_commits(monkeypatch, after=after, times=times)
    ticket = ledger.reserve("q0", 2 * ONE, event=SECURE)
    assert left[0] < times
    left[0] = times
    ledger.settle(ticket, a_release())
    left[0] = 0
    np.testing.assert_array_equal(ledger.spent.values, ONE.values)
    kinds = [line.kind for line in ledger.lines()]
    assert kinds == ["opened", "price", "event", "reserved", "price", "settled"]  # it came out cheaper


@pytest.mark.parametrize("after", [False, True], ids=["before it was made", "after it was made"])
def test_a_lost_answer_to_many_is_neither_lost_nor_doubled_for_any(monkeypatch, ledger, after):
    """Threads that are written together lose one answer together: each is told what became of its own."""
    half = RdpCurve.zcdp(0.016)
    asks = [("a", ONE), ("half", half), ("b", ONE), ("too much", half), ("a", ONE), ("c", ONE)]
    got = [None] * len(asks)

    def ask(at, key, price):
        try:
            got[at] = ledger.reserve(key, price, event=SECURE).key
        except Exception as error:
            got[at] = type(error)

    left, threads = break_commits(monkeypatch, after=after), []
    ledger._turns.hold()
    for at, (key, price) in enumerate(asks):
        threads.append(threading.Thread(target=ask, args=(at, key, price)))
        threads[-1].start()
        while len(ledger._turns._waiting) <= at:
            time.sleep(0.001)
    ledger._turns.resume()
    for thread in threads:
        thread.join(60)
    assert left == [0]
    assert got == ["a", "half", "b", BudgetExhausted, Unsettled, "c"]
    assert [entry.key for entry in ledger.entries()] == ["a", "half", "b", "c"]
    ledger.verify()


@pytest.mark.parametrize("version", ["ledger-1", "ledger-3", "clock-3"])
def test_a_ledger_of_an_earlier_version_is_rewritten_under_another_name(database, name, tmp_path, version):
    old = tmp_path / "old.db"
    shutil.copy(Path(__file__).parent / "fixtures" / f"{version}.db", old)
    text = io.StringIO()
    with open_ledger(old) as ledger:
        head = export_ledger(ledger, text)
        before = [(e.key, e.event, e.charged.values.tolist(), e.is_settled) for e in ledger.entries()]
    import_ledger(text.getvalue().splitlines(), database, name=name).close()
    with open_ledger(database, name=name) as user:  # who has it open is refused later
        with pytest.raises(LedgerConflict, match=r"a name that is free .*--to"):
            compact_ledger(database, name=name, to=name)
        assert user.head.hash == head
        found = compact_ledger(database, name=name)
        assert (found.where, found.old, found.version) == (f"{name}-4", name, int(version[-1]))
        with pytest.raises(LedgerConflict, match="rewritten into another"):
            user.open_account("student/more", Budget(0.1, 1e-6))
    with open_ledger(database, name=f"{name}-4") as ledger:
        assert ledger.verify() == found.head
        assert before == [(e.key, e.event, e.charged.values.tolist(), e.is_settled) for e in ledger.entries()]
        ledger.open_account("student/more", Budget(0.1, 1e-6))
    with pytest.raises(LedgerConflict, match="was rewritten into"):
        compact_ledger(database, name=name, to=f"{name} again")
    assert f"{name} again" not in ledger_names(database)
    assert compact_ledger(database, name=f"{name}-4").old is None


def test_a_lost_reservation_is_not_mistaken_for_that_of_somebody_else(monkeypatch, database, name):
    """Two ask the same at once; one loses its commit. Only the other one may draw."""
    one, other = (PostgresLedger(database, ACCOUNTANT, name=name) for _ in range(2))
    commit, lost = sa.Connection.commit, []

    def breaking(self):
        if not lost and self.scalar(sa.text("SELECT pg_current_xact_id_if_assigned()")) is not None:
            lost.append(1)
            self.rollback()
            other.reserve("q0", ONE, event=SECURE)
            raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))
        commit(self)

    monkeypatch.setattr(sa.Connection, "commit", breaking)
    with pytest.raises(Unsettled):
        one.reserve("q0", ONE, event=SECURE)
    assert [line.kind for line in one.lines()] == ["opened", "price", "event", "reserved"]


def test_a_refusal_after_a_lost_answer_is_still_a_refusal(monkeypatch, ledger):
    half = RdpCurve.zcdp(0.02)
    ledger.reserve("q0", half, event=SECURE)
    break_commits(monkeypatch, after=False)
    with pytest.raises(BudgetExhausted):
        ledger.reserve("q1", half, event=SECURE)
    assert [entry.key for entry in ledger.entries()] == ["q0"]


def test_a_server_that_stays_away_leaves_no_ticket(monkeypatch, database, name):
    ledger = PostgresLedger(database, ACCOUNTANT, name=name, timeout=2.0)
    left = break_commits(monkeypatch, after=False, times=1000)
    with pytest.raises(ConnectionError, match=r"not known; if it was, it stays charged, and no noise"):
        ledger.reserve("q0", ONE, event=SECURE)
    left[0] = 0
    assert ledger.entries() == []
    ledger.reserve("q0", ONE, event=SECURE)


def test_a_turn_that_does_not_come_leaves_a_lost_answer_unknown(monkeypatch, database, name):
    """An answer is lost, and then somebody else holds the lock: nobody may say that nothing was written."""
    import psycopg

    ledger = PostgresLedger(database, ACCOUNTANT, name=name, timeout=2.0)
    commit, others = sa.Connection.commit, []

    def breaking(self):
        commit(self)
        if not others:
            others.append(psycopg.connect(database.replace("+psycopg", "")))
            others[0].execute("SELECT * FROM tellers_ledgers FOR UPDATE")
            raise sa.exc.OperationalError(
                "COMMIT", {}, Exception("server closed the connection unexpectedly")
            )

    monkeypatch.setattr(sa.Connection, "commit", breaking)
    with pytest.raises(ConnectionError, match="is not known; if it was, it stays charged"):
        ledger.reserve("q0", ONE, event=SECURE)
    others[0].close()
    assert [entry.key for entry in ledger.entries()] == ["q0"]


def test_a_broken_connection_is_opened_again(postgres, ledger):
    for n in range(3):
        ticket = ledger.reserve(f"q{n}", ONE, event=SECURE)
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tellers'"
        )
        ledger.settle(ticket, a_release())
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tellers'"
        )
        assert len(ledger.entries()) == n + 1


def go_on_until(happened, seconds=120.0):
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_server_that_dies_under_load_loses_nothing(postgres):
    """Four writers, and a server that is killed, and then stopped: what was acknowledged is there, once."""
    cluster = type(postgres)()  # a small one, which is soon there again
    try:
        lose_nothing(cluster)
    finally:
        cluster.remove()


def lose_nothing(cluster):
    database, share = cluster.url(), 1e-4 * ONE
    migrate(database)
    acknowledged, errors, done = {}, [], threading.Event()

    def write(worker):
        ledger = PostgresLedger(database, ACCOUNTANT, timeout=30.0)
        try:
            n = 0
            while not done.is_set():
                ticket = ledger.reserve(f"{worker}-{n}", share, event=SECURE)
                acknowledged[ticket.key] = "reserved"
                ledger.settle(ticket, a_release(share, label=n))
                acknowledged[ticket.key] = "settled"
                n += 1
        except Exception as error:
            errors.append(error)
        finally:
            ledger.close()

    rng = np.random.default_rng(7)
    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for how in ("kill", "stop"):
        enough = len(acknowledged) + 15
        go_on_until(lambda enough=enough: len(acknowledged) >= enough or errors)
        time.sleep(rng.uniform(0, 0.1))
        getattr(cluster, how)()
        cluster.start()
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    with PostgresLedger(database, ACCOUNTANT) as ledger:
        ledger.verify()
        entries = {entry.key: entry for entry in ledger.entries()}
        assert acknowledged.keys() == entries.keys()
        for key in acknowledged:
            assert entries[key].release.labels.tolist() == [int(key.partition("-")[2])]
        np.testing.assert_allclose(ledger.spent.values, (len(entries) * share).values, rtol=1e-9)
    assert len(entries) >= 30


def test_it_travels_by_its_url(ledger):
    ledger.reserve("q0", ONE, event=SECURE)
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.name, again.timeout) == (ledger.name, 10.0)
    np.testing.assert_array_equal(again.spent.values, ONE.values)
    again.close()


@pytest.mark.parametrize(
    "read",
    [lambda ledger: ledger.spent, lambda ledger: ledger.find("q0")],
    ids=["spent", "find"],
)
def test_a_server_that_freezes_is_given_up_by_who_reads(database, name, read):
    with PostgresLedger(database, ACCOUNTANT, name=name, timeout=2.0) as ledger:
        ledger.reserve("q0", ONE, event=SECURE)
        frozen = backend(ledger, "looking")
        os.kill(frozen, signal.SIGSTOP)
        try:
            start = time.monotonic()
            with pytest.raises(ConnectionError, match="to answer within"):
                read(ledger)
            assert time.monotonic() - start < 30
            read(ledger)  # over a connection of its own
            ledger.verify()
        finally:
            os.kill(frozen, signal.SIGCONT)


def test_those_who_wait_for_a_frozen_server_do_not_wait_one_after_the_other(database, name):
    with PostgresLedger(database, ACCOUNTANT, name=name, timeout=2.0) as ledger:
        ledger.reserve("before", ONE, event=SECURE)
        frozen = backend(ledger, "writing")
        os.kill(frozen, signal.SIGSTOP)
        took = []

        def wait():
            start = time.monotonic()
            with contextlib.suppress(OSError):
                ledger.reserve(f"q{threading.get_ident()}", ONE, event=SECURE)
            took.append(time.monotonic() - start)

        try:
            threads = [threading.Thread(target=wait) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert max(took) < 25  # one after the other they would take twelve times 4 s


def test_books_longer_than_a_page_are_read_whole(monkeypatch, database, name):
    monkeypatch.setattr("tellers.ledger.sql.postgres.PAGE", 3)
    with PostgresLedger(database, ACCOUNTANT, name=name) as ledger:
        for number in range(7):  # with the first line, the last page has lines; without, it is empty
            ledger.reserve(f"q{number}", 0.01 * ONE, event=SECURE)
            assert len(list(ledger.lines())) == number + 4
    with PostgresLedger(database, ACCOUNTANT, name=name) as again:
        assert [entry.key for entry in again.entries()] == [f"q{number}" for number in range(7)]


def test_a_long_ledger_is_written_by_the_page(monkeypatch, database, name):
    """One answer of the server bounds a page: a long ledger in one piece took longer, and was given up."""
    monkeypatch.setattr("tellers.ledger.sql.postgres.PAGE", 3)
    sent, execute = [], sa.Connection.execute

    def noted(self, statement, parameters=None, **more):
        if isinstance(parameters, list):
            sent.append(len(parameters))
        return execute(self, statement, parameters, **more)

    monkeypatch.setattr(sa.Connection, "execute", noted)
    lines: list[Line] = []
    for number in range(8):
        lines.append(Line.after(lines[-1] if lines else None, "some", key=str(number), body={}))
    fill(database, lines, name=name)
    assert sent == [3, 3, 2]
