"""What the layouts share: rows of a csv file with the columns that are needed, and recordings by stem."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..decoding import find_recordings


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a csv file that has these columns, and maybe others.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("name,fold\\na.wav,1\\n")
    >>> read_rows(file, ["fold"])
    [{'name': 'a.wav', 'fold': '1'}]
    >>> read_rows(file, ["category"])
    Traceback (most recent call last):
        ...
    ValueError: Expected the columns category in a.csv, got 2 others. ...
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected a table at {path}, there is none. Check the path, or name the data set's own folder."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            there = list(reader.fieldnames or ())
            missing = [column for column in columns if column not in there]
            if missing:
                # Without any column that is known, the first line may be a row, and private.
                heading = ", ".join(there) if len(missing) < len(columns) else f"{len(there)} others"
                raise ValueError(
                    f"Expected the columns {', '.join(missing)} in {path.name}, got {heading}. Name them so "
                    "in its first line, with commas between."
                )
            rows = [{k: v or "" for k, v in row.items() if k is not None} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Expected a csv file in UTF-8, {path.name} is none ({error}).") from None
    if not rows:
        raise ValueError(f"Expected rows in {path.name}, got a heading alone. Add a line for each clip.")
    return rows


def source_column(rows: Sequence[dict[str, str]], name: str, *, table: str) -> NDArray[np.str_]:
    """Return what each clip is from, without blanks around it; a row that does not say is refused.

    >>> source_column([{"who": "Anna"}, {"who": " Anna"}], "who", table="t.csv").tolist()
    ['Anna', 'Anna']
    >>> source_column([{"who": "Anna"}, {"who": " "}], "who", table="t.csv")
    Traceback (most recent call last):
        ...
    ValueError: Expected a source for every clip in the column who of t.csv, got none in line 3. ...
    """
    found = [row[name].strip() for row in rows]
    if "" in found:
        raise ValueError(
            f"Expected a source for every clip in the column {name} of {table}, got none in line "
            f"{found.index('') + 2}. Where it is not known, name each clip's own."
        )
    return np.array(found)


def recordings_by_stem(folder: Path) -> dict[str, Path]:
    """Return the recordings in a folder and below it, by their name without its ending.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.flac").touch()
    >>> list(recordings_by_stem(folder))
    ['a']
    """
    found: dict[str, Path] = {}
    for path in find_recordings(folder):
        if path.stem in found:
            raise ValueError(
                f"Expected one recording of each name, got {found[path.stem].name} and {path.name}. "
                "Keep one of the two."
            )
        found[path.stem] = path
    return found


def left_out(n: int, why: str) -> tuple[str, ...]:
    """Return the note about clips that were left out, or none where none were.

    >>> left_out(3, "have no recording"), left_out(0, "have no recording")
    (('3 clips left out: have no recording',), ())
    """
    return (f"{n} clip{'s' if n > 1 else ''} left out: {why}",) if n else ()
