"""Handing out tasks: so many at a time, again where one was lost, twice where one is slow, each counted once.

What comes back is kept by the number of a teacher. The first answer wins; later ones find the place taken.
"""

import statistics
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ClusterFailed, MissingExtra, TeacherFailed, require_count, require_positive
from ._working import Answer, ShardBatch, hold, work
from .cluster import Link

_LOOK_SECONDS = 0.02
_COUNT_SECONDS = 0.5
# A task that the cluster itself gave up so often is not one that merely had bad luck.
_MOST_LOST = 20


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How tasks are handed out: how often again, how many at a time, and when one counts as slow.

    A teacher that fails is tried again `retries` times. `in_flight` tasks are handed out at a time; None is
    two for each thread of a worker. Once all are handed out, one that takes `slow_factor` times as long as
    the median, and at least `slow_seconds`, is handed out a second time, to another worker.

    >>> Patience(retries=2).slow_factor
    3.0
    """

    retries: int = 1
    in_flight: int | None = None
    slow_factor: float = 3.0
    slow_seconds: float = 10.0

    def __post_init__(self) -> None:
        require_count(0, retries=self.retries)
        require_positive(slow_factor=self.slow_factor, slow_seconds=self.slow_seconds)
        if self.in_flight is not None:
            require_count(in_flight=self.in_flight)


@dataclass(eq=False, repr=False)
class _Flight:
    """One batch that was handed out: its copies on the cluster, and since when."""

    batch: ShardBatch
    since: float
    copies: list[Any] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Dispatch:
    """One round of tasks, all training or all voting on the same queries, until each is answered or failed.

    `near` says for teachers which worker had them last: it may have kept them where others cannot look.
    Tasks that are `whole` are never split: their teachers are trained together. A teacher that cannot learn
    from its rows is tried again as often, then `given_up`, and votes by the rule; `troubles` says why.
    """

    link: Link
    order: bytes
    batches: Sequence[ShardBatch]
    patience: Patience
    queries: str | NDArray[Any] | None = None
    near: Mapping[int, str] = field(default_factory=dict)
    whole: bool = False
    failures: dict[int, str] = field(default_factory=dict)
    given_up: dict[int, str] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)
    n_doubled: int = 0
    most_in_flight: int = 0
    _waiting: deque[ShardBatch] = field(default_factory=deque)
    _flights: list[_Flight] = field(default_factory=list)
    _tries: dict[int, int] = field(default_factory=dict)
    _losses: dict[int, int] = field(default_factory=dict)
    _seconds: list[float] = field(default_factory=list)
    _counted: float = -1e9
    _workers: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    _served: dict[str, float] = field(default_factory=dict)
    _held: Any = None

    def answers(self) -> Iterator[Answer]:
        """Yield one answer for each teacher, as they come; what failed for good is in `failures`."""
        self._waiting = deque(self.batches)
        done: set[int] = set()
        try:
            while self._waiting or self._flights:
                if self.link.is_lost:
                    self._start_over()
                self._waiting.extend(flight.batch for flight in self._flights if not flight.copies)
                self._flights = [flight for flight in self._flights if flight.copies]
                self._count_workers()
                self._hand_out()
                self._double_slow_ones()
                landed = [flight for flight in self._flights if any(_ended(c) for c in flight.copies)]
                for flight in landed:
                    answer = self._land(flight)
                    if answer is None:
                        continue
                    # Keyed by teacher: whatever comes a second time is not looked at.
                    fresh = [number for number in answer.numbers if number not in done]
                    if len(fresh) == len(answer.numbers) and fresh:
                        done.update(fresh)
                        yield answer
                if not landed:
                    time.sleep(_LOOK_SECONDS)
        finally:
            self._cancel([copy for flight in self._flights for copy in flight.copies])

    def _hand_out(self) -> None:
        n_threads = sum(n for n, _ in self._workers.values())
        most = self.patience.in_flight or max(2 * n_threads, 1)
        while self._waiting and len(self._flights) < most and self._workers:
            batch = self._waiting.popleft()
            flight = _Flight(batch, time.monotonic())
            self._flights.append(flight)
            last = self.near.get(batch.numbers[0], "")
            where: dict[str, Any] = {}
            if last in self._workers and not batch.at:
                where = {"workers": [last], "allow_other_workers": True}
            self._submit(flight, where)
            self.most_in_flight = max(self.most_in_flight, len(self._flights))

    def _submit(self, flight: _Flight, where: dict[str, Any]) -> None:
        batch = flight.batch
        try:
            if isinstance(self.queries, np.ndarray) and (self._held is None or _is_lost(self._held)):
                with warnings.catch_warnings():
                    # Of its size: queries are public, go out once, and may be an address instead.
                    warnings.filterwarnings("ignore", "Sending large graph")
                    self._held = self.link.client.submit(
                        hold, self.queries, key=f"tellers-queries-{uuid.uuid4()}", pure=False
                    )
            flight.copies.append(
                self.link.client.submit(
                    work,
                    self.order,
                    list(batch.numbers),
                    list(batch.addresses),
                    self.queries if self._held is None else self._held,
                    {number: self.given_up[number] for number in batch.numbers if number in self.given_up},
                    key=f"tellers-{batch.numbers[0]}-{uuid.uuid4()}",
                    pure=False,
                    resources={batch.at: 1} if batch.at else None,
                    **where,
                )
            )
        except (OSError, RuntimeError, AttributeError, TimeoutError):
            if not self.link.is_lost:
                raise
            # The line broke between two looks: it is mended, and this handed out again, at the next one.

    def _double_slow_ones(self) -> None:
        """Hand the slowest out a second time, where nothing else waits and another worker can take it."""
        if self._waiting or not self._seconds or len(self._workers) < 2:
            return
        limit = max(self.patience.slow_seconds, self.patience.slow_factor * statistics.median(self._seconds))
        now = time.monotonic()
        slow = [f for f in self._flights if len(f.copies) == 1 and now - f.since > limit]
        if not slow:
            return
        busy = self._processing()
        for flight in slow:
            at = flight.batch.at
            others = [
                worker
                for worker, (_, resources) in self._workers.items()
                if flight.copies[0].key not in busy.get(worker, ()) and (not at or at in resources)
            ]
            if others:
                self._submit(flight, {"workers": others, "allow_other_workers": False})
                self.n_doubled += 1

    def _land(self, flight: _Flight) -> Answer | None:
        """Take the first copy that ended; return its answer, or put what is missing back in the queue."""
        copy = next(copy for copy in flight.copies if _ended(copy))
        if _is_lost(copy) or copy.status == "error":
            flight.copies.remove(copy)
            if flight.copies:
                return None  # its double goes on
            self._flights.remove(flight)
            self._fall(flight.batch, copy)
            return None
        try:
            answer = copy.result(timeout=60)
        except Exception:  # its worker went between the end of the task and now
            flight.copies.remove(copy)
            if not flight.copies:
                self._flights.remove(flight)
                self._lose(flight.batch)
            return None
        self._flights.remove(flight)
        self._cancel([other for other in flight.copies if other is not copy])
        self._seconds.append(time.monotonic() - flight.since)
        return self._check(flight.batch, answer)

    def _check(self, batch: ShardBatch, answer: Answer) -> Answer | None:
        if answer.stop is not None:
            raise answer.stop
        told = {*answer.numbers, *answer.failures, *answer.unable}
        table = answer.ballots
        whole = table is None or (table.dtype.kind in "iu" and len(table) == len(answer.numbers))
        if told != set(batch.numbers) or not whole:
            raise TeacherFailed("Expected ballots in whole numbers for each teacher of a task, got others.")
        self._again(batch, answer.failures)
        self._again(batch, answer.unable, give_up=True)
        self.troubles.update(answer.troubles)
        return answer if answer.numbers else None

    def _again(self, batch: ShardBatch, failed: Mapping[int, str], *, give_up: bool = False) -> None:
        """Queue failed teachers again while they have tries left; networks share a task, and its fate.

        Who was unable to learn is given up after that, and has its task again, to vote by the rule.
        """
        retry = []
        for number, why in failed.items():
            self._tries[number] = self._tries.get(number, 0) + 1
            if self._tries[number] > self.patience.retries:
                if give_up and number not in self.given_up:
                    self.given_up[number], self._tries[number] = why, 0
                    retry.append(number)
                else:
                    self.failures[number] = why
            else:
                retry.append(number)
        if retry:
            self._waiting.append(batch.only(retry))

    def _fall(self, batch: ShardBatch, copy: Any) -> None:
        """A task that has no answer: its worker died too often, or the cluster forgot it."""
        if _is_lost(copy):
            self._lose(batch)
            return
        error = copy.exception(timeout=30)
        if isinstance(error, ImportError):
            raise MissingExtra(
                "Expected tellers and what it needs on every worker and on the scheduler, got one that "
                f"cannot open a task ({error}). Install there: pip install 'tellers[distributed]', the "
                "same version."
            )
        died = type(error).__name__ == "KilledWorker"
        why = "its worker died, again and again" if died else type(error).__name__
        if died and len(batch.numbers) > 1 and not self.whole:
            # Who killed the worker is not said, so each of them gets a task of its own.
            self._waiting.extend(batch.only([number]) for number in batch.numbers)
            return
        self._again(batch, dict.fromkeys(batch.numbers, why), give_up=died and len(batch.numbers) == 1)

    def _lose(self, batch: ShardBatch) -> None:
        first = batch.numbers[0]
        self._losses[first] = self._losses.get(first, 0) + 1
        if self._losses[first] > _MOST_LOST:
            self.failures.update(dict.fromkeys(batch.numbers, "its task was lost, again and again"))
        else:
            self._waiting.append(batch)

    def _start_over(self) -> None:
        """Mend the line; the scheduler that was there, if there is one, knows nothing of our tasks."""
        self._waiting.extendleft(flight.batch for flight in reversed(self._flights))
        self._flights, self._held, self._counted = [], None, -1e9
        self.link.again()

    def _count_workers(self) -> None:
        now = time.monotonic()
        if now - self._counted < _COUNT_SECONDS:
            return
        with suppress(OSError, TimeoutError, RuntimeError):
            self._workers = self.link.workers()
        self._counted = now
        offered = {"" for _ in self._workers} | {r for _, names in self._workers.values() for r in names}
        wanted = {batch.at for batch in self._waiting} | {flight.batch.at for flight in self._flights}
        for at in wanted:
            if at in offered:
                self._served[at] = now
            elif now - self._served.setdefault(at, now) > self.link.cluster.patience:
                who = f"a worker with the resource {at!r}" if at else "a worker"
                raise ClusterFailed(
                    f"Expected {who} at {self.link.cluster.address}, got none for "
                    f"{self.link.cluster.patience:g} seconds. Finished teachers are kept in the store; start "
                    "workers and run again."
                )

    def _processing(self) -> dict[str, Sequence[str]]:
        try:
            found: dict[str, Sequence[str]] = dict(self.link.client.processing())
        except (OSError, TimeoutError, RuntimeError):
            found = {}
        return found

    def _cancel(self, copies: Sequence[Any]) -> None:
        if copies and not self.link.is_lost:
            with suppress(Exception):
                self.link.client.cancel(list(copies), force=True)


def _ended(copy: Any) -> bool:
    return bool(copy.status != "pending")


def _is_lost(copy: Any) -> bool:
    return copy.status in ("cancelled", "lost")
