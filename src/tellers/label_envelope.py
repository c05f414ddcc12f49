"""The exact cost of label votes as a sum over labels, and how fast it moves: what publishing it needs.

With free ballots a label costs a function of its own sum alone, known before voting: the divergence to the
worst sum that one ballot can make of it. No envelope above the exact cost is needed, as for an arg max: the
sum over all queries and labels is the exact cost of a teacher who holds the dearer vote everywhere. One
changed ballot moves every sum by at most one vote, so the local sensitivity is a sum over labels too.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from .divergence import pair_divergences
from .label_votes import LabelVotes
from .mechanisms.labels import ConfidentGNThreshold
from .mechanisms.labels.law import LabelLaw
from .mechanisms.labels.perlabel import PerLabel, require_label_votes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def has_label_envelope(mechanism: object) -> bool:
    """Say whether the cost of this mechanism is a sum over labels that may be published.

    >>> from tellers import Binary, GNThreshold, Tau
    >>> has_label_envelope(Binary(5.0, 3)), has_label_envelope(Tau(5.0, 3, max_norm=1.0))
    (True, False)
    >>> has_label_envelope(GNThreshold(5.0, 3)), has_label_envelope(GNThreshold(5.0, 3, max_labels=1))
    (True, False)
    """
    return (
        isinstance(mechanism, PerLabel)
        and not isinstance(mechanism, ConfidentGNThreshold)
        and mechanism.rule.is_free
    )


def label_table(law: LabelLaw, limit: int, *, n_units: int, one: int = 1, order: float) -> Floats:
    """Return g, (2 directions, sums 0 .. n_units): the most that a label with this sum costs at one order.

    Guarantee: the divergence between this sum and the worst that one ballot of up to `one` units can make of
               it, whatever the own vote was; forward and reverse.
    Assumes:   a sum lies in 0 .. n_units. Of a label without a bar the furthest sums are the worst.
    Reference: "Many labels".

    >>> table = label_table(LabelLaw(5.0, np.array([26])), 26, n_units=50, order=8.0)
    >>> table.shape, bool(table[0, 26] > 30 * table[0, 0])
    ((2, 51), True)
    """
    sums = np.arange(n_units + 1)
    at = law.log_outcomes(sums, np.array(limit))
    table = np.zeros((2, sums.size))
    # With a bar the outcomes are three and nothing says that the furthest sum is the worst: try all.
    for step in range(1, one + 1) if law.bar is not None else (one,):
        for there in (np.maximum(sums - step, 0), np.minimum(sums + step, n_units)):
            table = np.maximum(table, pair_divergences(at, at[:, there], [order])[:, :, 0])
    return table


def label_cost_and_sensitivities(
    mechanism: PerLabel, votes: LabelVotes, order: float
) -> tuple[float, Floats]:
    """Return the cost of all labels and its local sensitivity at distance 0, 1, 2, ... ballots; private.

    Guarantee: f, the larger direction of the sum of g over queries and labels, is at least the exact cost of
               every teacher. Entry d of the sensitivities is at least the most that one more changed ballot
               moves f once d of them have changed; entries of neighbours interleave.
    Assumes:   free ballots; the order was fixed before voting.
    Reference: Nissim, Raskhodnikova, Smith 2007, Definition 3.1; "Many labels", section on publishing.

    >>> from tellers import Binary
    >>> votes = LabelVotes.from_sums([[48, 3], [26, 20]], n_teachers=50)
    >>> total, local = label_cost_and_sensitivities(Binary(sigma=10.0, n_labels=2), votes, 4.0)
    >>> total > 0, bool(np.all(np.diff(local) >= 0))
    (True, True)
    """
    require_label_votes(mechanism, votes)
    if not has_label_envelope(mechanism):
        raise TypeError(f"Expected a mechanism with free ballots, got {type(mechanism).__name__}.")
    n_units = votes.n_teachers * mechanism.rule.one
    limits, which = np.unique(mechanism.limits(votes.n_teachers), return_inverse=True)
    sums = mechanism.fitted_sums(votes)
    tally = np.zeros((limits.size, n_units + 1))
    np.add.at(tally, (np.broadcast_to(which.reshape(-1), sums.shape), sums), 1.0)
    total = np.zeros(2)
    local = np.zeros((2, 2, votes.n_teachers + 1))  # (direction of the divergence, rise or fall, distance)
    for limit, times in zip(limits.tolist(), tally, strict=True):
        costs = _costs(mechanism, votes.n_teachers, limit, float(order))
        total += costs @ times
        size = 2 * mechanism.rule.one + 1
        rise = maximum_filter1d(costs, size, axis=1, mode="nearest") - costs
        fall = costs + maximum_filter1d(-costs, size, axis=1, mode="nearest")
        change = np.stack([rise, fall], axis=1)
        for distance in range(votes.n_teachers + 1):
            local[:, :, distance] += change @ times
            # Every ballot moves every sum as it likes: after d of them a sum is anywhere within d votes.
            change = maximum_filter1d(change, size, axis=2, mode="nearest")
    return float(total.max()), np.maximum.accumulate(local.max(axis=(0, 1)))


@lru_cache(maxsize=256)
def _costs(mechanism: PerLabel, n_teachers: int, limit: int, order: float) -> Floats:
    one = mechanism.rule.one
    return label_table(mechanism.law(n_teachers), limit, n_units=n_teachers * one, one=one, order=order)
