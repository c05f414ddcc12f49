"""Publishing what a finished run cost: planned, charged to its ledger, drawn once, kept, shown again."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from os import PathLike
from typing import Any

import numpy as np

from ..accounting._publishable import Method, available_methods
from ..accounting.costs import independent_cost
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
from ..privacy.budget import Accountant
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, Release
from ..privacy.votes import LabelVotes, Votes
from ._finished import FinishedRun, asked_votes, finished_of, read_finished, require_summable
from ._folder import RunFolder, publications_of
from ._groups import listed
from ._vote_files import proxy_votes
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
from .publication_plan import Purse, plan_group_publication, plan_publication
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


# What is published, and who pays

# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9


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

    def paid_at(self, entries: Iterable[Entry], order: float) -> float:
        """Return what these entries cost at an order."""
        paid = [self.charged([entry]) for entry in entries]
        # A Rényi divergence grows with its order: between two of the grid the next one bounds it.
        return float(sum(each.values[np.searchsorted(each.orders, order)] for each in paid))


@dataclass(frozen=True, eq=False, repr=False)
class Publisher:
    """Publishes one value for each group of a run, or one for everyone; every account pays for all."""

    run: FinishedRun

    def shares(self, ledger: ChainedLedger) -> Mapping[str, float]:
        """Return how far whoever pays moves a published value, as a share of the furthest.

        With one budget everyone is one group, of which anybody moves one ballot.
        """
        return {EVERYONE: 1.0} if self.run.plan is None else distances_of(self.run.asked(ledger)).shares

    def release(self, ledger: ChainedLedger, noise: Noise, plan: PublishPlan) -> dict[str, float]:
        """Draw the noise and return what may be told of everyone's cost, or each group's, at its order."""
        if self.run.plan is None:
            return {EVERYONE: release_cost(self.run.mechanism, asked_votes(self.run), noise, plan=plan)}
        asked = self.run.asked(ledger)
        return release_group_costs(asked, noise, plan=plan, groups=distances_of(asked).shares)

    def independent(self, ledger: ChainedLedger) -> dict[str, RdpCurve]:
        """Return the public price to everyone, or to each group."""
        if self.run.plan is None:
            return {EVERYONE: independent_cost(self.run.mechanism, self.n_queries())}
        return independent_group_costs(self.run.asked(ledger))

    def payers(self, ledger: ChainedLedger) -> list[Payer]:
        """Return who pays, in the order of the lines that are published."""
        if self.run.plan is None:
            return [Payer(EVERYONE, self.run.accountant)]
        states = ledger.accounts()
        return [
            Payer(group.name, states[group.account].accountant, group.account)
            for group in self.run.plan.groups
        ]

    def require(self, ledger: ChainedLedger) -> None:
        """Refuse a run of which no cost can be published, before anything is charged."""
        require_summable(self.run, ledger)
        if self.run.plan is not None and any(side_plans(self.run.folder)):
            raise ValueError(
                "Expected votes of which nothing was released but what their ledger knows of, got a file of "
                "earlier publications beside them, which no group paid for. Nothing was charged."
            )

    def n_queries(self) -> int:
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
        mechanism, notes = self.run.mechanism, list[str]()
        require_bound(mechanism, method)
        public = self._proxy(proxy, notes)
        terms: dict[str, Any] = {
            "n_queries": self.n_queries(), "delta": self.run.config.budget.delta, "confidence": confidence,
            "method": method,
        }  # fmt: skip
        for purses in self._purses(ledger):
            plan = self._best(ledger, public, purses, terms)
            if _releases(plan) or method == "independent":
                return plan, tuple(notes)
        free = self._best(ledger, public, [], terms)
        if _releases(free):
            self._refuse(ledger, free)
        how = available_methods(mechanism)
        if how == ("gnss", "independent"):
            notes.append(
                f"Of {type(mechanism).__name__} the papers' bound alone can be published, which covers "
                "one direction of the divergence: --method gnss. This is the public price."
            )
        elif how == ("independent",):
            notes.append(f"Of {type(mechanism).__name__} there is a public price alone.")
        else:
            told = "this is a public price" if self.run.plan is None else "these are public prices"
            notes.append(f"On the proxy no release is worth its price, so {told}.")
        return free, tuple(notes)

    def bill(
        self, ledger: ChainedLedger, plan: PublishPlan, noise_name: str
    ) -> tuple[dict[str, RdpCurve], dict[str, Any]]:
        """Return what a publication by this plan costs, with what earlier ones owe, and its event.

        It refuses votes of which no cost is published, in time.
        """
        payers, side = self.payers(ledger), list(side_plans(self.run.folder))
        event, shares = self._event(ledger, plan, noise_name), self.shares(ledger)
        prices = publication_prices(shares, plan, n_releases=len(payers))
        # Of a run without groups, what was released before the ledger knew of such things is paid for now.
        owed = [publication_prices(shares, each, n_releases=1) for each in side]
        earlier = settled_without_value(ledger, self.run.folder.key)
        event |= {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            **self._fixed(ledger, plan),
            "released": [payer.name for payer in payers],
            "before": {
                payer.name: payer.paid_at(earlier, plan.order)
                + sum(each.price_to(1.0, order=plan.order) for each in side)
                for payer in payers
            },
            **({"adopted": [asdict(each) for each in side]} if side else {}),
        }
        by_name = {name: sum((each[name] for each in owed), start=price) for name, price in prices.items()}
        return by_name, event

    def lines(
        self, ledger: ChainedLedger, uppers: list[float], charged: list[float], entry: Entry | None
    ) -> tuple[PublishedCost, ...]:
        """Return a line for each group, or that of everyone; the books are read as far as an entry."""
        entries = list(up_to(ledger, entry))
        alone, ceiling = self.run.is_alone(entries), self.run.config.budget.epsilon
        one_price = getattr(self.run.mechanism, "one_price", False)
        lines = []
        for at, payer in enumerate(self.payers(ledger)):
            spent, accountant = payer.charged(entries), payer.accountant
            after, budget = accountant.epsilon(spent), accountant.budget.epsilon
            together = min(budget, ceiling)
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
        return tuple(lines)

    def _public(self, payer: Payer, entries: list[Entry]) -> float:
        """Return an epsilon of the labels alone that holds whatever the votes were."""
        if payer.account is None:
            return min(self.run.result.spent.epsilon, payer.accountant.epsilon(self._most()))
        own = (each for each in entries if each.key.startswith(f"{self.run.folder.key}/"))
        return payer.accountant.epsilon(payer.charged(own))

    def _most(self) -> RdpCurve:
        return most_expected(self.run.result.queries.n_asked, self.run.mechanism)

    def _fixed(self, ledger: ChainedLedger, plan: PublishPlan) -> dict[str, bool]:
        """Return whether everyone could have paid for this plan whatever came out; not known of groups."""
        if self.run.plan is not None:
            return {}
        return {"fixed": plan.price_to(1.0, order=self.run.accountant.held_at) <= self._left(ledger)[0]}

    def _left(self, ledger: ChainedLedger) -> tuple[float, float]:
        """Return what may be spent at the order of the budget: whatever came out, and really.

        The first is what would be left had every query been answered; nothing, where others spend too.
        """
        accountant, publications = self.run.accountant, publications_of(self.run.folder.key)
        entries, worst = ledger.entries(), 0.0
        if self.run.is_alone(entries):
            paid = (entry.charged for entry in entries if entry.key.startswith(publications))
            worst = accountant.value_left(sum(paid, start=self._most()))
        owed = sum(each.price_to(1.0, order=accountant.held_at) for each in side_plans(self.run.folder))
        really = accountant.value_left(ledger.spent)
        return _HAIR * max(0.0, worst - owed), _HAIR * max(0.0, really - owed)

    def _purses(self, ledger: ChainedLedger) -> list[list[Purse]]:
        """Return what can be paid, the more careful first: all accounts of groups, or that of everyone."""
        whole = self.run.accountant
        if self.run.plan is None:
            worst, really = self._left(ledger)
            tried = [worst] if worst > 0.999 * really else [worst, really] if worst else [really]
            return [[Purse(None, whole.held_at, most)] for most in tried]
        purses = [Purse(None, whole.held_at, _HAIR * whole.value_left(ledger.spent))]
        states = ledger.accounts()
        for group in self.run.plan.groups:
            state = states[group.account]
            purses.append(Purse(group.name, state.held_at, _HAIR * state.accountant.value_left(state.spent)))
        return [purses]

    def _best(
        self,
        ledger: ChainedLedger,
        public: Votes | LabelVotes,
        purses: Sequence[Purse],
        terms: Mapping[str, Any],
    ) -> PublishPlan:
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

    def _event(self, ledger: ChainedLedger, plan: PublishPlan, noise_name: str) -> dict[str, Any]:
        if self.run.plan is not None:
            asked = self.run.asked(ledger)
            n_releases = len(self.run.plan.groups)
            return group_event(asked, plan, noise_name=noise_name, n_releases=n_releases, ledger=ledger)
        require_one_ballot(asked_votes(self.run))
        return {
            "mechanism": "Publication", "parameters": asdict(plan), "noise": noise_name,
            "unit": self.run.result.partition.unit, "n_queries": 0,
        }  # fmt: skip

    def _refuse(self, ledger: ChainedLedger, plan: PublishPlan) -> None:
        """Say whose account has no room for a publication."""
        shares, short = self.shares(ledger), []
        prices = publication_prices(shares, plan, n_releases=len(shares))
        for payer in self.payers(ledger):
            spent, held = payer.charged(ledger.entries()), payer.accountant
            if not held.affords(spent, prices[payer.name]):
                short.append(f"{payer.name} ({100 * held.left(spent):.0f} % of {held.budget.epsilon:g} left)")
        whose = f"of {listed(short)}" if short else "of the ceiling for everybody"
        raise BudgetExhausted(
            f"Expected room for a publication in every budget, got too little in that {whose}. Nothing was "
            "charged. Ask fewer queries in the next run ([queries] n_queries), or show public prices: "
            "--method independent."
        )

    def _proxy(
        self, proxy: "Votes | LabelVotes | str | PathLike[str] | None", notes: list[str]
    ) -> Votes | LabelVotes:
        """Return public votes of as many teachers on as much as the run asked for, or made-up ones."""
        run, of_labels = self.run, self.run.kind == "labels"
        names = run.result.labels if of_labels else run.result.data.class_names
        wanted = (run.result.partition.n_teachers if run.plan is None else run.plan.n_teachers, len(names))
        public, assumed = proxy_votes(
            proxy,
            "labels" if of_labels else "classes",
            *wanted,
            resolution=run.config.labels.resolution if proxy is None else 1,
        )
        notes += [assumed] if assumed else []
        return public


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


# Where the number of a run with many labels was kept by earlier versions.
_OLD_FILE = "published.json"


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
    def run(self) -> FinishedRun:
        """Return the run."""
        return self.publisher.run

    @property
    def kind(self) -> str:
        """Return what the run released: classes, labels, or to groups."""
        return self.run.kind


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
    run = read_finished(folder)
    publisher = Publisher(run)
    with run.books() as ledger:
        done = published_on(publisher, ledger)
        if done is not None:
            _require_as_before(done.plan, confidence=confidence, method=method)
            return Proposal(publisher, done.plan, {}, done.n_queries, done=done)
        _, entry = publication_on(ledger, run.folder.key)
        n_queries = publisher.n_queries()
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
            prices, event = publisher.bill(ledger, plan, noise.secure().name)
            if event.get("adopted"):
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
        plan=plan, delta=delta, covers=shown[0].covers, n_queries=publisher.n_queries(),
        groups=publisher.lines(ledger, uppers, prices, entry), unit=run.result.partition.unit,
        made=str(entry.event.get("made", "")), kind=publisher.run.kind,
        **_whole_ledger(publisher, ledger, entry),
    )  # fmt: skip


def with_published(result: RunResult, folder: RunFolder, config: RunConfig) -> RunResult:
    """Return the result of a run with what was published of it, if anything was."""
    if not folder.result.exists() and not folder.publication.exists():
        return result  # not finished before, so nothing was published of it
    publisher = Publisher(finished_of(folder, config, result))
    with publisher.run.books() as ledger:
        published = published_on(publisher, ledger)
    return result if published is None else _told(result, published)


def _draw(publisher: Publisher, ledger: ChainedLedger, plan: PublishPlan) -> None:
    """Charge, unless an earlier call did, draw, and settle with what came out."""
    source, folder = noise.secure(), publisher.run.folder
    key, entry = publication_on(ledger, folder.key)
    if entry is None:
        publisher.require(ledger)
        prices, event = publisher.bill(ledger, plan, source.name)
        also = {who.account: prices[who.name] for who in publisher.payers(ledger) if who.account is not None}
        most = RdpCurve.largest(prices.values())
        ticket = ledger.reserve(key, most, event={**event, "grain": 1e-6}, also=also)
    else:
        also = {name: paid.reserved for name, paid in entry.also.items()}
        plan, ticket = plan_of(entry.event), Ticket(key, entry.reserved, entry.event, also)
    values = publisher.release(ledger, source, plan)
    grains = np.array([as_grains(value) for value in values.values()], dtype=np.int64)
    release = Release(grains, Cost(ticket.price), by_teachers=np.zeros(len(grains), dtype=np.bool_))
    try:
        ledger.settle(ticket, release, used=dict(ticket.also) or None)
    except LedgerConflict:
        # Somebody else settled it meanwhile, with another draw: theirs is the one, and this one is forgotten.
        if ledger.find(key) is None:
            raise


def _whole_ledger(publisher: Publisher, ledger: ChainedLedger, entry: Entry) -> dict[str, Any]:
    """Return what all releases cost as far as an entry, and whether others than the run's are among them."""
    delta = publisher.run.config.budget.delta
    entries = list(up_to(ledger, entry))
    spent = sum((each.charged for each in entries), start=RdpCurve.zero())
    return {"shared": not publisher.run.is_alone(entries), "on_ledger": spent.epsilon(delta)}


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
            n_queries=publisher.n_queries(), kind=publisher.run.kind,
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
    delta = publisher.run.config.budget.delta
    found = [cost.epsilon_and_order(delta) for cost in publisher.independent(ledger).values()]
    return PublishedCosts(
        plan=replace(plan, order=found[-1][1]), delta=delta,
        covers="both directions", n_queries=publisher.n_queries(), kind=publisher.run.kind,
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
