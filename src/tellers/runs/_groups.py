"""People with budgets of their own in a run: who agreed to what, how groups take part, what each paid."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.dataset import Dataset
from ..data.tables import MISSING, read_columns
from ..errors import BudgetExhausted
from ..ledger.base import Entry, Ledger, open_group_accounts
from ..mechanisms.base import Mechanism
from ..mechanisms.registry import listens
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import DEFAULT_ORDERS, RdpCurve
from ..privacy.sealed import Sealed
from ..privacy.votes import Votes
from ..teachers.partitions import assignment_key, identities, positions
from ._folder import publications_of
from .labelling import Labels
from .personal._optimise import weights_by_price
from .personal.accounting import Asked, teams_of, totals
from .personal.assignment import Assignment, arrange
from .personal.consent import Consent, read_consent
from .personal.plan import PersonalPlan
from .personal.rounds import cannot_pay, rounds_on, who_goes_on
from .personal.variants import Upsampling, Vanishing, teachers_per_group
from .result import GroupPart, GroupPoint, LeftPart, PersonalPart
from .settings.sections import RunConfig

# Who agreed to which budget: from a column, a file, or dealt at random

_DEALT = (
    "Who agreed to which budget was dealt at random by the seed ({shares}): an experiment. Nobody was asked."
)
# Batches of vanishing may lose so much to rounding before others are taken.
_LITTLE = 1.02
HOW = ("weight", "frequency", "copies")  # what a group has, by the variant


def budgets_from_file(path: Path, persons: ArrayLike, *, levels: bool) -> NDArray[Any]:
    """Return the budget, or with `levels` the level, of each row's person, by a CSV file of persons."""
    wanted, one = ("level", "a level") if levels else ("epsilon", "an epsilon")
    columns = read_columns(path)
    if "person" not in columns or wanted not in columns:
        why = "levels are declared" if levels else "no levels are declared"
        raise ValueError(
            f"{path.name}: Expected the columns person and {wanted}, as {why}, got {', '.join(columns)}."
        )
    agreed: dict[str, str] = {}
    for row, (person, said) in enumerate(zip(*(_words(columns[name]) for name in ("person", wanted)))):
        if person in MISSING or said in MISSING:
            raise ValueError(f"{path.name}: Expected a person and {one} in every row, none in row {row}.")
        if person in agreed:
            raise ValueError(f"{path.name}: Expected one row per person, got a second one in row {row}.")
        agreed[person] = said
    names = _words(np.asarray(persons))
    missing = [row for row, name in enumerate(names) if name not in agreed]
    if missing:
        raise ValueError(
            f"{path.name}: Expected {one} for every person, got none for the person of row "
            f"{missing[0]} of the data. Ask them, or leave their rows out."
        )
    entries = [agreed[name] for name in names]
    if levels:
        return np.array(entries)
    try:
        return np.array(entries, dtype=np.float64)
    except ValueError:
        raise ValueError(
            f"{path.name}: Expected numbers in epsilon, got words. Names need levels in [personal]."
        ) from None


def read_agreed(config: RunConfig, data: Dataset) -> Consent:
    """Return who agreed to what among the private rows; persons are those of the partition."""
    chosen = config.personal
    persons = data.persons if config.protects == "person" else None
    budgets: Any = data.budgets
    if chosen.shares:
        if persons is None:
            # Each level as often as its share says, give or take one.
            ends = np.rint(np.cumsum(list(chosen.shares.values())) * len(data)).astype(int)
            counts = np.diff(ends, prepend=0)
            counts[-1] += len(data) - ends[-1]
            dealt = np.repeat(np.array(list(chosen.shares)), counts)
            # Another stream than that of the partition, which has the same seed.
            budgets = np.random.default_rng([int(config.seed), 1]).permutation(dealt).tolist()
        else:
            names = identities(persons, name="persons")
            drawn = positions(names, key=assignment_key(config.seed), purpose="level")
            ends = np.cumsum(list(chosen.shares.values()))[:-1]
            levels_of = list(chosen.shares)
            budgets = [levels_of[at] for at in np.searchsorted(ends, drawn, side="right")]
    if budgets is None:
        raise ValueError(f"Expected budgets in {data.name!r}, got none.")
    levels = dict(chosen.levels) or None
    if levels is not None:
        budgets = _words(np.asarray(budgets))
    try:
        return read_consent(
            budgets, delta=config.budget.delta, levels=levels, persons=persons, max_groups=chosen.max_groups
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config.where('personal', chosen.source)}: {error}") from error


def _words(column: NDArray[Any]) -> list[str]:
    """Return entries as text, 3.0 as 3: a file may have stored a name as a number."""
    entries = column.tolist()
    return [str(int(e)) if isinstance(e, float) and e.is_integer() else str(e) for e in entries]


# How groups take part: whose rows go to whom, and their accounts


def seat_groups(config: RunConfig, data: Dataset) -> Assignment:
    """Return which private rows each teacher gets by the plan of the groups, and that plan."""
    chosen, mechanism = config.personal, config.mechanism.build()
    assert chosen.variant  # there are groups
    consent = read_agreed(config, data)
    try:
        n_teachers = config.partition.n_teachers
        options = _options(config, consent, mechanism)
        seated = arrange(
            chosen.variant, consent, mechanism, n_teachers=n_teachers, seed=config.seed, **options
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config.where('personal', 'variant')}: {error}") from error
    notes: tuple[str, ...] = ()
    if chosen.shares:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in chosen.shares.items())
        notes = (_DEALT.format(shares=shares),)
    leave = chosen.leave and len(consent.groups) > 1  # who is alone has nobody to leave
    return replace(seated, leave=leave, notes=notes)


def _options(config: RunConfig, consent: Consent, mechanism: Mechanism) -> dict[str, Any]:
    chosen, options = config.personal, dict[str, Any]()
    if chosen.variant == "vanishing":
        options["power"] = chosen.power
    else:
        options["precision"] = chosen.precision or None
    if chosen.variant == "upsampling":
        return {**options, "grow": chosen.grow, "most": chosen.most}
    options["min_persons"] = chosen.min_persons or None
    if chosen.weights == "price":
        groups, least = consent.groups, options["min_persons"]
        per_group = teachers_per_group(groups, config.partition.n_teachers, min_persons=least)
        options["weights"] = weights_by_price(groups, per_group, mechanism, delta=config.budget.delta)
    return options


def group_rows(plan: PersonalPlan, consent: Consent) -> list[dict[str, Any]]:
    """Return one row per group: who is in it, and how it takes part; public, before anything runs."""
    rows = []
    for at, known in enumerate(consent.summary()):
        how = {name: getattr(plan, f"{name}_of")[at] for name in HOW if hasattr(plan, f"{name}_of")}
        rows.append(
            {
                "name": known["group"], "epsilon": known["epsilon"], "n_persons": known["persons"],
                "share": known["share"], "waste": known["waste"],
                "n_teachers": len(plan.members[at]) if plan.members else plan.n_teachers, **how,
            }
        )  # fmt: skip
    return rows


def batch_size(plan: PersonalPlan, wanted: int, *, most: int) -> tuple[int, str]:
    """Return how many queries share a batch, and words where that is not what was wanted, or loses."""
    if not isinstance(plan, Vanishing) or plan.loss(wanted) <= _LITTLE:
        return wanted, ""
    period = plan.period
    size = -(-wanted // period) * period
    if size <= most and plan.loss(size) < plan.loss(wanted):
        return size, (
            f"Batches are of {size} queries and not of {wanted}, in which a group, which pays for its "
            f"busiest teacher, would pay up to {plan.loss(wanted):.2f} times its fair share."
        )
    return wanted, (
        f"In batches of {wanted} queries a group, which pays for its busiest teacher, pays up to "
        f"{plan.loss(wanted):.2f} times its fair share. Batches of {period} would lose least."
    )


def open_groups(ledger: Ledger, config: RunConfig, assignment: Assignment, *, key: str) -> None:
    """Open the accounts of all groups, and see that each can pay for a question of its own."""
    plan, delta = assignment.plan, config.budget.delta
    assert plan is not None  # there are groups
    open_group_accounts(ledger, {group.name: Budget(group.epsilon, delta) for group in plan.groups})
    if ledger.asked(f"{key}/0") is not None:
        return
    first = plan.using(config.warm_up() or config.mechanism.build())
    states, refusals = ledger.accounts(), list[BudgetExhausted]()
    for group, unit in zip(first.groups, first.units, strict=True):
        state, price = states[group.account], first.mechanism.price(unit)
        try:
            Accountant(Budget(config.budget.epsilon, delta)).require(ledger.spent, price, key=f"{key}/0")
            state.accountant.require(state.spent, price, key=f"{key}/0", account=group.account)
        except BudgetExhausted as refusal:
            refusals.append(refusal)
    # Whoever cannot pay once leaves at once, if groups may leave; somebody must stay.
    if refusals and not (assignment.leave and len(refusals) < len(plan.groups)):
        raise refusals[0]


# Why asking ended


def ended_by(
    ledger: Ledger, plan: PersonalPlan, ceiling: Budget, mechanisms: list[Mechanism], *, key: str
) -> str:
    """Return whose budget does not pay for the next query, among those who take part in it."""
    for mechanism in mechanisms:
        prices = plan.using(mechanism).prices(1, key=key)
        short = cannot_pay(plan, prices, ledger.accounts())
        if short:
            return f"the budget of {short[0]}" if len(short) == 1 else f"the budgets of {listed(short)}"
        if not all(Accountant(ceiling).affords(ledger.spent, price) for price in prices.values()):
            return "the ceiling for everybody"
    return ""


def why_over(
    ledger: Ledger, plan: PersonalPlan, ceiling: Budget, mechanisms: list[Mechanism], absent: Iterable[str]
) -> str:
    """Return words where groups that could pay are held by the budget for everybody, or are too few."""
    states, able, prices = ledger.accounts(), list[str](), list[list[RdpCurve]]()
    if isinstance(plan, Upsampling):
        standing = who_goes_on(plan, mechanisms[0], states, absent=absent)
        if standing.plan is None:
            return standing.why
        able = [group.name for group in standing.plan.groups]
        prices = [list(standing.plan.prices(1, key="").values())]  # they go on together, or not at all
    else:
        for group in plan.groups:
            others = [other.name for other in plan.groups if other is not group]
            alone = (plan.without(others) if others else plan).using(mechanisms[0])
            price, state = alone.mechanism.price(alone.units[0]), states[group.account]
            if state.accountant.affords(state.spent, price):
                able.append(group.name)
                prices.append([price])
    main = Accountant(ceiling)
    if not able or any(all(main.affords(ledger.spent, one) for one in each) for each in prices):
        return ""
    return (
        f"The budget for everybody, epsilon = {ceiling.epsilon:g}, ended it while {', '.join(able)} could "
        "have gone on: the main account is charged what the dearest group pays for each query. Raise it "
        "where groups leave."
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return names for a sentence, the first few of them by name."""
    if len(names) > most:
        n_others = len(names) - most
        return f"{', '.join(names[:most])} and {n_others} other{'s' if n_others > 1 else ''}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


# What each group paid


Cast = Callable[[tuple[str, ...]], tuple[Assignment, Votes]]


@dataclass(frozen=True)
class Batch:
    """One batch that was asked: its key, how many queries, the groups that took no part, and the labels."""

    key: str
    n_queries: int
    absent: tuple[str, ...] = ()
    is_settled: bool = True
    n_labels: int = 0


@dataclass(frozen=True)
class PersonalSpending:
    """The batches of a run with budgets per group, and what its result says of the groups.

    `ended_by` says whose budget does not pay for one more query, in words; "" where all of them do.
    """

    part: PersonalPart
    batches: tuple[Batch, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    ended_by: str = ""

    @property
    def epsilon(self) -> float:
        """Return the epsilon that may be stated for everybody: the largest of any group."""
        return max(group.stated for group in self.part.groups)


def batches_under(ledger: Ledger, key: str) -> list[Batch]:
    """Return the batches that were asked under a key, in that order."""
    return [_batch(entry) for entry in ledger.entries() if entry.key.startswith(f"{key}/")]


def _batch(entry: Entry) -> Batch:
    n, absent = int(entry.event["n_queries"]), tuple(entry.event["groups"]["absent"])
    n_labels = 0 if entry.release is None else int(entry.release.answered.sum())
    return Batch(entry.key, n, absent, entry.is_settled, n_labels)


def spent_by_groups(
    ledger: Ledger,
    assignment: Assignment,
    *,
    key: str,
    ceiling: Budget,
    most: int,
    mechanisms: Iterable[Mechanism],
    note: str = "",
    is_over: bool = True,
    is_fixed: bool = True,
) -> PersonalSpending:
    """Return what each group was charged for the questions under a key.

    Stated of a group is its budget, or what is known to be less where the questions were fixed beforehand and
    nobody else asked: what was charged, where every query costs the same whatever comes out; or the price of
    all queries that could be asked. `is_over` says that budgets ended the asking: then it is noted where some
    of a budget could not be used.

    Guarantee: all labels on the ledger together are (epsilon, delta)-differentially private for one person of
               the group. What it cost to publish costs comes on top, and is told with them.
    Assumes:   groups paid for every question on the ledger, by a plan that follows from public budgets.
    Reference: as `guaranteed_epsilon`, for each account.
    """
    plan, consent = assignment.plan, assignment.consent
    assert plan is not None  # there are groups
    assert consent is not None
    used, states = list(mechanisms), ledger.accounts()
    spent: dict[str, RdpCurve] = {group.name: RdpCurve.zero() for group in plan.groups}
    cost: list[GroupPoint] = []
    took_part, labels = dict.fromkeys(spent, 0), dict.fromkeys(spent, 0)
    batches, asked, left_after = list[Batch](), 0, dict[str, int]()
    for entry in ledger.entries():
        if entry.key.startswith(publications_of(key)):
            continue
        for group in plan.groups:
            if group.account in entry.also:
                spent[group.name] = spent[group.name] + entry.also[group.account].charged
        if not entry.key.startswith(f"{key}/"):
            continue
        batches.append(batch := _batch(entry))
        for name in spent:
            if name in batch.absent:
                left_after.setdefault(name, asked)
            else:
                took_part[name] += batch.n_queries
                labels[name] += batch.n_labels
        asked += batch.n_queries
        so_far = {name: curve.epsilon(ceiling.delta) for name, curve in spent.items()}
        cost.append(GroupPoint(n_queries=asked, epsilon=so_far))
    # The price of all queries that could be asked, whoever of a group takes part.
    prices: dict[str, list[RdpCurve]] = {name: [] for name in spent}
    for there in () if assignment.leave or not is_fixed else map(plan.using, used):
        for group, unit in zip(there.groups, there.units, strict=True):
            prices[group.name].append(most * there.mechanism.price(unit))
    groups = []
    for row, group in zip(group_rows(plan, consent), plan.groups, strict=True):
        name, charged = group.name, spent[group.name].epsilon(ceiling.delta)
        stated = min(group.epsilon, ceiling.epsilon)
        if is_fixed and all(getattr(mechanism, "one_price", False) for mechanism in used):
            stated = min(stated, charged)
        if prices[name]:
            stated = min(stated, RdpCurve.largest(prices[name]).epsilon(ceiling.delta))
        state = states[group.account]
        groups.append(
            GroupPart(
                **row,
                stated=stated,
                spent=charged,
                budget_left=state.accountant.left(state.spent),
                n_queries=took_part[name],
                n_labels=labels[name],
            )
        )
    rounds: dict[str, Any] = {}
    absent: tuple[str, ...] = ()
    if isinstance(plan, Upsampling) and assignment.trains_anew:
        found = rounds_on(ledger, plan, key=key)
        absent = found[-1].absent if found else ()
        rounds = {"rounds": found} if found else {}
    notes = [note]
    if is_over and assignment.leave:
        notes.append(why_over(ledger, plan, ceiling, used, absent))
    gone = batches[-1].absent if batches else ()
    ended = ended_by(ledger, plan.without(gone) if gone else plan, ceiling, used, key=f"{key}/{asked}")
    part = PersonalPart(
        variant=plan.variant,
        leave=assignment.leave,
        plan=tuple(plan.summary),
        groups=tuple(groups),
        cost=tuple(cost),
        left=tuple(LeftPart(name=name, after=left_after[name]) for name in spent if name in left_after),
        **rounds,
    )
    return PersonalSpending(part, tuple(batches), tuple(filter(None, notes)), ended)


def ceiling_notes(config: RunConfig, assignment: Assignment) -> tuple[str, ...]:
    """Return a warning where the budget for everybody is below what a group agreed to; public."""
    ceiling, groups = config.budget.epsilon, () if assignment.plan is None else assignment.plan.groups
    above = [group.name for group in groups if group.epsilon > ceiling]
    if not above:
        return ()
    most = max(group.epsilon for group in groups)
    return (
        f"[budget] epsilon = {ceiling:g} is the ceiling for everybody, and below what {listed(above)} agreed "
        f"to: they can never use all of it. Raise it to {most:g} or more to use their budgets.",
    )


def exact_by_groups(
    assignment: Assignment,
    votes: Votes | None,
    *,
    labels: Labels,
    batches: Iterable[Batch],
    delta: float,
    cast: Cast | None = None,
) -> Sealed[tuple[GroupPoint, ...]] | None:
    """Return each group's exact epsilon after every batch, sealed; None where it cannot be told.

    `votes` are those on the pool. Where teachers were trained anew, `cast(absent)` has those of each round,
    and what a person's teachers cost them in one is added to what others cost them in the next.

    Guarantee: none to publish: the numbers look at the votes.
    Assumes:   as `totals`, along a path that was fixed beforehand.
    Reference: docs/maths/personalised.md.
    """
    plan = assignment.plan
    if plan is None or votes is None:
        return None
    # Exact costs per group are known along a path that no student has a say in.
    if listens(plan.mechanism) or not hasattr(plan.mechanism, "checked_against"):
        return None
    anew = cast if assignment.trains_anew else None
    held = {group.name: np.zeros((1, 1, DEFAULT_ORDERS.size)) for group in plan.groups}
    start, asked_so_far, points = 0, 0, list[GroupPoint]()
    now: tuple[str, ...] | None = None
    seated, teams, persons = assignment, None if anew else _teams(assignment), dict[str, Any]()
    for batch in batches:
        asked_so_far += batch.n_queries
        if not batch.is_settled:  # nothing came out of it
            continue
        rows = labels.rows[start : start + batch.n_queries]
        answered = labels.by_teachers[start : start + batch.n_queries]
        start += batch.n_queries
        if anew is not None and batch.absent != now:
            now = batch.absent
            seated, votes = anew(now)
            teams = _teams(seated)
            assert seated.plan is not None
            assert teams is not None
            # Which of its group's distinct teams each person has, as `Asked` tells them apart.
            persons = {
                group.name: np.unique(np.sort(team, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
                for group, team in zip(seated.plan.groups, teams, strict=True)
            }
        there = seated.plan
        assert there is not None
        if anew is None and batch.absent:
            there = there.without(batch.absent)
        weights = there.weights(batch.n_queries, key=batch.key)
        part = votes[rows] if weights is None else votes[rows].weighted(weights)
        asked = Asked(there, part, answered=answered, teams=teams)
        for group, costs in zip(there.groups, totals(asked, "exact"), strict=True):
            own = costs[:, persons[group.name]] if persons else costs
            held[group.name] = held[group.name] + own
        so_far = {
            name: RdpCurve(DEFAULT_ORDERS, costs.max(axis=(0, 1))).epsilon(delta)
            for name, costs in held.items()
        }
        points.append(GroupPoint(n_queries=asked_so_far, epsilon=so_far))
    return Sealed(tuple(points))


def _teams(assignment: Assignment) -> tuple[NDArray[np.int64], ...] | None:
    plan, consent, source = assignment.plan, assignment.consent, assignment.source
    if plan is None or consent is None or plan.members:
        return None
    if source is None and not assignment.trains_anew:
        return None
    owners = consent.persons if source is None else consent.persons[source]
    # Numbered as in the plan, which may be without some of the groups.
    number = {group.name: at for at, group in enumerate(plan.groups)}
    places = np.array([number.get(group.name, -1) for group in consent.groups])
    return teams_of(
        assignment.partition, owners, group_of=places[consent.group_of], n_groups=len(plan.groups)
    )
