"""Verification of a service's ledger: beside those who ask, at most one at a time, and what it found."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime

from ..errors import LedgerConflict
from ..ledger._chain import ChainedLedger, Verified
from ..ledger._lines import Line
from ..ledger.base import Head, Unusable
from ._aside import Aside, AsideEnded, Memory

FEW = 20_000
"""Lines that are read in about a second: before a service serves, and anew whenever it is asked."""

_AGAIN = 3600.0  # seconds after which the lines of a longer ledger that were read before are read again
_OWED_SECONDS = 300.0  # for which a run is told of to whoever was told to ask again
_SAID_EVERY = 0.25
_TRIES = 3
_PAUSE = 30.0
_SECONDS_TO_END = 5.0


class LedgerBroken(LedgerConflict):
    """The ledger was verified and does not hold: nothing is spent on it."""


@dataclass(frozen=True)
class Verdict:
    """What a verification found, and when; all lines were last read from `since` on."""

    when: datetime
    is_intact: bool
    head: str = ""
    n_entries: int = 0
    n_lines: int = 0
    since: datetime | None = None


def read_all(
    ledger: ChainedLedger, memory: Memory, say: Callable[[int], object], head: Head, noted: Head | None,
    anew: bool,
) -> tuple[Head, int, bool]:  # fmt: skip
    """Verify a ledger, or what came after the last time, and return how far it came.

    `head` is what the service knows to be there, `noted` what an earlier verification found. `say` is told
    how many lines are checked. The last of what is returned says whether all lines were read.
    """
    verified: Verified | None = memory.pop("verified", None)
    verified = None if anew else verified
    is_whole, told = verified is None, time.monotonic()

    def look(line: Line) -> None:
        nonlocal told
        if time.monotonic() - told > _SAID_EVERY:
            told = time.monotonic()
            say(line.number + 1)

    verified = ledger.verify_from(verified, look=look)
    for known in (head, noted):
        if known is not None and not ledger.holds(known):
            raise LedgerConflict(
                f"Expected the ledger to hold line {known.number} as it was before. It was replaced or cut "
                "short; restore it from a backup."
            )
    memory["verified"] = verified
    return verified.head, verified.n_questions, is_whole


class LedgerCheck:
    """Verifies a ledger in a process of its own, one run at a time, and keeps the last verdict.

    The head that the last one found must still be in the chain. Of a long ledger a run goes on where the last
    one ended, and reads all of it again when that was done an hour ago. `told` hears of every verdict.
    """

    def __init__(
        self,
        ledger: ChainedLedger,
        aside: Aside,
        *,
        told: Callable[[Verdict], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger, self.told = ledger, told
        self.last: Verdict | None = None
        self._aside, self._clock = aside, clock
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._run: Future[Verdict | Exception] | None = None
        self._checked = (0, 0)
        self._owed: deque[tuple[Future[Verdict | Exception], float]] = deque()  # to who was told to ask again
        self._noted: Head | None = None
        self._since: tuple[float, datetime] | None = None  # when all lines were last read

    @property
    def progress(self) -> tuple[int, int] | None:
        """Return how many lines of how many are checked, or None where nothing is being verified."""
        return None if self._run is None or self._run.done() else self._checked

    def start(self, *, persists: bool = False) -> "Future[Verdict | Exception]":
        """Begin to verify, or share what goes on; one that persists tries again while there is no verdict."""
        with self._lock:
            if self._run is None or self._run.done():
                self._run, self._checked = Future(), (0, 0)
                given = self._run, persists
                threading.Thread(target=self._work, args=given, name="verify", daemon=True).start()
            return self._run

    async def wait(self, seconds: float) -> Verdict | None:
        """Verify, and return the verdict, or None where it takes longer; nobody waits in a thread.

        Who asks again is told of that run: a new one would take as long.
        """
        run, when = self._owed.popleft() if self._owed else (None, 0.0)
        if run is None or not run.done() or self._clock() - when > _OWED_SECONDS:
            run = self.start()
        await asyncio.wait({asyncio.wrap_future(run)}, timeout=seconds)
        if not run.done():
            self._owed.append((run, self._clock()))
            return None
        found = run.result()
        if isinstance(found, Exception):
            raise found
        return found

    async def ended(self, seconds: float) -> None:
        """Wait so long for what goes on, if anything does."""
        if self._run is not None:
            await asyncio.wait({asyncio.wrap_future(self._run)}, timeout=seconds)

    def refuse(self) -> Verdict:
        """Note that the ledger was found broken while it was read."""
        return self._judged(Verdict(datetime.now(UTC), False))

    def require(self) -> None:
        """Refuse to spend on a ledger whose last verification found it broken."""
        if self.last is not None and not self.last.is_intact:
            raise LedgerBroken(
                "Expected a ledger that holds, the last verification found lines changed or missing. Nothing "
                "was charged. Stop the service and restore the ledger from a backup."
            )

    def close(self) -> None:
        """End what goes on, without a verdict."""
        self._closed.set()
        self._aside.close()
        if self._run is not None:
            wait([self._run], timeout=_SECONDS_TO_END)

    def _work(self, run: "Future[Verdict | Exception]", persists: bool) -> None:
        while True:
            found = self._tried()
            if isinstance(found, Verdict) or not persists or self._closed.wait(_PAUSE):
                break
        run.set_result(found)

    def _tried(self) -> Verdict | Exception:
        for left in reversed(range(_TRIES)):
            try:
                return self._judged(self._verify())
            except Unusable as error:
                return error
            except LedgerConflict:
                return self.refuse()
            except AsideEnded as error:
                if not left or self._closed.is_set():
                    return error
            except Exception as error:  # whoever waits is told
                return error
        raise AssertionError

    def _verify(self) -> Verdict:
        start, when = self._clock(), datetime.now(UTC)
        head = self.ledger.head
        is_long, lines = head.number >= FEW, head.number + 1
        anew = not is_long or self._since is None or start - self._since[0] > _AGAIN
        self._checked = (0, lines)
        for said in self._aside.do(read_all, head, self._noted, anew):
            if isinstance(said, int):
                self._checked = (said, max(said, lines))
        found, n_questions, is_whole = said
        if is_whole or self._since is None:
            self._since = start, when
        self._noted = found
        if not is_long:
            self._aside.end()  # nothing in it is needed again
        return Verdict(datetime.now(UTC), True, found.hash, n_questions, found.number + 1, self._since[1])

    def _judged(self, verdict: Verdict) -> Verdict:
        self.last = verdict
        if not verdict.is_intact:
            self._since = None
        if self.told is not None:
            self.told(verdict)
        return verdict
