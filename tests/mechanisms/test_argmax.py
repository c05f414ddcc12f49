"""Winning probabilities, against sums over every noisy count and every set of tied classes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tellers.mechanisms._argmax import group_classes, win_probabilities
from tellers.mechanisms._laws import ContinuousGaussian, DiscreteGaussian, DiscreteLaplace

GAUSSIANS = [0.3, 1.0, 2.5, 9.0]
LAWS = [*(DiscreteGaussian(s) for s in GAUSSIANS), *(DiscreteLaplace(s) for s in GAUSSIANS)]


def plain_wins(counts, law):
    """P[class j wins], by definition: sum over its noisy count and the set of classes tied with it."""
    scale = getattr(law, "sigma", None) or law.scale
    reach = math.ceil((10 if hasattr(law, "sigma") else 45) * scale) + 2
    x = np.arange(min(counts) - reach, max(counts) + reach + 1, dtype=np.float64)
    at = [np.exp(law.log_density(x - n)) for n in counts]
    below = [np.exp(law.log_cdf(x - n - 1)) for n in counts]
    wins = []
    for j in range(len(counts)):
        others = [k for k in range(len(counts)) if k != j]
        total = 0.0
        for n_tied in range(len(counts)):
            for tied in itertools.combinations(others, n_tied):
                parts = [at[k] if k in tied else below[k] for k in others]
                total += (at[j] * np.prod(parts, axis=0)).sum() / (1 + n_tied)
        wins.append(total)
    return np.array(wins)


def many_nodes(counts, law):
    """log P[class j wins] with as many tie nodes as the polynomial in u needs, in logs throughout."""
    counts = np.asarray(counts)
    node, weight = np.polynomial.legendre.leggauss(len(counts) // 2 + 1)
    reach = math.ceil(10 * law.sigma) + 3
    x = np.arange(counts.min() - reach, counts.max() + reach + 1, dtype=np.float64)
    density = law.log_density(x - counts[:, None])
    total = np.full(len(counts), -np.inf)
    for u, w in zip((node + 1) / 2, weight / 2, strict=True):
        cdf = law.log_cdf(x - counts[:, None], u)
        total = np.logaddexp(total, np.logaddexp.reduce(density + cdf.sum(axis=0) - cdf + np.log(w), axis=1))
    return total


def by_class(groups, wins):
    return np.take_along_axis(wins.base, groups.of_class, axis=1)


# Groups -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=2, max_size=9), st.integers(0, 10**6))
def test_groups_gather_equal_counts(row, seed):
    offsets = np.random.default_rng(seed).integers(0, 2, (1, len(row)))
    groups = group_classes(np.array([row]), offsets)
    pairs = list(zip(row, offsets[0].tolist(), strict=True))
    assert groups.size.sum() == len(row)
    assert groups.size.shape[1] == len(set(pairs))
    for j, k in itertools.product(range(len(row)), repeat=2):
        same = groups.of_class[0, j] == groups.of_class[0, k]
        assert same == (pairs[j] == pairs[k])
    for j, (count, offset) in enumerate(pairs):
        assert groups.value[0, groups.of_class[0, j]] == count
        assert groups.offset[0, groups.of_class[0, j]] == offset
    assert np.all(np.diff(groups.value[0]) <= 0)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=7))
def test_moves_are_those_of_one_vote(row):
    groups = group_classes(np.array([row]))
    expected = {
        (int(groups.of_class[0, a]), int(groups.of_class[0, b]))
        for a, b in itertools.permutations(range(len(row)), 2)
        if row[a] > 0
    }
    assert {(int(a), int(b)) for _, a, b in np.argwhere(groups.moves)} == expected
    for a, b in expected:
        assert groups.remaining[0, a, b].sum() == len(row) - 2


def test_padding_has_no_moves():
    groups = group_classes(np.array([[5, 3, 2, 0], [10, 0, 0, 0]]))
    assert groups.size.tolist() == [[1, 1, 1, 1], [1, 3, 0, 0]]
    assert not groups.moves[1, 2:].any()
    assert not groups.moves[1, :, 2:].any()


# Winning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(
    "counts",
    [[3, 3], [7, 0], [1, 0, 0], [4, 4, 4], [5, 4, 3, 2], [0, 9, 0, 9, 1], [2, 2, 2, 2, 2], [30, 0, 0, 0]],
)
def test_wins_are_those_of_the_definition(law, counts):
    groups = group_classes(np.array([counts]))
    wins = np.exp(by_class(groups, win_probabilities(groups, law)))[0]
    # Where classes tie often the few tie nodes are worth 1e-8.
    np.testing.assert_allclose(wins, plain_wins(counts, law), rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("counts", [[3, 3], [7, 0], [5, 4, 3], [4, 4, 1, 0], [6, 0, 0, 0]])
def test_every_move_is_that_of_the_definition(law, counts):
    groups = group_classes(np.array([counts]))
    wins = win_probabilities(groups, law)
    for a, b in itertools.permutations(range(len(counts)), 2):
        if not counts[a]:
            continue
        moved = list(counts)
        moved[a], moved[b] = moved[a] - 1, moved[b] + 1
        expected = np.log(plain_wins(moved, law))
        g, h = groups.of_class[0, a], groups.of_class[0, b]
        assert wins.source[0, g, h] == pytest.approx(expected[a], rel=1e-7, abs=1e-7)
        assert wins.target[0, g, h] == pytest.approx(expected[b], rel=1e-7, abs=1e-7)
        for j in set(range(len(counts))) - {a, b}:
            other = wins.other[0, g, h, groups.of_class[0, j]]
            assert other == pytest.approx(expected[j], rel=1e-7, abs=1e-7)


@settings(max_examples=60)
@given(
    st.integers(2, 12), st.integers(0, 300), st.sampled_from([0.3, 2.0, 10.0, 60.0]), st.integers(0, 10**6)
)
def test_probabilities_sum_to_one(n_classes, n_teachers, sigma, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n_teachers, rng.dirichlet(np.full(n_classes, 0.4)), size=3)
    groups = group_classes(counts)
    for law in (DiscreteGaussian(sigma), DiscreteLaplace(sigma), ContinuousGaussian(sigma)):
        wins = win_probabilities(groups, law)
        np.testing.assert_allclose(np.exp(by_class(groups, wins)).sum(axis=1), 1.0, atol=1e-7)
        moved = (
            (groups.remaining * np.exp(wins.other)).sum(axis=3) + np.exp(wins.source) + np.exp(wins.target)
        )
        np.testing.assert_allclose(moved[groups.moves], 1.0, atol=1e-7)


def test_a_batch_is_its_queries_one_by_one():
    counts = np.array([[250, 0, 0], [90, 85, 75], [84, 83, 83], [1, 124, 125]])
    batch = group_classes(counts)
    wins = by_class(batch, win_probabilities(batch, DiscreteGaussian(40.0)))
    for row, expected in zip(counts, wins, strict=True):
        groups = group_classes(row[None])
        one = by_class(groups, win_probabilities(groups, DiscreteGaussian(40.0)))[0]
        np.testing.assert_allclose(one, expected, rtol=1e-9)


def test_linear_and_log_space_agree(monkeypatch):
    groups = group_classes(np.array([[40, 30, 30, 0], [60, 40, 0, 0], [25, 25, 25, 25]]))
    linear = win_probabilities(groups, DiscreteGaussian(3.0))
    monkeypatch.setattr("tellers.mechanisms._argmax._LINEAR_RANGE", 0.0)
    logs = win_probabilities(groups, DiscreteGaussian(3.0))
    np.testing.assert_allclose(logs.base, linear.base, rtol=1e-12, atol=1e-14)
    for name in ("source", "target"):
        np.testing.assert_allclose(getattr(logs, name), getattr(linear, name), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(logs.other, linear.other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("counts", [[250, 0], [5000, 0], [130, 120]])
@pytest.mark.parametrize("sigma", [1.0, 40.0])
def test_two_classes_are_a_gaussian_difference(counts, sigma):
    groups = group_classes(np.array([counts]))
    loses = win_probabilities(groups, ContinuousGaussian(sigma)).base[0, 1]
    expected = norm.logsf((counts[0] - counts[1]) / (sigma * math.sqrt(2)))
    assert loses == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 30.0])
@pytest.mark.parametrize("kind", ["tied", "few votes"])
def test_a_hundred_classes(sigma, kind):
    # Many classes tied at the top make the integrand a polynomial of degree 99 in the tie-break.
    counts = np.full(100, 3) if kind == "tied" else np.random.default_rng(5).integers(0, 3, 100)
    groups = group_classes(counts[None])
    wins = by_class(groups, win_probabilities(groups, DiscreteGaussian(sigma)))[0]
    np.testing.assert_allclose(wins, many_nodes(counts, DiscreteGaussian(sigma)), rtol=0, atol=1e-5)
