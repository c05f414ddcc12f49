"""Folders of prepared recordings: `clips.json` and the pictures it names. No sound is read here.

`tellers audio prepare` writes such a folder. Teachers and students learn from the pictures, so whoever trains
needs neither the recordings nor a library that decodes them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Dataset
from .multilabel import MultilabelDataset
from .places import Places, alike_recordings

FILE = "clips.json"
FORMAT = 1
HEARING_FORMAT = 1
_LEFT_OUT = "Clips whose recording is missing or cannot be used teach nobody; how many is not told."
BY_CLIP = (
    "Clips were dealt one by one, though it is known which were cut from one recording, or come from one "
    "person: one clip is protected, and not what it was cut from, of which other teachers, the public pool "
    "and the test may have clips too."
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClipTable:
    """What `clips.json` says: for every clip its recording, labels, fold, source and picture, if it has one.

    `features` are the settings that the pictures were made with, `findings` what could not be used: path,
    kind and detail. `left_out` marks clips that are none of the task, by their labels; they have no picture.

    >>> table = ClipTable(
    ...     folder=Path("city"), name="city", label_names=("bell", "siren"), paths=("a.wav", "b.wav"),
    ...     Y=np.eye(2, dtype=np.int8), pictures=("p/a.npy", None), shape=(101, 64),
    ... )
    >>> table, table.usable.tolist()
    (ClipTable('city', n_clips=2, n_pictures=1), [True, False])
    >>> table.alike(table.units())
    ()
    """

    folder: Path
    name: str
    label_names: tuple[str, ...]
    paths: tuple[str, ...]
    Y: NDArray[np.int8]
    pictures: tuple[str | None, ...]
    shape: tuple[int, int]
    folds: tuple[Any, ...] | None = None
    sources: tuple[Any, ...] | None = None
    features: Mapping[str, Any] | None = None
    findings: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    left_out: NDArray[np.bool_] | None = None

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Return which clips have a picture."""
        return np.array([picture is not None for picture in self.pictures], dtype=np.bool_)

    def units(self, *, by_clip: bool = False) -> NDArray[Any]:
        """Return the unit of every clip, usable or not: its source where that is known, or its line."""
        if by_clip or self.sources is None:
            return np.arange(len(self.paths))
        return np.array([str(one) for one in self.sources])

    def alike(self, units: NDArray[Any]) -> tuple[tuple[int, int], ...]:
        """Return pairs of clips of two units that have the same recording, under two names; private."""
        silent = {str(Path(one["path"]).absolute()) for one in self.findings if one["kind"] == "silent"}
        return alike_recordings(self.pictures, units, quiet=[path in silent for path in self.paths])

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
            pictures=tuple(clip["picture"] for clip in clips), shape=(frames, bins),
            folds=_column(clips, "fold"), sources=_column(clips, "source"), features=said["features"],
            findings=tuple(said["findings"]), notes=tuple(said["notes"]),
            left_out=np.array([bool(clip.get("left_out")) for clip in clips], dtype=np.bool_),
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
    ...     pictures=("a.npy",), shape=(3, 2),
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


def require_same_features(folder: str | PathLike[str], *others: str | PathLike[str] | None) -> None:
    """Refuse folders of prepared clips whose pictures were made with other settings than those of the first.

    A picture of the same size at another rate shows other sounds in the same places.

    >>> require_same_features("nowhere", None)
    """
    told = [other for other in others if other is not None]
    wanted = _drawn(read_clip_table(folder).features) if told else {}
    for other in told:
        given = _drawn(read_clip_table(other).features)
        changed = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
        if changed:
            words = ", ".join(f"{name} {given.get(name)} and not {wanted.get(name)}" for name in changed[:4])
            raise ValueError(
                f"Expected clips in {other} prepared as those in {folder}, got {words}. Prepare both with "
                "the same settings."
            )


def _drawn(features: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a picture looks like by, flat: neither what is refused, nor how numbers are stored."""
    said: dict[str, Any] = dict(features or {})
    both = {**said.get("decoding", {}), **said.get("logmel", {})}
    return {name: value for name, value in both.items() if name not in ("shortest", "silent", "rates")}


def hearing_of(folder: str | PathLike[str], names: Sequence[str]) -> dict[str, bytes]:
    """Return what has to lie beside a student of prepared clips: how recordings become its pictures.

    >>> hearing_of("nowhere", ["siren"])
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    return {"hearing.json": hearing_json(names, read_clip_table(folder).features or {})}


def hearing_json(names: Sequence[str], features: Mapping[str, Any]) -> bytes:
    """Return what `hearing.json` says: the labels, and the settings of pictures.

    >>> hearing_json(["siren"], {})
    b'{"format": 1, "label_names": ["siren"], "features": {}}\\n'
    """
    said = {"format": HEARING_FORMAT, "label_names": list(names), "features": dict(features)}
    return (json.dumps(said) + "\n").encode()


def clip_notes(table: ClipTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what may be told of a table of clips to anyone, and what counts private clips.

    That clips may be left out is told whether or not some were: one broken recording changes no public word.

    >>> table = ClipTable(
    ...     folder=Path("city"), name="city", label_names=("bell",), paths=("a.wav", "b.wav"),
    ...     Y=np.ones((2, 1), dtype=np.int8), pictures=("p/a.npy", None), shape=(101, 64),
    ...     notes=("3 clips left out: no recording", "label names were read off the table"),
    ... )
    >>> public, private = clip_notes(table)
    >>> public
    ('label names were read off the table', 'Clips whose recording is missing or cannot be used teach ...')
    >>> private
    ('3 clips left out: no recording', '1 of 2 recordings could not be used')
    """
    counted = tuple(note for note in table.notes if note[:1].isdigit())
    n_lost = int((~table.usable).sum())
    lost = (f"{n_lost} of {len(table.paths)} recordings could not be used",) if n_lost else ()
    public = (*(note for note in table.notes if note not in counted), _LEFT_OUT)
    return public, counted + lost + _alike_note(table)


def _alike_note(table: ClipTable) -> tuple[str, ...]:
    """Return words on recordings that are in the table under two names, for its owner alone."""
    twice, apart = table.alike(table.units(by_clip=True)), table.alike(table.units())
    if not twice:
        return ()
    named = ", ".join(f"{one} and {other}" for one, other in twice[:5]) + (", ..." * (len(twice) > 5))
    return (
        f"{len(twice)} clips have the recording of another under another name, {len(apart)} of them in "
        f"another unit where sources are known: clips {named} (from 0, in the order of clips.json). What one "
        "of them protects is then also in the other. Take one of the two out of your table, or give both the "
        "same source, and prepare again.",
    )


def clips_folder(
    path: str | PathLike[str], label_names: Sequence[str], *, need_labels: bool = True, by_clip: bool = False
) -> MultilabelDataset:
    """Read a folder of prepared clips as rows, a flat log-Mel picture each; sources are persons.

    Clips that could not be used are no rows (how many is private, and `clip_notes` says it); they are in
    `places`, so that they are dealt with the others. Units are sources where these are known, or clips
    (`by_clip`, and a note says it), whatever is in the recordings: one under two names is in `clip_notes`. A
    pool needs no labels.

    >>> clips_folder("nowhere", ["siren"])
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    table = read_clip_table(path)
    usable = np.flatnonzero(table.usable)
    if not usable.size:
        raise ValueError(f"Expected clips with a picture in {table.folder}, found none. Prepare others.")
    if not isinstance(by_clip, bool):  # from a file of settings
        raise TypeError(f"Expected by_clip to be true or false, got {by_clip!r}.")
    units = table.units(by_clip=by_clip)
    X = load_pictures(table, [table.pictures[i] for i in usable])
    sources = None if table.sources is None else np.array([str(table.sources[i]) for i in usable])
    known = sources is not None
    rows = MultilabelDataset(
        name=table.name, X=X.reshape(len(X), -1), Y=table.Y[usable], label_names=table.label_names,
        image_shape=table.shape, persons=sources, notes=clip_notes(table)[0],
    ).choose(label_names)  # fmt: skip
    columns = [table.label_names.index(name) for name in label_names]
    places = Places(
        at=usable, units=units, unit="one source" if known and not by_clip else "one clip",
        classes=table.Y[:, columns].argmax(axis=1), notes=(BY_CLIP,) if known and by_clip else (),
    )  # fmt: skip
    return replace(rows, places=places)


def class_clips(path: str | PathLike[str], class_names: Sequence[str], *, by_clip: bool = False) -> Dataset:
    """Read a folder of prepared clips that have one label each: the label is the class.

    >>> class_clips("nowhere", ["bell", "siren"])
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    return one_class_each(clips_folder(path, class_names, by_clip=by_clip))


def one_class_each(table: MultilabelDataset) -> Dataset:
    """Return rows of one label each as rows of classes, which are the labels in their order.

    >>> rows = MultilabelDataset(name="t", X=[[0.5], [1.5]], Y=[[1, 0], [0, 1]], label_names=("cat", "dog"))
    >>> one_class_each(rows).y
    array([0, 1])
    >>> one_class_each(MultilabelDataset(name="t", X=[[0.5]], Y=[[1, 1]], label_names=("cat", "dog")))
    Traceback (most recent call last):
        ...
    ValueError: Expected exactly one label for every row of 't', row 0 has none or several. ...
    """
    other = table.y.sum(axis=1) != 1
    if other.any():
        raise ValueError(
            f"Expected exactly one label for every row of {table.name!r}, row {int(np.argmax(other))} has "
            "none or several. Take them as many labels, or leave such rows out."
        )
    return Dataset(
        name=table.name, X=table.X, y=table.y.argmax(axis=1), n_classes=table.n_labels,
        class_names=table.label_names, persons=table.persons, sites=table.sites,
        image_shape=table.image_shape, notes=table.notes, places=table.places,
    )  # fmt: skip


def _column(clips: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, ...] | None:
    values = tuple(clip.get(name) for clip in clips)
    return None if any(value is None for value in values) else values
