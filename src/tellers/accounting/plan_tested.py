"""Planning a tested batch: what to propose, before any vote, from public votes or assumptions alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_fraction, require_positive
from ..mechanisms._laws import DiscreteGaussian
from ..mechanisms.base import accountant_for
from ..mechanisms.gap_bounds import gap_envelope
from ..mechanisms.suprema import check_supremum
from ..mechanisms.tested import TestedGNMax
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import Floats, RdpCurve
from ..privacy.votes import Unit, Votes, require_votes_on
from .costs import budget_for
from .plan import Consensus

_ORDERS = (
    5.0,
    6.0,
    7.0,
    8.0,
    9.0,
    10.0,
    11.0,
    12.0,
    13.0,
    14.0,
    15.0,
    16.0,
    18.0,
    20.0,
    22.0,
    24.0,
    28.0,
    32.0,
)
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
        >>> plan.accountant().affords(RdpCurve.zero(), price)
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
    are never quite like a proxy, and one that is just like it passes more often. Of three proxies or more, the one that needs most is left aside: one that
    is far off must not decide.

    Guarantee: looks at the proxies only, so the plan is as public as they are.
    Assumes:   nothing about the votes: a plan that does not fit them fails, and never costs more.
    Reference: see "A tested release".

    >>> plan = plan_test(40.0, n_queries=461, n_teachers=250, n_classes=10, delta=1e-5)
    >>> 1.3 < plan.epsilon < 1.4, plan.failed_epsilon < 0.3
    (True, True)
    """
    require_positive(sigma=sigma, room=room)
    require_count(n_queries=n_queries, n_teachers=n_teachers)
    require_count(2, n_classes=n_classes)
    require_fraction(delta=delta, pass_rate=pass_rate)
    gaps = [_gaps(votes, n_teachers, n_classes) for votes in proxies] or [
        _made_up_gaps(n_teachers, n_classes)
    ]
    found: list[tuple[float, float, float, float, float]] = []
    for order in _ORDERS:
        table = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)
        depths = 2 * np.arange((n_teachers + 1) // 2 + 2)
        # (proxies, depths): what a batch like the proxy costs by the table, that many ballots nearer to a tie.
        costs = n_queries * np.array(
            [table[np.maximum(each[None] - depths[:, None], 0)].mean(axis=1) for each in gaps]
        )
        least = n_queries * float(table[-1])
        for test_sigma in _test_sigmas(n_teachers):
            bit = float(check_supremum(test_sigma, [order]).values[0])
            slack = _needed(test_sigma, pass_rate)
            for share in _SHARES_OF_DELTA:
                test_delta = float(f"{share * delta:.6g}")
                depth = _threshold(test_sigma, test_delta) + slack
                if depth >= costs.shape[1]:
                    continue
                needs = np.sort(costs[:, max(depth, 0)])
                proposed = room * float(needs[-2] if needs.size > 2 else needs[-1])
                clear_cost = _up(max(proposed, least * (1 + 1e-9)))
                curve = RdpCurve(np.array([order]), np.array([bit + clear_cost]))
                found.append((curve.epsilon(delta - test_delta), order, test_sigma, test_delta, clear_cost))
    if not found:
        raise ValueError(f"Expected enough teachers for a test of their votes, got {n_teachers}.")
    _, order, test_sigma, test_delta, clear_cost = min(found)
    mechanism = TestedGNMax(sigma, clear_cost, test_sigma, order, test_delta, n_queries)
    unit, left = Unit(), delta - test_delta
    table = gap_envelope(n_teachers, n_classes, sigma=sigma, order=order)
    return TestPlan(
        mechanism=mechanism,
        n_teachers=n_teachers,
        n_classes=n_classes,
        delta=delta,
        epsilon=mechanism.batch_price(unit, n_queries).epsilon(left),
        failed_epsilon=mechanism.fail_price(unit, n_queries).epsilon(left),
        pass_rates=tuple(_pass_rate(mechanism, table, each) for each in gaps),
    )


def plan_most_tested(epsilon: float, sigma: float, *, most: int, **how: Any) -> TestPlan | None:
    """Return the plan with the most queries, `most` of them at most, that a budget pays for; None if not one.

    What else is said is said to `plan_test`.

    >>> how = {"n_teachers": 250, "n_classes": 10, "delta": 1e-5}
    >>> plan = plan_most_tested(1.36, 40.0, most=1000, **how)
    >>> plan.mechanism.n_queries > 400, plan.epsilon <= 1.36
    (True, True)
    """
    require_positive(epsilon=epsilon)
    require_count(most=most)
    low, high, best = 0, most, None
    while low < high:
        middle = (low + high + 1) // 2
        plan = plan_test(sigma, n_queries=middle, **how)
        fits = budget_for(plan.mechanism, middle, delta=plan.delta) <= epsilon
        low, high, best = (middle, high, plan) if fits else (low, middle - 1, best)
    return best


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
    return [float(f"{x:.3g}") for x in np.geomspace(0.3, max(0.6, n_teachers / 9), 40)]


def _threshold(test_sigma: float, test_delta: float) -> int:
    return TestedGNMax(1.0, 1.0, test_sigma, 2.0, test_delta, 1).threshold


@lru_cache(maxsize=256)
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
        low, high = -1, (table.size - 1 + 1) // 2 + 1
        while low < high:
            middle = (low + high + 1) // 2
            clear = float(table[np.maximum(drawn - 2 * middle, 0)].sum()) <= mechanism.clear_cost
            low, high = (middle, high) if clear else (low, middle - 1)
        # P[Z >= threshold - depth] = P[Z <= depth - threshold]
        total += math.exp(float(law.log_cdf(np.array([float(low - mechanism.threshold)]))[0]))
    return total / _N_DRAWS


def _up(value: float) -> float:
    """Return the value rounded up to four digits: a proposal that reads well."""
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.ceil(value / step) * step:.6g}")
