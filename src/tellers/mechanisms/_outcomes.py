"""The distribution of a mechanism's outcomes, at the votes and at every neighbour.

This is all an accountant needs to know about a mechanism: which outcomes there are and how likely
each one was, before and after one ballot changes. Divergences are evaluated elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._argmax import ClassGroups, Wins
from ._laws import Floats


@dataclass(frozen=True, eq=False, repr=False)
class Outcomes:
    """Log-probabilities of outcomes for a batch of queries; private, like the votes they come from.

    `log_labels` (queries, 1 + classes) holds silence first, then every class, at the votes.
    `log_here` and `log_there` (queries, from, to, outcomes) hold the outcomes that a move of one
    vote tells apart, at the votes and after the move; `multiplicity` says how many exchangeable
    outcomes each entry stands for (0: none). `moves` (queries, from, to) says which moves exist, and
    `of_class` (queries, classes) the row in which a ballot for a class is found.
    """

    log_labels: Floats
    log_here: Floats
    log_there: Floats
    multiplicity: NDArray[np.int64]
    moves: NDArray[np.bool_]
    of_class: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.log_labels)

    def __repr__(self) -> str:
        return f"Outcomes(<private>, n_queries={len(self)})"


@dataclass(frozen=True, eq=False)
class Check:
    """Log-probabilities of passing and failing a check, at the votes and after every move."""

    log_pass: Floats
    log_fail: Floats
    log_pass_moved: Floats
    log_fail_moved: Floats


def assemble(groups: ClassGroups, wins: Wins, check: Check | None = None) -> Outcomes:
    """Put the winners, and silence where there is a check, into one outcome space."""
    n_queries, n_groups = groups.size.shape
    shape = (n_queries, n_groups, n_groups)
    remaining = groups.remaining
    wins = _normalised(groups, wins)
    ones = np.ones((*shape, 1), dtype=np.int64)
    here = [
        np.broadcast_to(wins.base[:, None, None, :], (*shape, n_groups)),
        np.broadcast_to(wins.base[:, :, None, None], (*shape, 1)),
        np.broadcast_to(wins.base[:, None, :, None], (*shape, 1)),
    ]
    there = [wins.other, wins.source[..., None], wins.target[..., None]]
    multiplicity = [remaining, ones, ones]
    labels = np.take_along_axis(wins.base, groups.of_class, axis=1)
    silence = np.full((n_queries, 1), -np.inf)
    if check is not None:
        here = [part + check.log_pass[:, None, None, None] for part in here]
        there = [part + check.log_pass_moved[..., None] for part in there]
        here.append(np.broadcast_to(check.log_fail[:, None, None, None], (*shape, 1)))
        there.append(check.log_fail_moved[..., None])
        multiplicity.append(ones)
        labels = labels + check.log_pass[:, None]
        silence = check.log_fail[:, None]
    return Outcomes(
        np.concatenate([silence, labels], axis=1),
        np.concatenate(here, axis=3),
        np.concatenate(there, axis=3),
        np.concatenate(multiplicity, axis=3),
        groups.moves,
        groups.of_class,
    )


def _normalised(groups: ClassGroups, wins: Wins) -> Wins:
    # The tie nodes leave the total off 1 by about 1e-9. Divided out, that error no longer adds to
    # the divergence, which for a unanimous vote is far smaller.
    base = wins.base - np.log((groups.size * np.exp(wins.base)).sum(axis=1))[:, None]
    others = (groups.remaining * np.exp(wins.other)).sum(axis=3)
    total = np.log(others + np.exp(wins.source) + np.exp(wins.target))
    return Wins(base, wins.other - total[..., None], wins.source - total, wins.target - total)


def chunks(n_groups: NDArray[np.int64], *, cells: int = 2_000_000) -> Iterator[NDArray[np.int64]]:
    """Split queries into batches of similar size, so that memory stays flat and padding small."""
    order = np.argsort(n_groups, kind="stable")
    start = 0
    while start < len(order):
        stop = start + 1
        # A batch costs (largest number of groups)^3 cells per query and does not mix small with large.
        while stop < len(order) and stop - start < 256:
            largest = int(n_groups[order[stop]])
            if largest > 2 * int(n_groups[order[start]]) or (stop - start + 1) * largest**3 * 30 > cells:
                break
            stop += 1
        yield order[start:stop]
        start = stop
