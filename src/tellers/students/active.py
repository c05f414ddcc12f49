"""A student that chooses its questions: in rounds, the rows it is least sure of first.

The student sees public rows and released labels, so what it asks next is post-processing and free; each
answer is charged as ever. Prices add up along any path. A data-dependent cost of a path that the answers
chose is the one of that path, as the documentation of the exact cost says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..release import SILENT, Release
from .base import Indices, Seed, count_rows, released_labels, take_rows
from .supervised import fit_supervised

Ask = Callable[[Indices], Release | ArrayLike]


@dataclass(frozen=True, eq=False)
class Round:
    """Where the student stands after a round: all that was asked so far, the `n_new` latest rows last.

    `student` is fitted to all answers so far; None while they do not hold two classes.

    >>> now = Round(indices=np.array([4, 0, 9]), labels=np.array([1, 1, SILENT]), n_new=2, student=None)
    >>> now.indices[-now.n_new :]
    array([0, 9])
    """

    indices: Indices
    labels: Indices
    n_new: int
    student: Any | None


def least_confident(student: Any, X_pool: Any, n: int) -> Indices:
    """Return the n rows a fitted student is least sure of, the least sure first; ties in their order.

    Sure is the probability of its best class (`predict_proba`), or how far the best class is ahead
    (`decision_function`).

    >>> from sklearn.linear_model import LogisticRegression
    >>> student = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> least_confident(student, [[0.0], [0.6], [0.5], [3.0]], 2)
    array([2, 1])
    """
    require_count(0, n=n)
    return np.argsort(_confidence(student, X_pool), kind="stable")[: int(n)].astype(np.int64)


def ask_in_rounds(
    ask: Ask, estimator: Any, X_pool: Any, *, first: int, per_round: int, n_rounds: int, seed: Seed
) -> Iterator[Round]:
    """Ask for `first` rows at random, then `n_rounds` times for the `per_round` the student is least sure of.

    `ask(indices)` gives a release, or labels, for rows of the pool. No row is asked twice, silent ones
    included: a second try would be charged again. While the answers do not hold two classes, rows are taken
    at random. The rounds end early when the pool is empty; what `ask` raises, an exhausted budget say,
    passes through, and the last round that came out still stands. Same seed, same answers, same rows.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> def ask(indices):
    ...     return (X[indices, 0] > 0.2).astype(int)
    >>> rounds = ask_in_rounds(ask, LogisticRegression(), X, first=6, per_round=3, n_rounds=4, seed=7)
    >>> [len(now.indices) for now in rounds]
    [6, 9, 12, 15, 18]
    """
    require_count(first=first, per_round=per_round)
    require_count(0, n_rounds=n_rounds)
    require_count(n_pool=count_rows(X_pool))
    sizes = [int(first)] + int(n_rounds) * [int(per_round)]
    return _rounds(ask, estimator, X_pool, sizes=sizes, rng=np.random.default_rng(seed))


def _rounds(
    ask: Ask, estimator: Any, X_pool: Any, *, sizes: list[int], rng: np.random.Generator
) -> Iterator[Round]:
    # Shuffled once: the order of the pool decides neither what is asked first nor how ties fall.
    left = rng.permutation(count_rows(X_pool)).astype(np.int64)
    indices, labels = left[:0], left[:0]
    student = None
    for size in sizes:
        if not left.size:
            return
        if student is None:
            chosen = np.arange(min(size, left.size))
        else:
            chosen = least_confident(student, take_rows(X_pool, left), size)
        new, left = left[chosen], np.delete(left, chosen)
        labels = np.append(labels, released_labels(ask(new.copy()), n_rows=new.size))
        indices = np.append(indices, new)
        if np.unique(labels[labels != SILENT]).size >= 2:
            student = fit_supervised(estimator, take_rows(X_pool, indices), labels, seed=rng)
        yield Round(indices, labels, new.size, student)


def _confidence(student: Any, X: Any) -> NDArray[np.float64]:
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
