"""A student that teaches itself: any classifier, learning from its own surest guesses on public rows.

Two opinions make a guess: the classifier's own, and that of a graph in which neighbouring rows pass their
labels on. Released labels that their neighbours contradict are left out, since some of them are noise.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_fraction
from ..release import SILENT, Release
from ..rows import numeric_rows
from .base import Indices, Seed, fresh, released_labels, require_classes

Floats = NDArray[np.float64]
_N_PASSES = 50  # 0.9^50 is half a percent: what a label still moves then is not worth another pass
_DOUBT = 0.01  # no neighbours are so sure that the classifier is not heard


def fit_self_taught(
    estimator: Any,
    X: Any,
    labels: Release | ArrayLike,
    X_unlabelled: Any = None,
    *,
    rounds: int = 5,
    neighbours: int = 7,
    passed_on: float = 0.8,
    seed: Seed | None = None,
) -> Any:
    """Return a copy of a classifier, fitted to released labels and to its own guesses for public rows.

    Rows met with silence count as unlabelled, like those of `X_unlabelled`. In each of `rounds` rounds the
    classifier is taught anew from the surest guesses of every class, a larger share of them each time, in the
    end all. A guess is the classifier's (`predict_proba`, or `decision_function`) times that of the row's
    `neighbours`, of whose labels a share `passed_on` is passed on at each step; with `neighbours=0` the
    classifier is heard alone, and every released label is kept. Neighbours are looked for among features as
    the last step of a pipeline sees them: scale features that are of different kinds.

    Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
    Assumes:   all rows are public, and the labels were released by a mechanism that was charged.
    Reference: Lee 2013 (pseudo-labels); Zhou et al. 2004 (labels passed on along a graph).

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers.datasets import digits
    >>> from tellers.students import fit_supervised
    >>> data, plain = digits(), LogisticRegression(max_iter=500)
    >>> alone = fit_supervised(plain, data.X[:100], data.y[:100])
    >>> taught = fit_self_taught(plain, data.X[:100], data.y[:100], data.X[100:1000])
    >>> taught.score(data.X[1000:], data.y[1000:]) > alone.score(data.X[1000:], data.y[1000:])
    True
    """
    require_count(rounds=rounds)
    require_count(0, neighbours=neighbours)
    require_fraction(passed_on=passed_on)
    rows = numeric_rows(X)
    said = released_labels(labels, n_rows=len(rows))
    if X_unlabelled is not None and len(np.asarray(X_unlabelled)):
        more = numeric_rows(X_unlabelled)
        if more.shape[1:] != rows.shape[1:]:
            raise ValueError(
                f"Expected X_unlabelled with rows of shape {rows.shape[1:]}, like X, got {more.shape[1:]}."
            )
        rows, said = np.concatenate([rows, more]), np.concatenate([said, np.full(len(more), SILENT)])
    told = np.flatnonzero(said != SILENT)
    require_classes(np.unique(said[told]), n_answered=told.size)
    if told.size == len(said):
        raise ValueError(
            "Expected rows without a label to learn from too, got none: neither X_unlabelled nor silent "
            "rows. Pass the public pool as X_unlabelled, or learn from labels alone with fit_supervised."
        )
    classes, ids = np.unique(said[told], return_inverse=True)
    # One draw for all rounds: the same classifier every time, but for what it is taught.
    chosen = int(seed.integers(2**31)) if isinstance(seed, np.random.Generator) else seed
    student = fresh(estimator, seed=chosen).fit(rows[told], classes[ids])
    opinion = np.ones((len(rows), len(classes)))
    if neighbours:
        features = _last_features(student, rows)
        opinion = _spread(features, told, ids, n_classes=len(classes), k=neighbours, passed_on=passed_on)
        kept = _uncontradicted(opinion[told], ids)
        if not kept.all():  # what was learned from these has to be forgotten
            told, ids = told[kept], ids[kept]
            student = fresh(estimator, seed=chosen).fit(rows[told], classes[ids])
        opinion = opinion + _DOUBT
    others = np.setdiff1d(np.arange(len(rows)), told)
    for number in range(1, rounds + 1):
        guesses = _chances(student, rows[others], classes) * opinion[others]
        guesses /= guesses.sum(axis=1, keepdims=True)
        best, taken = guesses.argmax(axis=1), _surest(guesses, number / rounds)
        taught = np.concatenate([told, others[taken]])
        student = fresh(estimator, seed=chosen).fit(rows[taught], classes[np.concatenate([ids, best[taken]])])
    return student


def _surest(guesses: Floats, share: float) -> Indices:
    """Return a share of the rows guessed to be of each class, those of which it is surest."""
    best, sure = guesses.argmax(axis=1), guesses.max(axis=1)
    taken = []
    for number in range(guesses.shape[1]):
        members = np.flatnonzero(best == number)
        n_taken = int(np.ceil(share * len(members)))
        taken.append(members[np.argsort(-sure[members], kind="stable")[:n_taken]])
    return np.sort(np.concatenate(taken))


def _chances(student: Any, rows: NDArray[Any], classes: Indices) -> Floats:
    """Return a column for every class, also for those that a round did not teach."""
    if hasattr(student, "predict_proba"):
        said = np.asarray(student.predict_proba(rows), dtype=np.float64)
    elif hasattr(student, "decision_function"):
        scores = np.asarray(student.decision_function(rows), dtype=np.float64)
        if scores.ndim == 1:
            scores = np.column_stack([-scores, scores]) / 2
        said = np.exp(scores - scores.max(axis=1, keepdims=True))
        said /= said.sum(axis=1, keepdims=True)
    else:
        raise TypeError(
            f"Expected a student with predict_proba or decision_function, got {type(student).__name__}. "
            "One that cannot say how sure it is cannot teach itself."
        )
    chances = np.full((len(rows), len(classes)), 1e-12)
    chances[:, np.searchsorted(classes, np.asarray(student.classes_))] += said
    return chances


def _last_features(student: Any, rows: NDArray[Any]) -> NDArray[Any]:
    from sklearn.pipeline import Pipeline

    while isinstance(student, Pipeline):
        rows, student = student[:-1].transform(rows), student.steps[-1][1]
    return rows


def _spread(
    features: NDArray[Any], told: Indices, ids: Indices, *, n_classes: int, k: int, passed_on: float
) -> Floats:
    """Return, for every row, the shares of the classes that reach it from labelled rows."""
    from scipy.sparse import diags
    from sklearn.neighbors import kneighbors_graph

    near = kneighbors_graph(features.reshape(len(features), -1), min(k, len(features) - 1))
    near = near.maximum(near.T)
    # Rows with many neighbours neither say nor hear more than others.
    scale = diags(1 / np.sqrt(np.asarray(near.sum(axis=1)).ravel()))
    graph = scale @ near @ scale
    given = np.zeros((len(features), n_classes))
    given[told, ids] = 1.0
    # What a class says in all is the same for every class, or the largest would be heard everywhere.
    given /= np.maximum(given.sum(axis=0), 1.0)
    reached = given
    for _ in range(_N_PASSES):
        reached = passed_on * (graph @ reached) + (1 - passed_on) * given
    total = reached.sum(axis=1, keepdims=True)
    return np.where(total > 0, reached / np.where(total > 0, total, 1.0), 1 / n_classes)


def _uncontradicted(opinion: Floats, ids: Indices) -> NDArray[np.bool_]:
    """Say which released labels their neighbours agree with; a class is never left without any."""
    agreed = opinion.argmax(axis=1) == ids
    spared = np.bincount(ids, weights=agreed, minlength=opinion.shape[1]) == 0
    return np.asarray(agreed | spared[ids])
