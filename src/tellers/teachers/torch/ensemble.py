"""The ensemble of torch teachers: one network per part, trained together or one after another.

A teacher's first weights, batches and dropout masks come from the seed and its number. With a folder every
finished unit of teachers is on disk before the next report of progress, and the next call goes on from there.
"""

import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from ...devices import find_device
from ...errors import TeacherFailed, require_count
from ...rows import numeric_rows
from ...sealed import Sealed
from ...votes import Votes
from ..ensemble import declared_labels
from ..fallback import FallbackTeacher, Rule, fallback_teacher
from ..models import find_model
from ..partition import Partition, Seed
from ..running import (
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
from ..training import random_states
from .batched import Tensors
from .choice import choose_engine, try_network
from .classifier import TorchClassifier, check_network
from .engines import Batched
from .networks import Shape, build_network
from .units import (
    SEEN,
    Unit,
    UnitOutcome,
    describe_unit,
    give_up_unit,
    in_processes,
    load_states,
    read_troubles,
    train_unit,
)
from .voting import NO_ANSWER, cast_ballots

# Starting worker processes, each importing torch, takes about this long: less work is done in a loop.
_START_SECONDS = 6.0


@dataclass(frozen=True, eq=False, repr=False)
class TorchEnsemble:
    """Trained torch teachers that vote; everything they say is private until a mechanism releases it.

    `engine` says how they were trained.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the queries are public; the number of teachers, the network and the engine are not chosen by
               looking at the data.
    Reference: Papernot et al. 2017, section 2.1.

    >>> from tellers.datasets import digits
    >>> from tellers.teachers.partition import partition
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
        asked = numeric_rows(X)
        queries = self.classifier.as_rows(asked, self.shape)
        states = {name: values for name, values in self.states.items() if name != SEEN}
        device = find_device(self.classifier.device)
        ballots, lost = cast_ballots(self._network(), states, queries, seen=self.states[SEEN], device=device)
        rule = Rule(asked, self.n_classes)
        for number in np.flatnonzero(lost).tolist():
            ballots[number] = rule.ballot(number)
            self._troubles.setdefault(number, NO_ANSWER)
        return Votes.from_ballots(ballots, n_classes=self.n_classes)

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who voted by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(dict(self._troubles))

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
        model.state_ = {
            name: values[number].cpu().numpy() for name, values in self.states.items() if name != SEEN
        }
        return model

    def _network(self) -> nn.Module:
        return build_network(self.classifier.network, self.shape, n_classes=self.n_classes, seed=0)

    def __len__(self) -> int:
        return len(self.states[SEEN])

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

    >>> from tellers.datasets import digits
    >>> from tellers.teachers.partition import partition
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
    trained = train_states(
        classifier, rows, labels, partition, n_outputs=int(n_classes), seed=seed, folder=folder,
        n_jobs=n_jobs, progress=progress, engine=engine, on_mismatch=on_mismatch,
        public=None if public is None else numeric_rows(public),
    )  # fmt: skip
    return TorchEnsemble(
        classifier, trained.states, trained.shape, int(n_classes), trained.engine, trained.troubles
    )


@dataclass(frozen=True, eq=False, repr=False)
class Trained:
    """What came of training: states of all teachers, shape of a row, by which engine, and who failed why."""

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
) -> Trained:
    """Train one network with so many outputs on each part; `targets` are classes, or rows x labels in floats.

    >>> from tellers.teachers.partition import partition
    >>> X, parts = np.eye(8, dtype=np.float32), partition(8, 2, seed=7)
    >>> model = TorchClassifier("mlp", epochs=1, device="cpu")
    >>> train_states(model, X, np.arange(8) % 2, parts, n_outputs=2, seed=7, engine="loop").engine
    'loop'
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
    run = _Run(
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
    return Trained(states, shape, run.engine_name, run.troubles)


@dataclass(frozen=True, eq=False, repr=False)
class _Run:
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
    def engine_name(self) -> str:
        return "loop" if self.engine is None else self.engine.name

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
        like = {**self.network.state_dict(), SEEN: torch.zeros(self.n_classes)}
        try:
            states = load_states(content, like=like, n_teachers=len(unit.numbers))
        except ValueError as error:
            raise ValueError(f"{unit.file} in {self.folder}: {error}") from error
        self.troubles.update(read_troubles(content))
        return states


def _reuse(run: _Run, *, retrain: bool) -> None:
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


def _complete(run: _Run, *, n_jobs: int | None, progress: Progress | None) -> None:
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


def _outcomes(run: _Run, n_jobs: int | None) -> Iterator[UnitOutcome]:
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
