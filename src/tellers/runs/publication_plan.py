"""Planning a publication: order, smoothness and noise, chosen on public votes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting._publishable import (
    Method,
    available_methods,
    cost_and_sensitivities,
    has_logarithm,
    independent_cost,
    log_cost_and_sensitivities,
    require_method,
)
from ..accounting.smooth import PublishPlan, release_prices
from ..errors import require_count, require_fraction
from ..mechanisms.base import Mechanism
from ..privacy.rdp import RdpCurve
from ..privacy.votes import LabelVotes, Votes
from .personal.accounting import Asked
from .personal.publishing import Distances, distances_of, group_sums, independent_group_costs

_ORDERS = (3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0, 60.0)
# Many labels cost much, and a large epsilon is smallest at a low order, with little noise on it.
_LABEL_ORDERS = (1.25, 1.5, 1.75, 2.0, 2.5, *_ORDERS)
_QUIETEST, _LABEL_QUIETEST = 0.5, 0.05
# Offsets that are tried for the logarithm of a cost, as multiples of what the proxy costs.
OFFSETS = (0.1, 0.3, 1.0, 3.0, 10.0)


def plan_publication(
    mechanism: Mechanism,
    proxy: Votes | LabelVotes,
    *,
    n_queries: int,
    delta: float,
    confidence: float = 0.95,
    method: Method | None = None,
    offsets: Sequence[float] = OFFSETS,
    purse: "Purse | None" = None,
) -> list[PublishPlan]:
    """Return the best plan of each method on a public proxy, the one to take first.

    For GNMax and for many labels the logarithm of the cost is tried as well, with offsets that are these
    multiples of what the proxy costs; with none, the cost alone. With a `purse` only what it can pay is
    considered; a method of which that is nothing comes last, and its expected epsilon is infinite.

    Guarantee: looks at the proxy only, so the plan is as public as the proxy.
    Assumes:   the proxy has the ensemble's number of teachers and classes, and resembles its votes; if it
               does not, the published value is larger, not wrong.
    Reference: see "Publishing a cost close to the exact one". Unless asked for by name, the papers' form
               comes last: it covers the forward direction of the divergence only.

    >>> from tellers import GNMax, Votes
    >>> proxy = Votes.from_counts([[240, 10], [200, 50]] * 20, n_teachers=250)
    >>> plan_publication(GNMax(sigma=40.0), proxy, n_queries=400, delta=1e-5)[0].method
    'envelope'
    """
    require_fraction(delta=delta, confidence=confidence)
    require_count(n_queries=n_queries)
    if method is not None:
        require_method(mechanism, method)
    methods = available_methods(mechanism) if method is None else (method,)
    orders = _LABEL_ORDERS if isinstance(proxy, LabelVotes) else _ORDERS
    likely = getattr(mechanism, "likely_answered", None)
    answered = np.ones(len(proxy), dtype=bool) if likely is None else likely(proxy)
    plans = []
    for each in methods:
        if each == "independent":
            epsilon, order = independent_cost(mechanism, n_queries).epsilon_and_order(delta)
            plans.append(PublishPlan("independent", order, 0.0, 0.0, 1.0, epsilon))
            continue
        tried = {
            order: _best_at(mechanism, proxy, order, each, answered, n_queries, delta, confidence, purse)
            for order in orders
        }
        best = min(tried.values(), key=_expected)
        for near in _between(best.order, orders):
            tried[near] = _best_at(
                mechanism, proxy, near, each, answered, n_queries, delta, confidence, purse
            )
        found = list(tried.values())
        if offsets and has_logarithm(mechanism, each):
            found += _best_logs(
                mechanism, proxy, best.order, orders, n_queries, delta, confidence, offsets, purse
            )
        plans.append(min(found, key=_expected))
    return sorted(plans, key=lambda plan: (plan.method == "gnss", plan.expected_epsilon))


def _best_logs(
    mechanism: Mechanism,
    proxy: Votes | LabelVotes,
    order: float,
    orders: tuple[float, ...],
    *how: Any,
) -> list[PublishPlan]:
    """Return the plans that publish a logarithm, at the orders that are worth a look."""
    if isinstance(proxy, LabelVotes):  # slow, and best at about the same order as the cost itself
        return [_best_log_at(mechanism, proxy, near, *how) for near in [order, *_between(order, orders)]]
    # The logarithm of what an arg max costs moves so little that orders two or three times as large are best.
    found = {near: _best_log_at(mechanism, proxy, near, *how) for near in orders}
    best = min(found.values(), key=_expected)
    for near in _between(best.order, orders):
        found[near] = _best_log_at(mechanism, proxy, near, *how)
    return list(found.values())


def _expected(plan: PublishPlan) -> float:
    return plan.expected_epsilon


def _between(order: float, orders: tuple[float, ...]) -> list[float]:
    at = orders.index(order)
    low, high = orders[max(0, at - 1)], orders[min(len(orders) - 1, at + 1)]
    # Whole orders, but for those below 3, which are eighths.
    grain = 1 if low >= 3 or orders is _ORDERS else 8
    return sorted({float(round(x * grain)) / grain for x in np.geomspace(low, high, 7)} - set(orders))


def _best_at(
    mechanism: Mechanism,
    proxy: Votes | LabelVotes,
    order: float,
    method: Method,
    answered: NDArray[np.bool_],
    n_queries: int,
    delta: float,
    confidence: float,
    purse: "Purse | None",
) -> PublishPlan:
    """Return the plan with the smallest median epsilon at one order."""
    total, local = cost_and_sensitivities(mechanism, proxy, order=order, method=method, answered=answered)
    scale = n_queries / len(proxy)
    betas, sigmas = _grid(order, _LABEL_QUIETEST if isinstance(proxy, LabelVotes) else _QUIETEST)
    discount = np.exp(-betas[:, None] * np.arange(local.size))
    smooth = (discount * local).max(axis=1)
    z = PublishPlan(method, order, 1.0, 1.0, confidence, 0.0).z
    value = scale * (total + z * smooth[:, None] * sigmas[None, :])
    value = value + release_prices(order, betas=betas, sigmas=sigmas, z=z)
    if purse is not None:
        value[release_prices(purse.order, betas=betas, sigmas=sigmas, z=z) > purse.most] = math.inf
    i, j = np.unravel_index(int(np.argmin(value)), value.shape)
    epsilon = RdpCurve(np.array([order]), np.array([value[i, j]])).epsilon(delta)
    return PublishPlan(method, order, float(betas[i]), float(sigmas[j]), confidence, epsilon)


def _best_log_at(
    mechanism: Mechanism,
    proxy: Votes | LabelVotes,
    order: float,
    n_queries: int,
    delta: float,
    confidence: float,
    shares: Sequence[float],
    purse: "Purse | None",
) -> PublishPlan:
    """Return the plan with the smallest median epsilon at one order, of those that publish a logarithm."""
    scale = n_queries / len(proxy)
    plain, _ = log_cost_and_sensitivities(mechanism, proxy, order=order, offsets=[1.0])
    # A proxy that costs nothing has no offset in proportion to it; any will do.
    offsets = [float(f"{share * (scale * plain or 1.0):.2g}") for share in shares]
    # As many times the queries are as many times the cost: the offset is a smaller part of it.
    total, local = log_cost_and_sensitivities(
        mechanism, proxy, order=order, offsets=[offset / scale for offset in offsets]
    )
    betas, sigmas = _grid(order, _LABEL_QUIETEST if isinstance(proxy, LabelVotes) else _QUIETEST)
    discount = np.exp(-betas[:, None] * np.arange(local.shape[1]))
    smooth = (discount * local[:, None]).max(axis=2)
    z = PublishPlan("envelope", order, 1.0, 1.0, confidence, 0.0).z
    each = np.array(offsets)[:, None, None]
    with np.errstate(over="ignore"):
        value = (scale * total + each) * np.exp(z * smooth[:, :, None] * sigmas) - each
    value = value + release_prices(order, betas=betas, sigmas=sigmas, z=z)
    if purse is not None:
        value[:, release_prices(purse.order, betas=betas, sigmas=sigmas, z=z) > purse.most] = math.inf
    k, i, j = np.unravel_index(int(np.argmin(value)), value.shape)
    epsilon = RdpCurve(np.array([order]), np.array([value[k, i, j]])).epsilon(delta)
    return PublishPlan(
        "envelope", order, float(betas[i]), float(sigmas[j]), confidence, epsilon, offset=offsets[k]
    )


@dataclass(frozen=True)
class Purse:
    """What an account can still pay: so much at one Rényi order, for a group or, with None, for everybody."""

    group: str | None
    order: float
    most: float


def plan_group_publication(
    proxy: Asked,
    *,
    n_queries: int,
    delta: float,
    confidence: float = 0.95,
    method: Method | None = None,
    n_releases: int | None = None,
    purses: Iterable[Purse] = (),
) -> PublishPlan:
    """Return one plan for all groups' numbers, the best on public votes that were counted as theirs will be.

    What is smallest on average is each group's epsilon as a share of its budget, with the prices of all
    releases in it (as many as there are groups, unless said otherwise). Unless asked for by name, the papers'
    form is not taken: it covers the forward direction of the divergence only. Where no release is worth its
    price the method is "independent". `expected_epsilon` is that of the most generous group.

    Only what every purse can pay is considered, so that the accounts of a ledger can be charged it; where
    that is nothing the method is "independent", also if another one was asked for.

    Guarantee: looks at the proxy only, so the plan is as public as the proxy.
    Assumes:   as `plan_publication`; the proxy's groups and weights are those of the votes to come.
    Reference: docs/maths/personalised.md, "Publishing a group's cost".

    >>> import numpy as np
    >>> from tellers import GNMax, Votes
    >>> from tellers.runs.personal import Group, Weighting
    >>> groups, seats = (Group("low", 0.7, 50), Group("high", 1.4, 50)), (np.arange(60), np.arange(60, 120))
    >>> weighting = Weighting(groups, GNMax(20.0), 120, seats, weight_of=(1, 2))
    >>> votes = Votes.from_ballots(np.zeros((120, 10), dtype=int), n_classes=4)
    >>> proxy = Asked(weighting, votes.weighted(weighting.weights(10, key="proxy")))
    >>> plan_group_publication(proxy, n_queries=500, delta=1e-5).method
    'envelope'
    """
    require_fraction(delta=delta, confidence=confidence)
    require_count(n_queries=n_queries)
    far, scale = distances_of(proxy), n_queries / len(proxy)
    budgets = {group.name: group.epsilon for group in proxy.plan.groups}
    times = len(budgets) if n_releases is None else n_releases
    generous = list(budgets)[-1]
    public = {
        name: (curve * scale).epsilon_and_order(delta)
        for name, curve in independent_group_costs(proxy).items()
    }
    best = PublishPlan("independent", public[generous][1], 0.0, 0.0, 1.0, public[generous][0])
    least = float(np.mean([public[name][0] / budget for name, budget in budgets.items()]))
    if method == "independent":
        return best
    chosen, least = method or "envelope", math.inf if method else least
    z, limits = PublishPlan(chosen, 2.0, 1.0, 1.0, confidence, 0.0).z, list(purses)
    for order in _ORDERS:
        betas, sigmas = _grid(order)
        too_dear = ~_payable(limits, far, betas, sigmas, z=z, times=times)
        added = RdpCurve(np.array([order]), np.ones(1)).epsilon(delta) - 1  # by the conversion, to any value
        epsilons = {}
        for name, cost in group_sums(proxy, order=order, method=chosen).items():
            discount = np.exp(-betas[:, None] / far.n_steps * np.arange(cost.local.size))
            smooth = (discount * cost.local).max(axis=1)
            value = scale * (cost.total + z * smooth[:, None] * sigmas[None, :])
            share = far.shares[name]
            paid = release_prices(order, betas=betas * share, sigmas=sigmas / share, z=z)
            epsilons[name] = value + times * paid + added
        ratio = np.mean([epsilons[name] / budget for name, budget in budgets.items()], axis=0)
        ratio[too_dear] = math.inf
        i, j = np.unravel_index(int(np.argmin(ratio)), ratio.shape)
        if ratio[i, j] < least:
            least, expected = float(ratio[i, j]), float(epsilons[generous][i, j])
            best = PublishPlan(chosen, order, float(betas[i]), float(sigmas[j]), confidence, expected)
    return best


def _payable(
    purses: list[Purse],
    far: Distances,
    betas: NDArray[np.float64],
    sigmas: NDArray[np.float64],
    *,
    z: float,
    times: int,
) -> NDArray[np.bool_]:
    """Return which pairs of smoothness and noise every purse can pay, at the order it is held at."""
    payable = np.ones((betas.size, sigmas.size), dtype=bool)
    for purse in purses:
        # Whoever moves most pays most, and the account of everybody is charged that.
        share = max(far.shares.values()) if purse.group is None else far.shares[purse.group]
        prices = release_prices(purse.order, betas=betas * share, sigmas=sigmas / share, z=z)
        payable &= times * prices <= purse.most
    return payable


def _grid(order: float, quietest: float = _QUIETEST) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # Beyond log(order / (order - 1)) / 2 the price is infinite.
    largest = 0.5 * np.log(order / (order - 1))
    return np.geomspace(largest / 200, 0.9 * largest, 30), np.geomspace(quietest, 1000, 60)
