"""Ensembles of torch teachers: trained together or one after another, or loaded, on classes or on labels.

A teacher's first weights, batches and dropout masks come from the seed and its number. With a folder every
finished unit of teachers is on disk before the next report of progress, and the next call goes on from there.
"""

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from ...errors import TeacherFailed, require_count
from ...nn.batched import NO_ANSWER, Batched, cast_ballots, cast_probabilities
from ...nn.classifier import TorchClassifier
from ...nn.devices import find_device
from ...nn.networks import Factory, Shape, build_network, check_network
from ...nn.weights import Tensors, n_stacked, read_about, state_arrays
from ...privacy._rows import label_table, numeric_rows
from ...privacy.sealed import Sealed
from ...privacy.votes import Votes
from .._assignment import Seed
from .._running import (
    Progress,
    check_options,
    check_partition,
    open_folder,
    refuse_other,
    say_failed,
    say_kept,
    seed_number,
    sweep_folder,
)
from .._training import random_states
from ..ballots import FallbackTeacher, Rule, fallback_teacher
from ..ensemble import LabelVoters, Thresholds, check_thresholds, declared_labels
from ..models import find_model
from ..partitions import Partition
from ._units import (
    SEEN,
    Unit,
    UnitOutcome,
    choose_engine,
    describe_unit,
    engine_name,
    give_up_unit,
    in_processes,
    read_troubles,
    train_unit,
    try_network,
    unit_states,
)

# Starting worker processes, each importing torch, takes about this long: less work is done in a loop.
_START_SECONDS = 6.0


class _Networks:
    """What ensembles of networks share: the networks of all teachers, stacked, and who of them failed why."""

    classifier: TorchClassifier
    states: Tensors
    shape: Shape
    _troubles: dict[int, str]

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who votes by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(dict(self._troubles))

    def _ask(self, cast: Callable[..., tuple[Any, Any]], X: NDArray[Any]) -> tuple[NDArray[Any], list[int]]:
        """Return what every teacher says to queries, and the numbers of those who do not answer."""
        seen, states = self.states[SEEN], {n: v for n, v in self.states.items() if n != SEEN}
        network = build_network(self.classifier.network, self.shape, n_classes=seen.shape[1], seed=0)
        queries, device = self.classifier.as_rows(X, self.shape), find_device(self.classifier.device)
        said, lost = cast(network, states, queries, seen=seen, device=device)
        silent: list[int] = np.flatnonzero(lost).tolist()
        for number in silent:
            self._troubles.setdefault(number, NO_ANSWER)
        return said, silent

    def __len__(self) -> int:
        return len(self.states[SEEN])


@dataclass(frozen=True, eq=False, repr=False)
class TorchEnsemble(_Networks):
    """Trained torch teachers that vote; everything they say is private until a mechanism releases it.

    `engine` says how they were trained.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the queries are public; the number of teachers, the network and the engine are not chosen by
               looking at the data.
    Reference: Papernot et al. 2017, section 2.1.

    >>> from tellers.data import digits
    >>> from tellers.teachers import partition
    >>> data, model = digits(), TorchClassifier("mlp", epochs=5, device="cpu")
    >>> ensemble = train_torch_ensemble(
    ...     model, data.X[:600], data.y[:600], partition(600, 3, seed=7), n_classes=10, seed=7, engine="loop"
    ... )
    >>> ensemble.vote(data.X[600:700])
    Votes(<private>, n_queries=100, n_teachers=3, n_classes=10)
    >>> ensemble.accuracies(data.X[600:], data.y[600:]), ensemble.troubles
    (Sealed(<private>), Sealed(<private>))
    >>> ensemble.teacher(0).predict(data.X[600:700]).shape
    (100,)
    """

    classifier: TorchClassifier
    states: Tensors
    shape: Shape
    n_classes: int
    engine: str
    _troubles: dict[int, str] = field(default_factory=dict)

    def vote(self, X: ArrayLike) -> Votes:
        """Return every teacher's ballot on every query; a teacher votes for classes it has seen.

        One that has seen none, or does not answer in finite numbers, votes by the rule (`fallback`).
        """
        queries = numeric_rows(X)
        ballots, silent = self._ask(cast_ballots, queries)
        rule = Rule(queries, self.n_classes)
        for number in silent:
            ballots[number] = rule.ballot(number)
        return Votes.from_ballots(ballots, n_classes=self.n_classes)

    @property
    def n_features(self) -> int:
        """Return how many numbers a row has."""
        return int(np.prod(self.shape))

    def accuracies(self, X: ArrayLike, y: ArrayLike) -> Sealed[NDArray[np.float64]]:
        """Return each teacher's share of right answers, sealed: it was learned from private rows."""
        queries = numeric_rows(X)
        labels = declared_labels(y, n_rows=len(queries), n_classes=self.n_classes)
        ballots = self.vote(queries).ballots
        assert ballots is not None  # vote makes its votes of ballots
        return Sealed(np.asarray((ballots == labels).mean(axis=1), dtype=np.float64))

    def teacher(self, number: int) -> TorchClassifier | FallbackTeacher:
        """Return one teacher as a classifier of its own; it is as private as its rows."""
        if not bool(self.states[SEEN][number].any()):
            return fallback_teacher(number, {"n_classes": self.n_classes}, self._troubles.get(number, ""))
        model = TorchClassifier(**{**self.classifier.get_params(), "n_classes": self.n_classes})
        model.shape_, model.classes_ = self.shape, np.arange(self.n_classes)
        model.state_ = state_arrays({n: v[number] for n, v in self.states.items() if n != SEEN})
        return model

    def __repr__(self) -> str:
        return f"TorchEnsemble(n_teachers={len(self)}, n_classes={self.n_classes}, engine={self.engine!r})"


def train_torch_ensemble(
    classifier: TorchClassifier,
    X: ArrayLike,
    y: ArrayLike,
    partition: Partition,
    *,
    n_classes: int,
    seed: Seed,
    folder: str | PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    engine: Literal["auto", "batched", "loop"] | Batched = "auto",
    on_mismatch: Literal["refuse", "retrain"] = "refuse",
    public: ArrayLike | None = None,
) -> TorchEnsemble:
    """Train one network on each part, all in one batched program or one after another.

    `engine="auto"` takes what is faster here, measured on made-up rows; "batched" or `Batched(...)` trains
    chunks of teachers at once, "loop" one at a time. On a CPU chunks, or teachers, go to `n_jobs` processes
    of one thread; by default where that saves time. With `folder`, finished teachers are kept and reused by
    the next call; those made of something else are refused, or trained anew with `on_mismatch="retrain"`.

    As in `train_ensemble`, the network is tried first, on `public` rows or made-up ones, and nothing in the
    rows stops the training: a teacher without rows, or whose loss is no finite number, votes by the rule.

    >>> from tellers.data import digits
    >>> from tellers.teachers import partition
    >>> data, parts = digits(), partition(1000, 5, seed=7)
    >>> network = TorchClassifier("mlp", epochs=5, device="cpu")
    >>> train_torch_ensemble(
    ...     network, data.X[:1000], data.y[:1000], parts, n_classes=10, seed=7, engine=Batched(chunk=5)
    ... )
    TorchEnsemble(n_teachers=5, n_classes=10, engine='batched, chunk=5, precision=tf32, convolution=auto')
    """
    require_count(2, n_classes=n_classes)
    rows = numeric_rows(X)
    labels = declared_labels(y, n_rows=len(rows), n_classes=int(n_classes))
    made = train_states(
        classifier, rows, labels, partition, n_outputs=int(n_classes), seed=seed, folder=folder,
        n_jobs=n_jobs, progress=progress, engine=engine, on_mismatch=on_mismatch,
        public=None if public is None else numeric_rows(public),
    )  # fmt: skip
    return TorchEnsemble(classifier, made.states, made.shape, int(n_classes), made.engine, made.troubles)


@dataclass(frozen=True, eq=False, repr=False)
class TrainedNetworks:
    """The states of all teachers, the shape of a row, which engine made them, and who failed why."""

    states: Tensors
    shape: Shape
    engine: str
    troubles: dict[int, str] = field(default_factory=dict)


def train_states(
    classifier: TorchClassifier,
    rows: NDArray[Any],
    targets: NDArray[Any],
    partition: Partition,
    *,
    n_outputs: int,
    seed: Seed,
    folder: str | PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    engine: Literal["auto", "batched", "loop"] | Batched = "auto",
    on_mismatch: Literal["refuse", "retrain"] = "refuse",
    public: NDArray[Any] | None = None,
) -> TrainedNetworks:
    """Train one network with so many outputs on each part.

    `targets` are classes, or rows x labels in floats.
    """
    if not isinstance(classifier, TorchClassifier):
        raise TypeError(f"Expected a TorchClassifier, got {type(classifier).__name__}. See train_ensemble.")
    check_options(n_jobs=n_jobs, on_mismatch=on_mismatch)
    if classifier.n_classes not in (None, n_outputs):
        raise ValueError(f"Expected n_classes={n_outputs} in the classifier, got {classifier.n_classes}.")
    classifier.recipe()
    device = find_device(classifier.device)
    check_partition(partition, n_rows=len(rows))
    shape = classifier.row_shape(rows.shape)
    network = build_network(classifier.network, shape, n_classes=n_outputs, seed=0)
    check_network(network, shape, n_classes=n_outputs)
    place = None if folder is None else open_folder(Path(folder))
    choice = choose_engine(
        engine, network, shape=shape, recipe=classifier.recipe(), n_classes=n_outputs, device=device,
        n_teachers=len(partition), folder=place,
    )  # fmt: skip
    if choice.why and engine == "auto":
        warnings.warn(f"Teachers are trained one after another: {choice.why}.", stacklevel=3)
    run = _UnitRun(
        classifier, network, rows, targets, partition, shape=shape, n_classes=n_outputs,
        seed=seed_number(seed), device=device, engine=choice.engine, folder=place,
    )  # fmt: skip
    _reuse(run, retrain=on_mismatch == "retrain")
    if run.n_finished < len(partition):
        made_for = {"n_classes" if targets.ndim == 1 else "n_labels": n_outputs}
        try_network(classifier, rows.shape[1:], made_for, public=public)
    try:
        _complete(run, n_jobs=n_jobs, progress=progress)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(say_kept(run.n_finished, len(partition), place))
        raise
    parts = [run.finished[numbers] for numbers in run.units]
    states = {name: torch.cat([part[name].to(device) for part in parts]) for name in parts[0]}
    return TrainedNetworks(states, shape, engine_name(run.engine), run.troubles)


@dataclass(frozen=True, eq=False, repr=False)
class _UnitRun:
    """What one call trains from, and the units it has so far."""

    classifier: TorchClassifier
    network: nn.Module
    X: NDArray[Any]
    y: NDArray[Any]
    partition: Partition
    shape: Shape
    n_classes: int
    seed: int
    device: torch.device
    engine: Batched | None
    folder: Path | None
    finished: dict[range, Tensors] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)

    @property
    def units(self) -> list[range]:
        n, size = len(self.partition), 1 if self.engine is None else self.engine.chunk or 1
        return [range(start, min(start + size, n)) for start in range(0, n, size)]

    @property
    def n_finished(self) -> int:
        return sum(len(numbers) for numbers in self.finished)

    def unit(self, numbers: range) -> Unit:
        parts = [self.partition[number] for number in numbers]
        rows = np.concatenate(parts)
        unit = Unit(
            numbers, self.classifier, self.X[rows], self.y[rows], sizes=[len(part) for part in parts],
            seeds=[random_states(self.seed, number, 1)[0] for number in numbers], shape=self.shape,
            n_classes=self.n_classes, engine=self.engine, folder=self.folder, n_teachers=len(self.partition),
        )  # fmt: skip
        if self.folder is not None:
            object.__setattr__(unit, "made_of", self.made_of(unit))
        return unit

    def made_of(self, unit: Unit) -> dict[str, Any]:
        return describe_unit(unit, self.network, device=self.device.type, seed=self.seed)

    def load(self, unit: Unit, content: bytes) -> Tensors:
        try:
            states = unit_states(
                content, self.network, n_outputs=self.n_classes, n_teachers=len(unit.numbers)
            )
        except ValueError as error:
            raise ValueError(f"{unit.file} in {self.folder}: {error}") from error
        self.troubles.update(read_troubles(content))
        return states


def _reuse(run: _UnitRun, *, retrain: bool) -> None:
    """Take the units that an earlier call finished, and leave alone whatever else lies in the folder."""
    if run.folder is None:
        return
    sweep_folder(run.folder)
    for numbers in run.units:
        unit = run.unit(numbers)
        found = find_model(run.folder, unit.file)
        if found is None:
            continue
        content, made_of = found
        wanted = run.made_of(unit)
        if made_of == wanted:
            run.finished[numbers] = run.load(unit, content)
        elif not retrain:
            refuse_other(run.folder, unit.file, wanted=wanted, made_of=made_of)


def _complete(run: _UnitRun, *, n_jobs: int | None, progress: Progress | None) -> None:
    """Train what is missing; who could not learn is marked, and votes by the rule."""
    if run.finished and progress is not None:
        progress(run.n_finished, len(run.partition))
    for outcome in _outcomes(run, n_jobs):
        if outcome.stop is not None:
            raise outcome.stop
        run.troubles.update(outcome.troubles)
        states = outcome.states
        if states is None:
            assert run.folder is not None  # a worker that returns nothing wrote its unit
            unit = run.unit(outcome.numbers)
            found = find_model(run.folder, unit.file)
            if found is None:
                said = say_failed(dict.fromkeys(outcome.numbers, "its file was damaged"))
                raise TeacherFailed(f"{said} {say_kept(run.n_finished, len(run.partition), run.folder)}")
            states = run.load(unit, found[0])
        run.finished[outcome.numbers] = states
        if progress is not None:
            progress(run.n_finished, len(run.partition))


def _outcomes(run: _UnitRun, n_jobs: int | None) -> Iterator[UnitOutcome]:
    """Train the pending units, here or in processes."""
    import joblib

    waiting = [numbers for numbers in run.units if numbers not in run.finished]
    n_workers = 1 if run.device.type != "cpu" else n_jobs or int(joblib.cpu_count())
    spent, n_done = 0.0, 0
    while waiting:
        expected = spent / max(n_done, 1) * len(waiting)
        if n_workers > 1 and len(waiting) > 1 and (n_jobs is not None or expected > _START_SECONDS):
            break
        start = time.perf_counter()
        yield train_unit(run.unit(waiting.pop(0)))
        spent, n_done = spent + time.perf_counter() - start, n_done + 1
    if not waiting:
        return
    units = [run.unit(numbers) for numbers in waiting]
    try:
        for outcome in in_processes(units, n_workers, parent=os.getpid()):
            waiting.remove(outcome.numbers)
            yield outcome
    except BrokenProcessPool:
        if run.engine is not None:
            # Networks that are trained together do not look at values: no rows end their process.
            said = say_kept(run.n_finished, len(run.partition), run.folder)
            raise TeacherFailed(f"A worker process died; try n_jobs=1. {said}") from None
        # Who ended the process is not said, so each of those left gets processes of its own.
        for numbers in waiting:
            unit = run.unit(numbers)
            try:
                yield from in_processes([unit], n_workers, parent=os.getpid())
            except BrokenProcessPool:
                yield give_up_unit(unit, "its process died")


# --- Loading: networks are read from their folder without the rows they were trained on ---

PATTERN = "teachers-*.safetensors"


def load_torch_ensemble(
    folder: str | PathLike[str],
    *,
    n_classes: int,
    n_teachers: int | None = None,
    network: Factory | None = None,
    device: str = "auto",
) -> TorchEnsemble:
    """Return the networks that `train_torch_ensemble` kept in a folder.

    The files say which network they hold the weights of; one that was made by a function needs that function
    again, as `network`. Units of an earlier run with other settings may lie beside those of a finished one;
    two finished runs are refused, and so is one that lacks a teacher.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the folder holds the teachers of one partition, all of them.
    Reference: Papernot et al. 2017, section 2.1.

    >>> import tempfile
    >>> from tellers.data import digits
    >>> from tellers.teachers import partition
    >>> from tellers.teachers.torch import train_torch_ensemble
    >>> data, model = digits(), TorchClassifier("mlp", epochs=5, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trained = train_torch_ensemble(
    ...         model, data.X[:600], data.y[:600], partition(600, 3, seed=7), n_classes=10, seed=7,
    ...         engine="loop", folder=folder,
    ...     )
    ...     load_torch_ensemble(folder, n_classes=10, device="cpu")
    TorchEnsemble(n_teachers=3, n_classes=10, engine='loop')
    """
    require_count(2, n_classes=n_classes)
    made_for = {"n_classes": int(n_classes), "n_teachers": n_teachers}
    classifier, made = load_networks(Path(folder), made_for, network=network, device=device)
    return TorchEnsemble(classifier, made.states, made.shape, int(n_classes), made.engine, made.troubles)


def load_networks(
    place: Path, made_for: Mapping[str, int | None], *, network: Factory | None, device: str
) -> tuple[TorchClassifier, TrainedNetworks]:
    """Return the networks of a folder.

    `made_for` says how many classes, or labels, and teachers, if known.
    """
    runs = {run: units for run, units in _runs(place).items() if _is_whole(json.loads(run), units)}
    if len(runs) != 1:
        found = "none that is" if not runs else f"those of {len(runs)} runs"
        raise ValueError(
            f"Expected the networks of one finished run ({PATTERN}) in {place}, got {found}. Let the run "
            "that trains them end first, in a folder of its own."
        )
    about = json.loads(next(iter(runs)))["about"]
    for name, wanted in made_for.items():
        if wanted not in (None, about.get(name)):
            there = ", ".join(
                f"{n}={about[n]}" for n in ("n_classes", "n_labels", "n_teachers") if n in about
            )
            got = about.get(name, there)
            raise ValueError(f"Expected networks with {name}={wanted} in {place}, got {got}.")
    n_outputs = int(about.get("n_classes", about.get("n_labels")))
    classifier = _classifier(about, network, device)
    shape = tuple(int(n) for n in about["shape"])
    like = build_network(classifier.network, shape, n_classes=n_outputs, seed=0)
    files = sorted(next(iter(runs.values())).items(), key=lambda unit: unit[0].start)
    units = [
        unit_states(content, like, n_outputs=n_outputs, n_teachers=len(numbers)) for numbers, content in files
    ]
    troubles = {number: why for _, content in files for number, why in read_troubles(content).items()}
    at = find_device(device)
    states = {name: torch.cat([unit[name].to(at) for unit in units]) for name in units[0]}
    return classifier, TrainedNetworks(states, shape, about["engine"], troubles)


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
                "with load_torch_ensemble(..., network=the function)."
            )
        parameters["network"] = network
    if parameters["image_shape"] is not None:
        parameters["image_shape"] = tuple(parameters["image_shape"])  # JSON has lists alone
    return TorchClassifier(**parameters)


# --- Teachers of many labels: one output per label ---


@dataclass(frozen=True, eq=False, repr=False)
class TorchLabelEnsemble(_Networks, LabelVoters):
    """Trained networks that vote on many labels; see `LabelEnsemble` for thresholds and resolution.

    Guarantee: one changed unit of the partition changes one row of ballots, on any of the labels.
    Assumes:   queries and thresholds are public; the number of teachers, the network and the engine are not
               chosen by looking at the data.
    Reference: Dullerud et al. 2022, section 3.

    >>> from tellers.teachers import partition
    >>> X = np.random.default_rng(7).normal(size=(90, 2))
    >>> model, parts = TorchClassifier("mlp", epochs=5, device="cpu"), partition(60, 3, seed=7)
    >>> ensemble = train_torch_label_ensemble(
    ...     model, X[:60], X[:60] > 0, parts, n_labels=2, seed=7, engine="loop"
    ... )
    >>> ensemble.vote(X[60:])
    Votes(<private>, n_queries=30, n_teachers=3, n_labels=2)
    >>> ensemble.probabilities(X[60:]), ensemble.accuracies(X[60:], X[60:] > 0), ensemble.troubles
    (Sealed(<private>), Sealed(<private>), Sealed(<private>))
    """

    classifier: TorchClassifier
    states: Tensors
    shape: Shape
    n_labels: int
    engine: str
    thresholds: Thresholds = 0.5
    resolution: int = 1
    _troubles: dict[int, str] = field(default_factory=dict)

    def _probabilities(self, X: ArrayLike) -> NDArray[np.float64]:
        return self._ask(cast_probabilities, numeric_rows(X))[0]

    def __repr__(self) -> str:
        about = f"n_teachers={len(self)}, n_labels={self.n_labels}, engine={self.engine!r}"
        return f"TorchLabelEnsemble({about})"


def train_torch_label_ensemble(
    classifier: TorchClassifier,
    X: ArrayLike,
    Y: ArrayLike,
    partition: Partition,
    *,
    n_labels: int,
    seed: Seed,
    thresholds: float | Sequence[float] = 0.5,
    resolution: int = 1,
    public: ArrayLike | None = None,
    **options: Any,
) -> TorchLabelEnsemble:
    """Train one network on each part of rows with many labels, Y rows x labels of 0 and 1.

    Rows are images, or features of a frozen network. `classifier` says which network, and how it is trained;
    the loss of a row is the mean over labels of the binary cross-entropy of its output. `options` are those
    of `train_torch_ensemble`: engine, folder, n_jobs, progress, on_mismatch.

    >>> from tellers.teachers import partition
    >>> X = np.random.default_rng(7).normal(size=(90, 2))
    >>> model, parts = TorchClassifier("mlp", epochs=5, device="cpu"), partition(90, 3, seed=7)
    >>> train_torch_label_ensemble(model, X, X > 0, parts, n_labels=2, seed=7, engine="loop")
    TorchLabelEnsemble(n_teachers=3, n_labels=2, engine='loop')
    """
    require_count(n_labels=n_labels, resolution=resolution)
    limits = check_thresholds(thresholds, n_labels=int(n_labels))
    rows = numeric_rows(X)
    targets = label_table(Y, n_rows=len(rows), n_labels=int(n_labels)).astype(np.float32)
    trained = train_states(
        classifier, rows, targets, partition, n_outputs=int(n_labels), seed=seed,
        public=None if public is None else numeric_rows(public), **options
    )  # fmt: skip
    return TorchLabelEnsemble(
        classifier, trained.states, trained.shape, int(n_labels), trained.engine, limits, int(resolution),
        trained.troubles,
    )  # fmt: skip


def load_torch_label_ensemble(
    folder: str | PathLike[str],
    *,
    n_labels: int,
    n_teachers: int | None = None,
    thresholds: float | Sequence[float] = 0.5,
    resolution: int = 1,
    network: Factory | None = None,
    device: str = "auto",
) -> TorchLabelEnsemble:
    """Return the networks that `train_torch_label_ensemble` kept in a folder; see `load_torch_ensemble`.

    >>> import tempfile
    >>> from tellers.teachers import partition
    >>> X = np.random.default_rng(7).normal(size=(90, 2))
    >>> model, parts = TorchClassifier("mlp", epochs=5, device="cpu"), partition(90, 3, seed=7)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trained = train_torch_label_ensemble(
    ...         model, X, X > 0, parts, n_labels=2, seed=7, engine="loop", folder=folder
    ...     )
    ...     load_torch_label_ensemble(folder, n_labels=2, device="cpu")
    TorchLabelEnsemble(n_teachers=3, n_labels=2, engine='loop')
    """
    require_count(n_labels=n_labels, resolution=resolution)
    limits = check_thresholds(thresholds, n_labels=int(n_labels))
    made_for = {"n_labels": int(n_labels), "n_teachers": n_teachers}
    classifier, trained = load_networks(Path(folder), made_for, network=network, device=device)
    return TorchLabelEnsemble(
        classifier, trained.states, trained.shape, int(n_labels), trained.engine, limits, int(resolution),
        trained.troubles,
    )  # fmt: skip
