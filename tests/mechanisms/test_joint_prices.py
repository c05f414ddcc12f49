"""Joint prices and charges by outcome, against every pair of small electorates and a search among large ones.

The laws here are sums written out, of noise added up from its definition: nothing is shared with the code
that is tested.
"""

import itertools
import math

import numpy as np
import pytest

from tellers.mechanisms._joint import Checked, joint_charges, joint_price

ORDERS = (1.5, 2.0, 4.0, 8.0, 18.0, 40.0)


# --- The definition, written out. ---


def noise(sigma):
    """Whole numbers, P[Z = z], P[Z < z], and P[Z >= z] of a discrete Gaussian, from their definition."""
    reach = math.ceil(38 * sigma) + 2
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-(z**2) / (2 * sigma**2))
    mass /= mass.sum()
    below = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    return z, mass, below, np.cumsum(mass[::-1])[::-1]


def passing(margins, sigma):
    """P[margin + Z >= 0] and P[margin + Z < 0]."""
    z, _, below, from_here = noise(sigma)
    at = np.clip(-np.asarray(margins) - z[0], 0, z.size - 1)
    return from_here[at], below[at]


def winning(counts, sigma):
    """P[each class has the largest noisy count, ties at random], (histograms, classes)."""
    z, mass, below, _ = noise(sigma)
    counts = np.asarray(counts)
    n, m = counts.shape
    reach = math.ceil(12 * sigma) + 2
    values = np.arange(counts.min() - reach, counts.max() + reach + 1)
    at = np.clip(values[None, None, :] - counts[:, :, None] - z[0], 0, z.size - 1)
    p, f = mass[at], below[at]  # (histograms, classes, values)
    wins = np.zeros((n, m))
    for j in range(m):
        # With k of the others as high as this one it wins with chance 1 / (k + 1).
        ties = np.zeros((m, n, values.size))
        ties[0] = 1.0
        for i in range(m):
            if i != j:
                ties[1:] = ties[1:] * f[:, i] + ties[:-1] * p[:, i]
                ties[0] = ties[0] * f[:, i]
        wins[:, j] = sum((p[:, j] * ties[k]).sum(axis=1) / (k + 1) for k in range(m))
    return wins / wins.sum(axis=1, keepdims=True)


def confident(counts, *, sigma, threshold, sigma_threshold, belief=None):
    """The law of {silent, class 0, class 1, ...}, (histograms, 1 + classes); of an interactive check too."""
    counts = np.asarray(counts)
    limits = np.full(counts.shape, threshold, dtype=np.float64)
    if belief is not None:
        limits = limits + counts.sum(axis=1, keepdims=True) * np.asarray(belief)
    told, silent = passing((counts - np.ceil(limits).astype(int)).max(axis=1), sigma_threshold)
    return np.concatenate([silent[:, None], told[:, None] * winning(counts, sigma)], axis=1)


def label(pairs, *, sigma, threshold, sigma_threshold):
    """The law of {silent, 0, 1} of a label with s of N votes, (pairs, 3)."""
    s, n = np.asarray(pairs).T
    told, silent = passing(np.maximum(s, n - s) - threshold, sigma_threshold)
    one, zero = passing(s - (n // 2 + 1), sigma)
    return np.stack([silent, told * zero, told * one], axis=1)


def excess(here, there, orders, silent, answered):
    """The largest log E exp((order - 1) (loss - charge)) of these pairs and both directions, per order."""
    with np.errstate(divide="ignore"):
        logs = np.log(here), np.log(there)
    found = []
    for order, c0, c1 in zip(orders, silent, answered, strict=True):
        charge = np.array([c0] + [c1] * (here.shape[1] - 1))
        ways = [
            np.logaddexp.reduce(order * p + (1 - order) * (q + charge), axis=1)
            for p, q in (logs, logs[::-1])
        ]
        found.append(max(float(way.max()) for way in ways))
    return np.array(found)


def histograms(n_teachers, n_classes, fewest=0):
    """Every histogram of so many votes or fewer."""
    every = itertools.product(range(n_teachers + 1), repeat=n_classes)
    return [h for h in every if fewest <= sum(h) <= n_teachers]


def neighbours(every):
    """Pairs of places: a ballot moved, was given, or was kept back; each pair once."""
    place = {h: i for i, h in enumerate(every)}
    pairs = set()
    for h, i in place.items():
        for a in range(len(h)):
            less = tuple(n - (j == a) for j, n in enumerate(h))
            others = [less] + [tuple(n + (j == b) for j, n in enumerate(less)) for b in range(len(h))]
            pairs |= {(min(i, place[o]), max(i, place[o])) for o in others if o in place and o != h}
    return np.array(sorted(pairs))


def settings(n, seed):
    """Random settings of small electorates."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        m = int(rng.integers(2, 5))
        k = int(rng.integers(2, (13, 9, 7)[m - 2]))
        yield {
            "n_teachers": k, "n_classes": m, "sigma": float(np.exp(rng.uniform(-0.5, 2.5))),
            "threshold": int(rng.integers(-1, k + 3)), "sigma_threshold": float(np.exp(rng.uniform(-0.5, 2.5))),
        }  # fmt: skip


def law_of(setting):
    return {name: setting[name] for name in ("sigma", "threshold", "sigma_threshold")}


def small_pairs(of, setting, rng):
    """The laws of both sides of every pair of neighbours of a small electorate."""
    if of == "label":
        every = [(s, n) for n in range(1, setting["n_teachers"] + 1) for s in range(n + 1)]
        laws = label(every, **law_of(setting))
        pairs = np.array([(i, i + 1) for i, (s, n) in enumerate(every) if s < n])
    else:
        every = histograms(setting["n_teachers"], setting["n_classes"])
        belief = rng.dirichlet(np.full(setting["n_classes"], 0.5)) if of == "margin" else None
        laws = confident(every, belief=belief, **law_of(setting))
        pairs = neighbours(every)
    return laws[pairs[:, 0]], laws[pairs[:, 1]]


def checked(of, setting):
    two = {"n_classes": 2} if of == "label" else {}
    return Checked(of, **{**setting, **two})


def require_sound(found, what):
    assert (found <= 1e-9).all(), (what, found)


def compare_small(n_settings, seed):
    """Hold every pair of small electorates against prices and charges; return how many and how near."""
    rng, n_compared, nearest = np.random.default_rng(seed), 0, {}
    for setting in settings(n_settings, seed):
        for of in ("classes", "margin", "label"):
            here, there = small_pairs(of, setting, rng)
            setup = checked(of, setting)
            joint = joint_price(setup, ORDERS).values
            both = setup.both(ORDERS)
            assert (joint <= both).all()
            require_sound(excess(here, there, ORDERS, joint, joint), (of, setting))
            for share in (None, 0.0, 0.3, 0.8, 1.0):
                silent, answered = joint_charges(setup, ORDERS, expected_silence=share)
                require_sound(excess(here, there, ORDERS, silent.values, answered.values), (of, setting, share))
            n_compared += 6 * 2 * len(here) * len(ORDERS)
            slack = excess(here, there, ORDERS, np.zeros(len(ORDERS)), np.zeros(len(ORDERS)))
            reached = slack / (np.array(ORDERS) - 1) / joint
            nearest[of] = max(nearest.get(of, 0.0), float(reached[joint < both * (1 - 1e-6)].max(initial=0)))
    return n_compared, nearest


def test_no_pair_of_neighbours_in_a_small_electorate_costs_more():
    n_compared, nearest = compare_small(12, seed=1)
    assert n_compared > 20_000
    # The search is no empty one: where tallies are enumerated, some pair costs all that it may.
    assert nearest["label"] > 0.999
    assert nearest["classes"] > 0.9


@pytest.mark.campaign
def test_no_pair_of_neighbours_in_many_small_electorates_costs_more():
    n_compared, _ = compare_small(400, seed=2)
    assert n_compared > 1_000_000
