"""Weights with which every group's budget lasts equally long.

Weights in proportion to epsilon are a rule of thumb: they let budgets run out together only where costs grow
with the square of the weight and budgets with the square of epsilon. Prices do neither quite,
and whoever runs out first ends the run for all. Here the weights are solved for.
"""

from collections.abc import Sequence

import numpy as np

from ...mechanisms.base import Mechanism, scaled
from ...privacy.budget import Accountant, Budget
from ...privacy.rdp import Floats, RdpCurve
from ...privacy.votes import Unit
from .consent import Group


def weights_by_price(
    groups: Sequence[Group],
    n_teachers: Sequence[int],
    mechanism: Mechanism,
    *,
    delta: float,
    denominator: int = 100,
) -> tuple[int, ...]:
    """Return whole weights with which all groups can pay the public price equally often.

    `n_teachers` are those of each group; `mechanism` is the one for one vote per teacher. The average teacher
    weighs `denominator`.

    Guarantee: none about privacy; whatever the weights, each group is charged what it costs.
    Assumes:   budgets and numbers of teachers are public.
    Reference: docs/maths/personalised.md; the rule it replaces is Mühl and Boenisch 2022, appendix B.
    """
    counts = np.array(n_teachers, dtype=np.int64)
    # One set of prices on a fine scale; between two whole weights they are read off by interpolation.
    fine = np.unique(np.geomspace(max(2, denominator // 50), 50 * denominator, 60).astype(np.int64))
    big = scaled(mechanism, denominator)
    prices = [big.price(Unit.of_weight(int(weight))) for weight in fine]
    held = [Accountant(Budget(group.epsilon, delta)) for group in groups]
    affordable = np.array([[times_paid(a, price) for price in prices] for a in held])

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
    share = weight_for(high)
    if np.ptp(share) == 0:
        return (1,) * len(groups)  # equal budgets are plain votes
    weights = share * (denominator * counts.sum() / (share @ counts))
    return tuple(np.maximum(1, np.round(weights)).astype(int).tolist())


def times_paid(accountant: Accountant, price: RdpCurve) -> float:
    """Return how often a price fits into a budget, at the order at which it is held."""
    most = accountant.value_left(RdpCurve.zero(price.orders))
    return most / max(float(price.values[price.orders == accountant.held_at][0]), 1e-300)
