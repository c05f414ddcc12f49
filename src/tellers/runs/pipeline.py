"""The pipeline: data, teachers, votes, labels, student, report.

Every step leaves something whole in the folder, so a run may end after any of them and go on later, and one
that was killed goes on where it was: teachers and votes are not made again, and what is on the ledger is read
from there, never charged twice. Teachers that have voted answer for many students and settings, all of them
charged to one ledger.
"""

import csv
import io
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from ..data.clips import settings_beside_student
from ..ledger.opening import is_url
from ..privacy._files import write_whole
from ..privacy.budget import clock_words
from ..privacy.votes import Votes
from ..students.fitting import STUDENT_KINDS
from ..teachers.partitions import Partition
from ..teachers.store import save_votes
from ._folder import (
    RunFolder,
    Warn,
    begin,
    check_overlap,
    keep_parts,
    make_student,
    open_books,
    public_counts,
    require_able,
    require_left,
    require_queries,
    require_same,
    tell_units,
    unlike,
)
from ._numbers import private_numbers, public_result
from ._tables import Tables, assign_rows, digest, read_tables
from ._voting import Spending, Voting, absent_at_first, release_labels, stored_votes
from .card import ModelCard, export_student
from .labelling import Labels
from .personal.assignment import Assignment
from .report._page import write_page
from .result import PrivateNumbers, RunResult, write_json, write_result
from .settings.files import read_config, with_absolute_paths
from .settings.mechanism import unfit_for_queries
from .settings.sections import CLIPS, BudgetConfig, RunConfig

if TYPE_CHECKING:
    from .sums import Summed

Step = Literal["data", "teachers", "votes", "labels", "student", "report"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
"""The steps of a run, in their order; labels are the first that cost anything."""
Show = Callable[[str, int, int], object]
ShowGroups = Callable[[list[dict[str, Any]], tuple[str, ...]], object]


@dataclass(frozen=True, eq=False, repr=False)
class Finished:
    """What came of a run: its public result, the student, and private numbers where they were asked for.

    There is no student where a batch failed its test and nothing was released.
    """

    result: RunResult
    student: Any
    private: PrivateNumbers | None = None


@dataclass(eq=False)
class RunProgress:
    """The steps of a run as they go on, and who is told: see `run`."""

    show: Show
    show_groups: ShowGroups | None
    warn: Warn | None
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name a step while it goes on, and keep how long it took."""
        self.show(name, 0, 0)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)


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
    done = run_steps(config, folder, resume=resume, show=show, show_groups=show_groups, warn=warn)
    assert done is not None  # it went to the end
    return done.result


def run_steps(
    config: RunConfig,
    folder: str | PathLike[str],
    *,
    until: Step = "report",
    voted: "Voted | None" = None,
    first: str | PathLike[str] | None = None,
    beside: Mapping[str, bytes] | None = None,
    resume: bool = False,
    show: Show | None = None,
    show_groups: ShowGroups | None = None,
    warn: Warn | None = None,
) -> Finished | None:
    """Do the steps of a run up to one of them, and return what came of it, once there is a student.

    After "data" the tables are read and dealt, everything that can be refused was, and the private record
    says what a teacher has; after "teachers" they are trained; "votes" lie in the private folder; "labels"
    are released and paid for; the "student" is exported with its card, and `result.json` is there; the
    "report" is the page. To go on, call it again with `resume` and a later step: what was done is read and
    not done again. `voted` are votes of teachers that exist, in place of the first three steps, or they are
    those of a `first` run, as `voted_in` finds them in its folder; `beside` are files that travel with the
    student. The other arguments, and the guarantee, are those of `run`.
    """
    if until not in STEPS:
        raise ValueError(f"Expected a step, one of {', '.join(STEPS)}, got {until!r}.")
    if config.mechanism.is_sum and until in ("teachers", "votes"):
        raise ValueError(
            "Expected data, labels, student or report as the last step of a Gaussian sum, whose scores are "
            f"kept in no file, got {until}."
        )
    if first is not None:
        config, voted = voted_in(first, config)
    if voted is not None:
        # Before anything is written down: what is refused may be put right in the same folder.
        check_voted(config, voted)
        config = charged_to(config, voted.ledger, Path(folder))
        if voted.ledger and not RunFolder(Path(folder)).config.exists():
            require_left(config, RunFolder(Path(folder)), ledger=voted.ledger)
    place, progress = RunFolder(Path(folder)), RunProgress(show or (lambda *_: None), show_groups, warn)
    with place.held():
        begin(place, config, resume=resume)
        if voted is not None:
            _keep(place.votes, voted.votes, voted.tables)
            if voted.test_votes is not None:
                _keep(place.test_votes, voted.test_votes, voted.tables)
        files = _beside(config) if beside is None else beside
        return _carry_out(config, place, progress, until=until, voted=voted, beside=files)


def _carry_out(
    config: RunConfig,
    folder: RunFolder,
    steps: RunProgress,
    *,
    until: Step,
    voted: "Voted | None",
    beside: Mapping[str, bytes] | None,
) -> Finished | None:
    with steps.step("data"):
        if voted is None:
            tables = read_tables(config)
            assignment = assign_rows(config, tables)
        else:
            tables, assignment = voted.tables, voted.assignment or Assignment(voted.partition)
        if assignment.plan is not None and assignment.consent is not None and steps.show_groups is not None:
            from ._groups import ceiling_notes, group_rows

            lines = (*assignment.plan.summary, *ceiling_notes(config, assignment))
            steps.show_groups(group_rows(assignment.plan, assignment.consent), lines)
        require_same(folder, tables, assignment, seed=config.seed)
        require_able(config, tables)
        check_overlap(config, tables, folder)
        tell_units(tables, steps.warn)
        # A budget that pays for nothing, or another ledger, is refused before teachers are trained. The file
        # is handed back meanwhile: training may take days.
        known = {**public_counts(config, tables), "n_teachers": len(assignment.partition)}
        with open_books(config, folder, assignment, known=known) as ledger:
            absent = absent_at_first(ledger, config, assignment, key=folder.key)
        if until == "data":
            keep_parts(folder, tables, assignment)
    voting = Voting(config, tables, folder, assignment, steps.step, steps.show)
    if until == "teachers":
        voting.train(absent)
    if until in ("data", "teachers"):
        return None
    if config.mechanism.is_sum:
        from ._summing import release_sum

        with ledger:
            found, spending = release_sum(voting, ledger)
        return _finish(voting, steps, found.labels, spending, until=until, beside=beside, found=found)
    votes = voting.votes(absent)
    if until == "votes":
        return None
    with steps.step("labels"), ledger:
        labels, spending = release_labels(voting, votes, ledger)

    def private() -> PrivateNumbers:
        seen = (votes, voting.test_votes(absent))
        return private_numbers(voting, labels, spending, *seen, seconds=steps.seconds)

    return _finish(voting, steps, labels, spending, until=until, beside=beside, private=private)


def _finish(
    voting: Voting,
    steps: RunProgress,
    labels: Labels,
    spending: Spending,
    *,
    until: Step,
    beside: Mapping[str, bytes] | None,
    found: "Summed | None" = None,
    private: Callable[[], PrivateNumbers] | None = None,
) -> Finished | None:
    """Teach the student of what was released, and write the result, the card and the report.

    Of a Gaussian sum the student was taught with it; `private` makes the operator's own numbers.
    """
    config, tables, folder = voting.config, voting.tables, voting.folder
    if tables.many_labels:
        write_whole(folder.path / "labels.csv", _as_csv(config, labels), shared=True)
    if until == "labels":
        return None
    student = None if found is None else found.student
    if student is None and not labels.is_void:
        with steps.step("student"):
            student = teach(
                config, tables, labels, spending, progress=partial(steps.show, "student"),
                training=folder.lesson(config.student),
            )  # fmt: skip
    result = public_result(
        voting, labels, spending, student, seconds=steps.seconds, started=steps.started,
        scores=None if found is None else found.plan.scores,
    )  # fmt: skip
    if folder.result.exists() or folder.publication.exists():
        from .publishing import with_published

        result = with_published(result, folder, config)
    with steps.step("report"):
        numbers = None
        if until == "report" and config.report.private and private is not None:
            numbers = private()
            write_json(folder.summary, numbers.as_dict(), public=False)
        if student is not None:
            export_student(
                student, folder.student, card=ModelCard.from_result(result), overwrite=True, beside=beside
            )
        shutil.rmtree(folder.training, ignore_errors=True)  # it is taught
        # Last but for the pages, as it says that the run is done.
        write_result(folder.path, result)
        if until == "report":
            write_page(folder.path, result)
            if numbers is not None:
                write_page(folder.path, result, numbers)
            if config.data.name == CLIPS:
                from .sound._pages import write_run_sound

                write_run_sound(folder.path, tables)
    return Finished(result, student, numbers)


def teach(
    config: RunConfig,
    tables: Tables,
    labels: Labels,
    spending: Spending,
    *,
    progress: Callable[[int, int], object] | None = None,
    training: Path | None = None,
) -> Any:
    """Return the student, taught what came out by the rules of the config."""
    chosen, kind = config.student, STUDENT_KINDS[config.student.kind]
    told = getattr(labels, kind.learns_from)
    there = {
        "X_unlabelled": tables.pool[np.setdiff1d(np.arange(len(tables.pool)), labels.rows)],
        "temperature": chosen.temperature,
        "floor": chosen.floor,
        "progress": progress,
        "folder": training,
    }
    try:
        model = make_student(config, tables)
        given = {name: there[name] for name in kind.takes}
        return kind.fit(model, tables.pool[labels.rows], told, seed=config.seed, **given)
    except ValueError as error:
        spent = f"epsilon {spending.charged:.4g} is spent"
        if spending.left is not None:
            spent = clock_words(config.budget.epsilon, spending.left)
        raise ValueError(f"{error} What came out is kept in labels.npz, and {spent}.") from error


def _as_csv(config: RunConfig, labels: Labels) -> bytes:
    """Return the labels as a table with a column for each: 1, 0, or -1 where nothing was told."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["row", *config.labels.names])
    table.writerows(np.column_stack([labels.rows, labels.labels]).tolist())
    return written.getvalue().encode()


def _beside(config: RunConfig) -> dict[str, bytes] | None:
    """Return the files that go with a student of sounds, so that it can be handed a recording."""
    if config.data.name != CLIPS or config.data.private_path is None:
        return None
    return settings_beside_student(config.data.private_path, config.labels.names or config.data.classes)


# Teachers that have voted
#
# Teachers that were trained once answer for many students and settings. Everything that costs privacy is done
# as in any run: the same room, the same rules for when to stop, and one ledger for all of them.


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Voted:
    """Teachers' votes on a public pool, with the tables and the parts that they come from.

    Votes and tables are those of many labels, or those of one class per row. `test_votes` are those on the
    test rows, which private numbers need. `ledger` is where all releases of these votes are charged; where it
    is empty, the settings of a run say. `assignment` says how groups with budgets of their own take part.

    >>> import numpy as np
    >>> from tellers import LabelVotes
    >>> from tellers.data import MultilabelDataset
    >>> rows = MultilabelDataset(name="t", X=np.zeros((4, 2)), Y=np.ones((4, 1)), label_names=("x",))
    >>> tables = Tables(rows, np.zeros((3, 2)))
    >>> parts = Partition((np.arange(2), np.arange(2, 4)), unit="one record")
    >>> Voted(tables=tables, partition=parts, votes=LabelVotes.from_sums([[2], [0], [1]], n_teachers=2))
    Voted(<private>, n_queries=3, n_teachers=2)
    >>> Voted(tables=tables, partition=parts, votes=LabelVotes.from_sums([[2]], n_teachers=2))
    Traceback (most recent call last):
        ...
    ValueError: Expected votes of 2 teachers on 3 rows of the pool, got those of 2 on 1.
    """

    tables: Tables
    partition: Partition
    votes: Votes
    test_votes: Votes | None = None
    ledger: str = ""
    assignment: Assignment | None = None

    def __post_init__(self) -> None:
        if self.votes.space.kind != self.tables.space.kind:
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
    >>> from tellers import LabelVotes
    >>> from tellers.runs import PartitionConfig, QueriesConfig, default_config
    >>> from tellers.runs._tables import deal_rows, read_tables
    >>> config = replace(
    ...     default_config("made_multilabel"), partition=PartitionConfig(n_teachers=20),
    ...     queries=QueriesConfig(n_queries=10),
    ... )
    >>> tables = read_tables(config)
    >>> votes = LabelVotes.from_sums(20 * tables.pool_y, n_teachers=20)
    >>> voted = Voted(tables=tables, partition=deal_rows(config, tables), votes=votes)
    >>> result, student = run_voted(config, tempfile.mkdtemp(), voted=voted)
    >>> result.queries.n_asked, student.predict(tables.pool[:2]).shape
    (10, (2, 5))
    """
    done = run_steps(config, folder, voted=voted, beside=beside, resume=resume, show=show, warn=warn)
    assert done is not None  # it went to the end
    return done.result, done.student


def voted_in(folder: str | PathLike[str], config: RunConfig) -> tuple[RunConfig, Voted]:
    """Return settings and votes for another run of the teachers of a first one, charged to its ledger.

    The other one may have a mechanism, queries, a student and a report of its own; data, parts, teachers,
    labels, budgets and seed are those of the first, and others are refused. The first needs to have come to
    its votes, and no further.

    Guarantee: as `run_voted`; all runs of these votes together keep to the budget of the first one's ledger.
    Assumes:   the first run's folder is as the run left it.
    Reference: Papernot et al. 2017, section 2.
    """
    place = RunFolder(Path(folder))
    if place.config.exists():
        advice = "Its sum teaches another student at no cost: --resume with other settings of [student]."
        require_queries(read_config(place.config), "for another student of its teachers", advice)
    if not (place.config.exists() and place.votes.exists()):
        raise ValueError(
            f"Expected a run with votes in {place.path}, found none. Make it: tellers run CONFIG --out "
            f"{place.path} --until votes"
        )
    first = read_config(place.config)
    usual, written = BudgetConfig().ledger, first.budget.ledger
    if config.budget.ledger == written:
        config = replace(config, budget=replace(config.budget, ledger=usual))
    own = ("mechanism.", "queries.", "student.", "report.", "cluster.", "budget.ledger")
    others = unlike(first, with_absolute_paths(config), but=own)
    if others:
        raise ValueError(
            f"Expected the settings of the run in {place.path} for another student of its teachers, got "
            f"others for {', '.join(others)}. Put them back, or train other teachers."
        )
    if first.budget.stop == "private":
        raise ValueError(
            f"Expected a run that stops on a public budget in {place.path}, got one with [budget] stop = "
            '"private": how many queries its ledger holds depends on votes, and nobody else may count on it.'
        )
    if not is_url(written) and not (place.path / written).exists():
        raise ValueError(
            f"Expected the ledger that students of these teachers are charged to in {place.path / written}, "
            "it is not there. Restore it: what was charged stays charged."
        )
    tables = read_tables(first)
    assignment = assign_rows(first, tables)
    if assignment.trains_anew:
        raise ValueError(
            f"Expected teachers that stay the same in {place.path}, got some that are trained anew when a "
            "group leaves ([personal] leave = true, by upsampling). Give each run its own."
        )
    require_same(place, tables, assignment, seed=first.seed)
    there = None if tables.test is None or not place.test_votes.exists() else place.test_votes
    voted = Voted(
        tables=tables, partition=assignment.partition, votes=stored_votes(place.votes, tables),
        test_votes=None if there is None else stored_votes(there, tables), assignment=assignment,
        ledger=written if is_url(written) else str((place.path / written).absolute()),
    )  # fmt: skip
    return config, voted


def check_voted(config: RunConfig, voted: Voted) -> None:
    """Refuse settings that do not fit the votes, or a model that would fail after labels were paid."""
    if config.mechanism.is_sum:
        raise ValueError(f"{config.where('mechanism', 'name')}: {unfit_for_queries(config.mechanism.name)}")
    if bool(config.labels.names) != voted.tables.many_labels:
        raise ValueError(
            f"{config.where('labels', 'names')}: Expected labels for votes on many labels, and none for "
            "votes on classes, got the other."
        )
    if config.report.private and voted.test_votes is None and voted.tables.test is not None:
        raise ValueError("Expected votes on the test rows too for private numbers, got none.")
    require_able(config, voted.tables)


def charged_to(config: RunConfig, ledger: str, folder: Path) -> RunConfig:
    """Return the settings with the ledger of the votes as a run in the folder names it; refuse another."""
    mine = config.budget.ledger
    if not ledger or mine == ledger or _place_of(mine, folder) == _place_of(ledger, folder):
        return config
    if mine != BudgetConfig().ledger:
        raise ValueError(
            f"{config.where('budget', 'ledger')}: Expected the ledger that these votes are charged to, got "
            "another. Two ledgers are two budgets for the same votes. Leave it out."
        )
    # What a run writes is read by everybody, and where a folder lies is nobody's business.
    absolute = not is_url(ledger) and Path(ledger).is_absolute()
    named = os.path.relpath(Path(ledger).resolve(), folder.resolve()) if absolute else ledger
    return replace(config, budget=replace(config.budget, ledger=named))


def _place_of(ledger: str, folder: Path) -> str:
    return ledger if is_url(ledger) else str((folder / ledger).resolve())


def _keep(path: Path, votes: Votes, tables: Tables) -> None:
    """Write votes down, or see that those of a run that goes on are the same."""
    if not path.exists():
        save_votes(path, votes)
    elif digest(stored_votes(path, tables).totals) != digest(votes.totals):
        raise ValueError(
            f"Expected the votes that the run in {path.parent.parent} was begun with, got others. "
            "Take another folder (--out)."
        )
