"""The Rényi divergence of discrete distributions, at many orders at once.

Powers grow by multiplication from order to order wherever a grid has even steps: one exponential per outcome
and run of orders, not one per order.
"""

import numpy as np
from numpy.typing import ArrayLike

from ..privacy.rdp import Floats, check_orders
from ._outcomes import Outcomes

# A run of orders must stay inside float range.
_POWER_RANGE = 500.0


def divergences(outcomes: Outcomes, *, orders: ArrayLike | None = None) -> Floats:
    """Return the largest divergence over alternatives, (2 directions, queries, from, orders).

    Guarantee: direction 0 is D(here || there), direction 1 is D(there || here), each to rounding.
    Assumes:   the log-probabilities of `outcomes` are normalised.
    Reference: the definition of the Rényi divergence.

    >>> from tellers import GNMax, Votes
    >>> outcomes = GNMax(sigma=10.0).outcomes(Votes.from_counts([[548, 452]], n_teachers=1000))
    >>> forward, reverse = divergences(outcomes, orders=[8.0])
    >>> bool(reverse.max() > forward.max())
    True
    """
    grid = check_orders(orders)
    alive = (outcomes.multiplicity > 0) & outcomes.moves[..., None]
    log_ratio = np.where(alive, outcomes.log_here - outcomes.log_there, 0.0)
    start = np.stack([outcomes.log_here, outcomes.log_there])
    start = np.where(alive, start + np.log(np.maximum(outcomes.multiplicity, 1)), -np.inf)
    # Outcomes first: they are summed for every order, and sums over a leading axis run at full speed.
    start = np.ascontiguousarray(np.moveaxis(start, 4, 0))
    slope = np.ascontiguousarray(np.moveaxis(np.stack([log_ratio, -log_ratio]), 4, 0))
    steepest = float(np.abs(log_ratio).max(initial=0.0))
    result = np.zeros((grid.size, 2, *outcomes.moves.shape[:2]))
    anywhere = outcomes.moves.any(axis=2)
    for begin, length, step in _pieces(grid, steepest):
        exponent = start + (grid[begin] - 1) * slope
        top = np.where(anywhere, exponent.max(axis=(0, 4)), 0.0)
        term = np.exp(exponent - top[..., None])
        factor = np.exp(step * slope) if length > 1 else slope
        for i in range(begin, begin + length):
            largest = term.sum(axis=0).max(axis=3)
            with np.errstate(divide="ignore"):
                value = (np.log(largest) + top) / (grid[i] - 1)
            result[i] = np.where(anywhere, np.maximum(value, 0.0), 0.0)
            if i + 1 < begin + length:
                term *= factor
    return np.moveaxis(result, 0, 3)


def pair_divergences(log_here: Floats, log_there: Floats, orders: ArrayLike | None = None) -> Floats:
    """Return the divergences of pairs of distributions, (outcomes, pairs) each: (2, pairs, orders).

    Guarantee: as `divergences`; never below 0.
    Assumes:   the log-probabilities are normalised.
    Reference: the definition of the Rényi divergence.
    """
    grid = check_orders(orders)
    n_pairs = log_here.shape[1]
    start = np.stack([log_here, log_there], axis=1)
    ratio = log_here - log_there
    slope = np.stack([ratio, -ratio], axis=1)
    steepest = float(np.abs(ratio).max(initial=0.0))
    result = np.empty((grid.size, 2, n_pairs))
    for begin, length, step in _pieces(grid, steepest):
        exponent = start + (grid[begin] - 1) * slope
        top = exponent.max(axis=0)
        term = np.exp(exponent - top)
        factor = np.exp(step * slope) if length > 1 else slope
        for i in range(begin, begin + length):
            value = (np.log(term.sum(axis=0)) + top) / (grid[i] - 1)
            result[i] = np.maximum(value, 0.0)
            if i + 1 < begin + length:
                term *= factor
    return np.ascontiguousarray(np.moveaxis(result, 0, 2))


def _pieces(grid: Floats, steepest: float) -> list[tuple[int, int, float]]:
    """Return (first index, length, step) of runs over which powers stay in range."""
    pieces = []
    for first, count, step in _even_runs(grid):
        if step * (count - 1) * steepest > _POWER_RANGE:
            pieces += [(i, 1, 0.0) for i in range(first, first + count)]
        else:
            pieces.append((first, count, step))
    return pieces


def _even_runs(grid: Floats) -> list[tuple[int, int, float]]:
    """Split a grid into (first index, length, step) with even steps."""
    runs, first = [], 0
    while first < grid.size:
        last = first + 1
        if last < grid.size:
            step = grid[last] - grid[first]
            while last < grid.size and abs(grid[last] - grid[last - 1] - step) < 1e-12 * grid[last]:
                last += 1
        runs.append((first, last - first, float(grid[first + 1] - grid[first]) if last - first > 1 else 0.0))
        first = last
    return runs
