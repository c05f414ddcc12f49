"""The loop that trains every student: steps, an averaged copy, checks, checkpoints.

A method says what is lost at a step; everything else is here, once. All that is random comes from torch's
generators, seeded here and put back afterwards, so the same seed gives the same student on a CPU, also where
training was cut short and went on from a checkpoint. On a GPU the last digits may differ from run to run.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from .checkpoints import Arrays, Checkpoint, pack, pack_optimizer, unpack, unpack_optimizer
from .lesson import Batch, Lesson
from .networks import batch_norms, without_dropout
from .views import WEAK, Views

Precision = Literal["auto", "float32", "bfloat16"]
Progress = Callable[[int, int], object]

LOST = (
    "Expected a loss that is a finite number, got another. Scale the features to about one, or take a "
    "smaller learning_rate."
)
_N_SETTLING, _AT_ONCE = 16, 256


@dataclass(frozen=True, eq=False)
class Turn:
    """One update of a step: whose weights are moved, what is lost, and how fast it learns beside others.

    >>> network = nn.Linear(2, 1)
    >>> Turn(network, lambda batch: network(batch.rows).square().mean()).rate
    1.0
    """

    module: nn.Module
    loss: Callable[[Batch], Tensor]
    rate: float = 1.0
    first_beta: float = 0.9


class Method(Protocol):
    """What a way of learning brings: its turns, the student's being the first, and what it remembers."""

    @property
    def turns(self) -> Sequence[Turn]:
        """Return the updates of one step, in their order."""

    @property
    def memory(self) -> dict[str, Tensor]:
        """Return tensors beside weights that change from step to step, updated in place."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long and how fast: one cycle of the learning rate, an averaged copy, when to check and to stop.

    >>> pace = Pace(steps=100, learning_rate=0.01)
    >>> [round(pace.rate(step), 5) for step in (0, 20, 60, 99)]
    [0.0004, 0.01, 0.0049, 0.0]
    >>> pace.decay(0), pace.decay(99), Pace(steps=5000).decay(4999)
    (0.5, 0.9, 0.996)
    """

    steps: int
    learning_rate: float = 4e-3
    weight_decay: float = 2e-3
    average: float = 0.996
    precision: Precision = "auto"
    check_every: int = 100
    patience: int = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: up in the first fifth, then down to nearly nothing."""
        peak, up = self.learning_rate, max(1, round(0.2 * self.steps))
        if step < up:
            return peak * (0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * step / up)))
        done = (step - up) / max(1, self.steps - 1 - up)
        return peak * max(1e-4, 0.5 * (1 + math.cos(math.pi * min(1.0, done))))

    def decay(self, step: int) -> float:
        """Return how much of the average stays at a step.

        At first it is the mean of all steps so far, and it never reaches back more than a tenth of all steps:
        a short training would keep its beginning otherwise.
        """
        return min(self.average, 1 - 1 / (step + 2), max(0.0, 1 - 10 / self.steps))


@dataclass(frozen=True, eq=False)
class Learned:
    """What came of training: the state of the averaged network, how many steps it took, its last check."""

    state: Arrays
    n_steps: int
    checked: float | None


def train(
    make_method: Callable[[nn.Module], Method],
    network: nn.Module,
    lesson: Lesson,
    *,
    views: Views,
    losses: Callable[[Tensor, Tensor], Tensor],
    pace: Pace,
    seed: int,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Learned:
    """Train a network by a method and return its average.

    `make_method` is handed the averaged copy, which some methods learn from; `losses` gives the loss of each
    validated row. Where rows to check on are given, the best average so far is what is returned.

    >>> from tellers.students.torch.label_loss import ClassLoss
    >>> from tellers.students.torch.networks import mlp
    >>> from tellers.students.torch.views import RowViews
    >>> rows, network = torch.randn(40, 2), mlp((2,), 2, width=2)
    >>> loss = ClassLoss.made(label_noise=0.0, handling="forward", smoothing=0.0, n_classes=2, device="cpu")
    >>> lesson = Lesson(rows, loss.targets((rows[:, 0] > 0).long()), torch.zeros(0, 2))
    >>> class Plain:
    ...     memory = {}
    ...     turns = (Turn(network, lambda b: loss(network(b.rows), b.targets, share=b.share)),)
    >>> learned = train(
    ...     lambda average: Plain(), network, lesson, views=RowViews(), losses=loss.rows, pace=Pace(steps=50),
    ...     seed=7,
    ... )
    >>> learned.n_steps, learned.state["head.bias"].shape
    (50, (2,))
    """
    device = lesson.rows.device
    _placed(network, device).train()
    average = copy.deepcopy(network).requires_grad_(False)
    with _seeded(seed, device), _arithmetic(device, pace.precision):
        training = _Training(make_method(average), network, average, lesson, views, losses, pace)
        found = checkpoint.load() if checkpoint else None
        if found is not None:
            training.restore(found)
        return training.run(checkpoint, progress)


class _Training:
    """One training as it goes on: everything a checkpoint holds is an attribute here."""

    def __init__(
        self,
        method: Method,
        network: nn.Module,
        average: nn.Module,
        lesson: Lesson,
        views: Views,
        losses: Callable[[Tensor, Tensor], Tensor],
        pace: Pace,
    ) -> None:
        self.method, self.network, self.average = method, network, average
        self.lesson, self.views, self.losses, self.pace = lesson, views, losses, pace
        self.device = lesson.rows.device
        for turn in method.turns:
            _placed(turn.module, self.device).train()
        self.optimizers = [
            torch.optim.AdamW(
                turn.module.parameters(), pace.learning_rate, betas=(turn.first_beta, 0.999),
                weight_decay=pace.weight_decay, fused=self.device.type == "cuda",
            )
            for turn in method.turns
        ]  # fmt: skip
        self.step = self.waited = 0
        self.best: Arrays = {}
        self.best_loss, self.best_step = math.inf, 0
        self.sane = torch.ones((), dtype=torch.bool, device=self.device)

    def run(self, checkpoint: Checkpoint | None, progress: Progress | None) -> Learned:
        n, pace = self.pace.steps, self.pace
        told = max(1, n // 100)
        while self.step < n and not self._is_over():
            self._take()
            self.step += 1
            if self.lesson.checked is not None and (self.step % pace.check_every == 0 or self.step == n):
                self._check()
            if checkpoint and (self.step % checkpoint.every == 0 or self.step == n):
                self._require_sane()
                checkpoint.save(self.packed())
            if progress and (self.step % told == 0 or self.step == n):
                progress(self.step, n)
        self._require_sane()
        if self.lesson.checked is not None:
            return Learned(self.best, self.best_step, self.best_loss)
        self._settle()
        return Learned(_arrays(self.average), self.step, None)

    def _take(self) -> None:
        batch = self.lesson.draw(self.step / self.pace.steps)
        for turn, optimizer in zip(self.method.turns, self.optimizers):
            for group in optimizer.param_groups:
                group["lr"] = turn.rate * self.pace.rate(self.step)
            # Without the cache: weights that were first used under no_grad would be remembered as constants.
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self._is_mixed(), cache_enabled=False
            ):
                loss = turn.loss(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            self.sane &= loss.detach().isfinite()
        _blend(self.average, self.network, self.pace.decay(self.step))

    def _is_mixed(self) -> bool:
        if self.pace.precision == "auto":
            return self.device.type == "cuda"
        return self.pace.precision == "bfloat16"

    def _is_over(self) -> bool:
        return 0 < self.pace.patience <= self.waited

    def _require_sane(self) -> None:
        if not self.sane:
            raise ValueError(LOST)

    @torch.no_grad()
    def _settle(self) -> None:
        """Measure the batch norms of the average anew, on weak views, like what it will be asked."""
        layers = batch_norms(self.average)
        rows, before = self.lesson.inputs, [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean of all batches
        without_dropout(self.average)
        for _ in range(_N_SETTLING if layers else 0):
            chosen = torch.randint(len(rows), (_AT_ONCE,), device=self.device)
            self.average(self.views.see(rows[chosen], WEAK))
        for layer, momentum in zip(layers, before):
            layer.momentum = momentum

    @torch.no_grad()
    def _check(self) -> None:
        assert self.lesson.checked is not None
        self._settle()
        self.average.eval()
        rows, targets = self.lesson.checked
        losses = [
            self.losses(
                self.average(rows[start : start + _AT_ONCE]).float(), targets[start : start + _AT_ONCE]
            )
            for start in range(0, len(rows), _AT_ONCE)
        ]
        loss = float(torch.cat(losses).mean())
        self.average.train()
        self.waited += 1
        if loss < self.best_loss:
            self.best, self.best_loss, self.best_step, self.waited = _arrays(self.average), loss, self.step, 0

    def packed(self) -> Arrays:
        """Return all that is needed to go on."""
        arrays: Arrays = {
            **pack("average", self.average.state_dict()),
            **pack("memory", self.method.memory),
            **{f"best/{name}": values for name, values in self.best.items()},
            "numbers": np.array([self.step, self.waited, self.best_step]),
            "best_loss": np.array(self.best_loss),
            "random/cpu": torch.get_rng_state().numpy(),
        }
        if self.device.type == "cuda":
            arrays["random/device"] = torch.cuda.get_rng_state(self.device).numpy()
        for number, (turn, optimizer) in enumerate(zip(self.method.turns, self.optimizers)):
            arrays |= pack(f"module/{number}", turn.module.state_dict())
            arrays |= pack_optimizer(f"optimizer/{number}", optimizer)
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Take up what `packed` returned."""
        self.average.load_state_dict(unpack("average", arrays))
        for name, value in unpack("memory", arrays).items():
            self.method.memory[name].copy_(value)
        for number, (turn, optimizer) in enumerate(zip(self.method.turns, self.optimizers)):
            turn.module.load_state_dict(unpack(f"module/{number}", arrays))
            unpack_optimizer(f"optimizer/{number}", arrays, optimizer)
        self.best = {name[5:]: values for name, values in arrays.items() if name.startswith("best/")}
        self.step, self.waited, self.best_step = (int(n) for n in arrays["numbers"])
        self.best_loss = float(arrays["best_loss"])
        torch.set_rng_state(torch.tensor(arrays["random/cpu"]))
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(torch.tensor(arrays["random/device"]), self.device)


def _placed(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module to its device; images have their channels last on a GPU, where that halves a step."""
    placed: nn.Module = module.to(device)
    if device.type == "cuda":
        placed.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed


def _arrays(network: nn.Module) -> Arrays:
    return {name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}


@torch.no_grad()
def _blend(average: nn.Module, network: nn.Module, decay: float) -> None:
    kept, new = average.state_dict(), network.state_dict()
    moving = [name for name, value in kept.items() if value.is_floating_point()]
    torch._foreach_lerp_([kept[name] for name in moving], [new[name] for name in moving], 1 - decay)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def _arithmetic(device: torch.device, precision: Precision) -> Iterator[None]:
    """Let a GPU round matrix products where that is wanted and pick its fastest kernels, and put it back."""
    if device.type != "cuda":
        yield
        return
    matmul, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.benchmark = benchmark
