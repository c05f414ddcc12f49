"""Label votes: ballots that say yes or no to every one of many labels, and their sums.

Like `Votes` they are private, a type of their own, and do not print. A ballot is whole: 0 or 1 per label, or
a probability counted in whole units of 1 / `resolution`, so that whole noise covers it exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import SealedValue, require_count
from .votes import Unit

if TYPE_CHECKING:  # SciPy is loaded where ballots are sparse, so that torch teachers need NumPy alone
    from scipy.sparse import csr_array

Integers = NDArray[np.int64]
_AXES = ("teacher", "query", "label")
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
    unit: Unit = Unit()  # noqa: RUF009
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
        return cls(_frozen(sums), len(table), _frozen(table), int(resolution), voters=_voters(known))

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
            voters = None if (voters == n_teachers).all() else _frozen(voters.astype(np.int64))
        most = (n_teachers if voters is None else voters) * resolution
        place = _first_place((table < 0) | (table > most), _AXES[1:])
        if place:
            who = f"{most}, all teachers" if voters is None else "what all who know the label can say,"
            raise ValueError(f"Expected sums from 0 to {who} in whole units, got one outside at {place}.")
        return cls(_frozen(table.astype(np.int64)), int(n_teachers), None, int(resolution), voters=voters)

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
        return cls(_frozen(sums), len(rows), stacked, resolution, voters=_voters(known))

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
            ballots = _frozen(self.ballots[:, rows])
        sums = _frozen(self.sums[rows])
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
    return None if known is None else _frozen(known.sum(axis=0, dtype=np.int64))


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
        return _first_place(bad, _AXES)
    return f"teacher {teacher}" if bad.any() else ""


def _first_place(bad: NDArray[np.bool_], axes: tuple[str, ...]) -> str:
    """Say where the first offending entry is, or nothing; the entry itself stays private."""
    if not bad.any():
        return ""
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))


def _frozen(table: NDArray[Any]) -> NDArray[Any]:
    table = np.ascontiguousarray(table)
    table.flags.writeable = False
    return table
