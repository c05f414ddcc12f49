"""The judge is judged: its value against closed forms, and against every attack there is where few are."""

import itertools
import math

import numpy as np
import pytest

from .adaptive_value import Family, Grid, Move, Value, repeated
from .families import (
    arg_max,
    check,
    confident,
    gaussian,
    gaussian_sum,
    histograms,
    laplace,
    leader,
    neighbours,
    race,
    randomised_response,
)  # fmt: skip

GRID = Grid(-7, 9, 0.01)


class Counted:
    """Up to so many questions of one family, one after the other."""

    def __init__(self, family, n):
        self.family, self.start = family, n

    def moves(self, n):
        return [Move(self.family, (n - 1,) * self.family.n_kinds)] if n else []


def binomial(share, n, epsilon):
    """Return the hockey stick of n coins of randomised response."""
    p = 1 / (1 + math.exp(-share))
    total = 0.0
    for heads in range(n + 1):
        one = math.comb(n, heads) * p**heads * (1 - p) ** (n - heads)
        other = math.comb(n, heads) * (1 - p) ** heads * p ** (n - heads)
        total += max(0.0, one - math.exp(epsilon) * other)
    return total


@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.3])
def test_coins_are_a_binomial(n, epsilon):
    truth = binomial(0.2, n, epsilon)
    value = Value(Counted(randomised_response(0.2), n), GRID)
    assert truth * (1 - 1e-9) <= value.above(epsilon) <= truth * 1.01 + 1e-12
    assert truth * 0.99 - 1e-12 <= value.below(epsilon) <= truth * (1 + 1e-9)


@pytest.mark.parametrize("n", [1, 2, 6])
def test_noisy_sums_are_one_noisy_sum(n):
    # n sums that move by 1 are, for continuous noise, one that moves by sqrt(n): nearly so on whole numbers.
    value = Value(Counted(gaussian_sum(6.0), n), GRID)
    sigma, epsilon = 6 / math.sqrt(n), 1.0
    points = epsilon * sigma - 0.5 / sigma, epsilon * sigma + 0.5 / sigma
    normal = [0.5 * math.erfc(x / math.sqrt(2)) for x in points]
    truth = normal[0] - math.exp(epsilon) * normal[1]
    if n == 6:
        assert value.above(epsilon) == pytest.approx(truth, rel=0.03)
    assert value.below(epsilon) <= value.above(epsilon) <= value.below(epsilon) * 1.03


def test_two_steps_against_every_attack():
    """All functions from what came out to the next pair, tried one by one."""
    draw = np.random.default_rng(5)
    laws = draw.dirichlet(np.ones(3), size=(3, 2)) * 0.9 + 0.1 / 3
    family = Family.of([tuple(pair) for pair in laws])
    for epsilon in (0.0, 0.3, 0.8):
        best = 0.0
        for first in range(len(family.p)):
            p, q = family.p[first], family.p[first] * np.exp(family.s[first])
            for after in itertools.product(range(len(family.p)), repeat=3):
                here = np.concatenate([p[o] * family.p[j] for o, j in enumerate(after)])
                there = np.concatenate(
                    [q[o] * family.p[j] * np.exp(family.s[j]) for o, j in enumerate(after)]
                )
                best = max(best, float(np.maximum(0, here - math.exp(epsilon) * there).sum()))
        value = Value(Counted(family, 2), GRID)
        assert value.below(epsilon) <= best * (1 + 1e-9)
        assert best <= value.above(epsilon) * (1 + 1e-9)
        assert value.above(epsilon) <= value.below(epsilon) * 1.01
        assert repeated(family, 2, GRID)[2] == pytest.approx(value.at(2))


def test_a_leader_is_who_leads():
    noise = gaussian(1.3, reach=6)
    for counts in ((3, 1), (2, 2, 1), (4, 0, 0)):
        wins = np.zeros(len(counts))
        for drawn in itertools.product(zip(*noise, strict=True), repeat=len(counts)):
            noisy = np.array([c + x for c, (x, _) in zip(counts, drawn, strict=True)])
            top = noisy == noisy.max()
            wins += math.prod(p for _, p in drawn) * top / top.sum()
        assert leader(noise, counts) == pytest.approx(wins / wins.sum(), rel=1e-10)


def test_families_have_every_neighbour_in_both_orders():
    assert histograms(4, 3) == [(4, 0, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1)]
    assert sorted(neighbours((2, 1))) == [(1, 2), (3, 0)]
    for family in (
        arg_max(laplace(0.4), 4, 3), race(gaussian(2), 15), check(gaussian(3), 20),
        confident(gaussian(2), gaussian(2), 5, 3, threshold=3),
    ):  # fmt: skip
        assert family.p.sum(axis=1) == pytest.approx(1)
        other = family.p * np.exp(family.s)
        assert other.sum(axis=1) == pytest.approx(1)
        both = {tuple(np.round(row, 12)) for row in np.hstack([family.p, other])}
        assert both == {tuple(np.round(row, 12)) for row in np.hstack([other, family.p])}
