"""Messages as bytes: a prefix with lengths and a number, the header, the body.

The number counts the frames of one direction of one connection from zero. A frame that comes twice, or out of
its turn, has another number than is expected and ends the connection; so does one that is longer than the
limits allow, before any of it is kept.
"""

import struct
from typing import Final

from ..errors import PeerRefused
from .messages import Limits, Message, Role, decode, encode

MAGIC: Final = b"tlr1"
_PREFIX: Final = struct.Struct("<4sQII")


class FrameWriter:
    """Turn messages into the frames of one direction of a connection.

    >>> from tellers.parties.messages import Done
    >>> writer = FrameWriter()
    >>> len(writer.pack(Done(qid="0" * 32))), writer.pack(Done(qid="0" * 32))[4:12]
    (76, b'\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00')
    """

    def __init__(self) -> None:
        self._next = 0

    def pack(self, message: Message) -> bytes:
        """Return the bytes of the next frame."""
        header, body = encode(message)
        frame = _PREFIX.pack(MAGIC, self._next, len(header), len(body)) + header + body
        self._next += 1
        return frame


class FrameReader:
    """Turn the bytes of one direction of a connection into messages, and refuse what does not belong.

    After a refusal it reads no more: whatever follows cannot be trusted to begin where a frame begins.

    >>> from tellers.parties.messages import Done
    >>> reader = FrameReader(sender="asker", receiver="guardian")
    >>> frame = FrameWriter().pack(Done(qid="0" * 32))
    >>> reader.feed(frame[:30]), reader.feed(frame[30:])
    ([], [Done(qid='00000000000000000000000000000000')])
    >>> reader.feed(frame)
    Traceback (most recent call last):
        ...
    tellers.errors.PeerRefused: Expected frame number 1, got another: a message came twice or out of turn.
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
        """Return how many bytes may be read next without reading past a frame.

        >>> FrameReader(sender="asker", receiver="guardian").wanted()
        20
        """
        if len(self._buffer) < _PREFIX.size:
            return _PREFIX.size - len(self._buffer)
        return sum(self._lengths()) + _PREFIX.size - len(self._buffer)

    def end(self) -> None:
        """Refuse a connection that ends in the middle of a frame.

        >>> FrameReader(sender="asker", receiver="guardian").end()
        """
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
