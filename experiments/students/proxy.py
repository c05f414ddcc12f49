"""How much noise and how many questions: planned on public digits of another kind, before any vote is seen.

The 1,797 handwritten digits that scikit-learn brings along are public, labels and all. As many teachers as
there really are learn from overlapping draws of them, which needs no privacy, and vote on the rest. The rest
is a tenth of the pool: each of its rows stands for ten of the pool's that are as typical.
"""

from dataclasses import dataclass

import numpy as np
import torch
from heads import train_heads, unit_rows
from sklearn.datasets import load_digits
from torch.nn import functional

from tellers import GNMax, Unit, Votes
from tellers.accounting.exact import query_costs
from tellers.privacy import DEFAULT_ORDERS, RdpCurve
from tellers.students import typical_first
from tellers.students.torch import PublicFeatures

SIGMAS = (20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0)
LARGE_SIGMAS = (40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0)
N_LEARNED = 900
# A sigma within this share of the most questions is as good: then the largest, since rows that teachers
# disagree on, of which the proxy may have too few, cost less under it.
AS_GOOD = 0.95


@dataclass(frozen=True)
class Plan:
    """The noise, and how many questions are asked."""

    sigma: float
    n_queries: int


def proxy_images() -> tuple[np.ndarray, np.ndarray]:
    """Return the proxy as 28x28 images, the digit filling 20 of 28 pixels as it does in the pool."""
    data = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None]
    images = functional.pad(functional.interpolate(images, size=(20, 20), mode="bilinear"), (4, 4, 4, 4))
    return images.numpy(), data.target.astype(np.int64)


def proxy_votes(features: PublicFeatures, *, n_teachers: int, n_rows: int, seed: int) -> Votes:
    """Return what the proxy's teachers say of its images, the most typical first."""
    images, labels = proxy_images()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    learned, asked = order[:N_LEARNED], order[N_LEARNED:]
    shards = np.stack([rng.choice(learned, n_rows, replace=False) for _ in range(n_teachers)])
    ballots = train_heads(features, images, labels, shards, seed=seed).vote(images[asked], seed=seed)
    first = typical_first(unit_rows(features.transform(images[asked])), n_groups=30, seed=seed)
    return Votes.from_ballots(ballots[:, first], n_classes=10)


def plan(
    proxies: list[Votes], *, epsilon: float, delta: float, n_pool: int, least_right: float = 0.97
) -> Plan:
    """Return the noise under which most questions fit an exact epsilon on every proxy, most of them right.

    Right is what the teachers say without noise: how often noise changes it is public for a proxy.
    """
    found = []
    for sigma in SIGMAS:
        n = min(_fitting(votes, sigma, epsilon, delta, n_pool) for votes in proxies)
        if min(_kept(votes, sigma, n * len(votes) // n_pool) for votes in proxies) >= least_right:
            found.append(Plan(sigma, n))
    most = max(one.n_queries for one in found)
    return max((one for one in found if one.n_queries >= AS_GOOD * most), key=lambda one: one.sigma)


def plan_public(
    proxies: list[Votes], *, epsilon: float, delta: float, n_pool: int, least_right: float = 0.97
) -> Plan:
    """Return the noise under which most questions fit a public, data-independent epsilon."""
    best = Plan(LARGE_SIGMAS[0], 1)
    for sigma in LARGE_SIGMAS:
        price = GNMax(sigma=sigma).price(Unit())
        n = 1
        while ((n + 1) * price).epsilon(delta) <= epsilon:
            n += 1
        right = min(_kept(votes, sigma, n * len(votes) // n_pool) for votes in proxies)
        if n > best.n_queries and right >= least_right:
            best = Plan(sigma, n)
    return best


def _fitting(votes: Votes, sigma: float, epsilon: float, delta: float, n_pool: int) -> int:
    totals = np.zeros((2, votes.n_teachers, len(DEFAULT_ORDERS)))
    stands_for = n_pool / len(votes)
    for done, costs in query_costs(GNMax(sigma=sigma), votes):
        totals += stands_for * costs
        if RdpCurve(DEFAULT_ORDERS, totals.max(axis=(0, 1))).epsilon(delta) > epsilon:
            return int(done * stands_for)
    return n_pool


def _kept(votes: Votes, sigma: float, n: int) -> float:
    counts = votes.counts[: max(n, 1)]
    noisy = counts + np.random.default_rng(0).normal(0, sigma, (200, *counts.shape))
    return float((noisy.argmax(2) == counts.argmax(1)).mean())
