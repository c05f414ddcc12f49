"""One Gaussian sum: the scores of all teachers for the whole pool, added up and released once with noise."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..errors import require_count, require_positive
from ..privacy._clock import TICKS, ClockTable
from ..privacy._price import Item
from ..privacy._scipy import log_ndtr, ndtri
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, NoiseLevel, Release
from ..privacy.votes import Scores, Unit, Votes
from ._admission import require_kind
from .registry import check_parameters, parameter, register


@register("gaussian-sum", "one noisy sum of all scores for the whole pool")
@dataclass(frozen=True)
class GaussianSum:
    """Report the sum of the teachers' score matrices after Gaussian noise on every entry, once.

    A ballot is a matrix for the whole pool, bounded as a whole by `Scores`: what the sum costs does not
    depend on how many questions there are. `sigma` is counted in norms of one ballot, and the sums lie on a
    grid of `steps` per norm, the same as that of the votes.

    What comes out are `values`, queries x columns in steps, with their `noise_level`: brought back from the
    directions of the pool where the votes have some. The labels come along free of charge: of classes the
    leader, of many labels yes where the noisy sum is above what was expected. A sum answers everything, so
    nothing is silent. Students do better with the values; see `students.fit_sum`.

    There are no `outcomes`: the worst neighbour shifts the sum by the same length whatever the votes, so an
    exact cost would be the price.

    Guarantee: with mu = 2 n_ballots / sigma, every order costs at most order * mu^2 / 2, and for every
               epsilon one release is no easier to tell from a neighbour's than N(0, 1) from
               N(mu * grid_factor(sigma * steps), 1).
    Assumes:   one unit replaces one ballot (or unit.n_ballots) by any other; noise from a secure source.
    Reference: Canonne, Kamath, Steinke 2020, Theorem 14 (the discrete Gaussian in several dimensions);
               Dong, Roth, Su 2022, Theorem 2 (trade-off functions).

    >>> from tellers import Votes, noise
    >>> from tellers.privacy import Scores
    >>> scores = [[[0.9, -0.1], [-0.2, 0.7]], [[0.4, -0.3], [-0.8, 0.1]], [[0.7, 0.0], [0.0, 0.7]]]
    >>> votes = Votes.from_ballots(scores, Scores(2, steps=1000))
    >>> release = GaussianSum(sigma=0.1, steps=1000).release(votes, noise.seeded(7))
    >>> release.values.tolist(), release.labels.tolist()
    ([[1920, -558], [-851, 1295]], [[1, 0], [0, 1]])
    >>> release.noise_level
    NoiseLevel(sigma=100.0, steps=1000, n_teachers=3, n_directions=None)
    >>> round(GaussianSum(sigma=7.5).batch_price(votes.unit, 4000).epsilon(1e-5), 2)
    1.09
    """

    sigma: float = parameter(
        "standard deviation of the noise on every entry of the sum, in norms of one ballot",
        above=0, example=7.5,
    )  # fmt: skip
    steps: int = parameter("steps of the grid per norm of a ballot", default=1024, example=1024)
    of_scores: ClassVar[bool] = True
    one_price: ClassVar[bool] = True
    releases_counts: ClassVar[bool] = True
    price_method: ClassVar[str] = "sum-rdp"

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.sigma * self.steps < _FEWEST_STEPS:
            raise ValueError(
                f"Expected noise of at least {_FEWEST_STEPS} steps, got sigma * steps = "
                f"{self.sigma * self.steps:.3g}. Count in finer steps."
            )
        Scores(1, self.steps)

    def batch_price(self, unit: Unit, n_queries: int = 1, orders: ArrayLike | None = None) -> RdpCurve:
        """Return what the sum costs, however many queries the pool has.

        >>> from tellers import Unit
        >>> one, many = (GaussianSum(sigma=7.5).batch_price(Unit(), n) for n in (1, 4000))
        >>> bool((one.values == many.values).all())
        True
        """
        require_count(n_queries=n_queries)
        mu = self.mu(unit)
        # Rounded up: the square of a quotient may be off by two units in the last place.
        curve = RdpCurve.zcdp(mu * mu / 2 * (1 + 1e-15), orders).as_price()
        return Item((curve,), ShiftClock(self.clock_mu(unit) ** 2)).price()

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return what the sum costs: the same for one query as for a whole pool.

        >>> from tellers import Unit
        >>> round(GaussianSum(sigma=7.5).price(Unit()).epsilon(1e-5), 2)
        1.09
        """
        return self.batch_price(unit, 1, orders)

    def mu(self, unit: Unit = Unit()) -> float:  # noqa: B008 - frozen
        """Return how far one unit moves the sum, in standard deviations of the noise.

        >>> GaussianSum(sigma=8.0).mu()
        0.25
        """
        return Scores(1, self.steps).moved(unit) / (self.sigma * self.steps)

    def clock_mu(self, unit: Unit = Unit()) -> float:  # noqa: B008 - frozen
        """Return the shift of the Gaussian that the release is no easier to tell apart than: with the grid.

        >>> 0.25 < GaussianSum(sigma=8.0).clock_mu() < 0.25000001
        True
        """
        return self.mu(unit) * grid_factor(self.sigma * self.steps)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw the noise and return the noisy sums, and the labels that they suggest."""
        require_kind(self, votes)
        space: Any = votes.space
        # As a fraction: a float times a whole number would be rounded, and the price goes by the product.
        sigma = Fraction(self.sigma) * self.steps
        noisy = votes.totals + noise.discrete_gaussian(sigma, votes.totals.shape)
        n_directions = None
        if space.directions is not None:
            n_directions = space.directions.shape[1]
            noisy = np.rint(space.directions @ noisy).astype(np.int64)
        labels = noise.break_ties(noisy) if space.one_class else (noisy > 0).astype(np.int64)
        level = NoiseLevel(float(sigma), self.steps, votes.n_teachers, n_directions)
        cost = Cost(self.batch_price(votes.unit, len(votes)))
        return Release(labels, cost, values=noisy, noise_level=level)


@dataclass(frozen=True)
class ShiftClock:
    """What turns a Gaussian clock down by a squared distance, wherever it stands.

    The pair of laws that a sum may have on neighbours is no easier to tell apart than N(0, 1) and N(mu, 1)
    with mu^2 = `squared`: for every convex function of the likelihood ratio, what is left of the clock among
    them, the mean is no larger. After N(mu, 1) what is left is `squared` less, exactly.

    Guarantee: one event, without any loss by kappa.
    Assumes:   the trade-off of the pair lies nowhere below that of N(0, 1) and N(mu, 1).
    Reference: Blackwell 1951, by way of Dong, Roth, Su 2022, Theorem 2.10; Smith and Thakurta 2022.

    >>> round(ShiftClock(0.0625).table(1e-12).dearest[0] / 2**40, 9)
    0.0625
    """

    squared: float

    def __post_init__(self) -> None:
        require_positive(squared=self.squared)

    def identity(self) -> dict[str, Any]:
        """Return what tells this family from every other."""
        return {"family": "shift", "squared": self.squared}

    def table(self, kappa: float) -> ClockTable:
        """Return the table: one price at every level, rounded up."""
        ticks = math.ceil(self.squared * (1 + 1e-14) * TICKS) + 1
        return ClockTable((0,), ((ticks,),), kappa=kappa)


_FEWEST_STEPS = 2
"""Below, whole noise is far from a Gaussian, and the grid dearer than it need be."""


@cache
def grid_factor(sigma: float) -> float:
    """Return by how much whole noise of so many steps is easier to see through than real noise.

    Shifted by one step, discrete Gaussian noise is told apart best at its centre: two thresholds there lie
    2 z apart in standard deviations, with Phi(z) = P[X <= 0]. Thresholds further out lie closer together, so
    a Gaussian shifted by `grid_factor(sigma) / sigma` per step is above all of them.

    Guarantee: no trade-off of a discrete Gaussian and itself shifted by d whole steps lies below that of
               N(0, 1) and N(d * grid_factor(sigma) / sigma, 1), for sigma >= 2. It is
               1 + 1 / (24 sigma^2) + 7 / (1920 sigma^4) + ...
    Assumes:   that the widest distance is at the centre, which is checked in high precision and not proved.
    Reference: "Gaussian sums", section "The grid"; Dong, Roth, Su 2022, section 2.

    >>> round(grid_factor(4.0), 6), grid_factor(1000.0) - 1 < 5e-8
    (1.002619, True)
    """
    require_positive(sigma=sigma)
    if sigma < _FEWEST_STEPS:
        raise ValueError(f"Expected noise of at least {_FEWEST_STEPS} steps, got {sigma}.")
    if sigma >= 50:
        # The series: what is left out is below sigma^-6 / 1000, and quantiles are less precise than that.
        return 1 + 1 / (24 * sigma**2) + 4 / (1000 * sigma**4) + 4e-16
    x = np.arange(1, math.ceil(40 * sigma), dtype=np.float64)
    at_zero = 1 / (1 + 2 * math.fsum(np.exp(-0.5 * (x / sigma) ** 2)))
    return float(2 * sigma * ndtri(0.5 + at_zero / 2)) * (1 + 1e-12)


def sum_sigma(mu: float) -> float:
    """Return the sigma at which one replaced ballot moves a sum by mu standard deviations.

    >>> sum_sigma(0.25)
    8.0
    """
    require_positive(mu=mu)
    return 2.0 / mu


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta at which N(0, 1) and N(mu, 1) are (epsilon, delta)-indistinguishable.

    Guarantee: exact, to rounding.
    Assumes:   nothing.
    Reference: Dong, Roth, Su 2022, Corollary 1; Balle and Wang 2018, Theorem 8.

    >>> round(gaussian_delta(1.0, 4.377), 7)
    1e-05
    """
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return max(0.0, -math.exp(first) * math.expm1(second - first))
