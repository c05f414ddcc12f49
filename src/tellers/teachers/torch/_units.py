"""Units of work of torch teachers: those that are trained, and kept on disk, together; and by which engine.

The batched engine trains a chunk of teachers at a time, the loop one. Which teachers share a unit depends on
their numbers alone, and a unit is trained as a whole or not at all. So whether it was resumed or not, it is
the same arithmetic.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...errors import MissingExtra, TeacherFailed
from ...nn.batched import NO_ANSWER, Batched, Stack, cast_ballots, cast_probabilities, fold_layers
from ...nn.classifier import TorchClassifier
from ...nn.devices import find_device, limited_threads
from ...nn.loop import LOST
from ...nn.networks import Shape, build_network, check_network
from ...nn.teacher_training import Recipe, TrainingSet, train_alone, train_together
from ...nn.weights import Tensors, dump_states, load_states, read_about
from ...privacy.sealed import unheard
from ...privacy.votes import SetOf
from .._running import RowsOf
from .._training import TeacherOutcome, end_with, random_states, try_learning
from ..ballots import NO_ROWS, Ballots, made_for
from ..models import fingerprint, write_model

_TROUBLES = "troubles"
LOST_UNIT = "its loss was not a finite number"
SEEN = "classes seen"  # beside the weights; no name of a weight holds a blank


def unit_file(numbers: range) -> str:
    """Return the name of the file that keeps some teachers."""
    return f"teachers-{numbers[0]:05d}-{numbers[-1]:05d}.safetensors"


@dataclass(frozen=True, eq=False, repr=False)
class NetworkUnit:
    """All that some teachers are trained from; `parent` is the process that sent it to a worker, if any."""

    numbers: range
    classifier: TorchClassifier
    X: NDArray[Any]
    y: NDArray[Any]
    sizes: Sequence[int]
    seeds: Sequence[int]
    shape: Shape
    ballots: Ballots
    engine: Batched | None
    folder: Path | None = None
    made_of: dict[str, Any] | None = None
    n_teachers: int = 0
    parent: int | None = None

    @property
    def file(self) -> str:
        """Return the name of the file that keeps these teachers."""
        return unit_file(self.numbers)

    @property
    def about(self) -> dict[str, Any]:
        """Return what has to be known to use these teachers again; none of it comes from their rows."""
        made = self.classifier.get_params()
        # A function is not kept, and whoever loads them has devices of their own.
        named = made["network"] if isinstance(made["network"], str) else None
        return {
            "parameters": made | {"network": named, "device": "auto"}, "shape": list(self.shape),
            **made_for(self.ballots.space), "n_teachers": self.n_teachers, "first": self.numbers[0],
            "engine": engine_name(self.engine),
        }  # fmt: skip

    @property
    def recipe(self) -> Recipe:
        """Return how they are trained."""
        return self.classifier.recipe()


@dataclass(frozen=True, eq=False, repr=False)
class Networks:
    """The states of some teachers, stacked, and by number who of them could not learn, and why.

    Such teachers have seen no class.
    """

    states: Tensors
    troubles: dict[int, str] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: "Sequence[Networks]", device: torch.device) -> "Networks":
        """Return networks of several units as one, on a device."""
        names = parts[0].states
        states = {name: torch.cat([part.states[name].to(device) for part in parts]) for name in names}
        return cls(states, {number: why for part in parts for number, why in part.troubles.items()})

    def ask(
        self,
        classifier: TorchClassifier,
        shape: Shape,
        ballots: Ballots,
        queries: NDArray[Any],
        *,
        first: int = 0,
    ) -> tuple[NDArray[Any], dict[int, str]]:
        """Return what every teacher says to queries, and who of them answers by the rule and why.

        A teacher votes for classes it has seen. One that has seen none, or does not answer in finite numbers,
        votes by the rule. Numbers count from the `first`.
        """
        seen, states = self.states[SEEN], {n: v for n, v in self.states.items() if n != SEEN}
        network = build_network(classifier.network, shape, n_classes=ballots.space.n_answers, seed=0)
        rows, device = classifier.as_rows(queries, shape), find_device(classifier.device)
        cast: Any = cast_probabilities if ballots.space.kind == SetOf.kind else cast_ballots
        said, lost = cast(network, states, rows, seen=seen, device=device)
        rule, troubles = ballots.fallback(queries), {}
        for place in np.flatnonzero(lost).tolist():
            said[place] = rule(first + place)
            troubles[first + place] = self.troubles.get(first + place, NO_ANSWER)
        return said, troubles


def train_unit(unit: NetworkUnit) -> TeacherOutcome:
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
        return TeacherOutcome(unit.numbers, stop=MemoryError(what))
    except (MissingExtra, TeacherFailed) as error:
        return TeacherOutcome(unit.numbers, stop=error)
    return _kept(unit, states, troubles)


def give_up_unit(unit: NetworkUnit, trouble: str) -> TeacherOutcome:
    """Let the one teacher of a unit that could not be trained vote by the rule, and remember it."""
    return _kept(unit, _fresh(unit), {unit.numbers[0]: trouble})


def _kept(unit: NetworkUnit, states: Tensors, troubles: dict[int, str]) -> TeacherOutcome:
    seen = _seen(unit)
    lost = [number - unit.numbers[0] for number in troubles]
    seen[lost] = False
    if lost:
        fresh = _fresh(unit)
        for name, values in states.items():
            values[lost] = fresh[name][lost].to(values)
    states = {**states, SEEN: seen.to(next(iter(states.values())).device)}
    made = Networks(states, troubles)
    if unit.folder is None:
        return TeacherOutcome(unit.numbers, made)
    try:
        write_model(unit.folder, unit.file, content=pack_networks(unit, made), made_of=unit.made_of or {})
    except OSError as error:
        why = (
            f"Expected room to write teachers {unit.numbers[0]} to {unit.numbers[-1]} in {unit.folder}, "
            f"got: {error.strerror or error}. Finished teachers are kept. Make room and call again with "
            "the same arguments."
        )
        return TeacherOutcome(unit.numbers, stop=OSError(error.errno or 0, why))
    return TeacherOutcome(unit.numbers)


def _learn(unit: NetworkUnit) -> tuple[Tensors, dict[int, str]]:
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


def _training_set(unit: NetworkUnit) -> tuple[TrainingSet, dict[int, str]]:
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


def _networks(unit: NetworkUnit) -> list[nn.Module]:
    return [
        build_network(unit.classifier.network, unit.shape, n_classes=unit.ballots.space.n_answers, seed=seed)
        for seed in unit.seeds
    ]


def _fresh(unit: NetworkUnit) -> Tensors:
    """Return the states of networks that learned nothing, stacked."""
    states = [network.state_dict() for network in _networks(unit)]
    return {name: torch.stack([one[name].detach() for one in states]) for name in states[0]}


def _seen(unit: NetworkUnit) -> torch.Tensor:
    """Return which classes each teacher has rows of: it votes for those. On labels it always votes."""
    shape = len(unit.sizes), unit.ballots.space.n_answers
    if unit.y.ndim > 1:
        return torch.ones(shape, dtype=torch.bool)
    owners, seen = np.repeat(np.arange(len(unit.sizes)), unit.sizes), np.zeros(shape, dtype=np.bool_)
    seen[owners, unit.y] = True
    return torch.from_numpy(seen)


def pack_networks(unit: NetworkUnit, made: Networks) -> bytes:
    """Return the bytes of the file of a unit: states, what they are, and who of them could not learn."""
    troubles = {_TROUBLES: made.troubles} if made.troubles else {}
    return dump_states(made.states, about=unit.about | troubles)


def read_networks(content: bytes, network: nn.Module, ballots: Ballots, *, n_teachers: int) -> Networks:
    """Return the networks of the file of a unit, refusing those of another network."""
    like = {**network.state_dict(), SEEN: torch.zeros(ballots.space.n_answers)}
    states = load_states(content, like=like, n_teachers=n_teachers)
    try:
        troubles = read_about(content).get(_TROUBLES, {})
    except ValueError:  # an earlier version's says nothing of itself
        troubles = {}
    return Networks(states, {int(number): str(why) for number, why in troubles.items()})


@dataclass(frozen=True, eq=False, repr=False)
class NetworkTraining:
    """Networks, trained a chunk at a time or one by one; see `Backend`."""

    classifier: TorchClassifier
    network: nn.Module
    rows: RowsOf
    ballots: Ballots
    seed: int
    shape: Shape
    engine: Batched | None
    n_teachers: int
    folder: Path | None = None

    start_seconds: ClassVar[float] = 6.0  # each process imports torch
    train: ClassVar[Any] = staticmethod(train_unit)
    give_up: ClassVar[Any] = staticmethod(give_up_unit)

    @property
    def size(self) -> int:
        """Return how many teachers are trained, and kept, together."""
        return 1 if self.engine is None else self.engine.chunk or 1

    @property
    def device(self) -> torch.device:
        """Return where they are trained."""
        return find_device(self.classifier.device)

    @property
    def uses_processes(self) -> bool:
        """Say whether worker processes help: a GPU is shared badly."""
        return self.device.type == "cpu"

    @property
    def is_risky(self) -> bool:
        """Say whether rows may end a process: those trained together do not look at values."""
        return self.engine is None

    def file(self, numbers: range) -> str:
        """Return the name of the file that keeps these teachers."""
        return unit_file(numbers)

    def task(self, numbers: range, *, parent: int | None = None) -> NetworkUnit:
        """Return all that some teachers are trained from."""
        unit = self._unit(numbers)
        return replace(unit, parent=parent, made_of=None if self.folder is None else self._made_of(unit))

    def describe(self, numbers: range) -> dict[str, Any]:
        """Return what the manifest of some teachers says that they are made of."""
        return self._made_of(self._unit(numbers))

    def dump(self, task: NetworkUnit, made: Networks) -> bytes:
        """Return the file that keeps some teachers."""
        return pack_networks(task, made)

    def load(self, numbers: range, content: bytes) -> Networks:
        """Return the networks of a file, refusing those of another network."""
        try:
            return read_networks(content, self.network, self.ballots, n_teachers=len(numbers))
        except ValueError as error:
            raise ValueError(f"{self.file(numbers)} in {self.folder}: {error}") from error

    def ask(
        self, numbers: range, made: Networks, queries: NDArray[Any]
    ) -> tuple[NDArray[Any], dict[int, str]]:
        """Return what some teachers say to queries, and who of them answers by the rule and why."""
        here = Networks.joined([made], self.device)
        return here.ask(self.classifier, self.shape, self.ballots, queries, first=numbers[0])

    def troubles(self, numbers: range, made: Networks) -> dict[int, str]:
        """Return who could not learn, and why."""
        return made.troubles

    def _unit(self, numbers: range) -> NetworkUnit:
        tables = [self.rows(number) for number in numbers]
        targets = np.concatenate([y for _, y in tables])
        return NetworkUnit(
            numbers, self.classifier, np.concatenate([X for X, _ in tables]),
            targets if targets.ndim == 1 else targets.astype(np.float32), sizes=[len(y) for _, y in tables],
            seeds=[random_states(self.seed, number, 1)[0] for number in numbers], shape=self.shape,
            ballots=self.ballots, engine=self.engine, folder=self.folder, n_teachers=self.n_teachers,
        )  # fmt: skip

    def _made_of(self, unit: NetworkUnit) -> dict[str, Any]:
        described = TorchClassifier(**{**unit.classifier.get_params(), "device": self.device.type})
        # Who has which of the rows: the same rows may be dealt in another way.
        owners = np.repeat(unit.numbers, unit.sizes)
        versions = {"numpy": np.__version__, "torch": torch.__version__}
        shapes = {name: tuple(values.shape) for name, values in self.network.state_dict().items()}
        targets = np.stack([unit.y, owners]) if unit.y.ndim == 1 else np.column_stack([unit.y, owners])
        made = fingerprint(described, unit.X, targets, n_classes=2, seed=self.seed, versions=versions)
        del made["n_classes"]
        return {
            **made,
            **made_for(self.ballots.space),
            # A function may make another network tomorrow under the same name.
            "network": hashlib.sha256(f"{self.network} {shapes}".encode()).hexdigest(),
            "engine": engine_name(self.engine),
        }


# --- Engines: the one asked for, the one that began in this folder, or the faster one ---

# How many teachers a program trains at once on a GPU; on a CPU, how many weights of theirs its caches take.
CHUNK = 250
_CACHED_WEIGHTS = 2**20
_STEPS = (1, 2, 8)  # of the runs that are timed
_TRIED = 5  # epochs, before private rows are touched


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """A network that is to be trained many times, and where."""

    network: nn.Module
    shape: Shape
    recipe: Recipe
    n_outputs: int
    device: torch.device

    @classmethod
    def of(cls, classifier: TorchClassifier, table: Shape, ballots: Ballots) -> "Candidate":
        """Return the network of a classifier for the rows of a table of some shape, checked."""
        recipe, shape = classifier.recipe(), classifier.row_shape(table)
        network = build_network(classifier.network, shape, n_classes=ballots.space.n_answers, seed=0)
        check_network(network, shape, n_classes=ballots.space.n_answers)
        return cls(network, shape, recipe, ballots.space.n_answers, find_device(classifier.device))


def engine_name(engine: Batched | None) -> str:
    """Return the name of an engine, as manifests say it."""
    return "loop" if engine is None else engine.name


def choose_engine(
    asked: Literal["auto", "batched", "loop"] | Batched,
    candidate: Candidate,
    *,
    n_teachers: int,
    folder: Path | None = None,
) -> Batched | None:
    """Return the engine for a network; None is the loop."""
    if not isinstance(asked, Batched) and asked not in ("auto", "batched", "loop"):
        raise ValueError(f"Expected engine='auto', 'batched', 'loop' or Batched(...), got {asked!r}.")
    if asked == "loop":
        return None
    options = asked if isinstance(asked, Batched) else Batched()
    if options.chunk is None:
        options = replace(options, chunk=usual_chunk(candidate.network, candidate.device))
    if asked == "auto" and folder is not None:
        # Timings change from day to day; what was begun is finished the same way.
        begun = _begun(folder)
        if begun in ("loop", options.name):
            return None if begun == "loop" else options
    why = why_not_batched(candidate.network, candidate.shape)
    if why and asked != "auto":
        raise ValueError(
            f"Expected a network that can be batched, got one that cannot: {why}. Take engine='loop'."
        )
    if why:
        warnings.warn(f"Teachers are trained one after another: {why}.", stacklevel=4)
        return None
    if asked == "auto" and (n_teachers == 1 or not _batched_is_faster(candidate, options)):
        return None
    return options


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


def _batched_is_faster(candidate: Candidate, options: Batched) -> bool:
    """Time a few steps of both, once per process and network."""
    if candidate.device.type == "cuda":
        return True  # a step of one small network leaves a GPU idle; benchmarks/teachers.py measures how much
    key = " ".join(str(getattr(candidate, one.name)) for one in fields(candidate)) + f" {options}"
    if key not in _MEASURED:
        _MEASURED[key] = step_seconds(candidate, options) < step_seconds(candidate, None)
    return _MEASURED[key]


def step_seconds(candidate: Candidate, options: Batched | None) -> float:
    """Return the seconds that one step of one teacher takes, measured on made-up rows."""
    n = 1 if options is None else options.chunk or 1
    size, device = candidate.recipe.batch_size, candidate.device
    generator = np.random.default_rng(7)
    X = generator.normal(size=(n * size, *candidate.shape)).astype(np.float32)
    y = generator.integers(candidate.n_outputs, size=n * size)
    # On a CPU other work may be going on: what counts is the time this process got.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times = []
    with limited_threads(device):
        for n_steps in _STEPS:
            recipe = replace(candidate.recipe, epochs=n_steps)
            known = TrainingSet(X, y, [size] * n, list(range(n)), recipe)
            networks = [deepcopy(candidate.network) for _ in range(n)]
            start = clock()
            if options is None:
                train_alone(networks[0], known, device=device)
            else:
                train_together(networks, known, shape=candidate.shape, device=device, options=options)
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
    classifier: TorchClassifier, shape: Shape, ballots: Ballots, *, public: NDArray[Any] | None = None
) -> None:
    """Refuse a network that cannot learn stand-in rows in a few epochs; see `tellers.teachers._training`."""
    device = find_device(classifier.device)

    def learn(rows: NDArray[Any], targets: NDArray[Any]) -> None:
        own = classifier.row_shape(rows.shape)
        network = build_network(classifier.network, own, n_classes=ballots.space.n_answers, seed=1)
        wanted = targets if targets.ndim == 1 else targets.astype(np.float32)
        recipe = replace(classifier.recipe(), epochs=min(classifier.epochs, _TRIED))
        known = TrainingSet(classifier.as_rows(rows, own), wanted, [len(rows)], [1], recipe)
        with limited_threads(device):
            if train_alone(network, known, device=device).lost:
                raise ValueError(LOST)

    try_learning(learn, shape, ballots, public=public, name=type(classifier).__name__)
