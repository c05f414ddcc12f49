"""Lines in a table: reading and adding them, and whether the table still has its rules."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ...errors import LedgerConflict
from ..base import canonical
from ..chain import Line
from .tables import LINES

PAGE = 2000
"""How many lines are read at once."""

_COLUMNS = (LINES.c.number, LINES.c.kind, LINES.c.key, LINES.c.body, LINES.c.previous, LINES.c.hash)

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


def read(connection: sa.Connection, ledger: int, *where: sa.ColumnElement[bool]) -> Iterator[Line]:
    """Return some lines of a ledger in order, as they are.

    >>> from .tables import METADATA, LEDGERS
    >>> connection = sa.create_engine("sqlite://").connect()
    >>> METADATA.create_all(connection)
    >>> list(read(connection, 1, LINES.c.number >= 0))
    []
    """
    last = -1
    while True:
        # Some at a time: what a server has to answer within is one page, however long the books are.
        page = connection.execute(
            sa.select(*_COLUMNS)
            .where(LINES.c.ledger == ledger, LINES.c.number > last, *where)
            .order_by(LINES.c.number)
            .limit(PAGE)
        ).all()
        for row in page:
            yield Line(row[0], row[1], _key(row[2]), *row[3:])
        if len(page) < PAGE:
            return
        last = page[-1][0]


def write(connection: sa.Connection, ledger: int, line: Line) -> None:
    """Add one line to a ledger.

    >>> from .tables import METADATA, LEDGERS
    >>> connection = sa.create_engine("sqlite://").connect()
    >>> METADATA.create_all(connection)
    >>> write(connection, 1, Line.after(None, "opened", key="", body={}))
    >>> [line.is_intact for line in read(connection, 1)]
    [True]
    """
    said: dict[str, Any] = {**vars(line), "key": canonical(line.key), "ledger": ledger}
    connection.execute(sa.insert(LINES).values(**said))


def _key(text: str) -> str:
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    # Whatever was not written here does not fit the hash of its line, and must not come to fit it.
    return key if isinstance(key, str) and canonical(key) == text else f"not as it was written: {text}"


@dataclass(frozen=True)
class TablePages:
    """The lines of one ledger in a database.

    >>> from .tables import METADATA
    >>> connection = sa.create_engine("sqlite://").connect()
    >>> METADATA.create_all(connection)
    >>> pages = TablePages(connection, 1, "Ledger 'main'")
    >>> list(pages.all()), list(pages.some("reserved", "q0"))
    ([], [])
    """

    connection: sa.Connection
    ledger: int
    title: str

    def all(self) -> Iterator[Line]:
        """Return all lines in order, as they are."""
        return self.after(-1)

    def after(self, number: int) -> Iterator[Line]:
        """Return the lines after one in order, as they are.

        >>> from .tables import METADATA
        >>> connection = sa.create_engine("sqlite://").connect()
        >>> METADATA.create_all(connection)
        >>> list(TablePages(connection, 1, "Ledger 'main'").after(3))
        []
        """
        return read(self.connection, self.ledger, LINES.c.number > number)

    def some(self, kind: str, key: str) -> Iterator[Line]:
        """Return the lines of one kind about one key, as they are."""
        return read(self.connection, self.ledger, LINES.c.kind == kind, LINES.c.key == canonical(key))

    def require_rules(self) -> None:
        """Refuse tables whose triggers were dropped, disabled or exchanged.

        >>> TablePages.require_rules  # doctest: +ELLIPSIS
        <function ...>
        """
        found = self.connection.execute(
            sa.text(
                "SELECT t.tgname, c.relname, t.tgtype, p.prosrc FROM pg_trigger t "
                "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid "
                "WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') "
                "AND c.oid IN (to_regclass('tellers_lines'), to_regclass('tellers_ledgers'))"
            )
        )
        if {(*row[:3], hashlib.sha256(row[3].encode()).hexdigest()) for row in found} != RULES:
            raise LedgerConflict(
                f"{self.title} is not in the tables it was made in: the rules that keep them append-only "
                "were changed. Restore them from a backup."
            )
