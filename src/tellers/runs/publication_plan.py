"""Planning a publication: order, smoothness and noise, chosen on public votes."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ..accounting._publishable import (
    Method,
    available_methods,
    cost_and_sensitivities,
    has_logarithm,
    log_cost_and_sensitivities,
    require_method,
)
from ..accounting.costs import independent_cost, public_numbers
from ..accounting.plan import Consensus, LabelConsensus
from ..accounting.smooth import PublishPlan, release_prices
from ..errors import require_count, require_fraction
from ..mechanisms.base import Mechanism
from ..privacy.rdp import RdpCurve
from ..privacy.votes import LabelVotes, Votes
from ..teachers.store import VoteFile, hold_votes, read_votes
from .personal.accounting import Asked
from .personal.publishing import distances_of, group_sums, independent_group_costs

AnyVotes = Votes | LabelVotes
# Queries that are made up where there is no proxy.
_N_PROXY = {"classes": 1000, "labels": 400}
_ORDERS = (3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0, 60.0)
# Many labels cost much, and a large epsilon is smallest at a low order, with little noise on it.
_LABEL_ORDERS = (1.25, 1.5, 1.75, 2.0, 2.5, *_ORDERS)
_QUIETEST, _LABEL_QUIETEST = 0.5, 0.05
# Offsets that are tried for the logarithm of a cost, as multiples of what the proxy costs.
OFFSETS = (0.1, 0.3, 1.0, 3.0, 10.0)


def proxy_votes(
    proxy: AnyVotes | str | PathLike[str] | None,
    kind: Literal["classes", "labels"],
    n_teachers: int,
    width: int,
    *,
    resolution: int = 1,
    thresholds: ArrayLike | None = None,
) -> tuple[AnyVotes, str]:
    """Return public votes to plan on, refusing others than are planned for; what was assumed, if made up."""
    public: Any = proxy
    if proxy is None:
        made_up: Any = LabelConsensus() if kind == "labels" else Consensus()
        more = {"resolution": resolution} if kind == "labels" else {}
        public = made_up.votes(n_teachers, width, n_queries=_N_PROXY[kind], seed=0, **more)
        words = f"Order and noise were chosen on made-up votes: {made_up}."
        return (public if kind == "labels" else public[0]), words
    if not isinstance(proxy, Votes):
        terms: dict[str, Any] = {"n_classes": width}
        if kind == "labels":
            terms = {"resolution": resolution if resolution > 1 else None, "thresholds": thresholds}
        public = read_votes(proxy, kind=kind, **terms).votes
    found = hold_votes(VoteFile(public))
    if (found.kind, found.n_teachers, found.width) != (kind, n_teachers, width):
        raise ValueError(
            f"Expected a proxy of {n_teachers} teachers and {width} {kind}, got {found.n_teachers} and "
            f"{found.width}."
        )
    return public, ""


def plan_publication(
    mechanism: Mechanism,
    proxy: AnyVotes,
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
    search = _PlanSearch(mechanism, proxy, n_queries, delta, confidence, purse)
    plans = []
    for each in methods:
        if each == "independent":
            known: dict[str, Any] = public_numbers(proxy)
            epsilon, order = independent_cost(mechanism, n_queries, **known).epsilon_and_order(delta)
            plans.append(PublishPlan("independent", order, 0.0, 0.0, 1.0, epsilon))
            continue
        found = search.refined(partial(search.best_at, method=each))
        if offsets and has_logarithm(mechanism, each):
            found += search.best_logs(found, offsets)
        plans.append(min(found, key=_expected))
    return sorted(plans, key=lambda plan: (plan.method == "gnss", plan.expected_epsilon))


@dataclass(frozen=True, eq=False)
class _PlanSearch:
    """A search for the plan with the smallest median epsilon, on a proxy."""

    mechanism: Mechanism
    proxy: AnyVotes
    n_queries: int
    delta: float
    confidence: float
    purse: "Purse | None"
    # What the proxy costs, as far as it was looked at.
    _totals: dict[tuple[float, Method], float] = field(default_factory=dict)

    @property
    def orders(self) -> tuple[float, ...]:
        return _LABEL_ORDERS if isinstance(self.proxy, LabelVotes) else _ORDERS

    def refined(self, best_at: Callable[[float], PublishPlan]) -> list[PublishPlan]:
        """Return the best plans at all orders, and around the best of them."""
        found = [best_at(order) for order in self.orders]
        return found + [best_at(near) for near in self.between(min(found, key=_expected).order)]

    def between(self, order: float) -> list[float]:
        """Return more orders on both sides of one."""
        at = self.orders.index(order)
        low, high = self.orders[max(0, at - 1)], self.orders[min(len(self.orders) - 1, at + 1)]
        # Whole orders, but for those below 3, which are eighths.
        grain = 1 if low >= 3 or self.orders is _ORDERS else 8
        every = {float(round(x * grain)) / grain for x in np.geomspace(low, high, 7)}
        return sorted(every - set(self.orders))

    def best_logs(self, plain: list[PublishPlan], shares: Sequence[float]) -> list[PublishPlan]:
        """Return the plans that publish a logarithm, at the orders that are worth a look."""
        if isinstance(self.proxy, LabelVotes):  # slow, and best at about the same order as the cost itself
            order = min(plain[: len(self.orders)], key=_expected).order
            return [self.best_log_at(near, shares) for near in [order, *self.between(order)]]
        # The logarithm of what an arg max costs moves so little that orders two or three times as large are
        # best.
        return self.refined(partial(self.best_log_at, shares=shares))

    def best_at(self, order: float, method: Method) -> PublishPlan:
        """Return the plan with the smallest median epsilon at one order."""
        total, local = cost_and_sensitivities(
            self.mechanism, self.proxy, order=order, method=method, answered=self._answered
        )
        self._totals[order, method] = total
        grid = self._grid(order)
        value = self._scale * (total + grid.z * grid.smooth(local)[:, None] * grid.sigmas)
        return self._cheapest(value[None], grid, method, [None])

    def best_log_at(self, order: float, shares: Sequence[float]) -> PublishPlan:
        """Return the plan with the smallest median epsilon at one order that publishes a logarithm."""
        plain = self._totals.get((order, "envelope"))
        if plain is None:
            plain, _ = log_cost_and_sensitivities(self.mechanism, self.proxy, order=order, offsets=[1.0])
        # A proxy that costs nothing has no offset in proportion to it; any will do.
        offsets = [float(f"{share * (self._scale * plain or 1.0):.2g}") for share in shares]
        # As many times the queries are as many times the cost: the offset is a smaller part of it.
        total, local = log_cost_and_sensitivities(
            self.mechanism, self.proxy, order=order, offsets=[offset / self._scale for offset in offsets]
        )
        grid = self._grid(order)
        smooth = np.array([grid.smooth(each) for each in local])
        added = np.array(offsets)[:, None, None]
        with np.errstate(over="ignore"):
            value = (self._scale * total + added) * np.exp(grid.z * smooth[:, :, None] * grid.sigmas) - added
        return self._cheapest(value, grid, "envelope", offsets)

    def _cheapest(
        self, value: NDArray[np.float64], grid: "_Grid", method: Method, offsets: Sequence[float | None]
    ) -> PublishPlan:
        """Return the best plan by its cost at every offset, smoothness and noise, if it can be paid."""
        value = value + grid.prices(grid.order)
        if self.purse is not None:
            value[:, grid.prices(self.purse.order) > self.purse.most] = math.inf
        k, i, j = np.unravel_index(int(np.argmin(value)), value.shape)
        epsilon = RdpCurve(np.array([grid.order]), np.array([value[k, i, j]])).epsilon(self.delta)
        beta, sigma = float(grid.betas[i]), float(grid.sigmas[j])
        return PublishPlan(method, grid.order, beta, sigma, self.confidence, epsilon, offset=offsets[int(k)])

    @property
    def _scale(self) -> float:
        return self.n_queries / len(self.proxy)

    @cached_property
    def _answered(self) -> NDArray[np.bool_]:
        likely = getattr(self.mechanism, "likely_answered", None)
        return np.ones(len(self.proxy), dtype=bool) if likely is None else likely(self.proxy)

    def _grid(self, order: float) -> "_Grid":
        quietest = _LABEL_QUIETEST if isinstance(self.proxy, LabelVotes) else _QUIETEST
        return _Grid(order, float(ndtri(self.confidence)), quietest)


def _expected(plan: PublishPlan) -> float:
    return plan.expected_epsilon


@dataclass(frozen=True)
class _Grid:
    """The smoothness and noise that are tried at one order."""

    order: float
    z: float
    quietest: float = _QUIETEST

    @property
    def betas(self) -> NDArray[np.float64]:
        # Beyond log(order / (order - 1)) / 2 the price is infinite.
        largest = 0.5 * np.log(self.order / (self.order - 1))
        return np.geomspace(largest / 200, 0.9 * largest, 30)

    @property
    def sigmas(self) -> NDArray[np.float64]:
        return np.geomspace(self.quietest, 1000, 60)

    def smooth(self, local: NDArray[np.float64], n_steps: int = 1) -> NDArray[np.float64]:
        """Return the smooth sensitivity for every smoothness, which is for so many steps."""
        discount = np.exp(-self.betas[:, None] / n_steps * np.arange(local.size))
        return np.asarray((discount * local).max(axis=1))

    @lru_cache(maxsize=256)  # noqa: B019 - equal grids share it, and it is small
    def prices(self, order: float, share: float = 1.0) -> NDArray[np.float64]:
        """Return what each pair of smoothness and noise costs at an order whoever moves by that share."""
        return release_prices(order, betas=self.betas * share, sigmas=self.sigmas / share, z=self.z)


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
    limits = list(purses)
    for order in _ORDERS:
        grid = _Grid(order, float(ndtri(confidence)))
        added = RdpCurve(np.array([order]), np.ones(1)).epsilon(delta) - 1  # by the conversion, to any value
        epsilons = {}
        for name, (total, local) in group_sums(proxy, order=order, method=chosen).items():
            value = scale * (total + grid.z * grid.smooth(local, far.n_steps)[:, None] * grid.sigmas)
            epsilons[name] = value + times * grid.prices(order, far.shares[name]) + added
        ratio = np.mean([epsilons[name] / budget for name, budget in budgets.items()], axis=0)
        for purse in limits:
            # Whoever moves most pays most, and the account of everybody is charged that.
            share = max(far.shares.values()) if purse.group is None else far.shares[purse.group]
            ratio[times * grid.prices(purse.order, share) > purse.most] = math.inf
        i, j = np.unravel_index(int(np.argmin(ratio)), ratio.shape)
        if ratio[i, j] < least:
            least, expected = float(ratio[i, j]), float(epsilons[generous][i, j])
            beta, sigma = float(grid.betas[i]), float(grid.sigmas[j])
            best = PublishPlan(chosen, order, beta, sigma, confidence, expected)
    return best
