"""ESC-50 and ESC-10: five seconds of one sound each, in five folds.

    FOLDER/meta/esc50.csv   filename, fold, target, category, esc10, src_file, ...     as published
    FOLDER/audio/1-100032-A-0.wav

or, as a smaller copy, FOLDER/esc10.csv (or esc50.csv) beside FOLDER/audio, with recordings in any format. A
name is `fold-source-take-target`: takes of one source are cuts of one recording, and lie in one fold.
"""

from os import PathLike
from pathlib import Path

import numpy as np

from ..clips import Clips, label_matrix
from .tables import read_rows, recordings_by_stem

_TABLES = ("meta/esc50.csv", "esc50.csv", "meta/esc10.csv", "esc10.csv")


def read_esc(folder: str | PathLike[str], *, ten: bool | None = None) -> Clips:
    """Read ESC-50 or ESC-10: one label for each clip, folds 1 to 5, sources kept apart.

    `ten=True` takes the ten classes of ESC-10 out of ESC-50; by default all that is there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "audio").mkdir()
    >>> (folder / "audio" / "1-17-A-0.ogg").touch()
    >>> _ = (folder / "esc10.csv").write_text("filename,fold,category\\n1-17-A-0.ogg,1,dog\\n")
    >>> read_esc(folder)
    Clips('ESC-10', n_clips=1, n_labels=1)
    """
    root = Path(folder)
    table = next((root / name for name in _TABLES if (root / name).is_file()), root / _TABLES[0])
    rows = read_rows(table, ["filename", "fold", "category"])
    is_ten = table.stem == "esc10"
    if ten and not is_ten:
        rows = [row for row in rows if row.get("esc10", "").strip().lower() == "true"]
        if not rows:
            raise ValueError(f"Expected clips marked esc10 in {table.name}, got none. Leave out ten=True.")
    names = tuple(sorted({row["category"] for row in rows}))
    there = recordings_by_stem(root / "audio")
    stems = [Path(row["filename"]).stem for row in rows]
    if not there.keys() & set(stems):
        raise ValueError(f"Expected the recordings of {table.name} in the folder audio, got none of them.")
    sources = [row.get("src_file", "").strip() or _source(stem) for row, stem in zip(rows, stems)]
    return Clips(
        name="ESC-10" if ten or is_ten else "ESC-50",
        # A recording that is not there keeps its place.
        paths=tuple(there.get(s, root / "audio" / row["filename"]) for row, s in zip(rows, stems)),
        Y=label_matrix([{row["category"]} for row in rows], names),
        label_names=names,
        sources=np.array(sources),
        folds=np.array([int(row["fold"]) for row in rows]),
    )


def _source(stem: str) -> str:
    parts = stem.split("-")
    return parts[1] if len(parts) == 4 else stem
