"""Images: MNIST, Fashion-MNIST, SVHN, and folders of images with a table of labels."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._directory import find_file, read_file, unpack
from .dataset import UNKNOWN, Dataset, MultilabelDataset, Policy, require_images, require_policy, settle

_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def mnist(
    part: Literal["train", "test"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    scale: bool = True,
    verify: bool = True,
) -> Dataset:
    """Return MNIST, 60,000 or 10,000 digits of 28 by 28 pixels, from its idx files.

    Pixels are float32 in [0, 1], or the bytes of the file with `scale=False`.

    >>> mnist("test", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    return _idx_dataset("mnist", part, names=(), data_dir=data_dir, scale=scale, verify=verify)


def fashion_mnist(
    part: Literal["train", "test"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    scale: bool = True,
    verify: bool = True,
) -> Dataset:
    """Return Fashion-MNIST, pieces of clothing in the format of MNIST, from its idx files.

    Debian's package dataset-fashion-mnist puts them where `data_dir="/usr/share/datasets"` finds them.

    >>> fashion_mnist("train", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    return _idx_dataset("fashion-mnist", part, names=_CLOTHES, data_dir=data_dir, scale=scale, verify=verify)


def svhn(
    part: Literal["train", "test", "extra"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    scale: bool = True,
) -> Dataset:
    """Return SVHN, house numbers cropped to 32 by 32 pixels in colour, from its MATLAB files.

    The file writes zero as class 10; here it is class 0. Pixels are float32 in [0, 1], or the bytes of the
    file with `scale=False`, a quarter of the memory. No checksum is known for these files.

    >>> svhn("extra", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    _require_part(part, ("train", "test", "extra"))
    name = f"svhn/{part}_32x32.mat"
    path = find_file(name, data_dir=data_dir)
    from scipy.io import loadmat

    try:
        content = loadmat(io.BytesIO(unpack(path)) if path.suffix in (".gz", ".xz") else path)
        images, labels = np.asarray(content["X"]), np.asarray(content["y"]).ravel()
    except Exception as error:  # the reader raises whatever a damaged file makes it stumble over
        raise ValueError(f"Expected a MATLAB file with X and y in {path}, could not read it.") from error
    if images.shape != (32, 32, 3, len(labels)) or images.dtype != np.uint8:
        raise ValueError(
            f"Expected bytes of shape (32, 32, 3, {len(labels)}) in {path}, "
            f"got {images.dtype} of shape {images.shape}."
        )
    if not np.isin(labels, np.arange(1, 11)).all():
        raise ValueError(f"Expected labels 1 to 10 (10 is the digit zero) in {path}, got others.")
    rows = images.transpose(3, 0, 1, 2).reshape(len(labels), -1)
    y = labels.astype(np.int64) % 10
    return Dataset(name=f"svhn/{part}", X=_pixels(rows, scale), y=y, n_classes=10, image_shape=(32, 32, 3))


def read_idx(content: bytes) -> NDArray[Any]:
    """Return the array of an unpacked idx file."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES or content[3] == 0:
        raise ValueError("Expected an idx file, which starts with two zeros, a type and a number of axes.")
    dtype, n_axes = np.dtype(_IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * n_axes
    if len(content) < start:
        raise ValueError(f"Expected an idx file with {n_axes} axes, got {len(content)} bytes.")
    shape = tuple(int(n) for n in np.frombuffer(content, dtype=">u4", count=n_axes, offset=4))
    if len(content) != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"Expected an idx file of shape {shape}, got {len(content)} bytes. Fetch it again.")
    return np.frombuffer(content, dtype=dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _idx_dataset(
    folder: str,
    part: str,
    *,
    names: tuple[str, ...],
    data_dir: str | PathLike[str] | None,
    scale: bool,
    verify: bool,
) -> Dataset:
    _require_part(part, ("train", "test"))
    stem = f"{folder}/{'train' if part == 'train' else 't10k'}"
    images = read_idx(read_file(f"{stem}-images-idx3-ubyte", data_dir=data_dir, verify=verify))
    labels = read_idx(read_file(f"{stem}-labels-idx1-ubyte", data_dir=data_dir, verify=verify))
    if images.ndim != 3 or labels.shape != (len(images),):
        raise ValueError(
            f"Expected images and as many labels in {stem}-*, got shapes {images.shape} and {labels.shape}."
        )
    rows = images.reshape(len(images), -1)
    return Dataset(
        name=f"{folder}/{part}", X=_pixels(rows, scale), y=labels.astype(np.int64), n_classes=10,
        class_names=names, image_shape=images.shape[1:],
    )  # fmt: skip


def _pixels(rows: NDArray[Any], scale: bool) -> NDArray[Any]:
    # By a constant: a mean or a deviation of private images would be one more release.
    return rows.astype(np.float32) / np.float32(255) if scale else np.ascontiguousarray(rows)


def _require_part(part: str, parts: tuple[str, ...]) -> None:
    if part not in parts:
        raise ValueError(f"Expected part to be one of {', '.join(parts)}, got {part!r}.")


# --- Folders with a table of labels ---

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
