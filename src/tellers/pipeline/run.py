"""One whole run: data, partition, teachers, votes, labels, student, and what it cost.

Every step leaves something whole in the folder, so a run that was killed goes on where it was: teachers and
votes are not made again, and what is on the ledger is read from there, never charged twice.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..catalogue import make_model
from ..config import RunConfig
from ..labelling import Labels
from ..students import fit_distilled, fit_self_taught, fit_semi_supervised, fit_supervised
from .asking import Spending, absent_at_first, release_labels
from .beginning import begin, open_books, require_able, require_same
from .data import Tables, read_tables
from .electorate import group_rows, seat_teachers
from .endings import lost_student
from .folder import RunFolder
from .groups import ceiling_notes
from .labels import run_labels
from .numbers import private_numbers, public_numbers
from .outcome import write_outcome
from .overlap import Warn, check_overlap
from .steps import Show, Steps
from .voting import Voting

ShowGroups = Callable[[list[dict[str, Any]], tuple[str, ...]], object]


def run(
    config: RunConfig,
    folder: str | PathLike[str],
    *,
    resume: bool = False,
    show: Show | None = None,
    show_groups: ShowGroups | None = None,
    warn: Warn | None = None,
) -> dict[str, Any]:
    """Do everything that a config says, in a folder, and return the public numbers of `result.json`.

    With `resume` a run that was cut short goes on: it must be the same config on the same data. Of a run that
    was finished nothing is done twice. `show(step, done, total)` is called as the steps go on, and where
    people have budgets of their own, `show_groups(rows, lines)` before anything is trained: a row per group,
    a line on the plan, one on each group, and warnings. `warn(words)` is told if public rows are copies of
    private ones; without it that is a Python warning.

    Guarantee: all releases together keep to the budget of the ledger, whenever and however often the run was
               killed; partitions and teachers are the same as without interruption.
    Assumes:   the rows were prepared without a look at private ones; pool and test rows are public; the
               settings were not tuned on private results.
    Reference: Papernot et al. 2017, section 2; Papernot et al. 2018, section 2.

    >>> import tempfile
    >>> from tellers.config import DataConfig, PartitionConfig, RunConfig
    >>> small = RunConfig(
    ...     data=DataConfig(name="breast_cancer", n_public=100, n_test=100),
    ...     partition=PartitionConfig(n_teachers=40),
    ... )
    >>> result = run(small, tempfile.mkdtemp())
    >>> result["spent"]["epsilon"] <= 8.0, result["student"]["accuracy"] > 0.5
    (True, True)
    """
    place = RunFolder(Path(folder))
    with place.held():
        begin(place, config, resume=resume)
        state = Steps(show or _silent)
        if config.labels.names:
            result, student, numbers = run_labels(config, place, state, warn)
            with state.step("report"):
                write_outcome(place, result=result, student=student, numbers=numbers)
            return result
        with state.step("data"):
            tables = read_tables(
                config.data, seed=config.seed, by=config.partition.by, personal=config.personal
            )
            electorate = seat_teachers(config, tables)
            if electorate.plan is not None and show_groups is not None:
                notes = ceiling_notes(config, electorate)
                show_groups(group_rows(electorate), (*electorate.plan.summary, *notes))
            require_same(place, tables, electorate)
            require_able(config, tables)
            check_overlap(config, tables, warn)
            with open_books(config, place, electorate) as ledger:
                absent = absent_at_first(ledger, config, electorate, key=place.key)
        voting = Voting(config, tables, place, electorate, state.step, state.progress)
        votes = voting.votes(absent)
        with state.step("labels"):
            labels, spending = release_labels(
                config, tables, votes=votes, folder=place, electorate=electorate, vote_anew=voting.anew,
                progress=state.progress("labels"),
            )  # fmt: skip
        with state.step("student"):
            student = _teach(
                config,
                tables,
                labels,
                spending,
                progress=state.progress("student"),
                training=place.lesson(config.student),
            )
        result = public_numbers(
            config, tables, electorate, labels=labels, spending=spending, student=student,
            seconds=state.seconds, started=state.started,
        )  # fmt: skip
        with state.step("report"):
            numbers = None
            if config.report.private:
                numbers = private_numbers(
                    config, tables, votes=votes, labels=labels, test_votes=voting.test_votes(absent),
                    seconds=state.seconds, electorate=electorate, spending=spending, cast=voting.cast,
                )  # fmt: skip
            write_outcome(place, result=result, student=student, numbers=numbers)
    return result


def _teach(
    config: RunConfig,
    tables: Tables,
    labels: Labels,
    spending: Spending,
    *,
    progress: Callable[[int, int], object] | None = None,
    training: Path | None = None,
) -> Any:
    chosen = config.student
    model = make_model(
        chosen.model, chosen.parameters, n_classes=tables.private.n_classes,
        image_shape=tables.private.image_shape,
    )  # fmt: skip
    X = tables.pool[labels.rows]
    try:
        if chosen.kind == "distilled" and labels.values is not None:
            return fit_distilled(
                model, X, labels.values, temperature=chosen.temperature, floor=chosen.floor, seed=config.seed
            )
        if chosen.kind in ("self_taught", "semi_supervised"):
            rest = tables.pool[np.setdiff1d(np.arange(len(tables.pool)), labels.rows)]
            if chosen.kind == "self_taught":
                return fit_self_taught(model, X, labels.labels, rest, seed=config.seed)
            return fit_semi_supervised(
                model, X, labels.labels, rest, seed=config.seed, progress=progress, folder=training
            )
        return fit_supervised(model, X, labels.labels, seed=config.seed)
    except ValueError as error:
        raise lost_student(error, spending.charged) from error


def _silent(_step: str, _done: int, _total: int) -> None:
    return None
