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

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from .bounds import gaussian_bound
from .errors import require_positive
from .label_votes import LabelVotes
from .mechanisms.check import log_pass_and_fail
from .mechanisms.labels.adaptive import AdaptiveGNThreshold
from .mechanisms.labels.bins import Bins
from .mechanisms.labels.gnthreshold import ConfidentGNThreshold, SumOverShare
from .mechanisms.labels.perlabel import PerLabel, require_label_votes
from .mechanisms.labels.powerset import ConfidentPowerset, SetVoting
from .mechanisms.labels.rules import Norm
from .rdp import Floats, RdpCurve, check_orders
from .upset import log_q_drawn_gnmax, log_q_gnmax

LabelMechanism = PerLabel | SetVoting | AdaptiveGNThreshold
Mask = NDArray[np.bool_]


def plain_rates(mechanism: LabelMechanism, n_labels: int | None = None) -> tuple[float, float]:
    """Return what the checks and the answers of a query cost per order if all their noisy values were told.

    Guarantee: checks and answers cost at most these times the order, for any votes: half the squared distance
               of the two ballots that are furthest apart, over the variance of the noise.
    Assumes:   `n_labels` of the labels are answered, all if not said.
    Reference: Canonne, Kamath, Steinke 2020, Theorem 4 (each sum).

    >>> from tellers import Binary, Powerset
    >>> plain_rates(Powerset(sigma=10.0, n_labels=20)), round(plain_rates(Binary(10.0, n_labels=20))[1], 9)
    ((0.0, 0.01), 0.2)
    """
    if isinstance(mechanism, AdaptiveGNThreshold):
        return 1 / (2 * mechanism.scale**2), plain_rates(mechanism.at(0), n_labels)[1]
    if isinstance(mechanism, SetVoting):
        check = 1 / (2 * mechanism.sigma_threshold**2) if isinstance(mechanism, ConfidentPowerset) else 0.0
        return check, len(mechanism.label_groups) / mechanism.sigma**2
    k = mechanism.n_labels if n_labels is None else n_labels
    answers = _furthest(mechanism, k) / (2 * mechanism.sum_sigma**2)
    if isinstance(mechanism, ConfidentGNThreshold):
        return _gate_moves(mechanism) / (2 * mechanism.sigma_gate**2), answers
    if not mechanism.has_bar:
        return 0.0, answers
    return _furthest(mechanism, mechanism.n_labels) / (2 * mechanism.bar_sigma**2), answers


def labels_told(
    mechanism: LabelMechanism, n_queries: int, n_answers: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Return how many labels of each query are charged an answer.

    All of them, unless `n_answers` says how many queries were answered, or how many labels of each.

    >>> from tellers import ConfidentBinary
    >>> mechanism = ConfidentBinary(sigma=9.0, n_labels=3, threshold=40, sigma_threshold=9.0)
    >>> labels_told(mechanism, 3), labels_told(mechanism, 3, 2), labels_told(mechanism, 3, [0, 1, 3])
    (array([3, 3, 3]), array([3, 3, 0]), array([0, 1, 3]))
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
    """Return what a run costs per order if all its noisy sums were told, see `plain_rates`.

    >>> from tellers import Binary
    >>> round(plain_cost(Binary(sigma=10.0, n_labels=20), 5), 9)
    1.0
    """
    rate = n_queries * plain_rates(mechanism)[0]
    told = labels_told(mechanism, n_queries, n_answers)
    for n_told, times in zip(*np.unique(told[told > 0], return_counts=True), strict=True):
        rate += int(times) * plain_rates(mechanism, int(n_told))[1]
    return rate


def published_label_cost(
    mechanism: LabelMechanism,
    votes: LabelVotes,
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
               never above the order times `plain_rates`.
    Assumes:   continuous noise as published; the noise that is drawn with `drawn`.
    Reference: Papernot et al. 2018, Theorem 6 and Proposition 10; Dullerud et al. 2022, Proposition B.1;
               the thesis on private audio tagging, theorems 13 and 14, with the cap of n labels.

    >>> from tellers import Binary
    >>> votes = LabelVotes.from_sums([[50, 0], [26, 24]], n_teachers=50)
    >>> published_label_cost(Binary(sigma=10.0, n_labels=2), votes, orders=[2.0]).round(4).ravel()
    array([0.0006, 0.04  ])
    """
    require_label_votes(mechanism, votes)
    votes.require_all_labels("a published bound")
    grid = check_orders(orders)
    told = None if answered is None else _mask(answered, votes)
    if isinstance(mechanism, AdaptiveGNThreshold):
        # The choice is a price; whichever share is chosen, the labels cost no more than at their dearest.
        shares = range(len(mechanism.shares))
        rows = np.maximum.reduce([_threshold(mechanism.at(i), votes, grid, told, drawn) for i in shares])
        rows = rows + grid * plain_rates(mechanism)[0]
    elif isinstance(mechanism, SetVoting):
        rows = _sets(mechanism, votes, grid, told, drawn)
    elif isinstance(mechanism, SumOverShare):
        rows = _threshold(mechanism, votes, grid, told, drawn)
    else:
        rows = _each_label(mechanism, votes, grid, told, drawn)
    return np.asarray(rows.sum(axis=0)) if total else rows


def log_q_sets(bins: Bins, sigma: float, *, drawn: bool = False) -> Floats:
    """Return, per query, the log of a bound on P[Powerset does not answer with the most popular set].

    Guarantee: the sum over all other sets, voted for or not, of the chance to overtake it; at most
               1 - 1 / sets.
    Assumes:   noise sigma on the count of every set; ties at random.
    Reference: Dullerud et al. 2022, Proposition B.1 (Papernot et al. 2018, Proposition 7, over 2^k sets).

    >>> bins = Bins.of(np.array([[[1, 0]]] * 50), 4)
    >>> bool(np.isclose(log_q_sets(bins, 9.0)[0], math.log(3) + log_q_gnmax([[50, 0]], 9.0)[0]))
    True
    """
    counts = -np.sort(-bins.counts, axis=1)
    gaps = counts[:, :1] - counts[:, 1:]
    distinct, place = np.unique(gaps, return_inverse=True)
    pairs = np.stack([distinct, np.zeros_like(distinct)], axis=1)
    one = (log_q_drawn_gnmax if drawn else log_q_gnmax)(pairs, sigma)[place.reshape(gaps.shape)]
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

    >>> as_published_tau(5.0, 2**0.5, orders=[20.0]).values.round(9)
    array([1.6])
    """
    require_positive(sigma=sigma, max_norm=max_norm)
    return RdpCurve.zcdp((1 if norm == "l2" else 2) * max_norm**2 / sigma**2, orders)


def as_published_gnthreshold(
    mechanism: SumOverShare, votes: LabelVotes, *, n_changed: int, orders: ArrayLike | None = None
) -> Floats:
    """Return the thesis's own data-dependent cost, a row per query: too little, for its tables only.

    Guarantee: none. A changed sample can move more labels than the `n_changed` it has, and order / sigma^2
               caps nothing for more than two of them.
    Assumes:   nothing. With a gate only the answer is charged, as the thesis does for answered queries.
    Reference: the thesis, theorems 13 and 14 and equation 4.8 with the condition printed below it. The first
               row of its table 5.4 (418.4 in both columns) is above that cap: it was made with
               n_changed order / (2 sigma^2), which is `published_labels`.

    >>> from tellers import GNThreshold
    >>> votes = LabelVotes.from_sums([[50, 0, 0], [26, 24, 24]], n_teachers=50)
    >>> mechanism = GNThreshold(sigma=15**0.5, n_labels=3)
    >>> as_published_gnthreshold(mechanism, votes, n_changed=3, orders=[2.0]).round(4).ravel()
    array([0.    , 0.1333])
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


def _each_label(
    mechanism: PerLabel, votes: LabelVotes, grid: Floats, told: Mask | None, drawn: bool
) -> Floats:
    sums, units = mechanism.fitted_sums(votes), mechanism.resolution
    law, total = mechanism.law(votes.n_teachers), votes.n_teachers * units
    # One label moves by at most this, whatever the norm allows all of them together.
    weight = max(mechanism.rule.values)
    if weight == 0:
        return np.zeros((len(votes), grid.size))
    if drawn:
        sides = log_pass_and_fail((sums - law.threshold).astype(np.float64), law.sigma)
    else:
        margins = (sums - total / 2) / law.sigma
        sides = np.asarray(log_ndtr(margins)), np.asarray(log_ndtr(-margins))
    rare = np.minimum(*sides)
    bound = partial(_distinct_bounds, grid=grid)
    k = mechanism.n_labels
    cap = grid * plain_rates(mechanism)[1]
    if law.bar is None:
        return np.minimum(bound(rare, sigma=math.sqrt(2) * law.sigma / weight), cap)
    if drawn:
        accept, reject = log_pass_and_fail(law.bar.margin(sums).astype(np.float64), law.bar.sigma)
    else:
        threshold = getattr(mechanism, "threshold") * units  # noqa: B009
        margins = (np.maximum(sums, total - sums) - threshold) / law.bar.sigma
        accept, reject = np.asarray(log_ndtr(margins)), np.asarray(log_ndtr(-margins))
    checks = bound(np.minimum(accept, reject), sigma=math.sqrt(2) * law.bar.sigma / weight)
    checks = np.minimum(checks, grid * plain_rates(mechanism)[0])
    weights = np.exp(accept) if told is None else told.astype(np.float64)
    answers = bound(rare, sigma=math.sqrt(2) * law.sigma / weight, weights=weights)
    if told is not None:
        caps = np.array([plain_rates(mechanism, n)[1] for n in range(k + 1)])[told.sum(axis=1)]
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


def _threshold(
    mechanism: SumOverShare, votes: LabelVotes, grid: Floats, told: Mask | None, drawn: bool
) -> Floats:
    """One q for all labels, as the thesis has it, at the number of labels that a ballot moves."""
    sigma = mechanism.sigma * math.sqrt(2 / _furthest(mechanism, mechanism.n_labels))
    answers = gaussian_bound(_joint_log_q(mechanism, votes, drawn=drawn), sigma, orders=grid)
    if not isinstance(mechanism, ConfidentGNThreshold):
        return answers
    gate, sums = mechanism.gate(votes.n_teachers), mechanism.fitted_sums(votes)
    if drawn:
        opened, shut = gate.log_pass_and_fail(sums)
    else:
        height = mechanism.confident_share * votes.n_teachers * mechanism.resolution
        margins = (gate.top(sums) + gate.height - height) / gate.sigma
        opened, shut = _all_of(np.asarray(log_ndtr(margins)), np.asarray(log_ndtr(-margins)))
    sigma_gate = mechanism.sigma_gate * math.sqrt(2 / _gate_moves(mechanism))
    checks = gaussian_bound(np.minimum(np.minimum(opened, shut), 0.0), sigma_gate, orders=grid)
    weights = np.exp(opened) if told is None else told.any(axis=1).astype(np.float64)
    return np.asarray(checks + answers * weights[:, None])


def _joint_log_q(mechanism: SumOverShare, votes: LabelVotes, *, drawn: bool) -> Floats:
    sums = mechanism.fitted_sums(votes)
    law = mechanism.law(votes.n_teachers)
    if drawn:
        sides = log_pass_and_fail((sums - law.threshold).astype(np.float64), law.sigma)
    else:
        wanted = np.asarray(mechanism.share) * votes.n_teachers * mechanism.resolution
        margins = (sums - wanted) / law.sigma
        sides = np.asarray(log_ndtr(margins)), np.asarray(log_ndtr(-margins))
    return np.minimum(_all_of(np.maximum(*sides), np.minimum(*sides))[1], 0.0)


def _all_of(log_each: Floats, log_fails: Floats) -> tuple[Floats, Floats]:
    """Return the log-probability that all succeed, and of its complement without cancellation."""
    before = np.cumsum(log_each, axis=1) - log_each
    return np.asarray(log_each.sum(axis=1)), np.asarray(np.logaddexp.reduce(before + log_fails, axis=1))


def _sets(mechanism: SetVoting, votes: LabelVotes, grid: Floats, told: Mask | None, drawn: bool) -> Floats:
    rows = np.zeros((len(votes), grid.size))
    for _, bins in mechanism.bins(votes):
        rows += gaussian_bound(log_q_sets(bins, mechanism.sigma, drawn=drawn), mechanism.sigma, orders=grid)
    if not isinstance(mechanism, ConfidentPowerset):
        return rows
    [(_, bins)] = mechanism.bins(votes)
    top, sigma = bins.counts.max(axis=1).astype(np.float64), mechanism.sigma_threshold
    if drawn:
        accept, reject = log_pass_and_fail(top - math.ceil(mechanism.threshold), sigma)
    else:
        margins = (top - mechanism.threshold) / sigma
        accept, reject = np.asarray(log_ndtr(margins)), np.asarray(log_ndtr(-margins))
    checks = gaussian_bound(np.minimum(accept, reject), math.sqrt(2) * sigma, orders=grid)
    weights = np.exp(accept) if told is None else told.any(axis=1).astype(np.float64)
    return np.asarray(checks + rows * weights[:, None])


def _furthest(mechanism: PerLabel, n_labels: int) -> float:
    """Return the squared distance, in votes, of the two ballots that are furthest apart on so many labels."""
    one = mechanism.rule.one
    return float(mechanism.rule.dearest(lambda units: np.array((units / one) ** 2), n_labels))


def _gate_moves(mechanism: ConfidentGNThreshold) -> int:
    """Return how many of the largest sums a ballot can move: sorting is a contraction."""
    return min(mechanism.n_top, mechanism.n_labels, 2 * mechanism.rule.most)


def _mask(answered: ArrayLike, votes: LabelVotes) -> Mask:
    mask = np.asarray(answered)
    if mask.shape != votes.sums.shape or mask.dtype != np.bool_:
        raise ValueError(
            f"Expected answered as one True or False per query and label, {votes.sums.shape} of them, "
            f"got shape {mask.shape} of {mask.dtype}."
        )
    return mask
