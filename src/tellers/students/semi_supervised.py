"""A student that learns from labelled and from unlabelled rows, both public."""

import inspect
from collections.abc import Callable
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike

from ..release import Release
from .base import Seed, fresh

Progress = Callable[[int, int], object]


def fit_semi_supervised(
    estimator: Any,
    X: Any,
    labels: Release | ArrayLike,
    X_unlabelled: Any = None,
    *,
    seed: Seed | None = None,
    progress: Progress | None = None,
    folder: str | PathLike[str] | None = None,
) -> Any:
    """Return a copy of a semi-supervised estimator, fitted to released labels and to public rows without one.

    The estimator's `fit` takes `X_unlabelled`, as those of `tellers.students.torch` do, and labels that are
    SILENT. `seed` fills in every `random_state` that was left open. `progress(done, total)`, and a `folder`
    for checkpoints, are handed on where its `fit` takes them.

    Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
    Assumes:   all rows are public, and the labels were released by a mechanism that was charged.
    Reference: Papernot et al. 2017, section 2 (the student); Dwork and Roth 2014, Proposition 2.1.

    >>> from sklearn.linear_model import LogisticRegression
    >>> fit_semi_supervised(LogisticRegression(), [[0.0], [1.0]], [0, 1], [[0.5]])
    Traceback (most recent call last):
        ...
    TypeError: Expected an estimator whose fit takes X_unlabelled, got LogisticRegression. Take one of ...
    """
    if not takes_unlabelled(estimator):
        raise TypeError(
            f"Expected an estimator whose fit takes X_unlabelled, got {type(estimator).__name__}. Take one "
            "of tellers.students.torch, or let this one teach itself with fit_self_taught."
        )
    said = labels.labels if isinstance(labels, Release) else labels
    student = fresh(estimator, seed=seed)
    known = inspect.signature(estimator.fit).parameters
    wanted = {"progress": progress, "folder": folder}
    student.fit(X, said, X_unlabelled, **{n: v for n, v in wanted.items() if v is not None and n in known})
    return student


def takes_unlabelled(estimator: Any) -> bool:
    """Say whether an estimator learns from rows without a label too.

    >>> from sklearn.linear_model import LogisticRegression
    >>> takes_unlabelled(LogisticRegression())
    False
    """
    return "X_unlabelled" in inspect.signature(estimator.fit).parameters
