"""The public number of a run: what a ledger charges, how far a budget goes, and what else was added up.

A ledger adds the price of every query at each Rényi order and converts the sum once. That is the public
epsilon of `account`, `plan`, the ledger, the card and the report alike. Compositions that no ledger uses
stand beside it under names of their own.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .budget import Accountant, Budget, smallest_budget
from .errors import require_count, require_fraction
from .gaussian_dp import (
    discrete_gaussian_pld_epsilon,
    gaussian_dp_epsilon,
    gaussian_dp_mu,
    has_pld,
    pure_dp_epsilon,
)
from .label_bounds import LabelMechanism, plain_cost
from .mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism, NoisyHistogram
from .mechanisms.labels import AdaptiveGNThreshold
from .publishable import independent_cost
from .rdp import RdpCurve

Method = Literal["argmax-rdp", "pure-dp-rdp", "histogram-rdp", "labels-rdp", "price-rdp"]
OtherMethod = Literal[
    "histogram-rdp", "histogram-pld", "histogram-gdp", "pure-dp-exact", "sums-rdp", "sums-gdp"
]
Holds = Literal["any run", "a fixed number of queries", "continuous noise"]


@dataclass(frozen=True)
class PublicCost:
    """An epsilon that does not depend on the votes, what is charged, and the Rényi order it comes from."""

    method: Method
    epsilon: float
    order: float


@dataclass(frozen=True)
class ComparedCost:
    """Another way to add up, and what its epsilon holds for; no ledger charges it, and no run states it.

    "any run" may be adaptive and stop on a budget; "a fixed number of queries" had that number declared
    before the first; "continuous noise" is not the noise that is drawn, and there to compare with.

    >>> ComparedCost("pure-dp-exact", 2.92, holds_for="a fixed number of queries").order is None
    True
    """

    method: OtherMethod
    epsilon: float
    order: float | None = None
    holds_for: Holds = "any run"


@dataclass(frozen=True)
class Afforded:
    """How many of the queries a ledger with this budget pays for, in their order, and where it is held.

    >>> stated_cost(LNMax(gamma=0.05), 100, delta=1e-5, budget=2.95)[1]
    Afforded(epsilon=2.95, held_at=8.0, n_queries=88)
    """

    epsilon: float
    held_at: float
    n_queries: int


def public_cost(
    mechanism: Mechanism | LabelMechanism,
    n_queries: int,
    *,
    delta: float,
    n_answered: ArrayLike | None = None,
) -> PublicCost:
    """Return what a ledger charges for so many queries: the public epsilon, to the last digit.

    Every query is charged its check, where there is one, and an answer; with `n_answered` only so many
    answers, or, one number per query, so many of its labels.

    Guarantee: an epsilon at this delta for any votes, also for adaptive queries.
    Assumes:   one ballot changes per unit; the number of queries was fixed before the run, and so was
               `n_answered`, as a cap. A run whose answers came out that way states `Accountant.guarantee`.
    Reference: see `independent_cost` and "The price of an arg max".

    >>> from tellers import GNMax, LNMax
    >>> [round(public_cost(one, 100, delta=1e-5).epsilon, 2) for one in (GNMax(40.0), LNMax(0.05))]
    [1.16, 3.16]
    """
    require_count(0, n_queries=n_queries)
    require_fraction(delta=delta)
    if n_answered is not None:
        require_count(0, n_answered=int(np.sum(n_answered)))
    any_kind: Any = mechanism
    cost = independent_cost(any_kind, n_queries, n_answers=n_answered)
    return PublicCost(_method(mechanism), *cost.epsilon_and_order(delta))


def compared_costs(
    mechanism: Mechanism | LabelMechanism, n_queries: int, *, delta: float
) -> tuple[ComparedCost, ...]:
    """Return other ways to add up the same number of queries, all of them answered, smallest first.

    Guarantee: each is an epsilon at this delta for any votes and what it `holds_for`, and for nothing else. A
               ledger stops by none of them.
    Assumes:   one ballot changes per unit.
    Reference: see `gaussian_dp`.

    >>> from tellers import GNMax
    >>> costs = compared_costs(GNMax(sigma=40.0), 461, delta=1e-5)
    >>> [(c.method, round(c.epsilon, 2)) for c in costs if c.method != "histogram-pld"]
    [('histogram-gdp', 3.19), ('histogram-rdp', 3.46)]
    """
    costs: list[ComparedCost] = []
    if isinstance(mechanism, LNMax):
        # A ballot moves two counts by one, each with Laplace noise of its own: two gamma-private releases.
        exact = pure_dp_epsilon(mechanism.gamma, 2 * n_queries, delta=delta)
        costs = [ComparedCost("pure-dp-exact", exact, holds_for="a fixed number of queries")]
    elif isinstance(mechanism, LabelMechanism):
        rate = plain_cost(mechanism, n_queries)
        costs = [ComparedCost("sums-rdp", *RdpCurve.zcdp(rate).epsilon_and_order(delta))]
        if not isinstance(mechanism, AdaptiveGNThreshold):  # whose choice is not Gaussian
            epsilon = gaussian_dp_epsilon(math.sqrt(2 * rate), delta)
            costs.append(ComparedCost("sums-gdp", epsilon, holds_for="continuous noise"))
    elif isinstance(mechanism, (GNMax, ConfidentGNMax, InteractiveGNMax, NoisyHistogram)):
        costs = _gaussian_costs(mechanism, n_queries, delta)
    return tuple(sorted(costs, key=lambda cost: cost.epsilon))


def budget_for(mechanism: Any, n_queries: int, *, delta: float) -> float:
    """Return the budget (epsilon) from which on a ledger pays for so many queries, whatever comes out.

    A run with it asks them all and states `public_cost`, which is the same or a little less: a budget is held
    at one Rényi order, and a number of queries that is fixed may take the cheapest.

    >>> needed, stated = budget_for(GNMax(40.0), 10, delta=1e-5), public_cost(GNMax(40.0), 10, delta=1e-5)
    >>> stated.epsilon < needed < 1.01 * stated.epsilon
    True
    """
    cost = independent_cost(mechanism, n_queries)
    return smallest_budget(cost, delta).epsilon if cost.epsilon(delta) > 0 else 0.0


def stated_cost(
    mechanism: Any,
    n_queries: int,
    *,
    delta: float,
    budget: float | None = None,
    told: NDArray[Any] | None = None,
) -> tuple[PublicCost, Afforded | None]:
    """Return what a run of these queries states, and how many of them a budget pays for.

    `told` says which queries were answered, or how many labels of each; without it all of them are.

    Guarantee: as `Accountant.guarantee`.
    Assumes:   the number of queries and the budget were fixed before the run.
    Reference: see "Composition, filters and conversion".

    >>> public, afforded = stated_cost(LNMax(gamma=0.05), 100, delta=1e-5, budget=2.95)
    >>> afforded.n_queries, public == public_cost(LNMax(gamma=0.05), 88, delta=1e-5)
    (88, True)
    """
    whole = public_cost(mechanism, n_queries, delta=delta)
    if budget is None:
        return whole, None
    accountant = Accountant(Budget(budget, delta))
    held = [accountant.held_at]
    price = independent_cost(mechanism, 1, orders=held)
    spent_after = None
    if told is not None:

        def spent_after(n: int) -> RdpCurve:
            return independent_cost(mechanism, n, n_answers=first_answers(told, n), orders=held)

    n_paid = accountant.n_affordable(price, n_queries, spent_after=spent_after)
    afforded = Afforded(budget, accountant.held_at, n_paid)
    paid, most = independent_cost(mechanism, n_paid), independent_cost(mechanism, n_queries)
    one_price = bool(getattr(mechanism, "one_price", False))
    stated = accountant.guarantee(paid, most=most, one_price=one_price)
    order = whole.order if stated == whole.epsilon else accountant.held_at
    if one_price:
        order = paid.epsilon_and_order(delta)[1]
    return PublicCost(whole.method, stated, order), afforded


def first_answers(told: NDArray[Any], n_queries: int) -> ArrayLike:
    """Return how many of the first queries were answered; of many labels, how many of each.

    >>> first_answers(np.array([True, False, True]), 2), first_answers(np.array([3, 0, 1]), 2)
    (1, array([3, 0]))
    """
    return int(told[:n_queries].sum()) if told.dtype == np.bool_ else told[:n_queries]


def _method(mechanism: object) -> Method:
    if isinstance(mechanism, LabelMechanism):
        return "labels-rdp"
    if isinstance(mechanism, (GNMax, ConfidentGNMax, InteractiveGNMax)):
        return "argmax-rdp"
    if isinstance(mechanism, NoisyHistogram):
        return "histogram-rdp"
    return "pure-dp-rdp" if isinstance(mechanism, LNMax) else "price-rdp"


def _gaussian_costs(mechanism: Any, n_queries: int, delta: float) -> list[ComparedCost]:
    sigma, sigma_threshold, n_checks = mechanism.sigma, 1.0, 0
    histogram = RdpCurve.zcdp(1 / sigma**2) * n_queries
    if isinstance(mechanism, (ConfidentGNMax, InteractiveGNMax)):
        sigma_threshold, n_checks = mechanism.sigma_threshold, n_queries
        histogram = histogram + RdpCurve.zcdp(1 / (2 * sigma_threshold**2)) * n_checks
    checks: dict[str, Any] = {"sigma_threshold": sigma_threshold, "n_checks": n_checks}
    mu = gaussian_dp_mu(sigma, n_queries, **checks)
    costs = [ComparedCost("histogram-gdp", gaussian_dp_epsilon(mu, delta), holds_for="continuous noise")]
    if not isinstance(mechanism, NoisyHistogram):  # which is charged just that
        costs.append(ComparedCost("histogram-rdp", *histogram.epsilon_and_order(delta)))
    epsilon = (
        discrete_gaussian_pld_epsilon(sigma, n_queries, delta=delta, **checks) if has_pld() else math.inf
    )
    if math.isfinite(epsilon):
        costs.append(ComparedCost("histogram-pld", epsilon, holds_for="a fixed number of queries"))
    return costs
