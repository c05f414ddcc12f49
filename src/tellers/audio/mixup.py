"""Mixup: two log-Mel pictures become one, and so do their labels, in the same proportion."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import require_positive
from ..release import SILENT


@dataclass(frozen=True)
class Mixup:
    """How much is mixed: `share` of the rows, in proportions from Beta(concentration, concentration).

    A share of one half is the thesis's: as many mixed rows as plain ones.

    Reference: the thesis on private audio tagging, section 4.4.3; Zhang et al. 2018.

    >>> weights = Mixup(concentration=0.4, share=0.5).draw(1000, np.random.default_rng(7))
    >>> bool(0.4 < (weights < 1).mean() < 0.6), bool(weights.min() >= 0)
    (True, True)
    """

    concentration: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        require_positive(concentration=self.concentration)
        if not 0 <= self.share <= 1:
            raise ValueError(f"Expected a share of rows from 0 to 1, got share={self.share!r}.")

    def draw(self, n_rows: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Return how much of itself each row keeps: 1 where it is not mixed."""
        kept = generator.beta(self.concentration, self.concentration, n_rows)
        mixed = generator.random(n_rows) < self.share
        return np.where(mixed, kept, 1.0).astype(np.float32)


def mix(rows: Tensor, targets: Tensor, *, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return every row mixed with the next one of the batch, the last with the first, and targets alike.

    A label that is SILENT in one of two mixed rows is silent in the mixture: nobody knows what share it has.

    >>> rows, targets = torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0, 1.0], [0.0, -1.0]])
    >>> mix(rows, targets, weights=torch.tensor([0.75, 1.0]))
    (tensor([[1.],
            [4.]]), tensor([[ 0.7500, -1.0000],
            [ 0.0000, -1.0000]]))
    """
    kept = weights.view(-1, *[1] * (rows.dim() - 1))
    mixed = kept * rows + (1 - kept) * rows.roll(-1, 0)
    own, other, share = targets, targets.roll(-1, 0), weights[:, None]
    blended = share * own + (1 - share) * other
    unknown = (own < 0) | ((other < 0) & (share < 1))
    return mixed, torch.where(unknown, float(SILENT), torch.where(share < 1, blended, own))
