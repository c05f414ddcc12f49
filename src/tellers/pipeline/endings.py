"""Why asking ended where groups pay: whose budget was used, and who could have gone on."""

from collections.abc import Iterable, Sequence

from ..budget import Accountant, Budget
from ..ledger import Ledger
from ..mechanisms.base import Mechanism
from ..personal import PersonalPlan, Upsampling
from ..personal.rounds import who_goes_on


def ended_by(
    ledger: Ledger, plan: PersonalPlan, ceiling: Budget, mechanisms: list[Mechanism], *, key: str
) -> str:
    """Return whose budget does not pay for the next query, among those who take part in it.

    >>> from tellers import GNMax, MemoryLedger
    >>> from tellers.ledger.groups import open_group_accounts
    >>> from tellers.personal import make_plan, read_consent
    >>> consent = read_consent([0.01] * 20 + [4.0] * 20, delta=1e-5)
    >>> plan, ceiling = make_plan("weighting", consent, GNMax(1.0), n_teachers=20, seed=7), Budget(8.0, 1e-5)
    >>> ledger = MemoryLedger(Accountant(ceiling))
    >>> open_group_accounts(ledger, {group.name: Budget(group.epsilon, 1e-5) for group in plan.groups})
    >>> ended_by(ledger, plan, ceiling, [GNMax(1.0)], key="run/0")
    'the budgets of epsilon 0.01 and epsilon 4'
    """
    states = ledger.accounts()
    for mechanism in mechanisms:
        prices = plan.using(mechanism).prices(1, key=key)
        short = [
            group.name
            for group in plan.groups
            if not states[group.account].accountant.affords(states[group.account].spent, prices[group.name])
        ]
        if short:
            return f"the budget of {short[0]}" if len(short) == 1 else f"the budgets of {listed(short)}"
        if not all(Accountant(ceiling).affords(ledger.spent, price) for price in prices.values()):
            return "the ceiling for everybody"
    return ""


def why_over(
    ledger: Ledger, plan: PersonalPlan, ceiling: Budget, mechanisms: list[Mechanism], absent: Iterable[str]
) -> str:
    """Return words where groups that could pay are held by the budget for everybody, or are too few.

    >>> from tellers import GNMax, MemoryLedger
    >>> from tellers.ledger.groups import open_group_accounts
    >>> from tellers.personal import make_plan, read_consent
    >>> consent = read_consent([0.01] * 20 + [4.0] * 20, delta=1e-5)
    >>> plan, ceiling = make_plan("weighting", consent, GNMax(1.0), n_teachers=20, seed=7), Budget(8.0, 1e-5)
    >>> ledger = MemoryLedger(Accountant(ceiling))
    >>> open_group_accounts(ledger, {group.name: Budget(group.epsilon, 1e-5) for group in plan.groups})
    >>> why_over(ledger, plan, ceiling, [GNMax(1.0)], ())
    ''
    """
    states, can_pay = ledger.accounts(), []
    if isinstance(plan, Upsampling):
        standing = who_goes_on(plan, mechanisms[0], states, absent=absent)
        if standing.plan is None:
            return standing.why
        prices = standing.plan.prices(1, key="").values()
        if all(Accountant(ceiling).affords(ledger.spent, price) for price in prices):
            return ""
        return _held(ceiling, [group.name for group in standing.plan.groups])
    for group in plan.groups:
        others = [other.name for other in plan.groups if other is not group]
        alone = (plan.without(others) if others else plan).using(mechanisms[0])
        price, state = alone.mechanism.price(alone.units[0]), states[group.account]
        if state.accountant.affords(state.spent, price):
            if Accountant(ceiling).affords(ledger.spent, price):
                return ""
            can_pay.append(group.name)
    return _held(ceiling, can_pay)


def _held(ceiling: Budget, can_pay: list[str]) -> str:
    if not can_pay:
        return ""
    return (
        f"[budget] epsilon = {ceiling.epsilon:g} ended it while {', '.join(can_pay)} could have gone on: the "
        "main account is charged what the dearest group pays for each query. Raise it for leave = true."
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return names for a sentence, the first few of them by name.

    >>> listed(["low", "mid", "high"]), listed(["a", "b", "c", "d", "e"])
    ('low, mid and high', 'a, b, c and 2 others')
    """
    if len(names) > most:
        n_others = len(names) - most
        return f"{', '.join(names[:most])} and {n_others} other{'s' if n_others > 1 else ''}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def lost_student(error: ValueError, charged: float) -> ValueError:
    """Return what is wrong with a student that learned nothing, and what is there all the same.

    >>> print(lost_student(ValueError("Expected labels, got silence."), 1.25))
    Expected labels, got silence. What came out is kept in labels.npz, and epsilon 1.25 is spent.
    """
    return ValueError(f"{error} What came out is kept in labels.npz, and epsilon {charged:.4g} is spent.")
