"""One teacher: a copy of the estimator, fitted on one part, in this process or in one of its own.

Nothing but the part, the seed and the teacher's number goes in, so it does not matter where or when a teacher
is trained. What goes wrong in one teacher comes back as its outcome and leaves the others alone.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra
from .fallback import NO_ROWS, fallback_teacher, unheard
from .models import ConstantLabels, ConstantTeacher, save_teacher


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """All that one teacher is trained from; `parent` is the process that sent it to a worker, if one did.

    `made_for` says what it answers: so many classes, or labels.

    >>> Task(0, None, np.zeros((2, 1)), np.array([3, 3])).alone
    False
    """

    number: int
    model: Any
    X: NDArray[Any]
    y: NDArray[np.int64]
    folder: Path | None = None
    made_of: dict[str, Any] | None = None
    trusted: tuple[str, ...] = ()
    timeout: float | None = None
    parent: int | None = None
    made_for: dict[str, int] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Say whether the process can be ended without ending anything else."""
        return self.parent is not None


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """A model (None where it went to disk), why there is none, or an error that ends the run."""

    number: int
    model: Any = None
    failure: str | None = None
    stop: Exception | None = None


class TooLong(BaseException):
    """A teacher takes too long; not an Exception, so that a `fit` that catches those does not go on."""


def train_teacher(task: Task) -> Outcome:
    """Train one teacher and, where there is a folder, save it.

    What an estimator says of an error may quote rows, so only its kind is passed on, and its warnings are
    not shown. A part with one class, or the same labels throughout, makes a constant teacher, and a part
    without rows one that votes by the rule (`FallbackTeacher`).

    >>> task = Task(0, None, np.zeros((2, 1)), np.array([3, 3]))
    >>> train_teacher(task).model
    ConstantTeacher(label=3)
    """
    from threadpoolctl import threadpool_limits

    if task.parent is not None:
        end_with(task.parent)
        faulthandler.disable()  # where a fit crashes, no more is said than that its process died
    try:
        # One thread each: many processes with many threads take turns, and sums change with their number.
        with threadpool_limits(limits=1), deadline(task.timeout, alone=task.alone), unheard():
            model: Any = task.model
            if not len(task.y):
                model = fallback_teacher(task.number, task.made_for, NO_ROWS)
            elif (task.y == task.y[0]).all():
                model = _constant(task.y[0])
            else:
                model.fit(task.X, task.y)
    except TooLong:
        return Outcome(task.number, failure=f"not finished after {task.timeout:g} seconds")
    except MissingExtra as error:
        return Outcome(task.number, stop=error)
    except (Exception, SystemExit) as error:
        return Outcome(task.number, failure=type(error).__name__)
    return _kept(task, model)


def give_up(task: Task, trouble: str) -> Outcome:
    """Let a teacher that could not be trained vote by the rule and, where there is a folder, remember that.

    >>> task = Task(3, None, np.zeros((2, 1)), np.array([0, 1]), made_for={"n_classes": 2})
    >>> give_up(task, "ValueError").model
    FallbackTeacher(number=3, n_outputs=2, many=False, trouble='ValueError')
    """
    return _kept(task, fallback_teacher(task.number, task.made_for, trouble))


def _kept(task: Task, model: Any) -> Outcome:
    if task.folder is None:
        return Outcome(task.number, model)
    try:
        save_teacher(task.folder, task.number, model=model, made_of=task.made_of or {}, trusted=task.trusted)
    except OSError as error:
        why = (
            f"Expected room to write teacher {task.number} in {task.folder}, got: {error.strerror or error}. "
            "Finished teachers are kept. Make room and call again with the same arguments."
        )
        return Outcome(task.number, stop=OSError(error.errno or 0, why))
    except Exception as error:
        stop = error if type(error) is TypeError else TypeError(f"This model cannot be saved: {error}")
        return Outcome(task.number, stop=stop)
    return Outcome(task.number)


def _constant(answer: Any) -> ConstantTeacher | ConstantLabels:
    if np.ndim(answer):
        return ConstantLabels(tuple(int(label) for label in answer))
    return ConstantTeacher(int(answer))


@cache
def end_with(parent: int) -> None:
    """End this worker soon after its parent: a killed one cannot see to it, and idle workers wait long.

    >>> end_with(-1)  # not our parent: nothing to wait for
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # at any moment, as files are whole or not there

    if os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


def can_interrupt() -> bool:
    """Say whether a teacher can be interrupted here: signals reach the main thread of a POSIX process.

    >>> can_interrupt()
    True
    """
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def deadline(seconds: float | None, *, alone: bool) -> Iterator[None]:
    """Interrupt what takes too long; in a process of its own, end the process if it does not hear that.

    >>> with deadline(None, alone=False):
    ...     pass
    """
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
    """Return an unfitted copy whose random states depend on the seed and the teacher's number alone.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> [copy_estimator(DecisionTreeClassifier(), 7, number).random_state for number in (0, 1, 0)]
    [1201125462, 1471499523, 1201125462]
    """
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
    """Return random states that depend on the seed and the teacher's number alone.

    >>> random_states(7, 0, 2)[:1] == random_states(7, 0, 1)
    True
    """
    words = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(n_states)
    return [int(word) for word in words & np.uint32(2**31 - 1)]
