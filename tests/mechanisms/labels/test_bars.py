"""Where only sure labels are told, a sum that moves further need not cost more: every alternative counts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import ConfidentBinary, ConfidentGNThreshold, ConfidentTau, LabelVotes, Unit, exact_cost
from tellers.accounting import teacher_costs
from tellers.mechanisms.divergence import pair_divergences

ORDERS = np.array([1.25, 2.0, 5.0, 16.0, 64.0])


def enumerated(mechanism, votes, teacher, alternatives):
    """The worst divergence over all other ballots of one teacher on one query, in units of its votes."""
    block, law = votes.block()[:, 0].copy(), mechanism.law(votes.n_teachers)

    def outcomes(ballot):
        block[teacher] = ballot
        return law.log_outcomes(mechanism.rule.fit(block).sum(axis=0))

    here, worst = outcomes(block[teacher].copy()), np.zeros((2, ORDERS.size))
    for other in alternatives:
        worst = np.maximum(worst, pair_divergences(here, outcomes(np.array(other)), ORDERS).sum(axis=1))
    return worst


def test_half_a_vote_can_cost_more_than_a_whole_one():
    # 10 of 16 quarters, 4 of them own: 10 and, without them, 6 are sure on one side; 8 in between are not.
    ballots = np.array([[[1.0]], [[1.0]], [[0.5]], [[0.0]]])
    votes = LabelVotes.from_ballots(ballots, n_labels=1, resolution=4)
    mechanism = ConfidentBinary(20.0, 1, threshold=2.25, sigma_threshold=0.2, resolution=4)
    costs = teacher_costs(mechanism, votes, orders=ORDERS).reveal()[:, 0]
    assert np.allclose(costs, enumerated(mechanism, votes, 0, itertools.product(range(5))), rtol=1e-9)
    assert (costs > 2 * enumerated(mechanism, votes, 0, [(0,), (4,)])).any()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_votes_in_parts_cost_their_worst_alternative(seed):
    rng = np.random.default_rng(seed)
    n_teachers, k, units = int(rng.integers(1, 6)), int(rng.integers(1, 3)), int(rng.integers(2, 6))
    ballots = rng.integers(0, units + 1, (n_teachers, 1, k)) / units
    votes = LabelVotes.from_ballots(ballots, n_labels=k, resolution=units)
    bar = {"threshold": float(rng.uniform(0, n_teachers + 1)), "sigma_threshold": float(rng.uniform(0.3, 2))}
    mechanism = ConfidentBinary(float(rng.uniform(0.5, 9)), k, **bar, resolution=units)
    costs = teacher_costs(mechanism, votes, orders=ORDERS).reveal()
    assert (costs <= mechanism.price(Unit(), ORDERS).values * (1 + 1e-9) + 1e-12).all()
    for teacher in range(n_teachers):
        expected = enumerated(mechanism, votes, teacher, itertools.product(range(units + 1), repeat=k))
        assert np.allclose(costs[:, teacher], expected, rtol=1e-9, atol=1e-12)
    alone = LabelVotes.from_sums(votes.sums, n_teachers=n_teachers, resolution=units)
    without = exact_cost(mechanism, alone, orders=ORDERS)
    for direction, found in zip(costs, (without.forward, without.reverse), strict=True):
        assert (direction <= found.reveal().values * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize(
    ("ballots", "settings"),
    [
        (
            [(1, 1, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)],
            {"sigma": 3.0, "max_norm": 1.2, "threshold": 2.2, "sigma_threshold": 0.15, "norm": "l2"},
        ),
        (
            [(0, 1, 1, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 1, 1)],
            {"sigma": 10.0, "max_norm": 1.5, "threshold": 2.8, "sigma_threshold": 0.15, "norm": "l1"},
        ),
    ],
)
def test_clipped_ballots_that_end_where_few_are_sure(ballots, settings):
    k = len(ballots[0])
    votes = LabelVotes.from_ballots(np.array(ballots)[:, None, :], n_labels=k)
    mechanism = ConfidentTau(n_labels=k, resolution=10, **settings)
    costs = teacher_costs(mechanism, votes, orders=ORDERS).reveal()
    for teacher in range(len(ballots)):
        expected = enumerated(mechanism, votes, teacher, itertools.product((0, 1), repeat=k))
        assert np.allclose(costs[:, teacher], expected, rtol=1e-9, atol=1e-12)


def test_a_gate_and_capped_ballots_cost_no_more_than_their_price():
    ballots = np.array([(0, 0, 0), (0, 1, 1), (1, 1, 1)])[:, None, :]
    votes = LabelVotes.from_ballots(ballots, n_labels=3)
    mechanism = ConfidentGNThreshold(3.0, 3, 3, 0.9, 1.7, share=0.8, max_labels=1)
    costs = teacher_costs(mechanism, votes, orders=ORDERS).reveal()
    assert (costs <= mechanism.price(Unit(), ORDERS).values * (1 + 1e-12)).all()
