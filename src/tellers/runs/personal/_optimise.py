"""Weights with which every group's budget lasts equally long.

Weights in proportion to epsilon are a rule of thumb: they let budgets run out together only where costs grow
with the square of the weight and budgets with the square of epsilon. Prices and exact costs do neither quite,
and whoever runs out first ends the run for all. Here the weights are solved for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...accounting.exact import query_costs
from ...errors import require_count, require_fraction, require_positive
from ...mechanisms.base import Mechanism, scaled
from ...privacy.budget import Accountant, Budget
from ...privacy.rdp import RdpCurve, check_orders
from ...privacy.votes import Unit, Votes

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BalancedWeights:
    """Whole weights per group, and how many queries each group's budget then lasts.

    `n_queries` of proxy votes speak of the proxy, which is public; with prices they hold for any votes.
    """

    weights: tuple[int, ...]
    n_queries: tuple[float, ...]

    @property
    def lasts(self) -> float:
        """Return how many queries can be asked before the first budget is spent."""
        return min(self.n_queries)


def weights_by_price(
    epsilons: Sequence[float],
    n_teachers: Sequence[int],
    mechanism: Mechanism,
    *,
    delta: float,
    denominator: int = 100,
) -> BalancedWeights:
    """Return weights with which all groups can pay the public price equally often.

    `epsilons` and `n_teachers` are per group; `mechanism` is the one for one vote per teacher. Weights are
    whole; the average teacher weighs `denominator`.

    Guarantee: none about privacy; whatever the weights, each group is charged what it costs.
    Assumes:   budgets and numbers of teachers are public.
    Reference: docs/maths/personalised.md; the rule it replaces is Mühl and Boenisch 2022, appendix B.
    """
    budgets, counts = _groups(epsilons, n_teachers, delta=delta)
    require_count(denominator=denominator)
    # One set of prices on a fine scale; between two whole weights they are read off by interpolation.
    fine = np.unique(np.geomspace(max(2, denominator // 50), 50 * denominator, 60).astype(np.int64))
    big = scaled(mechanism, denominator)
    prices = [big.price(Unit.of_weight(int(weight))) for weight in fine]
    held = [Accountant(budget) for budget in budgets]
    affordable = np.array([[_times(a, price) for price in prices] for a in held])

    def weight_for(n_queries: float) -> Floats:
        # Times affordable fall with the weight: read the weight at which they are n_queries.
        logs = [np.interp(-np.log(n_queries), -np.log(row), np.log(fine)) for row in affordable]
        return np.exp(logs)

    low, high = float(affordable.min()), float(affordable.max())
    for _ in range(60):
        middle = np.sqrt(low * high)
        if weight_for(middle) @ counts > denominator * counts.sum():
            low = middle
        else:
            high = middle
    whole = _whole(weight_for(high), counts, denominator=denominator)
    factor = float(whole @ counts) / counts.sum()
    used = scaled(mechanism, factor)
    lasts = [_times(a, used.price(Unit.of_weight(int(w)))) for a, w in zip(held, whole, strict=True)]
    return BalancedWeights(tuple(int(w) for w in whole), tuple(lasts))


def weights_by_votes(
    epsilons: Sequence[float],
    group_of_teacher: ArrayLike,
    mechanism: Mechanism,
    proxy: Votes,
    *,
    delta: float,
    denominator: int = 100,
    rounds: int = 12,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BalancedWeights:
    """Return weights with which exact costs on proxy votes let all budgets last equally long.

    The proxy stands for the private votes and must be public: ballots of teachers trained on public data, or
    made-up ones (`calibrate.Consensus`). Costs beyond the proxy's queries are taken to go on as they began.

    Guarantee: none about privacy, as for `weights_by_price`.
    Assumes:   the proxy holds nothing private. Tuned on the private votes, weights would leak them.
    Reference: docs/maths/personalised.md.
    """
    group = np.asarray(group_of_teacher, dtype=np.int64)
    if group.shape != (proxy.n_teachers,):
        raise ValueError(
            f"Expected the group of each of the proxy's {proxy.n_teachers} teachers, got shape {group.shape}."
        )
    counts = np.bincount(group, minlength=len(epsilons))
    budgets, counts = _groups(epsilons, counts.tolist(), delta=delta)
    require_count(denominator=denominator, rounds=rounds)
    grid = check_orders(orders)

    def lasting(whole: Integers) -> Floats:
        votes = proxy.weighted(whole[group])
        factor = float(whole @ counts) / counts.sum()
        totals = np.zeros((2, proxy.n_teachers, grid.size))
        for _, costs in query_costs(scaled(mechanism, factor), votes, orders=grid, student=student):
            totals += costs
        worst = totals.max(axis=0)
        return np.array(
            [
                len(votes) * _share(RdpCurve(grid, worst[group == g].max(axis=0)), budget)
                for g, budget in enumerate(budgets)
            ]
        )

    share = np.array([budget.epsilon for budget in budgets])
    best: BalancedWeights | None = None
    for done in range(rounds):
        whole = _whole(share, counts, denominator=denominator)
        n_queries = lasting(whole)
        found = BalancedWeights(tuple(int(w) for w in whole), tuple(float(n) for n in n_queries))
        if best is None or found.lasts > best.lasts:
            best = found
        if progress is not None:
            progress(done + 1, rounds)
        # A cost grows at least with the square of the weight: half a step in logs does not overshoot.
        share = share * (n_queries / n_queries.min()) ** 0.4
        if n_queries.max() < 1.02 * n_queries.min():
            break
    assert best is not None  # rounds >= 1
    return best


def _groups(
    epsilons: Sequence[float], n_teachers: Sequence[int], *, delta: float
) -> tuple[list[Budget], Integers]:
    if len(epsilons) != len(n_teachers) or not len(epsilons):
        raise ValueError(
            "Expected a budget and a number of teachers per group, "
            f"got {len(epsilons)} and {len(n_teachers)}."
        )
    require_fraction(delta=delta)
    for epsilon, count in zip(epsilons, n_teachers, strict=True):
        require_positive(epsilon=epsilon)
        require_count(n_teachers=count)
    return [Budget(float(epsilon), delta) for epsilon in epsilons], np.array(n_teachers, dtype=np.int64)


def _whole(share: Floats, counts: Integers, *, denominator: int) -> Integers:
    """Return whole weights in these proportions, an average teacher weighing `denominator`."""
    if np.ptp(share) == 0:
        return np.ones(share.size, dtype=np.int64)  # equal budgets are plain votes
    weights = share * (denominator * counts.sum() / (share @ counts))
    whole: Integers = np.maximum(1, np.round(weights)).astype(np.int64)
    return whole


def _times(accountant: Accountant, price: RdpCurve) -> float:
    """Return how often a price fits into a budget, at the order at which it is held."""
    used = 1.0 - accountant.left(price)
    if used < 1.0:
        return 1.0 / max(used, 1e-300)
    # Dearer than all of it: how much of one price the budget could pay.
    low = 0.0
    for bit in range(1, 60):
        low += (
            2.0**-bit if accountant.affords(RdpCurve.zero(price.orders), price * (low + 2.0**-bit)) else 0.0
        )
    return max(low, 1e-12)


def _share(cost: RdpCurve, budget: Budget) -> float:
    """Return how many times such a cost fits into a budget, converted at the best order."""
    low, high = 0.0, 1.0
    while (cost * high).epsilon(budget.delta) <= budget.epsilon and high < 1e12:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        if (cost * middle).epsilon(budget.delta) <= budget.epsilon:
            low = middle
        else:
            high = middle
    return max(low, 1e-12)
