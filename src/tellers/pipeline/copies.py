"""Public rows that are exact copies of private ones: found by hash, and told to the operator alone.

Whether a public row is also a private one is a fact about private data. So it is warned of, without a number,
and stands in nothing that a run publishes.
"""

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..sealed import Sealed


class CopiedRows(UserWarning):
    """Public rows are exact copies of private ones, which nothing protects there."""


def find_copies(private: ArrayLike, public: ArrayLike) -> Sealed[NDArray[np.bool_]]:
    """Say which public rows are exact copies of private rows; sealed, as it says who is among the private.

    >>> find_copies([[1.0, 2.0], [3.0, 4.0]], [[3, 4], [5, 6]]).reveal()
    array([ True, False])
    """
    known = set(_digests(private))
    return Sealed(np.array([digest in known for digest in _digests(public)], dtype=bool))


def warn_of_copies(private: ArrayLike, tables: Mapping[str, Any]) -> None:
    """Warn the operator of public tables that hold copies of private rows, by name and without a number.

    >>> with warnings.catch_warnings(record=True) as told:
    ...     warn_of_copies([[1.0], [2.0]], {"public pool": [[2.0]], "test rows": [[3.0]]})
    >>> [str(warning.message)[:57] for warning in told]
    ['Some of the public pool are exact copies of private rows.']
    """
    there = {name: rows for name, rows in tables.items() if rows is not None}
    named = [name for name, rows in there.items() if find_copies(private, rows).reveal().any()]
    if named:
        warnings.warn(
            f"Some of the {' and the '.join(named)} are exact copies of private rows. Nothing protects them "
            "there, and a student tested on them looks better than it is. Take them out of one of the two. "
            "This says something about the private rows: keep it to yourself.",
            CopiedRows,
            stacklevel=2,
        )


def _digests(rows: ArrayLike) -> Iterable[bytes]:
    # One type, and no zero below zero: the same numbers are the same bytes.
    table = np.ascontiguousarray(rows, dtype=np.float64) + 0.0
    return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in table)
