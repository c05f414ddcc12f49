"""Networks for log-Mel pictures of one channel: ResNets and VGGs with their own heads, and a small one.

The layers of the large ones are named as in the files of weights that are passed around for pictures, so that
such a file fits: its first layer has three channels, of which ours is the sum, as if a grey picture came in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import MissingExtra, require_count

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for audio networks, found none: pip install 'tellers[torch]'")

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
_HEADS = ("head.", "fc.", "classifier.")


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input is led and added.

    Reference: He et al. 2016, the basic block.

    >>> ResidualBlock(4, 8, stride=2).forward(torch.zeros(1, 4, 6, 6)).shape
    torch.Size([1, 8, 3, 3])
    """

    def __init__(self, n_in: int, n_out: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, rows: Tensor) -> Tensor:
        """Return what the block makes of rows."""
        seen = torch.relu(self.bn1(self.conv1(rows)))
        return torch.relu(self.bn2(self.conv2(seen)) + self.downsample(rows))


class ResNet(nn.Module):
    """A residual network of one channel with a head of 512 and 256 units, batch norm and dropout.

    >>> ResNet((2, 2, 2, 2), n_labels=5).eval().forward(torch.zeros(2, 1, 64, 32)).shape
    torch.Size([2, 5])
    """

    def __init__(self, depths: Sequence[int], *, n_labels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        layers, n_in = [], 64
        for n_out, depth in zip((64, 128, 256, 512), depths, strict=True):
            first = ResidualBlock(n_in, n_out, stride=1 if n_out == 64 else 2)
            layers.append(nn.Sequential(first, *(ResidualBlock(n_out, n_out) for _ in range(depth - 1))))
            n_in = n_out
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.head = nn.Sequential(
            nn.Linear(512, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Dropout(0.5),
            nn.Linear(512, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Dropout(0.5),
            nn.Linear(256, n_labels),
        )  # fmt: skip
        _start(self)

    def forward(self, rows: Tensor) -> Tensor:
        """Return one number per label."""
        seen = self.pool(torch.relu(self.bn1(self.conv1(rows))))
        seen = self.layer4(self.layer3(self.layer2(self.layer1(seen))))
        return torch.as_tensor(self.head(seen.mean(dim=(2, 3))))


class Vgg(nn.Module):
    """A plain stack of 3x3 convolutions and poolings with a head of twice 4096 units and dropout.

    Reference: Simonyan and Zisserman 2015. The thesis's table 4.2 prints 2x2 convolutions; the weights that
    it starts from are of 3x3 ones, and so are these.

    >>> with torch.device("meta"):  # 129 million weights, of which none is needed here
    ...     network = Vgg((1, 1, 2, 2, 2), n_labels=5)
    >>> network.forward(torch.zeros(2, 1, 64, 32, device="meta")).shape
    torch.Size([2, 5])
    """

    def __init__(self, depths: Sequence[int], *, n_labels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 1
        for n_out, depth in zip((64, 128, 256, 512, 512), depths, strict=True):
            for _ in range(depth):
                layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU()]
                n_in = n_out
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, n_labels),
        )  # fmt: skip
        _start(self)

    def forward(self, rows: Tensor) -> Tensor:
        """Return one number per label."""
        return torch.as_tensor(self.classifier(self.pool(self.features(rows)).flatten(1)))


class SmallCnn(nn.Module):
    """Four convolutions and an average over time and pitch, beside the loudest: enough for a CPU.

    >>> network = SmallCnn(n_labels=10)
    >>> network.eval().forward(torch.zeros(2, 1, 101, 64)).shape
    torch.Size([2, 10])
    >>> sum(weights.numel() for weights in network.parameters())
    99962
    """

    def __init__(self, *, n_labels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 1
        for n_out in (16, 32, 64, 128):
            # The first one strides: the full picture is where a CPU spends its time.
            stride, pool = (2, 1) if n_in == 1 else (1, 2)
            layers += [
                nn.MaxPool2d(pool) if pool > 1 else nn.Identity(),
                nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(),
            ]
            n_in = n_out
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * 128, n_labels))
        _start(self)

    def forward(self, rows: Tensor) -> Tensor:
        """Return one number per label."""
        seen = self.features(rows)
        return torch.as_tensor(self.head(torch.cat([seen.mean(dim=(2, 3)), seen.amax(dim=(2, 3))], dim=1)))


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": lambda n_labels: ResNet((2, 2, 2, 2), n_labels=n_labels),
    "resnet34": lambda n_labels: ResNet((3, 4, 6, 3), n_labels=n_labels),
    "small": lambda n_labels: SmallCnn(n_labels=n_labels),
    "vgg11": lambda n_labels: Vgg((1, 1, 2, 2, 2), n_labels=n_labels),
    "vgg19": lambda n_labels: Vgg((2, 2, 4, 4, 4), n_labels=n_labels),
}
# After so many halvings something must be left.
_SMALLEST = {"resnet18": 32, "resnet34": 32, "small": 16, "vgg11": 32, "vgg19": 32}


def make_network(name: str, *, shape: Shape, n_labels: int) -> nn.Module:
    """Return a new network for pictures of a shape, (1, frames, bins), with one output per label.

    >>> make_network("small", shape=(1, 1001, 64), n_labels=10).eval()(torch.zeros(1, 1, 1001, 64)).shape
    torch.Size([1, 10])
    >>> make_network("vgg11", shape=(1, 101, 16), n_labels=10)
    Traceback (most recent call last):
        ...
    ValueError: Expected at least 32 frames and 32 bins for network='vgg11', got 101 and 16. ...
    """
    if name not in NETWORKS:
        known = ", ".join(repr(one) for one in NETWORKS)
        raise ValueError(f"Expected network to be one of {known}, got {name!r}.")
    if len(shape) != 3 or shape[0] != 1:
        raise ValueError(f"Expected pictures of shape (1, frames, bins), got {tuple(shape)}.")
    least = _SMALLEST[name]
    if min(shape[1:]) < least:
        raise ValueError(
            f"Expected at least {least} frames and {least} bins for network={name!r}, got {shape[1]} and "
            f"{shape[2]}. Take longer clips or more bins, or network='small'."
        )
    require_count(n_labels=n_labels)
    return NETWORKS[name](int(n_labels))


def network_factory(name: str, *, shape: Shape, n_labels: int) -> Callable[[], nn.Module]:
    """Return a function without arguments that makes such networks, for torch teachers and students.

    >>> network_factory("small", shape=(1, 101, 64), n_labels=3)().eval()(torch.zeros(1, 1, 101, 64)).shape
    torch.Size([1, 3])
    """
    with torch.device("meta"):
        make_network(name, shape=shape, n_labels=n_labels)  # which refuses what does not fit, here and now
    return partial(make_network, name, shape=shape, n_labels=n_labels)


@dataclass(frozen=True)
class Pretrained:
    """Which weights came from a file, which begin anew, and which of the file's were left there.

    `other_shape` has (name, the network's shape, the file's shape).

    >>> network = make_network("small", shape=(1, 64, 64), n_labels=3)
    >>> fit_weights(network, {"head.1.weight": torch.zeros(9, 9)}).other_shape
    (('head.1.weight', (3, 256), (9, 9)),)
    """

    loaded: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]
    other_shape: tuple[tuple[str, Shape, Shape], ...]

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the weights outside the head that did not come from the file."""
        shapes = tuple(name for name, _, _ in self.other_shape)
        # How many batches a norm has seen is in newer files alone, and changes no answer.
        counted = (name for name in (*self.new, *shapes) if not name.endswith("num_batches_tracked"))
        return tuple(name for name in counted if not name.startswith(_HEADS))

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} weights came from the file."]
        lines += [f"  {name}: begins anew, the file has none" for name in self.new]
        lines += [f"  {name}: expected {want}, the file has {got}" for name, want, got in self.other_shape]
        lines += [f"  {name}: in the file, not in the network" for name in self.unused]
        return "\n".join(lines)


def load_pretrained(network: nn.Module, path: str | PathLike[str]) -> Pretrained:
    """Load weights from a local file, safetensors or torch's own; the head may differ, nothing else.

    Torch files are read as weights alone: one that holds anything else is refused, and no code in it runs.

    Assumes:   the weights are public: they were learned from nobody's private rows.

    >>> import tempfile
    >>> network = make_network("small", shape=(1, 64, 64), n_labels=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(network.state_dict(), Path(folder) / "weights.pt")
    ...     len(load_pretrained(network, Path(folder) / "weights.pt").loaded)
    26
    """
    place = Path(path)
    loaded = fit_weights(network, _read(place))
    if loaded.lacking:
        raise ValueError(
            f"Expected the weights of this network, head apart, in {place.name}, got others. Take the file "
            f"of the same network.\n{loaded}"
        )
    return loaded


def fit_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> Pretrained:
    """Give a network those weights that fit by name and shape; say of each what became of it.

    >>> network = make_network("resnet18", shape=(1, 64, 64), n_labels=3)
    >>> grey = fit_weights(network, {"conv1.weight": torch.ones(64, 3, 7, 7), "fc.bias": torch.zeros(1000)})
    >>> grey.loaded, grey.unused, network.conv1.weight[0, 0, 0, 0].item()
    (('conv1.weight',), ('fc.bias',), 3.0)
    """
    own = network.state_dict()
    fitting, other_shape = {}, []
    for name in own.keys() & weights.keys():
        given = weights[name]
        if own[name].dim() == 4 and own[name].shape[1] == 1 and given.dim() == 4 and given.shape[1] == 3:
            given = given.sum(dim=1, keepdim=True)
        if given.shape == own[name].shape:
            fitting[name] = given.to(own[name].dtype)
        else:
            other_shape.append((name, tuple(own[name].shape), tuple(given.shape)))
    network.load_state_dict(fitting, strict=False)
    return Pretrained(
        loaded=tuple(name for name in own if name in fitting),
        new=tuple(name for name in own if name not in weights),
        unused=tuple(sorted(weights.keys() - own.keys())),
        other_shape=tuple(sorted(other_shape)),
    )


def _read(place: Path) -> Mapping[str, Tensor]:
    if not place.is_file():
        raise ValueError(f"Expected a file of weights at {place.name}, found none. Check the path.")
    try:
        if place.suffix == ".safetensors":
            from safetensors.torch import load_file

            weights: Any = load_file(place)
        else:
            weights = torch.load(place, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever is wrong with a file, it is one kind of error
        raise ValueError(
            f"Expected weights and nothing else in {place.name}, as safetensors or a torch state_dict, got "
            f"something else ({type(error).__name__}). Save network.state_dict() and name that file."
        ) from error
    if not isinstance(weights, Mapping) or not all(isinstance(one, Tensor) for one in weights.values()):
        raise ValueError(
            f"Expected tensors by name in {place.name}, got something else. Save network.state_dict()."
        )
    return dict(weights)


def _start(network: nn.Module) -> None:
    if any(weight.is_meta for weight in network.parameters()):
        return  # nothing is there to draw; and drawing it would load torch's compiler, which takes seconds
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
