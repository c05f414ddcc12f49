"""Plans of labels: within the budget, growing with it, ranked by what they tell, from public votes only."""

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest

from tellers import Accountant, Budget, ConfidentGNMax, GNMax, LNMax, Unit, Votes, exact_cost, noise
from tellers.accounting import Consensus, plan_labels, sigma_for_labels
from tellers.accounting.costs import independent_cost
from tellers.accounting.plan import settings

DELTA = 1e-5
PROXY, TRUTH = Consensus().votes(60, 4, n_queries=60, seed=7)
MECHANISMS = [
    GNMax(6.0),
    GNMax(12.0),
    ConfidentGNMax(8.0, 36, 15.0),
    ConfidentGNMax(8.0, 54, 15.0),
    LNMax(0.1),
]


def plans(epsilon, *, n_public=10_000, mechanisms=MECHANISMS, **changed):
    return plan_labels(
        PROXY, TRUTH, budget=Budget(epsilon, DELTA), n_public=n_public, mechanisms=mechanisms, **changed
    )


def by_mechanism(found):
    """Return plans by the setting that was tried, which plans are told a share of silence for."""
    return {
        replace(plan.mechanism, expected_silence=None)
        if hasattr(plan.mechanism, "expected_silence")
        else plan.mechanism: plan
        for plan in found
    }


@pytest.mark.parametrize("against", ["exact", "public"])
def test_every_plan_keeps_the_budget_and_uses_it(against):
    for plan in plans(2.0, against=against):
        cost = plan.epsilon_exact if against == "exact" else plan.epsilon_public
        assert cost <= 2.0
        assert plan.epsilon_charged <= plan.epsilon_public
        assert 0 <= plan.n_labels <= plan.n_queries <= 10_000
        assert 0 <= plan.accuracy <= 1
        # One more query would not fit: n_queries is the largest that does.
        if against == "public":
            n_answers = math.ceil(plan.n_labels - 1e-9)
            spent = independent_cost(plan.mechanism, plan.n_queries, n_answers=n_answers)
            assert not Accountant(Budget(2.0, DELTA)).affords(spent, plan.mechanism.price(Unit()))


@pytest.mark.parametrize("against", ["exact", "public"])
def test_more_budget_never_gives_fewer_labels(against):
    budgets = [by_mechanism(plans(epsilon, against=against)) for epsilon in (0.3, 0.6, 1.0, 2.0, 4.0)]
    for mechanism in MECHANISMS:
        labels = [budget[mechanism].n_labels for budget in budgets]
        assert labels == sorted(labels)
        assert labels[-1] > labels[0]


def test_the_exact_cost_gives_at_least_the_labels_of_the_public_price():
    exact, public = (by_mechanism(plans(1.0, against=against)) for against in ("exact", "public"))
    for mechanism in MECHANISMS:
        assert exact[mechanism].n_labels >= public[mechanism].n_labels
        assert exact[mechanism].epsilon_exact <= exact[mechanism].epsilon_public


def test_plans_are_ranked_by_information():
    found = plans(1.0)
    assert [plan.information for plan in found] == sorted((plan.information for plan in found), reverse=True)
    assert all(plan.information <= plan.n_labels * math.log2(4) for plan in found)


def test_there_are_only_so_many_public_inputs():
    assert all(plan.n_queries == 7 for plan in plans(5.0, n_public=7))


def test_a_budget_for_nothing_gives_nothing():
    (plan,) = plans(1e-6, mechanisms=[GNMax(2.0)])
    assert (plan.n_queries, plan.n_labels, plan.information) == (0, 0.0, 0.0)


def test_a_plan_says_what_its_mechanism_does_on_the_proxy():
    mechanism = ConfidentGNMax(8.0, 45, 10.0)
    (plan,) = plans(3.0, mechanisms=[mechanism], against="exact")
    answered = right = 0
    for seed in range(200):
        labels = mechanism.release(PROXY, noise.seeded(seed)).labels
        answered += np.sum(labels >= 0)
        right += np.sum(labels == TRUTH)
    # 12,000 draws: five standard errors of a share are below 0.023, once in two million runs.
    assert plan.n_labels / plan.n_queries == pytest.approx(answered / (200 * len(PROXY)), abs=0.023)
    assert plan.accuracy == pytest.approx(right / answered, abs=0.03)
    exact = exact_cost(mechanism, PROXY, orders=[2.0, 8.0, 20.0]).cost.reveal()
    scaled = exact * (plan.n_queries / len(PROXY))
    assert plan.epsilon_exact <= scaled.epsilon(DELTA) + 1e-9


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_a_plan_expects_the_silence_of_its_proxy_and_never_answers_fewer(epsilon):
    for mechanism in (ConfidentGNMax(12.0, 30, 20.0), ConfidentGNMax(8.0, 54, 12.0)):
        (plan,) = plans(epsilon, mechanisms=[mechanism])
        share = plan.n_labels / plan.n_queries
        assert plan.mechanism.expected_silence in (None, round(1 - share, 2))
        # A setting that says what it expects keeps it, and no such setting answers more.
        for said in (0.0, 0.5, 0.9):
            (other,) = plans(epsilon, mechanisms=[replace(mechanism, expected_silence=said)])
            assert other.mechanism.expected_silence == said
            assert other.n_labels <= plan.n_labels + 1e-9
        n = plan.n_queries
        before = independent_cost(mechanism, n, n_answers=math.ceil(share * n))
        assert not Accountant(Budget(epsilon, DELTA)).affords(before, mechanism.price(Unit()))


def test_a_plan_is_a_function_of_the_proxy():
    # No noise is drawn and nothing else is read; how the classes are called does not matter.
    counts = Votes.from_counts(PROXY.counts, n_teachers=60)
    (one,), (two,) = (
        plan_labels(votes, TRUTH, budget=Budget(1.0, DELTA), n_public=500, mechanisms=[GNMax(8.0)])
        for votes in (PROXY, PROXY)
    )
    assert one == two
    renamed = Votes.from_counts(PROXY.counts[:, ::-1], n_teachers=60)
    (here,), (there,) = (
        plan_labels(votes, truth, budget=Budget(1.0, DELTA), n_public=500, mechanisms=[GNMax(8.0)])
        for votes, truth in ((counts, TRUTH), (renamed, 3 - TRUTH))
    )
    for field in dataclasses.fields(here):
        if field.name not in ("mechanism", "bound_because"):
            assert getattr(here, field.name) == pytest.approx(getattr(there, field.name), rel=1e-9)


def test_progress_counts_the_settings():
    seen = []
    plans(1.0, progress=seen.append)
    assert sum(seen) == len(MECHANISMS)


def test_default_settings_are_in_proportion_to_the_ensemble():
    small, large = settings(100), settings(1000)
    assert len(small) == len(large) == len(set(small))
    for one, ten in zip(small, large, strict=True):
        assert type(one) is type(ten)
        assert ten.sigma == pytest.approx(10 * one.sigma)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="one true class per proxy query"):
        plan_labels(PROXY, TRUTH[:5], budget=Budget(1.0, DELTA), n_public=10)
    with pytest.raises(ValueError, match="n_public"):
        plans(1.0, n_public=0)
    with pytest.raises(ValueError, match="n_labels"):
        sigma_for_labels(0, PROXY, TRUTH, budget=Budget(1.0, DELTA))


# The other way round: from labels to noise ------------------------------------------------------------------


@pytest.mark.parametrize("against", ["exact", "public"])
def test_the_least_noise_for_so_many_labels(against):
    budget = Budget(1.5, DELTA)
    plan = sigma_for_labels(100, PROXY, TRUTH, budget=budget, against=against)
    cost = plan.epsilon_exact if against == "exact" else plan.epsilon_public
    assert plan.n_labels >= 100
    assert cost <= 1.5
    # Forwards again: this noise gives the labels, two per cent less noise does not.
    made = {"budget": budget, "n_public": 10_000, "against": against}
    (same,) = plan_labels(PROXY, TRUTH, mechanisms=[plan.mechanism], **made)
    assert same.n_labels >= 100
    (less,) = plan_labels(PROXY, TRUTH, mechanisms=[GNMax(0.98 * plan.mechanism.sigma)], **made)
    assert less.n_labels < 100


def test_more_labels_need_more_noise_and_more_budget_less():
    proxy, truth = Consensus().votes(12, 4, n_queries=60, seed=7)  # few teachers, little noise: quick prices

    def sigma(n_labels, epsilon):
        plan = sigma_for_labels(n_labels, proxy, truth, budget=Budget(epsilon, DELTA))
        return plan.mechanism.sigma

    assert sigma(50, 2.0) < sigma(200, 2.0)
    assert sigma(50, 2.0) < sigma(50, 0.5)


def test_a_mechanism_of_ones_own_making():
    plan = sigma_for_labels(
        40,
        PROXY,
        TRUTH,
        budget=Budget(2.0, DELTA),
        make=lambda sigma: ConfidentGNMax(sigma, 40, 2 * sigma),
    )
    assert isinstance(plan.mechanism, ConfidentGNMax)
    assert plan.mechanism.sigma_threshold == 2 * plan.mechanism.sigma
    assert plan.n_labels >= 40 * (1 - 1e-9)
    assert plan.epsilon_public <= 2.0


def test_labels_that_no_noise_can_pay_for_are_refused():
    with pytest.raises(ValueError, match="fewer labels"):
        sigma_for_labels(10**9, PROXY, TRUTH, budget=Budget(0.1, DELTA))
