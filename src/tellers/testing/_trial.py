"""A mechanism and the votes it is tried on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import noise
from ..rdp import Floats
from ..release import SILENT, Release
from ..votes import Integers, Votes
from ._promise import require


def student_rows(student: ArrayLike | None, votes: Votes) -> Floats | None:
    """Return a row of student probabilities for each of the votes, taken in turn."""
    if student is None:
        return None
    rows = np.atleast_2d(np.asarray(student, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != votes.n_classes:
        raise ValueError(f"Expected rows of {votes.n_classes} student probabilities, got shape {rows.shape}.")
    return np.asarray(rows[np.arange(len(votes)) % len(rows)])


@dataclass(frozen=True, eq=False)
class Trial:
    """A mechanism, the votes it is tried on and the student that goes with each of them."""

    mechanism: Any
    votes: Votes
    beliefs: Floats | None
    seed: int

    def _context(self, rows: Any) -> dict[str, Any]:
        return {} if self.beliefs is None else {"student": self.beliefs[rows]}

    def _votes(self, rows: Any, counts: Integers | None) -> Votes:
        table = self.votes.counts[rows] if counts is None else counts
        return Votes.from_counts(table, n_teachers=self.votes.n_teachers)

    def outcomes(self, rows: Any, counts: Integers | None = None) -> Any:
        """Return the outcomes of some rows, or of other counts in their place."""
        return self.mechanism.outcomes(self._votes(rows, counts), **self._context(rows))

    def release(self, rows: Any, counts: Integers | None = None, *, seed: int = 0) -> Any:
        """Return a release of some rows, or of other counts in their place."""
        source = noise.seeded(self.seed + seed)
        return self.mechanism.release(self._votes(rows, counts), source, **self._context(rows))

    def drawn(self, release: Any, n: int) -> Integers:
        """Return the outcome of each query, 0 for no answer and 1 + label for an answer; check them too."""
        require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
        labels, answered = np.asarray(release.labels), np.asarray(release.answered)
        require(
            labels.shape == answered.shape == (n,) and labels.dtype.kind in "iu" and answered.dtype == bool,
            f"Expected {n} whole labels and as many True or False in `answered`, got shapes {labels.shape} "
            f"and {answered.shape} of {labels.dtype} and {answered.dtype}.",
        )
        inside = (labels < self.votes.n_classes) & (labels >= np.where(answered, 0, SILENT))
        last = self.votes.n_classes - 1
        require(inside.all(), f"Expected answers 0..{last}, else SILENT, got {labels[~inside][:1]}.")
        if (values := release.values) is not None:
            fits = values.shape == (n, self.votes.n_classes) and values.dtype.kind in "iu"
            require(fits, f"Expected {n} rows of whole values, got {values.dtype} of shape {values.shape}.")
        return np.asarray(np.where(answered, labels + 1, 0))
