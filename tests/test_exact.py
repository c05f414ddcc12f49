"""Exact costs, against the definition: every teacher, every alternative ballot, both directions."""

import itertools
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import roots_legendre
from scipy.stats import norm

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, NoisyHistogram, Sealed, Votes, exact_cost
from tellers.accounting import exact
from tellers.accounting.exact import exact_epsilons
from tellers.mechanisms import divergences
from tellers.privacy import DEFAULT_ORDERS, RdpCurve
from tellers.testing import random_votes

MECHANISMS = [
    GNMax(3.0),
    LNMax(0.3),
    ConfidentGNMax(sigma=3.0, threshold=7, sigma_threshold=4.0),
    InteractiveGNMax(sigma=3.0, threshold=3, sigma_threshold=4.0, student_confidence=0.7),
]
ORDERS = np.array([1.25, 2.0, 3.0, 10.0, 64.0])


def context(mechanism, n_queries, n_classes):
    if not isinstance(mechanism, InteractiveGNMax):
        return {}
    return {"student": np.random.default_rng(1).dirichlet(np.ones(n_classes), size=n_queries)}


def ballots(seed, n_teachers=11, n_queries=6, n_classes=3):
    return np.random.default_rng(seed).integers(0, n_classes, (n_teachers, n_queries))


def renyi(log_p, log_q, order):
    kept = ~np.isneginf(log_p)
    return np.logaddexp.reduce(order * log_p[kept] + (1 - order) * log_q[kept]) / (order - 1)


def plain_cost(mechanism, table, n_classes, *, weights=None, **extra):
    """(directions, teachers, orders): change one ballot at a time and ask for the outcomes again."""

    def cast(ballots, queries):
        votes = Votes.from_ballots(ballots, n_classes=n_classes)
        return votes if weights is None else votes.weighted(weights[:, queries])

    votes = cast(table, slice(None))
    here = mechanism.outcomes(votes, **extra).log_labels
    total = np.zeros((2, len(table), ORDERS.size))
    for teacher, query in itertools.product(range(len(table)), range(table.shape[1])):
        if weights is not None and weights[teacher, query] == 0:
            continue
        worst = np.zeros((2, ORDERS.size))
        for other in set(range(n_classes)) - {int(table[teacher, query])}:
            changed = table[:, [query]].copy()
            changed[teacher] = other
            one = {name: rows[[query]] for name, rows in extra.items()}
            there = mechanism.outcomes(cast(changed, [query]), **one).log_labels[0]
            ways = [[renyi(p, q, a) for a in ORDERS] for p, q in ((here[query], there), (there, here[query]))]
            worst = np.maximum(worst, ways)
        total[:, teacher] += worst
    return total


# The definition ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_cost_is_that_of_the_worst_teacher(mechanism, seed):
    table = ballots(seed)
    extra = context(mechanism, 6, 3)
    total = plain_cost(mechanism, table, 3, **extra)
    cost = exact_cost(mechanism, Votes.from_ballots(table, n_classes=3), orders=ORDERS, **extra)
    assert cost.per == "teacher"
    assert cost.n_queries == 6
    np.testing.assert_allclose(cost.forward.reveal().values, total[0].max(axis=0), rtol=1e-6)
    np.testing.assert_allclose(cost.reverse.reveal().values, total[1].max(axis=0), rtol=1e-6)
    # The larger direction is taken after the sum over queries, for each teacher, and then the worst teacher.
    np.testing.assert_allclose(cost.cost.reveal().values, total.max(axis=(0, 1)), rtol=1e-6)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_counts_alone_add_up_each_querys_worst_ballot(mechanism):
    table, extra = ballots(3), context(mechanism, 6, 3)
    votes = Votes.from_ballots(table, n_classes=3)
    plain = Votes.from_counts(votes.counts, n_teachers=11)
    by_query = exact_cost(mechanism, plain, orders=ORDERS, **extra)
    assert by_query.per == "query"
    worst = sum(
        plain_cost(mechanism, table[:, [q]], 3, **{k: v[[q]] for k, v in extra.items()}).max(axis=1)
        for q in range(6)
    )
    np.testing.assert_allclose(by_query.forward.reveal().values, worst[0], rtol=1e-6)
    np.testing.assert_allclose(by_query.reverse.reveal().values, worst[1], rtol=1e-6)
    np.testing.assert_allclose(by_query.cost.reveal().values, worst.max(axis=0), rtol=1e-6)
    by_teacher = exact_cost(mechanism, votes, orders=ORDERS, **extra).cost.reveal().values
    assert np.all(by_teacher <= by_query.cost.reveal().values * (1 + 1e-12))


def test_the_larger_direction_stands_outside_the_sum():
    # One query that costs more forwards and one that costs more backwards: inside the sum would be dearer.
    votes = Votes.from_counts([[548, 452], [500, 500]], n_teachers=1000)
    costs = divergences(GNMax(10.0).outcomes(votes), orders=[8.0]).max(axis=2)[..., 0]
    assert costs[0, 0] < costs[1, 0]
    rows = np.array([[540 + d, 460 - d] for d in range(0, 60, 2)])
    each = divergences(GNMax(10.0).outcomes(Votes.from_counts(rows, n_teachers=1000)), orders=[2.0, 8.0])
    total = exact_cost(GNMax(10.0), Votes.from_counts(rows, n_teachers=1000), orders=[2.0, 8.0]).cost.reveal()
    outside = each.max(axis=2).sum(axis=1).max(axis=0)
    inside = each.max(axis=2).max(axis=0).sum(axis=0)
    np.testing.assert_allclose(total.values, outside, rtol=1e-9)
    assert np.all(outside <= inside)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 12), st.integers(2, 5))
@settings(max_examples=30)
def test_more_queries_never_cost_less(seed, n_teachers, n_queries, n_classes):
    votes = Votes.from_ballots(ballots(seed, n_teachers, n_queries, n_classes), n_classes=n_classes)
    for mechanism in MECHANISMS[:3]:
        whole = exact_cost(mechanism, votes).cost.reveal().values
        part = exact_cost(mechanism, votes[: n_queries // 2 + 1]).cost.reveal().values
        assert np.all(part <= whole * (1 + 1e-9) + 1e-14)


def test_queries_add_up():
    votes = random_votes(np.random.default_rng(2), 30, n_classes=4, n_queries=40)
    counts = Votes.from_counts(votes.counts, n_teachers=30)
    total = exact_cost(GNMax(4.0), counts)
    each = [exact_cost(GNMax(4.0), one) for one in counts]
    for name in ("forward", "reverse"):
        added = sum(getattr(one, name).reveal().values for one in each)
        np.testing.assert_allclose(getattr(total, name).reveal().values, added, rtol=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_permuting_classes_or_teachers_changes_nothing(mechanism):
    table = ballots(7, n_teachers=20, n_queries=15, n_classes=4)
    extra = context(mechanism, 15, 4)
    plain = exact_cost(mechanism, Votes.from_ballots(table, n_classes=4), **extra).cost.reveal().values
    order = np.array([2, 3, 1, 0])
    renamed = {name: rows[:, np.argsort(order)] for name, rows in extra.items()}
    for other, more in ((order[table], renamed), (table[::-1], extra)):
        cost = exact_cost(mechanism, Votes.from_ballots(other, n_classes=4), **more).cost.reveal().values
        np.testing.assert_allclose(cost, plain, rtol=1e-9)


def test_saying_it_is_symmetric_changes_nothing():
    class Unsaid:
        def outcomes(self, votes):
            return GNMax(4.0).outcomes(votes)

    for votes in (
        random_votes(np.random.default_rng(2), 30, n_classes=5, n_queries=300),
        Votes.from_counts(
            random_votes(np.random.default_rng(3), 30, n_classes=5, n_queries=50).counts, n_teachers=30
        ),
    ):
        said, unsaid = (exact_cost(m, votes).cost.reveal().values for m in (GNMax(4.0), Unsaid()))
        np.testing.assert_allclose(said, unsaid, rtol=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_long_runs_are_split_without_loss(mechanism, monkeypatch):
    votes = random_votes(np.random.default_rng(2), 30, n_classes=4, n_queries=80)
    extra = context(mechanism, 80, 4)
    whole = exact_cost(mechanism, votes, **extra).cost.reveal().values
    monkeypatch.setattr("tellers.accounting.exact._BLOCK", 7)
    seen = []
    split = exact_cost(mechanism, votes, progress=seen.append, **extra).cost.reveal().values
    np.testing.assert_allclose(split, whole, rtol=1e-9)
    assert sum(seen) == 80
    assert max(seen) <= 7


# Equal tallies ----------------------------------------------------------------------------------------------


def repeated(seed, n_queries=40, n_distinct=6, n_classes=4):
    """Ballots of which few tallies differ but for the names of the classes, anywhere in the run."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, n_classes, (11, n_distinct)) * (rng.random((11, n_distinct)) < 0.5)
    columns = [rng.permutation(table[:, i]) for i in rng.integers(n_distinct, size=n_queries)]
    return np.stack([rng.permutation(n_classes)[column] for column in columns], axis=1)


def rooms(monkeypatch):
    """Small blocks, with room for the costs of all tallies, of two and of none."""
    monkeypatch.setattr("tellers.accounting.exact._BLOCK", 7)
    for room in (1 << 26, 2000, 0):
        monkeypatch.setattr("tellers.accounting.exact._ROOM", room)
        yield room


@pytest.mark.parametrize("mechanism", MECHANISMS[:3], ids=lambda m: type(m).__name__)
def test_tallies_that_come_again_cost_what_each_of_them_costs(mechanism, monkeypatch):
    table = repeated(3, n_queries=24)
    votes = Votes.from_ballots(table, n_classes=4)
    counts = Votes.from_counts(votes.counts, n_teachers=11)
    plain = np.stack([plain_cost(mechanism, table[:, [query]], 4) for query in range(24)])
    close = {"rtol": 1e-9, "atol": 1e-12}
    for _ in rooms(monkeypatch):
        for costs in (
            exact.teacher_costs(mechanism, votes, orders=ORDERS),
            exact.teacher_costs_of_parts(mechanism, cut(votes, [3, 12, 20]), orders=ORDERS),
        ):
            np.testing.assert_allclose(costs.reveal(), plain.sum(axis=0), **close)
        each = [costs for _, costs in exact.query_costs(mechanism, votes, orders=ORDERS)]
        np.testing.assert_allclose(each, plain, **close)
        for cost in (
            exact_cost(mechanism, counts, orders=ORDERS),
            exact.exact_cost_of_parts(mechanism, cut(counts, [3, 12, 20]), orders=ORDERS),
        ):
            found = [way.reveal().values for way in (cost.forward, cost.reverse)]
            np.testing.assert_allclose(found, plain.max(axis=2).sum(axis=0), **close)


def test_equal_tallies_of_other_weights_are_told_apart(monkeypatch):
    table, rng = repeated(4, n_queries=16), np.random.default_rng(4)
    weights = rng.integers(0, 3, table.shape)
    votes = Votes.from_ballots(table, n_classes=4).weighted(weights)
    plain = plain_cost(GNMax(3.0), table, 4, weights=weights)
    for _ in rooms(monkeypatch):
        found = exact.teacher_costs(GNMax(3.0), votes, orders=ORDERS).reveal()
        np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-12)
        one_by_one = sum(costs for _, costs in exact.query_costs(GNMax(3.0), votes, orders=ORDERS))
        np.testing.assert_allclose(one_by_one, found, rtol=1e-12)


@pytest.mark.parametrize("with_ballots", [True, False])
def test_a_tally_is_evaluated_once_however_far_apart_it_stands(with_ballots, monkeypatch):
    monkeypatch.setattr("tellers.accounting.exact._BLOCK", 7)
    evaluated = []

    class Watched:
        symmetric = True

        def outcomes(self, votes):
            evaluated.extend(map(tuple, np.sort(votes.counts, axis=1)))
            return GNMax(3.0).outcomes(votes)

    votes = Votes.from_ballots(repeated(5, n_queries=200, n_distinct=30), n_classes=4)
    votes = votes if with_ballots else Votes.from_counts(votes.counts, n_teachers=11)
    n_distinct = len(np.unique(np.sort(votes.counts, axis=1), axis=0))
    n_blocks = -(-len(votes) // 7)
    for room, most in ((1 << 26, n_distinct), (0, n_distinct + n_blocks)):
        monkeypatch.setattr("tellers.accounting.exact._ROOM", room)
        evaluated.clear()
        exact_cost(Watched(), votes, orders=ORDERS)
        assert len(set(evaluated)) == n_distinct
        assert len(evaluated) <= most
    monkeypatch.setattr("tellers.accounting.exact._ROOM", 1 << 26)
    for work in (
        lambda: exact.exact_cost_of_parts(Watched(), cut(votes, [50, 120]), orders=ORDERS),
        lambda: list(exact.query_costs(Watched(), votes, orders=ORDERS)),
    ):
        evaluated.clear()
        work()
        assert len(evaluated) == n_distinct


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_the_type_of_ballots_does_not_matter(dtype):
    votes = Votes.from_ballots(repeated(7), n_classes=4)
    typed = Votes(votes.counts, 11, votes.ballots.astype(dtype))
    plain, found = (exact.teacher_costs(GNMax(3.0), one, orders=ORDERS).reveal() for one in (votes, typed))
    np.testing.assert_array_equal(found, plain)


def test_tallies_that_share_a_hash_are_told_apart(monkeypatch):
    votes = Votes.from_ballots(repeated(6), n_classes=4)
    plain = exact.teacher_costs(GNMax(3.0), votes, orders=ORDERS).reveal()
    monkeypatch.setattr("tellers.accounting.exact._BLOCK", 7)
    monkeypatch.setattr("tellers.accounting.exact._FACTOR", 0)
    assert (exact._together(votes.counts, 7) == np.arange(40)).all()
    found = exact.teacher_costs(GNMax(3.0), votes, orders=ORDERS).reveal()
    np.testing.assert_allclose(found, plain, rtol=1e-12)


# Orders -----------------------------------------------------------------------------------------------------


def plain_divergences(outcomes, order):
    alive = (outcomes.multiplicity > 0) & outcomes.moves[..., None]
    times = np.log(np.maximum(outcomes.multiplicity, 1))
    ways = []
    for p, q in ((outcomes.log_here, outcomes.log_there), (outcomes.log_there, outcomes.log_here)):
        p, q = np.where(alive, p, 0.0), np.where(alive, q, 0.0)
        exponent = np.where(alive, times + order * p + (1 - order) * q, -np.inf)
        value = np.logaddexp.reduce(exponent, axis=3) / (order - 1)
        ways.append(np.where(outcomes.moves, np.maximum(value, 0.0), 0.0).max(axis=2))
    return np.stack(ways)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0, 20.0])
@pytest.mark.parametrize(
    "orders",
    [
        DEFAULT_ORDERS,
        np.array([7.0]),
        np.array([1.01, 1.5, 2.0, 40.0, 41.0, 42.5]),
        np.arange(2, 51),
        np.array([1.001, 1000.0, 5000.0]),
    ],
    ids=["default", "one", "uneven", "published", "far"],
)
def test_powers_grow_from_order_to_order_as_they_should(sigma, orders):
    votes = random_votes(np.random.default_rng(4), 60, n_classes=4, n_queries=40)
    outcomes = GNMax(sigma).outcomes(votes)
    result = divergences(outcomes, orders=orders)
    for i, order in enumerate(orders):
        expected = plain_divergences(outcomes, float(order))
        # A sum near 1 is known to 1e-16 times the sizes of its exponents.
        slack = 1e-13 * max(1.0, float(order)) / (float(order) - 1)
        np.testing.assert_allclose(result[..., i], expected, rtol=1e-8, atol=slack)


def test_divergences_grow_with_the_order():
    votes = random_votes(np.random.default_rng(4), 60, n_classes=4, n_queries=200)
    for mechanism in MECHANISMS[:3]:
        result = divergences(mechanism.outcomes(votes))
        assert np.all(result >= 0)
        assert np.all(np.diff(result, axis=-1) >= -1e-9 * result[..., 1:] - 1e-13)


def test_a_class_without_a_vote_costs_nothing():
    outcomes = GNMax(4.0).outcomes(Votes.from_counts([[10, 0, 0]], n_teachers=10))
    cost = divergences(outcomes)
    assert np.all(cost[:, 0, outcomes.of_class[0, 1]] == 0)
    assert np.all(cost[:, 0, outcomes.of_class[0, 0]] > 0)


# Epsilons, one after another --------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("with_ballots", [True, False])
def test_the_last_epsilon_is_that_of_the_run(mechanism, with_ballots):
    votes = random_votes(np.random.default_rng(2), 30, n_classes=4, n_queries=25)
    votes = votes if with_ballots else Votes.from_counts(votes.counts, n_teachers=30)
    extra = context(mechanism, 25, 4)
    epsilons = exact_epsilons(mechanism, votes, delta=1e-5, **extra)
    assert isinstance(epsilons, Sealed)
    values = epsilons.reveal()
    assert values.shape == (25,)
    assert np.all(np.diff(values) >= -1e-9)
    for n in (1, 10, 25):
        part = {name: rows[:n] for name, rows in extra.items()}
        expected = exact_cost(mechanism, votes[:n], **part).cost.reveal().epsilon(1e-5)
        assert values[n - 1] == pytest.approx(expected, rel=1e-9)


def test_progress_is_told_by_queries():
    votes = random_votes(np.random.default_rng(2), 30, n_classes=4, n_queries=25)
    seen = []
    exact_cost(GNMax(3.0), votes, progress=seen.append)
    assert sum(seen) == 25


# Ends -------------------------------------------------------------------------------------------------------


def test_results_are_sealed():
    cost = exact_cost(GNMax(3.0), Votes.from_counts([[3, 2]], n_teachers=5))
    assert all(isinstance(part, Sealed) for part in (cost.cost, cost.forward, cost.reverse))
    assert isinstance(cost.cost.reveal(), RdpCurve)
    assert "<private>" in repr(cost)


def test_no_queries_cost_nothing():
    empty = Votes.from_counts([[3, 2]], n_teachers=5)[:0]
    assert exact_cost(GNMax(3.0), empty).cost.reveal().epsilon(1e-5) == 0.0
    assert exact_epsilons(GNMax(3.0), empty, delta=1e-5).reveal().size == 0


def test_one_teacher_is_enough():
    votes = Votes.from_ballots([[0, 1, 1]], n_classes=2)
    cost = exact_cost(GNMax(3.0), votes).cost.reveal().values
    by_hand = exact_cost(GNMax(3.0), votes[0]).cost.reveal().values
    np.testing.assert_allclose(cost, 3 * by_hand, rtol=1e-9)


def test_the_student_must_fit():
    votes = Votes.from_counts([[3, 2], [4, 1]], n_teachers=5)
    for student in ([[0.5, 0.5]], [[0.5, 0.5]] * 3, [[0.5, 0.3, 0.2]] * 2):
        with pytest.raises(ValueError, match=r"student|shape"):
            exact_cost(MECHANISMS[3], votes, student=student)
    with pytest.raises(TypeError):
        exact_cost(MECHANISMS[3], votes)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 1e4])
def test_mixed_extremes_in_one_batch(sigma):
    rows = [[5000, 0, 0], [2500, 2500, 0], [1667, 1667, 1666], [4999, 1, 0], [0, 0, 5000]]
    votes = Votes.from_counts(rows, n_teachers=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = exact_cost(GNMax(sigma), votes).cost.reveal()
    assert np.all(np.isfinite(curve.values))
    assert np.all(curve.values <= len(rows) * GNMax(sigma).price(votes.unit).values * (1 + 1e-9))


@pytest.mark.parametrize("mechanism", [GNMax(6.0), LNMax(0.05)], ids=repr)
def test_memory_stays_flat_for_many_teachers(mechanism):
    # Large votes and small noise make long grids; a chunk must not multiply them by all its queries.
    rng = np.random.default_rng(0)
    counts = np.stack([rng.multinomial(5000, share) for share in rng.dirichlet(np.full(10, 0.5), 66)])
    votes = Votes.from_counts(counts, n_teachers=5000)
    tracemalloc.start()
    try:
        exact_cost(mechanism, votes, orders=[2.0, 8.0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500 * 2**20


def test_a_mechanism_without_outcomes_is_charged_its_price():
    votes = Votes.from_counts([[3, 2]], n_teachers=5)
    with pytest.raises(TypeError, match="charged its price"):
        exact_cost(NoisyHistogram(sigma=3.0), votes)


# In parts ---------------------------------------------------------------------------------------------------


def cut(votes, places):
    edges = [0, *sorted(places), len(votes)]
    return [votes[a:b] for a, b in itertools.pairwise(edges) if b > a]


@given(st.integers(0, 10**6), st.lists(st.integers(1, 1399), max_size=6), st.booleans())
@settings(max_examples=10)
def test_votes_in_parts_cost_what_they_cost_at_once(seed, places, with_ballots):
    # More queries than are evaluated at once, so that parts end inside and across the blocks.
    votes = random_votes(np.random.default_rng(seed), 40, n_classes=3, n_queries=1400)
    if not with_ballots:
        votes = Votes.from_counts(votes.counts, n_teachers=40)
    seen = []
    parts = exact.exact_cost_of_parts(
        GNMax(8.0), iter(cut(votes, places)), orders=ORDERS, progress=seen.append
    )
    whole = exact_cost(GNMax(8.0), votes, orders=ORDERS)
    assert (parts.per, parts.n_queries, sum(seen)) == (whole.per, 1400, 1400)
    for name in ("cost", "forward", "reverse"):
        mine, others = (getattr(one, name).reveal().values for one in (parts, whole))
        np.testing.assert_allclose(mine, others, rtol=1e-12, atol=0)


def test_the_costs_of_parts_add_up_where_no_teacher_is_followed():
    # What lets several machines share the work: forward and reverse are sums over queries.
    votes = random_votes(np.random.default_rng(5), 400, n_classes=10, n_queries=300)
    counts = Votes.from_counts(votes.counts, n_teachers=400)
    whole = exact.exact_cost_of_parts(GNMax(16.0), [counts])
    shares = [exact.exact_cost_of_parts(GNMax(16.0), [part]) for part in cut(counts, [77, 200])]
    forward = sum((one.forward.reveal() for one in shares), RdpCurve.zero()).values
    reverse = sum((one.reverse.reveal() for one in shares), RdpCurve.zero()).values
    np.testing.assert_allclose(np.maximum(forward, reverse), whole.cost.reveal().values, rtol=1e-10)


def test_parts_must_be_alike():
    votes = random_votes(np.random.default_rng(5), 10, n_classes=3, n_queries=4)
    counts = Votes.from_counts(votes.counts, n_teachers=10)
    fewer = Votes.from_counts([[5, 4, 0]], n_teachers=9)
    for parts, words in (
        ([], "at least one part"),
        ([votes, counts], "with ballots or all without"),
        ([counts, fewer], "10 teachers and 3 classes"),
        ([votes.weighted(np.arange(1, 11))], "weighted"),
    ):
        with pytest.raises(ValueError, match=words):
            exact.exact_cost_of_parts(GNMax(3.0), parts)


def test_memory_does_not_grow_with_the_number_of_parts():
    # Parts are made as they are asked for; whoever kept them would hold four times as many the second time.
    def peak(n_parts):
        drawn = (np.random.default_rng(i).integers(0, 4, (300, 512)) for i in range(n_parts))
        made = (Votes.from_ballots(ballots, n_classes=4) for ballots in drawn)
        tracemalloc.start()
        try:
            exact.exact_cost_of_parts(GNMax(12.0), made, orders=[2.0, 8.0])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)  # tables of the noise are made once
    assert peak(16) < 1.1 * peak(4)


def two_class_cost(gap, sigma, order):
    """The cost of two classes, from a series: without differences of numbers that are nearly equal."""
    spread = sigma * np.sqrt(2.0)
    share = norm.cdf(gap / spread)
    worst = 0.0
    for step in (-2.0, 2.0):
        # The mass between the two gaps by Gauss nodes, relatively exact however small it is.
        node, weight = roots_legendre(8)
        at = gap + step * (node + 1) / 2
        moved = step * (weight / 2 * norm.pdf(at / spread)).sum() / spread
        for p, change in ((share, moved), (share + moved, -moved)):
            ratios = np.array([change / p, -change / (1 - p)])
            # sum of p (1 + r)^order, less 1: the terms of first order cancel, exactly.
            term, total = order * ratios, np.zeros(2)
            for k in range(2, 12):
                term = term * ratios * (order - k + 1) / k
                total += term
            worst = max(worst, float(np.log1p(np.array([p, 1 - p]) @ total)) / (order - 1))
    return worst


@pytest.mark.parametrize("gap", [0, 20_000, 200_000])
@pytest.mark.parametrize("order", [2.0, 13.0, 40.0])
def test_rounding_of_a_query_is_far_below_what_a_thousand_million_of_them_cost(gap, order):
    """A query of a million teachers at sigma 40,000 costs 1e-9 or less, and is right to 2e-16."""
    votes = Votes.from_counts([[500_000 + gap // 2, 500_000 - gap // 2]], n_teachers=1_000_000)
    cost = exact_cost(GNMax(40_000.0), votes, orders=[order]).cost.reveal().values[0]
    assert abs(cost - two_class_cost(gap, 40_000.0, order)) < 2e-16 + 1e-8 * cost


def test_the_costs_of_teachers_add_up_over_shares_of_the_parts():
    votes = random_votes(np.random.default_rng(6), 60, n_classes=4, n_queries=90)
    whole = exact.teacher_costs(GNMax(6.0), votes, orders=ORDERS).reveal()
    shares = [exact.teacher_costs_of_parts(GNMax(6.0), [one], orders=ORDERS) for one in cut(votes, [31, 32])]
    np.testing.assert_allclose(sum(share.reveal() for share in shares), whole, rtol=1e-9)
    with pytest.raises(ValueError, match="counts alone"):
        exact.teacher_costs_of_parts(GNMax(6.0), [Votes.from_counts(votes.counts, n_teachers=60)])
