"""A student of many labels: a model per label, or one of all, taught where a label was told."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..label_models import OneEach, label_table
from ..release import SILENT, Release
from .base import Seed, count_rows, fresh, take_rows


def fit_labels(estimator: Any, X: Any, labels: Release | ArrayLike, *, seed: Seed | None = None) -> Any:
    """Return a student of released labels, rows x labels of 1, 0 and SILENT.

    Each label has a copy of the estimator, fitted to the rows where it was told or inferred; where it was
    silent the row teaches the other labels. A label that was always told the same, or never, is constant. An
    estimator that is `multilabel` and passes over SILENT, as `TorchLabelClassifier` does, is fitted as it is.

    Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
    Assumes:   X is public, and the labels were released by a mechanism that was charged.
    Reference: Papernot et al. 2017, section 2 (the student); Dullerud et al. 2022, section 4.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, released = [[0.0], [1.0], [2.0]], [[0, 1], [1, SILENT], [SILENT, 1]]
    >>> fit_labels(LogisticRegression(C=100), X, released).predict([[0.1], [0.9]])
    array([[0, 1],
           [1, 1]])
    >>> fit_labels(LogisticRegression(), [[0.0]], [[SILENT, SILENT]])
    Traceback (most recent call last):
        ...
    ValueError: Expected at least one released label, got silence for every row and label. Ask more ...
    """
    said = labels.labels if isinstance(labels, Release) else labels
    table = label_table(said, n_rows=count_rows(X), silent=True)
    # Rows without any label teach nobody, and may be many.
    spoken = np.flatnonzero((table != SILENT).any(axis=1))
    if not spoken.size:
        raise ValueError(
            "Expected at least one released label, got silence for every row and label. Ask more queries, "
            "or ask with a lower threshold; silence was charged too."
        )
    copy = fresh(estimator, seed=seed)
    student = copy if getattr(copy, "multilabel", False) else OneEach(copy)
    return student.fit(take_rows(X, spoken), table[spoken])
