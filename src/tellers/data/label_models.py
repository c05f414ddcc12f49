"""One model per label: turns any classifier into one of many labels, for teachers and for students."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy._rows import label_table
from ..privacy.release import SILENT

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def count_rows(X: Any) -> int:
    """Return how many rows a matrix, a data frame, a sparse matrix or a list has."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: Integers) -> Any:
    """Return some rows of a matrix, a data frame, a sparse matrix or a list, in the order given."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]


class OneEach:
    """A copy of a classifier for every label, each fitted to the rows where its label is known.

    `fit` takes Y, rows x labels, of 1, 0 and SILENT, which is passed over. A label that is always 1, or
    always 0, needs no copy and stays so; one that is silent in every row is answered 0, and `silent_labels_`
    names it. `predict_proba` is rows x labels, 0 or 1 where the classifier has no probabilities.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, Y = [[0.0], [1.0], [2.0], [3.0]], [[0, 1, -1], [0, 1, -1], [1, 1, -1], [-1, 1, -1]]
    >>> model = OneEach(LogisticRegression(C=100)).fit(X, Y)
    >>> model.predict([[0.0], [2.5]]), model.silent_labels_
    (array([[0, 1, 0],
           [1, 1, 0]]), [2])
    >>> model.predict_proba([[0.0]]).round()
    array([[0., 1., 0.]])
    >>> model.set_params(estimator__C=3).get_params()["estimator__C"]
    3
    >>> model.fit([[0.0], [1.0]], [[0, 2], [1, 0]])
    Traceback (most recent call last):
        ...
    ValueError: Expected 0, 1 or SILENT = -1 in Y, got another entry in row 0, label 1.
    """

    multilabel = True

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the classifier and, if `deep`, its own parameters."""
        own: dict[str, Any] = {"estimator": self.estimator}
        if deep and hasattr(self.estimator, "get_params"):
            own |= {f"estimator__{name}": value for name, value in self.estimator.get_params().items()}
        return own

    def set_params(self, **parameters: Any) -> "OneEach":
        """Set the classifier, or parameters of it."""
        if "estimator" in parameters:
            self.estimator = parameters.pop("estimator")
        if parameters:
            self.estimator.set_params(
                **{name.removeprefix("estimator__"): value for name, value in parameters.items()}
            )
        return self

    def fit(self, X: Any, Y: ArrayLike) -> "OneEach":
        """Fit a copy for every label that has both answers."""
        from sklearn.base import clone

        table = label_table(Y, n_rows=count_rows(X), silent=True)
        self.models_: list[Any] = []
        self.constants_: list[int] = []
        self.silent_labels_ = [int(i) for i in np.flatnonzero((table == SILENT).all(axis=0))]
        for column in table.T:
            known = np.flatnonzero(column != SILENT)
            told = column[known]
            constant = int(told[0]) if told.size else 0
            if not told.size or (told == constant).all():
                self.models_.append(None)
            else:
                model = clone(self.estimator, safe=False)
                self.models_.append(model.fit(take_rows(X, known), told))
            self.constants_.append(constant)
        return self

    @property
    def n_labels(self) -> int:
        """Return how many labels it was fitted to."""
        return len(self.models_)

    @property
    def classes_(self) -> list[Integers]:
        """Return the answers to every label, as scikit-learn lists them for many outputs."""
        return [np.array([0, 1])] * self.n_labels

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every label, rows x labels."""
        answers = np.empty((count_rows(X), self.n_labels))
        for label, (model, constant) in enumerate(zip(self.models_, self.constants_, strict=True)):
            if model is None:
                answers[:, label] = constant
            elif hasattr(model, "predict_proba"):
                answers[:, label] = np.asarray(model.predict_proba(X))[:, 1]
            else:
                answers[:, label] = np.asarray(model.predict(X))
        return answers

    def predict(self, X: Any) -> Integers:
        """Return 1 for every label whose probability is above one half, rows x labels."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    def __repr__(self) -> str:
        return f"OneEach({self.estimator!r})"


def takes_labels(estimator: Any) -> bool:
    """Return whether an estimator, or the last step of a pipeline, is fitted to rows x labels as it is."""
    if getattr(estimator, "multilabel", False):
        return True
    if hasattr(estimator, "steps"):
        return takes_labels(estimator.steps[-1][1])
    try:
        from sklearn.utils import get_tags

        tags = get_tags(estimator)
        return bool(tags.classifier_tags is not None and tags.classifier_tags.multi_label)
    except Exception:  # no estimator of scikit-learn's: a copy for each label always works
        return False


def label_probabilities(model: Any, X: Any) -> Floats:
    """Return a fitted model's probability of every label, rows x labels, in whichever form it gives them."""
    said = model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)
    if not isinstance(said, list):
        return np.asarray(said, dtype=np.float64)
    # One table per label, with a column for each of the answers that were met.
    answers = np.zeros((len(said[0]), len(said)))
    for label, (table, classes) in enumerate(zip(said, model.classes_, strict=True)):
        met = np.flatnonzero(np.asarray(classes) == 1)
        if met.size:
            answers[:, label] = np.asarray(table)[:, met[0]]
    return answers
