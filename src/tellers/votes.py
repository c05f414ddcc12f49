"""Votes: the ballots of a batch of queries and their tallies.

Votes are the private data of everything above this module. They are a type of their own, so that
a tally cannot be passed where released labels belong or the other way round, and they do not print.
Teachers and classes are declared: reading the number of classes off private ballots would leak it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import SealedValue, require_count

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Unit:
    """How far one protected unit can move a tally, as l1, l2 and l-infinity norms.

    The default is one changed ballot: a vote leaves one class and enters another. `n_ballots` says by how
    many ballots it moves, 0 where that is not known: then the norms alone count.

    >>> round(Unit().l2 ** 2, 9), Unit().l1, Unit().linf
    (2.0, 2.0, 1.0)
    """

    l1: float = 2.0
    l2: float = math.sqrt(2.0)
    linf: float = 1.0
    n_ballots: int = 0

    @classmethod
    def of_weight(cls, weight: int) -> "Unit":
        """Return the unit behind one ballot that counts `weight` votes.

        >>> Unit.of_weight(1) == Unit(), Unit.of_weight(3).linf
        (True, 3.0)
        """
        require_count(weight=weight)
        return cls() if weight == 1 else cls(2.0 * weight, math.sqrt(2.0) * weight, float(weight), 1)

    @classmethod
    def of_ballots(cls, n_ballots: int) -> "Unit":
        """Return the unit behind several ballots of one vote each, which may all change at once.

        The norms are those of all ballots leaving one class for one other, the furthest they can go.

        >>> Unit.of_ballots(1) == Unit(), Unit.of_ballots(3).l1
        (True, 6.0)
        """
        require_count(n_ballots=n_ballots)
        furthest = cls.of_weight(n_ballots)
        return replace(furthest, n_ballots=int(n_ballots)) if n_ballots > 1 else furthest

    @property
    def is_one_ballot(self) -> bool:
        """Return whether one ballot moves, with all its weight, from one class to one other.

        >>> Unit().is_one_ballot, Unit.of_weight(3).is_one_ballot, Unit.of_ballots(3).is_one_ballot
        (True, True, False)
        """
        whole = self.linf >= 1 and float(self.linf).is_integer()
        return whole and self == Unit.of_weight(int(self.linf))


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """Tallies of a batch of queries, with the ballots behind them where they are known.

    Every ballot counts one vote, unless `weights` says otherwise: whole votes per teacher, or per teacher
    and query; a weight of 0 is a teacher who takes no part.

    Guarantee: every row of `counts` holds whole votes that sum to `n_votes`, without weights `n_teachers`.
    Assumes:   one protected unit sits behind one teacher, so it changes one ballot per query.
    Reference: Papernot et al. 2017, section 3.1 (the threat model).

    >>> votes = Votes.from_ballots([[0, 1], [0, 1], [2, 1]], n_classes=3)
    >>> votes
    Votes(<private>, n_queries=2, n_teachers=3, n_classes=3)
    >>> votes.counts
    array([[2, 0, 1],
           [0, 3, 0]])
    """

    counts: Integers
    n_teachers: int
    ballots: Integers | None = None
    unit: Unit = Unit()
    weights: Integers | None = None

    @classmethod
    def from_ballots(cls, ballots: ArrayLike, *, n_classes: int) -> "Votes":
        """Return the votes of `ballots`, one row per teacher and one column per query.

        >>> len(Votes.from_ballots([[0, 1], [0, 1]], n_classes=2))
        2
        >>> Votes.from_ballots([[0, 1], [0, 7]], n_classes=2)
        Traceback (most recent call last):
            ...
        ValueError: Expected classes 0..1 (n_classes=2), got a class id outside at teacher 1, query 1. ...
        """
        require_count(2, n_classes=n_classes)
        n_classes = int(n_classes)
        table = _whole_numbers(ballots, name="ballots", axes=("teacher", "query"))
        if table.min() < 0 or table.max() >= n_classes:
            place = _first_place((table < 0) | (table >= n_classes), ("teacher", "query"))
            raise ValueError(
                f"Expected classes 0..{n_classes - 1} (n_classes={n_classes}), "
                f"got a class id outside at {place}. Declare every class the teachers may vote for."
            )
        return cls(_frozen(_tallied(table, n_classes)), table.shape[0], _frozen(table))

    @classmethod
    def from_counts(cls, counts: ArrayLike, *, n_teachers: int) -> "Votes":
        """Return the votes of a tally, one row per query and one column per class.

        >>> Votes.from_counts([[40, 210], [125, 125]], n_teachers=250).n_classes
        2
        >>> Votes.from_counts([[40, 210], [125, 124]], n_teachers=250)
        Traceback (most recent call last):
            ...
        ValueError: Expected every query's counts to sum to n_teachers=250, which query 1 does not. ...
        """
        require_count(n_teachers=n_teachers)
        table = _whole_numbers(counts, name="counts", axes=("query", "class"))
        if table.shape[1] < 2:
            raise ValueError(f"Expected counts with at least 2 classes (columns), got shape {table.shape}.")
        place = _first_place(table < 0, ("query", "class"))
        if place:
            raise ValueError(f"Expected counts >= 0, got a negative entry at {place}.")
        place = _first_place(table.sum(axis=1) != n_teachers, ("query",))
        if place:
            raise ValueError(
                f"Expected every query's counts to sum to n_teachers={n_teachers}, which {place} does not. "
                "Counts have one row per query and one column per class; every teacher votes once."
            )
        return cls(_frozen(table), int(n_teachers))

    def weighted(self, weights: ArrayLike) -> "Votes":
        """Return the same ballots, each counting its weight: (teachers,) or (teachers, queries), 0 is absent.

        Weights are whole, so that whole noise still covers them: weights that are fractions are brought to a
        common denominator first, and the mechanism's noise and threshold multiplied by it.

        >>> votes = Votes.from_ballots([[0, 1], [0, 1], [2, 1]], n_classes=3)
        >>> votes.weighted([1, 1, 3]).counts
        array([[2, 0, 3],
               [0, 5, 0]])
        >>> votes.weighted([[1, 0], [1, 1], [0, 1]]).counts
        array([[2, 0, 0],
               [0, 2, 0]])
        """
        if self.ballots is None:
            raise ValueError("Expected votes with ballots to weigh, got counts alone. Keep the ballots.")
        table = np.asarray(weights)
        one_each = table.reshape(-1, 1) if table.ndim == 1 else table
        table = _whole_numbers(one_each, name="weights", axes=("teacher", "query"))
        if table.shape not in ((self.n_teachers, 1), self.ballots.shape):
            raise ValueError(
                f"Expected weights of shape ({self.n_teachers},) or {self.ballots.shape}, one per teacher or "
                f"one per teacher and query, got shape {np.shape(weights)}."
            )
        if (table < 0).any():
            raise ValueError(
                f"Expected weights >= 0, got a negative one at {_first_place(table < 0, _AXES)}."
            )
        silent = (table == 0).all(axis=0)
        if silent.any():
            raise ValueError("Expected a teacher with a weight above 0 in every query, got a query without.")
        counts = np.zeros_like(self.counts)
        columns = np.arange(self.n_queries)
        for ballot, weight in zip(self.ballots, table, strict=True):
            counts[columns, ballot] += weight
        unit = Unit.of_weight(int(table.max()))
        kept = table[:, 0] if table.shape[1] == 1 else table
        return Votes(_frozen(counts), self.n_teachers, self.ballots, unit, _frozen(kept))

    @property
    def n_votes(self) -> Integers:
        """Return how many votes each query holds: its teachers, by their weights.

        >>> Votes.from_ballots([[0, 1], [0, 1]], n_classes=2).weighted([1, 4]).n_votes
        array([5, 5])
        """
        return np.asarray(self.counts.sum(axis=1))

    @property
    def n_queries(self) -> int:
        """Return how many queries the batch holds."""
        return self.counts.shape[0]

    @property
    def n_classes(self) -> int:
        """Return how many classes were declared."""
        return self.counts.shape[1]

    @property
    def top(self) -> Integers:
        """Return the largest count of each query."""
        return np.asarray(self.counts.max(axis=1))

    @property
    def gap(self) -> Integers:
        """Return the difference of the two largest counts of each query."""
        two = np.partition(self.counts, self.n_classes - 2, axis=1)[:, -2:]
        return np.asarray(two[:, 1] - two[:, 0])

    def __len__(self) -> int:
        return self.n_queries

    def __getitem__(self, rows: Any) -> "Votes":
        """Return the votes of some queries: an index, a slice, a mask or a list of indices."""
        if isinstance(rows, (int, np.integer)):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"Expected a query in 0..{len(self) - 1}, got {rows}.")
            rows = [int(rows)]
        ballots = None if self.ballots is None else _frozen(self.ballots[:, rows])
        weights = self.weights
        if weights is not None and weights.ndim == 2:
            weights = _frozen(weights[:, rows])
        return Votes(_frozen(self.counts[rows]), self.n_teachers, ballots, self.unit, weights)

    def __iter__(self) -> Iterator["Votes"]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        shape = f"n_queries={self.n_queries}, n_teachers={self.n_teachers}, n_classes={self.n_classes}"
        return f"Votes(<private>, {shape})"

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        # Without this NumPy would happily turn votes into an array that looks like labels.
        raise SealedValue(
            "Votes are not labels. Release them through a mechanism; `votes.counts` is private."
        )


_AXES = ("teacher", "query")
# Ballots counted at once, and tallies they are counted into: small enough to stay in a cache.
_CELLS = 1 << 17
_PLURAL = {"teacher": "teachers", "query": "queries", "class": "classes"}


def _whole_numbers(values: ArrayLike, *, name: str, axes: tuple[str, str]) -> Integers:
    table = np.asarray(values)
    if table.ndim != 2:
        hint = " A one-dimensional array looks like labels, not votes." if table.ndim == 1 else ""
        wanted = ", ".join(_PLURAL[axis] for axis in axes)
        raise ValueError(f"Expected {name} of shape ({wanted}), got shape {table.shape}.{hint}")
    if table.size == 0:
        raise ValueError(
            f"Expected {name} with at least one {axes[0]} and one {axes[1]}, got shape {table.shape}."
        )
    if table.dtype.kind not in "iuf":
        raise TypeError(f"Expected whole numbers in {name}, got dtype {table.dtype}.")
    if table.dtype.kind == "f":
        for bad, what in ((~np.isfinite(table), "NaN or infinity"), (table != np.floor(table), "a fraction")):
            place = _first_place(bad, axes)
            if place:
                raise ValueError(f"Expected whole numbers in {name}, got {what} at {place}.")
    if float(table.max()) > 2.0**53 or float(table.min()) < -(2.0**53):
        place = _first_place(np.abs(table.astype(np.float64)) > 2.0**53, axes)
        raise ValueError(f"Expected entries below 2**53 in size in {name}, got a larger one at {place}.")
    return table.astype(np.int64)


def _tallied(ballots: Integers, n_classes: int) -> Integers:
    """Count the ballots of every query, a piece at a time: no second array of the size of all ballots."""
    n_teachers, n_queries = ballots.shape
    counts = np.zeros((n_queries, n_classes), dtype=np.int64)
    width = min(n_queries, max(1, _CELLS // n_classes))
    height = max(1, _CELLS // width)
    for first in range(0, n_queries, width):
        part = counts[first : first + width]
        places = np.arange(len(part)) * n_classes
        for top in range(0, n_teachers, height):
            cast = places + ballots[top : top + height, first : first + width]
            part += np.bincount(cast.ravel(), minlength=part.size).reshape(part.shape)
    return counts


def _first_place(bad: NDArray[np.bool_], axes: tuple[str, ...]) -> str:
    """Say where the first offending entry is, or nothing; the entry itself stays private."""
    if not bad.any():
        return ""
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))


def _frozen(table: NDArray[Any]) -> Integers:
    table = np.ascontiguousarray(table, dtype=np.int64)
    table.flags.writeable = False
    return table
