"""The joint price of a noisy check and the answer behind it, and charges that depend on what came out.

A query that is checked first has the outcome {silent, answer}. Its check costs most where the votes are near
the threshold, its answer where two classes are level: hardly ever at the same votes. What the whole outcome
can cost is therefore less than both prices together. A histogram of at most K votes whose largest count is t
has a gap of at least 2 t - K, and one ballot moves t by at most 1, so the supremum over all histograms is a
maximum over one whole number; see "The joint price of a check and its answer".

With A and B the terms of silence and of an answer in sum over outcomes of P^order Q^(1 - order), charges c0
of a silent query and c1 of an answered one are sound at this order, under a filter, iff

    A e^(-(order - 1) c0) + B e^(-(order - 1) c1) <= 1        (*)

for every pair of neighbours. c0 = c1 is the joint price.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..privacy._clock import ClockFamily
from ..privacy._price import Item, Price
from ..privacy.rdp import DEFAULT_ORDERS, RdpCurve
from ._check import golden_section, log_pass_and_fail
from ._clock import ConfidentClock, SumClock
from ._flip_probability import _log_tail_drawn_gaussian
from ._laws import Floats
from .gap_bounds import gap_envelopes
from .suprema import argmax_supremum, check_supremum

# What is enumerated is raised by this for rounding, and logarithms that are subtracted by so much.
_UP, _SLACK = 1 + 1e-9, 1e-12
# Envelopes are worked out at orders about so much apart, and in groups of so many.
_RATIO, _RATIO_ABOVE_64, _GROUP = 1.1, 1.2, 8
# With an expected share of silence an answer is charged at most so many times the prices of check and answer.
_MOST = 2.0
# Golden sections until an interval is below 1e-6 of what it was.
_SECTIONS = 30


@dataclass(frozen=True)
class Checked:
    """A check and an answer of `n_teachers` ballots or fewer, of one vote each.

    `of` says what is checked and answered: "classes", the top count and the class that leads; "margin", by
    how much any count is above a threshold of its own, none of them below `threshold`; "label", the larger
    side of a label and whether a strict majority gives it. `sigma` is the noise on a count, or on a sum.
    """

    of: Literal["classes", "margin", "label"]
    n_teachers: int
    n_classes: int
    sigma: float
    threshold: int
    sigma_threshold: float

    def check(self, orders: tuple[float, ...]) -> Floats:
        """Return the price of the check alone."""
        return check_supremum(self.sigma_threshold, orders).values

    def both(self, orders: tuple[float, ...]) -> Floats:
        """Return the price of the check and the answer, added up."""
        answer = check_supremum if self.of == "label" else argmax_supremum
        return self.check(orders) + answer(self.sigma, orders).values


def joint_price(checked: Checked, orders: tuple[float, ...]) -> RdpCurve:
    """Return the most that the whole outcome of a query can cost, silence or an answer.

    Guarantee: for every histogram of at most `n_teachers` votes and every ballot that moves, enters or
               leaves (of a label: changes its mind), both directions of the divergence between the laws of
               {silent, answer} are at most this; never above the prices of check and answer together.
    Assumes:   independent discrete Gaussian noise on the check and on the counts.
    Reference: "The joint price of a check and its answer".
    """
    return _as_price(_joint(checked, orders), checked, orders)


def joint_charges(
    checked: Checked, orders: tuple[float, ...], *, expected_silence: float | None = None
) -> tuple[RdpCurve, RdpCurve]:
    """Return what a silent query and an answered one are charged.

    Without an expected share of silent queries silence pays for its check, and an answer the least that goes
    with that. With it the two cost the least that they can together at this share.

    Guarantee: at every order the pair fulfils (*), so that a filter at this order stays sound. Without a
               share neither is above the prices of check and answer together, with one above twice these.
    Assumes:   as `joint_price`; the share is public.
    Reference: Feldman and Zrnic 2021; "The joint price of a check and its answer".
    """
    silent, answered = _charges(checked, orders, expected_silence)
    return _as_price(silent, checked, orders), _as_price(answered, checked, orders)


def _as_price(values: Floats, checked: Checked, orders: tuple[float, ...]) -> RdpCurve:
    """Return values that add up exactly, and not above check and answer together where they were not."""
    rounded, both = RdpCurve(np.array(orders), values).as_price(), checked.both(orders)
    capped = np.where(values <= both, np.minimum(rounded.values, both), rounded.values)
    return RdpCurve(rounded.orders, capped)


@lru_cache(maxsize=256)
def joint_item(
    checked: Checked,
    orders: tuple[float, ...],
    expected_silence: float | None = None,
    clock: ClockFamily | None = None,
) -> Item:
    """Return a query, or a label, that pays for its whole outcome.

    A clock, where there is one, prices it by a table of its own (`ConfidentClock`).

    >>> item = joint_item(Checked("label", 50, 2, 7.0, 40, 15.0), (4.0, 8.0))
    >>> len(item.curves)
    2
    """
    if clock is not None:
        clock = ConfidentClock(
            checked.n_teachers, checked.n_classes, sigma=checked.sigma, threshold=checked.threshold,
            sigma_threshold=checked.sigma_threshold, silent=expected_silence, of=checked.of,
        )  # fmt: skip
    return Item(joint_charges(checked, orders, expected_silence=expected_silence), clock)


def two_events(check: Price, answer: Price) -> SumClock | None:
    """Return how a clock counts a check and the answer behind it, by the prices of both; None for no clock.

    >>> from tellers import Unit
    >>> from tellers.mechanisms.suprema import answer_price, check_price
    >>> two_events(check_price(15.0, Unit()), answer_price(10.0, Unit())).kinds
    ((1, 0), (1, 1))
    """
    families: Any = tuple(
        item.clock for price in (check, answer) for _, item, _ in price.terms if item.clock is not None
    )
    return SumClock(families, ((1, 0), (1, 1))) if len(families) == 2 else None


@lru_cache(maxsize=512)
def _joint(checked: Checked, orders: tuple[float, ...]) -> Floats:
    found = [_largest(*_terms(checked, order)) / (order - 1) for order in orders]
    return np.minimum(np.maximum(found, 0.0) * _UP + _SLACK, checked.both(orders))


@lru_cache(maxsize=256)
def _charges(
    checked: Checked, orders: tuple[float, ...], expected_silence: float | None
) -> tuple[Floats, Floats]:
    joint, check, both = _joint(checked, orders), checked.check(orders), checked.both(orders)
    pairs = np.empty((len(orders), 2))
    for at, order in enumerate(orders):
        terms = _terms(checked, order)
        if expected_silence is None:
            pairs[at] = _answered_at(float(check[at]), terms, order, float(joint[at]), float(both[at]))
        else:
            pairs[at] = _cheapest(
                expected_silence, terms, order, joint=float(joint[at]), check=float(check[at]),
                both=float(both[at]),
            )  # fmt: skip
    # A pair that is sound at an order is sound below it, since norms of e^(loss - charge) grow with the
    # order: where the dearer charge would fall from one order to the next, that of the next is taken.
    for at in range(len(orders) - 2, -1, -1):
        if pairs[at].max() > pairs[at + 1].max():
            pairs[at] = pairs[at + 1]
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _answered_at(
    silent: float, terms: tuple[Floats, Floats], order: float, joint: float, both: float
) -> tuple[float, float]:
    """Return the least charges where silence is to cost so much at most."""
    if silent >= joint:
        return joint, joint
    # Check and check with answer are sound together, so that no answer costs more.
    return silent, max(silent, min(_least(silent, terms, order), both))


def _cheapest(
    share: float, terms: tuple[Floats, Floats], order: float, *, joint: float, check: float, both: float
) -> tuple[float, float]:
    """Return the pair of charges that fulfils (*) and costs least, if this share of queries stays silent."""
    if share == 0 or check >= joint:
        return joint, joint
    # A query is reserved its dearest charge: an answer is not to cost many times its plain price.
    low, high, most = 0.0, check, _MOST * both
    while high - low > 1e-6 * check:
        middle = (low + high) / 2
        low, high = (low, middle) if _least(middle, terms, order) <= most else (middle, high)
    # What fulfils (*) is a convex set of pairs: along its frontier the cost falls, and grows again.
    start, end = high, joint

    def pair(silent: float) -> tuple[float, float]:
        answered = _least(silent, terms, order)
        return silent, max(silent, min(answered, both) if silent >= check else answered)

    def cost(silent: float) -> float:
        charges = pair(silent)
        return share * charges[0] + (1 - share) * charges[1]

    tried = [pair(silent) for silent in (*golden_section(cost, start, end, n=_SECTIONS), start, check)] + [
        (joint, joint)
    ]
    sound = [(silent, answered) for silent, answered in tried if answered <= most]
    return min(sound, key=lambda charges: share * charges[0] + (1 - share) * charges[1])


def _largest(silence: Floats, answer: Floats) -> float:
    return float(np.logaddexp(silence, answer).max())


def _least(silent: float, terms: tuple[Floats, Floats], order: float) -> float:
    """Return the least charge of an answer that goes with this one of silence; infinite where none does."""
    silence, answer = terms
    left = silence - (order - 1) * silent + _SLACK
    if (left >= 0).any():
        return math.inf
    return max(0.0, float((answer - np.log(-np.expm1(left))).max()) / (order - 1)) * _UP


# --- The terms A of silence and B of an answer, for all pairs of neighbours that matter. ---


@lru_cache(maxsize=512)
def _terms(checked: Checked, order: float) -> tuple[Floats, Floats]:
    """Return log A and log B of the pairs of neighbours that no other pair exceeds in both."""
    silence, answer = (_by_envelope if _has_envelope(checked) else _by_law)(checked, order)
    falling = np.lexsort((-answer, -silence))
    silence, answer = silence[falling], answer[falling]
    best = np.maximum.accumulate(answer)
    kept = np.append(True, answer[1:] > best[:-1]) & (answer > -np.inf)
    return silence[kept], answer[kept]


def _has_envelope(checked: Checked) -> bool:
    return checked.of == "margin" or (checked.of == "classes" and checked.n_classes > 2)


def _check_terms(checked: Checked, tops: Floats, order: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what silence and passing add, from every top count to itself and from it to one less and back.

    Shapes (3, tops): the top count stays, falls, and grows again.
    """
    passed, failed = log_pass_and_fail(tops - checked.threshold, checked.sigma_threshold)
    less = log_pass_and_fail(tops - 1 - checked.threshold, checked.sigma_threshold)
    rows = []
    for here, there in ((failed, less[1]), (passed, less[0])):
        rows.append(np.stack([here, order * here + (1 - order) * there, order * there + (1 - order) * here]))
    return rows[0], rows[1], passed, failed


def _by_envelope(checked: Checked, order: float) -> tuple[Floats, Floats]:
    """Return the terms of every top count, its answer by the envelope at the least gap there can be.

    What is checked against thresholds of its own has margin M, and the class with that margin M + threshold
    votes or more: M + threshold takes the place of the top count. It is below 0 where no class has votes.
    """
    most = checked.n_teachers
    tops = np.arange(-most - 1 if checked.of == "margin" else 0, most + 1, dtype=np.float64)
    silence, passing, _, _ = _check_terms(checked, tops, order)
    gaps = np.maximum(2 * tops.astype(np.int64) - most, 0)
    answers = (order - 1) * _envelope_at(checked, order)[gaps]
    return silence.ravel(), (passing + answers).ravel()


def _by_law(checked: Checked, order: float) -> tuple[Floats, Floats]:
    """Return the terms of every pair of neighbouring tallies of two counts, by the law of the answer itself.

    Of two counts, t and t - g, a ballot changes t by 1 and the lead g by 1 or 2, or the lead alone by 1, or
    turns a lead of one round. A label's ballots always count, for one side or the other.
    """
    most = checked.n_teachers
    tops = np.arange(most + 1)
    silence, passing, _, _ = _check_terms(checked, tops.astype(np.float64), order)
    wins = _log_wins(checked)

    def moved(first: int, change: int) -> Floats:
        """Return the terms of the answer, (directions, leads), of all leads whose change this is."""
        found = np.full((2, most + 1), -np.inf)
        leads = np.arange(first, most + 1)
        for sign in (1, -1) if checked.of == "label" else (1,):
            here, there = (wins(sign * lead) for lead in (leads, leads + change))
            for way, (p, q) in enumerate(((here, there), (there, here))):
                some = np.logaddexp(*(order * p + (1 - order) * q))
                found[way, first:] = np.maximum(found[way, first:], some)
        return found

    falls, stays = moved(2, -2), moved(1, -2)[:, 1:2]
    if checked.of == "classes":
        falls = np.maximum(falls, moved(1, -1))
        level = moved(0, 1).max(axis=0)
    else:
        level = np.full(most + 1, -np.inf)
    if most >= 1:
        level[1] = max(level[1], float(stays.max()))
    least = np.maximum(2 * tops - most, 0)

    def dearest(leads: Floats) -> Floats:
        """Return the largest entry among the leads that go with every top count."""
        upwards = np.maximum.accumulate(leads)
        downwards = np.maximum.accumulate(leads[::-1])[::-1]
        return np.where(least == 0, upwards[tops], downwards[least])

    answers = np.stack([dearest(level), dearest(falls[0]), dearest(falls[1])])
    return silence.ravel(), (passing + answers).ravel()


def _log_wins(checked: Checked) -> Callable[[NDArray[np.int64]], Floats]:
    """Return the function from leads to the log-probabilities, (2, leads), of either answer."""
    most = checked.n_teachers + 2
    if checked.of == "label":
        # Of N votes with s on one side and N - s on the other, s - (N // 2 + 1) is the lead, halved.
        leads = np.arange(-most, most + 1)
        table = np.stack(log_pass_and_fail((-(-leads // 2) - 1).astype(np.float64), checked.sigma))
    else:
        loses = _log_tail_drawn_gaussian(np.arange(most + 1), checked.sigma)
        won = np.log1p(-np.exp(loses))
        table = np.stack([np.append(loses[:0:-1], won), np.append(won[:0:-1], loses)])
    return lambda leads: np.asarray(table[:, leads + most])


# --- The envelope of the answer, at any order. ---


def _anchors() -> tuple[float, ...]:
    kept: list[float] = []
    for order in DEFAULT_ORDERS.tolist():
        ratio = _RATIO if order <= 64 else _RATIO_ABOVE_64
        following = DEFAULT_ORDERS[order < DEFAULT_ORDERS]
        if not kept or not following.size or following[0] > ratio * kept[-1]:
            kept.append(order)
    return tuple(kept)


_ANCHORS = _anchors()


def _envelope_at(checked: Checked, order: float) -> Floats:
    """Return the envelope of the answer at one order.

    (order - 1) times a divergence is convex in the order, and so is its largest value over many pairs of
    neighbours: between two orders a chord lies above it. At order 1 it is 0.
    """
    anchors = np.array(_ANCHORS)
    above = int(np.searchsorted(anchors, order))
    if above == anchors.size:
        return np.asarray(_group(checked, (order,))[0])
    upper = anchors[above]
    if upper == order:
        return _anchor(checked, above)
    lower = anchors[above - 1] if above else 1.0
    share = (order - lower) / (upper - lower)
    chord = share * (upper - 1) * _anchor(checked, above)
    if above:
        chord = chord + (1 - share) * (lower - 1) * _anchor(checked, above - 1)
    return np.asarray(chord / (order - 1))


def _anchor(checked: Checked, place: int) -> Floats:
    start = place - place % _GROUP
    return np.asarray(_group(checked, _ANCHORS[start : start + _GROUP])[place - start])


def _group(checked: Checked, orders: tuple[float, ...]) -> Floats:
    return gap_envelopes(checked.n_teachers, checked.n_classes, sigma=checked.sigma, orders=orders)
