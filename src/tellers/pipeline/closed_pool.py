"""A finished run with one budget for all, read again from its folder: one class per row, or many labels.

Nothing is trained, asked or charged here: settings, votes and labels are those on disk, what was charged is
on the ledger. The private table is not opened.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..budget import Accountant, Budget
from ..card.result import RunResult
from ..config import RunConfig, read_config
from ..exact import exact_epsilons
from ..label_votes import LabelVotes
from ..labelling import Labels
from ..ledger.chained import ChainedLedger
from ..ledger.opening import is_url
from ..rdp import RdpCurve
from ..release import SILENT
from ..report.folder import read_result
from ..sealed import Sealed
from ..teachers.label_store import read_label_votes
from ..teachers.store import read_votes
from ..votes import Votes
from .beginning import open_books, takes_part
from .folder import RunFolder
from .groups import publications_of

# What ends a run at a place that was known beforehand, whatever comes out.
FIXED_ENDS = ("the number of queries", "the end of the pool")


@dataclass(frozen=True, eq=False, repr=False)
class ClosedPool:
    """What there is of a finished run with one budget for all.

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
    >>> closed = read_closed_pool(folder)
    >>> closed.votes()
    LabelVotes(<private>, n_queries=10, n_teachers=20, n_labels=5)
    >>> with closed.books() as ledger:
    ...     sum(entry.event["n_queries"] for entry in ledger.entries()) == len(closed.labels())
    True
    >>> books = account_for_pool(closed, private=True)
    >>> books.n_queries, books.n_answered, books.n_told, books.exact
    (10, 10, 50, Sealed(<private>))
    """

    folder: RunFolder
    config: RunConfig
    result: RunResult

    @property
    def kind(self) -> str:
        """Return what was released: classes, or labels where a row has many."""
        return "labels" if self.result.labels else "classes"

    def books(self) -> ChainedLedger:
        """Open the ledger of the run, to be closed by who asks for it."""
        require_ledger(self.config, self.folder)
        return open_books(self.config, self.folder)

    def labels(self) -> Labels:
        """Return what came out."""
        with np.load(self.folder.labels, allow_pickle=False) as kept:
            return Labels(kept["rows"], kept["labels"], kept["by_teachers"])

    def votes(self) -> Votes | LabelVotes:
        """Return the votes on the rows that were asked, in that order; private."""
        rows = self.labels().rows
        if self.result.labels:
            return read_label_votes(self.folder.votes).votes[rows]
        return read_votes(self.folder.votes, n_classes=len(self.result.class_names)).votes[rows]

    @property
    def accountant(self) -> Accountant:
        """Return the budget of the run."""
        return Accountant(Budget(self.config.budget.epsilon, self.config.budget.delta))


def require_ledger(config: RunConfig, folder: RunFolder) -> None:
    """Refuse a finished run whose ledger is gone: an empty one in its place would know of nothing.

    >>> require_ledger(RunConfig(), RunFolder(Path("nowhere")))
    Traceback (most recent call last):
        ...
    ValueError: Expected the ledger of the run at nowhere/ledger.db, found none. Restore it: ...
    """
    place = folder.path / config.budget.ledger
    if not is_url(config.budget.ledger) and not place.exists():
        raise ValueError(
            f"Expected the ledger of the run at {place}, found none. Restore it: what was spent is on it."
        )


def read_closed_pool(folder: str | PathLike[str]) -> ClosedPool:
    """Return the finished run in a folder, or say what is not as it should be.

    >>> read_closed_pool("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    place = RunFolder(Path(folder))
    result = read_result(place.path)
    if result.personal is not None:
        raise ValueError(
            f"Expected a run with one budget for all, {place.path} holds one with budgets per group."
        )
    return ClosedPool(place, read_config(place.config), result)


@dataclass(frozen=True, eq=False)
class PoolAccount:
    """What the books say of a run with one budget for all; `exact` is private, and sealed.

    `n_answered` counts rows of which the teachers told a label, `n_told` the labels they told, `n_inferred`
    those that follow from others. `charged` is the epsilon on the ledger for the labels, `stated` what the
    run is held to, `left` the share of the budget that is left, publications counted.

    >>> PoolAccount(
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


def account_for_pool(run: ClosedPool, *, private: bool = False) -> PoolAccount:
    """Return what a finished run cost, by its ledger and, if asked for, exactly and sealed.

    There is no exact cost where a student took part in the asking, of mechanisms that have none, and of many
    labels where only sums of ballots were kept.

    >>> account_for_pool(read_closed_pool("nowhere"))
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
    if private and len(labels) and not takes_part(run.config):
        votes, mechanism = run.votes(), run.config.build_mechanism()
        if hasattr(mechanism, "outcomes") and not (isinstance(votes, LabelVotes) and votes.ballots is None):
            exact = Sealed(float(exact_epsilons(mechanism, votes, delta=delta).reveal()[-1]))
    return PoolAccount(
        n_queries=len(labels), n_answered=labels.n_answered, n_told=labels.n_told,
        n_inferred=int(((labels.labels != SILENT) & ~labels.by_teachers).sum()), charged=spent.epsilon(delta),
        stated=run.result.epsilon, left=left, exact=exact,
    )  # fmt: skip


def require_summable_pool(run: ClosedPool, ledger: ChainedLedger) -> None:
    """Refuse a run whose cost along the path that was taken bounds nothing, or whose books are not its own.

    Guarantee: if it passes, the list of queries was fixed before the first vote was counted.
    Assumes:   the settings in the folder are those the run was made with.
    Reference: docs/maths/publishing.md, "What a run can publish".

    >>> require_summable_pool(read_closed_pool("nowhere"), None)
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    mechanism: Any = run.config.build_mechanism()
    told = f"Its public epsilon stays: {run.result.epsilon:.4g}. Nothing was charged."
    if run.config.budget.stop == "private":
        raise ValueError(
            'Expected a run that stops on a public budget, got one with [budget] stop = "private": how many '
            f"queries were asked depends on the votes, and no published cost covers that. {told}"
        )
    if takes_part(run.config):
        how = "in the active order" if run.config.queries.order == "active" else "by an interactive mechanism"
        raise ValueError(
            f"Expected an order fixed beforehand, got a run {how}, in which the student took part in the "
            "asking: what was asked then depends on what came out, and a cost along the path that was taken "
            f"bounds nothing. {told}"
        )
    own = (f"{run.folder.key}/", publications_of(run.folder.key))
    entries = ledger.entries()
    fixed = run.result.stopped_by in FIXED_ENDS
    if not fixed and getattr(mechanism, "one_price", False):
        # Every query costs the same and is answered: where it ends was known beforehand, unless others
        # spend from the same budget.
        fixed = run.result.stopped_by != "the budget" or all(each.key.startswith(own) for each in entries)
    if not fixed:
        raise ValueError(
            "Expected a run that ends at a number of queries fixed beforehand, got one that ended by "
            f"{run.result.stopped_by}: how many are asked then depends on what comes out, and a cost summed "
            f"up to there bounds nothing. Set [queries] n_queries so low that the budget reaches. {told}"
        )
    there = sum(
        int(each.event["n_queries"]) for each in entries if each.key.startswith(own[0]) and each.is_settled
    )
    if there != len(run.labels()):
        raise ValueError(
            f"Expected the labels in {run.folder.labels.name} to be those on the ledger, got others. Was the "
            "folder or its ledger replaced? Nothing was charged."
        )
