"""Publishing what label votes cost: planned on public votes, an upper value as often as it says."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import binom

from tellers import (
    Accountant,
    AdaptiveGNThreshold,
    Binary,
    Budget,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    LabelVotes,
    MemoryLedger,
    PartialPowerset,
    Powerset,
    RdpCurve,
    Tau,
    Unit,
    describe,
    exact_cost,
    noise,
)
from tellers.accounting import publish
from tellers.accounting._publishable import available_methods
from tellers.accounting.costs import independent_cost
from tellers.accounting.smooth import PublicationRecord, PublishPlan
from tellers.mechanisms import EVENTS, LABEL_MECHANISMS
from tellers.mechanisms.base import price_of
from tellers.runs import plan_publication, reprice
from tellers.runs.publication_plan import OFFSETS, _PlanSearch

DELTA = 1e-5
EVERY = [
    Binary(6.0, 3),
    ConfidentBinary(6.0, 3, threshold=30, sigma_threshold=9.0),
    Tau(6.0, 3, 1.2),
    ConfidentTau(6.0, 3, 1.2, threshold=30, sigma_threshold=9.0),
    GNThreshold(6.0, 3, (0.3, 0.5, 0.6)),
    ConfidentGNThreshold(6.0, 3, 1, 0.5, 9.0),
    AdaptiveGNThreshold(6.0, 3, 9.0),
    Powerset(6.0, 3),
    ConfidentPowerset(6.0, 3, threshold=20, sigma_threshold=9.0),
    PartialPowerset(6.0, 3, ((0, 2),)),
]


def label_votes(seed, *, n_queries=120, n_teachers=50, n_labels=6):
    """Mostly consensus, some labels split."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n_queries, n_labels)) < 0.15
    chance = np.where(truth, rng.beta(6, 1.5, truth.shape), rng.beta(0.5, 6, truth.shape))
    return LabelVotes.from_ballots(rng.random((n_teachers, *truth.shape)) < chance, n_labels=n_labels)


def test_every_label_mechanism_has_a_name_and_an_event():
    assert {type(mechanism) for mechanism in EVERY} == set(LABEL_MECHANISMS.values())
    assert list(LABEL_MECHANISMS) == [
        "binary", "confident-binary", "tau", "confident-tau", "powerset", "confident-powerset",
        "partial-powerset", "gnthreshold", "confident-gnthreshold", "adaptive-gnthreshold",
    ]  # fmt: skip
    for mechanism in EVERY:
        stored = json.loads(json.dumps(describe(mechanism, noise.secure())))
        assert EVENTS[stored["mechanism"]](**stored["parameters"]) == mechanism


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: type(m).__name__)
def test_a_release_costs_what_it_was_charged_also_when_priced_again(mechanism):
    votes = label_votes(1, n_queries=20, n_labels=3)
    ledger = MemoryLedger(Accountant(Budget(epsilon=900.0, delta=DELTA)))
    known = {"n_teachers": votes.n_teachers}
    event = json.loads(json.dumps({**describe(mechanism, noise.secure()), "n_queries": 20, **known}))
    release = mechanism.release(votes, noise.seeded(2))
    told = release.answered.sum(axis=1)
    np.testing.assert_allclose(
        independent_cost(mechanism, 20, n_answers=told, **known).values,
        release.cost.worst.values,
        rtol=1e-9,
    )
    price = price_of(mechanism, Unit(), 20, **known)
    ledger.settle(ledger.reserve("q0", price, event=event), release)
    ledger.reserve("open", price, event=event)
    for question in reprice(ledger.entries()).questions:
        assert not question.why
        np.testing.assert_allclose(question.repriced.values, question.charged.values, rtol=1e-9)


def test_the_public_cost_of_a_run_without_a_mask():
    for mechanism in EVERY:
        whole = independent_cost(mechanism, 7, orders=[2.0, 9.0])
        assert np.allclose(whole.values, 7 * mechanism.price(Unit(), [2.0, 9.0]).values)
        assert np.allclose(
            independent_cost(mechanism, 7, n_answers=7, orders=[2.0, 9.0]).values, whole.values
        )
        none = independent_cost(mechanism, 7, n_answers=0, orders=[2.0, 9.0]).values
        silent = (
            7
            * (mechanism.price if getattr(mechanism, "one_price", False) else mechanism.check_price)(
                Unit(), [2.0, 9.0]
            ).values
        )
        assert np.allclose(none, silent)


def test_methods():
    for mechanism in EVERY:
        free = isinstance(mechanism, (Binary, ConfidentBinary, GNThreshold))
        assert available_methods(mechanism) == (("envelope", "independent") if free else ("independent",))


@pytest.mark.parametrize("mechanism", EVERY[:5:2], ids=lambda m: type(m).__name__)
def test_plans_come_for_what_can_be_published(mechanism):
    plans = plan_publication(mechanism, label_votes(3, n_labels=3, n_queries=60), n_queries=300, delta=DELTA)
    assert {plan.method for plan in plans} == set(available_methods(mechanism))
    assert plans[0].expected_epsilon <= plans[-1].expected_epsilon


def log_plan(mechanism, proxy, n_queries, **how):
    return _PlanSearch(mechanism, proxy, n_queries, DELTA, how["confidence"], None).best_log_at(3.0, OFFSETS)


def plain_plan(mechanism, proxy, n_queries, **how):
    how = {**how, "delta": DELTA, "method": "envelope", "offsets": ()}
    return plan_publication(mechanism, proxy, n_queries=n_queries, **how)[0]


@pytest.mark.parametrize("make", [plain_plan, log_plan])
def test_the_published_value_is_an_upper_one_as_often_as_it_says(make):
    """150 releases at confidence 0.9: more misses than this are seen once in a million runs."""
    votes, mechanism = label_votes(4), Binary(10.0, 6)
    plan = make(mechanism, label_votes(5), 120, confidence=0.9)
    assert (plan.offset is None) == (make is plain_plan)
    exact = exact_cost(mechanism, votes, orders=[plan.order]).cost.reveal().values
    true = RdpCurve(np.array([plan.order]), exact + plan.price).epsilon(DELTA)
    source = noise.seeded(7)
    published = [
        publish(mechanism, votes, source, plan=plan, delta=DELTA, allow_seeded=True) for _ in range(150)
    ]
    values = np.array([one.epsilon_upper for one in published])
    assert np.sum(values < true) <= binom.isf(1e-6, 150, 0.1)
    assert published[0].covers == "both directions"
    # The proxy is like the votes: what was expected is what comes.
    assert np.median(values) == pytest.approx(plan.expected_epsilon, rel=0.1)
    assert values.max() <= independent_cost(mechanism, 120).epsilon(DELTA) + plan.price + 60


def test_a_plan_on_fewer_queries_is_one_for_as_many_as_are_asked():
    """The proxy three times over is planned for like the proxy, whichever form is published."""
    mechanism, proxy = Binary(8.0, 6), label_votes(9)
    thrice = LabelVotes.from_sums(np.tile(proxy.sums, (3, 1)), n_teachers=50)
    for make in (plain_plan, log_plan):
        one, three = (make(mechanism, each, 360, confidence=0.9) for each in (proxy, thrice))
        assert one.expected_epsilon == pytest.approx(three.expected_epsilon, rel=1e-9)
        assert one.offset == three.offset


def test_the_better_form_is_planned_and_written_down(tmp_path):
    mechanism, proxy = Binary(10.0, 22), label_votes(7, n_labels=22)
    best = plan_publication(mechanism, proxy, n_queries=100, delta=DELTA)[0]
    plain = plain_plan(mechanism, proxy, 100, confidence=0.95)
    assert best.offset is not None
    assert best.expected_epsilon < 0.97 * plain.expected_epsilon
    record = PublicationRecord(tmp_path / "record.jsonl")
    record.charge(mechanism, best, delta=DELTA, noise=noise.secure())
    assert record.plan() == best
    # What was written before there were offsets says none.
    older = asdict(plain)
    del older["offset"]
    assert PublishPlan(**older) == plain


def test_noise_that_leaves_every_scale_publishes_the_public_price():
    votes, mechanism = label_votes(4), Binary(10.0, 6)
    wild = PublishPlan("envelope", 3.0, 0.01, 1e6, 0.999, 1.0, offset=1e-3)
    shown = publish(mechanism, votes, noise.seeded(1), plan=wild, delta=DELTA, allow_seeded=True)
    cap = independent_cost(mechanism, 120, orders=[3.0]).values + wild.price
    assert shown.epsilon_upper == pytest.approx(RdpCurve(np.array([3.0]), cap).epsilon(DELTA))


def test_on_realistic_votes_the_published_epsilon_is_within_half_as_much_again():
    """50 teachers, 22 labels, 400 queries, most of them clear; planned on other votes of the same kind.

    Seeded: the median of 101 releases.
    """
    votes = label_votes(6, n_queries=400, n_labels=22)
    mechanism = Binary(10.0, 22)
    exact = exact_cost(mechanism, votes).cost.reveal().epsilon(DELTA)
    plan = plan_publication(
        mechanism, label_votes(7, n_queries=400, n_labels=22), n_queries=400, delta=DELTA
    )[0]
    source = noise.seeded(8)
    released = [
        publish(mechanism, votes, source, plan=plan, delta=DELTA, allow_seeded=True).epsilon_upper
        for _ in range(101)
    ]
    assert plan.method == "envelope"
    assert exact < np.median(released) < 1.4 * exact < 0.5 * independent_cost(mechanism, 400).epsilon(DELTA)
