"""Consent: who agreed to which budget, read and checked before anything runs.

Budgets come as numbers, as names of levels that the operator fixed, or as a mapping from persons to either.
People with the same budget are a group; everything that is spent is spent per group. What somebody consented
to is taken as public: it decides what the teachers learn from and how loud they are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count, require_finite, require_fraction, require_positive, require_present
from ...ledger.base import group_account
from ...privacy.rdp import Floats
from ...privacy.relation import Kind, Relation
from ...teachers.partitions import identities

Integers = NDArray[np.int64]

# Bins may begin at so many of the budgets, spread evenly over the people: enough to lose next to nothing.
_STARTS = 500


@dataclass(frozen=True)
class Group:
    """People who consented to the same budget; `waste` is how much more they would have allowed, on average.

    >>> Group("low", epsilon=0.7, n_persons=120)
    Group(name='low', epsilon=0.7, n_persons=120, waste=0.0)
    """

    name: str
    epsilon: float
    n_persons: int
    waste: float = 0.0

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError(f"Expected a name for the group, got {self.name!r}.")
        require_positive(epsilon=self.epsilon)
        require_count(n_persons=self.n_persons)
        require_finite(waste=self.waste)

    @property
    def account(self) -> str:
        """Return the name of the ledger's account that pays for this group."""
        return group_account(self.name)


@dataclass(frozen=True, eq=False, repr=False)
class Consent:
    """The groups, from the strictest to the most generous, and the group of every person.

    `person_of` is the number of each row's person and `names` what each person is called, by which they are
    seated; without them every row is a person, seated by its place in the table. The numbers are by first
    appearance and decide nothing.

    Guarantee: nobody is in a group whose budget is above their own.
    Assumes:   budgets are public, and a person whose data change keeps theirs.
    Reference: Jorgensen, Yu and Cormode 2015 (personalised differential privacy).

    >>> consent = read_consent(["low", "high", "high"], delta=1e-5, levels={"low": 0.7, "high": 1.4})
    >>> consent
    Consent(n_persons=3, groups=('low', 'high'), delta=1e-05)
    >>> consent.n_rows, consent.n_persons
    (3, 3)
    """

    groups: tuple[Group, ...]
    group_of: Integers
    delta: float
    person_of: Integers | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_fraction(delta=self.delta)
        of = np.array(self.group_of, dtype=np.int64)
        counts = np.bincount(of, minlength=len(self.groups)).tolist()
        if counts != [group.n_persons for group in self.groups]:
            raise ValueError("Expected `group_of` to hold as many persons of each group as the group says.")
        budgets = [group.epsilon for group in self.groups]
        if budgets != sorted(budgets):
            raise ValueError("Expected groups from the smallest budget to the largest.")
        if len({group.name for group in self.groups}) < len(self.groups):
            raise ValueError("Expected every group to have a name of its own, got one twice.")
        of.flags.writeable = False
        object.__setattr__(self, "group_of", of)
        if self.person_of is not None:
            rows = np.array(self.person_of, dtype=np.int64)
            if np.any(np.bincount(rows, minlength=of.size) == 0) or rows.max() >= of.size:
                raise ValueError(f"Expected rows of persons 0..{of.size - 1}, at least one of each.")
            if len(self.names) != of.size:
                raise ValueError(f"Expected a name for each of {of.size} persons, got {len(self.names)}.")
            rows.flags.writeable = False
            object.__setattr__(self, "person_of", rows)

    @property
    def n_persons(self) -> int:
        """Return how many people consented."""
        return len(self.group_of)

    @property
    def n_rows(self) -> int:
        """Return how many rows of data they have."""
        return len(self.persons)

    @property
    def persons(self) -> Integers:
        """Return the number of every row's person."""
        return np.arange(self.n_persons) if self.person_of is None else self.person_of

    @property
    def unit(self) -> Literal["one record", "one person"]:
        """Return what is protected: a person with all their rows, or a record where no persons were named."""
        return "one record" if self.person_of is None else "one person"

    def relation(self, *, n_teachers: int = 1) -> Relation:
        """Return the neighbouring relation: who takes part, and with which budget, is the same in both.

        >>> read_consent([0.7, 1.4], delta=1e-5).relation().keeps
        ('budget',)
        """
        unit: Kind = "record" if self.person_of is None else "person"
        also = "number of rows" if unit == "record" else "who takes part"
        return Relation(
            unit=unit, change="replace", keeps=("budget",), n_teachers=n_teachers,
            public=("classes", "columns", "budgets", "number of units in each group", also),
        )  # fmt: skip

    def summary(self) -> list[dict[str, Any]]:
        """Return one row per group for a table: name, budget, persons, their share, and the waste.

        >>> consent = read_consent([0.7, 1.4, 1.4, 1.4], delta=1e-5)
        >>> consent.summary()[0]
        {'group': 'epsilon 0.7', 'epsilon': 0.7, 'persons': 1, 'share': 0.25, 'waste': 0.0}
        """
        return [
            {
                "group": group.name,
                "epsilon": group.epsilon,
                "persons": group.n_persons,
                "share": group.n_persons / self.n_persons,
                "waste": group.waste,
            }
            for group in self.groups
        ]

    def __repr__(self) -> str:
        names = tuple(group.name for group in self.groups)
        return f"Consent(n_persons={self.n_persons}, groups={names}, delta={self.delta})"


def read_consent(
    budgets: ArrayLike | Mapping[Any, Any],
    *,
    delta: float,
    levels: Mapping[str, float] | None = None,
    persons: ArrayLike | None = None,
    max_groups: int = 20,
) -> Consent:
    """Read who agreed to which budget: a column with an entry per row, or a mapping from persons.

    Entries are numbers, or with `levels` their names. With `persons` (one entry per row) all rows of a person
    must agree. More than `max_groups` different numbers are binned so that the least is wasted: in a bin the
    strictest budget rules.

    >>> [group.name for group in read_consent([1.4, 0.7, 1.4], delta=1e-5).groups]
    ['epsilon 0.7', 'epsilon 1.4']
    >>> consent = read_consent({"anna": "low", "bo": "high"}, delta=1e-5, persons=["bo", "anna", "bo"],
    ...                        levels={"low": 0.7, "high": 1.4})
    >>> consent.group_of
    array([1, 0])
    >>> [round(group.waste, 3) for group in read_consent([1.0, 1.1, 2.0], delta=1e-5, max_groups=2).groups]
    [0.05, 0.0]
    >>> read_consent([0.7, -1.0], delta=1e-5)
    Traceback (most recent call last):
        ...
    ValueError: Expected budgets > 0 and finite, got another in row 1. ...
    """
    require_fraction(delta=delta)
    require_count(max_groups=max_groups)
    named = None if levels is None else _checked_levels(levels)
    people = None if persons is None else _column(persons, name="persons")
    names = [] if persons is None else identities(persons, name="persons")
    if isinstance(budgets, Mapping):
        if people is None:
            raise ValueError(
                "Expected `persons`, one entry per row, together with a mapping of budgets, got none."
            )
        missing = [row for row, person in enumerate(people) if person not in budgets]
        if missing:
            raise ValueError(
                f"Expected a budget for every person, got none for the person of row {missing[0]}. "
                "Ask them, or leave their rows out."
            )
        entries = [budgets[person] for person in people]
    else:
        entries = _column(budgets, name="budgets")
        if people is not None and len(people) != len(entries):
            raise ValueError(
                f"Expected one budget and one person per row, got {len(entries)} budgets and "
                f"{len(people)} persons."
            )
    require_present(budgets=entries)
    first, person_of = list(range(len(entries))), None
    if people is not None:
        first, person_of = _one_budget_each(names, entries)
    chosen = [entries[row] for row in first]
    if named is None:
        groups, of = _from_numbers(_numbers(chosen, first), int(max_groups))
    else:
        groups, of = _from_levels(chosen, first, named)
    if len(groups) > max_groups:
        raise ValueError(
            f"Expected at most {max_groups} levels in use, got {len(groups)}. Join some, or raise max_groups."
        )
    return Consent(groups, of, float(delta), person_of, tuple(names[row] for row in first) if names else ())


def _column(values: ArrayLike, *, name: str) -> list[Any]:
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        row = int(np.argmax(values.mask))
        raise ValueError(f"Expected a value in every row of {name}, got a masked one in row {row}.")
    table: NDArray[Any] = np.asarray(values, dtype=object)
    if table.ndim != 1 or table.size == 0:
        raise ValueError(f"Expected one entry per row in {name}, got shape {table.shape}.")
    entries: list[Any] = table.tolist()
    require_present(**{name: entries})
    return entries


def _one_budget_each(people: Sequence[Any], entries: Sequence[Any]) -> tuple[list[int], Integers]:
    """Return every person's first row, with which all others agree, and the number of each row's person."""
    numbers: dict[Any, int] = {}
    person_of = np.array([numbers.setdefault(person, len(numbers)) for person in people], dtype=np.int64)
    first = np.unique(person_of, return_index=True)[1].tolist()
    for row, person in enumerate(person_of):
        if entries[row] != entries[first[person]]:
            raise ValueError(
                f"Expected all rows of a person to have one budget, got different ones in rows "
                f"{first[person]} and {row}. A person consents once: take the smaller."
            )
    return first, person_of


# What stands in a column that was taken for consent by mistake may be anything: it is not repeated.
def _numbers(entries: Sequence[Any], rows: Sequence[int]) -> Floats:
    budgets = np.empty(len(entries))
    for at, (entry, row) in enumerate(zip(entries, rows, strict=True)):
        if isinstance(entry, (bool, np.bool_)) or not hasattr(entry, "__float__"):
            raise TypeError(
                f"Expected a number as budget, got a {type(entry).__name__} in row {row}. "
                "Names need `levels`, which says what each one means."
            )
        try:
            budgets[at] = float(entry)
        except OverflowError:
            budgets[at] = math.inf
        if not math.isfinite(budgets[at]) or budgets[at] <= 0:
            raise ValueError(
                f"Expected budgets > 0 and finite, got another in row {row}. "
                "Leave out the rows of whoever did not consent."
            )
    return budgets


def _checked_levels(levels: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(levels, Mapping):
        raise TypeError(f"Expected levels as a mapping from names to budgets, got {type(levels).__name__}.")
    if not levels:
        raise ValueError("Expected at least one level with its budget, got none.")
    for name, epsilon in levels.items():
        if not str(name).strip():
            raise ValueError(f"Expected names of levels, got {name!r}.")
        require_positive(**{f"level {name!r}": epsilon})
    return {name: float(epsilon) for name, epsilon in levels.items()}


def _from_levels(
    entries: Sequence[Any], rows: Sequence[int], levels: Mapping[str, float]
) -> tuple[tuple[Group, ...], Integers]:
    for entry, row in zip(entries, rows, strict=True):
        if not isinstance(entry, str) or entry not in levels:
            raise ValueError(
                f"Expected one of the levels {', '.join(map(repr, levels))}, got something else in row {row}."
            )
    counts = {name: entries.count(name) for name in levels}
    names = sorted((name for name in levels if counts[name]), key=lambda name: levels[name])
    index = {name: at for at, name in enumerate(names)}
    groups = tuple(Group(name, levels[name], counts[name]) for name in names)
    return groups, np.array([index[entry] for entry in entries], dtype=np.int64)


def _from_numbers(budgets: Floats, max_groups: int) -> tuple[tuple[Group, ...], Integers]:
    floors = np.unique(budgets)
    if floors.size > max_groups:
        floors = _bins(budgets, max_groups)
    of = np.searchsorted(floors, budgets, side="right") - 1
    names = _names(floors)
    groups = []
    for at, floor in enumerate(floors.tolist()):
        members = budgets[of == at]
        groups.append(Group(names[at], floor, members.size, float(np.mean(members - floor))))
    return tuple(groups), of.astype(np.int64)


def _bins(budgets: Floats, n_bins: int) -> Floats:
    """Return where bins begin so that the sum of (budget - beginning of its bin) is smallest."""
    ordered = np.sort(budgets)
    starts = np.unique(ordered)
    if starts.size > _STARTS:
        spread = ordered[np.linspace(0, ordered.size - 1, _STARTS).astype(np.int64)]
        starts = np.unique(spread)
    n_bins = min(n_bins, starts.size)
    total = np.concatenate([[0.0], np.cumsum(ordered)])
    edge = np.append(np.searchsorted(ordered, starts), ordered.size)
    # lost[i, j]: what is lost when one bin begins at start i and ends before start j.
    size = edge[None, :] - edge[:-1, None]
    lost = total[edge][None, :] - total[edge[:-1]][:, None] - size * starts[:, None]
    lost = np.where(size > 0, np.maximum(lost, 0.0), np.inf)
    best = lost[0]  # best[j]: the least lost before start j, with the bins so far
    choices = []
    for _ in range(n_bins - 1):
        ways = best[:-1, None] + lost
        choices.append(np.argmin(ways, axis=0))
        best = np.min(ways, axis=0)
    begins, end = [], starts.size
    for choice in reversed(choices):
        end = int(choice[end])
        begins.append(end)
    return starts[np.array([0, *reversed(begins)], dtype=np.int64)]


def _names(budgets: Floats) -> list[str]:
    """Name groups by their budgets, with three digits or as many as tell them apart."""
    digits, names = 3, [f"epsilon {budget:.3g}" for budget in budgets.tolist()]
    while len(set(names)) < len(names):
        digits += 1
        names = [f"epsilon {budget:.{digits}g}" for budget in budgets.tolist()]
    return names
