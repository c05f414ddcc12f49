"""The members of a collaboration, their rows and models, and the data they share out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...data._directory import data_directory
from ...data.annotations import read_mulan
from ...data.label_models import OneEach, label_probabilities
from ...data.metrics import measure
from ...data.named import DATASETS, load, made_multilabel
from ...errors import require_count
from ...privacy.release import SILENT
from ...privacy.votes import AnswerSpace, OneOf, SetOf, Votes
from ...students.fitting import fresh
from ...teachers.ensemble import Ensemble
from ...teachers.models import ConstantTeacher
from ...teachers.partitions import partition
from .._ring import Integers

# Members may know different labels. All labels that any of them knows are asked; a member says nothing about
# a label that it does not know. Which labels those are is public: a member declares them, and nothing is read
# off its rows.


@dataclass(frozen=True, eq=False)
class Member:
    """A party: its private rows, what is true of them, and the model that it learned; none of that prints.

    `y` is a class per row, or rows x labels of 0 and 1, SILENT where nothing is known. `labels` are those, of
    many, that it declares to know, whatever is in its rows; all of them if left out.
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
    def knows(self) -> NDArray[np.bool_]:
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
    """
    if y.ndim == 2:
        return OneEach(fresh(estimator, seed=np.random.default_rng(seed))).fit(X, y)
    told = y != SILENT
    if np.unique(y[told]).size == 1:
        return ConstantTeacher(int(y[told][0]))
    return fresh(estimator, seed=np.random.default_rng(seed)).fit(X[told], y[told])


def member_votes(members: Sequence[Member], X: NDArray[Any], *, n_outputs: int) -> Votes:
    """Return how members vote on rows: a class each, or yes and no to every label; private.

    A member abstains on labels that it does not know.
    """
    space: AnswerSpace = OneOf(n_outputs) if members[0].y.ndim == 1 else SetOf(n_outputs)
    votes = Ensemble(tuple(member.model for member in members), space=space).vote(X)
    knows = np.array([member.knows for member in members])
    return votes if knows.all() else Votes.from_ballots(votes.block(), space, knows=knows)


def known_by(member: Member) -> tuple[int, ...]:
    """Return the labels that a member pays for: those that it knows; for one class per row, nothing."""
    return tuple(np.flatnonzero(member.knows).tolist())


def voters_of(members: Sequence[Member]) -> tuple[int, ...]:
    """Return how many of the members know each label; nothing where all know all, or rows have one class."""
    knows = np.array([member.knows for member in members])
    return () if knows.all() else tuple(int(n) for n in knows.sum(axis=0))


def score(model: Any, X: NDArray[Any], y: Integers) -> dict[str, float]:
    """Return how good a model is on rows: its accuracy, and of many labels also BAC, AUC and mAP."""
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


# --- Data ---

LABEL_SETS = ("birds", "emotions", "scene", "tmc2007-500", "yeast")
"""Published data sets of many labels that come in two parts, by the names of their files."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Material:
    """Rows in four disjoint parts: private ones, a public pool, public ones to choose by, and a test."""

    name: str
    n_outputs: int
    X: NDArray[Any]
    y: Integers
    X_pool: NDArray[Any]
    y_pool: Integers
    X_choice: NDArray[Any]
    y_choice: Integers
    X_test: NDArray[Any]
    y_test: Integers

    @property
    def is_multilabel(self) -> bool:
        return self.y.ndim == 2

    def __repr__(self) -> str:
        parts = {"private": self.y, "pool": self.y_pool, "choice": self.y_choice, "test": self.y_test}
        sizes = ", ".join(f"n_{name}={len(part)}" for name, part in parts.items())
        return f"Material({self.name!r}, {sizes}, n_outputs={self.n_outputs})"


def divide(
    name: str,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_outputs: int,
    seed: int,
    rest: tuple[ArrayLike, ArrayLike] | None = None,
    n_private: int | None = None,
    n_pool: int | None = None,
) -> Material:
    """Divide rows: private ones, a quarter to ask about, the rest to choose by (a third) and to judge.

    `rest` are rows that were published apart, of which all but the private ones are taken; without it half
    of the rows are private.
    """
    rows, labels = np.asarray(X), np.asarray(y, dtype=np.int64)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(rows))
    if rest is None:
        n_private = len(rows) // 2 if n_private is None else n_private
        n_pool = len(rows) // 4 if n_pool is None else n_pool
        _require_rows(name, len(rows), n_private + n_pool + 2)
        public, others = order[n_private:], (rows, labels)
    else:
        others = (np.asarray(rest[0]), np.asarray(rest[1], dtype=np.int64))
        n_private = len(rows) if n_private is None else n_private
        n_pool = len(others[0]) // 2 if n_pool is None else n_pool
        _require_rows(name, len(rows), n_private)
        _require_rows(name, len(others[0]), n_pool + 2)
        public = generator.permutation(len(others[0]))
    require_count(n_private=n_private, n_pool=n_pool)
    private, pool, left = order[:n_private], public[:n_pool], public[n_pool:]
    choice, test = left[: max(1, len(left) // 3)], left[max(1, len(left) // 3) :]
    return Material(
        name=name, n_outputs=n_outputs, X=rows[private], y=labels[private],
        X_pool=others[0][pool], y_pool=others[1][pool], X_choice=others[0][choice],
        y_choice=others[1][choice], X_test=others[0][test], y_test=others[1][test],
    )  # fmt: skip


def read_material(
    name: str,
    *,
    seed: int,
    data_dir: str | PathLike[str] | None = None,
    n_private: int | None = None,
    n_pool: int | None = None,
) -> Material:
    """Read a data set by its name and divide it: one class per row, or many labels.

    `made` is a generated set of ten labels that needs no file.

    >>> read_material("digits", seed=7, n_private=1000, n_pool=300)
    Material('digits', n_private=1000, n_pool=300, n_choice=165, n_test=332, n_outputs=10)
    >>> read_material("digit", seed=7)
    Traceback (most recent call last):
        ...
    ValueError: Expected a data set: adult, ..., or of many labels: made, birds, ..., got 'digit'.
    """
    how = {"seed": seed, "n_private": n_private, "n_pool": n_pool}
    if name == "made":
        table = made_multilabel([f"label {i}" for i in range(10)], n_rows=6000, seed=7)
        return divide(name, table.X, table.y, n_outputs=10, **how)  # type: ignore[arg-type]
    if name in LABEL_SETS:
        folder = data_directory(data_dir) / "multilabel"
        train, test = (
            read_mulan(folder / f"{name}-{part}.arff.xz", folder / f"{name}.xml")
            for part in ("train", "test")
        )
        X, X_rest = train.X, test.X
        if not np.isin(X_rest, (0, 1)).all():
            # Scales of the private rows would be private; those of the public part are as good.
            mean, scale = X_rest.mean(axis=0), X_rest.std(axis=0) + 1e-9
            X, X_rest = (X - mean) / scale, (X_rest - mean) / scale
        n_labels, rest = train.n_labels, (X_rest, test.y)
        return divide(name, X, train.y, n_outputs=n_labels, rest=rest, **how)  # type: ignore[arg-type]
    classes = [known for known in DATASETS if known != "synthetic"]
    if name not in classes:
        raise ValueError(
            f"Expected a data set: {', '.join(classes)}, or of many labels: made, {', '.join(LABEL_SETS)}, "
            f"got {name!r}."
        )
    data = load(name, data_dir=data_dir)
    return divide(name, data.X, data.y, n_outputs=data.n_classes, **how)  # type: ignore[arg-type]


def _require_rows(name: str, there: int, wanted: int) -> None:
    if there < wanted:
        raise ValueError(
            f"Expected at least {wanted} rows in {name!r} for its private part, pools and test, got {there}. "
            "Take fewer parties, or fewer rows for each of them."
        )
