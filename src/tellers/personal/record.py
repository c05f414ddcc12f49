"""A plan on disk: plain values that can be stored beside a run and read again by whoever serves it.

A plan is public, so its record is too: budgets, numbers of people, which teacher is of which group, a seed.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from ..mechanisms import EVENTS
from ..mechanisms.base import Mechanism
from .consent import Group
from .plan import PersonalPlan
from .upsampling import Upsampling
from .vanishing import Vanishing
from .weighting import Weighting

_FORMAT = 1


def plan_as_dict(plan: PersonalPlan) -> dict[str, Any]:
    """Return a plan as plain values, ready for JSON.

    >>> from tellers import GNMax
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = Weighting(groups, GNMax(40.0), 4, (np.arange(2), np.arange(2, 4)), weight_of=(1, 2))
    >>> record = plan_as_dict(plan)
    >>> record["variant"], record["weight_of"], record["mechanism"]
    ('weighting', [1, 2], {'name': 'GNMax', 'parameters': {'sigma': 40.0}})
    """
    if not isinstance(plan, (Weighting, Vanishing, Upsampling)):
        raise TypeError(f"Expected a plan by weighting, vanishing or upsampling, got {type(plan).__name__}.")
    record: dict[str, Any] = {
        "format": _FORMAT,
        "variant": plan.variant,
        "groups": [asdict(group) for group in plan.groups],
        "mechanism": {"name": type(plan.plain).__name__, "parameters": asdict(plan.plain)},  # type: ignore[call-overload]
        "members": [own.tolist() for own in plan.members],
    }
    if isinstance(plan, Weighting):
        return {**record, "n_teachers": plan.n_teachers, "weight_of": list(plan.weight_of)}
    if isinstance(plan, Vanishing):
        own = {"frequency_of": list(plan.frequency_of), "seed": int(plan.seed)}
        return {**record, "n_teachers": plan.n_teachers, **own}
    numbers = {"copies_of": list(plan.copies_of), "grow": plan.grow, "n_persons": plan.n_persons}
    return {**record, "n_plain": plan.n_plain, **numbers}


def plan_from_dict(record: Any) -> PersonalPlan:
    """Return the plan that a record describes, checked as if it were made anew.

    >>> from tellers import GNMax
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = plan_from_dict(plan_as_dict(Upsampling(groups, GNMax(40.0), 10, copies_of=(1, 2))))
    >>> plan.n_teachers, plan.mechanism
    (15, GNMax(sigma=60.0))
    >>> plan_from_dict({"format": 9})
    Traceback (most recent call last):
        ...
    ValueError: Expected the record of a plan in format 1, got something else. Was it written by a later ...
    """
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError(
            f"Expected the record of a plan in format {_FORMAT}, got something else. "
            "Was it written by a later version?"
        )
    try:
        groups = tuple(Group(**group) for group in record["groups"])
        members = tuple(np.asarray(own, dtype=np.int64) for own in record["members"])
        named = record["mechanism"]
        mechanism: Mechanism = EVENTS[named["name"]](**named["parameters"])
        if record["variant"] == Weighting.variant:
            weights = tuple(record["weight_of"])
            return Weighting(groups, mechanism, record["n_teachers"], members, weight_of=weights)
        if record["variant"] == Vanishing.variant:
            often, seed = tuple(record["frequency_of"]), record["seed"]
            return Vanishing(groups, mechanism, record["n_teachers"], members, frequency_of=often, seed=seed)
        if record["variant"] == Upsampling.variant:
            copies, grow, n = tuple(record["copies_of"]), record["grow"], record["n_persons"]
            return Upsampling(groups, mechanism, record["n_plain"], copies_of=copies, grow=grow, n_persons=n)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"Expected the record of a plan, got one that is damaged: {error}.") from error
    raise ValueError(f"Expected a variant of this version, got {record['variant']!r}.")
