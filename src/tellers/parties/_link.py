"""A party's handle on links to engines: worker processes, pipes, and work in order."""

import json
import math
import os
import queue
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import LinkFailed, LinkUnreached, MissingExtra, PeerRefused, TellersError
from ._engine import require_engine
from ._messages import Message
from ._ring import Integers
from ._wire import Channel, Pinned
from .programs import Program, describe_program

# --- Pipes to workers ---

_LENGTHS: Final = struct.Struct(">IQ")
_LONGEST_HEAD: Final = 1 << 20
_LONGEST_BODY: Final = 1 << 31


def write_message(fd: int, head: Mapping[str, Any], tables: Mapping[str, Integers] | None = None) -> None:
    given = {name: np.ascontiguousarray(table, dtype="<i8") for name, table in (tables or {}).items()}
    shapes = {name: list(table.shape) for name, table in given.items()}
    text = json.dumps({"head": dict(head), "tables": shapes}, default=str).encode()  # places become words
    lengths = _LENGTHS.pack(len(text), sum(table.nbytes for table in given.values()))
    # Tables go out from where they are: a copy in bytes could not be wiped.
    for part in (np.frombuffer(lengths + text, np.uint8), *given.values()):
        rest = part.reshape(-1).view(np.uint8).data
        while rest:
            rest = rest[os.write(fd, rest) :]


def read_message(fd: int, *, timeout: float | None) -> tuple[dict[str, Any], dict[str, Integers]]:
    """Read one message from a pipe, or fail when it is not whole in time."""
    deadline = None if timeout is None else time.monotonic() + timeout
    n_text, n_body = _LENGTHS.unpack(_read(fd, _LENGTHS.size, deadline, timeout))
    if n_text > _LONGEST_HEAD or n_body > _LONGEST_BODY:
        raise LinkFailed("Expected a message of sensible length, got a longer one.")
    said = json.loads(_read(fd, n_text, deadline, timeout))
    body = memoryview(_read(fd, n_body, deadline, timeout))
    tables, start = {}, 0
    for name, shape in said["tables"].items():
        end = start + 8 * math.prod(shape)
        # The very bytes that were read, so that whoever wipes a table leaves none of it here.
        tables[name] = np.frombuffer(body[start:end], dtype="<i8").astype(np.int64, copy=False).reshape(shape)
        start = end
    return said["head"], tables


def wipe(tables: Mapping[str, Integers]) -> None:
    """Overwrite numbers that are no longer needed."""
    for table in tables.values():
        table.fill(0)


def _read(fd: int, n: int, deadline: float | None, timeout: float | None) -> bytearray:
    whole = bytearray(n)
    missing = memoryview(whole)
    waiting = select.poll()  # Not `select`, which knows files up to 1023 alone.
    waiting.register(fd, select.POLLIN)
    while missing:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not waiting.poll(None if left is None else 1000 * left):
            raise LinkFailed(f"Expected an answer within {timeout:g} s, got none.")
        n_read = os.readv(fd, [missing])
        if not n_read:
            raise EOFError
        missing = missing[n_read:]
    return whole


# --- Engine link ---

Connect = Callable[[float], socket.socket]
_TRIES: Final = 3
_WORKER: tuple[str, ...] = ("tellers.parties._worker",)
_ENDED = {3: "the peer closed the connection", 4: "its party was gone", 255: "the engine gave up on the peer"}


class EngineLink:
    """One end of a secret computation with one peer, in a worker process of its own.

    `connect` returns a connected TCP socket within so many seconds: the asker dials, the others accept. Every
    `open` calls it, and again if the party at the other end does not prove itself on what it returned, a few
    times. LinkUnreached says that it never did; nothing private was put in, and anybody on the way may be the
    cause. A link that failed is closed: its worker is dead, whatever the peer still does; `open` starts anew.
    Commands block, each up to `timeout` seconds, so a party with several links runs each in a thread.
    A link that goes with a connection for messages is opened once, when it is first needed (`need`), with the
    answerer's `model`, and both ends do the same in order. `terms` is the hash of what all parties agreed on.
    `traffic` is what the last command took: bytes sent and received inside TLS.
    """

    def __init__(
        self, side: int, connect: Connect | None, ends: Pinned, *, terms: str = "",
        model: Mapping[str, Integers] | None = None, timeout: float = 120.0,
    ) -> None:  # fmt: skip
        self._side, self._connect, self._ends, self._timeout = side, connect, ends, timeout
        self._terms = terms
        self._model, self._prepared = model, set[Program]()
        self._process: subprocess.Popen[bytes] | None = None
        self.was_needed = self._is_over = False
        self._counted = self.traffic = (0, 0)
        self._one_at_a_time = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Return whether the worker lives; it ends by itself soon after the peer is gone."""
        return self._process is not None and self._process.poll() is None

    def open(self, *, timeout: float | None = None) -> None:
        """Start a worker, secure the connection, and join the peer's engine."""
        require_engine()
        until = time.monotonic() + (self._timeout if timeout is None else timeout)
        for n_left in range(_TRIES - 1, -1, -1):
            try:
                return self._open(until)
            except LinkUnreached:
                if not n_left or time.monotonic() >= until or self._is_over:
                    raise
        raise AssertionError("unreachable")

    def _open(self, until: float) -> None:
        self.kill()
        assert self._connect is not None
        with self._connect(self.left(until)) as plain:
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
        left, ends = self.left(until), asdict(self._ends)  # keys stay in their folder
        # Half of the time, so that some is left for another connection if this one leads nowhere.
        told = {"do": "open", "side": self._side, "timeout": self._timeout, "greeting": left / 2, **ends}
        self._do(told, timeout=left)

    def prepare(self, program: Program, *, timeout: float | None = None) -> None:
        """Agree on a program with the peer, compile it, and run it once on zeros; both sides call it."""
        self._do({"do": "prepare", "program": describe_program(program)}, timeout=timeout)

    def keep_model(self, model: Mapping[str, Integers]) -> None:
        """Hand the answerer's model to its worker, where it stays until the link ends."""
        self._do({"do": "model"}, model)

    def run(
        self, program: Program, inputs: Mapping[str, Integers], *, query: str, timeout: float | None = None
    ) -> Integers | None:
        """Run a prepared program on this side's inputs: the outcome for the asker, None for the other side.

        Both sides call it, in the same order, for the same query: that is compared before anything is put in.
        """
        told = {"do": "run", "program": describe_program(program), "query": query, "terms": self._terms}
        return self._do(told, inputs, timeout=timeout).get("outcome")

    def need(self, program: Program, connect: Connect, *, until: float | None = None) -> None:
        """Make sure that a program can be run; `connect` is called if the link was not needed before.

        `until` is when to give up, by `time.monotonic()`; without it each step has the link's time.
        """
        if not self.was_needed:
            self.was_needed, self._connect = True, connect
            self.open(timeout=self.left(until))
            if self._is_over:  # while it was being opened
                self.kill()
            if self._model is not None:
                self.keep_model(self._model)
        if program not in self._prepared:
            self.prepare(program, timeout=self.left(until))
            self._prepared.add(program)

    def left(self, until: float | None) -> float:
        """Return the seconds until then, or the link's time."""
        return self._timeout if until is None else max(0.01, until - time.monotonic())

    def give_up(self) -> None:
        """End a link that goes with a connection, for good; the other end notices."""
        self._is_over = True
        self.kill()

    def _do(
        self,
        head: dict[str, Any],
        tables: Mapping[str, Integers] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Integers]:
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
            kinds: dict[str, type[TellersError]] = {
                "MissingExtra": MissingExtra,
                "LinkUnreached": LinkUnreached,
            }
            raise kinds.get(reply.get("kind", ""), LinkFailed)(reply["failed"])
        if "n_sent" in reply:
            before, self._counted = self._counted, (reply["n_sent"], reply["n_received"])
            self.traffic = (self._counted[0] - before[0], self._counted[1] - before[1])
        return found

    def kill(self) -> None:
        """End the worker at once, whatever it does; the peer's worker ends too."""
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


def _environment() -> dict[str, str]:
    """Return the environment of a worker: ours, with this package to be found and one thread per pool."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    quiet = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


# --- Queues ---


class WorkQueue:
    """Do one thing after the other, in a thread that nobody has to wait for at the end."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._is_closed = False
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, task: Callable[[], object]) -> None:
        self._waiting.put(task)

    def close(self) -> None:
        """Begin nothing more."""
        self._is_closed = True
        self._waiting.put(None)

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None and not self._is_closed:
            task()


class Outbox:
    """Send messages in the order in which they were put, without making whoever puts them wait."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._work = channel, WorkQueue()

    def put(self, message: Message) -> None:
        """Send a message soon; if it cannot be sent, the connection is closed."""
        self._work.submit(partial(self._send, message))

    def close(self) -> None:
        """Close the connection after what waits was sent, or found unsendable."""
        self._work.submit(self._channel.close)
        self._work.submit(self._work.close)

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except (PeerRefused, TimeoutError):
            self._channel.close()
            self._work.close()
