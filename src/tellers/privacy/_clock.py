"""The Gaussian clock: a second way to hold a budget, in which the state is one number.

A budget (epsilon, delta) is as much as one release of a Gaussian with squared distance B: that is the clock
at its start. A query turns it down by its price, which depends a little on how much is left after it, and
is read from a table. What is left is a share of the clock, and never an epsilon.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, ndtr

from ..errors import require_fraction, require_positive
from .rdp import Floats

TICKS = 2**40
"""How many ticks are in a squared distance of one. Whole numbers add up the same in every order."""

TABLE_VERSION = 1
"""The version of how tables are computed. A ledger is opened with one and keeps it."""


def potential(level: ArrayLike, k: ArrayLike) -> Floats:
    """Return the hockey stick of N(0, 1) and N(sqrt(level), 1) at e^k: the delta of a clock at epsilon k.

    It is computed without cancellation where k >= 0; below, w(b, k) = 1 - e^k + e^k w(b, -k) may be used.

    Guarantee: none; rounding is of the order of 1e-15 for k >= 0.
    Assumes:   level >= 0.
    Reference: Balle and Wang 2018, Theorem 8.
    """
    level, k = np.broadcast_arrays(np.asarray(level, float), np.asarray(k, float))
    root = np.sqrt(np.maximum(level, 1e-300))
    near, far = k / root - root / 2, k / root + root / 2
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        half = 0.5 * np.exp(-0.5 * near * near)
        tail = half * (erfcx(near / math.sqrt(2)) - erfcx(far / math.sqrt(2)))
        plain = ndtr(-near) - np.exp(np.minimum(k, 700.0)) * ndtr(-far)
    found = np.where(near > -5, tail, plain)
    none_left = np.maximum(0.0, -np.expm1(np.minimum(k, 0.0)))
    return np.where(level > 0, np.maximum(found, none_left), none_left)


@dataclass(frozen=True)
class ClockTable:
    """What one query turns the clock down by, given how much is left after it.

    `levels` are ticks left after the dearest kind of outcome, upwards from 0. `prices[j][i]` is what kind j
    costs where at least `levels[i]` is left. The dearest kind never costs more at a higher level.

    Guarantee: with these prices a step keeps the potential, up to `events` times kappa.
    Assumes:   whoever made the table showed it: see `tellers.mechanisms._clock`.
    Reference: "Composition, filters and conversion": the filter with a Gaussian clock.
    """

    levels: tuple[int, ...]
    prices: tuple[tuple[int, ...], ...]
    kappa: float
    events: int = 1

    def __post_init__(self) -> None:
        if not self.levels or self.levels[0] != 0 or any(b <= a for a, b in pairwise(self.levels)):
            raise ValueError("Expected levels that rise from 0.")
        if not self.prices or any(len(row) != len(self.levels) for row in self.prices):
            raise ValueError("Expected a price at every level, for every kind of outcome.")
        dearest = self.dearest
        if min(map(min, self.prices)) < 0 or dearest[-1] < 1 or any(b > a for a, b in pairwise(dearest)):
            raise ValueError("Expected whole prices above 0 that do not grow with the level.")
        if self.events < 1 or not 0 <= self.kappa < 1:
            raise ValueError(f"Expected events >= 1 and kappa in [0, 1), got {self.events}, {self.kappa}.")

    @cached_property
    def dearest(self) -> tuple[int, ...]:
        """Return the price of the dearest kind at every level."""
        return tuple(max(column) for column in zip(*self.prices, strict=True))

    def dearest_at(self, level: int) -> int:
        """Return the price of the dearest kind where this level is left after it."""
        return self.dearest[bisect_right(self.levels, level) - 1]

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        # The least ticks from which a step ends at this level or a higher one: they rise, so a search works.
        starts = [level + price for level, price in zip(self.levels, self.dearest, strict=True)]
        return tuple(accumulate(reversed(starts), min))[::-1]

    def steps(self, left: int, n: int) -> list[tuple[int, int]] | None:
        """Return the levels that n steps are priced at and how many at each, or None where n do not fit."""
        found = []
        while n > 0:
            at = bisect_right(self._starts, left) - 1  # the highest level that a step still reaches
            if at < 0:
                return None
            times = min(n, (left - self.levels[at]) // self.dearest[at])
            found.append((at, times))
            left, n = left - times * self.dearest[at], n - times
        return found

    def after(self, left: int, n: int) -> int | None:
        """Return the ticks left after n steps at their dearest, or None where they do not fit."""
        found = self.steps(left, n)
        return None if found is None else left - sum(times * self.dearest[at] for at, times in found)

    def to_json(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {"levels": list(self.levels), "prices": [list(row) for row in self.prices],
                "kappa": self.kappa, "events": self.events}  # fmt: skip

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "ClockTable":
        """Return the table that plain values say."""
        levels = tuple(_whole(level) for level in said["levels"])
        prices = tuple(tuple(_whole(price) for price in row) for row in said["prices"])
        return cls(levels, prices, kappa=float(said["kappa"]), events=_whole(said["events"]))


class ClockFamily(Protocol):
    """What a query may do, as pairs of laws: it works out its table when a clock asks for it."""

    def table(self, kappa: float) -> ClockTable:
        """Return the table at this kappa."""
        ...

    def identity(self) -> dict[str, Any]:
        """Return plain values that tell this family from every other."""
        ...


@dataclass(frozen=True)
class Clock:
    """The terms of a clock: how much of delta is set aside for events, and for how many."""

    kappa: float
    events: int
    tables: int = TABLE_VERSION

    def __post_init__(self) -> None:
        require_fraction(kappa=self.kappa)
        require_positive(events=self.events)

    @classmethod
    def for_delta(cls, delta: float) -> "Clock":
        """Return the usual terms: a hundredth of delta, at most, for 100,000 events."""
        # A power of ten: budgets whose deltas are alike share their tables.
        return cls(float(f"1e{math.floor(math.log10(1e-7 * delta) + 1e-9)}"), 100_000)

    @classmethod
    def for_events(cls, delta: float, n: float, *, checked: bool = False) -> "Clock":
        """Return terms for n events at least: fewer than usual leave each of them more of delta.

        They set aside a fiftieth of delta. Of queries that are `checked` first the last that a budget pays
        for are much dearer than the first, and less so with a larger kappa: terms for them set aside a
        twentieth for up to 1,000 events, and a tenth for up to 100. Numbers of events are 1, 2 or 5 times a
        power of ten, so that budgets share their tables.
        """
        usual = cls.for_delta(delta)
        steps = (m * 10**power for power in range(1, 6) for m in (1, 2, 5))
        events = next((step for step in steps if step >= max(n, 50)), usual.events)
        if events >= usual.events:
            return usual
        part = 50 if not checked or events > 1000 else 20 if events > 100 else 10
        whole = delta / (part * events)
        digit = 10.0 ** math.floor(math.log10(whole) + 1e-9)
        return cls(float(f"{math.floor(whole / digit + 1e-9)}e{round(math.log10(digit))}"), events)

    def beside(self, delta: float) -> "Clock":
        """Return the terms of another budget on the same tables: fewer events where delta is small."""
        events = min(self.events, int(delta / (10 * self.kappa) + 1e-9))
        if not events:
            raise ValueError(
                f"Expected a delta of at least {10 * self.kappa:g} beside this clock, whose tables set aside "
                f"{self.kappa:g} of it for every event, got {delta:g}."
            )
        return Clock(self.kappa, events, self.tables)

    def start(self, epsilon: float, delta: float) -> int:
        """Return the ticks that a budget begins with: as many as delta allows, rounded down.

        Guarantee: potential(start, epsilon) + events * kappa <= delta.
        Assumes:   the rounding of `potential` is below a part in 1e9.
        Reference: "Composition, filters and conversion": the filter with a Gaussian clock.
        """
        most = (delta - self.events * self.kappa) * (1 - 1e-9)
        if most <= 0:
            raise ValueError(
                f"Expected a delta above {self.events * self.kappa:g}, which the clock sets aside for "
                f"{self.events} events, got {delta:g}. Take a smaller kappa."
            )
        low, high = 0, TICKS
        while float(potential(high / TICKS, epsilon)) <= most:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = float(potential(middle / TICKS, epsilon)) <= most
            low, high = (middle, high) if fits else (low, middle)
        return low


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"Expected a whole number in a table, got {value!r}.")
    return value
