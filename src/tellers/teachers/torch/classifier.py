"""A torch network with the manners of a scikit-learn classifier: a teacher, or a student."""

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ...devices import find_device
from ...errors import TeacherFailed, require_count, require_finite, require_positive
from ...rows import class_ids, numeric_rows
from ...weights import pack_weights, unpack_weights
from .batches import Recipe
from .descent import Lesson, train_alone
from .networks import Factory, Shape, build_network

Arrays = dict[str, NDArray[Any]]

_PARAMETERS = (
    "network", "epochs", "batch_size", "learning_rate", "weight_decay", "rotation", "shift", "device",
    "image_shape", "n_classes", "random_state",
)  # fmt: skip
_ROWS_AT_ONCE = 512


class TorchClassifier:
    """A network trained with Adam and a cosine schedule: `fit`, `predict`, `predict_proba`.

    `network` is "cnn" (32 filters of 3x3, batch norm, pooling, 100 units, batch norm), "mlp" (128 units,
    dropout), or a function without arguments that returns a new `torch.nn.Module`. `image_shape`, (height,
    width) or (height, width, channels) as in a `Dataset`, says how flat rows make images; a "cnn" takes flat
    rows for grey squares. The network gets images as (channels, height, width). `rotation` (degrees) and
    `shift` (share of the width) move every image at random each time it is seen. `n_classes` declares
    classes 0..n_classes-1; without it they are read off y. Everything random comes from `random_state`.

    >>> from tellers.datasets import digits
    >>> data = digits()
    >>> model = TorchClassifier("mlp", epochs=20, learning_rate=0.01, random_state=7)
    >>> model.fit(data.X[:1000], data.y[:1000]).score(data.X[1000:], data.y[1000:]) > 0.85
    True
    """

    _estimator_type = "classifier"

    classes_: NDArray[Any]
    shape_: Shape
    state_: Arrays

    def __init__(
        self,
        network: str | Factory = "cnn",
        *,
        epochs: int = 60,
        batch_size: int = 40,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        rotation: float = 0.0,
        shift: float = 0.0,
        device: str = "auto",
        image_shape: Shape | None = None,
        n_classes: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.network, self.epochs, self.batch_size = network, epochs, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.rotation, self.shift, self.device = rotation, shift, device
        self.image_shape, self.n_classes, self.random_state = image_shape, n_classes, random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "TorchClassifier":
        """Train a new network on rows and their classes.

        >>> TorchClassifier("mlp", epochs=1).fit([[0.0], [float("nan")]], [0, 1])
        Traceback (most recent call last):
            ...
        ValueError: Expected finite numbers in X, got NaN or infinity in row 1, feature 0. ...
        """
        rows, labels = numeric_rows(X), np.asarray(y)
        if labels.shape != (len(rows),):
            raise ValueError(
                f"Expected y with one class for each of {len(rows)} rows, got shape {labels.shape}."
            )
        recipe, shape = self.recipe(), self.row_shape(rows.shape)
        if self.n_classes is None:
            classes, ids = np.unique(labels, return_inverse=True)
        else:
            classes, ids = np.arange(self.n_classes), _declared(labels, self.n_classes)
        seed = self._seed()
        network = build_network(self.network, shape, n_classes=len(classes), seed=seed)
        check_network(network, shape, n_classes=len(classes))
        lesson = Lesson(self.as_rows(rows, shape), ids.astype(np.int64), [len(rows)], [seed], recipe)
        learned = train_alone(network, lesson, device=find_device(self.device))
        if learned.lost:
            raise TeacherFailed(LOST)
        self.classes_, self.shape_ = classes, shape
        self.state_ = {name: values[0].cpu().numpy() for name, values in learned.states.items()}
        self._network: nn.Module | None = None
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each of `classes_` for every row.

        >>> model = TorchClassifier("mlp", epochs=1, random_state=7).fit([[0.0], [1.0]], ["a", "b"])
        >>> model.predict_proba([[0.0], [1.0], [2.0]]).shape
        (3, 2)
        """
        return np.exp(self._log_probabilities(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of every row.

        >>> model = TorchClassifier("mlp", epochs=50, random_state=7).fit([[0.0], [1.0]], ["a", "b"])
        >>> model.predict([[0.0], [1.0]])
        array(['a', 'b'], dtype='<U1')
        """
        best = self._log_probabilities(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the share of rows whose class is predicted.

        >>> model = TorchClassifier("mlp", epochs=50, random_state=7).fit([[0.0], [1.0]], [0, 1])
        >>> model.score([[0.0], [1.0]], [0, 1])
        1.0
        """
        return float((self.predict(X) == np.asarray(y)).mean())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, as scikit-learn asks for them.

        >>> TorchClassifier("mlp").get_params()["epochs"]
        60
        """
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **parameters: Any) -> "TorchClassifier":
        """Set parameters by name.

        >>> TorchClassifier().set_params(epochs=5)
        TorchClassifier(network='cnn', epochs=5)
        """
        for name, value in parameters.items():
            if name not in _PARAMETERS:
                raise ValueError(f"Expected one of {', '.join(_PARAMETERS)}, got {name!r}.")
            setattr(self, name, value)
        return self

    def to_bytes(self) -> bytes:
        """Return the fitted model as a safetensors file: numbers and their names, no code.

        >>> model = TorchClassifier("mlp", epochs=1, random_state=7).fit([[0.0], [1.0]], ["a", "b"])
        >>> TorchClassifier.from_bytes(model.to_bytes()).predict([[0.5]]) == model.predict([[0.5]])
        array([ True])
        """
        self._check_fitted()
        parameters = self.get_params() | {"network": self.network if isinstance(self.network, str) else None}
        about = {"parameters": parameters, "classes": self.classes_.tolist(), "shape": self.shape_}
        return pack_weights(self.state_, about)

    @classmethod
    def from_bytes(cls, content: bytes, *, network: Factory | None = None) -> "TorchClassifier":
        """Return the model of a safetensors file; one whose network is a function needs that function again.

        >>> TorchClassifier.from_bytes(b"something else")
        Traceback (most recent call last):
            ...
        ValueError: Expected the bytes of TorchClassifier.to_bytes(), got something else.
        """
        try:
            state, about = unpack_weights(content)
            model = cls(**about["parameters"])
            classes, shape = np.asarray(about["classes"]), tuple(about["shape"])
        except Exception as error:  # whatever is wrong with a file, it is one kind of error
            raise ValueError(
                "Expected the bytes of TorchClassifier.to_bytes(), got something else."
            ) from error
        if not model.network:
            if network is None:
                raise ValueError(
                    "Expected network=..., the function that made the network: no file holds it."
                )
            model.network = network
        if model.image_shape is not None:
            model.image_shape = tuple(model.image_shape)  # JSON has lists alone
        model.state_, model.classes_, model.shape_ = state, classes, shape
        model._ready()
        return model

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
        own, size = tuple(shape[1:]), int(np.prod(shape[1:]))
        if self.image_shape is not None:
            height, width, channels = self._image_shape()
            if height * width * channels != size:
                wanted = tuple(self.image_shape)
                raise ValueError(
                    f"Expected rows that make images of shape {wanted}, got rows of shape {own}."
                )
            own = (channels, height, width)
        elif len(own) == 2:
            own = (1, *own)
        elif len(own) == 1 and self.network == "cnn":
            side = round(size**0.5)
            if side * side != size:
                raise ValueError(
                    f"Expected square images for network='cnn', got rows of {size} numbers. Give "
                    "image_shape=(height, width, channels)."
                )
            own = (1, side, side)
        if (self.rotation or self.shift) and len(own) != 3:
            raise ValueError(
                f"Expected images to turn and shift, got rows of shape {own}. Give image_shape=(height, "
                "width, channels), or rotation=0 and shift=0."
            )
        return own

    def as_rows(self, table: NDArray[Any], shape: Shape) -> NDArray[np.float32]:
        """Return a table as float32 rows of the shape that the network gets.

        >>> TorchClassifier("mlp").as_rows(np.zeros((2, 4)), (4,)).dtype
        dtype('float32')
        """
        if self.image_shape is not None and tuple(table.shape[1:]) != shape:
            pixels = self._image_shape()
            if int(np.prod(table.shape[1:])) == int(np.prod(pixels)):
                table = np.moveaxis(table.reshape(len(table), *pixels), 3, 1)  # channels come first in torch
        return as_rows(table, shape)

    def _image_shape(self) -> tuple[int, int, int]:
        shape = tuple(int(n) for n in self.image_shape or ())
        if len(shape) not in (2, 3):
            raise ValueError(
                f"Expected image_shape=(height, width) or (height, width, channels), got {shape}."
            )
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1

    def _seed(self) -> int:
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        require_count(0, random_state=self.random_state)
        return int(self.random_state)

    def _check_fitted(self) -> None:
        if not hasattr(self, "state_"):
            raise ValueError("Expected a fitted TorchClassifier. Call fit(X, y) first.")

    def _ready(self) -> nn.Module:
        """Return the network with what it learned; it is made when needed, as models travel without it."""
        self._check_fitted()
        network = cast(nn.Module | None, getattr(self, "_network", None))
        if network is None:
            network = build_network(self.network, self.shape_, n_classes=len(self.classes_), seed=0)
            try:
                network.load_state_dict({name: torch.tensor(values) for name, values in self.state_.items()})
            except RuntimeError as error:
                raise ValueError(f"Expected the weights of this network, got others: {error}") from None
            self._network = network = network.to(find_device(self.device)).eval()
        return network

    @torch.no_grad()
    def _log_probabilities(self, X: ArrayLike) -> NDArray[np.float64]:
        network, rows = self._ready(), numeric_rows(X)
        rows = self.as_rows(rows, self.shape_)
        device = find_device(self.device)
        answers = [
            network(torch.as_tensor(rows[start : start + _ROWS_AT_ONCE], device=device)).double().cpu()
            for start in range(0, len(rows), _ROWS_AT_ONCE)
        ]
        logs: Tensor = torch.log_softmax(torch.cat(answers), dim=1)
        return np.asarray(logs.numpy(), dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_network"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), transformer_tags=None,
            classifier_tags=ClassifierTags(), regressor_tags=None,
            input_tags=InputTags(three_d_array=True),
        )  # fmt: skip

    def __repr__(self) -> str:
        name = self.network if isinstance(self.network, str) else getattr(self.network, "__qualname__", "...")
        return f"TorchClassifier(network={name!r}, epochs={self.epochs!r})"


LOST = (
    "Expected a loss that is a finite number, got another. Scale the features to about one, or take a "
    "smaller learning_rate."
)


def as_rows(rows: NDArray[Any], shape: Shape) -> NDArray[np.float32]:
    """Return a table as float32 rows of a shape.

    >>> as_rows(np.zeros((2, 4)), (1, 2, 2)).shape
    (2, 1, 2, 2)
    """
    if int(np.prod(rows.shape[1:])) != int(np.prod(shape)):
        raise ValueError(f"Expected rows of shape {shape}, or as many numbers, got rows of {rows.shape[1:]}.")
    with np.errstate(over="ignore"):
        table = np.ascontiguousarray(rows, dtype=np.float32).reshape(len(rows), *shape)
    numeric_rows(table)  # what float32 cannot hold is infinite now
    return table if table.flags.writeable else table.copy()  # torch does not take what cannot be written


@torch.no_grad()
def check_network(network: nn.Module, shape: Shape, *, n_classes: int) -> None:
    """Refuse a network that does not make one number per class of each row.

    >>> check_network(nn.Linear(4, 3), (4,), n_classes=2)
    Traceback (most recent call last):
        ...
    ValueError: Expected a network that makes 2 numbers, one per class, of rows of shape (4,), got ...
    """
    network.eval()
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ValueError("Expected a network with weights to learn, got none.")
    try:
        answer = network(torch.zeros(2, *shape))
    except Exception as error:
        raise ValueError(f"Expected a network for rows of shape {shape}, got an error: {error}") from error
    if not isinstance(answer, Tensor) or answer.shape != (2, n_classes):
        shown = tuple(answer.shape[1:]) if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(
            f"Expected a network that makes {n_classes} numbers, one per class, of rows of shape {shape}, "
            f"got shape {shown}. Declare n_classes if y lacks some classes."
        )


def _declared(labels: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    require_count(2, n_classes=n_classes)
    return class_ids(labels, n_classes=int(n_classes))
