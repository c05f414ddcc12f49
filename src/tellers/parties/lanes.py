"""What a party does for another in order: a link opened when first needed, messages, and errands."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..errors import PeerRefused
from .link import Link
from .messages import Message
from .pinned import Pinned
from .programs import Program
from .ring import Integers
from .wire import Channel


class Lane:
    """One link to one party, as long as the connection for messages lives; both ends do the same in order.

    >>> from tellers.parties.wire import Identity, Peer
    >>> ends = Pinned(Identity("ann", "asker", home="ann"), Peer("north", "answerer", pin="0" * 64))
    >>> Lane(0, ends).is_open
    False
    """

    def __init__(
        self, rank: int, ends: Pinned, *, model: Mapping[str, Integers] | None = None, timeout: float = 60.0
    ) -> None:
        self._rank, self._ends, self._model, self._timeout = rank, ends, model, timeout
        self._link: Link | None = None
        self._prepared: set[Program] = set()
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Return whether a worker lives behind it."""
        return self._link is not None and self._link.is_open

    @property
    def was_open(self) -> bool:
        """Return whether there ever was one; a lane is not opened twice."""
        return self._link is not None

    def need(
        self, program: Program, connect: Callable[[], socket.socket], *, until: float | None = None
    ) -> None:
        """Make sure that a program can be run; `connect` is called if there is no link yet.

        `until` is when to give up, by `time.monotonic()`; without it each step has the lane's time.

        >>> callable(Lane.need)
        True
        """
        if self._link is None:
            link = Link(self._rank, connect, self._ends, timeout=self._timeout)
            self._link = link
            link.open(timeout=self._left(until))
            if self._is_closed:  # while it was being opened
                link.kill()
            if self._model is not None:
                link.keep_model(self._model)
        if program not in self._prepared:
            self._link.prepare(program, timeout=self._left(until))
            self._prepared.add(program)

    def run(
        self, program: Program, inputs: Mapping[str, Integers], *, until: float | None = None
    ) -> Integers | None:
        """Run a program that was prepared: the outcome for the asker, None for the other side.

        >>> callable(Lane.run)
        True
        """
        assert self._link is not None
        return self._link.run(program, inputs, timeout=self._left(until))

    def _left(self, until: float | None) -> float:
        return self._timeout if until is None else max(0.01, until - time.monotonic())

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the last run, both ways."""
        return 0 if self._link is None else self._link.traffic.n_bytes

    def close(self) -> None:
        """End the link; the other end notices.

        >>> from tellers.parties.wire import Identity, Peer
        >>> ends = Pinned(Identity("ann", "asker", home="ann"), Peer("north", "answerer", pin="0" * 64))
        >>> lane = Lane(0, ends)
        >>> lane.close()
        >>> lane.is_open, lane.n_bytes
        (False, 0)
        """
        self._is_closed = True
        if self._link is not None:
            self._link.kill()


class Outbox:
    """Send messages in the order in which they were put, without making whoever puts them wait.

    >>> from types import SimpleNamespace
    >>> seen = queue.Queue()
    >>> box = Outbox(SimpleNamespace(send=seen.put, close=lambda: seen.put("closed")))
    >>> for message in ("one", "two"):
    ...     box.put(message)
    >>> box.close()
    >>> [seen.get(timeout=30) for _ in range(3)]
    ['one', 'two', 'closed']
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: queue.Queue[Message | None] = queue.Queue()
        threading.Thread(target=self._carry, daemon=True).start()

    def put(self, message: Message) -> None:
        """Send a message soon; if it cannot be sent, the connection is closed.

        >>> from types import SimpleNamespace
        >>> seen = queue.Queue()
        >>> Outbox(SimpleNamespace(send=seen.put, close=None)).put("one")
        >>> seen.get(timeout=30)
        'one'
        """
        self._waiting.put(message)

    def close(self) -> None:
        """Close the connection after what waits was sent, or found unsendable.

        >>> from types import SimpleNamespace
        >>> closed = threading.Event()
        >>> Outbox(SimpleNamespace(send=None, close=closed.set)).close()
        >>> closed.wait(timeout=30)
        True
        """
        self._waiting.put(None)

    def _carry(self) -> None:
        with suppress(PeerRefused, TimeoutError):
            while (message := self._waiting.get()) is not None:
                self._channel.send(message)
        self._channel.close()


class Errands:
    """Do one thing after the other, in a thread that nobody has to wait for at the end.

    >>> done, errands = threading.Event(), Errands()
    >>> errands.submit(done.set)
    >>> done.wait(timeout=5.0)
    True
    >>> errands.close()
    """

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._is_closed = False
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, errand: Callable[[], object]) -> None:
        """Do this after all that was submitted before."""
        self._waiting.put(errand)

    def close(self) -> None:
        """Begin nothing more."""
        self._is_closed = True
        self._waiting.put(None)

    def _run(self) -> None:
        while (errand := self._waiting.get()) is not None and not self._is_closed:
            errand()
