"""Whether the books hold together: verified on request, and remembered until the next time."""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ...errors import LedgerConflict
from ...ledger import Ledger


@dataclass(frozen=True)
class Verdict:
    """What a verification found, and when.

    >>> Verdict(datetime(2026, 3, 1, tzinfo=UTC), True, "3f2a", n_entries=7).is_intact
    True
    """

    when: datetime
    is_intact: bool
    head: str
    n_entries: int


@dataclass(eq=False)
class Check:
    """Verifies a ledger, one at a time, and keeps the last verdict.

    The head that the last one found must still be in the chain.

    >>> import tempfile
    >>> from tellers import Accountant, Budget, SqliteLedger
    >>> path, accountant = tempfile.mkdtemp() + "/spend.db", Accountant(Budget(epsilon=9.0, delta=1e-5))
    >>> check = Check(SqliteLedger(path, accountant))
    >>> check.last is None, check.is_possible
    (True, True)
    >>> check.verify().is_intact, len(check.last.head)
    (True, 64)
    """

    ledger: Ledger
    last: Verdict | None = None
    _head: str | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def is_possible(self) -> bool:
        """Return whether this ledger has a chain; one in memory has none."""
        return hasattr(self.ledger, "verify")

    def verify(self) -> Verdict:
        """Read all of the books again, check every hash, and that nothing is gone since the last time."""
        check: Any = getattr(self.ledger, "verify", lambda head=None: "")
        with self._lock:
            try:
                head = check(head=self._head)
                verdict = Verdict(datetime.now(UTC), True, head, len(self.ledger.entries()))
                self._head = head or None
            except LedgerConflict:
                verdict = Verdict(datetime.now(UTC), False, "", 0)
            self.last = verdict
        return verdict
