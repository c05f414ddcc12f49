"""The label service: a student's question becomes a question to the room, under the student's own key."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import Unsettled
from ..ledger._chain import ChainedLedger, accounts_of
from ..ledger._state import View
from ..ledger.base import AccountState, Entry
from ..ledger.witness import Anchor
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..runs.room import Room, RoomQuestion
from ._aside import Aside
from ._ledger import AccountAnswer, account_name, budget_status, group_statuses
from ._teachers import Served
from ._verifying import LedgerCheck, Verdict

_PATIENCE_SECONDS = 30.0
_MOST_WAITING = 8


class StudentQuestion(NamedTuple):
    """A question of a student: rows, or ids of the pool, and what the student believes."""

    student: str
    key: str
    rows: list[list[float]] | None = None
    pool: list[int] | None = None
    belief: list[list[float]] | None = None


@dataclass(eq=False)
class LabelService:
    """Ask for students; each has keys of its own, and an account of its own where one was opened."""

    served: Served
    ledger: ChainedLedger
    noise: Noise
    unsealed: Callable[[BaseException], object] | None = None  # told why a cost did not reach the vault
    verified: Callable[[Verdict], object] | None = None  # told what a verification found
    closing: list[Callable[[], object]] = field(default_factory=list, repr=False)  # what ends before it does
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _busy: dict[str, list[Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # One thread: how long an exact cost takes depends on the votes, and no answer waits for it.
        self._sealing = ThreadPoolExecutor(1, thread_name_prefix="vault")
        self.room = Room(
            self.served.ensemble, self.served.mechanism, self.ledger, self.noise, later=self._seal,
            plan=self.served.plan, exhausted_leave=self.served.leave,
        )  # fmt: skip
        self.accountant = self.ledger.accountant
        self.price = self.room.price(1)
        plan = self.served.plan
        self.mechanism = self.served.mechanism if plan is None else plan.mechanism
        self._asides: list[Aside] = []
        self.check = LedgerCheck(self.ledger, self.new_aside(), told=self.verified)

    def new_aside(self) -> Aside:
        """Return a process that reads the ledger beside this one, until the service is closed."""
        self._asides.append(Aside(self.ledger))
        return self._asides[-1]

    def ask_all(self, asked: "Sequence[StudentQuestion]") -> list[tuple[Release, bool] | Exception]:
        """Answer several questions, the ledger's flushes shared; where one is not answered, say why.

        The second of two with one key waits, and finds the answer of the first.
        """
        self.check.require()
        found: list[Any] = [None] * len(asked)
        new: list[tuple[int, RoomQuestion]] = []
        with ExitStack() as stack:
            held: dict[str, int] = {}
            for at, one in enumerate(asked):
                name = ledger_key(one.student, one.key)
                if name not in held and stack.enter_context(self._alone(name, waits=False)):
                    held[name] = at
            events, view = self.ledger.recall(list(held))
            for name, at in held.items():
                if name in events:
                    continue
                one, account = asked[at], account_name(asked[at].student)
                try:
                    question = self.served.question(one.rows, one.pool)
                    heard = self.served.belief(one.belief, len(question))
                    new.append(
                        (at, RoomQuestion(question, name, heard, account if account in view.sums else None))
                    )
                except Exception as error:
                    found[at] = error
            if new:
                outcomes = self._asked_now([one for _, one in new])
                for (at, _), outcome in zip(new, outcomes, strict=True):
                    found[at] = outcome if isinstance(outcome, Exception) else (outcome, False)
        away: Exception | None = None
        for at, one in enumerate(asked):
            if found[at] is None:  # asked before, or being asked
                try:
                    found[at] = away or self.ask(
                        one.student, one.key, rows=one.rows, pool=one.pool, belief=one.belief
                    )
                except Exception as error:
                    found[at] = error
                    if isinstance(error, (TimeoutError, ConnectionError)):
                        away = error  # those who wait for a ledger do not wait one after the other
        return found

    def _asked_now(self, new: list[RoomQuestion]) -> list[Release | Exception]:
        try:
            self._require_witness()
        except Exception as error:
            return [error] * len(new)
        return self.room.ask_all(new)

    def _require_witness(self) -> None:
        """Refuse to ask what the witness cannot note."""
        if isinstance(self.ledger.anchor, Anchor):
            self.ledger.anchor.catch_up()

    def ask(
        self,
        student: str,
        key: str,
        *,
        rows: list[list[float]] | None = None,
        pool: list[int] | None = None,
        belief: list[list[float]] | None = None,
    ) -> tuple[Release, bool]:
        """Answer a student's question, and say whether it was answered under the same key before."""
        self.check.require()
        question = self.served.question(rows, pool)
        heard = self.served.belief(belief, len(question))
        name = ledger_key(student, key)
        # Two at once with one key: the second waits, and finds the answer of the first.
        with self._alone(name):
            asked = self.ledger.asked(name)
            if asked is None:
                self._require_witness()
                is_replay, account = False, account_name(student)
                pays = account if account in self.ledger.view().sums else None
            else:
                # Who paid is on the books; an account opened since does not make it another question.
                is_replay, pays = self.ledger.find(name) is not None, asked.get("account")
            return self.room.ask(question, key=name, student=heard, account=pays), is_replay

    def budget_status(self, view: View | None = None) -> AccountAnswer:
        """Return the status of the data's budget; what is left of it is what all groups can pay for.

        `view` are the sums to go by, without it those of now.
        """
        view = view or self.ledger.view()
        status = budget_status(self.accountant, view.sums[None].spent, price=self.price)
        if self.served.plan is None:
            return status
        lasts = [one.queries_left for one in self.groups(view).values()]
        if self.served.leave:
            lasts = [n for n in lasts if n] or lasts[:1]
        return status.model_copy(update={"queries_left": min([status.queries_left, *lasts])})

    def groups(self, view: View | None = None) -> dict[str, AccountAnswer]:
        """Return the status of every group's account, by its name in the ledger."""
        plan = self.served.plan
        if plan is None:
            return {}
        found = group_statuses(plan, accounts_of(view or self.ledger.view()), leave=self.served.leave)
        return {group.account: found[group.name] for group in plan.groups}

    def own(self, student: str, view: View | None = None) -> AccountAnswer | None:
        """Return the status of a student's own account, or None where there is none."""
        sums = (view or self.ledger.view()).sums.get(account_name(student))
        return None if sums is None else self.account_status(sums.state)

    def account_status(self, state: AccountState) -> AccountAnswer:
        return budget_status(state.accountant, state.spent, price=self.price)

    def releases(
        self, student: str | None = None, *, after: int, limit: int
    ) -> tuple[list[tuple[int, str, str, Entry]], int]:
        """Return number, student, key and entry of a page of questions, oldest first, and how many there are.

        A student's are numbered by themselves: a place in the ledger would tell how much others asked.
        """
        begins = "" if student is None else ledger_key(student, "")
        total = self.ledger.count(begins)
        page = self.ledger.entries(after=after, limit=limit, begins=begins)
        return [(after + at, *owner(entry.key), entry) for at, entry in enumerate(page)], total

    def close(self) -> None:
        """Put what is left to put into the vault, and hand the ledger back."""
        for act in self.closing:
            act()
        self._sealing.shutdown(wait=True)
        self.check.close()
        for aside in self._asides:
            aside.close()
        self.ledger.close()

    def _seal(self, work: Callable[[], None]) -> None:
        def told() -> None:
            try:
                work()
            except Exception as error:  # the answer is out and on the books: it does not fail with this
                if self.unsealed is not None:
                    self.unsealed(error)

        self._sealing.submit(told)

    @contextmanager
    def _alone(self, name: str, *, waits: bool = True) -> Iterator[bool]:
        """Hold a question while it is answered; without waiting, say whether it is held."""
        with self._guard:
            busy = self._busy.setdefault(name, [threading.Lock(), 0])
            if waits and busy[1] > _MOST_WAITING:
                # Each of them holds a thread that others could use.
                raise Unsettled("The same question is being answered for others already. Try again.")
            busy[1] += 1
        try:
            is_held = busy[0].acquire(timeout=_PATIENCE_SECONDS if waits else 0)
            if waits and not is_held:
                raise Unsettled("The same question is still being answered. Try the same key again.")
            try:
                yield is_held
            finally:
                if is_held:
                    busy[0].release()
        finally:
            with self._guard:
                busy[1] -= 1
                if not busy[1]:
                    self._busy.pop(name, None)


def silent_queries(release: Release) -> NDArray[np.bool_]:
    """Return which queries met silence; a row of labels did where none of them was told."""
    silent: NDArray[np.bool_] = release.labels < 0
    return silent if silent.ndim == 1 else silent.all(axis=1)


def ledger_key(student: str, key: str) -> str:
    """Return the key in the ledger of a student's idempotency key; no two students share one."""
    return f"student/{student}/{key}"


def owner(key: str) -> tuple[str, str]:
    """Return the student and the idempotency key of a key in the ledger; others have no student."""
    key = key.encode("utf-8", "backslashreplace").decode("utf-8")  # what cannot be sent is spelled out
    kind, _, rest = key.partition("/")
    student, slash, own = rest.partition("/")
    return (student, own) if kind == "student" and slash else ("", key)
