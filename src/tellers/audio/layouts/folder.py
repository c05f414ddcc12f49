"""A folder of recordings and a csv table of your own: a row per clip, labels in one column or in many."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..clips import Clips, label_matrix
from .tables import left_out, read_rows


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
) -> Clips:
    """Read clips of your own: names of files relative to the folder, labels separated, or a column for each.

    With `label_column=None` every name in `label_names` is a column of 0 and 1. Names that are not declared
    are those that occur, which is a look at the data: declare them where labels themselves are private.

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
    unknown = sorted(set().union(*sets) - set(names))
    if unknown or not names:
        raise ValueError(
            f"Expected the declared labels in {path.name}, got others ({len(unknown)}). Declare every label."
        )
    there = [i for i, row in enumerate(rows) if (root / row[file_column]).is_file()]
    if not there:
        raise ValueError(f"Expected the files of {path.name} in the folder, got none of them.")

    def column(name: str | None) -> NDArray[np.str_] | None:
        return None if name is None else np.array([rows[i][name] for i in there])

    return Clips(
        name=path.stem,
        paths=tuple(root / rows[i][file_column] for i in there),
        Y=label_matrix([sets[i] for i in there], names),
        label_names=names,
        sources=column(source_column),
        folds=column(fold_column),
        notes=left_out(len(rows) - len(there), "no recording")
        + (() if label_names else ("label names were read off the table",)),
    )
