"""Ballots that change together: against brute force, against one ballot, and where bounds take over."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, Unit, Votes
from tellers.accounting import teacher_costs
from tellers.accounting._together import n_alternatives, team_costs
from tellers.mechanisms._argmax import group_classes, log_win_slopes, log_wins, win_probabilities
from tellers.mechanisms._check import log_pass_and_fail
from tellers.mechanisms._laws import ContinuousGaussian, DiscreteGaussian, DiscreteLaplace

ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 32.0])


def brute_force(mechanism, votes, team, *, thresholds=None, orders=ORDERS):
    """Return (2, orders): every query's worst list of ballots, one by one, added up by direction."""
    total = np.zeros((2, len(orders)))
    for query in range(len(votes)):
        counts = votes.counts[query].astype(np.int64)
        rest = counts - np.bincount(votes.ballots[team, query], minlength=votes.n_classes)
        lists = itertools.combinations_with_replacement(range(votes.n_classes), len(team))
        moved = [rest + np.bincount(then, minlength=votes.n_classes) for then in lists]
        laws = []
        for tally in [counts, *moved]:
            groups = group_classes(tally[None])
            base = win_probabilities(groups, DiscreteGaussian(mechanism.sigma)).base[0, groups.of_class[0]]
            base = base - np.log(np.exp(base).sum())
            if thresholds is not None:
                margin = np.array([float((tally - thresholds[query]).max())])
                passes, fails = log_pass_and_fail(margin, mechanism.sigma_threshold)
                base = np.concatenate([fails, base + passes])
            laws.append(base)
        here = laws[0]
        for k, order in enumerate(orders):
            pairs = [[(here, there), (there, here)] for there in laws[1:]]
            sums = [
                [np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1) for p, q in pair]
                for pair in pairs
            ]
            total[:, k] += np.maximum(np.max(sums, axis=0), 0)
    return total


def some_votes(seed, *, n_teachers=9, n_queries=4, n_classes=3, agreement=0.6):
    rng = np.random.default_rng(seed)
    ballots = rng.integers(0, n_classes, (n_teachers, n_queries))
    ballots = np.where(rng.random(ballots.shape) < agreement, rng.integers(0, n_classes, n_queries), ballots)
    return Votes.from_ballots(ballots, n_classes=n_classes)


seeds = st.integers(0, 10**6)
some = settings(max_examples=35)


@some
@given(seed=seeds, n_classes=st.integers(2, 4), u=st.integers(1, 3), sigma=st.sampled_from([0.8, 3.0, 12.0]))
def test_equals_brute_force(seed, n_classes, u, sigma):
    votes = some_votes(seed, n_classes=n_classes, n_queries=2)
    team = np.random.default_rng(seed).permutation(votes.n_teachers)[:u]
    made = {"threshold": 6.0, "sigma_threshold": 2.5}
    believed = np.full(votes.counts.shape, 1 / n_classes)
    for mechanism, student in (
        (GNMax(sigma), None),
        (ConfidentGNMax(sigma, **made), None),
        (InteractiveGNMax(sigma, threshold=2.0, sigma_threshold=2.5, student_confidence=0.9), believed),
    ):
        thresholds = None
        if student is not None:
            thresholds = np.ceil(2.0 + votes.n_teachers * believed)
        elif isinstance(mechanism, ConfidentGNMax):
            thresholds = np.full(votes.counts.shape, 6)
        costs = team_costs(mechanism, votes, team[None], orders=ORDERS, student=student).reveal()[:, 0]
        wanted = brute_force(mechanism, votes, team, thresholds=thresholds)
        assert np.allclose(costs, wanted, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("mechanism", [GNMax(4.0), ConfidentGNMax(4.0, threshold=5, sigma_threshold=3.0)])
def test_a_team_of_one_is_a_teacher_bit_for_bit(mechanism):
    votes = some_votes(3, n_queries=20)
    teams = np.arange(votes.n_teachers)[:, None]
    assert np.array_equal(
        team_costs(mechanism, votes, teams).reveal(), teacher_costs(mechanism, votes).reveal()
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_queries_add_up_to_the_run(n_classes):
    votes = some_votes(5, n_queries=600, n_classes=n_classes)
    teams = np.array([[0, 1, 2], [3, 4, 5], [0, 7, 8], [2, 1, 0]])
    mechanism = ConfidentGNMax(4.0, threshold=5, sigma_threshold=3.0)
    one_by_one = (votes[i : i + 1] for i in range(len(votes)))
    total = sum(team_costs(mechanism, one, teams, orders=ORDERS).reveal() for one in one_by_one)
    costs = team_costs(mechanism, votes, teams, orders=ORDERS).reveal()
    assert np.allclose(costs, total, rtol=1e-12)
    assert np.array_equal(costs[:, 0], costs[:, 3])  # a team is a set


@some
@given(seed=seeds, u=st.integers(2, 5), sigma=st.sampled_from([0.5, 1.0, 2.0, 5.0, 40.0]))
def test_bounds_beyond_the_enumeration(seed, u, sigma):
    """Forward vertices give GNMax's largest divergence; every bound is above what enumeration finds.

    Some votes are nearly unanimous by many standard deviations, where noise falls steeply between neighbours.
    """
    rng = np.random.default_rng(seed)
    n_teachers = max(6, int(rng.choice([1, 6, 15]) * sigma))
    agreement = float(rng.choice([0.3, 0.9]))
    votes = some_votes(seed, n_teachers=n_teachers, n_classes=int(rng.integers(3, 6)), agreement=agreement)
    team = rng.permutation(votes.n_teachers)[None, :u]
    orders = [1.25, 2.0, 8.0, 32.0, 128.0]
    check = {"threshold": float(rng.integers(0, votes.n_teachers)), "sigma_threshold": sigma * 1.5}
    for mechanism in (GNMax(sigma), ConfidentGNMax(sigma, **check)):
        exact = team_costs(mechanism, votes, team, orders=orders, most=10**6).reveal()
        bound = team_costs(mechanism, votes, team, orders=orders, most=0).reveal()
        slack = 1e-9 * exact + 1e-13
        assert (bound >= exact - slack).all()
        if isinstance(mechanism, GNMax):
            assert np.allclose(bound[0], exact[0], rtol=1e-9, atol=1e-13)
            price = np.array(orders) * (u / sigma) ** 2 * len(votes)
            assert (bound <= price * (1 + 1e-12)).all()


def test_the_tangent_is_close_where_it_matters():
    votes = Votes.from_ballots(np.repeat([0, 1, 2, 3], [120, 60, 40, 30])[:, None], n_classes=4)
    team = np.array([[0, 130, 190, 240]])
    orders = [8.0, 16.0, 32.0]
    exact = team_costs(GNMax(40.0), votes, team, orders=orders).reveal()
    bound = team_costs(GNMax(40.0), votes, team, orders=orders, most=0).reveal()
    assert (bound[1] >= exact[1]).all()
    assert (bound[1] <= [1.2, 1.1, 1.06] * exact[1]).all()


def test_splitting_can_cost_more_than_any_corner_when_there_is_a_check():
    """Why a check needs more than the vertices: spread over two classes, four ballots lower the top count."""
    ballots = np.repeat([0, 1, 2], [34, 30, 30])[:, None]
    votes = Votes.from_ballots(ballots, n_classes=3)
    mechanism = ConfidentGNMax(sigma=400.0, threshold=34, sigma_threshold=4.0)
    team = np.array([[0, 1, 2, 3]])  # all for the class on top
    exact = team_costs(mechanism, votes, team, orders=[8.0]).reveal()[:, 0, 0]

    def at(tally):
        moved = Votes.from_counts([tally], n_teachers=94)
        here, there = mechanism.outcomes(votes).log_labels[0], mechanism.outcomes(moved).log_labels[0]
        return np.logaddexp.reduce([8 * here - 7 * there, 8 * there - 7 * here], axis=1) / 7

    corners = np.maximum(at([30, 34, 30]), at([30, 30, 34]))
    assert (exact > 100 * corners).all()
    assert np.allclose(exact, at([30, 32, 32]), rtol=1e-6)


@some
@given(seed=seeds, sigma=st.sampled_from([2.0, 6.0]))
def test_more_ballots_cost_more(seed, sigma):
    """A smaller team's alternatives are among those of a larger one: its ballots may also stay."""
    votes = some_votes(seed, n_classes=3)
    who = np.random.default_rng(seed).permutation(votes.n_teachers)
    for mechanism in (GNMax(sigma), ConfidentGNMax(sigma, threshold=5, sigma_threshold=3.0)):
        costs = [team_costs(mechanism, votes, who[None, :u], orders=ORDERS).reveal() for u in (1, 2, 3, 4)]
        for fewer, more in itertools.pairwise(costs):
            assert (fewer <= more * (1 + 1e-9) + 1e-13).all()


@some
@given(seed=seeds)
def test_never_above_the_price(seed):
    votes = some_votes(seed, n_classes=4, n_teachers=12)
    for mechanism in (GNMax(5.0), ConfidentGNMax(5.0, threshold=7, sigma_threshold=4.0)):
        for u in (2, 3):
            team = np.arange(u)[None]
            costs = team_costs(mechanism, votes, team).reveal()
            assert (costs <= mechanism.price(Unit.of_ballots(u)).values * len(votes) * (1 + 1e-9)).all()


@some
@given(seed=seeds, u=st.integers(1, 3))
def test_a_cost_depends_on_tallies_and_own_ballots_only(seed, u):
    """Others may swap ballots among themselves as they like: while the tally stays, so does the cost."""
    votes = some_votes(seed)
    rng = np.random.default_rng(seed)
    others = np.arange(u, votes.n_teachers)
    ballots = votes.ballots.copy()
    for query in range(len(votes)):
        ballots[others, query] = ballots[rng.permutation(others), query]
    swapped = Votes.from_ballots(ballots, n_classes=votes.n_classes)
    mechanism = ConfidentGNMax(5.0, threshold=6, sigma_threshold=4.0)
    team = np.arange(u)[None]
    assert np.array_equal(
        team_costs(mechanism, votes, team).reveal(), team_costs(mechanism, swapped, team).reveal()
    )


def test_many_classes_and_ballots_that_do_not_fit_a_number():
    votes = some_votes(1, n_classes=60, n_teachers=30, n_queries=2)
    teams = np.array([np.arange(12), np.arange(12, 24)])
    costs = team_costs(GNMax(9.0), votes, teams, orders=[4.0]).reveal()
    assert (costs > 0).all()
    assert (costs <= 2 * 4.0 * (12 / 9.0) ** 2).all()


def test_alternatives_are_counted_as_they_are_listed():
    from tellers.accounting._together import _alternatives

    for sizes, u in (((1, 1, 1), 4), ((3, 2), 5), ((1, 9), 4), ((2,), 3)):
        listed = _alternatives(sizes, u)
        assert len(listed) == len(np.unique(listed, axis=0)) == n_alternatives(sizes, u)
        assert (listed.sum(axis=1) == u).all()


@pytest.mark.parametrize("law", [DiscreteGaussian(0.6), DiscreteGaussian(9.0), DiscreteLaplace(4.0)])
def test_plain_wins_are_the_wins_without_a_move(law):
    counts = np.random.default_rng(0).integers(0, 60, (40, 5))
    groups = group_classes(counts)
    wanted = np.take_along_axis(win_probabilities(groups, law).base, groups.of_class, axis=1)
    wanted = wanted - np.logaddexp.reduce(wanted, axis=1)[:, None]
    assert np.allclose(log_wins(counts, law), wanted, rtol=1e-9, atol=1e-9)
    if isinstance(law, DiscreteGaussian):
        assert np.allclose(log_win_slopes(counts, law)[0], wanted, rtol=1e-9, atol=1e-9)


def test_slopes_are_slopes():
    counts, law = np.array([[7, 5, 1]]), ContinuousGaussian(3.0)
    _, slopes = log_win_slopes(counts, law)
    fine = ContinuousGaussian(3000.0)  # the same vote in thousandths, so that a step of 1 is small
    for step in np.eye(3, dtype=np.int64):
        up, down = (log_wins(1000 * counts + sign * step, fine)[0] for sign in (1, -1))
        assert np.allclose(slopes[0] @ step, (up - down) * 500, atol=1e-5)


def test_bad_teams_are_refused():
    votes = some_votes(0)
    for teams, words in (
        ([0, 1], "shape"),
        ([[0.5, 1.0]], "whole numbers"),
        ([[0, 9]], "teachers 0..8"),
        ([[1, 1]], "distinct"),
    ):
        with pytest.raises(ValueError, match=words):
            team_costs(GNMax(4.0), votes, teams)
    with pytest.raises(ValueError, match="ballots"):
        team_costs(GNMax(4.0), Votes.from_counts([[2, 1]], n_teachers=3), [[0, 1]])
    with pytest.raises(ValueError, match="one vote each"):
        team_costs(GNMax(4.0), votes.weighted(np.ones(9, dtype=int)), [[0, 1]])
    with pytest.raises(ValueError, match="student"):
        team_costs(GNMax(4.0), votes, [[0, 1]], student=np.full(votes.counts.shape, 1 / 3))
    interactive = InteractiveGNMax(4.0, threshold=2, sigma_threshold=3.0, student_confidence=0.9)
    with pytest.raises(ValueError, match="student"):
        team_costs(interactive, votes, [[0, 1]])
