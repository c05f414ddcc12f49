"""Taking turns: what waits is done together by one thread, with one flush for all of it."""

import threading
import time
from collections import deque
from collections.abc import Callable
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
        if not self._is_next(task):
            return False
        if not task.is_done:
            self._lead(task)
        if task.error is not None:
            raise task.error
        return True

    def hold(self, seconds: float | None = None) -> bool:
        """Hold everybody back until `resume`, when the turn that goes on is over; say whether it came."""
        return self._is_next(TurnTask(None, time.monotonic() + (_LONG if seconds is None else seconds)))

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
                task.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            for task in batch:
                task.is_done = True
            with self._mutex:
                self._hand_on()
            for task in batch[1:]:
                task.woken.release()

    def _hand_on(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            following = self._waiting.popleft()
            following.leads = True
            following.woken.release()
