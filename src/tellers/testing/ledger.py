"""Checks for whoever writes a ledger: is it as trustworthy as a bank's?

`check_ledger` goes through the contract of a backend: what it refuses, what it keeps, what it gives back. It
races threads and processes against one budget, and kills writers between reserve and settle and at any
other moment, to see that no charge is lost and nothing is paid twice.
"""

import contextlib
import multiprocessing
import os
import threading
import time
from typing import Any

import numpy as np

from ..budget import Accountant, Budget
from ..errors import BudgetExhausted, InsecureNoise, LedgerConflict
from ..ledger import Ledger, Ticket
from ..rdp import RdpCurve
from ..release import Cost, Release
from ..sealed import Sealed
from ._accounts import check_accounts, check_accounts_survive
from ._books import (
    ACCOUNTANT,
    EVENT,
    ONE,
    MakeLedger,
    ask_until_refused,
    epsilon,
    fork,
    kill,
    n_affordable,
    outcome,
    receive,
    require_refused,
    require_spent,
    reserve_and_die,
)
from ._promise import require


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
    check_accounts(make_ledger)
    if durable:
        _check_reopening(make_ledger)
        check_accounts_survive(make_ledger)
        if hasattr(os, "fork"):
            _check_killed_between(make_ledger)
            _check_killed_anywhere(make_ledger, n_kills)
            _check_processes(make_ledger)


def _check_refusals(make_ledger: MakeLedger) -> None:
    with make_ledger("refusals", ACCOUNTANT) as ledger:
        require_spent(ledger, 0 * ONE, "at first")
        require(ledger.find("q0") is None and ledger.entries() == [], "Expected new books to be empty.")
        over = (n_affordable() + 1) * ONE
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
            require_refused(
                LedgerConflict,
                "a cost above the price on the books, and every attempt after it",
                ledger.settle,
                forged,
                outcome(cost),
            )
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
        event: dict[str, Any] = {**EVENT, "parameters": {"sigma": 40.0}}
        labels = np.array([3, -1, 1])
        ticket = ledger.reserve("q0", ONE, event=event)
        for given in (event, ticket.event):
            given["parameters"]["sigma"] = 1.0
        sealed = Cost(ONE, Sealed(0.5 * ONE))
        ledger.settle(ticket, Release(labels, sealed, np.array([True, False, False])))
        labels[:] = 9
        ledger.reserve("q1", ONE, event=EVENT)
        for _ in range(2):
            found = ledger.find("q0")
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
        require(shown == [("q0", True, True), ("q1", False, False)], f"Expected q0 and q1, got {shown}.")
        require(entries[0].event == EVENT, "Expected an event to stay what it was when it was reserved.")
        require("q0" not in repr(ledger), "Expected a repr that shows no key.")


def _check_reopening(make_ledger: MakeLedger) -> None:
    with make_ledger("reopening", ACCOUNTANT) as ledger:
        ledger.settle(ledger.reserve("q0", 3 * ONE, event=EVENT), outcome())
        ledger.reserve("q1", ONE, event=EVENT)
        with make_ledger("reopening", ACCOUNTANT) as second:
            require_spent(second, 2 * ONE, "on the same books, opened again")
            second.reserve("q2", ONE, event=EVENT)
        require_spent(ledger, 3 * ONE, "after somebody else reserved on the same books")
    with make_ledger("reopening", ACCOUNTANT) as ledger:
        require_spent(ledger, 3 * ONE, "on books that were closed and opened again")
        found = ledger.find("q0")
        require(found is not None and found.labels.tolist() == [3], "Expected the release after reopening.")
        require([e.key for e in ledger.entries()] == ["q0", "q1", "q2"], "Expected all entries, in order.")
        require(ledger.entries()[0].event == EVENT, "Expected the event after reopening.")
    for budget in (Budget(epsilon=2.0, delta=1e-5), Budget(epsilon=1.0, delta=1e-4)):
        require_refused(LedgerConflict, "another budget", make_ledger, "reopening", Accountant(budget))


def _check_threads(make_ledger: MakeLedger) -> None:
    n_fit, n_threads = n_affordable(), 4
    share = n_fit * ONE * (1 / 20)
    with make_ledger("threads", ACCOUNTANT) as ledger:
        granted: list[str] = []
        errors: list[BaseException] = []
        start = threading.Barrier(n_threads)

        def ask(worker: int) -> None:
            start.wait()
            try:
                granted.extend(ask_until_refused(ledger, f"{worker}", share))
                with contextlib.suppress(LedgerConflict, BudgetExhausted):
                    ledger.reserve("the same", 0 * share, event=EVENT)
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


def _require_race(ledger: Ledger, n_granted: int, who: str) -> None:
    after = epsilon(ledger.spent)
    limit = ACCOUNTANT.budget.epsilon
    require(after <= limit, f"Expected racing {who} to stay within {limit}, they spent {after:.4g}.")
    require(n_granted == 20, f"Expected racing {who} to be granted what fits, 20, got {n_granted}.")


def _check_killed_between(make_ledger: MakeLedger) -> None:
    reserve_and_die(lambda: make_ledger("killed", ACCOUNTANT))
    with make_ledger("killed", ACCOUNTANT) as ledger:
        require_spent(ledger, ONE, "after a kill between reserve and settle, which stays charged")
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
    context = multiprocessing.get_context("fork")
    share, n_workers = n_affordable() * ONE * (1 / 20), 3
    start, (ours, theirs) = context.Barrier(n_workers), context.Pipe()
    speaking = context.Lock()

    def ask(worker: int) -> None:
        start.wait(60)  # before opening: making the books is a race too
        with make_ledger("processes", ACCOUNTANT) as ledger:
            granted = ask_until_refused(ledger, f"{worker}", share)
        with speaking:
            theirs.send(len(granted))

    processes = [fork(ask, worker) for worker in range(n_workers)]
    theirs.close()
    n_granted = sum(receive(ours, "finish its race") for _ in processes)
    for process in processes:
        process.join()
    with make_ledger("processes", ACCOUNTANT) as ledger:
        _require_race(ledger, n_granted, "processes")
