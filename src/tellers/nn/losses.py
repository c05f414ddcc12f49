"""Losses: of plain targets, of labels that are partly silent, and of released labels that may be wrong."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ..privacy._rows import label_table
from ..privacy.release import SILENT


def row_losses(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every row: the cross-entropy of its class, or its mean over the row's labels."""
    if targets.dim() == 1:
        return F.cross_entropy(answers, targets, reduction="none")
    return F.binary_cross_entropy_with_logits(answers, targets, reduction="none").mean(dim=1)


def told_loss(answers: Tensor, targets: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Return the mean binary cross-entropy over what was told, each yes counted with its label's weight.

    Targets lie between 0 and 1, as mixup makes them; SILENT (-1) is passed over.

    Reference: the thesis on private audio tagging, Definition 13.
    """
    told = (targets >= 0).to(answers.dtype)
    losses = F.binary_cross_entropy_with_logits(
        answers, targets.clamp(min=0), pos_weight=weights, reduction="none"
    )
    return (losses * told).sum() / told.sum().clamp(min=1)


def class_weights(Y: ArrayLike, *, lowest: float = 0.5, highest: float = 1.0) -> NDArray[np.float64]:
    """Return a weight for the yes of every label: the ratio of no to yes, pressed between two bounds.

    The ratio r goes from 0 to tens of thousands; lowest + (highest - lowest) (2 sigmoid(r) - 1) stays between
    the bounds. The thesis's own are 1/2 and 1, where this is sigmoid(r). A label that no row has gets the
    highest, one that all rows have the lowest. What is not told (SILENT) is not counted.

    Assumes:   Y are the rows that the network learns from, and nobody else's.
    Reference: the thesis on private audio tagging, section 4.4.4.
    """
    from scipy.special import expit

    if not 0 < lowest <= highest < float("inf"):
        raise ValueError(f"Expected 0 < lowest <= highest, got lowest={lowest!r} and highest={highest!r}.")
    given = np.asarray(Y)
    table = label_table(given, n_rows=len(given), silent=True)
    yes, no = (table == 1).sum(axis=0), (table == 0).sum(axis=0)
    ratio = np.divide(no, yes, out=np.full(yes.shape, np.inf), where=yes > 0)
    pressed = lowest + (highest - lowest) * (2 * expit(ratio) - 1)
    return np.asarray(np.clip(pressed, lowest, highest))


# --- Released labels of which some are known to be wrong ---
#
# The chance that a label is wrong comes from public knowledge: from agreement on public proxies, from a few
# public labels of one's own, or from a mechanism's noise and a guess at the gap. It is never counted on
# private votes.
#
# - "forward": the network's probabilities are sent through the confusion of the release before they are
#   compared with the labels, so a network that knows the truth is not punished for it (Patrini et al. 2017).
# - "soft": a label becomes the probabilities of the true class that it stands for, all classes alike before.
# - "select": the labels that fit worst are left out, as many as are wrong, after the first tenth of the
#   steps (small-loss selection, Han et al. 2018).

Handling = Literal["forward", "soft", "select"]
HANDLINGS = ("forward", "soft", "select")
Device = torch.device | str
_SELECTS_AFTER = 0.1  # of all steps: before that, what fits badly was simply not learned yet


def confusion_of(label_noise: float | ArrayLike, n_classes: int) -> NDArray[np.float64]:
    """Return the chance of every released class (columns) for every true class (rows).

    One number is the chance that a label is wrong, all wrong classes alike.
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
    """The loss of labels that name one class each."""

    confusion: Tensor
    handling: Handling
    smoothing: float
    share_right: float

    @classmethod
    def made(
        cls, noise: float | ArrayLike, handling: Handling, *, smoothing: float, n_outputs: int, device: Device
    ) -> "ClassLoss":
        """Return the loss for a chance of wrong labels, or for a whole confusion matrix."""
        if handling not in HANDLINGS:
            raise ValueError(f"Expected noise_handling in {HANDLINGS}, got {handling!r}.")
        chances = confusion_of(noise, n_outputs)
        confusion = torch.as_tensor(chances, dtype=torch.float32, device=device)
        return cls(confusion, handling, smoothing, float(chances.diagonal().mean()))

    def targets(self, labels: Tensor) -> Tensor:
        """Return what the network is to say for each label, one probability per class."""
        n_classes = len(self.confusion)
        if self.handling == "soft":
            sharp = (self.confusion / self.confusion.sum(0, keepdim=True)).T[labels]
        else:
            sharp = F.one_hot(labels, n_classes).float()
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


@dataclass(frozen=True, eq=False)
class LabelLoss:
    """The loss of rows with many labels; targets are chances of a yes, or SILENT."""

    flipped: Tensor
    handling: Handling
    smoothing: float

    @classmethod
    def made(
        cls, noise: float | ArrayLike, handling: Handling, *, smoothing: float, n_outputs: int, device: Device
    ) -> "LabelLoss":
        """Return the loss for the chance that an answer is wrong, one number or one per label."""
        if handling not in ("forward", "soft"):
            raise ValueError(
                f"Expected noise_handling 'forward' or 'soft' for many labels, got {handling!r}."
            )
        given = np.asarray(noise, dtype=np.float64)
        if given.shape not in ((), (n_outputs,)) or not ((given >= 0) & (given < 0.5)).all():
            raise ValueError(
                f"Expected label_noise as one number, or one for each of {n_outputs} labels, from 0 to below "
                "0.5, where an answer says nothing any more, got others."
            )
        flipped = torch.tensor(given, dtype=torch.float32, device=device).expand(n_outputs)
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
        return self.rows(answers, targets).mean()


Loss = ClassLoss | LabelLoss
