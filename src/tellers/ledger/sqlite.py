"""A ledger in one file: durable before noise is drawn, append-only, safe among threads and processes."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..budget import Accountant
from ..errors import LedgerConflict, require_positive
from . import _file, _forks
from .chain import Book, Line, opening
from .chained import ChainedLedger, Pages, T, require_terms
from .vault import Vault

# What forgotten ledgers had open. The garbage collector may run anywhere; the next ledger in use closes them.
_forgotten: list[sqlite3.Connection] = []


@dataclass(eq=False)
class SqliteLedger(ChainedLedger):
    """Keep the books in a file that outlives the process, for any number of threads and processes.

    The budget is written down when the file is made, and the file is opened with no other. `close`, or the
    end of a `with` block, hands the file back; a ledger that is used again opens it again. `timeout` is how
    many seconds to wait for another writer. Private costs are not kept, unless there is a `vault` for them.

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
    vault: Vault | None = None
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
        # SQLite's locks do not survive a fork: a child must not use, or even close, what its parent opened.
        _forks.watch(self)
        try:
            with self._books("BEGIN"):
                pass  # a file that is no ledger, or another one, is refused now and not at the first question
        except BaseException:
            self.close()
            raise

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

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            _forgotten.append(connection)

    def __reduce__(self) -> tuple[Callable[..., "SqliteLedger"], tuple[Any, ...]]:
        # Another process opens the file for itself; connections and locks do not travel.
        again = partial(SqliteLedger, allow_seeded=self.allow_seeded, timeout=self.timeout, vault=self.vault)
        return again, (os.fspath(self._path), self.accountant)

    def _title(self) -> str:
        return self._path.name

    def _read(self, look: Callable[[Pages], T]) -> T:
        with self._books("BEGIN") as connection:
            return look(_file.FilePages(connection, self._path.name))

    def _write(self, next_line: Callable[[], Line | None]) -> None:
        # The lock is taken before the check, so two writers never both pass it.
        with self._books("BEGIN IMMEDIATE") as connection:
            line = next_line()
            if line is not None:
                _file.append(connection, line)

    @contextmanager
    def _books(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Hold the file for one transaction, with everything that others wrote read in."""
        with self._alone(), _file.plain_words(self._path, self.timeout):
            _close_forgotten()
            if self._place is not None:
                self._require_place(self._place)
            if self._connection is None:
                first = [opening(self.accountant)]
                self._connection = _file.connect(self._path, first, self.timeout)
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
                if connection.in_transaction:
                    self.close()  # one that cannot be ended would keep everybody out, ourselves as well
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
            require_terms(self._book.terms, self.accountant, self._path.name)


def _close_forgotten() -> None:
    while _forgotten:
        with suppress(IndexError, sqlite3.Error):  # another thread may be at it
            _forgotten.pop().close()


_forks.BEFORE.append(_close_forgotten)
