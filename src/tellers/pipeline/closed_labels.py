"""A finished run with many labels per row, read again from its folder: what it cost, and publishing that.

Nothing is trained or asked here: settings, votes and labels are those on disk, what was charged is on the
ledger. Publishing debits the ledger of the run before noise is drawn and keeps what came out, public; asked
for again, it is read from there.
"""

import json
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .. import noise
from ..budget import Accountant, Budget
from ..calibrate import LabelConsensus, plan_publication
from ..calibrate.publication import Purse
from ..card.result import RunResult
from ..config import RunConfig, read_config
from ..errors import BudgetExhausted
from ..exact import exact_epsilons
from ..label_votes import LabelVotes
from ..labelling import Labels
from ..ledger.chained import ChainedLedger
from ..publishable import Method
from ..rdp import RdpCurve, check_orders
from ..release import SILENT, Cost, Release
from ..report.folder import read_result
from ..sealed import Sealed
from ..smooth import PublishedEpsilon, PublishPlan, publish
from ..teachers.label_store import read_label_votes
from .beginning import open_books
from .folder import RunFolder, write_json
from .groups import publications_of

FILE = "published.json"
_FIXED = ("the number of queries", "the end of the pool")
_N_PROXY = 400
# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class ClosedLabels:
    """What there is of a finished run with many labels per row.

    >>> import tempfile
    >>> from dataclasses import replace
    >>> from tellers.config import PartitionConfig, QueriesConfig, default_config
    >>> from tellers.pipeline import run
    >>> config = replace(
    ...     default_config("made_multilabel"), partition=PartitionConfig(n_teachers=20),
    ...     queries=QueriesConfig(n_queries=10),
    ... )
    >>> folder = tempfile.mkdtemp()
    >>> _ = run(config, folder)
    >>> closed = read_closed_labels(folder)
    >>> closed.votes()
    LabelVotes(<private>, n_queries=10, n_teachers=20, n_labels=5)
    >>> with closed.books() as ledger:
    ...     sum(entry.event["n_queries"] for entry in ledger.entries()) == len(closed.labels())
    True
    >>> books = account_for_labels(closed, private=True)
    >>> books.n_queries, books.n_answered, books.n_told, books.exact
    (10, 10, 50, Sealed(<private>))
    """

    folder: RunFolder
    config: RunConfig
    result: RunResult

    def books(self) -> ChainedLedger:
        """Open the ledger of the run, to be closed by who asks for it."""
        return open_books(self.config, self.folder)

    def labels(self) -> Labels:
        """Return what came out."""
        with np.load(self.folder.labels, allow_pickle=False) as kept:
            return Labels(kept["rows"], kept["labels"], kept["by_teachers"])

    def votes(self) -> LabelVotes:
        """Return the votes on the rows that were asked, in that order; private."""
        return read_label_votes(self.folder.votes).votes[self.labels().rows]

    @property
    def accountant(self) -> Accountant:
        """Return the budget of the run."""
        return Accountant(Budget(self.config.budget.epsilon, self.config.budget.delta))


def is_label_run(folder: str | PathLike[str]) -> bool:
    """Say whether a folder holds a finished run with many labels per row.

    >>> is_label_run("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    return bool(read_result(Path(folder)).labels)


def read_closed_labels(folder: str | PathLike[str]) -> ClosedLabels:
    """Return the finished run in a folder, or say what is not as it should be.

    >>> read_closed_labels("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    place = RunFolder(Path(folder))
    result = read_result(place.path)
    if not result.labels:
        raise ValueError(
            f"Expected a run with many labels per row ([labels]), {place.path} holds one with one class each."
        )
    return ClosedLabels(place, read_config(place.config), result)


@dataclass(frozen=True, eq=False)
class LabelRunAccount:
    """What the books say of a run with many labels; `exact` is private, and sealed.

    `n_answered` counts rows of which the teachers told a label, `n_told` the labels they told, `n_inferred`
    those that follow from others. `charged` is the epsilon on the ledger for the labels, `stated` what the
    run is held to, `left` the share of the budget that is left, publications counted.

    >>> LabelRunAccount(
    ...     n_queries=10, n_answered=9, n_told=30, n_inferred=2, charged=2.0, stated=2.1, left=0.4
    ... ).exact
    """

    n_queries: int
    n_answered: int
    n_told: int
    n_inferred: int
    charged: float
    stated: float
    left: float
    exact: Sealed[float] | None = None


def account_for_labels(run: ClosedLabels, *, private: bool = False) -> LabelRunAccount:
    """Return what a finished run cost, by its ledger and, if asked for, exactly and sealed.

    There is no exact cost where only sums of ballots were kept.

    >>> account_for_labels(read_closed_labels("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    labels, delta = run.labels(), run.config.budget.delta
    spent = RdpCurve.zero()
    with run.books() as ledger:
        for entry in ledger.entries():
            if entry.key.startswith(f"{run.folder.key}/"):
                spent = spent + entry.charged
        left = run.accountant.left(ledger.spent)
    exact = None
    if private and len(labels):
        votes = run.votes()
        if votes.ballots is not None:
            costs = exact_epsilons(run.config.build_mechanism(), votes, delta=delta).reveal()
            exact = Sealed(float(costs[-1]))
    return LabelRunAccount(
        n_queries=len(labels), n_answered=labels.n_answered, n_told=labels.n_told,
        n_inferred=int(((labels.labels != SILENT) & ~labels.by_teachers).sum()), charged=spent.epsilon(delta),
        stated=run.result.epsilon, left=left, exact=exact,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class LabelProposal:
    """What publishing would do and cost: public, and nothing is charged yet; `done` was published before."""

    run: ClosedLabels
    plan: PublishPlan
    n_queries: int
    notes: tuple[str, ...] = ()
    done: PublishedEpsilon | None = None


def propose_label_publication(
    folder: str | PathLike[str],
    *,
    confidence: float | None = None,
    method: Method | None = None,
    proxy: LabelVotes | None = None,
) -> LabelProposal:
    """Return the plan by which a finished run's cost would be published; it fits what its budget has left.

    Guarantee: looks at settings, the ledger, numbers of queries and the proxy only; charges nothing.
    Assumes:   as `plan_publication`. Without a proxy made-up votes stand in (`LabelConsensus`).
    Reference: docs/maths/publishing.md.

    >>> propose_label_publication("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    run = read_closed_labels(folder)
    done = read_published_epsilon(run)
    if done is not None:
        _require_as_before(done, confidence=confidence, method=method)
        plan = PublishPlan(done.method, done.order, 0.0, 0.0, done.confidence, done.epsilon_upper)
        return LabelProposal(run, plan, run.result.n_asked, done=done)
    mechanism, delta = run.config.build_mechanism(), run.config.budget.delta
    _require_summable(run, mechanism)
    with run.books() as ledger:
        left = _HAIR * run.accountant.value_left(ledger.spent)
        lost = _lost(run, ledger)
    if lost:
        # A plan is fixed before voting: the first one stays.
        told = (
            "An earlier publication was charged and cut off before its number was kept. It stays charged, "
            "its plan too, and this one pays on top of it."
        )
        return LabelProposal(run, lost[0], run.result.n_asked, (told,))
    notes: list[str] = []
    n_teachers, n_labels = run.result.n_teachers, len(run.result.labels)
    if proxy is None:
        made_up = LabelConsensus()
        notes.append(f"Order and noise were chosen on made-up votes: {made_up}.")
        parts = run.config.labels.resolution
        proxy = made_up.votes(n_teachers, n_labels, n_queries=_N_PROXY, seed=0, resolution=parts)
    elif (proxy.n_teachers, proxy.n_labels) != (n_teachers, n_labels):
        raise ValueError(
            f"Expected a proxy of {n_teachers} teachers and {n_labels} labels, got {proxy.n_teachers} and "
            f"{proxy.n_labels}."
        )
    purse = Purse(None, run.accountant.held_at, left)
    plans = plan_publication(
        mechanism, proxy, n_queries=run.result.n_asked, delta=delta, method=method, purse=purse,
        confidence=0.95 if confidence is None else confidence,
    )  # fmt: skip
    plan = plans[0]
    if not np.isfinite(plan.expected_epsilon):
        raise BudgetExhausted(
            "Expected room for a publication in the budget of the run, got too little. Nothing was charged. "
            "Ask fewer queries in the next run ([queries] n_queries), or show the public price: "
            "--method independent."
        )
    if plan.method == "independent" and method is None:
        notes.append("No release that the budget has room for is worth its price, so this is a public price.")
    return LabelProposal(run, plan, run.result.n_asked, tuple(notes))


def publish_label_run(proposal: LabelProposal) -> PublishedEpsilon:
    """Charge the ledger of the run, draw, keep what came out in its folder, and return it.

    Guarantee: as `publish`; the ledger is debited before noise is drawn. What was published is returned as it
               is, however often it is asked for.
    Assumes:   as `publish`; the folder and its ledger are those that the run left.
    Reference: docs/maths/publishing.md.

    >>> publish_label_run(propose_label_publication("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    run, plan = proposal.run, proposal.plan
    mechanism, delta = run.config.build_mechanism(), run.config.budget.delta
    with run.folder.held():
        there = read_published_epsilon(run)
        if there is not None:  # by somebody else, while this one was being thought over
            return there
        votes, source, before = run.votes(), noise.secure(), 0.0
        if len(votes) != proposal.n_queries:
            raise ValueError(
                f"Expected votes on {proposal.n_queries} queries, got {len(votes)}. Was the folder replaced? "
                "Nothing was charged."
            )
        if plan.method != "independent":
            with run.books() as ledger:
                before = sum(lost.price_to(1.0, order=plan.order) for lost in _lost(run, ledger))
                _charge(run, ledger, plan, source)
        published = publish(mechanism, votes, source, plan=plan, delta=delta, charged_before=before)
        if plan.method != "independent":
            # On disk before anybody sees it. A public price is no secret: a release may still follow it.
            write_json(run.folder.path / FILE, {"format": 1, **asdict(published)}, public=True)
    return published


def read_published_epsilon(run: ClosedLabels) -> PublishedEpsilon | None:
    """Return what was published of the run's cost, or None.

    >>> read_published_epsilon(read_closed_labels("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    place = run.folder.path / FILE
    if not place.exists():
        return None
    try:
        kept: dict[str, Any] = json.loads(place.read_bytes())
        if kept.pop("format") != 1:
            raise ValueError(kept)
        return PublishedEpsilon(**kept)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(
            f"Expected what was published in {place}, got something that cannot be read. Restore the file: "
            "what it says was paid for."
        ) from None


def _require_as_before(done: PublishedEpsilon, *, confidence: float | None, method: Method | None) -> None:
    if (method or done.method) != done.method or (confidence or done.confidence) != done.confidence:
        raise ValueError(
            f"Expected --method {done.method} and --confidence {done.confidence:g}, by which this cost was "
            "published before, got others. What was published stays; ask for it without options."
        )


def _require_summable(run: ClosedLabels, mechanism: Any) -> None:
    fixed = run.result.stopped_by in _FIXED or (
        run.result.stopped_by == "the budget" and getattr(mechanism, "one_price", False)
    )
    if not fixed or run.config.budget.stop == "private":
        raise ValueError(
            "Expected a run that ends at a number of queries fixed beforehand, got one whose end depends on "
            "what comes out: a cost summed up to there bounds nothing. Set [queries] n_queries so low that "
            "the budget reaches."
        )


def _charge(run: ClosedLabels, ledger: ChainedLedger, plan: PublishPlan, source: noise.Noise) -> None:
    """Debit the ledger; nothing of it flows back."""
    grid = check_orders(None)
    price = RdpCurve(grid, np.array([plan.price_to(1.0, order=float(order)) for order in grid]))
    event: dict[str, Any] = {
        "mechanism": "Publication", "parameters": asdict(plan), "noise": source.name,
        "unit": run.result.unit, "n_queries": 0,
    }  # fmt: skip
    ticket = ledger.reserve(f"{publications_of(run.folder.key)}{len(_lost(run, ledger))}", price, event=event)
    ledger.settle(ticket, Release(np.empty(0, dtype=np.int64), Cost(price)))


def _lost(run: ClosedLabels, ledger: ChainedLedger) -> list[PublishPlan]:
    """Return the plans of the publications that are on the books."""
    begins = publications_of(run.folder.key)
    return [
        PublishPlan(**entry.event["parameters"]) for entry in ledger.entries() if entry.key.startswith(begins)
    ]
