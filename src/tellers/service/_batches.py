"""Work for one thread that takes all that waits together: threads taking turns cost more than the work."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Batches(Generic[Item, Outcome]):
    """Hands what is waited for to `act`, as many at once as there are; an outcome may be an error.

    >>> import asyncio
    >>> async def ask():
    ...     doubled = Batches(lambda items: [2 * item for item in items])
    ...     found = await asyncio.gather(doubled.wait_for(3), doubled.wait_for(4))
    ...     doubled.close()
    ...     return found
    >>> asyncio.run(ask())
    [6, 8]
    """

    def __init__(
        self, act: Callable[[Sequence[Item]], Sequence[Outcome | Exception]], *, most: int = 64
    ) -> None:
        self._act, self._most = act, most
        self._queue: SimpleQueue[tuple[Item, asyncio.Future[Outcome]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def wait_for(self, item: Item) -> Outcome:
        """Return what comes out of an item, or raise its error."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
            self._thread.start()
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.put((item, done))
        return await done

    def close(self) -> None:
        """Wait for what is being done, and end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, is_last = [first], False
            while len(batch) < self._most and not is_last:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                is_last = following is None
                if following is not None:
                    batch.append(following)
            try:
                found: Sequence[Any] = self._act([item for item, _ in batch])
            except Exception as error:
                found = [error] * len(batch)
            done = [waiting for _, waiting in batch]
            loop = done[0].get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_tell, list(zip(done, found, strict=True)))
            if is_last:
                return


def _tell(outcomes: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    for waiting, outcome in outcomes:
        if waiting.done():  # nobody waits any more
            continue
        if isinstance(outcome, Exception):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)
