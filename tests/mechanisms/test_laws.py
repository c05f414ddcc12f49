"""The laws of the noise, against their definitions and far into their tails."""

import math

import numpy as np
import pytest

from tellers import noise
from tellers.mechanisms._laws import ContinuousGaussian, DiscreteGaussian, DiscreteLaplace, gaussian_step

SIGMAS = [0.1, 0.3, 1.0, 3.7, 40.0, 150.0, 1e4]
LAWS = [
    *(pytest.param(DiscreteGaussian(s), s, id=f"gaussian-{s:g}") for s in SIGMAS),
    *(pytest.param(DiscreteLaplace(s), s, id=f"laplace-{s:g}") for s in SIGMAS),
]


def whole(reach, steps=1):
    return np.arange(-reach, reach + 1, steps, dtype=np.float64)


@pytest.mark.parametrize(("law", "scale"), LAWS)
def test_probabilities_sum_to_one(law, scale):
    x = whole(math.ceil(45 * scale) + 3)
    assert np.exp(law.log_density(x)).sum() == pytest.approx(1.0, abs=1e-11)


@pytest.mark.parametrize(("law", "scale"), LAWS)
def test_the_distribution_function_sums_the_density(law, scale):
    x = whole(math.ceil(12 * scale) + 3)
    # Sums of logs from the left keep relative accuracy; what lies further left is added in closed form below.
    far = np.arange(x[0] - math.ceil(40 * scale) - 3, x[0])
    start = np.logaddexp.reduce(law.log_density(far))
    expected = np.logaddexp.accumulate(np.concatenate([[start], law.log_density(x)]))[1:]
    np.testing.assert_allclose(law.log_cdf(x), np.minimum(expected, 0), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("law", "scale"), LAWS)
def test_ties_are_shared_evenly(law, scale):
    x = whole(min(math.ceil(6 * scale) + 2, 3000))
    below, at = np.exp(law.log_cdf(x - 1)), np.exp(law.log_density(x))
    for u in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(np.exp(law.log_cdf(x, u)), below + u * at, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(law.log_cdf(x, np.full(x.shape, 1.0)), law.log_cdf(x), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("law", "scale"), LAWS)
def test_both_sides_mirror_each_other(law, scale):
    x = whole(min(math.ceil(9 * scale) + 2, 5000))
    np.testing.assert_array_equal(law.log_density(x), law.log_density(-x))
    # P[X <= x] = P[X >= -x] = 1 - P[X <= -x - 1].
    np.testing.assert_allclose(np.exp(law.log_cdf(x)) + np.exp(law.log_cdf(-x - 1)), 1.0, atol=1e-12)
    assert np.exp(law.log_cdf(np.zeros(1), 0.5))[0] == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 40.0])
@pytest.mark.parametrize("distance", [5, 30, 5000])
def test_tails_are_accurate_where_floats_end(sigma, distance):
    mp = pytest.importorskip("mpmath")
    law = DiscreteGaussian(sigma)
    with mp.workdps(60):
        term = lambda x: mp.exp(-(mp.mpf(x) ** 2) / (2 * mp.mpf(sigma) ** 2))  # noqa: E731
        norm = 1 + 2 * mp.nsum(term, [1, mp.inf]) if sigma < 5 else mp.mpf(sigma) * mp.sqrt(2 * mp.pi)
        tail = sum(term(x) for x in range(distance, distance + math.ceil(15 * sigma) + 5)) / norm
        expected = float(mp.log(tail))
    assert law.log_cdf(np.array([-float(distance)]))[0] == pytest.approx(expected, rel=1e-11)
    # The upper end loses nothing either: log F = log(1 - tail).
    upper = law.log_cdf(np.array([distance - 1.0]))[0]
    assert upper == pytest.approx(float(mp.log1p(-tail)), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_the_laplace_is_geometric_on_both_sides(scale):
    law = DiscreteLaplace(scale)
    x = np.arange(-200.0, 200.0)
    np.testing.assert_allclose(np.abs(np.diff(law.log_density(x))), 1 / scale, rtol=1e-9)
    lower = law.log_cdf(np.arange(-300.0, 0.0))
    np.testing.assert_allclose(np.diff(lower), 1 / scale, rtol=1e-9)


@pytest.mark.parametrize(
    ("law", "draw"),
    [
        (DiscreteGaussian(2.5), lambda source: source.discrete_gaussian(2.5, 40_000)),
        (DiscreteLaplace(2.5), lambda source: source.discrete_laplace(2.5, 40_000)),
    ],
)
def test_the_law_is_that_of_the_sampler(law, draw):
    # The bound of Dvoretzky, Kiefer and Wolfowitz: false alarm 2 exp(-2 n d^2) = 1e-6.
    drawn = draw(noise.seeded(11))
    x = whole(40)
    seen = np.searchsorted(np.sort(drawn), x, side="right") / drawn.size
    assert np.abs(seen - np.exp(law.log_cdf(x))).max() < math.sqrt(math.log(2e6) / (2 * drawn.size))


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("law", [DiscreteGaussian, DiscreteLaplace, ContinuousGaussian])
@pytest.mark.parametrize("scale", [0.1, 1.0, 7.3, 40.0, 1e3])
def test_a_grid_sums_the_density_to_one(law, scale, n_classes):
    one = law(scale)
    grid = one.grid(-2.0, 30.0, n_classes=n_classes)
    for count in (0.0, 17.0):
        total = np.exp(one.log_density(grid.x - count) + grid.log_weight).sum()
        assert total == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("n_classes", [2, 10, 100])
def test_tail_nodes_sum_exponentials(n_classes):
    # In the tails of a Laplace the integrands are exponentials of rates 1/scale to m/scale.
    scale = 300.0
    grid = DiscreteLaplace(scale).grid(0.0, 0.0, n_classes=n_classes)
    for rate in (1 / scale, n_classes / scale):
        total = np.exp(-rate * np.abs(grid.x) + grid.log_weight).sum()
        assert total == pytest.approx(1 / math.tanh(rate / 2), rel=1e-9)


def test_the_step_is_a_quarter_of_sigma_for_few_classes():
    assert gaussian_step(40.0, 2) == gaussian_step(40.0, 10) == 10.0
    assert gaussian_step(40.0, 100) == pytest.approx(3.12)


def test_discrete_and_continuous_agree_for_wide_noise():
    x = whole(900)
    continuous = ContinuousGaussian(200.0).log_cdf(x)
    # A uniform tie-break puts half of the mass of x below it: the midpoint rule, off by 1/(24 sigma^2).
    np.testing.assert_allclose(DiscreteGaussian(200.0).log_cdf(x, 0.5), continuous, rtol=1e-4, atol=1e-9)
    assert np.all(np.isfinite(ContinuousGaussian(0.1).log_cdf(whole(5000))))


@pytest.mark.parametrize("law", [DiscreteGaussian, DiscreteLaplace, ContinuousGaussian])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "40"])
def test_bad_scales_are_refused(law, bad):
    with pytest.raises(ValueError, match="> 0 and finite"):
        law(bad)


def test_what_is_not_counted_in_votes_is_refused_before_it_fills_the_memory():
    with pytest.raises(ValueError, match="counted in votes"):
        DiscreteGaussian(3.0).log_cdf(np.array([1e11]))
    with pytest.raises(ValueError, match="counted in votes"):
        DiscreteGaussian(3.0).grid(0.0, 1e11, n_classes=2)
