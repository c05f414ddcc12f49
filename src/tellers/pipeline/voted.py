"""The second half of a run: teachers have voted, and what they said is kept. Labels, student and report.

Teachers that were trained once answer for many students and settings. Everything that costs privacy is done
here as in any run: the same ledger, the same room, the same rules for when to stop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..config import BudgetConfig, RunConfig
from ..label_votes import LabelVotes
from ..teachers.label_store import read_label_votes, save_label_votes
from ..teachers.partition import Partition
from ..teachers.store import read_votes, save_votes
from ..votes import Votes
from .beginning import begin, require_able
from .classes import run_classes
from .data import Tables, digest
from .folder import RunFolder
from .label_data import LabelTables
from .labels import require_able_labels, run_labels
from .outcome import write_outcome
from .overlap import Warn
from .steps import Show, Steps


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Voted:
    """Teachers' votes on a public pool, with the tables and the parts that they come from.

    Votes and tables are those of many labels, or those of one class per row. `test_votes` are those on the
    test rows, which private numbers need. `ledger` is where all releases of these votes are charged; where it
    is empty, the settings of a run say.

    >>> import numpy as np
    >>> from tellers.datasets.multilabel import MultilabelDataset
    >>> rows = MultilabelDataset(name="t", X=np.zeros((4, 2)), Y=np.ones((4, 1)), label_names=("x",))
    >>> tables = LabelTables(rows, np.zeros((3, 2)))
    >>> parts = Partition((np.arange(2), np.arange(2, 4)), unit="one record")
    >>> Voted(tables=tables, partition=parts, votes=LabelVotes.from_sums([[2], [0], [1]], n_teachers=2))
    Voted(<private>, n_queries=3, n_teachers=2)
    >>> Voted(tables=tables, partition=parts, votes=LabelVotes.from_sums([[2]], n_teachers=2))
    Traceback (most recent call last):
        ...
    ValueError: Expected votes of 2 teachers on 3 rows of the pool, got those of 2 on 1.
    """

    tables: LabelTables | Tables
    partition: Partition
    votes: LabelVotes | Votes
    test_votes: LabelVotes | Votes | None = None
    ledger: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.votes, LabelVotes) != isinstance(self.tables, LabelTables):
            raise ValueError(
                "Expected votes on many labels with tables of many labels, or on classes with tables of "
                "classes, got one of each."
            )
        given = (self.votes.n_teachers, len(self.votes))
        wanted = (len(self.partition), len(self.tables.pool))
        if given != wanted:
            raise ValueError(
                f"Expected votes of {wanted[0]} teachers on {wanted[1]} rows of the pool, got those of "
                f"{given[0]} on {given[1]}."
            )

    def __repr__(self) -> str:
        return f"Voted(<private>, n_queries={len(self.votes)}, n_teachers={self.votes.n_teachers})"


def run_voted(
    config: RunConfig,
    folder: str | PathLike[str],
    *,
    voted: Voted,
    beside: Mapping[str, bytes] | None = None,
    resume: bool = False,
    show: Show | None = None,
    warn: Warn | None = None,
) -> tuple[dict[str, Any], Any]:
    """Release labels of the pool by a config, teach a student; return the public numbers, and the student.

    The folder becomes one of a run, with a copy of the votes among what is private; `resume`, `show` and
    `warn` are those of `run`, and `beside` are files that travel with the student. Votes that name a ledger
    are charged there, and nowhere else.

    Guarantee: that of `run`: all releases together keep to the budget of the ledger.
    Assumes:   the votes are those of teachers of the partition; the settings were not chosen by looking at
               them.
    Reference: Papernot et al. 2017, section 2.

    >>> import tempfile
    >>> from dataclasses import replace
    >>> from tellers.config import PartitionConfig, QueriesConfig, default_config
    >>> from tellers.pipeline.electorate import deal_rows
    >>> from tellers.pipeline.label_data import read_label_tables
    >>> config = replace(
    ...     default_config("made_multilabel"), partition=PartitionConfig(n_teachers=20),
    ...     queries=QueriesConfig(n_queries=10),
    ... )
    >>> tables = read_label_tables(config)
    >>> votes = LabelVotes.from_sums(20 * tables.pool_y, n_teachers=20)
    >>> voted = Voted(tables=tables, partition=deal_rows(config, tables), votes=votes)
    >>> result, student = run_voted(config, tempfile.mkdtemp(), voted=voted)
    >>> result["queries"]["n_asked"], student.predict(tables.pool[:2]).shape
    (10, (2, 5))
    """
    # Before anything is written down: what is refused may be put right in the same folder.
    check_voted(config, voted)
    config, place = _charged_to(config, voted.ledger), RunFolder(Path(folder))
    with place.held():
        begin(place, config, resume=resume)
        _keep(place.votes, voted.votes)
        if voted.test_votes is not None:
            _keep(place.test_votes, voted.test_votes)
        steps = Steps(show or (lambda *_: None))
        if isinstance(voted.tables, LabelTables):
            many = (voted.tables, voted.partition)
            result, student, numbers = run_labels(config, place, steps, warn, dealt=many)
        else:
            one = (voted.tables, voted.partition)
            result, student, numbers = run_classes(config, place, steps, warn, dealt=one)
        with steps.step("report"):
            write_outcome(place, result=result, student=student, numbers=numbers, beside=beside)
    return result, student


def check_voted(config: RunConfig, voted: Voted) -> None:
    """Refuse settings that do not go with the votes, or a model that would fail after labels were paid for.

    >>> check_voted.__name__
    'check_voted'
    """
    if bool(config.labels.names) != isinstance(voted.tables, LabelTables):
        raise ValueError(
            f"{config.where('labels', 'names')}: Expected labels for votes on many labels, and none for "
            "votes on classes, got the other."
        )
    if config.report.private and voted.test_votes is None and voted.tables.test is not None:
        raise ValueError("Expected votes on the test rows too for private numbers, got none.")
    if isinstance(voted.tables, LabelTables):
        require_able_labels(config, voted.tables)
    else:
        require_able(config, voted.tables)


def _charged_to(config: RunConfig, ledger: str) -> RunConfig:
    """Return the settings with the ledger of the votes, or refuse another one."""
    if not ledger or config.budget.ledger == ledger:
        return config
    if config.budget.ledger != BudgetConfig().ledger:
        raise ValueError(
            f"{config.where('budget', 'ledger')}: Expected the ledger that these votes are charged to, got "
            "another. Two ledgers are two budgets for the same votes. Leave it out."
        )
    return replace(config, budget=replace(config.budget, ledger=ledger))


def _keep(path: Path, votes: LabelVotes | Votes) -> None:
    """Write votes down, or see that those of a run that goes on are the same."""
    if not path.exists():
        if isinstance(votes, LabelVotes):
            save_label_votes(path, votes)
        else:
            save_votes(path, votes)
        return
    if isinstance(votes, LabelVotes):
        same = digest(read_label_votes(path).votes.sums) == digest(votes.sums)
    else:
        same = digest(read_votes(path, n_classes=votes.n_classes).votes.counts) == digest(votes.counts)
    if not same:
        raise ValueError(
            f"Expected the votes that the run in {path.parent.parent} was begun with, got others. "
            "Take another folder (--out)."
        )
