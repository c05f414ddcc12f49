"""Checkpoints: everything that a training needs to go on, in one file of named arrays without code in it."""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .weights import Arrays

FILE = "student-training.npz"
COUNTS = "numbers"
_MADE_OF = "made_of"


def fingerprint(settings: Mapping[str, Any], *tables: NDArray[Any] | None) -> str:
    """Return a name for settings and data: the same name, the same training."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    for table in tables:
        known = np.zeros(0) if table is None else np.ascontiguousarray(table)
        digest.update(f"{known.dtype} {known.shape}".encode())
        digest.update(known.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """The place of a checkpoint, and what it must be a checkpoint of."""

    folder: Path
    made_of: str
    every: int = 500

    def load(self) -> Arrays | None:
        """Return what was saved, or None; a checkpoint of another training is refused."""
        path = self.folder / FILE
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
            made_of = str(arrays.pop(_MADE_OF))
        except Exception as error:  # whatever is wrong with a file, it is one kind of error
            raise ValueError(f"Expected a checkpoint at {path}, got a damaged file. Delete it.") from error
        if made_of != self.made_of:
            raise ValueError(
                f"Expected a checkpoint of this student at {path}, got one of other settings, rows or "
                "labels. Name another folder, or delete it."
            )
        if COUNTS not in arrays:  # sound was once written in a form of its own
            raise ValueError(
                f"Expected a checkpoint of this version at {path}, got one of an earlier version. Delete it: "
                "the training begins anew."
            )
        return arrays

    def save(self, arrays: Arrays) -> None:
        """Write a checkpoint, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        written = io.BytesIO()
        np.savez(written, **arrays, **{_MADE_OF: np.array(self.made_of)})
        half = self.folder / (FILE + ".part")
        with half.open("wb") as file:
            file.write(written.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        half.replace(self.folder / FILE)
