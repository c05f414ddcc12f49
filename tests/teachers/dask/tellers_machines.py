"""Real processes for tests: a scheduler and workers that can be killed."""

import os
import signal
import sys
import time
from pathlib import Path

from tellers.testing._ports import free_port

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"


class Machines:
    """A scheduler and workers without nannies: a killed one stays dead until the test starts another.

    `popen` starts them, as `subprocess.Popen` does.
    """

    def __init__(self, folder, *, popen, arguments=(), scheme="tcp", host="127.0.0.1", settings=None):
        self.folder, self.popen = Path(folder), popen
        self.folder.mkdir(parents=True, exist_ok=True)
        self.arguments = list(arguments)
        self.scheme = scheme
        self.settings = settings or {}
        self.host = host
        self.port = free_port()
        self.address = f"{scheme}://{host}:{self.port}"
        self.scheduler = None
        self.workers = {}

    def start_scheduler(self):
        words = [
            "--host",
            f"{self.scheme}://{self.host}",
            "--port",
            str(self.port),
            "--no-dashboard",
            "--no-show",
        ]
        self.scheduler = self.launch("scheduler", [*words, *self.arguments])

    def start_worker(self, name, *, threads=1, resources="", prefix=(), address=None, words=()):
        given = [address or self.address, "--nthreads", str(threads), "--no-nanny", "--no-dashboard"]
        given += ["--name", name, "--memory-limit", "0", "--local-directory", str(self.folder / name)]
        given += ["--resources", resources] if resources else []
        started = self.launch("worker", [*given, *self.arguments, *words], prefix=prefix, name=name)
        self.workers[name] = started
        return started

    def launch(self, kind, words, *, prefix=(), name="scheduler"):
        path = os.pathsep.join([str(SOURCE), str(HERE)])
        around = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **self.settings}
        log = (self.folder / f"{name}.log").open("ab")
        return self.popen(
            [*prefix, sys.executable, "-m", f"distributed.cli.dask_{kind}", *words],
            env=around, stdout=log, stderr=log, cwd=self.folder,
        )  # fmt: skip

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        for started in self.workers.values():
            if started.pid == pid:
                started.wait(timeout=30)

    def stop(self):
        running = [p for p in (*self.workers.values(), self.scheduler) if p is not None and p.poll() is None]
        for process in running:
            process.kill()
        for process in running:
            process.wait(timeout=30)


def wait_until(true, *, seconds=60, what="it"):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} took more than {seconds} seconds"
        time.sleep(0.02)
