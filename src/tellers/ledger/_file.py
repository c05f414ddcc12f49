"""The file under a SQLite ledger: opening, making and reading it, and its errors in plain words."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LedgerConflict
from .chain import READABLE, SCHEMA, Line

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


@dataclass(frozen=True)
class FilePages:
    """The lines of a file, within one transaction."""

    connection: sqlite3.Connection
    name: str

    def all(self) -> Iterator[Line]:
        """Return all lines in order, as they are."""
        return self.after(-1)

    def after(self, number: int) -> Iterator[Line]:
        """Return the lines after one in order, as they are."""
        return read(self.connection, "WHERE number > ? ORDER BY number", number)

    def some(self, kind: str, key: str) -> Iterator[Line]:
        """Return the lines of one kind about one key, as they are."""
        return read(self.connection, "WHERE kind = ? AND key = ?", kind, key)

    def require_rules(self) -> None:
        """Refuse a damaged file, and one whose tables or triggers were changed."""
        if self.connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise LedgerConflict(f"{self.name} is damaged. Restore it from a backup.")
        kept = self.connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        if tuple(sql for (sql,) in kept) != TABLES:
            raise LedgerConflict(
                f"The tables of {self.name} are not those of a ledger: the rules that keep it "
                "append-only were changed. Restore it from a backup."
            )


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
    if os.name == "posix":  # the name of a new file is durable when its folder is
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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


def place(file: Path) -> tuple[int, int] | None:
    """Return which file has this name now, or None."""
    try:
        now = file.stat()
    except FileNotFoundError:
        return None
    return now.st_dev, now.st_ino


def read(connection: sqlite3.Connection, where: str, *values: Any) -> Iterator[Line]:
    """Return some lines, as they are."""
    # Columns and conditions are constants of this package; what callers give is bound as a value.
    found = connection.execute(f"SELECT {_COLUMNS} FROM lines {where}", values)  # noqa: S608
    return (Line(*row) for row in found)


def append(connection: sqlite3.Connection, line: Line) -> None:
    """Add one line."""
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
