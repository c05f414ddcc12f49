"""The books as a service sees them: the ledger, the accounts of students, and what is left on each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..budget import Accountant, Budget
from ..config.problems import Problem, complain
from ..errors import LedgerConflict
from ..ledger import Ledger, Vault, open_ledger
from ..ledger.opening import is_url
from ..ledger.vault import read_key
from ..rdp import RdpCurve
from .heads import not_the_one
from .keys import KeyStore
from .settings import ServiceSettings

_MOST_QUERIES = 1_000_000_000


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
    if not accountant.affords(spent, price):
        return 0
    # At the order at which a budget is held, epsilon is what was spent and a constant.
    held = spent.orders == accountant.held_at
    used, one = float(spent.values[held][0]), float(price.values[held][0])
    if accountant.affords(spent, price * _MOST_QUERIES):
        return _MOST_QUERIES
    far = used + 1000.0
    constant = RdpCurve(spent.orders[held], np.array([far])).epsilon(accountant.budget.delta) - far
    n = max(1, int((accountant.budget.epsilon - constant - used) / one))
    while not accountant.affords(spent, price * n):
        n -= 1
    while accountant.affords(spent, price * (n + 1)):
        n += 1
    return n


def account_name(student: str) -> str:
    """Return the name of a student's account in the ledger.

    >>> account_name("alice")
    'student/alice'
    """
    return f"student/{student}"


def wait_for_databases(
    settings: ServiceSettings,
    ledger: str,
    seconds: float,
    *,
    say: Callable[[str, float], object] | None = None,
) -> None:
    """Return when the databases of the ledger and of the keys answer, or raise when one did not in time.

    >>> wait_for_databases(ServiceSettings(), "ledger.db", 30.0)  # files are there
    """
    places = dict.fromkeys((ledger, settings.place(settings.keys.store)))
    for place in filter(is_url, places):
        from ..ledger.sql import wait_until_there

        wait_until_there(place, seconds, say=say)


def require_seen(store: KeyStore, ledger: Ledger, which: str, *, is_trusted: bool = False) -> None:
    """Refuse a ledger that does not hold the last line which a service saw of it, and note its last line.

    >>> import tempfile
    >>> store = KeyStore(tempfile.mkdtemp() + "/keys.db")
    >>> ledger = open_books(tempfile.mkdtemp() + "/ledger.db", Budget(epsilon=1.0, delta=1e-5))
    >>> require_seen(store, ledger, "study")
    >>> ledger.open_account("student/alice", Budget(epsilon=0.5, delta=1e-5))
    >>> require_seen(store, ledger, "study")
    >>> other = open_books(tempfile.mkdtemp() + "/ledger.db", Budget(epsilon=1.0, delta=1e-5))
    >>> require_seen(store, other, "study")
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: ... does not hold the line with hash ..., which it held before. ...
    """
    chain: Any = ledger
    try:
        head = chain.verify(head=None if is_trusted else store.known_head(which))
    except LedgerConflict as error:
        raise not_the_one(error) from error
    store.remember_head(which, head)


def open_vault(settings: ServiceSettings) -> Vault | None:
    """Return the vault of the settings, seen to be usable, or None where private costs are not kept.

    >>> open_vault(ServiceSettings()) is None
    True
    """
    chosen = settings.vault
    if not chosen.path:
        return None
    place = settings.path(chosen.path)
    try:
        if chosen.key_file:
            vault = Vault(place, read_key(file=settings.path(chosen.key_file)))
        else:
            vault = Vault(place, read_key(variable=chosen.key_env))
        vault.require_usable()
    except (OSError, ValueError) as error:
        words = f"Expected a vault at {place}: {error}" if isinstance(error, OSError) else str(error)
        complain([Problem(("vault", "path"), words)], settings.source, settings.lines)
        raise
    return vault


def open_books(
    place: str, budget: Budget, *, name: str = "main", timeout: float = 30.0, vault: Vault | None = None
) -> Ledger:
    """Open the ledger at a path or a database's address, or begin it with this budget.

    `name` says which one, where a database has several; `timeout` how long to wait for others; `vault` is
    where private costs go, if anywhere.

    >>> import tempfile
    >>> with open_books(tempfile.mkdtemp() + "/ledger.db", Budget(epsilon=1.0, delta=1e-5)) as ledger:
    ...     ledger.entries()
    []
    """
    which = {"name": name} if is_url(place) else {}
    opened: Any = open_ledger(place, Accountant(budget), timeout=timeout, vault=vault, **which)
    ledger: Ledger = opened
    return ledger
