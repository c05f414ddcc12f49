"""Evidence from releases: draws, events that tell two inputs apart, bounds, a learned distinguisher."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv

from ...errors import require_fraction
from ...mechanisms._outcomes import Outcomes
from ...mechanisms.base import Mechanism
from ...mechanisms.divergence import pair_divergences
from ...mechanisms.labels._outcomes import LabelOutcomes
from ...mechanisms.registry import listens
from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.release import SILENT, Release
from ...privacy.votes import Votes


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """Two votes on one query that differ in one teacher's ballot; `student` where a mechanism asks for it.

    Made up for an audit and nobody's, so they may be shown, unlike votes that were cast.

    >>> Pair(Votes.from_counts([[30, 20]], n_teachers=50), Votes.from_counts([[29, 21]], n_teachers=50))
    Pair([30, 20] | [29, 21], n_teachers=50)
    """

    here: Votes
    there: Votes
    student: Floats | None = None

    def __post_init__(self) -> None:
        if self.here.space != self.there.space or not len(self.here) == len(self.there) == 1:
            raise ValueError("Expected two votes of one kind on one query each, got others.")
        if self.here.n_teachers != self.there.n_teachers:
            raise ValueError(
                f"Expected votes of the same teachers, got {self.here.n_teachers} and "
                f"{self.there.n_teachers}. A neighbour changes one ballot and takes none away."
            )
        moved = np.abs(self.here.totals - self.there.totals)
        classes = self.here.space.kind == "classes"
        # Of one ballot that changes no sum moves by more than a vote, and no class but two.
        if moved.max() > self.here.space.most(1) or (classes and moved.sum() > 2):
            raise ValueError("Expected votes that differ in one ballot, got votes that differ in more.")

    def __repr__(self) -> str:
        sides = " | ".join(str(votes.totals[0].tolist()) for votes in (self.here, self.there))
        return f"Pair({sides}, n_teachers={self.here.n_teachers})"


@dataclass(frozen=True, eq=False)
class Law:
    """Log-probabilities of one query's outcomes, (columns, values and silence), which are independent.

    A class is one column; of many labels each is one. Silence comes last, so that -1 finds it.
    """

    here: Floats
    there: Floats

    def losses(self, outcomes: NDArray[Any]) -> Floats:
        """Return the logarithm of how much likelier each outcome, (releases, columns), is here than there."""
        with np.errstate(invalid="ignore"):
            table = np.where(np.isneginf(self.here) & np.isneginf(self.there), 0.0, self.here - self.there)
        # A label that no teacher gave is told by the student: for the law that is silence.
        return np.asarray(table[np.arange(len(table)), np.maximum(outcomes, -1)].sum(axis=-1))

    def hockey_stick(self, n_queries: int, *, delta: float) -> float:
        """Return the epsilon of so many queries at a delta, of the larger direction: exact, not converted.

        Guarantee: delta(epsilon) = E max(0, 1 - e^(epsilon - loss)) is `delta`, to within rounding. With more
                   than some hundred thousand different totals, losses lie on a grid and epsilon is off by at
                   most n_queries / 2 steps of it.
        Assumes:   queries are answered independently, by this law.
        Reference: Balle and Wang 2018, Theorem 5.
        """
        sides = ((self.here, self.there), (self.there, self.here))
        found = []
        for own, other in sides:
            losses, shares = np.zeros(1), np.ones(1)
            for mine, theirs in zip(own, other, strict=True):
                alive = ~np.isneginf(mine)
                one = _merged(mine[alive] - theirs[alive], np.exp(mine[alive]))
                losses, shares = _added((losses, shares), one)
            found.append(_hockey_stick(*_repeated((losses, shares), n_queries, _added), delta))
        return max(found)

    def epsilon(self, n_queries: int, *, delta: float) -> float:
        """Return the exact Rényi cost of so many queries, converted at a delta, the larger direction."""
        grid = check_orders(None)
        # An outcome that neither side can have says nothing; any probability it has on both sides would do.
        never = np.isneginf(self.here) & np.isneginf(self.there)
        here, there = (np.where(never, -800.0, side).T for side in (self.here, self.there))
        both = pair_divergences(here, there, grid).sum(axis=1)
        return max((RdpCurve(grid, one) * n_queries).epsilon(delta) for one in both)


def stated_law(mechanism: Mechanism, pair: Pair) -> Law | None:
    """Return the law of a mechanism's outcomes at a pair of votes, or None where labels are not independent.

    Guarantee: what `mechanism.outcomes` says, which `testing.check_mechanism` compares with releases.
    Assumes:   nothing beyond that.
    Reference: "Exact cost".
    """
    if not hasattr(mechanism, "outcomes"):
        return None
    asked = {"student": pair.student} if listens(mechanism) and pair.student is not None else {}
    sides = []
    # What follows from one label need not be asked of another: then labels are not independent.
    apart = not hasattr(mechanism, "implications")
    for votes in (pair.here, pair.there):
        found = mechanism.outcomes(votes, **asked)
        if isinstance(found, Outcomes):
            sides.append(np.roll(found.log_labels, -1, axis=1))
        elif isinstance(found, LabelOutcomes) and found.gate is None and apart:
            told = found.law.log_outcomes(found.sums[0])
            silent = told[2:] if len(told) > 2 else np.full((1, told.shape[1]), -np.inf)
            sides.append(np.concatenate([told[:2], silent]).T)
        else:
            return None
    return Law(*sides)


_MOST_TOTALS = 300_000
Summed = TypeVar("Summed")


def _repeated(one: Summed, n: int, add: Callable[[Summed, Summed], Summed]) -> Summed:
    """Return the law of a sum of n, 1 or more, independent terms of one law, by doubling."""
    total = one
    for bit in bin(n)[3:]:
        total = add(total, total)
        total = add(total, one) if bit == "1" else total
    return total


def _added(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    if first[0].size * second[0].size > 40 * _MOST_TOTALS:
        first, second = (_on_grid(side) for side in (first, second))
    losses = np.add.outer(first[0], second[0]).ravel()
    return _merged(losses, np.multiply.outer(first[1], second[1]).ravel())


def _on_grid(side: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    losses, shares = side
    finite = np.isfinite(losses)
    step = max(np.ptp(losses[finite]), 1e-9) / 3000
    return _merged(np.where(finite, np.round(losses / step) * step, losses), shares)


def _merged(losses: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return equal losses once; what has no chance to be seen is left out, and its chance is nobody's."""
    kept = shares > 1e-22
    rounded = np.round(losses[kept], 11)
    distinct, which = np.unique(rounded, return_inverse=True)
    total = np.bincount(which.reshape(-1), weights=shares[kept], minlength=distinct.size)
    return np.asarray(distinct, dtype=np.float64), np.asarray(total, dtype=np.float64)


def _hockey_stick(losses: Floats, shares: Floats, delta: float) -> float:
    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return float((shares[above] * -np.expm1(epsilon - losses[above])).sum()) - delta

    if excess(0.0) <= 0:
        return 0.0
    top = float(losses[np.isfinite(losses)].max(initial=0.0))
    if excess(top) > 0:
        return float("inf")
    return float(brentq(excess, 0.0, top))


# --- Clopper-Pearson bounds on a probability, and the epsilon that two of them prove. ---


def lower_bound(hits: ArrayLike, n_trials: int, *, miss: float) -> Floats:
    """Return what a probability is at least, after so many hits.

    Guarantee: above the probability with chance at most `miss`, whatever the probability is.
    Assumes:   independent trials, and an event that was chosen without looking at them.
    Reference: Clopper and Pearson 1934.
    """
    require_fraction(miss=miss)
    seen = np.asarray(hits, dtype=np.float64)
    # Without a hit nothing is known from below; a 1 stands in, since betaincinv takes no 0.
    return np.asarray(np.where(seen > 0, betaincinv(np.maximum(seen, 1), n_trials - seen + 1, miss), 0.0))


def upper_bound(hits: ArrayLike, n_trials: int, *, miss: float) -> Floats:
    """Return what a probability is at most, after so many hits.

    Guarantee: below the probability with chance at most `miss`, whatever the probability is.
    Assumes:   as `lower_bound`.
    Reference: Clopper and Pearson 1934.
    """
    return np.asarray(1 - lower_bound(n_trials - np.asarray(hits, dtype=np.float64), n_trials, miss=miss))


def epsilon_of_event(
    hits: ArrayLike, n_trials: int, hits_there: ArrayLike, n_there: int, *, delta: float, miss: float
) -> Floats:
    """Return the epsilon that an event proves: no smaller one allows probabilities this far apart.

    Guarantee: above the true epsilon at `delta` with chance at most `miss`, half of it for each probability.
    Assumes:   as `lower_bound`; the trials are releases at two neighbouring inputs.
    Reference: the definition: p <= e^epsilon q + delta for every event, so epsilon >= log((p - delta) / q).
    """
    p = lower_bound(hits, n_trials, miss=miss / 2)
    q = upper_bound(hits_there, n_there, miss=miss / 2)
    above = np.maximum(p - delta, 0.0)
    return np.asarray(np.log(np.where(above > q, above / q, 1.0)))


# --- The event that tells two inputs apart best: chosen on some releases, judged on others. ---


Direction = Literal["here", "there"]
_MOST_CUTS = 400


@dataclass(frozen=True)
class Event:
    """The releases whose score is at least (or at most) a cut; likelier `here` (or `there`)."""

    cut: float
    likelier: Direction

    def hits(self, scores: Floats) -> int:
        """Return how many scores lie in the event."""
        inside = scores >= self.cut if self.likelier == "here" else scores <= self.cut
        return int(inside.sum())

    def epsilon(self, here: Floats, there: Floats, *, delta: float, miss: float) -> float:
        """Return what the event proves on releases that it was not chosen on."""
        own, other = (here, there) if self.likelier == "here" else (there, here)
        hits, others = self.hits(own), self.hits(other)
        return float(epsilon_of_event(hits, own.size, others, other.size, delta=delta, miss=miss))


def choose_event(here: Floats, there: Floats, *, delta: float, miss: float) -> tuple[Event, float]:
    """Return the event that would prove most on these scores, and that much; judge it on other scores.

    A high score speaks for `here`. Both directions are tried.
    """
    cuts = np.unique(np.concatenate([here, there]))
    if cuts.size > _MOST_CUTS:
        # Even steps of rank in the middle, and every rank at both ends, where ratios are largest.
        ranks = np.concatenate([np.geomspace(1, cuts.size / 2, _MOST_CUTS // 2).astype(int)] * 2)
        ranks[_MOST_CUTS // 2 :] = cuts.size - ranks[_MOST_CUTS // 2 :]
        cuts = cuts[np.unique(ranks)]
    first, second = np.sort(here), np.sort(there)
    at_least = [(values.size - np.searchsorted(values, cuts, side="left")) for values in (first, second)]
    at_most = [np.searchsorted(values, cuts, side="right") for values in (first, second)]
    sizes = here.size, there.size
    proved = np.stack([
        epsilon_of_event(at_least[0], sizes[0], at_least[1], sizes[1], delta=delta, miss=miss),
        epsilon_of_event(at_most[1], sizes[1], at_most[0], sizes[0], delta=delta, miss=miss),
    ])  # fmt: skip
    way, place = np.unravel_index(int(np.argmax(proved)), proved.shape)
    return Event(float(cuts[place]), "here" if way == 0 else "there"), float(proved[way, place])


# --- Many releases at the same votes: what came out, as numbers that can be compared. ---


DrawnOutcomes = NDArray[np.int32]
Progress = Callable[[int], object]
_CHUNK = 40_000  # queries released at once; keeps the memory flat


def draw_rows(
    mechanism: Mechanism,
    votes: Votes,
    rows: NDArray[np.int64],
    noise: Noise,
    *,
    student: Floats | None = None,
    progress: Progress | None = None,
) -> DrawnOutcomes:
    """Return one outcome for each row of votes that is named, (rows, columns).

    A class is one column; of many labels each is one, 0 or 1; SILENT where nothing is told, and -2 - label
    where a label is told that no teacher gave. Where noisy counts are released they follow.
    """
    belief = np.atleast_2d(student) if student is not None and listens(mechanism) else None
    found = []
    for start in range(0, len(rows), _CHUNK):
        asked = rows[start : start + _CHUNK]
        n = len(asked)
        more = {}
        if belief is not None:
            more["student"] = belief[asked] if len(belief) > 1 else np.repeat(belief, n, axis=0)
        release = mechanism.release(votes[asked], noise, **more)
        found.append(outcomes_of(release))
        if progress is not None:
            progress(n)
    return np.concatenate(found)


def outcomes_of(release: Release) -> DrawnOutcomes:
    """Return all that a release tells, (queries, columns), as `draw_rows` does."""
    unasked = np.where(release.labels == SILENT, SILENT, -2 - release.labels)
    told = np.where(release.answered, release.labels, unasked).reshape(len(release), -1)
    if release.values is not None:
        told = np.concatenate([told, release.values], axis=1)
    return told.astype(np.int32)


def finding(epsilon: float, claim: float) -> str:
    """Return what was found and what is claimed; the one rounded down, the other up."""
    down, up = math.floor(1000 * epsilon) / 1000, math.ceil(1000 * claim * (1 - 1e-12)) / 1000
    return f"The audit found at least {down:.6g}; the claim is {up:.6g}"


# --- A distinguisher that is learned from releases, and what its groups of outcomes prove of many queries.


Integers = NDArray[np.int64]
Score = Callable[[DrawnOutcomes], Floats]

_MOST_GROUPS = 12
_MOST_BINS = 48
_MOST_CODES = 4096
_FOR_ONE_OUTCOME = 25  # releases on average that an outcome of several columns is weighed whole from
_LEVELS = 48  # whole weights from the least to the largest score, so that sums lie on a lattice


def learn_score(here: DrawnOutcomes, there: DrawnOutcomes) -> Score:
    """Return a function that says how much each outcome, (rows, columns), speaks for `here`, as learned.

    A logarithm of frequencies, half a hit added to each: of whole outcomes where there are few, else of each
    column alone (large whole numbers in bins), and added. An outcome that was not among them scores 0.
    """
    both = np.concatenate([here, there])
    n_columns = both.shape[1]
    codes = _codes(both)
    n_codes = np.unique(codes).size
    whole = n_columns == 1 or n_codes * _FOR_ONE_OUTCOME <= len(both)
    if whole and n_codes <= _MOST_CODES:
        table = _table(codes[: len(here)], codes[len(here) :])
        return lambda rows: table(_codes(rows))
    each = [_binned(here[:, at], there[:, at]) for at in range(n_columns)]
    return lambda rows: np.asarray(sum(score(rows[:, at]) for at, score in enumerate(each)), dtype=np.float64)


def _codes(rows: DrawnOutcomes) -> NDArray[np.int64]:
    """Return one number per row, equal for equal rows and for no others but by a hash of 62 bits."""
    if rows.shape[1] == 1:
        return rows[:, 0].astype(np.int64)
    code = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        code = (code ^ (column.astype(np.int64) + 7).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return (code >> np.uint64(2)).astype(np.int64)


def _table(first: Integers, second: Integers) -> Callable[[Integers], Floats]:
    known, which = np.unique(np.concatenate([first, second]), return_inverse=True)
    which = which.reshape(-1)
    counts = [np.bincount(part, minlength=known.size) for part in (which[: first.size], which[first.size :])]
    # Half a hit each: an outcome that came on one side alone is not taken for impossible on the other.
    weights = np.log(counts[0] + 0.5) - np.log(counts[1] + 0.5) - np.log(first.size / second.size)

    def score(codes: Integers) -> Floats:
        place = np.minimum(np.searchsorted(known, codes), known.size - 1)
        return np.where(known[place] == codes, weights[place], 0.0)

    return score


def _binned(first: NDArray[np.int32], second: NDArray[np.int32]) -> Callable[[NDArray[np.int32]], Floats]:
    both = np.concatenate([first, second])
    if np.unique(both).size <= _MOST_BINS:
        table = _table(first.astype(np.int64), second.astype(np.int64))
        return lambda column: table(column.astype(np.int64))
    cuts = np.unique(np.quantile(both, np.linspace(0, 1, _MOST_BINS + 1)[1:-1]).astype(np.int64))
    place = [np.searchsorted(cuts, side, side="left") for side in (first, second)]
    table = _table(*place)
    return lambda column: table(np.searchsorted(cuts, column, side="left"))


@dataclass(frozen=True, eq=False)
class OutcomeGroups:
    """Outcomes in a few groups, by their score: the last speaks most for one's own side.

    `weights` are whole and rise; `cuts` are the lowest scores of all groups but the first.
    """

    cuts: Floats
    weights: Integers

    def counts(self, scores: Floats) -> Integers:
        """Return how many scores fall into each group."""
        return np.bincount(np.searchsorted(self.cuts, scores, side="right"), minlength=self.weights.size)


def learn_groups(own: Floats, other: Floats) -> OutcomeGroups:
    """Return groups of the scores of two sides, a high score speaking for the first; judge them on others."""
    values = np.unique(np.concatenate([own, other]))
    if values.size > _MOST_GROUPS:
        both = np.sort(np.concatenate([own, other]))
        # Even shares in the middle, and thin ones at both ends, where ratios are largest.
        points = np.array([0.002, 0.01, 0.04, 0.12, 0.3, 0.5, 0.7, 0.88, 0.96, 0.99, 0.998])
        values = np.unique(np.concatenate([values[:1], both[(points * both.size).astype(int)]]))
    cuts = values[1:]
    place = [np.searchsorted(cuts, side, side="right") for side in (own, other)]
    shares = [(np.bincount(at, minlength=values.size) + 0.5) / (at.size + 1) for at in place]
    levels = np.maximum.accumulate(np.log(shares[0]) - np.log(shares[1]))
    span = max(float(levels[-1] - levels[0]), 1e-9)
    weights = np.round((levels - levels[0]) / span * _LEVELS).astype(np.int64)
    return OutcomeGroups(cuts, weights)


def composed_epsilon(
    own: Integers, other: Integers, weights: Integers, *, n_queries: int, delta: float, miss: float
) -> float:
    """Return the epsilon that frequencies of one query's outcomes prove of `n_queries` such queries.

    Outcomes are in groups of rising weight. Each "this group or a higher one" has its probability bounded,
    from below on one side and from above on the other. Of all distributions within these bounds the lowest
    (highest) makes every sum of weights over queries lowest (highest), so the probabilities of "the sum is at
    least t" are bounded too, for all t at once, and one of them proves most.

    Guarantee: above the true epsilon at `delta` with chance at most `miss`.
    Assumes:   queries are answered independently, each with the same probabilities; groups and weights were
               chosen without these outcomes.
    Reference: Clopper and Pearson 1934; stochastic order is kept by sums of independent terms.
    """
    n_cuts = weights.size - 1
    if n_cuts < 1:
        return 0.0
    above = [np.cumsum(counts[::-1])[::-1][1:] for counts in (own, other)]
    low = lower_bound(above[0], int(own.sum()), miss=miss / (2 * n_cuts))
    high = upper_bound(above[1], int(other.sum()), miss=miss / (2 * n_cuts))
    # A higher group lies within a lower one, so bounds carry over.
    low, high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)
    tails = [_tail_of_sums(bound, weights, n_queries) for bound in (low, high)]
    over = np.maximum(tails[0] - delta, 0.0)
    # Convolutions round; what is below that is no proof of anything.
    under = tails[1] + 1e-12
    return float(np.log(np.maximum(over / under, 1.0)).max())


def _tail_of_sums(above: Floats, weights: Integers, n: int) -> Floats:
    """Return P(sum >= t) for t = 0, 1, ..., of n independent weights with such tail probabilities."""
    tail = np.concatenate([[1.0], above, [0.0]])
    pmf = np.zeros(int(weights[-1]) + 1)
    np.add.at(pmf, weights, np.maximum(tail[:-1] - tail[1:], 0.0))
    total = _repeated(pmf, n, np.convolve)
    return np.asarray(np.minimum(np.cumsum(total[::-1])[::-1], 1.0))


def prove_by_queries(
    here: DrawnOutcomes, there: DrawnOutcomes, *, n_queries: int, delta: float, miss: float
) -> tuple[float, Direction]:
    """Return what single queries, (queries, columns), prove of `n_queries` of them, and in which direction.

    The first quarter learns scores, groups and the direction; the rest is counted.

    Guarantee: as `composed_epsilon`.
    Assumes:   as `composed_epsilon`.
    Reference: as `composed_epsilon`.
    """
    first = [max(1, len(side) // 4) for side in (here, there)]
    score = learn_score(here[: first[0]], there[: first[1]])
    scores = [np.split(score(side), [n]) for side, n in zip((here, there), first, strict=True)]

    def prove(own: Floats, other: Floats, groups: OutcomeGroups) -> float:
        counts = groups.counts(own), groups.counts(other)
        return composed_epsilon(*counts, groups.weights, n_queries=n_queries, delta=delta, miss=miss)

    turned = [[-part for part in side] for side in reversed(scores)]
    sides: dict[Direction, list[list[Floats]]] = {"here": scores, "there": turned}
    ways = []
    for likelier, ((own, own_rest), (other, other_rest)) in sides.items():
        groups = learn_groups(own, other)
        ways.append((prove(own, other, groups), likelier, (own_rest, other_rest, groups)))
    _, likelier, rest = max(ways, key=lambda way: way[0])
    return prove(*rest), likelier
