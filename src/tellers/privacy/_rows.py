"""Rows of data as every module expects them: numbers without gaps, and declared class ids.

A message names the place of what is wrong, never the entry.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .release import SILENT


@dataclass(frozen=True, eq=False, repr=False)
class KeptRows:
    """Rows that stay where they are until somebody asks for them, with a hash of each beside them.

    What compares tables looks at the hashes (`data.dataset.row_hashes`), which are of numbers of the kind
    `number`; `load` reads rows by their numbers, and whoever needs an array of all of them has them read.
    Teachers that are trained on them read the rows of one part at a time.
    """

    shape: tuple[int, int]
    hashes: NDArray[np.uint8]
    load: Callable[[NDArray[np.int64]], NDArray[Any]]
    number: "np.dtype[Any]" = field(default_factory=lambda: np.dtype(np.float32))

    def __post_init__(self) -> None:
        if len(self.hashes) != self.shape[0]:
            raise ValueError(f"Expected a hash for each of {self.shape[0]} rows, got {len(self.hashes)}.")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        return self.load(np.arange(len(self))[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.load(np.arange(len(self))), dtype=dtype)

    def __repr__(self) -> str:
        return f"KeptRows(<private>, n_rows={self.shape[0]}, n_features={self.shape[1]})"


def numeric_rows(values: ArrayLike) -> NDArray[Any]:
    """Return X as an array with one row per record, refusing anything but finite numbers."""
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
    """Return y as class ids, refusing what is not one of the declared classes."""
    if labels.dtype.kind not in "iu":
        raise TypeError(f"Expected class ids (whole numbers) in y, got dtype {labels.dtype}.")
    outside = (labels < 0) | (labels >= n_classes)
    if outside.any():
        raise ValueError(
            f"Expected classes 0..{n_classes - 1} in y (n_classes={n_classes}), "
            f"got another in row {int(np.argmax(outside))}. Declare every class."
        )
    return labels.astype(np.int64)


def label_table(
    values: ArrayLike, *, n_rows: int, n_labels: int | None = None, silent: bool = False
) -> NDArray[np.int64]:
    """Return Y as rows x labels of 0 and 1, and SILENT where that is allowed; a message quotes no entry."""
    table = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    if table.ndim != 2 or table.size == 0 or len(table) != n_rows:
        raise ValueError(f"Expected Y of shape (rows, labels) with {n_rows} rows, got shape {table.shape}.")
    if n_labels is not None and table.shape[1] != n_labels:
        raise ValueError(
            f"Expected Y with a column for each of the {n_labels} labels declared, got {table.shape[1]}. "
            "Declare the labels there are."
        )
    if table.dtype.kind not in "biuf":
        raise TypeError(f"Expected 0 and 1 in Y, got dtype {table.dtype}.")
    wrong = ~((table == 0) | (table == 1) | (silent & (table == SILENT)))
    if wrong.any():
        row, label = (int(i) for i in np.argwhere(wrong)[0])
        wanted = f"0, 1 or SILENT = {SILENT}" if silent else "0 or 1"
        raise ValueError(f"Expected {wanted} in Y, got another entry in row {row}, label {label}.")
    return table.astype(np.int64)
