"""Training an ensemble: every part once, in a loop or in processes, in one go or in many.

Each teacher sees its own part and a random state drawn from the seed and its number, nothing else. So the
ensemble is the same in one process or in many, in one go or after any number of interruptions. With a folder
every finished teacher is on disk before the next report of progress, and the next call goes on from there.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherFailed, require_count
from ..privacy._rows import KeptRows
from ..privacy.sealed import unheard
from ._training import (
    RowsOf,
    Task,
    TeacherOutcome,
    Training,
    can_interrupt,
    copy_estimator,
    deadline,
    give_up,
    say_unit,
    train_unit,
    try_model,
)
from .ballots import (
    NO_ROWS,
    Ballots,
    FallbackTeacher,
    ask_teachers,
    fallback_teacher,
    known_troubles,
    made_for,
    one_thread,
)
from .models import (
    ConstantLabels,
    ConstantTeacher,
    dump_model,
    find_model,
    fingerprint,
    load_model,
    skops_io,
    teacher_file,
    type_name,
)
from .options import Progress, TrainingOptions
from .partitions import Partition, Seed

_STALE_SECONDS = 3600.0


@dataclass(frozen=True, eq=False, repr=False)
class ModelTraining(Training):
    """Teachers of any estimator, one by one."""

    estimator: Any
    rows: RowsOf | None
    ballots: Ballots
    seed: int
    folder: Path | None = None
    timeout: float | None = None
    trusted: Sequence[str] = ()
    where: str = ""

    size: ClassVar[int] = 1
    start_seconds: ClassVar[float] = 3.0
    uses_processes: ClassVar[bool] = True
    is_risky: ClassVar[bool] = True

    def file(self, numbers: range) -> str:
        return teacher_file(numbers[0])

    def learn(self, task: Task) -> Any:
        """Return a fitted copy, a constant teacher of one answer, or without rows one that follows the rule.

        Warnings of the estimator are not shown.
        """
        X, y = task.parts[0]
        model = copy_estimator(self.estimator, self.seed, task.numbers[0])
        # One thread each: many processes with many threads take turns, and sums change with their number.
        with one_thread(), deadline(self.timeout, alone=task.parent is not None), unheard():
            if not len(y):
                return self.give_up(task, NO_ROWS)
            if (y == y[0]).all():
                return self.ballots.constant(y[0])
            model.fit(X, y)
        return model

    def give_up(self, task: Task, trouble: str) -> FallbackTeacher:
        return fallback_teacher(task.numbers[0], self.ballots, trouble)

    def made_of(self, task: Task) -> dict[str, Any]:
        return fingerprint(self.estimator, *task.parts[0], seed=self.seed) | made_for(self.ballots.space)

    def dump(self, numbers: range, made: Any) -> bytes:
        return dump_model(made, trusted=self._types)

    def load(self, numbers: range, content: bytes) -> Any:
        """Return the model that was kept: one like the estimator, a constant one, or the rule's."""
        where = f"{numbers[0]} in {self.where}"
        try:
            model = load_model(content, trusted=self._types)
        except ValueError as error:
            raise ValueError(f"Teacher {where}: {error}") from error
        if type(model) not in (type(self.estimator), ConstantTeacher, ConstantLabels, FallbackTeacher):
            raise ValueError(
                f"Expected a {type(self.estimator).__name__} as teacher {where}, got another type. Delete it "
                "to train it again."
            )
        return model

    def ask(self, numbers: range, made: Any, queries: NDArray[Any]) -> tuple[NDArray[Any], dict[int, str]]:
        return ask_teachers({numbers[0]: made}, queries, self.ballots)

    def troubles(self, numbers: range, made: Any) -> dict[int, str]:
        return known_troubles({numbers[0]: made})

    @property
    def _types(self) -> tuple[str, ...]:
        return (type_name(type(self.estimator)), *self.trusted)


def train_models(
    estimator: Any,
    X: NDArray[Any] | KeptRows,
    y: NDArray[np.int64],
    partition: Partition,
    *,
    ballots: Ballots,
    seed: int,
    options: TrainingOptions,
) -> tuple[Any, ...]:
    """Return one fitted copy of an estimator per part.

    X and y are checked already. X may be `KeptRows`; the `public` rows that the estimator is tried on first
    then have to be given. A part from which nothing can be learned makes
    a `FallbackTeacher`. See `train_ensemble`.
    """
    estimator = ballots.model(estimator)
    check_estimator(estimator)
    check_partition(partition, n_rows=len(X))
    folder = open_folder(options.folder)
    backend = ModelTraining(
        estimator, lambda number: (X[partition[number]], y[partition[number]]), ballots, seed, folder,
        options.timeout, options.trusted, where=str(folder),
    )  # fmt: skip
    if folder is not None:
        skops_io()  # slow to import, which is not to be taken for the time that a teacher takes
    public: Any = options.public

    def try_out() -> None:
        shape = getattr(X if public is None else public, "shape", (0,))[1:]
        try_model(estimator, shape, ballots, public=public, timeout=options.timeout)

    return tuple(train_units(backend, len(partition), options, try_out=try_out))


# --- Units of teachers: those that an earlier call finished, and the others, in a loop or in processes. ---


@dataclass(frozen=True, eq=False, repr=False)
class _TrainingRun:
    """What one call trains, and the units it has so far."""

    backend: Training
    n_teachers: int
    finished: dict[range, Any] = field(default_factory=dict)

    @property
    def units(self) -> list[range]:
        n, size = self.n_teachers, self.backend.size
        return [range(start, min(start + size, n)) for start in range(0, n, size)]

    @property
    def pending(self) -> list[range]:
        return [numbers for numbers in self.units if numbers not in self.finished]

    @property
    def n_finished(self) -> int:
        return sum(len(numbers) for numbers in self.finished)

    def say_kept(self) -> str:
        """Say what an interrupted training leaves."""
        done = f"{self.n_finished} of {self.n_teachers} teachers are finished"
        if self.backend.folder is None:
            return f"{done} and lost with this call; give a folder to keep them."
        return (
            f"{done} and kept in {self.backend.folder}; call again with the same arguments to go on from "
            "there."
        )


def train_units(
    backend: Training, n_teachers: int, options: TrainingOptions, *, try_out: Callable[[], None]
) -> list[Any]:
    """Return what was made of every unit; `try_out` comes before the first that is trained."""
    run = _TrainingRun(backend, n_teachers)
    _reuse(run, retrain=options.on_mismatch == "retrain")
    if run.pending:
        try_out()
    try:
        _complete(run, options)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(run.say_kept())
        raise
    return [run.finished[numbers] for numbers in run.units]


def _reuse(run: _TrainingRun, *, retrain: bool) -> None:
    """Take the units that an earlier call finished, and leave alone whatever else lies in the folder."""
    backend, folder = run.backend, run.backend.folder
    if folder is None:
        return
    for leftover in folder.glob(".teacher*.tmp"):
        # An hour old: what a killed run left half-written, not what another run is writing.
        if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
            leftover.unlink(missing_ok=True)
    for numbers in run.pending:
        found = find_model(folder, backend.file(numbers))
        if found is None:
            continue
        content, made_of = found
        wanted = backend.made_of(backend.task(numbers))
        if made_of == wanted:
            run.finished[numbers] = backend.load(numbers, content)
        elif not retrain:
            refuse_other(folder, say_unit(numbers), wanted=wanted, made_of=made_of)


def _complete(run: _TrainingRun, options: TrainingOptions) -> None:
    """Train what is missing; who could not be trained in so many tries votes by the rule."""
    if run.finished and options.progress is not None:
        options.progress(run.n_finished, run.n_teachers)
    failures, damaged = dict[range, str](), set[range]()
    for _ in range(int(options.retries) + 1):
        failures, damaged = {}, set()
        for outcome in _outcomes(run, options):
            if outcome.failure is not None:
                failures[outcome.numbers] = outcome.failure
            elif not _finish(run, outcome, options.progress):
                damaged.add(outcome.numbers)
        if not failures and not damaged:
            break
    for numbers, trouble in sorted(failures.items(), key=lambda failed: failed[0].start):
        if not _finish(run, give_up(run.backend.task(numbers), trouble), options.progress):
            damaged.add(numbers)
    if damaged:
        # Files are written whole and read back: this is a matter of the disk, and not of anybody's rows.
        said = say_failed({number: "its file was damaged" for unit in damaged for number in unit})
        raise TeacherFailed(f"{said} {run.say_kept()}")


def _finish(run: _TrainingRun, outcome: TeacherOutcome, progress: Progress | None) -> bool:
    """Take what came of a unit, or say that its file is not whole."""
    if outcome.stop is not None:
        raise outcome.stop
    made = outcome.made
    if run.backend.folder is not None:
        # Read back even now: the ensemble is the same whether a teacher was resumed or not.
        found = find_model(run.backend.folder, run.backend.file(outcome.numbers))
        if found is None:
            return False
        made = run.backend.load(outcome.numbers, found[0])
    run.finished[outcome.numbers] = made
    if progress is not None:
        progress(run.n_finished, run.n_teachers)
    return True


def _outcomes(run: _TrainingRun, options: TrainingOptions) -> Iterator[TeacherOutcome]:
    """Train the pending units once each, in a loop or in processes."""
    import joblib

    backend, waiting = run.backend, run.pending
    n_workers = (options.n_jobs or int(joblib.cpu_count())) if backend.uses_processes else 1
    spent, n_done = 0.0, 0
    while waiting and _in_a_loop(
        backend, len(waiting), options, n_workers, seconds=spent / max(n_done, 1) * len(waiting)
    ):
        start = time.perf_counter()
        outcome = train_unit(backend.task(waiting.pop(0)))
        spent, n_done = spent + time.perf_counter() - start, n_done + 1
        yield outcome
    if not waiting:
        return
    try:
        for outcome in _in_processes(backend, waiting, n_workers):
            waiting.remove(outcome.numbers)
            yield outcome
    except BrokenProcessPool:
        if not backend.is_risky:
            raise TeacherFailed(f"A worker process died; try n_jobs=1. {run.say_kept()}") from None
        # Who killed the process is not said, so each of those left gets processes of its own.
        for numbers in waiting:
            try:
                yield from _in_processes(backend, [numbers], n_workers)
            except BrokenProcessPool:
                yield TeacherOutcome(numbers, failure="its process died")


def _in_a_loop(
    backend: Training, n_waiting: int, options: TrainingOptions, n_workers: int, *, seconds: float
) -> bool:
    """Say whether the next unit is trained here, where all that wait are expected to take so long."""
    if options.timeout is not None and not (n_workers == 1 and can_interrupt()):
        return False
    if n_workers == 1 or (n_waiting == 1 and not backend.is_risky):
        return True
    return options.n_jobs is None and seconds <= backend.start_seconds


def _in_processes(backend: Training, units: Sequence[range], n_workers: int) -> Iterator[TeacherOutcome]:
    import joblib

    train = joblib.delayed(train_unit)
    tasks = (train(backend.task(numbers, parent=os.getpid())) for numbers in list(units))
    with warnings.catch_warnings(), joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        warnings.filterwarnings("ignore", "A worker stopped")  # whose rows end a process is told to nobody
        # Rows are copied to the workers, never mapped: a fit may write to its own rows, as it may in a loop.
        parallel = joblib.Parallel(
            n_jobs=max(2, n_workers), return_as="generator_unordered", batch_size=1, max_nbytes=None
        )
        yield from parallel(tasks)


def open_folder(folder: str | PathLike[str] | None) -> Path | None:
    """Return a folder for teachers, made where there is none, for its owner alone."""
    if folder is None:
        return None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        why = f"Expected a folder for teachers at {folder}, got: {error.strerror or error}."
        raise OSError(error.errno or 0, why) from error
    return Path(folder).resolve()


def seed_number(seed: Seed) -> int:
    """Return the whole number that a seed stands for."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    require_count(0, seed=seed)
    return int(seed)


def refuse_other(
    folder: Path | str, what: str, *, wanted: Mapping[str, object], made_of: Mapping[str, object]
) -> None:
    """Refuse teachers in a folder that were made of something else, and say what differs."""
    changed = sorted(name for name in {*wanted, *made_of} if wanted.get(name) != made_of.get(name))
    raise ValueError(
        f"Expected teachers of this run in {folder}, got {what} of another one "
        f"(different: {', '.join(changed)}). Take another folder, or on_mismatch='retrain' "
        "to train such teachers anew and overwrite them."
    )


def say_failed(failures: Mapping[int, str]) -> str:
    """Say which teachers could not be kept or reached, whatever their rows, and why the first could not."""
    number, why = min(failures.items())
    more = ", ".join(str(other) for other in sorted(failures)[1:])
    return f"Teacher {number} could not be trained ({why})." + (f" Nor could: {more}." if more else "")


def check_partition(partition: Partition, *, n_rows: int) -> None:
    """Refuse a partition of more rows than there are."""
    last = max((int(part.max()) for part in partition if part.size), default=-1)
    if last >= n_rows:
        raise ValueError(f"Expected a partition of the {n_rows} rows of X, got one up to row {last}.")


def check_estimator(estimator: Any) -> None:
    """Refuse what cannot be fitted and asked."""
    able = all(callable(getattr(estimator, verb, None)) for verb in ("fit", "predict"))
    if isinstance(estimator, type) or not able:
        shown = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
        raise TypeError(f"Expected an estimator, an object with fit and predict, got {shown}.")
