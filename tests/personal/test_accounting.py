"""Costs per group: exact below published below price, for every variant, and depending on nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, RdpCurve, Unit, Votes, exact_cost
from tellers.accounting import teacher_costs
from tellers.accounting.costs import published_cost
from tellers.mechanisms import divergences
from tellers.mechanisms._flip_probability import log_q_gnmax
from tellers.mechanisms.published import gaussian_bound
from tellers.runs.personal import (
    Asked,
    Group,
    Upsampling,
    Vanishing,
    Weighting,
    arrange,
    published_rows,
    read_consent,
    weights_for,
)
from tellers.runs.personal.accounting import (
    labels_within_budgets,
    running_epsilons,
    teams_of,
    totals,
)

ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 20.0, 64.0])
DELTA = 1e-5
GROUPS = (Group("low", 0.7, 6), Group("high", 1.4, 6))
seeds = st.integers(0, 10**6)


def mechanisms(sigma, threshold):
    return {
        "gnmax": GNMax(sigma),
        "confident": ConfidentGNMax(sigma, threshold=threshold, sigma_threshold=1.5 * sigma),
        "interactive": InteractiveGNMax(
            sigma, threshold=threshold / 2, sigma_threshold=1.5 * sigma, student_confidence=0.9
        ),
    }


def record(variant, kind, seed, *, n_queries=5, sigma=6.0, n_classes=3):
    """Return what was asked of 12 teachers (or 18, upsampled), with ballots drawn from a seed."""
    rng = np.random.default_rng(seed)
    plain = mechanisms(sigma, 7.0)[kind]
    members = (np.arange(6), np.arange(6, 12))
    plan = {
        "weighting": lambda: Weighting(GROUPS, plain, 12, members, weight_of=(1, 2)),
        "vanishing": lambda: Vanishing(GROUPS, plain, 12, members, frequency_of=(0.5, 1.0), seed=seed),
        "upsampling": lambda: Upsampling(GROUPS, plain, 12, copies_of=(1, 2)),
    }[variant]()
    ballots = rng.integers(0, n_classes, (plan.n_teachers, n_queries))
    agree = rng.random(ballots.shape) < rng.random(n_queries)
    votes = Votes.from_ballots(np.where(agree, 0, ballots), n_classes=n_classes)
    weights = plan.weights(n_queries, key="q0")
    if weights is not None:
        votes = votes.weighted(weights)
    teams = None
    if variant == "upsampling":
        low = rng.permutation(plan.n_teachers)[:6, None]
        teams = (low, np.array([rng.permutation(plan.n_teachers)[:2] for _ in range(6)]))
    return Asked(
        plan,
        votes,
        answered=None if kind == "gnmax" else rng.random(n_queries) < 0.7,
        student=np.full(votes.counts.shape, 1 / n_classes) if kind == "interactive" else None,
        teams=teams,
    )


every_case = pytest.mark.parametrize(
    ("variant", "kind"),
    [(v, k) for v in ("weighting", "vanishing", "upsampling") for k in ("gnmax", "confident", "interactive")],
)


@every_case
@settings(max_examples=8)
@given(seed=seeds, sigma=st.sampled_from([2.0, 6.0, 20.0]))
def test_exact_below_published_below_price(variant, kind, seed, sigma):
    """Forward: exact <= Theorem 6 with q from the real noise <= price, which bounds the reverse as well.

    With a check, the published bound charges an answer only where one was given, and so is not above the
    exact cost of all outcomes: there it is compared query by query, with every query answered.
    """
    asked = record(variant, kind, seed, sigma=sigma)
    if kind != "gnmax":
        asked = Asked(asked.plan, asked.votes, np.ones(len(asked), bool), asked.student, asked.teams)
    histogram = [ORDERS * (unit.linf / asked.plan.mechanism.sigma) ** 2 for unit in asked.plan.units]
    every = [totals(asked, how, orders=ORDERS) for how in ("exact", "published", "public")]
    for exact, bound, price, answer, unit in zip(*every, histogram, asked.plan.units, strict=True):
        forward, reverse = exact.max(axis=1)
        published, public = bound.max(axis=(0, 1)), price.max(axis=(0, 1))
        assert (forward <= published * (1 + 1e-9) + 1e-12).all()
        assert (forward <= public * (1 + 1e-9)).all()
        assert (reverse <= public * (1 + 1e-9)).all()
        # Theorem 6 is capped by the noisy histogram's price; the arg max's own is below that one.
        cap = answer * len(asked)
        if kind != "gnmax":
            sigma_check = asked.plan.mechanism.sigma_threshold
            cap = cap + ORDERS * unit.linf**2 / (2 * sigma_check**2) * len(asked)
        assert (published <= cap * (1 + 1e-12)).all()


def test_q_belongs_to_the_noise_that_is_there():
    """Why the published bound takes q at sigma: at sigma / weight it is no bound."""
    ballots = np.repeat([0, 1], [160, 88])[:, None]
    weights = np.ones(248, dtype=np.int64)
    weights[-1] = 3
    votes = Votes.from_ballots(ballots, n_classes=2).weighted(weights)
    assert votes.counts.tolist() == [[160, 90]]
    exact = teacher_costs(GNMax(40.0), votes, orders=[8.0]).reveal()[0, -1, 0]
    unit, made = Unit.of_weight(3), {"answered": [True], "orders": [8.0]}
    plain = Votes.from_counts(votes.counts, n_teachers=250)
    sound = published_rows(GNMax(40.0), plain, unit, **made)[0, 0]
    printed = published_rows(GNMax(40.0), plain, unit, form="as_published", **made)[0, 0]
    assert printed == gaussian_bound(log_q_gnmax([[160, 90]], 40 / 3), 40 / 3, orders=[8.0])[0, 0]
    assert round(exact, 3) == 0.023
    assert round(printed, 4) == 0.0004
    assert printed < exact / 50
    assert exact <= sound <= 8 * (3 / 40) ** 2 + 1e-15


def test_as_published_does_not_depend_on_the_denominator():
    """The paper's weights are 1 on average; ours are whole. Its numbers come out whatever the denominator."""
    ballots = np.random.default_rng(0).integers(0, 2, (12, 40))
    plain = ConfidentGNMax(6.0, threshold=7.0, sigma_threshold=9.0)
    made = []
    for weights in ((1, 2), (5, 10)):
        members = (np.arange(6), np.arange(6, 12))
        plan = Weighting(GROUPS, plain, 12, members, weight_of=weights)
        votes = Votes.from_ballots(ballots, n_classes=2).weighted(plan.weights(40, key=""))
        made.append(totals(Asked(plan, votes, np.ones(40, bool)), "as_published", orders=ORDERS))
    for once, five_times in zip(*made, strict=True):
        # Thresholds are rounded up to whole votes, hence not to the last digit.
        assert np.allclose(once, five_times, rtol=0.02)


@every_case
def test_tables_charge_every_check_its_worst_case(variant, kind):
    """Between the sound bound and the worst case: continuous noise, and a check that looks at no vote."""
    asked = record(variant, kind, 2, n_queries=30, sigma=20.0)
    tables = totals(asked, "as_tabulated", orders=ORDERS)
    for sound, printed in zip(totals(asked, "published", orders=ORDERS), tables, strict=True):
        assert (sound <= printed * (1 + 1e-3)).all()


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
@pytest.mark.parametrize("kind", ["gnmax", "confident"])
def test_equal_budgets_are_plain_pate(variant, kind):
    rng = np.random.default_rng(1)
    plain = mechanisms(6.0, 7.0)[kind]
    votes = Votes.from_ballots(rng.integers(0, 3, (12, 30)), n_classes=3)
    mask = rng.random(30) < 0.6 if kind == "confident" else None
    group = (Group("all", 1.0, 12),)
    plan = {
        "weighting": lambda: Weighting(group, plain, 12, (np.arange(12),), weight_of=(1,)),
        "vanishing": lambda: Vanishing(group, plain, 12, (np.arange(12),), frequency_of=(1.0,), seed=1),
        "upsampling": lambda: Upsampling(group, plain, 12, copies_of=(1,)),
    }[variant]()
    assert plan.weights(30, key="q") is None
    asked, wanted = Asked(plan, votes, mask), exact_cost(plain, votes, orders=ORDERS)
    (exact,), (bound,) = (totals(asked, how, orders=ORDERS) for how in ("exact", "as_published"))
    assert np.array_equal(exact.max(axis=(0, 1)), wanted.cost.reveal().values)
    assert np.array_equal(exact[0].max(axis=0), wanted.forward.reveal().values)
    published = published_cost(plain, votes, orders=ORDERS, answered=mask)
    assert np.allclose(bound.max(axis=(0, 1)), published, rtol=1e-12)


@every_case
def test_public_costs_are_what_the_plan_charges(variant, kind):
    asked = record(variant, kind, 3, n_queries=8)
    charges = asked.plan.charges(asked.answered, key="q0")
    for group, costs in zip(asked.plan.groups, totals(asked, "public"), strict=True):
        assert np.allclose(costs.max(axis=(0, 1)), charges[group.name].values, rtol=1e-12)


@every_case
@settings(max_examples=10)
@given(seed=seeds)
def test_a_group_pays_for_tallies_and_its_own_ballots_only(variant, kind, seed):
    """What others do reaches a person's cost through the tally alone.

    So it stays, to the last bit, when the other group's ballots are dealt among that group's teachers anew:
    the tally is the same then. (It does move when the tally moves, as it must: the divergence is a function
    of it.)
    """
    asked = record(variant, kind, seed)
    rng = np.random.default_rng(seed)
    before = totals(asked, "exact", orders=ORDERS)
    for at in (0, 1):
        ballots = asked.votes.ballots.copy()
        weights = asked.votes.weights
        for query in range(len(asked)):
            if asked.plan.members:
                others = asked.plan.members[1 - at]
                if weights is not None and weights.ndim == 2:
                    others = others[weights[others, query] > 0]
            else:
                others = np.setdiff1d(np.arange(asked.plan.n_teachers), np.unique(asked.teams[at]))
            ballots[others, query] = ballots[rng.permutation(others), query]
        votes = Votes.from_ballots(ballots, n_classes=3)
        if weights is not None:
            votes = votes.weighted(weights)
        assert np.array_equal(votes.counts, asked.votes.counts)
        after = totals(
            Asked(
                asked.plan,
                votes,
                None if kind == "gnmax" else asked.answered,
                asked.student,
                asked.teams,
            ),
            "exact",
            orders=ORDERS,
        )
        assert np.array_equal(before[at], after[at])


@given(seed=seeds, kind=st.sampled_from(["gnmax", "confident"]))
def test_more_weight_costs_more(seed, kind):
    """At the same tally a louder ballot costs more at the price, and for GNMax as published."""
    mechanism = mechanisms(6.0, 7.0)[kind]
    counts = np.random.default_rng(seed).integers(0, 20, (4, 3))
    votes = Votes(counts, 20)
    made = {"answered": np.ones(4, bool), "orders": ORDERS}
    for fewer in (1, 2, 3):
        units = Unit.of_weight(fewer), Unit.of_weight(fewer + 1)
        quiet, loud = (published_rows(mechanism, votes, unit, **made) for unit in units)
        assert (quiet <= loud * (1 + 1e-9)).all()
        quiet, loud = (mechanism.price(unit).values for unit in units)
        assert (quiet <= loud * (1 + 1e-9)).all()


@given(seed=seeds)
def test_a_louder_ballot_costs_more_exactly(seed):
    """GNMax, forward: moving further along the same line only raises a convex function."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(4, 30, (3, 3))
    ballots = rng.integers(0, 3, 3)
    mechanism = GNMax(5.0)
    costs = []
    for weight in (1, 2, 3, 4):
        moved = mechanism.outcomes(Votes(counts, 90, None, Unit.of_weight(weight)))
        by_group = divergences(moved, orders=ORDERS)
        costs.append(by_group[0, np.arange(3), moved.of_class[np.arange(3), ballots]])
    for quiet, loud in itertools.pairwise(costs):
        assert (quiet <= loud * (1 + 1e-9) + 1e-13).all()


@every_case
def test_running_epsilons_end_where_the_run_does(variant, kind):
    asked = record(variant, kind, 4, n_queries=9)
    for accounting in ("exact", "published", "as_tabulated", "as_published", "public"):
        one_by_one = running_epsilons(asked, delta=DELTA, accounting=accounting, orders=ORDERS).reveal()
        by_four = running_epsilons(asked, delta=DELTA, accounting=accounting, orders=ORDERS, every=4).reveal()
        whole = totals(asked, accounting, orders=ORDERS)
        for name, costs in zip(("low", "high"), whole, strict=True):
            line = one_by_one[name]
            assert (np.diff(line) >= -1e-12).all()
            assert np.allclose(line[[3, 7, 8]], by_four[name], rtol=1e-9)
            epsilons = costs.max(axis=(0, 1)) + np.log1p(-1 / ORDERS)
            epsilons = epsilons - (np.log(DELTA) + np.log(ORDERS)) / (ORDERS - 1)
            assert np.isclose(line[-1], max(0.0, epsilons.min()), rtol=1e-9)


@pytest.mark.parametrize("accounting", ["exact", "published", "as_tabulated", "as_published", "public"])
@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_labels_within_budgets(variant, accounting):
    asked = record(variant, "confident", 5, n_queries=400, sigma=20.0)
    made = {"delta": DELTA, "accounting": accounting, "orders": np.arange(2, 51), "conversion": "classic"}
    found = labels_within_budgets(asked, **made).reveal()
    lines = running_epsilons(asked, **made).reveal()
    inside = np.all([lines[group.name] <= group.epsilon for group in GROUPS], axis=0)
    assert 0 < found.n_queries < 400
    assert inside[: found.n_queries].all()
    assert not inside[found.n_queries]
    assert found.n_labels == np.asarray(asked.answered)[: found.n_queries].sum()
    budget = {group.name: group.epsilon for group in GROUPS}[found.first_over]
    assert lines[found.first_over][found.n_queries] > budget


def test_all_queries_may_fit():
    asked = record("weighting", "gnmax", 5, n_queries=3, sigma=200.0)
    found = labels_within_budgets(asked, delta=DELTA).reveal()
    assert (found.n_queries, found.n_labels, found.first_over) == (3, 3, None)


def test_teams_come_from_the_seats():
    persons = np.repeat(np.arange(20), 2)
    budgets = np.where(persons < 10, 0.7, 2.1)
    consent = read_consent(budgets, delta=DELTA, persons=persons)
    seating = arrange("upsampling", consent, GNMax(4.0), n_teachers=5, seed=7)
    owners = consent.persons[seating.source]
    teams = teams_of(seating.partition, owners, group_of=consent.group_of, n_groups=2)
    assert [team.shape for team in teams] == [(10, 1), (10, 3)]
    for team, members in zip(teams, (range(10), range(10, 20)), strict=True):
        for teachers, person in zip(team, members, strict=True):
            rows = [set(seating.source[seating.partition[t]].tolist()) for t in teachers]
            assert all({2 * person, 2 * person + 1} <= held for held in rows)
    with pytest.raises(ValueError, match="equally many"):
        teams_of([[0], [1]], [0, 0], group_of=[0], n_groups=2)


def test_what_does_not_fit_together_is_refused():
    asked = record("weighting", "confident", 1)
    plan, votes, mask = asked.plan, asked.votes, asked.answered
    plain = Votes.from_ballots(votes.ballots, n_classes=3)
    with pytest.raises(ValueError, match="weighted as the plan says"):
        Asked(plan, plain, mask)
    with pytest.raises(ValueError, match="answered"):
        Asked(plan, votes)
    with pytest.raises(ValueError, match="one True or False per query"):
        Asked(plan, votes, [True])
    with pytest.raises(ValueError, match="student"):
        Asked(plan, votes, mask, student=np.full((5, 3), 1 / 3))
    with pytest.raises(ValueError, match="ballots of 12 teachers"):
        Asked(plan, Votes.from_counts([[6, 6]], n_teachers=12), [True])
    with pytest.raises(ValueError, match="accounting"):
        totals(asked, "guess")
    with pytest.raises(TypeError, match="LNMax"):
        Asked(Upsampling(GROUPS, LNMax(0.1), 12, copies_of=(1, 1)), plain)
    upsampled = record("upsampling", "gnmax", 1)
    with pytest.raises(ValueError, match="teams_of"):
        totals(Asked(upsampled.plan, upsampled.votes), "exact")
    with pytest.raises(ValueError, match="teams of"):
        Asked(upsampled.plan, upsampled.votes, teams=[[[0]], [[1]]])
    assert "private" in repr(upsampled)
    assert totals(upsampled[:1], "exact")[1].shape[0] == 2


@settings(max_examples=30)
@given(
    seed=seeds,
    n_groups=st.integers(1, 20),
    accounting=st.sampled_from(["exact"] * 9 + ["public"]),  # prices of new weights take a while
    votes_are=st.sampled_from(["random", "tied", "unanimous", "moody"]),
)
def test_nobody_is_above_their_budget(seed, n_groups, accounting, votes_are):
    """Any number of groups, any budgets, votes as bad as they come: counted again teacher by teacher."""
    rng = np.random.default_rng(seed)
    epsilons = np.sort(rng.uniform(0.3, 6.0, n_groups))
    groups = tuple(Group(f"g{at}", float(epsilon), 5) for at, epsilon in enumerate(epsilons))
    n_teachers, n_queries = 2 * n_groups, 30
    members = tuple(np.arange(2 * at, 2 * at + 2) for at in range(n_groups))
    plain = GNMax(float(rng.uniform(2.0, 30.0)))
    plan = Weighting(groups, plain, n_teachers, members, weight_of=weights_for(groups, precision=0.2))
    ballots = {
        "random": lambda: rng.integers(0, 3, (n_teachers, n_queries)),
        "tied": lambda: np.repeat(np.arange(n_teachers)[:, None] % 2, n_queries, axis=1),
        "unanimous": lambda: np.zeros((n_teachers, n_queries), dtype=np.int64),
        "moody": lambda: np.repeat(rng.integers(0, 3, n_queries)[None], n_teachers, axis=0),
    }[votes_are]()
    votes = Votes.from_ballots(ballots, n_classes=3)
    weights = plan.weights(n_queries, key="q")
    votes = votes if weights is None else votes.weighted(weights)
    asked = Asked(plan, votes)
    fits = labels_within_budgets(asked, delta=DELTA, accounting=accounting, orders=ORDERS).reveal()
    if fits.n_queries:
        spent = teacher_costs(plan.mechanism, votes[: fits.n_queries], orders=ORDERS).reveal().max(axis=0)
        for group, own in zip(groups, members, strict=True):
            for teacher in own:
                assert RdpCurve(ORDERS, spent[teacher]).epsilon(DELTA) <= group.epsilon * (1 + 1e-9)
    if fits.first_over is not None:
        over = totals(asked[: fits.n_queries + 1], accounting, orders=ORDERS)
        line = [RdpCurve(ORDERS, part.max(axis=(0, 1))).epsilon(DELTA) for part in over]
        assert any(epsilon > group.epsilon for epsilon, group in zip(line, groups, strict=True))
