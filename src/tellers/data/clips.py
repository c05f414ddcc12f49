"""Tables of clips with their labels and sources, and folders of prepared clips."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .dataset import Dataset, MultilabelDataset, TableLines, entry_each, frozen, row_index, taken_rows
from .sound.decoding import Finding, Kind, findings_table

if TYPE_CHECKING:
    from .sound.prepare import ClipSource, Features, Prepared

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
    >>> clips = Clips(name="tiny", paths=["a.wav", "b.wav"], Y=[[1, 1], [0, 1]], label_names=names)
    >>> clips, clips.labels_of(1)
    (Clips('tiny', n_clips=2, n_labels=2), ('siren',))
    >>> clips.take([1]).paths[0].name
    'b.wav'
    >>> some = clips.with_labels(["bell", "horn"])
    >>> some, some.Y.tolist(), some.wanted.tolist()
    (Clips('tiny', n_clips=2, n_labels=2), [[1, 0], [0, 0]], [True, False])
    >>> clips.at_most(1).wanted.tolist(), clips.leave_out([False, True]).wanted.tolist()
    ([False, True], [True, False])
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
        for name in ("sources", "folds", "left_out"):
            if getattr(self, name) is not None:
                column = entry_each(getattr(self, name), n_rows=len(paths), name=name, rows="clips")
                kept[name] = column.astype(bool) if name == "left_out" else column
        for field, value in kept.items():
            object.__setattr__(self, field, frozen(value))

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
        index = row_index(rows, "clip")
        numbers = np.flatnonzero(index) if index.dtype.kind == "b" else index
        if index.dtype.kind == "b" and len(index) != len(self):
            raise ValueError(f"Expected a mask of {len(self)} entries, got {len(index)}.")
        if not numbers.size:
            raise ValueError(f"Expected some clips of {self.name!r}, got none. Choose other ones.")
        return replace(self, **taken_rows(self, numbers, ("paths", "Y", "sources", "folds", "left_out")))

    def with_labels(self, names: Iterable[str]) -> "Clips":
        """Return the table with these labels alone; clips that carry none of them are left out.

        The names are declared: one that no clip carries is a label of the task all the same, so that the list
        says nothing of the clips.
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
        """Return the table in which clips that carry more than so many labels are left out."""
        many = self.Y.sum(axis=1) > n_labels
        if many.all():
            raise ValueError(
                f"Expected clips with at most {n_labels} labels in {self.name!r}, all have more. Allow more."
            )
        return self.leave_out(many, why=f"more than {n_labels} labels")

    def leave_out(self, rows: ArrayLike, *, why: str = "") -> "Clips":
        """Return the table in which some clips, by a mask, are none of the task; they keep their place."""
        others = np.asarray(rows, dtype=bool)
        n = int((others & self.wanted).sum())
        told = left_out_note(n, why) if why else ()
        return replace(self, left_out=others | ~self.wanted, notes=self.notes + told)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"Clips({self.name!r}, n_clips={len(self)}, n_labels={self.n_labels})"


def left_out_note(n: int, why: str) -> tuple[str, ...]:
    """Return the note about clips that were left out, or none where none were."""
    return (f"{n} clip{'s' if n > 1 else ''} left out: {why}",) if n else ()


def label_matrix(label_sets: Sequence[Iterable[str]], names: Sequence[str]) -> NDArray[np.int8]:
    """Return one row of zeros and ones for each set of labels; labels that are not named are left out."""
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(label_sets), len(names)), dtype=np.int8)
    for i, labels in enumerate(label_sets):
        for label in labels:
            if label in column:
                Y[i, column[label]] = 1
    return Y


# --- Folders of prepared clips ---
#
#     FOLDER/clips.json     which recording carries which labels, and where its picture is
#     FOLDER/pictures/      the pictures, by content
#
# `tellers audio prepare` writes such a folder. Recordings that cannot be used, and clips that are left out
# for their labels, keep their place in the table: clips are dealt by that place, so that no clip moves
# another from one teacher to another. Teachers and students learn from the pictures, so whoever trains needs
# neither the recordings nor a library that decodes them.

FILE, PICTURES = "clips.json", "pictures"
FORMAT = 1
RECORDING_FORMAT = 1
_LEFT_OUT = "Clips whose recording is missing or cannot be used teach nobody; how many is not told."
BY_CLIP = (
    "Clips were dealt one by one, though it is known which were cut from one recording, or come from one "
    "person: one clip is protected, and not what it was cut from, of which other teachers, the public pool "
    "and the test may have clips too."
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Collection:
    """Clips with their pictures, as they lie in a folder; clips without a picture are there too.

    `picture_files` say where the picture of each clip lies, if it has one, and `settings` what pictures were
    made with, as it is written. `findings` are what could not be used. `n_known` recordings were known.

    >>> import tempfile
    >>> from tellers.data.sound import features_for, make_city, prepare_collection
    >>> place = Path(tempfile.mkdtemp())
    >>> features = features_for(rate=16_000, seconds=1.0)
    >>> clips = make_city(place / "sounds", 4, seed=7, seconds=1.0)
    >>> collection = prepare_collection(clips, place, features=features)
    >>> collection, read_collection(place).pictures([0, 3]).shape
    (Collection('city', n_clips=4, n_pictures=4), (2, 51, 64))
    >>> collection.usable.all(), collection.findings_text(), collection.alike(collection.units())
    (True, 'No findings.', ())
    >>> collection.prepare(clips.paths[:1]).picture_files()[0].startswith("pictures/")
    True
    """

    folder: Path
    clips: Clips
    picture_files: tuple[str | None, ...]
    shape: tuple[int, int]
    settings: Mapping[str, Any]
    findings: tuple[Finding, ...]
    n_known: int = 0

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Return which clips have a picture."""
        return np.array([picture is not None for picture in self.picture_files], dtype=np.bool_)

    @cached_property
    def features(self) -> "Features":
        """Return the settings that the pictures were made with."""
        from .sound.prepare import features_from_dict

        return features_from_dict(self.settings)

    def pictures(self, rows: ArrayLike) -> NDArray[np.float32]:
        """Return the pictures of some clips by their numbers, (clips, frames, bins)."""
        return load_pictures(self, [self.picture_files[int(i)] for i in np.asarray(rows)])

    def units(self, *, by_clip: bool = False) -> NDArray[Any]:
        """Return the unit of every clip, usable or not: its source where that is known, or its line."""
        if by_clip or self.clips.sources is None:
            return np.arange(len(self.clips))
        return self.clips.sources.astype(str)

    def alike(self, units: NDArray[Any]) -> tuple[tuple[int, int], ...]:
        """Return pairs of clips of two units that have the same recording, under two names; private.

        Pictures are named by the content of recordings, and silence is nobody's. A unit is what the table
        says, whatever is in it: to deal such clips together, or to refuse them, would make the deal, or
        whether there is one, depend on what is in them. So this is for whoever owns the table.
        """
        silent = {str(Path(one.path).absolute()) for one in self.findings if one.kind is Kind.SILENT}
        first: dict[str, int] = {}
        twice = []
        for clip, (picture, path) in enumerate(zip(self.picture_files, self.clips.paths)):
            if picture is not None and str(path) not in silent:
                before = first.setdefault(picture, clip)
                if units[before] != units[clip]:
                    twice.append((before, clip))
        return tuple(twice)

    def prepare(self, recordings: "Sequence[ClipSource]", **options: Any) -> "Prepared":
        """Make pictures of other recordings, or of mixtures, with the same settings and in the same place.

        What is silent there has a picture too: whether clips of a mixture are was asked when they came in.
        `options` are those of `prepare_clips`.
        """
        from .sound.prepare import prepare_clips

        keep: Any = {Kind.SILENT: "keep"}
        place = self.folder / PICTURES
        return prepare_clips(recordings, place, features=self.features, on_finding=keep, **options)

    def findings_text(self, *, n_rows: int = 20) -> str:
        """Return what could not be used, as a table in text."""
        return findings_table(self.findings, n_rows=n_rows)

    def __repr__(self) -> str:
        n = int(self.usable.sum())
        return f"Collection({self.clips.name!r}, n_clips={len(self.clips)}, n_pictures={n})"


def read_collection(folder: str | PathLike[str]) -> Collection:
    """Return the clips of a folder that was prepared.

    >>> read_collection("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
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
        rows, names = said["clips"], said["label_names"]
        column = {name: j for j, name in enumerate(names)}
        Y = np.zeros((len(rows), len(names)), dtype=np.int8)
        for i, row in enumerate(rows):
            Y[i, [column[label] for label in row["labels"]]] = 1
        clips = Clips(
            name=str(said["name"]), paths=tuple(row["path"] for row in rows), Y=Y, label_names=tuple(names),
            sources=_column(rows, "source"), folds=_column(rows, "fold"), notes=tuple(said["notes"]),
            left_out=np.array([bool(row.get("left_out")) for row in rows], dtype=np.bool_),
        )  # fmt: skip
        findings = (Finding(one["path"], Kind(one["kind"]), one["detail"]) for one in said["findings"])
        frames, bins = (int(n) for n in said["shape"])
        return Collection(
            folder=place, clips=clips, picture_files=tuple(row["picture"] for row in rows),
            shape=(frames, bins), settings=said["features"] or {}, findings=tuple(findings),
        )  # fmt: skip
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"Expected a whole table in {place / FILE}, got another. Prepare again.") from error


def load_pictures(collection: Collection, files: Sequence[str | None]) -> NDArray[np.float32]:
    """Return pictures by their files in a folder, (clips, frames, bins); one that is not whole is refused."""
    stack = np.empty((len(files), *collection.shape), dtype=np.float32)
    for i, name in enumerate(files):
        try:
            one = np.load(collection.folder / str(name), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            one = None
        if name is None or one is None or one.shape != collection.shape:
            raise ValueError(
                f"Expected a whole picture of {collection.shape} for clip {i} in {collection.folder}, got "
                "none, or a damaged one. Prepare again."
            )
        stack[i] = one
    return stack


def require_same_features(folder: str | PathLike[str], *others: str | PathLike[str] | None) -> None:
    """Refuse folders of prepared clips whose pictures were made with other settings than those of the first.

    A picture of the same size at another rate shows other sounds in the same places.
    """
    told = [other for other in others if other is not None]
    wanted = _drawn(read_collection(folder).settings) if told else {}
    for other in told:
        given = _drawn(read_collection(other).settings)
        changed = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
        if changed:
            words = ", ".join(f"{name} {given.get(name)} and not {wanted.get(name)}" for name in changed[:4])
            raise ValueError(
                f"Expected clips in {other} prepared as those in {folder}, got {words}. Prepare both with "
                "the same settings."
            )


def _drawn(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a picture looks like by, flat: neither what is refused, nor how numbers are stored."""
    both = {**settings.get("decoding", {}), **settings.get("logmel", {})}
    return {name: value for name, value in both.items() if name not in ("shortest", "silent", "rates")}


def settings_beside_student(folder: str | PathLike[str], names: Sequence[str]) -> dict[str, bytes]:
    """Return the file that lies beside a student of prepared clips: how recordings become its pictures."""
    return {"hearing.json": recording_settings(names, read_collection(folder).settings)}


def recording_settings(names: Sequence[str], features: Mapping[str, Any]) -> bytes:
    """Return the content of `hearing.json`: the labels, and the settings of pictures."""
    said = {"format": RECORDING_FORMAT, "label_names": list(names), "features": dict(features)}
    return (json.dumps(said) + "\n").encode()


def clip_notes(collection: Collection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what may be told of a table of clips to anyone, and what counts private clips.

    That clips may be left out is told whether or not some were: one broken recording changes no public word.
    """
    notes = collection.clips.notes
    counted = tuple(note for note in notes if note[:1].isdigit())
    n_lost = int((~collection.usable).sum())
    lost = (f"{n_lost} of {len(collection.clips)} recordings could not be used",) if n_lost else ()
    public = (*(note for note in notes if note not in counted), _LEFT_OUT)
    twice, apart = (collection.alike(collection.units(by_clip=by_clip)) for by_clip in (True, False))
    if not twice:
        return public, counted + lost
    named = ", ".join(f"{one} and {other}" for one, other in twice[:5]) + (", ..." * (len(twice) > 5))
    alike = (
        f"{len(twice)} clips have the recording of another under another name, {len(apart)} of them in "
        f"another unit where sources are known: clips {named} (from 0, in the order of clips.json). What one "
        "of them protects is then also in the other. Take one of the two out of your table, or give both the "
        "same source, and prepare again."
    )
    return public, (*counted, *lost, alike)


def clips_folder(
    path: str | PathLike[str], label_names: Sequence[str], *, need_labels: bool = True, by_clip: bool = False
) -> MultilabelDataset:
    """Read a folder of prepared clips as rows, a flat log-Mel picture each; sources are persons.

    Clips that could not be used are no rows (how many is private, and `clip_notes` says it); they are in
    `places`, so that they are dealt with the others. Units are sources where these are known, or clips
    (`by_clip`, and a note says it), whatever is in the recordings: one under two names is in `clip_notes`. A
    pool needs no labels.
    """
    collection = read_collection(path)
    clips, usable = collection.clips, np.flatnonzero(collection.usable)
    if not usable.size:
        raise ValueError(f"Expected clips with a picture in {collection.folder}, found none. Prepare others.")
    if not isinstance(by_clip, bool):  # from a file of settings
        raise TypeError(f"Expected by_clip to be true or false, got {by_clip!r}.")
    X, known = collection.pictures(usable), clips.sources is not None
    rows = MultilabelDataset(
        name=clips.name, X=X.reshape(len(X), -1), Y=clips.Y[usable], label_names=clips.label_names,
        image_shape=collection.shape, persons=collection.units()[usable] if known else None,
        notes=clip_notes(collection)[0],
    ).choose(label_names)  # fmt: skip
    columns = [clips.label_names.index(name) for name in label_names]
    places = TableLines(
        at=usable, units=collection.units(by_clip=by_clip),
        unit="one source" if known and not by_clip else "one clip",
        classes=clips.Y[:, columns].argmax(axis=1), notes=(BY_CLIP,) if known and by_clip else (),
    )  # fmt: skip
    return replace(rows, places=places)


def one_class_each(table: MultilabelDataset) -> Dataset:
    """Return rows of one label each as rows of classes, which are the labels in their order."""
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


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> NDArray[Any] | None:
    values = [row.get(name) for row in rows]
    return None if any(value is None for value in values) else np.array(values)
