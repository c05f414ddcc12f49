"""From a variant's name to a plan, from the plan to the rows of every teacher, and the plan on disk."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count
from ...mechanisms.base import Mechanism
from ...mechanisms.registry import EVENTS
from ...teachers._old_names import renamed
from ...teachers.partitions import Partition
from .consent import Consent, Group, Integers
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

Variant = Literal["weighting", "vanishing", "upsampling"]


class PlanOptions(TypedDict, total=False):
    """What may be said of a variant, see `_OPTIONS`; None is the same as nothing.

    `weights` are any positive numbers, one per group, instead of the budgets.
    """

    weights: ArrayLike | None
    denominator: int | None
    precision: float | None
    min_persons: int | None
    power: float | None
    copies: ArrayLike | None
    most: int | None
    grow: Literal["teachers", "shares"] | None


# Which options each variant takes; another's option is a slip, not something to pass over.
_OPTIONS = {
    "weighting": ("weights", "denominator", "precision", "min_persons"),
    "vanishing": ("power", "min_persons"),
    "upsampling": ("copies", "precision", "most", "grow"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Assignment:
    """The rows of every teacher and, with budgets per group, the plan by which groups vote and pay.

    The partition numbers the rows of `X[source]` where `source` is given, as people are copied there. `leave`
    says that groups whose budget is used leave, and `notes` are for the card.
    """

    partition: Partition
    source: Integers | None = None
    plan: PersonalPlan | None = None
    consent: Consent | None = None
    leave: bool = False
    notes: tuple[str, ...] = ()

    @property
    def trains_anew(self) -> bool:
        """Return whether teachers are trained anew when a group leaves: they learned from all groups."""
        return self.leave and isinstance(self.plan, Upsampling)

    def rows(self, table: ArrayLike) -> NDArray[Any]:
        """Return the rows that the partition numbers: the table itself, or with its copies.

        >>> from tellers import GNMax
        >>> from tellers.runs.personal import read_consent
        >>> consent = read_consent([0.7, 1.4, 0.7, 1.4], delta=1e-5)
        >>> assignment = arrange("upsampling", consent, GNMax(4.0), n_teachers=2, seed=7)
        >>> assignment.rows(["a", "b", "c", "d"]).tolist()
        ['a', 'b', 'b', 'c', 'd', 'd']
        """
        # Rows on disk stay there.
        whole: Any = table if hasattr(table, "shape") else np.asarray(table)
        rows: NDArray[Any] = whole if self.source is None else whole[self.source]
        return rows

    def __repr__(self) -> str:
        variant = "plain" if self.plan is None else self.plan.variant
        return f"Assignment({variant}, n_teachers={len(self.partition)})"


GroupAssignment = Seating = Assignment


def make_plan(
    variant: Variant,
    consent: Consent,
    mechanism: Mechanism,
    *,
    n_teachers: int,
    seed: int,
    **options: Unpack[PlanOptions],
) -> PersonalPlan:
    """Return the plan of a variant for these groups; `mechanism` is the one for `n_teachers` equal votes.

    Nothing is trained, and what cannot work is refused here.

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
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    stray = [name for name in given if name not in _OPTIONS[variant]]
    if stray:
        raise ValueError(
            f"Expected options of {variant}, {', '.join(_OPTIONS[variant])}, got {stray[0]}. Leave it out."
        )
    require_count(n_teachers=n_teachers)
    require_count(0, seed=seed)
    groups, n_teachers = consent.groups, int(n_teachers)
    if variant == "upsampling":
        copies, grow = given.pop("copies", None), given.pop("grow", "teachers")
        number = np.asarray(copies_for(groups, **given) if copies is None else copies)
        if number.ndim != 1 or number.dtype.kind not in "iu":
            raise TypeError("Expected a whole number of copies for every group.")
        return Upsampling(groups, mechanism, n_teachers, copies_of=tuple(number.tolist()), grow=grow)
    members = ranges(teachers_per_group(groups, n_teachers, min_persons=given.pop("min_persons", None)))
    if variant == "vanishing":
        often = frequencies_for(groups, **given)
        return Vanishing(groups, mechanism, n_teachers, members, frequency_of=often, seed=int(seed))
    whole = weights_for(groups, shares=given.pop("weights", None), **given)
    return Weighting(groups, mechanism, n_teachers, members, weight_of=whole)


def assign_by_plan(plan: PersonalPlan, consent: Consent, *, seed: int) -> Assignment:
    """Deal the rows to the plan's teachers; all rows of a person stay together.

    >>> from tellers import GNMax
    >>> from tellers.runs.personal import read_consent
    >>> consent = read_consent([0.7, 1.4, 0.7, 1.4, 0.7, 0.7], delta=1e-5)
    >>> plan = make_plan("weighting", consent, GNMax(40.0), n_teachers=3, seed=7)
    >>> [part.tolist() for part in assign_by_plan(plan, consent, seed=7).partition]
    [[0, 2], [4, 5], [1, 3]]
    """
    names = [group.name for group in plan.groups]
    if isinstance(plan, Upsampling):
        number = dict(zip(names, plan.copies_of, strict=True))
        copies = [number.get(group.name, 0) for group in consent.groups]
        source, parts = upsampled_partition(consent, copies, plan.n_teachers, seed=seed)
        return Assignment(parts, None if all(n == 1 for n in copies) else source, plan, consent)
    if names != [group.name for group in consent.groups]:
        raise ValueError(
            "Expected a plan with all groups of the consent. Seat the teachers before any group leaves; "
            "afterwards they stay where they are."
        )
    pure = budget_pure_partition(consent, [len(own) for own in plan.members], seed=seed)
    place = np.argsort(np.concatenate(plan.members))
    parts = replace(pure, parts=tuple(pure[int(at)] for at in place))
    return Assignment(parts, plan=plan, consent=consent)


def seat(plan: PersonalPlan, consent: Consent, *, seed: int) -> Assignment:
    """Do what `assign_by_plan` does, and say that this is its name now."""
    renamed("tellers.runs.personal.seat", "assign_by_plan")
    return assign_by_plan(plan, consent, seed=seed)


def arrange(
    variant: Variant,
    consent: Consent,
    mechanism: Mechanism,
    *,
    n_teachers: int,
    seed: int,
    **options: Unpack[PlanOptions],
) -> Assignment:
    """Return plan and rows in one go: `make_plan` with these options, then `assign_by_plan`, of one seed.

    >>> from tellers import GNMax
    >>> from tellers.runs.personal import read_consent
    >>> consent = read_consent([0.7] * 50 + [1.4] * 50, delta=1e-5)
    >>> arrange("upsampling", consent, GNMax(40.0), n_teachers=10, seed=7, grow="shares").partition.summary
    '10 teachers, 15 to 15 rows each (median 15); protected unit: one record'
    """
    plan = make_plan(variant, consent, mechanism, n_teachers=n_teachers, seed=seed, **options)
    return assign_by_plan(plan, consent, seed=seed)


# --- A plan on disk: plain values that can be stored beside a run and read again by whoever serves it. ---
#
# A plan is public, so its record is too: budgets, numbers of people, which teacher is of which group, a seed.


_FORMAT = 1
_VARIANTS: dict[str, Any] = {one.variant: one for one in (Weighting, Vanishing, Upsampling)}


def plan_as_dict(plan: PersonalPlan) -> dict[str, Any]:
    """Return a plan as plain values, ready for JSON.

    >>> from tellers import GNMax
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = Weighting(groups, GNMax(40.0), 4, (np.arange(2), np.arange(2, 4)), weight_of=(1, 2))
    >>> record = plan_as_dict(plan)
    >>> record["variant"], record["weight_of"], record["mechanism"]
    ('weighting', [1, 2], {'name': 'GNMax', 'parameters': {'sigma': 40.0}})
    """
    if not isinstance(plan, PersonalPlan):
        raise TypeError(f"Expected a plan by weighting, vanishing or upsampling, got {type(plan).__name__}.")
    own = {name: getattr(plan, name) for name in _own_fields(type(plan))}
    return {
        "format": _FORMAT,
        "variant": plan.variant,
        "groups": [asdict(group) for group in plan.groups],
        "mechanism": {"name": type(plan.plain).__name__, "parameters": asdict(plan.plain)},  # type: ignore[call-overload]
        "members": [teachers.tolist() for teachers in plan.members],
        **{name: list(value) if isinstance(value, tuple) else value for name, value in own.items()},
    }


def _own_fields(variant: type[PersonalPlan]) -> list[str]:
    """Return what a variant is made from, but for what all of them have."""
    known = ("groups", "plain", "members")
    return [one.name for one in fields(variant) if one.init and one.name not in known]


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
        made_by = _VARIANTS.get(record["variant"])
        if made_by is not None:
            own = {name: record[name] for name in _own_fields(made_by)}
            own = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
            taught = {"members": members} if members else {}
            plan: PersonalPlan = made_by(groups, mechanism, **taught, **own)
            return plan
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"Expected the record of a plan, got one that is damaged: {error}.") from error
    raise ValueError(f"Expected a variant of this version, got {record['variant']!r}.")
