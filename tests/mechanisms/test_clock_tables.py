"""The tables of the clock against their condition, by loops and sums of their own."""

import itertools
import json
import math
import os
import time
from functools import cache

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import tellers.mechanisms._clock as clocks
from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    LNMax,
    NoisyHistogram,
    Unit,
)
from tellers.mechanisms import AdaptiveGNThreshold, ConfidentTau, GNThreshold, Powerset, Tau
from tellers.mechanisms._clock import (
    ArgmaxClock,
    CheckClock,
    ConfidentClock,
    GaussianClock,
    GaussianSumClock,
    LaplaceArgmaxClock,
    RangeClock,
    SumClock,
    price_at,
)
from tellers.privacy._clock import TICKS, Clock, ClockTable

KAPPA = 1e-12


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("TELLERS_CACHE", str(tmp_path_factory.mktemp("tables")))
    clocks.kept.cache_clear()
    yield
    patch.undo()
    clocks.kept.cache_clear()


# --- The condition, written down again: w from normal distribution functions, laws by sums. ---


def w(b, k):
    k = np.asarray(k, float)
    if b == 0:
        return np.maximum(0.0, -np.expm1(np.minimum(k, 0.0)))
    root = math.sqrt(b)
    return ndtr(root / 2 - k / root) - np.exp(k + log_ndtr(-k / root - root / 2))


def excess(p, q, kinds, prices, level, k):
    """Return by how much one pair breaks the condition at the largest price and this level after it."""
    begin = level + max(prices)
    left = np.zeros_like(k)
    for p_o, q_o, kind in zip(p, q, kinds, strict=True):
        if p_o > 1e-300:
            left += p_o * w(begin - prices[kind], k + math.log(max(q_o, 1e-300) / p_o))
    # Normal distribution functions are good to 1e-15; a table keeps a little of kappa for that.
    return float((left - w(begin, k) - KAPPA).max())


def broken(pairs, table, levels, *, kinds=None, factor=1.0, tick=None):
    """Return the pairs and levels at which a table, made cheaper by a factor, breaks the condition."""
    found = []
    for level in levels:
        ticks = math.ceil(level * TICKS)
        rows = [price_at(table, ticks, kind) / TICKS * factor for kind in range(len(table.prices))]
        if tick is not None:
            rows[tick[0]] *= tick[1]
        width = math.sqrt(level + max(rows))
        k = np.concatenate([np.linspace(-3, 9, 241) * width, np.linspace(0, 3, 41) * width / 7])
        for p, q in pairs:
            each = kinds or [0] * len(p)
            if excess(p, q, each, rows, ticks / TICKS, k) > 3e-15:
                found.append((level, p, q))
    return found


def gaussian_law(sigma, reach):
    x = np.arange(-reach, reach + 1)
    p = np.exp(-x * x / (2 * sigma**2))
    return {int(i): float(v) for i, v in zip(x, p / p.sum(), strict=True)}


def laplace_law(gamma, reach):
    x = np.arange(-reach, reach + 1)
    p = np.exp(-gamma * np.abs(x))
    return {int(i): float(v) for i, v in zip(x, p / p.sum(), strict=True)}


def arg_max(counts, law):
    """Return who wins with noise of this law on every count, ties at random, by summing over noisy counts."""
    reach = max(law)
    values = np.arange(min(counts) - reach, max(counts) + reach + 1)
    mass = np.array([[law.get(int(v) - c, 0.0) for v in values] for c in counts])
    below = np.cumsum(mass, axis=1) - mass
    wins = []
    for own in range(len(counts)):
        others = [j for j in range(len(counts)) if j != own]
        total = 0.0
        for tied in itertools.chain.from_iterable(
            itertools.combinations(others, n) for n in range(len(others) + 1)
        ):
            term = mass[own].copy()
            for j in others:
                term = term * (mass[j] if j in tied else below[j])
            total += term.sum() / (len(tied) + 1)
        wins.append(total)
    return wins


def moved(counts):
    """Yield the neighbours of a histogram: a vote that changes, comes or goes."""
    for a in range(len(counts)):
        for b in [*range(len(counts)), None]:
            if a != b and counts[a] > 0:
                yield tuple(c - (i == a) + (i == b) for i, c in enumerate(counts))


def argmax_pairs(law, histograms):
    pairs = []
    for counts in histograms:
        here = arg_max(counts, law)
        for other in moved(counts):
            there = arg_max(other, law)
            pairs += [(here, there), (there, here)]
    return pairs


def levels_near(table, scale, draw, n):
    low = [0.0, *(table.levels[i] / TICKS for i in draw.integers(0, len(table.levels), n))]
    return [*low, *(float(x) for x in scale * np.exp(draw.uniform(-1, 6, n)))]


def two_leaders(most):
    return [(a, b, c) for a in range(1, most, 2) for b in range(0, a + 1, 3) for c in (0, b // 2, b)]


@pytest.mark.parametrize("sigma", [0.7, 2.0, 4.5])
def test_an_arg_max_keeps_the_potential_whatever_the_votes(sigma):
    table, draw = ArgmaxClock(sigma).table(KAPPA), np.random.default_rng(3)
    pairs = argmax_pairs(gaussian_law(sigma, math.ceil(10 * sigma)), two_leaders(math.ceil(5 * sigma) + 3))
    chosen = [pairs[i] for i in draw.permutation(len(pairs))[:120]]
    # The dearest pairs, found by their chi-squared distance, and some others.
    chosen += sorted(
        pairs, key=lambda pair: -sum((b - a) ** 2 / a for a, b in zip(*pair, strict=True) if a > 1e-9)
    )[:10]
    levels = levels_near(table, 1.3 / sigma**2, draw, 4)
    assert not broken(chosen, table, levels)
    assert broken(chosen, table, levels, factor=0.9)


def test_a_table_two_in_a_hundred_too_low_is_found():
    sigma = 3.0
    law = gaussian_law(sigma, 30)
    table = ArgmaxClock(sigma).table(KAPPA)
    leads = [(20 + d, 20, r) for d in (0, 1, 2, 3) for r in range(16, 24)]
    pairs = argmax_pairs(law, leads)
    levels = [0.0, 1.28 / 9 * 3, 1.28 / 9 * 30, 1.28 / 9 * 200]
    assert not broken(pairs, table, levels)
    # Real histograms of a few classes come within two in a hundred of the supremum over sharp thresholds
    # where there is no third class, at the end of a budget.
    two = [(p, q) for d in range(30) for p, q in argmax_pairs(law, [(40 + d, 40)])]
    assert broken(two, table, [0.0], factor=0.9)


@pytest.mark.parametrize(("sigma", "weight"), [(1.0, 1), (5.0, 1), (6.0, 3), (30.0, 1)])
def test_a_check_keeps_the_potential_and_no_less_would(sigma, weight):
    table, draw = CheckClock(sigma, weight).table(KAPPA), np.random.default_rng(4)
    law = gaussian_law(sigma, math.ceil(12 * sigma))
    passes = {
        m: sum(p for x, p in law.items() if x >= -m)
        for m in range(-math.ceil(5 * sigma), math.ceil(5 * sigma))
    }
    step = max(1, int(sigma / 4))
    margins = [m for m in passes if m + weight in passes and m % step == 0]
    pairs = []
    for m in margins:
        for by in {1, weight}:
            a, b = passes[m], passes[m + by]
            pairs += [((a, 1 - a), (b, 1 - b)), ((b, 1 - b), (a, 1 - a))]
    levels = levels_near(table, 0.64 * (weight / sigma) ** 2, draw, 5)
    assert not broken(pairs, table, levels)
    assert broken(pairs, table, levels, factor=0.9)


@pytest.mark.parametrize("gamma", [0.2, 1.0])
def test_laplace_noise_keeps_the_potential(gamma):
    table, draw = LaplaceArgmaxClock(gamma).table(KAPPA), np.random.default_rng(5)
    law = laplace_law(gamma, math.ceil(32 / gamma))
    histograms = [(20 + d, 20, 20 + r) for d in (0, 1, 2, 5, 12) for r in (-15, -2, -1, 0, 1, 4)]
    pairs = argmax_pairs(law, histograms)
    chosen = [pairs[i] for i in draw.permutation(len(pairs))[:80]]
    levels = levels_near(table, 1.3 * gamma**2, draw, 3)
    assert not broken(chosen, table, levels)
    assert broken(pairs[:60], table, levels, factor=0.7)


@pytest.mark.parametrize(("sigma", "by"), [(0.8, 1), (3.0, 1), (6.0, 2)])
def test_a_noisy_number_costs_its_squared_distance_and_a_little_at_the_end(sigma, by):
    table = GaussianClock(sigma, by).table(KAPPA)
    law = gaussian_law(sigma, math.ceil(11 * sigma))
    x = range(-math.ceil(10 * sigma), math.ceil(10 * sigma) + by + 1)
    p, q = [law.get(i, 0.0) for i in x], [law.get(i - by, 0.0) for i in x]
    squared = (by / sigma) ** 2
    levels = [0.0, 0.02 * squared, 0.05 * squared, 0.6 * squared, 3 * squared]
    assert not broken([(p, q), (q, p)], table, levels)
    assert broken([(p, q)], table, levels, factor=0.9)
    assert price_at(table, math.ceil(squared * TICKS)) / TICKS <= squared * (1 + 1 / (12 * sigma**2)) * 1.001
    if sigma >= 3:
        assert table.dearest[0] / TICKS <= squared * (1 + 1 / (12 * sigma**2)) * 1.002
        assert table.dearest[-1] / TICKS == pytest.approx(squared, rel=1e-3)


def test_many_noisy_numbers_are_as_many_events():
    one, many = GaussianClock(3.0).table(KAPPA), GaussianSumClock(3.0, squared=5, most=2).table(KAPPA)
    assert many.events == 5
    assert many.dearest[-1] == pytest.approx(5 * one.dearest[-1], rel=1e-3)
    assert clocks.squared_moves(3.0, 0.5, 0.5) is None


def test_losses_in_a_range_keep_the_potential():
    draw = np.random.default_rng(6)
    for family, low, high in ((RangeClock(0.4), -0.3, 0.1), (RangeClock(0.4, pure=True), -0.4, 0.4)):
        table, pairs = family.table(KAPPA), []
        for _ in range(60):
            loss = draw.uniform(low, high, 5)
            loss[:2] = low, high
            p = draw.dirichlet(np.ones(5))
            # Shift weight to either end until the ratios add up to 1.
            off = float((p * np.expm1(loss)).sum())
            end = 0 if off > 0 else 1
            p = p + np.eye(5)[end] * -off / math.expm1(loss[end])
            p /= p.sum()
            q = p * np.exp(loss)
            pairs += [(p, q), (q, p)]
        levels = levels_near(table, 0.1, draw, 4)
        assert not broken(pairs, table, levels)


def confident(counts, threshold, law_t, law):
    pass_ = sum(p for x, p in law_t.items() if max(counts) + x >= threshold)
    return [1 - pass_, *(pass_ * v for v in arg_max(counts, law))]


@pytest.mark.parametrize(
    ("n_teachers", "n_classes", "threshold"), [(12, 3, 8), (9, 2, 6), (10, 4, 3), (20, 2, 6)]
)
@pytest.mark.parametrize("silent", [0.0, 0.7, None])
def test_a_joint_event_keeps_the_potential_by_kinds(n_teachers, n_classes, threshold, silent):
    sigma, sigma_t = 3.0, 2.0
    clock = ConfidentClock(n_teachers, n_classes, sigma, threshold, sigma_t, silent)
    table, draw = clock.table(KAPPA), np.random.default_rng(7)
    law, law_t, pairs = gaussian_law(sigma, 32), gaussian_law(sigma_t, 30), []
    histograms = [
        c
        for c in itertools.product(range(n_teachers + 1), repeat=n_classes)
        if sum(c) <= n_teachers and list(c) == sorted(c, reverse=True) and c[0]
    ]
    chosen = [histograms[i] for i in draw.permutation(len(histograms))[:25]]
    chosen += [c for c in histograms if sum(c) == n_teachers and (n_classes == 2 or c[2] == 0)]
    for counts in chosen:
        here = confident(counts, threshold, law_t, law)
        for other in moved(counts):
            there = confident(other, threshold, law_t, law)
            pairs += [(here, there), (there, here)]
    kinds = [0] + [1] * n_classes
    levels = [0.0, 0.2, 2.0, 11.0]
    assert not broken(pairs, table, levels, kinds=kinds)
    assert broken(pairs, table, levels, kinds=kinds, factor=0.5)
    # One kind charged much less: the condition sees it.
    assert broken(pairs, table, levels, kinds=kinds, tick=(0, 0.1))


def full_electorates(n_teachers, n_classes):
    """Return histograms whose leader has more than half of all votes, and the others some of the rest."""
    found = []
    for top in range(n_teachers // 2 + 1, n_teachers + 1):
        left = n_teachers - top
        for second in sorted({left, left - 1, left * 2 // 3, left // 2, left // 4, 0}):
            for third in sorted({left - second, (left - second) // 2, 0}):
                others = [left - second - third] + [0] * (n_classes - 4)
                found += [(top, second, third, *others)] if second >= 0 else []
    return found


@pytest.mark.parametrize("silent", [0.0, None])
def test_a_joint_event_knows_that_votes_add_up_to_the_teachers(silent):
    n_teachers, n_classes, sigma, threshold, sigma_t = 25, 7, 4.0, 20, 4.0
    table = ConfidentClock(n_teachers, n_classes, sigma, threshold, sigma_t, silent).table(KAPPA)
    law, law_t, pairs = gaussian_law(sigma, 36), gaussian_law(sigma_t, 36), []

    @cache
    def laws(counts):
        found = confident(counts, threshold, law_t, law)
        return np.array([*found[:5], sum(found[5:])])

    for counts in full_electorates(n_teachers, n_classes):
        for a, b in itertools.permutations((0, 1, 2, None), 2):
            other = tuple(c - (i == a) + (i == b) for i, c in enumerate(counts))
            if min(other) >= 0 and sum(other) <= n_teachers:
                pairs += [(laws(counts), laws(other)), (laws(other), laws(counts))]
    pairs = [pair for pair in pairs if min(pair[0][0], pair[1][0]) > 0]
    kinds = [0, 1, 1, 1, 1, 1]
    assert not broken(pairs, table, [0.0, 0.4, 1.5, 6.0], kinds=kinds)
    # The dearest of them need nearly all of it, also where many classes have no votes.
    for level in (1.5, 3.0, 6.0):
        assert broken(pairs, table, [level], kinds=kinds, factor=0.96)


@pytest.mark.parametrize("silent", [0.0, 0.6, None])
def test_a_label_and_its_check_keep_the_potential_by_kinds(silent):
    n_teachers, sigma, threshold, sigma_t = 11, 2.5, 8, 3.0
    table = ConfidentClock(n_teachers, 2, sigma, threshold, sigma_t, silent, "label").table(KAPPA)
    law, law_t, pairs = gaussian_law(sigma, 30), gaussian_law(sigma_t, 36), []

    def label(n, s):
        told = sum(p for x, p in law_t.items() if max(s, n - s) + x >= threshold)
        yes = sum(p for x, p in law.items() if 2 * (s + x) > n)
        return 1 - told, told * yes, told * (1 - yes)

    for n in range(1, n_teachers + 1):
        for s in range(n):
            here, there = label(n, s), label(n, s + 1)
            pairs += [(here, there), (there, here)]
    levels = [0.0, 0.1, 1.0, 7.0]
    assert not broken(pairs, table, levels, kinds=[0, 1, 1])
    assert broken(pairs, table, levels, kinds=[0, 1, 1], factor=0.9)
    assert broken(pairs, table, levels, kinds=[0, 1, 1], tick=(0, 0.3))


def test_a_check_and_an_answer_are_two_events():
    table = SumClock((CheckClock(4.0), ArgmaxClock(3.0)), ((1, 0), (1, 1))).table(KAPPA)
    law, law_t, pairs = gaussian_law(3.0, 32), gaussian_law(4.0, 48), []
    for counts in [(a, b, 2) for a in range(4, 14, 2) for b in range(0, a + 1, 3)]:
        here = confident(counts, 8, law_t, law)
        for other in moved(counts):
            there = confident(other, 8, law_t, law)
            pairs += [(here, there), (there, here)]
    assert table.events == 2
    assert not broken(pairs, table, [0.0, 0.1, 1.0], kinds=[0, 1, 1, 1])
    assert broken(pairs, table, [0.0, 0.1, 1.0], kinds=[0, 1, 1, 1], tick=(0, 0.2))


def passes(margin, law):
    return sum(p for x, p in law.items() if x >= -margin)


def label_pairs(most, threshold, law_t, law):
    """Every label of at most so many votes, and the same with one ballot turned."""

    def told(s, n):
        pass_, one = passes(max(s, n - s) - threshold, law_t), passes(s - (n // 2 + 1), law)
        return [1 - pass_, pass_ * (1 - one), pass_ * one]

    return [
        pair
        for n in range(1, most + 1)
        for s in range(1, n + 1)
        for pair in ((told(s, n), told(s - 1, n)), (told(s - 1, n), told(s, n)))
    ]


def margin_pairs(most, threshold, law_t, law, draw):
    """Histograms of at most so many votes and students of all kinds, and the same with one ballot changed."""

    def told(counts, belief):
        limits = [math.ceil(threshold + sum(counts) * p) for p in belief]
        pass_ = passes(max(n - t for n, t in zip(counts, limits, strict=True)), law_t)
        return [1 - pass_, *(pass_ * v for v in arg_max(counts, law))]

    every = [c for c in itertools.product(range(most + 1), repeat=3) if sum(c) <= most]
    pairs = []
    for counts in [every[i] for i in draw.permutation(len(every))[:20]] + [(most, 0, 0), (5, 4, 0)]:
        for belief in (draw.dirichlet(np.ones(3) * 0.5), (0.0, 0.5, 0.5), (1.0, 0.0, 0.0)):
            here = told(counts, belief)
            for other in moved(counts):
                there = told(other, belief)
                pairs += [(here, there), (there, here)]
    return pairs


@pytest.mark.parametrize(
    ("of", "silent"), [("label", 0.0), ("label", 0.7), ("label", None), ("margin", 0.0), ("margin", 0.7)]
)
def test_labels_and_interactive_checks_keep_the_potential_by_kinds(of, silent):
    n_teachers, threshold = (13, 9) if of == "label" else (10, 2)
    clock = ConfidentClock(n_teachers, 2 if of == "label" else 3, 3.0, threshold, 2.0, silent, of)
    table, law, law_t = clock.table(KAPPA), gaussian_law(3.0, 32), gaussian_law(2.0, 30)
    if of == "label":
        pairs, kinds = label_pairs(n_teachers, threshold, law_t, law), [0, 1, 1]
    else:
        draw = np.random.default_rng(8)
        pairs, kinds = margin_pairs(n_teachers, threshold, law_t, law, draw), [0, 1, 1, 1]
    levels = [0.0, 0.2, 2.0]
    assert not broken(pairs, table, levels, kinds=kinds)
    assert broken(pairs, table, levels, kinds=kinds, factor=0.5)
    assert broken(pairs, table, levels, kinds=kinds, tick=(0, 0.05))


@pytest.mark.parametrize("of", ["classes", "label"])
def test_silence_at_its_own_price_is_never_dearer_than_two_events(of):
    answer = CheckClock(4.0) if of == "label" else ArgmaxClock(4.0)
    apart = SumClock((CheckClock(4.0), answer), ((1, 0), (1, 1))).table(KAPPA)
    joint = ConfidentClock(20, 2 if of == "label" else 3, 4.0, 14, 4.0, None, of).table(KAPPA)
    for level in {*apart.levels, *joint.levels}:
        for kind in (0, 1):
            assert price_at(joint, level, kind) <= price_at(apart, level, kind)
    assert joint.prices[1][-1] < 0.97 * apart.prices[1][-1]


# --- What budgets buy. ---


def on_clock(epsilon):
    return Accountant(Budget(epsilon, 1e-5), clock=Clock.for_delta(1e-5))


def smallest(price, n):
    low, high = 0.01, 30.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if on_clock(middle).n_affordable(price, n) >= n else (middle, high)
    return high


def test_a_budget_buys_more_on_a_clock():
    price = GNMax(sigma=40.0).price(Unit())
    bought = [on_clock(eps).n_affordable(price, 10**5) for eps in (0.5, 1, 2, 2.69, 4, 8)]
    assert bought == pytest.approx([22, 85, 307, 524, 1056, 3441], rel=0.01, abs=1)
    by_price = [
        Accountant.by("clock", Budget(eps, 1e-5), price=price).n_affordable(price, 10**5)
        for eps in (0.5, 1, 2, 4)
    ]
    assert by_price == [23, 86, 309, 1061]  # with terms for so many: 20, 75, 269, 931 at a Rényi order
    assert smallest(price, 461) == pytest.approx(2.495, abs=0.01)
    assert smallest(LNMax(gamma=0.05).price(Unit()), 100) == pytest.approx(2.357, abs=0.03)


def test_values_are_those_of_the_curves_as_they_were():
    one = ConfidentGNMax(sigma=20.0, threshold=200, sigma_threshold=30.0)
    both = one.check_price(Unit()) + one.answer_price(Unit())
    assert np.array_equal(one.price(Unit()).values, both.values)
    item = one.item(Unit())
    charged = item.price(0) * 2 + item.price(1)
    apart = one.check_price(Unit()) * 3 + one.answer_price(Unit())
    assert np.array_equal(charged.values, apart.values)
    # The two silent ones give back their answers.
    on, price = on_clock(8.0), one.price(Unit())
    paid = on.debit(3 * price, 3 * price)
    back = paid.returned([(each.key, n, kind) for n, each, kind in charged.terms])
    assert 0 < back < 2 * paid.ticks / 3


@pytest.mark.parametrize(
    "mechanism",
    [
        NoisyHistogram(sigma=10.0),
        GNThreshold(sigma=12.0, n_labels=4),
        GNThreshold(sigma=12.0, n_labels=9, max_labels=2),
        AdaptiveGNThreshold(sigma=9.0, n_labels=3, scale=10.0),
        Powerset(sigma=10.0, n_labels=3),
        Tau(sigma=10.0, n_labels=4, max_norm=1.4, resolution=10),
        ConfidentTau(sigma=10.0, n_labels=4, max_norm=1.4, threshold=30, sigma_threshold=20.0, resolution=10),
    ],
    ids=lambda m: type(m).__name__,
)
def test_every_mechanism_fits_a_clock_and_gains_by_it(mechanism):
    price = mechanism.price(Unit())
    by_clock = on_clock(4.0).n_affordable(price, 10**4)
    assert by_clock >= Accountant(Budget(4.0, 1e-5)).n_affordable(price, 10**4) > 0


def test_of_clipped_ballots_the_dearest_two_are_paid():
    mechanism = Tau(sigma=4.0, n_labels=3, max_norm=1.4, resolution=5)
    table = mechanism.price(Unit()).terms[0][1].table(KAPPA)
    values, sigma = mechanism.rule.values, mechanism.sum_sigma * 5
    level = 3 * table.dearest[-1]

    def label(units):
        return 0 if units == 0 else price_at(CheckClock(sigma, units).table(KAPPA), level)

    ballots = list(itertools.product((0, 1), repeat=3))
    dearest = max(
        sum(label(abs(values[sum(x)] * x[i] - values[sum(y)] * y[i])) for i in range(3))
        for x in ballots
        for y in ballots
    )
    assert price_at(table, level) >= dearest
    assert price_at(table, level) <= 1.03 * dearest


# --- Tables on disk. ---


def test_a_table_is_kept_on_disk_and_worked_out_again_where_it_was_spoilt(tmp_path, monkeypatch):
    monkeypatch.setenv("TELLERS_CACHE", str(tmp_path / "new" / "folder"))
    clocks.kept.cache_clear()
    table = CheckClock(2.5).table(KAPPA)
    (path,) = (tmp_path / "new" / "folder").iterdir()
    whole = path.read_text()
    monkeypatch.setattr(CheckClock, "work_out", lambda *_: pytest.fail("worked out twice"))
    clocks.kept.cache_clear()
    start = time.perf_counter()
    assert CheckClock(2.5).table(KAPPA) == table
    assert time.perf_counter() - start < 0.1
    monkeypatch.undo()
    monkeypatch.setenv("TELLERS_CACHE", str(tmp_path / "new" / "folder"))
    cheaper = json.loads(whole)
    cheaper["table"]["prices"][0][-1] -= 5
    other = json.loads(whole)
    other["of"]["sigma"] = 99.0
    endless = "[" * 100_000
    for spoilt in ("", "{", "[]", whole[:100], json.dumps(cheaper), json.dumps(other), '{"of": 3}', endless):
        path.write_text(spoilt)
        clocks.kept.cache_clear()
        assert CheckClock(2.5).table(KAPPA) == table
        assert path.read_text() == whole


@pytest.mark.skipif(os.name != "posix", reason="owners and rights of files are those of POSIX")
def test_a_table_that_others_may_have_written_is_worked_out_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TELLERS_CACHE", str(tmp_path))
    clocks.kept.cache_clear()
    table = CheckClock(2.25).table(KAPPA)
    (path,) = tmp_path.iterdir()
    planted = json.loads(path.read_text())
    planted["table"]["prices"] = [[1] * len(table.levels)]
    planted["digest"] = clocks._digest(planted["table"])
    spoils = [lambda: path.chmod(0o666), lambda: path.chmod(0o620)]
    if os.geteuid() == 0:
        spoils.append(lambda: os.chown(path, 12345, 12345))
    for spoil in spoils:
        path.write_text(json.dumps(planted))
        spoil()
        clocks.kept.cache_clear()
        assert CheckClock(2.25).table(KAPPA) == table
        assert json.loads(path.read_text()) != planted
        assert os.stat(path).st_uid == os.geteuid()


def test_a_table_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TELLERS_CACHE", str(tmp_path))
    clocks.kept.cache_clear()
    table = CheckClock(2.25).table(KAPPA)
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()
    clocks.kept.cache_clear()
    assert CheckClock(2.25).table(KAPPA) == table
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TELLERS_CACHE", str(tmp_path / "file"))
    clocks.kept.cache_clear()
    assert isinstance(CheckClock(2.0).table(KAPPA), ClockTable)


@pytest.mark.parametrize(
    ("set_", "folder"),
    [({"TELLERS_CACHE": "/a"}, "/a"), ({"XDG_CACHE_HOME": "/x"}, "/x/tellers"), ({}, ".cache/tellers")],
)
def test_the_folder_of_tables_can_be_set(set_, folder, monkeypatch):
    for name in ("TELLERS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    assert str(clocks.cache_folder()).endswith(folder)


def test_tables_depend_on_all_that_families_say():
    families = [
        ArgmaxClock(2.0), ArgmaxClock(2.0, 2), CheckClock(2.0), LaplaceArgmaxClock(2.0), GaussianClock(2.0),
        RangeClock(2.0), RangeClock(2.0, pure=True), GaussianSumClock(2.0, 1, 1),
        ConfidentClock(9, 3, 2.0, 5, 2.0),
        ConfidentClock(9, 3, 2.0, 5, 2.0, 0.5), SumClock((CheckClock(2.0),), ((1,),)),
    ]  # fmt: skip
    assert len({json.dumps(family.identity(), sort_keys=True) for family in families}) == len(families)


def test_a_table_is_quick_and_reading_it_quicker():
    start = time.perf_counter()
    ArgmaxClock(37.0).work_out(KAPPA)
    assert time.perf_counter() - start < 60  # seconds; about two on an idle core
    accountant, price = on_clock(4.0), GNMax(sigma=3.0).price(Unit())
    spent = 3 * price
    accountant.affords(spent, price)
    start = time.perf_counter()
    for _ in range(200):
        accountant.affords(spent, price)
    assert (time.perf_counter() - start) / 200 < 2e-3


def test_what_makes_no_sense_is_refused():
    for wrong in (
        lambda: ArgmaxClock(0.0), lambda: CheckClock(1.0, 0), lambda: SumClock((), ()),
        lambda: SumClock((CheckClock(1.0),), ((1, 1),)), lambda: ConfidentClock(9, 3, 2.0, 5, 2.0, 1.5),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="Expected"):
            wrong()
