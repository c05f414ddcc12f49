"""Checkpoints: everything that a training needs to go on, in one file of named arrays without code in it."""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .weights import Arrays, state_arrays

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


@dataclass(frozen=True, eq=False)
class TrainingState:
    """What changes while networks learn: modules and optimizers by name, tensors beside them, generators."""

    device: torch.device
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    optimizers: Mapping[str, torch.optim.Optimizer] = field(default_factory=dict)
    memory: Mapping[str, Tensor] = field(default_factory=dict)

    def arrays(self) -> Arrays:
        arrays = {**_pack("memory", self.memory), "random/cpu": torch.get_rng_state().numpy()}
        if self.device.type == "cuda":
            arrays["random/device"] = torch.cuda.get_rng_state(self.device).numpy()
        for name, module in self.modules.items():
            arrays |= _pack(name, _tensors(module))
        for name, optimizer in self.optimizers.items():
            for number, state in optimizer.state_dict()["state"].items():
                arrays |= _pack(f"{name}/{number}", state)
        return arrays

    @torch.no_grad()
    def restore(self, arrays: Arrays) -> None:
        for name, value in _unpack("memory", arrays).items():
            self.memory[name].copy_(value)
        for name, module in self.modules.items():
            own = _tensors(module)
            for tensor, value in _unpack(name, arrays).items():
                own[tensor].copy_(value)
        for name, optimizer in self.optimizers.items():
            _restore_optimizer(optimizer, _unpack(name, arrays))
        torch.set_rng_state(torch.tensor(arrays["random/cpu"]))
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(torch.tensor(arrays["random/device"]), self.device)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    # Buffers too that no saved model has: how many dropout masks were drawn.
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition("/")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for weight, memory in optimizer.state.items():
        for key, value in memory.items():
            if value.shape == weight.shape:
                # Laid out as its weight is: a fused step walks through both side by side.
                memory[key] = torch.empty_like(weight.detach()).copy_(value)


def _pack(prefix: str, tensors: Mapping[str, Tensor]) -> Arrays:
    return {f"{prefix}/{name}": values for name, values in state_arrays(tensors).items()}


def _unpack(prefix: str, arrays: Arrays) -> dict[str, Tensor]:
    start = prefix + "/"
    return {
        name.removeprefix(start): torch.tensor(value)
        for name, value in arrays.items()
        if name.startswith(start)
    }
