"""The door of the room: the single way from a question to a label."""

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .errors import LedgerConflict
from .exact import exact_cost
from .ledger import Ledger, Ticket, Vault
from .mechanisms import Mechanism
from .noise import Noise
from .rdp import RdpCurve
from .release import Release, describe
from .votes import Unit, Votes

_SETTLE_TRIES = 3


class Ensemble(Protocol):
    """Teachers that vote."""

    def vote(self, X: Any, /) -> Votes:
        """Return the votes on every row of X."""
        ...


@dataclass(frozen=True, eq=False)
class Room:
    """Teachers, a mechanism and a ledger behind one verb.

    How long an exact cost takes depends on the votes. `later` is handed that work, for a ledger with a vault,
    when the answer is on the books; by default it is done at once, before `ask` returns.

    Guarantee: whatever is asked, in whatever order and by whomever, all releases together stay within the
               budget of the ledger. The price is on the books before the teachers are asked; a key is
               answered and charged once.
    Assumes:   one unit changes one ballot per query; X and `student` depend on public data and released
               labels only.
    Reference: Feldman and Zrnic 2021 (Rényi filters), by way of the ledger.

    >>> import numpy as np
    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Votes, noise
    >>> class Agreed:
    ...     def vote(self, X):
    ...         return Votes.from_ballots(np.tile(X, (250, 1)), n_classes=10)
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    >>> room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
    >>> room.ask([3, 1, 4], key="batch 0").labels
    array([3, 1, 4])
    """

    ensemble: Ensemble
    mechanism: Mechanism
    ledger: Ledger
    noise: Noise
    later: Callable[[Callable[[], None]], object] | None = None

    def price(self, n_queries: int) -> RdpCurve:
        """Return the most that a batch can cost, which is what `ask` reserves.

        >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
        >>> room = Room(None, GNMax(sigma=20.0), ledger, noise.secure())
        >>> room.price(20).epsilon(1e-5) > room.price(10).epsilon(1e-5) > 0
        True
        """
        return self.mechanism.price(Unit()) * n_queries

    def ask(
        self, X: Any, *, key: str, student: ArrayLike | None = None, account: str | None = None
    ) -> Release:
        """Return the labels of a batch: price, reserve, vote, draw, settle.

        A key that was asked before returns what was recorded, without a vote and without a charge. If the
        teachers fail after the price was reserved, it stays charged: that they failed may be private too.
        A ledger with a vault is told the exact cost too, sealed. `student` are the student's probabilities,
        for a mechanism that listens to them. `account` names an account of the ledger that pays the same
        price from a budget of its own; either both pay or neither.

        >>> import numpy as np
        >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Votes, noise
        >>> class Agreed:
        ...     def vote(self, X):
        ...         return Votes.from_ballots(np.tile(X, (250, 1)), n_classes=10)
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
        >>> room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
        >>> first = room.ask([7], key="q0")
        >>> spent = ledger.spent.epsilon(1e-5)
        >>> again = room.ask([7], key="q0")
        >>> bool(again.labels == first.labels), ledger.spent.epsilon(1e-5) == spent
        (True, True)
        """
        n = _n_queries(X)
        context = self._context(student, n)
        held = self._find_or_reserve(key, n, _digest(X), account)
        if isinstance(held, Release):
            return held
        votes = self.ensemble.vote(X)
        _require_votes(votes, n, key)
        release = self.mechanism.release(votes, self.noise, **context)
        self._settle(held, release)
        vault = getattr(self.ledger, "vault", None)
        if vault is not None and hasattr(self.mechanism, "outcomes"):
            # For the operator's vault alone; what is recorded and returned has no tight cost.
            seal = partial(self._seal, vault, key, votes, context)
            seal() if self.later is None else self.later(seal)
        return release.record()

    def _settle(self, ticket: Ticket, release: Release) -> None:
        # What was drawn is paid for: a ledger that is busy or away for a while must not lose it.
        for attempt in range(_SETTLE_TRIES):
            try:
                self.ledger.settle(ticket, release)
                return
            except (TimeoutError, ConnectionError):
                if attempt + 1 == _SETTLE_TRIES:
                    raise
            except LedgerConflict:
                # The try before may have gone through after all.
                if not attempt or self.ledger.find(ticket.key) is None:
                    raise
                return

    def _seal(self, vault: Vault, key: str, votes: Votes, context: dict[str, Any]) -> None:
        vault.put(key, exact_cost(self.mechanism, votes, **context).cost)

    def _find_or_reserve(self, key: str, n: int, digest: str, account: str | None) -> Release | Ticket:
        recorded = self.ledger.find(key)
        if recorded is None:
            event = {**describe(self.mechanism, self.noise), "n_queries": n, "queries": digest}
            price = self.price(n)
            try:
                if account is None:
                    return self.ledger.reserve(key, price, event=event)
                event["account"] = account
                return self.ledger.reserve(key, price, event=event, also={account: price})
            except LedgerConflict:
                # Somebody with the same key may have been faster, and be done by now.
                recorded = self.ledger.find(key)
                if recorded is None:
                    raise
        asked = self.ledger.asked(key) or {}
        if len(recorded) != n or asked.get("queries", digest) != digest:
            other = f"{len(recorded)} queries, and now with {n}" if len(recorded) != n else "other queries"
            raise LedgerConflict(
                f"Key {key!r} was asked before, with {other}. "
                "Nothing was charged. Use a new key for a new question."
            )
        if asked.get("account") != account:
            # Who may read whose answers is not for a key to decide.
            raise LedgerConflict(
                f"Key {key!r} was asked before, on another account. Nothing was charged. "
                "Use a key of your own."
            )
        return recorded

    def _context(self, student: ArrayLike | None, n: int) -> dict[str, Any]:
        # Asked for before anything is charged: a forgotten argument must not cost a batch.
        listens = "student" in inspect.signature(self.mechanism.release).parameters
        name = type(self.mechanism).__name__
        if listens and student is None:
            raise TypeError(f"Expected student probabilities for {name}, got none. Nothing was charged.")
        if student is None:
            return {}
        if not listens:
            raise TypeError(f"Expected no student probabilities: {name} does not use any. Leave them out.")
        if _n_queries(student) != n:
            raise ValueError(
                f"Expected one row of student probabilities per query, {n} of them, got "
                f"{_n_queries(student)}. Nothing was charged."
            )
        return {"student": student}


def _n_queries(X: Any) -> int:
    # Sparse matrices have a shape and no length.
    shape = getattr(X, "shape", None)
    n = int(shape[0]) if shape else len(X)
    if n == 0:
        raise ValueError("Expected at least one query, got none.")
    return n


def _digest(X: Any) -> str:
    """Return a fingerprint of public queries: the same rows give the same one, whatever holds them."""
    digest = hashlib.sha256()
    if hasattr(X, "tocsr"):
        compressed = X.tocsr(copy=True)
        compressed.sum_duplicates()
        parts = [compressed.data, compressed.indices, compressed.indptr]
    else:
        parts = [np.asarray(X)]
    for part in parts:
        digest.update(f"{part.shape};".encode())
        if part.dtype.kind in "biuf":
            # A batch read back from a file may come in another precision or order; the numbers are the same.
            digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        else:
            digest.update(json.dumps(part.tolist(), default=str).encode())
    return digest.hexdigest()


def _require_votes(votes: Any, n: int, key: str) -> None:
    charged = f"No noise was drawn, but the price of {key!r} stays charged."
    if not isinstance(votes, Votes):
        raise TypeError(f"Expected the ensemble to return Votes, got {type(votes).__name__}. {charged}")
    if len(votes) != n:
        raise ValueError(f"Expected votes on {n} queries, got {len(votes)}. {charged}")
    if votes.unit != Unit():
        raise ValueError(f"Expected votes of which one unit changes one ballot, got another unit. {charged}")
