"""Publishing what a finished run cost: planned, charged to its ledger, drawn once, kept, shown again."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..accounting._publishable import Method, available_methods
from ..accounting.costs import independent_cost
from ..accounting.smooth import (
    PublicationRecord,
    PublishedEpsilon,
    PublishPlan,
    as_grains,
    from_grains,
    publish,
    published_epsilon,
    release_cost,
    require_one_ballot,
)
from ..errors import BudgetExhausted, LedgerConflict
from ..ledger._chain import ChainedLedger
from ..ledger.base import Entry, Ticket
from ..mechanisms.base import Mechanism
from ..privacy import noise
from ..privacy.budget import Accountant
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, Release
from ..privacy.votes import LabelVotes, kept
from ..teachers.store import HeldVotes
from ._finished import FinishedRun, asked_votes, finished_of, read_finished, require_summable
from ._folder import RunFolder, publications_of, require_queries
from ._groups import listed
from .card import ModelCard, replace_card
from .labelling import most_expected
from .personal.accounting import Asked
from .personal.publishing import (
    distances_of,
    group_event,
    independent_group_costs,
    publication_prices,
    release_group_costs,
)
from .publication_plan import AnyVotes, Purse, plan_group_publication, plan_publication, proxy_votes
from .report._page import write_page
from .result import (
    EVERYONE,
    PublishedCost,
    PublishedCosts,
    RunResult,
    read_private,
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


def has_value(entry: Entry) -> bool:
    """Say whether the number that was published is on the ledger."""
    return entry.is_settled and entry.release is not None and len(entry.release) > 0


def plan_of(event: Mapping[str, Any]) -> PublishPlan:
    """Return the plan that an event on the books was charged for."""
    known = {field.name for field in fields(PublishPlan)}
    return PublishPlan(**{name: value for name, value in event["parameters"].items() if name in known})


# What is published, and who pays

# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9
# Where the number of a run with many labels was kept by earlier versions.
_OLD_FILE = "published.json"


# The noise grows with the smooth sensitivity, so that neighbours have noise of two widths. What that tells
# has the tail of an exponential: its Rényi divergence is finite at small orders alone, and there is no bound
# by the pairs of Gaussians that a clock counts in.
_ON_CLOCK = (
    "Expected a ledger held by Rényi divergence to publish what a run cost, got one on a clock. A "
    "publication is paid for at one Rényi order, for its noise has a width that depends on the votes, and a "
    "clock has no price for that. Nothing was charged. The public price needs none (--method independent); a "
    'run whose cost is to be published begins with rule = "renyi" in [budget].'
)


@dataclass(frozen=True, eq=False)
class Payer:
    """Who pays for a publication: a group from its own account, or everyone from the main one (None)."""

    name: str
    accountant: Accountant
    account: str | None = None

    def charged(self, entries: Iterable[Entry]) -> RdpCurve:
        """Return what these entries cost, all together."""
        if self.account is None:
            return sum((each.charged for each in entries), start=RdpCurve.zero())
        paid = (each.also[self.account] for each in entries if self.account in each.also)
        return sum((each.charged for each in paid), start=RdpCurve.zero())


@dataclass(frozen=True, eq=False, repr=False)
class Publisher:
    """A finished run with its ledger open: one value is published for each group, or one for everyone.

    Every account pays for all of them. With one budget everyone is one group, of which anybody moves one
    ballot.
    """

    run: FinishedRun
    ledger: ChainedLedger

    @cached_property
    def asked(self) -> Asked:
        """Return all queries as the groups were counted, refusing a run whose cost cannot be summed up."""
        return self.run.asked(self.ledger)

    @cached_property
    def n_queries(self) -> int:
        """Return how many queries were answered or met with silence."""
        return len(self.run.labels())

    @cached_property
    def payers(self) -> list[Payer]:
        """Return who pays, in the order of the lines that are published."""
        if self.run.plan is None:
            return [Payer(EVERYONE, self.run.accountant)]
        states = self.ledger.accounts()
        return [
            Payer(group.name, states[group.account].accountant, group.account)
            for group in self.run.plan.groups
        ]

    def shares(self) -> Mapping[str, float]:
        """Return how far whoever pays moves a published value, as a share of the furthest."""
        return {EVERYONE: 1.0} if self.run.plan is None else distances_of(self.asked).shares

    def on_books(self) -> tuple[list[Entry], Entry | None]:
        """Return publications of earlier versions, which kept their number in the folder, and today's one."""
        begins = publications_of(self.run.folder.key)
        found = [entry for entry in self.ledger.entries() if entry.key.startswith(begins)]
        old = [entry for entry in found if entry.is_settled and not has_value(entry)]
        now = [entry for entry in found if not entry.is_settled or has_value(entry)]
        return old, now[0] if now else None

    def require(self) -> None:
        """Refuse a run of which no cost can be published, before anything is charged."""
        require_summable(self.run, self.ledger)
        if self.run.plan is not None and any(side_plans(self.run.folder)):
            raise ValueError(
                "Expected votes of which nothing was released but what their ledger knows of, got a file of "
                "earlier publications beside them, which no group paid for. Nothing was charged."
            )

    def plan(
        self,
        *,
        method: Method | None,
        confidence: float,
        proxy: AnyVotes | str | PathLike[str] | None,
    ) -> tuple[PublishPlan, tuple[str, ...]]:
        """Return order, smoothness and noise that every account can pay for, chosen on public votes."""
        run, mechanism = self.run, self.run.mechanism
        require_bound(mechanism, method)
        on_clock = run.accountant.clock is not None
        if on_clock and method != "independent":
            raise ValueError(_ON_CLOCK)
        of_labels = run.kind == "labels"
        # Public votes of as many teachers on as much as the run asked for, or made-up ones.
        public, assumed = proxy_votes(
            proxy,
            "labels" if of_labels else "classes",
            run.result.partition.n_teachers if run.plan is None else run.plan.n_teachers,
            len(run.result.labels if of_labels else run.result.data.class_names),
            resolution=run.config.labels.resolution if proxy is None else 1,
        )
        notes = (assumed,) if assumed else ()
        terms: dict[str, Any] = {
            "n_queries": self.n_queries, "delta": run.config.budget.delta, "confidence": confidence,
            "method": method,
        }  # fmt: skip
        for purses in [[]] if on_clock else self._purses():
            plan = self._best(public, purses, terms)
            if _releases(plan) or method == "independent":
                return plan, notes
        free = self._best(public, [], terms)
        if _releases(free):
            self._refuse(free)
        how = available_methods(mechanism)
        if how == ("gnss", "independent"):
            why = (
                f"Of {type(mechanism).__name__} the papers' bound alone can be published, which covers "
                "one direction of the divergence: --method gnss. This is the public price."
            )
        elif how == ("independent",):
            why = f"Of {type(mechanism).__name__} there is a public price alone."
        else:
            told = "this is a public price" if run.plan is None else "these are public prices"
            why = f"On the proxy no release is worth its price, so {told}."
        return free, (*notes, why)

    def bill(self, plan: PublishPlan, noise_name: str) -> tuple[dict[str, RdpCurve], dict[str, Any]]:
        """Return what a publication by this plan costs, with what earlier ones owe, and its event.

        It refuses votes of which no cost is published, in time.
        """
        run, shares, side = self.run, self.shares(), list(side_plans(self.run.folder))
        event: dict[str, Any]
        if run.plan is None:
            require_one_ballot(asked_votes(run))
            event = {
                "mechanism": "Publication", "parameters": asdict(plan), "noise": noise_name,
                "unit": run.result.partition.unit, "n_queries": 0,
                # Whether everyone could have paid for this plan whatever came out; not known of groups.
                "fixed": plan.price_to(1.0, order=run.accountant.held_at) <= self._left()[0],
            }  # fmt: skip
        else:
            event = group_event(
                self.asked, plan, noise_name=noise_name, n_releases=len(self.payers), ledger=self.ledger
            )
        earlier, before = self.on_books()[0], {}
        for payer in self.payers:
            paid = payer.charged(earlier)
            # A Rényi divergence grows with its order: between two of the grid the next one bounds it.
            at_order = float(paid.values[np.searchsorted(paid.orders, plan.order)])
            before[payer.name] = at_order + sum(each.price_to(1.0, order=plan.order) for each in side)
        event |= {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "released": [payer.name for payer in self.payers],
            "before": before,
            **({"adopted": [asdict(each) for each in side]} if side else {}),
        }
        prices = publication_prices(shares, plan, n_releases=len(self.payers))
        # Of a run without groups, what was released before the ledger knew of such things is paid for now.
        owed = [publication_prices(shares, each, n_releases=1) for each in side]
        by_name = {name: sum((each[name] for each in owed), start=price) for name, price in prices.items()}
        return by_name, event

    def draw(self, plan: PublishPlan) -> None:
        """Charge, unless an earlier call did, draw, and settle with what came out."""
        source, (old, entry) = noise.secure(), self.on_books()
        if entry is None:
            self.require()
            prices, event = self.bill(plan, source.name)
            also = {who.account: prices[who.name] for who in self.payers if who.account is not None}
            ticket = self.ledger.reserve(
                f"{publications_of(self.run.folder.key)}{len(old)}", RdpCurve.largest(prices.values()),
                event={**event, "grain": 1e-6}, also=also,
            )  # fmt: skip
        else:
            also = {name: paid.reserved for name, paid in entry.also.items()}
            plan, ticket = plan_of(entry.event), Ticket(entry.key, entry.reserved, entry.event, also)
        if self.run.plan is None:
            values = [release_cost(self.run.mechanism, asked_votes(self.run), source, plan=plan)]
        else:
            found = release_group_costs(self.asked, source, plan=plan, groups=self.shares())
            values = list(found.values())
        grains = np.array([as_grains(value) for value in values], dtype=np.int64)
        release = Release(grains, Cost(ticket.price), by_teachers=np.zeros(len(grains), dtype=np.bool_))
        try:
            self.ledger.settle(ticket, release, used=dict(ticket.also) or None)
        except LedgerConflict:
            # Somebody else settled it meanwhile, with another draw: theirs is the one, this one is forgotten.
            if self.ledger.find(ticket.key) is None:
                raise

    def published(self) -> PublishedCosts | None:
        """Return what was published of the run, by its folder or else its ledger; None if nothing was."""
        there = read_published(self.run.folder.path)
        old, entry = self.on_books()
        if entry is None or not has_value(entry):
            return there or (None if entry is not None else self._published_before(old))
        assert entry.release is not None
        plan, names = plan_of(entry.event), entry.event["released"]
        # What each group moves the value by, as a share of the most; everyone, by all of it.
        shares = entry.event["parameters"].get("shares", {})
        prices = [len(names) * plan.price_to(shares.get(name, 1.0)) for name in names]
        shown = [
            published_epsilon(
                from_grains(value), plan=plan, delta=self.run.config.budget.delta, charged=price,
                charged_before=entry.event["before"][name],
            )
            for value, price, name in zip(entry.release.labels, prices, names, strict=True)
        ]  # fmt: skip
        uppers = [one.epsilon_upper for one in shown]
        if there is not None and [line.epsilon_upper for line in there.groups] != uppers:
            raise ValueError(
                f"Expected {self.run.folder.publication} to tell what the ledger of the run does, got "
                "another number: it was changed. Move it away and ask again; nothing is charged twice."
            )
        made = str(entry.event.get("made", ""))
        return there or self._costs(plan, uppers, prices, entry, covers=shown[0].covers, made=made)

    def _published_before(self, charged: list[Entry]) -> PublishedCosts | None:
        """Return what an earlier version published of a run with many labels, which it kept in a file."""
        place = self.run.folder.path / _OLD_FILE
        if not place.exists() or not charged:
            return None
        try:
            there = json.loads(place.read_bytes())
            if there["format"] != 1:
                raise ValueError(there)
            uppers, prices = [float(there["epsilon_upper"])], [float(there["charged"])]
            plan, covers = plan_of(charged[-1].event), str(there["covers"])
            return self._costs(plan, uppers, prices, charged[-1], covers=covers, delta=float(there["delta"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(
                f"Expected what was published in {place}, got something that cannot be read. Restore the "
                "file: what it says was paid for."
            ) from None

    def public_prices(self, plan: PublishPlan) -> PublishedCosts:
        """Return the prices that hold whatever the votes were, to everyone or to each group."""
        if self.run.plan is None:
            costs = [independent_cost(self.run.mechanism, self.n_queries, **self.run.counts)]
        else:
            costs = list(independent_group_costs(self.asked).values())
        found = [cost.epsilon_and_order(self.run.config.budget.delta) for cost in costs]
        plan, uppers = replace(plan, order=found[-1][1]), [epsilon for epsilon, _ in found]
        return self._costs(plan, uppers, [0.0] * len(found), None, covers="both directions")

    def _costs(
        self, plan: PublishPlan, uppers: list[float], charged: list[float], entry: Entry | None, **told: Any
    ) -> PublishedCosts:
        """Return a line for each group, or that of everyone; the books are read as far as an entry."""
        run, entries = self.run, list(self.ledger.entries())
        if entry is not None:
            entries = entries[: [each.key for each in entries].index(entry.key) + 1]
        alone, delta = run.is_alone(entries), run.config.budget.delta
        one_price = getattr(run.mechanism, "one_price", False)
        lines = []
        for at, payer in enumerate(self.payers):
            spent, accountant = payer.charged(entries), payer.accountant
            after, budget = accountant.epsilon(spent), accountant.budget.epsilon
            together = min(budget, run.config.budget.epsilon)
            if alone and entry is not None:
                if one_price:
                    together = min(together, after)
                elif entry.event.get("fixed"):
                    together = min(together, accountant.epsilon(self._most() + entry.charged))
            lines.append(
                PublishedCost(
                    name=payer.name, budget=budget, public=self._public(payer, entries),
                    epsilon_upper=uppers[at], charged=charged[at], after=after,
                    budget_left=accountant.left(spent), together=None if entry is None else together,
                )
            )  # fmt: skip
        if entry is not None:
            whole = sum((each.charged for each in entries), start=RdpCurve.zero())
            told |= {"shared": not alone, "on_ledger": whole.epsilon(delta)}
        known = {"delta": delta, "n_queries": self.n_queries, "unit": run.result.partition.unit}
        return PublishedCosts(plan=plan, kind=run.kind, groups=tuple(lines), **{**known, **told})

    def _public(self, payer: Payer, entries: list[Entry]) -> float:
        """Return an epsilon of the labels alone that holds whatever the votes were."""
        if payer.account is None:
            return min(self.run.result.spent.epsilon, payer.accountant.epsilon(self._most()))
        own = (each for each in entries if each.key.startswith(f"{self.run.folder.key}/"))
        return payer.accountant.epsilon(payer.charged(own))

    def _most(self) -> RdpCurve:
        return most_expected(self.run.result.queries.n_asked, self.run.mechanism, **self.run.counts)

    def _left(self) -> tuple[float, float]:
        """Return what may be spent at the order of the budget: whatever came out, and really.

        The first is what would be left had every query been answered; nothing, where others spend too.
        """
        accountant, entries, worst = self.run.accountant, self.ledger.entries(), 0.0
        if self.run.is_alone(entries):
            publications = publications_of(self.run.folder.key)
            paid = (entry.charged for entry in entries if entry.key.startswith(publications))
            worst = accountant.value_left(sum(paid, start=self._most()))
        owed = sum(each.price_to(1.0, order=accountant.held_at) for each in side_plans(self.run.folder))
        really = accountant.value_left(self.ledger.spent)
        return _HAIR * max(0.0, worst - owed), _HAIR * max(0.0, really - owed)

    def _purses(self) -> list[list[Purse]]:
        """Return what can be paid, the more careful first: all accounts of groups, or that of everyone."""
        whole = self.run.accountant
        if self.run.plan is None:
            worst, really = self._left()
            tried = [worst] if worst > 0.999 * really else [worst, really] if worst else [really]
            return [[Purse(None, whole.held_at, most)] for most in tried]
        purses = [Purse(None, whole.held_at, _HAIR * whole.value_left(self.ledger.spent))]
        states = self.ledger.accounts()
        for group in self.run.plan.groups:
            state = states[group.account]
            purses.append(Purse(group.name, state.held_at, _HAIR * state.accountant.value_left(state.spent)))
        return [purses]

    def _best(self, public: AnyVotes, purses: Sequence[Purse], terms: Mapping[str, Any]) -> PublishPlan:
        """Return the best plan that all purses can pay, on public votes counted as the run's."""
        plan = self.run.plan
        if plan is None:
            purse = purses[0] if purses else None
            return plan_publication(self.run.mechanism, public, **terms, purse=purse)[0]
        assert not isinstance(public, LabelVotes)  # of many labels there are no groups
        weights = plan.weights(len(public), key="proxy")
        counted = public if weights is None else public.weighted(weights)
        likely = getattr(plan.mechanism, "likely_answered", None)
        proxy = Asked(plan, counted, answered=None if likely is None else likely(counted))
        return plan_group_publication(proxy, **terms, purses=purses)

    def _refuse(self, plan: PublishPlan) -> None:
        """Say whose account has no room for a publication."""
        shares, short = self.shares(), []
        prices = publication_prices(shares, plan, n_releases=len(shares))
        for payer in self.payers:
            spent, held = payer.charged(self.ledger.entries()), payer.accountant
            if not held.affords(spent, prices[payer.name]):
                short.append(f"{payer.name} ({100 * held.left(spent):.0f} % of {held.budget.epsilon:g} left)")
        whose = f"of {listed(short)}" if short else "of the ceiling for everybody"
        raise BudgetExhausted(
            f"Expected room for a publication in every budget, got too little in that {whose}. Nothing was "
            "charged. Ask fewer queries in the next run ([queries] n_queries), or show public prices: "
            "--method independent."
        )


def _releases(plan: PublishPlan) -> bool:
    return plan.method != "independent" and bool(np.isfinite(plan.expected_epsilon))


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


def side_plans(folder: RunFolder) -> Iterator[PublishPlan]:
    """Yield the plans of releases that were charged to a file beside the votes of a run, and to no ledger."""
    for path in sorted(folder.private.rglob("*.publications.jsonl")):
        for entry in PublicationRecord(path).entries():
            if entry["entry"] == "charged":
                yield PublishPlan(**entry["plan"])


# Planned, charged, drawn once, kept, shown
#
# Every kind of run goes the same way: one class per row, many labels, budgets per group. A proposal looks
# at public numbers alone and charges nothing. Publishing reserves the price on the run's ledger under one
# key, draws, and settles with the number that came out, so that the ledger is where it is kept: a call that
# follows, also after one that was killed, finds the reservation or the number there and charges nothing
# again. Result, card and report are then written from it; `publication.json` comes last and says that all
# of them were.


@dataclass(frozen=True, eq=False, repr=False)
class Proposal:
    """What publishing would do and cost: public, and nothing is charged by it.

    `prices` is what the publication costs each group, or everyone, at every order. `is_charged` says that an
    earlier call charged it and was cut off; `done` is what was published before, if it was: then nothing is
    left to pay or to draw.
    """

    run: FinishedRun
    plan: PublishPlan
    prices: Mapping[str, RdpCurve]
    n_queries: int
    notes: tuple[str, ...] = ()
    is_charged: bool = False
    done: PublishedCosts | None = None


def propose_publication(
    folder: str | PathLike[str],
    *,
    confidence: float | None = None,
    method: Method | None = None,
    proxy: AnyVotes | str | PathLike[str] | None = None,
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
    run = read_finished(folder)
    require_queries(run.config, "to publish what its votes cost", "A sum costs the same whatever they are.")
    with run.books() as ledger:
        publisher = Publisher(run, ledger)
        done = publisher.published()
        if done is not None:
            _require_as_before(done.plan, confidence=confidence, method=method)
            return Proposal(run, done.plan, {}, done.n_queries, done=done)
        old, entry = publisher.on_books()
        if entry is not None:
            plan = plan_of(entry.event)
            _require_as_before(plan, confidence=confidence, method=method)
            told = (
                "An earlier call charged this and was cut off before its number was kept. Nobody saw one; "
                "it is drawn now, and not charged again."
            )
            return Proposal(run, plan, {}, publisher.n_queries, (told,), is_charged=True)
        publisher.require()
        plan, notes = publisher.plan(
            method=method, confidence=0.95 if confidence is None else confidence, proxy=proxy
        )
        prices: Mapping[str, RdpCurve] = {}
        if plan.method != "independent":
            prices, event = publisher.bill(plan, noise.secure().name)
            if event.get("adopted"):
                notes += (
                    "Earlier releases of these votes are in a file beside them and on no ledger. They are "
                    "charged with this one.",
                )
        if old:
            notes += (
                "An earlier publication was charged and its number lost. It stays charged, and this one pays "
                "on top of it.",
            )
    return Proposal(run, plan, prices, publisher.n_queries, notes)


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
    run, place, done = proposal.run, proposal.run.folder, proposal.done
    if done is not None and place.publication.exists() and read_result(place.path).published == done:
        return done
    with place.held(), run.books() as ledger:
        publisher = Publisher(run, ledger)
        published = publisher.published()
        if published is None and proposal.plan.method == "independent":
            # No secret, and not kept: a release may still follow it.
            return publisher.public_prices(proposal.plan)
        if published is None:
            publisher.draw(proposal.plan)
            published = publisher.published()
            assert published is not None  # it was settled just now
        _keep(place, published)
    return published


def with_published(result: RunResult, folder: RunFolder, config: RunConfig) -> RunResult:
    """Return the result of a run that was finished before with what was published of it, if anything was."""
    run = finished_of(folder, config, result)
    with run.books() as ledger:
        published = Publisher(run, ledger).published()
    return result if published is None else _told(result, published)


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


# Votes in a file that belongs to no run: a record beside the file is charged


@dataclass(frozen=True)
class FileProposal:
    """How a cost would be published, where it is charged, and what was charged there before."""

    plan: PublishPlan
    record: PublicationRecord
    charged_before: float
    notes: tuple[str, ...] = ()

    @property
    def is_drawn(self) -> bool:
        """Return whether noise is drawn and paid for; a price that holds for any votes needs neither."""
        return self.plan.method != "independent"


def propose_for_file(
    votes: HeldVotes,
    mechanism: Mechanism,
    record: str | PathLike[str],
    *,
    delta: float,
    confidence: float = 0.95,
    method: Method | None = None,
    proxy: str | PathLike[str] | None = None,
    thresholds: ArrayLike | None = None,
) -> FileProposal:
    """Return how a cost of these votes would be published; nothing is charged, and no vote is looked at.

    Order and noise are chosen on the public votes of `proxy`, or on made-up ones. A record of earlier
    publications keeps its plan.
    """
    book, notes = PublicationRecord(Path(record)), list(votes.notes)
    plan = book.plan()
    if plan is not None:
        notes.append(
            f"These votes were published before, with the plan in {book.path.name}; it stays, and this "
            "publication pays on top of the earlier ones."
        )
        return FileProposal(plan, book, book.charged, tuple(notes))
    public, assumed = proxy_votes(
        proxy, votes.kind, votes.n_teachers, votes.width, resolution=votes.resolution, thresholds=thresholds
    )
    if assumed:
        notes.append(assumed)
    plans = plan_publication(
        mechanism, public, n_queries=votes.n_queries, delta=delta, confidence=confidence, method=method
    )
    return FileProposal(plans[0], book, book.charged, tuple(notes))


def publish_file(
    votes: HeldVotes, mechanism: Mechanism, proposal: FileProposal, *, delta: float
) -> PublishedEpsilon:
    """Charge the record, draw, write down what came out, and return it.

    Of a public price nothing is drawn and nothing is charged.
    """
    file, source, plan = kept(votes), noise.secure(), proposal.plan
    if proposal.is_drawn:
        proposal.record.charge(mechanism, plan, delta=delta, noise=source)
    published = publish(
        mechanism,
        file.votes,
        source,
        plan=plan,
        delta=delta,
        answered=file.answered,
        charged_before=proposal.charged_before,
    )
    if proposal.is_drawn:
        proposal.record.settle(published)
    return published
