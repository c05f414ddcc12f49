"""How likely the noise upsets the plurality: the one number, q, through which published bounds see the votes.

q bounds the probability that another class than the plurality wins, by adding up, over its rivals, how
likely each one overtakes it. All of it is in logs. The published q is for continuous noise; `drawn` is for
integer noise with ties broken uniformly, which is what the mechanisms draw.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_positive
from ..privacy._scipy import log_ndtr
from ..privacy.rdp import Floats


def log_q_gnmax(counts: ArrayLike, sigma: float, *, drawn: bool = False) -> Floats:
    """Return, per query, the log of a bound on P[GNMax does not answer with the plurality].

    Guarantee: q = min(sum over rivals of erfc(gap / 2 sigma) / 2, 1 - 1/m) bounds that probability. `drawn`
               sums P[D > gap] + P[D = gap] / 2, D the difference of two discrete Gaussians.
    Assumes:   independent Gaussian noise of standard deviation sigma on every count; `drawn`, discrete noise,
               ties broken uniformly and whole counts.
    Reference: Papernot et al. 2018, Proposition 7; the second bound because the plurality wins most often;
               docs/maths/published-bounds.md (the law of D in closed form).
    """
    require_positive(sigma=sigma)
    log_tail = _log_tail_drawn_gaussian if drawn else _log_tail_gaussian
    return _log_q(counts, lambda gap: log_tail(gap, sigma))


def log_q_lnmax(counts: ArrayLike, gamma: float, *, drawn: bool = False) -> Floats:
    """Return, per query, the log of a bound on P[LNMax does not answer with the plurality].

    Guarantee: q = min(sum over rivals of (2 + gamma gap) / (4 e^(gamma gap)), 1 - 1/m) bounds it. `drawn` is
               never above that, so the published bound also holds for the noise that is drawn.
    Assumes:   as `log_q_gnmax`, with Laplace noise of scale 1/gamma.
    Reference: Papernot et al. 2017, Lemma 4; docs/maths/published-bounds.md.
    """
    require_positive(gamma=gamma)
    log_tail = _log_tail_drawn_laplace if drawn else _log_tail_laplace
    return _log_q(counts, lambda gap: log_tail(gap, gamma))


def whole_votes(values: ArrayLike) -> NDArray[np.int64]:
    """Return votes as integers, refusing fractions."""
    table = np.asarray(values)
    whole = table.astype(np.int64)
    if np.any(whole != table):
        raise ValueError("Expected whole votes for the noise that is drawn; use drawn=False for fractions.")
    return whole


def _log_q(counts: ArrayLike, log_tail: Callable[[NDArray[np.generic]], Floats]) -> Floats:
    """Return the log of the union bound over the rivals of the plurality, at most 1 - 1/m."""
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(f"Expected counts of shape (queries, classes >= 2), got shape {table.shape}.")
    if table.dtype.kind == "f" and not np.all(np.isfinite(table)):
        raise ValueError("Expected finite counts, got NaN or infinity.")
    best = table.argmax(axis=1)[:, None]
    gaps = np.take_along_axis(table, best, axis=1) - table
    if gaps.dtype.kind in "iu" and gaps.size > gaps.max(initial=0):
        logs = log_tail(np.arange(gaps.max(initial=0) + 1))[gaps]  # few distinct gaps: one lookup each
    else:
        logs = log_tail(gaps)
    np.put_along_axis(logs, best, -np.inf, axis=1)
    largest = logs.max(axis=1)
    union = largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1))
    return np.asarray(np.minimum(union, math.log1p(-1 / table.shape[1])))


def _log_tail_gaussian(gap: ArrayLike, sigma: float) -> Floats:
    """Return log P[a rival `gap` votes behind wins the comparison], Gaussian noise."""
    return np.asarray(log_ndtr(np.asarray(gap, dtype=np.float64) / (-math.sqrt(2) * sigma)))


def _log_tail_laplace(gap: ArrayLike, gamma: float) -> Floats:
    """Return log P[a rival `gap` >= 0 votes behind wins the comparison], Laplace noise."""
    scaled = gamma * np.asarray(gap, dtype=np.float64)
    return np.asarray(np.log1p(scaled / 2) - math.log(2) - scaled)


def _log_tail_drawn_gaussian(gap: ArrayLike, sigma: float) -> Floats:
    """Return log(P[D > gap] + P[D = gap] / 2), D the difference of two discrete Gaussians."""
    whole = whole_votes(gap)
    last = int(whole.max(initial=0))
    # Past `last` the pmf falls at least as fast as from its peak, so e^-72 of the sum is left out.
    k = np.arange(last + math.ceil(17 * sigma) + 3)
    # x^2 + (x+k)^2 = 2 (x + k/2)^2 + k^2/2: the convolution depends on k through its square and parity.
    parity = np.array([_log_theta(sigma / math.sqrt(2), 0.0), _log_theta(sigma / math.sqrt(2), 0.5)])
    log_pmf = parity[k % 2] - 2 * _log_theta(sigma, 0.0) - (k / (2 * sigma)) ** 2
    onwards = np.logaddexp.accumulate(log_pmf[::-1])[::-1]
    # P[D > k] + P[D = k] / 2 is the mean of P[D >= k] and P[D > k].
    return np.asarray(np.logaddexp(onwards[: last + 1], onwards[1 : last + 2])[whole] - math.log(2))


def _log_tail_drawn_laplace(gap: ArrayLike, gamma: float) -> Floats:
    """Return log(P[D > gap] + P[D = gap] / 2), D the difference of two discrete Laplace variables."""
    whole = whole_votes(gap)
    # The sum telescopes to (1 + k tanh(gamma/2)) / (2 e^(gamma k)), below Lemma 4 because tanh(x) <= x.
    return np.asarray(np.log1p(whole * math.tanh(gamma / 2)) - math.log(2) - gamma * whole)


def _log_theta(sigma: float, offset: float) -> float:
    """Return the log of the sum over integers x of exp(-(x + offset)^2 / (2 sigma^2))."""
    if sigma > 4:  # Poisson summation: the next term is e^(-2 pi^2 sigma^2) < 1e-137
        return math.log(sigma) + math.log(2 * math.pi) / 2
    return float(np.logaddexp.reduce(-((np.arange(-200, 201) + offset) ** 2) / (2 * sigma**2)))
