"""Make the tables of a database, or bring them up to date."""

from importlib.resources import as_file, files
from typing import Any

import sqlalchemy as sa

from .plain import Lost, not_there, plain_words
from .tables import REVISION, VERSION_TABLE, make_engine, parse_url

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

    parsed = parse_url(url)
    try:
        with (
            as_file(files("tellers.ledger") / "migrations") as folder,
            plain_words(parsed, timeout),
            make_engine(parsed, timeout=timeout).begin() as connection,
        ):
            config = Config()
            config.set_main_option("script_location", str(folder).replace("%", "%%"))
            config.attributes["connection"] = connection
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            command.upgrade(config, "head")
    except Lost as lost:
        raise not_there(parsed, lost) from lost
    return REVISION


def table_version(connection: sa.Connection) -> str | None:
    """Return the version of a database's tables, or None where there are none.

    >>> import sqlalchemy as sa
    >>> with sa.create_engine("sqlite://").connect() as connection:
    ...     table_version(connection) is None
    True
    """
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    named: sa.Select[Any] = sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))
    version: str | None = connection.execute(named).scalar()
    return version
