"""Inputs: tables as tensors of the shape and the scale that networks take.

What is measured here, the spread of each feature or the brightest pixel, is measured on public rows: a
student never sees others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...rows import numeric_rows
from .networks import Shape

_FARTHEST = 5.0  # standard deviations: one outlier is not to outweigh all other features


def row_shape(shape: Shape, *, image_shape: Shape | None, squares: bool) -> Shape:
    """Return the shape in which a network gets one row of a table of some shape.

    `image_shape` is (height, width) or (height, width, channels); `squares` takes flat rows for grey squares.

    >>> row_shape((500, 784), image_shape=None, squares=True)
    (1, 28, 28)
    >>> row_shape((500, 3072), image_shape=(32, 32, 3), squares=False)
    (3, 32, 32)
    """
    own, size = tuple(int(n) for n in shape[1:]), prod(shape[1:])
    if image_shape is not None:
        height, width, channels = _pixels(image_shape)
        if height * width * channels != size:
            raise ValueError(
                f"Expected rows that make images of shape {tuple(image_shape)}, got rows of shape {own}."
            )
        return channels, height, width
    if len(own) == 2:
        return 1, own[0], own[1]
    if len(own) == 1 and squares:
        side = round(size**0.5)
        if side * side != size:
            raise ValueError(
                f"Expected square images for network='cnn', got rows of {size} numbers. Give "
                "image_shape=(height, width, channels)."
            )
        return 1, side, side
    if len(own) > 3:
        raise ValueError(f"Expected flat rows, or images (channels, height, width), got rows of shape {own}.")
    return own


def shaped(table: NDArray[Any], shape: Shape, *, image_shape: Shape | None) -> NDArray[np.float32]:
    """Return a table as float32 rows of a shape; flat rows of images have their channels last.

    >>> shaped(np.zeros((2, 12)), (3, 2, 2), image_shape=(2, 2, 3)).shape
    (2, 3, 2, 2)
    """
    if prod(table.shape[1:]) != prod(shape):
        raise ValueError(
            f"Expected rows of shape {shape}, or as many numbers, got rows of shape {table.shape[1:]}."
        )
    if image_shape is not None and tuple(table.shape[1:]) != shape:
        table = np.moveaxis(table.reshape(len(table), *_pixels(image_shape)), 3, 1)
    with np.errstate(over="ignore"):
        rows = np.array(table, dtype=np.float32, order="C").reshape(len(table), *shape)
    numeric_rows(rows)  # what float32 cannot hold is infinite now
    return rows


@dataclass(frozen=True, eq=False)
class Inputs:
    """How rows are scaled: features by their mean and spread, images so that black stays 0.

    >>> table = np.array([[0.0, 10.0], [2.0, 30.0]], dtype=np.float32)
    >>> Inputs.measured([table]).tensor(table, torch.device("cpu"))
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """

    centre: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def measured(cls, tables: Sequence[NDArray[np.float32]]) -> "Inputs":
        """Return the scale of public rows."""
        if tables[0].ndim == 4:
            brightest = max(float(np.abs(table).max()) for table in tables) or 1.0
            return cls(np.zeros(1, np.float32), np.full(1, brightest, np.float32))
        rows = np.concatenate(tables).astype(np.float64)
        spread = rows.std(axis=0)
        return cls(rows.mean(axis=0).astype(np.float32), np.where(spread > 0, spread, 1.0).astype(np.float32))

    def tensor(self, rows: NDArray[np.float32], device: torch.device) -> Tensor:
        """Return rows on a device, scaled."""
        scaled = (rows - self.centre) / self.scale
        if rows.ndim != 4:
            scaled = scaled.clip(-_FARTHEST, _FARTHEST)
        return torch.as_tensor(scaled.astype(np.float32), device=device)


def _pixels(image_shape: Shape) -> tuple[int, int, int]:
    shape = tuple(int(n) for n in image_shape)
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ValueError(f"Expected image_shape=(height, width) or (height, width, channels), got {shape}.")
    return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
