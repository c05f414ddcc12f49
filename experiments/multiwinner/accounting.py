"""How many queries a budget answers, by the published costs, by sound prices, and by the exact divergence.

The same votes, orders, delta and conversion for all: what differs is the cost of a query.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tellers import LabelVotes, Unit
from tellers.accounting.exact import query_costs
from tellers.mechanisms import Binary, Powerset, Tau
from tellers.mechanisms.labels._published import published_label_cost
from tellers.privacy import RdpCurve

Floats = np.ndarray
# Epsilons of 2 to 20 for hundreds of queries are decided at small orders.
ORDERS = np.array([1.1, 1.25, 1.4, 1.55, 1.7, 1.85, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 8, 11, 16, 24, 40])
BLOCK = 200  # queries at a time, fewer with many labels: a run stops soon after its last budget is spent


@dataclass(frozen=True)
class Voting:
    """A way of voting: binary, l2, l1 or powerset, its noise, and its limit: a norm, or a number of ones."""

    kind: str
    sigma: float
    limit: float = 0.0

    @property
    def key(self) -> str:
        """Return the name under which its results are kept."""
        return f"{self.kind}-{self.limit:g}-{self.sigma:g}" if self.limit else f"{self.kind}-{self.sigma:g}"

    @property
    def words(self) -> str:
        """Return how it is called in tables."""
        named = {"binary": "Binary", "l2": "tau l2", "l1": "tau l1", "powerset": "Powerset"}[self.kind]
        return f"{named} {self.limit:.3g}" if self.limit else named

    def mechanism(self, n_labels: int) -> Any:
        """Return the library's mechanism."""
        if self.kind == "binary":
            return Binary(self.sigma, n_labels)
        if self.kind == "powerset":
            return Powerset(self.sigma, n_labels, max_labels=int(self.limit))
        return Tau(self.sigma, n_labels, max_norm=self.limit, norm=self.kind)

    def printed_distance(self, n_labels: int) -> float:
        """Return the multiple of order / sigma^2 that the paper charges for a query."""
        if self.kind == "l2":
            return min(float(n_labels), self.limit**2)
        if self.kind == "l1":
            return min(float(n_labels), 2 * self.limit**2)
        return 1.0 if self.kind == "powerset" else float(n_labels)

    def sound_distance(self, n_labels: int) -> float:
        """Return the largest squared distance of two ballots: what noisy counts cost, of order / sigma^2."""
        if self.kind in ("binary", "powerset"):
            return self.printed_distance(n_labels)
        return _farthest(self.limit, self.kind, n_labels)


@lru_cache
def _farthest(limit: float, norm: str, n_labels: int) -> float:
    """The two ballots share no more labels than they must; ones of l count min(1, limit / length) each."""
    ones = np.arange(n_labels + 1)
    lengths = ones if norm == "l1" else np.sqrt(ones)
    value = np.minimum(1.0, limit / np.maximum(lengths, 1))
    shared = np.maximum(0, ones[:, None] + ones - n_labels)
    apart = (ones[:, None] - shared) * value[:, None] ** 2 + (ones - shared) * value**2
    return float((apart + shared * (value[:, None] - value) ** 2).max())


def published_costs(voting: Voting, votes: LabelVotes) -> Floats:
    """Return Theorem 6 of 2018 as the paper applies it, (queries, orders), at a sound sensitivity."""
    return published_label_cost(voting.mechanism(votes.n_labels), votes, orders=ORDERS)


def answered(voting: Voting, votes: LabelVotes, limits: tuple[float, ...], *, delta: float) -> dict[str, Any]:
    """Return, by accountant and limit, how many queries are answered; `len(votes)` where all of them are."""
    k = votes.n_labels
    mechanism = voting.mechanism(k)
    sound = ORDERS * voting.sound_distance(k) / voting.sigma**2
    printed = ORDERS * voting.printed_distance(k) / voting.sigma**2
    costs = published_costs(voting, votes)
    price = mechanism.price(Unit(), ORDERS).values
    found: dict[str, Any] = {}
    for limit in limits:
        found[f"printed/{limit:g}"] = _first(np.minimum(costs, printed), limit, delta)
        found[f"bound/{limit:g}"] = _first(np.minimum(costs, sound), limit, delta)
        found[f"printed-gauss/{limit:g}"] = affordable(printed, limit, delta)
        found[f"gauss/{limit:g}"] = affordable(sound, limit, delta)
        found[f"price/{limit:g}"] = affordable(price, limit, delta)
    found |= {f"exact/{limit:g}": n for limit, n in exact_answered(mechanism, votes, limits, delta).items()}
    return found


def exact_answered(
    mechanism: Any, votes: LabelVotes, limits: tuple[float, ...], delta: float
) -> dict[float, int]:
    """Return how many queries are answered by the exact cost of the dearest teacher."""
    totals = np.zeros((2, votes.n_teachers, ORDERS.size))
    waiting, found = sorted(limits), {limit: len(votes) for limit in limits}
    for done, costs in enumerate(_blockwise(mechanism, votes)):
        totals += costs
        epsilon = RdpCurve(ORDERS, totals.max(axis=(0, 1))).epsilon(delta)
        while waiting and epsilon > waiting[0]:
            found[waiting.pop(0)] = done
        if not waiting:
            break
    return found


def _blockwise(mechanism: Any, votes: LabelVotes) -> Iterator[Floats]:
    block = min(BLOCK, max(10, 4_000 // votes.n_labels))
    for start in range(0, len(votes), block):
        for _, costs in query_costs(mechanism, votes[start : start + block], orders=ORDERS):
            yield costs


def _first(costs: Floats, limit: float, delta: float) -> int:
    running = np.cumsum(costs, axis=0)
    low, high = 0, len(costs)
    while low < high:
        middle = (low + high + 1) // 2
        if RdpCurve(ORDERS, running[middle - 1]).epsilon(delta) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def affordable(cost: Floats, limit: float, delta: float, most: int = 10**9) -> int:
    """Return how many queries of one cost fit under epsilon, however many there are to ask."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if RdpCurve(ORDERS, cost * middle).epsilon(delta) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
