"""Networks that tag clips, or choose one class per clip, in the manner of scikit-learn classifiers."""

from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import TeacherFailed, require_count
from ..privacy._rows import class_ids, label_table, numeric_rows
from .checkpoints import Checkpoint, fingerprint
from .devices import find_device, limited_threads
from .estimator import LabelAnswers, TorchEstimator, drawn_seed, told_rows
from .loop import LOST, Progress
from .networks import Factory, Shape, build_network, network_factory
from .sound_training import (
    AudioRecipe,
    Mixup,
    SoundBatches,
    answer,
    blank_network,
    open_board,
    require_board,
    split_rows,
    train_network,
)
from .weights import bytes_of, load_arrays, load_pretrained

_CHUNK = 256


@dataclass(eq=False, repr=False)
class AudioTagger(LabelAnswers):
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
    >>> same = AudioTagger.from_bytes(tagger.to_bytes())
    >>> bool((same.predict_proba(X) == tagger.predict_proba(X)).all())
    True
    >>> tagger.predict(X[:3]).shape, tagger.set_params(mixup=0.0).get_params()["mixup"]
    ((3, 2), 0.0)
    """

    # Where it is trained, and where that is logged, make no other network.
    not_made_of: ClassVar[tuple[str, ...]] = ("device", "log_folder")
    _kept: ClassVar[tuple[str, ...]] = (
        "n_labels", "silent_labels", "shape", "scale", "n_steps", "best_step",
    )  # fmt: skip

    network: str = "small"
    _: KW_ONLY
    shape: tuple[int, int] | None = None
    iterations: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    balanced: bool = True
    mixup: float = 1.0
    mixup_share: float = 0.5
    weighted: bool = False
    weight_bounds: tuple[float, float] = (0.5, 1.0)
    pretrained: str | PathLike[str] | None = None
    held_out: float = 0.0
    check_every: int = 50
    patience: int = 0
    device: str = "auto"
    n_threads: int = 1
    log_folder: str | PathLike[str] | None = None
    random_state: int | None = None

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

        >>> from tellers import SILENT
        >>> X, silence = np.zeros((4, 16, 16)), [[SILENT]] * 4
        >>> AudioTagger(iterations=1).fit(X, silence)
        Traceback (most recent call last):
            ...
        ValueError: Expected at least one label that was told, got silence alone. Ask more queries.
        """
        rows = numeric_rows(X)
        table = label_table(Y, n_rows=len(rows), silent=True)
        spoken, silent_labels = told_rows(table)
        if spoken.size < len(rows):
            rows, table = rows[spoken], table[spoken]
        recipe, shape, n_labels = self.recipe(), self.picture_shape(rows.shape), table.shape[1]
        device, seed = find_device(self.device), self._seed(folder)
        network = build_network(self._factory(shape, n_labels), shape, n_classes=n_labels, seed=seed)
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
            batches = SoundBatches(rows, table, recipe, seed=seed, device=device, prepare=self._pictures)
            course = train_network(network, batches, checkpoint=checkpoint, board=board, progress=progress)
        if not course.is_finite:
            raise TeacherFailed(LOST)
        self.n_labels_, self.state_, self.silent_labels_ = n_labels, course.best, silent_labels
        self.n_steps_, self.best_step_ = course.step, course.best_step
        self.history_ = [list(line) for line in course.history]
        return self

    def _factory(self, shape: Shape, n_labels: int) -> Factory:
        return network_factory(self.network, shape=shape, n_labels=n_labels)

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
        factory = self._factory(own, n_labels)
        if self.pretrained is not None:
            load_pretrained(build_network(factory, own, n_classes=n_labels, seed=0), self.pretrained)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of every label, rows x labels."""
        self._check_fitted()
        rows = numeric_rows(X)
        if int(np.prod(rows.shape[1:])) != int(np.prod(self.shape_)):
            raise ValueError(f"Expected pictures of shape {self.shape_[1:]}, got rows of {rows.shape[1:]}.")
        factory = self._factory(self.shape_, self.n_labels_)
        device = find_device(self.device)
        with limited_threads(device, self.n_threads):
            said = answer(factory, self.state_, rows, prepare=self._pictures, device=device)
        said[:, self.silent_labels_] = 0.0
        return said

    def _stored_parameters(self) -> dict[str, Any]:
        # Places on somebody's disk are no part of a model, nor is the device of whoever trained it.
        return {**self.get_params(), "pretrained": None, "log_folder": None, "device": "auto"}

    def _check_weights(self) -> None:
        self.history_ = []
        load_arrays(blank_network(self._factory(self.shape_, self.n_labels_)), self.state_)

    def _pictures(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        mean, spread = self.scale_
        shaped = np.asarray(rows, dtype=np.float32).reshape(len(rows), *self.shape_)
        return np.asarray((shaped - np.float32(mean)) / np.float32(spread), dtype=np.float32)

    def _seed(self, folder: str | PathLike[str] | None) -> int:
        if folder is not None and self.random_state is None:
            raise ValueError(
                "Expected random_state with a folder: without it the training that was begun cannot go on."
            )
        return drawn_seed(self.random_state)

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


@dataclass(eq=False, repr=False)
class AudioClassifier(TorchEstimator):
    """A tagger for clips of one class each: every class is a label, and the likeliest one is the answer.

    `n_classes` declares the classes 0 to n_classes - 1; they are not read off private labels. The rest is
    said by the `tagger`, with its balanced batches, mixup and weights.

    >>> X, y = np.random.default_rng(7).normal(size=(12, 16, 16)), np.arange(12) % 3
    >>> tagger = AudioTagger(iterations=2, batch_size=4, device="cpu", random_state=7)
    >>> AudioClassifier(tagger, n_classes=3).fit(X, y).predict_proba(X).sum(axis=1).round(6)[:2]
    array([1., 1.])
    >>> model = AudioClassifier(tagger, n_classes=3).fit(X, y)
    >>> model.predict(X).shape, 0 <= model.score(X, y) <= 1
    ((12,), True)
    >>> bool((AudioClassifier.from_bytes(model.to_bytes()).predict(X) == model.predict(X)).all())
    True
    >>> model.set_params(tagger__mixup=0.0).get_params()["tagger__mixup"]
    0.0
    """

    not_made_of: ClassVar[tuple[str, ...]] = tuple(f"tagger__{name}" for name in AudioTagger.not_made_of)

    tagger: AudioTagger
    _: KW_ONLY
    n_classes: int

    def fit(self, X: ArrayLike, y: ArrayLike, **training: Any) -> "AudioClassifier":
        """Train a new network on pictures and their classes; `training` is what `AudioTagger.fit` takes.

        >>> AudioClassifier(AudioTagger(), n_classes=2).fit(np.zeros((2, 16, 16)), [0, 2])
        Traceback (most recent call last):
            ...
        ValueError: Expected classes 0..1 in y (n_classes=2), got another in row 1. Declare every class.
        """
        require_count(2, n_classes=self.n_classes)
        rows, classes = numeric_rows(X), np.asarray(y)
        if classes.shape != (len(rows),):
            raise ValueError(
                f"Expected y with one class for each of {len(rows)} rows, got shape {classes.shape}."
            )
        told = class_ids(classes, n_classes=int(self.n_classes))
        table = np.eye(int(self.n_classes), dtype=np.int64)[told]
        self.tagger.fit(rows, table, **training)
        self.classes_ = np.arange(int(self.n_classes))
        return self

    def require_fit(self, shape: tuple[int, ...], *, n_labels: int) -> None:
        """Refuse classes, pictures of a shape, or settings, that training would refuse; nothing is trained.

        >>> AudioClassifier(AudioTagger(), n_classes=2).require_fit((9, 101, 64), n_labels=3)
        Traceback (most recent call last):
            ...
        ValueError: Expected n_classes=3, as there are classes, got n_classes=2.
        """
        if self.n_classes != n_labels:
            raise ValueError(
                f"Expected n_classes={n_labels}, as there are classes, got n_classes={self.n_classes}."
            )
        self.tagger.require_fit(shape, n_labels=n_labels)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class: the labels' own, divided by their sum."""
        said = self.tagger.predict_proba(X)
        # Where every label is out of the question no class is likelier than another.
        said = np.maximum(said, 1e-12)
        return np.asarray(said / said.sum(axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the likeliest class of every row."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), dtype=np.int64)

    def to_bytes(self) -> bytes:
        """Return the fitted classifier as a safetensors file: that of its tagger."""
        return self.tagger.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes, *, network: Factory | None = None) -> "AudioClassifier":
        """Return the classifier of a safetensors file."""
        with bytes_of("AudioClassifier"):
            tagger = AudioTagger.from_bytes(content)
        made = cls(tagger, n_classes=tagger.n_labels)
        made.classes_ = np.arange(tagger.n_labels)
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.tagger, "state_")

    def __repr__(self) -> str:
        return f"AudioClassifier({self.tagger!r}, n_classes={self.n_classes!r})"


def audio_classifier(*, n_classes: int, **tagger: Any) -> AudioClassifier:
    """Return a classifier before it is fitted, from plain numbers and words, as files have them.

    `tagger` are the parameters of `AudioTagger`.

    >>> audio_classifier(n_classes=3, iterations=5, shape=[101, 64])
    AudioClassifier(AudioTagger(network='small', iterations=5), n_classes=3)
    """
    return AudioClassifier(AudioTagger(**tagger), n_classes=n_classes)
