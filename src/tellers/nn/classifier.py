"""Torch networks with the manners of scikit-learn classifiers, for one class or many labels per row."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import TeacherFailed, require_count, require_finite, require_positive
from ..privacy._rows import class_ids, label_table, numeric_rows
from . import estimator
from .batched import cast_votes
from .devices import find_device
from .estimator import LabelAnswers, TorchEstimator, drawn_seed, one_each
from .loop import LOST
from .networks import Factory, Shape, build_network, check_network
from .teacher_training import Recipe, TrainingSet, train_alone
from .weights import Arrays, load_arrays, state_arrays

_ROWS_AT_ONCE = 512


@dataclass(eq=False, repr=False)
class TorchClassifier(TorchEstimator):
    """A network trained with Adam and a cosine schedule: `fit`, `predict`, `predict_proba`.

    `network` is "cnn" (32 filters of 3x3, batch norm, pooling, 100 units, batch norm), "mlp" (128 units,
    dropout), or a function without arguments that returns a new `torch.nn.Module`. `image_shape`, (height,
    width) or (height, width, channels) as in a `Dataset`, says how flat rows make images; a "cnn" takes flat
    rows for grey squares. The network gets images as (channels, height, width). `rotation` (degrees) and
    `shift` (share of the width) move every image at random each time it is seen. `n_classes` declares
    classes 0..n_classes-1; without it they are read off y. Everything random comes from `random_state`.

    >>> from tellers.data import digits
    >>> data = digits()
    >>> model = TorchClassifier("mlp", epochs=20, learning_rate=0.01, random_state=7)
    >>> model.fit(data.X[:1000], data.y[:1000]).score(data.X[1000:], data.y[1000:]) > 0.85
    True
    >>> same = TorchClassifier.from_bytes(model.to_bytes())
    >>> bool((same.predict(data.X) == model.predict_proba(data.X).argmax(axis=1)).all())
    True
    >>> model.set_params(epochs=5), model.get_params()["epochs"]
    (TorchClassifier(network='mlp', epochs=5), 5)
    """

    # Many of these are trained in one program, or by one engine: see `tellers.teachers.torch`.
    trained_together: ClassVar[bool] = True
    _kept: ClassVar[tuple[str, ...]] = ("classes", "shape")

    network: str | Factory = "cnn"
    _: KW_ONLY
    epochs: int = 60
    batch_size: int = 40
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0
    device: str = "auto"
    image_shape: Shape | None = None
    n_classes: int | None = None
    random_state: int | None = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> "TorchClassifier":
        """Train a new network on rows and their classes.

        >>> TorchClassifier("mlp", epochs=1).fit([[0.0], [float("nan")]], [0, 1])
        Traceback (most recent call last):
            ...
        ValueError: Expected finite numbers in X, got NaN or infinity in row 1, feature 0. ...
        """
        rows = numeric_rows(X)
        labels, shape = one_each(y, n_rows=len(rows)), self.row_shape(rows.shape)
        if self.n_classes is None:
            classes, ids = np.unique(labels, return_inverse=True)
        else:
            require_count(2, n_classes=self.n_classes)
            classes, ids = np.arange(self.n_classes), class_ids(labels, n_classes=int(self.n_classes))
        self.state_ = self._trained(rows, ids.astype(np.int64), shape, n_outputs=len(classes))
        self.classes_, self.shape_ = classes, shape
        self._network = None
        return self

    def _trained(self, rows: NDArray[Any], targets: NDArray[Any], shape: Shape, *, n_outputs: int) -> Arrays:
        """Return the weights of a new network, trained on rows and their targets."""
        recipe, seed = self.recipe(), drawn_seed(self.random_state)
        network = self._new_network(shape, n_outputs, seed=seed)
        check_network(network, shape, n_classes=n_outputs)
        known = TrainingSet(self.as_rows(rows, shape), targets, [len(rows)], [seed], recipe)
        states, lost = train_alone(network, known, device=find_device(self.device))
        if lost:
            raise TeacherFailed(LOST)
        return state_arrays({name: values[0] for name, values in states.items()})

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each of `classes_` for every row."""
        return np.exp(self._log_probabilities(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of every row."""
        best = self._log_probabilities(X).argmax(axis=1)
        return cast(NDArray[Any], self.classes_[best])

    @torch.no_grad()
    def _log_probabilities(self, X: ArrayLike) -> NDArray[np.float64]:
        self._check_fitted()
        network, device = self._fitted_network(), find_device(self.device)
        rows = self.as_rows(numeric_rows(X), self.shape_)
        answers = [
            network(torch.as_tensor(rows[start : start + _ROWS_AT_ONCE], device=device)).double().cpu()
            for start in range(0, len(rows), _ROWS_AT_ONCE)
        ]
        logs: Tensor = torch.log_softmax(torch.cat(answers), dim=1)
        return np.asarray(logs.numpy(), dtype=np.float64)

    def _new_network(self, shape: Shape, n_outputs: int, *, seed: int) -> torch.nn.Module:
        return build_network(self.network, shape, n_classes=n_outputs, seed=seed)

    def recipe(self) -> Recipe:
        """Return how it is trained, checked.

        >>> TorchClassifier(epochs=0).recipe()
        Traceback (most recent call last):
            ...
        ValueError: Expected a whole number epochs >= 1, got epochs=0.
        """
        require_count(epochs=self.epochs)
        require_count(2, batch_size=self.batch_size)  # batch norm needs two
        require_positive(learning_rate=self.learning_rate)
        require_finite(weight_decay=self.weight_decay, rotation=self.rotation, shift=self.shift)
        for name in ("weight_decay", "rotation", "shift"):
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} >= 0, got {name}={getattr(self, name)!r}.")
        return Recipe(
            epochs=int(self.epochs), batch_size=int(self.batch_size), learning_rate=float(self.learning_rate),
            weight_decay=float(self.weight_decay), rotation=float(self.rotation), shift=float(self.shift),
        )  # fmt: skip

    def row_shape(self, shape: Shape) -> Shape:
        """Return the shape in which the network gets one row of a table of some shape.

        >>> TorchClassifier("cnn").row_shape((60000, 784)), TorchClassifier("mlp").row_shape((60000, 784))
        ((1, 28, 28), (784,))
        """
        own = estimator.row_shape(shape, image_shape=self.image_shape, squares=self.network == "cnn")
        if (self.rotation or self.shift) and len(own) != 3:
            raise ValueError(
                f"Expected images to turn and shift, got rows of shape {own}. Give image_shape=(height, "
                "width, channels), or rotation=0 and shift=0."
            )
        return own

    def __repr__(self) -> str:
        name = self.network if isinstance(self.network, str) else getattr(self.network, "__qualname__", "...")
        return f"TorchClassifier(network={name!r}, epochs={self.epochs!r})"


@dataclass(eq=False, repr=False)
class TorchLabelClassifier(LabelAnswers):
    """A network with an output per label: `fit` with rows x labels of 1, 0 and SILENT, `predict`, ...

    `classifier` says which network, and how it is trained. The loss is the mean of the binary cross-entropy
    over the labels that were told; silence teaches nothing. A label that is silent in every row is answered
    0, and `silent_labels_` names it.

    >>> from tellers import SILENT
    >>> X = np.random.default_rng(7).normal(size=(200, 2))
    >>> Y = np.where(np.arange(200)[:, None] % 5 == 0, SILENT, X > 0)
    >>> model = TorchLabelClassifier(TorchClassifier("mlp", epochs=30, learning_rate=0.01, random_state=7))
    >>> bool((model.fit(X, Y).predict(X) == (X > 0)).mean() > 0.9)
    True
    >>> same = TorchLabelClassifier.from_bytes(model.to_bytes())
    >>> bool((same.predict_proba(X) == model.predict_proba(X)).all())
    True
    >>> model.set_params(classifier__epochs=5)
    TorchLabelClassifier(TorchClassifier(network='mlp', epochs=5))
    """

    trained_together: ClassVar[bool] = True
    _kept: ClassVar[tuple[str, ...]] = ("n_labels", "silent_labels", "shape")

    classifier: TorchClassifier

    def fit(self, X: ArrayLike, Y: ArrayLike) -> "TorchLabelClassifier":
        """Train a new network on rows and the labels that were told of them.

        >>> from tellers import SILENT
        >>> model = TorchLabelClassifier(TorchClassifier("mlp", epochs=1, random_state=7))
        >>> model.fit([[0.0], [1.0]], [[1, SILENT], [0, SILENT]]).silent_labels_
        [1]
        >>> model.fit([[0.0], [1.0]], [[SILENT], [SILENT]])
        Traceback (most recent call last):
            ...
        ValueError: Expected at least one label that was told, got silence alone. Ask more queries.
        """
        rows = numeric_rows(X)
        table = label_table(Y, n_rows=len(rows), silent=True)
        spoken, silent_labels = estimator.told_rows(table)
        shape = self.classifier.row_shape(rows.shape)
        self.state_ = self.classifier._trained(
            rows[spoken], table[spoken].astype(np.float32), shape, n_outputs=table.shape[1]
        )
        self.n_labels_, self.shape_, self.silent_labels_ = table.shape[1], shape, silent_labels
        return self

    def require_fit(self, shape: Shape, *, n_labels: int) -> None:
        """Refuse rows of a shape, or settings, that training would refuse; nothing is trained.

        >>> TorchLabelClassifier(TorchClassifier("cnn")).require_fit((100, 20), n_labels=3)
        Traceback (most recent call last):
            ...
        ValueError: Expected square images for network='cnn', got rows of 20 numbers. ...
        """
        self.classifier.recipe()
        own = self.classifier.row_shape(shape)
        find_device(self.classifier.device)
        network = self.classifier._new_network(own, n_labels, seed=0)
        check_network(network, own, n_classes=n_labels)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of every label, rows x labels."""
        self._check_fitted()
        queries = self.classifier.as_rows(numeric_rows(X), self.shape_)
        states = {name: torch.tensor(values)[None] for name, values in self.state_.items()}
        device = find_device(self.classifier.device)
        seen = torch.ones((1, self.n_labels_), dtype=torch.bool)
        network = self.classifier._new_network(self.shape_, self.n_labels_, seed=0)
        every, lost = cast_votes(network, states, queries, seen=seen, device=device, labels=True)
        if lost.any():
            raise ValueError("Expected answers in finite numbers, got others. Scale the rows to about one.")
        said: NDArray[np.float64] = every[0]
        said[:, self.silent_labels_] = 0.0
        return said

    def _stored_parameters(self) -> dict[str, Any]:
        return self.classifier.get_params()

    @classmethod
    def _made_of(cls, parameters: Mapping[str, Any]) -> "TorchLabelClassifier":
        return cls(TorchClassifier(**parameters))

    def _fitted_network(self) -> torch.nn.Module:
        return load_arrays(self.classifier._new_network(self.shape_, self.n_labels_, seed=0), self.state_)

    def __repr__(self) -> str:
        return f"TorchLabelClassifier({self.classifier!r})"
