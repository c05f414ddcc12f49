"""The advisor for many labels: which mechanism answers the most within a budget, and how well.

Every setting is tried on public votes. How many queries it answers is told twice: under the public price,
which holds for all votes and is what a run stops by, and under the exact cost of votes like these, a forecast
of what an operator will find in the private books.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..budget import Accountant, Budget
from ..errors import require_count
from ..exact import exact_cost
from ..label_bounds import LabelMechanism
from ..label_costs import bound_because
from ..label_votes import LabelVotes
from ..mechanisms.labels import (
    AdaptiveGNThreshold,
    Binary,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    PartialPowerset,
    Powerset,
    Tau,
)
from ..mechanisms.labels.powerset import SetVoting
from ..rdp import RdpCurve
from ..votes import Unit
from .label_profile import BallotTraits, ballot_traits
from .label_scores import LabelScores, expected_scores, label_chances
from .labels import Progress, _largest
from .regimes import Regime, regime_of

Floats = NDArray[np.float64]

# Noise on the yes and the no count, as a share of the teachers.
SIGMAS = (0.06, 0.1, 0.14, 0.2, 0.28, 0.4)
# Sides that a confident form asks for, and the noise of its check, as shares of the teachers.
_CHECKS = ((0.7, 0.2), (0.85, 0.3))
# From which an adaptive threshold is chosen: fewer than its own default, in time.
_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7)
# Where ballots are clipped, an exact cost takes time in the square of the labels: fewer queries then.
_CLIPPED_CELLS = 25_000
# Where groups of labels are voted on as sets, every group of a query is an election.
_ELECTIONS = 4_000
# Beyond, sets of all sizes are too many for Powerset.
MOST_LABELS = 1000


@dataclass(frozen=True)
class MultilabelPlan:
    """What one setting is expected to give. Public: it comes from assumptions or public votes.

    `n_queries` fit the budget under the public price, by the rule of a ledger: exactly as many as a run asks
    where every query costs the same, else as many as are expected; `epsilon_public` is what such a run
    states. `n_queries_exact` is the forecast for the operator's private books, under the exact cost of votes
    like the proxy's, None where it was not computed, and at least so many where that cost is an upper bound,
    for the reason in `bound_because`. `told` is
    the share of labels that are not silent, those that are true and those that are not weighing alike, and
    `agreement` how many of them equal the majority without noise. `scores` are against the truth of the
    proxy, or against that majority where none is known; `keeps` says whether they lose little to noise.

    >>> from .label_scores import LabelScores
    >>> scores = LabelScores(accuracy=0.9, balanced_accuracy=0.8, micro_f1=0.7, macro_f1=0.7)
    >>> MultilabelPlan(Binary(7.0, 6), 40, 8.0, 90, told=0.5, agreement=0.99, scores=scores, keeps=True).worth
    20.0
    """

    mechanism: LabelMechanism
    n_queries: int
    epsilon_public: float
    n_queries_exact: int | None
    told: float
    agreement: float
    scores: LabelScores
    keeps: bool
    bound_because: str = ""

    @property
    def worth(self) -> float:
        """Return the queries under the public price, those told in part counting in part."""
        return self.n_queries * self.told

    @property
    def worth_exact(self) -> float:
        """Return the same under the exact cost; 0 where it was not forecast."""
        return (self.n_queries_exact or 0) * self.told


@dataclass(frozen=True)
class Advice:
    """Settings, the best first; what the proxy is like, and how good labels without noise would be.

    `n_forecast` is on how few queries the slowest forecast of an exact cost was made.
    """

    plans: tuple[MultilabelPlan, ...]
    traits: BallotTraits
    regime: Regime
    noiseless: LabelScores
    against_truth: bool
    n_forecast: int

    @property
    def best(self) -> MultilabelPlan | None:
        """Return what answers most under the public price, of the settings that keep labels right."""
        return _first(self.plans, lambda plan: plan.worth)

    @property
    def best_exact(self) -> MultilabelPlan | None:
        """Return the setting that is forecast to answer most under the exact cost."""
        return _first(self.plans, lambda plan: plan.worth_exact)


def multilabel_settings(
    traits: BallotTraits, *, sigmas: Sequence[float] = SIGMAS, groups: Sequence[Sequence[int]] = ()
) -> list[LabelMechanism]:
    """Return the settings that the advisor tries by default, in proportion to the electorate.

    Clips and caps come from the ballots: what the average ballot says yes to, and what nine out of ten do.
    With `groups`, which are declared and never found in votes, each may be voted on as a set.

    >>> from tellers.calibrate import LabelProfile
    >>> votes, _ = LabelProfile().votes(50, 22, n_queries=20, seed=7)
    >>> kinds = {type(one).__name__ for one in multilabel_settings(ballot_traits(votes))}
    >>> sorted(kinds)[:4], len(kinds)
    (['AdaptiveGNThreshold', 'Binary', 'ConfidentBinary', 'ConfidentGNThreshold'], 9)
    """
    n, k = traits.n_teachers, traits.n_labels
    # A cap or a clip that every ballot fits into is none.
    sizes = sorted({max(1, round(traits.ones)), traits.most_ones} & set(range(1, k)))
    cap = sizes[-1] if sizes else 0
    # Two ballots differ on twice as many labels as each has: a cap from half of all labels on saves nothing.
    caps = [size for size in sizes if 2 * size < k] or [0]
    found: list[LabelMechanism] = []
    for sigma in (round(share * n, 2) for share in sigmas):
        found.append(Binary(sigma, k))
        found += [Tau(sigma, k, round(math.sqrt(size), 3)) for size in sizes]
        found += [Tau(sigma, k, float(size), "l1") for size in sizes]
        if k <= MOST_LABELS:
            found.append(Powerset(sigma, k))
        if cap:
            found.append(Powerset(sigma, k, cap))
        if groups:
            found.append(PartialPowerset(sigma, k, tuple(tuple(group) for group in groups)))
        # One noise on the sum, as strong as two on both counts.
        single = round(sigma / math.sqrt(2), 2)
        found += [GNThreshold(single, k, max_labels=size) for size in caps]
        if k > 1:
            # A choice with as much noise as a label has is paid for like a label or two.
            found.append(AdaptiveGNThreshold(single, k, single, _SHARES, caps[-1]))
        for side, check in _CHECKS:
            height, noise = round(side * n, 1), round(check * n, 2)
            found.append(ConfidentBinary(sigma, k, height, noise))
            if cap:
                found.append(ConfidentTau(sigma, k, round(math.sqrt(cap), 3), height, noise))
            if k <= MOST_LABELS or cap:
                # The votes spread over many sets: a top set of half the height is sure enough.
                found.append(ConfidentPowerset(sigma, k, round(side * n / 2, 1), noise, cap))
            found.append(ConfidentGNThreshold(single, k, 1, side, noise, max_labels=caps[-1]))
    return found


def advise(
    proxy: LabelVotes,
    truth: ArrayLike | None = None,
    *,
    budget: Budget,
    n_public: int,
    seed: int,
    max_loss: float = 0.03,
    n_sample: int = 200,
    mechanisms: Sequence[LabelMechanism] | None = None,
    groups: Sequence[Sequence[int]] = (),
    forecast_all: bool = False,
    progress: Progress | None = None,
) -> Advice:
    """Return what each label mechanism gives within the budget, and which kind of ballots the proxy has.

    Settings that lose at most `max_loss` of accuracy and of balanced accuracy (in proportion to what it has
    above chance) against a majority without noise come first, by how many queries they answer under the
    public price. Exact costs are forecast for those alone, or
    for all with `forecast_all`. At most `n_sample` queries of the proxy, drawn from the seed, are looked at.
    Labels of declared `groups` are also tried as sets, unless `mechanisms` says what to try.

    Guarantee: none about privacy is needed: only public or made-up votes are looked at.
    Assumes:   the proxy resembles the private votes; the exact cost of a real run is private, and a run that
               stops by it tells something by stopping. Plan here and fix the number of queries.
    Reference: Dullerud et al. 2022, section 5, compare the same mechanisms on the private votes themselves.

    >>> from tellers import Budget
    >>> from tellers.calibrate import LabelProfile
    >>> proxy, truth = LabelProfile().votes(50, 6, n_queries=40, seed=7)
    >>> tried = [Binary(7.0, 6), Powerset(3.0, 6)]
    >>> advice = advise(proxy, truth, budget=Budget(8.0, 1e-5), n_public=1000, seed=7, mechanisms=tried)
    >>> advice.best.n_queries <= advice.best.n_queries_exact
    True
    """
    require_count(n_public=n_public, n_sample=n_sample)
    if not 0 <= max_loss <= 1:
        raise ValueError(f"Expected 0 <= max_loss <= 1, got max_loss={max_loss!r}.")
    votes, right = _sample(proxy, truth, n_sample, seed)
    traits = ballot_traits(votes)
    majority = 2 * votes.sums > votes.n_teachers
    reference = majority if right is None else right
    silent = np.stack([~majority, majority, np.zeros_like(majority)]).astype(np.float64)
    noiseless = expected_scores(silent, reference)
    tried = multilabel_settings(traits, groups=groups) if mechanisms is None else list(mechanisms)
    grid = budget_orders(budget)
    plans = []
    for mechanism in tried:
        chances = label_chances(mechanism, votes, seed=seed)
        scores = expected_scores(chances, reference)
        plan = MultilabelPlan(
            mechanism,
            *_affordable(mechanism, chances, budget, n_public),
            None,
            _told(chances, reference),
            expected_scores(chances, majority).accuracy,
            scores,
            _keeps(scores, noiseless, max_loss) and bool((chances[2] < 1).any()),
            bound_because(mechanism, votes),
        )
        if plan.keeps or forecast_all:
            few = votes[: _forecast_queries(mechanism, len(votes))]
            exact = exact_cost(cast(Any, mechanism), few, orders=grid).cost.reveal() * (1 / len(few))
            within = partial(_within, exact, budget)
            plan = replace(plan, n_queries_exact=_largest(within, n_public))
        plans.append(plan)
        if progress is not None:
            progress(1)
    plans.sort(
        key=lambda plan: (not plan.keeps, -plan.worth if plan.keeps else -plan.scores.balanced_accuracy)
    )
    n_forecast = min((_forecast_queries(m, len(votes)) for m in tried), default=0)
    unsettled = Advice(tuple(plans), traits, regime_of(traits), noiseless, right is not None, n_forecast)
    found = [None if best is None else best.mechanism for best in (unsettled.best, unsettled.best_exact)]
    return replace(unsettled, regime=regime_of(traits, found[0], found[1]))


def expected_price(
    mechanism: LabelMechanism, chances: Floats, *, orders: ArrayLike | None = None
) -> RdpCurve:
    """Return what a query is expected to cost under the public price; silence pays for its check alone.

    >>> from tellers import ConfidentBinary, LabelVotes
    >>> votes = LabelVotes.from_sums([[48, 25]], n_teachers=50)
    >>> sure = ConfidentBinary(sigma=5.0, n_labels=2, threshold=40, sigma_threshold=3.0)
    >>> half = expected_price(sure, label_chances(sure, votes, seed=7), orders=[4.0]).values[0]
    >>> bool(half < sure.price(Unit(), [4.0]).values[0])
    True
    """
    unit = Unit()
    told = 1 - chances[2]
    if isinstance(mechanism, SetVoting):
        return mechanism.check_price(unit, orders) + mechanism.answer_price(unit, orders) * float(told.mean())
    checks, k = mechanism.check_price(unit, orders), mechanism.n_labels
    if hasattr(mechanism, "gate"):
        return checks + mechanism.answer_price(unit, k, orders) * float(told.mean())
    n_told = float(told.sum(axis=1).mean())
    low = math.floor(n_told + 1e-9)
    part = max(0.0, n_told - low)
    # The price of n labels bends downwards in n: at the mean it is no less than the mean of prices.
    price = mechanism.answer_price(unit, low, orders) * (1 - part)
    if part > 1e-9:
        price = price + mechanism.answer_price(unit, low + 1, orders) * part
    return checks + price


def budget_orders(budget: Budget, n_orders: int = 14) -> Floats:
    """Return the few orders among which the best one for this budget lies.

    For a cost rho times order the best is 1 + sqrt(log(1/delta) / rho), with the rho that uses up the budget;
    data-dependent costs bend upwards and have theirs below.

    >>> budget_orders(Budget(8.0, 1e-5)).round(1)[[0, -1]]
    array([ 1.7, 10.9])
    """
    length = math.log(1 / budget.delta)
    rho = (math.sqrt(length + budget.epsilon) - math.sqrt(length)) ** 2
    middle = min(200.0, math.sqrt(length / rho))
    return np.asarray(1 + middle * np.geomspace(0.2, 3.0, n_orders))


def _sample(
    proxy: LabelVotes, truth: ArrayLike | None, n_sample: int, seed: int
) -> tuple[LabelVotes, NDArray[np.bool_] | None]:
    if proxy.ballots is None or proxy.resolution != 1:
        raise ValueError(
            "Expected a proxy with ballots of 0 and 1: what clipping and sets make of ballots cannot be told "
            "from sums. Use LabelVotes.from_ballots, or from_probabilities."
        )
    right = None if truth is None else np.asarray(truth)
    if right is not None and (right.shape != proxy.sums.shape or not np.isin(right, (0, 1)).all()):
        raise ValueError(
            f"Expected truth of 0 and 1 of shape (queries, labels) = {proxy.sums.shape}, got {right.shape}."
        )
    if len(proxy) > n_sample:
        rows = np.sort(np.random.default_rng(seed).choice(len(proxy), size=n_sample, replace=False))
        proxy, right = proxy[rows], None if right is None else right[rows]
    return proxy, None if right is None else right.astype(bool)


def _forecast_queries(mechanism: LabelMechanism, n_queries: int) -> int:
    if isinstance(mechanism, SetVoting):
        return min(n_queries, max(8, _ELECTIONS // len(mechanism.label_groups)))
    labels = mechanism.at(0) if isinstance(mechanism, AdaptiveGNThreshold) else mechanism
    if labels.rule.is_free:
        return n_queries
    return min(n_queries, max(8, _CLIPPED_CELLS // mechanism.n_labels**2))


def _keeps(scores: LabelScores, noiseless: LabelScores, max_loss: float) -> bool:
    # Balanced accuracy is 1/2 for a coin: where the majority itself is little better, a little is all of it.
    above = (noiseless.balanced_accuracy - 0.5) * (1 - 2 * max_loss)
    return scores.accuracy >= noiseless.accuracy - max_loss and scores.balanced_accuracy - 0.5 >= above


def _told(chances: Floats, reference: NDArray[np.bool_]) -> float:
    """Return the share of labels told; true and untrue ones weigh alike, however rare one kind is."""
    told = 1 - chances[2]
    kinds = [told[kind].mean() for kind in (reference, ~reference) if kind.any()]
    return float(np.mean(kinds))


def _affordable(
    mechanism: LabelMechanism, chances: Floats, budget: Budget, n_public: int
) -> tuple[int, float]:
    """Return how many queries a ledger with this budget is expected to let through, and what it states."""
    accountant, one_price = Accountant(budget), bool(getattr(mechanism, "one_price", False))
    held, unit = [accountant.held_at], Unit()
    one = mechanism.price(unit, held) if one_price else expected_price(mechanism, chances, orders=held)
    n_queries = accountant.n_affordable(mechanism.price(unit, held), n_public, spent_after=lambda n: one * n)
    price = mechanism.price(unit)
    return n_queries, accountant.guarantee(price * n_queries, most=price * n_public, one_price=one_price)


def _within(one: RdpCurve, budget: Budget, n_queries: int) -> bool:
    return (one * n_queries).epsilon(budget.delta) <= budget.epsilon


def _first(
    plans: Sequence[MultilabelPlan], worth: Callable[[MultilabelPlan], float]
) -> MultilabelPlan | None:
    able = [plan for plan in plans if plan.keeps and worth(plan) > 0]
    return max(able, key=worth) if able else None
