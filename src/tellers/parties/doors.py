"""One port for messages and engines: an engine's connection begins with a knock, which TLS never does.

A knock is a zero byte and a token of 16 bytes. The token is the id of a query, which only its parties know by
then; a knock with any other is closed at once. Who is behind it is proved afterwards, by TLS and its pin.
"""

import queue
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Final

from ..errors import LinkFailed, PeerRefused
from .tunnel import dial
from .wire import split_address

_KNOCK: Final = b"\0"
_TOKEN: Final = 16


class Doors:
    """The knocks that this party waits for, each with the connection that came for it.

    >>> doors, (ours, theirs) = Doors(), socket.socketpair()
    >>> doors.expect("ab" * 16)
    >>> doors.arrive("ab" * 16, ours)
    >>> doors.take("ab" * 16, timeout=1.0) is ours
    True
    """

    def __init__(self) -> None:
        self._slots: dict[str, queue.Queue[socket.socket]] = {}
        self._lock = threading.Lock()

    def expect(self, token: str) -> None:
        """Let a knock with this token in, once.

        >>> Doors().expect("ab" * 16)
        """
        with self._lock:
            self._slots.setdefault(token, queue.Queue(maxsize=1))

    def arrive(self, token: str, plain: socket.socket) -> None:
        """Keep a connection that somebody waits for, and close any other.

        >>> ours, theirs = socket.socketpair()
        >>> Doors().arrive("ab" * 16, ours)
        >>> ours.fileno()
        -1
        """
        with self._lock:
            slot = self._slots.get(token)
            try:
                if slot is None:
                    raise queue.Full
                slot.put_nowait(plain)
            except queue.Full:
                plain.close()

    def take(self, token: str, *, timeout: float) -> socket.socket:
        """Return the connection that knocked with a token that was expected.

        >>> Doors().take("ab" * 16, timeout=0.1)
        Traceback (most recent call last):
            ...
        tellers.errors.LinkFailed: Expected the asker's engine to connect within 0.1 s, got nothing.
        """
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
        """Let no knock with this token in any more.

        >>> Doors().forget("ab" * 16)
        """
        with self._lock:
            slot = self._slots.pop(token, None)
        with suppress(queue.Empty):
            while slot is not None:
                slot.get_nowait().close()


def knock(address: str, token: str, *, timeout: float) -> socket.socket:
    """Return a connection to a party's engine, with the knock sent and nothing secured yet.

    >>> knock("127.0.0.1:1", "ab" * 16, timeout=1.0)
    Traceback (most recent call last):
        ...
    tellers.errors.LinkFailed: Expected a peer at 127.0.0.1:1, got ConnectionRefusedError.
    """
    plain = dial(split_address(address), timeout=timeout)
    try:
        plain.sendall(_KNOCK + bytes.fromhex(token))
    except OSError:
        plain.close()
        raise LinkFailed(f"Expected a peer at {address}, got a connection that broke.") from None
    return plain


def read_knock(plain: socket.socket, *, timeout: float) -> str | None:
    """Return the token of a connection that begins with a knock, or None and leave it as it is.

    >>> ours, theirs = socket.socketpair()
    >>> theirs.sendall(bytes(1) + bytes(range(16)))
    >>> read_knock(ours, timeout=1.0)
    '000102030405060708090a0b0c0d0e0f'
    """
    until = time.monotonic() + timeout
    try:
        if _next(plain, until, peek=True) != _KNOCK:
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
    """Return what comes next, waiting only so long."""
    plain.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(plain, selectors.EVENT_READ)
        if not selector.select(max(0.0, until - time.monotonic())):
            raise TimeoutError("Waited in vain for a party to shake hands.")
    data = plain.recv(n, socket.MSG_PEEK if peek else 0)
    if not data:
        raise PeerRefused("A party closed the connection before it was greeted.")
    return data
