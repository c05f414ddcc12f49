"""Groups of people with budgets of their own: the plan of a service, their accounts, how those stand."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ..budget import Budget
from ..config.problems import Problem, complain
from ..errors import LedgerConflict
from ..ledger import AccountState, Ledger
from ..ledger.groups import open_group_accounts, require_no_groups
from ..mechanisms import Mechanism
from ..personal import PersonalPlan, Vanishing
from ..personal.record import plan_from_dict
from ..rdp import RdpCurve
from .books import MOST_QUERIES, Standing, queries_left, standing
from .settings import ServiceSettings

_AGAIN = "Take the plan.json of the run whose teachers vote here, or restore it from a backup."


def read_plan(
    settings: ServiceSettings, mechanism: Mechanism, *, n_teachers: int, has_ballots: bool = True
) -> PersonalPlan | None:
    """Return the plan of the settings, or of the run that is served, for this mechanism; None without one.

    Without ballots, where only counts are known, nobody can be weighted or absent.

    >>> from tellers import GNMax
    >>> read_plan(ServiceSettings(folder="nowhere"), GNMax(40.0), n_teachers=250) is None
    True
    """
    place = _place(settings)
    if place is None:
        if settings.personal.leave:
            _refuse(settings, "leave", "Expected false without a plan: there are no groups that could leave.")
        return None
    try:
        plan = plan_from_dict(json.loads(place.read_bytes()))
    except OSError as error:
        _refuse(
            settings, "plan", f"Expected a plan at {place}, it cannot be read ({error.strerror}). {_AGAIN}"
        )
        raise
    except (ValueError, RecursionError) as error:
        words = (
            str(error) if not isinstance(error, (json.JSONDecodeError, UnicodeError)) else "It is not JSON."
        )
        _refuse(settings, "plan", f"Expected a plan at {place}, got something else. {words} {_AGAIN}")
        raise
    if plan.n_teachers != n_teachers:
        _refuse(
            settings, "plan",
            f"Expected a plan for the {n_teachers} teachers that vote here, got one for {plan.n_teachers} at "
            f"{place}. {_AGAIN}",
        )  # fmt: skip
    if plan.members and not has_ballots:
        _refuse(
            settings, "plan",
            f"Expected the ballot of every teacher for {plan.variant}, got a vote file with counts alone. "
            "Save the ballots, or take upsampling.",
        )  # fmt: skip
    if settings.personal.leave and not plan.members:
        _refuse(
            settings, "leave",
            f"Expected false with {plan.variant}, whose teachers learned from all groups: whoever is silent, "
            "their data still speak. A service cannot train teachers. `tellers run` with leave = true in "
            "[personal] trains them anew whenever a budget is used; here, the first that is ends it.",
        )  # fmt: skip
    try:
        return plan.using(mechanism)
    except (TypeError, ValueError) as error:
        _refuse(settings, "plan", f"Expected a mechanism that the plan can use. {error}")
        raise


def open_groups(
    settings: ServiceSettings, ledger: Ledger, plan: PersonalPlan | None, *, delta: float
) -> None:
    """Open the accounts of a plan's groups, or see that without a plan there are none to charge.

    >>> from tellers import Accountant, MemoryLedger
    >>> open_groups(ServiceSettings(), MemoryLedger(Accountant(Budget(2.0, 1e-5))), None, delta=1e-5)
    """
    try:
        if plan is None:
            require_no_groups(ledger)
        else:
            open_group_accounts(ledger, {group.name: Budget(group.epsilon, delta) for group in plan.groups})
    except LedgerConflict as error:
        _refuse(settings, "plan", str(error))
        raise


def group_standings(
    plan: PersonalPlan, accounts: Mapping[str, AccountState], *, leave: bool
) -> dict[str, Standing]:
    """Return how the account of each group stands, by the group's name.

    What is left are queries that are certainly paid for; by vanishing if asked in batches of the plan's
    period. Where groups may leave, those who cannot pay for one have left, and the others pay by the plan for
    those who stay.

    >>> import numpy as np
    >>> from tellers import Accountant, GNMax, MemoryLedger
    >>> from tellers.personal import Group, Weighting
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> plan = Weighting(groups, GNMax(40.0), 4, (np.arange(2), np.arange(2, 4)), weight_of=(1, 2))
    >>> ledger = MemoryLedger(Accountant(Budget(2.0, 1e-5)))
    >>> open_groups(ServiceSettings(), ledger, plan, delta=1e-5)
    >>> stands = group_standings(plan, ledger.accounts(), leave=False)
    >>> stands["low"].epsilon, stands["low"].queries_left > stands["high"].queries_left > 0
    (0.7, True)
    """
    states = {group.name: accounts[group.account] for group in plan.groups}
    present, gone = plan, set[str]()
    while True:
        batch, prices = batch_prices(present)
        found = {
            name: batch * queries_left(states[name].accountant, states[name].spent, price)
            for name, price in prices.items()
        }
        over = {name for name, n in found.items() if not n}
        if not leave or not over or len(over) == len(found):
            break
        gone |= over
        present = plan.without(gone)
    prices = batch_prices(plan)[1]
    return {
        name: replace(
            standing(state.accountant, state.spent, price=prices[name]),
            queries_left=min(MOST_QUERIES, found.get(name, 0)),
        )
        for name, state in states.items()
    }


def batch_prices(plan: PersonalPlan) -> tuple[int, dict[str, RdpCurve]]:
    """Return a number of queries that loses little, and the most that so many cost each group.

    >>> import numpy as np
    >>> from tellers import GNMax
    >>> from tellers.personal import Group
    >>> groups, members = (Group("low", 0.7, 5), Group("high", 1.4, 5)), (np.arange(4), np.arange(4, 8))
    >>> plan = Vanishing(groups, GNMax(40.0), 8, members, frequency_of=(0.25, 1.0), seed=7)
    >>> batch, prices = batch_prices(plan)
    >>> batch, round(float(prices["high"].values[0] / prices["low"].values[0]))
    (4, 4)
    """
    if isinstance(plan, Vanishing):
        batch, one = _period(plan), plan.mechanism.price(plan.units[0])
        times = plan.busiest(batch)
        return batch, {group.name: one * n for group, n in zip(plan.groups, times, strict=True)}
    prices = [plan.mechanism.price(unit) for unit in plan.units]
    return 1, {group.name: price for group, price in zip(plan.groups, prices, strict=True)}


@lru_cache(maxsize=32)
def _period(plan: Vanishing) -> int:
    return plan.period


def _place(settings: ServiceSettings) -> Path | None:
    if settings.personal.plan:
        return settings.path(settings.personal.plan)
    beside = settings.path(settings.data.path) / "plan.json"
    return beside if settings.data.source == "run" and beside.exists() else None


def _refuse(settings: ServiceSettings, option: str, words: str) -> None:
    complain([Problem(("personal", option), words)], settings.source, settings.lines)
