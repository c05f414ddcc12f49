"""The faults: who is killed, stopped or misled, what a disk refuses or forgets, and when."""

import contextlib
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

from breaking import spoil
from powerloss import Shim, lose_power, shorten_notes

# How often each comes, for a file and for a server.
FAULTS = {
    "client": (40, 32),
    "service": (18, 15),
    "database backend": (0, 10),
    "database server": (0, 6),
    "everything": (5, 3),
    "power loss": (10, 9),
    "flush": (5, 1),
    "pause of a client": (7, 6),
    "pause of the service": (4, 4),
    "pause of the database": (0, 4),
    "clock": (6, 6),
    "disk full": (4, 2),
    "read-only": (3, 2),
    "changed line": (3, 0),
}
_KILLS = ("client", "service", "database backend", "database server", "everything", "power loss", "flush")
_BY_SHIM = ("power loss", "flush", "clock", "disk full", "read-only")
_ERRORS = {"disk full": errno.ENOSPC, "read-only": errno.EROFS}
_SOON = 60.0


class Faults:
    """Does harm to the crew of a round and to what it stands on, at random."""

    def __init__(self, plan: Any, chance: random.Random, shim: Shim | None, cluster: Any) -> None:
        self._plan, self._chance, self._shim, self._cluster = plan, chance, shim, cluster
        self.done: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._clock = 0.0
        at = 0 if cluster is None else 1
        self._weights = {kind: weights[at] for kind, weights in FAULTS.items() if kind in plan.faults}
        for kind in list(self._weights):
            needs_service = kind in ("service", "pause of the service") and not plan.n_by_service
            if needs_service or (shim is None and kind in _BY_SHIM):
                self._weights[kind] = 0

    @property
    def n_kills(self) -> int:
        return sum(self.done[kind] for kind in _KILLS)

    def are_enough(self) -> bool:
        plan = self._plan
        if not plan.kills and not plan.power_losses:
            return False
        return self.n_kills >= plan.kills and self.done["power loss"] >= plan.power_losses

    def begin(self, ground: Any, crew: Any) -> None:
        """Turn to the crew of another round."""
        self._ground, self._crew = ground, crew

    def end(self) -> None:
        """Leave everything as it should be."""
        self._tell(clock=0.0)

    def wait(self) -> float:
        return min(self._chance.expovariate(1 / self._plan.pause), 2.0)

    def strike(self) -> list[str]:
        """Do one thing, and return what was wrong about how the ledger took it."""
        self._crew.tend()
        weights = dict(self._weights)
        if self._plan.power_losses and self.n_kills >= self._plan.kills:
            weights = {"power loss": 1}
        (kind,) = self._chance.choices(list(weights), list(weights.values()))
        said = {"kind": kind, "at": time.monotonic()}
        # Noted before it is done, and once more when it is over: what happened in between has met it.
        self._note(said)
        found = self._do(kind)
        self._note({**said, "at": time.monotonic()})
        self.done[kind] += 1
        self._mend()
        return found

    def _mend(self) -> None:
        """Wait for the database, which may end itself over a disk, and start it again if it does."""
        until = time.monotonic() + _SOON / 2
        while self._cluster is not None:
            if not self._cluster.is_running or time.monotonic() > until:
                self._cluster.kill()
                self._cluster.start()
                return
            with contextlib.suppress(Exception):
                self._cluster.sql("SELECT 1")
                return
            time.sleep(0.1)

    def _do(self, kind: str) -> list[str]:
        chance, crew = self._chance, self._crew
        if kind == "client":
            crew.kill_client(chance.randrange(crew.n_clients))
        elif kind == "service":
            crew.kill_server()
        elif kind == "database backend":
            _kill_backend(self._cluster, chance)
        elif kind == "database server":
            self._cluster.kill()
            time.sleep(chance.uniform(0.0, 0.3))
            self._cluster.start()
        elif kind in ("everything", "power loss", "changed line"):
            return self._kill_all(kind)
        elif kind == "pause of a client":
            self._pause([crew.clients[chance.randrange(crew.n_clients)].pid])
        elif kind == "pause of the service":
            self._pause([crew.server.pid])
        elif kind == "pause of the database":
            hanging = self._cluster.freeze()
            time.sleep(chance.uniform(0.1, 2.0))
            self._cluster.thaw(hanging)
        elif kind == "flush":
            self._cut_before_a_flush()
        elif kind == "clock":
            self._tell(clock=chance.choice((0.0, 1.0, -1.0)) * 10 ** chance.uniform(0, 5.5))
        else:
            self._tell(deny=_ERRORS[kind])
            time.sleep(chance.uniform(0.05, 1.0))
            self._tell()
        return []

    def _kill_all(self, kind: str, *, fatal: bool = False) -> list[str]:
        crew, found = self._crew, []
        crew.kill_all()
        if self._cluster is not None:
            self._cluster.kill()
        self._tell(fatal=fatal)
        folder = self._ground.folder / "watched" if self._cluster is None else self._cluster.data
        if kind in ("power loss", "flush"):
            assert self._shim is not None
            self.lost.update(lose_power(self._shim, folder, self._chance))
        elif self._shim is not None:
            shorten_notes(self._shim)
        if kind == "everything" and self._plan.broken == "no-log":
            Path(self._ground.where + "-wal").unlink(missing_ok=True)
        if self._cluster is not None:
            self._cluster.start()
        if kind == "changed line":
            found = self._change_a_line()
        crew.start()
        return found

    def _cut_before_a_flush(self) -> None:
        """Kill whoever flushes, and then all others; let the next ones read; and cut the power.

        What was written and not flushed is seen by whoever comes, and must not be told before it is durable.
        """
        self._tell(fatal=True)
        time.sleep(self._chance.uniform(0.05, 0.2))
        # A server flushes before it lets anyone in.
        self._kill_all("everything", fatal=self._cluster is None)
        time.sleep(self._chance.uniform(0.1, 0.6))
        self._kill_all("flush")

    def _pause(self, processes: list[int]) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.1, 2.0))
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def _tell(self, *, clock: float | None = None, deny: int = 0, fatal: bool = False) -> None:
        if self._shim is not None:
            self._clock = self._clock if clock is None else clock
            self._shim.tell(clock=self._clock, deny=deny, fatal=fatal)

    def _note(self, said: dict[str, Any]) -> None:
        with (self._ground.folder / "faults.jsonl").open("a") as file:
            file.write(json.dumps(said) + "\n")

    def _change_a_line(self) -> list[str]:
        """Change a copy of the ledger by one character, and see that it is refused."""
        folder = self._ground.folder / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(self._ground.where).parent, folder, ignore=shutil.ignore_patterns("*-shm"))
        file = folder / "ledger.db"
        with contextlib.closing(sqlite3.connect(file)) as ledger:
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            bodies = ledger.execute(
                "SELECT body FROM lines WHERE kind = 'reserved' ORDER BY number"
            ).fetchall()
        if not bodies:
            return []
        mark = json.loads(self._chance.choice(bodies)[0])["mark"].encode()
        text, other = file.read_bytes(), (b"0" if mark[:1] != b"0" else b"1") + mark[1:]
        file.write_bytes(text.replace(mark, other))
        context = multiprocessing.get_context("fork")
        answer = context.Value("i", 0)
        looking = context.Process(target=_open_changed, args=(self._ground, str(file), answer))
        looking.start()
        looking.join(_SOON)
        if looking.is_alive():
            looking.kill()
        return [] if answer.value == 1 else ["a line was changed, and the ledger was not refused"]


def _open_changed(ground: Any, where: str, answer: Any) -> None:
    from tellers import Accountant
    from tellers.errors import LedgerConflict
    from tellers.ledger import open_ledger

    spoil(ground.broken)
    try:
        with open_ledger(where, Accountant(ground.budget)) as ledger:
            ledger.verify()
    except LedgerConflict:
        answer.value = 1


def _kill_backend(cluster: Any, chance: random.Random) -> None:
    """Kill one process of the server that works for a client; the server then throws all of them out."""
    postmaster, found = cluster.postmaster(), []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            is_child = int(path.read_text().rpartition(")")[2].split()[1]) == postmaster
            if is_child and b"postgres: tellers" in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
    if found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)
