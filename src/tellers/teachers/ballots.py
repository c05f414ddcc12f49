"""What one teacher answers, checked: a declared class, or a probability of every label, for each question."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra
from ..label_models import label_probabilities
from .fallback import FallbackTeacher, Rule, unheard

OTHER_ANSWERS = "it answered something other than was declared"


def ask_class(teacher: Any, queries: NDArray[Any], *, n_classes: int) -> NDArray[np.int64]:
    """Return a teacher's class for each query, refusing what is no declared class.

    >>> from tellers.teachers.models import ConstantTeacher
    >>> ask_class(ConstantTeacher(3), np.zeros((2, 1)), n_classes=3)
    Traceback (most recent call last):
        ...
    ValueError: Expected a class id in 0..2 for each of 2 queries, got int64 of shape (2,). ...
    """
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
    """Return a teacher's probability of each label for each query, refusing what is none.

    >>> from tellers.teachers.models import ConstantLabels
    >>> ask_labels(ConstantLabels((0, 1)), np.zeros((2, 1)), n_labels=3)
    Traceback (most recent call last):
        ...
    ValueError: Expected probabilities in [0, 1] of 3 labels for each of 2 queries, got shape (2, 2) ...
    """
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
    """Return a teacher's ballot, or that of the rule and why: nothing that a teacher does stops a vote.

    >>> from tellers.teachers.models import ConstantTeacher
    >>> queries = np.array([[0.5], [0.7]])
    >>> class_ballot(ConstantTeacher(3), queries, number=0, rule=Rule(queries, n_classes=4))
    (array([3, 3]), None)
    >>> class_ballot(ConstantTeacher(4), queries, number=3, rule=Rule(queries, n_classes=4))
    (array([3, 0]), 'it answered something other than was declared')
    """
    if isinstance(teacher, FallbackTeacher):
        return rule.ballot(number), teacher.trouble
    ballot, trouble = _tried(lambda: ask_class(teacher, queries, n_classes=rule.n_classes))
    return (rule.ballot(number) if ballot is None else ballot), trouble


def label_ballot(
    teacher: Any, queries: NDArray[Any], *, n_labels: int
) -> tuple[NDArray[np.float64], str | None]:
    """Return a teacher's probabilities, or no to every label and why; see `class_ballot`.

    >>> from tellers.teachers.models import ConstantLabels
    >>> label_ballot(ConstantLabels((0, 2)), np.zeros((1, 1)), n_labels=2)
    (array([[0., 0.]]), 'it answered something other than was declared')
    """
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
