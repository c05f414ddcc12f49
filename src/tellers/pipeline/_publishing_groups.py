"""What publishing the costs of a run with budgets per group takes: a plan, prices, the noise, a line each."""

from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Any

from ..budget import Accountant, Budget
from ..calibrate import Consensus, plan_group_publication
from ..calibrate.publication import Purse
from ..card.published import PublishedCost
from ..errors import BudgetExhausted
from ..label_votes import LabelVotes
from ..ledger.base import Entry
from ..ledger.chained import ChainedLedger
from ..mechanisms import ConfidentGNMax
from ..noise import Noise
from ..personal.accounting import Asked
from ..personal.publishing import (
    distances_of,
    group_bill,
    independent_group_costs,
    publication_prices,
    release_group_costs,
)
from ..publishable import Method
from ..rdp import RdpCurve
from ..smooth import PublishPlan
from ..teachers.store import read_votes
from ..votes import Votes
from ._bills import Bill, before_on, up_to
from ._publishing_pool import require_bound, side_plans
from .closed import ClosedRun
from .endings import listed
from .groups import publications_of

_N_PROXY = 1000
# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class GroupPublisher:
    """Publishes one value per group; every group's account pays for all of them.

    >>> from .closed import read_closed
    >>> GroupPublisher(read_closed("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """

    run: ClosedRun
    kind: str = "groups"

    def require(self, ledger: ChainedLedger) -> None:
        """Refuse a run of which no cost can be published, before anything is charged."""
        self.run.asked(ledger)
        if any(side_plans(self.run.folder)):
            raise ValueError(
                "Expected votes of which nothing was released but what their ledger knows of, got a file of "
                "earlier publications beside them, which no group paid for. Nothing was charged."
            )

    def n_queries(self, ledger: ChainedLedger) -> int:
        """Return how many queries were answered or met with silence."""
        return len(self.run.labels())

    def plan(
        self,
        ledger: ChainedLedger,
        *,
        method: Method | None,
        confidence: float,
        proxy: "Votes | LabelVotes | str | PathLike[str] | None",
    ) -> tuple[PublishPlan, tuple[str, ...]]:
        """Return order, smoothness and noise that every account can pay for, chosen on public votes."""
        require_bound(self.run.plan.mechanism, method)
        asked, notes = self.run.asked(ledger), list[str]()
        n_teachers, n_classes = self.run.plan.n_teachers, asked.votes.n_classes
        if proxy is None:
            consensus = Consensus()
            notes.append(f"Order and noise were chosen on made-up votes: {consensus}.")
            proxy, _ = consensus.votes(n_teachers, n_classes, n_queries=_N_PROXY, seed=0)
        elif not isinstance(proxy, (Votes, LabelVotes)):
            proxy = read_votes(proxy, n_classes=n_classes).votes
        if not isinstance(proxy, Votes):
            raise TypeError("Expected a proxy of votes for one class per query, got votes on many labels.")
        stand_in = _as_proxy(asked, proxy)
        given: dict[str, Any] = {
            "n_queries": len(asked), "delta": self.run.config.budget.delta, "confidence": confidence,
            "method": method,
        }  # fmt: skip
        plan = plan_group_publication(stand_in, **given, purses=_purses(self.run, ledger))
        if plan.method == "independent" and method != "independent":
            free = plan_group_publication(stand_in, **given)
            if free.method != "independent":
                _refuse(self.run, ledger, stand_in, free)
            notes.append("On the proxy no release is worth its price, so these are public prices.")
        return plan, tuple(notes)

    def bill(self, ledger: ChainedLedger, plan: PublishPlan, noise_name: str) -> Bill:
        """Return what a publication by this plan costs every group; refuses votes in time."""
        asked, groups = self.run.asked(ledger), self.run.plan.groups
        bill = group_bill(asked, plan, noise_name=noise_name, n_releases=len(groups), ledger=ledger)
        key = self.run.folder.key
        event = {
            **bill.event,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "released": [group.name for group in groups],
            "before": {g.name: sum(before_on(ledger, key, g.account, plan.order)) for g in groups},
        }
        return Bill(bill.price, bill.also, event, {g.name: bill.also[g.account] for g in groups})

    def release(self, ledger: ChainedLedger, plan: PublishPlan, noise: Noise) -> list[float]:
        """Draw the noise and return what may be told of each group's cost at the plan's order."""
        names = [group.name for group in self.run.plan.groups]
        values = release_group_costs(self.run.asked(ledger), noise, plan=plan, groups=names)
        return [values[name] for name in names]

    def independent(self, ledger: ChainedLedger) -> list[tuple[float, float]]:
        """Return each group's public price, as an epsilon and the order it is best at."""
        delta = self.run.config.budget.delta
        costs = independent_group_costs(self.run.asked(ledger))
        return [costs[group.name].epsilon_and_order(delta) for group in self.run.plan.groups]

    def lines(
        self, ledger: ChainedLedger, uppers: list[float], charged: list[float], entry: Entry | None
    ) -> tuple[PublishedCost, ...]:
        """Return a line for each group; the books are read as far as an entry."""
        states, key = ledger.accounts(), self.run.folder.key
        own, ceiling = (f"{key}/", publications_of(key)), self.run.config.budget.epsilon
        entries, lines = list(up_to(ledger, entry)), []
        alone = all(each.key.startswith(own) for each in entries)
        one_price = getattr(self.run.plan.mechanism, "one_price", False)
        for at, group in enumerate(self.run.plan.groups):
            paid = [each for each in entries if group.account in each.also]
            spent = sum((e.also[group.account].charged for e in paid), start=RdpCurve.zero())
            for_labels = sum(
                (e.also[group.account].charged for e in paid if e.key.startswith(own[0])),
                start=RdpCurve.zero(),
            )
            accountant = states[group.account].accountant
            after, most = accountant.epsilon(spent), min(group.epsilon, ceiling)
            lines.append(
                PublishedCost(
                    name=group.name, budget=group.epsilon, public=accountant.epsilon(for_labels),
                    epsilon_upper=uppers[at], charged=charged[at], after=after,
                    budget_left=accountant.left(spent),
                    together=None if entry is None else min(most, after) if alone and one_price else most,
                )
            )  # fmt: skip
        return tuple(lines)


def _as_proxy(asked: Asked, public: Votes) -> Asked:
    """Return public votes, counted as those of the run were."""
    plan = asked.plan
    if (public.n_teachers, public.n_classes) != (plan.n_teachers, asked.votes.n_classes):
        raise ValueError(
            f"Expected a proxy of {plan.n_teachers} teachers and {asked.votes.n_classes} classes, got "
            f"{public.n_teachers} and {public.n_classes}."
        )
    weights = plan.weights(len(public), key="proxy")
    counted = public if weights is None else public.weighted(weights)
    answered = None
    if isinstance(plan.mechanism, ConfidentGNMax):
        # What the check would most likely let through.
        answered = counted.top >= plan.mechanism.threshold
    return Asked(plan, counted, answered=answered)


def _purses(run: ClosedRun, ledger: ChainedLedger) -> list[Purse]:
    whole = Accountant(Budget(run.config.budget.epsilon, run.config.budget.delta))
    states = ledger.accounts()
    purses = [Purse(None, whole.held_at, _HAIR * whole.value_left(ledger.spent))]
    for group in run.plan.groups:
        state = states[group.account]
        purses.append(Purse(group.name, state.held_at, _HAIR * state.accountant.value_left(state.spent)))
    return purses


def _refuse(run: ClosedRun, ledger: ChainedLedger, proxy: Asked, plan: PublishPlan) -> None:
    """Say whose account has no room for a publication."""
    states = ledger.accounts()
    prices = publication_prices(distances_of(proxy), plan, n_releases=len(run.plan.groups))
    short = [
        f"{group.name} ({100 * state.accountant.left(state.spent):.0f} % of {group.epsilon:g} left)"
        for group in run.plan.groups
        if not (state := states[group.account]).accountant.affords(state.spent, prices[group.name])
    ]
    whose = f"of {listed(short)}" if short else "of the ceiling for everybody"
    raise BudgetExhausted(
        f"Expected room for a publication in every budget, got too little in that {whose}. Nothing was "
        "charged. Ask fewer queries in the next run ([queries] n_queries), or show public prices: "
        "--method independent."
    )
