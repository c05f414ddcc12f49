"""Waiting for other parties: a listener that no bad connection stops."""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..errors import PeerRefused, require_positive
from .doors import read_knock
from .messages import Limits
from .wire import Channel, Identity, Peer, greeted, split_address


class Listener:
    """Wait for the parties that are known by their pins, each connection in a thread of its own.

    At most `max_greetings` connections may be unknown at a time; `refused` is told of the others.

    >>> import tempfile
    >>> from tellers.parties.certificates import make_certificate
    >>> folder = tempfile.mkdtemp()
    >>> _ = make_certificate(folder, "guard", role="guardian")
    >>> listener = Listener("127.0.0.1:0", Identity("guard", "guardian", home=folder + "/guard"), [])
    >>> listener.serve(print)
    >>> split_address(listener.address)[0]
    '127.0.0.1'
    >>> listener.join(timeout=0.1)
    >>> listener.close()
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        peers: Iterable[Peer],
        *,
        limits: Limits | None = None,
        timeout: float = 30.0,
        max_greetings: int = 32,
        refused: Callable[[str], object] | None = None,
    ) -> None:
        require_positive(timeout=timeout)
        self._identity, self._peers, self._limits, self._timeout = identity, list(peers), limits, timeout
        self._context = identity.context(as_server=True)
        self._refused = refused
        self._knocked: Callable[[str, socket.socket], object] | None = None
        self._free = threading.BoundedSemaphore(max_greetings)
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ValueError(
                f"Expected a free address to listen on, got {address}: {error.strerror or error}."
            ) from None

    @property
    def address(self) -> str:
        """Return where it listens, with the port that was free if none was named."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def serve(
        self,
        handle: Callable[[Channel], object],
        *,
        knocked: Callable[[str, socket.socket], object] | None = None,
    ) -> None:
        """Begin to accept connections, and hand each that is good to `handle`, which may keep it.

        A connection that is refused is told to `refused`, and nothing else happens. One that begins with a
        knock, for the engine, is handed to `knocked` with its token as it is, not yet secured.
        """
        self._knocked = knocked
        thread = threading.Thread(target=self._accept, args=(handle,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, timeout: float = 5.0) -> None:
        """Wait until connections that are being greeted or handled are done, at most so many seconds."""
        until = time.monotonic() + timeout
        time.sleep(0.01)
        for thread in list(self._threads[1:]):
            thread.join(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Accept nothing more; connections that were handed over stay open."""
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _accept(self, handle: Callable[[Channel], object]) -> None:
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
                self._tell("Expected fewer connections at once that have not greeted yet; one was closed.")
                continue
            self._threads = [self._threads[0], *(t for t in self._threads[1:] if t.is_alive())]
            thread = threading.Thread(target=self._greet, args=(plain, handle), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _greet(self, plain: socket.socket, handle: Callable[[Channel], object]) -> None:
        try:
            token = None if self._knocked is None else read_knock(plain, timeout=self._timeout)
            if token is not None and self._knocked is not None:
                self._knocked(token, plain)
                return
            channel = greeted(
                plain, self._context, self._peers, self._identity, self._limits, self._timeout, server=True
            )
        except (PeerRefused, TimeoutError) as refusal:
            self._tell(str(refusal))
            return
        finally:
            self._free.release()
        handle(channel)

    def _tell(self, words: str) -> None:
        if self._refused is not None:
            self._refused(words)
