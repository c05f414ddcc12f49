"""Ledgers in a database server, for teams: PostgreSQL by way of SQLAlchemy (the extra `postgres`)."""

from .migrating import migrate
from .postgres import PostgresLedger, fill, first_line, ledger_names
from .waiting import wait_until_there

__all__ = ["PostgresLedger", "fill", "first_line", "ledger_names", "migrate", "wait_until_there"]
