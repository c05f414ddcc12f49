"""Partitions: which rows each teacher learns from, and the neighbouring relation that follows from it.

A vote is private for a unit only if that unit sits behind one teacher. So parts never overlap, all rows of
a unit go to one teacher, and where a unit sits depends on nobody else: units with a name are seated by a
keyed hash of it, sites in the order in which they are declared, and records without a name by
their place in the table. A partition carries the `Relation` that this makes.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, time
from numbers import Integral, Real
from typing import Any, Literal, get_args
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_present
from ..privacy.relation import Kind, Relation

Indices = NDArray[np.int64]
Seed = int | np.random.Generator

# --- Seats: a keyed hash says which teacher a unit belongs to, and nobody else's rows have a say in it ---
#
# A seat that depends on the order of a table, on sorted names or on how many units there are is a function of
# all units: one that comes, goes or moves would re-deal the others. A hash of the unit's own identity is not.
# The key is drawn without looking at the data; it need not be secret.

RULE = "keyed hash, version 1"
_BITS = 128
_WHOLE = re.compile(r"-?[1-9][0-9]*\.0+", re.ASCII)  # how a table writes whole numbers beside fractions


def assignment_key(seed: Seed | None = None) -> bytes:
    """Return the key of an assignment: derived from a seed, or drawn fresh where there is none."""
    if seed is None:
        return secrets.token_bytes(32)
    if isinstance(seed, np.random.Generator):
        return seed.bytes(32)
    require_count(0, seed=seed)
    return hashlib.blake2b(str(int(seed)).encode(), digest_size=32, person=b"tellers assign").digest()


def identities(values: ArrayLike | Iterable[Any], *, name: str, n_rows: int | None = None) -> list[str]:
    """Return the identity of every row's unit as text: 3, 3.0, "3" and "3.0" are the same one.

    A column of numbers becomes one of texts, or of fractions, when one entry does. If that gave others a new
    identity, one unit would re-deal them all.
    """
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        row = int(np.argmax(values.mask))
        raise ValueError(f"Expected a value in every row of {name}, got a masked one in row {row}.")
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")
    column: NDArray[Any] = np.asarray(values, dtype=object)
    if column.ndim != 1 or len(column) == 0 or (n_rows is not None and len(column) != n_rows):
        wanted = "one entry per row" if n_rows is None else f"one entry for each of {n_rows} rows"
        raise ValueError(f"Expected {wanted} in {name}, got shape {column.shape}.")
    entries = column.tolist()
    require_present(**{name: entries})
    return [_identity(entry, name=name, row=row) for row, entry in enumerate(entries)]


def seats(
    names: Iterable[str], n_seats: int, *, key: bytes, purpose: str = "teacher", n_each: int = 1
) -> Indices:
    """Return the seats of every unit, units x `n_each`, all different; row i looks at name i alone."""
    require_count(n_seats=n_seats, n_each=n_each)
    if n_each > n_seats:
        raise ValueError(f"Expected at most as many seats each as there are, {n_seats}, got {n_each}.")
    rows = [_draw(name, int(n_seats), key=key, purpose=purpose, n_each=int(n_each)) for name in names]
    return np.array(rows, dtype=np.int64).reshape(-1, int(n_each))


def positions(names: Iterable[str], *, key: bytes, purpose: str) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every unit, of its own name alone."""
    # 53 bits are what a float holds below 1.
    return np.array([_hash(name, 0, key=key, purpose=purpose) >> (_BITS - 53) for name in names]) / 2.0**53


def _draw(name: str, n_seats: int, *, key: bytes, purpose: str, n_each: int) -> list[int]:
    found: list[int] = []
    turn = 0
    while len(found) < n_each:
        seat = _hash(name, turn, key=key, purpose=purpose) % n_seats
        if seat not in found:
            found.append(seat)
        turn += 1
    return found


def _hash(name: str, turn: int, *, key: bytes, purpose: str) -> int:
    made = hashlib.blake2b(key=key, digest_size=_BITS // 8)
    made.update(f"{purpose}\0{turn}\0".encode())
    made.update(name.encode("utf-8", "surrogatepass"))
    return int.from_bytes(made.digest(), "big")


def _identity(entry: object, *, name: str, row: int) -> str:
    if isinstance(entry, (np.bool_, bool)):
        return str(bool(entry))
    if isinstance(entry, Integral):
        return str(int(entry))
    if isinstance(entry, Real):
        value = float(entry)
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(entry, (date, time, UUID, np.datetime64)):
        return str(entry)
    if isinstance(entry, bytes):
        return entry.decode("utf-8", "surrogateescape")
    if isinstance(entry, str):
        return entry.partition(".")[0] if _WHOLE.fullmatch(entry) else entry
    raise TypeError(
        f"Expected texts, numbers or dates in {name}, got a {type(entry).__name__} in row {row}. "
        "Write every identity as text."
    )


# --- Parts ---

# What may sit behind one teacher; of sounds a record is a clip, and what clips come from a source.
Protected = Literal["one record", "one person", "one site", "one clip", "one source"]

_DECLARED = ("classes", "columns")
_IN_PLACE = (*_DECLARED, "number of rows")


def relation_in_place(unit: Kind = "record") -> Relation:
    """Return the relation of rows that keep their place in a table: any of them may be another."""
    return Relation(unit=unit, change="replace", public=_IN_PLACE)


def relation_by_name(unit: Kind = "person") -> Relation:
    """Return the relation of units that are seated by their names: any of them may come, go or change."""
    return Relation(unit=unit, change="add or remove", public=_DECLARED)


_USUAL: dict[str, Relation] = {
    "one record": relation_in_place(),
    "one clip": relation_in_place("clip"),
    "one person": relation_by_name(),
    "one source": relation_by_name("source"),
    "one site": Relation(unit="site", change="replace", public=(*_DECLARED, "names of sites")),
}


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The rows of each teacher, and the relation of neighbouring tables under which one teacher changes.

    A part may be empty. `relation` is that of the `unit` where none is given.

    Guarantee: two tables that are neighbours by `relation` differ in the rows of `relation.n_teachers` parts.
    Assumes:   the seed or key was not chosen by looking at the data.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).

    >>> parts = Partition((np.array([0, 2]), np.array([1, 3, 4])), unit="one record")
    >>> parts
    Partition(n_teachers=2, unit='one record')
    >>> parts.relation.change
    'replace'
    >>> parts.summary
    '2 teachers, 2 to 3 rows each (median 2.5); protected unit: one record'
    """

    parts: tuple[Indices, ...]
    unit: Protected
    notes: tuple[str, ...] = ()
    relation: Relation = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_disjoint(self.parts)
        if self.unit not in get_args(Protected):
            known = ", ".join(map(repr, get_args(Protected)))
            raise ValueError(f"Expected a unit among {known}, got {self.unit!r}.")
        given: Relation | None = self.relation
        if given is None:
            object.__setattr__(self, "relation", _USUAL[self.unit])
        if self.relation.name != self.unit:
            raise ValueError(f"Expected a relation of {self.unit}, got one of {self.relation.name}.")
        object.__setattr__(self, "parts", tuple(_frozen(part) for part in self.parts))

    @property
    def n_teachers(self) -> int:
        """Return how many parts there are."""
        return len(self.parts)

    @property
    def sizes(self) -> Indices:
        """Return how many rows each teacher has; private where units are seated by name."""
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
    key: bytes | None = None,
    labels: ArrayLike | None = None,
    persons: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    sites: ArrayLike | None = None,
    site_names: Sequence[object] | None = None,
) -> Partition:
    """Assign the rows of a table to teachers, each row to exactly one.

    With `persons` all rows of a person go to one teacher, and with `ids` a row goes where its own id says:
    by a hash under a key that is derived from the seed (or given as `key`). Parts then differ in size, and
    one may be empty. With `sites` every site is one teacher, in the order of `site_names`, nothing is drawn,
    and `persons` are checked not to appear at two sites. Without any of them rows are shuffled by their
    places in the table; with `labels` every teacher also gets its share of each class, and the relation says
    that a record keeps its label.

    >>> parts = partition(10, 3, seed=7)
    >>> parts.summary
    '3 teachers, 3 to 4 rows each (median 3); protected unit: one record'
    >>> [part.tolist() for part in partition(6, 3, seed=7, persons=["a", "b", "a", "c", "b", "c"])]
    [[0, 2, 3, 5], [], [1, 4]]
    >>> [part.tolist() for part in partition(5, 3, seed=7, persons=["b", "a", "c", "b", "c"])]
    [[1, 2, 4], [], [0, 3]]
    >>> partition(3, sites=["north", "south", "north"], site_names=["south", "north", "west"]).sizes
    array([1, 2, 0])
    >>> partition(10, 11, seed=7)
    Traceback (most recent call last):
        ...
    ValueError: Expected at most one teacher per row, got n_teachers=11 for 10 rows. Take fewer teachers.
    """
    require_count(n_rows=n_rows)
    n_rows = int(n_rows)
    named = [
        name for name, given in (("persons", persons), ("ids", ids), ("sites", sites)) if given is not None
    ]
    if labels is not None and named:
        raise ValueError(
            f"Expected labels or {named[0]}, got both. Rows seated by name cannot be spread by class."
        )
    if ids is not None and len(named) > 1:
        raise ValueError(f"Expected ids of single rows, or {named[0]}, got both. Leave one of the two out.")
    if sites is None and site_names is not None:
        raise ValueError("Expected site_names together with sites, one for every row, got no sites.")
    if sites is not None:
        return _by_site(n_rows, n_teachers, sites=sites, site_names=site_names, persons=persons)
    if n_teachers is None or (seed is None and (key is None or not named)):
        raise ValueError(
            "Expected n_teachers and a seed, got none. Only sites partition a table by themselves."
        )
    require_count(n_teachers=n_teachers)
    n_teachers = int(n_teachers)
    if named:
        column: Any = ids if persons is None else persons
        names = identities(column, name=named[0], n_rows=n_rows)
        key = assignment_key(seed) if key is None else key
        relation = relation_by_name("record" if persons is None else "person")
        return _partition(seat_of(names, n_teachers, key=key), n_teachers, relation)
    if n_teachers > n_rows:
        raise ValueError(
            f"Expected at most one teacher per row, got n_teachers={n_teachers} for {n_rows} rows. "
            "Take fewer teachers."
        )
    assert seed is not None  # checked above
    order, relation = _generator(seed).permutation(n_rows), relation_in_place()
    if labels is not None:
        # A stable sort by class keeps the shuffle within each class. Dealt in turn, every teacher's share
        # of each class, and of all rows, is within one of every other's.
        classes = np.unique(identities(labels, name="labels", n_rows=n_rows), return_inverse=True)[1][order]
        order = order[np.argsort(classes, kind="stable")]
        relation = replace(relation, keeps=("label",))
    teacher = np.empty(n_rows, dtype=np.int64)
    teacher[order] = np.arange(n_rows) % n_teachers
    return _partition(teacher, n_teachers, relation)


def seat_of(names: Sequence[str], n_teachers: int, *, key: bytes) -> Indices:
    """Return the teacher of every row by the name of its unit."""
    distinct = list(dict.fromkeys(names))
    seat = dict(zip(distinct, seats(distinct, n_teachers, key=key)[:, 0].tolist(), strict=True))
    return np.array([seat[name] for name in names], dtype=np.int64)


def check_disjoint(parts: Sequence[ArrayLike], *, persons: ArrayLike | None = None) -> None:
    """Refuse parts that share a row or, where persons are given, that share a person.

    A part may be empty: who sits where is drawn without looking at the rows.

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
    if persons is None or not rows.size:
        return
    codes = np.unique(identities(persons, name="persons"), return_inverse=True)[1]
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
    n_rows: int,
    n_teachers: int | None,
    *,
    sites: ArrayLike,
    site_names: Sequence[object] | None,
    persons: ArrayLike | None,
) -> Partition:
    if site_names is None:
        raise ValueError(
            "Expected site_names, all sites in the order of their teachers, got none. They are declared and "
            "never read off the rows: whether a site occurs may hang on one record."
        )
    names = identities(site_names, name="site_names")
    if len(set(names)) < len(names):
        raise ValueError("Expected different site_names, got one twice.")
    if n_teachers is not None and n_teachers != len(names):
        raise ValueError(
            f"Expected one teacher per site, got n_teachers={n_teachers} for {len(names)} sites. "
            "Leave it out."
        )
    number = {name: at for at, name in enumerate(names)}
    codes = np.array([number.get(one, -1) for one in identities(sites, name="sites", n_rows=n_rows)])
    if (codes < 0).any():
        raise ValueError(
            f"Expected one of the {len(names)} declared sites in every row, got another in row "
            f"{int(np.argmax(codes < 0))}. Declare every site (site_names)."
        )
    parts = _partition(codes.astype(np.int64), len(names), _USUAL["one site"])
    if persons is not None:
        identities(persons, name="persons", n_rows=n_rows)
        check_disjoint(parts.parts, persons=persons)
    return parts


def _partition(teacher: Indices, n_teachers: int, relation: Relation) -> Partition:
    """Return the rows of each teacher, in the order of the table."""
    unit: Any = relation.name
    order = np.argsort(teacher, kind="stable")
    parts = np.split(order, np.searchsorted(teacher[order], np.arange(1, n_teachers)))
    return Partition(tuple(parts), unit=unit, relation=relation)


def _row_numbers(part: ArrayLike, number: int) -> Indices:
    table = np.asarray(part)
    if table.ndim != 1:
        raise ValueError(f"Expected row numbers in one dimension, part {number} has shape {table.shape}.")
    if table.size == 0:
        return np.empty(0, dtype=np.int64)
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
