"""Torch teachers of many labels: one output per label, trained with the cross-entropy of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...devices import find_device
from ...errors import require_count
from ...label_models import label_table
from ...rows import numeric_rows
from ...sealed import Sealed
from ..label_ensemble import LabelVoters, Thresholds, check_thresholds
from ..partition import Partition, Seed
from .batched import Tensors
from .classifier import TorchClassifier
from .ensemble import train_states
from .loading import load_networks
from .networks import Factory, Shape, build_network
from .units import SEEN
from .voting import NO_ANSWER, cast_probabilities

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class TorchLabelEnsemble(LabelVoters):
    """Trained networks that vote on many labels; see `LabelEnsemble` for thresholds and resolution.

    Guarantee: one changed unit of the partition changes one row of ballots, on any of the labels.
    Assumes:   queries and thresholds are public; the number of teachers, the network and the engine are not
               chosen by looking at the data.
    Reference: Dullerud et al. 2022, section 3.

    >>> from tellers.teachers.partition import partition
    >>> X = np.random.default_rng(7).normal(size=(90, 2))
    >>> model, parts = TorchClassifier("mlp", epochs=5, device="cpu"), partition(60, 3, seed=7)
    >>> ensemble = train_torch_label_ensemble(
    ...     model, X[:60], X[:60] > 0, parts, n_labels=2, seed=7, engine="loop"
    ... )
    >>> ensemble.vote(X[60:])
    LabelVotes(<private>, n_queries=30, n_teachers=3, n_labels=2)
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

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who said no to everything by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(dict(self._troubles))

    def _probabilities(self, X: ArrayLike) -> Floats:
        queries = self.classifier.as_rows(numeric_rows(X), self.shape)
        network = build_network(self.classifier.network, self.shape, n_classes=self.n_labels, seed=0)
        states = {name: values for name, values in self.states.items() if name != SEEN}
        device = find_device(self.classifier.device)
        said, lost = cast_probabilities(network, states, queries, seen=self.states[SEEN], device=device)
        for number in np.flatnonzero(lost).tolist():
            self._troubles.setdefault(number, NO_ANSWER)
        return said

    def __len__(self) -> int:
        return len(self.states[SEEN])

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

    >>> from tellers.teachers.partition import partition
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
    >>> from tellers.teachers.partition import partition
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
