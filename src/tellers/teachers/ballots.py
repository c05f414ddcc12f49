"""Ballots: what one teacher answers, checked, and how a teacher votes that could not learn."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.label_models import label_probabilities
from ..errors import MissingExtra
from ..privacy.sealed import unheard

# --- How a teacher votes that could not learn: by a rule that looks at public things alone. ---
#
# Whether a teacher has rows, whether `fit` ends on them and whether `predict` answers depend on private
# rows. So none of it stops a run, nor is it told to anybody but the operator: every teacher votes. One that
# could not learn names the class of number (its own number + a hash of the question) modulo the number of
# classes, which spreads such votes evenly; of many labels it says no to each. What went wrong is a kind of
# error, kept sealed.


NO_ROWS = "it has no rows"


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
        if self.many:
            return np.zeros((len(X), self.n_outputs), dtype=np.int64)
        return Rule(np.asarray(X), self.n_outputs).ballot(self.number)


def fallback_teacher(number: int, made_for: Mapping[str, int], trouble: str) -> FallbackTeacher:
    """Return the teacher that votes by the rule, for what its manifest says that teachers answer."""
    many = "n_labels" in made_for
    return FallbackTeacher(number, int(made_for["n_labels" if many else "n_classes"]), many, trouble)


@dataclass(frozen=True, eq=False)
class Rule:
    """The rule for some questions of one class each; it does not depend on their order or number."""

    questions: NDArray[Any]
    n_classes: int

    def ballot(self, number: int) -> NDArray[np.int64]:
        """Return the class that a teacher of some number names for each question."""
        return (self._codes + number) % self.n_classes

    @cached_property
    def _codes(self) -> NDArray[np.int64]:
        codes = np.empty(len(self.questions), dtype=np.int64)
        for row, question in enumerate(self.questions):
            # As float64, and 0.0 for -0.0: the same numbers are the same question in every precision.
            content = (np.asarray(question, dtype="<f8") + 0.0).tobytes()
            digest = hashlib.blake2b(content, digest_size=8).digest()
            codes[row] = int.from_bytes(digest, "little") % self.n_classes
        return codes


# --- What one teacher answers, checked: a declared class, or a probability of every label, for each question.


OTHER_ANSWERS = "it answered something other than was declared"


def ask_class(teacher: Any, queries: NDArray[Any], *, n_classes: int) -> NDArray[np.int64]:
    """Return a teacher's class for each query, refusing what is no declared class."""
    ballot = np.asarray(teacher.predict(queries))
    whole = ballot.dtype.kind in "iu" or (
        ballot.dtype.kind == "f" and bool((ballot == np.floor(ballot)).all())
    )
    if ballot.shape != (len(queries),) or not whole or ((ballot < 0) | (ballot >= n_classes)).any():
        raise ValueError(
            f"Expected a class id in 0..{n_classes - 1} for each of {len(queries)} queries, got "
            f"{ballot.dtype} of shape {ballot.shape}. Let predict return the classes that fit was given."
        )
    return ballot.astype(np.int64)


def ask_labels(teacher: Any, queries: NDArray[Any], *, n_labels: int) -> NDArray[np.float64]:
    """Return a teacher's probability of each label for each query, refusing what is none."""
    said = label_probabilities(teacher, queries)
    if said.shape != (len(queries), n_labels) or not ((said >= 0) & (said <= 1)).all():
        raise ValueError(
            f"Expected probabilities in [0, 1] of {n_labels} labels for each of {len(queries)} queries, got "
            f"shape {said.shape} or others. Let predict_proba or predict return those."
        )
    return said


def class_ballot(
    teacher: Any, queries: NDArray[Any], *, number: int, rule: Rule
) -> tuple[NDArray[np.int64], str | None]:
    """Return a teacher's ballot, or that of the rule and why: nothing that a teacher does stops a vote."""
    if isinstance(teacher, FallbackTeacher):
        return rule.ballot(number), teacher.trouble
    ballot, trouble = _tried(lambda: ask_class(teacher, queries, n_classes=rule.n_classes))
    return (rule.ballot(number) if ballot is None else ballot), trouble


def label_ballot(
    teacher: Any, queries: NDArray[Any], *, n_labels: int
) -> tuple[NDArray[np.float64], str | None]:
    """Return a teacher's probabilities, or no to every label and why; see `class_ballot`."""
    nothing = np.zeros((len(queries), n_labels))
    if isinstance(teacher, FallbackTeacher):
        return nothing, teacher.trouble
    said, trouble = _tried(lambda: ask_labels(teacher, queries, n_labels=n_labels))
    return (nothing if said is None else said), trouble


def _tried(ask: Callable[[], NDArray[Any]]) -> tuple[NDArray[Any] | None, str | None]:
    try:
        with unheard():
            return ask(), None
    except MissingExtra:
        raise
    except ValueError as error:
        ours = str(error).startswith(("Expected a class id", "Expected probabilities in"))
        return None, OTHER_ANSWERS if ours else "ValueError"
    except (Exception, SystemExit) as error:
        return None, type(error).__name__
