"""Planning a tested batch: what to propose, before any vote, from public votes or assumptions alone."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_fraction, require_positive
from ..mechanisms._laws import DiscreteGaussian
from ..mechanisms.base import accountant_for
from ..mechanisms.gap_bounds import gap_envelope
from ..mechanisms.suprema import check_supremum
from ..mechanisms.tested import TestedGNMax, depth_threshold
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import Floats
from ..privacy.votes import Unit, Votes, require_votes_on
from .costs import budget_for
from .plan import Consensus

_ORDERS = tuple(map(float, (*range(5, 17), *range(18, 25, 2), 28, 32)))
_SHARES_OF_DELTA = (0.02, 0.05, 0.1, 0.2, 0.4)
_N_PROXY, _N_DRAWS = 2000, 200


@dataclass(frozen=True)
class TestPlan:
    """What to propose for a batch, and what to expect of it; all of it public.

    `epsilon` is what a run states that asks the batch and nothing else, `failed_epsilon` what is spent of it
    where the test fails. `pass_rates` says for every proxy how often batches drawn from it pass: a forecast,
    and no promise about the votes to come.
    """

    __test__ = False  # no test of its own, whatever its name begins with

    mechanism: TestedGNMax
    n_teachers: int
    n_classes: int
    delta: float
    epsilon: float
    failed_epsilon: float
    pass_rates: tuple[float, ...]

    def accountant(self, epsilon: float | None = None) -> Accountant:
        """Return the arithmetic of a ledger for this batch, with a budget that pays for it, or a larger one.

        >>> plan = plan_test(20.0, n_queries=40, n_teachers=100, n_classes=5, delta=1e-5)
        >>> price = plan.mechanism.batch_price(Unit(), 40)
        >>> plan.accountant().affords(0 * price, price)
        True
        """
        least = budget_for(self.mechanism, self.mechanism.n_queries, delta=self.delta)
        if epsilon is not None and epsilon < least:
            raise ValueError(
                f"Expected a budget of at least {least:.6g}, which the batch costs, got {epsilon}."
            )
        return accountant_for(self.mechanism, Budget(least if epsilon is None else epsilon, self.delta))


def plan_test(
    sigma: float,
    *,
    n_queries: int,
    n_teachers: int,
    n_classes: int,
    delta: float,
    proxies: Sequence[Votes] = (),
    pass_rate: float = 0.5,
    room: float = 1.15,
) -> TestPlan:
    """Return the tested batch with the smallest epsilon that passes often enough on public votes.

    `proxies` are public votes of as many teachers on as many classes: of earlier teachers on public data, or
    made up (`Consensus`, whose default is taken where none are given). The proposal is so large that a batch
    which costs `room` times what a proxy does passes with probability `pass_rate` still: the votes to come
    are never quite like a proxy, and one that is just like it passes more often. Of three proxies or more,
    the one that needs most is left aside: one that is far off must not decide.

    Guarantee: looks at the proxies only, so the plan is as public as they are.
    Assumes:   nothing about the votes: a plan that does not fit them fails, and never costs more.
    Reference: see "A tested release".

    >>> plan = plan_test(40.0, n_queries=461, n_teachers=250, n_classes=10, delta=1e-5)
    >>> 1.3 < plan.epsilon < 1.4, plan.pass_rates[0] > 0.75
    (True, True)
    """
    require_positive(sigma=sigma, room=room)
    require_count(n_queries=n_queries, n_teachers=n_teachers)
    require_count(2, n_classes=n_classes)
    require_fraction(delta=delta, pass_rate=pass_rate)
    gaps = _all_gaps(proxies, n_teachers, n_classes)
    search = _search(sigma, n_teachers, n_classes, delta, gaps, pass_rate, room)
    return _planned(search, n_queries, gaps)


def plan_most_tested(
    epsilon: float,
    sigma: float,
    *,
    most: int,
    n_teachers: int,
    n_classes: int,
    delta: float,
    proxies: Sequence[Votes] = (),
    pass_rate: float = 0.5,
    room: float = 1.15,
) -> TestPlan | None:
    """Return the plan with the most queries, `most` of them at most, that a budget pays for; None if not one.

    What else is said means what it does to `plan_test`.

    Guarantee: as `plan_test`; a ledger of (epsilon, delta), opened by the plan, pays for all of it.
    Assumes:   as `plan_test`.
    Reference: see "A tested release".

    >>> how = {"n_teachers": 250, "n_classes": 10, "delta": 1e-5}
    >>> plan = plan_most_tested(1.36, 40.0, most=1000, **how)
    >>> plan.mechanism.n_queries > 400, plan.epsilon <= 1.36
    (True, True)
    """
    require_positive(epsilon=epsilon, sigma=sigma, room=room)
    require_count(most=most, n_teachers=n_teachers)
    require_count(2, n_classes=n_classes)
    require_fraction(delta=delta, pass_rate=pass_rate)
    gaps = _all_gaps(proxies, n_teachers, n_classes)
    search = _search(sigma, n_teachers, n_classes, delta, gaps, pass_rate, room)
    fitting = bisect_left(range(1, most + 1), True, key=lambda n: search.epsilons(n).min() > epsilon)
    for n_queries in range(fitting, 0, -1):  # rounding a proposal up may take a query off
        plan = _planned(search, n_queries, gaps)
        if budget_for(plan.mechanism, n_queries, delta=delta) <= epsilon:
            return plan
    return None


@dataclass(frozen=True, eq=False)
class _Trials:
    """All that is tried: what a test costs by itself, and what it needs to be proposed for one query."""

    sigma: float
    n_teachers: int
    n_classes: int
    delta: float
    orders: Floats
    test_sigmas: Floats
    test_deltas: Floats
    bits: Floats
    needs: Floats

    def epsilons(self, n_queries: int) -> Floats:
        """Return the epsilon of a batch that passes, for all that is tried."""
        added = np.log1p(-1 / self.orders)
        added = added - (np.log(self.delta - self.test_deltas) + np.log(self.orders)) / (self.orders - 1)
        return np.asarray(self.bits + n_queries * self.needs + added)


def _planned(search: _Trials, n_queries: int, gaps: tuple[NDArray[np.int64], ...]) -> TestPlan:
    best = int(np.argmin(search.epsilons(n_queries)))
    order, test_delta = float(search.orders[best]), float(search.test_deltas[best])
    mechanism = TestedGNMax(
        search.sigma, _up(n_queries * search.needs[best]), float(search.test_sigmas[best]), order, test_delta,
        n_queries,
    )  # fmt: skip
    unit, left = Unit(), search.delta - test_delta
    table = gap_envelope(search.n_teachers, search.n_classes, sigma=search.sigma, order=order)
    return TestPlan(
        mechanism=mechanism,
        n_teachers=search.n_teachers,
        n_classes=search.n_classes,
        delta=search.delta,
        epsilon=mechanism.batch_price(unit, n_queries).epsilon(left),
        failed_epsilon=mechanism.fail_price(unit, n_queries).epsilon(left),
        pass_rates=tuple(_pass_rate(mechanism, table, each) for each in gaps),
    )


def _search(
    sigma: float,
    n_teachers: int,
    n_classes: int,
    delta: float,
    gaps: tuple[NDArray[np.int64], ...],
    pass_rate: float,
    room: float,
) -> _Trials:
    rows: list[tuple[float, ...]] = []
    nearer = 2 * np.arange((n_teachers + 1) // 2 + 2)
    for order in _ORDERS:
        table = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)
        # (proxies, depths): what a query costs by the table, that many ballots nearer to a tie, on average.
        costs = [table[np.maximum(each[None] - nearer[:, None], 0)].mean(axis=1) for each in gaps]
        # By depth, what all proxies need but the one that needs most, where there are three.
        needs = np.sort(costs, axis=0)[-2 if len(gaps) > 2 else -1]
        needs = np.maximum(room * needs, float(table[-1]) * (1 + 1e-9))
        for test_sigma in _test_sigmas(n_teachers):
            bit = float(check_supremum(test_sigma, [order]).values[0])
            for share in _SHARES_OF_DELTA:
                test_delta = float(f"{share * delta:.6g}")
                depth = max(0, depth_threshold(test_sigma, test_delta) + _needed(test_sigma, pass_rate))
                if depth < needs.size:
                    rows.append((order, test_sigma, test_delta, bit, float(needs[depth])))
    if not rows:
        raise ValueError(f"Expected enough teachers for a test of their votes, got {n_teachers}.")
    return _Trials(sigma, n_teachers, n_classes, delta, *np.array(rows).T)


def _all_gaps(proxies: Sequence[Votes], n_teachers: int, n_classes: int) -> tuple[NDArray[np.int64], ...]:
    return tuple(_gaps(votes, n_teachers, n_classes) for votes in proxies) or (
        _made_up_gaps(n_teachers, n_classes),
    )


def _gaps(votes: Votes, n_teachers: int, n_classes: int) -> NDArray[np.int64]:
    require_votes_on("classes", votes, "plan_test")
    if (votes.n_teachers, votes.n_classes) != (n_teachers, n_classes):
        raise ValueError(
            f"Expected a proxy of {n_teachers} teachers and {n_classes} classes, got one of "
            f"{votes.n_teachers} and {votes.n_classes}."
        )
    return votes.gap


@lru_cache(maxsize=8)
def _made_up_gaps(n_teachers: int, n_classes: int) -> NDArray[np.int64]:
    return Consensus().votes(n_teachers, n_classes, n_queries=_N_PROXY, seed=0)[0].gap


def _test_sigmas(n_teachers: int) -> list[float]:
    """Return the noise that is tried: a threshold takes about five times it, of at most half the teachers."""
    return [float(f"{x:.3g}") for x in np.geomspace(0.3, max(0.6, n_teachers / 9), 48)]


@lru_cache(maxsize=1024)
def _needed(test_sigma: float, pass_rate: float) -> int:
    """Return the least k with P[Z >= -k] >= pass_rate: so far above the threshold a depth must be."""
    law, k = DiscreteGaussian(test_sigma), -math.ceil(10 * test_sigma) - 1
    while float(law.log_cdf(np.array([float(k)]))[0]) < math.log(pass_rate):
        k += 1
    return k


def _pass_rate(mechanism: TestedGNMax, table: Floats, gaps: NDArray[np.int64]) -> float:
    """Return how often batches of queries drawn from a proxy pass."""
    rng, law = np.random.default_rng(0), DiscreteGaussian(mechanism.test_sigma)
    total = 0.0
    for _ in range(_N_DRAWS):
        drawn = rng.choice(gaps, mechanism.n_queries)
        depths = range(table.size // 2 + 2)

        def is_dear(changed: int, drawn: NDArray[np.int64] = drawn) -> bool:
            return float(table[np.maximum(drawn - 2 * changed, 0)].sum()) > mechanism.clear_cost

        low = bisect_left(depths, True, key=is_dear) - 1
        # P[Z >= threshold - depth] = P[Z <= depth - threshold]
        total += math.exp(float(law.log_cdf(np.array([float(low - mechanism.threshold)]))[0]))
    return total / _N_DRAWS


def _up(value: float) -> float:
    """Return the value rounded up to four digits: a proposal that reads well."""
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.ceil(value / step) * step:.6g}")
