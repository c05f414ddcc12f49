"""One port for messages and engines: the listener of a party, and the multiplexer for its engines.

Every connection begins with TLS 1.3 between pinned certificates. Inside it the caller says what it is for:
messages, or an engine, with a token. A call for an engine that is expected of this caller leaves TLS again,
and is secured anew by the worker that takes it.
"""

import ipaddress
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from selectors import EVENT_READ
from typing import Final

from ..errors import LinkUnreached, PeerRefused
from ._messages import USUAL, Limits
from ._wire import Channel, Identity, Peer, greeted, secure, shake_hands, split_address, wait_for

_CANDIDATES: Final = 4
_BACKLOG: Final = 1024
_WORDS: Final = 20
_A_WHILE: Final = 60.0


class PortMux:
    """The engine connections that this party waits for, by the caller's name and its token.

    A few candidates are kept for each, and are tried in turn: one that is bad takes nobody's place.
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[str, str], queue.Queue[socket.socket]] = {}
        self._lock = threading.Lock()

    def expect(self, name: str, token: str) -> None:
        """Accept connections of a party with this token."""
        with self._lock:
            self._slots.setdefault((name, token), queue.Queue(maxsize=_CANDIDATES))

    def is_expected(self, name: str, token: str) -> bool:
        return (name, token) in self._slots

    def arrive(self, name: str, token: str, plain: socket.socket) -> None:
        """Keep a connection that somebody waits for, and close any other."""
        with self._lock:
            slot = self._slots.get((name, token))
            try:
                if slot is None:
                    raise queue.Full
                slot.put_nowait(plain)
            except queue.Full:
                plain.close()

    def take(self, name: str, token: str, timeout: float) -> socket.socket:
        """Return the next connection of a party with a token that was expected."""
        slot = self._slots.get((name, token))
        try:
            if slot is None:
                raise queue.Empty
            return slot.get(timeout=max(0.0, timeout))
        except queue.Empty:
            raise LinkUnreached(
                f"Expected the engine of {name} to connect within {timeout:.3g} s, got nothing."
            ) from None

    def forget(self, name: str, token: str) -> None:
        """Accept no connection of a party with this token any more."""
        with self._lock:
            slot = self._slots.pop((name, token), None)
        with suppress(queue.Empty):
            while slot is not None:
                slot.get_nowait().close()


@dataclass(eq=False)
class _Caller:
    """A connection that has not greeted yet: whose it is as far as is known, and how far it came."""

    plain: socket.socket
    group: str
    stage: int = 0  # 1: it said something; 2: it showed a pinned certificate


class Listener:
    """Accept the parties that are known by their pins, each connection in a thread of its own.

    Each that is good is handed to `handle`, which may keep it; one for an engine goes to `mux`, if it is
    expected there. No bad connection stops it: `refused` is told, up to so many times a minute, and nothing
    else happens. At most `max_greetings` connections may be unknown at a time, each for `timeout` seconds. If
    there are more, one gives way to the new one: of the address, or the party, that holds the most, that
    which came least far, and of those the oldest.

    Guarantee: whoever has no pinned certificate keeps others out only as long as calls come from so many
               addresses, or so fast, that `max_greetings` of them arrive within one handshake.
    Assumes:   a system that hands on new connections; what fills the line to it is outside.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        peers: Iterable[Peer],
        *,
        handle: Callable[[Channel], object],
        mux: PortMux | None = None,
        limits: Limits = USUAL,
        timeout: float = 10.0,
        max_greetings: int = 256,
        refused: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._identity, self._peers, self._limits, self._timeout = identity, list(peers), limits, timeout
        self._context = identity.context(as_server=True)
        self._handle, self._mux, self._say = handle, mux or PortMux(), refused
        self._most, self._callers, self._lock = max_greetings, dict[_Caller, None](), threading.Lock()
        self._since, self._n_refused = float("-inf"), 0
        self._closing = threading.Event()
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
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
                plain, source = self._socket.accept()
            except OSError:
                if self._closing.is_set() or self._socket.fileno() < 0:
                    return
                time.sleep(0.05)  # out of files, for a moment
                continue
            caller = _Caller(plain, _network(source[0]))
            with self._lock:
                if len(self._callers) >= self._most:
                    self._end_one()
                self._callers[caller] = None
            try:
                threading.Thread(target=self._greet, args=(caller,), daemon=True).start()
            except RuntimeError:  # out of threads, for a moment
                self._callers.pop(caller, None)
                plain.close()

    def _end_one(self) -> None:
        held = Counter(caller.group for caller in self._callers)
        most = max(held.values())
        # `min` keeps the first of equal ones, and they are here in the order in which they came.
        last = min((one for one in self._callers if held[one.group] == most), key=lambda one: one.stage)
        del self._callers[last]
        with suppress(OSError):  # its thread closes it
            socket.socket.shutdown(last.plain, socket.SHUT_RDWR)

    def _greet(self, caller: _Caller) -> None:
        try:
            channel = self._greeted(caller, time.monotonic() + self._timeout)
        except (PeerRefused, TimeoutError) as refusal:
            self._refuse(str(refusal))
            return
        finally:
            with self._lock:
                self._callers.pop(caller, None)
        if channel is not None:
            self._handle(channel)

    def _greeted(self, caller: _Caller, until: float) -> Channel | None:
        """Find out who calls, and what for; nothing is returned of a call for an engine."""
        if wait_for(caller.plain, EVENT_READ, until):  # Who says nothing costs no TLS.
            caller.stage = 1
        with self._lock:  # so that it can be ended at any time: the socket moves into the TLS socket
            try:
                caller.plain = secure(caller.plain, self._context, server=True)
            except (OSError, ValueError):
                caller.plain.close()
                raise PeerRefused("The connection to a party was lost before it was greeted.") from None
        left = max(0.01, until - time.monotonic())
        secured, peer = shake_hands(caller.plain, self._context, self._peers, server=True, timeout=left)
        caller.group, caller.stage = peer.name, 2
        channel = Channel(peer, self._identity.role, secured, self._limits, self._timeout)
        try:
            if not channel.is_for_engine(until):
                return greeted(channel, self._identity, until, server=True)
            token = channel.token(until)
            if not self._mux.is_expected(peer.name, token):
                raise PeerRefused(f"Expected no call for an engine from {peer.name}, got one.")
            self._mux.arrive(peer.name, token, channel.grant_engine(until))
            return None
        except (PeerRefused, TimeoutError) as refusal:
            channel.close()
            raise type(refusal)(str(refusal) or f"Waited in vain for {peer.name} to greet.") from None

    def _refuse(self, words: str) -> None:
        """Tell of a refusal; of very many, tell some, so that strangers do not fill a disk."""
        with self._lock:
            now = time.monotonic()
            if now >= self._since + _A_WHILE:
                self._since, self._n_refused = now, 0
            self._n_refused += 1
            n = self._n_refused
        if n <= _WORDS:
            self._say(words)
        elif n == _WORDS + 1:
            self._say("More connections are refused; of those of this minute no more is told.")


def _network(host: str) -> str:
    """Return whose an address is: with IPv6 one customer has at least 2^64 of them."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
