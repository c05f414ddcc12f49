"""What a student learns from: released labels, public rows without one, and rows to check itself on.

Validation may look at two things alone: released labels that are held out, and rows that the caller declares
public. A student that was chosen by private labels would be a release that nobody charged.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ...errors import require_fraction


@dataclass(frozen=True, eq=False, repr=False)
class PublicRows:
    """Rows and labels that the caller declares public: nobody's privacy hangs on them.

    >>> PublicRows([[0.0], [1.0]], [0, 1])
    PublicRows(2 rows)
    """

    X: ArrayLike
    y: ArrayLike

    def __repr__(self) -> str:
        return f"PublicRows({len(np.asarray(self.y))} rows)"


Validation = Literal["released"] | PublicRows | None


def check_validation(validation: Any) -> None:
    """Refuse anything to validate on that is neither released nor declared public.

    >>> check_validation(([[0.0]], [1]))
    Traceback (most recent call last):
        ...
    TypeError: Expected validation="released" or PublicRows(X, y), got tuple. Stopping early by ...
    """
    if validation is None or isinstance(validation, PublicRows):
        return
    if isinstance(validation, str) and validation == "released":
        return
    shown = repr(validation) if isinstance(validation, str) else type(validation).__name__
    raise TypeError(
        f'Expected validation="released" or PublicRows(X, y), got {shown}. Stopping early by private labels '
        "would be a release that nobody charged: hold out released labels, or declare the rows public."
    )


def hold_out(n: int, share: float, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of n released labels are learned from and which are held out, in their order.

    >>> learned, checked = hold_out(10, 0.2, seed=7)
    >>> len(learned), len(checked)
    (8, 2)
    """
    require_fraction(holdout=share)
    n_checked = max(1, round(share * n))
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[n_checked:]), np.sort(order[:n_checked])


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one step, and how far training has come, from 0 to 1.

    >>> Batch(torch.zeros(8, 2), torch.zeros(8, 3), torch.zeros(16, 2), share=0.5).pool.shape
    torch.Size([16, 2])
    """

    rows: Tensor
    targets: Tensor
    pool: Tensor
    share: float


@dataclass(frozen=True, eq=False)
class Lesson:
    """Everything a student learns from, on its device.

    `pool` holds public rows without a label, none where they are not used. `checked` holds rows and targets
    to validate on.

    >>> lesson = Lesson(torch.zeros(4, 2), torch.zeros(4, 3), torch.zeros(0, 2), n_labelled=8, n_pool=16)
    >>> lesson.draw(0.5).rows.shape, lesson.draw(0.5).pool.shape
    (torch.Size([8, 2]), torch.Size([0, 2]))
    """

    rows: Tensor
    targets: Tensor
    pool: Tensor
    checked: tuple[Tensor, Tensor] | None = None
    n_labelled: int = 64
    n_pool: int = 256

    def draw(self, share: float) -> Batch:
        """Return a batch, drawn with replacement by torch's generator of the device."""
        device = self.rows.device
        chosen = torch.randint(len(self.rows), (self.n_labelled,), device=device)
        pool = self.pool
        if len(pool):
            pool = pool[torch.randint(len(pool), (self.n_pool,), device=device)]
        return Batch(self.rows[chosen], self.targets[chosen], pool, share)

    @property
    def inputs(self) -> Tensor:
        """Return the rows that statistics of inputs are measured on: the pool, or else the labelled rows."""
        return self.pool if len(self.pool) else self.rows
