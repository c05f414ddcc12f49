"""The ledger of a service: accounts of students and groups, their status, and the check for rollback."""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import sqlalchemy as sql
from pydantic import BaseModel, Field

from ..errors import LedgerConflict
from ..ledger._chain import ChainedLedger
from ..ledger.base import AccountState, Ledger, open_group_accounts, require_no_groups
from ..ledger.opening import is_url, open_as_begun
from ..ledger.vault import Vault, read_key
from ..ledger.witness import IF_TRUSTED, Anchor, open_witness
from ..mechanisms.base import Mechanism
from ..privacy._price import delta_of
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..runs.personal.assignment import plan_from_dict
from ..runs.personal.plan import PersonalPlan
from ..runs.personal.variants import Vanishing
from . import _verifying
from ._keys import KeyStore
from .settings import ServiceSettings

MOST_QUERIES = 1_000_000_000


class AccountAnswer(BaseModel):
    """How an account stands. Everything in it is public: prices hold whatever the votes were."""

    epsilon: float = Field(description="The budget.", examples=[2.0])
    delta: float = Field(description="The failure probability that epsilon is stated at.", examples=[1e-5])
    epsilon_spent: float | None = Field(
        description="What has been spent, reservations included; null on a clock, where the budget is stated "
        "once anything was asked.",
        examples=[0.5],
    )
    epsilon_left: float | None = Field(
        description="What is left of epsilon; null on a clock.", examples=[1.5]
    )
    queries_left: int = Field(
        description="How many more queries are certainly paid for at the present setting.", examples=[420]
    )
    rule: Literal["renyi", "clock"] = Field(
        default="renyi", description="How the ledger holds the budget: at one Rényi order, or on a clock."
    )
    share_left: float = Field(
        default=1.0, description="What is left, as a share of the budget by its rule: of the clock, say."
    )
    stated: float = Field(
        default=0.0,
        description="The one public epsilon: what is spent, or on a clock the budget, once anything was "
        "asked.",
    )


def budget_status(accountant: Accountant, spent: RdpCurve, *, price: RdpCurve) -> AccountAnswer:
    """Return the status of an account for queries of one price."""
    budget, used, on_clock = accountant.budget, accountant.epsilon(spent), accountant.clock is not None
    return AccountAnswer(
        epsilon=budget.epsilon, delta=budget.delta, epsilon_spent=None if on_clock else used,
        epsilon_left=None if on_clock else max(0.0, budget.epsilon - used),
        queries_left=queries_left(accountant, spent, price), rule="clock" if on_clock else "renyi",
        share_left=accountant.left(spent), stated=used,
    )  # fmt: skip


def queries_left(accountant: Accountant, spent: RdpCurve, price: RdpCurve) -> int:
    """Return how many more queries of one price an account pays for, up to a billion."""
    if accountant.clock is not None:
        return _most_affordable(accountant, spent, price)
    one = float(price.values[price.orders == accountant.held_at][0])
    ratio = accountant.value_left(spent) / one if one else math.inf
    near = 1e-9 + 1e-12 * ratio
    if ratio < MOST_QUERIES and near < ratio % 1.0 < 1 - near and not delta_of(price) and not delta_of(spent):
        return int(ratio)  # no rounding comes near a whole number
    return _most_affordable(accountant, spent, price)


def _most_affordable(accountant: Accountant, spent: RdpCurve, price: RdpCurve) -> int:
    numbers = range(1, MOST_QUERIES + 1)
    return bisect_left(numbers, True, key=lambda n: not accountant.affords(spent, price * n))


def account_name(student: str) -> str:
    return f"student/{student}"


def wait_for_databases(
    settings: ServiceSettings,
    ledger: str,
    seconds: float,
    *,
    say: Callable[[str, float], object] | None = None,
) -> None:
    """Return when the databases of ledger, keys and witness answer, or raise when one did not in time."""
    places = dict.fromkeys((ledger, settings.place(settings.keys.store), settings.witness.url))
    for place in filter(is_url, places):
        from ..ledger.sql.connection import wait_until_there

        wait_until_there(place, seconds, say=say)


def open_anchors(
    settings: ServiceSettings, store: KeyStore, ledger: ChainedLedger, place: str
) -> tuple[Anchor, ...]:
    """Return what tells witnesses how far the ledger at a place came: the store of keys, and the settings'.

    Beside another witness the store of keys is told at the start and at the end alone. So an empty witness in
    place of the one that knew the ledger is noticed.
    """
    said, which = settings.witness, ledger_id(place, settings.ledger.name)
    own = Anchor(ledger, store.witness, place=which, every=said.every)
    if not said.url:
        return (own,)
    token_file = str(settings.path(said.token_file)) if said.token_file else ""
    try:
        witness = open_witness(
            said.url if said.is_http else settings.place(said.url),
            token_file=token_file, public_key=said.public_key,
        )  # fmt: skip
    except ValueError as error:
        settings.refuse("witness.url", str(error))
    return own, Anchor(ledger, witness, place=which, every=said.every)


def require_no_rollback(anchors: Sequence[Anchor], store: KeyStore, *, is_trusted: bool = False) -> None:
    """Refuse a ledger that does not hold what its witnesses saw; from now on the last of them sees it all.

    One with few lines is verified now, a longer one while it is served.
    """
    own = anchors[0]
    if own.ledger.head.number < _verifying.FEW:
        own.ledger.verify()
    known = None if own.is_known else store.known_head(own.place)
    try:
        if known is not None:
            own.ledger.verify(head=known)
    except LedgerConflict as error:
        if not is_trusted:
            raise LedgerConflict(f"{error} {IF_TRUSTED}") from error
        own.ledger.trust({"witness": own.witness.name, "gone": [{"hash": known}]})
    for anchor in anchors:
        anchor.start(trusted=is_trusted)
    own.ledger.anchor = anchors[-1]


def ledger_id(place: str, name: str) -> str:
    """Return the id of the place of a ledger: a hash of it, without a password, and of its name."""
    if "://" in place:
        url = sql.make_url(place)
        place = f"{url.host}:{url.port}/{url.database}"
    return hashlib.sha256(f"{place}\n{name}".encode()).hexdigest()


def open_vault(settings: ServiceSettings) -> Vault | None:
    """Return the vault of the settings, seen to be usable, or None where private costs are not kept."""
    chosen = settings.vault
    if not chosen.path:
        return None
    place = settings.path(chosen.path)
    file = settings.path(chosen.key_file) if chosen.key_file else None
    try:
        vault = Vault(place, read_key(file=file, variable=None if file else chosen.key_env))
        vault.require_usable()
    except (OSError, ValueError) as error:
        words = f"Expected a vault at {place}: {error}" if isinstance(error, OSError) else str(error)
        settings.refuse("vault.path", words)
    return vault


def open_service_ledger(
    place: str,
    budget: Budget | Accountant,
    *,
    name: str = "main",
    timeout: float = 30.0,
    vault: Vault | None = None,
) -> ChainedLedger:
    """Open the ledger at a path or a database's address, or begin it with this budget, held as it says."""
    which = {"name": name} if is_url(place) else {}
    held = budget if isinstance(budget, Accountant) else Accountant(budget)
    return open_as_begun(place, held, timeout=timeout, vault=vault, **which)


_AGAIN = "Take the plan.json of the run whose teachers vote here, or restore it from a backup."


def read_plan(
    settings: ServiceSettings, mechanism: Mechanism, *, n_teachers: int, has_ballots: bool = True
) -> PersonalPlan | None:
    """Return the plan of the settings, or of the run that is served, for this mechanism; None without one.

    Without ballots, where only counts are known, nobody can be weighted or absent.
    """
    place = settings.path(settings.personal.plan or f"{settings.data.path}/plan.json")
    if not settings.personal.plan and (settings.data.source != "run" or not place.exists()):
        if settings.personal.leave:
            words = "Expected false without a plan: there are no groups that could leave."
            settings.refuse("personal.leave", words)
        return None
    try:
        plan = plan_from_dict(json.loads(place.read_bytes()))
    except OSError as error:
        words = f"Expected a plan at {place}, it cannot be read ({error.strerror}). {_AGAIN}"
        settings.refuse("personal.plan", words)
    except (ValueError, RecursionError) as error:
        words = (
            str(error) if not isinstance(error, (json.JSONDecodeError, UnicodeError)) else "It is not JSON."
        )
        settings.refuse("personal.plan", f"Expected a plan at {place}, got something else. {words} {_AGAIN}")
    if plan.n_teachers != n_teachers:
        settings.refuse(
            "personal.plan",
            f"Expected a plan for the {n_teachers} teachers that vote here, got one for {plan.n_teachers} at "
            f"{place}. {_AGAIN}",
        )
    if plan.members and not has_ballots:
        settings.refuse(
            "personal.plan",
            f"Expected the ballot of every teacher for {plan.variant}, got a vote file with counts alone. "
            "Save the ballots, or take upsampling.",
        )
    if settings.personal.leave and not plan.members:
        settings.refuse(
            "personal.leave",
            f"Expected false with {plan.variant}, whose teachers learned from all groups: whoever is silent, "
            "their data still speak. A service cannot train teachers. `tellers run` with leave = true in "
            "[personal] trains them anew whenever a budget is used; here, the first that is ends it.",
        )
    try:
        return plan.using(mechanism)
    except (TypeError, ValueError) as error:
        settings.refuse("personal.plan", f"Expected a mechanism that the plan can use. {error}")


def open_groups(
    settings: ServiceSettings, ledger: Ledger, plan: PersonalPlan | None, *, delta: float
) -> None:
    """Open the accounts of a plan's groups, or see that without a plan there are none to charge."""
    try:
        if plan is None:
            require_no_groups(ledger)
        else:
            open_group_accounts(ledger, {group.name: Budget(group.epsilon, delta) for group in plan.groups})
    except LedgerConflict as error:
        settings.refuse("personal.plan", str(error))


def group_statuses(
    plan: PersonalPlan, accounts: Mapping[str, AccountState], *, leave: bool
) -> dict[str, AccountAnswer]:
    """Return the status of each group's account, by the group's name.

    What is left are queries that are certainly paid for; by vanishing if asked in batches of the plan's
    period. Where groups may leave, those who cannot pay for one have left, and the others pay by the plan for
    those who stay.
    """
    states = {group.name: accounts[group.account] for group in plan.groups}
    present, gone = plan, set[str]()
    while True:
        batch, prices = batch_prices(present)
        found = {
            name: batch * queries_left(states[name].accountant, states[name].spent, price)
            for name, price in prices.items()
        }
        over = {name for name, n in found.items() if not n}
        if not leave or not over or len(over) == len(found):
            break
        gone |= over
        present = plan.without(gone)
    prices = batch_prices(plan)[1]
    return {
        name: budget_status(state.accountant, state.spent, price=prices[name]).model_copy(
            update={"queries_left": min(MOST_QUERIES, found.get(name, 0))}
        )
        for name, state in states.items()
    }


def batch_prices(plan: PersonalPlan) -> tuple[int, dict[str, RdpCurve]]:
    """Return a number of queries that loses little, and the most that so many cost each group."""
    if isinstance(plan, Vanishing):
        batch, one = _period(plan), plan.mechanism.price(plan.units[0])
        times = plan.busiest(batch)
        return batch, {group.name: one * n for group, n in zip(plan.groups, times, strict=True)}
    prices = [plan.mechanism.price(unit) for unit in plan.units]
    return 1, {group.name: price for group, price in zip(plan.groups, prices, strict=True)}


@lru_cache(maxsize=32)
def _period(plan: Vanishing) -> int:
    return plan.period
