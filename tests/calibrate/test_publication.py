"""Plans of a publication: made of the proxy alone, the best they tried, and safe if the proxy is off."""

import inspect
import math

import numpy as np
import pytest
from scipy.stats import binom

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, RdpCurve, Votes, exact_cost, noise
from tellers.accounting import Consensus, publish, release_price
from tellers.accounting._publishable import cost_and_sensitivities
from tellers.accounting.costs import independent_cost
from tellers.accounting.smooth import PublishPlan
from tellers.mechanisms import smooth_sensitivity
from tellers.runs import plan_publication

DELTA = 1e-5
PROXY = Consensus().votes(80, 4, n_queries=60, seed=7)[0]
MECHANISM = GNMax(10.0)


def median_epsilon(plan, mechanism, proxy, n_queries):
    """What a plan gives at its median on the proxy, put together from the parts it uses."""
    answered = proxy.top >= mechanism.threshold if isinstance(mechanism, ConfidentGNMax) else None
    scale = n_queries / len(proxy)
    offset = None if plan.offset is None else plan.offset / scale
    total, local = cost_and_sensitivities(
        mechanism, proxy, order=plan.order, method=plan.method, answered=answered, offset=offset
    )
    value = total + plan.z * smooth_sensitivity(local, plan.beta) * plan.sigma_release
    if offset is not None:
        value = offset * np.expm1(value)
    value = value * scale + plan.price
    return RdpCurve(np.array([plan.order]), np.array([value])).epsilon(DELTA)


@pytest.mark.parametrize(
    "mechanism", [MECHANISM, ConfidentGNMax(10.0, 50, 20.0), LNMax(0.1)], ids=lambda m: type(m).__name__
)
def test_a_plan_expects_what_it_gives_on_its_proxy(mechanism):
    for plan in plan_publication(mechanism, PROXY, n_queries=300, delta=DELTA):
        if plan.method == "independent":
            assert plan.expected_epsilon == independent_cost(
                mechanism, 300, n_teachers=80, n_classes=4
            ).epsilon(DELTA)
            assert plan.price == 0.0
        else:
            assert plan.expected_epsilon == pytest.approx(
                median_epsilon(plan, mechanism, PROXY, 300), rel=1e-6 if plan.offset is None else 1e-3
            )
            assert math.isfinite(plan.price)
            assert plan.confidence == 0.95


def test_two_sided_plans_come_first_and_the_best_of_them_leads():
    found = plan_publication(MECHANISM, PROXY, n_queries=300, delta=DELTA)
    assert [plan.method for plan in found] == ["envelope", "independent", "gnss"]
    assert found[0].expected_epsilon <= found[1].expected_epsilon
    few = plan_publication(MECHANISM, PROXY, n_queries=2, delta=DELTA)
    # For two queries the noise costs more than it saves.
    assert few[0].method == "independent"
    (asked,) = plan_publication(MECHANISM, PROXY, n_queries=300, delta=DELTA, method="gnss")
    assert asked == found[2]


def test_methods_follow_the_mechanism():
    interactive = InteractiveGNMax(10.0, 40, 20.0, 0.9)
    (plan,) = plan_publication(interactive, PROXY, n_queries=300, delta=DELTA)
    assert plan.method == "independent"
    assert {p.method for p in plan_publication(LNMax(0.1), PROXY, n_queries=300, delta=DELTA)} == {
        "gnss",
        "independent",
    }
    with pytest.raises(ValueError, match="Expected one of gnss, independent"):
        plan_publication(LNMax(0.1), PROXY, n_queries=300, delta=DELTA, method="envelope")


def test_no_plan_nearby_is_much_better():
    plan = plan_publication(MECHANISM, PROXY, n_queries=300, delta=DELTA)[0]
    for order in (plan.order - 1, plan.order, plan.order + 1):
        for beta in (plan.beta / 1.5, plan.beta, 1.5 * plan.beta):
            for sigma in (plan.sigma_release / 1.5, plan.sigma_release, 1.5 * plan.sigma_release):
                other = PublishPlan("envelope", order, beta, sigma, 0.95, 0.0, offset=plan.offset)
                if math.isfinite(other.price):
                    assert median_epsilon(other, MECHANISM, PROXY, 300) >= 0.98 * plan.expected_epsilon


def test_more_confidence_or_more_queries_cost_more():
    def expected(**changed):
        made = {"n_queries": 300, "delta": DELTA, "method": "envelope", **changed}
        return plan_publication(MECHANISM, PROXY, **made)[0].expected_epsilon

    assert expected(confidence=0.6) < expected(confidence=0.95) < expected(confidence=0.999)
    assert expected(n_queries=100) < expected(n_queries=300) < expected(n_queries=1000)
    assert expected(delta=1e-8) > expected(delta=1e-3)


def test_a_plan_is_a_function_of_the_proxy_alone():
    """The planner takes no private votes and no noise; the same proxy gives the same plan."""
    assert not {"votes", "noise"} & set(inspect.signature(plan_publication).parameters)
    again = Votes.from_ballots(np.array(PROXY.ballots), n_classes=4)
    shuffled = PROXY[np.random.default_rng(7).permutation(len(PROXY))]
    first = plan_publication(MECHANISM, PROXY, n_queries=300, delta=DELTA)
    assert plan_publication(MECHANISM, again, n_queries=300, delta=DELTA) == first
    for one, two in zip(
        first, plan_publication(MECHANISM, shuffled, n_queries=300, delta=DELTA), strict=True
    ):
        assert (one.method, one.order, one.beta, one.sigma_release) == (
            two.method,
            two.order,
            two.beta,
            two.sigma_release,
        )


def test_a_wrong_proxy_makes_the_value_larger_and_not_wrong():
    """Planned on easy votes, published on hard ones: still an upper value as often as it says.

    300 releases at confidence 0.9: more misses than this would be seen once in a million runs.
    """
    easy = Consensus(agreement=0.97).votes(80, 4, n_queries=60, seed=1)[0]
    hard = Consensus(agreement=0.6).votes(80, 4, n_queries=120, seed=2)[0]
    plan = plan_publication(MECHANISM, easy, n_queries=120, delta=DELTA, confidence=0.9, method="envelope")[0]
    order = np.array([plan.order])
    exact = exact_cost(MECHANISM, hard, orders=order).cost.reveal().values
    true = RdpCurve(order, exact + plan.price).epsilon(DELTA)
    source = noise.seeded(7)
    published = np.array(
        [
            publish(MECHANISM, hard, source, plan=plan, delta=DELTA, allow_seeded=True).epsilon_upper
            for _ in range(300)
        ]
    )
    assert np.sum(published < true) <= binom.isf(1e-6, 300, 0.1)
    assert np.median(published) > plan.expected_epsilon


def test_every_price_of_a_plan_is_the_price_of_its_release():
    for plan in plan_publication(MECHANISM, PROXY, n_queries=300, delta=DELTA):
        if plan.method != "independent":
            assert plan.price == release_price(
                plan.order, beta=plan.beta, sigma_release=plan.sigma_release, z=plan.z
            )


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="n_queries"):
        plan_publication(MECHANISM, PROXY, n_queries=0, delta=DELTA)
    with pytest.raises(ValueError, match="delta"):
        plan_publication(MECHANISM, PROXY, n_queries=10, delta=1.0)
    with pytest.raises(ValueError, match="confidence"):
        plan_publication(MECHANISM, PROXY, n_queries=10, delta=DELTA, confidence=1.0)
