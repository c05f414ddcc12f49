"""The store of keys: argon2id hashes, requests per minute, and, as a witness, the last line of each ledger.

A key itself is shown once, when it is made. All processes of a service share the counts.
"""

import math
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sql

from ..errors import MissingExtra
from ..ledger.opening import is_url
from ..ledger.sqlite import flush_log

if TYPE_CHECKING:
    from argon2 import PasswordHasher

    from ..ledger.sql._witness import TableWitness

WINDOW = 60
"""Seconds; a limit holds in any so many of them."""

TABLES = sql.MetaData()
_RATES = sql.Table(
    "tellers_rates", TABLES,
    sql.Column("who", sql.String(64), primary_key=True),
    sql.Column("second", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("n", sql.Integer, nullable=False),
)  # fmt: skip
_KEYS = sql.Table(
    "tellers_keys", TABLES,
    sql.Column("id", sql.String(12), primary_key=True),
    sql.Column("name", sql.String(64), nullable=False),
    sql.Column("role", sql.String(16), nullable=False),
    sql.Column("hash", sql.String(200), nullable=False),
    sql.Column("created", sql.String(32), nullable=False),
    sql.Column("revoked", sql.String(32)),
)  # fmt: skip
_SESSIONS = sql.Table(
    "tellers_sessions", TABLES,
    sql.Column("number", sql.String(64), primary_key=True),
    sql.Column("key", sql.String(12), nullable=False),
    sql.Column("ends", sql.BigInteger, nullable=False),
)  # fmt: skip
_HEADS = sql.Table(
    "tellers_heads", TABLES,
    sql.Column("ledger", sql.String(64), primary_key=True),
    sql.Column("head", sql.String(64), nullable=False),
)  # fmt: skip

_FIND = "SELECT id, name, role, created, revoked FROM tellers_keys WHERE id = ?"
_MINE = "FROM tellers_rates WHERE who = :who AND second >= :first"
# One statement looks and counts: nobody comes in between who also finds room.
_HIT = sql.text(
    "INSERT INTO tellers_rates (who, second, n) "
    f"SELECT :who, :second, 1 WHERE (SELECT coalesce(sum(n), 0) {_MINE}) < :most "
    "ON CONFLICT (who, second) DO UPDATE SET n = tellers_rates.n + 1 "
    f"RETURNING n, (SELECT max(second) {_MINE})"
).bindparams(sql.bindparam("who", type_=sql.String), sql.bindparam("second", type_=sql.BigInteger))
_SEEN = sql.text(f"SELECT second, n {_MINE} ORDER BY second")
_AHEAD = sql.text("SELECT coalesce(sum(n), 0) FROM tellers_rates WHERE who = :who AND second > :second")
_FORGET_AHEAD = sql.text("DELETE FROM tellers_rates WHERE who = :who AND second > :second")
_COUNT_NOW = sql.text(
    "INSERT INTO tellers_rates (who, second, n) VALUES (:who, :second, :n) "
    "ON CONFLICT (who, second) DO UPDATE SET n = tellers_rates.n + :n"
)
_FORGET = sql.text("DELETE FROM tellers_rates WHERE who = :who AND second < :first")
_FORGET_ALL = sql.text("DELETE FROM tellers_rates WHERE second < :first")
# In PostgreSQL a statement sees what was there when it began, so it begins when the others are done. The
# server's clock is everybody's; what a crash loses is a minute old at most, so nobody waits for a disk.
_TURN = sql.text(
    "SELECT pg_advisory_xact_lock(hashtextextended('tellers_rates ' || :who, 0)), "
    "set_config('synchronous_commit', 'off', true), extract(epoch FROM clock_timestamp())"
)


Execute = Callable[[sql.TextClause, dict[str, Any]], Sequence[Any]]


def _rows(connection: sql.Connection, statement: sql.TextClause, given: dict[str, Any]) -> Sequence[Any]:
    found = connection.execute(statement, given)
    return found.all() if found.returns_rows else ()


class Rates:
    """Counts what somebody does, by the second, for all processes that share a database."""

    def __init__(self, engine: sql.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._clock = engine, clock
        self._is_server = engine.dialect.name == "postgresql"

    def hit(self, who: str, *, most: int) -> int:
        """Count one more and return 0, or count nothing and return the seconds to wait.

        Guarantee: never more than `most` in any minute, whichever processes counted them; a second that has
                   begun counts as a whole, so that somebody may wait up to one too long. A clock that is set
                   back lets nobody do more, and nobody wait for longer than a minute: what is counted in
                   seconds to come is found by the next request, and counts as if it were done then.
        Assumes:   the processes share a clock: that of the machine for a file, of the server for a database.
                   One that is set forward, by a minute or more, forgets what was counted: once per step
                   somebody may then do `most` again within a minute.
        Reference: none.
        """
        with self._engine.connect() as connection:
            now = self._turn(connection, who)
            wait = self.count(partial(_rows, connection), now, who, most=most)
            connection.commit()
        return wait

    def count(self, execute: "Execute", now: float, who: str, *, most: int) -> int:
        """Do what `hit` does by somebody else's transaction."""
        second = math.floor(now)
        place = {"who": who, "first": second - WINDOW}
        found = execute(_HIT, {**place, "second": second, "most": most})
        if not found:
            seen = execute(_SEEN, place)
            if seen[-1][0] > second:
                self._count_now(execute, who, second)
                seen = execute(_SEEN, place)
            return wait_for([(int(at), int(n)) for at, n in seen], most=most, now=now)
        n, newest = found[0]
        if (newest or second) > second:
            self._count_now(execute, who, second)
        if n == 1:  # a new second: the oldest are not needed any more
            execute(_FORGET, place)
        return 0

    def _count_now(self, execute: "Execute", who: str, second: int) -> None:
        """Count what stands in seconds to come as of this second: when it really was is not known."""
        ahead = {"who": who, "second": second}
        ((n,),) = execute(_AHEAD, ahead)
        execute(_FORGET_AHEAD, ahead)
        execute(_COUNT_NOW, {**ahead, "n": n})

    def forget(self) -> None:
        """Remove what is too old to count, of everybody."""
        with self._engine.begin() as connection:
            connection.execute(_FORGET_ALL, {"first": math.floor(self._turn(connection, "")) - WINDOW})

    def _turn(self, connection: sql.Connection, who: str) -> float:
        if not self._is_server:
            return self._clock()
        return float(connection.execute(_TURN, {"who": who}).one()[2])


def wait_for(seen: list[tuple[int, int]], *, most: int, now: float) -> int:
    """Return after how many whole seconds one more fits, by what was seen in each second so far."""
    left = sum(n for _, n in seen)
    for second, n in seen:
        left -= n
        if left < most:
            return max(1, math.ceil(second + WINDOW + 1 - now))
    return 1


Role = Literal["student", "operator", "auditor"]
ROLES: tuple[Role, ...] = ("student", "operator", "auditor")

TOKEN = re.compile(r"tlr_([a-z2-7]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[a-z2-7]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
# Each check takes 19 MiB, which a thread does not give back, and a core: there are few threads for it, and
# one for unknown ids (60 random bits: a guess), so that no guess keeps a key waiting.
_CHECKS = ThreadPoolExecutor(3, "check")
_GUESSES = ThreadPoolExecutor(1, "guess")
_GUESS_SHARE = 1 / 3
_guessing_from = [0.0]


@dataclass(frozen=True)
class Key:
    """What is known of a key without its secret."""

    id: str
    name: str
    role: Role
    created: str
    revoked: str | None = None

    @property
    def is_revoked(self) -> bool:
        return self.revoked is not None


class KeyStore:
    """Keys in a table of their own, in a file or a database."""

    def __init__(self, place: str, *, timeout: float = 5.0) -> None:
        self._file: tuple[Path, tuple[int, int]] | None = None
        self._timeout, self._clock = timeout, time.time
        self._quick: sqlite3.Connection | None = None
        self._quick_lock = threading.RLock()
        if is_url(place):
            from ..ledger.sql.connection import make_engine, parse_url

            # Every request waits for this: a server that does not answer is given up soon.
            self._engine = self._counting = make_engine(parse_url(place), timeout=timeout, keeps=True)
        elif "://" in place:
            # The text is not quoted: it may hold a password.
            raise ValueError("Expected a file or a postgresql:// URL for keys, got another kind of URL.")
        else:
            # Made by ourselves first: SQLite would make it readable for others. One that is there is left
            # alone: closing it would take the locks of another store of this process on it.
            with suppress(FileExistsError):
                os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            url = sql.URL.create("sqlite", database=place)
            self._engine = sql.create_engine(url, connect_args={"timeout": timeout})
            sql.event.listen(self._engine, "connect", lambda opened, _: _use_log(opened, "FULL"))
            # A count lost in a power cut is a minute old at most: it waits for no disk. A key does.
            self._counting = sql.create_engine(url, connect_args={"timeout": timeout})
            sql.event.listen(self._counting, "connect", lambda opened, _: _use_log(opened, "NORMAL"))
            self._file = (Path(place).absolute(), _identity(Path(place)))
        self.rates = Rates(self._counting)
        try:
            self._make_tables()
            if self._file is not None:
                flush_log(self._file[0])
            self.rates.forget()
        except sql.exc.DBAPIError as error:
            self.close()
            where = self._engine.url.render_as_string(hide_password=True)
            raise OSError(
                f"Expected a store of keys at {where}, could not open or make it. Is it there?"
            ) from error

    def _make_tables(self) -> None:
        from ..ledger.sql._witness import TABLE

        for table in (_KEYS, _RATES, _SESSIONS, _HEADS, TABLE):
            try:
                table.create(self._engine, checkfirst=True)
            except sql.exc.DBAPIError:
                # Another process may have made it since it was looked for.
                table.create(self._engine, checkfirst=True)

    def create(self, name: str, role: str) -> tuple[str, Key]:
        """Make a key and return it, the only time it is seen, with what is kept of it."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"Expected a name of letters, digits, dot, hyphen, underscore or @, up to 64, got {name!r}."
            )
        if role not in ROLES:
            raise ValueError(f"Expected a role: {', '.join(ROLES)}, got {role!r}.")
        number, secret = "".join(secrets.choice(_LETTERS) for _ in range(12)), secrets.token_urlsafe(32)
        key = Key(number, name, role, _now())
        with self._open() as connection:
            connection.execute(
                _KEYS.insert().values(
                    id=key.id, name=key.name, role=key.role, hash=hasher().hash(secret), created=key.created
                )
            )
        return f"tlr_{number}_{secret}", key

    def find(self, number: str) -> Key | None:
        found = self._row(number)
        return None if found is None else found[0]

    def verify(self, token: str) -> Key | None:
        """Return the key that a token is, or None; an unknown id takes as long as a wrong secret.

        A revoked key is returned too: whoever asks looks at `is_revoked`.
        """
        parts = TOKEN.fullmatch(token)
        if parts is None:
            return None
        found = self._row(parts[1])
        if found is None:
            _GUESSES.submit(_guess, parts[2]).result()
            return None
        key, hashed = found
        return key if _CHECKS.submit(_matches, hashed, parts[2]).result() else None

    def revoke(self, number: str) -> Key:
        """Revoke a key by its id; it opens nothing from the next request on."""
        with self._open() as connection:
            connection.execute(
                _KEYS.update().where(_KEYS.c.id == number, _KEYS.c.revoked.is_(None)).values(revoked=_now())
            )
        key = self.find(number)
        if key is None:
            raise ValueError(f"Expected the id of a key, got {number!r}. `tellers keys list` shows them.")
        return key

    def all(self) -> list[Key]:
        columns = [column for column in _KEYS.c if column.name != "hash"]
        with self._open() as connection:
            rows = connection.execute(sql.select(*columns).order_by(_KEYS.c.created, _KEYS.c.id))
            return [Key(*row) for row in rows]

    def hit(self, number: str, *, most: int) -> int:
        """Count one more request of a key and return 0, or return how many seconds it has to wait."""
        with self._there():
            return self.rates.hit(number, most=most)

    def admit_all(self, numbers: Sequence[str], *, most: int) -> list[tuple[Key | None, int]]:
        """Return the keys of these ids, one more request counted for each, or the seconds that one waits.

        Without `most` nothing is counted.
        """
        with self._there():
            if self._file is None:
                found = [self.find(number) for number in numbers]
                return [
                    (key, 0 if key is None or not most else self.rates.hit(key.id, most=most))
                    for key in found
                ]
            with self._quick_lock:
                try:
                    return self._admitted(numbers, most)
                except sqlite3.Error as error:
                    self._forget_quick()
                    raise ConnectionError(
                        "Expected the store of keys to answer, it does not. Is it there, and free?"
                    ) from error

    def _admitted(self, numbers: Sequence[str], most: int) -> list[tuple[Key | None, int]]:
        # By SQLite itself, in one transaction: what SQLAlchemy adds costs more than all the rest.
        assert self._file is not None
        if self._quick is None:
            self._quick = sqlite3.connect(
                self._file[0], timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            _use_log(self._quick, "NORMAL")
        connection, found = self._quick, list[tuple[Key | None, int]]()

        def execute(statement: sql.TextClause, given: dict[str, Any]) -> Sequence[Any]:
            return connection.execute(statement.text, given).fetchall()

        connection.execute("BEGIN IMMEDIATE" if most else "BEGIN")
        try:
            for number in numbers:
                row = connection.execute(_FIND, (number,)).fetchone()
                key = None if row is None else Key(*row)
                counted = key is not None and most and not key.is_revoked
                found.append(
                    (key, self.rates.count(execute, self._clock(), number, most=most) if counted else 0)
                )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return found

    def _forget_quick(self) -> None:
        connection, self._quick = self._quick, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def begin_session(self, number: str, key: str, *, ends: int, now: float, most: int) -> None:
        """Remember a session of a key until it ends; of one key no more than so many, the oldest go."""
        with self._open() as connection:
            connection.execute(_SESSIONS.delete().where(_SESSIONS.c.ends <= now))
            mine = (
                sql.select(_SESSIONS.c.number).where(_SESSIONS.c.key == key).order_by(_SESSIONS.c.ends.desc())
            )
            over = [found for (found,) in connection.execute(mine)][most - 1 :]
            connection.execute(_SESSIONS.delete().where(_SESSIONS.c.number.in_(over)))
            connection.execute(_SESSIONS.insert().values(number=number, key=key, ends=ends))

    def session(self, number: str) -> tuple[str, int] | None:
        """Return the key of a session and when it ends, or None where it was ended."""
        wanted = sql.select(_SESSIONS.c.key, _SESSIONS.c.ends).where(_SESSIONS.c.number == number)
        with self._open() as connection:
            found = connection.execute(wanted).one_or_none()
        return None if found is None else (str(found[0]), int(found[1]))

    def end_session(self, number: str) -> None:
        with self._open() as connection:
            connection.execute(_SESSIONS.delete().where(_SESSIONS.c.number == number))

    def known_head(self, ledger: str) -> str | None:
        """Return the last hash that a service of an earlier version saw of a ledger, or None."""
        with self._open() as connection:
            found = connection.execute(sql.select(_HEADS.c.head).where(_HEADS.c.ledger == ledger)).scalar()
        return None if found is None else str(found)

    @property
    def witness(self) -> "TableWitness":
        """Return the witness that this store is; its table is made with the others."""
        from ..ledger.sql._witness import TableWitness

        return TableWitness(self._open, name="the store of keys")

    def close(self) -> None:
        with self._quick_lock:
            self._forget_quick()
        self._engine.dispose()
        self._counting.dispose()

    @contextmanager
    def _open(self) -> Iterator[sql.Connection]:
        """Hold the store for one transaction, or say in plain words that it does not answer."""
        with self._there(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _there(self) -> Iterator[None]:
        try:
            if self._file is not None:
                path, known = self._file
                if _identity(path) != known:
                    # A file put in its place is another store: what is revoked there must be revoked here.
                    self.close()
                    self._file = (path, _identity(path))
                    self._make_tables()
            yield
        except (sql.exc.DBAPIError, sql.exc.TimeoutError) as error:
            raise ConnectionError(
                "Expected the store of keys to answer, it does not. Is it there, and free?"
            ) from error

    def _row(self, number: str) -> tuple[Key, str] | None:
        if not _ID.fullmatch(number):
            return None
        with self._open() as connection:
            row = connection.execute(sql.select(_KEYS).where(_KEYS.c.id == number)).one_or_none()
        if row is None:
            return None
        return Key(row.id, row.name, row.role, row.created, row.revoked), row.hash


@cache
def hasher() -> "PasswordHasher":
    """Return how secrets are hashed: argon2id, 19 MiB, two passes.

    Secrets are 256 random bits, so no dictionary helps; the hash keeps a stolen table from being a key ring.
    """
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise MissingExtra("Keys need argon2: pip install 'tellers[service]'") from error
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


def _matches(hashed: str, secret: str) -> bool:
    from argon2.exceptions import VerificationError

    try:
        return hasher().verify(hashed, secret)
    except VerificationError:
        return False


def _guess(secret: str) -> None:
    """Take as long as for a known id, and leave the core to others before the next one."""
    time.sleep(max(0.0, _guessing_from[0] - time.monotonic()))
    begun = time.monotonic()
    _matches(_stand_in(), secret)
    _guessing_from[0] = begun + (time.monotonic() - begun) / _GUESS_SHARE


@cache
def _stand_in() -> str:
    return hasher().hash(secrets.token_urlsafe(32))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _identity(path: Path) -> tuple[int, int]:
    try:
        now = path.stat()
    except OSError as error:
        raise FileNotFoundError(f"Expected the store of keys in {path.name}, it is not there.") from error
    return now.st_dev, now.st_ino


def _use_log(connection: Any, synchronous: str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
