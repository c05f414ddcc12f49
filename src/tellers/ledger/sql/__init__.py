"""Ledgers in a database server, for teams: PostgreSQL by way of SQLAlchemy (the extra `postgres`)."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("sqlalchemy") is None:
    raise MissingExtra(
        "Expected sqlalchemy for a ledger in a database, found none: pip install 'tellers[postgres]'"
    )

from .connection import migrate, wait_until_there
from .postgres import PostgresLedger, fill, first_line, ledger_names

__all__ = ["PostgresLedger", "fill", "first_line", "ledger_names", "migrate", "wait_until_there"]
