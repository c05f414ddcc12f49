"""What a database server's errors mean for a ledger, in plain words and without the password."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import URL

from ...errors import LedgerConflict


class Lost(Exception):
    """The connection is gone: whether the last commit went through is not known yet."""


def shown(url: URL) -> str:
    """Return where a database is, without its password.

    >>> from sqlalchemy.engine import make_url
    >>> shown(make_url("postgresql+psycopg://team:secret@db.example/privacy"))
    'privacy on db.example'
    """
    host = url.host or url.query.get("host") or "this machine"
    port = f":{url.port}" if url.port else ""
    return f"{url.database or 'the default database'} on {host}{port}"


def not_there(url: URL, lost: Lost) -> ConnectionError:
    """Return what to raise where a server cannot be reached to begin with.

    >>> from sqlalchemy.engine import make_url
    >>> str(not_there(make_url("postgresql://team@db.example/privacy"), Lost("connection refused")))[:70]
    'Expected a PostgreSQL server for privacy on db.example: connection ref'
    """
    return ConnectionError(
        f"Expected a PostgreSQL server for {shown(url)}: {lost}. Nothing was written. See whether it runs, "
        "and whether user, password and database are right."
    )


def is_lost(error: sa.exc.DBAPIError) -> bool:
    """Say whether an error is about the connection or the server, and not about what was asked of it.

    >>> is_lost(sa.exc.OperationalError("SELECT 1", {}, Exception("gone"), connection_invalidated=True))
    True
    """
    state = getattr(error.orig, "sqlstate", None) or ""
    if state:
        # 08: the connection; 57P0x: the server is stopping, stopped or starting; 53300: it is full of others.
        # 25P03: it took our transaction back because we were silent in it for too long.
        return state.startswith("08") or state in (
            "57P01",
            "57P02",
            "57P03",
            "57P04",
            "57P05",
            "53300",
            "25P03",
        )
    return error.connection_invalidated or isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError))


@contextmanager
def plain_words(url: URL, timeout: float) -> Iterator[None]:
    """Say what a server's errors mean for a ledger; a lost connection becomes `Lost`.

    >>> from sqlalchemy.engine import make_url
    >>> with plain_words(make_url("postgresql://team@db.example/privacy"), 30.0):
    ...     raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))
    Traceback (most recent call last):
        ...
    tellers.ledger.sql.plain.Lost: server closed the connection
    """
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
                "written. Ask whoever runs the database for SELECT and INSERT on tellers_lines, and SELECT, "
                "INSERT and UPDATE on tellers_ledgers."
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
