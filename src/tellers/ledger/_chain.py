"""Durable ledgers: how questions take turns at the chain of lines, how it is read, and what forks need."""

import json
import os
import signal
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import LedgerConflict
from ..privacy._price import itemised
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.release import Release
from ._lines import Line, LineReader, LineStore, changed, read_release
from ._state import LedgerState, View, checked, require_terms
from ._turns import TurnQueue, TurnTask
from .base import (
    AccountState,
    Entry,
    Head,
    Ticket,
    overrun,
    refuse_known,
    require_account,
    require_key,
    require_storable_event,
)
from .vault import Vault

# Line 0 holds the terms: schema, budget, the rule by which it is held and the grid. After it a named
# account has one line, when it is opened, an item and an event have one, when they are first met, and a
# question has at most two, one when it is reserved and one when it is settled. Checkpoints hold the sums of
# all that stands before them. Lines are only ever added. Values are stored as floats that read back bit for
# bit; under `also`, null stands for what the main account pays. Sealed costs are not stored here at all.

T = TypeVar("T")
NextLines: TypeAlias = "Callable[[LedgerState, _TurnLines, _Write], list[Line]]"

_PAGE = 1000
"""Entries that are read at once."""

_SOON = 0.2
"""Seconds that a reader waits for a turn that goes on, before it reads by itself."""

_MOST_LISTS = 16

_MOMENT = 0.1
"""Seconds after a fork until a Ctrl-C is heard that came meanwhile."""

_MANY = 20_000
"""Questions that are listed for the first time on a connection of its own."""


@dataclass(frozen=True, eq=False)
class Verified:
    """How far a ledger was verified: all lines up to `head`."""

    head: Head
    n_questions: int
    state: LedgerState


class ChainedLedger(ABC):
    """A ledger that is a chain of lines, only ever added to.

    Whoever asks takes turns with other threads: one of them appends the lines of all that wait, with one
    flush. Each sees the budget as the ones before it left it. Readers wait for no writer. Everything that
    decides about money is here and in `LedgerState`, once; how lines are stored is what a backend adds.
    """

    accountant: Accountant
    allow_seeded: bool
    timeout: float
    vault: Vault | None
    _store_errors: ClassVar[tuple[type[Exception], ...]] = ()
    """What storage raises where it fails: nothing of a turn is written then."""
    anchor: Callable[[Head], object] | None = None
    """Told the last line after outcomes are durable, before anybody hears of them.

    It writes the line down elsewhere. What it raises is what those who asked are told: their answers are on
    the ledger, and are given to nobody before it took a line that is not older.
    """

    def _begin(self) -> None:
        """Make what is needed to take turns and to read."""
        self._anchored = -1  # the number of the newest line that the anchor took
        self._turns = TurnQueue(self._turn)
        self._looking, self._checking = threading.RLock(), threading.RLock()
        self._state: LedgerState | None = None
        self._shown: View | None = None
        self._apart: LedgerState | None = None  # read by itself, while another's turn goes on
        self._known: Head | None = None  # the newest line that was seen
        self._listed: dict[str, tuple[int, NDArray[np.int64]]] = {}

    @abstractmethod
    def _title(self) -> str:
        """Return what to call this ledger in a message."""

    @abstractmethod
    def _commit(self, next_lines: Callable[[LineStore], Sequence[Line]], deadline: float) -> None:
        """Append what `next_lines` returns, all or nothing; nobody else writes until it is durable.

        It may be called again where the lines before did not become durable.
        """

    @abstractmethod
    def _look(self, look: Callable[[LineStore], T]) -> T:
        """Return what `look` makes of the ledger as it is at one moment; one thread at a time."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[LineReader]:
        """Read apart from all others, on a connection of its own; each page is as it is at one moment."""

    @abstractmethod
    def _close(self) -> None:
        """Hand back what is open; what is written stays. Nobody is at it."""

    def close(self) -> None:
        """Hand back what is open; what is written stays. A ledger that is used again opens it again."""
        self._turns.hold()
        try:
            with self._looking, self._checking:
                self._close()
        finally:
            self._turns.resume()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- Asking ---

    def open_account(self, name: str, budget: Budget) -> None:
        """Give a student, an analyst or a group a budget of its own, for good."""
        require_account(name, budget, beside=self.accountant)
        self._require_key(name)
        self._write(lambda state, _turn, _write: state.write_account(name, budget))

    def reserve(
        self, key: str, price: RdpCurve, *, event: dict[str, Any], also: Mapping[str, RdpCurve] | None = None
    ) -> Ticket:
        """Debit a price, and named accounts theirs, before any noise is drawn; durable when this returns."""
        return _the_one(self.reserve_all([(key, price, event, also)]))

    def reserve_all(
        self, asked: Sequence[tuple[str, RdpCurve, dict[str, Any], Mapping[str, RdpCurve] | None]]
    ) -> list[Ticket | Exception]:
        """Debit several questions in order, with one flush: key, price, event and accounts of each.

        What is refused stands in the place of its ticket, and keeps no other from being granted.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> ledger = SqliteLedger(tempfile.mkdtemp() + "/spend.db", Accountant(Budget(1.0, 1e-5)))
        >>> asked = [(key, RdpCurve.zcdp(0.02), {"noise": "secure"}, None) for key in ("q0", "q1")]
        >>> [type(found).__name__ for found in ledger.reserve_all(asked)]
        ['Ticket', 'BudgetExhausted']
        """
        found: list[Ticket | Exception] = []
        writes: dict[int, _Write] = {}
        for key, price, event, also in asked:
            try:
                stored = require_storable_event(key, event, allow_seeded=self.allow_seeded)
                self._require_key(key)
                ticket = Ticket(key, price, stored, dict(also or {}))
                self._work_out(price, *ticket.also.values())
                writes[len(found)] = _Write(partial(_reserving, ticket), "reserved", key)
                found.append(ticket)
            except Exception as error:
                found.append(error)
        self._write_all(list(writes.values()))
        for at, write in writes.items():
            found[at] = write.error or found[at]
        return found

    def settle(self, ticket: Ticket, release: Release, *, used: Mapping[str, RdpCurve] | None = None) -> None:
        """Record the outcome and give back what was not used, to every account.

        A named account is charged what `used` says of it; without that, what the main account is charged if
        the same was reserved on both, and else all that was reserved.
        """
        _the_one(self.settle_all([(ticket, release, used)]))

    def settle_all(
        self, outcomes: Sequence[tuple[Ticket, Release, Mapping[str, RdpCurve] | None]]
    ) -> list[Exception | None]:
        """Record the outcomes of several questions in order, with one flush; what is refused is returned.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, Cost, Release, SqliteLedger
        >>> one = RdpCurve.zcdp(0.01)
        >>> ledger = SqliteLedger(tempfile.mkdtemp() + "/spend.db", Accountant(Budget(1.0, 1e-5)))
        >>> ticket = ledger.reserve("q0", one, event={"noise": "secure"})
        >>> ledger.settle_all([(ticket, Release([3], Cost(one)), None)])
        [None]
        """
        found: list[Exception | None] = [None] * len(outcomes)
        writes: dict[int, _Write] = {}
        for at, (ticket, release, used) in enumerate(outcomes):
            try:
                require_key(ticket.key)
                self._require_key(ticket.key)
                self._work_out(release.cost.worst, *dict(used or {}).values())
                writes[at] = _Write(partial(_settling, ticket.key, release, used), "settled", ticket.key)
            except Exception as error:
                found[at] = error
        self._write_all(list(writes.values()))
        for at, write in writes.items():
            ticket, release, _ = outcomes[at]
            try:
                if write.error is not None:
                    raise write.error
                if self.vault is not None and release.cost.tight is not None:
                    self.vault.put(ticket.key, release.cost.tight)
                if not write.all_kept:
                    raise overrun(ticket.key)
            except Exception as error:
                found[at] = error
        return found

    def _require_key(self, key: str) -> None:  # noqa: B027 (most backends store any)
        """Refuse a key that cannot be stored."""

    def _work_out(self, *prices: RdpCurve) -> None:
        """Work out the tables of a clock before the ledger is held: it takes seconds, and others wait."""
        if self.accountant.clock is not None:
            for price in prices:
                for _, item, _ in itemised(price).terms:
                    item.table(self.accountant.clock.kappa)

    def trust(self, said: Mapping[str, Any]) -> None:
        """Write down that this ledger is trusted although something speaks against it, and what does.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> ledger = SqliteLedger(tempfile.mkdtemp() + "/spend.db", Accountant(Budget(1.0, 1e-5)))
        >>> ledger.trust({"why": "restored from the backup of Monday"})
        >>> ledger.head.number
        1
        """
        self._write(lambda state, _turn, _write: state.write_note("trusted", dict(said)))

    def end(self, said: Mapping[str, Any]) -> None:
        """Write the last line: the ledger goes on elsewhere, and nothing is spent from this one again."""
        self._write(lambda state, _turn, _write: state.write_note("closed", dict(said)))

    def _write(self, next_lines: "NextLines") -> None:
        write = _Write(next_lines)
        self._write_all([write])
        if write.error is not None:
            raise write.error

    def _write_all(self, writes: "Sequence[_Write]") -> None:
        """Wait for the turn in which these are written, or refused one by one."""
        if writes and not self._turns.take(TurnTask(writes, time.monotonic() + self.timeout)):
            raise self._busy()

    def _busy(self) -> TimeoutError:
        return TimeoutError(
            f"Expected {self._title()} to be free within {self.timeout:g} s, others hold it. "
            "Nothing was written; try again, or look for a process that hangs."
        )

    def _turn(self, deadline: float, begin: Callable[[], list[TurnTask]]) -> None:
        """Do what all that wait have asked for: append their lines, in order, with one flush."""
        batch: list[TurnTask] = []
        settling: list[_Write] = []

        def next_lines(store: LineStore) -> list[Line]:
            if batch:
                self._state = None  # what an earlier try added up is not on the disk
            batch[:], settling[:] = begin(), []
            writes: list[_Write] = [write for task in batch for write in task.what]
            turn = _TurnLines(store, writes)  # first: a server tells its last line beside them
            state = self._caught_up(store)
            lines: list[Line] = []
            for write in writes:
                write.error, before = None, state.head
                try:
                    found = write.next_lines(state, turn, write)
                except Exception as error:  # whoever asked is told, and the others go on
                    if state.head is not before or isinstance(error, self._store_errors):
                        raise
                    write.error = error
                else:
                    turn.note(found)
                    lines += found
                    if found and found[-1].kind == "settled":
                        settling.append(write)
            if lines:
                lines += state.write_checkpoint()
            return lines

        try:
            self._commit(next_lines, deadline)
        except BaseException:
            # What the state added up may not be on the disk; it is read again.
            self._state = None
            raise
        if self._state is not None:
            self._show(self._state)
            if settling:
                try:
                    self._require_anchored(self._known)
                except Exception as error:
                    for write in settling:
                        write.error = error

    def _require_anchored(self, head: Head | None) -> None:
        """See that the anchor took a line that is not older than this one, before it is told to anybody."""
        if self.anchor is not None and head is not None and head.number > self._anchored:
            self.anchor(head)
            self._anchored = max(self._anchored, head.number)

    def _show(self, state: LedgerState) -> View:
        self._shown, self._apart = state.show(), None
        self._known = Head(self._shown.head.number, self._shown.head.hash)
        return self._shown

    def _caught_up(self, store: LineStore) -> LedgerState:
        """Return the state with all that others wrote read in, each line checked against the one before."""
        state, self._state = self._state, None
        self._state = self._followed(state, store)
        return self._state

    def _followed(self, state: LedgerState | None, store: LineStore) -> LedgerState:
        find = partial(_reserved, store)
        if state is None:
            known = None if self._known is None else self._known.number
            state = LedgerState.at_checkpoint(store, find, known=known) or LedgerState(find)
            self._require_known(store)
            if state.head is not None:
                require_terms(state.terms, self.accountant, self._title())
        state.find = find
        head = state.head
        if head is not None and store.head() == (head.number, head.hash):
            return state
        lines = store.after(-1 if head is None else head.number - 1)
        if head is not None and next(lines, None) != head:
            raise self._lost()
        if head is None:
            state.find = None
        for line in lines:
            state.add(line)
        state.find = find
        if head is None:
            require_terms(state.terms, self.accountant, self._title())
        return state

    def _require_known(self, store: LineStore) -> None:
        """Refuse a ledger that lost what was seen of it before."""
        known = self._known
        if known is not None and [line.hash for line in store.numbered([known.number])] != [known.hash]:
            raise self._lost()

    def _lost(self) -> LedgerConflict:
        return LedgerConflict(
            f"{self._title()} lost lines that it had, or they were changed, while it was in use. "
            "Restore it from a backup and do not spend on it."
        )

    # --- Looking ---

    def view(self) -> View:
        """Return the sums as they are now, with all that anybody wrote."""
        return self._seen(self._view)

    @property
    def newest(self) -> View:
        """Return the sums as this program last saw them; the ledger is not looked at again."""
        return self._shown or self.view()

    def _seen(self, look: Callable[[LineStore, View | None], T]) -> T:
        """Return what `look` makes of the ledger, and of what was shown before it began to look."""
        shown = self._shown  # first: what is stored is never less than what was shown before
        return self._look(lambda store: look(store, shown))

    def _view(self, store: LineStore, shown: View | None) -> View:
        at = store.head()
        if shown is not None:
            if at == (shown.head.number, shown.head.hash):
                return shown
            if at is None or at[0] <= shown.head.number:
                raise self._lost()
        number = -1 if at is None else at[0]
        if not self._turns.hold_if_free():
            # What a turn wrote is shown when it ends; one that waits for another program may take long.
            until = time.monotonic() + _SOON
            while self._turns.is_busy and time.monotonic() < until and self._is_older(number):
                time.sleep(0.001)
            if not self._is_older(number):
                assert self._shown is not None
                return self._shown
            if not self._turns.hold_if_free():
                apart, self._apart = self._apart, None  # a Ctrl-C would leave half a line in it
                apart = self._apart = self._followed(apart, store)
                return apart.show()
        try:
            if self._shown is not None and not self._is_older(number):
                return self._shown  # a turn that ended meanwhile went further than this look
            return self._show(self._caught_up(store))
        finally:
            self._turns.resume()

    def _is_older(self, number: int) -> bool:
        return self._shown is None or self._shown.head.number < number

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited to the main account so far, by anyone, reservations included."""
        return self.view().sums[None].spent

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account, with everything debited to it so far, reservations included."""
        return accounts_of(self.view())

    @property
    def head(self) -> Head:
        """Return number and hash of the last line."""
        head = self.view().head
        return Head(head.number, head.hash)

    def holds(self, head: Head) -> bool:
        """Return whether the line of this number has this hash."""
        found = self._look(lambda store: store.numbered([head.number]))
        return [line.hash for line in found if line.is_intact] == [head.hash]

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None."""

        def look(store: LineStore, shown: View | None) -> tuple[Release | None, Head | None]:
            settled = store.named("settled", [key]).get(key)
            if settled is None:
                return None, None
            outcome = _body(settled)
            if outcome["release"] is None:
                return None, None
            state = self._view_of(settled, store, shown).state
            release = read_release(outcome, state.bills.price(state.bills.read(outcome["charged"])))
            return release, Head(settled.number, settled.hash)

        release, head = self._seen(look)
        self._require_anchored(head)
        return release

    def asked(self, key: str) -> dict[str, Any] | None:
        """Return the event that a key was reserved for, settled or not, or None."""
        return self.recall([key])[0].get(key)

    def recall(self, keys: Sequence[str]) -> tuple[dict[str, dict[str, Any]], View]:
        """Return the events of those of some keys that were reserved, settled or not, and the sums."""

        def look(store: LineStore, shown: View | None) -> tuple[dict[str, dict[str, Any]], View]:
            found, view = store.named("reserved", keys), self._view(store, shown)
            return {key: view.state.event(_body(line), store) for key, line in found.items()}, view

        return self._seen(look)

    def _view_of(self, line: Line, store: LineStore, shown: View | None) -> View:
        """Return a view that knows what a line refers to."""
        newest = self._shown
        is_known = newest is not None and line.number <= newest.head.number
        return newest if newest is not None and is_known else self._view(store, shown)

    def count(self, begins: str = "") -> int:
        """Return how many questions were asked, or only those whose keys begin with something."""
        return self.view().n_questions if not begins else len(self._listing(begins))

    def entries(self, *, after: int = 0, limit: int | None = None, begins: str = "") -> list[Entry]:
        """Return everything on the ledger, oldest first, or a page of it.

        `after` leaves out so many at the beginning, `limit` ends it, and `begins` names what keys begin with.
        """
        numbers = self._listing(begins)
        wanted = numbers[after : None if limit is None else after + limit].tolist()
        found: list[Entry] = []
        for at in range(0, len(wanted), _PAGE):
            page, head = self._seen(partial(self._page, wanted[at : at + _PAGE]))
            self._require_anchored(head)
            found += page
        return found

    def _listing(self, begins: str) -> NDArray[np.int64]:
        """Return the numbers of the lines of questions; others look meanwhile where it takes long."""
        if begins in self._listed or self.newest.n_questions < _MANY:
            return self._look(partial(self._numbers, begins=begins))
        with self._reading() as store:
            return self._numbers(store, begins)

    def _numbers(self, store: LineReader, begins: str) -> NDArray[np.int64]:
        """Return the numbers of the lines of questions; those that were listed before are not read again."""
        last, known = self._listed.pop(begins, (-1, np.zeros(0, dtype=np.int64)))
        head = store.head()
        if head is not None and head[0] > last:
            new = np.asarray(store.of_kind("reserved", begins, after=last), dtype=np.int64)
            new = new[new <= head[0]]  # others may have written since
            last, known = head[0], np.concatenate([known, new]) if new.size else known
        while len(self._listed) >= _MOST_LISTS:
            del self._listed[next(iter(self._listed))]
        self._listed[begins] = last, known
        return known

    def _page(
        self, numbers: Sequence[int], store: LineStore, shown: View | None
    ) -> tuple[list[Entry], Head | None]:
        reserved = store.numbered(numbers)
        if [line.number for line in reserved] != list(numbers):
            raise self._lost()
        settled = store.named("settled", [line.key for line in reserved])
        if not reserved:
            return [], None
        newest = max([reserved[-1], *settled.values()], key=lambda line: line.number)
        state = self._view_of(newest, store, shown).state
        for line in (*reserved, *settled.values()):
            if not line.is_intact:
                raise changed(line.number)
        told = max(settled.values(), key=lambda line: line.number, default=None)
        head = None if told is None else Head(told.number, told.hash)
        return [state.entry(line, settled.get(line.key), store) for line in reserved], head

    def lines(self) -> Iterator[Line]:
        """Yield the chain as it is written, every line checked against the one before."""
        with self._reading() as store:
            yield from checked(store.after(-1))

    def verify(self, head: str | None = None) -> str:
        """Read all of the ledger again, check every hash, and return the last one.

        A chain cut short still holds together. `head` is what an earlier call returned: it must still be
        in the chain. Others go on meanwhile.
        """
        return self.verified(head).hash

    def verified(self, head: str | None = None, *, look: Callable[[Line], object] | None = None) -> Head:
        """Verify all of the ledger, and return the last line that was read; `look` is told every line."""
        found = head is None

        def compare(line: Line) -> None:
            nonlocal found
            found = found or line.hash == head
            if look is not None:
                look(line)

        verified = self.verify_from(None, look=compare)
        if not found:
            raise LedgerConflict(
                f"{self._title()} does not hold the line with hash {str(head)[:16]}..., which it held "
                "before. It was replaced or cut short; restore it from a backup."
            )
        return verified.head

    def verify_from(
        self, verified: Verified | None, *, look: Callable[[Line], object] | None = None
    ) -> Verified:
        """Verify what came after an earlier verification, and return how far it came; None begins anew.

        `look` is told every line, and may end it with an exception.
        """
        state = LedgerState() if verified is None else verified.state
        with self._reading() as store:
            store.require_rules()
            head = state.head
            lines = store.after(-1 if head is None else head.number - 1)
            if head is not None and next(lines, None) != head:
                raise self._lost()
            for line in lines:
                state.add(line)
                if look is not None:
                    look(line)
            if head is None:
                require_terms(state.terms, self.accountant, self._title())
        assert state.head is not None
        return Verified(Head(state.head.number, state.head.hash), state.n_questions, state)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one reader in at a time; others wait for it as long as for another program, not for ever."""
        lock = self._looking
        if not lock.acquire(timeout=self.timeout):
            raise TimeoutError(
                f"Expected {self._title()} to be free within {self.timeout:g} s, another thread holds it. "
                "Nothing was written; try again."
            )
        try:
            yield
        finally:
            lock.release()


class _Write:
    """What is to be written in a turn, of which kind and under which key, and what came of it."""

    __slots__ = ("all_kept", "error", "key", "kind", "next_lines")

    def __init__(self, next_lines: "NextLines", kind: str = "", key: str | None = None) -> None:
        self.next_lines, self.kind, self.key = next_lines, kind, key
        self.error: Exception | None = None
        self.all_kept = True


def _reserving(ticket: Ticket, state: LedgerState, turn: "_TurnLines", _write: _Write) -> list[Line]:
    key = ticket.key
    if turn.line("reserved", key) is not None:
        refuse_known(key, is_settled=turn.line("settled", key) is not None)
    return state.write_reserved(key, ticket.price, ticket.also, ticket.event, turn)


def _settling(
    key: str,
    release: Release,
    used: Mapping[str, RdpCurve] | None,
    state: LedgerState,
    turn: "_TurnLines",
    write: _Write,
) -> list[Line]:
    is_settled = turn.line("settled", key) is not None
    lines, write.all_kept = state.write_settled(key, release, used, is_settled=is_settled)
    return lines


def _the_one(found: Sequence[T | Exception]) -> T:
    (one,) = found
    if isinstance(one, Exception):
        raise one
    return one


class _TurnLines:
    """What a turn at the chain is looking at: the store, and lines that are not in it yet."""

    def __init__(self, store: LineStore, writes: "Iterable[_Write]") -> None:
        self.store = store
        self._found: dict[tuple[str, str], Line | None] = {}
        wanted: dict[str, list[str]] = {}
        for write in writes:
            if write.key is not None:
                wanted.setdefault(write.kind, []).append(write.key)
        for kind, keys in wanted.items():  # at once: each look may be a journey to a server
            found = store.named(kind, list(dict.fromkeys(keys)))
            self._found.update({(kind, key): found.get(key) for key in keys})

    def line(self, kind: str, key: str) -> Line | None:
        if (kind, key) not in self._found:
            self._found[kind, key] = self.store.named(kind, [key]).get(key)
        return self._found[kind, key]

    def named(self, kind: str, keys: Sequence[str]) -> dict[str, Line]:
        return {key: line for key in keys if (line := self.line(kind, key)) is not None}

    def note(self, lines: Iterable[Line]) -> None:
        self._found.update({(line.kind, line.key): line for line in lines})


def accounts_of(view: View) -> dict[str, AccountState]:
    """Return the named accounts of a view."""
    return {name: sums.state for name, sums in view.sums.items() if name is not None}


def _reserved(store: LineStore, key: str) -> Line | None:
    return store.named("reserved", [key]).get(key)


def _body(line: Line) -> dict[str, Any]:
    if not line.is_intact:
        raise changed(line.number)
    body: dict[str, Any] = json.loads(line.body)
    return body


# Fork safety: every ledger is closed before a fork, and both sides open it again
#
# A child must not use, or even close, a file or a connection that its parent opened, and it waits for ever
# for a thread that was inside a library. So a ledger is only ever entered in a turn or with its readers' lock
# held, and a fork takes all of these, closes what is open, and gives the child new ones.

BEFORE_FORK: list[Callable[[], None]] = []
"""What else to do before a fork, with all locks held."""

_LEDGERS: "weakref.WeakSet[ChainedLedger]" = weakref.WeakSet()
# Held from before a fork until after it: meanwhile no ledger is made, and no other thread forks.
_gate = threading.RLock()
_handed_back: list[ChainedLedger] = []
# What Python does at a Ctrl-C, while a fork has it wait; and whether there was one.
_at_ctrl_c: Any = None
_was_pressed = False


@contextmanager
def no_forks() -> Iterator[None]:
    """Let forks wait for what is open beside the ledgers, for a moment."""
    with _gate:
        yield


def watch_forks(ledger: ChainedLedger) -> None:
    """Take care of a ledger at every fork from now on."""
    with _gate:
        _LEDGERS.add(ledger)


def _note_ctrl_c(*_given: object) -> None:
    global _was_pressed
    _was_pressed = True


def _hold_ctrl_c() -> Any:
    """Let Ctrl-C wait, and return what is done at one, or None where it interrupts nothing here."""
    found = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(found):
        return None
    signal.signal(signal.SIGINT, _note_ctrl_c)
    return found


def _let_ctrl_c(*, come: bool) -> None:
    global _at_ctrl_c, _was_pressed
    found, _at_ctrl_c = _at_ctrl_c, None
    if found is not None:
        if _was_pressed and come:  # a moment later, for here it would be lost
            here = (threading.get_ident(), signal.SIGINT)
            later = threading.Timer(_MOMENT, signal.pthread_kill, here)
            later.daemon = True
            later.start()
        _was_pressed = False
        signal.signal(signal.SIGINT, found)


def _before_fork() -> None:
    global _at_ctrl_c
    # What is raised in here is shown and no more: the fork would go on, with ledgers that are open.
    found = _hold_ctrl_c()
    _gate.acquire()
    _at_ctrl_c = found
    _handed_back[:] = _LEDGERS
    for ledger in _handed_back:
        ledger._turns.hold()
        ledger._looking.acquire()
        ledger._checking.acquire()
        with suppress(Exception):  # a connection that cannot be closed is a dead one
            ledger._close()
    for act in BEFORE_FORK:
        act()


def _after_fork_in_parent() -> None:
    for ledger in _handed_back:
        ledger._checking.release()
        ledger._looking.release()
        ledger._turns.resume()
    _handed_back.clear()
    try:
        _let_ctrl_c(come=True)
    finally:
        _gate.release()


def _after_fork_in_child() -> None:
    global _gate
    for ledger in _handed_back:
        ledger._turns = TurnQueue(ledger._turn)
        ledger._looking, ledger._checking = threading.RLock(), threading.RLock()
    _handed_back.clear()
    _gate = threading.RLock()
    _let_ctrl_c(come=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
