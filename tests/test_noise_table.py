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
from tellers.privacy._noise_table import (
    LARGEST,
    TIMED,
    WORD,
    Bits,
    Spread,
    Table,
    Thresholds,
    by_coins,
    exp_between,
    table,
    thresholds,
)

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
            drawn = drawer.many(16, source)
            # Equal in all 192 digits: further zeros are below the threshold.
            assert drawn[0] == (x if offset <= 0 else x + 1)
            assert drawn[0] == expected(law, parameter, uniform)
            assert set(drawn[1:]) == {below}


WIDE = [("gaussian", sigma) for sigma in (4, 7.9, 9.3, 40, Fraction(1000, 7))]
WIDE += [("laplace", scale) for scale in (0.3, 1, 2.5, Fraction(7, 3), 20, Fraction(301, 7))]


@pytest.mark.parametrize(("law", "parameter"), LAWS)
@pytest.mark.parametrize("n", [TIMED + 1, N, 10, 1])
def test_draws_follow_the_law(law, parameter, n):
    drawer, source = table(Fraction(parameter), law == "gaussian"), noise.seeded(31)._read
    sample = np.concatenate([drawer.draw(n, source) for _ in range(max(1, N // n) if n > 1 else N // 4)])
    assert sample.dtype == np.int64
    assert p_value(sample, law, parameter) > ALARM


def edges(found: Thresholds) -> list[int]:
    """Return the words at, below and above every threshold, and two in the middle."""
    ends = {each + offset for each in (*found.lower, *found.upper) for offset in (-2, -1, 0, 1, 2)}
    return sorted(each for each in ends | {2**63 - 1, 2**63} if 0 <= each < 2**WORD)


@pytest.mark.parametrize(("law", "parameter"), LAWS)
def test_every_threshold_parts_the_words_as_the_law_demands(law, parameter):
    drawer = table(Fraction(parameter), law == "gaussian")
    words = edges(drawer.words)
    # Undecided words are followed by a digit one and zeros.
    parts = iter([b"".join(each.to_bytes(8, "little") for each in words)])
    drawn = drawer.scan(len(words), lambda n: next(parts, (2**63).to_bytes(8, "little")))
    uniform = [Fraction(2 * each + 1, 2 ** (WORD + 1)) for each in words]
    assert drawn.tolist() == [expected(law, parameter, each) for each in uniform]
    assert len(words) > 4 * drawer.ends.shape[1]


@pytest.mark.parametrize("sigma", [4, 7.9, Fraction(29, 6)])
def test_sizes_to_spread_follow_the_law_of_one_side(sigma):
    spread = Spread(Fraction(sigma))
    first, f = cumulative("gaussian", spread.small)
    below = f[-first - 1]
    one_sided = [each / f[-first] for each in f[: -first + 1]]  # P(-a <= x) for x = first, ..., 0
    found = thresholds(spread.small, True, WORD - 1, True)
    words = [each for each in edges(found) if each < 2**63]
    # The words, no bits to spread by, and tails for all coins, which nothing asks.
    n_coins = [each.lower.size for each in (spread.low, spread.high)]
    parts = iter(
        [
            planted(*words)(8 * len(words)),
            bytes(8 * len(words)),
            *(b"\xff" * (8 * len(words) * n) for n in n_coins),
        ]
    )
    drawn = spread.propose(len(words), lambda n: next(parts) if n > 8 else (2**63).to_bytes(8, "little"))
    uniform = [Fraction(2 * each + 1, 2**WORD) for each in words]
    places = [first + bisect.bisect_right(one_sided, each) for each in uniform]
    assert below < Fraction(1, 2)
    assert spread.k == 0
    assert drawn.tolist() == [-each for each in places]


def odds_of(drawer: Spread | Bits, parameter: Fraction) -> list[tuple[Callable, int, Fraction]]:
    """Return every coin's own odds, their thresholds, and the same odds from decimal exponentials."""
    with localcontext(prec=DIGITS):
        if isinstance(drawer, Spread):
            coins = [(each, i) for each in (drawer.low, drawer.high) for i in range(len(each.odds))]
            values = [(-exact(2**j / (2 * parameter**2))).exp() for j in range(len(coins))]
        else:
            coins = [(drawer.coins, i) for i in range(len(drawer.coins.odds))]
            ratios = [(-exact(2**i / parameter)).exp() for i in range(drawer.n_bits + 1)]
            values = [each / (1 + each) for each in ratios[:-1]]
            values += [ratios[-1], (1 - ratios[0]) / (1 + ratios[0])]
    return [(each, i, Fraction(value)) for (each, i), value in zip(coins, values, strict=True)]


@pytest.mark.parametrize(
    "drawer", [Spread(Fraction(sigma)) for sigma in (4, 2048.3, 10**5, 2**40)]
    + [Bits(Fraction(scale)) for scale in (0.3, 1, 20, Fraction(7, 3), 10**5, 2**40)],
)  # fmt: skip
def test_every_coin_parts_the_words_as_its_odds_demand(drawer):
    parameter = (
        drawer.small * 2**drawer.k if isinstance(drawer, Spread) else 1 / Fraction(drawer.ratios[0].args[0])
    )
    for coins, i, odds in odds_of(drawer, parameter):
        low, high = coins.odds[i](WORD)
        assert low <= odds * 2**WORD <= high <= low + 3
        for word in (each for each in {*range(low - 2, high + 3), 1, 2**WORD - 1} if 0 <= each < 2**WORD):
            words = [2**63] * len(coins.odds)
            words[i] = word
            told = int(coins.toss(1, planted(*words, 2**63))[0])
            assert told >> i & 1 == (Fraction(2 * word + 1, 2 ** (WORD + 1)) < odds)


@pytest.mark.parametrize("sigma", [9.3, 100, 2**40])
def test_a_proposal_is_refused_by_the_digits_of_its_exponent(sigma):
    spread = Spread(Fraction(sigma))
    lower = [*spread.low.lower.tolist(), *spread.high.lower.tolist()]
    widths = [*spread.low.width, *spread.high.width]
    # Heads by the word 0, if their odds are above 2^-64 at all, else tails.
    heads, random = [0 if each else 2**63 for each in lower], np.random.default_rng(3)
    never = sum(1 << i for i, each in enumerate(lower) if not each)
    for place in (spread.reach // 3, spread.reach // 2, spread.reach - 1, spread.reach):
        # A number of 63 digits between two thresholds.
        digits = (int(spread.ends[0, place - 1]) + [*spread.ends[1].tolist(), 2**63][place]) // 2
        size = spread.reach - place
        for y in {0, 1, (1 << spread.k) - 1, int(random.integers(1 << spread.k))}:
            exponent, z = y * (y + (size << spread.k + 1)), (size << spread.k) + y
            assert exponent.bit_length() <= len(lower)
            for sign, word in ((1, digits), (-1, 2**WORD - 1 - digits)):
                for tail in range(len(lower)):
                    coins = [*heads[:tail], 2**WORD - 1, *heads[tail + 1 :]]
                    if (
                        lower[tail] + int(widths[tail]) >= 2**WORD - 1
                    ):  # Undecided: the next word is read first.
                        coins.insert(len(spread.low.odds), 2**WORD - 1)
                    kept = spread.propose(1, planted(word, y, *coins))
                    refused = exponent & (1 << tail | never) or (z == 0 and sign < 0)
                    assert kept.tolist() == ([] if refused else [sign * z])


def test_a_proposal_whose_size_is_undecided_is_settled_exactly():
    spread = Spread(Fraction(100))
    n_coins = len(spread.low.odds) + len(spread.high.odds)
    place, y = spread.reach - 3, 5
    word = int(spread.ends[1, place])  # The lower end itself: settled by what follows, here all ones.
    for size, after in ((3, 0), (2, 2**WORD - 1)):
        z = (size << spread.k) + y
        odds = exp_between(Fraction(y * (y + (size << spread.k + 1)), 2 * 100**2), WORD)[0]
        for coin, kept in ((odds - 1, [z]), (odds + 9, [])):
            # The coins of the proposal all show tails, and are not asked: its one coin is.
            drawn = spread.propose(1, planted(word, after, y, *[2**WORD - 1] * n_coins, coin))
            assert drawn.tolist() == kept


@pytest.mark.parametrize(("law", "parameter"), WIDE)
def test_coins_follow_the_law(law, parameter):
    sample = by_coins(Fraction(parameter), law == "gaussian").draw(N, noise.seeded(41)._read)
    assert p_value(sample, law, parameter) > ALARM


def test_coins_with_other_odds_are_found():
    for law, parameter in (("gaussian", 40), ("laplace", 20)):
        drawer = (Spread if law == "gaussian" else Bits)(Fraction(parameter))
        coins = drawer.low if law == "gaussian" else drawer.coins
        coins.lower[3] -= np.uint64(2**61)
        assert p_value(drawer.draw(N, noise.seeded(42)._read), law, parameter) < ALARM


class Watched(np.ndarray):
    """A table that notes what is done to it: how many entries are read, or which ones."""

    log: list

    def __array_finalize__(self, other):
        self.log = getattr(other, "log", None)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        self.log.append((ufunc.__name__, method, np.broadcast(*inputs).size))
        plain = [each.view(np.ndarray) if isinstance(each, Watched) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, key):
        self.log.append(("read at", str(key)))
        return self.view(np.ndarray)[key]

    def take(self, places):
        self.log.append(("read at", str(places)))
        return self.view(np.ndarray).take(places)

    def searchsorted(self, values, side="left"):
        self.log.append(("searched for", str(values)))
        return self.view(np.ndarray).searchsorted(values, side=side)


class Listed(list):
    """A list that notes which entries are read."""

    def __init__(self, log, entries):
        super().__init__(entries)
        self.log = log

    def __getitem__(self, place):
        self.log.append(("read at", place))
        return super().__getitem__(place)


def watched(array: np.ndarray, log: list) -> Watched:
    found = array.view(Watched)
    found.log = log
    return found


def work(parameter: float, law: str, n: int, words: list[int], way: str) -> list:
    """Return everything that is read, from the source and from tables, to draw n values with these words."""
    log: list = []
    left = itertools.cycle(words)

    def source(n_bytes):
        log.append(("words", n_bytes))
        return b"".join(next(left).to_bytes(8, "little") for _ in range(n_bytes // 8))

    if way == "draw":
        plain = table(Fraction(parameter), law == "gaussian")
        seen = Thresholds(
            plain.words.first, *(Listed(log, each) for each in (plain.words.lower, plain.words.upper))
        )
        arrays = {
            name: watched(each, log) for name, each in vars(plain).items() if isinstance(each, np.ndarray)
        }
        dataclasses.replace(plain, words=seen, **arrays).draw(n, source)
        return log
    coins = (Spread if law == "gaussian" else Bits)(Fraction(parameter))
    for each in (coins.low, coins.high) if law == "gaussian" else (coins.coins,):
        each.lower, each.width = watched(each.lower, log), watched(each.width, log)
    if law == "gaussian":
        coins.ends = watched(coins.ends, log)
    coins.propose(n, source) if law == "gaussian" else coins.draw(n, source)
    return log


# The far tails, either side of the middle, and words whose first digits decide nothing at sigma 40.
CHOSEN = [10**6, 2**WORD - 10**6, 2**63 - 1, 2**63, 2**62, 3 * 2**62 + 1, 40 << 48, (40 << 48) - 1, 2**50]


@pytest.mark.parametrize(
    ("law", "parameter", "n", "way"),
    [(law, parameter, n, "draw")
     for law, parameter, n in itertools.product(("gaussian", "laplace"), (1, 9, 40), (1, 10))]
    + [("gaussian", 40, 1000, "draw"), ("gaussian", 400, 1, "draw"), ("laplace", 5, 1000, "draw")]
    + [("gaussian", 400, 100, "coins"), ("gaussian", 10**5, 1, "coins"), ("laplace", 10**5, 10, "coins")],
)  # fmt: skip
def test_the_work_is_the_same_whatever_is_drawn(law, parameter, n, way):
    random = np.random.default_rng(8).integers(2**63, size=3 * n).tolist()
    seen = [work(parameter, law, n, words, way) for words in ([each] for each in CHOSEN)]
    seen += [work(parameter, law, n, random, way), work(parameter, law, n, CHOSEN, way)]
    assert seen[0]
    assert all(each == seen[0] for each in seen)


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
    assert p_value(law.many(N, noise.seeded(32)._read), "gaussian", 2.5) > ALARM
    assert p_value(wrong.many(N, noise.seeded(32)._read), "gaussian", 2.5) < ALARM
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
