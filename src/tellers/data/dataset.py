"""Data sets: rows with one class or many labels each, and what is publicly known about them."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import MissingExtra, require_count, require_present
from ..privacy._rows import KeptRows, class_ids, numeric_rows
from ..privacy.sealed import Sealed
from ..privacy.votes import OneOf, SetOf

# --- Lines of a table ---
#
# Who shares a teacher with whom must not depend on what is in a record. So all lines of the table are dealt,
# those that cannot be used too, and only then do these drop out: of the part they were dealt to, and of no
# other.

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TableLines:
    """Where the rows of a data set stand in the table they were read from, and what is dealt as a whole.

    `at` is the line of each row, `units` the unit of every line: the name of its source, or the line itself.
    Lines without a row could not be used. `classes` are the classes of lines, to stratify by. Lines that lead
    to the same recording are still lines of their own: a unit is what the table declares.

    Guarantee: where all lines are dealt, and lines without a row dropped afterwards, two tables that differ
               in one unit differ in one part: its rows may be others, be missing, or be there where they
               were missing. Sources may come and go.
    Assumes:   where lines are dealt one by one, how many there are is public and the same in both. A line
               that is taken out of the table moves those after it; leave it, without its record.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).
    """

    at: Indices
    units: NDArray[Any]
    unit: Literal["one clip", "one source"] = "one clip"
    classes: Indices | None = None
    notes: tuple[str, ...] = ()

    def rows_at(self, lines: ArrayLike) -> Indices:
        """Return the rows on some lines, in the order of the lines; those without one are left out."""
        row = np.full(len(self), -1, dtype=np.int64)
        row[self.at] = np.arange(len(self.at))
        found = row[np.asarray(lines, dtype=np.int64)]
        return found[found >= 0]

    def take(self, rows: ArrayLike) -> "TableLines":
        """Return the places of some rows in the same table."""
        return replace(self, at=self.at[np.asarray(rows)])

    def among(self, lines: Indices) -> "TableLines":
        """Return the places in the table of some lines alone; rows on other lines are gone."""
        kept = self.at[np.isin(self.at, lines)]
        return replace(
            self, at=np.searchsorted(lines, kept), units=self.units[lines],
            classes=None if self.classes is None else self.classes[lines],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.units)

    def __repr__(self) -> str:
        return f"TableLines(n_lines={len(self)}, n_rows={len(self.at)}, unit={self.unit!r})"


_OWNERS = ("persons", "ids", "sites")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _Rows:
    """What rows have, whether one class or many labels each."""

    name: str
    feature_names: tuple[str, ...] = ()
    persons: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    sites: NDArray[Any] | None = None
    image_shape: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()
    places: TableLines | None = None
    _by_row: ClassVar[tuple[str, ...]]
    """What has an entry for each row, and is always there first."""

    def _keep(self, n_rows: int, **checked: Any) -> None:
        """Keep what was checked, and the columns that say to whom rows belong, read-only."""
        for name in _OWNERS:
            if getattr(self, name) is not None:
                checked[name] = entry_each(getattr(self, name), n_rows=n_rows, name=name)
        X = checked.get("X")
        if X is not None and self.image_shape is not None and math.prod(self.image_shape) != X.shape[1]:
            raise ValueError(f"Expected images of {X.shape[1]} numbers, got image_shape={self.image_shape}.")
        for name, value in checked.items():
            object.__setattr__(self, name, frozen(value))

    def take(self, rows: ArrayLike) -> Self:
        """Return the data set of some rows, by their numbers or by a mask."""
        numbers = np.arange(len(self))[row_index(rows)]
        taken = taken_rows(self, numbers, self._by_row)
        if self.places is not None:
            taken["places"] = self.places.take(numbers)
        return replace(self, **taken)

    def __len__(self) -> int:
        return len(getattr(self, self._by_row[0]))


# --- One class per row ---
#
# Classes, features and their names are public; the rows, and how many each person has, are not. A data set
# does not print its rows.


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset(_Rows):
    """Rows, their labels, and what belongs to each row; checked, and read-only.

    `persons` names whose row it is, `ids` the row itself, `budgets` the epsilon that row's owner agreed to,
    or the name of its level, `sites` where it was collected. `image_shape` gives the rows of `X` their shape
    back. `notes` says what was read off the data because it was not declared. `places` says where rows stood
    in a table of which some lines could not be used.

    >>> data = Dataset(name="tiny", X=[[0.0], [1.0], [2.0]], y=[0, 1, 1], n_classes=2, persons=list("aba"))
    >>> data
    Dataset('tiny', n_rows=3, n_features=1, n_classes=2, persons)
    >>> data.class_names, data.feature_names
    (('0', '1'), ('x0',))
    >>> data.take([0, 2]).persons
    array(['a', 'a'], dtype='<U1')
    """

    X: NDArray[Any]
    y: NDArray[np.int64]
    n_classes: int
    class_names: tuple[str, ...] = ()
    budgets: NDArray[Any] | None = None
    _by_row = ("X", "y", "budgets", *_OWNERS)

    def __post_init__(self) -> None:
        require_count(2, n_classes=self.n_classes)
        given: Any = self.X
        X = given if isinstance(given, KeptRows) else _features(given)
        y = class_ids(entry_each(self.y, n_rows=len(X), name="y"), n_classes=self.n_classes)
        kept: dict[str, Any] = {"X": X, "y": y, "n_classes": int(self.n_classes)}
        kept["class_names"] = _names(
            self.class_names or map(str, range(self.n_classes)), self.n_classes, "class"
        )
        kept["feature_names"] = _names(
            self.feature_names or (f"x{j}" for j in range(X.shape[1])), X.shape[1], "feature"
        )
        if self.budgets is not None:
            kept["budgets"] = _budgets(self.budgets, n_rows=len(X))
        self._keep(len(X), **kept)
        for name in _OWNERS:
            if getattr(self, name) is not None:
                require_present(**{name: getattr(self, name).tolist()})

    @property
    def space(self) -> OneOf:
        """Return what a ballot on a row says."""
        return OneOf(self.n_classes)

    @property
    def n_features(self) -> int:
        """Return how many features a row has."""
        return int(self.X.shape[1])

    @property
    def images(self) -> NDArray[Any]:
        """Return the rows as images: rows, height, width and, where there are colours, channels."""
        if self.image_shape is None:
            raise ValueError(f"Expected a data set of images, {self.name!r} has no image_shape.")
        return self.X.reshape(len(self), *self.image_shape)

    def __repr__(self) -> str:
        shape = f"n_rows={len(self)}, n_features={self.n_features}, n_classes={self.n_classes}"
        there = [name for name in ("persons", "ids", "budgets", "sites") if getattr(self, name) is not None]
        return f"Dataset({', '.join([repr(self.name), shape, *there])})"


def _features(values: ArrayLike) -> NDArray[Any]:
    table = numeric_rows(values)
    if table.ndim != 2:
        raise ValueError(f"Expected X of shape (rows, features), got shape {table.shape}.")
    return table


def _budgets(values: ArrayLike, *, n_rows: int) -> NDArray[Any]:
    budgets = entry_each(values, n_rows=n_rows, name="budgets")
    if budgets.dtype.kind == "U":
        require_present(budgets=budgets.tolist())
        return budgets
    if budgets.dtype.kind not in "iuf":
        raise TypeError(f"Expected numbers or names of levels in budgets, got dtype {budgets.dtype}.")
    bad = ~(np.isfinite(budgets) & (budgets > 0))
    if bad.any():
        raise ValueError(f"Expected budgets > 0 and finite, got another in row {int(np.argmax(bad))}.")
    return budgets.astype(np.float64)


def entry_each(values: ArrayLike, *, n_rows: int, name: str, rows: str = "rows") -> NDArray[Any]:
    """Return a column that has an entry for every row, or refuse another."""
    column = np.asarray(values)
    if column.shape != (n_rows,):
        raise ValueError(
            f"Expected {name} with one entry for each of {n_rows} {rows}, got shape {column.shape}."
        )
    return column


def _names(values: Any, n_wanted: int, what: str) -> tuple[str, ...]:
    names = tuple(str(value) for value in values)
    if len(names) != n_wanted or len(set(names)) != n_wanted:
        raise ValueError(
            f"Expected {n_wanted} different {what} names, got {len(names)} ({len(set(names))} different)."
        )
    return names


def frozen(value: Any) -> Any:
    """Return a read-only view of an array, and anything else as it is."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def taken_rows(data: object, numbers: Indices, columns: Sequence[str]) -> dict[str, Any]:
    """Return some rows of the columns that a data set has, by name."""
    taken: dict[str, Any] = {}
    for name in columns:
        column = getattr(data, name)
        if isinstance(column, tuple):
            taken[name] = tuple(column[number] for number in numbers)
        elif column is not None:
            taken[name] = column[numbers]
    return taken


def row_index(rows: ArrayLike, what: str = "row") -> NDArray[Any]:
    """Return row numbers or a mask, or refuse what is neither."""
    index = np.asarray(rows)
    if index.ndim != 1 or index.dtype.kind not in "iub" or index.size == 0:
        raise ValueError(
            f"Expected {what} numbers or a mask in one dimension, got {index.dtype} of shape {index.shape}."
        )
    return index


# --- Many labels per row ---

UNKNOWN = -1
Policy = Literal["zeros", "ones", "ignore"]
"""What becomes of a label that is marked as not certain: no, yes, or `UNKNOWN`."""
POLICIES = ("zeros", "ones", "ignore")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MultilabelDataset(_Rows):
    """Rows that carry yes (1), no (0) or `UNKNOWN` (-1) for every label; checked, and read-only.

    A row is a row of `X`, or the image at its place in `paths`; `decoded` turns the second into the first,
    and `image_shape` then gives rows their shape back. `persons` names whose row it is, so that teachers can
    be dealt persons instead of rows, `ids` the row itself, `sites` where it was collected. `notes` says what
    was decided while reading; `places` where rows stood in a table of which some lines could not be used.

    >>> names = ("cat", "dog")
    >>> data = MultilabelDataset(name="tiny", X=[[0.5], [1.5]], Y=[[1, 0], [0, 1]], label_names=names)
    >>> data, data.take([1]).Y.tolist(), data.choose(["dog"]).Y.tolist()
    (MultilabelDataset('tiny', n_rows=2, n_labels=2, n_features=1), [[0, 1]], [[0], [1]])
    >>> data.choose(["dgo"])
    Traceback (most recent call last):
        ...
    ValueError: Expected labels of 'tiny' (cat, dog), got 'dgo'.
    >>> photo = MultilabelDataset(name="x", Y=[[1]], label_names=("cat",), paths=(Path("missing.png"),))
    >>> photo.decoded(size=(8, 8))  # as photo.images(size=(8, 8))
    Traceback (most recent call last):
        ...
    ValueError: Expected an image in row 0, found no file at missing.png. ...
    """

    Y: NDArray[np.int8]
    label_names: tuple[str, ...]
    X: Any = None  # an array, rows kept elsewhere, or None where rows are images that were not decoded yet
    paths: tuple[Path, ...] | None = None
    _by_row = ("Y", "X", "paths", *_OWNERS)

    def __post_init__(self) -> None:
        Y = np.asarray(self.Y)
        if Y.ndim != 2 or Y.size == 0:
            raise ValueError(f"Expected Y of shape (rows, labels), neither empty, got shape {Y.shape}.")
        if Y.dtype.kind not in "biuf" or not np.isin(Y, (0, 1, UNKNOWN)).all():
            raise ValueError(f"Expected 0, 1 or {UNKNOWN} (not known) in Y, got another value.")
        kept: dict[str, Any] = {"Y": Y.astype(np.int8)}
        kept["label_names"] = _names(self.label_names, Y.shape[1], "label")
        if (self.X is None) == (self.paths is None):
            raise ValueError("Expected either X or paths: rows of features, or images.")
        if self.X is not None:
            kept["X"] = self.X if isinstance(self.X, KeptRows) else _features(self.X)
            if self.feature_names and len(self.feature_names) != kept["X"].shape[1]:
                raise ValueError(
                    f"Expected {kept['X'].shape[1]} feature names, got {len(self.feature_names)}."
                )
        if self.paths is not None:
            kept["paths"] = tuple(Path(path) for path in self.paths)
        for what in ("X", "paths"):
            if what in kept and len(kept[what]) != len(Y):
                raise ValueError(
                    f"Expected {what} with one entry for each of {len(Y)} rows, got {len(kept[what])}."
                )
        self._keep(len(Y), **kept)

    @property
    def space(self) -> SetOf:
        """Return what a ballot on a row says."""
        return SetOf(self.n_labels)

    @property
    def n_labels(self) -> int:
        """Return how many labels a row carries."""
        return int(self.Y.shape[1])

    @property
    def n_features(self) -> int:
        """Return how many numbers a row has."""
        if self.X is None:
            raise ValueError(f"Expected rows of numbers, {self.name!r} has images. Decode them (decoded).")
        return int(self.X.shape[1])

    @property
    def y(self) -> NDArray[np.int64]:
        """Return the labels as models learn them, 0 and 1 in whole numbers; labels not known are refused."""
        if not self.known.all():
            row, label = (int(i) for i in np.argwhere(~self.known)[0])
            raise ValueError(
                f"Expected 0 or 1 for every label in {self.name!r}, got one that is not known in row {row}, "
                f'label {self.label_names[label]!r}. Say what becomes of it, "zeros" or "ones", when reading.'
            )
        return self.Y.astype(np.int64)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return which labels are known, (rows, labels)."""
        return np.asarray(self.Y != UNKNOWN)

    def choose(self, label_names: Sequence[str]) -> "MultilabelDataset":
        """Return the data set of some labels, in the order given."""
        for name in label_names:
            if name not in self.label_names:
                raise ValueError(
                    f"Expected labels of {self.name!r} ({', '.join(self.label_names)}), got {name!r}."
                )
        columns = [self.label_names.index(name) for name in label_names]
        return replace(self, Y=self.Y[:, columns], label_names=tuple(label_names))

    def decoded(self, *, size: tuple[int, int], grey: bool = False) -> "MultilabelDataset":
        """Return the data set with its images as rows of numbers, which is what teachers learn from.

        All images are in memory then, as float32; a file that cannot be read is an error that names it.
        """
        images = self.images(size=size, grey=grey)
        return replace(self, X=images.reshape(len(self), -1), paths=None, image_shape=images.shape[1:])

    def images(
        self, rows: ArrayLike | None = None, *, size: tuple[int, int], grey: bool = False
    ) -> NDArray[np.float32]:
        """Decode images: float32 in [0, 1], (rows, height, width, 3), or without the last axis if `grey`.

        All of them or none: a file that cannot be read is an error that names it.
        """
        if self.paths is None:
            raise ValueError(f"Expected a data set of images, {self.name!r} has features.")
        require_count(height=size[0], width=size[1])
        places = np.arange(len(self)) if rows is None else np.arange(len(self))[np.asarray(rows)]
        shape = (len(places), *size) if grey else (len(places), *size, 3)
        result = np.empty(shape, dtype=np.float32)
        for i, row in enumerate(places):
            result[i] = decode(self.paths[row], size=size, grey=grey, row=int(row))
        return result

    def __repr__(self) -> str:
        kind = "images" if self.X is None else f"n_features={self.X.shape[1]}"
        there = [name for name in _OWNERS if getattr(self, name) is not None]
        shape = f"n_rows={len(self)}, n_labels={self.n_labels}"
        return f"MultilabelDataset({', '.join([repr(self.name), shape, kind, *there])})"


def decode(path: Path, *, size: tuple[int, int], grey: bool = False, row: int = 0) -> NDArray[np.float32]:
    """Return one image, resized, as float32 in [0, 1]."""
    if not path.is_file():
        raise ValueError(f"Expected an image in row {row}, found no file at {path}. Check where images lie.")
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Expected Pillow to decode images: pip install 'tellers[images]'") from None
    try:
        with Image.open(path) as image:
            fitted = image.convert("L" if grey else "RGB").resize(
                (size[1], size[0]), Image.Resampling.BILINEAR
            )
        return np.asarray(fitted, dtype=np.float32) / np.float32(255)
    except Exception as error:  # the decoder raises whatever a damaged file makes it stumble over
        raise ValueError(f"Expected an image in row {row}, could not read {path}. Fetch it again.") from error


def settle(value: int, *, policy: Policy) -> int:
    """Return what a label is, 1, 0 or UNKNOWN, where -1 means that nobody is certain."""
    return value if value != UNKNOWN else {"zeros": 0, "ones": 1, "ignore": UNKNOWN}[policy]


def require_policy(**given: str) -> None:
    """Refuse anything but the names of policies, naming the argument."""
    for name, value in given.items():
        if value not in POLICIES:
            raise ValueError(f"Expected {name} to be one of {', '.join(POLICIES)}, got {value!r}.")


def require_images(paths: Sequence[Path]) -> None:
    """Refuse a list of images of which one is not there, naming the first."""
    for row, path in enumerate(paths):
        if not path.is_file():
            raise ValueError(
                f"Expected an image in row {row}, found no file at {path}. Check where images lie, or pass "
                "check_images=False to read labels alone."
            )


# --- Public rows that are copies of private ones: counted by hash, and sealed ---

N_BYTES = 16
"""Of the hash of a row."""


def count_copies(public: ArrayLike, private: ArrayLike | KeptRows) -> Sealed[int]:
    """Return how many public rows are exact copies of private ones; sealed, as it looks at those.

    Rows are compared by hashes of their numbers, in the coarser of the two precisions; whole numbers with
    whole numbers are compared digit by digit. A missing value (NaN) equals another. Labels are not looked
    at. Rows that were changed however little, or scaled, are not found. Private rows that are kept elsewhere
    are not read: their hashes are there.
    """
    asked = _numbers(public, "public")
    kept = private if isinstance(private, KeptRows) else _numbers(private, "private")
    if asked.shape[1:] != kept.shape[1:]:
        raise ValueError(
            f"Expected public and private rows with the same features, got shapes {asked.shape[1:]} and "
            f"{kept.shape[1:]}."
        )
    if isinstance(kept, KeptRows):
        there, precision = {row.tobytes() for row in kept.hashes}, kept.number
    else:
        precision = _precision(asked, kept)
        there = set(_hashes(kept, precision))
    return Sealed(sum(row in there for row in _hashes(asked, precision)))


def row_hashes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a hash of the numbers of every row, (rows, 16): equal for equal rows of the same type."""
    whole = _numbers(rows, "given")
    found = b"".join(_hashes(whole, _precision(whole)))
    return np.frombuffer(found, dtype=np.uint8).reshape(-1, N_BYTES)


def _numbers(table: ArrayLike, whose: str) -> NDArray[Any]:
    rows = np.asarray(table)
    if rows.dtype.kind not in "iufb":
        # Said here, and not by a cast, which would quote an entry.
        raise TypeError(
            f"Expected numbers in the {whose} rows, got dtype {rows.dtype}. Turn categories into codes first."
        )
    if rows.ndim < 2:
        raise ValueError(f"Expected {whose} rows of shape (rows, features), got shape {rows.shape}.")
    return rows


def _precision(*tables: NDArray[Any]) -> "np.dtype[Any]":
    """Return the type in which rows are compared: one in which no two numbers of a coarser table meet."""
    floats = [table.dtype for table in tables if table.dtype.kind == "f"]
    if not floats:
        whole = [np.dtype(np.int8) if table.dtype.kind == "b" else table.dtype for table in tables]
        met = np.result_type(*whole)
        # Signed and unsigned 64 bits meet in floats, where large numbers run together: as their digits, then.
        return np.dtype("S20") if met.kind == "f" else met.newbyteorder("=")
    coarsest = min(floats, key=lambda kind: kind.itemsize).newbyteorder("=")
    # Of an extended float some bytes mean nothing, and hashes would see them.
    return coarsest if coarsest.itemsize <= 8 else np.dtype(np.float64)


def _hashes(table: NDArray[Any], precision: "np.dtype[Any]") -> Iterator[bytes]:
    for start in range(0, len(table), 4096):
        with np.errstate(over="ignore"):  # what the coarser precision cannot hold is infinite in both
            rows = table[start : start + 4096].astype(precision)
        if precision.kind == "f":
            rows = rows + rows.dtype.type(0)  # turns -0.0, which equals 0.0 and has other bytes, into 0.0
            rows[np.isnan(rows)] = np.nan  # one kind of NaN; there are many, with other bytes
        for row in np.ascontiguousarray(rows):
            yield hashlib.blake2b(row.tobytes(), digest_size=N_BYTES).digest()
