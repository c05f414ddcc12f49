"""A student that learns from labels: any estimator, on the queries that were answered."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..release import SILENT, Release
from .base import Seed, count_rows, fresh, released_labels, require_classes, take_rows


def fit_supervised(estimator: Any, X: Any, labels: Release | ArrayLike, *, seed: Seed | None = None) -> Any:
    """Return a copy of an estimator, fitted to the queries that were answered.

    `X` holds the queries that were asked, in their order; rows met with silence are left out. Labels that an
    interactive mechanism handed back to the student are kept. `seed` fills in every `random_state` that the
    estimator left open. The estimator passed in stays as it was.

    Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
    Assumes:   X is public, and the labels were released by a mechanism that was charged.
    Reference: Papernot et al. 2017, section 2 (the student); Dwork and Roth 2014, Proposition 2.1.

    >>> from sklearn.linear_model import LogisticRegression
    >>> student = fit_supervised(LogisticRegression(), [[0.0], [1.0], [9.0]], [0, 1, SILENT])
    >>> student.predict([[0.1], [0.9]])
    array([0, 1])
    >>> fit_supervised(LogisticRegression(), [[0.0], [1.0]], [SILENT, SILENT])
    Traceback (most recent call last):
        ...
    ValueError: Expected at least one released label, got silence for every row. Ask more queries, ...
    """
    table = released_labels(labels, n_rows=count_rows(X))
    answered = np.flatnonzero(table != SILENT)
    require_classes(np.unique(table[answered]), n_answered=answered.size)
    student = fresh(estimator, seed=seed)
    student.fit(take_rows(X, answered), table[answered])
    return student
