"""Publishing what a finished run cost each group of people: planned, charged to every account, drawn, kept.

A proposal looks at public numbers alone and charges nothing. Publishing debits every group on the ledger of
the run before noise is drawn, and keeps what came out in `publication.json`, public. From there it is read
whenever it is asked for again: nothing is drawn or charged twice. What was charged and lost on the way stays
charged, and is counted in what is published after it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Any

import numpy as np

from .. import noise
from ..budget import Accountant, Budget
from ..calibrate import Consensus, plan_group_publication
from ..calibrate.publication import Purse
from ..card.published import PublishedCosts, read_published
from ..errors import BudgetExhausted
from ..ledger.chained import ChainedLedger
from ..mechanisms import ConfidentGNMax
from ..personal.accounting import Asked
from ..personal.publishing import distances_of, publication_prices, publish_group_costs
from ..publishable import Method
from ..rdp import RdpCurve
from ..report import write_report
from ..smooth import PublishPlan
from ..votes import Votes
from .closed import ClosedRun, read_closed
from .endings import listed
from .folder import write_json
from .groups import publications_of

_N_PROXY = 1000
# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Proposal:
    """What publishing would do and cost: public, and nothing is charged yet.

    `done` is what was published before, if it was: then nothing is left to do. `public` is what each group
    was charged for the labels, `prices` what the publication costs it on top, at every order.

    >>> propose_publication("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """

    run: ClosedRun
    plan: PublishPlan
    public: Mapping[str, float]
    prices: Mapping[str, RdpCurve]
    n_queries: int
    notes: tuple[str, ...] = ()
    done: PublishedCosts | None = None


def propose_publication(
    folder: str | PathLike[str],
    *,
    confidence: float | None = None,
    method: Method | None = None,
    proxy: Votes | None = None,
) -> Proposal:
    """Return the plan by which a finished run's costs per group would be published, and what that costs.

    Guarantee: looks at settings, accounts, numbers of queries and the proxy only; charges nothing.
    Assumes:   as `plan_group_publication`. Without a proxy made-up votes stand in (`Consensus`).
    Reference: docs/maths/personalised.md, "Publishing a group's cost".

    >>> propose_publication("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    run = read_closed(folder)
    done, delta = read_published(run.folder.path), run.config.budget.delta
    with run.books() as ledger:
        public = _charged_for_labels(run, ledger)
        if done is not None:
            _require_as_before(done, confidence=confidence, method=method)
            return Proposal(run, done.plan, public, {}, done.n_queries, done=done)
        asked = run.asked(ledger)
        n_queries, notes = len(asked), list[str]()
        if proxy is None:
            consensus = Consensus()
            notes.append(f"Order and noise were chosen on made-up votes: {consensus}.")
            proxy, _ = consensus.votes(run.plan.n_teachers, asked.votes.n_classes, n_queries=_N_PROXY, seed=0)
        stand_in = _as_proxy(asked, proxy)
        given: dict[str, Any] = {
            "n_queries": n_queries, "delta": delta, "confidence": 0.95 if confidence is None else confidence,
            "method": method,
        }  # fmt: skip
        plan = plan_group_publication(stand_in, **given, purses=_purses(run, ledger))
        if plan.method == "independent" and method != "independent":
            free = plan_group_publication(stand_in, **given)
            if free.method != "independent":
                _refuse(run, ledger, stand_in, free)
            notes.append("On the proxy no release is worth its price, so these are public prices.")
        if _lost(run, ledger):
            notes.append(
                "An earlier publication was charged and cut off before its numbers were kept. It stays "
                "charged, and this one pays on top of it."
            )
    prices = publication_prices(distances_of(stand_in), plan, n_releases=len(public))
    return Proposal(run, plan, public, prices, n_queries, tuple(notes))


def publish_run(proposal: Proposal) -> PublishedCosts:
    """Charge every group, draw, keep what came out in the folder of the run, and write its report again.

    Guarantee: as `publish_group_costs`; every account is debited before noise is drawn, all of them or none.
               What was published is returned as it is, however often it is asked for.
    Assumes:   as `publish_group_costs`; the folder and its ledger are those that the run left.
    Reference: docs/maths/personalised.md, "Publishing a group's cost".

    >>> publish_run(propose_publication("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    run, plan = proposal.run, proposal.plan
    place, delta = run.folder, run.config.budget.delta
    with place.held():
        there = read_published(place.path)
        if there is not None:  # by somebody else, while this one was being thought over
            return there
        with run.books() as ledger:
            asked, before = run.asked(ledger), _charged_before(run, ledger, plan)
            books: dict[str, Any] = {}
            if plan.method != "independent":
                books = {"ledger": ledger, "key": _next_key(run, ledger)}
            shown = publish_group_costs(
                asked, noise.secure(), plan=plan, delta=delta, charged_before=before, **books
            )
            states = ledger.accounts()
        groups = [
            {
                "name": group.name, "budget": group.epsilon, "public": proposal.public[group.name],
                "epsilon_upper": shown[group.name].epsilon_upper, "charged": shown[group.name].charged,
                "after": states[group.account].epsilon,
                "budget_left": states[group.account].accountant.left(states[group.account].spent),
            }
            for group in run.plan.groups
        ]  # fmt: skip
        first = next(iter(shown.values()))
        record = {
            "format": 1, "made": datetime.now(UTC).isoformat(timespec="seconds"), "n_queries": len(asked),
            "delta": delta, "covers": first.covers, "plan": asdict(plan), "groups": groups,
        }  # fmt: skip
        published = PublishedCosts.from_dict(record)
        if plan.method != "independent":
            # On disk before anybody sees it. Public prices are no secret: a release may still follow them.
            write_json(place.publication, record, public=True)
            write_report(place.path)
            if place.summary.exists():
                write_report(place.path, private=True)
    return published


def _require_as_before(done: PublishedCosts, *, confidence: float | None, method: Method | None) -> None:
    same = (method or done.plan.method) == done.plan.method
    if not same or (confidence if confidence is not None else done.plan.confidence) != done.plan.confidence:
        raise ValueError(
            f"Expected --method {done.plan.method} and --confidence {done.plan.confidence:g}, by which these "
            "costs were published before, got others. What was published stays; ask for it without options."
        )


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


def _charged_for_labels(run: ClosedRun, ledger: ChainedLedger) -> dict[str, float]:
    spent = {group.account: RdpCurve.zero() for group in run.plan.groups}
    for entry in ledger.entries():
        if entry.key.startswith(f"{run.folder.key}/"):
            for account, paid in entry.also.items():
                if account in spent:
                    spent[account] = spent[account] + paid.charged
    return {group.name: spent[group.account].epsilon(run.config.budget.delta) for group in run.plan.groups}


def _purses(run: ClosedRun, ledger: ChainedLedger) -> list[Purse]:
    states, whole = ledger.accounts(), _accountant(run)
    purses = [Purse(None, whole.held_at, _HAIR * whole.value_left(ledger.spent))]
    for group in run.plan.groups:
        state = states[group.account]
        purses.append(Purse(group.name, state.held_at, _HAIR * state.accountant.value_left(state.spent)))
    return purses


def _accountant(run: ClosedRun) -> Accountant:
    return Accountant(Budget(run.config.budget.epsilon, run.config.budget.delta))


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


def _lost(run: ClosedRun, ledger: ChainedLedger) -> int:
    begins = publications_of(run.folder.key)
    return sum(entry.key.startswith(begins) for entry in ledger.entries())


def _next_key(run: ClosedRun, ledger: ChainedLedger) -> str:
    return f"{publications_of(run.folder.key)}{_lost(run, ledger)}"


def _charged_before(run: ClosedRun, ledger: ChainedLedger, plan: PublishPlan) -> dict[str, float]:
    """Return what publications that were cut off cost each group, at the order of the plan."""
    begins, before = publications_of(run.folder.key), {group.name: 0.0 for group in run.plan.groups}
    for entry in ledger.entries():
        if entry.key.startswith(begins):
            for group in run.plan.groups:
                paid = entry.also[group.account].charged
                before[group.name] += float(paid.values[np.flatnonzero(paid.orders == plan.order)[0]])
    return before
