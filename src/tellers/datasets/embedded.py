"""Data sets that need no file: two that come with scikit-learn, and tasks made to measure."""

import math

import numpy as np

from ..errors import require_count, require_finite
from .base import Dataset


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
