"""Parties for tests alone: a guardian that records its noise, and parties that die at a step.

`main` serves like `tellers party guard` or `answer`, and `ask` asks about a few rows. A guardian writes each
last step into a folder as QID.npz, and whoever reads that can undo the privacy of the query. A step such as
`before:ready`, `after:mask`, `on:roll` or `on:mask:3` kills the process, without a word, before or after it
sends a kind of message, or when it has received one, for the third time. `before:run`, `after:run` and
`before:need` are steps of the engine, and `after:charge` is the moment at which the ledger has a query. With
`freeze:` before it, the process is stopped at the step (SIGSTOP) and goes on when it is told to (SIGCONT).
With `drain` an answering party says that it is ready, and is out whenever masks are asked for.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tellers.parties import AskRole, _answer, _guard
from tellers.parties._answer import AnswerRole
from tellers.parties._link import EngineLink
from tellers.parties._messages import Out
from tellers.parties._wire import Channel
from tellers.runs import read_party

from ..real_round import NoiseRecorder, say, say_address


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
        _around(EngineLink, kind, when, reached)
    elif kind == "charge":
        for module in (_guard, _answer):
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
    take_step(step)
    settings = read_party(config)
    if settings.party.role == "guardian":
        NoiseRecorder(settings, Path(folder), say=say).run(say_address)
    else:
        AnswerRole(settings, say=say).run(say_address)


def ask(config: str, step: str, n_retries: str) -> None:
    """Ask for the labels of two rows, until the step."""
    take_step(step)
    with AskRole(read_party(config), say=say) as asker:
        say(f"{len(asker.ask(np.zeros((2, 6)), n_retries=int(n_retries)).labels)} labels")


def take_step(step: str) -> None:
    """Die at a step, or freeze there, if there is one."""
    if step.startswith("freeze:"):
        die_at(step.removeprefix("freeze:"), die=freeze)
    elif step == "drain":
        _answer.lend_mask = _refuse_to_lend
    elif step:
        die_at(step)


def _refuse_to_lend(policy: Any, state: Any, message: Any, **_: Any) -> Any:
    return _answer.forget(state, message.qid), [Out(qid=message.qid, why="refused")]


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
