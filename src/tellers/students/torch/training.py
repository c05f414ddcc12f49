"""Training of students: what they learn from, how they are checked, and the average that they are.

A student says what is lost at a step; everything else is here and in `tellers.nn.loop`. All that is random
comes from torch's generators, seeded here and put back afterwards, so the same seed gives the same student on
a CPU, also where training was cut short and went on from a checkpoint. On a GPU the last digits may differ
from run to run.

Validation may look at two things alone: released labels that are held out, and rows that the caller declares
public. A student that was chosen by private labels would be a release that nobody charged.
"""

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ...errors import require_count, require_finite, require_fraction, require_positive
from ...nn.devices import find_device, gpu_arithmetic, seeded
from ...nn.estimator import TorchEstimator, drawn_seed, row_shape
from ...nn.loop import (
    LOST,
    Checkpoint,
    Checks,
    Course,
    GradientStep,
    Progress,
    Turn,
    fingerprint,
    half_cosine,
    train,
)
from ...nn.losses import ClassLoss, Handling, LabelLoss, Loss
from ...nn.networks import Factory, Shape, batch_norms, build_student_network, without_dropout
from ...nn.views import WEAK, Inputs, Views, views_for
from ...nn.weights import Arrays, state_arrays
from ...privacy._rows import class_ids, numeric_rows
from ...privacy.release import SILENT, Release
from ..fitting import released_labels, require_classes

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
    """One training: the network, and the running `average` of its weights, which the student will be.

    `memory` holds tensors beside weights that change from step to step; they are updated in place. Without
    labels there is no `loss`.
    """

    network: nn.Module
    average: nn.Module
    known: StudentRows
    views: Views
    loss: Loss | None
    shape: Shape
    seed: int
    memory: dict[str, Tensor] = field(default_factory=dict)

    def told(self, answers: Tensor, batch: StudentBatch) -> Tensor:
        """Return the loss of answers to the labelled rows of a batch."""
        assert self.loss is not None
        return self.loss(answers.float(), batch.targets, share=batch.share)

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """Draw the average towards the network."""
        kept, new = self.average.state_dict(), self.network.state_dict()
        moving = [name for name, value in kept.items() if value.is_floating_point()]
        torch._foreach_lerp_([kept[name] for name in moving], [new[name] for name in moving], 1 - decay)

    @torch.no_grad()
    def settle(self) -> None:
        """Measure the batch norms of the average anew, on weak views, like what it will be asked."""
        layers = batch_norms(self.average)
        rows, before = self.known.inputs, [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean of all batches
        without_dropout(self.average)
        for _ in range(_N_SETTLING if layers else 0):
            chosen = torch.randint(len(rows), (_AT_ONCE,), device=rows.device)
            self.average(self.views.see(rows[chosen], WEAK))
        for layer, momentum in zip(layers, before):
            layer.momentum = momentum

    @torch.no_grad()
    def check(self) -> float:
        """Return the loss of the average on the rows to validate on."""
        assert self.known.checked is not None
        assert self.loss is not None
        rows, targets = self.known.checked
        self.settle()
        self.average.eval()
        found = [
            self.loss.rows(self.average(rows[at : at + _AT_ONCE]).float(), targets[at : at + _AT_ONCE])
            for at in range(0, len(rows), _AT_ONCE)
        ]
        self.average.train()
        return float(torch.cat(found).mean())

    def state(self) -> Arrays:
        return state_arrays(self.average.state_dict())


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
    make_turns: Callable[[StudentRun], Sequence[Turn]],
    network: nn.Module,
    known: StudentRows,
    *,
    views: Views,
    loss: Loss | None,
    shape: Shape,
    schedule: Schedule,
    seed: int,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Course:
    """Train a network; the best state of the course is that of its running average.

    `make_turns` returns the updates of a step, the network's own first. Without rows to check on, the best
    state is the last one.
    """
    device, n_steps = known.rows.device, schedule.steps
    _placed(network, device).train()
    average = copy.deepcopy(network).requires_grad_(False)
    run = StudentRun(network, average, known, views, loss, shape, seed)
    exact = schedule.precision == "float32"
    mixed = schedule.precision == "bfloat16" or (schedule.precision == "auto" and device.type == "cuda")
    with seeded(seed, device), gpu_arithmetic(device, exact=exact, benchmark=True):
        turns = make_turns(run)
        for turn in turns:
            _placed(turn.module, device).train()
        gradient = GradientStep(
            turns, device, draw=lambda number: known.draw(number / n_steps), rate=schedule.rate,
            optimizer=lambda turn: torch.optim.AdamW(
                turn.module.parameters(), schedule.learning_rate, betas=(turn.first_beta, 0.999),
                weight_decay=schedule.weight_decay, fused=device.type == "cuda",
            ),
            mixed=mixed, beside={"average": average}, memory=run.memory,
        )  # fmt: skip

        def step(number: int) -> Tensor:
            loss = gradient(number)
            run.follow(schedule.decay(number))
            return loss

        checks = Checks(
            every=schedule.check_every, patience=schedule.patience, state=run.state, loss=run.check
        )
        course = train(
            step, n_steps, device=device, checks=None if known.checked is None else checks,
            saved=gradient, checkpoint=checkpoint, progress=progress, progress_every=max(1, n_steps // 100),
        )  # fmt: skip
        if not course.is_finite:
            raise ValueError(LOST)
        if known.checked is None:
            run.settle()
            course.best, course.best_step = run.state(), course.step
    return course


def _placed(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module to its device; images have their channels last on a GPU, where that halves a step."""
    placed: nn.Module = module.to(device)
    if device.type == "cuda":
        placed.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed


_ROWS_AT_ONCE = 512
_INPUTS = "inputs."


@dataclass(kw_only=True, eq=False, repr=False)
class TorchStudent(TorchEstimator, ABC):
    """A student that learns from few released labels and many public rows without one.

    `network` is "cnn" (five convolutions), "mlp" (two hidden layers), "auto" (the one that suits the rows),
    or a function without arguments that returns a new `torch.nn.Module`; `width` scales the named ones.
    `image_shape`, (height, width) or (height, width, channels), says how flat rows make images. `views` are
    `ImageViews`, `RowViews`, or a table of their settings.

    `steps` batches of `batch_size` labelled and `pool_batch_size` unlabelled rows are learned from, at a
    learning rate that goes up to `learning_rate` and down again. The student is the running average of the
    weights, with `average` as its memory, over a tenth of the steps at most. `weight` scales the loss of
    unlabelled rows, which grows from nothing over the first `ramp` of the steps; with 0 none are needed, and
    what is left is the supervised counterpart.

    `label_noise` is the chance that a label is wrong, or a confusion matrix; `noise_handling` and `smoothing`
    say what follows. `holdout` is the share of released labels that `validation="released"` sets aside;
    checks come every `check_every` steps, and after `patience` of them without a better one training stops.

    `test_views` weak views are averaged with the row itself in `predict`. `precision` is "bfloat16" on a GPU
    unless said otherwise. `n_classes` declares classes 0..n_classes-1. Everything random comes from
    `random_state`.
    """

    _fitted_by: ClassVar[str] = "fit(X, y, X_unlabelled)"
    _takes_images: ClassVar[bool] = False
    _kept: ClassVar[tuple[str, ...]] = ("classes", "shape")
    _loss: ClassVar[type[ClassLoss] | type[LabelLoss]] = ClassLoss

    network: str | Factory = "auto"
    width: int = 32
    steps: int = 2000
    batch_size: int = 64
    pool_batch_size: int = 256
    learning_rate: float = 4e-3
    weight_decay: float = 2e-3
    average: float = 0.996
    weight: float = 1.0
    ramp: float = 0.25
    views: Views | Mapping[str, Any] | None = None
    label_noise: float | ArrayLike = 0.0
    noise_handling: Handling = "forward"
    smoothing: float = 0.1
    holdout: float = 0.2
    check_every: int = 100
    patience: int = 0
    test_views: int = 0
    precision: Precision = "auto"
    device: str = "auto"
    image_shape: Shape | None = None
    n_classes: int | None = None
    random_state: int | None = None

    @abstractmethod
    def _turns(self, run: StudentRun) -> Sequence[Turn]:
        """Check the settings of its own, and return the updates of a step, that of the network first."""

    def _read_labels(self, y: Any, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what was told of each row, SILENT or the place of its class, and the classes."""
        labels = released_labels(y, n_rows=n_rows)
        told = labels != SILENT
        self._require_enough(labels[told])
        if self.n_classes is None:
            classes = np.unique(labels[told])
        else:
            require_count(2, n_classes=self.n_classes)
            classes = np.arange(int(self.n_classes))
            class_ids(labels[told], n_classes=len(classes))
        return np.where(told, np.searchsorted(classes, labels), SILENT), classes

    def _require_enough(self, labels: NDArray[np.int64]) -> None:
        require_classes(labels)

    @staticmethod
    def _probabilities(answers: Tensor) -> Tensor:
        return answers.softmax(1)

    def fit(
        self,
        X: ArrayLike,
        y: Release | ArrayLike,
        X_unlabelled: ArrayLike | None = None,
        *,
        validation: Validation = None,
        folder: str | PathLike[str] | None = None,
        save_every: int = 500,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from released labels and from public rows without one.

        Rows whose label is SILENT count as unlabelled. `validation` is "released" (labels held out), or
        `PublicRows(X, y)`; the best check is kept. `folder` keeps a checkpoint, from which the same training
        goes on, and needs `random_state`; `progress(done, total)` is told of steps.

        Guarantee: whatever the student says later costs nothing more than the release did (post-processing).
        Assumes:   all rows are public, and the labels were released by a mechanism that was charged.
        Reference: Papernot et al. 2017, section 2 (the student); Dwork and Roth 2014, Proposition 2.1.
        """
        check_validation(validation)
        require_count(save_every=save_every)
        seed, device = self._checked(), find_device(self.device)
        rows = numeric_rows(X)
        labels, classes = self._read_labels(y, len(rows))
        answered = np.flatnonzero((labels.reshape(len(labels), -1) != SILENT).any(axis=1))
        shape = student_shape(rows.shape, image_shape=self.image_shape, squares=self.network == "cnn")
        tables = [self.as_rows(rows, shape)]
        if X_unlabelled is not None and len(np.asarray(X_unlabelled)):
            tables.append(self.as_rows(numeric_rows(X_unlabelled), shape))
        elif self.weight and answered.size == len(rows):
            raise ValueError(
                "Expected rows without a label to learn from too, got none: neither X_unlabelled nor silent "
                "rows. Pass the public pool as X_unlabelled, or set weight=0 to learn from labels alone."
            )
        loss: Loss = self._loss.made(
            self.label_noise, self.noise_handling, smoothing=self.smoothing, n_outputs=len(classes),
            device=device,
        )  # fmt: skip
        inputs = Inputs.measured(tables)
        everything = inputs.tensor(np.concatenate(tables), device)
        learned, checked = answered, None
        seen: list[NDArray[Any]] = [labels]
        how = "public" if isinstance(validation, PublicRows) else validation
        if validation == "released":
            chosen, held = hold_out(answered.size, self.holdout, seed=seed)
            learned, held = answered[chosen], answered[held]
            self._require_enough(labels[learned])
            checked = everything[held], _targets(loss, labels[held], device)
        elif isinstance(validation, PublicRows):
            public = self.as_rows(numeric_rows(validation.X), shape)
            truth = self._places(validation.y, classes, n_rows=len(public))
            checked, seen = (
                (inputs.tensor(public, device), _targets(loss, truth, device)),
                [labels, public, truth],
            )
        known = StudentRows(
            everything[learned], _targets(loss, labels[learned], device),
            everything if self.weight else everything[:0], checked, int(self.batch_size),
            int(self.pool_batch_size),
        )  # fmt: skip
        checkpoint = None
        network = self._new_network(shape, len(classes), seed=seed)
        if folder is not None:
            if self.random_state is None:
                raise ValueError(
                    "Expected random_state for a training with a checkpoint, got None. Without a seed other "
                    "labels would be held out when it goes on: set random_state."
                )
            # Two functions of one name may make networks that begin with other weights.
            begun = [value.cpu().numpy() for value in network.state_dict().values()]
            made_of = fingerprint({**self._settings(), "validation": how}, *tables, *seen, *begun)
            checkpoint = Checkpoint(Path(folder), made_of, int(save_every))
        course = train_student(
            self._turns, network, known, views=views_for(self.views, shape), loss=loss, shape=shape,
            schedule=self._schedule(), seed=seed, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
        self.classes_, self.shape_, self.n_steps_ = classes, shape, course.best_step
        self.checked_ = None if checked is None else course.best_loss
        scales = {_INPUTS + "centre": inputs.centre, _INPUTS + "scale": inputs.scale}
        self.state_ = {**course.best, **scales}
        self._network = None
        return self

    def _new_network(self, shape: Shape, n_outputs: int, *, seed: int) -> nn.Module:
        return build_student_network(
            self.network, shape, n_outputs=n_outputs, width=int(self.width), seed=seed
        )

    def _places(self, y: Any, classes: NDArray[np.int64], *, n_rows: int) -> NDArray[np.int64]:
        labels = released_labels(y, n_rows=n_rows)
        if not np.isin(labels, classes).all():
            raise ValueError(
                "Expected validation labels among the classes that are learned, got others. Declare "
                "n_classes."
            )
        return np.searchsorted(classes, labels)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each of `classes_` for every row."""
        self._check_fitted()
        network, device = self._fitted_network(), find_device(self.device)
        rows = self.as_rows(numeric_rows(X), self.shape_)
        inputs = Inputs(self.state_[_INPUTS + "centre"], self.state_[_INPUTS + "scale"])
        views, parts = views_for(self.views, self.shape_), []
        with torch.no_grad():
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                batch = inputs.tensor(rows[start : start + _ROWS_AT_ONCE], device)
                seen = [self._probabilities(network(batch).double())]
                for number in range(int(self.test_views)):
                    seen.append(self._probabilities(network(views.fixed(batch, number)).double()))
                parts.append(torch.stack(seen).mean(0).cpu().numpy())
        return np.concatenate(parts)

    def _weights(self) -> Arrays:
        return {name: values for name, values in self.state_.items() if not name.startswith(_INPUTS)}

    def _schedule(self) -> Schedule:
        return Schedule(
            steps=int(self.steps), learning_rate=self.learning_rate, weight_decay=self.weight_decay,
            average=self.average, precision=self.precision, check_every=int(self.check_every),
            patience=int(self.patience),
        )  # fmt: skip

    def _checked(self) -> int:
        """Check the settings and return the seed."""
        require_count(steps=self.steps, width=self.width, check_every=self.check_every)
        require_count(
            2, batch_size=self.batch_size, pool_batch_size=self.pool_batch_size
        )  # batch norm needs two
        require_count(0, patience=self.patience, test_views=self.test_views)
        require_positive(learning_rate=self.learning_rate)
        require_fraction(average=self.average, holdout=self.holdout)
        for name in ("weight_decay", "weight", "ramp"):
            require_finite(**{name: getattr(self, name)})
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} >= 0, got {name}={getattr(self, name)!r}.")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"Expected 0 <= smoothing < 1, got smoothing={self.smoothing!r}.")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"Expected precision 'auto', 'float32' or 'bfloat16', got {self.precision!r}.")
        return drawn_seed(self.random_state)

    def _settings(self) -> dict[str, Any]:
        """Return what decides the result of training, in a form that is the same tomorrow."""
        own = {name: value for name, value in self.get_params().items() if name != "test_views"}
        if not isinstance(self.network, str):
            own["network"] = getattr(self.network, "__qualname__", type(self.network).__name__)
        own["label_noise"] = np.asarray(self.label_noise).tolist()
        return {"student": type(self).__name__, **own}

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if repr(getattr(self, field.name)) != repr(field.default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def _targets(loss: Loss, labels: NDArray[np.int64], device: torch.device) -> Tensor:
    return loss.targets(torch.as_tensor(labels, device=device))
