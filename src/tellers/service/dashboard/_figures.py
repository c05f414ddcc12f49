"""The numbers and drawings of the dashboard, each of them public."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...accounting.costs import independent_cost
from ...accounting.plan import Consensus, expected_of
from ...errors import LedgerConflict
from ...ledger._chain import ChainedLedger, accounts_of
from ...ledger.base import Entry
from ...privacy._price import epsilon_of
from ...privacy.budget import Accountant
from ...privacy.rdp import RdpCurve
from .._labels import LabelService, owner
from .._ledger import AccountAnswer, queries_left
from .._teachers import Served
from ._sums import AccountHistory, BookSums, OutcomeCounts, Points, accountants, add_up, outcomes_of

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


def placed(points: Points, budget: float, box: tuple[float, float, float, float]) -> "list[Place]":
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


# --- Snapshots ---

Place = tuple[float, float]

_AGE_SECONDS = 1.0
# Reading the books takes turns with those who ask: watching them may take a twentieth of the time.
_PATIENCE = 20.0
_MOST_AT_ONCE = 2_000  # questions, a tenth of a second


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
    """The books as they were a moment ago; `n_counted` questions are in the sums of `n_questions`."""

    data: BudgetView
    accounts: dict[str, BudgetView]
    n_questions: int
    n_counted: int
    n_unsettled: int
    delta: float
    spent: RdpCurve
    ledger: ChainedLedger
    people: Mapping[str, int] = field(default_factory=dict)
    recent: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[BudgetView, int]]:
        """Return the accounts of groups of people, the strictest first, and how many people each has."""
        return [(self.accounts[name], n) for name, n in self.people.items() if name in self.accounts]

    @property
    def others(self) -> list[BudgetView]:
        """Return the accounts that are nobody's but students'."""
        return [account for name, account in self.accounts.items() if name not in self.people]

    def questions(self, first: int, n: int) -> list[QuestionRow]:
        """Return some questions, the newest first."""
        end = max(0, self.n_questions - first)
        start = max(0, end - n)
        page = self.ledger.entries(after=start, limit=end - start)
        return [self._question(start + at, entry) for at, entry in enumerate(page)][::-1]

    def paid_by(self, account: str) -> list[QuestionRow]:
        """Return the last questions that an account paid for, the newest first."""
        return [
            self._question(number, entry)
            for number in reversed(self.recent.get(account, ()))
            for entry in self.ledger.entries(after=number, limit=1)
        ]

    def _question(self, number: int, entry: Entry) -> QuestionRow:
        student, key = owner(entry.key)
        epsilon = epsilon_of(entry.charged, self.delta)
        return QuestionRow(number, student, key, outcomes_of(entry), entry.is_settled, epsilon)


@dataclass(eq=False)
class SnapshotCache:
    """Adds up the books for everyone who looks, no more often than they can bear.

    What is new since the last time is read at once where it is little, and else in a process of its own;
    until that is done the sums are of the questions that it came to.
    """

    service: LabelService
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _last: Snapshot | None = field(default=None, repr=False)
    _until: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self._sums = BookSums(self.service.accountant.clock is not None)
        self._aside = self.service.new_aside()
        self._counting: threading.Thread | None = None
        self._broken: LedgerConflict | None = None  # what was found while it was counted

    def snapshot(self) -> Snapshot:
        """Return the books as they are, or were a moment ago."""
        with self._lock:
            start = self.clock()
            if self._last is None or start >= self._until:
                self._last = self._taken()
                now = self.clock()
                self._until = now + max(_AGE_SECONDS, _PATIENCE * (now - start))
            return self._last

    def _taken(self) -> Snapshot:
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken
        service, view = self.service, self.service.ledger.view()
        if self._counting is None or not self._counting.is_alive():
            if view.n_questions - self._sums.n_read <= _MOST_AT_ONCE:
                self._sums.read(service.ledger, most=_MOST_AT_ONCE)
            else:
                given = (deepcopy(self._sums),)  # pages go on to be drawn from these
                self._counting = threading.Thread(
                    target=self._count, args=given, name="counting", daemon=True
                )
                self._counting.start()
        sums, states, plan = self._sums, accounts_of(view), service.served.plan
        burns = sums.burns(accountants(service.accountant, states))
        paying, nothing = service.groups(view), AccountHistory()
        accounts = {
            name: BudgetView(
                name, paying.get(name) or service.account_status(states[name]),
                sums.accounts.get(name, nothing).outcomes, burns[name],
            )
            for name in sorted(states)
        }  # fmt: skip
        data = BudgetView("", service.budget_status(view), sums.accounts[None].outcomes, burns[None])
        return Snapshot(
            data, accounts, max(view.n_questions, sums.n_read), sums.n_read,
            view.n_questions - view.n_settled, service.served.budget.delta, view.sums[None].spent,
            service.ledger, {} if plan is None else {group.account: group.n_persons for group in plan.groups},
            {name: tuple(one.recent) for name, one in sums.accounts.items() if name is not None},
        )  # fmt: skip

    def _count(self, sums: BookSums) -> None:
        """Read what is new in a process of its own; where it fails, the next who looks begins again there."""
        try:
            for found in self._aside.do(add_up, sums):
                self._sums = found
        except LedgerConflict as broken:
            self._broken = broken
        except (OSError, RuntimeError):
            pass
        self._aside.end()  # what it holds is here
