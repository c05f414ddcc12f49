"""Figures 3 and 4 as computed curves: Binary against Powerset as labels become random, or all agree.

No data set: 50 teachers' ballots are drawn (figure 3) or all the same (figure 4). A batch of queries is asked
again and again until the budget is spent, so that no pool ends.
"""

from typing import Any

import numpy as np
from accounting import ORDERS, Voting, affordable, published_costs

from tellers import LabelVotes, Unit
from tellers.accounting.exact import query_costs
from tellers.privacy import RdpCurve

N_TEACHERS, SIGMA = 50, 7.0


def random_labels(n_labels: int, n_random: int, n_queries: int, seed: int) -> LabelVotes:
    """Return votes in which the first labels are fair coins and everybody says no to the others."""
    ballots = np.zeros((N_TEACHERS, n_queries, n_labels), dtype=np.uint8)
    coins = np.random.default_rng([seed, n_random]).random((N_TEACHERS, n_queries, n_random)) < 0.5
    ballots[:, :, :n_random] = coins
    return LabelVotes.from_ballots(ballots, n_labels=n_labels)


def agreed(n_labels: int) -> LabelVotes:
    """Return one query to which everybody says no, on all labels."""
    return LabelVotes.from_ballots(np.zeros((N_TEACHERS, 1, n_labels), dtype=np.uint8), n_labels=n_labels)


def capacity(kind: str, votes: LabelVotes, epsilon: float, delta: float) -> dict[str, int]:
    """Return how many such queries epsilon answers, by every accountant."""
    voting = Voting(kind, SIGMA)
    mechanism = voting.mechanism(votes.n_labels)
    sound = ORDERS * voting.sound_distance(votes.n_labels) / SIGMA**2
    published = np.minimum(published_costs(voting, votes), sound)
    exact = np.stack([costs for _, costs in query_costs(mechanism, votes, orders=ORDERS)])
    return {
        "published": _cycle(published[:, None, None, :], epsilon, delta),
        "gauss": affordable(sound, epsilon, delta),
        "price": affordable(mechanism.price(Unit(), ORDERS).values, epsilon, delta),
        "exact": _cycle(exact, epsilon, delta),
    }


def _cycle(costs: Any, epsilon: float, delta: float, most: int = 10**8) -> int:
    """Return how many queries fit, asked in a circle; costs are (queries, directions, teachers, orders)."""
    running = np.cumsum(costs, axis=0)

    def spent(n: int) -> float:
        rounds, rest = divmod(n, len(costs))
        total = rounds * running[-1] + (running[rest - 1] if rest else 0.0)
        return RdpCurve(ORDERS, total.max(axis=(0, 1))).epsilon(delta)

    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if spent(middle) <= epsilon:
            low = middle
        else:
            high = middle - 1
    return low
