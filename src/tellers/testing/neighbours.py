"""`check_neighbours`: one unit of a table changes one ballot and nothing that is public."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from ._require import require

# --- Neighbouring tables ---
#
# A table is a mapping from names of columns to arrays, an entry per row. Nothing here knows how rows are
# dealt.

Table = Mapping[str, NDArray[Any]]

# Names that sort first or last, look like numbers, are written in two ways, or are very long.
_WORDS = (
    "!", "0", "00", "1", "01", "1.0", "-1", "1e3", "A", "a", "a b", "é", "e\u0301", "ß", "Ω", "李", "🙂",
    "~~~~", "zzzz", "n" * 200,
)  # fmt: skip
_NUMBERS = (-1, 0, 1, 10**6, 2**31, 2**53)

ROWS = ("insert row", "delete row", "replace", "move", "re-order", "duplicate", "relabel")
UNITS = ("insert unit", "delete unit", "rename", "hand over")
PLACES = ("replace", "relabel")  # what may happen to a row that is known by its place


@dataclass(frozen=True, eq=False)
class Change:
    """A neighbouring table: what was done, in words, and the units whose rows are others."""

    words: str
    table: Table
    units: tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Changes:
    """Draws neighbours of one table; `unit` None means that a row is known by its place."""

    table: Table
    unit: str | None
    target: str | None
    keeps: tuple[str, ...]
    choices: Mapping[str, Sequence[Any]]
    names: Sequence[Any] | None
    rng: np.random.Generator

    def draw(self, kind: str) -> Change | None:
        """Return a neighbour by a kind of change, or None where no unit of the table can change so."""
        if self.unit is None:
            return self._at_place(kind)
        owners, rng = self.table[self.unit], self.rng
        unit = self._some_unit(owners, 2 if kind in ("delete row", "re-order") else 1)
        mine, others = np.flatnonzero(owners == unit), np.flatnonzero(owners != unit)
        if unit is None or (kind in ("delete unit", "hand over") and not len(others)):
            return None
        row, every = int(mine[_where(rng, len(mine))]), np.arange(len(owners))
        table, order = self.table, every
        units: tuple[Any, ...] = (unit,)
        match kind:
            case "insert unit":  # with one row or many
                name, n = self._new_name(owners), int(rng.choice([1, 1, 2, 5, 40]))
                words, units = f"{name!r} comes with {n} rows", (name,)
                donor = int(rng.integers(len(owners)))
                for _ in range(n):
                    at = _where(rng, len(table[self.unit]) + 1)
                    table = _insert(table, at, {**self._other(donor), self.unit: name})
            case "delete unit":
                words, order = f"{unit!r} goes", others
            case "insert row":
                at = _where(rng, len(owners) + 1)
                words, table = f"{unit!r} has one more row, at {at}", _insert(table, at, self._other(row))
            case "delete row":
                words, order = f"{unit!r} loses row {row}", np.delete(every, row)
            case "replace":
                words, table = f"row {row} of {unit!r} is another", _put(table, row, self._other(row))
            case "move":  # to the front, to the end, or somewhere
                at = _where(rng, len(others) + 1)
                words = f"the rows of {unit!r} move to {at}"
                order = np.concatenate([others[:at], mine, others[at:]])
            case "re-order":
                words = f"the rows of {unit!r} change places"
                order = every.copy()
                order[mine] = np.roll(mine, int(rng.integers(1, len(mine))))
            case "duplicate":  # beside the row or elsewhere
                words = f"row {row} of {unit!r} is there twice"
                order = np.insert(every, int(rng.choice([row, row + 1, 0, len(owners)])), row)
            case "relabel":  # one row, or all of them
                chosen = mine.tolist() if rng.random() < 0.5 else [row]
                words = f"{len(chosen)} rows of {unit!r} have another target"
                for one in chosen:
                    table = _put(table, one, self._relabelled(one))
            case "rename":
                name = self._new_name(owners)
                words, units = f"{unit!r} is called {name!r}", (unit, name)
                for one in mine.tolist():
                    table = _put(table, one, {**_row(table, one), self.unit: name})
            case _:  # one row becomes somebody else's
                known = list(dict.fromkeys(owners[others].tolist()))
                heir = known[int(rng.integers(len(known)))]
                own = _row(table, int(np.flatnonzero(owners == heir)[0]))
                changed = {**_row(table, row), self.unit: heir, **{name: own[name] for name in self.keeps}}
                words, units = f"row {row} of {unit!r} is {heir!r}'s", (unit, heir)
                table = _put(table, row, changed)
        return Change(words, table if order is every else _take(table, order), units)

    def rows_of(self, unit: Any, table: Table) -> Table:
        """Return the rows of a unit in a table, its own or a neighbour of it."""
        rows = np.array([unit]) if self.unit is None else np.flatnonzero(table[self.unit] == unit)
        return _take(table, rows)

    def _at_place(self, kind: str) -> Change:
        row = _where(self.rng, len(next(iter(self.table.values()))))
        changed = self._relabelled(row) if kind == "relabel" else self._other(row)
        return Change(f"row {row} is another", _put(self.table, row, changed), (row,))

    def _some_unit(self, owners: NDArray[Any], n_least: int) -> Any:
        """Return a unit with at least so many rows: that of the first or last row, or any."""
        entries = owners.tolist()
        counts = Counter(entries)
        fitting = [name for name in entries if counts[name] >= n_least]
        return fitting[_where(self.rng, len(fitting))] if fitting else None

    def _new_name(self, column: NDArray[Any]) -> Any:
        given = self.names if self.names is not None else _WORDS if column.dtype.kind in "UO" else _NUMBERS
        taken = {str(name) for name in column.tolist()}
        free = [name for name in given if str(name) not in taken]
        if free and (self.names is not None or self.rng.random() < 0.8):
            return free[int(self.rng.integers(len(free)))]
        number = int(self.rng.integers(10**6, 2**31))
        return f"n{number}" if column.dtype.kind in "UO" else number

    def _other(self, row: int) -> dict[str, Any]:
        """Return a row that shares with this one whose it is, and what its unit keeps, and nothing else."""
        kept = {self.unit, *self.keeps}
        mine = _row(self.table, row)
        return {name: mine[name] if name in kept else self._value(name) for name in self.table}

    def _relabelled(self, row: int) -> dict[str, Any]:
        assert self.target is not None
        return {**_row(self.table, row), self.target: self._value(self.target)}

    def _value(self, name: str) -> Any:
        """Return a value that a column may have: a declared one, somebody else's, or one far outside."""
        column = self.table[name]
        if name in self.choices:
            return self.choices[name][int(self.rng.integers(len(self.choices[name])))]
        donor = column[int(self.rng.integers(len(column)))]
        if column.dtype.kind != "f" or self.rng.random() < 0.5:
            return donor
        far = self.rng.choice([column.min() - 1, column.max() + 1, -1e6, 1e6, self.rng.normal()])
        return np.full_like(donor, far)


def _insert(table: Table, at: int, row: Mapping[str, Any]) -> Table:
    return {
        name: np.concatenate([column[:at], np.asarray(row[name])[None], column[at:]])
        for name, column in table.items()
    }


def _put(table: Table, row: int, changed: Mapping[str, Any]) -> Table:
    kept = {name: np.delete(column, row, axis=0) for name, column in table.items()}
    return _insert(kept, row, changed)


def _take(table: Table, rows: NDArray[np.int64]) -> Table:
    return {name: column[rows] for name, column in table.items()}


def _row(table: Table, row: int) -> dict[str, Any]:
    return {name: column[row] for name, column in table.items()}


def _where(rng: np.random.Generator, n: int) -> int:
    """Return the first place, the last, or any."""
    return int(rng.choice([0, n - 1, int(rng.integers(n))]))


# --- Check ---
#
# The guarantee of PATE is one for votes: neighbouring votes differ in one ballot. It is one for people only
# if neighbouring tables give neighbouring votes. This check tries tables and looks; it shares no code with
# what deals the rows.

_SHOWN = 4  # public things that a message names
_MANY = 10  # tables of one kind that may be skipped before one must have been compared
_ERROR = "the error"


@dataclass(frozen=True, eq=False, repr=False)
class TableVotes:
    """What came of a table: the ballots, everything that leaves, and the units that nothing protects.

    `ballots` has an entry per teacher: its answers, or the rows that it learns from. `public` is anything
    made of mappings, sequences, arrays, text and numbers. `set_aside` names units, or numbers rows that are
    known by their place, which were made public as the pool or the test.

    >>> TableVotes([[0, 1], [1, 1]], public={"n_teachers": 2})
    TableVotes(n_teachers=2, n_set_aside=0)
    """

    ballots: Any
    public: Any = None
    set_aside: Collection[Any] = ()

    def __repr__(self) -> str:
        return f"TableVotes(n_teachers={len(self.ballots)}, n_set_aside={len(self.set_aside)})"


@dataclass(frozen=True)
class Neighbours:
    """How many neighbouring tables were tried, by kind of change, and the most ballots that one changed.

    `skipped` counts tables whose changed unit had been set aside as public: nothing protects it.

    >>> found = Neighbours({"move": 9, "rename": 8}, worst={"move": 1, "rename": 2}, skipped={"move": 1})
    >>> found.summary
    '17 neighbouring tables: at most 1 ballot changed by move, 2 by rename; 1 table skipped, ...'
    """

    tried: Mapping[str, int]
    worst: Mapping[str, int]
    skipped: Mapping[str, int]

    @property
    def n_tried(self) -> int:
        """Return how many tables were tried."""
        return sum(self.tried.values())

    @property
    def n_skipped(self) -> int:
        """Return how many tables were skipped."""
        return sum(self.skipped.values())

    @property
    def summary(self) -> str:
        """Return one line that says how it went."""
        by_worst: dict[int, list[str]] = {}
        for kind, n in self.worst.items():
            by_worst.setdefault(n, []).append(kind)
        said = ", ".join(
            f"{n} {'ballot changed ' * first}by {', '.join(kinds)}"
            for first, (n, kinds) in zip([True, *[False] * len(by_worst)], sorted(by_worst.items()))
        )
        n = self.n_skipped
        aside = f"; {n} table{'s' * (n != 1)} skipped, whose unit is public anyway" if n else ""
        return f"{self.n_tried:,} neighbouring tables: at most {said}{aside}"


def check_neighbours(
    way: Callable[[Table], Any],
    table: Table,
    *,
    unit: str | None = None,
    target: str | None = None,
    change: Literal["add or remove", "replace"] | None = None,
    keeps: Sequence[str] = (),
    n_ballots: int | Callable[[Table], int] = 1,
    choices: Mapping[str, Sequence[Any]] | None = None,
    names: Sequence[Any] | None = None,
    kinds: Sequence[str] | None = None,
    n_tables: int = 1000,
    seed: int = 7,
) -> Neighbours:
    """Try neighbours of a table; fail if one unit changes more ballots than declared, or anything public.

    `way` takes a table, a mapping from names of columns to arrays, and returns `TableVotes`, or the ballots
    alone, teachers first. It must give the same for the same table: seeds are fixed, noise is left out.

    `unit` is the column that says whose a row is; without it a row is known by its place, and may be replaced
    only. `change` says how a unit may change: by default its rows come and go, or it comes and goes as a
    whole; with "replace" it stays, and its rows do what they like. `keeps` are columns that a unit keeps (a
    budget; the label, where rows are stratified). `n_ballots` is how many ballots one unit changes, or what
    says it from the unit's rows, as copies do. A change that touches two units, as a new name does, may
    change the ballots of both. `kinds` picks the changes to try.

    New rows have values of `choices` where a column has some (declared classes, missing values, categories
    that no row has), else values of other rows, and numbers far outside. New units have names of `names`, or
    odd ones: those that sort first or last, look like numbers, or are not plain letters.

    Whoever is set aside as public, in both tables, is not protected: such tables are counted as skipped. An
    error that a neighbour raises, and the table does not, is public too.

    >>> from zlib import crc32
    >>> def by_name(table):
    ...     owner = np.array([crc32(name.encode()) % 5 for name in table["who"].tolist()])
    ...     return [table["x"][owner == teacher] for teacher in range(5)]
    >>> def by_first_appearance(table):
    ...     seen = {}
    ...     codes = np.array([seen.setdefault(name, len(seen)) for name in table["who"].tolist()])
    ...     return [table["x"][codes % 5 == teacher] for teacher in range(5)]
    >>> table = {"who": np.array(list("abcdefgh") * 2), "x": np.arange(16.0)}
    >>> check_neighbours(by_name, table, unit="who", n_tables=99).summary
    '99 neighbouring tables: at most 1 ballot changed by ..., 2 by hand over, rename'
    >>> check_neighbours(by_first_appearance, table, unit="who", n_tables=99)
    Traceback (most recent call last):
        ...
    AssertionError: Expected one unit to change 1 ballot and nothing public, but ... of 99 neighbouring ...
    """
    require_count(n_tables=n_tables)
    change = change or ("replace" if unit is None else "add or remove")
    rng = np.random.default_rng(seed)
    changes = Changes(
        table=table, unit=unit, target=target, keeps=tuple(keeps), choices=choices or {}, names=names, rng=rng
    )
    wanted = rng.permutation(_kinds(unit, target=target, change=change, keeps=keeps, kinds=kinds)).tolist()
    here, again = (_marked(way(table)) for _ in range(2))
    changed = _differences(here.public, again.public)
    changed += ["ballots are others"] if here.ballots != again.ballots else []
    require(
        not changed,
        "Expected the same ballots and the same public things of the same table twice, got others: "
        f"{'; '.join(changed[:_SHOWN])}. Fix the seeds of the way, and leave out noise and clocks.",
    )
    tally = _Tally()
    for number in range(n_tables):
        kind = wanted[number % len(wanted)]
        one = changes.draw(kind)
        if one is None:
            continue
        try:
            there = _marked(way(one.table))
        except Exception as error:
            there = _Marks([], {_ERROR: f"{type(error).__name__}: {error}"})
        if any(_is_public(changes, one, name, here=here, there=there) for name in one.units):
            tally.skipped[kind] += 1
            continue
        n_allowed = sum(_n_ballots(n_ballots, changes, table=one.table, unit=name) for name in one.units)
        tally.count(kind, one, here, there, n_allowed=n_allowed)
    tally.require_sound(n_ballots)
    return Neighbours(dict(tally.tried), dict(tally.worst), dict(tally.skipped))


@dataclass(frozen=True, eq=False)
class _Marks:
    """What came of a table, as things that can be compared."""

    ballots: list[Any]
    public: dict[str, Any]
    set_aside: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Array:
    """An array that is equal to equal ones, and short to look at."""

    shape: tuple[int, ...]
    content: str | bytes

    def __repr__(self) -> str:
        return f"an array {self.shape} <{crc32(repr(self.content).encode()):08x}>"


class _Tally:
    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.worst: dict[str, int] = {}
        self.broken: dict[str, list[tuple[int, str]]] = {}

    def count(self, kind: str, change: Change, here: _Marks, there: _Marks, *, n_allowed: int) -> None:
        self.tried[kind] += 1
        told = _differences(here.public, there.public)
        n = sum(a != b for a, b in zip(here.ballots, there.ballots))
        if len(here.ballots) != len(there.ballots):
            told = told or [f"there were {len(here.ballots)} teachers and are {len(there.ballots)}"]
        self.worst[kind] = max(n, self.worst.get(kind, 0))
        if n > n_allowed or told:
            public = f", public: {'; '.join(told[:_SHOWN])}{'; ...' * (len(told) > _SHOWN)}" if told else ""
            words = (
                f"{n} of {len(here.ballots)} ballots changed, {n_allowed} allowed{public} ({change.words})"
            )
            self.broken.setdefault(kind, []).append((n - n_allowed + len(told) * 1000, words))

    def require_sound(self, n_ballots: Any) -> None:
        n_tried, n_broken = sum(self.tried.values()), sum(map(len, self.broken.values()))
        each = f"{n_ballots} ballot{'s' * (n_ballots != 1)}" if isinstance(n_ballots, int) else "its ballots"
        lines = [
            f"  {kind}, {len(found)} of {self.tried[kind]} tables, the worst: {max(found)[1]}"
            for kind, found in self.broken.items()
        ]
        said = f"{n_broken:,} of {n_tried:,} neighbouring tables did more:"
        require(
            not n_broken,
            "\n".join([f"Expected one unit to change {each} and nothing public, but {said}", *lines]),
        )
        unseen = [kind for kind, n in self.skipped.items() if n >= _MANY and not self.tried[kind]]
        require(
            n_tried and not unseen,
            f"Expected tables to compare, got none{f' by {unseen[0]}' if unseen else ''}: "
            f"{sum(self.skipped.values())} were skipped, as whoever changed is set aside. Try more tables, "
            "or set fewer units aside.",
        )
        require(
            any(self.worst.values()),
            f"Expected ballots that depend on the table, got {n_tried} neighbours that change none. Such a "
            "check shows nothing: take teachers that learn more, or more queries.",
        )


def _kinds(
    unit: str | None, *, target: str | None, change: str, keeps: Sequence[str], kinds: Sequence[str] | None
) -> list[str]:
    usual = PLACES if unit is None else ROWS if change == "replace" else (*UNITS, *ROWS)
    known = PLACES if unit is None else (*UNITS, *ROWS)
    strange = [kind for kind in kinds or () if kind not in known]
    if strange:
        raise ValueError(f"Expected kinds among {', '.join(known)}, got {strange[0]!r}.")
    able = target is not None and target not in keeps
    return [kind for kind in (usual if kinds is None else kinds) if able or kind != "relabel"]


def _n_ballots(given: int | Callable[[Table], int], changes: Changes, *, table: Table, unit: Any) -> int:
    if not callable(given):
        return given
    rows = changes.rows_of(unit, changes.table)
    there = len(next(iter(rows.values()))) > 0
    return given(rows if there else changes.rows_of(unit, table))


def _is_public(changes: Changes, change: Change, unit: Any, *, here: _Marks, there: _Marks) -> bool:
    """Say whether a unit is set aside wherever it is: one that is so here or there alone is protected."""
    asides = ((changes.table, here.set_aside), (change.table, there.set_aside))
    rows = [(next(iter(changes.rows_of(unit, table).values())), aside) for table, aside in asides]
    return all(_name(unit) in aside for found, aside in rows if len(found))


def _marked(found: Any) -> _Marks:
    if not isinstance(found, TableVotes):
        found = TableVotes(found)
    return _Marks(
        [_mark(ballot) for ballot in found.ballots],
        dict(_leaves(found.public, "")),
        frozenset(_name(name) for name in found.set_aside),
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Walk through nested things, and return what stands where."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _leaves(entry, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        yield f"the length of {path or 'it'}", len(value)
        for number, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{number}]")
    else:
        yield path or "it", _mark(value)


def _differences(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Return what is public here and is not the same there, in words."""
    if _ERROR in there and _ERROR not in here:
        return [f"it is refused, {_short(there[_ERROR])}"]
    told = [f"{path} is gone" for path in here if path not in there]
    told += [f"{path} is new, {_short(mark)}" for path, mark in there.items() if path not in here]
    both = [path for path in here if path in there and there[path] != here[path]]
    return told + [f"{path} was {_short(here[path])} and is {_short(there[path])}" for path in both]


def _mark(value: Any) -> Any:
    """Return something that is equal for equal things alone; NaN is equal to itself here."""
    if isinstance(value, np.ndarray):
        words = value.dtype.kind in "OUS"
        content = repr(value.tolist()) if words else value.dtype.str.encode() + value.tobytes()
        return _Array(value.shape, content)
    if isinstance(value, list | tuple):
        return tuple(_mark(entry) for entry in value)
    if isinstance(value, Mapping):
        return tuple((name, _mark(entry)) for name, entry in value.items())
    return repr(value)


def _name(unit: Any) -> str:
    """Return a unit's name as text; a column of numbers may have become one of fractions or of words."""
    return str(int(unit)) if isinstance(unit, float) and unit.is_integer() else str(unit)


def _short(mark: Any) -> str:
    words = mark if isinstance(mark, str) else repr(mark)
    return words if len(words) < 160 else f"{words[:156]} ..."
