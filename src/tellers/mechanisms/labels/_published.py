"""The published data-dependent bounds on many labels: Theorem 6 of 2018, label by label or for a whole query.

The papers see the votes through q, a bound on the probability that the likely outcome does not come out, and
apply Theorem 6 to it. What differs is whose q: Binary and tau voting add over labels, each with a q of its
own; Powerset has one arg max over all sets; GNThreshold has one q for all labels together. The numbers here
use the sensitivity that a changed ballot really has, so they bound the forward divergence. What the papers
print with a smaller one is in the functions whose names begin with `as_published`: for their tables, and no
bound.

Everything that looks at votes is private.
"""

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_positive
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.votes import Votes
from .._admission import require_label_votes
from .._check import answered_mask
from ._rules import Norm

if TYPE_CHECKING:
    from .gnthreshold import SumOverShare

Mask = NDArray[np.bool_]
LabelMechanism: TypeAlias = Any
"""A mechanism for many labels, with `plain_rates` and `published_rows` as `PerLabel` has them."""


def labels_told(
    mechanism: LabelMechanism, n_queries: int, n_answers: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Return how many labels of each query are charged an answer.

    All of them, unless `n_answers` says how many queries were answered, or how many labels of each.
    """
    k = mechanism.n_labels
    if n_answers is None or getattr(mechanism, "one_price", False):
        return np.full(n_queries, k)
    given = np.asarray(n_answers, dtype=np.int64)
    told = np.repeat([k, 0], [int(given), n_queries - int(given)]) if given.ndim == 0 else given
    if told.shape != (n_queries,) or told.min(initial=0) < 0 or told.max(initial=0) > k:
        raise ValueError(
            f"Expected for each of {n_queries} queries how many of its {k} labels were told, got shape "
            f"{told.shape} or a number out of range."
        )
    return told


def plain_cost(mechanism: LabelMechanism, n_queries: int, *, n_answers: ArrayLike | None = None) -> float:
    """Return what a run costs per order if all its noisy sums were told, see `PerLabel.plain_rates`."""
    rate: float = n_queries * mechanism.plain_rates()[0]
    told = labels_told(mechanism, n_queries, n_answers)
    for n_told, times in zip(*np.unique(told[told > 0], return_counts=True), strict=True):
        rate += int(times) * mechanism.plain_rates(int(n_told))[1]
    return rate


def published_label_cost(
    mechanism: LabelMechanism,
    votes: Votes,
    *,
    orders: ArrayLike | None = None,
    answered: ArrayLike | None = None,
    drawn: bool = False,
    total: bool = False,
) -> Floats:
    """Return the papers' data-dependent cost at a sound sensitivity, a row per query; with `total` their sum.

    Confident forms charge every check, and the labels that `answered` (queries, labels) marks. Without it
    answers are weighted by their probability: an expectation, and no bound for any one run.

    Guarantee: bounds D_order(P || P') of the release for one changed ballot, of each check and each answer;
               never above the order times its plain rates.
    Assumes:   continuous noise as published; the noise that is drawn with `drawn`.
    Reference: Papernot et al. 2018, Theorem 6 and Proposition 10; Dullerud et al. 2022, Proposition B.1;
               the thesis on private audio tagging, theorems 13 and 14, with the cap of n labels.
    """
    require_label_votes(mechanism, votes)
    votes.require_all_labels("a published bound")
    grid = check_orders(orders)
    told = None if answered is None else answered_mask(answered, votes)
    rows = mechanism.published_rows(votes, grid, told, drawn)
    return np.asarray(rows.sum(axis=0)) if total else rows


def as_published_tau(
    sigma: float, max_norm: float, *, norm: Norm = "l2", orders: ArrayLike | None = None
) -> RdpCurve:
    """Return what the multi-winner paper charges a query of tau voting: too little, for its tables only.

    Guarantee: none. Two ballots without a common label are twice as far apart: the divergence of the printed
               algorithm exceeds this 1.8 times for 4 labels, max_norm^2 = 2, sigma = 5 and order 20.
    Assumes:   nothing.
    Reference: Dullerud et al. 2022, sections 3.2 and 4: order tau^2 / sigma^2, and 2 order tau^2 / sigma^2
               for l1. A sound price is `Tau.price`.
    """
    require_positive(sigma=sigma, max_norm=max_norm)
    return RdpCurve.zcdp((1 if norm == "l2" else 2) * max_norm**2 / sigma**2, orders)


def as_published_gnthreshold(
    mechanism: "SumOverShare", votes: Votes, *, n_changed: int, orders: ArrayLike | None = None
) -> Floats:
    """Return the thesis's own data-dependent cost, a row per query: too little, for its tables only.

    Guarantee: none. A changed sample can move more labels than the `n_changed` it has, and order / sigma^2
               caps nothing for more than two of them.
    Assumes:   nothing. With a gate only the answer is charged, as the thesis does for answered queries.
    Reference: the thesis, theorems 13 and 14 and equation 4.8 with the condition printed below it. The first
               row of its table 5.4 (418.4 in both columns) is above that cap: it was made with
               n_changed order / (2 sigma^2), which is `published_labels`.
    """
    grid = check_orders(orders)
    log_q = mechanism.joint_log_q(votes, drawn=False)
    sigma = mechanism.sigma * math.sqrt(2 / n_changed)
    bound = np.tile(grid / mechanism.sigma**2, (log_q.size, 1))
    mu = sigma * np.sqrt(-log_q)
    for row in np.flatnonzero(mu > 1 + 1e-7):
        if np.isneginf(log_q[row]):
            bound[row] = 0.0
            continue
        # As printed, mu1 - 1 = mu2 stands where mu2 - 1 does in Theorem 6.
        limit = mu[row] ** 2 / sigma**2 + mu[row] * math.log1p(-1 / mu[row])
        if log_q[row] <= limit:
            value = _theorem_6(float(log_q[row]), float(mu[row]), sigma, grid)
            bound[row] = np.where(mu[row] + 1 >= grid, np.minimum(bound[row], value), bound[row])
    return bound


def _theorem_6(log_q: float, mu: float, sigma: float, grid: Floats) -> Floats:
    """Return the value of Theorem 6 without looking at its conditions."""
    not_q = math.log1p(-math.exp(log_q))
    inner = 1 - math.exp(-((mu - 1) ** 2) / sigma**2)
    log_a = not_q - math.log(inner)
    log_b = (2 * mu + 1) / sigma**2
    steps = grid - 1
    return np.asarray(np.logaddexp(not_q + steps * log_a, log_q + steps * log_b) / steps)
