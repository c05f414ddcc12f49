"""What publishing the cost of a run with one budget for all takes: a plan, its price, the noise, the line."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Any

import numpy as np

from ..calibrate import Consensus, LabelConsensus, plan_publication
from ..calibrate.publication import Purse
from ..card.published import EVERYONE, PublishedCost
from ..errors import BudgetExhausted
from ..label_votes import LabelVotes
from ..labelling import most_expected
from ..ledger.base import Entry
from ..ledger.chained import ChainedLedger
from ..mechanisms import ConfidentGNMax, LNMax
from ..noise import Noise
from ..publication import PublicationRecord
from ..publishable import Method, available_methods, independent_cost
from ..rdp import RdpCurve, check_orders
from ..smooth import PublishPlan, release_cost, require_one_ballot
from ..teachers.label_store import read_label_votes
from ..teachers.store import read_votes
from ..votes import Votes
from ._bills import Bill, before_on, up_to
from .closed_pool import ClosedPool, require_summable_pool
from .folder import RunFolder
from .groups import publications_of

_N_PROXY = {"classes": 1000, "labels": 400}
# What fits an account to the last bit may not when it is added up in another order.
_HAIR = 1 - 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class PoolPublisher:
    """Publishes one value for everyone; the ledger of the run pays.

    >>> from .closed_pool import read_closed_pool
    >>> PoolPublisher(read_closed_pool("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """

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
            if isinstance(mechanism, LNMax):
                notes.append(
                    "Of LNMax the papers' bound alone can be published, which covers one direction of the "
                    "divergence: --method gnss. This is the public price."
                )
            elif available_methods(mechanism) == ("independent",):
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
            "unit": self.run.result.unit, "n_queries": 0,
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
        return min(self.run.result.epsilon, self.run.accountant.epsilon(self._most()))

    def _most(self) -> RdpCurve:
        return most_expected(self.run.result.n_asked, self.run.config.build_mechanism())

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
        n_teachers = result.n_teachers
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
            return consensus.votes(n_teachers, len(result.class_names), n_queries=_N_PROXY[kind], seed=0)[0]
        wanted = (n_teachers, len(result.labels if kind == "labels" else result.class_names))
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
    """Refuse the papers' form where it adds up the answers that happened to be given.

    >>> require_bound(ConfidentGNMax(40.0, 200, 150.0), "gnss")
    Traceback (most recent call last):
        ...
    ValueError: Expected envelope or independent to publish what a run with ConfidentGNMax cost, got ...
    """
    if method == "gnss" and isinstance(mechanism, ConfidentGNMax):
        raise ValueError(
            "Expected envelope or independent to publish what a run with ConfidentGNMax cost, got 'gnss': "
            "the papers' form adds up the answers that were given, along the path that was taken, and bounds "
            "nothing. Nothing was charged."
        )


def curve_of(plan: PublishPlan) -> RdpCurve:
    """Return what a publication costs whoever moves one ballot, at every order of a ledger.

    >>> plan = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=1.3)
    >>> curve = curve_of(plan)
    >>> float(curve.values[curve.orders == 12.0][0]) == plan.price
    True
    """
    grid = check_orders(None)
    return RdpCurve(grid, np.array([plan.price_to(1.0, order=float(order)) for order in grid]))


def side_plans(folder: RunFolder) -> Iterator[PublishPlan]:
    """Yield the plans of releases that were charged to a file beside the votes of a run, and to no ledger.

    >>> from pathlib import Path
    >>> list(side_plans(RunFolder(Path("nowhere"))))
    []
    """
    for path in sorted(folder.private.rglob("*.publications.jsonl")):
        for entry in PublicationRecord(path).entries():
            if entry["entry"] == "charged":
                yield PublishPlan(**entry["plan"])
