"""Noise that answering parties add, so that a guardian who tells its own still leaves enough.

Every answering party adds a discrete Gaussian share to the mask it sends. The sum of discrete Gaussians is no
discrete Gaussian, but nearly one, and how nearly can be said exactly. With phi_v(z) = exp(-z^2 / 2v), the sum
of a variable of weights R(x) phi_v(x) and a discrete Gaussian of variance t has the weights

    sum_x R(x) phi_v(x) phi_t(z - x) = phi_{v+t}(z) sum_x R(x) phi_s(x - c z),   1/s = 1/v + 1/t,  c = s/t.

By Poisson's summation formula a sum of phi_s over shifted integers is sqrt(2 pi s) times 1 + 2 sum_k
exp(-2 pi^2 s k^2) cos(2 pi k shift): between 1 - h and 1 + h. Starting from R = 1 and adding one share
after the other, the ratio of the largest to the smallest R grows by at most (1 + h) / (1 - h) each time.
`gap` is the log of that ratio; a Rényi divergence of order a then exceeds the discrete Gaussian's by at most
gap a / (a - 1), in each number that moves, and by nothing in those that do not.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_positive
from ..mechanisms.labels.perlabel import PerLabel
from ..rdp import RdpCurve, check_orders
from .last_step import require_confidential

Floats = NDArray[np.float64]
_LEAST = math.sqrt(0.5)  # Below, discrete Gaussians are too coarse for their sum to be nearly one.


def share_sigma(sigma: float, *, n_shares: int) -> float:
    """Return the noise of each share such that `n_shares` of them have the variance sigma^2, or more.

    Count only shares that are surely there and unknown to others: the quorum, less those who may collude.

    >>> share_sigma(10.0, n_shares=4)
    5.0
    """
    require_positive(sigma=sigma)
    require_count(n_shares=n_shares)
    exact = max(sigma / math.sqrt(n_shares), _LEAST)
    while n_shares * exact**2 < sigma**2:
        exact = math.nextafter(exact, math.inf)
    return exact


def gap(sigma: float, n_shares: int) -> float:
    """Return how far a sum of discrete Gaussians is from a discrete Gaussian: the log of max / min ratio.

    Guarantee: log P[sum = z] + z^2 / (2 n_shares sigma^2) varies by at most the gap over all whole z.
    Assumes:   independent shares of one sigma, at least sqrt(1/2).
    Reference: derived at the top of this module. Kairouz, Liu and Steinke 2021 (arXiv:2102.06387) bound the
               distance from the discrete Gaussian itself, by the same exponent and a larger constant.

    >>> gap(1.0, 1), gap(1.0, 5) < 1e-2, gap(3.0, 5) < 1e-30
    (0.0, True, True)
    """
    require_positive(sigma=sigma)
    require_count(n_shares=n_shares)
    if sigma < _LEAST:
        raise ValueError(
            f"Expected shares of sigma at least {_LEAST:.4f}, got {sigma!r}. Let each add more noise."
        )
    total = 0.0
    for n in range(1, n_shares):
        # One more share beside n of them: s = sigma^2 n / (n + 1). Terms past the tenth are below 1e-200.
        exponent = -2 * math.pi**2 * sigma**2 * n / (n + 1)
        ripple = 2 * math.fsum(math.exp(exponent * k**2) for k in range(1, 11))
        total += math.log1p(ripple) - math.log1p(-ripple)
    return total * (1 + 1e-12)


def sum_price(sigma: float, shift: int, *, n_shares: int, orders: ArrayLike | None = None) -> Floats:
    """Return the most that one number costs, if it moves by `shift` below `n_shares` shares of noise.

    Guarantee: bounds the Rényi divergence at every order, both ways: order shift^2 / (2 n_shares sigma^2),
               and what the gap adds; never more than one share alone would cost.
    Assumes:   as `gap`. Divergences grow with the order, so the bound of a larger order holds too; and who
               knows all shares but one sees a single discrete Gaussian.
    Reference: as `gap`; Canonne, Kamath, Steinke 2020, Theorem 4, for one share.

    >>> float(sum_price(10.0, 1, n_shares=4, orders=[2.0])[0])
    0.0025
    """
    grid = check_orders(orders)
    joint = grid * shift**2 / (2 * n_shares * sigma**2)
    if shift:
        joint = joint + gap(sigma, n_shares) * grid / (grid - 1)
    values = np.minimum(joint, grid * shift**2 / (2 * sigma**2))
    return np.asarray(np.minimum.accumulate(values[::-1])[::-1])


def price_without_guardian(
    mechanism: Any, sigma: float, *, n_shares: int, orders: ArrayLike | None = None
) -> RdpCurve:
    """Return what one query costs towards a guardian and an asker who tell each other everything.

    They see the whole noisy tally, below the shares of the answering parties that do not collude, and not an
    outcome alone. `sigma` is the noise of one share, in votes.

    Guarantee: bounds the divergence of all that they see, for one ballot that changes, at every order.
    Assumes:   the `n_shares` parties counted add their shares truly and keep them; pairwise masks, so that
               only sums over the answering set are seen.
    Reference: `sum_price`, over the dearest pair of ballots that the mechanism admits.

    >>> from tellers import GNMax, Unit
    >>> alone = price_without_guardian(GNMax(sigma=10.0), 5.0, n_shares=4)
    >>> told = GNMax(sigma=10.0).histogram_price(Unit())
    >>> bool(np.allclose(alone.values, told.values))
    True
    """
    require_confidential(mechanism)
    require_count(n_shares=n_shares)
    grid = check_orders(orders)
    if isinstance(mechanism, PerLabel):
        price = partial(sum_price, sigma, n_shares=n_shares, orders=grid)
        return RdpCurve(grid, mechanism.rule.dearest(price))
    # One vote leaves a class and enters another.
    return RdpCurve(grid, 2 * sum_price(sigma, 1, n_shares=n_shares, orders=grid))
