"""Units of work of torch teachers: those that are trained, and kept on disk, together; and by which engine.

The batched engine trains a chunk of teachers at a time, the loop one. Which teachers share a unit depends on
their numbers alone, and a unit is trained as a whole or not at all. So whether it was resumed or not, it is
the same arithmetic.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...errors import MissingExtra, TeacherFailed
from ...nn.batched import Batched, Stack, fold_layers
from ...nn.classifier import TorchClassifier
from ...nn.devices import find_device, limited_threads
from ...nn.loop import LOST
from ...nn.networks import Shape, build_network
from ...nn.teacher_training import Recipe, TrainingSet, train_alone, train_together
from ...nn.weights import Tensors, dump_states, load_states, read_about
from ...privacy.sealed import unheard
from .._training import end_with, try_learning
from ..ballots import NO_ROWS
from ..models import fingerprint, write_model

_TROUBLES = "troubles"
LOST_UNIT = "its loss was not a finite number"
SEEN = "classes seen"  # beside the weights; no name of a weight holds a blank


@dataclass(frozen=True, eq=False, repr=False)
class Unit:
    """All that some teachers are trained from; `parent` is the process that sent it to a worker, if any."""

    numbers: range
    classifier: TorchClassifier
    X: NDArray[Any]
    y: NDArray[Any]
    sizes: Sequence[int]
    seeds: Sequence[int]
    shape: Shape
    n_classes: int
    engine: Batched | None
    folder: Path | None = None
    made_of: dict[str, Any] | None = None
    n_teachers: int = 0
    parent: int | None = None

    @property
    def file(self) -> str:
        """Return the name of the file that keeps these teachers."""
        return f"teachers-{self.numbers[0]:05d}-{self.numbers[-1]:05d}.safetensors"

    @property
    def answers(self) -> str:
        """Return what the outputs of the network are counted as: classes, or labels where y has many."""
        return "n_classes" if self.y.ndim == 1 else "n_labels"

    @property
    def about(self) -> dict[str, Any]:
        """Return what has to be known to use these teachers again; none of it comes from their rows."""
        made = self.classifier.get_params()
        # A function is not kept, and whoever loads them has devices of their own.
        named = made["network"] if isinstance(made["network"], str) else None
        return {
            "parameters": made | {"network": named, "device": "auto"}, "shape": list(self.shape),
            self.answers: self.n_classes, "n_teachers": self.n_teachers, "first": self.numbers[0],
            "engine": engine_name(self.engine),
        }  # fmt: skip

    @property
    def recipe(self) -> Recipe:
        """Return how they are trained."""
        return self.classifier.recipe()


@dataclass(frozen=True, eq=False, repr=False)
class UnitOutcome:
    """The states (None where a worker put them on disk), or what ends the run.

    `troubles` says by number who could not learn, and why: such teachers have seen no class.
    """

    numbers: range
    states: Tensors | None = None
    troubles: dict[int, str] = field(default_factory=dict)
    stop: Exception | None = None


def describe_unit(unit: Unit, network: nn.Module, *, device: str, seed: int) -> dict[str, Any]:
    """Return what the manifest of some teachers says that they are made of."""
    described = TorchClassifier(**{**unit.classifier.get_params(), "device": device})
    # Who has which of the rows: the same rows may be dealt in another way.
    owners = np.repeat(unit.numbers, unit.sizes)
    versions = {"numpy": np.__version__, "torch": torch.__version__}
    shapes = {name: tuple(values.shape) for name, values in network.state_dict().items()}
    targets = np.stack([unit.y, owners]) if unit.y.ndim == 1 else np.column_stack([unit.y, owners])
    made = fingerprint(described, unit.X, targets, n_classes=unit.n_classes, seed=seed, versions=versions)
    made[unit.answers] = made.pop("n_classes")
    return {
        **made,
        # A function may make another network tomorrow under the same name.
        "network": hashlib.sha256(f"{network} {shapes}".encode()).hexdigest(),
        "engine": engine_name(unit.engine),
    }


def train_unit(unit: Unit) -> UnitOutcome:
    """Train some teachers and, where there is a folder, save them.

    Teachers of one unit share nothing but the arithmetic: one that cannot learn takes a row of zeros along,
    so that the others compute what they would beside any other rows, and is marked as having seen nothing.
    """
    if unit.parent is not None:
        end_with(unit.parent)
    try:
        states, troubles = _learn(unit)
    except torch.OutOfMemoryError:
        what = "The device's memory is full. Take fewer teachers at a time: engine=Batched(chunk=...)."
        return UnitOutcome(unit.numbers, stop=MemoryError(what))
    except (MissingExtra, TeacherFailed) as error:
        return UnitOutcome(unit.numbers, stop=error)
    return _kept(unit, states, troubles)


def give_up_unit(unit: Unit, trouble: str) -> UnitOutcome:
    """Let the one teacher of a unit that could not be trained vote by the rule, and remember it."""
    return _kept(unit, _fresh(unit), {unit.numbers[0]: trouble})


def _kept(unit: Unit, states: Tensors, troubles: dict[int, str]) -> UnitOutcome:
    seen = _seen(unit)
    lost = [number - unit.numbers[0] for number in troubles]
    seen[lost] = False
    if lost:
        fresh = _fresh(unit)
        for name, values in states.items():
            values[lost] = fresh[name][lost].to(values)
    states = {**states, SEEN: seen.to(next(iter(states.values())).device)}
    if unit.folder is not None:
        try:
            content = pack_states(unit, states, troubles)
            write_model(unit.folder, unit.file, content=content, made_of=unit.made_of or {})
        except OSError as error:
            why = (
                f"Expected room to write teachers {unit.numbers[0]} to {unit.numbers[-1]} in {unit.folder}, "
                f"got: {error.strerror or error}. Finished teachers are kept. Make room and call again with "
                "the same arguments."
            )
            return UnitOutcome(unit.numbers, stop=OSError(error.errno or 0, why))
        if unit.parent is not None:
            return UnitOutcome(unit.numbers, troubles=troubles)
    return UnitOutcome(unit.numbers, states, troubles)


def _learn(unit: Unit) -> tuple[Tensors, dict[int, str]]:
    """Return the states of the teachers, and who of them could not learn."""
    device, first = find_device(unit.classifier.device), unit.numbers[0]
    known, troubles = _training_set(unit)
    networks = _networks(unit)
    with limited_threads(device), unheard():
        if unit.engine is not None:
            try:
                learned = train_together(
                    networks, known, shape=unit.shape, device=device, options=unit.engine
                )
            except (torch.OutOfMemoryError, MissingExtra):
                raise
            except Exception as error:
                # Layers that are trained together do not look at values: no rows make them fail.
                raise TeacherFailed(
                    f"Expected networks that can be trained together, teachers {first} to "
                    f"{unit.numbers[-1]} could not be ({type(error).__name__}). Take engine='loop'."
                ) from None
        elif troubles:
            return _fresh(unit), troubles
        else:
            try:
                learned = train_alone(networks[0], known, device=device)
            except (torch.OutOfMemoryError, MissingExtra):
                raise
            except (Exception, SystemExit) as error:
                # What an error says may quote rows, so only its kind is passed on.
                return _fresh(unit), {first: type(error).__name__}
    return learned.states, dict.fromkeys((first + lost for lost in learned.lost), LOST_UNIT) | troubles


def _training_set(unit: Unit) -> tuple[TrainingSet, dict[int, str]]:
    """Return what is to be learned, with a row of zeros for who has none, or none that can be used."""
    rows, targets, troubles, start = [], [], {}, 0
    for number, size in zip(unit.numbers, unit.sizes):
        part = slice(start, start + size)
        start += size
        try:
            if not size:
                raise ValueError(NO_ROWS)
            rows.append(unit.classifier.as_rows(unit.X[part], unit.shape))
            targets.append(unit.y[part])
        except ValueError as error:  # numbers that are too large for the network
            troubles[number] = NO_ROWS if not size else type(error).__name__
            rows.append(np.zeros((1, *unit.shape), dtype=np.float32))
            targets.append(np.zeros((1, *unit.y.shape[1:]), dtype=unit.y.dtype))
    sizes = [len(one) for one in rows]
    X, y = np.concatenate(rows), np.concatenate(targets)
    return TrainingSet(X, y, sizes, unit.seeds, unit.recipe), troubles


def _networks(unit: Unit) -> list[nn.Module]:
    return [
        build_network(unit.classifier.network, unit.shape, n_classes=unit.n_classes, seed=seed)
        for seed in unit.seeds
    ]


def _fresh(unit: Unit) -> Tensors:
    """Return the states of networks that learned nothing, stacked."""
    states = [network.state_dict() for network in _networks(unit)]
    return {name: torch.stack([one[name].detach() for one in states]) for name in states[0]}


def _seen(unit: Unit) -> torch.Tensor:
    """Return which classes each teacher has rows of: it votes for those. On labels it always votes."""
    if unit.y.ndim > 1:
        return torch.ones((len(unit.sizes), unit.n_classes), dtype=torch.bool)
    owners = np.repeat(np.arange(len(unit.sizes)), unit.sizes)
    seen = np.zeros((len(unit.sizes), unit.n_classes), dtype=np.bool_)
    seen[owners, unit.y] = True
    return torch.from_numpy(seen)


def pack_states(unit: Unit, states: Tensors, troubles: dict[int, str]) -> bytes:
    """Return the bytes of the file of a unit: states, what they are, and who of them could not learn."""
    return dump_states(states, about=unit.about | ({_TROUBLES: troubles} if troubles else {}))


def unit_states(content: bytes, network: nn.Module, *, n_outputs: int, n_teachers: int) -> Tensors:
    """Return the states of the file of a unit, refusing those of another network."""
    like = {**network.state_dict(), SEEN: torch.zeros(n_outputs)}
    return load_states(content, like=like, n_teachers=n_teachers)


def read_troubles(content: bytes) -> dict[int, str]:
    """Return who of the teachers of a file could not learn, and why; of an earlier version's, nobody."""
    try:
        return {int(number): str(why) for number, why in read_about(content).get(_TROUBLES, {}).items()}
    except ValueError:
        return {}


def in_processes(units: Sequence[Unit], n_workers: int, *, parent: int) -> Iterator[UnitOutcome]:
    """Train units in worker processes, one thread each, and yield what comes of them as it comes."""
    import joblib

    tasks = (joblib.delayed(train_unit)(replace(unit, parent=parent)) for unit in units)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        yield from joblib.Parallel(
            n_jobs=max(2, n_workers), return_as="generator_unordered", batch_size=1, max_nbytes=None
        )(tasks)


# --- Engines: the one asked for, the one that began in this folder, or the faster one ---

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


def engine_name(engine: Batched | None) -> str:
    """Return the name of an engine, as manifests say it."""
    return "loop" if engine is None else engine.name


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
    """Return the engine for a network."""
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
    """Return how many teachers are trained at once where nobody says.

    By the network and the kind of device.
    """
    if device.type != "cpu":
        return CHUNK
    n_weights = sum(weight.numel() for weight in network.parameters())
    return min(max(_CACHED_WEIGHTS // n_weights, 8), 32)


def why_not_batched(network: nn.Module, shape: Shape) -> str:
    """Return why a network cannot be batched, or nothing.

    Tried on made-up rows, against each network alone.
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
    """Return the seconds that one step of one teacher takes, measured on made-up rows."""
    n = 1 if options is None else options.chunk or 1
    size = recipe.batch_size
    generator = np.random.default_rng(7)
    X = generator.normal(size=(n * size, *shape)).astype(np.float32)
    y = generator.integers(n_classes, size=n * size)
    # On a CPU other work may be going on: what counts is the time this process got.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times = []
    with limited_threads(device):
        for n_steps in _STEPS:
            known = TrainingSet(X, y, [size] * n, list(range(n)), replace(recipe, epochs=n_steps))
            networks = [deepcopy(network) for _ in range(n)]
            start = clock()
            if options is None:
                train_alone(networks[0], known, device=device)
            else:
                train_together(networks, known, shape=shape, device=device, options=options)
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
    """Refuse a network that cannot learn stand-in rows in a few epochs; see `tellers.teachers._training`."""
    n_outputs, device = max(made_for.values()), find_device(classifier.device)

    def learn(rows: NDArray[Any], targets: NDArray[Any]) -> None:
        own = classifier.row_shape(rows.shape)
        network = build_network(classifier.network, own, n_classes=n_outputs, seed=1)
        wanted = targets if targets.ndim == 1 else targets.astype(np.float32)
        recipe = replace(classifier.recipe(), epochs=min(classifier.epochs, _TRIED))
        known = TrainingSet(classifier.as_rows(rows, own), wanted, [len(rows)], [1], recipe)
        with limited_threads(device):
            if train_alone(network, known, device=device).lost:
                raise ValueError(LOST)

    try_learning(learn, shape, made_for, public=public, name=type(classifier).__name__)
