"""The order of questions: typical rows first, at random, or those the student is least sure of."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from ..privacy._rows import numeric_rows
from .fitting import Indices, Seed

# --- Which rows of a pool are typical: those in the middle of many others, taken from all over the pool. ---


_NEIGHBOURS = 30
_FARTHEST = 5.0
_KEPT = 0.6  # of every group; the rest lies at its edge


def typical_first(X: Any, *, n_groups: int = 100, seed: Seed = 0) -> Indices:
    """Return all rows of a public pool, typical ones first, group by group in turn.

    Teachers agree on typical rows, and what teachers agree on costs next to nothing by exact accounting: an
    epsilon that buys 400 labels of rows drawn at random may buy 1,000 of these. They teach as much to a
    student that learns from the unlabelled rest too. Rows are grouped (k-means), and a group's densest rows
    come first, where the nearest neighbours are near; the outer two fifths of every group come last.

    Guarantee: the order is made of public rows alone, and costs nothing.
    Assumes:   distances between rows mean something: scaled features, or those of a network that learned
               from public rows. Raw pixels do badly.
    Reference: Hacohen et al. 2022 (typical queries at low budgets); the accounting is "The exact cost".

    >>> rows = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [20.0], [21.0], [22.0], [23.0], [24.0], [25.0]])
    >>> sorted(typical_first(rows, n_groups=2)[:2].tolist())  # the middle of either group
    [2, 7]
    """
    from sklearn.cluster import KMeans
    from sklearn.neighbors import NearestNeighbors

    require_count(n_groups=n_groups)
    rows = numeric_rows(X)
    rows = rows.reshape(len(rows), -1)
    state = int(np.random.default_rng(seed).integers(2**31))
    groups = KMeans(min(int(n_groups), len(rows)), n_init=3, random_state=state).fit_predict(rows)
    # Neighbours of the same group: where groups are small, few.
    near = min(_NEIGHBOURS, max(1, len(rows) // int(n_groups) - 1), len(rows) - 1)
    spread = np.zeros(len(rows))
    if near:
        spread = NearestNeighbors(n_neighbors=near).fit(rows).kneighbors()[0].mean(axis=1)
    by_group = np.lexsort((spread, groups))
    size = np.bincount(groups)
    first = np.cumsum(size) - size
    place = np.empty(len(rows), dtype=np.int64)
    place[by_group] = np.arange(len(rows)) - first[groups[by_group]]
    share = place / size[groups]
    # Groups take turns, each at the pace of its size, so that the first n rows look like the pool.
    order = np.lexsort((spread, np.where(share < _KEPT, share, 1 + share)))
    return np.asarray(order, dtype=np.int64)


def same_spread(X: Any) -> NDArray[np.float64]:
    """Return rows whose features all spread alike; what lies far out is drawn in to 5 standard deviations."""
    rows = numeric_rows(X).astype(np.float64)
    rows = rows.reshape(len(rows), -1)
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    # A pixel at the rim is black but for a few images: these are not to be far from everything.
    return np.asarray(scaled.clip(-_FARTHEST, _FARTHEST))


# --- Which rows of a pool teach most: those the student is least sure of. ---


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
