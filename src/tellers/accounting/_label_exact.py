"""Exact costs of label votes: over all labels, all other ballots and all orders."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
# Gains are sorted once per query, not ballot by ballot. An own label at place p of that order, with j own
# ones before it, has p - j others before it; so the places of the own ones say where the n-th other stands.


Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Between = Callable[[Integers, Integers | int, Integers], Floats]

# Floats of an array of ballots worked on at once: few enough to stay in a processor's cache.
_CELLS = 1_000_000
# Choices that later ones are held against. They are kept, each as large as the table of own labels.
_RIVALS = 3
# Share of the columns from which on all are tried: taking some of them out costs more.
_MOST = 0.8


def dearest_alternatives(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Return each distinct ballot's divergence to the worst other ballot, (2 directions, ballots, orders).

    Guarantee: the largest divergence over all ballots that the rule allows, in each direction. A number of
               ones is passed over only where another adds as much: one more that counts the same, or fewer
               ones by `_Choice.may_beat`. These are tried, or passed over in turn, and the chain ends: one
               more that counts the same is not passed over for the fewer, unless neither adds anything.
    Assumes:   noise is independent from label to label.
    Reference: "Many labels", the greedy argument.
    """
    assert outcomes.ballots is not None
    k, values = outcomes.rule.n_labels, outcomes.rule.values
    between: Between = partial(_between, outcomes.law, grid)
    own = _Own(outcomes)
    seen = _Labels.of(outcomes.sums, np.zeros_like(outcomes.sums), outcomes.law.kinds)
    without = between(own.kind.sums, -own.kind.votes, own.kind.kinds)
    packs = list(_packs(outcomes, seen.at, own, 2 * grid.size))
    best = np.zeros((len(outcomes.ballots), 2 * grid.size))
    lacks = k - own.n_ones
    rivals: list[_Choice] = []
    for ones in range(1, len(values)):
        # Where one label more counts as much each, it is better: fewer are chosen by those who lack no other.
        beyond = ones + 1 < len(values) and values[ones + 1] == values[ones]
        # Who must keep own labels, which count no more, is worse off than with fewer ones.
        tried = np.where(ones <= lacks, (not beyond) | (ones == lacks), own.may_count_more(values[ones]))
        if values[ones] == 0 or not tried.any():
            continue
        choice = _Choice.of(ones, outcomes, seen=seen, own=own, without=without, between=between)
        # Who lacks fewer labels than a rival has ones is not covered by it.
        enough = max((rival.ones for rival in rivals), default=0)
        live = choice.live(rivals)
        for columns, rows in (
            (live, tried & (lacks >= enough)),
            (np.ones_like(live), tried & (lacks < enough)),
        ):
            if columns.any() and rows.any():
                part = choice.at(columns)
                for at, groups in packs:
                    some = [group.some(rows[group.rows]) for group in groups]
                    if any(group.rows.size for group in some):
                        order = _Order(part.gain, at)
                        for group in some:
                            _improve(best, part, group, order, columns)
        if len(rivals) < _RIVALS and ones >= 4 * enough and live.any():
            rivals.append(choice)
    best += own.of_ballots @ without
    return np.stack([best[:, : grid.size], best[:, grid.size :]])


def _between(law: LabelLaw, grid: Floats, sums: Integers, units: Integers | int, kinds: Integers) -> Floats:
    """Return divergences to sums that are larger by so many units, (labels, 2 x orders): forward, reverse."""
    here, there = law.log_outcomes(sums, kinds), law.log_outcomes(sums + units, kinds)
    return np.concatenate(list(pair_divergences(here, there, grid)), axis=1)


@dataclass(frozen=True, eq=False)
class _Choice:
    """What a ballot with so many ones adds: for each distinct label that is lacked, and for each own one.

    Tables are (labels, columns); the last row of those of own labels stands for no label.
    """

    ones: int
    gain: Floats
    change: Floats
    helps: Mask  # keeping which own labels adds something, (labels,)

    @classmethod
    def of(
        cls,
        ones: int,
        outcomes: LabelOutcomes,
        *,
        seen: "_Labels",
        own: "_Own",
        without: Floats,
        between: Between,
    ) -> "_Choice":
        value = outcomes.rule.values[ones]
        kind = own.kind
        # What keeping an own label adds: where it counts no more than before that is nothing, or less.
        may = np.flatnonzero((kind.votes < value) | own.has_bar)
        change = np.full((kind.votes.size + 1, without.shape[1]), -np.inf)
        np.negative(without, out=change[:-1])
        change[may] += between(kind.sums[may], value - kind.votes[may], kind.kinds[:, may])
        return cls(ones, between(seen.sums, value, seen.kinds), change, (change > 0).any(axis=1))

    def at(self, columns: Mask) -> "_Choice":
        """Return the choice at some columns."""
        if columns.all():
            return self
        return replace(self, gain=self.gain[:, columns], change=self.change[:, columns])

    def live(self, rivals: list["_Choice"]) -> Mask:
        """Return the columns that must be tried; all of them where a few less would save nothing."""
        found = np.ones(self.gain.shape[1], dtype=np.bool_)
        for rival in rivals:
            found &= self.may_beat(rival)
        return found if found.mean() < _MOST else np.ones_like(found)

    def may_beat(self, rival: "_Choice") -> Mask:
        """Return the columns where this choice may add more than one with fewer ones.

        Guarantee: elsewhere it adds no more to any ballot that lacks at least `rival.ones` labels.
        Assumes:   a label that is lacked adds nothing or more, which holds of a divergence.
        Reference: let label i add u_i with these l ones and v_i with the rival's m < l, and let
                   l max(u_i, 0) <= m max(v_i, 0) for every label. Any l of the u_i add at most m / l times
                   the sum of l of the max(v_i, 0). The m largest of these are on average no smaller than all
                   l, so that is at most the sum of the m largest max(v_i, 0); and this is what the best m of
                   the v_i add, since at least m labels are lacked and have v_i >= 0.
        """
        times = self.ones / rival.ones
        found = (self.gain * times > rival.gain).any(axis=0)
        mine = self.helps
        found |= (self.change[mine] * times > np.maximum(rival.change[mine], 0.0)).any(axis=0)
        return np.asarray(found)


def _improve(best: Floats, choice: _Choice, group: "_Group", order: "_Order", columns: Mask) -> None:
    """Raise `best` to what a ballot of this choice adds, where that is more."""
    keeps = choice.helps[group.labels].any(axis=1) | (choice.ones > order.n_labels - group.n_ones)
    for rows, with_own in ((keeps, True), (~keeps, False)):
        if rows.any():
            mine = group.some(rows)
            found = (
                order.with_own(mine, choice.change, choice.ones)
                if with_own
                else order.of_others(mine, choice.ones)
            )
            if columns.all():
                best[mine.rows] = np.maximum(best[mine.rows], found)
            else:
                place = np.ix_(mine.rows, np.flatnonzero(columns))
                best[place] = np.maximum(best[place], found)


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
    """Ballots with about as many ones on some queries: their rows, their queries, their own labels.

    Rows of own labels are as long as those of the ballot with most, and end with -1 for no label.
    """

    rows: Integers
    query: Integers
    n_ones: Integers
    labels: Integers  # which of the distinct own labels, (ballots, ones)
    place: Integers  # where among the labels of the pack, (ballots, ones)

    def some(self, which: Mask) -> "_Group":
        """Return some of the ballots."""
        if which.all():
            return self
        return _Group(
            self.rows[which], self.query[which], self.n_ones[which], self.labels[which], self.place[which]
        )


def _packs(
    outcomes: LabelOutcomes, at: Integers, own: "_Own", width: int
) -> Iterator[tuple[Integers, list[_Group]]]:
    """Yield queries with as many ballots as may be worked on at once: labels among the distinct, ballots."""
    query = outcomes.query
    assert query is not None
    n_queries, k = at.shape
    by_query = np.argsort(query, kind="stable")
    ends = np.cumsum(np.bincount(query, minlength=n_queries))
    labels_until = np.append(0, np.cumsum(own.n_ones[by_query] + 1))[ends] + k * np.arange(1, n_queries + 1)
    # Ballots share a group with those that have up to an eighth more ones: few groups, little to fill up.
    step = np.maximum(1, 1 << np.maximum(np.frexp(own.n_ones)[1] - 4, 0))
    length = -(-own.n_ones // step) * step
    start = row = 0
    while start < n_queries:
        room = _CELLS // width + (int(labels_until[start - 1]) if start else 0)
        stop = max(start + 1, int(np.searchsorted(labels_until, room, side="right")))
        last = int(ends[stop - 1])
        rows = by_query[row:last]
        groups = []
        for longest in np.unique(length[rows]).tolist():
            mine = rows[length[rows] == longest]
            ranks = np.arange(longest)
            filled = ranks < own.n_ones[mine][:, None]
            entries = np.where(filled, own.first[mine][:, None] + ranks, 0)
            local = query[mine] - start
            labels = np.where(filled, own.kind.at[entries], -1) if longest else entries
            place = np.where(filled, local[:, None] * k + own.column[entries], -1) if longest else entries
            groups.append(_Group(mine, local, own.n_ones[mine], labels, place))
        yield at[start:stop], groups
        start, row = stop, last


class _Own:
    """The labels that ballots have: ballot by ballot, one entry each."""

    def __init__(self, outcomes: LabelOutcomes) -> None:
        assert outcomes.ballots is not None
        assert outcomes.query is not None
        row, self.column = np.nonzero(outcomes.ballots)
        self.n_ones = np.bincount(row, minlength=len(outcomes.ballots))
        self.has_bar = outcomes.law.bar is not None
        ends = np.cumsum(self.n_ones)
        self.first = ends - self.n_ones
        sums = outcomes.sums[outcomes.query[row], self.column]
        kinds = outcomes.law.kinds[:, self.column]
        self.kind = _Labels.of(sums, outcomes.ballots[row, self.column], kinds)
        self.of_ballots = csr_array(
            (np.ones(row.size), self.kind.at, np.append(0, ends)),
            shape=(len(outcomes.ballots), self.kind.sums.size),
        )
        self._smallest = np.where(outcomes.ballots > 0, outcomes.ballots, outcomes.rule.one).min(axis=1)

    def may_count_more(self, value: int) -> Mask:
        """Return the ballots with a label that may cost more where it counts so many units."""
        return np.asarray((self._smallest < value) | self.has_bar)


class _Order:
    """The labels of some queries by their gain, in each column."""

    def __init__(self, table: Floats, at: Integers) -> None:
        n_queries, self.n_labels = at.shape
        gain = table[at]  # (queries, labels, columns)
        order = np.argsort(-gain.transpose(0, 2, 1), axis=2)
        # Small numbers make rows of places short. No label, the last row, stands far behind all others: there
        # are up to an eighth more places in a row than labels, and none may count as one before an other.
        small: Any = np.int16 if 4 * self.n_labels < 1 << 15 else np.int32
        places = np.empty(order.shape, dtype=small)
        numbers = np.broadcast_to(np.arange(self.n_labels, dtype=small), order.shape)
        np.put_along_axis(places, order, numbers, axis=2)
        self._n_columns = gain.shape[2]
        self._place = np.full((at.size + 1, self._n_columns), 3 * self.n_labels, dtype=small)
        self._place[:-1] = places.transpose(0, 2, 1).reshape(-1, self._n_columns)
        self._gain = np.zeros((at.size + 1, self._n_columns))
        self._gain[:-1] = gain.reshape(-1, self._n_columns)
        self._down = np.take_along_axis(gain, order.transpose(0, 2, 1), axis=1)
        self._total = np.zeros((n_queries, self.n_labels + 1, self._n_columns))
        for label in range(self.n_labels):
            np.add(self._total[:, label], self._down[:, label], out=self._total[:, label + 1])

    def of_others(self, group: _Group, n: int) -> Floats:
        """Return the sum of the n largest gains of labels that ballots lack, (ballots, columns).

        They are among the first n + c labels where exactly c of these are own ones: c is found by halving.
        """
        place: NDArray[np.signedinteger[Any]] = self._place[group.place.T]
        n_own = len(place)
        low: NDArray[np.signedinteger[Any]] = np.zeros(place.shape[1:], dtype=place.dtype)
        high: NDArray[np.signedinteger[Any]] = np.full_like(low, n_own)
        for _ in range(n_own.bit_length()):
            middle = (low + high) >> 1
            enough = _count(place < middle + n) <= middle
            np.copyto(high, middle, where=enough)
            np.copyto(low, middle + 1, where=~enough & (low < high))
        own = self._gain[group.place.T]
        own *= place < low + n
        at = (group.query[:, None] * (self.n_labels + 1) + n + low) * self._n_columns
        total = np.take(self._total, at + np.arange(self._n_columns))
        for gain in own:
            total -= gain
        return np.asarray(total)

    def with_own(self, group: _Group, change: Floats, n: int) -> Floats:
        """Return the sum of the n largest of what lacked and own labels add, (ballots, columns).

        Of two falling lists a and b the n largest are the larger ones of a_i and b_(n + 1 - i), i = 1 .. n.
        """
        place = np.sort(self._place[group.place.T].transpose(1, 2, 0), axis=2)
        before = place - np.arange(place.shape[2], dtype=place.dtype)
        n_ballots, n_columns, n_own = before.shape
        cell = np.arange(n_ballots * n_columns).reshape(n_ballots, n_columns, 1) * (n + 1)
        counts = np.bincount((cell + np.minimum(before, n)).ravel(), minlength=cell.size * (n + 1))
        n_before = np.cumsum(counts.reshape(n_ballots, n_columns, n + 1), axis=2)[:, :, :n]
        ranks = np.arange(n)
        at = np.minimum(ranks + n_before, self.n_labels - 1)
        at += group.query[:, None, None] * self.n_labels
        at *= n_columns
        at += np.arange(n_columns)[:, None]
        others = np.take(self._down, at)
        lacks = self.n_labels - group.n_ones
        if (lacks < n).any():
            others[np.broadcast_to(ranks >= lacks[:, None, None], others.shape)] = -np.inf
        kept = min(n, n_own)
        own = np.sort(change[group.labels].transpose(0, 2, 1), axis=2)
        tail = others[:, :, n - kept :][:, :, ::-1]
        np.maximum(tail, own[:, :, ::-1][:, :, :kept], out=tail)
        return np.asarray(others.sum(axis=2))


def _count(which: Mask) -> NDArray[np.signedinteger[Any]]:
    """Return how many are true along the first axis; bytes are added fastest."""
    dtype = np.int8 if len(which) < 1 << 7 else np.int32
    return np.asarray(np.add.reduce(which.view(np.int8), axis=0, dtype=dtype))


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
