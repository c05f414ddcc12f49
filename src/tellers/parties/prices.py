"""What queries of a session cost: by the ledger, and if guardian and asker collude."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_positive
from ..mechanisms.registry import answers_of
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve, check_orders
from ..runs.settings.party import PartySettings
from ._last_step import is_sum, require_confidential
from ._ledger import moved_by, query_price

# --- Noise shares of answering parties ---
#
# Every answering party adds a discrete Gaussian share to the mask it sends. The sum of discrete Gaussians
# is no discrete Gaussian, but nearly one, and how nearly can be said exactly. With phi_v(z) = exp(-z^2 /
# 2v), the sum of a variable of weights R(x) phi_v(x) and a discrete Gaussian of variance t has the weights
#
# sum_x R(x) phi_v(x) phi_t(z - x) = phi_{v+t}(z) sum_x R(x) phi_s(x - c z),   1/s = 1/v + 1/t,  c = s/t.
#
# By Poisson's summation formula a sum of phi_s over shifted integers is sqrt(2 pi s) times 1 + 2 sum_k
# exp(-2 pi^2 s k^2) cos(2 pi k shift): between 1 - h and 1 + h. Starting from R = 1 and adding one share
# after the other, the ratio of the largest to the smallest R grows by at most (1 + h) / (1 - h) each time.
# `gap` is the log of that ratio; a Rényi divergence of order a then exceeds the discrete Gaussian's by at
# most gap a / (a - 1), in each number that moves, and by nothing in those that do not.

Floats = NDArray[np.float64]
_MOST_QUERIES = 1_000_000_000
_FINE = 20
_LEAST = math.sqrt(0.5)  # Below, discrete Gaussians are too coarse for their sum to be nearly one.


def share_sigma(sigma: float, *, n_shares: int) -> float:
    """Return the noise of each share such that `n_shares` of them have the variance sigma^2, or more.

    Count only shares that are surely there and unknown to others: the quorum, less those who may collude.

    >>> share_sigma(10.0, n_shares=4)
    5.0
    """
    require_positive(sigma=sigma)
    require_count(n_shares=n_shares)
    exact = max(sigma / math.sqrt(n_shares), _LEAST)
    while n_shares * exact**2 < sigma**2:
        exact = math.nextafter(exact, math.inf)
    return exact


def gap(sigma: float, n_shares: int) -> float:
    """Return how far a sum of discrete Gaussians is from a discrete Gaussian: the log of max / min ratio.

    Guarantee: log P[sum = z] + z^2 / (2 n_shares sigma^2) varies by at most the gap over all whole z.
    Assumes:   independent shares of one sigma, at least sqrt(1/2).
    Reference: derived at the top of this module. Kairouz, Liu and Steinke 2021 (arXiv:2102.06387) bound the
               distance from the discrete Gaussian itself, by the same exponent and a larger constant.
    """
    require_positive(sigma=sigma)
    require_count(n_shares=n_shares)
    if sigma < _LEAST:
        raise ValueError(
            f"Expected shares of sigma at least {_LEAST:.4f}, got {sigma!r}. Let each add more noise."
        )
    total = 0.0
    for n in range(1, n_shares):
        # One more share beside n of them: s = sigma^2 n / (n + 1). Terms past the tenth are below 1e-200.
        exponent = -2 * math.pi**2 * sigma**2 * n / (n + 1)
        ripple = 2 * math.fsum(math.exp(exponent * k**2) for k in range(1, 11))
        total += math.log1p(ripple) - math.log1p(-ripple)
    return total * (1 + 1e-12)


def sum_price(sigma: float, shift: int, *, n_shares: int, orders: ArrayLike | None = None) -> Floats:
    """Return the most that one number costs, if it moves by `shift` below `n_shares` shares of noise.

    Guarantee: bounds the Rényi divergence at every order, both ways: order shift^2 / (2 n_shares sigma^2),
               and what the gap adds; never more than one share alone would cost.
    Assumes:   as `gap`. Divergences grow with the order, so the bound of a larger order holds too; and who
               knows all shares but one sees a single discrete Gaussian.
    Reference: as `gap`; Canonne, Kamath, Steinke 2020, Theorem 4, for one share.
    """
    grid = check_orders(orders)
    joint = grid * shift**2 / (2 * n_shares * sigma**2)
    if shift:
        joint = joint + gap(sigma, n_shares) * grid / (grid - 1)
    values = np.minimum(joint, grid * shift**2 / (2 * sigma**2))
    return np.asarray(np.minimum.accumulate(values[::-1])[::-1])


def price_without_guardian(
    mechanism: Any, sigma: float, *, n_shares: int, orders: ArrayLike | None = None
) -> RdpCurve:
    """Return what one query costs towards a guardian and an asker who tell each other everything.

    They see the whole noisy tally, below the shares of the answering parties that do not collude, and not an
    outcome alone. `sigma` is the noise of one share, in votes.

    Guarantee: bounds the divergence of all that they see, for one ballot that changes, at every order.
    Assumes:   the `n_shares` parties counted add their shares truly and keep them; pairwise masks, so that
               only sums over the answering set are seen.
    Reference: `sum_price`, over the dearest pair of ballots that the mechanism admits.

    >>> from tellers import GNMax, Unit
    >>> alone = price_without_guardian(GNMax(sigma=10.0), 5.0, n_shares=4)
    >>> told = GNMax(sigma=10.0).histogram_price(Unit())
    >>> bool(np.allclose(alone.values, told.values))
    True
    """
    require_count(n_shares=n_shares)
    grid = check_orders(orders)
    if is_sum(mechanism):
        require_positive(sigma=sigma)
        if sigma * mechanism.steps < _FINE:
            raise ValueError(f"Expected shares of noise of at least {_FINE} steps. Count in finer steps.")
        # Shares as fine as this have no gap that a float can tell; a replaced answer moves two norms.
        return RdpCurve.zcdp(2 / (n_shares * sigma**2) * (1 + 1e-12), grid)
    require_confidential(mechanism)
    if answers_of(mechanism) == "labels":
        price = partial(sum_price, sigma, n_shares=n_shares, orders=grid)
        return RdpCurve(grid, mechanism.rule.dearest(price))
    # One vote leaves a class and enters another.
    return RdpCurve(grid, 2 * sum_price(sigma, 1, n_shares=n_shares, orders=grid))


# --- Price of a session ---
#
# The books hold the first alone. The second is what the promise is worth if the guardian breaks its own; it
# rests on the noise of the answering parties, of which only those are counted that surely answer, the quorum,
# and do not collude.


@dataclass(frozen=True)
class Collusion:
    """Guardian, asker and `n_colluding` answering parties together: what they see, and what it costs.

    `n_shares` is how many shares of noise are left that none of them knows; `batch` and `whole` are the
    epsilon of one batch and of all that the budget pays for, infinite where no noise is left.
    """

    n_colluding: int
    sees: str
    n_shares: int
    batch: float
    whole: float | None


@dataclass(frozen=True)
class SessionPrice:
    """The price of a batch at a delta, how many queries a budget pays for, and what a betrayal would cost.

    `of_labels` are how many labels it is the price of, where that is not all.
    """

    n_queries: int
    delta: float
    batch: float
    budget: Budget | None
    n_affordable: int | None
    collusions: tuple[Collusion, ...]
    of_labels: int | None = None


def session_price(
    settings: PartySettings, *, n_queries: int, epsilon: float | None = None, delta: float | None = None
) -> SessionPrice:
    """Return what a batch of queries costs in a session, honestly and betrayed.

    The budget is that of the party's own books where it is not given; an asker has none.

    For an answering party it is the price of the labels that it knows, for others that of the answering party
    that knows the most.

    Guarantee: as `query_price` and `price_without_guardian`; neither depends on votes.
    Assumes:   at least the quorum answers; parties that collude are among the answering ones.
    Reference: the same.
    """
    books, budget = settings.ledger, None
    at = delta if delta is not None else books.delta or 1e-5
    if epsilon is not None or books.url:
        budget = Budget(epsilon=books.epsilon if epsilon is None else epsilon, delta=at)
    whole = settings.build_mechanism()
    mechanism = moved_by(whole, settings.paid_labels)
    paid = None if budget is None else affordable_queries(mechanism, budget, rule=books.rule)
    hardening = settings.hardening
    counts = [0] if hardening.noise_sigma is None else sorted({0, hardening.n_colluding})
    return SessionPrice(
        n_queries=n_queries, delta=at, batch=query_price(mechanism, n_queries).epsilon(at),
        budget=budget, n_affordable=paid,
        collusions=tuple(_collusion(settings, mechanism, n, n_queries, paid, at) for n in counts),
        of_labels=None if mechanism is whole else mechanism.n_labels,
    )  # fmt: skip


def affordable_queries(mechanism: Any, budget: Budget, *, rule: str = "renyi") -> int:
    """Return how many queries a budget pays for by its rule, from its first on, up to a billion.

    Guarantee: so many queries cost at most the budget, whatever the votes, and one more costs more.
    Assumes:   as `query_price`; nothing was spent before.
    Reference: Feldman and Zrnic 2021, as in `Accountant`; the price of the mechanism.
    """
    return Accountant.by(rule, budget).n_affordable(query_price(mechanism, 1), _MOST_QUERIES)


def _collusion(
    settings: PartySettings, mechanism: Any, n_colluding: int, n_queries: int, paid: int | None, delta: float
) -> Collusion:
    hardening = settings.hardening
    what = "the tally" if hardening.pairwise else "each party's vote"
    if hardening.noise_sigma is None:
        return Collusion(n_colluding, f"{what} without any noise", 0, math.inf, math.inf if paid else None)
    # Masks that do not cancel show every vote below its own share; sums are below all that are unknown.
    n_shares = settings.session.quorum - n_colluding if hardening.pairwise else 1
    price = price_without_guardian(mechanism, hardening.noise_sigma, n_shares=n_shares)
    below = f"{n_shares} share{'s' if n_shares > 1 else ''} of noise"
    whole = (paid * price).epsilon(delta) if paid else None
    return Collusion(
        n_colluding, f"{what} below {below}", n_shares, (n_queries * price).epsilon(delta), whole
    )
