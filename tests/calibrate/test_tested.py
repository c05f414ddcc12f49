"""A tested batch is planned without a look at the votes, and pays off on votes that the plan did not see."""

import math
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, GNMax, RdpCurve, Unit, Votes
from tellers.accounting import Consensus, budget_for, plan_most_tested, plan_test
from tellers.mechanisms._laws import DiscreteGaussian

ROOT = Path(__file__).resolve().parents[2]
ABOUT = {"n_teachers": 250, "n_classes": 10, "delta": 1e-5}


@pytest.fixture(scope="module")
def digits():
    with np.load(ROOT / "examples" / "mnist_votes.npz") as kept:
        return Votes.from_ballots(kept["ballots"], n_classes=10)


def chance(mechanism, votes):
    """Return how likely the test passes: P[Z >= threshold - depth]."""
    margin = mechanism.depth(votes) - mechanism.threshold
    return math.exp(float(DiscreteGaussian(mechanism.test_sigma).log_cdf(np.array([float(margin)]))[0]))


def test_461_labels_cost_half_and_most_batches_pass(digits):
    plan = plan_test(40.0, n_queries=461, **ABOUT)
    assert plan.epsilon < 1.35 < 0.52 * budget_for(GNMax(40.0), 461, delta=1e-5)
    assert chance(plan.mechanism, digits[:461]) > 0.75
    rng = np.random.default_rng(7)
    drawn = [chance(plan.mechanism, digits[rng.choice(9000, 461, replace=False)]) for _ in range(100)]
    assert np.mean(drawn) > 0.85
    assert 0.7 < plan.pass_rates[0] < 0.9


def test_a_budget_buys_three_times_as_many_labels(digits):
    plan = plan_most_tested(1.35, 40.0, most=9000, **ABOUT)
    plain = Accountant(Budget(1.35, 1e-5)).n_affordable(GNMax(40.0).price(Unit()), 9000)
    n = plan.mechanism.n_queries
    assert n > 3.5 * plain
    price = plan.mechanism.batch_price(Unit(), n)
    assert plan.accountant(1.35).affords(RdpCurve.zero(), price)
    assert chance(plan.mechanism, digits[:n]) > 0.75
    assert plan_most_tested(0.1, 40.0, most=10, **ABOUT) is None
    with pytest.raises(ValueError, match="budget of at least"):
        plan.accountant(1.2)


def test_one_bad_proxy_of_three_does_not_decide():
    good = [Consensus().votes(250, 10, n_queries=500, seed=seed)[0] for seed in (1, 2)]
    bad = Consensus(agreement=0.55).votes(250, 10, n_queries=500, seed=3)[0]
    alone, both = (plan_test(40.0, n_queries=461, proxies=each, **ABOUT) for each in (good, [*good, bad]))
    assert both.mechanism == alone.mechanism
    assert both.pass_rates[2] < 0.01 < 0.7 < both.pass_rates[0]
    assert plan_test(40.0, n_queries=461, proxies=[bad], **ABOUT).epsilon > 1.5 * alone.epsilon


def test_proxies_of_other_teachers_are_refused():
    proxy = Consensus().votes(50, 10, n_queries=20, seed=1)[0]
    with pytest.raises(ValueError, match="250 teachers"):
        plan_test(40.0, n_queries=461, proxies=[proxy], **ABOUT)
