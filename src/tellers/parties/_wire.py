"""Connections between parties: TLS 1.3 with pinned certificates, and messages as bytes."""

import hashlib
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..errors import LinkUnreached, PeerRefused
from ._certificates import AUTHORITY, CERTIFICATE, KEY, read_secret, require_name, require_pin
from ._messages import ROLES, USUAL, Hello, Limits, Message, Role, decode, encode
from ._ports import stay_alert
from ._tunnel import dial

# --- Frames ---
#
# The number counts the frames of one direction of one connection from zero. A frame that comes twice, or
# out of its turn, has another number than is expected and ends the connection; so does one that is longer
# than the limits allow, before any of it is kept.

MAGIC: Final = b"tlr1"
_PREFIX: Final = struct.Struct("<4sQII")


def pack_frame(message: Message, number: int) -> bytes:
    header, body = encode(message)
    return _PREFIX.pack(MAGIC, number, len(header), len(body)) + header + body


def read_frame(
    take: Callable[[int], bytes], number: int, *, route: tuple[Role, Role], limits: Limits
) -> Message:
    """Return the message of the next frame, and refuse what does not belong; `take` returns so many bytes."""
    magic, found, n_header, n_body = _PREFIX.unpack(take(_PREFIX.size))
    if magic != MAGIC:
        raise PeerRefused("Expected a frame of this protocol, got other bytes.")
    if found != number:
        raise PeerRefused(
            f"Expected frame number {number}, got another: a message came twice or out of turn."
        )
    if n_header > limits.max_header or n_body > limits.max_body:
        raise PeerRefused(
            f"Expected at most {limits.max_header} bytes of header and {limits.max_body} of body, got more."
        )
    message = decode(take(n_header), take(n_body), limits=limits)
    if route not in message.routes:
        raise PeerRefused(f"Expected what {route[0]} may say to {route[1]}, got {message.kind!r}.")
    return message


# --- Connections ---
#
# A connection that breaks a rule is closed with an error that says which; other connections, and the
# listener, go on. Every wait has a time limit, for the whole of what is waited for and not for each byte of
# it.

PROTOCOL: Final = 2
_CHUNK: Final = 1 << 16
_SLICE: Final = 0.25
ENGINE: Final = b"tlre"
TOKEN: Final = 16
_GRANTED: Final = b"\x01"
_COMPARE: Final = "compare pins, authorities and dates with that party."


class PeerLost(PeerRefused):
    """A connection ended, as anybody on the way can bring about: no rule was broken by the peer."""


@dataclass(frozen=True)
class Peer:
    """Another party, known by its pin; while it changes its certificate, by that of the next one too."""

    name: str
    role: Role
    pin: str
    next_pin: str = ""

    def __post_init__(self) -> None:
        require_name(self.name)
        for pin in (self.pin, self.next_pin or self.pin):
            require_pin(pin, name=self.name)
        if self.role not in ROLES:
            raise ValueError(f"Expected a role, one of {', '.join(ROLES)}, got {self.role!r}.")


@dataclass(frozen=True)
class Identity:
    """This party: its name and role, the folder of its certificate, and the authorities it trusts besides."""

    name: str
    role: Role
    home: str | os.PathLike[str]
    trusted: tuple[str | os.PathLike[str], ...] = ()

    def context(self, *, as_server: bool) -> ssl.SSLContext:
        """Return how this party speaks TLS: version 1.3 alone, with a certificate from either side."""
        home = Path(self.home)
        read_secret(home / KEY)  # refuses a key that others may read
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if as_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the pin says who it is, wherever it is
        context.verify_mode = ssl.CERT_REQUIRED
        if as_server:
            context.num_tickets = 0  # every connection shows its certificate
        try:
            context.load_cert_chain(home / CERTIFICATE, home / KEY)
            for place in (home / AUTHORITY, *self.trusted):
                context.load_verify_locations(place)
        except (OSError, ssl.SSLError):
            raise ValueError(
                f"Expected {CERTIFICATE}, {KEY} and {AUTHORITY} in {home}, and certificates (PEM) in the "
                "files that are trusted. Make them with: tellers party certs"
            ) from None
        return context


@dataclass(eq=False)
class Channel:
    """A connection to a party that showed the certificate it is known by; some may send while one receives.

    `send` and `receive` carry messages; on anything that does not belong the connection is closed and
    PeerRefused says why.
    """

    peer: Peer
    own_role: Role
    _socket: ssl.SSLSocket = field(repr=False)
    limits: Limits = USUAL
    timeout: float = 30.0

    def __post_init__(self) -> None:
        self._n_sent = self._n_received = 0
        self._ahead = b""
        self._sending, self._tls = threading.Lock(), threading.Lock()
        self._is_closed = False
        self._socket.setblocking(False)

    def send(self, message: Message, *, timeout: float | None = None) -> None:
        """Send a message, whole or not at all as far as the other side can tell."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        with self._sending:
            frame = pack_frame(message, self._n_sent)
            self._n_sent += 1
            self._put(frame, until)

    def _put(self, data: bytes, until: float) -> None:
        rest = memoryview(data)
        while rest:
            try:
                done = self._patiently(partial(self._socket.send, rest[:_CHUNK]), until)
            except TimeoutError:
                self.close()  # what was sent of it cannot be taken back
                raise TimeoutError(f"Waited in vain for {self.peer.name} to take a message.") from None
            rest = rest[done:]

    def receive(self, *, timeout: float | None = None) -> Message:
        """Return the next message; TimeoutError if none begins in time, and the connection is as it was."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        parts: list[bytes] = []
        take, route = partial(self._take, until=until, parts=parts), (self.peer.role, self.own_role)
        try:
            message = read_frame(take, self._n_received, route=route, limits=self.limits)
        except PeerRefused as refusal:
            self.close()
            closed = f"The connection to {self.peer.name} is closed."
            raise type(refusal)(f"{str(refusal).removesuffix(closed)} {closed}".lstrip()) from None
        except TimeoutError:
            if not parts:
                raise TimeoutError(f"Waited in vain for {self.peer.name} to speak.") from None
            self.close()
            raise PeerLost(
                f"{self.peer.name} stopped in the middle of a message. The connection to it is closed."
            ) from None
        self._n_received += 1
        return message

    def _take(self, n: int, *, until: float, parts: list[bytes]) -> bytes:
        """Return so many bytes; `parts` holds what came of this frame."""
        first, missing = len(parts), n
        while missing:
            data, self._ahead = self._ahead[:missing], self._ahead[missing:]
            data = data or self._patiently(partial(self._socket.recv, min(missing, _CHUNK)), until)
            if not data and parts:
                raise PeerLost("Expected a whole frame, got the end of the connection in the middle of one.")
            if not data:
                raise PeerLost(f"{self.peer.name} closed the connection.")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts[first:])

    def close(self) -> None:
        with self._tls:
            self._is_closed = True
            with suppress(OSError):
                # Not the method of the TLS socket, which would go on in the clear for whoever still sends.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            with suppress(OSError):
                self._socket.close()

    # What the first bytes inside TLS are says what a connection is for: messages, or an engine.

    def is_for_engine(self, until: float) -> bool:
        """Look at the first bytes that came; those of a message are kept for whoever reads it."""
        first = self._take(len(ENGINE), until=until, parts=[])
        self._ahead = b"" if first == ENGINE else first
        return first == ENGINE

    def call_engine(self, token: str, until: float) -> socket.socket:
        """Ask for the peer's engine, and return the connection, in the clear again, if it is expected."""
        self._put(ENGINE + bytes.fromhex(token), until)
        self._take(len(_GRANTED), until=until, parts=[])
        return self._leave_tls(until)

    def token(self, until: float) -> str:
        """Return what a call for an engine is known by."""
        return self._take(TOKEN, until=until, parts=[]).hex()

    def grant_engine(self, until: float) -> socket.socket:
        """Say that a call was expected, and return the connection, in the clear again."""
        self._put(_GRANTED, until)
        return self._leave_tls(until)

    def _leave_tls(self, until: float) -> socket.socket:
        """End TLS on both sides; what comes after its last record is left to whoever reads next.

        Both sides say that they end it, and neither sends anything in between, so that nothing is lost and
        nobody can cut it short: records are read one by one (no read-ahead), and no ticket follows a
        handshake here. The worker that is handed the connection proves both parties once more.
        """
        self._patiently(self._socket.unwrap, until)
        plain = socket.socket(fileno=self._socket.detach())
        plain.setblocking(True)
        return plain

    def fileno(self) -> int:
        """Return the file of the socket, for select and poll; -1 once it is closed."""
        return self._socket.fileno()

    def _patiently(self, act: Callable[[], Any], until: float) -> Any:
        """Do something on the socket as soon as it can be done without waiting inside TLS."""
        while True:
            try:
                with self._tls:  # the library below is not safe for two threads at once
                    if self._is_closed:
                        raise PeerLost(f"The connection to {self.peer.name} is closed.")
                    return act()
            except PeerRefused:
                raise
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as blocked:
                waits_for = blocked
            except ssl.SSLError as error:
                self.close()
                raise PeerLost(_alert(error, self.peer.name)) from None
            except (OSError, ValueError):
                self.close()
                raise PeerLost(f"The connection to {self.peer.name} was lost.") from None
            if not _unblocked(self._socket, waits_for, until):
                raise TimeoutError


def connect(
    address: str, identity: Identity, peer: Peer, *, limits: Limits = USUAL, timeout: float = 30.0
) -> Channel:
    """Return a connection to a party at an address such as "10.0.0.7:7000", greeted and pinned."""
    host, port = split_address(address)
    context, until = identity.context(as_server=False), time.monotonic() + timeout
    try:
        plain = socket.create_connection((host, port), timeout=timeout)
    except TimeoutError:
        raise TimeoutError(f"Waited in vain for {peer.name} at {address}.") from None
    except OSError as error:
        raise ConnectionError(
            f"Expected {peer.name} at {address}, got: {error.strerror or error}. Is it running there?"
        ) from None
    left = max(0.01, until - time.monotonic())
    secured, _ = shake_hands(plain, context, [peer], server=False, timeout=left)
    return greeted(Channel(peer, identity.role, secured, limits, timeout), identity, until, server=False)


def split_address(address: str) -> tuple[str, int]:
    host, found, port = address.rpartition(":")
    if not found or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f'Expected an address such as "127.0.0.1:7000", got {address!r}.')
    return host.strip("[]"), int(port)


def greeted(channel: Channel, identity: Identity, until: float, *, server: bool) -> Channel:
    """Exchange greetings, or close the connection and say why; whoever called speaks first."""
    peer = channel.peer
    try:
        greeting = _hello(channel, identity, until, server=server)
        if not isinstance(greeting, Hello) or greeting.protocol != PROTOCOL or greeting.name != peer.name:
            raise PeerRefused(
                f"Expected a greeting of {peer.name} by version {PROTOCOL} of the protocol, got another. Run "
                "the same version of tellers everywhere."
            )
    except (PeerRefused, TimeoutError):
        channel.close()
        raise
    return channel


def shake_hands(
    plain: socket.socket, context: ssl.SSLContext, peers: list[Peer], *, server: bool, timeout: float = 30.0
) -> tuple[ssl.SSLSocket, Peer]:
    """Turn a connected socket into TLS, and return it, non-blocking, with the party whose pin it showed."""
    until = time.monotonic() + timeout
    expected = "a party" if server else peers[0].name
    secured: Any = plain
    try:
        secured = secure(plain, context, server=server)
        while True:
            try:
                secured.do_handshake()
                return secured, _pinned(secured, peers)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as blocked:
                if not _unblocked(secured, blocked, until):
                    raise TimeoutError(f"Waited in vain for {expected} to shake hands.") from None
    except ssl.SSLError as error:
        secured.close()
        raise PeerRefused(_alert(error, expected)) from None
    except (PeerRefused, TimeoutError):
        secured.close()
        raise
    except (OSError, ValueError):
        secured.close()
        raise PeerRefused(f"The connection to {expected} was lost before it was greeted.") from None


def secure(plain: socket.socket, context: ssl.SSLContext, *, server: bool) -> ssl.SSLSocket:
    """Put TLS on a connection, if it has none, before any hands are shaken."""
    if isinstance(plain, ssl.SSLSocket):
        return plain
    plain.setblocking(False)
    stay_alert(plain)
    return context.wrap_socket(plain, server_side=server, do_handshake_on_connect=False)


def _hello(channel: Channel, identity: Identity, until: float, *, server: bool) -> Message:
    def receive() -> Message:
        return channel.receive(timeout=max(0.01, until - time.monotonic()))

    try:
        heard = receive() if server else None
        left = max(0.01, until - time.monotonic())
        channel.send(Hello(name=identity.name, protocol=PROTOCOL), timeout=left)
        return heard or receive()
    except PeerRefused as refusal:
        # In TLS 1.3 one side is done before the other has looked at its certificate.
        raise PeerRefused(f"{refusal} If it refused our certificate: {_COMPARE}") from None


def _pinned(secured: ssl.SSLSocket, peers: list[Peer]) -> Peer:
    shown = secured.getpeercert(binary_form=True) or b""
    pin = hashlib.sha256(shown).hexdigest()
    found = next((peer for peer in peers if pin in (peer.pin, peer.next_pin)), None)
    if found is None:
        raise PeerRefused(
            f"Expected a certificate that is pinned here, got one with the pin {pin}. If a party has a new "
            "certificate, compare its pin with that party and write it into the settings, as next_pin while "
            "both are in use."
        )
    parts: Any = secured.getpeercert() or {}
    subject = {kind: text for part in parts.get("subject", ()) for kind, text in part}
    said = (subject.get("commonName"), subject.get("organizationalUnitName"))
    if said != (found.name, found.role):
        raise PeerRefused(
            f"Expected the certificate of {found.name}, {found.role}, behind its pin, got one that says "
            "otherwise. Correct the name or the role in the settings."
        )
    return found


def wait_for(waiting: socket.socket, event: int, until: float) -> bool:
    """Wait until a socket can be read or written; return whether it was in time."""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(waiting, event)
            # In slices: a socket that another thread closes may leave the selector without a word.
            while (left := until - time.monotonic()) > 0:
                if selector.select(min(left, _SLICE)) or waiting.fileno() < 0:
                    return True
            return False
    except (OSError, ValueError):  # closed already: whoever waits finds out by itself
        return True


def _unblocked(waiting: socket.socket, blocked: ssl.SSLError, until: float) -> bool:
    is_reading = isinstance(blocked, ssl.SSLWantReadError)
    return wait_for(waiting, selectors.EVENT_READ if is_reading else selectors.EVENT_WRITE, until)


def _alert(error: ssl.SSLError, name: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"Expected a certificate of {name} that an authority trusted here signed and that is valid "
            f"today, got: {error.verify_message}. Please {_COMPARE}"
        )
    said = (error.reason or "").replace("_", " ").lower()
    if "alert" in said:
        return f"{name} refused our certificate or our TLS: {said}. Please {_COMPARE}"
    return f"Expected TLS 1.3 from {name}, got: {said}." if said else f"The connection to {name} ended."


# --- Ends of an engine link ---


@dataclass(frozen=True)
class Pinned:
    """Who this end of a link is, and the one party that may be at the other."""

    identity: Identity
    peer: Peer

    def shake_hands(self, plain: socket.socket, *, listens: bool, timeout: float) -> ssl.SSLSocket:
        """Turn a connected socket into TLS, if the party behind the pin is at its other end."""
        context = self.identity.context(as_server=listens)
        try:
            return shake_hands(plain, context, [self.peer], server=listens, timeout=timeout)[0]
        except (PeerRefused, TimeoutError) as refusal:
            raise LinkUnreached(str(refusal)) from None

    def dial_engine(self, address: str, token: str, *, timeout: float) -> socket.socket:
        """Return a connection to the party's engine, which expects this one: proved, and in the clear again.

        Guarantee: nobody but the party behind the pin sees the token, and it takes it from this party alone.
        Assumes:   what is sent next is secured again, by the workers at both ends.
        Reference: RFC 8446, 6.1 (each side of TLS is ended by itself).
        """
        until = time.monotonic() + timeout
        plain = dial(split_address(address), timeout=timeout)
        secured = self.shake_hands(plain, listens=False, timeout=max(0.01, until - time.monotonic()))
        channel = Channel(self.peer, self.identity.role, secured, timeout=timeout)
        try:
            return channel.call_engine(token, until)
        except (PeerRefused, TimeoutError) as refusal:
            channel.close()
            words = str(refusal) or f"Waited in vain for {self.peer.name} to answer a call for its engine."
            raise LinkUnreached(words) from None
