"""Votes: the ballots of a batch of queries and their totals, over one space of answers or another."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import SealedValue, require_count, require_positive

Integers = NDArray[np.int64]
_AXES = ("teacher", "query", "label")
# Ballots counted at once, and tallies they are counted into: small enough to stay in a cache.
_CELLS = 1 << 17
_PLURAL = {"teacher": "teachers", "query": "queries", "class": "classes"}
# Ballots are kept in the smallest type that holds them: 50 teachers x 10,000 queries x 20 labels are 10 MB.
_LARGEST_RESOLUTION = 10_000
# Squares of a ballot's steps fit 64 bits, and sums of a million ballots 53.
_MOST_STEPS = 2**30

# Votes are the private data of everything above this module. They are a type of their own, so that
# a tally cannot be passed where released labels belong or the other way round, and they do not print.
# Teachers and answers are declared: reading the number of classes off private ballots would leak it.


@dataclass(frozen=True)
class Unit:
    """How far one protected unit can move a tally, as l1, l2 and l-infinity norms.

    The default is one changed ballot: a vote leaves one class and enters another. `n_ballots` says by how
    many ballots it moves, 0 where that is not known: then the norms alone count. What norms mean for other
    answers, their space says: `SetOf` knows one changed ballot alone.

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


# --- Spaces of answers ---


@dataclass(frozen=True)
class OneOf:
    """One class of `n_classes`: a ballot is a class, a total is the count of its votes.

    A unit's norms are those of the counts: one ballot that changes moves two of them.

    >>> space = OneOf(3)
    >>> counts, ballots, _ = space.tally([[0, 1], [2, 1], [2, 1]])
    >>> counts, space.take(ballots, [0], 3).ravel()
    (array([[1, 0, 2],
           [0, 3, 0]]), array([0, 2, 2]))
    >>> space.checked(counts, 3).sum(axis=1), space.most(3), space.told(2), space.n_queries(2)
    (array([3, 3]), 3, (2,), 2)
    >>> space.require_unit(Unit.of_weight(2))
    """

    n_classes: int
    kind: ClassVar[str] = "classes"
    """What votes are on, in the plural: the word by which mechanisms say what they answer."""
    of_totals: ClassVar[str] = "counts"
    """What the totals of a query are called."""
    by_query: ClassVar[bool] = True
    """Whether a ballot answers each query by itself, so that some of them are votes too."""

    def __post_init__(self) -> None:
        require_count(2, n_classes=self.n_classes)
        object.__setattr__(self, "n_classes", int(self.n_classes))

    @property
    def n_answers(self) -> int:
        """Return the number of classes."""
        return self.n_classes

    def tally(self, ballots: Any, knows: ArrayLike | None = None) -> tuple[Integers, Integers, None]:
        """Return the counts of ballots, one row per teacher and one column per query.

        In every space: the totals, the checked ballots, and how many teachers know each answer, if not all.
        """
        if knows is not None:
            raise ValueError("Expected teachers that know all classes, got some that abstain.")
        table = _whole_numbers(ballots, name="ballots", axes=_AXES[:2])
        if table.min() < 0 or table.max() >= self.n_classes:
            place = _first_place((table < 0) | (table >= self.n_classes), _AXES[:2])
            raise ValueError(
                f"Expected classes 0..{self.n_classes - 1} (n_classes={self.n_classes}), "
                f"got a class id outside at {place}. Declare every class the teachers may vote for."
            )
        return _tallied(table, self.n_classes), table, None

    def checked(self, totals: ArrayLike, n_teachers: int, n_voters: Integers | None = None) -> Integers:
        """Return counts of which every row sums to the number of teachers, or refuse them."""
        table = _whole_numbers(totals, name="counts", axes=("query", "class"))
        place = _first_place(table < 0, ("query", "class"))
        if place:
            raise ValueError(f"Expected counts >= 0, got a negative entry at {place}.")
        place = _first_place(table.sum(axis=1) != self.most(n_teachers), ("query",))
        if place:
            raise ValueError(
                f"Expected every query's counts to sum to n_teachers={n_teachers}, which {place} does not. "
                "Counts have one row per query and one column per class; every teacher votes once."
            )
        return table

    def most(self, n_voters: Any) -> Any:
        """Return the count of a class that all vote for."""
        return n_voters

    def take(self, ballots: Any, rows: Any, n_teachers: int) -> Any:
        """Return the ballots of some queries."""
        return ballots[:, rows]

    def n_queries(self, n_rows: int) -> int:
        """Return how many queries totals of so many rows are about."""
        return n_rows

    def told(self, n_queries: int) -> tuple[int, ...]:
        """Return that one class is told for each query."""
        return (n_queries,)

    def require_unit(self, unit: Unit) -> None:
        """Admit every unit: norms are those of the counts."""


@dataclass(frozen=True)
class SetOf:
    """A set of `n_labels` labels: a ballot says yes or no to each, a total is the sum for one label.

    A ballot is whole: 0 or 1 per label, or a probability counted in whole units of 1 / `resolution`, so that
    whole noise covers it exactly. One changed ballot can move every sum by a whole vote; how far it moves
    them together, the mechanism says, by the ballots that it counts. No other unit is known.

    >>> space = SetOf(3)
    >>> sums, ballots, _ = space.tally([[[1, 0, 1]], [[1, 0, 0]]])
    >>> space.checked(sums, 2), space.take(ballots, [0], 2).shape, SetOf(3, resolution=10).most(2)
    (array([[2, 0, 1]]), (2, 1, 3), 20)
    >>> space.told(5), space.n_queries(5)
    ((5, 3), 5)
    >>> space.require_unit(Unit.of_weight(2))
    Traceback (most recent call last):
        ...
    ValueError: Expected a unit behind one ballot of one vote, got Unit(l1=4.0, ...
    """

    n_labels: int
    resolution: int = 1
    kind: ClassVar[str] = "labels"
    of_totals: ClassVar[str] = "sums"
    by_query: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count(n_labels=self.n_labels)
        require_count(resolution=self.resolution)
        object.__setattr__(self, "n_labels", int(self.n_labels))
        object.__setattr__(self, "resolution", int(self.resolution))

    @property
    def n_answers(self) -> int:
        """Return the number of labels."""
        return self.n_labels

    def tally(
        self, ballots: Any, knows: ArrayLike | None = None
    ) -> tuple[NDArray[Any], Any, Integers | None]:
        """Return the sums of ballots: teachers x queries x labels, or one sparse matrix per teacher."""
        if self.resolution > _LARGEST_RESOLUTION:
            raise ValueError(
                f"Expected a resolution of at most {_LARGEST_RESOLUTION}, got {self.resolution}."
            )
        if isinstance(ballots, Sequence) and len(ballots) > 0 and all(_is_sparse(one) for one in ballots):
            return self._tally_sparse(ballots, knows)
        table = _checked_ballots(_as_table(ballots, "ballots"), self.n_labels, self.resolution)
        known = _knowledge(knows, len(table), self.n_labels)
        if known is not None:
            table = table * known[:, None, :].astype(table.dtype)
        return table.sum(axis=0, dtype=np.int64), table, _n_who_know(known)

    def _tally_sparse(
        self, parts: Sequence[Any], knows: ArrayLike | None
    ) -> tuple[NDArray[Any], Any, Integers | None]:
        """Return the sums, and one sparse matrix with a row per teacher and query, teacher by teacher."""
        from scipy.sparse import csr_array, vstack

        rows = []
        known = _knowledge(knows, len(parts), self.n_labels)
        for teacher, part in enumerate(parts):
            matrix = csr_array(part, copy=True)
            matrix.sum_duplicates()
            if matrix.shape != (parts[0].shape[0], self.n_labels):
                raise ValueError(
                    f"Expected ballots of shape (queries, labels) = ({parts[0].shape[0]}, {self.n_labels}) "
                    f"from every teacher, got {matrix.shape} from teacher {teacher}."
                )
            data = np.asarray(matrix.data).reshape(1, 1, -1)
            if data.size:
                # Where a wrong entry stands in a sparse matrix is not worth finding: say whose it is.
                matrix.data = _checked_ballots(data, data.size, self.resolution, teacher=teacher).reshape(-1)
                if known is not None:
                    matrix.data = matrix.data * known[teacher][matrix.indices]
            matrix.eliminate_zeros()
            rows.append(matrix)
        if rows[0].shape[0] == 0:
            raise ValueError("Expected ballots on at least one query, got none.")
        sums = np.zeros((rows[0].shape[0], self.n_labels), dtype=np.int64)
        for matrix in rows:
            sums += matrix.toarray().astype(np.int64)
        return sums, csr_array(vstack(rows, format="csr")), _n_who_know(known)

    def checked(self, totals: ArrayLike, n_teachers: int, n_voters: Integers | None = None) -> Integers:
        """Return whole sums between 0 and what all who know a label can say, or refuse them."""
        table = np.asarray(totals)
        if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu":
            raise ValueError(
                f"Expected whole sums of shape (queries, labels), got {table.shape} of {table.dtype}."
            )
        most = self.most(n_teachers if n_voters is None else n_voters)
        place = _first_place((table < 0) | (table > most), ("query", "label"))
        if place:
            who = f"{most}, all teachers" if n_voters is None else "what all who know the label can say,"
            raise ValueError(f"Expected sums from 0 to {who} in whole units, got one outside at {place}.")
        return table.astype(np.int64)

    def most(self, n_voters: Any) -> Any:
        """Return the sum of a label that all say yes to, in whole units."""
        return n_voters * self.resolution

    def take(self, ballots: Any, rows: Any, n_teachers: int) -> Any:
        """Return the ballots of some queries, sparse if they are."""
        if not _is_sparse(ballots):
            return ballots[:, rows]
        n_queries = ballots.shape[0] // n_teachers
        return ballots[(np.arange(n_teachers)[:, None] * n_queries + np.arange(n_queries)[rows]).ravel()]

    def n_queries(self, n_rows: int) -> int:
        """Return how many queries totals of so many rows are about."""
        return n_rows

    def told(self, n_queries: int) -> tuple[int, ...]:
        """Return that every label is told for each query."""
        return n_queries, self.n_labels

    def require_unit(self, unit: Unit) -> None:
        """Refuse units that move several ballots or heavier ones: label votes have one ballot each."""
        if unit != Unit():
            raise ValueError(f"Expected a unit behind one ballot of one vote, got {unit}.")


@dataclass(frozen=True)
class Scores:
    """A matrix of real scores for the whole pool at once: a ballot is bounded as a whole, not by the query.

    A teacher says `n_columns` numbers about every row of the pool: of classes, `one_class`, or of labels.
    What is publicly `expected` of a column is subtracted, and each is multiplied by its public weight
    (`column_weights`). The matrix is scaled to Frobenius norm 1, put on a grid of `steps` per unit of norm
    and rounded towards zero; that its squares sum to at most steps^2 is checked in whole numbers. Zeros stay
    zeros. With a `bound` a matrix of a smaller norm keeps its size, in units of the bound. Totals are the
    sums over teachers, queries x columns, in steps.

    With `directions`, queries x r with orthonormal columns, a matrix is first brought onto these r directions
    of the pool, and totals are r x columns. They depend on public rows alone: `public_directions` finds them.

    Guarantee: one ballot replaced by any other moves the totals by at most 2 * `steps` in l2, whatever
               teachers say; one that comes or goes by `steps`.
    Assumes:   the pool, its directions and all other fields are fixed before any teacher answers.
    Reference: none; a triangle inequality over whole numbers.

    >>> space = Scores(2, steps=1000)
    >>> totals, ballots, _ = space.tally([[[3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    >>> totals
    array([[600,   0],
           [  0, 800]])
    >>> space.told(5), Scores(2, one_class=True).told(5), space.most(3), space.n_queries(5)
    ((5, 2), (5,), 3000, 5)
    >>> space.checked(totals, 2).shape
    (2, 2)
    >>> space.require_unit(Unit.of_ballots(2))
    >>> space.take(ballots, [0], 2)
    Traceback (most recent call last):
        ...
    ValueError: Expected the whole pool, got some of its queries: scores are released all at once.
    """

    n_columns: int
    steps: int = 1024
    one_class: bool = False
    expected: tuple[float, ...] | None = None
    column_weights: tuple[float, ...] | None = None
    bound: float | None = None
    directions: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    kind: ClassVar[str] = "scores"
    of_totals: ClassVar[str] = "sums"
    by_query: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_count(2 if self.one_class else 1, n_columns=self.n_columns)
        require_count(steps=self.steps)
        if self.steps > _MOST_STEPS:
            raise ValueError(f"Expected at most {_MOST_STEPS} steps per unit of norm, got {self.steps}.")
        object.__setattr__(self, "n_columns", int(self.n_columns))
        object.__setattr__(self, "steps", int(self.steps))
        for name in ("expected", "column_weights"):
            given = getattr(self, name)
            if given is not None:
                table = np.asarray(given, dtype=np.float64)
                if table.shape != (self.n_columns,) or not np.isfinite(table).all():
                    raise ValueError(
                        f"Expected {name} of {self.n_columns} finite numbers, got shape {table.shape} or "
                        "others."
                    )
                object.__setattr__(self, name, tuple(float(one) for one in table))
        if self.column_weights is not None and min(self.column_weights) <= 0:
            raise ValueError("Expected column_weights > 0, got one that is not.")
        if self.bound is not None:
            require_positive(bound=self.bound)
        if self.directions is not None:
            object.__setattr__(self, "directions", _orthonormal(self.directions))

    @property
    def n_answers(self) -> int:
        """Return the number of columns: classes, or labels."""
        return self.n_columns

    def tally(self, ballots: Any, knows: ArrayLike | None = None) -> tuple[Integers, NDArray[np.int32], None]:
        """Return the sums of ballots, teachers x queries x columns of real numbers, and them on the grid."""
        if knows is not None:
            raise ValueError("Expected teachers that score every column, got some that abstain.")
        table = _as_table(ballots, "scores")
        if table.ndim != 3 or table.size == 0 or table.shape[2] != self.n_columns:
            raise ValueError(
                f"Expected scores of shape (teachers, queries, {self.n_columns}), got {table.shape}."
            )
        whole = np.stack([self.on_grid(one) for one in table])
        return whole.sum(axis=0, dtype=np.int64), whole, None

    def on_grid(self, scores: ArrayLike) -> NDArray[np.int32]:
        """Return the ballot of one teacher, queries x columns of any finite numbers, on the grid.

        >>> Scores(2, steps=5).on_grid([[3e300, -4e300]])
        array([[ 3, -4]], dtype=int32)
        >>> Scores(2, steps=5, bound=100.0).on_grid([[30.0, -40.0]])
        array([[ 1, -2]], dtype=int32)
        >>> Scores(1, steps=5).on_grid([[float("nan")]])
        Traceback (most recent call last):
            ...
        ValueError: Expected finite scores, got NaN, infinity or overflow at query 0, label 0.
        """
        given = np.asarray(scores)
        if given.dtype.kind not in "biuf":
            raise TypeError(f"Expected numbers as scores, got dtype {given.dtype}.")
        if given.ndim != 2 or given.size == 0 or given.shape[1] != self.n_columns:
            raise ValueError(f"Expected scores of shape (queries, {self.n_columns}), got {given.shape}.")
        if self.directions is not None and len(given) != len(self.directions):
            raise ValueError(f"Expected scores of {len(self.directions)} queries, got {len(given)}.")
        table = given.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.expected is not None:
                table = table - np.array(self.expected)
            if self.column_weights is not None:
                table = table * np.array(self.column_weights)
        place = _first_place(~np.isfinite(table), _AXES[1:])
        if place:
            raise ValueError(f"Expected finite scores, got NaN, infinity or overflow at {place}.")
        # In units of a power of two: squares of huge numbers overflow, those of tiny ones vanish.
        table, exponent = _of_size_one(table)
        if self.directions is not None:
            table, more = _of_size_one(self.directions.T @ table)
            exponent += more
        size = float(np.sqrt((table * table).sum()))
        if size == 0:  # a ballot too: it adds nothing
            return np.zeros(table.shape, dtype=np.int32)
        if self.bound is not None:
            with np.errstate(over="ignore", under="ignore"):
                size = max(size, float(np.ldexp(self.bound, -exponent)))
        whole = np.trunc(table / size * self.steps).astype(np.int64)
        # Floats may round a product up. What is promised is what whole numbers say.
        while int((whole * whole).sum()) > self.steps**2:
            largest = np.unravel_index(int(np.abs(whole).argmax()), whole.shape)
            whole[largest] -= np.sign(whole[largest])
        return np.asarray(whole, dtype=np.int32)

    def checked(self, totals: ArrayLike, n_teachers: int, n_voters: Integers | None = None) -> Integers:
        """Return sums that so many ballots can have, or refuse them."""
        table = np.asarray(totals)
        if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu":
            raise ValueError(
                f"Expected whole sums of shape (queries, columns), got {table.shape} of {table.dtype}."
            )
        table = table.astype(np.int64)
        # In Python's integers: squares of sums of many ballots pass 64 bits.
        if sum(int(entry) ** 2 for entry in table.ravel()) > self.most(n_teachers) ** 2:
            raise ValueError(
                f"Expected sums of a norm up to {n_teachers} ballots of {self.steps} steps, got a larger one."
            )
        return table

    def most(self, n_voters: Any) -> Any:
        """Return the largest norm that the sums of so many ballots can have, in steps."""
        return n_voters * self.steps

    def moved(self, unit: Unit) -> int:
        """Return how far one unit moves the totals in l2, in steps: twice the norm for each of its ballots.

        >>> Scores(2, steps=1000).moved(Unit()), Scores(2, steps=1000).moved(Unit.of_ballots(3))
        (2000, 6000)
        """
        self.require_unit(unit)
        return 2 * max(1, unit.n_ballots) * self.steps

    def take(self, ballots: Any, rows: Any, n_teachers: int) -> Any:
        """Refuse to split ballots: what a teacher says is bounded over the whole pool."""
        raise ValueError("Expected the whole pool, got some of its queries: scores are released all at once.")

    def n_queries(self, n_rows: int) -> int:
        """Return how many queries totals of so many rows are about."""
        return n_rows if self.directions is None else len(self.directions)

    def told(self, n_queries: int) -> tuple[int, ...]:
        """Return that a class is told for each query, or every label."""
        return (n_queries,) if self.one_class else (n_queries, self.n_columns)

    def require_unit(self, unit: Unit) -> None:
        """Refuse units of which it is not known how many whole ballots they move."""
        if unit != Unit.of_ballots(max(1, unit.n_ballots)):
            raise ValueError(f"Expected a unit behind whole ballots, as Unit.of_ballots says it, got {unit}.")


AnswerSpace: TypeAlias = OneOf | SetOf | Scores
"""What a ballot says about one query, or about all of them, and how ballots add up to totals.

Another is one more frozen dataclass with the same members, and mechanisms that answer its `kind`. Votes,
ensembles and accountants ask the space; none of them names it.
"""


def _of_size_one(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return a table divided by a power of two, so that its largest entry is about 1, and that exponent."""
    exponent = int(np.frexp(np.abs(table).max())[1])
    return np.ldexp(table, -exponent), exponent


def _orthonormal(directions: ArrayLike) -> NDArray[np.float64]:
    table = np.array(directions, dtype=np.float64)
    right = table.ndim == 2 and table.shape[0] >= table.shape[1] > 0 and bool(np.isfinite(table).all())
    if not right or np.abs(table.T @ table - np.eye(table.shape[1])).max() > 1e-6:
        raise ValueError(
            f"Expected directions with orthonormal columns, a row per query, got shape {table.shape} or "
            "other columns. Let public_directions find them."
        )
    return _read_only(table)


# --- Votes ---


class OtherAnswers(TypeError, AttributeError):
    """Votes over one space of answers came where votes over another are needed."""


def require_votes_on(kind: str, votes: Any, what: str) -> None:
    """Refuse what is not votes over the space of this kind, `what` being that which needs them."""
    got = f"votes on {votes.space.kind}" if isinstance(votes, Votes) else type(votes).__name__
    if got != f"votes on {kind}":
        raise OtherAnswers(f"Expected votes on {kind} for {what}, got {got}.")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Votes:
    """Totals of a batch of queries, with the ballots behind them where they are known.

    What a ballot may say is the `space`: one class of several, or a set of labels. Totals are called
    `counts` (queries, classes) of classes and `sums` (queries, labels) of labels; what belongs to one space
    is refused by votes over another, so that no mechanism can count what it does not price.

    Every ballot counts one vote, unless `weights` says otherwise: whole votes per teacher, or per teacher
    and query; a weight of 0 is a teacher who takes no part. Where some teachers do not know every label,
    `voters` holds how many know each: it is public, like the number of teachers.

    Guarantee: every row of `counts` holds whole votes that sum to `n_votes`, without weights `n_teachers`;
               every sum lies between 0 and `space.most(n_voters)`.
    Assumes:   one protected unit sits behind one teacher, so it changes one ballot per query, on all labels.
    Reference: Papernot et al. 2017, section 3.1 (the threat model); Dullerud et al. 2022, section 3
               (multi-winner elections).

    >>> votes = Votes.from_ballots([[0, 1], [0, 1], [2, 1]], n_classes=3)
    >>> votes
    Votes(<private>, n_queries=2, n_teachers=3, n_classes=3)
    >>> votes.counts
    array([[2, 0, 1],
           [0, 3, 0]])
    >>> Votes.from_ballots([[[1, 0, 1]], [[1, 0, 0]]], SetOf(3)).counts
    Traceback (most recent call last):
        ...
    tellers.privacy.votes.OtherAnswers: Expected votes on classes for counts, got votes on labels.
    """

    totals: Integers
    n_teachers: int
    space: AnswerSpace
    ballots: Any = None
    unit: Unit = Unit()
    weights: Integers | None = None
    voters: Integers | None = None

    def __init__(
        self,
        counts: NDArray[Any],
        n_teachers: int,
        ballots: Any = None,
        unit: Unit = Unit(),  # noqa: B008 - frozen
        weights: Integers | None = None,
        *,
        space: AnswerSpace | None = None,
        voters: Integers | None = None,
    ) -> None:
        given = {
            "totals": _read_only(counts, np.int64),
            "n_teachers": int(n_teachers),
            "space": OneOf(counts.shape[1]) if space is None else space,
            "ballots": ballots if ballots is None or _is_sparse(ballots) else _read_only(ballots),
            "unit": unit,
            "weights": None if weights is None else _read_only(weights),
            "voters": None if voters is None else _read_only(voters),
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_ballots(
        cls,
        ballots: ArrayLike | Sequence[Any],
        space: AnswerSpace | None = None,
        *,
        n_classes: int | None = None,
        knows: ArrayLike | None = None,
    ) -> Self:
        """Return the votes of `ballots` over a space, or for one of `n_classes` classes.

        Ballots for one class have one row per teacher and one column per query; those on labels are teachers
        x queries x labels, or one sparse matrix per teacher. `knows`, teachers x labels of True and False,
        says which labels each teacher has: declared and public, never read off data. On others it abstains,
        whatever its ballot says.

        >>> len(Votes.from_ballots([[0, 1], [0, 1]], n_classes=2))
        2
        >>> Votes.from_ballots([[[0.7, 0.1]], [[0.9, 0.2]]], SetOf(2, resolution=100)).sums
        array([[160,  30]])
        >>> Votes.from_ballots([[0, 1], [0, 7]], n_classes=2)
        Traceback (most recent call last):
            ...
        ValueError: Expected classes 0..1 (n_classes=2), got a class id outside at teacher 1, query 1. ...
        """
        if space is None:
            space = OneOf(cast(int, n_classes))
        totals, table, voters = space.tally(ballots, knows)
        n_teachers = table.shape[0] // len(totals) if _is_sparse(table) else len(table)
        return cls(totals, n_teachers, table, space=space, voters=voters)

    @classmethod
    def from_totals(
        cls, totals: ArrayLike, space: AnswerSpace, *, n_teachers: int, n_voters: ArrayLike | None = None
    ) -> Self:
        """Return the votes of totals alone, one row per query and one column per answer of the space.

        `n_voters` says how many teachers know each label, where not all do.

        >>> Votes.from_totals([[45, 3]], SetOf(2), n_teachers=50, n_voters=[50, 4]).n_voters
        array([50,  4])
        """
        require_count(n_teachers=n_teachers)
        voters = None if n_voters is None else _checked_voters(n_voters, n_teachers, space)
        table = space.checked(totals, n_teachers, voters)
        if table.shape[1] != space.n_answers:
            raise ValueError(
                f"Expected {space.of_totals} of {space.n_answers} {space.kind}, got {table.shape[1]}."
            )
        return cls(table, n_teachers, space=space, voters=voters)

    @classmethod
    def from_counts(cls, counts: ArrayLike, *, n_teachers: int) -> Self:
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
        return cls.from_totals(table, OneOf(table.shape[1]), n_teachers=n_teachers)

    def replaced(self, **changes: Any) -> Self:
        """Return the same votes with other fields.

        >>> Votes.from_counts([[4, 1]], n_teachers=5).replaced(unit=Unit.of_weight(3)).unit.linf
        3.0
        """
        kept = {one.name: getattr(self, one.name) for one in fields(self)} | changes
        return type(self)(kept.pop("totals"), **kept)

    def weighted(self, weights: ArrayLike) -> Self:
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
        counts = np.zeros_like(self.counts)
        if self.ballots is None:
            raise ValueError("Expected votes with ballots to weigh, got counts alone. Keep the ballots.")
        table = np.asarray(weights)
        one_each = table.reshape(-1, 1) if table.ndim == 1 else table
        table = _whole_numbers(one_each, name="weights", axes=_AXES[:2])
        if table.shape not in ((self.n_teachers, 1), self.ballots.shape):
            raise ValueError(
                f"Expected weights of shape ({self.n_teachers},) or {self.ballots.shape}, one per teacher or "
                f"one per teacher and query, got shape {np.shape(weights)}."
            )
        if (table < 0).any():
            raise ValueError(
                f"Expected weights >= 0, got a negative one at {_first_place(table < 0, _AXES[:2])}."
            )
        silent = (table == 0).all(axis=0)
        if silent.any():
            raise ValueError("Expected a teacher with a weight above 0 in every query, got a query without.")
        columns = np.arange(self.n_queries)
        for ballot, weight in zip(self.ballots, table, strict=True):
            counts[columns, ballot] += weight
        unit = Unit.of_weight(int(table.max()))
        kept = table[:, 0] if table.shape[1] == 1 else table
        return self.replaced(totals=counts, unit=unit, weights=kept)

    def _of(self, kind: str, name: str) -> Any:
        """Return the space, where it is the one that has this."""
        require_votes_on(kind, self, name)
        return self.space

    @property
    def counts(self) -> Integers:
        """Return how many votes each class has, (queries, classes); private."""
        self._of("classes", "counts")
        return self.totals

    @property
    def sums(self) -> Integers:
        """Return the sums, private: of each label in units of 1 / `resolution`, or of scores in steps."""
        if self.space.kind != "scores":
            self._of("labels", "sums")
        return self.totals

    @property
    def n_votes(self) -> Integers:
        """Return how many votes each query holds: its teachers, by their weights."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def n_queries(self) -> int:
        """Return how many queries the batch holds."""
        return self.space.n_queries(self.totals.shape[0])

    @property
    def n_classes(self) -> int:
        """Return how many classes were declared."""
        return int(self._of("classes", "n_classes").n_classes)

    @property
    def n_labels(self) -> int:
        """Return how many labels were declared."""
        return int(self._of("labels", "n_labels").n_labels)

    @property
    def resolution(self) -> int:
        """Return in how many parts a vote on a label is counted."""
        return int(self._of("labels", "resolution").resolution)

    @property
    def top(self) -> Integers:
        """Return the largest count of each query."""
        return np.asarray(self.counts.max(axis=1))

    @property
    def gap(self) -> Integers:
        """Return the difference of the two largest counts of each query."""
        two = np.partition(self.counts, self.n_classes - 2, axis=1)[:, -2:]
        return np.asarray(two[:, 1] - two[:, 0])

    @property
    def n_voters(self) -> Integers:
        """Return how many teachers know each answer; public."""
        return np.full(self.space.n_answers, self.n_teachers) if self.voters is None else self.voters

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
        """Return whether the ballots are stored sparse."""
        return _is_sparse(self.ballots)

    def block(self, rows: Any = None) -> NDArray[np.int64]:
        """Return the ballots of some queries, dense: (teachers, queries, labels) in whole units.

        >>> LabelVotes.from_ballots([[[1, 0]], [[1, 1]]], n_labels=2).block().shape
        (2, 1, 2)
        """
        if self.ballots is None:
            raise ValueError(
                f"Expected votes with ballots, got {self.space.of_totals} alone. Keep the ballots."
            )
        some = self.ballots if rows is None else self.space.take(self.ballots, rows, self.n_teachers)
        if _is_sparse(some):
            some = some.toarray().reshape(self.n_teachers, -1, self.space.n_answers)
        return np.asarray(some, dtype=np.int64)

    def __len__(self) -> int:
        return self.n_queries

    def __getitem__(self, rows: Any) -> Self:
        """Return the votes of some queries: an index, a slice, a mask or a list of indices."""
        if not self.space.by_query:
            self.space.take(self.ballots, rows, self.n_teachers)
        if isinstance(rows, (int, np.integer)):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"Expected a query in 0..{len(self) - 1}, got {rows}.")
            rows = [int(rows)]
        changes: dict[str, Any] = {"totals": self.totals[rows]}
        if self.ballots is not None:
            changes["ballots"] = self.space.take(self.ballots, rows, self.n_teachers)
        if self.weights is not None and self.weights.ndim == 2:
            changes["weights"] = self.weights[:, rows]
        return self.replaced(**changes)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        shape = f"n_queries={self.n_queries}, n_teachers={self.n_teachers}"
        return f"Votes(<private>, {shape}, n_{self.space.kind}={self.space.n_answers})"

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        # Without this NumPy would happily turn votes into an array that looks like labels.
        raise SealedValue(
            "Votes are not labels. Release them through a mechanism; "
            f"`votes.{self.space.of_totals}` is private."
        )


class _OnLabels(type):
    def __instancecheck__(cls, votes: Any) -> bool:
        return isinstance(votes, Votes) and votes.space.kind == SetOf.kind


class LabelVotes(Votes, metaclass=_OnLabels):
    """Votes on labels, by the words of labels: what is made here are `Votes` over a `SetOf`.

    They are an instance of this, and votes for one class are not. It does not warn: labels have words of
    their own for how votes are made (thresholds, who knows which label), and they are kept here.

    >>> votes = LabelVotes.from_ballots([[[1, 0, 1]], [[1, 0, 0]]], n_labels=3)
    >>> votes, votes.sums
    (Votes(<private>, n_queries=1, n_teachers=2, n_labels=3), array([[2, 0, 1]]))
    >>> type(votes) is Votes, isinstance(votes, LabelVotes)
    (True, True)
    """

    def __new__(
        cls,
        sums: Integers,
        n_teachers: int,
        ballots: Any = None,
        resolution: int = 1,
        unit: Unit = Unit(),  # noqa: B008 - frozen
        voters: Integers | None = None,
    ) -> "LabelVotes":
        """Return votes with these sums, which are not checked."""
        space = SetOf(sums.shape[1], resolution)
        return cast(LabelVotes, Votes(sums, n_teachers, ballots, unit, space=space, voters=voters))

    @classmethod
    def from_ballots(  # type: ignore[override]
        cls,
        ballots: ArrayLike | Sequence[Any],
        *,
        n_labels: int,
        resolution: int = 1,
        knows: ArrayLike | None = None,
    ) -> "LabelVotes":
        """Return `Votes.from_ballots` over `SetOf(n_labels, resolution)`.

        With resolution 1 every entry is 0 or 1. With a larger one entries are probabilities, rounded to whole
        units of 1 / resolution.

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
        return cast(LabelVotes, Votes.from_ballots(ballots, SetOf(n_labels, resolution), knows=knows))

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
        """Return the votes of sums alone, (queries, labels), in whole units, by `Votes.from_totals`.

        >>> LabelVotes.from_sums([[45, 3]], n_teachers=50).n_labels
        2
        >>> LabelVotes.from_sums([[45, 3]], n_teachers=50, n_voters=[50, 4]).n_voters
        array([50,  4])
        """
        shape = np.shape(sums)
        space = SetOf(shape[1] if len(shape) == 2 and shape[1] else 1, resolution)
        return cast(LabelVotes, Votes.from_totals(sums, space, n_teachers=n_teachers, n_voters=n_voters))


# --- Votes that are kept for somebody who may not read them. ---


class VoteHandle(Protocol):
    """A handle for votes that are kept: what anyone may know of them."""

    @property
    def n_queries(self) -> int:
        """Return how many queries were voted on."""

    @property
    def n_teachers(self) -> int:
        """Return how many teachers voted."""


_kept: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()


def keep(holder: Any, votes: Any) -> None:
    """Keep votes, or what carries them, for a holder outside the room, for as long as it is there.

    Nothing that can be reached from the holder leads to them. `kept` does, for those who may import it.
    """
    _kept[holder] = votes


def kept(holder: Any) -> Any:
    """Return what is kept for a holder; private."""
    try:
        return _kept[holder]
    except (KeyError, TypeError):
        name = type(holder).__name__
        raise TypeError(f"Expected votes, or a handle that stands for them, got {name}.") from None


# Checks of ballots and totals, as votes over every space of answers need them
#
# A message names the place of what is wrong, never the entry: that is private.


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


def _n_who_know(known: NDArray[np.bool_] | None) -> Integers | None:
    return None if known is None else known.sum(axis=0, dtype=np.int64)


def _checked_voters(n_voters: ArrayLike, n_teachers: int, space: Any) -> Integers | None:
    """Return how many teachers know each answer of a space, or None where all know all."""
    voters = np.asarray(n_voters)
    right = voters.shape == (space.n_answers,) and voters.dtype.kind in "iu"
    if not right or voters.min() < 0 or voters.max() > n_teachers:
        raise ValueError(
            f"Expected n_voters from 0 to {n_teachers} for each of {space.n_answers} {space.kind}, "
            "got another shape or number."
        )
    return None if (voters == n_teachers).all() else voters.astype(np.int64)


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


def _checked_ballots(
    table: NDArray[Any], n_labels: int, resolution: int, teacher: int | None = None
) -> NDArray[Any]:
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
        return _first_place(bad, _AXES)
    return f"teacher {teacher}" if bad.any() else ""


def _first_place(bad: NDArray[np.bool_], axes: tuple[str, ...]) -> str:
    """Say where the first offending entry is, or nothing; the entry itself stays private."""
    if not bad.any():
        return ""
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))


def _read_only(table: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Return the table read-only; whose it was may still write to it."""
    kept = np.ascontiguousarray(table, dtype=dtype).view()
    kept.flags.writeable = False
    return kept
