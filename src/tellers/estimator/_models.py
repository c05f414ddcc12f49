"""What a classifier is made of where its parameters leave that open, and how its teachers are trained."""

from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline

from ..catalogue import make_model
from ..mechanisms import ConfidentGNMax, GNMax, Mechanism
from ..release import SILENT
from ..teachers import train_teachers


def model_or_default(model: Any) -> Any:
    """Return what was given, or else logistic regression on features of one scale."""
    return make_model("scaled_logistic") if model is None else model


def model_name(model: Any) -> str:
    """Return the name of an estimator's class, of a pipeline's last step."""
    return type(model.steps[-1][1] if isinstance(model, Pipeline) else model).__name__


def default_mechanism(n_teachers: int, *, saves: bool) -> Mechanism:
    """Return a mechanism whose noise grows with the teachers; silence is for those who save a budget."""
    if not saves:
        return GNMax(sigma=0.2 * n_teachers)
    return ConfidentGNMax(
        sigma=0.2 * n_teachers, threshold=0.6 * n_teachers, sigma_threshold=0.24 * n_teachers
    )


def default_n_teachers(n_units: int) -> int:
    """Return 1.5 times the root of the number of units, with ten units each at least and 250 at most."""
    return max(1, min(250, int(1.5 * n_units**0.5), n_units // 10))


def agreed_n_teachers(n_teachers: int | None, n_rows: int, *, by_name: bool) -> int:
    """Return how many teachers there are: as many as were said, or by the number of rows if public."""
    if n_teachers is not None:
        return n_teachers
    if by_name:
        raise ValueError(
            "Expected n_teachers where persons or ids are given, got none. How many there are is private, so "
            "nothing is derived from it. About 1.5 times the root of their rough number suits many tables."
        )
    return default_n_teachers(n_rows)


def train(teacher: Any, *data: Any, n_jobs: int | None, **how: Any) -> Any:
    """Train an ensemble with the backend that its teacher belongs to."""
    return train_teachers(teacher, *data, n_jobs=n_processes(n_jobs), **how)


def n_processes(n_jobs: int | None) -> int | None:
    """Return how many processes train teachers: scikit-learn's -1 stands for every processor."""
    return None if n_jobs is None else effective_n_jobs(n_jobs)


def constant_student(X: NDArray[Any], labels: NDArray[np.int64]) -> Any:
    """Return a student that says the one class that was ever answered."""
    answered = labels != SILENT
    return DummyClassifier(strategy="most_frequent").fit(X[answered], labels[answered])


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
