"""Ensembles of torch teachers: networks trained together or one after another, or loaded.

A teacher's first weights, batches and dropout masks come from the seed and its number. With a folder every
finished unit of teachers is on disk before the next report of progress, and the next call goes on from there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...nn.classifier import TorchClassifier
from ...nn.devices import find_device
from ...nn.networks import Factory, Shape, build_network
from ...nn.weights import Tensors, n_stacked, read_about, state_arrays
from .._training import check_partition, open_folder, train_units
from ..ballots import Ballots, FallbackTeacher, fallback_teacher, made_for
from ..ensemble import VotingTeachers
from ..models import find_model
from ..options import TrainingOptions
from ..partitions import Partition
from ._units import (
    SEEN,
    Networks,
    NetworkTraining,
    choose_engine,
    engine_name,
    read_networks,
    try_network,
)


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
