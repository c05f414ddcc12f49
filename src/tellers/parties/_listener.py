"""One port for messages and engines: the listener of a party, and the multiplexer for its engines.

A connection for messages begins with TLS. One for an engine begins with a zero byte and a token of 16 bytes,
and is secured afterwards, by the worker that takes it.
"""

import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from ..errors import LinkFailed, PeerRefused
from ._messages import USUAL, Limits
from ._tunnel import dial
from ._wire import Channel, Identity, Peer, greeted, split_address, wait_for

_ENGINE_MARK: Final = b"\0"
_TOKEN: Final = 16


class PortMux:
    """The engine connections that this party waits for, by token."""

    def __init__(self) -> None:
        self._slots: dict[str, queue.Queue[socket.socket]] = {}
        self._lock = threading.Lock()

    def expect(self, token: str) -> None:
        """Accept one connection with this token."""
        with self._lock:
            self._slots.setdefault(token, queue.Queue(maxsize=1))

    def arrive(self, token: str, plain: socket.socket) -> None:
        """Keep a connection that somebody waits for, and close any other."""
        with self._lock:
            slot = self._slots.get(token)
            try:
                if slot is None:
                    raise queue.Full
                slot.put_nowait(plain)
            except queue.Full:
                plain.close()

    def take(self, token: str, *, timeout: float) -> socket.socket:
        """Return the connection that engine_connected with a token that was expected."""
        slot = self._slots.get(token)
        try:
            if slot is None:
                raise queue.Empty
            return slot.get(timeout=timeout)
        except queue.Empty:
            raise LinkFailed(
                f"Expected the asker's engine to connect within {timeout:g} s, got nothing."
            ) from None

    def forget(self, token: str) -> None:
        """Accept no connection with this token any more."""
        with self._lock:
            slot = self._slots.pop(token, None)
        with suppress(queue.Empty):
            while slot is not None:
                slot.get_nowait().close()


def dial_engine(address: str, token: str, *, timeout: float) -> socket.socket:
    """Return a connection to a party's engine, with the token sent and nothing secured yet."""
    plain = dial(split_address(address), timeout=timeout)
    try:
        plain.sendall(_ENGINE_MARK + bytes.fromhex(token))
    except OSError:
        plain.close()
        raise LinkFailed(f"Expected a peer at {address}, got a connection that broke.") from None
    return plain


def read_engine_token(plain: socket.socket, *, timeout: float) -> str | None:
    """Return the token of a connection for an engine; of any other, return None and leave it as it is."""
    until = time.monotonic() + timeout
    try:
        if _next(plain, until, peek=True) != _ENGINE_MARK:
            return None
        told = b""
        while len(told) <= _TOKEN:
            told += _next(plain, until, peek=False, n=_TOKEN + 1 - len(told))
        plain.setblocking(True)
        return told[1:].hex()
    except (PeerRefused, TimeoutError):
        plain.close()
        raise
    except (OSError, ValueError):
        plain.close()
        raise PeerRefused("The connection to a party was lost before it was greeted.") from None


def _next(plain: socket.socket, until: float, *, peek: bool, n: int = 1) -> bytes:
    plain.setblocking(False)
    if not wait_for(plain, selectors.EVENT_READ, until):
        raise TimeoutError("Waited in vain for a party to shake hands.")
    data = plain.recv(n, socket.MSG_PEEK if peek else 0)
    if not data:
        raise PeerRefused("A party closed the connection before it was greeted.")
    return data


class Listener:
    """Accept the parties that are known by their pins, each connection in a thread of its own.

    Each that is good is handed to `handle`, which may keep it; one for the engine to `engine_connected`, with
    its token and not yet secured. No bad connection stops it: `refused` is told, and nothing else happens. At
    most `max_greetings` connections may be unknown at a time.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        peers: Iterable[Peer],
        *,
        handle: Callable[[Channel], object],
        engine_connected: Callable[[str, socket.socket], object] = lambda _, plain: plain.close(),
        limits: Limits = USUAL,
        timeout: float = 30.0,
        max_greetings: int = 32,
        refused: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._identity, self._peers, self._limits, self._timeout = identity, list(peers), limits, timeout
        self._context = identity.context(as_server=True)
        self._handle, self._engine_connected, self._refused = handle, engine_connected, refused
        self._free = threading.BoundedSemaphore(max_greetings)
        self._closing = threading.Event()
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ValueError(
                f"Expected a free address to listen on, got {address}: {error.strerror or error}."
            ) from None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Return where it listens, with the port that was free if none was named."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Accept nothing more; connections that were handed over stay open."""
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                plain, _ = self._socket.accept()
            except OSError:
                if self._closing.is_set() or self._socket.fileno() < 0:
                    return
                time.sleep(0.05)  # out of files, for a moment
                continue
            if not self._free.acquire(blocking=False):
                plain.close()
                self._refused("Expected fewer connections at once that have not greeted yet; one was closed.")
                continue
            threading.Thread(target=self._greet, args=(plain,), daemon=True).start()

    def _greet(self, plain: socket.socket) -> None:
        try:
            token = read_engine_token(plain, timeout=self._timeout)
            if token is not None:
                self._engine_connected(token, plain)
                return
            channel = greeted(
                plain, self._context, self._peers, self._identity, self._limits, self._timeout, server=True
            )
        except (PeerRefused, TimeoutError) as refusal:
            self._refused(str(refusal))
            return
        finally:
            self._free.release()
        self._handle(channel)
