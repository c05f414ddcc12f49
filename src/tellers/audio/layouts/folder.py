"""A folder of recordings and a csv table of your own: a row per clip, labels in one column or in many."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from ..clips import READ_OFF, Clips, label_matrix
from . import tables
from .tables import read_rows


def read_clip_folder(
    folder: str | PathLike[str],
    table: str | PathLike[str],
    *,
    label_names: Sequence[str] | None = None,
    file_column: str = "file",
    label_column: str | None = "labels",
    separator: str = ";",
    source_column: str | None = None,
    fold_column: str | None = None,
    others: Literal["refuse", "ignore"] = "refuse",
) -> Clips:
    """Read clips of your own: names of files relative to the folder, labels separated, or a column for each.

    With `label_column=None` every name in `label_names` is a column of 0 and 1. Names that are not declared
    are those that occur, which is a look at the data that nothing protects: one clip with a rare label puts
    it into what is published. Declare them where labels are private; a declared one need not occur, and
    `others` says whether labels that were not declared are refused or ignored. A row whose recording is not
    there keeps its place.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.wav").touch()
    >>> _ = (folder / "clips.csv").write_text("file,labels\\na.wav,bell;siren\\n")
    >>> read_clip_folder(folder, folder / "clips.csv", label_names=["bell", "dog", "siren"]).Y.tolist()
    [[1, 0, 1]]
    """
    root, path = Path(folder), Path(table)
    wanted = [file_column, *([label_column] if label_column else label_names or ())]
    rows = read_rows(path, [*wanted, *(c for c in (source_column, fold_column) if c)])
    if label_column is None and not label_names:
        raise ValueError("Expected label_names where every label has its own column, got none.")
    sets: list[set[str]] = []
    for number, row in enumerate(rows, start=2):
        if label_column is not None:
            sets.append({one.strip() for one in row[label_column].split(separator) if one.strip()})
            continue
        marks = {name: row[name].strip() for name in label_names or ()}
        if not set(marks.values()) <= {"0", "1", ""}:
            raise ValueError(f"Expected 0 or 1 for every label in line {number} of {path.name}, got another.")
        sets.append({name for name, mark in marks.items() if mark == "1"})
    names = tuple(label_names) if label_names else tuple(sorted(set().union(*sets)))
    unknown = set().union(*sets) - set(names) if others == "refuse" else ()
    if unknown or not names:
        raise ValueError(
            f"Expected the declared labels in {path.name}, got others ({len(unknown)}). Declare every label."
        )
    paths = tuple(root / row[file_column] for row in rows)
    if not any(path.is_file() for path in paths):
        raise ValueError(
            f"Expected the files of {path.name} in {root}, got none of them. Name them as they lie in it."
        )
    return Clips(
        name=path.stem,
        paths=paths,
        Y=label_matrix(sets, names),
        label_names=names,
        sources=None if source_column is None else tables.source_column(rows, source_column, table=path.name),
        folds=None if fold_column is None else np.array([row[fold_column].strip() for row in rows]),
        notes=() if label_names else (READ_OFF,),
    )
