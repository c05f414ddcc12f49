"""Publishing what a finished run cost: planned, charged to its ledger, drawn once, kept, shown again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..accounting._publishable import Method, available_methods, independent_cost
from ..accounting.plan import Consensus, LabelConsensus
from ..accounting.smooth import (
    PublicationRecord,
    PublishPlan,
    as_grains,
    from_grains,
    published_epsilon,
    release_cost,
    require_one_ballot,
)
from ..errors import BudgetExhausted, LedgerConflict
from ..ledger._chain import ChainedLedger
from ..ledger.base import Entry, Ledger, Ticket
from ..privacy import noise
from ..privacy.budget import Accountant, Budget
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve, check_orders
from ..privacy.release import Cost, Release
from ..privacy.votes import LabelVotes, Votes
from ..teachers.store import read_label_votes, read_votes
from ._finished import ClosedPool, ClosedRun, closed_of, read_closed, read_closed_pool, require_summable_pool
from ._folder import RunFolder
from ._groups import listed, publications_of
from ._private import read_private
from .card.card import ModelCard
from .card.export import replace_card
from .labelling import most_expected
from .personal.accounting import Asked
from .personal.publishing import (
    distances_of,
    group_bill,
    independent_group_costs,
    publication_prices,
    release_group_costs,
)
from .publication_plan import Purse, plan_group_publication, plan_publication
from .report.write import write_page
from .result import (
    EVERYONE,
    PublishedCost,
    PublishedCosts,
    RunResult,
    read_published,
    read_result,
    write_json,
    write_result,
)
from .settings.sections import RunConfig

# How a publication stands on the ledger of a run: under one key, charged once
#
# reserved             the price is charged; a number may have been drawn, and nobody has seen it
# settled, a value     the number is on the ledger, in millionths; whoever asks again is shown this one
# settled, no value    by an earlier version: the number is in the folder, or was lost and is paid for
#
# A reservation that a dead process left is used by the next call: what was drawn for it and lost was never
# shown, so that what anybody sees is one draw at one price.


@dataclass(frozen=True, eq=False)
class Bill:
    """What is charged.

    To the main account, to those of groups, and what each line of the publication pays.
    """

    price: RdpCurve
    also: Mapping[str, RdpCurve]
    event: dict[str, Any]
    by_name: Mapping[str, RdpCurve]


def has_value(entry: Entry) -> bool:
    """Say whether the number that was published is on the ledger."""
    return entry.is_settled and entry.release is not None and len(entry.release) > 0


def publication_on(ledger: Ledger, key: str) -> tuple[str, Entry | None]:
    """Return the key under which a run publishes, and what is on the books there, if anything is."""
    begins, old = publications_of(key), 0
    for entry in ledger.entries():
        if entry.key.startswith(begins):
            if not entry.is_settled or has_value(entry):
                return entry.key, entry
            old += 1
    return f"{begins}{old}", None


def settled_without_value(ledger: Ledger, key: str) -> list[Entry]:
    """Return the publications of earlier versions, which kept their number in the folder alone."""
    begins = publications_of(key)
    return [e for e in ledger.entries() if e.key.startswith(begins) and e.is_settled and not has_value(e)]


def before_on(ledger: Ledger, key: str, account: str | None, order: float) -> Iterator[float]:
    """Yield what each publication of an earlier version cost an account, or the main one, at an order."""
    for entry in settled_without_value(ledger, key):
        paid = entry.charged if account is None else entry.also[account].charged
        # A Rényi divergence grows with its order: between two of the grid the next one bounds it.
        yield float(paid.values[np.searchsorted(paid.orders, order)])


def up_to(ledger: Ledger, entry: Entry | None) -> Iterator[Entry]:
    """Yield what is on the books as far as an entry, which comes last, or all of it."""
    for each in ledger.entries():
        yield each
        if entry is not None and each.key == entry.key:
            return


def plan_of(event: Mapping[str, Any]) -> PublishPlan:
    """Return the plan that an event on the books was charged for."""
    known = {field.name for field in fields(PublishPlan)}
    return PublishPlan(**{name: value for name, value in event["parameters"].items() if name in known})


# Runs with one budget for all

_N_PROXY = {"classes": 1000, "labels": 400}
# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class PoolPublisher:
    """Publishes one value for everyone; the ledger of the run pays."""

    run: ClosedPool

    @property
    def kind(self) -> str:
        """Return what the run released."""
        return self.run.kind

    def require(self, ledger: ChainedLedger) -> None:
        """Refuse a run of which no cost can be published, before anything is charged."""
        require_summable_pool(self.run, ledger)

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
        """Return order, smoothness and noise that the budget can pay for, chosen on public votes."""
        run, notes = self.run, list[str]()
        mechanism = run.config.build_mechanism()
        require_bound(mechanism, method)
        public = self._proxy(proxy, notes)
        given: dict[str, Any] = {
            "n_queries": self.n_queries(ledger), "delta": run.config.budget.delta, "confidence": confidence,
            "method": method,
        }  # fmt: skip
        first, *rest = self._purses(ledger)
        plan = plan_publication(mechanism, public, **given, purse=first)[0]
        if rest and (plan.method == "independent" or not np.isfinite(plan.expected_epsilon)):
            plan = plan_publication(mechanism, public, **given, purse=rest[0])[0]
        if plan.method == "independent" and method is None:
            if plan_publication(mechanism, public, **given)[0].method != "independent":
                self._refuse(ledger)
            how = available_methods(mechanism)
            if how == ("gnss", "independent"):
                notes.append(
                    f"Of {type(mechanism).__name__} the papers' bound alone can be published, which covers "
                    "one direction of the divergence: --method gnss. This is the public price."
                )
            elif how == ("independent",):
                notes.append(f"Of {type(mechanism).__name__} there is a public price alone.")
            else:
                notes.append("On the proxy no release is worth its price, so this is a public price.")
        elif not np.isfinite(plan.expected_epsilon):
            self._refuse(ledger)
        return plan, tuple(notes)

    def bill(self, ledger: ChainedLedger, plan: PublishPlan, noise_name: str) -> Bill:
        """Return what a publication by this plan costs, with what earlier ones owe; refuses votes in time."""
        require_one_ballot(self.run.votes())
        side = list(side_plans(self.run.folder))
        price = curve_of(plan)
        event: dict[str, Any] = {
            "mechanism": "Publication", "parameters": asdict(plan), "noise": noise_name,
            "unit": self.run.result.partition.unit, "n_queries": 0,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "fixed": plan.price_to(1.0, order=self.run.accountant.held_at) <= self._left(ledger)[0],
            "released": [EVERYONE],
            "before": {
                EVERYONE: sum(before_on(ledger, self.run.folder.key, None, plan.order))
                + sum(each.price_to(1.0, order=plan.order) for each in side)
            },
        }  # fmt: skip
        if side:
            # Released before the ledger knew of such things: paid for now.
            event["adopted"] = [asdict(each) for each in side]
        paid = sum((curve_of(each) for each in side), start=price)
        return Bill(paid, {}, event, {EVERYONE: paid})

    def release(self, ledger: ChainedLedger, plan: PublishPlan, noise: Noise) -> list[float]:
        """Draw the noise and return what may be told of the cost at the plan's order."""
        mechanism = self.run.config.build_mechanism()
        return [release_cost(mechanism, self.run.votes(), noise, plan=plan)]

    def independent(self, ledger: ChainedLedger) -> list[tuple[float, float]]:
        """Return the public price, as an epsilon and the order it is best at."""
        mechanism = self.run.config.build_mechanism()
        cost = independent_cost(mechanism, self.n_queries(ledger))
        return [cost.epsilon_and_order(self.run.config.budget.delta)]

    def lines(
        self, ledger: ChainedLedger, uppers: list[float], charged: list[float], entry: Entry | None
    ) -> tuple[PublishedCost, ...]:
        """Return the line of everyone; the books are read as far as an entry."""
        run, accountant = self.run, self.run.accountant
        spent, alone = RdpCurve.zero(), True
        own = (f"{run.folder.key}/", publications_of(run.folder.key))
        for each in up_to(ledger, entry):
            spent, alone = spent + each.charged, alone and each.key.startswith(own)
        after = accountant.epsilon(spent)
        together = accountant.budget.epsilon
        if alone and entry is not None:
            if getattr(run.config.build_mechanism(), "one_price", False):
                together = min(together, after)
            elif entry.event.get("fixed"):
                together = min(together, accountant.epsilon(self._most() + entry.charged))
        return (
            PublishedCost(
                name=EVERYONE, budget=accountant.budget.epsilon, public=self.public, charged=charged[0],
                epsilon_upper=uppers[0], after=after, budget_left=accountant.left(spent),
                together=None if entry is None else together,
            ),
        )  # fmt: skip

    @property
    def public(self) -> float:
        """Return an epsilon of the labels alone that holds whatever the votes were."""
        return min(self.run.result.spent.epsilon, self.run.accountant.epsilon(self._most()))

    def _most(self) -> RdpCurve:
        return most_expected(self.run.result.queries.n_asked, self.run.config.build_mechanism())

    def _left(self, ledger: ChainedLedger) -> tuple[float, float]:
        """Return what may be spent at the order of the budget: whatever came out, and really.

        The first is what would be left had every query been answered; nothing, where others spend too.
        """
        accountant, publications = self.run.accountant, publications_of(self.run.folder.key)
        entries, worst = ledger.entries(), 0.0
        if all(entry.key.startswith((f"{self.run.folder.key}/", publications)) for entry in entries):
            paid = (entry.charged for entry in entries if entry.key.startswith(publications))
            worst = accountant.value_left(sum(paid, start=self._most()))
        owed = sum(each.price_to(1.0, order=accountant.held_at) for each in side_plans(self.run.folder))
        really = accountant.value_left(ledger.spent)
        return _HAIR * max(0.0, worst - owed), _HAIR * max(0.0, really - owed)

    def _purses(self, ledger: ChainedLedger) -> list[Purse]:
        worst, really = self._left(ledger)
        tried = [worst] if worst > 0.999 * really else [worst, really] if worst else [really]
        return [Purse(None, self.run.accountant.held_at, most) for most in tried]

    def _refuse(self, ledger: ChainedLedger) -> None:
        budget, left = self.run.config.budget, self.run.accountant.left(ledger.spent)
        raise BudgetExhausted(
            "Expected room for a publication in the budget of the run, got too little: "
            f"{100 * left:.0f} % of epsilon {budget.epsilon:g} is left on its ledger. Nothing was charged. "
            "Ask fewer queries in the next run ([queries] n_queries), or show the public price: "
            "--method independent."
        )

    def _proxy(
        self, proxy: "Votes | LabelVotes | str | PathLike[str] | None", notes: list[str]
    ) -> Votes | LabelVotes:
        result, kind = self.run.result, self.kind
        n_teachers = result.partition.n_teachers
        if proxy is None and kind == "labels":
            made_up = LabelConsensus()
            notes.append(f"Order and noise were chosen on made-up votes: {made_up}.")
            return made_up.votes(
                n_teachers, len(result.labels), n_queries=_N_PROXY[kind], seed=0,
                resolution=self.run.config.labels.resolution,
            )  # fmt: skip
        if proxy is None:
            consensus = Consensus()
            notes.append(f"Order and noise were chosen on made-up votes: {consensus}.")
            n_classes = len(result.data.class_names)
            return consensus.votes(n_teachers, n_classes, n_queries=_N_PROXY[kind], seed=0)[0]
        wanted = (n_teachers, len(result.labels if kind == "labels" else result.data.class_names))
        read: Votes | LabelVotes
        if isinstance(proxy, (Votes, LabelVotes)):
            read = proxy
        elif kind == "labels":
            read = read_label_votes(proxy).votes
        else:
            read = read_votes(proxy, n_classes=wanted[1]).votes
        found = (read.n_teachers, read.n_labels if isinstance(read, LabelVotes) else read.n_classes)
        if isinstance(read, LabelVotes) != (kind == "labels") or found != wanted:
            raise ValueError(
                f"Expected a proxy of {wanted[0]} teachers and {wanted[1]} {kind}, got {found[0]} and "
                f"{found[1]}."
            )
        return read


def require_bound(mechanism: Any, method: Method | None) -> None:
    """Refuse the papers' form where it adds up the answers that happened to be given."""
    may_be_silent = not getattr(mechanism, "one_price", False)
    if method == "gnss" and method in available_methods(mechanism) and may_be_silent:
        name = type(mechanism).__name__
        raise ValueError(
            f"Expected envelope or independent to publish what a run with {name} cost, got 'gnss': "
            "the papers' form adds up the answers that were given, along the path that was taken, and bounds "
            "nothing. Nothing was charged."
        )


def curve_of(plan: PublishPlan) -> RdpCurve:
    """Return what a publication costs whoever moves one ballot, at every order of a ledger."""
    grid = check_orders(None)
    return RdpCurve(grid, np.array([plan.price_to(1.0, order=float(order)) for order in grid]))


def side_plans(folder: RunFolder) -> Iterator[PublishPlan]:
    """Yield the plans of releases that were charged to a file beside the votes of a run, and to no ledger."""
    for path in sorted(folder.private.rglob("*.publications.jsonl")):
        for entry in PublicationRecord(path).entries():
            if entry["entry"] == "charged":
                yield PublishPlan(**entry["plan"])


# Runs with budgets per group

_N_GROUP_PROXY = 1000
# What fits an account to the last bit may not when it is added up in another order.


@dataclass(frozen=True, eq=False, repr=False)
class GroupPublisher:
    """Publishes one value per group; every group's account pays for all of them."""

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
            proxy, _ = consensus.votes(n_teachers, n_classes, n_queries=_N_GROUP_PROXY, seed=0)
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
    likely = getattr(plan.mechanism, "likely_answered", None)
    return Asked(plan, counted, answered=None if likely is None else likely(counted))


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


# Planned, charged, drawn once, kept, shown
#
# Every kind of run goes the same way: one class per row, many labels, budgets per group. A proposal looks
# at public numbers alone and charges nothing. Publishing reserves the price on the run's ledger under one
# key, draws, and settles with the number that came out, so that the ledger is where it is kept: a call that
# follows, also after one that was killed, finds the reservation or the number there and charges nothing
# again. Result, card and report are then written from it; `publication.json` comes last and says that all
# of them were.


# Where the number of a run with many labels was kept by earlier versions.
_OLD_FILE = "published.json"

Publisher = PoolPublisher | GroupPublisher


@dataclass(frozen=True, eq=False, repr=False)
class Proposal:
    """What publishing would do and cost: public, and nothing is charged by it.

    `prices` is what the publication costs each group, or everyone, at every order. `is_charged` says that an
    earlier call charged it and was cut off; `done` is what was published before, if it was: then nothing is
    left to pay or to draw.
    """

    publisher: Publisher
    plan: PublishPlan
    prices: Mapping[str, RdpCurve]
    n_queries: int
    notes: tuple[str, ...] = ()
    is_charged: bool = False
    done: PublishedCosts | None = None

    @property
    def run(self) -> ClosedRun | ClosedPool:
        """Return the run."""
        return self.publisher.run

    @property
    def kind(self) -> str:
        """Return what the run released: classes, labels, or to groups."""
        return self.publisher.kind


def propose_publication(
    folder: str | PathLike[str],
    *,
    confidence: float | None = None,
    method: Method | None = None,
    proxy: "Votes | LabelVotes | str | PathLike[str] | None" = None,
) -> Proposal:
    """Return the plan by which a finished run's cost would be published, and what that costs.

    `proxy` are public votes of as many teachers, or the file that holds them.

    Guarantee: looks at settings, accounts, numbers of queries and the proxy only; charges nothing.
    Assumes:   as `plan_publication`. Without a proxy made-up votes stand in (`Consensus`).
    Reference: docs/maths/publishing.md; of groups docs/maths/personalised.md, "Publishing a group's cost".

    >>> propose_publication("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    publisher = _publisher(RunFolder(Path(folder)))
    run = publisher.run
    with run.books() as ledger:
        done = published_on(publisher, ledger)
        if done is not None:
            _require_as_before(done.plan, confidence=confidence, method=method)
            return Proposal(publisher, done.plan, {}, done.n_queries, done=done)
        _, entry = publication_on(ledger, run.folder.key)
        n_queries = publisher.n_queries(ledger)
        if entry is not None:
            plan = plan_of(entry.event)
            _require_as_before(plan, confidence=confidence, method=method)
            told = (
                "An earlier call charged this and was cut off before its number was kept. Nobody saw one; "
                "it is drawn now, and not charged again."
            )
            return Proposal(publisher, plan, {}, n_queries, (told,), is_charged=True)
        publisher.require(ledger)
        plan, notes = publisher.plan(
            ledger, method=method, confidence=0.95 if confidence is None else confidence, proxy=proxy
        )
        prices: Mapping[str, RdpCurve] = {}
        if plan.method != "independent":
            bill = publisher.bill(ledger, plan, noise.secure().name)
            prices = bill.by_name
            if bill.event.get("adopted"):
                notes += (
                    "Earlier releases of these votes are in a file beside them and on no ledger. They are "
                    "charged with this one.",
                )
        if settled_without_value(ledger, run.folder.key):
            notes += (
                "An earlier publication was charged and its number lost. It stays charged, and this one pays "
                "on top of it.",
            )
    return Proposal(publisher, plan, prices, n_queries, notes)


def publish_run(proposal: Proposal) -> PublishedCosts:
    """Charge the ledger of the run, draw, keep what came out, and write result, card and report with it.

    Guarantee: with the stated confidence over this noise, labels and published values together have a Rényi
               divergence of at most the published cost at plan.order between the votes at hand and any in
               which one teacher answers otherwise (of groups: one person has other data). The ledger is
               debited before noise is drawn, once; what anybody is shown is one draw, however often it is
               asked for and wherever a call was killed.
    Assumes:   the plan was fixed without looking at private votes; the folder and its ledger are those that
               the run left.
    Reference: docs/maths/publishing.md; of groups docs/maths/personalised.md, "Publishing a group's cost".

    >>> publish_run(propose_publication("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    publisher, plan, place = proposal.publisher, proposal.plan, proposal.run.folder
    if proposal.done is not None and _is_kept(place, proposal.done):
        return proposal.done
    with place.held(), proposal.run.books() as ledger:
        published = published_on(publisher, ledger)
        if published is None and plan.method == "independent":
            # No secret, and not kept: a release may still follow it.
            return _public_prices(publisher, ledger, plan)
        if published is None:
            _draw(publisher, ledger, plan)
            published = published_on(publisher, ledger)
            assert published is not None  # it was settled just now
        _keep(place, published)
    return published


def published_on(publisher: Publisher, ledger: ChainedLedger) -> PublishedCosts | None:
    """Return what was published of a run: as its folder keeps it, or else by its ledger.

    None if nothing was.
    """
    run, delta = publisher.run, publisher.run.config.budget.delta
    kept = read_published(run.folder.path)
    _, entry = publication_on(ledger, run.folder.key)
    if entry is None or not has_value(entry):
        return kept or (None if entry is not None else _kept_before(publisher, ledger))
    assert entry.release is not None
    plan, names = plan_of(entry.event), entry.event["released"]
    # What each group moves the value by, as a share of the most; everyone, by all of it.
    shares = entry.event["parameters"].get("shares", {})
    prices = [len(names) * plan.price_to(shares.get(name, 1.0)) for name in names]
    shown = [
        published_epsilon(
            from_grains(value), plan=plan, delta=delta, charged=price,
            charged_before=entry.event["before"][name],
        )
        for value, price, name in zip(entry.release.labels, prices, names, strict=True)
    ]  # fmt: skip
    uppers = [one.epsilon_upper for one in shown]
    if kept is not None:
        if [line.epsilon_upper for line in kept.groups] != uppers:
            raise ValueError(
                f"Expected {run.folder.publication} to tell what the ledger of the run does, got another "
                "number: it was changed. Move it away and ask again; nothing is charged twice."
            )
        return kept
    return PublishedCosts(
        plan=plan, delta=delta, covers=shown[0].covers, n_queries=publisher.n_queries(ledger),
        groups=publisher.lines(ledger, uppers, prices, entry), unit=run.result.partition.unit,
        made=str(entry.event.get("made", "")), kind=publisher.kind,
        **_whole_ledger(publisher, ledger, entry),
    )  # fmt: skip


def with_published(result: RunResult, folder: RunFolder, config: RunConfig) -> RunResult:
    """Return the result of a run with what was published of it, if anything was."""
    if not folder.result.exists() and not folder.publication.exists():
        return result  # not finished before, so nothing was published of it
    publisher: Publisher
    if result.personal is None:
        publisher = PoolPublisher(ClosedPool(folder, config, result))
    else:
        publisher = GroupPublisher(closed_of(folder, config, result))
    with publisher.run.books() as ledger:
        published = published_on(publisher, ledger)
    return result if published is None else _told(result, published)


def _publisher(folder: RunFolder) -> Publisher:
    if read_result(folder.path).personal is not None:
        return GroupPublisher(read_closed(folder.path))
    return PoolPublisher(read_closed_pool(folder.path))


def _draw(publisher: Publisher, ledger: ChainedLedger, plan: PublishPlan) -> None:
    """Charge, unless an earlier call did, draw, and settle with what came out."""
    source, folder = noise.secure(), publisher.run.folder
    key, entry = publication_on(ledger, folder.key)
    if entry is None:
        publisher.require(ledger)
        bill = publisher.bill(ledger, plan, source.name)
        ticket = ledger.reserve(key, bill.price, event={**bill.event, "grain": 1e-6}, also=bill.also)
    else:
        also = {name: paid.reserved for name, paid in entry.also.items()}
        plan, ticket = plan_of(entry.event), Ticket(key, entry.reserved, entry.event, also)
    values = publisher.release(ledger, plan, source)
    grains = np.array([as_grains(value) for value in values], dtype=np.int64)
    release = Release(grains, Cost(ticket.price), by_teachers=np.zeros(len(grains), dtype=np.bool_))
    try:
        ledger.settle(ticket, release, used=dict(ticket.also) or None)
    except LedgerConflict:
        # Somebody else settled it meanwhile, with another draw: theirs is the one, and this one is forgotten.
        if ledger.find(key) is None:
            raise


def _whole_ledger(publisher: Publisher, ledger: ChainedLedger, entry: Entry) -> dict[str, Any]:
    """Return what all releases cost as far as an entry, and whether others than the run's are among them."""
    key, delta = publisher.run.folder.key, publisher.run.config.budget.delta
    entries = list(up_to(ledger, entry))
    own = (f"{key}/", publications_of(key))
    spent = sum((each.charged for each in entries), start=RdpCurve.zero())
    return {
        "shared": not all(each.key.startswith(own) for each in entries),
        "on_ledger": spent.epsilon(delta),
    }


def _kept_before(publisher: Publisher, ledger: ChainedLedger) -> PublishedCosts | None:
    """Return what an earlier version published of a run with many labels, which it kept in a file."""
    place = publisher.run.folder.path / _OLD_FILE
    charged = settled_without_value(ledger, publisher.run.folder.key)
    if not place.exists() or not charged:
        return None
    try:
        kept = json.loads(place.read_bytes())
        if kept["format"] != 1:
            raise ValueError(kept)
        return PublishedCosts(
            plan=plan_of(charged[-1].event), delta=float(kept["delta"]), covers=str(kept["covers"]),
            n_queries=publisher.n_queries(ledger), kind=publisher.kind,
            unit=publisher.run.result.partition.unit,
            **_whole_ledger(publisher, ledger, charged[-1]),
            groups=publisher.lines(
                ledger, [float(kept["epsilon_upper"])], [float(kept["charged"])], charged[-1]
            ),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(
            f"Expected what was published in {place}, got something that cannot be read. Restore the file: "
            "what it says was paid for."
        ) from None


def _public_prices(publisher: Publisher, ledger: ChainedLedger, plan: PublishPlan) -> PublishedCosts:
    found = publisher.independent(ledger)
    return PublishedCosts(
        plan=replace(plan, order=found[-1][1]), delta=publisher.run.config.budget.delta,
        covers="both directions", n_queries=publisher.n_queries(ledger), kind=publisher.kind,
        groups=publisher.lines(ledger, [epsilon for epsilon, _ in found], [0.0] * len(found), None),
        unit=publisher.run.result.partition.unit,
    )  # fmt: skip


def _told(result: RunResult, published: PublishedCosts) -> RunResult:
    """Return a result with what was published, and with accounts as they are after it."""
    told: dict[str, Any] = {"published": published}
    if published.on_ledger is not None:
        charged = max(result.spent.charged or 0.0, published.on_ledger)
        told["spent"] = result.spent.model_copy(update={"charged": charged})
    if published.kind == "groups" and result.personal is not None:
        left = {line.name: line.budget_left for line in published.groups}
        groups = tuple(
            group.model_copy(update={"budget_left": left.get(group.name, group.budget_left)})
            for group in result.personal.groups
        )
        told["personal"] = result.personal.model_copy(update={"groups": groups})
    return result.model_copy(update=told)


def _is_kept(place: RunFolder, published: PublishedCosts) -> bool:
    return place.publication.exists() and read_result(place.path).published == published


def _keep(place: RunFolder, published: PublishedCosts) -> None:
    """Write what was published into everything that tells of the run; the file of its own comes last."""
    result = _told(read_result(place.path), published)
    write_result(place.path, result)
    if place.student.is_dir():
        replace_card(place.student, card=ModelCard.from_result(result))
    write_page(place.path, result)
    if place.summary.exists():
        write_page(place.path, result, read_private(place.path))
    write_json(place.publication, published.as_dict(), public=True)


def _require_as_before(plan: PublishPlan, *, confidence: float | None, method: Method | None) -> None:
    same = (method or plan.method) == plan.method
    if not same or (confidence if confidence is not None else plan.confidence) != plan.confidence:
        raise ValueError(
            f"Expected --method {plan.method} and --confidence {plan.confidence:g}, by which this cost "
            "was published before, got others. What was published stays; ask for it without options."
        )
