"""Votes: the ballots of a batch of queries and their tallies, for one class or for many labels."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import SealedValue, require_count

if TYPE_CHECKING:
    from scipy.sparse import csr_array


# --- Votes: the ballots of a batch of queries and their tallies. ---
#
# Votes are the private data of everything above this module. They are a type of their own, so that
# a tally cannot be passed where released labels belong or the other way round, and they do not print.
# Teachers and classes are declared: reading the number of classes off private ballots would leak it.


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


# --- Label votes: ballots that say yes or no to every one of many labels, and their sums. ---
#
# Like `Votes` they are private, a type of their own, and do not print. A ballot is whole: 0 or 1 per label,
# or a probability counted in whole units of 1 / `resolution`, so that whole noise covers it exactly.


_LABEL_AXES = ("teacher", "query", "label")
# Ballots are kept in the smallest type that holds them: 50 teachers x 10,000 queries x 20 labels are 10 MB.
_LARGEST_RESOLUTION = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class LabelVotes:
    """The sums of a batch of queries, one per label, with the ballots behind them where they are known.

    `sums` is (queries, labels) in units of 1 / `resolution` of a vote; `ballots` is (teachers, queries,
    labels), or sparse with one row per teacher and query, teacher by teacher. Where some teachers have no
    such label, `voters` holds how many know each: it is public, like the number of teachers.

    Guarantee: every sum lies between 0 and n_voters * resolution, without `voters` n_teachers * resolution.
    Assumes:   one protected unit sits behind one teacher: it changes one ballot per query, on all labels.
    Reference: Dullerud et al. 2022, section 3 (multi-winner elections).

    >>> votes = LabelVotes.from_ballots([[[1, 0, 1]], [[1, 0, 0]]], n_labels=3)
    >>> votes, votes.sums
    (LabelVotes(<private>, n_queries=1, n_teachers=2, n_labels=3), array([[2, 0, 1]]))
    """

    sums: Integers
    n_teachers: int
    ballots: "NDArray[Any] | csr_array | None" = None
    resolution: int = 1
    unit: Unit = Unit()
    voters: Integers | None = None

    @classmethod
    def from_ballots(
        cls,
        ballots: ArrayLike | Sequence[Any],
        *,
        n_labels: int,
        resolution: int = 1,
        knows: ArrayLike | None = None,
    ) -> "LabelVotes":
        """Return the votes of `ballots`: teachers x queries x labels, or one sparse matrix per teacher.

        With resolution 1 every entry is 0 or 1. With a larger one entries are probabilities, rounded to whole
        units of 1 / resolution. `knows`, teachers x labels of True and False, says which labels each teacher
        has: declared and public, never read off data. On others it abstains, whatever its ballot says.

        >>> LabelVotes.from_ballots([[[0.7, 0.1]], [[0.9, 0.2]]], n_labels=2, resolution=100).sums
        array([[160,  30]])
        >>> votes = LabelVotes.from_ballots([[[1, 1]], [[1, 1]]], n_labels=2, knows=[[1, 1], [1, 0]])
        >>> votes.sums, votes.n_voters
        (array([[2, 1]]), array([2, 1]))
        >>> LabelVotes.from_ballots([[[0.7, 0.1]]], n_labels=2)
        Traceback (most recent call last):
            ...
        ValueError: Expected 0 or 1 in ballots, got a fraction at teacher 0, query 0, label 0. ...
        """
        require_count(n_labels=n_labels)
        require_count(resolution=resolution)
        if resolution > _LARGEST_RESOLUTION:
            raise ValueError(f"Expected a resolution of at most {_LARGEST_RESOLUTION}, got {resolution}.")
        if isinstance(ballots, Sequence) and len(ballots) > 0 and all(_is_sparse(one) for one in ballots):
            return cls._from_sparse(list(ballots), int(n_labels), int(resolution), knows)
        table = _checked(_as_table(ballots, "ballots"), n_labels, resolution)
        known = _knowledge(knows, len(table), n_labels)
        if known is not None:
            table = table * known[:, None, :].astype(table.dtype)
        sums = table.sum(axis=0, dtype=np.int64)
        return cls(
            _frozen_labels(sums), len(table), _frozen_labels(table), int(resolution), voters=_voters(known)
        )

    @classmethod
    def from_probabilities(
        cls,
        probabilities: ArrayLike,
        *,
        n_labels: int,
        thresholds: ArrayLike = 0.5,
        knows: ArrayLike | None = None,
    ) -> "LabelVotes":
        """Return 0/1 votes: a teacher says yes where its probability reaches the label's threshold.

        Thresholds are public, or chosen on public data: one for all labels, or one per label. `knows` is as
        for `from_ballots`.

        >>> LabelVotes.from_probabilities([[[0.7, 0.4]]], n_labels=2, thresholds=[0.8, 0.3]).sums
        array([[0, 1]])
        """
        require_count(n_labels=n_labels)
        table = _in_range(_as_table(probabilities, "probabilities"), n_labels, "probabilities")
        limits = np.asarray(thresholds, dtype=np.float64)
        if limits.shape not in ((), (n_labels,)) or not ((limits >= 0) & (limits <= 1)).all():
            raise ValueError(
                f"Expected one threshold in [0, 1], or one per label ({n_labels}), got shape {limits.shape} "
                "or a value outside."
            )
        return cls.from_ballots(table >= limits, n_labels=n_labels, knows=knows)

    @classmethod
    def from_sums(
        cls, sums: ArrayLike, *, n_teachers: int, resolution: int = 1, n_voters: ArrayLike | None = None
    ) -> "LabelVotes":
        """Return the votes of sums alone, (queries, labels), in whole units.

        `n_voters` says how many teachers know each label, where not all do.

        >>> LabelVotes.from_sums([[45, 3]], n_teachers=50).n_labels
        2
        >>> LabelVotes.from_sums([[45, 3]], n_teachers=50, n_voters=[50, 4]).n_voters
        array([50,  4])
        """
        require_count(n_teachers=n_teachers, resolution=resolution)
        table = np.asarray(sums)
        if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu":
            raise ValueError(
                f"Expected whole sums of shape (queries, labels), got {table.shape} of {table.dtype}."
            )
        voters = None
        if n_voters is not None:
            voters = np.asarray(n_voters)
            right = voters.shape == (table.shape[1],) and voters.dtype.kind in "iu"
            if not right or voters.min() < 0 or voters.max() > n_teachers:
                raise ValueError(
                    f"Expected n_voters from 0 to {n_teachers} for each of {table.shape[1]} labels, "
                    "got another shape or number."
                )
            voters = None if (voters == n_teachers).all() else _frozen_labels(voters.astype(np.int64))
        most = (n_teachers if voters is None else voters) * resolution
        place = _first_label_place((table < 0) | (table > most), _LABEL_AXES[1:])
        if place:
            who = f"{most}, all teachers" if voters is None else "what all who know the label can say,"
            raise ValueError(f"Expected sums from 0 to {who} in whole units, got one outside at {place}.")
        return cls(
            _frozen_labels(table.astype(np.int64)), int(n_teachers), None, int(resolution), voters=voters
        )

    @classmethod
    def _from_sparse(
        cls, parts: list[Any], n_labels: int, resolution: int, knows: ArrayLike | None
    ) -> "LabelVotes":
        from scipy.sparse import csr_array, vstack

        rows = []
        known = _knowledge(knows, len(parts), n_labels)
        for teacher, part in enumerate(parts):
            matrix = csr_array(part, copy=True)
            matrix.sum_duplicates()
            if matrix.shape != (parts[0].shape[0], n_labels):
                raise ValueError(
                    f"Expected ballots of shape (queries, labels) = ({parts[0].shape[0]}, {n_labels}) from "
                    f"every teacher, got {matrix.shape} from teacher {teacher}."
                )
            data = np.asarray(matrix.data).reshape(1, 1, -1)
            if data.size:
                # Where a wrong entry stands in a sparse matrix is not worth finding: say whose it is.
                matrix.data = _checked(data, data.size, resolution, teacher=teacher).reshape(-1)
                if known is not None:
                    matrix.data = matrix.data * known[teacher][matrix.indices]
            matrix.eliminate_zeros()
            rows.append(matrix)
        if rows[0].shape[0] == 0:
            raise ValueError("Expected ballots on at least one query, got none.")
        stacked = csr_array(vstack(rows, format="csr"))
        sums = np.zeros((rows[0].shape[0], n_labels), dtype=np.int64)
        for matrix in rows:
            sums += matrix.toarray().astype(np.int64)
        return cls(_frozen_labels(sums), len(rows), stacked, resolution, voters=_voters(known))

    def block(self, rows: Any = None) -> NDArray[np.int64]:
        """Return the ballots of some queries, dense: (teachers, queries, labels) in whole units.

        >>> LabelVotes.from_ballots([[[1, 0]], [[1, 1]]], n_labels=2).block().shape
        (2, 1, 2)
        """
        if self.ballots is None:
            raise ValueError("Expected votes with ballots, got sums alone. Keep the ballots.")
        index = np.arange(self.n_queries) if rows is None else np.arange(self.n_queries)[rows]
        if _is_sparse(self.ballots):
            flat = (np.arange(self.n_teachers)[:, None] * self.n_queries + index).ravel()
            dense = np.asarray(self.ballots[flat].toarray(), dtype=np.int64)
            return dense.reshape(self.n_teachers, index.size, self.n_labels)
        return np.asarray(self.ballots[:, index], dtype=np.int64)

    @property
    def n_queries(self) -> int:
        """Return how many queries the batch holds."""
        return self.sums.shape[0]

    @property
    def n_labels(self) -> int:
        """Return how many labels were declared."""
        return self.sums.shape[1]

    @property
    def n_voters(self) -> Integers:
        """Return how many teachers know each label; public.

        >>> LabelVotes.from_sums([[45, 3]], n_teachers=50).n_voters
        array([50, 50])
        """
        return np.full(self.n_labels, self.n_teachers) if self.voters is None else self.voters

    def require_all_labels(self, what: str) -> None:
        """Refuse votes of teachers that do not know every label, where that is not provided for.

        >>> votes = LabelVotes.from_sums([[45, 3]], n_teachers=50, n_voters=[50, 4])
        >>> votes.require_all_labels("a vote file")
        Traceback (most recent call last):
            ...
        ValueError: Expected teachers that know all labels for a vote file, got some that abstain.
        """
        if self.voters is not None:
            raise ValueError(f"Expected teachers that know all labels for {what}, got some that abstain.")

    @property
    def is_sparse(self) -> bool:
        """Return whether the ballots are stored sparse.

        >>> LabelVotes.from_ballots([[[1, 0]]], n_labels=2).is_sparse
        False
        """
        return _is_sparse(self.ballots)

    def __len__(self) -> int:
        return self.n_queries

    def __getitem__(self, rows: Any) -> "LabelVotes":
        """Return the votes of some queries: an index, a slice, a mask or a list of indices."""
        if isinstance(rows, (int, np.integer)):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"Expected a query in 0..{len(self) - 1}, got {rows}.")
            rows = [int(rows)]
        ballots: Any = None
        if self.is_sparse:
            index = np.arange(self.n_queries)[rows]
            flat = (np.arange(self.n_teachers)[:, None] * self.n_queries + index).ravel()
            ballots = self.ballots[flat]  # type: ignore[index]
        elif self.ballots is not None:
            ballots = _frozen_labels(self.ballots[:, rows])
        sums = _frozen_labels(self.sums[rows])
        return LabelVotes(sums, self.n_teachers, ballots, self.resolution, self.unit, self.voters)

    def __iter__(self) -> Iterator["LabelVotes"]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        shape = f"n_queries={self.n_queries}, n_teachers={self.n_teachers}, n_labels={self.n_labels}"
        return f"LabelVotes(<private>, {shape})"

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise SealedValue("Votes are not labels. Release them through a mechanism; `votes.sums` is private.")


def _knowledge(knows: ArrayLike | None, n_teachers: int, n_labels: int) -> NDArray[np.bool_] | None:
    """Return which labels each teacher has, or None where all have all."""
    if knows is None:
        return None
    table = np.asarray(knows)
    if table.shape != (n_teachers, n_labels) or not np.isin(table, (0, 1)).all():
        raise ValueError(
            f"Expected knows as True and False of shape (teachers, labels) = ({n_teachers}, {n_labels}), got "
            f"shape {table.shape} or other values."
        )
    return None if table.all() else table.astype(np.bool_)


def _voters(known: NDArray[np.bool_] | None) -> Integers | None:
    return None if known is None else _frozen_labels(known.sum(axis=0, dtype=np.int64))


def _is_sparse(ballots: Any) -> bool:
    return hasattr(ballots, "tocsr")


def _as_table(given: Any, name: str) -> NDArray[Any]:
    wanted = f"Expected {name} of shape (teachers, queries, labels)"
    several = isinstance(given, Sequence) and any(_is_sparse(one) for one in given)
    if _is_sparse(given) or several:
        what = "some of them sparse" if several else "one sparse matrix"
        raise ValueError(f"{wanted}, or a list with one sparse matrix per teacher, got {what}.")
    try:
        return np.asarray(given)
    except ValueError:
        raise ValueError(f"{wanted}, got rows of different lengths.") from None


def _in_range(table: NDArray[Any], n_labels: int, name: str, teacher: int | None = None) -> NDArray[Any]:
    if table.ndim != 3:
        raise ValueError(f"Expected {name} of shape (teachers, queries, labels), got shape {table.shape}.")
    if table.size == 0:
        raise ValueError(
            f"Expected {name} with at least one teacher, query and label, got shape {table.shape}."
        )
    if table.shape[2] != n_labels:
        raise ValueError(
            f"Expected {name} for the {n_labels} labels declared, got {table.shape[2]}. Declare the labels "
            "that the teachers vote on, no more and no fewer."
        )
    if table.dtype.kind not in "biuf":
        raise TypeError(f"Expected numbers in {name}, got dtype {table.dtype}.")
    if table.dtype.kind != "b":
        # NaN compares false with everything, so it is found here as well.
        place = _place(~((table >= 0) & (table <= 1)), teacher)
        if place:
            raise ValueError(f"Expected {name} in [0, 1], got an entry outside (or NaN) at {place}.")
    return table


def _checked(table: NDArray[Any], n_labels: int, resolution: int, teacher: int | None = None) -> NDArray[Any]:
    table = _in_range(table, n_labels, "ballots", teacher)
    if resolution > 1:
        # In double precision: half precision has too few digits, and rounded up it could pass a whole vote.
        return np.asarray(np.rint(table.astype(np.float64) * resolution), dtype=np.int32)
    if table.dtype.kind == "f":
        place = _place(table != np.floor(table), teacher)
        if place:
            raise ValueError(
                f"Expected 0 or 1 in ballots, got a fraction at {place}. Probabilities are counted in parts "
                "of a vote with resolution=100, or turned into 0 and 1 by LabelVotes.from_probabilities."
            )
    return table.astype(np.uint8)


def _place(bad: NDArray[np.bool_], teacher: int | None) -> str:
    if teacher is None:
        return _first_label_place(bad, _LABEL_AXES)
    return f"teacher {teacher}" if bad.any() else ""


def _first_label_place(bad: NDArray[np.bool_], axes: tuple[str, ...]) -> str:
    """Say where the first offending entry is, or nothing; the entry itself stays private."""
    if not bad.any():
        return ""
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))


def _frozen_labels(table: NDArray[Any]) -> NDArray[Any]:
    table = np.ascontiguousarray(table)
    table.flags.writeable = False
    return table
