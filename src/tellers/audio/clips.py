"""Clips: which recording carries which labels, and whose it is. No sound is read here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Clips:
    """A table of recordings: where each one lies, its labels (0 or 1), its fold and its source.

    `sources` names what a clip was cut from: a longer recording, a video, an uploader. Clips of one source
    are alike, so a deal that keeps sources together protects the source and not only the clip. `folds` are
    those of the publisher: numbers, or names such as "train" and "eval". `notes` says what was left out while
    reading.

    >>> names = ["bell", "siren"]
    >>> clips = Clips(name="tiny", paths=["a.wav", "b.wav"], Y=[[1, 0], [0, 1]], label_names=names)
    >>> clips, clips.labels_of(1)
    (Clips('tiny', n_clips=2, n_labels=2), ('siren',))
    >>> clips.take([1]).paths[0].name
    'b.wav'
    """

    name: str
    paths: tuple[Path, ...]
    Y: NDArray[np.int8]
    label_names: tuple[str, ...]
    sources: NDArray[Any] | None = None
    folds: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        paths = tuple(Path(path) for path in self.paths)
        names = tuple(str(name) for name in self.label_names)
        Y = np.asarray(self.Y)
        if Y.ndim != 2 or Y.shape != (len(paths), len(names)) or Y.size == 0:
            raise ValueError(
                f"Expected Y of shape ({len(paths)}, {len(names)}), a row per clip and a column per "
                f"label, got shape {Y.shape}."
            )
        if Y.dtype.kind not in "biuf" or not np.isin(Y, (0, 1)).all():
            raise ValueError("Expected 0 or 1 in Y, got another value.")
        if len(set(names)) != len(names):
            raise ValueError("Expected different label names, got one twice.")
        kept: dict[str, Any] = {"paths": paths, "label_names": names, "Y": Y.astype(np.int8)}
        for column in ("sources", "folds"):
            if getattr(self, column) is not None:
                values = np.asarray(getattr(self, column))
                if values.shape != (len(paths),):
                    raise ValueError(
                        f"Expected {column} with one entry for each of {len(paths)} clips, "
                        f"got shape {values.shape}."
                    )
                kept[column] = values
        for field, value in kept.items():
            if isinstance(value, np.ndarray):
                value = value.view()
                value.flags.writeable = False
            object.__setattr__(self, field, value)

    @property
    def n_labels(self) -> int:
        """Return how many labels there are."""
        return len(self.label_names)

    @property
    def classes(self) -> NDArray[np.int64]:
        """Return the class of each clip, where every clip carries exactly one label."""
        if not (self.Y.sum(axis=1) == 1).all():
            raise ValueError(f"Expected one label for each clip, in {self.name!r} some carry more or none.")
        found: NDArray[np.int64] = self.Y.argmax(axis=1).astype(np.int64)
        return found

    def labels_of(self, clip: int) -> tuple[str, ...]:
        """Return the names of a clip's labels."""
        return tuple(self.label_names[j] for j in np.flatnonzero(self.Y[clip]))

    def take(self, rows: ArrayLike) -> "Clips":
        """Return the table of some clips, by their numbers or by a mask."""
        index = np.asarray(rows)
        if index.ndim != 1 or index.dtype.kind not in "iub" or index.size == 0:
            raise ValueError(
                f"Expected clip numbers or a mask in one dimension, got {index.dtype} of shape {index.shape}."
            )
        numbers = np.flatnonzero(index) if index.dtype.kind == "b" else index
        if index.dtype.kind == "b" and len(index) != len(self):
            raise ValueError(f"Expected a mask of {len(self)} entries, got {len(index)}.")
        return replace(
            self,
            paths=tuple(self.paths[i] for i in numbers),
            Y=self.Y[numbers],
            sources=None if self.sources is None else self.sources[numbers],
            folds=None if self.folds is None else self.folds[numbers],
        )

    def with_labels(self, names: Iterable[str]) -> "Clips":
        """Return the table with these labels alone, and without the clips that carry none of them.

        >>> clips = Clips(name="t", paths=["a", "b"], Y=[[1, 0], [0, 1]], label_names=["bell", "siren"])
        >>> clips.with_labels(["siren"])
        Clips('t', n_clips=1, n_labels=1)
        """
        wanted = tuple(names)
        unknown = sorted(set(wanted) - set(self.label_names))
        if unknown or not wanted:
            raise ValueError(f"Expected labels of {self.name!r}, got {', '.join(unknown) or 'none'}.")
        columns = [self.label_names.index(name) for name in wanted]
        kept = replace(self, Y=self.Y[:, columns], label_names=wanted)
        return kept.take(kept.Y.any(axis=1))

    def at_most(self, n_labels: int) -> "Clips":
        """Return the table without clips that carry more than so many labels.

        >>> clips = Clips(name="t", paths=["a", "b"], Y=[[1, 1], [0, 1]], label_names=["bell", "siren"])
        >>> len(clips.at_most(1))
        1
        """
        return self.take(self.Y.sum(axis=1) <= n_labels)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"Clips({self.name!r}, n_clips={len(self)}, n_labels={self.n_labels})"


def label_matrix(label_sets: Sequence[Iterable[str]], names: Sequence[str]) -> NDArray[np.int8]:
    """Return one row of zeros and ones for each set of labels; labels that are not named are left out.

    >>> label_matrix([{"bell"}, {"bell", "siren", "dog"}], ["bell", "siren"]).tolist()
    [[1, 0], [1, 1]]
    """
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(label_sets), len(names)), dtype=np.int8)
    for i, labels in enumerate(label_sets):
        for label in labels:
            if label in column:
                Y[i, column[label]] = 1
    return Y
