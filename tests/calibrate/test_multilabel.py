"""Advice on many labels: within the budget, by the price that counts, from public votes, and in words."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import Accountant, Budget, LabelVotes, Unit, exact_cost, noise
from tellers.accounting import LabelProfile, advise, ballot_traits, multilabel_settings
from tellers.accounting.plan_multilabel import (
    budget_orders,
    expected_price,
    expected_scores,
    label_chances,
    label_gaps,
    regime_of,
    set_gaps,
)
from tellers.mechanisms import (
    AdaptiveGNThreshold,
    Binary,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    PartialPowerset,
    Powerset,
    Tau,
)
from tellers.mechanisms.base import price_of

BUDGET = Budget(8.0, 1e-5)
PROXY, TRUTH = LabelProfile(yes_rate=0.2, agreement=0.95).votes(40, 6, n_queries=60, seed=7)
TRIED = [
    Binary(6.0, 6),
    Tau(6.0, 6, 1.0),
    Tau(6.0, 6, 1.0, "l1"),
    Powerset(3.0, 6),
    GNThreshold(4.0, 6, max_labels=2),
    AdaptiveGNThreshold(4.0, 6, 4.0, (0.3, 0.5, 0.7), 2),
    PartialPowerset(3.0, 6, ((0, 3), (1, 2, 5))),
    ConfidentBinary(6.0, 6, 30, 8.0),
    ConfidentTau(6.0, 6, 1.4, 30, 8.0),
    ConfidentPowerset(3.0, 6, 15, 8.0),
    ConfidentGNThreshold(4.0, 6, 1, 0.6, 8.0),
]
CONFIDENT = TRIED[-4:]


def advice(budget=BUDGET, proxy=PROXY, truth=TRUTH, **changed):
    made = {"n_public": 100_000, "seed": 7, "mechanisms": TRIED, "forecast_all": True, **changed}
    return advise(proxy, truth, budget=budget, **made)


FOUND = advice()


# What is promised of a plan -----------------------------------------------------------------------------


def test_the_public_price_keeps_the_budget_and_one_query_more_does_not():
    """By the rule of a ledger: before each query its whole price must fit on top of what is expected."""
    accountant = Accountant(BUDGET)
    for plan in FOUND.plans:
        chances = label_chances(plan.mechanism, PROXY, seed=7)
        held = [accountant.held_at]
        one = expected_price(plan.mechanism, chances, orders=held, n_teachers=PROXY.n_teachers)
        price = price_of(plan.mechanism, Unit(), orders=held, n_teachers=PROXY.n_teachers)
        n = plan.n_queries
        assert n == 0 or accountant.affords((n - 1) * one, price)
        assert not accountant.affords(n * one, price)
        assert plan.epsilon_public <= 8.0


def test_few_orders_lose_next_to_nothing():
    for epsilon in (0.5, 2.0, 8.0, 20.0):
        budget = Budget(epsilon, 1e-5)
        mechanism = Binary(40.0, 6)
        few = mechanism.price(Unit(), budget_orders(budget))
        # As many queries as use up the budget, priced on the few orders and on all of them.
        n = next(n for n in range(1, 10**6, 25) if (few * n).epsilon(1e-5) > epsilon)
        assert (few * n).epsilon(1e-5) <= 1.02 * (mechanism.price(Unit()) * n).epsilon(1e-5)


def test_the_forecast_is_never_below_the_public_price():
    # The divergence of any votes is at most the price; only where labels are silent both are expectations.
    for plan in FOUND.plans:
        if not type(plan.mechanism).__name__.startswith("Confident"):
            assert plan.n_queries_exact >= plan.n_queries


def test_the_forecast_is_the_exact_cost_of_the_proxy():
    plan = next(plan for plan in FOUND.plans if plan.mechanism == TRIED[0])
    cost = exact_cost(TRIED[0], PROXY, orders=budget_orders(BUDGET)).cost.reveal() * (1 / len(PROXY))
    assert (
        (cost * plan.n_queries_exact).epsilon(1e-5) <= 8.0 < (cost * (plan.n_queries_exact + 1)).epsilon(1e-5)
    )


def test_silence_is_cheaper_and_never_cheaper_than_its_check():
    for mechanism in CONFIDENT:
        orders = [2.0, 5.0]
        chances = label_chances(mechanism, PROXY, seed=7)
        price = expected_price(mechanism, chances, orders=orders).values
        assert (price < mechanism.price(Unit(), orders).values).all()
        assert (price >= mechanism.check_price(Unit(), orders).values).all()


def test_expected_prices_are_what_releases_are_charged():
    mechanism = ConfidentBinary(6.0, 6, 30, 8.0)
    source = noise.seeded(7)
    charged = np.mean([mechanism.release(PROXY, source).cost.worst.values for _ in range(100)], axis=0)
    chances = label_chances(mechanism, PROXY, seed=7)
    expected = expected_price(mechanism, chances, n_teachers=PROXY.n_teachers).values * len(PROXY)
    # Told labels vary by at most sqrt(360 / 4) = 9.5 in a release of 360; a mean of 100 by 0.95, 0.3% of
    # the answers. Five of those: once in two million.
    np.testing.assert_allclose(charged, expected, rtol=0.02)


@pytest.mark.parametrize("mechanism", TRIED, ids=lambda m: type(m).__name__)
def test_chances_are_how_often_it_happens(mechanism):
    votes = PROXY[:6]
    chances = label_chances(mechanism, votes, seed=3)
    np.testing.assert_allclose(chances.sum(axis=0), 1, atol=1e-9)
    source, n = noise.seeded(11), 400
    labels = np.stack([mechanism.release(votes, source).labels for _ in range(n)])
    seen = np.stack([(labels == label).mean(axis=0) for label in (0, 1, -1)])
    if isinstance(mechanism, (Powerset, PartialPowerset, ConfidentPowerset)):
        # Four draws each: they can tell little more than the means over all labels.
        np.testing.assert_allclose(chances.mean(axis=(1, 2)), seen.mean(axis=(1, 2)), atol=0.25)
    else:
        # Five standard errors, of 108 shares: a false alarm once in 16,000 runs.
        np.testing.assert_allclose(chances, seen, atol=5 * 0.5 / np.sqrt(n))


# Ranking ------------------------------------------------------------------------------------------------


def test_settings_that_keep_their_labels_come_first_and_most_answers_of_them():
    keeps = [plan.keeps for plan in FOUND.plans]
    assert keeps == sorted(keeps, reverse=True)
    worth = [plan.worth for plan in FOUND.plans if plan.keeps]
    assert worth == sorted(worth, reverse=True)
    assert FOUND.best is FOUND.plans[0]
    assert FOUND.best_exact.worth_exact == max(plan.worth_exact for plan in FOUND.plans if plan.keeps)


def test_labels_lost_to_noise_are_not_kept():
    found = advice(mechanisms=[Binary(6.0, 6), Binary(400.0, 6)], forecast_all=False)
    kept, lost = found.plans
    assert (kept.mechanism.sigma, kept.keeps) == (6.0, True)
    assert (lost.keeps, lost.n_queries_exact) == (False, None)
    assert lost.n_queries > kept.n_queries
    assert lost.scores.balanced_accuracy == pytest.approx(0.5, abs=0.05)


def test_where_nothing_can_be_paid_for_nothing_is_best():
    found = advice(Budget(1e-6, 1e-5), mechanisms=[Binary(2.0, 6)])
    assert found.best is None
    assert found.best_exact is None
    assert "raise it" in found.regime.advice


def test_more_budget_never_answers_fewer():
    counts = [
        {
            silence_left_out(plan.mechanism): plan.n_queries
            for plan in advice(Budget(epsilon, 1e-5), forecast_all=False).plans
        }
        for epsilon in (1.0, 4.0, 16.0)
    ]
    for mechanism in TRIED:
        assert counts[0][mechanism] <= counts[1][mechanism] <= counts[2][mechanism]
        assert counts[2][mechanism] > counts[0][mechanism]


def silence_left_out(mechanism):
    """Return a mechanism without the share of silence that a plan expects: what it asks is the same."""
    told = hasattr(mechanism, "expected_silence")
    return dataclasses.replace(mechanism, expected_silence=None) if told else mechanism


def test_the_pool_is_a_limit():
    assert all(plan.n_queries == 3 for plan in advice(Budget(30.0, 1e-5), n_public=3).plans)


# Quality ------------------------------------------------------------------------------------------------


def test_without_truth_the_majority_without_noise_is_the_measure():
    found = advice(truth=None, mechanisms=[Binary(0.1, 6)])
    assert not found.against_truth
    assert found.noiseless.accuracy == 1.0
    assert found.plans[0].agreement == pytest.approx(1.0, abs=1e-6)
    assert found.plans[0].scores.accuracy == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 40))
def test_scores_of_sure_labels_are_those_of_scikit_learn(seed, n_labels, n_queries):
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    truth, said = rng.random((2, n_queries, n_labels)) < 0.4
    chances = np.stack([~said, said, np.zeros_like(said)]).astype(float)
    scores = expected_scores(chances, truth)
    assert scores.accuracy == pytest.approx((truth == said).mean())
    assert scores.micro_f1 == pytest.approx(
        sklearn.f1_score(truth.ravel(), said.ravel(), zero_division=0) if truth.any() or said.any() else 0.0
    )
    both = [j for j in range(n_labels) if 0 < truth[:, j].sum() < n_queries]
    if both:
        balanced = np.mean([sklearn.balanced_accuracy_score(truth[:, j], said[:, j]) for j in both])
        assert scores.balanced_accuracy == pytest.approx(balanced)


# Regimes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "name", "choice"),
    [
        (LabelProfile(yes_rate=0.1, agreement=0.98), "consensus", "Binary"),
        (LabelProfile(yes_rate=0.1, agreement=0.85), "sparse", "tau"),
        (LabelProfile(yes_rate=0.4, agreement=0.85, correlation=0.95), "correlated", "Powerset"),
        (LabelProfile(yes_rate=0.5, agreement=0.6), "contested", "one set"),
    ],
)
def test_every_regime_has_its_name_its_reasons_and_its_choice(profile, name, choice):
    votes, truth = profile.votes(50, 10, n_queries=60, seed=7)
    found = advise(votes, truth, budget=BUDGET, n_public=1000, seed=7, mechanisms=[Binary(8.0, 10)])
    assert found.regime.name == name
    assert choice in found.regime.advice
    assert "%" in found.regime.why


def test_correlated_labels_make_powerset_the_best_and_independent_ones_do_not():
    def best(correlation):
        profile = LabelProfile(yes_rate=0.4, agreement=0.85, correlation=correlation)
        votes, truth = profile.votes(50, 8, n_queries=80, seed=7)
        tried = [make(sigma, 8) for sigma in (3.0, 5.0, 7.0, 10.0, 14.0) for make in (Binary, Powerset)]
        found = advise(votes, truth, budget=BUDGET, n_public=10_000, seed=7, mechanisms=tried)
        return type(found.best.mechanism), type(found.best_exact.mechanism)

    assert best(0.95) == (Powerset, Powerset)
    assert best(0.0) == (Binary, Binary)


def test_tau_answers_more_than_binary_where_ballots_are_sparse():
    votes, truth = LabelProfile(yes_rate=0.05, agreement=0.98).votes(50, 20, n_queries=60, seed=7)
    found = advise(
        votes, truth, budget=BUDGET, n_public=10_000, seed=7, mechanisms=[Binary(8.0, 20), Tau(8.0, 20, 1.42)]
    )
    assert isinstance(found.best.mechanism, Tau)
    assert found.plans[0].n_queries > 3 * found.plans[1].n_queries


def test_words_tell_the_private_books_from_the_public_price():
    traits = ballot_traits(PROXY)
    same = regime_of(traits, Tau(6.0, 6, 1.0), Tau(9.0, 6, 1.4)).advice
    other = regime_of(traits, Tau(6.0, 6, 1.0), Tau(6.0, 6, 2.0, "l1")).advice
    assert "In the private books Tau (l2) is also forecast" in same
    assert "In the private books Tau (l1) is forecast" in other
    assert "one election" in regime_of(traits, Powerset(3.0, 6)).advice


# Ballots ------------------------------------------------------------------------------------------------


def test_made_up_votes_are_as_they_were_assumed():
    profile = LabelProfile(yes_rate=(0.1, 0.5, 0.8), agreement=(0.9, 0.8, 0.95), correlation=0.4)
    votes, truth = profile.votes(200, 3, n_queries=4000, seed=7)
    # Shares over 4,000 queries with correlated votes: standard errors below 0.009, five of them.
    np.testing.assert_allclose(truth.mean(axis=0), profile.yes_rate, atol=0.045)
    np.testing.assert_allclose(votes.sums.mean(axis=0) / 200, profile.yes_rate, atol=0.045)
    right = np.where(truth, votes.sums, 200 - votes.sums).mean(axis=0) / 200
    np.testing.assert_allclose(right, profile.agreement, atol=0.045)
    again, _ = profile.votes(200, 3, n_queries=4000, seed=7)
    np.testing.assert_array_equal(votes.sums, again.sums)


def test_correlation_brings_ballots_together():
    def traits(correlation):
        profile = LabelProfile(yes_rate=0.3, agreement=0.85, correlation=correlation)
        return ballot_traits(profile.votes(50, 8, n_queries=100, seed=7)[0])

    loose, tied = traits(0.0), traits(0.9)
    assert tied.top_set > 1.4 * loose.top_set
    assert tied.correlation > loose.correlation + 0.2
    assert loose.top_set == pytest.approx(loose.top_set_if_independent, abs=0.05)
    assert tied.agreement == pytest.approx(loose.agreement, abs=0.04)


def test_gaps_by_hand():
    ballots = [[[1, 0], [1, 1]], [[1, 0], [0, 1]], [[0, 0], [0, 0]], [[0, 1], [1, 1]]]
    votes = LabelVotes.from_ballots(ballots, n_labels=2)
    assert label_gaps(votes).tolist() == [[0, 2], [0, 2]]
    assert set_gaps(votes).tolist() == [1, 1]
    assert set_gaps(LabelVotes.from_ballots([[[1, 0]]] * 5, n_labels=2)).tolist() == [5]
    assert ballot_traits(votes).top_set == 0.5


def test_default_settings_follow_the_electorate():
    small, large = (
        multilabel_settings(dataclasses.replace(ballot_traits(PROXY), n_teachers=n)) for n in (100, 1000)
    )
    assert len(small) == len(large) == len(set(small))
    for one, ten in zip(small, large, strict=True):
        assert type(one) is type(ten)
        assert ten.sigma == pytest.approx(10 * one.sigma, rel=0.01)
    dense = dataclasses.replace(ballot_traits(PROXY), ones=6.0, most_ones=6)
    assert not any(isinstance(one, Tau) for one in multilabel_settings(dense))


def test_declared_groups_are_tried_as_sets_and_never_found_in_votes():
    traits = ballot_traits(PROXY)
    without, declared = multilabel_settings(traits), multilabel_settings(traits, groups=[[0, 3], [1, 2, 5]])
    assert not any(isinstance(one, PartialPowerset) for one in without)
    partial = [one for one in declared if isinstance(one, PartialPowerset)]
    assert {one.groups for one in partial} == {((0, 3), (1, 2, 5))}
    assert len(partial) == len({one.sigma for one in declared if isinstance(one, Binary)})
    with pytest.raises(ValueError, match="no label twice"):
        multilabel_settings(traits, groups=[[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"Expected groups of labels 0\.\.5"):
        advise(PROXY, TRUTH, budget=BUDGET, n_public=10, seed=7, groups=[[0, 6]])


def test_labels_that_come_together_are_best_voted_on_together():
    """Two groups of labels that are one label each: sets pay for two elections, labels for eight."""
    rng = np.random.default_rng(5)
    truth = np.repeat(rng.random((60, 2)) < 0.5, 4, axis=1)
    flips = np.repeat(rng.random((50, 60, 2)) < 0.1, 4, axis=2)
    votes = LabelVotes.from_ballots(truth ^ flips, n_labels=8)
    groups = (tuple(range(4)), tuple(range(4, 8)))
    tried = [Binary(8.0, 8), PartialPowerset(8.0, 8, groups)]
    found = advise(votes, truth, budget=BUDGET, n_public=10_000, seed=7, mechanisms=tried)
    assert isinstance(found.best.mechanism, PartialPowerset)
    assert found.plans[0].n_queries >= 3 * found.plans[1].n_queries


def test_an_adaptive_threshold_is_tried_where_there_are_gaps_between_labels():
    traits = ballot_traits(PROXY)
    assert any(isinstance(one, AdaptiveGNThreshold) for one in multilabel_settings(traits))
    one_label = dataclasses.replace(traits, n_labels=1, ones=1.0, most_ones=1)
    assert not any(isinstance(one, AdaptiveGNThreshold) for one in multilabel_settings(one_label))


def test_forecasts_of_slow_mechanisms_are_from_fewer_queries():
    votes, truth = LabelProfile(yes_rate=0.1).votes(10, 60, n_queries=100, seed=7)
    made = {"budget": BUDGET, "n_public": 100, "seed": 7, "forecast_all": True}
    for mechanism, n in (
        (Binary(3.0, 60), 100),
        (Tau(3.0, 60, 2.0), 8),
        (AdaptiveGNThreshold(3.0, 60, 3.0, (0.4, 0.5), 4), 8),
        (PartialPowerset(3.0, 60, ((0, 1),)), 67),
    ):
        assert advise(votes, truth, mechanisms=[mechanism], **made).n_forecast == n


def test_a_sample_is_drawn_from_its_seed_and_is_small():
    seen = []
    found = advice(n_sample=10, mechanisms=TRIED[:2], progress=seen.append)
    assert found.traits.n_queries == 10
    assert sum(seen) == 2
    assert advice(n_sample=10, mechanisms=TRIED[:2]) == found


# Bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n_public": 0}, "n_public"),
        ({"max_loss": 1.5}, "max_loss"),
        ({"truth": TRUTH[:3]}, "truth of 0 and 1"),
        ({"truth": TRUTH + 3}, "truth of 0 and 1"),
        ({"proxy": LabelVotes.from_sums([[3]], n_teachers=4), "truth": None}, "with ballots"),
    ],
)
def test_wrong_arguments_are_named(changed, said):
    with pytest.raises(ValueError, match=said):
        advice(**changed)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"yes_rate": 0.0}, "yes_rate"),
        ({"agreement": 1.0}, "agreement"),
        ({"correlation": 1.0}, "correlation"),
        ({"yes_rate": 0.1, "agreement": 0.75}, "above 0.8"),
        ({"yes_rate": (0.1, 0.2), "agreement": (0.9,) * 3}, "as many"),
    ],
)
def test_profiles_that_cannot_be_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        LabelProfile(**fields)
    with pytest.raises(ValueError, match="one for each of 5"):
        LabelProfile(yes_rate=(0.1, 0.2)).votes(4, 5, n_queries=2, seed=7)
