"""What a batch of votes cost: the number anyone may know, and those that stay with the operator.

The public number is what a ledger charges: the price of every query, added up at each Rényi order. Other ways
to add up stand beside it under names of their own; no ledger goes by them. The private numbers, the exact
cost and the published data-dependent bound, look at the votes and come out sealed.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, gammaln, log_ndtr

from ..errors import MissingExtra, require_count, require_fraction, require_positive
from ..mechanisms._check import answered_mask, student_probabilities
from ..mechanisms.base import (
    Mechanism,
    accountant_for,
    has_one_price,
    is_by_batch,
    item_of,
    price_of,
)
from ..mechanisms.labels._published import labels_told, plain_cost, published_label_cost
from ..mechanisms.registry import answers_of, listens
from ..privacy._price import delta_of
from ..privacy.budget import Accountant, Budget, smallest_budget, smallest_on_clock
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.sealed import Sealed
from ..privacy.votes import Unit, VoteHandle, Votes, kept, require_votes_on
from .exact import Progress, exact_cost

# --- Exact composition of releases whose worst case is known. ---
#
# Gaussian noise composes to one Gaussian, pure privacy to a binomial, and the discrete Gaussian, which has
# no closed form, numerically. All of these hold for a number of releases that was fixed beforehand, and
# charge for the whole noisy histogram. No ledger goes by them: they stand beside the public number, to
# compare.


# Upward, by more than the rounding of what was computed.
_UP = 1 + 1e-9
# Connecting the dots adds at most step^2 / 4 to the variance of each privacy loss: one part in 10^6.
_STEP = 2e-3
_MOST_STEPS = 2_000_000


def gaussian_dp_mu(sigma: float, n_answers: int, *, sigma_threshold: float = 1.0, n_checks: int = 0) -> float:
    """Return mu of noisy histograms and noisy checks together.

    mu^2 is 2 / sigma^2 for every histogram and 1 / sigma_threshold^2 for every check.

    Guarantee: all of them together are as hard to tell apart as N(0, 1) and N(mu, 1).
    Assumes:   continuous Gaussian noise; one ballot moves two counts of a histogram, and a check, by 1.
    Reference: Dong, Roth, Su 2022, Corollary 3.3.
    """
    require_positive(sigma=sigma, sigma_threshold=sigma_threshold)
    require_count(0, n_answers=n_answers, n_checks=n_checks)
    return math.sqrt(2 * n_answers / sigma**2 + n_checks / sigma_threshold**2)


def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-Gaussian privacy: N(0, 1) against N(mu, 1), exactly.

    Guarantee: the smallest epsilon at this delta, raised by one part in 10^9.
    Assumes:   mu >= 0; continuous noise. What is drawn here is discrete: `discrete_gaussian_pld_epsilon`.
    Reference: Balle and Wang 2018, Theorem 8.
    """
    require_fraction(delta=delta)
    if mu == 0:
        return 0.0
    require_positive(mu=mu)
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return _log_delta(mu, epsilon) - target

    if excess(0.0) <= 0:
        return 0.0
    # There the first term alone is below delta: Phi(-t) <= e^(-t^2 / 2).
    enough = mu**2 / 2 + mu * math.sqrt(-2 * target)
    return float(brentq(excess, 0.0, enough, xtol=1e-300, rtol=1e-12)) * _UP


def _log_delta(mu: float, epsilon: float) -> float:
    """Return log(Phi(a) - e^epsilon Phi(a - mu)), a = mu/2 - epsilon/mu, without cancellation in the tail."""
    a = mu / 2 - epsilon / mu
    b = a - mu
    if a > 0:
        log_first, log_second = float(log_ndtr(a)), epsilon + float(log_ndtr(b))
        return log_first + math.log(-math.expm1(min(log_second - log_first, -1e-300)))
    # e^epsilon phi(b) = phi(a), so both terms share that factor and their ratios to it are erfcx.
    gap = float(erfcx(-a / math.sqrt(2)) - erfcx(-b / math.sqrt(2))) / 2
    return -a * a / 2 + math.log(max(gap, 5e-324))


def pure_dp_epsilon(epsilon: float, n_releases: int, *, delta: float) -> float:
    """Return the epsilon of many (epsilon, 0)-private releases, also adaptive ones, exactly.

    Guarantee: the smallest epsilon that holds for every such composition, raised by one part in 10^9;
               never above n_releases * epsilon.
    Assumes:   every release is (epsilon, 0)-differentially private.
    Reference: Kairouz, Oh, Viswanath 2015, Theorem 3.3 (randomised response is the worst case).
    """
    require_positive(epsilon=epsilon)
    require_count(0, n_releases=n_releases)
    require_fraction(delta=delta)
    if n_releases == 0:
        return 0.0
    n, target = int(n_releases), math.log(delta)
    # With j lies among n the privacy loss is (n - 2 j) epsilon: binomial, largest loss first.
    lies = np.arange(n // 2 + 1, dtype=np.float64)
    loss = (n - 2 * lies) * epsilon
    log_true, log_lie = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    ways = gammaln(n + 1) - gammaln(lies + 1) - gammaln(n - lies + 1)
    here = np.logaddexp.accumulate(ways + (n - lies) * log_true + lies * log_lie)
    there = np.logaddexp.accumulate(ways + lies * log_true + (n - lies) * log_lie)
    # Between two losses delta(e) = P - e^e Q, with P and Q the mass of the larger losses on both sides.
    log_delta = here[:-1] + np.log(-np.expm1(np.minimum(loss[1:] + there[:-1] - here[:-1], -1e-300)))
    passed = np.flatnonzero(log_delta > target)
    k = int(passed[0]) if passed.size else len(loss) - 1
    if here[k] <= target:
        return float(min(loss[k], n * epsilon))
    exact = float(here[k] + math.log(-math.expm1(target - here[k])) - there[k])
    return min(max(exact, 0.0) * _UP, n * epsilon)


def has_pld() -> bool:
    """Say whether the library behind `discrete_gaussian_pld_epsilon` is installed."""
    return find_spec("dp_accounting") is not None


def discrete_gaussian_pld_epsilon(
    sigma: float, n_answers: int, *, delta: float, sigma_threshold: float = 1.0, n_checks: int = 0
) -> float:
    """Return the epsilon of noisy histograms and noisy checks with the discrete noise that is drawn.

    Guarantee: an upper estimate of the exact composition, within about one part in 10^5; infinite where
               delta is so small (1e-12, and 1e-14 per release) that rounding could hide behind it.
    Assumes:   discrete Gaussian noise; one ballot moves two counts of a histogram, and a check, by 1.
    Reference: Doroshenko et al. 2022 (connecting the dots of a privacy loss distribution).
    """
    mu = gaussian_dp_mu(sigma, n_answers, sigma_threshold=sigma_threshold, n_checks=n_checks)
    require_fraction(delta=delta)
    if mu == 0:
        return 0.0
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise MissingExtra(
            "Expected the library dp-accounting for the exact composition of discrete noise, found none. "
            "Install it with: pip install 'tellers[accounting]'"
        ) from error
    n_shifts = 2 * n_answers + n_checks
    # The transforms of the composition round, by 2e-13 of mass where 10,000 releases were compared with
    # the exact sum. That is taken off delta fifty-fold.
    spare = 1e-13 + 1e-15 * n_shifts
    if delta <= 10 * spare:
        return math.inf
    step = max(_STEP * mu / math.sqrt(n_shifts), (12 * mu + mu**2) / _MOST_STEPS)
    total = privacy_loss_distribution.identity(value_discretization_interval=step)
    # A histogram is two shifts by one, each with noise of its own.
    for scale, times in ((sigma, 2 * n_answers), (sigma_threshold, n_checks)):
        if times:
            one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
                scale, sensitivity=1, value_discretization_interval=step, use_connect_dots=True
            )
            total = total.compose(one.self_compose(int(times)))
    return float(total.get_epsilon_for_delta(delta - spare))


# --- The public number of a run. ---
#
# A ledger adds the price of every query at each Rényi order and converts the sum once. That is the public
# epsilon of `account`, `plan`, the ledger, the card and the report alike. Compositions that no ledger uses
# stand beside it under names of their own.


Method = Literal["argmax-rdp", "pure-dp-rdp", "histogram-rdp", "labels-rdp", "price-rdp", "tested-rdp"]
OtherMethod = Literal[
    "histogram-rdp", "histogram-pld", "histogram-gdp", "pure-dp-exact", "sums-rdp", "sums-gdp"
]
Holds = Literal["any run", "a fixed number of queries", "continuous noise"]


@dataclass(frozen=True)
class PublicCost:
    """An epsilon that does not depend on the votes, what is charged, and the Rényi order it comes from."""

    method: Method
    epsilon: float
    order: float


@dataclass(frozen=True)
class ComparedCost:
    """Another way to add up, and what its epsilon holds for; no ledger charges it, and no run states it.

    "any run" may be adaptive and stop on a budget; "a fixed number of queries" had that number declared
    before the first; "continuous noise" is not the noise that is drawn, and there to compare with.
    """

    method: OtherMethod
    epsilon: float
    order: float | None = None
    holds_for: Holds = "any run"


@dataclass(frozen=True)
class Afforded:
    """How many of the queries a ledger with this budget pays for, in their order, and where it is held."""

    epsilon: float
    held_at: float
    n_queries: int


def independent_cost(
    mechanism: Mechanism,
    n_queries: int,
    *,
    n_answers: ArrayLike | None = None,
    n_asked: int | None = None,
    orders: ArrayLike | None = None,
    unit: Unit | None = None,
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> RdpCurve:
    """Return the public cost of a run: every check, and the answers that were given (all, if not said).

    A mechanism that is paid by the batch is asked for one batch of all queries, whatever came out.

    Where a query has many labels, `n_answers` is how many queries were answered on all of them, or, with one
    number per query, how many of its labels were told; `n_asked` is how many labels were asked in all, where
    those that follow from others were not. With the numbers of teachers and of classes, a mechanism that has
    a price by them is asked for it.

    It is, to the last bit, what a ledger charges for these outcomes, however they were put into batches.

    Guarantee: holds for all votes; composes adaptively, since silence is public.
    Assumes:   one unit changes one ballot, unless `unit` says otherwise; a cap on the answers, or a budget,
               was fixed before the run.
    Reference: Feldman and Zrnic 2021 (Rényi filters) for returning what a silent query did not use.
    """
    one = Unit() if unit is None else unit
    if is_by_batch(mechanism):
        if not n_queries:
            return RdpCurve.zero(orders)
        whole = price_of(mechanism, one, n_queries, n_teachers=n_teachers, n_classes=n_classes)
        return whole if orders is None else _selected(whole, orders)
    public: dict[str, Any] = {"n_teachers": n_teachers, "n_classes": n_classes}
    asked: Any = mechanism
    item = item_of(mechanism, one, orders, **public)
    if item is not None:
        n_items, n_told = _items(asked, n_queries, n_answers, n_asked)
        if n_told is None:
            return item.price() * n_items
        return item.price(0) * (n_items - n_told) + item.price(1) * n_told
    if answers_of(mechanism) == "labels" and hasattr(mechanism, "answer_price"):
        cost: RdpCurve
        if n_asked is None or not hasattr(mechanism, "asked_price"):
            cost = asked.check_price(one, orders) * n_queries
        else:
            cost = asked.asked_price(one, n_asked, orders)
        told: Any = ([asked.n_labels], [n_queries])  # how many labels, and of how many queries
        if n_answers is not None:
            counts = labels_told(asked, n_queries, n_answers)
            told = np.unique(counts[counts > 0], return_counts=True)
        for n_told, times in zip(*told, strict=True):
            cost = cost + asked.answer_price(one, n_labels=int(n_told), orders=orders) * int(times)
        return cost
    given = np.asarray(n_queries if n_answers is None else n_answers)
    answers = int(given) if given.ndim == 0 else int((given > 0).sum())  # of labels: queries with some told
    check = getattr(mechanism, "check_price", None)
    if check is None:  # whatever was answered, every query released something
        return price_of(mechanism, one, n_queries, orders=orders, **public)
    price, checks = price_of(mechanism, one, orders=orders, **public), at_orders(check, one, orders)
    if not hasattr(mechanism, "answer_price"):
        return checks * (n_queries - answers) + price * answers
    return checks * n_queries + at_orders(mechanism.answer_price, one, orders) * answers


def _selected(curve: RdpCurve, orders: ArrayLike) -> RdpCurve:
    """Return a curve at some of its orders."""
    wanted = check_orders(orders)
    at = np.searchsorted(curve.orders, wanted)
    if (at >= curve.orders.size).any() or not np.array_equal(curve.orders[at], wanted):
        raise ValueError("Expected orders of a ledger for a price by the batch, got others.")
    return RdpCurve(wanted, curve.values[at])


def _items(
    mechanism: Any, n_queries: int, n_answers: ArrayLike | None, n_asked: int | None
) -> tuple[int, int | None]:
    """Return how many items so many queries are, and how many of them were answered; None for all of them."""
    if answers_of(mechanism) != "labels":
        if n_answers is None:
            return n_queries, None
        given = np.asarray(n_answers)
        return n_queries, int(given) if given.ndim == 0 else int((given > 0).sum())
    n_items = n_queries * int(mechanism.n_labels) if n_asked is None else n_asked
    return n_items, None if n_answers is None else int(labels_told(mechanism, n_queries, n_answers).sum())


def at_orders(price: Callable[..., RdpCurve], unit: Unit, orders: ArrayLike | None) -> RdpCurve:
    """Return a price at these orders, or at those of a ledger where a mechanism knows no others."""
    if orders is None or "orders" not in inspect.signature(price).parameters:
        return price(unit)
    return price(unit, orders=orders)


def public_cost(
    mechanism: Mechanism,
    n_queries: int,
    *,
    delta: float,
    n_answered: ArrayLike | None = None,
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> PublicCost:
    """Return what a ledger charges for so many queries: the public epsilon, to the last digit.

    Every query is charged its check, where there is one, and an answer; with `n_answered` only so many
    answers, or, one number per query, so many of its labels.

    Guarantee: an epsilon at this delta for any votes, also for adaptive queries.
    Assumes:   one ballot changes per unit; the number of queries was fixed before the run, and so was
               `n_answered`, as a cap. A run whose answers came out that way states `Accountant.guarantee`.
    Reference: see `independent_cost` and "The price of an arg max".

    >>> from tellers import GNMax, LNMax
    >>> [round(public_cost(one, 100, delta=1e-5).epsilon, 2) for one in (GNMax(40.0), LNMax(0.05))]
    [1.16, 3.16]
    """
    require_count(0, n_queries=n_queries)
    require_fraction(delta=delta)
    if n_answered is not None:
        require_count(0, n_answered=int(np.sum(n_answered)))
    cost = independent_cost(
        mechanism, n_queries, n_answers=n_answered, n_teachers=n_teachers, n_classes=n_classes
    )
    method: Method = getattr(mechanism, "price_method", "price-rdp")
    return PublicCost(method, *cost.epsilon_and_order(_left_of(delta, cost)))


def _left_of(delta: float, cost: RdpCurve) -> float:
    """Return the delta that a curve is converted at: without what its tests take."""
    taken = delta_of(cost)
    if taken >= delta:
        raise ValueError(
            f"Expected a test that takes less than delta={delta:g}, got one that takes {taken:g}. Choose a "
            "smaller test_delta."
        )
    return delta - taken


def compared_costs(mechanism: Mechanism, n_queries: int, *, delta: float) -> tuple[ComparedCost, ...]:
    """Return other ways to add up the same number of queries, all of them answered, smallest first.

    Guarantee: each is an epsilon at this delta for any votes and what it `holds_for`, and for nothing else. A
               ledger stops by none of them.
    Assumes:   one ballot changes per unit.
    Reference: see `gaussian_dp`.

    >>> from tellers import GNMax
    >>> costs = compared_costs(GNMax(sigma=40.0), 461, delta=1e-5)
    >>> [(c.method, round(c.epsilon, 2)) for c in costs if c.method != "histogram-pld"]
    [('histogram-gdp', 3.19), ('histogram-rdp', 3.46)]
    """
    asked: Any = mechanism
    noise = getattr(mechanism, "noise_on_counts", "")
    costs: list[ComparedCost] = []
    if noise == "laplace":
        # A ballot moves two counts by one, each with Laplace noise of its own: two gamma-private releases.
        exact = pure_dp_epsilon(asked.gamma, 2 * n_queries, delta=delta)
        costs = [ComparedCost("pure-dp-exact", exact, holds_for="a fixed number of queries")]
    elif noise == "gaussian":
        costs = _gaussian_costs(asked, n_queries, delta)
    elif hasattr(mechanism, "plain_rates"):
        rate = plain_cost(asked, n_queries)
        costs = [ComparedCost("sums-rdp", *RdpCurve.zcdp(rate).epsilon_and_order(delta))]
        if getattr(mechanism, "choice_is_gaussian", True):
            epsilon = gaussian_dp_epsilon(math.sqrt(2 * rate), delta)
            costs.append(ComparedCost("sums-gdp", epsilon, holds_for="continuous noise"))
    return tuple(sorted(costs, key=lambda cost: cost.epsilon))


def budget_for(
    mechanism: Any,
    n_queries: int,
    *,
    delta: float,
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> float:
    """Return the budget (epsilon) from which on a ledger pays for so many queries, whatever comes out.

    A run with it asks them all and states `public_cost`, which is the same or a little less: a budget is held
    at one Rényi order, and a number of queries that is fixed may take the cheapest.

    >>> from tellers import GNMax
    >>> needed, stated = budget_for(GNMax(40.0), 10, delta=1e-5), public_cost(GNMax(40.0), 10, delta=1e-5)
    >>> stated.epsilon < needed < 1.01 * stated.epsilon
    True
    """
    cost = independent_cost(mechanism, n_queries, n_teachers=n_teachers, n_classes=n_classes)
    held_at = getattr(mechanism, "held_at", None)
    if held_at is None:
        return smallest_budget(cost, delta).epsilon if cost.epsilon(delta) > 0 else 0.0
    # The mechanism says itself at which order, and with how much of delta, its ledger is opened.
    epsilon = _selected(cost, [held_at]).epsilon(_left_of(delta, cost))
    while epsilon and not accountant_for(mechanism, Budget(epsilon, delta)).affords(
        RdpCurve.zero(cost.orders), cost
    ):
        epsilon *= 1 + 1e-13  # rounding put it a hair below
    return epsilon


def stated_cost(
    mechanism: Any,
    n_queries: int,
    *,
    delta: float,
    budget: float | None = None,
    told: NDArray[Any] | None = None,
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> tuple[PublicCost, Afforded | None]:
    """Return what a run of these queries states, and how many of them a budget pays for.

    `told` says which queries were answered, or how many labels of each; without it all of them are.

    Guarantee: as `Accountant.guarantee`.
    Assumes:   the number of queries and the budget were fixed before the run.
    Reference: see "Composition, filters and conversion".

    >>> from tellers import LNMax
    >>> public, afforded = stated_cost(LNMax(gamma=0.05), 100, delta=1e-5, budget=2.95)
    >>> afforded.n_queries, public == public_cost(LNMax(gamma=0.05), 88, delta=1e-5)
    (88, True)
    """
    public: dict[str, Any] = {"n_teachers": n_teachers, "n_classes": n_classes}
    whole = public_cost(mechanism, n_queries, delta=delta, **public)
    if budget is None:
        return whole, None
    held_at = accountant_for(mechanism, Budget(budget, delta)).held_at

    def spent_after(n: int) -> RdpCurve:
        n_answers = None if told is None else first_answers(told, n)
        return independent_cost(mechanism, n, n_answers=n_answers, orders=[held_at], **public)

    if is_by_batch(mechanism):
        n_paid, stated = _batch_within_budget(mechanism, Budget(budget, delta), n_queries)
        return PublicCost(whole.method, stated, held_at), Afforded(budget, held_at, n_paid)
    n_paid, stated = within_budget(
        mechanism, Budget(budget, delta), n_queries, spent_after=spent_after, **public
    )
    order = whole.order if stated == whole.epsilon else held_at
    if has_one_price(mechanism, Unit(), **public):
        order = independent_cost(mechanism, n_paid, **public).epsilon_and_order(delta)[1]
    return PublicCost(whole.method, stated, order), Afforded(budget, held_at, n_paid)


@dataclass(frozen=True)
class ClockCost:
    """What a ledger on a clock says of a list of queries: the one public number, and how far a budget goes.

    `epsilon` is stated: the budget, or without one the smallest that pays for all of them. `n_queries` are
    paid for whatever comes out, and `left` is the share of the clock that is left after those.
    """

    epsilon: float
    delta: float
    n_queries: int
    needed: float
    left: float


def clock_cost(
    mechanism: Any, votes: Votes | VoteHandle, *, delta: float, budget: float | None = None
) -> ClockCost:
    """Return what a ledger on a clock states of these queries, and how many of them a budget pays for.

    Of the votes their public numbers alone are looked at: how many queries, teachers and classes.

    Guarantee: (epsilon, delta) for any votes, also for adaptive queries and wherever the run stops.
    Assumes:   the budget was fixed before the run; the mechanism has a clock price.
    Reference: "Composition, filters and conversion": the filter with a Gaussian clock.

    >>> from tellers import GNMax
    >>> votes = Votes.from_counts([[40, 10]] * 100, n_teachers=50)
    >>> found = clock_cost(GNMax(sigma=4.0), votes, delta=1e-5, budget=2.0)
    >>> 0 < found.n_queries < 100, found.epsilon, found.needed > 2
    (True, 2.0, True)
    """
    require_fraction(delta=delta)
    cast = votes if isinstance(votes, Votes) else kept(votes).votes
    n_queries, price = len(cast), price_of(mechanism, Unit(), **public_numbers(cast))
    needed = smallest_on_clock(n_queries * price, delta, price=price).epsilon if n_queries else 0.0
    stated_at = (needed or 1.0) if budget is None else budget
    accountant = Accountant.by("clock", Budget(stated_at, delta), price=price)
    n_paid = accountant.n_affordable(price, n_queries)
    stated = accountant.budget.epsilon if n_paid else 0.0
    return ClockCost(stated, delta, n_paid, needed, accountant.left(n_paid * price))


def within_budget(
    mechanism: Any,
    budget: Budget,
    n_queries: int,
    *,
    spent_after: Callable[[int], RdpCurve],
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> tuple[int, float]:
    """Return how many queries a ledger lets through, and the epsilon that a run of them states.

    Before each query its whole price must fit. `spent_after` says what so many are charged, at the order of
    the budget.
    """
    accountant = Accountant(budget)
    public: dict[str, Any] = {"n_teachers": n_teachers, "n_classes": n_classes}
    price = price_of(mechanism, Unit(), orders=[accountant.held_at], **public)
    n_paid = accountant.n_affordable(price, n_queries, spent_after=spent_after)
    paid, most = (independent_cost(mechanism, n, **public) for n in (n_paid, n_queries))
    one_price = has_one_price(mechanism, Unit(), **public)
    return n_paid, accountant.guarantee(paid, most=most, one_price=one_price)


def expecting_silence(
    mechanism: Any,
    silent: float,
    budget: Budget,
    n_queries: int,
    *,
    spent_after: Callable[[Any, int], RdpCurve],
    **public: Any,
) -> Any:
    """Return a mechanism told which share of silence to expect, where it asks for one and nothing was said.

    `silent` is the share on public votes, and `spent_after` says what so many queries of a mechanism are
    charged at the order of the budget. Where nothing said buys more, as the end of a small budget may have
    it, the mechanism stays as it is.

    >>> from tellers import Budget, ConfidentGNMax
    >>> known = {"n_teachers": 50, "n_classes": 10}
    >>> def all_answered(mechanism, n):
    ...     return independent_cost(mechanism, n, orders=[4.0], **known)
    >>> expecting_silence(
    ...     ConfidentGNMax(10.0, 40, 10.0), 0.0, Budget(8.0, 1e-5), 1000, spent_after=all_answered, **known
    ... ).expected_silence
    0.0
    """
    if getattr(mechanism, "expected_silence", 0.0) is not None:
        return mechanism
    accountant = Accountant(budget)

    def bought(tried: Any) -> tuple[int, float]:
        price = price_of(tried, Unit(), orders=[accountant.held_at], **public)
        spent = partial(spent_after, tried)
        n = accountant.n_affordable(price, n_queries, spent_after=spent)
        return n, -float(spent(max(1, n)).values[0])

    return max(replace(mechanism, expected_silence=round(silent, 2)), mechanism, key=bought)


def _batch_within_budget(mechanism: Any, budget: Budget, n_queries: int) -> tuple[int, float]:
    """Return how many queries a budget pays for in one batch, and the epsilon that a run of them states."""
    accountant, nothing = accountant_for(mechanism, budget), RdpCurve.zero()

    def price(n: int) -> RdpCurve:
        return independent_cost(mechanism, n)

    # A mechanism with batches of one size sells all of it or nothing.
    low, high = 0, 1 if hasattr(mechanism, "n_queries") else n_queries
    unit = n_queries if hasattr(mechanism, "n_queries") else 1
    while low < high:
        middle = (low + high + 1) // 2
        fits = accountant.affords(nothing, price(middle * unit))
        low, high = (middle, high) if fits else (low, middle - 1)
    n_paid = low * unit
    one_price = bool(getattr(mechanism, "one_price", False))
    return n_paid, accountant.guarantee(price(n_paid), most=price(n_queries), one_price=one_price)


def public_numbers(votes: Votes) -> dict[str, Any]:
    """Return how many teachers and classes votes have, for prices that go by them.

    Nothing where ballots weigh more than one vote: such votes are more than teachers.
    """
    if votes.space.kind != "classes":
        return {"n_teachers": votes.n_teachers}
    if votes.unit != Unit() or votes.n_votes.max(initial=0) > votes.n_teachers:
        return {}
    return {"n_teachers": votes.n_teachers, "n_classes": votes.n_classes}


def first_answers(told: NDArray[Any], n_queries: int) -> ArrayLike:
    """Return how many of the first queries were answered; of many labels, how many of each."""
    return int(told[:n_queries].sum()) if told.dtype == np.bool_ else told[:n_queries]


def _gaussian_costs(mechanism: Any, n_queries: int, delta: float) -> list[ComparedCost]:
    sigma, sigma_threshold, n_checks = mechanism.sigma, 1.0, 0
    histogram = RdpCurve.zcdp(1 / sigma**2) * n_queries
    if hasattr(mechanism, "sigma_threshold"):
        sigma_threshold, n_checks = mechanism.sigma_threshold, n_queries
        histogram = histogram + RdpCurve.zcdp(1 / (2 * sigma_threshold**2)) * n_checks
    checks: dict[str, Any] = {"sigma_threshold": sigma_threshold, "n_checks": n_checks}
    mu = gaussian_dp_mu(sigma, n_queries, **checks)
    costs = [ComparedCost("histogram-gdp", gaussian_dp_epsilon(mu, delta), holds_for="continuous noise")]
    if mechanism.price_method != "histogram-rdp":  # else it is charged just that
        costs.append(ComparedCost("histogram-rdp", *histogram.epsilon_and_order(delta)))
    epsilon = (
        discrete_gaussian_pld_epsilon(sigma, n_queries, delta=delta, **checks) if has_pld() else math.inf
    )
    if math.isfinite(epsilon):
        costs.append(ComparedCost("histogram-pld", epsilon, holds_for="a fixed number of queries"))
    return costs


Kind = Literal["realised", "expected", "bound"]


@dataclass(frozen=True)
class PrivateCost:
    """The data-dependent epsilons of a run. Private: for the operator's eyes, and sealed in an `Account`.

    A published number is None where no paper has one for the mechanism.

    `per` says whether the exact cost follows each teacher or adds up each query's worst ballot, and
    `bound_because` why it is an upper bound, where it is one. `kind` says what the published number is: along
    the path that was taken, in expectation, or of a run without checks.
    """

    exact_epsilon: float
    exact_order: float
    per: Literal["teacher", "query"]
    published_epsilon: float | None
    published_order: float | None
    published_classic: float | None
    kind: Kind
    bound_because: str = ""


@dataclass(frozen=True, eq=False)
class Account:
    """The books of one run: all may be shown but `private`, which is sealed and absent unless asked for.

    `public` is what a run that asks these queries states: with a budget, within it. `charged` is what its
    ledger has on the books if the answers are those of `answered`, and no guarantee by itself; `one_price`
    says that silence is no cheaper. `budget_needed` is the smallest budget whose ledger pays for all queries,
    whatever comes out. `compared` are other ways to add up, smallest first. `n_answered` is None
    where every query is charged an answer. Where a query has many labels, `n_labels` says how many, and
    `n_answered` counts labels.
    """

    n_queries: int
    n_teachers: int
    n_answered: int | None
    delta: float
    public: PublicCost
    charged: PublicCost | None
    compared: tuple[ComparedCost, ...]
    private: Sealed[PrivateCost] | None
    notes: tuple[str, ...] = ()
    n_labels: int | None = None
    afforded: Afforded | None = None
    one_price: bool = False
    budget_needed: float = 0.0


def account(
    mechanism: Mechanism,
    votes: Votes | VoteHandle,
    *,
    delta: float,
    budget: float | None = None,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    answered: ArrayLike | None = None,
    private: bool = True,
    progress: Progress | None = None,
) -> Account:
    """Return what releasing these votes through this mechanism costs.

    `votes` are votes, or a handle for those of a file (`teachers.store.open_votes`), which brings `student`
    and `answered` with it.

    `answered` has one True or False per query, and per label where there are many. With a `budget` (epsilon)
    the public number is that of a ledger which holds it. `orders` are for the private numbers: the public
    one is at the orders of a ledger.

    Guarantee: `public` holds for any votes. The exact cost covers the whole outcome space, answers and
               silence, whatever `answered` says.
    Assumes:   the number of queries, or the budget, was fixed before the run; the list of queries was fixed
               too, as far as the private costs are concerned.
    Reference: see `public_cost`, `exact.exact_cost` and `bounds`.

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> books = account(GNMax(sigma=40.0), votes, delta=1e-5)
    >>> books.public.method, round(books.public.epsilon, 2), books.private
    ('argmax-rdp', 0.15, Sealed(<private>))
    """
    grid = check_orders(orders)
    if isinstance(votes, Votes):
        cast = votes
    else:
        file = kept(votes)
        cast, student, answered = file.votes, getattr(file, "student", None), file.answered
    require_votes_on(answers_of(mechanism), cast, type(mechanism).__name__)
    if is_by_batch(mechanism):  # it may refuse these public numbers
        price_of(mechanism, Unit(), len(cast), n_teachers=cast.n_teachers, n_classes=cast.n_classes)
    notes: list[str] = []
    known = public_numbers(cast)
    one_price = has_one_price(mechanism, Unit(), **known)
    beliefs = _student(mechanism, cast, student, notes)
    mask = _answered(mechanism, cast, answered, notes)
    told = None if mask is None else mask if mask.ndim == 1 else mask.sum(axis=1)
    public, afforded = stated_cost(mechanism, len(cast), delta=delta, budget=budget, told=told, **known)
    n_asked = len(cast) if afforded is None else afforded.n_queries
    charged = None
    if told is not None:
        answers = first_answers(told, n_asked)
        charged = public_cost(mechanism, n_asked, delta=delta, n_answered=answers, **known)
    compared = compared_costs(mechanism, n_asked, delta=delta)
    notes += [mechanism.note] if hasattr(mechanism, "note") else []
    sealed = None
    if private and not hasattr(mechanism, "outcomes"):
        name, why = (
            type(mechanism).__name__,
            "does not say how likely its outcomes are: there is no exact cost",
        )
        if getattr(mechanism, "releases_counts", False):
            notes.append(f"All votes cost the same under {name}: there is no private number.")
        else:
            notes.append(f"{name} {why}, and no private number.")
    elif private:
        if beliefs is not None:
            notes.append(
                "An interactive check depends on earlier answers through the student, so the private costs "
                "are sums along the path that was taken, not bounds over all paths. The public number has no "
                "such caveat."
            )
        exact = exact_cost(mechanism, cast, orders=grid, student=beliefs, progress=progress)
        if exact.bound_because:
            notes.append(f"The exact cost is an upper bound here: {exact.bound_because}.")
        exact_epsilon, exact_order = exact.cost.reveal().epsilon_and_order(delta)
        epsilon = order = classic = None
        if _has_published(mechanism):
            bound = published_cost(mechanism, cast, orders=grid, student=beliefs, answered=mask)
            published = RdpCurve(grid, bound)
            epsilon, order = published.epsilon_and_order(delta)
            classic = published.epsilon(delta, conversion="classic")
        else:
            notes.append(f"There is no published bound for {type(mechanism).__name__}.")
        sealed = Sealed(
            PrivateCost(
                exact_epsilon=exact_epsilon,
                exact_order=exact_order,
                per=exact.per,
                published_epsilon=epsilon,
                published_order=order,
                published_classic=classic,
                kind="realised" if mask is not None else "bound" if _answers_all(mechanism) else "expected",
                bound_because=exact.bound_because,
            )
        )
    return Account(
        n_queries=len(cast),
        n_teachers=cast.n_teachers,
        n_answered=None if told is None else int(told.sum()),
        delta=delta,
        public=public,
        charged=charged,
        compared=compared,
        private=sealed,
        notes=tuple(notes),
        n_labels=cast.n_labels if cast.space.kind == "labels" else None,
        afforded=afforded,
        one_price=one_price,
        budget_needed=budget_for(mechanism, len(cast), delta=delta, **known),
    )


def published_cost(
    mechanism: object,
    votes: Votes,
    *,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    answered: ArrayLike | None = None,
) -> Floats:
    """Return the papers' data-dependent bound of a run, one Rényi value per order: private.

    With `answered` the checks of all queries and the answers that were given, along the path that was taken;
    without it answers are weighted by their probability, an expectation.

    Guarantee: as `bounds`, for the forward direction and for the continuous noise of the papers.
    Assumes:   as `bounds`.
    Reference: Papernot et al. 2017, Theorem 3; Papernot et al. 2018, Theorem 6.
    """
    if not _has_published(mechanism):
        raise TypeError(
            f"Expected a mechanism with a bound that a paper printed, got {type(mechanism).__name__}. Other "
            "mechanisms are charged mechanism.price(unit) per query."
        )
    asked: Any = mechanism
    if hasattr(mechanism, "published_rows"):
        return published_label_cost(asked, votes, orders=orders, answered=answered, total=True)
    context = {"student": student} if listens(mechanism) else {}
    return np.asarray(asked.published(votes, orders=orders, answered=answered, **context))


def _answers_all(mechanism: object) -> bool:
    """Say whether every query is answered: a mechanism whose silence only costs as much does not say so."""
    return bool(getattr(mechanism, "one_price", False))


def _has_published(mechanism: object) -> bool:
    return hasattr(mechanism, "published") or hasattr(mechanism, "published_rows")


def _student(
    mechanism: object, votes: Votes, student: ArrayLike | None, notes: list[str]
) -> NDArray[np.float64] | None:
    if listens(mechanism):
        if student is None:
            raise ValueError(
                "Expected the student's probabilities (queries x classes) for the interactive check, got "
                "none. Save them in the vote file as 'student'."
            )
        return student_probabilities(student, votes)
    if student is not None:
        name = type(mechanism).__name__
        notes.append(f"The student's probabilities were not used: {name} does not look at them.")
    return None


def _answered(
    mechanism: object, votes: Votes, answered: ArrayLike | None, notes: list[str]
) -> NDArray[np.bool_] | None:
    if answered is None:
        return None
    if _answers_all(mechanism):
        notes.append(f"The mask 'answered' was not used: {type(mechanism).__name__} answers every query.")
        return None
    mask = answered_mask(answered, votes)
    notes.append(
        f"{int(mask.sum())} answers are charged, as the mask 'answered' says. How many there are is itself "
        "an outcome: what may be stated is the public epsilon, in which every query is answered, or the "
        "budget of the ledger, if one was fixed before the run and is smaller."
    )
    return mask
