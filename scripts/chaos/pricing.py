"""What labels cost, and what a budget buys: worked out from the formulas, by numpy alone.

The judge's own arithmetic. Nothing of what it judges is used here, also not its tables.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEAR = 1e-3
"""By how much prices may be below ours: we take continuous noise for discrete, and a grid for a maximum."""

_erf = np.frompyfunc(math.erfc, 1, 1)


def _tail(x: Floats) -> Floats:
    """Return log P[Z >= x] of a standard normal."""
    with np.errstate(divide="ignore"):
        plain = np.log(0.5 * _erf(np.minimum(x, 30.0) / math.sqrt(2)).astype(np.float64))
    safe = np.maximum(x, 1.0)
    far = -safe * safe / 2 - np.log(safe * math.sqrt(2 * math.pi)) + np.log1p(-1 / safe**2 + 3 / safe**4)
    return np.where(x > 25, far, plain)


def _divergence(order: float, logs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the Rényi divergence of two laws, given by the logs of the probabilities of each outcome."""
    parts = [order * one + (1 - order) * other for one, other in logs]
    return np.logaddexp.reduce(np.array(parts), axis=0) / (order - 1)


def gap_price(order: float, sigma: float) -> float:
    """Return the dearest comparison of two counts that a moved vote brings 2 closer: the price of an arg max.

    One of two classes wins with probability Phi(gap / (sigma sqrt 2)); with more classes it is dearer by less
    than a thousandth.
    """
    return _most(order, 2.0 / (math.sqrt(2) * sigma))


def check_price(order: float, sigma: float) -> float:
    """Return the dearest check of a count, which a moved vote changes by 1, against a threshold."""
    return _most(order, 1.0 / sigma)


@cache
def _most(order: float, step: float) -> float:
    """Return the largest divergence of two coins whose scores lie a step apart."""
    # At a high order the dearest gap lies far out, about as far as the order times the step.
    at = np.linspace(-12 - order * step, 12 + order * step, 801)
    values = _divergence(order, [(_tail(at), _tail(at + step)), (_tail(-at), _tail(-at - step))])
    return float(np.nanmax(values))


@dataclass(frozen=True)
class Prices:
    """What one query costs at each order: silent, and answered, for ballots of so many votes."""

    orders: Floats
    silent: Floats
    answered: Floats
    most_silent: Floats
    most_answered: Floats

    @classmethod
    def of(cls, orders: Floats, *, sigma: float, sigma_check: float, weight: int) -> "Prices":
        """Return the prices of a noisy arg max behind a check."""
        check = np.array([check_price(order, sigma_check / weight) for order in orders])
        argmax = np.array([gap_price(order, sigma / weight) for order in orders])
        gauss = orders * weight**2
        return cls(
            orders, check, check + argmax, gauss / (2 * sigma_check**2),
            gauss / (2 * sigma_check**2) + gauss / sigma**2,
        )  # fmt: skip

    def cost(self, n_silent: int, n_answered: int) -> Floats:
        return n_silent * self.silent + n_answered * self.answered

    def most(self, n_silent: int, n_answered: int) -> Floats:
        return n_silent * self.most_silent + n_answered * self.most_answered


def epsilon_at(order: float, value: float, delta: float) -> float:
    """Return the epsilon of a Rényi divergence (Canonne, Kamath and Steinke 2020, proposition 12)."""
    if value == 0:
        return 0.0
    return value + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def leaks_more(
    order: float, silent: float, answered: float, *, n_teachers: int, n_classes: int, sigma: float,
    sigma_check: float, threshold: int,
) -> float:  # fmt: skip
    """Return by how much a pair of charges is below what a query may leak: nothing, if it is at most 0.

    A filter stays within its budget if sum_o P(o)^a Q(o)^(1-a) e^(-(a-1) charge(o)) <= 1 for the outcomes of
    every query and every neighbour of it. It is looked at where little agreement meets the check: votes for
    two classes, one of which gains a vote of the other, or of nobody.
    """
    worst = -math.inf
    for top in range(-(-n_teachers // n_classes), n_teachers + 1, 2):
        votes = np.zeros(n_classes)
        votes[0], votes[1] = top, n_teachers - top
        if votes[1] > top:
            votes[1:] = (n_teachers - top) / (n_classes - 1)
        for change in (1, -1):
            moved = votes.copy()
            moved[0] += change
            moved[1] -= change
            if moved.min() < 0:
                continue
            before = _outcomes(tuple(votes), sigma, sigma_check, threshold)
            after = _outcomes(tuple(moved), sigma, sigma_check, threshold)
            charge = np.full(before.size, answered)
            charge[0] = silent
            for one, other in ((before, after), (after, before)):
                total = np.logaddexp.reduce(order * one + (1 - order) * other - (order - 1) * charge)
                worst = max(worst, float(total) / (order - 1))
    return worst


@lru_cache(maxsize=4096)
def _outcomes(votes: tuple[float, ...], sigma: float, sigma_check: float, threshold: int) -> Floats:
    """Return the logs of the probabilities of silence and of every class."""
    counts = np.array(votes)
    margin = np.array([(threshold - 0.5 - counts.max()) / sigma_check])
    passes, fails = float(_tail(margin)[0]), float(_tail(-margin)[0])
    grid = np.linspace(counts.min() - 10 * sigma, counts.max() + 10 * sigma, 2001)
    below = _tail(-(grid[None, :] - counts[:, None]) / sigma)  # log P[a noisy count is below]
    density = -0.5 * ((grid[None, :] - counts[:, None]) / sigma) ** 2 - math.log(
        sigma * math.sqrt(2 * math.pi)
    )
    wins = np.logaddexp.reduce(below.sum(axis=0) - below + density, axis=1) + math.log(grid[1] - grid[0])
    return np.concatenate([[fails], passes + wins])
