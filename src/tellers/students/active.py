"""Which rows of a pool teach most: those the student is least sure of."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from .base import Indices


def least_confident(student: Any, X_pool: Any, n: int) -> Indices:
    """Return the n rows a fitted student is least sure of, the least sure first; ties in their order.

    Sure is the probability of its best class (`predict_proba`), or how far the best class is ahead
    (`decision_function`). Of a student of many labels it is the mean over labels of its surer answer.

    >>> from sklearn.linear_model import LogisticRegression
    >>> student = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> least_confident(student, [[0.0], [0.6], [0.5], [3.0]], 2)
    array([2, 1])
    """
    require_count(0, n=n)
    return np.argsort(_confidence(student, X_pool), kind="stable")[: int(n)].astype(np.int64)


def _confidence(student: Any, X: Any) -> NDArray[np.float64]:
    if getattr(student, "multilabel", False):
        yes = np.asarray(student.predict_proba(X), dtype=np.float64)
        return np.asarray(np.maximum(yes, 1 - yes).mean(axis=1))
    if hasattr(student, "predict_proba"):
        return np.asarray(np.max(student.predict_proba(X), axis=1), dtype=np.float64)
    if hasattr(student, "decision_function"):
        scores = np.asarray(student.decision_function(X), dtype=np.float64)
        if scores.ndim == 1:
            return np.abs(scores)
        best = np.sort(scores, axis=1)[:, -2:]
        return np.asarray(best[:, 1] - best[:, 0])
    raise TypeError(
        f"Expected a student with predict_proba or decision_function, got {type(student).__name__}. "
        "Take one that can say how sure it is, or ask in random order."
    )
