"""Accounts of groups of people: what they are called, how they are opened, and which ones a ledger has."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..budget import Budget
from ..errors import LedgerConflict
from ..rdp import RdpCurve
from .accounts import require_account, require_same
from .base import Ledger

GROUPS = "group/"
"""What the name of every such account begins with."""

_ASKED_BEFORE = (
    "Expected a ledger without answers to open accounts of groups on, got one on which something was asked "
    "already, and no group paid for it. Begin a new ledger, for data that was never asked."
)


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
        raise LedgerConflict(_ASKED_BEFORE)
    wanted_accounts, held = {group_account(name): budgets[name] for name in budgets}, ledger.accounts()
    for name, budget in wanted_accounts.items():  # all of them, before the first is opened
        require_account(name, budget)
        if name in held:
            require_same(name, held[name].accountant, budget)
    for name, budget in wanted_accounts.items():
        ledger.open_account(name, budget)
    if any(_unpaid(entry.also, entry.event, wanted_accounts) for entry in ledger.entries()):
        # Somebody may have been faster with a question than the accounts were with opening.
        raise LedgerConflict(_ASKED_BEFORE)


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


def require_groups_pay(
    key: str, also: Mapping[str, RdpCurve], *, event: Mapping[str, Any], accounts: Iterable[str]
) -> None:
    """Refuse a question for which a group of people neither pays nor is said to take no part.

    Whoever asks by another plan, or by none, would learn from the group's data at no cost to its budget.

    >>> require_groups_pay("q0", {}, event={"groups": {"absent": ["low"]}}, accounts=["group/low"])
    >>> require_groups_pay("q0", {}, event={}, accounts=["student/alice", "group/low"])
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Expected every group of people on the ledger to pay for 'q0', or ...
    """
    missing = _unpaid(also, event, accounts)
    if missing:
        raise LedgerConflict(
            f"Expected every group of people on the ledger to pay for {key!r}, or to take no part, got "
            f"nothing for account {missing[0]!r}. Nothing was charged. Ask by the plan that the groups were "
            "opened for."
        )


def _unpaid(also: Iterable[str], event: Mapping[str, Any], accounts: Iterable[str]) -> list[str]:
    """Return the accounts of groups that neither paid for a question nor were said to take no part."""
    taking_part = event.get("groups")
    absent = taking_part.get("absent", ()) if isinstance(taking_part, Mapping) else ()
    spared = {*also, *(group_account(str(name)) for name in absent)}
    return [name for name in accounts if name.startswith(GROUPS) and name not in spared]
