"""What may stand in the fields of a message: rules with limits, and the words for what breaks them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

Role = Literal["asker", "answerer", "guardian"]
ROLES: Final[tuple[Role, ...]] = ("asker", "answerer", "guardian")
REASONS: Final = ("failed", "refused", "not asked")
"""Why an answering party has no part in a query, by its own word."""

ID: Final = re.compile(r"[0-9a-f]{32}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_WORDS: Final = "a name of at most 63 small letters, digits and hyphens"
_MOST_TEXT: Final = 400


@dataclass(frozen=True)
class Limits:
    """The most that a message may hold; a larger one ends the connection before it is read.

    >>> Limits(max_queries=100, max_outputs=10).max_body
    8000
    """

    max_queries: int = 4096
    max_outputs: int = 1024
    max_parties: int = 256
    max_header: int = 65_536

    @property
    def max_body(self) -> int:
        """Return the most bytes of a body: one number per query and output."""
        return 8 * self.max_queries * self.max_outputs


WIDEST: Final = Limits(max_queries=1 << 20, max_outputs=1 << 16, max_parties=4096)
Rule = Callable[[Any, Limits], Any]


def matching(pattern: re.Pattern[str], words: str) -> Any:
    """Return a field of text that looks like this."""

    def check(value: Any, _limits: Limits) -> Any:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(words)
        return value

    return _field(check)


def identifier() -> Any:
    """Return a field for the id of a query, or a nonce."""
    return matching(ID, "32 hexadecimal digits")


def digest() -> Any:
    """Return a field for a SHA-256 hash."""
    return matching(DIGEST, "64 hexadecimal digits")


def name() -> Any:
    """Return a field for the name of a party."""
    return matching(NAME, NAME_WORDS)


def count(most: int | str) -> Any:
    """Return a field for a whole number from 1 to a limit, given or by its name in `Limits`."""

    def check(value: Any, limits: Limits) -> Any:
        top = getattr(limits, most) if isinstance(most, str) else most
        if type(value) is not int or not 1 <= value <= top:
            raise ValueError(f"a whole number from 1 to {top}")
        return value

    return _field(check)


def word(words: Sequence[str]) -> Any:
    """Return a field for one of a few words."""

    def check(value: Any, _limits: Limits) -> Any:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return _field(check)


def text() -> Any:
    """Return a field for a sentence."""

    def check(value: Any, _limits: Limits) -> Any:
        if not isinstance(value, str) or len(value) > _MOST_TEXT or not value.isprintable():
            raise ValueError(f"at most {_MOST_TEXT} printable letters")
        return value

    return _field(check)


def seconds() -> Any:
    """Return a field for a length of time."""

    def check(value: Any, _limits: Limits) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 86_400:
            raise ValueError("seconds, above 0 and at most a day")
        return float(value)

    return _field(check)


def names() -> Any:
    """Return a field for the names of parties, each once and in order."""

    def check(value: Any, limits: Limits) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError("a list of names")
        _require_names(value, limits)
        return tuple(value)

    return _field(check)


def nonces() -> Any:
    """Return a field for a nonce of each of some parties."""

    def check(value: Any, limits: Limits) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError("a nonce for each name")
        _require_names(list(value), limits)
        if not all(isinstance(nonce, str) and ID.fullmatch(nonce) for nonce in value.values()):
            raise ValueError("nonces of 32 hexadecimal digits")
        return dict(value)

    return _field(check)


def table() -> Any:
    """Return a field for whole numbers, queries x outputs."""

    def check(value: Any, limits: Limits) -> Any:
        right = isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 2 and value.size
        if not right or value.shape[0] > limits.max_queries or value.shape[1] > limits.max_outputs:
            raise ValueError(f"whole numbers, at most {limits.max_queries} x {limits.max_outputs}")
        return value

    return _field(check, repr=False)


def _field(rule: Rule, **options: Any) -> Any:
    return field(metadata={"rule": rule}, **options)


def _require_names(value: Sequence[Any], limits: Limits) -> None:
    right = len(value) <= limits.max_parties and all(isinstance(n, str) and NAME.fullmatch(n) for n in value)
    if not right or list(value) != sorted(set(value)):
        raise ValueError(f"different names in order, at most {limits.max_parties}")


def require_one_of(**values: tuple[str, tuple[str, ...]]) -> None:
    """Refuse words that are not among the allowed ones, given as name=(word, allowed)."""
    for name, (value, allowed) in values.items():
        if value not in allowed:
            raise ValueError(f"Expected {name} to be one of {', '.join(allowed)}, got {value!r}.")
