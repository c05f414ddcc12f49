"""What all mechanisms have in common that decide label by label, each with noise of its own."""

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...label_votes import LabelVotes
from ...noise import Noise
from ...rdp import RdpCurve, check_orders
from ...release import SILENT, Cost, Release
from ...votes import Unit
from .law import Bar, LabelLaw, answer_supremum
from .outcomes import LabelOutcomes, distinct_ballots
from .rules import Rule

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class PerLabel(ABC):
    """Sum the ballots that the rule lets count, and decide every label with noise of its own.

    A class says which `rule` ballots follow, with which noise `sum_sigma` (in votes) and at which `limits`
    the sum is judged, and, with `threshold` and `sigma_threshold`, how sure a label must be to be told.

    >>> from tellers import Binary
    >>> isinstance(Binary(sigma=5.0, n_labels=3), PerLabel)
    True
    """

    n_labels: int
    resolution: int
    has_bar: ClassVar[bool] = False
    multilabel: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = False

    @property
    @abstractmethod
    def rule(self) -> Rule:
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

        >>> from tellers import Binary
        >>> Binary(sigma=5.0, n_labels=2).limits(50), Binary(sigma=5.0, n_labels=2).limits([50, 4])
        (array([26, 26]), array([26,  3]))
        """
        majority = np.asarray(n_voters, dtype=np.int64) * self.resolution // 2 + 1
        return np.broadcast_to(majority, (self.n_labels,)).copy()

    def law(self, n_voters: ArrayLike) -> LabelLaw:
        """Return how a label comes out, as a function of its sum.

        >>> from tellers import ConfidentBinary
        >>> ConfidentBinary(sigma=5.0, n_labels=2, threshold=40, sigma_threshold=9.0).law(50).bar.height
        40
        """
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

        >>> from tellers import Binary, Unit
        >>> curve = Binary(sigma=10.0, n_labels=20).price(Unit(), [2.0])
        >>> bool(curve.values[0] <= 20 * 2.0 / 10.0**2)
        True
        """
        return self.check_price(unit, orders) + self.answer_price(unit, self.n_labels, orders)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the checks of all labels cost, which is what silence costs.

        >>> from tellers import Binary, Unit
        >>> float(Binary(sigma=10.0, n_labels=20).check_price(Unit()).values.max())
        0.0
        """
        require_one_ballot(unit)
        if not self.has_bar:
            return RdpCurve.zero(orders)
        return dearest_pair(self.rule, self.bar_sigma * self.resolution, self.n_labels, orders)

    def answer_price(self, unit: Unit, n_labels: int, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that telling `n_labels` of the labels costs.

        >>> from tellers import Binary, Unit
        >>> mechanism = Binary(sigma=10.0, n_labels=20)
        >>> few, all_of_them = (mechanism.answer_price(Unit(), n).values[0] for n in (5, 20))
        >>> bool(np.isclose(4 * few, all_of_them))
        True
        """
        require_one_ballot(unit)
        return dearest_pair(self.rule, self.sum_sigma * self.resolution, n_labels, orders)

    def release(self, votes: LabelVotes, noise: Noise) -> Release:
        """Check, decide and charge every label; what stays silent pays for its check alone.

        A label that no teacher knows is silent.

        >>> from tellers import Binary, noise
        >>> votes = LabelVotes.from_sums([[48, 3]], n_teachers=50)
        >>> len(Binary(sigma=2.0, n_labels=2).release(votes, noise.secure()))
        1
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

    def outcomes(self, votes: LabelVotes) -> LabelOutcomes:
        """Return the law of every label, and the distinct ballots behind it.

        Teachers who do not know a label count as if they might: exact costs are then upper bounds.

        >>> from tellers import Binary
        >>> votes = LabelVotes.from_ballots([[[1, 0]], [[1, 1]], [[1, 0]]], n_labels=2)
        >>> Binary(sigma=2.0, n_labels=2).outcomes(votes)
        LabelOutcomes(<private>, n_queries=1)
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

    def fitted_sums(self, votes: LabelVotes) -> Integers:
        """Return the sums of the ballots as they count, (queries, labels).

        >>> from tellers import Tau
        >>> votes = LabelVotes.from_ballots([[[1, 1, 1, 1]]] * 10, n_labels=4)
        >>> Tau(sigma=2.0, n_labels=4, max_norm=1.0).fitted_sums(votes)
        array([[500, 500, 500, 500]])
        """
        if self.rule.is_free:
            return votes.sums * self.rule.scale
        sums = np.empty(votes.sums.shape, dtype=np.int64)
        for start in range(0, len(votes), 1024):
            rows = slice(start, start + 1024)
            sums[rows] = self.rule.fit(votes.block(rows)).sum(axis=0)
        return sums


def dearest_pair(rule: Rule, sigma: float, n_labels: int, orders: ArrayLike | None = None) -> RdpCurve:
    """Return the most that deciding `n_labels` labels costs, over all pairs of ballots that the rule allows.

    >>> from .rules import few_labels
    >>> curve = dearest_pair(few_labels(9, 2), 10.0, 9, orders=[2.0])
    >>> bool(np.isclose(curve.values[0], 4 * 0.637 * 2.0 / (2 * 10.0**2), rtol=1e-2))
    True
    """
    return _dearest_pair(rule, float(sigma), int(n_labels), tuple(check_orders(orders)))


@lru_cache(maxsize=256)
def _dearest_pair(rule: Rule, sigma: float, n_labels: int, orders: tuple[float, ...]) -> RdpCurve:
    price = lru_cache(maxsize=None)(lambda units: answer_supremum(sigma, units, orders))
    return RdpCurve(np.array(orders), rule.dearest(price, n_labels))


def require_label_votes(mechanism: Any, votes: Any) -> None:
    """Refuse votes of another kind, on other labels or in other units; nothing is drawn before.

    >>> from tellers.mechanisms.labels import Binary
    >>> require_label_votes(Binary(sigma=5.0, n_labels=2), LabelVotes.from_sums([[3, 1, 0]], n_teachers=4))
    Traceback (most recent call last):
        ...
    ValueError: Expected votes on the 2 labels of Binary, got 3. Declare n_labels=3.
    """
    name = type(mechanism).__name__
    if not isinstance(votes, LabelVotes):
        raise TypeError(f"Expected LabelVotes for {name}, got {type(votes).__name__}.")
    if votes.n_labels != mechanism.n_labels:
        raise ValueError(
            f"Expected votes on the {mechanism.n_labels} labels of {name}, got {votes.n_labels}. "
            f"Declare n_labels={votes.n_labels}."
        )
    wanted = getattr(mechanism, "votes_resolution", mechanism.resolution)
    if votes.resolution != wanted:
        kind = "of 0 and 1" if wanted == 1 else f"in units of 1/{wanted}"
        raise ValueError(
            f"Expected votes {kind} for {name}, got units of 1/{votes.resolution}. Use "
            "LabelVotes.from_probabilities to turn probabilities into 0 and 1, or state the resolution."
        )
    if votes.voters is not None and not getattr(mechanism, "lets_abstain", False):
        votes.require_all_labels(name)
    require_one_ballot(votes.unit)


def require_one_ballot(unit: Unit) -> None:
    """Refuse units that move several ballots or heavier ones: label votes have one ballot each.

    >>> require_one_ballot(Unit())
    """
    if unit != Unit():
        raise ValueError(f"Expected a unit behind one ballot of one vote, got {unit}.")
