"""What parties say to each other: one record per kind of message, checked field by field.

    asker -> guardian     Open, Answered, Done
    guardian -> asker     Opened, Held, Agreed, Aborted
    guardian -> answerer  Expect, Roll, Closed
    answerer -> guardian  Ready, Out, Mask
    asker -> answerer     Question
    answerer -> asker     Accepted, Refused

A message is a header, which is JSON, and for a mask a body of whole numbers. Nothing in it is ever executed.
A name or a field that is not known, a wrong type or a number past its limit is refused; what was sent is not
quoted in the refusal.
"""

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

import numpy as np

from ..errors import PeerRefused
from . import _fields as rules
from ._fields import REASONS, ROLES, Limits, Role
from .ring import Integers

__all__ = [
    "KINDS", "REASONS", "ROLES", "Aborted", "Accepted", "Agreed", "Answered", "Closed", "Done",
    "Expect", "Held", "Hello", "Limits", "Mask", "Message", "Open", "Opened", "Out", "Question",
    "Ready", "Refused", "Role", "Roll", "decode", "encode",
]  # fmt: skip


class Message:
    """One thing that a party says to another; `routes` says who may say it to whom.

    >>> sorted(KINDS)[:4]
    ['aborted', 'accepted', 'agreed', 'answered']
    """

    kind: ClassVar[str]
    routes: ClassVar[tuple[tuple[Role, Role], ...]]

    def __post_init__(self) -> None:
        for option in fields(self):  # type: ignore[arg-type]
            try:
                value = option.metadata["rule"](getattr(self, option.name), rules.WIDEST)
            except ValueError as error:
                raise ValueError(f"Expected {option.name} of {self.kind!r} to be {error}.") from None
            object.__setattr__(self, option.name, value)


@dataclass(frozen=True)
class Hello(Message):
    """The first message each way: who speaks, and by which version. Later on it asks for a sign of life.

    >>> Hello(name="north", protocol=1).kind
    'hello'
    """

    kind: ClassVar[str] = "hello"
    routes: ClassVar = tuple((here, there) for here in ROLES for there in ROLES)
    name: str = rules.name()
    protocol: int = rules.count(1_000_000)


@dataclass(frozen=True)
class Open(Message):
    """An asker wants a batch answered. `terms` is the hash of what all parties agreed on beforehand.

    >>> Open(qid="q1", n_queries=1, program="0" * 64, terms="0" * 64)
    Traceback (most recent call last):
        ...
    ValueError: Expected qid of 'open' to be 32 hexadecimal digits.
    """

    kind: ClassVar[str] = "open"
    routes: ClassVar = (("asker", "guardian"),)
    qid: str = rules.identifier()
    n_queries: int = rules.count("max_queries")
    program: str = rules.digest()
    terms: str = rules.digest()


@dataclass(frozen=True)
class Opened(Message):
    """The guardian's yes: ask all of these, within so many seconds.

    >>> Opened(qid="0" * 32, roster=("north", "south"), seconds=30).roster
    ('north', 'south')
    """

    kind: ClassVar[str] = "opened"
    routes: ClassVar = (("guardian", "asker"),)
    qid: str = rules.identifier()
    roster: tuple[str, ...] = rules.names()
    seconds: float = rules.seconds()


@dataclass(frozen=True)
class Expect(Message):
    """The guardian tells an answering party that it will be asked: if it is not, it says so.

    >>> Expect.routes
    (('guardian', 'answerer'),)
    """

    kind: ClassVar[str] = "expect"
    routes: ClassVar = (("guardian", "answerer"),)
    qid: str = rules.identifier()
    asker: str = rules.name()
    n_queries: int = rules.count("max_queries")
    program: str = rules.digest()
    terms: str = rules.digest()
    seconds: float = rules.seconds()


@dataclass(frozen=True)
class Question(Message):
    """An asker begins the two-party computation with one answering party.

    >>> Question.routes
    (('asker', 'answerer'),)
    """

    kind: ClassVar[str] = "question"
    routes: ClassVar = (("asker", "answerer"),)
    qid: str = rules.identifier()
    n_queries: int = rules.count("max_queries")
    n_features: int = rules.count(10_000_000)
    n_outputs: int = rules.count("max_outputs")
    program: str = rules.digest()
    terms: str = rules.digest()


@dataclass(frozen=True)
class Accepted(Message):
    """The answering party takes part.

    >>> Accepted(qid="0" * 32).kind
    'accepted'
    """

    kind: ClassVar[str] = "accepted"
    routes: ClassVar = (("answerer", "asker"),)
    qid: str = rules.identifier()


@dataclass(frozen=True)
class Refused(Message):
    """The answering party takes no part, and says why.

    >>> Refused(qid="0" * 32, why="Quota used.").why
    'Quota used.'
    """

    kind: ClassVar[str] = "refused"
    routes: ClassVar = (("answerer", "asker"),)
    qid: str = rules.identifier()
    why: str = rules.text()


@dataclass(frozen=True)
class Ready(Message):
    """The asker has its share of this party's vote; the mask waits for the answering set.

    >>> Ready.routes
    (('answerer', 'guardian'),)
    """

    kind: ClassVar[str] = "ready"
    routes: ClassVar = (("answerer", "guardian"),)
    qid: str = rules.identifier()
    nonce: str = rules.identifier()


@dataclass(frozen=True)
class Out(Message):
    """This party has no part in the query, by its own word.

    >>> Out(qid="0" * 32, why="failed").why
    'failed'
    """

    kind: ClassVar[str] = "out"
    routes: ClassVar = (("answerer", "guardian"),)
    qid: str = rules.identifier()
    why: str = rules.word(REASONS)


@dataclass(frozen=True)
class Answered(Message):
    """The asker says whose shares it holds.

    >>> Answered(qid="0" * 32, parties=["north"]).parties
    ('north',)
    """

    kind: ClassVar[str] = "answered"
    routes: ClassVar = (("asker", "guardian"),)
    qid: str = rules.identifier()
    parties: tuple[str, ...] = rules.names()


@dataclass(frozen=True)
class Held(Message):
    """The guardian knows of fewer: drop the shares of the others and say so by `Answered`.

    >>> Held(qid="0" * 32, parties=()).parties
    ()
    """

    kind: ClassVar[str] = "held"
    routes: ClassVar = (("guardian", "asker"),)
    qid: str = rules.identifier()
    parties: tuple[str, ...] = rules.names()


@dataclass(frozen=True)
class Roll(Message):
    """The answering set is fixed: send the mask for it, once.

    >>> Roll(qid="0" * 32, nonces={"north": "1" * 32}).kind
    'roll'
    """

    kind: ClassVar[str] = "roll"
    routes: ClassVar = (("guardian", "answerer"),)
    qid: str = rules.identifier()
    nonces: dict[str, str] = rules.nonces()  # noqa: RUF009


@dataclass(frozen=True, eq=False)
class Mask(Message):
    """What hides this party's vote at the asker, with what it adds for others to see nothing.

    >>> Mask(qid="0" * 32, mask=np.array([[1, 2]]))
    Mask(qid='00000000000000000000000000000000')
    """

    kind: ClassVar[str] = "mask"
    routes: ClassVar = (("answerer", "guardian"),)
    qid: str = rules.identifier()
    mask: Integers = rules.table()  # noqa: RUF009


@dataclass(frozen=True)
class Agreed(Message):
    """It is charged, for good: go to the last step with the shares of these parties.

    >>> Agreed(qid="0" * 32, parties=("north", "south")).parties
    ('north', 'south')
    """

    kind: ClassVar[str] = "agreed"
    routes: ClassVar = (("guardian", "asker"),)
    qid: str = rules.identifier()
    parties: tuple[str, ...] = rules.names()


@dataclass(frozen=True)
class Aborted(Message):
    """The query is over without an answer.

    >>> Aborted(qid="0" * 32, why="Quorum missed.").kind
    'aborted'
    """

    kind: ClassVar[str] = "aborted"
    routes: ClassVar = (("guardian", "asker"),)
    qid: str = rules.identifier()
    why: str = rules.text()


@dataclass(frozen=True)
class Closed(Message):
    """The query is over, for an answering party: forget its mask.

    >>> Closed(qid="0" * 32).kind
    'closed'
    """

    kind: ClassVar[str] = "closed"
    routes: ClassVar = (("guardian", "answerer"),)
    qid: str = rules.identifier()


@dataclass(frozen=True)
class Done(Message):
    """The asker has its labels.

    >>> Done(qid="0" * 32).kind
    'done'
    """

    kind: ClassVar[str] = "done"
    routes: ClassVar = (("asker", "guardian"),)
    qid: str = rules.identifier()


KINDS: Final[dict[str, type[Message]]] = {
    record.kind: record
    for record in (
        Hello, Open, Opened, Expect, Question, Accepted, Refused, Ready, Out, Answered, Held, Roll, Mask,
        Agreed, Aborted, Closed, Done,
    )
}  # fmt: skip


def encode(message: Message) -> tuple[bytes, bytes]:
    """Return the header and the body of a message.

    >>> encode(Done(qid="0" * 32))
    (b'{"kind":"done","qid":"00000000000000000000000000000000"}', b'')
    """
    header: dict[str, Any] = {"kind": message.kind}
    body = b""
    for option in fields(message):  # type: ignore[arg-type]
        value = getattr(message, option.name)
        if isinstance(value, np.ndarray):
            header[option.name], body = list(value.shape), value.astype("<i8").tobytes()
        else:
            header[option.name] = value
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), body


def decode(header: bytes, body: bytes, *, limits: Limits | None = None) -> Message:
    """Return the message that a header and a body hold, or refuse them.

    >>> decode(*encode(Done(qid="0" * 32)))
    Done(qid='00000000000000000000000000000000')
    >>> decode(b'{"kind":"done","qid":"00000000000000000000000000000000","then":"run"}', b"")
    Traceback (most recent call last):
        ...
    tellers.errors.PeerRefused: Expected the fields qid of 'done', got others too.
    """
    most = Limits() if limits is None else limits
    said = _parse(header, most)
    record = KINDS.get(said.pop("kind", None)) if _is_text(said.get("kind")) else None
    if record is None:
        raise PeerRefused("Expected a kind of message that is known, got another.")
    names = [option.name for option in fields(record)]  # type: ignore[arg-type]
    if set(said) != set(names):
        got = "others too" if set(said) - set(names) else "fewer"
        raise PeerRefused(f"Expected the fields {', '.join(names)} of {record.kind!r}, got {got}.")
    if record is Mask:
        said["mask"] = _array(said["mask"], body, most)
    elif body:
        raise PeerRefused(f"Expected no body with {record.kind!r}, got one.")
    for option in fields(record):  # type: ignore[arg-type]
        try:
            option.metadata["rule"](said[option.name], most)
        except ValueError as error:
            raise PeerRefused(f"Expected {option.name} of {record.kind!r} to be {error}.") from None
    return record(**said)


def _parse(header: bytes, limits: Limits) -> dict[str, Any]:
    if len(header) > limits.max_header:
        raise PeerRefused(f"Expected a header of at most {limits.max_header} bytes, got a longer one.")
    try:
        said = json.loads(header.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise PeerRefused("Expected a header that is JSON, each name once, got something else.") from None
    if not isinstance(said, dict):
        raise PeerRefused("Expected a header with names, got something else.")
    return said


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _no_constant(word: str) -> Any:
    raise ValueError(word)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _array(shape: Any, body: bytes, limits: Limits) -> Integers:
    right = isinstance(shape, list) and len(shape) == 2 and all(type(side) is int for side in shape)
    if not right or not 1 <= shape[0] <= limits.max_queries or not 1 <= shape[1] <= limits.max_outputs:
        raise PeerRefused(f"Expected a shape of at most {limits.max_queries} x {limits.max_outputs}.")
    if len(body) != 8 * shape[0] * shape[1]:
        raise PeerRefused("Expected a body of 8 bytes for each number of its shape, got another length.")
    return np.frombuffer(body, dtype="<i8").astype(np.int64).reshape(shape)
