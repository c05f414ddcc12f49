"""Prices on a Gaussian clock, solved from the inequality that defines them; nothing of the library is used.

With w(b, k) the hockey stick of N(0, 1) and N(sqrt b, 1) at e^k, a kind of outcome may cost c_kind where b is
left before it if, for all pairs of laws of the question and all k,

    sum over outcomes of P(o) w(b - c_kind(o), k + s(o))  <=  w(b, k) + kappa.

This is a second solution, by bisection on plain grids, of what `tellers.mechanisms` has tables for.
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr


def w(level, k):
    """Return the hockey stick of two unit Gaussians at squared distance `level`, at e^k."""
    level, k = np.broadcast_arrays(np.asarray(level, float), np.asarray(k, float))
    root = np.sqrt(np.maximum(level, 1e-200))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        smooth = ndtr(-k / root + root / 2) - np.exp(k + log_ndtr(-k / root - root / 2))
        hinge = np.maximum(0.0, -np.expm1(np.minimum(k, 0.0)))
    return np.where(level > 1e-150, np.maximum(smooth, hinge), hinge)


def start(epsilon, most):
    """Return the largest level with w(level, epsilon) <= most."""
    low, high = 0.0, 1.0
    while w(high, epsilon) <= most:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if w(middle, epsilon) <= most else (low, middle)
    return low


def excess(family, level, price, shares, kappa, *, n_points=160):
    """Return by how much, and with which pairs, the inequality is broken: at most 0 if it is kept.

    `level` is left after the dearest kind, kind j costs `shares[j]` of the price.
    """
    reach = float(np.abs(family.s).max())
    # k >= 0 is enough: below, it is the other order of the same pair. Beyond 8.3 deviations nothing is left.
    k = np.linspace(0.0, 8.3 * math.sqrt(level + price) + reach, n_points)
    right = w(level + price, k) + kappa
    sums = np.zeros((len(family.p), k.size))
    for o, kind in enumerate(family.kinds):
        sums += family.p[:, o, None] * w(level + price * (1 - shares[kind]), k + family.s[:, o, None])
    # Between two points the left side is at most what it is at the lower one, but so is the right side: the
    # points lie closely, and the price is raised for it below.
    over = sums - right
    return float(over.max()), np.unique(over.argmax(axis=0))


def price(family, level, shares, kappa):
    """Return the least price at a level, by bisection over the pairs that matter."""
    low, high = 0.0, 4 * family.information + 1e-9
    while excess(family, level, high, shares, kappa)[0] > 0:
        high *= 2
    _, rows = excess(family, level, high, shares, kappa)
    while True:
        some, low_, high_ = family.only(rows), low, high
        for _ in range(22):
            middle = (low_ + high_) / 2
            over = excess(some, level, middle, shares, kappa)[0] > 0
            low_, high_ = (middle, high_) if over else (low_, middle)
        worst, more = excess(family, level, high_, shares, kappa)
        joined = np.union1d(rows, more)
        if worst <= 0 or joined.size == rows.size:
            return high_ * (1 + 1e-3)
        rows, low = joined, 0.0


def table(family, *, kappa, shares=None, ladder=(0, 0.5, 1, 2, 4, 8, 16, 40)):
    """Return levels, in squared distances, and for every kind its prices at them."""
    shares = (1.0,) * family.n_kinds if shares is None else shares
    step = family.information
    levels = [step * at for at in ladder]
    found = [price(family, level, shares, kappa) for level in levels]
    # A price holds at every higher level too.
    dearest = np.minimum.accumulate(found)
    return levels, [[share * float(one) for one in dearest] for share in shares]
