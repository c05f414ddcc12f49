"""The chain of a durable ledger: what its lines say, and the hash that ties each to the one before.

Line 0 holds the terms: schema, budget, its order and the grid. After it a question has at most two lines, one
when it is reserved and one when it is settled. Lines are only ever added. Curves are stored by their
values, as floats that read back bit for bit; sealed costs are not stored at all.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import LedgerConflict
from ..rdp import Floats, RdpCurve
from ..release import Cost, Release
from .base import canonical

SCHEMA = 1
"""The version of what lines say. Old versions are read for ever; a new one takes the next number."""

START = "0" * 64
"""What the first line follows."""


@dataclass(frozen=True)
class Line:
    """One line of the chain.

    >>> first = Line.after(None, "opened", key="", body={"schema": 1})
    >>> second = Line.after(first, "reserved", key="q0", body={"price": [0.5]})
    >>> second.number, second.previous == first.hash
    (1, True)
    """

    number: int
    kind: str
    key: str
    body: str
    previous: str
    hash: str

    @classmethod
    def after(cls, head: "Line | None", kind: str, *, key: str, body: dict[str, Any]) -> "Line":
        """Return the line that follows `head`.

        >>> Line.after(None, "opened", key="", body={}).body
        '{}'
        """
        number, previous = (0, START) if head is None else (head.number + 1, head.hash)
        text = canonical(body)
        return cls(number, kind, key, text, previous, _digest(number, kind, key, text, previous))

    def require_follows(self, head: "Line | None") -> None:
        """Refuse a line that was changed, or that does not follow `head`.

        >>> line = Line.after(None, "opened", key="", body={})
        >>> line.require_follows(None)
        >>> line.require_follows(line)
        Traceback (most recent call last):
            ...
        tellers.errors.LedgerConflict: Line 0 of the ledger is not the one that was written: ...
        """
        number, previous = (0, START) if head is None else (head.number + 1, head.hash)
        if (self.number, self.previous) != (number, previous) or not self.is_intact:
            raise LedgerConflict(
                f"Line {self.number} of the ledger is not the one that was written: its hash does not fit. "
                "Somebody or something changed the file; restore it from a backup and do not spend on it."
            )

    @property
    def is_intact(self) -> bool:
        """Return whether the line is what its hash says."""
        said = (self.number, self.kind, self.key, self.body, self.previous)
        plain = not any(isinstance(part, bytes) for part in said)
        return plain and self.hash == _digest(*said)


def _digest(*said: Any) -> str:
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


def write_curve(curve: RdpCurve) -> list[float | str]:
    """Return the values of a curve as JSON can hold them.

    >>> write_curve(RdpCurve(np.array([2.0, 3.0]), np.array([0.5, np.inf])))
    [0.5, 'inf']
    """
    return [value if value < float("inf") else "inf" for value in curve.values.tolist()]


def write_release(release: Release) -> dict[str, Any]:
    """Return what a release showed, as JSON can hold it; the sealed cost stays behind.

    >>> write_release(Release(np.array([3, -1]), Cost(RdpCurve.zero())))
    {'labels': [3, -1], 'by_teachers': [True, False]}
    """
    labels = np.asarray(release.labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(
            f"Expected whole labels to record, got {labels.dtype}. The reservation stays charged; "
            "mechanisms release class numbers or SILENT."
        )
    said = {"labels": labels.tolist(), "by_teachers": np.asarray(release.answered, dtype=bool).tolist()}
    if release.values is not None:
        said["values"] = np.asarray(release.values).tolist()
    return said


def read_release(body: dict[str, Any], charged: RdpCurve) -> Release | None:
    """Return the release that a settled line records, or None where none was kept.

    >>> body = {"release": {"labels": [3, -1], "by_teachers": [True, False]}}
    >>> read_release(body, RdpCurve.zero()).answered
    array([ True, False])
    """
    said = body["release"]
    if said is None:
        return None
    labels = np.array(said["labels"], dtype=np.int64)
    values = np.array(said["values"], dtype=np.int64) if "values" in said else None
    by_teachers = np.array(said["by_teachers"], dtype=np.bool_)
    return Release(labels, Cost(charged), by_teachers, values=values).record()


@dataclass(eq=False)
class Book:
    """What the lines read so far add up to.

    >>> book = Book()
    >>> book.add(Line.after(None, "opened", key="", body={"orders": [2.0, 3.0]}))
    >>> book.add(Line.after(book.head, "reserved", key="q0", body={"price": [0.5, 0.75]}))
    >>> book.spent.values, list(book.pending), book.settled
    (array([0.5 , 0.75]), ['q0'], set())
    """

    head: Line | None = None
    terms: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, RdpCurve] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    _orders: Floats | None = None
    _charged: RdpCurve | None = None

    def add(self, line: Line) -> None:
        """Read the next line, after checking that it is the next one and that it was not changed.

        >>> Book().add(Line.after(None, "reserved", key="q0", body={}))
        Traceback (most recent call last):
            ...
        tellers.errors.LedgerConflict: Line 0 of the ledger, 'reserved', does not make sense there. ...
        """
        line.require_follows(self.head)
        try:
            self._read(line.kind, line.key, json.loads(line.body))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise LedgerConflict(
                f"Line {line.number} of the ledger, {line.kind!r}, does not make sense there. "
                "A newer version of tellers may have written it: update, or restore the file."
            ) from None
        self.head = line

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited so far, reservations included."""
        total = RdpCurve.zero(self._orders) if self._charged is None else self._charged
        for price in self.pending.values():
            total = total + price
        return total

    def curve(self, values: list[float | str]) -> RdpCurve:
        """Return a stored curve, on the grid of this ledger.

        >>> book = Book()
        >>> book.add(Line.after(None, "opened", key="", body={"orders": [2.0, 3.0]}))
        >>> book.curve([0.5, "inf"]).values
        array([0.5, inf])
        """
        if self._orders is None:
            raise ValueError("Expected the terms before any curve.")
        return RdpCurve(self._orders, np.array([float(value) for value in values]))

    def _read(self, kind: str, key: str, body: dict[str, Any]) -> None:
        if (kind == "opened") != (self.head is None):
            raise ValueError(kind)
        if kind == "opened":
            self._orders, self.terms = RdpCurve.zero(body["orders"]).orders, body
        elif kind == "reserved" and key not in self.pending and key not in self.settled:
            self.pending[key] = self.curve(body["price"])
        elif kind == "settled":
            # Reservations are added up afresh each time, settled ones once: no price is ever subtracted.
            charged = self.curve(body["charged"])
            del self.pending[key]
            self.settled.add(key)
            self._charged = charged if self._charged is None else self._charged + charged
        else:
            raise ValueError(kind)
