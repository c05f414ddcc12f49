"""How often each label is true, teacher by teacher: what a noisy prior is bought from."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..privacy._rows import class_ids, label_table
from ..privacy.votes import Scores, Votes
from .partitions import Partition


class LabelFrequencies:
    """One ballot per teacher: the mean label vector of its rows, of a norm up to the bound.

    A room asks it one question, whatever it is, and releases the sum by a `GaussianSum`: a noisy prior,
    priced like any sum. A teacher without rows says zeros.

    Parameters
    ----------
    y : a class for each row, or rows x labels of 0 and 1; private.
    parts : the same partition that the teachers learn from, so that one unit moves one ballot here too.
    n_columns : how many classes or labels there are.
    one_class : whether y are classes.
    steps : of the grid, as the mechanism has it.
    bound : norms above it are scaled down to it. A class has at most 1; of many labels the root of how many
        labels a row usually has is a good one.

    Guarantee: one changed unit of the partition changes one ballot.
    Assumes:   the number of teachers is public; how many rows each has need not be.
    Reference: "Gaussian sums", section "The prior".

    >>> from tellers.teachers import partition
    >>> teachers = LabelFrequencies([0, 1, 0, 0], partition(4, 2, seed=7), n_columns=2, one_class=True)
    >>> teachers, teachers.vote([[0.0]])
    (LabelFrequencies(n_teachers=2, n_scores=2), Votes(<private>, n_queries=1, n_teachers=2, n_scores=2))
    """

    def __init__(
        self,
        y: ArrayLike,
        parts: Partition,
        *,
        n_columns: int,
        one_class: bool = False,
        steps: int = 1024,
        bound: float = 1.0,
    ) -> None:
        self.space = Scores(n_columns, steps, one_class=one_class, bound=bound)
        n_rows = len(np.asarray(y))
        if one_class:
            table = np.eye(n_columns)[class_ids(np.asarray(y), n_classes=n_columns)]
        else:
            table = label_table(y, n_rows=n_rows, n_labels=n_columns).astype(np.float64)
        zeros = np.zeros(n_columns)
        means = [table[part].mean(axis=0) if len(part) else zeros for part in parts]
        self._means = np.stack(means)[:, None, :]

    @property
    def n_teachers(self) -> int:
        """Return how many teachers there are."""
        return len(self._means)

    def vote(self, X: Any) -> Votes:
        """Return the votes: one row of frequencies, whatever is asked."""
        return Votes.from_ballots(self._means, self.space).replaced(ballots=None)

    def __repr__(self) -> str:
        return f"LabelFrequencies(n_teachers={self.n_teachers}, n_scores={self.space.n_columns})"
