"""Views of rows: the same row seen a little, or very much, differently; and the scale of inputs.

A weak view (a quarter of the strength) is what targets are guessed from, a medium one (half) what labelled
rows are learned from, a strong one what has to agree with the guess. Views are drawn for whole batches at
once, on the device.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..errors import require_finite
from .networks import Shape

WEAK, MEDIUM, STRONG = 0.25, 0.5, 1.0
_SMALL = 16  # pixels


class Views(Protocol):
    """Anything that shows a batch of rows differently; `strength` runs from 0 to 1."""

    def see(self, rows: Tensor, strength: float) -> Tensor:
        """Return a view of every row, each drawn for itself from torch's generator of the device."""

    def fixed(self, rows: Tensor, number: int) -> Tensor:
        """Return weak views, the same for every row and every time: what a row gets depends on it alone."""


@dataclass(frozen=True, kw_only=True)
class ImageViews:
    """Images turned (degrees), shifted (share of the width), scaled, and with a square cut out.

    `cutout` is the side of the square, as a share of the image's; only the strongest views have one.
    `contrast` changes brightness and contrast by up to this share and `flip` mirrors half the images, both
    for photographs. What comes in from outside is black, or with `repeat_border` the nearest pixel.

    >>> images = torch.rand(6, 1, 28, 28)
    >>> ImageViews().see(images, STRONG).shape
    torch.Size([6, 1, 28, 28])
    >>> bool((ImageViews().see(images, 0.0) - images).abs().max() < 1e-4)
    True
    >>> once, again = (ImageViews().fixed(images, 3) for _ in range(2))
    >>> torch.equal(once, again)
    True
    """

    rotation: float = 24.0
    shift: float = 0.12
    scale: float = 0.2
    cutout: float = 0.32
    contrast: float = 0.0
    flip: bool = False
    repeat_border: bool = False

    def __post_init__(self) -> None:
        for name in ("rotation", "shift", "scale", "cutout", "contrast"):
            _require_share(name, getattr(self, name), most=180.0 if name == "rotation" else 0.9)

    def see(self, rows: Tensor, strength: float) -> Tensor:
        """Return every image moved, and mirrored or with its contrast changed where that is asked for."""
        moves = torch.rand(len(rows), 4, device=rows.device) * 2 - 1
        seen = self._moved(rows, moves, strength)
        if self.flip:
            mirrored = torch.rand(len(rows), 1, 1, 1, device=rows.device) < 0.5
            seen = torch.where(mirrored, seen.flip(-1), seen)
        if self.contrast:
            stretch, lift = (
                strength * self.contrast * (torch.rand(2, len(rows), 1, 1, 1, device=rows.device) * 2 - 1)
            )
            mean = seen.mean(dim=(1, 2, 3), keepdim=True)
            seen = (seen - mean) * (1 + stretch) + mean * (1 + lift)
        if self.cutout and strength >= STRONG:
            seen = seen.masked_fill(self._square(seen), 0.0)
        return seen

    def fixed(self, rows: Tensor, number: int) -> Tensor:
        """Return weak views, all images moved alike."""
        drawn = torch.rand(1, 4, generator=torch.Generator().manual_seed(number)) * 2 - 1
        return self._moved(rows, drawn.to(rows.device).expand(len(rows), 4), WEAK)

    def _moved(self, images: Tensor, moves: Tensor, strength: float) -> Tensor:
        """Turn, shift and scale every image by its moves, from -1 to 1."""
        angle, right, down, size = (moves * strength).float().T[:, :, None, None]
        angle = angle * math.radians(self.rotation)
        zoom = 1 + size * self.scale
        return _resampled(
            images, cos=zoom * angle.cos(), sin=zoom * angle.sin(), right=2 * self.shift * right,
            down=2 * self.shift * down, padding="border" if self.repeat_border else "zeros",
        )  # fmt: skip

    def _square(self, images: Tensor) -> Tensor:
        n, _, height, width = images.shape
        half = self.cutout * min(height, width) / 2
        centre = torch.rand(2, n, 1, 1, device=images.device)
        rows = torch.arange(height, device=images.device)[None, :, None] + 0.5
        columns = torch.arange(width, device=images.device)[None, None, :] + 0.5
        inside = ((rows - centre[0] * height).abs() < half) & ((columns - centre[1] * width).abs() < half)
        return inside[:, None]


def turn_and_shift(images: Tensor, moves: Tensor, *, rotation: float, shift: float) -> Tensor:
    """Turn each image by up to `rotation` degrees and shift it by up to `shift` of its width and height.

    `images` are (n, channels, height, width), `moves` (n, 3) in [-1, 1]: angle, right, down.
    """
    angle, right, down = moves.T[:, :, None, None]
    angle = angle * math.radians(rotation)
    return _resampled(
        images, cos=angle.cos(), sin=angle.sin(), right=right * (2 * shift), down=down * (2 * shift)
    )


def _resampled(
    images: Tensor, *, cos: Tensor, sin: Tensor, right: Tensor, down: Tensor, padding: str = "zeros"
) -> Tensor:
    """Return images turned and shifted; coordinates run from -1 to 1, so a share of the width is doubled."""
    height, width = images.shape[-2:]
    # By hand rather than by affine_grid, whose matrix product would round coordinates where TF32 is on.
    x = torch.linspace(-1 + 1 / width, 1 - 1 / width, width, device=images.device)[None, None, :]
    y = torch.linspace(-1 + 1 / height, 1 - 1 / height, height, device=images.device)[None, :, None]
    grid = torch.stack([x * cos - y * sin + right, x * sin + y * cos + down], dim=-1)
    return functional.grid_sample(images, grid, padding_mode=padding, align_corners=False)


@dataclass(frozen=True, kw_only=True)
class RowViews:
    """Rows of features with noise (in standard deviations), and a share of features borrowed from other rows.

    A feature that is borrowed has a value that it really takes, which a masked one may not.

    >>> rows = torch.randn(6, 5)
    >>> RowViews().see(rows, STRONG).shape, torch.equal(RowViews().see(rows, 0.0), rows)
    (torch.Size([6, 5]), True)
    >>> torch.equal(RowViews().fixed(rows, 3), RowViews().fixed(rows, 3))
    True
    """

    noise: float = 0.2
    borrowed: float = 0.3

    def __post_init__(self) -> None:
        _require_share("noise", self.noise, most=10.0)
        _require_share("borrowed", self.borrowed, most=0.9)

    def see(self, rows: Tensor, strength: float) -> Tensor:
        """Return every row with noise, and some of its values borrowed from other rows."""
        others = rows[torch.randperm(len(rows), device=rows.device)]
        lent = torch.rand(rows.shape, device=rows.device) < strength * self.borrowed
        return torch.where(lent, others, rows) + strength * self.noise * torch.randn_like(rows)

    def fixed(self, rows: Tensor, number: int) -> Tensor:
        """Return weak views: the same noise for every row, and nothing borrowed."""
        drawn = torch.randn(1, *rows.shape[1:], generator=torch.Generator().manual_seed(number))
        return rows + WEAK * self.noise * drawn.to(rows.device)


def views_for(given: Views | Mapping[str, Any] | None, shape: Shape) -> Views:
    """Return the views of rows of a shape: those given, with settings given, or the usual ones.

    Images of fewer than 16 pixels a side are moved about half as far.
    """
    if given is None or isinstance(given, Mapping):
        settings = dict(given or {})
        kind: type[ImageViews] | type[RowViews] = ImageViews if len(shape) == 3 else RowViews
        if kind is ImageViews and shape[0] > 1:  # photographs have no black ground around them
            settings = {"repeat_border": True, **settings}
        if kind is ImageViews and min(shape[1:]) < _SMALL:  # what is cut off one of few pixels is lost
            settings = {"rotation": 12.0, "shift": 0.08, "scale": 0.1, "cutout": 0.2, **settings}
        try:
            return kind(**settings)
        except TypeError as error:
            raise ValueError(f"Expected settings of {kind.__name__} as views, got others: {error}.") from None
    if isinstance(given, ImageViews) and len(shape) != 3:
        raise ValueError(f"Expected images for ImageViews, got rows of shape {shape}. Give image_shape.")
    return given


def _require_share(name: str, value: float, *, most: float) -> None:
    require_finite(**{name: value})
    if not 0 <= value <= most:
        raise ValueError(f"Expected 0 <= {name} <= {most:g}, got {name}={value!r}.")


# --- The scale of inputs, measured on public rows: a student never sees others ---


_FARTHEST = 5.0  # standard deviations: one outlier is not to outweigh all other features


@dataclass(frozen=True, eq=False)
class Inputs:
    """How rows are scaled: features by their mean and spread, images so that black stays 0."""

    centre: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def measured(cls, tables: Sequence[NDArray[np.float32]]) -> "Inputs":
        if tables[0].ndim == 4:
            brightest = max(float(np.abs(table).max()) for table in tables) or 1.0
            return cls(np.zeros(1, np.float32), np.full(1, brightest, np.float32))
        rows = np.concatenate(tables).astype(np.float64)
        spread = rows.std(axis=0)
        return cls(rows.mean(axis=0).astype(np.float32), np.where(spread > 0, spread, 1.0).astype(np.float32))

    def tensor(self, rows: NDArray[np.float32], device: torch.device) -> Tensor:
        scaled = (rows - self.centre) / self.scale
        if rows.ndim != 4:
            scaled = scaled.clip(-_FARTHEST, _FARTHEST)
        return torch.as_tensor(scaled.astype(np.float32), device=device)
