"""Weights with which every group's budget lasts equally long.

Weights in proportion to epsilon are a rule of thumb: they let budgets run out together only where costs grow
with the square of the weight and budgets with the square of epsilon. Prices do neither quite,
and whoever runs out first ends the run for all. Here the weights are solved for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import require_count, require_fraction, require_positive
from ...mechanisms.base import Mechanism, scaled
from ...privacy.budget import Accountant, Budget
from ...privacy.rdp import RdpCurve
from ...privacy.votes import Unit

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
    most = accountant.value_left(RdpCurve.zero(price.orders))
    return most / max(float(price.values[price.orders == accountant.held_at][0]), 1e-300)
