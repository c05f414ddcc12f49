"""The public tables: above the exact cost of every histogram that can be listed, and as smooth as stated."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from tellers import ConfidentGNMax, GNMax, Unit, Votes
from tellers.mechanisms import argmax_supremum, divergences, gap_envelope, smooth_sensitivity
from tellers.mechanisms._laws import DiscreteGaussian
from tellers.mechanisms.gap_bounds import _MARGIN, _far_lead, confident_envelope, gap_cost, margin_envelope
from tellers.mechanisms.suprema import ThreeWays, both_directions

ORDERS = np.array([1.25, 2.0, 5.0, 12.0, 32.0, 64.0])


def all_sorted_histograms(n_teachers, n_classes):
    """Every way to split the votes, largest count first: names of classes do not matter."""
    rows = []

    def split(left, most, row):
        if len(row) == n_classes - 1:
            if left <= most:
                rows.append([*row, left])
            return
        for count in range(min(left, most), -(-left // (n_classes - len(row))) - 1, -1):
            split(left - count, count, [*row, count])

    split(n_teachers, n_teachers, [])
    return Votes.from_counts(rows, n_teachers=n_teachers)


def exact_costs(mechanism, votes, orders):
    """The two-sided cost of each query's worst move, (queries, orders)."""
    parts = [votes[i : i + 100] for i in range(0, len(votes), 100)]
    return np.concatenate(
        [divergences(mechanism.outcomes(part), orders=orders).max(axis=(0, 2)) for part in parts]
    )


# Every histogram, for ensembles that can be listed ----------------------------------------------------------


@pytest.mark.parametrize(("n_teachers", "n_classes"), [(24, 3), (16, 5)])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0, 10.0, 15.9, 17.0, 60.0])
def test_no_histogram_costs_more_than_its_gap_says(n_teachers, n_classes, sigma):
    votes = all_sorted_histograms(n_teachers, n_classes)
    orders = ORDERS[30 * sigma >= ORDERS]
    exact = exact_costs(GNMax(sigma), votes, orders)
    for i, order in enumerate(orders):
        table = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)
        assert np.all(exact[:, i] <= table[votes.gap])


@pytest.mark.parametrize(
    ("n_teachers", "n_classes"), [(1, 2), (1, 5), (2, 2), (2, 3), (3, 4), (5, 3), (40, 2), (6, 8)]
)
def test_corners_of_few_teachers_and_few_classes(n_teachers, n_classes):
    votes = all_sorted_histograms(n_teachers, n_classes)
    for sigma in (0.5, 2.0, 20.0):
        orders = ORDERS[30 * sigma >= ORDERS]
        exact = exact_costs(GNMax(sigma), votes, orders)
        for i, order in enumerate(orders):
            assert np.all(
                exact[:, i] <= gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)[votes.gap]
            )


@pytest.mark.parametrize(("sigma", "orders"), [(48.0, [2.0, 300.0]), (100.0, [8.0, 256.0]), (250.0, [512.0])])
def test_wide_noise_steps_over_leads_and_still_bounds(sigma, orders):
    # Distances are stepped by sigma/16, here 3 to 15 votes, and the worst one may lie beyond all teachers.
    votes = all_sorted_histograms(50, 3)
    exact = exact_costs(GNMax(sigma), votes, np.array(orders))
    for i, order in enumerate(orders):
        assert np.all(exact[:, i] <= gap_envelope(50, 3, sigma=sigma, order=order)[votes.gap])


@pytest.mark.parametrize(
    ("n_teachers", "counts", "sigma", "order"),
    [
        (60, [58, 1, 1], 0.3, 20.0),
        (250, [213, 37, 0, 0, 0, 0, 0, 0, 0, 0], 1.0, 60.0),
        (250, [235, 15, 0, 0], 1.5, 60.0),
    ],
)
def test_orders_far_above_the_noise_are_bounded_too(n_teachers, counts, sigma, order):
    # exp(H) leaves the range of floats here; what is rounded off must not be taken for nothing.
    votes = Votes.from_counts([counts], n_teachers=n_teachers)
    table = gap_envelope(n_teachers, len(counts), sigma=sigma, order=order)
    assert exact_costs(GNMax(sigma), votes, np.array([order]))[0, 0] <= table[votes.gap[0]]


def test_large_ensembles_searched_around_the_worst_shapes():
    rng = np.random.default_rng(7)
    rows = []
    for _ in range(150):
        top, n_rivals = int(rng.integers(25, 251)), int(rng.integers(1, 10))
        share = rng.dirichlet(np.full(n_rivals, rng.choice([0.3, 30.0])))
        rest = rng.multinomial(250 - top, share)
        rows.append(np.sort([top, *rest, *[0] * (9 - n_rivals)]))
    votes = Votes.from_counts(rows, n_teachers=250)
    orders = np.array([3.0, 12.0, 40.0])
    for sigma in (10.0, 40.0):
        exact = exact_costs(GNMax(sigma), votes, orders)
        for i, order in enumerate(orders):
            assert np.all(exact[:, i] <= gap_envelope(250, 10, sigma=sigma, order=order)[votes.gap])


# The shape of the table -------------------------------------------------------------------------------------


def test_the_table_falls_from_the_public_price_to_nothing():
    table = gap_envelope(250, 10, sigma=20.0, order=8.0)
    assert table.shape == (251,)
    assert np.all(np.diff(table) <= 0)
    assert table[0] <= argmax_supremum(20.0, [8.0]).values[0]
    assert table[0] > 0.95 * argmax_supremum(20.0, [8.0]).values[0]
    assert table[-1] < 1e-6
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0.0


def test_the_table_is_close_to_the_best_one_that_does_not_rise():
    votes = all_sorted_histograms(60, 4)
    for sigma, order in ((5.0, 8.0), (10.0, 4.0)):
        exact = exact_costs(GNMax(sigma), votes, np.array([order]))[:, 0]
        best = np.zeros(61)
        np.maximum.at(best, votes.gap, exact)
        best = np.maximum.accumulate(best[::-1])[::-1]
        table = gap_envelope(60, 4, sigma=sigma, order=order)
        # Even gaps: two classes alone have no odd one, and the best table would know that.
        shown = np.flatnonzero(best > 1e-3 * best[0])[::2]
        assert np.all(table[shown] <= 1.1 * best[shown])


def race(sigma, lead, order, *, cells, n_parts):
    """(order - 1) times the larger divergence of {a, b, other}, at thresholds cell + k / n_parts above a."""
    law, reach = DiscreteGaussian(sigma), math.ceil(10 * sigma) + 3
    beyond = np.arange(cells[0], cells[-1] + reach + 1)
    columns = []
    for k in range(n_parts):
        u, sides = k / n_parts, []
        for a, b in ((0, -lead), (-1, 1 - lead)):
            rows = []
            for own, rival in ((a, b), (b, a)):
                density = law.log_density(beyond - own)
                whole = np.logaddexp.accumulate((density + law.log_cdf(beyond - rival, 0.5))[::-1])[::-1]
                part = density + math.log1p(-u) + law.log_cdf(beyond - rival, (1 + u) / 2)
                rows.append(np.logaddexp(np.append(whole[1:], -np.inf), part)[: cells.size])
            below = [law.log_cdf(cells - n - 1) if k == 0 else law.log_cdf(cells - n, u) for n in (a, b)]
            side = np.stack([*rows, below[0] + below[1]])
            sides.append(side - logsumexp(side, axis=0))
        here, there = sides
        forward = logsumexp(order * here + (1 - order) * there, axis=0)
        reverse = logsumexp(order * there + (1 - order) * here, axis=0)
        columns.append(np.maximum(np.maximum(forward, reverse), 0))
    return np.stack(columns, axis=1).ravel()


def table_of_the_proof(n_teachers, n_classes, sigma, order, gaps, *, n_parts=8):
    """The bound of the proof by plain, fine sums: all leads, both cases, both kinds of move."""
    law = DiscreteGaussian(sigma)
    reach = math.ceil(10 * sigma) + 3
    cells = np.arange(-n_teachers - 3 - reach, reach + math.ceil(order) + 1, dtype=np.float64)
    y = (cells[:, None] + np.arange(n_parts) / n_parts).ravel()
    away = np.array(
        [race(sigma, lead, order, cells=cells, n_parts=n_parts) for lead in range(n_teachers + 3)]
    )
    # Towards the leader with lead d: the way back from d + 2, whose leader stands one vote higher.
    back = away[2:]
    towards = np.concatenate([np.repeat(back[:, :1], n_parts, axis=1), back[:, :-n_parts]], axis=1)
    away = away[: n_teachers + 1]
    falling = np.maximum.accumulate(np.maximum(away, towards).max(axis=0)[::-1])[::-1]
    table = []
    for gap in gaps:
        x = y + gap
        cdf = np.exp((n_classes - 2) * law.log_cdf(np.floor(x), x - np.floor(x)))
        growing = np.maximum.accumulate(np.concatenate([away[gap:], towards[gap:]]), axis=1)
        mass = np.diff(cdf, prepend=0.0, append=1.0)
        level = np.exp(growing)
        ends = np.concatenate([level[:, :1], level, level[:, -1:]], axis=1)
        involved = np.log(((ends[:, :-1] + ends[:, 1:]) / 2) @ mass).max()
        x = y - gap
        cdf = np.exp(law.log_cdf(np.floor(x), x - np.floor(x)))
        level = np.exp(np.concatenate([falling[:1], falling, falling[-1:]]))
        beside = np.log(((level[:-1] + level[1:]) / 2) @ np.diff(cdf, prepend=0.0, append=1.0))
        table.append(max(involved, beside) / (order - 1))
    return np.maximum.accumulate(np.array(table)[::-1])[::-1]


@pytest.mark.parametrize(
    ("n_teachers", "n_classes", "sigma", "order"),
    [(30, 5, 10.0, 3.0), (30, 4, 16.0, 2.0), (25, 10, 3.0, 4.0)],
)
def test_the_table_is_the_one_of_the_proof(n_teachers, n_classes, sigma, order):
    gaps = np.arange(0, n_teachers + 1, 3)
    proof = table_of_the_proof(n_teachers, n_classes, sigma, order, gaps)
    table = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)[gaps]
    proof = np.minimum(proof, argmax_supremum(sigma, [order]).values[0])
    # Never below the proof, and above it by the stated margin, the step of the leads, and 1e-12.
    assert np.all(table >= proof * (1 - 1e-9))
    assert np.all(table <= proof * 1.03 + 1e-11)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="n_teachers"):
        gap_envelope(0, 3, sigma=1.0, order=2.0)
    with pytest.raises(ValueError, match="n_classes"):
        gap_envelope(10, 1, sigma=1.0, order=2.0)
    with pytest.raises(ValueError, match="sigma"):
        gap_envelope(10, 3, sigma=0.0, order=2.0)


def plain_envelope(n_votes, n_classes, gaps, *, sigma, order, weight):
    """U at these gaps before it is capped, with every lead and threshold there is, one after the other."""
    law, stride = DiscreteGaussian(sigma), max(1, math.floor(sigma / 16))
    reach, shift = math.ceil(order * weight), -(-2 * weight // stride)
    leads = range(0, n_votes + 2 * weight + 1 + stride, stride)
    race = ThreeWays(law, deepest=leads[-1], reach=reach, weight=weight)
    y = np.arange(-leads[-1] - race.spread, race.spread + reach + 1, stride / 2)
    first, last = np.eye(y.size)[[0, -1]]

    def cdf(x):
        return np.exp(law.log_cdf(np.floor(x), x - np.floor(x)))

    def expected(values, beside, mass):
        level = np.exp(values)
        return math.log(mass @ (level if sigma < 16 else (level + np.exp(beside)) / 2))

    below = [cdf(y + gap) ** (n_classes - 2) for gap in gaps]
    masses = [np.diff(each, prepend=0.0) + (1 - each[-1]) * last for each in below]
    found, worst = np.zeros(len(gaps)), np.zeros(y.size)
    for at, lead in enumerate(leads):
        both = (order - 1) * both_directions(*race(lead), order).max(axis=0).clip(0)
        away = [(lead, y)] if at < len(leads) - shift else []
        towards = [(max(lead - 2 * weight, 0), y - weight)] if at >= shift else []
        for before, thresholds in away + towards:
            values = np.interp(thresholds, race.thresholds(lead), both)
            worst, grown = np.maximum(worst, values), np.maximum.accumulate(values)
            for i, gap in enumerate(gaps):
                if before >= gap - (stride - 1):
                    left = np.append(grown[0], grown[:-1])
                    here = expected(grown, left, masses[i]) if n_classes > 2 else values[0]
                    found[i] = max(found[i], here)
    fallen = np.maximum.accumulate(worst[::-1])[::-1]
    for i, gap in enumerate(gaps if n_classes > 2 else []):
        mass = np.diff(cdf(y - gap), append=1.0) + cdf(y[:1] - gap) * first
        found[i] = max(found[i], expected(fallen, np.append(fallen[1:], fallen[-1]), mass))
    return found / (order - 1) * _MARGIN + 1e-12


@pytest.mark.parametrize(
    ("n_votes", "n_classes", "sigma", "order", "weight"),
    [(150, 4, 4.0, 3.0, 1), (160, 10, 2.0, 12.0, 1), (150, 2, 4.0, 2.0, 2), (600, 3, 33.0, 1.5, 2)],
)
def test_leads_and_gaps_that_are_left_out_change_nothing(n_votes, n_classes, sigma, order, weight):
    setting = {"sigma": sigma, "order": order, "weight": weight}
    assert _far_lead(sigma, order, weight) < n_votes - 10
    cap = float(argmax_supremum(sigma, [order], weight=weight).values[0])
    table = gap_envelope(n_votes, n_classes, **setting)
    assert table.shape == (n_votes + 1,)
    gaps = [0, 1, *(int(part * sigma) for part in (1, 3, 6, 10, 15)), n_votes]
    plain = np.minimum(plain_envelope(n_votes, n_classes, gaps, **setting), cap)
    np.testing.assert_allclose(table[gaps], plain, rtol=1e-9, atol=1e-14)


# The check --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_teachers", "n_classes"), [(24, 3), (16, 5), (12, 2), (1, 2), (3, 4)])
@pytest.mark.parametrize(("sigma", "sigma_threshold"), [(2.0, 0.5), (4.0, 20.0), (20.0, 3.0)])
def test_no_histogram_costs_more_than_its_top_and_gap_say(n_teachers, n_classes, sigma, sigma_threshold):
    votes = all_sorted_histograms(n_teachers, n_classes)
    for threshold in (-3.0, 0.35 * n_teachers, 0.8 * n_teachers, 1.2 * n_teachers):
        mechanism = ConfidentGNMax(sigma, threshold, sigma_threshold)
        exact = exact_costs(mechanism, votes, ORDERS)
        for i, order in enumerate(ORDERS):
            table = confident_envelope(
                n_teachers,
                n_classes,
                sigma=sigma,
                order=order,
                threshold=threshold,
                sigma_threshold=sigma_threshold,
            )
            assert np.all(exact[:, i] <= table[votes.top, votes.gap])


@pytest.mark.parametrize(("n_teachers", "n_classes"), [(1, 2), (2, 3), (7, 2), (9, 4), (12, 5)])
def test_the_table_is_empty_exactly_where_no_histogram_is(n_teachers, n_classes):
    votes = all_sorted_histograms(n_teachers, n_classes)
    table = confident_envelope(
        n_teachers, n_classes, sigma=2.0, order=3.0, threshold=4.0, sigma_threshold=2.0
    )
    there = np.zeros_like(table, dtype=bool)
    there[votes.top, votes.gap] = True
    np.testing.assert_array_equal(np.isnan(table), ~there)


@pytest.mark.parametrize(("weight", "n_fewest"), [(1, 30), (1, 26), (4, 30)])
@pytest.mark.parametrize(("sigma_threshold", "order"), [(2.0, 6.0), (9.0, 1.25), (0.6, 20.0)])
def test_a_check_costs_the_most_of_all_ways_to_move(weight, n_fewest, sigma_threshold, order):
    """Every way at every top and gap, over every number of votes: a plain list of what was chosen from."""
    check = {"order": order, "sigma_threshold": sigma_threshold, "weight": weight}
    answer = gap_envelope(30, 3, sigma=4.0, order=order, weight=weight)
    table = confident_envelope(30, 3, sigma=4.0, threshold=17.0, n_fewest=n_fewest, **check)
    law, plain = DiscreteGaussian(sigma_threshold), np.full((31, 31), np.nan)

    def logs(top):  # of failing and of passing
        margin = np.array([top - 17.0])
        return float(law.log_cdf(-margin - 1)[0]), float(law.log_cdf(margin)[0])

    for n_votes in range(n_fewest, 31):
        votes = all_sorted_histograms(n_votes, 3)
        for top, gap in zip(votes.top, votes.gap, strict=True):
            ways = [0.0]
            for moved in (-weight, 0, weight):
                for here, there in ((top, top + moved), (top + moved, top)):
                    fail, passed = (
                        order * p + (1 - order) * q for p, q in zip(logs(here), logs(there), strict=True)
                    )
                    ways.append(np.logaddexp(fail, passed + (order - 1) * answer[gap]) / (order - 1))
            plain[top, gap] = max(ways) + 1e-12
    np.testing.assert_allclose(table, plain, rtol=1e-12, atol=1e-14)
    margins = margin_envelope(answer, -17, 13, **check)
    there = ~np.isnan(plain)
    np.testing.assert_allclose(margins[there], plain[there], rtol=1e-12, atol=1e-14)


def test_a_check_that_always_passes_leaves_the_gap_and_one_that_never_does_leaves_nothing():
    made = {"sigma": 5.0, "order": 6.0, "sigma_threshold": 1.0}
    gaps = gap_envelope(30, 3, sigma=5.0, order=6.0)
    always = confident_envelope(30, 3, threshold=-100, **made)
    never = confident_envelope(30, 3, threshold=200, **made)
    top, gap = np.nonzero(~np.isnan(always))
    np.testing.assert_allclose(always[top, gap], gaps[gap], atol=1e-11)
    assert np.nanmax(never) < 1e-11


# Ballots of several votes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_votes", "n_classes"), [(24, 2), (24, 3), (16, 5)])
@pytest.mark.parametrize("weight", [2, 3, 7])
@pytest.mark.parametrize("sigma", [0.8, 4.0, 17.0, 60.0])
def test_no_histogram_costs_a_loud_ballot_more_than_its_gap_says(n_votes, n_classes, weight, sigma):
    votes = all_sorted_histograms(n_votes, n_classes).replaced(unit=Unit.of_weight(weight))
    orders = ORDERS[30 * sigma / weight >= ORDERS]
    confident = ConfidentGNMax(sigma, 14, 3.0)
    answers, checked = (exact_costs(mechanism, votes, orders) for mechanism in (GNMax(sigma), confident))
    setting = {"sigma": sigma, "weight": weight}
    check = {"threshold": 14, "sigma_threshold": 3.0}
    for i, order in enumerate(orders):
        table = gap_envelope(n_votes, n_classes, order=order, **setting)
        assert np.all(answers[:, i] <= table[votes.gap])
        both = confident_envelope(n_votes, n_classes, order=order, **setting, **check)
        assert np.all(checked[:, i] <= both[votes.top, votes.gap])
        # Fewer votes are in the same table, and a check by margins is above the one by top counts.
        fewer = all_sorted_histograms(n_votes - 1, n_classes)
        wide = confident_envelope(n_votes, n_classes, order=order, **setting, **check, n_fewest=n_votes - 1)
        assert not np.isnan(wide[fewer.top, fewer.gap]).any()
        margins = margin_envelope(table, -14, n_votes - 14, order=order, sigma_threshold=3.0, weight=weight)
        np.testing.assert_allclose(both[votes.top, votes.gap], margins[votes.top, votes.gap])


def test_a_loud_ballot_against_wide_noise_costs_what_its_square_says():
    # For orders well below the noise everything scales: U of weight w at sigma is U of weight 1 at sigma / w.
    loud = gap_envelope(600, 4, sigma=120.0, order=8.0, weight=3)
    plain = gap_envelope(200, 4, sigma=40.0, order=8.0)
    np.testing.assert_allclose(loud[::3], plain, rtol=0.1)


# How fast the sums move -------------------------------------------------------------------------------------


def test_one_ballot_moves_the_top_by_one_and_the_gap_by_two():
    for counts in itertools.product(range(7), repeat=3):
        if sum(counts) != 6:
            continue
        here = Votes.from_counts([counts], n_teachers=6)
        for a, b in itertools.permutations(range(3), 2):
            if counts[a] == 0:
                continue
            moved = np.array(counts)
            moved[a] -= 1
            moved[b] += 1
            there = Votes.from_counts([moved], n_teachers=6)
            assert abs(here.top[0] - there.top[0]) <= 1
            assert abs(here.gap[0] - there.gap[0]) <= 2


def test_local_sensitivities_of_any_table_of_gaps():
    # Not only of falling ones: the checks of two-outcome releases are not monotone.
    rng = np.random.default_rng(7)
    for n_teachers in (1, 2, 3, 8, 13):
        table = rng.random(n_teachers + 1)
        gaps = rng.integers(0, n_teachers + 1, size=5)
        cost = gap_cost(table, gaps)
        assert cost.total == pytest.approx(table[gaps].sum())
        place = np.arange(n_teachers + 1)
        near = np.abs(place[:, None] - place[None, :]) <= 2
        change = np.where(near, np.abs(table[:, None] - table[None, :]), 0).max(axis=1)
        for d, local in enumerate(cost.local):
            reachable = np.abs(place[None, :] - gaps[:, None]) <= 2 * d
            assert local == pytest.approx(np.where(reachable, change, 0).max(axis=1).sum())
        assert cost.local[-1] == pytest.approx(change.max() * gaps.size)


def test_local_sensitivities_of_any_table_of_tops_and_gaps():
    rng = np.random.default_rng(7)
    votes = all_sorted_histograms(9, 3)
    table = np.full((10, 10), np.nan)
    table[votes.top, votes.gap] = rng.random(len(votes))
    cells = np.argwhere(~np.isnan(table))
    value = table[tuple(cells.T)]
    apart = np.abs(cells[:, None, :] - cells[None, :, :])
    steps = np.maximum(apart[..., 0], -(-apart[..., 1] // 2))
    change = np.where(steps <= 1, np.abs(value[:, None] - value[None, :]), 0).max(axis=1)
    chosen = rng.integers(0, len(cells), size=4)
    cost = gap_cost(table, cells[chosen, 1], cells[chosen, 0])
    assert cost.total == pytest.approx(value[chosen].sum())
    for d, local in enumerate(cost.local):
        within = np.where(steps[chosen] <= d, change[None, :], 0).max(axis=1).sum()
        assert local >= within * (1 - 1e-12)
    assert cost.local[0] == pytest.approx(change[chosen].sum())
    assert cost.local[-1] == pytest.approx(change.max() * 4)


@pytest.mark.parametrize("shape", [(1, 41), (1, 2), (2, 3), (13, 30), (31, 12)])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_local_sensitivities_are_the_largest_changes_within_every_window(shape, step):
    """Window by window and query by query, on tables with holes, for several ballots and members."""
    rng, moves = np.random.default_rng(shape[1] + step), ((1, 0.5), (3, 1.0))
    table = rng.random(shape) ** 8  # few that are large
    if shape[0] > 1:
        table[rng.random(shape) < 0.4] = np.nan
        table[0, 0] = 0.5
    cells = np.argwhere(~np.isnan(table))
    cells = cells[rng.integers(len(cells), size=6)]

    def within(values, top, gap, votes):
        return values[max(top - votes, 0) : top + votes + 1, max(gap - 2 * votes, 0) : gap + 2 * votes + 1]

    change = np.zeros(shape)
    for top, gap in np.argwhere(~np.isnan(table)):
        for weight, share in moves:
            most = np.nanmax(np.abs(within(table, top, gap, weight) - table[top, gap])) / share
            change[top, gap] = max(change[top, gap], most)
    present = rng.integers(0, 2, size=(3, 6)).astype(float)
    for there in (None, present):
        tops = cells[:, 0] if shape[0] > 1 else None
        cost = gap_cost(
            table if shape[0] > 1 else table[0], cells[:, 1], tops, moves=moves, step=step, present=there
        )
        assert cost.local[-1] == pytest.approx(
            change.max() * (6 if there is None else there.sum(axis=1).max())
        )
        for d in range(shape[0] + shape[1]):
            near = np.array([within(change, top, gap, d * step).max() for top, gap in cells])
            summed = near.sum() if there is None else (there @ near).max()
            # Beyond the last entry nothing changes any more.
            assert cost.local[min(d, cost.local.size - 1)] == pytest.approx(summed, rel=1e-12)


def random_ballots(rng, n_teachers, n_classes, n_queries):
    right = rng.integers(n_classes, size=n_queries)
    ballots = rng.integers(n_classes, size=(n_teachers, n_queries))
    agree = rng.random((n_teachers, n_queries)) < rng.choice([0.2, 0.6, 0.95], size=n_queries)
    return np.where(agree, right, ballots)


@pytest.mark.parametrize("kind", ["gaps", "tops and gaps"])
def test_sums_and_smooth_sensitivities_of_neighbouring_ballots(kind):
    """One teacher changes its whole ballot: the sum moves by at most either S, and S by at most e^beta."""
    rng, n_teachers, n_classes = np.random.default_rng(7), 21, 4
    tables = {
        "gaps": gap_envelope(n_teachers, n_classes, sigma=3.0, order=6.0),
        "tops and gaps": confident_envelope(
            n_teachers, n_classes, sigma=3.0, order=6.0, threshold=12, sigma_threshold=2.0
        ),
    }

    def cost(ballots):
        votes = Votes.from_ballots(ballots, n_classes=n_classes)
        if kind == "gaps":
            return gap_cost(tables[kind], votes.gap)
        return gap_cost(tables[kind], votes.gap, votes.top)

    for _ in range(60):
        here = random_ballots(rng, n_teachers, n_classes, int(rng.integers(1, 7)))
        at_here = cost(here)
        for _ in range(4):
            there = here.copy()
            there[rng.integers(n_teachers)] = rng.integers(n_classes, size=here.shape[1])
            at_there = cost(there)
            moved = abs(at_here.total - at_there.total)
            assert moved <= min(at_here.local[0], at_there.local[0]) * (1 + 1e-12)
            shared = min(at_here.local.size, at_there.local.size) - 1
            assert np.all(at_here.local[:shared] <= at_there.local[1 : shared + 1] * (1 + 1e-12))
            for beta in (0.01, 0.1, 0.5):
                s_here, s_there = (smooth_sensitivity(at.local, beta) for at in (at_here, at_there))
                assert moved <= min(s_here, s_there) * (1 + 1e-12)
                assert abs(math.log(s_here / s_there)) <= beta * (1 + 1e-12)
