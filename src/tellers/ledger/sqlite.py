"""A ledger in a SQLite file: the same chain and the same rules, for many processes on one machine."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LedgerConflict, require_positive
from ..privacy._files import sync_folder
from ..privacy.budget import Accountant
from ._chain import BEFORE_FORK, ChainedLedger, T, no_forks, watch_forks
from ._inode import FileLock, before_fork, unusable
from ._lines import READABLE, SCHEMA, Line, LineReader, LineStore, before_the_first
from ._state import opening
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
_PAGE = 1000
_MOST_VALUES = 500
_LAST_CHARACTER = 0x10FFFF
_HALVES = range(0xD800, 0xE000)


def connect(file: Path, first: Sequence[Line], timeout: float) -> sqlite3.Connection:
    """Open a ledger's file, or make one that begins with these lines; its `FileLock` is held."""
    # A lock lets one thread in at a time, so any of them may use the connection.
    connection = sqlite3.connect(
        file, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    # A damaged text must come as far as its hash, which then says so.
    connection.text_factory = _text
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # where a flush may stop in the drive's own memory
        if not _is_ledger(connection, file):
            _create(connection, first, file, timeout)
        _use_log(connection, file, timeout)
        connection.execute("PRAGMA user_version").fetchone()  # with the first look at it the log is there
        flush_log(file)
    except BaseException:
        connection.close()
        raise
    return connection


def flush_log(file: Path) -> None:
    """Make durable what is seen: a program killed before its flush leaves a commit that others read."""
    with suppress(FileNotFoundError):
        # Not a file that SQLite has locks on: those are on the ledger itself, and on shared memory.
        log = os.open(f"{file}-wal", os.O_RDWR)
        try:
            os.fsync(log)
        finally:
            os.close(log)


def _text(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def first_line(file: Path, timeout: float) -> Line:
    """Return the line that a ledger's file begins with, which holds its terms; nothing is made."""
    if not file.is_file():
        raise FileNotFoundError(f"Expected a ledger in {file}, got no file. Nothing was written.")
    with held(file, timeout):
        connection = sqlite3.connect(file, timeout=timeout, isolation_level=None)
        try:
            if not _is_ledger(connection, file):
                raise LedgerConflict(f"Expected a ledger in {file.name}, got an empty file.")
            for line in SqliteStore(connection).numbered([0]):
                return line
        finally:
            connection.close()
    raise LedgerConflict(f"{file.name} lost its first line, which holds its budget. Restore it.")


@contextmanager
def held(file: Path, timeout: float) -> Iterator[None]:
    """Hold the name of a file while it is used, and say errors in plain words."""
    lock = FileLock(file)
    with no_forks(), plain_words(file, timeout):
        lock.open()
        try:
            yield
        finally:
            lock.close()


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
        SqliteStore(connection).append(first)
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


class SqliteStore:
    """The lines of a ledger in a SQLite file, by one connection."""

    def __init__(self, connection: sqlite3.Connection, title: str = "The ledger") -> None:
        self._connection, self._title = connection, title

    def _lines(self, rest: str, *values: Any) -> list[Line]:
        # Columns and conditions are constants of this package; what callers give is bound as a value.
        found = self._connection.execute(f"SELECT {_COLUMNS} FROM lines {rest}", values)  # noqa: S608
        return [Line(*row) for row in found]

    def head(self) -> tuple[int, str] | None:
        found = self._connection.execute("SELECT number, hash FROM lines ORDER BY number DESC LIMIT 1")
        row: tuple[int, str] | None = found.fetchone()
        return row

    def after(self, number: int) -> Iterator[Line]:
        while page := _page(number, self):
            yield from page
            number = page[-1].number

    def numbered(self, numbers: Iterable[int]) -> list[Line]:
        wanted, found = sorted(set(numbers)), list[Line]()
        for some in _some(wanted):
            found += self._lines(f"WHERE number IN ({_marks(some)}) ORDER BY number", *some)
        return found

    def named(self, kind: str, keys: Sequence[str]) -> dict[str, Line]:
        found: dict[str, Line] = {}
        for some in _some([key for key in keys if _is_whole(key)]):
            for line in self._lines(f"WHERE kind = ? AND key IN ({_marks(some)})", kind, *some):
                found[line.key] = line
        return found

    def of_kind(self, kind: str, begins: str, *, after: int) -> list[int]:
        if not _is_whole(begins):
            return []
        where, values = "kind = ?", list[Any]([kind])
        if begins:
            first = begins.encode()  # as bytes: to `substr` a text ends where it has a zero
            where, values = f"{where} AND substr(CAST(key AS BLOB), 1, ?) = ?", [*values, len(first), first]
        if after < 0:
            # The index has kinds and keys; the last character has nothing after it that begins so.
            if begins:
                where, values = f"{where} AND key >= ?", [*values, begins]
            if begins and ord(begins[-1]) < _LAST_CHARACTER:
                where, values = f"{where} AND key < ?", [*values, begins[:-1] + _following(begins[-1])]
            found = self._connection.execute(
                f"SELECT number FROM lines WHERE {where}",  # noqa: S608
                values,
            )
            return sorted(number for (number,) in found)
        found = self._connection.execute(
            f"SELECT number FROM lines NOT INDEXED WHERE number > ? AND {where} ORDER BY number",  # noqa: S608
            [after, *values],
        )
        return [number for (number,) in found]

    def last(self, kind: str) -> Line | None:
        # Keys of such lines are their numbers: the longest and largest is the last.
        newest = "SELECT number FROM lines WHERE kind = ? ORDER BY length(key) DESC, key DESC LIMIT 1"
        found = self._lines(f"WHERE number = ({newest})", kind)
        return found[0] if found else None

    def append(self, lines: Sequence[Line]) -> None:
        said = [(line.number, line.kind, line.key, line.body, line.previous, line.hash) for line in lines]
        marks = "?, ?, ?, ?, ?, ?"
        self._connection.executemany(f"INSERT INTO lines ({_COLUMNS}) VALUES ({marks})", said)  # noqa: S608

    def require_rules(self) -> None:
        """Refuse a damaged file, and one whose tables or triggers were changed."""
        if self._connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise LedgerConflict(f"{self._title} is damaged. Restore it from a backup.")
        if self._connection.execute("SELECT 1 FROM lines WHERE number < 0 LIMIT 1").fetchone():
            raise before_the_first(self._title)
        kept = self._connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        if tuple(sql for (sql,) in kept) != TABLES:
            raise LedgerConflict(
                f"The tables of {self._title} are not those of a ledger: the rules that keep it "
                "append-only were changed. Restore it from a backup."
            )


def _some(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[at : at + _MOST_VALUES] for at in range(0, len(values), _MOST_VALUES))


def _is_whole(text: str) -> bool:
    """Return whether a text can be stored: it has no halves of characters in it."""
    return text.encode("utf-8", "ignore").decode("utf-8") == text


def _following(character: str) -> str:
    after = ord(character) + 1
    return chr(after if after not in _HALVES else _HALVES.stop)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _damaged(file: Path, error: Exception) -> LedgerConflict:
    return LedgerConflict(
        f"Expected a ledger in {file.name}, got a file that is none or is damaged ({error}). "
        "Nothing was written. Name another file, or restore this one from a backup."
    )


@contextmanager
def plain_words(file: Path, timeout: float) -> Iterator[None]:
    """Say what SQLite's errors mean for a ledger. None of them was followed by a commit."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite quotes what it could not read
        raise _damaged(file, error) from error
    except sqlite3.Error as error:
        name = _name(error)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise TimeoutError(
                f"Expected {file.name} to be free within {timeout:g} s, another writer holds it. "
                "Nothing was written; try again, or look for a process that hangs."
            ) from error
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_TOOBIG")):
            raise _damaged(file, error) from error
        if isinstance(error, sqlite3.IntegrityError):
            raise LedgerConflict(f"{file.name} refused a line: {error}. Nothing was written.") from error
        raise unusable(file, error) from error


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


class _LedgerPages:
    """The lines of a ledger for whoever reads all of them, a page at a time.

    One moment for all of it would keep the log from being emptied. Between two pages nothing is held, and the
    ledger may be closed, for a fork, say.
    """

    def __init__(self, ledger: "SqliteLedger") -> None:
        self._ledger = ledger

    def after(self, number: int) -> Iterator[Line]:
        while page := self._ledger._check(partial(_page, number)):
            yield from page
            number = page[-1].number

    def head(self) -> tuple[int, str] | None:
        return self._ledger._check(lambda store: store.head())

    def of_kind(self, kind: str, begins: str, *, after: int) -> list[int]:
        return self._ledger._check(lambda store: store.of_kind(kind, begins, after=after))

    def numbered(self, numbers: Iterable[int]) -> list[Line]:
        return self._ledger._check(lambda store: store.numbered(numbers))

    def require_rules(self) -> None:
        self._ledger._check(lambda store: store.require_rules())


def _page(number: int, store: SqliteStore) -> list[Line]:
    return store._lines("WHERE number > ? ORDER BY number LIMIT ?", number, _PAGE)


# What forgotten ledgers had open. The garbage collector may run anywhere; the next ledger in use closes them.
_forgotten: list[tuple[list[sqlite3.Connection], FileLock]] = []


@dataclass(eq=False)
class SqliteLedger(ChainedLedger):
    """Keep the ledger in a file that outlives the process, for any number of threads and processes.

    The budget is written down when the file is made, and the file is opened with no other. `close`, or the
    end of a `with` block, hands the file back; a ledger that is used again opens it again. `timeout` is how
    many seconds to wait for other writers. Private costs are not kept, unless there is a `vault` for them.

    Guarantee: the sum of all debits never passes the budget, whoever else writes. A reservation is on
               the disk when `reserve` returns. A changed line is found by its hash when it is read. A file
               with a second name is refused.
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

    _store_errors = (sqlite3.Error,)
    path: str | os.PathLike[str]
    accountant: Accountant
    _: KW_ONLY
    allow_seeded: bool = False
    timeout: float = 30.0
    vault: Vault | None = None
    _path: Path = field(init=False, repr=False)
    _file: FileLock = field(init=False, repr=False)
    # By what they are for: the turn that writes, who looks something up, and who reads all of it. One thread
    # at a time uses each.
    _connections: dict[str, sqlite3.Connection] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout)
        if os.fspath(self.path) in ("", ":memory:"):
            raise ValueError(f"Expected the path of a file, got {self.path!r}. Use MemoryLedger(accountant).")
        self._path = Path(os.path.abspath(self.path))
        self._file = FileLock(self._path)
        self._begin()
        # SQLite's locks do not survive a fork: a child must not use, or even close, what its parent opened.
        watch_forks(self)
        try:
            self.view()  # a file that is no ledger, or another one, is refused now, not at the first question
        except BaseException:
            self.close()
            raise

    def _close(self) -> None:
        connections, self._connections = self._connections, {}
        try:
            self._file.require_same()
        except LedgerConflict:
            for connection in connections.values():
                _empty_log(connection)
        self._file.close(connections.values())

    def __del__(self) -> None:
        connections, file = getattr(self, "_connections", {}), getattr(self, "_file", None)
        if file is not None and file.is_open:
            _forgotten.append((list(connections.values()), file))

    def __reduce__(self) -> tuple[Callable[..., "SqliteLedger"], tuple[Any, ...]]:
        # Another process opens the file for itself; connections and locks do not travel.
        again = partial(SqliteLedger, allow_seeded=self.allow_seeded, timeout=self.timeout, vault=self.vault)
        return again, (os.fspath(self._path), self.accountant)

    def _title(self) -> str:
        return self._path.name

    def _require_key(self, key: str) -> None:
        # Refused here, for it would be refused in the middle of a turn, and with it all that others asked.
        if not _is_whole(key):
            raise ValueError(f"Expected a key in whole characters, got {key!r}. Nothing was charged.")

    def _look(self, look: Callable[[LineStore], T]) -> T:
        with self._alone(), plain_words(self._path, self.timeout):
            connection = self._open("looking")
            try:
                connection.execute("BEGIN")
                return look(SqliteStore(connection, self._title()))
            finally:
                self._end("looking", "ROLLBACK")

    @contextmanager
    def _reading(self) -> Iterator[LineReader]:
        yield _LedgerPages(self)

    def _check(self, look: Callable[[SqliteStore], T]) -> T:
        """Return what `look` makes of a page, on the connection for those who read all of it."""
        with self._checking, plain_words(self._path, self.timeout):
            return look(SqliteStore(self._open("checking"), self._title()))

    def _commit(self, next_lines: Callable[[LineStore], Sequence[Line]], deadline: float) -> None:
        with plain_words(self._path, self.timeout):
            connection = self._open("writing")
            if not self._file.take_turn(deadline):
                raise self._busy()
            try:
                # Whoever is no ledger of ours, and holds the file, is waited for as long.
                wait = max(0, round(1000 * min(deadline - time.monotonic(), 1e6)))
                connection.execute(f"PRAGMA busy_timeout = {wait}")
                try:
                    connection.execute("BEGIN IMMEDIATE")  # a Ctrl-C while it waits comes when it is begun
                    store = SqliteStore(connection, self._title())
                    store.append(next_lines(store))
                    connection.execute("COMMIT")
                except BaseException:
                    self._end("writing", "ROLLBACK")
                    raise
            finally:
                self._file.end_turn()

    def _open(self, purpose: str) -> sqlite3.Connection:
        """Return the connection for a purpose, with the file where it was."""
        _close_forgotten()
        connection = self._connections.get(purpose)
        try:
            self._file.require_same()
        except LedgerConflict:
            if connection is not None:
                _empty_log(connection)
            raise
        if connection is None:
            self._file.open()
            connection = connect(self._path, [opening(self.accountant)], self.timeout)
            try:
                self._file.hold_log()
                self._file.require_same()  # it may have been replaced while it was opened
            except BaseException:
                connection.close()
                raise
            self._connections[purpose] = connection
        return connection

    def _end(self, purpose: str, how: str) -> None:
        connection = self._connections.get(purpose)
        if connection is None or not connection.in_transaction:
            return
        with suppress(sqlite3.Error):
            connection.execute(how)
        if connection.in_transaction:
            # One that cannot be ended would keep everybody out, ourselves as well.
            del self._connections[purpose]
            connection.close()


def _empty_log(connection: sqlite3.Connection) -> None:
    """Write what is in the log into a file that was moved: SQLite does not, and the log has the old name."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _close_forgotten() -> None:
    while _forgotten:
        try:
            connections, file = _forgotten.pop()
        except IndexError:  # another thread may be at it
            return
        file.close(connections)


BEFORE_FORK.extend([_close_forgotten, before_fork])
