"""The three variants: what they share, what equal budgets reduce them to, and what no budget may break."""

import hashlib
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, NoisyHistogram, Unit, Votes, noise
from tellers.accounting import teacher_costs
from tellers.mechanisms.base import scaled
from tellers.runs import personal
from tellers.runs.personal import (
    Group,
    PersonalPlan,
    Upsampling,
    Vanishing,
    Weighting,
    arrange,
    assign_by_plan,
    copies_for,
    frequencies_for,
    make_plan,
    read_consent,
    upsampled_partition,
    weights_for,
)
from tellers.runs.personal.plan import charge, ranges, require_members, whole_shares
from tellers.teachers import partition

VARIANTS = ("weighting", "vanishing", "upsampling")
CONFIDENT = ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
MECHANISMS = (
    GNMax(40.0),
    CONFIDENT,
    InteractiveGNMax(40.0, threshold=90.0, sigma_threshold=150.0, student_confidence=0.8),
    LNMax(0.05),
    NoisyHistogram(40.0),
)

# Any number of groups up to twenty, any ratio of budgets.
BUDGETS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20, unique=True).map(sorted)


def groups_of(budgets, sizes=None):
    sizes = sizes or [10] * len(budgets)
    return tuple(Group(f"g{at}", e, n) for at, (e, n) in enumerate(zip(budgets, sizes, strict=True)))


def consent_of(budgets, each=10):
    return read_consent([b for b in budgets for _ in range(each)], delta=1e-5)


# --- Whole numbers in the proportions of budgets. ---


@given(BUDGETS, st.integers(1, 50))
def test_weights_are_off_by_at_most_half_a_vote_of_the_quietest(budgets, denominator):
    ratios = np.array(budgets) / budgets[0]
    weights = np.array(weights_for(groups_of(budgets), denominator=denominator))
    assert weights.min() == weights[0] == denominator
    assert np.all(np.abs(weights / (denominator * ratios) - 1) <= 1 / (2 * denominator) + 1e-12)


@given(BUDGETS, st.sampled_from([0.3, 0.1, 0.02]))
def test_weights_keep_to_the_precision_and_no_smaller_ones_do(budgets, precision):
    ratios = np.array(budgets) / budgets[0]
    weights = np.array(weights_for(groups_of(budgets), precision=precision))
    assert weights[0] >= 1
    assert weights.max() <= 10_000
    if 50 * ratios[-1] > 10_000:  # further apart than a ballot may be loud
        return
    assert np.abs(weights / (weights[0] * ratios) - 1).max() <= precision + 1e-12
    for smaller in range(1, int(weights[0])):
        off = np.abs(np.rint(smaller * ratios) / (smaller * ratios) - 1)
        assert off.max() > precision


@given(BUDGETS, st.sampled_from([0.3, 0.1, 0.02]), st.integers(1, 60))
def test_nobody_has_more_copies_than_their_proportion(budgets, precision, most):
    ratios = np.array(budgets) / budgets[0]
    copies = np.array(copies_for(groups_of(budgets), precision=precision, most=most))
    assert 1 <= copies.min() == copies[0]
    assert copies.max() <= most
    assert np.all(copies <= copies[0] * ratios * (1 + 1e-8))
    assert np.all(np.diff(copies) >= 0)
    short = 1 - copies / (copies[0] * ratios)
    if short.max() > precision + 1e-9:  # only where the cap leaves nothing better
        assert np.max(np.ceil(1 / precision) * ratios) > most


def test_the_paper_s_budgets_are_small_whole_numbers():
    groups = groups_of([math.log(2), math.log(4), math.log(8), math.log(16)])
    assert copies_for(groups) == weights_for(groups) == (1, 2, 3, 4)
    assert frequencies_for(groups)[0] == pytest.approx(1 / 16, rel=1e-12)
    assert copies_for(groups_of([0.1, 0.3])) == (1, 3)  # 0.3 / 0.1 is a hair below 3
    assert copies_for(groups_of([1.0, 1.5])) == (2, 3)
    assert copies_for(groups_of([1.0, 1.5]), precision=0.4) == (1, 1)


@pytest.mark.parametrize("shares", [[], [0.0], [1.0, math.nan], [[1.0]], [-1.0], [math.inf]])
def test_shares_that_are_none(shares):
    with pytest.raises(ValueError, match="shares > 0"):
        whole_shares(shares)


def test_precisions_and_denominators_that_are_none():
    for bad in (0, 1, -1, math.nan):
        with pytest.raises(ValueError, match="precision"):
            copies_for(groups_of([1.0, 2.0]), precision=bad)
    with pytest.raises(ValueError, match="smallest"):
        weights_for(groups_of([1.0, 2.0]), denominator=0)
    with pytest.raises(ValueError, match="most"):
        copies_for(groups_of([1.0, 2.0]), most=0)
    with pytest.raises(ValueError, match="each of 2 groups"):
        weights_for(groups_of([1.0, 2.0]), shares=[1.0])


# --- Equal budgets are plain PATE, bit for bit. ---


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("levels", [{"all": 1.0}, {"one": 1.0, "two": 1.0}])
def test_equal_budgets_are_plain(variant, mechanism, levels):
    consent = read_consent([name for name in levels for _ in range(40)], delta=1e-5, levels=levels)
    seating = arrange(variant, consent, mechanism, n_teachers=10, seed=7)
    plan = seating.plan
    assert plan.mechanism is mechanism
    assert plan.n_teachers == 10
    assert seating.source is None
    assert plan.weights(13, key="q0") is None
    assert set(plan.units) == {Unit()}
    for curve in plan.prices(13, key="q0").values():
        assert np.array_equal(curve.values, (mechanism.price(Unit()) * 13).values)
    if len(levels) == 1:
        plain = partition(consent.n_rows, 10, seed=7)
        for ours, theirs in zip(seating.partition, plain, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equal_budgets_are_charged_what_the_release_says(variant, mechanism):
    consent = read_consent([1.0] * 250, delta=1e-5)
    plan = make_plan(variant, consent, mechanism, n_teachers=250, seed=7)
    ballots = np.random.default_rng(3).choice(3, p=[0.8, 0.15, 0.05], size=(250, 40))
    votes = Votes.from_ballots(ballots, n_classes=3)
    student = {"student": np.full((40, 3), 1 / 3)} if isinstance(mechanism, InteractiveGNMax) else {}
    release = mechanism.release(votes, noise.seeded(5), **student)
    answered = np.ones(40, dtype=bool) if release.answered is None else release.answered
    (charged,) = plan.charges(answered, key="q0").values()
    if hasattr(mechanism, "check_price"):  # groups pay for a check and its answer one by one
        plain = mechanism.check_price(Unit()) * 40 + mechanism.answer_price(Unit()) * int(answered.sum())
        assert np.array_equal(charged.values, plain.values)
        assert np.all(release.cost.worst.values <= plain.values)
    else:
        assert np.array_equal(charged.values, release.cost.worst.values)


# --- Whatever the budgets. ---


@given(BUDGETS, st.sampled_from(VARIANTS), st.sampled_from(MECHANISMS), st.data())
@settings(max_examples=30, deadline=None)
def test_a_batch_is_charged_at_most_its_price(budgets, variant, mechanism, data):
    n_teachers = data.draw(st.integers(20, 40))
    consent = consent_of(budgets, each=n_teachers)
    plan = make_plan(variant, consent, mechanism, n_teachers=n_teachers, seed=3)
    answered = data.draw(st.lists(st.booleans(), max_size=12))
    prices = plan.prices(len(answered), key="k")
    charges = plan.charges(np.array(answered, dtype=bool), key="k")
    assert isinstance(plan, PersonalPlan)
    assert plan.variant == variant
    assert list(prices) == list(charges) == [group.name for group in consent.groups]
    for name, price in prices.items():
        # The check and the answer are added in another order: the last digits may differ.
        assert np.all(charges[name].values <= price.values * (1 + 1e-12))
        assert np.all(np.isfinite(price.values))
    assert len(plan.summary) == 1 + len(consent.groups)


@given(BUDGETS, st.integers(0, 30), st.integers(0, 9))
def test_the_mechanism_is_scaled_to_the_votes(budgets, more, seed):
    n_teachers = len(budgets) + more
    consent = consent_of(budgets, each=n_teachers)
    plan = make_plan("weighting", consent, CONFIDENT, n_teachers=n_teachers, seed=seed)
    weights = plan.weights(5, key="q0")
    n_votes = n_teachers if weights is None else int(weights.sum())
    assert plan.n_votes == n_votes
    assert plan.mechanism == scaled(CONFIDENT, n_votes / n_teachers)
    assert [unit.linf for unit in plan.units] == list(plan.weight_of)
    if weights is not None:
        for own, weight in zip(plan.members, plan.weight_of, strict=True):
            assert np.all(weights[own] == weight)


def test_a_group_s_price_is_that_of_its_loudest_ballot_and_covers_the_exact_cost():
    groups = groups_of([0.7, 1.4, 2.1])
    plan = Weighting(groups, GNMax(6.0), 9, ranges((4, 3, 2)), weight_of=(1, 2, 3))
    ballots = np.random.default_rng(3).integers(3, size=(9, 25))
    votes = Votes.from_ballots(ballots, n_classes=3).weighted(plan.weights(25, key="q"))
    costs = teacher_costs(plan.mechanism, votes).reveal().max(axis=0)
    for own, price in zip(plan.members, plan.prices(25, key="q").values(), strict=True):
        assert np.all(costs[own].max(axis=0) <= price.values)
        assert np.any(costs[own].max(axis=0) >= 0.1 * price.values)


# --- Vanishing's schedule. ---


@given(
    st.lists(st.floats(0.01, 0.999), min_size=1, max_size=5),
    st.lists(st.integers(1, 12), min_size=6, max_size=6),
    st.integers(1, 60),
    st.integers(0, 50),
)
def test_the_schedule_is_even_and_stable(rare, sizes, n_queries, seed):
    often = (*rare, 1.0)
    sizes = sizes[: len(often)]
    members = ranges(sizes)
    groups = groups_of(range(1, len(often) + 1))
    plan = Vanishing(groups, NoisyHistogram(40.0), sum(sizes), members, often, seed=seed)
    weights = plan.weights(n_queries, key="q0")
    assert weights.shape == (sum(sizes), n_queries)
    assert set(np.unique(weights)) <= {0, 1}
    prices = plan.prices(n_queries, key="q0")
    for own, frequency, name in zip(members, often, prices, strict=True):
        took_part, voters = weights[own].sum(axis=1), weights[own].sum(axis=0)
        assert np.all(np.abs(took_part - frequency * n_queries) < 1 + 1e-6 + 1 / len(own))
        assert np.ptp(took_part) <= 1
        assert np.ptp(voters) <= 1
        assert np.all(np.abs(voters - frequency * len(own)) < 1)
        busiest = (plan.mechanism.price(Unit()) * int(took_part.max())).values
        assert np.array_equal(prices[name].values, busiest)
        assert took_part.max() <= plan.loss(n_queries) * frequency * n_queries + 1e-9
    assert weights.sum(axis=0).min() >= len(members[-1])  # somebody always votes
    again = plan.weights(n_queries, key="q0")
    assert np.array_equal(weights, again)


def test_the_schedule_follows_the_seed_the_key_and_the_group():
    groups, members = groups_of([0.7, 1.4]), ranges((20, 5))
    plan = Vanishing(groups, GNMax(40.0), 25, members, (0.25, 1.0), seed=7)
    other = Vanishing(groups, GNMax(40.0), 25, members, (0.25, 1.0), seed=8)
    assert not np.array_equal(plan.weights(8, key="a"), plan.weights(8, key="b"))
    assert not np.array_equal(plan.weights(8, key="a"), other.weights(8, key="a"))
    three = Vanishing(
        (*groups[:1], Group("gx", 0.9, 3), *groups[1:]),
        GNMax(40.0),
        30,
        (members[0], np.arange(25, 30), members[1]),
        (0.25, 0.5, 1.0),
        seed=7,
    )
    # One more group moves nobody else, and neither does one less.
    assert np.array_equal(three.weights(8, key="a")[:25], plan.weights(8, key="a"))
    assert np.array_equal(three.without(["gx"]).weights(8, key="a")[:25], plan.weights(8, key="a"))


def test_short_batches_have_everybody_in_them_sometimes():
    plan = Vanishing(groups_of([0.1, 1.0]), GNMax(40.0), 9, ranges((4, 5)), (0.01, 1.0), seed=7)
    # 500 batches of 5 hold 500 * 5 * 0.01 * 4 = 100 ballots of the rare on average, at most one each: the
    # deviation is below sqrt(80), and five of them are left to chance once in a million.
    cast = sum(int(plan.weights(5, key=f"q{n}")[:4].sum()) for n in range(500))
    assert 55 < cast < 145


def test_silence_costs_the_busiest_its_checks():
    plan = Vanishing(groups_of([0.7, 1.4]), CONFIDENT, 8, ranges((4, 4)), (0.25, 1.0), seed=7)
    assert plan.period == 4
    assert plan.loss(4) == plan.loss(8) == 1
    nothing = plan.charges(np.zeros(4, dtype=bool), key="q0")
    check = plan.mechanism.check_price(Unit())
    assert np.array_equal(nothing["g0"].values, check.values)
    assert np.array_equal(nothing["g1"].values, (check * 4).values)
    (answered,) = np.flatnonzero(plan.weights(4, key="q0")[0])
    one = plan.charges(np.arange(4) == answered, key="q0")
    assert np.array_equal(one["g0"].values, plan.mechanism.price(Unit()).values)


@pytest.mark.parametrize(
    ("often", "period"), [((0.25, 1.0), 4), ((4 / 9, 1.0), 9), ((1.0, 1.0), 1), ((1e-6, 1.0), 10**6)]
)
def test_batches_of_a_period_lose_nothing(often, period):
    plan = Vanishing(groups_of([0.7, 1.4]), GNMax(40.0), 27, ranges((9, 18)), often, seed=7)
    assert plan.period == period
    assert plan.loss(period) <= 1 + 1e-9


def test_odd_frequencies_have_a_period_that_loses_little():
    often = frequencies_for(groups_of([0.61, 0.77, 1.3]))
    plan = Vanishing(groups_of([0.61, 0.77, 1.3]), GNMax(40.0), 30, ranges((10, 10, 10)), often, seed=7)
    assert plan.loss(plan.period) <= 1.02 < min(plan.loss(n) for n in range(1, plan.period))


# --- Upsampling. ---


@given(
    st.lists(st.tuples(st.integers(0, 25), st.integers(0, 2)), min_size=1, max_size=60),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
    st.integers(1, 12),
    st.booleans(),
    st.integers(0, 20),
)
def test_copies_are_exact_and_never_meet(rows, copies, n_teachers, named, seed):
    level = dict(rows) if named else {}
    persons = [person for person, _ in rows] if named else None
    budgets = [[0.7, 1.4, 2.1][level[person] if named else at] for person, at in rows]
    consent = read_consent(budgets, delta=1e-5, persons=persons)
    copies = [min(number, n_teachers) for number in copies[: len(consent.groups)]]
    times = np.array(copies)[consent.group_of]
    if times.sum() < n_teachers and not named:
        with pytest.raises(ValueError, match="teachers"):
            upsampled_partition(consent, copies, n_teachers, seed=seed)
        return
    source, parts = upsampled_partition(consent, copies, n_teachers, seed=seed)
    assert np.array_equal(np.bincount(source, minlength=len(rows)), times[consent.persons])
    assert sorted(np.concatenate(parts.parts).tolist()) == list(range(source.size))
    assert parts.unit == ("one person" if named else "one record")
    seen = np.zeros(consent.n_persons, dtype=np.int64)
    n_rows_of = np.bincount(consent.persons)
    load = []
    for part in parts:
        people, n_rows = np.unique(consent.persons[source[part]], return_counts=True)
        assert np.array_equal(n_rows, n_rows_of[people])  # each of them once, with all their rows
        seen[people] += 1
        load.append(people.size)
    assert np.array_equal(seen, times)
    assert named or max(load) - min(load) <= 1
    assert parts.relation.n_teachers == max(1, times.max())
    assert bool(parts.notes) == (times.max() > 1)


def test_copies_beyond_the_teachers_are_refused_before_training():
    consent = read_consent([0.1] * 60 + [1.0] * 4, delta=1e-5)
    with pytest.raises(ValueError, match=r"at most as many copies as teachers, got 10 copies for 8 teachers"):
        make_plan("upsampling", consent, GNMax(40.0), n_teachers=5, seed=7)
    with pytest.raises(ValueError, match=r"at most as many copies as teachers, got 10 copies for 5 teachers"):
        make_plan("upsampling", consent, GNMax(40.0), n_teachers=5, seed=7, grow="shares")
    plan = make_plan("upsampling", consent, GNMax(40.0), n_teachers=5, seed=7, most=5)
    assert plan.copies_of == (1, 5)
    with pytest.raises(ValueError, match="at most one teacher per person, got 65 for 64"):
        make_plan("upsampling", consent, GNMax(40.0), n_teachers=65, seed=7)


def test_more_teachers_or_larger_shares():
    consent = read_consent([math.log(2)] * 100 + [math.log(4)] * 100, delta=1e-5)
    more = arrange("upsampling", consent, CONFIDENT, n_teachers=20, seed=7)
    assert more.plan.n_teachers == more.partition.n_teachers == 30
    assert more.plan.mechanism == scaled(CONFIDENT, 1.5)
    assert set(more.partition.sizes.tolist()) == {10}
    larger = arrange("upsampling", consent, CONFIDENT, n_teachers=20, seed=7, grow="shares")
    assert larger.plan.n_teachers == 20
    assert larger.plan.mechanism is CONFIDENT
    assert set(larger.partition.sizes.tolist()) == {15}
    table = np.arange(200) * 2
    assert np.array_equal(larger.rows(table), table[larger.source])
    for plan in (more.plan, larger.plan):
        assert [unit.n_ballots for unit in plan.units] == [0, 2]
        _, high = plan.prices(10, key="q0").values()
        assert np.array_equal(high.values, (plan.mechanism.price(Unit.of_ballots(2)) * 10).values)


# --- Groups leave. ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_who_has_left_is_charged_nothing_and_the_rest_go_on(variant):
    consent = consent_of([0.5, 1.0, 2.0], each=100)
    plan = make_plan(variant, consent, CONFIDENT, n_teachers=30, seed=7)
    rest = plan.without([plan.groups[1].name])
    assert [group.epsilon for group in rest.groups] == [0.5, 2.0]
    assert list(rest.prices(4, key="q")) == list(rest.charges(np.ones(4, dtype=bool), key="q"))
    assert "epsilon 1" not in rest.prices(4, key="q")
    if variant == "upsampling":
        assert rest.n_teachers == round(30 * 500 / 300)
        seating = assign_by_plan(rest, consent, seed=7)
        assert seating.partition.n_teachers == rest.n_teachers
        assert set(consent.group_of[seating.source].tolist()) == {0, 2}
        n_votes = rest.n_teachers
    else:
        weights = rest.weights(16, key="q")
        assert rest.n_teachers == 30
        assert weights[plan.members[1]].sum() == 0
        n_votes = weights.sum() if variant == "weighting" else weights.sum() / 16
        with pytest.raises(ValueError, match="before any group leaves"):
            assign_by_plan(rest, consent, seed=7)
    assert rest.mechanism.sigma == pytest.approx(40.0 * n_votes / 30)
    last = rest.without("epsilon 2")
    assert [group.epsilon for group in last.groups] == [0.5]
    # Alone, the strictest count as everybody did before: one vote each, always.
    assert last.units == (Unit(),)
    with pytest.raises(ValueError, match="at least one group to be left"):
        last.without(["epsilon 0.5"])
    with pytest.raises(ValueError, match="got 'epsilon 1'"):
        rest.without(["epsilon 1"])


# --- Slips. ---


def test_options_of_another_variant_are_refused():
    consent = consent_of([0.5, 1.0])
    for variant, option in (("weighting", {"power": 2.0}), ("vanishing", {"copies": [1, 2]})):
        with pytest.raises(ValueError, match=f"options of {variant}"):
            make_plan(variant, consent, GNMax(40.0), n_teachers=4, seed=7, **option)
    with pytest.raises(ValueError, match="options of upsampling"):
        make_plan("upsampling", consent, GNMax(40.0), n_teachers=4, seed=7, weights=[1, 2])
    with pytest.raises(ValueError, match="one of 'weighting', 'vanishing', 'upsampling', got 'louder'"):
        make_plan("louder", consent, GNMax(40.0), n_teachers=4, seed=7)
    with pytest.raises(TypeError, match="whole number of copies"):
        make_plan("upsampling", consent, GNMax(40.0), n_teachers=4, seed=7, copies=[1, 1.5])
    with pytest.raises(ValueError, match="seed"):
        make_plan("weighting", consent, GNMax(40.0), n_teachers=4, seed=-1)


def test_weights_and_copies_of_one_s_own():
    consent = consent_of([0.5, 1.0])
    plan = make_plan("weighting", consent, GNMax(40.0), n_teachers=4, seed=7, weights=[1.0, 1.7])
    assert plan.weight_of == (3, 5)
    plan = make_plan("weighting", consent, GNMax(40.0), n_teachers=4, seed=7, denominator=10)
    assert plan.weight_of == (10, 20)
    plan = make_plan("upsampling", consent, GNMax(40.0), n_teachers=4, seed=7, copies=[1, 3])
    assert plan.copies_of == (1, 3)
    assert plan.n_teachers == 8
    plan = make_plan("vanishing", consent, GNMax(40.0), n_teachers=4, seed=7, power=4)
    assert plan.frequency_of == (1 / 16, 1.0)


def test_plans_that_do_not_fit_together():
    groups, members = groups_of([0.5, 1.0]), ranges((2, 2))
    with pytest.raises(ValueError, match="a weight for each of 2"):
        Weighting(groups, GNMax(40.0), 4, members, weight_of=(1,))
    with pytest.raises(ValueError, match="weight of 'g0'"):
        Weighting(groups, GNMax(40.0), 4, members, weight_of=(0, 1))
    with pytest.raises(ValueError, match="a frequency for each of 2"):
        Vanishing(groups, GNMax(40.0), 4, members, frequency_of=(1.0,), seed=7)
    with pytest.raises(ValueError, match="vote always"):
        Vanishing(groups, GNMax(40.0), 4, members, frequency_of=(0.2, 0.5), seed=7)
    with pytest.raises(ValueError, match="frequency 0"):
        Vanishing(groups, GNMax(40.0), 4, members, frequency_of=(0.0, 1.0), seed=7)
    with pytest.raises(ValueError, match="copies for each of 2"):
        Upsampling(groups, GNMax(40.0), 4, copies_of=(1,))
    with pytest.raises(ValueError, match="copies of 'g0'"):
        Upsampling(groups, GNMax(40.0), 4, copies_of=(0, 1))
    with pytest.raises(ValueError, match="grow='teachers' or 'shares'"):
        Upsampling(groups, GNMax(40.0), 4, copies_of=(1, 2), grow="both")
    with pytest.raises(ValueError, match="in one group, got one in two"):
        require_members(groups, (np.arange(2), np.arange(1, 3)), 4)
    with pytest.raises(ValueError, match=r"teachers 0\.\.2"):
        require_members(groups, members, 3)
    with pytest.raises(ValueError, match="a teacher for group 'g1'"):
        require_members(groups, (np.arange(2), np.arange(0)), 2)
    with pytest.raises(ValueError, match="each of 2 groups, got 1"):
        require_members(groups, members[:1], 4)
    with pytest.raises(TypeError, match="one truth value per query"):
        Weighting(groups, GNMax(40.0), 4, members, weight_of=(1, 2)).charges([0, 1], key="q")


def test_a_stranger_s_check_is_charged_for_silence():
    class Stranger:
        def price(self, unit):
            return GNMax(40.0).price(unit) * 3

        def check_price(self, unit):
            return GNMax(40.0).price(unit)

    one = GNMax(40.0).price(Unit()).values
    values = charge(Stranger(), Unit(), n_queries=5, n_answered=2).values
    np.testing.assert_allclose(values, (3 + 2 * 3) * one)
    with pytest.raises(ValueError, match="at most 1 answered"):
        charge(Stranger(), Unit(), n_queries=1, n_answered=2)


def test_a_schedule_is_drawn_once_and_does_not_move():
    """Resumed runs draw it again from seed and key: it is the same in every version."""
    consent = read_consent(np.repeat(np.linspace(0.5, 5, 20), 500), delta=1e-5)
    plan = make_plan("vanishing", consent, GNMax(40.0), n_teachers=1000, seed=1)
    weights = plan.weights(37, key="ü")
    assert hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()[:12] == "5bd1654ba6d9"
    weights[:] = 9  # a caller's own copy
    assert plan.weights(37, key="ü").max() == 1
    begun = time.process_time()
    plan.prices(2000, key="q"), plan.weights(2000, key="q"), plan.charges(np.ones(2000, dtype=bool), key="q")
    assert time.process_time() - begun < 3  # 0.5 s; 15 s when every use drew it anew


def test_rows_are_still_seated_under_the_old_name():
    consent = read_consent([0.7, 1.4, 0.7, 1.4, 0.7, 0.7], delta=1e-5)
    plan = make_plan("weighting", consent, GNMax(40.0), n_teachers=3, seed=7)
    with pytest.deprecated_call(match="seat is now assign_by_plan"):
        old = personal.seat(plan, consent, seed=7)
    new = assign_by_plan(plan, consent, seed=7)
    assert isinstance(old, personal.Seating)
    assert [part.tolist() for part in old.partition] == [part.tolist() for part in new.partition]
