"""Votes on disk, too many to hold in memory: a folder of vote files, one for each part of the queries.

    votes.json              how many teachers and classes; once all parts are there, how many queries each has
    counts-00000000.npz     the tallies of the first part, an ordinary vote file
    ballots-00000000.npz    its ballots, where they are kept

A part is written whole or not at all, ballots first: it is there once its counts are. The votes as a whole
are there once `votes.json` lists the parts; until then they can be continued, and not read. Everything in the
folder is as private as the votes, and only its owner may enter it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from ..file_sizes import MOST_TEXT, cap, read_bounded, require_size
from ..votes import Votes
from .store import hold, read_votes, save_votes, write_whole

FILE = "votes.json"
_FORMAT = 1
# Queries asked at once: parts of ten megabytes for ten thousand teachers.
_PART = 1024


class Voter(Protocol):
    """Whoever votes on rows: an ensemble."""

    def vote(self, X: Any) -> Votes:
        """Return every teacher's ballot on every row."""
        ...


class VoteWriter:
    """Write votes part by part, as they come, without ever holding all of them.

    Guarantee: an appended part is on the disk when `append` returns, and survives a crash. Votes can be read
               once the writer was left without an error; what a crash left behind is never read as a whole.
    Assumes:   a continued folder gets the votes of the same teachers on the queries that follow.

    `ballots=False` keeps tallies alone: a few bytes per query, and the exact cost then adds up each query's
    worst ballot. `resume=True` continues after the parts that are there.

    >>> import tempfile
    >>> votes = Votes.from_ballots([[0, 1, 1], [0, 1, 0], [2, 1, 1]], n_classes=3)
    >>> folder = Path(tempfile.mkdtemp()) / "votes"
    >>> with VoteWriter(folder) as writer:
    ...     writer.append(votes[:2])
    ...     writer.append(votes[2:])
    >>> stored_votes(folder)
    StoredVotes(<private>, n_queries=3, n_teachers=3, n_classes=3, n_parts=2, ballots)
    """

    def __init__(self, folder: str | PathLike[str], *, ballots: bool = True, resume: bool = False) -> None:
        self._folder, self._keep, self._resume = Path(folder), bool(ballots), bool(resume)
        self._sizes: list[int] = []
        self._shape: tuple[int, int] | None = None
        self._held = ExitStack()

    @property
    def n_queries(self) -> int:
        """Return how many queries are on the disk."""
        return sum(self._sizes)

    def __enter__(self) -> "VoteWriter":
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._held.enter_context(
            hold(self._folder / ".lock", place=self._folder, who="another writer of votes")
        )
        try:
            self._begin()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._held:
            if kind is None:
                self._finish()

    def append(self, votes: Votes) -> None:
        """Write one more part: at best a thousand queries or so, which fit in memory and keep files few."""
        if votes.weights is not None or (self._keep and votes.ballots is None):
            came = "weighted ones" if votes.weights is not None else "counts alone: use ballots=False"
            raise ValueError(f"Expected votes with ballots that count one vote each, got {came}.")
        shape = (votes.n_teachers, votes.n_classes)
        if len(votes) == 0:
            return
        if self._shape is None:
            self._shape = shape
            self._write_head(None)
        if shape != self._shape:
            raise ValueError(
                f"Expected votes of {self._shape[0]} teachers on {self._shape[1]} classes as in the first "
                f"part, got {shape[0]} and {shape[1]}."
            )
        number = len(self._sizes)
        if self._keep:
            save_votes(_place(self._folder, "ballots", number), votes)
        # The counts come last: with them the part is there.
        save_votes(_place(self._folder, "counts", number), Votes(votes.counts, votes.n_teachers))
        self._sizes.append(len(votes))

    def _begin(self) -> None:
        # What a killed writer was at; nobody else is in here.
        for rest in self._folder.glob(".*.tmp"):
            rest.unlink()
        if not (self._folder / FILE).exists():
            return
        head = _head(self._folder)
        if head["sizes"] is not None:
            raise ValueError(f"Expected a folder for new votes, {self._folder} holds finished ones.")
        if not self._resume:
            raise ValueError(
                f"Expected a folder for new votes, {self._folder} holds unfinished ones. Continue them with "
                "resume=True, or take another folder."
            )
        if head["ballots"] != self._keep:
            kept = "with ballots" if head["ballots"] else "as counts alone"
            raise ValueError(f"Expected to continue the votes as they were begun, {kept}.")
        self._shape = (head["n_teachers"], head["n_classes"])
        while _place(self._folder, "counts", len(self._sizes)).exists():
            part = _read(self._folder, "counts", len(self._sizes), self._shape)
            self._sizes.append(len(part))

    def _finish(self) -> None:
        if not self._sizes:
            raise ValueError("Expected at least one part of votes, got none.")
        self._write_head(self._sizes)

    def _write_head(self, sizes: list[int] | None) -> None:
        assert self._shape is not None  # there is a first part
        head = {
            "format": _FORMAT, "n_teachers": self._shape[0], "n_classes": self._shape[1],
            "ballots": self._keep, "sizes": sizes,
        }  # fmt: skip
        write_whole(self._folder / FILE, json.dumps(head).encode())


@dataclass(frozen=True, repr=False)
class StoredVotes:
    """Finished votes in a folder: `parts` reads them one part at a time.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "votes"
    >>> with VoteWriter(folder) as writer:
    ...     writer.append(Votes.from_ballots([[0, 1, 1], [0, 1, 0]], n_classes=2))
    >>> [part.n_queries for part in stored_votes(folder).parts()]
    [3]
    >>> stored_votes(folder).tallies()
    Votes(<private>, n_queries=3, n_teachers=2, n_classes=2)
    """

    folder: Path
    n_teachers: int
    n_classes: int
    sizes: tuple[int, ...]
    has_ballots: bool

    def parts(
        self, first: int = 0, last: int | None = None, *, ballots: bool | None = None
    ) -> Iterator[Votes]:
        """Yield the votes of each part, or of those from `first` to before `last`, checked as they are read.

        `ballots=False` reads the tallies alone, a few bytes per query; else ballots come where they are.
        """
        wanted = self.has_ballots if ballots is None else ballots
        if wanted and not self.has_ballots:
            raise ValueError(f"Expected votes with ballots in {self.folder}, counts alone were kept.")
        for number in range(*slice(first, last).indices(len(self.sizes))):
            yield self._part(number, wanted)

    def tallies(self) -> Votes:
        """Return the tallies of all queries at once: eight bytes for every query and class."""
        require_size(8 * len(self) * self.n_classes, str(self.folder), most=cap())
        counts = np.empty((len(self), self.n_classes), dtype=np.int64)
        start = 0
        for part in self.parts(ballots=False):
            counts[start : start + len(part)] = part.counts
            start += len(part)
        return Votes.from_counts(counts, n_teachers=self.n_teachers)

    def __len__(self) -> int:
        return sum(self.sizes)

    def __repr__(self) -> str:
        kept = "ballots" if self.has_ballots else "counts"
        return (
            f"StoredVotes(<private>, n_queries={len(self)}, n_teachers={self.n_teachers}, "
            f"n_classes={self.n_classes}, n_parts={len(self.sizes)}, {kept})"
        )

    def _part(self, number: int, ballots: bool) -> Votes:
        shape = (self.n_teachers, self.n_classes)
        part = counts = _read(self.folder, "counts", number, shape)
        if ballots:
            part = _read(self.folder, "ballots", number, shape)
        if len(counts) != self.sizes[number] or not np.array_equal(part.counts, counts.counts):
            raise ValueError(
                f"Expected the votes that were written, part {number} in {self.folder} is another. "
                "Restore the folder, or write the votes again."
            )
        return part


def stored_votes(folder: str | PathLike[str]) -> StoredVotes:
    """Return finished votes in a folder; unfinished ones are refused.

    >>> import tempfile
    >>> stored_votes(tempfile.mkdtemp())
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of votes, found no votes.json in ...
    """
    place = Path(folder)
    head = _head(place)
    if head["sizes"] is None:
        raise ValueError(
            f"Expected finished votes in {place}, whoever wrote them was interrupted. Continue with "
            "VoteWriter(folder, resume=True)."
        )
    return StoredVotes(place, head["n_teachers"], head["n_classes"], tuple(head["sizes"]), head["ballots"])


def vote_in_parts(
    ensemble: Voter,
    X: NDArray[Any],
    folder: str | PathLike[str],
    *,
    n_queries: int = _PART,
    ballots: bool = True,
    resume: bool = False,
    progress: Callable[[int], None] | None = None,
) -> StoredVotes:
    """Let an ensemble vote on many rows, some at a time, and keep the votes in a folder.

    The rows may be a memory map. With `resume`, the rows that were voted on are left out: give the same ones,
    and the same teachers. `progress` is called with the number of queries of each part.

    >>> import tempfile
    >>> from tellers.teachers import Ensemble
    >>> from tellers.teachers.models import ConstantTeacher
    >>> ensemble = Ensemble((ConstantTeacher(0), ConstantTeacher(2)), n_classes=3)
    >>> vote_in_parts(ensemble, np.zeros((5, 1)), Path(tempfile.mkdtemp()) / "votes", n_queries=2)
    StoredVotes(<private>, n_queries=5, n_teachers=2, n_classes=3, n_parts=3, ballots)
    """
    require_count(n_queries=n_queries)
    with VoteWriter(folder, ballots=ballots, resume=resume) as writer:
        if writer.n_queries > len(X):
            raise ValueError(
                f"Expected the rows that were begun with, got {len(X)}: fewer than were voted on."
            )
        for start in range(writer.n_queries, len(X), n_queries):
            rows = X[start : start + n_queries]
            writer.append(ensemble.vote(rows))
            if progress is not None:
                progress(len(rows))
    return stored_votes(folder)


def _place(folder: Path, kind: str, number: int) -> Path:
    return folder / f"{kind}-{number:08d}.npz"


def _read(folder: Path, kind: str, number: int, shape: tuple[int, int]) -> Votes:
    votes = read_votes(_place(folder, kind, number), n_classes=shape[1]).votes
    if votes.n_teachers != shape[0] or (votes.ballots is None) != (kind == "counts"):
        raise ValueError(f"Expected {kind} of {shape[0]} teachers in part {number} of {folder}.")
    return votes


def _head(folder: Path) -> dict[str, Any]:
    try:
        text = read_bounded(folder / FILE, most=cap(MOST_TEXT))
    except OSError:
        raise ValueError(
            f"Expected a folder of votes, found no {FILE} in {folder}. Check the path."
        ) from None
    head: dict[str, Any] = {}
    try:
        head = json.loads(text)
        fits = head["format"] == _FORMAT and isinstance(head["ballots"], bool)
        sizes = [] if head["sizes"] is None else head["sizes"]
        numbers = [head["n_teachers"], head["n_classes"], *sizes]
    except (ValueError, KeyError, TypeError):
        fits, numbers = False, []
    if not fits or not all(type(n) is int and n > 0 for n in numbers):
        raise ValueError(f"Expected the head of a folder of votes in {folder / FILE}, got something else.")
    return head
