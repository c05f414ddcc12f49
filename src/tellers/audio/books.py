"""Where the answers of some teachers are charged: one ledger for all of their students.

Teachers that are kept answer for many students, and what each of these learned adds up. So the books lie with
the teachers and not with a student: `books.json` in their folder says where, and nobody else decides.
"""

import json
import os
import secrets
from os import PathLike
from pathlib import Path
from urllib.parse import urlsplit

from ..budget import Accountant, Budget
from ..ledger import open_ledger
from ..ledger.opening import is_url
from ..rdp import RdpCurve
from ..teachers.store import write_whole

FILE, LEDGER = "books.json", "ledger.db"


def books_of(folder: str | PathLike[str], wanted: str = "") -> str:
    """Return the ledger that all students of some teachers are charged to: a file in full, or an address.

    `wanted` names one elsewhere, a team's database say, before the first student; from then on it is that
    one, and another is refused. Without, it is `ledger.db` beside the teachers. Nothing is written.

    Guarantee: all students of these teachers together keep to the budget of one ledger.
    Assumes:   the folder is not copied, and its ledger not put back from an older copy.
    Reference: Feldman and Zrnic 2021; docs/maths/composition.md.

    >>> import tempfile
    >>> ears = Path(tempfile.mkdtemp())
    >>> Path(books_of(ears)).name, Path(books_of(ears, "/elsewhere/fresh.db")).name
    ('ledger.db', 'fresh.db')
    >>> _ = (ears / "books.json").write_text('{"ledger": "ledger.db"}')
    >>> books_of(ears)
    Traceback (most recent call last):
        ...
    ValueError: Expected the ledger that students of these teachers are charged to ..., it is not there. ...
    """
    place = Path(folder)
    there = _read(place)
    if there is None:
        return wanted or str((place / LEDGER).absolute())
    ledger = there if is_url(there) else str((place / there).absolute())
    shown = "one in a database" if is_url(ledger) else ledger
    if wanted and not _same(wanted, ledger):
        raise ValueError(
            f"Expected the ledger that students of these teachers are charged to, {shown}, got another. Two "
            "ledgers are two budgets for the same votes. Leave it out (--ledger)."
        )
    if not is_url(ledger) and not Path(ledger).exists():
        raise ValueError(
            f"Expected the ledger that students of these teachers are charged to in {shown}, it is not "
            "there. Restore it: what was charged stays charged."
        )
    return ledger


def settle_books(folder: str | PathLike[str], ledger: str, *, budget: Budget, price: RdpCurve) -> None:
    """Begin the ledger where there is none, see that it pays for one question more, and write down its place.

    >>> import tempfile
    >>> from tellers import GNMax, Unit
    >>> ears, price = Path(tempfile.mkdtemp()), GNMax(sigma=40.0).price(Unit())
    >>> settle_books(ears, books_of(ears), budget=Budget(8.0, 1e-5), price=price)
    >>> books_of(ears, "/elsewhere/fresh.db")
    Traceback (most recent call last):
        ...
    ValueError: Expected the ledger that students of these teachers are charged to, ...
    """
    place, accountant = Path(folder), Accountant(budget)
    if is_url(ledger) and urlsplit(ledger).password:
        raise ValueError(
            "Expected the address of a database without a password, which would stand in everything a "
            "student's run writes. Put it into PGPASSWORD or ~/.pgpass."
        )
    with open_ledger(ledger, accountant) as books:
        accountant.require(books.spent, price, key="the first of this student")
    if not (place / FILE).exists():
        _write(place, LEDGER if _same(ledger, str(place / LEDGER)) else ledger)
    books_of(place, ledger)  # somebody else may have been faster, with another one


def _read(place: Path) -> str | None:
    try:
        said = json.loads((place / FILE).read_bytes())
        return str(said["ledger"])
    except FileNotFoundError:
        return LEDGER if (place / LEDGER).exists() else None
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"Expected the ledger's place in {place / FILE}, got something else. Restore the file: what was "
            "charged stays charged."
        ) from None


def _write(place: Path, ledger: str) -> None:
    """Write down where the books are, unless somebody else just did."""
    kept = ledger if is_url(ledger) or ledger == LEDGER else str(Path(ledger).absolute())
    fresh = place / f".{FILE}.{secrets.token_hex(8)}.tmp"
    write_whole(fresh, (json.dumps({"ledger": kept}) + "\n").encode())
    try:
        os.link(fresh, place / FILE)  # the first one stays, whoever comes second
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(fresh, place / FILE)
    finally:
        fresh.unlink(missing_ok=True)


def _same(one: str, other: str) -> bool:
    if is_url(one) or is_url(other):
        return one == other
    return Path(one).resolve() == Path(other).resolve()
