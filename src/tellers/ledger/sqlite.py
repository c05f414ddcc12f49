"""A ledger in one SQLite file: durable before noise is drawn, append-only, safe among processes."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LedgerConflict, require_positive
from ..privacy._files import sync_folder
from ..privacy.budget import Accountant
from ._chain import BEFORE_FORK, READABLE, SCHEMA, ChainedLedger, LedgerState, Line, T, opening, watch_forks
from .vault import Vault

_APPLICATION = 0x54454C4C  # "TELL", in the header of the file

# The chain would show a changed line; the triggers keep honest programs from changing one at all.
TABLES = (
    "CREATE TABLE lines (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, "
    "body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (kind, key))",
    "CREATE TRIGGER never_changed BEFORE UPDATE ON lines "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER never_removed BEFORE DELETE ON lines "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    # INSERT OR REPLACE would remove a line without asking the trigger above.
    "CREATE TRIGGER only_added BEFORE INSERT ON lines "
    "WHEN NEW.number IS NOT (SELECT coalesce(max(number) + 1, 0) FROM lines) "
    "OR EXISTS (SELECT 1 FROM lines WHERE kind = NEW.kind AND key = NEW.key) "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
)
_COLUMNS = "number, kind, key, body, previous, hash"


def connect(file: Path, first: Sequence[Line], timeout: float) -> sqlite3.Connection:
    """Open a ledger's file, or make one that begins with these lines."""
    # The lock of the ledger lets one thread in at a time, so any of them may use the connection.
    connection = sqlite3.connect(file, timeout=timeout, isolation_level=None, check_same_thread=False)
    # A damaged text must come as far as its hash, which then says so.
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # where a flush may stop in the drive's own memory
        if not _is_ledger(connection, file):
            _create(connection, first, file, timeout)
        _use_log(connection, file, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def first_line(file: Path, timeout: float) -> Line:
    """Return the line that a ledger's file begins with, which holds its terms; nothing is made."""
    if not file.is_file():
        raise FileNotFoundError(f"Expected a ledger in {file}, got no file. Nothing was written.")
    with plain_words(file, timeout):
        connection = sqlite3.connect(file, timeout=timeout, isolation_level=None)
        try:
            if not _is_ledger(connection, file):
                raise LedgerConflict(f"Expected a ledger in {file.name}, got an empty file.")
            for line in read(connection, "WHERE number = 0"):
                return line
        finally:
            connection.close()
    raise LedgerConflict(f"{file.name} lost its first line, which holds its budget. Restore it.")


def _is_ledger(connection: sqlite3.Connection, file: Path) -> bool:
    """Say whether the file is a ledger, or empty; refuse anything else and leave it as it is."""
    # One moment for all three: another process may be making the same ledger just now.
    alone = not connection.in_transaction
    if alone:
        connection.execute("BEGIN")
    (n_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if alone:
        connection.execute("COMMIT")
    if (application, version, n_tables) == (0, 0, 0):
        return False
    if application != _APPLICATION:
        raise LedgerConflict(
            f"Expected a ledger in {file.name}, got a database of something else. Nothing was written. "
            "Name another file."
        )
    if version not in READABLE:
        raise LedgerConflict(
            f"Expected a ledger of version {SCHEMA} or older in {file.name}, got version {version}. "
            "Update tellers."
        )
    return True


def _create(connection: sqlite3.Connection, first: Sequence[Line], file: Path, timeout: float) -> None:
    """Make the tables and write the first lines, all or nothing; somebody else may be doing the same."""
    _use_log(connection, file, timeout)
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ledger(connection, file):
        for statement in TABLES:
            connection.execute(statement)
        for line in first:
            append(connection, line)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")
    sync_folder(file.parent)  # the name of a new file is durable when its folder is


def _use_log(connection: sqlite3.Connection, file: Path, timeout: float) -> None:
    """Switch to the write-ahead log: readers do not wait for writers, and a commit is one flush."""
    deadline, mode = time.monotonic() + timeout, ""
    while not mode:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # SQLite does not wait here by itself while another process makes the same switch.
            if not _name(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise OSError(f"Expected a local file system for {file}, got one that cannot share a log. Move it.")


def file_identity(file: Path) -> tuple[int, int] | None:
    """Return which file has this name now, or None."""
    try:
        now = file.stat()
    except FileNotFoundError:
        return None
    return now.st_dev, now.st_ino


def read(connection: sqlite3.Connection, where: str, *values: Any) -> Iterator[Line]:
    # Columns and conditions are constants of this package; what callers give is bound as a value.
    found = connection.execute(f"SELECT {_COLUMNS} FROM lines {where}", values)  # noqa: S608
    return (Line(*row) for row in found)


def append(connection: sqlite3.Connection, line: Line) -> None:
    said = (line.number, line.kind, line.key, line.body, line.previous, line.hash)
    connection.execute(f"INSERT INTO lines ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", said)  # noqa: S608


@contextmanager
def plain_words(file: Path, timeout: float) -> Iterator[None]:
    """Say what SQLite's errors mean for a ledger. None of them was followed by a commit."""
    try:
        yield
    except sqlite3.Error as error:
        name = _name(error)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise TimeoutError(
                f"Expected {file.name} to be free within {timeout:g} s, another writer holds it. "
                "Nothing was written; try again, or look for a process that hangs."
            ) from error
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            raise LedgerConflict(
                f"Expected a ledger in {file.name}, got a file that is none or is damaged ({error}). "
                "Nothing was written. Name another file, or restore this one from a backup."
            ) from error
        if isinstance(error, sqlite3.IntegrityError):
            raise LedgerConflict(f"{file.name} refused a line: {error}. Nothing was written.") from error
        raise OSError(
            f"Expected to read and write {file}: {error}. Nothing was written. Does its folder exist, may "
            "you write to both, and is there space left?"
        ) from error


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


# What forgotten ledgers had open. The garbage collector may run anywhere; the next ledger in use closes them.
_forgotten: list[sqlite3.Connection] = []


@dataclass(eq=False)
class SqliteLedger(ChainedLedger):
    """Keep the ledger in a file that outlives the process, for any number of threads and processes.

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
    >>> ledger.close()  # as leaving the block did
    """

    path: str | os.PathLike[str]
    accountant: Accountant
    _: KW_ONLY
    allow_seeded: bool = False
    timeout: float = 30.0
    vault: Vault | None = None
    _state: LedgerState = field(default_factory=LedgerState, init=False, repr=False)
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
        watch_forks(self)
        try:
            with self._transaction("BEGIN"):
                pass  # a file that is no ledger, or another one, is refused now and not at the first question
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hand the file back; what is on it stays."""
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

    def _after(self, number: int) -> Iterator[Line]:
        assert self._connection is not None
        return read(self._connection, "WHERE number > ? ORDER BY number", number)

    def _require_rules(self) -> None:
        """Refuse a damaged file, and one whose tables or triggers were changed."""
        assert self._connection is not None
        if self._connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise LedgerConflict(f"{self._title()} is damaged. Restore it from a backup.")
        kept = self._connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        if tuple(sql for (sql,) in kept) != TABLES:
            raise LedgerConflict(
                f"The tables of {self._title()} are not those of a ledger: the rules that keep it "
                "append-only were changed. Restore it from a backup."
            )

    def _read(self, look: Callable[[], T]) -> T:
        with self._transaction("BEGIN"):
            return look()

    def _write(self, next_lines: Callable[[], list[Line]]) -> None:
        # The lock is taken before the check, so two writers never both pass it.
        with self._transaction("BEGIN IMMEDIATE") as connection:
            for line in next_lines():
                append(connection, line)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Hold the file for one transaction, with everything that others wrote read in."""
        with self._alone(), plain_words(self._path, self.timeout):
            _close_forgotten()
            if self._place not in (None, file_identity(self._path)):
                # Writing to a file that was moved away, or making a new one, would begin the budget again.
                raise LedgerConflict(
                    f"{self._path.name} was moved, removed or replaced while it was in use. "
                    "Nothing was written. Put it back, and open it again."
                )
            if self._connection is None:
                self._connection = connect(self._path, [opening(self.accountant)], self.timeout)
                self._place = self._place or file_identity(self._path)
            connection = self._connection
            connection.execute(begin)
            try:
                self._catch_up()
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                if connection.in_transaction:
                    self.close()  # one that cannot be ended would keep everybody out, ourselves as well
                raise


def _close_forgotten() -> None:
    while _forgotten:
        with suppress(IndexError, sqlite3.Error):  # another thread may be at it
            _forgotten.pop().close()


BEFORE_FORK.append(_close_forgotten)
