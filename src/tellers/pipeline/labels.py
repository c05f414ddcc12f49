"""A run with many labels per row: the same steps, with teachers that say yes or no to every label."""

import csv
import io
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..catalogue import make_model
from ..config import RunConfig
from ..label_votes import LabelVotes
from ..labelling import Labels
from ..students import fit_labels, fit_semi_supervised
from ..teachers import is_network
from ..teachers.label_store import read_label_votes, save_label_votes
from ..teachers.partition import Partition
from ..teachers.store import write_whole
from .asking import Spending, release_labels
from .beginning import open_books, require_same
from .electorate import Electorate, deal_rows
from .endings import lost_student
from .folder import RunFolder
from .label_data import LabelTables, read_label_tables
from .label_numbers import label_student, private_label_numbers
from .numbers import public_numbers
from .overlap import Warn, check_overlap, tell_units
from .steps import Steps
from .teaching import taught


def run_labels(
    config: RunConfig,
    folder: RunFolder,
    steps: Steps,
    warn: Warn | None = None,
    *,
    dealt: tuple[LabelTables, Partition] | None = None,
) -> tuple[dict[str, Any], Any, dict[str, Any] | None]:
    """Do everything that a config with labels says; return public numbers, student and private numbers.

    The guarantee is that of `run`. Besides `labels.npz` the released labels are kept in `labels.csv`, a
    column per label: 1, 0, or -1 where nothing was told. `dealt` are tables and parts that were made before;
    without it they are those of the config.

    >>> import tempfile
    >>> from dataclasses import replace
    >>> from pathlib import Path
    >>> from tellers.config import PartitionConfig, QueriesConfig, default_config
    >>> config = replace(
    ...     default_config("made_multilabel"), partition=PartitionConfig(n_teachers=20),
    ...     queries=QueriesConfig(n_queries=10),
    ... )
    >>> folder = RunFolder(Path(tempfile.mkdtemp()))
    >>> with folder.held():
    ...     result, student, private = run_labels(config, folder, Steps(lambda *_: None))
    >>> result["queries"]["n_asked"], len(result["labels"]), private
    (10, 5, None)
    """
    with steps.step("data"):
        if dealt is None:
            tables = read_label_tables(config)
            electorate = Electorate(deal_rows(config, tables))
        else:
            tables, electorate = dealt[0], Electorate(dealt[1])
        require_same(folder, tables, electorate, seed=config.seed)
        require_able_labels(config, tables)
        check_overlap(config, tables, folder)
        tell_units(tables, warn)
        with open_books(config, folder):
            pass  # a budget that pays for nothing, or other books, are refused before teachers are trained
    votes = _votes(config, tables, electorate, folder, steps)
    with steps.step("labels"):
        labels, spending = release_labels(
            config, tables, votes=votes, folder=folder, progress=steps.progress("labels")
        )
        write_whole(folder.path / "labels.csv", _as_csv(config, labels), shared=True)
    with steps.step("student"):
        student = _teach(
            config, tables, labels, spending, steps=steps, training=folder.lesson(config.student)
        )
    result = public_numbers(
        config, tables, electorate, labels=labels, spending=spending, student=student,
        seconds=steps.seconds, started=steps.started,
    )  # fmt: skip
    numbers = None
    if config.report.private:
        with steps.step("report"):
            on_test = read_label_votes(folder.test_votes).votes if tables.test is not None else None
            numbers = private_label_numbers(
                config, tables, votes=votes, labels=labels, test_votes=on_test, seconds=steps.seconds
            )
    return result, student, numbers


def require_able_labels(config: RunConfig, tables: LabelTables) -> None:
    """Refuse models that would fail only after teachers were trained and labels were paid for.

    >>> from tellers.config import default_config
    >>> config = default_config("made_multilabel")
    >>> require_able_labels(config, read_label_tables(config))
    """
    teacher = make_model(
        config.teachers.model,
        config.teachers.parameters,
        n_classes=len(config.labels.names),
        image_shape=tables.private.image_shape,
    )
    if config.teachers.timeout and is_network(teacher):
        raise ValueError(
            f"{config.where('teachers', 'timeout')}: Expected no time limit for networks, which are trained "
            f"together, got {config.teachers.timeout:g} seconds. Leave it out."
        )
    student = label_student(config, tables)
    if hasattr(student, "require_fit"):
        student.require_fit(tables.pool.shape, n_labels=len(config.labels.names))


def _votes(
    config: RunConfig, tables: LabelTables, electorate: Electorate, folder: RunFolder, steps: Steps
) -> LabelVotes:
    """Return the votes on the pool: those on disk, or those of teachers that are trained now."""
    on_test = tables.test.X if config.report.private and tables.test is not None else None
    if not folder.votes.exists() or not (on_test is None or folder.test_votes.exists()):
        model = make_model(
            config.teachers.model, config.teachers.parameters, n_classes=len(config.labels.names),
            image_shape=tables.private.image_shape,
        )  # fmt: skip
        with ExitStack() as teachers:
            with steps.step("teachers"):
                ask: Any = teachers.enter_context(
                    taught(
                        config, model, tables.private.X, tables.private.y, partition=electorate.partition,
                        n_classes=None, seed=config.seed, folder=folder, pool=tables.pool,
                        progress=steps.progress("teachers"),
                    )
                )  # fmt: skip
            with steps.step("votes"):
                save_label_votes(folder.votes, ask(tables.pool, steps.progress("votes")))
                if on_test is not None:
                    save_label_votes(folder.test_votes, ask(on_test, None))
    return read_label_votes(folder.votes).votes


def _teach(
    config: RunConfig,
    tables: LabelTables,
    labels: Labels,
    spending: Spending,
    *,
    steps: Steps,
    training: Path,
) -> Any:
    try:
        student, asked = label_student(config, tables), tables.pool[labels.rows]
        if config.student.kind == "semi_supervised":
            rest = tables.pool[np.setdiff1d(np.arange(len(tables.pool)), labels.rows)]
            return fit_semi_supervised(
                student, asked, labels.labels, rest if len(rest) else asked, seed=config.seed,
                progress=steps.progress("student"), folder=training,
            )  # fmt: skip
        return fit_labels(student, asked, labels.labels, seed=config.seed)
    except ValueError as error:
        raise lost_student(error, spending.charged) from error


def _as_csv(config: RunConfig, labels: Labels) -> bytes:
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["row", *config.labels.names])
    table.writerows(np.column_stack([labels.rows, labels.labels]).tolist())
    return written.getvalue().encode()
