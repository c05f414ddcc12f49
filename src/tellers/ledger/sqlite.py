"""A ledger in one file: durable before noise is drawn, append-only, safe among threads and processes."""

import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..budget import Accountant
from ..errors import LedgerConflict, require_positive
from ..rdp import RdpCurve
from ..release import Release
from . import _file
from .base import Entry, Ticket, charge, refuse_known, refuse_overrun, refuse_unknown, require_bookable
from .chain import Book, Line, read_release, write_curve, write_release

# SQLite's locks do not survive a fork: a child must not use, or even close, what its parent opened, and it
# waits for ever for a thread that was inside SQLite. So SQLite is only ever entered with the lock of a ledger
# held, and a fork takes all of these locks, hands the files back, and lets both sides open them again.
_LEDGERS: "weakref.WeakSet[SqliteLedger]" = weakref.WeakSet()
# Held from before a fork until after it: meanwhile no ledger is made, and no other thread forks.
_gate = threading.RLock()
_handed_back: list["SqliteLedger"] = []
# What forgotten ledgers had open. The garbage collector may run anywhere; the next ledger in use closes them.
_forgotten: list[sqlite3.Connection] = []


@dataclass(eq=False)
class SqliteLedger:
    """Keep the books in a file that outlives the process, for any number of threads and processes.

    The budget is written down when the file is made, and the file is opened with no other. `close`, or the
    end of a `with` block, hands the file back; a ledger that is used again opens it again. `timeout` is how
    many seconds to wait for another writer.

    Guarantee: the sum of all debits never passes the budget, whoever else writes. A reservation is on
               the disk when `reserve` returns. A changed line is found by its hash when it is read.
    Assumes:   a local file system that keeps its locks and flushes. Who can write the file can replace it
               by an older copy: keep what `verify` returns elsewhere, and compare.
    Reference: Feldman and Zrnic 2021: returning the unused part of a price keeps the guarantee.

    >>> import tempfile
    >>> from tellers import Accountant, Budget, GNMax, Unit, describe, noise
    >>> path = Path(tempfile.mkdtemp()) / "spend.db"
    >>> accountant, mechanism = Accountant(Budget(epsilon=0.5, delta=1e-5)), GNMax(sigma=40.0)
    >>> with SqliteLedger(path, accountant) as ledger:
    ...     ticket = ledger.reserve("q0", mechanism.price(Unit()), event=describe(mechanism, noise.secure()))
    >>> SqliteLedger(path, accountant).spent.epsilon(1e-5) > 0
    True
    """

    path: str | os.PathLike[str]
    accountant: Accountant
    _: KW_ONLY
    allow_seeded: bool = False
    timeout: float = 30.0
    _book: Book = field(default_factory=Book, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    _connection: sqlite3.Connection | None = field(default=None, init=False, repr=False)
    _path: Path = field(init=False, repr=False)
    _place: tuple[int, int] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout)
        if os.fspath(self.path) in ("", ":memory:"):
            raise ValueError(f"Expected the path of a file, got {self.path!r}. Use MemoryLedger(accountant).")
        self._path = Path(os.path.abspath(self.path))
        with _gate:
            _LEDGERS.add(self)
        try:
            with self._books("BEGIN"):
                pass  # a file that is no ledger, or another one, is refused now and not at the first question
        except BaseException:
            self.close()
            raise

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited so far, by whichever process, reservations included."""
        with self._books("BEGIN"):
            return self._book.spent

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None.

        >>> import tempfile
        >>> from tellers import Accountant, Budget
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> SqliteLedger(path, accountant).find("q0") is None
        True
        """
        with self._books("BEGIN") as connection:
            if key not in self._book.settled:
                return None
            for line in _file.read(connection, "WHERE kind = 'settled' AND key = ?", key):
                if line.is_intact:
                    body = json.loads(line.body)
                    return read_release(body, self._book.curve(body["charged"]))
            raise LedgerConflict(f"The release of key {key!r} in {self._path.name} was changed or removed.")

    def asked(self, key: str) -> dict[str, Any] | None:
        """Return the event that a key was reserved for, settled or not, or None.

        >>> import tempfile
        >>> from tellers import Accountant, Budget
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.asked("q0"), ledger.asked("q1")
        ({'noise': 'secure'}, None)
        """
        with self._books("BEGIN") as connection:
            if key not in self._book.settled and key not in self._book.pending:
                return None
            for line in _file.read(connection, "WHERE kind = 'reserved' AND key = ?", key):
                if line.is_intact:
                    event: dict[str, Any] = json.loads(line.body)["event"]
                    return event
            raise LedgerConflict(f"What key {key!r} in {self._path.name} asked was changed or removed.")

    def reserve(self, key: str, price: RdpCurve, *, event: dict[str, Any]) -> Ticket:
        """Debit a price before any noise is drawn, or refuse; it is on the disk when this returns.

        >>> import tempfile
        >>> from tellers import Accountant, Budget
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> SqliteLedger(path, accountant).reserve("q0", RdpCurve.zcdp(9.0), event={"noise": "secure"})
        Traceback (most recent call last):
            ...
        tellers.errors.BudgetExhausted: Query 'q0' would take epsilon to ..., past the budget of 1.0. ...
        """
        stored = require_bookable(key, event, allow_seeded=self.allow_seeded)
        with self._books("BEGIN IMMEDIATE") as connection:
            if key in self._book.pending or key in self._book.settled:
                refuse_known(key, is_settled=key in self._book.settled)
            self.accountant.require(self._book.spent, price, key=key)
            body = {"event": stored, "price": write_curve(price)}
            _file.append(connection, Line.after(self._book.head, "reserved", key=key, body=body))
        return Ticket(key, price, stored)

    def settle(self, ticket: Ticket, release: Release) -> None:
        """Record the outcome and give back what was not used.

        >>> import tempfile
        >>> import numpy as np
        >>> from tellers import Accountant, Budget, Cost
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.settle(ticket, Release(np.array([3]), Cost(RdpCurve.zcdp(0.05))))
        >>> float(ledger.spent.values[0]) == 1.25 * 0.05, ledger.find("q0").labels
        (True, array([3]))
        """
        key = ticket.key
        with self._books("BEGIN IMMEDIATE") as connection:
            # The books and not the ticket say what was reserved.
            reserved = self._book.pending.get(key)
            if reserved is None:
                refuse_unknown(key, is_settled=key in self._book.settled)
            charged, kept = charge(key, reserved, used=release.cost.worst)
            body = {"charged": write_curve(charged), "release": write_release(release) if kept else None}
            _file.append(connection, Line.after(self._book.head, "settled", key=key, body=body))
        if not kept:
            refuse_overrun(key)

    def entries(self) -> list[Entry]:
        """Return everything on the books, oldest first.

        >>> import tempfile
        >>> from tellers import Accountant, Budget
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> [(entry.key, entry.event, entry.is_settled) for entry in ledger.entries()]
        [('q0', {'noise': 'secure'}, False)]
        """
        found: dict[str, Entry] = {}
        with self._books("BEGIN") as connection:
            for line in _file.read_chain(connection):
                body = json.loads(line.body)
                if line.kind == "reserved":
                    price = self._book.curve(body["price"])
                    found[line.key] = Entry(line.key, body["event"], price, charged=price)
                elif line.kind == "settled":
                    asked, charged = found[line.key], self._book.curve(body["charged"])
                    release = read_release(body, charged)
                    found[line.key] = Entry(line.key, asked.event, asked.reserved, charged, True, release)
        return list(found.values())

    def verify(self, head: str | None = None) -> str:
        """Read the whole file again, check every hash, and return the last one.

        A chain cut short still holds together. `head` is what an earlier call returned: it must still be
        in the chain.

        >>> import tempfile
        >>> from tellers import Accountant, Budget
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> noted = ledger.verify()
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.verify(head=noted) == noted
        False
        """
        book, hashes = Book(), []
        with self._books("BEGIN") as connection:
            if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                raise LedgerConflict(f"{self._path.name} is damaged. Restore it from a backup.")
            kept = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
            if tuple(sql for (sql,) in kept) != _file.TABLES:
                raise LedgerConflict(
                    f"The tables of {self._path.name} are not those of a ledger: the rules that keep it "
                    "append-only were changed. Restore it from a backup."
                )
            for line in _file.read(connection, "ORDER BY number"):
                book.add(line)
                hashes.append(line.hash)
        if head is not None and head not in hashes:
            raise LedgerConflict(
                f"{self._path.name} does not hold the line with hash {head[:16]}..., which it held before. "
                "It was replaced or cut short; restore it from a backup."
            )
        return hashes[-1]

    def close(self) -> None:
        """Hand the file back; what is on it stays.

        >>> import tempfile
        >>> from tellers import Accountant, Budget
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> SqliteLedger(path, accountant).close()
        """
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> "SqliteLedger":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            _forgotten.append(connection)

    def __reduce__(self) -> tuple[Callable[..., "SqliteLedger"], tuple[Any, ...]]:
        # Another process opens the file for itself; connections and locks do not travel.
        again = partial(SqliteLedger, allow_seeded=self.allow_seeded, timeout=self.timeout)
        return again, (os.fspath(self._path), self.accountant)

    @contextmanager
    def _books(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Hold the file for one transaction, with everything that others wrote read in."""
        with self._lock, _file.plain_words(self._path, self.timeout):
            _close_forgotten()
            if self._place is not None:
                self._require_place(self._place)
            if self._connection is None:
                self._connection = _file.connect(self._path, self.accountant, self.timeout)
                self._place = self._place or _file.place(self._path)
            connection = self._connection
            connection.execute(begin)
            try:
                self._catch_up(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _require_place(self, place: tuple[int, int]) -> None:
        # Writing to a file that was moved away, or making a new one, would begin the budget again.
        if _file.place(self._path) != place:
            raise LedgerConflict(
                f"{self._path.name} was moved, removed or replaced while it was in use. "
                "Nothing was written. Put it back, and open it again."
            )

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read the lines that are new, each checked against the one before."""
        head = self._book.head
        first = 0 if head is None else head.number
        lines = _file.read(connection, "WHERE number >= ? ORDER BY number", first)
        if head is not None and next(lines, None) != head:
            raise LedgerConflict(
                f"{self._path.name} lost lines that it had, or they were changed, while it was in use. "
                "Restore it from a backup and do not spend on it."
            )
        for line in lines:
            self._book.add(line)
        if head is None:
            _file.require_terms(self._book.terms, self.accountant, self._path)


def _close_forgotten() -> None:
    while _forgotten:
        with suppress(IndexError, sqlite3.Error):  # another thread may be at it
            _forgotten.pop().close()


def _before_fork() -> None:
    _gate.acquire()
    _handed_back[:] = _LEDGERS
    for ledger in _handed_back:
        ledger._lock.acquire()
        with suppress(sqlite3.Error):
            ledger.close()
    _close_forgotten()


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
