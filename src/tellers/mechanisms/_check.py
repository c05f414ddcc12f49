"""The noisy check that decides whether a query is answered at all.

A query passes iff max_j (n_j - t_j) + Z >= 0 with Z a discrete Gaussian and whole thresholds t_j. A
real threshold T becomes ceil(T), since whole counts reach T exactly when they reach ceil(T); for an
interactive check the student's expected votes are added before rounding, class by class. The margin
is then a whole number that one changed ballot moves by at most 1.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy.votes import Votes
from ._argmax import ClassGroups
from ._laws import DiscreteGaussian, Floats
from ._outcomes import Check


def log_pass_and_fail(margin: Floats, sigma: float) -> tuple[Floats, Floats]:
    """Return log P[margin + Z >= 0] and the log of its complement, both accurate in their tails."""
    law = DiscreteGaussian(sigma)
    # P[Z >= -m] = P[Z <= m] by symmetry, and P[Z < -m] = P[Z <= -m - 1].
    return law.log_cdf(margin), law.log_cdf(-margin - 1)


def check_outcomes(groups: ClassGroups, sigma: float) -> Check:
    """Return how likely the check passes, at the votes and after every move of one vote.

    `groups.offset` holds the thresholds t_j.
    """
    score = groups.value - groups.offset
    margin = np.where(groups.size > 0, score, -np.inf).max(axis=1)
    left = np.where(groups.remaining > 0, score[:, None, None, :], -np.inf).max(axis=3)
    less, more = score - groups.step, score + groups.step
    moved = np.maximum(left, np.maximum(less[:, :, None], more[:, None, :]))
    log_pass, log_fail = log_pass_and_fail(margin, sigma)
    log_pass_moved, log_fail_moved = log_pass_and_fail(moved, sigma)
    return Check(log_pass, log_fail, log_pass_moved, log_fail_moved)


def whole_thresholds(threshold: float, student_votes: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    """Return the whole thresholds t_j = ceil(T + the student's expected votes for j)."""
    if not abs(threshold) < 2**53:
        raise ValueError(f"Expected a threshold in votes, below 2**53 in size, got {threshold}.")
    expected = np.zeros((1, 1)) if student_votes is None else student_votes
    return np.asarray(np.ceil(threshold + expected).astype(np.int64))


def answered_mask(values: ArrayLike, votes: Votes, name: str = "answered") -> NDArray[np.bool_]:
    """Return one True or False per query, and per label where there are many, or refuse them."""
    mask, shape = np.asarray(values), votes.space.told(len(votes))
    if mask.shape != shape or mask.dtype != np.bool_:
        each = "query and label" if len(shape) > 1 else "query"
        advice = "" if mask.dtype == np.bool_ else f" Convert it with {name}.astype(bool)."
        raise ValueError(
            f"Expected {name} with one True or False per {each}, shape {shape}, got shape {mask.shape} of "
            f"{mask.dtype}.{advice}"
        )
    return mask


def student_probabilities(student: ArrayLike, votes: Votes) -> NDArray[np.float64]:
    """Return the student's probabilities, checked: one row per query, rows in [0, 1] that sum to 1."""
    belief = np.asarray(student, dtype=np.float64)
    if belief.shape != votes.counts.shape:
        raise ValueError(
            f"Expected student probabilities of shape (queries, classes) = {votes.counts.shape}, "
            f"got {belief.shape}."
        )
    outside = ~((belief >= 0) & (belief <= 1)).all(axis=1)
    if outside.any():
        raise ValueError(
            f"Expected student probabilities in [0, 1], which row {int(outside.argmax())} is not."
        )
    unequal = np.abs(belief.sum(axis=1) - 1) > 1e-6
    if unequal.any():
        raise ValueError(
            "Expected student probabilities that sum to 1 in every row, "
            f"which row {int(unequal.argmax())} does not."
        )
    return belief


def golden_section(cost: Callable[[float], float], low: float, high: float, *, n: int) -> tuple[float, float]:
    """Return where a cost that falls and then grows is least: the ends of what n sections leave.

    >>> left, right = golden_section(lambda x: (x - 0.3) ** 2, 0.0, 1.0, n=30)
    >>> round(left, 3), round(right, 3)
    (0.3, 0.3)
    """
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(n):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = cost(right)
    return left, right
