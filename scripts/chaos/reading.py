"""The judge's own reading of a ledger: its rows, its chain of hashes, and what its lines add up to.

Written from the description of the files, and not with the code that writes them: whoever checks a ledger
with its own words believes what it says.
"""

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from pricing import Floats, epsilon_at

T = TypeVar("T")
_SOON = ("starting up", "recovery", "refused", "locked", "closed")
MAIN = ""
"""The account of the data."""


@dataclass(frozen=True)
class Row:
    """One line as it is stored."""

    number: int
    kind: str
    key: str
    body: str
    previous: str
    hash: str


def query(where: str, statement: str) -> list[tuple[Any, ...]]:
    """Return what a database says; one that is on its way back is waited for."""
    until = time.monotonic() + 60
    while True:
        try:
            return _query(where, statement)
        except Exception as error:
            # A server that starts, or a file that another program is opening.
            is_soon = any(
                word in str(error) for word in ("starting up", "recovery", "refused", "locked", "closed")
            )
            if not is_soon or time.monotonic() > until:
                raise
            time.sleep(0.1)


def _query(where: str, statement: str) -> list[tuple[Any, ...]]:
    if "://" not in where:
        with closing(sqlite3.connect(f"file:{where}?mode=rw", uri=True, timeout=30)) as file:
            file.execute("PRAGMA query_only = ON")
            rows = file.execute(statement).fetchall()
            # What somebody wrote who was killed before the flush is seen; it is not held against anyone.
            with contextlib.suppress(FileNotFoundError):
                log = os.open(f"{where}-wal", os.O_RDWR)
                os.fsync(log)
                os.close(log)
            return rows
    import psycopg

    with psycopg.connect(where.replace("+psycopg", ""), autocommit=True) as server:
        return server.execute(statement).fetchall()


def read_rows(where: str) -> list[Row]:
    """Return the lines of the ledger at a place, in order."""
    columns = "number, kind, key, body, previous, hash"
    if "://" not in where:
        rows = query(where, f"SELECT {columns} FROM lines ORDER BY number")
        return [Row(*row) for row in rows]
    rows = query(where, f"SELECT {columns}, ledger FROM tellers_lines ORDER BY number")
    if len({row[-1] for row in rows}) > 1:
        raise ValueError("expected one ledger in the database")
    return [Row(row[0], row[1], json.loads(row[2]), *row[3:6]) for row in rows]


def canonical(said: Any) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)


def broken_links(rows: list[Row]) -> Iterator[str]:
    """Yield what is wrong with the chain."""
    previous = "0" * 64
    for number, row in enumerate(rows):
        if row.number != number:
            yield f"line {number} is missing: the next one is {row.number}"
            return
        said = canonical([row.number, row.kind, row.key, row.body, row.previous])
        if row.previous != previous:
            yield f"line {number} does not follow the one before it"
        if row.hash != hashlib.sha256(said.encode("ascii")).hexdigest():
            yield f"line {number} was changed: its hash is another"
        previous = row.hash


@dataclass
class Account:
    """What is debited to one account, and how high that ever stood."""

    epsilon: float
    delta: float
    order: float
    paid: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    value: float = 0.0
    heights: list[float] = field(default_factory=list)  # the value after each line
    most: float = math.inf  # the largest value that the budget pays for

    def __post_init__(self) -> None:
        # epsilon_at grows with the value by exactly as much.
        if self.order > 1:
            self.most = self.epsilon - epsilon_at(self.order, 1.0, self.delta) + 1.0


@dataclass
class Question:
    """One question: who pays for it, and what came out."""

    line: int
    event: dict[str, Any]
    bills: dict[str, list[Any]]
    settled: int | None = None
    labels: list[int] | None = None
    charged: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class Books:
    """What the lines say, added up by ourselves."""

    expect: Callable[[Any, str], None]
    schema: int = 4
    terms: dict[str, Any] = field(default_factory=dict)
    orders: Floats = field(default_factory=lambda: np.zeros(0))
    accounts: dict[str, Account] = field(default_factory=dict)
    items: dict[int, list[Floats]] = field(default_factory=dict)  # by the number of the line
    names: dict[str, int] = field(default_factory=dict)
    events: dict[int, dict[str, Any]] = field(default_factory=dict)
    opened: dict[str, list[Any]] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    n_settled: int = 0
    n_checkpoints: int = 0

    def read(self, rows: list[Row]) -> "Books":
        for row in rows:
            try:
                self._read(row, json.loads(row.body))
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                self.expect(False, f"line {row.number}, {row.kind!r}, makes no sense: {error!r}")
            for account in self.accounts.values():
                account.heights.append(account.value)
        return self

    def _read(self, row: Row, body: dict[str, Any]) -> None:
        if row.number == 0:
            self.schema, self.terms = body["schema"], body
            self.expect(row.kind == "opened" and self.schema in (3, 4), "line 0 does not open a ledger")
            self.orders = np.array(body["orders"], dtype=float)
            self.accounts[MAIN] = Account(body["epsilon"], body["delta"], body["held_at"])
        elif row.kind == "account":
            account = Account(body["epsilon"], body["delta"], body["held_at"], heights=[0.0] * row.number)
            self.expect(row.key not in self.accounts, f"account {row.key} is opened twice")
            self.accounts[row.key], self.opened[row.key] = account, [row.number, row.hash]
        elif row.kind in ("price", "event"):
            name = hashlib.sha256(canonical(body).encode("ascii")).hexdigest()[:32]
            self.expect(name == row.key, f"line {row.number} has another name than what it says")
            if row.kind == "event":
                self.events[row.number] = body
            else:
                self.items[row.number] = [np.array([float(x) for x in kind]) for kind in body["kinds"]]
                self.names[name] = row.number
        elif row.kind == "reserved":
            self._reserve(row, body)
        elif row.kind == "settled":
            self._settle(row, body)
        elif row.kind == "checkpoint":
            self.n_checkpoints += 1
            self._compare(row, body)
        else:
            self.expect(False, f"line {row.number} is of a kind that nobody wrote: {row.kind!r}")

    def _reserve(self, row: Row, body: dict[str, Any]) -> None:
        self.expect(row.key not in self.questions, f"{row.key}: reserved twice")
        event = body["event"] if self.schema < 4 else {**self.events[body["event"]], **body["asked"]}
        bills = self._bills(body["price"], body.get("also", {}))
        self.questions[row.key] = Question(row.number, event, bills, charged=bills)
        for name, bill in bills.items():
            self._add(name, bill, 1)
            account = self.accounts[name]
            # A sum in another order may end a rounding higher.
            over = account.value > account.most + 1e-9 * abs(account.most)
            epsilon = epsilon_at(account.order, account.value, account.delta)
            whose = f"the budget of {name}" if name else "the budget of the data"
            self.expect(
                not over, f"{whose} is overspent at line {row.number}: {epsilon} of {account.epsilon}"
            )

    def _settle(self, row: Row, body: dict[str, Any]) -> None:
        question = self.questions.get(row.key)
        if question is None or question.settled is not None:
            self.expect(False, f"{row.key}: settled twice, or never reserved")
            return
        charged = self._bills(body["charged"], body.get("also", {}))
        self.expect(charged.keys() == question.bills.keys(), f"{row.key}: settled for other accounts")
        for name, bill in question.bills.items():
            self._add(name, bill, -1)
        for name, bill in charged.items():
            self._add(name, bill, 1)
        question.settled, question.charged = row.number, charged
        release = body["release"]
        question.labels = None if release is None else release["labels"]
        self.n_settled += 1

    def _bills(self, main: Any, also: dict[str, Any]) -> dict[str, list[Any]]:
        said = {MAIN: main, **{name: main if bill is None else bill for name, bill in also.items()}}
        return {name: self._terms(bill) for name, bill in said.items()}

    def _terms(self, said: dict[str, Any]) -> list[Any]:
        if set(said) != {"bill"}:
            raise ValueError("expected a bill of items alone")
        terms = []
        for n, item, *kind in said["bill"]:
            number = item if self.schema >= 4 else self.names[item]
            self.items[number][kind[0] if kind else 0]  # there is such an item, and such a kind
            terms.append((int(n), number, kind[0] if kind else None))
        return terms

    def _add(self, name: str, bill: list[Any], times: int) -> None:
        account = self.accounts[name]
        at = int(np.flatnonzero(self.orders == account.order)[0])
        for n, item, kind in bill:
            account.paid[item, kind] += times * n
            account.value += times * n * float(self.one(item, kind)[at])

    def one(self, item: int, kind: int | None) -> Floats:
        """Return what one of an item costs: of a kind, or of the dearest at each order."""
        kinds = self.items[item]
        return np.max(kinds, axis=0) if kind is None else kinds[kind]

    def curve(self, bill: list[Any]) -> Floats:
        total = np.zeros(self.orders.size)
        for n, item, kind in bill:
            total = total + n * self.one(item, kind)
        return total

    def _compare(self, row: Row, body: dict[str, Any]) -> None:
        """Compare a checkpoint with what we added up."""
        mine = {
            name: {place: n for place, n in account.paid.items() if n}
            for name, account in self.accounts.items()
        }
        theirs = {
            name: {(item, rest[0] if rest else None): n for n, item, *rest in said.get("paid", [])}
            for name, said in body["accounts"].items()
        }
        same = mine == theirs
        self.expect(
            same, f"the sums of the checkpoint in line {row.number} are not those of the lines before it"
        )
        counts = (body["questions"], body["settled"]) == (len(self.questions), self.n_settled)
        self.expect(counts, f"the checkpoint in line {row.number} counts other questions")
        items = sorted((number, name) for name, number in self.names.items())
        named = (
            items == sorted((number, name) for number, name in body["items"])
            and self.opened == body["opened"]
        )
        self.expect(named, f"the checkpoint in line {row.number} names other lines")
