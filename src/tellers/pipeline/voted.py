"""The second half of a run: teachers have voted, and what they said is kept. Labels, student and report.

Teachers that were trained once answer for many students and settings. Everything that costs privacy is done
here as in any run: the same ledger, the same room, the same rules for when to stop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..label_votes import LabelVotes
from ..teachers.label_store import read_label_votes, save_label_votes
from ..teachers.partition import Partition
from .beginning import begin
from .data import digest
from .folder import RunFolder
from .label_data import LabelTables
from .labels import run_labels
from .outcome import write_outcome
from .overlap import Warn
from .steps import Show, Steps


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Voted:
    """Teachers' votes on a public pool, with the tables and the parts that they come from.

    `test_votes` are those on the test rows, which private numbers need.

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

    tables: LabelTables
    partition: Partition
    votes: LabelVotes
    test_votes: LabelVotes | None = None

    def __post_init__(self) -> None:
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
    `warn` are those of `run`, and `beside` are files that travel with the student.

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
    if config.report.private and voted.test_votes is None and voted.tables.test is not None:
        raise ValueError("Expected votes on the test rows too for private numbers, got none.")
    place = RunFolder(Path(folder))
    with place.held():
        begin(place, config, resume=resume)
        _keep(place.votes, voted.votes)
        if voted.test_votes is not None:
            _keep(place.test_votes, voted.test_votes)
        steps = Steps(show or (lambda *_: None))
        result, student, numbers = run_labels(
            config, place, steps, warn, dealt=(voted.tables, voted.partition)
        )
        with steps.step("report"):
            write_outcome(place, result=result, student=student, numbers=numbers, beside=beside)
    return result, student


def _keep(path: Path, votes: LabelVotes) -> None:
    """Write votes down, or see that those of a run that goes on are the same."""
    if not path.exists():
        save_label_votes(path, votes)
        return
    there = read_label_votes(path).votes
    if digest(there.sums) != digest(votes.sums):
        raise ValueError(
            f"Expected the votes that the run in {path.parent.parent} was begun with, got others. "
            "Take another folder (--out)."
        )
