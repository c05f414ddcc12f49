"""Teachers of many labels: one balanced logistic regression per label, and their ballots, kept in a file."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from data import Data
from scipy.sparse import csr_array, issparse
from sklearn.linear_model import LogisticRegression

from tellers import LabelVotes
from tellers.teachers import partition


@dataclass(frozen=True, eq=False)
class Models:
    """One linear model per label; a label with examples of one kind alone is answered with that."""

    weights: np.ndarray
    intercepts: np.ndarray

    def scores(self, X: Any) -> np.ndarray:
        """Return how far each label is from being left out, (rows, labels)."""
        return np.asarray(X @ self.weights.T + self.intercepts)

    def predict(self, X: Any) -> np.ndarray:
        """Return 0 or 1 for every label."""
        return (self.scores(X) > 0).astype(np.uint8)


def fit_models(X: Any, y: np.ndarray, *, balanced: bool = True, C: float = 0.3) -> Models:
    """Fit one logistic regression per label."""
    if issparse(X):  # liblinear wants small indices
        X = csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
    weights = np.zeros((y.shape[1], X.shape[1]))
    intercepts = np.zeros(y.shape[1])
    for label, column in enumerate(y.T):
        if column.min() == column.max():
            intercepts[label] = 1.0 if column[0] else -1.0
            continue
        model = LogisticRegression(
            C=C,
            solver="liblinear",
            class_weight="balanced" if balanced else None,
            random_state=0,
            max_iter=200,
        ).fit(X, column)
        weights[label], intercepts[label] = model.coef_[0], model.intercept_[0]
    return Models(weights, intercepts)


def _teach_one(part: tuple[Any, np.ndarray, Any]) -> np.ndarray:
    X, y, X_public = part
    return fit_models(X, y).predict(X_public)


def get_votes(data: Data, folder: Path, *, seed: int, n_jobs: int = 1) -> LabelVotes:
    """Return the ballots on the public rows from their file, or train the teachers and write it."""
    path = folder / f"{data.name}-{seed}.npz"
    shape = (data.setting.n_teachers, len(data.y_public), data.n_labels)
    if not path.is_file():
        parts = partition(len(data.y), data.setting.n_teachers, seed=seed)
        lessons = [(data.X[part], data.y[part], data.X_public) for part in parts.parts]
        if n_jobs == 1:
            ballots = [_teach_one(lesson) for lesson in lessons]
        else:
            with ProcessPoolExecutor(n_jobs) as pool:
                ballots = list(pool.map(_teach_one, lessons))
        folder.mkdir(parents=True, exist_ok=True)
        part_path = path.with_suffix(".part.npz")
        np.savez_compressed(part_path, ballots=np.packbits(np.stack(ballots).ravel()), shape=np.array(shape))
        part_path.rename(path)
    with np.load(path) as kept:
        if tuple(kept["shape"]) != shape:
            raise ValueError(f"Expected ballots of shape {shape} in {path.name}, got {tuple(kept['shape'])}.")
        ballots = np.unpackbits(kept["ballots"])[: int(np.prod(shape))].reshape(shape)
    return LabelVotes.from_ballots(ballots, n_labels=data.n_labels)
