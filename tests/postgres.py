"""A PostgreSQL server for the tests: on a temporary folder and a free port, run by a user that is not root.

`python tests/postgres.py` starts one, prints its URL and runs until Ctrl-C.
"""

import contextlib
import glob
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tellers.testing._ports import free_port


class NoPostgres(RuntimeError):
    """There is no PostgreSQL here, or nobody who may run it."""


def programs() -> Path:
    """Return the folder with initdb and postgres, the newest one."""
    found = [Path(p) for p in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    if found:
        return max(found, key=lambda p: int(p.parents[1].name)).parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise NoPostgres("PostgreSQL is not installed; as root, run: sh scripts/system.sh postgres")
    return Path(os.path.realpath(on_path)).parent


def as_nobody_special() -> list[str]:
    """Return what to put before a command so that a server, which refuses to be root, will run."""
    if os.geteuid() != 0:
        return []
    for user in ("postgres", "nobody"):
        runs = subprocess.run(["runuser", "-u", user, "--", "true"], capture_output=True, check=False)
        if runs.returncode == 0:
            return ["runuser", "-u", user, "--"]
    raise NoPostgres("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody.")


class Cluster:
    """One server, which may be stopped, killed and started again; its disk is flushed as in earnest."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.bin, self._as = programs(), as_nobody_special()
        # Not below pytest's own folder, which only its owner may enter.
        self.folder = Path(tempfile.mkdtemp(prefix="tellers-postgres-"))
        self.data = self.folder / "data"
        self.password = secrets.token_hex(8)
        self.port = free_port()
        self.settings = {"max_connections": "120", **(settings or {})}
        self.environment: dict[str, str] = {}  # what else the server finds in its own
        self._process: subprocess.Popen[bytes] | None = None
        words = self.folder / "password"
        words.write_text(self.password)
        if self._as:
            user = self._as[2]
            for path in (self.folder, words):
                shutil.chown(path, user)
        self._run("initdb", "-D", self.data, "-U", "tellers", "-A", "scram-sha-256", "--pwfile", words,
                  "-E", "UTF8", "--no-locale")  # fmt: skip
        self.start()

    def url(self, database: str = "postgres", *, user: str = "tellers", password: str | None = None) -> str:
        """Return the URL of a database on this server."""
        secret = self.password if password is None else password
        return f"postgresql+psycopg://{user}:{secret}@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple]:
        """Run one statement, outside a transaction, and return its rows."""
        import psycopg

        url = self.url(database).replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        command = [*self._as, str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port),
                   "-c", "listen_addresses=127.0.0.1", "-k", str(self.folder), *options]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.environment},
            )  # fmt: skip
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        until = time.monotonic() + 60
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoPostgres("The server did not start:\n" + (self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def postmaster(self) -> int | None:
        """Return the process id of the server itself."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        return None

    def kill(self) -> None:
        """Kill the server and all its children at once, as a power cut would."""
        self._end(signal.SIGKILL)
        with contextlib.suppress(OSError):  # what a killed server leaves behind keeps the next one out
            (self.data / "postmaster.pid").unlink()

    def stop(self) -> None:
        """Stop the server; connections are broken."""
        self._end(signal.SIGINT)

    def freeze(self) -> list[int]:
        """Let the server and its connections hang, without a word; return what `thaw` wants to know."""
        pid = self.postmaster()
        assert pid is not None
        assert self._process is not None
        # Who started the server stops when it does.
        hanging = [self._process.pid, pid, *_children(pid)]
        for each in hanging[1:]:
            os.kill(each, signal.SIGSTOP)
        return hanging

    def thaw(self, hanging: list[int]) -> None:
        """Let the server go on."""
        for each in reversed(hanging):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)

    def remove(self) -> None:
        """Stop the server and remove all it wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        pid, process = self.postmaster(), self._process
        if process is None:
            return
        children = _children(pid) if pid is not None and how == signal.SIGKILL else []
        for each in [pid, *children]:
            if each is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, how)
        process.wait(timeout=60)
        # One that was born while we counted would keep the next server out.
        for child in {*children, *(_working_in(self.data) if how == signal.SIGKILL else [])}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, how)
            _gone(child)
        self._process = None

    def _run(self, program: str, *words: object) -> None:
        command = [*self._as, str(self.bin / program), *(str(word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode != 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise NoPostgres(f"{program} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def _working_in(folder: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == str(folder):
                found.append(int(path.parent.name))
    return found


def _gone(pid: int) -> None:
    """Wait until a process has ended; one that nobody has asked for its status yet has."""
    until = time.monotonic() + 30
    with contextlib.suppress(OSError):
        while time.monotonic() < until:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.01)


if __name__ == "__main__":
    cluster = Cluster()
    print(cluster.url(), flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        cluster.remove()
