"""What a fit may say of itself, in the shape in which a run writes it down."""

import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sklearn

from .. import __version__, noise
from ..card.labels import SCORES
from ..label_models import OneEach
from ..metrics import LabelMetrics
from ..release import SILENT, describe
from ._models import model_name


def public_result(fitted: Any, name: str, *, accuracy: float | None) -> dict[str, Any]:
    """Return the content of a `result.json`, as far as a fitted classifier knows it."""
    plan, personal = fitted.plan_, {}
    if plan is not None and not fitted.why_:
        rows = list(fitted.groups_)
        about = {"variant": plan.variant, "leave": fitted.exhausted_leave, "plan": list(plan.summary)}
        rounds = {"rounds": list(fitted.rounds_)} if fitted.rounds_ else {}
        personal = {"personal": {**about, "groups": rows, **rounds}}
    return {
        **_head(fitted, name, names={"class_names": [str(label) for label in fitted.classes_]}),
        **personal,
        "queries": {
            "n_asked": fitted.n_queries_ + fitted.released_.n_lost,
            "n_answered": fitted.released_.n_answered,
            "n_silent": fitted.n_queries_ - fitted.n_labels_,
            "n_by_student": fitted.n_labels_ - fitted.released_.n_answered,
            **_asking(fitted),
        },
        "student": {
            "kind": "supervised" if fitted.temperature is None else "distilled",
            "model": model_name(fitted.student_),
            "n_labels": fitted.n_labels_,
            "accuracy": accuracy,
        },
        **_made(),
    }


def public_label_result(
    fitted: Any, name: str, *, label_names: Sequence[str], measured: LabelMetrics | None
) -> dict[str, Any]:
    """Return the content of a `result.json`, as far as a fitted classifier of many labels knows it."""
    released, student = fitted.released_, fitted.student_
    told = released.labels != SILENT
    model = f"{model_name(student.estimator)}, one per label" if isinstance(student, OneEach) else ""
    scores = {} if measured is None else {name: getattr(measured, name, math.nan) for name in SCORES}
    head = _head(fitted, name, names={"class_names": ["no", "yes"], "label_names": list(label_names)})
    for parameter in ("groups", "negative", "positive"):
        # By name, where the mechanism knows numbers: the card is read without it.
        if parameter in head["mechanism"]:
            numbers = head["mechanism"][parameter]
            head["mechanism"][parameter] = [[label_names[at] for at in group] for group in numbers]
    return {
        **head,
        "queries": {
            "n_asked": fitted.n_queries_ + released.n_lost,
            "n_answered": released.n_answered,
            "n_silent": int((~told.any(axis=1)).sum()),
            "n_by_student": 0,
            **_asking(fitted),
        },
        "labels": [
            {
                "name": label_name,
                "n_yes": int((released.labels[:, at] == 1).sum()),
                "n_no": int((released.labels[:, at] == 0).sum()),
                "n_silent": int((~told[:, at]).sum()),
                "n_inferred": int((told & ~released.by_teachers)[:, at].sum()),
            }
            for at, label_name in enumerate(label_names)
        ],
        "student": {
            "kind": "supervised",
            "model": model or model_name(student),
            "n_labels": fitted.n_told_,
            "accuracy": None if measured is None else measured.accuracy,
            "scores": {name: value for name, value in scores.items() if not math.isnan(value)},
        },
        **_made(),
    }


def _head(fitted: Any, name: str, *, names: dict[str, list[str]]) -> dict[str, Any]:
    parameters = describe(fitted.mechanism_, noise.secure())["parameters"]
    budget = None if fitted.budget_ is None else fitted.budget_.epsilon
    return {
        "format": 1,
        "data": {
            "name": name,
            "n_private": fitted.n_private_,
            "n_public": fitted.n_public_,
            "n_test": 0,
            "n_features": fitted.n_features_in_,
            **names,
        },
        "partition": {
            "n_teachers": fitted.n_teachers_,
            "unit": fitted.unit_,
            "relation": fitted.relation_.as_dict(),
            "notes": list(fitted.notes_),
        },
        "mechanism": {"name": type(fitted.mechanism_).__name__, **parameters},
        "budget": {"epsilon": budget, "delta": fitted.delta_},
        "spent": {
            "epsilon": None if fitted.why_ else fitted.epsilon_,
            "delta": fitted.delta_,
            "charged": fitted.spent_.epsilon(fitted.delta_),
            "is_guarantee": not fitted.why_,
            "why": fitted.why_,
        },
    }


def _asking(fitted: Any) -> dict[str, Any]:
    return {
        "n_lost": fitted.released_.n_lost,
        "order": fitted.order,
        "stopped_by": fitted.stopped_by_,
    }


def _made() -> dict[str, Any]:
    return {
        "versions": {
            "tellers": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
