"""Which ballots count: free ones, ballots with few labels, and ballots clipped to a norm.

A rule makes every ballot fit before it is counted, so that it holds whatever a teacher says. All ones of a
ballot with l ones then count the same, `values[l]` whole units; that is what makes the dearest pair of
ballots, and the dearest alternative to a ballot, findable without looking at 2^k of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...errors import require_positive
from ...privacy.rdp import Floats
from ...privacy.votes import Integers

Norm = Literal["l2", "l1"]


@dataclass(frozen=True)
class BallotRule:
    """The ballots that may be cast on `n_labels` labels: l ones of `values[l]` units each, l = 0, 1, ...

    `one` is a whole vote in units, and `scale` what a ballot's entries are multiplied by to be in units.
    """

    n_labels: int
    values: tuple[int, ...]
    one: int = 1
    scale: int = 1

    @property
    def most(self) -> int:
        """Return the largest number of ones."""
        return len(self.values) - 1

    @property
    def is_free(self) -> bool:
        """Return whether every ballot counts as it was cast."""
        return self.most == self.n_labels and all(value == self.one for value in self.values[1:])

    @property
    def has_parts(self) -> bool:
        """Return whether a vote may count in part as it was cast, and not only because it was clipped."""
        return self.one > self.scale

    def fit(self, ballots: Integers) -> Integers:
        """Return ballots as they count, in units; entries are 0 .. `one`, or 0 and 1 where ones are clipped.

        Of more labels than allowed those with the largest entries stay, among equal ones the first.
        """
        if self.is_free:
            return ballots * self.scale
        if self.most < self.n_labels:
            order = np.argsort(-ballots, axis=-1, kind="stable")
            kept = np.zeros(ballots.shape, dtype=bool)
            np.put_along_axis(kept, order[..., : self.most], True, axis=-1)
            return np.where(kept, ballots, 0)
        n_ones = np.count_nonzero(ballots, axis=-1)
        return np.asarray(ballots * np.array(self.values, dtype=np.int64)[n_ones][..., None])

    def dearest(self, price: Callable[[int], Floats], n_labels: int | None = None) -> Floats:
        """Return the most that two allowed ballots are apart; a label that moves w units costs price(w).

        Guarantee: the maximum over all pairs of ballots, of the sum over `n_labels` of the labels.
        Assumes:   price(w) grows with w. Ones that two ballots share move less than ones they do not, so the
                   dearest pair shares no more labels than it must.
        Reference: Dullerud et al. 2022 charge tau^2 where disjoint ballots differ by twice that.
        """
        k = self.n_labels if n_labels is None else n_labels
        if k == 0:
            return price(1) * 0.0
        if self.is_free or self.most < self.n_labels:
            # All values are one vote: as many labels as possible move by all of it.
            return price(self.one) * min(k, 2 * self.most)
        levels = self.values[: k + 1]
        worth = {value: price(value) for value in set(levels[1:])}
        best = price(levels[1]) * 0.0
        for here in range(k + 1):
            for there in range(here, k + 1):
                shared = max(0, here + there - k)
                total = best * 0.0
                for count, level in ((here, levels[here]), (there, levels[there])):
                    if count > shared:
                        total = total + worth[level] * (count - shared)
                apart = abs(levels[here] - levels[there])
                if shared and apart:
                    total = total + price(apart) * shared
                best = np.maximum(best, total)
        return best

    def furthest(self, n_labels: int) -> float:
        """Return the squared distance, in votes, of the ballots that are furthest apart on so many labels."""
        return float(self.dearest(lambda units: np.array((units / self.one) ** 2), n_labels))


def free_ballots(n_labels: int, resolution: int = 1) -> BallotRule:
    """Return the rule by which every ballot counts."""
    return BallotRule(n_labels, (0, *([resolution] * n_labels)), resolution)


def few_labels(n_labels: int, max_labels: int, resolution: int = 1) -> BallotRule:
    """Return the rule by which at most `max_labels` labels of a ballot count."""
    return BallotRule(n_labels, (0, *([resolution] * min(max_labels, n_labels))), resolution)


def clipped_ballots(n_labels: int, max_norm: float, norm: Norm, resolution: int) -> BallotRule:
    """Return the rule by which a ballot of 0 and 1 is scaled down to norm `max_norm`, in whole units.

    Rounded down, so that no ballot is longer than it may be.
    """
    require_positive(max_norm=max_norm)
    values = [0]
    for ones in range(1, n_labels + 1):
        length = ones if norm == "l1" else math.sqrt(ones)
        # A hair above, lest a value that is whole in exact arithmetic fall below itself.
        values.append(min(resolution, math.floor(resolution * max_norm / length * (1 + 1e-12))))
    return BallotRule(n_labels, tuple(values), resolution, scale=resolution)
