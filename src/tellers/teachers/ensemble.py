"""The ensemble: one teacher per part, trained on this machine, and the votes they cast."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..rows import class_ids, numeric_rows
from ..sealed import Sealed
from ..votes import Votes
from .ballots import class_ballot
from .fallback import FallbackTeacher, Rule
from .partition import Partition, Seed
from .running import Progress, train_each


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Trained teachers that vote; everything they say is private until a mechanism releases it.

    Every teacher votes. One that could not be trained, or does not answer, votes by a public rule
    (`FallbackTeacher`); `troubles` says who did and why.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the teachers were trained on the parts of one `Partition`; the queries are public.
    Reference: Papernot et al. 2017, section 2.1.

    >>> from tellers.teachers.models import ConstantTeacher
    >>> ensemble = Ensemble((ConstantTeacher(0), ConstantTeacher(2)), n_classes=3)
    >>> ensemble
    Ensemble(n_teachers=2, n_classes=3)
    >>> ensemble.vote([[0.1], [0.2]])
    Votes(<private>, n_queries=2, n_teachers=2, n_classes=3)
    >>> ensemble.accuracies([[0.1], [0.2]], [2, 0]), ensemble.troubles
    (Sealed(<private>), Sealed(<private>))
    """

    teachers: tuple[Any, ...]
    n_classes: int
    _troubles: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require_count(2, n_classes=self.n_classes)
        require_count(n_teachers=len(self.teachers))

    def vote(self, X: ArrayLike) -> Votes:
        """Return every teacher's ballot on every query."""
        from threadpoolctl import threadpool_limits

        queries = numeric_rows(X)
        rule = Rule(queries, self.n_classes)
        ballots = np.empty((len(self), len(queries)), dtype=np.int64)
        with threadpool_limits(limits=1):
            for number, teacher in enumerate(self.teachers):
                ballots[number], trouble = class_ballot(teacher, queries, number=number, rule=rule)
                if trouble is not None:
                    self._troubles[number] = trouble
        return Votes.from_ballots(ballots, n_classes=self.n_classes)

    def accuracies(self, X: ArrayLike, y: ArrayLike) -> Sealed[NDArray[np.float64]]:
        """Return each teacher's share of right answers, sealed: it was learned from private rows."""
        queries = numeric_rows(X)
        labels = declared_labels(y, n_rows=len(queries), n_classes=self.n_classes)
        ballots = self.vote(queries).ballots
        assert ballots is not None  # vote makes its votes of ballots
        return Sealed(np.asarray((ballots == labels).mean(axis=1), dtype=np.float64))

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who voted by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(known_troubles(self.teachers) | self._troubles)

    def __len__(self) -> int:
        return len(self.teachers)

    def __repr__(self) -> str:
        return f"Ensemble(n_teachers={len(self)}, n_classes={self.n_classes})"


def train_ensemble(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    partition: Partition,
    *,
    n_classes: int,
    seed: Seed,
    folder: str | PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
    retries: int = 1,
    on_mismatch: Literal["refuse", "retrain"] = "refuse",
    trusted: Sequence[str] = (),
    public: ArrayLike | None = None,
) -> Ensemble:
    """Train one copy of an estimator on each part: anything with `fit(X, y)` and `predict(X)`.

    Every `random_state` is drawn from the seed and the teacher's number. A part with one class makes a
    `ConstantTeacher`. With `folder`, finished teachers are kept there and reused by the next call; those made
    of something else (other rows, parameters, seed, versions) are refused, or trained anew with
    `on_mismatch="retrain"`. `n_jobs=None` starts processes where a loop would take long. `progress` is called
    with the number of finished teachers and of all.

    Before private rows are touched, the estimator is tried on `public` rows with made-up labels, or on rows
    that are made up, and refused if it fails there. After that nothing in the rows stops the training: a
    teacher that raises, takes more than `timeout` seconds or kills its process is tried again `retries`
    times, and then votes by the rule, as one without rows does. `Ensemble.troubles` says who.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.datasets import digits
    >>> from tellers.teachers.partition import partition
    >>> data = digits()
    >>> parts = partition(1000, 5, seed=7)
    >>> train_ensemble(DecisionTreeClassifier(), data.X[:1000], data.y[:1000], parts, n_classes=10, seed=7)
    Ensemble(n_teachers=5, n_classes=10)
    """
    require_count(2, n_classes=n_classes)
    rows = numeric_rows(X)
    labels = declared_labels(y, n_rows=len(rows), n_classes=int(n_classes))
    teachers = train_each(
        estimator, rows, labels, partition, made_for={"n_classes": int(n_classes)}, seed=seed, folder=folder,
        n_jobs=n_jobs, progress=progress, timeout=timeout, retries=retries, on_mismatch=on_mismatch,
        trusted=trusted, public=None if public is None else numeric_rows(public),
    )  # fmt: skip
    return Ensemble(teachers, int(n_classes))


def declared_labels(values: ArrayLike, *, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    """Return y as class ids, one for each row.

    >>> declared_labels([0, 1], n_rows=3, n_classes=2)
    Traceback (most recent call last):
        ...
    ValueError: Expected y with one class id for each of 3 rows, got shape (2,).
    """
    labels = np.asarray(values)
    if labels.shape != (n_rows,):
        raise ValueError(f"Expected y with one class id for each of {n_rows} rows, got shape {labels.shape}.")
    return class_ids(labels, n_classes=n_classes)


def known_troubles(teachers: Sequence[Any]) -> dict[int, str]:
    """Return which teachers vote by the rule, and why; private.

    >>> known_troubles([FallbackTeacher(0, 2, many=False, trouble="ValueError")])
    {0: 'ValueError'}
    """
    return {
        number: teacher.trouble
        for number, teacher in enumerate(teachers)
        if isinstance(teacher, FallbackTeacher)
    }
