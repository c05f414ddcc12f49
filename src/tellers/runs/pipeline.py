"""The pipeline: data, partition, teachers, votes, labels, student, and what it cost.

Every step leaves something whole in the folder, so a run that was killed goes on where it was: teachers and
votes are not made again, and what is on the ledger is read from there, never charged twice.
"""

import csv
import io
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..data.clips import settings_beside_student
from ..privacy._files import write_whole
from ..privacy.votes import LabelVotes, Votes
from ..students.fitting import fit_distilled, fit_labels, fit_self_taught, fit_semi_supervised, fit_supervised
from ..teachers.partitions import Partition
from ._asking import Spending, absent_at_first, release_labels
from ._assignment import Electorate, group_rows, seat_teachers
from ._begin import Show, Steps, begin, make_student, open_books, require_able, require_same
from ._folder import RunFolder, Warn, check_overlap, tell_units
from ._groups import ceiling_notes, lost_student
from ._numbers import private_numbers, public_result
from ._private import PrivateNumbers
from ._tables import LabelTables, Tables, digest, read_label_tables, read_tables
from ._voting import Voting, stored_votes, write_votes
from .card.card import ModelCard
from .card.export import export_student
from .labelling import Labels
from .publishing import with_published
from .report.write import write_page
from .result import RunResult, write_json, write_result
from .settings.sections import CLIPS, BudgetConfig, RunConfig

ShowGroups = Callable[[list[dict[str, Any]], tuple[str, ...]], object]


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """What came of a run: its public result, the student, and private numbers where they were asked for."""

    result: RunResult
    student: Any
    private: PrivateNumbers | None = None


def run_steps(
    config: RunConfig,
    folder: RunFolder,
    steps: Steps,
    warn: Warn | None = None,
    *,
    show_groups: ShowGroups | None = None,
    dealt: "tuple[Tables | LabelTables, Partition] | None" = None,
) -> Outcome:
    """Do everything that a config says, of classes or of many labels; the guarantee is that of `run`.

    `dealt` are tables and parts that were made before, for teachers whose votes lie in the folder; without it
    they are those of the config.
    """
    mechanism = config.build_mechanism()
    with steps.step("data"):
        if dealt is None:
            tables = _read(config)
            electorate = seat_teachers(config, tables)
        else:
            tables, electorate = dealt[0], Electorate(dealt[1])
        if electorate.plan is not None and show_groups is not None:
            notes = ceiling_notes(config, electorate)
            show_groups(group_rows(electorate), (*electorate.plan.summary, *notes))
        require_same(folder, tables, electorate, seed=config.seed)
        require_able(config, tables)
        check_overlap(config, tables, folder)
        tell_units(tables, warn)
        # A budget that pays for nothing, or another ledger, is refused before teachers are trained.
        with open_books(config, folder, electorate) as ledger:
            absent = absent_at_first(ledger, config, electorate, key=folder.key)
    voting = Voting(config, tables, folder, electorate, steps.step, steps.progress)
    votes = voting.votes(absent)
    with steps.step("labels"):
        labels, spending = release_labels(
            config, tables, electorate, mechanism=mechanism, votes=votes, folder=folder,
            vote_anew=voting.anew, progress=steps.progress("labels"),
        )  # fmt: skip
        if isinstance(tables, LabelTables):
            write_whole(folder.path / "labels.csv", _as_csv(config, labels), shared=True)
    with steps.step("student"):
        training = folder.lesson(config.student)
        student = teach(
            config, tables, labels, spending, progress=steps.progress("student"), training=training
        )
    result = public_result(
        config, tables, electorate, mechanism=mechanism, labels=labels, spending=spending, student=student,
        seconds=steps.seconds, started=steps.started,
    )  # fmt: skip
    if not config.report.private:
        return Outcome(result, student)
    with steps.step("report"):
        private = private_numbers(
            config, tables, electorate, mechanism=mechanism, votes=votes,
            test_votes=voting.test_votes(absent), labels=labels, spending=spending, seconds=steps.seconds,
            cast=voting.cast,
        )  # fmt: skip
    return Outcome(result, student, private)


def _read(config: RunConfig) -> Tables | LabelTables:
    if config.labels.names:
        return read_label_tables(config)
    return read_tables(config.data, seed=config.seed, by=config.protects, personal=config.personal)


def teach(
    config: RunConfig,
    tables: Tables | LabelTables,
    labels: Labels,
    spending: Spending,
    *,
    progress: Callable[[int, int], object] | None = None,
    training: Path | None = None,
) -> Any:
    """Return the student, taught what came out by the rules of the config."""
    chosen, seed = config.student, config.seed
    asked, told = tables.pool[labels.rows], labels.labels
    try:
        model = make_student(config, tables)
        if chosen.kind == "distilled" and labels.values is not None:
            return fit_distilled(
                model, asked, labels.values, temperature=chosen.temperature, floor=chosen.floor, seed=seed
            )
        if chosen.kind in ("self_taught", "semi_supervised"):
            rest = tables.pool[np.setdiff1d(np.arange(len(tables.pool)), labels.rows)]
            if chosen.kind == "self_taught":
                return fit_self_taught(model, asked, told, rest, seed=seed)
            return fit_semi_supervised(
                model, asked, told, rest if len(rest) else asked, seed=seed, progress=progress,
                folder=training,
            )  # fmt: skip
        fit = fit_labels if isinstance(tables, LabelTables) else fit_supervised
        return fit(model, asked, told, seed=seed)
    except ValueError as error:
        raise lost_student(error, spending.charged) from error


def _as_csv(config: RunConfig, labels: Labels) -> bytes:
    """Return the labels as a table with a column for each: 1, 0, or -1 where nothing was told."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["row", *config.labels.names])
    table.writerows(np.column_stack([labels.rows, labels.labels]).tolist())
    return written.getvalue().encode()


def write_outcome(folder: RunFolder, outcome: Outcome, *, beside: Mapping[str, bytes] | None = None) -> None:
    """Write down what came of a run; the public result last but for the pages, as it says the run is done."""
    if outcome.private is not None:
        write_json(folder.summary, outcome.private.as_dict(), public=False)
    card = ModelCard.from_result(outcome.result)
    export_student(outcome.student, folder.student, card=card, overwrite=True, beside=beside)
    shutil.rmtree(folder.training, ignore_errors=True)  # it is taught
    write_result(folder.path, outcome.result)
    write_page(folder.path, outcome.result)
    if outcome.private is not None:
        write_page(folder.path, outcome.result, outcome.private)


# Teachers that have voted
#
# Teachers that were trained once answer for many students and settings. Everything that costs privacy is done
# as in any run: the same ledger, the same room, the same rules for when to stop.


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Voted:
    """Teachers' votes on a public pool, with the tables and the parts that they come from.

    Votes and tables are those of many labels, or those of one class per row. `test_votes` are those on the
    test rows, which private numbers need. `ledger` is where all releases of these votes are charged; where it
    is empty, the settings of a run say.

    >>> import numpy as np
    >>> from tellers.data import MultilabelDataset
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
) -> tuple[RunResult, Any]:
    """Release labels of the pool by a config, teach a student; return the public result, and the student.

    The folder becomes one of a run, with a copy of the votes among what is private; `resume`, `show` and
    `warn` are those of `run`, and `beside` are files that travel with the student. Votes that name a ledger
    are charged there, and nowhere else.

    Guarantee: that of `run`: all releases together keep to the budget of the ledger.
    Assumes:   the votes are those of teachers of the partition; the settings were not chosen by looking at
               them.
    Reference: Papernot et al. 2017, section 2.

    >>> import tempfile
    >>> from dataclasses import replace
    >>> from tellers.runs import PartitionConfig, QueriesConfig, default_config
    >>> from tellers.runs._assignment import deal_rows
    >>> from tellers.runs._tables import read_label_tables
    >>> config = replace(
    ...     default_config("made_multilabel"), partition=PartitionConfig(n_teachers=20),
    ...     queries=QueriesConfig(n_queries=10),
    ... )
    >>> tables = read_label_tables(config)
    >>> votes = LabelVotes.from_sums(20 * tables.pool_y, n_teachers=20)
    >>> voted = Voted(tables=tables, partition=deal_rows(config, tables), votes=votes)
    >>> result, student = run_voted(config, tempfile.mkdtemp(), voted=voted)
    >>> result.queries.n_asked, student.predict(tables.pool[:2]).shape
    (10, (2, 5))
    """
    # Before anything is written down: what is refused may be put right in the same folder.
    check_voted(config, voted)
    config, place = _charged_to(config, voted.ledger), RunFolder(Path(folder))
    with place.held():
        begin(place, config, resume=resume)
        _keep(place.votes, voted.votes, voted.tables)
        if voted.test_votes is not None:
            _keep(place.test_votes, voted.test_votes, voted.tables)
        steps = Steps(show or _silent)
        outcome = run_steps(config, place, steps, warn, dealt=(voted.tables, voted.partition))
        with steps.step("report"):
            write_outcome(place, outcome, beside=beside)
    return outcome.result, outcome.student


def check_voted(config: RunConfig, voted: Voted) -> None:
    """Refuse settings that do not fit the votes, or a model that would fail after labels were paid."""
    if bool(config.labels.names) != isinstance(voted.tables, LabelTables):
        raise ValueError(
            f"{config.where('labels', 'names')}: Expected labels for votes on many labels, and none for "
            "votes on classes, got the other."
        )
    if config.report.private and voted.test_votes is None and voted.tables.test is not None:
        raise ValueError("Expected votes on the test rows too for private numbers, got none.")
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


def _keep(path: Path, votes: LabelVotes | Votes, tables: LabelTables | Tables) -> None:
    """Write votes down, or see that those of a run that goes on are the same."""
    if not path.exists():
        write_votes(path, votes)
    elif _digest(stored_votes(path, tables)) != _digest(votes):
        raise ValueError(
            f"Expected the votes that the run in {path.parent.parent} was begun with, got others. "
            "Take another folder (--out)."
        )


def _digest(votes: LabelVotes | Votes) -> str:
    return digest(votes.sums if isinstance(votes, LabelVotes) else votes.counts)


# A whole run


def run(
    config: RunConfig,
    folder: str | PathLike[str],
    *,
    resume: bool = False,
    show: Show | None = None,
    show_groups: ShowGroups | None = None,
    warn: Warn | None = None,
) -> RunResult:
    """Do everything that a config says, in a folder, and return the public result, as in `result.json`.

    With `resume` a run that was cut short goes on: it must be the same config on the same data. Of a run that
    was finished nothing is done twice. `show(step, done, total)` is called as the steps go on, and where
    people have budgets of their own, `show_groups(rows, lines)` before anything is trained: a row per group,
    a line on the plan, one on each group, and warnings. `warn(words)` is told if clips of one source are
    dealt one by one; without it that is a Python warning.

    Nothing in the private rows stops a run: every teacher votes, one that could not learn by a public rule
    (`tellers.teachers.ballots`). Who that was, and how many public rows are copies of private ones, is in
    `private/record.json`, which every run writes, and nowhere else.

    Guarantee: all releases together keep to the budget of the ledger, whenever and however often the run was
               killed; partitions and teachers are the same as without interruption.
    Assumes:   the rows were prepared without a look at private ones; pool and test rows are public; the
               settings were not tuned on private results.
    Reference: Papernot et al. 2017, section 2; Papernot et al. 2018, section 2.

    >>> import tempfile
    >>> from tellers.runs import DataConfig, PartitionConfig, RunConfig
    >>> small = RunConfig(
    ...     data=DataConfig(name="breast_cancer", n_public=100, n_test=100),
    ...     partition=PartitionConfig(n_teachers=40),
    ... )
    >>> result = run(small, tempfile.mkdtemp())
    >>> result.spent.epsilon <= 8.0, result.student.accuracy > 0.5
    (True, True)
    """
    place = RunFolder(Path(folder))
    with place.held():
        begin(place, config, resume=resume)
        steps = Steps(show or _silent)
        outcome = run_steps(config, place, steps, warn, show_groups=show_groups)
        outcome = replace(outcome, result=with_published(outcome.result, place, config))
        with steps.step("report"):
            write_outcome(place, outcome, beside=_beside(config))
    return outcome.result


def _beside(config: RunConfig) -> dict[str, bytes] | None:
    """Return the files that go with a student of sounds, so that it can be handed a recording."""
    if config.data.name != CLIPS or config.data.private_path is None:
        return None
    return settings_beside_student(config.data.private_path, config.labels.names or config.data.classes)


def _silent(_step: str, _done: int, _total: int) -> None:
    return None
