"""Which backend trains a model: torch networks are trained together, everything else one by one."""

from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import ArrayLike

from .ensemble import Ensemble, train_ensemble
from .label_ensemble import LabelEnsemble, train_label_ensemble
from .partition import Partition, Seed

if TYPE_CHECKING:
    from .torch import TorchEnsemble, TorchLabelEnsemble

    AnyEnsemble: TypeAlias = Ensemble | TorchEnsemble
    AnyLabelEnsemble: TypeAlias = LabelEnsemble | TorchLabelEnsemble

_NETWORKS = "tellers.teachers.torch."


def is_network(model: Any) -> bool:
    """Say whether a model is a torch network, of which many are trained together; torch is not loaded for it.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> is_network(DecisionTreeClassifier())
    False
    """
    return any(kind.__module__.startswith(_NETWORKS) for kind in type(model).__mro__)


def train_teachers(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    partition: Partition,
    *,
    n_classes: int,
    seed: Seed,
    timeout: float | None = None,
    retries: int = 1,
    **options: Any,
) -> "AnyEnsemble":
    """Train one copy of a model on each part, with the backend that it belongs to.

    `options` are those of `train_ensemble`, or of `train_torch_ensemble` for a network. A network is not
    stopped after `timeout` seconds, nor tried again: what fails in it fails the same way each time.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.datasets import digits
    >>> from tellers.teachers.partition import partition
    >>> data, parts = digits(), partition(1000, 5, seed=7)
    >>> train_teachers(DecisionTreeClassifier(), data.X[:1000], data.y[:1000], parts, n_classes=10, seed=7)
    Ensemble(n_teachers=5, n_classes=10)
    """
    shared: dict[str, Any] = {"n_classes": n_classes, "seed": seed, **options}
    if not is_network(model):
        return train_ensemble(model, X, y, partition, timeout=timeout, retries=retries, **shared)
    if timeout is not None:
        raise ValueError(
            "Expected no time limit for networks, which are trained together, got "
            f"{timeout:g} seconds. Leave it out."
        )
    from .torch import train_torch_ensemble

    return train_torch_ensemble(model, X, y, partition, **shared)


def train_label_teachers(
    model: Any, X: ArrayLike, Y: ArrayLike, partition: Partition, *, n_labels: int, seed: Seed, **options: Any
) -> "AnyLabelEnsemble":
    """Train one copy of a model on each part of rows with many labels, with the backend it belongs to.

    `options` are those of `train_label_ensemble`, or of `train_torch_label_ensemble` for a network.

    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.teachers.partition import partition
    >>> X = np.random.default_rng(7).normal(size=(200, 2))
    >>> parts = partition(200, 4, seed=7)
    >>> train_label_teachers(DecisionTreeClassifier(), X, X > 0, parts, n_labels=2, seed=7)
    LabelEnsemble(n_teachers=4, n_labels=2)
    """
    if not is_network(model):
        return train_label_ensemble(model, X, Y, partition, n_labels=n_labels, seed=seed, **options)
    from .torch import train_torch_label_ensemble

    return train_torch_label_ensemble(model, X, Y, partition, n_labels=n_labels, seed=seed, **options)
