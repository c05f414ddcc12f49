"""How many queries budgets afford: the accountants of the paper and ours, and a walk that can go on."""

from dataclasses import dataclass

import numpy as np

from tellers import ConfidentGNMax, Votes
from tellers.accounting.exact import query_costs
from tellers.runs.personal import Asked, PersonalPlan
from tellers.runs.personal.accounting import labels_within_budgets

FEW = np.arange(2.0, 51.0)  # the paper's orders
# Budgets from 0.7 to 2.8 at delta 1e-5 are decided at orders 5 to 40; fewer orders can only cost labels.
ORDERS = np.array([3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 50], dtype=np.float64)
# The paper leaves open at which noise its q is computed. At the noise that is drawn its numbers come out; at
# the noise over a group's sensitivity, which would be no bound, quite other ones.
PAPER = {"accounting": "as_tabulated", "conversion": "classic", "orders": FEW}
EXACT = {"accounting": "exact", "orders": ORDERS}
PUBLIC = {"accounting": "public"}
BLOCK = 200


@dataclass(frozen=True)
class Stop:
    """How many queries were affordable, and which group ran out; None where the public rows did."""

    n_queries: int
    group: int | None


def stop_of(asked: Asked, delta: float, **accountant: object) -> Stop:
    """Return where the first group runs out by this accountant."""
    found = labels_within_budgets(asked, delta=delta, **accountant).reveal()  # type: ignore[arg-type]
    names = [group.name for group in asked.plan.groups]
    return Stop(found.n_queries, None if found.first_over is None else names.index(found.first_over))


@dataclass
class ExactWalk:
    """A walk by exact costs, query after query, that can go on with fewer groups."""

    n_teachers: int
    delta: float
    start: int = 0

    def __post_init__(self) -> None:
        self.spent = np.zeros((2, self.n_teachers, ORDERS.size))

    def go(self, plan: PersonalPlan, votes: Votes) -> Stop:
        """Go on from where the walk stands; `votes` are those of all queries from the first on."""
        mechanism = plan.mechanism
        assert isinstance(mechanism, ConfidentGNMax)
        limits = [allowed(group.epsilon, self.delta) for group in plan.groups]
        while self.start < len(votes):
            part = np.arange(self.start, min(self.start + BLOCK, len(votes)))
            for _, costs in query_costs(mechanism, votes[part], orders=ORDERS):
                then = self.spent + costs
                for at, (own, limit) in enumerate(zip(plan.members, limits, strict=True)):
                    if not np.any(then[:, own].max(axis=(0, 1)) <= limit):
                        return Stop(self.start, at)
                self.spent = then
                self.start += 1
        return Stop(self.start, None)


def allowed(epsilon: float, delta: float) -> np.ndarray:
    """Return the Rényi cost at each order up to which (epsilon, delta) holds, by the tight conversion."""
    return np.asarray(epsilon - np.log1p(-1 / ORDERS) + (np.log(delta) + np.log(ORDERS)) / (ORDERS - 1))
