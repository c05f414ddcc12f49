"""The campaign: rounds of askers under load, a killer among them, and a judge who looks at the books."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asking import ask_ground
from ground import Ground, make_ground, serve_ground, write_votes
from judging import Verdict, judge, keep_books

# Children are forked from here, where everything is imported: a killed asker is back within milliseconds.
_FORK = multiprocessing.get_context("fork")
_WEIGHTS = {
    "sqlite": {"client": 65, "server": 30, "everything": 5},
    "postgresql": {"client": 50, "server": 25, "database backend": 14, "database server": 8, "everything": 3},
}


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    backend: str
    seed: int
    folder: Path
    kills: int = 0
    seconds: float = 0.0
    n_askers: int = 16
    n_by_service: int = 8
    n_questions: int = 400
    pause: float = 0.25
    check_every: int = 10
    broken: str = ""


@dataclass
class Campaign:
    """One campaign against one backend."""

    plan: Plan
    kills: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    trouble: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    n_rounds: int = 0
    n_looks: int = 0
    n_ended: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    took: float = 0.0

    def run(self) -> None:
        """Run rounds until there were enough kills, the time is over, or something is wrong."""
        plan, begun = self.plan, time.monotonic()
        self._chance = random.Random(plan.seed)
        plan.folder.mkdir(parents=True, exist_ok=True)
        write_votes(plan.folder, (plan.n_askers + 1) // 2, plan.seed)
        self._cluster = _start_cluster() if plan.backend == "postgresql" else None
        self._until = time.monotonic() + plan.seconds if plan.seconds else float("inf")
        try:
            while not self._is_over() and not self.violations:
                self._round()
        finally:
            if self._cluster is not None:
                shutil.copy(self._cluster.folder / "log", plan.folder / "postgresql.log")
                self._cluster.remove()
            self.took = time.monotonic() - begun

    def _is_over(self) -> bool:
        enough = self.plan.kills and sum(self.kills.values()) >= self.plan.kills
        return bool(enough) or time.monotonic() > self._until

    def _round(self) -> None:
        plan = self.plan
        folder = plan.folder / f"round-{self.n_rounds}"
        where = str(folder / "ledger.db") if self._cluster is None else self._new_database()
        self.n_rounds += 1
        ground = make_ground(
            folder, where, n_askers=plan.n_askers, n_by_service=plan.n_by_service,
            n_questions=plan.n_questions, broken=plan.broken,
        )  # fmt: skip
        crew = _Crew(ground, plan, self.n_ended)
        crew.start()
        try:
            verdict = self._harm(ground, crew)
        finally:
            crew.stop()
        if not self.violations:
            verdict = self._look(ground, verdict.head)
        self.counts.update(verdict.counts)
        self.trouble.update(verdict.trouble)
        self.longest = max(self.longest, verdict.longest)
        if self.violations:
            keep_books(ground, folder / "books.jsonl")

    def _harm(self, ground: Ground, crew: "_Crew") -> Verdict:
        """Kill at random moments, and look at the books again and again, until the budget is gone."""
        verdict, n_dry, since = Verdict(), 0, 0
        looked = time.monotonic()
        while not self._is_over():
            time.sleep(min(self._chance.expovariate(1 / self.plan.pause), 2.0))
            crew.tend()
            self._kill(ground, crew)
            since += 1
            if since >= self.plan.check_every or time.monotonic() - looked > 10:
                since = 0
                verdict = self._look(ground, verdict.head)
                looked = time.monotonic()
                if self.violations:
                    break
                n_dry += not verdict.n_left
                if n_dry > 1:  # the last ones were raced for, too
                    break
        return verdict

    def _kill(self, ground: Ground, crew: "_Crew") -> None:
        weights = _WEIGHTS[self.plan.backend]
        if not self.plan.n_by_service:
            weights = {kind: weight for kind, weight in weights.items() if kind != "server"}
        (kind,) = self._chance.choices(list(weights), list(weights.values()))
        if kind == "client":
            crew.kill_asker(self._chance.randrange(self.plan.n_askers))
        elif kind == "server":
            crew.kill_server()
        elif kind == "database backend":
            if not _kill_backend(self._cluster, self._chance):
                return
        elif kind == "database server":
            self._cluster.kill()
            time.sleep(self._chance.uniform(0.0, 0.3))
            self._cluster.start()
        else:
            crew.kill_all()
            if self._cluster is not None:
                self._cluster.kill()
                self._cluster.start()
            elif self.plan.broken == "no-log":
                Path(ground.where + "-wal").unlink(missing_ok=True)
            crew.start()
        self.kills[kind] += 1

    def _look(self, ground: Ground, head: str) -> Verdict:
        """Judge in a process of its own: nothing of a ledger stays open here, where children are forked."""
        out = ground.folder / "verdict.json"
        out.unlink(missing_ok=True)
        looking = _FORK.Process(target=judge, args=(ground, head, out))
        looking.start()
        looking.join(120)
        if looking.is_alive():
            looking.kill()
        self.n_looks += 1
        if not out.exists():
            self.violations.append("the books could not be read within two minutes")
            return Verdict(head=head)
        verdict = Verdict(**json.loads(out.read_text()))
        self.violations += verdict.violations
        return verdict

    def _new_database(self) -> str:
        from tellers.ledger.sql import migrate

        name = f"round_{self.n_rounds}"
        self._cluster.sql(f"CREATE DATABASE {name}")
        migrate(self._cluster.url(name))
        return self._cluster.url(name)


class _Crew:
    """The askers of a round and their service; whoever is killed is replaced."""

    def __init__(self, ground: Ground, plan: Plan, ended: Counter[str]) -> None:
        self.ground, self.plan, self.ended = ground, plan, ended
        self.askers: dict[int, Any] = {}
        self.server: Any = None
        self._life = 0

    def start(self) -> None:
        if self.plan.n_by_service:
            self._start_server()
        for number in range(self.plan.n_askers):
            self._start_asker(number)

    def tend(self) -> None:
        """Replace who ended without being killed: a service that found no database, for one."""
        if self.server is not None and not self.server.is_alive():
            self.ended["server"] += 1
            self._start_server()
        for number, asker in self.askers.items():
            if not asker.is_alive():
                self.ended["client"] += 1
                self._start_asker(number)

    def kill_asker(self, number: int) -> None:
        _end(self.askers[number])
        self._start_asker(number)

    def kill_server(self) -> None:
        _end(self.server)
        self._start_server()

    def kill_all(self) -> None:
        everyone = [*self.askers.values(), *([self.server] if self.server else [])]
        for process in everyone:
            process.kill()
        for process in everyone:
            process.join()

    def stop(self) -> None:
        """Let everybody finish what they are at; who cannot is ended."""
        (self.ground.folder / "stop").touch()
        until = time.monotonic() + 40
        for asker in self.askers.values():
            asker.join(max(0.0, until - time.monotonic()))
            if asker.is_alive():
                self.ended["client that did not stop"] += 1
                _end(asker)
        if self.server is not None:
            self.server.terminate()
            self.server.join(20)
            _end(self.server)

    def _start_server(self) -> None:
        self._life += 1
        self.server = _FORK.Process(target=serve_ground, args=(self.ground, self._life))
        self.server.start()

    def _start_asker(self, number: int) -> None:
        self._life += 1
        asker = _FORK.Process(target=ask_ground, args=(self.ground, number, self._life, self.plan.seed))
        asker.start()
        self.askers[number] = asker


def _end(process: Any) -> None:
    process.kill()  # SIGKILL: nothing is tidied up
    process.join()


def _start_cluster() -> Any:
    path = Path(__file__).parents[2] / "tests" / "postgres.py"
    spec = importlib.util.spec_from_file_location("chaos_postgres", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        return module.Cluster()
    except module.NoPostgres as missing:
        raise SystemExit(f"NOTHING WAS TRIED: {missing}") from None


def _kill_backend(cluster: Any, chance: random.Random) -> bool:
    """Kill one process of the server that works for a client; the server then throws all of them out."""
    postmaster, found = cluster.postmaster(), []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            is_child = int(path.read_text().rpartition(")")[2].split()[1]) == postmaster
            if is_child and b"postgres: tellers" in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
    if not found:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(found), signal.SIGKILL)
        return True
    return False
