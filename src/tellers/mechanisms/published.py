"""The published data-dependent bounds: 2017 moments for LNMax, 2018 Theorem 6 for Gaussian noise.

Both say: when one outcome is nearly certain, a release costs far less than its worst case. They see the
votes through one number, q, a bound on the probability of every other outcome. All of it is in logs, since
q is 1e-300 as often as not. The bounds cover the forward divergence, with the real votes in the first place;
what comes out looks at the votes and is private.

The published q is for continuous noise. The `drawn` forms are for what is really drawn, integer noise with
ties broken uniformly: a guarantee about a run should use those (docs/maths/published-bounds.md).
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_finite, require_fraction, require_positive
from ..privacy._scipy import log_ndtr
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.votes import Votes
from ._check import answered_mask, log_pass_and_fail, student_probabilities, whole_thresholds
from ._flip_probability import log_q_gnmax, log_q_lnmax, whole_votes

_BLOCK = 1 << 16  # numbers per pass: a few such arrays stay in the cache, so 1e5 queries need no more memory


def log_accept(margin: ArrayLike, sigma_threshold: float, *, drawn: bool = False) -> tuple[Floats, Floats]:
    """Return (log P[accept], log P[reject]) of the noisy check: margin + noise >= 0.

    Guarantee: both are accurate in relative terms, also where one of them is below 1e-300.
    Assumes:   Gaussian noise as published; with `drawn`, discrete Gaussian noise and whole margins.
    Reference: Papernot et al. 2018, Algorithm 1 (the threshold check).
    """
    require_positive(sigma_threshold=sigma_threshold)
    margins = np.asarray(margin, dtype=np.float64)
    if drawn:
        return log_pass_and_fail(whole_votes(margins).astype(np.float64), sigma_threshold)
    return np.asarray(log_ndtr(margins / sigma_threshold)), np.asarray(log_ndtr(margins / -sigma_threshold))


def gaussian_bound(log_q: ArrayLike, sigma: float, *, orders: ArrayLike | None = None) -> Floats:
    """Return Theorem 6 for the noisy maximum of a histogram, one row per q and one column per order.

    Guarantee: D_order(P || P') at every neighbour of votes whose likely outcome fails with probability
               at most q; never above order / sigma^2.
    Assumes:   revealing the noisy histogram has Rényi cost order / sigma^2, and q is valid for the noise.
    Reference: Papernot et al. 2018, Theorem 6, with the orders of Proposition 10.
    """
    require_positive(sigma=sigma)
    grid, logs = check_orders(orders), _log_probabilities(log_q)
    variance = float(sigma) ** 2
    bound = np.empty((logs.size, grid.size))
    bound[:] = grid / variance
    bound[np.isneginf(logs)] = 0.0
    mu = sigma * np.sqrt(-logs)  # the paper's mu2; mu1 = mu2 + 1
    # Theorem 6 needs mu2 > 1; a mu2 of 1 up to rounding, as tiny noise makes it, does not count as larger.
    live = np.isfinite(logs) & (mu > 1 + 1e-7) & (mu + 1 >= grid[0])
    logs, mu = logs[live], mu[live]
    # The write-up prints this condition the wrong way round: Theorem 6 needs q small.
    limit = (mu - 1) * (mu / variance) - mu * (np.log1p(1 / mu) - np.log1p(-1 / mu))
    live[live] = holds = logs <= limit
    logs, mu = logs[holds], mu[holds]
    log_not_q = _log1mexp(logs)
    # (log q + mu2 / sigma^2) (1 - 1 / mu2) without its cancellation, as log q = -mu2^2 / sigma^2.
    log_a = log_not_q - _log1mexp(-((mu - 1) ** 2) / variance)
    log_b = (2 * mu + 1) / variance  # epsilon1 - log q / (mu1 - 1), since -log q = mu2^2 / sigma^2
    _mix(bound, np.flatnonzero(live), (log_not_q, log_a), (logs, log_b), steps=grid - 1, last=mu)
    return bound


def laplace_bound(
    log_q: ArrayLike,
    gamma: float,
    *,
    orders: ArrayLike | None = None,
    cap: Literal["published", "pure"] = "published",
) -> Floats:
    """Return the 2017 bound for a (2 gamma, 0)-private release, one row per q and one column per order.

    The moment alpha(l) of 2017 is l times the value at order l + 1.

    Guarantee: D_order(P || P') at every neighbour of votes whose likely outcome fails with probability
               at most q; never above min(2 gamma^2 order, 2 gamma), nor with cap="pure" above the exact
               curve of a (2 gamma, 0)-private release, which is sharper than what was published.
    Assumes:   the release is (2 gamma, 0)-differentially private. The data-dependent part is used only
               for q < (e^(2 gamma) - 1) / (e^(4 gamma) - 1), its range.
    Reference: Papernot et al. 2017, Theorems 2 and 3.
    """
    require_positive(gamma=gamma)
    if cap not in ("published", "pure"):
        raise ValueError(f"Expected cap 'published' or 'pure', got {cap!r}.")
    grid, logs = check_orders(orders), _log_probabilities(log_q)
    bound = np.empty((logs.size, grid.size))
    bound[:] = np.minimum(2 * gamma**2 * grid, 2 * gamma)
    if cap == "pure":
        bound = np.minimum(bound, RdpCurve.pure(2 * gamma, grid).values)
    bound[np.isneginf(logs)] = 0.0
    live = np.isfinite(logs) & (logs < -np.logaddexp(0, 2 * gamma))
    logs = logs[live]
    log_not_q = _log1mexp(logs)
    log_ratio = log_not_q - _log1mexp(logs + 2 * gamma)
    odds = np.full_like(logs, 2 * gamma)
    _mix(bound, np.flatnonzero(live), (log_not_q, log_ratio), (logs, odds), steps=grid - 1)
    return bound


def threshold_bound(
    log_p_accept: ArrayLike,
    log_p_reject: ArrayLike,
    *,
    sigma_threshold: float,
    orders: ArrayLike | None = None,
) -> Floats:
    """Return Theorem 6 for the noisy check, one row per query and one column per order.

    Guarantee: as `gaussian_bound`; never above order / (2 sigma_threshold^2).
    Assumes:   one ballot moves the checked margin by at most 1.
    Reference: Papernot et al. 2018, Theorem 6 with sigma = sqrt(2) sigma_threshold.
    """
    require_positive(sigma_threshold=sigma_threshold)
    rare = np.minimum(np.asarray(log_p_accept), np.asarray(log_p_reject))
    return gaussian_bound(rare, math.sqrt(2) * sigma_threshold, orders=orders)


def check_margins(votes: Votes, threshold: float, *, student: ArrayLike | None = None) -> NDArray[np.int64]:
    """Return max_j (n_j - t_j), the whole number that the noisy check compares with 0.

    t_j is the threshold, plus the student's expected votes for j where they are given, rounded up.
    """
    require_finite(threshold=threshold)
    expected = None if student is None else votes.n_votes[:, None] * student_probabilities(student, votes)
    return np.asarray((votes.counts - whole_thresholds(threshold, expected)).max(axis=1))


def published_gnmax(
    votes: Votes, sigma: float, *, orders: ArrayLike | None = None, drawn: bool = False, total: bool = False
) -> Floats:
    """Return the 2018 cost of GNMax: one row per query, or with `total` their sum.

    Guarantee: bounds D_order(P || P') for one changed ballot; see `gaussian_bound`.
    Assumes:   continuous noise as published; the noise that is drawn with `drawn`.
    Reference: Papernot et al. 2018, Theorem 6.

    >>> votes = Votes.from_counts([[250, 0], [130, 120]], n_teachers=250)
    >>> published_gnmax(votes, 40.0, orders=[8]).round(6).ravel()
    array([3.e-06, 5.e-03])
    """
    log_q = log_q_gnmax(votes.counts, sigma, drawn=drawn)
    return _price(lambda some: gaussian_bound(some, sigma, orders=orders), log_q, total=total)


def published_lnmax(
    votes: Votes, gamma: float, *, orders: ArrayLike | None = None, drawn: bool = False, total: bool = False
) -> Floats:
    """Return the 2017 cost of LNMax: one row per query, or with `total` their sum.

    Guarantee: bounds D_order(P || P') for one changed ballot; see `laplace_bound`.
    Assumes:   continuous noise as published; the noise that is drawn with `drawn`.
    Reference: Papernot et al. 2017, Theorems 2 and 3.
    """
    log_q = log_q_lnmax(votes.counts, gamma, drawn=drawn)
    return _price(lambda some: laplace_bound(some, gamma, orders=orders), log_q, total=total)


def published_confident(
    votes: Votes,
    sigma: float,
    *,
    threshold: float,
    sigma_threshold: float,
    answered: ArrayLike | None = None,
    student: ArrayLike | None = None,
    orders: ArrayLike | None = None,
    drawn: bool = False,
    total: bool = False,
) -> Floats:
    """Return the 2018 cost of Confident GNMax: every check, and GNMax for what was answered.

    With `student`, that of Interactive GNMax: checked against the student's votes, one public probability
    per query and class. `answered` then marks what the teachers answered; a label the student keeps is free.
    With `answered` it is the cost along the path that was taken, as the paper reports it. Without,
    GNMax is weighted by P[answer]: an expectation over the checks, and no bound for any one run.

    Guarantee: each part bounds D_order(P || P') of its release.
    Assumes:   with `answered`, that the mask is what the checks released; queries that depend on earlier
               answers are counted along the path taken.
    Reference: Papernot et al. 2018, sections 4.2 and 4.3.
    """
    log_accepts, log_rejects = log_accept(
        check_margins(votes, threshold, student=student), sigma_threshold, drawn=drawn
    )
    weights = np.exp(log_accepts) if answered is None else answered_mask(answered, votes).astype(np.float64)
    log_q = log_q_gnmax(votes.counts, sigma, drawn=drawn)
    answers = _price(
        lambda some: gaussian_bound(some, sigma, orders=orders), log_q, weights=weights, total=total
    )
    rare, sigma_check = np.minimum(log_accepts, log_rejects), math.sqrt(2) * sigma_threshold
    answers += _price(lambda some: gaussian_bound(some, sigma_check, orders=orders), rare, total=total)
    return answers


def moments_epsilon(moments: ArrayLike, delta: float) -> float:
    """Return the 2017 epsilon of moments: the minimum over l of (alpha(l) + log(1/delta)) / l.

    Guarantee: (epsilon, delta) for the votes at hand, where the moments bound the privacy loss.
    Assumes:   entry l - 1 holds alpha(l), summed over the queries.
    Reference: Papernot et al. 2017, Theorem 1 (the tail bound).
    """
    require_fraction(delta=delta)
    alpha = np.asarray(moments, dtype=np.float64)
    if alpha.ndim != 1 or alpha.size == 0 or not np.all(alpha >= 0):
        raise ValueError(f"Expected at least one moment >= 0 in a row, got shape {alpha.shape}.")
    return float(np.min((alpha - math.log(delta)) / np.arange(1, alpha.size + 1)))


def advanced_composition(gamma: float, n_queries: int, *, delta: float) -> float:
    """Return the 2017 data-independent epsilon of LNMax: 4 T gamma^2 + 2 gamma sqrt(2 T log(1/delta)).

    Guarantee: `n_queries` answers of LNMax together are (epsilon, delta)-differentially private.
    Assumes:   each is (2 gamma, 0)-private.
    Reference: Papernot et al. 2017, section 3.2.
    """
    require_positive(gamma=gamma)
    require_count(0, n_queries=n_queries)
    require_fraction(delta=delta)
    return 4 * n_queries * gamma**2 + 2 * gamma * math.sqrt(-2 * n_queries * math.log(delta))


def _mix(
    bound: Floats,
    rows: NDArray[np.intp],
    likely: tuple[Floats, Floats],
    rare: tuple[Floats, Floats],
    *,
    steps: Floats,
    last: Floats | None = None,
) -> None:
    """Lower bound[rows] to log(likely + rare) / step; the log of each part is base + step * slope."""
    size = max(1, _BLOCK // steps.size)
    for start in range(0, rows.size, size):
        part = slice(start, start + size)
        first = likely[1][part, None] * steps + likely[0][part, None]
        second = rare[1][part, None] * steps + rare[0][part, None]
        np.logaddexp(first, second, out=first)
        first /= steps
        np.maximum(first, 0.0, out=first)
        if last is not None:
            first[steps > last[part, None]] = np.inf  # Theorem 6 holds up to order mu1 = last + 1
        bound[rows[part]] = np.minimum(first, bound[rows[part]])


def _price(
    bound: Callable[[Floats], Floats], log_q: Floats, *, weights: Floats | None = None, total: bool = False
) -> Floats:
    if not total:
        rows = bound(log_q)
        return rows if weights is None else rows * weights[:, None]
    # Unanimous queries share one q, so the sum runs over the distinct ones, in chunks.
    distinct, place = np.unique(log_q, return_inverse=True)
    times = np.bincount(place.ravel(), weights=weights, minlength=distinct.size).astype(np.float64)
    chunks = [slice(i, i + 4096) for i in range(0, max(1, distinct.size), 4096)]
    return np.asarray(sum(times[chunk] @ bound(distinct[chunk]) for chunk in chunks))


def _log_probabilities(values: ArrayLike) -> Floats:
    logs = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if logs.ndim != 1 or not np.all(logs <= 0):
        raise ValueError(f"Expected a row of log-probabilities <= 0 without NaN, got shape {logs.shape}.")
    return logs


def _log1mexp(x: Floats) -> Floats:
    """Return log(1 - e^x) for x <= 0 without cancellation at either end."""
    with np.errstate(divide="ignore"):
        return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))
