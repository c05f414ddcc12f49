"""Messages between parties: one record per kind, checked field by field."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Annotated, Any, ClassVar, Final, Literal, dataclass_transform, get_type_hints

import numpy as np

from ..errors import PeerRefused
from ._ring import Integers

# --- Fields ---

Role = Literal["asker", "answerer", "guardian"]
ROLES: Final[tuple[Role, ...]] = ("asker", "answerer", "guardian")
REASONS: Final = ("failed", "refused", "not asked", "unreached")
"""Why an answering party has no part in a query, by its own word."""

ID: Final = re.compile(r"[0-9a-f]{32}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_WORDS: Final = "a name of at most 63 small letters, digits and hyphens"
_MOST_TEXT: Final = 400


@dataclass(frozen=True)
class Limits:
    """The most that a message may hold; a larger one ends the connection before it is read."""

    max_queries: int = 4096
    max_outputs: int = 1024
    max_parties: int = 256
    max_features: int = 10_000_000
    max_protocol: int = 1_000_000
    max_header: int = 65_536

    @property
    def max_body(self) -> int:
        """Return the most bytes of a body: one number per query and output."""
        return 8 * self.max_queries * self.max_outputs


USUAL: Final = Limits()
WIDEST: Final = Limits(max_queries=1 << 20, max_outputs=1 << 16, max_parties=4096)


@dataclass(frozen=True)
class Rule:
    """What a field should be, in words with limits by name, whether it is, and how it is kept."""

    words: str
    is_right: Callable[[Any, Limits], Any]
    read: Callable[[Any], Any] | None = None


def _like(pattern: re.Pattern[str], words: str) -> Rule:
    return Rule(words, lambda value, _: _matches(pattern, value))


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and bool(pattern.fullmatch(value))


def _count(most: str) -> Rule:
    """Return the rule for a whole number from 1 to a limit, by its name in `Limits`."""
    return Rule(
        f"a whole number from 1 to {{{most}}}",
        lambda value, limits: type(value) is int and 1 <= value <= getattr(limits, most),
    )


def _are_names(value: Any, kind: Any, limits: Limits) -> bool:
    """Return whether these are the names of parties, each once and in order."""
    listed: list[Any] = list(value) if isinstance(value, kind) else [None]
    few = len(listed) <= limits.max_parties
    return few and all(_matches(NAME, one) for one in listed) and listed == sorted(set(listed))


def _is_table(value: Any, limits: Limits) -> bool:
    right = isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 2 and value.size
    return bool(right) and value.shape[0] <= limits.max_queries and value.shape[1] <= limits.max_outputs


Id = Annotated[str, _like(ID, "32 hexadecimal digits")]
Digest = Annotated[str, _like(DIGEST, "64 hexadecimal digits")]
Name = Annotated[str, _like(NAME, NAME_WORDS)]
Reason = Annotated[str, Rule(f"one of {', '.join(REASONS)}", lambda value, _: value in REASONS)]
Words = Annotated[
    str,
    Rule(
        f"at most {_MOST_TEXT} printable letters",
        lambda value, _: isinstance(value, str) and len(value) <= _MOST_TEXT and value.isprintable(),
    ),
]
Flag = Annotated[bool, Rule("true or false", lambda value, _: type(value) is bool)]
NQueries = Annotated[int, _count("max_queries")]
Seconds = Annotated[
    float,
    Rule(
        "seconds, above 0 and at most a day",
        lambda value, _: type(value) in (int, float) and 0 < value <= 86_400,
        read=float,
    ),
]
Names = Annotated[
    tuple[str, ...],
    Rule(
        "different names in order, at most {max_parties}",
        lambda value, limits: _are_names(value, list | tuple, limits),
        read=tuple,
    ),
]
Nonces = Annotated[
    dict[str, str],
    Rule(
        "a nonce of 32 hexadecimal digits for each of different names in order, at most {max_parties}",
        lambda value, limits: (
            _are_names(value, dict, limits) and all(_matches(ID, nonce) for nonce in value.values())
        ),
        read=dict,
    ),
]
Table = Annotated[Integers, Rule("whole numbers, at most {max_queries} x {max_outputs}", _is_table)]


# --- Messages ---
#
# asker -> guardian     Open, Answered, Done
# guardian -> asker     Opened, Held, Agreed, Aborted; MaskSum after Agreed, for a sum
# guardian -> answerer  Expect, Roll, Closed
# answerer -> guardian  Ready, Out, Mask
# asker -> answerer     Question
# answerer -> asker     Accepted, Refused; ScoreShare after Accepted, for a sum
#
# A message is a header, which is JSON, and for a table a body of whole numbers. Nothing in it is ever
# executed. A name or a field that is not known, a wrong type or a number past its limit is refused; what
# was sent is not quoted in the refusal.

KINDS: Final[dict[str, type["Message"]]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Message:
    """One thing that a party says to another, a frozen record; `routes` says who may say it to whom."""

    kind: ClassVar[str]
    routes: ClassVar[tuple[tuple[Role, Role], ...]]
    body: ClassVar[str] = ""
    rules: ClassVar[dict[str, Rule]]

    def __init_subclass__(
        cls, *, kind: str = "", sender: Role | None = None, receiver: Role | None = None, eq: bool = True
    ) -> None:
        dataclass(frozen=True, eq=eq)(cls)
        if kind:
            cls.kind, KINDS[kind] = kind, cls
            cls.routes = tuple(product([sender] if sender else ROLES, [receiver] if receiver else ROLES))
            hints = get_type_hints(cls, include_extras=True).items()
            cls.rules = {name: hint.__metadata__[0] for name, hint in hints if hasattr(hint, "__metadata__")}

    def __post_init__(self) -> None:
        self.check(vars(self), WIDEST)
        for name, rule in self.rules.items():
            if rule.read is not None:
                object.__setattr__(self, name, rule.read(getattr(self, name)))

    @classmethod
    def check(cls, values: Mapping[str, Any], limits: Limits) -> None:
        for name, rule in cls.rules.items():
            if not rule.is_right(values[name], limits):
                words = rule.words.format_map(asdict(limits))
                raise ValueError(f"Expected {name} of {cls.kind!r} to be {words}.")


class Hello(Message, kind="hello"):
    """The first message each way: who speaks, and by which version. Later on it asks for a sign of life."""

    name: Name
    protocol: Annotated[int, _count("max_protocol")]


class QueryMessage(Message):
    """A message about one query."""

    qid: Id


class Open(QueryMessage, kind="open", sender="asker", receiver="guardian"):
    """An asker wants a batch answered. `terms` is the hash of what all parties agreed on beforehand."""

    n_queries: NQueries
    program: Digest
    terms: Digest


class Opened(QueryMessage, kind="opened", sender="guardian", receiver="asker"):
    """The guardian's yes: ask all of these, within so many seconds. Suspended parties are not asked."""

    roster: Names
    suspended: Names
    seconds: Seconds


class Expect(QueryMessage, kind="expect", sender="guardian", receiver="answerer"):
    """The guardian tells an answering party that it will be asked: if it is not, it says so."""

    asker: Name
    n_queries: NQueries
    program: Digest
    terms: Digest
    seconds: Seconds


class Question(QueryMessage, kind="question", sender="asker", receiver="answerer"):
    """An asker begins the two-party computation with one answering party."""

    n_queries: NQueries
    n_features: Annotated[int, _count("max_features")]
    n_outputs: Annotated[int, _count("max_outputs")]
    program: Digest
    terms: Digest


class Accepted(QueryMessage, kind="accepted", sender="answerer", receiver="asker"):
    """The answering party takes part."""


class Refused(QueryMessage, kind="refused", sender="answerer", receiver="asker"):
    """The answering party takes no part, and says why."""

    why: Words


class Ready(QueryMessage, kind="ready", sender="answerer", receiver="guardian"):
    """The asker has its share of this party's vote; the mask waits for the answering set."""

    nonce: Id


class Out(QueryMessage, kind="out", sender="answerer", receiver="guardian"):
    """This party has no part in the query, by its own word."""

    why: Reason


class Answered(QueryMessage, kind="answered", sender="asker", receiver="guardian"):
    """The asker says whose shares it holds."""

    parties: Names


class Held(QueryMessage, kind="held", sender="guardian", receiver="asker"):
    """The guardian knows of fewer: drop the shares of the others and say so by `Answered`.

    `lent` says whether masks were asked for by now.
    """

    parties: Names
    lent: Flag


class Roll(QueryMessage, kind="roll", sender="guardian", receiver="answerer"):
    """The answering set is fixed: send the mask for it, once."""

    nonces: Nonces


class Mask(QueryMessage, kind="mask", sender="answerer", receiver="guardian", eq=False):
    """What hides this party's vote at the asker, with what it adds for others to see nothing."""

    body = "mask"
    mask: Table = field(repr=False)


class ScoreShare(QueryMessage, kind="share", sender="answerer", receiver="asker", eq=False):
    """A party's scores of the public pool less its mask: uniform for whoever does not know the mask."""

    body = "table"
    table: Table = field(repr=False)


class MaskSum(QueryMessage, kind="summed", sender="guardian", receiver="asker", eq=False):
    """The sum of all masks with the guardian's noise; with the shares it is the noisy sum of scores."""

    body = "table"
    table: Table = field(repr=False)


class Agreed(QueryMessage, kind="agreed", sender="guardian", receiver="asker"):
    """It is charged, for good: go to the last step with the shares of these parties."""

    parties: Names


class Aborted(QueryMessage, kind="aborted", sender="guardian", receiver="asker"):
    """The query is over without an answer."""

    why: Words


class Closed(QueryMessage, kind="closed", sender="guardian", receiver="answerer"):
    """The query is over, for an answering party: forget its mask. `charged`: it went on to its labels."""

    charged: Flag


class Done(QueryMessage, kind="done", sender="asker", receiver="guardian"):
    """The asker has its labels."""


def encode(message: Message) -> tuple[bytes, bytes]:
    header: dict[str, Any] = {"kind": message.kind, **vars(message)}
    body = b""
    if message.body:
        table = header[message.body]
        header[message.body], body = list(table.shape), table.astype("<i8").tobytes()
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode(), body


def decode(header: bytes, body: bytes, *, limits: Limits = USUAL) -> Message:
    """Return the message that a header and a body hold, or refuse them."""
    said = _parse(header, limits)
    kind = said.pop("kind", None)
    record = KINDS.get(kind) if isinstance(kind, str) else None
    if record is None:
        raise PeerRefused("Expected a kind of message that is known, got another.")
    if set(said) != set(record.rules):
        got = "others too" if set(said) - set(record.rules) else "fewer"
        raise PeerRefused(f"Expected the fields {', '.join(record.rules)} of {record.kind!r}, got {got}.")
    if record.body:
        said[record.body] = _array(said[record.body], body, limits)
    elif body:
        raise PeerRefused(f"Expected no body with {record.kind!r}, got one.")
    try:
        record.check(said, limits)
    except ValueError as error:
        raise PeerRefused(str(error)) from None
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


def _array(shape: Any, body: bytes, limits: Limits) -> Integers:
    right = isinstance(shape, list) and len(shape) == 2 and all(type(side) is int for side in shape)
    if not right or not 1 <= shape[0] <= limits.max_queries or not 1 <= shape[1] <= limits.max_outputs:
        raise PeerRefused(f"Expected a shape of at most {limits.max_queries} x {limits.max_outputs}.")
    if len(body) != 8 * shape[0] * shape[1]:
        raise PeerRefused("Expected a body of 8 bytes for each number of its shape, got another length.")
    return np.frombuffer(body, dtype="<i8").astype(np.int64).reshape(shape)
