"""Plain per-query references: what the formulas look like as loops over queries, orders and distances.

They are what the benchmark divides by, so that a ratio means the same on a busy and on an idle machine.
"""

import math

import numpy as np
from scipy.special import erfc as complementary
from scipy.special import erfcinv, log_ndtr, logsumexp


def theorem_6(q: float, sigma: float, order: float) -> float:
    """Return the 2018 bound for one q and one order, in linear space."""
    worst = order / sigma**2
    if q <= 0:
        return 0.0
    mu2 = sigma * math.sqrt(-math.log(q)) if q < 1 else 0.0
    mu1 = mu2 + 1
    if order > mu1 or mu2 <= 1:
        return worst
    epsilon1, epsilon2 = mu1 / sigma**2, mu2 / sigma**2
    if math.log(q) > (mu2 - 1) * epsilon2 - mu2 * math.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1)):
        return worst
    log_a = (order - 1) * (math.log1p(-q) - math.log1p(-((q * math.exp(epsilon2)) ** ((mu2 - 1) / mu2))))
    log_b = (order - 1) * (epsilon1 - math.log(q) / (mu1 - 1))
    return min(np.logaddexp(math.log1p(-q) + log_a, math.log(q) + log_b) / (order - 1), worst)


def gnmax_q(counts: np.ndarray, sigma: float) -> float:
    """Return q of one query."""
    best = int(counts.argmax())
    gaps = counts[best] - np.delete(counts, best)
    return min(0.5 * float(complementary(gaps / (2 * sigma)).sum()), 1 - 1 / counts.size)


def published_bound(counts: np.ndarray, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Return the summed 2018 bound by a loop over queries and orders."""
    total = np.zeros(orders.size)
    for row in counts:
        q = gnmax_q(row, sigma)
        total += [theorem_6(q, sigma, order) for order in orders]
    return total


def exact_query(counts: np.ndarray, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Return the exact cost of one query, per ballot, both directions, by enumerating all neighbours."""

    def log_wins(n: np.ndarray) -> np.ndarray:
        x = np.arange(n.min() - 9 * sigma, n.max() + 9 * sigma, sigma / 4)
        cdf = log_ndtr((x[None, :] - n[:, None]) / sigma)
        density = -0.5 * ((x[None, :] - n[:, None]) / sigma) ** 2
        logs = logsumexp(density + cdf.sum(axis=0) - cdf, axis=1)
        return logs - logsumexp(logs)

    m = counts.size
    here = log_wins(counts.astype(float))
    costs = np.zeros((2, m, orders.size))
    for a in np.flatnonzero(counts):
        for b in range(m):
            if a == b:
                continue
            moved = counts.astype(float)
            moved[a] -= 1
            moved[b] += 1
            there = log_wins(moved)
            for i, order in enumerate(orders):
                forward = logsumexp(order * here + (1 - order) * there) / (order - 1)
                reverse = logsumexp(order * there + (1 - order) * here) / (order - 1)
                costs[0, a, i] = max(costs[0, a, i], forward)
                costs[1, a, i] = max(costs[1, a, i], reverse)
    return costs


def local_sensitivity_bound(q: float, sigma: float, order: float, n_classes: int) -> float:
    """Return how much the cost of a query with this q can change with one ballot."""
    cost = theorem_6(q, sigma, order)
    rivals = (n_classes - 1) / 2
    place = float(erfcinv(min(q / rivals, 2 - 1e-15)))
    up = min(rivals * float(complementary(place - 1 / sigma)), 1.0)
    down = rivals * float(complementary(place + 1 / sigma))
    return max(theorem_6(up, sigma, order) - cost, cost - theorem_6(down, sigma, order))


def local_sensitivities(counts: np.ndarray, n_teachers: int, sigma: float, order: float) -> np.ndarray:
    """Return the summed local sensitivities by a loop over queries and distances, re-sorting."""
    total = np.zeros(n_teachers + 1)
    for row in counts:
        n = np.sort(row)[::-1].copy()
        largest = local_sensitivity_bound(gnmax_q(n, sigma), sigma, order, n.size)
        for distance in range(n_teachers + 1):
            total[distance] += largest
            if n[0] - n[1] < 2:
                continue
            n[0] -= 1
            n[1] += 1
            n = np.sort(n)[::-1]
            largest = max(largest, local_sensitivity_bound(gnmax_q(n, sigma), sigma, order, n.size))
    return total
