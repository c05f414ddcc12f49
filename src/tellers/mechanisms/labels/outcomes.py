"""What an accountant needs to know about a mechanism that decides label by label."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..check import log_pass_and_fail
from .law import LabelLaw, answer_supremum
from .rules import Rule

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Gate:
    """One check for a whole query: the n largest sums, each with noise of its own, must all reach a height.

    >>> gate = Gate(sigma=3.0, height=40, n_top=2)
    >>> bool(gate.log_pass_and_fail(np.array([[50, 45, 0]]))[0][0] > np.log(0.9))
    True
    """

    sigma: float
    height: int
    n_top: int

    def top(self, sums: Integers) -> Integers:
        """Return the n largest sums, above the height.

        >>> Gate(sigma=3.0, height=40, n_top=2).top(np.array([[50, 45, 0]]))
        array([[ 5, 10]])
        """
        k = sums.shape[-1]
        return np.asarray(np.partition(sums, k - self.n_top, axis=-1)[..., k - self.n_top :] - self.height)

    def log_pass_and_fail(self, sums: Integers) -> tuple[Floats, Floats]:
        """Return the log-probability that the gate opens, and of its complement.

        >>> gate = Gate(sigma=3.0, height=40, n_top=1)
        >>> opened, shut = gate.log_pass_and_fail(np.array([[45, 2]]))
        >>> bool(np.isclose(np.exp(opened) + np.exp(shut), 1)[0])
        True
        """
        each, fails = log_pass_and_fail(self.top(sums).astype(np.float64), self.sigma)
        opened = each.sum(axis=-1)
        # 1 - prod(1 - f_j), a sum of positive terms: the first j - 1 pass and the j-th fails.
        before = np.concatenate(
            [np.zeros((*each.shape[:-1], 1)), np.cumsum(each, axis=-1)[..., :-1]], axis=-1
        )
        shut = np.logaddexp.reduce(before + fails, axis=-1)
        return opened, shut

    def price(self, rule: Rule, orders: ArrayLike | None = None) -> Floats:
        """Return the most that the gate costs: as many of the largest sums as two ballots can move.

        >>> from .rules import few_labels
        >>> one, two = (Gate(9.0, 40, n_top=n).price(few_labels(9, 1), [2.0]) for n in (1, 5))
        >>> bool(np.isclose(2 * one[0], two[0]))
        True
        """
        moved = min(self.n_top, rule.n_labels, 2 * rule.most)
        return np.asarray(answer_supremum(self.sigma, rule.one, orders) * moved)


@dataclass(frozen=True, eq=False, repr=False)
class LabelOutcomes:
    """Sums as they count, the law of a label and the distinct ballots; private, like the votes.

    `ballots` (ballots, labels) are in units, `query` says which query each belongs to, and `of_teacher`
    (teachers, queries) which one a teacher cast; all three are None where only sums are known. With a `gate`
    labels are told only where it opens.
    """

    sums: Integers
    law: LabelLaw
    rule: Rule
    ballots: Integers | None = None
    query: Integers | None = None
    of_teacher: Integers | None = None
    gate: Gate | None = None

    def __len__(self) -> int:
        return len(self.sums)

    def __repr__(self) -> str:
        return f"LabelOutcomes(<private>, n_queries={len(self)})"


def distinct_ballots(ballots: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the distinct ballots of each query, their query, and which of them each teacher cast.

    >>> ballots, query, of_teacher = distinct_ballots(np.array([[[1, 0]], [[0, 1]], [[1, 0]]]))
    >>> ballots.tolist(), query.tolist(), of_teacher.ravel().tolist()
    ([[0, 1], [1, 0]], [0, 0], [1, 0, 1])
    """
    n_teachers, n_queries, n_labels = ballots.shape
    # Bytes compare faster than columns: a row is the query's number and the ballot, as one opaque value.
    small = np.min_scalar_type(int(ballots.max(initial=0)))
    cells = np.ascontiguousarray(ballots, dtype=small).view(np.uint8).reshape(n_teachers, n_queries, -1)
    place = np.broadcast_to(
        np.arange(n_queries, dtype=">u4").view(np.uint8).reshape(1, n_queries, 4), (n_teachers, n_queries, 4)
    )
    rows = np.ascontiguousarray(np.concatenate([place, cells], axis=2)).reshape(n_teachers * n_queries, -1)
    opaque = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    flat = ballots.reshape(n_teachers * n_queries, n_labels)
    query = np.asarray(first % n_queries, dtype=np.int64)
    return np.asarray(flat[first]), query, inverse.reshape(n_teachers, n_queries).astype(np.int64)
