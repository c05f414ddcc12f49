"""Assignment: a keyed hash says which teacher a unit belongs to, and nobody else's rows have a say in it.

A seat that depends on the order of a table, on sorted names or on how many units there are is a function of
all units: one that comes, goes or moves would re-deal the others. A hash of the unit's own identity is not.
The key is drawn without looking at the data; it need not be secret.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import date, time
from numbers import Integral, Real
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_present

Indices = NDArray[np.int64]
Seed = int | np.random.Generator
RULE = "keyed hash, version 1"
_BITS = 128
_WHOLE = re.compile(r"-?[1-9][0-9]*\.0+", re.ASCII)  # how a table writes whole numbers beside fractions


def assignment_key(seed: Seed | None = None) -> bytes:
    """Return the key of an assignment: derived from a seed, or drawn fresh where there is none."""
    if seed is None:
        return secrets.token_bytes(32)
    if isinstance(seed, np.random.Generator):
        return seed.bytes(32)
    require_count(0, seed=seed)
    return hashlib.blake2b(str(int(seed)).encode(), digest_size=32, person=b"tellers assign").digest()


def identities(values: ArrayLike | Iterable[Any], *, name: str, n_rows: int | None = None) -> list[str]:
    """Return the identity of every row's unit as text: 3, 3.0, "3" and "3.0" are the same one.

    A column of numbers becomes one of texts, or of fractions, when one entry does. If that gave others a new
    identity, one unit would re-deal them all.
    """
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        row = int(np.argmax(values.mask))
        raise ValueError(f"Expected a value in every row of {name}, got a masked one in row {row}.")
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")
    column: NDArray[Any] = np.asarray(values, dtype=object)
    if column.ndim != 1 or len(column) == 0 or (n_rows is not None and len(column) != n_rows):
        wanted = "one entry per row" if n_rows is None else f"one entry for each of {n_rows} rows"
        raise ValueError(f"Expected {wanted} in {name}, got shape {column.shape}.")
    entries = column.tolist()
    require_present(**{name: entries})
    return [_identity(entry, name=name, row=row) for row, entry in enumerate(entries)]


def seats(
    names: Iterable[str], n_seats: int, *, key: bytes, purpose: str = "teacher", n_each: int = 1
) -> Indices:
    """Return the seats of every unit, units x `n_each`, different ones for each.

    Row i looks at name i alone.
    """
    require_count(n_seats=n_seats, n_each=n_each)
    if n_each > n_seats:
        raise ValueError(f"Expected at most as many seats each as there are, {n_seats}, got {n_each}.")
    rows = [_draw(name, int(n_seats), key=key, purpose=purpose, n_each=int(n_each)) for name in names]
    return np.array(rows, dtype=np.int64).reshape(-1, int(n_each))


def positions(names: Iterable[str], *, key: bytes, purpose: str) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every unit, of its own name alone."""
    # 53 bits are what a float holds below 1.
    return np.array([_hash(name, 0, key=key, purpose=purpose) >> (_BITS - 53) for name in names]) / 2.0**53


def _draw(name: str, n_seats: int, *, key: bytes, purpose: str, n_each: int) -> list[int]:
    found: list[int] = []
    turn = 0
    while len(found) < n_each:
        seat = _hash(name, turn, key=key, purpose=purpose) % n_seats
        if seat not in found:
            found.append(seat)
        turn += 1
    return found


def _hash(name: str, turn: int, *, key: bytes, purpose: str) -> int:
    made = hashlib.blake2b(key=key, digest_size=_BITS // 8)
    made.update(f"{purpose}\0{turn}\0".encode())
    made.update(name.encode("utf-8", "surrogatepass"))
    return int.from_bytes(made.digest(), "big")


def _identity(entry: object, *, name: str, row: int) -> str:
    if isinstance(entry, (np.bool_, bool)):
        return str(bool(entry))
    if isinstance(entry, Integral):
        return str(int(entry))
    if isinstance(entry, Real):
        value = float(entry)
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(entry, (date, time, UUID, np.datetime64)):
        return str(entry)
    if isinstance(entry, bytes):
        return entry.decode("utf-8", "surrogateescape")
    if isinstance(entry, str):
        return entry.partition(".")[0] if _WHOLE.fullmatch(entry) else entry
    raise TypeError(
        f"Expected texts, numbers or dates in {name}, got a {type(entry).__name__} in row {row}. "
        "Write every identity as text."
    )
