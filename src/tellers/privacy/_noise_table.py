"""Discrete Gaussian and Laplace noise from tables, exactly, with the same work whatever is drawn.

A uniform real U becomes the integer x with F(x - 1) <= U < F(x), F the cumulative law. The table holds 64
binary digits of each F(x), as two integers between which these digits lie, and U is read one word of 64
digits at a time. A word below both integers, or above both, decides. A word in between decides nothing (one
in 2^54 at sigma 40): the next word of U is read and compared with 128 digits of F, then with 192, and so on.
So the law is the exact one, however wide the enclosures are. Tails beyond the table are such undecided words
too. All of this is integer arithmetic.

Every draw compares its word with every threshold. Where that would take long, `Spread` and `Bits` draw the
same laws from coins, one word each, and toss all of them. Only more than `TIMED` draws in one call look up
a digit at a place that the digit names.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Read = Callable[[int], bytes]
Odds = Callable[[int], tuple[int, int]]  # Integers around 2^bits times a probability.

WORD: Final = 64  # Binary digits of U that are read at once.
_DIGIT: Final = 16  # Binary digits that a batch looks at first: a table of 65,536 places.
_UNDECIDED: Final = np.iinfo(np.int32).min
_CHUNK: Final = 1 << 18  # Draws or comparisons per round; keeps the memory of a large draw flat.
TIMED: Final = 1 << 16  # Up to so many draws in one call take the same work whatever comes out.
_LONG: Final = 1 << 16  # Comparisons that take as long as to set up coins,
_WIDE: Final = 1 << 10  # and comparisons for one draw that take as long as its coins.
_ROWS: Final = 1 << 11  # Proposals or draws per round.
_LIMB: Final = 23  # Binary digits of the lower part of an exponent, which may have more than 64.
# Tables up to these scales take at most 0.1 seconds to build and a megabyte to keep.
LARGEST: Final = {"gaussian": 2**11, "laplace": 2**9}


def _floor(x: int, bits: int) -> int:
    return x >> bits


def _ceil(x: int, bits: int) -> int:
    return -(-x >> bits)


def exp_between(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers around 2^bits exp(-x) for x > 0, one or two apart.

    Guarantee: lower <= 2^bits exp(-x) <= upper.
    Reference: Taylor's series at x / 2^k <= 1/2, whose rest is below its last term, and k squarings, all
               rounded down for the lower end and up for the upper one.

    >>> exp_between(Fraction(1), 20)  # 2^20 / e = 385749.8...
    (385749, 385750)
    """
    if x >= bits:  # exp(-x) < 2^-x
        return 0, 1
    n_halvings = max(0, (int(x) + 1).bit_length() + 1)
    work = bits + n_halvings + 32
    reduced = x / 2**n_halvings
    y = (reduced.numerator << work) // reduced.denominator  # y <= 2^work x / 2^k <= y + 1
    one = 1 << work
    low, high, term_low, term_high, k = one, one, one, one, 1
    while term_high > 1:
        term_low = _floor(term_low * y, work) // k
        term_high = -(-_ceil(term_high * (y + 1), work) // k)
        low, high, k = low + term_low, high + term_high, k + 1
    high += term_high  # Each of the terms left out is at most half of the one before it.
    lower, upper = one * one // high, -(-one * one // low)
    for _ in range(n_halvings):
        lower, upper = _floor(lower * lower, work), _ceil(upper * upper, work)
    return lower >> (work - bits), _ceil(upper, work - bits)


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The cumulative law to `bits` binary digits, from its least value `first` on.

    A uniform real whose first `bits` digits are the number w is below F(first + i) if w < lower[i], at or
    above it if w > upper[i], and unknown in between. The outermost ends are 0 and 2^bits - 1.
    """

    first: int
    lower: Sequence[int]
    upper: Sequence[int]

    def find(self, word: int) -> int | None:
        """Return the value that the digits decide on, or None."""
        i = bisect_left(self.upper, word)
        return None if word >= self.lower[i] else self.first + i


@lru_cache(maxsize=4)
def thresholds(parameter: Fraction, is_gaussian: bool, bits: int, one_sided: bool = False) -> Thresholds:
    """Enclose the cumulative law of the discrete Gaussian (`parameter` is sigma) or Laplace (its scale).

    `one_sided` is the law given that the value is at most 0.

    Guarantee: every lower and upper end is on the right side of the cumulative law of all integers.
    Reference: weights by recurrence (one ratio for Laplace; for the Gaussian the ratios themselves fall by
               exp(-1/sigma^2)), every step rounded down for the lower ends and up for the upper ones.
               Ratios never grow, so what is left out is at most a geometric series with the first of them.

    >>> table = thresholds(Fraction(1), True, 8)
    >>> [(table.first + i, low, high) for i, (low, high) in enumerate(zip(table.lower, table.upper))][2:5]
    [(-2, 14, 14), (-1, 76, 76), (0, 179, 179)]
    """
    rate = 1 / parameter
    work = bits + 64 + 3 * max(1, int(parameter)).bit_length()
    if is_gaussian:
        ratio_low, ratio_high = exp_between(rate * rate / 2, work)
        change_low, change_high = exp_between(rate * rate, work)
    else:
        ratio_low, ratio_high = exp_between(rate, work)
        change_low = change_high = 1 << work
    one = 1 << work
    # What is left out after a weight w is at most w r + w r^2 + ... <= w / (1 - r), for the largest ratio r.
    rest = one - ratio_high
    negligible = rest >> (bits + 16)
    weights: list[tuple[int, int]] = []
    low, high = one, one
    while high > negligible:
        low, high = low * ratio_low >> work, -(-high * ratio_high >> work)
        weights.append((low, high))
        ratio_low, ratio_high = ratio_low * change_low >> work, -(-ratio_high * change_high >> work)
    # Sums from the far end: G(x) is that of all weights at x and beyond.
    sum_low, sum_high = 0, -(-high * one // rest)
    sums = []
    for low, high in reversed(weights):
        sum_low, sum_high = sum_low + low, sum_high + high
        sums.append((sum_low, sum_high))
    n_sides = 1 if one_sided else 2
    total_low, total_high = one + n_sides * sum_low, one + n_sides * sum_high
    lower = [(each << bits) // total_high for each, _ in sums]
    upper = [(each << bits) // total_low for _, each in sums]
    # One threshold that is zero on both sides starts the table: nothing lies below it.
    start = bisect_left(upper, 1) - 1
    lower, upper = lower[start:], upper[start:]
    # 1 - F(x) = F(-x - 1): complements, in reverse, and what was a lower end is an upper one.
    last = (1 << bits) - 1
    low_ends = lower + ([last] if one_sided else [last - each for each in reversed(upper)])
    high_ends = upper + ([last] if one_sided else [last - each for each in reversed(lower)])
    if bits > WORD:
        return Thresholds(-len(lower), low_ends, high_ends)
    return Thresholds(-len(lower), array("Q", low_ends), array("Q", high_ends))


def _words(read: Read, n: int) -> NDArray[np.uint64]:
    return np.frombuffer(read(8 * n), dtype="<u8").astype(np.uint64, copy=False)


def _halves(words: NDArray[np.uint64]) -> tuple[Integers, Integers]:
    """Return a sign for each word, 0 or -1, and 63 more digits: those below it, all turned over for -1."""
    signed = words.view(np.int64)
    signs = signed >> 63
    return signs, signed ^ signs


def _ends(words: Thresholds, half: int) -> Integers:
    return np.array([[1 + each for each in words.upper[:half]], words.lower[:half]], dtype=np.int64)


def _places(ends: Integers, digits: Integers) -> tuple[Integers, Integers]:
    """Return how many thresholds lie below each number of 63 digits, and which numbers decide nothing.

    Guarantee: every number is compared with both ends of every threshold, whatever it is.
    """
    tall, step = digits[:, np.newaxis, np.newaxis], max(1, _CHUNK // ends.size)
    counts = [np.add.reduce(ends <= tall[i : i + step], axis=2) for i in range(0, digits.size, step)]
    places, others = (
        counts[0] if len(counts) == 1 else np.concatenate([*counts, np.empty((0, 2), dtype=np.int64)])
    ).T
    return places, (places != others).nonzero()[0]


def _flip(odds: Odds, read: Read, word: int = 0, bits: int = 0) -> bool:
    """Flip a coin exactly: whether a uniform real, of which some digits are known, lies below the odds."""
    while True:
        word, bits = word << WORD | int.from_bytes(read(WORD // 8), "little"), bits + WORD
        low, high = odds(bits)
        if not low <= word <= high:
            return word < low


class _Coins:
    """Coins by their odds, enclosed to as many binary digits as are asked for; at most 63."""

    def __init__(self, odds: Sequence[Odds]) -> None:
        self.odds = odds
        low, high = np.array([each(WORD) for each in odds], dtype=object).reshape(-1, 2).T
        self.lower = low.astype(np.uint64)
        self.width = (high - low).astype(np.uint64)

    def toss(self, n: int, read: Read) -> Integers:
        """Return n numbers; bit i says whether coin i came up heads. One word for every coin."""
        words = _words(read, n * self.lower.size).reshape(n, -1)
        heads = np.zeros((n, WORD), dtype=np.bool_)
        some = np.less(words, self.lower, out=heads[:, : self.lower.size])
        for row, i in np.argwhere(words - self.lower <= self.width):
            low, high = self.odds[i](WORD)
            word = int(words[row, i])
            some[row, i] = word < low or (word <= high and _flip(self.odds[i], read, word, WORD))
        return np.packbits(heads, axis=1, bitorder="little").view("<i8")[:, 0].astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class Table:
    """A law as a table; it holds nothing random, so that threads and forked children may share it."""

    parameter: Fraction
    is_gaussian: bool
    words: Thresholds
    ends: Integers
    lower: NDArray[np.uint64]
    upper: NDArray[np.uint64]
    by_digit: NDArray[np.int32]

    def one(self, word: int, read: Read) -> int:
        """Return the value for a uniform real whose first word is given, reading on while undecided."""
        value, bits = self.words.find(word), WORD
        while value is None:
            word, bits = word << WORD | int.from_bytes(read(WORD // 8), "little"), bits + WORD
            value = thresholds(self.parameter, self.is_gaussian, bits).find(word)
        return value

    def scan(self, n: int, read: Read) -> Integers:
        """Return n values, each by comparing its word with every threshold of half of the table.

        F(-x - 1) = 1 - F(x): the other half is this one turned over.
        """
        words = _words(read, n)
        signs, digits = _halves(words)
        places, undecided = _places(self.ends, digits)
        values = (self.words.first + places ^ signs) - signs
        for i in undecided:
            values[i] = self.one(int(words[i]), read)
        return values

    def many(self, n: int, read: Read) -> NDArray[np.int64]:
        """Return n values: by the first 16 digits where these decide, by a whole word where they do not."""
        digits = np.frombuffer(read(-(-n // 4) * 8), dtype="<u2", count=n)
        values = self.by_digit.take(digits).astype(np.int64)
        left = np.flatnonzero(values == _UNDECIDED)
        if left.size:
            more = np.frombuffer(read(8 * left.size), dtype="<u8")
            words = digits[left].astype(np.uint64) << np.uint64(WORD - _DIGIT) | more >> np.uint64(_DIGIT)
            places = self.upper.searchsorted(words)
            values[left] = self.words.first + places
            for i in np.flatnonzero(words >= self.lower[places]):
                values[left[i]] = self.one(int(words[i]), read)
        return values

    def draw(self, shape: int | tuple[int, ...], read: Read) -> Integers:
        """Return independent values in the shape asked for; which way depends on how many these are."""
        result = np.empty(shape, dtype=np.int64)
        flat, n = result.reshape(-1), result.size
        if n > TIMED:
            for start in range(0, n, _CHUNK):
                flat[start : start + _CHUNK] = self.many(min(_CHUNK, n - start), read)
        elif self.ends.size <= _WIDE or self.ends.size * n <= _LONG:
            flat[:] = self.scan(n, read)
        else:
            result = by_coins(self.parameter, self.is_gaussian).draw(shape, read)
        return result


@lru_cache(maxsize=32)
def table(parameter: Fraction, is_gaussian: bool) -> Table:
    """Return the table of a law, built once.

    >>> law = table(Fraction(5, 2), True)
    >>> law.one(2**63, bytes), law.words.first, law.lower.size
    (0, -24, 48)
    """
    words = thresholds(parameter, is_gaussian, WORD)
    lower, upper = np.asarray(words.lower, dtype=np.uint64), np.asarray(words.upper, dtype=np.uint64)
    starts = np.arange(2**_DIGIT, dtype=np.uint64) << np.uint64(WORD - _DIGIT)
    ends = starts | np.uint64(2 ** (WORD - _DIGIT) - 1)
    # The places of the first and the last word that begin with these digits: the same, and none in between.
    first, last = upper.searchsorted(starts), lower.searchsorted(ends, side="right")
    by_digit = np.where(first == last, words.first + first, _UNDECIDED).astype(np.int32)
    return Table(parameter, is_gaussian, words, _ends(words, -words.first), lower, upper, by_digit)


class Spread:
    """The discrete Gaussian of a large sigma: 2^k times a value of a small one, and k bits, kept by coins.

    With s = sigma / 2^k, a from the law of s given a >= 0, and y uniform below 2^k, the size is
    z = 2^k a + y, kept with probability exp(-y (y + 2^(k+1) a) / 2 sigma^2): in all exp(-z^2 / 2 sigma^2).

    Guarantee: every proposal takes the same words and the same work; an undecided one, about one in 2^56,
               takes more. Proposals are independent, so how many are refused is independent of the values.
    Reference: Zhao, Steinfeld, Sakzad 2020 (FACCT); a coin for each binary digit of the exponent as in
               Ducas, Durmus, Lepoint, Lyubashevsky 2013 (BLISS), Section 6.
    """

    def __init__(self, sigma: Fraction) -> None:
        self.k = max(0, (int(sigma) >> 2).bit_length() - 1)
        self.small, self.rate = sigma / 2**self.k, 1 / (2 * sigma * sigma)
        words = thresholds(self.small, True, WORD - 1, True)
        self.reach = -words.first
        self.ends = _ends(words, self.reach)
        y = (1 << self.k) - 1
        n_bits = (y * (y + (self.reach << self.k + 1))).bit_length()
        odds = [partial(exp_between, self.rate * 2**i) for i in range(max(n_bits, _LIMB + 1))]
        self.low, self.high = _Coins(odds[:_LIMB]), _Coins(odds[_LIMB:])

    def _settle(self, digits: int, read: Read) -> int:
        value, bits = None, WORD - 1
        while value is None:
            digits, bits = digits << WORD | int.from_bytes(read(WORD // 8), "little"), bits + WORD
            value = thresholds(self.small, True, bits, True).find(digits)
        return -value

    def propose(self, n: int, read: Read) -> Integers:
        """Return those of n proposals that are kept, in order."""
        signs, digits = _halves(_words(read, n))
        places, undecided = _places(self.ends, digits)
        size = self.reach - places
        for i in undecided:
            size[i] = self._settle(int(digits[i]), read)
        y = (_words(read, n) & np.uint64((1 << self.k) - 1)).view(np.int64)
        other = y + (size << self.k + 1)
        rest = y * (other & (1 << _LIMB) - 1)
        low, high = rest & (1 << _LIMB) - 1, y * (other >> _LIMB) + (rest >> _LIMB)
        z = (size << self.k) + y
        # Tails where the exponent has a digit refuse, and so does minus zero, which is zero's other name.
        refused = low & ~self.low.toss(n, read) | high & ~self.high.toss(n, read) | (z == 0) & signs
        for i in undecided:  # The size may lie beyond what the coins were made for.
            exponent = self.rate * (int(y[i]) * int(other[i]))
            tails = exponent and not _flip(partial(exp_between, exponent), read)
            refused[i] = tails or (z[i] == 0 and signs[i] != 0)
        kept: Integers = ((z ^ signs) - signs)[refused == 0]
        return kept

    def draw(self, shape: int | tuple[int, ...], read: Read) -> Integers:
        """Return independent values in the shape asked for."""
        result = np.empty(shape, dtype=np.int64)
        flat, done = result.reshape(-1), 0
        while done < result.size:
            left = result.size - done
            # Survivors are independent and in order, so dropping a surplus at the end biases nothing.
            kept = self.propose(min(left + left // 4 + 3, _ROWS), read)[:left]
            flat[done : done + kept.size] = kept
            done += kept.size
        return result


class Bits:
    """Discrete Laplace noise of any scale, from coins: zero or not, a sign, and the bits of the size less 1.

    The size less one, g, is geometric with ratio r = exp(-1 / scale), so its bits are independent: bit i is
    set with probability r^(2^i) / (1 + r^(2^i)). Zero has probability (1 - r) / (1 + r).

    Guarantee: every draw takes the same words and the same work; an undecided one, about one in 2^57, more.
    """

    def __init__(self, scale: Fraction) -> None:
        self.n_bits = max(1, (45 * math.ceil(scale) - 1).bit_length())  # 2^n >= 45 scales: exp(-45) < 2^-64
        self.ratios = [partial(exp_between, 2**i / scale) for i in range(self.n_bits + 1)]

        def is_set(i: int, bits: int) -> tuple[int, int]:
            low, high = self.ratios[i](bits)
            return (low << bits) // ((1 << bits) + low), -((-high << bits) // ((1 << bits) + high))

        def is_zero(bits: int) -> tuple[int, int]:
            (low, high), one = self.ratios[0](bits), 1 << bits
            return (one - high << bits) // (one + high), -((low - one << bits) // (one + low))

        bits = [partial(is_set, i) for i in range(self.n_bits)]
        self.coins = _Coins([*bits, self.ratios[-1], is_zero])

    def draw(self, shape: int | tuple[int, ...], read: Read) -> Integers:
        """Return independent values in the shape asked for."""
        result = np.empty(shape, dtype=np.int64)
        flat = result.reshape(-1)
        for start in range(0, flat.size, _ROWS):
            n = min(_ROWS, flat.size - start)
            told = self.coins.toss(n, read)
            size = 1 + (told & (1 << self.n_bits) - 1)
            for i in np.flatnonzero(told >> self.n_bits & 1):  # Beyond the bits: once in 2^64.
                size[i] += 1 << self.n_bits
                while _flip(self.ratios[-1], read):
                    size[i] += 1 << self.n_bits
            signs, _ = _halves(_words(read, n))
            flat[start : start + n] = ((size ^ signs) - signs) * (1 - (told >> self.n_bits + 1))
        return result


@lru_cache(maxsize=32)
def by_coins(parameter: Fraction, is_gaussian: bool) -> Spread | Bits:
    """Return what draws a law without a table of it, built once."""
    return Spread(parameter) if is_gaussian else Bits(parameter)
