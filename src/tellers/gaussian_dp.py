"""Exact composition of releases whose worst case is known: no Rényi curve, no conversion loss.

Gaussian noise composes to one Gaussian, pure privacy to a binomial, and the discrete Gaussian, which
has no closed form, numerically. All of these hold for a number of releases that was fixed beforehand, and
charge for the whole noisy histogram. No ledger goes by them: they stand beside the public number, to compare.
"""

import math
from importlib.util import find_spec

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, gammaln, log_ndtr

from .errors import MissingExtra, require_count, require_fraction, require_positive

# Upward, by more than the rounding of what was computed.
_UP = 1 + 1e-9
# Connecting the dots adds at most step^2 / 4 to the variance of each privacy loss: one part in 10^6.
_STEP = 2e-3
_MOST_STEPS = 2_000_000


def gaussian_dp_mu(sigma: float, n_answers: int, *, sigma_threshold: float = 1.0, n_checks: int = 0) -> float:
    """Return mu of noisy histograms and noisy checks together.

    mu^2 is 2 / sigma^2 for every histogram and 1 / sigma_threshold^2 for every check.

    Guarantee: all of them together are as hard to tell apart as N(0, 1) and N(mu, 1).
    Assumes:   continuous Gaussian noise; one ballot moves two counts of a histogram, and a check, by 1.
    Reference: Dong, Roth, Su 2022, Corollary 3.3.

    >>> round(gaussian_dp_mu(40.0, 461), 3)
    0.759
    """
    require_positive(sigma=sigma, sigma_threshold=sigma_threshold)
    require_count(0, n_answers=n_answers, n_checks=n_checks)
    return math.sqrt(2 * n_answers / sigma**2 + n_checks / sigma_threshold**2)


def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-Gaussian privacy: N(0, 1) against N(mu, 1), exactly.

    Guarantee: the smallest epsilon at this delta, raised by one part in 10^9.
    Assumes:   mu >= 0; continuous noise. What is drawn here is discrete: `discrete_gaussian_pld_epsilon`.
    Reference: Balle and Wang 2018, Theorem 8.

    >>> round(gaussian_dp_epsilon(gaussian_dp_mu(40.0, 461), 1e-5), 2)
    3.19
    """
    require_fraction(delta=delta)
    if mu == 0:
        return 0.0
    require_positive(mu=mu)
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return _log_delta(mu, epsilon) - target

    if excess(0.0) <= 0:
        return 0.0
    # There the first term alone is below delta: Phi(-t) <= e^(-t^2 / 2).
    enough = mu**2 / 2 + mu * math.sqrt(-2 * target)
    return float(brentq(excess, 0.0, enough, xtol=1e-300, rtol=1e-12)) * _UP


def _log_delta(mu: float, epsilon: float) -> float:
    """Return log(Phi(a) - e^epsilon Phi(a - mu)), a = mu/2 - epsilon/mu, without cancellation in the tail."""
    a = mu / 2 - epsilon / mu
    b = a - mu
    if a > 0:
        log_first, log_second = float(log_ndtr(a)), epsilon + float(log_ndtr(b))
        return log_first + math.log(-math.expm1(min(log_second - log_first, -1e-300)))
    # e^epsilon phi(b) = phi(a), so both terms share that factor and their ratios to it are erfcx.
    gap = float(erfcx(-a / math.sqrt(2)) - erfcx(-b / math.sqrt(2))) / 2
    return -a * a / 2 + math.log(max(gap, 5e-324))


def pure_dp_epsilon(epsilon: float, n_releases: int, *, delta: float) -> float:
    """Return the epsilon of many (epsilon, 0)-private releases, also adaptive ones, exactly.

    Guarantee: the smallest epsilon that holds for every such composition, raised by one part in 10^9;
               never above n_releases * epsilon.
    Assumes:   every release is (epsilon, 0)-differentially private.
    Reference: Kairouz, Oh, Viswanath 2015, Theorem 3.3 (randomised response is the worst case).

    >>> round(pure_dp_epsilon(0.05, 200, delta=1e-5), 2), round(pure_dp_epsilon(0.1, 100, delta=1e-5), 2)
    (2.92, 4.31)
    """
    require_positive(epsilon=epsilon)
    require_count(0, n_releases=n_releases)
    require_fraction(delta=delta)
    if n_releases == 0:
        return 0.0
    n, target = int(n_releases), math.log(delta)
    # With j lies among n the privacy loss is (n - 2 j) epsilon: binomial, largest loss first.
    lies = np.arange(n // 2 + 1, dtype=np.float64)
    loss = (n - 2 * lies) * epsilon
    log_true, log_lie = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    ways = gammaln(n + 1) - gammaln(lies + 1) - gammaln(n - lies + 1)
    here = np.logaddexp.accumulate(ways + (n - lies) * log_true + lies * log_lie)
    there = np.logaddexp.accumulate(ways + lies * log_true + (n - lies) * log_lie)
    # Between two losses delta(e) = P - e^e Q, with P and Q the mass of the larger losses on both sides.
    log_delta = here[:-1] + np.log(-np.expm1(np.minimum(loss[1:] + there[:-1] - here[:-1], -1e-300)))
    passed = np.flatnonzero(log_delta > target)
    k = int(passed[0]) if passed.size else len(loss) - 1
    if here[k] <= target:
        return float(min(loss[k], n * epsilon))
    exact = float(here[k] + math.log(-math.expm1(target - here[k])) - there[k])
    return min(max(exact, 0.0) * _UP, n * epsilon)


def has_pld() -> bool:
    """Say whether the library behind `discrete_gaussian_pld_epsilon` is installed.

    >>> has_pld() in (True, False)
    True
    """
    return find_spec("dp_accounting") is not None


def discrete_gaussian_pld_epsilon(
    sigma: float, n_answers: int, *, delta: float, sigma_threshold: float = 1.0, n_checks: int = 0
) -> float:
    """Return the epsilon of noisy histograms and noisy checks with the discrete noise that is drawn.

    Guarantee: an upper estimate of the exact composition, within about one part in 10^5; infinite where
               delta is so small (1e-12, and 1e-14 per release) that rounding could hide behind it.
    Assumes:   discrete Gaussian noise; one ballot moves two counts of a histogram, and a check, by 1.
    Reference: Doroshenko et al. 2022 (connecting the dots of a privacy loss distribution).

    >>> if has_pld():
    ...     assert round(discrete_gaussian_pld_epsilon(40.0, 461, delta=1e-5), 2) == 3.19
    """
    mu = gaussian_dp_mu(sigma, n_answers, sigma_threshold=sigma_threshold, n_checks=n_checks)
    require_fraction(delta=delta)
    if mu == 0:
        return 0.0
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise MissingExtra(
            "Expected the library dp-accounting for the exact composition of discrete noise, found none. "
            "Install it with: pip install 'tellers[accounting]'"
        ) from error
    n_shifts = 2 * n_answers + n_checks
    # The transforms of the composition round, by 2e-13 of mass where 10,000 releases were compared with
    # the exact sum. That is taken off delta fifty-fold.
    spare = 1e-13 + 1e-15 * n_shifts
    if delta <= 10 * spare:
        return math.inf
    step = max(_STEP * mu / math.sqrt(n_shifts), (12 * mu + mu**2) / _MOST_STEPS)
    total = privacy_loss_distribution.identity(value_discretization_interval=step)
    # A histogram is two shifts by one, each with noise of its own.
    for scale, times in ((sigma, 2 * n_answers), (sigma_threshold, n_checks)):
        if times:
            one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
                scale, sensitivity=1, value_discretization_interval=step, use_connect_dots=True
            )
            total = total.compose(one.self_compose(int(times)))
    return float(total.get_epsilon_for_delta(delta - spare))
