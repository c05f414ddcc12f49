"""What released labels teach when some of them are known to be wrong.

The chance that a label is wrong comes from public knowledge: from agreement on public proxies, from a few
public labels of one's own, or from a mechanism's noise and a guess at the gap. It is never counted on private
votes.

- "forward": the network's probabilities are sent through the confusion of the release before they are
  compared with the labels, so a network that knows the truth is not punished for it (Patrini et al. 2017).
- "soft": a label becomes the probabilities of the true class that it stands for, all classes alike before.
- "select": the labels that fit worst are left out, as many as are wrong, after the first tenth of the
  steps (small-loss selection, Han et al. 2018).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Handling = Literal["forward", "soft", "select"]
HANDLINGS = ("forward", "soft", "select")
_SELECTS_AFTER = 0.1  # of all steps: before that, what fits badly was simply not learned yet


def confusion_of(label_noise: float | ArrayLike, n_classes: int) -> NDArray[np.float64]:
    """Return the chance of every released class (columns) for every true class (rows).

    One number is the chance that a label is wrong, all wrong classes alike.

    >>> confusion_of(0.2, 3)
    array([[0.8, 0.1, 0.1],
           [0.1, 0.8, 0.1],
           [0.1, 0.1, 0.8]])
    >>> confusion_of([[0.9, 0.2], [0.0, 1.0]], 2)
    Traceback (most recent call last):
        ...
    ValueError: Expected rows of label_noise that sum to 1, one per true class, got others.
    """
    given = np.asarray(label_noise, dtype=np.float64)
    if given.ndim == 0:
        if not 0 <= given < 1 - 1 / n_classes:
            raise ValueError(
                f"Expected label_noise from 0 to below {1 - 1 / n_classes:g}, where labels of {n_classes} "
                f"classes say nothing any more, got {float(given)!r}."
            )
        wrong = float(given) / (n_classes - 1)
        return np.asarray(np.where(np.eye(n_classes, dtype=bool), 1 - float(given), wrong))
    if given.shape != (n_classes, n_classes) or not (given >= 0).all():
        raise ValueError(
            f"Expected label_noise as one number, or as {n_classes} x {n_classes} chances, true classes in "
            f"rows, got shape {given.shape}."
        )
    if not np.allclose(given.sum(axis=1), 1):
        raise ValueError("Expected rows of label_noise that sum to 1, one per true class, got others.")
    return given


@dataclass(frozen=True, eq=False)
class ClassLoss:
    """The loss of labels that name one class each.

    >>> loss = ClassLoss.made(label_noise=0.1, handling="forward", smoothing=0.0, n_classes=2, device="cpu")
    >>> sure = torch.tensor([[9.0, -9.0]])
    >>> wrong = loss.targets(torch.tensor([1]))
    >>> loss.rows(sure, wrong), loss(sure, wrong, share=1.0)  # -log of the chance that the label is wrong
    (tensor([2.3026]), tensor(2.3026))
    """

    confusion: Tensor
    handling: Handling
    smoothing: float
    share_right: float

    @classmethod
    def made(
        cls,
        *,
        label_noise: float | ArrayLike,
        handling: Handling,
        smoothing: float,
        n_classes: int,
        device: torch.device | str,
    ) -> "ClassLoss":
        """Return the loss for a chance of wrong labels, or for a whole confusion matrix."""
        if handling not in HANDLINGS:
            raise ValueError(f"Expected noise_handling in {HANDLINGS}, got {handling!r}.")
        if not 0 <= smoothing < 1:
            raise ValueError(f"Expected 0 <= smoothing < 1, got smoothing={smoothing!r}.")
        chances = confusion_of(label_noise, n_classes)
        confusion = torch.as_tensor(chances, dtype=torch.float32, device=device)
        return cls(confusion, handling, smoothing, float(chances.diagonal().mean()))

    def targets(self, labels: Tensor) -> Tensor:
        """Return what the network is to say for each label, one probability per class."""
        n_classes = len(self.confusion)
        if self.handling == "soft":
            sharp = (self.confusion / self.confusion.sum(0, keepdim=True)).T[labels]
        else:
            sharp = torch.nn.functional.one_hot(labels, n_classes).float()
        return (1 - self.smoothing) * sharp + self.smoothing / n_classes

    def rows(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every row."""
        if self.handling == "forward" and self.share_right < 1:
            # A sum and no matrix product, which mixed precision would round to three digits.
            released = (answers.softmax(1)[:, :, None] * self.confusion).sum(1)
            log_released = released.clamp_min(1e-12).log()
        else:
            log_released = answers.log_softmax(1)
        return -(targets * log_released).sum(1)

    def __call__(self, answers: Tensor, targets: Tensor, *, share: float) -> Tensor:
        """Return the loss of a batch; `share` says how far training has come."""
        losses = self.rows(answers, targets)
        if self.handling == "select" and share >= _SELECTS_AFTER:
            n_kept = max(1, round(self.share_right * len(losses)))
            losses = losses.topk(n_kept, largest=False).values
        return losses.mean()
