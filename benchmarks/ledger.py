"""How a ledger grows: python benchmarks/ledger.py [--most 1000000] [--backend sqlite] [--folder DIR]

One ledger is filled by the real code, two flushed lines for each question, from many threads, and looked at
each time that it is ten times as long: bytes for each question; in a process of its own how long it takes to
open and how much memory that process has then; how long one more answer takes, by one thread and in groups;
how long it takes to find an answer and to list a page. `--alone` asks for some seconds with 1 and with 64
threads, on a new ledger: to compare versions, set PYTHONPATH to the sources of another.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tellers import Accountant, Budget, Cost, GNMax, Release, Unit, describe, noise, open_ledger

MECHANISM = GNMax(sigma=20_000.0)
ACCOUNTANT = Accountant(Budget(epsilon=8.0, delta=1e-5))
N_THREADS = 256


def asker(ledger: Any) -> Callable[[str], object]:
    """Return what asks one question of a ledger, and settles it."""
    price = MECHANISM.price(Unit())
    event = {**describe(MECHANISM, noise.secure()), "n_queries": 1, "queries": "a" * 64}
    release = Release(np.array([3]), Cost(price))
    return lambda key: ledger.settle(ledger.reserve(key, price, event=event), release)


def fill(ledger: Any, first: int, n: int) -> tuple[float, float]:
    """Ask until a ledger has n questions, and return seconds and CPU seconds for each that was asked."""
    ask, numbers = asker(ledger), iter(range(first, n))
    clock, cpu = time.perf_counter(), time.process_time()

    def work() -> None:
        for number in numbers:  # a range hands each number to one thread
            ask(f"q{number:08d}")

    threads = [threading.Thread(target=work) for _ in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = max(1, n - first)
    return (time.perf_counter() - clock) / asked, (time.process_time() - cpu) / asked


def typical(act: Callable[[], object], n: int = 100) -> float:
    """Return the median of the milliseconds that something takes."""
    times = []
    for _ in range(n):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def resident() -> float:
    """Return the most memory that this process had so far, in MB."""
    (said,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(said.split()[1]) / 1024


def look(where: str) -> None:
    """Open a ledger, and say how long that took, with how much memory, and what it takes to use it."""
    before = resident()
    start, cpu = time.perf_counter(), time.process_time()
    ledger = open_ledger(where, ACCOUNTANT, timeout=60)
    spent = ledger.spent
    told: dict[str, float] = {"open s": time.perf_counter() - start, "open cpu s": time.process_time() - cpu}
    assert spent.values.any()
    told["RSS MB"] = resident()
    told["of it imports"] = before
    n, ask, more = ledger.count(), asker(ledger), itertools.count()
    cpu = time.process_time()
    told["alone ms"] = typical(lambda: ask(f"{os.getpid()}-{next(more)}"))
    told["alone cpu ms"] = 10 * (time.process_time() - cpu)
    keys = iter(np.random.default_rng(7).integers(n, size=100).tolist())
    told["find ms"] = typical(lambda: ledger.find(f"q{next(keys):08d}"))
    told["first page ms"] = typical(lambda: ledger.entries(after=n - 20, limit=20), 1)
    told["page ms"] = typical(lambda: ledger.entries(after=n - 20, limit=20), 20)
    told["listed RSS MB"] = resident()
    print(json.dumps(told))
    ledger.close()


def grow(where: str, size: Callable[[], int], most: int) -> None:
    """Print a row for each size."""
    headings: list[str] = []
    at = n = 0
    for n in (10**k for k in range(3, 10) if 10**k <= most):
        with open_ledger(where, ACCOUNTANT, timeout=60) as ledger:
            group, cpu = fill(ledger, at, n)
        done = subprocess.run(
            [sys.executable, __file__, "--look", where], capture_output=True, text=True, check=True
        )
        row = {"questions": n, "bytes each": size() / n, "group ms": 1000 * group, "group cpu ms": 1000 * cpu}
        row |= json.loads(done.stdout)
        if not headings:
            headings = list(row)
            print("| " + " | ".join(headings) + " |\n|" + "---|" * len(headings))
        print("| " + " | ".join(f"{row[name]:,.4g}" if row[name] < 1e4 else f"{row[name]:,.0f}"
                                for name in headings) + " |", flush=True)  # fmt: skip
        at = n


def alone(where: str, seconds: float) -> None:
    """Ask with one thread and with 64, and print how many answers that was."""
    for n in (1, 64):
        ledger = open_ledger(f"{where}-{n}", ACCOUNTANT, timeout=60)
        ask, numbers = asker(ledger), itertools.count()
        until, cpu = time.perf_counter() + seconds, time.process_time()

        def work(ask=ask, numbers=numbers, until=until) -> None:
            while time.perf_counter() < until:
                ask(f"q{next(numbers)}")

        threads = [threading.Thread(target=work) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asked = next(numbers)
        print(
            f"{n:3d} threads: {asked / seconds:7.0f} answers/s, "
            f"{1000 * (time.process_time() - cpu) / asked:.2f} ms CPU each"
        )
        ledger.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--look", help=argparse.SUPPRESS)
    parser.add_argument("--alone", type=float, metavar="SECONDS")
    given = parser.parse_args()
    if given.look:
        look(given.look)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        path = folder / "ledger.db"
        if given.alone:
            alone(str(path), given.alone)
        elif given.backend == "sqlite":
            grow(
                str(path), lambda: sum(each.stat().st_size for each in folder.glob("ledger.db*")), given.most
            )
        else:
            from service import cluster

            from tellers.ledger.sql import migrate

            server = cluster()
            try:
                migrate(server.url())
                table = "SELECT pg_total_relation_size('tellers_lines')"
                grow(server.url(), lambda: server.sql(table)[0][0], given.most)
            finally:
                server.remove()


if __name__ == "__main__":
    main()
