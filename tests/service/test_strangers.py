"""Slow and hostile connections without a key, while others ask with one: no asker fails or waits for long."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from tellers import Votes
from tellers.service import read_settings
from tellers.service._keys import KeyStore
from tellers.teachers import save_votes
from tellers.testing._ports import free_port

from .. import forked
from .strangers import KINDS

SOURCE = Path(__file__).resolve().parents[2] / "src"
N_ASKERS = 16
FEW = "silent,refused,wrong keys"
SETTINGS = """\
[data]
source = "votes"
path = "votes.npz"
n_classes = 10
[mechanism]
name = "gnmax"
sigma = 2000.0
[ledger]
url = "ledger.db"
epsilon = 8.0
delta = 1e-5
[limits]
requests_per_minute = 0
{limits}
[server]
port = {port}
log_level = "error"
"""


class Server:
    def __init__(self, folder, *, limits="", start=forked.Popen):
        ballots = np.random.default_rng(7).integers(10, size=(250, 100))
        save_votes(folder / "votes.npz", Votes.from_ballots(ballots, n_classes=10))
        self.port = free_port()
        (folder / "service.toml").write_text(SETTINGS.format(port=self.port, limits=limits))
        settings = read_settings(folder / "service.toml")
        store = KeyStore(settings.place(settings.keys.store))
        self.keys = "\n".join(store.create(f"asker-{k}", "student")[0] for k in range(N_ASKERS))
        store.close()
        self.process = start(
            [sys.executable, "-m", "tellers", "serve", "--config", "service.toml"], cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/v1/health")
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the service did not start")

    @property
    def memory(self):
        """Return the MB that are resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def n_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, seconds, *, every=0.25, n=N_ASKERS):
        return begun("askers", self.port, n, every, seconds, said=self.keys)


def begun(role, *words, said=""):
    process = forked.Popen(
        [sys.executable, str(Path(__file__).with_name("strangers.py")), role, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdin.write(said)
    process.stdin.close()
    return process


def told_by(process):
    said = process.stdout.read()
    assert process.wait(60) == 0
    return json.loads(said)


@contextmanager
def served(folder, **options):
    server = Server(folder, **options)
    try:
        yield server
    finally:
        server.process.terminate()
        assert server.process.wait(40) in (0, -signal.SIGTERM)


pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks at /proc, and at many loopback addresses"
)


def test_strangers_of_all_kinds_at_once_shut_nobody_out(tmp_path):
    with served(tmp_path, limits="max_connections = 60") as server:
        before = server.memory
        # Fewer descriptors than it knows of, so that they run out and it has to find that out.
        few = server.n_files + 50
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (few, few))
        hostile = begun("strangers", server.port, "all", 15, 100, 2)
        told = told_by(server.ask(2, n=4))
        assert told["failed"] == told["health_failed"] == []
        assert len(told["times"]) > 8
        assert server.memory < before + 150
        told_by(hostile)


# Strangers who come each second; they share two cores with the service and with those who ask. Those who are
# given something to answer cost it about a millisecond each, and are answered until they have no more to say.
PACE = 400
PACES = dict.fromkeys(["form", "reads nothing", "pipeline", "wrong keys", "half-close"], 100)
NOTICED = 100.0  # milliseconds: twice as much may be what else the machine does, on two cores


@pytest.mark.campaign
def test_many_strangers_of_each_kind(tmp_path):
    """Some kinds and numbers here; all of them with STRANGERS=2000 and STRANGER_KINDS=all."""
    n, kinds = int(os.environ.get("STRANGERS", "500")), os.environ.get("STRANGER_KINDS", FEW)
    kinds = ",".join(KINDS) if kinds == "all" else kinds
    with served(tmp_path, start=subprocess.Popen) as server:
        told_by(server.ask(3))
        slow = dict.fromkeys(kinds.split(","), 0.0)
        for _ in range(3):  # whatever else the machine does
            for kind in slow:
                pace = PACES.get(kind, PACE)
                seconds = n / pace + 2
                alone = max(NOTICED, watched(server, seconds))
                slow[kind] = watched(server, seconds, server.port, kind, n, pace, seconds) / alone
            slow = {kind: ratio for kind, ratio in slow.items() if ratio > 2}
        assert not slow


def watched(server, seconds, *hostile):
    """Let all ask, with strangers or without; return the 99th percentile, where all was well."""
    before, used, begin = server.memory, server.cpu, time.monotonic()
    others, asking = begun("strangers", *hostile) if hostile else None, server.ask(seconds)
    memory = n_files = 0
    while asking.poll() is None and time.monotonic() < begin + 2 * seconds + 20:
        memory, n_files = max(memory, server.memory), max(n_files, server.n_files)
        time.sleep(0.2)
    load, told = (server.cpu - used) / (time.monotonic() - begin), told_by(asking)
    theirs = told_by(others)["cpu"] / seconds if others else 0.0
    p50, p99 = np.percentile(told["times"], [50, 99]) * 1000
    kind, pace = (hostile[1], hostile[3]) if hostile else ("alone", 0)
    print(
        f"{kind:14} {pace:3}/s: {len(told['times'])} answers, p50 {p50:.1f} ms, p99 {p99:.1f} ms, failed "
        f"{len(told['failed'])}; health longest {1000 * max(told['health_times']):.0f} ms, failed "
        f"{len(told['health_failed'])}; {memory:.0f} MB, {n_files} files; cores: service {load:.2f}, "
        f"strangers {theirs:.2f}", flush=True,
    )  # fmt: skip
    assert told["failed"] == told["health_failed"] == [], kind
    assert memory <= before + 150, kind
    return p99
