"""Folders of prepared recordings: `clips.json` and the pictures it names. No sound is read here.

`tellers audio prepare` writes such a folder. Teachers and students learn from the pictures, so whoever trains
needs neither the recordings nor a library that decodes them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .multilabel import MultilabelDataset

FILE = "clips.json"
FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClipTable:
    """What `clips.json` says: for every clip its recording, labels, fold, source and picture, if it has one.

    `features` are the settings that the pictures were made with, `findings` what could not be used: path,
    kind and detail.

    >>> table = ClipTable(
    ...     folder=Path("city"), name="city", label_names=("bell", "siren"), paths=("a.wav", "b.wav"),
    ...     Y=np.eye(2, dtype=np.int8), pictures=("p/a.npy", None), shape=(101, 64), kind="float32",
    ... )
    >>> table, table.usable.tolist()
    (ClipTable('city', n_clips=2, n_pictures=1), [True, False])
    """

    folder: Path
    name: str
    label_names: tuple[str, ...]
    paths: tuple[str, ...]
    Y: NDArray[np.int8]
    pictures: tuple[str | None, ...]
    shape: tuple[int, int]
    kind: str
    folds: tuple[Any, ...] | None = None
    sources: tuple[Any, ...] | None = None
    features: Mapping[str, Any] | None = None
    findings: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Return which clips have a picture."""
        return np.array([picture is not None for picture in self.pictures], dtype=np.bool_)

    def __repr__(self) -> str:
        n = int(self.usable.sum())
        return f"ClipTable({self.name!r}, n_clips={len(self.paths)}, n_pictures={n})"


def read_clip_table(folder: str | PathLike[str]) -> ClipTable:
    """Read the table of a folder of prepared clips.

    >>> read_clip_table("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. Make it: ...
    """
    place = Path(folder)
    place = place.parent if place.name == FILE else place
    try:
        said = json.loads((place / FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"Expected a folder of prepared clips, found no {FILE} in {place}. Make it: tellers audio prepare"
        ) from None
    except ValueError:
        raise ValueError(f"Expected JSON in {place / FILE}, got something else. Prepare again.") from None
    try:
        if said["format"] != FORMAT:
            raise ValueError(
                f"Expected format {FORMAT} in {place / FILE}, got {said['format']}. "
                "Read it with the version of tellers that wrote it."
            )
        names = tuple(said["label_names"])
        column = {name: j for j, name in enumerate(names)}
        clips = said["clips"]
        Y = np.zeros((len(clips), len(names)), dtype=np.int8)
        for i, clip in enumerate(clips):
            Y[i, [column[label] for label in clip["labels"]]] = 1
        frames, bins = (int(n) for n in said["shape"])
        return ClipTable(
            folder=place, name=str(said["name"]), label_names=names,
            paths=tuple(clip["path"] for clip in clips), Y=Y,
            pictures=tuple(clip["picture"] for clip in clips), shape=(frames, bins), kind=said["dtype"],
            folds=_column(clips, "fold"), sources=_column(clips, "source"), features=said["features"],
            findings=tuple(said["findings"]), notes=tuple(said["notes"]),
        )  # fmt: skip
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"Expected a whole table in {place / FILE}, got another. Prepare again.") from error


def load_pictures(table: ClipTable, pictures: Sequence[str | None]) -> NDArray[np.float32]:
    """Return pictures by their names in a table, (clips, frames, bins); one that is not whole is refused.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> np.save(place / "a.npy", np.zeros((3, 2), dtype=np.float32))
    >>> table = ClipTable(
    ...     folder=place, name="t", label_names=("x",), paths=("a.wav",), Y=np.ones((1, 1), dtype=np.int8),
    ...     pictures=("a.npy",), shape=(3, 2), kind="float32",
    ... )
    >>> load_pictures(table, ["a.npy", "a.npy"]).shape
    (2, 3, 2)
    """
    stack = np.empty((len(pictures), *table.shape), dtype=np.float32)
    for i, name in enumerate(pictures):
        try:
            one = np.load(table.folder / str(name), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            one = None
        if name is None or one is None or one.shape != table.shape:
            raise ValueError(
                f"Expected a whole picture of {table.shape} for clip {i} in {table.folder}, got none, or a "
                "damaged one. Prepare again."
            )
        stack[i] = one
    return stack


def clips_folder(
    path: str | PathLike[str], label_names: Sequence[str], *, need_labels: bool = True
) -> MultilabelDataset:
    """Read a folder of prepared clips as rows, a flat log-Mel picture each; sources are persons.

    Clips that could not be used are left out, and a note says how many.

    >>> clips_folder("nowhere", ["siren"])
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    table = read_clip_table(path)
    usable = np.flatnonzero(table.usable)
    if not usable.size:
        raise ValueError(f"Expected clips with a picture in {table.folder}, found none. Prepare others.")
    X = load_pictures(table, [table.pictures[i] for i in usable])
    notes, n_lost = table.notes, len(table.paths) - len(usable)
    if n_lost:
        notes = (*notes, f"Rows were left out: {n_lost} recordings could not be used.")
    sources = None if table.sources is None else np.array([str(table.sources[i]) for i in usable])
    return MultilabelDataset(
        name=table.name, X=X.reshape(len(X), -1), Y=table.Y[usable], label_names=table.label_names,
        image_shape=table.shape, persons=sources, notes=notes,
    ).choose(label_names)  # fmt: skip


def _column(clips: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, ...] | None:
    values = tuple(clip.get(name) for clip in clips)
    return None if any(value is None for value in values) else values
