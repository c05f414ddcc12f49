"""Data sets by name: those of scikit-learn and made-up ones, which need no file, and published ones."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache
from os import PathLike
from typing import Any

import numpy as np

from ..errors import require_count, require_finite
from ._records import NAMED
from .dataset import Dataset, MultilabelDataset


@cache
def _bundled(name: str) -> Any:
    """Return a table that comes with scikit-learn, read once; whoever takes it takes copies."""
    from sklearn import datasets

    return getattr(datasets, name)()


def digits() -> Dataset:
    """Return scikit-learn's handwritten digits: 1,797 images of 8 by 8 pixels, scaled to [0, 1].

    >>> digits()
    Dataset('digits', n_rows=1797, n_features=64, n_classes=10)
    """
    bunch = _bundled("load_digits")
    return Dataset(
        name="digits", X=bunch.data / 16.0, y=bunch.target.copy(), n_classes=10,
        feature_names=tuple(bunch.feature_names), image_shape=(8, 8),
    )  # fmt: skip


def breast_cancer() -> Dataset:
    """Return scikit-learn's breast cancer table: 569 tumours, 30 measurements, malignant (0) or benign (1).

    The measurements come as they are: a scale taken from private rows would be one more release.

    >>> breast_cancer().class_names
    ('malignant', 'benign')
    """
    bunch = _bundled("load_breast_cancer")
    return Dataset(
        name="breast_cancer", X=bunch.data.copy(), y=bunch.target.copy(), n_classes=2,
        class_names=tuple(map(str, bunch.target_names)), feature_names=tuple(map(str, bunch.feature_names)),
    )  # fmt: skip


def synthetic(
    n_rows: int,
    *,
    difficulty: float,
    seed: int | np.random.Generator,
    n_classes: int = 10,
    n_features: int = 20,
    n_persons: int | None = None,
) -> Dataset:
    """Make a task in which teachers agree as much as `difficulty` lets them.

    Each class is a round Gaussian cloud; any two centres are 2 apart and `difficulty` is the clouds' standard
    deviation. So the best rule errs between two classes with probability Phi(-1 / difficulty): never at 0,
    2.3 % at 0.5, 16 % at 1, and about 1/2, where votes are a lottery, from 10 upwards. The centres do not
    depend on the seed, so that two calls with different seeds give train and test of one task.

    >>> synthetic(500, difficulty=0.5, seed=7)
    Dataset('synthetic', n_rows=500, n_features=20, n_classes=10)
    >>> synthetic(500, difficulty=0.5, seed=7, n_persons=100)
    Dataset('synthetic', n_rows=500, n_features=20, n_classes=10, persons)
    """
    require_count(n_rows=n_rows, n_features=n_features)
    require_count(2, n_classes=n_classes)
    require_finite(difficulty=difficulty)
    if difficulty < 0:
        raise ValueError(f"Expected difficulty >= 0, got difficulty={difficulty}.")
    if n_features < n_classes:
        raise ValueError(
            f"Expected n_features >= n_classes, got {n_features} for {n_classes} classes: "
            "centres at equal distances need as many directions."
        )
    if not isinstance(seed, np.random.Generator):
        require_count(0, seed=seed)
    generator = np.random.default_rng(seed)
    y = generator.integers(n_classes, size=n_rows)
    # A fixed rotation spreads what tells the classes apart over all features, as in real tables.
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(n_features, n_features)))[0]
    centres = math.sqrt(2.0) * rotation[:n_classes]
    X = centres[y] + difficulty * generator.normal(size=(n_rows, n_features))
    persons = None
    if n_persons is not None:
        require_count(n_persons=n_persons)
        if n_persons > n_rows:
            raise ValueError(f"Expected at most one person per row, got {n_persons} for {n_rows} rows.")
        # Everyone has a row; the rest fall where they fall, so that some have many.
        extra = generator.integers(n_persons, size=n_rows - n_persons)
        persons = generator.permutation(np.concatenate([np.arange(n_persons), extra]))
    return Dataset(name="synthetic", X=X, y=y, n_classes=n_classes, persons=persons)


def made_multilabel(
    label_names: Sequence[str],
    *,
    n_rows: int = 6000,
    n_features: int = 20,
    n_labels_per_row: int = 2,
    seed: int = 7,
) -> MultilabelDataset:
    """Make rows of word counts with a few labels each, by scikit-learn's generator; nobody is in them."""
    from sklearn.datasets import make_multilabel_classification

    require_count(n_rows=n_rows, n_features=n_features, n_labels_per_row=n_labels_per_row)
    X, Y = make_multilabel_classification(
        n_rows, n_features, n_classes=len(label_names), n_labels=n_labels_per_row, random_state=seed % 2**32
    )
    # Counts become small numbers by a factor that is the same whatever the rows are.
    return MultilabelDataset(name="made_multilabel", X=X / 10.0, Y=Y, label_names=tuple(label_names))


# By name, for files and command lines

DATASETS: dict[str, Callable[..., Dataset]] = {
    name: one.reader() for name, one in NAMED.items() if one.load and not one.files
}


def load(name: str, *, data_dir: str | PathLike[str] | None = None, **options: Any) -> Dataset:
    """Return a data set by its name, for files and command lines; code calls the loader itself.

    The data directory is handed to the loaders that read one; `options` are the loader's own.

    >>> load("synthetic", n_rows=100, difficulty=0.5, seed=7)
    Dataset('synthetic', n_rows=100, n_features=20, n_classes=10)
    >>> load("imagenet")
    Traceback (most recent call last):
        ...
    ValueError: Expected one of adult, breast_cancer, ..., synthetic, got 'imagenet'. ...
    """
    if name not in DATASETS:
        raise ValueError(
            f"Expected one of {', '.join(DATASETS)}, got {name!r}. For a file of your own use read_table."
        )
    loader = DATASETS[name]
    known = inspect.signature(loader).parameters
    if "data_dir" in known:
        options["data_dir"] = data_dir
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = ", ".join(known) or "no options"
        raise TypeError(f"Expected {wanted} for the data set {name!r}, got {', '.join(unknown)}.")
    return loader(**options)
