"""Propose, test, release: a batch of labels at a cost proposed beforehand, if its votes are clear."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ..privacy._price import Item, Price
from ..privacy.budget import Accountant
from ..privacy.noise import Noise
from ..privacy.rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..privacy.release import SILENT, Cost, Release
from ..privacy.votes import Unit, Votes, require_votes_on
from ._fields import noise_sigma
from ._laws import DiscreteGaussian
from .gap_bounds import gap_envelope
from .gnmax import GNMax
from .registry import check_parameters, parameter, register
from .suprema import argmax_supremum, check_supremum

FAILED, PASSED = 0, 1
"""The kinds of outcome of a tested batch, as its price counts them."""


@register("tested-gnmax", "gnmax for one batch, cheap if a test finds its votes clear, silent else")
@dataclass(frozen=True)
class TestedGNMax:
    """Test whether a batch of votes is clear enough for a proposed cost; then answer all of it, or nothing.

    `clear_cost` is what the labels of the batch may cost at the Rényi order `held_at`. A public table says
    what a query costs at most, given the gap of its two largest counts, and so a batch has a depth: how many
    ballots of every query may change before the sum of the table passes the proposal, -1 where it does
    already. The depth with noise is compared with a public threshold. If it passes, every query is answered
    by GNMax(sigma) and the batch is charged the bit and the proposal; if it fails, every query is silent and
    the bit alone is charged. A batch that is not clear passes with probability `test_delta` at most, which
    is added to the delta of the run whatever comes out.

    Guarantee: for every pair of neighbouring batches, at the order `held_at`, the outcome costs the bit, and
               the proposal besides if the test passed, with an additive delta of test_delta. At other orders
               it is charged so much that this holds there too.
    Assumes:   all votes of the batch are in before a label leaves; all fields were fixed before any vote; one
               unit changes one ballot per query, gives it, or keeps it back; noise from a secure source.
    Reference: Dwork and Lei 2009 (propose, test, release); see "A tested release".

    >>> from tellers import Votes, noise
    >>> mechanism = TestedGNMax(
    ...     sigma=10.0, clear_cost=0.02, test_sigma=3.0, held_at=8.0, test_delta=1e-6, n_queries=2)
    >>> clear = Votes.from_counts([[240, 10], [5, 245]], n_teachers=250)
    >>> mechanism.release(clear, noise.seeded(7)).labels
    array([0, 1])
    >>> torn = Votes.from_counts([[240, 10], [125, 125]], n_teachers=250)
    >>> mechanism.release(torn, noise.seeded(7)).labels
    array([-1, -1])
    """

    sigma: float = noise_sigma(example=40.0)
    clear_cost: float = parameter(
        "the Rényi value, at the order held_at, that the labels of a clear batch may cost",
        above=0, example=0.5,
    )  # fmt: skip
    test_sigma: float = parameter(
        "standard deviation of the noise on how many ballots a batch is clear by", above=0, in_votes=1,
        example=5.0,
    )  # fmt: skip
    held_at: float = parameter("the Rényi order at which the ledger holds its budget", above=0, example=13.0)
    test_delta: float = parameter(
        "the part of delta that the test takes, whatever comes out", above=0, example=2e-6
    )
    n_queries: int = parameter("how many queries the one batch has", least=1, example=461)
    symmetric: ClassVar[bool] = True
    __test__: ClassVar[bool] = False  # no test of its own, whatever its name begins with
    price_method: ClassVar[str] = "tested-rdp"

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.test_delta >= 0.5:
            raise ValueError(f"Expected test_delta below 0.5, got test_delta={self.test_delta:g}.")
        if self.held_at not in DEFAULT_ORDERS:
            raise ValueError(
                f"Expected held_at to be one of the Rényi orders of a ledger, got held_at={self.held_at:g}. "
                "Whole orders from 2 to 64 are among them."
            )

    @property
    def threshold(self) -> int:
        """Return what the noisy depth must reach; one of -1 does so with probability `test_delta` at most.

        >>> mechanism = TestedGNMax(40.0, clear_cost=0.5, test_sigma=5.0, held_at=13.0, test_delta=2e-6,
        ...                         n_queries=461)
        >>> mechanism.threshold
        23
        """
        return depth_threshold(self.test_sigma, self.test_delta)

    def batch_price(
        self, unit: Unit, n_queries: int, *, n_teachers: int | None = None, n_classes: int | None = None
    ) -> Price:
        """Return the most that the one batch costs, whatever the votes: the price of a batch that passes.

        >>> mechanism = TestedGNMax(40.0, clear_cost=0.5, test_sigma=5.0, held_at=13.0, test_delta=2e-6,
        ...                         n_queries=461)
        >>> price = mechanism.batch_price(Unit(), 461, n_teachers=250, n_classes=10)
        >>> round(price.epsilon(1e-5 - price.delta), 2), price.delta
        (1.37, 2e-06)
        """
        return self._price(PASSED, unit, n_queries, n_teachers, n_classes)

    def fail_price(self, unit: Unit, n_queries: int) -> Price:
        """Return what a batch costs that fails: the bit, and the delta of the test.

        >>> mechanism = TestedGNMax(40.0, clear_cost=0.5, test_sigma=5.0, held_at=13.0, test_delta=2e-6,
        ...                         n_queries=461)
        >>> failed, passed = mechanism.fail_price(Unit(), 461), mechanism.batch_price(Unit(), 461)
        >>> bool((failed.values < passed.values).all()), failed.delta == passed.delta
        (True, True)
        """
        return self._price(FAILED, unit, n_queries, None, None)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw the bit; if it passes draw the winners, and else leave every query silent."""
        public = (votes.unit, len(votes), votes.n_teachers, votes.n_classes)
        passed_price = self._price(PASSED, *public)
        passes = self.depth(votes) + int(noise.discrete_gaussian(self.test_sigma, 1)[0]) >= self.threshold
        if passes:
            return Release(GNMax(self.sigma).release(votes, noise).labels, Cost(passed_price))
        silent = np.full(len(votes), SILENT, dtype=np.int64)
        return Release(silent, Cost(self._price(FAILED, *public)))

    def depth(self, votes: Votes) -> int:
        """Return how many ballots of every query may change before the batch is not clear; private.

        It is -1 where the batch is not clear, and at most half the teachers and one.

        Guarantee: one unit changes it by at most 1.
        Assumes:   one unit moves every gap by at most 2.
        Reference: see "A tested release".

        >>> mechanism = TestedGNMax(
        ...     sigma=10.0, clear_cost=0.02, test_sigma=3.0, held_at=8.0, test_delta=1e-6, n_queries=1)
        >>> mechanism.depth(Votes.from_counts([[125, 125]], n_teachers=250))
        -1
        """
        require_votes_on("classes", votes, type(self).__name__)
        table = self._table(votes.n_teachers, votes.n_classes)
        gaps = votes.gap

        def is_clear(changed: int) -> bool:
            # fsum rounds once, and so never grows where no term does: the guarantee survives rounding.
            return math.fsum(table[np.maximum(gaps - 2 * changed, 0)].tolist()) <= self.clear_cost

        changes = range((votes.n_teachers + 1) // 2 + 2)  # at the last one every gap is 0
        return bisect_left(changes, True, key=lambda changed: not is_clear(changed)) - 1

    def without_test(self) -> GNMax:
        """Return the mechanism that answers the same queries whatever the votes, at its full price.

        >>> mechanism = TestedGNMax(40.0, clear_cost=0.5, test_sigma=5.0, held_at=13.0, test_delta=2e-6,
        ...                         n_queries=461)
        >>> mechanism.without_test()
        GNMax(sigma=40.0)
        """
        return GNMax(self.sigma)

    def require_accountant(self, accountant: Accountant) -> None:
        """Refuse a ledger that is held by another rule or at another order than the proposal was made for.

        >>> from tellers import Accountant, Budget
        >>> mechanism = TestedGNMax(40.0, clear_cost=0.5, test_sigma=5.0, held_at=13.0, test_delta=2e-6,
        ...                         n_queries=461)
        >>> mechanism.require_accountant(Accountant(Budget(1.4, 1e-5), order=13.0, for_tests=2e-6))
        >>> mechanism.require_accountant(Accountant(Budget(1.4, 1e-5), order=18.0))
        Traceback (most recent call last):
            ...
        ValueError: Expected a ledger held at the Rényi order 13, for which clear_cost was proposed, ...
        """
        advice = (
            f"Nothing was charged. Open a ledger with Accountant(budget, order={self.held_at:g}, "
            f"for_tests={self.test_delta:g})."
        )
        if accountant.clock is not None:
            raise ValueError(
                "Expected a ledger held by Rényi divergence, got one on a clock: what the labels of a clear "
                f"batch cost is known at one Rényi order alone, and no clock has a price for it. {advice}"
            )
        if accountant.held_at != self.held_at:
            raise ValueError(
                f"Expected a ledger held at the Rényi order {self.held_at:g}, for which clear_cost was "
                f"proposed, got one held at {accountant.held_at:g}. {advice}"
            )
        if accountant.for_tests < self.test_delta:
            raise ValueError(
                f"Expected a ledger that set aside {self.test_delta:g} of its delta for the test, got one "
                f"that set aside {accountant.for_tests:g}. {advice}"
            )

    def _table(self, n_teachers: int, n_classes: int) -> Floats:
        table = gap_envelope(n_teachers, n_classes, sigma=self.sigma, order=self.held_at)
        least = self.n_queries * float(table[-1])
        if self.clear_cost < least:
            raise ValueError(
                f"Expected clear_cost of at least {least:.4g}, which {self.n_queries} queries cost by the "
                f"public bound even where all {n_teachers} teachers agree, got "
                f"clear_cost={self.clear_cost:g}. Such a test would always fail; see accounting.plan_test."
            )
        return table

    def _price(
        self, kind: int, unit: Unit, n_queries: int, n_teachers: int | None, n_classes: int | None
    ) -> Price:
        if unit != Unit():
            raise ValueError(
                "Expected votes of which one unit changes one ballot of one vote, got another unit: a test "
                "is not priced for weights or several ballots."
            )
        if n_queries != self.n_queries:
            raise ValueError(
                f"Expected one batch of {self.n_queries} queries, for which the test was planned, got "
                f"{n_queries}. Ask all of them at once, or plan a test for another number."
            )
        if n_teachers is not None and n_classes is not None:
            self._table(n_teachers, n_classes)
        return _prices(self)[kind]


@lru_cache(maxsize=64)
def _prices(mechanism: TestedGNMax) -> tuple[Price, Price]:
    """Return what a batch costs that fails, and one that passes, at every order.

    At held_at, labels of a clear pair cost clear_cost, at smaller orders no more, since divergences grow with
    the order. At larger ones, and where that is less, they cost what GNMax costs whatever the votes.
    """
    bit = check_supremum(mechanism.test_sigma).as_price()
    labels = mechanism.n_queries * argmax_supremum(mechanism.sigma).values
    clear = np.where(bit.orders <= mechanism.held_at, np.minimum(labels, mechanism.clear_cost), labels)
    item = Item((bit, RdpCurve(bit.orders, bit.values + clear).as_price()))
    failed, passed = (Price.of([(1, item, kind)], delta=mechanism.test_delta) for kind in (FAILED, PASSED))
    return failed, passed


@lru_cache(maxsize=4096)
def depth_threshold(test_sigma: float, test_delta: float) -> int:
    """Return the least whole b with P[Z >= b + 1] <= test_delta for the noise of the test.

    >>> depth_threshold(5.0, 2e-6)
    23
    """
    law = DiscreteGaussian(test_sigma)
    most = math.log(test_delta) - 1e-9  # against us, by more than the law rounds

    def is_rare(b: int) -> bool:
        return float(law.log_cdf(np.array([-b - 1.0]))[0]) <= most

    high = 1
    while not is_rare(high):
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_rare(middle) else (middle, high)
    return high
