"""What durable ledgers have in common: the rules of reserving and settling, over a chain of lines.

A backend brings two things: a way to read lines, and a way to append one while nobody else can. Everything
that decides about money is here, once.
"""

import json
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from ..budget import Accountant, Budget
from ..errors import LedgerConflict
from ..rdp import DEFAULT_ORDERS, RdpCurve
from ..release import Release
from .accounts import charge_all, require_account, require_affordable, require_same
from .base import (
    AccountState,
    Charge,
    Entry,
    Ticket,
    refuse_known,
    refuse_overrun,
    refuse_unknown,
    require_bookable,
)
from .chain import Book, Line, read_release, write_also, write_curve, write_release
from .groups import require_groups_pay
from .vault import Vault

T = TypeVar("T")


class Pages(Protocol):
    """The lines of one ledger, at one moment."""

    def all(self) -> Iterator[Line]:
        """Return all lines in order, as they are."""
        ...

    def after(self, number: int) -> Iterator[Line]:
        """Return the lines after one in order, as they are."""
        ...

    def some(self, kind: str, key: str) -> Iterator[Line]:
        """Return the lines of one kind about one key, as they are."""
        ...

    def require_rules(self) -> None:
        """Refuse books whose own rules, which keep them append-only, were changed."""
        ...


class ChainedLedger(ABC):
    """A ledger whose books are a chain of lines that is only ever added to.

    >>> import tempfile
    >>> from tellers import Accountant, Budget, SqliteLedger
    >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
    >>> ledger = SqliteLedger(path, accountant)
    >>> isinstance(ledger, ChainedLedger)
    True
    >>> ledger.close()
    """

    accountant: Accountant
    allow_seeded: bool
    timeout: float
    vault: Vault | None
    _book: Book
    _lock: threading.RLock
    # Questions as of a line, so that they are not read again; replaced as a whole, never changed.
    _known: tuple[Line | None, dict[str, Entry]] = (None, {})

    @abstractmethod
    def _title(self) -> str:
        """Return what to call these books in a message."""

    @abstractmethod
    def _read(self, look: Callable[[Pages], T]) -> T:
        """Return what `look` makes of the books as they are now, with all that others wrote read in."""

    @abstractmethod
    def _write(self, next_line: Callable[[], Line | None]) -> None:
        """Append what `next_line` returns; nobody else writes from before the call until it is durable."""

    @abstractmethod
    def close(self) -> None:
        """Hand back what is open; what is written stays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def spent(self) -> RdpCurve:
        """Return everything debited to the main account so far, by anyone, reservations included."""
        return self._read(lambda _: self._book.spent)

    def open_account(self, name: str, budget: Budget) -> None:
        """Give a student, an analyst or a group a budget of its own, for good.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ledger.open_account("student/alice", Budget(epsilon=1.0, delta=1e-5))
        >>> ledger.accounts()["student/alice"].epsilon
        0.0
        """
        require_account(name, budget)

        def next_line() -> Line | None:
            held = self._book.accountants.get(name)
            if held is not None:
                require_same(name, held, budget)
                return None
            terms = {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}
            body = {**terms, "held_at": Accountant(budget).held_at}
            return Line.after(self._book.head, "account", key=name, body=body)

        self._write(next_line)

    def accounts(self) -> dict[str, AccountState]:
        """Return every named account, with everything debited to it so far, reservations included.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> SqliteLedger(path, accountant).accounts()
        {}
        """
        return self._read(lambda _: self._book.accounts())

    def find(self, key: str) -> Release | None:
        """Return the recorded release of a key, or None.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> SqliteLedger(path, accountant).find("q0") is None
        True
        """

        def look(pages: Pages) -> Release | None:
            if key not in self._book.settled:
                return None
            body = self._body(pages, "settled", key)
            return read_release(body, self._book.curve(body["charged"]))

        return self._read(look)

    def asked(self, key: str) -> dict[str, Any] | None:
        """Return the event that a key was reserved for, settled or not, or None.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.asked("q0"), ledger.asked("q1")
        ({'noise': 'secure'}, None)
        """

        def look(pages: Pages) -> dict[str, Any] | None:
            if key not in self._book.settled and key not in self._book.pending:
                return None
            event: dict[str, Any] = self._body(pages, "reserved", key).get("event", {})
            return event

        return self._read(look)

    def reserve(
        self,
        key: str,
        price: RdpCurve,
        *,
        event: dict[str, Any],
        also: Mapping[str, RdpCurve] | None = None,
    ) -> Ticket:
        """Debit a price, and named accounts theirs, before any noise is drawn; durable when this returns.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> SqliteLedger(path, accountant).reserve("q0", RdpCurve.zcdp(9.0), event={"noise": "secure"})
        Traceback (most recent call last):
            ...
        tellers.errors.BudgetExhausted: Query 'q0' would take epsilon to ..., past the budget of 1.0. ...
        """
        stored = require_bookable(key, event, allow_seeded=self.allow_seeded)
        named = dict(also or {})

        def next_line() -> Line:
            book = self._book
            if key in book.pending or key in book.settled:
                refuse_known(key, is_settled=key in book.settled)
            self.accountant.require(book.spent, price, key=key)
            require_groups_pay(key, named, event=stored, accounts=book.accountants)
            states = {name: book.account(name) for name in named if name in book.accountants}
            require_affordable(key, named, accounts=states)
            # Two who ask the same at once would write the same line, and one whose commit was lost would take
            # the other's for its own: no two reservations have the same mark.
            mark = secrets.token_hex(8)
            body = {"event": stored, "price": write_curve(price), "mark": mark, **write_also(named, price)}
            return Line.after(book.head, "reserved", key=key, body=body)

        self._write(next_line)
        return Ticket(key, price, json.loads(json.dumps(stored)), named)

    def settle(self, ticket: Ticket, release: Release, *, used: Mapping[str, RdpCurve] | None = None) -> None:
        """Record the outcome and give back what was not used, to every account.

        A named account is charged what `used` says of it; without that, what the main account is charged if
        the same was reserved on both, and else all that was reserved.

        >>> import tempfile
        >>> import numpy as np
        >>> from tellers import Accountant, Budget, Cost, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.settle(ticket, Release(np.array([3]), Cost(RdpCurve.zcdp(0.05))))
        >>> float(ledger.spent.values[0]) == 1.25 * 0.05, ledger.find("q0").labels
        (True, array([3]))
        """
        key, all_kept = ticket.key, True

        def next_line() -> Line:
            nonlocal all_kept
            # The books and not the ticket say what was reserved.
            reserved = self._book.pending.get(key)
            if reserved is None:
                refuse_unknown(key, is_settled=key in self._book.settled)
            charged, named, all_kept = charge_all(
                key, reserved.price, reserved.also, worst=release.cost.worst, used=used
            )
            shown = write_release(release) if all_kept else None
            body = {"charged": write_curve(charged), "release": shown, **write_also(named, charged)}
            return Line.after(self._book.head, "settled", key=key, body=body)

        self._write(next_line)
        if self.vault is not None and release.cost.tight is not None:
            self.vault.put(key, release.cost.tight)
        if not all_kept:
            refuse_overrun(key)

    def entries(self) -> list[Entry]:
        """Return everything on the books, oldest first.

        What was read and checked before is not read again; `verify` reads everything.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> [(entry.key, entry.event, entry.is_settled) for entry in ledger.entries()]
        [('q0', {'noise': 'secure'}, False)]
        """

        def look(pages: Pages) -> dict[str, Entry]:
            head, known = self._known
            found = dict(known)
            for line in pages.after(-1 if head is None else head.number):
                line.require_follows(head)
                head = line
                body = json.loads(line.body)
                if line.kind == "reserved":
                    price = self._book.curve(body["price"])
                    paid = {name: Charge(c, c) for name, c in self._book.also(body, price).items()}
                    found[line.key] = Entry(line.key, body.get("event", {}), price, charged=price, also=paid)
                elif line.kind == "settled":
                    asked, charged = found[line.key], self._book.curve(body["charged"])
                    named = self._book.also(body, charged)
                    paid = {name: Charge(c.reserved, named[name]) for name, c in asked.also.items()}
                    release = read_release(body, charged)
                    found[line.key] = Entry(
                        line.key, asked.event, asked.reserved, charged, True, release, also=paid
                    )
            self._known = (head, found)
            return found

        return [replace(entry, event=_copied(entry.event)) for entry in self._read(look).values()]

    def lines(self) -> list[Line]:
        """Return the chain as it is written, every line checked against the one before.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> [line.kind for line in SqliteLedger(path, accountant).lines()]
        ['opened']
        """
        return self._read(lambda pages: _checked(pages.all()))

    def verify(self, head: str | None = None) -> str:
        """Read all of the books again, check every hash, and return the last one.

        A chain cut short still holds together. `head` is what an earlier call returned: it must still be
        in the chain.

        >>> import tempfile
        >>> from tellers import Accountant, Budget, SqliteLedger
        >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
        >>> ledger = SqliteLedger(path, accountant)
        >>> noted = ledger.verify()
        >>> ticket = ledger.reserve("q0", RdpCurve.zcdp(0.1), event={"noise": "secure"})
        >>> ledger.verify(head=noted) == noted
        False
        """

        def look(pages: Pages) -> list[str]:
            pages.require_rules()
            return [line.hash for line in _checked(pages.all())]

        hashes = self._read(look)
        if head is not None and head not in hashes:
            raise LedgerConflict(
                f"{self._title()} does not hold the line with hash {head[:16]}..., which it held before. "
                "It was replaced or cut short; restore it from a backup."
            )
        return hashes[-1]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread in at a time; others wait for it as long as for another program, not for ever."""
        lock = self._lock
        if not lock.acquire(timeout=self.timeout):
            raise TimeoutError(
                f"Expected {self._title()} to be free within {self.timeout:g} s, another thread holds it. "
                "Nothing was written; try again."
            )
        try:
            yield
        finally:
            lock.release()

    def _body(self, pages: Pages, kind: str, key: str) -> dict[str, Any]:
        for line in pages.some(kind, key):
            if line.is_intact:
                body: dict[str, Any] = json.loads(line.body)
                return body
        raise LedgerConflict(f"The {kind!r} line of key {key!r} in {self._title()} was changed or removed.")


def _copied(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _copied(value) for name, value in plain.items()}
    return [_copied(value) for value in plain] if isinstance(plain, list) else plain


def _checked(lines: Iterable[Line]) -> list[Line]:
    book, found = Book(), []
    for line in lines:
        book.add(line)
        found.append(line)
    return found


def require_terms(terms: dict[str, Any], accountant: Accountant, title: str) -> None:
    """Refuse books that were begun with another budget, or count at other orders.

    >>> from tellers import Accountant, Budget
    >>> require_terms({}, Accountant(Budget(epsilon=1.0, delta=1e-5)), "spend.db")
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: spend.db lost its first line, which holds its budget. Restore it.
    """
    if not terms:
        raise LedgerConflict(f"{title} lost its first line, which holds its budget. Restore it.")
    budget = accountant.budget
    if (terms["epsilon"], terms["delta"]) != (budget.epsilon, budget.delta):
        raise LedgerConflict(
            f"Expected the budget that {title} was begun with, epsilon={terms['epsilon']} and "
            f"delta={terms['delta']}, got epsilon={budget.epsilon} and delta={budget.delta}. A budget is a "
            "promise about the data and stays; open the ledger with its own."
        )
    if terms["held_at"] != accountant.held_at:
        raise LedgerConflict(
            f"Expected the Rényi order at which {title} was begun, {terms['held_at']:g}, got "
            f"{accountant.held_at:g}. A budget is held at one order, fixed before the first release; open "
            "the ledger with its own."
        )
    if not np.array_equal(terms["orders"], DEFAULT_ORDERS):
        raise LedgerConflict(
            f"Expected the grid of orders that {title} was begun with, which is not the one of this "
            "version of tellers. Open it with the version that made it."
        )
