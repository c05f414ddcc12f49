"""A ledger in memory, for notebooks and tests."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..privacy.budget import Accountant
from ._chain import ChainedLedger, LedgerState, Line, T, opening


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
    _lines: list[Line] = field(init=False, repr=False)
    _state: LedgerState = field(default_factory=LedgerState, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    timeout = -1.0  # a thread waits for the others as long as they take
    vault = None

    def __post_init__(self) -> None:
        self._lines = [opening(self.accountant)]

    def close(self) -> None:
        """Do nothing: what is written stays as long as the ledger does."""

    def _title(self) -> str:
        return "The ledger in memory"

    def _after(self, number: int) -> Iterator[Line]:
        return iter(self._lines[number + 1 :])

    def _require_rules(self) -> None:
        """Do nothing: no storage of its own could have been changed."""

    def _read(self, look: Callable[[], T]) -> T:
        with self._alone():
            self._catch_up()
            return look()

    def _write(self, next_lines: Callable[[], list[Line]]) -> None:
        with self._alone():
            self._catch_up()
            self._lines.extend(next_lines())

    def __deepcopy__(self, _memo: dict[int, Any]) -> "MemoryLedger":
        # A copy of the books would begin the budget again, for each estimator that scikit-learn clones.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Expected a ledger that other processes can read, got one in memory: a copy of it would begin "
            "the budget again. Use SqliteLedger(path, accountant)."
        )
