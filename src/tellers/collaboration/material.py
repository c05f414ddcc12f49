"""What a collaboration works with: rows to deal, pools to ask about, rows that choose and rows that judge."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..datasets import DATASETS, load, read_mulan
from ..datasets.directory import data_directory
from ..datasets.made_labels import made_multilabel
from ..errors import require_count
from .members import Integers

LABEL_SETS = ("birds", "emotions", "scene", "tmc2007-500", "yeast")
"""Published data sets of many labels that come in two parts, by the names of their files."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Material:
    """Rows in four parts that share none: private ones, a public pool, public ones to choose by, and a test.

    >>> divide("tiny", np.zeros((90, 2)), np.arange(90) % 3, n_outputs=3, seed=7)
    Material('tiny', n_private=45, n_pool=22, n_choice=7, n_test=16, n_outputs=3)
    """

    name: str
    n_outputs: int
    X: NDArray[Any]
    y: Integers
    X_pool: NDArray[Any]
    y_pool: Integers
    X_choice: NDArray[Any]
    y_choice: Integers
    X_test: NDArray[Any]
    y_test: Integers

    @property
    def is_multilabel(self) -> bool:
        """Return whether rows have many labels each."""
        return self.y.ndim == 2

    def __repr__(self) -> str:
        parts = {"private": self.y, "pool": self.y_pool, "choice": self.y_choice, "test": self.y_test}
        sizes = ", ".join(f"n_{name}={len(part)}" for name, part in parts.items())
        return f"Material({self.name!r}, {sizes}, n_outputs={self.n_outputs})"


def divide(
    name: str,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_outputs: int,
    seed: int,
    rest: tuple[ArrayLike, ArrayLike] | None = None,
    n_private: int | None = None,
    n_pool: int | None = None,
) -> Material:
    """Divide rows: private ones, a quarter to ask about, the rest to choose by (a third) and to judge.

    `rest` are rows that were published apart, of which all but the private ones are taken; without it half
    of the rows are private.

    >>> rows, labels = np.zeros((90, 2)), np.arange(90) % 3
    >>> divide("tiny", rows, labels, n_outputs=3, seed=7, n_private=60, n_pool=20)
    Material('tiny', n_private=60, n_pool=20, n_choice=3, n_test=7, n_outputs=3)
    """
    rows, labels = np.asarray(X), np.asarray(y, dtype=np.int64)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(rows))
    if rest is None:
        n_private = len(rows) // 2 if n_private is None else n_private
        n_pool = len(rows) // 4 if n_pool is None else n_pool
        _require_rows(name, len(rows), n_private + n_pool + 2)
        public, others = order[n_private:], (rows, labels)
    else:
        others = (np.asarray(rest[0]), np.asarray(rest[1], dtype=np.int64))
        n_private = len(rows) if n_private is None else n_private
        n_pool = len(others[0]) // 2 if n_pool is None else n_pool
        _require_rows(name, len(rows), n_private)
        _require_rows(name, len(others[0]), n_pool + 2)
        public = generator.permutation(len(others[0]))
    require_count(n_private=n_private, n_pool=n_pool)
    private, pool, left = order[:n_private], public[:n_pool], public[n_pool:]
    choice, test = left[: max(1, len(left) // 3)], left[max(1, len(left) // 3) :]
    return Material(
        name=name, n_outputs=n_outputs, X=rows[private], y=labels[private],
        X_pool=others[0][pool], y_pool=others[1][pool], X_choice=others[0][choice],
        y_choice=others[1][choice], X_test=others[0][test], y_test=others[1][test],
    )  # fmt: skip


def read_material(
    name: str,
    *,
    seed: int,
    data_dir: str | PathLike[str] | None = None,
    n_private: int | None = None,
    n_pool: int | None = None,
) -> Material:
    """Read a data set by its name and divide it: one class per row, or many labels.

    `made` is a generated set of ten labels that needs no file.

    >>> read_material("digits", seed=7, n_private=1000, n_pool=300)
    Material('digits', n_private=1000, n_pool=300, n_choice=165, n_test=332, n_outputs=10)
    >>> read_material("digit", seed=7)
    Traceback (most recent call last):
        ...
    ValueError: Expected a data set: adult, ..., or of many labels: made, birds, ..., got 'digit'.
    """
    how = {"seed": seed, "n_private": n_private, "n_pool": n_pool}
    if name == "made":
        table = made_multilabel([f"label {i}" for i in range(10)], n_rows=6000, seed=7)
        return divide(name, table.X, table.y, n_outputs=10, **how)  # type: ignore[arg-type]
    if name in LABEL_SETS:
        folder = data_directory(data_dir) / "multilabel"
        train, test = (
            read_mulan(folder / f"{name}-{part}.arff.xz", folder / f"{name}.xml")
            for part in ("train", "test")
        )
        X, X_rest = train.X, test.X
        if not np.isin(X_rest, (0, 1)).all():
            # Scales of the private rows would be private; those of the public part are as good.
            mean, scale = X_rest.mean(axis=0), X_rest.std(axis=0) + 1e-9
            X, X_rest = (X - mean) / scale, (X_rest - mean) / scale
        n_labels, rest = train.n_labels, (X_rest, test.y)
        return divide(name, X, train.y, n_outputs=n_labels, rest=rest, **how)  # type: ignore[arg-type]
    classes = [known for known in DATASETS if known != "synthetic"]
    if name not in classes:
        raise ValueError(
            f"Expected a data set: {', '.join(classes)}, or of many labels: made, {', '.join(LABEL_SETS)}, "
            f"got {name!r}."
        )
    data = load(name, data_dir=data_dir)
    return divide(name, data.X, data.y, n_outputs=data.n_classes, **how)  # type: ignore[arg-type]


def _require_rows(name: str, there: int, wanted: int) -> None:
    if there < wanted:
        raise ValueError(
            f"Expected at least {wanted} rows in {name!r} for its private part, pools and test, got {there}. "
            "Take fewer parties, or fewer rows for each of them."
        )
