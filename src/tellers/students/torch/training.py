"""Training of students: what they learn from, how they are checked, and the average that they are.

A student says what is lost at a step; everything else is here and in `tellers.nn.loop`. All that is random
comes from torch's generators, seeded here and put back afterwards, so the same seed gives the same student on
a CPU, also where training was cut short and went on from a checkpoint. On a GPU the last digits may differ
from run to run.

Validation may look at two things alone: released labels that are held out, and rows that the caller declares
public. A student that was chosen by private labels would be a release that nobody charged.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ...nn.checkpoints import Checkpoint
from ...nn.devices import gpu_arithmetic, seeded
from ...nn.estimator import row_shape
from ...nn.loop import LOST, Checks, Course, GradientStep, Progress, Turn, half_cosine, train
from ...nn.losses import Loss
from ...nn.networks import Shape, batch_norms, without_dropout
from ...nn.views import WEAK, Views
from ...nn.weights import state_arrays

Precision = Literal["auto", "float32", "bfloat16"]
_N_SETTLING, _AT_ONCE = 16, 256


@dataclass(frozen=True, eq=False, repr=False)
class PublicRows:
    """Rows and labels that the caller declares public: nobody's privacy hangs on them.

    >>> PublicRows([[0.0], [1.0]], [0, 1])
    PublicRows(2 rows)
    """

    X: ArrayLike
    y: ArrayLike

    def __repr__(self) -> str:
        return f"PublicRows({len(np.asarray(self.y))} rows)"


Validation = Literal["released"] | PublicRows | None


def check_validation(validation: Any) -> None:
    """Refuse anything to validate on that is neither released nor declared public."""
    if validation is None or isinstance(validation, PublicRows):
        return
    if isinstance(validation, str) and validation == "released":
        return
    shown = repr(validation) if isinstance(validation, str) else type(validation).__name__
    raise TypeError(
        f'Expected validation="released" or PublicRows(X, y), got {shown}. Stopping early by private labels '
        "would be a release that nobody charged: hold out released labels, or declare the rows public."
    )


def hold_out(n: int, share: float, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of n released labels are learned from and which are held out, in their order."""
    n_checked = max(1, round(share * n))
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[n_checked:]), np.sort(order[:n_checked])


def student_shape(shape: Shape, *, image_shape: Shape | None, squares: bool) -> Shape:
    """Return the shape in which a student's network gets one row of a table of some shape."""
    own = row_shape(shape, image_shape=image_shape, squares=squares)
    if len(own) > 3:
        raise ValueError(f"Expected flat rows, or images (channels, height, width), got rows of shape {own}.")
    return own


@dataclass(frozen=True, eq=False)
class StudentBatch:
    """Rows of one step, and how far training has come, from 0 to 1."""

    rows: Tensor
    targets: Tensor
    pool: Tensor
    share: float


@dataclass(frozen=True, eq=False)
class StudentRows:
    """What a student learns from, on its device; `pool` has no labels, `checked` is what is validated on."""

    rows: Tensor
    targets: Tensor
    pool: Tensor
    checked: tuple[Tensor, Tensor] | None = None
    n_labelled: int = 64
    n_pool: int = 256

    def draw(self, share: float) -> StudentBatch:
        """Return a batch, drawn with replacement by torch's generator of the device."""
        device = self.rows.device
        chosen = torch.randint(len(self.rows), (self.n_labelled,), device=device)
        pool = self.pool
        if len(pool):
            pool = pool[torch.randint(len(pool), (self.n_pool,), device=device)]
        return StudentBatch(self.rows[chosen], self.targets[chosen], pool, share)

    @property
    def inputs(self) -> Tensor:
        """Return the rows that statistics of inputs are measured on: the pool, or else the labelled rows."""
        return self.pool if len(self.pool) else self.rows


@dataclass(frozen=True, eq=False)
class StudentRun:
    """One training of a student, as its losses see it.

    `average` is the running average of the network. `memory` holds tensors beside weights that change from
    step to step; they are updated in place.
    """

    network: nn.Module
    average: nn.Module
    known: StudentRows
    views: Views
    loss: Loss
    shape: Shape
    seed: int
    memory: dict[str, Tensor]

    def told(self, answers: Tensor, batch: StudentBatch) -> Tensor:
        """Return the loss of answers to the labelled rows of a batch."""
        return self.loss(answers.float(), batch.targets, share=batch.share)


def ramp_up(share: float, ramp: float) -> float:
    """Return how much of the unlabelled loss counts, from 0 to 1 over the first `ramp` of the steps."""
    return min(1.0, share / ramp) if ramp else 1.0


# --- Training ---


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast: one cycle of the learning rate, an averaged copy, when to check and to stop."""

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
        return peak * max(1e-4, half_cosine(min(1.0, done), 1.0))

    def decay(self, step: int) -> float:
        """Return how much of the average stays at a step.

        At first it is the mean of all steps so far, and it never reaches back more than a tenth of all steps:
        a short training would keep its beginning otherwise.
        """
        return min(self.average, 1 - 1 / (step + 2), max(0.0, 1 - 10 / self.steps))


def train_student(
    make_turns: Callable[[nn.Module], Sequence[Turn]],
    network: nn.Module,
    known: StudentRows,
    *,
    views: Views,
    losses: Callable[[Tensor, Tensor], Tensor],
    schedule: Schedule,
    seed: int,
    memory: Mapping[str, Tensor] | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Course:
    """Train a network; the best state of the course is that of its running average.

    `make_turns` is handed the averaged copy, which some losses look at, and returns the updates of a step,
    the network's own first; `losses` gives the loss of each validated row. Without rows to check on, the best
    state is the last one.
    """
    device, n_steps = known.rows.device, schedule.steps
    _placed(network, device).train()
    average = _Average(copy.deepcopy(network).requires_grad_(False), known, views)
    exact = schedule.precision == "float32"
    mixed = schedule.precision == "bfloat16" or (schedule.precision == "auto" and device.type == "cuda")
    with seeded(seed, device), gpu_arithmetic(device, exact=exact, benchmark=True):
        turns = make_turns(average.network)
        for turn in turns:
            _placed(turn.module, device).train()
        gradient = GradientStep(
            turns, device, draw=lambda number: known.draw(number / n_steps), rate=schedule.rate,
            optimizer=lambda turn: torch.optim.AdamW(
                turn.module.parameters(), schedule.learning_rate, betas=(turn.first_beta, 0.999),
                weight_decay=schedule.weight_decay, fused=device.type == "cuda",
            ),
            mixed=mixed, beside={"average": average.network}, memory=memory,
        )  # fmt: skip

        def step(number: int) -> Tensor:
            loss = gradient(number)
            average.follow(network, schedule.decay(number))
            return loss

        checks = Checks(
            every=schedule.check_every, patience=schedule.patience, state=average.state,
            loss=lambda: average.check(losses),
        )  # fmt: skip
        course = train(
            step, n_steps, device=device, checks=None if known.checked is None else checks,
            saved=gradient, checkpoint=checkpoint, progress=progress, progress_every=max(1, n_steps // 100),
        )  # fmt: skip
        if not course.is_finite:
            raise ValueError(LOST)
        if known.checked is None:
            average.settle()
            course.best, course.best_step = average.state(), course.step
    return course


@dataclass(frozen=True, eq=False)
class _Average:
    """The running average of a network's weights: what the student will be."""

    network: nn.Module
    known: StudentRows
    views: Views

    @torch.no_grad()
    def follow(self, network: nn.Module, decay: float) -> None:
        kept, new = self.network.state_dict(), network.state_dict()
        moving = [name for name, value in kept.items() if value.is_floating_point()]
        torch._foreach_lerp_([kept[name] for name in moving], [new[name] for name in moving], 1 - decay)

    @torch.no_grad()
    def settle(self) -> None:
        """Measure the batch norms anew, on weak views, like what it will be asked."""
        layers = batch_norms(self.network)
        rows, before = self.known.inputs, [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean of all batches
        without_dropout(self.network)
        for _ in range(_N_SETTLING if layers else 0):
            chosen = torch.randint(len(rows), (_AT_ONCE,), device=rows.device)
            self.network(self.views.see(rows[chosen], WEAK))
        for layer, momentum in zip(layers, before):
            layer.momentum = momentum

    @torch.no_grad()
    def check(self, losses: Callable[[Tensor, Tensor], Tensor]) -> float:
        assert self.known.checked is not None
        rows, targets = self.known.checked
        self.settle()
        self.network.eval()
        found = [
            losses(self.network(rows[start : start + _AT_ONCE]).float(), targets[start : start + _AT_ONCE])
            for start in range(0, len(rows), _AT_ONCE)
        ]
        self.network.train()
        return float(torch.cat(found).mean())

    def state(self) -> dict[str, NDArray[Any]]:
        return state_arrays(self.network.state_dict())


def _placed(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module to its device; images have their channels last on a GPU, where that halves a step."""
    placed: nn.Module = module.to(device)
    if device.type == "cuda":
        placed.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed
