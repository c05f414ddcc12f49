"""What the checks of a ledger share: a budget, a price, and processes to race and to kill."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..budget import Accountant, Budget
from ..errors import BudgetExhausted
from ..ledger import Ledger
from ..rdp import RdpCurve
from ..release import Cost, Release
from ._promise import require

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
    """Return an outcome of one query."""
    return Release(np.array([label]), Cost(cost))


def require_spent(ledger: Ledger, expected: RdpCurve, when: str) -> None:
    """Require that a curve of debits is what it should be."""
    same = np.allclose(ledger.spent.values, expected.values, rtol=1e-9, atol=0)
    require(same, f"Expected `spent` to be {epsilon(expected):.6g} {when}, got {epsilon(ledger.spent):.6g}.")


def epsilon(curve: RdpCurve) -> float:
    """Return the epsilon of a curve, at the delta of the checks."""
    return ACCOUNTANT.epsilon(curve)


def require_refused(
    error: type[Exception], what: str, act: Callable[..., Any], *given: Any, **named: Any
) -> None:
    """Require that an act is refused with this error."""
    try:
        act(*given, **named)
    except error:
        return
    except Exception as other:
        raise AssertionError(f"Expected {error.__name__} for {what}, got {type(other).__name__}.") from other
    raise AssertionError(f"Expected {error.__name__} for {what}, it was accepted.")


def n_affordable() -> int:
    """Return how often ONE fits into the budget of the checks."""
    n = 0
    while ACCOUNTANT.affords(n * ONE, ONE):
        n += 1
    return n


def ask_until_refused(ledger: Ledger, worker: str, share: RdpCurve) -> list[str]:
    """Reserve and settle until the budget says no; return the keys that were granted."""
    granted = []
    with contextlib.suppress(BudgetExhausted):
        for n in range(100):
            ticket = ledger.reserve(f"{worker}-{n}", share, event=EVENT)
            granted.append(ticket.key)
            ledger.settle(ticket, outcome(share))
    return granted


def fork(act: Callable[..., None], *given: Any) -> multiprocessing.process.BaseProcess:
    """Run something in another process."""
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
    """Kill a process, at once, and wait until it is gone."""
    if process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def reserve_and_die(open_books: Callable[[], Ledger], **reservation: Any) -> None:
    """Reserve in a process of its own, and kill it between reserve and settle."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def reserve_and_hang() -> None:
        with open_books() as ledger:
            ledger.reserve("q0", ONE, event=EVENT, **reservation)
            theirs.send("reserved")
            time.sleep(600)

    process = fork(reserve_and_hang)
    theirs.close()
    try:
        receive(ours, "reserve")
    finally:
        kill(process)
