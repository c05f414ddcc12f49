"""What a way of learning is handed: rows, views, the loss of labels, the shape of a row."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from .lesson import Lesson
from .networks import Shape
from .views import Views


class Loss(Protocol):
    """What labels teach: targets made of them once, and what a network loses that says something else."""

    def targets(self, labels: Tensor) -> Tensor:
        """Return what the network is to say."""

    def rows(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every row."""

    def __call__(self, answers: Tensor, targets: Tensor, *, share: float) -> Tensor:
        """Return the loss of a batch; `share` says how far training has come."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything around the network that a way of learning needs.

    >>> import torch
    >>> from tellers.students.torch.label_loss import ClassLoss
    >>> from tellers.students.torch.views import RowViews
    >>> loss = ClassLoss.made(label_noise=0.0, handling="forward", smoothing=0.0, n_classes=2, device="cpu")
    >>> lesson = Lesson(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(0, 2))
    >>> Setting(lesson, RowViews(), loss, (2,), seed=7).shape
    (2,)
    """

    lesson: Lesson
    views: Views
    loss: Loss
    shape: Shape
    seed: int


def ramp_up(share: float, ramp: float) -> float:
    """Return how much of the unlabelled loss counts, from 0 to 1 over the first `ramp` of the steps.

    >>> ramp_up(0.1, 0.4), ramp_up(0.5, 0.4), ramp_up(0.0, 0.0)
    (0.25, 1.0, 1.0)
    """
    return min(1.0, share / ramp) if ramp else 1.0
