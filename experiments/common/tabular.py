"""Adult and Diabetes with random forests: the split, the teachers' votes, and the student of their labels."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from tellers import Votes
from tellers.data import Dataset, adult, diabetes130
from tellers.teachers import Partition, partition, train_ensemble

KEPT_OF_THE_REST = 11_357 / (101_766 - 11_357)  # published counts: the coin that balances the classes


@dataclass(frozen=True, eq=False)
class Task:
    """Private rows with their partition, public rows to ask about, held-out rows to judge by."""

    name: str
    X: np.ndarray
    y: np.ndarray
    parts: Partition
    X_pool: np.ndarray
    y_pool: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def majority(self) -> float:
        """Return the share of the most frequent class among the held-out rows."""
        return float(np.bincount(self.y_test).max() / len(self.y_test))


def adult_task(data_dir: Path | None, *, n_teachers: int, seed: int, without: str = "") -> Task:
    """Return Adult as the paper has it: the test part's beginning is the pool, its last 11,282 rows judge.

    `without` names a feature to leave out.
    """
    train, test = (_leave_out(adult(part, data_dir=data_dir), without) for part in ("train", "test"))
    parts = partition(len(train), n_teachers, seed=seed)
    pool, held = slice(0, len(test) - 11_282), slice(len(test) - 11_282, None)
    name = f"Adult without {without}" if without else "Adult"
    return Task(name, train.X, train.y, parts, test.X[pool], test.y[pool], test.X[held], test.y[held])


def _leave_out(data: Dataset, name: str) -> Dataset:
    if not name:
        return data
    names = [feature for feature in data.feature_names if feature != name]
    columns = [data.feature_names.index(feature) for feature in names]
    return replace(data, X=data.X[:, columns], feature_names=tuple(names))


def diabetes_task(data_dir: Path | None, *, n_teachers: int, seed: int, balanced: bool) -> Task:
    """Return Diabetes split by patient: 34,104 in 46,806 teach, the others are asked about and judge.

    No patient is in two of the three groups or with two teachers. `balanced` keeps every visit that was
    followed by another within 30 days and flips a public coin for each other one, after the partition: so
    nobody's row decides where another one goes.
    """
    data = diabetes130(data_dir=data_dir)
    assert data.persons is not None
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.unique(data.persons))
    n_private = round(len(people) * 34_104 / 46_806)
    n_pool = n_private + (len(people) - n_private) // 2
    group = np.zeros(int(data.persons.max()) + 1, dtype=np.int8)
    group[people[n_private:n_pool]], group[people[n_pool:]] = 1, 2
    group_of = group[data.persons]
    kept = np.ones(len(data), dtype=bool)
    if balanced:
        kept = (data.y == 0) | (rng.random(len(data)) < KEPT_OF_THE_REST)
    private = np.flatnonzero(group_of == 0)
    # Equal shares of patients, as in the paper: a run of the product seats every patient by a hash instead.
    number: dict[int, int] = {}
    patient = np.array([number.setdefault(one, len(number)) for one in data.persons[private].tolist()])
    owner = np.empty(len(number), dtype=np.int64)
    for teacher, patients in enumerate(partition(len(number), n_teachers, seed=seed)):
        owner[patients] = teacher
    dealt = [np.flatnonzero(owner[patient] == teacher) for teacher in range(n_teachers)]
    parts = Partition(tuple(part[kept[private[part]]] for part in dealt), unit="one person")
    pool, held = (rng.permutation(np.flatnonzero((group_of == g) & kept)) for g in (1, 2))
    name = "Diabetes, balanced by a coin" if balanced else "Diabetes, as it is"
    return Task(
        name, data.X[private], data.y[private], parts, data.X[pool], data.y[pool], data.X[held], data.y[held]
    )


def forest(n_trees: int, *, random_state: int | None = None) -> Any:
    """Return the paper's model: a random forest, all defaults but the number of trees."""
    return RandomForestClassifier(n_estimators=n_trees, random_state=random_state)


def forest_votes(task: Task, *, n_queries: int, n_trees: int, seed: int) -> Votes:
    """Train one forest per teacher and let them vote on the first rows of the pool."""
    ensemble = train_ensemble(forest(n_trees), task.X, task.y, task.parts, n_classes=2, seed=seed, n_jobs=1)
    return ensemble.vote(task.X_pool[:n_queries])


def open_model(task: Task, *, n_trees: int, seed: int) -> Any:
    """Return the forest that sees all private rows the teachers see, with no privacy at all."""
    rows = np.concatenate(task.parts.parts)
    return forest(n_trees, random_state=seed).fit(task.X[rows], task.y[rows])


def scores(model: Any, task: Task) -> tuple[float, float]:
    """Return accuracy and balanced accuracy on the held-out rows."""
    said = model.predict(task.X_test)
    each = [float(np.mean(said[task.y_test == c] == c)) for c in np.unique(task.y_test)]
    return float(np.mean(said == task.y_test)), float(np.mean(each))
