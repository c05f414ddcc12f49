"""One thing that is wrong with settings, and the error that speaks of all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ConfigError
from .lines import Key


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the key it is about, the words, and other keys it depends on.

    >>> Problem(("budget", "delta"), "Expected below 1, got 2.0.").line({("budget",): 4})
    4
    """

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
    """Raise one error for all problems there are, in the order of the file.

    >>> complain([])
    >>> complain([Problem(("seed",), "Expected at least 0, got -1.")], "run.toml", {("seed",): 3})
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: run.toml:3: seed: Expected at least 0, got -1.
    """
    found = list(problems)
    if found and source:
        placed = sorted(((problem.line(lines or {}), problem) for problem in found), key=lambda p: p[0])
        raise ConfigError(f"{source}:{line}: {problem}" for line, problem in placed)
    if found:
        raise ConfigError(map(str, found))


def _dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)
