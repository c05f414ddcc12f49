"""From a variant's name to a plan, from the plan to the rows of every teacher, and the plan on disk."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count
from ...mechanisms.base import Mechanism
from ...mechanisms.registry import EVENTS
from ...teachers.partitions import Partition
from .consent import Consent, Group
from .plan import PersonalPlan, ranges
from .variants import (
    Upsampling,
    Vanishing,
    Weighting,
    budget_pure_partition,
    copies_for,
    frequencies_for,
    teachers_per_group,
    upsampled_partition,
    weights_for,
)

# --- Seating: from a variant's name to a plan, and from the plan to the rows of every teacher. ---


Integers = NDArray[np.int64]
Variant = Literal["weighting", "vanishing", "upsampling"]

# Which options each variant takes; another's option is a slip, not something to pass over.
_OPTIONS = {
    "weighting": ("weights", "denominator", "precision", "min_persons"),
    "vanishing": ("power", "min_persons"),
    "upsampling": ("copies", "precision", "most", "grow"),
}


@dataclass(frozen=True, eq=False)
class Seating:
    """A plan and its teachers' rows: parts of `X[source]` where `source` is given, else of X itself."""

    plan: PersonalPlan
    partition: Partition
    source: Integers | None = None

    def rows(self, table: ArrayLike) -> NDArray[Any]:
        """Return the rows that the partition numbers: the table itself, or with its copies.

        >>> from tellers import GNMax
        >>> from tellers.runs.personal import read_consent
        >>> consent = read_consent([0.7, 1.4, 0.7, 1.4], delta=1e-5)
        >>> seating = arrange("upsampling", consent, GNMax(4.0), n_teachers=2, seed=7)
        >>> seating.rows(["a", "b", "c", "d"]).tolist()
        ['a', 'b', 'b', 'c', 'd', 'd']
        """
        whole = np.asarray(table)
        return whole if self.source is None else whole[self.source]


def make_plan(
    variant: Variant,
    consent: Consent,
    mechanism: Mechanism,
    *,
    n_teachers: int,
    seed: int,
    weights: ArrayLike | None = None,
    denominator: int | None = None,
    precision: float | None = None,
    min_persons: int | None = None,
    power: float | None = None,
    copies: ArrayLike | None = None,
    most: int | None = None,
    grow: Literal["teachers", "shares"] | None = None,
) -> PersonalPlan:
    """Return the plan of a variant for these groups; `mechanism` is the one for `n_teachers` equal votes.

    Weighting takes `weights` (any positive numbers, one per group, instead of the budgets), `denominator`,
    `precision` and `min_persons`; vanishing `power` and `min_persons`; upsampling `copies`, `precision`,
    `most` and `grow`. Nothing is trained, and what cannot work is refused here.

    >>> from tellers import GNMax
    >>> from tellers.runs.personal import read_consent
    >>> consent = read_consent([0.7] * 50 + [1.4] * 50, delta=1e-5)
    >>> for line in make_plan("weighting", consent, GNMax(40.0), n_teachers=10, seed=7).summary:
    ...     print(line)
    weighting: 10 teachers with 15 votes; GNMax(sigma=60.0)
    epsilon 0.7: 50 persons behind 5 teachers of 1 vote each, 33% of all votes
    epsilon 1.4: 50 persons behind 5 teachers of 2 votes each, 67% of all votes
    """
    if variant not in _OPTIONS:
        raise ValueError(f"Expected one of {', '.join(map(repr, _OPTIONS))}, got {variant!r}.")
    given = {
        "weights": weights, "denominator": denominator, "precision": precision, "min_persons": min_persons,
        "power": power, "copies": copies, "most": most, "grow": grow,
    }  # fmt: skip
    stray = [name for name, value in given.items() if value is not None and name not in _OPTIONS[variant]]
    if stray:
        raise ValueError(
            f"Expected options of {variant}, {', '.join(_OPTIONS[variant])}, got {stray[0]}. Leave it out."
        )
    require_count(n_teachers=n_teachers)
    require_count(0, seed=seed)
    groups, n_teachers = consent.groups, int(n_teachers)
    if variant == "upsampling":
        if copies is None:
            number = copies_for(
                groups, precision=0.1 if precision is None else precision, most=20 if most is None else most
            )
        else:
            number = _per_group(copies)
        return Upsampling(groups, mechanism, n_teachers, copies_of=number, grow=grow or "teachers")
    members = ranges(teachers_per_group(groups, n_teachers, min_persons=min_persons))
    if variant == "vanishing":
        often = frequencies_for(groups, power=2.0 if power is None else power)
        return Vanishing(groups, mechanism, n_teachers, members, frequency_of=often, seed=int(seed))
    near = 0.02 if precision is None else precision
    whole = weights_for(groups, shares=weights, denominator=denominator, precision=near)
    return Weighting(groups, mechanism, n_teachers, members, weight_of=whole)


def seat(plan: PersonalPlan, consent: Consent, *, seed: int) -> Seating:
    """Deal the rows to the plan's teachers; all rows of a person stay together.

    >>> from tellers import GNMax
    >>> from tellers.runs.personal import read_consent
    >>> consent = read_consent([0.7, 1.4, 0.7, 1.4, 0.7, 0.7], delta=1e-5)
    >>> plan = make_plan("weighting", consent, GNMax(40.0), n_teachers=3, seed=7)
    >>> [part.tolist() for part in seat(plan, consent, seed=7).partition]
    [[0, 2], [4, 5], [1, 3]]
    """
    names = [group.name for group in plan.groups]
    if isinstance(plan, Upsampling):
        number = dict(zip(names, plan.copies_of, strict=True))
        copies = [number.get(group.name, 0) for group in consent.groups]
        source, parts = upsampled_partition(consent, copies, plan.n_teachers, seed=seed)
        return Seating(plan, parts, None if all(n == 1 for n in copies) else source)
    if names != [group.name for group in consent.groups]:
        raise ValueError(
            "Expected a plan with all groups of the consent. Seat the teachers before any group leaves; "
            "afterwards they stay where they are."
        )
    pure = budget_pure_partition(consent, [len(own) for own in plan.members], seed=seed)
    place = np.argsort(np.concatenate(plan.members))
    return Seating(plan, replace(pure, parts=tuple(pure[int(at)] for at in place)))


def arrange(
    variant: Variant,
    consent: Consent,
    mechanism: Mechanism,
    *,
    n_teachers: int,
    seed: int,
    **options: Any,
) -> Seating:
    """Return plan and seats in one go: `make_plan` with these options, then `seat`, of one seed.

    >>> from tellers import GNMax
    >>> from tellers.runs.personal import read_consent
    >>> consent = read_consent([0.7] * 50 + [1.4] * 50, delta=1e-5)
    >>> arrange("upsampling", consent, GNMax(40.0), n_teachers=10, seed=7, grow="shares").partition.summary
    '10 teachers, 15 to 15 rows each (median 15); protected unit: one record'
    """
    plan = make_plan(variant, consent, mechanism, n_teachers=n_teachers, seed=seed, **options)
    return seat(plan, consent, seed=seed)


def _per_group(values: ArrayLike) -> tuple[int, ...]:
    table = np.asarray(values)
    if table.ndim != 1 or table.dtype.kind not in "iu":
        raise TypeError("Expected a whole number of copies for every group.")
    return tuple(table.tolist())


# --- A plan on disk: plain values that can be stored beside a run and read again by whoever serves it. ---
#
# A plan is public, so its record is too: budgets, numbers of people, which teacher is of which group, a seed.


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
