"""The Dataset: a table of private rows with what is publicly known about it.

Classes, features and their names are public; the rows, and how many each person has, are not. A data set
does not print its rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_present
from ..rows import KeptRows, class_ids, numeric_rows
from .places import Places


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Rows, their labels, and what belongs to each row; checked, and read-only.

    `persons` names whose row it is, `ids` the row itself, `budgets` the epsilon that row's owner agreed to,
    or the name of its level, `sites` where it was collected. `image_shape` gives the rows of `X` their shape
    back. `notes` says what was read off the data because it was not declared. `places` says where rows stood
    in a table of which some lines could not be used.

    >>> data = Dataset(name="tiny", X=[[0.0], [1.0], [2.0]], y=[0, 1, 1], n_classes=2, persons=list("aba"))
    >>> data
    Dataset('tiny', n_rows=3, n_features=1, n_classes=2, persons)
    >>> data.class_names, data.feature_names
    (('0', '1'), ('x0',))
    >>> data.take([0, 2]).persons
    array(['a', 'a'], dtype='<U1')
    """

    name: str
    X: NDArray[Any]
    y: NDArray[np.int64]
    n_classes: int
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    persons: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    budgets: NDArray[Any] | None = None
    sites: NDArray[Any] | None = None
    image_shape: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()
    places: Places | None = None

    def __post_init__(self) -> None:
        require_count(2, n_classes=self.n_classes)
        given: Any = self.X
        X = given if isinstance(given, KeptRows) else _features(given)
        y = _labels(self.y, n_rows=len(X), n_classes=self.n_classes)
        kept: dict[str, Any] = {"X": X, "y": y, "n_classes": int(self.n_classes)}
        kept["class_names"] = _names(
            self.class_names or map(str, range(self.n_classes)), self.n_classes, "class"
        )
        kept["feature_names"] = _names(
            self.feature_names or (f"x{j}" for j in range(X.shape[1])), X.shape[1], "feature"
        )
        for name in ("persons", "ids", "sites"):
            if getattr(self, name) is not None:
                column = _column(getattr(self, name), n_rows=len(X), name=name)
                require_present(**{name: column.tolist()})
                kept[name] = column
        if self.budgets is not None:
            kept["budgets"] = _budgets(self.budgets, n_rows=len(X))
        if self.image_shape is not None and math.prod(self.image_shape) != X.shape[1]:
            raise ValueError(f"Expected images of {X.shape[1]} numbers, got image_shape={self.image_shape}.")
        for name, value in kept.items():
            object.__setattr__(self, name, _frozen(value) if isinstance(value, np.ndarray) else value)

    @property
    def n_features(self) -> int:
        """Return how many features a row has."""
        return int(self.X.shape[1])

    @property
    def images(self) -> NDArray[Any]:
        """Return the rows as images: rows, height, width and, where there are colours, channels."""
        if self.image_shape is None:
            raise ValueError(f"Expected a data set of images, {self.name!r} has no image_shape.")
        return self.X.reshape(len(self), *self.image_shape)

    def take(self, rows: ArrayLike) -> "Dataset":
        """Return the data set of some rows, by their numbers or by a mask."""
        index = np.asarray(rows)
        if index.ndim != 1 or index.dtype.kind not in "iub" or index.size == 0:
            raise ValueError(
                f"Expected row numbers or a mask in one dimension, got {index.dtype} of shape {index.shape}."
            )
        columns = {name: getattr(self, name) for name in ("persons", "ids", "budgets", "sites")}
        return Dataset(
            name=self.name, X=self.X[index], y=self.y[index], n_classes=self.n_classes,
            class_names=self.class_names, feature_names=self.feature_names,
            image_shape=self.image_shape, notes=self.notes,
            places=None if self.places is None else self.places.take(index),
            **{name: None if column is None else column[index] for name, column in columns.items()},
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        shape = f"n_rows={len(self)}, n_features={self.n_features}, n_classes={self.n_classes}"
        there = [name for name in ("persons", "ids", "budgets", "sites") if getattr(self, name) is not None]
        return f"Dataset({', '.join([repr(self.name), shape, *there])})"


def _features(values: ArrayLike) -> NDArray[Any]:
    table = numeric_rows(values)
    if table.ndim != 2:
        raise ValueError(f"Expected X of shape (rows, features), got shape {table.shape}.")
    return table


def _labels(values: ArrayLike, *, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    return class_ids(_column(values, n_rows=n_rows, name="y"), n_classes=n_classes)


def _budgets(values: ArrayLike, *, n_rows: int) -> NDArray[Any]:
    budgets = _column(values, n_rows=n_rows, name="budgets")
    if budgets.dtype.kind == "U":
        require_present(budgets=budgets.tolist())
        return budgets
    if budgets.dtype.kind not in "iuf":
        raise TypeError(f"Expected numbers or names of levels in budgets, got dtype {budgets.dtype}.")
    bad = ~(np.isfinite(budgets) & (budgets > 0))
    if bad.any():
        raise ValueError(f"Expected budgets > 0 and finite, got another in row {int(np.argmax(bad))}.")
    return budgets.astype(np.float64)


def _column(values: ArrayLike, *, n_rows: int, name: str) -> NDArray[Any]:
    column = np.asarray(values)
    if column.shape != (n_rows,):
        raise ValueError(
            f"Expected {name} with one entry for each of {n_rows} rows, got shape {column.shape}."
        )
    return column


def _names(values: Any, n_wanted: int, what: str) -> tuple[str, ...]:
    names = tuple(str(value) for value in values)
    if len(names) != n_wanted or len(set(names)) != n_wanted:
        raise ValueError(
            f"Expected {n_wanted} different {what} names, got {len(names)} ({len(set(names))} different)."
        )
    return names


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
