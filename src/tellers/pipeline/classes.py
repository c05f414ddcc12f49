"""A run with one class per row: rows and their teachers, votes, labels, student, and the numbers of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..catalogue import make_model
from ..config import RunConfig
from ..labelling import Labels
from ..students import fit_distilled, fit_self_taught, fit_semi_supervised, fit_supervised
from ..teachers.partition import Partition
from .asking import Spending, absent_at_first, release_labels
from .beginning import open_books, require_able, require_same
from .data import Tables, read_tables
from .electorate import Electorate, group_rows, seat_teachers
from .endings import lost_student
from .folder import RunFolder
from .groups import ceiling_notes
from .numbers import private_numbers, public_numbers
from .overlap import Warn, check_overlap, tell_units
from .steps import Steps
from .voting import Voting

ShowGroups = Callable[[list[dict[str, Any]], tuple[str, ...]], object]


def run_classes(
    config: RunConfig,
    folder: RunFolder,
    steps: Steps,
    warn: Warn | None = None,
    *,
    show_groups: ShowGroups | None = None,
    dealt: tuple[Tables, Partition] | None = None,
) -> tuple[dict[str, Any], Any, dict[str, Any] | None]:
    """Do everything that a config with classes says; return public numbers, student and private numbers.

    The guarantee is that of `run`. `dealt` are tables and parts that were made before, for teachers whose
    votes lie in the folder; without it they are those of the config.

    >>> import tempfile
    >>> from tellers.config import DataConfig, PartitionConfig
    >>> config = RunConfig(
    ...     data=DataConfig(name="breast_cancer", n_public=100, n_test=100),
    ...     partition=PartitionConfig(n_teachers=40),
    ... )
    >>> folder = RunFolder(Path(tempfile.mkdtemp()))
    >>> with folder.held():
    ...     result, student, private = run_classes(config, folder, Steps(lambda *_: None))
    >>> result["student"]["accuracy"] > 0.5, private
    (True, None)
    """
    with steps.step("data"):
        if dealt is None:
            tables = read_tables(config.data, seed=config.seed, by=config.protects, personal=config.personal)
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
        with open_books(config, folder, electorate) as ledger:
            absent = absent_at_first(ledger, config, electorate, key=folder.key)
    voting = Voting(config, tables, folder, electorate, steps.step, steps.progress)
    votes = voting.votes(absent)
    with steps.step("labels"):
        labels, spending = release_labels(
            config, tables, votes=votes, folder=folder, electorate=electorate, vote_anew=voting.anew,
            progress=steps.progress("labels"),
        )  # fmt: skip
    with steps.step("student"):
        student = _teach(
            config,
            tables,
            labels,
            spending,
            progress=steps.progress("student"),
            training=folder.lesson(config.student),
        )
    result = public_numbers(
        config, tables, electorate, labels=labels, spending=spending, student=student,
        seconds=steps.seconds, started=steps.started,
    )  # fmt: skip
    numbers = None
    if config.report.private:
        with steps.step("report"):
            numbers = private_numbers(
                config, tables, votes=votes, labels=labels, test_votes=voting.test_votes(absent),
                seconds=steps.seconds, electorate=electorate, spending=spending, cast=voting.cast,
            )  # fmt: skip
    return result, student, numbers


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
                model, X, labels.labels, rest if len(rest) else X, seed=config.seed, progress=progress,
                folder=training,
            )  # fmt: skip
        return fit_supervised(model, X, labels.labels, seed=config.seed)
    except ValueError as error:
        raise lost_student(error, spending.charged) from error
