"""Ballots: what teachers answer, checked, and how a teacher votes that could not learn."""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.label_models import OneEach, label_probabilities, takes_labels
from ..data.metrics import measure
from ..errors import MissingExtra
from ..privacy._rows import class_ids, label_table
from ..privacy.sealed import unheard
from ..privacy.votes import AnswerSpace, OneOf, Scores, SetOf, Votes
from .models import ConstantLabels, ConstantTeacher

Floats = NDArray[np.float64]
Thresholds = float | tuple[float, ...]
Fallback = Callable[[int], NDArray[Any]]

NO_ROWS = "it has no rows"
OTHER_ANSWERS = "it answered something other than was declared"


# --- What teachers answer: a declared class, or a probability of every label, for each question. ---
#
# An answer space says what votes are. Here is what teachers of a space learn and say; all kinds answer the
# same questions, so that training, voting and loading are written once.


@dataclass(frozen=True)
class ClassBallots:
    """Every teacher names one class of a `OneOf`."""

    space: AnswerSpace

    def targets(self, y: ArrayLike, *, n_rows: int) -> NDArray[np.int64]:
        """Return y as class ids, one for each row."""
        labels = np.asarray(y)
        if labels.shape != (n_rows,):
            raise ValueError(
                f"Expected y with one class id for each of {n_rows} rows, got shape {labels.shape}."
            )
        return class_ids(labels, n_classes=self.space.n_answers)

    def made_up(self, n_rows: int) -> NDArray[np.int64]:
        """Return answers for rows that are nobody's."""
        return np.arange(n_rows) % self.space.n_answers

    def model(self, estimator: Any) -> Any:
        """Return the estimator that learns such answers."""
        return estimator

    def constant(self, answer: Any) -> ConstantTeacher:
        """Return the teacher of a part whose rows all have one answer."""
        return ConstantTeacher(int(answer))

    def blank(self, n_teachers: int, n_queries: int) -> NDArray[np.int64]:
        """Return a table for what so many teachers say to so many queries."""
        return np.empty((n_teachers, n_queries), dtype=np.int64)

    def ask(self, teacher: Any, queries: NDArray[Any]) -> NDArray[np.int64]:
        """Return a teacher's class for each query, refusing what is no declared class."""
        ballot, n_classes = np.asarray(teacher.predict(queries)), self.space.n_answers
        whole = ballot.dtype.kind in "iu" or (
            ballot.dtype.kind == "f" and bool((ballot == np.floor(ballot)).all())
        )
        if ballot.shape != (len(queries),) or not whole or ((ballot < 0) | (ballot >= n_classes)).any():
            raise ValueError(
                f"Expected a class id in 0..{n_classes - 1} for each of {len(queries)} queries, got "
                f"{ballot.dtype} of shape {ballot.shape}. Let predict return the classes that fit was given."
            )
        return ballot.astype(np.int64)

    def fallback(self, queries: NDArray[Any]) -> Fallback:
        """Return the rule: the class that a teacher of some number names for each question by itself."""
        n_classes = self.space.n_answers

        @cache  # most votes need no rule
        def codes() -> NDArray[np.int64]:
            return np.array([_hash(question) % n_classes for question in queries], dtype=np.int64)

        return lambda number: (codes() + number) % n_classes

    def votes(self, said: NDArray[Any]) -> Votes:
        """Return the votes of what teachers say, teachers x queries, or of what `whole` made."""
        return Votes.from_ballots(said, self.space)

    def whole(self, said: NDArray[Any]) -> NDArray[Any]:
        """Return what teachers say in the smallest whole numbers, as it travels."""
        return said.astype(np.min_scalar_type(self.space.n_answers - 1))

    def accuracies(self, votes: Votes, truth: NDArray[np.int64]) -> Floats:
        """Return each teacher's share of right answers."""
        return np.asarray((votes.block() == truth).mean(axis=1), dtype=np.float64)


@dataclass(frozen=True)
class LabelBallots:
    """Every teacher says how likely each label of a `SetOf` is: yes where that reaches the label's threshold.

    With a resolution above 1 the votes are the probabilities themselves, in such parts.
    """

    space: AnswerSpace
    thresholds: Thresholds = 0.5

    def __post_init__(self) -> None:
        limits = check_thresholds(self.thresholds, n_labels=self.space.n_answers)
        object.__setattr__(self, "thresholds", limits)

    @property
    def resolution(self) -> int:
        return int(self.space.most(1))

    def targets(self, y: ArrayLike, *, n_rows: int) -> NDArray[np.int64]:
        """Return Y as rows x labels of 0 and 1."""
        return label_table(y, n_rows=n_rows, n_labels=self.space.n_answers)

    def made_up(self, n_rows: int) -> NDArray[np.int64]:
        """Return answers for rows that are nobody's: yes and no to every label, in many combinations."""
        targets = np.random.default_rng(7).integers(0, 2, size=(n_rows, self.space.n_answers))
        targets[0], targets[1] = 0, 1
        return targets

    def model(self, estimator: Any) -> Any:
        """Return the estimator if it takes many labels by itself, else one copy of it for each of them."""
        # One label is one column, which scikit-learn would take for classes.
        if not callable(getattr(estimator, "fit", None)):
            return estimator
        return estimator if self.space.n_answers > 1 and takes_labels(estimator) else OneEach(estimator)

    def constant(self, answer: Any) -> ConstantLabels:
        return ConstantLabels(tuple(int(label) for label in answer))

    def blank(self, n_teachers: int, n_queries: int) -> Floats:
        return np.empty((n_teachers, n_queries, self.space.n_answers))

    def ask(self, teacher: Any, queries: NDArray[Any]) -> Floats:
        """Return a teacher's probability of each label for each query, refusing what is none."""
        said, n_labels = label_probabilities(teacher, queries), self.space.n_answers
        if said.shape != (len(queries), n_labels) or not ((said >= 0) & (said <= 1)).all():
            raise ValueError(
                f"Expected probabilities in [0, 1] of {n_labels} labels for each of {len(queries)} queries, "
                f"got shape {said.shape} or others. Let predict_proba or predict return those."
            )
        return said

    def fallback(self, queries: NDArray[Any]) -> Fallback:
        """Return the rule for some questions: no to every label."""
        return lambda _number: np.zeros((len(queries), self.space.n_answers))

    def votes(self, said: NDArray[Any]) -> Votes:
        """Return the votes of what teachers say, teachers x queries x labels, or of what `whole` made."""
        if said.dtype.kind in "iu":
            said = said / self.resolution
        return Votes.from_ballots(said if self.resolution > 1 else said >= self.thresholds, self.space)

    def whole(self, said: NDArray[Any]) -> NDArray[Any]:
        return self.votes(said).block().astype(np.min_scalar_type(self.resolution))

    def accuracies(self, votes: Votes, truth: NDArray[np.int64]) -> Floats:
        """Return each teacher's share of right answers, over rows and labels."""
        said = (votes.block() * 2 >= self.resolution).astype(np.int64)
        return np.array([measure(truth, one).accuracy for one in said])


@dataclass(frozen=True)
class ScoreBallots:
    """Every teacher scores each column for the whole pool, and its answer is bounded as a whole, by `Scores`.

    Teachers learn what those of classes or of labels do. The score is the probability where a teacher has
    one, else its decision function, else what it predicts; any finite numbers will do.
    """

    space: Scores
    learned: ClassBallots | LabelBallots

    def targets(self, y: ArrayLike, *, n_rows: int) -> NDArray[np.int64]:
        return self.learned.targets(y, n_rows=n_rows)

    def made_up(self, n_rows: int) -> NDArray[np.int64]:
        return self.learned.made_up(n_rows)

    def model(self, estimator: Any) -> Any:
        # A regressor takes many columns as they are, and its predictions are scores.
        if self.space.one_class or _is_regressor(estimator):
            return estimator
        return self.learned.model(estimator)

    def constant(self, answer: Any) -> Any:
        return self.learned.constant(answer)

    def blank(self, n_teachers: int, n_queries: int) -> NDArray[np.int32]:
        """Return a table for the ballots of so many teachers, in steps."""
        return np.empty((n_teachers, *self._shape(n_queries)), dtype=np.int32)

    def ask(self, teacher: Any, queries: NDArray[Any]) -> NDArray[np.int32]:
        """Return a teacher's ballot on the grid, refusing what are no scores of all columns."""
        space = self.space
        if space.directions is not None and len(queries) != len(space.directions):
            # A teacher on trial answers made-up rows; votes on another pool have no table to go into.
            space = replace(space, directions=None)
        return space.on_grid(_scores_of(teacher, queries, space))

    def fallback(self, queries: NDArray[Any]) -> Fallback:
        """Return the rule: zeros, which add nothing."""
        return lambda _number: np.zeros(self._shape(len(queries)), dtype=np.int32)

    def votes(self, said: NDArray[Any]) -> Votes:
        """Return the votes of ballots on the grid; the ballots are added up and not kept."""
        totals = said.sum(axis=0, dtype=np.int64)
        return Votes.from_totals(totals, self.space, n_teachers=len(said))

    def whole(self, said: NDArray[Any]) -> NDArray[Any]:
        return said

    def accuracies(self, votes: Votes, truth: NDArray[np.int64]) -> Floats:
        raise ValueError(
            "Expected teachers that answer with classes or labels to measure, got scores of the whole pool. "
            "Measure the same teachers over OneOf or SetOf."
        )

    def _shape(self, n_queries: int) -> tuple[int, int]:
        directions = self.space.directions
        if directions is None:
            return n_queries, self.space.n_columns
        if n_queries != len(directions):
            raise ValueError(
                f"Expected the pool of {len(directions)} queries that the directions belong to, got "
                f"{n_queries}. Scores are asked for the whole pool at once."
            )
        return directions.shape[1], self.space.n_columns


def _is_regressor(estimator: Any) -> bool:
    try:
        from sklearn.base import is_regressor

        return bool(is_regressor(estimator))
    except Exception:  # no estimator of scikit-learn's
        return False


def _scores_of(teacher: Any, queries: NDArray[Any], space: Scores) -> NDArray[np.float64]:
    """Return a teacher's scores, queries x columns."""
    n, k = len(queries), space.n_columns
    if space.one_class:
        classes = np.asarray(getattr(teacher, "classes_", np.arange(k)))
        if hasattr(teacher, "predict_proba"):
            said = np.asarray(teacher.predict_proba(queries), dtype=np.float64)
        elif hasattr(teacher, "decision_function"):
            said = np.asarray(teacher.decision_function(queries), dtype=np.float64)
            said = np.stack([-said, said], axis=1) if said.ndim == 1 else said
        else:
            said = np.asarray(teacher.predict(queries))
            if said.ndim == 1:  # a class each
                return np.asarray(np.eye(k)[said.astype(np.int64)])
            classes = np.arange(k)
        table = np.zeros((n, k))
        table[:, classes.astype(np.int64)] = said
        return table
    if hasattr(teacher, "predict_proba"):
        return label_probabilities(teacher, queries)
    ask = teacher.decision_function if hasattr(teacher, "decision_function") else teacher.predict
    return np.asarray(ask(queries), dtype=np.float64).reshape(n, -1)


Ballots = ClassBallots | LabelBallots | ScoreBallots


def ballots_of(
    space: AnswerSpace | None = None,
    *,
    n_classes: int | None = None,
    thresholds: float | Sequence[float] = 0.5,
) -> Ballots:
    """Return what teachers of an answer space say; `n_classes` is short for one of so many classes."""
    if (space is None) == (n_classes is None):
        raise TypeError("Expected n_classes, or the space of answers, OneOf(...) or SetOf(...).")
    if space is None:
        space = OneOf(cast(int, n_classes))
    if space.kind == OneOf.kind:
        return ClassBallots(space)
    if space.kind == SetOf.kind:
        return LabelBallots(space, cast(Thresholds, thresholds))
    if isinstance(space, Scores):
        learned = OneOf(space.n_columns) if space.one_class else SetOf(space.n_columns)
        return ScoreBallots(space, cast(ClassBallots | LabelBallots, ballots_of(learned)))
    raise ValueError(f"Expected answers that teachers can learn, classes or labels, got {space.kind}.")


def require_by_query(space: AnswerSpace | None, what: str) -> None:
    """Refuse scores of a whole pool where teachers answer query by query, or some queries at a time."""
    if space is not None and not space.by_query:
        raise ValueError(
            f"Expected answers by the query for {what}, OneOf or SetOf, got {space.kind} of a whole pool. "
            "Those are for models with fit and predict, trained here by train_ensemble."
        )


def made_for(space: AnswerSpace) -> dict[str, int]:
    """Return what the teachers of a space answer, as their manifests say it."""
    if isinstance(space, Scores):
        return {"n_classes" if space.one_class else "n_labels": space.n_columns}
    return {f"n_{space.kind}": space.n_answers}


def _hash(question: Any) -> int:
    # As float64, and 0.0 for -0.0: the same numbers are the same question in every precision.
    content = (np.asarray(question, dtype="<f8") + 0.0).tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def check_thresholds(thresholds: float | Sequence[float], *, n_labels: int) -> Thresholds:
    """Return thresholds as plain numbers, one for all labels or one each, refusing what is no probability."""
    limits = np.asarray(thresholds, dtype=np.float64)
    if limits.shape not in ((), (n_labels,)) or not ((limits > 0) & (limits <= 1)).all():
        raise ValueError(
            f"Expected one threshold above 0 and up to 1, or one per label ({n_labels}), got shape "
            f"{limits.shape} or a value outside."
        )
    return float(limits) if limits.ndim == 0 else tuple(float(limit) for limit in limits)


# --- How a teacher votes that could not learn: by a rule that looks at public things alone. ---
#
# Whether a teacher has rows, whether `fit` ends on them and whether `predict` answers depend on private
# rows. So none of it stops a run, nor is it told to anybody but the operator: every teacher votes. One that
# could not learn names the class of number (its own number + a hash of the question) modulo the number of
# classes, which spreads such votes evenly; of many labels it says no to each. What went wrong is a kind of
# error, kept sealed.


@dataclass(frozen=True)
class FallbackTeacher:
    """A teacher that could not learn: it votes by the rule, and remembers why.

    `n_outputs` counts classes, or labels where `many`.

    Guarantee: its votes are a function of its number, the question and the number of classes alone.
    Assumes:   questions are public.
    Reference: none; any public rule keeps one changed unit to one row of ballots.
    """

    number: int
    n_outputs: int
    many: bool
    trouble: str

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the class, or the labels, that the rule gives for every row."""
        space = SetOf(self.n_outputs) if self.many else OneOf(self.n_outputs)
        return ballots_of(space).fallback(np.asarray(X))(self.number).astype(np.int64)


def fallback_teacher(number: int, ballots: Ballots, trouble: str) -> FallbackTeacher:
    """Return the teacher that votes by the rule."""
    space = ballots.learned.space if isinstance(ballots, ScoreBallots) else ballots.space
    return FallbackTeacher(number, space.n_answers, space.kind == SetOf.kind, trouble)


def known_troubles(teachers: Mapping[int, Any]) -> dict[int, str]:
    """Return which teachers vote by the rule, and why; private."""
    return {
        number: teacher.trouble
        for number, teacher in teachers.items()
        if isinstance(teacher, FallbackTeacher)
    }


def ask_teachers(
    teachers: Mapping[int, Any], queries: NDArray[Any], ballots: Ballots
) -> tuple[NDArray[Any], dict[int, str]]:
    """Return what every teacher says, whatever it does, and who answers by the rule and why."""
    rule, troubles = ballots.fallback(queries), known_troubles(teachers)
    said = ballots.blank(len(teachers), len(queries))
    with one_thread():
        for place, (number, teacher) in enumerate(teachers.items()):
            try:
                if number not in troubles:
                    with unheard():
                        said[place] = ballots.ask(teacher, queries)
            except MissingExtra:
                raise
            except (Exception, SystemExit) as error:
                # Looked at in errors of ours alone: what others say may be anything, an error too.
                ours = isinstance(error, ValueError) and str(error).startswith(
                    ("Expected a class id", "Expected probabilities in", "Expected finite scores")
                )
                troubles[number] = OTHER_ANSWERS if ours else type(error).__name__
            if number in troubles:
                said[place] = rule(number)
    return said, troubles


def one_thread() -> AbstractContextManager[Any]:
    """Let numerical libraries use one thread while it is entered.

    To look for them takes milliseconds: it is done again only where modules were imported since.
    """
    limiter: AbstractContextManager[Any] = _thread_pools(len(sys.modules)).limit(limits=1)
    return limiter


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
