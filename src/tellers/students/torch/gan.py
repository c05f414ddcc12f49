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
from .estimator import TorchStudent
from .lesson import Batch
from .loop import Method, Turn
from .networks import Shape
from .setting import Setting, ramp_up
from .views import MEDIUM, WEAK


@dataclass(kw_only=True, eq=False, repr=False)
class GanStudent(TorchStudent):
    """Learns to tell K classes apart, and real rows from those of a generator that matches their features.

    The generator starts from `n_latent` random numbers a row and learns at `generator_rate` times the rate of
    the classifier. A network of one's own needs parts called `features` and `head`. The other settings are
    those of every torch student.

    Reference: Salimans et al. 2016, sections 3.1 and 5; PATE-G of Papernot et al. 2017, section 3.

    >>> from tellers.datasets import digits
    >>> data = digits()
    >>> student = GanStudent(steps=60, width=4, image_shape=(8, 8), random_state=7)
    >>> student.fit(data.X[:100], data.y[:100], data.X[100:1000]).predict(data.X[:2]).shape
    (2,)
    """

    pool_batch_size: int = 128
    n_latent: int = 64
    generator_rate: float = 1.0

    def _method(self, network: nn.Module, average: nn.Module, setting: Setting) -> Method:
        require_count(n_latent=self.n_latent)
        require_positive(generator_rate=self.generator_rate)
        if not isinstance(getattr(network, "features", None), nn.Module) or not hasattr(network, "head"):
            raise TypeError(
                f"Expected a network with parts called features and head, got {type(network).__name__}. The "
                "generator matches features: take network='cnn' or 'mlp', or name the parts."
            )
        return _Gan(self, network, setting)


class _Gan:
    def __init__(self, student: GanStudent, network: nn.Module, setting: Setting) -> None:
        self.student, self.network, self.setting = student, network, setting
        self.turns: Sequence[Turn] = (Turn(network, self.loss),)
        self.memory: dict[str, Tensor] = {}
        if len(setting.lesson.pool):
            lowest = float(setting.lesson.pool.min())
            # Another seed than the classifier's, from the same one.
            self.generator = generator(
                setting.shape, int(student.n_latent), width=int(student.width), positive=lowest >= 0,
                seed=setting.seed + 1,
            )  # fmt: skip
            turn = Turn(self.generator, self.unlike, rate=student.generator_rate, first_beta=0.5)
            self.turns = (*self.turns, turn)

    def loss(self, batch: Batch) -> Tensor:
        see, student, n = self.setting.views.see, self.student, len(batch.rows)
        labelled = see(batch.rows, MEDIUM)
        if not len(batch.pool):
            return self.setting.loss(self.network(labelled).float(), batch.targets, share=batch.share)
        real = see(batch.pool, WEAK)
        answers = self.network(torch.cat([labelled, real, self._made(len(real)).detach()])).float()
        told = self.setting.loss(answers[:n], batch.targets, share=batch.share)
        # log Z of the K answers, against 0 for "made": real has probability Z / (Z + 1).
        of_real, of_made = answers[n:].logsumexp(1).split(len(real))
        seen_through = functional.softplus(-of_real).mean() + functional.softplus(of_made).mean()
        return told + student.weight * ramp_up(batch.share, student.ramp) * 0.5 * seen_through

    def unlike(self, batch: Batch) -> Tensor:
        """Return how far the mean features of made rows are from those of real ones."""
        features = self.network.features
        assert isinstance(features, nn.Module)
        real, made = self.setting.views.see(batch.pool, WEAK), self._made(len(batch.pool))
        of_real, of_made = features(torch.cat([real, made])).float().split(len(real))
        distance: Tensor = (of_real.mean(0).detach() - of_made.mean(0)).square().mean()
        return distance

    def _made(self, n: int) -> Tensor:
        device = self.setting.lesson.rows.device
        made: Tensor = self.generator(torch.randn(n, int(self.student.n_latent), device=device))
        return made.float()


def generator(shape: Shape, n_latent: int, *, width: int, positive: bool, seed: int) -> nn.Module:
    """Return a network that makes rows of a shape from random numbers.

    >>> generator((1, 28, 28), 64, width=4, positive=True, seed=7)(torch.zeros(2, 64)).shape
    torch.Size([2, 1, 28, 28])
    >>> generator((14,), 64, width=4, positive=False, seed=7)(torch.zeros(2, 64)).shape
    torch.Size([2, 14])
    """
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
