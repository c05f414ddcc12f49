"""Networks: the named ones, the user's own, and dropout that a teacher draws for itself.

A network is built on the CPU from one seed, so it starts from the same numbers on every device. Every
`nn.Dropout` in it is replaced by one whose masks come from a counter and a key of the teacher: they are the
same whether the teacher is trained alone or beside others, on a CPU or on a GPU.
"""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
Factory = Callable[[], nn.Module]


def cnn(shape: Shape, n_classes: int) -> nn.Module:
    """Return the network of the personalised PATE paper: 32 filters of 3x3, pooling, 100 units, batch norm.

    >>> sum(weights.numel() for weights in cnn((1, 28, 28), 10).parameters())
    542494
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ValueError(
            f"Expected images of 4x4 or larger, as (channels, height, width), for network='cnn', "
            f"got rows of shape {shape}. Give image_shape, or take network='mlp'."
        )
    channels, height, width = shape
    n_pooled = 32 * ((height - 2) // 2) * ((width - 2) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(n_pooled, 100), nn.ReLU(), nn.BatchNorm1d(100), nn.Linear(100, n_classes),
    )  # fmt: skip


def mlp(shape: Shape, n_classes: int) -> nn.Module:
    """Return a network for rows of any shape: 128 units, a fifth of them dropped while it learns.

    >>> mlp((64,), 10)(torch.zeros(5, 64)).shape
    torch.Size([5, 10])
    """
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, n_classes)
    )


NETWORKS: dict[str, Callable[[Shape, int], nn.Module]] = {"cnn": cnn, "mlp": mlp}


def build_network(network: str | Factory, shape: Shape, *, n_classes: int, seed: int) -> nn.Module:
    """Return a new network for rows of a shape, with weights and dropout masks from the seed alone.

    >>> one, same = (build_network("mlp", (64,), n_classes=10, seed=7) for _ in range(2))
    >>> all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters()))
    True
    """
    # The device's generators are left alone: only the CPU's is used, and put back.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if isinstance(network, str):
            if network not in NETWORKS:
                known = ", ".join(repr(name) for name in sorted(NETWORKS))
                raise ValueError(
                    f"Expected network as {known} or a function that makes one, got {network!r}."
                )
            made = NETWORKS[network](shape, n_classes)
        else:
            made = network()
    if not isinstance(made, nn.Module):
        raise TypeError(f"Expected a function that returns a torch.nn.Module, got {type(made).__name__}.")
    strange = [name for name, values in made.state_dict().items() if values.device.type != "cpu"]
    if strange:
        raise ValueError(f"Expected a network on the CPU, got {strange[0]} elsewhere. Let device= move it.")
    return _with_keyed_dropout(made, seed)


class KeyedDropout(nn.Module):
    """Dropout whose masks are numbered: the same key and the same count give the same mask everywhere.

    >>> one, same = KeyedDropout(0.5, key=7), KeyedDropout(0.5, key=7)
    >>> rows = torch.ones(4, 8)
    >>> torch.equal(one.forward(rows), same.forward(rows)), torch.equal(one(rows), same.eval()(rows))
    (True, False)
    """

    key: Tensor
    n_drawn: Tensor

    def __init__(self, p: float, *, key: int) -> None:
        super().__init__()
        self.p = p
        # Buffers, so that stacking many teachers stacks these too. They are no part of a saved model.
        self.register_buffer("key", torch.tensor(_signed(key), dtype=torch.int32), persistent=False)
        self.register_buffer("n_drawn", torch.tensor(0, dtype=torch.int32), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Drop a share of the entries and scale the rest up; in evaluation change nothing."""
        if not self.training or self.p == 0:
            return rows
        if self.p == 1:
            return rows * 0
        kept = keep_mask(self.key, self.n_drawn, n=rows.numel(), p=self.p).view(rows.shape)
        self.n_drawn.add_(1)
        return rows * kept.to(rows.dtype) / (1 - self.p)

    def extra_repr(self) -> str:
        """Return what printing a network shows, as for nn.Dropout.

        >>> KeyedDropout(0.5, key=7)
        KeyedDropout(p=0.5)
        """
        return f"p={self.p}"


def keep_mask(key: Tensor, count: Tensor, *, n: int, p: float) -> Tensor:
    """Return which of n entries are kept, for one key and count or for one of each per teacher.

    >>> keep_mask(torch.tensor(7, dtype=torch.int32), torch.tensor(0, dtype=torch.int32), n=9, p=0.5).shape
    torch.Size([9])
    """
    start = _scramble(key + _scramble(count + 1))
    place = torch.arange(n, dtype=torch.int32, device=key.device)
    return _scramble(start.unsqueeze(-1) + place) >= int((p - 0.5) * 2**32)


def _scramble(words: Tensor) -> Tensor:
    """Mix the bits of 32-bit words; shifts are made unsigned by hand, as torch has signed words alone."""
    words = (words ^ ((words >> 16) & 0xFFFF)) * 0x7FEB352D
    words = (words ^ ((words >> 15) & 0x1FFFF)) * _signed(0x846CA68B)
    return words ^ ((words >> 16) & 0xFFFF)


def _signed(word: int) -> int:
    return (word + 2**31) % 2**32 - 2**31


def _with_keyed_dropout(network: nn.Module, seed: int) -> nn.Module:
    places = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent._modules.items()  # named_children leaves out a layer used twice
        if type(child) is nn.Dropout
    ]
    for number, (parent, name, child) in enumerate(places):
        setattr(parent, name, KeyedDropout(child.p, key=seed * 31 + number * 0x9E3779B9))
    return KeyedDropout(network.p, key=seed) if type(network) is nn.Dropout else network
