"""Networks of teachers, students and sound: the named ones, the user's own, and dropout by key.

A network is built on the CPU from one seed, so it starts from the same numbers on every device.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from ..errors import require_count

Shape = tuple[int, ...]
Factory = Callable[[], nn.Module]


def build_network(network: str | Factory, shape: Shape, *, n_classes: int, seed: int) -> nn.Module:
    """Return a new network of a teacher, with weights and dropout masks from the seed alone."""
    if isinstance(network, str):
        network = partial(_named(network, TEACHER_NETWORKS), shape, n_classes)
    made = _made(network, seed)
    strange = [name for name, values in made.state_dict().items() if values.device.type != "cpu"]
    if strange:
        raise ValueError(f"Expected a network on the CPU, got {strange[0]} elsewhere. Let device= move it.")
    return _with_keyed_dropout(made, seed)


def build_student_network(
    network: str | Factory, shape: Shape, *, n_outputs: int, width: int, seed: int
) -> nn.Module:
    """Return a new network of a student; "auto" is a "cnn" for images, else an "mlp"."""
    if isinstance(network, str):
        usual = STUDENT_NETWORKS["cnn" if len(shape) == 3 else "mlp"]
        network = partial(_named(network, {"auto": usual, **STUDENT_NETWORKS}), shape, n_outputs, width=width)
    made = _made(network, seed)
    check_network(made, shape, n_classes=n_outputs)
    return made


def _named(name: str, networks: "dict[str, Callable[..., nn.Module]]") -> Callable[..., nn.Module]:
    if name not in networks:
        known = ", ".join(repr(one) for one in sorted(networks))
        raise ValueError(f"Expected network as {known} or a function that makes one, got {name!r}.")
    return networks[name]


def _made(factory: Factory, seed: int) -> nn.Module:
    # The device's generators are left alone: only the CPU's is used, and put back.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = factory()
    if not isinstance(made, nn.Module):
        raise TypeError(f"Expected a function that returns a torch.nn.Module, got {type(made).__name__}.")
    return made


@torch.no_grad()
def check_network(network: nn.Module, shape: Shape, *, n_classes: int) -> None:
    """Refuse a network that does not make one number per class of each row."""
    network.eval()
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ValueError("Expected a network with weights to learn, got none.")
    try:
        answer = network(torch.zeros(2, *shape))
    except Exception as error:
        raise ValueError(f"Expected a network for rows of shape {shape}, got an error: {error}") from error
    if not isinstance(answer, Tensor) or answer.shape != (2, n_classes):
        shown = tuple(answer.shape[1:]) if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(
            f"Expected a network that makes {n_classes} numbers, one per class, of rows of shape {shape}, "
            f"got shape {shown}. Declare n_classes if y lacks some classes."
        )


def _require_images(shape: Shape) -> None:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ValueError(
            f"Expected images of 4x4 or larger, as (channels, height, width), for network='cnn', "
            f"got rows of shape {shape}. Give image_shape, or take network='mlp'."
        )


# --- Networks of teachers ---


def teacher_cnn(shape: Shape, n_classes: int) -> nn.Module:
    """Return the network of the personalised PATE paper: 32 filters, pooling, 100 units, batch norm."""
    _require_images(shape)
    channels, height, width = shape
    n_pooled = 32 * ((height - 2) // 2) * ((width - 2) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(n_pooled, 100), nn.ReLU(), nn.BatchNorm1d(100), nn.Linear(100, n_classes),
    )  # fmt: skip


def teacher_mlp(shape: Shape, n_classes: int) -> nn.Module:
    """Return a network for rows of any shape: 128 units, a fifth of them dropped while it learns."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, n_classes)
    )


TEACHER_NETWORKS: dict[str, Callable[..., nn.Module]] = {"cnn": teacher_cnn, "mlp": teacher_mlp}


# --- Networks of students: features, and one linear layer as their head ---


class TwoPart(nn.Module):
    """A network in two parts, features and a linear head."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, rows: Tensor) -> Tensor:
        answers: Tensor = self.head(self.features(rows))
        return answers


def student_cnn(shape: Shape, n_outputs: int, *, width: int = 32) -> TwoPart:
    """Return five convolutions of 3x3 with batch norm, halved twice, averaged over the image."""
    _require_images(shape)
    layers: list[nn.Module] = []
    sizes = (width, width, 2 * width, 2 * width, 4 * width)
    for number, (before, after) in enumerate(zip((shape[0], *sizes), sizes)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        if number in (1, 3):
            layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3)]
    return TwoPart(nn.Sequential(*layers), nn.Linear(4 * width, n_outputs))


def student_mlp(shape: Shape, n_outputs: int, *, width: int = 32) -> TwoPart:
    """Return two hidden layers for rows of any shape, with batch norm."""
    hidden = 8 * width
    features = nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2),
    )  # fmt: skip
    return TwoPart(features, nn.Linear(hidden, n_outputs))


STUDENT_NETWORKS: dict[str, Callable[..., nn.Module]] = {"cnn": student_cnn, "mlp": student_mlp}


def batch_norms(network: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the layers that remember statistics of the rows they saw."""
    return [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def without_dropout(network: nn.Module) -> nn.Module:
    """Set a network to training, where batch norm looks at the batch, but drop nothing."""
    network.train()
    for layer in network.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.eval()
    return network


# --- Networks of log-Mel spectrograms of one channel ---
#
# The layers of the large ones are named as in the files of weights that are passed around for pictures, so
# that such a file fits: its first layer has three channels, of which ours is the sum, as if a grey picture
# came in.

HEADS = ("head.", "fc.", "classifier.")


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input is led and added.

    Reference: He et al. 2016, the basic block.
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
        seen = torch.relu(self.bn1(self.conv1(rows)))
        return torch.relu(self.bn2(self.conv2(seen)) + self.downsample(rows))


class ResNet(nn.Module):
    """A residual network of one channel with a head of 512 and 256 units, batch norm and dropout."""

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
        seen = self.pool(torch.relu(self.bn1(self.conv1(rows))))
        seen = self.layer4(self.layer3(self.layer2(self.layer1(seen))))
        return torch.as_tensor(self.head(seen.mean(dim=(2, 3))))


class Vgg(nn.Module):
    """A plain stack of 3x3 convolutions and poolings with a head of twice 4096 units and dropout.

    Reference: Simonyan and Zisserman 2015. The thesis's table 4.2 prints 2x2 convolutions; the weights that
    it starts from are of 3x3 ones, and so are these.
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
        return torch.as_tensor(self.classifier(self.pool(self.features(rows)).flatten(1)))


class SmallCnn(nn.Module):
    """Four convolutions and an average over time and pitch, beside the loudest: enough for a CPU."""

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
        seen = self.features(rows)
        return torch.as_tensor(self.head(torch.cat([seen.mean(dim=(2, 3)), seen.amax(dim=(2, 3))], dim=1)))


SOUND_NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": lambda n_labels: ResNet((2, 2, 2, 2), n_labels=n_labels),
    "resnet34": lambda n_labels: ResNet((3, 4, 6, 3), n_labels=n_labels),
    "small": lambda n_labels: SmallCnn(n_labels=n_labels),
    "vgg11": lambda n_labels: Vgg((1, 1, 2, 2, 2), n_labels=n_labels),
    "vgg19": lambda n_labels: Vgg((2, 2, 4, 4, 4), n_labels=n_labels),
}
# After so many halvings something must be left.
_SMALLEST = {"resnet18": 32, "resnet34": 32, "small": 16, "vgg11": 32, "vgg19": 32}


def make_network(name: str, *, shape: Shape, n_labels: int) -> nn.Module:
    """Return a new network for pictures of a shape, (1, frames, bins), with one output per label."""
    if name not in SOUND_NETWORKS:
        known = ", ".join(repr(one) for one in SOUND_NETWORKS)
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
    return SOUND_NETWORKS[name](int(n_labels))


def network_factory(name: str, *, shape: Shape, n_labels: int) -> Callable[[], nn.Module]:
    """Return a function without arguments that makes such networks, for torch teachers and students.

    >>> network_factory("small", shape=(1, 101, 64), n_labels=3)().eval()(torch.zeros(1, 1, 101, 64)).shape
    torch.Size([1, 3])
    """
    with torch.device("meta"):
        make_network(name, shape=shape, n_labels=n_labels)  # which refuses what does not fit, here and now
    return partial(make_network, name, shape=shape, n_labels=n_labels)


def _start(network: nn.Module) -> None:
    if any(weight.is_meta for weight in network.parameters()):
        return  # nothing is there to draw; and drawing it would load torch's compiler, which takes seconds
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


# --- Dropout with masks that depend on a key and a count ---
#
# Every `nn.Dropout` of a teacher is replaced by one whose masks are the same whether the teacher is trained
# alone or beside others, on a CPU or on a GPU.


class KeyedDropout(nn.Module):
    """Dropout whose masks are numbered: the same key and the same count give the same mask everywhere."""

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
        return f"p={self.p}"


def keep_mask(key: Tensor, count: Tensor, *, n: int, p: float) -> Tensor:
    """Return which of n entries are kept, for one key and count or for one of each per teacher."""
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
