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
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_positive
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.votes import Votes
from .._admission import require_label_votes
from .._check import answered_mask
from .._flip_probability import log_q_gnmax
from ..published import gaussian_bound, log_accept
from ._rules import BallotRule, Norm

if TYPE_CHECKING:
    from ._perlabel import PerLabel
    from .gnthreshold import SumOverShare
    from .powerset import Bins

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


def log_q_sets(bins: "Bins", sigma: float, *, drawn: bool = False) -> Floats:
    """Return, per query, the log of a bound on P[Powerset does not answer with the most popular set].

    Guarantee: the sum over all other sets, voted for or not, of the chance to overtake it; at most
               1 - 1 / sets.
    Assumes:   noise sigma on the count of every set; ties at random.
    Reference: Dullerud et al. 2022, Proposition B.1 (Papernot et al. 2018, Proposition 7, over 2^k sets).
    """
    counts = -np.sort(-bins.counts, axis=1)
    gaps = counts[:, :1] - counts[:, 1:]
    distinct, place = np.unique(gaps, return_inverse=True)
    pairs = np.stack([distinct, np.zeros_like(distinct)], axis=1)
    one = log_q_gnmax(pairs, sigma, drawn=drawn)[place.reshape(gaps.shape)]
    # Columns without votes are room, not sets; all sets nobody voted for count once, together.
    rivals = np.where(counts[:, 1:] > 0, one, -np.inf)
    empty = bins.n_sets - bins.voted.astype(object)
    log_empty = np.array([math.log(n) if n > 0 else -math.inf for n in empty])
    # The last column is always without votes, so its gap is the whole top count.
    union = np.logaddexp(np.logaddexp.reduce(rivals, axis=1), log_empty + one[:, -1])
    return np.asarray(np.minimum(union, math.log1p(-1 / bins.n_sets)))


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
    log_q = _joint_log_q(mechanism, votes, drawn=False)
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


def published_each_label(
    mechanism: "PerLabel", votes: Votes, grid: Floats, told: Mask | None, *, drawn: bool
) -> Floats:
    """Return a cost that adds up over labels, each with a q of its own, (queries, orders)."""
    sums, units = mechanism.fitted_sums(votes), mechanism.resolution
    law, total = mechanism.law(votes.n_teachers), votes.n_teachers * units
    # One label moves by at most this, whatever the norm allows all of them together.
    weight = max(mechanism.rule.values)
    if weight == 0:
        return np.zeros((len(votes), grid.size))
    sides = log_accept(sums - (law.threshold if drawn else total / 2), law.sigma, drawn=drawn)
    rare = np.minimum(*sides)
    bound = partial(_distinct_bounds, grid=grid)
    k = mechanism.n_labels
    cap = grid * mechanism.plain_rates()[1]
    if law.bar is None:
        return np.minimum(bound(rare, sigma=math.sqrt(2) * law.sigma / weight), cap)
    threshold = getattr(mechanism, "threshold") * units  # noqa: B009
    height = law.bar.margin(sums) if drawn else np.maximum(sums, total - sums) - threshold
    accept, reject = log_accept(height, law.bar.sigma, drawn=drawn)
    checks = bound(np.minimum(accept, reject), sigma=math.sqrt(2) * law.bar.sigma / weight)
    checks = np.minimum(checks, grid * mechanism.plain_rates()[0])
    weights = np.exp(accept) if told is None else told.astype(np.float64)
    answers = bound(rare, sigma=math.sqrt(2) * law.sigma / weight, weights=weights)
    if told is not None:
        caps = np.array([mechanism.plain_rates(n)[1] for n in range(k + 1)])[told.sum(axis=1)]
        return np.asarray(checks + np.minimum(answers, caps[:, None] * grid))
    return np.asarray(checks + np.minimum(answers, cap))


def _distinct_bounds(log_q: Floats, *, grid: Floats, sigma: float, weights: Floats | None = None) -> Floats:
    """Return the sum over labels of Theorem 6 at each label's q, evaluated once per distinct one."""
    distinct, place = np.unique(log_q, return_inverse=True)
    place = place.reshape(log_q.shape)
    table = np.concatenate(
        [gaussian_bound(distinct[i : i + 4096], sigma, orders=grid) for i in range(0, distinct.size, 4096)]
    )
    rows = np.zeros((len(log_q), grid.size))
    for label in range(log_q.shape[1]):
        part = table[place[:, label]]
        rows += part if weights is None else part * weights[:, label, None]
    return rows


def published_share(mechanism: "SumOverShare", votes: Votes, grid: Floats, *, drawn: bool) -> Floats:
    """Return one q for all labels, as the thesis has it, at the number of labels that a ballot moves."""
    sigma = mechanism.sigma * math.sqrt(2 / furthest(mechanism.rule, mechanism.n_labels))
    return gaussian_bound(_joint_log_q(mechanism, votes, drawn=drawn), sigma, orders=grid)


def published_gate(mechanism: Any, votes: Votes, grid: Floats, told: Mask | None, *, drawn: bool) -> Floats:
    """Return what the gate of every query costs, and its answers by their chance or as they were given."""
    answers = published_share(mechanism, votes, grid, drawn=drawn)
    gate, sums = mechanism.gate(votes.n_teachers), mechanism.fitted_sums(votes)
    if drawn:
        opened, shut = gate.log_pass_and_fail(sums)
    else:
        height = mechanism.confident_share * votes.n_teachers * mechanism.resolution
        opened, shut = _all_of(*log_accept(gate.top(sums) + gate.height - height, gate.sigma))
    sigma_gate = mechanism.sigma_gate * math.sqrt(2 / mechanism.gate_moves)
    checks = gaussian_bound(np.minimum(np.minimum(opened, shut), 0.0), sigma_gate, orders=grid)
    weights = np.exp(opened) if told is None else told.any(axis=1).astype(np.float64)
    return np.asarray(checks + answers * weights[:, None])


def _joint_log_q(mechanism: "SumOverShare", votes: Votes, *, drawn: bool) -> Floats:
    sums = mechanism.fitted_sums(votes)
    law = mechanism.law(votes.n_teachers)
    wanted = np.asarray(mechanism.share) * votes.n_teachers * mechanism.resolution
    sides = log_accept(sums - (law.threshold if drawn else wanted), law.sigma, drawn=drawn)
    return np.minimum(_all_of(np.maximum(*sides), np.minimum(*sides))[1], 0.0)


def _all_of(log_each: Floats, log_fails: Floats) -> tuple[Floats, Floats]:
    """Return the log-probability that all succeed, and of its complement without cancellation."""
    before = np.cumsum(log_each, axis=1) - log_each
    return np.asarray(log_each.sum(axis=1)), np.asarray(np.logaddexp.reduce(before + log_fails, axis=1))


def published_sets(every: "list[Bins]", sigma: float, grid: Floats, *, drawn: bool) -> Floats:
    """Return the cost of an arg max over sets for each group of labels, added up, (queries, orders)."""
    rows = np.zeros((len(every[0].counts), grid.size))
    for bins in every:
        rows += gaussian_bound(log_q_sets(bins, sigma, drawn=drawn), sigma, orders=grid)
    return rows


def published_check(
    top: NDArray[np.int64], threshold: float, sigma: float, grid: Floats, *, drawn: bool
) -> tuple[Floats, Floats]:
    """Return what a check of the top count costs, (queries, orders), and the log-chance that it passes."""
    accept, reject = log_accept(top - (math.ceil(threshold) if drawn else threshold), sigma, drawn=drawn)
    return gaussian_bound(np.minimum(accept, reject), math.sqrt(2) * sigma, orders=grid), accept


def furthest(rule: BallotRule, n_labels: int) -> float:
    """Return the squared distance, in votes, of the two ballots that are furthest apart on so many labels."""
    return float(rule.dearest(lambda units: np.array((units / rule.one) ** 2), n_labels))
