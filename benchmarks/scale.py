"""Votes of many teachers on many queries: written in parts, and accounted for in parts, within 2 GiB.

    python benchmarks/scale.py            10,000 teachers x 4,096 queries, some seconds
    python benchmarks/scale.py --full     10,000 teachers x 1,000,000 queries: 10 GB on disk, half an hour
    python benchmarks/scale.py --check    exit 1 under 1,000 queries per second, or over the limit of memory

Ballots are made up (seed 7, 10 classes, the planner's consensus), GNMax with sigma 400, about 100 orders, one
thread. The address space of the process is limited to 2 GiB before the first vote: past that it fails. CPU
seconds are printed, as queries per second. For the costs of each teacher the additions are also timed by
themselves, on one part, beside a plain sum over all ballots.
"""

import argparse
import contextlib
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from tellers import GNMax, Votes
from tellers.exact import exact_cost, exact_cost_of_parts, query_costs
from tellers.rdp import DEFAULT_ORDERS
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


def accounted(stored: StoredVotes, *, ballots: bool) -> tuple[float, float, float]:
    """Return (exact epsilon, CPU seconds, seconds) of all votes, in total or for each teacher."""
    done = 0

    def progress(n: int) -> None:
        nonlocal done
        done += n
        show(f"accounted {done:,} of {len(stored):,}")

    start, clock = time.process_time(), time.perf_counter()
    cost = exact_cost_of_parts(MECHANISM, stored.parts(ballots=ballots), progress=progress)
    seconds = time.process_time() - start, time.perf_counter() - clock
    return cost.cost.reveal().epsilon(DELTA), *seconds


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


def main() -> None:
    """Print one line per step, and fail beyond the limits where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="10,000 teachers x 1,000,000 queries")
    parser.add_argument("--queries", type=int, help="another number of queries")
    parser.add_argument("--teachers", type=int, default=N_TEACHERS)
    parser.add_argument(
        "--folder", type=Path, help="where the votes go, and stay; a temporary folder if left out"
    )
    parser.add_argument(
        "--counts", action="store_true", help="keep tallies alone, and account in total alone"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    args = parser.parse_args()
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
        rate = measure(place, n_queries, args.teachers, counts_alone=args.counts)
    print(f"peak resident memory {peak_gib():.2f} GiB")
    if args.check and (rate < 1000 or peak_gib() > LIMIT_GIB):
        sys.exit(1)


def measure(place: Path, n_queries: int, n_teachers: int, *, counts_alone: bool) -> float:
    """Write, account in total and for each teacher; return queries per second of the exact cost in total."""
    writing, making = write(place, n_queries, n_teachers, ballots=not counts_alone)
    size = sum(file.stat().st_size for file in place.iterdir())
    print(
        f"votes written         {n_queries / writing:9,.0f} queries / CPU s   {size / 2**20:,.1f} MiB on "
        f"disk, {making / writing:.1f} times as long to make them up; peak so far {peak_gib():.2f} GiB",
        flush=True,
    )
    stored = stored_votes(place)
    first = next(stored.parts())
    for _ in query_costs(MECHANISM, first[:20]):
        pass  # tables of the noise are made once
    epsilon, seconds, clock = accounted(stored, ballots=False)
    rate = n_queries / seconds
    print(
        f"exact cost in total   {rate:9,.0f} queries / CPU s   epsilon {epsilon:.4f} at delta {DELTA:g}, "
        f"made-up votes; {clock:,.0f} s; peak so far {peak_gib():.2f} GiB",
        flush=True,
    )
    price = (MECHANISM.price(first.unit) * n_queries).epsilon(DELTA)
    print(
        f"whatever the votes                                epsilon {price:.4f}, {price / epsilon:.2f} times"
    )
    if counts_alone:
        return rate
    epsilon, seconds, clock = accounted(stored, ballots=True)
    print(
        f"exact, each teacher   {n_queries / seconds:9,.0f} queries / CPU s   epsilon {epsilon:.4f}; "
        f"{clock:,.0f} s; peak so far {peak_gib():.2f} GiB"
    )
    plain, ours = additions(first)
    n = 2.0 * n_teachers * n_queries * DEFAULT_ORDERS.size
    print(
        f"  its {n:.1e} additions alone: {plain * n_queries:,.0f} CPU s plainly, {ours * n_queries:,.0f} "
        f"as done here, ratio {plain / ours:.1f} (from one part)"
    )
    return rate


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
