"""Folders of images with a table of labels beside them: CheXpert's, and those of one's own."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from .directory import unpack
from .multilabel import UNKNOWN, MultilabelDataset, Policy, require_images, require_policy, settle

CHEXPERT_FINDINGS = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema",
    "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other",
    "Fracture", "Support Devices",
)  # fmt: skip
_VALUES = {"1": 1, "1.0": 1, "0": 0, "0.0": 0, "-1": UNKNOWN, "-1.0": UNKNOWN}


def read_chexpert(
    folder: str | PathLike[str],
    part: Literal["train", "valid"] = "train",
    *,
    uncertain: Policy,
    blank: Policy = "zeros",
    findings: Sequence[str] = CHEXPERT_FINDINGS,
    view: Literal["all", "frontal", "lateral"] = "all",
    check_images: bool = True,
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read CheXpert's layout: `<part>.csv` with a column per finding, and the images that its paths lead to.

    A finding is 1, 0, uncertain (-1) or blank: not mentioned. `uncertain` says what the third becomes; there
    is no neutral choice, so there is no default. `persons` are the patients in the paths: deal teachers
    patients, not images. Without `need_labels` columns of findings may be missing, and nothing is known of
    them.

    >>> read_chexpert("nowhere", uncertain="zeros")
    Traceback (most recent call last):
        ...
    ValueError: Expected a table at nowhere/train.csv (plain, .gz or .xz), found none. ...
    """
    require_policy(uncertain=uncertain, blank=blank)
    if view not in ("all", "frontal", "lateral"):
        raise ValueError(f"Expected view to be one of all, frontal, lateral, got {view!r}.")
    place = Path(folder)
    table = _find(place / f"{part}.csv")
    header, lines = _rows(table)
    there = [name for name in findings if need_labels or name in header]
    wanted = ["Path", *there] + (["Frontal/Lateral"] if view != "all" else [])
    column = _columns(table, header, wanted)
    if view != "all":
        at = column["Frontal/Lateral"]
        lines = [(number, row) for number, row in lines if row[at].strip().lower() == view]
        if not lines:
            raise ValueError(f"{table.name}: expected at least one {view} image, got none.")
    names = [_relative(table, number, row[column["Path"]]) for number, row in lines]
    patients = [_patient(table, number, name) for (number, _), name in zip(lines, names, strict=True)]
    Y = _matrix(table, lines, column, findings, uncertain, blank)
    paths = _under(place, names)
    if check_images:
        require_images(paths)
    return MultilabelDataset(
        name=f"chexpert/{part}",
        Y=Y,
        label_names=tuple(findings),
        paths=paths,
        persons=np.array(patients),
        notes=(f"Uncertain findings: {uncertain}. Findings not mentioned: {blank}.",),
    )


def read_image_table(
    folder: str | PathLike[str],
    table: str | PathLike[str],
    *,
    image: str,
    labels: Sequence[str],
    person: str | None = None,
    uncertain: Policy = "ignore",
    check_images: bool = True,
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read images in a folder with the labels in a CSV: a column of paths in the folder, and one per label.

    A label is 1, 0, or -1 and then settled by `uncertain`; blank ones are refused. Without `need_labels`
    columns of labels may be missing, and nothing is known of them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = (Path(place) / "labels.csv").write_text("file,cat,dog\\na.png,1,0\\n")
    ...     _ = (Path(place) / "a.png").write_bytes(b"")
    ...     data = read_image_table(place, Path(place) / "labels.csv", image="file", labels=["cat", "dog"])
    >>> data, data.Y.tolist()
    (MultilabelDataset('labels', n_rows=1, n_labels=2, images), [[1, 0]])
    """
    require_policy(uncertain=uncertain)
    found = _find(Path(table))
    header, lines = _rows(found)
    there = [name for name in labels if need_labels or name in header]
    column = _columns(found, header, [image, *there, *([] if person is None else [person])])
    names = [_relative(found, number, row[column[image]]) for number, row in lines]
    Y = _matrix(found, lines, column, labels, uncertain, None)
    persons = None
    if person is not None:
        persons = np.array([_present(found, number, row[column[person]], person) for number, row in lines])
    paths = tuple(Path(folder) / name for name in names)
    if check_images:
        require_images(paths)
    return MultilabelDataset(
        name=found.name.split(".")[0],
        Y=Y,
        label_names=tuple(labels),
        paths=paths,
        persons=persons,
        notes=(f"Labels of -1: {uncertain}.",),
    )


Lines = list[tuple[int, list[str]]]


def _find(path: Path) -> Path:
    for packing in ("", ".gz", ".xz"):
        there = path.with_name(path.name + packing)
        if there.is_file():
            return there
    raise ValueError(f"Expected a table at {path} (plain, .gz or .xz), found none. Check the path.")


def _rows(table: Path) -> tuple[list[str], Lines]:
    try:
        text = unpack(table).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{table.name}: expected text in UTF-8.") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: Lines = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if row:
                if len(row) != len(header):
                    raise ValueError(
                        f"{table.name}, line {reader.line_num}: expected {len(header)} fields as in the "
                        f"header, got {len(row)}."
                    )
                rows.append((reader.line_num, row))
    except csv.Error as error:
        raise ValueError(f"{table.name}, line {reader.line_num}: expected CSV ({error}).") from None
    if not rows:
        raise ValueError(f"{table.name}: expected a header and at least one row, got no row.")
    return header, rows


def _columns(table: Path, header: list[str], wanted: Sequence[str]) -> dict[str, int]:
    for name in wanted:
        if header.count(name) != 1:
            raise ValueError(
                f"{table.name}: expected one column {name!r}, got {header.count(name)}. The columns are "
                f"{', '.join(header)}."
            )
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"Expected a column of its own for each role, got {', '.join(wanted)}.")
    return {name: header.index(name) for name in wanted}


def _matrix(
    table: Path,
    lines: Lines,
    columns: dict[str, int],
    names: Sequence[str],
    uncertain: Policy,
    blank: Policy | None,
) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
    result = np.full((len(lines), len(names)), UNKNOWN, dtype=np.int8)
    there = [(j, columns[name]) for j, name in enumerate(names) if name in columns]
    for i, (number, row) in enumerate(lines):
        for j, column in there:
            word = row[column].strip()
            if word in _VALUES:
                result[i, j] = settle(_VALUES[word], policy=uncertain)
            elif not word and blank is not None:
                result[i, j] = settle(UNKNOWN, policy=blank)
            else:
                # What stands there is private; where it stands is enough to find it.
                kinds = "1, 0 or -1" + (", or nothing" if blank is not None else "")
                raise ValueError(f"{table.name}, line {number}: expected {kinds} in {names[j]!r}.")
    return result


def _relative(table: Path, number: int, word: str) -> str:
    name = PurePosixPath(word.strip().replace("\\", "/"))
    if not word.strip() or name.is_absolute() or ".." in name.parts or re.match(r"^[A-Za-z]:", word.strip()):
        raise ValueError(
            f"{table.name}, line {number}: expected the path of an image inside the folder, relative to it."
        )
    return str(name)


def _patient(table: Path, number: int, name: str) -> str:
    found = re.search(r"(?:^|/)(patient\d+)(?:/|$)", name)
    if found is None:
        raise ValueError(f"{table.name}, line {number}: expected a path with a folder such as patient00001.")
    return found.group(1)


def _present(table: Path, number: int, word: str, column: str) -> str:
    if not word.strip():
        raise ValueError(f"{table.name}, line {number}: expected a value in {column!r}, got none.")
    return word.strip()


def _under(place: Path, names: list[str]) -> tuple[Path, ...]:
    """Return where images lie: paths begin with the folder's published name, whatever it is called here."""
    ways: list[Callable[[str], Path]] = [
        lambda name: place / name,
        lambda name: place.parent / name,
        lambda name: place.joinpath(*PurePosixPath(name).parts[1:]),
    ]
    way = next((way for way in ways if way(names[0]).is_file()), ways[2])
    return tuple(way(name) for name in names)
