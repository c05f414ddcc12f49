"""What the questions of a ledger add up to: outcomes and burn-downs of every account, as it grows."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...ledger._chain import ChainedLedger
from ...ledger.base import AccountState, Entry
from ...privacy._price import Price
from ...privacy.budget import Accountant
from ...privacy.rdp import DEFAULT_ORDERS, RdpCurve
from .._aside import Memory
from .._labels import silent_queries

N_RECENT = 25
"""How many questions of an account are remembered, by their numbers."""

PAGE = 500
"""Entries that are held at once."""

_MOST_POINTS = 80
_MOST_OPEN = 10_000  # questions without an outcome, whose entries are looked at again
_MOST_LOOKS = 64
_SAID_EVERY = 20_000


class OutcomeCounts(NamedTuple):
    """What became of queries: a label of the teachers, the student's own back, silence, or no answer."""

    n_answered: int = 0
    n_student: int = 0
    n_silent: int = 0
    n_lost: int = 0

    @property
    def n_queries(self) -> int:
        return sum(self)

    def share(self, n: int) -> float:
        return 100.0 * n / self.n_queries if self.n_queries else 0.0

    def changed(self, new: "OutcomeCounts", old: "OutcomeCounts | None" = None) -> "OutcomeCounts":
        """Return these with others added, and the ones they stand for taken off."""
        return OutcomeCounts(*(a + b - c for a, b, c in zip(self, new, old or _NONE, strict=True)))


_NONE = OutcomeCounts()


def outcomes_of(entry: Entry) -> OutcomeCounts:
    release = entry.release
    if release is None:
        return OutcomeCounts(n_lost=n_queries(entry))
    silent, told = silent_queries(release), release.answered & (release.labels >= 0)
    if told.ndim > 1:  # a row of labels is answered where one of them was told
        told = told.any(axis=1)
    n_silent, n_answered = int(silent.sum()), int(told.sum())
    return OutcomeCounts(n_answered, len(release) - n_silent - n_answered, n_silent)


def n_queries(entry: Entry) -> int:
    said = entry.event.get("n_queries")
    return int(said) if said is not None else 1 if entry.release is None else len(entry.release)


# --- Burn-downs ---

Points = list[tuple[int, float]]
Amount = Any
"""What is added up: on a clock ticks; else Rényi values at every order, and how many of them are infinite."""


@dataclass(eq=False)
class _Point:
    """What was asked and spent after a question of an account, until what was left is known for good."""

    number: int
    asked: int
    amount: Amount
    left: float | None = None


@dataclass(eq=False)
class AccountHistory:
    """An account's questions: what became of them, the newest, and points of its burn-down.

    Points are as many as a page can show: when there are twice as many, every second one goes.
    """

    outcomes: OutcomeCounts = _NONE
    n_asked: int = 0  # queries
    n_questions: int = 0
    amount: Amount = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=N_RECENT))
    _points: list[_Point] = field(default_factory=list)
    _every: int = 1

    def add(self, number: int, amount: Amount, outcomes: OutcomeCounts, *, n: int) -> int:
        """Add a question, and return its number among those of this account."""
        self.outcomes, self.n_asked = self.outcomes.changed(outcomes), self.n_asked + n
        self.amount = self.amount + amount
        self.recent.append(number)
        own, self.n_questions = self.n_questions, self.n_questions + 1
        if own % self._every == 0:
            if len(self._points) >= 2 * _MOST_POINTS:
                del self._points[1::2]
                self._every *= 2
            if own % self._every == 0:
                self._points.append(_Point(own, self.n_asked, self.amount))
        return own

    def change(self, amount: Amount, outcomes: OutcomeCounts, *, n: int, old: "_Open") -> None:
        """Put in what a question came to, in place of what it was when it was open."""
        change = amount - old.amount
        self.outcomes, self.n_asked = self.outcomes.changed(outcomes, old.outcomes), self.n_asked + n - old.n
        self.amount = self.amount + change
        for point in self._points:
            if point.number >= old.own and point.amount is not None:
                point.asked += n - old.n
                point.amount, point.left = point.amount + change, None

    def burn(self, accountant: Accountant, *, settled: int) -> Points:
        """Return what was left after how many queries; questions before the `settled`-th do not change."""
        points: Points = [_start(accountant)]
        for point in self._points:
            if point.left is None:
                point.left = _left(accountant, point.amount)
            if point.number < settled:
                point.amount = None
        n = len(self._points)
        shown = {round(at) for at in np.linspace(0, n - 1, min(n, _MOST_POINTS))}
        points += [(self._points[at].asked, self._points[at].left or 0.0) for at in sorted(shown)]
        last = (self.n_asked, _left(accountant, self.amount))
        return points if self._points[-1].number == self.n_questions - 1 else [*points, last]


def _left(accountant: Accountant, amount: Amount) -> float:
    """Return how much epsilon is left, or how many percent of a clock."""
    if accountant.clock is not None:
        return 100.0 * accountant.left(Price(DEFAULT_ORDERS, np.zeros(DEFAULT_ORDERS.size), (), amount))
    finite, n_infinite = amount
    values = np.where(n_infinite > 0, np.inf, np.maximum(finite, 0.0))
    return max(0.0, accountant.budget.epsilon - accountant.epsilon(RdpCurve(DEFAULT_ORDERS, values)))


def _start(accountant: Accountant) -> tuple[int, float]:
    return 0, 100.0 if accountant.clock is not None else accountant.budget.epsilon


# --- All accounts ---


class _Open(NamedTuple):
    """A question without an outcome, as it stands in the sums of one account."""

    own: int
    amount: Amount
    outcomes: OutcomeCounts
    n: int


@dataclass(eq=False)
class BookSums:
    """The sums of a ledger, by account: the main one's name is None. They are small however long it is.

    A question that has no outcome yet is looked at again until it has one.
    """

    on_clock: bool
    accounts: dict[str | None, AccountHistory] = field(default_factory=lambda: {None: AccountHistory()})
    n_read: int = 0
    _open: dict[int, dict[str | None, _Open]] = field(default_factory=dict)
    _burns: dict[str | None, Points] = field(default_factory=dict)
    _changed: set[str | None] = field(default_factory=set)
    _looked: int = 0  # how far the older ones of these were looked at

    def read(self, ledger: ChainedLedger, *, most: int) -> int:
        """Read the questions that are new, at most so many, and return how many there were."""
        before = self.n_read
        self._look_again(ledger)
        while most > self.n_read - before:
            page = ledger.entries(after=self.n_read, limit=min(PAGE, most - self.n_read + before))
            for entry in page:
                self._add(entry)
            if len(page) < PAGE:
                break
        return self.n_read - before

    def burns(self, accountants: Mapping[str | None, Accountant]) -> dict[str | None, Points]:
        """Return the burn-down of every account; only those that something was asked on are made again."""
        open_: dict[str | None, int] = {}
        for told in self._open.values():
            for name, one in told.items():
                open_[name] = min(one.own, open_.get(name, one.own))
        for name in self._changed & accountants.keys():
            sums = self.accounts[name]
            self._burns[name] = sums.burn(accountants[name], settled=open_.get(name, sums.n_questions))
        self._changed -= accountants.keys()
        return {name: self._burns.get(name) or [_start(one)] for name, one in accountants.items()}

    def _add(self, entry: Entry) -> None:
        number, outcomes, n = self.n_read, outcomes_of(entry), n_queries(entry)
        told: dict[str | None, _Open] = {}
        for name, charged in _charges(entry):
            amount = self._amount(charged)
            own = self.accounts.setdefault(name, AccountHistory()).add(number, amount, outcomes, n=n)
            told[name] = _Open(own, amount, outcomes, n)
        self._changed |= told.keys()
        self.n_read += 1
        if not entry.is_settled:
            self._open[number] = told
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]

    def _look_again(self, ledger: ChainedLedger) -> None:
        """Look at questions that had no outcome: the newest, which get theirs now, and some older ones."""
        numbers = sorted(self._open, reverse=True)
        newest, older = numbers[:_MOST_LOOKS], numbers[_MOST_LOOKS:]
        some = older[self._looked : self._looked + _MOST_LOOKS]
        self._looked = self._looked + _MOST_LOOKS if len(some) == _MOST_LOOKS else 0
        for first, n in _runs([*newest, *some]):
            for at, entry in enumerate(ledger.entries(after=first, limit=n)):
                if entry.is_settled and first + at in self._open:
                    self._close(entry, self._open.pop(first + at))

    def _close(self, entry: Entry, told: dict[str | None, _Open]) -> None:
        outcomes, n = outcomes_of(entry), n_queries(entry)
        for name, charged in _charges(entry):
            old = told[name]
            self.accounts[name].change(self._amount(charged), outcomes, n=n, old=old)
        self._changed |= told.keys()

    def _amount(self, charged: RdpCurve) -> Amount:
        if self.on_clock:
            return getattr(charged, "ticks", 0)
        infinite = np.isinf(charged.values)
        return np.stack([np.where(infinite, 0.0, charged.values), infinite])


def _charges(entry: Entry) -> list[tuple[str | None, RdpCurve]]:
    return [(None, entry.charged), *((name, paid.charged) for name, paid in entry.also.items())]


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as runs that follow each other closely: where each begins, and how long it is."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number - runs[-1][0] < _MOST_LOOKS:
            runs[-1] = runs[-1][0], number - runs[-1][0] + 1
        else:
            runs.append((number, 1))
    return runs


def add_up(
    ledger: ChainedLedger, _memory: Memory, say: Callable[[BookSums], object], sums: BookSums
) -> BookSums:
    """Go on with sums until nothing is new; `say` hears of them as they grow."""
    while sums.read(ledger, most=_SAID_EVERY) == _SAID_EVERY:
        sums.burns(accountants(ledger.accountant, ledger.accounts()))
        say(sums)
    return sums


def accountants(main: Accountant, accounts: Mapping[str, AccountState]) -> dict[str | None, Accountant]:
    """Return the arithmetic of all accounts, the main one's under None."""
    return {None: main, **{name: state.accountant for name, state in accounts.items()}}
