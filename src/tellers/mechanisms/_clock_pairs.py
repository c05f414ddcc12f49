"""Pairs of laws that stand for a mechanism, and the price that a clock must ask for all of them.

A pair (P, Q) is one question, asked of two neighbouring sets of votes. The clock's potential is kept at the
price c and the level b, what is left after the question, if for every pair, in both orders, and every k

    sum over outcomes o of P(o) w(b, k + log Q(o)/P(o))  <=  w(b + c, k) + kappa.          (**)

Both orders are in every family here, so k >= 0 is enough. The left side is looked at on a grid of k up to
where it is at most kappa; it falls in k, so nothing more is needed beyond. The least c at each k is found by
bisection and the largest of them is raised by a margin, which covers what lies between grid points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..privacy._clock import TICKS, ClockTable, potential
from ..privacy._scipy import ndtri
from ._laws import DiscreteGaussian, DiscreteLaplace, Floats

# Outcomes rarer than this share of kappa count as if both laws agreed on them.
_RARE = 1e-5
# What rounding and the expansion of the potential take from a left side, at most.
_ROUNDING = 1.2e-14
# No budget is worth more than this squared distance: epsilon 60 at delta 1e-5.
_HIGHEST = 64.0
# Levels, in questions that are left: the price falls quickly at the end of a budget and is flat before.
_LEFT = tuple(round(0.5 * 1.18**i, 2) for i in range(56))
# A step of k is this share of the width of the potential there.
_STEP = 0.08


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of laws on the same few outcomes: log-probabilities, (outcomes, pairs); both orders are meant."""

    here: Floats
    there: Floats

    def both(self, kappa: float) -> tuple[Floats, Floats]:
        """Return the probabilities and the losses log Q/P of every pair in both orders."""
        p = np.exp(np.concatenate([self.here, self.there], axis=1))
        with np.errstate(invalid="ignore"):
            loss = np.concatenate([self.there - self.here, self.here - self.there], axis=1)
        return p, np.where(p > _RARE * kappa, loss, 0.0)


class Expansion:
    """Left sides of (**) for many pairs at once.

    The potential at a level is a smooth function of the loss, as wide as the root of the level: a Chebyshev
    series in the loss, whose terms are summed over outcomes once for all levels and all k. What is left is a
    product of matrices.
    """

    def __init__(self, p: Floats, loss: Floats) -> None:
        self.p, self.loss = p, loss
        self.reach = max(float(np.abs(loss).max()), 1e-12)
        self._terms = np.zeros((0, p.shape[-1]))

    def _grown(self, degree: int) -> Floats:
        if len(self._terms) <= degree:
            x = self.loss / self.reach
            before, now = np.ones_like(x), x
            rows = [self.p.sum(axis=0), (self.p * x).sum(axis=0)]
            for _ in range(2, degree + 1):
                before, now = now, 2 * x * now - before
                rows.append(np.einsum("op,op->p", self.p, now))
            self._terms = np.array(rows)
        return np.asarray(self._terms[: degree + 1])

    def at(self, level: float, k: Floats, *, direct: bool) -> Floats:
        """Return the left side at every k, (k, pairs)."""
        if level == 0:
            # (1 - e^(k + loss))_+: outcomes that Q makes likelier add nothing.
            gone = [-np.expm1(np.minimum(each + self.loss, 0.0)) for each in k]
            return np.stack([(self.p * each).sum(axis=0) for each in gone])
        ratio = self.reach / math.sqrt(level)
        if direct or ratio > 30:
            return np.stack([(self.p * potential(level, each + self.loss)).sum(axis=0) for each in k])
        degree = math.ceil(16 + 8.5 * ratio)
        angle = math.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
        values = potential(level, k[:, None] + self.reach * np.cos(angle)[None, :])
        cosines = np.cos(np.outer(np.arange(degree + 1), angle)) * (2 / (degree + 1))
        cosines[0] /= 2
        coefficients = values @ cosines.T
        return np.asarray(coefficients @ self._grown(degree))

    def largest(self, level: float, k: Floats, *, direct: bool) -> Floats:
        """Return the largest left side over all pairs, at every k."""
        values = self.at(level, k, direct=False)
        found: Floats = values.max(axis=1)
        if direct and level > 0:
            # The series finds the pairs that may be largest; each of those is then summed by itself.
            near = values >= found[:, None] - 2 * _ROUNDING
            for i, each in enumerate(k):
                p, loss = self.p[:, near[i]], self.loss[:, near[i]]
                found[i] = (p * potential(level, each + loss)).sum(axis=0).max()
        return found


def precision(kappa: float) -> tuple[bool, float]:
    """Return whether left sides need every potential by itself, and what is added to them for rounding."""
    return kappa < 7 * _ROUNDING, min(_ROUNDING, 0.02 * kappa) if kappa < 7 * _ROUNDING else _ROUNDING


def least_price(left: Floats, k: Floats, level: float, most: float) -> float:
    """Return the least c with left(k) <= w(level + c, k) at every k, where it is at most `most`."""
    low, high = np.zeros(k.size), np.full(k.size, most)
    if (potential(level + high, k) < left).any():
        return math.inf
    for _ in range(52):
        middle = (low + high) / 2
        fits = potential(level + middle, k) >= left
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return float(high.max())


def grid_of_k(level: float, scale: float, kappa: float, most: float) -> Floats:
    """Return k from 0 to where a clock at `level + most` is worth less than kappa."""
    width = math.sqrt(level + scale)
    end = width
    while float(potential(level + most, end)) > 0.5 * kappa:
        end *= 1.1
    return np.linspace(0.0, end, math.ceil(end / (_STEP * width)) + 2)


def levels_of(scale: float) -> list[float]:
    """Return the levels at which a question of this price is priced: 0, and so many questions left."""
    return [0.0, *(n * scale for n in _LEFT if n * scale <= _HIGHEST)]


def price_all(pairs: Pairs, kappa: float, *, margin: float) -> ClockTable:
    """Return the table of a question that may be any of these pairs.

    Guarantee: (**) for all the pairs in both orders, at every level and above it, on a grid of k; the margin
               covers what lies between, and between pairs.
    Assumes:   rounding below 1.2e-14, or a fiftieth of a kappa below 8e-14.
    Reference: "The clock", section on tables.
    """
    p, loss = pairs.both(kappa)
    # A price to begin with: the largest chi-squared distance, as of two Gaussians.
    scale = float(np.log1p((p * np.expm1(np.clip(loss, -50, 300)) ** 2).sum(axis=0).max()))
    series, found = Expansion(p, loss), []
    direct, rounding = precision(kappa)
    chosen = levels_of(scale)[:: 2 if direct and p.size > 20_000 else 1]
    for level in chosen:
        most = 4 * scale
        while True:
            k = grid_of_k(level, scale, kappa, most)
            left = series.largest(level, k, direct=direct) + rounding - kappa
            price = least_price(left, k, level, most)
            if math.isfinite(price) and left[-1] <= 0:
                break
            most *= 2
        found.append((price * margin,))
    return table_of(chosen, found, kappa)


def table_of(
    levels: Sequence[float], prices: Sequence[Sequence[float]], kappa: float, *, events: int = 1
) -> ClockTable:
    """Return the table of prices per level, one per kind, rounded up to ticks.

    What is a price at a level is one at every higher level: where the dearest kind would cost more there,
    the prices of the level below stay.
    """
    rows: list[tuple[int, tuple[int, ...]]] = []
    for level, price in zip(levels, prices, strict=True):
        ticks = tuple(max(1, math.ceil(each * TICKS)) for each in price)
        if rows and (max(ticks), ticks) >= (max(rows[-1][1]), rows[-1][1]):
            continue
        rows.append((math.ceil(level * TICKS), ticks))
    kinds = zip(*(ticks for _, ticks in rows), strict=True)
    return ClockTable(tuple(level for level, _ in rows), tuple(kinds), kappa=kappa, events=events)


def spread(kappa: float) -> float:
    """Return how many standard deviations of noise are looked at: beyond lies less than kappa."""
    return float(-ndtri(kappa / 20))


def gaussian_races(sigma: float, weight: int, kappa: float) -> Pairs:
    """Return the races of two classes against a threshold, with Gaussian noise: leads and thresholds."""
    law, out, step = DiscreteGaussian(sigma), spread(kappa), max(1, round(sigma / 10))
    leads = np.arange(weight, math.ceil(math.sqrt(2) * out * sigma + 2 * weight) + step, step)
    end = math.ceil(out * sigma) + weight
    fine = 1.0 if sigma >= 8 else 0.5
    thresholds = np.concatenate([[-np.inf], np.arange(-end, end + step, step * fine)])
    return _joined(law, leads, lambda lead: thresholds, weight, end + math.ceil(2 * sigma))


def laplace_races(gamma: float, weight: int, kappa: float) -> Pairs:
    """Return the same with Laplace noise of scale 1/gamma: finer where its densities have a kink."""
    law = DiscreteLaplace(1 / gamma)
    out = -math.log(kappa / 20) / gamma
    lattice = np.concatenate([np.arange(0, 4, 0.1), np.arange(4, 12, 0.4), np.arange(12, 200, 1.5)]) / gamma
    lattice = np.unique(np.floor(lattice[lattice <= out + 2 * weight]))
    leads = np.unique(np.concatenate([lattice + weight, weight + np.arange(3)])).astype(np.int64)

    def thresholds(lead: int) -> Floats:
        kinks = np.array([0, -weight, -lead, weight - lead], dtype=np.float64)
        near = (kinks[:, None] + np.array([-0.5, 0, 0.5, 1.0])).ravel()
        wide = np.concatenate([lattice, -lattice, 0.5 - lattice / 2])
        every: Floats = np.unique(np.concatenate([[-np.inf], near, np.floor(wide)]))
        return every

    return _joined(law, leads, thresholds, weight, math.ceil(out + 6 / gamma) + 3 * weight)


def _joined(
    law: DiscreteGaussian | DiscreteLaplace,
    leads: np.ndarray[tuple[int], np.dtype[np.int64]],
    thresholds: Callable[[int], Floats],
    weight: int,
    reach: int,
) -> Pairs:
    both = [race(law, int(lead), thresholds(int(lead)), weight=weight, reach=reach) for lead in leads]
    return Pairs(np.concatenate([a for a, _ in both], axis=1), np.concatenate([b for _, b in both], axis=1))


def race(
    law: DiscreteGaussian | DiscreteLaplace, lead: int, thresholds: Floats, *, weight: int, reach: int
) -> tuple[Floats, Floats]:
    """Return log-probabilities of {a, b, other}, (3, thresholds), before and after a ballot moves.

    It moves from a to b, which a leads by `lead`. Thresholds are whole or half votes above a's count before
    it, or -inf: nobody else.
    """
    low, high = -reach - weight, reach + weight
    x = np.arange(low, high + 1, dtype=np.float64)
    halves = np.where(np.isinf(thresholds), 2.0 * low, np.clip(2 * thresholds, 2 * low, 2 * high))
    place = np.rint(halves).astype(np.int64) - 2 * low
    cell, half = place >> 1, (place & 1).astype(np.bool_)
    with np.errstate(under="ignore"):
        before = _cells(law, x, 0, -lead, cell, half)
        after = _cells(law, x, -weight, weight - lead, cell, half)
    none = np.isinf(thresholds)
    found = []
    for rows in (before, after):
        rows[2] = np.where(none, 0.0, rows[2])
        with np.errstate(divide="ignore"):
            found.append(np.log(rows / rows.sum(axis=0)))
    return found[0], found[1]


def _cells(
    law: DiscreteGaussian | DiscreteLaplace, x: Floats, a: int, b: int, cell: Floats, half: Floats
) -> Floats:
    rows = []
    for own, rival in ((a, b), (b, a)):
        density = np.exp(law.log_density(x - own))
        # A tie is broken by a uniform number: inside a whole cell the rival's law is met at its middle, and
        # from the middle of the cell on at three quarters.
        whole = density * np.exp(law.log_cdf(x - rival, 0.5))
        after = np.append(np.cumsum(whole[::-1])[::-1], 0.0)
        upper = 0.5 * density * np.exp(law.log_cdf(x - rival, 0.75))
        rows.append(np.where(half, after[cell + 1] + upper[cell], after[cell]))
    start = np.exp(law.log_cdf(x - 1 - a) + law.log_cdf(x - 1 - b))
    middle = np.exp(law.log_cdf(x - a, 0.5) + law.log_cdf(x - b, 0.5))
    rows.append(np.where(half, middle[cell], start[cell]))
    return np.stack(rows)


def checks(sigma: float, weight: int, kappa: float) -> Pairs:
    """Return the noisy checks of whole margins, which a unit moves by `weight`."""
    law = DiscreteGaussian(sigma)
    reach = math.ceil((spread(kappa) + 2) * sigma) + weight
    # Left sides are smooth in the margin: steps of a fiftieth of the noise miss less than 1e-4 of a price.
    margin = np.arange(-reach, reach + 1, max(1, math.floor(sigma / 50)), dtype=np.float64)
    before, after = (
        np.stack([law.log_cdf(each), law.log_cdf(-each - 1)]) for each in (margin, margin + weight)
    )
    return Pairs(before, after)


def two_points(epsilon: float, offsets: Floats) -> Pairs:
    """Return the pairs on two outcomes whose losses are `offset` and `offset - epsilon`."""
    # P puts so much on the larger loss that Q adds up to 1.
    high, low = np.expm1(offsets), np.expm1(offsets - epsilon)
    p = np.stack([-low, high]) / (high - low)
    q = p * np.exp(np.stack([offsets, offsets - epsilon]))
    return Pairs(np.log(p), np.log(q))


def shifts(sigma: float, by: int, kappa: float) -> Pairs:
    """Return the one pair of a discrete Gaussian and the same moved by so many steps."""
    law = DiscreteGaussian(sigma)
    reach = math.ceil((spread(kappa) + 2) * sigma) + by
    x = np.arange(-reach, reach + by + 1, dtype=np.float64)
    return Pairs(law.log_density(x)[:, None], law.log_density(x - by)[:, None])
