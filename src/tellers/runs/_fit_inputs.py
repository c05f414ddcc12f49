"""What comes into a fit, checked, and what its parameters leave open; a message never quotes an entry."""

import secrets
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, validation
from sklearn.utils.multiclass import check_classification_targets

from ..data.dataset import count_copies
from ..errors import require_count
from ..mechanisms.base import Mechanism
from ..mechanisms.confident import ConfidentGNMax
from ..mechanisms.gnmax import GNMax
from ..privacy.release import SILENT
from ._catalogue import make_model

Indices = NDArray[np.int64]


def validated_labels(estimator: Any, X: Any, Y: Any) -> Any:
    """Return X and Y, rows x labels, as scikit-learn checks them for an estimator."""
    return validated(estimator, X, Y.toarray() if hasattr(Y, "toarray") else Y, multi_output=True)


def validated(estimator: Any, *tables: Any, reset: bool = True, **how: Any) -> Any:
    """Return X, or X and y, as scikit-learn checks them for an estimator."""
    try:
        if hasattr(validation, "validate_data"):
            return validation.validate_data(estimator, *tables, reset=reset, **how)
        return estimator._validate_data(*tables, reset=reset, **how)  # scikit-learn before 1.6
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
    # Raised out here, where the error that quotes the entry is no longer attached.
    raise ValueError("Expected numbers in X, got something else. Turn text and categories into codes first.")


def public_pool(estimator: Any, public: Any, X: NDArray[Any]) -> Any:
    """Return the pool, checked; how many of its rows are copies of private ones is sealed in `n_copies_`."""
    pool = validated(estimator, public, reset=False)
    estimator.n_copies_ = count_copies(pool, X)
    return pool


def declared_classes(classes: Sequence[Any] | None, n_classes: int | None) -> NDArray[Any] | None:
    """Return the declared classes, sorted as scikit-learn has them, or None where none are."""
    if n_classes is not None:
        require_count(2, n_classes=n_classes)
    if classes is None:
        return None if n_classes is None else np.arange(int(n_classes))
    table = np.asarray(classes)
    found: NDArray[Any] = np.unique(table)
    if table.ndim != 1 or found.size != table.size or found.size < 2 or n_classes not in (None, found.size):
        raise ValueError(
            "Expected two or more classes, each named once, and n_classes of them where that is given, got "
            f"shape {table.shape} with {found.size} different ones and n_classes={n_classes}."
        )
    return found


def classes_read_off(y: NDArray[Any]) -> NDArray[Any]:
    """Return the classes that appear in y, which gives away that they do."""
    check_classification_targets(y)
    found: NDArray[Any] = np.unique(y)
    if found.size < 2:
        raise ValueError("Expected at least 2 classes in y, got one class. There is nothing to learn.")
    return found


def class_ids(y: NDArray[Any], classes: NDArray[Any]) -> Indices:
    """Return the place of each label among the classes, refusing one that has none."""
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    ids = np.array([numbers.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (ids < 0).any():
        raise ValueError(
            f"Expected one of the {len(classes)} declared classes in every row of y, got another in row "
            f"{int(np.argmax(ids < 0))}. Declare every class, with labels of the type that y has."
        )
    return ids


def halves(ids: Indices, *, seed: int) -> tuple[Indices, Indices]:
    """Return the rows of a pool and the other rows, which have half of every class or more."""
    shuffled = np.random.default_rng(seed).permutation(len(ids))
    dealt = shuffled[np.argsort(ids[shuffled], kind="stable")]
    return np.sort(dealt[1::2]), np.sort(dealt[::2])


def seed_number(random_state: Any) -> int:
    """Return a whole number from what scikit-learn calls a random state."""
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, Integral):
        require_count(0, random_state=int(random_state))
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


# What parameters leave open


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


def n_processes(n_jobs: int | None) -> int | None:
    """Return how many processes train teachers: scikit-learn's -1 stands for every processor."""
    return None if n_jobs is None else effective_n_jobs(n_jobs)


def constant_student(X: NDArray[Any], labels: NDArray[np.int64]) -> Any:
    """Return a student that says the one class that was ever answered."""
    answered = labels != SILENT
    return DummyClassifier(strategy="most_frequent").fit(X[answered], labels[answered])
