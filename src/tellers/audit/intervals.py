"""Clopper-Pearson bounds on a probability, and the epsilon that two of them prove."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from ..errors import require_fraction

Floats = NDArray[np.float64]


def lower_bound(hits: ArrayLike, n_trials: int, *, miss: float) -> Floats:
    """Return what a probability is at least, after so many hits.

    Guarantee: above the probability with chance at most `miss`, whatever the probability is.
    Assumes:   independent trials, and an event that was chosen without looking at them.
    Reference: Clopper and Pearson 1934.

    >>> lower_bound([0, 5, 100], 100, miss=0.025).round(4)
    array([0.    , 0.0164, 0.9638])
    """
    require_fraction(miss=miss)
    seen = np.asarray(hits, dtype=np.float64)
    # Without a hit nothing is known from below; a 1 stands in, since betaincinv takes no 0.
    return np.asarray(np.where(seen > 0, betaincinv(np.maximum(seen, 1), n_trials - seen + 1, miss), 0.0))


def upper_bound(hits: ArrayLike, n_trials: int, *, miss: float) -> Floats:
    """Return what a probability is at most, after so many hits.

    Guarantee: below the probability with chance at most `miss`, whatever the probability is.
    Assumes:   as `lower_bound`.
    Reference: Clopper and Pearson 1934.

    >>> upper_bound([0, 5, 100], 100, miss=0.025).round(4)
    array([0.0362, 0.1128, 1.    ])
    """
    return np.asarray(1 - lower_bound(n_trials - np.asarray(hits, dtype=np.float64), n_trials, miss=miss))


def epsilon_of_event(
    hits: ArrayLike, n_trials: int, hits_there: ArrayLike, n_there: int, *, delta: float, miss: float
) -> Floats:
    """Return the epsilon that an event proves: no smaller one allows probabilities this far apart.

    Guarantee: above the true epsilon at `delta` with chance at most `miss`, half of it for each probability.
    Assumes:   as `lower_bound`; the trials are releases at two neighbouring inputs.
    Reference: the definition: p <= e^epsilon q + delta for every event, so epsilon >= log((p - delta) / q).

    >>> epsilon_of_event([900, 500], 1000, [100, 500], 1000, delta=1e-5, miss=0.05).round(2)
    array([1.99, 0.  ])
    """
    p = lower_bound(hits, n_trials, miss=miss / 2)
    q = upper_bound(hits_there, n_there, miss=miss / 2)
    above = np.maximum(p - delta, 0.0)
    return np.asarray(np.log(np.where(above > q, above / q, 1.0)))
