"""What groups cost, published: bounds hold, everybody is covered and charged, equals stay as they were."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    MemoryLedger,
    RdpCurve,
    Votes,
    noise,
)
from tellers.accounting import publish
from tellers.accounting._publishable import cost_and_sensitivities
from tellers.accounting.smooth import PublishPlan
from tellers.errors import BudgetExhausted, InsecureNoise
from tellers.mechanisms import smooth_sensitivity
from tellers.runs.personal import Asked, Group, Upsampling, Vanishing, Weighting, publish_group_costs
from tellers.runs.personal.accounting import totals
from tellers.runs.personal.publishing import distances_of, group_sums, publication_prices

DELTA = 1e-5
GROUPS = (Group("low", 0.7, 50), Group("mid", 1.0, 50), Group("high", 1.4, 50))
SEATS = (np.arange(6), np.arange(6, 11), np.arange(11, 18))
N_TEACHERS = 18
COPIES = (1, 2, 3)
MECHANISMS = [
    GNMax(3.0),
    ConfidentGNMax(sigma=3.0, threshold=12, sigma_threshold=4.0),
    InteractiveGNMax(sigma=3.0, threshold=2, sigma_threshold=4.0, student_confidence=0.9),
]


def plan_of(variant, mechanism):
    if variant == "weighting":
        return Weighting(GROUPS, mechanism, N_TEACHERS, SEATS, weight_of=COPIES)
    if variant == "vanishing":
        return Vanishing(GROUPS, mechanism, N_TEACHERS, SEATS, frequency_of=(0.25, 0.5, 1.0), seed=7)
    return Upsampling(GROUPS, replace(mechanism, sigma=1.0), 9, copies_of=COPIES)


def random_ballots(rng, n_teachers, n_classes, n_queries):
    right = rng.integers(n_classes, size=n_queries)
    agree = rng.random((n_teachers, n_queries)) < rng.choice([0.2, 0.7, 0.98], size=n_queries)
    return np.where(agree, right, rng.integers(n_classes, size=(n_teachers, n_queries)))


def teams_for(plan, rng):
    if plan.members:
        return None
    return [
        np.array([rng.choice(plan.n_teachers, int(unit.linf), replace=False) for _ in range(4)])
        for unit in plan.units
    ]


def ask(plan, ballots, n_classes, *, seed, teams=None):
    rng, n_queries = np.random.default_rng(seed), ballots.shape[1]
    votes = Votes.from_ballots(ballots, n_classes=n_classes)
    weights = plan.weights(n_queries, key="batch")
    given = {}
    if not isinstance(plan.mechanism, GNMax):
        given["answered"] = rng.random(n_queries) < 0.7
    if isinstance(plan.mechanism, InteractiveGNMax):
        given["student"] = rng.dirichlet(np.ones(n_classes), size=n_queries)
    return Asked(plan, votes if weights is None else votes.weighted(weights), teams=teams, **given)


def publish_plan(method="envelope", *, order=6.0, confidence=0.9, sigma=8.0):
    return PublishPlan(method, order, 0.01, sigma, confidence=confidence, expected_epsilon=1.0)


# Above the exact cost ---------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_classes=st.integers(2, 5),
    order=st.sampled_from([1.5, 4.0, 12.0]),
    variant=st.sampled_from(["weighting", "vanishing", "upsampling"]),
    which=st.sampled_from(MECHANISMS),
)
def test_no_member_costs_more_than_what_is_sanitised(seed, n_classes, order, variant, which):
    rng = np.random.default_rng(seed)
    if variant == "upsampling":
        n_classes = 2
    plan = plan_of(variant, which)
    ballots = random_ballots(rng, plan.n_teachers, n_classes, 7)
    asked = ask(plan, ballots, n_classes, seed=seed, teams=teams_for(plan, rng))
    sums = group_sums(asked, order=order, method="envelope")
    for exact, found in zip(totals(asked, "exact", orders=[order]), sums.values(), strict=True):
        assert exact.max() <= found.total * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_classes=st.integers(2, 5),
    variant=st.sampled_from(["weighting", "vanishing", "upsampling"]),
    which=st.sampled_from(MECHANISMS),
)
def test_the_form_of_the_papers_is_the_published_bound_of_each_group(seed, n_classes, variant, which):
    rng = np.random.default_rng(seed)
    plan = plan_of(variant, which)
    asked = ask(plan, random_ballots(rng, plan.n_teachers, n_classes, 7), n_classes, seed=seed)
    if not plan.members:
        asked = replace(asked, teams=teams_for(plan, rng))
    sums = group_sums(asked, order=4.0, method="gnss")
    exact, bound = (totals(asked, how, orders=[4.0]) for how in ("exact", "published"))
    for (forward, _), published, found in zip(exact, bound, sums.values(), strict=True):
        # On the grid of the sensitivities' proof q is rounded up, by a hundredth of a vote or so.
        assert published.max() * (1 - 1e-9) <= found.total <= published.max() * 1.05 + 1e-9
        # With a check, the papers' form follows the path and bounds no divergence.
        if isinstance(which, GNMax):
            assert forward.max() <= found.total * (1 + 1e-9)


# How fast it moves: every person of every group -------------------------------------------------------------


@pytest.mark.parametrize("method", ["envelope", "gnss"])
@pytest.mark.parametrize("which", MECHANISMS, ids=lambda mechanism: type(mechanism).__name__)
@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_whoever_changes_moves_it_by_their_share_at_most(variant, which, method):
    rng, beta, n_moved = np.random.default_rng(7), 0.1, 0
    n_classes = 2 if (variant, method) == ("upsampling", "envelope") else 3
    plan = plan_of(variant, which)
    for round_ in range(12):
        ballots = random_ballots(rng, plan.n_teachers, n_classes, 6)
        here = ask(plan, ballots, n_classes, seed=round_)
        far = distances_of(here)
        at = round_ % len(GROUPS)
        others = ballots.copy()
        if plan.members:
            changed = [rng.choice(plan.members[at])]
        else:
            changed = rng.choice(plan.n_teachers, int(plan.units[at].linf), replace=False)
        others[changed] = rng.integers(n_classes, size=(len(changed), 6))
        if round_ % 2:  # all of it in one direction: the worst there is
            others[changed] = (ballots[changed] + 1) % n_classes
        there = ask(plan, others, n_classes, seed=round_)
        share = far.shares[GROUPS[at].name]
        # Of two classes the worst lead grows with the order, past any that so few votes can have.
        order = 4.0 if n_classes > 2 else 1.25
        sums = [group_sums(asked, order=order, method=method) for asked in (here, there)]
        for name in far.shares:
            one, two = (part[name] for part in sums)
            smooth = [smooth_sensitivity(part.local, beta / far.n_steps) for part in (one, two)]
            assert abs(one.total - two.total) <= share * min(smooth) * (1 + 1e-9) + 1e-12
            assert max(smooth) <= math.exp(beta * share) * min(smooth) * (1 + 1e-9)
            n_moved += abs(one.total - two.total) > 1e-9
    assert n_moved > 10


def test_small_and_large_weights_are_counted_in_steps():
    ballots = random_ballots(np.random.default_rng(1), N_TEACHERS, 3, 5)
    plan = Weighting(GROUPS, GNMax(3.0), N_TEACHERS, SEATS, weight_of=(3, 20, 41))
    here = ask(plan, ballots, 3, seed=1)
    far = distances_of(here)
    assert (far.step, far.n_steps) == (5, 9)
    assert dict(far.moves) == {3: 1 / 9, 20: 4 / 9, 41: 1.0}
    others = ballots.copy()
    others[0] = (ballots[0] + 1) % 3  # three votes
    for method in ("envelope", "gnss"):
        one, two = (
            group_sums(asked, order=2.0, method=method)["high"]
            for asked in (here, ask(plan, others, 3, seed=1))
        )
        smooth = [smooth_sensitivity(part.local, 0.1 / 9) for part in (one, two)]
        assert abs(one.total - two.total) <= min(smooth) / 9
        assert abs(math.log(smooth[0] / smooth[1])) <= 0.1 / 9 * (1 + 1e-9)


def test_a_smaller_share_is_charged_what_two_gaussians_cost():
    plan = publish_plan(order=6.0, confidence=0.9, sigma=4.0)
    for share in (0.2, 0.5, 1.0):
        worst = 0.0
        for ratio in np.exp(plan.beta * share * np.linspace(-1, 1, 41)):
            spread = (plan.sigma_release, plan.sigma_release * ratio)
            apart = share * min(1.0, ratio) + plan.z * abs(spread[0] - spread[1])
            x = np.linspace(-14 * max(spread), 14 * max(spread), 40001)
            logs = [-0.5 * ((x - m) / s) ** 2 - np.log(s) for m, s in ((0.0, spread[0]), (apart, spread[1]))]
            density = np.exp(plan.order * logs[0] + (1 - plan.order) * logs[1]) / np.sqrt(2 * np.pi)
            worst = max(worst, np.log(density.sum() * (x[1] - x[0])) / (plan.order - 1))
        assert worst <= plan.price_to(share) <= 1.001 * worst


# Equal budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["envelope", "gnss", "independent"])
@pytest.mark.parametrize("which", MECHANISMS[:2], ids=lambda mechanism: type(mechanism).__name__)
def test_equal_weights_publish_what_plain_votes_do(which, method):
    group, everybody = (Group("all", 1.0, 50),), (np.arange(N_TEACHERS),)
    plans = [
        Weighting(group, which, N_TEACHERS, everybody, weight_of=(1,)),
        Vanishing(group, which, N_TEACHERS, everybody, frequency_of=(1.0,), seed=7),
        Upsampling(group, which, N_TEACHERS, copies_of=(1,)),
    ]
    ballots = random_ballots(np.random.default_rng(3), N_TEACHERS, 4, 30)
    votes = Votes.from_ballots(ballots, n_classes=4)
    answered = np.arange(30) % 3 > 0 if isinstance(which, ConfidentGNMax) else None
    chosen = publish_plan(method)
    options = {"plan": chosen, "delta": DELTA, "allow_seeded": True}
    plain = publish(which, votes, noise.seeded(5), answered=answered, **options)
    for plan in plans:
        shown = publish_group_costs(Asked(plan, votes, answered=answered), noise.seeded(5), **options)
        assert shown == {"all": plain}
    if method != "independent":
        total, local = cost_and_sensitivities(which, votes, order=6.0, method=method, answered=answered)
        same = group_sums(Asked(plans[0], votes, answered=answered), order=6.0, method=method)["all"]
        assert same.total == total
        assert np.array_equal(same.local, local)


# Who pays ---------------------------------------------------------------------------------------------------


def books(*budgets):
    ledger = MemoryLedger(Accountant(Budget(10.0, DELTA)), allow_seeded=True)
    for group, epsilon in zip(GROUPS, budgets, strict=True):
        ledger.open_account(group.account, Budget(epsilon, DELTA))
    return ledger


@pytest.fixture(scope="module")
def asked():
    plan = plan_of("weighting", GNMax(3.0))
    return ask(plan, random_ballots(np.random.default_rng(3), N_TEACHERS, 3, 20), 3, seed=3)


def test_everybody_pays_for_every_number_and_the_louder_pay_more(asked):
    ledger, plan = books(5.0, 5.0, 5.0), publish_plan(sigma=30.0)
    shown = publish_group_costs(
        asked, noise.seeded(1), plan=plan, delta=DELTA, ledger=ledger, key="shown", allow_seeded=True
    )
    prices = publication_prices(distances_of(asked).shares, plan, n_releases=3)
    for group in GROUPS:
        assert np.array_equal(ledger.accounts()[group.account].spent.values, prices[group.name].values)
        at_order = prices[group.name].values[prices[group.name].orders == plan.order]
        assert (
            shown[group.name].charged
            == at_order[0]
            == 3 * plan.price_to(distances_of(asked).shares[group.name])
        )
    assert shown["low"].charged < 0.2 * shown["high"].charged
    assert ledger.entries()[0].event["mechanism"] == "GroupPublication"
    # One number alone is a third of the price, and the others' people pay it too.
    ledger = books(5.0, 5.0, 5.0)
    options = {"plan": plan, "delta": DELTA, "allow_seeded": True}
    only = publish_group_costs(asked, noise.seeded(1), groups=["low"], ledger=ledger, key="one", **options)
    assert list(only) == ["low"]
    assert only["low"].charged == pytest.approx(shown["low"].charged / 3)
    assert np.all(ledger.accounts()["group/high"].spent.values > 0)
    again = publish_group_costs(
        asked, noise.seeded(1), groups=["low"], charged_before={"low": 1.0}, **options
    )
    assert again["low"].epsilon_upper == pytest.approx(only["low"].epsilon_upper + 1.0)


class _Interrupted(Exception):
    pass


class _Breaks:
    """Noise that fails when it is drawn."""

    name, is_secure = "secure", True

    def gaussian(self, _shape):
        raise _Interrupted


def test_the_charge_is_on_the_books_before_anything_is_drawn(asked):
    ledger = books(5.0, 5.0, 5.0)
    with pytest.raises(_Interrupted):
        publish_group_costs(asked, _Breaks(), plan=publish_plan(), delta=DELTA, ledger=ledger, key="shown")
    assert all(state.spent.values[0] > 0 for state in ledger.accounts().values())


def test_one_group_that_cannot_pay_refuses_all_numbers(asked):
    ledger = books(5.0, 5.0, 0.3)
    with pytest.raises(BudgetExhausted):
        publish_group_costs(
            asked, _Breaks(), plan=publish_plan(sigma=3.0), delta=DELTA, ledger=ledger, key="shown"
        )
    assert all(state.spent.values[0] == 0 for state in ledger.accounts().values())


# Coverage ---------------------------------------------------------------------------------------------------

# Past this count a run whose releases fail with probability 1 - confidence each, independently, ends up once
# in a million.
N_RELEASES, FALSE_ALARMS = 300, 1e-6


@pytest.mark.parametrize("variant", ["weighting", "vanishing"])
def test_published_values_are_upper_values_as_often_as_they_say(variant):
    plan, confidence, chosen = plan_of(variant, GNMax(6.0)), 0.9, publish_plan(sigma=20.0)
    asked = ask(plan, random_ballots(np.random.default_rng(3), N_TEACHERS, 3, 12), 3, seed=3)
    sums = group_sums(asked, order=chosen.order, method="envelope")
    exact = dict(zip(sums, (cost.max() for cost in totals(asked, "exact", orders=[chosen.order]))))
    source = noise.seeded(7)
    runs = [
        publish_group_costs(asked, source, plan=chosen, delta=DELTA, allow_seeded=True)
        for _ in range(N_RELEASES)
    ]
    most = int(binom.isf(FALSE_ALARMS, N_RELEASES, 1 - confidence))
    for name, total in sums.items():
        shown = np.array([run[name].epsilon_upper for run in runs])
        floors = [
            RdpCurve(np.array([chosen.order]), np.array([value + runs[0][name].charged])).epsilon(DELTA)
            for value in (total.total, exact[name])
        ]
        assert floors[1] <= floors[0]
        assert np.sum(shown < floors[0]) <= most
        assert np.sum(shown < floors[0]) >= N_RELEASES * (1 - confidence) / 3  # noise, and not a constant


# Refusals ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_published_is_refused_before_anything_is_charged(asked):
    many = ask(plan_of("upsampling", GNMax(3.0)), np.zeros((18, 4), dtype=int), 3, seed=1)
    ledger = books(5.0, 5.0, 5.0)
    with pytest.raises(ValueError, match="Expected two classes, or one ballot per person"):
        publish_group_costs(many, _Breaks(), plan=publish_plan(), delta=DELTA, ledger=ledger, key="shown")
    heavy = Weighting(GROUPS, MECHANISMS[1], N_TEACHERS, SEATS, weight_of=(100, 200, 300))
    loud = ask(heavy, np.zeros((N_TEACHERS, 4), dtype=int), 3, seed=1)
    with pytest.raises(ValueError, match=r"at most 2000 votes in a query.*smaller denominator"):
        publish_group_costs(loud, _Breaks(), plan=publish_plan(), delta=DELTA, ledger=ledger, key="shown")
    assert ledger.entries() == []
    with pytest.raises(ValueError, match="a key with a ledger"):
        publish_group_costs(asked, _Breaks(), plan=publish_plan(), delta=DELTA, ledger=ledger)
    with pytest.raises(ValueError, match="names of groups among 'low', 'mid', 'high'"):
        publish_group_costs(asked, _Breaks(), plan=publish_plan(), delta=DELTA, groups=["top"])
    with pytest.raises(InsecureNoise):
        publish_group_costs(asked, noise.seeded(1), plan=publish_plan(), delta=DELTA)
    with pytest.raises(ValueError, match="envelope or gnss"):
        group_sums(asked, order=4.0, method="independent")
    with pytest.raises(ValueError, match="publish_group_costs"):
        publish(GNMax(3.0), asked.votes, noise.secure(), plan=publish_plan(), delta=DELTA)
