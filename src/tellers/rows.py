"""Rows of data as every module expects them: numbers without gaps, and declared class ids.

A message names the place of what is wrong, never the entry.
"""

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
