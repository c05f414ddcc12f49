"""Train 250 MNIST teachers in one batched program and keep their ballots.

Each teacher sees 240 of the 60,000 training images and nothing else; all of them then
vote on the first 9,000 test images, which play the public, unlabelled pool. The network is
the one of the personalised PATE paper: convolution 32 3x3, batch norm, pooling, fully connected
100, batch norm, fully connected 10; images turn by up to 7.5 degrees and shift by up to 7 %.

    python experiments/mnist_votes/train.py --data DIR --out examples/mnist_votes.npz

Needs torch; seconds on a GPU, about an hour on two CPU cores. Neither the product nor
its tests need this script: the ballots it made are kept in `examples/`.
"""

import argparse
import gzip
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def read_idx(path: Path) -> np.ndarray:
    """Return the array in a gzipped idx file of unsigned bytes."""
    raw = gzip.decompress(path.read_bytes())
    n_axes = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(n_axes)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * n_axes).reshape(shape)


class Teachers(nn.Module):
    """All teachers side by side: grouped convolution, batched matrix products."""

    def __init__(self, n_teachers: int) -> None:
        super().__init__()
        self.n_teachers = n_teachers
        self.conv = nn.Conv2d(n_teachers, 32 * n_teachers, 3, groups=n_teachers)
        nn.init.kaiming_uniform_(self.conv.weight)
        self.norm_conv = nn.BatchNorm2d(32 * n_teachers)
        self.hidden = nn.Parameter(torch.randn(n_teachers, 32 * 13 * 13, 100) * math.sqrt(2 / 5408))
        self.hidden_bias = nn.Parameter(torch.zeros(n_teachers, 1, 100))
        self.norm_hidden = nn.BatchNorm1d(100 * n_teachers)
        self.out = nn.Parameter(torch.randn(n_teachers, 100, 10) / 10)
        self.out_bias = nn.Parameter(torch.zeros(n_teachers, 1, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (batch, teachers, 28, 28) to logits (teachers, batch, 10)."""
        n = images.shape[0]
        maps = F.max_pool2d(self.norm_conv(F.relu(self.conv(images))), 2)
        maps = maps.view(n, self.n_teachers, -1).transpose(0, 1)
        hidden = F.relu(torch.baddbmm(self.hidden_bias, maps, self.hidden))
        hidden = self.norm_hidden(hidden.transpose(0, 1).reshape(n, -1))
        hidden = hidden.view(n, self.n_teachers, 100).transpose(0, 1)
        return torch.baddbmm(self.out_bias, hidden, self.out)


def augment(images: torch.Tensor) -> torch.Tensor:
    """Turn each image by up to 7.5 degrees and shift it by up to 7 % of its width."""
    n, device = len(images), images.device
    angle = (torch.rand(n, device=device) * 2 - 1) * math.radians(7.5)
    # affine_grid spans [-1, 1], so 7 % of the width is 0.14.
    shift = (torch.rand(n, 2, device=device) * 2 - 1) * 0.14
    cos, sin = angle.cos(), angle.sin()
    rows = [torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), [n, 1, 28, 28], align_corners=False)
    return F.grid_sample(images[:, None], grid, align_corners=False)[:, 0]


def train(images: torch.Tensor, labels: torch.Tensor, parts: torch.Tensor, epochs: int) -> Teachers:
    """Train one teacher per row of `parts`, each on its own rows only."""
    n_teachers, n_rows, batch = *parts.shape, 40
    model = Teachers(n_teachers).to(images.device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        order = torch.rand(parts.shape, device=images.device).argsort(1)
        shuffled = parts.gather(1, order)
        for start in range(0, n_rows - batch + 1, batch):
            rows = shuffled[:, start : start + batch]
            x = augment(images[rows.reshape(-1)]).view(n_teachers, batch, 28, 28).transpose(0, 1)
            loss = F.cross_entropy(model(x).reshape(-1, 10), labels[rows].reshape(-1)) * n_teachers
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def vote(model: Teachers, images: torch.Tensor) -> torch.Tensor:
    """Return every teacher's class for every image, (teachers, images)."""
    blocks = images.split(200)
    return torch.cat([model(x[:, None].expand(-1, model.n_teachers, -1, -1)).argmax(-1) for x in blocks], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the four MNIST idx files")
    parser.add_argument("--out", type=Path, required=True, help="the .npz to write")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--queries", type=int, default=9000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)

    def load(name: str) -> torch.Tensor:
        return torch.tensor(read_idx(args.data / f"{name}-ubyte.gz").copy(), device=device)

    images, labels = load("train-images-idx3").float() / 255, load("train-labels-idx1").long()
    public, truth = (
        load("t10k-images-idx3")[: args.queries].float() / 255,
        load("t10k-labels-idx1")[: args.queries].long(),
    )
    shuffled = np.random.default_rng(args.seed).permutation(len(images))
    n_rows = len(images) // args.teachers
    parts = torch.tensor(shuffled[: args.teachers * n_rows].reshape(args.teachers, n_rows), device=device)

    start = time.perf_counter()
    ballots = vote(train(images, labels, parts, args.epochs), public)
    counts = F.one_hot(ballots, 10).sum(0)
    accuracy = (ballots == truth).float().mean().item()
    plurality = (counts.argmax(1) == truth).float().mean().item()
    seconds = time.perf_counter() - start
    print(
        f"{device}, seed {args.seed}, {args.epochs} epochs, {seconds:.1f} s: "
        f"teachers {accuracy:.4f}, plurality {plurality:.4f}"
    )
    np.savez_compressed(
        args.out, ballots=ballots.cpu().numpy().astype(np.uint8), truth=truth.cpu().numpy().astype(np.uint8)
    )


if __name__ == "__main__":
    main()
