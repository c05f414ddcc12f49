"""The epsilon of one run of queries by every accountant, from the oldest to the exact one."""

import numpy as np

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Votes, exact_cost
from tellers.accounting.costs import independent_cost, public_numbers
from tellers.mechanisms import published_gnmax
from tellers.mechanisms.published import (
    advanced_composition,
    moments_epsilon,
    published_confident,
    published_lnmax,
)
from tellers.privacy import DEFAULT_ORDERS, RdpCurve

MOMENTS = np.arange(1.0, 9.0)  # the paper of 2017 stops at the eighth
FEW = np.arange(2.0, 51.0)  # orders of published runs

NAMES = {
    "composition": "advanced composition, data-independent (2017)",
    "moments": "2017: moments accountant, l up to 8",
    "classic": "2018: Rényi, orders 2 to 50, classic conversion",
    "tight": "2018: the same bound, dense orders, tight conversion",
    "exact": "exact, both directions, per teacher",
    "public": "public price: what may be told",
}


def lnmax_epsilons(votes: Votes, gamma: float, *, delta: float) -> dict[str, float]:
    """Return the epsilon of LNMax on these votes; all but the first and the last are private."""
    alpha = MOMENTS * published_lnmax(votes, gamma, orders=MOMENTS + 1, total=True)
    n = len(votes)
    return {
        "composition": advanced_composition(gamma, n, delta=delta),
        "moments": moments_epsilon(alpha, delta),
        "classic": RdpCurve(FEW, published_lnmax(votes, gamma, orders=FEW, total=True)).epsilon(
            delta, conversion="classic"
        ),
        "tight": RdpCurve(DEFAULT_ORDERS, published_lnmax(votes, gamma, total=True)).epsilon(delta),
        "exact": exact_cost(LNMax(gamma), votes).cost.reveal().epsilon(delta),
        "public": independent_cost(LNMax(gamma), n).epsilon(delta),
    }


def gnmax_epsilons(votes: Votes, sigma: float, *, delta: float) -> dict[str, float]:
    """Return the epsilon of GNMax on these votes."""
    return {
        "classic": RdpCurve(FEW, published_gnmax(votes, sigma, orders=FEW, total=True)).epsilon(
            delta, conversion="classic"
        ),
        "tight": RdpCurve(DEFAULT_ORDERS, published_gnmax(votes, sigma, total=True)).epsilon(delta),
        "exact": exact_cost(GNMax(sigma), votes).cost.reveal().epsilon(delta),
        "public": independent_cost(GNMax(sigma), len(votes)).epsilon(delta),
    }


def confident_epsilons(
    mechanism: ConfidentGNMax | InteractiveGNMax,
    votes: Votes,
    answered: np.ndarray,
    *,
    delta: float,
    student: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the epsilon of a run with checks, by the path that was taken and exactly."""
    made = {
        "threshold": mechanism.threshold,
        "sigma_threshold": mechanism.sigma_threshold,
        "answered": answered,
        "student": student,
        "total": True,
    }
    few = published_confident(votes, mechanism.sigma, orders=FEW, **made)
    dense = published_confident(votes, mechanism.sigma, **made)
    return {
        "classic": RdpCurve(FEW, few).epsilon(delta, conversion="classic"),
        "tight": RdpCurve(DEFAULT_ORDERS, dense).epsilon(delta),
        "exact": exact_cost(mechanism, votes, student=student).cost.reveal().epsilon(delta),
        "public": independent_cost(
            mechanism, len(votes), n_answers=int(answered.sum()), **public_numbers(votes)
        ).epsilon(delta),
    }


def per_query(mechanism: object, votes: Votes, answered: np.ndarray | None = None) -> np.ndarray:
    """Return the published bound of every query on the few orders, to see how far epsilon gets."""
    if isinstance(mechanism, LNMax):
        return published_lnmax(votes, mechanism.gamma, orders=FEW)
    if isinstance(mechanism, GNMax):
        return published_gnmax(votes, mechanism.sigma, orders=FEW)
    assert isinstance(mechanism, ConfidentGNMax)
    return published_confident(
        votes,
        mechanism.sigma,
        threshold=mechanism.threshold,
        sigma_threshold=mechanism.sigma_threshold,
        answered=answered,
        orders=FEW,
    )


def running_epsilons(costs: np.ndarray, delta: float) -> np.ndarray:
    """Return the epsilon after each query, orders 2 to 50, classic conversion."""
    running = np.cumsum(costs, axis=0)
    return np.min(running - np.log(delta) / (FEW - 1), axis=1)
