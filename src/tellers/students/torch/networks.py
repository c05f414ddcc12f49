"""Networks of students: what they see in a row, and what they make of it.

Each is `features` followed by `head`, one linear layer: a generator that is to match features has to know
them. A network is built on the CPU from one seed, so it starts from the same numbers on every device.
"""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
Factory = Callable[[], nn.Module]


class TwoPart(nn.Module):
    """A network in two parts, features and a linear head.

    >>> network = TwoPart(nn.Flatten(), nn.Linear(4, 3))
    >>> network.forward(torch.zeros(5, 2, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, rows: Tensor) -> Tensor:
        """Return one number per class, or label, of every row."""
        answers: Tensor = self.head(self.features(rows))
        return answers


def cnn(shape: Shape, n_outputs: int, *, width: int = 32) -> TwoPart:
    """Return five convolutions of 3x3 with batch norm, halved twice, averaged over the image.

    >>> network = cnn((1, 28, 28), 10)
    >>> sum(weights.numel() for weights in network.parameters()), network(torch.zeros(2, 1, 28, 28)).shape
    (140778, torch.Size([2, 10]))
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ValueError(
            "Expected images of 4x4 or larger, as (channels, height, width), for network='cnn', "
            f"got rows of shape {shape}. Give image_shape, or take network='mlp'."
        )
    layers: list[nn.Module] = []
    sizes = (width, width, 2 * width, 2 * width, 4 * width)
    for number, (before, after) in enumerate(zip((shape[0], *sizes), sizes)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        if number in (1, 3):
            layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3)]
    return TwoPart(nn.Sequential(*layers), nn.Linear(4 * width, n_outputs))


def mlp(shape: Shape, n_outputs: int, *, width: int = 32) -> TwoPart:
    """Return two hidden layers for rows of any shape, with batch norm.

    >>> mlp((64,), 10)(torch.zeros(5, 64)).shape
    torch.Size([5, 10])
    """
    hidden = 8 * width
    features = nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2),
    )  # fmt: skip
    return TwoPart(features, nn.Linear(hidden, n_outputs))


NETWORKS: dict[str, Callable[..., TwoPart]] = {"cnn": cnn, "mlp": mlp}


def build_network(
    network: str | Factory, shape: Shape, *, n_outputs: int, width: int, seed: int
) -> nn.Module:
    """Return a new network for rows of a shape; "auto" is a "cnn" for images, else an "mlp".

    >>> one, same = (build_network("auto", (64,), n_outputs=10, width=4, seed=7) for _ in range(2))
    >>> all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters()))
    True
    """
    # The device's generators are left alone: only the CPU's is used, and put back.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if not isinstance(network, str):
            made = network()
        elif network in ("auto", *NETWORKS):
            name = network if network != "auto" else "cnn" if len(shape) == 3 else "mlp"
            made = NETWORKS[name](shape, n_outputs, width=width)
        else:
            known = ", ".join(repr(name) for name in ("auto", *sorted(NETWORKS)))
            raise ValueError(f"Expected network as {known} or a function that makes one, got {network!r}.")
    if not isinstance(made, nn.Module):
        raise TypeError(f"Expected a function that returns a torch.nn.Module, got {type(made).__name__}.")
    _check(made, shape, n_outputs)
    return made


@torch.no_grad()
def _check(network: nn.Module, shape: Shape, n_outputs: int) -> None:
    network.eval()
    try:
        answer = network(torch.zeros(2, *shape))
    except Exception as error:
        raise ValueError(f"Expected a network for rows of shape {shape}, got an error: {error}") from error
    if not isinstance(answer, Tensor) or answer.shape != (2, n_outputs):
        shown = tuple(answer.shape[1:]) if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(
            f"Expected a network that makes {n_outputs} numbers, one per class, of rows of shape {shape}, "
            f"got {shown}. Declare n_classes if the labels lack some classes."
        )


def batch_norms(network: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the layers that remember statistics of the rows they saw.

    >>> len(batch_norms(cnn((1, 8, 8), 10, width=4)))
    5
    """
    return [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def without_dropout(network: nn.Module) -> nn.Module:
    """Set a network to training, where batch norm looks at the batch, but drop nothing.

    >>> network = without_dropout(mlp((64,), 10))
    >>> network.training, network.features[4].training
    (True, False)
    """
    network.train()
    for layer in network.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.eval()
    return network
