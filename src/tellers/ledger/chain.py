"""The chain of a durable ledger: what its lines say, and the hash that ties each to the one before.

Line 0 holds the terms: schema, budget, its order and the grid. After it a named account has one line, when it
is opened, and a question has at most two, one when it is reserved and one when it is settled. Lines are only
ever added. Curves are stored by their values, as floats that read back bit for bit; under `also`, null stands
for the curve of the main account. Sealed costs are not stored here at all.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..budget import Accountant, Budget
from ..errors import LedgerConflict
from ..rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..release import Cost, Release
from .accounts import same
from .base import AccountState, canonical

SCHEMA = 2
"""The version of what lines say. Old versions are read for ever; a new one takes the next number."""

READABLE = (1, 2)
"""The versions that are read and written on: 1 had no named accounts, and may be given some."""

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


def write_also(also: Mapping[str, RdpCurve], main: RdpCurve) -> dict[str, Any]:
    """Return the part of a body that holds what named accounts pay, empty where there are none.

    >>> one = RdpCurve(np.array([2.0, 3.0]), np.array([0.5, 0.75]))
    >>> write_also({"alice": one, "bob": 2 * one}, one)
    {'also': {'alice': None, 'bob': [1.0, 1.5]}}
    """
    said = {name: None if same(curve, main) else write_curve(curve) for name, curve in also.items()}
    return {"also": said} if said else {}


def opening(accountant: Accountant) -> Line:
    """Return the first line of a new ledger: its terms.

    >>> from tellers import Accountant, Budget
    >>> line = opening(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    >>> line.kind, json.loads(line.body)["held_at"]
    ('opened', 18.0)
    """
    budget = accountant.budget
    body = {
        "schema": SCHEMA,
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "held_at": accountant.held_at,
        "orders": DEFAULT_ORDERS.tolist(),
    }
    return Line.after(None, "opened", key="", body=body)


@dataclass(frozen=True)
class Reserved:
    """What is debited for a question that is not settled: the main account, and named ones.

    >>> list(Reserved(RdpCurve.zcdp(0.1), {"student/alice": RdpCurve.zcdp(0.1)}).also)
    ['student/alice']
    """

    price: RdpCurve
    also: dict[str, RdpCurve]


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
    pending: dict[str, Reserved] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    accountants: dict[str, Accountant] = field(default_factory=dict)
    _orders: Floats | None = None
    # Settled charges by account; the main one has no name.
    _charged: dict[str | None, RdpCurve] = field(default_factory=dict)

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
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            raise LedgerConflict(
                f"Line {line.number} of the ledger, {line.kind!r}, does not make sense there. "
                "A newer version of tellers may have written it: update, or restore the file."
            ) from None
        self.head = line

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited to the main account so far, reservations included."""
        return self._spent_by(None)

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account, with everything debited to it so far, reservations included.

        >>> book = Book()
        >>> book.add(opening(Accountant(Budget(epsilon=1.0, delta=1e-5))))
        >>> body = {"epsilon": 0.5, "delta": 1e-5, "held_at": 32.0}
        >>> book.add(Line.after(book.head, "account", key="student/alice", body=body))
        >>> book.accounts()["student/alice"].budget
        Budget(epsilon=0.5, delta=1e-05)
        """
        return {name: self.account(name) for name in self.accountants}

    def account(self, name: str) -> AccountState:
        """Return one named account, as `accounts` does.

        >>> Book().account("student/alice")
        Traceback (most recent call last):
            ...
        KeyError: 'student/alice'
        """
        accountant = self.accountants[name]
        return AccountState(accountant.budget, accountant.held_at, self._spent_by(name))

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

    def also(self, body: dict[str, Any], main: RdpCurve) -> dict[str, RdpCurve]:
        """Return what named accounts pay according to a body, where null stands for what the main one pays.

        >>> book = Book()
        >>> book.add(Line.after(None, "opened", key="", body={"orders": [2.0, 3.0]}))
        >>> book.also({"also": {"alice": None}}, book.curve([0.5, 0.75]))["alice"].values
        array([0.5 , 0.75])
        """
        said = body.get("also", {})
        return {name: main if values is None else self.curve(values) for name, values in said.items()}

    def _spent_by(self, account: str | None) -> RdpCurve:
        total = self._charged.get(account) or RdpCurve.zero(self._orders)
        for reserved in self.pending.values():
            price = reserved.price if account is None else reserved.also.get(account)
            if price is not None:
                total = total + price
        return total

    def _read(self, kind: str, key: str, body: dict[str, Any]) -> None:
        if (kind == "opened") != (self.head is None):
            raise ValueError(kind)
        if kind == "opened":
            if body.get("schema", SCHEMA) not in READABLE:
                raise ValueError(kind)
            self._orders, self.terms = RdpCurve.zero(body["orders"]).orders, body
        elif kind == "account" and key and key not in self.accountants:
            budget = Budget(body["epsilon"], body["delta"])
            if self._orders is None or body["held_at"] not in self._orders:
                raise ValueError(kind)
            self.accountants[key] = Accountant(budget, order=body["held_at"])
        elif kind == "reserved" and key not in self.pending and key not in self.settled:
            price = self.curve(body["price"])
            also = self.also(body, price)
            if not also.keys() <= self.accountants.keys() or not isinstance(body.get("event", {}), dict):
                raise ValueError(kind)
            self.pending[key] = Reserved(price, also)
        elif kind == "settled":
            # Reservations are added up afresh each time, settled ones once: no price is ever subtracted.
            charged = self.curve(body["charged"])
            also = self.also(body, charged)
            if self.pending[key].also.keys() != also.keys():
                raise ValueError(kind)
            read_release(body, charged)  # an outcome that cannot be read back is found now
            del self.pending[key]
            self.settled.add(key)
            self._charge(None, charged)
            for name, cost in also.items():
                self._charge(name, cost)
        else:
            raise ValueError(kind)

    def _charge(self, account: str | None, cost: RdpCurve) -> None:
        before = self._charged.get(account)
        self._charged[account] = cost if before is None else before + cost
