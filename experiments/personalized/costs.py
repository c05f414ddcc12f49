"""How many queries a budget affords: by the paper's own accounting, exactly, and by what may be published.

Every function here walks along one voting, query after query, and says where the first group runs out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tellers import ConfidentGNMax, GNMax, Unit, Votes
from tellers.bounds import check_margins, gaussian_bound, log_accept
from tellers.exact import query_costs
from tellers.personal.together import team_costs, team_query_costs
from tellers.rdp import DEFAULT_ORDERS
from tellers.upset import log_q_gnmax

FEW = np.arange(2.0, 51.0)  # the paper's orders
# Budgets from 0.7 to 2.8 at delta 1e-5 are decided at orders 5 to 40; fewer orders can only cost labels.
ORDERS = np.array([3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 50], dtype=np.float64)
BLOCK = 200


@dataclass(frozen=True)
class Stop:
    """How many queries were affordable, and which group ran out; None where the public rows did."""

    n_queries: int
    group: int | None


def allowed(epsilon: float, delta: float, orders: np.ndarray, *, conversion: str = "tight") -> np.ndarray:
    """Return the Rényi cost at each order up to which (epsilon, delta) holds."""
    if conversion == "classic":
        return np.asarray(epsilon + np.log(delta) / (orders - 1))
    return np.asarray(epsilon - np.log1p(-1 / orders) + (np.log(delta) + np.log(orders)) / (orders - 1))


def paper_costs(
    mechanism: ConfidentGNMax, votes: Votes, answered: np.ndarray, *, sensitivity: float
) -> np.ndarray:
    """Return the paper's cost of each query at each of its orders, to somebody of this sensitivity.

    Theorem 6 of PATE 2018 at noise over sensitivity, with q from the votes and the noise as they are. The
    paper leaves open which noise q is computed at; at noise over sensitivity it would not be a bound, and
    would give other numbers than the paper's.
    """
    accept, reject = log_accept(check_margins(votes, mechanism.threshold), mechanism.sigma_threshold)
    log_q = log_q_gnmax(votes.counts, mechanism.sigma)
    answers = gaussian_bound(log_q, mechanism.sigma / sensitivity, orders=FEW)
    checks = gaussian_bound(
        np.minimum(accept, reject), np.sqrt(2) * mechanism.sigma_threshold / sensitivity, orders=FEW
    )
    return np.asarray(checks + answers * answered[:, None])


def price_costs(mechanism: ConfidentGNMax, answered: np.ndarray, *, unit: Unit) -> np.ndarray:
    """Return the public price of each query, at the default orders: silence costs its check alone."""
    check, answer = mechanism.check_price(unit).values, GNMax(mechanism.sigma).price(unit).values
    return np.asarray(check + answer * answered[:, None])


def walk_costs(
    costs: Sequence[np.ndarray],
    limits: Sequence[np.ndarray],
    *,
    members: Sequence[np.ndarray] = (),
    present: np.ndarray | None = None,
) -> Stop:
    """Walk along costs per group and query; `present` (teachers, queries) says who was charged for which."""
    first, group = len(costs[0]), None
    for at, (own, limit) in enumerate(zip(costs, limits, strict=True)):
        if present is None:
            n = _within(np.cumsum(own, axis=0), limit)
        else:
            n = _busiest(own[:first], present[members[at], :first], limit)
        if n < first:
            first, group = n, at
    return Stop(first, group)


def _busiest(costs: np.ndarray, present: np.ndarray, limit: np.ndarray) -> int:
    """Return how many queries every teacher of a group can afford."""
    spent = np.zeros((len(present), costs.shape[1]))
    for start in range(0, len(costs), BLOCK):
        part = slice(start, start + BLOCK)
        running = spent[:, None] + np.cumsum(present[:, part, None] * costs[None, part], axis=1)
        n = _within(running, limit)
        if n < running.shape[1]:
            return start + n
        spent = running[:, -1]
    return len(costs)


def _within(running: np.ndarray, limit: np.ndarray) -> int:
    """Return how many queries (the last axis but one) everybody can afford."""
    over = ~np.any(running <= limit, axis=-1)
    over = over.reshape(-1, over.shape[-1]).any(axis=0)
    return int(over.argmax()) if over.any() else over.size


@dataclass
class ExactWalk:
    """A walk by exact costs, per teacher: it can go on with another budget, or without a group."""

    n_teachers: int
    start: int = 0

    def __post_init__(self) -> None:
        self.spent = np.zeros((2, self.n_teachers, ORDERS.size))

    def go(
        self,
        mechanism: ConfidentGNMax,
        votes: Votes,
        *,
        members: Sequence[np.ndarray],
        limits: Sequence[np.ndarray],
    ) -> Stop:
        """Go on from where the walk stands; `votes` are those of all queries from the first on."""
        while self.start < len(votes):
            part = np.arange(self.start, min(self.start + BLOCK, len(votes)))
            for _, costs in query_costs(mechanism, votes[part], orders=ORDERS):
                then = self.spent + costs
                for at, (own, limit) in enumerate(zip(members, limits, strict=True)):
                    if not np.any(then[:, own].max(axis=(0, 1)) <= limit):
                        return Stop(self.start, at)
                self.spent = then
                self.start += 1
        return Stop(self.start, None)


def exact_teams(
    mechanism: ConfidentGNMax, votes: Votes, *, teams: Sequence[np.ndarray], limits: Sequence[np.ndarray]
) -> Stop:
    """Walk by exact costs per person: all teachers with a person's data may change, `teams` of each group."""
    spent = [np.zeros((2, len(own), ORDERS.size)) for own in teams]
    for start in range(0, len(votes), BLOCK):
        part = votes[np.arange(start, min(start + BLOCK, len(votes)))]
        then = [
            before + team_costs(mechanism, part, own, orders=ORDERS).reveal()
            for before, own in zip(spent, teams, strict=True)
        ]
        if all(_affords(now, limit) for now, limit in zip(then, limits, strict=True)):
            spent = then
            continue
        n, group = len(part), None
        for at, (before, own, limit) in enumerate(zip(spent, teams, limits, strict=True)):
            if _affords(then[at], limit):
                continue
            for query, now in _running(mechanism, part, own, before):
                if query >= n:
                    break
                if not _affords(now, limit):
                    n, group = query, at
                    break
        return Stop(start + n, group)
    return Stop(len(votes), None)


def _running(
    mechanism: ConfidentGNMax, votes: Votes, teams: np.ndarray, spent: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    now = spent
    for query, costs, which in team_query_costs(mechanism, votes, teams, orders=ORDERS):
        now = now + costs[:, which]
        yield query, now


def _affords(spent: np.ndarray, limit: np.ndarray) -> bool:
    return bool(np.any(spent.max(axis=(0, 1)) <= limit))


def teacher_epsilons(spent: np.ndarray, members: Sequence[np.ndarray], delta: float) -> list[float]:
    """Return the exact epsilon of each group after a walk."""
    zero = allowed(0.0, delta, ORDERS)
    return [float((spent[:, own].max(axis=(0, 1)) - zero).min()) for own in members]


__all__ = ["DEFAULT_ORDERS", "FEW", "ORDERS", "ExactWalk", "Stop", "allowed", "exact_teams"]
