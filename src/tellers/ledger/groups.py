"""Accounts of groups of people: what they are called, how they are opened, and which ones a ledger has."""

from collections.abc import Mapping

from ..budget import Budget
from ..errors import LedgerConflict
from .base import Ledger

GROUPS = "group/"
"""What the name of every such account begins with."""


def group_account(name: str) -> str:
    """Return the name of the account that pays for a group of people.

    >>> group_account("low")
    'group/low'
    """
    return f"{GROUPS}{name}"


def groups_on(ledger: Ledger) -> list[str]:
    """Return the groups that have an account on a ledger, sorted.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> groups_on(MemoryLedger(Accountant(Budget(epsilon=2.0, delta=1e-5))))
    []
    """
    return sorted(name.removeprefix(GROUPS) for name in ledger.accounts() if name.startswith(GROUPS))


def open_group_accounts(ledger: Ledger, budgets: Mapping[str, Budget]) -> None:
    """Open an account per group of people, each with the budget its people agreed to.

    Groups share a ledger from its first question on, and stay the same: what was asked before their accounts
    were there was paid by none of them, and who changed groups would have two budgets.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=2.0, delta=1e-5)))
    >>> open_group_accounts(ledger, {"low": Budget(1.0, 1e-5), "high": Budget(2.0, 1e-5)})
    >>> sorted(ledger.accounts())
    ['group/high', 'group/low']
    >>> open_group_accounts(ledger, {"low": Budget(1.0, 1e-5)})
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Expected the groups of the ledger, 'high', 'low', got 'low'. ...
    """
    there, wanted = groups_on(ledger), sorted(budgets)
    if set(there) - set(wanted) or (there and there != wanted and ledger.entries()):
        names = [", ".join(map(repr, some)) for some in (there, wanted)]
        raise LedgerConflict(
            f"Expected the groups of the ledger, {names[0]}, got {names[1]}. Whoever changed groups would "
            "have two budgets: keep the groups, or delete the data and begin again."
        )
    if not there and ledger.entries():
        raise LedgerConflict(
            "Expected a ledger without answers to open accounts of groups on, got one on which something was "
            "asked already, and no group paid for it. Begin a new ledger, for data that was never asked."
        )
    for name, budget in budgets.items():
        ledger.open_account(group_account(name), budget)


def require_no_groups(ledger: Ledger) -> None:
    """Refuse a ledger with accounts of groups to whoever would ask without charging them.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> require_no_groups(MemoryLedger(Accountant(Budget(epsilon=2.0, delta=1e-5))))
    """
    there = groups_on(ledger)
    if there:
        raise LedgerConflict(
            f"Expected the budgets of the people, since the ledger has accounts of groups "
            f"({', '.join(map(repr, there))}), got none. Ask by the plan that they were opened for."
        )
