"""Public rows that are exact copies of private ones: counted by hash, and sealed."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .sealed import Sealed


def count_copies(public: ArrayLike, private: ArrayLike) -> Sealed[int]:
    """Return how many public rows are exact copies of private ones; sealed, as it looks at those.

    Rows are compared by hashes of their numbers, in the coarser of the two precisions. Labels are not looked
    at. Rows that were changed however little, or scaled, are not found.

    >>> count_copies([[1, 2], [3, 4], [1, 2]], [[1.0, 2.0], [0.0, -0.0]]).reveal()
    2
    >>> count_copies(np.float32([[0.1]]), [[0.1]]).reveal()
    1
    """
    asked, kept = np.asarray(public), np.asarray(private)
    if asked.shape[1:] != kept.shape[1:]:
        raise ValueError(
            f"Expected public and private rows with the same features, got shapes {asked.shape[1:]} and "
            f"{kept.shape[1:]}."
        )
    floats = [table.dtype for table in (asked, kept) if table.dtype.kind == "f"]
    precision = min(floats, key=lambda kind: kind.itemsize, default=np.dtype(np.float64))
    there = set(_hashes(kept, precision))
    return Sealed(sum(row in there for row in _hashes(asked, precision)))


def _hashes(table: NDArray[Any], precision: "np.dtype[Any]") -> Iterator[bytes]:
    for start in range(0, len(table), 4096):
        # Adding 0 turns -0.0, which equals 0.0 and has other bytes, into 0.0.
        rows = np.ascontiguousarray(table[start : start + 4096].astype(precision) + 0)
        for row in rows:
            yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()
