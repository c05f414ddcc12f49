"""Costs per group as the queries go by: epsilons after each one, and how many fit all budgets.

Epsilons that look at the votes are private, and so is the number of labels that they allow: a run that stops
where a private cost reached a budget has a private stopping time. What comes out is sealed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_fraction
from ..rdp import Conversion, Floats, RdpCurve, check_orders
from ..sealed import Sealed
from .accounting import Accounting, Asked, each_query, totals
from .together import Reverse

# Queries are added up in steps, and one by one only where a budget is passed.
_STEP = 64


@dataclass(frozen=True)
class WithinBudgets:
    """How far all budgets reach: queries, labels among them, and who would be over next, if anybody.

    >>> WithinBudgets(n_queries=376, n_labels=234, first_over="high").n_labels
    234
    """

    n_queries: int
    n_labels: int
    first_over: str | None


def running_epsilons(
    asked: Asked,
    *,
    delta: float,
    accounting: Accounting = "exact",
    conversion: Conversion = "tight",
    orders: ArrayLike | None = None,
    every: int = 1,
    reverse: Reverse = "enumerate",
) -> Sealed[dict[str, Floats]]:
    """Return each group's epsilon after every so many queries, by its name, sealed.

    Entry k is after (k + 1) * every queries, the last one after all of them. With many persons, a larger
    `every` and fewer orders are less work.

    Guarantee: an epsilon at this delta for the worst member, by the accounting that is named; "as_published"
               guarantees nothing (see `published_rows`).
    Assumes:   as `group_costs`; where to stop does not depend on these numbers, unless they are public.
    Reference: docs/maths/personalised.md.

    >>> from tellers import GNMax, Votes
    >>> from tellers.personal.consent import Group
    >>> from tellers.personal.upsampling import Upsampling
    >>> plan = Upsampling((Group("all", 0.7, 3),), GNMax(4.0), 3, copies_of=(1,))
    >>> asked = Asked(plan, Votes.from_ballots([[0, 1], [0, 1], [0, 0]], n_classes=2))
    >>> epsilons = running_epsilons(asked, delta=1e-5).reveal()["all"]
    >>> epsilons.shape, bool(epsilons[0] < epsilons[1])
    ((2,), True)
    """
    require_fraction(delta=delta)
    require_count(every=every)
    grid = check_orders(orders)
    steps = (asked[i : i + every] for i in range(0, len(asked), every))
    costs: Iterator[list[Floats]] = (
        each_query(asked, accounting, orders=grid, reverse=reverse)
        if every == 1
        else (totals(step, accounting, orders=grid, reverse=reverse) for step in steps)
    )
    spent: list[Floats] = []
    epsilons = [
        _epsilons(spent := _added(spent, step), grid, delta=delta, conversion=conversion) for step in costs
    ]
    names = [group.name for group in asked.plan.groups]
    return Sealed(dict(zip(names, np.array(epsilons).T, strict=True)))


def labels_within_budgets(
    asked: Asked,
    *,
    delta: float,
    accounting: Accounting = "exact",
    conversion: Conversion = "tight",
    orders: ArrayLike | None = None,
    reverse: Reverse = "enumerate",
) -> Sealed[WithinBudgets]:
    """Return how many queries, and labels among them, fit every group's budget, sealed.

    The tables of the paper on personalised PATE come from `accounting="as_tabulated"`, `conversion="classic"`
    and orders 2 to 50.

    Guarantee: after so many queries no member of any group is above their budget, by the accounting named.
    Assumes:   as `running_epsilons`.
    Reference: docs/maths/personalised.md.

    >>> from tellers import GNMax, Votes
    >>> from tellers.personal.consent import Group
    >>> from tellers.personal.upsampling import Upsampling
    >>> plan = Upsampling((Group("all", 2.0, 3),), GNMax(4.0), 3, copies_of=(1,))
    >>> asked = Asked(plan, Votes.from_ballots(np.zeros((3, 50), dtype=int), n_classes=2))
    >>> labels_within_budgets(asked, delta=1e-5, accounting="public").reveal()
    WithinBudgets(n_queries=2, n_labels=2, first_over='all')
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
        after = _added(spent, totals(step, accounting, orders=grid, reverse=reverse))
        if not over(after).any():
            spent = after
            continue
        for i, costs in enumerate(each_query(step, accounting, orders=grid, reverse=reverse)):
            spent = _added(spent, costs)
            passed = over(spent)
            if passed.any():
                fits = start + i
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
