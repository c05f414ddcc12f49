"""Neighbouring tables: every way in which the rows of one unit may differ, drawn at random.

A table is a mapping from names of columns to arrays, an entry per row. Nothing here knows how rows are dealt.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        return _KINDS[kind](self)

    def rows_of(self, unit: Any, table: Table) -> Table:
        """Return the rows of a unit in a table, its own or a neighbour of it."""
        rows = np.array([unit]) if self.unit is None else np.flatnonzero(table[self.unit] == unit)
        return _take(table, rows)

    def _at_place(self, kind: str) -> Change:
        row = _where(self.rng, self._n_rows)
        changed = self._relabelled(row) if kind == "relabel" else self._other(row)
        return Change(f"row {row} is another", _put(self.table, row, changed), (row,))

    def insert_unit(self) -> Change:
        """Add somebody new, with one row or many."""
        name, n = self._new_name(), int(self.rng.choice([1, 1, 2, 5, 40]))
        donor, table = int(self.rng.integers(self._n_rows)), self.table
        for _ in range(n):
            row = {**self._other(donor), self._unit: name}
            table = _insert(table, _where(self.rng, len(table[self._unit]) + 1), row)
        return Change(f"{name!r} comes with {n} rows", table, (name,))

    def delete_unit(self) -> Change | None:
        """Take somebody out, with all rows."""
        unit = self._some_unit(1)
        if unit is None or len(set(self.table[self._unit].tolist())) < 2:
            return None
        kept = np.flatnonzero(self.table[self._unit] != unit)
        return Change(f"{unit!r} goes", _take(self.table, kept), (unit,))

    def insert_row(self) -> Change | None:
        """Give somebody one more row."""
        unit = self._some_unit(1)
        at = _where(self.rng, self._n_rows + 1)
        changed = _insert(self.table, at, self._other(self._row_of(unit)))
        return Change(f"{unit!r} has one more row, at {at}", changed, (unit,))

    def delete_row(self) -> Change | None:
        """Take one of several rows from somebody."""
        unit = self._some_unit(2)
        if unit is None:
            return None
        row = self._row_of(unit)
        kept = np.delete(np.arange(self._n_rows), row)
        return Change(f"{unit!r} loses row {row}", _take(self.table, kept), (unit,))

    def replace(self) -> Change | None:
        """Put another row in the place of one."""
        unit = self._some_unit(1)
        row = self._row_of(unit)
        return Change(f"row {row} of {unit!r} is another", _put(self.table, row, self._other(row)), (unit,))

    def move(self) -> Change | None:
        """Move the rows of somebody to the front, to the end, or somewhere."""
        unit = self._some_unit(1)
        mine = np.flatnonzero(self.table[self._unit] == unit)
        others = np.flatnonzero(self.table[self._unit] != unit)
        at = _where(self.rng, len(others) + 1)
        order = np.concatenate([others[:at], mine, others[at:]])
        return Change(f"the rows of {unit!r} move to {at}", _take(self.table, order), (unit,))

    def re_order(self) -> Change | None:
        """Permute the rows of somebody among their places."""
        unit = self._some_unit(2)
        if unit is None:
            return None
        mine, order = np.flatnonzero(self.table[self._unit] == unit), np.arange(self._n_rows)
        order[mine] = np.roll(mine, int(self.rng.integers(1, len(mine))))
        return Change(f"the rows of {unit!r} change places", _take(self.table, order), (unit,))

    def duplicate(self) -> Change | None:
        """Repeat a row of somebody, beside it or elsewhere."""
        unit = self._some_unit(1)
        row = self._row_of(unit)
        at = int(self.rng.choice([row, row + 1, 0, self._n_rows]))
        twice = np.insert(np.arange(self._n_rows), at, row)
        return Change(f"row {row} of {unit!r} is there twice", _take(self.table, twice), (unit,))

    def relabel(self) -> Change | None:
        """Give one row, or all rows of somebody, another target."""
        unit = self._some_unit(1)
        mine = np.flatnonzero(self.table[self._unit] == unit)
        chosen = mine if self.rng.random() < 0.5 else mine[[_where(self.rng, len(mine))]]
        table = self.table
        for row in chosen:
            table = _put(table, int(row), self._relabelled(int(row)))
        return Change(f"{len(chosen)} rows of {unit!r} have another target", table, (unit,))

    def rename(self) -> Change | None:
        """Call somebody by a name that nobody has."""
        unit, name = self._some_unit(1), self._new_name()
        table = self.table
        for row in np.flatnonzero(table[self._unit] == unit):
            table = _put(table, int(row), {**_row(table, int(row)), self._unit: name})
        return Change(f"{unit!r} is called {name!r}", table, (unit, name))

    def hand_over(self) -> Change | None:
        """Let one row be somebody else's: two units change."""
        unit = self._some_unit(1)
        others = [one for one in dict.fromkeys(self.table[self._unit].tolist()) if one != unit]
        if not others:
            return None
        heir, row = others[int(self.rng.integers(len(others)))], self._row_of(unit)
        own = _row(self.table, int(np.flatnonzero(self.table[self._unit] == heir)[0]))
        changed = {**_row(self.table, row), self._unit: heir, **{name: own[name] for name in self.keeps}}
        return Change(f"row {row} of {unit!r} is {heir!r}'s", _put(self.table, row, changed), (unit, heir))

    @property
    def _unit(self) -> str:
        assert self.unit is not None
        return self.unit

    @property
    def _n_rows(self) -> int:
        return len(next(iter(self.table.values())))

    def _some_unit(self, n_least: int) -> Any:
        """Return a unit with at least so many rows: that of the first or last row, or any."""
        entries = self.table[self._unit].tolist()
        counts = Counter(entries)
        fitting = [name for name in entries if counts[name] >= n_least]
        return fitting[_where(self.rng, len(fitting))] if fitting else None

    def _row_of(self, unit: Any) -> int:
        mine = np.flatnonzero(self.table[self._unit] == unit)
        return int(mine[_where(self.rng, len(mine))])

    def _new_name(self) -> Any:
        column = self.table[self._unit]
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


def _insert_row(table: Table, at: int, row: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, column in table.items():
        new = np.asarray(row[name])[None]
        yield name, np.concatenate([column[:at], new, column[at:]])


def _insert(table: Table, at: int, row: Mapping[str, Any]) -> Table:
    return dict(_insert_row(table, at, row))


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


_KINDS: dict[str, Callable[[Changes], Change | None]] = {
    "insert unit": Changes.insert_unit,
    "delete unit": Changes.delete_unit,
    "insert row": Changes.insert_row,
    "delete row": Changes.delete_row,
    "replace": Changes.replace,
    "move": Changes.move,
    "re-order": Changes.re_order,
    "duplicate": Changes.duplicate,
    "relabel": Changes.relabel,
    "rename": Changes.rename,
    "hand over": Changes.hand_over,
}
