"""Options of settings files: a field with its words and limits, its checks, and all problems in one error."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from ...errors import ConfigError
from ._document import Key


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the key it is about, the words, and other keys it depends on."""

    key: Key
    words: str
    related: tuple[Key, ...] = ()

    def line(self, lines: Mapping[Key, int]) -> int:
        """Return the line to look at: of the key, of what it depends on, or of the table it would be in."""
        tables = [key[:end] for key in (self.key, *self.related) for end in range(len(key) - 1, 0, -1)]
        return next((lines[key] for key in (self.key, *self.related, *tables) if key in lines), 1)

    def __str__(self) -> str:
        return f"{_dotted(self.key)}: {self.words}"


def complain(problems: Iterable[Problem], source: str = "", lines: Mapping[Key, int] | None = None) -> None:
    """Raise one error for all problems there are, in the order of the file."""
    found = list(problems)
    if found and source:
        placed = sorted(((problem.line(lines or {}), problem) for problem in found), key=lambda p: p[0])
        raise ConfigError(f"{source}:{line}: {problem}" for line, problem in placed)
    if found:
        raise ConfigError(map(str, found))


def _dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)


# --- An option of a settings file: a field of a record that carries its words and its limits. ---


def option(default: Any, words: str, **limits: Any) -> Any:
    """Return a field of a section: its default, the words above it in a file, and its limits.

    Limits are `choices`, `least`, `most`, `above`, `below`, `non_empty` and `model`; `form` says "numbers"
    for one or a list of them, "whole" for a list of whole ones, "groups" for lists of names. `shown` stands
    for the default in words, `example` is what a written file shows of an option that is left out; options
    `for_labels` are left out of a file without labels.
    """
    made = {"default_factory": default} if callable(default) else {"default": default}
    return field(**made, metadata={"words": words, **limits})


class Section:
    """A record of options, which are all checked when it is made."""

    def __post_init__(self) -> None:

        from ._checks import freeze

        freeze(self)


def options_of(section: type) -> "list[Field[Any]]":
    """Return the options of a section: what it declares, or its fields with words."""
    if hasattr(section, "declared_options"):
        found: list[Field[Any]] = section.declared_options()
        return found
    return [option for option in fields(section) if "words" in option.metadata]


# --- Plain values as TOML writes them. ---


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def toml_value(value: Any) -> str:
    """Return a value on one line of TOML; what TOML has no words for is shown as Python would."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # TOML knows nan and inf, and wants digits on both sides of a point: Python's 1e-05 is fine.
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(str(name))} = {toml_value(entry)}" for name, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    return repr(value) if isinstance(value, int) else str(value)


def toml_key(name: str) -> str:
    """Return a key as TOML writes it, in quotes only where it needs them."""
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _code(c)) for c in text) + '"'


def _code(character: str) -> str:
    return f"\\U{ord(character):08X}"
