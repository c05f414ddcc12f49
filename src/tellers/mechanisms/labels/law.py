"""What comes out for one label, as a function of its sum alone.

A label is given iff sum + Z >= threshold, with Z a discrete Gaussian and everything in whole units; a
strict majority of K teachers is the threshold floor(K / 2) + 1. Where only sure labels are told, a second
noise first decides whether the larger of the sum and its complement reaches a bar; otherwise that label is
silent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...rdp import RdpCurve, check_orders
from ..check import log_pass_and_fail
from ..suprema import check_supremum

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Bar:
    """The check of every label: max(sum, total - sum) + Z >= height, Z of standard deviation sigma.

    `total` is what all who know a label can say together: one number, or one for each label.

    >>> Bar(sigma=5.0, height=40, total=50).height
    40
    """

    sigma: float
    height: int
    total: int | NDArray[np.int64]

    def margin(self, sums: NDArray[np.int64], total: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return by how much each label is above the bar.

        >>> Bar(5.0, 40, 50).margin(np.array([45, 25, 3]))
        array([  5, -15,   7])
        """
        most = self.total if total is None else total
        return np.asarray(np.maximum(sums, most - sums) - self.height)


@dataclass(frozen=True, eq=False)
class LabelLaw:
    """How a label is decided: the noise on its sum, in units, a threshold per label, and a bar or none.

    >>> law = LabelLaw(2.0, np.array([3]))
    >>> np.exp(law.log_outcomes(np.array([[2], [3]]))).round(3)
    array([[[0.6],
            [0.4]],
    <BLANKLINE>
           [[0.4],
            [0.6]]])
    """

    sigma: float
    threshold: NDArray[np.int64]
    bar: Bar | None = None

    @property
    def kinds(self) -> NDArray[np.int64]:
        """Return what labels differ in, (2, labels): the threshold, and the total where there is a bar.

        >>> LabelLaw(2.0, np.array([3, 3]), Bar(2.0, 4, 5)).kinds
        array([[3, 3],
               [5, 5]])
        """
        total = 0 if self.bar is None else self.bar.total
        return np.stack([self.threshold, np.broadcast_to(total, self.threshold.shape)])

    def log_outcomes(self, sums: NDArray[np.int64], kinds: NDArray[np.int64] | None = None) -> Floats:
        """Return log-probabilities, (outcomes, *sums): of 0, of 1, and of silence where there is a bar.

        `kinds` stands in for the labels' own where sums do not end with the labels.

        >>> LabelLaw(2.0, np.array([3]), Bar(2.0, 4, 5)).log_outcomes(np.array([3])).shape
        (3, 1)
        """
        limit, total = (self.threshold, None) if kinds is None else kinds
        one, zero = log_pass_and_fail((sums - limit).astype(np.float64), self.sigma)
        if self.bar is None:
            return np.stack([zero, one])
        told, silent = log_pass_and_fail(self.bar.margin(sums, total).astype(np.float64), self.bar.sigma)
        return np.stack([zero + told, one + told, silent])


def answer_supremum(sigma: float, weight: int, orders: ArrayLike | None = None) -> Floats:
    """Return the most that one label costs when its sum moves by at most `weight` units.

    Guarantee: as `suprema.check_supremum`: two outcomes, both directions, every sum; about
               0.637 order weight^2 / (2 sigma^2), never above order weight^2 / (2 sigma^2).
    Assumes:   whole sums, discrete Gaussian noise.
    Reference: "The price of an arg max"; "Many labels".

    >>> bool(answer_supremum(10.0, 1, [2.0])[0] < 2.0 / (2 * 10.0**2))
    True
    """
    if weight == 0:
        return np.zeros(check_orders(orders).size)
    return check_supremum(sigma, orders, weight=weight).values


def curve(values: Floats, orders: ArrayLike | None = None) -> RdpCurve:
    """Return the curve of Rényi values on a grid of orders.

    >>> curve(np.array([0.1]), [2.0]).values
    array([0.1])
    """
    return RdpCurve(check_orders(orders), values)
