"""The worker process that hosts one end of an engine link: commands in, outcomes out.

`python -m tellers.parties._worker SOCKET` takes over a connected TCP socket, secures it, and does what it is
told over its standard input and output until either end of the link is gone.
"""

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from ..errors import LinkFailed, TellersError
from ._engine import Engine, run_digest
from ._link import read_message, wipe, write_message
from ._ports import close_to_others, held_port
from ._ring import Integers
from ._tunnel import Tunnel
from ._wire import Identity, Peer, Pinned
from .programs import ASKER, Program, read_program

Answer = tuple[dict[str, Any], dict[str, Integers]]
PEER_GONE: Final = 3
ORPHANED: Final = 4
LOG_BYTES: Final = 1 << 22
"""A log of the engine as long as this, of one command, was perhaps not read whole."""


class Worker:
    """What one worker process holds: a tunnel, an engine, and a model if it answers.

    Inputs, outcomes and models are overwritten after use, and what is there when the worker ends by itself.
    What that does not reach: copies that the engine made, which are given back to the allocator as they are,
    registers and stacks, and everything if the process is killed. Its pages are then the system's, which
    clears them before anybody else has them.
    """

    def __init__(self, plain: socket.socket, read_log: Callable[[], str]) -> None:
        self._plain, self._read_log = plain, read_log
        self._tunnel: Tunnel | None = None
        self._engine: Engine | None = None
        self._model: dict[str, Integers] = {}
        self._parties = ("", "")

    def obey(self, head: dict[str, Any], tables: dict[str, Integers]) -> Answer:
        """Do one command and return its answer; errors are the caller's to tell."""
        command = head.get("do", "")
        if command == "open":
            self._open(head)
        elif command == "model":
            wipe(self._model)
            self._model = tables
        elif command in ("prepare", "run"):
            return self._compute(head, read_program(head["program"]), tables)
        else:
            raise LinkFailed("Expected a command, got something else.")
        return {}, {}

    def _open(self, head: dict[str, Any]) -> None:
        asks = head["side"] == ASKER
        votes = "answerer" in (head["identity"]["role"], head["peer"]["role"])
        ends = Pinned(Identity(**head["identity"]), Peer(**head["peer"]))
        secure = ends.shake_hands(self._plain, listens=not asks, timeout=head["greeting"])
        names = ends.identity.name, ends.peer.name
        self._parties = names if asks else names[::-1]
        with held_port() as own_port:  # the engine takes a while until it listens there
            self._tunnel = Tunnel(secure, own_port, is_dialer=asks, on_end=partial(self.end, PEER_GONE))
            self._tunnel.start()
            self._engine = Engine(
                head["side"], votes=votes, own_port=own_port, peer_port=self._tunnel.near_port,
                timeout=head["timeout"], read_log=self._read_log,
            )  # fmt: skip

    def _compute(self, head: dict[str, Any], program: Program, tables: dict[str, Integers]) -> Answer:
        if self._engine is None or self._tunnel is None:
            raise LinkFailed("Expected an open link, got none.")
        outcome = None
        if head["do"] == "prepare":
            self._engine.prepare(program)
        else:
            wanted = {slot.name for slot in getattr(program, "model_slots", ())}
            model = {name: table for name, table in self._model.items() if name in wanted}
            try:
                outcome = self._engine.run(
                    program, model | tables, run_digest(head["query"], self._parties, head["terms"], program)
                )
            finally:
                wipe(tables)
        counts = {"n_sent": self._tunnel.n_sent, "n_received": self._tunnel.n_received}
        return counts, {} if outcome is None else {"outcome": outcome}

    def end(self, code: int) -> NoReturn:
        """End the process at once: the engine would wait, retry, and then end it in its own time."""
        try:
            wipe(self._model)
        finally:
            os._exit(code)


def _capture_output() -> Callable[[], str]:
    """Send what the engine prints to a file without a name, and return how to read what is new in it."""
    log = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)

    return lambda: read_new(log.fileno())


def read_new(log: int) -> str:
    """Return what an open file holds and empty it; a log too long to be read whole fails the link.

    What was not read could tell of a product that was answered by several ciphertexts. A program is first
    run on zeros, and that log is checked before anything private goes in. The log of a real run is checked
    after its outcome was opened: then the outcome is withheld and the link ends, but what was sent was sent.
    """
    text = os.pread(log, LOG_BYTES, 0)
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)
    if len(text) >= LOG_BYTES:
        raise LinkFailed(
            f"Expected less than {LOG_BYTES >> 20} MiB of log from the engine, got more than is read. Ask in "
            "smaller batches."
        )
    return text.decode(errors="replace")


def _leave_with(parent: int, worker: Worker) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    worker.end(ORPHANED)


def main(number: int) -> None:
    """Serve one link over standard input and output until told to stop, or until one end is gone."""
    close_to_others()
    commands, answers = os.dup(0), os.dup(1)
    worker = Worker(socket.socket(fileno=number), _capture_output())
    threading.Thread(target=_leave_with, args=(os.getppid(), worker), daemon=True).start()
    while True:
        try:
            head, tables = read_message(commands, timeout=None)
        except EOFError:
            worker.end(0)  # its connections end with it
        try:
            reply, found = worker.obey(head, tables)
        except TellersError as error:
            reply, found = {"failed": str(error), "kind": type(error).__name__}, {}
        except Exception as error:  # An engine's own words may quote what it worked on.
            reply, found = {"failed": f"Expected the engine to finish, got {type(error).__name__}."}, {}
        write_message(answers, reply, found)
        wipe(found)


if __name__ == "__main__":
    main(int(sys.argv[1]))
