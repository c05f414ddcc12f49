"""How much noise and how many questions: planned on public digits of another kind, before any vote is seen.

The 1,797 handwritten digits that scikit-learn brings along are public, labels and all. As many teachers as
there really are learn from overlapping draws of them, which needs no privacy, and vote on the rest.
"""

from dataclasses import dataclass

import numpy as np
import torch
from encoder import Heads, features, train_heads
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from tellers import GNMax, Votes
from tellers.exact import exact_epsilons
from tellers.students import typical_first
from tellers.students.torch.networks import TwoPart

SIGMAS = (20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0)
N_LEARNED = 900


@dataclass(frozen=True)
class Plan:
    """The noise, and how many questions are asked."""

    sigma: float
    n_queries: int


def proxy_votes(network: TwoPart, *, n_teachers: int, n_rows: int, seed: int) -> Votes:
    """Return what the proxy's teachers say of its typical images, the most typical first."""
    device = next(network.parameters()).device
    data = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32, device=device)[:, None]
    # The digit fills 20 of 28 pixels there, as in the pool.
    images = functional.pad(functional.interpolate(images, size=(20, 20), mode="bilinear"), (4, 4, 4, 4))
    labels = torch.tensor(data.target, device=device)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    learned, asked = order[:N_LEARNED], order[N_LEARNED:]
    shards = np.stack([rng.choice(learned, n_rows, replace=False) for _ in range(n_teachers)])
    heads: Heads = train_heads(network, images, labels, torch.tensor(shards, device=device), seed=seed)
    rows = torch.tensor(asked, device=device)
    ballots = heads.vote(images[rows], seed=seed).cpu().numpy()
    first = typical_first(unit_rows(features(network, images[rows])), n_groups=30, seed=seed)
    return Votes.from_ballots(ballots[:, first], n_classes=10)


def plan(votes: Votes, *, epsilon: float, delta: float, least_right: float = 0.97) -> Plan:
    """Return the noise under which the proxy answers most questions at an epsilon, most of them right.

    Right is what the teachers say without noise: how often noise changes it is public for the proxy.
    """
    best = Plan(SIGMAS[-1], 0)
    for sigma in SIGMAS:
        epsilons = exact_epsilons(GNMax(sigma=sigma), votes, delta=delta).reveal()
        n = int(np.searchsorted(epsilons, epsilon, side="right"))
        rng = np.random.default_rng(0)
        noisy = votes.counts + rng.normal(0, sigma, (200, *votes.counts.shape))
        kept = float((noisy.argmax(2) == votes.counts.argmax(1))[:, : max(n, 1)].mean())
        if n > best.n_queries and kept >= least_right:
            best = Plan(sigma, n)
    return best


def unit_rows(rows: Tensor) -> np.ndarray:
    """Return features around their mean, of length 1."""
    return functional.normalize(rows - rows.mean(0), dim=1).cpu().numpy()
