"""TOML: text parsed with plain errors, the line of every key, and values as a file writes them."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...privacy._files import MOST_SETTINGS, TooLarge, read_bounded

_MOST_NAMES = 32
_LONG = "Settings are a few lines: is it another file? Data and labels go into files of their own."


def read_text(place: Path, *, advice: str = "Write one with: tellers init") -> str:
    """Return the text of a settings file, or say why there is none."""
    if place.is_dir():
        raise ConfigError(f"Expected a settings file, got the folder {place}. {advice}")
    try:
        content = read_bounded(place, most=MOST_SETTINGS, advice=_LONG)
    except TooLarge as error:
        raise ConfigError(str(error)) from None
    except FileNotFoundError:
        raise ConfigError(f"Expected a settings file, found nothing at {place}. {advice}") from None
    except OSError as error:
        raise ConfigError(f"Expected a readable file at {place}, got: {error.strerror or error}.") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{place}:{line}: Expected text in UTF-8, got other bytes. Save the file as UTF-8."
        ) from None


def parse_document(text: str, source: str) -> dict[str, Any]:
    """Return what a TOML text holds, or the line at which it stops being TOML."""
    if len(text) > MOST_SETTINGS:
        raise ConfigError(f"{source}: Expected at most {MOST_SETTINGS} characters, got {len(text)}. {_LONG}")
    if deepest_key(text) > _MOST_NAMES:
        raise ConfigError(f"{source}: Expected keys of at most {_MOST_NAMES} names, got a longer one.")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(
            r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error), re.DOTALL
        )
        reason, line = (found[1], found[2]) if found else (str(error), None)
        number = int(line) if line else max(1, len(text.splitlines()))
        raise ConfigError(f"{source}:{number}: Expected TOML, got: {_plainly(reason)}") from None
    except RecursionError:
        raise ConfigError(f"{source}:1: Expected TOML, got brackets nested too deeply.") from None


def _plainly(reason: str) -> str:
    if re.search(r"overwrite|twice|[Dd]uplicate|redefine|already", reason):
        return f"{reason}. A key or a section stands here for the second time: keep one."
    return f"{reason}. Text needs quotes, lists brackets, true and false small letters."


# --- Where a key stands in a TOML file: the lines that a parser does not keep. ---
#
# The standard library reads TOML and forgets where things were. So the text is parsed a second time, with the
# number of its line in place of each value. The parser has accepted it before: it need not find mistakes.


# Keys of tables, numbers of entries in arrays: ("data", "classes", 1) is the second declared class.
Key = tuple[str | int, ...]
_HERE = "line-of-this-table"

# Strings are written so that a long one takes one pass, and no memory for each of its letters.
_TOKEN = re.compile(
    r'''(?P<comment>\#[^\n]*)
    |(?P<text>
        """[^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*"{3,5}
        |\'\'\'.*?\'\'\'(?!\')
        |"[^"\\\n]*(?:\\.[^"\\\n]*)*"
        |'[^'\n]*'
    )
    |(?P<end>\n)
    |(?P<mark>[\[\]{},=.])
    |(?P<bare>[^\s\[\]{},=."'\#]+)''',
    re.VERBOSE | re.DOTALL,
)


def key_lines(text: str) -> dict[Key, int]:
    """Return the line of every key, table and array entry of a TOML document, from 1.

    A table is where it is first spoken of. Text that is not TOML gives no places.
    """
    lines: dict[Key, int] = {}

    def note(value: Any, key: Key) -> int:
        """Note the lines of a value and of all inside it, and return the first."""
        if isinstance(value, dict):
            found = [line if name == _HERE else note(line, (*key, name)) for name, line in value.items()]
        elif isinstance(value, list):
            is_tables = isinstance(value[0], dict)  # others begin with their own line
            entries = value if is_tables else value[1:]
            found = [note(entry, (*key, number)) for number, entry in enumerate(entries)]
            found += [] if is_tables else value[:1]
        else:
            found = [value]
        lines[key] = min(found, default=1)
        return lines[key]

    try:
        note(tomllib.loads(_numbered(text.replace("\r\n", "\n"))), ())
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    del lines[()]
    return lines


def _numbered(text: str) -> str:
    """Return a document with the number of its line in place of each value, and in each table and array."""
    written: list[str] = []
    brackets: list[str] = []  # that are open in a value
    state, header = "start", 0
    for kind, word, line in _tokens(text):
        mark = word if kind == "mark" else ""
        if kind == "end":
            if not brackets:
                written += [f"\n{_HERE} = {header}"] if state == "header" else []
                state = "start"
            written.append("\n")
        elif state == "start" and mark == "[":
            state, header = "header", line
            written.append(word)
        elif state == "header":
            written.append(word)
        elif mark in ("]", "}") and brackets:
            if written[-1] == "{":  # an inline table without keys has no line in it: it is one
                written[-1] = str(line)
            else:
                written.append(word)
            brackets.pop()
            state = "done"
        elif state in ("start", "key"):
            written.append(word)
            state = "value" if mark == "=" else "key"
        elif mark == "," and brackets:
            written.append(word)
            state = "value" if brackets[-1] == "[" else "key"
        elif state == "value":
            written.append({"[": f"[{line},", "{": "{"}.get(mark, str(line)))
            brackets += [mark] if mark in ("[", "{") else []
            state = {"[": "value", "{": "key"}.get(mark, "done")
        # All that follows belongs to a value that is written already, such as the time after a date.
    written += [f"\n{_HERE} = {header}"] if state == "header" else []
    return "".join(written)


def deepest_key(text: str) -> int:
    """Return how many names the longest dotted key of a TOML document has, whatever else is wrong with it.

    Parsers take time with the square of it, so it is asked before they are.
    """
    longest = n_names = 0
    expects_name = True
    for kind, word, _ in _tokens(text):
        if kind in ("bare", "text"):
            n_names = n_names + 1 if expects_name else 1
            longest, expects_name = max(longest, n_names), False
        else:
            expects_name = word == "."
            n_names = n_names if expects_name else 0
    return longest


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Return the kind, the text and the line of every token but comments."""
    line, seen = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        kind = match.lastgroup or ""
        if kind != "comment":
            yield kind, match.group(), line


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
    written = (_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08X}") for c in text)
    return f'"{"".join(written)}"'
