"""Which students go with which settings: models made for unlabelled rows, and those that are not."""

from collections.abc import Iterator
from typing import Any

from ..catalogue import SEMI_SUPERVISED
from .problems import Problem

_MANY = "multilabel_mixmatch"
_KIND, _MODEL = ("student", "kind"), ("student", "model")


def student_rules(run: Any) -> Iterator[Problem]:
    """Return what is wrong with the kind of a student, its model, and what else a run says.

    >>> from tellers.config import RunConfig
    >>> list(student_rules(RunConfig()))
    []
    """
    student = run.student
    made_for_it = student.model in SEMI_SUPERVISED
    own = ":" in student.model
    if run.teachers.model in SEMI_SUPERVISED:
        yield Problem(
            ("teachers", "model"),
            f'Expected a model that learns from labels alone, got "{run.teachers.model}", which is for '
            "students: teachers have no unlabelled rows.",
        )
    if student.kind == "semi_supervised" and not (made_for_it or own):
        yield Problem(
            _MODEL,
            f'Expected one of {", ".join(SEMI_SUPERVISED)} with kind = "semi_supervised", got '
            f'"{student.model}". Any other model can teach itself: kind = "self_taught".',
            (_KIND,),
        )
    if made_for_it and student.kind != "semi_supervised":
        yield Problem(
            _KIND,
            f'Expected "semi_supervised" for the model "{student.model}", got "{student.kind}".',
            (_MODEL,),
        )
    if made_for_it and (student.model == _MANY) != bool(run.labels.names):
        wanted = f'"{_MANY}" for many labels' if run.labels.names else "another model for one class"
        yield Problem(_MODEL, f'Expected {wanted} per row, got "{student.model}".', (("labels", "names"),))
    if student.kind == "semi_supervised":
        for key, value, refused in (
            (("queries", "order"), run.queries.order, "active"),
            (("mechanism", "name"), run.mechanism.name, "interactive"),
        ):
            if value == refused:
                yield Problem(
                    _KIND,
                    f'Expected "supervised" or "self_taught" with {key[1]} = "{value}" in [{key[0]}], where '
                    'the student is taught anew in every round, got "semi_supervised".',
                    (key,),
                )
