"""A ledger of an earlier version is rewritten: the same is on it, and the old one is not spent from again."""

import json
import multiprocessing
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, RdpCurve, Release, SqliteLedger, open_ledger
from tellers.errors import LedgerConflict
from tellers.ledger import (
    Anchor,
    MemoryLedger,
    Ticket,
    _state,
    compact,
    compact_ledger,
    open_witness,
    sqlite,
)
from tellers.ledger._lines import SCHEMA
from tellers.privacy._price import delta_of, itemised, with_delta

FIXTURES = Path(__file__).parent / "fixtures"
OLD = sorted(path.stem for path in FIXTURES.glob("*-[123].db"))
SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
FORK = multiprocessing.get_context("fork")


@pytest.fixture(params=OLD)
def old(request, tmp_path):
    path = tmp_path / "spend.db"
    shutil.copy(FIXTURES / f"{request.param}.db", path)
    return path


def told(ledger):
    """Return everything that a ledger says to whoever asks."""

    def price(curve):
        paid = itemised(curve)
        return curve.values.tobytes(), paid.ticks, paid.events, delta_of(curve), [t[0] for t in paid.terms]

    entries = [
        (
            entry.key, entry.event, price(entry.reserved), price(entry.charged), entry.is_settled,
            {name: (price(paid.reserved), price(paid.charged)) for name, paid in entry.also.items()},
            None if entry.release is None else (
                entry.release.labels.tolist(), entry.release.answered.tolist(),
                None if entry.release.values is None else entry.release.values.tolist(),
            ),
            ledger.asked(entry.key),
        )
        for entry in ledger.entries()
    ]  # fmt: skip
    accounts = {
        name: (one.budget, one.held_at, one.clock, price(one.spent))
        for name, one in ledger.accounts().items()
    }
    return ledger.accountant, price(ledger.spent), accounts, entries


def tell(path):
    with open_ledger(path) as ledger:
        ledger.verify()
        return told(ledger)


def require_closed(path):
    with open_ledger(path) as ledger:
        ledger.verify()
        for spend in (
            lambda: ledger.reserve("more", ledger.entries()[0].reserved, event=SECURE),
            lambda: ledger.open_account("student/more", Budget(0.1, 1e-6)),
            lambda: ledger.end({}),
        ):
            with pytest.raises(LedgerConflict, match="rewritten into another"):
                spend()


def test_it_says_the_same_and_the_old_one_is_closed(old):
    before = tell(old)
    with open_ledger(old) as ledger:
        head, version = ledger.head, json.loads(next(ledger.lines()).body).get("schema", 2)
    found = compact_ledger(old)
    aside = old.with_name(f"spend.version-{version}.db")
    assert (found.where, found.old, found.version) == (str(old), str(aside), version)
    assert sorted(each.name for each in old.parent.iterdir()) == ["spend.db", aside.name]
    assert tell(old) == tell(aside) == before
    with open_ledger(old) as ledger:
        said = json.loads(next(ledger.lines()).body)
        assert (said["schema"], ledger.head.hash) == (SCHEMA, found.head)
        assert said["before"] == {"head": head.hash, "lines": head.number + 1, "version": version}
        price = ledger.entries()[0].reserved
        also = {name: price for name in ledger.accounts() if name.startswith("group/")}
        ledger.reserve("it goes on", price, event=SECURE, also=also)
    require_closed(aside)
    assert compact_ledger(old).old is None
    with pytest.raises(LedgerConflict, match=r"was rewritten into 'spend\.db' before"):
        compact_ledger(aside)


def test_an_open_question_is_settled_on_the_new_ledger(old):
    compact_ledger(old)
    with open_ledger(old) as ledger:
        entry = next(entry for entry in ledger.entries() if not entry.is_settled)
        ticket = Ticket(
            entry.key, entry.reserved, entry.event, {n: c.reserved for n, c in entry.also.items()}
        )
        ledger.settle(ticket, Release(np.array([-1]), Cost(0 * entry.reserved)))
        assert ledger.find(entry.key).labels.tolist() == [-1]
        ledger.verify()


def test_under_another_name_the_old_one_stays_where_it_was(old):
    before, new = tell(old), old.with_name("new.db")
    found = compact_ledger(old, to=str(new))
    assert (found.where, found.old) == (str(new), str(old))
    assert tell(new) == tell(old) == before
    require_closed(old)
    with pytest.raises(LedgerConflict, match=r"rewritten into 'new\.db'"):
        compact_ledger(old)


def test_nothing_happens_while_somebody_has_it_open(old):
    before = tell(old)
    with open_ledger(old) as ledger:
        ledger.find("nothing")
        with pytest.raises(LedgerConflict, match="nobody else to have"):
            compact_ledger(old, timeout=0.5)
        group = {name: ONE for name in ledger.accounts() if name.startswith("group/")}
        if ledger.accountant.clock is None:
            ledger.reserve("more", ONE, event=SECURE, also=group)
    other = sqlite3.connect(old)
    other.execute("SELECT count(*) FROM lines").fetchone()
    with pytest.raises(LedgerConflict, match="nobody else to have"):
        compact_ledger(old, timeout=0.5)
    other.close()
    assert [each.name for each in old.parent.iterdir()] == ["spend.db"]
    assert tell(old)[3][: len(before[3])] == before[3]


def test_what_does_not_come_out_the_same_changes_nothing(old, monkeypatch):
    before = tell(old)
    carried = compact._Rewriting._carried

    def cheaper(self, paid):
        found = carried(self, paid)
        if len(self.new.pending) == 1:
            found[None] = found[None]._replace(terms=())
        return found

    with monkeypatch.context() as patched:
        patched.setattr(compact._Rewriting, "_carried", cheaper)
        with pytest.raises(LedgerConflict):
            compact_ledger(old)
    assert [each.name for each in old.parent.iterdir()] == ["spend.db"]
    assert tell(old) == before
    compact_ledger(old)


def test_a_changed_ledger_is_not_rewritten(old):
    connection = sqlite3.connect(old)
    rules = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in rules:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE lines SET body = replace(body, 'secure', 'seeded') WHERE kind = 'reserved'")
    for _, sql in rules:
        connection.execute(sql)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerConflict, match="not the one that was written"):
        compact_ledger(old)
    assert [each.name for each in old.parent.iterdir()] == ["spend.db"]


def _die(path, step, to=None):
    """Rewrite until a step, and end there as a process does that is killed."""
    links = []

    def link(*given, link=os.link):
        links.append(given)
        if (step, len(links)) in (("written", 1), ("closed", 2)):
            os._exit(9)
        link(*given)
        if (step, len(links)) in (("tried a link", 1), ("named", 2)):
            os._exit(9)

    def replace(*given, replace=os.replace):
        if step == "linked":
            os._exit(9)
        replace(*given)
        if step == "exchanged":
            os._exit(9)

    def same(*given, same=compact._require_same_sums):
        if step == "half written":
            os._exit(9)
        same(*given)

    os.link, os.replace, compact._require_same_sums = link, replace, same
    compact_ledger(path, to=to)
    os._exit(0)


@pytest.mark.parametrize("step", ["half written", "written", "tried a link", "closed", "linked", "exchanged"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_crash_leaves_one_ledger_and_the_same_command_ends_it(old, step):
    before = tell(old)
    child = FORK.Process(target=_die, args=(old, step))
    child.start()
    child.join(60)
    assert child.exitcode == 9
    if step in ("half written", "written", "tried a link"):
        assert tell(old) == before  # nothing has happened
    elif step == "closed":
        require_closed(old)
    elif step == "linked":
        with pytest.raises(LedgerConflict, match="another one too"):
            open_ledger(old)
    compact_ledger(old)
    assert tell(old) == before
    aside = next(old.parent.glob("spend.version-*.db"))
    assert sorted(each.name for each in old.parent.iterdir()) == ["spend.db", aside.name]
    require_closed(aside)


@pytest.mark.parametrize("step", ["half written", "written", "closed", "named"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_crash_under_another_name_never_leaves_two_to_spend_from(tmp_path, step):
    old, new = tmp_path / "spend.db", tmp_path / "new.db"
    shutil.copy(FIXTURES / "ledger-3.db", old)
    before = tell(old)
    child = FORK.Process(target=_die, args=(old, step, str(new)))
    child.start()
    child.join(60)
    assert child.exitcode == 9
    assert new.exists() == (step == "named")
    if step == "named":
        with pytest.raises(LedgerConflict, match=r"rewritten into 'new\.db' before"):
            compact_ledger(old, to=str(new))
    else:
        assert compact_ledger(old, to=str(new)).where == str(new)
    assert tell(new) == before
    require_closed(old)
    assert sorted(each.name for each in tmp_path.glob("new*")) == ["new.db"]


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_what_lies_beside_another_name_is_no_log_of_the_new_one(tmp_path, end):
    """SQLite would take a log that somebody left there for that of the new ledger."""
    old, new = tmp_path / "spend.db", tmp_path / "new.db"
    shutil.copy(FIXTURES / "ledger-3.db", old)
    before = tell(old)
    left = new.with_name(f"new.db{end}")
    with open_ledger(tmp_path / "gone.db", Accountant(Budget(1.0, 1e-5))) as gone:
        gone.open_account("student/alice", Budget(0.5, 1e-5))
        shutil.copy(tmp_path / "gone.db-wal", left)
    with pytest.raises(LedgerConflict, match=rf"not there yet, got {left.name}\."):
        compact_ledger(old, to=str(new))
    assert tell(old) == before
    left.unlink()
    compact_ledger(old, to=str(new))
    assert tell(new) == before


def _look(path, asked):
    asked.recv()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM sqlite_master").fetchone()
    asked.send(None)
    asked.recv()


def _open(path, asked):
    asked.recv()
    try:
        open_ledger(path, timeout=30).close()
        asked.send("opened")
    except LedgerConflict as error:
        asked.send(str(error))


@pytest.fixture
def elsewhere():
    """Start a process that does something when it is told to: one forked later would inherit our locks."""
    children = []

    def start(act, path):
        ours, theirs = FORK.Pipe()
        children.append(FORK.Process(target=act, args=(path, theirs), daemon=True))
        children[-1].start()
        return ours

    yield start
    for child in children:
        child.kill()
        child.join(60)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_who_looks_at_the_new_one_too_early_does_not_keep_its_lines_in_a_log(old, monkeypatch, elsewhere):
    before, same = tell(old), compact._require_same_sums
    other = elsewhere(_look, old.with_name("spend.db.compact"))

    def looked_at(*given):
        other.send(None)
        assert other.poll(20)
        other.recv()
        same(*given)

    with monkeypatch.context() as patched:
        patched.setattr(compact, "_require_same_sums", looked_at)
        with pytest.raises(LedgerConflict, match=r"nobody to open spend\.db\.compact"):
            compact_ledger(old, timeout=0.3)
    assert [each.name for each in old.parent.iterdir()] == ["spend.db"]
    assert tell(old) == before
    compact_ledger(old)
    assert tell(old) == before


@pytest.mark.skipif(sys.platform != "linux", reason="locks of an open file are Linux's")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_who_comes_meanwhile_is_refused_and_does_not_wait_for_the_old_one(old, monkeypatch, elsewhere):
    """It would begin a log of the old file beside the name of the new one."""
    before, same = tell(old), compact._require_same_sums
    other = elsewhere(_open, old)

    def meanwhile(*given):
        other.send(None)
        assert other.poll(10)
        with pytest.raises(LedgerConflict, match="being rewritten just now"):
            open_ledger(old)
        same(*given)

    monkeypatch.setattr(compact, "_require_same_sums", meanwhile)
    compact_ledger(old)
    assert "being rewritten just now" in other.recv()
    assert len(list(old.parent.iterdir())) == 2
    assert tell(old) == before


def test_the_new_one_is_open_to_nobody_to_whom_the_old_one_was_not(old):
    old.chmod(0o640)
    compact_ledger(old)
    assert [each.stat().st_mode & 0o777 for each in old.parent.iterdir()] == [0o640] * 2


@pytest.mark.parametrize("schema", [1, 2, 3])
def test_a_long_ledger_of_any_version_is_rewritten_with_checkpoints(tmp_path, monkeypatch, schema):
    path, rng = tmp_path / "spend.db", np.random.default_rng(schema)
    with monkeypatch.context() as patched:
        patched.setattr(_state, "SCHEMA", schema)
        patched.setattr(sqlite, "SCHEMA", schema)
        with SqliteLedger(path, Accountant(Budget(8.0, 1e-5), for_tests=1e-6)) as ledger:
            if schema > 1:
                ledger.open_account("student/alice", Budget(4.0, 1e-5))
            for k in range(150):
                price = int(rng.integers(1, 4)) * RdpCurve.zcdp(1e-6 * int(rng.integers(1, 5)))
                if schema == 3 and k % 50 == 0:
                    price = with_delta(price, 1e-8)
                also = {"student/alice": price} if schema > 1 and k % 3 else {}
                event = {**SECURE, "mechanism": f"m{k % 7}", "n_queries": k}
                ticket = ledger.reserve(f"q{k}", price, event=event, also=also)
                if k % 4:
                    used = price if delta_of(price) else 0.5 * price
                    overran = 2 if k % 17 == 0 else 1
                    try:
                        ledger.settle(ticket, Release(np.array([k % 5 - 1]), Cost(overran * used)))
                    except LedgerConflict:
                        assert overran == 2
    monkeypatch.setattr(_state, "CHECKPOINT_EVERY", 50)
    before, progress = tell(path), []
    n_lines = compact_ledger(path, progress=progress.append).lines_before
    assert sum(progress) == 2 * n_lines
    after = tell(path)
    assert after[2].keys() == before[2].keys()
    assert (after[0], after[3]) == (before[0], before[3])
    for one, other in zip(
        [after[1], *(a[3] for a in after[2].values())], [before[1], *(a[3] for a in before[2].values())]
    ):
        np.testing.assert_allclose(np.frombuffer(one[0]), np.frombuffer(other[0]), rtol=1e-13)
        assert one[1:4] == other[1:4]
    with open_ledger(path) as ledger:
        kinds = [line.kind for line in ledger.lines()]
        assert kinds.count("checkpoint") >= 2
        assert kinds.count("event") > 7


def test_a_witness_takes_it_for_another_ledger_until_it_is_trusted(old):
    """The new chain is not the old one; that it says so itself is no reason to believe it."""
    witness, place = open_witness(old.parent / "heads"), "a" * 64
    with open_ledger(old) as ledger:
        Anchor(ledger, witness, place=place).start()
    compact_ledger(old)
    with open_ledger(old) as ledger:
        anchor = Anchor(ledger, witness, place=place)
        with pytest.raises(LedgerConflict, match=r"it is another ledger.*--trust-ledger"):
            anchor.start()
        anchor.start(trusted=True)
        assert list(ledger.lines())[-1].kind == "trusted"
    with open_ledger(old) as ledger:
        Anchor(ledger, witness, place=place).start()


def test_a_ledger_that_was_ended_is_read_and_not_spent_from():
    ledger = MemoryLedger(Accountant(Budget(1.0, 1e-5)))
    ticket = ledger.reserve("a", ONE, event=SECURE)
    ledger.end({"into": {"name": "elsewhere"}})
    for spend in (
        lambda: ledger.settle(ticket, Release(np.array([1]), Cost(ONE))),
        lambda: ledger.reserve("b", ONE, event=SECURE),
        lambda: ledger.trust({}),
    ):
        with pytest.raises(LedgerConflict, match="rewritten into another"):
            spend()
    assert ledger.count() == 1
    ledger.verify()
