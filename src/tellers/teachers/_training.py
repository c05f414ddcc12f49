"""Training an ensemble: every part once, in a loop or in processes, in one go or in many.

Each teacher sees its own part and a random state drawn from the seed and its number, nothing else. So the
ensemble is the same in one process or in many, in one go or after any number of interruptions. With a folder
every finished teacher is on disk before the next report of progress, and the next call goes on from there.
"""

import faulthandler
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra, TeacherFailed, require_count
from ..privacy._rows import KeptRows, numeric_rows
from ..privacy.sealed import unheard
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
    write_model,
)
from .options import Progress, TrainingOptions
from .partitions import Partition, Seed

if TYPE_CHECKING:
    from .torch.ensemble import NetworkTraining

_STALE_SECONDS = 3600.0

# --- A unit of teachers: a model, or networks that are trained together, here or in a process of its own.
#
# Nothing but the parts, the seed and the teachers' numbers goes in, so it does not matter where or when a
# teacher is trained. What goes wrong in one teacher comes back as its outcome and leaves the others alone.

Part = tuple[NDArray[Any], NDArray[Any]]
RowsOf = Callable[[int], Part]
"""Rows and answers of the teacher of a number."""


Training: TypeAlias = "ModelTraining | NetworkTraining"
"""How teachers are trained and kept: models one by one, or networks some at a time.

What is trained at a time is a unit: `size` teachers, in the order of their numbers.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """All that a unit is trained from; `parent` is the process that sent it to a worker, if one did."""

    training: Training
    numbers: range
    parts: list[Part]
    parent: int | None = None


def make_task(training: Training, numbers: range, *, parent: int | None = None) -> Task:
    """Return the task of a unit; it holds the rows of its teachers and no way to those of others."""
    assert training.rows is not None  # here, where tasks are made
    return Task(replace(training, rows=None), numbers, [training.rows(n) for n in numbers], parent)


@dataclass(frozen=True, eq=False, repr=False)
class TeacherOutcome:
    """What was made (None where it went to disk), why there is nothing, or an error that ends the run."""

    numbers: range
    made: Any = None
    failure: str | None = None
    stop: Exception | None = None


class TooLong(BaseException):
    """A teacher takes too long; not an Exception, so that a `fit` that catches those does not go on."""


class EndOfTraining(Exception):
    """What went wrong is nobody's rows: the `error` in it ends the run."""

    @property
    def error(self) -> Exception:
        found: Exception = self.args[0]
        return found


def train_unit(task: Task) -> TeacherOutcome:
    """Train a unit, and save it in its folder; errors may quote rows, so their kind alone is passed on."""
    if task.parent is not None:
        end_with(task.parent)
        faulthandler.disable()  # where a fit crashes, no more is said than that its process died
    try:
        made = task.training.learn(task)
    except TooLong:
        return TeacherOutcome(task.numbers, failure=f"not finished after {task.training.timeout:g} seconds")
    except EndOfTraining as end:
        return TeacherOutcome(task.numbers, stop=end.error)
    except MissingExtra as error:
        return TeacherOutcome(task.numbers, stop=error)
    except (Exception, SystemExit) as error:
        return TeacherOutcome(task.numbers, failure=type(error).__name__)
    return _kept(task, made)


def give_up(task: Task, trouble: str) -> TeacherOutcome:
    """Let a unit that could not be trained vote by the rule, and remember that in the folder."""
    return _kept(task, task.training.give_up(task, trouble))


def _kept(task: Task, made: Any) -> TeacherOutcome:
    training, numbers = task.training, task.numbers
    if training.folder is None:
        return TeacherOutcome(numbers, made)
    try:
        content = training.dump(numbers, made)
        write_model(training.folder, training.file(numbers), content=content, made_of=training.made_of(task))
    except OSError as error:
        why = (
            f"Expected room to write {say_unit(numbers)} in {training.folder}, got: "
            f"{error.strerror or error}. Finished teachers are kept. Make room and call again with the same "
            "arguments."
        )
        return TeacherOutcome(numbers, stop=OSError(error.errno or 0, why))
    except Exception as error:
        stop = error if type(error) is TypeError else TypeError(f"This model cannot be saved: {error}")
        return TeacherOutcome(numbers, stop=stop)
    return TeacherOutcome(numbers)


def say_unit(numbers: range) -> str:
    return f"teacher {numbers[0]}" if len(numbers) == 1 else f"teachers {numbers[0]} to {numbers[-1]}"


@cache
def end_with(parent: int) -> None:
    """End this worker soon after its parent: a killed one cannot see to it, and idle workers wait long."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # at any moment, as files are whole or not there

    if os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


def can_interrupt() -> bool:
    """Say whether a teacher can be interrupted here: signals reach the main thread of a POSIX process."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def deadline(seconds: float | None, *, alone: bool) -> Iterator[None]:
    """Interrupt what takes too long; in a process of its own, end the process if it does not hear that."""
    if seconds is None:
        yield
        return
    with ExitStack() as undo:
        if alone:
            # Compiled code that never returns to Python hears no signal.
            nowhere = undo.enter_context(open(os.devnull, "w"))
            faulthandler.dump_traceback_later(2 * seconds + 1, exit=True, file=nowhere)
            undo.callback(faulthandler.cancel_dump_traceback_later)
        if can_interrupt():
            undo.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, _ring))
            signal.setitimer(signal.ITIMER_REAL, seconds)
            undo.callback(signal.setitimer, signal.ITIMER_REAL, 0)
        yield


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise TooLong


def copy_estimator(estimator: Any, seed: int, number: int) -> Any:
    """Return an unfitted copy whose random states depend on the seed and the teacher's number alone."""
    if hasattr(estimator, "get_params") and hasattr(estimator, "set_params"):
        from sklearn.base import clone

        model = clone(estimator, safe=False)
        names = [name for name in sorted(model.get_params(deep=True)) if name.endswith("random_state")]
        model.set_params(**dict(zip(names, random_states(seed, number, len(names)))))
        return model
    model = deepcopy(estimator)
    if hasattr(model, "random_state"):
        model.random_state = random_states(seed, number, 1)[0]
    return model


def random_states(seed: int, number: int, n_states: int) -> list[int]:
    """Return random states that depend on the seed and the teacher's number alone."""
    words = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(n_states)
    return [int(word) for word in words & np.uint32(2**31 - 1)]


@dataclass(frozen=True, eq=False, repr=False)
class ModelTraining:
    """Teachers of any estimator, one by one; `where` is their place, in messages."""

    estimator: Any
    rows: RowsOf | None
    ballots: Ballots
    seed: int
    folder: Path | None = None
    timeout: float | None = None
    trusted: Sequence[str] = ()
    where: str = ""

    size: ClassVar[int] = 1
    start_seconds: ClassVar[float] = 3.0  # that worker processes take: less work is done in a loop
    uses_processes: ClassVar[bool] = True
    is_risky: ClassVar[bool] = True  # rows may end the process of who learns from them

    def file(self, numbers: range) -> str:
        return teacher_file(numbers[0])

    def learn(self, task: Task) -> Any:
        """Return a fitted copy, a constant teacher of one answer, or without rows one of the rule."""
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
        """Return a teacher that votes by the rule, as it could not be trained."""
        return fallback_teacher(task.numbers[0], self.ballots, trouble)

    def made_of(self, task: Task) -> dict[str, Any]:
        """Return what the manifest says that a unit is made of."""
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
        """Return what a unit says to queries, and who of it answers by the rule and why."""
        return ask_teachers({numbers[0]: made}, queries, self.ballots)

    def troubles(self, numbers: range, made: Any) -> dict[int, str]:
        return known_troubles({numbers[0]: made})

    @property
    def _types(self) -> tuple[str, ...]:
        return (type_name(type(self.estimator)), *self.trusted)


# --- A model tried out before it meets private rows: on public rows, or made-up ones, with made-up labels.
#
# A teacher that cannot learn from its rows is a secret (see `fallback`). A model that cannot learn from any
# rows is a wrong setting, and has to be told. So each model is first fitted to stand-in rows, which are
# nobody's, and asked about them: what it says then may be quoted.


Rows = NDArray[Any]
Learn = Callable[[Rows, Rows], None]

_FEW, MANY = 48, 1000
_STEPS = ("epochs", "iterations")
"""Parameters of our networks that say how long they train: one round will do here."""


def try_model(
    model: Any,
    shape: tuple[int, ...],
    ballots: Ballots,
    *,
    public: NDArray[Any] | None = None,
    timeout: float | None = None,
) -> None:
    """Refuse a model that cannot learn stand-in rows of a shape, or that answers something else than asked.

    `public` rows are taken where there are some, else rows are made up: numbers around 0, or counts for those
    that want none below. A model that does not take a few dozen rows is tried on many. No private row is
    touched.
    """

    def learn(rows: NDArray[Any], targets: NDArray[Any]) -> None:
        copy = _light(copy_estimator(model, 0, 0))
        limit = timeout if can_interrupt() else None
        with one_thread(), deadline(limit, alone=False), unheard():
            copy.fit(rows, targets)
            ballots.ask(copy, rows)

    try_learning(learn, shape, ballots, public=public, name=type(model).__name__)


def try_learning(
    learn: Learn, shape: tuple[int, ...], ballots: Ballots, *, public: Rows | None, name: str
) -> None:
    """Refuse what cannot learn stand-in rows: `learn(rows, targets)` raises. See `try_model`."""
    first: tuple[str, BaseException] | None = None
    for what, rows in _stand_ins(shape, ballots.space.n_answers, public):
        try:
            learn(rows, ballots.made_up(len(rows)))
            return
        except MissingExtra:
            raise
        except (Exception, SystemExit, TooLong) as error:
            if isinstance(error, ImportError):
                raise
            first = first or (what, error)
    assert first is not None  # there is at least one table
    what, failure = first
    late = isinstance(failure, TooLong)
    said = "is not finished in time" if late else f"{type(failure).__name__}: {failure}"
    raise ValueError(
        f"Expected a model that can learn {ballots.space.n_answers} {ballots.space.kind} from rows of shape "
        f"{shape}, got {name}, which fails on {what} with made-up labels ({said}). Change its settings, "
        "or take another model. No private row was touched."
    ) from failure


def _light(model: Any) -> Any:
    """Return a model whose training is short, where its parameters allow it, and is logged nowhere."""
    if not (hasattr(model, "get_params") and hasattr(model, "set_params")):
        return model
    changed: dict[str, Any] = {}
    for name, value in model.get_params(deep=True).items():
        last = name.rpartition("__")[2]
        if last in _STEPS and isinstance(value, int) and value > 1:
            changed[name] = 1
        elif last == "log_folder" and value is not None:
            changed[name] = None
    return model.set_params(**changed) if changed else model


def _stand_ins(
    shape: tuple[int, ...], n_answers: int, public: NDArray[Any] | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    for n in (max(_FEW, 2 * n_answers), max(MANY, 10 * n_answers)):
        if public is not None and len(public):
            rows = numeric_rows(public[:n])
            yield "public rows", rows[np.arange(n) % len(rows)]
            continue
        made = np.random.default_rng(7).normal(size=(n, *shape))
        yield "made-up rows", made
        yield "made-up rows", np.floor(np.abs(made) * 3)


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
        wanted = backend.made_of(make_task(backend, numbers))
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
        if not _finish(run, give_up(make_task(run.backend, numbers), trouble), options.progress):
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
        outcome = train_unit(make_task(backend, waiting.pop(0)))
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
    tasks = (train(make_task(backend, numbers, parent=os.getpid())) for numbers in list(units))
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
