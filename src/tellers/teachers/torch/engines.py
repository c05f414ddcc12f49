"""Engines: whether teachers are trained together or one after another, and how.

Which one is faster depends on the network and the machine: many small steps are faster together, large ones
on a CPU are not. So it is measured, on made-up rows.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from ...errors import require_count
from .batched import Convolution

Precision = Literal["float32", "tf32", "bfloat16"]

# Patches of so few numbers are cheap to copy, and products with them beat grouped convolutions.
_SMALL_PATCH = 16


@dataclass(frozen=True, kw_only=True)
class Batched:
    """Train many teachers in one program, `chunk` at a time; the rest is for GPUs.

    `convolution` is "grouped", or "unfold" (batched matrix products), by default the latter where the first
    layers have few channels. `precision` is that of matrix products, weights are float32. `cuda_graph`
    repeats a recorded step. `benchmark` lets cuDNN time its kernels and take the fastest, which may differ
    from run to run.

    >>> Batched(chunk=50).name
    'batched, chunk=50, precision=tf32, convolution=auto'
    """

    chunk: int | None = None
    precision: Precision = "tf32"
    convolution: Convolution | Literal["auto"] = "auto"
    cuda_graph: bool = True
    channels_last: bool = False
    benchmark: bool = False

    def __post_init__(self) -> None:
        if self.chunk is not None:
            require_count(chunk=self.chunk)
        for name, known in (
            ("precision", ("float32", "tf32", "bfloat16")),
            ("convolution", ("auto", "grouped", "unfold")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"Expected {name} in {known}, got {getattr(self, name)!r}.")

    @property
    def name(self) -> str:
        """Return the choices that may change the last digits of what is learned."""
        return f"batched, chunk={self.chunk}, precision={self.precision}, convolution={self.convolution}"

    def convolution_for(self, network: nn.Module, device: torch.device) -> Convolution:
        """Return how the convolutions of a network are computed.

        >>> Batched().convolution_for(nn.Sequential(nn.Conv2d(1, 32, 3)), torch.device("cuda"))
        'unfold'
        """
        if self.convolution != "auto":
            return self.convolution
        layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
        sizes = [layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1] for layer in layers]
        return "unfold" if max(sizes, default=0) <= _SMALL_PATCH else "grouped"
