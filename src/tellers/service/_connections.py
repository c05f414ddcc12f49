"""The connections of a service: a budget that strangers cannot use up, and a deadline in every state."""

import asyncio
import errno
import ipaddress
import logging
import math
import socket
import ssl
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ._problems import HttpProblem

MAX_HEADER_BYTES = 32_768
MAX_PIPELINED = 8
DRAIN_BYTES = 1_048_576
WRITE_BYTES = 65_536
"""What may wait to be sent before whoever writes waits too."""
PROGRESS_BYTES = 16_384
_RESERVED_FILES = 256
_ACCEPTED_AT_ONCE = 32
_FRAMING = 8  # bytes around each byte of a body: chunks of one byte take five
_LONGEST = 86_400.0  # seconds
_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_SAID_EVERY = 60.0
_LOG = logging.getLogger("uvicorn.error")  # which the log of a service takes over


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a connection may stay in each state before it is closed.

    There is none while the service itself works on an answer. `write` is for each `PROGRESS_BYTES` that a
    client reads of a response.
    """

    handshake: float = 10.0
    head: float = 15.0
    body: float = 35.0  # a little more than the service waits for one, so that it can say so
    idle: float = 15.0
    write: float = 30.0
    drain: float = 2.0
    close: float = 5.0


class ConnectionBudget:
    """All connections of a service, at most so many; where one is too many, the oldest stranger goes.

    A stranger is a connection whose last request showed no valid key. One timer looks at all deadlines, so
    that a request costs none.

    Guarantee: whoever connects is let in while any stranger is there, or somebody with a key is idle.
    Assumes:   a valid key is shown before `most` strangers have come after.
    Reference: none.
    """

    def __init__(self, most: int, *, per_address: int = 0, every: float = 1.0) -> None:
        self.most, self.per_address, self.every = most, per_address, every
        self.n_shed = 0
        self._strangers: OrderedDict[Connection, None] = OrderedDict()
        self._known: OrderedDict[Connection, None] = OrderedDict()
        self._at: dict[str, OrderedDict[Connection, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._said, self._n_said = -math.inf, 0

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def add(self, connection: "Connection") -> bool:
        """Take a connection in and return True, or False where all others are at work for a key."""
        neighbours = self._at.get(connection.address)
        if neighbours and 0 < self.per_address <= len(neighbours):
            self._shed_oldest(neighbours)
        if len(self) >= self.most and not self.shed():
            return False
        self._enter(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(self.every, self._sweep, connection.loop)
        return True

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that is gone."""
        self._known.pop(connection, None)
        if self._strangers.pop(connection, self) is None:
            neighbours = self._at[connection.address]
            del neighbours[connection]
            if not neighbours:
                del self._at[connection.address]

    def judge(self, connection: "Connection", has_key: bool) -> None:
        """Note whether the last request of a connection showed a valid key."""
        if has_key and connection in self._strangers:
            self.discard(connection)
            self._known[connection] = None
        elif not has_key and connection in self._known:
            self.discard(connection)
            self._enter(connection)

    def shed(self) -> bool:
        """Close the oldest stranger, or else somebody who is idle, and return whether there was one."""
        if self._shed_oldest(self._strangers):
            return True
        for connection in self._known:
            if connection.is_idle:
                self._close(connection)
                return True
        return False

    def _enter(self, connection: "Connection") -> None:
        self._strangers[connection] = None
        self._at.setdefault(connection.address, OrderedDict())[connection] = None

    def _shed_oldest(self, strangers: "OrderedDict[Connection, None]") -> bool:
        while strangers:
            oldest = next(iter(strangers))
            if not oldest.has_key:
                self._close(oldest)
                return True
            self.judge(oldest, True)  # its first answer is on the way
        return False

    def _close(self, connection: "Connection") -> None:
        self.n_shed += 1
        self.discard(connection)
        connection.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._timer = loop.call_later(self.every, self._sweep, loop) if len(self) else None
        for connection in (*self._strangers, *self._known):
            if connection.deadline <= now:
                connection.expire(now)
        if self.n_shed > self._n_said and now >= self._said + _SAID_EVERY:
            n_new, self._said, self._n_said = self.n_shed - self._n_said, now, self.n_shed
            words = "%d connections without a key, or idle, were closed to make room; %d are open"
            _LOG.warning(words, n_new, len(self))


def allowed_connections(wanted: int) -> int:
    """Return how many connections there may be, so that files for the ledger and the keys are left.

    >>> 8 <= allowed_connections(1000) <= 1000
    True
    """
    if sys.platform == "win32":  # where sockets are no files
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _RESERVED_FILES
    if 0 <= soft < needed:  # negative where there is no limit
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard < 0 else min(needed, hard), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft < 0 else max(8, min(wanted, soft - min(_RESERVED_FILES, soft // 2)))


def network_of(host: str) -> str:
    """Return what counts as one address: of IPv6 the /64 that one line is given.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:0db8:0000:0000', '192.0.2.7')
    """
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped) if address.ipv4_mapped else address.exploded[:19]


def _in_flight(line: socket.socket) -> tuple[int, int]:
    """Return how many bytes of a connection wait to be acknowledged, and how many were so far, on Linux."""
    import fcntl
    import termios

    try:
        waiting = fcntl.ioctl(line, termios.TIOCOUTQ, bytes(4))
        told = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    except (OSError, ValueError):  # it is closed
        return 0, 0
    return int.from_bytes(waiting, sys.byteorder), int.from_bytes(told[120:], sys.byteorder)


class _AnswerTransport:
    """What a response is written to. Where it ends a connection, what is still coming is read first.

    A socket that is closed with unread bytes is reset, and the client may lose the response.
    """

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, connection: "Connection") -> None:
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.close = connection.finish


class Connection(HttpToolsProtocol):
    """HTTP/1.1 as uvicorn and llhttp speak it, with limits on what a stranger may send, hold and wait for.

    Whatever is refused before its body was read ends the connection: `Connection: close`, and a bounded part
    of the rest is read and thrown away. llhttp is strict about framing; what it leaves open (the size of a
    head, Host, versions, trailers, chunks that are all framing) is decided here.
    """

    def __init__(
        self,
        *given: Any,
        budget: ConnectionBudget,
        deadlines: Deadlines | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        # Nothing may come after a request that asks to close.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self.budget = budget
        self.deadlines = deadlines or Deadlines()
        self.address, self.deadline = "", math.inf
        self._wire: socket.socket | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._answers: _AnswerTransport | None = None
        self._running: Any = None  # the request that is answered now; `cycle` is the last one that came
        self._is_head = self._is_refused = self._is_draining = self._keeps_alive = False
        self._n_head = self._n_raw = self._n_body = self._n_drained = self._read = 0

    # --- Its life ---

    def open(self, accepted: socket.socket, host: str, context: ssl.SSLContext | None) -> None:
        """Begin with a socket that was accepted; a handshake counts as a stranger from here on."""
        self.address = network_of(host)
        if not self.budget.add(self):
            accepted.close()
            return
        self.deadline = self.loop.time() + self.deadlines.handshake
        timeouts: dict[str, Any] = {}
        if context is not None:
            # How long a last answer may take is said by our own deadlines.
            timeouts = {"ssl_handshake_timeout": self.deadlines.handshake, "ssl_shutdown_timeout": _LONGEST}
            self._wire = accepted if sys.platform == "linux" else None
        self._opening = self.loop.create_task(
            self.loop.connect_accepted_socket(lambda: self, accepted, ssl=context, **timeouts)
        )

        def opened(task: asyncio.Task[Any]) -> None:
            self._opening = None
            if task.cancelled() or task.exception() is not None:
                accepted.close()
                self.budget.discard(self)

        self._opening.add_done_callback(opened)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._answers = _AnswerTransport(self)
        if not self.address:  # another server accepted it
            self.address = network_of(self.client[0] if self.client else "nobody")
            if not self.budget.add(self):
                transport.abort()
        self._wait(self.deadlines.head)

    def connection_lost(self, exc: Exception | None) -> None:
        self.budget.discard(self)
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._answers = None
        super().connection_lost(exc)

    @property
    def has_key(self) -> bool:
        """Return whether the request that is answered now, or was last, showed a valid key."""
        return self._running is not None and self._running.scope["state"].get("key_id") is not None

    @property
    def is_idle(self) -> bool:
        """Return whether nobody waits for an answer here."""
        return self._running is None or self._running.response_complete

    def abort(self) -> None:
        """Close at once."""
        if self._opening is not None:
            self._opening.cancel()
        if self._answers is not None:
            self.transport.abort()

    def expire(self, now: float) -> None:
        """Do what is due at the deadline: close, or abort where closing took too long as well."""
        if self._answers is None:
            self.abort()
            return
        unsent, read = self._sent()
        if unsent and read >= self._read + PROGRESS_BYTES:  # slow, but reading
            self._read, self.deadline = read, now + self.deadlines.write
        elif self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        else:
            self._close()

    def finish(self) -> None:
        """End the connection after a response."""
        if self._is_refused or self._running.more_body:
            self._is_draining = True
            self.flow.resume_reading()
            if self.transport.can_write_eof():  # not with TLS
                self.transport.write_eof()
            self._wait(self.deadlines.drain)
        else:
            self._close()

    def _close(self) -> None:
        self.transport.close()
        self._wait(self.deadlines.close)

    def _wait(self, seconds: float) -> None:
        unsent, self._read = self._sent()
        if unsent and self._wire is None:
            seconds = max(seconds, self.deadlines.write)
        self.deadline = self.loop.time() + seconds

    def _wait_for_running(self) -> None:
        """Wait for whom the running request waits: the client to read what was said before, or to send it."""
        if self.flow.write_paused:
            self._wait(self.deadlines.write)
        else:
            self._wait(self.deadlines.body if self._running.more_body else math.inf)

    def _sent(self) -> tuple[int, int]:
        """Return how much of what was written waits yet, and a number that grows by what the client reads.

        TLS passes on all it is given and knows nothing of it; Linux does.
        """
        unsent = int(self.transport.get_write_buffer_size())
        if self._wire is None:
            return unsent, -unsent
        waiting, read = _in_flight(self._wire)
        return unsent + waiting, read

    def shutdown(self) -> None:
        """End with the answer that is on its way, or now where there is none."""
        super().shutdown()
        self._keeps_alive = False
        if self.transport.is_closing():  # by TLS, when the client says goodbye as well
            self._wait(self.deadlines.close)

    # --- What comes ---

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_refused or self._is_draining:
            self._n_drained += len(data)
            if self._n_drained > DRAIN_BYTES:
                self.transport.abort()
            if self._is_refused:
                return
        if self._is_head:
            self._n_head += len(data)
        else:
            self._n_raw += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            # Not spoken here: the request is answered as any other, and nothing after it is read.
            self._refuse()
        except HttpParserError:
            self._refuse()
        else:
            # The piece a head began in is not counted: it may hold other things, and is bounded itself.
            too_long = self._is_head and self._n_head > MAX_HEADER_BYTES
            if too_long or self._n_raw > MAX_HEADER_BYTES + _FRAMING * self._n_body:
                self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head, self._n_head = True, 0
        if self._running is not None and self.is_idle and not self._is_draining:
            self._wait(self.deadlines.head)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head:  # after a body they are trailers, which nobody here looks at
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head = False
        if self._is_draining or self.transport.is_closing() or not self._is_sound():
            raise ValueError("a request that is not answered")
        # A length is believed by the parser; chunks are counted.
        self._n_raw = self._n_body = 0
        super().on_headers_complete()
        cycle = self.cycle
        if self.is_idle:
            self._running = cycle
        cycle.transport = self._answers  # type: ignore[assignment]
        # Until all of it is there, an answer ends the connection.
        self._keeps_alive, cycle.keep_alive = cycle.keep_alive, False
        if cycle is self._running:
            self._wait_for_running()

    def on_body(self, body: bytes) -> None:
        self._n_body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._n_raw = self._n_body = 0
        cycle = self.cycle
        if self._is_draining:
            self._close()
        elif not cycle.response_started:
            cycle.keep_alive = self._keeps_alive
        if cycle is self._running and not cycle.response_complete:
            self._wait_for_running()

    def _is_sound(self) -> bool:
        """Return whether a head is one that all readers of HTTP/1 understand alike."""
        size, n_hosts = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            n_hosts += name == b"host"
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                return False
        version = self.parser.get_http_version()
        if version == "1.0" and any(name == b"transfer-encoding" for name, _ in self.headers):
            return False
        return (
            size <= MAX_HEADER_BYTES
            and version in ("1.0", "1.1")
            and n_hosts <= 1
            and (n_hosts == 1 or version == "1.0")
            and self.url[:1] in (b"/", b"*")
            and len(self.pipeline) < MAX_PIPELINED
        )

    def _refuse(self) -> None:
        """Read no further: say so now, or end with the answer that is on its way."""
        if self.transport.is_closing():
            return
        self._is_refused = True
        self.pipeline.clear()
        running = self._running
        if running is not None and not running.response_complete:
            if running.response_started or not running.more_body:
                running.keep_alive = False
                return
            running.disconnected = True
            running.message_event.set()
        if not self._is_draining:
            self.transport.write(_BAD_REQUEST)
            self.finish()

    # --- What goes out ---

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self.budget.judge(self, self.has_key)
        if self.transport.is_closing() or self._is_draining:
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._running = cycle
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
            self._wait_for_running()
        else:
            self._wait(self.deadlines.head if self._is_head else self.deadlines.idle)

    def pause_writing(self) -> None:
        super().pause_writing()
        if not self.transport.is_closing():
            self._wait(self.deadlines.write)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not (self.is_idle or self.transport.is_closing()):
            self._wait_for_running()


def _bad_request() -> bytes:
    answer = HttpProblem("bad-request", "Expected a request of HTTP/1.1, got something else.").response()
    lines = [b"HTTP/1.1 400 Bad Request", *(b"%s: %s" % pair for pair in answer.raw_headers)]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)])


_BAD_REQUEST = _bad_request()


class Acceptor:
    """Accepts for a server, whatever happens: what does not fit is shed, or closed, and never left waiting.

    Stands for an `asyncio.Server` where uvicorn expects one.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Callable[[], Connection],
        *,
        budget: ConnectionBudget,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.sockets, self._make, self._budget, self._context = sockets, make, budget, context
        loop = asyncio.get_running_loop()
        for listening in sockets:
            listening.setblocking(False)
        self._accepting = [loop.create_task(self._accept(listening)) for listening in sockets]

    def close(self) -> None:
        """Accept no more."""
        for task in self._accepting:
            task.cancel()
        for listening in self.sockets:
            listening.close()

    async def wait_closed(self) -> None:
        """Return when nothing is accepted any more."""
        await asyncio.gather(*self._accepting, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop, n_accepted = asyncio.get_running_loop(), 0
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError:  # no descriptors or no memory
                for _ in range(_ACCEPTED_AT_ONCE):
                    self._budget.shed()
                await asyncio.sleep(0.05)
                continue
            host = address[0] if isinstance(address, tuple) else "nobody"
            self._make().open(accepted, host, self._context)
            n_accepted += 1
            if n_accepted % _ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)  # those who are in come first


async def listening_sockets(host: str, port: int, *, backlog: int = 2048) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, place in dict.fromkeys(found):
            try:
                sockets.append(socket.create_server(place[:2], family=family, backlog=backlog))
            except OSError as error:
                if error.errno not in _NO_ADDRESS:
                    raise
                missing = error  # a name may have one of a kind that this machine does not speak, as of IPv6
                continue
            # Both are passed on to what is accepted: a small packet does not wait for the one before, and a
            # response that is not read waits here, where it is counted, and not in megabytes of the system.
            sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, WRITE_BYTES)
        if missing is not None and not sockets:
            raise missing
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    return sockets
