"""What is left, in queries: as many as the ledger would let through, and not one more."""

import pytest

from tellers import Accountant, Budget, ConfidentGNMax, GNMax, LNMax, RdpCurve, Unit
from tellers.service._ledger import queries_left

MECHANISMS = (
    GNMax(sigma=5.0), GNMax(sigma=40.0), GNMax(sigma=2000.0), LNMax(gamma=0.05),
    ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0),
)  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("before", [0, 1, 17])
def test_queries_left_is_what_the_accountant_affords(mechanism, epsilon, before):
    accountant, price = Accountant(Budget(epsilon=epsilon, delta=1e-6)), mechanism.price(Unit())
    spent = RdpCurve.zero() + price * before
    n = queries_left(accountant, spent, price)
    assert n == 0 or accountant.affords(spent, price * n)
    assert not accountant.affords(spent, price * (n + 1))


def test_what_costs_nothing_is_paid_for_a_billion_times():
    accountant = Accountant(Budget(epsilon=1.0, delta=1e-6))
    assert queries_left(accountant, RdpCurve.zero(), RdpCurve.zero()) == 1_000_000_000
