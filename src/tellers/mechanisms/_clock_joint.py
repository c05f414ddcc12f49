"""The price on a clock of a check and the answer behind it, as one joint event.

Let N and N' differ by one ballot, a the class that has one vote more in N than in N', and t the top count of
N. The check's and the answers' noises are independent, so the left side of the clock's condition, with c0 for
silence and c1 for an answer, is

    (1 - alpha_x) w(b - c0, k + log (1 - alpha_y)/(1 - alpha_x)) + alpha_x V(b - c1, k + log alpha_y/alpha_x)

where alpha_t is the chance that a top count t passes, (x, y) the top counts of the two sides in either order
and V the left side of the answers alone. There are two cases, as in `gap_bounds`.
1. a is a top class of N. Then N' has the top count t - 1, or t again where another class reaches it, which
   needs 2 t - 1 <= K. All other classes have at most K - t votes, so they lie g = max(0, 2 t - K) behind a,
   at least. If the vote goes to a class d behind a, those that do not move have s = K - 2 t + d votes or
   fewer among them. The law of noise is log-concave, and so the log of the chance that all of them stay
   below a number is concave in their votes, and least where one of them has all s. R is stochastically
   below the largest of that one and of the others without votes; where g = 0, below the largest of as many
   noisy counts that are level with a. V is at most the largest value over leads d of at least g of the
   expectation of the running maximum over thresholds up to that R.
2. a is not. Then neither is the class that its vote goes to, in N or N', so both have the top count t, and
   R is stochastically above the noisy count of a class that lies max(g, 1) before a.
A vote that is given or kept back alone is a lead beyond all others, with one rival more.

An interactive check has thresholds t_j; its margin is M = max_j (n_j - t_j), and T the smallest of all t_j.
Of two neighbours let L be one with the larger margin. M + T takes the place of t: some class has that many
votes in L, and in N, so the gap of N is at least 2 (M + T) - K. Both cases can occur with every (x, y) among
(M, M), (M, M - 1) and (M - 1, M).

A label with s of n <= K votes has t = max(s, n - s), and its lead is 2 t - n or the negative of that. A
ballot that turns takes t to t - 1 and 2 from a lead of at least max(2, 2 t - K), or turns a lead of 1 round
and leaves t, which needs 2 t - 1 <= K. All its laws are summed up.

A pair of charges that fulfils the condition at a level fulfils it at every level above, so a table may take
another pair at every level: those found here, or those of a check and an answer that are two events.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..privacy._clock import TICKS, ClockTable, potential
from ._check import golden_section, log_pass_and_fail
from ._clock_pairs import (
    Expansion,
    Pairs,
    grid_of_k,
    least_price,
    precision,
    race,
    spread,
)
from ._laws import DiscreteGaussian, Floats

# Expectations over R are trapezoid sums a tenth of sigma apart; top counts an eighth of the noise.
_MARGIN = 1 + 3e-3
# Between two values of k the logarithm of what an answer adds to the potential is concave, and is taken to be
# linear: that misses a share of _STEP^2 / 8 of it.
_BETWEEN = 1 + 1e-3
# Levels, in questions left: they lie closest where the price falls fastest, from 2.5 to 60 of them.
_LEFT = (
    0.0,
    *(round(0.5 * 1.18**i, 2) for i in range(10)),
    *(round(2.6 * 1.09**i, 2) for i in range(37)),
    *(round(63 * 1.18**i, 1) for i in range(30)),
)
_HIGHEST = 64.0
# Pairs are looked for by so many sections of an interval; what is rarer than this share changes nothing.
_SECTIONS, _NEVER = 14, math.log(1e-17)
# A dearer answer must save this share of what it costs more: of pairs that are worth the same, the even one.
_RESERVED = 0.05

Check = tuple[Floats, Floats]
Sides = list[tuple[Check, Check, int, NDArray[np.int64]]]
Pair = tuple[float, float]


class Answers(Protocol):
    """What answers add to the potential, by law and gap."""

    def added(self, level: float, k: Floats, *, direct: bool) -> Floats:
        """Return what answers add at a level, (laws, gaps, k)."""
        ...


def longest_lead(sigma: float, kappa: float) -> int:
    """Return the lead beyond which the noise of two counts decides nothing."""
    return math.ceil(math.sqrt(2) * spread(kappa) * sigma) + 1


@dataclass(frozen=True, eq=False)
class Races:
    """The answers' left sides: expansion over leads and thresholds, and the laws of R by gap."""

    series: Expansion
    leads: Floats
    n_thresholds: int
    gaps: Floats
    rising: Floats  # (leads, thresholds, gaps): the law of R in case 1, as weights of thresholds
    lone: Floats  # (thresholds, gaps): with one rival more
    falling: Floats  # (thresholds, gaps): in case 2
    step: int
    n_classes: int

    @classmethod
    def of(cls, sigma: float, n_teachers: int, n_classes: int, gaps: Floats, kappa: float) -> "Races":
        """Return the races of one ballot with noise sigma, for these gaps."""
        law, out, step = DiscreteGaussian(sigma), spread(kappa), max(1, round(sigma / 10))
        leads = np.arange(1, longest_lead(sigma, kappa) + 1 + 2 * step, step, dtype=np.float64)
        end = math.ceil(out * sigma) + 1
        y = np.arange(-end, end + step, step, dtype=np.float64)
        thresholds: Floats = np.concatenate([[-np.inf], y])
        both = [
            race(law, int(d), thresholds, weight=1, reach=end + math.ceil(2 * sigma) + step) for d in leads
        ]
        pairs = Pairs(
            np.concatenate([a for a, _ in both], axis=1), np.concatenate([b for _, b in both], axis=1)
        )

        def weights(below: Floats) -> Floats:
            # Mass between two thresholds counts half at either; what is below the first has no threshold.
            mass = np.diff(below, axis=0)
            found = np.zeros((y.size + 1, *below.shape[1:]))
            found[0] = below[0]
            found[1:-1] += mass / 2
            found[2:] += mass / 2
            found[-1] += 1 - below[-1]
            return found

        def log_below(behind: Floats) -> Floats:
            return law.log_cdf(np.floor(y.reshape(-1, *(1,) * behind.ndim) + behind - 1))

        # How far the largest and the others of those that do not move lie behind a, by lead and gap.
        top, lead = np.floor((n_teachers + gaps) / 2), np.append(leads[:-1], np.inf)[:, None]
        left_over = np.minimum(np.maximum(lead - gaps, 0.0) + step - 1, n_teachers - top)
        first = np.where(gaps > 0, top - left_over, 0.0)
        rest = np.where(gaps > 0, top, 0.0)
        n_rest = max(n_classes - 3, 0)
        rising = np.moveaxis(
            weights(np.exp((n_classes > 2) * log_below(first) + n_rest * log_below(rest)[:, None])), 1, 0
        )
        lone = weights(np.exp(log_below(gaps) + (n_classes - 2) * log_below(rest)))
        falling = weights(
            np.exp(law.log_cdf(np.asarray(y[:, None] - np.maximum(gaps, 1)[None, :] - 1, dtype=np.float64)))
        )
        return cls(
            Expansion(*pairs.both(kappa)), leads, y.size + 1, gaps, rising, lone, falling, step,
            n_classes,
        )  # fmt: skip

    def added(self, level: float, k: Floats, *, direct: bool) -> Floats:
        """Return what answers add to the potential, (laws, gaps, k): both orders of case 1, and case 2."""
        shape = (k.size, 2, self.leads.size, self.n_thresholds)
        values = self.series.at(level, k, direct=direct).reshape(shape)
        grown = np.maximum.accumulate(values, axis=3)
        by_lead = np.moveaxis(np.moveaxis(grown, 2, 0).reshape(self.leads.size, -1, self.n_thresholds)
                              @ self.rising, 0, 1).reshape(*shape[:3], -1)  # fmt: skip
        # Leads of at least the gap; a step of slack for the lattice.
        far = self.leads[:, None] < self.gaps[None, :] - (self.step - 1)
        far[-1] = False
        by_lead[:, :, far] = -np.inf
        first = np.maximum(by_lead.max(axis=2), grown[:, :, -1] @ self.lone)
        # Two classes can only be behind a third, and one that moves alone behind another.
        behind = values if self.n_classes > 2 else values[:, :, -1:]
        fallen = np.maximum.accumulate(behind.max(axis=(1, 2))[:, ::-1], axis=1)[:, ::-1]
        second = fallen @ self.falling
        plain = potential(level, k)
        grown = np.concatenate([np.moveaxis(first, 0, 2), second.T[None]]) - plain
        return np.asarray(np.maximum(grown, 0.0))


@dataclass(frozen=True, eq=False)
class Turns:
    """A label's answers, yes or no: a lead that falls by two, in both orders, and one that turns."""

    falls: Expansion
    leads: Floats
    turns: Expansion
    gaps: Floats

    @classmethod
    def of(cls, sigma: float, n_teachers: int, gaps: Floats, kappa: float) -> "Turns":
        """Return the answers of one label with noise sigma on its sum, for these gaps."""
        # Beyond what noise can decide nothing changes.
        end = min(n_teachers, math.ceil(2 * (spread(kappa) + 2) * sigma) + 4)
        leads = np.arange(2, max(end, 2) + 1, dtype=np.float64)

        def answers(lead: Floats) -> Floats:
            # Of n votes with s for yes, s - (n // 2 + 1) is the lead, halved.
            return np.stack(log_pass_and_fail(np.ceil(lead / 2) - 1, sigma))

        # Both sides: the one that leads may be yes or no.
        falling = Pairs(*(np.concatenate([answers(x), answers(-x)], axis=1) for x in (leads, leads - 2)))
        one = np.ones(1)
        turning = Pairs(answers(one), answers(-one))
        return cls(Expansion(*falling.both(kappa)), leads, Expansion(*turning.both(kappa)), gaps)

    def added(self, level: float, k: Floats, *, direct: bool) -> Floats:
        """Return what answers add to the potential, (laws, gaps, k): both orders of a fall, and turns."""
        values = self.falls.at(level, k, direct=direct).reshape(k.size, 2, 2, self.leads.size).max(axis=2)
        # The largest over all leads of at least the gap.
        beyond = np.maximum.accumulate(values[:, :, ::-1], axis=2)[:, :, ::-1]
        place = np.clip(np.searchsorted(self.leads, self.gaps), 0, self.leads.size - 1)
        first = np.moveaxis(beyond[:, :, place], 0, 2)
        turned = self.turns.at(level, k, direct=direct).max(axis=1)
        second = np.broadcast_to(turned, (1, self.gaps.size, k.size))
        grown = np.concatenate([first, second]) - potential(level, k)
        return np.asarray(np.maximum(grown, 0.0))


@dataclass(frozen=True)
class Joint:
    """A check and an answer of at most `n_teachers` ballots of one vote each; see `ConfidentClock`."""

    of: Literal["classes", "margin", "label"]
    n_teachers: int
    n_classes: int
    sigma: float
    threshold: int
    sigma_threshold: float


def joint_table(joint: Joint, silent: float | None, apart: ClockTable, kappa: float) -> ClockTable:
    """Return the table of the joint event, for kinds silent and answered.

    `apart` is the table of the check and the answer as two events, with the same kinds.

    Guarantee: every pair of charges is one that was found for the joint event at this level or below, or
               that of the two events; where the latter is taken at any level, the table counts two events.
    Assumes:   as `ConfidentClock`.
    Reference: "The clock", section on checks and answers.
    """
    answers = 1.28 / joint.sigma**2
    scale = 0.64 / joint.sigma_threshold**2 + 0.3 * answers
    levels = [left * scale for left in _LEFT if left * scale <= _HIGHEST]
    most = 1.0 / joint.sigma_threshold**2 + 2.5 / joint.sigma**2
    search = _PriceSearch(joint, scale, most, kappa)
    found: list[Pair] = []
    around = None
    for level, above in zip(levels, [*levels[1:], levels[-1]], strict=True):
        price, dear = search.at(level), _pair_at(apart, level)
        # What silence is to cost at most holds up to the next level.
        pair = _chosen(price, silent, dear, check=_pair_at(apart, above)[0], around=around)
        found.append(pair)
        # How much less silence costs is much the same share of an answer at the next level.
        around = (pair[1] - pair[0]) / dear[1] if pair != dear and pair[1] > pair[0] else None
    return _merged(levels, found, silent, apart, kappa)


@dataclass(frozen=True, eq=False)
class _PriceSearch:
    """The least price of an answer, at any level, by how much less silence is charged."""

    joint: Joint
    scale: float
    most: float
    kappa: float

    def at(self, level: float) -> Callable[[float], float]:
        """Return the function from what silence is charged less to the price of an answer."""
        races, rows = _laws(self.joint, self.kappa)
        lp_x, lf_x, lp_y, lf_y, law_of, gap_at = rows
        often, seldom = lp_x > _NEVER, lf_x > _NEVER
        shift_pass, shift_fail = np.where(often, lp_y - lp_x, 0.0), np.where(seldom, lf_y - lf_x, 0.0)
        direct, rounding = precision(self.kappa)
        k = grid_of_k(level, self.scale, self.kappa, self.most)
        step = k[1]
        reach = math.ceil(float(np.abs(shift_pass).max()) / step) + 2
        wide = step * np.arange(-reach, k.size + reach)
        logs = np.log(races.added(level, wide, direct=direct) + 1e-19)
        own = logs[law_of.astype(int), gap_at.astype(int)]
        place = (k[None, :] + shift_pass[:, None]) / step + reach
        left = np.clip(np.floor(place).astype(int), 0, wide.size - 2)
        part = place - left
        row = np.arange(len(own))[:, None]
        more = np.exp(own[row, left] * (1 - part) + own[row, left + 1] * part) * _BETWEEN
        answered = np.exp(lp_x)[:, None] * (potential(level, k[None, :] + shift_pass[:, None]) + more)
        # Silence is the same whatever the answers' law: one row for each of its own.
        tops, of_top = np.unique(np.stack([lf_x, shift_fail]), axis=1, return_inverse=True)
        largest = np.full((tops.shape[1], k.size), -np.inf)
        np.maximum.at(largest, of_top.reshape(-1), answered)
        failed, moved = np.exp(tops[0])[:, None], k[None, :] + tops[1][:, None]

        def price(extra: float) -> float:
            all_of = (failed * potential(level + extra, moved) + largest).max(axis=0)
            return least_price(all_of + rounding - self.kappa, k, level, 2 * self.most) * _MARGIN

        return price


@lru_cache(maxsize=4)
def _laws(joint: Joint, kappa: float) -> tuple[Answers, Floats]:
    """Return the answers, and the pairs of checks with the law and the gap of the answer behind each."""
    n = joint.n_teachers
    every = max(1, math.floor(min(joint.sigma, joint.sigma_threshold) / 8))
    start = -n - 1 if joint.of == "margin" else 1
    tops = np.unique(np.append(np.arange(start, n, every), n)).astype(np.float64)
    # Larger gaps than noise can decide are one gap, and so are those of more votes than there are.
    gap_of_top = np.clip(2 * tops - n, 0, longest_lead(joint.sigma, kappa))
    gaps, which = np.unique(gap_of_top, return_inverse=True)
    here, before = (
        log_pass_and_fail(tops - less - joint.threshold, joint.sigma_threshold) for less in (0.0, 1.0)
    )
    again = np.flatnonzero(2 * tops - 1 <= n)
    every_top = np.arange(tops.size)
    answers: Answers
    sides: Sides
    if joint.of == "label":
        answers = Turns.of(joint.sigma, n, gaps, kappa)
        sides = [(here, before, 0, every_top), (before, here, 1, every_top), (here, here, 2, again)]
    else:
        answers = Races.of(joint.sigma, n, joint.n_classes, gaps, kappa)
        if joint.of == "margin":
            both = ((here, before), (before, here), (here, here))
            sides = [(x, y, law, every_top) for x, y in both for law in range(3)]
        else:
            sides = [(here, before, 0, every_top), (before, here, 1, every_top)]
            sides += [(here, here, 0, again), (here, here, 1, again), (here, here, 2, every_top)]
    rows = np.concatenate(
        [
            np.stack([x[0][at], x[1][at], y[0][at], y[1][at], np.full(at.size, law), which[at]])
            for x, y, law, at in sides
        ],
        axis=1,
    )
    # A check that never passes on either side adds nothing.
    passes = np.maximum(rows[0], rows[2]) > _NEVER
    return answers, rows[:, passes] if passes.any() else rows[:, -1:]


def _pair_at(table: ClockTable, level: float) -> Pair:
    """Return what a table charges silence and an answer where so much is left."""
    at = int(np.searchsorted(table.levels, math.floor(level * TICKS), side="right")) - 1
    return table.prices[0][at] / TICKS, table.prices[1][at] / TICKS


def _chosen(
    price: Callable[[float], float], silent: float | None, apart: Pair, *, check: float, around: float | None
) -> Pair:
    """Return the charges of silence and of an answer: the best for a share, or a check's own for silence.

    `around` says where to look: how much less silence costs, in prices of check and answer together.
    """
    together = price(0.0)
    even, most = (together, together), 2 * apart[1]
    low, high, sections = 0.0, most, _SECTIONS
    if around is not None:
        low, high, sections = 0.7 * around * apart[1], min(most, 1.4 * around * apart[1]), _SECTIONS // 2
    if silent is None:
        if together <= check:
            return even
        if around is not None and price(high) - high > check:
            low, high, sections = high, most, _SECTIONS
        for _ in range(sections):
            extra = (low + high) / 2
            low, high = (low, extra) if price(extra) - extra <= check else (extra, high)
        dearer = price(high)
        return (dearer - high, dearer) if high < dearer <= apart[1] else apart
    tried = [even, apart]

    def cost(extra: float) -> float:
        dearer = price(extra)
        if not extra < dearer <= most:
            return math.inf
        tried.append((dearer - extra, dearer))
        return dearer - silent * extra

    if silent > 0:
        golden_section(cost, low, high, n=sections)
    return min(tried, key=lambda pair: silent * pair[0] + (1 - silent) * pair[1])


def _merged(
    levels: list[float], found: list[Pair], silent: float | None, apart: ClockTable, kappa: float
) -> ClockTable:
    """Return the table with the best pair of charges at every level of either table.

    Pairs hold above the level they were found at. The dearer charge of a table must not grow with the level.
    """
    share = 0.0 if silent is None else silent
    starts = [math.ceil(level * TICKS) for level in levels]
    ours = [_ticks(pair) for pair in found]
    rows: list[tuple[int, tuple[int, int], bool]] = []
    least = 0

    def worth(offer: tuple[tuple[int, int], bool]) -> tuple[float, int]:
        silence, answer = offer[0]
        # An answer is reserved before every query, and no level below may charge less.
        return share * silence + (1 - share + _RESERVED) * answer, answer

    # From the top down: what answers cost there they cost below, at least.
    for level in sorted({*starts, *apart.levels}, reverse=True):
        at, other = bisect_right(starts, level) - 1, bisect_right(apart.levels, level) - 1
        check, both = apart.prices[0][other], apart.prices[1][other]
        tried = [(pair, False) for pair in ours[max(0, at - 1) : at + 1]] + [((check, both), True)]
        if silent is None:
            # Silence costs no more than a check alone, and answers no more than both.
            tried = [offer for offer in tried if offer[0][0] <= check]
        raised = [((silence, max(answer, least)), two) for (silence, answer), two in tried]
        best, is_apart = min(raised, key=worth)
        least = best[1]
        rows.append((level, best, is_apart))
    rows.reverse()
    rows = [
        row for row, before in zip(rows, [None, *rows], strict=False) if not before or row[1] != before[1]
    ]
    kinds = zip(*(pair for _, pair, _ in rows), strict=True)
    events = apart.events if any(two for _, _, two in rows) else 1
    return ClockTable(tuple(level for level, _, _ in rows), tuple(kinds), kappa=kappa, events=events)


def _ticks(pair: Pair) -> tuple[int, int]:
    silence, answer = (max(1, math.ceil(each * TICKS)) for each in pair)
    return silence, answer
