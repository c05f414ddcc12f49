"""Which ledger a service last saw: a lost, exchanged or older one would let the same budget be spent again.

A ledger that is not there is begun anew with a full budget, and an old backup has forgotten what was spent
since. Neither can be told by the ledger itself. So the store of keys remembers the last hash that the service
saw, and the next start looks for it.
"""

import hashlib

import sqlalchemy as sql

from ..errors import LedgerConflict

TABLES = sql.MetaData()
_HEADS = sql.Table(
    "tellers_heads", TABLES,
    sql.Column("ledger", sql.String(64), primary_key=True),
    sql.Column("head", sql.String(64), nullable=False),
)  # fmt: skip


def mark(place: str, name: str) -> str:
    """Return what stands for a ledger in the store: its place without a password, and its name.

    >>> one, two = (mark(f"postgresql://team:{word}@db/privacy", "main") for word in ("old", "new"))
    >>> one == two, mark("ledger.db", "main") == mark("ledger.db", "study")
    (True, False)
    """
    if "://" in place:
        url = sql.make_url(place)
        place = f"{url.host}:{url.port}/{url.database}"
    return hashlib.sha256(f"{place}\n{name}".encode()).hexdigest()


def known_head(connection: sql.Connection, which: str) -> str | None:
    """Return the last hash that was seen of a ledger, or None where it was never served.

    >>> engine = sql.create_engine("sqlite://")
    >>> TABLES.create_all(engine)
    >>> with engine.begin() as connection:
    ...     remember_head(connection, "study", "ab12")
    ...     known_head(connection, "study"), known_head(connection, "other")
    ('ab12', None)
    """
    found = connection.execute(sql.select(_HEADS.c.head).where(_HEADS.c.ledger == which)).scalar()
    return None if found is None else str(found)


def remember_head(connection: sql.Connection, which: str, head: str) -> None:
    """Note the last hash of a ledger; see `known_head`.

    >>> engine = sql.create_engine("sqlite://")
    >>> TABLES.create_all(engine)
    >>> with engine.begin() as connection:
    ...     remember_head(connection, "study", "ab12")
    ...     remember_head(connection, "study", "cd34")
    ...     known_head(connection, "study")
    'cd34'
    """
    changed = connection.execute(_HEADS.update().where(_HEADS.c.ledger == which).values(head=head))
    if not changed.rowcount:
        connection.execute(_HEADS.insert().values(ledger=which, head=head))


def not_the_one(error: LedgerConflict) -> LedgerConflict:
    """Return the refusal of a ledger that does not hold what was seen of it.

    >>> str(not_the_one(LedgerConflict("ledger.db was cut short."))).startswith("ledger.db was cut short. ")
    True
    """
    return LedgerConflict(
        f"{error} Served as it is, budget that was spent could be spent again. If a new ledger is meant, or "
        "what was lost has been accounted for, start once with --trust-ledger."
    )
