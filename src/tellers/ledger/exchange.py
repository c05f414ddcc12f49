"""A ledger as text: a line of JSON per line of the chain, hashes included; read elsewhere, it is the same."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from ..budget import Accountant, Budget
from ..errors import LedgerConflict
from ..file_sizes import cap, require_size
from . import _file
from .chain import Book, Line
from .chained import ChainedLedger, require_terms
from .opening import is_url, open_ledger

_HEADER = {"tellers": "ledger", "format": 1}
# A batch of a million answers takes a tenth of it.
_LONGEST_LINE = 64 * 2**20


def export_ledger(ledger: ChainedLedger, stream: TextIO) -> str:
    """Write a ledger as JSON lines, every hash checked, and return the last hash.

    The first line says what it is, the last one how many lines there are and the hash that ends them.

    >>> import io, tempfile
    >>> from tellers import Accountant, Budget, SqliteLedger
    >>> ledger = SqliteLedger(tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5)))
    >>> text = io.StringIO()
    >>> export_ledger(ledger, text) == ledger.verify(), text.getvalue().count(chr(10))
    (True, 3)
    """
    lines = ledger.lines()
    head = lines[-1].hash
    for said in (_HEADER, *(asdict(line) for line in lines), {"lines": len(lines), "head": head}):
        stream.write(json.dumps(said) + "\n")
    return head


def read_export(stream: Iterable[str]) -> list[Line]:
    """Return the lines of an export, or refuse one that was changed, cut short or made up.

    >>> read_export([])
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Expected an exported ledger, got something else. Nothing was written. ...
    """
    said = [_parsed(text) for text in _bounded(stream) if text.strip()]
    if len(said) < 3 or said[0] != _HEADER:
        raise LedgerConflict(
            "Expected an exported ledger, got something else. Nothing was written. Make one with "
            "tellers ledger export."
        )
    lines, end = [_line(each) for each in said[1:-1]], said[-1]
    book = Book()
    for line in lines:
        book.add(line)
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
    terms = json.loads(lines[0].body)
    try:
        accountant = Accountant.held(Budget(terms["epsilon"], terms["delta"]), terms["held_at"])
    except (KeyError, TypeError, ValueError):
        raise LedgerConflict(
            "Expected a budget in the first line of the export, got none. Nothing was written."
        ) from None
    require_terms(terms, accountant, "the export")
    if is_url(where):
        from .sql import fill

        fill(os.fspath(where), lines, name=name, timeout=timeout)
        return open_ledger(where, accountant, name=name, timeout=timeout)
    path = Path(os.path.abspath(where))
    try:
        with _file.plain_words(path, timeout):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
            try:
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
