"""The exact cost of label votes as a sum over labels, and how fast it moves: what publishing it needs.

With free ballots a label costs a function of its own sum alone, known before voting: the divergence to the
worst sum that one ballot can make of it. No envelope above the exact cost is needed, as for an arg max: the
sum over all queries and labels is the exact cost of a teacher who holds the dearer vote everywhere. One
changed ballot moves every sum by at most one vote, so the local sensitivity is a sum over labels too, and
that of the logarithm of the cost a quotient of two such sums.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...privacy._scipy import maximum_filter1d
from ...privacy.votes import Votes
from .._admission import require_label_votes
from .._log_sum_sensitivity import largest_quotients, log_moves, slopes_up_to
from ..divergence import pair_divergences
from ._outcomes import LabelLaw

if TYPE_CHECKING:
    from ._perlabel import PerLabel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def label_table(law: LabelLaw, limit: int, *, n_units: int, one: int = 1, order: float) -> Floats:
    """Return g, (2 directions, sums 0 .. n_units): the most that a label with this sum costs at one order.

    Guarantee: the divergence between this sum and the worst that one ballot of up to `one` units can make of
               it, whatever the own vote was; forward and reverse.
    Assumes:   a sum lies in 0 .. n_units. Of a label without a bar the furthest sums are the worst.
    Reference: "Many labels".
    """
    sums = np.arange(n_units + 1)
    at = law.log_outcomes(sums, np.array([limit, law.kinds[1, 0]]))
    table = np.zeros((2, sums.size))
    # With a bar the outcomes are three and nothing says that the furthest sum is the worst: try all.
    for step in range(1, one + 1) if law.bar is not None else (one,):
        for there in (np.maximum(sums - step, 0), np.minimum(sums + step, n_units)):
            table = np.maximum(table, pair_divergences(at, at[:, there], [order])[:, :, 0])
    return table


def label_cost_and_sensitivities(mechanism: "PerLabel", votes: Votes, order: float) -> tuple[float, Floats]:
    """Return the cost of all labels and its local sensitivity at distance 0, 1, 2, ... ballots; private.

    Guarantee: f, the larger direction of the sum of g over queries and labels, is at least the exact cost of
               every teacher. Entry d of the sensitivities is at least the most that one more changed ballot
               moves f once d of them have changed; entries of neighbours interleave.
    Assumes:   free ballots; the order was fixed before voting.
    Reference: Nissim, Raskhodnikova, Smith 2007, Definition 3.1; "Many labels", section on publishing.
    """
    total = np.zeros(2)
    local = np.zeros((2, 2, votes.n_teachers + 1))  # (direction of the divergence, rise or fall, distance)
    size = 2 * mechanism.rule.one + 1
    for costs, change, times in _tables(mechanism, votes, float(order)):
        total += costs @ times
        for distance in range(votes.n_teachers + 1):
            local[:, :, distance] += change @ times
            # Every ballot moves every sum as it likes: after d of them a sum is anywhere within d votes.
            change = maximum_filter1d(change, size, axis=2, mode="nearest")
    return float(total.max()), np.maximum.accumulate(local.max(axis=(0, 1)))


def label_log_cost_and_sensitivities(
    mechanism: "PerLabel", votes: Votes, order: float, *, offsets: Sequence[float]
) -> tuple[float, Floats]:
    """Return f as above, and how fast log(1 + f / offset) moves, (offsets, distances); private.

    Guarantee: as `label_cost_and_sensitivities`, for the logarithm: with r the largest quotient of what one
               more ballot adds to f and f + offset, over all votes that d ballots can reach, entry d is at
               least log(1 + r), and -log(1 - r) for what it takes away; entries of neighbours interleave.
    Assumes:   free ballots; order and offsets were fixed before voting, and are positive.
    Reference: "Many labels", section on publishing; the quotients by the method of Dinkelbach 1967.
    """
    tables = list(_tables(mechanism, votes, float(order)))
    spare = min(offsets) / (len(votes) * votes.n_labels)
    # What one direction gains is held against f, that is against either direction: (changing, rise or fall,
    # held against). No quotient of sums is larger than the largest of its terms, where the slopes end.
    quotients = [(change[:, :, None] / (costs + spare)).max(axis=3) for costs, change, _ in tables]
    slopes = slopes_up_to(np.max(quotients, axis=0))
    total = np.zeros(2)
    excess = np.zeros((*slopes.shape, votes.n_teachers + 1))
    size = 2 * mechanism.rule.one + 1
    for costs, change, times in tables:
        total += costs @ times
        over = change[:, :, None, None] - slopes[..., None] * costs[:, None]
        for distance in range(votes.n_teachers + 1):
            excess[..., distance] += over @ times
            over = maximum_filter1d(over, size, axis=4, mode="nearest")
    logs = np.stack([_largest_logs(slopes, excess, offset) for offset in offsets])
    return float(total.max()), np.maximum.accumulate(logs, axis=1)


def _largest_logs(slopes: Floats, excess: Floats, offset: float) -> Floats:
    """Return how far the logarithm moves at most, by distance, from the excess at every slope."""
    found = largest_quotients(slopes, excess, offset)
    # Against its own direction a fall is less than all of it; against the other it may seem to be more.
    rise, fall = log_moves(found[:, 0], found[:, 1])
    return np.asarray(np.maximum(rise.min(axis=1), fall.min(axis=1)).max(axis=0))


def _tables(mechanism: "PerLabel", votes: Votes, order: float) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield, for each threshold, g, how far one ballot moves it, and how many labels have which sum.

    Shapes: (directions, sums), (directions, rise or fall, sums) and (sums).
    """
    require_label_votes(mechanism, votes)
    votes.require_all_labels("publishing what they cost")
    if "envelope" not in mechanism.publishable:
        raise TypeError(f"Expected a mechanism with free ballots, got {type(mechanism).__name__}.")
    n_units = votes.n_teachers * mechanism.rule.one
    limits, which = np.unique(mechanism.limits(votes.n_teachers), return_inverse=True)
    sums = mechanism.fitted_sums(votes)
    tally = np.zeros((limits.size, n_units + 1))
    np.add.at(tally, (np.broadcast_to(which.reshape(-1), sums.shape), sums), 1.0)
    size = 2 * mechanism.rule.one + 1
    for limit, times in zip(limits.tolist(), tally, strict=True):
        costs = _costs(mechanism, votes.n_teachers, limit, order)
        rise = maximum_filter1d(costs, size, axis=1, mode="nearest") - costs
        fall = costs + maximum_filter1d(-costs, size, axis=1, mode="nearest")
        yield costs, np.stack([rise, fall], axis=1), times


@lru_cache(maxsize=256)
def _costs(mechanism: "PerLabel", n_teachers: int, limit: int, order: float) -> Floats:
    one = mechanism.rule.one
    return label_table(mechanism.law(n_teachers), limit, n_units=n_teachers * one, one=one, order=order)
