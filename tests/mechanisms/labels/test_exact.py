"""Exact costs of label mechanisms against enumeration, and against their prices."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import (
    Binary,
    ConfidentBinary,
    ConfidentGNMax,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNMax,
    GNThreshold,
    LabelVotes,
    PartialPowerset,
    Powerset,
    Tau,
    Unit,
    Votes,
    exact_cost,
)
from tellers.accounting import teacher_costs
from tellers.accounting._label_exact import label_blocks
from tellers.accounting.exact import exact_epsilons
from tellers.mechanisms.divergence import pair_divergences

ORDERS = np.array([1.5, 2.0, 8.0, 20.0, 64.0])


def random_votes(rng, *, most_labels=5, resolution=1):
    n_labels, n_teachers = int(rng.integers(1, most_labels + 1)), int(rng.integers(1, 9))
    shape = (n_teachers, 2, n_labels)
    if resolution > 1:
        return LabelVotes.from_ballots(rng.random(shape), n_labels=n_labels, resolution=resolution)
    return LabelVotes.from_ballots(rng.random(shape) < rng.random(), n_labels=n_labels)


def mechanisms(rng, votes):
    k, n, sigma = votes.n_labels, votes.n_teachers, float(rng.uniform(0.7, 8.0))
    bar = {"threshold": 0.7 * n, "sigma_threshold": 1.5 * sigma}
    yield Binary(sigma, k)
    yield ConfidentBinary(sigma, k, **bar)
    yield Tau(sigma, k, float(rng.uniform(0.4, 2.5)))
    yield Tau(sigma, k, float(rng.uniform(0.4, 4.0)), "l1")
    yield ConfidentTau(sigma, k, 1.2, **bar)
    yield GNThreshold(sigma, k, 0.3)
    yield GNThreshold(sigma, k, tuple(rng.uniform(0.1, 0.9, k)), max_labels=max(1, k // 2))


def enumerated(mechanism, votes, teacher, query):
    """The worst divergence over all 2^k other ballots, label by label."""
    block = votes.block()[:, query].copy()
    law, entries = mechanism.law(votes.n_teachers), (0, votes.resolution)

    def outcomes(ballot):
        block[teacher] = ballot
        return law.log_outcomes(mechanism.rule.fit(block).sum(axis=0))

    here = outcomes(block[teacher].copy())
    worst = np.zeros((2, ORDERS.size))
    for other in itertools.product(entries, repeat=votes.n_labels):
        worst = np.maximum(worst, pair_divergences(here, outcomes(np.array(other)), ORDERS).sum(axis=1))
    return worst


@pytest.mark.parametrize("seed", range(12))
def test_no_ballot_is_dearer_than_the_greedy_one(seed):
    rng = np.random.default_rng(seed)
    votes = random_votes(rng)
    for mechanism in mechanisms(rng, votes):
        [(_, costs, of_teacher, _)] = label_blocks(mechanism, votes, ORDERS)
        for teacher, query in itertools.product(range(votes.n_teachers), range(2)):
            expected = enumerated(mechanism, votes, teacher, query)
            assert np.allclose(costs[:, of_teacher[teacher, query]], expected, rtol=1e-9, atol=1e-12), (
                mechanism
            )


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_nothing_costs_more_than_its_price(seed):
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, most_labels=12)
    k, n = votes.n_labels, votes.n_teachers
    others = [
        Powerset(2.0, k),
        ConfidentPowerset(2.0, k, 0.6 * n, 3.0),
        PartialPowerset(3.0, k, ((0, k - 1),) if k > 1 else ((0,),)),
        ConfidentGNThreshold(2.0, k, max(1, k // 2), 0.6, 3.0, max_labels=max(1, k // 3)),
        ConfidentGNThreshold(2.0, k, max(1, k // 2), 0.6, 3.0),
    ]
    for mechanism in (*mechanisms(rng, votes), *others):
        price = mechanism.price(Unit(), ORDERS).values
        for _, costs, *_ in label_blocks(mechanism, votes, ORDERS):
            assert (costs >= 0).all()
            assert (costs <= price * (1 + 1e-9) + 1e-12).all(), mechanism


@pytest.mark.parametrize("seed", range(6))
def test_probabilities_cost_no_more_than_their_price(seed):
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, resolution=50)
    for cap in (0, 1):
        mechanism = GNThreshold(1.5, votes.n_labels, 0.4, max_labels=cap, resolution=50)
        [(_, costs, of_teacher, _)] = label_blocks(mechanism, votes, ORDERS)
        assert (costs <= mechanism.price(Unit(), ORDERS).values * (1 + 1e-9)).all()
        if cap == 0:
            expected = enumerated(mechanism, votes, 0, 1)
            assert np.allclose(costs[:, of_teacher[0, 1]], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_powerset_is_an_arg_max_over_all_sets(seed):
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, most_labels=4)
    k, sigma, height = votes.n_labels, float(rng.uniform(0.7, 8.0)), 0.6 * votes.n_teachers
    sets = Votes.from_ballots((votes.block() << np.arange(k)).sum(axis=2), n_classes=2**k)
    for ours, plain in (
        (Powerset(sigma, k), GNMax(sigma)),
        (ConfidentPowerset(sigma, k, height, 2 * sigma), ConfidentGNMax(sigma, height, 2 * sigma)),
    ):
        expected = teacher_costs(plain, sets, orders=ORDERS).reveal()
        assert np.allclose(
            teacher_costs(ours, votes, orders=ORDERS).reveal(), expected, rtol=5e-6, atol=1e-10
        )


def test_partial_powerset_adds_over_its_groups():
    rng = np.random.default_rng(3)
    ballots = rng.random((9, 4, 4)) < 0.4
    votes = LabelVotes.from_ballots(ballots, n_labels=4)
    mechanism = PartialPowerset(2.0, 4, ((1, 3), (0,)))
    total = 0.0
    for group in ((1, 3), (0,), (2,)):
        code = (ballots[:, :, list(group)] << np.arange(len(group))).sum(axis=2)
        alone = Votes.from_ballots(code, n_classes=2 ** len(group))
        total = total + teacher_costs(GNMax(2.0), alone, orders=ORDERS).reveal()
    assert np.allclose(teacher_costs(mechanism, votes, orders=ORDERS).reveal(), total, rtol=5e-6, atol=1e-10)


def test_a_gate_never_costs_less_than_any_ballot():
    """The bound behind a gate against every alternative ballot, gate and labels together."""
    rng = np.random.default_rng(11)
    for _ in range(10):
        votes = random_votes(rng, most_labels=4)
        k = votes.n_labels
        mechanism = ConfidentGNThreshold(1.5, k, max(1, k - 1), 0.5, 2.0)
        law, gate = mechanism.law(votes.n_teachers), mechanism.gate(votes.n_teachers)
        [(_, costs, of_teacher, _)] = label_blocks(mechanism, votes, ORDERS)
        block = votes.block()[:, 0]

        def joint(sums, law=law, gate=gate):
            opened, shut = gate.log_pass_and_fail(sums[None])
            each = law.log_outcomes(sums)
            told = [
                opened[0] + sum(each[bit, i] for i, bit in enumerate(bits))
                for bits in itertools.product((0, 1), repeat=sums.size)
            ]
            return np.array([[shut[0]], *([one] for one in told)])

        for teacher in range(votes.n_teachers):
            here, worst = joint(block.sum(axis=0)), np.zeros((2, ORDERS.size))
            for other in itertools.product((0, 1), repeat=k):
                there = joint(block.sum(axis=0) - block[teacher] + np.array(other))
                worst = np.maximum(worst, pair_divergences(here, there, ORDERS)[:, 0])
            ours = costs[:, of_teacher[teacher, 0]]
            assert (ours >= worst * (1 - 1e-9) - 1e-12).all()
            # a bound, and not a careless one
            assert (ours.max(axis=0) <= 2 * worst.max(axis=0) + 1e-9).all()


def test_the_published_price_of_tau_is_too_small_and_never_charged():
    """k = 4, tau^2 = 2, sigma = 5, order 20: its divergence is above the published order tau^2 / sigma^2."""
    mechanism = Tau(sigma=5.0, n_labels=4, max_norm=2**0.5)
    published = 20.0 * 2 / 5.0**2
    worst = 0.0
    for yes in range(39):
        own, other = [[1, 1, 0, 0]], [[0, 0, 1, 1]]
        votes = LabelVotes.from_ballots([own] * (yes + 1) + [other] * (38 - yes), n_labels=4)
        worst = max(worst, float(exact_cost(mechanism, votes, orders=[20.0]).cost.reveal().values[0]))
    assert worst > 1.5 * published
    assert mechanism.price(Unit(), [20.0]).values[0] >= worst


def test_costs_by_query_add_up_to_costs_by_teacher():
    rng = np.random.default_rng(5)
    votes = LabelVotes.from_ballots(rng.random((12, 30, 6)) < 0.3, n_labels=6)
    for mechanism in (Binary(4.0, 6), Tau(4.0, 6, 1.5), Powerset(2.0, 6)):
        epsilons = exact_epsilons(mechanism, votes, delta=1e-5).reveal()
        assert (np.diff(epsilons) >= -1e-12).all()
        whole = exact_cost(mechanism, votes).cost.reveal().epsilon(1e-5)
        assert np.isclose(epsilons[-1], whole, rtol=1e-9)


def test_sums_alone_cost_at_least_as_much():
    rng = np.random.default_rng(6)
    votes = LabelVotes.from_ballots(rng.random((12, 20, 6)) < 0.3, n_labels=6)
    tallied = LabelVotes.from_sums(votes.sums, n_teachers=12)
    known, unknown = (exact_cost(Binary(4.0, 6), v).cost.reveal().values for v in (votes, tallied))
    assert (unknown >= known * (1 - 1e-12)).all()
    with pytest.raises(ValueError, match="Expected votes with ballots"):
        exact_cost(Tau(4.0, 6, 1.5), tallied)


@pytest.mark.parametrize(
    ("sigma", "k"), [(0.5, 60), (1.0, 60), (1.0, 200), (2.0, 200), (3.0, 60), (0.4, 999)]
)
def test_little_noise_on_very_many_sets(sigma, k):
    """One set has all votes: F^N integrates over ties to (F(x)^(N+1) - F(x-1)^(N+1)) / p(x) / (N+1)."""
    n_teachers = 1 + round(sigma * (2 * k * np.log(2)) ** 0.5)  # where the largest of all other sets is
    votes = LabelVotes.from_ballots(np.ones((n_teachers, 1, k), dtype=int), n_labels=k)
    [part] = Powerset(sigma, k).outcomes(votes).parts
    x = np.arange(-3 * n_teachers, 9 * n_teachers)
    density = np.exp(-((x / sigma) ** 2) / 2) / np.exp(-((x / sigma) ** 2) / 2).sum()
    own = np.exp(-(((x - n_teachers) / sigma) ** 2) / 2) / np.exp(-((x / sigma) ** 2) / 2).sum()
    at_least = np.cumsum(density[::-1])[::-1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_cdf = np.log1p(-np.append(at_least[1:], 0.0)) * 2.0**k
        fall = np.log1p(-np.minimum(density / (1 - np.append(at_least[1:], 0.0)), 1.0)) * 2.0**k
        mean = np.exp(log_cdf) * np.where(density * 2.0**k < 1e-9, 1.0, -np.expm1(fall) / density / 2.0**k)
    wins = (own * np.nan_to_num(mean)).sum()
    found = np.exp(part.outcomes.log_labels[part.query[0], 1 + part.column[0]])
    assert 1e-6 < wins < 1
    assert np.isclose(found, wins, rtol=1e-6)
    costs = teacher_costs(Powerset(sigma, k), votes, orders=ORDERS).reveal()
    assert (costs <= Powerset(sigma, k).price(Unit(), ORDERS).values * (1 + 1e-9)).all()


def test_two_hundred_labels():
    rng = np.random.default_rng(7)
    agreed = rng.random((1, 5, 200)) < 0.03
    votes = LabelVotes.from_ballots(agreed ^ (rng.random((50, 5, 200)) < 2e-4), n_labels=200)
    mechanism = Powerset(sigma=2.0, n_labels=200)
    cost = exact_cost(mechanism, votes).cost.reveal()
    assert 0 < cost.epsilon(1e-5) < (5 * mechanism.price(Unit())).epsilon(1e-5)


def test_ballots_in_very_many_parts_stay_apart():
    votes = LabelVotes.from_ballots([[[1, 0]], [[0, 0]], [[0, 0]]], n_labels=2)
    fine = teacher_costs(Tau(2.0, 2, 1.0, resolution=65536), votes, orders=ORDERS).reveal()
    near = teacher_costs(Tau(2.0, 2, 1.0, resolution=65535), votes, orders=ORDERS).reveal()
    assert np.allclose(fine, near, rtol=1e-3)
    assert (fine[:, 0] > fine[:, 1]).all()
