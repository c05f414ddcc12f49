"""Clips: which recording carries which labels, and whose it is. No sound is read here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

READ_OFF = "label names were read off the table"
"""A note: nobody declared the labels, so that the list itself tells something of the clips."""
_SHOWN = 12  # labels, in an error


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Clips:
    """A table of recordings: where each one lies, its labels (0 or 1), its fold and its source.

    `sources` names what a clip was cut from: a longer recording, a video, an uploader. Clips of one source
    are alike, so a deal that keeps sources together protects the source and not only the clip. `folds` are
    those of the publisher: numbers, or names such as "train" and "eval". `left_out` marks clips that are none
    of the task, because of their labels: clips are dealt by their place in the table, so they keep theirs,
    and nobody gets them. `notes` says how many.

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
    left_out: NDArray[np.bool_] | None = None

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
        for column in ("sources", "folds", "left_out"):
            if getattr(self, column) is not None:
                values = np.asarray(getattr(self, column), dtype=bool if column == "left_out" else None)
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
        """Return the class of each clip, where all carry exactly one label; -1 for those left out."""
        if not (self.Y[self.wanted].sum(axis=1) == 1).all():
            raise ValueError(f"Expected one label for each clip, in {self.name!r} some carry more or none.")
        return np.where(self.wanted, self.Y.argmax(axis=1), -1).astype(np.int64)

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """Return which clips are of the task: all that were not left out for their labels."""
        return np.ones(len(self), dtype=bool) if self.left_out is None else ~self.left_out

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
        if not numbers.size:
            raise ValueError(f"Expected some clips of {self.name!r}, got none. Choose other ones.")
        return replace(
            self,
            paths=tuple(self.paths[i] for i in numbers),
            Y=self.Y[numbers],
            sources=None if self.sources is None else self.sources[numbers],
            folds=None if self.folds is None else self.folds[numbers],
            left_out=None if self.left_out is None else self.left_out[numbers],
        )

    def with_labels(self, names: Iterable[str]) -> "Clips":
        """Return the table with these labels alone; clips that carry none of them are left out.

        The names are declared: one that no clip carries is a label of the task all the same, so that the list
        says nothing of the clips.

        >>> clips = Clips(name="t", paths=["a", "b"], Y=[[1, 0], [0, 1]], label_names=["bell", "siren"])
        >>> some = clips.with_labels(["siren", "horn"])
        >>> some, some.Y.tolist(), some.wanted.tolist()
        (Clips('t', n_clips=2, n_labels=2), [[0, 0], [1, 0]], [False, True])
        """
        declared = tuple(names)
        if not declared or not all(name.strip() for name in declared):
            raise ValueError("Expected names of labels, got none, or one without a letter.")
        Y = np.zeros((len(self), len(declared)), dtype=np.int8)
        for column, name in enumerate(declared):
            if name in self.label_names:
                Y[:, column] = self.Y[:, self.label_names.index(name)]
        if not Y.any():
            known = ", ".join(self.label_names[:_SHOWN]) + (", ..." if self.n_labels > _SHOWN else "")
            raise ValueError(
                f"Expected labels of {self.name!r}, no clip carries any of {', '.join(declared[:_SHOWN])}. "
                f"Take some of {known}."
            )
        notes = tuple(note for note in self.notes if note != READ_OFF)
        table = replace(self, Y=Y, label_names=declared, notes=notes)
        return table.leave_out(~Y.any(axis=1), why="none of the labels")

    def at_most(self, n_labels: int) -> "Clips":
        """Return the table in which clips that carry more than so many labels are left out.

        >>> clips = Clips(name="t", paths=["a", "b"], Y=[[1, 1], [0, 1]], label_names=["bell", "siren"])
        >>> clips.at_most(1).wanted.tolist()
        [False, True]
        """
        many = self.Y.sum(axis=1) > n_labels
        if many.all():
            raise ValueError(
                f"Expected clips with at most {n_labels} labels in {self.name!r}, all have more. Allow more."
            )
        return self.leave_out(many, why=f"more than {n_labels} labels")

    def leave_out(self, rows: ArrayLike, *, why: str = "") -> "Clips":
        """Return the table in which some clips, by a mask, are none of the task; they keep their place.

        >>> clips = Clips(name="t", paths=["a", "b"], Y=[[1, 1], [0, 1]], label_names=["bell", "siren"])
        >>> len(clips.leave_out([True, False])), clips.leave_out([True, False]).wanted.tolist()
        (2, [False, True])
        """
        others = np.asarray(rows, dtype=bool)
        n = int((others & self.wanted).sum())
        told = (f"{n} clip{'s' if n > 1 else ''} left out: {why}",) if n and why else ()
        return replace(self, left_out=others | ~self.wanted, notes=(*self.notes, *told))

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
