"""A network that learned from public images without labels: two views of an image look alike, others do not.

Contrastive learning (Chen et al. 2020, SimCLR) on the public pool. Teachers then need few labels: each learns
one linear layer on these features. What is public costs nothing, however it is used.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tellers.students.torch import ImageViews
from tellers.students.torch.networks import TwoPart, cnn
from tellers.students.torch.views import MEDIUM, STRONG, WEAK

VIEWS = ImageViews(rotation=20, shift=0.12, scale=0.2, cutout=0.3)
TEMPERATURE = 0.3
AT_ONCE = 4096


def contrastive(images: Tensor, *, seed: int, steps: int, batch: int = 1024, width: int = 128) -> TwoPart:
    """Return a network whose features tell images apart, but not two views of one."""
    torch.manual_seed(seed)
    device = images.device
    network = cnn(tuple(images.shape[1:]), 10, width=width).to(device)
    project = nn.Sequential(
        nn.Linear(4 * width, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128)
    ).to(device)
    weights = [*network.features.parameters(), *project.parameters()]
    optimizer = torch.optim.AdamW(weights, 2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    batch = min(batch, len(images))
    partner = torch.arange(2 * batch, device=device).roll(batch)
    itself = torch.eye(2 * batch, dtype=torch.bool, device=device)
    network.features.train()
    for _ in range(steps):
        some = images[torch.randperm(len(images), device=device)[:batch]]
        seen = torch.cat([VIEWS.see(some, STRONG), VIEWS.see(some, STRONG)])
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            made = project(network.features(seen))
        made = functional.normalize(made.float(), dim=1)
        alike = (made @ made.T / TEMPERATURE).masked_fill(itself, -1e9)
        loss = functional.cross_entropy(alike, partner)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    return network


@torch.no_grad()
def features(network: TwoPart, images: Tensor, *, strength: float = 0.0) -> Tensor:
    """Return the features of images, or of a view of each."""
    network.features.eval()
    parts = []
    for start in range(0, len(images), AT_ONCE):
        some = images[start : start + AT_ONCE]
        parts.append(network.features(VIEWS.see(some, strength) if strength else some))
    return torch.cat(parts)


def train_heads(
    network: TwoPart,
    images: Tensor,
    labels: Tensor,
    shards: Tensor,
    *,
    seed: int,
    steps: int = 300,
    views: int = 12,
    decay: float = 1e-2,
) -> "Heads":
    """Train one linear layer per shard (teachers x rows), each on its own rows and views of them alone."""
    torch.manual_seed(seed)
    seen = [features(network, images, strength=MEDIUM if view else 0.0) for view in range(views + 1)]
    n, width = len(shards), seen[0].shape[1]
    weight = torch.zeros(n, width, 10, device=images.device, requires_grad=True)
    offset = torch.zeros(n, 1, 10, device=images.device, requires_grad=True)
    optimizer = torch.optim.Adam([weight, offset], 2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    own = labels[shards].reshape(-1)
    # Every teacher scales features by its own rows: nothing of a shard reaches another teacher.
    rows = seen[0][shards]
    centre, spread = rows.mean(1, keepdim=True), rows.std(1, keepdim=True) + 1e-2
    for step in range(steps):
        answers = (seen[step % len(seen)][shards] - centre) / spread @ weight + offset
        # Sums over teachers, so that nobody's gradient depends on how many there are.
        loss = functional.cross_entropy(answers.reshape(-1, 10), own, reduction="sum") / shards.shape[1]
        loss = loss + decay * weight.square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    return Heads(network, weight.detach(), offset.detach(), centre, spread)


class Heads:
    """Teachers that share public features and nothing else."""

    def __init__(self, network: TwoPart, weight: Tensor, offset: Tensor, centre: Tensor, spread: Tensor):
        self.network, self.weight, self.offset = network, weight, offset
        self.centre, self.spread = centre, spread

    @torch.no_grad()
    def vote(self, images: Tensor, *, seed: int, views: int = 4) -> Tensor:
        """Return what every teacher says of every image, by its features and those of weak views."""
        torch.manual_seed(seed)
        seen = torch.stack(
            [features(self.network, images, strength=WEAK if v else 0.0) for v in range(views + 1)]
        )
        mean = seen.mean(0)
        ballots = [
            ((mean - centre) / spread @ weight + offset).argmax(1)
            for weight, offset, centre, spread in zip(self.weight, self.offset, self.centre, self.spread)
        ]
        return torch.stack(ballots)
