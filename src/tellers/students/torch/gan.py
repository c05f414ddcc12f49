"""A student that learns to tell real rows from made ones: semi-supervised feature matching.

The classifier's K answers also say how real a row looks; a generator makes rows whose features, in the mean,
are those of real ones. What the classifier needs to see through them helps it to tell classes apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import require_count, require_positive
from ...nn.loop import Turn
from ...nn.networks import Shape
from ...nn.views import MEDIUM, WEAK
from .training import StudentBatch, StudentRun, TorchStudent, ramp_up


@dataclass(kw_only=True, eq=False, repr=False)
class GanStudent(TorchStudent):
    """Learns to tell K classes apart, and real rows from those of a generator that matches their features.

    The generator starts from `n_latent` random numbers a row and learns at `generator_rate` times the rate of
    the classifier. A network of one's own needs parts called `features` and `head`. The other settings are
    those of every torch student.

    Reference: Salimans et al. 2016, sections 3.1 and 5; PATE-G of Papernot et al. 2017, section 3.

    >>> rows, unlabelled = [[0.0], [1.0]], [[0.1], [0.2], [0.8], [0.9]]
    >>> GanStudent(steps=40, random_state=7).fit(rows, [0, 1], unlabelled).predict(rows)
    array([0, 1])
    """

    pool_batch_size: int = 128
    n_latent: int = 64
    generator_rate: float = 1.0

    def _turns(self, run: StudentRun) -> Sequence[Turn]:
        require_count(n_latent=self.n_latent)
        require_positive(generator_rate=self.generator_rate)
        features = getattr(run.network, "features", None)
        if not isinstance(features, nn.Module) or not hasattr(run.network, "head"):
            raise TypeError(
                f"Expected a network with parts called features and head, got {type(run.network).__name__}. "
                "The generator matches features: take network='cnn' or 'mlp', or name the parts."
            )
        pool = run.known.pool
        if not len(pool):
            return [Turn(run.network, lambda batch: self._lost(run, batch, None))]
        # Another seed than the classifier's, from the same one.
        made = generator(
            run.shape, int(self.n_latent), width=int(self.width), positive=float(pool.min()) >= 0,
            seed=run.seed + 1,
        )  # fmt: skip
        return [
            Turn(run.network, lambda batch: self._lost(run, batch, made)),
            Turn(
                made, lambda batch: self._unlike(run, batch, made, features), rate=self.generator_rate,
                first_beta=0.5,
            ),
        ]  # fmt: skip

    def _lost(self, run: StudentRun, batch: StudentBatch, made: nn.Module | None) -> Tensor:
        see, n = run.views.see, len(batch.rows)
        labelled = see(batch.rows, MEDIUM)
        if made is None:
            return run.told(run.network(labelled), batch)
        real = see(batch.pool, WEAK)
        answers = run.network(torch.cat([labelled, real, self._made(made, real).detach()])).float()
        told = run.told(answers[:n], batch)
        # log Z of the K answers, against 0 for "made": real has probability Z / (Z + 1).
        of_real, of_made = answers[n:].logsumexp(1).split(len(real))
        seen_through = functional.softplus(-of_real).mean() + functional.softplus(of_made).mean()
        return told + self.weight * ramp_up(batch.share, self.ramp) * 0.5 * seen_through

    def _unlike(self, run: StudentRun, batch: StudentBatch, made: nn.Module, features: nn.Module) -> Tensor:
        """Return how far the mean features of made rows are from those of real ones."""
        real = run.views.see(batch.pool, WEAK)
        of_real, of_made = features(torch.cat([real, self._made(made, real)])).float().split(len(real))
        distance: Tensor = (of_real.mean(0).detach() - of_made.mean(0)).square().mean()
        return distance

    def _made(self, made: nn.Module, like: Tensor) -> Tensor:
        rows: Tensor = made(torch.randn(len(like), int(self.n_latent), device=like.device))
        return rows.float()


def generator(shape: Shape, n_latent: int, *, width: int, positive: bool, seed: int) -> nn.Module:
    """Return a network that makes rows of a shape from random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if len(shape) == 3:
            return _image_generator(shape, n_latent, width, positive)
        hidden = 8 * width
        return nn.Sequential(
            nn.Linear(n_latent, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, prod(shape)), nn.Unflatten(1, shape),
        )  # fmt: skip


def _image_generator(shape: Shape, n_latent: int, width: int, positive: bool) -> nn.Module:
    channels, height, width_of_image = shape
    small = -(-height // 4), -(-width_of_image // 4)
    return nn.Sequential(
        nn.Linear(n_latent, 4 * width * prod(small)), nn.Unflatten(1, (4 * width, *small)),
        nn.BatchNorm2d(4 * width), nn.ReLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(4 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.Upsample(size=(height, width_of_image)), nn.Conv2d(2 * width, width, 3, padding=1),
        nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, channels, 3, padding=1),
        nn.Sigmoid() if positive else nn.Tanh(),
    )  # fmt: skip
