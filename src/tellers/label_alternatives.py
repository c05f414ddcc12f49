"""The dearest other ballot under a rule: exact, for all ballots, directions and orders at once.

A ballot with l ones of values[l] units each is put in place of a teacher's own. A label that the own ballot
lacks then adds its gain, the divergence of its sum to a larger one; a label that it has adds what keeping it
changes, mostly less than nothing. The best l labels are r of the own ones and l - r others, for the best r.

What the best n of the others add is a minimum: of n t + sum of max(gain - t, 0) over t, where t need only be
one of the query's n + m largest gains, m the own ones. Summed over all labels this is shared by the ballots
of a query; what the own labels have in it is a sparse product. Nothing is sorted ballot by ballot.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .divergence import pair_divergences
from .mechanisms.labels.outcomes import LabelOutcomes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Floats of an array of ballots worked on at once: few enough to stay in a processor's cache.
_CELLS = 200_000


def dearest_alternatives(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Return each distinct ballot's divergence to the worst other ballot, (2 directions, ballots, orders).

    Guarantee: the largest divergence over all ballots that the rule allows, in each direction.
    Assumes:   noise is independent from label to label.
    Reference: "Many labels", the greedy argument.

    >>> from tellers import LabelVotes
    >>> from tellers.mechanisms.labels import Tau
    >>> votes = LabelVotes.from_ballots([[[1, 0, 0]], [[1, 1, 0]]], n_labels=3)
    >>> dearest_alternatives(Tau(2.0, 3, max_norm=1.0).outcomes(votes), np.array([2.0])).shape
    (2, 2, 1)
    """
    assert outcomes.ballots is not None
    k, values = outcomes.rule.n_labels, outcomes.rule.values
    moves, own = _Moves(outcomes, grid), _Own(outcomes)
    seen = _Labels.of(outcomes.sums, np.zeros_like(outcomes.sums), outcomes.law.kinds)
    packs = list(_packs(outcomes, seen.at, own, 2 * grid.size))
    without = moves.between(own.kind.sums, -own.kind.votes, own.kind.kinds)
    base = np.zeros((len(outcomes.ballots), 2 * grid.size))
    for pack in packs:
        for group in pack.groups:
            for labels in group.labels.T:
                base[group.rows] += without[labels]
    best = np.zeros_like(base)
    for ones in _promising(outcomes, seen, moves):
        # Where one label more counts as much each, it is better: fewer are chosen by those who lack no other.
        beyond = ones + 1 < len(values) and values[ones + 1] == values[ones]
        gain = moves.between(seen.sums, values[ones], seen.kinds)
        kept = _kept(own.kind, values[ones], moves, without, has_bar=outcomes.law.bar is not None)
        for pack in packs:
            groups = [group for group in pack.groups if not (beyond and ones < k - group.n_ones)]
            if groups:
                gains = _Gains(gain, pack.at)
                for group in groups:
                    _improve(best, ones, group, gains, kept, n_others=k - group.n_ones)
    base += best
    return np.stack([base[:, : grid.size], base[:, grid.size :]])


def _kept(own: "_Labels", value: int, moves: "_Moves", without: Floats, *, has_bar: bool) -> "_Kept":
    """Return what keeping an own label adds; where it counts no more than before that is nothing, or less."""
    may = np.ones(own.sums.size, dtype=np.bool_) if has_bar else own.votes < value
    change = -without
    change[may] += moves.between(own.sums[may], value - own.votes[may], own.kinds[:, may])
    return _Kept(change, may, (change > 0).any(axis=1))


def _promising(outcomes: LabelOutcomes, seen: "_Labels", moves: "_Moves") -> list[int]:
    """Return numbers of ones, those first that add most to some queries: others are then soon ruled out."""
    values, some = outcomes.rule.values, seen.at[:: max(1, len(seen.at) // 20)]
    adds = []
    for ones in range(1, len(values)):
        gain = moves.between(seen.sums, values[ones], seen.kinds)[some]
        adds.append(np.partition(gain, -ones, axis=1)[:, -ones:].sum(axis=(0, 1)))
    wins = np.bincount(np.argmax(adds, axis=0), minlength=len(adds))
    return [int(ones) for ones in np.argsort(-wins, kind="stable") + 1]


def _improve(
    best: Floats, ones: int, group: "_Group", gains: "_Gains", kept: "_Kept", *, n_others: int
) -> None:
    """Raise `best` to what a ballot with so many ones adds, where that is more."""
    least = max(0, ones - n_others)
    # A ballot that must keep own labels, which count no more, is worse than one with fewer ones.
    keeps = (kept.may if least else kept.helps)[group.labels].any(axis=1)
    if not least and not keeps.all():
        gains.raise_to_best(best, group, slice(None) if not keeps.any() else ~keeps, ones)
    if keeps.any():
        change = -np.sort(-kept.change[group.labels[keeps]], axis=1)
        if not least:
            gains.raise_to_best(best, group, keeps, ones)
        added = np.zeros_like(change[:, 0])
        for n_kept in range(1, min(ones, group.n_ones) + 1):
            more = change[:, n_kept - 1]
            if n_kept > least and not (more > 0).any():
                break  # another label adds more than nothing
            added = added + more
            if n_kept >= least:
                gains.raise_to_best(best, group, keeps, ones - n_kept, added)


@dataclass(frozen=True, eq=False)
class _Kept:
    """What keeping each distinct own label adds, whether it may be more than nothing, and whether it is.

    Where it may not, `change` is below the truth and never part of the best.
    """

    change: Floats
    may: NDArray[np.bool_]
    helps: NDArray[np.bool_]


class _Moves:
    """Divergences of labels whose sums move, (labels, 2 x orders): forward beside reverse."""

    def __init__(self, outcomes: LabelOutcomes, grid: Floats) -> None:
        self._law, self._grid = outcomes.law, grid

    def between(self, sums: Integers, units: Integers | int, kinds: Integers) -> Floats:
        """Return the divergences to sums that are larger by so many units."""
        here = self._law.log_outcomes(sums, kinds)
        there = self._law.log_outcomes(sums + units, kinds)
        return np.concatenate(list(pair_divergences(here, there, self._grid)), axis=1)


@dataclass(frozen=True, eq=False)
class _Labels:
    """Distinct labels as the accountant sees them: a kind of label, a sum and an own vote in units."""

    kinds: Integers
    sums: Integers
    votes: Integers
    at: Integers

    @classmethod
    def of(cls, sums: Integers, votes: Integers, kinds: Integers) -> "_Labels":
        distinct, which = np.unique(kinds, axis=1, return_inverse=True)
        most, one = int(sums.max(initial=0)) + 1, int(votes.max(initial=0)) + 1
        code = (which.reshape(-1) * most + sums) * one + votes
        seen, at = np.unique(code, return_inverse=True)
        rest, vote = np.divmod(seen, one)
        which, total = np.divmod(rest, most)
        return cls(distinct[:, which], total, vote, at.reshape(code.shape))


@dataclass(frozen=True, eq=False)
class _Group:
    """Ballots with the same number of ones on some queries: their rows, their queries, their own labels."""

    n_ones: int
    rows: Integers
    query: Integers
    labels: Integers  # which of the distinct own labels, (ballots, ones)
    place: Integers  # where among the labels of the pack, (ballots, ones)

    def own(self, rows: NDArray[np.bool_] | slice, n_places: int) -> csr_array:
        place = self.place[rows]
        pointers = np.arange(len(place) + 1) * self.n_ones
        return csr_array((np.ones(place.size), place.ravel(), pointers), shape=(len(place), n_places))


@dataclass(frozen=True, eq=False)
class _Pack:
    """Some queries, as places of their labels among the distinct ones, and the ballots cast on them."""

    at: Integers
    groups: list[_Group]


def _packs(outcomes: LabelOutcomes, at: Integers, own: "_Own", width: int) -> Iterator[_Pack]:
    """Yield queries with as many ballots as may be worked on at once."""
    query = outcomes.query
    assert query is not None
    n_queries, k = at.shape
    by_query = np.argsort(query, kind="stable")
    ends = np.cumsum(np.bincount(query, minlength=n_queries))
    start = row = 0
    while start < n_queries:
        stop = max(start + 1, int(np.searchsorted(ends, row + _CELLS // width, side="right")))
        last = int(ends[stop - 1])
        rows = by_query[row:last]
        groups = []
        for n_ones in np.unique(own.n_ones[rows]).tolist():
            mine = rows[own.n_ones[rows] == n_ones]
            entries = own.first[mine][:, None] + np.arange(n_ones)
            local = query[mine] - start
            groups.append(
                _Group(n_ones, mine, local, own.kind.at[entries], local[:, None] * k + own.column[entries])
            )
        yield _Pack(at[start:stop], groups)
        start, row = stop, last


class _Own:
    """The labels that ballots have: ballot by ballot, one entry each."""

    def __init__(self, outcomes: LabelOutcomes) -> None:
        assert outcomes.ballots is not None
        assert outcomes.query is not None
        row, self.column = np.nonzero(outcomes.ballots)
        self.n_ones = np.bincount(row, minlength=len(outcomes.ballots))
        self.first = np.cumsum(self.n_ones) - self.n_ones
        sums = outcomes.sums[outcomes.query[row], self.column]
        kinds = outcomes.law.kinds[:, self.column]
        self.kind = _Labels.of(sums, outcomes.ballots[row, self.column], kinds)


class _Gains:
    """What labels that a ballot lacks add, query by query, and the parts that all its ballots share."""

    def __init__(self, table: Floats, at: Integers) -> None:
        self._gain = table[at]  # (queries, labels, columns)
        self._down = -np.sort(-self._gain, axis=1)
        self._total = self._down.copy()
        for label in range(1, at.shape[1]):
            self._total[:, label] += self._total[:, label - 1]
        self._over: dict[int, Floats] = {}

    def raise_to_best(
        self,
        best: Floats,
        group: _Group,
        rows: NDArray[np.bool_] | slice,
        n: int,
        added: Floats | float = 0.0,
    ) -> None:
        """Raise `best` to the n largest gains of labels that the ballots lack, and what is added to them."""
        place, query = group.rows[rows], group.query[rows]
        floor = best[place]
        if n == 0:
            best[place] = np.maximum(floor, added)
            return
        own = group.own(rows, self._gain.shape[0] * self._gain.shape[1])
        # Every t bounds what can be added: one in the middle often says that it is too little.
        first = n + (group.n_ones + 1) // 2
        found = self._bound(own, query, first, n)
        found += added
        if not (found > floor).any():
            return
        for rank in range(n, n + group.n_ones + 1):
            if rank != first:
                value = self._bound(own, query, rank, n)
                value += added
                np.minimum(found, value, out=found)
        best[place] = np.maximum(found, floor, out=found)

    def _bound(self, own: csr_array, query: Integers, rank: int, n: int) -> Floats:
        """Return n t + the sum of max(gain - t, 0) over all but the own labels, t the gain of that rank."""
        t = self._down[:, rank - 1]
        if rank not in self._over:
            over = self._gain - t[:, None]
            self._over[rank] = np.maximum(over, 0.0, out=over).reshape(-1, over.shape[2])
        value = (self._total[:, rank - 1] - (rank - n) * t)[query]
        if own.nnz:
            value -= own @ self._over[rank]
        return np.asarray(value)
