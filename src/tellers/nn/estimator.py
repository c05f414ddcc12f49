"""What all estimators of networks share: the manners of scikit-learn, and how a table becomes rows."""

import dataclasses
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from ..errors import require_count
from ..privacy._rows import numeric_rows
from ..privacy.release import SILENT
from .devices import find_device
from .networks import Factory, Shape
from .weights import Arrays, bytes_of, load_arrays, pack_weights, unpack_weights

_READ: dict[str, Callable[[Any], Any]] = {"classes": np.asarray, "shape": tuple, "scale": tuple}
_TUPLES = {"image_shape", "shape", "weight_bounds"}  # parameters; JSON has lists alone


class TorchEstimator:
    """A dataclass whose fields are its parameters; what it learned are the arrays of `state_`.

    Parameters of an estimator within have its name in front, as in scikit-learn: `tagger__device`.
    """

    _estimator_type: ClassVar[str] = "classifier"
    _fitted_by: ClassVar[str] = "fit(X, y)"
    _takes_images: ClassVar[bool] = True
    # What a file holds beside parameters and weights: attributes that end in "_".
    _kept: ClassVar[tuple[str, ...]] = ()

    image_shape: Shape | None
    device: str
    shape_: Shape
    classes_: Any
    state_: Arrays
    _network: nn.Module | None
    _new_network: Callable[..., nn.Module]  # of (shape, n_outputs, seed=...)
    predict_proba: Callable[..., NDArray[np.float64]]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of every row."""
        best = self.predict_proba(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name and, if `deep`, those of estimators within."""
        own = {name: getattr(self, name) for name in self._parameters()}
        if deep:
            for name, value in list(own.items()):
                if isinstance(value, TorchEstimator):
                    own |= {f"{name}__{inner}": given for inner, given in value.get_params().items()}
        return own

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name."""
        known = self._parameters()
        for name, value in parameters.items():
            within, _, inner = name.partition("__")
            if inner and isinstance(getattr(self, within, None), TorchEstimator):
                getattr(self, within).set_params(**{inner: value})
            elif name in known:
                setattr(self, name, value)
            else:
                raise ValueError(f"Expected one of {', '.join(known)}, got {name!r}.")
        return self

    def as_rows(self, table: NDArray[Any], shape: Shape) -> NDArray[np.float32]:
        """Return a table as float32 rows of the shape that the network gets."""
        return as_rows(table, shape, image_shape=self.image_shape)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the share of rows whose class, or of labels whose answer, is predicted."""
        return float((self.predict(X) == np.asarray(y)).mean())

    def to_bytes(self) -> bytes:
        """Return the fitted model as a safetensors file: numbers and their names, no code."""
        self._check_fitted()
        kept = {name: getattr(self, f"{name}_") for name in self._kept}
        return pack_weights(self.state_, {"parameters": self._stored_parameters(), **kept})

    @classmethod
    def from_bytes(cls, content: bytes, *, network: Factory | None = None) -> Self:
        """Return the model of a safetensors file.

        One whose network was made by a function needs that function again.
        """
        with bytes_of(cls.__name__):
            state, about = unpack_weights(content)
            parameters = dict(about["parameters"])
            cls._made_of(parameters)  # which refuses those of another estimator
            kept = {name: _READ.get(name, lambda value: value)(about[name]) for name in cls._kept}
        if parameters["network"] is None:
            if network is None:
                raise ValueError(
                    "Expected network=..., the function that made the network: no file holds it."
                )
            parameters["network"] = network
        for name in _TUPLES & parameters.keys():
            parameters[name] = None if parameters[name] is None else tuple(parameters[name])
        model = cls._made_of(parameters)
        model.state_ = state
        for name, value in kept.items():
            setattr(model, f"{name}_", value)
        model._fitted_network()  # which refuses weights of another one
        return model

    def _stored_parameters(self) -> dict[str, Any]:
        return self.get_params()

    @classmethod
    def _made_of(cls, parameters: Mapping[str, Any]) -> Self:
        return cls(**parameters)

    def _parameters(self) -> list[str]:
        return [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise ValueError(f"Expected a fitted {type(self).__name__}. Call {self._fitted_by} first.")

    def _fitted_network(self) -> nn.Module:
        """Return the network with what it learned; it is made when needed, as models travel without it."""
        found: nn.Module | None = getattr(self, "_network", None)
        if found is None:
            blank = self._new_network(self.shape_, len(self.classes_), seed=0)
            self._network = found = load_arrays(blank, self._weights()).eval()
        return found.to(find_device(self.device))

    def _weights(self) -> Arrays:
        return self.state_

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_network"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), transformer_tags=None,
            classifier_tags=ClassifierTags(), regressor_tags=None,
            input_tags=InputTags(three_d_array=self._takes_images),
        )  # fmt: skip


class LabelAnswers(TorchEstimator):
    """What estimators of many labels per row share: answers of yes and no to each of `n_labels_`."""

    multilabel: ClassVar[bool] = True
    _fitted_by: ClassVar[str] = "fit(X, Y)"

    n_labels_: int

    @property
    def n_labels(self) -> int:
        """Return how many labels it was fitted to."""
        return self.n_labels_

    @property
    def classes_(self) -> list[NDArray[np.int64]]:
        """Return the answers to every label, as scikit-learn lists them for many outputs."""
        return [np.array([0, 1])] * self.n_labels_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return 1 for every label whose probability is above one half, rows x labels."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)


def told_rows(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
    """Return the rows of which some label was told, and the labels that are silent in every row."""
    told = table != SILENT
    if not told.any():
        raise ValueError("Expected at least one label that was told, got silence alone. Ask more queries.")
    return np.flatnonzero(told.any(axis=1)), [int(label) for label in np.flatnonzero(~told.any(axis=0))]


def one_each(y: ArrayLike, *, n_rows: int) -> NDArray[Any]:
    """Return y, one class for each row, or refuse it."""
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"Expected y with one class for each of {n_rows} rows, got shape {labels.shape}.")
    return labels


def drawn_seed(random_state: int | None) -> int:
    """Return the seed of a training: the one given, or a new one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    require_count(0, random_state=random_state)
    return int(random_state)


# --- Tables as rows of networks ---


def row_shape(shape: Shape, *, image_shape: Shape | None, squares: bool) -> Shape:
    """Return the shape in which a network gets one row of a table of some shape.

    `image_shape` is (height, width) or (height, width, channels); `squares` takes flat rows for grey squares.
    """
    own, size = tuple(int(n) for n in shape[1:]), prod(shape[1:])
    if image_shape is not None:
        height, width, channels = _pixels(image_shape)
        if height * width * channels != size:
            raise ValueError(
                f"Expected rows that make images of shape {tuple(image_shape)}, got rows of shape {own}."
            )
        return channels, height, width
    if len(own) == 2:
        return 1, own[0], own[1]
    if len(own) == 1 and squares:
        side = round(size**0.5)
        if side * side != size:
            raise ValueError(
                f"Expected square images for network='cnn', got rows of {size} numbers. Give "
                "image_shape=(height, width, channels)."
            )
        return 1, side, side
    return own


def as_rows(table: NDArray[Any], shape: Shape, *, image_shape: Shape | None) -> NDArray[np.float32]:
    """Return a table as float32 rows of a shape; flat rows of images have their channels last."""
    if prod(table.shape[1:]) != prod(shape):
        raise ValueError(
            f"Expected rows of shape {shape}, or as many numbers, got rows of shape {table.shape[1:]}."
        )
    if image_shape is not None and tuple(table.shape[1:]) != shape:
        table = np.moveaxis(table.reshape(len(table), *_pixels(image_shape)), 3, 1)
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(table, dtype=np.float32).reshape(len(table), *shape)
    numeric_rows(rows)  # what float32 cannot hold is infinite now
    return rows if rows.flags.writeable else rows.copy()  # torch does not take what cannot be written


def _pixels(image_shape: Shape) -> tuple[int, int, int]:
    shape = tuple(int(n) for n in image_shape)
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ValueError(f"Expected image_shape=(height, width) or (height, width, channels), got {shape}.")
    return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
