"""A folder of prepared clips: their pictures, their labels, and what could not be used.

    FOLDER/clips.json     which recording carries which labels, and where its picture is
    FOLDER/pictures/      the pictures, by content (`store`)

Recordings that cannot be used, and clips that are left out for their labels, keep their place in the table:
clips are dealt by that place, so that no clip moves another from one teacher to another.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...privacy._files import write_whole
from ..clips import FILE, FORMAT, Clips, ClipTable, load_pictures, read_clip_table
from .decoding import Decoding, Finding, Kind, findings_table
from .logmel import LogMel
from .prepare import Answer, ClipSource, Features, Prepared, Progress, prepare_clips

_PICTURES = "pictures"


@dataclass(frozen=True, eq=False, repr=False)
class Collection:
    """Clips with their pictures, as they lie in a folder; clips without a picture are there too.

    >>> import tempfile
    >>> from tellers.data.sound import make_city
    >>> place = Path(tempfile.mkdtemp())
    >>> features = features_for(rate=16_000, seconds=1.0)
    >>> clips = make_city(place / "sounds", 4, seed=7, seconds=1.0)
    >>> collection = prepare_collection(clips, place, features=features)
    >>> collection, read_collection(place).pictures([0, 3]).shape
    (Collection('city', n_clips=4, n_pictures=4), (2, 51, 64))
    >>> collection.usable.all(), collection.findings_text()
    (True, 'No findings.')
    >>> collection.picture_names(collection.prepare(clips.paths[:1]))[0].startswith("pictures/")
    True
    """

    table: ClipTable
    clips: Clips
    features: Features
    findings: tuple[Finding, ...]
    n_known: int = 0

    @property
    def folder(self) -> Path:
        """Return where it lies."""
        return self.table.folder

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Return which clips have a picture."""
        return self.table.usable

    def pictures(self, rows: ArrayLike) -> NDArray[np.float32]:
        """Return the pictures of some clips by their numbers, (clips, frames, bins)."""
        return load_pictures(self.table, [self.table.pictures[int(i)] for i in np.asarray(rows)])

    def prepare(
        self, recordings: "list[ClipSource] | tuple[ClipSource, ...]", *, n_jobs: int = 1,
        progress: Progress | None = None,
    ) -> Prepared:  # fmt: skip
        """Make pictures of other recordings, or of mixtures, with the same settings and in the same place.

        What is silent there has a picture too: whether clips of a mixture are was asked when they came in.
        """
        return prepare_clips(
            list(recordings), self.folder / _PICTURES, features=self.features, n_jobs=n_jobs,
            on_finding={Kind.SILENT: "keep"}, progress=progress,
        )  # fmt: skip

    def picture_names(self, prepared: Prepared) -> list[str | None]:
        """Return where the picture of each recording lies, from the folder, or None where there is none."""
        return _names(prepared)

    def findings_text(self, *, n_rows: int = 20) -> str:
        """Return what could not be used, as a table in text."""
        return findings_table(self.findings, n_rows=n_rows)

    def __repr__(self) -> str:
        n = int(self.usable.sum())
        return f"Collection({self.clips.name!r}, n_clips={len(self.clips)}, n_pictures={n})"


def features_for(
    *,
    rate: int = 44_100,
    seconds: float = 10.0,
    n_mels: int = 64,
    window: int | None = None,
    hop: int | None = None,
    **decoding: Any,
) -> Features:
    """Return settings for recordings of a rate and length: the published ones at 44.1 kHz, or near them.

    At another rate, and unless they are given, the window is the power of two nearest 50 ms and the hop a
    fiftieth of a second, a hundredth from 44.1 kHz on; `decoding` are further settings of `Decoding`.

    >>> features_for().shape, features_for(rate=16_000, seconds=2.0).shape
    ((1001, 64), (101, 64))
    >>> features_for(rate=16_000, seconds=2.0, hop=160).shape
    (201, 64)
    """
    decoded = Decoding(rate=rate, seconds=seconds, **decoding)
    if window is None:
        window = max(2, 2 ** round(float(np.log2(rate * 0.05))))
    if hop is None:
        hop = max(1, round(rate / (100 if rate >= 44_100 else 50)))
    return Features(decoding=decoded, logmel=LogMel(rate=rate, window=window, hop=hop, n_mels=n_mels))


def prepare_collection(
    clips: Clips,
    folder: str | PathLike[str],
    *,
    features: Features | None = None,
    n_jobs: int = 1,
    on_finding: Answer | Mapping[Kind, Answer] = "skip",
    recheck: bool = False,
    progress: Progress | None = None,
) -> Collection:
    """Make the pictures of clips and write down which is whose; what is there already is not made again.

    The arguments are those of `prepare_clips`. To refuse a recording leaves no table behind, but the pictures
    that were made are found again. See `Collection` for an example.

    >>> import tempfile
    >>> clips = Clips(name="t", paths=["gone.wav"], Y=[[1]], label_names=["x"])
    >>> prepare_collection(clips, tempfile.mkdtemp(), on_finding="refuse")
    Traceback (most recent call last):
        ...
    tellers.errors.ClipsRefused: 1 recording cannot be used: 1 missing ...
    """
    place, features = Path(folder), features or Features()
    wanted = clips.wanted
    prepared = prepare_clips(
        [path for path, one in zip(clips.paths, wanted) if one], place / _PICTURES, features=features,
        n_jobs=n_jobs, on_finding=on_finding, recheck=recheck, progress=progress,
    )  # fmt: skip
    names: list[str | None] = [None] * len(clips)
    for row, name in zip(np.flatnonzero(wanted).tolist(), _names(prepared)):
        names[row] = name
    said = {
        "format": FORMAT,
        "name": clips.name,
        "label_names": list(clips.label_names),
        "shape": list(features.shape),
        "features": asdict(features),
        "notes": list(clips.notes),
        "findings": [asdict(finding) for finding in prepared.findings],
        "clips": [
            {
                "path": str(path.absolute()),
                "labels": list(clips.labels_of(i)),
                "fold": None if clips.folds is None else _plain(clips.folds[i]),
                "source": None if clips.sources is None else _plain(clips.sources[i]),
                "picture": names[i],
                **({} if wanted[i] else {"left_out": True}),
            }
            for i, path in enumerate(clips.paths)
        ],
    }
    # As private as the recordings are: only the owner may read which is whose.
    write_whole(place / FILE, (json.dumps(said, indent=0) + "\n").encode())
    return _collection(read_clip_table(place), n_known=prepared.n_known)


def read_collection(folder: str | PathLike[str]) -> Collection:
    """Return the clips of a folder that was prepared.

    >>> read_collection("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    return _collection(read_clip_table(folder))


def features_from_dict(said: Mapping[str, Any]) -> Features:
    """Return settings of pictures as they were written down."""
    try:
        decoding, logmel = dict(said["decoding"]), dict(said["logmel"])
        decoding["rates"] = tuple(decoding["rates"])
        return Features(decoding=Decoding(**decoding), logmel=LogMel(**logmel), dtype=said["dtype"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            "Expected the settings of log-Mel pictures, got others. Were they written by another version?"
        ) from error


def _collection(table: ClipTable, *, n_known: int = 0) -> Collection:
    clips = Clips(
        name=table.name, paths=tuple(Path(path) for path in table.paths), Y=table.Y,
        label_names=table.label_names,
        sources=None if table.sources is None else np.array([str(one) for one in table.sources]),
        folds=None if table.folds is None else np.array(table.folds), notes=table.notes,
        left_out=table.left_out,
    )  # fmt: skip
    findings = tuple(Finding(one["path"], Kind(one["kind"]), one["detail"]) for one in table.findings)
    return Collection(table, clips, features_from_dict(table.features or {}), findings, n_known)


def _names(prepared: Prepared) -> list[str | None]:
    names: list[str | None] = [None] * prepared.n_clips
    for row, key in zip(prepared.rows.tolist(), prepared.keys.tolist()):
        name = key.decode()
        names[row] = f"{_PICTURES}/{prepared.features.name}/pictures/{name[:2]}/{name}.npy"
    return names


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
