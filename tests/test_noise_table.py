"""Noise read off a table has exactly the law of the noise from coins.

Thresholds are compared with a law computed in decimal arithmetic, to far more digits than a word has.
Statistical tests use fixed seeds and reject at 1e-6 each, so that all sixty raise a false alarm for fewer
than one choice of seeds in 15,000. Every check is tried on faults that it has to find.
"""

import bisect
import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from tellers import noise
from tellers.privacy._noise_table import LARGEST, WORD, Table, Thresholds, exp_between, table, thresholds

ALARM = 1e-6
N = 40_000
LAWS = [("gaussian", sigma) for sigma in (0.3, 0.5, 1, 2.5, 40, 0.1 + 0.2, Fraction(7, 3))]
LAWS += [("laplace", scale) for scale in (0.3, 1, 2.5, Fraction(7, 3), 1 / Fraction(0.05))]
DIGITS = 140


def exact(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


@lru_cache
def cumulative(law: str, parameter: float | Fraction) -> tuple[int, list[Fraction]]:
    """Return -n and F(-n), ..., F(n) to 130 digits, by plain sums of decimal exponentials."""
    with localcontext(prec=DIGITS):
        scale, weights, x = Fraction(parameter), [], 0
        while not weights or weights[-1] > Decimal(10) ** (2 - DIGITS):
            exponent = Fraction(x * x) / (2 * scale**2) if law == "gaussian" else x / scale
            weights.append((-exact(exponent)).exp())
            x += 1
        both = weights[:0:-1] + weights
        total = sum(both)
        return 1 - x, [Fraction(each / total) for each in itertools.accumulate(both)]


def misplaced(found: Thresholds, law: str, parameter: float | Fraction, bits: int) -> list[int]:
    """Return the values whose threshold is not between its two ends, or further than one word from either."""
    first, f = cumulative(law, parameter)
    wrong = []
    for i, (low, high) in enumerate(zip(found.lower, found.upper, strict=True)):
        x = found.first + i
        # Where the decimals say 1, F is above 1 - 2^-bits: its first digits are all ones.
        digits = min(int(f[x - first] * 2**bits), 2**bits - 1) if x - first < len(f) else 2**bits - 1
        if not low <= digits <= high or high - low > 1:
            wrong.append(x)
    return wrong


def expected(law: str, parameter: float | Fraction, uniform: Fraction) -> int:
    first, f = cumulative(law, parameter)
    return first + bisect.bisect_right(f, uniform)


def planted(*words: int) -> Callable[[int], bytes]:
    """Return a source that gives these words, then zeros; a batch reads four first digits in a word."""
    left = iter(words)
    return lambda n: b"".join(next(left, 0).to_bytes(8, "little") for _ in range(n // 8))


def p_value(sample: np.ndarray, law: str, parameter: float | Fraction) -> float:
    """Chi-square against the decimal law, neighbouring values pooled until 10 are expected."""
    first, f = cumulative(law, parameter)
    pool = [int(each * sample.size / 10) for each in f]
    ends = [i for i in range(len(f) - 1) if pool[i] != pool[i + 1]][:-1]
    inner = np.array([float(f[i]) for i in ends])
    expected = np.diff(inner, prepend=0, append=1) * sample.size
    edges = np.array([-np.inf, *(first + i + 0.5 for i in ends), np.inf])
    if not ends:
        return 1.0
    return float(stats.chisquare(np.histogram(sample, edges)[0], expected).pvalue)


@pytest.mark.parametrize("bits", [20, 64, 300])
@pytest.mark.parametrize(
    "x", [Fraction(1, 10**400), Fraction(1, 3), Fraction(1, 2), 1, Fraction(0.05), 7, 63, 64, 65, 299, 10**9]
)
def test_exponentials_are_enclosed(x, bits):
    low, high = exp_between(Fraction(x), bits)
    with localcontext(prec=200):
        value = Fraction((-exact(Fraction(x))).exp()) * 2**bits
    assert low <= value <= high
    assert high - low <= 2


@pytest.mark.parametrize(("law", "parameter"), [*LAWS, ("gaussian", 400.25), ("gaussian", 0.01)])
@pytest.mark.parametrize("bits", [8, 64, 192])
def test_thresholds_enclose_the_law(law, parameter, bits):
    found = thresholds(Fraction(parameter), law == "gaussian", bits)
    assert misplaced(found, law, parameter, bits) == []
    # Every word lies inside, and what nothing decides is rare.
    assert found.lower[0] == 0
    assert found.upper[-1] == 2**bits - 1
    assert sum(high - low for low, high in zip(found.lower, found.upper)) <= max(1, len(found.lower) // 500)


def test_a_threshold_that_is_one_off_is_found():
    found = thresholds(Fraction(40), True, WORD)
    for i in range(100, 600, 7):
        for offset in (-1, 1):
            low, high = list(found.lower), list(found.upper)
            low[i] = high[i] = found.upper[i] + offset
            assert misplaced(Thresholds(found.first, low, high), "gaussian", 40, WORD) == [found.first + i]


@pytest.mark.parametrize(("law", "parameter"), LAWS)
def test_first_digits_decide_only_what_is_decided(law, parameter):
    first, f = cumulative(law, parameter)
    by_digit = table(Fraction(parameter), law == "gaussian").by_digit.astype(np.int64)
    # The first value that is possible and the last one, for the interval of each digit.
    edges = [int(each * 2**16) for each in f]
    low = first + np.searchsorted(edges, np.arange(2**16), side="left")
    high = first + np.searchsorted(edges, np.arange(2**16), side="right")
    decided = by_digit > np.iinfo(np.int32).min
    inner = slice(1, -1)  # The outermost digits hold the tails and are never decided.
    assert np.array_equal(by_digit[inner][decided[inner]], low[inner][decided[inner]])
    assert np.array_equal(decided[inner], (low == high)[inner])
    assert not decided[[0, -1]].any()


def ties_settled(law: str, parameter: float | Fraction, one: Callable[[int, Callable], int]) -> bool:
    """Say whether words that equal a threshold, and those next to them, are settled as the law demands."""
    first, f = cumulative(law, parameter)
    middle = -first
    for i in (each for each in (middle - 3, middle - 1, middle, middle + 2, middle + 20) if each < len(f)):
        for n_equal, offset in itertools.product((1, 2, 3), (-1, 0, 1)):
            digits = int(f[i] * 2 ** (WORD * n_equal)) + offset
            if not 0 <= digits < 2 ** (WORD * n_equal):
                continue  # the tail is too thin for so few words
            words = [digits >> WORD * (n_equal - 1 - k) & (2**WORD - 1) for k in range(n_equal)]
            for more in (1, 2**WORD - 1):
                all_digits = (digits << WORD | more) << WORD | 12345
                uniform = Fraction(all_digits, 2 ** (WORD * (n_equal + 2)))
                if one(words[0], planted(*words[1:], more, 12345)) != expected(law, parameter, uniform):
                    return False
    return True


@pytest.mark.parametrize(("law", "parameter"), LAWS)
def test_a_word_that_decides_nothing_is_settled_by_the_next(law, parameter):
    assert ties_settled(law, parameter, table(Fraction(parameter), law == "gaussian").one)


def test_a_missing_continuation_is_found():
    law = table(Fraction(40), True)
    first, ends = law.words.first, law.upper.tolist()
    for side in (0, 1):  # An undecided word taken as below its threshold, and as above it.
        assert not ties_settled("gaussian", 40, lambda w, _, s=side: first + bisect.bisect_left(ends, w) + s)


def ballots_at(word: int, draws: int, draw: Callable[[Callable], np.ndarray]) -> np.ndarray:
    """Draw many times with a first word that is given and everything after it at random."""
    random = np.random.default_rng(5)

    def source(first: bytes) -> Callable[[int], bytes]:
        parts = iter([first])
        return lambda n: next(parts, b"") or random.bytes(n)

    return np.array([draw(source(word.to_bytes(8, "little")))[0] for _ in range(draws)])


@pytest.mark.parametrize(("law", "parameter"), [("gaussian", 40), ("laplace", 1 / Fraction(0.05))])
def test_undecided_words_follow_the_law_below_them(law, parameter):
    first, f = cumulative(law, parameter)
    drawer = table(Fraction(parameter), law == "gaussian")
    for x in (-30, -1, 0, 11):
        word, rest = divmod(f[x - first] * 2**WORD, 1)
        drawn = ballots_at(int(word), 2000, lambda read: drawer.draw(1, read))
        assert set(drawn) <= {x, x + 1}
        assert stats.binomtest(int((drawn == x).sum()), 2000, float(rest)).pvalue > ALARM


def test_a_batch_settles_what_its_digits_leave_open():
    law, parameter = "gaussian", 40
    first, f = cumulative(law, parameter)
    drawer = table(Fraction(parameter), True)
    for x in (-100, -1, 0, 55):
        exact_digits = int(f[x - first] * 2**192)
        for offset in (-1, 0, 1):
            digit, more = exact_digits >> 176, exact_digits >> 128 & (2**48 - 1)
            last = divmod(exact_digits & (2**128 - 1), 2**64)
            # Sixteen draws with the same first digit; the first of them is the tie, the others are below it.
            same = [digit * 0x0001000100010001] * 4
            source = planted(*same, more << 16, *[0] * 15, last[0] + offset, last[1])
            uniform = Fraction(exact_digits + (offset << 64), 2**192)
            below = expected(law, parameter, Fraction(digit, 2**16))
            drawn = drawer.draw(16, source)
            # Equal in all 192 digits: further zeros are below the threshold.
            assert drawn[0] == (x if offset <= 0 else x + 1)
            assert drawn[0] == expected(law, parameter, uniform)
            assert set(drawn[1:]) == {below}


@pytest.mark.parametrize(("law", "parameter"), LAWS)
@pytest.mark.parametrize("n", [N, 10, 1])
def test_draws_follow_the_law(law, parameter, n):
    drawer, source = table(Fraction(parameter), law == "gaussian"), noise.seeded(31)._read
    sample = np.concatenate([drawer.draw(n, source) for _ in range(N // n if n > 1 else N // 4)])
    assert sample.dtype == np.int64
    assert p_value(sample, law, parameter) > ALARM


def folded(law: Table) -> Table:
    """Return a law with a fault: a size and a sign are drawn, and zero is counted for either sign."""
    ends = [int(each) for each in law.lower]
    half = len(ends) // 2
    zero = ends[half] - ends[half - 1]
    total = 2**WORD + zero
    shifted = ends[:half] + [each + zero for each in ends[half:]]
    lower = np.array([each * 2**WORD // total for each in shifted], dtype=np.uint64)
    starts = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    by_digit = (law.words.first + lower.searchsorted(starts)).astype(np.int32)
    return dataclasses.replace(law, lower=lower, upper=lower, by_digit=by_digit)


def test_a_zero_counted_twice_is_found():
    law = table(Fraction(5, 2), True)
    wrong = folded(law)
    assert p_value(law.draw(N, noise.seeded(32)._read), "gaussian", 2.5) > ALARM
    assert p_value(wrong.draw(N, noise.seeded(32)._read), "gaussian", 2.5) < ALARM
    ends = wrong.lower.tolist()
    assert misplaced(Thresholds(law.words.first, ends, ends), "gaussian", 2.5, WORD)


def test_neighbouring_draws_are_independent():
    sample = table(Fraction(5, 2), True).draw((N, 2), noise.seeded(33)._read)
    signs = np.sign(sample) + 1
    counts = np.bincount(3 * signs[:, 0] + signs[:, 1], minlength=9).reshape(3, 3)
    assert stats.chi2_contingency(counts).pvalue > ALARM


def test_both_samplers_have_one_law():
    for sigma in (0.7, 4, 300):
        ours = table(Fraction(sigma), True).draw(N, noise.seeded(34)._read)
        theirs = noise.seeded(35).discrete_gaussian(sigma, N)
        edges = np.unique(np.quantile(ours, np.linspace(0, 1, 25)))[1:-1]
        counts = [np.bincount(np.digitize(side, edges), minlength=edges.size + 1) for side in (ours, theirs)]
        assert stats.chi2_contingency(counts).pvalue > ALARM


def test_scales_without_a_table_are_drawn_too():
    for law, largest in LARGEST.items():
        assert table(Fraction(largest), law == "gaussian").lower.size < 2**16
        method = getattr(noise.secure(), f"discrete_{law}")
        for scale in (largest, largest + 1, 100 * largest):
            sample = method(scale, 2000).astype(float)
            spread = scale if law == "gaussian" else scale * 2**0.5
            # At least eight standard errors: these are 0.016 for the Gaussian, 0.025 for Laplace.
            assert abs(sample.std() / spread - 1) < 0.2
    for tiny in (5e-324, Fraction(1, 10**400), 0.01):
        assert not noise.secure().discrete_gaussian(tiny, 300).any()
        assert not noise.secure().discrete_gaussian(tiny, ()).any()


def test_a_number_is_refused_whatever_was_drawn_before():
    source = noise.secure()
    source.discrete_gaussian(1, 3)
    for bad in (True, float("nan"), 0, -1.0, [1], None, "1"):
        with pytest.raises(ValueError, match="sigma > 0"):
            source.discrete_gaussian(bad, 3)
    for same in (4, 4.0, Fraction(4), np.float64(4), np.int64(4), np.float32(4)):
        assert source.discrete_gaussian(same, (2, 5)).shape == (2, 5)


def test_a_seed_draws_what_it_always_drew():
    source, seen = noise.seeded(7), hashlib.sha256()
    for size in (1, 10, 300):
        for parameter in (0.5, 4, 40.5, 400, Fraction(7, 3)):
            seen.update(source.discrete_gaussian(parameter, size).astype("<i8").tobytes())
            seen.update(source.discrete_laplace(parameter, size).astype("<i8").tobytes())
    assert seen.hexdigest() == "e8f1bb83eb4cc7ce2b4073a5e592496d83cd7187a68893fec735d1ae3beb9ee5"
