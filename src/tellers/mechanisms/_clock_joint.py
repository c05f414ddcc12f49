"""The price on a clock of a check and the answer behind it, as one joint event.

Let N and N' differ by one ballot, a the class that has one vote more in N than in N', and t the top count of
N. The check's and the answers' noises are independent, so the left side of the clock's condition, with c0 for
silence and c1 for an answer, is

    (1 - alpha_x) w(b - c0, k + log (1 - alpha_y)/(1 - alpha_x)) + alpha_x V(b - c1, k + log alpha_y/alpha_x)

where alpha_t is the chance that a top count t passes, (x, y) the top counts of the two sides in either order
and V the left side of the answers alone. There are two cases, as in `gap_bounds`.
1. a is a top class of N. Then N' has the top count t - 1, or t again where another class reaches it, which
   needs 2 t - 1 <= K. All other classes have at most K - t votes, so they lie g = max(0, 2 t - K) behind a,
   at least, and R is stochastically below the largest of that many noisy counts. V is at most the largest
   value over leads of at least g of the expectation of the running maximum over thresholds.
2. a is not. Then neither is the class that its vote goes to, in N or N', so both have the top count t, and
   R is stochastically above the noisy count of a class that lies max(g, 1) before a.
A vote that is given or kept back alone is a lead beyond all others, with one rival more.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..privacy._clock import ClockTable, potential
from ._check import log_pass_and_fail
from ._clock_pairs import (
    Expansion,
    Pairs,
    checks,
    grid_of_k,
    least_price,
    precision,
    price_all,
    race,
    spread,
    table_of,
)
from ._laws import DiscreteGaussian, Floats

# Expectations over R are trapezoid sums a tenth of sigma apart; top counts an eighth of the noise.
_MARGIN = 1 + 3e-3
# Sums and voters of one label: a lattice, and no bound.
_EVERY = 1 + 2e-3
# Between two values of k the logarithm of what an answer adds to the potential is concave, and is taken to be
# linear: that misses a share of _STEP^2 / 8 of it.
_BETWEEN = 1 + 1e-3
_LEFT = (0.0, *(round(0.5 * 1.4**i, 2) for i in range(28)))
_HIGHEST = 64.0


@dataclass(frozen=True, eq=False)
class Races:
    """The answers' left sides: expansion over leads and thresholds, and the laws of R by gap."""

    series: Expansion
    leads: Floats
    n_thresholds: int
    gaps: Floats
    rising: Floats  # (thresholds, gaps): the law of R in case 1, as weights of thresholds
    lone: Floats  # with one rival more
    falling: Floats  # in case 2
    step: int
    n_classes: int

    @classmethod
    def of(cls, sigma: float, n_classes: int, gaps: Floats, kappa: float) -> "Races":
        """Return the races of one ballot with noise sigma, for these gaps."""
        law, out, step = DiscreteGaussian(sigma), spread(kappa), max(1, round(sigma / 10))
        leads = np.arange(1, math.ceil(math.sqrt(2) * out * sigma) + 2 + 2 * step, step, dtype=np.float64)
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
            found = np.zeros((y.size + 1, gaps.size))
            found[0] = below[0]
            found[1:-1] += mass / 2
            found[2:] += mass / 2
            found[-1] += 1 - below[-1]
            return found

        log_below = law.log_cdf(np.asarray(y[:, None] + gaps[None, :] - 1, dtype=np.float64))
        rising, lone = (weights(np.exp(n * log_below)) for n in (n_classes - 2, n_classes - 1))
        falling = weights(
            np.exp(law.log_cdf(np.asarray(y[:, None] - np.maximum(gaps, 1)[None, :] - 1, dtype=np.float64)))
        )
        return cls(
            Expansion(*pairs.both(kappa)), leads, y.size + 1, gaps, rising, lone, falling, step,
            n_classes,
        )  # fmt: skip

    def added(self, level: float, k: Floats, *, direct: bool) -> tuple[Floats, Floats]:
        """Return what answers add to the potential, in case 1, (order, gaps, k), and case 2, (gaps, k)."""
        shape = (k.size, 2, self.leads.size, self.n_thresholds)
        values = self.series.at(level, k, direct=direct).reshape(shape)
        grown = np.maximum.accumulate(values, axis=3)
        by_lead = grown @ self.rising
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
        return (
            np.maximum(np.moveaxis(first, 0, 2) - plain, 0.0),
            np.maximum(second.T - plain, 0.0),
        )


def joint_table(
    n_teachers: int,
    n_classes: int,
    sigma: float,
    threshold: int,
    sigma_threshold: float,
    silent: float | None,
    kappa: float,
) -> ClockTable:
    """Return the table of the joint event, for kinds silent and answered; see `ConfidentClock`."""
    every = max(1, math.floor(min(sigma, sigma_threshold) / 8))
    tops = np.unique(np.append(np.arange(1, n_teachers, every), n_teachers)).astype(np.float64)
    gap_of_top = np.maximum(0, 2 * tops - n_teachers)
    gaps, which = np.unique(gap_of_top, return_inverse=True)
    races = Races.of(sigma, n_classes, gaps, kappa)
    here, before = (log_pass_and_fail(tops - less - threshold, sigma_threshold) for less in (0.0, 1.0))
    again = 2 * tops - 1 <= n_teachers
    # Rows: log alpha and log(1 - alpha) of the two sides, which law of the answers, and which gap.
    sides = [(here, before, 0, slice(None)), (before, here, 1, slice(None))]
    sides += [(here, here, order, again) for order in (0, 1)] + [(here, here, 2, slice(None))]
    rows = [
        np.stack([x[0][at], x[1][at], y[0][at], y[1][at], np.full(tops.size, law)[at], which[at]])
        for x, y, law, at in sides
    ]
    lp_x, lf_x, lp_y, lf_y, law_of, gap_at = np.concatenate(rows, axis=1)
    often, seldom = lp_x > math.log(1e-17), lf_x > math.log(1e-17)
    shift_pass, shift_fail = np.where(often, lp_y - lp_x, 0.0), np.where(seldom, lf_y - lf_x, 0.0)
    alone = price_all(checks(sigma_threshold, 1, kappa), kappa, margin=1.0) if silent is None else None
    answers = 1.28 / sigma**2
    scale = 0.64 / sigma_threshold**2 + 0.3 * answers
    most = 1.0 / sigma_threshold**2 + 2.5 / sigma**2
    direct, rounding = precision(kappa)
    levels = [left * scale for left in _LEFT if left * scale <= _HIGHEST]
    found = []
    for level in levels:
        k = grid_of_k(level, scale, kappa, most)
        step = k[1]
        reach = math.ceil(float(np.abs(shift_pass).max()) / step) + 2
        wide = step * np.arange(-reach, k.size + reach)
        first, second = races.added(level, wide, direct=direct)
        logs = np.log(np.concatenate([first, second[None]]) + 1e-19)
        own = logs[law_of.astype(int), gap_at.astype(int)]
        place = (k[None, :] + shift_pass[:, None]) / step + reach
        left = np.clip(np.floor(place).astype(int), 0, wide.size - 2)
        part = place - left
        row = np.arange(len(own))[:, None]
        more = np.exp(own[row, left] * (1 - part) + own[row, left + 1] * part) * _BETWEEN
        answered = np.exp(lp_x)[:, None] * (potential(level, k[None, :] + shift_pass[:, None]) + more)

        def price(extra: float) -> float:
            silence = potential(level + extra, k[None, :] + shift_fail[:, None])  # noqa: B023
            all_of = (np.exp(lf_x)[:, None] * silence + answered).max(axis=0)  # noqa: B023
            return least_price(all_of + rounding - kappa, k, level, 2 * most) * _MARGIN  # noqa: B023

        found.append(_chosen(price, answers, silent, _alone(alone, level)))
    return table_of(levels, found, kappa)


def _alone(table: ClockTable | None, level: float) -> float:
    if table is None:
        return 0.0
    at = int(np.searchsorted(table.levels, level * 2.0**40, side="right")) - 1
    return table.dearest[at] / 2.0**40 * (1 + 3e-4)


def _chosen(
    price: Callable[[float], float], answers: float, silent: float | None, alone: float
) -> tuple[float, float]:
    """Return the prices of silence and of an answer: the best for a share of silence, or a check's own."""
    both = price(0.0)
    tried = [(both, both)]
    if silent is None or silent > 0:
        for extra in answers * np.linspace(0.05, 1.5, 16):
            dearer = price(float(extra))
            if dearer > extra:
                tried.append((dearer - float(extra), dearer))
    if silent is None:
        fair = [pair for pair in tried if pair[0] >= alone] or tried[:1]
        return min(fair)
    return min(tried, key=lambda pair: silent * pair[0] + (1 - silent) * pair[1])


def label_table(
    n_teachers: int, sigma: float, threshold: int, sigma_threshold: float, silent: float | None, kappa: float
) -> ClockTable:
    """Return the table of one label's check and answer, for kinds silent and told; see `ConfidentLabelClock`.

    Nothing is bounded here: every number of voters up to `n_teachers` and every sum, an eighth of the noise
    apart, with the law of its three outcomes.
    """
    every = max(1, math.floor(min(sigma, sigma_threshold) / 8))
    voters = np.unique(np.append(np.arange(1, n_teachers, every), n_teachers))
    total = np.concatenate([np.full(-(-n // every), n) for n in voters.tolist()]).astype(np.float64)
    sums: Floats = np.concatenate([np.arange(0, n, every, dtype=np.float64) for n in voters.tolist()])
    limit: Floats = np.floor(total / 2) + 1
    yes = [log_pass_and_fail(sums + more - limit, sigma) for more in (0.0, 1.0)]
    margins: list[Floats] = [
        np.maximum(sums + more, total - sums - more) - float(threshold) for more in (0.0, 1.0)
    ]
    bar = [log_pass_and_fail(margin, sigma_threshold) for margin in margins]
    told = [np.stack([lp + given, lp + other]) for (lp, _), (given, other) in zip(bar, yes, strict=True)]
    series = Expansion(*Pairs(told[0], told[1]).both(kappa))
    # Silence depends on the two margins alone.
    ways, way = np.unique(np.stack(margins), axis=1, return_inverse=True)
    sides = [log_pass_and_fail(margin.astype(np.float64), sigma_threshold)[1] for margin in ways]
    log_fail = np.concatenate(sides)
    shift = np.where(log_fail > math.log(1e-5 * kappa), np.concatenate(sides[::-1]) - log_fail, 0.0)
    way = way.reshape(-1)
    way = np.concatenate([way, way + ways.shape[1]])
    alone = price_all(checks(sigma_threshold, 1, kappa), kappa, margin=1.0) if silent is None else None
    answers = 0.64 / sigma**2
    scale = 0.64 / sigma_threshold**2 + 0.3 * answers
    direct, rounding = precision(kappa)
    most = 1.0 / sigma_threshold**2 + 1.2 / sigma**2
    levels = [left * scale for left in _LEFT if left * scale <= _HIGHEST]
    found = []
    for level in levels:
        k = grid_of_k(level, scale, kappa, most)
        answered = series.at(level, k, direct=direct)

        def price(extra: float) -> float:
            silence = np.exp(log_fail) * potential(level + extra, k[:, None] + shift)  # noqa: B023
            all_of = (silence[:, way] + answered).max(axis=1)  # noqa: B023
            return least_price(all_of + rounding - kappa, k, level, 2 * most) * _EVERY  # noqa: B023

        found.append(_chosen(price, answers, silent, _alone(alone, level)))
    return table_of(levels, found, kappa)
