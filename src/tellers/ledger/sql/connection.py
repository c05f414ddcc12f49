"""The database of a ledger: connections with timeouts, tables, migrations, and plain words for errors."""

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from ...errors import LedgerConflict, MissingExtra

# How often in the time that a server has a watch looks.
_LOOKS = 8
# 08...: the connection; 57P0x: the server is stopping, stopped or starting; 53300: it is full of others;
# 25P03: it took our transaction back because we were silent in it for too long.
_LOST_STATES = ("57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25P03")


def be_impatient(engine: sa.Engine, *, seconds: float) -> sa.Engine:
    """Let connections of an engine break when the server takes longer than this for one answer.

    A server bounds its statements itself, unless it is the server that hangs: its kernel goes on to
    acknowledge what we send, so that nothing else ends the wait.
    """

    def connect(_dialect: Any, _record: Any, given: list[Any], named: dict[str, Any]) -> Any:
        connection = _kind().connect(*given, **named)
        _watch(connection, seconds)
        return connection

    if engine.dialect.driver == "psycopg":
        sa.event.listen(engine, "do_connect", connect)
    return engine


@cache
def _kind() -> Any:
    import psycopg

    class Watched(psycopg.Connection[Any]):
        """A connection that notes since when it has been waiting."""

        since: float | None = None

        def wait(self, *given: Any, **named: Any) -> Any:
            self.since = time.monotonic()
            try:
                return super().wait(*given, **named)
            finally:
                self.since = None

    return Watched


def _watch(connection: Any, seconds: float) -> None:
    # A line of our own to the same socket: the number of a closed one may be somebody else's by then.
    line = socket.socket(fileno=os.dup(connection.fileno()))
    watched = weakref.ref(connection)

    def look() -> None:
        with line:
            while True:
                time.sleep(seconds / _LOOKS)
                still = watched()
                if still is None or still.closed:
                    return
                since = still.since
                if since is not None and time.monotonic() - since > seconds:
                    with suppress(OSError):
                        line.shutdown(socket.SHUT_RDWR)
                    return
                del still

    threading.Thread(target=look, name="patience", daemon=True).start()


class Lost(Exception):
    """The connection is gone: whether the last commit went through is not known yet."""


def shown(url: URL) -> str:
    """Return where a database is, without its password."""
    host = url.host or url.query.get("host") or "this machine"
    port = f":{url.port}" if url.port else ""
    return f"{url.database or 'the default database'} on {host}{port}"


def not_there(url: URL, lost: Lost) -> ConnectionError:
    """Return what to raise where a server cannot be reached to begin with."""
    return ConnectionError(
        f"Expected a PostgreSQL server for {shown(url)}: {lost}. Nothing was written. See whether it runs, "
        "and whether user, password and database are right."
    )


def is_lost(error: sa.exc.DBAPIError) -> bool:
    """Say whether an error is about the connection or the server, and not about what was asked of it."""
    state = getattr(error.orig, "sqlstate", None) or ""
    if state:
        return state.startswith("08") or state in _LOST_STATES
    return error.connection_invalidated or isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError))


@contextmanager
def plain_words(url: URL, timeout: float) -> Iterator[None]:
    """Say what a server's errors mean for a ledger; a lost connection becomes `Lost`."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        where = shown(url)
        if is_lost(error):
            raise Lost(_first_line(error)) from error
        if state == "55P03":
            raise TimeoutError(
                f"Expected the ledger in {where} to be free within {timeout:g} s, another writer holds it. "
                "Nothing was written; try again, or look for a process that hangs."
            ) from error
        if state in ("42501", "28000"):
            raise PermissionError(
                f"Expected the right to read and add lines in {where}: {_first_line(error)}. Nothing was "
                "written. Ask whoever runs the database for SELECT on tellers_version, SELECT and INSERT on "
                "tellers_lines, and SELECT, INSERT and UPDATE on tellers_ledgers."
            ) from error
        if state.startswith("23"):
            raise LedgerConflict(
                f"{where} refused a line: {_first_line(error)}. Nothing was written."
            ) from error
        raise OSError(
            f"Expected to read and write {where}: {_first_line(error)}. Nothing was written."
        ) from error


def _first_line(error: sa.exc.DBAPIError) -> str:
    # Not the error of SQLAlchemy, which quotes the statement and its values.
    return (str(error.orig).strip().splitlines() or ["no reason given"])[0].rstrip(".")


# The tables of ledgers; alembic makes them, see `migrate`.
VERSION_TABLE = "tellers_version"
REVISION = "lines"
"""The newest migration: the tables that this version of tellers reads and writes."""

# As queries name them; what they are made of is in the migrations.
LEDGERS = sa.table("tellers_ledgers", sa.column("id"), sa.column("name"))
LINES = sa.table(
    "tellers_lines",
    *(sa.column(name) for name in ("ledger", "number", "kind", "key", "body", "previous", "hash")),
)


def parse_url(url: str) -> URL:
    """Return a URL that names its driver; the password may be in it, in PGPASSWORD or in ~/.pgpass."""
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text is not quoted: it may hold a password.
        raise ValueError(
            "Expected the URL of a database, as postgresql://user@host:5432/name. Percent-encode signs such "
            "as @ and / in a password, or leave it to PGPASSWORD or ~/.pgpass."
        ) from None
    if parsed.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise ValueError(
            f"Expected a postgresql:// URL, got {parsed.drivername}://. Other servers are not known."
        )
    return parsed.set(drivername="postgresql+psycopg")


def make_engine(url: URL, *, timeout: float, keeps: bool = False) -> sa.Engine:
    """Return an engine that opens a connection whenever it is asked for one, and keeps none unless told to.

    It waits this long for a connection and for the locks of others, and half as long again for any answer.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "A ledger in PostgreSQL needs psycopg, which is not installed: pip install 'tellers[postgres]'."
        ) from None
    seconds, milliseconds = max(1, round(timeout)), max(1, round(1000 * timeout))
    options = {
        # A commit is on the disk when it is acknowledged, whatever the server's default is. A client that
        # freezes in the middle of a transaction loses it before those who wait for it give up.
        "synchronous_commit": "on",
        "datestyle": "ISO",  # so that times that are kept as text can be read again
        "lock_timeout": f"{milliseconds}",
        "idle_in_transaction_session_timeout": f"{max(1000, milliseconds // 2)}",
    }
    arguments = {
        "connect_timeout": max(2, seconds),
        "application_name": "tellers",
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
        # A server that vanishes without a word is given up after this long.
        "keepalives_idle": max(1, seconds // 3),
        "keepalives_interval": max(1, seconds // 6),
        "keepalives_count": 3,
        "tcp_user_timeout": milliseconds,
    }
    kept: dict[str, Any] = {"poolclass": NullPool}
    if keeps:
        kept = {"pool_pre_ping": True, "pool_timeout": timeout}
    # The writers' lock is a row's, taken first: what is read after it is what the last writer left.
    engine = sa.create_engine(url, connect_args=arguments, isolation_level="READ COMMITTED", **kept)
    return be_impatient(engine, seconds=1.5 * timeout + 1)


@contextmanager
def transaction(url: URL, timeout: float) -> Iterator[sa.Connection]:
    """Hold a connection of its own for one transaction; a server that cannot be reached is not waited for."""
    try:
        with plain_words(url, timeout), make_engine(url, timeout=timeout).begin() as connection:
            yield connection
    except Lost as lost:
        raise not_there(url, lost) from lost


_LOCK = 0x54454C4C  # "TELL": two that migrate at once take turns


def migrate(url: str, *, timeout: float = 30.0) -> str:
    """Make the tables of ledgers in a database, or bring them up to date, and return their version.

    Nothing is lost by running it again. It needs the right to make tables; ledgers themselves need only to
    read and insert.

    >>> migrate("postgresql://team@localhost/privacy")  # doctest: +SKIP
    'lines'
    """
    from alembic import command
    from alembic.config import Config

    with (
        as_file(files("tellers.ledger") / "migrations") as folder,
        transaction(parse_url(url), timeout) as connection,
    ):
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        command.upgrade(config, "head")
    return REVISION


def table_version(connection: sa.Connection) -> str | None:
    """Return the version of a database's tables, or None where there are none."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    named: sa.Select[Any] = sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))
    version: str | None = connection.execute(named).scalar()
    return version


_PAUSE = 0.5


def wait_until_there(url: str, seconds: float, *, say: Callable[[str, float], object] | None = None) -> None:
    """Return when the server of a database answers, or raise ConnectionError when it did not in time.

    After a restart of the machine, a service may be up before its database. `say` is told what is waited for,
    and for how many more seconds, before each pause. A server that answers and keeps us out, for a wrong
    password or a database that is not there, is not waited for.

    >>> wait_until_there("postgresql://team@127.0.0.1:1/privacy", 0)
    Traceback (most recent call last):
        ...
    ConnectionError: Expected a PostgreSQL server for privacy on 127.0.0.1:1 within 0 seconds: ...
    """
    parsed, end = parse_url(url), time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            with plain_words(parsed, 2.0), make_engine(parsed, timeout=max(1.0, min(left, 10.0))).connect():
                return
        except Lost as lost:
            left, words = end - time.monotonic(), str(lost)
            # A server that speaks is there; one that says how it fares is on its way up or down.
            if "FATAL" in words and "the database system is" not in words:
                raise ConnectionError(
                    f"Expected to be let in by the PostgreSQL server for {shown(parsed)}: {lost}. Nothing "
                    "was written. See whether user, password and database are right."
                ) from lost
            if left <= 0:
                raise ConnectionError(
                    f"Expected a PostgreSQL server for {shown(parsed)} within {seconds:g} seconds: {lost}. "
                    "Nothing was written. Start it, or wait for longer (--wait)."
                ) from lost
        if say is not None:
            say(shown(parsed), left)
        time.sleep(min(_PAUSE, left))
