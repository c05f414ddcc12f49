"""CPU time of the accountants, single core, and its ratio to plain per-query loops in the same run.

    make bench                      the table
    python benchmarks/run.py --check   the same, failing when a limit or a ratio is missed

Votes are made up (seed 7), 10 classes, about 100 orders. CPU seconds (`time.process_time`) are printed with
the ratio to the reference in `reference.py`, which is timed on a part of the work and scaled up.
"""

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import reference
from threadpoolctl import threadpool_limits

from tellers import ConfidentGNMax, GNMax, LNMax, Votes, exact_cost
from tellers.accounting import Consensus
from tellers.mechanisms import gnmax_local_sensitivities, published_gnmax, smooth_sensitivity
from tellers.privacy import DEFAULT_ORDERS
from tellers.privacy._noise_table import TIMED
from tellers.privacy.noise import Noise, secure

SIGMA = 40.0


def cpu_seconds(work: Callable[[], object], *, repeat: int = 3) -> float:
    """Return the best CPU time of a few runs."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def made_up(n_teachers: int, n_queries: int) -> Votes:
    """Return votes with the planner's default consensus."""
    return Consensus().votes(n_teachers, 10, n_queries=n_queries, seed=7)[0]


def published() -> tuple[str, float, float, float]:
    """10,000 queries, all orders."""
    votes = made_up(250, 10_000)
    ours = cpu_seconds(lambda: published_gnmax(votes, SIGMA, total=True))
    plain = cpu_seconds(
        lambda: reference.published_bound(votes.counts[:100], SIGMA, DEFAULT_ORDERS), repeat=1
    )
    return "published bound, 10,000 queries [s]", ours, 0.1, plain * 100 / ours


def exact(
    name: str, mechanism: GNMax | ConfidentGNMax | LNMax, votes: Votes, limit: float
) -> tuple[str, float, float, float]:
    """Milliseconds per query."""
    exact_cost(mechanism, votes[:50])  # tables of the noise are made once
    ours = cpu_seconds(lambda: exact_cost(mechanism, votes)) / len(votes) * 1000
    plain = (
        cpu_seconds(lambda: reference.exact_query(votes.counts[0], SIGMA, DEFAULT_ORDERS), repeat=1) * 1000
    )
    return f"exact {name} [ms per query]", ours, limit, plain / ours


def smooth(n_teachers: int, sigma: float) -> tuple[str, float, float, float]:
    """1,000 queries, one order, tables included."""
    votes = made_up(n_teachers, 1000)

    def work() -> float:
        local = gnmax_local_sensitivities(votes.counts, n_teachers, sigma=sigma, order=20.0)
        return smooth_sensitivity(local, 0.02)

    start = time.process_time()
    work()
    ours = time.process_time() - start
    some = votes.counts[:2]
    plain = cpu_seconds(lambda: reference.local_sensitivities(some, n_teachers, sigma, 20.0), repeat=1)
    return f"smooth sensitivity, 1,000 queries, {n_teachers:,} teachers [s]", ours, 2.5, plain * 500 / ours


def drawing(law: str, scale: Fraction, n: int) -> tuple[str, float, float, float]:
    """Nanoseconds per draw as a share of what the same draws take by the coins of seeded noise.

    A fifth is the limit where places are looked up. Up to 65,536 draws take the same work whatever comes out.
    """
    method = getattr(secure(), f"discrete_{law}")
    by_coins = getattr(Noise(lambda size: os.urandom(size)), f"discrete_{law}")
    rounds = max(1, 4000 // n)
    method(scale, n), by_coins(scale, n)  # tables are made once

    def seconds(draw: Callable[[Fraction, int], object]) -> float:
        return cpu_seconds(lambda: [draw(scale, n) for _ in range(rounds)], repeat=5) / rounds / n

    ours, plain = seconds(method), seconds(by_coins)
    return (
        f"{law}, {float(scale):g}, {n:,} at once [share of coins]",
        ours / plain,
        0.2 if n > TIMED else 1.5,
        plain / ours,
    )


def memory() -> tuple[str, float, float, float]:
    """Peak memory of the exact cost of 100,000 queries, in GiB; run last, since the peak is the process's."""
    votes = made_up(250, 100_000)
    exact_cost(GNMax(SIGMA), votes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return "peak memory, exact, 100,000 queries [GiB]", peak, 1.0, float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    args = parser.parse_args()
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{platform.machine()}, {versions}, one thread, seed 7")
    print(f"{'what':62} {'ours':>9} {'limit':>7} {'times faster':>13}")
    likely, spread = made_up(250, 1000), Votes.from_counts(uneven(), n_teachers=250)
    tasks = [
        published,
        lambda: exact("GNMax", GNMax(SIGMA), likely, 1.0),
        lambda: exact("Confident", ConfidentGNMax(SIGMA, 200, 150.0), likely, 1.0),
        lambda: exact("LNMax", LNMax(0.05), likely, 1.0),
        lambda: exact("GNMax, no consensus", GNMax(SIGMA), spread, 1.0),
        lambda: smooth(250, SIGMA),
        lambda: smooth(5000, 100.0),
        *(
            lambda sigma=sigma, n=n: drawing("gaussian", Fraction(sigma), n)
            for sigma in (0.5, 4, 40, 400)
            for n in (1, 10, 1000, 100_000)
        ),
        *(lambda n=n: drawing("laplace", 1 / Fraction(0.05), n) for n in (1, 10, 1000, 100_000)),
        memory,
    ]
    missed = False
    for task in tasks:
        name, ours, limit, ratio = task()
        print(
            f"{name:62} {ours:9.3f} {limit:7.1f} {ratio:13.0f}"
            + ("" if ours <= limit else "   over the limit")
        )
        missed |= ours > limit
    if args.check and missed:
        sys.exit(1)


def uneven() -> np.ndarray:
    """Return votes without consensus, where nearly all counts of a query differ: the slowest case."""
    rng = np.random.default_rng(7)
    return rng.multinomial(250, rng.dirichlet(np.ones(10), size=500))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
