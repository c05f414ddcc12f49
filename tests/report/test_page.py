"""The numbers on the page: rounded against us, thinned fairly, simulated from public settings alone."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tellers.runs.report._page import flat, simulate, worst_guess
from tellers.runs.report._plots import thinned
from tellers.runs.result import MechanismPart


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01])
def test_the_worst_guess_is_the_best_test(epsilon, delta):
    """Search the error rates that the definition allows, and compare with the closed form."""
    false_alarm = np.linspace(0, 1, 200_001)
    one = np.exp(epsilon) * false_alarm + delta
    other = 1 - (1 - false_alarm - delta) * np.exp(-epsilon)
    best = np.max((np.minimum(np.minimum(one, other), 1) + 1 - false_alarm) / 2)
    # The grid misses the corner by at most a step times the slope.
    shown = float(worst_guess(epsilon, delta).split()[0]) / 100
    assert best - 1e-12 <= shown <= best + 1e-4 + 5e-6 * math.exp(epsilon)


def test_the_worst_guess_is_rounded_up():
    assert worst_guess(0.0001, 0.0) == "50.01 %"
    assert worst_guess(1000.0, 1e-5) == "100.00 %"


def test_thinning_keeps_the_ends():
    points = tuple((10 * n, 0.01 * n) for n in range(1, 778))
    kept = thinned(points)
    assert (kept[0], kept[-1], len(kept)) == (points[0], points[-1], 24)
    assert thinned(points[:24]) == list(points[:24])


def test_settings_are_words():
    settings = {"a": {"b": True, "c": [], "d": [1, 2.5, "x"], "e": None, "f": ""}, "g": 1e-4}
    expected = {"a.b": "yes", "a.c": "none", "a.d": "1, 2.5, x", "a.e": "none", "a.f": "none", "g": "0.0001"}
    assert dict(flat(settings)) == expected


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        ("LNMax", {"gamma": 0.1}),
        ("GNMax", {"sigma": 10.0}),
        ("ConfidentGNMax", {"sigma": 10.0, "threshold": 70.0, "sigma_threshold": 20.0}),
    ],
)
def test_simulated_labels_get_worse_with_noise(mechanism, parameters):
    used = MechanismPart(name=mechanism, **parameters)
    gaps, curve = simulate(used, n_teachers=100, n_classes=5)
    noises, shares = zip(*curve, strict=True)
    assert min(noises) < 10 < max(noises)
    assert shares[0] > 0.9 > shares[-1] > 0.2
    assert all(after <= before + 1e-9 for before, after in pairwise(shares))
    assert all(0 <= gap <= 100 for gap in gaps)
    simulate.cache_clear()
    assert (gaps, curve) == simulate(used, n_teachers=100, n_classes=5)
