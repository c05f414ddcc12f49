"""The plan for publishing what groups cost: chosen on public votes, for everybody's sake."""

import math

import numpy as np
import pytest

from tellers import ConfidentGNMax, GNMax, RdpCurve, noise
from tellers.accounting import Consensus
from tellers.mechanisms import smooth_sensitivity
from tellers.runs import plan_group_publication
from tellers.runs.personal import Asked, make_plan, publish_group_costs, read_consent
from tellers.runs.personal.publishing import distances_of, group_sums, independent_group_costs

DELTA = 1e-5
CONSENT = read_consent([math.log(2)] * 60 + [math.log(4)] * 60, delta=DELTA)


def asked(variant, mechanism, *, n_queries, seed):
    plan = make_plan(variant, CONSENT, mechanism, n_teachers=60, seed=7)
    votes, _ = Consensus(agreement=0.9).votes(plan.n_teachers, 4, n_queries=n_queries, seed=seed)
    weights = plan.weights(n_queries, key=str(seed))
    votes = votes if weights is None else votes.weighted(weights)
    given = None if isinstance(mechanism, GNMax) else np.ones(n_queries, dtype=bool)
    return Asked(plan, votes, answered=given)


@pytest.mark.parametrize(
    "mechanism", [GNMax(12.0), ConfidentGNMax(12.0, 40, 20.0)], ids=["gnmax", "confident"]
)
@pytest.mark.parametrize("variant", ["weighting", "vanishing"])
def test_a_plan_is_worth_its_price_and_says_what_to_expect(variant, mechanism):
    proxy = asked(variant, mechanism, n_queries=400, seed=1)
    plan = plan_group_publication(proxy, n_queries=400, delta=DELTA, confidence=0.9)
    assert (plan.method, plan.confidence) == ("envelope", 0.9)
    run = asked(variant, mechanism, n_queries=400, seed=2)
    source = noise.seeded(3)
    shown = [publish_group_costs(run, source, plan=plan, delta=DELTA, allow_seeded=True) for _ in range(15)]
    names = [group.name for group in CONSENT.groups]
    median = {name: np.median([one[name].epsilon_upper for one in shown]) for name in names}
    public = {name: curve.epsilon(DELTA) for name, curve in independent_group_costs(run).items()}
    assert all(median[name] < public[name] for name in names)
    # What it expects is the median on the proxy, where the noise is at its own median of 0.
    cost = group_sums(proxy, order=plan.order, method="envelope")[names[-1]]
    smooth = smooth_sensitivity(cost.local, plan.beta / distances_of(proxy).n_steps)
    middle = cost.total + plan.z * smooth * plan.sigma_release + len(names) * plan.price
    expected = RdpCurve(np.array([plan.order]), np.array([middle])).epsilon(DELTA)
    assert plan.expected_epsilon == pytest.approx(expected, rel=1e-6)


def test_where_no_release_is_worth_its_price_there_is_none():
    few = asked("weighting", GNMax(12.0), n_queries=4, seed=1)
    plan = plan_group_publication(few, n_queries=4, delta=DELTA)
    assert plan.method == "independent"
    shown = publish_group_costs(few, noise.secure(), plan=plan, delta=DELTA)
    for name, curve in independent_group_costs(few).items():
        assert shown[name].epsilon_upper == curve.epsilon(DELTA)
        assert shown[name].charged == 0
    assert plan_group_publication(few, n_queries=4, delta=DELTA, method="independent") == plan
    named = plan_group_publication(few, n_queries=4, delta=DELTA, method="envelope")
    assert named.method == "envelope"


def test_the_papers_form_is_there_for_upsampling():
    proxy = asked("upsampling", GNMax(12.0), n_queries=40, seed=1)
    with pytest.raises(ValueError, match="Expected two classes"):
        plan_group_publication(proxy, n_queries=400, delta=DELTA)
    plan = plan_group_publication(proxy, n_queries=400, delta=DELTA, method="gnss")
    shown = publish_group_costs(proxy, noise.secure(), plan=plan, delta=DELTA)
    assert {one.covers for one in shown.values()} == {"forward direction"}
