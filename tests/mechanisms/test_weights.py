"""Ballots of several votes, and teachers who take no part: distributions, costs and prices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Unit, Votes
from tellers.accounting import exact_cost, teacher_costs
from tellers.accounting.exact import exact_epsilons
from tellers.mechanisms import argmax_supremum, check_supremum, suprema
from tellers.mechanisms.base import scaled

ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 16.0, 32.0])
MECHANISMS = [
    GNMax(sigma=4.0),
    LNMax(gamma=0.3),
    ConfidentGNMax(sigma=4.0, threshold=9, sigma_threshold=6.0),
    InteractiveGNMax(sigma=4.0, threshold=4, sigma_threshold=6.0, student_confidence=0.9),
]


@st.composite
def weighted_votes(draw):
    n_classes = draw(st.integers(2, 4))
    n_teachers, n_queries = draw(st.integers(3, 9)), draw(st.integers(1, 4))
    ballots = draw(
        st.lists(
            st.lists(st.integers(0, n_classes - 1), min_size=n_queries, max_size=n_queries),
            min_size=n_teachers,
            max_size=n_teachers,
        )
    )
    flat = draw(st.lists(st.integers(0, 3), min_size=n_teachers * n_queries, max_size=n_teachers * n_queries))
    weights = np.array(flat).reshape(n_teachers, n_queries)
    weights[0] = np.maximum(weights[0], 1)  # somebody votes
    if draw(st.booleans()):
        weights = np.maximum(weights[:, 0], 1)
    return Votes.from_ballots(ballots, n_classes=n_classes).weighted(weights)


def beliefs(votes):
    return np.full(votes.counts.shape, 1 / votes.n_classes)


def context(mechanism, votes):
    return {"student": beliefs(votes)} if isinstance(mechanism, InteractiveGNMax) else {}


def labels_at(mechanism, counts):
    """Outcome log-probabilities of plain tallies, by way of a mechanism that knows of no weights."""
    votes = Votes(np.asarray(counts, dtype=np.int64), int(np.sum(counts)))
    return mechanism.outcomes(votes, **context(mechanism, votes)).log_labels


def divergence(p, q, order):
    p, q = p[p > -np.inf], q[p > -np.inf]
    return np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@settings(max_examples=8, deadline=None)
@given(votes=weighted_votes())
def test_costs_of_weighted_ballots_are_those_of_every_tally_written_out(mechanism, votes):
    wide = votes.weights if votes.weights.ndim == 2 else np.tile(votes.weights[:, None], (1, len(votes)))
    expected = np.zeros((2, votes.n_teachers, ORDERS.size))
    unmoved = [labels_at(mechanism, votes.counts[query : query + 1])[0] for query in range(len(votes))]
    for teacher in range(votes.n_teachers):
        for query in range(len(votes)):
            weight, ballot = wide[teacher, query], votes.ballots[teacher, query]
            here = unmoved[query]
            worst = np.zeros((2, ORDERS.size))
            for other in range(votes.n_classes):
                moved = votes.counts[query : query + 1].copy()
                moved[0, ballot] -= weight
                moved[0, other] += weight
                there = labels_at(mechanism, moved)[0]
                both = [
                    [divergence(here, there, a) for a in ORDERS],
                    [divergence(there, here, a) for a in ORDERS],
                ]
                worst = np.maximum(worst, both)
            expected[:, teacher] += worst
    found = teacher_costs(mechanism, votes, orders=ORDERS, **context(mechanism, votes)).reveal()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@settings(max_examples=25, deadline=None)
@given(votes=weighted_votes())
def test_nobody_costs_more_than_the_price_of_their_weight(mechanism, votes):
    wide = votes.weights if votes.weights.ndim == 2 else np.tile(votes.weights[:, None], (1, len(votes)))
    found = teacher_costs(mechanism, votes, **context(mechanism, votes)).reveal().max(axis=0)
    for teacher in range(votes.n_teachers):
        price = sum(mechanism.price(Unit.of_weight(int(w))).values for w in wide[teacher] if w)
        assert np.all(found[teacher] <= price * (1 + 1e-9) + 1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_weight_of_one_for_everybody_changes_no_bit(mechanism):
    ballots = np.random.default_rng(3).integers(0, 4, size=(30, 20))
    plain = Votes.from_ballots(ballots, n_classes=4)
    same = plain.weighted(np.ones(30, dtype=int))
    more = context(mechanism, plain)
    a, b = exact_cost(mechanism, plain, **more), exact_cost(mechanism, same, **more)
    assert np.array_equal(a.cost.reveal().values, b.cost.reveal().values)
    assert np.array_equal(a.forward.reveal().values, b.forward.reveal().values)
    assert same.unit == plain.unit
    if not more:
        one, two = (exact_epsilons(mechanism, v, delta=1e-5).reveal() for v in (plain, same))
        assert np.array_equal(one, two)


def test_the_running_epsilon_ends_at_the_whole_cost_with_weights_and_absences():
    rng = np.random.default_rng(5)
    weights = rng.integers(0, 3, size=(12, 9))
    weights[0] = 1
    votes = Votes.from_ballots(rng.integers(0, 3, size=(12, 9)), n_classes=3).weighted(weights)
    mechanism = GNMax(sigma=5.0)
    last = exact_epsilons(mechanism, votes, delta=1e-5).reveal()[-1]
    assert last == pytest.approx(exact_cost(mechanism, votes).cost.reveal().epsilon(1e-5), rel=1e-12)


@pytest.mark.parametrize(("sigma", "weight"), [(20.0, 2), (60.0, 7)])
@pytest.mark.parametrize("supremum", [argmax_supremum, check_supremum])
def test_the_table_of_prices_is_never_below_the_search_itself(supremum, sigma, weight, monkeypatch):
    orders = [1.25, 2.0, 6.0, 16.0, 40.0, 96.0]
    quick = supremum(sigma, orders, weight=weight).values
    monkeypatch.setattr(suprema, "_FINE", np.inf)
    for cached in (suprema._check_supremum, suprema._argmax_supremum):
        cached.cache_clear()
    searched = supremum(sigma, orders, weight=weight).values
    for cached in (suprema._check_supremum, suprema._argmax_supremum):
        cached.cache_clear()
    assert np.all(quick >= searched * (1 - 1e-12))
    assert np.all(quick <= searched * 1.03)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3], ids=lambda m: type(m).__name__)
def test_prices_grow_with_the_weight_and_shrink_with_the_noise(mechanism):
    one, two = mechanism.price(Unit()), mechanism.price(Unit.of_weight(2))
    together = mechanism.price(Unit.of_ballots(2))
    assert np.all(one.values < two.values)
    assert np.all(two.values <= together.values * (1 + 1e-12))
    assert np.all(scaled(mechanism, 2.0).price(Unit.of_weight(2)).values <= two.values)


def test_bad_weights_say_what_was_expected():
    votes = Votes.from_ballots([[0, 1], [1, 1]], n_classes=2)
    with pytest.raises(ValueError, match=r"weights of shape \(2,\) or \(2, 2\)"):
        votes.weighted([1, 2, 3])
    with pytest.raises(ValueError, match=r"a negative one at teacher 1, query 0"):
        votes.weighted([1, -1])
    with pytest.raises(ValueError, match="a fraction"):
        votes.weighted([1, 0.5])
    with pytest.raises(ValueError, match="a query without"):
        votes.weighted([[1, 0], [1, 0]])
    with pytest.raises(ValueError, match="Keep the ballots"):
        Votes.from_counts([[1, 1]], n_teachers=2).weighted([1, 1])
    with pytest.raises(ValueError, match="one ballot of whole weight"):
        GNMax(sigma=4.0).outcomes(Votes(votes.counts, 2, votes.ballots, Unit.of_ballots(2)))
