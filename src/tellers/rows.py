"""Rows of data as every module expects them: numbers without gaps, and declared class ids.

A message names the place of what is wrong, never the entry.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def numeric_rows(values: ArrayLike) -> NDArray[Any]:
    """Return X as an array with one row per record, refusing anything but finite numbers.

    >>> numeric_rows([[1.0, float("nan")]])
    Traceback (most recent call last):
        ...
    ValueError: Expected finite numbers in X, got NaN or infinity in row 0, feature 1. Fill missing values ...
    """
    table = np.asarray(values)
    if table.ndim < 2 or table.size == 0:
        raise ValueError(f"Expected X of shape (rows, features), got shape {table.shape}.")
    if table.dtype.kind not in "iufb":
        raise TypeError(f"Expected numbers in X, got dtype {table.dtype}. Turn categories into codes first.")
    if table.dtype.kind == "f":
        # A finite sum has finite terms. Only where it is not does a second look, with its mask, pay.
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not np.isfinite(table.sum())
        if suspicious and not np.isfinite(table).all():
            row, *place = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
            where = place[0] if len(place) == 1 else tuple(place)
            raise ValueError(
                f"Expected finite numbers in X, got NaN or infinity in row {row}, feature {where}. "
                "Fill missing values in, or drop the row."
            )
    return table


def class_ids(labels: NDArray[Any], *, n_classes: int) -> NDArray[np.int64]:
    """Return y as class ids, refusing what is not one of the declared classes.

    >>> class_ids(np.array([0, 2]), n_classes=2)
    Traceback (most recent call last):
        ...
    ValueError: Expected classes 0..1 in y (n_classes=2), got another in row 1. Declare every class.
    """
    if labels.dtype.kind not in "iu":
        raise TypeError(f"Expected class ids (whole numbers) in y, got dtype {labels.dtype}.")
    outside = (labels < 0) | (labels >= n_classes)
    if outside.any():
        raise ValueError(
            f"Expected classes 0..{n_classes - 1} in y (n_classes={n_classes}), "
            f"got another in row {int(np.argmax(outside))}. Declare every class."
        )
    return labels.astype(np.int64)


def count_copies(public: ArrayLike, private: ArrayLike) -> int:
    """Return how many public rows are exact copies of private ones; a private number, like those rows.

    Rows are compared by hashes of their numbers, in the coarser of the two precisions. Labels are not looked
    at. Rows that were changed however little, or scaled, are not found.

    >>> count_copies([[1, 2], [3, 4], [1, 2]], [[1.0, 2.0], [0.0, -0.0]])
    2
    >>> count_copies(np.float32([[0.1]]), [[0.1]])
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
    return sum(row in there for row in _hashes(asked, precision))


def _hashes(table: NDArray[Any], precision: "np.dtype[Any]") -> Iterator[bytes]:
    for start in range(0, len(table), 4096):
        # Adding 0 turns -0.0, which equals 0.0 and has other bytes, into 0.0.
        rows = np.ascontiguousarray(table[start : start + 4096].astype(precision) + 0)
        for row in rows:
            yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()
