"""Several processes that answer for one service, forked before anything is opened."""

import builtins
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import errors

_SOON = 5.0
"""Seconds; a worker that ends sooner is not begun again for ever."""

_MOST_EARLY = 5
_ENDS = (signal.SIGTERM, signal.SIGINT)


class Share(NamedTuple):
    """What a worker is given: sockets to listen on, if it is the first, and a pipe that its parent holds.

    The first one looks at the ledger before the others begin. It says by `tell` that it listens.
    """

    sockets: Sequence[socket.socket]
    is_first: bool
    lifeline: int
    tell: Callable[[], object]


def run_workers(n_workers: int, sockets: Sequence[socket.socket], work: Callable[[Share], object]) -> int:
    """Run `work` in so many processes until a signal ends them, and return the exit code.

    One that is killed is replaced. When this process is killed, the others end by themselves.
    """
    parent = _Parent(sockets, work)
    with tempfile.TemporaryDirectory(prefix="tellers-metrics-") as folder:
        # Before the library is imported that reads it.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        for number in _ENDS:
            signal.signal(number, parent.stop)
        code = parent.begin_first()
        if code is not None:
            return code
        for _ in range(n_workers - 1):
            parent.begin()
        return parent.watch()


class _Parent:
    def __init__(self, sockets: Sequence[socket.socket], work: Callable[[Share], object]) -> None:
        self._sockets, self._work = sockets, work
        self._lifeline = os.pipe()
        self._begun: dict[int, float] = {}
        self._stops, self._n_early = False, 0

    def begin(self, tell: int = -1) -> int:
        """Fork a worker; it writes to `tell` when it listens."""
        # A signal waits until the worker is known, here, and has handlers of its own, there.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        process = os.fork()
        if process:
            self._begun[process] = time.monotonic()
            if self._stops:  # since it was last looked
                os.kill(process, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
            return process
        code: Any = 1
        try:
            os.close(self._lifeline[1])
            os.setpgid(0, 0)  # Ctrl-C at a terminal is for the parent, who tells all of them once
            for number in _ENDS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)

            def said() -> None:
                nonlocal tell
                told, tell = tell, -1  # its number is another file's from now on
                if told >= 0:
                    os.write(told, b"1")
                    os.close(told)

            self._work(Share(self._sockets, tell >= 0, self._lifeline[0], said))
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except KeyboardInterrupt:
            code = 130
        except Exception as error:
            if not self._handed_over(error, tell):
                sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    @staticmethod
    def _handed_over(error: Exception, tell: int) -> bool:
        try:
            os.write(tell, b"0" + json.dumps([type(error).__name__, str(error)]).encode())
        except OSError:  # there is nobody to tell
            return False
        return True

    def begin_first(self) -> int | None:
        """Begin the first worker; where it comes not to listen, raise its error or return its exit code."""
        reads, writes = os.pipe()
        process = self.begin(writes)
        os.close(writes)
        with os.fdopen(reads, "rb") as told:
            first = told.read(1)
            if first == b"1":
                return None
            error = told.read()
        del self._begun[process]
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if error:
            name, words = json.loads(error)
            kind = getattr(errors, name, getattr(builtins, name, RuntimeError))
            raise kind(words)
        return max(0, code) if self._stops else code

    def stop(self, *_signal: Any) -> None:
        """Let all workers finish what they have begun; who comes now is refused, and does not wait for it."""
        self._stops = True
        for listening in self._sockets:
            listening.close()
        for process in list(self._begun):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def watch(self) -> int:
        """Wait until all have ended, and replace those that end by themselves."""
        worst = 0
        while self._begun:
            process, status = os.wait()
            code, begun = os.waitstatus_to_exitcode(status), self._begun.pop(process, 0.0)
            if self._stops:
                worst = worst or max(0, code)
                continue
            self._n_early = self._n_early + 1 if time.monotonic() - begun < _SOON else 0
            if self._n_early >= _MOST_EARLY:
                sys.stderr.write("Workers end as soon as they begin; see the log above.\n")
                self.stop()
                worst = 3
                continue
            self.begin()
        return worst
