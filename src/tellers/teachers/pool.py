"""A pool that was voted on once: afterwards the teachers need not be there to answer for it."""

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import require_count
from ..privacy.votes import Votes, keep, kept
from .store import read_votes


class VotedPool:
    """Votes on every row of a public pool, asked for by row number; an ensemble as far as a room can tell.

    Guarantee: the same row gets the same votes each time, as teachers that do not change give them. Whoever
               holds a pool can have a room ask it, and reads no tally off it.
    Assumes:   `votes` are those of teachers trained on the parts of one `Partition`, one query per row.
    Reference: Papernot et al. 2017, section 2.1.

    >>> pool = VotedPool(Votes.from_ballots([[0, 1, 1], [0, 1, 0]], n_classes=2))
    >>> pool
    VotedPool(n_rows=3, n_teachers=2, n_classes=2)
    >>> pool.vote([2, 0])
    Votes(<private>, n_queries=2, n_teachers=2, n_classes=2)
    >>> pool.vote([3])
    Traceback (most recent call last):
        ...
    ValueError: Expected row numbers of a pool of 3 rows, 0..2, got another. Ask for rows of this pool.
    """

    def __init__(self, votes: Votes) -> None:
        keep(self, votes)

    def vote(self, rows: ArrayLike) -> Votes:
        """Return the votes on some rows of the pool, in the order asked."""
        numbers = np.asarray(rows)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise TypeError(
                f"Expected row numbers in one dimension, got {numbers.dtype} of shape {numbers.shape}."
            )
        require_count(n_rows=numbers.size)
        if numbers.min() < 0 or numbers.max() >= len(self):
            raise ValueError(
                f"Expected row numbers of a pool of {len(self)} rows, 0..{len(self) - 1}, got another. "
                "Ask for rows of this pool."
            )
        asked: Votes = kept(self)[numbers]
        return asked

    def __getattr__(self, name: str) -> Any:
        # What a room looks at; a pool of one class per row has no labels, and the other way round.
        if name not in ("space", "n_teachers", "n_classes", "n_labels", "resolution"):
            raise AttributeError(f"VotedPool has no attribute {name!r}")
        return getattr(kept(self), name)

    @property
    def has_ballots(self) -> bool:
        """Return whether it is known who voted what, or sums alone."""
        return kept(self).ballots is not None

    def __len__(self) -> int:
        return len(kept(self))

    def __repr__(self) -> str:
        about = f"n_{self.space.kind}={self.space.n_answers}"
        return f"VotedPool(n_rows={len(self)}, n_teachers={self.n_teachers}, {about})"


def open_pool(path: str | PathLike[str], *, n_classes: int = 0, n_labels: int = 0) -> VotedPool:
    """Read a vote file, on so many classes or labels, as a pool that a room can ask by row numbers."""
    if not n_labels:
        return VotedPool(read_votes(path, n_classes=n_classes).votes)
    votes = read_votes(path, kind="labels").votes
    if votes.n_labels != n_labels:
        raise ValueError(f"Expected votes on {n_labels} labels in {path}, got votes on {votes.n_labels}.")
    return VotedPool(votes)
