"""The numbers and drawings of the dashboard, each of them public."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from ...accounting.costs import independent_cost
from ...accounting.plan import Consensus, expected_of
from ...errors import LedgerConflict
from ...ledger._chain import ChainedLedger
from ...ledger.base import Entry
from ...privacy._price import epsilon_in_all
from ...privacy.budget import Accountant
from ...privacy.rdp import RdpCurve
from .._labels import LabelService, owner, silent_queries
from .._ledger import AccountAnswer, queries_left
from .._teachers import Served

# --- Drawings ---


def step_path(places: Sequence[tuple[float, float]]) -> str:
    """Return the path of a line that stays level from one place to the next."""
    (x, y), *rest = places
    return " ".join([f"M{x} {y}", *(f"H{x} V{y}" for x, y in rest)])


def ticks(most: float, n: int) -> list[float]:
    """Return round numbers from 0 to a largest, about so many."""
    raw = most / n
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if size * part >= raw * 0.8)
    return [round(step * i, 10) for i in range(int(most / step + 1e-9) + 1)]


def placed(points: "Points", budget: float, box: tuple[float, float, float, float]) -> "list[Place]":
    """Return where (queries, epsilon left) lie in a box, given by its left, top, width and height."""
    left, top, wide, tall = box
    most = max(1, points[-1][0])
    return [
        (round(left + wide * n / most, 1), round(top + tall * (1 - rest / budget), 1)) for n, rest in points
    ]


# --- Forecast ---

AGREEMENTS = (0.75, 0.9, 0.97)
_N_PROXIES = 200
_MOST_LABELS = 1_000_000_000
# Made-up votes: any seed will do, as long as a page shows the same numbers twice.
_SEED = 7


class Profile(NamedTuple):
    """What a setting gives on made-up votes: the share of queries answered, and of labels that are right."""

    agreement: float
    share: float
    accuracy: float


@dataclass(eq=False)
class Forecast:
    """Estimates for a service; made-up votes are counted once, beside whoever looks first."""

    served: Served
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)
    _profiles: list[Profile] | None = field(default=None, repr=False)
    _prices: tuple[RdpCurve, RdpCurve] | None = field(default=None, repr=False)

    def start(self) -> threading.Thread:
        """Begin to count, if nobody has, and return the thread that does."""
        with self._lock:
            if self._thread is None:
                # Votes of many thousand teachers take seconds; a page does not wait for them.
                self._thread = threading.Thread(target=self._count, name="forecast", daemon=True)
                self._thread.start()
            return self._thread

    def estimates(self, accountant: Accountant, spent: RdpCurve) -> list[tuple[Profile, int]] | None:
        """Return how many labels each assumed profile is likely to give, or None while they are counted.

        There are none where the mechanism hears the student, whose answers nobody can assume, or where groups
        of people pay from budgets of their own.
        """
        self.start()
        profiles, prices = self._profiles, self._prices
        if profiles is None:
            return None
        if prices is None:
            return []
        if accountant.clock is not None:
            # Every query at its whole price: fewer labels than there will be.
            n = queries_left(accountant, spent, self.served.price)
            return [(one, int(one.share * n)) for one in profiles]
        return [(one, n_labels(accountant, spent, prices=prices, share=one.share)) for one in profiles]

    def _count(self) -> None:
        profiles: list[Profile] = []
        # A mechanism of somebody else's may not say how likely its outcomes are: then there is no estimate.
        with suppress(Exception):
            self._prices = check_and_answer(self.served)
            if not (self.served.listens or self.served.plan or self.served.n_labels):
                profiles = make_profiles(self.served)
        self._profiles = profiles


def make_profiles(served: Served) -> list[Profile]:
    """Return what a setting gives on votes that are made up from assumptions."""
    found = []
    for agreement in AGREEMENTS:
        share, accuracy = expected_of(
            Consensus(agreement=agreement),
            served.mechanism,
            served.n_teachers,
            served.n_classes,
            n_queries=_N_PROXIES,
            seed=_SEED,
        )
        found.append(Profile(agreement, min(1.0, share), accuracy))
    return found


def check_and_answer(served: Served) -> tuple[RdpCurve, RdpCurve]:
    """Return what every query costs, answered or not, and what an answer costs on top."""
    check, both = (independent_cost(served.mechanism, 1, n_answers=n, **served.counts) for n in (0, 1))
    return check, RdpCurve(both.orders, np.maximum(0.0, both.values - check.values))


def n_labels(
    accountant: Accountant, spent: RdpCurve, *, prices: tuple[RdpCurve, RdpCurve], share: float
) -> int:
    """Return how many labels a budget pays for when a share of queries is answered and the rest is silent."""
    check, answer = prices

    def spent_after(n: int) -> RdpCurve:
        return spent + check * n + answer * min(n, int(share * n) + 1)

    return int(share * accountant.n_affordable(check + answer, _MOST_LABELS, spent_after=spent_after))


# --- Verification ---


@dataclass(frozen=True)
class Verdict:
    """What a verification found, and when."""

    when: datetime
    is_intact: bool
    head: str
    n_entries: int


@dataclass(eq=False)
class LedgerCheck:
    """Verifies a ledger, one at a time, and keeps the last verdict.

    The head that the last one found must still be in the chain.
    """

    ledger: ChainedLedger
    last: Verdict | None = None
    _head: str | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def verify(self) -> Verdict:
        """Read all of the books again, check every hash, and that nothing is gone since the last time."""
        with self._lock:
            try:
                head = self.ledger.verify(self._head)
                verdict = Verdict(datetime.now(UTC), True, head, len(self.ledger.entries()))
                self._head = head
            except LedgerConflict:
                verdict = Verdict(datetime.now(UTC), False, "", 0)
            self.last = verdict
        return verdict


# --- Snapshots ---

Points = list[tuple[int, float]]
Place = tuple[float, float]

_MOST_POINTS = 80
_AGE_SECONDS = 1.0
# Reading the books takes turns with those who ask: watching them may take a twentieth of the time.
_PATIENCE = 20.0


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


@dataclass(frozen=True)
class BudgetView:
    """An account on the page: its status, what was asked on it, and its budget after each question."""

    name: str
    status: AccountAnswer
    outcomes: OutcomeCounts
    burn: Points

    @property
    def share_spent(self) -> float:
        """Return how much of the epsilon is spent, in percent; all where not one more query is paid for."""
        if self.is_over:
            return 100.0
        if self.on_clock:
            return 100.0 * (1 - self.status.share_left)
        assert self.status.epsilon_spent is not None
        return min(100.0, 100.0 * self.status.epsilon_spent / self.status.epsilon)

    @property
    def on_clock(self) -> bool:
        """Return whether the budget is held on a clock, of which a share is left and no epsilon."""
        return self.status.epsilon_spent is None

    @property
    def scale(self) -> float:
        """Return what its burn-down begins with: the budget, or 100 % of a clock."""
        return 100.0 if self.on_clock else self.status.epsilon

    @property
    def is_over(self) -> bool:
        """Return whether the account pays for no more queries at this setting."""
        return self.status.queries_left == 0


@dataclass(frozen=True)
class QuestionRow:
    """A question on the page: who asked, what came of it in numbers, and its charge by itself."""

    number: int
    student: str
    key: str
    outcomes: OutcomeCounts
    is_settled: bool
    epsilon: float


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The books as they were a moment ago."""

    data: BudgetView
    accounts: dict[str, BudgetView]
    entries: list[Entry]
    delta: float
    spent: RdpCurve
    people: Mapping[str, int] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[BudgetView, int]]:
        """Return the accounts of groups of people, the strictest first, and how many people each has."""
        return [(self.accounts[name], n) for name, n in self.people.items() if name in self.accounts]

    @property
    def others(self) -> list[BudgetView]:
        """Return the accounts that are nobody's but students'."""
        return [account for name, account in self.accounts.items() if name not in self.people]

    def questions(self, first: int, n: int, *, account: str | None = None) -> list[QuestionRow]:
        """Return some questions, the newest first, or those that one account paid for."""
        numbers = [
            number
            for number in range(len(self.entries) - 1, -1, -1)
            if account is None or account in self.entries[number].also
        ]
        return [self._question(number) for number in numbers[first : first + n]]

    def n_questions(self, account: str | None = None) -> int:
        return sum(account is None or account in entry.also for entry in self.entries)

    def _question(self, number: int) -> QuestionRow:
        entry = self.entries[number]
        student, key = owner(entry.key)
        epsilon = epsilon_in_all(entry.charged, self.delta)
        return QuestionRow(number, student, key, outcomes_of(entry), entry.is_settled, epsilon)


@dataclass(eq=False)
class SnapshotCache:
    """Reads the books for everyone who looks, no more often than they can bear."""

    service: LabelService
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _last: Snapshot | None = field(default=None, repr=False)
    _until: float = field(default=0.0, repr=False)

    def snapshot(self) -> Snapshot:
        """Return the books as they are, or were a moment ago."""
        with self._lock:
            start = self.clock()
            if self._last is None or start >= self._until:
                self._last = take_snapshot(self.service)
                now = self.clock()
                self._until = now + max(_AGE_SECONDS, _PATIENCE * (now - start))
            return self._last


def take_snapshot(service: LabelService) -> Snapshot:
    entries, states = service.ledger.entries(), service.ledger.accounts()
    paid: dict[str, list[Entry]] = {name: [] for name in sorted(states)}
    for entry in entries:
        for name in entry.also:
            paid.setdefault(name, []).append(entry)
    accounts, paying, plan = {}, service.groups(), service.served.plan
    for name, mine in paid.items():
        # Accounts are never closed; one that is younger than this list of them is there the next time.
        if name in states:
            costs = [entry.also[name].charged for entry in mine]
            n_asked = [n_queries(entry) for entry in mine]
            burn = burn_down(states[name].accountant, costs, n_queries=n_asked)
            accounts[name] = BudgetView(
                name, paying.get(name) or service.account_status(states[name]), total(mine), burn
            )
    costs = [entry.charged for entry in entries]
    burn = burn_down(service.accountant, costs, n_queries=[n_queries(entry) for entry in entries])
    data = BudgetView("", service.budget_status(), total(entries), burn)
    people = {} if plan is None else {group.account: group.n_persons for group in plan.groups}
    return Snapshot(data, accounts, entries, service.served.budget.delta, service.ledger.spent, people)


def burn_down(accountant: Accountant, costs: Sequence[RdpCurve], *, n_queries: Sequence[int]) -> Points:
    """Return how much epsilon was left after how many queries, at no more points than a page can show.

    Of a clock it is how many percent were left.
    """
    epsilon, on_clock = accountant.budget.epsilon, accountant.clock is not None
    points = [(0, 100.0 if on_clock else epsilon)]
    if not costs:
        return points
    shown = {round(place) for place in np.linspace(0, len(costs) - 1, min(len(costs), _MOST_POINTS))}
    spent, asked, total = np.zeros_like(costs[0].values), 0, RdpCurve.zero(costs[0].orders)
    for number, cost in enumerate(costs):
        if on_clock:
            total, asked = total + cost, asked + n_queries[number]
            if number in shown:
                points.append((asked, 100.0 * accountant.left(total)))
            continue
        spent, asked = spent + cost.values, asked + n_queries[number]
        if number in shown:
            left = epsilon - accountant.epsilon(RdpCurve(cost.orders, spent))
            points.append((asked, max(0.0, left)))
    return points


def outcomes_of(entry: Entry) -> OutcomeCounts:
    release = entry.release
    if release is None:
        return OutcomeCounts(n_lost=n_queries(entry))
    silent, told = silent_queries(release), release.answered & (release.labels >= 0)
    if told.ndim > 1:  # a row of labels is answered where one of them was told
        told = told.any(axis=1)
    n_silent, n_answered = int(silent.sum()), int(told.sum())
    return OutcomeCounts(n_answered, len(release) - n_silent - n_answered, n_silent)


def total(entries: Sequence[Entry]) -> OutcomeCounts:
    return OutcomeCounts(*map(sum, zip(OutcomeCounts(), *map(outcomes_of, entries), strict=True)))


def n_queries(entry: Entry) -> int:
    said = entry.event.get("n_queries")
    return int(said) if said is not None else 1 if entry.release is None else len(entry.release)
