"""A guardian that keeps what it drew, for tests alone: whoever reads it can undo the privacy of a query.

    python -m tellers.testing.witness party.toml FOLDER

serves like `tellers party guard`, and writes each last step into FOLDER as QID.npz.
"""

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ..config.party_files import read_party
from ..parties.guard import GuardRole, Visit
from ..parties.guarding import Finish


class Witness(GuardRole):
    """A guardian that writes down its noise, ranks and the sum of masks; never run it in earnest.

    >>> Witness.__mro__[1].__name__
    'GuardRole'
    """

    def __init__(self, settings: Any, folder: Path, **options: Any) -> None:
        super().__init__(settings, **options)
        self._folder = folder

    def _finish(self, visit: Visit, task: Finish) -> None:
        step = task.step
        kept = {"masks": step.masks, "answer_noise": step.answer_noise}
        kept |= {} if step.ranks is None else {"ranks": step.ranks}
        kept |= {} if step.check_noise is None else {"check_noise": step.check_noise}
        np.savez(self._folder / f"{task.qid}.npz", **kept)
        super()._finish(visit, task)


def main(config: str, folder: str) -> None:
    """Serve until a signal.

    >>> callable(main)
    True
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    role = Witness(read_party(config), Path(folder), say=lambda words: sys.stderr.write(words + "\n"))
    role.start()
    sys.stdout.write(f"serving at {role.address}\n")
    sys.stdout.flush()
    stop.wait()
    role.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
