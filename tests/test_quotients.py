"""Logarithms of sums: no ballot moves them faster than the largest quotient within reach."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import maximum_filter1d
from scipy.stats import binom

from tellers import ConfidentGNMax, GNMax, RdpCurve, Votes, exact_cost, noise
from tellers.accounting import Consensus, publish
from tellers.accounting._publishable import cost_and_sensitivities, log_cost_and_sensitivities
from tellers.accounting.smooth import PublishPlan
from tellers.mechanisms import gap_envelope, smooth_sensitivity
from tellers.mechanisms._log_sum_sensitivity import largest_quotients, slopes_up_to
from tellers.mechanisms.gap_bounds import gap_cost, gap_log_moves
from tellers.runs import plan_publication

DELTA = 1e-5
OFFSETS = [1e-3, 0.05, 10.0]


@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from([2.0, 5.0, 16.0]))
@settings(max_examples=60, deadline=None)
def test_neighbours_move_the_logarithm_no_faster(seed, order):
    rng = np.random.default_rng(seed)
    n, q, m = int(rng.integers(2, 40)), int(rng.integers(1, 8)), int(rng.integers(2, 5))
    mechanism = GNMax(float(rng.uniform(1.0, 8.0)))
    leading = rng.integers(m, size=q)
    ballots = np.where(rng.random((n, q)) < rng.random(q), leading, rng.integers(m, size=(n, q)))
    changed = ballots.copy()
    # The worst neighbours leave the leading class everywhere, or join it.
    changed[0] = [rng.integers(m, size=q), leading, (leading + 1) % m][rng.integers(3)]
    found = [
        log_cost_and_sensitivities(
            mechanism, Votes.from_ballots(cast, n_classes=m), order=order, offsets=OFFSETS
        )
        for cast in (ballots, changed)
    ]
    for at, offset in enumerate(OFFSETS):
        (here, local), (there, local_there) = ((np.log1p(f / offset), moves[at]) for f, moves in found)
        assert abs(here - there) <= min(local[0], local_there[0]) * (1 + 1e-9) + 1e-12
        assert (np.diff(local) >= 0).all()
        assert (local[:-1] <= local_there[1:] * (1 + 1e-9) + 1e-12).all()
        for beta in (0.01, 0.2):
            smooth, smooth_there = (smooth_sensitivity(moves, beta) for moves in (local, local_there))
            assert smooth <= np.exp(beta) * smooth_there * (1 + 1e-9)
            assert smooth_there <= np.exp(beta) * smooth * (1 + 1e-9)


@pytest.mark.parametrize("falls", [True, False])
@pytest.mark.parametrize("gaps", [[0, 9], [3, 3], [9, 9], [5]])
def test_moves_are_close_above_the_largest_quotients_of_any_table(gaps, falls):
    """Every combination of gaps within reach is looked at; the table need not fall."""
    table = np.random.default_rng(len(gaps)).random(10)
    table = np.sort(table)[::-1] if falls else table
    places = np.arange(table.size)
    within = np.abs(places[:, None] - places) <= 2
    rise = np.where(within, table, -np.inf).max(axis=1) - table
    fall = table - np.where(within, table, np.inf).min(axis=1)
    moves = gap_log_moves(table, np.array(gaps), [0.05])[0]
    for d, found in enumerate(moves):
        reach = [range(max(0, g - 2 * d), min(9, g + 2 * d) + 1) for g in gaps]
        there = np.array(list(itertools.product(*reach)))
        held = table[there].sum(axis=1) + 0.05
        up = np.log1p((rise[there].sum(axis=1) / held).max())
        down = -np.log1p(-(fall[there].sum(axis=1) / held).max())
        assert max(up, down) * (1 - 1e-9) <= found <= 1.06 * max(up, down)


def test_moves_at_every_distance_are_those_of_windows_that_grow_vote_by_vote():
    table, gaps = gap_envelope(90, 4, sigma=5.0, order=6.0), np.array([0, 3, 3, 40, 88, 90])
    rise, fall = (maximum_filter1d(sign * table, 5, mode="nearest") - sign * table for sign in (1, -1))
    change, excess = np.stack([rise, fall]), []
    slopes = slopes_up_to((change / (table + 0.02 / gaps.size)).max(axis=1))
    over = change[:, None, :] - slopes[..., None] * table
    for _ in range(46):
        excess.append(over[..., gaps].sum(axis=-1))
        over = maximum_filter1d(over, 5, axis=2, mode="nearest")
    for offset, found in zip([0.02, 3.0], gap_log_moves(table, gaps, [0.02, 3.0]), strict=True):
        up, down = largest_quotients(slopes, np.stack(excess, axis=-1), offset)
        plain = np.maximum(np.log1p(up), -np.log1p(-down))
        np.testing.assert_allclose(found, np.maximum.accumulate(plain), rtol=1e-9)


def test_far_from_zero_a_logarithm_moves_like_what_it_is_of():
    table, gaps = gap_envelope(60, 4, sigma=8.0, order=6.0), np.arange(0, 61, 3)
    moves = gap_log_moves(table, gaps, [1e6])[0] * 1e6
    rise = maximum_filter1d(table, 5, mode="nearest") - table
    fall = table + maximum_filter1d(-table, 5, mode="nearest")
    for d, found in enumerate(moves):
        by_hand = max(maximum_filter1d(way, 4 * d + 1, mode="nearest")[gaps].sum() for way in (rise, fall))
        assert by_hand * (1 - 1e-4) <= found <= by_hand * (1 + 2e-3)
    # Rises and falls are summed apart: never more than where each query moves as it likes.
    local = gap_cost(table, gaps).local  # which ends where nothing changes any more
    each = np.append(local, np.full(moves.size - local.size, local[-1]))
    assert (moves <= each * (1 + 2e-3)).all()


def test_a_quotient_that_is_met_at_a_slope_is_found_exactly():
    slopes = slopes_up_to(np.array(1.0))
    for wanted in slopes[1:]:
        excess = (wanted * 3.0 - slopes * 2.0)[:, None]  # change 3 w, costs 2, offset 1: the quotient is w
        assert largest_quotients(slopes, excess, 1.0)[0] == pytest.approx(wanted)


def test_the_published_value_is_an_upper_one_as_often_as_it_says():
    """150 releases at confidence 0.9: more misses than this are seen once in a million runs."""
    mechanism = GNMax(12.0)
    votes, proxy = (Consensus().votes(80, 5, n_queries=150, seed=seed)[0] for seed in (3, 4))
    plan = plan_publication(mechanism, proxy, n_queries=150, delta=DELTA, confidence=0.9, method="envelope")[
        0
    ]
    assert plan.offset is not None
    exact = exact_cost(mechanism, votes, orders=[plan.order]).cost.reveal().values
    true = RdpCurve(np.array([plan.order]), exact + plan.price).epsilon(DELTA)
    source = noise.seeded(7)
    values = np.array(
        [
            publish(mechanism, votes, source, plan=plan, delta=DELTA, allow_seeded=True).epsilon_upper
            for _ in range(150)
        ]
    )
    assert np.sum(values < true) <= binom.isf(1e-6, 150, 0.1)
    assert np.median(values) == pytest.approx(plan.expected_epsilon, rel=0.15)


def test_teachers_that_agree_publish_less_by_the_logarithm():
    """250 teachers of whom 97 % agree: the planner's own proxy, and what it expects of it."""
    proxy, _ = Consensus(agreement=0.97).votes(250, 10, n_queries=400, seed=1)
    best, plain = (
        plan_publication(GNMax(40.0), proxy, n_queries=400, delta=DELTA, method="envelope", **how)[0]
        for how in ({}, {"offsets": ()})
    )
    assert best.offset is not None
    assert plain.offset is None
    assert best.expected_epsilon < 0.85 * plain.expected_epsilon


def test_what_is_checked_first_has_no_logarithm():
    votes = Votes.from_counts([[40, 10]], n_teachers=50)
    plan = PublishPlan("envelope", 8.0, 0.02, 4.0, 0.95, 1.0, offset=1.0)
    with pytest.raises(ValueError, match="Expected no offset"):
        publish(ConfidentGNMax(8.0, 30, 9.0), votes, noise.secure(), plan=plan, delta=DELTA)
    with pytest.raises(ValueError, match="Expected no offset"):
        cost_and_sensitivities(GNMax(8.0), votes, order=8.0, method="gnss", offset=1.0)
