"""Plain values as TOML writes them."""

import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def toml_value(value: Any) -> str:
    r"""Return a value on one line of TOML; what TOML has no words for is shown as Python would.

    >>> toml_value({"names": ["a", 'b"c'], "C": 0.5, "warm start": True})
    '{names = ["a", "b\\"c"], C = 0.5, "warm start" = true}'
    """
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
    """Return a key as TOML writes it, in quotes only where it needs them.

    >>> toml_key("n_public"), toml_key("blood pressure")
    ('n_public', '"blood pressure"')
    """
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _code(c)) for c in text) + '"'


def _code(character: str) -> str:
    return f"\\U{ord(character):08X}"
