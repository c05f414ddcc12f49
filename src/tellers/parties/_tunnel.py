"""The engine's connections, carried inside one mutually authenticated TLS connection between two machines.

The engine speaks plainly, in connections of its own in both directions. Here it only ever speaks to this
machine's loopback: a tunnel listens there, and carries what comes in frames inside TLS 1.3 to the other side,
which opens a loopback connection to its own engine. Only one side has to be reachable, on one port.
"""

import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ..errors import LinkFailed, LinkUnreached
from ._ports import stay_alert

_HEAD: Final = struct.Struct(">BII")  # kind, stream, number of bytes
_OPEN, _DATA, _CLOSE = 1, 2, 3
_PIECE: Final = 1 << 17
_FULL: Final = 1 << 24  # Bytes that may wait for a slow side before its source is no longer read.
_STREAMS: Final = 64


@dataclass
class _Stream:
    """A loopback connection, and what waits to be written to it."""

    local: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    ended: bool = False


class Tunnel:
    """Carries loopback connections over one TLS connection, both ways, in a thread of its own.

    A connection to `near_port` of this machine comes out at the far side's engine; what the far side's engine
    opens comes out at `engine_port` here. `on_end` is called once when the TLS connection is gone.
    """

    def __init__(
        self,
        secure: ssl.SSLSocket,
        engine_port: int,
        *,
        is_dialer: bool,
        on_end: Callable[[], object],
    ) -> None:
        self._secure, self._engine_port, self._on_end = secure, engine_port, on_end
        self._secure.setblocking(False)
        stay_alert(self._secure)
        self._near = socket.create_server(("127.0.0.1", 0))
        self._near.setblocking(False)
        self._next = 1 if is_dialer else 2  # So that the two sides never pick the same number.
        self._peer_parity = 0 if is_dialer else 1
        self._streams: dict[int, _Stream] = {}
        self._out, self._in = bytearray(), bytearray()
        self.n_sent, self.n_received = 0, 0
        self._thread = threading.Thread(target=self._run, name="tellers-tunnel", daemon=True)

    @property
    def near_port(self) -> int:
        """Return the loopback port that leads to the far side's engine."""
        return int(self._near.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    # --- Everything below runs in the thread. ---

    def _run(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._near, selectors.EVENT_READ, "near")
        self._selector.register(self._secure, selectors.EVENT_READ, "secure")
        try:
            while True:
                self._watch()
                # TLS may hold decrypted bytes that the operating system no longer announces.
                events = self._selector.select(0 if self._secure.pending() else None)
                for key, mask in events:
                    if key.data == "near":
                        self._accept()
                    elif isinstance(key.data, int):
                        self._serve(key.data, mask)
                if not self._is_full():
                    self._read_secure()
                self._write_secure()
        except (OSError, ssl.SSLError, LinkFailed):
            pass
        finally:
            self._end()

    def _is_full(self) -> bool:
        return any(len(stream.waiting) > _FULL for stream in self._streams.values())

    def _watch(self) -> None:
        write = selectors.EVENT_WRITE if self._out else 0
        self._want(self._secure, (0 if self._is_full() else selectors.EVENT_READ) | write, "secure")
        for number, stream in self._streams.items():
            mask = 0 if stream.ended or len(self._out) > _FULL else selectors.EVENT_READ
            self._want(stream.local, mask | (selectors.EVENT_WRITE if stream.waiting else 0), number)

    def _want(self, one: socket.socket, mask: int, data: str | int) -> None:
        known = one in self._selector.get_map()
        if mask and known:
            self._selector.modify(one, mask, data)
        elif mask:
            self._selector.register(one, mask, data)
        elif known:
            self._selector.unregister(one)

    def _accept(self) -> None:
        local, _ = self._near.accept()
        if len(self._streams) >= _STREAMS:
            local.close()
            return
        number, self._next = self._next, self._next + 2
        self._add(number, local)
        self._frame(_OPEN, number)

    def _add(self, number: int, local: socket.socket) -> None:
        local.setblocking(False)
        local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._streams[number] = _Stream(local)

    def _serve(self, number: int, mask: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        try:
            if mask & selectors.EVENT_READ:
                piece = stream.local.recv(_PIECE)
                if not piece:
                    self._drop(number, tell=True)
                    return
                self._frame(_DATA, number, piece)
            if stream.waiting:
                sent = stream.local.send(stream.waiting)
                del stream.waiting[:sent]
                if stream.ended and not stream.waiting:
                    self._drop(number, tell=False)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(number, tell=True)

    def _drop(self, number: int, *, tell: bool) -> None:
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if stream.local in self._selector.get_map():
            self._selector.unregister(stream.local)
        stream.local.close()
        if tell:
            self._frame(_CLOSE, number)

    def _frame(self, kind: int, number: int, piece: bytes = b"") -> None:
        self._out += _HEAD.pack(kind, number, len(piece)) + piece

    def _write_secure(self) -> None:
        while self._out:
            try:
                sent = self._secure.send(memoryview(self._out)[:_PIECE].tobytes())
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            self.n_sent += sent
            del self._out[:sent]

    def _read_secure(self) -> None:
        while not self._is_full():
            try:
                piece = self._secure.recv(_PIECE)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not piece:
                raise LinkFailed("Expected more from the peer, got the end of the connection.")
            self.n_received += len(piece)
            self._in += piece
            self._unpack()

    def _unpack(self) -> None:
        start = 0
        while len(self._in) - start >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._in, start)
            if kind not in (_OPEN, _DATA, _CLOSE) or length > _PIECE or (kind != _DATA and length):
                raise LinkFailed("Expected a frame of the tunnel, got something else.")
            if len(self._in) - start < _HEAD.size + length:
                break
            start += _HEAD.size
            self._take(kind, number, bytes(self._in[start : start + length]))
            start += length
        del self._in[:start]

    def _take(self, kind: int, number: int, piece: bytes) -> None:
        if kind == _OPEN:
            if number % 2 != self._peer_parity or number in self._streams or len(self._streams) >= _STREAMS:
                raise LinkFailed("Expected a new connection with a number of the peer's, got another one.")
            try:
                self._add(number, socket.create_connection(("127.0.0.1", self._engine_port), timeout=5))
            except OSError:
                self._frame(_CLOSE, number)  # The engine is not up yet; the peer's will try again.
            return
        stream = self._streams.get(number)
        if stream is None:
            return  # Closed on this side while the frame was on its way.
        if kind == _DATA:
            stream.waiting += piece
            self._serve(number, 0)
        else:
            stream.ended = True
            if not stream.waiting:
                self._drop(number, tell=False)

    def _end(self) -> None:
        for stream in self._streams.values():
            stream.local.close()
        for one in (self._near, self._secure):
            with suppress(OSError):
                one.close()
        self._selector.close()
        self._on_end()


def dial(address: tuple[str, int], *, timeout: float = 20.0) -> socket.socket:
    """Return a TCP connection to a peer that listens, not yet secured."""
    try:
        return socket.create_connection(address, timeout=timeout)
    except OSError as error:
        raise LinkUnreached(
            f"Expected a peer at {address[0]}:{address[1]}, got {type(error).__name__}."
        ) from None
