"""How many answers a service gives in a second, and how long one takes: python benchmarks/service.py [URL]

A server in a process of its own, over a vote file and a ledger (SQLite, or that of the URL) that flushes to
the disk twice per answer, asked by one client and by sixteen at once. The clients are on the same machine
and take their share.
"""

import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from tellers import Votes
from tellers.client import Client
from tellers.service import read_settings
from tellers.service.keys import KeyStore
from tellers.teachers.store import save_votes

SETTINGS = """\
[data]
source = "votes"
path = "votes.npz"
n_classes = 10
[mechanism]
name = "gnmax"
sigma = 2000.0
[ledger]
url = "{ledger}"
epsilon = 8.0
delta = 1e-5
[limits]
requests_per_minute = 0
[server]
port = {port}
log_level = "warning"
"""


def measure(url: str, keys: list[str], *, seconds: float, batch: int) -> None:
    times: list[float] = []
    end = time.perf_counter() + seconds

    def work(key: str) -> None:
        own = []
        with Client(url, key, retries=0) as client:
            client.ask(pool=[0])  # the first time a key is hashed
            while time.perf_counter() < end:
                start = time.perf_counter()
                client.ask(pool=list(range(batch)))
                own.append(time.perf_counter() - start)
        times.extend(own)

    threads = [threading.Thread(target=work, args=(key,)) for key in keys]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    print(
        f"{len(keys):3d} clients, {batch:3d} queries each: {len(times) / took:6.1f} answers/s, "
        f"p50 {p50:6.1f} ms, p99 {p99:6.1f} ms"
    )


def main(ledger: str = "ledger.db") -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ballots = np.random.default_rng(7).integers(10, size=(250, 1000))
        save_votes(folder / "votes.npz", Votes.from_ballots(ballots, n_classes=10))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        (folder / "service.toml").write_text(SETTINGS.format(port=port, ledger=ledger))
        settings = read_settings(folder / "service.toml")
        store = KeyStore(settings.place(settings.keys.store))
        keys = [store.create(f"student-{number}", "student")[0] for number in range(16)]
        store.close()
        server = subprocess.Popen(
            [sys.executable, "-m", "tellers", "serve", "--config", str(folder / "service.toml")]
        )
        try:
            url = settings.server.address
            for _ in range(200):
                try:
                    httpx.get(f"{url}/v1/health")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            for n_clients in (1, 16):
                for batch in (1, 100):
                    measure(url, keys[:n_clients], seconds=6.0, batch=batch)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:2])
