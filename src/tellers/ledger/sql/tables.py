"""The tables of ledgers in a database, and how to reach it; alembic makes them, see `migrate`."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from ...errors import MissingExtra
from .patience import be_impatient

VERSION_TABLE = "tellers_version"
REVISION = "lines"
"""The newest migration: the tables that this version of tellers reads and writes."""

METADATA = sa.MetaData()

LEDGERS = sa.Table(
    "tellers_ledgers",
    METADATA,
    sa.Column("id", sa.Integer, sa.Identity(always=True), primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
)

LINES = sa.Table(
    "tellers_lines",
    METADATA,
    sa.Column("ledger", sa.Integer, sa.ForeignKey("tellers_ledgers.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.UniqueConstraint("ledger", "kind", "key"),
)


def parse_url(url: str) -> URL:
    """Return a URL that names its driver; the password may be in it, in PGPASSWORD or in ~/.pgpass.

    >>> parse_url("postgres://team:secret@db.example/privacy")
    postgresql+psycopg://team:***@db.example/privacy
    """
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

    >>> make_engine(parse_url("postgresql://team@db.example/privacy"), timeout=5.0).url.host
    'db.example'
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
