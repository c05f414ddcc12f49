"""What a run cost each group: as published, exactly, at the public price, and as queries go by."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...accounting._together import team_costs
from ...accounting.costs import at_orders
from ...accounting.exact import teacher_costs
from ...errors import require_count, require_fraction
from ...mechanisms._check import answered_mask
from ...mechanisms._flip_probability import log_q_gnmax
from ...mechanisms.published import check_margins, gaussian_bound, log_accept, threshold_bound
from ...mechanisms.registry import listens
from ...privacy.rdp import Conversion, Floats, RdpCurve, check_orders
from ...privacy.sealed import Sealed
from ...privacy.votes import Unit, Votes
from .consent import Integers
from .plan import PersonalPlan

# A group's people share a sensitivity: their ballots' weight, the queries they take part in, or the number of
# their ballots that change together. The published bound is Theorem 6 of 2018 at the noise relative to that
# sensitivity, with q from the votes and the noise as they are; exact costs follow every teacher, or every set
# of teachers with a person's data; the price looks at no vote. A group's cost is that of its worst member.
#
# Published bounds and exact costs look at the votes: they are private.


# "published" is Theorem 6, sound for the noise that is drawn. "as_tabulated" is how the tables of the paper
# on personalised PATE were made: continuous noise, and every check at its worst case. "as_published" is what
# that paper's text prints, with q at the relative noise: it is no bound, and kept to show by how much.
Published = Literal["published", "as_tabulated", "as_published"]
Accounting = Literal["exact", "published", "as_tabulated", "as_published", "public"]


@dataclass(frozen=True, eq=False, repr=False)
class Asked:
    """What was asked under a plan: the votes as they were counted, and which queries were answered.

    Votes carry the plan's weights. A mechanism with a check needs `answered`, the public mask of the queries
    that the teachers answered; an interactive one also `student`. `teams` holds, for each group, the teachers
    with each person's data, (persons, copies): upsampling needs it for exact costs (see `teams_of`).

    >>> from tellers import GNMax, Votes
    >>> from tellers.runs.personal import Group
    >>> from tellers.runs.personal import Weighting
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = Weighting(groups, GNMax(4.0), 4, (np.arange(2), np.arange(2, 4)), weight_of=(1, 2))
    >>> votes = Votes.from_ballots([[0, 1], [0, 1], [0, 0], [0, 1]], n_classes=2)
    >>> asked = Asked(plan, votes.weighted(plan.weights(2, key="q0")))
    >>> asked, asked.present(0)
    (Asked(<private>, variant='weighting', n_queries=2), array([[1., 1.]]))
    """

    plan: PersonalPlan
    votes: Votes
    answered: ArrayLike | None = None
    student: ArrayLike | None = None
    teams: Sequence[ArrayLike] | None = None

    def __post_init__(self) -> None:
        mechanism: Any = self.plan.mechanism
        if not hasattr(mechanism, "checked_against"):
            raise TypeError(
                "Expected GNMax, ConfidentGNMax or InteractiveGNMax to account for per group, "
                f"got {type(mechanism).__name__}. Its price is in plan.charges(...)."
            )
        if self.votes.ballots is None or self.votes.n_teachers != self.plan.n_teachers:
            raise ValueError(f"Expected the ballots of {self.plan.n_teachers} teachers, as the plan says.")
        if self.answered is None and mechanism.check_sigma is not None:
            raise ValueError(
                "Expected `answered`: which queries passed their check, and were charged an answer."
            )
        answered = np.ones(len(self.votes), dtype=bool) if self.answered is None else self.answered
        belief = None if self.student is None else np.asarray(self.student, dtype=np.float64)
        if (belief is None) == listens(mechanism):
            raise ValueError(
                "Expected the student's probabilities with an interactive mechanism, and only then."
            )
        object.__setattr__(self, "answered", answered_mask(answered, self.votes))
        object.__setattr__(self, "student", belief)
        object.__setattr__(self, "teams", None if self.teams is None else self._distinct_teams(self.teams))
        for own, unit in zip(self.plan.members, self.plan.units, strict=bool(self.plan.members)):
            loud = np.ones(1) if self.votes.weights is None else self.votes.weights[own]
            if np.any((loud != 0) & (loud != unit.linf)):
                raise ValueError(
                    "Expected votes weighted as the plan says, got other weights. "
                    "Use votes.weighted(plan.weights(n_queries, key=...))."
                )

    def _distinct_teams(self, teams: Sequence[ArrayLike]) -> tuple[Integers, ...]:
        # Persons whose data sits in the same teachers pay the same: one of them is enough.
        tables = [np.asarray(team) for team in teams]
        sizes = [int(unit.linf) for unit in self.plan.units]
        if [table.shape[1:] for table in tables] != [(size,) for size in sizes]:
            raise ValueError(
                f"Expected teams of {sizes} teachers, one table (persons, teachers) per group, "
                f"got shapes {[table.shape for table in tables]}."
            )
        return tuple(np.unique(np.sort(table, axis=1), axis=0) for table in tables)

    @property
    def others_are_silent(self) -> bool:
        """Return whether no teacher voted that is of none of the plan's groups."""
        outside = np.ones(self.plan.n_teachers, dtype=bool)
        for own in self.plan.members or (slice(None),):
            outside[own] = False
        weights = self.votes.weights
        return not (outside.any() if weights is None else weights[outside].any())

    def present(self, at: int) -> Floats:
        """Return who of a group takes part in which query, (members, queries); one row if all always do."""
        weights = self.votes.weights
        if weights is None or weights.ndim == 1 or not self.plan.members:
            return np.ones((1, len(self)))
        return (weights[self.plan.members[at]] > 0).astype(np.float64)

    def __len__(self) -> int:
        return len(self.votes)

    def __repr__(self) -> str:
        return f"Asked(<private>, variant={self.plan.variant!r}, n_queries={len(self)})"

    def __getitem__(self, rows: slice) -> "Asked":
        """Return the record of some of the queries."""
        part = copy(self)  # checked already
        object.__setattr__(part, "votes", self.votes[rows])
        object.__setattr__(part, "answered", np.asarray(self.answered)[rows])
        object.__setattr__(part, "student", None if self.student is None else np.asarray(self.student)[rows])
        return part


def teams_of(
    parts: Iterable[ArrayLike], owners: ArrayLike, *, group_of: ArrayLike, n_groups: int
) -> tuple[Integers, ...]:
    """Return, for each group, the teachers with each person's data: (persons, copies).

    `parts` are the rows of each teacher, `owners` says which person each of these rows belongs to, and
    `group_of` which group each person is in.
    """
    require_count(n_groups=n_groups)
    persons, groups = np.asarray(owners), np.asarray(group_of)
    pairs = [
        np.stack([persons[rows], np.full(len(rows), teacher)], axis=1)
        for teacher, rows in enumerate(np.asarray(part, dtype=np.int64) for part in parts)
    ]
    held = np.unique(np.concatenate(pairs), axis=0)
    teams = []
    for group in range(n_groups):
        own = held[groups[held[:, 0]] == group]
        _, copies = np.unique(own[:, 0], return_counts=True)
        if copies.size == 0 or np.any(copies != copies[0]):
            raise ValueError(
                f"Expected every person of group {group} behind equally many teachers, at least one. "
                "Seat persons by `upsampled_partition`."
            )
        teams.append(own[:, 1].reshape(copies.size, -1))
    return tuple(teams)


def totals(asked: Asked, accounting: Accounting, *, orders: ArrayLike | None = None) -> list[Floats]:
    """Return what the run cost, per group (directions, members, orders); private unless "public".

    Guarantee: for every member "exact" is the divergence of the whole release, forward and reverse (or above
               it, see `team_costs`); "published" bounds the forward one, along the path taken; "public" holds
               for any votes. "as_published" is no bound.
    Assumes:   as `exact_cost`; weights, absences and copies are public and were fixed before the votes.
    Reference: Papernot et al. 2018, Theorem 6; docs/maths/personalised.md.
    """
    if accounting not in get_args(Accounting):
        raise ValueError(f"Expected accounting as one of {get_args(Accounting)}, got {accounting!r}.")
    grid, mechanism, student = check_orders(orders), asked.plan.mechanism, asked.student
    if accounting != "exact":
        rows = [_rows(asked, unit, accounting, grid) for unit in asked.plan.units]
        return [(asked.present(at) @ costs)[None] for at, costs in enumerate(rows)]
    if asked.plan.members:
        by_teacher = teacher_costs(mechanism, asked.votes, orders=grid, student=student).reveal()
        return [by_teacher[:, own] for own in asked.plan.members]
    return [
        team_costs(mechanism, asked.votes, team, orders=grid, student=student).reveal()
        for team in _teams(asked)
    ]


def published_rows(
    mechanism: Any,
    votes: Votes,
    unit: Unit,
    *,
    form: Published = "published",
    answered: ArrayLike,
    student: ArrayLike | None = None,
    orders: ArrayLike | None = None,
) -> Floats:
    """Return Theorem 6 for a unit that moves more or less than a vote: one row per query, private.

    Guarantee: bounds the forward divergence of each query's check, and answer where it was answered, for the
               noise that is drawn; "as_tabulated" for continuous noise; "as_published" bounds nothing,
               since q is taken at the relative noise there.
    Assumes:   the unit moves one ballot of its weight, or that many ballots.
    Reference: Papernot et al. 2018, Theorem 6, at sigma / unit.linf; docs/maths/personalised.md.

    >>> from tellers import GNMax
    >>> votes = Votes.from_counts([[160, 90]], n_teachers=250)
    >>> made = dict(answered=[True], orders=[8.0])
    >>> published_rows(GNMax(40.0), votes, Unit.of_weight(3), **made).round(4)
    array([[0.045]])
    >>> published_rows(GNMax(40.0), votes, Unit.of_weight(3), form="as_published", **made).round(4)
    array([[0.0004]])
    """
    times, by, drawn = unit.linf, 1.0, form == "published"
    if form == "as_published":
        # The papers' votes count 1 on average among those present: noise relative to that, not to ours.
        present = votes.n_teachers if votes.weights is None else np.count_nonzero(votes.weights)
        whole = votes.n_teachers if votes.weights is None else votes.weights.sum()
        by = float(whole / present) / times
    log_q = log_q_gnmax(votes.counts, mechanism.sigma * by, drawn=drawn)
    rows = gaussian_bound(log_q, mechanism.sigma / times, orders=orders)
    rows *= np.asarray(answered, dtype=np.float64)[:, None]
    if mechanism.check_sigma is None:
        return rows
    relative = mechanism.check_sigma / times
    if form == "as_tabulated":
        return np.asarray(rows + check_orders(orders) / (2 * relative**2))
    margins = check_margins(votes, mechanism.threshold, student=student)
    odds = log_accept(margins, mechanism.check_sigma * by, drawn=drawn)
    return rows + threshold_bound(*odds, sigma_threshold=relative, orders=orders)


def _rows(asked: Asked, unit: Unit, accounting: Literal[Published, "public"], grid: Floats) -> Floats:
    """Return the cost of each query to whoever of a group takes part in it, (queries, orders)."""
    mechanism: Any = asked.plan.mechanism
    mask = np.asarray(asked.answered)
    if accounting != "public":
        given: dict[str, Any] = {"answered": mask, "student": asked.student, "orders": grid}
        return published_rows(mechanism, asked.votes, unit, form=accounting, **given)
    answer_price = getattr(mechanism, "answer_price", mechanism.price)
    priced = np.outer(mask, at_orders(answer_price, unit, grid).values)
    if mechanism.check_sigma is not None:
        priced += at_orders(mechanism.check_price, unit, grid).values
    return priced


def _teams(asked: Asked) -> list[ArrayLike]:
    if asked.teams is not None:
        return list(asked.teams)
    if any(unit.linf != 1 for unit in asked.plan.units):
        raise ValueError(
            "Expected `teams`, the teachers with each person's data, for exact costs. See `teams_of`."
        )
    return [np.arange(asked.plan.n_teachers)[:, None] for _ in asked.plan.groups]


# --- Costs per group as the queries go by: epsilons after each one, and how many fit all budgets. ---
#
# Epsilons that look at the votes are private, and so is the number of labels that they allow: a run that
# stops where a private cost reached a budget has a private stopping time. What comes out is sealed.


# Queries are added up in steps, and one by one only where a budget is passed.
_STEP = 64


@dataclass(frozen=True)
class WithinBudgets:
    """How far all budgets reach: queries, labels among them, and who would be over next, if anybody."""

    n_queries: int
    n_labels: int
    first_over: str | None


def running_epsilons(
    asked: Asked,
    *,
    every: int = 1,
    delta: float,
    orders: ArrayLike | None = None,
    accounting: Accounting = "exact",
    conversion: Conversion = "tight",
) -> Sealed[dict[str, Floats]]:
    """Return each group's epsilon after every so many queries, by its name, sealed.

    Entry k is after (k + 1) * every queries, the last one after all of them. With many persons, a larger
    `every` and fewer orders are less work.

    Guarantee: an epsilon at this delta for the worst member, by the accounting that is named; "as_published"
               guarantees nothing (see `published_rows`).
    Assumes:   as `totals`; where to stop does not depend on these numbers, unless they are public.
    Reference: docs/maths/personalised.md.
    """
    require_fraction(delta=delta)
    require_count(every=every)
    grid = check_orders(orders)
    spent, epsilons = list[Floats](), list[Floats]()
    for start in range(0, len(asked), every):
        spent = _added(spent, totals(asked[start : start + every], accounting, orders=grid))
        epsilons.append(_epsilons(spent, grid, delta=delta, conversion=conversion))
    names = [group.name for group in asked.plan.groups]
    return Sealed(dict(zip(names, np.array(epsilons).T, strict=True)))


def labels_within_budgets(
    asked: Asked,
    *,
    delta: float,
    accounting: Accounting = "exact",
    conversion: Conversion = "tight",
    orders: ArrayLike | None = None,
) -> Sealed[WithinBudgets]:
    """Return how many queries, and labels among them, fit every group's budget, sealed.

    The tables of the paper on personalised PATE come from `accounting="as_tabulated"`, `conversion="classic"`
    and orders 2 to 50.

    Guarantee: after so many queries no member of any group is above their budget, by the accounting named.
    Assumes:   as `running_epsilons`.
    Reference: docs/maths/personalised.md.
    """
    require_fraction(delta=delta)
    grid = check_orders(orders)
    budgets = np.array([group.epsilon for group in asked.plan.groups])
    answered = np.asarray(asked.answered)

    def over(costs: list[Floats]) -> NDArray[np.bool_]:
        return np.asarray(_epsilons(costs, grid, delta=delta, conversion=conversion) > budgets)

    spent: list[Floats] = []
    for start in range(0, len(asked), _STEP):
        step = asked[start : start + _STEP]
        after = _added(spent, totals(step, accounting, orders=grid))
        if not over(after).any():
            spent = after
            continue
        for fits in range(start, start + len(step)):
            spent = _added(spent, totals(asked[fits : fits + 1], accounting, orders=grid))
            passed = over(spent)
            if passed.any():
                name = asked.plan.groups[int(passed.argmax())].name
                return Sealed(WithinBudgets(fits, int(answered[:fits].sum()), name))
        spent = after
    return Sealed(WithinBudgets(len(asked), int(answered.sum()), None))


def _added(spent: list[Floats], costs: list[Floats]) -> list[Floats]:
    return [a + b for a, b in zip(spent, costs, strict=True)] if spent else [np.array(part) for part in costs]


def _epsilons(costs: list[Floats], grid: Floats, *, delta: float, conversion: Conversion) -> Floats:
    return np.array(
        [RdpCurve(grid, part.max(axis=(0, 1))).epsilon(delta, conversion=conversion) for part in costs]
    )
