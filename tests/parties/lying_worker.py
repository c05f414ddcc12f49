"""A worker of a guardian that changes its share of every outcome, for tests alone.

`python -m tests.parties.lying_worker CHANGE SOCKET` adds a number to the share, or flips one of its bits
(`bit 3`), or sends one of another length.
"""

import json
import sys
from typing import Any

import numpy as np

from tellers.parties import _engine, _worker
from tellers.parties.programs import HELPER, DecisionProgram


def lie(change: str) -> None:
    """Change this process so that it changes what it sends of an outcome."""
    real = _engine.Engine._execute

    def execute(engine: Any, program: Any, compiled: Any, inputs: Any) -> Any:
        is_real = bool(inputs) and isinstance(program, DecisionProgram)
        if is_real and engine._rank == HELPER and not isinstance(engine._link, Changing):
            engine._link = Changing(engine._link, change)
        return real(engine, program, compiled, inputs)

    setattr(_engine.Engine, "_execute", execute)  # noqa: B010


class Changing:
    """The engine's link, whose next word of an outcome is another."""

    def __init__(self, real: Any, change: str) -> None:
        self._real, self._change = real, change

    def send(self, rank: int, words: str) -> None:
        meta, *chunks = json.loads(words)
        raw = bytearray.fromhex(chunks[0])
        numbers = np.frombuffer(bytes(raw[-8:]), dtype="<u8").copy()
        how, _, size = self._change.partition(" ")
        if how == "bit":
            numbers ^= np.uint64(1 << int(size))
        elif how == "add":
            numbers += np.uint64(int(size) % 2**64)
        raw[-8:] = numbers.tobytes()
        self._real.send(rank, json.dumps([meta, bytes(raw).hex(), *chunks[1:]]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


if __name__ == "__main__":
    lie(sys.argv[1])
    _worker.main(int(sys.argv[2]))
