"""A ledger too long to be read while somebody waits: it is verified and added up beside those who ask."""

import asyncio
import os
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tellers import Budget, Cost, RdpCurve, Release
from tellers.ledger import open_ledger
from tellers.ledger.base import Unusable
from tellers.service import LedgerConfig, _routes, _verifying
from tellers.service._aside import Aside, place_of
from tellers.service._verifying import LedgerCheck, read_all
from tellers.service.dashboard import _figures as figures
from tellers.service.dashboard._figures import SnapshotCache

from .. import forked
from .test_away import sign_in

ONE = RdpCurve.zcdp(1e-9)
EVENT = {"noise": "secure", "n_queries": 1}
WAIT = 60.0


def fill(ledger, n):
    """Write questions and their answers, many lines at once."""

    def lines(store):
        state, made = ledger._caught_up(store), []
        for _ in range(n):
            key = f"student/bob/{state.n_questions}"
            made += state.write_reserved(key, ONE, {}, EVENT, store)
            release = Release(np.array([1]), Cost(ONE))
            made += state.write_settled(key, release, None, is_settled=False)[0]
        return [*made, *state.write_checkpoint()]

    ledger._commit(lines, time.monotonic() + WAIT)


@pytest.fixture
def long_place(place, monkeypatch):
    """A place whose ledger of 1,200 lines counts as a long one."""
    monkeypatch.setattr(_verifying, "FEW", 100)
    with place.ledger() as ledger:
        fill(ledger, 600)
        assert ledger.head.number > 1200
        fill(ledger, 1)  # whoever opens it begins at the checkpoint before this
    return place


@pytest.fixture
def books(long_place):
    with long_place.ledger() as ledger:
        yield ledger


@pytest.fixture
def check(books):
    made = LedgerCheck(books, Aside(books))
    yield made
    made.close()


def tamper(place, number=500):
    """Change a line that nobody reads who opens the ledger, and leave its rules as they were."""
    with sqlite3.connect(place.settings.place("ledger.db")) as connection:
        rules = connection.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        for name, _ in rules:
            connection.execute(f"drop trigger {name}")
        connection.execute(
            "update lines set body = replace(body, '[1]', '[2]') where number in (?, ? + 1)", [number] * 2
        )
        for _, words in rules:
            connection.execute(words)
    connection.close()


def ask(client, who, key):
    return client.post("/v1/labels", headers=who, json={"idempotency_key": key, "pool": [0]})


def verify(client, auditor):
    return client.get("/v1/ledger/verify", headers=auditor).json()


@pytest.fixture
def nothing_read_here(monkeypatch):
    """The process of the service reads no ledger as a whole."""

    def read(*_words, **_options):
        raise AssertionError("the service read all of the ledger itself")

    monkeypatch.setattr("tellers.ledger._chain.ChainedLedger.verify_from", read)


@pytest.fixture
def stopped(monkeypatch):
    """Processes beside the service stand still from their start on: their numbers."""
    begun, start = [], Aside._started

    def begin(aside):
        process = start(aside)
        if process.pid not in begun:
            begun.append(process.pid)
            os.kill(process.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr(Aside, "_started", begin)
    return begun


# --- Verification ---


def test_a_long_ledger_is_verified_while_it_is_served(long_place, alice, nothing_read_here):
    """Before, all of it was read before the service answered, and at every request, in its own process."""
    auditor = long_place.bearer("ada", "auditor")
    with long_place.open() as client:
        found = client.app.state.service.labels.check.start().result(WAIT)
        assert (found.is_intact, found.n_entries) == (True, 601)
        assert ask(client, alice, "k1").status_code == 200
        said = verify(client, auditor)
    assert (said["intact"], said["n_entries"]) == (True, 602)
    assert said["n_checked"] == said["n_lines"] > found.n_lines
    assert len(said["head"]) == 64


def test_what_takes_longer_says_how_far_it_is_and_holds_nobody_up(long_place, alice, stopped, monkeypatch):
    monkeypatch.setattr(_routes, "_VERIFY_SECONDS", 0.05)
    auditor = long_place.bearer("ada", "auditor")
    with long_place.open() as client:
        with ThreadPoolExecutor(50) as pool:  # more than there are threads for requests
            for said in pool.map(lambda _: verify(client, auditor), range(50)):
                assert (said["intact"], said["head"], said["n_checked"]) == (None, None, 0)
        assert said["n_lines"] > 1200
        assert "ask again" in said["detail"]
        assert ask(client, alice, "k1").status_code == 200
        assert client.get("/v1/budget", headers=alice).status_code == 200
        (number,) = stopped  # one process for all of them
        run = client.app.state.service.labels.check.start()
        os.kill(number, signal.SIGCONT)
        assert run.result(WAIT).is_intact
        monkeypatch.undo()
        assert verify(client, auditor)["intact"]


def test_what_is_found_wrong_ends_the_giving_of_labels(long_place, alice):
    """A line that nobody reads who opens the ledger: only the whole verification finds it."""
    auditor = long_place.bearer("ada", "auditor")
    tamper(long_place)
    with long_place.open() as client:
        assert not client.app.state.service.labels.check.start().result(WAIT).is_intact
        refused = ask(client, alice, "k1")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:tellers:problem:unavailable")
        assert "operator" in refused.json()["detail"]
        said = verify(client, auditor)
        assert (said["intact"], said["head"]) == (False, None)
        assert client.get("/v1/health").status_code == 200
    assert '"event": "the ledger is broken' in long_place.log.getvalue()
    assert '"level": "error"' in long_place.log.getvalue()
    with long_place.ledger() as ledger:
        assert ledger.asked("student/alice/k1") is None


def test_a_ledger_with_a_second_name_is_not_taken_for_a_broken_one(place, alice):
    """A snapshot by hard links, say: before, no labels were given until somebody verified again."""
    auditor, token = place.bearer("ada", "auditor"), place.key("otto", "operator")
    file = Path(place.settings.place("ledger.db"))
    with place.open() as client:
        sign_in(client, token)
        os.link(file, file.with_suffix(".snapshot"))
        told = client.get("/v1/ledger/verify", headers=auditor)
        assert told.status_code == 503
        assert "Remove the other name" in told.json()["detail"]
        assert "Remove the other name" in client.get("/dashboard/ledger").text
        file.with_suffix(".snapshot").unlink()
        assert ask(client, alice, "k1").status_code == 200
        assert verify(client, auditor)["intact"]


def test_tables_of_another_version_are_not_taken_for_a_broken_ledger(place, own_database, postgres):
    """After an update: a backup must not be restored for it."""
    ledger = LedgerConfig(url=own_database, epsilon=2.0, delta=1e-5)
    with replace(place, settings=replace(place.settings, ledger=ledger)).ledger() as books:
        check = LedgerCheck(books, Aside(books))
        newer = "UPDATE tellers_version SET version_num = 'tomorrow'"
        postgres.sql(newer, own_database.rpartition("/")[2])
        assert isinstance(check.start().result(WAIT), Unusable)
        check.close()
    assert check.last is None


def test_a_process_that_dies_is_replaced_and_begins_anew(check, monkeypatch):
    start, begun = Aside._started, []

    def begin(aside):
        process = start(aside)
        begun.append(process.pid)
        if len(begun) == 1:
            process.kill()
            process.wait()
        return process

    monkeypatch.setattr(Aside, "_started", begin)
    assert check.start().result(WAIT).n_entries == 601
    assert len(begun) == 2


def test_a_process_that_always_dies_is_given_up(check, monkeypatch):
    start = Aside._started

    def begin(aside):
        process = start(aside)
        process.kill()
        process.wait()
        return process

    monkeypatch.setattr(Aside, "_started", begin)
    assert isinstance(check.start().result(WAIT), OSError)
    assert check.last is None


def test_a_long_ledger_is_read_on_from_where_it_was_read_to(books, monkeypatch):
    now = [0.0]
    check = LedgerCheck(books, Aside(books), clock=lambda: now[0])
    first = check.start().result(WAIT)
    fill(books, 1)
    second = check.start().result(WAIT)
    assert (second.n_entries, second.since) == (602, first.since)
    now[0] = 3601.0  # and all of it again, an hour later
    third = check.start().result(WAIT)
    assert third.since > first.since
    check._aside.end()
    assert check.start().result(WAIT).since > third.since  # another process knows of nothing
    check.close()


def test_who_asks_again_is_told_of_the_run_that_took_too_long(check, monkeypatch):
    """Before, it had begun anew by then, and whoever asked now and then was never told anything."""
    now, runs, start = [0.0], [], check._work
    monkeypatch.setattr(check, "_clock", lambda: now[0])
    monkeypatch.setattr(check, "_work", lambda *given: (runs.append(given), start(*given)))
    for _ in range(2):  # one of them asked twice, or two did
        assert asyncio.run(check.wait(0.0)) is None
    check._run.result(WAIT)
    assert asyncio.run(check.wait(0.0)).is_intact
    assert len(runs) == 1
    assert asyncio.run(check.wait(0.0)) is None  # it was told: this is another
    check._run.result(WAIT)
    now[0] = 400.0  # and nobody asked for long
    assert asyncio.run(check.wait(0.0)) is None
    check._run.result(WAIT)
    assert len(runs) == 3


def test_what_was_verified_must_still_be_there(check, long_place):
    first = check.start().result(WAIT)
    assert first.is_intact
    tamper(long_place, number=10)
    assert check.start().result(WAIT).is_intact  # only what is new was read
    check._aside.end()
    assert not check.start().result(WAIT).is_intact
    assert not check.last.is_intact


def test_an_older_ledger_in_its_place_is_found(books, tmp_path):
    """The chain of a copy holds; what the service knows to be there is not in it."""
    aside, head = Aside(books), books.head
    (path, options) = place_of(books)
    with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "older.db") as older:
        source.backup(older)
    fill(books, 1)
    newer = books.head
    with open_ledger(tmp_path / "older.db") as copy:
        memory = {}
        assert read_all(copy, memory, print, head, None, True)[0] == head
        with pytest.raises(_verifying.LedgerConflict, match="replaced or cut"):
            read_all(copy, memory, print, newer, None, True)
        with pytest.raises(_verifying.LedgerConflict, match="replaced or cut"):
            read_all(copy, memory, print, head, newer, True)
    assert set(options) <= {"name", "timeout"}
    aside.close()


def command_of(process):
    return Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="shows commands elsewhere")
def test_the_process_shows_no_address_and_steps_aside(place, own_database):
    ledger = LedgerConfig(url=own_database, epsilon=2.0, delta=1e-5)
    there = replace(place, settings=replace(place.settings, ledger=ledger))
    with there.ledger() as ledger:
        aside = Aside(ledger)
        assert list(aside.do(read_all, ledger.head, None, True))[-1][0] == ledger.head
        shown = command_of(aside._process)
        assert "tellers.service._aside" in shown
        assert "postgres" not in shown
        assert os.getpriority(os.PRIO_PROCESS, aside._process.pid) >= os.getpriority(os.PRIO_PROCESS, 0) + 10
        process = aside._process
        aside.close()
        assert process.poll() is not None


def test_a_service_that_stops_takes_its_processes_along(long_place, stopped):
    with long_place.open() as client:
        check = client.app.state.service.labels.check
        run = check.start()
        until = time.monotonic() + WAIT
        while not stopped and time.monotonic() < until:
            time.sleep(0.01)
    assert isinstance(run.result(WAIT), OSError)
    assert not Path(f"/proc/{stopped[0]}").exists()


# --- The dashboard ---


def test_a_long_ledger_is_added_up_beside_the_service(long_place, monkeypatch):
    monkeypatch.setattr(figures, "_MOST_AT_ONCE", 50)
    monkeypatch.setattr(figures, "_AGE_SECONDS", 0.0)
    monkeypatch.setattr(figures, "_PATIENCE", 0.0)
    read, entries = [], type(long_place.ledger()).entries

    def listed(ledger, **page):
        read.append(page["limit"])
        return entries(ledger, **page)

    with long_place.open() as client:
        monkeypatch.setattr(type(client.app.state.service.labels.ledger), "entries", listed)
        cache = SnapshotCache(client.app.state.service.labels)
        first = cache.snapshot()
        assert (first.n_questions, first.n_counted) == (601, 0)
        assert first.data.status.epsilon_spent > 0
        cache._counting.join(WAIT)
        seen = cache.snapshot()
        assert (seen.n_counted, seen.data.outcomes.n_answered) == (601, 601)
        assert [row.number for row in seen.questions(25, 2)] == [575, 574]
        fill(client.app.state.service.labels.ledger, 20)
        assert cache.snapshot().data.outcomes.n_answered == 621
    assert sum(read) < 200  # no more than the pages that were shown, and what was new


# --- A writer that stands still in the middle of its turn ---

FROZEN = """
import os, signal, sys, time
from tellers import RdpCurve
from tellers.ledger import open_ledger
from tellers.ledger.base import Unusable

ledger = open_ledger(sys.argv[1], name="main") if "://" in sys.argv[1] else open_ledger(sys.argv[1])
ledger.reserve("run/before", RdpCurve.zcdp(1e-9), event={"noise": "secure", "n_queries": 1})

def stand_still(store):
    print("in its turn", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return []

ledger._commit(stand_still, time.monotonic() + 60)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_readers_are_answered_while_a_writer_stands_still(place, alice, kind, request):
    url = request.getfixturevalue("own_database") if kind == "postgres" else place.settings.place("ledger.db")
    ledger = LedgerConfig(url=url, epsilon=2.0, delta=1e-5)
    there = replace(place, settings=replace(place.settings, ledger=ledger))
    operator = there.bearer("otto", "operator")
    with there.open() as client:
        assert ask(client, alice, "k1").status_code == 200
        writer = forked.Popen([sys.executable, "-c", FROZEN, url], stdout=-1, text=True)
        asking = None
        try:
            assert writer.stdout.readline() == "in its turn\n"
            asking = threading.Thread(target=ask, args=(client, alice, "k2"))
            asking.start()  # it waits for its turn, and nobody for it
            start = time.monotonic()
            for _ in range(5):
                for path in ("/v1/health", "/v1/budget", "/v1/releases?limit=1", "/metrics"):
                    assert client.get(path, headers=operator).status_code == 200, path
            assert client.get("/v1/releases", headers=operator).json()["total"] >= 2
            assert time.monotonic() - start < 8
        finally:
            os.kill(writer.pid, signal.SIGCONT)
            writer.kill()
            writer.wait()
            if asking is not None:
                asking.join(WAIT)
        assert ask(client, alice, "k2").status_code == 200


def test_books_of_a_long_ledger_are_read_by_page_in_a_terminal(books, monkeypatch):
    from tellers.cli.ledger import _newest

    books.open_account("student/carol", Budget(0.1, 1e-5))
    books.reserve("student/carol/1", ONE, event=EVENT, also={"student/carol": ONE})
    read, entries = [], books.entries

    def listed(**page):
        found = entries(**page)
        read.append(len(found))
        return found

    monkeypatch.setattr(books, "entries", listed)
    monkeypatch.setattr("tellers.cli.ledger._PAGE", 100)
    shown, total = _newest(books, None, 3)
    assert ([entry.key for entry in shown][-1], len(shown), total, read) == ("student/carol/1", 3, 602, [3])
    read.clear()
    shown, total = _newest(books, "student/carol", 3)
    assert ([entry.key for entry in shown], total, max(read)) == (["student/carol/1"], 1, 100)
    assert len(_newest(books, None, 0)[0]) == 602


def test_a_first_listing_keeps_nobody_from_looking(books, monkeypatch):
    """It takes seconds where there are a million questions: others look at the ledger meanwhile."""
    monkeypatch.setattr("tellers.ledger._chain._MANY", 100)
    of_kind, seen = type(books._look(lambda store: store)).of_kind, []

    def slowly(store, *which, **after):
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(books.asked, "student/bob/7").result(WAIT)["n_queries"])
        fill(books, 1)  # what comes while it is read is listed once
        return of_kind(store, *which, **after)

    monkeypatch.setattr(type(books._look(lambda store: store)), "of_kind", slowly)
    assert books.count("student/bob/") == 601
    monkeypatch.undo()
    assert seen == [1]
    assert books.count("student/bob/") == 602
    assert [entry.key for entry in books.entries(after=600)] == ["student/bob/600", "student/bob/601"]
