"""How far the logarithm of a sum of costs moves: the largest quotient of two sums, by distance.

The logarithm of a cost f with an offset moves by log(1 + r), r being what a ballot adds to f, divided by
f + offset. Both are sums over queries, and every ballot moves every term. The largest quotient within reach
is found without looking at combinations: a quotient is at least r iff the largest sum of (change - r * cost)
within reach is at least r * offset, and that largest sum is taken term by term.
"""

import numpy as np

from ..privacy.rdp import Floats

_N_SLOPES = 40


def slopes_up_to(largest: Floats) -> Floats:
    """Return the slopes at which quotients are looked at, along a new last axis; between two is a chord."""
    steps = np.append(0.0, np.geomspace(1e-3, 1, _N_SLOPES - 1))
    return np.asarray(np.asarray(largest)[..., None] * steps)


def largest_quotients(slopes: Floats, excess: Floats, offset: float) -> Floats:
    """Return at least the largest quotient (sum of changes) / (sum of costs + offset), by distance.

    `excess` (..., slopes, distances) is the largest sum of changes - slope * costs within a distance, at
    slopes (..., slopes) that begin at 0 and end at or above every quotient.

    Guarantee: never below the largest quotient; where the excess is larger at every slope the result is no
               smaller. So results of neighbours interleave where their excesses do.
    Assumes:   slopes that were fixed before voting.
    Reference: Dinkelbach 1967. The excess is convex in the slope: its chords lie above it, and where a
               chord crosses slope * offset is no less than where it does.
    """
    left = excess - (slopes * offset)[..., None]
    left[..., -1, :] = np.minimum(left[..., -1, :], 0.0)
    at = np.argmax(left <= 0, axis=-2)[..., None, :]
    before = np.maximum(at - 1, 0)
    grid = np.broadcast_to(slopes[..., None], left.shape)
    (high, low), (start, end) = (
        (
            np.take_along_axis(values, before, axis=-2)[..., 0, :],
            np.take_along_axis(values, at, axis=-2)[..., 0, :],
        )
        for values in (left, grid)
    )
    part = np.divide(high, high - low, out=np.ones_like(high), where=high > low)
    return np.asarray(start + part * (end - start))


def log_moves(rise: Floats, fall: Floats) -> tuple[Floats, Floats]:
    """Return how far the logarithm moves up and down by these quotients; infinite where all may be lost."""
    down = np.full_like(fall, np.inf)
    np.log1p(-fall, out=down, where=fall < 1)
    return np.log1p(rise), np.abs(down)
