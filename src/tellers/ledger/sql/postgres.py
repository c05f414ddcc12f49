"""A ledger in PostgreSQL: the same chain and the same rules, for many machines at once."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from ...errors import LedgerConflict, require_positive
from ...privacy.budget import Accountant
from .._chain import ChainedLedger, LedgerState, Line, T, opening, watch_forks
from ..base import canonical
from ..vault import Vault
from .connection import (
    LEDGERS,
    LINES,
    REVISION,
    Lost,
    make_engine,
    not_there,
    parse_url,
    plain_words,
    shown,
    table_version,
    transaction,
)

PAGE = 2000
"""How many lines are read at once."""

_COLUMNS = (LINES.c.number, LINES.c.kind, LINES.c.key, LINES.c.body, LINES.c.previous, LINES.c.hash)

# Trigger, table, kind (see pg_trigger.tgtype) and what its function does, as the migrations make them.
_NEVER, _NEXT = (
    "31a987c76351ad167df829f7994d4958fc10861053e700e26d0fc67415097e18",
    "6622a552383ef9ca3952c95d035ba16a0a616d450a8640be2778db7b49586baf",
)
RULES = {
    ("tellers_never_changed", "tellers_lines", 27, _NEVER),
    ("tellers_never_emptied", "tellers_lines", 34, _NEVER),
    ("tellers_never_renamed", "tellers_ledgers", 27, _NEVER),
    ("tellers_only_added", "tellers_lines", 7, _NEXT),
}


def read(connection: sa.Connection, ledger: int, *where: sa.ColumnElement[bool]) -> Iterator[Line]:
    """Return some lines of a ledger in order, as they are."""
    last = -1
    while True:
        # Some at a time: what a server has to answer within is one page, however long the books are.
        page = connection.execute(
            sa.select(*_COLUMNS)
            .where(LINES.c.ledger == ledger, LINES.c.number > last, *where)
            .order_by(LINES.c.number)
            .limit(PAGE)
        ).all()
        for row in page:
            yield Line(row[0], row[1], _key(row[2]), *row[3:])
        if len(page) < PAGE:
            return
        last = page[-1][0]


def write(connection: sa.Connection, ledger: int, line: Line) -> None:
    said: dict[str, Any] = {**vars(line), "key": canonical(line.key), "ledger": ledger}
    connection.execute(sa.insert(LINES).values(**said))


def _key(text: str) -> str:
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    # Whatever was not written here does not fit the hash of its line, and must not come to fit it.
    return key if isinstance(key, str) and canonical(key) == text else f"not as it was written: {text}"


_LONGEST_KEY = 2000


@dataclass(eq=False)
class PostgresLedger(ChainedLedger):
    """Keep the ledger in a PostgreSQL database, for any number of machines, under a name of its own.

    `tellers ledger init URL` makes the tables; a ledger is made when its name is first opened, with the
    budget it is opened with, and is opened with no other. The password may be in the URL, in PGPASSWORD or
    in ~/.pgpass. `timeout` is how many seconds to wait for another writer, and for a server to come back.
    Private costs are not kept, unless there is a `vault` for them.

    Guarantee: the sum of all debits never passes the budget, whoever else writes. A reservation is on the
               server's disk when `reserve` returns, also if the connection broke in between: the chain is
               read again until it is known. A changed line is found by its hash when it is read.
    Assumes:   a server that flushes its disk (fsync on), and whose standby, if it ever takes over, has every
               commit (synchronous replication). Who owns the tables can replace them by older ones: keep what
               `verify` returns elsewhere, and compare.
    Reference: Feldman and Zrnic 2021: returning the unused part of a price keeps the guarantee.

    >>> from tellers import Accountant, Budget
    >>> accountant = Accountant(Budget(epsilon=0.5, delta=1e-5))
    >>> ledger = PostgresLedger("postgresql://team@localhost/privacy", accountant)  # doctest: +SKIP
    >>> ledger.spent.epsilon(1e-5)  # doctest: +SKIP
    0.0
    >>> ledger.close()  # doctest: +SKIP
    """

    url: str = field(repr=False)
    accountant: Accountant
    _: KW_ONLY
    name: str = "main"
    allow_seeded: bool = False
    timeout: float = 30.0
    vault: Vault | None = None
    _state: LedgerState = field(default_factory=LedgerState, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    _connection: sa.Connection | None = field(default=None, init=False, repr=False)
    _ledger: int = field(default=0, init=False, repr=False)  # its number in the database

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout)
        if not self.name.strip():
            raise ValueError(f"Expected the name of a ledger, a non-empty string, got {self.name!r}.")
        self._url = parse_url(self.url)
        self._engine = make_engine(self._url, timeout=self.timeout)
        # A connection must not be used, or closed, on both sides of a fork.
        watch_forks(self)
        try:
            with self._lock:
                self._until_reachable(self._find_or_make)
                self._read(lambda: None)  # another budget is refused now and not at the first question
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hand the connection back; a ledger that is used again opens another."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(sa.exc.SQLAlchemyError):
                    connection.close()

    def __reduce__(self) -> tuple[Callable[..., "PostgresLedger"], tuple[Any, ...]]:
        # Another process opens a connection for itself; connections and locks do not travel.
        options: dict[str, Any] = {"name": self.name, "allow_seeded": self.allow_seeded}
        again = partial(PostgresLedger, timeout=self.timeout, vault=self.vault, **options)
        return again, (self.url, self.accountant)

    def _title(self) -> str:
        return f"Ledger {self.name!r} of {shown(self._url)}"

    def _after(self, number: int) -> Iterator[Line]:
        assert self._connection is not None
        return read(self._connection, self._ledger, LINES.c.number > number)

    def _require_rules(self) -> None:
        """Refuse tables whose triggers were dropped, disabled or exchanged."""
        assert self._connection is not None
        found = self._connection.execute(
            sa.text(
                "SELECT t.tgname, c.relname, t.tgtype, p.prosrc FROM pg_trigger t "
                "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid "
                "WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') "
                "AND c.oid IN (to_regclass('tellers_lines'), to_regclass('tellers_ledgers'))"
            )
        )
        if {(*row[:3], hashlib.sha256(row[3].encode()).hexdigest()) for row in found} != RULES:
            raise LedgerConflict(
                f"{self._title()} is not in the tables it was made in: the rules that keep them append-only "
                "were changed. Restore them from a backup."
            )

    def _read(self, look: Callable[[], T]) -> T:
        def attempt() -> T:
            with self._transaction():
                self._catch_up()
                return look()

        with self._alone():
            return self._until_reachable(attempt)

    def _write(self, next_lines: Callable[[], list[Line]]) -> None:
        with self._alone():
            sent: list[Line] = []
            self._until_reachable(lambda: self._try_to_write(next_lines, sent), sent=sent)

    def _try_to_write(self, next_lines: Callable[[], list[Line]], sent: list[Line]) -> None:
        """Append lines in one transaction. `sent` remembers them while their commit is not acknowledged."""
        with self._transaction() as connection:
            # From here until the commit no other transaction is inside: also not one of our own whose
            # connection broke. What is in the chain now is all there will ever be of it.
            connection.execute(sa.select(LEDGERS.c.id).where(LEDGERS.c.id == self._ledger).with_for_update())
            self._catch_up()
            if sent and next(self._after(sent[-1].number - 1), None) == sent[-1]:
                return
            sent.clear()
            for line in next_lines():
                _require_storable(line.key)
                write(connection, self._ledger, line)
                sent.append(line)

    def _until_reachable(self, act: Callable[[], T], *, sent: list[Line] | None = None) -> T:
        """Do something that may be done again, until it is done or the server was away for too long."""
        deadline, pause = time.monotonic() + self.timeout, 0.02
        while True:
            try:
                return act()
            except Lost as lost:
                self.close()
                if time.monotonic() + pause > deadline:
                    self._give_up(lost, sent=sent)
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
            except OSError as error:
                # Another writer's turn took too long, say; but a line of ours is still on its way.
                if sent:
                    self._give_up(Lost(str(error).rstrip(".")), sent=sent)
                raise

    def _give_up(self, lost: Lost, *, sent: list[Line] | None) -> NoReturn:
        known = (
            "Whether its last line was written is not known; if it was, it stays charged, and no noise was "
            "drawn for a reservation. Ask with the same key when the server is back."
            if sent
            else "Nothing was written. Try again when the server is back."
        )
        raise ConnectionError(
            f"Expected {shown(self._url)} to answer within {self.timeout:g} s: {lost}. {known}"
        ) from lost

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with plain_words(self._url, self.timeout):
            if self._connection is None:
                self._connection = self._engine.connect()
            connection = self._connection
            try:
                yield connection
                connection.commit()
            except BaseException as error:
                with suppress(Exception):
                    connection.rollback()
                if not isinstance(error, Exception):  # Ctrl-C may come in the middle of a word
                    self.close()
                raise

    def _find_or_make(self) -> None:
        """Find the ledger, or make it; a server that is not there is said at once."""
        try:
            with self._transaction() as connection:
                self._require_server(connection)
                if not _number(connection, self.name):
                    _make(connection, self.name, [opening(self.accountant)])
                self._ledger = _number(connection, self.name)  # somebody else may have made it just now
        except Lost as lost:
            # A server on its way up or down is waited for; one that is not there, or keeps us out, is not.
            if self._connection is not None or "the database system is" in str(lost):
                raise
            raise not_there(self._url, lost) from lost

    def _require_server(self, connection: sa.Connection) -> None:
        version = table_version(connection)
        if version is None:
            raise LedgerConflict(
                f"Expected the tables of ledgers in {shown(self._url)}, got none. Nothing was written. "
                "Make them: tellers ledger init URL"
            )
        if version != REVISION:
            raise LedgerConflict(
                f"Expected the tables of ledgers in {shown(self._url)} at version {REVISION!r}, got "
                f"{version!r}. Nothing was written. Run tellers ledger init URL with the newest tellers, and "
                "update the others."
            )
        if connection.execute(sa.text("SHOW fsync")).scalar() != "on":
            raise LedgerConflict(
                f"Expected a server that flushes its disk, got {shown(self._url)} with fsync off: it may "
                "forget what was spent. Nothing was written. Set fsync = on."
            )


def _require_storable(key: str) -> None:
    if len(canonical(key)) > _LONGEST_KEY:
        raise ValueError(
            f"Expected a key of at most {_LONGEST_KEY} characters as JSON, got one of {len(canonical(key))}. "
            "Nothing was charged. Shorten it, or take its hash."
        )


def fill(url: str, lines: Sequence[Line], *, name: str = "main", timeout: float = 30.0) -> None:
    """Make a ledger of these lines, all of it or nothing; the name must be free.

    >>> fill("postgresql://team@localhost/privacy", [])  # doctest: +SKIP
    """
    parsed = parse_url(url)
    with transaction(parsed, timeout) as connection:
        if table_version(connection) != REVISION:
            raise LedgerConflict(
                f"Expected the tables of ledgers in {shown(parsed)}. Nothing was written. Make them: "
                "tellers ledger init URL"
            )
        if not _make(connection, name, lines):
            raise LedgerConflict(
                f"Expected a name that is free in {shown(parsed)}, got {name!r}. Nothing was written."
            )


def _number(connection: sa.Connection, name: str) -> int:
    """Return the number of a ledger in its database, or 0 where there is none of that name."""
    named = sa.select(LEDGERS.c.id).where(LEDGERS.c.name == canonical(name))
    return connection.execute(named).scalar() or 0


def _make(connection: sa.Connection, name: str, lines: Sequence[Line]) -> bool:
    """Make a ledger of these lines, without which nobody sees its name; say whether the name was free."""
    made = insert(LEDGERS).values(name=canonical(name)).on_conflict_do_nothing()
    ledger = connection.execute(made.returning(LEDGERS.c.id)).scalar() or 0
    for line in lines if ledger else ():
        write(connection, ledger, line)
    return bool(ledger)


def first_line(url: str, *, name: str = "main", timeout: float = 30.0) -> Line:
    """Return the line that a ledger in a database begins with, which holds its terms.

    >>> first_line("postgresql://team@localhost/privacy").kind  # doctest: +SKIP
    'opened'
    """
    parsed = parse_url(url)
    with transaction(parsed, timeout) as connection:
        if table_version(connection) is not None:
            for line in read(connection, _number(connection, name), LINES.c.number == 0):
                return line
    raise FileNotFoundError(
        f"Expected a ledger named {name!r} in {shown(parsed)}, got none of that name. Nothing was written."
    )


def ledger_names(url: str, *, timeout: float = 30.0) -> list[str]:
    """Return the names of the ledgers in a database, oldest first.

    >>> ledger_names("postgresql://team@localhost/privacy")  # doctest: +SKIP
    ['main']
    """
    with transaction(parse_url(url), timeout) as connection:
        if table_version(connection) is None:
            return []
        found = connection.execute(sa.select(LEDGERS.c.name).order_by(LEDGERS.c.id)).scalars()
        return [json.loads(name) for name in found]
