"""A finished run in which people had budgets of their own, read again from its folder.

Nothing is trained, asked or charged here: settings, plan, votes and labels are those on disk, the batches
those on the ledger. The private table is not opened.
"""

import json
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from ..card.result import RunResult
from ..config import RunConfig, read_config
from ..labelling import Labels
from ..ledger.chained import ChainedLedger
from ..mechanisms import ConfidentGNMax, GNMax
from ..personal import PersonalPlan, Vanishing
from ..personal.accounting import Asked
from ..personal.record import plan_from_dict
from ..rdp import RdpCurve
from ..report.folder import read_private, read_result
from ..sealed import Sealed
from ..teachers.partition import Partition
from ..teachers.store import read_votes
from ..votes import Votes
from .beginning import open_books
from .closed_pool import FIXED_ENDS, require_ledger
from .electorate import Electorate
from .folder import RunFolder
from .groups import Batch, batches_under, exact_by_groups


@dataclass(frozen=True, eq=False, repr=False)
class ClosedRun:
    """What there is of a finished run with groups; `plan` has the mechanism as it was used.

    >>> import tempfile
    >>> from tellers.config import DataConfig, MechanismConfig, PartitionConfig, PersonalConfig, QueriesConfig
    >>> small = RunConfig(
    ...     data=DataConfig(name="breast_cancer", n_public=60, n_test=60),
    ...     partition=PartitionConfig(n_teachers=10), mechanism=MechanismConfig(name="gnmax", sigma=5.0),
    ...     queries=QueriesConfig(n_queries=20),
    ...     personal=PersonalConfig(variant="weighting", levels={"low": 8.0}, shares={"low": 1.0}),
    ... )
    >>> from tellers.pipeline import run
    >>> folder = tempfile.mkdtemp()
    >>> _ = run(small, folder)
    >>> closed = read_closed(folder)
    >>> with closed.books() as ledger:
    ...     closed.asked(ledger)
    Asked(<private>, variant='weighting', n_queries=20)
    >>> len(closed.votes()) == len(closed.labels()) == 20
    True
    """

    folder: RunFolder
    config: RunConfig
    result: RunResult
    plan: PersonalPlan

    def books(self) -> ChainedLedger:
        """Open the ledger of the run, to be closed by who asks for it."""
        require_ledger(self.config, self.folder)
        return open_books(self.config, self.folder)

    def votes(self) -> Votes:
        """Return the votes on the rows that were asked, in that order, before weights; private."""
        every = read_votes(self.folder.votes, n_classes=len(self.result.class_names)).votes
        return every[self.labels().rows]

    def labels(self) -> Labels:
        """Return what came out."""
        with np.load(self.folder.labels, allow_pickle=False) as kept:
            return Labels(kept["rows"], kept["labels"], kept["by_teachers"])

    def asked(self, ledger: ChainedLedger) -> Asked:
        """Return all queries as they were counted, refusing a run whose cost cannot be summed up and told."""
        batches = batches_under(ledger, self.folder.key)
        self._require_summable(ledger, batches)
        there = [batch for batch in batches if batch.is_settled]
        votes, weights = self.votes(), [self.plan.weights(b.n_queries, key=b.key) for b in there]
        if not there or len(votes) != sum(batch.n_queries for batch in there):
            raise ValueError(
                f"Expected labels of the batches on the ledger in {self.folder.labels.name}, got others. "
                f"Was the folder or its ledger replaced? Nothing was charged."
            )
        if weights[0] is not None:
            # Those of weighting are the same in every batch; who vanishes does so by a batch's own schedule.
            votes = votes.weighted(
                weights[0]
                if weights[0].ndim == 1
                else np.concatenate([w for w in weights if w is not None], 1)
            )
        answered = None if isinstance(self.plan.mechanism, GNMax) else self.labels().by_teachers
        return Asked(self.plan, votes, answered=answered)

    def _require_summable(self, ledger: ChainedLedger, batches: list[Batch]) -> None:
        mechanism, run = self.plan.mechanism, self.result
        if not isinstance(mechanism, (GNMax, ConfidentGNMax)) or self.config.queries.order == "active":
            raise ValueError(
                "Expected gnmax or confident and an order fixed beforehand to publish what a run cost, got a "
                "run in which the student took part in the asking: what was asked then depends on what came "
                "out, and a cost along the path that was taken bounds nothing. Public costs are in "
                f"tellers account {self.folder.path}"
            )
        gone = sorted({name for batch in batches for name in batch.absent})
        if gone:
            raise ValueError(
                "Expected a run in which every group took part to the end, got one that "
                f"{' and '.join(map(repr, gone))} left: costs are published for one plan of the groups. Let "
                "nobody leave ([personal] leave = false), or end it before ([queries] n_queries)."
            )
        ended = run.stopped_by not in FIXED_ENDS and not isinstance(mechanism, GNMax)
        if not ended and isinstance(self.plan, Vanishing) and not isinstance(mechanism, GNMax):
            # With more answers the budgets would have cut batches short, and so changed who sits out when.
            ended = not _always_affordable(ledger, self.plan, self.folder.key)
        if ended:
            raise ValueError(
                "Expected a run that ends at a number of queries fixed beforehand, got one that a budget or "
                "a number of labels may end: how many are asked then depends on what comes out, and a cost "
                "summed up to there bounds nothing. Set [queries] n_queries so low that all budgets reach."
            )


def read_closed(folder: str | PathLike[str]) -> ClosedRun:
    """Return the finished run in a folder, or say what is not as it should be.

    >>> read_closed("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    place = RunFolder(Path(folder))
    result = read_result(place.path)
    if result.personal is None:
        raise ValueError(
            f"Expected a run with budgets per group ([personal]), {place.path} holds one with one budget for "
            "all."
        )
    return closed_of(place, read_config(place.config), result)


def closed_of(place: RunFolder, config: RunConfig, result: RunResult) -> ClosedRun:
    """Return the run with groups whose public numbers these are, with the plan in its folder.

    >>> closed_of(RunFolder(Path("nowhere")), RunConfig(), None)
    Traceback (most recent call last):
        ...
    ValueError: Expected the plan of the groups in nowhere/plan.json, got none that can be read.
    """
    try:
        record = json.loads(place.plan.read_bytes())
    except (OSError, ValueError):
        raise ValueError(
            f"Expected the plan of the groups in {place.plan}, got none that can be read."
        ) from None
    return ClosedRun(place, config, result, plan_from_dict(record).using(config.mechanism.build()))


@dataclass(frozen=True, eq=False)
class GroupAccount:
    """What the books say of one group after a run; `exact` is private, and sealed.

    `public` is the epsilon charged for the labels, `on_account` that of all there is on its account.

    >>> GroupAccount("low", budget=5.0, public=2.8, stated=2.8, on_account=2.8, left=0.6, n_labels=90).exact
    """

    name: str
    budget: float
    public: float
    stated: float
    on_account: float
    left: float
    n_labels: int
    exact: Sealed[float] | None = None


def account_for_groups(run: ClosedRun, *, private: bool = False) -> tuple[GroupAccount, ...]:
    """Return what a finished run cost each group, by its ledger and, if asked for, exactly and sealed.

    Exact costs of upsampling need to know whose data taught whom: they are there if the run kept its private
    numbers.

    >>> account_for_groups(read_closed("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    assert run.result.personal is not None
    exact = _exact(run) if private else {}
    with run.books() as ledger:
        states = ledger.accounts()
        labels = {
            group.name: sum(
                b.n_labels for b in batches_under(ledger, run.folder.key) if group.name not in b.absent
            )
            for group in run.plan.groups
        }
    return tuple(
        GroupAccount(
            group.name,
            budget=group.epsilon,
            public=told.spent,
            stated=told.epsilon,
            on_account=states[group.account].epsilon,
            left=states[group.account].accountant.left(states[group.account].spent),
            n_labels=labels[group.name],
            exact=exact.get(group.name),
        )
        for group, told in zip(run.plan.groups, run.result.personal.groups, strict=True)
    )


def _exact(run: ClosedRun) -> dict[str, Sealed[float]]:
    if run.plan.members:
        with run.books() as ledger:
            batches = batches_under(ledger, run.folder.key)
        asked = run.labels()
        costs = exact_by_groups(
            # Each teacher is of one group: who the rows belong to does not matter, and they are not read.
            Electorate(Partition((np.arange(1),), unit="one record"), plan=run.plan),
            run.votes(),
            labels=replace(asked, rows=np.arange(len(asked))),  # the votes kept are those on what was asked
            batches=batches,
            delta=run.config.budget.delta,
        )
        last = costs.reveal()[-1]["epsilon"] if costs is not None else {}
    else:
        kept = run.folder.summary.exists()
        curves = read_private(run.folder.path).exact_by_group if kept else {}
        last = {name: curve[-1][1] for name, curve in curves.items() if curve}
    return {name: Sealed(epsilon) for name, epsilon in last.items()}


def _always_affordable(ledger: ChainedLedger, plan: PersonalPlan, key: str) -> bool:
    """Say whether every budget would have paid for all batches, had every query been answered."""
    states = ledger.accounts()
    for group in plan.groups:
        reserved = RdpCurve.zero()
        for entry in ledger.entries():
            if entry.key.startswith(f"{key}/") and group.account in entry.also:
                reserved = reserved + entry.also[group.account].reserved
        if not states[group.account].accountant.affords(RdpCurve.zero(), reserved):
            return False
    return True
