"""Local and smooth sensitivity, against every histogram where they can be listed, else a plain loop."""

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

from tellers.mechanisms import _flip_probability as upset
from tellers.mechanisms import published as bounds
from tellers.mechanisms import sensitivity
from tellers.privacy import Votes

MNIST = Path(__file__).parents[1] / "examples" / "mnist_votes.npz"


def lnmax_cost(*given, **named):
    return sensitivity.lnmax_sensitivities(*given, **named)[0]


def lnmax_local_sensitivities(*given, **named):
    return sensitivity.lnmax_sensitivities(*given, **named)[1]


LOCAL = {"gnmax": sensitivity.gnmax_local_sensitivities, "lnmax": lnmax_local_sensitivities}
COST = {"gnmax": sensitivity.gnmax_cost, "lnmax": lnmax_cost}
SCALE = {"gnmax": "sigma", "lnmax": "gamma"}
PLAIN = {"gnmax": upset.log_q_gnmax, "lnmax": upset.log_q_lnmax}
BOUND = {"gnmax": bounds.gaussian_bound, "lnmax": bounds.laplace_bound}

# (kind, sigma or gamma, order, teachers, classes): costs from nearly free to the worst case in each.
SMALL = [
    ("gnmax", 0.5, 2.0, 7, 2),
    ("gnmax", 1.0, 3.0, 8, 3),
    ("gnmax", 2.0, 2.0, 8, 4),
    ("gnmax", 0.8, 1.3, 6, 4),
    ("gnmax", 40.0, 8.0, 8, 3),
    ("lnmax", 0.5, 2.0, 8, 4),
    ("lnmax", 1.0, 5.0, 7, 3),
    ("lnmax", 2.0, 9.0, 6, 2),
]


def all_histograms(n_teachers, n_classes):
    bars = itertools.combinations(range(n_teachers + n_classes - 1), n_classes - 1)
    edges = [(-1, *bar, n_teachers + n_classes - 1) for bar in bars]
    return np.array([np.diff(edge) - 1 for edge in edges])


def distances(histograms):
    """How many ballots must change to get from one histogram to another."""
    return np.abs(histograms[:, None, :] - histograms[None, :, :]).sum(axis=2) // 2


def log_q_uncapped(kind, counts, scale, drawn):
    # A class without votes at minus infinity would not be whole; the cap is undone by summing tails.
    ranked = np.sort(counts, axis=1)[:, ::-1]
    gaps = ranked[:, :1] - ranked[:, 1:]
    two = np.stack([gaps.ravel(), np.zeros_like(gaps.ravel())], axis=1)
    return np.logaddexp.reduce(PLAIN[kind](two, scale, drawn=drawn).reshape(gaps.shape), axis=1)


# Everything, for ensembles that can be listed --------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale", "order", "n_teachers", "n_classes"), SMALL)
@pytest.mark.parametrize("drawn", [False, True])
def test_local_and_smooth_sensitivity_hold_at_every_histogram(
    kind, scale, order, n_teachers, n_classes, drawn
):
    histograms = all_histograms(n_teachers, n_classes)
    apart = distances(histograms)
    setting = {SCALE[kind]: scale, "order": order, "drawn": drawn}
    local = np.array([LOCAL[kind]([row], n_teachers, **setting) for row in histograms])
    on_grid = np.array([COST[kind]([row], n_teachers, **setting) for row in histograms])
    plain = BOUND[kind](PLAIN[kind](histograms, scale, drawn=drawn), scale, orders=[order])[:, 0]
    assert np.all(on_grid >= plain - 1e-12)
    for cost in (on_grid, plain):
        moves = np.abs(cost[:, None] - cost[None, :])
        true = np.where(apart == 1, moves, 0).max(axis=1)
        for d in range(n_teachers + 1):
            worst = np.where(apart <= d, true[None, :], 0).max(axis=1)
            assert np.all(worst <= local[:, d] * (1 + 1e-12) + 1e-15)
    assert np.all(np.diff(local, axis=1) >= 0)
    rows, columns = np.nonzero(apart == 1)
    assert np.all(local[rows, :-1] <= local[columns, 1:] * (1 + 1e-9) + 1e-15)
    for beta in (0.02, 0.4, 2.0):
        smooth = np.array([sensitivity.smooth_sensitivity(row, beta) for row in local])
        assert np.all(smooth[rows] <= math.exp(beta) * smooth[columns] * (1 + 1e-9))
        assert np.all(true <= smooth + 1e-15)


@pytest.mark.parametrize(("kind", "scale", "order", "n_teachers", "n_classes"), SMALL)
@pytest.mark.parametrize("drawn", [False, True])
def test_the_walks_reach_the_largest_and_the_smallest_q(kind, scale, order, n_teachers, n_classes, drawn):
    histograms = all_histograms(n_teachers, n_classes)
    apart = distances(histograms)
    log_q = log_q_uncapped(kind, histograms, scale, drawn)
    ranked = np.sort(histograms, axis=1)[:, ::-1]
    two = np.stack([np.arange(n_teachers + 1), np.zeros(n_teachers + 1, dtype=int)], axis=1)
    log_tail = PLAIN[kind](two, scale, drawn=drawn)
    steps = np.arange(n_teachers + 1)
    largest = -sensitivity._towards_tie(ranked, steps, log_tail)
    smallest = -sensitivity._towards_unanimity(ranked, steps, log_tail)
    for d in steps:
        reached = np.where(apart <= d, log_q[None, :], -np.inf).max(axis=1)
        certain = np.isfinite(largest[:, d])  # until the first class is overtaken
        np.testing.assert_array_equal(certain, ranked[:, 0] - ranked[:, 1] >= 2 * d)
        np.testing.assert_allclose(largest[certain, d], reached[certain], rtol=1e-11, atol=1e-12)
        reached = np.where(apart <= d, log_q[None, :], np.inf).min(axis=1)
        np.testing.assert_allclose(smallest[:, d], reached, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0, 20.0])
def test_one_ballot_moves_the_effective_gap_by_at_most_two(scale):
    histograms = all_histograms(8, 4)
    rows, columns = np.nonzero(distances(histograms) == 1)
    log_q = log_q_uncapped("gnmax", histograms, scale, False) - math.log(3)
    gap = -math.sqrt(2) * scale * ndtri_exp(log_q)
    assert np.max(np.abs(gap[rows] - gap[columns])) <= 2 + 1e-9
    # The published B_U and B_L are this statement in terms of q.
    upper = math.log(3) + log_ndtr(-(gap - 2) / (math.sqrt(2) * scale))
    assert np.all(log_q[columns] + math.log(3) <= upper[rows] + 1e-9)


def test_one_ballot_moves_the_q_of_lnmax_by_at_most_its_privacy():
    histograms = all_histograms(8, 4)
    rows, columns = np.nonzero(distances(histograms) == 1)
    for drawn in (False, True):
        log_q = log_q_uncapped("lnmax", histograms, 0.7, drawn)
        assert np.max(np.abs(log_q[rows] - log_q[columns])) <= 2 * 0.7


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize(("sigma", "order", "threshold"), [(0.7, 2.0, 5), (2.0, 6.0, 6), (1.0, 3.0, 0)])
def test_checks_hold_at_every_histogram(sigma, order, threshold, drawn):
    n_teachers, n_classes = 8, 3
    histograms = all_histograms(n_teachers, n_classes)
    apart = distances(histograms)
    margins = histograms.max(axis=1) - threshold
    logs = bounds.log_accept(margins, sigma, drawn=drawn)
    cost = bounds.threshold_bound(*logs, sigma_threshold=sigma, orders=[order])[:, 0]
    true = np.where(apart == 1, np.abs(cost[:, None] - cost[None, :]), 0).max(axis=1)
    limits = {"lowest": math.ceil(n_teachers / n_classes) - threshold, "highest": n_teachers - threshold}
    for extra in ({}, limits):
        setting = {"sigma_threshold": sigma, "order": order, "drawn": drawn} | extra
        local = np.array(
            [sensitivity.threshold_local_sensitivities([m], n_teachers, **setting) for m in margins]
        )
        for d in range(n_teachers + 1):
            worst = np.where(apart <= d, true[None, :], 0).max(axis=1)
            assert np.all(worst <= local[:, d] + 1e-15)
        rows, columns = np.nonzero(apart == 1)
        assert np.all(np.diff(local, axis=1) >= 0)
        assert np.all(local[rows, :-1] <= local[columns, 1:] + 1e-15)


# A plain loop, for ensembles that cannot be listed ---------------------------------------------------------


def plain_local_sensitivities(counts, n_teachers, *, sigma, order):
    """Walk one vote at a time, re-sorting, with the local sensitivity of each histogram on the way."""
    n_rivals = counts.shape[1] - 1
    cap = math.log1p(-1 / (n_rivals + 1))

    def cost(gap):
        log_q = math.log(n_rivals) + log_ndtr(-gap / (math.sqrt(2) * sigma))
        return bounds.gaussian_bound(np.minimum(log_q, cap), sigma, orders=[order])[:, 0]

    def move(gap):
        # No histogram has an effective gap outside [0, n_teachers], so no move goes further.
        here = cost(gap)
        return np.maximum(cost(np.maximum(gap - 2, 0)) - here, here - cost(np.minimum(gap + 2, n_teachers)))

    gaps = np.linspace(0, n_teachers, 40 * n_teachers + 1)
    moves = move(gaps)

    def effective_gap(ranked):
        log_q = np.logaddexp.reduce(log_ndtr((ranked[1:] - ranked[0]) / (math.sqrt(2) * sigma)))
        return float(-math.sqrt(2) * sigma * ndtri_exp(log_q - math.log(n_rivals)))

    total = np.zeros(n_teachers + 1)
    for row in counts:
        up, down = np.sort(row)[::-1], np.sort(row)[::-1]
        for d in range(n_teachers + 1):
            if d:
                if up is not None:
                    up = None if up[0] - up[1] < 2 else up + np.eye(1, up.size, 1, int)[0]
                    if up is not None:
                        up[0] -= 1
                if down[1]:
                    down = down + np.eye(1, down.size, 0, int)[0]
                    down[1] -= 1
                    down[1:] = np.sort(down[1:])[::-1]
            ends = np.array([0.0 if up is None else effective_gap(up), effective_gap(down)])
            inside = (gaps >= ends[0]) & (gaps <= ends[1])
            total[d] += max(move(ends).max(), moves[inside].max(initial=0.0))
    return total


def consensus(rng, *, n_queries, n_teachers, high):
    if high:
        doubt = rng.uniform(0, 0.2, size=(n_queries, 1))
        shares = np.hstack([1 - doubt, doubt * rng.dirichlet(np.ones(9), size=n_queries)])
    else:
        shares = rng.dirichlet(np.full(10, 2.0), size=n_queries)
    counts = np.stack([rng.multinomial(n_teachers, share) for share in shares])
    return rng.permuted(counts, axis=1)


@pytest.mark.parametrize("high", [True, False])
@pytest.mark.parametrize(("sigma", "order"), [(8.0, 6.0), (4.0, 20.0)])
def test_a_plain_loop_agrees(high, sigma, order):
    counts = consensus(np.random.default_rng(2), n_queries=6, n_teachers=120, high=high)
    slow = plain_local_sensitivities(counts, 120, sigma=sigma, order=order)
    fast = sensitivity.gnmax_local_sensitivities(counts, 120, sigma=sigma, order=order)
    assert slow[-1] > 0
    assert np.all(fast >= slow * (1 - 1e-9))
    assert np.all(fast <= 1.02 * slow)


def test_the_order_of_classes_and_of_queries_does_not_matter():
    rng = np.random.default_rng(4)
    counts = consensus(rng, n_queries=40, n_teachers=250, high=True)
    for kind, scale in (("gnmax", 40.0), ("lnmax", 0.05)):
        setting = {SCALE[kind]: scale, "order": 8.0}
        local = LOCAL[kind](counts, 250, **setting)
        shuffled = rng.permuted(counts, axis=1)[rng.permutation(40)]
        np.testing.assert_allclose(LOCAL[kind](shuffled, 250, **setting), local, rtol=1e-12)


def test_queries_add_up():
    counts = consensus(np.random.default_rng(6), n_queries=30, n_teachers=250, high=False)
    counts = np.concatenate(
        [counts, counts[:5], consensus(np.random.default_rng(7), n_queries=9, n_teachers=250, high=True)]
    )
    setting = {"sigma": 20.0, "order": 8.0}
    one_by_one = sum(sensitivity.gnmax_local_sensitivities([row], 250, **setting) for row in counts)
    np.testing.assert_allclose(
        sensitivity.gnmax_local_sensitivities(counts, 250, **setting), one_by_one, rtol=1e-10
    )
    costs = sum(sensitivity.gnmax_cost([row], 250, **setting) for row in counts)
    assert sensitivity.gnmax_cost(counts, 250, **setting) == pytest.approx(costs)
    margins = counts.max(axis=1) - 150
    setting = {"sigma_threshold": 20.0, "order": 8.0}
    one_by_one = sum(sensitivity.threshold_local_sensitivities([m], 250, **setting) for m in margins)
    np.testing.assert_allclose(
        sensitivity.threshold_local_sensitivities(margins, 250, **setting), one_by_one, rtol=1e-10
    )


@pytest.mark.parametrize("drawn", [False, True])
def test_the_cost_on_the_grid_is_the_published_one_rounded_up(drawn):
    votes = Votes.from_ballots(np.load(MNIST)["ballots"][:, :2000], n_classes=10)
    for order in (2.0, 8.0, 30.0):
        published = bounds.published_gnmax(votes, 40.0, orders=[order], drawn=drawn, total=True)[0]
        rounded = sensitivity.gnmax_cost(votes.counts, 250, sigma=40.0, order=order, drawn=drawn)
        assert published <= rounded <= 1.001 * published
        published = bounds.published_lnmax(votes, 0.05, orders=[order], drawn=drawn, total=True)[0]
        rounded = lnmax_cost(votes.counts, 250, gamma=0.05, order=order, drawn=drawn)
        assert published <= rounded * (1 + 1e-12)
        assert rounded <= 1.001 * published


def test_real_votes_have_a_smooth_sensitivity_far_below_their_cost():
    votes = Votes.from_ballots(np.load(MNIST)["ballots"][:, :1000], n_classes=10)
    setting = {"sigma": 40.0, "order": 20.0}
    cost = sensitivity.gnmax_cost(votes.counts, 250, **setting)
    local = sensitivity.gnmax_local_sensitivities(votes.counts, 250, **setting)
    assert 0 < sensitivity.smooth_sensitivity(local, 0.04) < 0.05 * cost


# What peers got wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [1.0, 40.0])
@pytest.mark.parametrize("drawn", [False, True])
def test_five_thousand_unanimous_teachers(sigma, drawn):
    local = sensitivity.gnmax_local_sensitivities([[0, 5000, 0]], 5000, sigma=sigma, order=8.0, drawn=drawn)
    assert np.all(np.isfinite(local))
    assert local[0] < 1e-100  # nobody can do anything alone
    assert local[-1] > 0.01 * 8.0 / sigma**2  # but five thousand can
    assert sensitivity.gnmax_cost([[0, 5000, 0]], 5000, sigma=sigma, order=8.0, drawn=drawn) < 1e-100


def test_unsorted_counts_do_not_hide_a_sensitivity():
    # A peer compared the first two classes, not the first two in rank, and found 0 here.
    ranked = lnmax_local_sensitivities([[55, 45, 0]], 100, gamma=0.2, order=4.0)
    for row in itertools.permutations([55, 45, 0]):
        local = lnmax_local_sensitivities([row], 100, gamma=0.2, order=4.0)
        np.testing.assert_allclose(local, ranked, rtol=1e-12)
    assert ranked[0] > 0


def test_high_moments_do_not_have_sensitivity_zero():
    # A peer returned 0 once gamma * l > 1.
    local = lnmax_local_sensitivities([[30, 10]], 40, gamma=0.5, order=9.0)
    assert local[0] > 0
    assert local[-1] > 0.1


@pytest.mark.parametrize("kind", ["gnmax", "lnmax"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("order", [1.01, 20.0, 512.0])
def test_extreme_parameters_stay_finite(kind, scale, order):
    counts = [[250, 0, 0], [125, 125, 0], [84, 83, 83], [249, 1, 0]]
    for drawn in (False, True):
        local = LOCAL[kind](counts, 250, **{SCALE[kind]: scale}, order=order, drawn=drawn)
        assert np.all(np.isfinite(local))
        assert np.all(local >= 0)
        cost = COST[kind](counts, 250, **{SCALE[kind]: scale}, order=order, drawn=drawn)
        assert np.isfinite(cost)
        assert cost >= 0


def test_one_teacher():
    for kind in LOCAL:
        local = LOCAL[kind]([[1, 0], [0, 1]], 1, **{SCALE[kind]: 0.7}, order=2.0)
        assert local.shape == (2,)
        assert np.all(local >= 0)


# Refusals and speed ----------------------------------------------------------------------------------------


def test_bad_arguments_are_refused():
    good = {"sigma": 1.0, "order": 2.0}
    with pytest.raises(ValueError, match="sum to n_teachers"):
        sensitivity.gnmax_local_sensitivities([[3, 4]], 8, **good)
    with pytest.raises(ValueError, match="orders > 1"):
        sensitivity.gnmax_local_sensitivities([[3, 4]], 7, sigma=1.0, order=1.0)
    with pytest.raises(ValueError, match="sigma"):
        sensitivity.gnmax_cost([[3, 4]], 7, sigma=-1.0, order=2.0)
    with pytest.raises(ValueError, match="whole margins"):
        sensitivity.threshold_local_sensitivities([0.5], 7, sigma_threshold=1.0, order=2.0)
    with pytest.raises(ValueError, match="outside these limits"):
        sensitivity.threshold_local_sensitivities([9], 7, sigma_threshold=1.0, order=2.0, highest=7)
    for bad in ([], [[1.0]], [-1.0], [np.nan]):
        with pytest.raises(ValueError, match="local sensitivities"):
            sensitivity.smooth_sensitivity(bad, 0.1)
    with pytest.raises(ValueError, match="beta"):
        sensitivity.smooth_sensitivity([1.0], 0.0)


def test_smooth_sensitivity_discounts_distances_from_zero():
    assert sensitivity.smooth_sensitivity([3.0, 3.1, 3.2], 1.0) == 3.0
    assert sensitivity.smooth_sensitivity([0.0, 0.0, 3.0], 0.5) == pytest.approx(3 * math.exp(-1))


@pytest.mark.parametrize("high", [True, False])
def test_a_thousand_queries_of_five_thousand_teachers_take_a_second(high):
    counts = consensus(np.random.default_rng(9), n_queries=1000, n_teachers=5000, high=high)
    sensitivity._gauge.cache_clear()
    start = time.process_time()
    local = sensitivity.gnmax_local_sensitivities(counts, 5000, sigma=100.0, order=20.0)
    sensitivity.smooth_sensitivity(local, 0.02)
    assert time.process_time() - start <= 2.5
