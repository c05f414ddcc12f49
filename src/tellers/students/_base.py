"""What all students share: rows to learn from, labels that were released, a fresh copy to teach."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..privacy.release import SILENT, Release

Indices = NDArray[np.int64]
Seed = int | np.random.Generator


def count_rows(X: Any) -> int:
    """Return how many rows a matrix, a data frame, a sparse matrix or a list has."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: Indices) -> Any:
    """Return some rows of a matrix, a data frame, a sparse matrix or a list, in the order given."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]


def released_labels(labels: Release | ArrayLike, *, n_rows: int) -> Indices:
    """Return the labels of a release, or labels as they are, after checking that there is one per row."""
    table = np.asarray(labels.labels if isinstance(labels, Release) else labels)
    if table.shape != (n_rows,):
        raise ValueError(
            f"Expected one label per row, {n_rows} of them, got shape {table.shape}. "
            "Pass the rows that were asked, all of them."
        )
    if n_rows and (table.dtype.kind not in "iu" or table.min() < SILENT):
        raise ValueError(
            f"Expected whole labels from 0 upwards, or SILENT = {SILENT}, got others ({table.dtype})."
        )
    return table.astype(np.int64)


def fresh(estimator: Any, *, seed: Seed | None = None) -> Any:
    """Return an unfitted copy; a seed fills in every `random_state` that was left open.

    Anything without scikit-learn's `get_params` is copied as it is.
    """
    from sklearn.base import clone

    copy = clone(estimator, safe=False)
    if seed is not None and hasattr(copy, "get_params"):
        states = {name: value for name, value in copy.get_params().items() if name.endswith("random_state")}
        rng = np.random.default_rng(seed)
        # Sorted, so that the order in which an estimator lists its parameters decides nothing.
        drawn = {name: int(rng.integers(2**31)) for name in sorted(states) if states[name] is None}
        copy.set_params(**drawn)
    return copy


def require_classes(classes: NDArray[Any], *, n_answered: int) -> None:
    """Refuse to teach from no answers at all, or from answers that are all the same."""
    if not n_answered:
        raise ValueError(
            "Expected at least one released label, got silence for every row. "
            "Ask more queries, or ask with a lower threshold; silence was charged too."
        )
    if classes.size < 2:
        raise ValueError(
            f"Expected answers of at least 2 classes, got class {classes[0]} alone, {n_answered} times. "
            "Ask more queries."
        )


def drawn_seed(random_state: int | None) -> int:
    """Return a seed that was given, or one that the operating system draws."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    require_count(0, random_state=random_state)
    return int(random_state)
