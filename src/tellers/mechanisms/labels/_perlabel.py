"""What mechanisms that decide label by label have in common: fields, checks, release and price."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.release import SILENT, Cost, Release
from ...privacy.votes import Unit, Votes
from .._admission import require_label_votes, require_one_ballot
from ..gap_bounds import EnvelopeCost
from ..registry import check_parameters
from ..suprema import check_supremum
from ._gap_bounds import label_cost_and_sensitivities, label_log_cost_and_sensitivities
from ._outcomes import Bar, LabelLaw, LabelOutcomes, distinct_ballots
from ._published import Mask, furthest, published_each_label
from ._rules import BallotRule, free_ballots


def require_cap(mechanism: Any) -> None:
    """Refuse a cap on the labels of a ballot that is above their number."""
    if mechanism.max_labels > mechanism.n_labels:
        raise ValueError(
            f"Expected max_labels <= n_labels={mechanism.n_labels} (0: no cap), got {mechanism.max_labels}."
        )


def is_number(value: Any) -> bool:
    """Say whether something is one number, Python's or NumPy's."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def listed(values: Any) -> tuple[Any, ...]:
    """Return what a list holds, and nothing of what is no list: then it has the wrong length."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else ()


def shares(values: float | Sequence[float], n_labels: int, name: str) -> tuple[float, ...]:
    """Return one share of the teachers per label, from one number for all or one each."""
    given: tuple[Any, ...] = (values,) * n_labels if is_number(values) else listed(values)
    if len(given) != n_labels or not all(is_number(v) and 0 < v < 1 for v in given):
        raise ValueError(
            f"Expected {name} strictly between 0 and 1, one for all labels or one for each of {n_labels}, "
            f"got {values!r}."
        )
    return tuple(float(v) for v in given)


Integers = NDArray[np.int64]


class PerLabel(ABC):
    """Sum the ballots that the rule lets count, and decide every label with noise of its own.

    A class says which `rule` ballots follow, with which noise `sum_sigma` (in votes) and at which `limits`
    the sum is judged, and, with `threshold` and `sigma_threshold`, how sure a label must be to be told.
    """

    n_labels: int
    resolution: int
    has_bar: ClassVar[bool] = False
    multilabel: ClassVar[bool] = True
    price_method: ClassVar[str] = "labels-rdp"
    lets_abstain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    @abstractmethod
    def rule(self) -> BallotRule:
        """Return which ballots count."""

    @property
    @abstractmethod
    def sum_sigma(self) -> float:
        """Return the standard deviation of the noise on a label's sum, in votes."""

    @property
    def needs_ballots(self) -> bool:
        """Return whether sums alone do not do, since ballots are made to fit before they are counted."""
        return not self.rule.is_free

    @property
    def bar_sigma(self) -> float:
        """Return the standard deviation of the check's noise, in votes."""
        return float(getattr(self, "sigma_threshold"))  # noqa: B009

    def limits(self, n_voters: ArrayLike) -> Integers:
        """Return the smallest sum, in units, at which each label is given: a strict majority.

        Of all teachers, or of those who know a label where each has a number of its own.
        """
        majority = np.asarray(n_voters, dtype=np.int64) * self.resolution // 2 + 1
        return np.broadcast_to(majority, (self.n_labels,)).copy()

    def law(self, n_voters: ArrayLike) -> LabelLaw:
        """Return how a label comes out, as a function of its sum."""
        units = self.resolution
        bar = None
        if self.has_bar:
            height = math.ceil(getattr(self, "threshold") * units)  # noqa: B009
            total = np.asarray(n_voters, dtype=np.int64) * units
            bar = Bar(self.bar_sigma * units, height, total if total.ndim else int(total))
        return LabelLaw(self.sum_sigma * units, self.limits(n_voters), bar)

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most one query can cost: the dearest two ballots, all labels together.

        Guarantee: the same where teachers abstain on labels that they do not know. Which ones is public, so
                   neighbours have the same limits and bars, label by label; a changed ballot moves each label
                   that its teacher knows by at most one vote, and no other. The price is the supremum over
                   all limits and totals, of as many labels or more.
        """
        return self.check_price(unit, orders) + self.answer_price(unit, self.n_labels, orders)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the checks of all labels cost, which is what silence costs."""
        require_one_ballot(unit)
        if not self.has_bar:
            return RdpCurve.zero(orders)
        return dearest_pair(self.rule, self.bar_sigma * self.resolution, self.n_labels, orders)

    def answer_price(self, unit: Unit, n_labels: int, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that telling `n_labels` of the labels costs."""
        require_one_ballot(unit)
        return dearest_pair(self.rule, self.sum_sigma * self.resolution, n_labels, orders)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Check, decide and charge every label; what stays silent pays for its check alone.

        A label that no teacher knows is silent.
        """
        require_label_votes(self, votes)
        law, sums = self.law(votes.n_voters), self.fitted_sums(votes)
        told = np.ones(sums.shape, dtype=np.bool_)
        has_voters = votes.n_voters > 0
        if law.bar is not None:
            told = law.bar.margin(sums) + noise.discrete_gaussian(law.bar.sigma, sums.shape) >= 0
            told &= has_voters
        given = sums + noise.discrete_gaussian(law.sigma, sums.shape) >= law.threshold
        labels = np.where(told & has_voters, given.astype(np.int64), SILENT)
        cost = self.check_price(votes.unit) * len(votes)
        for n_told, n_queries in zip(*np.unique(told.sum(axis=1), return_counts=True), strict=True):
            cost = cost + self.answer_price(votes.unit, int(n_told)) * int(n_queries)
        return Release(labels, Cost(cost), told & has_voters)

    def outcomes(self, votes: Votes) -> LabelOutcomes:
        """Return the law of every label, and the distinct ballots behind it.

        Teachers who do not know a label count as if they might: exact costs are then upper bounds.
        """
        require_label_votes(self, votes)
        law = self.law(votes.n_voters)
        if votes.ballots is None:
            if not self.rule.is_free:
                raise ValueError(
                    "Expected votes with ballots, got sums alone: which ballots were clipped is not known."
                )
            return LabelOutcomes(votes.sums * self.rule.scale, law, self.rule)
        ballots = self.rule.fit(votes.block())
        distinct, query, index = distinct_ballots(ballots)
        return LabelOutcomes(ballots.sum(axis=0), law, self.rule, distinct, query, index)

    def on_labels(self, known: NDArray[np.bool_]) -> "PerLabel":
        """Return the mechanism on some of the labels."""
        record: Any = self
        changed: PerLabel = replace(record, n_labels=int(known.sum()))
        return changed

    @property
    def publishable(self) -> tuple[str, ...]:
        """Return how its cost can be published: with free ballots it is a sum over labels."""
        return ("envelope",) if self.rule.is_free else ()

    def envelope(self, votes: Votes, *, order: float) -> EnvelopeCost:
        """Return the exact cost at one order, and its local sensitivities; private."""
        return EnvelopeCost(*label_cost_and_sensitivities(self, votes, order))

    def log_envelope(self, votes: Votes, *, order: float, offsets: Sequence[float]) -> tuple[float, Floats]:
        """Return the exact cost, and how fast log(1 + cost / offset) moves, (offsets, distances); private."""
        return label_log_cost_and_sensitivities(self, votes, order, offsets=offsets)

    def plain_rates(self, n_labels: int | None = None) -> tuple[float, float]:
        """Return what the checks and the answers of a query cost per order if all noisy sums were told.

        Guarantee: checks and answers cost at most these times the order, for any votes: half the squared
                   distance of the two ballots that are furthest apart, over the variance of the noise.
        Assumes:   `n_labels` of the labels are answered, all if not said.
        Reference: Canonne, Kamath, Steinke 2020, Theorem 4 (each sum).
        """
        k = self.n_labels if n_labels is None else n_labels
        answers = furthest(self.rule, k) / (2 * self.sum_sigma**2)
        if not self.has_bar:
            return 0.0, answers
        return furthest(self.rule, self.n_labels) / (2 * self.bar_sigma**2), answers

    def published_rows(self, votes: Votes, grid: Floats, told: Mask | None, drawn: bool) -> Floats:
        """Return the papers' data-dependent cost of every query, label by label; private."""
        return published_each_label(self, votes, grid, told, drawn=drawn)

    def fitted_sums(self, votes: Votes) -> Integers:
        """Return the sums of the ballots as they count, (queries, labels)."""
        if self.rule.is_free:
            return votes.sums * self.rule.scale
        sums = np.empty(votes.sums.shape, dtype=np.int64)
        for start in range(0, len(votes), 1024):
            rows = slice(start, start + 1024)
            sums[rows] = self.rule.fit(votes.block(rows)).sum(axis=0)
        return sums


class Majority(PerLabel):
    """Give a label where yes beats no, with Gaussian noise `sigma` on both counts."""

    sigma: float

    @property
    def sum_sigma(self) -> float:
        """Return the noise on the yes count alone: a margin of yes minus no moves twice as far."""
        return self.sigma / math.sqrt(2)


class FreeMajority(Majority):
    """A majority of ballots that all count as they were cast."""

    @property
    def rule(self) -> BallotRule:
        """Return that every ballot counts."""
        return free_ballots(self.n_labels, self.resolution)


def dearest_pair(rule: BallotRule, sigma: float, n_labels: int, orders: ArrayLike | None = None) -> RdpCurve:
    """Return the most that deciding `n_labels` labels costs, over all pairs of allowed ballots.

    Guarantee: a label whose sum moves by w units costs its `suprema.check_supremum`: two outcomes, both
               directions, every sum; about 0.637 order w^2 / (2 sigma^2), and never above
               order w^2 / (2 sigma^2).
    Assumes:   whole sums, discrete Gaussian noise.
    Reference: "The price of an arg max"; "Many labels".
    """
    return _dearest_pair(rule, float(sigma), int(n_labels), tuple(check_orders(orders)))


@lru_cache(maxsize=256)
def _dearest_pair(rule: BallotRule, sigma: float, n_labels: int, orders: tuple[float, ...]) -> RdpCurve:
    def price(units: int) -> Floats:
        return check_supremum(sigma, orders, weight=units).values if units else np.zeros(len(orders))

    return RdpCurve(np.array(orders), rule.dearest(price, n_labels))
