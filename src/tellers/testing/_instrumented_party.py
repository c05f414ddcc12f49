"""Parties for tests alone: a guardian that records its noise, and parties that die at a step.

    python -m tellers.testing._instrumented_party party.toml FOLDER [STEP]

serves like `tellers party guard` or `answer`; a guardian writes each last step into FOLDER as QID.npz, and
whoever reads that can undo the privacy of the query. A STEP such as `before:ready`, `after:mask`, `on:roll`
or `on:mask:3` kills the process, without a word, before or after it sends a kind of message, or when it has
received one, for the third time. `before:run`, `after:run` and `before:need` are steps of the engine, and
`after:charge` is the moment at which the ledger has a query. With `freeze:` before it, the process is stopped
at the step (SIGSTOP) and goes on when it is told to (SIGCONT).
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..parties import _answer as answer
from ..parties import _guard as guarding
from ..parties._answer import AnswerRole
from ..parties._guard import Finish, GuardRole, PartyConnection
from ..parties._link import SharedLink
from ..parties._wire import Channel
from ..runs.settings.party import read_party


class NoiseRecorder(GuardRole):
    """A guardian that writes down its noise, ranks and the sum of masks; never run it in earnest."""

    def __init__(self, settings: Any, folder: Path, **options: Any) -> None:
        super().__init__(settings, **options)
        self._folder = folder

    def _finish(self, connection: PartyConnection, task: Finish) -> None:
        step = task.step
        kept = {"masks": step.masks, "answer_noise": step.answer_noise}
        kept |= {} if step.ranks is None else {"ranks": step.ranks}
        kept |= {} if step.check_noise is None else {"check_noise": step.check_noise}
        np.savez(self._folder / f"{task.qid}.npz", **kept)
        super()._finish(connection, task)


def die_at(step: str, *, die: Callable[[], Any] | None = None) -> None:
    """Change this process so that it dies at a step; nothing can be undone."""
    when, found, rest = step.partition(":")
    kind, _, count = rest.partition(":")
    if not found or when not in ("before", "after", "on"):
        raise ValueError(f"Expected before:KIND, after:KIND or on:KIND, got {step!r}.")
    end = _kill_this if die is None else die
    left = [int(count or 1)]

    def reached() -> None:
        left[0] -= 1
        if left[0] == 0:
            end()

    if kind in ("run", "need"):
        _around(SharedLink, kind, when, reached)
    elif kind == "charge":
        for module in (guarding, answer):
            _around(module, "charge_query", when, reached)
    elif when == "on":
        real_receive = Channel.receive

        def receive(channel: Channel, **options: Any) -> Any:
            message = real_receive(channel, **options)
            if message.kind == kind:
                reached()
            return message

        setattr(Channel, "receive", receive)  # noqa: B010
    else:
        real_send = Channel.send

        def send(channel: Channel, message: Any, **options: Any) -> None:
            if message.kind == kind and when == "before":
                reached()
            real_send(channel, message, **options)
            if message.kind == kind and when == "after":
                reached()

        setattr(Channel, "send", send)  # noqa: B010


def freeze() -> None:
    """Stop this process until somebody sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def main(config: str, folder: str, step: str = "") -> None:
    """Serve until a signal, or until the step."""
    if step.startswith("freeze:"):
        die_at(step.removeprefix("freeze:"), die=freeze)
    elif step:
        die_at(step)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    settings = read_party(config)
    role: GuardRole | AnswerRole
    if settings.party.role == "guardian":
        role = NoiseRecorder(settings, Path(folder), say=_say)
    else:
        role = AnswerRole(settings, say=_say)
    role.start()
    sys.stdout.write(f"serving at {role.address}\n")
    sys.stdout.flush()
    stop.wait()
    role.stop()


def _around(owner: Any, name: str, when: str, reached: Callable[[], None]) -> None:
    real = getattr(owner, name)

    def around(*args: Any, **options: Any) -> Any:
        if when == "before":
            reached()
        found = real(*args, **options)
        if when == "after":
            reached()
        return found

    setattr(owner, name, around)


def _kill_this() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(*sys.argv[1:4])
