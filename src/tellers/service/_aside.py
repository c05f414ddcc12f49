"""A process beside the service, at a low priority, that reads the ledger without taking anybody's time."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from ..errors import LedgerConflict
from ..ledger._chain import ChainedLedger
from ..ledger.opening import open_ledger

Memory = dict[str, Any]
Job = Callable[..., Any]
"""A function of a module: of a ledger, of what its process remembers, of `say`, and of what is given."""

_NICE = 10


class AsideEnded(OSError):
    """The process ended before it had done what it was asked."""


class Aside:
    """Does jobs on a ledger in a process of its own, which is started when it is needed.

    The address of the ledger goes through a pipe: it may hold a password, and everybody sees the arguments
    of a program. The process ends with the service, whatever ends that.
    """

    def __init__(self, ledger: ChainedLedger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def do(self, job: Job, *given: Any) -> Iterator[Any]:
        """Yield what a job says, and last what it returns; one thread at a time asks for one."""
        process, kind = self._started(), "said"
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with _ended():
                _send(process.stdin, (job, given))
            while kind == "said":
                with _ended():
                    kind, said = pickle.load(process.stdout)  # noqa: S301 (our own process says it)
                if kind == "raised":
                    raise said
                yield said
        finally:
            if kind == "said":
                self.end()  # what it still says would be taken for the answer to the next job

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_closed:
                raise AsideEnded("Expected a service that goes on, it is being stopped.")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tellers.service._aside"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                    start_new_session=True,  # an interrupt at the keyboard is for the service
                )  # fmt: skip
                assert self._process.stdin is not None
                with suppress(BrokenPipeError):
                    _send(self._process.stdin, place_of(self._ledger))
            return self._process

    def end(self) -> None:
        """End the process; the next job starts another, which remembers nothing."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def close(self) -> None:
        """End the process for good."""
        self._is_closed = True
        self.end()


def place_of(ledger: ChainedLedger) -> tuple[str, dict[str, Any]]:
    """Return where a ledger is and how it is opened there; its vault stays here."""
    made: Any = ledger.__reduce__()  # what another process opens it by
    again, (place, _) = made
    return place, {key: again.keywords[key] for key in ("name", "timeout") if key in again.keywords}


@contextmanager
def _ended() -> Iterator[None]:
    try:
        yield
    except (EOFError, BrokenPipeError, pickle.UnpicklingError, ValueError) as error:
        raise AsideEnded(
            "Expected the process that reads the ledger to go on, it ended. Try again."
        ) from error


def _send(pipe: IO[bytes], said: Any) -> None:
    pickle.dump(said, pipe)
    pipe.flush()


def main() -> None:
    """Do what comes in, until nothing comes any more."""
    os.nice(_NICE)
    told, said = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    place, options = pickle.load(told)  # noqa: S301 (the service says it)
    memory: Memory = {}
    with suppress(EOFError, BrokenPipeError):
        while True:
            job, given = pickle.load(told)  # noqa: S301
            try:
                with open_ledger(place, **options) as ledger:
                    found = job(ledger, memory, lambda words: _send(said, ("said", words)), *given)
            except BrokenPipeError:
                raise
            except (LedgerConflict, OSError) as error:
                answer: tuple[str, Any] = ("raised", error)
            except Exception as error:  # others may not travel, or quote what they should not
                answer = ("raised", RuntimeError(f"Expected to read the ledger, got {type(error).__name__}."))
            else:
                answer = ("done", found)
            _send(said, answer)


if __name__ == "__main__":
    main()
