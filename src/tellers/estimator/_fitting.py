"""What both classifiers do around a fit: forget the last one, say what was spent and what is not promised."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..budget import Budget
from ..errors import BudgetExhausted, require_count
from ..ledger import Ledger
from ..sealed import Sealed
from ..students.order import ORDERS
from ..teachers.partition import Partition
from ._repeats import Remembered


class Fitting:
    """Shared by the classifiers of one class and of many labels per row."""

    ledger: Any
    order: Any
    batch: Any
    n_teachers: Any
    n_queries: Any
    n_labels: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels with a classifier: not what is sealed, which is for who fitted it."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if not isinstance(value, Sealed)}

    def _forget(self) -> None:
        """Drop what an earlier fit left: its student must not stand beside what this one costs."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _tell_partition(self, parts: Partition, *, n_rows: int) -> None:
        """Set the attributes that say who is protected; the number of rows only where that is public."""
        self.relation_, self.unit_, self.notes_ = parts.relation, parts.unit, parts.notes
        self.n_private_ = n_rows if parts.relation.counts_are_public else None

    def _check_asking(self) -> None:
        """Refuse an order or a number that means nothing, before teachers are trained."""
        if self.order not in ORDERS:
            raise ValueError(f"Expected order to be one of {', '.join(ORDERS)}, got {self.order!r}.")
        given = {"n_teachers": self.n_teachers, "n_queries": self.n_queries, "n_labels": self.n_labels}
        require_count(batch=self.batch, **{name: n for name, n in given.items() if n is not None})

    def _reasons(
        self, *, declared: bool, pooled: bool, seeded: bool, what: str, argument: str, read_off: str
    ) -> list[str]:
        """Return why no epsilon may be stated; refuse where books are kept all the same."""
        if self.ledger is not None and not (declared and pooled):
            missing = "public pool" if declared else argument
            raise ValueError(
                f"Expected {what} and a public pool where a ledger is kept, got no {missing}. Its books "
                "would say a cost that is not the cost of this fit. "
                f"Pass {argument}=... and public=..., or leave out the ledger."
            )
        found = {
            f"The {what} were not declared, so they were read off {read_off}.": not declared,
            "No public pool was given, so half of the rows became the pool.": not pooled,
            "The noise was drawn from random_state, and who knows that can take it off.": seeded,
        }
        return [reason for reason, holds in found.items() if holds]


@contextmanager
def remembered(fit: Remembered | None, estimator: Any, budget: Budget) -> Iterator[None]:
    """Keep a fit in mind from its first question on, whatever becomes of it, and what it states then."""
    if fit is None:
        yield
        return
    fit.keep()
    try:
        yield
    finally:
        fit.epsilon, fit.delta = getattr(estimator, "epsilon_", budget.epsilon), budget.delta


@contextmanager
def telling_what_is_spent(ledger: Ledger, budget: Budget) -> Iterator[None]:
    """Add to whatever stops a fit what it has cost so far.

    >>> from tellers import Accountant, MemoryLedger
    >>> with telling_what_is_spent(MemoryLedger(Accountant(Budget(1.0, 1e-5))), Budget(1.0, 1e-5)):
    ...     pass
    """
    try:
        yield
    except Exception as error:
        spent = ledger.spent.epsilon(budget.delta)
        error.add_note(f"On the ledger, with or without labels: epsilon {spent:.4g} is spent.")
        if isinstance(error, BudgetExhausted):
            error.add_note("Take more noise, and more teachers to bear it, or a larger budget.")
        raise
