"""The laws of the noise, in log space: densities, distribution functions and grids to sum over.

The mechanisms draw integers X from a discrete Gaussian or Laplace and break ties uniformly at
random. That is the same as adding a uniform U in [0, 1) to each noisy count and taking the largest:
the noise X + U has the density p(floor(x)) and the distribution function F(x-1) + u p(x) at x + u.
Sums over x and an integral over u then give the probability that a class wins, for the noise that
is really drawn; the integrand is a polynomial in u, so a few Gauss nodes suffice.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import require_positive
from ..privacy._scipy import log_ndtr, roots_legendre

Floats = NDArray[np.float64]

# Beyond nine standard deviations lies less than 1e-18 of the mass of whatever is summed.
_REACH = 9.0
# Tables and grids longer than this are refused: a few hundred megabytes, for votes far beyond the noise.
_MOST_POINTS = 1 << 23


@dataclass(frozen=True, eq=False)
class Grid:
    """Points x + u with log weights; summing a function over them sums over all noisy counts."""

    x: Floats
    u: Floats
    log_weight: Floats


class NoiseLaw(Protocol):
    """A law of noise on one count."""

    def grid(self, low: float, high: float, *, n_classes: int) -> Grid:
        """Return the points over which winning probabilities are summed, for counts in [low, high]."""

    def log_density(self, x: Floats) -> Floats:
        """Return log p(x)."""

    def log_cdf(self, x: Floats, u: Floats) -> Floats:
        """Return log P[noise < x + u], u in [0, 1) being the tie-break."""


def gaussian_step(sigma: float, n_classes: int) -> float:
    """Return a step at which sums of winning densities have converged to about 1e-13.

    By Poisson summation the relative error is about exp(-2 pi^2 sigma^2 / (m step^2)) for the
    product of m Gaussian factors.
    """
    return sigma * (0.25 if n_classes <= 10 else 0.78 / math.sqrt(n_classes))


def _tie_nodes(sigma: float, n_classes: int) -> tuple[Floats, Floats]:
    # k Gauss nodes are exact up to degree 2k - 1 in u. The integrand is a product of 1 + u p/F with
    # p/F of order 1/sigma, so what they miss is of order sigma^-2k: below 1e-8 of a probability, and
    # the same on both sides of a ratio.
    exact = -(-n_classes // 2)
    # For tiny noise it is nearly u^(m-1); 64 nodes crowd at the end of [0, 1] enough for any m.
    wanted = 2 if sigma >= 20 else 3 if sigma >= 4 else 5 if sigma >= 1.5 else 64
    node, weight = roots_legendre(min(exact, wanted))
    return (node + 1) / 2, weight / 2


def _with_ties(x: Floats, log_weight: Floats, ties: tuple[Floats, Floats]) -> Grid:
    u, weight = ties
    return Grid(
        np.tile(x, len(u)),
        np.repeat(u, len(x)),
        np.tile(log_weight, len(u)) + np.repeat(np.log(weight), len(x)),
    )


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers, ties broken at random.

    Guarantee: densities and distribution functions are those of the sampler, to rounding.
    Assumes:   x is whole.
    Reference: Canonne, Kamath, Steinke 2020, Definition 1.
    """

    sigma: float

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)

    def grid(self, low: float, high: float, *, n_classes: int) -> Grid:
        """Return integers at a stride that Poisson summation allows, times the tie nodes."""
        stride = max(1, math.floor(gaussian_step(self.sigma, n_classes)))
        _require_room((high - low) / stride, sigma=self.sigma)
        first = math.floor(low - _REACH * self.sigma)
        last = math.ceil(high + _REACH * self.sigma)
        x = np.arange(first, last + stride, stride, dtype=np.float64)
        return _with_ties(x, np.full(x.size, math.log(stride)), _tie_nodes(self.sigma, n_classes))

    def log_density(self, x: Floats) -> Floats:
        return np.asarray(-0.5 * (x / self.sigma) ** 2 - _log_normaliser(self.sigma))

    def log_cdf(self, x: Floats, u: Floats | float = 1.0) -> Floats:
        """Return log(P[X < x] + u P[X = x]); u = 1 gives the distribution function."""
        reach = int(np.max(np.abs(x), initial=0.0)) + 1
        table, origin = _log_cdf_table(self.sigma, 1 << max(6, reach.bit_length()))
        index = x.astype(np.int64) + origin
        at: Floats = table[index]
        if np.all(np.asarray(u) == 1.0):
            return at
        before = table[index - 1]
        # F(x-1) + u p(x) = F(x-1) (1-u) + u F(x): both terms positive, no cancellation.
        with np.errstate(divide="ignore"):
            mixed: Floats = np.logaddexp(before + np.log1p(-np.asarray(u)), at + np.log(np.asarray(u)))
        return mixed

    def log_slope(self, x: Floats, u: Floats | float) -> Floats:
        """Return the log of how fast `exp(log_cdf)` grows in x, read as a smooth function of real x.

        F(x) is the sum of p over x, x - 1, ..., so its slope is the sum of p' = -k p(k) / sigma^2 there:
        more than p where p falls steeply from one whole number to the next.
        """
        reach = int(np.max(np.abs(x), initial=0.0)) + 1
        table, origin = _log_slope_table(self.sigma, 1 << max(6, reach.bit_length()))
        index = x.astype(np.int64) + origin
        before = table[index - 1]
        with np.errstate(divide="ignore"):
            mixed: Floats = np.logaddexp(
                before + np.log1p(-np.asarray(u)), table[index] + np.log(np.asarray(u))
            )
        return mixed


def _require_room(n_points: float, **noise: float) -> None:
    if n_points > _MOST_POINTS:
        name, value = next(iter(noise.items()))
        raise ValueError(
            f"Expected votes, thresholds and noise on a scale of at most {_MOST_POINTS:,} votes, got more "
            f"with {name}={value}. Check the units: noise and thresholds are counted in votes."
        )


@lru_cache(maxsize=64)
def _log_normaliser(sigma: float) -> float:
    if sigma > 40:  # theta-function identity: the correction is 2 exp(-2 pi^2 sigma^2)
        return math.log(sigma) + 0.5 * math.log(2 * math.pi)
    x = np.arange(1, math.ceil(40 * sigma) + 2, dtype=np.float64)
    return math.log1p(2 * float(np.exp(-0.5 * (x / sigma) ** 2).sum()))


@lru_cache(maxsize=16)
def _log_cdf_table(sigma: float, reach: int) -> tuple[Floats, int]:
    """Tabulate log F on [-reach - 1, reach]; sums of positive terms, so relative accuracy everywhere."""
    left = reach + 2 + math.ceil(_REACH * sigma)
    _require_room(left, sigma=sigma)
    x = np.arange(-left, 1, dtype=np.float64)
    log_density = -0.5 * (x / sigma) ** 2 - _log_normaliser(sigma)
    lower = np.logaddexp.accumulate(log_density)[left - reach - 1 :]
    # F(x) = 1 - F(-x-1) for x >= 0, where F(-x-1) <= 1/2.
    # `lower` ends at x = 0, so reversed and without its first two entries it starts at F(-2), for x = 1.
    table = np.concatenate([lower, np.log1p(-np.exp(lower[::-1][2:]))])
    table.flags.writeable = False
    return table, reach + 1


@lru_cache(maxsize=16)
def _log_slope_table(sigma: float, reach: int) -> tuple[Floats, int]:
    """Tabulate the log of the sum of -k p(k) / sigma^2 over k <= x, for x in [-reach - 1, reach]."""
    left = reach + 2 + math.ceil(_REACH * sigma)
    _require_room(left, sigma=sigma)
    k = np.arange(left, 0, -1, dtype=np.float64)
    log_terms = np.log(k) - 0.5 * (k / sigma) ** 2 - _log_normaliser(sigma) - 2 * math.log(sigma)
    lower = np.logaddexp.accumulate(log_terms)[left - reach - 1 :]  # x = -reach - 1 .. -1
    # All terms add up to 0, so the sum up to x is that up to -x - 1: the table is its own mirror image.
    table = np.concatenate([lower, lower[::-1]])
    table.flags.writeable = False
    return table, reach + 1


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(x) proportional to exp(-|x| / scale) on the integers, ties broken at random.

    Guarantee: densities and distribution functions are those of the sampler, to rounding.
    Assumes:   nothing; on each side of 0 the functions are smooth, also between integers.
    Reference: Canonne, Kamath, Steinke 2020, Algorithm 2.
    """

    scale: float

    def __post_init__(self) -> None:
        require_positive(scale=self.scale)

    def grid(self, low: float, high: float, *, n_classes: int) -> Grid:
        """Return every integer between the counts and growing blocks of Gauss nodes in the tails.

        The density has a kink at every count, so no stride is allowed between them. Beyond the
        counts it is a sum of exponentials: a block of integers is summed by a few nodes.
        """
        _require_room(high - low, scale=self.scale)
        first, last = math.floor(low) - 1, math.ceil(high) + 1
        inner = np.arange(first, last + 1, dtype=np.float64)
        offset, weight = _tail_nodes(self.scale, n_classes)
        x = np.concatenate([first - 1 - offset, inner, last + 1 + offset])
        log_weight = np.concatenate([np.log(weight), np.zeros(inner.size), np.log(weight)])
        return _with_ties(x, log_weight, _tie_nodes(self.scale, n_classes))

    def log_density(self, x: Floats) -> Floats:
        return np.asarray(math.log(math.tanh(0.5 / self.scale)) - np.abs(x) / self.scale)

    def log_cdf(self, x: Floats, u: Floats | float = 1.0) -> Floats:
        rate = 1 / self.scale
        log_total = math.log1p(math.exp(-rate))
        u = np.asarray(u)
        # P[X < x] = e^{rate (x-1)} / (1 + e^-rate) for x <= 0, else 1 - e^{-rate x} / (1 + e^-rate);
        # P[X = x] = (1 - e^-rate) / (1 + e^-rate) e^{-rate |x|}.
        shrink = -math.expm1(-rate)
        below = rate * x + np.log(math.exp(-rate) + u * shrink) - log_total
        above = np.log1p(-np.exp(-rate * np.maximum(x, 0) - log_total) * (1 - u * shrink))
        return np.where(x <= 0, below, above)


@lru_cache(maxsize=64)
def _tail_nodes(scale: float, n_classes: int) -> tuple[Floats, Floats]:
    """Return nodes and weights that sum exponentials of rate 1/scale .. m/scale over 0, 1, 2, ..."""
    n_nodes, end = 16, 45 * scale
    start, length = 0, max(1, round(4 * scale / n_classes))
    nodes, weights = [], []
    while start < end:
        node, weight = _block_nodes(length, n_nodes)
        nodes.append(start + node)
        weights.append(weight)
        start += length
        length = max(length, start)
    return np.concatenate(nodes), np.concatenate(weights)


def _block_nodes(length: int, n_nodes: int) -> tuple[Floats, Floats]:
    """Gauss nodes for the sum over 0 .. length-1 (discrete Chebyshev polynomials, Golub-Welsch)."""
    if length <= 2 * n_nodes:
        return np.arange(length, dtype=np.float64), np.ones(length)
    n = np.arange(1, n_nodes, dtype=np.float64)
    off = n / 2 * np.sqrt((length**2 - n**2) / (4 * n**2 - 1))
    matrix = np.diag(np.full(n_nodes, (length - 1) / 2)) + np.diag(off, 1) + np.diag(off, -1)
    node, vectors = np.linalg.eigh(matrix)
    return node, length * vectors[0] ** 2


@dataclass(frozen=True)
class ContinuousGaussian:
    """The Gaussian of the papers; not drawn on integer votes, kept to compare with published bounds.

    Guarantee: winning probabilities by the trapezoid rule, which converges faster than any power.
    Assumes:   counts may be real.
    Reference: Papernot et al. 2018, section 4.1.
    """

    sigma: float

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)

    def grid(self, low: float, high: float, *, n_classes: int) -> Grid:
        step = gaussian_step(self.sigma, n_classes)
        n_points = math.ceil((high - low + 2 * _REACH * self.sigma) / step) + 1
        x = low - _REACH * self.sigma + step * np.arange(n_points)
        return Grid(x, np.zeros(n_points), np.full(n_points, math.log(step)))

    def log_density(self, x: Floats) -> Floats:
        return np.asarray(-0.5 * (x / self.sigma) ** 2 - math.log(self.sigma * math.sqrt(2 * math.pi)))

    def log_slope(self, x: Floats, u: Floats | float) -> Floats:
        """Return the log of how fast the distribution function grows: the log density."""
        return self.log_density(x)

    def log_cdf(self, x: Floats, u: Floats | float = 1.0) -> Floats:
        """Return the log of the distribution function; ties do not happen."""
        return np.asarray(log_ndtr(x / self.sigma))
