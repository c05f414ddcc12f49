"""Open a ledger by path or URL, export it as text and import it again."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from ..errors import LedgerConflict
from ..privacy._files import cap, require_size
from ..privacy.budget import Accountant
from . import sqlite as _file
from ._bills import read_terms
from ._chain import ChainedLedger
from ._lines import Line
from ._state import checked, require_terms
from .sqlite import SqliteLedger


def is_url(where: str | os.PathLike[str]) -> bool:
    """Say whether a place is the URL of a PostgreSQL database, and not a path."""
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
    from .sql.postgres import PostgresLedger, first_line

    url = os.fspath(where)
    if accountant is None:
        known = {name: options[name] for name in ("name", "timeout") if name in options}
        accountant = _accountant(first_line(url, **known))
    return PostgresLedger(url, accountant, **options)


def open_as_begun(where: str | os.PathLike[str], accountant: Accountant, **options: Any) -> ChainedLedger:
    """Open a ledger, or begin it; one with this budget and rule, but other terms, keeps its own.

    They are the Rényi order and the part of delta for tests, or the events of a clock. They were fixed
    before its first release, so whatever is asked now is held by them too: gnmax after a batch that failed
    its test, say.
    """
    try:
        return open_ledger(where, accountant, **options)
    except LedgerConflict as refusal:
        try:
            found = open_ledger(where, **options)
        except (LedgerConflict, OSError, ValueError):
            raise refusal from None
        held = found.accountant
        if (held.budget, held.rule) == (accountant.budget, accountant.rule):
            return found
        found.close()
        raise


def _accountant(first: Line) -> Accountant:
    first.require_follows(None)
    return read_terms(json.loads(first.body))


_HEADER = {"tellers": "ledger", "format": 1}
# A batch of a million answers takes a tenth of it.
_LONGEST_LINE = 64 * 2**20


def export_ledger(
    ledger: ChainedLedger, stream: TextIO, *, look: Callable[[Line], object] | None = None
) -> str:
    """Write a ledger as JSON lines, every hash checked, and return the last hash.

    The first line says what it is, the last one how many lines there are and the hash that ends them. `look`
    is told every line.

    >>> import io, tempfile
    >>> from tellers import Accountant, Budget, SqliteLedger
    >>> ledger = SqliteLedger(tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5)))
    >>> text = io.StringIO()
    >>> export_ledger(ledger, text) == ledger.verify(), text.getvalue().count(chr(10))
    (True, 3)
    """
    n_lines, head = 0, ""
    stream.write(json.dumps(_HEADER) + "\n")
    for line in ledger.lines():
        stream.write(json.dumps(asdict(line)) + "\n")
        n_lines, head = n_lines + 1, line.hash
        if look is not None:
            look(line)
    stream.write(json.dumps({"lines": n_lines, "head": head}) + "\n")
    return head


def read_export(stream: Iterable[str]) -> list[Line]:
    """Return the lines of an export, or refuse one that was changed, cut short or made up."""
    said = [_parsed(text) for text in _bounded(stream) if text.strip()]
    if len(said) < 3 or said[0] != _HEADER:
        raise LedgerConflict(
            "Expected an exported ledger, got something else. Nothing was written. Make one with "
            "tellers ledger export."
        )
    lines, end = list(checked([_line(each) for each in said[1:-1]])), said[-1]
    if end != {"lines": len(lines), "head": lines[-1].hash}:
        raise LedgerConflict(
            "Expected an export that ends with its own last line; this one was cut short or changed. Nothing "
            "was written. Export the ledger again."
        )
    return lines


def import_ledger(
    stream: Iterable[str],
    where: str | os.PathLike[str],
    *,
    head: str | None = None,
    name: str = "main",
    timeout: float = 30.0,
) -> ChainedLedger:
    """Make a ledger from an export, in a new file or under a free name in a database, and return it open.

    Its lines and hashes are those of the ledger that was exported. A chain that somebody wrote anew from the
    first line holds together too: `head` is a hash that was noted before, and must be in it.

    >>> import io, tempfile
    >>> from tellers import Accountant, Budget, SqliteLedger
    >>> folder, accountant = tempfile.mkdtemp(), Accountant(Budget(epsilon=1.0, delta=1e-5))
    >>> ledger, text = SqliteLedger(folder + "/spend.db", accountant), io.StringIO()
    >>> noted = export_ledger(ledger, text)
    >>> import_ledger(text.getvalue().splitlines(), folder + "/copy.db", head=noted).verify() == noted
    True
    """
    lines = read_export(stream)
    if head is not None and all(line.hash != head for line in lines):
        raise LedgerConflict(
            f"The export does not hold the line with hash {head[:16]}..., which the ledger held. It was made "
            "of other books, or of older ones. Nothing was written."
        )
    try:
        accountant = _accountant(lines[0])
    except (KeyError, TypeError, ValueError):
        raise LedgerConflict(
            "Expected a budget in the first line of the export, got none. Nothing was written."
        ) from None
    require_terms(json.loads(lines[0].body), accountant, "the export")
    if is_url(where):
        from .sql.postgres import fill

        fill(os.fspath(where), lines, name=name, timeout=timeout)
        return open_ledger(where, accountant, name=name, timeout=timeout)
    path = Path(os.path.abspath(where))
    try:
        with _file.plain_words(path, timeout):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
        try:
            with _file.held(path, timeout):
                _file.connect(path, lines, timeout).close()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise LedgerConflict(
            f"Expected a file that is not there yet, got {path.name}. Nothing was written. Name another."
        ) from None
    return open_ledger(path, accountant, timeout=timeout)


def _bounded(stream: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text, a long one in pieces that are no line of a ledger, up to the cap in all."""
    most, n_read = cap(), 0
    readline = getattr(stream, "readline", None)
    lines = iter(stream) if readline is None else iter(lambda: readline(_LONGEST_LINE), "")
    for text in lines:
        n_read += len(text)
        require_size(n_read, "the export", most=most)
        yield text


def _parsed(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}


def _line(said: dict[str, Any]) -> Line:
    try:
        return Line(**said)
    except TypeError:
        raise LedgerConflict(
            "Expected a line of a ledger in every line of the export, got something else. It was changed. "
            "Nothing was written. Export the ledger again."
        ) from None
