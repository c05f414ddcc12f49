"""What mechanisms that decide label by label have in common: fields, checks, release and price."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...privacy._clock import TICKS, ClockTable
from ...privacy._price import Item, Price
from ...privacy._scipy import maximum_filter1d
from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.release import SILENT, Cost, Release
from ...privacy.votes import Integers, Unit, Votes
from .._admission import require_label_votes, require_one_ballot
from .._clock import CheckClock, KeptTables, price_at
from .._clock_pairs import table_of
from .._joint import Checked, joint_item, two_events
from .._log_sum_sensitivity import largest_quotients, log_moves, slopes_up_to
from ..divergence import pair_divergences
from ..gap_bounds import EnvelopeCost
from ..published import gaussian_bound, log_accept
from ..registry import check_parameters, repr_of
from ..suprema import check_item, check_price, check_supremum
from ._outcomes import Bar, LabelLaw, LabelOutcomes, distinct_ballots
from ._rules import BallotRule, free_ballots

Mask = NDArray[np.bool_]


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
        return Release(labels, Cost(self._charged(votes, told)), told & has_voters)

    def _charged(self, votes: Votes, told: Mask) -> RdpCurve:
        """Return what queries cost of which these labels were told: all checks, and these answers."""
        cost = self.check_price(votes.unit) * len(votes)
        for n_told, n_queries in zip(*np.unique(told.sum(axis=1), return_counts=True), strict=True):
            cost = cost + self.answer_price(votes.unit, int(n_told)) * int(n_queries)
        return cost

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

    # With free ballots a label costs a function of its own sum alone, known before voting: the divergence to
    # the worst sum that one ballot can make of it. No envelope above the exact cost is needed, as for an arg
    # max: the sum over all queries and labels is the exact cost of a teacher who holds the dearer vote
    # everywhere. One changed ballot moves every sum by at most one vote, so the local sensitivity is a sum
    # over labels too, and that of the logarithm of the cost a quotient of two such sums.

    def envelope(self, votes: Votes, *, order: float) -> EnvelopeCost:
        """Return the cost of all labels and its local sensitivity at distance 0, 1, 2, ... ballots; private.

        Guarantee: f, the larger direction of the sum of costs over queries and labels, is at least the exact
                   cost of every teacher. Entry d of the sensitivities is at least the most that one more
                   changed ballot moves f once d of them have changed; entries of neighbours interleave.
        Assumes:   free ballots; the order was fixed before voting.
        Reference: Nissim, Raskhodnikova, Smith 2007, Definition 3.1; "Many labels", section on publishing.
        """
        total = np.zeros(2)
        local = np.zeros(
            (2, 2, votes.n_teachers + 1)
        )  # (direction of the divergence, rise or fall, distance)
        size = 2 * self.rule.one + 1
        for costs, change, times in self._tables(votes, order):
            total += costs @ times
            for distance in range(votes.n_teachers + 1):
                local[:, :, distance] += change @ times
                # Every ballot moves every sum as it likes: after d of them a sum is anywhere within d votes.
                change = maximum_filter1d(change, size, axis=2, mode="nearest")
        return EnvelopeCost(float(total.max()), np.maximum.accumulate(local.max(axis=(0, 1))))

    def log_envelope(self, votes: Votes, *, order: float, offsets: Sequence[float]) -> tuple[float, Floats]:
        """Return f as above, and how fast log(1 + f / offset) moves, (offsets, distances); private.

        Guarantee: as `envelope`, for the logarithm: with r the largest quotient of what one more ballot adds
                   to f and f + offset, over all votes that d ballots can reach, entry d is at least
                   log(1 + r), and -log(1 - r) for what it takes away; entries of neighbours interleave.
        Assumes:   free ballots; order and offsets were fixed before voting, and are positive.
        Reference: "Many labels", section on publishing; the quotients by the method of Dinkelbach 1967.
        """
        tables = list(self._tables(votes, order))
        spare = min(offsets) / (len(votes) * votes.n_labels)
        # What one direction gains is held against f, that is against either direction: (changing, rise or
        # fall, held against). No quotient of sums is larger than the largest of its terms, where slopes end.
        quotients = [(change[:, :, None] / (costs + spare)).max(axis=3) for costs, change, _ in tables]
        slopes = slopes_up_to(np.max(quotients, axis=0))
        total = np.zeros(2)
        excess = np.zeros((*slopes.shape, votes.n_teachers + 1))
        size = 2 * self.rule.one + 1
        for costs, change, times in tables:
            total += costs @ times
            over = change[:, :, None, None] - slopes[..., None] * costs[:, None]
            for distance in range(votes.n_teachers + 1):
                excess[..., distance] += over @ times
                over = maximum_filter1d(over, size, axis=4, mode="nearest")
        logs = []
        for offset in offsets:
            found = largest_quotients(slopes, excess, offset)
            # Against its own direction a fall is less than all of it; against the other it may seem more.
            rise, fall = log_moves(found[:, 0], found[:, 1])
            logs.append(np.maximum(rise.min(axis=1), fall.min(axis=1)).max(axis=0))
        return float(total.max()), np.maximum.accumulate(np.stack(logs), axis=1)

    def _tables(self, votes: Votes, order: float) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Yield, for each threshold, costs, how far a ballot moves them, and how many labels have which sum.

        Shapes: (directions, sums), (directions, rise or fall, sums) and (sums).
        """
        require_label_votes(self, votes)
        votes.require_all_labels("publishing what they cost")
        if "envelope" not in self.publishable:
            raise TypeError(f"Expected a mechanism with free ballots, got {type(self).__name__}.")
        limits, which = np.unique(self.limits(votes.n_teachers), return_inverse=True)
        sums = self.fitted_sums(votes)
        tally = np.zeros((limits.size, votes.n_teachers * self.rule.one + 1))
        np.add.at(tally, (np.broadcast_to(which.reshape(-1), sums.shape), sums), 1.0)
        size = 2 * self.rule.one + 1
        for limit, times in zip(limits.tolist(), tally, strict=True):
            costs = label_costs(self, votes.n_teachers, limit, float(order))
            rise = maximum_filter1d(costs, size, axis=1, mode="nearest") - costs
            fall = costs + maximum_filter1d(-costs, size, axis=1, mode="nearest")
            yield costs, np.stack([rise, fall], axis=1), times

    def plain_rates(self, n_labels: int | None = None) -> tuple[float, float]:
        """Return what the checks and the answers of a query cost per order if all noisy sums were told.

        Guarantee: checks and answers cost at most these times the order, for any votes: half the squared
                   distance of the two ballots that are furthest apart, over the variance of the noise.
        Assumes:   `n_labels` of the labels are answered, all if not said.
        Reference: Canonne, Kamath, Steinke 2020, Theorem 4 (each sum).
        """
        k = self.n_labels if n_labels is None else n_labels
        answers = self.rule.furthest(k) / (2 * self.sum_sigma**2)
        if not self.has_bar:
            return 0.0, answers
        return self.rule.furthest(self.n_labels) / (2 * self.bar_sigma**2), answers

    def published_rows(self, votes: Votes, grid: Floats, told: Mask | None, drawn: bool) -> Floats:
        """Return the papers' data-dependent cost of every query, each label with a q of its own; private."""
        sums, units = self.fitted_sums(votes), self.resolution
        law, total = self.law(votes.n_teachers), votes.n_teachers * units
        # One label moves by at most this, whatever the norm allows all of them together.
        weight = max(self.rule.values)
        if weight == 0:
            return np.zeros((len(votes), grid.size))
        sides = log_accept(sums - (law.threshold if drawn else total / 2), law.sigma, drawn=drawn)
        rare = np.minimum(*sides)
        bound = partial(_distinct_bounds, grid=grid)
        cap = grid * self.plain_rates()[1]
        if law.bar is None:
            return np.minimum(bound(rare, sigma=math.sqrt(2) * law.sigma / weight), cap)
        threshold = getattr(self, "threshold") * units  # noqa: B009
        height = law.bar.margin(sums) if drawn else np.maximum(sums, total - sums) - threshold
        accept, reject = log_accept(height, law.bar.sigma, drawn=drawn)
        checks = bound(np.minimum(accept, reject), sigma=math.sqrt(2) * law.bar.sigma / weight)
        checks = np.minimum(checks, grid * self.plain_rates()[0])
        weights = np.exp(accept) if told is None else told.astype(np.float64)
        answers = bound(rare, sigma=math.sqrt(2) * law.sigma / weight, weights=weights)
        if told is not None:
            caps = np.array([self.plain_rates(n)[1] for n in range(self.n_labels + 1)])[told.sum(axis=1)]
            return np.asarray(checks + np.minimum(answers, caps[:, None] * grid))
        return np.asarray(checks + np.minimum(answers, cap))

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
    """A majority of ballots that all count as they were cast.

    A label behind a bar is an item of its own: silent, or told.
    """

    __repr__ = repr_of

    @property
    def rule(self) -> BallotRule:
        return free_ballots(self.n_labels, self.resolution)

    def price(
        self, unit: Unit, orders: ArrayLike | None = None, *, n_teachers: int | None = None
    ) -> RdpCurve:
        """Return the most one query can cost: all labels, each at its dearest kind.

        Guarantee: the same where teachers abstain on labels that they do not know, see `item`.
        """
        item = self.item(unit, orders, n_teachers=n_teachers)
        return super().price(unit, orders) if item is None else item.price() * self.n_labels

    def item(
        self, unit: Unit, orders: ArrayLike | None = None, *, n_teachers: int | None = None
    ) -> Item | None:
        """Return a label as one thing that is paid for, silent (kind 0) or told (kind 1).

        None where check and answer have no joint price: without a bar, for parts of a vote, or where the
        number of teachers is not known.

        Guarantee: the charges of `joint_charges`, for every sum of every number of teachers up to this one:
                   how many know a label is public, and the same at neighbours. Noise is drawn label by label,
                   so that the costs of labels add up.
        Assumes:   one unit changes one ballot, of 0 and 1.
        Reference: "The joint price of a check and its answer"; Feldman and Zrnic 2021.
        """
        require_one_ballot(unit)
        if n_teachers is None or not self.has_bar or self.resolution != 1:
            return None
        height = math.ceil(getattr(self, "threshold"))  # noqa: B009
        checked = Checked("label", n_teachers, 2, self.sum_sigma, height, self.bar_sigma)
        clock = two_events(check_price(self.bar_sigma, unit), check_price(self.sum_sigma, unit))
        share = getattr(self, "expected_silence", None)
        return joint_item(checked, tuple(check_orders(orders).tolist()), share, clock)

    def _charged(self, votes: Votes, told: Mask) -> RdpCurve:
        """Return what queries cost of which these labels were told."""
        item = self.item(votes.unit, n_teachers=votes.n_teachers)
        if item is None:
            return super()._charged(votes, told)
        n_told = int(told.sum())
        return item.price(0) * (told.size - n_told) + item.price(1) * n_told


def dearest_pair(rule: BallotRule, sigma: float, n_labels: int, orders: ArrayLike | None = None) -> Price:
    """Return the most that deciding `n_labels` labels costs, over all pairs of allowed ballots.

    Where every vote counts in full, that is one item per label that two ballots can move; where ballots are
    clipped, one item for all labels, whose table is that of the dearest two ballots at each level.

    Guarantee: a label whose sum moves by w units costs its `suprema.check_supremum`: two outcomes, both
               directions, every sum; about 0.637 order w^2 / (2 sigma^2), and never above
               order w^2 / (2 sigma^2).
    Assumes:   whole sums, discrete Gaussian noise.
    Reference: "The price of an arg max"; "Many labels".
    """
    grid = tuple(check_orders(orders))
    if rule.is_free or rule.most < rule.n_labels:
        label = check_item(float(sigma), rule.one, grid)
        return Price.of([(min(int(n_labels), 2 * rule.most), label, None)], like=label.dearest)
    return _dearest_item(rule, float(sigma), int(n_labels), grid).price()


@lru_cache(maxsize=256)
def _dearest_item(rule: BallotRule, sigma: float, n_labels: int, orders: tuple[float, ...]) -> Item:
    def price(units: int) -> Floats:
        return check_supremum(sigma, orders, weight=units).values if units else np.zeros(len(orders))

    curve = RdpCurve(np.array(orders), rule.dearest(price, n_labels))
    return Item((curve,), DearestPairClock(rule, sigma, n_labels) if curve.values.any() else None)


@dataclass(frozen=True)
class DearestPairClock(KeptTables):
    """Labels that are decided from clipped ballots: the dearest two of them at every level.

    Guarantee: given two ballots, every label that they move is an event of its own, priced where at least as
               much is left as at the level after all of them; the largest sum over all pairs of ballots
               holds for each.
    Assumes:   as `CheckClock`; labels have noise of their own.
    Reference: "The clock".
    """

    family: ClassVar[str] = "dearest-pair"
    rule: BallotRule
    sigma: float
    n_labels: int

    def identity(self) -> dict[str, Any]:
        """Return what tells this family from every other."""
        said = {"values": list(self.rule.values), "sigma": self.sigma, "n_labels": self.n_labels}
        return {"family": self.family, **said}

    def work_out(self, kappa: float) -> ClockTable:
        """Return the table, from the tables of single labels."""
        # What a label costs grows with its weight, and is made to. How far a label moves that two ballots
        # share is rounded up to the weight of a label that one of them has alone: there are fewer of these.
        weights = sorted(set(self.rule.values[1 : self.n_labels + 1]) - {0})
        tables = [CheckClock(self.sigma, weight).table(kappa) for weight in weights]
        levels = tables[-1].levels
        costs = np.maximum.accumulate([[price_at(each, level) for level in levels] for each in tables])
        rows = np.concatenate([np.zeros((1, len(levels))), costs])
        found = self.rule.dearest(
            lambda units: rows[np.searchsorted(weights, units) + 1 if units else 0], self.n_labels
        )
        found = found / TICKS
        prices = [[price] for price in (found * (1 + 1e-12)).tolist()]
        return table_of([at / TICKS for at in levels], prices, kappa, events=self.n_labels)


@lru_cache(maxsize=256)
def label_costs(mechanism: PerLabel, n_teachers: int, limit: int, order: float) -> Floats:
    """Return, (2 directions, sums), the most that a label with this sum costs at one order.

    Guarantee: the divergence between this sum and the worst that one ballot of up to a vote can make of it,
               whatever the own vote was; forward and reverse.
    Assumes:   the sum is one of so many teachers. Of a label without a bar the furthest sums are the worst.
    Reference: "Many labels".
    """
    law, one = mechanism.law(n_teachers), mechanism.rule.one
    sums = np.arange(n_teachers * one + 1)
    at = law.log_outcomes(sums, np.array([limit, law.kinds[1, 0]]))
    table = np.zeros((2, sums.size))
    # With a bar the outcomes are three and nothing says that the furthest sum is the worst: try all.
    for step in range(1, one + 1) if law.bar is not None else (one,):
        for there in (np.maximum(sums - step, 0), np.minimum(sums + step, sums[-1])):
            table = np.maximum(table, pair_divergences(at, at[:, there], [order])[:, :, 0])
    return table


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
