"""How a teacher votes that could not learn: by a rule that looks at public things alone.

Whether a teacher has rows, whether `fit` ends on them and whether `predict` answers depend on private rows.
So none of it stops a run, nor is it told to anybody but the operator: every teacher votes. One that could not
learn names the class of number (its own number + a hash of the question) modulo the number of classes, which
spreads such votes evenly; of many labels it says no to each. What went wrong is a kind of error, kept sealed.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_ROWS = "it has no rows"


@dataclass(frozen=True)
class FallbackTeacher:
    """A teacher that could not learn: it votes by the rule, and remembers why.

    `n_outputs` counts classes, or labels where `many`.

    Guarantee: its votes are a function of its number, the question and the number of classes alone.
    Assumes:   questions are public.
    Reference: none; any public rule keeps one changed unit to one row of ballots.

    >>> FallbackTeacher(3, 4, many=False, trouble="ValueError").predict([[0.5], [0.7], [0.5]])
    array([3, 0, 3])
    >>> FallbackTeacher(3, 2, many=True, trouble="ValueError").predict([[0.5]])
    array([[0, 0]])
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
    """Return the teacher that votes by the rule, for what its manifest says that teachers answer.

    >>> fallback_teacher(3, {"n_labels": 2}, NO_ROWS)
    FallbackTeacher(number=3, n_outputs=2, many=True, trouble='it has no rows')
    """
    many = "n_labels" in made_for
    return FallbackTeacher(number, int(made_for["n_labels" if many else "n_classes"]), many, trouble)


@dataclass(frozen=True, eq=False)
class Rule:
    """The rule for some questions of one class each; it does not depend on their order or number.

    >>> rule = Rule(np.array([[0.5], [0.7]]), n_classes=4)
    >>> rule.ballot(3), rule.ballot(4), Rule(np.float32([[0.5]]), n_classes=4).ballot(3)
    (array([3, 0]), array([0, 1]), array([3]))
    """

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


@contextmanager
def unheard() -> Iterator[None]:
    """Keep to itself what a model warns of: it may speak of its rows, and would come from some rows alone.

    >>> with unheard():
    ...     warnings.warn("the least populated class has 1 member", stacklevel=1)
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
