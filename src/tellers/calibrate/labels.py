"""Planning labels: how many a setting gives, how right they are, and what they cost."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..budget import Accountant, Budget
from ..errors import require_count
from ..exact import exact_cost
from ..mechanisms import ConfidentGNMax, GNMax, Mechanism
from ..publishable import independent_cost
from ..rdp import RdpCurve
from ..votes import Votes

Against = Literal["exact", "public"]
Progress = Callable[[int], None]

# The best order of a plan lies among these; a plan needs no finer grid.
_ORDERS = np.array([1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 64, 96, 128, 256, 512])


@dataclass(frozen=True)
class LabelPlan:
    """What one setting is expected to give. Public: it comes from assumptions or public votes.

    `n_labels` answers out of `n_queries` questions, a share `accuracy` of them right. `epsilon_exact` is the
    expected cost by the exact accountant (private in a real run), an upper bound where `bound_because` says
    why. `epsilon_public` is what such a run states, `epsilon_charged` what its ledger is expected to charge:
    less, where queries stay silent. `information` is what the labels tell about the
    truth, in bits: many labels that are wrong can tell less than few that are right, and plans are ranked by
    it.
    """

    mechanism: Mechanism
    n_queries: int
    n_labels: float
    accuracy: float
    epsilon_exact: float
    epsilon_public: float
    epsilon_charged: float
    information: float
    bound_because: str = ""


def settings(n_teachers: int) -> list[Mechanism]:
    """Return the settings a planner tries by default: GNMax, and Confident at several thresholds and noises.

    >>> len(settings(250)) > 50
    True
    """
    sigmas = [share * n_teachers for share in (0.06, 0.1, 0.16, 0.24, 0.34)]
    plans: list[Mechanism] = [GNMax(sigma=round(sigma, 2)) for sigma in sigmas]
    for sigma in sigmas:
        for threshold in (0.5, 0.65, 0.8, 0.9):
            for check in (0.2, 0.4, 0.6):
                made = (round(sigma, 2), round(threshold * n_teachers, 1), round(check * n_teachers, 2))
                plans.append(ConfidentGNMax(*made))
    return plans


def plan_labels(
    proxy: Votes,
    truth: ArrayLike,
    *,
    budget: Budget,
    n_public: int,
    against: Against = "public",
    mechanisms: list[Mechanism] | None = None,
    progress: Progress | None = None,
) -> list[LabelPlan]:
    """Return what each setting gives within the budget, the most informative first.

    Held against the public price, a setting in which every query costs the same asks exactly as many queries
    as a run with this budget does; where queries can stay silent, as many as are expected.

    Guarantee: none about privacy is needed: only public or made-up votes are looked at.
    Assumes:   the proxy resembles the private votes; a budget held against the exact cost has a private
               stopping time, so plan the number of queries here and fix it before asking.
    Reference: Papernot et al. 2018, section 4.4 tune the same numbers on private votes, which leaks.

    >>> from tellers import Budget
    >>> from tellers.calibrate import Consensus
    >>> proxy, truth = Consensus().votes(100, 5, n_queries=60, seed=7)
    >>> budget, tried = Budget(1.0, 1e-5), [GNMax(sigma=20.0)]
    >>> plans = plan_labels(proxy, truth, budget=budget, n_public=1000, mechanisms=tried)
    >>> plans[0].n_labels > 0
    True
    """
    require_count(n_public=n_public)
    right = np.asarray(truth)
    if right.shape != (len(proxy),):
        raise ValueError(
            f"Expected one true class per proxy query, {len(proxy)} of them, got shape {right.shape}."
        )
    plans = []
    for mechanism in settings(proxy.n_teachers) if mechanisms is None else mechanisms:
        plans.append(_plan(mechanism, proxy, right, budget, n_public, against))
        if progress is not None:
            progress(1)
    return sorted(plans, key=lambda plan: -plan.information)


def sigma_for_labels(
    n_labels: int,
    proxy: Votes,
    truth: ArrayLike,
    *,
    budget: Budget,
    against: Against = "public",
    make: Callable[[float], Mechanism] = GNMax,
) -> LabelPlan:
    """Return the plan with the least noise that still gives this many labels within the budget.

    `make` turns a sigma into a mechanism, for instance with a threshold in proportion.

    >>> from tellers import Budget
    >>> from tellers.calibrate import Consensus
    >>> proxy, truth = Consensus().votes(100, 5, n_queries=60, seed=7)
    >>> plan = sigma_for_labels(200, proxy, truth, budget=Budget(1.0, 1e-5))
    >>> plan.n_labels >= 200 and plan.epsilon_public <= 1.0
    True
    """
    require_count(n_labels=n_labels)
    right = np.asarray(truth)
    low, high = math.log(0.005 * proxy.n_teachers + 0.5), math.log(20.0 * proxy.n_teachers + 100)

    def at(log_sigma: float) -> LabelPlan:
        share = expected_labels(make(math.exp(log_sigma)), proxy)[0]
        n_queries = math.ceil(n_labels / max(share, 1e-9))
        return _plan(make(math.exp(log_sigma)), proxy, right, budget, n_queries, against)

    if at(high).n_labels < n_labels:
        raise ValueError(
            f"Expected a budget that can pay for {n_labels} labels, got {budget}. "
            "Ask for fewer labels or raise the budget."
        )
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle).n_labels >= n_labels else (middle, high)
    return at(high)


def expected_labels(
    mechanism: Mechanism, votes: Votes, truth: ArrayLike | None = None
) -> tuple[float, float]:
    """Return the expected share of answered queries and, of those, of right labels; 0 without a truth.

    The average is over the noise alone, so it says something about the votes: plan with made-up ones.

    >>> from tellers import GNMax
    >>> from tellers.calibrate import Consensus
    >>> proxy, right = Consensus().votes(100, 5, n_queries=60, seed=7)
    >>> little, much = (expected_labels(GNMax(sigma=s), proxy, right)[1] for s in (1.0, 200.0))
    >>> little > 0.8 > much
    True
    """
    labels = np.concatenate([np.exp(part) for part in _label_laws(mechanism, votes)])
    answered = 1 - labels[:, 0]
    if truth is None or answered.sum() == 0:
        return float(answered.mean()), 0.0
    right = labels[np.arange(len(votes)), 1 + np.asarray(truth, dtype=np.int64)]
    return float(answered.mean()), float(right.sum() / answered.sum())


def _plan(
    mechanism: Mechanism, proxy: Votes, truth: NDArray[Any], budget: Budget, n_public: int, against: Against
) -> LabelPlan:
    share, accuracy = expected_labels(mechanism, proxy, truth)
    found = exact_cost(mechanism, proxy, orders=_ORDERS)
    exact = found.cost.reveal() * (1 / len(proxy))
    accountant, one_price = Accountant(budget), bool(getattr(mechanism, "one_price", False))

    def charged(n_queries: int, orders: ArrayLike | None = None) -> RdpCurve:
        n_answers = None if one_price else math.ceil(share * n_queries)
        return independent_cost(mechanism, n_queries, n_answers=n_answers, orders=orders)

    if against == "exact":
        n_queries = _largest(lambda n: (exact * n).epsilon(budget.delta) <= budget.epsilon, n_public)
    else:
        # By the rule of a ledger: before each query its whole price must fit.
        held = [accountant.held_at]
        price = independent_cost(mechanism, 1, orders=held)
        n_queries = accountant.n_affordable(price, n_public, spent_after=lambda n: charged(n, held))
    spent = charged(n_queries)
    if against == "exact":
        epsilon_public = independent_cost(mechanism, n_queries).epsilon(budget.delta)
    else:
        most = independent_cost(mechanism, n_public)
        epsilon_public = accountant.guarantee(spent, most=most, one_price=one_price)
    return LabelPlan(
        mechanism,
        n_queries,
        n_queries * share,
        accuracy,
        (exact * n_queries).epsilon(budget.delta),
        epsilon_public,
        spent.epsilon(budget.delta),
        n_queries * share * _bits(accuracy, proxy.n_classes),
        found.bound_because,
    )


def _label_laws(mechanism: Mechanism, proxy: Votes) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(proxy), 128):
        yield mechanism.outcomes(proxy[start : start + 128]).log_labels


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest n <= most that fits, by bisection; 0 if not even one does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _bits(accuracy: float, n_classes: int) -> float:
    """Information of one label about the truth, errors being spread evenly: log2 m minus the entropy."""
    wrong = min(max(1 - accuracy, 1e-12), 1 - 1e-12)
    entropy = -(1 - wrong) * math.log2(1 - wrong) - wrong * math.log2(wrong / (n_classes - 1))
    return max(0.0, math.log2(n_classes) - entropy) if accuracy > 1 / n_classes else 0.0
