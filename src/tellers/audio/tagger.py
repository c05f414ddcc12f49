"""A network that tags clips, in the manner of a scikit-learn classifier: a teacher, or a student."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..devices import find_device
from ..errors import TeacherFailed, require_count
from ..label_models import label_table
from ..release import SILENT
from ..rows import numeric_rows
from ..students.torch.checkpoints import Checkpoint, fingerprint
from ..teachers.torch.classifier import LOST
from ..teachers.torch.networks import build_network
from ..weights import pack_weights, unpack_weights
from .answers import answer, fit_state, limited_threads
from .board import open_board, require_board
from .descent import AudioRecipe, Progress, split_rows, train_network
from .mixup import Mixup
from .networks import Shape, load_pretrained, network_factory

_PARAMETERS = (
    "network", "shape", "iterations", "batch_size", "learning_rate", "weight_decay", "balanced", "mixup",
    "mixup_share", "weighted", "weight_bounds", "pretrained", "held_out", "check_every", "patience", "device",
    "n_threads", "log_folder", "random_state",
)  # fmt: skip
_CHUNK = 256


class AudioTagger:
    """Log-Mel pictures in, a probability per label out: `fit` with rows x labels of 1, 0 and SILENT.

    X is (rows, frames, bins), or flat rows with `shape=(frames, bins)`. `network` is "small" (for a CPU),
    "resnet18", "resnet34", "vgg11" or "vgg19"; `pretrained` a local file of public weights to begin with.
    `balanced` gives every label its turn (`BalancedRows`), `mixup` is the concentration of the mixing
    proportions (0: none) of `mixup_share` of the rows, `weighted` presses the ratio of no to yes of each
    label between `weight_bounds` and weighs the loss with it. `held_out`, `check_every` and `patience` stop
    in time, on rows of X alone. Pictures are scaled by the mean and the spread of the rows given to `fit`.
    `log_folder` takes TensorBoard's files, as private as the rows are, in a folder named by the seed, so that
    teachers keep theirs apart. Everything random comes from `random_state`. A label that is silent in every
    row is answered 0, and `silent_labels_` names it.

    Guarantee: none by itself. Fitted to a part of a `Partition` it is a teacher: nothing but that part, and
               public weights, go in. Fitted to released labels of public clips it costs nothing more.
    Reference: the thesis on private audio tagging, section 4.4.

    >>> X = np.random.default_rng(7).normal(size=(40, 16, 16))
    >>> Y = np.stack([X[:, :, :8].mean(axis=(1, 2)) > 0, X[:, :, 8:].mean(axis=(1, 2)) > 0], axis=1)
    >>> tagger = AudioTagger("small", iterations=30, batch_size=8, device="cpu", random_state=7)
    >>> tagger.fit(X, Y).predict_proba(X).shape, tagger.n_steps_
    ((40, 2), 30)
    >>> tagger.predict(X[:3]).shape
    (3, 2)
    """

    multilabel = True
    _estimator_type = "classifier"
    # Where it is trained, and where that is logged, make no other network.
    not_made_of = ("device", "log_folder")

    n_labels_: int
    shape_: Shape
    state_: dict[str, NDArray[Any]]
    scale_: tuple[float, float]
    silent_labels_: list[int]
    n_steps_: int
    best_step_: int
    history_: list[list[float]]

    def __init__(
        self,
        network: str = "small",
        *,
        shape: tuple[int, int] | None = None,
        iterations: int = 1000,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        balanced: bool = True,
        mixup: float = 1.0,
        mixup_share: float = 0.5,
        weighted: bool = False,
        weight_bounds: tuple[float, float] = (0.5, 1.0),
        pretrained: str | PathLike[str] | None = None,
        held_out: float = 0.0,
        check_every: int = 50,
        patience: int = 0,
        device: str = "auto",
        n_threads: int = 1,
        log_folder: str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.network, self.shape, self.iterations, self.batch_size = network, shape, iterations, batch_size
        self.learning_rate, self.weight_decay, self.balanced = learning_rate, weight_decay, balanced
        self.mixup, self.mixup_share = mixup, mixup_share
        self.weighted, self.weight_bounds, self.pretrained = weighted, weight_bounds, pretrained
        self.held_out, self.check_every, self.patience = held_out, check_every, patience
        self.device, self.n_threads = device, n_threads
        self.log_folder, self.random_state = log_folder, random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        >>> AudioTagger(batch_size=32).get_params()["batch_size"]
        32
        """
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **parameters: Any) -> "AudioTagger":
        """Set parameters by name.

        >>> AudioTagger().set_params(mixup=0.0).mixup
        0.0
        """
        for name, value in parameters.items():
            if name not in _PARAMETERS:
                raise ValueError(f"Expected one of {', '.join(_PARAMETERS)}, got {name!r}.")
            setattr(self, name, value)
        return self

    def recipe(self) -> AudioRecipe:
        """Return how a network is trained, or refuse settings that cannot be.

        >>> AudioTagger(mixup=0.0).recipe().mixup
        """
        low, high = self.weight_bounds
        return AudioRecipe(
            iterations=self.iterations, batch_size=self.batch_size, learning_rate=self.learning_rate,
            weight_decay=self.weight_decay, balanced=self.balanced,
            mixup=Mixup(self.mixup, self.mixup_share) if self.mixup else None,
            weight_bounds=(low, high) if self.weighted else None, held_out=self.held_out,
            check_every=self.check_every, patience=self.patience,
        )  # fmt: skip

    def picture_shape(self, shape: Shape) -> Shape:
        """Return (1, frames, bins) for a table of pictures of this shape, or refuse it.

        >>> AudioTagger().picture_shape((40, 1001, 64)), AudioTagger(shape=(101, 32)).picture_shape((9, 3232))
        ((1, 1001, 64), (1, 101, 32))
        """
        own = tuple(int(n) for n in shape[1:])
        if self.shape is not None:
            frames, bins = (int(n) for n in self.shape)
            if own not in ((frames * bins,), (frames, bins), (1, frames, bins)):
                raise ValueError(f"Expected pictures of shape {(frames, bins)}, got rows of shape {own}.")
            return 1, frames, bins
        if len(own) == 3 and own[0] == 1:
            return own
        if len(own) != 2:
            raise ValueError(
                f"Expected pictures (rows, frames, bins), got rows of shape {own}. Give shape=(frames, bins)."
            )
        return 1, *own

    def fit(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        *,
        folder: str | PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> "AudioTagger":
        """Train a new network on pictures and the labels that were told of them.

        With a `folder` the training leaves a checkpoint there and goes on from it when called again with the
        same rows, labels and settings; it needs a `random_state`.

        >>> X, silence = np.zeros((4, 16, 16)), [[SILENT]] * 4
        >>> AudioTagger(iterations=1).fit(X, silence)
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
        if spoken.size < len(rows):
            rows, table = rows[spoken], table[spoken]
        recipe, shape, n_labels = self.recipe(), self.picture_shape(rows.shape), table.shape[1]
        device, seed = find_device(self.device), self._seed(folder)
        factory = network_factory(self.network, shape=shape, n_labels=n_labels)
        network = build_network(factory, shape, n_classes=n_labels, seed=seed)
        if self.pretrained is not None:
            load_pretrained(network, self.pretrained)
        self.scale_, self.shape_ = _scale(rows), shape
        checkpoint = None
        if folder is not None:
            # What the training begins with, not where it lies: a file may change under its name.
            begun = [values.numpy() for values in network.state_dict().values()]
            settings = {**self.get_params(), **dict.fromkeys(self.not_made_of), "pretrained": None}
            made_of = fingerprint(settings, rows, table, *begun)
            checkpoint = Checkpoint(Path(folder), made_of, recipe.check_every)
        log = None if self.log_folder is None else Path(self.log_folder) / f"seed-{seed}"
        with limited_threads(device, self.n_threads), open_board(log) as board:
            trained = train_network(
                network, rows, table, recipe, seed=seed, device=device, prepare=self._pictures,
                checkpoint=checkpoint, board=board, progress=progress,
            )  # fmt: skip
        if not trained.finite:
            raise TeacherFailed(LOST)
        self.n_labels_, self.state_ = n_labels, trained.state
        self.silent_labels_ = [int(label) for label in np.flatnonzero(~told.any(axis=0))]
        self.n_steps_, self.best_step_ = trained.n_steps, trained.best_step
        self.history_ = [list(line) for line in trained.history]
        return self

    def require_fit(self, shape: Shape, *, n_labels: int) -> None:
        """Refuse pictures of a shape, or settings, that training would refuse; nothing is trained.

        >>> AudioTagger("resnet18").require_fit((100, 1001, 16), n_labels=3)
        Traceback (most recent call last):
            ...
        ValueError: Expected at least 32 frames and 32 bins for network='resnet18', got 1001 and 16. ...
        """
        split_rows(int(shape[0]), self.recipe().held_out, seed=0)
        find_device(self.device)
        require_board(self.log_folder)
        require_count(n_threads=self.n_threads)
        own = self.picture_shape(shape)
        factory = network_factory(self.network, shape=own, n_labels=n_labels)
        if self.pretrained is not None:
            load_pretrained(build_network(factory, own, n_classes=n_labels, seed=0), self.pretrained)

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

        >>> AudioTagger().predict_proba(np.zeros((1, 16, 16)))
        Traceback (most recent call last):
            ...
        ValueError: Expected a fitted AudioTagger. Call fit(X, Y) first.
        """
        self._require_fitted()
        rows = numeric_rows(X)
        if int(np.prod(rows.shape[1:])) != int(np.prod(self.shape_)):
            raise ValueError(f"Expected pictures of shape {self.shape_[1:]}, got rows of {rows.shape[1:]}.")
        factory = network_factory(self.network, shape=self.shape_, n_labels=self.n_labels_)
        device = find_device(self.device)
        with limited_threads(device, self.n_threads):
            said = answer(factory, self.state_, rows, prepare=self._pictures, device=device)
        said[:, self.silent_labels_] = 0.0
        return said

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return 1 for every label whose probability is above one half, rows x labels."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)

    def to_bytes(self) -> bytes:
        """Return the fitted tagger as a safetensors file: numbers and their names, no code.

        >>> X = np.random.default_rng(7).normal(size=(6, 16, 16))
        >>> tagger = AudioTagger(iterations=1, batch_size=2, device="cpu", random_state=7)
        >>> tagger = tagger.fit(X, [[0], [1]] * 3)
        >>> same = AudioTagger.from_bytes(tagger.to_bytes())
        >>> bool((same.predict_proba(X) == tagger.predict_proba(X)).all())
        True
        """
        self._require_fitted()
        # Places on somebody's disk are no part of a model, nor is the device of whoever trained it.
        about = {
            "parameters": {**self.get_params(), "pretrained": None, "log_folder": None, "device": "auto"},
            "n_labels": self.n_labels_, "silent_labels": self.silent_labels_, "shape": self.shape_,
            "scale": self.scale_, "n_steps": self.n_steps_, "best_step": self.best_step_,
        }  # fmt: skip
        return pack_weights(self.state_, about)

    @classmethod
    def from_bytes(cls, content: bytes) -> "AudioTagger":
        """Return the tagger of a safetensors file.

        >>> AudioTagger.from_bytes(b"something else")
        Traceback (most recent call last):
            ...
        ValueError: Expected the bytes of AudioTagger.to_bytes(), got something else.
        """
        try:
            state, about = unpack_weights(content)
            given = about["parameters"]
            for name in ("shape", "weight_bounds"):  # JSON has lists alone
                given[name] = None if given[name] is None else tuple(given[name])
            made = cls(**given)
            made.state_, made.shape_ = state, tuple(int(n) for n in about["shape"])
            made.n_labels_, made.scale_ = int(about["n_labels"]), (about["scale"][0], about["scale"][1])
            made.silent_labels_ = [int(label) for label in about["silent_labels"]]
            made.n_steps_, made.best_step_, made.history_ = about["n_steps"], about["best_step"], []
        except Exception as error:  # whatever is wrong with a file, it is one kind of error
            raise ValueError("Expected the bytes of AudioTagger.to_bytes(), got something else.") from error
        factory = network_factory(made.network, shape=made.shape_, n_labels=made.n_labels_)
        made.state_ = fit_state(state, factory)
        return made

    def _pictures(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        mean, spread = self.scale_
        shaped = np.asarray(rows, dtype=np.float32).reshape(len(rows), *self.shape_)
        return np.asarray((shaped - np.float32(mean)) / np.float32(spread), dtype=np.float32)

    def _seed(self, folder: str | PathLike[str] | None) -> int:
        if self.random_state is not None:
            return int(self.random_state)
        if folder is not None:
            raise ValueError(
                "Expected random_state with a folder: without it the training that was begun cannot go on."
            )
        return int(np.random.SeedSequence().generate_state(1)[0])

    def _require_fitted(self) -> None:
        if not hasattr(self, "state_"):
            raise ValueError("Expected a fitted AudioTagger. Call fit(X, Y) first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def __repr__(self) -> str:
        return f"AudioTagger(network={self.network!r}, iterations={self.iterations!r})"


def _scale(rows: NDArray[Any]) -> tuple[float, float]:
    """Return mean and spread of all numbers, read in pieces: rows may be larger than memory."""
    n = total = square = 0.0
    for start in range(0, len(rows), _CHUNK):
        part = np.asarray(rows[start : start + _CHUNK], dtype=np.float64)
        n, total, square = n + part.size, total + part.sum(), square + np.square(part).sum()
    mean = total / n
    spread = float(np.sqrt(max(square / n - mean**2, 0.0)))
    return float(mean), spread if spread > 0 else 1.0
