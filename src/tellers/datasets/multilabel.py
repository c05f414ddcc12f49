"""Data sets with many labels per example: features, or images that are decoded when they are asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import MissingExtra, require_count
from ..rows import KeptRows, numeric_rows
from .places import Places

UNKNOWN = -1
Policy = Literal["zeros", "ones", "ignore"]
"""What becomes of a label that is marked as not certain: no, yes, or `UNKNOWN`."""
POLICIES = ("zeros", "ones", "ignore")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MultilabelDataset:
    """Rows that carry yes (1), no (0) or `UNKNOWN` (-1) for every label; checked, and read-only.

    A row is a row of `X`, or the image at its place in `paths`; `decoded` turns the second into the first,
    and `image_shape` then gives rows their shape back. `persons` names whose row it is, so that teachers can
    be dealt persons instead of rows, `ids` the row itself, `sites` where it was collected. `notes` says what
    was decided while reading; `places` where rows stood in a table of which some lines could not be used.

    >>> names = ("cat", "dog")
    >>> data = MultilabelDataset(name="tiny", X=[[0.5], [1.5]], Y=[[1, 0], [0, 1]], label_names=names)
    >>> data, data.take([1]).Y.tolist()
    (MultilabelDataset('tiny', n_rows=2, n_labels=2, n_features=1), [[0, 1]])
    """

    name: str
    Y: NDArray[np.int8]
    label_names: tuple[str, ...]
    X: Any = None  # an array, rows kept elsewhere, or None where rows are images that were not decoded yet
    feature_names: tuple[str, ...] = ()
    paths: tuple[Path, ...] | None = None
    persons: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    sites: NDArray[Any] | None = None
    image_shape: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()
    places: Places | None = None

    def __post_init__(self) -> None:
        Y, names = np.asarray(self.Y), tuple(str(name) for name in self.label_names)
        if Y.ndim != 2 or Y.size == 0:
            raise ValueError(f"Expected Y of shape (rows, labels), neither empty, got shape {Y.shape}.")
        if Y.dtype.kind not in "biuf" or not np.isin(Y, (0, 1, UNKNOWN)).all():
            raise ValueError(f"Expected 0, 1 or {UNKNOWN} (not known) in Y, got another value.")
        if len(names) != Y.shape[1] or len(set(names)) != len(names):
            raise ValueError(
                f"Expected {Y.shape[1]} different label names, got {len(names)}, {len(set(names))} different."
            )
        kept: dict[str, Any] = {"Y": Y.astype(np.int8), "label_names": names}
        if (self.X is None) == (self.paths is None):
            raise ValueError("Expected either X or paths: rows of features, or images.")
        if self.X is not None:
            kept["X"] = self.X if isinstance(self.X, KeptRows) else numeric_rows(self.X)
            if len(kept["X"].shape) != 2:
                raise ValueError(f"Expected X of shape (rows, features), got shape {kept['X'].shape}.")
            if self.feature_names and len(self.feature_names) != kept["X"].shape[1]:
                raise ValueError(
                    f"Expected {kept['X'].shape[1]} feature names, got {len(self.feature_names)}."
                )
            if self.image_shape is not None and math.prod(self.image_shape) != kept["X"].shape[1]:
                raise ValueError(
                    f"Expected images of {kept['X'].shape[1]} numbers, got image_shape={self.image_shape}."
                )
        if self.paths is not None:
            kept["paths"] = tuple(Path(path) for path in self.paths)
        for what in ("persons", "ids", "sites"):
            if getattr(self, what) is not None:
                kept[what] = np.asarray(getattr(self, what))
        for what in ("X", "paths", "persons", "ids", "sites"):
            if what in kept and len(kept[what]) != len(Y):
                raise ValueError(
                    f"Expected {what} with one entry for each of {len(Y)} rows, got {len(kept[what])}."
                )
        for field, value in kept.items():
            if isinstance(value, np.ndarray):
                value = value.view()
                value.flags.writeable = False
            object.__setattr__(self, field, value)

    @property
    def n_labels(self) -> int:
        """Return how many labels a row carries."""
        return int(self.Y.shape[1])

    @property
    def n_features(self) -> int:
        """Return how many numbers a row has."""
        if self.X is None:
            raise ValueError(f"Expected rows of numbers, {self.name!r} has images. Decode them (decoded).")
        return int(self.X.shape[1])

    @property
    def y(self) -> NDArray[np.int64]:
        """Return the labels as models learn them, 0 and 1 in whole numbers; labels not known are refused."""
        if not self.known.all():
            row, label = (int(i) for i in np.argwhere(~self.known)[0])
            raise ValueError(
                f"Expected 0 or 1 for every label in {self.name!r}, got one that is not known in row {row}, "
                f'label {self.label_names[label]!r}. Say what becomes of it, "zeros" or "ones", when reading.'
            )
        return self.Y.astype(np.int64)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return which labels are known, (rows, labels)."""
        return np.asarray(self.Y != UNKNOWN)

    def take(self, rows: ArrayLike) -> "MultilabelDataset":
        """Return the data set of some rows, by their numbers or by a mask."""
        index = np.asarray(rows)
        if index.ndim != 1 or index.dtype.kind not in "iub" or index.size == 0:
            raise ValueError(
                f"Expected row numbers or a mask in one dimension, got {index.dtype} of shape {index.shape}."
            )
        places = np.arange(len(self))[index]
        return replace(
            self,
            Y=self.Y[places],
            X=None if self.X is None else self.X[places],
            paths=None if self.paths is None else tuple(self.paths[i] for i in places),
            persons=None if self.persons is None else self.persons[places],
            ids=None if self.ids is None else self.ids[places],
            sites=None if self.sites is None else self.sites[places],
            places=None if self.places is None else self.places.take(places),
        )

    def choose(self, label_names: Sequence[str]) -> "MultilabelDataset":
        """Return the data set of some labels, in the order given.

        >>> names = ("cat", "dog")
        >>> data = MultilabelDataset(name="tiny", X=[[0.5], [1.5]], Y=[[1, 0], [0, 1]], label_names=names)
        >>> data.choose(["dog"]).Y.tolist()
        [[0], [1]]
        >>> data.choose(["dgo"])
        Traceback (most recent call last):
            ...
        ValueError: Expected labels of 'tiny' (cat, dog), got 'dgo'.
        """
        for name in label_names:
            if name not in self.label_names:
                raise ValueError(
                    f"Expected labels of {self.name!r} ({', '.join(self.label_names)}), got {name!r}."
                )
        columns = [self.label_names.index(name) for name in label_names]
        return replace(self, Y=self.Y[:, columns], label_names=tuple(label_names))

    def decoded(self, *, size: tuple[int, int], grey: bool = False) -> "MultilabelDataset":
        """Return the data set with its images as rows of numbers, which is what teachers learn from.

        All images are in memory then, as float32; a file that cannot be read is an error that names it.

        >>> data = MultilabelDataset(name="x", Y=[[1]], label_names=("cat",), paths=(Path("missing.png"),))
        >>> data.decoded(size=(8, 8))
        Traceback (most recent call last):
            ...
        ValueError: Expected an image in row 0, found no file at missing.png. ...
        """
        images = self.images(size=size, grey=grey)
        return replace(self, X=images.reshape(len(self), -1), paths=None, image_shape=images.shape[1:])

    def images(
        self, rows: ArrayLike | None = None, *, size: tuple[int, int], grey: bool = False
    ) -> NDArray[np.float32]:
        """Decode images: float32 in [0, 1], (rows, height, width, 3), or without the last axis if `grey`.

        All of them or none: a file that cannot be read is an error that names it.

        >>> data = MultilabelDataset(name="x", Y=[[1]], label_names=("cat",), paths=(Path("missing.png"),))
        >>> data.images(size=(8, 8))
        Traceback (most recent call last):
            ...
        ValueError: Expected an image in row 0, found no file at missing.png. ...
        """
        if self.paths is None:
            raise ValueError(f"Expected a data set of images, {self.name!r} has features.")
        require_count(height=size[0], width=size[1])
        places = np.arange(len(self)) if rows is None else np.arange(len(self))[np.asarray(rows)]
        shape = (len(places), *size) if grey else (len(places), *size, 3)
        result = np.empty(shape, dtype=np.float32)
        for i, row in enumerate(places):
            result[i] = decode(self.paths[row], size=size, grey=grey, row=int(row))
        return result

    def __len__(self) -> int:
        return len(self.Y)

    def __repr__(self) -> str:
        kind = "images" if self.X is None else f"n_features={self.X.shape[1]}"
        there = [name for name in ("persons", "ids", "sites") if getattr(self, name) is not None]
        shape = f"n_rows={len(self)}, n_labels={self.n_labels}"
        return f"MultilabelDataset({', '.join([repr(self.name), shape, kind, *there])})"


def decode(path: Path, *, size: tuple[int, int], grey: bool = False, row: int = 0) -> NDArray[np.float32]:
    """Return one image, resized, as float32 in [0, 1].

    >>> decode(Path("missing.png"), size=(8, 8))
    Traceback (most recent call last):
        ...
    ValueError: Expected an image in row 0, found no file at missing.png. ...
    """
    if not path.is_file():
        raise ValueError(f"Expected an image in row {row}, found no file at {path}. Check where images lie.")
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Expected Pillow to decode images: pip install 'tellers[images]'") from None
    try:
        with Image.open(path) as image:
            fitted = image.convert("L" if grey else "RGB").resize(
                (size[1], size[0]), Image.Resampling.BILINEAR
            )
        return np.asarray(fitted, dtype=np.float32) / np.float32(255)
    except Exception as error:  # the decoder raises whatever a damaged file makes it stumble over
        raise ValueError(f"Expected an image in row {row}, could not read {path}. Fetch it again.") from error


def settle(value: int, *, policy: Policy) -> int:
    """Return what a label is, 1, 0 or UNKNOWN, where -1 means that nobody is certain.

    >>> [settle(-1, policy=policy) for policy in POLICIES], settle(1, policy="zeros")
    ([0, 1, -1], 1)
    """
    return value if value != UNKNOWN else {"zeros": 0, "ones": 1, "ignore": UNKNOWN}[policy]


def require_policy(**given: str) -> None:
    """Refuse anything but the names of policies, naming the argument.

    >>> require_policy(uncertain="maybe")
    Traceback (most recent call last):
        ...
    ValueError: Expected uncertain to be one of zeros, ones, ignore, got 'maybe'.
    """
    for name, value in given.items():
        if value not in POLICIES:
            raise ValueError(f"Expected {name} to be one of {', '.join(POLICIES)}, got {value!r}.")


def require_images(paths: Sequence[Path]) -> None:
    """Refuse a list of images of which one is not there, naming the first.

    >>> require_images([Path("missing.png")])
    Traceback (most recent call last):
        ...
    ValueError: Expected an image in row 0, found no file at missing.png. ...
    """
    for row, path in enumerate(paths):
        if not path.is_file():
            raise ValueError(
                f"Expected an image in row {row}, found no file at {path}. Check where images lie, or pass "
                "check_images=False to read labels alone."
            )
