"""A mechanism that is paid by the batch keeps its promises, and broken ones are found out."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tellers import Cost, RdpCurve, Release, Unit
from tellers.accounting import public_cost
from tellers.accounting.costs import budget_for, independent_cost
from tellers.errors import require_positive
from tellers.mechanisms.base import is_by_batch, price_of
from tellers.testing import check_mechanism


@dataclass(frozen=True)
class NoisyTotal:
    """Add all tallies of a batch up, add noise, and tell the leader for every query, at one price."""

    sigma: float
    paid: float = 1.0
    shared: bool = False

    def __post_init__(self):
        require_positive(sigma=self.sigma)

    def batch_price(self, unit, n_queries, *, n_teachers=None, n_classes=None):
        # A teacher may move n_queries votes of the total from one class to another.
        return RdpCurve.zcdp(self.paid * (n_queries * unit.l2) ** 2 / (2 * self.sigma**2)).as_price()

    def release(self, votes, noise):
        total = votes.counts.sum(axis=0)
        noisy = total + (0 if self.shared else noise.discrete_gaussian(self.sigma, total.shape))
        labels = np.full(len(votes), int(np.argmax(noisy)))
        return Release(labels, Cost(self.batch_price(votes.unit, len(votes))))


def test_a_sound_one_passes():
    check_mechanism(NoisyTotal(sigma=9.0), n_draws=2000)


@pytest.mark.parametrize("broken", [NoisyTotal(9.0, shared=True), NoisyTotal(1.0, paid=0.001)], ids=repr)
def test_a_leak_is_found(broken):
    with pytest.raises(AssertionError, match="draws prove more"):
        check_mechanism(broken, n_draws=3000)


@dataclass(frozen=True)
class Overrun(NoisyTotal):
    def release(self, votes, noise):
        right = super().release(votes, noise)
        return replace(right, cost=Cost(right.cost.worst * 2.0))


@dataclass(frozen=True)
class Falling(NoisyTotal):
    def batch_price(self, unit, n_queries, **known):
        right = super().batch_price(unit, n_queries, **known)
        return RdpCurve(right.orders, right.values[::-1])


@pytest.mark.parametrize(
    ("broken", "words"), [(Overrun(9.0), "cost at most its price"), (Falling(9.0), "does not fall")]
)
def test_a_wrong_price_is_found(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_mechanism(broken, n_draws=200)


def test_costs_are_those_of_one_batch():
    mechanism = NoisyTotal(sigma=90.0)
    assert is_by_batch(mechanism)
    whole = independent_cost(mechanism, 20)
    assert np.array_equal(whole.values, price_of(mechanism, Unit(), 20).values)
    assert (whole.values > 19 * independent_cost(mechanism, 1).values).all()
    assert not independent_cost(mechanism, 0).values.any()
    assert independent_cost(mechanism, 20, orders=[8.0]).values == whole.values[whole.orders == 8.0]
    stated = public_cost(mechanism, 20, delta=1e-5).epsilon
    assert stated == whole.epsilon(1e-5) <= budget_for(mechanism, 20, delta=1e-5) < 1.05 * stated
