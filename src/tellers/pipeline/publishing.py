"""Publishing what a finished run cost: planned, charged to its ledger, drawn once, kept, shown.

Every kind of run goes the same way: one class per row, many labels, budgets per group. A proposal looks at
public numbers alone and charges nothing. Publishing reserves the price on the run's ledger under one key,
draws, and settles with the number that came out, so that the ledger is where it is kept: a call that follows,
also after one that was killed, finds the reservation or the number there and charges nothing again. Result,
card and report are then written from it; `publication.json` comes last and says that all of them were.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .. import noise
from ..card.card import ModelCard
from ..card.export import replace_card
from ..card.published import PublishedCosts, read_published
from ..card.result import RunResult
from ..config import RunConfig
from ..errors import LedgerConflict
from ..label_votes import LabelVotes
from ..ledger.base import Entry, Ticket
from ..ledger.chained import ChainedLedger
from ..publishable import Method
from ..rdp import RdpCurve
from ..release import Cost, Release
from ..report import write_report
from ..report.folder import read_result
from ..smooth import PublishPlan, as_grains, from_grains, published_epsilon
from ..votes import Votes
from ._bills import has_value, plan_of, publication_on, settled_without_value, up_to
from ._publisher import Publisher
from ._publishing_groups import GroupPublisher
from ._publishing_pool import PoolPublisher
from .closed import ClosedRun, closed_of, read_closed
from .closed_pool import ClosedPool, read_closed_pool
from .folder import RunFolder, write_json
from .groups import publications_of

# Where the number of a run with many labels was kept by earlier versions.
_OLD_FILE = "published.json"


@dataclass(frozen=True, eq=False, repr=False)
class Proposal:
    """What publishing would do and cost: public, and nothing is charged by it.

    `prices` is what the publication costs each group, or everyone, at every order. `is_charged` says that an
    earlier call charged it and was cut off; `done` is what was published before, if it was: then nothing is
    left to pay or to draw.

    >>> propose_publication("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
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
    """Return what was published of a run: as its folder keeps it, or else by its ledger; None if nothing was.

    >>> propose_publication("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
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
        groups=publisher.lines(ledger, uppers, prices, entry), unit=run.result.unit,
        made=str(entry.event.get("made", "")), kind=publisher.kind,
        **_whole_ledger(publisher, ledger, entry),
    )  # fmt: skip


def with_published(result: dict[str, Any], folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """Return the public numbers of a run with what was published of it, if anything was.

    >>> with_published({"format": 1}, RunFolder(Path("nowhere")), RunConfig())
    {'format': 1}
    """
    if not folder.result.exists() and not folder.publication.exists():
        return result  # not finished before, so nothing was published of it
    numbers = RunResult.from_dict(result)
    publisher: Publisher
    if numbers.personal is None:
        publisher = PoolPublisher(ClosedPool(folder, config, numbers))
    else:
        publisher = GroupPublisher(closed_of(folder, config, numbers))
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
            n_queries=publisher.n_queries(ledger), kind=publisher.kind, unit=publisher.run.result.unit,
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
        unit=publisher.run.result.unit,
    )  # fmt: skip


def _told(result: dict[str, Any], published: PublishedCosts) -> dict[str, Any]:
    """Return public numbers with the published ones, and with accounts as they are after it."""
    told = {**result, "published": published.as_dict()}
    if published.on_ledger is not None:
        charged = max(result["spent"].get("charged") or 0.0, published.on_ledger)
        told["spent"] = {**result["spent"], "charged": charged}
    if published.kind == "groups" and "personal" in result:
        left = {line.name: line.budget_left for line in published.groups}
        groups = [
            {**group, "budget_left": left.get(group["name"], group["budget_left"])}
            for group in result["personal"]["groups"]
        ]
        told["personal"] = {**result["personal"], "groups": groups}
    return told


def _is_kept(place: RunFolder, published: PublishedCosts) -> bool:
    return place.publication.exists() and read_result(place.path).published == published


def _keep(place: RunFolder, published: PublishedCosts) -> None:
    """Write what was published into everything that tells of the run; the file of its own comes last."""
    result = _told(json.loads(place.result.read_bytes()), published)
    write_json(place.result, result, public=True)
    if place.student.is_dir():
        replace_card(place.student, card=ModelCard.from_result(result))
    write_report(place.path)
    if place.summary.exists():
        write_report(place.path, private=True)
    write_json(place.publication, published.as_dict(), public=True)


def _require_as_before(plan: PublishPlan, *, confidence: float | None, method: Method | None) -> None:
    same = (method or plan.method) == plan.method
    if not same or (confidence if confidence is not None else plan.confidence) != plan.confidence:
        raise ValueError(
            f"Expected --method {plan.method} and --confidence {plan.confidence:g}, by which this cost "
            "was published before, got others. What was published stays; ask for it without options."
        )
