"""Where a key stands in a TOML file: the lines that a parser does not keep.

The standard library reads TOML and forgets where things were. This reads the text a second time, for the keys
alone. It is meant for text that the parser has accepted, so it need not find mistakes, only places.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

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
    r"""Return the line of every key, table and array entry of a TOML document, from 1.

    A table is where it is first spoken of. Text that is not TOML gives some places, or none.

    >>> key_lines("seed = 7\n\n[data] # a comment\nclasses = [\n  'a',\n  'b',\n]\n")[("data", "classes", 1)]
    6
    """
    return _Walk(text).lines


def deepest_key(text: str) -> int:
    r"""Return how many names the longest dotted key of a TOML document has, whatever else is wrong with it.

    Parsers take time with the square of it, so it is asked before they are.

    >>> deepest_key("[a.b]\nc.d.'e.f' = 1.5 # g.h.i.j\n")
    3
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
