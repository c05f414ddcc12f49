"""What a run cost each group of people: by the ledger, which may be told, and exactly, which may not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..budget import Accountant, Budget
from ..config import RunConfig
from ..labelling import Labels
from ..ledger import Entry, Ledger
from ..mechanisms import ConfidentGNMax, GNMax
from ..mechanisms.base import Mechanism
from ..personal import PersonalPlan, Vanishing
from ..personal.accounting import Asked, teams_of, totals
from ..rdp import DEFAULT_ORDERS, RdpCurve
from ..sealed import Sealed
from ..votes import Votes
from .electorate import Electorate


@dataclass(frozen=True)
class Batch:
    """One batch that was asked: its key, how many queries, the groups that took no part, and the labels.

    >>> Batch("run/0", n_queries=10).absent
    ()
    """

    key: str
    n_queries: int
    absent: tuple[str, ...] = ()
    is_settled: bool = True
    n_labels: int = 0


@dataclass(frozen=True)
class GroupSpending:
    """What the ledger says of one group: what is stated, what was charged, and how long it took part.

    `left_after` is after how many queries it first took no part, None if it always did; `curve` says what was
    charged after how many queries; `n_labels` is how many labels the teachers gave while it took part.

    >>> GroupSpending("low", epsilon=0.7, charged=0.69, left=0.02, n_queries=40).left_after
    """

    name: str
    epsilon: float
    charged: float
    left: float
    n_queries: int
    left_after: int | None = None
    curve: tuple[tuple[int, float], ...] = ()
    n_labels: int = 0


@dataclass(frozen=True)
class PersonalSpending:
    """The batches of a run with budgets per group, and what they cost each.

    `ended_by` says whose budget does not pay for one more query, in words; "" where all of them do.

    >>> PersonalSpending((), ()).epsilon
    0.0
    """

    groups: tuple[GroupSpending, ...]
    batches: tuple[Batch, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    ended_by: str = ""

    @property
    def epsilon(self) -> float:
        """Return the epsilon that may be stated for everybody: the largest of any group."""
        return max((group.epsilon for group in self.groups), default=0.0)


def batches_under(ledger: Ledger, key: str) -> list[Batch]:
    """Return the batches that were asked under a key, in that order.

    >>> from tellers import Accountant, MemoryLedger
    >>> batches_under(MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5))), "run")
    []
    """
    return [_batch(entry) for entry in ledger.entries() if entry.key.startswith(f"{key}/")]


def publications_of(key: str) -> str:
    """Return what the keys begin with under which publications of a run are charged.

    >>> publications_of("4f1a")
    '4f1a:publication/'
    """
    return f"{key}:publication/"


def _batch(entry: Entry) -> Batch:
    n, absent = int(entry.event["n_queries"]), tuple(entry.event["groups"]["absent"])
    n_labels = 0 if entry.release is None else int(entry.release.answered.sum())
    return Batch(entry.key, n, absent, entry.is_settled, n_labels)


def spent_by_groups(
    ledger: Ledger,
    electorate: Electorate,
    *,
    key: str,
    ceiling: Budget,
    most: int,
    mechanisms: Iterable[Mechanism],
    note: str = "",
) -> PersonalSpending:
    """Return what each group was charged for the questions under a key; nothing where there are no groups.

    Stated of a group is its budget, or what is known to be less: what was charged, where every query costs
    the same whatever comes out; or the price of all queries that could be asked.

    Guarantee: all labels on the ledger together are (epsilon, delta)-differentially private for one person of
               the group. What it cost to publish costs comes on top, and is told with them.
    Assumes:   groups paid for every question on the ledger, by a plan that follows from public budgets.
    Reference: as `guaranteed_epsilon`, for each account.

    >>> from tellers import Accountant, MemoryLedger
    >>> from tellers.teachers.partition import partition
    >>> budget = Budget(epsilon=1.0, delta=1e-5)
    >>> plain = Electorate(partition(10, 2, seed=7))
    >>> spent_by_groups(MemoryLedger(Accountant(budget)), plain, key="q", ceiling=budget, most=5,
    ...                 mechanisms=[GNMax(4.0)])
    PersonalSpending(groups=(), notes=(), ended_by='')
    """
    plan = electorate.plan
    if plan is None:
        return PersonalSpending((), ())
    used, states = list(mechanisms), ledger.accounts()
    spent: dict[str, RdpCurve] = {group.name: RdpCurve.zero() for group in plan.groups}
    curves: dict[str, list[tuple[int, float]]] = {name: [] for name in spent}
    took_part, labels = dict.fromkeys(spent, 0), dict.fromkeys(spent, 0)
    batches, asked, alone = list[Batch](), 0, True
    for entry in ledger.entries():
        if entry.key.startswith(publications_of(key)):
            continue
        for group in plan.groups:
            if group.account in entry.also:
                spent[group.name] = spent[group.name] + entry.also[group.account].charged
        if not entry.key.startswith(f"{key}/"):
            alone = False
            continue
        batches.append(batch := _batch(entry))
        asked += batch.n_queries
        for name, curve in curves.items():
            curve.append((asked, spent[name].epsilon(ceiling.delta)))
            if name not in batch.absent:
                took_part[name] += batch.n_queries
                labels[name] += batch.n_labels
    prices = _most(electorate, plan, most, used) if alone else {}
    groups = []
    for group in plan.groups:
        name, charged = group.name, spent[group.name].epsilon(ceiling.delta)
        stated = min(group.epsilon, ceiling.epsilon)
        if alone and all(getattr(mechanism, "one_price", False) for mechanism in used):
            stated = min(stated, charged)
        if name in prices:
            stated = min(stated, prices[name].epsilon(ceiling.delta))
        state = states[group.account]
        groups.append(
            GroupSpending(
                name=name,
                epsilon=stated,
                charged=charged,
                left=state.accountant.left(state.spent),
                n_queries=took_part[name],
                left_after=_first_without(name, batches),
                curve=tuple(curves[name]),
                n_labels=labels[name],
            )
        )
    notes = [note, _held_by_ceiling(ledger, electorate, plan, ceiling, used)]
    gone = batches[-1].absent if batches else ()
    ended_by = _ended_by(ledger, plan.without(gone) if gone else plan, ceiling, used, key=f"{key}/{asked}")
    return PersonalSpending(tuple(groups), tuple(batches), tuple(filter(None, notes)), ended_by)


def _ended_by(
    ledger: Ledger, plan: PersonalPlan, ceiling: Budget, mechanisms: list[Mechanism], *, key: str
) -> str:
    """Return whose budget does not pay for the next query, among those who take part in it."""
    states = ledger.accounts()
    for mechanism in mechanisms:
        prices = plan.using(mechanism).prices(1, key=key)
        short = [
            group.name
            for group in plan.groups
            if not states[group.account].accountant.affords(states[group.account].spent, prices[group.name])
        ]
        if short:
            return f"the budget of {short[0]}" if len(short) == 1 else f"the budgets of {listed(short)}"
        if not all(Accountant(ceiling).affords(ledger.spent, price) for price in prices.values()):
            return "the ceiling for everybody"
    return ""


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return names for a sentence, the first few of them by name.

    >>> listed(["low", "mid", "high"]), listed(["a", "b", "c", "d", "e"])
    ('low, mid and high', 'a, b, c and 2 others')
    """
    if len(names) > most:
        n_others = len(names) - most
        return f"{', '.join(names[:most])} and {n_others} other{'s' if n_others > 1 else ''}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _held_by_ceiling(
    ledger: Ledger, electorate: Electorate, plan: PersonalPlan, ceiling: Budget, mechanisms: list[Mechanism]
) -> str:
    """Return words where groups that may go on by themselves are held by the budget for everybody."""
    if not electorate.leave:
        return ""
    states, can_pay = ledger.accounts(), []
    for group in plan.groups:
        others = [other.name for other in plan.groups if other is not group]
        alone = (plan.without(others) if others else plan).using(mechanisms[0])
        price, state = alone.mechanism.price(alone.units[0]), states[group.account]
        if state.accountant.affords(state.spent, price):
            if Accountant(ceiling).affords(ledger.spent, price):
                return ""
            can_pay.append(group.name)
    if not can_pay:
        return ""
    return (
        f"[budget] epsilon = {ceiling.epsilon:g} ended it while {', '.join(can_pay)} could have gone on: the "
        "main account is charged what the dearest group pays for each query. Raise it for leave = true."
    )


def _most(
    electorate: Electorate, plan: PersonalPlan, most: int, mechanisms: list[Mechanism]
) -> dict[str, RdpCurve]:
    """Return the price of all queries that could be asked, where it does not hang on batches or leavers."""
    if electorate.leave or (isinstance(plan, Vanishing) and min(plan.frequency_of) < 1):
        return {}
    prices = [plan.using(mechanism).prices(most, key="") for mechanism in mechanisms]
    return {
        name: RdpCurve(curve.orders, np.max([each[name].values for each in prices], axis=0))
        for name, curve in prices[0].items()
    }


def _first_without(name: str, batches: list[Batch]) -> int | None:
    asked = 0
    for batch in batches:
        if name in batch.absent:
            return asked
        asked += batch.n_queries
    return None


def personal_numbers(
    electorate: Electorate, spending: PersonalSpending, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return what `result.json` says of the groups; `rows` are those of `group_rows`, in the same order.

    >>> personal_numbers(Electorate(None), PersonalSpending((), ()), [])
    {}
    """
    plan = electorate.plan
    if plan is None:
        return {}
    names = [group.name for group in spending.groups]
    steps = zip(*(group.curve for group in spending.groups), strict=True)
    return {
        "variant": plan.variant,
        "leave": electorate.leave,
        "plan": list(plan.summary),
        "groups": [
            {**row, "stated": group.epsilon, "spent": group.charged, "budget_left": group.left,
             "n_queries": group.n_queries, "n_labels": group.n_labels}
            for row, group in zip(rows, spending.groups, strict=True)
        ],
        "cost": [
            {"n_queries": step[0][0], "epsilon": dict(zip(names, (e for _, e in step), strict=True))}
            for step in steps
        ],
        "left": [
            {"name": group.name, "after": group.left_after}
            for group in spending.groups
            if group.left_after is not None
        ],
    }  # fmt: skip


def ceiling_notes(config: RunConfig, electorate: Electorate) -> tuple[str, ...]:
    """Return a warning where the budget for everybody is below what a group agreed to; public.

    >>> ceiling_notes(RunConfig(), Electorate(None))
    ()
    """
    ceiling, groups = config.budget.epsilon, () if electorate.plan is None else electorate.plan.groups
    above = [group.name for group in groups if group.epsilon > ceiling]
    if not above:
        return ()
    most = max(group.epsilon for group in groups)
    return (
        f"[budget] epsilon = {ceiling:g} is the ceiling for everybody, and below what {listed(above)} agreed "
        f"to: they can never use all of it. Raise it to {most:g} or more to use their budgets.",
    )


def exact_by_groups(
    electorate: Electorate, votes: Votes, *, labels: Labels, batches: Iterable[Batch], delta: float
) -> Sealed[list[dict[str, Any]]] | None:
    """Return each group's exact epsilon after every batch, sealed; None where it cannot be told.

    `votes` are those on the rows of `labels`, one batch after another.

    Guarantee: none to publish: the numbers look at the votes.
    Assumes:   as `group_costs`, along a path that was fixed beforehand.
    Reference: docs/maths/personalised.md.

    >>> exact_by_groups(Electorate(None), None, labels=None, batches=(), delta=1e-5)
    """
    plan = electorate.plan
    if plan is None or not isinstance(plan.mechanism, (GNMax, ConfidentGNMax)):
        return None
    teams = _teams(electorate)
    held: dict[str, NDArray[np.float64]] = {}
    start, asked_so_far, points = 0, 0, list[dict[str, Any]]()
    for batch in batches:
        asked_so_far += batch.n_queries
        if not batch.is_settled:  # nothing came out of it
            continue
        now = slice(start, start + batch.n_queries)
        start = now.stop
        there = plan.without(batch.absent) if batch.absent else plan
        weights = there.weights(batch.n_queries, key=batch.key)
        part = votes[now] if weights is None else votes[now].weighted(weights)
        asked = Asked(there, part, answered=labels.by_teachers[now], teams=teams)
        for group, costs in zip(there.groups, totals(asked, "exact"), strict=True):
            held[group.name] = held.get(group.name, 0.0) + costs
        points.append({"n_queries": asked_so_far, "epsilon": _epsilons(held, plan, delta)})
    return Sealed(points)


def _epsilons(held: Mapping[str, NDArray[np.float64]], plan: PersonalPlan, delta: float) -> dict[str, float]:
    return {
        group.name: RdpCurve(DEFAULT_ORDERS, held[group.name].max(axis=(0, 1))).epsilon(delta)
        if group.name in held
        else 0.0
        for group in plan.groups
    }


def _teams(electorate: Electorate) -> tuple[NDArray[np.int64], ...] | None:
    plan, consent = electorate.plan, electorate.consent
    if plan is None or consent is None or plan.members or electorate.source is None:
        return None
    owners = consent.persons[electorate.source]
    return teams_of(electorate.partition, owners, group_of=consent.group_of, n_groups=len(consent.groups))
