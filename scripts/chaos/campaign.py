"""The campaign: rounds of askers under load, faults among them, and a judge who looks at the ledger."""

import contextlib
import ctypes
import gc
import importlib.util
import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asking import ask_ground, keep_keys
from faults import FAULTS, Faults
from ground import Ground, make_ground, serve_ground, write_votes
from powerloss import Shim

# Children are forked from here, where everything is imported: a killed asker is back within milliseconds.
_FORK = multiprocessing.get_context("fork")
_N_CLERKS = 2
_TOO_LONG = 10.0  # seconds without a look
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    backend: str
    seed: int
    folder: Path
    kills: int = 0
    power_losses: int = 0
    seconds: float = 0.0
    n_askers: int = 16
    n_by_service: int = 8
    n_questions: int = 500
    pause: float = 0.25
    check_every: int = 10
    broken: str = ""
    faults: tuple[str, ...] = tuple(FAULTS)
    groups: str = "every other"


@dataclass
class Campaign:
    """One campaign against one backend."""

    plan: Plan
    shim: Shim | None
    counts: Counter[str] = field(default_factory=Counter)
    trouble: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    n_rounds: int = 0
    n_looks: int = 0
    n_ended: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    took: float = 0.0

    def run(self) -> None:
        """Run rounds until there were enough faults, the time is over, or something is wrong."""
        plan, begun = self.plan, time.monotonic()
        plan.folder.mkdir(parents=True, exist_ok=True)
        write_votes(plan.folder, (plan.n_askers + 1) // 2, plan.seed)
        self._judge = Judge()
        self._cluster = _start_cluster(self.shim) if plan.backend == "postgresql" else None
        self.faults = Faults(plan, random.Random(plan.seed), self.shim, self._cluster)
        self._until = time.monotonic() + plan.seconds if plan.seconds else float("inf")
        try:
            while not self._is_over() and not self.violations:
                self._round()
        finally:
            self._judge.close()
            if self._cluster is not None:
                shutil.copy(self._cluster.folder / "log", plan.folder / "postgresql.log")
                self._cluster.remove()
            self.took = time.monotonic() - begun

    def _is_over(self) -> bool:
        return self.faults.are_enough() or time.monotonic() > self._until

    def _round(self) -> None:
        plan = self.plan
        folder = plan.folder / f"round-{self.n_rounds}"
        (folder / "watched").mkdir(parents=True)
        where = str(folder / "watched" / "ledger.db")
        keys = str(folder / "watched" / "keys.db")
        if self._cluster is not None:
            where = keys = self._new_database()
        with_groups = plan.groups == "always" or (plan.groups != "never" and self.n_rounds % 2 == 1)
        self.n_rounds += 1
        ground = make_ground(
            folder, where, keys, n_askers=plan.n_askers, n_by_service=plan.n_by_service,
            n_questions=plan.n_questions, broken=plan.broken, with_groups=with_groups,
        )  # fmt: skip
        gc.freeze()  # a child that is forked does not copy what it never looks at
        crew = Crew(ground, plan, self.n_ended)
        self.faults.begin(ground, crew)
        crew.start()
        try:
            verdict = self._harm(ground)
        finally:
            self.faults.end()
            crew.stop()
        if not self.violations:
            verdict = self._look(ground)
        self.counts.update(verdict.get("counts", {}))
        self.trouble.update(verdict.get("trouble", {}))
        self.longest = max(self.longest, verdict.get("longest", 0.0))
        if self.violations:
            self._keep_lines(ground)
        else:
            shutil.rmtree(folder / "watched")
        n, n_kills = self.faults.done.total(), self.faults.n_kills
        kind, answers = " with groups" * with_groups, self.counts["acknowledged"]
        print(f"  {self.n_rounds} rounds, the last one{kind}: {n} faults, {n_kills} kills, {answers} answers")

    def _harm(self, ground: Ground) -> dict[str, Any]:
        """Do harm at random moments, and look at the ledger again and again, until the budget is gone."""
        verdict: dict[str, Any] = {}
        n_dry, since, looked = 0, 0, time.monotonic()
        while not self._is_over():
            time.sleep(self.faults.wait())
            self.violations += self.faults.strike()
            since += 1
            if since >= self.plan.check_every or time.monotonic() - looked > _TOO_LONG or self.violations:
                since = 0
                verdict = self._look(ground)
                looked = time.monotonic()
                if self.violations:
                    break
                n_dry += verdict["is_dry"]
                if n_dry > 1:  # the last ones were raced for, too
                    break
        return verdict

    def _look(self, ground: Ground) -> dict[str, Any]:
        self.n_looks += 1
        verdict = self._judge.look(ground.folder)
        self.violations += verdict["violations"]
        return verdict

    def _keep_lines(self, ground: Ground) -> None:
        """Write the lines of a database beside the notes, as evidence; a file is there itself."""
        if self._cluster is not None:
            name = ground.where.rpartition("/")[2]
            with (ground.folder / "lines.jsonl").open("w") as file, contextlib.suppress(Exception):
                for row in self._cluster.sql("SELECT * FROM tellers_lines ORDER BY number", name):
                    file.write(json.dumps(row, default=str) + "\n")

    def _new_database(self) -> str:
        from tellers.ledger.sql import migrate

        name = f"round_{self.n_rounds}"
        self._cluster.sql(f"CREATE DATABASE {name}")
        migrate(self._cluster.url(name))
        return self._cluster.url(name)


class Judge:
    """The judge, a program of its own that knows nothing of the package."""

    def __init__(self) -> None:
        place = Path(__file__).with_name("judging.py")
        self._process = subprocess.Popen(
            [sys.executable, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def look(self, folder: Path) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"folder": str(folder)}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError("The judge ended by itself; what it said stands above.")
        verdict: dict[str, Any] = json.loads(line)
        return verdict

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Crew:
    """The askers of a round, the clerks and their service; whoever is killed is replaced."""

    def __init__(self, ground: Ground, plan: Plan, ended: Counter[str]) -> None:
        self.ground, self.plan, self.ended = ground, plan, ended
        self.clients: dict[int, Any] = {}
        self.server: Any = None
        self._life = 0
        # Half of those without a service share a process and its ledger; the others are alone.
        alone = list(range(plan.n_by_service, plan.n_askers))
        half = len(alone) // 2
        teams = [[number] for number in range(plan.n_by_service)]
        self._teams = teams + ([alone[:half]] if half else []) + [[number] for number in alone[half:]]

    @property
    def n_clients(self) -> int:
        return len(self._teams) + _N_CLERKS

    def start(self) -> None:
        if self.plan.n_by_service:
            self._start_server()
        for number in range(self.n_clients):
            self._start_client(number)

    def tend(self) -> None:
        """Replace who ended without being killed: a service that found no database, for one."""
        if self.server is not None and not self.server.is_alive():
            self.ended["server"] += 1
            self._start_server()
        for number, client in self.clients.items():
            if not client.is_alive():
                self.ended["client"] += 1
                self._start_client(number)

    def kill_client(self, number: int) -> None:
        _end(self.clients[number])
        self._start_client(number)

    def kill_server(self) -> None:
        _end(self.server)
        self._start_server()

    def kill_all(self) -> None:
        everyone = [*self.clients.values(), *([self.server] if self.server else [])]
        for process in everyone:
            process.kill()
        for process in everyone:
            process.join()

    def stop(self) -> None:
        """Let everybody finish what they are at; who cannot is ended."""
        (self.ground.folder / "stop").touch()
        until = time.monotonic() + 40
        for client in self.clients.values():
            client.join(max(0.0, until - time.monotonic()))
            if client.is_alive():
                self.ended["client that did not stop"] += 1
                _end(client)
        if self.server is not None:
            self.server.terminate()
            self.server.join(20)
            _end(self.server)

    def _start_server(self) -> None:
        self._life += 1
        self.server = _FORK.Process(target=_child, args=(serve_ground, self.ground, self._life))
        self.server.start()

    def _start_client(self, number: int) -> None:
        self._life += 1
        at = number - len(self._teams)
        if at < 0:
            how, who = ask_ground, self._teams[number]
        else:
            how, who = keep_keys, at
        client = _FORK.Process(target=_child, args=(how, self.ground, who, self._life, self.plan.seed))
        client.start()
        self.clients[number] = client


def _child(act: Any, *words: Any) -> None:
    """Act until the campaign ends, also where it is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    act(*words)


def _end(process: Any) -> None:
    process.kill()  # SIGKILL: nothing is tidied up
    process.join()


def _start_cluster(shim: Shim | None) -> Any:
    path = Path(__file__).parents[2] / "tests" / "postgres.py"
    spec = importlib.util.spec_from_file_location("chaos_postgres", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        # Little memory: pages are written long before anybody flushes them.
        cluster = module.Cluster({"shared_buffers": "1MB", "wal_buffers": "64kB", "bgwriter_delay": "10ms"})
    except module.NoPostgres as missing:
        raise SystemExit(f"NOTHING WAS TRIED: {missing}") from None
    if shim is not None:
        cluster.stop()
        cluster.environment = shim.environment(str(cluster.data))
        cluster.start()
    return cluster
