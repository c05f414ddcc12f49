"""Class weights: what a missed rare label costs in the loss, within bounds."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from torch import Tensor

from ..label_models import label_table
from ..release import SILENT


def class_weights(Y: ArrayLike, *, lowest: float = 0.5, highest: float = 1.0) -> NDArray[np.float64]:
    """Return a weight for the yes of every label: the ratio of no to yes, pressed between two bounds.

    The ratio r goes from 0 to tens of thousands; lowest + (highest - lowest) (2 sigmoid(r) - 1) stays between
    the bounds. The thesis's own are 1/2 and 1, where this is sigmoid(r). A label that no row has gets the
    highest, one that all rows have the lowest. What is not told (SILENT) is not counted.

    Assumes:   Y are the rows that the network learns from, and nobody else's.
    Reference: the thesis on private audio tagging, section 4.4.4.

    >>> class_weights([[1, 1, 0], [0, 1, 0]]).round(3)
    array([0.731, 0.5  , 1.   ])
    >>> class_weights([[1, 1, 0], [0, 1, 0]], lowest=1.0, highest=10.0).round(1)
    array([ 5.2,  1. , 10. ])
    """
    if not 0 < lowest <= highest < float("inf"):
        raise ValueError(f"Expected 0 < lowest <= highest, got lowest={lowest!r} and highest={highest!r}.")
    given = np.asarray(Y)
    table = label_table(given, n_rows=len(given), silent=True)
    yes, no = (table == 1).sum(axis=0), (table == 0).sum(axis=0)
    ratio = np.divide(no, yes, out=np.full(yes.shape, np.inf), where=yes > 0)
    pressed = lowest + (highest - lowest) * (2 * expit(ratio) - 1)
    return np.asarray(np.clip(pressed, lowest, highest))


def weighted_loss(answers: Tensor, targets: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Return the mean binary cross-entropy over what was told, each yes counted with its label's weight.

    Targets lie between 0 and 1, as mixup makes them; SILENT (-1) is passed over.

    Reference: the thesis on private audio tagging, Definition 13.

    >>> answers, targets = torch.zeros(1, 3), torch.tensor([[1.0, 0.0, -1.0]])
    >>> weighted_loss(answers, targets), weighted_loss(answers, targets, weights=torch.full((3,), 2.0))
    (tensor(0.6931), tensor(1.0397))
    """
    told = (targets > SILENT / 2).to(answers.dtype)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        answers, targets.clamp(min=0), pos_weight=weights, reduction="none"
    )
    return (losses * told).sum() / told.sum().clamp(min=1)
