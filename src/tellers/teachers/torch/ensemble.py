"""Ensembles of torch teachers: networks trained together or one after another, or loaded.

A teacher's first weights, batches and dropout masks come from the seed and its number. The batched engine
trains a chunk of teachers at a time, the loop one: a unit, which is trained, and kept on disk, as a whole or
not at all. Who shares a unit depends on their numbers alone, so resumed or not it is the same arithmetic.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...errors import MissingExtra, TeacherFailed
from ...nn.batched import NO_ANSWER, Batched, Stack, cast_votes, fold_layers
from ...nn.classifier import TorchClassifier
from ...nn.devices import find_device, limited_threads
from ...nn.loop import LOST
from ...nn.networks import Factory, Shape, build_network, check_network
from ...nn.teacher_training import TrainingSet, train_alone, train_together
from ...nn.weights import Tensors, dump_states, load_states, n_stacked, read_about, state_arrays
from ...privacy.sealed import unheard
from ...privacy.votes import SetOf
from .._training import (
    EndOfTraining,
    RowsOf,
    Task,
    check_partition,
    open_folder,
    random_states,
    say_unit,
    train_units,
    try_learning,
)
from ..ballots import NO_ROWS, Ballots, FallbackTeacher, fallback_teacher, made_for
from ..ensemble import VotingTeachers
from ..models import find_model, fingerprint
from ..options import TrainingOptions
from ..partitions import Partition

_TROUBLES = "troubles"
LOST_UNIT = "its loss was not a finite number"
SEEN = "classes seen"  # beside the weights; no name of a weight holds a blank


@dataclass(frozen=True, eq=False, repr=False)
class Networks:
    """The states of some teachers, stacked, and who could not learn, and so has seen no class, and why."""

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
        labels = ballots.space.kind == SetOf.kind
        said, lost = cast_votes(network, states, rows, seen=seen, device=device, labels=labels)
        rule, troubles = ballots.fallback(queries), {}
        for place in np.flatnonzero(lost).tolist():
            said[place] = rule(first + place)
            troubles[first + place] = self.troubles.get(first + place, NO_ANSWER)
        return said, troubles


@dataclass(frozen=True, eq=False, repr=False)
class NetworkTraining:
    """Networks, trained a chunk at a time or one by one; an `engine` of None is the loop."""

    classifier: TorchClassifier
    network: nn.Module
    shape: Shape
    ballots: Ballots
    seed: int
    n_teachers: int
    rows: RowsOf | None
    folder: Path | None = None
    where: str = ""
    engine: Batched | None = None
    timeout: float | None = None

    start_seconds: ClassVar[float] = 6.0  # each process imports torch

    @classmethod
    def of(cls, classifier: TorchClassifier, table: Shape, ballots: Ballots, **others: Any) -> Self:
        """Return the training of a classifier's networks on rows of a table of some shape, checked."""
        classifier.recipe()
        shape, n_outputs = classifier.row_shape(table), ballots.space.n_answers
        network = build_network(classifier.network, shape, n_classes=n_outputs, seed=0)
        check_network(network, shape, n_classes=n_outputs)
        return cls(classifier, network, shape, ballots, **others)

    @property
    def size(self) -> int:
        return 1 if self.engine is None else self.engine.chunk or 1

    @property
    def device(self) -> torch.device:
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
        return f"teachers-{numbers[0]:05d}-{numbers[-1]:05d}.safetensors"

    def learn(self, task: Task) -> "Networks":
        """Train some teachers.

        Teachers of one unit share nothing but the arithmetic: one that cannot learn takes a row of zeros
        along, so that the others compute what they would beside any other rows, and is marked as having seen
        nothing.
        """
        known, troubles = self._training_set(task)
        networks, device, first = self._networks(task.numbers), self.device, task.numbers[0]
        try:
            with limited_threads(device), unheard():
                if self.engine is not None:
                    learned = train_together(
                        networks, known, shape=self.shape, device=device, options=self.engine
                    )
                elif troubles:
                    return self._marked(task, None, troubles)
                else:
                    learned = train_alone(networks[0], known, device=device)
        except torch.OutOfMemoryError:
            what = "The device's memory is full. Take fewer teachers at a time: engine=Batched(chunk=...)."
            raise EndOfTraining(MemoryError(what)) from None
        except MissingExtra:
            raise
        except Exception as error:
            if self.engine is None:
                raise
            # Layers that are trained together do not look at values: no rows make them fail.
            failed = TeacherFailed(
                f"Expected networks that can be trained together, {say_unit(task.numbers)} could not be "
                f"({type(error).__name__}). Take engine='loop'."
            )
            raise EndOfTraining(failed) from None
        lost = dict.fromkeys((first + place for place in learned.lost), LOST_UNIT)
        return self._marked(task, learned.states, lost | troubles)

    def give_up(self, task: Task, trouble: str) -> "Networks":
        return self._marked(task, None, dict.fromkeys(task.numbers, trouble))

    def made_of(self, task: Task) -> dict[str, Any]:
        described = TorchClassifier(**{**self.classifier.get_params(), "device": self.device.type})
        X, y = (np.concatenate(table) for table in zip(*task.parts))
        # Who has which of the rows: the same rows may be dealt in another way.
        owners = np.repeat(task.numbers, [len(targets) for _, targets in task.parts])
        targets = np.stack([y, owners]) if y.ndim == 1 else np.column_stack([y.astype(np.float32), owners])
        versions = {"numpy": np.__version__, "torch": torch.__version__}
        shapes = {name: tuple(values.shape) for name, values in self.network.state_dict().items()}
        return {
            **fingerprint(described, X, targets, seed=self.seed, versions=versions),
            **made_for(self.ballots.space),
            # A function may make another network tomorrow under the same name.
            "network": hashlib.sha256(f"{self.network} {shapes}".encode()).hexdigest(),
            "engine": engine_name(self.engine),
        }

    def dump(self, numbers: range, made: "Networks") -> bytes:
        """Return a file of states, who of them could not learn, and what they are, whatever their rows."""
        parameters = self.classifier.get_params()
        # A function is not kept, and whoever loads them has devices of their own.
        named = parameters["network"] if isinstance(parameters["network"], str) else None
        about = {
            "parameters": parameters | {"network": named, "device": "auto"}, "shape": list(self.shape),
            **made_for(self.ballots.space), "n_teachers": self.n_teachers, "first": numbers[0],
            "engine": engine_name(self.engine),
        }  # fmt: skip
        if made.troubles:
            about[_TROUBLES] = made.troubles
        return dump_states(made.states, about=about)

    def load(self, numbers: range, content: bytes) -> "Networks":
        try:
            return read_networks(content, self.network, self.ballots, n_teachers=len(numbers))
        except ValueError as error:
            raise ValueError(f"{self.file(numbers)} in {self.where}: {error}") from error

    def ask(
        self, numbers: range, made: "Networks", queries: NDArray[Any]
    ) -> tuple[NDArray[Any], dict[int, str]]:
        here = Networks.joined([made], self.device)
        return here.ask(self.classifier, self.shape, self.ballots, queries, first=numbers[0])

    def troubles(self, numbers: range, made: "Networks") -> dict[int, str]:
        return made.troubles

    def _training_set(self, task: Task) -> tuple[TrainingSet, dict[int, str]]:
        """Return what is to be learned, with a row of zeros for who has none, or none that can be used."""
        rows, targets, troubles = [], [], {}
        for number, (X, y) in zip(task.numbers, task.parts):
            wanted = y if y.ndim == 1 else y.astype(np.float32)
            try:
                if not len(y):
                    raise ValueError(NO_ROWS)
                rows.append(self.classifier.as_rows(X, self.shape))
                targets.append(wanted)
            except ValueError as error:  # numbers that are too large for the network
                troubles[number] = NO_ROWS if not len(y) else type(error).__name__
                rows.append(np.zeros((1, *self.shape), dtype=np.float32))
                targets.append(np.zeros((1, *y.shape[1:]), dtype=wanted.dtype))
        seeds = [random_states(self.seed, number, 1)[0] for number in task.numbers]
        known = TrainingSet(
            np.concatenate(rows), np.concatenate(targets), [len(one) for one in rows], seeds,
            self.classifier.recipe(),
        )  # fmt: skip
        return known, troubles

    def _networks(self, numbers: range) -> list[nn.Module]:
        seeds, n_outputs = (random_states(self.seed, number, 1)[0] for number in numbers), self.n_outputs
        return [
            build_network(self.classifier.network, self.shape, n_classes=n_outputs, seed=seed)
            for seed in seeds
        ]

    def _marked(self, task: Task, states: Tensors | None, troubles: dict[int, str]) -> "Networks":
        """Return networks with the classes they have seen; who could not learn is as it began, and saw none.

        A teacher votes for the classes it has rows of. On labels it always votes.
        """
        seen = torch.ones((len(task.numbers), self.n_outputs), dtype=torch.bool)
        for place, (_, y) in enumerate(task.parts):
            if y.ndim == 1:
                seen[place] = torch.isin(torch.arange(self.n_outputs), torch.as_tensor(y))
        lost = [number - task.numbers[0] for number in troubles]
        seen[lost] = False
        if lost:
            begun = [network.state_dict() for network in self._networks(task.numbers)]
            fresh = {name: torch.stack([one[name].detach() for one in begun]) for name in begun[0]}
            states = fresh if states is None else states
            for name, values in states.items():
                values[lost] = fresh[name][lost].to(values)
        assert states is not None  # who has none is lost
        return Networks({**states, SEEN: seen.to(next(iter(states.values())).device)}, troubles)

    @property
    def n_outputs(self) -> int:
        """Return how many numbers a network makes of a row."""
        return self.ballots.space.n_answers


def read_networks(content: bytes, network: nn.Module, ballots: Ballots, *, n_teachers: int) -> Networks:
    """Return the networks of the file of a unit, refusing those of another network."""
    like = {**network.state_dict(), SEEN: torch.zeros(ballots.space.n_answers)}
    states = load_states(content, like=like, n_teachers=n_teachers)
    try:
        troubles = read_about(content).get(_TROUBLES, {})
    except ValueError:  # an earlier version's says nothing of itself
        troubles = {}
    return Networks(states, {int(number): str(why) for number, why in troubles.items()})


# --- Engines: the one asked for, the one that began in this folder, or the faster one ---

# How many teachers a program trains at once on a GPU; on a CPU, how many weights of theirs its caches take.
CHUNK = 250
_CACHED_WEIGHTS = 2**20
_STEPS = (1, 2, 8)  # of the runs that are timed
_TRIED = 5  # epochs, before private rows are touched


def engine_name(engine: Batched | None) -> str:
    return "loop" if engine is None else engine.name


def choose_engine(
    asked: Literal["auto", "batched", "loop"] | Batched, training: NetworkTraining
) -> Batched | None:
    """Return the engine for some networks; None is the loop."""
    if not isinstance(asked, Batched) and asked not in ("auto", "batched", "loop"):
        raise ValueError(f"Expected engine='auto', 'batched', 'loop' or Batched(...), got {asked!r}.")
    if asked == "loop":
        return None
    options = asked if isinstance(asked, Batched) else Batched()
    if options.chunk is None:
        options = replace(options, chunk=usual_chunk(training.network, training.device))
    if asked == "auto" and training.folder is not None:
        # Timings change from day to day; what was begun is finished the same way.
        begun = _begun(training.folder)
        if begun in ("loop", options.name):
            return None if begun == "loop" else options
    why = why_not_batched(training.network, training.shape)
    if why and asked != "auto":
        raise ValueError(
            f"Expected a network that can be batched, got one that cannot: {why}. Take engine='loop'."
        )
    if why:
        warnings.warn(f"Teachers are trained one after another: {why}.", stacklevel=4)
        return None
    if asked == "auto" and (training.n_teachers == 1 or not _batched_is_faster(training, options)):
        return None
    return options


def usual_chunk(network: nn.Module, device: torch.device) -> int:
    """Return how many teachers are trained at once where nobody says, by network and device."""
    if device.type != "cpu":
        return CHUNK
    n_weights = sum(weight.numel() for weight in network.parameters())
    return min(max(_CACHED_WEIGHTS // n_weights, 8), 32)


def why_not_batched(network: nn.Module, shape: Shape) -> str:
    """Return why a network cannot be batched, or nothing, from made-up rows and each network alone."""
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


def _batched_is_faster(training: NetworkTraining, options: Batched) -> bool:
    """Time a few steps of both, once per process and network."""
    if training.device.type == "cuda":
        return True  # a step of one small network leaves a GPU idle; benchmarks/teachers.py measures how much
    key = f"{training.network} {training.shape} {training.classifier.recipe()} {options}"
    if key not in _MEASURED:
        _MEASURED[key] = step_seconds(training, options) < step_seconds(training, None)
    return _MEASURED[key]


def step_seconds(training: NetworkTraining, options: Batched | None) -> float:
    """Return the seconds that one step of one teacher takes, measured on made-up rows."""
    n = 1 if options is None else options.chunk or 1
    usual, device = training.classifier.recipe(), training.device
    size = usual.batch_size
    generator = np.random.default_rng(7)
    X = generator.normal(size=(n * size, *training.shape)).astype(np.float32)
    y = generator.integers(training.n_outputs, size=n * size)
    # On a CPU other work may be going on: what counts is the time this process got.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times = []
    with limited_threads(device):
        for n_steps in _STEPS:
            recipe = replace(usual, epochs=n_steps)
            known = TrainingSet(X, y, [size] * n, list(range(n)), recipe)
            networks = [deepcopy(training.network) for _ in range(n)]
            start = clock()
            if options is None:
                train_alone(networks[0], known, device=device)
            else:
                train_together(networks, known, shape=training.shape, device=device, options=options)
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


@dataclass(frozen=True, eq=False, repr=False)
class TorchEnsemble(VotingTeachers):
    """Trained torch teachers that vote; everything they say is private until a mechanism releases it.

    `engine` says how they were trained. See `Ensemble`.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   queries and thresholds are public; the number of teachers, the network and the engine are not
               chosen by looking at the data.
    Reference: Papernot et al. 2017, section 2.1; Dullerud et al. 2022, section 3.

    >>> from tellers.data import digits
    >>> from tellers.teachers import partition, train_ensemble
    >>> data, model = digits(), TorchClassifier("mlp", epochs=5, device="cpu")
    >>> ensemble = train_ensemble(
    ...     model, data.X[:600], data.y[:600], partition(600, 3, seed=7), n_classes=10, seed=7, engine="loop"
    ... )
    >>> ensemble, ensemble.vote(data.X[600:700]).n_teachers
    (TorchEnsemble(n_teachers=3, n_classes=10, engine='loop'), 3)
    >>> ensemble.accuracies(data.X[600:], data.y[600:]), ensemble.troubles
    (Sealed(<private>), Sealed(<private>))
    >>> ensemble.teacher(0).predict(data.X[600:700]).shape
    (100,)
    """

    classifier: TorchClassifier
    networks: Networks
    shape: Shape
    ballots: Ballots
    engine: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "_troubles", dict(self.networks.troubles))

    @property
    def states(self) -> Tensors:
        """Return the weights of all teachers, stacked."""
        return self.networks.states

    @property
    def n_features(self) -> int:
        """Return how many numbers a row has."""
        return int(np.prod(self.shape))

    def teacher(self, number: int) -> TorchClassifier | FallbackTeacher:
        """Return one teacher as a classifier of its own; it is as private as its rows."""
        if not bool(self.states[SEEN][number].any()):
            return fallback_teacher(number, self.ballots, self._troubles.get(number, ""))
        model = TorchClassifier(**{**self.classifier.get_params(), "n_classes": self.n_classes})
        model.shape_, model.classes_ = self.shape, np.arange(self.n_classes)
        model.state_ = state_arrays({n: v[number] for n, v in self.states.items() if n != SEEN})
        return model

    def __len__(self) -> int:
        return len(self.states[SEEN])

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, engine={self.engine!r})"

    def _ask(self, queries: NDArray[Any]) -> tuple[NDArray[Any], dict[int, str]]:
        return self.networks.ask(self.classifier, self.shape, self.ballots, queries)


def train_networks(
    classifier: TorchClassifier,
    X: NDArray[Any],
    y: NDArray[Any],
    partition: Partition,
    *,
    ballots: Ballots,
    seed: int,
    options: TrainingOptions,
) -> TorchEnsemble:
    """Train one network on each part, all in one batched program or one after another; X and y are checked.

    A teacher without rows, or whose loss is no finite number, votes by the rule.
    """
    if not isinstance(classifier, TorchClassifier):
        raise TypeError(f"Expected a TorchClassifier, got {type(classifier).__name__}. See train_ensemble.")
    if options.timeout is not None:
        raise ValueError(
            "Expected no time limit for networks, which are trained together, got "
            f"{options.timeout:g} seconds. Leave it out."
        )
    if classifier.n_classes not in (None, ballots.space.n_answers):
        raise ValueError(
            f"Expected n_classes={ballots.space.n_answers} in the classifier, got {classifier.n_classes}."
        )
    check_partition(partition, n_rows=len(X))
    folder = open_folder(options.folder)
    backend = NetworkTraining.of(
        classifier, X.shape, ballots, seed=seed, n_teachers=len(partition), folder=folder, where=str(folder),
        rows=lambda number: (X[partition[number]], y[partition[number]]),
    )  # fmt: skip
    backend = replace(backend, engine=choose_engine(options.engine, backend))
    public: Any = options.public
    made = train_units(
        backend, len(partition), replace(options, retries=0),  # what fails in one fails the same way again
        try_out=lambda: try_network(classifier, X.shape[1:], ballots, public=public),
    )  # fmt: skip
    networks = Networks.joined(made, backend.device)
    return TorchEnsemble(classifier, networks, backend.shape, ballots, engine_name(backend.engine))


# --- Loading: networks are read from their folder without the rows they were trained on ---

PATTERN = "teachers-*.safetensors"


def load_networks(
    place: Path, ballots: Ballots, n_teachers: int | None, *, network: Factory | None, device: str
) -> TorchEnsemble:
    """Return the networks of a folder.

    Units of an earlier run with other settings may lie beside those of a finished one; two finished runs are
    refused, and so is one that lacks a teacher.
    """
    runs = {run: units for run, units in _runs(place).items() if _is_whole(json.loads(run), units)}
    if len(runs) != 1:
        found = "none that is" if not runs else f"those of {len(runs)} runs"
        raise ValueError(
            f"Expected the networks of one finished run ({PATTERN}) in {place}, got {found}. Let the run "
            "that trains them end first, in a folder of its own."
        )
    about = json.loads(next(iter(runs)))["about"]
    for name, wanted in {**made_for(ballots.space), "n_teachers": n_teachers}.items():
        if wanted not in (None, about.get(name)):
            there = ", ".join(
                f"{n}={about[n]}" for n in ("n_classes", "n_labels", "n_teachers") if n in about
            )
            got = about.get(name, there)
            raise ValueError(f"Expected networks with {name}={wanted} in {place}, got {got}.")
    classifier = _classifier(about, network, device)
    shape = tuple(int(n) for n in about["shape"])
    like = build_network(classifier.network, shape, n_classes=ballots.space.n_answers, seed=0)
    files = sorted(next(iter(runs.values())).items(), key=lambda unit: unit[0].start)
    units = [read_networks(content, like, ballots, n_teachers=len(numbers)) for numbers, content in files]
    networks = Networks.joined(units, find_device(device))
    return TorchEnsemble(classifier, networks, shape, ballots, about["engine"])


def _runs(place: Path) -> dict[str, dict[range, bytes]]:
    """Return the finished units of a folder by what is the same in all units of a run."""
    runs: dict[str, dict[range, bytes]] = {}
    for path in sorted(place.glob(PATTERN)):
        found = find_model(place, path.name)
        if found is None:  # never finished, or damaged: its run is not whole without it
            continue
        content, made_of = found
        about = read_about(content)
        first = about.pop("first")
        about.pop("troubles", None)
        same = {name: value for name, value in made_of.items() if name != "rows"}
        run = json.dumps({"about": about, "made_of": same}, sort_keys=True)
        runs.setdefault(run, {})[range(first, first + n_stacked(content, SEEN))] = content
    return runs


def _is_whole(run: Mapping[str, Any], units: Mapping[range, bytes]) -> bool:
    numbers = [number for unit in units for number in unit]
    return sorted(numbers) == list(range(run["about"]["n_teachers"]))


def _classifier(about: Mapping[str, Any], network: Factory | None, device: str) -> TorchClassifier:
    parameters = {**about["parameters"], "device": device}
    if parameters["network"] is None:
        if network is None:
            raise ValueError(
                "Expected a network by its name, got one that a function made: no file holds it. Load it "
                "with load_ensemble(..., network=the function)."
            )
        parameters["network"] = network
    if parameters["image_shape"] is not None:
        parameters["image_shape"] = tuple(parameters["image_shape"])  # JSON has lists alone
    return TorchClassifier(**parameters)


TorchLabelEnsemble = TorchEnsemble  # by the name of before
