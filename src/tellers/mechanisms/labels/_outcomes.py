"""The outcome distribution of mechanisms that decide label by label, as accountants need it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.votes import Integers
from .._check import log_pass_and_fail
from ..suprema import check_item
from ._rules import BallotRule

# --- What comes out for one label, as a function of its sum alone. ---
#
# A label is given iff sum + Z >= threshold, with Z a discrete Gaussian and everything in whole units; a
# strict majority of K teachers is the threshold floor(K / 2) + 1. Where only sure labels are told, a second
# noise first decides whether the larger of the sum and its complement reaches a bar; otherwise that label is
# silent.


@dataclass(frozen=True, eq=False)
class Bar:
    """The check of every label: max(sum, total - sum) + Z >= height, Z of standard deviation sigma.

    `total` is what all who know a label can say together: one number, or one for each label.
    """

    sigma: float
    height: int
    total: int | Integers

    def margin(self, sums: Integers, total: Integers | None = None) -> Integers:
        """Return by how much each label is above the bar."""
        most = self.total if total is None else total
        return np.asarray(np.maximum(sums, most - sums) - self.height)


@dataclass(frozen=True, eq=False)
class LabelLaw:
    """How a label is decided: the noise on its sum, in units, a threshold per label, and a bar or none."""

    sigma: float
    threshold: Integers
    bar: Bar | None = None

    @property
    def kinds(self) -> Integers:
        """Return what labels differ in, (2, labels): the threshold, and the total where there is a bar."""
        total = 0 if self.bar is None else self.bar.total
        return np.stack([self.threshold, np.broadcast_to(total, self.threshold.shape)])

    def log_outcomes(self, sums: Integers, kinds: Integers | None = None) -> Floats:
        """Return log-probabilities, (outcomes, *sums): of 0, of 1, and of silence where there is a bar.

        `kinds` stands in for the labels' own where sums do not end with the labels.
        """
        limit, total = (self.threshold, None) if kinds is None else kinds
        one, zero = log_pass_and_fail((sums - limit).astype(np.float64), self.sigma)
        if self.bar is None:
            return np.stack([zero, one])
        told, silent = log_pass_and_fail(self.bar.margin(sums, total).astype(np.float64), self.bar.sigma)
        return np.stack([zero + told, one + told, silent])


# --- What an accountant needs to know about a mechanism that decides label by label. ---


@dataclass(frozen=True, eq=False)
class Gate:
    """One check for a whole query.

    The n largest sums, each with noise of its own, must all reach a height.
    """

    sigma: float
    height: int
    n_top: int

    def top(self, sums: Integers) -> Integers:
        """Return the n largest sums, above the height."""
        k = sums.shape[-1]
        return np.asarray(np.partition(sums, k - self.n_top, axis=-1)[..., k - self.n_top :] - self.height)

    def log_pass_and_fail(self, sums: Integers) -> tuple[Floats, Floats]:
        """Return the log-probability that the gate opens, and of its complement."""
        return all_of(*log_pass_and_fail(self.top(sums).astype(np.float64), self.sigma))

    def price(self, rule: BallotRule, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the gate costs: as many of the largest sums as two ballots can move."""
        moved = min(self.n_top, rule.n_labels, 2 * rule.most)
        return check_item(float(self.sigma), rule.one, tuple(check_orders(orders))).price() * moved


def all_of(log_each: Floats, log_fails: Floats) -> tuple[Floats, Floats]:
    """Return the log-probability that all along the last axis succeed, and of its complement."""
    total = np.cumsum(log_each, axis=-1)
    # 1 - prod(1 - f_j), a sum of positive terms: the first j - 1 succeed and the j-th fails.
    before = np.concatenate([np.zeros_like(total[..., :1]), total[..., :-1]], axis=-1)
    return total[..., -1], np.logaddexp.reduce(before + log_fails, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class LabelOutcomes:
    """Sums as they count, the law of a label and the distinct ballots; private, like the votes.

    `ballots` (ballots, labels) are in units, `query` says which query each belongs to, and `of_teacher`
    (teachers, queries) which one a teacher cast; all three are None where only sums are known. With a `gate`
    labels are told only where it opens.
    """

    sums: Integers
    law: LabelLaw
    rule: BallotRule
    ballots: Integers | None = None
    query: Integers | None = None
    of_teacher: Integers | None = None
    gate: Gate | None = None

    def __len__(self) -> int:
        return len(self.sums)

    def __repr__(self) -> str:
        return f"LabelOutcomes(<private>, n_queries={len(self)})"


def distinct_ballots(ballots: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the distinct ballots of each query, their query, and which of them each teacher cast."""
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
