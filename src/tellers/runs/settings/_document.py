"""TOML: text parsed with plain errors, the line of every key, and values as a file writes them."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
# The standard library reads TOML and forgets where things were. This reads the text a second time, for the
# keys alone. It is meant for text that the parser has accepted, so it need not find mistakes, only places.


# Keys of tables, numbers of entries in arrays: ("data", "classes", 1) is the second declared class.
Key = tuple[str | int, ...]

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


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def key_lines(text: str) -> dict[Key, int]:
    """Return the line of every key, table and array entry of a TOML document, from 1.

    A table is where it is first spoken of. Text that is not TOML gives some places, or none.
    """
    return _Walk(text).lines


def deepest_key(text: str) -> int:
    """Return how many names the longest dotted key of a TOML document has, whatever else is wrong with it.

    Parsers take time with the square of it, so it is asked before they are.
    """
    longest = n_names = 0
    expects_name = True
    for token in _tokens(text):
        if token.kind in ("bare", "text"):
            n_names = n_names + 1 if expects_name else 1
            longest, expects_name = max(longest, n_names), False
        else:
            expects_name = token.text == "."
            n_names = n_names if expects_name else 0
    return longest


class _Walk:
    """One pass over the tokens of a document."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text.replace("\r\n", "\n")))
        self.at = 0
        self.lines: dict[Key, int] = {}
        self.n_entries: dict[Key, int] = {}  # of the arrays of tables
        table: Key = ()
        while self.skip("end"):
            if self.here.text == "[" and self.here.kind == "mark":
                table = self.header()
            else:
                self.pair(table)

    @property
    def here(self) -> _Token:
        return self.tokens[self.at]

    def skip(self, kind: str) -> bool:
        """Pass over tokens of a kind; say whether anything is left."""
        while self.at < len(self.tokens) and self.here.kind == kind:
            self.at += 1
        return self.at < len(self.tokens)

    def is_mark(self, *marks: str) -> bool:
        return self.at < len(self.tokens) and self.here.kind == "mark" and self.here.text in marks

    def header(self) -> Key:
        line = self.here.line
        self.at += 1
        is_array = self.is_mark("[")
        self.at += is_array
        names = self.names("]")
        self.at += 1 + is_array
        path: Key = ()
        for depth, name in enumerate(names, start=1):
            path = (*path, name)
            self.lines.setdefault(path, line)
            if is_array and depth == len(names):
                self.n_entries[path] = self.n_entries.get(path, 0) + 1
            if path in self.n_entries:
                path = (*path, self.n_entries[path] - 1)
                self.lines.setdefault(path, line)
        return path

    def names(self, end: str) -> list[str]:
        """Return the parts of a dotted key, up to the mark that ends it."""
        found = []
        while self.at < len(self.tokens) and not self.is_mark(end) and self.here.kind != "end":
            if self.here.kind == "text":
                found.append(_unquoted(self.here.text))
            elif self.here.kind == "bare":
                found.append(self.here.text)
            self.at += 1
        return found

    def pair(self, table: Key) -> None:
        line = self.here.line
        path = table
        for name in self.names("="):
            path = (*path, name)
            self.lines.setdefault(path, line)
        self.at += 1
        self.value(path)

    def value(self, path: Key) -> None:
        if self.is_mark("["):
            self.at += 1
            number = 0
            while self.skip("end") and not self.is_mark("]"):
                self.lines.setdefault((*path, number), self.here.line)
                self.value((*path, number))
                number += 1
                self.next_entry("]")
            self.at += 1
        elif self.is_mark("{"):
            self.at += 1
            while self.skip("end") and not self.is_mark("}"):
                self.pair(path)
                self.next_entry("}")
            self.at += 1
        else:
            while self.at < len(self.tokens) and self.here.kind != "end" and not self.is_mark(",", "]", "}"):
                self.at += 1

    def next_entry(self, end: str) -> None:
        """Go on to the comma and past it, or to the bracket that ends it all; over what is neither."""
        while self.skip("end") and not self.is_mark(",", end):
            self.at += 1
        self.at += self.is_mark(",")


def _tokens(text: str) -> Iterator[_Token]:
    line, seen = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        kind = match.lastgroup or ""
        if kind != "comment":
            yield _Token(kind, match.group(), line)


def _unquoted(text: str) -> str:
    try:
        return str(tomllib.loads(f"key = {text}")["key"])
    except tomllib.TOMLDecodeError:
        return text


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
