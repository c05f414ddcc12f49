"""Taking turns: what waits is done together by one thread, with one flush for all of it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

MOST_AT_ONCE = 1024
"""How many tasks are done in one turn."""

_LONG = 3e6  # seconds; what a lock can be told to wait for


class TurnTask:
    """What somebody waits for. Whoever does it sets an error where there is one."""

    __slots__ = ("deadline", "error", "is_done", "leads", "what", "woken")

    def __init__(self, what: Any, deadline: float) -> None:
        self.what, self.deadline = what, deadline
        self.error: BaseException | None = None
        self.is_done = self.leads = False
        self.woken = threading.Lock()
        self.woken.acquire()


class TurnQueue:
    """Lets one thread at a time do what all that wait have asked for.

    The first to come leads at once, so a single asker waits for nobody. Whoever comes meanwhile waits, and
    all of those are the next turn, which one of them leads. `act` is told until when its leader waits, and
    gets what is to be done by calling what it is handed; before that only the leader's own task is at stake.

    Guarantee: a task is done once or not at all; its turn begins in time, or it is taken back.
    Assumes:   nothing.
    Reference: none (group commit, as databases have it).

    >>> turns = TurnQueue(lambda deadline, tasks: [task.what() for task in tasks()])
    >>> turns.take(TurnTask(lambda: print("done"), time.monotonic() + 1))
    done
    True
    """

    def __init__(self, act: Callable[[float, Callable[[], list[TurnTask]]], object]) -> None:
        self._act = act
        self._mutex = threading.Lock()
        self._waiting: deque[TurnTask] = deque()
        self._busy = False

    def take(self, task: TurnTask) -> bool:
        """Return True when the task was done, False when it was taken back; its error is raised."""
        try:
            if not self._is_next(task):
                return False
            if not task.is_done:
                self._lead(task)
        except BaseException:
            self._leave(task)
            raise
        if task.error is not None:
            raise task.error
        return True

    def hold(self, seconds: float | None = None) -> bool:
        """Hold everybody back until `resume`, when the turn that goes on is over; say whether it came."""
        task = TurnTask(None, time.monotonic() + (_LONG if seconds is None else seconds))
        try:
            return self._is_next(task)
        except BaseException:
            self._leave(task)
            raise

    def hold_if_free(self) -> bool:
        """Hold everybody back if nobody is at it."""
        with self._mutex:
            free, self._busy = not self._busy, True
        return free

    @property
    def is_busy(self) -> bool:
        """Return whether a turn goes on."""
        return self._busy

    def resume(self) -> None:
        """Let the next one in."""
        with self._mutex:
            self._hand_on()

    def _is_next(self, task: TurnTask) -> bool:
        """Wait until a task is done or leads the next turn; say False if it was taken back."""
        with self._mutex:
            if not self._busy:
                self._busy = task.leads = True
                return True
            self._waiting.append(task)
        if task.woken.acquire(timeout=max(0.0, min(task.deadline - time.monotonic(), _LONG))):
            return True
        with self._mutex:
            if not task.leads and task in self._waiting:
                self._waiting.remove(task)
                return False
        return task.woken.acquire()  # it is being done, or it leads

    def _leave(self, task: TurnTask) -> None:
        """Let the others go on where somebody was interrupted while he waited, or before he could lead."""
        with self._mutex:
            if task in self._waiting:
                self._waiting.remove(task)
            elif task.leads and not task.is_done:
                task.is_done = True
                self._hand_on()

    def _lead(self, own: TurnTask) -> None:
        batch = [own]

        def begin() -> list[TurnTask]:
            with self._mutex:
                # Whoever holds everybody back has no task to be done, and is a turn of its own.
                while self._waiting and self._waiting[0].what is not None and len(batch) < MOST_AT_ONCE:
                    batch.append(self._waiting.popleft())
            return batch

        try:
            self._act(own.deadline, begin)
        except BaseException as error:
            for task in batch:
                task.error = _for_another(error)
            own.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._mutex:
                for task in batch:
                    task.is_done = True
                self._hand_on()
            for task in batch[1:]:
                task.woken.release()

    def _hand_on(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            following = self._waiting.popleft()
            following.leads = True
            following.woken.release()


def _for_another(error: BaseException) -> BaseException:
    """Return what to tell a thread whose task failed in another thread: an error of its own."""
    if isinstance(error, Exception):
        with suppress(Exception):
            again = copy(error)
            again.__cause__ = error
            return again
        return error
    # Ctrl-C is for the one that was interrupted alone.
    return InterruptedError(
        "Expected another thread to write for this one, it was interrupted. Whether it wrote is not known: "
        "ask again with the same key."
    )
