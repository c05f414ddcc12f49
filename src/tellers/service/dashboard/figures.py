"""The numbers of the pages, each of them public: read off the books and the price, never off a vote."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...budget import Accountant
from ...ledger import Entry
from ...rdp import RdpCurve
from ..books import Standing
from ..desk import Desk, owner

Points = list[tuple[int, float]]

_MOST_POINTS = 80
_AGE_SECONDS = 1.0
# Reading the books takes turns with those who ask: watching them may take a twentieth of the time.
_PATIENCE = 20.0


@dataclass(frozen=True)
class Outcomes:
    """What became of queries: a label of the teachers, the student's own back, silence, or no answer.

    >>> Outcomes(n_answered=6, n_silent=4).n_queries
    10
    """

    n_answered: int = 0
    n_student: int = 0
    n_silent: int = 0
    n_lost: int = 0

    @property
    def n_queries(self) -> int:
        """Return how many queries were charged."""
        return self.n_answered + self.n_student + self.n_silent + self.n_lost

    def share(self, n: int) -> float:
        """Return a part of all queries, in percent.

        >>> Outcomes(n_answered=6, n_silent=4).share(4)
        40.0
        """
        return 100.0 * n / self.n_queries if self.n_queries else 0.0


@dataclass(frozen=True)
class BudgetView:
    """An account on the page: how it stands, what was asked on it, and its budget after each question.

    >>> stands = Standing(2.0, 1e-5, 0.5, 1.5, 100)
    >>> BudgetView("student/alice", stands, Outcomes(), [(0, 2.0), (10, 1.5)]).share_spent
    25.0
    """

    name: str
    standing: Standing
    outcomes: Outcomes
    burn: Points

    @property
    def share_spent(self) -> float:
        """Return how much of the epsilon is spent, in percent; all where not one more query is paid for."""
        stands = self.standing
        return 100.0 if self.is_over else min(100.0, 100.0 * stands.epsilon_spent / stands.epsilon)

    @property
    def is_over(self) -> bool:
        """Return whether the account pays for no more queries at this setting."""
        return self.standing.queries_left == 0


@dataclass(frozen=True)
class Question:
    """A question on the page: who asked, what came of it in numbers, and its charge by itself.

    >>> Question(0, "alice", "k1", Outcomes(n_silent=2), True, 0.05).outcomes.n_queries
    2
    """

    number: int
    student: str
    key: str
    outcomes: Outcomes
    is_settled: bool
    epsilon: float


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The books as they were a moment ago.

    >>> nobody = BudgetView("", Standing(2.0, 1e-5, 0.0, 2.0, 100), Outcomes(), [(0, 2.0)])
    >>> seen = Snapshot(nobody, {}, [], 1e-5, RdpCurve.zero())
    >>> seen.questions(0, 10), seen.n_questions()
    ([], 0)
    """

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

    def questions(self, first: int, n: int, *, account: str | None = None) -> list[Question]:
        """Return some questions, the newest first, or those that one account paid for."""
        numbers = [
            number
            for number in range(len(self.entries) - 1, -1, -1)
            if account is None or account in self.entries[number].also
        ]
        return [self._question(number) for number in numbers[first : first + n]]

    def n_questions(self, account: str | None = None) -> int:
        """Return how many questions there are."""
        return sum(account is None or account in entry.also for entry in self.entries)

    def _question(self, number: int) -> Question:
        entry = self.entries[number]
        student, key = owner(entry.key)
        epsilon = entry.charged.epsilon(self.delta)
        return Question(number, student, key, outcomes_of(entry), entry.is_settled, epsilon)


@dataclass(eq=False)
class Watch:
    """Reads the books for everyone who looks, no more often than they can bear.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Votes, noise
    >>> from tellers.service.teachers import Served
    >>> from tellers.teachers.pool import VotedPool
    >>> pool = VotedPool(Votes.from_ballots([[0, 1, 1]] * 250, n_classes=2))
    >>> served = Served(pool, GNMax(sigma=20.0), Budget(epsilon=1.0, delta=1e-5), "", 2, 250, n_pool=3)
    >>> desk = Desk(served, MemoryLedger(Accountant(served.budget)), noise.secure())
    >>> _ = desk.ask("alice", "k1", pool=[0, 2])
    >>> seen = Watch(desk).snapshot()
    >>> [question.student for question in seen.questions(0, 5)], seen.n_questions()
    (['alice'], 1)
    >>> seen.data.burn[0], seen.data.outcomes.n_answered
    ((0, 1.0), 2)
    """

    desk: Desk
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _last: Snapshot | None = field(default=None, repr=False)
    _until: float = field(default=0.0, repr=False)

    def snapshot(self) -> Snapshot:
        """Return the books as they are, or were a moment ago."""
        with self._lock:
            start = self.clock()
            if self._last is None or start >= self._until:
                self._last = take_snapshot(self.desk)
                now = self.clock()
                self._until = now + max(_AGE_SECONDS, _PATIENCE * (now - start))
            return self._last


def take_snapshot(desk: Desk) -> Snapshot:
    """Read the books and count what is on them.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
    >>> from tellers.service.teachers import Served
    >>> served = Served(None, GNMax(sigma=20.0), Budget(epsilon=1.0, delta=1e-5), "", 2, 250, n_pool=3)
    >>> desk = Desk(served, MemoryLedger(Accountant(served.budget)), noise.secure())
    >>> take_snapshot(desk).data.burn
    [(0, 1.0)]
    """
    entries, states = desk.ledger.entries(), desk.accounts()
    paid: dict[str, list[Entry]] = {name: [] for name in sorted(states)}
    for entry in entries:
        for name in entry.also:
            paid.setdefault(name, []).append(entry)
    accounts, paying, plan = {}, desk.groups(), desk.served.plan
    for name, mine in paid.items():
        # Accounts are never closed; one that is younger than this list of them is there the next time.
        if name in states:
            costs = [entry.also[name].charged for entry in mine]
            n_asked = [n_queries(entry) for entry in mine]
            burn = burn_down(states[name].accountant, costs, n_queries=n_asked)
            accounts[name] = BudgetView(
                name, paying.get(name) or desk.stands(states[name]), total(mine), burn
            )
    costs = [entry.charged for entry in entries]
    burn = burn_down(desk.accountant, costs, n_queries=[n_queries(entry) for entry in entries])
    data = BudgetView("", desk.standing(), total(entries), burn)
    people = {} if plan is None else {group.account: group.n_persons for group in plan.groups}
    return Snapshot(data, accounts, entries, desk.served.budget.delta, desk.ledger.spent, people)


def burn_down(accountant: Accountant, costs: Sequence[RdpCurve], *, n_queries: Sequence[int]) -> Points:
    """Return how much epsilon was left after how many queries, at no more points than a page can show.

    >>> from tellers import Budget
    >>> accountant, costs = Accountant(Budget(epsilon=1.0, delta=1e-5)), [RdpCurve.zcdp(0.001)] * 2
    >>> [(n, round(left, 2)) for n, left in burn_down(accountant, costs, n_queries=[1, 1])]
    [(0, 1.0), (1, 0.84), (2, 0.77)]
    """
    epsilon = accountant.budget.epsilon
    points = [(0, epsilon)]
    if not costs:
        return points
    shown = {round(place) for place in np.linspace(0, len(costs) - 1, min(len(costs), _MOST_POINTS))}
    spent, asked = np.zeros_like(costs[0].values), 0
    for number, cost in enumerate(costs):
        spent, asked = spent + cost.values, asked + n_queries[number]
        if number in shown:
            left = epsilon - accountant.epsilon(RdpCurve(cost.orders, spent))
            points.append((asked, max(0.0, left)))
    return points


def outcomes_of(entry: Entry) -> Outcomes:
    """Return what became of the queries of one question.

    >>> entry = Entry("q0", {"n_queries": 3}, RdpCurve.zero(), charged=RdpCurve.zero())
    >>> outcomes_of(entry)
    Outcomes(n_answered=0, n_student=0, n_silent=0, n_lost=3)
    """
    release = entry.release
    if release is None:
        return Outcomes(n_lost=n_queries(entry))
    silent: NDArray[np.bool_] = release.labels < 0
    told: NDArray[np.bool_] = release.answered & ~silent
    if silent.ndim > 1:  # a row of labels is answered where one of them was told
        silent, told = silent.all(axis=1), told.any(axis=1)
    n_silent, n_answered = int(silent.sum()), int(told.sum())
    return Outcomes(n_answered, len(release) - n_silent - n_answered, n_silent)


def total(entries: Sequence[Entry]) -> Outcomes:
    """Return what became of the queries of many questions.

    >>> total([])
    Outcomes(n_answered=0, n_student=0, n_silent=0, n_lost=0)
    """
    counted = [outcomes_of(entry) for entry in entries]
    return Outcomes(
        sum(one.n_answered for one in counted), sum(one.n_student for one in counted),
        sum(one.n_silent for one in counted), sum(one.n_lost for one in counted),
    )  # fmt: skip


def n_queries(entry: Entry) -> int:
    """Return how many queries a question on the books had.

    >>> n_queries(Entry("q0", {"n_queries": 3}, RdpCurve.zero(), charged=RdpCurve.zero()))
    3
    """
    said = entry.event.get("n_queries")
    return int(said) if said is not None else 1 if entry.release is None else len(entry.release)
