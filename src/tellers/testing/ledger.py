"""`check_ledger`: the contract of a ledger, with races between threads and processes, and kills."""

import contextlib
import io
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..errors import BudgetExhausted, InsecureNoise, LedgerConflict
from ..ledger._chain import ChainedLedger
from ..ledger.base import Ledger, Ticket, group_account
from ..ledger.opening import export_ledger, import_ledger
from ..privacy._clock import Clock, ClockTable
from ..privacy._price import Item
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, Release
from ..privacy.sealed import Sealed
from ._require import require

T = TypeVar("T")
MakeLedger = Callable[[str, Accountant], Ledger]

ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))
ONE = RdpCurve.zcdp(0.001)
EVENT: dict[str, Any] = {
    "mechanism": "GNMax",
    "parameters": {"sigma": 40.0},
    "noise": "secure",
    "unit": "one ballot",
}


def outcome(cost: RdpCurve = ONE, label: int = 3) -> Release:
    return Release(np.array([label]), Cost(cost))


def require_spent(ledger: Ledger, expected: RdpCurve, when: str) -> None:
    """Require that a curve of debits is what it should be."""
    same = np.allclose(ledger.spent.values, expected.values, rtol=1e-9, atol=0)
    wanted, got = (ACCOUNTANT.epsilon(curve) for curve in (expected, ledger.spent))
    require(same, f"Expected `spent` to be {wanted:.6g} {when}, got {got:.6g}.")


def require_refused(
    error: type[Exception], what: str, act: Callable[..., Any], *given: Any, **named: Any
) -> None:
    try:
        act(*given, **named)
    except error:
        return
    except Exception as other:
        raise AssertionError(f"Expected {error.__name__} for {what}, got {type(other).__name__}.") from other
    raise AssertionError(f"Expected {error.__name__} for {what}, it was accepted.")


def twentieth(accountant: Accountant) -> RdpCurve:
    """Return a price of which exactly 20 fit into a budget."""
    rho = accountant.value_left(RdpCurve.zero()) / accountant.held_at
    return RdpCurve.zcdp(rho * (1 - 1e-9) / 20)


def ask_until_refused(
    ledger: Ledger, worker: str, share: RdpCurve, also: dict[str, RdpCurve] | None = None
) -> list[str]:
    """Reserve and settle until a budget says no; return the keys that were granted."""
    granted = []
    with contextlib.suppress(BudgetExhausted):
        for n in range(100):
            ticket = ledger.reserve(f"{worker}-{n}", share, event=EVENT, also=also)
            granted.append(ticket.key)
            ledger.settle(ticket, outcome(share))
    return granted


def require_race(n_granted: int, spent: RdpCurve, accountant: Accountant, who: str) -> None:
    """Require that whoever raced was granted what a budget affords, 20 prices, and no more."""
    within = accountant.affords(spent, RdpCurve.zero())
    require(within, f"Expected racing {who} to stay within the budget; they overdrew it.")
    require(n_granted == 20, f"Expected racing {who} to be granted what fits, 20, got {n_granted}.")


def fork(act: Callable[..., None], *given: Any) -> multiprocessing.process.BaseProcess:
    # Not spawn: what opens the ledger may be a lambda, and a fork is the harder test of a connection.
    process = multiprocessing.get_context("fork").Process(target=act, args=given, daemon=True)
    process.start()
    return process


def receive(connection: Any, what: str) -> Any:
    """Return the next word of another process."""
    with contextlib.suppress(EOFError):
        if connection.poll(120):
            return connection.recv()
    raise AssertionError(f"Expected another process to {what}; it failed or hangs.")


def kill(process: multiprocessing.process.BaseProcess) -> None:
    if process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def race_threads(n_threads: int, ask: Callable[[int], T]) -> list[T]:
    """Let threads do the same at once, and return what each of them got."""
    start, found, errors = threading.Barrier(n_threads), list[T](), list[BaseException]()

    def run(worker: int) -> None:
        start.wait()
        try:
            found.append(ask(worker))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    require(not errors, f"Expected threads to share a ledger, got {errors[:1]!r}.")
    return found


def race_processes(n_workers: int, ask: Callable[[int], int], what: str) -> int:
    """Let processes do the same at once, and return the sum of what they got."""
    context = multiprocessing.get_context("fork")
    start, (ours, theirs), speaking = context.Barrier(n_workers), context.Pipe(), context.Lock()

    def run(worker: int) -> None:
        start.wait(60)  # before opening: making the ledger is a race too
        found = ask(worker)
        with speaking:
            theirs.send(found)

    processes = [fork(run, worker) for worker in range(n_workers)]
    theirs.close()
    total: int = sum(receive(ours, what) for _ in processes)
    for process in processes:
        process.join()
    return total


# --- Named accounts ---

_AMPLE = Accountant(Budget(epsilon=50.0, delta=1e-5))
_SMALL = Budget(epsilon=0.5, delta=1e-5)
_ALICE, _GROUP = "student/alice", "cohort/low"


def _opened(make_ledger: MakeLedger, name: str) -> Ledger:
    ledger = make_ledger(name, _AMPLE)
    ledger.open_account(_ALICE, _SMALL)
    ledger.open_account(_GROUP, Budget(epsilon=1.0, delta=1e-6))
    return ledger


def _require_paid(ledger: Ledger, when: str, *, main: float, alice: float, group: float = 0.0) -> None:
    require_spent(ledger, main * ONE, when)
    accounts = ledger.accounts()
    for name, times in ((_ALICE, alice), (_GROUP, group)):
        paid = accounts[name].spent
        same = np.allclose(paid.values, (times * ONE).values, rtol=1e-9, atol=0)
        got = float(paid.values[0] / ONE.values[0])
        require(same, f"Expected account {name!r} to be debited {times:g} prices {when}, got {got:.6g}.")


def _check_opening(make_ledger: MakeLedger) -> None:
    with make_ledger("opening accounts", _AMPLE) as ledger:
        require(ledger.accounts() == {}, "Expected new books to have no named accounts.")
        ledger.open_account(_ALICE, _SMALL)
        ledger.open_account(_ALICE, _SMALL)  # once more, the same: nothing happens
        for other in (Budget(epsilon=0.6, delta=1e-5), Budget(epsilon=0.5, delta=1e-6)):
            require_refused(
                LedgerConflict, "an account opened with another budget", ledger.open_account, _ALICE, other
            )
        accounts = ledger.accounts()
        require(list(accounts) == [_ALICE], f"Expected one account, got {list(accounts)}.")
        require(
            accounts[_ALICE].budget == _SMALL, "Expected an account to keep the budget it was opened with."
        )
        order = Accountant(_SMALL).held_at
        require(
            accounts[_ALICE].held_at == order, "Expected an account to be held at its own budget's order."
        )
        require_refused(
            LedgerConflict, "an account that was never opened",
            ledger.reserve, "q0", ONE, event=EVENT, also={_ALICE: ONE, "student/bob": ONE},
        )  # fmt: skip
        require_spent(ledger, 0 * ONE, "after an unknown account was refused")
        require(ledger.entries() == [], "Expected nothing on record of a question on an unknown account.")


def _check_all_or_nothing(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "all or nothing") as ledger:
        over = 100 * ONE
        # Whichever comes first in the list: no account may have paid when the other refuses.
        for also in ({_GROUP: ONE, _ALICE: over}, {_ALICE: over, _GROUP: ONE}):
            try:
                ledger.reserve("q0", ONE, event=EVENT, also=also)
            except BudgetExhausted as refusal:
                named = _ALICE in str(refusal) and refusal.account == _ALICE
                require(named, f"Expected the refusal to name the account that cannot pay, got: {refusal}")
            else:
                raise AssertionError("Expected BudgetExhausted for a named account past its budget.")
            _require_paid(ledger, "after a named account refused", main=0, alice=0)
        beyond = 100_000 * ONE
        require_refused(
            BudgetExhausted, "a price past the main budget",
            ledger.reserve, "q0", beyond, event=EVENT, also={_ALICE: ONE},
        )  # fmt: skip
        _require_paid(ledger, "after the main account refused", main=0, alice=0)
        require(ledger.entries() == [], "Expected nothing on record of questions that an account refused.")
        ticket = ledger.reserve("q0", ONE, event=EVENT, also={_ALICE: 2 * ONE, _GROUP: ONE})
        _require_paid(ledger, "between reserve and settle", main=1, alice=2, group=1)
        require(dict(ticket.also).keys() == {_ALICE, _GROUP}, "Expected a ticket to say which accounts pay.")


def _check_groups(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "groups of people") as ledger:
        ledger.reserve("before", ONE, event=EVENT)
        low, high = group_account("low"), group_account("high")
        for name in (low, high):
            ledger.open_account(name, _SMALL)
        some: tuple[dict[str, RdpCurve], ...] = ({}, {_ALICE: ONE}, {low: ONE, _ALICE: ONE})
        for also in some:
            require_refused(
                LedgerConflict, "a question that a group of people does not pay for",
                ledger.reserve, "q0", ONE, event=EVENT, also=also,
            )  # fmt: skip
        _require_paid(ledger, "after a group that would not have paid", main=1, alice=0)
        ledger.reserve("q0", ONE, event=EVENT, also={low: ONE, high: 2 * ONE})
        ledger.reserve("q1", ONE, event={**EVENT, "groups": {"absent": ["low"]}}, also={high: ONE})
        spent = [float(ledger.accounts()[name].spent.values[0] / ONE.values[0]) for name in (low, high)]
        require(np.allclose(spent, [1, 3]), f"Expected groups to pay 1 and 3 prices, got {spent}.")


def _check_refunds(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "refunds") as ledger:
        ticket = ledger.reserve("q0", 4 * ONE, event=EVENT, also={_ALICE: 4 * ONE, _GROUP: 3 * ONE})
        ledger.settle(ticket, outcome())
        _require_paid(
            ledger,
            "after settling for less: back to the account with the same price, all kept of another",
            main=1,
            alice=1,
            group=3,
        )
        ticket = ledger.reserve("q1", 4 * ONE, event=EVENT, also={_ALICE: 4 * ONE, _GROUP: 3 * ONE})
        ledger.settle(ticket, outcome(), used={_ALICE: 2 * ONE, _GROUP: 0 * ONE})
        _require_paid(ledger, "after settling with what each account used", main=2, alice=3, group=3)
        require_refused(LedgerConflict, "a second settlement", ledger.settle, ticket, outcome(0 * ONE, 4))
        _require_paid(ledger, "after a second settlement was refused", main=2, alice=3, group=3)
        first, second = ledger.entries()
        shown = [
            (name, [float(c.values[0] / ONE.values[0]) for c in (paid.reserved, paid.charged)])
            for entry in (first, second)
            for name, paid in sorted(entry.also.items())
        ]
        expected = [(_GROUP, [3, 3]), (_ALICE, [4, 1]), (_GROUP, [3, 0]), (_ALICE, [4, 2])]
        same = [n for n, _ in shown] == [n for n, _ in expected] and np.allclose(
            [v for _, v in shown], [v for _, v in expected]
        )
        require(same, f"Expected entries to say what every account was reserved and charged, got {shown}.")


def _check_overruns(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "overruns") as ledger:
        ticket = ledger.reserve("q0", ONE, event=EVENT, also={_ALICE: ONE})
        require_refused(
            LedgerConflict, "a charge to an account that was not reserved",
            ledger.settle, ticket, outcome(), used={_GROUP: ONE},
        )  # fmt: skip
        shifted = RdpCurve(ONE.orders + 0.001, 0.5 * ONE.values)
        require_refused(
            LedgerConflict, "what an account used on other orders",
            ledger.settle, ticket, outcome(), used={_ALICE: shifted},
        )  # fmt: skip
        _require_paid(ledger, "after charges that make no sense were refused", main=1, alice=1)
        require_refused(
            LedgerConflict, "an account that used more than was reserved on it",
            ledger.settle, ticket, outcome(), used={_ALICE: 3 * ONE},
        )  # fmt: skip
        _require_paid(
            ledger, "after an account used more than was reserved, charged in full", main=1, alice=3
        )
        require(ledger.find("q0") is None, "Expected no record of a release that cost an account too much.")


def _require_race(ledger: Ledger, n_granted: int, who: str) -> None:
    state = ledger.accounts()[_ALICE]
    require_race(n_granted, state.spent, state.accountant, f"{who} on an account")
    require_spent(ledger, state.spent, f"when {who} raced for one account, as much as that account")


def _check_threads_on_an_account(make_ledger: MakeLedger) -> None:
    share = twentieth(Accountant(_SMALL))
    with _opened(make_ledger, "threads on an account") as ledger:
        mine = race_threads(3, lambda worker: ask_until_refused(ledger, f"{worker}", share, {_ALICE: share}))
        _require_race(ledger, sum(map(len, mine)), "threads")


# --- Main account ---
#
# `check_ledger` goes through the contract of a backend: what it refuses, what it keeps, what it gives back.
# It races threads and processes against one budget, and kills writers between reserve and settle and at any
# other moment, to see that no charge is lost and nothing is paid twice.


def check_ledger(make_ledger: MakeLedger, *, durable: bool = True, n_kills: int = 5) -> None:
    """Raise AssertionError if a ledger breaks a promise, saying which one.

    `make_ledger(name, accountant)` opens the books of that name: new ones for a new name, and those that are
    there for a name it has seen. `durable=False` is for a ledger that is gone with its process: it is not
    opened twice, and no process is killed. Books are left behind; make them where they may be thrown away.

    Guarantee: it raises for a ledger that breaks one of the promises in the one way that is tried here.
    Assumes:   a system that can fork, or the checks with several processes are left out. Races and kills come
               at moments nobody chose: a ledger that passes may still lose the next one.
    Reference: the page about the ledger in the documentation, "What every ledger promises".

    >>> from tellers import MemoryLedger
    >>> check_ledger(lambda name, accountant: MemoryLedger(accountant), durable=False)
    """
    for check in (
        _check_refusals, _check_settling, _check_keys, _check_records, _check_threads, _check_opening,
        _check_all_or_nothing, _check_groups, _check_refunds, _check_overruns, _check_threads_on_an_account,
        _check_ticks, _check_clock_accounts, _check_clock_refusals, _check_clock_overruns, _check_events,
        _check_clock_export,
    ):  # fmt: skip
        check(make_ledger)
    if durable:
        _check_reopening(make_ledger)
        _check_clock_reopening(make_ledger)
        if hasattr(os, "fork"):
            _check_killed_between(make_ledger)
            _check_killed_anywhere(make_ledger, n_kills)
            _check_processes(make_ledger)
            _check_clock_killed_and_raced(make_ledger)


def _check_refusals(make_ledger: MakeLedger) -> None:
    with make_ledger("refusals", ACCOUNTANT) as ledger:
        require_spent(ledger, 0 * ONE, "at first")
        require(ledger.find("q0") is None and ledger.entries() == [], "Expected new books to be empty.")
        over = 21 * twentieth(ACCOUNTANT)
        require_refused(BudgetExhausted, "a price past the budget", ledger.reserve, "q0", over, event=EVENT)
        for event in ({**EVENT, "noise": "seeded"}, {"mechanism": "GNMax"}):
            require_refused(InsecureNoise, "noise that is not secure", ledger.reserve, "q0", ONE, event=event)
        other = RdpCurve.zcdp(0.001, orders=[2.0, 3.0])
        require_refused(ValueError, "other orders", ledger.reserve, "q0", other, event=EVENT)
        require_spent(ledger, 0 * ONE, "after refused queries")
        require(ledger.entries() == [], "Expected nothing on record of refused queries.")
        ledger.reserve("q0", ONE, event=EVENT)  # the key is still free


def _check_settling(make_ledger: MakeLedger) -> None:
    with make_ledger("settling", ACCOUNTANT) as ledger:
        ticket = ledger.reserve("q0", 3 * ONE, event=EVENT)
        require_spent(ledger, 3 * ONE, "between reserve and settle")
        require(ledger.find("q0") is None, "Expected no release before it is settled.")
        require(
            ledger.asked("q0") == EVENT and ledger.asked("q1") is None,
            "Expected `asked` to return the event of a key on the books, and None for another.",
        )
        ledger.settle(ticket, outcome())
        require(ledger.asked("q0") == EVENT, "Expected `asked` to return the event of a settled key too.")
        require_spent(ledger, ONE, "after settling for less: what was not used flows back")
        with make_ledger("carried over", ACCOUNTANT) as other:
            other.reserve("before", ledger.spent, event=EVENT)
            other.reserve("q0", ledger.spent + ONE, event=EVENT)
            require_spent(other, 3 * ONE, "after what another ledger spent was reserved, alone and in a sum")
        require_refused(LedgerConflict, "a second settlement", ledger.settle, ticket, outcome(0 * ONE, 4))
        require_spent(ledger, ONE, "after a second settlement was refused")

        ticket = ledger.reserve("q1", ONE, event=EVENT)
        shifted = RdpCurve(ONE.orders + 0.001, 0.5 * ONE.values)
        require_refused(LedgerConflict, "a cost on other orders", ledger.settle, ticket, outcome(shifted))
        require_spent(ledger, 2 * ONE, "after a cost on other orders was refused")

        # The labels are out by then: refusing to charge would not call them back.
        ledger.reserve("q2", ONE, event=EVENT)
        forged = Ticket("q2", 1000 * ONE, EVENT)
        for cost in (2 * ONE, 0 * ONE):
            what = "a cost above the price on the books, and every attempt after it"
            require_refused(LedgerConflict, what, ledger.settle, forged, outcome(cost))
            require_spent(ledger, 4 * ONE, "after a cost above its price, charged in full")
        require(ledger.find("q2") is None, "Expected no record of a release that cost more than its price.")


def _check_keys(make_ledger: MakeLedger) -> None:
    with make_ledger("keys", ACCOUNTANT) as ledger:
        unknown = Ticket("q0", ONE, EVENT)
        require_refused(LedgerConflict, "an unknown ticket", ledger.settle, unknown, outcome())
        ticket = ledger.reserve("q0", ONE, event=EVENT)
        for state in ("reserved", "settled"):
            require_refused(LedgerConflict, f"a key that is {state}", ledger.reserve, "q0", ONE, event=EVENT)
            require_spent(ledger, ONE, f"after a key that is {state} was refused")
            if state == "reserved":
                ledger.settle(ticket, outcome())
        for n in range(3):
            found = ledger.find("q0")
            require(found is not None and found.labels.tolist() == [3], "Expected the recorded release.")
            require_spent(ledger, ONE, f"after {n + 1} questions with the same key")
        for other in ("Q0", "q0 ", "q\u0660"):
            try:
                ledger.reserve(other, ONE, event=EVENT)
            except LedgerConflict as error:
                raise AssertionError(f"Expected 'q0' and {other!r} to be two keys.") from error
        require_spent(ledger, 4 * ONE, "after four keys")


def _check_records(make_ledger: MakeLedger) -> None:
    with make_ledger("records", ACCOUNTANT) as ledger:
        key = "a key that no file is called"  # the books may be at a path of random letters
        event: dict[str, Any] = {**EVENT, "parameters": {"sigma": 40.0}}
        labels = np.array([3, -1, 1])
        ticket = ledger.reserve(key, ONE, event=event)
        for given in (event, ticket.event):
            given["parameters"]["sigma"] = 1.0
        sealed = Cost(ONE, Sealed(0.5 * ONE))
        ledger.settle(ticket, Release(labels, sealed, np.array([True, False, False])))
        labels[:] = 9
        ledger.reserve("q1", ONE, event=EVENT)
        for _ in range(2):
            found = ledger.find(key)
            require(found is not None, "Expected a release on record.")
            assert found is not None  # for the type checker
            kept = found.labels.tolist() == [3, -1, 1] and found.answered.tolist() == [True, False, False]
            require(kept, "Expected the record to be a copy of what was released, nobody can change it.")
            same = np.array_equal(found.cost.worst.values, ONE.values)
            require(same, "Expected the record to hold the public cost, bit for bit.")
            require(found.cost.tight is None, "Expected sealed costs not to be kept.")
            with contextlib.suppress(ValueError):  # what cannot be written to is as good as a copy
                found.labels[:] = 7
        entries = ledger.entries()
        shown = [(e.key, e.is_settled, e.release is not None) for e in entries]
        require(shown == [(key, True, True), ("q1", False, False)], f"Expected {key!r} and q1, got {shown}.")
        require(entries[0].event == EVENT, "Expected an event to stay what it was when it was reserved.")
        require(key not in repr(ledger), "Expected a repr that shows no key.")


def _check_reopening(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "reopening") as ledger:
        ticket = ledger.reserve("q0", 3 * ONE, event=EVENT, also={_ALICE: 3 * ONE})
        ledger.settle(ticket, outcome())
        ledger.reserve("q1", ONE, event=EVENT)
        with make_ledger("reopening", _AMPLE) as second:
            require_spent(second, 2 * ONE, "on the same books, opened again")
            second.reserve("q2", ONE, event=EVENT, also={_ALICE: ONE, _GROUP: 2 * ONE})
        when = "after somebody else reserved on the same books and accounts"
        _require_paid(ledger, when, main=3, alice=2, group=2)
    with make_ledger("reopening", _AMPLE) as ledger:
        when = "on books and accounts that were closed and opened again"
        _require_paid(ledger, when, main=3, alice=2, group=2)
        found = ledger.find("q0")
        require(found is not None and found.labels.tolist() == [3], "Expected the release after reopening.")
        require([e.key for e in ledger.entries()] == ["q0", "q1", "q2"], "Expected all entries, in order.")
        require(ledger.entries()[0].event == EVENT, "Expected the event after reopening.")
        require(ledger.accounts()[_ALICE].budget == _SMALL, "Expected an account's budget after reopening.")
        other = Budget(epsilon=9.0, delta=1e-5)
        require_refused(LedgerConflict, "another budget after reopening", ledger.open_account, _ALICE, other)
    for budget in (Budget(epsilon=2.0, delta=1e-5), Budget(epsilon=50.0, delta=1e-4)):
        require_refused(LedgerConflict, "another budget", make_ledger, "reopening", Accountant(budget))


def _check_threads(make_ledger: MakeLedger) -> None:
    share, n_threads = twentieth(ACCOUNTANT), 4
    with make_ledger("threads", ACCOUNTANT) as ledger:

        def ask(worker: int) -> list[str]:
            mine = ask_until_refused(ledger, f"{worker}", share)
            with contextlib.suppress(LedgerConflict, BudgetExhausted):
                ledger.reserve("the same", 0 * share, event=EVENT)
                mine.append("the same")
            return mine

        granted = [key for mine in race_threads(n_threads, ask) for key in mine]
        once = granted.count("the same")
        require(once == 1, f"Expected a key to be given to one of {n_threads} threads, got {once}.")
        require_race(len(granted) - once, ledger.spent, ACCOUNTANT, "threads")


def _check_killed_between(make_ledger: MakeLedger) -> None:
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def reserve_and_hang() -> None:
        with _opened(make_ledger, "killed with accounts") as ledger:
            ledger.reserve("q0", ONE, event=EVENT, also={_ALICE: ONE, _GROUP: 2 * ONE})
            theirs.send("reserved")
            time.sleep(600)

    process = fork(reserve_and_hang)
    theirs.close()
    try:
        receive(ours, "reserve")
    finally:
        kill(process)
    with make_ledger("killed with accounts", _AMPLE) as ledger:
        when = "after a kill between reserve and settle, which every account stays charged for"
        _require_paid(ledger, when, main=1, alice=1, group=2)
        require(ledger.find("q0") is None, "Expected no release of a question that was never settled.")
        require_refused(LedgerConflict, "the key of a killed writer", ledger.reserve, "q0", ONE, event=EVENT)


def _check_killed_anywhere(make_ledger: MakeLedger, n_kills: int) -> None:
    rng = np.random.default_rng(7)
    one = 0.001 * ONE
    acknowledged: dict[str, str] = {}
    for turn in range(n_kills):
        ours, theirs = multiprocessing.get_context("fork").Pipe()

        def write(turn: int = turn, theirs: Any = theirs) -> None:
            with make_ledger("chaos", ACCOUNTANT) as ledger:
                for n in range(100_000):
                    ticket = ledger.reserve(f"{turn}-{n}", one, event=EVENT)
                    theirs.send((ticket.key, "reserved"))
                    ledger.settle(ticket, outcome(one, label=n))
                    theirs.send((ticket.key, "settled"))

        process = fork(write)
        theirs.close()
        try:
            acknowledged.update([receive(ours, "reserve")])
            until = time.monotonic() + rng.uniform(0, 0.1)
            while time.monotonic() < until:
                acknowledged.update([receive(ours, "go on writing")])
        finally:
            kill(process)
        with contextlib.suppress(EOFError, OSError):  # what was said before the kill, perhaps half a word
            while ours.poll():
                acknowledged.update([ours.recv()])
    with make_ledger("chaos", ACCOUNTANT) as ledger:
        entries = {entry.key: entry for entry in ledger.entries()}
        require_spent(ledger, len(entries) * one, f"after {n_kills} kills, with {len(entries)} entries")
        for key, state in acknowledged.items():
            require(key in entries, f"Expected {key!r} on the books, which was reserved before a kill.")
            release = entries[key].release
            found = release is not None and release.labels.tolist() == [int(key.partition("-")[2])]
            require(found or state == "reserved", f"Expected the release of {key!r}, settled before a kill.")


def _check_processes(make_ledger: MakeLedger) -> None:
    """Race processes for the main account, then for a named one."""
    share, small = twentieth(ACCOUNTANT), twentieth(Accountant(_SMALL))

    def ask(worker: int) -> int:
        with make_ledger("processes", ACCOUNTANT) as ledger:
            return len(ask_until_refused(ledger, f"{worker}", share))

    def ask_account(worker: int) -> int:
        with _opened(make_ledger, "processes on an account") as ledger:
            return len(ask_until_refused(ledger, f"{worker}", small, {_ALICE: small}))

    n_granted = race_processes(3, ask, "finish its race")
    with make_ledger("processes", ACCOUNTANT) as ledger:
        require_race(n_granted, ledger.spent, ACCOUNTANT, "processes")
    n_granted = race_processes(2, ask_account, "finish its race for an account")
    with make_ledger("processes on an account", _AMPLE) as ledger:
        _require_race(ledger, n_granted, "processes")


# --- On a clock ---
#
# A ledger whose accountant has a clock is debited ticks. What the checks expect is worked out here, a step at
# a time, from a small table: dear where little is left, and with a silent kind that gives most of it back.

_CLOCKED = Accountant(Budget(epsilon=1.0, delta=1e-5), clock=Clock(kappa=1e-12, events=40))
_CLOCKED_START = Clock(kappa=1e-12, events=40).start(1.0, 1e-5)
_UNIT = _CLOCKED_START // 60
_TABLE = ClockTable(
    (0, 20 * _UNIT, 40 * _UNIT),
    ((2 * _UNIT, 2 * _UNIT, _UNIT), (9 * _UNIT, 7 * _UNIT, 4 * _UNIT)),
    kappa=1e-12,
)
_ASKED = Item((RdpCurve.zcdp(0.001), RdpCurve.zcdp(0.003)), _TABLE)
_QUESTION, _SILENT, _ANSWERED = _ASKED.price(), _ASKED.price(0), _ASKED.price(1)
_SHORT = Budget(epsilon=0.8, delta=1e-6)


def _steps(left: int, n: int) -> list[int]:
    """Return at which row of the table each of n steps is priced, the highest whose level is still left."""
    rows = []
    for _ in range(n):
        rows.append(max(at for at, level in enumerate(_TABLE.levels) if left - _TABLE.prices[1][at] >= level))
        left -= _TABLE.prices[1][rows[-1]]
    return rows


def _taken(left: int, n: int, kind: int = 1) -> int:
    """Return what n steps take of what is left where one kind comes out of all of them."""
    rows = _steps(left, n)
    least = min(_TABLE.prices[1][at] - _TABLE.prices[0][at] for at in rows)
    return sum(_TABLE.prices[1][at] for at in rows) - (n * least if kind == 0 else 0)


def _left(accountant: Accountant, spent: RdpCurve) -> int:
    """Return the ticks left, from the share that is left."""
    clock, budget = accountant.clock, accountant.budget
    assert clock is not None
    return round(accountant.left(spent) * clock.start(budget.epsilon, budget.delta))


def _require_left(ledger: Ledger, expected: int, when: str) -> None:
    left = _left(_CLOCKED, ledger.spent)
    wanted, got = expected / _CLOCKED_START, left / _CLOCKED_START
    require(left == expected, f"Expected {wanted:.4%} of the clock to be left {when}, got {got:.4%}.")


def _require_account_left(ledger: Ledger, name: str, expected: int, when: str) -> None:
    state = ledger.accounts()[name]
    left = _left(state.accountant, state.spent)
    require(left == expected, f"Expected {expected} ticks to be left on account {name!r} {when}, got {left}.")


def _check_ticks(make_ledger: MakeLedger) -> None:
    """Debit, refund by kind, and count what is in flight; a price is that of what is left after the step."""
    with make_ledger("clock", _CLOCKED) as ledger:
        _require_left(ledger, _CLOCKED_START, "at first")
        left = _CLOCKED_START
        for n in range(3):
            ticket = ledger.reserve(f"q{n}", _QUESTION, event=EVENT)
            left -= _taken(left, 1)
            _require_left(ledger, left, "between reserve and settle of a question on a clock")
            ledger.settle(ticket, outcome(_ANSWERED))
            _require_left(ledger, left, "after an answer, which takes all that was reserved")
        before = left
        silent = ledger.reserve("silent", _QUESTION, event=EVENT)
        ledger.settle(silent, outcome(_SILENT, -1))
        left -= _taken(left, 1, kind=0)
        when = "after silence on a clock: it is charged what it costs where it was paid for, no less"
        _require_left(ledger, left, when)
        require(left < before, "Expected silence to take ticks.")
        # Two in flight: the first ends above a level of the table and the second below it, though it began
        # above. They are settled the other way round, each at the prices it was paid at.
        first = ledger.reserve("first", _QUESTION, event=EVENT)
        one, between = _taken(left, 1), left
        second = ledger.reserve("second", 2 * _QUESTION, event=EVENT)
        two = _taken(between - one, 2)
        _require_left(ledger, left - one - two, "with two reservations in flight, each of them charged")
        used = _SILENT + _ANSWERED
        ledger.settle(second, outcome(used))
        rows = _steps(between - one, 2)
        two -= min(_TABLE.prices[1][at] - _TABLE.prices[0][at] for at in rows)
        _require_left(ledger, left - one - two, "after a batch with one answer, priced where it was reserved")
        ledger.settle(first, outcome(_SILENT, -1))
        one = _taken(between, 1, kind=0)
        _require_left(ledger, left - one - two, "after both were settled, last come, first settled")
        left -= one + two
        n = 0
        while left >= _TABLE.prices[1][0]:
            ledger.reserve(f"more {n}", _QUESTION, event=EVENT)
            n, left = n + 1, left - _taken(left, 1)
        require_refused(
            BudgetExhausted, "a question past the clock", ledger.reserve, "over", _QUESTION, event=EVENT
        )
        _require_left(ledger, left, "after a question past the clock was refused")


def _check_clock_refusals(make_ledger: MakeLedger) -> None:
    with make_ledger("clock refusals", _CLOCKED) as ledger:
        ledger.open_account(_ALICE, _SHORT)
        with_delta = replace(_QUESTION, delta=1e-9)
        for price, what in (
            (ONE, "a Rényi curve that the clock has no table for"),
            (0.5 * _QUESTION, "a part of a question, which the clock has no table for"),
            (with_delta, "a price with a delta of its own on a clock"),
        ):
            require_refused(ValueError, what, ledger.reserve, "q0", price, event=EVENT)
            require_refused(
                ValueError, f"{what}, for a named account",
                ledger.reserve, "q0", _QUESTION, event=EVENT, also={_ALICE: price},
            )  # fmt: skip
            _require_left(ledger, _CLOCKED_START, f"after {what} was refused")
        require(ledger.entries() == [], "Expected nothing on record of prices that a clock cannot take.")
        ticket = ledger.reserve("q0", _QUESTION, event=EVENT)
        # Silence that calls itself half of an answer: what the table does not know gives nothing back.
        with contextlib.suppress(LedgerConflict):
            ledger.settle(ticket, outcome(0.5 * _SILENT, -1))
        spent = _taken(_CLOCKED_START, 1)
        left = _left(_CLOCKED, ledger.spent)
        within = left <= _CLOCKED_START - spent
        require(within, "Expected an outcome that the clock has no table for to give nothing back.")


def _check_clock_overruns(make_ledger: MakeLedger) -> None:
    """Charge a clock for what came out and was not paid for, as much as it may have cost."""
    dear = ClockTable((0,), ((20 * _UNIT,),), kappa=1e-12)
    more = (
        (3 * _QUESTION, "three answers to one question"),
        (RdpCurve.zcdp(0.05), "a cost above its price, which the clock has no table for"),
        (Item((RdpCurve.zcdp(0.002),), dear).price(), "another question that takes more of the clock"),
    )
    for n, (cost, what) in enumerate(more):
        with make_ledger(f"clock overrun {n}", _CLOCKED) as ledger:
            ticket = ledger.reserve("q0", _QUESTION, event=EVENT)
            require_refused(LedgerConflict, f"{what}, on a clock,", ledger.settle, ticket, outcome(cost))
            require(ledger.find("q0") is None, f"Expected no record of {what} on a clock.")
            left = _left(_CLOCKED, ledger.spent)
            within = left <= _CLOCKED_START - 20 * _UNIT
            require(within, f"Expected {what} to be charged to a clock in full, {left} ticks are left of it.")


def _check_events(make_ledger: MakeLedger) -> None:
    few = Accountant(Budget(epsilon=1.0, delta=1e-5), clock=Clock(kappa=1e-12, events=3))
    with make_ledger("clock events", few) as ledger:
        ledger.settle(ledger.reserve("q0", 2 * _QUESTION, event=EVENT), outcome(2 * _SILENT, -1))
        what = "more events than the clock sets a part of delta aside for"
        require_refused(BudgetExhausted, what, ledger.reserve, "q1", 2 * _QUESTION, event=EVENT)
        ledger.settle(ledger.reserve("q2", _QUESTION, event=EVENT), outcome(_SILENT, -1))
        require_refused(BudgetExhausted, what, ledger.reserve, "q3", _QUESTION, event=EVENT)


def _check_clock_accounts(make_ledger: MakeLedger) -> None:
    with make_ledger("clock accounts", _CLOCKED) as ledger:
        ledger.open_account(_ALICE, _SHORT)
        ledger.open_account(_GROUP, Budget(epsilon=0.9, delta=1e-5))
        for name, budget in ((_ALICE, _SHORT), (_GROUP, Budget(epsilon=0.9, delta=1e-5))):
            require(
                ledger.accounts()[name].accountant == _CLOCKED.beside(budget),
                f"Expected account {name!r} to be held by the rule of its ledger, on a clock of its own.",
            )
        starts = {name: _left(state.accountant, RdpCurve.zero()) for name, state in ledger.accounts().items()}
        alice, group, main = starts[_ALICE], starts[_GROUP], _CLOCKED_START
        ticket = ledger.reserve("q0", _QUESTION, event=EVENT, also={_ALICE: 2 * _QUESTION, _GROUP: _QUESTION})
        main, group = main - _taken(main, 1), group - _taken(group, 1)
        when = "between reserve and settle, each account at what is left on it"
        _require_left(ledger, main, when)
        _require_account_left(ledger, _ALICE, alice - _taken(alice, 2), when)
        _require_account_left(ledger, _GROUP, group, when)
        ledger.settle(ticket, outcome(_ANSWERED), used={_ALICE: 2 * _SILENT})
        alice -= _taken(alice, 2, kind=0)
        when = "after settling with what each account used, by kind"
        _require_left(ledger, main, when)
        _require_account_left(ledger, _ALICE, alice, when)
        _require_account_left(ledger, _GROUP, group, when)
        n = 0
        while alice >= _TABLE.prices[1][0]:
            ledger.reserve(f"more {n}", _QUESTION, event=EVENT, also={_ALICE: _QUESTION})
            n, alice, main = n + 1, alice - _taken(alice, 1), main - _taken(main, 1)
        for also in ({_ALICE: _QUESTION, _GROUP: _QUESTION}, {_GROUP: _QUESTION, _ALICE: _QUESTION}):
            try:
                ledger.reserve("over", _QUESTION, event=EVENT, also=also)
            except BudgetExhausted as refusal:
                require(
                    refusal.account == _ALICE, "Expected the refusal to name the account whose clock ran."
                )
            else:
                raise AssertionError("Expected BudgetExhausted for a named account past its clock.")
            when = "after a named account's clock had run: nobody pays"
            _require_left(ledger, main, when)
            _require_account_left(ledger, _ALICE, alice, when)
            _require_account_left(ledger, _GROUP, group, when)


def _clock_books(make_ledger: MakeLedger, name: str) -> Ledger:
    ledger = make_ledger(name, _CLOCKED)
    ledger.open_account(_ALICE, _SHORT)
    return ledger


def _fill(ledger: Ledger) -> tuple[int, int]:
    """Ask for an answer, silence and something that stays in flight; return what that leaves."""
    main = _left(_CLOCKED, ledger.spent)
    alice = _left(ledger.accounts()[_ALICE].accountant, RdpCurve.zero())
    for n, kind in enumerate((1, 0, 1)):
        ticket = ledger.reserve(f"q{n}", _QUESTION, event=EVENT, also={_ALICE: _QUESTION})
        if n < 2:
            ledger.settle(ticket, outcome(_ASKED.price(kind)))
        main, alice = main - _taken(main, 1, kind), alice - _taken(alice, 1, kind)
    return main, alice


def _check_clock_export(make_ledger: MakeLedger) -> None:
    with _clock_books(make_ledger, "clock export") as ledger:
        main, alice = _fill(ledger)
        when = "after an answer, silence and a question in flight"
        _require_left(ledger, main, when)
        _require_account_left(ledger, _ALICE, alice, when)
        if not isinstance(ledger, ChainedLedger):
            return  # what is no chain of lines is not exported
        text = io.StringIO()
        head = export_ledger(ledger, text)
        text.seek(0)
        with (
            tempfile.TemporaryDirectory() as folder,
            import_ledger(text, os.path.join(folder, "copy.db"), head=head) as copy,
        ):
            when = "on a clock that was exported and imported"
            require(copy.accountant == _CLOCKED, f"Expected the same rule, budget and terms {when}.")
            _require_left(copy, main, when)
            _require_account_left(copy, _ALICE, alice, when)
            # It goes on from there.
            copy.reserve("new", _QUESTION, event=EVENT)
            _require_left(copy, main - _taken(main, 1), f"after a question {when}")


def _check_clock_reopening(make_ledger: MakeLedger) -> None:
    with _clock_books(make_ledger, "clock reopening") as ledger:
        main, alice = _fill(ledger)
        with make_ledger("clock reopening", _CLOCKED) as second:
            _require_left(second, main, "on a clock that was opened again")
            second.reserve("q3", _QUESTION, event=EVENT)
        main -= _taken(main, 1)
        _require_left(ledger, main, "after somebody else reserved on the same clock")
    with make_ledger("clock reopening", _CLOCKED) as ledger:
        _require_left(ledger, main, "on a clock that was closed and opened again")
        _require_account_left(ledger, _ALICE, alice, "after closing and opening again")
        kept = ledger.accounts()[_ALICE].accountant == _CLOCKED.beside(_SHORT)
        require(kept, "Expected an account to keep its clock after reopening.")
    budget = _CLOCKED.budget
    for other in (Accountant(budget), Accountant(budget, clock=Clock(kappa=1e-12, events=41))):
        what = "books on a clock, opened by another rule or with another clock"
        require_refused(LedgerConflict, what, make_ledger, "clock reopening", other)
    with make_ledger("renyi reopening", Accountant(budget)) as ledger:
        ledger.reserve("q0", ONE, event=EVENT)
    what = "books that are held by Rényi divergence, opened with a clock"
    require_refused(LedgerConflict, what, make_ledger, "renyi reopening", _CLOCKED)


def _check_clock_killed_and_raced(make_ledger: MakeLedger) -> None:
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def reserve_and_hang() -> None:
        with _clock_books(make_ledger, "clock killed") as ledger:
            ledger.reserve("q0", _QUESTION, event=EVENT, also={_ALICE: _QUESTION})
            theirs.send("reserved")
            time.sleep(600)

    process = fork(reserve_and_hang)
    theirs.close()
    try:
        receive(ours, "reserve on a clock")
    finally:
        kill(process)
    with make_ledger("clock killed", _CLOCKED) as ledger:
        when = "after a kill between reserve and settle, which a clock stays charged for"
        _require_left(ledger, _CLOCKED_START - _taken(_CLOCKED_START, 1), when)
        alice = _left(ledger.accounts()[_ALICE].accountant, RdpCurve.zero())
        _require_account_left(ledger, _ALICE, alice - _taken(alice, 1), when)

    def ask(worker: int) -> int:
        n = 0
        with make_ledger("clock processes", _CLOCKED) as ledger, contextlib.suppress(BudgetExhausted):
            for n in range(100):
                ticket = ledger.reserve(f"{worker}-{n}", _QUESTION, event=EVENT)
                ledger.settle(ticket, outcome(_ANSWERED))
        return n

    n_granted = race_processes(2, ask, "finish its race on a clock")
    fits, left = 0, _CLOCKED_START
    while left >= _TABLE.prices[1][0]:
        fits, left = fits + 1, left - _taken(left, 1)
    with make_ledger("clock processes", _CLOCKED) as ledger:
        _require_left(ledger, left, "after processes raced for a clock: what fits, and no more")
    require(n_granted == fits, f"Expected racing processes to be granted what fits, {fits}, got {n_granted}.")
