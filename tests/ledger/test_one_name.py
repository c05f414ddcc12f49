"""One file has one name, and one program at a time writes to it: under two its budget is spent twice."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

from tellers import Accountant, Budget, RdpCurve, SqliteLedger
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.ledger import _inode, sqlite

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))
N_PAID = ACCOUNTANT.n_affordable(ONE, 1000)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="locks of an open file are Linux's"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
FORK = multiprocessing.get_context("fork")
_KEPT = []  # in the other process


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.db"


def opened(path, **options):
    return SqliteLedger(path, ACCOUNTANT, **options)


def spend_all(ledger, who):
    """Ask until the budget is used, and return how often that was."""
    for n in range(10 * N_PAID):
        try:
            ledger.reserve(f"{who} {n}", ONE, event=SECURE)
        except BudgetExhausted:
            return n
    raise AssertionError("Expected an end to the budget.")


def _serve(asked):
    while True:
        act, given = asked.recv()
        try:
            asked.send(act(*given))
        except Exception as error:
            asked.send(error)


@pytest.fixture
def elsewhere(path):
    """Return what has things done in another process: one that was there before a ledger was opened.

    A fork closes all ledgers, and what is open could not be attacked.
    """
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_serve, args=(theirs,))
    child.start()

    def do(act, *given):
        ours.send((act, given))
        return ours.recv()

    yield do
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def opened_and_spent(path, who="other"):
    with opened(path) as ledger:
        return spend_all(ledger, who)


def opened_and_closed(path):
    opened(path).close()


def opened_and_kept(path):
    _KEPT.append(opened(path))


# --- Names ---


def test_a_second_hard_link_is_refused_at_the_start_and_in_use(path, elsewhere):
    other = path.with_name("other.db")
    with opened(path) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        os.link(path, other)
        for name in (path, other):
            assert isinstance(elsewhere(opened_and_spent, name), LedgerConflict)
        with pytest.raises(LedgerConflict, match="another one too"):
            opened(other)
        with pytest.raises(LedgerConflict, match="another one too"):
            ledger.reserve("b", ONE, event=SECURE)
        other.unlink()
        ledger.reserve("b", ONE, event=SECURE)
    assert opened_and_spent(path) == N_PAID - 2


def test_a_symbolic_link_is_the_same_name(path, elsewhere):
    alias = path.with_name("alias.db")
    alias.symlink_to(path)
    with opened(alias) as ledger, opened(path) as same:
        ledger.reserve("a", ONE, event=SECURE)
        assert same.count() == 1
        assert elsewhere(opened_and_spent, path) == N_PAID - 1
        assert spend_all(ledger, "ours") == 0
    assert sorted(each.name for each in path.parent.iterdir()) == ["alias.db", "spend.db"]


def test_a_file_that_is_renamed_in_use_is_spent_by_neither_name(path, elsewhere):
    moved = path.with_name("moved.db")
    with opened(path) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        path.rename(moved)
        refused = elsewhere(opened_and_spent, moved)
        assert isinstance(refused, LedgerConflict)
        assert "another one too" in str(refused)
        with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
            ledger.reserve("b", ONE, event=SECURE)
    assert opened_and_spent(moved) == N_PAID - 1  # the log was emptied into it when it was closed


def test_a_file_in_the_place_of_another_is_not_spent_by_who_has_the_other(path, tmp_path):
    with opened(path) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
    shutil.copy(path, tmp_path / "copy.db")
    with opened(path) as ledger:
        os.replace(tmp_path / "copy.db", path)
        with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
            ledger.reserve("b", ONE, event=SECURE)
        with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
            ledger.verify()


def test_a_file_that_is_moved_to_where_a_link_leads_now_keeps_its_lines(path, tmp_path, elsewhere):
    """The name is the same, and the file, but its log is beside the old one."""
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    link = tmp_path / "books"
    link.symlink_to("old")
    with opened(link / "spend.db") as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        (tmp_path / "old" / "spend.db").rename(tmp_path / "new" / "spend.db")
        link.unlink()
        link.symlink_to("new")
        with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
            ledger.reserve("b", ONE, event=SECURE)
        assert isinstance(elsewhere(opened_and_spent, link / "spend.db"), LedgerConflict)
    assert opened_and_spent(link / "spend.db") == N_PAID - 1


@pytest.mark.parametrize("of", ["folder", "file"])
def test_a_link_that_leads_to_a_copy_now_is_not_spent_by_who_has_the_other(tmp_path, of):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    opened_and_closed(tmp_path / "old" / "spend.db")
    shutil.copy(tmp_path / "old" / "spend.db", tmp_path / "new" / "spend.db")
    link = tmp_path / "books"
    end, path = ("", link / "spend.db") if of == "folder" else ("/spend.db", link)
    link.symlink_to(f"old{end}")
    with opened(path) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        link.unlink()
        link.symlink_to(f"new{end}")
        for act in (lambda: ledger.reserve("b", ONE, event=SECURE), ledger.verify):
            with pytest.raises(LedgerConflict, match="moved, removed or replaced"):
                act()


def test_who_was_refused_for_another_log_is_refused_again(path, elsewhere):
    assert elsewhere(opened_and_kept, path) is None
    lock = _inode.FileLock(path)
    lock.open()
    for end in ("-wal", "-shm"):
        path.with_name(f"spend.db{end}").unlink()
    for _ in range(2):
        with pytest.raises(LedgerConflict, match="The log of"):
            lock.hold_log()
    lock.close()


@pytest.mark.parametrize("ends", [["-wal"], ["-shm"], ["-wal", "-shm"]])
def test_a_log_that_is_removed_in_use_is_not_begun_again(path, elsewhere, ends):
    with opened(path) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        for end in ends:
            path.with_name(f"spend.db{end}").unlink()
        for _ in range(2):
            refused = elsewhere(opened_and_spent, path)
            assert "The log of" in str(refused)
            with pytest.raises(LedgerConflict, match="The log of"):
                ledger.reserve("b", ONE, event=SECURE)
    assert opened_and_spent(path) == N_PAID - 1


def test_a_place_with_a_name_in_other_letters_keeps_nobody_from_opening(path, monkeypatch, tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"30 1 8:1 / / rw - ext4 x rw\n31 30 0:9 / /media/caf\xe9 rw - vfat x rw\n")
    monkeypatch.setattr(_inode, "MOUNTS", mounts)
    opened_and_closed(path)


MOUNTED = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from tellers import Accountant, Budget, RdpCurve, SqliteLedger
from tellers.errors import LedgerConflict
ledger = SqliteLedger(sys.argv[2], Accountant(Budget(epsilon=1.0, delta=1e-5)))
ledger.reserve("a", RdpCurve.zcdp(0.001), event={"noise": "secure"})
for name in sys.argv[3:]:
    try:
        with SqliteLedger(name, ledger.accountant) as other:
            other.reserve(name, RdpCurve.zcdp(0.001), event={"noise": "secure"})
            print("shared" if ledger.count() == 2 else "SPENT TWICE")
    except LedgerConflict as error:
        print("refused" if "mounted by itself" in str(error) else error)
"""


def test_a_mounted_file_is_refused_and_a_mounted_folder_is_the_same(path, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.db").touch()
    opened(path).close()
    script = (
        f"mount --bind {path} {tmp_path / 'file.db'} && mount --bind {tmp_path} {tmp_path / 'folder'} && "
        f'exec {sys.executable} -c "$1" {":".join(filter(None, sys.path))} {path} {tmp_path / "file.db"} '
        f"{tmp_path / 'folder' / 'spend.db'}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", MOUNTED], capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this user may not mount")
    assert done.stdout.split() == ["refused", "shared"], done.stderr


def test_a_file_on_a_network_is_refused(path, monkeypatch, tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"30 1 8:1 / / rw - ext4 x rw\n31 30 0:9 / {tmp_path} rw - nfs4 host:/share rw\n")
    monkeypatch.setattr(_inode, "MOUNTS", mounts)
    with pytest.raises(OSError, match="Expected a local file system"):
        opened(path)
    assert not path.exists()


# --- Locks ---


def test_a_process_that_lost_sqlites_locks_does_not_lose_the_log(path, elsewhere):
    """Who opens and closes the file by itself loses SQLite's lock, and the next to close removes the log."""
    with opened(path) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        path.open("rb").close()
        assert elsewhere(opened_and_closed, path) is None
        ours = spend_all(ledger, "ours")
        assert (ours, elsewhere(opened_and_spent, path)) == (N_PAID - 1, 0)
    with opened(path) as ledger:
        assert ledger.count() == N_PAID
        ledger.verify()


def _hold_a_turn(path, begun, go_on, lose):
    append = sqlite.SqliteStore.append

    def slowly(store, lines):
        if any(line.key == "slow" for line in lines):
            if lose:
                path.open("rb").close()
                path.with_name("spend.db-shm").open("rb").close()
            begun.send(os.getpid())
            go_on.recv()
        append(store, lines)

    sqlite.SqliteStore.append = slowly
    with opened(path) as ledger:
        ledger.reserve("slow", ONE, event=SECURE)


@pytest.fixture
def in_a_turn(path):
    """Start a process that is in its turn, and stays there."""
    opened(path).close()
    children = []

    def start(*, lose=False):
        (told, begun), (go_on, wait) = FORK.Pipe(False), FORK.Pipe(False)
        children.append(FORK.Process(target=_hold_a_turn, args=(path, begun, go_on, lose)))
        children[-1].start()
        return told.recv(), wait, children[-1]

    yield start
    for child in children:
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
        child.join()


def test_two_are_never_in_a_turn_also_where_one_lost_sqlites_locks(path, in_a_turn):
    _, go_on, child = in_a_turn(lose=True)
    with opened(path, timeout=0.3) as ledger:
        with pytest.raises(TimeoutError, match=r"free within 0\.3 s"):
            ledger.reserve("b", ONE, event=SECURE)
        go_on.send(None)
        child.join(60)
        assert child.exitcode == 0
        ledger.reserve("b", ONE, event=SECURE)
        assert [entry.key for entry in ledger.entries()] == ["slow", "b"]
        ledger.verify()


def test_who_is_stopped_in_its_turn_is_waited_for_in_time_and_readers_go_on(path, in_a_turn):
    pid, go_on, child = in_a_turn()
    os.kill(pid, signal.SIGSTOP)
    with opened(path, timeout=1.0) as ledger:
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            ledger.reserve("b", ONE, event=SECURE)
        assert 0.9 < time.monotonic() - start < 1.3 + 1.0  # a busy machine has a second more
        assert (ledger.count(), ledger.find("a")) == (0, None)
        np.testing.assert_array_equal(ledger.spent.values, 0 * ONE.values)
        ledger.verify()
        go_on.send(None)
        os.kill(pid, signal.SIGCONT)
        child.join(60)
        ledger.reserve("b", ONE, event=SECURE)
        assert [entry.key for entry in ledger.entries()] == ["slow", "b"]


def test_who_is_killed_in_its_turn_leaves_it(path, in_a_turn):
    pid, _, child = in_a_turn()
    os.kill(pid, signal.SIGKILL)
    child.join(60)
    with opened(path, timeout=5) as ledger:
        ledger.reserve("b", ONE, event=SECURE)
        assert [entry.key for entry in ledger.entries()] == ["b"]


def test_a_place_that_was_left_is_taken_again(path, in_a_turn, elsewhere):
    """A thread that gave up leaves its process in the queue; the next one goes on from there, alone."""
    _, go_on, child = in_a_turn()
    with opened(path, timeout=0.2) as ledger, opened(path, timeout=20) as patient:
        for key in "ab":
            with pytest.raises(TimeoutError):
                ledger.reserve(key, ONE, event=SECURE)
        go_on.send(None)
        for key in "cde":
            patient.reserve(key, ONE, event=SECURE)
        child.join(60)
        # Nobody holds the lock for a thread that is not there any more.
        assert isinstance(elsewhere(opened_and_spent, path), int)
        assert patient.count() == N_PAID


def test_a_program_that_knows_no_turns_is_waited_for(path):
    with opened(path, timeout=0.3) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError):
            ledger.reserve("a", ONE, event=SECURE)
        other.execute("ROLLBACK")
        other.close()
        ledger.reserve("a", ONE, event=SECURE)


def _write_for(path, seconds, go, said):
    go.wait()
    waits, stop = [], time.monotonic() + seconds
    # Small questions: the budget must not end before the time does.
    with SqliteLedger(path, ACCOUNTANT, timeout=30) as ledger:
        while time.monotonic() < stop:
            start = time.monotonic()
            ledger.reserve(f"{os.getpid()} {len(waits)}", RdpCurve.zcdp(1e-9), event=SECURE)
            waits.append(time.monotonic() - start)
    said.put(waits)


@pytest.mark.campaign
def test_sixty_four_programs_on_one_file_all_get_their_turn(path):
    opened(path).close()
    go, said = FORK.Event(), FORK.Queue()
    children = [FORK.Process(target=_write_for, args=(path, 20, go, said)) for _ in range(64)]
    for child in children:
        child.start()
    go.set()
    waits = [said.get(timeout=120) for _ in children]
    for child in children:
        child.join(60)
    counts, every = [len(each) for each in waits], np.concatenate(waits)
    p50, p99, most = np.percentile(every, [50, 99, 100])
    print(f"{every.size} in all, {min(counts)} to {max(counts)} each; {p50:.2f} {p99:.2f} {most:.2f} s")
    assert min(counts) >= 3
    assert min(counts) >= np.median(counts) / 4  # nobody is left behind
    assert every.max() < 40  # the bound is 30
    with opened(path) as ledger:
        assert ledger.count() == every.size
        ledger.verify()
