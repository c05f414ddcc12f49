"""The books as a service sees them: the ledger, the accounts of students, and what is left on each."""

from dataclasses import dataclass
from pathlib import Path

from ..budget import Accountant, Budget
from ..ledger import Ledger, SqliteLedger
from ..rdp import RdpCurve


@dataclass(frozen=True)
class Standing:
    """How an account stands: its budget, what was spent, and how many more queries it pays for.

    All of it is public: prices hold whatever the votes were.

    >>> standing(Accountant(Budget(epsilon=1.0, delta=1e-5)), RdpCurve.zero(), price=RdpCurve.zcdp(0.001))
    Standing(epsilon=1.0, delta=1e-05, epsilon_spent=0.0, epsilon_left=1.0, queries_left=30)
    """

    epsilon: float
    delta: float
    epsilon_spent: float
    epsilon_left: float
    queries_left: int


def standing(accountant: Accountant, spent: RdpCurve, *, price: RdpCurve) -> Standing:
    """Return how an account stands, with queries of one price in mind.

    >>> accountant, price = Accountant(Budget(epsilon=1.0, delta=1e-5)), RdpCurve.zcdp(0.001)
    >>> standing(accountant, 30 * price, price=price).queries_left
    0
    """
    budget, used = accountant.budget, accountant.epsilon(spent)
    return Standing(
        budget.epsilon, budget.delta, used, max(0.0, budget.epsilon - used),
        queries_left(accountant, spent, price),
    )  # fmt: skip


def queries_left(accountant: Accountant, spent: RdpCurve, price: RdpCurve) -> int:
    """Return how many more queries of one price an account pays for, up to a billion.

    >>> queries_left(Accountant(Budget(epsilon=1.0, delta=1e-5)), RdpCurve.zero(), RdpCurve.zcdp(0.001))
    30
    """
    low, high = 0, 1
    while high < 1_000_000_000 and accountant.affords(spent, price * high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accountant.affords(spent, price * middle) else (low, middle)
    return low


def account_name(student: str) -> str:
    """Return the name of a student's account in the ledger.

    >>> account_name("alice")
    'student/alice'
    """
    return f"student/{student}"


def open_books(place: str, budget: Budget) -> Ledger:
    """Open the ledger at a path or a database's address, or begin it with this budget.

    >>> import tempfile
    >>> with open_books(tempfile.mkdtemp() + "/ledger.db", Budget(epsilon=1.0, delta=1e-5)) as ledger:
    ...     ledger.entries()
    []
    """
    return SqliteLedger(Path(place), Accountant(budget))
