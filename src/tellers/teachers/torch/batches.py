"""What a teacher learns from, step by step: its own rows in an order of its own, turned and shifted.

Every teacher takes batches of one size from a stream of its own shuffled rows, one shuffle after another, so
a part smaller than a batch simply comes round more often. The number of steps depends on the teacher's own
part, and everything drawn on its own seed: nothing here can tell whether other teachers exist.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 64  # steps drawn at a time


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a teacher is trained: Adam with a cosine schedule, on rows turned and shifted at random.

    >>> recipe = Recipe(epochs=60, batch_size=40)
    >>> [recipe.n_steps(n_rows) for n_rows in (240, 279, 3)]
    [360, 360, 60]
    >>> recipe.rate(0, 360), recipe.rate(180, 360)
    (0.001, 0.0005)
    """

    epochs: int
    batch_size: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0

    @property
    def augments(self) -> bool:
        """Say whether rows are turned or shifted."""
        return self.rotation > 0 or self.shift > 0

    def n_steps(self, n_rows: int) -> int:
        """Return how many batches a part of so many rows is trained on."""
        return self.epochs * max(1, n_rows // self.batch_size)

    def rate(self, step: int, n_steps: int) -> float:
        """Return the learning rate of one step: half a cosine, from the full rate down to nearly nothing."""
        # A teacher that is finished may be carried along: it keeps its last rate and is not looked at again.
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(step, n_steps - 1) / n_steps))


class Batches:
    """One teacher's stream of row numbers, and of how far each of those rows is turned and shifted.

    >>> rows, moves = Batches(5, Recipe(epochs=1, batch_size=5, shift=0.1), seed=7).block()
    >>> rows.shape, sorted(rows[0].tolist()), moves.shape
    ((64, 5), [0, 1, 2, 3, 4], (64, 5, 3))
    """

    def __init__(self, n_rows: int, recipe: Recipe, *, seed: int) -> None:
        self._n_rows, self._recipe = n_rows, recipe
        order, moves = np.random.SeedSequence(seed).spawn(2)
        self._order, self._moves = np.random.default_rng(order), np.random.default_rng(moves)
        self._left = np.empty(0, dtype=np.int64)

    def block(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the next `BLOCK` batches: row numbers, and three numbers in [-1, 1) for each row."""
        n_wanted = BLOCK * self._recipe.batch_size
        n_shuffles = max(0, -(-(n_wanted - len(self._left)) // self._n_rows))
        sorted_rows = np.broadcast_to(np.arange(self._n_rows), (n_shuffles, self._n_rows))
        stream = np.concatenate([self._left, self._order.permuted(sorted_rows, axis=1).ravel()])
        self._left = stream[n_wanted:]
        shape = (BLOCK, self._recipe.batch_size)
        if self._recipe.augments:
            moves = self._moves.random((*shape, 3), dtype=np.float32) * 2 - 1
        else:
            moves = np.zeros((*shape, 0), dtype=np.float32)
        return stream[:n_wanted].reshape(shape), moves


def stack_blocks(
    streams: Sequence[Batches], *, offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the next block of several teachers, (steps, teachers, batch), rows counted from their offsets.

    >>> recipe = Recipe(epochs=1, batch_size=2)
    >>> rows, _ = stack_blocks([Batches(3, recipe, seed=s) for s in (1, 2)], offsets=np.array([0, 3]))
    >>> rows.shape, rows[:, 1].min() >= 3
    ((64, 2, 2), True)
    """
    blocks = [stream.block() for stream in streams]
    rows = np.stack([rows + offset for (rows, _), offset in zip(blocks, offsets)], axis=1)
    return rows, np.stack([moves for _, moves in blocks], axis=1)


def turn_and_shift(images: Tensor, moves: Tensor, *, rotation: float, shift: float) -> Tensor:
    """Turn each image by up to `rotation` degrees and shift it by up to `shift` of its width and height.

    `images` are (n, channels, height, width), `moves` (n, 3) in [-1, 1]: angle, right, down.

    >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
    >>> turn_and_shift(image, torch.tensor([[0.0, 1.0, 0.0]]), rotation=0, shift=0.25)[0, 0, 0]
    tensor([1., 2., 3., 0.])
    """
    height, width = images.shape[-2:]
    angle = moves[:, 0, None, None] * math.radians(rotation)
    # Coordinates run from -1 to 1, so a share of the width is twice as much. By hand rather than by
    # affine_grid, whose matrix product would round the coordinates where TF32 is on.
    x = torch.linspace(-1 + 1 / width, 1 - 1 / width, width, device=images.device)[None, None, :]
    y = torch.linspace(-1 + 1 / height, 1 - 1 / height, height, device=images.device)[None, :, None]
    cos, sin = angle.cos(), angle.sin()
    right = x * cos - y * sin + moves[:, 1, None, None] * (2 * shift)
    down = x * sin + y * cos + moves[:, 2, None, None] * (2 * shift)
    return torch.nn.functional.grid_sample(images, torch.stack([right, down], -1), align_corners=False)
