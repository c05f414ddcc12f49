"""API keys: who may ask. Only argon2id hashes are kept; a key itself is shown once, when it is made."""

import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import sqlalchemy as sql

from ..errors import MissingExtra
from ..ledger.opening import is_url
from .heads import TABLES as HEADS
from .heads import known_head, remember_head
from .rates import TABLES as RATES
from .rates import Rates

if TYPE_CHECKING:
    from argon2 import PasswordHasher

Role = Literal["student", "operator", "auditor"]
ROLES: tuple[Role, ...] = ("student", "operator", "auditor")

TOKEN = re.compile(r"tlr_([a-z2-7]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[a-z2-7]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
# Each check takes some MiB of memory: strangers who guess keys must not take all of it.
_CHECKS = threading.BoundedSemaphore(4)

_TABLES = sql.MetaData()
_KEYS = sql.Table(
    "tellers_keys", _TABLES,
    sql.Column("id", sql.String(12), primary_key=True),
    sql.Column("name", sql.String(64), nullable=False),
    sql.Column("role", sql.String(16), nullable=False),
    sql.Column("hash", sql.String(200), nullable=False),
    sql.Column("created", sql.String(32), nullable=False),
    sql.Column("revoked", sql.String(32)),
)  # fmt: skip


@dataclass(frozen=True)
class Key:
    """What is known of a key without its secret.

    >>> Key("abcdefghijkl", "alice", "student", "2026-01-01T00:00:00+00:00").is_revoked
    False
    """

    id: str
    name: str
    role: Role
    created: str
    revoked: str | None = None

    @property
    def is_revoked(self) -> bool:
        """Return whether the key opens nothing any more."""
        return self.revoked is not None


class KeyStore:
    """Keys in a table of their own, in a file or a database.

    >>> import tempfile
    >>> store = KeyStore(tempfile.mkdtemp() + "/keys.db")
    >>> token, key = store.create("alice", "student")
    >>> store.verify(token) == key, store.verify(token[:-1] + "!") is None
    (True, True)
    >>> store.revoke(key.id).is_revoked, store.find(key.id).is_revoked
    (True, True)
    >>> [key.name for key in store.all()]
    ['alice']
    >>> store.close()
    """

    def __init__(self, place: str, *, timeout: float = 5.0) -> None:
        self._file: tuple[Path, tuple[int, int]] | None = None
        if is_url(place):
            from ..ledger.sql.tables import make_engine, parse_url

            # Every request waits for this: a server that does not answer is given up soon.
            self._engine = self._counting = make_engine(parse_url(place), timeout=timeout, keeps=True)
        elif "://" in place:
            # The text is not quoted: it may hold a password.
            raise ValueError("Expected a file or a postgresql:// URL for keys, got another kind of URL.")
        else:
            _private_file(place)
            url = sql.URL.create("sqlite", database=place)
            self._engine = sql.create_engine(url, connect_args={"timeout": timeout})
            sql.event.listen(self._engine, "connect", _use_log)
            # A count lost in a power cut is a minute old at most: it waits for no disk. A key does.
            self._counting = sql.create_engine(url, connect_args={"timeout": timeout})
            sql.event.listen(self._counting, "connect", _use_log_lazily)
            self._file = (Path(place).absolute(), _identity(Path(place)))
        self.rates = Rates(self._counting)
        try:
            self._make_tables()
            self.rates.forget()
        except sql.exc.DBAPIError as error:
            self.close()
            where = self._engine.url.render_as_string(hide_password=True)
            raise OSError(
                f"Expected a store of keys at {where}, could not open or make it. Is it there?"
            ) from error

    def _make_tables(self) -> None:
        for tables in (_TABLES, RATES, HEADS):
            try:
                tables.create_all(self._engine)
            except sql.exc.DBAPIError:
                # Another process may have made them since they were looked for.
                tables.create_all(self._engine)

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
        """Return what is known of a key by its id, or None."""
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
        key, hashed = found if found is not None else (None, _stand_in())
        from argon2.exceptions import VerificationError

        with _CHECKS:
            try:
                hasher().verify(hashed, parts[2])
            except VerificationError:
                return None
        return key

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
        """Return every key, oldest first."""
        columns = [column for column in _KEYS.c if column.name != "hash"]
        with self._open() as connection:
            rows = connection.execute(sql.select(*columns).order_by(_KEYS.c.created, _KEYS.c.id))
            return [Key(*row) for row in rows]

    def hit(self, number: str, *, most: int) -> int:
        """Count one more request of a key and return 0, or return how many seconds it has to wait.

        >>> import tempfile
        >>> store = KeyStore(tempfile.mkdtemp() + "/keys.db")
        >>> _, key = store.create("alice", "student")
        >>> store.hit(key.id, most=1), store.hit(key.id, most=1) > 0
        (0, True)
        """
        with self._there():
            return self.rates.hit(number, most=most)

    def known_head(self, ledger: str) -> str | None:
        """Return the last hash that a service saw of a ledger, or None; see `service.heads`.

        >>> import tempfile
        >>> KeyStore(tempfile.mkdtemp() + "/keys.db").known_head("study") is None
        True
        """
        with self._open() as connection:
            return known_head(connection, ledger)

    def remember_head(self, ledger: str, head: str) -> None:
        """Note the last hash of a ledger.

        >>> import tempfile
        >>> store = KeyStore(tempfile.mkdtemp() + "/keys.db")
        >>> store.remember_head("study", "ab12")
        >>> store.known_head("study")
        'ab12'
        """
        with self._open() as connection:
            remember_head(connection, ledger, head)

    def close(self) -> None:
        """Hand the file or the connections back."""
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

    >>> hasher().hash("secret").startswith("$argon2id$")
    True
    """
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise MissingExtra("Keys need argon2: pip install 'tellers[service]'") from error
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@cache
def _stand_in() -> str:
    return hasher().hash(secrets.token_urlsafe(32))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _private_file(path: str) -> None:
    import os

    # Made by ourselves first: SQLite would make it readable for others.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _identity(path: Path) -> tuple[int, int]:
    try:
        now = path.stat()
    except OSError as error:
        raise FileNotFoundError(f"Expected the store of keys in {path.name}, it is not there.") from error
    return now.st_dev, now.st_ino


def _use_log_lazily(connection: object, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]
    connection.execute("PRAGMA synchronous = NORMAL")  # type: ignore[attr-defined]


def _use_log(connection: object, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]
    connection.execute("PRAGMA synchronous = FULL")  # type: ignore[attr-defined]
