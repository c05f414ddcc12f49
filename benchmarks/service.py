"""Answers per second, how long one takes, and what it costs: python benchmarks/service.py [--backend sqlite]

A server in a process of its own, over a vote file and a ledger that flushes to the disk: in a SQLite file,
and in a PostgreSQL server that is started for this and removed. It is asked for one row at a time by one
client, by sixteen and by sixty-four at once, who take little of the two cores; then the ledger alone, by
threads. Beside it stands the floor: as many writers that insert one row each and flush, and nothing else.

`--against SRC` measures the sources in another folder in the same run, as `git worktree add ../old REV` and
`--against ../old/src`. CPU is that of the server's processes, per request, user and system.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tellers import Votes
from tellers.teachers import save_votes
from tellers.testing._ports import free_port

SEED = 7
SIGMA, EPSILON, DELTA = 2000.0, 8.0, 1e-5
SOURCES = Path(__file__).resolve().parents[1] / "src"
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
requests_per_minute = 1000000
[server]
port = {port}
log_level = "warning"
"""
KEYS = """
import json, sys
from tellers.service._keys import KeyStore
store = KeyStore(sys.argv[1])
print(json.dumps([store.create(f"student-{n}", "student")[0] for n in range(64)]))
"""
ALONE = """
import os, sys, threading, time
from tellers import Accountant, Budget, Cost, GNMax, Release, Unit, describe, noise
from tellers.ledger import open_ledger
where, n_threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
mechanism, source = GNMax({sigma}), noise.secure()
ledger = open_ledger(where, Accountant(Budget({epsilon}, {delta})), timeout=60.0)
price = mechanism.price(Unit())
event = {{**describe(mechanism, source), "n_queries": 1, "queries": "0" * 64, "unit": "one ballot"}}
release, done = Release([3], Cost(price)), []
def work():
    n = 0
    while time.perf_counter() < until:
        ledger.settle(ledger.reserve(os.urandom(8).hex(), price, event=event), release)
        n += 1
    done.append(n)
cpu, until = time.process_time(), time.perf_counter() + seconds
threads = [threading.Thread(target=work) for _ in range(n_threads)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(done), time.process_time() - cpu)
"""


def python(sources: Path, *words: str) -> str:
    """Return what a program of these sources says."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=True
    ).stdout


class Asking(asyncio.Protocol):
    """One client: asks the next question as soon as it has the answer of the last one."""

    def __init__(self, key: str, until: float, times: list[float], done: Callable[[], None]) -> None:
        self.key, self.until, self.times, self.done = key, until, times, done
        self.begun, self.n, self.answer = 0.0, 0, bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        body = json.dumps({"idempotency_key": os.urandom(8).hex(), "pool": [self.n % 1000]})
        head = (
            "POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.begun = time.perf_counter()
        self.transport.write((head + body).encode())

    def data_received(self, data: bytes) -> None:
        self.answer += data
        head, found, body = self.answer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not found or len(body) < int(length):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"Expected an answer, got {bytes(self.answer[:300])!r}.")
        now = time.perf_counter()
        self.times.append(now - self.begun)
        self.answer.clear()
        self.n += 1
        if now < self.until:
            self.ask()
        else:
            self.transport.close()
            self.done()


async def crowd(port: int, keys: list[str], seconds: float) -> list[float]:
    """Return how long every answer took, with as many clients as keys."""
    loop, times = asyncio.get_running_loop(), list[float]()
    left, over = len(keys), asyncio.Event()

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    until = time.perf_counter() + seconds
    for key in keys:
        await loop.create_connection(lambda key=key: Asking(key, until, times, done), "127.0.0.1", port)
    await over.wait()
    return times


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process and of its children."""
    spent = 0.0
    for pid in [process, *map(int, children(process))]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def children(process: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return []


@contextlib.contextmanager
def served(sources: Path, folder: Path, ledger: str, workers: int) -> Iterator[tuple[int, int, list[str]]]:
    """Serve with some sources, and give process, port and keys."""
    port = free_port()
    text = SETTINGS.format(port=port, ledger=ledger, sigma=SIGMA, epsilon=EPSILON, delta=DELTA)
    (folder / "service.toml").write_text(text + (f"workers = {workers}\n" if workers > 1 else ""))
    keys = json.loads(python(sources, "-c", KEYS, str(folder / "keys.db")))
    server = subprocess.Popen(
        [sys.executable, "-m", "tellers", "serve", "--config", str(folder / "service.toml")],
        env={**os.environ, "PYTHONPATH": str(sources)},
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                import socket

                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        time.sleep(0.5 * workers)
        yield server.pid, port, keys
    finally:
        server.terminate()
        server.wait()


def measure(name: str, sources: Path, ledger: str, seconds: float, workers: int) -> dict[str, float]:
    """Print and return the answers per second of the service and of the ledger alone."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ballots = np.random.default_rng(SEED).integers(10, size=(250, 1000))
        save_votes(folder / "votes.npz", Votes.from_ballots(ballots, n_classes=10))
        with served(sources, folder, ledger, workers) as (process, port, keys):
            asyncio.run(crowd(port, keys, 1.0))  # connections are opened, and keys hashed, the first time
            for n_clients in (1, 16, 64):
                before = cpu_of(process)
                times = asyncio.run(crowd(port, keys[:n_clients], seconds))
                cpu = 1000 * (cpu_of(process) - before) / len(times)
                p50, p99, most = np.percentile(times, [50, 99, 100]) * 1000
                found[f"{n_clients} clients"] = len(times) / seconds
                print(
                    f"  {name:12s} {n_clients:3d} clients {len(times) / seconds:8.1f} answers/s, "
                    f"CPU {cpu:5.2f} ms, p50 {p50:7.1f}, p99 {p99:7.1f}, longest {most:7.1f} ms",
                    flush=True,
                )
        where = ledger if "://" in ledger else str(folder / "alone.db")
        script = ALONE.format(sigma=SIGMA, epsilon=EPSILON, delta=DELTA)
        for n_threads in (1, 16, 64):
            n, cpu = map(float, python(sources, "-c", script, where, str(n_threads), str(seconds)).split())
            found[f"{n_threads} threads"] = n / seconds
            print(
                f"  {name:12s} ledger alone, {n_threads:2d} threads {n / seconds:8.1f} answers/s, "
                f"CPU {1000 * cpu / n:5.2f} ms",
                flush=True,
            )
    return found


def floor(connect: Callable[[], Callable[[], None]], seconds: float) -> None:
    """Print how many rows per second writers insert that flush each of them, two for an answer."""
    for n_writers in (1, 16, 64):
        done: list[int] = []
        until = time.perf_counter() + seconds

        def work(until: float = until, done: list[int] = done) -> None:
            insert, n = connect(), 0
            while time.perf_counter() < until:
                insert()
                n += 1
            done.append(n)

        threads = [threading.Thread(target=work) for _ in range(n_writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(
            f"  floor        {n_writers:3d} writers {sum(done) / seconds / 2:8.1f} pairs of plain inserts/s"
        )


def sqlite_floor(folder: Path) -> Callable[[], Callable[[], None]]:
    def connect() -> Callable[[], None]:
        connection = sqlite3.connect(
            folder / "floor.db", timeout=60, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, body TEXT)")
        return lambda: connection.execute("INSERT INTO rows (body) VALUES (?)", ("x" * 300,)) and None

    return connect


def postgres_floor(url: str) -> Callable[[], Callable[[], None]]:
    import psycopg

    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain) as first:
        first.execute("CREATE TABLE floor (number serial PRIMARY KEY, body text)")

    def connect() -> Callable[[], None]:
        connection = psycopg.connect(plain, autocommit=True)
        return lambda: connection.execute("INSERT INTO floor (body) VALUES (%s)", ("x" * 300,)) and None

    return connect


def cluster() -> Any:
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
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--against", type=Path, help="sources of another version, measured first")
    given = parser.parse_args()
    print(f"{hardware()}; seed {SEED}; every commit flushed to the disk; {given.workers} worker(s)")
    versions = {"before": given.against.resolve()} if given.against else {}
    versions["now"] = SOURCES
    for backend in given.backend or ("sqlite", "postgresql"):
        print(backend)
        found: dict[str, dict[str, float]] = {}
        with contextlib.ExitStack() as stack:
            server = None
            if backend == "postgresql":
                server = cluster()
                stack.callback(server.remove)
                floor(postgres_floor(server.url()), given.seconds / 2)
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                floor(sqlite_floor(folder), given.seconds / 2)
            for name, sources in versions.items():
                ledger = "ledger.db"
                if server is not None:
                    ledger = server.url()
                    if name == "now" and "before" in versions:
                        server.sql("CREATE DATABASE now")
                        ledger = server.url("now")
                    python(
                        sources,
                        "-m",
                        "tellers",
                        "ledger",
                        "init",
                        ledger,
                        "--epsilon",
                        f"{EPSILON}",
                        "--delta",
                        f"{DELTA}",
                    )
                workers = given.workers if name == "now" else 1
                found[name] = measure(name, sources, ledger, given.seconds, workers)
        if "before" in found:
            print(
                "  now / before: "
                + ", ".join(f"{what} {n / found['before'][what]:.1f}" for what, n in found["now"].items())
            )


if __name__ == "__main__":
    main()
