"""Teachers on public features: a linear layer each, trained on its own private rows and views of them."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tellers.nn.views import MEDIUM, WEAK
from tellers.students.torch import PublicFeatures

N_CLASSES = 10


def train_heads(
    features: PublicFeatures,
    X: np.ndarray,
    y: np.ndarray,
    shards: np.ndarray,
    *,
    seed: int,
    steps: int = 300,
    views: int = 12,
    decay: float = 1e-2,
) -> "Heads":
    """Train one linear layer per shard (teachers x rows), each on its own rows and views of them alone."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    seen = [
        _seen(features, X, MEDIUM if view else 0.0, 100 * seed + view, device) for view in range(views + 1)
    ]
    rows = torch.tensor(shards, device=device)
    weight = torch.zeros(len(rows), features.n_features_, N_CLASSES, device=device, requires_grad=True)
    offset = torch.zeros(len(rows), 1, N_CLASSES, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([weight, offset], 2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    own = torch.tensor(y, device=device)[rows].reshape(-1)
    # Every teacher scales features by its own rows: nothing of a shard reaches another teacher.
    first = seen[0][rows]
    centre, spread = first.mean(1, keepdim=True), first.std(1, keepdim=True) + 1e-2
    for step in range(steps):
        answers = (seen[step % len(seen)][rows] - centre) / spread @ weight + offset
        # Sums over teachers, so that nobody's gradient depends on how many there are.
        loss = functional.cross_entropy(answers.reshape(-1, N_CLASSES), own, reduction="sum") / rows.shape[1]
        loss = loss + decay * weight.square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    return Heads(features, weight.detach(), offset.detach(), centre, spread)


class Heads:
    """Teachers that share public features and nothing else."""

    def __init__(
        self, features: PublicFeatures, weight: Tensor, offset: Tensor, centre: Tensor, spread: Tensor
    ) -> None:
        self.features, self.weight, self.offset = features, weight, offset
        self.centre, self.spread = centre, spread

    @torch.no_grad()
    def vote(self, X: np.ndarray, *, seed: int, views: int = 4) -> np.ndarray:
        """Return what every teacher says of every image, by its features and those of weak views."""
        device = self.weight.device
        mean = torch.stack(
            [_seen(self.features, X, WEAK if v else 0.0, 100 * seed + v, device) for v in range(views + 1)]
        ).mean(0)
        ballots = [
            ((mean - centre) / spread @ weight + offset).argmax(1)
            for weight, offset, centre, spread in zip(self.weight, self.offset, self.centre, self.spread)
        ]
        return torch.stack(ballots).cpu().numpy()


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Return features around their mean, of length 1."""
    centred = rows - rows.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-12)


def _seen(
    features: PublicFeatures, X: np.ndarray, strength: float, seed: int, device: torch.device
) -> Tensor:
    return torch.tensor(features.transform(X, strength=strength, seed=seed), device=device)
