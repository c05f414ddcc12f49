"""What released labels teach where every row has many: yes, no, or silence about each of them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ...release import SILENT
from .label_loss import Handling


@dataclass(frozen=True, eq=False)
class LabelLoss:
    """The loss of rows with many labels; targets are chances of a yes, or SILENT.

    >>> loss = LabelLoss.made(label_noise=0.1, handling="forward", smoothing=0.0, n_labels=2, device="cpu")
    >>> targets = loss.targets(torch.tensor([[1, SILENT]]))
    >>> loss.rows(torch.tensor([[-9.0, 3.0]]), targets)  # -log of the chance that a yes is wrong
    tensor([2.3016])
    >>> loss(torch.tensor([[-9.0, 3.0]]), targets, share=0.0)
    tensor(2.3016)
    """

    flipped: Tensor
    handling: Handling
    smoothing: float

    @classmethod
    def made(
        cls,
        *,
        label_noise: float | ArrayLike,
        handling: Handling,
        smoothing: float,
        n_labels: int,
        device: torch.device | str,
    ) -> "LabelLoss":
        """Return the loss for the chance that an answer is wrong, one number or one per label."""
        if handling not in ("forward", "soft"):
            raise ValueError(
                f"Expected noise_handling 'forward' or 'soft' for many labels, got {handling!r}."
            )
        if not 0 <= smoothing < 1:
            raise ValueError(f"Expected 0 <= smoothing < 1, got smoothing={smoothing!r}.")
        given = np.asarray(label_noise, dtype=np.float64)
        if given.shape not in ((), (n_labels,)) or not ((given >= 0) & (given < 0.5)).all():
            raise ValueError(
                f"Expected label_noise as one number, or one for each of {n_labels} labels, from 0 to below "
                "0.5, where an answer says nothing any more, got others."
            )
        flipped = torch.tensor(np.broadcast_to(given, (n_labels,)).copy(), dtype=torch.float32, device=device)
        return cls(flipped, handling, smoothing)

    def targets(self, labels: Tensor) -> Tensor:
        """Return the chance of a yes for each label, SILENT where nothing was told."""
        yes = labels.float()
        if self.handling == "soft":
            yes = yes * (1 - self.flipped) + (1 - yes) * self.flipped
        yes = (1 - self.smoothing) * yes + self.smoothing / 2
        return torch.where(labels == SILENT, float(SILENT), yes)

    def rows(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the labels that were told of every row."""
        said = answers.sigmoid()
        if self.handling == "forward":
            said = said * (1 - self.flipped) + (1 - said) * self.flipped
        said = said.clamp(1e-6, 1 - 1e-6)
        losses = -(targets * said.log() + (1 - targets) * (1 - said).log())
        told = (targets >= 0).float()
        return (losses * told).sum(1) / told.sum(1).clamp_min(1)

    def __call__(self, answers: Tensor, targets: Tensor, *, share: float) -> Tensor:
        """Return the loss of a batch."""
        return self.rows(answers, targets).mean()
