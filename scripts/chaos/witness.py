"""Notes that outlive a kill: what was acknowledged, and which teachers were asked.

They are not among the files that a power cut reaches: what is noted stays noted.
"""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from tellers.teachers import VotedPool


class Journal:
    """A file of JSON lines, each handed to the system before anything else is done."""

    def __init__(self, path: Path) -> None:
        self.said = read_journal(path)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        # A line that a kill cut in two was never written.
        text = path.read_bytes()
        os.ftruncate(self._file, text.rfind(b"\n") + 1)
        os.lseek(self._file, 0, os.SEEK_END)

    def write(self, **said: Any) -> None:
        os.write(self._file, (json.dumps(said) + "\n").encode())
        self.said.append(said)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal."""
    if not path.exists():
        return []
    text = path.read_bytes()
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def watch_votes(folder: Path, chance: random.Random) -> None:
    """Write down each question that the teachers of this process are asked, before they answer.

    They take a little time, as teachers do, so that kills come between a reservation and its settling.
    """
    file = os.open(folder / "asked.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    vote = VotedPool.vote

    def watched(self: VotedPool, rows: Any) -> Any:
        os.write(file, f"{int(np.asarray(rows)[0])}\n".encode())
        time.sleep(chance.uniform(0.0, 0.02))
        return vote(self, rows)

    VotedPool.vote = watched  # type: ignore[method-assign]
