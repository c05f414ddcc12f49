"""A party's handle on a link: it starts a worker process, talks to it, gives up in time and starts again."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LinkFailed, MissingExtra, require_positive
from .engine import require_engine
from .pinned import Pinned
from .pipes import read_message, write_message
from .programs import ASKER, HELPER, Program, describe_program
from .tunnel import Identity

Integers = NDArray[np.int64]

_WORKER: tuple[str, ...] = ("tellers.parties.worker",)
_ENDED = {3: "the peer closed the connection", 4: "its party was gone", 255: "the engine gave up on the peer"}


@dataclass(frozen=True)
class Traffic:
    """What one command took: seconds in the worker, and bytes sent and received inside TLS.

    >>> Traffic(seconds=0.5, n_sent=10, n_received=20).n_bytes
    30
    """

    seconds: float
    n_sent: int
    n_received: int

    @property
    def n_bytes(self) -> int:
        """Return the bytes of both directions."""
        return self.n_sent + self.n_received


class Link:
    """One end of a secret computation with one peer, in a worker process of its own.

    `connect` returns a connected TCP socket: the asker dials, the others accept. Every `open` calls it again.
    A link that failed is closed: its worker is dead, whatever the peer still does; `open` starts anew.
    Commands block, each up to `timeout` seconds, so a party with several links runs each in a thread.

    >>> link = Link(ASKER, lambda: socket.socket(), Identity(Path("a.pem"), Path("a.key"), (Path("b.pem"),)))
    >>> link.is_open
    False
    """

    def __init__(
        self,
        rank: int,
        connect: Callable[[], socket.socket],
        identity: Identity | Pinned,
        *,
        timeout: float = 120.0,
    ) -> None:
        if rank not in (ASKER, HELPER):
            raise ValueError(f"Expected rank {ASKER} (asks) or {HELPER} (answers or guards), got {rank!r}.")
        require_positive(timeout=timeout)
        self._rank, self._connect, self._identity, self._timeout = rank, connect, identity, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._counted = (0, 0)
        self._one_at_a_time = threading.RLock()
        self.traffic = Traffic(0.0, 0, 0)

    @property
    def is_open(self) -> bool:
        """Return whether the worker lives; it ends by itself soon after the peer is gone."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Return the worker's process id, or None without a worker."""
        return self._process.pid if self._process is not None else None

    def open(self, *, timeout: float | None = None) -> Path:
        """Start a worker, secure the connection, join the peer's engine; return the peer's certificate file.

        Of a peer that is known by its pin, the name is returned in place of a file.

        >>> Link(ASKER, lambda: None, Identity(Path("a"), Path("b"), ())).close()
        """
        require_engine()
        self.close()
        with self._connect() as plain:
            number = plain.fileno()
            os.set_inheritable(number, True)
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *_WORKER, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                env=_environment(),
                start_new_session=True,  # An interrupt at the keyboard is the party's to handle.
            )
        self._counted = (0, 0)
        who = self._identity
        head, _ = self._do(
            {
                "do": "open",
                "rank": self._rank,
                "timeout": self._timeout,
                **(who.told() if isinstance(who, Pinned) else _files(who)),
            },
            timeout=timeout,
        )
        return Path(head["peer"])

    def prepare(self, program: Program, *, timeout: float | None = None) -> None:
        """Agree on a program with the peer, compile it, and run it once on zeros; both sides call it.

        >>> from tellers.parties.programs import DecisionProgram
        >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=3)
        >>> Link(ASKER, lambda: None, Identity(Path("a"), Path("b"), ())).prepare(program)
        Traceback (most recent call last):
            ...
        tellers.errors.LinkFailed: Expected an open link, got a closed one. Open it first.
        """
        self._do({"do": "prepare", "program": describe_program(program)}, timeout=timeout)

    def keep_model(self, model: Mapping[str, Integers]) -> None:
        """Hand the answerer's model to its worker, where it stays until the link ends.

        >>> Link(ASKER, lambda: None, Identity(Path("a"), Path("b"), ())).keep_model({})
        Traceback (most recent call last):
            ...
        tellers.errors.LinkFailed: Expected an open link, got a closed one. Open it first.
        """
        self._do({"do": "model"}, model)

    def run(
        self, program: Program, inputs: Mapping[str, Integers], *, timeout: float | None = None
    ) -> Integers | None:
        """Run a prepared program on this side's inputs: the outcome for the asker, None for the other side.

        `traffic` says afterwards what it took. Both sides call it, in the same order.

        >>> from tellers.parties.programs import DecisionProgram
        >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=3)
        >>> Link(ASKER, lambda: None, Identity(Path("a"), Path("b"), ())).run(program, {})
        Traceback (most recent call last):
            ...
        tellers.errors.LinkFailed: Expected an open link, got a closed one. Open it first.
        """
        _, tables = self._do({"do": "run", "program": describe_program(program)}, inputs, timeout=timeout)
        return tables.get("outcome")

    def _do(
        self,
        head: dict[str, Any],
        tables: Mapping[str, Integers] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[dict[str, Any], dict[str, Integers]]:
        process, limit = self._process, self._timeout if timeout is None else timeout
        with self._one_at_a_time:
            if process is None or process.stdin is None or process.stdout is None:
                raise LinkFailed("Expected an open link, got a closed one. Open it first.")
            try:
                write_message(process.stdin.fileno(), head, tables)
                reply, found = read_message(process.stdout.fileno(), timeout=limit)
            except (EOFError, OSError):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)
                reason = _ENDED.get(process.returncode or 0, f"exit code {process.returncode}")
                self.kill()
                raise LinkFailed(f"Expected a living worker, got a dead one: {reason}.") from None
            except LinkFailed:
                self.kill()
                raise
        if "failed" in reply:
            self.kill()
            error = MissingExtra if reply.get("kind") == "MissingExtra" else LinkFailed
            raise error(reply["failed"])
        sent, received = int(reply.get("n_sent", 0)), int(reply.get("n_received", 0))
        self.traffic = Traffic(float(reply["seconds"]), sent - self._counted[0], received - self._counted[1])
        if sent or received:
            self._counted = (sent, received)
        return reply, found

    def close(self) -> None:
        """End the link and its worker; the peer's worker ends too.

        >>> with Link(ASKER, lambda: None, Identity(Path("a"), Path("b"), ())) as link:
        ...     link.close()
        >>> link.is_open, link.pid
        (False, None)
        """
        process = self._process
        if process is not None and process.poll() is None and process.stdin is not None:
            with suppress(OSError, ValueError, subprocess.TimeoutExpired):
                write_message(process.stdin.fileno(), {"do": "close"})
                process.wait(timeout=2)
        self.kill()

    def kill(self) -> None:
        """End the worker at once, whatever it does.

        >>> Link(ASKER, lambda: None, Identity(Path("a"), Path("b"), ())).kill()  # nothing to end
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        # Whoever reads from it in another thread finds its end now. Closed before that, the number of the
        # pipe could be another's, and its bytes be read as the worker's.
        with self._one_at_a_time:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _files(who: Identity) -> dict[str, Any]:
    return {
        "certificate": str(who.certificate), "key": str(who.key), "peers": [str(path) for path in who.peers]
    }  # fmt: skip


def _environment() -> dict[str, str]:
    """Return the environment of a worker: ours, with this package to be found and one thread per pool."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    quiet = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
