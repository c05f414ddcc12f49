"""Fork safety: every ledger is closed before a fork, and both sides open it again.

A child must not use, or even close, a file or a connection that its parent opened, and it waits for ever for
a thread that was inside a library. So a ledger is only ever entered with its own lock held, and a fork takes
all of these locks, closes what is open, and gives the child new ones.
"""

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from ._chain import ChainedLedger

BEFORE: list[Callable[[], None]] = []
"""What else to do before a fork, with all locks held."""

_LEDGERS: "weakref.WeakSet[ChainedLedger]" = weakref.WeakSet()
# Held from before a fork until after it: meanwhile no ledger is made, and no other thread forks.
_gate = threading.RLock()
_handed_back: list[ChainedLedger] = []


def watch(ledger: ChainedLedger) -> None:
    """Take care of a ledger at every fork from now on."""
    with _gate:
        _LEDGERS.add(ledger)


def _before_fork() -> None:
    _gate.acquire()
    _handed_back[:] = _LEDGERS
    for ledger in _handed_back:
        ledger._lock.acquire()
        with suppress(Exception):  # a connection that cannot be closed is a dead one
            ledger.close()
    for act in BEFORE:
        act()


def _after_fork_in_parent() -> None:
    for ledger in _handed_back:
        ledger._lock.release()
    _handed_back.clear()
    _gate.release()


def _after_fork_in_child() -> None:
    global _gate
    for ledger in _handed_back:
        ledger._lock = threading.RLock()
    _handed_back.clear()
    _gate = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
