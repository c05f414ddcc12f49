"""What the page says of groups of people with budgets of their own: a table, and what each cost over time."""

import math
from collections.abc import Mapping
from typing import Any

from ..card.card import shown_epsilon
from ..card.groups import Curve, GroupResult, PersonalResult
from ..card.result import RunResult
from .canvas import N_COLOURS
from .drawing import Drawing
from .plots import plot_groups
from .thinning import thinned


def describe_groups(run: RunResult, exact: Mapping[str, Curve] | None = None) -> dict[str, Any] | None:
    """Return the groups as rows of tables and a drawing, or None where one budget is for all.

    `exact` are private costs per group, for the private page alone.

    >>> from tellers.card.groups import read_personal
    >>> from types import SimpleNamespace
    >>> group = {"name": "low", "epsilon": 0.7, "stated": 0.7, "spent": 0.69, "budget_left": 0.02,
    ...          "n_persons": 600, "n_teachers": 30, "weight": 1, "n_queries": 40}
    >>> cost = [{"n_queries": 40, "epsilon": {"low": 0.69}}]
    >>> table = {"variant": "weighting", "groups": [group], "cost": cost}
    >>> run = SimpleNamespace(personal=read_personal({"personal": table}), n_asked=40, unit="one person")
    >>> describe_groups(run)["rows"][0]["took_part"], describe_groups(run)["drawing"].mark
    ('in all 40', '')
    """
    personal = run.personal
    if personal is None:
        return None
    return {
        "words": personal.words,
        "leave": personal.leave,
        "rounds": personal.rounds_words,
        "strictest": shown_epsilon(min(group.epsilon for group in personal.groups)),
        "rows": [_row(at, group, run, personal.variant) for at, group in enumerate(personal.groups)],
        "drawing": _drawing(personal, exact or {}),
        "wasted": any(group.waste for group in personal.groups),
        "counted": all(group.n_labels is not None for group in personal.groups),
        "names": [group.name for group in personal.groups],
        "numbers": _numbers(personal),
    }


def _numbers(personal: PersonalResult) -> list[tuple[int, list[str]]]:
    """Return each group's cost after so many questions, about two dozen of them."""
    points = [n for n, _ in personal.groups[0].cost]
    kept = [at for _, at in thinned(tuple((n, float(at)) for at, n in enumerate(points)))]
    costs = [group.cost for group in personal.groups]
    if any(len(curve) != len(points) for curve in costs):
        return []
    return [(points[int(at)], [shown_epsilon(curve[int(at)][1]) for curve in costs]) for at in kept]


def _row(at: int, group: GroupResult, run: RunResult, variant: str) -> dict[str, Any]:
    took_part = f"in all {run.n_asked}"
    if group.left_after is not None:
        took_part = f"until {group.left_after} of {run.n_asked}"
        if group.n_queries > group.left_after:
            took_part = f"in {group.n_queries} of {run.n_asked}"
    who = "people" if run.unit == "one person" else "records"
    return {
        "number": at + 1,
        "colour": at % N_COLOURS + 1,
        "name": group.name,
        "who": f"{group.n_persons:,} {who}, {_how(group, variant)}",
        "budget": shown_budget(group.budget),
        "spent": shown_epsilon(group.spent),
        "width": round(100 * (1 - group.budget_left), 2),
        "used": f"{100 * (1 - group.budget_left):.0f} %",
        "labels": "" if group.n_labels is None else f"{group.n_labels:,}",
        "took_part": took_part,
        "waste": f"{group.waste:.3g}",
    }


def shown_budget(epsilon: float) -> str:
    """Return a budget as it was agreed to: not rounded up, as what is spent is.

    >>> shown_budget(0.7), shown_budget(math.inf)
    ('0.7', 'infinite')
    """
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "infinite"


def _how(group: GroupResult, variant: str) -> str:
    if variant == "vanishing":
        return f"{group.n_teachers} teachers, each in {100 * group.how:.3g} % of all questions"
    if variant == "upsampling":
        return "one teacher each" if group.how == 1 else f"{group.how:g} teachers each"
    return f"{group.n_teachers} teachers of {group.how:g} {'vote' if group.how == 1 else 'votes'}"


def _drawing(personal: PersonalResult, exact: Mapping[str, Curve]) -> Drawing | None:
    groups = [group for group in personal.groups if group.cost]
    if not groups:
        return None
    curves = [_finite(group.cost) for group in groups]
    budgets = [group.budget for group in groups]
    ends = ", ".join(
        f"group {at + 1}: {shown_epsilon(group.spent)} of {shown_budget(group.budget)}"
        for at, group in enumerate(groups)
    )
    caption = (
        "What the released labels cost one unit of each group at most, whatever the votes were. The broken "
        "lines are the budgets that they agreed to; the numbers are those of the table."
    )
    secret = [_finite(exact.get(group.name, ())) for group in groups]
    if not any(secret):
        svg = plot_groups(
            curves, budgets=budgets, title=f"Public epsilon of each group over questions; {ends}."
        )
        return Drawing(svg=svg, heading="Cost per group", caption=caption)
    caption += (
        " The dotted lines are exact costs, given the votes that were cast. They depend on private data and "
        "may not be published."
    )
    title = f"Public and exact epsilon of each group over questions; {ends}. Private."
    svg = plot_groups(curves, budgets=budgets, exact=secret, title=title)
    return Drawing(svg=svg, heading="Public and exact cost per group", caption=caption, mark="private")


def _finite(curve: Curve) -> list[tuple[float, float]]:
    return [(n, epsilon) for n, epsilon in curve if math.isfinite(epsilon)]
