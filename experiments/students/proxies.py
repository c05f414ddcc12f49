"""How many teachers, how much noise, which rows and how many: planned on public columns of the pool.

The pool's rows are public, and so are all their columns but the income. Three of these stand in for it: a
degree, long hours, a marriage, each guessed from the other columns. As many teachers as there would be learn
one of them from overlapping draws of the pool, which needs no privacy, and vote on other rows of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from columns import column, columns_of
from sklearn.linear_model import LogisticRegression

from tellers import GNMax, Votes
from tellers.accounting.costs import independent_cost
from tellers.accounting.exact import query_costs
from tellers.privacy import DEFAULT_ORDERS, RdpCurve
from tellers.students import fit_supervised, typical_first

DELTA = 1e-5
N_PRIVATE, N_POOL = 32_561, 8_141
GOALS = (1.0, 2.0)
N_TEACHERS = (100, 250, 500)
STRENGTHS = (1.0, 3.0)  # of a teacher's fit: the inverse of its penalty
SHARES = (0.15, 0.2, 0.3, 0.4, 0.6)  # noise, as a share of the teachers
ORDERS = ("random", "typical")
N_LEARNED, N_ASKED = 4000, 3000
MARRIED = (2, 3)

PROXIES: dict[str, Any] = {
    "degree": (lambda X: column(X, "education-num") >= 13, ("education-num",)),
    "long hours": (lambda X: column(X, "hours-per-week") > 40, ("hours-per-week",)),
    "married": (lambda X: np.isin(column(X, "marital-status"), MARRIED), ("marital-status", "relationship")),
}


@dataclass(frozen=True)
class Plan:
    """What is fixed before any vote is seen; `expected` is the proxies' mean accuracy of a linear student."""

    n_teachers: int
    strength: float
    sigma: float
    order: str
    n_queries: int
    expected: float


@dataclass(frozen=True, eq=False)
class Stand:
    """What one proxy's teachers say, in the order of the questions, and what judges a student of it."""

    votes: Votes
    X: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def teacher(strength: float) -> Any:
    """Return an untaught teacher."""
    return LogisticRegression(C=strength, max_iter=300)


def ordered(order: str, X: np.ndarray, *, seed: int) -> np.ndarray:
    """Return the rows of a pool in the order in which they are asked."""
    if order == "typical":
        return typical_first(X, seed=seed)
    return np.random.default_rng(seed).permutation(len(X))


def stands(
    X: np.ndarray, *, n_seeds: int, n_teachers: int, strength: float
) -> Iterator[tuple[str, int, dict[str, Stand]]]:
    """Yield each proxy of each seed, in both orders."""
    for seed, (name, (ask, without)) in product(range(n_seeds), PROXIES.items()):
        rng = np.random.default_rng(10_000 + seed)
        rows = X[rng.permutation(len(X))[:N_POOL]]
        columns, truth = columns_of(rows, rows, without=without), ask(rows).astype(np.int64)
        learned, asked, held = np.split(np.arange(len(rows)), [N_LEARNED, N_LEARNED + N_ASKED])
        ballots = np.empty((n_teachers, N_ASKED), dtype=np.int64)
        for each in range(n_teachers):
            shard = rng.choice(learned, N_PRIVATE // n_teachers, replace=False)
            said = fit_supervised(teacher(strength), columns[shard], truth[shard]).predict(columns[asked])
            ballots[each] = said
        made = {}
        for order in ORDERS:
            first = ordered(order, columns[asked], seed=seed)
            votes = Votes.from_ballots(ballots[:, first], n_classes=2)
            made[order] = Stand(votes, columns[asked][first], columns[held], truth[held])
        yield name, seed, made


def affordable(votes: Votes, sigma: float) -> dict[float, int]:
    """Return, for each goal, how many of the pool's rows a proxy could have asked at an exact epsilon.

    A row of the proxy stands for N_POOL / N_ASKED of the pool; of every vote the dearest ballot is counted.
    """
    counts = Votes.from_counts(votes.counts, n_teachers=votes.n_teachers)
    costs = np.stack([cost[:, 0] for _, cost in query_costs(GNMax(sigma), counts)])
    running = np.cumsum(costs, axis=0).max(axis=1) * N_POOL / len(votes)

    def fits(goal: float) -> Any:
        return lambda k: RdpCurve(DEFAULT_ORDERS, running[k - 1]).epsilon(DELTA) <= goal

    rows = np.arange(1, len(votes) + 1)
    return {goal: int(_most(rows, fits(goal)) * N_POOL / len(votes)) for goal in GOALS}


def public_queries(sigma: float, goal: float) -> int:
    """Return how many questions a data-independent epsilon pays for."""
    return int(
        _most(np.arange(1, N_POOL + 1), lambda k: independent_cost(GNMax(sigma), k).epsilon(DELTA) <= goal)
    )


def make_plans(X: np.ndarray, *, n_seeds: int, say: bool = False) -> dict[str, Plan]:
    """Return the plan of each kind of epsilon and goal: the one whose linear students did best on proxies."""
    best: dict[str, Plan] = {}
    for n_teachers, strength in product(N_TEACHERS, STRENGTHS):
        found = [made for _, _, made in stands(X, n_seeds=n_seeds, n_teachers=n_teachers, strength=strength)]
        for share in SHARES:
            sigma = share * n_teachers
            # The least of all proxies: how much the real teachers agree is not known.
            least = {order: [affordable(made[order].votes, sigma) for made in found] for order in ORDERS}
            for goal, (kind, order) in product(
                GOALS, (("exact", "random"), ("exact", "typical"), ("public", "random"))
            ):
                n = public_queries(sigma, goal)
                if kind == "exact":
                    n = min(each[goal] for each in least[order])
                if n < 20:
                    continue
                expected = float(np.mean([_student(made[order], sigma, n) for made in found]))
                name = f"{kind} epsilon {goal:g}"
                if say:
                    print(name, n_teachers, strength, sigma, order, n, round(expected, 4), flush=True)
                if name not in best or expected > best[name].expected:
                    best[name] = Plan(n_teachers, strength, sigma, order, n, round(expected, 4))
    return best


def _student(stand: Stand, sigma: float, n: int) -> float:
    """Return how a linear student of that many noisy labels does."""
    rng = np.random.default_rng(n)
    counts = stand.votes.counts[:n]
    labels = (counts + rng.normal(0, sigma, counts.shape)).argmax(axis=1)
    if len(np.unique(labels)) < 2:
        return float(np.mean(stand.y_test == labels[0]))
    student = LogisticRegression(C=0.3, max_iter=300).fit(stand.X[:n], labels)
    return float(student.score(stand.X_test, stand.y_test))


def _most(numbers: np.ndarray, fits: Any) -> int:
    """Return the largest of growing numbers that fits, or 0."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if fits(int(numbers[middle])):
            low = middle + 1
        else:
            high = middle
    return int(numbers[low - 1]) if low else 0
