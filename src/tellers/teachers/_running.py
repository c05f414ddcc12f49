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
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherFailed, require_count, require_positive
from ._assignment import Seed
from ._training import Outcome, Task, can_interrupt, copy_estimator, give_up, train_teacher, try_model
from .ballots import FallbackTeacher
from .models import (
    ConstantLabels,
    ConstantTeacher,
    find_teacher,
    fingerprint,
    load_model,
    skops_io,
    type_name,
)
from .partitions import Partition

Progress = Callable[[int, int], object]

# Starting worker processes, each importing scikit-learn, takes about this long: less work is done in a loop.
_START_SECONDS = 3.0
_STALE_SECONDS = 3600.0


class RowsByPart(Protocol):
    """Rows that are read when a part of them is asked for, so that no more are in memory than are at work."""

    def __len__(self) -> int:
        """Return how many rows there are."""
        ...

    def __getitem__(self, part: NDArray[np.int64], /) -> NDArray[Any]:
        """Return the rows of a part, checked, in an array of their own."""
        ...


def train_each(
    estimator: Any,
    X: NDArray[Any] | RowsByPart,
    y: NDArray[np.int64],
    partition: Partition,
    *,
    made_for: Mapping[str, int],
    seed: Seed,
    folder: str | PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
    retries: int = 1,
    on_mismatch: Literal["refuse", "retrain"] = "refuse",
    trusted: Sequence[str] = (),
    public: NDArray[Any] | None = None,
) -> tuple[Any, ...]:
    """Return one fitted copy of an estimator per part; `made_for` says what they answer, for their manifests.

    X and y are checked already; y has an answer per row, or rows x labels. X may be `RowsByPart`, which reads
    a teacher's rows when its turn comes; `public` rows, which the estimator is tried on first, then have to
    be given. A part from which nothing can be learned makes a `FallbackTeacher`. See `train_ensemble`.
    """
    check_estimator(estimator)
    require_count(0, retries=retries)
    if timeout is not None:
        require_positive(timeout=timeout)
    check_options(n_jobs=n_jobs, on_mismatch=on_mismatch)
    check_partition(partition, n_rows=len(X))
    run = _Run(
        estimator, X, y, partition, made_for=dict(made_for), seed=seed_number(seed),
        folder=None if folder is None else open_folder(Path(folder)), timeout=timeout,
        trusted=(type_name(type(estimator)), *trusted),
    )  # fmt: skip
    _reuse(run, retrain=on_mismatch == "retrain")
    if run.pending:
        shape = getattr(X if public is None else public, "shape", (0,))[1:]
        try_model(estimator, shape, run.made_for, public=public, timeout=timeout)
    try:
        _complete(run, n_jobs=n_jobs, retries=int(retries), progress=progress)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(say_kept(len(run.finished), len(partition), run.folder))
        raise
    return tuple(run.finished[number] for number in range(len(partition)))


@dataclass(frozen=True, eq=False, repr=False)
class _Run:
    """What one call trains from, and the teachers it has so far."""

    estimator: Any
    X: NDArray[Any] | RowsByPart
    y: NDArray[np.int64]
    partition: Partition
    made_for: dict[str, int]
    seed: int
    folder: Path | None
    timeout: float | None
    trusted: tuple[str, ...]
    finished: dict[int, Any] = field(default_factory=dict)

    @property
    def pending(self) -> list[int]:
        return [number for number in range(len(self.partition)) if number not in self.finished]

    def task(self, number: int, *, parent: int | None = None) -> Task:
        model = copy_estimator(self.estimator, self.seed, number)
        X, y = self.rows(number)
        return Task(
            number, model, X, y, folder=self.folder,
            made_of=None if self.folder is None else self.describe(X, y), trusted=self.trusted,
            timeout=self.timeout, parent=parent, made_for=self.made_for,
        )  # fmt: skip

    def rows(self, number: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        part = self.partition[number]
        return self.X[part], self.y[part]

    def describe(self, X: NDArray[Any], y: NDArray[np.int64]) -> dict[str, Any]:
        return describe_teacher(self.estimator, X, y, made_for=self.made_for, seed=self.seed)

    def load(self, number: int, content: bytes) -> Any:
        return load_teacher(
            content, like=self.estimator, trusted=self.trusted, where=f"{number} in {self.folder}"
        )


def describe_teacher(
    estimator: Any, X: NDArray[Any], y: NDArray[Any], *, made_for: Mapping[str, int], seed: int
) -> dict[str, Any]:
    """Return what the manifest of a teacher says that it is made of."""
    made = fingerprint(estimator, X, y, n_classes=2, seed=seed)
    return {name: value for name, value in made.items() if name != "n_classes"} | dict(made_for)


def load_teacher(content: bytes, *, like: Any, trusted: Sequence[str], where: str) -> Any:
    """Return the model of a teacher that was kept, which is like the estimator, constant or the rule's."""
    try:
        model = load_model(content, trusted=trusted)
    except ValueError as error:
        raise ValueError(f"Teacher {where}: {error}") from error
    if type(model) not in (type(like), ConstantTeacher, ConstantLabels, FallbackTeacher):
        raise ValueError(
            f"Expected a {type(like).__name__} as teacher {where}, got another type. Delete it to train it "
            "again."
        )
    return model


def _reuse(run: _Run, *, retrain: bool) -> None:
    """Take the teachers that an earlier call finished, and leave alone whatever else lies in the folder."""
    if run.folder is None:
        return
    sweep_folder(run.folder)
    for number in run.pending:
        found = find_teacher(run.folder, number)
        if found is None:
            continue
        content, made_of = found
        wanted = run.describe(*run.rows(number))
        if made_of == wanted:
            run.finished[number] = run.load(number, content)
        elif not retrain:
            refuse_other(run.folder, f"teacher {number}", wanted=wanted, made_of=made_of)


def _complete(run: _Run, *, n_jobs: int | None, retries: int, progress: Progress | None) -> None:
    """Train what is missing; who could not be trained in so many tries votes by the rule."""
    if run.finished and progress is not None:
        progress(len(run.finished), len(run.partition))
    failures, damaged = dict[int, str](), set[int]()
    for _ in range(retries + 1):
        failures, damaged = {}, set()
        for outcome in _outcomes(run, n_jobs):
            if outcome.failure is not None:
                failures[outcome.number] = outcome.failure
            elif not _finish(run, outcome, progress):
                damaged.add(outcome.number)
        if not failures and not damaged:
            break
    for number, trouble in sorted(failures.items()):
        if not _finish(run, give_up(run.task(number), trouble), progress):
            damaged.add(number)
    if damaged:
        # Files are written whole and read back: this is a matter of the disk, and not of anybody's rows.
        said = say_failed(dict.fromkeys(damaged, "its file was damaged"))
        raise TeacherFailed(f"{said} {say_kept(len(run.finished), len(run.partition), run.folder)}")


def _finish(run: _Run, outcome: Outcome, progress: Progress | None) -> bool:
    """Take what came of a teacher, or say that its file is not whole."""
    if outcome.stop is not None:
        raise outcome.stop
    model = outcome.model
    if run.folder is not None:
        # Read back even now: the ensemble is the same whether a teacher was resumed or not.
        found = find_teacher(run.folder, outcome.number)
        if found is None:
            return False
        model = run.load(outcome.number, found[0])
    run.finished[outcome.number] = model
    if progress is not None:
        progress(len(run.finished), len(run.partition))
    return True


def _outcomes(run: _Run, n_jobs: int | None) -> Iterator[Outcome]:
    """Train the pending teachers once each, in a loop or in processes."""
    import joblib

    if run.folder is not None:
        skops_io()  # slow to import, which is not to be taken for the time that a teacher takes

    waiting = run.pending
    n_workers = int(n_jobs) if n_jobs is not None else int(joblib.cpu_count())
    spent, n_done = 0.0, 0
    while waiting and _in_a_loop(run, n_jobs, n_workers, seconds=spent / max(n_done, 1) * len(waiting)):
        start = time.perf_counter()
        outcome = train_teacher(run.task(waiting.pop(0)))
        spent, n_done = spent + time.perf_counter() - start, n_done + 1
        yield outcome
    if not waiting:
        return
    try:
        for outcome in _in_processes(run, waiting, n_workers):
            waiting.remove(outcome.number)
            yield outcome
    except BrokenProcessPool:
        # Who killed the process is not said, so each of those left gets processes of its own.
        for number in waiting:
            try:
                yield from _in_processes(run, [number], n_workers)
            except BrokenProcessPool:
                yield Outcome(number, failure="its process died")


def _in_a_loop(run: _Run, n_jobs: int | None, n_workers: int, *, seconds: float) -> bool:
    """Say whether the next teacher is trained here, where all that wait are expected to take so long."""
    if run.timeout is not None and not (n_workers == 1 and can_interrupt()):
        return False
    return n_workers == 1 or (n_jobs is None and seconds <= _START_SECONDS)


def _in_processes(run: _Run, numbers: list[int], n_workers: int) -> Iterator[Outcome]:
    import joblib

    tasks = (joblib.delayed(train_teacher)(run.task(number, parent=os.getpid())) for number in list(numbers))
    with warnings.catch_warnings(), joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        warnings.filterwarnings("ignore", "A worker stopped")  # whose rows end a process is told to nobody
        # Rows are copied to the workers, never mapped: a fit may write to its own rows, as it may in a loop.
        parallel = joblib.Parallel(
            n_jobs=max(2, n_workers), return_as="generator_unordered", batch_size=1, max_nbytes=None
        )
        yield from parallel(tasks)


def seed_number(seed: Seed) -> int:
    """Return the whole number that a seed stands for."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    require_count(0, seed=seed)
    return int(seed)


def check_options(*, n_jobs: int | None, on_mismatch: str) -> None:
    """Refuse options of a training that mean nothing."""
    if n_jobs is not None:
        require_count(n_jobs=n_jobs)
    if on_mismatch not in ("refuse", "retrain"):
        raise ValueError(f"Expected on_mismatch='refuse' or 'retrain', got {on_mismatch!r}.")


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


def say_kept(n_finished: int, n_teachers: int, folder: Path | None) -> str:
    """Say what an interrupted training leaves."""
    done = f"{n_finished} of {n_teachers} teachers are finished"
    if folder is None:
        return f"{done} and lost with this call; give a folder to keep them."
    return f"{done} and kept in {folder}; call again with the same arguments to go on from there."


def open_folder(folder: Path) -> Path:
    """Return a folder for teachers, made where there is none, for its owner alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        why = f"Expected a folder for teachers at {folder}, got: {error.strerror or error}."
        raise OSError(error.errno or 0, why) from error
    return folder.resolve()


def sweep_folder(folder: Path) -> None:
    """Remove what runs that were killed left half-written."""
    for leftover in folder.glob(".teacher*.tmp"):
        # An hour old: what a killed run left, not what another run is writing.
        if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
            leftover.unlink(missing_ok=True)


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
