"""Training one teacher, and trying a model out on public rows first."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra
from ..privacy._rows import numeric_rows
from ..privacy.sealed import unheard
from .ballots import NO_ROWS, Ballots, fallback_teacher, one_thread
from .models import save_teacher

# --- One teacher: a copy of the estimator, fitted on one part, in this process or in one of its own. ---
#
# Nothing but the part, the seed and the teacher's number goes in, so it does not matter where or when a
# teacher is trained. What goes wrong in one teacher comes back as its outcome and leaves the others alone.


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """All that one teacher is trained from; `parent` is the process that sent it to a worker, if one did."""

    number: int
    model: Any
    X: NDArray[Any]
    y: NDArray[np.int64]
    ballots: Ballots
    folder: Path | None = None
    made_of: dict[str, Any] | None = None
    trusted: tuple[str, ...] = ()
    timeout: float | None = None
    parent: int | None = None

    @property
    def numbers(self) -> range:
        """Return whose task it is."""
        return range(self.number, self.number + 1)

    @property
    def alone(self) -> bool:
        """Say whether the process can be ended without ending anything else."""
        return self.parent is not None


@dataclass(frozen=True, eq=False, repr=False)
class TeacherOutcome:
    """What was made (None where it went to disk), why there is nothing, or an error that ends the run."""

    numbers: range
    made: Any = None
    failure: str | None = None
    stop: Exception | None = None


class TooLong(BaseException):
    """A teacher takes too long; not an Exception, so that a `fit` that catches those does not go on."""


def train_teacher(task: Task) -> TeacherOutcome:
    """Train one teacher and, where there is a folder, save it.

    What an estimator says of an error may quote rows, so only its kind is passed on, and its warnings are
    not shown. A part with one class, or the same labels throughout, makes a constant teacher, and a part
    without rows one that votes by the rule (`FallbackTeacher`).
    """
    if task.parent is not None:
        end_with(task.parent)
        faulthandler.disable()  # where a fit crashes, no more is said than that its process died
    try:
        # One thread each: many processes with many threads take turns, and sums change with their number.
        with one_thread(), deadline(task.timeout, alone=task.alone), unheard():
            model: Any = task.model
            if not len(task.y):
                model = fallback_teacher(task.number, task.ballots, NO_ROWS)
            elif (task.y == task.y[0]).all():
                model = task.ballots.constant(task.y[0])
            else:
                model.fit(task.X, task.y)
    except TooLong:
        return TeacherOutcome(task.numbers, failure=f"not finished after {task.timeout:g} seconds")
    except MissingExtra as error:
        return TeacherOutcome(task.numbers, stop=error)
    except (Exception, SystemExit) as error:
        return TeacherOutcome(task.numbers, failure=type(error).__name__)
    return _kept(task, model)


def give_up(task: Task, trouble: str) -> TeacherOutcome:
    """Let a teacher that could not be trained vote by the rule, and remember that in the folder."""
    return _kept(task, fallback_teacher(task.number, task.ballots, trouble))


def _kept(task: Task, model: Any) -> TeacherOutcome:
    if task.folder is None:
        return TeacherOutcome(task.numbers, model)
    try:
        save_teacher(task.folder, task.number, model=model, made_of=task.made_of or {}, trusted=task.trusted)
    except OSError as error:
        why = (
            f"Expected room to write teacher {task.number} in {task.folder}, got: {error.strerror or error}. "
            "Finished teachers are kept. Make room and call again with the same arguments."
        )
        return TeacherOutcome(task.numbers, stop=OSError(error.errno or 0, why))
    except Exception as error:
        stop = error if type(error) is TypeError else TypeError(f"This model cannot be saved: {error}")
        return TeacherOutcome(task.numbers, stop=stop)
    return TeacherOutcome(task.numbers)


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
