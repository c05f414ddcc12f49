"""A ledger in memory, for notebooks and tests."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from ..privacy.budget import Accountant
from ._chain import ChainedLedger, T
from ._lines import Line, LineReader, LineStore
from ._state import opening


class _MemoryStore:
    """Lines in a list, with an index by kind and key."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._by_kind: dict[str, dict[str, Line]] = {}
        self._n_known = 0  # how many lines are in the index

    def head(self) -> tuple[int, str] | None:
        return (self._lines[-1].number, self._lines[-1].hash) if self._lines else None

    def after(self, number: int) -> Iterator[Line]:
        return iter(self._lines[number + 1 :])

    def numbered(self, numbers: Iterable[int]) -> list[Line]:
        return [self._lines[number] for number in sorted(numbers) if 0 <= number < len(self._lines)]

    def named(self, kind: str, keys: Sequence[str]) -> dict[str, Line]:
        lines = self._of(kind)
        return {key: lines[key] for key in keys if key in lines}

    def of_kind(self, kind: str, begins: str, *, after: int) -> list[int]:
        lines = list(self._of(kind).values())
        first = bisect_left(lines, after + 1, key=lambda line: line.number)
        return [line.number for line in lines[first:] if line.key.startswith(begins)]

    def last(self, kind: str) -> Line | None:
        return next(reversed(self._of(kind).values()), None)

    def append(self, lines: Sequence[Line]) -> None:
        self._lines.extend(lines)  # all or nothing; a Ctrl-C comes before it, or after

    def _of(self, kind: str) -> dict[str, Line]:
        """Return the lines of a kind by their keys."""
        for line in self._lines[self._n_known :]:
            self._by_kind.setdefault(line.kind, {})[line.key] = line
            self._n_known = line.number + 1
        return self._by_kind.get(kind, {})

    def require_rules(self) -> None:
        """Do nothing: no storage of its own could have been changed."""


@dataclass(eq=False)
class MemoryLedger(ChainedLedger):
    """Keep the ledger in memory: nothing is overspent, nothing is answered twice for two prices.

    Guarantee: the sum of all debits never passes the budget; seeded noise is refused.
    Assumes:   the process does not outlive its budget: what it spent is forgotten when it ends.
    Reference: Feldman and Zrnic 2021: returning the unused part of a price keeps the guarantee.

    >>> import numpy as np
    >>> from tellers import Accountant, Budget, Cost, GNMax, RdpCurve, Release, Unit, describe, noise
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=0.5, delta=1e-5)))
    >>> mechanism, source = GNMax(sigma=40.0), noise.secure()
    >>> ledger.open_account("student/alice", Budget(epsilon=0.4, delta=1e-5))
    >>> price, event = mechanism.price(Unit()), describe(mechanism, source)
    >>> ticket = ledger.reserve("q0", price, event=event, also={"student/alice": price})
    >>> ledger.asked("q0") == event, ledger.find("q0") is None, ledger.spent.epsilon(1e-5) > 0
    (True, True, True)
    >>> ledger.settle(ticket, Release(np.array([3]), Cost(0.5 * price)))
    >>> [(entry.key, entry.is_settled, entry.release.labels.tolist()) for entry in ledger.entries()]
    [('q0', True, [3])]
    >>> bool((ledger.accounts()["student/alice"].spent.values == ledger.spent.values).all())
    True
    >>> ledger.reserve("q1", RdpCurve.zcdp(9.0), event=event)
    Traceback (most recent call last):
        ...
    tellers.errors.BudgetExhausted: Query 'q1' would take epsilon to ..., past the budget of 0.5. ...
    >>> ledger.close()  # nothing to hand back: it can be used on
    """

    accountant: Accountant
    allow_seeded: bool = False
    timeout = 1e6  # a thread waits for the others as long as they take
    vault = None

    def __post_init__(self) -> None:
        self._begin()
        self._store = _MemoryStore()
        self._store.append([opening(self.accountant)])

    def _title(self) -> str:
        return "The ledger in memory"

    def _commit(self, next_lines: Callable[[LineStore], Sequence[Line]], _deadline: float) -> None:
        self._store.append(next_lines(self._store))

    def _look(self, look: Callable[[LineStore], T]) -> T:
        with self._alone():
            return look(self._store)

    @contextmanager
    def _reading(self) -> Iterator[LineReader]:
        yield self._store

    def _close(self) -> None:
        """Do nothing: what is written stays as long as the ledger does."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> "MemoryLedger":
        # A copy of the books would begin the budget again, for each estimator that scikit-learn clones.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Expected a ledger that other processes can read, got one in memory: a copy of it would begin "
            "the budget again. Use SqliteLedger(path, accountant)."
        )
