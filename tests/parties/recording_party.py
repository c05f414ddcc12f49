"""Parties for tests alone that record every byte they receive.

`main` serves like that of `instrumented_party`, and `ask` asks for labels of rows; both fill a folder, VIEW:

    wire.ROLE.bin            what came over connections for messages, from parties of a role, after TLS
    messages.jsonl           each message that was read from it: who sent it, and its header
    masks.NAME.bin           the numbers in them, by party
    engine.NAME.PID.N.bin    what the tunnel handed to the engine on one of its connections, after TLS
    told.NAME.jsonl          what the engine handed on besides outcomes: shares, and what both sides agree on
    outcomes.NAME.bin        what the engine opened to this party
    own.NAME.PID.N.npz       what this party put in, which nobody else may see

A file `most` in it, with a number, says how many bytes of each of the engine's connections are kept; without
it, all.

Whoever reads the views of all parties sees everything. Nothing in the product imports this module, and no
setting leads to it: it changes the process it runs in, and is started by tests.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tellers.parties import _link as link
from tellers.parties import _worker as worker
from tellers.parties._engine import Engine
from tellers.parties._messages import Mask, encode
from tellers.parties._tunnel import Tunnel
from tellers.parties._wire import Channel
from tellers.runs import read_party


def watch_party(view: Path) -> None:
    """Change this process, a party's, so that it keeps what it receives, and its workers likewise."""
    view.mkdir(parents=True, exist_ok=True)
    link._WORKER = (__name__, str(view))
    real_take, real_receive = Channel._take, Channel.receive

    def take(channel: Channel, n: int, **options: Any) -> bytes:
        data = real_take(channel, n, **options)
        _keep(view / f"wire.{channel.peer.role}.bin", data)
        return data

    def receive(channel: Channel, **options: Any) -> Any:
        message = real_receive(channel, **options)
        header, body = encode(message)
        told = {"from": channel.peer.name, "role": channel.peer.role, "header": json.loads(header)}
        _keep(view / "messages.jsonl", json.dumps(told).encode() + b"\n")
        if isinstance(message, Mask):
            _keep(view / f"masks.{channel.peer.name}.bin", body)
        return message

    setattr(Channel, "_take", take)  # noqa: B010
    setattr(Channel, "receive", receive)  # noqa: B010


def watch_worker(view: Path) -> None:
    """Change this process, a worker's, so that it keeps what its engine receives, tells and opens."""
    now = {"name": "nobody", "phase": "open"}
    real_obey, real_take, real_run = worker.Worker.obey, Tunnel._take, Engine.run
    real_init = Engine.__init__
    n_runs, kept = [0], dict[int, int]()
    most = int((view / "most").read_text()) if (view / "most").exists() else None

    def obey(self: Any, head: dict[str, Any], tables: Any) -> Any:
        now["phase"] = str(head.get("do"))
        now["name"] = str(head.get("peer", now)["name"])
        return real_obey(self, head, tables)

    def take(self: Tunnel, kind: int, number: int, piece: bytes) -> None:
        kept[number] = kept.get(number, 0) + len(piece)
        if most is None or kept[number] <= most:
            _keep(view / f"engine.{now['name']}.{os.getpid()}.{number}.bin", piece)
        real_take(self, kind, number, piece)

    def run(self: Engine, program: Any, inputs: Mapping[str, Any], bound_to: str) -> Any:
        np.savez(view / f"own.{now['name']}.{os.getpid()}.{n_runs[0]:04d}.npz", **inputs)
        n_runs[0] += 1
        outcome = real_run(self, program, inputs, bound_to)
        if outcome is not None:
            _keep(view / f"outcomes.{now['name']}.bin", np.asarray(outcome, dtype="<i8").tobytes())
        return outcome

    def init(self: Engine, *given: Any, **named: Any) -> None:
        real_init(self, *given, **named)
        self._link = _RecordingLink(self._link, view, now)

    setattr(worker.Worker, "obey", obey)  # noqa: B010
    setattr(Tunnel, "_take", take)  # noqa: B010
    setattr(Engine, "run", run)  # noqa: B010
    setattr(Engine, "__init__", init)  # noqa: B010


class _RecordingLink:
    """The engine's link, with what is said over it in words kept."""

    def __init__(self, real: Any, view: Path, now: Mapping[str, str]) -> None:
        self._real, self._view, self._now = real, view, now

    def _heard(self, how: str, words: list[Any]) -> None:
        plain = [str(word, "utf-8") if isinstance(word, bytes) else word for word in words]
        told = {"how": how, "phase": self._now["phase"], "words": plain}
        _keep(self._view / f"told.{self._now['name']}.jsonl", json.dumps(told).encode() + b"\n")

    def recv(self, rank: int) -> Any:
        words = self._real.recv(rank)
        self._heard("recv", [words])
        return words

    def all_gather(self, words: str) -> Any:
        found = self._real.all_gather(words)
        self._heard("all_gather", list(found))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def main(view: str, config: str, noise: str) -> None:
    """Serve, and keep what comes."""
    from . import instrumented_party  # workers need nothing of it

    watch_party(Path(view))
    instrumented_party.main(config, noise)


def ask(view: str, config: str, rows: str, out: str, batch: str) -> None:
    """Ask for labels of all rows of a file, batch by batch, and write them with the ids of the batches."""
    from tellers.parties import AskRole

    from ..real_round import say

    watch_party(Path(view))
    X, found = np.load(rows), []
    with AskRole(read_party(config), say=say) as asker:
        for start in range(0, len(X), int(batch)):
            found.append(asker.ask(X[start : start + int(batch)]))
    parties = np.array([",".join(one.parties) for one in found])
    labels = np.concatenate([one.labels for one in found])
    np.savez(out, labels=labels, qids=np.array([one.qid for one in found]), parties=parties)


def _keep(place: Path, data: bytes) -> None:
    if data:
        with open(place, "ab") as file:
            file.write(data)


if __name__ == "__main__":  # a worker of such a party
    watch_worker(Path(sys.argv[1]))
    worker.main(int(sys.argv[2]))
