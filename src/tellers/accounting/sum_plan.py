"""Planning a Gaussian sum: the least noise that a budget affords, with a share of it for the prior."""

import math
from dataclasses import dataclass
from typing import Any

from ..errors import require_count
from ..mechanisms.gaussian_sum import GaussianSum
from ..privacy.budget import Accountant
from ..privacy.rdp import RdpCurve
from ..privacy.votes import Unit

# Noise of so many steps is drawn from tables, and of half as many as good as continuous.
_MOST = 8192.0
# Frequencies of rare labels are small, and few: a finer grid costs nothing.
_PRIOR_STEPS = 1 << 14
_LEAST_SIGMA, _MOST_SIGMA = 1e-3, 1e9
# Sigma is a number that people read.
_DIGITS = 6


@dataclass(frozen=True)
class SumPlan:
    """The mechanisms of one Gaussian sum: that of the scores, and that of the prior where one is bought.

    >>> from tellers import Accountant, Budget
    >>> plan = plan_sum(Accountant(Budget(1.0, 1e-5)))
    >>> plan.scores.sigma < plan.prior.sigma, round(plan.mu, 3), round(plan.price().epsilon(1e-5), 3)
    (True, 0.247, 1.0)
    """

    scores: GaussianSum
    prior: GaussianSum | None

    @property
    def mu(self) -> float:
        """Return how far one ballot moves all that is released, in standard deviations of the noise."""
        every = (self.scores,) if self.prior is None else (self.scores, self.prior)
        return math.sqrt(sum(one.mu() ** 2 for one in every))

    def price(self, unit: Unit = Unit()) -> RdpCurve:  # noqa: B008 - frozen
        """Return what both releases cost together."""
        total = self.scores.batch_price(unit)
        return total if self.prior is None else total + self.prior.batch_price(unit)


def given_sum(sigma: float) -> GaussianSum:
    """Return the sum with this noise, on the grid that a plan would choose.

    >>> given_sum(7.5)
    GaussianSum(sigma=7.5, steps=1024)
    """
    return GaussianSum(sigma, _steps(sigma))


def with_prior(scores: GaussianSum, *, prior_share: float = 0.05, n_sums: int = 1) -> SumPlan:
    """Return a sum whose noise is given, with a prior that takes `prior_share` of mu^2 of all.

    >>> with_prior(GaussianSum(8.0), prior_share=0.2).prior.sigma
    16.0
    """
    if not prior_share:
        return SumPlan(scores, None)
    of_prior = _rounded(scores.sigma * math.sqrt((1 - prior_share) / (prior_share * n_sums)))
    return SumPlan(scores, GaussianSum(of_prior, max(_PRIOR_STEPS, _steps(of_prior))))


def plan_sum(
    accountant: Accountant,
    *,
    spent: RdpCurve | None = None,
    unit: Unit = Unit(),  # noqa: B008 - frozen
    prior_share: float = 0.05,
    n_sums: int = 1,
) -> SumPlan:
    """Return the Gaussian sum with the least noise that a budget affords.

    How many teachers and questions there are does not matter to the price. `prior_share` of mu^2 goes to the
    prior, 0 for a prior that is declared; `n_sums` sums of scores share the rest evenly, one for each pool.

    Guarantee: the accountant affords the prior and all sums one after another, after what was spent.
    Assumes:   nothing else is spent.
    Reference: "Gaussian sums", section "Composition".

    >>> from tellers import Accountant, Budget
    >>> accountant = Accountant(Budget(1.0, 1e-5))
    >>> plan = plan_sum(accountant)
    >>> accountant.affords(RdpCurve.zero(), plan.price())
    True
    >>> finer = GaussianSum(plan.scores.sigma * 0.999, plan.scores.steps)
    >>> accountant.affords(RdpCurve.zero(), finer.batch_price(Unit()) + plan.prior.batch_price(Unit()))
    False
    """
    require_count(n_sums=n_sums)
    if not 0 <= prior_share < 1:
        raise ValueError(f"Expected prior_share in [0, 1), got {prior_share}.")
    paid: Any = RdpCurve.zero() if spent is None else spent

    def with_sigma(sigma: float) -> SumPlan:
        return with_prior(given_sum(sigma), prior_share=prior_share, n_sums=n_sums)

    def affordable(sigma: float) -> bool:
        plan = with_sigma(sigma)
        total = n_sums * plan.scores.batch_price(unit)
        return accountant.affords(paid, total if plan.prior is None else total + plan.prior.batch_price(unit))

    low, high = _LEAST_SIGMA, _MOST_SIGMA
    if not affordable(high):
        raise ValueError("Expected a budget that affords a sum at some noise, got one with nothing left.")
    while high / low > 1 + 10.0**-_DIGITS:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if affordable(middle) else (middle, high)
    sigma = _rounded(high)
    while not affordable(sigma):
        sigma = _rounded(sigma * (1 + 2 * 10.0**-_DIGITS))
    return with_sigma(sigma)


def _steps(sigma: float) -> int:
    """Return a power of two, so that the noise has so many steps as are drawn from tables."""
    return 1 << max(0, math.floor(math.log2(_MOST / sigma)))


def _rounded(sigma: float) -> float:
    """Return sigma rounded up to a few digits."""
    place = 10.0 ** (math.floor(math.log10(sigma)) - _DIGITS)
    return float(f"{math.ceil(sigma / place) * place:.{_DIGITS + 2}g}")
