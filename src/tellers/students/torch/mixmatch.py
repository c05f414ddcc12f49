"""MixMatch: guesses for unlabelled rows, sharpened, and everything mixed with everything.

Each unlabelled row gets one guess, the mean over several views. Rows, labelled or not, are then blended in
pairs, their targets with them, so that the network learns to go evenly from one row to another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import require_count, require_positive
from .estimator import TorchStudent
from .lesson import Batch
from .loop import Method, Turn
from .setting import Setting, ramp_up
from .views import MEDIUM


@dataclass(kw_only=True, eq=False, repr=False)
class MixMatchStudent(TorchStudent):
    """Learns blends of rows, with sharpened guesses in place of labels where there are none.

    Guesses are the mean over `guesses` views, raised to 1 / `temperature`. Pairs are blended by shares from a
    Beta distribution with both parameters `mixing`. `weight` scales the squared distance from guesses, summed
    over classes. With weight 0 labelled rows are blended among themselves. The other settings are those of
    every torch student.

    Reference: Berthelot et al. 2019, section 3.

    >>> from tellers.datasets import digits
    >>> data = digits()
    >>> student = MixMatchStudent(steps=60, width=4, image_shape=(8, 8), random_state=7)
    >>> student.fit(data.X[:100], data.y[:100], data.X[100:1000]).predict(data.X[:2]).shape
    (2,)
    """

    pool_batch_size: int = 128
    weight: float = 3.0
    ramp: float = 1.0
    temperature: float = 0.5
    guesses: int = 2
    mixing: float = 0.75

    def _method(self, network: nn.Module, average: nn.Module, setting: Setting) -> Method:
        require_positive(temperature=self.temperature, mixing=self.mixing)
        require_count(guesses=self.guesses)
        return _MixMatch(self, network, setting)


class _MixMatch:
    def __init__(self, student: MixMatchStudent, network: nn.Module, setting: Setting) -> None:
        self.student, self.network, self.setting = student, network, setting
        self.turns: Sequence[Turn] = (Turn(network, self.loss),)
        self.memory: dict[str, Tensor] = {}

    def loss(self, batch: Batch) -> Tensor:
        student, setting = self.student, self.setting
        rows, targets, n = setting.views.see(batch.rows, MEDIUM), batch.targets, len(batch.rows)
        if len(batch.pool):
            seen = torch.cat([setting.views.see(batch.pool, MEDIUM) for _ in range(student.guesses)])
            guessed = self._guesses(seen, len(batch.pool)).repeat(student.guesses, 1)
            rows, targets = torch.cat([rows, seen]), torch.cat([targets, guessed])
        mixed, targets = blended(rows, targets, mixing=student.mixing)
        answers = self.network(mixed).float()
        loss = setting.loss(answers[:n], targets[:n], share=batch.share)
        if len(batch.pool):
            distance = (answers[n:].softmax(1) - targets[n:]).square().sum(1).mean()
            loss = loss + student.weight * ramp_up(batch.share, student.ramp) * distance
        return loss

    @torch.no_grad()
    def _guesses(self, seen: Tensor, n_rows: int) -> Tensor:
        answers = self.network(seen).float().softmax(1)
        sharp: Tensor = answers.view(-1, n_rows, answers.shape[1]).mean(0) ** (1 / self.student.temperature)
        return sharp / sharp.sum(1, keepdim=True)


def blended(rows: Tensor, targets: Tensor, *, mixing: float) -> tuple[Tensor, Tensor]:
    """Return every row blended with another one, itself having the larger share, and the targets alike.

    >>> rows, targets = blended(torch.eye(4), torch.eye(4), mixing=0.75)
    >>> torch.equal(rows, targets), bool((rows.diagonal() >= 0.5).all())
    (True, True)
    """
    parameter = torch.tensor(mixing, device=rows.device)
    share = torch.distributions.Beta(parameter, parameter).sample((len(rows),))
    share = torch.maximum(share, 1 - share)
    other = torch.randperm(len(rows), device=rows.device)

    def mix(values: Tensor) -> Tensor:
        own = share.view(-1, *[1] * (values.dim() - 1))
        return own * values + (1 - own) * values[other]

    return mix(rows), mix(targets)
