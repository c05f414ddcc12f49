"""Partitions: which rows each teacher learns from, and what one protected unit then is.

A vote is private for a unit only if that unit sits behind one teacher. So parts never overlap, all rows of
a person go to one teacher when persons are named, and who shares a teacher with whom is drawn without
looking at the data. Where a partition does look (labels to stratify, numbers of rows to balance), its
`notes` say what the guarantee then leaves out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_present

Indices = NDArray[np.int64]
Seed = int | np.random.Generator
# What may sit behind one teacher; of sounds a record is a clip, and what clips come from a source.
Protected = Literal["one record", "one person", "one site", "one clip", "one source"]

_STRATIFIED = (
    "Stratified by label: which rows share a teacher depends on the labels. "
    "The guarantee covers a record that changes and keeps its label."
)
_BALANCED = (
    "Balanced by rows: which persons share a teacher depends on how many rows each has. "
    "The guarantee covers a person whose rows change and who keeps their number."
)


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The rows of each teacher, and the unit that sits behind one teacher alone.

    Guarantee: a change of one `unit` changes the rows of one teacher, within what `notes` leave out.
    Assumes:   a changed unit keeps its place in the table; the seed was not chosen by looking at the data.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).

    >>> parts = Partition((np.array([0, 2]), np.array([1, 3, 4])), unit="one record")
    >>> parts
    Partition(n_teachers=2, unit='one record')
    >>> parts.summary
    '2 teachers, 2 to 3 rows each (median 2.5); protected unit: one record'
    """

    parts: tuple[Indices, ...]
    unit: Protected
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_disjoint(self.parts)
        if self.unit not in get_args(Protected):
            known = ", ".join(map(repr, get_args(Protected)))
            raise ValueError(f"Expected a unit among {known}, got {self.unit!r}.")
        object.__setattr__(self, "parts", tuple(_frozen(part) for part in self.parts))

    @property
    def n_teachers(self) -> int:
        """Return how many parts there are."""
        return len(self.parts)

    @property
    def sizes(self) -> Indices:
        """Return how many rows each teacher has; private where persons or sites stay together."""
        return np.array([len(part) for part in self.parts], dtype=np.int64)

    @property
    def summary(self) -> str:
        """Return one line for the operator: how many teachers, how many rows each, the protected unit."""
        sizes = self.sizes
        spread = f"{sizes.min()} to {sizes.max()} rows each (median {np.median(sizes):g})"
        return f"{self.n_teachers} teachers, {spread}; protected unit: {self.unit}"

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Indices]:
        return iter(self.parts)

    def __getitem__(self, teacher: int) -> Indices:
        return self.parts[teacher]

    def __repr__(self) -> str:
        return f"Partition(n_teachers={self.n_teachers}, unit={self.unit!r})"


def partition(
    n_rows: int,
    n_teachers: int | None = None,
    *,
    seed: Seed | None = None,
    labels: ArrayLike | None = None,
    persons: ArrayLike | None = None,
    sites: ArrayLike | None = None,
    balance: Literal["persons", "rows"] = "persons",
) -> Partition:
    """Deal the rows of a table to teachers, each row to exactly one.

    Rows are shuffled; with `labels` every teacher also gets its share of each class. With `persons` all rows
    of a person go to one teacher, and every teacher gets equally many persons; `balance="rows"` evens out the
    rows instead, the largest persons first. With `sites` every site is one teacher, nothing is drawn, and
    `persons` are checked not to appear at two sites.

    >>> parts = partition(10, 3, seed=7)
    >>> parts.summary
    '3 teachers, 3 to 4 rows each (median 3); protected unit: one record'
    >>> [part.tolist() for part in partition(6, 3, seed=7, persons=["a", "b", "a", "c", "b", "c"])]
    [[0, 2], [3, 5], [1, 4]]
    >>> partition(4, sites=["north", "south", "north", "north"])[0]
    array([0, 2, 3])
    >>> partition(10, 11, seed=7)
    Traceback (most recent call last):
        ...
    ValueError: Expected at most one teacher per row, got n_teachers=11 for 10 rows. Take fewer teachers.
    """
    require_count(n_rows=n_rows)
    if labels is not None and (persons is not None or sites is not None):
        raise ValueError(
            "Expected labels, or persons and sites, got both. "
            "Rows that belong together cannot be spread by class."
        )
    if balance not in ("persons", "rows") or (balance == "rows" and (persons is None or sites is not None)):
        raise ValueError(
            f"Expected balance='persons', or 'rows' where persons alone are given, got {balance!r}."
        )
    if sites is not None:
        return _by_site(n_rows, n_teachers, sites=sites, persons=persons)
    if n_teachers is None or seed is None:
        raise ValueError(
            "Expected n_teachers and a seed, got none. Only sites partition a table by themselves."
        )
    require_count(n_teachers=n_teachers)
    n_teachers, generator = int(n_teachers), _generator(seed)
    if persons is not None:
        codes = _codes(persons, n_rows=n_rows, name="persons")
        owner = _deal_persons(codes, n_teachers, generator=generator, balance=balance)
        notes = (_BALANCED,) if balance == "rows" else ()
        return Partition(_parts(owner[codes], n_teachers), unit="one person", notes=notes)
    if n_teachers > n_rows:
        raise ValueError(
            f"Expected at most one teacher per row, got n_teachers={n_teachers} for {n_rows} rows. "
            "Take fewer teachers."
        )
    order = generator.permutation(int(n_rows))
    if labels is not None:
        # A stable sort by class keeps the shuffle within each class. Dealt in turn, every teacher's share
        # of each class, and of all rows, is within one of every other's.
        classes = _codes(labels, n_rows=n_rows, name="labels")[order]
        order = order[np.argsort(classes, kind="stable")]
    teacher = np.empty(int(n_rows), dtype=np.int64)
    teacher[order] = np.arange(int(n_rows)) % n_teachers
    return Partition(
        _parts(teacher, n_teachers), unit="one record", notes=() if labels is None else (_STRATIFIED,)
    )


def check_disjoint(parts: Sequence[ArrayLike], *, persons: ArrayLike | None = None) -> None:
    """Refuse parts that are empty, that share a row or, where persons are given, that share a person.

    >>> check_disjoint([[0, 1], [2, 3]], persons=["a", "a", "b", "b"])
    >>> check_disjoint([[0, 1], [1, 2]])
    Traceback (most recent call last):
        ...
    ValueError: Expected disjoint parts, got row 1 in part 0 and in part 1. Give every row to one teacher.
    >>> check_disjoint([[0, 1], [2]], persons=["a", "b", "b"])
    Traceback (most recent call last):
        ...
    ValueError: Expected every person in one part, got the person of row 1 in part 0 and, by row 2, ...
    """
    tables = [_row_numbers(part, number) for number, part in enumerate(parts)]
    if not tables:
        raise ValueError("Expected at least one part, got none.")
    rows = np.concatenate(tables)
    part_of = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    by_row = np.argsort(rows, kind="stable")
    rows, part_of = rows[by_row], part_of[by_row]
    twice = np.flatnonzero(rows[1:] == rows[:-1])
    if twice.size:
        at = int(twice[0])
        first, second = int(part_of[at]), int(part_of[at + 1])
        where = f"twice in part {first}" if first == second else f"in part {first} and in part {second}"
        raise ValueError(
            f"Expected disjoint parts, got row {rows[at]} {where}. Give every row to one teacher."
        )
    if persons is None:
        return
    codes = _codes(persons, n_rows=None, name="persons")
    if rows[-1] >= len(codes):
        raise ValueError(f"Expected a person for every row, got {len(codes)} for parts up to row {rows[-1]}.")
    people = codes[rows]
    first_at = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    first_at[people[::-1]] = np.arange(len(rows))[::-1]  # the last write is the first row
    split = np.flatnonzero(part_of != part_of[first_at[people]])
    if split.size:
        there, here = int(split[0]), int(first_at[people[split[0]]])
        # The row numbers name the person to whoever holds the table, and to nobody else.
        raise ValueError(
            f"Expected every person in one part, got the person of row {rows[here]} in part {part_of[here]} "
            f"and, by row {rows[there]}, in part {part_of[there]}. Partition by person."
        )


def _by_site(
    n_rows: int, n_teachers: int | None, *, sites: ArrayLike, persons: ArrayLike | None
) -> Partition:
    codes = _codes(sites, n_rows=n_rows, name="sites")
    n_sites = int(codes.max()) + 1
    if n_teachers is not None and n_teachers != n_sites:
        raise ValueError(
            f"Expected one teacher per site, got n_teachers={n_teachers} for {n_sites} sites. Leave it out."
        )
    parts = _parts(codes, n_sites)
    if persons is not None:
        _codes(persons, n_rows=n_rows, name="persons")
        check_disjoint(parts, persons=persons)
    return Partition(parts, unit="one site")


def _deal_persons(
    codes: Indices, n_teachers: int, *, generator: np.random.Generator, balance: str
) -> Indices:
    """Return the teacher of each person."""
    n_persons = int(codes.max()) + 1
    if n_teachers > n_persons:
        raise ValueError(
            f"Expected at most one teacher per person, got n_teachers={n_teachers} for {n_persons} persons. "
            "Take fewer teachers."
        )
    order = generator.permutation(n_persons)
    owner = np.empty(n_persons, dtype=np.int64)
    if balance == "persons":
        # The number of rows is not looked at: one person with more of them moves nobody else.
        owner[order] = np.arange(n_persons) % n_teachers
        return owner
    n_rows_of = np.bincount(codes, minlength=n_persons)
    order = order[np.argsort(-n_rows_of[order], kind="stable")]
    load = np.zeros(n_teachers, dtype=np.int64)
    for person in order:  # the largest first, each to the teacher with the fewest rows so far
        teacher = int(np.argmin(load))
        owner[person] = teacher
        load[teacher] += n_rows_of[person]
    return owner


def _codes(values: ArrayLike, *, n_rows: int | None, name: str) -> Indices:
    """Number the values by first appearance: a changed entry then renumbers nothing that came before it."""
    column: NDArray[Any] = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        row = int(np.argmax(values.mask))
        raise ValueError(f"Expected a value in every row of {name}, got a masked one in row {row}.")
    if column.ndim != 1 or len(column) == 0 or (n_rows is not None and len(column) != n_rows):
        wanted = "one entry per row" if n_rows is None else f"one entry for each of {n_rows} rows"
        raise ValueError(f"Expected {wanted} in {name}, got shape {column.shape}.")
    entries = column.tolist()
    require_present(**{name: entries})
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(entry, len(seen)) for entry in entries], dtype=np.int64)


def _parts(teacher: Indices, n_teachers: int) -> tuple[Indices, ...]:
    """Return the rows of each teacher, in the order of the table."""
    order = np.argsort(teacher, kind="stable")
    return tuple(np.split(order, np.searchsorted(teacher[order], np.arange(1, n_teachers))))


def _row_numbers(part: ArrayLike, number: int) -> Indices:
    table = np.asarray(part)
    if table.ndim != 1:
        raise ValueError(f"Expected row numbers in one dimension, part {number} has shape {table.shape}.")
    if table.size == 0:
        raise ValueError(f"Expected rows in every part, part {number} has none. Take fewer teachers.")
    if table.dtype.kind not in "iu":
        raise TypeError(f"Expected row numbers, part {number} has dtype {table.dtype}.")
    if table.min() < 0:
        raise ValueError(f"Expected row numbers >= 0, part {number} has a negative one.")
    return table.astype(np.int64)


def _generator(seed: Seed) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    require_count(0, seed=seed)
    return np.random.default_rng(int(seed))


def _frozen(part: NDArray[Any]) -> Indices:
    rows = np.array(part, dtype=np.int64)
    rows.flags.writeable = False
    return rows
