"""The price of a published cost, against integrals; what is published, and how often it is too low."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, RdpCurve, Votes, exact_cost, noise
from tellers.accounting import Consensus, price_2018, publish, release_price
from tellers.accounting._publishable import cost_and_sensitivities
from tellers.accounting.costs import independent_cost
from tellers.accounting.smooth import PublishedEpsilon, PublishPlan, release_prices
from tellers.errors import InsecureNoise
from tellers.mechanisms import smooth_sensitivity

DELTA = 1e-5


def gaussian_divergence(mean, deviation, mean_there, deviation_there, order):
    """The Rényi divergence of two Gaussians by numerical integration, from the definition."""

    def log_integrand(x):
        here = -0.5 * ((x - mean) / deviation) ** 2 - math.log(deviation)
        there = -0.5 * ((x - mean_there) / deviation_there) ** 2 - math.log(deviation_there)
        return order * here + (1 - order) * there

    # The integrand is Gaussian: find its centre and width, integrate around it, scaled to 1 at the top.
    precision = order / deviation**2 + (1 - order) / deviation_there**2
    if precision <= 0:
        return math.inf
    centre = (order * mean / deviation**2 + (1 - order) * mean_there / deviation_there**2) / precision
    width, top = precision**-0.5, log_integrand(centre)
    integral, _ = quad(lambda t: math.exp(log_integrand(centre + width * t) - top), -40, 40, epsabs=1e-13)
    return (math.log(integral * width) + top - 0.5 * math.log(2 * math.pi)) / (order - 1)


def searched_price(order, beta, sigma, z):
    """The worst pair of neighbours by search and integration: S = 1 here, r there, both signs of the move."""
    worst = 0.0
    for log_r in np.linspace(-beta, beta, 81):
        r = math.exp(log_r)
        for sign in (-1, 1):
            mean_there = sign * min(1.0, r) + z * sigma * r
            worst = max(worst, gaussian_divergence(z * sigma, sigma, mean_there, sigma * r, order))
    return worst


# The price --------------------------------------------------------------------------------------------------


def test_the_printed_price_of_2018_is_too_low():
    true = gaussian_divergence(0.0, 5.0, math.exp(-0.04), 5.0 * math.exp(-0.04), 10.0)
    assert true == pytest.approx(0.836, abs=5e-4)
    assert price_2018(10, beta=0.04, sigma_release=5.0) == pytest.approx(0.567, abs=5e-4)
    assert release_price(10, beta=0.04, sigma_release=5.0) == pytest.approx(true, rel=2e-5)
    assert release_price(10, beta=0.04, sigma_release=5.0) >= true


def test_for_small_beta_the_true_price_is_half_the_printed_one():
    price = release_price(3, beta=1e-4, sigma_release=1.0)
    assert price == pytest.approx(price_2018(3, beta=1e-4, sigma_release=1.0) / 2, rel=2e-3)
    assert price == pytest.approx(3 / 2, rel=2e-3)


@pytest.mark.parametrize("order", [1.5, 3.0, 12.0, 40.0])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize(
    ("sigma", "z"), [(2.0, 0.0), (30.0, 0.0), (2.0, 1.645), (30.0, 1.645), (300.0, 2.33)]
)
def test_the_price_is_the_worst_integral(order, share, sigma, z):
    beta = share * 0.5 * math.log(order / (order - 1))
    searched = searched_price(order, beta, sigma, z)
    price = release_price(order, beta=beta, sigma_release=sigma, z=z)
    assert searched <= price * (1 + 1e-9)
    assert searched >= price * (1 - 2e-3)


def test_a_shift_down_costs_as_much_as_a_shift_up():
    # A confidence below one half lowers the value; the shift moves with the scale all the same.
    for order, beta, sigma in itertools.product((3.0, 12.0), (0.005, 0.02), (5.0, 60.0)):
        up = release_price(order, beta=beta, sigma_release=sigma, z=1.0)
        down = release_price(order, beta=beta, sigma_release=sigma, z=-1.0)
        assert down >= searched_price(order, beta, sigma, -1.0) * (1 - 1e-9)
        assert down == pytest.approx(up)


def test_the_price_is_infinite_where_the_divergence_is():
    limit = 0.5 * math.log(10 / 9)
    assert math.isfinite(release_price(10, beta=0.999 * limit, sigma_release=5.0))
    assert release_price(10, beta=1.001 * limit, sigma_release=5.0) == math.inf
    assert price_2018(10, beta=0.05, sigma_release=5.0) == math.inf


def test_prices_fall_with_noise_and_grow_with_everything_else():
    betas, sigmas = np.geomspace(1e-4, 0.03, 12), np.geomspace(0.5, 1000, 25)
    plain = release_prices(12.0, betas=betas, sigmas=sigmas)
    raised = release_prices(12.0, betas=betas, sigmas=sigmas, z=1.645)
    assert plain.shape == (12, 25)
    assert np.all(np.diff(plain, axis=0) >= 0)
    assert np.all(np.diff(plain, axis=1) <= 0)
    assert np.all(raised >= plain)
    assert plain[3, 4] == release_price(12.0, beta=betas[3], sigma_release=sigmas[4])


@pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"sigma_release": -1.0}, {"order": 1.0}])
def test_wrong_arguments_of_a_price(wrong):
    arguments = {"order": 8.0, "beta": 0.01, "sigma_release": 5.0, **wrong}
    with pytest.raises(ValueError, match="Expected"):
        release_price(arguments.pop("order"), **arguments)


# The plan ---------------------------------------------------------------------------------------------------


def plan(**changed):
    made = {
        "method": "envelope",
        "order": 8.0,
        "beta": 0.02,
        "sigma_release": 4.0,
        "confidence": 0.95,
        "expected_epsilon": 1.0,
    }
    return PublishPlan(**{**made, **changed})


def test_a_plan_knows_its_shift_and_its_price():
    assert plan().z == pytest.approx(1.6449, abs=1e-4)
    assert plan().price == release_price(8.0, beta=0.02, sigma_release=4.0, z=plan().z)
    assert plan(method="independent").z == plan(method="independent").price == 0.0


# What is published ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def votes():
    return Consensus(agreement=0.85).votes(60, 4, n_queries=80, seed=7)[0]


def test_seeded_noise_is_refused(votes):
    with pytest.raises(InsecureNoise, match="seeded"):
        publish(GNMax(8.0), votes, noise.seeded(7), plan=plan(), delta=DELTA)
    shown = publish(GNMax(8.0), votes, noise.seeded(7), plan=plan(), delta=DELTA, allow_seeded=True)
    again = publish(GNMax(8.0), votes, noise.seeded(7), plan=plan(), delta=DELTA, allow_seeded=True)
    assert shown == again
    assert publish(GNMax(8.0), votes, noise.secure(), plan=plan(), delta=DELTA).epsilon_upper > 0


def test_what_is_published_is_the_noisy_sum_its_price_and_nothing_private(votes):
    mechanism, source = GNMax(8.0), noise.seeded(7)
    z = float(noise.seeded(7).gaussian(()))
    total, local = cost_and_sensitivities(mechanism, votes, order=8.0, method="envelope")
    value = total + smooth_sensitivity(local, 0.02) * 4.0 * (plan().z + z)
    published = publish(mechanism, votes, source, plan=plan(), delta=DELTA, allow_seeded=True)
    expected = RdpCurve(np.array([8.0]), np.array([value + plan().price])).epsilon(DELTA)
    # Rounded up to a grid of 1e-6, which hides the low bits of the noise.
    assert expected <= published.epsilon_upper <= expected + 1.01e-6
    assert published.charged == plan().price
    assert (published.order, published.confidence, published.delta) == (8.0, 0.95, DELTA)
    assert {field.name for field in dataclasses.fields(PublishedEpsilon)} == {
        *("epsilon_upper", "delta", "confidence", "order", "method", "charged", "covers")
    }


def test_which_directions_are_covered(votes):
    made = {"delta": DELTA, "allow_seeded": True}
    envelope = publish(GNMax(8.0), votes, noise.seeded(1), plan=plan(), **made)
    forward = publish(GNMax(8.0), votes, noise.seeded(1), plan=plan(method="gnss"), **made)
    laplace = publish(LNMax(0.1), votes, noise.seeded(1), plan=plan(method="gnss"), **made)
    assert envelope.covers == "both directions"
    assert forward.covers == laplace.covers == "forward direction"


def test_earlier_publications_are_added(votes):
    made = {"plan": plan(), "delta": DELTA, "allow_seeded": True}
    first = publish(GNMax(8.0), votes, noise.seeded(1), **made)
    second = publish(GNMax(8.0), votes, noise.seeded(1), charged_before=first.charged, **made)
    assert second.epsilon_upper == pytest.approx(first.epsilon_upper + first.charged, abs=1e-12)


def test_the_public_price_caps_the_value_and_is_there_without_noise(votes):
    mechanism = GNMax(8.0)
    public = independent_cost(mechanism, len(votes))
    wild = plan(sigma_release=1e6, beta=1e-4)
    published = publish(mechanism, votes, noise.seeded(2), plan=wild, delta=DELTA, allow_seeded=True)
    cap = public.values[np.flatnonzero(public.orders == 8.0)[0]] + wild.price
    assert published.epsilon_upper <= RdpCurve(np.array([8.0]), np.array([cap])).epsilon(DELTA)
    free = publish(
        mechanism,
        votes,
        noise.seeded(1),
        plan=plan(method="independent", confidence=0.5),
        delta=DELTA,
        allow_seeded=True,
    )
    assert (free.epsilon_upper, free.charged, free.confidence) == (public.epsilon(DELTA), 0.0, 1.0)


@pytest.mark.parametrize("order", [7.3, 511.0, 600.0])
def test_the_order_of_a_plan_need_not_be_on_the_grid(votes, order):
    chosen = plan(order=order, beta=0.2 * math.log(order / (order - 1)))
    published = publish(GNMax(200.0), votes, noise.seeded(1), plan=chosen, delta=DELTA, allow_seeded=True)
    assert math.isfinite(published.epsilon_upper)


def test_silence_that_happened_does_not_lower_the_cap():
    # The price of the answers that were given is no bound on the divergence: other answers were possible.
    votes = Votes.from_counts([[51, 49]] * 400, n_teachers=100)
    mechanism, nobody = ConfidentGNMax(10.0, 51, 20.0), np.zeros(400, dtype=bool)
    made = {"delta": DELTA, "allow_seeded": True}
    for method in ("envelope", "independent"):
        chosen = plan(method=method)
        quiet = publish(mechanism, votes, noise.seeded(1), plan=chosen, answered=nobody, **made)
        plain = publish(mechanism, votes, noise.seeded(1), plan=chosen, **made)
        assert quiet == plain


def test_mechanisms_without_the_method_are_refused(votes):
    for mechanism in (LNMax(0.1), InteractiveGNMax(8.0, 10, 8.0, 0.9)):
        with pytest.raises(ValueError, match="Expected one of"):
            publish(mechanism, votes, noise.secure(), plan=plan(), delta=DELTA)
    with pytest.raises(ValueError, match="delta"):
        publish(GNMax(8.0), votes, noise.secure(), plan=plan(), delta=0.0)


def test_a_cost_that_cannot_move_is_published_as_it_is():
    # Two teachers and noise of 200 votes: every gap costs the same, S is nearly 0, and so is the noise.
    votes = Votes.from_counts([[2, 0, 0], [1, 1, 0]], n_teachers=2)
    total, local = cost_and_sensitivities(GNMax(200.0), votes, order=8.0, method="envelope")
    published = publish(GNMax(200.0), votes, noise.seeded(1), plan=plan(), delta=DELTA, allow_seeded=True)
    expected = RdpCurve(np.array([8.0]), np.array([total + plan().price])).epsilon(DELTA)
    assert local[0] < 1e-3 * total
    assert published.epsilon_upper == pytest.approx(expected, abs=1e-4)


# Coverage ---------------------------------------------------------------------------------------------------

# How often the published value may be too low before the test says so: past this count a run in which each
# release fails with probability 1 - confidence, independently, ends up once in a million.
N_RELEASES, FALSE_ALARMS = 150, 1e-6


def most_misses(confidence):
    return int(binom.isf(FALSE_ALARMS, N_RELEASES, 1 - confidence))


@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize(
    "mechanism", [GNMax(8.0), ConfidentGNMax(8.0, 35, 12.0)], ids=lambda m: type(m).__name__
)
def test_published_values_are_upper_values_as_often_as_they_say(votes, mechanism, confidence):
    chosen = plan(confidence=confidence)
    order = np.array([chosen.order])
    exact = exact_cost(mechanism, votes, orders=order).cost.reveal().values
    total, _ = cost_and_sensitivities(mechanism, votes, order=chosen.order, method="envelope")
    assert exact[0] <= total
    of_envelope = RdpCurve(order, np.array([total]) + chosen.price).epsilon(DELTA)
    of_exact = RdpCurve(order, exact + chosen.price).epsilon(DELTA)
    source = noise.seeded(7)
    published = np.array(
        [
            publish(mechanism, votes, source, plan=chosen, delta=DELTA, allow_seeded=True).epsilon_upper
            for _ in range(N_RELEASES)
        ]
    )
    assert np.sum(published < of_envelope) <= most_misses(confidence)
    assert np.sum(published < of_exact) <= most_misses(confidence)
    # And it is noise, not a constant far above: the median is near what the plan's shift makes of the sum.
    assert np.sum(published < of_envelope) >= N_RELEASES * (1 - confidence) / 3
    assert np.unique(published).size > N_RELEASES / 2
