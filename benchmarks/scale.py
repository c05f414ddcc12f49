"""Votes of many teachers on many queries: written in parts, and accounted for in parts, within 2 GiB.

    python benchmarks/scale.py            10,000 teachers x 4,096 queries, some seconds
    python benchmarks/scale.py --full     10,000 teachers x 1,000,000 queries: 10 GB on disk, half an hour
    python benchmarks/scale.py --full --only teachers --jobs 2 --folder DIR    one step, on votes there
    python benchmarks/scale.py --growth benchmarks/growth.md    how costs grow, one thing at a time: a table
    python benchmarks/scale.py --check    exit 1 under 1,000 queries per second, or over the limit of memory

Ballots are made up (seed 7, 10 classes, the planner's consensus), GNMax with sigma 400, about 100 orders, one
thread. The address space of the process is limited to 2 GiB before the first vote: past that it fails. CPU
seconds are printed, as queries per second. For the costs of each teacher the additions are also timed by
themselves, on one part, beside a plain sum over all ballots.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from tellers import (
    Budget,
    ConfidentBinary,
    ConfidentGNMax,
    GNMax,
    LabelVotes,
    LNMax,
    Tau,
    Unit,
    Votes,
)  # fmt: skip
from tellers.accounting import Consensus, exact_cost, exact_cost_of_parts
from tellers.accounting.exact import query_costs, teacher_costs_of_parts
from tellers.mechanisms._clock import kept
from tellers.mechanisms.base import price_of
from tellers.privacy import DEFAULT_ORDERS, Accountant, RdpCurve
from tellers.privacy._price import Price, itemised
from tellers.privacy.noise import secure
from tellers.teachers import StoredVotes, VoteWriter, stored_votes

SEED = 7
N_CLASSES = 10
N_TEACHERS = 10_000
PART = 1024
MECHANISM = GNMax(sigma=400.0)
DELTA = 1e-6
LIMIT_GIB = 2.0
# A ballot is one of so many drawn per query: cheap to make, and as uneven as the consensus.
DRAWN = 1024


def made_up(n_queries: int, n_teachers: int) -> Iterator[Votes]:
    """Yield votes part by part: teachers right with a probability that differs from query to query."""
    rng = np.random.default_rng(SEED)
    for start in range(0, n_queries, PART):
        n = min(PART, n_queries - start)
        right, truth = rng.beta(1.35, 0.15, size=n), rng.integers(N_CLASSES, size=n)
        rival = (truth + rng.integers(1, N_CLASSES, size=n)) % N_CLASSES
        chances = np.full((n, N_CLASSES), 0.4 / (N_CLASSES - 2)) * (1 - right)[:, None]
        chances[np.arange(n), rival], chances[np.arange(n), truth] = 0.6 * (1 - right), right
        edges = np.cumsum(chances, axis=1)[:, None, :-1]
        drawn = (rng.random((n, DRAWN, 1)) > edges).sum(axis=2).astype(np.uint8).ravel()
        picked = rng.integers(DRAWN, size=(n_teachers, n), dtype=np.uint16)
        ballots = drawn[np.arange(n, dtype=np.int32) * DRAWN + picked]
        yield Votes.from_ballots(ballots, n_classes=N_CLASSES)


def write(folder: Path, n_queries: int, n_teachers: int, *, ballots: bool) -> tuple[float, float]:
    """Write the votes as they are made; return the CPU seconds of writing and of making them."""
    begin, writing = time.process_time(), 0.0
    with VoteWriter(folder, ballots=ballots) as writer:
        for votes in made_up(n_queries, n_teachers):
            start = time.process_time()
            writer.append(votes)
            writing += time.process_time() - start
            show(f"written {writer.n_queries:,} of {n_queries:,}")
    return writing, time.process_time() - begin - writing


def accounted(place: Path, *, ballots: bool, n_jobs: int) -> tuple[float, float, float]:
    """Return (exact epsilon, CPU seconds, peak GiB) of all votes, in total or for each teacher.

    With several processes each takes a share of the parts, and a share of the memory; the sums are added.
    """
    n_parts = len(stored_votes(place).sizes)
    edges = np.linspace(0, n_parts, n_jobs + 1).round().astype(int)
    shares = [(place, int(first), int(last), ballots, n_jobs) for first, last in itertools.pairwise(edges)]
    if n_jobs == 1:
        results = [share(*shares[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(n_jobs) as pool:
            results = pool.starmap(share, shares)
    totals = sum(result[0] for result in results)
    curve = RdpCurve(DEFAULT_ORDERS, totals.max(axis=(0, 1)))
    peak = sum(result[2] for result in results) + (peak_gib() if n_jobs > 1 else 0.0)
    return curve.epsilon(DELTA), sum(result[1] for result in results), peak


def share(place: Path, first: int, last: int, ballots: bool, n_jobs: int) -> tuple[np.ndarray, float, float]:
    """Return the sums over some parts, (2 directions, teachers or 1, orders), CPU seconds and peak GiB."""
    # Room for the process that waits for the others, where there are others.
    resource.setrlimit(resource.RLIMIT_AS, (int(LIMIT_GIB * 2**30 / (n_jobs + (n_jobs > 1))),) * 2)
    stored, done = stored_votes(place), 0
    n_queries = sum(stored.sizes[first:last])

    def progress(n: int) -> None:
        nonlocal done
        done += n
        show(f"accounted {done:,} of {n_queries:,}")

    start = time.process_time()
    with threadpool_limits(1):
        parts = stored.parts(first, last, ballots=ballots)
        if ballots:
            totals = teacher_costs_of_parts(MECHANISM, parts, progress=progress).reveal()
        else:
            cost = exact_cost_of_parts(MECHANISM, parts, progress=progress)
            totals = np.stack([way.reveal().values for way in (cost.forward, cost.reverse)])[:, None, :]
    return totals, time.process_time() - start, peak_gib()


def additions(votes: Votes) -> tuple[float, float]:
    """Return CPU seconds per query of adding up the costs of each teacher: plainly, and as done here."""
    assert votes.ballots is not None
    few = votes[:256]
    by_class = np.random.default_rng(SEED).random((2, len(few) * N_CLASSES, DEFAULT_ORDERS.size))
    columns = (np.arange(len(few)) * N_CLASSES + few.ballots).ravel()
    pointers = np.arange(votes.n_teachers + 1) * len(few)
    cast = csr_array((np.ones(columns.size), columns, pointers), shape=(votes.n_teachers, by_class.shape[1]))
    plain = cpu_seconds(lambda: [cast @ direction for direction in by_class]) / len(few)
    counts = Votes.from_counts(votes.counts, n_teachers=votes.n_teachers)
    both = cpu_seconds(lambda: exact_cost(MECHANISM, votes)) / len(votes)
    return plain, both - cpu_seconds(lambda: exact_cost(MECHANISM, counts)) / len(votes)


def cpu_seconds(work: Callable[[], object], *, repeat: int = 2) -> float:
    """Return the best CPU time of a few runs."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def show(words: str) -> None:
    """Say how far it is, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r{words:60}", end="", file=sys.stderr, flush=True)


def peak_gib() -> float:
    """Return the most memory that was resident at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


Row = tuple[str, str, float]  # what is done, on how much, and how many CPU seconds it took


def growing() -> Iterator[Row]:
    """Yield what takes how long: teachers, queries, classes, labels or the scale grow, and the rest stays."""
    price = GNMax(sigma=41.0).price(Unit())  # what is made once
    for n in (250, 1000, 5000):
        public = {"n_teachers": n, "n_classes": N_CLASSES}
        for asked in (GNMax(0.16 * n), ConfidentGNMax(0.16 * n, 0.8 * n, 0.6 * n)):
            seconds = cpu_seconds(partial(price_of, asked, Unit(), 1, **public), repeat=1)
            yield f"price, {type(asked).__name__}, first call", f"{n:,} teachers", seconds
    accountant = Accountant(Budget(epsilon=100.0, delta=1e-6))
    for n in (100, 10_000, 1_000_000):
        seconds = cpu_seconds(repeated(partial(accountant.affords, n * price, price), 500)) / 500
        yield "`affords`, Rényi rule", f"{n:,} queries before", seconds
    yield from clocks()
    exact_cost(GNMax(40.0), agreeing(250, N_CLASSES, 50))  # what is made once
    for n in (1000, 10_000, 100_000):
        votes = agreeing(250, N_CLASSES, n)
        seconds = cpu_seconds(partial(exact_cost, GNMax(40.0), votes), repeat=1)
        yield "exact, GNMax", f"{n:,} queries", seconds
    for n in (250, 1000, 5000):
        votes = agreeing(n, N_CLASSES, 1000)
        seconds = cpu_seconds(partial(exact_cost, GNMax(0.16 * n), votes))
        yield "exact, GNMax, 1,000 queries", f"{n:,} teachers", seconds
    for n in (10, 30, 100):
        seconds = cpu_seconds(partial(exact_cost, GNMax(40.0), agreeing(250, n, 1000)))
        yield "exact, GNMax, 1,000 queries", f"{n} classes", seconds
    for n in (250, 1000, 5000):
        votes = agreeing(n, N_CLASSES, 1000)
        for asked in (GNMax(0.08 * n), ConfidentGNMax(0.16 * n, 0.8 * n, 0.6 * n)):
            seconds = cpu_seconds(partial(asked.envelope, votes, order=20.0), repeat=1)
            yield f"envelope to publish by, {type(asked).__name__}, 1,000 queries", f"{n:,} teachers", seconds
    for n in (20, 100, 500):
        rng = np.random.default_rng(SEED)
        ballots = (rng.random((50, 20, n)) < rng.beta(0.2, 3, (20, n))).astype(np.int64)
        told = LabelVotes.from_ballots(ballots, n_labels=n)
        seconds = (
            cpu_seconds(partial(exact_cost, Tau(sigma=10.0, n_labels=n, max_norm=2.0), told), repeat=1) / 20
        )
        yield "exact, Tau, a query of 50 teachers", f"{n} labels", seconds
    draw = secure().discrete_gaussian
    for sigma in (4, 40, 400, 2000):
        seconds = cpu_seconds(partial(draw, sigma, 1), repeat=1)
        yield "secure noise, table and first draw", f"sigma {sigma:,}", seconds
    for sigma in (4, 40, 400, 2000, 4000):
        seconds = cpu_seconds(partial(draw, sigma, 200_000)) / 200_000
        yield "secure noise, one of 200,000 draws", f"sigma {sigma:,}", seconds


def clocks() -> Iterator[Row]:
    """Yield what tables of a clock take: worked out once, read from disk later, and asked."""
    sizes: list[tuple[str, Any, dict[str, int]]] = []
    for n in (250, 1000, 5000):
        known = {"n_teachers": n, "n_classes": N_CLASSES}
        sizes += [(f"{n:,} teachers", each, known)
                  for each in (GNMax(0.16 * n), LNMax(12.5 / n), ConfidentGNMax(0.16 * n, 0.8 * n, 0.6 * n),
                               ConfidentBinary(0.16 * n, 1, 0.8 * n, 0.6 * n))]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TELLERS_CACHE"] = folder
        items = [(size, each, itemised(price_of(each, Unit(), **known)).terms[0][1])
                 for size, each, known in sizes]  # fmt: skip
        for words in ("worked out", "read from disk"):
            for size, each, item in items:
                kept.cache_clear()
                seconds = cpu_seconds(partial(item.table, 1e-12), repeat=1)
                yield f"table of a clock, {type(each).__name__}, {words}", size, seconds
        accountant = Accountant.by("clock", Budget(epsilon=100.0, delta=1e-6))
        one = items[0][2].price()
        for n in (100, 10_000):
            debit = accountant.debit(RdpCurve.zero(), n * one)
            assert debit is not None
            before = Price(one.orders, (n * one).values, (), debit.ticks, debit.events)
            seconds = cpu_seconds(repeated(partial(accountant.affords, before, one), 500)) / 500
            yield "`affords`, clock", f"{n:,} queries before", seconds
        del os.environ["TELLERS_CACHE"]


def repeated(work: Callable[[], object], n: int) -> Callable[[], object]:
    """Return what does the work n times."""
    return lambda: [work() for _ in range(n)]


def agreeing(n_teachers: int, n_classes: int, n_queries: int) -> Votes:
    """Return made-up votes with the planner's consensus."""
    return Consensus().votes(n_teachers, n_classes, n_queries=n_queries, seed=SEED)[0]


def growth(place: Path) -> None:
    """Write a table of what grows how, by kind of work; the last column is the ratio to the row before."""
    by_work: dict[str, list[tuple[str, float]]] = {}
    for work, size, seconds in growing():
        show(f"{work}, {size}")
        # Sizes of another kind (classes after teachers) begin anew.
        by_work.setdefault(f"{work}|{size.split()[-1] if size[0].isdigit() else ''}", []).append(
            (size, seconds)
        )
    lines = ["| what | of | CPU time | times the row before |", "|---|---|---|---|"]
    for work, rows in by_work.items():
        for i, (size, seconds) in enumerate(rows):
            ratio = f"{seconds / rows[i - 1][1]:.1f}" if i else ""
            lines.append(f"| {'' if i else work.split('|')[0]} | {size} | {readable(seconds)} | {ratio} |")
    lines += [
        "",
        f"{platform.machine()}, {os.cpu_count()} cores with other work, one thread, seed {SEED}, Python ",
    ]
    lines[-1] += f"{platform.python_version()}, NumPy {np.__version__}."
    place.write_text("\n".join(lines) + "\n")
    print(place.read_text())


def readable(seconds: float) -> str:
    """Return a time in the unit that fits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def main() -> None:
    """Print one line per step, and fail beyond the limits where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="10,000 teachers x 1,000,000 queries")
    parser.add_argument("--queries", type=int, help="another number of queries")
    parser.add_argument("--teachers", type=int, default=N_TEACHERS)
    parser.add_argument(
        "--folder", type=Path, help="where the votes go and stay, or are already; else a temporary one"
    )
    parser.add_argument(
        "--counts", action="store_true", help="keep tallies alone, and account in total alone"
    )
    parser.add_argument("--only", choices=["both", "total", "teachers"], default="both", help="which costs")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the accounting")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    parser.add_argument(
        "--growth", type=Path, metavar="FILE", help="write a table of how costs grow, and stop"
    )
    args = parser.parse_args()
    if args.growth:
        growth(args.growth)
        return
    n_queries = args.queries or (1_000_000 if args.full else 4 * PART)
    resource.setrlimit(resource.RLIMIT_AS, (int(LIMIT_GIB * 2**30),) * 2)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{args.teachers:,} teachers x {n_queries:,} queries, {N_CLASSES} classes, {MECHANISM}, "
        f"{DEFAULT_ORDERS.size} orders, seed {SEED}; {platform.machine()}, {os.cpu_count()} cores, one "
        f"thread, load {load}, Python {platform.python_version()}, NumPy {np.__version__}; "
        f"address space limited to {LIMIT_GIB:g} GiB"
    )
    with contextlib.ExitStack() as after:
        place = args.folder
        if place is None:
            place = Path(tempfile.mkdtemp()) / "votes"
            after.callback(shutil.rmtree, place.parent)
        if not (place / "votes.json").exists():
            written(place, n_queries, args.teachers, ballots=not args.counts)
        stored = stored_votes(place)
        kinds = {"both": (False, True), "total": (False,), "teachers": (True,)}[args.only]
        missed = [
            measured(stored, ballots, args.jobs) for ballots in kinds if stored.has_ballots or not ballots
        ]
    if args.check and any(missed):
        sys.exit(1)


def written(place: Path, n_queries: int, n_teachers: int, *, ballots: bool) -> None:
    """Write the votes, and say how long that took."""
    writing, making = write(place, n_queries, n_teachers, ballots=ballots)
    size = sum(file.stat().st_size for file in place.iterdir())
    print(
        f"votes written         {n_queries / writing:9,.0f} queries / CPU s   {size / 2**20:,.1f} MiB on "
        f"disk, {making / writing:.1f} times as long to make them up; peak {peak_gib():.2f} GiB",
        flush=True,
    )


def measured(stored: StoredVotes, ballots: bool, n_jobs: int) -> bool:
    """Account in total or for each teacher, say how fast that was, and return whether a limit was missed."""
    first = next(stored.parts())
    for _ in query_costs(MECHANISM, first[:20]):
        pass  # tables of the noise are made once
    clock = time.perf_counter()
    epsilon, seconds, peak = accounted(stored.folder, ballots=ballots, n_jobs=n_jobs)
    clock = time.perf_counter() - clock
    rate = len(stored) / seconds
    print(
        f"{'exact, each teacher' if ballots else 'exact cost in total':21} {rate:9,.0f} queries / CPU s   "
        f"epsilon {epsilon:.4f} at delta {DELTA:g}; {seconds:,.0f} CPU s, {clock:,.0f} s; peak "
        f"{peak:.2f} GiB",
        flush=True,
    )
    if ballots:
        plain, ours = (each * len(stored) for each in additions(first))
        n = 2.0 * stored.n_teachers * len(stored) * DEFAULT_ORDERS.size
        print(
            f"  its {n:.1e} additions alone: {plain:,.0f} CPU s plainly, {ours:,.0f} as done here, ratio "
            f"{plain / ours:.1f} (from one part)"
        )
        return peak > LIMIT_GIB
    price = (MECHANISM.price(first.unit) * len(stored)).epsilon(DELTA)
    print(f"whatever the votes    epsilon {price:.4f}, {price / epsilon:.2f} times as much")
    return rate < 1000 or peak > LIMIT_GIB


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
