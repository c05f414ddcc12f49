"""What a result says of groups of people with budgets of their own: read, checked, and with names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .entries import COUNT, EPSILON, FLAG, NUMBER, SHARE, TABLE, TABLES, TEXT, TEXTS, Entries

Curve = tuple[tuple[int, float], ...]

_HOW = {
    "weighting": "the more generous a group, the more its teachers' ballots count",
    "vanishing": "the stricter a group, the more queries its teachers sit out",
    "upsampling": "the more generous a person, the more teachers learn from them",
}


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What one group agreed to, what is guaranteed to it, what was charged, and how long it took part.

    `how` is its weight, frequency or number of copies, by the variant; `left_after` is after how many queries
    it first took no part; `n_labels` is how many labels the teachers gave while it did, None if not told.

    >>> GroupResult(
    ...     name="low", budget=0.7, epsilon=0.7, spent=0.69, budget_left=0.02, n_persons=600, waste=0.0,
    ...     n_teachers=30, how=1.0, n_queries=40, left_after=None, cost=((10, 0.3), (40, 0.69)),
    ... ).spent
    0.69
    """

    name: str
    budget: float
    epsilon: float
    spent: float
    budget_left: float
    n_persons: int
    waste: float
    n_teachers: int
    how: float
    n_queries: int
    left_after: int | None
    cost: Curve
    n_labels: int | None = None


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """Teachers that answered some of the queries, and the groups that they did not learn from.

    >>> RoundResult(absent=("low",), n_teachers=60, after=40, n_queries=35).words
    '60 teachers, trained without low, answered queries 41 to 75'
    """

    absent: tuple[str, ...]
    n_teachers: int
    after: int
    n_queries: int

    @property
    def words(self) -> str:
        """Return who was asked what, in plain words."""
        who = f"without {', '.join(self.absent)}" if self.absent else "from all groups"
        teachers = f"{self.n_teachers} {'teacher' if self.n_teachers == 1 else 'teachers'}"
        first, last = self.after + 1, self.after + self.n_queries
        queries = f"query {first}" if first == last else f"queries {first} to {last}"
        return f"{teachers}, trained {who}, answered {queries}"


@dataclass(frozen=True, kw_only=True)
class PersonalResult:
    """The groups of a run, the strictest first, and the variant by which they took part.

    `rounds` are there where teachers were trained anew whenever a group's budget was used.

    >>> PersonalResult(variant="weighting", leave=False, plan=(), groups=()).words
    "weighting: the more generous a group, the more its teachers' ballots count"
    """

    variant: str
    leave: bool
    plan: tuple[str, ...]
    groups: tuple[GroupResult, ...]
    rounds: tuple[RoundResult, ...] = ()

    @property
    def rounds_words(self) -> str:
        """Return in plain words which teachers answered what, or "" where they stayed the same.

        >>> first = RoundResult(absent=(), n_teachers=90, after=0, n_queries=40)
        >>> then = RoundResult(absent=("low",), n_teachers=60, after=40, n_queries=35)
        >>> one = PersonalResult(variant="upsampling", leave=True, plan=(), groups=(), rounds=(first, then))
        >>> one.rounds_words[-70:]
        ' round 2: 60 teachers, trained without low, answered queries 41 to 75.'
        """
        if len(self.rounds) < 2 and not any(one.absent for one in self.rounds):
            return ""
        n = len(self.rounds)
        said = "; ".join(f"round {at}: {one.words}" for at, one in enumerate(self.rounds, 1))
        return (
            "When the budget of a group was used, new teachers were trained from the data of the others "
            f"alone, and the asking went on with them, {n} {'round' if n == 1 else 'rounds'} in all: {said}."
        )

    @property
    def words(self) -> str:
        """Return the variant in plain words."""
        return f"{self.variant}: {_HOW[self.variant]}" if self.variant in _HOW else self.variant


def read_personal(table: Mapping[str, Any]) -> PersonalResult | None:
    """Return what the table of a result says of groups, or None where there are none.

    >>> read_personal({"format": 1})
    """
    if table.get("personal") is None:
        return None
    part = Entries(table).at("personal", TABLE)
    read = Entries(part)
    curves = read_curves(part, "cost")
    left = {Entries(e).at("name", TEXT): Entries(e).at("after", COUNT) for e in read.at("left", TABLES, ())}
    groups = []
    for entry in read.at("groups", TABLES):
        one = Entries(entry)
        name = one.at("name", TEXT)
        groups.append(
            GroupResult(
                name=name,
                budget=one.at("epsilon", EPSILON),
                epsilon=one.at("stated", EPSILON),
                spent=one.at("spent", EPSILON),
                budget_left=one.at("budget_left", SHARE),
                n_persons=one.at("n_persons", COUNT),
                waste=one.at("waste", NUMBER, 0.0),
                n_teachers=one.at("n_teachers", COUNT),
                how=next(
                    (one.at(key, NUMBER) for key in ("weight", "frequency", "copies") if key in entry), 1.0
                ),
                n_queries=one.at("n_queries", COUNT),
                left_after=left.get(name),
                cost=curves.get(name, ()),
                n_labels=one.at("n_labels", COUNT, None),
            )
        )
    return PersonalResult(
        variant=read.at("variant", TEXT),
        leave=read.at("leave", FLAG, False),
        plan=read.at("plan", TEXTS, ()),
        groups=tuple(groups),
        rounds=tuple(
            RoundResult(
                absent=Entries(one).at("absent", TEXTS, ()),
                n_teachers=Entries(one).at("n_teachers", COUNT),
                after=Entries(one).at("after", COUNT),
                n_queries=Entries(one).at("n_queries", COUNT),
            )
            for one in read.at("rounds", TABLES, ())
        ),
    )


def read_curves(table: Mapping[str, Any], key: str) -> dict[str, Curve]:
    """Return the epsilon of each group over the queries, by its name.

    >>> read_curves({"cost": [{"n_queries": 10, "epsilon": {"low": 0.3}}]}, "cost")
    {'low': ((10, 0.3),)}
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    for point in Entries(table).at(key, TABLES, ()):
        read = Entries(point)
        epsilons = read.at("epsilon", TABLE)
        for name, value in epsilons.items():
            # Not by a path: a group may have dots in its name.
            curves.setdefault(name, []).append(
                (read.at("n_queries", COUNT), Entries({"epsilon": value}).at("epsilon", EPSILON))
            )
    return {name: tuple(curve) for name, curve in curves.items()}
