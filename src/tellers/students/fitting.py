"""Students of any estimator: supervised, semi-supervised, of many labels, distilled, self-taught."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.label_models import OneEach, count_rows, take_rows
from ..errors import require_count, require_finite, require_fraction, require_positive
from ..privacy._rows import label_table, numeric_rows
from ..privacy.release import SILENT, Release

Indices = NDArray[np.int64]
Seed = int | np.random.Generator


# --- What all students share: rows to learn from, labels that were released, a fresh copy to teach. ---


def spread_columns(
    scores: ArrayLike, student: Any, *, n_classes: int, never_met: float
) -> NDArray[np.float64]:
    """Return a student's scores with a column for every class, also those that no answer ever named."""
    table = np.asarray(scores, dtype=np.float64)
    met = np.asarray(getattr(student, "classes_", np.arange(n_classes)), dtype=np.int64)
    if len(met) == n_classes:
        return table
    if table.ndim == 1:
        table = np.stack([-table, table], axis=1)
    spread = np.full((len(table), n_classes), never_met)
    spread[:, met] = table
    return spread


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


def require_answers(labels: NDArray[Any]) -> None:
    """Refuse to teach from no answers at all."""
    if not (labels != SILENT).any():
        what = "row" if labels.ndim == 1 else "row and label"
        raise ValueError(
            f"Expected at least one released label, got silence for every {what}. "
            "Ask more queries, or ask with a lower threshold; silence was charged too."
        )


def require_classes(labels: NDArray[Any]) -> None:
    """Refuse to teach from no answers at all, or from answers that are all the same."""
    require_answers(labels)
    answers = labels[labels != SILENT]
    classes, n_answered = np.unique(answers), len(answers)
    if classes.size < 2:
        raise ValueError(
            f"Expected answers of at least 2 classes, got class {classes[0]} alone, {n_answered} times. "
            "Ask more queries."
        )


# --- A student that learns from labels: any estimator, on the queries that were answered. ---


def fit_supervised(estimator: Any, X: Any, labels: Release | ArrayLike, *, seed: Seed | None = None) -> Any:
    """Return a copy of an estimator, fitted to the queries that were answered.

    `X` holds the queries that were asked, in their order; rows met with silence are left out. Labels that an
    interactive mechanism handed back to the student are kept. `seed` fills in every `random_state` that the
    estimator left open. The estimator passed in stays as it was.

    Labels of a table, rows x labels of 1, 0 and SILENT, are each taught to a copy of the estimator, by the
    rows where it was told or inferred; where it was silent the row teaches the other labels. A label that was
    always told the same, or never, is constant. An estimator that is `multilabel` and passes over SILENT, as
    `TorchLabelClassifier` does, is fitted as it is.

    Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
    Assumes:   X is public, and the labels were released by a mechanism that was charged.
    Reference: Papernot et al. 2017, section 2 (the student); Dwork and Roth 2014, Proposition 2.1; Dullerud
               et al. 2022, section 4 (many labels).

    >>> from sklearn.linear_model import LogisticRegression
    >>> student = fit_supervised(LogisticRegression(), [[0.0], [1.0], [9.0]], [0, 1, SILENT])
    >>> student.predict([[0.1], [0.9]])
    array([0, 1])
    >>> released = [[0, 1], [1, SILENT], [SILENT, 1]]
    >>> fit_supervised(LogisticRegression(C=100), [[0.0], [1.0], [2.0]], released).predict([[0.1], [0.9]])
    array([[0, 1],
           [1, 1]])
    >>> fit_supervised(LogisticRegression(), [[0.0], [1.0]], [SILENT, SILENT])
    Traceback (most recent call last):
        ...
    ValueError: Expected at least one released label, got silence for every row. Ask more queries, ...
    """
    said = labels.labels if isinstance(labels, Release) else labels
    on_labels = np.ndim(said) == 2
    if on_labels:
        table = label_table(said, n_rows=count_rows(X), silent=True)
        # Rows without any label teach nobody, and may be many.
        answered = np.flatnonzero((table != SILENT).any(axis=1))
        require_answers(table)
    else:
        table = released_labels(said, n_rows=count_rows(X))
        answered = np.flatnonzero(table != SILENT)
        require_classes(table)
    student = fresh(estimator, seed=seed)
    if on_labels and not getattr(student, "multilabel", False):
        student = OneEach(student)
    student.fit(take_rows(X, answered), table[answered])
    return student


def fit_labels(*given: Any, **named: Any) -> Any:
    """Do what `fit_supervised` does, and say that this is its name now."""
    words = "tellers.students.fit_labels is now fit_supervised. The old name is removed in version 0.4."
    warnings.warn(words, DeprecationWarning, stacklevel=2)
    return fit_supervised(*given, **named)


# --- A student that learns from labelled and from unlabelled rows, both public. ---


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
    others = X if X_unlabelled is None or not count_rows(X_unlabelled) else X_unlabelled
    student.fit(X, said, others, **{n: v for n, v in wanted.items() if v is not None and n in known})
    return student


def takes_unlabelled(estimator: Any) -> bool:
    """Say whether an estimator learns from rows without a label too."""
    return "X_unlabelled" in inspect.signature(estimator.fit).parameters


# --- A student that learns from shares of votes: distillation from noisy histograms. ---
#
# A histogram says more than a label and costs more: `NoisyHistogram` is charged order / sigma^2 per query
# where `GNMax` pays about 0.64 of it. All that follows is post-processing of the noisy counts, and free.


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
    require_classes(classes)
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
    """Return what `fit` calls the weights of rows, or say that it takes none."""
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


# --- A student that teaches itself: any classifier, learning from its own surest guesses on public rows. ---
#
# Two opinions make a guess: the classifier's own, and that of a graph in which neighbouring rows pass their
# labels on. Released labels that their neighbours contradict are left out, since some of them are noise.


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
    >>> from tellers.data import digits
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
    require_classes(said)
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


# --- By name, for settings files. ---


@dataclass(frozen=True)
class StudentKind:
    """A way to teach that settings can name: in words, by a function, and what of a run that takes.

    `learns_from` is what it is told of the rows that were asked; `require` refuses a model before anything is
    paid for.
    """

    words: str
    fit: Callable[..., Any]
    takes: tuple[str, ...] = ()
    learns_from: str = "labels"
    require: Callable[[Any], object] = lambda _model: None


STUDENT_KINDS = {
    "supervised": StudentKind("learns from labels", fit_supervised),
    "self_taught": StudentKind(
        "from its own guesses for the rest of the pool too", fit_self_taught, ("X_unlabelled",)
    ),
    "semi_supervised": StudentKind(
        "from labels and from the whole pool, by a model made for it (gan, mean_teacher, mixmatch, "
        "multilabel_mixmatch, vat)",
        fit_semi_supervised,
        ("X_unlabelled", "progress", "folder"),
    ),
    "distilled": StudentKind(
        "from shares of votes (mechanism histogram)",
        fit_distilled,
        ("temperature", "floor"),
        learns_from="values",
        require=weight_name,
    ),
}
