"""Data sets that need no file: those of scikit-learn, and made-up ones with one class or many labels."""

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_finite, require_present
from ..privacy._rows import label_table
from .dataset import Dataset, MultilabelDataset
from .tables import read_columns, read_features


def digits() -> Dataset:
    """Return scikit-learn's handwritten digits: 1,797 images of 8 by 8 pixels, scaled to [0, 1].

    >>> digits()
    Dataset('digits', n_rows=1797, n_features=64, n_classes=10)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset(
        name="digits", X=bunch.data / 16.0, y=bunch.target, n_classes=10,
        feature_names=tuple(bunch.feature_names), image_shape=(8, 8),
    )  # fmt: skip


def breast_cancer() -> Dataset:
    """Return scikit-learn's breast cancer table: 569 tumours, 30 measurements, malignant (0) or benign (1).

    The measurements come as they are: a scale taken from private rows would be one more release.

    >>> breast_cancer().class_names
    ('malignant', 'benign')
    """
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return Dataset(
        name="breast_cancer", X=bunch.data, y=bunch.target, n_classes=2,
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


_YES_OR_NO = {"0": 0, "1": 1, "False": 0, "True": 1, "false": 0, "true": 1}


def read_label_table(
    path: str | PathLike[str],
    label_names: Sequence[str],
    *,
    person: str | None = None,
    id: str | None = None,
    site: str | None = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
) -> MultilabelDataset:
    """Read a table with a column of 0 and 1 for each label: CSV with a header, Parquet, or npz.

    Every other column, or those in `features`, is a feature, but for those that say person, id or site.
    Words need declared `categories`. In an npz a two-dimensional `X` holds all features, and a `Y` all
    labels, in the order of their names.
    """
    place = Path(path)
    columns = read_columns(place)
    try:
        whole = columns.get("Y") if label_names and label_names[0] not in columns else None
        if whole is not None and whole.ndim == 2:
            labels, taken = label_table(whole, n_rows=len(whole), n_labels=len(label_names)), ["Y"]
        else:
            labels = np.column_stack([_answers(columns, name) for name in label_names])
            taken = list(label_names)
        owners: dict[str, Any] = {}
        for role, column in (("persons", person), ("ids", id), ("sites", site)):
            if column is not None:
                _require_column(columns, column)
                words = columns[column].astype(str).tolist()
                require_present(**{column: words})
                owners[role] = np.array(words)
                taken.append(column)
        if features is not None and set(features) & set(taken):
            raise ValueError("Expected features that are no label, person, id or site.")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place.name}: {error}") from error
    rows = read_features(place, features, categories=categories, leave_out=taken)
    has_matrix = features is None and "X" in columns and columns["X"].ndim == 2
    named = features if features is not None else [name for name in columns if name not in taken]
    return MultilabelDataset(
        name=place.name.split(".")[0], X=rows, Y=labels.astype(np.int8), label_names=tuple(label_names),
        feature_names=() if has_matrix else tuple(named), **owners,
    )  # fmt: skip


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
        n_rows, n_features, n_classes=len(label_names), n_labels=n_labels_per_row, random_state=seed
    )
    # Counts become small numbers by a factor that is the same whatever the rows are.
    return MultilabelDataset(name="made_multilabel", X=X / 10.0, Y=Y, label_names=tuple(label_names))


LABEL_DATASETS: dict[str, Callable[..., MultilabelDataset]] = {"made_multilabel": made_multilabel}


def _answers(columns: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.int64]:
    _require_column(columns, name)
    column = columns[name]
    words = [str(word) for word in (column.astype(int) if column.dtype.kind == "b" else column).tolist()]
    known = [_YES_OR_NO.get(word.removesuffix(".0"), -1) for word in words]
    if -1 in known:
        raise ValueError(
            f"Expected 0 or 1 in every row of the label {name!r}, got another entry in row {known.index(-1)}."
        )
    return np.array(known, dtype=np.int64)


def _require_column(columns: Mapping[str, NDArray[Any]], name: str) -> None:
    if name not in columns:
        raise ValueError(f"Expected a column {name!r}, got {', '.join(columns)}.")
