"""A student that learns from shares of votes: distillation from noisy histograms.

A histogram says more than a label and costs more: `NoisyHistogram` is charged order / sigma^2 per query where
`GNMax` pays about 0.64 of it. All that follows is post-processing of the noisy counts, and free.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_finite, require_positive
from ..release import Release
from .base import Seed, count_rows, fresh, require_classes, take_rows

Floats = NDArray[np.float64]


def soft_targets(values: Release | ArrayLike, temperature: float = 1.0, *, floor: float = 0.0) -> Floats:
    """Return one probability per class and query from noisy counts: cut off, cooled or heated, normalised.

    Counts of at most `floor` count as none: negative ones are noise, and about two sigma of noise are better
    cut off too before a high temperature blows them up. A share p becomes p^(1 / temperature), normalised: 1
    keeps the shares, large temperatures even them out among the classes that have votes, small ones leave the
    leader. A query with nothing left says nothing, and all classes come out alike.

    Reference: Hinton et al. 2015, section 2, with log shares as logits; Papernot et al. 2017, appendix B.1.

    >>> soft_targets([[80, 20, -3], [-1, -2, 0]]).round(3)
    array([[0.8  , 0.2  , 0.   ],
           [0.333, 0.333, 0.333]])
    >>> soft_targets([[80, 20, -3]], temperature=2.0).round(3)
    array([[0.667, 0.333, 0.   ]])
    """
    require_positive(temperature=temperature)
    require_finite(floor=floor)
    counts = _noisy_counts(values)
    kept = np.where(counts > max(float(floor), 0.0), counts, 0.0)
    top = kept.max(axis=1, keepdims=True)
    kept, top = np.where(top > 0, kept, 1.0), np.where(top > 0, top, 1.0)
    # Relative to the leader, whose log is 0: no temperature overflows, and an empty class stays empty.
    with np.errstate(divide="ignore", over="ignore"):
        weights = np.exp(np.log(kept / top) / temperature)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def fit_distilled(
    estimator: Any,
    X: Any,
    values: Release | ArrayLike,
    *,
    temperature: float = 1.0,
    floor: float = 0.0,
    seed: Seed | None = None,
) -> Any:
    """Return a copy of an estimator, fitted to shares of votes in place of labels.

    Estimators take one class per row, so each row appears once for every class with a share, weighted by it
    (`sample_weight`; in a pipeline that of its last step). For a loss that adds up over rows, such as the log
    loss, this is exactly the cross-entropy with soft targets. The table grows by up to the number of classes.

    Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
    Assumes:   X is public, and the values were released by a mechanism that was charged.
    Reference: Papernot et al. 2017, appendix B.1; Dwork and Roth 2014, Proposition 2.1.

    >>> from sklearn.linear_model import LogisticRegression
    >>> student = fit_distilled(LogisticRegression(C=100), [[0.0], [1.0]], [[90, 10], [20, 80]])
    >>> student.predict_proba([[1.0]]).round(1)
    array([[0.2, 0.8]])
    """
    targets = soft_targets(values, temperature, floor=floor)
    if len(targets) != count_rows(X):
        raise ValueError(
            f"Expected one row of values per row of X, {count_rows(X)} of them, got {len(targets)}. "
            "Pass the rows that were asked, all of them."
        )
    # Row by row and not class by class: an estimator that reads in order meets the classes mixed.
    rows, classes = np.nonzero(targets)
    require_classes(np.unique(classes), n_answered=len(targets))
    student = fresh(estimator, seed=seed)
    weights = {weight_name(student): targets[rows, classes]}
    student.fit(take_rows(X, rows), classes.astype(np.int64), **weights)
    return student


def _noisy_counts(values: Release | ArrayLike) -> Floats:
    if isinstance(values, Release):
        if values.values is None:
            raise ValueError(
                "Expected a release with values, got labels alone. "
                "Release votes with NoisyHistogram, or learn from the labels with fit_supervised."
            )
        values = values.values
    counts = np.asarray(values, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[1] < 2 or not np.isfinite(counts).all():
        raise ValueError(f"Expected finite values, queries x classes (2 or more), got shape {counts.shape}.")
    return counts


def weight_name(student: Any) -> str:
    """Return what `fit` calls the weights of rows, or say that it takes none.

    >>> from sklearn.linear_model import LogisticRegression
    >>> weight_name(LogisticRegression())
    'sample_weight'
    """
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

    path, last = "", student
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        path += f"{step}__"
    if not has_fit_parameter(last, "sample_weight"):
        raise TypeError(
            f"Expected an estimator whose fit takes sample_weight, got {type(last).__name__}. "
            "Take another one, learn from the labels with fit_supervised, or train on soft_targets yourself."
        )
    return f"{path}sample_weight"
