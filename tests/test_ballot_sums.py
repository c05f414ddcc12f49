"""Long sums: against exact ones, and against a loop over teachers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.accounting.exact import RunningSums, class_block


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_a_running_sum_is_the_exact_one_rounded(terms):
    sums = RunningSums((1,))
    for term in terms:
        sums.add(np.array([term]))
    exact = math.fsum(terms)
    assert abs(float(sums.total[0]) - exact) <= 2.0**-52 * exact


def test_small_terms_are_not_lost_beside_a_large_sum():
    sums, plain = RunningSums((2,)), 1.0
    sums.add(np.ones(2))
    for _ in range(10_000):
        sums.add(np.full(2, 1e-17))
        plain += 1e-17
    assert plain == 1.0  # what happens without it
    np.testing.assert_allclose(sums.total - 1, 1e-13, rtol=1e-2)


def test_many_sums_are_kept_apart():
    terms = np.random.default_rng(7).random((5, 3, 20_011))
    sums = RunningSums(terms.shape[1:])
    for term in terms:
        sums.add(term)
    np.testing.assert_allclose(sums.total, terms.sum(axis=0), rtol=1e-15)


def test_infinity_stays_infinity():
    sums = RunningSums((2,))
    for term in ([1.0, 1.0], [np.inf, 1.0], [1.0, 1e-17]):
        sums.add(np.array(term))
    assert sums.total[0] == np.inf
    assert sums.total[1] == 2.0


def by_loop(costs, ballots, which):
    n_teachers, n_queries = ballots.shape
    total = np.zeros((2, n_teachers, costs.shape[-1]))
    for i in range(n_teachers):
        for q in range(n_queries):
            weight = 0 if which is None else which[i, q]
            if weight >= 0:
                total[:, i] += costs[:, q, weight, ballots[i, q]]
    return total


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.integers(2, 4), st.integers(0, 3))
@settings(max_examples=60)
def test_every_teacher_pays_for_its_own_ballots(seed, n_teachers, n_queries, n_classes, n_weights):
    rng = np.random.default_rng(seed)
    costs = rng.random((2, n_queries, max(1, n_weights), n_classes, 3))
    ballots = rng.integers(0, n_classes, (n_teachers, n_queries))
    which = rng.integers(-1, n_weights, ballots.shape) if n_weights else None
    common = rng.integers(0, n_classes, n_queries)  # any will do, also one that nobody cast
    found = class_block(0, costs, ballots, which, common=common).total
    np.testing.assert_allclose(found, by_loop(costs, ballots, which), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dear", [0, 1])
def test_an_infinite_cost_is_paid_by_those_who_cast_that_ballot(dear):
    costs = np.ones((2, 2, 1, 2, 1))
    costs[:, 1, 0, dear] = np.inf
    ballots = np.array([[0, 0], [1, 1], [0, 0]])
    found = class_block(0, costs, ballots, None, common=np.array([0, 0])).total[0, :, 0]
    np.testing.assert_array_equal(found == np.inf, ballots[:, 1] == dear)
    assert (found[ballots[:, 1] != dear] == 2.0).all()
