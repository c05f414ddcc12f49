"""The training loop: steps, checks on rows held out, checkpoints and progress.

Teachers, students and networks of spectrograms are all trained by `train`. What differs is passed in: the
step (`GradientStep` with turns that bring their losses, or one step of many networks at once) and the checks.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import reduce
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


Step = Callable[[int], Tensor]
Progress = Callable[[int, int], object]

LOST = (
    "Expected a loss that is a finite number, got another. Scale the features to about one, or take a "
    "smaller learning_rate."
)


def half_cosine(done: float, total: float) -> float:
    """Return the share of the learning rate that is left: from 1 at the beginning to 0 at the end."""
    return 0.5 * (1 + math.cos(math.pi * done / total))


@dataclass(frozen=True, eq=False)
class Turn:
    """One update of a step: whose weights are moved, what is lost, and how fast it learns beside others."""

    module: nn.Module
    loss: Callable[[Any], Tensor]
    rate: float = 1.0
    first_beta: float = 0.9


class GradientStep:
    """The ordinary step: draw a batch, and let every turn follow the gradient of its loss.

    A checkpoint remembers what that changes: the turns, modules `beside` them, a `memory` of tensors, and the
    generators.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        device: torch.device,
        *,
        draw: Callable[[int], Any],
        rate: Callable[[int], float],
        optimizer: Callable[[Turn], torch.optim.Optimizer],
        mixed: bool = False,
        beside: Mapping[str, nn.Module] | None = None,
        memory: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.turns, self.device, self.draw, self.rate = turns, device, draw, rate
        self.optimizers = [optimizer(turn) for turn in turns]
        self.mixed_on = device.type if mixed else None
        self.modules = {**(beside or {}), **{f"module/{i}": turn.module for i, turn in enumerate(turns)}}
        self.memory = memory or {}

    def __call__(self, number: int) -> Tensor:
        """Take the step of a number and return what was lost in it."""
        batch, losses = self.draw(number), []
        for turn, optimizer in zip(self.turns, self.optimizers):
            for group in optimizer.param_groups:
                group["lr"] = turn.rate * self.rate(number)
            with mixed_precision(self.mixed_on):
                loss = turn.loss(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.detach())
        return reduce(torch.add, losses)

    def arrays(self) -> Arrays:
        arrays = {**_pack("memory", self.memory), "random/cpu": torch.get_rng_state().numpy()}
        if self.device.type == "cuda":
            arrays["random/device"] = torch.cuda.get_rng_state(self.device).numpy()
        for name, module in self.modules.items():
            arrays |= _pack(name, _tensors(module))
        for number, optimizer in enumerate(self.optimizers):
            for weight, state in optimizer.state_dict()["state"].items():
                arrays |= _pack(f"optimizer/{number}/{weight}", state)
        return arrays

    @torch.no_grad()
    def restore(self, arrays: Arrays) -> None:
        for name, value in _unpack("memory", arrays).items():
            self.memory[name].copy_(value)
        for name, module in self.modules.items():
            own = _tensors(module)
            for tensor, value in _unpack(name, arrays).items():
                own[tensor].copy_(value)
        for number, optimizer in enumerate(self.optimizers):
            _restore_optimizer(optimizer, _unpack(f"optimizer/{number}", arrays))
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


def mixed_precision(device_type: str | None) -> "torch.autocast | nullcontext[None]":
    """Return a context that computes in bfloat16 on a kind of device, or in full precision for None."""
    if device_type is None:
        return nullcontext()
    # Without the cache: weights that were first used under no_grad would be remembered as constants, and a
    # CUDA graph would not see them cast again.
    return torch.autocast(device_type, torch.bfloat16, cache_enabled=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Checks:
    """How a training looks at itself on the way: how often, at what, and when it stops.

    `loss` is that of rows which are not learned from (None where there are none), and `state` what is kept if
    it is the smallest so far. After `patience` checks without a smaller one the training stops; 0 is never.
    `report` is told the step, the mean loss since the last check, and that of the rows held out.
    """

    every: int
    state: Callable[[], Arrays]
    loss: Callable[[], float] | None = None
    patience: int = 0
    report: Callable[[int, float, float], object] | None = None


@dataclass(eq=False)
class Course:
    """How far a training has come, and the best state so far; `finite` says whose losses were numbers."""

    finite: Tensor
    summed: Tensor
    n_summed: int = 0
    step: int = 0
    n_waited: int = 0
    best: Arrays = field(default_factory=dict)
    best_loss: float = math.inf
    best_step: int = 0
    history: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def is_finite(self) -> bool:
        return bool(self.finite.all())

    def check(self, checks: Checks) -> None:
        """Look at the rows held out, and keep the state if it is the best so far."""
        learned = float(self.summed) / max(1, self.n_summed)
        self.summed.zero_()
        self.n_summed = 0
        held = math.nan if checks.loss is None else checks.loss()
        self.history.append((self.step, learned, held))
        self.n_waited += 1
        if held < self.best_loss:
            self.best, self.best_loss, self.best_step, self.n_waited = checks.state(), held, self.step, 0
        if checks.report is not None:
            checks.report(self.step, learned, held)

    def arrays(self) -> Arrays:
        return {
            **{f"best/{name}": values for name, values in self.best.items()},
            COUNTS: np.array([self.step, self.n_waited, self.best_step]),
            "best_loss": np.array(self.best_loss),
            "sum": np.array([float(self.summed), self.n_summed]),
            "history": np.array(self.history, dtype=np.float64).reshape(-1, 3),
        }

    def restore(self, arrays: Arrays) -> None:
        self.best = {name[5:]: values for name, values in arrays.items() if name.startswith("best/")}
        self.step, self.n_waited, self.best_step = (int(count) for count in arrays[COUNTS])
        self.best_loss = float(arrays["best_loss"])
        if "sum" in arrays:  # earlier versions did not keep these of students
            self.summed.fill_(float(arrays["sum"][0]))
            self.n_summed = int(arrays["sum"][1])
            self.history = [(int(at), float(own), float(held)) for at, own, held in arrays["history"]]


def train(
    step: Step,
    n_steps: int,
    *,
    device: torch.device,
    checks: Checks | None = None,
    saved: GradientStep | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    progress_every: int = 1,
) -> Course:
    """Take so many steps, or fewer where checks say so or a loss is no number, and say how it went.

    With a `checkpoint` the training goes on from where it was `saved`.
    """
    course = Course(
        torch.ones((), dtype=torch.bool, device=device), torch.zeros((), dtype=torch.float32, device=device)
    )
    found = checkpoint.load() if checkpoint is not None else None
    if found is not None and saved is not None:
        saved.restore(found)
        course.restore(found)
    patience = checks.patience if checks is not None else 0
    while course.step < n_steps and not 0 < patience <= course.n_waited:
        loss = step(course.step)
        course.step += 1
        course.finite = course.finite & loss.isfinite()
        is_last = course.step == n_steps
        if checks is not None:
            course.summed += loss
            course.n_summed += 1
            if course.step % checks.every == 0 or is_last:
                course.check(checks)
                if not course.is_finite:
                    break
        if checkpoint is not None and saved is not None and (course.step % checkpoint.every == 0 or is_last):
            if not course.is_finite:
                break
            checkpoint.save({**saved.arrays(), **course.arrays()})
        if progress is not None and (course.step % progress_every == 0 or is_last):
            progress(course.step, n_steps)
    return course
