"""Checkpoints: everything that training needs to go on, in one file of named arrays without code in it."""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Arrays = dict[str, NDArray[Any]]
FILE = "student-training.npz"
_MADE_OF = "made_of"


def fingerprint(settings: Mapping[str, Any], *tables: NDArray[Any] | None) -> str:
    """Return a name for settings and data: the same name, the same training.

    >>> fingerprint({"steps": 5}, np.zeros(3)) == fingerprint({"steps": 6}, np.zeros(3))
    False
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    for table in tables:
        known = np.zeros(0) if table is None else np.ascontiguousarray(table)
        digest.update(f"{known.dtype} {known.shape}".encode())
        digest.update(known.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """The place of a checkpoint, and what it must be a checkpoint of.

    >>> import tempfile
    >>> checkpoint = Checkpoint(Path(tempfile.mkdtemp()), fingerprint({"steps": 5}), every=100)
    >>> checkpoint.load()
    >>> checkpoint.save({"step": np.array(3)})
    >>> int(checkpoint.load()["step"])
    3
    """

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


def pack(prefix: str, tensors: Mapping[str, Tensor]) -> Arrays:
    """Return tensors as arrays whose names begin with a prefix.

    >>> list(pack("student", {"weight": torch.zeros(2)}))
    ['student/weight']
    """
    return {f"{prefix}/{name}": value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def unpack(prefix: str, arrays: Arrays) -> dict[str, Tensor]:
    """Return the tensors of a prefix.

    >>> unpack("student", {"student/weight": np.zeros(2), "step": np.array(3)})
    {'weight': tensor([0., 0.], dtype=torch.float64)}
    """
    start = prefix + "/"
    return {
        name.removeprefix(start): torch.tensor(value)
        for name, value in arrays.items()
        if name.startswith(start)
    }


def pack_optimizer(prefix: str, optimizer: torch.optim.Optimizer) -> Arrays:
    """Return what an optimizer remembers of each weight.

    >>> weight = torch.zeros(2, requires_grad=True)
    >>> optimizer = torch.optim.AdamW([weight])
    >>> weight.sum().backward(); optimizer.step()
    >>> sorted(pack_optimizer("adam", optimizer))
    ['adam/0/exp_avg', 'adam/0/exp_avg_sq', 'adam/0/step']
    """
    return {
        name: value
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in pack(f"{prefix}/{number}", state).items()
    }


def unpack_optimizer(prefix: str, arrays: Arrays, optimizer: torch.optim.Optimizer) -> None:
    """Give an optimizer its memory back.

    >>> weight = torch.zeros(2, requires_grad=True)
    >>> optimizer = torch.optim.AdamW([weight])
    >>> weight.sum().backward(); optimizer.step()
    >>> unpack_optimizer("adam", pack_optimizer("adam", optimizer), optimizer)
    """
    content = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in unpack(prefix, arrays).items():
        number, _, key = name.partition("/")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**content, "state": state})
    for weight, memory in optimizer.state.items():
        for key, value in memory.items():
            if value.shape == weight.shape:
                # Laid out as its weight is: a fused step walks through both side by side.
                memory[key] = torch.empty_like(weight.detach()).copy_(value)
