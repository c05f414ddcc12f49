"""The Gaussian sum by brute force: how far a ballot moves it, and what its noise hides."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression, Ridge

from tellers import (
    Accountant,
    Budget,
    Cost,
    GNMax,
    MemoryLedger,
    RdpCurve,
    Room,
    SqliteLedger,
    Unit,
    Votes,
    noise,
)
from tellers.accounting import plan_sum
from tellers.accounting.audit import audit_sum
from tellers.data.metrics import auc
from tellers.errors import ConfigError
from tellers.mechanisms import GaussianSum, mechanism_named
from tellers.mechanisms.gaussian_sum import ShiftClock, gaussian_delta, grid_factor
from tellers.privacy import NoiseLevel, Scores, public_directions
from tellers.privacy._clock import TICKS, Clock, potential
from tellers.runs import MechanismConfig, label_pool
from tellers.runs.settings.party import example_settings
from tellers.students import fit_sum, released_frequencies, shrunk_scores
from tellers.teachers import Ensemble, LabelFrequencies, Partition, partition, save_votes, train_ensemble
from tellers.testing import check_mechanism

ONE = Unit()


# --- How far one ballot moves the sum ---


def adversary(rng, n, k, steps):
    """Return a matrix that tries the grid: near its points, huge, tiny, alone, zero, or anything."""
    kind = rng.integers(8)
    table = rng.normal(size=(n, k))
    if kind == 0:
        return np.zeros((n, k))
    if kind == 1:  # whole numbers, a hair above: their norm is nearly the bound
        whole = rng.integers(-steps, steps + 1, size=(n, k)).astype(float)
        return np.nextafter(whole, np.inf)
    if kind == 2:  # half steps at once, which rounding to the nearest takes up
        return np.full((n, k), (rng.integers(0, 3) + 0.5) / steps)
    if kind == 3:
        return table * 10.0 ** rng.integers(290, 307)
    if kind == 4:
        return table * 10.0 ** -float(rng.integers(290, 322))
    if kind == 5:  # one entry holds all the norm
        table *= 1e-12
        table[rng.integers(n), rng.integers(k)] = rng.choice([-1.0, 1.0])
        return table
    if kind == 6:  # Pythagorean: squares that sum to a square
        table[:] = 0
        table.ravel()[: min(2, table.size)] = (3.0, 4.0)[: min(2, table.size)]
        return table * rng.choice([1.0, 0.1, 1e-5, 1 / 3])
    return table * 10.0 ** rng.uniform(-5, 5)


def largest_move(on_grid, rng, n_pairs):
    """Return by how much the worst of many neighbours moves a sum, as a share of twice the norm."""
    worst = 0.0
    for _ in range(n_pairs):
        n, k, steps = int(rng.integers(1, 5)), int(rng.integers(1, 5)), int(rng.integers(1, 12))
        some = Scores(k, steps=steps)
        if rng.random() < 0.25 and n > 1:
            q, _ = np.linalg.qr(rng.normal(size=(n, int(rng.integers(1, n)))))
            some = replace(some, directions=q)
        if rng.random() < 0.25:
            some = replace(some, bound=float(10.0 ** rng.uniform(-3, 3)))
        mine = adversary(rng, n, k, steps)
        # Turned round is furthest away; anything else is a neighbour as well.
        theirs = -mine if rng.random() < 0.5 else adversary(rng, n, k, steps)
        first, second = on_grid(some, mine), on_grid(some, theirs)
        moved = sum((int(a) - int(b)) ** 2 for a, b in zip(first.ravel(), second.ravel(), strict=True))
        worst = max(worst, moved / (2 * steps) ** 2)
    return worst


def nearest(space, table):
    norm = np.sqrt((table**2).sum())
    return np.rint(table * (space.steps / norm) if norm else table).astype(int)


def per_question(space, table):
    norm = np.sqrt((table**2).sum(axis=1, keepdims=True))
    return np.trunc(np.divide(table * space.steps, norm, out=np.zeros_like(table), where=norm > 0))


def test_no_ballot_moves_a_sum_by_more_than_twice_the_norm():
    worst = largest_move(lambda space, table: space.on_grid(table), np.random.default_rng(7), 5000)
    assert 0.999 < worst <= 1


@pytest.mark.campaign
def test_no_ballot_moves_a_sum_by_more_in_a_hundred_thousand_neighbours():
    assert largest_move(lambda space, table: space.on_grid(table), np.random.default_rng(11), 100_000) <= 1


@pytest.mark.parametrize("fault", [nearest, per_question])
def test_other_ways_to_round_or_to_bound_are_found(fault):
    with np.errstate(all="ignore"):
        plain = [
            (Scores(k, steps=s), rng.choice([0.5, 1.0, 0.3]) * rng.normal(size=(n, k)))
            for rng in [np.random.default_rng(3)]
            for n, k, s in rng.integers(2, 5, size=(300, 3)).tolist()
        ]
        worst = max(float((fault(space, one) ** 2).sum()) / space.steps**2 for space, one in plain)
    assert worst > 1.05


def test_a_ballot_is_checked_in_whole_numbers_against_floats_that_round_up():
    rng = np.random.default_rng(5)
    for steps in (5, 13, 2**20, 2**30):
        for _ in range(300):
            whole = Scores(2, steps=steps).on_grid(adversary(rng, 2, 2, steps)).astype(object)
            assert sum(int(v) ** 2 for v in whole.ravel()) <= steps**2


def test_the_norm_is_nearly_used_up_and_a_bound_keeps_sizes():
    table = np.random.default_rng(1).normal(size=(40, 5))
    space = Scores(5, steps=10**6)
    assert np.sqrt((space.on_grid(table).astype(float) ** 2).sum()) > 0.9999 * 10**6
    small = replace(space, bound=1000.0).on_grid(table)
    assert np.abs(small / 1000.0 - table).max() < 0.002
    assert not space.on_grid(np.zeros((3, 5))).any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_no_numbers_are_refused_without_showing_them(bad):
    with pytest.raises(ValueError, match=r"Expected finite scores.*query 1, label 0"):
        Scores(2).on_grid([[1.0, 2.0], [bad, 1.0]])
    with pytest.raises(ValueError, match="Expected finite scores"):
        Scores(1, expected=(-1e308,)).on_grid([[1.7e308]])


def test_what_is_expected_is_subtracted_and_columns_are_weighed():
    space = Scores(2, steps=1000, expected=(0.5, 0.0), column_weights=(1.0, 2.0))
    assert space.on_grid([[0.8, 0.2]]).tolist() == [[600, 800]]


# --- What the noise hides ---


def tails(sigma, far):
    """Return P[X >= t] for t = 0..far, in high precision, by summation."""
    reach = int(far + 30 * sigma + 40)
    weights = [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for x in range(reach + 1)]
    total, tail, found = weights[0] + 2 * sum(weights[1:]), mpmath.mpf(0), []
    for weight in reversed(weights):
        tail += weight
        found.append(tail / total)
    return found[::-1][: far + 1]


def quantile(tail, start):
    z = mpmath.mpf(start)
    for _ in range(60):
        found = mpmath.erfc(z / mpmath.sqrt(2)) / 2
        slope = -mpmath.exp(-z * z / 2) / mpmath.sqrt(2 * mpmath.pi)
        step = (mpmath.log(found) - mpmath.log(tail)) * found / slope
        z -= step
        if abs(step) < mpmath.mpf(10) ** -30:
            break
    return z


@pytest.mark.parametrize("sigma", [2.0, 2.5, 3.7, 4.0, 8.0, 16.0, 51.0])
def test_thresholds_of_the_discrete_gaussian_lie_no_further_apart_than_at_the_centre(sigma):
    """A trade-off with knots above a Gaussian's is above it: the whole proof but for the last tail."""
    with mpmath.workdps(40):
        far = int(min(8 * sigma**2, 12 * sigma + 60))
        at = []
        for t, tail in enumerate(tails(sigma, far)[1:]):
            at.append(quantile(tail, at[-1] + 1 / sigma if at else (t + 0.5) / sigma))
        steps = [2 * at[0], *(b - a for a, b in pairwise(at))]
        widest, factor = max(steps) * sigma, grid_factor(sigma)
        assert steps.index(max(steps)) == 0
        assert widest <= factor < widest * (1 + mpmath.mpf("4e-10"))
        # The first two terms of the series alone are not enough: sqrt(1 + 1 / (12 sigma^2)) is below.
        assert mpmath.sqrt(1 + 1 / (12 * mpmath.mpf(sigma) ** 2)) < widest


def density(sigma, dims):
    reach = math.ceil(14 * sigma) + 20
    x = np.arange(-reach, reach + 1)
    p = np.exp(-0.5 * (x / sigma) ** 2)
    p /= p.sum()
    return (x, p) if dims == 1 else (x, np.multiply.outer(p, p))


def shifted(p, shift):
    out = np.zeros_like(p)
    if p.ndim == 1:
        out[shift[0] :] = p[: p.size - shift[0]]
    else:
        out[shift[0] :, shift[1] :] = p[: p.shape[0] - shift[0], : p.shape[1] - shift[1]]
    return out


CASES = [
    (2.0, (1,)),
    (2.0, (6,)),
    (4.0, (4,)),
    (4.0, (9,)),
    (9.0, (3,)),
    (2.5, (2, 1)),
    (4.0, (3, 4)),
    (6.0, (1, 1)),
]


@pytest.mark.parametrize(("sigma", "shift"), CASES)
def test_a_shift_is_hidden_as_well_as_claimed_by_direct_summation(sigma, shift):
    x, p = density(sigma, len(shift))
    q, length = shifted(p, shift), math.hypot(*shift)
    mu = length / sigma * grid_factor(sigma)
    for epsilon in np.linspace(0, 3 * mu + mu * mu, 60):
        for one, other in ((p, q), (q, p)):
            delta = np.maximum(one - np.exp(epsilon) * other, 0).sum()
            assert delta <= gaussian_delta(mu, epsilon) * (1 + 1e-9) + 1e-13
    for order in (1.25, 2, 3.5, 8, 16):
        # log sum of p^a q^(1 - a), one dimension after the other; normalisers cancel to one of them.
        found = 0.0
        for d in shift:
            far = np.arange(x[0] - 20 * d, x[-1] + 20 * d + 1).astype(float)
            logs = -(order * far**2 + (1 - order) * (far - d) ** 2) / (2 * sigma**2)
            found += logsumexp(logs) - logsumexp(-(x**2) / (2 * sigma**2))
        assert found / (order - 1) <= order * (length / sigma) ** 2 / 2 * (1 + 1e-9)


def epsilon_of(delta_at, delta):
    low, high = 0.0, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def test_the_continuous_shift_is_too_small_on_a_coarse_grid():
    _, p = density(4.0, 1)
    q = shifted(p, (4,))
    true = epsilon_of(lambda e: np.maximum(p - np.exp(e) * q, 0).sum(), 1e-5)
    continuous = epsilon_of(lambda e: gaussian_delta(1.0, e), 1e-5)
    ours = epsilon_of(lambda e: gaussian_delta(grid_factor(4.0), e), 1e-5)
    assert round(continuous, 3) == 4.377 < round(true, 3) == 4.390 <= round(ours, 3) < 4.395


def test_the_series_takes_over_where_it_is_above_the_sum():
    for sigma in (50.0, 80.0):
        x = np.arange(1, 4000)
        at_zero = mpmath.mpf(1) / (
            1 + 2 * mpmath.fsum(mpmath.exp(-(mpmath.mpf(int(i)) ** 2) / (2 * sigma**2)) for i in x)
        )
        with mpmath.workdps(40):
            exact = 2 * sigma * quantile((1 - at_zero) / 2, 0.5 / sigma)
        assert exact <= grid_factor(sigma) < exact * (1 + 1e-8)


def test_the_price_is_that_of_one_shift_whatever_the_pool():
    mechanism = GaussianSum(sigma=8.0, steps=500)
    one, many = mechanism.batch_price(ONE, 1), mechanism.batch_price(ONE, 10_000)
    assert (one.values == many.values).all()
    orders = one.orders
    exact = orders * 0.25**2 / 2
    assert (one.values >= exact).all()
    assert (one.values < exact * (1 + 1e-8)).all()
    assert mechanism.mu(Unit.of_ballots(3)) == 0.75
    assert mechanism.clock_mu() == 0.25 * grid_factor(4000.0)
    with pytest.raises(ValueError, match="whole ballots"):
        mechanism.batch_price(Unit.of_weight(2), 1)
    with pytest.raises(ValueError, match="at least 2 steps"):
        GaussianSum(sigma=0.1, steps=10)
    assert mechanism_named("gaussian-sum") is GaussianSum


# --- The mechanism by its contract, and broken ones ---


@dataclass(frozen=True)
class Broken(GaussianSum):
    fault: str = ""

    def release(self, votes, source):
        right = super().release(votes, source)
        values = right.values
        if self.fault == "no noise":
            values = votes.totals
        if self.fault == "shared noise":
            drawn = noise.seeded(int(abs(values.sum())) % 10**6).discrete_gaussian(self.sigma * self.steps, 1)
            values = votes.totals + drawn[0]
        if self.fault == "half the noise":
            values = votes.totals + source.discrete_gaussian(self.sigma * self.steps / 2, votes.totals.shape)
        if self.fault == "too dear":
            return replace(right, cost=Cost(2.0 * right.cost.worst))
        if self.fault == "no level":
            return replace(right, noise_level=None)
        return replace(right, values=values)


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_it_keeps_the_contract(sigma):
    check_mechanism(GaussianSum(sigma=sigma, steps=64), n_draws=5000)


FAULTS = {
    "no noise": "draws prove more", "shared noise": "draws prove more", "half the noise": "draws prove more",
    "too dear": "at most the price", "no level": "level of the noise",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_ones_are_found(fault):
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        check_mechanism(Broken(sigma=1.0, steps=64, fault=fault), n_draws=5000)


# --- From teachers to a ledger and back ---


class Pool:
    """Teachers whose scores are known."""

    def __init__(self, scores, space):
        self.scores, self.space, self.n_teachers = scores, space, len(scores)

    def vote(self, X):
        return Votes.from_ballots(self.scores, self.space)


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    accountant = Accountant(Budget(epsilon=3.0, delta=1e-5))
    if request.param == "memory":
        return MemoryLedger(accountant, allow_seeded=True)
    return SqliteLedger(tmp_path / "ledger.sqlite", accountant, allow_seeded=True)


def test_a_release_reads_back_with_its_noise_level(ledger):
    X = np.random.default_rng(3).normal(size=(30, 4))
    space = Scores(3, directions=public_directions(X, 2))
    scores = np.random.default_rng(4).normal(size=(20, 30, 3)) + X[:, :3]
    room = Room(Pool(scores, space), GaussianSum(sigma=3.0), ledger, noise.seeded(7))
    released = room.ask(X, key="pool")
    spent = ledger.spent.epsilon(1e-5)
    again = room.ask(X, key="pool")
    assert released.noise_level == again.noise_level == NoiseLevel(3072.0, 1024, 20, 2)
    assert (released.values == again.values).all()
    assert (released.labels == (released.values > 0)).all()
    assert again.values.shape == again.labels.shape == (30, 3)
    assert spent == ledger.spent.epsilon(1e-5) > 2.9
    # All that came out lies in the two directions, but for rounding.
    rest = released.values - space.directions @ (space.directions.T @ released.values)
    assert np.abs(rest).max() <= 2
    with pytest.raises(Exception, match="budget"):
        room.ask(X, key="a second pool is a second release")


def test_another_pool_other_steps_and_other_mechanisms_are_refused_before_anything_is_charged(ledger):
    X = np.random.default_rng(3).normal(size=(30, 4))
    space = Scores(3, directions=public_directions(X, 2))
    pool = Pool(np.ones((5, 30, 3)), space)
    for mechanism, rows, words in (
        (GaussianSum(3.0), X[:10], "the pool of 30 queries"),
        (GaussianSum(3.0, steps=2000), X, "2000 steps per norm"),
        (GNMax(3.0), X, "answer with classes"),
    ):
        with pytest.raises((TypeError, ValueError), match=words) as told:
            Room(pool, mechanism, ledger, noise.seeded(7)).ask(rows, key="q")
        assert "Nothing was charged" in str(told.value)
    assert ledger.spent.epsilon(1e-5) == 0


def test_votes_of_scores_are_private_whole_and_not_split():
    votes = Votes.from_ballots(np.ones((4, 5, 2)), Scores(2))
    assert repr(votes) == "Votes(<private>, n_queries=5, n_teachers=4, n_scores=2)"
    with pytest.raises(ValueError, match="the whole pool"):
        votes[:2]
    with pytest.raises(TypeError, match="votes on scores"):
        GNMax(3.0).release(votes, noise.seeded(1))
    with pytest.raises(TypeError, match="Expected votes on scores"):
        GaussianSum(3.0).release(Votes.from_counts([[3, 1]], n_teachers=4), noise.seeded(1))
    with pytest.raises(ValueError, match="larger one"):
        Votes.from_totals([[3000, 0]], Scores(2, steps=1000), n_teachers=2)


# --- On a clock, and planned ---


def test_on_a_clock_a_sum_takes_its_squared_distance_and_a_budget_is_used_up_exactly():
    budget = Budget(epsilon=1.0, delta=1e-5)
    clock = Accountant(budget, clock=Clock.for_delta(1e-5))
    plan, other = plan_sum(clock, prior_share=0), plan_sum(Accountant(budget), prior_share=0)
    # A budget on a clock is that of one Gaussian: what the analytic Gaussian mechanism takes.
    exact = brentq(lambda mu: gaussian_delta(mu, 1.0) - 1e-5, 1e-3, 5)
    assert exact * 0.999 < plan.mu < exact
    assert plan.mu > 1.03 * other.mu
    ledger = MemoryLedger(clock, allow_seeded=True)
    pool = Pool(np.ones((5, 30, 3)), Scores(3, plan.scores.steps))
    Room(pool, plan.scores, ledger, noise.seeded(7)).ask(np.zeros((30, 2)), key="pool")
    with pytest.raises(Exception, match="budget"):
        Room(pool, GaussianSum(100 * plan.scores.sigma, plan.scores.steps), ledger, noise.seeded(7)).ask(
            np.zeros((30, 2)), key="another"
        )


def test_what_is_left_of_a_clock_after_a_sum_bounds_every_hockey_stick():
    """A step of the clock by direct summation over the discrete Gaussian, on coarse grids."""
    for sigma, shift, left in ((2.0, 1, 0.3), (2.0, 3, 0.01), (4.0, 4, 1.0), (5.0, 2, 0.0)):
        x, p = density(sigma, 1)
        table = ShiftClock((shift / sigma * grid_factor(sigma)) ** 2).table(1e-12)
        start = left + table.dearest[0] / TICKS
        loss = (x**2 - (x - shift) ** 2) / (2 * sigma**2)  # log of q / p
        for k in np.linspace(0.0, 6.0, 30):
            for sign in (1, -1):
                # E_p max over what follows of (1 - e^k q/p ...)_+, both directions.
                law = p if sign > 0 else shifted(p, (shift,))
                after = (law * potential(left, k + sign * loss)).sum()
                assert after <= potential(start, k) * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("n_sums", [1, 3])
def test_a_plan_is_afforded_and_with_less_noise_it_would_not_be(share, n_sums):
    accountant = Accountant(Budget(epsilon=0.7, delta=1e-6))
    plan = plan_sum(accountant, prior_share=share, n_sums=n_sums)
    total = n_sums * plan.scores.batch_price(ONE)
    less = n_sums * replace(plan.scores, sigma=plan.scores.sigma * (1 - 1e-4)).batch_price(ONE)
    if plan.prior is not None:
        total, less = (one + plan.prior.batch_price(ONE) for one in (total, less))
        every = n_sums * plan.scores.mu() ** 2 + plan.prior.mu() ** 2
        assert abs(plan.prior.mu() ** 2 / every - share) < 1e-5
    assert accountant.affords(RdpCurve.zero(), total)
    assert not accountant.affords(RdpCurve.zero(), less)
    assert 2000 <= plan.scores.sigma * plan.scores.steps <= 8192


# --- Teachers, a prior and a student ---


def rows_and_labels(n, rng):
    X = rng.normal(size=(n, 6))
    return X, (X[:, :3] + 0.3 * rng.normal(size=(n, 3)) > 0.8).astype(int)


def test_teachers_a_prior_and_a_student_end_to_end():
    rng = np.random.default_rng(7)
    (X, Y), (pool, _), (test, truth) = (rows_and_labels(n, rng) for n in (1500, 300, 1000))
    ledger = MemoryLedger(Accountant(Budget(2.0, 1e-5)), allow_seeded=True)
    plan, source = plan_sum(ledger.accountant), noise.seeded(7)
    parts = partition(len(X), 300, seed=7)
    frequencies = LabelFrequencies(Y, parts, n_columns=3, steps=plan.prior.steps)
    prior = released_frequencies(Room(frequencies, plan.prior, ledger, source).ask([[0.0]], key="prior"))
    assert np.abs(prior - Y.mean(axis=0)).max() < 0.35
    space = Scores(3, plan.scores.steps, expected=prior, directions=public_directions(pool, 6))
    teachers = train_ensemble(Ridge(), X, Y, parts, space=space, seed=7)
    assert repr(teachers) == "Ensemble(n_teachers=300, n_scores=3)"
    release = Room(teachers, plan.scores, ledger, source).ask(pool, key="pool")
    assert 1.99 < ledger.spent.epsilon(1e-5) <= 2
    student = fit_sum(pool, release, frequencies=[0.2, 0.2, 0.2])
    assert student.decision_function(test).shape == (1000, 3)
    assert auc(truth, student.decision_function(test)).mean() > 0.9
    assert np.abs(student.predict(pool).mean(axis=0) - 0.2).max() < 0.01
    # What is left of the noise is less than what was there.
    shrunk = shrunk_scores(pool, release)
    assert np.abs(shrunk).sum() < np.abs(release.values).sum() / (plan.scores.steps * 300)


def test_teachers_of_one_class_score_all_classes_and_the_leader_answers():
    rng = np.random.default_rng(3)
    X, pool = rng.normal(size=(900, 4)), rng.normal(size=(200, 4))
    y, truth = X[:, :3].argmax(axis=1), pool[:, :3].argmax(axis=1)
    space = Scores(3, one_class=True, expected=(1 / 3,) * 3, directions=public_directions(pool, 4))
    teachers = train_ensemble(LogisticRegression(), X, y, partition(900, 60, seed=1), space=space, seed=1)
    ledger = MemoryLedger(Accountant(Budget(8.0, 1e-5)), allow_seeded=True)
    release = Room(teachers, GaussianSum(1.5), ledger, noise.seeded(7)).ask(pool, key="pool")
    assert release.labels.shape == (200,)
    assert (release.labels == truth).mean() > 0.9
    student = fit_sum(pool, release)
    assert (student.predict(pool) == truth).mean() > 0.9


def test_a_teacher_that_fails_adds_nothing_and_another_pool_is_refused():
    class Fails:
        def predict(self, X):
            raise RuntimeError

    class Wild:
        def predict(self, X):
            return np.full((len(X), 2), np.nan)

    class Sound:
        def predict(self, X):
            return np.stack([X[:, 0], -X[:, 0]], axis=1)

    pool = np.random.default_rng(1).normal(size=(10, 3))
    alone = Ensemble((Sound(),), space=Scores(2)).vote(pool)
    together = Ensemble((Fails(), Sound(), Wild()), space=Scores(2)).vote(pool)
    assert (alone.totals == together.totals).all()
    assert together.n_teachers == 3
    with pytest.raises(ValueError, match="the pool of 10 queries"):
        Ensemble((Sound(),), space=Scores(2, directions=public_directions(pool, 2))).vote(pool[:4])


def test_frequencies_are_bounded_and_the_same_unit_moves_one_ballot():
    Y = np.array([[1, 1, 1], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    parts = Partition(
        (np.array([0]), np.array([1, 2]), np.array([], dtype=int), np.array([3])), unit="one record"
    )
    teachers = LabelFrequencies(Y, parts, n_columns=3, steps=1000)
    # The first is longer than the bound and scaled down to it; the third has no rows.
    assert teachers.vote([[0.0]]).totals.tolist() == [[577 + 1000, 577, 577 + 1000]]
    loose = LabelFrequencies(Y, parts, n_columns=3, steps=1000, bound=2.0).vote(None)
    assert loose.totals.tolist() == [[500 + 500, 500, 500 + 500]]


def test_networks_clusters_files_and_parties_refuse_scores(tmp_path):
    votes = Votes.from_ballots(np.ones((4, 5, 2)), Scores(2))
    with pytest.raises(ValueError, match="for a vote file, got votes on scores"):
        save_votes(tmp_path / "votes.npz", votes)
    X = np.zeros((20, 2))
    room = Room(
        Pool(np.ones((4, 5, 2)), Scores(2)),
        GaussianSum(3.0),
        MemoryLedger(Accountant(Budget(1.0, 1e-5))),
        noise.secure(),
    )
    with pytest.raises(TypeError, match="Ask the room itself"):
        label_pool(room, X[:5], seed=7)
    with pytest.raises(ConfigError, match="64 hexadecimal digits that `tellers party pool` printed"):
        replace(example_settings("answerer"), mechanism=MechanismConfig(name="gaussian-sum"))
    audited = audit_sum(GaussianSum(1.0, steps=64), delta=1e-3, noise=noise.seeded(7), n_samples=4000)
    assert 0 < audited.epsilon < audited.claim
    assert audited.holds
