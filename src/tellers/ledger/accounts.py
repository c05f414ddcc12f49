"""Several budgets at once: who pays for a question, all of them or nobody, and what flows back to each.

The main account stands for the data. A named one stands for whoever asks, or for a group of people in the
data, and holds a budget of its own at an order of its own. These rules are the same in every backend.
"""

from collections.abc import Mapping

import numpy as np

from ..budget import Accountant, Budget
from ..errors import LedgerConflict
from ..rdp import RdpCurve
from .base import AccountState, charge


def require_account(name: object, budget: object) -> None:
    """Refuse an account without a name, or without a budget.

    >>> require_account("student/alice", Budget(epsilon=1.0, delta=1e-5))
    >>> require_account("", Budget(epsilon=1.0, delta=1e-5))
    Traceback (most recent call last):
        ...
    TypeError: Expected the name of an account, a non-empty string, got ''.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"Expected the name of an account, a non-empty string, got {name!r}.")
    if name.encode("utf-8", "ignore").decode("utf-8") != name:
        # Half a character can be kept, and then not be shown: every page with the account on it would fail.
        raise ValueError(f"Expected the name of an account in whole characters, got {name!r}.")
    if not isinstance(budget, Budget):
        raise TypeError(f"Expected a Budget for account {name!r}, got {type(budget).__name__}.")
    try:
        Accountant(budget, order=Accountant(budget).held_at)
    except ValueError:
        # Written down, it could not be read again, and neither could anything after it.
        raise ValueError(
            f"Expected a budget that can pay for something, got epsilon={budget.epsilon} for account "
            f"{name!r}: at delta={budget.delta} that is nothing. Take a larger epsilon."
        ) from None


def require_same(name: str, held: Accountant, budget: Budget) -> None:
    """Refuse to open an account a second time with another budget.

    >>> held = Accountant(Budget(epsilon=1.0, delta=1e-5))
    >>> require_same("student/alice", held, Budget(epsilon=1.0, delta=1e-5))
    >>> require_same("student/alice", held, Budget(epsilon=2.0, delta=1e-5))
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Account 'student/alice' was opened with epsilon=1.0 and delta=1e-05, ...
    """
    if held.budget != budget:
        raise LedgerConflict(
            f"Account {name!r} was opened with epsilon={held.budget.epsilon} and delta={held.budget.delta}, "
            f"got epsilon={budget.epsilon} and delta={budget.delta}. A budget is a promise and stays; open "
            "an account of another name."
        )


def require_affordable(
    key: str, also: Mapping[str, RdpCurve], *, accounts: Mapping[str, AccountState]
) -> None:
    """Refuse a question that one of its named accounts does not exist for, or cannot pay.

    >>> alice = AccountState(Budget(epsilon=1.0, delta=1e-5), 18.0, spent=RdpCurve.zero())
    >>> require_affordable("q0", {"alice": RdpCurve.zcdp(9.0)}, accounts={"alice": alice})
    Traceback (most recent call last):
        ...
    tellers.errors.BudgetExhausted: Query 'q0' would take account 'alice' to epsilon ..., past its budget ...
    """
    for name in also:
        if name not in accounts:
            raise LedgerConflict(
                f"Expected an account that was opened, got {name!r}. Nothing was charged; open it with "
                "open_account(name, budget), or look for a slip in its name."
            )
    for name, price in also.items():
        accounts[name].accountant.require(accounts[name].spent, price, key=key, account=name)


def charge_all(
    key: str,
    price: RdpCurve,
    also: Mapping[str, RdpCurve],
    *,
    worst: RdpCurve,
    used: Mapping[str, RdpCurve] | None,
) -> tuple[RdpCurve, dict[str, RdpCurve], bool]:
    """Return what a settled question is charged: the main account, each named one, and if all kept to it.

    A named account is charged what `used` says of it. Where `used` does not name it, it is charged what the
    main account is if the same was reserved on both, and else all that was reserved.

    >>> one, half = RdpCurve.zcdp(0.1), RdpCurve.zcdp(0.05)
    >>> main, named, kept = charge_all("q0", one, {"a": one, "b": 2 * one}, worst=half, used=None)
    >>> [round(float(c.values[0] / one.values[0]), 3) for c in (main, named["a"], named["b"])], kept
    ([0.5, 0.5, 2.0], True)
    """
    used = dict(used or {})
    for name in used:
        if name not in also:
            raise LedgerConflict(
                f"Nothing was reserved on account {name!r} for key {key!r}; all of the reservation stays "
                "charged. Name only accounts that `reserve` was given."
            )
    charged, all_kept = charge(key, price, used=worst)
    named: dict[str, RdpCurve] = {}
    for name, reserved in also.items():
        if name in used:
            named[name], kept = charge(key, reserved, used=used[name])
            all_kept = all_kept and kept
        else:
            named[name] = charged if same(reserved, price) else reserved
    return charged, named, all_kept


def same(one: RdpCurve, other: RdpCurve) -> bool:
    """Say whether two curves are equal, bit for bit.

    >>> same(RdpCurve.zcdp(0.1), RdpCurve.zcdp(0.1)), same(RdpCurve.zcdp(0.1), RdpCurve.zcdp(0.2))
    (True, False)
    """
    return np.array_equal(one.orders, other.orders) and np.array_equal(one.values, other.values)
