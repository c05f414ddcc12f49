"""One class per clip, by a tagger: the class whose label is likeliest."""

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..rows import class_ids, numeric_rows
from .descent import Progress
from .tagger import AudioTagger

_FORM = "Expected the bytes of AudioClassifier.to_bytes(), got something else."


class AudioClassifier:
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
    """

    _estimator_type = "classifier"
    not_made_of = tuple(f"tagger__{name}" for name in AudioTagger.not_made_of)

    def __init__(self, tagger: AudioTagger, *, n_classes: int) -> None:
        self.tagger, self.n_classes = tagger, n_classes

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the tagger and the number of classes and, if `deep`, the tagger's own parameters.

        >>> AudioClassifier(AudioTagger("small"), n_classes=3).get_params()["tagger__network"]
        'small'
        """
        own: dict[str, Any] = {"tagger": self.tagger, "n_classes": self.n_classes}
        if deep:
            own |= {f"tagger__{name}": value for name, value in self.tagger.get_params().items()}
        return own

    def set_params(self, **parameters: Any) -> "AudioClassifier":
        """Set the tagger, the number of classes, or parameters of the tagger.

        >>> AudioClassifier(AudioTagger(), n_classes=3).set_params(tagger__mixup=0.0).tagger.mixup
        0.0
        """
        for name in ("tagger", "n_classes"):
            if name in parameters:
                setattr(self, name, parameters.pop(name))
        if parameters:
            self.tagger.set_params(
                **{name.removeprefix("tagger__"): value for name, value in parameters.items()}
            )
        return self

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        folder: str | PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> "AudioClassifier":
        """Train a new network on pictures and their classes; see `AudioTagger.fit`.

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
        self.tagger.fit(rows, table, folder=folder, progress=progress)
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

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the share of rows whose class is right."""
        return float((self.predict(X) == np.asarray(y)).mean())

    def to_bytes(self) -> bytes:
        """Return the fitted classifier as a safetensors file: that of its tagger.

        >>> X, y = np.random.default_rng(7).normal(size=(4, 16, 16)), [0, 1, 0, 1]
        >>> tagger = AudioTagger(iterations=1, batch_size=2, device="cpu", random_state=7)
        >>> model = AudioClassifier(tagger, n_classes=2).fit(X, y)
        >>> bool((AudioClassifier.from_bytes(model.to_bytes()).predict(X) == model.predict(X)).all())
        True
        """
        return self.tagger.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> "AudioClassifier":
        """Return the classifier of a safetensors file.

        >>> AudioClassifier.from_bytes(b"something else")
        Traceback (most recent call last):
            ...
        ValueError: Expected the bytes of AudioClassifier.to_bytes(), got something else.
        """
        try:
            tagger = AudioTagger.from_bytes(content)
        except ValueError as error:
            raise ValueError(_FORM) from error
        made = cls(tagger, n_classes=tagger.n_labels)
        made.classes_ = np.arange(tagger.n_labels)
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.tagger, "state_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), transformer_tags=None,
            classifier_tags=ClassifierTags(), regressor_tags=None, input_tags=InputTags(three_d_array=True),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"AudioClassifier({self.tagger!r}, n_classes={self.n_classes!r})"


def audio_classifier(*, n_classes: int, **tagger: Any) -> AudioClassifier:
    """Return a classifier before it is fitted, from plain numbers and words, as files have them.

    `tagger` are the parameters of `AudioTagger`.

    >>> audio_classifier(n_classes=3, iterations=5, shape=[101, 64])
    AudioClassifier(AudioTagger(network='small', iterations=5), n_classes=3)
    """
    return AudioClassifier(AudioTagger(**tagger), n_classes=n_classes)
