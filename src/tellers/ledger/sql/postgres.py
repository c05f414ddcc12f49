"""A ledger in PostgreSQL: the same chain and the same rules, for many machines at once."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from ...errors import LedgerConflict, require_positive
from ...privacy.budget import Accountant
from .._chain import ChainedLedger, T, watch_forks
from .._lines import Line, LineReader, LineStore, before_the_first
from .._state import opening
from ..base import Unusable, canonical
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
_NUMBERS, _TEXTS = sa.ARRAY(sa.Integer), sa.ARRAY(sa.Text)
_HEAD = (
    sa.select(LINES.c.number, LINES.c.hash)
    .where(LINES.c.ledger == sa.bindparam("ledger"))
    .order_by(LINES.c.number.desc())
    .limit(1)
)
_NAMED = sa.select(*_COLUMNS).where(
    LINES.c.ledger == sa.bindparam("ledger"),
    LINES.c.kind == sa.bindparam("kind"),
    LINES.c.key == sa.any_(sa.bindparam("keys", type_=_TEXTS)),
)
# With the last line beside them, whose kind is left empty: one journey to the server in place of two.
_NAMED_AND_HEAD = _NAMED.union_all(
    sa.select(
        LINES.c.number, sa.literal_column("''"), LINES.c.key, sa.literal_column("''"), LINES.c.previous,
        LINES.c.hash,
    ).where(LINES.c.ledger == sa.bindparam("ledger")).order_by(LINES.c.number.desc()).limit(1)
)  # fmt: skip
_ADD = sa.insert(LINES)
_WAIT = sa.text("SELECT set_config('lock_timeout', :wait, true)")
_TURN = sa.select(LEDGERS.c.id).where(LEDGERS.c.id == sa.bindparam("ledger")).with_for_update()

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


class PostgresStore:
    """The lines of a ledger in a database, in one transaction of a connection."""

    def __init__(self, connection: sa.Connection, ledger: int, title: str = "The ledger") -> None:
        self._connection, self._ledger, self._title = connection, ledger, title
        self._head: tuple[int, str] | None = None  # as it was when keys were looked up

    def _lines(self, *where: sa.ColumnElement[bool], limit: int | None = None) -> list[Line]:
        wanted = sa.select(*_COLUMNS).where(LINES.c.ledger == self._ledger, *where)
        return [_line(row) for row in self._connection.execute(wanted.order_by(LINES.c.number).limit(limit))]

    def head(self) -> tuple[int, str] | None:
        if self._head is not None:
            return self._head
        found = self._connection.execute(_HEAD, {"ledger": self._ledger}).one_or_none()
        return None if found is None else (found[0], found[1])

    def after(self, number: int) -> Iterator[Line]:
        # Some at a time: what a server has to answer within is one page, however long the ledger is.
        while page := self._lines(LINES.c.number > number, limit=PAGE):
            yield from page
            number = page[-1].number

    def numbered(self, numbers: Iterable[int]) -> list[Line]:
        wanted = list(numbers)
        return self._lines(LINES.c.number == sa.any_(sa.literal(wanted, _NUMBERS))) if wanted else []

    def named(self, kind: str, keys: Sequence[str]) -> dict[str, Line]:
        if not keys:
            return {}
        wanted = {"ledger": self._ledger, "kind": kind, "keys": [canonical(key) for key in keys]}
        rows = self._connection.execute(_NAMED if self._head else _NAMED_AND_HEAD, wanted).all()
        self._head = next(((row[0], row[5]) for row in rows if not row[1]), self._head)
        return {line.key: line for line in map(_line, (row for row in rows if row[1]))}

    def of_kind(self, kind: str, begins: str, *, after: int) -> list[int]:
        where = [LINES.c.ledger == self._ledger, LINES.c.kind == kind, LINES.c.number > after]
        if begins:
            # Keys are JSON here; ^@ compares letters, whatever the database's collation is.
            where.append(LINES.c.key.op("^@", is_comparison=True)(canonical(begins)[:-1]))
        return list(
            self._connection.execute(sa.select(LINES.c.number).where(*where).order_by("number")).scalars()
        )

    def last(self, kind: str) -> Line | None:
        # Keys of such lines are their numbers: the longest and largest is the last.
        order = (sa.func.length(LINES.c.key).desc(), LINES.c.key.desc())
        wanted = sa.select(LINES.c.number).where(LINES.c.ledger == self._ledger, LINES.c.kind == kind)
        found = self._lines(LINES.c.number == wanted.order_by(*order).limit(1).scalar_subquery())
        return found[0] if found else None

    def append(self, lines: Sequence[Line]) -> None:
        self._head = None
        # Some at a time, as they are read: what a server has to answer within is one page.
        for at in range(0, len(lines), PAGE):
            said = [
                {
                    "ledger": self._ledger, "number": line.number, "kind": line.kind,
                    "key": canonical(line.key), "body": line.body, "previous": line.previous,
                    "hash": line.hash,
                }
                for line in lines[at : at + PAGE]
            ]  # fmt: skip
            self._connection.execute(_ADD, said)

    def require_rules(self) -> None:
        """Refuse tables whose triggers were dropped, disabled or exchanged, and lines before the first."""
        if self._lines(LINES.c.number < 0, limit=1):
            raise before_the_first(self._title)
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
                f"{self._title} is not in the tables it was made in: the rules that keep them append-only "
                "were changed. Restore them from a backup."
            )


def _line(row: Any) -> Line:
    return Line(row[0], row[1], _key(row[2]), *row[3:])


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

    _store_errors = (sa.exc.SQLAlchemyError,)
    url: str = field(repr=False)
    accountant: Accountant
    _: KW_ONLY
    name: str = "main"
    allow_seeded: bool = False
    timeout: float = 30.0
    vault: Vault | None = None
    # By what they are for: the turn that writes, and readers. One thread at a time uses each.
    _connections: dict[str, sa.Connection] = field(default_factory=dict, init=False, repr=False)
    _ledger: int = field(default=0, init=False, repr=False)  # its number in the database

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout)
        if not self.name.strip():
            raise ValueError(f"Expected the name of a ledger, a non-empty string, got {self.name!r}.")
        self._url = parse_url(self.url)
        self._engine = make_engine(self._url, timeout=self.timeout)
        self._begin()
        # A connection must not be used, or closed, on both sides of a fork.
        watch_forks(self)
        try:
            with self._looking:
                self._until_reachable(self._find_or_make, "writing", time.monotonic() + self.timeout)
            self.view()  # another budget is refused now and not at the first question
        except BaseException:
            self.close()
            raise

    def _close(self) -> None:
        for purpose in list(self._connections):
            self._drop(purpose)

    def _drop(self, purpose: str) -> None:
        connection = self._connections.pop(purpose, None)
        if connection is not None:
            with suppress(sa.exc.SQLAlchemyError):
                connection.close()

    def __reduce__(self) -> tuple[Callable[..., "PostgresLedger"], tuple[Any, ...]]:
        # Another process opens a connection for itself; connections and locks do not travel.
        options: dict[str, Any] = {"name": self.name, "allow_seeded": self.allow_seeded}
        again = partial(PostgresLedger, timeout=self.timeout, vault=self.vault, **options)
        return again, (self.url, self.accountant)

    def _require_key(self, key: str) -> None:
        if len(canonical(key)) > _LONGEST_KEY:
            raise ValueError(
                f"Expected a key of at most {_LONGEST_KEY} characters as JSON, got one of "
                f"{len(canonical(key))}. Nothing was charged. Shorten it, or take its hash."
            )

    def _title(self) -> str:
        return f"Ledger {self.name!r} of {shown(self._url)}"

    def _store(self, connection: sa.Connection) -> PostgresStore:
        return PostgresStore(connection, self._ledger, self._title())

    def _look(self, look: Callable[[LineStore], T]) -> T:
        def attempt() -> T:
            with self._transaction("looking") as connection:
                return look(self._store(connection))

        with self._alone():
            return self._until_reachable(attempt, "looking", time.monotonic() + self.timeout)

    @contextmanager
    def _reading(self) -> Iterator[LineReader]:
        try:
            with plain_words(self._url, self.timeout), self._engine.connect() as connection:
                # A moment for each page: a transaction for all of it would be silent for too long.
                yield self._store(connection.execution_options(isolation_level="AUTOCOMMIT"))
        except Lost as lost:
            raise not_there(self._url, lost) from lost

    def _commit(self, next_lines: Callable[[LineStore], Sequence[Line]], deadline: float) -> None:
        sent: list[Line] = []
        self._until_reachable(
            lambda: self._try_to_write(next_lines, sent, deadline), "writing", deadline, sent=sent
        )

    def _try_to_write(
        self, next_lines: Callable[[LineStore], Sequence[Line]], sent: list[Line], deadline: float
    ) -> None:
        """Append lines in one transaction. `sent` remembers them while their commit is not acknowledged."""
        with self._transaction("writing") as connection:
            left = deadline - time.monotonic()
            if left < 0.9 * self.timeout:  # connections wait for a lock as long as that
                connection.execute(_WAIT, {"wait": f"{max(1, round(1000 * left))}ms"})
            # From here until the commit no other transaction is inside: also not one of our own whose
            # connection broke. What is in the chain now is all there will ever be of it.
            connection.execute(_TURN, {"ledger": self._ledger})
            store = self._store(connection)
            if sent and store.numbered([sent[-1].number]) == [sent[-1]]:
                return
            sent.clear()
            lines = next_lines(store)
            store.append(lines)
            sent += lines

    def _until_reachable(
        self, act: Callable[[], T], purpose: str, deadline: float, *, sent: list[Line] | None = None
    ) -> T:
        """Do something that may be done again, until it is done or the server was away for too long."""
        pause = 0.02
        while True:
            try:
                return act()
            except Lost as lost:
                self._drop(purpose)
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
    def _transaction(self, purpose: str) -> Iterator[sa.Connection]:
        with plain_words(self._url, self.timeout):
            connection = self._connections.get(purpose)
            if connection is None:
                connection = self._engine.connect()
                if purpose == "looking":  # each of its statements is a moment of its own in any case
                    connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                self._connections[purpose] = connection
            try:
                yield connection
                connection.commit()
            except BaseException as error:
                with suppress(Exception):
                    connection.rollback()
                if not isinstance(error, Exception):  # Ctrl-C may come in the middle of a word
                    self._drop(purpose)
                raise

    def _find_or_make(self) -> None:
        """Find the ledger, or make it; a server that is not there is said at once."""
        try:
            with self._transaction("writing") as connection:
                self._require_server(connection)
                if not _number(connection, self.name):
                    _make(connection, self.name, [opening(self.accountant)])
                self._ledger = _number(connection, self.name)  # somebody else may have made it just now
        except Lost as lost:
            # A server on its way up or down is waited for; one that is not there, or keeps us out, is not.
            if "writing" in self._connections or "the database system is" in str(lost):
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
            raise Unusable(
                f"Expected the tables of ledgers in {shown(self._url)} at version {REVISION!r}, got "
                f"{version!r}. Nothing was written. Run tellers ledger init URL with the newest tellers, and "
                "update the others."
            )
        if connection.execute(sa.text("SHOW fsync")).scalar() != "on":
            raise Unusable(
                f"Expected a server that flushes its disk, got {shown(self._url)} with fsync off: it may "
                "forget what was spent. Nothing was written. Set fsync = on."
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


@contextmanager
def replaced(
    url: str, name: str, new: str, *, timeout: float = 30.0
) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Hold a ledger, and an empty one under a free name, in one transaction: all of it or nothing.

    >>> replaced("postgresql://team@localhost/privacy", "main", "main-4")  # doctest: +SKIP
    """
    parsed = parse_url(url)
    with transaction(parsed, timeout) as connection:
        ledger = _number(connection, name)
        connection.execute(_TURN, {"ledger": ledger})
        if not _make(connection, new, ()):
            raise LedgerConflict(
                f"Expected a name that is free in {shown(parsed)}, got {new!r}. Nothing was written. Name "
                "another with --to."
            )
        yield (
            PostgresStore(connection, ledger, f"Ledger {name!r}"),
            PostgresStore(connection, _number(connection, new), f"Ledger {new!r}"),
        )


def _number(connection: sa.Connection, name: str) -> int:
    """Return the number of a ledger in its database, or 0 where there is none of that name."""
    named = sa.select(LEDGERS.c.id).where(LEDGERS.c.name == canonical(name))
    return connection.execute(named).scalar() or 0


def _make(connection: sa.Connection, name: str, lines: Sequence[Line]) -> bool:
    """Make a ledger of these lines, without which nobody sees its name; say whether the name was free."""
    made = insert(LEDGERS).values(name=canonical(name)).on_conflict_do_nothing()
    ledger = connection.execute(made.returning(LEDGERS.c.id)).scalar() or 0
    if ledger:
        PostgresStore(connection, ledger).append(lines)
    return bool(ledger)


def first_line(url: str, *, name: str = "main", timeout: float = 30.0) -> Line:
    """Return the line that a ledger in a database begins with, which holds its terms.

    >>> first_line("postgresql://team@localhost/privacy").kind  # doctest: +SKIP
    'opened'
    """
    parsed = parse_url(url)
    with transaction(parsed, timeout) as connection:
        if table_version(connection) is not None:
            for line in PostgresStore(connection, _number(connection, name)).numbered([0]):
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
