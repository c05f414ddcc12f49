"""Ledgers in a database server, for teams: PostgreSQL by way of SQLAlchemy (the extra `postgres`)."""

from .migrating import migrate
from .postgres import PostgresLedger, fill, first_line, ledger_names

__all__ = ["PostgresLedger", "fill", "first_line", "ledger_names", "migrate"]
