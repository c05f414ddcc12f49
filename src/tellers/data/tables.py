"""Tables of one's own: CSV, Parquet or npz, with a target and, where they apply, persons, budgets and sites.

Numbers stay numbers; words become integer codes, one per category in sorted order. Categories and classes
that are not declared are read off the rows, and the data set's `notes` say so: whether a category occurs at
all may hang on one person. Missing values are refused. Python objects are never unpickled.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra, require_present
from ..privacy._files import DAMAGE, MOST_TEXT, TooLarge, cap, load_npz, require_size
from ..privacy._rows import label_table, numeric_rows
from ._directory import unpack
from .dataset import Dataset, MultilabelDataset

Columns = dict[str, NDArray[Any]]

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL"})


def read_table(
    path: str | PathLike[str],
    target: str,
    *,
    person: str | None = None,
    id: str | None = None,
    budget: str | None = None,
    site: str | None = None,
    features: Sequence[str] | None = None,
    classes: Sequence[object] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
) -> Dataset:
    """Read a data set from a file: CSV with a header (plain, .gz or .xz), Parquet, or npz.

    `target`, `person`, `id`, `budget` and `site` name columns; every other column, or those in `features`, is
    a feature. Budgets are numbers, or names of levels. `classes` declares the classes, in the order of their
    ids, and `categories` those of a column of words. In an npz each array is a column, except a
    two-dimensional `X`, which holds all features.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "visits.csv"
    ...     _ = path.write_text("age,ward,who,back\\n61,B,ann,no\\n48,A,bo,yes\\n62,B,ann,no\\n")
    ...     data = read_table(path, "back", person="who", classes=["no", "yes"], categories={"ward": "AB"})
    >>> data
    Dataset('visits', n_rows=3, n_features=2, n_classes=2, persons)
    >>> data.X.tolist(), data.y.tolist(), data.persons.tolist()
    ([[61.0, 1.0], [48.0, 0.0], [62.0, 1.0]], [0, 1, 0], ['ann', 'bo', 'ann'])
    """
    place = Path(path)
    try:
        columns, notes = read_columns(place), []
        roles = {"target": target, "person": person, "id": id, "budget": budget, "site": site}
        taken = [column for column in roles.values() if column is not None]
        _require_columns([*taken, *(features or ()), *(categories or ())], columns)
        if len(set(taken)) < len(taken):
            raise ValueError(f"Expected a column of its own for each role, got {', '.join(taken)}.")
        y, class_names, read_off = _classes(columns[target], classes, name=target)
        if read_off:
            notes.append(_note(f"The classes in {target!r} were", "classes"))
        X, names, read_off_names = _features(columns, taken, features=features, categories=categories or {})
        if read_off_names:
            notes.append(_note(f"The categories of {', '.join(read_off_names)} were", "categories"))
        return Dataset(
            name=place.name.split(".")[0],
            X=X,
            y=y,
            n_classes=len(class_names),
            class_names=class_names,
            feature_names=names,
            persons=None if person is None else _identities(columns[person], person),
            ids=None if id is None else _identities(columns[id], id),
            budgets=None if budget is None else _budgets(columns[budget], budget),
            sites=None if site is None else _identities(columns[site], site),
            notes=tuple(notes),
        )
    except (TypeError, ValueError) as error:
        # A file is input whatever is wrong with it: one kind of error, and it names the file.
        raise ValueError(f"{place.name}: {error}") from error


_YES_OR_NO = {"0": 0, "1": 1, "False": 0, "True": 1, "false": 0, "true": 1}


def read_label_table(
    path: str | PathLike[str],
    label_names: Sequence[str],
    *,
    person: str | None = None,
    id: str | None = None,
    site: str | None = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
) -> MultilabelDataset:
    """Read a table with a column of 0 and 1 for each label: CSV with a header, Parquet, or npz.

    Every other column, or those in `features`, is a feature, but for those that say person, id or site.
    Words need declared `categories`. In an npz a two-dimensional `X` holds all features, and a `Y` all
    labels, in the order of their names.
    """
    place = Path(path)
    columns = read_columns(place)
    try:
        whole = columns.get("Y") if label_names and label_names[0] not in columns else None
        if whole is not None and whole.ndim == 2:
            labels, taken = label_table(whole, n_rows=len(whole), n_labels=len(label_names)), ["Y"]
        else:
            labels = np.column_stack([_answers(columns, name) for name in label_names])
            taken = list(label_names)
        owners: dict[str, Any] = {}
        for role, column in (("persons", person), ("ids", id), ("sites", site)):
            if column is not None:
                _require_columns([column], columns)
                words = columns[column].astype(str).tolist()
                require_present(**{column: words})
                owners[role] = np.array(words)
                taken.append(column)
        if features is not None and set(features) & set(taken):
            raise ValueError("Expected features that are no label, person, id or site.")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place.name}: {error}") from error
    rows = read_features(place, features, categories=categories, leave_out=taken)
    has_matrix = features is None and "X" in columns and columns["X"].ndim == 2
    named = features if features is not None else [name for name in columns if name not in taken]
    return MultilabelDataset(
        name=place.name.split(".")[0], X=rows, Y=labels.astype(np.int8), label_names=tuple(label_names),
        feature_names=() if has_matrix else tuple(named), **owners,
    )  # fmt: skip


def read_features(
    path: str | PathLike[str],
    features: Sequence[str] | None = None,
    *,
    categories: Mapping[str, Sequence[object]] | None = None,
    leave_out: Sequence[str] = (),
) -> NDArray[Any]:
    """Read the features of rows that need no target: a public pool, say, in the columns of another table.

    Without `features`, all columns but those in `leave_out` are taken. Words need declared `categories`, so
    that they get the codes they have elsewhere.
    """
    place = Path(path)
    try:
        columns = read_columns(place)
        _require_columns([*(features or ()), *(categories or ())], columns)
        taken = [name for name in leave_out if name in columns]
        X, _, read_off = _features(columns, taken, features=features, categories=categories or {})
        if read_off:
            raise ValueError(
                f"Expected numbers or declared categories, got words in {', '.join(read_off)}. "
                "Declare them (categories=...)."
            )
        return numeric_rows(X)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place.name}: {error}") from error


def read_columns(path: Path) -> Columns:
    """Return the columns of a file by name, words as strings; the format is told by how the file begins."""
    if not path.is_file():
        raise ValueError(f"Expected a file, found none at {path}. Check the path.")
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return _parquet_columns(path)
    if start in (b"PK\x03\x04", b"PK\x05\x06"):
        return _npz_columns(path)
    return _csv_columns(unpack(path, most=cap(MOST_TEXT)))


def encode(
    column: NDArray[Any] | Sequence[str], categories: Sequence[object], *, name: str
) -> NDArray[np.int64]:
    """Return the position of each entry among declared categories, refusing entries that are none of them."""
    words = _texts(column, name) if isinstance(column, np.ndarray) else column
    known = {text: code for code, text in enumerate(map(_word, categories))}
    if len(known) < len(categories):
        raise ValueError(f"Expected different categories for {name!r}, got one twice.")
    codes = np.array([known.get(word, -1) for word in words], dtype=np.int64)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        _require_present(words[row], name=name, row=row)
        raise ValueError(
            f"Expected the {len(known)} declared categories in {name!r}, got another in row {row}. "
            "Declare every category that may occur."
        )
    return codes


def _csv_columns(content: bytes) -> Columns:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("Expected CSV in UTF-8, Parquet or npz, got something else.") from error
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except csv.Error as error:
        raise ValueError(f"Expected CSV, got: {error}.") from error
    if len(lines) < 2:
        raise ValueError("Expected a header and at least one row, got fewer lines.")
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header) or not all(header):
        raise ValueError(
            "Expected a header with a different name for every column, got one twice or an empty one."
        )
    for row, line in enumerate(lines[1:]):
        if len(line) != len(header):
            raise ValueError(f"Expected {len(header)} fields in every row, got {len(line)} in row {row}.")
    return {name: np.array([e.strip() for e in entries]) for name, entries in zip(header, zip(*lines[1:]))}


def _parquet_columns(path: Path) -> Columns:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingExtra(
            "Reading Parquet needs pyarrow. Install it with: pip install 'tellers[data]'."
        ) from error
    try:
        about = parquet.ParquetFile(path).metadata
        packed = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        # A column of one value is stored once, however many rows it has.
        require_size(max(packed, 8 * about.num_rows * about.num_columns), path.name, most=cap())
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise ValueError("Expected a whole Parquet file, this one is damaged. Write it again.") from error
    if len(set(table.column_names)) < len(table.column_names):
        raise ValueError("Expected a different name for every column, got one twice.")
    columns = {}
    for name in table.column_names:
        entries = table.column(name).to_pylist()
        require_present(**{name: entries})
        columns[name] = np.asarray(entries)
    return columns


def _npz_columns(path: Path) -> Columns:
    try:
        return load_npz(path, name=path.name)[0]
    except TooLarge:
        raise
    except DAMAGE as error:
        if "pickle" in str(error).lower():
            raise ValueError(
                "Expected arrays of numbers or strings, got Python objects, which are never loaded: "
                "unpickling runs code. Convert words with numpy.asarray(words, dtype=str)."
            ) from None
        raise ValueError("Expected a whole npz file, this one is damaged. Write it again.") from error


def _answers(columns: Columns, name: str) -> NDArray[np.int64]:
    _require_columns([name], columns)
    column = columns[name]
    words = [str(word) for word in (column.astype(int) if column.dtype.kind == "b" else column).tolist()]
    known = [_YES_OR_NO.get(word.removesuffix(".0"), -1) for word in words]
    if -1 in known:
        raise ValueError(
            f"Expected 0 or 1 in every row of the label {name!r}, got another entry in row {known.index(-1)}."
        )
    return np.array(known, dtype=np.int64)


def _require_columns(names: Sequence[str], columns: Columns) -> None:
    for name in names:
        if name not in columns:
            raise ValueError(f"Expected a column {name!r}, got {', '.join(columns)}.")


def _features(
    columns: Columns,
    taken: Sequence[str],
    *,
    features: Sequence[str] | None,
    categories: Mapping[str, Sequence[object]],
) -> tuple[NDArray[Any], tuple[str, ...], list[str]]:
    if features is None and "X" in columns and columns["X"].ndim == 2 and "X" not in taken:
        return columns["X"], (), []
    names = list(features) if features is not None else [name for name in columns if name not in taken]
    if not names or set(names) & set(taken):
        raise ValueError(
            "Expected at least one feature, and none that is target, person, id, budget or site."
        )
    numbers, read_off = [], []
    for name in names:
        column = _flat(columns[name], name)
        if name in categories:
            numbers.append(encode(column, categories[name], name=name).astype(np.float64))
        elif column.dtype.kind == "U" and not _looks_numeric(column, name):
            read_off.append(name)
            numbers.append(np.unique(_words(column, name), return_inverse=True)[1].astype(np.float64))
        else:
            numbers.append(_numbers(column, name))
    return np.column_stack(numbers), tuple(names), read_off


def _classes(
    column: NDArray[Any], classes: Sequence[object] | None, *, name: str
) -> tuple[NDArray[np.int64], tuple[str, ...], bool]:
    if classes is not None:
        return encode(column, classes, name=name), tuple(map(_word, classes)), False
    words = set(_words(column, name))
    try:
        ordered = sorted(words, key=float)
    except ValueError:
        ordered = sorted(words)
    if len(ordered) < 2:
        raise ValueError(
            f"Expected at least 2 classes in {name!r}, got {len(ordered)}. Declare them (classes=...)."
        )
    return encode(column, ordered, name=name), tuple(ordered), True


def _identities(column: NDArray[Any], name: str) -> NDArray[np.str_]:
    """Return persons, records or sites by name: a number would depend on who else is in the table."""
    return np.array(_words(column, name))


def _numbers(column: NDArray[Any], name: str) -> NDArray[np.float64]:
    flat = _flat(column, name)
    if flat.dtype.kind == "U":
        _words(flat, name)
        if not _looks_numeric(flat, name):
            raise ValueError(f"Expected numbers in {name!r}, got words.")
    elif flat.dtype.kind not in "iufb":
        raise ValueError(f"Expected numbers or words in {name!r}, got {flat.dtype}.")
    numbers = flat.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(f"Expected finite numbers in {name!r}, got NaN or infinity in row {row}.")
    return numbers


def _budgets(column: NDArray[Any], name: str) -> NDArray[Any]:
    flat = _flat(column, name)
    if flat.dtype.kind == "U" and not _looks_numeric(flat, name):
        return np.array(_words(flat, name))
    return _numbers(flat, name)


def _looks_numeric(column: NDArray[Any], name: str) -> bool:
    _words(column, name)  # a missing value would make a column of numbers look like words
    try:
        column.astype(np.float64)
    except ValueError:
        return False
    return True


def _texts(column: NDArray[Any], name: str) -> list[str]:
    flat = _flat(column, name)
    if flat.dtype.kind not in "Uiufb":
        raise ValueError(f"Expected numbers or words in {name!r}, got {flat.dtype}.")
    entries: list[Any] = flat.tolist()
    return entries if flat.dtype.kind == "U" else [_word(entry) for entry in entries]


def _words(column: NDArray[Any], name: str) -> list[str]:
    words = _texts(column, name)
    for row, word in enumerate(words):
        _require_present(word, name=name, row=row)
    return words


def _require_present(word: str, *, name: str, row: int) -> None:
    if word in MISSING:
        raise ValueError(
            f"Expected a value in every row of {name!r}, got a missing one in row {row}. "
            "Fill it in, drop the row, or leave the column out (features=...)."
        )


def _word(entry: object) -> str:
    """Write 3 and 3.0 alike, so that classes match whichever way a file stored them."""
    return str(int(entry)) if isinstance(entry, float) and entry.is_integer() else str(entry)


def _flat(column: NDArray[Any], name: str) -> NDArray[Any]:
    if column.ndim != 1:
        raise ValueError(f"Expected one entry per row in {name!r}, got shape {column.shape}.")
    return column


def _note(what: str, argument: str) -> str:
    return (
        f"{what} read off the rows. That is a choice: whether one occurs at all may hang on one person. "
        f"Declare them ({argument}=...)."
    )
