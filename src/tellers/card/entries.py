"""Entries of a file of nested tables, asked for by path and by what they must be."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

Value = TypeVar("Value")

_ABSENT: Final = object()
_REQUIRED: Final = object()


@dataclass(frozen=True)
class Kind(Generic[Value]):
    """What an entry must be, in words, and the function that makes it so or raises ValueError.

    >>> COUNT.words, COUNT.make(3)
    ('a whole number from 0', 3)
    """

    words: str
    make: Callable[[Any], Value]


@dataclass(frozen=True)
class Entries:
    """A nested table with one verb. The value of a wrong entry stays out of the message: it may be private.

    >>> read = Entries({"spent": {"epsilon": 2.5, "delta": "tiny"}})
    >>> read.at("spent.epsilon", NUMBER), read.at("spent.why", TEXT, "")
    (2.5, '')
    >>> read.at("spent.delta", SHARE)
    Traceback (most recent call last):
        ...
    ValueError: Expected a number from 0 to 1 at spent.delta, got a str.
    """

    table: Mapping[str, Any]

    def at(self, path: str, kind: Kind[Value], default: Any = _REQUIRED) -> Value:
        """Return the entry at a dotted path; the default, if there is one, where it is missing or null."""
        value: Any = self.table
        for step in path.split("."):
            value = value.get(step, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if default is not _REQUIRED and (value is _ABSENT or value is None):
            fallback: Value = default
            return fallback
        try:
            if value is _ABSENT:
                raise ValueError
            return kind.make(value)
        except ValueError:
            came = "nothing" if value is _ABSENT else "null" if value is None else f"a {type(value).__name__}"
            if came in ("a int", "a float"):
                came = "another number"
            raise ValueError(f"Expected {kind.words} at {path}, got {came}.") from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _whole(value: Any) -> int:
    if not _number(value).is_integer():
        raise ValueError
    return int(value)


def _count(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError
    return int(value)


def _share(value: Any) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError
    return float(value)


def _epsilon(value: Any) -> float:
    # JSON has no infinity: null, a word and Python's own spelling all mean that nothing is promised.
    if value in (None, math.inf, "inf", "infinite", "Infinity"):
        return math.inf
    if _number(value) < 0:
        raise ValueError
    return float(value)


def _instance(kind: type[Value]) -> Callable[[Any], Value]:
    def make(value: Any) -> Value:
        if not isinstance(value, kind):
            raise ValueError
        return value

    return make


def _all_of(kind: type[Value]) -> Callable[[Any], tuple[Value, ...]]:
    def make(value: Any) -> tuple[Value, ...]:
        if not isinstance(value, (list, tuple)) or not all(isinstance(entry, kind) for entry in value):
            raise ValueError
        return tuple(value)

    return make


def _shares(value: Any) -> tuple[float, ...]:
    return tuple(map(_share, _all_of(object)(value)))


def _counts(value: Any) -> tuple[int, ...]:
    return tuple(map(_count, _all_of(object)(value)))


def _parameter(value: Any) -> Any:
    # A name, a number, or lists of either: what a mechanism may be told.
    if isinstance(value, (list, tuple)):
        return tuple(map(_parameter, value))
    return value if isinstance(value, str) else _number(value)


COUNT: Final = Kind("a whole number from 0", _count)
COUNTS: Final = Kind("a list of whole numbers from 0", _counts)
EPSILON: Final = Kind("a number from 0, or null for infinite,", _epsilon)
FLAG: Final = Kind("true or false", _instance(bool))
NUMBER: Final = Kind("a finite number", _number)
PARAMETER: Final = Kind("a finite number, text, or a list of those", _parameter)
SHARE: Final = Kind("a number from 0 to 1", _share)
SHARES: Final = Kind("a list of numbers from 0 to 1", _shares)
TABLE: Final[Kind[dict[str, Any]]] = Kind("a table", _instance(dict))
TABLES: Final[Kind[tuple[dict[str, Any], ...]]] = Kind("a list of tables", _all_of(dict))
TEXT: Final = Kind("text", _instance(str))
TEXTS: Final = Kind("a list of texts", _all_of(str))
WHOLE: Final = Kind("a whole number", _whole)
