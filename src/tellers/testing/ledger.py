"""Checks for whoever writes a ledger: is it as trustworthy as a bank's?

`check_ledger` goes through the contract of a backend: what it refuses, what it keeps, what it gives back. It
races threads and processes against one budget, and kills writers between reserve and settle and at any
other moment, to see that no charge is lost and nothing is paid twice.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..budget import Accountant, Budget
from ..errors import BudgetExhausted, InsecureNoise, LedgerConflict
from ..ledger import Ledger, Ticket
from ..rdp import RdpCurve
from ..release import Cost, Release
from ..sealed import Sealed
from ._promise import require

MakeLedger = Callable[[str, Accountant], Ledger]

_ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5))
_ONE = RdpCurve.zcdp(0.001)
_EVENT: dict[str, Any] = {
    "mechanism": "GNMax",
    "parameters": {"sigma": 40.0},
    "noise": "secure",
    "unit": "one ballot",
}


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
    for check in (_check_refusals, _check_settling, _check_keys, _check_records, _check_threads):
        check(make_ledger)
    if durable:
        _check_reopening(make_ledger)
        if hasattr(os, "fork"):
            _check_killed_between(make_ledger)
            _check_killed_anywhere(make_ledger, n_kills)
            _check_processes(make_ledger)


def _release(cost: RdpCurve = _ONE, label: int = 3) -> Release:
    return Release(np.array([label]), Cost(cost))


def _require_spent(ledger: Ledger, expected: RdpCurve, when: str) -> None:
    same = np.allclose(ledger.spent.values, expected.values, rtol=1e-9, atol=0)
    require(
        same, f"Expected `spent` to be {_epsilon(expected):.6g} {when}, got {_epsilon(ledger.spent):.6g}."
    )


def _epsilon(curve: RdpCurve) -> float:
    return _ACCOUNTANT.epsilon(curve)


def _require_refused(
    error: type[Exception], what: str, act: Callable[..., Any], *given: Any, **named: Any
) -> None:
    try:
        act(*given, **named)
    except error:
        return
    except Exception as other:
        raise AssertionError(f"Expected {error.__name__} for {what}, got {type(other).__name__}.") from other
    raise AssertionError(f"Expected {error.__name__} for {what}, it was accepted.")


def _n_affordable() -> int:
    n = 0
    while _ACCOUNTANT.affords(n * _ONE, _ONE):
        n += 1
    return n


def _check_refusals(make_ledger: MakeLedger) -> None:
    with make_ledger("refusals", _ACCOUNTANT) as ledger:
        _require_spent(ledger, 0 * _ONE, "at first")
        require(ledger.find("q0") is None and ledger.entries() == [], "Expected new books to be empty.")
        over = (_n_affordable() + 1) * _ONE
        _require_refused(BudgetExhausted, "a price past the budget", ledger.reserve, "q0", over, event=_EVENT)
        for event in ({**_EVENT, "noise": "seeded"}, {"mechanism": "GNMax"}):
            _require_refused(
                InsecureNoise, "noise that is not secure", ledger.reserve, "q0", _ONE, event=event
            )
        other = RdpCurve.zcdp(0.001, orders=[2.0, 3.0])
        _require_refused(ValueError, "other orders", ledger.reserve, "q0", other, event=_EVENT)
        _require_spent(ledger, 0 * _ONE, "after refused queries")
        require(ledger.entries() == [], "Expected nothing on record of refused queries.")
        ledger.reserve("q0", _ONE, event=_EVENT)  # the key is still free


def _check_settling(make_ledger: MakeLedger) -> None:
    with make_ledger("settling", _ACCOUNTANT) as ledger:
        ticket = ledger.reserve("q0", 3 * _ONE, event=_EVENT)
        _require_spent(ledger, 3 * _ONE, "between reserve and settle")
        require(ledger.find("q0") is None, "Expected no release before it is settled.")
        require(
            ledger.asked("q0") == _EVENT and ledger.asked("q1") is None,
            "Expected `asked` to return the event of a key on the books, and None for another.",
        )
        ledger.settle(ticket, _release())
        require(ledger.asked("q0") == _EVENT, "Expected `asked` to return the event of a settled key too.")
        _require_spent(ledger, _ONE, "after settling for less: what was not used flows back")
        _require_refused(LedgerConflict, "a second settlement", ledger.settle, ticket, _release(0 * _ONE, 4))
        _require_spent(ledger, _ONE, "after a second settlement was refused")

        ticket = ledger.reserve("q1", _ONE, event=_EVENT)
        shifted = RdpCurve(_ONE.orders + 0.001, 0.5 * _ONE.values)
        _require_refused(LedgerConflict, "a cost on other orders", ledger.settle, ticket, _release(shifted))
        _require_spent(ledger, 2 * _ONE, "after a cost on other orders was refused")

        # The labels are out by then: refusing to charge would not call them back.
        ledger.reserve("q2", _ONE, event=_EVENT)
        forged = Ticket("q2", 1000 * _ONE, _EVENT)
        for cost in (2 * _ONE, 0 * _ONE):
            _require_refused(
                LedgerConflict,
                "a cost above the price on the books, and every attempt after it",
                ledger.settle,
                forged,
                _release(cost),
            )
            _require_spent(ledger, 4 * _ONE, "after a cost above its price, charged in full")
        require(ledger.find("q2") is None, "Expected no record of a release that cost more than its price.")


def _check_keys(make_ledger: MakeLedger) -> None:
    with make_ledger("keys", _ACCOUNTANT) as ledger:
        unknown = Ticket("q0", _ONE, _EVENT)
        _require_refused(LedgerConflict, "an unknown ticket", ledger.settle, unknown, _release())
        ticket = ledger.reserve("q0", _ONE, event=_EVENT)
        for state in ("reserved", "settled"):
            _require_refused(
                LedgerConflict, f"a key that is {state}", ledger.reserve, "q0", _ONE, event=_EVENT
            )
            _require_spent(ledger, _ONE, f"after a key that is {state} was refused")
            if state == "reserved":
                ledger.settle(ticket, _release())
        for n in range(3):
            found = ledger.find("q0")
            require(found is not None and found.labels.tolist() == [3], "Expected the recorded release.")
            _require_spent(ledger, _ONE, f"after {n + 1} questions with the same key")
        for other in ("Q0", "q0 ", "q\u0660"):
            try:
                ledger.reserve(other, _ONE, event=_EVENT)
            except LedgerConflict as error:
                raise AssertionError(f"Expected 'q0' and {other!r} to be two keys.") from error
        _require_spent(ledger, 4 * _ONE, "after four keys")


def _check_records(make_ledger: MakeLedger) -> None:
    with make_ledger("records", _ACCOUNTANT) as ledger:
        event: dict[str, Any] = {**_EVENT, "parameters": {"sigma": 40.0}}
        labels = np.array([3, -1, 1])
        ticket = ledger.reserve("q0", _ONE, event=event)
        for given in (event, ticket.event):
            given["parameters"]["sigma"] = 1.0
        sealed = Cost(_ONE, Sealed(0.5 * _ONE))
        ledger.settle(ticket, Release(labels, sealed, np.array([True, False, False])))
        labels[:] = 9
        ledger.reserve("q1", _ONE, event=_EVENT)
        for _ in range(2):
            found = ledger.find("q0")
            require(found is not None, "Expected a release on record.")
            assert found is not None  # for the type checker
            kept = found.labels.tolist() == [3, -1, 1] and found.answered.tolist() == [True, False, False]
            require(kept, "Expected the record to be a copy of what was released, nobody can change it.")
            same = np.array_equal(found.cost.worst.values, _ONE.values)
            require(same, "Expected the record to hold the public cost, bit for bit.")
            require(found.cost.tight is None, "Expected sealed costs not to be kept.")
            with contextlib.suppress(ValueError):  # what cannot be written to is as good as a copy
                found.labels[:] = 7
        entries = ledger.entries()
        shown = [(e.key, e.is_settled, e.release is not None) for e in entries]
        require(shown == [("q0", True, True), ("q1", False, False)], f"Expected q0 and q1, got {shown}.")
        require(entries[0].event == _EVENT, "Expected an event to stay what it was when it was reserved.")
        require("q0" not in repr(ledger), "Expected a repr that shows no key.")


def _check_reopening(make_ledger: MakeLedger) -> None:
    with make_ledger("reopening", _ACCOUNTANT) as ledger:
        ledger.settle(ledger.reserve("q0", 3 * _ONE, event=_EVENT), _release())
        ledger.reserve("q1", _ONE, event=_EVENT)
        with make_ledger("reopening", _ACCOUNTANT) as second:
            _require_spent(second, 2 * _ONE, "on the same books, opened again")
            second.reserve("q2", _ONE, event=_EVENT)
        _require_spent(ledger, 3 * _ONE, "after somebody else reserved on the same books")
    with make_ledger("reopening", _ACCOUNTANT) as ledger:
        _require_spent(ledger, 3 * _ONE, "on books that were closed and opened again")
        found = ledger.find("q0")
        require(found is not None and found.labels.tolist() == [3], "Expected the release after reopening.")
        require([e.key for e in ledger.entries()] == ["q0", "q1", "q2"], "Expected all entries, in order.")
        require(ledger.entries()[0].event == _EVENT, "Expected the event after reopening.")
    for budget in (Budget(epsilon=2.0, delta=1e-5), Budget(epsilon=1.0, delta=1e-4)):
        _require_refused(LedgerConflict, "another budget", make_ledger, "reopening", Accountant(budget))


def _check_threads(make_ledger: MakeLedger) -> None:
    n_fit, n_threads = _n_affordable(), 4
    share = n_fit * _ONE * (1 / 20)
    with make_ledger("threads", _ACCOUNTANT) as ledger:
        granted: list[str] = []
        errors: list[BaseException] = []
        start = threading.Barrier(n_threads)

        def ask(worker: int) -> None:
            start.wait()
            try:
                granted.extend(_ask_until_refused(ledger, f"{worker}", share))
                with contextlib.suppress(LedgerConflict, BudgetExhausted):
                    ledger.reserve("the same", 0 * share, event=_EVENT)
                    granted.append("the same")
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        require(not errors, f"Expected threads to share a ledger, got {errors[:1]!r}.")
        once = granted.count("the same")
        require(once == 1, f"Expected a key to be given to one of {n_threads} threads, got {once}.")
        _require_race(ledger, len(granted) - once, "threads")


def _ask_until_refused(ledger: Ledger, worker: str, share: RdpCurve) -> list[str]:
    granted = []
    with contextlib.suppress(BudgetExhausted):
        for n in range(100):
            ticket = ledger.reserve(f"{worker}-{n}", share, event=_EVENT)
            granted.append(ticket.key)
            ledger.settle(ticket, _release(share))
    return granted


def _require_race(ledger: Ledger, n_granted: int, who: str) -> None:
    after = _epsilon(ledger.spent)
    limit = _ACCOUNTANT.budget.epsilon
    require(after <= limit, f"Expected racing {who} to stay within {limit}, they spent {after:.4g}.")
    require(n_granted == 20, f"Expected racing {who} to be granted what fits, 20, got {n_granted}.")


def _fork(act: Callable[..., None], *given: Any) -> multiprocessing.process.BaseProcess:
    # Not spawn: what opens the ledger may be a lambda, and a fork is the harder test of a connection.
    process = multiprocessing.get_context("fork").Process(target=act, args=given, daemon=True)
    process.start()
    return process


def _receive(connection: Any, what: str) -> Any:
    with contextlib.suppress(EOFError):
        if connection.poll(120):
            return connection.recv()
    raise AssertionError(f"Expected another process to {what}; it failed or hangs.")


def _kill(process: multiprocessing.process.BaseProcess) -> None:
    if process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def _check_killed_between(make_ledger: MakeLedger) -> None:
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def reserve_and_hang() -> None:
        with make_ledger("killed", _ACCOUNTANT) as ledger:
            ledger.reserve("q0", _ONE, event=_EVENT)
            theirs.send("reserved")
            time.sleep(600)

    process = _fork(reserve_and_hang)
    theirs.close()
    try:
        _receive(ours, "reserve")
    finally:
        _kill(process)
    with make_ledger("killed", _ACCOUNTANT) as ledger:
        _require_spent(ledger, _ONE, "after a kill between reserve and settle, which stays charged")
        require(ledger.find("q0") is None, "Expected no release of a question that was never settled.")
        _require_refused(
            LedgerConflict, "the key of a killed writer", ledger.reserve, "q0", _ONE, event=_EVENT
        )


def _check_killed_anywhere(make_ledger: MakeLedger, n_kills: int) -> None:
    rng = np.random.default_rng(7)
    one = 0.001 * _ONE
    acknowledged: dict[str, str] = {}
    for turn in range(n_kills):
        ours, theirs = multiprocessing.get_context("fork").Pipe()

        def write(turn: int = turn, theirs: Any = theirs) -> None:
            with make_ledger("chaos", _ACCOUNTANT) as ledger:
                for n in range(100_000):
                    ticket = ledger.reserve(f"{turn}-{n}", one, event=_EVENT)
                    theirs.send((ticket.key, "reserved"))
                    ledger.settle(ticket, _release(one, label=n))
                    theirs.send((ticket.key, "settled"))

        process = _fork(write)
        theirs.close()
        try:
            acknowledged.update([_receive(ours, "reserve")])
            until = time.monotonic() + rng.uniform(0, 0.1)
            while time.monotonic() < until:
                acknowledged.update([_receive(ours, "go on writing")])
        finally:
            _kill(process)
        with contextlib.suppress(EOFError, OSError):  # what was said before the kill, perhaps half a word
            while ours.poll():
                acknowledged.update([ours.recv()])
    with make_ledger("chaos", _ACCOUNTANT) as ledger:
        entries = {entry.key: entry for entry in ledger.entries()}
        _require_spent(ledger, len(entries) * one, f"after {n_kills} kills, with {len(entries)} entries")
        for key, state in acknowledged.items():
            require(key in entries, f"Expected {key!r} on the books, which was reserved before a kill.")
            release = entries[key].release
            found = release is not None and release.labels.tolist() == [int(key.partition("-")[2])]
            require(found or state == "reserved", f"Expected the release of {key!r}, settled before a kill.")


def _check_processes(make_ledger: MakeLedger) -> None:
    context = multiprocessing.get_context("fork")
    share, n_workers = _n_affordable() * _ONE * (1 / 20), 3
    start, (ours, theirs) = context.Barrier(n_workers), context.Pipe()
    speaking = context.Lock()

    def ask(worker: int) -> None:
        start.wait(60)  # before opening: making the books is a race too
        with make_ledger("processes", _ACCOUNTANT) as ledger:
            granted = _ask_until_refused(ledger, f"{worker}", share)
        with speaking:
            theirs.send(len(granted))

    processes = [_fork(ask, worker) for worker in range(n_workers)]
    theirs.close()
    n_granted = sum(_receive(ours, "finish its race") for _ in processes)
    for process in processes:
        process.join()
    with make_ledger("processes", _ACCOUNTANT) as ledger:
        _require_race(ledger, n_granted, "processes")
