"""What a fit may say of itself, in the shape in which a run writes it down."""

import platform
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sklearn

from .. import __version__, noise
from ..release import describe
from ._models import model_name


def public_result(fitted: Any, name: str, *, accuracy: float | None) -> dict[str, Any]:
    """Return the content of a `result.json`, as far as a fitted classifier knows it."""
    parameters = describe(fitted.mechanism_, noise.secure())["parameters"]
    budget = None if fitted.budget_ is None else fitted.budget_.epsilon
    plan, personal = fitted.plan_, {}
    if plan is not None and not fitted.why_:
        rows = list(fitted.groups_)
        about = {"variant": plan.variant, "leave": fitted.exhausted_leave, "plan": list(plan.summary)}
        rounds = {"rounds": list(fitted.rounds_)} if fitted.rounds_ else {}
        personal = {"personal": {**about, "groups": rows, **rounds}}
    return {
        "format": 1,
        "data": {
            "name": name,
            "n_private": fitted.n_private_,
            "n_public": fitted.n_public_,
            "n_test": 0,
            "n_features": fitted.n_features_in_,
            "class_names": [str(label) for label in fitted.classes_],
        },
        "partition": {
            "n_teachers": fitted.n_teachers_,
            "unit": fitted.unit_,
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
        **personal,
        "queries": {
            "n_asked": fitted.n_queries_ + fitted.released_.n_lost,
            "n_answered": fitted.released_.n_answered,
            "n_silent": fitted.n_queries_ - fitted.n_labels_,
            "n_by_student": fitted.n_labels_ - fitted.released_.n_answered,
            "n_lost": fitted.released_.n_lost,
            "order": fitted.order,
            "stopped_by": fitted.stopped_by_,
        },
        "student": {
            "kind": "supervised" if fitted.temperature is None else "distilled",
            "model": model_name(fitted.student_),
            "n_labels": fitted.n_labels_,
            "accuracy": accuracy,
        },
        "versions": {
            "tellers": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
