"""UrbanSound8K: up to four seconds of one sound each, in ten folds.

    FOLDER/metadata/UrbanSound8K.csv      slice_file_name, fsID, fold, classID, class, ...
    FOLDER/audio/fold1/100032-3-0-0.wav

Slices of one recording (`fsID`) lie in one fold. Folds are to be kept: other splits put a recording on both
sides.
"""

from os import PathLike
from pathlib import Path

import numpy as np

from ..clips import Clips, label_matrix
from .tables import read_rows, recordings_by_stem, source_column


def read_urbansound(folder: str | PathLike[str]) -> Clips:
    """Read UrbanSound8K: one label for each clip, folds 1 to 10, the recording it was cut from as source.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "audio" / "fold1").mkdir(parents=True)
    >>> (folder / "metadata").mkdir()
    >>> (folder / "audio" / "fold1" / "7-3-0-0.wav").touch()
    >>> text = "slice_file_name,fsID,fold,class\\n7-3-0-0.wav,7,1,siren\\n"
    >>> _ = (folder / "metadata" / "UrbanSound8K.csv").write_text(text)
    >>> read_urbansound(folder).sources.tolist()
    ['7']
    """
    root = Path(folder)
    rows = read_rows(root / "metadata" / "UrbanSound8K.csv", ["slice_file_name", "fsID", "fold", "class"])
    there = recordings_by_stem(root / "audio")
    stems = [Path(row["slice_file_name"]).stem for row in rows]
    if not there.keys() & set(stems):
        raise ValueError("Expected the slices of UrbanSound8K.csv in the folder audio, got none of them.")
    names = tuple(sorted({row["class"] for row in rows}))
    expected = [root / "audio" / f"fold{row['fold']}" / row["slice_file_name"] for row in rows]
    return Clips(
        name="UrbanSound8K",
        paths=tuple(there.get(stem, path) for stem, path in zip(stems, expected)),
        Y=label_matrix([{row["class"]} for row in rows], names),
        label_names=names,
        sources=source_column(rows, "fsID", table="UrbanSound8K.csv"),
        folds=np.array([int(row["fold"]) for row in rows]),
    )
