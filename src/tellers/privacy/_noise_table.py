"""Discrete Gaussian and Laplace noise read off a table, exactly.

A uniform real U becomes the integer x with F(x - 1) <= U < F(x), F the cumulative law. The table holds 64
binary digits of each F(x), as two integers between which these digits lie, and U is read one word of 64
digits at a time. A word below both integers, or above both, decides. A word in between decides nothing (one
in 2^54 at sigma 40): the next word of U is read and compared with 128 digits of F, then with 192, and so on.
So the law is the exact one, however wide the enclosures are. Tails beyond the table are such undecided words
too. All of this is integer arithmetic.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Read = Callable[[int], bytes]

WORD: Final = 64  # Binary digits of U that are read at once.
_DIGIT: Final = 16  # Binary digits that a batch looks at first: a table of 65,536 places.
_UNDECIDED: Final = np.iinfo(np.int32).min
_SMALLEST_BATCH: Final = 16  # Below, NumPy's cost per call outweighs its speed per element.
_FORMATS: Final = [f"<{n}Q" for n in range(_SMALLEST_BATCH)]
_CHUNK: Final = 1 << 18  # Draws per round; keeps the memory of a large draw flat.
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
def thresholds(parameter: Fraction, is_gaussian: bool, bits: int) -> Thresholds:
    """Enclose the cumulative law of the discrete Gaussian (`parameter` is sigma) or Laplace (its scale).

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
    total_low, total_high = one + 2 * sum_low, one + 2 * sum_high
    lower = [(each << bits) // total_high for each, _ in sums]
    upper = [(each << bits) // total_low for _, each in sums]
    # One threshold that is zero on both sides starts the table: nothing lies below it.
    start = bisect_left(upper, 1) - 1
    lower, upper = lower[start:], upper[start:]
    # 1 - F(x) = F(-x - 1): complements, in reverse, and what was a lower end is an upper one.
    last = (1 << bits) - 1
    low_ends = lower + [last - each for each in reversed(upper)]
    high_ends = upper + [last - each for each in reversed(lower)]
    if bits > WORD:
        return Thresholds(-len(lower), low_ends, high_ends)
    return Thresholds(-len(lower), array("Q", low_ends), array("Q", high_ends))


@dataclass(frozen=True, eq=False)
class Table:
    """A law as a table; it holds nothing random, so that threads and forked children may share it."""

    parameter: Fraction
    is_gaussian: bool
    words: Thresholds
    lower: NDArray[np.uint64]
    upper: NDArray[np.uint64]
    by_digit: NDArray[np.int32]

    def one(self, word: int, read: Read) -> int:
        """Return the value for a uniform real whose first word is given, reading on while undecided."""
        words = self.words
        place = bisect_left(words.upper, word)
        if word < words.lower[place]:
            return words.first + place
        value, bits = None, WORD
        while value is None:
            word, bits = word << WORD | int.from_bytes(read(WORD // 8), "little"), bits + WORD
            value = thresholds(self.parameter, self.is_gaussian, bits).find(word)
        return value

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

    def draw(self, shape: int | tuple[int, ...], read: Read) -> NDArray[np.int64]:
        """Return independent values in the shape asked for."""
        result = np.empty(shape, dtype=np.int64)
        n = result.size
        if n == 1:  # Half the time of the line below.
            result.fill(self.one(int.from_bytes(read(8), "little"), read))
            return result
        if n < _SMALLEST_BATCH:
            for i, word in enumerate(struct.unpack(_FORMATS[n], read(8 * n))):
                result.flat[i] = self.one(word, read)
            return result
        flat = result.reshape(-1)
        for start in range(0, n, _CHUNK):
            flat[start : start + _CHUNK] = self.many(min(_CHUNK, n - start), read)
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
    return Table(parameter, is_gaussian, words, lower, upper, by_digit)
