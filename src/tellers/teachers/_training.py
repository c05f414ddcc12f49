"""Training a unit of teachers, and trying a model out on public rows first."""

import faulthandler
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra
from ..privacy._rows import numeric_rows
from ..privacy.sealed import unheard
from .ballots import Ballots, one_thread
from .models import write_model

# --- A unit of teachers: a model, or networks that are trained together, here or in a process of its own.
#
# Nothing but the parts, the seed and the teachers' numbers goes in, so it does not matter where or when a
# teacher is trained. What goes wrong in one teacher comes back as its outcome and leaves the others alone.

Part = tuple[NDArray[Any], NDArray[Any]]
RowsOf = Callable[[int], Part]
"""Rows and answers of the teacher of a number."""


class Training(ABC):
    """How teachers are trained and kept: models one by one, or networks some at a time.

    What is trained at a time is a unit: `size` teachers, in the order of their numbers. A dataclass.
    """

    rows: RowsOf | None
    ballots: Ballots
    seed: int
    folder: Path | None
    timeout: float | None
    where: str  # the place of teachers, in messages
    start_seconds: ClassVar[float]  # that worker processes take to start: less work is done in a loop

    @property
    @abstractmethod
    def size(self) -> int:
        """Return how many teachers are trained, and kept, together."""

    @property
    @abstractmethod
    def uses_processes(self) -> bool:
        """Say whether worker processes help."""

    @property
    @abstractmethod
    def is_risky(self) -> bool:
        """Say whether rows may end the process of who learns from them."""

    def task(self, numbers: range, *, parent: int | None = None) -> "Task":
        """Return all that a unit is trained from; `parent` is the process that sends it to a worker."""
        assert self.rows is not None  # here, where tasks are made
        without_rows: Any = replace(self, rows=None)  # type: ignore[type-var]
        return Task(without_rows, numbers, [self.rows(number) for number in numbers], parent)

    @abstractmethod
    def file(self, numbers: range) -> str:
        """Return the name of the file that keeps a unit."""

    @abstractmethod
    def learn(self, task: "Task") -> Any:
        """Return what was made of a unit; what its rows make it raise is its failure."""

    @abstractmethod
    def give_up(self, task: "Task", trouble: str) -> Any:
        """Return a unit that votes by the rule, as it could not be trained."""

    @abstractmethod
    def made_of(self, task: "Task") -> dict[str, Any]:
        """Return what the manifest of a unit says that it is made of."""

    @abstractmethod
    def dump(self, numbers: range, made: Any) -> bytes:
        """Return the file that keeps what was made of a unit."""

    @abstractmethod
    def load(self, numbers: range, content: bytes) -> Any:
        """Return what was made of a unit, from the file that keeps it."""

    @abstractmethod
    def ask(self, numbers: range, made: Any, queries: NDArray[Any]) -> tuple[NDArray[Any], dict[int, str]]:
        """Return what a unit says to queries, and who of it answers by the rule and why."""

    @abstractmethod
    def troubles(self, numbers: range, made: Any) -> dict[int, str]:
        """Return who of a unit could not learn, and why."""


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """All that a unit is trained from; `parent` is the process that sent it to a worker, if one did."""

    training: Training
    numbers: range
    parts: list[Part]
    parent: int | None = None


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
    """What went wrong is nobody's rows: the `error` ends the run."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def train_unit(task: Task) -> TeacherOutcome:
    """Train a unit and, where there is a folder, save it.

    What an estimator says of an error may quote rows, so only its kind is passed on.
    """
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
