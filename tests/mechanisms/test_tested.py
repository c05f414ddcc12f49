"""A tested batch costs what it says, for every pair of neighbouring votes: the definition, by brute force."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from tellers import SILENT, Accountant, Budget, GNMax, RdpCurve, Unit, Votes, noise
from tellers.mechanisms import TestedGNMax, gap_envelope
from tellers.privacy import DEFAULT_ORDERS
from tellers.privacy._clock import Clock
from tellers.testing import check_mechanism

MECHANISM = TestedGNMax(
    sigma=10.0, clear_cost=0.05, test_sigma=3.0, held_at=8.0, test_delta=1e-5, n_queries=3
)  # fmt: skip


# The law of everything, straight from the definition -------------------------------------------------------


@cache
def pmf(sigma, reach):
    weights = [math.exp(-x * x / (2 * sigma * sigma)) for x in range(-reach, reach + 1)]
    return np.array(weights) / math.fsum(weights)


@cache
def label_law(counts, sigma):
    """Return the chance of every class: a sum over what the noisy leader may be, ties at random."""
    reach = math.ceil(13 * sigma)
    each = pmf(sigma, reach)
    grid = np.zeros((len(counts), 2 * reach + 1 + max(counts)))
    for j, count in enumerate(counts):
        grid[j, count : count + each.size] = each
    below = np.cumsum(grid, axis=1) - grid
    chances = np.zeros(len(counts))
    for j in range(len(counts)):
        others = [i for i in range(len(counts)) if i != j]
        for tied in itertools.chain.from_iterable(
            itertools.combinations(others, k) for k in range(len(others) + 1)
        ):
            rest = [i for i in others if i not in tied]
            both = grid[j] * np.prod(grid[list(tied)], axis=0) * np.prod(below[rest], axis=0)
            chances[j] += both.sum() / (1 + len(tied))
    return chances


def gap_of(counts):
    first, second = sorted(counts)[-1], sorted(counts)[-2]
    return first - second


def plain_depth(batch, table, proposed):
    """Return the depth by its definition: one more ballot at a time."""
    if sum(table[gap_of(counts)] for counts in batch) > proposed:
        return -1
    d = 0
    while d <= len(table) // 2 and sum(table[max(gap_of(c) - 2 * (d + 1), 0)] for c in batch) <= proposed:
        d += 1
    return d


@cache
def plain_threshold(sigma, delta):
    each = pmf(sigma, math.ceil(40 * sigma))
    middle, b = each.size // 2, 0
    while each[middle + b + 1 :].sum() > delta:
        b += 1
    return b


@cache
def chance_to_pass(depth, threshold, sigma):
    each = pmf(sigma, math.ceil(40 * sigma))
    start = each.size // 2 + threshold - depth
    return each[max(start, 0) :].sum()


def joint_law(batch, *, sigma, passes):
    labels = np.ones(1)
    for counts in batch:
        labels = np.outer(labels, label_law(counts, sigma)).ravel()
    return np.concatenate([[1 - passes], passes * labels])


def joint_laws(batches, *, sigma, passes):
    """Return the law of every batch, as `joint_law` does of one."""
    tallies, which = np.unique(batches.reshape(-1, batches.shape[2]), axis=0, return_inverse=True)
    known = np.array([label_law(tuple(counts), sigma) for counts in tallies.tolist()])
    each = known[which.reshape(batches.shape[:2])]
    labels = each[:, 0]
    for query in range(1, batches.shape[1]):
        labels = (labels[:, :, None] * each[:, query][:, None, :]).reshape(len(batches), -1)
    return np.concatenate([1 - passes[:, None], passes[:, None] * labels], axis=1)


def plain_depths(batches, table, proposed):
    """Return the depth of every batch, as `plain_depth` does of one: so many ballots in a row do no harm."""
    ordered = np.sort(batches, axis=2)
    gaps = ordered[:, :, -1] - ordered[:, :, -2]
    fine = [table[np.maximum(gaps - 2 * d, 0)].sum(axis=1) <= proposed for d in range(len(table) // 2 + 2)]
    return np.cumprod(fine, axis=0).sum(axis=0) - 1


def overcharges(p, q, *, curves, at):
    """Return the logarithms of the means that sound charges keep below 0, at one order, one direction."""
    order, charges = DEFAULT_ORDERS[at], np.full(p.shape[1], curves[1].values[at])
    charges[0] = curves[0].values[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = order * np.log(p) + (1 - order) * (np.log(q) + charges)
    return np.logaddexp.reduce(np.where(p > 0, terms, -np.inf), axis=1)


def draw_setting(rng):
    n_teachers, m, n = int(rng.integers(2, 9)), int(rng.integers(2, 4)), int(rng.integers(1, 4))
    sigma = float(rng.choice([0.5, 1.0, 2.0, 4.0]))
    order = float(rng.choice([2.0, 4.0, 8.0, 16.0]))
    table = gap_envelope(n_teachers, m, sigma=sigma, order=order)
    least, most = n * table[-1], n * table[0]
    proposed = float(least + (most - least) * rng.choice([0.02, 0.2, 0.6]))
    mechanism = TestedGNMax(
        sigma, max(proposed, float(np.nextafter(least, 9e9))), float(rng.choice([0.3, 1.0, 2.0, 5.0])), order,
        float(rng.choice([1e-6, 1e-3, 0.02])), n,
    )  # fmt: skip
    return mechanism, n_teachers, m, table


def draw_pairs(rng, n_pairs, n_teachers, m, n):
    """Return batches, pairs x queries x classes, that differ in one teacher; votes may be missing."""
    present = np.where(
        rng.random((n_pairs, n)) < 0.7, n_teachers, rng.integers(0, n_teachers + 1, (n_pairs, n))
    )
    evenness = 10 ** rng.uniform(-1.5, 0.7, (n_pairs, n, 1))
    shares = rng.standard_gamma(evenness, (n_pairs, n, m)) + 1e-300
    here = rng.multinomial(present, shares / shares.sum(axis=2, keepdims=True))
    # One more column for ballots that are kept back: one ballot leaves a column that has some, for any.
    here = np.concatenate([here, (n_teachers - present)[:, :, None]], axis=2)
    torn = rng.random(n_pairs) < 0.3  # all queries nearly tied, and the vote that decides moves
    first = rng.integers(n_teachers // 2, n_teachers // 2 + 2, (n_pairs, n))
    tied = np.zeros_like(here)
    tied[:, :, 0], tied[:, :, 1] = first, n_teachers - first
    here = np.where(torn[:, None, None], tied, here)
    source = np.where(here > 0, rng.random(here.shape), -1).argmax(axis=2)
    target = rng.integers(m + 1, size=(n_pairs, n))
    source[torn], target[torn] = 0, 1
    there, (rows, queries) = here.copy(), np.indices((n_pairs, n))
    there[rows, queries, source] -= 1
    there[rows, queries, target] += 1
    return here[:, :, :m], there[:, :, :m]


def faulty(mechanism, fault):
    """Return the curves by outcome, the delta, and the threshold that are claimed, with a fault planted."""
    delta, threshold = mechanism.test_delta, mechanism.threshold
    curves = (
        mechanism.fail_price(Unit(), mechanism.n_queries),
        mechanism.batch_price(Unit(), mechanism.n_queries),
    )
    if fault == "no bit":
        bit = curves[0].values
        curves = tuple(RdpCurve(DEFAULT_ORDERS, each.values - bit) for each in curves)
    if fault == "no delta":
        delta = 0.0
    return curves, delta, threshold - (fault == "threshold")


def search(n_pairs, *, seed, fault=None, n_settings=100):
    """Look for pairs that break the guarantee; return how many, the worst true delta, and how many passed."""
    rng, n_broken, worst, n_live = np.random.default_rng(seed), 0, 0.0, 0
    for _ in range(n_settings):
        mechanism, n_teachers, m, table = draw_setting(rng)
        curves, delta, threshold = faulty(mechanism, fault)
        held = int(np.flatnonzero(mechanism.held_at == DEFAULT_ORDERS)[0])
        below, above = int(rng.integers(0, held + 1)), int(rng.integers(held + 1, DEFAULT_ORDERS.size))
        levels = [(math.exp(curves[1].epsilon(part)), part + delta) for part in (1e-2, 1e-4, 1e-6)]
        laws, passes = [], []
        for batches in draw_pairs(rng, n_pairs // n_settings, n_teachers, m, mechanism.n_queries):
            depths = plain_depths(batches, table, mechanism.clear_cost)
            depths = np.maximum(depths, 2) if fault == "depth" else depths
            found, which = np.unique(depths, return_inverse=True)
            chances = [chance_to_pass(depth, threshold, mechanism.test_sigma) for depth in found.tolist()]
            passes.append(np.array(chances)[which])
            laws.append(joint_laws(batches, sigma=mechanism.sigma, passes=passes[-1]))
        likelier = np.maximum(*passes)
        n_live += int((likelier > 0.1).sum())
        worst_at = {
            at: np.maximum(*(overcharges(*two, curves=curves, at=at) for two in (laws, laws[::-1])))
            for at in (held, below, above)
        }
        # Either no delta is needed, or both all but never pass: then they are the same but for delta.
        holds = (worst_at[held] < 1e-7) & (worst_at[below] < 1e-7)
        n_broken += int((~((holds | (likelier <= delta)) & (worst_at[above] < 1e-7))).sum())
        if fault and n_broken:
            return n_broken, worst, n_live
        for p, q in (laws, laws[::-1]):
            true = (np.maximum(p - level * q, 0.0).sum(axis=1).max() / claimed for level, claimed in levels)
            worst = max(worst, *true)
    return n_broken, worst, n_live


def test_no_pair_of_neighbours_breaks_the_guarantee():
    n_broken, worst, n_live = search(8_000, seed=7)
    assert (n_broken, worst <= 1) == (0, True)
    assert n_live > 800  # it looked at batches that pass


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(8))
def test_no_pair_of_a_million_breaks_the_guarantee(seed):
    n_broken, worst, n_live = search(130_000, seed=100 + seed, n_settings=400)
    assert (n_broken, worst <= 1, n_live > 10_000) == (0, True, True)


@pytest.mark.parametrize("fault", ["no bit", "no delta", "threshold", "depth"])
def test_a_planted_fault_is_found(fault):
    assert search(4_000, seed=11, fault=fault)[0] > 0


# The mechanism is that definition --------------------------------------------------------------------------


def test_depth_and_threshold_are_their_definitions():
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(60):
        mechanism, n_teachers, m, table = draw_setting(rng)
        assert mechanism.threshold == plain_threshold(mechanism.test_sigma, mechanism.test_delta)
        drawn, _ = draw_pairs(rng, 6, n_teachers, m, mechanism.n_queries)
        depths = plain_depths(drawn, table, mechanism.clear_cost)
        for batch, at_once in zip(drawn.tolist(), depths.tolist(), strict=True):
            assert at_once == plain_depth(batch, table, mechanism.clear_cost)
            votes = Votes.from_counts(batch, n_teachers=n_teachers) if complete(batch, n_teachers) else None
            if votes is None:
                continue
            depth = mechanism.depth(votes)
            assert min(depth, len(table) // 2) == min(
                plain_depth(batch, table, mechanism.clear_cost), len(table) // 2
            )
            seen.add(depth)
    assert len(seen) > 3
    assert -1 in seen


def complete(batch, n_teachers):
    return all(sum(counts) == n_teachers for counts in batch)


def test_the_bit_and_the_labels_are_drawn_as_they_are_priced():
    batch = [(12, 2), (11, 3)]
    votes, table = Votes.from_counts(batch, n_teachers=14), gap_envelope(14, 2, sigma=1.5, order=4.0)
    threshold, chosen = plain_threshold(1.0, 0.05), []
    for proposed in np.geomspace(2 * table[-1], 2 * table[0], 500)[1:]:
        passes = chance_to_pass(plain_depth(batch, table, proposed), threshold, 1.0)
        chosen += [(float(proposed), passes)] if 0.1 < passes < 0.9 else []
    proposed, passes = chosen[0]
    mechanism = TestedGNMax(1.5, proposed, 1.0, 4.0, 0.05, 2)
    law = joint_law(batch, sigma=1.5, passes=passes)
    source, n = noise.seeded(7), 4000
    seen = np.zeros(law.size)
    for _ in range(n):
        release = mechanism.release(votes, source)
        kind = 0 if (release.labels == SILENT).all() else 1 + 2 * release.labels[0] + release.labels[1]
        seen[kind] += 1
        assert (release.labels == SILENT).all() or (release.labels != SILENT).all()
        price = mechanism.batch_price(Unit(), 2) if kind else mechanism.fail_price(Unit(), 2)
        assert np.array_equal(release.cost.worst.values, price.values)
    assert (np.abs(seen / n - law) < 5 * np.sqrt(law * (1 - law) / n) + 1e-9).all()


def test_it_keeps_the_promises_of_a_mechanism():
    check_mechanism(MECHANISM, n_draws=300)
    small = TestedGNMax(sigma=2.0, clear_cost=0.9, test_sigma=1.0, held_at=4.0, test_delta=1e-3, n_queries=2)
    check_mechanism(small, n_teachers=12, n_classes=3, n_draws=1000)


# What is charged -------------------------------------------------------------------------------------------


def test_a_batch_that_passes_is_charged_the_proposal_at_the_held_order_and_gnmax_above_it():
    passed, failed = MECHANISM.batch_price(Unit(), 3), MECHANISM.fail_price(Unit(), 3)
    labels = passed.values - failed.values
    plain = 3 * GNMax(10.0).price(Unit()).values
    at = DEFAULT_ORDERS == 8.0
    assert labels[at] == pytest.approx(0.05, rel=1e-8)
    assert plain[at] > 0.05
    assert labels[DEFAULT_ORDERS > 8.0] == pytest.approx(plain[DEFAULT_ORDERS > 8.0], rel=1e-8)
    assert (labels <= plain * (1 + 1e-8)).all()
    assert passed.delta == failed.delta == 1e-5
    [(n, item, kind)] = passed.terms
    assert (n, len(item.curves), kind) == (1, 2, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"held_at": 8.3}, "held_at"),
        ({"test_delta": 0.6}, "test_delta"),
        ({"clear_cost": 0.0}, "clear_cost"),
        ({"n_queries": 0}, "n_queries"),
        ({"test_sigma": -1.0}, "test_sigma"),
    ],
)
def test_fields_are_checked(change, words):
    fields = {"sigma": 10.0, "clear_cost": 0.05, "test_sigma": 3.0, "held_at": 8.0, "test_delta": 1e-5,
              "n_queries": 3}  # fmt: skip
    with pytest.raises(ValueError, match=words):
        TestedGNMax(**{**fields, **change})


def test_other_batches_and_units_are_refused():
    with pytest.raises(ValueError, match="one batch of 3 queries"):
        MECHANISM.batch_price(Unit(), 2)
    with pytest.raises(ValueError, match="another unit"):
        MECHANISM.batch_price(Unit.of_weight(2), 3)
    with pytest.raises(ValueError, match="one batch of 3 queries"):
        MECHANISM.release(Votes.from_counts([[9, 1]], n_teachers=10), noise.seeded(7))


def test_a_proposal_below_what_unanimous_votes_cost_is_refused_where_the_public_numbers_are_known():
    mechanism = TestedGNMax(10.0, 1e-9, 3.0, 8.0, 1e-5, 3)
    with pytest.raises(ValueError, match="would always fail"):
        mechanism.batch_price(Unit(), 3, n_teachers=60, n_classes=4)
    with pytest.raises(ValueError, match="would always fail"):
        mechanism.release(Votes.from_counts([[60, 0]] * 3, n_teachers=60), noise.seeded(7))


def test_no_clock_and_no_other_order_takes_it():
    MECHANISM.require_accountant(Accountant(Budget(9.0, 1e-3), order=8.0, for_tests=1e-5))
    for accountant, words in (
        (Accountant(Budget(9.0, 1e-3), clock=Clock.for_delta(1e-3)), "on a clock"),
        (Accountant(Budget(9.0, 1e-3), order=9.0, for_tests=1e-5), "order 8"),
        (Accountant(Budget(9.0, 1e-3), order=8.0, for_tests=1e-6), "set aside 1e-05"),
    ):
        with pytest.raises(ValueError, match=words):
            MECHANISM.require_accountant(accountant)
    clock = Accountant(Budget(9.0, 1e-3), clock=Clock.for_delta(1e-3))
    with pytest.raises(ValueError, match="delta of its own on a clock"):
        clock.affords(0 * GNMax(9.0).price(Unit()), MECHANISM.batch_price(Unit(), 3))
