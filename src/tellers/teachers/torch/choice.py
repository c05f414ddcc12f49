"""Which engine trains a network: the one asked for, the one that began in this folder, or the faster one."""

import json
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...devices import find_device
from ..trial import try_learning
from .batched import Stack, fold_layers
from .batches import Recipe
from .classifier import LOST, TorchClassifier
from .descent import Lesson, train_alone, train_together
from .engines import Batched
from .networks import Shape, build_network
from .units import one_thread

# How many teachers a program trains at once on a GPU; on a CPU, how many weights of theirs its caches take.
CHUNK = 250
_CACHED_WEIGHTS = 2**20
_STEPS = (1, 2, 8)  # of the runs that are timed
_TRIED = 5  # epochs, before private rows are touched


@dataclass(frozen=True)
class Choice:
    """An engine (None is the loop), and why the network cannot be batched, if it cannot."""

    engine: Batched | None
    why: str = ""


def choose_engine(
    asked: Literal["auto", "batched", "loop"] | Batched,
    network: nn.Module,
    *,
    shape: Shape,
    recipe: Recipe,
    n_classes: int,
    device: torch.device,
    n_teachers: int,
    folder: Path | None = None,
) -> Choice:
    """Return the engine for a network.

    >>> choose_engine(
    ...     "batched", nn.Linear(2, 2), shape=(2,), recipe=Recipe(epochs=1, batch_size=2), n_classes=2,
    ...     device=torch.device("cpu"), n_teachers=50,
    ... ).engine.chunk
    32
    """
    if not isinstance(asked, Batched) and asked not in ("auto", "batched", "loop"):
        raise ValueError(f"Expected engine='auto', 'batched', 'loop' or Batched(...), got {asked!r}.")
    if asked == "loop":
        return Choice(None)
    options = asked if isinstance(asked, Batched) else Batched()
    if options.chunk is None:
        options = replace(options, chunk=usual_chunk(network, device))
    if asked == "auto" and folder is not None:
        # Timings change from day to day; what was begun is finished the same way.
        begun = _begun(folder)
        if begun in ("loop", options.name):
            return Choice(None if begun == "loop" else options)
    why = why_not_batched(network, shape)
    if why:
        if asked != "auto":
            raise ValueError(
                f"Expected a network that can be batched, got one that cannot: {why}. Take engine='loop'."
            )
        return Choice(None, why)
    if asked == "auto" and (n_teachers == 1 or not _batched_is_faster(
        network, shape=shape, recipe=recipe, n_classes=n_classes, device=device, options=options
    )):  # fmt: skip
        return Choice(None)
    return Choice(options)


def usual_chunk(network: nn.Module, device: torch.device) -> int:
    """Return how many teachers are trained at once where nobody says: by the network and the kind of device.

    >>> usual_chunk(nn.Linear(784, 128), torch.device("cpu"))
    10
    """
    if device.type != "cpu":
        return CHUNK
    n_weights = sum(weight.numel() for weight in network.parameters())
    return min(max(_CACHED_WEIGHTS // n_weights, 8), 32)


def why_not_batched(network: nn.Module, shape: Shape) -> str:
    """Return why a network cannot be batched, or nothing: tried on made-up rows, against each network alone.

    >>> why_not_batched(nn.Sequential(nn.Linear(2, 8), nn.Softmax(dim=1), nn.Linear(8, 2)), (2,))
    ''
    >>> why_not_batched(nn.Sequential(nn.Linear(2, 2), nn.RReLU()), (2,))
    'it draws random numbers of its own'
    """
    if not isinstance(fold_layers(network, shape), str):
        return ""
    tensors = [id(tensor) for tensor in network.state_dict(keep_vars=True).values()]
    if len(set(tensors)) < len(tensors):
        return "its layers share weights"  # which torch.func takes for some networks and spoils in others
    networks = [deepcopy(network).cpu().train() for _ in range(2)]
    rows = torch.from_numpy(np.random.default_rng(7).normal(size=(2, 8, *shape)).astype(np.float32))
    with torch.random.fork_rng(devices=[]):
        first, again = (deepcopy(networks[0])(rows[0]) for _ in range(2))
        if not torch.equal(first, again):
            return "it draws random numbers of its own"
        try:
            stack = Stack.of(networks, shape=shape)
            together = stack(rows, training=True)
            torch.autograd.grad(together.sum(), list(stack.weights.values()))
            alone = torch.stack([network(own) for network, own in zip(networks, rows)])
            kept = all(
                torch.allclose(stack.buffers[name][n].double(), values.double(), rtol=1e-3, atol=1e-4)
                for n, network in enumerate(networks)
                for name, values in network.named_buffers()
            )
        except Exception as error:
            return f"torch.func does not take it ({type(error).__name__})"
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4) or not kept:
        return "torch.func computes something else"
    return ""


_MEASURED: dict[str, bool] = {}


def _batched_is_faster(
    network: nn.Module,
    *,
    shape: Shape,
    recipe: Recipe,
    n_classes: int,
    device: torch.device,
    options: Batched,
) -> bool:
    """Time a few steps of both, once per process and network."""
    if device.type == "cuda":
        return True  # a step of one small network leaves a GPU idle; benchmarks/teachers.py measures how much
    key = f"{network} {shape} {recipe} {n_classes} {device} {options}"
    if key not in _MEASURED:
        batched, loop = (
            step_seconds(
                network, shape=shape, recipe=recipe, n_classes=n_classes, device=device, options=engine
            )
            for engine in (options, None)
        )  # fmt: skip
        _MEASURED[key] = batched < loop
    return _MEASURED[key]


def step_seconds(
    network: nn.Module,
    *,
    shape: Shape,
    recipe: Recipe,
    n_classes: int,
    device: torch.device,
    options: Batched | None,
) -> float:
    """Return the seconds that one step of one teacher takes, measured on made-up rows.

    >>> recipe, cpu = Recipe(epochs=1, batch_size=2), torch.device("cpu")
    >>> step_seconds(
    ...     nn.Linear(2, 2), shape=(2,), recipe=recipe, n_classes=2, device=cpu, options=None
    ... ) < 1
    True
    """
    n = 1 if options is None else options.chunk or 1
    size = recipe.batch_size
    generator = np.random.default_rng(7)
    X = generator.normal(size=(n * size, *shape)).astype(np.float32)
    y = generator.integers(n_classes, size=n * size)
    # On a CPU other work may be going on: what counts is the time this process got.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times = []
    with one_thread(device):
        for n_steps in _STEPS:
            lesson = Lesson(X, y, [size] * n, list(range(n)), replace(recipe, epochs=n_steps))
            networks = [deepcopy(network) for _ in range(n)]
            start = clock()
            if options is None:
                train_alone(networks[0], lesson, device=device)
            else:
                train_together(networks, lesson, shape=shape, device=device, options=options)
            times.append(clock() - start)
    # The difference leaves out what is done once, and the first run what is done once per process.
    return max(times[-1] - times[-2], 0.0) / (_STEPS[-1] - _STEPS[-2]) / n


def _begun(folder: Path) -> str | None:
    """Return the engine that made the teachers in a folder, if there are any."""
    for manifest in sorted(folder.glob("teachers-*.json")):
        try:
            name = json.loads(manifest.read_bytes())["made_of"]["engine"]
        except (ValueError, KeyError, TypeError):
            continue
        return str(name)
    return None


def try_network(
    classifier: TorchClassifier,
    shape: Shape,
    made_for: Mapping[str, int],
    *,
    public: NDArray[Any] | None = None,
) -> None:
    """Refuse a network that cannot learn stand-in rows in a few epochs; see `tellers.teachers.trial`.

    >>> try_network(TorchClassifier("mlp", device="cpu"), (4,), {"n_classes": 3})
    >>> try_network(TorchClassifier("mlp", learning_rate=1e30, device="cpu"), (4,), {"n_classes": 3})
    Traceback (most recent call last):
        ...
    ValueError: Expected a model that can learn 3 classes from rows of shape (4,), got TorchClassifier, ...
    """
    n_outputs, device = max(made_for.values()), find_device(classifier.device)

    def learn(rows: NDArray[Any], targets: NDArray[Any]) -> None:
        own = classifier.row_shape(rows.shape)
        network = build_network(classifier.network, own, n_classes=n_outputs, seed=1)
        wanted = targets if targets.ndim == 1 else targets.astype(np.float32)
        recipe = replace(classifier.recipe(), epochs=min(classifier.epochs, _TRIED))
        lesson = Lesson(classifier.as_rows(rows, own), wanted, [len(rows)], [1], recipe)
        with one_thread(device):
            if train_alone(network, lesson, device=device).lost:
                raise ValueError(LOST)

    try_learning(learn, shape, made_for, public=public, name=type(classifier).__name__)
