"""One network for many labels, in the manner of a scikit-learn classifier: a student of released labels."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ...devices import find_device
from ...errors import TeacherFailed
from ...label_models import label_table
from ...release import SILENT
from ...rows import numeric_rows
from ...weights import pack_weights, unpack_weights
from .classifier import LOST, TorchClassifier, check_network
from .descent import Lesson, train_alone
from .networks import Factory, Shape, build_network
from .voting import cast_probabilities

Arrays = dict[str, NDArray[Any]]


class TorchLabelClassifier:
    """A network with an output per label: `fit` with rows x labels of 1, 0 and SILENT, `predict`, ...

    `classifier` says which network, and how it is trained. The loss is the mean of the binary cross-entropy
    over the labels that were told; silence teaches nothing. A label that is silent in every row is answered
    0, and `silent_labels_` names it.

    >>> X = np.random.default_rng(7).normal(size=(200, 2))
    >>> Y = np.where(np.arange(200)[:, None] % 5 == 0, SILENT, X > 0)
    >>> model = TorchLabelClassifier(TorchClassifier("mlp", epochs=30, learning_rate=0.01, random_state=7))
    >>> bool((model.fit(X, Y).predict(X) == (X > 0)).mean() > 0.9)
    True
    """

    multilabel = True
    _estimator_type = "classifier"

    n_labels_: int
    shape_: Shape
    state_: Arrays
    silent_labels_: list[int]

    def __init__(self, classifier: TorchClassifier) -> None:
        self.classifier = classifier

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the classifier and, if `deep`, its own parameters.

        >>> TorchLabelClassifier(TorchClassifier("mlp")).get_params()["classifier__epochs"]
        60
        """
        own: dict[str, Any] = {"classifier": self.classifier}
        if deep:
            own |= {f"classifier__{name}": value for name, value in self.classifier.get_params().items()}
        return own

    def set_params(self, **parameters: Any) -> "TorchLabelClassifier":
        """Set the classifier, or parameters of it.

        >>> TorchLabelClassifier(TorchClassifier("mlp")).set_params(classifier__epochs=5)
        TorchLabelClassifier(TorchClassifier(network='mlp', epochs=5))
        """
        if "classifier" in parameters:
            self.classifier = parameters.pop("classifier")
        if parameters:
            self.classifier.set_params(
                **{name.removeprefix("classifier__"): value for name, value in parameters.items()}
            )
        return self

    def fit(self, X: ArrayLike, Y: ArrayLike) -> "TorchLabelClassifier":
        """Train a new network on rows and the labels that were told of them.

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
        told = table != SILENT
        if not told.any():
            raise ValueError(
                "Expected at least one label that was told, got silence alone. Ask more queries."
            )
        spoken = np.flatnonzero(told.any(axis=1))
        n_labels = table.shape[1]
        self.require_fit(rows.shape, n_labels=n_labels)
        recipe, shape = self.classifier.recipe(), self.classifier.row_shape(rows.shape)
        seed = self._seed()
        network = build_network(self.classifier.network, shape, n_classes=n_labels, seed=seed)
        lesson = Lesson(
            self.classifier.as_rows(rows[spoken], shape), table[spoken].astype(np.float32), [spoken.size],
            [seed], recipe,
        )  # fmt: skip
        learned = train_alone(network, lesson, device=find_device(self.classifier.device))
        if learned.lost:
            raise TeacherFailed(LOST)
        self.n_labels_, self.shape_ = n_labels, shape
        self.silent_labels_ = [int(label) for label in np.flatnonzero(~told.any(axis=0))]
        self.state_ = {name: values[0].cpu().numpy() for name, values in learned.states.items()}
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
        network = build_network(self.classifier.network, own, n_classes=n_labels, seed=0)
        check_network(network, own, n_classes=n_labels)

    @property
    def n_labels(self) -> int:
        """Return how many labels it was fitted to."""
        return self.n_labels_

    @property
    def classes_(self) -> list[NDArray[np.int64]]:
        """Return the answers to every label, as scikit-learn lists them for many outputs."""
        return [np.array([0, 1])] * self.n_labels_

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of every label, rows x labels.

        >>> model = TorchLabelClassifier(TorchClassifier("mlp", epochs=1, random_state=7))
        >>> model.fit([[0.0], [1.0]], [[1, 0], [0, 1]]).predict_proba([[0.5], [2.0], [3.0]]).shape
        (3, 2)
        """
        if not hasattr(self, "state_"):
            raise ValueError("Expected a fitted TorchLabelClassifier. Call fit(X, Y) first.")
        queries = self.classifier.as_rows(numeric_rows(X), self.shape_)
        network = build_network(self.classifier.network, self.shape_, n_classes=self.n_labels_, seed=0)
        states = {name: torch.tensor(values)[None] for name, values in self.state_.items()}
        device = find_device(self.classifier.device)
        seen = torch.ones((1, self.n_labels_), dtype=torch.bool)
        every, lost = cast_probabilities(network, states, queries, seen=seen, device=device)
        if lost.any():
            raise ValueError("Expected answers in finite numbers, got others. Scale the rows to about one.")
        said: NDArray[np.float64] = every[0]
        said[:, self.silent_labels_] = 0.0
        return said

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return 1 for every label whose probability is above one half, rows x labels."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)

    def to_bytes(self) -> bytes:
        """Return the fitted model as a safetensors file: numbers and their names, no code.

        >>> model = TorchLabelClassifier(TorchClassifier("mlp", epochs=1, random_state=7))
        >>> model = model.fit([[0.0], [1.0]], [[1, 0], [0, 1]])
        >>> same = TorchLabelClassifier.from_bytes(model.to_bytes())
        >>> bool((same.predict_proba([[0.5]]) == model.predict_proba([[0.5]])).all())
        True
        """
        if not hasattr(self, "state_"):
            raise ValueError("Expected a fitted TorchLabelClassifier. Call fit(X, Y) first.")
        named = self.classifier.network if isinstance(self.classifier.network, str) else None
        about = {
            "parameters": self.classifier.get_params() | {"network": named},
            "n_labels": self.n_labels_,
            "silent_labels": self.silent_labels_,
            "shape": self.shape_,
        }
        return pack_weights(self.state_, about)

    @classmethod
    def from_bytes(cls, content: bytes, *, network: Factory | None = None) -> "TorchLabelClassifier":
        """Return the model of a safetensors file; one whose network is a function needs that function again.

        >>> TorchLabelClassifier.from_bytes(b"something else")
        Traceback (most recent call last):
            ...
        ValueError: Expected the bytes of TorchLabelClassifier.to_bytes(), got something else.
        """
        try:
            state, about = unpack_weights(content)
            inner = TorchClassifier(**about["parameters"])
            model = cls(inner)
            model.state_, model.shape_ = state, tuple(about["shape"])
            model.n_labels_ = int(about["n_labels"])
            model.silent_labels_ = [int(label) for label in about["silent_labels"]]
        except Exception as error:  # whatever is wrong with a file, it is one kind of error
            raise ValueError(
                "Expected the bytes of TorchLabelClassifier.to_bytes(), got something else."
            ) from error
        if not inner.network:
            if network is None:
                raise ValueError(
                    "Expected network=..., the function that made the network: no file holds it."
                )
            inner.network = network
        if inner.image_shape is not None:
            inner.image_shape = tuple(inner.image_shape)  # JSON has lists alone
        made = build_network(inner.network, model.shape_, n_classes=model.n_labels_, seed=0)
        try:
            made.load_state_dict({name: torch.tensor(values) for name, values in model.state_.items()})
        except RuntimeError as error:
            raise ValueError(f"Expected the weights of this network, got others: {error}") from None
        return model

    def _seed(self) -> int:
        given = self.classifier.random_state
        return int(np.random.SeedSequence().generate_state(1)[0]) if given is None else int(given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def __repr__(self) -> str:
        return f"TorchLabelClassifier({self.classifier!r})"
