"""The noise that is drawn is the noise that is priced.

Statistical tests use fixed seeds and reject at 1e-6 each (1e-9 for secure noise and OpenDP's, which
have no seed), so all sixty of them raise a false alarm for fewer than one choice of seeds in 15,000.
"""

import copy
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tellers import noise
from tellers.privacy.noise import _exp_coin, _exp_coins, _sampler, _Words

ALARM = 1e-6
N = 40_000
SMALL = 250  # stays on the path for single queries
SIGMAS = [0.3, 1, 2.5, 40, Fraction(7, 3)]
SCALES = [0.3, 1, 2.5, 20, Fraction(7, 3), 1 / Fraction(0.05)]
LAWS = [("gaussian", sigma) for sigma in SIGMAS] + [("laplace", scale) for scale in SCALES]


def pmf(law: str, parameter: float | Fraction) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    reach = int(60 * parameter) + 60
    x = np.arange(-reach, reach + 1)
    scaled = x / float(parameter)
    weights = np.exp(-(scaled**2) / 2) if law == "gaussian" else np.exp(-np.abs(scaled))
    return x, weights / weights.sum()


def draw(source: noise.Noise, law: str, parameter: float | Fraction, shape: noise.Shape) -> NDArray[np.int64]:
    method = source.discrete_gaussian if law == "gaussian" else source.discrete_laplace
    return method(parameter, shape)


def p_value(sample: NDArray[np.int64], x: NDArray[np.int64], p: NDArray[np.float64]) -> float:
    """Chi-square against an exact pmf, neighbouring values pooled until 10 are expected."""
    assert np.all((x[0] <= sample) & (sample <= x[-1]))
    observed = np.bincount(sample - x[0], minlength=x.size)
    pool = np.floor(np.cumsum(p) * sample.size / 10).astype(int)
    starts = np.flatnonzero(np.diff(pool, prepend=-1))
    expected = np.add.reduceat(p, starts) * sample.size
    counts = np.add.reduceat(observed, starts)
    if expected[-1] < 5:
        expected = np.append(expected[:-2], expected[-2:].sum())
        counts = np.append(counts[:-2], counts[-2:].sum())
    return float(stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), expected.size - 1))


def words_from(*words: int) -> _Words:
    """Words read from a list, one at a time, so that a test decides every bit."""
    left: Iterator[int] = iter(words)
    return _Words(lambda n: b"".join(next(left).to_bytes(8, "little") for _ in range(n // 8)), n_ahead=1)


@pytest.mark.parametrize(("law", "parameter"), LAWS)
def test_a_batch_follows_the_pmf(law, parameter):
    assert p_value(draw(noise.seeded(11), law, parameter, N), *pmf(law, parameter)) > ALARM


@pytest.mark.parametrize(("law", "parameter"), LAWS)
def test_single_queries_follow_the_pmf(law, parameter):
    source = noise.seeded(12)
    sample = np.concatenate([draw(source, law, parameter, SMALL) for _ in range(N // 2 // SMALL)])
    assert p_value(sample, *pmf(law, parameter)) > ALARM


@pytest.mark.parametrize(("law", "sigma"), [("gaussian", 0.01), ("gaussian", 1e5), ("laplace", 1e5)])
def test_extreme_scales(law, sigma):
    sample = draw(noise.seeded(13), law, sigma, 3000)
    if sigma < 1:  # a nonzero value has probability e^-5000
        assert not sample.any()
        return
    edges = (stats.norm if law == "gaussian" else stats.laplace).ppf(np.linspace(0, 1, 31)) * sigma
    counts = np.histogram(sample, np.nan_to_num(edges))[0]
    assert stats.chisquare(counts).pvalue > ALARM


def test_scales_beyond_every_float_still_work():
    source = noise.seeded(14)
    for tiny in (5e-324, Fraction(1, 10**400)):
        assert not source.discrete_gaussian(tiny, 300).any()
        assert not source.discrete_laplace(tiny, 300).any()
    assert np.abs(source.discrete_gaussian(2**40, 8)).max() > 2**36


def test_secure_noise_follows_the_pmf():
    sample = noise.secure().discrete_gaussian(40, N)
    assert p_value(sample, *pmf("gaussian", 40)) > 1e-9


@pytest.mark.parametrize(("law", "parameter"), [("gaussian", 2.5), ("laplace", 2.5)])
def test_neighbouring_draws_are_independent(law, parameter):
    x, p = pmf(law, parameter)
    sums = np.arange(2 * x[0], 2 * x[-1] + 1), np.convolve(p, p)
    sample = draw(noise.seeded(15), law, parameter, (N, 2)).sum(axis=1)
    assert p_value(sample, *sums) > ALARM


@pytest.mark.parametrize(("law", "parameter"), [*LAWS, ("gaussian", 0.07), ("gaussian", 1000.1)])
def test_the_two_paths_agree_bit_for_bit(law, parameter):
    sampler = _sampler(Fraction(parameter), law == "gaussian")
    one, many = (_Words(noise.seeded(16)._read, n_ahead=1) for _ in range(2))
    for _ in range(300):
        survivors = np.empty(0)
        while survivors.size == 0:
            survivors = sampler.many(1, many)
        assert [sampler.one(one)] == survivors.tolist()


@pytest.fixture
def short_blocks(monkeypatch):
    # With three digits a block, every eighth comparison is a tie: what takes 2^62 draws now happens.
    _sampler.cache_clear()
    monkeypatch.setattr(noise, "_BLOCK", 3)
    yield
    _sampler.cache_clear()


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize(("law", "parameter"), [("gaussian", 2.5), ("laplace", Fraction(7, 3))])
def test_ties_between_blocks_do_not_bend_the_law(law, parameter):
    source = noise.seeded(17)
    batch = draw(source, law, parameter, N)
    single = np.concatenate([draw(source, law, parameter, SMALL) for _ in range(N // 4 // SMALL)])
    assert p_value(batch, *pmf(law, parameter)) > ALARM
    assert p_value(single, *pmf(law, parameter)) > ALARM


@pytest.mark.parametrize("offsets", [(0, -1), (0, 1), (0, 0, -1), (0, 0, 1), (-1,), (1,)])
@pytest.mark.parametrize("fraction", [Fraction(1, 3), Fraction(1, 2), Fraction(2**70 - 1, 2**71)])
def test_equal_blocks_are_settled_by_the_next(fraction, offsets):
    blocks, rest = [], fraction
    for offset in offsets:
        digits, rest = divmod(rest * 2**62, 1)
        blocks.append(max(0, digits + offset))
    blocks += [2**62 - 1] * 4
    # The uniform real that the blocks spell decides the first coin, the last blocks make the second
    # a tail: an even number, so False.
    uniform = sum(Fraction(block, 2 ** (62 * place)) for place, block in enumerate(blocks, start=1))
    is_below = uniform < fraction
    words = [block << 2 for block in blocks]
    assert words_from(*words).below(*fraction.as_integer_ratio()) == is_below
    assert _exp_coin(*fraction.as_integer_ratio(), words_from(*words)) == (not is_below)
    first = np.array([fraction * 2**62 // 1], dtype=np.int64)
    batch = _exp_coins(first, lambda _: fraction.as_integer_ratio(), words_from(*words))
    assert batch.tolist() == [not is_below]


def test_agreement_with_opendp():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64"), size=N // 4), dp.l2_distance(T=float)
    for sigma in (1.0, 2.5, 40.0):
        theirs = np.array(dp.m.make_gaussian(domain, metric, scale=sigma)([0] * (N // 4)))
        ours = noise.seeded(18).discrete_gaussian(sigma, N // 4)
        edges = np.unique(np.quantile(ours, np.linspace(0, 1, 25)))[1:-1]
        table = [np.bincount(np.digitize(side, edges), minlength=edges.size + 1) for side in (ours, theirs)]
        assert stats.chi2_contingency(table).pvalue > 1e-9  # OpenDP has no seed


@pytest.mark.parametrize("sigma", SIGMAS)
def test_variance_is_at_most_that_of_the_gaussian(sigma):
    x, p = pmf("gaussian", sigma)
    variance = float(p @ x.astype(float) ** 2)
    assert variance <= float(sigma) ** 2 * (1 + 1e-12)
    sample = noise.seeded(19).discrete_gaussian(sigma, N).astype(float)
    error = np.sqrt((p @ x.astype(float) ** 4 - variance**2) / N)
    assert abs(np.mean(sample**2) - variance) < 5 * error  # 5 standard errors: about 6e-7


@pytest.mark.parametrize("sigma", [0.3, 1, 2.5, 40])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_renyi_divergence_is_at_most_that_of_the_gaussian(sigma, shift):
    # Summed over integers in log space; equality is possible, for instance at whole orders.
    x = np.arange(-int(600 * sigma) - 600, int(600 * sigma) + 601)
    log_p = -(x**2) / (2 * sigma**2)
    log_q = -((x - shift) ** 2) / (2 * sigma**2)
    total = np.logaddexp.reduce(log_p)
    for order in (1.25, 1.5, 2, 2.5, 7.3, 32):
        value = (np.logaddexp.reduce(order * log_p + (1 - order) * log_q) - total) / (order - 1)
        assert value <= order * shift**2 / (2 * sigma**2) * (1 + 1e-9)


def test_the_discrete_gaussian_is_not_gaussian_dp():
    # Total variation at shift 1: the Rényi comparison does not carry over to trade-off curves.
    for sigma in (1.0, 5.0, 40.0):
        x, p = pmf("gaussian", sigma)
        continuous = stats.norm.cdf(0.5 / sigma) - stats.norm.cdf(-0.5 / sigma)
        assert p[x == 0][0] > continuous * (1 + 0.9 / (24 * sigma**2))


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 64, 65])
def test_integers_below_are_uniform(bound):
    sample = noise.seeded(20).integers_below(np.full(N, bound))
    assert sample.dtype == np.int64
    assert p_value(sample, np.arange(bound), np.full(bound, 1 / bound)) > ALARM or bound == 1


def test_integers_below_mixed_and_large_bounds():
    bounds = np.array([[1, 2**62 + 1], [2**63 - 1, 7]])
    for seed in range(50):
        sample = noise.seeded(seed).integers_below(bounds)
        assert sample.shape == bounds.shape
        assert np.all((sample >= 0) & (sample < bounds))
    halves = noise.seeded(21).integers_below(np.full(N, 3 * 2**60)) // 2**60
    assert p_value(halves, np.arange(3), np.full(3, 1 / 3)) > ALARM
    assert noise.seeded(1).integers_below(np.empty(0, dtype=np.int64)).shape == (0,)


def test_ties_are_broken_uniformly_and_maxima_respected():
    noisy = np.tile(np.array([[5, 9, 9, 2, 9], [1, 0, -3, -9, -2], [-4, -4, -4, -4, -4]]), (N // 4, 1))
    winners = noise.seeded(22).break_ties(noisy)
    assert set(winners[1::3]) == {0}
    assert p_value(np.searchsorted([1, 2, 4], winners[0::3]), np.arange(3), np.full(3, 1 / 3)) > ALARM
    assert set(winners[0::3]) == {1, 2, 4}
    assert p_value(winners[2::3], np.arange(5), np.full(5, 1 / 5)) > ALARM
    assert noise.secure().break_ties(np.empty((0, 3), dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("bad", [float("nan"), 0, -1, -0.5, float("inf"), True, "3", None, 2**41, 1e300])
def test_bad_parameters_are_refused(bad):
    for law in ("gaussian", "laplace"):
        with pytest.raises(ValueError, match="Expected s"):
            draw(noise.seeded(1), law, bad, 3)


def test_other_bad_arguments_are_refused():
    source = noise.seeded(1)
    with pytest.raises(TypeError):
        source.discrete_gaussian(np.array(3.0), 2)  # type: ignore[arg-type]
    for shape in (-1, (2, -3)):
        with pytest.raises(ValueError, match="negative"):
            source.discrete_gaussian(1, shape)
    with pytest.raises(ValueError, match="every bound >= 1"):
        source.integers_below(np.array([3, 0]))
    with pytest.raises(TypeError, match="bounds as int64, got float64"):
        source.integers_below(np.array([3.0]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="noisy counts as int64"):
        source.break_ties(np.array([[0.5, 1.5]]))  # type: ignore[arg-type]
    for shape in ((3,), (2, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match="queries x classes"):
            source.break_ties(np.zeros(shape, dtype=np.int64))
    for seed in (-1, True, "7", None):
        with pytest.raises(ValueError, match="whole number seed >= 0"):
            noise.seeded(seed)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        noise.seeded(7.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        noise.seeded()  # type: ignore[call-arg]


@pytest.mark.parametrize("shape", [0, 5, (), (0, 4), (3, 0), (2, 3), (20, 30), np.int64(4)])
def test_shapes(shape):
    expected = np.empty(shape).shape
    for source in (noise.seeded(3), noise.secure()):
        for sample in (source.discrete_gaussian(2.5, shape), source.discrete_laplace(2.5, shape)):
            assert sample.shape == expected
            assert sample.dtype == np.int64
        assert source.gaussian(shape).shape == expected
        assert source.gaussian(shape).dtype == np.float64


def test_number_types_mean_the_same_number():
    draws = [
        noise.seeded(4).discrete_gaussian(sigma, 20)
        for sigma in (4, 4.0, Fraction(4), np.float64(4), np.int64(4), np.float32(4))
    ]
    assert all(np.array_equal(draws[0], other) for other in draws)


def test_seeds_reproduce_whatever_is_cached():
    def run(seed):
        source = noise.seeded(seed)
        return [source.discrete_gaussian(40.5, 1000), source.discrete_laplace(3, 10), source.gaussian(5)]

    _sampler.cache_clear()
    first, again, other = run(5), run(5), run(6)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(("source", "name"), [(noise.secure(), "secure"), (noise.seeded(1), "seeded")])
def test_names(source, name):
    assert source.name == name
    assert source.is_secure == (name == "secure")
    assert repr(source) == f"Noise({name})"
    with pytest.raises(AttributeError):
        source.is_secure = True


def test_float_normals():
    sample = noise.seeded(23).gaussian(N)
    assert stats.kstest(sample, "norm").pvalue > ALARM
    # The ends of the grid: finite, symmetric, and never the infinities of 0 and 1.
    low, high = (noise.Noise(lambda n, w=w: w.to_bytes(8, "little")).gaussian(()) for w in (0, 1))
    assert low == -high
    assert 8.2 < high < 8.4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_draws_its_own_noise():
    source = noise.secure()
    source.discrete_gaussian(1000, 10)  # whatever was read ahead must not be shared
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sender, source.discrete_gaussian(1000, 10).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(receiver, 80), dtype=np.int64)
    os.close(receiver)
    os.close(sender)
    assert theirs.size == 10
    assert not np.array_equal(theirs, source.discrete_gaussian(1000, 10))


def test_copies_carry_no_secret_bytes():
    source = noise.secure()
    source.discrete_gaussian(1000, 10)
    for twin in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source)):
        assert twin.is_secure
        assert not np.array_equal(twin.discrete_gaussian(1000, 10), source.discrete_gaussian(1000, 10))
    # A copy of a seeded source is a copy: it repeats the stream from where it was made.
    seeded = noise.seeded(8)
    seeded.discrete_gaussian(1000, 10)
    twin = pickle.loads(pickle.dumps(seeded))
    assert np.array_equal(twin.discrete_gaussian(1000, 10), seeded.discrete_gaussian(1000, 10))


@pytest.mark.parametrize("source", [noise.secure(), noise.seeded(9)])
def test_threads_never_share_a_word(source):
    bounds = np.full(500, 2**63 - 1)
    with ThreadPoolExecutor(4) as pool:
        draws = np.concatenate(list(pool.map(lambda _: source.integers_below(bounds), range(40))))
    assert np.unique(draws).size == draws.size  # a repeat has probability 2e-11
