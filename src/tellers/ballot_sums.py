"""Long sums of costs: over queries, and for every teacher over the ballots it cast."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# Sums worked on at once: what is in between stays in the cache.
_CACHED = 1 << 14


class RunningSums:
    """Sums that keep what rounding drops: their error does not grow with the number of terms.

    Guarantee: the total of n terms, none of them negative, is relatively off by at most u + (n u)^2 and
               terms of higher order, u = 2^-53.
    Assumes:   rounding to nearest, as floating-point units do it.
    Reference: Ogita, Rump, Oishi 2005, Proposition 4.5 (Sum2).

    >>> sums = RunningSums((1,))
    >>> for term in (1.0, 1e-16, 1e-16):
    ...     sums.add(np.array([term]))
    >>> float(sums.total[0]) > 1.0, 1.0 + 1e-16 + 1e-16 > 1.0
    (True, False)
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum, self._lost = np.zeros(shape), np.zeros(shape)

    def add(self, terms: Floats) -> None:
        """Add one term to every sum."""
        sums, lost, flat = self._sum.reshape(-1), self._lost.reshape(-1), terms.reshape(-1)
        for i in range(0, flat.size, _CACHED):
            term, old = flat[i : i + _CACHED], sums[i : i + _CACHED]
            new = old + term
            with np.errstate(invalid="ignore"):
                taken = new - old
                # What of either summand did not make it into the new sum (Knuth's two-sum).
                rest = (old - (new - taken)) + (term - taken)
            # Infinity has swallowed its rest.
            lost[i : i + _CACHED] += rest if np.isfinite(rest).all() else np.where(np.isfinite(rest), rest, 0)
            old[...] = new

    @property
    def total(self) -> Floats:
        """Return the sums; costs are not negative, which rounding does not know."""
        return np.asarray(np.maximum(self._sum + self._lost, 0.0))


def sums_by_teacher(
    costs: Floats, ballots: Integers, which: Integers | None = None, *, common: Integers
) -> Floats:
    """Sum, for every teacher, the costs of the ballots it cast, (directions, teachers, orders).

    `costs` is (directions, queries, weights, classes, orders), `ballots` (teachers, queries), and `which` the
    weight behind each ballot, -1 for an absent teacher, None where there is one weight for all. `common` is
    a ballot of each query that many cast: any will do, the commonest is the fastest.

    >>> costs = np.array([[[[[1.0], [5.0]]], [[[2.0], [7.0]]]]])
    >>> sums_by_teacher(costs, np.array([[0, 0], [0, 1], [1, 1]]), common=np.array([0, 1])).ravel()
    array([ 3.,  8., 12.])
    """
    if which is not None and (costs.shape[2] > 1 or (which < 0).any()):
        return _product(costs, ballots + np.maximum(which, 0) * costs.shape[3], which >= 0)
    # What the commonest ballot costs is added once for all teachers, and the product is left with those who
    # cast another: under consensus few.
    queries = np.arange(len(common))
    shared = costs[:, queries, 0, common, :]
    if not np.isfinite(shared).all():  # infinity cannot be taken away again
        return _product(costs, ballots, np.ones(ballots.shape, dtype=bool))
    apart = _product(costs - shared[:, :, None, None, :], ballots, ballots != common)
    apart += shared.sum(axis=1)[:, None, :]
    return apart


def _product(costs: Floats, rows: Integers, taken: NDArray[np.bool_]) -> Floats:
    """Sum, for every teacher, the rows of each query's costs that are taken: a sparse 0/1 matrix product."""
    n_teachers, n_queries = rows.shape
    n_rows = costs.shape[2] * costs.shape[3]
    shape = (n_teachers, n_queries * n_rows)
    at = np.flatnonzero(taken)  # few of all ballots: no other array is as large as they are
    columns = (at % n_queries) * n_rows + np.take(rows, at)
    pointers = np.concatenate([[0], np.cumsum(np.count_nonzero(taken, axis=1))])
    cast = csr_array((np.ones(at.size), columns, pointers), shape=shape)
    return np.stack([cast @ direction.reshape(shape[1], -1) for direction in costs])
