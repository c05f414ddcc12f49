"""Rényi curves: the currency in which every privacy cost is counted.

A curve holds, for each order on a grid, an upper bound on the Rényi divergence between what is
released on neighbouring data sets. Curves add when releases compose, also adaptively, and convert
to (epsilon, delta) once, at the end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_finite, require_fraction, require_positive

Floats = NDArray[np.float64]
Conversion = Literal["tight", "classic"]


def _default_orders() -> Floats:
    # Evenly spaced runs, so that powers for one order follow from the last by one multiplication;
    # every integer from 2 to 64 is there because published tables use them.
    runs = [
        np.arange(1.25, 4, 0.25),
        np.arange(4, 64, 1.0),
        np.arange(64, 128, 4.0),
        np.arange(128, 256, 16.0),
        np.arange(256, 513, 32.0),
    ]
    orders: Floats = np.concatenate(runs)
    orders.flags.writeable = False
    return orders


DEFAULT_ORDERS: Floats = _default_orders()


def check_orders(orders: ArrayLike | None) -> Floats:
    """Return a valid order grid, the default one for None."""
    if orders is None or orders is DEFAULT_ORDERS:
        return DEFAULT_ORDERS
    known = _CHECKED.get(id(orders))
    if known is not None and known is orders:
        return known
    grid = np.array(orders, dtype=np.float64)
    if grid.ndim != 1 or grid.size == 0:
        raise ValueError(f"Expected a non-empty one-dimensional grid of orders, got shape {grid.shape}.")
    if not np.all(np.isfinite(grid)) or np.any(grid <= 1):
        bad = grid[~(np.isfinite(grid) & (grid > 1))][0]
        raise ValueError(f"Expected finite Rényi orders > 1, got {bad}.")
    if np.any(np.diff(grid) <= 0):
        raise ValueError("Expected strictly increasing Rényi orders; sort them and drop repeats.")
    grid.flags.writeable = False
    _CHECKED[id(grid)] = grid
    return grid


# Grids that were looked at, which nobody can write to since: curves share them.
_CHECKED: "WeakValueDictionary[int, Floats]" = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class RdpCurve:
    """Rényi divergence bounds on a grid of orders.

    Guarantee: sums bound adaptive composition at every order; `epsilon` is valid for every order.
    Assumes:   each value bounds the divergence of its order, in both directions, for the
               neighbouring relation of whoever made the curve.
    Reference: Mironov 2017, Proposition 1 (composition).

    >>> curve = RdpCurve.zcdp(1 / 40**2)
    >>> round((461 * curve).epsilon(1e-5), 2)
    3.46
    """

    orders: Floats
    values: Floats

    def __post_init__(self) -> None:
        orders = check_orders(self.orders)
        values = np.array(self.values, dtype=np.float64)
        if values.shape != orders.shape:
            raise ValueError(
                f"Expected one Rényi value per order, {orders.size} of them, got shape {values.shape}."
            )
        if not (values >= 0).all():
            if np.any(np.isnan(values)):
                raise ValueError(
                    f"Expected Rényi values without NaN, got NaN at order {orders[np.isnan(values)][0]:g}."
                )
            raise ValueError(
                f"Expected Rényi values >= 0, got a negative one at order {orders[values < 0][0]:g}."
            )
        values.flags.writeable = False
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "values", values)

    @classmethod
    def zero(cls, orders: ArrayLike | None = None) -> "RdpCurve":
        """Return the curve of a release that costs nothing.

        >>> RdpCurve.zero().epsilon(1e-5)
        0.0
        """
        grid = check_orders(orders)
        return cls(grid, np.zeros_like(grid))

    @classmethod
    def from_function(
        cls, divergence: Callable[[Floats], Floats], orders: ArrayLike | None = None
    ) -> "RdpCurve":
        """Return the curve of a function of the order.

        >>> float(RdpCurve.from_function(lambda order: order / 2, orders=[2, 4]).values[1])
        2.0
        """
        grid = check_orders(orders)
        return cls(grid, divergence(grid))

    @classmethod
    def zcdp(cls, rho: float, orders: ArrayLike | None = None) -> "RdpCurve":
        """Return the curve order * rho of zero-concentrated privacy."""
        require_finite(rho=rho)
        return cls.from_function(lambda order: order * rho, orders)

    @classmethod
    def pure(cls, epsilon: float, orders: ArrayLike | None = None) -> "RdpCurve":
        """Return the smallest curve that holds for every (epsilon, 0)-private release.

        Guarantee: the value at each order is the divergence of randomised response, the extreme
                   pair of distributions with likelihood ratios within [e^-epsilon, e^epsilon].
        Assumes:   the release is (epsilon, 0)-differentially private.
        Reference: Bun and Steinke 2016, Proposition 3.3, in its exact form
                   (sinh(a e) - sinh((a-1) e)) / sinh(e).

        >>> bool(np.all(RdpCurve.pure(0.1).values <= DEFAULT_ORDERS * 0.1**2 / 2))
        True
        """
        require_positive(epsilon=epsilon)

        def divergence(order: Floats) -> Floats:
            # Randomised response: p = e^eps / (1 + e^eps) against 1 - p.
            log_p, log_q = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
            first = order * log_p + (1 - order) * log_q
            second = order * log_q + (1 - order) * log_p
            both: Floats = np.logaddexp(first, second) / (order - 1)
            return np.minimum(both, np.minimum(epsilon, order * epsilon**2 / 2))

        return cls.from_function(divergence, orders)

    @classmethod
    def largest(cls, curves: Iterable["RdpCurve"]) -> "RdpCurve":
        """Return the largest value at every order: what none of these curves is above.

        >>> float(RdpCurve.largest([RdpCurve.zcdp(0.5, orders=[2, 8]), RdpCurve.zero([2, 8])]).values[1])
        4.0
        """
        every = list(curves)
        return cls(every[0].orders, np.max([curve.values for curve in every], axis=0))

    def __add__(self, other: "RdpCurve") -> "RdpCurve":
        if not isinstance(other, RdpCurve):
            return NotImplemented
        if self.orders is not other.orders and not np.array_equal(self.orders, other.orders):
            raise ValueError(
                "Expected two curves on the same grid of orders; "
                "build both with the same `orders` before adding them."
            )
        return RdpCurve(self.orders, self.values + other.values)

    def __mul__(self, times: float) -> "RdpCurve":
        if isinstance(times, bool) or not isinstance(times, (int, float, np.integer, np.floating)):
            return NotImplemented
        require_finite(times=float(times))
        if times < 0:
            raise ValueError(f"Expected a number of repetitions >= 0, got {times}.")
        # 0 * inf is NaN: nothing released costs nothing, whatever one release would cost.
        return RdpCurve(self.orders, self.values * times if times else np.zeros_like(self.values))

    __rmul__ = __mul__

    def as_price(self) -> "RdpCurve":
        """Return the curve with values rounded up to 32 significant bits: what a mechanism charges.

        Sums of such prices are exact in double precision, as long as the largest is no more than 2^21 times
        the smallest of them: what queries cost is then the same number however they were put into batches,
        and in whichever order they were added up.

        Guarantee: never below the curve, and above it by less than one part in 10^9.
        Assumes:   nothing.
        Reference: a double has 53 bits.

        >>> price = RdpCurve.zcdp(1 / 40**2).as_price()
        >>> bool(((0.1 * price).as_price().values >= 0.1 * price.values).all())
        True
        >>> sum([price] * 7, start=RdpCurve.zero()).epsilon(1e-5) == (7 * price).epsilon(1e-5)
        True
        """
        fraction, exponent = np.frexp(self.values)
        return RdpCurve(self.orders, np.ldexp(np.ceil(np.ldexp(fraction, 32)), exponent - 32))

    def epsilon_and_order(self, delta: float, *, conversion: Conversion = "tight") -> tuple[float, float]:
        """Return the smallest epsilon at this delta and the order it comes from.

        Guarantee: a release that obeys the curve is (epsilon, delta)-differentially private.
        Assumes:   0 < delta < 1.
        Reference: tight: Canonne, Kamath, Steinke 2020, Proposition 12, and delta <= sqrt(1 - e^-KL)
                   where it already holds at epsilon 0. classic: Mironov 2017, Proposition 3, kept
                   to reproduce published tables.

        >>> epsilon, order = RdpCurve.zcdp(0.01).epsilon_and_order(1e-5)
        >>> round(epsilon, 3), order
        (0.546, 30.0)
        """
        require_fraction(delta=delta)
        if conversion not in ("tight", "classic"):
            raise ValueError(f"Expected conversion 'tight' or 'classic', got {conversion!r}.")
        order, value = self.orders, self.values
        if conversion == "classic":
            epsilons = value - np.log(delta) / (order - 1)
        else:
            epsilons = value + np.log1p(-1 / order) - (np.log(delta) + np.log(order)) / (order - 1)
            # KL <= every Rényi divergence of order > 1, and total variation <= sqrt(1 - e^-KL).
            epsilons = np.where(delta**2 + np.expm1(-value) > 0, 0.0, epsilons)
        best = int(np.argmin(epsilons))
        return max(0.0, float(epsilons[best])), float(order[best])

    def epsilon(self, delta: float, *, conversion: Conversion = "tight") -> float:
        """Return the smallest epsilon at this delta.

        >>> RdpCurve.zcdp(0.01).epsilon(1e-5) < RdpCurve.zcdp(0.01).epsilon(1e-5, conversion="classic")
        True
        """
        return self.epsilon_and_order(delta, conversion=conversion)[0]
