"""Connections between parties: TLS 1.3 with pinned certificates, and messages as bytes."""

import hashlib
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..errors import LinkFailed, PeerRefused, require_positive
from ._certificates import AUTHORITY, CERTIFICATE, KEY, read_secret, require_name, require_pin
from ._messages import ROLES, Hello, Limits, Message, Role, decode, encode
from ._ports import stay_alert

# --- Frames ---
#
# The number counts the frames of one direction of one connection from zero. A frame that comes twice, or
# out of its turn, has another number than is expected and ends the connection; so does one that is longer
# than the limits allow, before any of it is kept.

MAGIC: Final = b"tlr1"
_PREFIX: Final = struct.Struct("<4sQII")


class FrameWriter:
    """Turn messages into the frames of one direction of a connection."""

    def __init__(self) -> None:
        self._next = 0

    def pack(self, message: Message) -> bytes:
        header, body = encode(message)
        frame = _PREFIX.pack(MAGIC, self._next, len(header), len(body)) + header + body
        self._next += 1
        return frame


class FrameReader:
    """Turn the bytes of one direction of a connection into messages, and refuse what does not belong.

    After a refusal it reads no more: whatever follows cannot be trusted to begin where a frame begins.
    """

    def __init__(self, *, sender: Role, receiver: Role, limits: Limits | None = None) -> None:
        self.sender, self.receiver = sender, receiver
        self.limits = Limits() if limits is None else limits
        self._buffer = bytearray()
        self._next = 0
        self._refused = False

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete with these bytes."""
        if self._refused:
            raise PeerRefused("Expected nothing more on a connection that was refused.")
        try:
            return self._read(data)
        except PeerRefused:
            self._refused = True
            self._buffer.clear()
            raise

    @property
    def is_between(self) -> bool:
        """Return whether no frame has begun that is not complete."""
        return not self._buffer

    def wanted(self) -> int:
        """Return how many bytes may be read next without reading past a frame."""
        if len(self._buffer) < _PREFIX.size:
            return _PREFIX.size - len(self._buffer)
        return sum(self._lengths()) + _PREFIX.size - len(self._buffer)

    def end(self) -> None:
        """Refuse a connection that ends in the middle of a frame."""
        if self._buffer:
            self._refused = True
            raise PeerRefused("Expected a whole frame, got the end of the connection in the middle of one.")

    def _read(self, data: bytes) -> list[Message]:
        self._buffer += data
        messages = []
        while len(self._buffer) >= _PREFIX.size:
            n_header, n_body = self._lengths()
            end = _PREFIX.size + n_header + n_body
            if len(self._buffer) < end:
                break
            header = bytes(self._buffer[_PREFIX.size : _PREFIX.size + n_header])
            body = bytes(self._buffer[_PREFIX.size + n_header : end])
            del self._buffer[:end]
            message = decode(header, body, limits=self.limits)
            if (self.sender, self.receiver) not in type(message).routes:
                raise PeerRefused(
                    f"Expected what {self.sender} may say to {self.receiver}, got {message.kind!r}."
                )
            self._next += 1
            messages.append(message)
        return messages

    def _lengths(self) -> tuple[int, int]:
        magic, number, n_header, n_body = _PREFIX.unpack_from(self._buffer)
        if magic != MAGIC:
            raise PeerRefused("Expected a frame of this protocol, got other bytes.")
        if number != self._next:
            raise PeerRefused(
                f"Expected frame number {self._next}, got another: a message came twice or out of turn."
            )
        if n_header > self.limits.max_header or n_body > self.limits.max_body:
            raise PeerRefused(
                f"Expected at most {self.limits.max_header} bytes of header and {self.limits.max_body} of "
                "body, got more."
            )
        return n_header, n_body


# --- Connections ---
#
# A connection that breaks a rule is closed with an error that says which; other connections, and the
# listener, go on. Every wait has a time limit, for the whole of what is waited for and not for each byte of
# it.

PROTOCOL: Final = 1
_CHUNK: Final = 1 << 16
_SLICE: Final = 0.25
_COMPARE: Final = "compare pins, authorities and dates with that party."


@dataclass(frozen=True)
class Peer:
    """Another party, known by its pin."""

    name: str
    role: Role
    pin: str

    def __post_init__(self) -> None:
        require_name(self.name)
        require_pin(self.pin, name=self.name)
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
    limits: Limits = field(default_factory=Limits)
    timeout: float = 30.0

    def __post_init__(self) -> None:
        self._writer = FrameWriter()
        self._reader = FrameReader(sender=self.peer.role, receiver=self.own_role, limits=self.limits)
        self._sending, self._tls = threading.Lock(), threading.Lock()
        self._is_closed = False
        self._socket.setblocking(False)

    def send(self, message: Message, *, timeout: float | None = None) -> None:
        """Send a message, whole or not at all as far as the other side can tell."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        with self._sending:
            rest = memoryview(self._writer.pack(message))
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
        while True:
            try:
                wanted = min(self._reader.wanted(), _CHUNK)
                data = self._patiently(partial(self._socket.recv, wanted), until)
                if not data:
                    self._reader.end()
                    raise PeerRefused(f"{self.peer.name} closed the connection.")
                messages = self._reader.feed(data)
            except PeerRefused as refusal:
                self.close()
                closed = f"The connection to {self.peer.name} is closed."
                raise PeerRefused(f"{str(refusal).removesuffix(closed)} {closed}".lstrip()) from None
            except TimeoutError:
                if self._reader.is_between:
                    raise TimeoutError(f"Waited in vain for {self.peer.name} to speak.") from None
                self.close()
                raise PeerRefused(
                    f"{self.peer.name} stopped in the middle of a message. The connection to it is closed."
                ) from None
            if messages:
                return messages[0]  # never past one frame: see `wanted`

    def close(self) -> None:
        with self._tls:
            self._is_closed = True
            with suppress(OSError):
                # Not the method of the TLS socket, which would go on in the clear for whoever still sends.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            with suppress(OSError):
                self._socket.close()

    def fileno(self) -> int:
        """Return the file of the socket, for select and poll; -1 once it is closed."""
        return self._socket.fileno()

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _patiently(self, act: Callable[[], Any], until: float) -> Any:
        """Do something on the socket as soon as it can be done without waiting inside TLS."""
        while True:
            try:
                with self._tls:  # the library below is not safe for two threads at once
                    if self._is_closed:
                        raise PeerRefused(f"The connection to {self.peer.name} is closed.")
                    return act()
            except PeerRefused:
                raise
            except ssl.SSLWantReadError:
                waits_for = selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                waits_for = selectors.EVENT_WRITE
            except ssl.SSLError as error:
                self.close()
                raise PeerRefused(_alert(error, self.peer.name)) from None
            except (OSError, ValueError):
                self.close()
                raise PeerRefused(f"The connection to {self.peer.name} was lost.") from None
            if not _wait(self._socket, waits_for, until):
                raise TimeoutError


def connect(
    address: str, identity: Identity, peer: Peer, *, limits: Limits | None = None, timeout: float = 30.0
) -> Channel:
    """Return a connection to a party at an address such as "10.0.0.7:7000", greeted and pinned."""
    require_positive(timeout=timeout)
    host, port = split_address(address)
    context = identity.context(as_server=False)
    try:
        plain = socket.create_connection((host, port), timeout=timeout)
    except TimeoutError:
        raise TimeoutError(f"Waited in vain for {peer.name} at {address}.") from None
    except OSError as error:
        raise ConnectionError(
            f"Expected {peer.name} at {address}, got: {error.strerror or error}. Is it running there?"
        ) from None
    return greeted(plain, context, [peer], identity, limits, timeout, server=False)


def split_address(address: str) -> tuple[str, int]:
    host, found, port = address.rpartition(":")
    if not found or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f'Expected an address such as "127.0.0.1:7000", got {address!r}.')
    return host.strip("[]"), int(port)


def greeted(
    plain: socket.socket, context: ssl.SSLContext, peers: list[Peer], identity: Identity,
    limits: Limits | None, timeout: float, *, server: bool,
) -> Channel:  # fmt: skip
    """Shake hands, look at the certificate and exchange greetings, or close the connection and say why."""
    until = time.monotonic() + timeout
    secured, peer = shake_hands(plain, context, peers, server=server, timeout=timeout)
    channel = Channel(peer, identity.role, secured, limits or Limits(), timeout)
    try:
        greeting = _hello(channel, identity, until)
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
        plain.setblocking(False)
        stay_alert(plain)
        secured = context.wrap_socket(plain, server_side=server, do_handshake_on_connect=False)
        _handshake(secured, until, expected)
        return secured, _pinned(secured, peers)
    except ssl.SSLError as error:
        secured.close()
        raise PeerRefused(_alert(error, expected)) from None
    except (PeerRefused, TimeoutError):
        secured.close()
        raise
    except (OSError, ValueError):
        secured.close()
        raise PeerRefused(f"The connection to {expected} was lost before it was greeted.") from None


def _hello(channel: Channel, identity: Identity, until: float) -> Message:
    try:
        left = max(0.01, until - time.monotonic())
        channel.send(Hello(name=identity.name, protocol=PROTOCOL), timeout=left)
        return channel.receive(timeout=max(0.01, until - time.monotonic()))
    except PeerRefused as refusal:
        # In TLS 1.3 one side is done before the other has looked at its certificate.
        raise PeerRefused(f"{refusal} If it refused our certificate: {_COMPARE}") from None


def _handshake(secured: ssl.SSLSocket, until: float, expected: str) -> None:
    while True:
        try:
            secured.do_handshake()
            return
        except ssl.SSLWantReadError:
            waits_for = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            waits_for = selectors.EVENT_WRITE
        if not _wait(secured, waits_for, until):
            raise TimeoutError(f"Waited in vain for {expected} to shake hands.")


def _pinned(secured: ssl.SSLSocket, peers: list[Peer]) -> Peer:
    shown = secured.getpeercert(binary_form=True) or b""
    pin = hashlib.sha256(shown).hexdigest()
    found = next((peer for peer in peers if peer.pin == pin), None)
    if found is None:
        raise PeerRefused(
            f"Expected a certificate that is pinned here, got one with the pin {pin}. If a party has a new "
            "certificate, compare its pin with that party and write it into the settings."
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


def _wait(waiting: socket.socket, waits_for: int, until: float) -> bool:
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(waiting, waits_for)
            # In slices: a socket that another thread closes may leave the selector without a word.
            while (left := until - time.monotonic()) > 0:
                if selector.select(min(left, _SLICE)) or waiting.fileno() < 0:
                    return True
            return False
    except (OSError, ValueError):  # closed already: whoever waits finds out by itself
        return True


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

    def as_dict(self) -> dict[str, Any]:
        """Return both ends as plain values, for a worker; keys stay in their folder."""
        own = self.identity
        places = {"home": str(own.home), "trusted": [str(place) for place in own.trusted]}
        return {"identity": {**asdict(own), **places}, "peer": asdict(self.peer)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> "Pinned":
        """Return the ends that `as_dict` described."""
        return cls(Identity(**told["identity"]), Peer(**told["peer"]))

    def shake_hands(self, plain: socket.socket, *, listens: bool, timeout: float) -> ssl.SSLSocket:
        """Turn a connected socket into TLS, if the party behind the pin is at its other end."""
        context = self.identity.context(as_server=listens)
        try:
            return shake_hands(plain, context, [self.peer], server=listens, timeout=timeout)[0]
        except (PeerRefused, TimeoutError) as refusal:
            raise LinkFailed(str(refusal)) from None
