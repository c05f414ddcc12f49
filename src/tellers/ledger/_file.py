"""The file under a SQLite ledger: opening, making and reading it, and its errors in plain words."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..budget import Accountant
from ..errors import LedgerConflict
from ..rdp import DEFAULT_ORDERS
from .chain import SCHEMA, Line

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


def connect(file: Path, accountant: Accountant, timeout: float) -> sqlite3.Connection:
    """Open a ledger's file, or make one."""
    # The lock of the ledger lets one thread in at a time, so any of them may use the connection.
    connection = sqlite3.connect(file, timeout=timeout, isolation_level=None, check_same_thread=False)
    # A damaged text must come as far as its hash, which then says so.
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # where a flush may stop in the drive's own memory
        if not _is_ledger(connection, file):
            _create(connection, accountant, file, timeout)
        _use_log(connection, file, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


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
    if version != SCHEMA:
        raise LedgerConflict(
            f"Expected a ledger of version {SCHEMA} in {file.name}, got version {version}. Update tellers."
        )
    return True


def _create(connection: sqlite3.Connection, accountant: Accountant, file: Path, timeout: float) -> None:
    """Make the tables and write the terms, all or nothing; somebody else may be doing the same."""
    _use_log(connection, file, timeout)
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ledger(connection, file):
        for statement in TABLES:
            connection.execute(statement)
        budget = accountant.budget
        body = {
            "schema": SCHEMA,
            "epsilon": float(budget.epsilon),
            "delta": float(budget.delta),
            "held_at": accountant.held_at,
            "orders": DEFAULT_ORDERS.tolist(),
        }
        append(connection, Line.after(None, "opened", key="", body=body))
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


def require_terms(terms: dict[str, Any], accountant: Accountant, file: Path) -> None:
    """Refuse a ledger that was begun with another budget, or counts at other orders."""
    if not terms:
        raise LedgerConflict(f"{file.name} lost its first line, which holds its budget. Restore the file.")
    budget = accountant.budget
    if (terms["epsilon"], terms["delta"]) != (budget.epsilon, budget.delta):
        raise LedgerConflict(
            f"Expected the budget that {file.name} was begun with, epsilon={terms['epsilon']} and "
            f"delta={terms['delta']}, got epsilon={budget.epsilon} and delta={budget.delta}. A budget is a "
            "promise about the data and stays; open the ledger with its own."
        )
    if terms["held_at"] != accountant.held_at:
        raise LedgerConflict(
            f"Expected the Rényi order at which {file.name} was begun, {terms['held_at']:g}, got "
            f"{accountant.held_at:g}. A budget is held at one order, fixed before the first release; open "
            "the ledger with its own."
        )
    if not np.array_equal(terms["orders"], DEFAULT_ORDERS):
        raise LedgerConflict(
            f"Expected the grid of orders that {file.name} was begun with, which is not the one of this "
            "version of tellers. Open it with the version that made it."
        )


def place(file: Path) -> tuple[int, int] | None:
    """Return which file has this name now, or None."""
    try:
        now = file.stat()
    except FileNotFoundError:
        return None
    return now.st_dev, now.st_ino


def read(connection: sqlite3.Connection, where: str, *values: Any) -> Iterator[Line]:
    """Return some lines, as they are."""
    return (Line(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM lines {where}", values))


def read_chain(connection: sqlite3.Connection) -> Iterator[Line]:
    """Return all lines, each checked against the one before."""
    head = None
    for line in read(connection, "ORDER BY number"):
        line.require_follows(head)
        head = line
        yield line


def append(connection: sqlite3.Connection, line: Line) -> None:
    """Add one line."""
    said = (line.number, line.kind, line.key, line.body, line.previous, line.hash)
    connection.execute(f"INSERT INTO lines ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", said)


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
