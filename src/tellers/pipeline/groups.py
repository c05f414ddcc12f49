"""What a run cost each group of people: by the ledger, which may be told, and exactly, which may not."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..budget import Budget
from ..config import RunConfig
from ..labelling import Labels
from ..ledger import Entry, Ledger
from ..mechanisms import ConfidentGNMax, GNMax
from ..mechanisms.base import Mechanism
from ..personal import PersonalPlan, Upsampling, Vanishing
from ..personal.accounting import Asked, teams_of, totals
from ..personal.rounds import Round, rounds_on
from ..rdp import DEFAULT_ORDERS, RdpCurve
from ..sealed import Sealed
from ..votes import Votes
from .electorate import Electorate
from .endings import ended_by, listed, why_over

Cast = Callable[[tuple[str, ...]], tuple[Electorate, Votes]]


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
    rounds: tuple[Round, ...] = field(default=(), repr=False)

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
    is_over: bool = True,
) -> PersonalSpending:
    """Return what each group was charged for the questions under a key; nothing where there are no groups.

    Stated of a group is its budget, or what is known to be less: what was charged, where every query costs
    the same whatever comes out; or the price of all queries that could be asked. `is_over` says that
    budgets ended the asking: then it is noted where some of a budget could not be used.

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
    rounds: tuple[Round, ...] = ()
    if isinstance(plan, Upsampling) and electorate.trains_anew:
        rounds = rounds_on(ledger, plan, key=key)
    notes = [note]
    if is_over and electorate.leave:
        notes.append(why_over(ledger, plan, ceiling, used, rounds[-1].absent if rounds else ()))
    gone = batches[-1].absent if batches else ()
    ended = ended_by(ledger, plan.without(gone) if gone else plan, ceiling, used, key=f"{key}/{asked}")
    return PersonalSpending(tuple(groups), tuple(batches), tuple(filter(None, notes)), ended, rounds)


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
        **({"rounds": [asdict(one) for one in spending.rounds]} if spending.rounds else {}),
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
    electorate: Electorate,
    votes: Votes | None,
    *,
    labels: Labels,
    batches: Iterable[Batch],
    delta: float,
    cast: Cast | None = None,
) -> Sealed[list[dict[str, Any]]] | None:
    """Return each group's exact epsilon after every batch, sealed; None where it cannot be told.

    `votes` are those on the pool. Where teachers were trained anew, `cast(absent)` has those of each round,
    and what a person's teachers cost them in one is added to what others cost them in the next.

    Guarantee: none to publish: the numbers look at the votes.
    Assumes:   as `group_costs`, along a path that was fixed beforehand.
    Reference: docs/maths/personalised.md.

    >>> exact_by_groups(Electorate(None), None, labels=None, batches=(), delta=1e-5)
    """
    plan = electorate.plan
    if plan is None or votes is None or not isinstance(plan.mechanism, (GNMax, ConfidentGNMax)):
        return None
    anew = cast if electorate.trains_anew else None
    held: dict[str, NDArray[np.float64]] = {}
    start, asked_so_far, points = 0, 0, list[dict[str, Any]]()
    now: tuple[str, ...] | None = None
    seated, teams, persons = electorate, None if anew else _teams(electorate), dict[str, Any]()
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
            persons = _by_person(seated, teams)
        there = seated.plan
        assert there is not None
        if anew is None and batch.absent:
            there = there.without(batch.absent)
        weights = there.weights(batch.n_queries, key=batch.key)
        part = votes[rows] if weights is None else votes[rows].weighted(weights)
        asked = Asked(there, part, answered=answered, teams=teams)
        for group, costs in zip(there.groups, totals(asked, "exact"), strict=True):
            own = costs[:, persons[group.name]] if persons else costs
            held[group.name] = held.get(group.name, 0.0) + own
        points.append({"n_queries": asked_so_far, "epsilon": _epsilons(held, plan, delta)})
    return Sealed(points)


def _by_person(seated: Electorate, teams: Iterable[NDArray[np.int64]] | None) -> dict[str, Any]:
    """Return which of its group's distinct teams each person has, by group: as `Asked` tells them apart."""
    assert seated.plan is not None
    assert teams is not None
    return {
        group.name: np.unique(np.sort(team, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        for group, team in zip(seated.plan.groups, teams, strict=True)
    }


def _epsilons(held: Mapping[str, NDArray[np.float64]], plan: PersonalPlan, delta: float) -> dict[str, float]:
    return {
        group.name: RdpCurve(DEFAULT_ORDERS, held[group.name].max(axis=(0, 1))).epsilon(delta)
        if group.name in held
        else 0.0
        for group in plan.groups
    }


def _teams(electorate: Electorate) -> tuple[NDArray[np.int64], ...] | None:
    plan, consent, source = electorate.plan, electorate.consent, electorate.source
    if plan is None or consent is None or plan.members:
        return None
    if source is None and not electorate.trains_anew:
        return None
    owners = consent.persons if source is None else consent.persons[source]
    # Numbered as in the plan, which may be without some of the groups.
    number = {group.name: at for at, group in enumerate(plan.groups)}
    places = np.array([number.get(group.name, -1) for group in consent.groups])
    return teams_of(
        electorate.partition, owners, group_of=places[consent.group_of], n_groups=len(plan.groups)
    )
