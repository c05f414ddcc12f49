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
    """What somebody waits for, and the turn in which it is done."""

    __slots__ = ("deadline", "is_done", "leads", "turn", "what", "woken")

    def __init__(self, what: Any, deadline: float) -> None:
        self.what, self.deadline = what, deadline
        self.turn: _TurnBatch | None = None
        self.is_done = self.leads = False
        self.woken = threading.Lock()
        self.woken.acquire()


class _TurnBatch:
    """What is done together, and what came of it; until that is known it may have failed for all."""

    __slots__ = ("error", "tasks")

    def __init__(self, tasks: list[TurnTask]) -> None:
        self.tasks = tasks
        self.error: BaseException | None = KeyboardInterrupt()


class TurnQueue:
    """Lets one thread at a time do what all that wait have asked for.

    The first to come leads at once, so a single asker waits for nobody. Whoever comes meanwhile waits, and
    all of those are the next turn, which one of them leads. `act` is told until when its leader waits, and
    gets what is to be done by calling what it is handed; before that only the leader's own task is at stake.

    Guarantee: a task is done once or not at all; its turn begins in time, or it is taken back.
    Assumes:   nothing.
    Reference: none (group commit, as databases have it).
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
        error = None if task.turn is None else task.turn.error
        if error is not None:
            raise error if task.leads else _for_another(error)
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
                self._hand_on(task)

    def _lead(self, own: TurnTask) -> None:
        turn = own.turn = _TurnBatch([own])

        def begin() -> list[TurnTask]:
            with self._mutex:
                # Whoever holds everybody back has no task to be done, and is a turn of its own.
                while self._waiting and self._waiting[0].what is not None and len(turn.tasks) < MOST_AT_ONCE:
                    task = self._waiting[0]
                    task.turn = turn
                    # Nothing is called in between: a Ctrl-C comes before both, or after.
                    del self._waiting[0]
                    turn.tasks += [task]
            return turn.tasks

        try:
            self._act(own.deadline, begin)
            turn.error = None
        except BaseException as error:
            turn.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            # Nobody else would wake those who wait: a Ctrl-C here is for afterwards.
            is_over, stopped = False, None
            while not is_over:
                try:
                    self._end(turn.tasks)
                    is_over = True
                except KeyboardInterrupt as error:
                    stopped = error
            if stopped is not None:
                raise stopped

    def _end(self, batch: list[TurnTask]) -> None:
        """Tell all of a turn that it is over, and let the next one in; it may be called again."""
        own, *others = batch
        with self._mutex:
            for task in others:
                task.is_done = True
            if not own.is_done:
                self._hand_on(own)
        for task in others:
            if task.woken.locked():
                task.woken.release()

    def _hand_on(self, own: TurnTask | None = None) -> None:
        # Nothing is called before the last line: a Ctrl-C comes before all of it, or after.
        if own is not None:
            own.is_done = True
        if not self._waiting:
            self._busy = False
            return
        following = self._waiting[0]
        del self._waiting[0]
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
