"""Answers per second and how long one takes: python benchmarks/service.py [--backend sqlite] [--seconds 6]

A server in a process of its own, over a vote file and a ledger that flushes to the disk twice per answer: in
a SQLite file, and in a PostgreSQL server that is started for this and removed. It is asked by one client, by
sixteen and by sixty-four at once; then the ledger alone, by sixteen writers without a service. The clients
are on the same machine and take their share.
"""

import argparse
import contextlib
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np

from tellers import Accountant, Budget, GNMax, Votes, noise
from tellers.ledger import open_ledger
from tellers.runs import Room
from tellers.service import Client, read_settings
from tellers.service._keys import KeyStore
from tellers.teachers import VotedPool, save_votes
from tellers.testing._ports import free_port

SEED = 7
SIGMA, BUDGET = 2000.0, Budget(epsilon=8.0, delta=1e-5)
SETTINGS = """\
[data]
source = "votes"
path = "votes.npz"
n_classes = 10
[mechanism]
name = "gnmax"
sigma = {sigma}
[ledger]
url = "{ledger}"
epsilon = {epsilon}
delta = {delta}
[limits]
requests_per_minute = 0
[server]
port = {port}
log_level = "warning"
"""


def crowd(makers: list[Callable[[], Callable[[], object]]], seconds: float, what: str) -> None:
    """Let everybody ask as often as they can, and print how often and how long that was."""
    times: list[float] = []
    begun: list[float] = []
    ready = threading.Barrier(len(makers), action=lambda: begun.append(time.perf_counter()))

    def work(make: Callable[[], Callable[[], object]]) -> None:
        own, ask = [], make()
        ask()  # connections are opened, and keys hashed, the first time
        ready.wait()
        while time.perf_counter() < begun[0] + seconds:
            start = time.perf_counter()
            ask()
            own.append(time.perf_counter() - start)
        times.extend(own)

    threads = [threading.Thread(target=work, args=(make,)) for make in makers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun[0]
    p50, p99, most = np.percentile(times, [50, 99, 100]) * 1000
    print(
        f"  {what}: {len(times) / took:6.1f} answers/s, p50 {p50:6.1f} ms, p99 {p99:7.1f} ms, "
        f"longest {most:7.1f} ms",
        flush=True,
    )


@contextlib.contextmanager
def served(folder: Path, ledger: str, n_keys: int) -> Iterator[tuple[str, list[str]]]:
    """Serve, and give the address and keys."""
    port = free_port()
    (folder / "service.toml").write_text(
        SETTINGS.format(
            port=port, ledger=ledger, sigma=SIGMA, epsilon=BUDGET.epsilon, delta=BUDGET.delta
        )
    )  # fmt: skip
    settings = read_settings(folder / "service.toml")
    store = KeyStore(settings.place(settings.keys.store))
    keys = [store.create(f"student-{number}", "student")[0] for number in range(n_keys)]
    store.close()
    server = subprocess.Popen(
        [sys.executable, "-m", "tellers", "serve", "--config", str(folder / "service.toml")]
    )
    try:
        for _ in range(400):
            try:
                httpx.get(f"{settings.server.address}/v1/health")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield settings.server.address, keys
    finally:
        server.terminate()
        server.wait()


def measure(ledger: str, folder: Path, seconds: float) -> None:
    ballots = np.random.default_rng(SEED).integers(10, size=(250, 1000))
    votes = Votes.from_ballots(ballots, n_classes=10)
    save_votes(folder / "votes.npz", votes)

    def client(url: str, key: str, batch: int) -> Callable[[], object]:
        asking = Client(url, key, retries=0)
        return lambda: asking.ask(pool=list(range(batch)))

    with served(folder, ledger, 64) as (url, keys):
        for n_clients, batch in ((1, 1), (1, 100), (16, 1), (16, 100), (64, 1)):
            crowd(
                [lambda key=key, batch=batch: client(url, key, batch) for key in keys[:n_clients]],
                seconds, f"{n_clients:3d} clients, {batch:3d} queries each",
            )  # fmt: skip

    def writer() -> Callable[[], object]:
        where = ledger if "://" in ledger else folder / ledger
        room = Room(
            VotedPool(votes), GNMax(SIGMA), open_ledger(where, Accountant(BUDGET)), noise.secure()
        )  # fmt: skip
        return lambda: room.ask([0], key=os.urandom(8).hex())

    crowd([writer] * 16, seconds, " 16 writers without a service")


def cluster():
    path = Path(__file__).parents[1] / "tests" / "postgres.py"
    spec = importlib.util.spec_from_file_location("benchmark_postgres", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Cluster()


def hardware() -> str:
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    load = f", load {os.getloadavg()[0]:.1f} before it began" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} x {name}, {platform.system()}, Python {platform.python_version()}{load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), action="append")
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    print(f"{hardware()}; seed {SEED}; every commit flushed to the disk")
    for backend in given.backend or ("sqlite", "postgresql"):
        print(backend)
        with tempfile.TemporaryDirectory() as name:
            if backend == "sqlite":
                measure("ledger.db", Path(name), given.seconds)
                continue
            from tellers.ledger.sql import migrate

            server = cluster()
            try:
                migrate(server.url())
                measure(server.url(), Path(name), given.seconds)
            finally:
                server.remove()


if __name__ == "__main__":
    main()
