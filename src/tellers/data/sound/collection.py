"""How recordings become a folder of prepared clips: the settings of their pictures, and the table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...privacy._files import write_whole
from ..clips import FILE, FORMAT, PICTURES, Clips, Collection, read_collection
from .decoding import Decoding, Kind
from .logmel import LogMel
from .prepare import Answer, Features, Progress, prepare_clips


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
        [path for path, one in zip(clips.paths, wanted) if one], place / PICTURES, features=features,
        n_jobs=n_jobs, on_finding=on_finding, recheck=recheck, progress=progress,
    )  # fmt: skip
    names: list[str | None] = [None] * len(clips)
    for row, name in zip(np.flatnonzero(wanted).tolist(), prepared.picture_files()):
        names[row] = name
    folds, sources = (
        [None] * len(clips) if column is None else column.tolist() for column in (clips.folds, clips.sources)
    )
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
                "fold": folds[i],
                "source": sources[i],
                "picture": names[i],
                **({} if wanted[i] else {"left_out": True}),
            }
            for i, path in enumerate(clips.paths)
        ],
    }
    # As private as the recordings are: only the owner may read which is whose.
    write_whole(place / FILE, (json.dumps(said, indent=0) + "\n").encode())
    return replace(read_collection(place), n_known=prepared.n_known)
