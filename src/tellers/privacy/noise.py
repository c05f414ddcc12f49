"""Privacy noise: exact draws on the integers, from the operating system or from a seed.

Votes are integers, so their noise is too: discrete Gaussian and Laplace, drawn with integer
arithmetic from rational parameters. No float takes part in a sampling decision.

There are two samplers of the same laws. Secure noise (`_noise_table`) compares random words with tables,
and does the same work whatever comes out. Seeded noise comes from coins by rejection: a seed has to give
the draws that it always gave. Every coin compares a uniform real with a rational, both read in blocks of
62 binary digits: one block nearly always decides, and equal blocks are settled by reading on.

No random byte outlives the call that read it, so there is no buffer for a forked child to inherit, for
threads to share or for a pickle to carry.
"""

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_positive
from . import _noise_table
from ._noise_table import Bits, Spread, Table
from ._scipy import ndtri

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Shape = int | tuple[int, ...]

_BLOCK: Final = 62  # Binary digits per comparison: the threshold of the number 1 still fits int64.
_WIDEST: Final = 2**40  # Leaving int64 from here takes some eight million heads of exp(-1) in a row.
_TABLED: Final = (Fraction(1, 2**16), Fraction(2**13))  # Scales whose tables are small and fit int64.
_SMALLEST_BATCH: Final = 256  # Below, NumPy's cost per call outweighs its speed per element.
_CHUNK: Final = 1 << 16  # Proposals per round; keeps the memory of a large draw flat.


class _Words:
    """Random 64-bit words for one call: one at a time, read ahead in small blocks, or many at once."""

    def __init__(self, read: Callable[[int], bytes], *, n_ahead: int = 64) -> None:
        self._read, self._n_ahead = read, n_ahead
        self._left: list[int] = []

    def many(self, n: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._read(8 * n), dtype="<u8").astype(np.uint64, copy=False)

    def one(self) -> int:
        if not self._left:
            self._left = self.many(self._n_ahead)[::-1].tolist()
        return self._left.pop()

    def below(self, numerator: int, denominator: int) -> bool:
        """Say whether a fresh uniform real lies below the fraction, one block of digits at a time."""
        while True:
            digits, numerator = divmod(numerator << _BLOCK, denominator)
            drawn = self.one() >> (64 - _BLOCK)
            if drawn != digits or not numerator:  # Once no digit is left, the uniform is not below.
                return drawn < digits


def _exp_coin(numerator: int, denominator: int, words: _Words) -> bool:
    """Flip exp(-x) for a fraction x in [0, 1]: heads if the first tail among coins x/k has odd k."""
    k = 1
    while words.below(numerator, denominator * k):
        k += 1
    return k % 2 == 1


def _exp_coins(digits: Integers, exact: Callable[[int], tuple[int, int]], words: _Words) -> Mask:
    """Flip exp(-x) for many x in [0, 1] with first blocks `digits`; `exact(i)` is the i-th x itself."""
    heads = np.zeros(digits.size, dtype=np.bool_)
    going, k = np.arange(digits.size), 1
    while going.size:
        # Dividing the floor is exact: floor(floor(2^62 x) / k) = floor(2^62 x / k).
        thresholds = digits // k if k > 1 else digits
        drawn = (words.many(going.size) >> np.uint64(64 - _BLOCK)).view(np.int64)
        lower = drawn < thresholds
        for i in np.flatnonzero(drawn == thresholds):
            numerator, denominator = exact(int(going[i]))
            denominator *= k
            lower[i] = words.below((numerator << _BLOCK) % denominator, denominator)
        if k % 2 == 1:
            heads[going[~lower]] = True
        going, digits = going[lower], digits[lower]
        k += 1
    return heads


@dataclass(frozen=True, eq=False)
class _Coins:
    """A family of coins: number i comes up heads with probability exp(-numerator(i) / denominator)."""

    numerator: Callable[[int], int]
    denominator: int
    n_tabled: int

    @cached_property
    def _table(self) -> Integers:
        # Whole part and first block of each exponent.
        pairs = (divmod(self.numerator(i), self.denominator) for i in range(self.n_tabled))
        return np.array([(w, (rest << _BLOCK) // self.denominator) for w, rest in pairs], dtype=np.int64).T

    def flip(self, i: int, words: _Words) -> bool:
        # exp(-x) is a product: a coin exp(-1) for each whole unit of x, then one for the rest.
        whole, rest = divmod(self.numerator(i), self.denominator)
        units = all(_exp_coin(1, 1, words) for _ in range(whole))
        return units and _exp_coin(rest, self.denominator, words)

    def flip_many(self, which: Integers, words: _Words) -> Mask:
        whole, digits = self._table
        heads = np.zeros(which.size, dtype=np.bool_)
        alive, n_flipped = np.flatnonzero(which < self.n_tabled), 0
        while np.any(owing := whole[which[alive]] > n_flipped):
            lucky = ~owing
            lucky[owing] = _exp_coins(np.full(owing.sum(), 1 << _BLOCK), lambda _: (1, 1), words)
            alive = alive[lucky]
            n_flipped += 1
        last, unit = which[alive], self.denominator
        heads[alive] = _exp_coins(digits[last], lambda i: (self.numerator(int(last[i])) % unit, unit), words)
        for i in np.flatnonzero(which >= self.n_tabled):  # The far tail is too rare to be tabled.
            heads[i] = self.flip(int(which[i]), words)
        return heads


@dataclass(frozen=True, eq=False)
class _Sampler:
    """Discrete Laplace noise, thinned by the `accept` coins where there are any.

    The magnitude is u + width * v: u uniform below `width`, kept with exp(-u / scale); v the number
    of heads in a row of exp(-width / scale). `laplace` holds these coins as numbers u and `width`.
    """

    width: int
    mask: int
    laplace: _Coins
    accept: _Coins | None
    can_batch: bool

    def one(self, words: _Words) -> int:
        width, mask, flip = self.width, self.mask, self.laplace.flip
        while True:
            word = words.one()
            size, negative = word & mask, word >> 63  # The low bits make u, the top bit the sign.
            if size >= width or not flip(size, words):
                continue
            while flip(width, words):
                size += width
            if negative and not size:
                continue  # Zero would otherwise be counted twice.
            if self.accept is None or self.accept.flip(size, words):
                return -size if negative else size

    def many(self, n: int, words: _Words) -> Integers:
        """Run the loop of `one` once for each of n words and return the survivors in order."""
        word = words.many(n)
        size = (word & np.uint64(self.mask)).astype(np.int64)
        negative = (word >> np.uint64(63)).astype(np.bool_)
        kept = np.flatnonzero(size < self.width)
        kept = going = kept[self.laplace.flip_many(size[kept], words)]
        while going.size:
            going = going[self.laplace.flip_many(np.full(going.size, self.width), words)]
            size[going] += self.width
        kept = kept[(size[kept] > 0) | ~negative[kept]]
        if self.accept is not None:
            kept = kept[self.accept.flip_many(size[kept], words)]
        size[negative] *= -1
        return size[kept]

    def draw(self, shape: Shape, read: Callable[[int], bytes]) -> Integers:
        result = np.empty(shape, dtype=np.int64)
        flat, n, start = result.reshape(-1), result.size, 0
        words = _Words(read, n_ahead=min(16 * n, 1024))
        # The path depends on the request alone, never on what is cached: a seed must reproduce.
        if not self.can_batch or n < max(_SMALLEST_BATCH, self.width // 8):
            start, flat[:] = n, [self.one(words) for _ in range(n)]
        while start < n:
            # Survivors are independent and in order, so dropping a surplus at the end biases nothing.
            drawn = self.many(min(4 * (n - start) + 16, _CHUNK), words)[: n - start]
            flat[start : start + drawn.size] = drawn
            start += drawn.size
        return result


@lru_cache(maxsize=64)
def _sampler(parameter: Fraction, is_gaussian: bool) -> _Sampler:
    scale = Fraction(int(parameter) + 1) if is_gaussian else parameter
    rate, width = 1 / scale, max(1, int(scale))
    laplace = _Coins(lambda u: u * rate.numerator, rate.denominator, width + 1)
    # With t = width and sigma^2 = p/q: (y - sigma^2/t)^2 / (2 sigma^2) over one denominator.
    p, q = parameter.numerator**2, parameter.denominator**2
    accept = _Coins(lambda y: (y * width * q - p) ** 2, 2 * p * q * width**2, 8 * width + 8)
    can_batch = _TABLED[0] <= parameter <= _TABLED[1]
    mask = (1 << (width - 1).bit_length()) - 1
    return _Sampler(width, mask, laplace, accept if is_gaussian else None, can_batch)


def _as_fraction(name: str, value: Any) -> Fraction:
    require_positive(**{name: value})
    ratio = getattr(value, "as_integer_ratio", None)
    exact = Fraction(*ratio()) if ratio else Fraction(operator.index(value))
    if exact > _WIDEST:
        raise ValueError(f"Expected {name} <= 2**40, so that the noise fits int64, got {name}={value}.")
    return exact


_Law = _Sampler | Table | Spread | Bits


def _secure_law(name: str, value: Any, is_gaussian: bool) -> _Law:
    """Return what draws a law for a secure source: its table if that is small."""
    parameter = _as_fraction(name, value)
    if parameter <= _noise_table.LARGEST["gaussian" if is_gaussian else "laplace"]:
        return _noise_table.table(parameter, is_gaussian)
    return _noise_table.by_coins(parameter, is_gaussian)


@lru_cache(maxsize=32, typed=True)  # So that True is refused after 1 was not.
def _secure_law_of_number(name: str, value: float, is_gaussian: bool) -> _Law:
    # To make a Fraction, or to hash one, takes longer than a draw.
    return _secure_law(name, value, is_gaussian)


@lru_cache(maxsize=32)
def _secure_law_of_ratio(name: str, numerator: int, denominator: int, is_gaussian: bool) -> _Law:
    return _secure_law(name, Fraction(numerator, denominator), is_gaussian)


def _as_integers(name: str, value: Integers) -> Integers:
    array = np.asarray(value)
    if array.dtype != np.int64:
        raise TypeError(f"Expected {name} as int64, got {array.dtype}; convert with astype(np.int64).")
    return array


@final
@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """A source of privacy noise; make one with `secure()` or `seeded(seed)`.

    Guarantee: the integer draws have exactly the stated distribution if the bytes are uniform;
               a float parameter is taken at its exact value.
               Up to 2^16 secure integer draws in one call, and more above sigma 2,048 or scale 512,
               read the same words and the same table entries whatever comes out, but for one draw in
               2^48 or fewer. Refused proposals take time, independently of the values returned.
    Assumes:   a sound system generator. Nobody who times these: seeded noise, larger calls of smaller
               scales, `choose`, and how many noisy maxima tie in `break_ties`.
    Reference: inversion of the cumulative law, enclosed in integers, and coins for each binary digit
               (`Spread`, `Bits`); for seeds Canonne, Kamath, Steinke 2020, Algorithms 1 to 3 (2 in
               blocks of floor(scale)).

    >>> seeded(7)
    Noise(seeded)
    """

    _read: Callable[[int], bytes]

    @property
    def is_secure(self) -> bool:
        """Whether the bytes come from the operating system, so that a guarantee may rest on them."""
        return self._read is os.urandom

    @property
    def name(self) -> str:
        """The word for this source in a stored event."""
        return "secure" if self.is_secure else "seeded"

    def __repr__(self) -> str:
        return f"Noise({self.name})"

    def _drawer(self, name: str, value: Any, is_gaussian: bool) -> _Law:
        if self._read is not os.urandom:
            return _sampler(_as_fraction(name, value), is_gaussian)
        if type(value) is float or type(value) is int:
            return _secure_law_of_number(name, value, is_gaussian)
        if type(value) is Fraction:
            return _secure_law_of_ratio(name, value.numerator, value.denominator, is_gaussian)
        return _secure_law(name, value, is_gaussian)

    def discrete_gaussian(self, sigma: float | Fraction, shape: Shape) -> Integers:
        """Draw integers x with probability proportional to exp(-x^2 / (2 sigma^2)).

        >>> seeded(7).discrete_gaussian(40, 4)
        array([-71, -31, -19,  29])
        """
        return self._drawer("sigma", sigma, True).draw(shape, self._read)

    def discrete_laplace(self, scale: float | Fraction, shape: Shape) -> Integers:
        """Draw integers x with probability proportional to exp(-|x| / scale).

        >>> seeded(7).discrete_laplace(Fraction(5, 2), 4)
        array([-5, -2,  0,  3])
        """
        return self._drawer("scale", scale, False).draw(shape, self._read)

    def integers_below(self, bounds: Integers) -> Integers:
        """Draw for each bound an integer from 0 to bound - 1, exactly uniform, by rejection.

        How many are drawn again depends on the bounds, and is independent of what is returned.

        >>> seeded(7).integers_below(np.array([1, 6, 6]))
        array([0, 3, 5])
        """
        limits = _as_integers("bounds", bounds)
        flat, words = limits.reshape(-1), _Words(self._read)
        if (flat < 1).any():
            raise ValueError("Expected every bound >= 1, got a smaller one; no integer lies below it.")
        result = np.zeros(flat.size, dtype=np.int64)
        missing = (flat > 1).nonzero()[0]
        if not missing.size:  # nothing to draw: most rows have one maximum
            return result.reshape(limits.shape)
        mask = (flat - 1).astype(np.uint64)
        for shift in (1, 2, 4, 8, 16, 32):
            mask |= mask >> np.uint64(shift)
        while missing.size:
            drawn = (words.many(missing.size) & mask[missing]).astype(np.int64)
            fits = drawn < flat[missing]
            result[missing[fits]] = drawn[fits]
            missing = missing[~fits]
        return result.reshape(limits.shape)

    def break_ties(self, noisy: Integers) -> Integers:
        """Return for each row of noisy counts the place of its maximum, any of several equally likely.

        A tie is broken by a further draw, which takes time: it shows how many rows tie, not where.

        >>> seeded(7).break_ties(np.array([[1, 5, 2], [4, 4, 0]]))
        array([1, 1])
        """
        counts = _as_integers("noisy counts", noisy)
        if counts.ndim != 2 or counts.shape[1] == 0:
            raise ValueError(f"Expected noisy counts as queries x classes, got shape {counts.shape}.")
        nth_tied = np.cumsum(counts == counts.max(axis=1, keepdims=True), axis=1)
        chosen = 1 + self.integers_below(nth_tied[:, -1])
        return np.asarray(np.argmax(nth_tied == chosen[:, np.newaxis], axis=1), dtype=np.int64)

    def choose(self, scores: Integers, scale: float | Fraction) -> Integers:
        """Draw for each row of scores a place, with probability proportional to exp(score / scale).

        By rejection: a place is proposed uniformly and kept with probability exp((score - best) / scale).
        What a proposal takes depends on its score: the time is not independent of the scores.

        >>> seeded(7).choose(np.array([[0, 40, 3], [9, 0, 9]]), 2)
        array([1, 2])
        """
        table, rate = _as_integers("scores", scores), 1 / _as_fraction("scale", scale)
        if table.ndim != 2 or table.shape[1] == 0:
            raise ValueError(f"Expected scores as queries x choices, got shape {table.shape}.")
        coins = _Coins(lambda short: short * rate.numerator, rate.denominator, 0)
        words, n_choices = _Words(self._read), table.shape[1]
        mask = (1 << (n_choices - 1).bit_length()) - 1
        chosen = np.empty(len(table), dtype=np.int64)
        for row, short in enumerate((table.max(axis=1, keepdims=True) - table).tolist()):
            place = n_choices
            while place >= n_choices or not coins.flip(short[place], words):
                place = words.one() & mask
            chosen[row] = place
        return chosen

    def uniform(self, shape: Shape) -> NDArray[np.float64]:
        """Draw floats in (0, 1), from a grid of 53 bits; only where no integer arithmetic is possible.

        >>> bool(((seeded(7).uniform(3) > 0) & (seeded(7).uniform(3) < 1)).all())
        True
        """
        result = np.empty(shape)
        words = _Words(self._read).many(result.size)
        result.reshape(-1)[:] = ((words >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52
        return result

    def gaussian(self, shape: Shape) -> NDArray[np.float64]:
        """Draw standard normal floats; only for publishing a cost, which is no integer.

        A 53-bit grid goes through the inverse cdf: it ends at 8.3, and the set of reachable floats
        may betray low bits of what it is added to (Mironov 2012). Round the sum before it leaves.

        >>> seeded(7).gaussian(2).round(3)
        array([0.489, 0.129])
        """
        result = np.empty(shape)
        words = _Words(self._read).many(result.size)
        # Half of the grid (k + 1/2) / 2^53 and a sign: in the upper half k + 1/2 is no longer a float.
        lower = ndtri(((words >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**53)
        result.reshape(-1)[:] = np.where(words & np.uint64(1), -lower, lower)
        return result


def _raw_bytes(generator: np.random.PCG64, n: int) -> bytes:
    # Raw words, because NumPy keeps those stable between versions, and not the output of a Generator.
    return np.asarray(generator.random_raw(n // 8), dtype="<u8").tobytes()


def secure() -> Noise:
    """Return noise from the operating system's cryptographic generator; it has no seed.

    >>> secure().is_secure
    True
    """
    return Noise(os.urandom)


def seeded(seed: int) -> Noise:
    """Return reproducible noise for tests and experiments; whoever knows the seed can undo it.

    >>> seeded(7).is_secure
    False
    """
    require_count(0, seed=seed)
    return Noise(partial(_raw_bytes, np.random.PCG64(operator.index(seed))))
