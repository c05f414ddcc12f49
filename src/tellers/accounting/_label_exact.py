"""Exact costs of label votes: over all labels, all other ballots and all orders."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..mechanisms.divergence import divergences, pair_divergences
from ..mechanisms.labels._outcomes import LabelLaw, LabelOutcomes
from ..mechanisms.labels.adaptive import ChosenOutcomes
from ..mechanisms.labels.powerset import PowersetOutcomes
from ..privacy.rdp import Floats
from ..privacy.votes import Votes

# --- The dearest other ballot under a rule: exact, for all ballots, directions and orders at once. ---
#
# A ballot with l ones of values[l] units each is put in place of a teacher's own. A label that the own
# ballot lacks then adds its gain, the divergence of its sum to a larger one; a label that it has adds what
# keeping it changes, mostly less than nothing. The best l labels are r of the own ones and l - r others,
# for the best r.
#
# What the best n of the others add is a minimum: of n t + sum of max(gain - t, 0) over t, where t need only
# be one of the query's n + m largest gains, m the own ones. Summed over all labels this is shared by the
# ballots of a query; what the own labels have in it is a sparse product. Nothing is sorted ballot by
# ballot.


Integers = NDArray[np.int64]
Between = Callable[[Integers, Integers | int, Integers], Floats]

# Floats of an array of ballots worked on at once: few enough to stay in a processor's cache.
_CELLS = 200_000


def dearest_alternatives(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Return each distinct ballot's divergence to the worst other ballot, (2 directions, ballots, orders).

    Guarantee: the largest divergence over all ballots that the rule allows, in each direction.
    Assumes:   noise is independent from label to label.
    Reference: "Many labels", the greedy argument.
    """
    assert outcomes.ballots is not None
    k, values, has_bar = outcomes.rule.n_labels, outcomes.rule.values, outcomes.law.bar is not None
    between: Between = partial(_between, outcomes.law, grid)
    own = _Own(outcomes)
    seen = _Labels.of(outcomes.sums, np.zeros_like(outcomes.sums), outcomes.law.kinds)
    packs = list(_packs(outcomes, seen.at, own, 2 * grid.size))
    without = between(own.kind.sums, -own.kind.votes, own.kind.kinds)
    base = np.zeros((len(outcomes.ballots), 2 * grid.size))
    for _, groups in packs:
        for group in groups:
            for labels in group.labels.T:
                base[group.rows] += without[labels]
    best = np.zeros_like(base)
    for ones in _promising(outcomes, seen, between):
        # Where one label more counts as much each, it is better: fewer are chosen by those who lack no other.
        beyond = ones + 1 < len(values) and values[ones + 1] == values[ones]
        gain = between(seen.sums, values[ones], seen.kinds)
        # What keeping an own label adds: where it counts no more than before that is nothing, or less.
        may = np.ones(own.kind.sums.size, dtype=np.bool_) if has_bar else own.kind.votes < values[ones]
        change = -without
        change[may] += between(own.kind.sums[may], values[ones] - own.kind.votes[may], own.kind.kinds[:, may])
        helps = (change > 0).any(axis=1)
        for at, groups in packs:
            some = [group for group in groups if not (beyond and ones < k - group.n_ones)]
            if some:
                gains = _Gains(gain, at)
                for group in some:
                    least = max(0, ones - (k - group.n_ones))
                    # Who must keep own labels, which count no more, is worse off than with fewer ones.
                    keeps = (may if least else helps)[group.labels].any(axis=1)
                    _improve(best, ones, group, gains, change, keeps=keeps, least=least)
    base += best
    return np.stack([base[:, : grid.size], base[:, grid.size :]])


def _between(law: LabelLaw, grid: Floats, sums: Integers, units: Integers | int, kinds: Integers) -> Floats:
    """Return divergences to sums that are larger by so many units, (labels, 2 x orders): forward, reverse."""
    here, there = law.log_outcomes(sums, kinds), law.log_outcomes(sums + units, kinds)
    return np.concatenate(list(pair_divergences(here, there, grid)), axis=1)


def _promising(outcomes: LabelOutcomes, seen: "_Labels", between: Between) -> list[int]:
    """Return numbers of ones, those first that add most to some queries: others are then soon ruled out."""
    values, some = outcomes.rule.values, seen.at[:: max(1, len(seen.at) // 20)]
    adds = []
    for ones in range(1, len(values)):
        gain = between(seen.sums, values[ones], seen.kinds)[some]
        adds.append(np.partition(gain, -ones, axis=1)[:, -ones:].sum(axis=(0, 1)))
    wins = np.bincount(np.argmax(adds, axis=0), minlength=len(adds))
    return [int(ones) for ones in np.argsort(-wins, kind="stable") + 1]


def _improve(
    best: Floats,
    ones: int,
    group: "_Group",
    gains: "_Gains",
    change: Floats,
    *,
    keeps: NDArray[np.bool_],
    least: int,
) -> None:
    """Raise `best` to what a ballot with so many ones adds, where that is more.

    `change` is what keeping each distinct own label adds; who `keeps` is tried with own labels, with
    at least so many.
    """
    if not least and not keeps.all():
        gains.raise_to_best(best, group, slice(None) if not keeps.any() else ~keeps, ones)
    if keeps.any():
        ordered = -np.sort(-change[group.labels[keeps]], axis=1)
        if not least:
            gains.raise_to_best(best, group, keeps, ones)
        added = np.zeros_like(ordered[:, 0])
        for n_kept in range(1, min(ones, group.n_ones) + 1):
            more = ordered[:, n_kept - 1]
            if n_kept > least and not (more > 0).any():
                break  # another label adds more than nothing
            added = added + more
            if n_kept >= least:
                gains.raise_to_best(best, group, keeps, ones - n_kept, added)


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
        n_codes = distinct.shape[1] * most * one
        if n_codes > 1 << 24:
            seen, at = np.unique(code, return_inverse=True)
        else:  # few codes need no sorting
            present = np.zeros(n_codes, dtype=np.bool_)
            present[code.ravel()] = True
            seen, at = np.flatnonzero(present), (np.cumsum(present) - 1)[code]
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


def _packs(
    outcomes: LabelOutcomes, at: Integers, own: "_Own", width: int
) -> Iterator[tuple[Integers, list[_Group]]]:
    """Yield queries with as many ballots as may be worked on at once: labels among the distinct, ballots."""
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
        yield at[start:stop], groups
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


# --- What label votes cost the unit behind each ballot: exact, over all labels and all other ballots. ---
#
# Different labels have noise of their own, so their divergences add. With d_i(x) the divergence of label i
# when a teacher's own vote there becomes x, the cost of its ballot is the largest sum of d_i(v_i) over the
# ballots v that the rule allows: of free ballots label by label, otherwise by `label_alternatives`.


# Ballots per pass: enough to share computations between queries, few enough to keep memory flat.
_BALLOTS = 60_000
ANOTHER_TEACHER = "each query may have another worst teacher"
"""Why the cost of counts is an upper bound."""
# Exponents of Hölder's inequality that are tried.
_HOLDER = (1.1, 1.25, 1.5, 2.0, 4.0)


def bound_because(mechanism: object, votes: Votes | None = None) -> str:
    """Return why an exact cost is an upper bound; empty where it is the divergence itself."""
    declared = str(getattr(mechanism, "exact_is_bound", ""))
    if declared or votes is None:
        return declared
    if votes.voters is not None:
        return "teachers who do not know a label count as if they might"
    return "" if votes.ballots is not None else ANOTHER_TEACHER


class Block(NamedTuple):
    """What queries from `first` on cost, (2, rows, orders), one row per distinct ballot.

    `of_teacher` (teachers, queries) says which row a teacher's ballot is; None where only sums are known, and
    then there is one row per query: its worst ballot. Where rows come as tallies of equally many, and queries
    have one tally each, `common` may name a row of every tally: any will do, that of the commonest ballot is
    the fastest.
    """

    first: int
    costs: Floats
    of_teacher: NDArray[np.signedinteger[Any]] | None
    common: Integers | None = None

    @property
    def n_queries(self) -> int:
        """Return how many queries these are."""
        return self.costs.shape[1] if self.of_teacher is None else self.of_teacher.shape[1]

    def each(self) -> Iterator[Floats]:
        """Yield what each query costs each teacher, (2, teachers, orders), or the worst ballot alone."""
        for i in range(self.n_queries):
            yield self.costs[:, [i] if self.of_teacher is None else self.of_teacher[:, i]]

    @property
    def total(self) -> Floats:
        """Return the sum over the queries for every teacher, or of the worst ballots."""
        if self.of_teacher is None:
            return np.asarray(self.costs.sum(axis=1)[:, None, :])
        shared = None if self.common is None else self.costs[:, self.common]
        if self.common is None or shared is None or not np.isfinite(shared).all():
            # Infinity cannot be taken away again.
            return np.stack([sums_of_rows(direction, self.of_teacher) for direction in self.costs])
        # What the commonest ballot costs is added once for all teachers, and the product is left with those
        # who cast another: under consensus few.
        n_rows = self.costs.shape[1] // self.common.size
        tally = self.of_teacher[0] // n_rows
        apart = self.costs - np.repeat(shared, n_rows, axis=1)
        sums = [sums_of_rows(direction, self.of_teacher, but=self.common[tally]) for direction in apart]
        times = np.bincount(tally, minlength=self.common.size)
        return np.asarray(np.stack(sums) + (times[:, None] * shared).sum(axis=1)[:, None, :])


def sums_of_rows(table: Floats, which: NDArray[np.signedinteger[Any]], but: Integers | None = None) -> Floats:
    """Return for each row of `which` the sum of the rows of a table that it names: a sparse product.

    With `but`, one row for each column of `which`, these are left out.
    """
    taken = np.ones(which.shape, dtype=np.bool_) if but is None else which != but
    pointers = np.append(0, np.cumsum(np.count_nonzero(taken, axis=1)))
    named = csr_array((np.ones(pointers[-1]), which[taken], pointers), shape=(len(which), len(table)))
    return np.asarray(named @ table)


def label_blocks(mechanism: object, votes: Votes, grid: Floats) -> Iterator[Block]:
    """Yield the costs of votes on labels, some queries at a time."""
    # A mechanism that chooses between shares has costs at each of them.
    block = max(1, _BALLOTS // (votes.n_teachers * max(1, len(getattr(mechanism, "shares", ())))))
    for start in range(0, len(votes), block):
        outcomes = mechanism.outcomes(votes[start : start + block])  # type: ignore[attr-defined]
        if isinstance(outcomes, PowersetOutcomes):
            yield Block(start, _powerset(outcomes, grid), outcomes.of_teacher)
        elif isinstance(outcomes, ChosenOutcomes):
            yield Block(start, _chosen(outcomes, grid), outcomes.base.of_teacher)
        elif outcomes.ballots is None:
            yield Block(start, _worst(outcomes, grid), None)
        else:
            yield Block(start, ballot_costs(outcomes, grid), outcomes.of_teacher)


def ballot_costs(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Return what each distinct ballot's release costs, (2 directions, ballots, orders); private.

    Guarantee: without a gate the divergence itself, of all labels together, to the worst other ballot. With a
               gate an upper bound: the gate and the labels may each have another worst ballot. Never above
               the price of the gate plus the labels.
    Assumes:   noise is independent from label to label.
    Reference: "Many labels", the greedy argument.
    """
    costs = _free(outcomes, grid) if outcomes.rule.is_free else dearest_alternatives(outcomes, grid)
    return costs if outcomes.gate is None else _gated(outcomes, costs, grid)


def _free(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Every label's alternative is chosen by itself: a plain no or a plain yes, whichever is worse.

    With a bar and votes in parts the worst may lie in between, where fewest are sure: all parts are tried.
    """
    assert outcomes.ballots is not None
    assert outcomes.query is not None
    law, one = outcomes.law, outcomes.rule.one
    # Divergence grows with distance.
    cells = _Labels.of(outcomes.sums[outcomes.query], outcomes.ballots, law.kinds)
    if law.bar is not None and outcomes.rule.has_parts:
        worst = _any_part(law, cells, one, grid)
    else:
        here = law.log_outcomes(cells.sums, cells.kinds)
        worst = np.zeros((2, cells.sums.size, grid.size))
        for other in (0, one):
            there = law.log_outcomes(cells.sums - cells.votes + other, cells.kinds)
            worst = np.maximum(worst, pair_divergences(here, there, grid))
    return np.stack([sums_of_rows(direction, cells.at) for direction in worst])


def _any_part(law: LabelLaw, cells: "_Labels", one: int, grid: Floats) -> Floats:
    """Return the worst divergence of each cell over all votes 0 .. `one`, step by step away from its own."""
    places, cell = np.unique(np.stack([cells.sums, *cells.kinds]), axis=1, return_inverse=True)
    sums, kinds = places[0], places[1:]
    cell = cell.reshape(-1)
    here = law.log_outcomes(sums, kinds)
    worst = np.zeros((2, cells.sums.size, grid.size))
    for sign, reach in ((-1, cells.votes), (1, one - cells.votes)):
        # The worst so far, of all sums within this many steps on this side.
        running = np.zeros((2, sums.size, grid.size))
        for step in range(1, int(reach.max(initial=0)) + 1):
            there = law.log_outcomes(sums + sign * step, kinds)
            running = np.maximum(running, pair_divergences(here, there, grid))
            ends = np.flatnonzero(reach == step)
            worst[:, ends] = np.maximum(worst[:, ends], running[:, cell[ends]])
    return worst


def _gated(outcomes: LabelOutcomes, labels: Floats, grid: Floats) -> Floats:
    """The gate and the labels behind it: silence, or everything that was told.

    With p the chance that the gate opens, and p' after a ballot changed, the divergence D of the whole has
    exp((a - 1) D) = f^a f'^(1-a) + p^a p'^(1-a) exp((a - 1) L), L that of the labels. It is convex in p', and
    p' grows with every vote: its largest value is at a ballot of all yes or of none. Where ballots are capped
    no ballot is all yes; the gate's price, which knows of the cap, plus L bounds the whole as well.
    """
    gate = outcomes.gate
    assert gate is not None
    assert outcomes.ballots is not None
    assert outcomes.query is not None
    sums = outcomes.sums[outcomes.query]
    opened, shut = gate.log_pass_and_fail(sums)
    worst = np.zeros_like(labels)
    step = grid - 1
    for other in (0, outcomes.rule.one):
        opened_there, shut_there = gate.log_pass_and_fail(sums - outcomes.ballots + other)
        for way, ((p, f), (p2, f2)) in enumerate(
            (((opened, shut), (opened_there, shut_there)), ((opened_there, shut_there), (opened, shut)))
        ):
            silent = f[:, None] + step * (f - f2)[:, None]
            told = p[:, None] + step * ((p - p2)[:, None] + labels[way])
            worst[way] = np.maximum(worst[way], np.logaddexp(silent, told) / step)
    return np.asarray(np.clip(worst, 0.0, gate.price(outcomes.rule, grid).values + labels))


def _worst(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Without ballots: every label's worse vote, where there is one of that kind."""
    one, total = outcomes.rule.one, outcomes.sums
    kind = np.tile(outcomes.law.kinds, len(total))
    flat = total.ravel()
    here = outcomes.law.log_outcomes(flat, kind)
    costs = np.zeros((2, flat.size, grid.size))
    # At a bar the furthest sum need not be the worst.
    between = outcomes.law.bar is not None and outcomes.rule.has_parts
    for step in range(1, one + 1) if between else (one,):
        for move in (-step, step):
            # Somebody who voted no can only add, somebody who voted yes only take away: both are assumed.
            there = outcomes.law.log_outcomes(np.maximum(flat + move, 0), kind)
            costs = np.maximum(costs, pair_divergences(here, there, grid))
    return np.asarray(costs.reshape(2, *total.shape, grid.size).sum(axis=2))


def _chosen(outcomes: ChosenOutcomes, grid: Floats) -> Floats:
    """The choice and the labels together: an upper bound, by Hölder's inequality.

    With P_t the chance that share t is chosen, L_t the cost of the labels there and 1/p + 1/q = 1,

        forward D <= ((a - 1) p + 1) r + log sum_t P_t exp((a - 1) q L_t) / ((a - 1) q)

    at order a, where a r bounds the choice; reverse the first term is (a p - 1) a r / (a - 1). At p = 1 it is
    the price of the choice and the dearest share; the smallest over some p counts.
    """
    cost = _worst if outcomes.base.ballots is None else ballot_costs
    labels = np.stack([cost(outcomes.at(place), grid) for place in range(len(outcomes.laws))])
    rate, step = 1 / (2 * outcomes.scale**2), grid - 1
    best = labels.max(axis=0) + grid * rate
    chances = outcomes.log_choice
    if outcomes.base.query is not None:
        chances = chances[outcomes.base.query]
    weights = chances.T[:, None, :, None]
    for p in _HOLDER:
        q = p / (p - 1)
        mixed = np.logaddexp.reduce(weights + (step * q) * labels, axis=0) / (step * q)
        mixed[0] += (step * p + 1) * rate
        mixed[1] += (grid * p - 1) * grid / step * rate
        best = np.minimum(best, mixed)
    return np.asarray(best)


def _powerset(outcomes: PowersetOutcomes, grid: Floats) -> Floats:
    result = np.zeros((2, outcomes.n_ballots, grid.size))
    for part in outcomes.parts:
        by_group = divergences(part.outcomes, orders=grid)
        result[:, part.ballot] += by_group[:, part.query, part.outcomes.of_class[part.query, part.column]]
    return result
