"""Open a ledger by where it is: a path, or the URL of a database."""

import json
import os
from pathlib import Path
from typing import Any

from ..budget import Accountant, Budget
from . import _file
from .chain import Line
from .chained import ChainedLedger
from .sqlite import SqliteLedger


def is_url(where: str | os.PathLike[str]) -> bool:
    """Say whether a place is the URL of a PostgreSQL database, and not a path.

    >>> is_url("postgresql://team@db.example/privacy"), is_url("spend.db")
    (True, False)
    """
    scheme, found, _ = os.fspath(where).partition("://")
    return bool(found) and scheme.partition("+")[0] in ("postgresql", "postgres")


def open_ledger(
    where: str | os.PathLike[str], accountant: Accountant | None = None, **options: Any
) -> ChainedLedger:
    """Return the ledger in a file, or in the PostgreSQL database of a URL, ready for use.

    With an accountant, a ledger that is not there is made; without one, the ledger must be there and is
    opened with its own budget. `options` are those of `SqliteLedger` or of `PostgresLedger`: `timeout`,
    `allow_seeded` and, in a database, `name`.

    >>> import tempfile
    >>> from tellers import Accountant, Budget
    >>> path = tempfile.mkdtemp() + "/spend.db"
    >>> open_ledger(path, Accountant(Budget(epsilon=2.0, delta=1e-5))).close()
    >>> open_ledger(path).accountant.budget
    Budget(epsilon=2.0, delta=1e-05)
    """
    if not is_url(where):
        if "://" in os.fspath(where):
            # The text is not quoted: it may hold a password.
            raise ValueError("Expected a path or a postgresql:// URL for a ledger, got another kind of URL.")
        if accountant is None:
            first = _file.first_line(Path(os.path.abspath(where)), options.get("timeout", 30.0))
            accountant = _accountant(first)
        return SqliteLedger(where, accountant, **options)
    from .sql import PostgresLedger, first_line

    url = os.fspath(where)
    if accountant is None:
        known = {name: options[name] for name in ("name", "timeout") if name in options}
        accountant = _accountant(first_line(url, **known))
    return PostgresLedger(url, accountant, **options)


def _accountant(first: Line) -> Accountant:
    first.require_follows(None)
    terms = json.loads(first.body)
    return Accountant.held(Budget(terms["epsilon"], terms["delta"]), terms["held_at"])
