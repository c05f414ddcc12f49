"""The lines of a ledger: how they follow each other, what they say of a release, where they are stored."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import LedgerConflict
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, NoiseLevel, Release
from .base import canonical

SCHEMA = 4
"""The version of what lines say. Old versions are read for ever; a new one takes the next number."""

READABLE = (1, 2, 3, 4)
"""The versions that are read and written on.

1 had no named accounts, 1 and 2 wrote whole curves, and 3 wrote every event in full and no checkpoints.
"""

START = "0" * 64
"""What the first line follows."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the chain."""

    number: int
    kind: str
    key: str
    body: str
    previous: str
    hash: str

    @classmethod
    def after(cls, head: "Line | None", kind: str, *, key: str, body: dict[str, Any]) -> "Line":
        return cls.following(head, kind, key, canonical(body))

    @classmethod
    def following(cls, head: "Line | None", kind: str, key: str, text: str) -> "Line":
        """Return the next line with a body that is canonical text already."""
        number, previous = (0, START) if head is None else (head.number + 1, head.hash)
        return cls(number, kind, key, text, previous, _digest(number, kind, key, text, previous))

    def require_follows(self, head: "Line | None") -> None:
        """Refuse a line that was changed, or that does not follow `head`."""
        number, previous = (0, START) if head is None else (head.number + 1, head.hash)
        if (self.number, self.previous) != (number, previous) or not self.is_intact:
            raise changed(self.number)

    @property
    def is_intact(self) -> bool:
        said = (self.number, self.kind, self.key, self.body, self.previous)
        plain = not any(isinstance(part, bytes) for part in said)
        # One before the first is in no chain: whoever reads all lines from the first on does not meet it.
        return plain and self.number >= 0 and self.hash == _digest(*said)


def changed(number: int) -> LedgerConflict:
    """Return what to raise where a line is not the one that was written."""
    return LedgerConflict(
        f"Line {number} of the ledger is not the one that was written: its hash does not fit. "
        "Somebody or something changed the file; restore it from a backup and do not spend on it."
    )


def before_the_first(title: str) -> LedgerConflict:
    """Return what to raise where lines were put in before the first one: they are in no chain."""
    return LedgerConflict(
        f"{title} has lines before its first one, which no ledger writes. Somebody or something "
        "changed it; restore it from a backup and do not spend on it."
    )


def _digest(*said: Any) -> str:
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


class LineFinder(Protocol):
    """Lines that are found by their keys, as they are at one moment."""

    def named(self, kind: str, keys: Sequence[str]) -> dict[str, Line]:
        """Return the lines of a kind with these keys, as far as they are there."""
        ...


class LineReader(Protocol):
    """Lines where they are kept, for whoever reads all of them while others write."""

    def head(self) -> tuple[int, str] | None:
        """Return number and hash of the last line, or None where there is none."""
        ...

    def of_kind(self, kind: str, begins: str, *, after: int) -> list[int]:
        """Return the numbers of the lines of a kind after one whose keys begin so, in order."""
        ...

    def after(self, number: int) -> Iterator[Line]:
        """Return the lines after one, in order; all of them after -1."""
        ...

    def numbered(self, numbers: Iterable[int]) -> list[Line]:
        """Return the lines of these numbers that are there, in order."""
        ...

    def require_rules(self) -> None:
        """Refuse storage whose own rules, which keep it append-only, were changed."""
        ...


class LineStore(LineReader, LineFinder, Protocol):
    """Lines where they are kept, as they are at one moment.

    A store that was opened to write is the only one that appends, until it is closed.
    """

    def last(self, kind: str) -> Line | None:
        """Return the last line of a kind, or None."""
        ...

    def append(self, lines: Sequence[Line]) -> None:
        """Add lines; they are durable when the store is closed without an error."""
        ...


def write_release(release: Release) -> dict[str, Any]:
    """Return what a release showed, as JSON can hold it; the sealed cost stays behind."""
    said = {
        "labels": _whole("labels", release.labels),
        "by_teachers": np.asarray(release.answered, dtype=bool).tolist(),
    }
    if release.values is not None:
        said["values"] = _whole("values", release.values)
    if release.noise_level is not None:
        said["noise_level"] = release.noise_level.as_dict()
    return said


def _whole(what: str, given: Any) -> Any:
    """Return numbers as JSON can hold them and as they are read back, or refuse them."""
    numbers = np.asarray(given)
    if numbers.dtype.kind not in "iu" or (numbers.dtype == np.uint64 and (numbers >= 2**63).any()):
        raise TypeError(
            f"Expected whole {what} of 64 bits to record, got {numbers.dtype}. The reservation stays "
            "charged; mechanisms release class numbers or SILENT, and whole counts."
        )
    return numbers.tolist()


def read_release(body: dict[str, Any], charged: RdpCurve) -> Release | None:
    """Return the release that a settled line records, or None where none was kept."""
    said = body["release"]
    if said is None:
        return None
    labels = np.array(said["labels"], dtype=np.int64)
    values = np.array(said["values"], dtype=np.int64) if "values" in said else None
    by_teachers = np.array(said["by_teachers"], dtype=np.bool_)
    level = NoiseLevel.from_dict(said["noise_level"]) if "noise_level" in said else None
    return Release(labels, Cost(charged), by_teachers, values=values, noise_level=level).record()
