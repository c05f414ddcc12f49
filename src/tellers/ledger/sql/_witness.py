"""A witness in a table of a database."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

import sqlalchemy as sa

from ..base import Head
from ..witness import Seen, now, require_known, require_noted, sample
from .connection import make_engine, parse_url, shown

TABLE = sa.Table(
    "tellers_witness", sa.MetaData(),
    sa.Column("ledger", sa.String(64), primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("seen", sa.String(48), nullable=False),
)  # fmt: skip

# Slot 0 holds the last line, and is everybody's turn; the others hold earlier ones, and one the first, for
# good. The clock is the database's.
_FIRST = 63
_NOTE = sa.text(
    "INSERT INTO tellers_witness (ledger, slot, number, hash, seen) "
    "VALUES (:ledger, :slot, :number, :hash, CAST(CURRENT_TIMESTAMP AS VARCHAR(48))) "
    "ON CONFLICT (ledger, slot) DO UPDATE "
    "SET number = excluded.number, hash = excluded.hash, seen = excluded.seen "
    "WHERE tellers_witness.number < excluded.number AND tellers_witness.slot < 63 "
    "AND tellers_witness.hash = coalesce(CAST(:after AS VARCHAR(64)), tellers_witness.hash)"
).bindparams(*(sa.bindparam(name, type_=sa.String) for name in ("ledger", "hash", "after")))
_SEEN = sa.select(TABLE.c.number, TABLE.c.hash, TABLE.c.seen).order_by(TABLE.c.number.desc(), TABLE.c.slot)


class TableWitness:
    """A witness in the table `tellers_witness`; `begin` gives a transaction, durable when it ends."""

    def __init__(self, begin: Callable[[], AbstractContextManager[sa.Connection]], *, name: str) -> None:
        self.name, self._begin = name, begin

    def note(self, ledger: str, head: Head, *, after: Head | None = None) -> Seen:
        require_noted(ledger, head, None)
        row = {"ledger": ledger, "number": head.number, "hash": head.hash, "after": None}
        with self._begin() as connection:
            said = None if after is None else after.hash
            if connection.execute(_NOTE, {**row, "slot": 0, "after": said}).rowcount:
                connection.execute(_NOTE, [{**row, "slot": slot} for slot in (sample(), _FIRST)])
                return Seen(*head, now())
            known = self._newest(connection, ledger)[0]
            require_noted(ledger, head, known)
            return known

    def history(self, ledger: str) -> list[Seen]:
        with self._begin() as connection:
            return self._newest(connection, ledger)

    def trust(self, ledger: str, head: Head, *, instead_of: Seen) -> None:
        require_noted(ledger, head, None)
        of_ledger = TABLE.delete().where(TABLE.c.ledger == ledger)
        known = (TABLE.c.slot == 0, TABLE.c.number == instead_of.number, TABLE.c.hash == instead_of.hash)
        with self._begin() as connection:
            require_known(
                instead_of if connection.execute(of_ledger.where(*known)).rowcount else None, instead_of
            )
            connection.execute(of_ledger)
            row = {"ledger": ledger, "number": head.number, "hash": head.hash, "after": None}
            connection.execute(_NOTE, [{**row, "slot": slot} for slot in (0, _FIRST)])

    def _newest(self, connection: sa.Connection, ledger: str) -> list[Seen]:
        rows = connection.execute(_SEEN.where(TABLE.c.ledger == ledger)).all()
        found = {int(row.number): Seen(int(row.number), str(row.hash), _time(row.seen)) for row in rows[::-1]}
        return sorted(found.values(), reverse=True)


def _time(said: str) -> str:
    when = datetime.fromisoformat(said)
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.isoformat(timespec="seconds")


def make_table(engine: sa.Engine) -> None:
    """Make the table where it is not there; another process may be faster."""
    try:
        TABLE.create(engine, checkfirst=True)
    except sa.exc.DBAPIError:
        TABLE.create(engine, checkfirst=True)


def open_database(url: str, *, timeout: float) -> TableWitness:
    """Return the witness in a PostgreSQL database; its table is made where it is not there."""
    place = parse_url(url)
    engine = make_engine(place, timeout=timeout, keeps=True)

    @contextmanager
    def begin() -> Iterator[sa.Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise ConnectionError(
                f"Expected the witness in {shown(place)} to answer, it does not. See whether the server runs."
            ) from error

    try:
        make_table(engine)
    except sa.exc.DBAPIError as error:
        raise ConnectionError(
            f"Expected a witness in {shown(place)}, could not open or make it. Is the database there, and "
            "may its user make a table in it?"
        ) from error
    return TableWitness(begin, name=shown(place))
