"""Overlap of public and private rows: exact copies, counted by hash, and sealed."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy._rows import KeptRows
from ..privacy.sealed import Sealed

N_BYTES = 16


def count_copies(public: ArrayLike, private: ArrayLike | KeptRows) -> Sealed[int]:
    """Return how many public rows are exact copies of private ones; sealed, as it looks at those.

    Rows are compared by hashes of their numbers, in the coarser of the two precisions; whole numbers with
    whole numbers are compared digit by digit. A missing value (NaN) equals another. Labels are not looked
    at. Rows that were changed however little, or scaled, are not found. Private rows that are kept elsewhere
    are not read: their hashes are there.
    """
    asked = _numbers(public, "public")
    kept = private if isinstance(private, KeptRows) else _numbers(private, "private")
    if asked.shape[1:] != kept.shape[1:]:
        raise ValueError(
            f"Expected public and private rows with the same features, got shapes {asked.shape[1:]} and "
            f"{kept.shape[1:]}."
        )
    if isinstance(kept, KeptRows):
        there, precision = {row.tobytes() for row in kept.hashes}, kept.number
    else:
        precision = _precision(asked, kept)
        there = set(_hashes(kept, precision))
    return Sealed(sum(row in there for row in _hashes(asked, precision)))


def row_hashes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a hash of the numbers of every row, (rows, 16): equal for equal rows of the same type."""
    whole = _numbers(rows, "given")
    found = b"".join(_hashes(whole, _precision(whole)))
    return np.frombuffer(found, dtype=np.uint8).reshape(-1, N_BYTES)


def _numbers(table: ArrayLike, whose: str) -> NDArray[Any]:
    rows = np.asarray(table)
    if rows.dtype.kind not in "iufb":
        # Said here, and not by a cast, which would quote an entry.
        raise TypeError(
            f"Expected numbers in the {whose} rows, got dtype {rows.dtype}. Turn categories into codes first."
        )
    if rows.ndim < 2:
        raise ValueError(f"Expected {whose} rows of shape (rows, features), got shape {rows.shape}.")
    return rows


def _precision(*tables: NDArray[Any]) -> "np.dtype[Any]":
    """Return the type in which rows are compared: one in which no two numbers of a coarser table meet."""
    floats = [table.dtype for table in tables if table.dtype.kind == "f"]
    if not floats:
        whole = [np.dtype(np.int8) if table.dtype.kind == "b" else table.dtype for table in tables]
        met = np.result_type(*whole)
        # Signed and unsigned 64 bits meet in floats, where large numbers run together: as their digits, then.
        return np.dtype("S20") if met.kind == "f" else met.newbyteorder("=")
    coarsest = min(floats, key=lambda kind: kind.itemsize).newbyteorder("=")
    # Of an extended float some bytes mean nothing, and hashes would see them.
    return coarsest if coarsest.itemsize <= 8 else np.dtype(np.float64)


def _hashes(table: NDArray[Any], precision: "np.dtype[Any]") -> Iterator[bytes]:
    for start in range(0, len(table), 4096):
        with np.errstate(over="ignore"):  # what the coarser precision cannot hold is infinite in both
            rows = table[start : start + 4096].astype(precision)
        if precision.kind == "f":
            rows = rows + rows.dtype.type(0)  # turns -0.0, which equals 0.0 and has other bytes, into 0.0
            rows[np.isnan(rows)] = np.nan  # one kind of NaN; there are many, with other bytes
        for row in np.ascontiguousarray(rows):
            yield hashlib.blake2b(row.tobytes(), digest_size=N_BYTES).digest()
