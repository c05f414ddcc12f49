"""The members of a collaboration: each with few rows of its own, and a model of those rows alone.

Members may know different labels. All labels that any of them knows are asked; a member says nothing about
a label that it does not know. Which labels those are is public: a member declares them, and nothing is read
off its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..label_models import OneEach, label_probabilities
from ..label_votes import LabelVotes
from ..metrics import measure
from ..release import SILENT
from ..students.base import fresh
from ..teachers import Ensemble, LabelEnsemble
from ..teachers.models import ConstantTeacher
from ..teachers.partition import partition
from ..votes import Votes

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Member:
    """A party: its private rows, what is true of them, and the model that it learned; none of that prints.

    `y` is a class per row, or rows x labels of 0 and 1, SILENT where nothing is known. `labels` are those, of
    many, that it declares to know, whatever is in its rows; all of them if left out.

    >>> Member("north", np.zeros((3, 2)), np.array([0, 1, 1]), model=None)
    Member(name='north', labels=None)
    """

    name: str
    X: NDArray[Any] = field(repr=False)
    y: Integers = field(repr=False)
    model: Any = field(repr=False)
    labels: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        if self.y.ndim != 2:
            raise ValueError("Expected no labels for rows with one class each, got some. Leave them out.")
        wrong = [label for label in self.labels if not 0 <= label < self.y.shape[1]]
        if wrong:
            raise ValueError(
                f"Expected labels of {self.name!r} from 0 to {self.y.shape[1] - 1}, got {wrong[0]}."
            )

    @property
    def knows(self) -> Mask:
        """Return which labels it has declared to know; for one class per row, nothing."""
        if self.y.ndim == 1:
            return np.empty(0, dtype=np.bool_)
        every = np.arange(self.y.shape[1])
        return np.isin(every, every if self.labels is None else self.labels)


def deal_members(
    X: ArrayLike,
    y: ArrayLike,
    n_parties: int,
    *,
    estimator: Any,
    seed: int,
    label_sets: Sequence[Sequence[int]] | None = None,
    prefix: str = "party",
) -> tuple[Member, ...]:
    """Deal rows to parties, as many to each, and let each party fit a copy of the estimator to its own.

    `label_sets` declares which labels each party knows; all of them if it is left out. What it does not know
    is taken from its rows before it learns.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows = np.random.default_rng(7).normal(size=(90, 2))
    >>> dealt = deal_members(rows, (rows[:, 0] > 0).astype(int), 3, estimator=LogisticRegression(), seed=7)
    >>> [(member.name, len(member.X)) for member in dealt]
    [('party-01', 30), ('party-02', 30), ('party-03', 30)]
    """
    require_count(2, n_parties=n_parties)
    rows, labels = np.asarray(X), np.asarray(y, dtype=np.int64)
    if label_sets is not None and (labels.ndim != 2 or len(label_sets) != n_parties):
        raise ValueError(
            f"Expected label_sets for rows with many labels, one for each of {n_parties} parties, got "
            f"{len(label_sets)} for y of shape {labels.shape}."
        )
    parts, width = partition(len(rows), n_parties, seed=seed), len(str(n_parties))
    members = []
    for number, part in enumerate(parts):
        own, declared = labels[part], None
        if label_sets is not None:
            declared = tuple(int(label) for label in label_sets[number])
            own = np.where(np.isin(np.arange(labels.shape[1]), declared), own, SILENT)
        name = f"{prefix}-{number + 1:0{max(2, width)}d}"
        model = fit_member(estimator, rows[part], own, seed=seed * 1000 + number)
        members.append(Member(name, rows[part], own, model, declared))
    return tuple(members)


def fit_member(estimator: Any, X: NDArray[Any], y: Integers, *, seed: int) -> Any:
    """Return a model of some rows: before a party asks, of its own; afterwards, of those and the answers.

    Rows met with silence teach nothing; of many labels, the label that was silent. Rows of one class make a
    model that says so.

    >>> from sklearn.linear_model import LogisticRegression
    >>> told = np.array([0, 1, SILENT])
    >>> fit_member(LogisticRegression(), np.array([[0.0], [1.0], [5.0]]), told, seed=7).predict([[0.9]])
    array([1])
    """
    if y.ndim == 2:
        return OneEach(fresh(estimator, seed=np.random.default_rng(seed))).fit(X, y)
    told = y != SILENT
    if np.unique(y[told]).size == 1:
        return ConstantTeacher(int(y[told][0]))
    return fresh(estimator, seed=np.random.default_rng(seed)).fit(X[told], y[told])


def member_votes(members: Sequence[Member], X: NDArray[Any], *, n_outputs: int) -> Votes | LabelVotes:
    """Return how members vote on rows: a class each, or yes and no to every label; private.

    A member abstains on labels that it does not know.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows = np.random.default_rng(7).normal(size=(90, 2))
    >>> dealt = deal_members(rows, (rows[:, 0] > 0).astype(int), 3, estimator=LogisticRegression(), seed=7)
    >>> member_votes(dealt, rows[:4], n_outputs=2)
    Votes(<private>, n_queries=4, n_teachers=3, n_classes=2)
    """
    models = tuple(member.model for member in members)
    if members[0].y.ndim == 1:
        return Ensemble(models, n_outputs).vote(X)
    votes = LabelEnsemble(models, n_outputs).vote(X)
    knows = np.array([member.knows for member in members])
    if knows.all():
        return votes
    assert votes.ballots is not None  # teachers make their votes of ballots
    return LabelVotes.from_ballots(votes.block(), n_labels=n_outputs, knows=knows)


def voters_of(members: Sequence[Member]) -> tuple[int, ...]:
    """Return how many of the members know each label; nothing where all know all, or rows have one class.

    >>> rows, labels = np.zeros((1, 1)), np.array([[0, 1]])
    >>> voters_of([Member("ann", rows, labels, None), Member("bea", rows, labels, None, labels=(0,))])
    (2, 1)
    """
    knows = np.array([member.knows for member in members])
    return () if knows.all() else tuple(int(n) for n in knows.sum(axis=0))


def score(model: Any, X: NDArray[Any], y: Integers) -> dict[str, float]:
    """Return how good a model is on rows: its accuracy, and of many labels also BAC, AUC and mAP.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows, labels = np.array([[0.0], [1.0], [2.0]]), np.array([0, 0, 1])
    >>> score(fit_member(LogisticRegression(C=100), rows, labels, seed=7), rows, labels)
    {'accuracy': 1.0}
    """
    if y.ndim == 1:
        return {"accuracy": float((np.asarray(model.predict(X)) == y).mean())}
    chances = label_probabilities(model, X)
    found = measure(y, (chances > 0.5).astype(np.int64), scores=chances)
    return {
        "accuracy": found.accuracy, "bac": found.balanced_accuracy, "auc": found.auc,
        "map": found.mean_average_precision,
    }  # fmt: skip


def choose_askers(
    members: Sequence[Member], n_askers: int, *, which: str, seed: int, X: NDArray[Any], y: Integers
) -> tuple[Member, ...]:
    """Return who asks: some at random, or the weakest by their score on public rows that judge nothing else.

    Whoever asks is seen to ask. That the weakest do tells that their rows taught them little: this is each
    asker's own to tell, and no epsilon covers it.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows = np.random.default_rng(7).normal(size=(90, 2))
    >>> labels = (rows[:, 0] > 0).astype(int)
    >>> dealt = deal_members(rows, labels, 5, estimator=LogisticRegression(), seed=7)
    >>> len(choose_askers(dealt, 2, which="weakest", seed=7, X=rows, y=labels))
    2
    """
    require_count(n_askers=n_askers)
    if n_askers > len(members):
        raise ValueError(f"Expected at most {len(members)} askers, one for each party, got {n_askers}.")
    if which == "random":
        chosen = np.sort(np.random.default_rng(seed).permutation(len(members))[:n_askers])
    elif which == "weakest":
        name = "accuracy" if members[0].y.ndim == 1 else "bac"
        chosen = np.argsort([score(m.model, X, y)[name] for m in members], kind="stable")[:n_askers]
    else:
        raise ValueError(f"Expected which to be random or weakest, got {which!r}.")
    return tuple(members[int(i)] for i in chosen)
