"""Threads that ask together are written together: each has its own answer, and its own failure."""

import fcntl
import gc
import multiprocessing
import os
import resource
import signal
import sqlite3
import threading
import time
import weakref
from contextlib import suppress

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, MemoryLedger, RdpCurve, Release, SqliteLedger
from tellers.errors import BudgetExhausted, LedgerConflict, Unsettled
from tellers.ledger import _bills, sqlite
from tellers.ledger._turns import TurnQueue, TurnTask
from tellers.ledger.base import Ticket
from tellers.privacy._price import Item, Price, itemised, with_delta
from tellers.privacy.release import NoiseLevel

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))
N_PAID = ACCOUNTANT.n_affordable(ONE, 1000)


@pytest.fixture(params=["sqlite", "memory"])
def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger(ACCOUNTANT)
        return
    with SqliteLedger(tmp_path / "spend.db", ACCOUNTANT, timeout=30) as opened:
        yield opened


def until(true, seconds=30):
    """Wait for something that other threads do."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.001)


def together(ledger, asks, *, between=lambda: None):
    """Do all of it in one turn, in this order, and return what each got: None, or its error."""
    got = [None] * len(asks)

    def work(at, ask):
        try:
            ask()
        except BaseException as error:
            got[at] = error

    ledger._turns.hold()
    threads = []
    for at, ask in enumerate(asks):
        threads.append(threading.Thread(target=work, args=(at, ask)))
        threads[-1].start()
        until(lambda at=at: len(ledger._turns._waiting) == at + 1)
    between()
    ledger._turns.resume()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return got


def asking(ledger, *keys, price=ONE, **more):
    return [lambda key=key: ledger.reserve(key, price, event=SECURE, **more) for key in keys]


def test_those_who_wait_are_one_commit_and_pay_in_order(ledger, monkeypatch):
    n_commits, commit = [], ledger._commit
    monkeypatch.setattr(ledger, "_commit", lambda *given: (n_commits.append(1), commit(*given)))
    got = together(ledger, asking(ledger, *(f"q{k}" for k in range(N_PAID + 5))))
    assert len(n_commits) == 1
    assert got[:N_PAID] == [None] * N_PAID
    assert [type(error) for error in got[N_PAID:]] == [BudgetExhausted] * 5
    assert [entry.key for entry in ledger.entries()] == [f"q{k}" for k in range(N_PAID)]
    # Each was refused for its own question.
    assert [f"'q{N_PAID + k}'" in str(error) for k, error in enumerate(got[N_PAID:])] == [True] * 5
    ledger.verify()


def test_a_refusal_is_for_the_one_who_asked(ledger):
    ticket = ledger.reserve("settled", ONE, event=SECURE)
    ledger.settle(ticket, Release(np.array([1]), Cost(ONE)))
    open_one = ledger.reserve("open", ONE, event=SECURE)
    got = together(
        ledger,
        [
            *asking(ledger, "a", "settled", "open", "b", "b"),
            *asking(ledger, "dear", price=RdpCurve.zcdp(9.0)),
            *asking(ledger, "nobody's", also={"student/nobody": ONE}),
            lambda: ledger.settle(open_one, Release(np.array([0.5]), Cost(ONE))),
            lambda: ledger.settle(ticket, Release(np.array([1]), Cost(ONE))),
            lambda: ledger.open_account("student/alice", Budget(0.5, 1e-5)),
            *asking(ledger, "c", also={"student/alice": ONE}),
        ],
    )
    assert [type(error) for error in got] == [
        type(None), LedgerConflict, Unsettled, type(None), Unsettled, BudgetExhausted, LedgerConflict,
        TypeError, LedgerConflict, type(None), type(None),
    ]  # fmt: skip
    assert [entry.key for entry in ledger.entries()] == ["settled", "open", "a", "b", "c"]
    assert [entry.is_settled for entry in ledger.entries()] == [True, False, False, False, False]
    ledger.verify()


def test_a_key_that_cannot_be_stored_spoils_nothing(tmp_path):
    with SqliteLedger(tmp_path / "spend.db", ACCOUNTANT) as ledger:
        with pytest.raises(ValueError, match="whole characters"):
            ledger.reserve("half \ud83d", ONE, event=SECURE)
        ledger.reserve("whole \U0001f600", ONE, event=SECURE)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ticket: (Ticket("half \ud83d", ONE, SECURE), Release(np.array([1]), Cost(ONE)), None),
        lambda ticket: (Ticket(["a"], ONE, SECURE), Release(np.array([1]), Cost(ONE)), None),
        lambda ticket: (Ticket(object(), ONE, SECURE), Release(np.array([1]), Cost(ONE)), None),
        lambda ticket: (ticket, "no release", None),
        lambda ticket: (ticket, Release(np.array([1]), Cost(ONE)), 5),
    ],
    ids=["half a character", "a list", "an object", "no release", "no charges"],
)
def test_an_outcome_that_is_none_spoils_no_other(ledger, spoil):
    tickets = [ledger.reserve(key, ONE, event=SECURE) for key in "ab"]
    good = tickets[1], Release(np.array([7]), Cost(ONE)), None
    refusal, kept = ledger.settle_all([spoil(tickets[0]), good])
    assert isinstance(refusal, Exception)
    assert kept is None
    assert ledger.find("a") is None
    assert ledger.find("b").labels.tolist() == [7]
    ledger.verify()


def test_what_cannot_be_read_back_is_not_written(ledger):
    """Each is refused alone, before anything of it is written, and stays charged as it was reserved."""
    keys = "abcdefg"
    tickets = [ledger.reserve(key, ONE, event=SECURE) for key in keys]
    label = np.array([1])
    spoiled = [
        Release(np.array([2**64 - 1], dtype=np.uint64), Cost(0.1 * ONE)),
        Release(label, Cost(0.2 * ONE), values=np.array([np.nan])),
        Release(label, Cost(0.3 * ONE), values=np.array([1.5])),
        Release(label, Cost(0.4 * ONE), noise_level=NoiseLevel(np.float64("nan"), 1, 1)),
        Release(label, Cost(with_delta(0.5 * ONE, float("nan")))),
        Release(label, Cost(with_delta(0.6 * ONE, float("inf")))),
    ]
    good = Release(label, Cost(0.7 * ONE), values=np.array([[3]]), noise_level=NoiseLevel(1.0, 1, 1))
    outcomes = [(ticket, release, None) for ticket, release in zip(tickets, [*spoiled, good], strict=True)]
    told = ledger.settle_all(outcomes)
    assert [isinstance(error, (TypeError, ValueError)) for error in told] == [True] * 6 + [False]
    assert [ledger.find(key) is None for key in keys] == [True] * 6 + [False]
    np.testing.assert_allclose(ledger.spent.values, 6.7 * ONE.values)
    ledger.verify()


@pytest.mark.parametrize("n_levels", [101, 960, 100_000])
def test_an_event_that_only_some_programs_could_read_back_is_refused(ledger, n_levels):
    """Read from a deeper place in a program, it would end the ledger for all that comes after it."""

    def nested(n_levels):
        event = said = dict(SECURE)
        for _ in range(n_levels - 1):
            said["more"] = {}
            said = said["more"]
        return event

    with pytest.raises(TypeError, match="Expected an event"):
        ledger.reserve("a", ONE, event=nested(n_levels))
    assert ledger.count() == 0
    wide = {**nested(100), "mechanism": [[k] for k in range(200)]}
    ledger.reserve("a", ONE, event=wide)
    assert ledger.asked("a") == wide


ITEM = Item((ONE,))


@pytest.mark.parametrize(
    "strange",
    [
        with_delta(ONE, -1e-6),
        with_delta(ONE, float("nan")),
        Price.of([(2.5, ITEM, None)]),
        Price.of([(np.int64(2), ITEM, None)]),
        Price.of([(2, ITEM, np.int64(0))]),
        Price(ONE.orders, 4 * ONE.values, ((-3, ITEM, None), (5, Item((0.9 * ONE,)), None))),
        Price.of([(10**308, Item((RdpCurve.zero(),)), None)]),
    ],
    ids=[
        "negative delta",
        "no delta",
        "half an item",
        "a foreign count",
        "a foreign kind",
        "less",
        "too many",
    ],
)
def test_a_strange_price_is_refused_for_itself(ledger, strange):
    asked = [("a", ONE, SECURE, None), ("b", strange, SECURE, None), ("c", ONE, SECURE, None)]
    found = ledger.reserve_all(asked)
    assert [isinstance(each, Exception) for each in found] == [False, True, False]
    np.testing.assert_allclose(ledger.spent.values, 2 * ONE.values)
    ledger.verify()


def test_a_kind_in_another_type_of_number_is_that_kind(ledger):
    item = Item((0.5 * ONE, ONE))
    for k, kind in enumerate((np.int64(1), 1)):
        ledger.reserve(f"q{k}", item.price(kind), event=SECURE)
    np.testing.assert_allclose(ledger.spent.values, 2 * ONE.values)
    ledger.verify()


def test_a_curve_of_ones_own_leaves_nothing_to_the_garbage_collector():
    gc.disable()
    try:
        item = weakref.ref(itemised(0.5 * ONE).terms[0][1])
    finally:
        gc.enable()
    assert item() is None


def test_the_main_account_pays_the_price_whatever_the_others_pay(ledger):
    with pytest.raises(LedgerConflict, match="an account that was opened"):
        ledger.reserve("q", ONE, event=SECURE, also={None: RdpCurve.zero()})
    assert ledger.count() == 0


def test_an_event_that_is_forgotten_within_a_turn_is_written_once(ledger, monkeypatch):
    monkeypatch.setattr(_bills, "_MOST_KEPT", 4)
    events = [{**SECURE, "mechanism": f"m{k % 6}"} for k in range(14)]
    found = ledger.reserve_all([(f"q{k}", 0.01 * ONE, event, None) for k, event in enumerate(events)])
    assert all(isinstance(each, Ticket) for each in found)
    assert [line.kind for line in ledger.lines()].count("event") == 6
    assert [entry.event for entry in ledger.entries()] == events
    ledger.verify()


def test_a_last_line_that_cannot_be_written_ends_nothing(ledger):
    for write in (ledger.end, ledger.trust):
        with pytest.raises(ValueError, match="JSON"):
            write({"share": float("nan")})
    ledger.reserve("q", ONE, event=SECURE)


@pytest.mark.parametrize("begins", ["a\0", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "\0", "half \ud83d"])
def test_keys_are_listed_by_any_beginning(ledger, begins):
    for key in ("first", "a"):
        ledger.reserve(key, ONE, event=SECURE)
    assert ledger.entries(begins=begins) == []
    assert (ledger.find(begins), ledger.asked(begins)) == (None, None)
    if "half" not in begins:
        for key in (f"{begins}0", f"{begins}\U0010ffff", begins):
            ledger.reserve(key, ONE, event=SECURE)
            ledger.reserve(f"b{key}", ONE, event=SECURE)
            listed = [entry.key for entry in ledger.entries(begins=begins)]
            assert (len(listed), listed[-1]) == (ledger.count(begins), key)
        ledger._listed.clear()
        assert [entry.key for entry in ledger.entries(begins=begins)] == listed


def test_a_commit_that_fails_charges_nobody(tmp_path, monkeypatch):
    with SqliteLedger(tmp_path / "spend.db", ACCOUNTANT) as ledger:
        ledger.reserve("before", ONE, event=SECURE)
        append = sqlite.SqliteStore.append

        def full(store, lines):
            append(store, lines)
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(sqlite.SqliteStore, "append", full)
            got = together(ledger, asking(ledger, "a", "b", "c"))
        assert all(isinstance(error, OSError) and "Nothing was written" in str(error) for error in got)
        assert len({id(error) for error in got}) == 3  # an error of its own for each thread
        assert [entry.key for entry in ledger.entries()] == ["before"]
        assert together(ledger, asking(ledger, "a", "b", "c")) == [None] * 3
        np.testing.assert_allclose(ledger.spent.values, 4 * ONE.values)
        ledger.verify()


def _on_a_full_disk(path, said):
    with SqliteLedger(path, ACCOUNTANT, timeout=10) as ledger:
        ledger.reserve("before", ONE, event=SECURE)
        most = max(each.stat().st_size for each in path.parent.iterdir()) + 2000
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        got = together(ledger, asking(ledger, *"abcdefgh"))
        said.put([isinstance(error, OSError) for error in got])
        said.put([entry.key for entry in ledger.entries()])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        said.put([error is None for error in together(ledger, asking(ledger, *"abcdefgh"))])
        ledger.verify()
        said.put(len(ledger.entries()))


def test_a_disk_that_is_full_charges_nobody_and_is_survived(tmp_path):
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    child = fork.Process(target=_on_a_full_disk, args=(tmp_path / "spend.db", said))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert [said.get() for _ in range(4)] == [[True] * 8, ["before"], [True] * 8, 9]


def test_ctrl_c_is_for_the_one_who_wrote(ledger, monkeypatch):
    """The others are told that it is not known, as an error that can be handled."""

    def interrupted(*_given):
        raise KeyboardInterrupt

    kind = type(ledger._store) if isinstance(ledger, MemoryLedger) else sqlite.SqliteStore
    with monkeypatch.context() as patched:
        patched.setattr(kind, "append", interrupted)
        got = together(ledger, asking(ledger, "a", "b", "c"))
    assert [type(error) for error in got] == [KeyboardInterrupt, InterruptedError, InterruptedError]
    assert ledger.entries() == []
    assert together(ledger, asking(ledger, "a", "b", "c")) == [None] * 3


def test_ctrl_c_while_somebody_waits_holds_up_nobody():
    turns = TurnQueue(lambda _deadline, tasks: [task.what() for task in tasks()])

    def stop(*_given):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        turns.hold()
        main = threading.get_ident()

        def interrupt():
            until(lambda: turns._waiting)
            signal.pthread_kill(main, signal.SIGUSR1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            turns.take(TurnTask(lambda: None, time.monotonic() + 30))
        thread.join()
        turns.resume()
    finally:
        signal.signal(signal.SIGUSR1, before)
    done = []
    assert turns.take(TurnTask(lambda: done.append(1), time.monotonic() + 2))
    assert done == [1]


def all_in_one_turn(turns, n):
    """Let threads ask together, and return what each was told."""
    told = [None] * n

    def work(at):
        try:
            told[at] = turns.take(TurnTask(at, time.monotonic() + 30))
        except BaseException as error:
            told[at] = type(error)

    turns.hold()
    threads = []
    for at in range(n):
        threads.append(threading.Thread(target=work, args=(at,), daemon=True))
        threads[-1].start()
        until(lambda at=at: len(turns._waiting) == at + 1)
    turns.resume()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    return told


def test_ctrl_c_while_a_turn_ends_leaves_nobody_waiting():
    class Interrupted:
        """A lock in whose release the Ctrl-C comes."""

        def __init__(self, lock):
            self.lock, self.locked, self.n = lock, lock.locked, 0

        def release(self):
            self.n += 1
            if self.n == 1:
                raise KeyboardInterrupt
            self.lock.release()

    def act(_deadline, begin):
        tasks = begin()
        if len(tasks) > 1:
            tasks[2].woken = Interrupted(tasks[2].woken)

    turns = TurnQueue(act)
    assert all_in_one_turn(turns, 5) == [KeyboardInterrupt, True, True, True, True]
    assert turns.take(TurnTask("next", time.monotonic() + 2))


def test_ctrl_c_while_a_turn_fails_lets_nobody_believe_it_was_done():
    class Full(OSError):
        def __copy__(self):
            raise KeyboardInterrupt

    def act(_deadline, begin):
        begin()
        raise Full("No space left.")

    told = all_in_one_turn(TurnQueue(act), 5)
    assert True not in told
    assert told[0] is Full


@pytest.mark.parametrize("how", ["in a write", "in a look"])
def test_ctrl_c_while_a_transaction_begins_leaves_none_open(tmp_path, how):
    """SQLite waits without Python: what was pressed meanwhile is heard when the file is held."""

    class Interrupted:
        """A connection that is interrupted when it has begun."""

        def __init__(self, connection):
            self._connection = connection

        def __getattr__(self, name):
            return getattr(self._connection, name)

        def execute(self, statement, *given):
            found = self._connection.execute(statement, *given)
            if statement.startswith("BEGIN"):
                raise KeyboardInterrupt
            return found

    path = tmp_path / "spend.db"
    with (
        SqliteLedger(path, ACCOUNTANT, timeout=5) as ledger,
        SqliteLedger(path, ACCOUNTANT, timeout=5) as other,
    ):
        ledger.reserve("a", ONE, event=SECURE)
        purpose, act = {
            "in a write": ("writing", lambda: ledger.reserve("b", ONE, event=SECURE)),
            "in a look": ("looking", lambda: ledger.find("a")),
        }[how]
        connection = ledger._connections[purpose]
        ledger._connections[purpose] = Interrupted(connection)
        with pytest.raises(KeyboardInterrupt):
            act()
        ledger._connections[purpose] = connection
        other.reserve("c", ONE, event=SECURE)
        ledger.reserve("d", ONE, event=SECURE)
        assert [entry.key for entry in ledger.entries()] == ["a", "c", "d"]


@pytest.mark.parametrize("ends", [fcntl.LOCK_UN, fcntl.LOCK_EX | fcntl.LOCK_NB])
def test_ctrl_c_where_programs_take_turns_keeps_nobody_out(tmp_path, monkeypatch, ends):
    lock = fcntl.flock

    def interrupted(descriptor, how):
        lock(descriptor, how)
        if how == ends:
            patched.undo()
            raise KeyboardInterrupt

    path = tmp_path / "spend.db"
    with SqliteLedger(path, ACCOUNTANT, timeout=5) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.reserve("b", ONE, event=SECURE)
        descriptor = os.open(path, os.O_RDONLY)  # as another program, which would wait for its turn
        lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock(descriptor, fcntl.LOCK_UN)
        ledger.reserve("c", ONE, event=SECURE)
        os.close(descriptor)


def test_a_thread_waits_as_long_as_it_said_and_takes_its_question_back(tmp_path):
    with SqliteLedger(tmp_path / "spend.db", ACCOUNTANT, timeout=0.5) as ledger:
        begun = []

        def late():
            time.sleep(0.7)  # those who wait have given up by then
            begun.append(time.monotonic())

        start = time.monotonic()
        got = together(ledger, asking(ledger, "a", "b"), between=late)
        assert [type(error) for error in got] == [TimeoutError] * 2
        assert begun[0] - start < 5
        assert ledger.entries() == []
        ledger.reserve("a", ONE, event=SECURE)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_all_of_it_is_read(tmp_path):
    """Between two pages nothing of the reader is open, which a child would take for its own."""
    with SqliteLedger(tmp_path / "spend.db", ACCOUNTANT) as ledger:
        for key in "abc":
            ledger.reserve(key, ONE, event=SECURE)
        lines = ledger.lines()
        first = next(lines)
        child = multiprocessing.get_context("fork").Process(
            target=lambda: ledger.reserve("child", ONE, event=SECURE)
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert [first.kind, *(line.kind for line in lines)].count("reserved") == 4
        assert ledger.find("child") is None
        assert ledger.count() == 4


@pytest.fixture
def heard():
    """Let Ctrl-C interrupt, also where tests run in the background, whose shells have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("thread", ["the main one", "another"])
def test_ctrl_c_while_a_fork_waits_for_a_turn_is_heard_after_it(tmp_path, thread):
    """What a hook of a fork raises is not raised: the child would have the files of its parent open."""
    exits = []

    def fork():
        child = os.fork()
        if not child:
            os._exit(len(ledger._connections))
        exits.append(os.waitpid(child, 0)[1])

    def interrupt():
        until(lambda: ledger._turns._waiting)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        ledger._turns.resume()

    with SqliteLedger(tmp_path / "spend.db", ACCOUNTANT, timeout=10) as ledger:
        ledger.reserve("a", ONE, event=SECURE)
        ledger._turns.hold()
        threads = [threading.Thread(target=interrupt)]
        if thread == "another":
            threads.append(threading.Thread(target=fork))

        def go():
            for one in threads:
                one.start()
            if thread == "the main one":
                fork()
            time.sleep(30)

        with pytest.raises(KeyboardInterrupt):
            go()
        for one in threads:
            one.join()
        assert exits == [0]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert together(ledger, asking(ledger, "b", "c")) == [None, None]
        SqliteLedger(tmp_path / "another.db", ACCOUNTANT).close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list open files")
def test_no_descriptor_is_left_open(tmp_path):
    def one(n):
        ledger = SqliteLedger(tmp_path / f"{n}.db", ACCOUNTANT)
        ledger.reserve("a", ONE, event=SECURE)
        ledger.verify()
        return ledger

    def n_open():  # of ours: what other tests left may be closed at any time
        found = 0
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                found += os.readlink(f"/proc/self/fd/{number}").startswith(str(tmp_path))
        return found

    with one("open"):
        assert n_open()
    for n in range(5):
        one(n).close()
        with one(n + 10) as ledger:
            next(ledger.lines())  # left in the middle
        forgotten = one(n + 20)
        del forgotten
        with pytest.raises(LedgerConflict):
            SqliteLedger(tmp_path / f"{n}.db", Accountant(Budget(2.0, 1e-5)))
        (tmp_path / f"{n}.txt").write_text("no ledger" * 100)
        with pytest.raises(LedgerConflict):
            SqliteLedger(tmp_path / f"{n}.txt", ACCOUNTANT)
    gc.collect()
    one("last").close()
    assert not n_open()


def test_closing_while_others_ask_loses_nothing(tmp_path):
    ledger = SqliteLedger(tmp_path / "spend.db", ACCOUNTANT)
    asked, stop = [], threading.Event()

    def work(who):
        while not stop.is_set() and len(asked) < N_PAID - 4:
            key = f"{who} {len(asked)} {time.monotonic()}"
            ledger.reserve(key, ONE, event=SECURE)
            asked.append(key)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(asked) > 3)
    for _ in range(10):
        ledger.close()
    stop.set()
    for thread in threads:
        thread.join()
    with ledger:
        assert {entry.key for entry in ledger.entries()} == set(asked)
        ledger.verify()


@pytest.mark.parametrize("look", ["recall", "find", "entries", "spent"])
def test_who_looks_while_another_writes_is_told_of_no_lost_lines(tmp_path, monkeypatch, look):
    """What is written after a look began is in what is shown, and not in what that look sees."""
    ledger = SqliteLedger(tmp_path / "spend.db", ACCOUNTANT)
    ledger.settle(ledger.reserve("q0", ONE, event=SECURE), Release(np.array([3]), Cost(ONE)))
    other = SqliteLedger(tmp_path / "spend.db", ACCOUNTANT)
    other.settle(other.reserve("q1", ONE, event=SECURE), Release(np.array([4]), Cost(ONE)))  # unseen so far
    begun = []

    def writes_meanwhile(method):
        def inner(self, *given, **named):
            found = method(self, *given, **named)
            if not begun:
                begun.append(1)
                writer = threading.Thread(target=ledger.reserve, args=("q2", ONE), kwargs={"event": SECURE})
                writer.start()
                writer.join(30)
                assert not writer.is_alive()
            return found

        return inner

    for name in ("named", "head", "of_kind"):
        monkeypatch.setattr(sqlite.SqliteStore, name, writes_meanwhile(getattr(sqlite.SqliteStore, name)))
    found = {
        "recall": lambda: sorted(ledger.recall(["q0", "q1"])[0]),
        "find": lambda: ledger.find("q1").labels.tolist(),
        "entries": lambda: [entry.key for entry in ledger.entries()][:2],
        "spent": lambda: ledger.spent.values[0] >= 2 * ONE.values[0],
    }[look]()
    assert found == {"recall": ["q0", "q1"], "find": [4], "entries": ["q0", "q1"], "spent": True}[look]
    assert begun
    ledger.verify()


def test_storage_that_fails_in_a_turn_fails_the_turn_and_is_no_refusal(tmp_path, monkeypatch):
    """Each of them would else be told of a transaction that is gone, and a lost connection stay lost."""
    ledger = SqliteLedger(tmp_path / "spend.db", ACCOUNTANT)
    ledger.reserve("q0", ONE, event=SECURE)
    named = sqlite.SqliteStore.named

    def fails(self, kind, keys):
        if kind == "event":
            raise sqlite3.OperationalError("disk I/O error")
        return named(self, kind, keys)

    monkeypatch.setattr(sqlite.SqliteStore, "named", fails)
    price = {"event": {**SECURE, "parameters": {"sigma": 2.0}}}  # a part that was not met before is looked up
    with pytest.raises(OSError, match="Nothing was written"):
        ledger.reserve("q1", ONE, **price)
    monkeypatch.undo()
    ledger.reserve("q1", ONE, **price)
    assert [entry.key for entry in ledger.entries()] == ["q0", "q1"]
