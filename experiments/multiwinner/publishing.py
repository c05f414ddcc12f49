"""What may be told of an exact cost: the epsilon that can be published, and why bounds differ by the order.

Publications are planned on votes that are public. Two stand-ins are tried: votes made up from assumptions,
which anybody may use, and other queries to the same teachers, which would be private and show what a better
stand-in would give.
"""

from typing import Any

import numpy as np
from accounting import ORDERS, Voting, published_costs
from cells import DELTA, LIMITS, Bench, measure_cell
from tables import Row, Table

from tellers import LabelVotes, Unit, exact_cost
from tellers.accounting import LabelProfile, publish
from tellers.accounting.exact import query_costs
from tellers.accounting.smooth import PublishPlan
from tellers.privacy import RdpCurve
from tellers.runs import plan_publication

N_PROXY = 1_000


class Median:
    """A source of noise that always draws the median: what is published is as often more as less."""

    name, is_secure = "median", False

    def gaussian(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return zeros."""
        return np.zeros(shape)


def publishing(bench: Bench, name: str, seeds: range, sigmas: tuple[float, ...]) -> Table:
    """The private epsilon of Binary voting at two budgets, and the one that may be published."""
    rows = []
    for sigma in sigmas:
        for limit in LIMITS:
            found = [_published(bench, name, seed, sigma, limit) for seed in seeds]
            cells: dict[str, Any] = {"sigma": f"{sigma:g}", "epsilon": f"{limit:g}"}
            cells |= {column: [one[column] for one in found] for column in found[0]}
            rows.append(Row(f"{sigma:g}-{limit:g}", cells))
    notes = (
        f"Binary, as many queries as the exact cost lets epsilon answer, delta {DELTA:g}. Published: an "
        "upper value with 95 % confidence, its own price included; the median. Planned on made-up votes (a "
        "tenth of the labels true, 95 % of the votes right).",
        "By the cost: with noise on the cost itself instead of its logarithm. Other queries: planned on "
        f"up to {N_PROXY:,} other queries to the same teachers, which would be private.",
    )
    title = f"{name}: what may be published of the exact cost"
    return Table(f"many/{name}/publishing", title, tuple(rows[0].cells), tuple(rows), notes)


def _published(bench: Bench, name: str, seed: int, sigma: float, limit: float) -> dict[str, float]:
    voting = Voting("binary", sigma)
    n = int(measure_cell(bench, name, seed, voting)[f"exact/{limit:g}"])

    def measure() -> dict[str, float]:
        every, mechanism = bench.votes(name, seed), voting.mechanism(bench.data(name).n_labels)
        votes = every[:n]
        made, _ = LabelProfile().votes(every.n_teachers, every.n_labels, n_queries=400, seed=0)

        def shown(proxy: LabelVotes, **how: Any) -> float:
            plan: PublishPlan = plan_publication(mechanism, proxy, n_queries=n, delta=DELTA, **how)[0]
            noise: Any = Median()
            return publish(mechanism, votes, noise, plan=plan, delta=DELTA, allow_seeded=True).epsilon_upper

        private = exact_cost(mechanism, votes).cost.reveal().epsilon(DELTA)
        told = shown(made)
        return {
            "queries": n,
            "private": private,
            "published": told,
            "published / private": told / private,
            "by the cost": shown(made, offsets=()) / private,
            "other queries": shown(every[n : n + N_PROXY]) / private,
            "public price": (mechanism.price(Unit()) * n).epsilon(DELTA),
        }

    return bench.kept(f"{name}-{seed}-binary-{sigma:g}-{limit:g}-publishing", measure)


def by_order(bench: Bench, name: str, seed: int, sigma: float, orders: tuple[float, ...]) -> Table:
    """What a query costs by the published bound and exactly, by order, and which order decides a budget."""
    voting = Voting("binary", sigma)
    found = measure_cell(bench, name, seed, voting)
    n = int(found["exact/20"])

    def measure() -> dict[str, Any]:
        votes = bench.votes(name, seed)[:n]
        printed = np.cumsum(published_costs(voting, votes), axis=0)
        costs = np.stack(
            [one for _, one in query_costs(voting.mechanism(votes.n_labels), votes, orders=ORDERS)]
        )
        exact = np.cumsum(costs, axis=0).max(axis=(1, 2))
        decided: dict[str, str] = {}
        for limit in LIMITS:
            for words, running in (("exact", exact), ("printed", printed)):
                asked = int(found[f"{words}/{limit:g}"])
                if asked:
                    _, order = RdpCurve(ORDERS, running[asked - 1]).epsilon_and_order(DELTA)
                    at = f"{order:g}"
                    decided[at] = ", ".join(filter(None, [decided.get(at), f"{limit:g} {words}"]))
        return {"printed": (printed[-1] / n).tolist(), "exact": (exact[-1] / n).tolist(), "decided": decided}

    kept = bench.kept(f"{name}-{seed}-binary-{sigma:g}-orders", measure)
    rows = []
    for at, order in enumerate(ORDERS):
        if order not in orders:
            continue
        printed, exact = kept["printed"][at], kept["exact"][at]
        added = RdpCurve(ORDERS[at : at + 1], np.ones(1)).epsilon(DELTA) - 1
        cells = {"order": f"{order:g}", "the conversion adds": added}
        # Text: a hundredth of a nat needs more digits than tables give.
        cells |= {"printed, a query": f"{printed:.4f}", "exact, a query": f"{exact:.4f}"}
        cells |= {"printed / exact": printed / exact, "decides": kept["decided"].get(f"{order:g}", "")}
        rows.append(Row(f"{order:g}", cells))
    notes = (f"Means over the {n} queries that epsilon 20 answers by exact costs; seed {seed}.",)
    title = f"{name}: Binary, sigma {sigma:g}: what a query costs, by order"
    return Table(f"many/{name}/orders", title, tuple(rows[0].cells), tuple(rows), notes)
