"""Training on log-Mel spectrograms: balanced batches, mixup, class weights, and stopping in time.

Rows stay where they are, on disk if they are mapped from there; only a batch at a time goes to the device.
Rows that are held out to stop in time are taken from the very rows given: a teacher looks at its own alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ..errors import MissingExtra, require_count, require_positive
from ..privacy._rows import label_table
from ..privacy.release import SILENT
from .checkpoints import Checkpoint
from .devices import seeded
from .loop import Checks, Course, GradientStep, Progress, Turn, half_cosine, train
from .losses import class_weights, told_loss
from .weights import load_arrays, state_arrays

Integers = NDArray[np.int64]
Prepare = Callable[[NDArray[Any]], NDArray[np.float32]]
_AT_ONCE = 16  # what lies in a processor's own memory is faster than more at a time
_CHECKED_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class AudioRecipe:
    """How a network is trained: Adam, whose rate falls along half a cosine, for so many batches.

    `held_out` is the share of the rows that are not learned from but looked at every `check_every` batches:
    the network is the one whose loss was smallest there, and after `patience` looks without a better one the
    training stops (0: it goes on to the end).

    Reference: the thesis on private audio tagging, sections 4.4 and 5.1.3 (rate 1e-4, batches of 64).
    """

    iterations: int
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    balanced: bool = True
    mixup: "Mixup | None" = None
    weight_bounds: tuple[float, float] | None = None
    held_out: float = 0.0
    check_every: int = 50
    patience: int = 0

    def __post_init__(self) -> None:
        require_count(iterations=self.iterations, check_every=self.check_every)
        require_count(2, batch_size=self.batch_size)  # batch norm has nothing to go by in one row
        require_count(0, patience=self.patience)
        require_positive(learning_rate=self.learning_rate)
        if not 0 <= self.held_out < 1:
            raise ValueError(f"Expected held_out as a share from 0 to below 1, got {self.held_out!r}.")
        if self.patience and not self.held_out:
            raise ValueError(
                f"Expected held_out > 0 with patience={self.patience}: without rows held out nobody can say "
                "when to stop. Give held_out=0.1, or leave patience out."
            )

    def rate(self, step: int) -> float:
        """Return the learning rate of one step."""
        return self.learning_rate * half_cosine(step, self.iterations)


def split_rows(n_rows: int, held_out: float, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to learn from and those held out, at least one and two to learn from."""
    if held_out == 0:
        return np.arange(n_rows), np.empty(0, dtype=np.int64)
    if n_rows < 3:
        raise ValueError(f"Expected at least 3 rows to hold some out, got {n_rows}. Leave held_out at 0.")
    n_held = min(max(1, round(held_out * n_rows)), n_rows - 2)
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))).permutation(n_rows)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def train_network(
    network: nn.Module,
    batches: "SoundBatches",
    *,
    checkpoint: Checkpoint | None = None,
    board: "Board | None" = None,
    progress: Progress | None = None,
) -> Course:
    """Train a network on its batches, as their recipe says."""
    recipe, device = batches.recipe, batches.device
    network = laid_out(network.to(device)).train()
    step = GradientStep(
        [Turn(network, lambda batch: batches.loss(network, *batch))], draw=batches.draw, rate=recipe.rate,
        optimizer=lambda turn: torch.optim.Adam(
            [weight for weight in turn.module.parameters() if weight.requires_grad], recipe.learning_rate,
            weight_decay=recipe.weight_decay, fused=device.type == "cpu",
        ),
    )  # fmt: skip

    def report(at: int, learned: float, held: float) -> None:
        if board is not None:
            board.add_scalar("loss/learned from", learned, at)
            board.add_scalar("learning rate", recipe.rate(at), at)
            if batches.held.size:
                board.add_scalar("loss/held out", held, at)

    checks = Checks(
        every=recipe.check_every, state=lambda: state_arrays(network.state_dict()),
        loss=(lambda: batches.held_loss(network)) if batches.held.size else None, patience=recipe.patience,
        report=report,
    )  # fmt: skip
    # A network may draw numbers of its own: then from this seed, and what others draw is not disturbed.
    with seeded(batches.seed, device):
        course = train(
            step, recipe.iterations, device=device, checks=checks, snapshot=step.snapshot(device),
            checkpoint=checkpoint, progress=progress, progress_every=recipe.check_every,
        )  # fmt: skip
    if not course.best:
        course.best, course.best_step = checks.state(), course.step
    return course


class SoundBatches:
    """The batches of one network: whose turn it is, mixed as the recipe says, and the rows held out.

    Labels are 1, 0 and SILENT; `prepare` makes the network's input of rows.
    """

    def __init__(
        self,
        X: NDArray[Any],
        Y: Integers,
        recipe: AudioRecipe,
        *,
        seed: int,
        device: torch.device,
        prepare: Prepare,
    ) -> None:
        self.X, self.Y, self.recipe, self.prepare = X, Y, recipe, prepare
        self.seed, self.device = seed, device
        self.own, self.held = split_rows(len(X), recipe.held_out, seed=seed)
        self.stream: BalancedRows | ShuffledRows
        if recipe.balanced:
            self.stream = BalancedRows(Y[self.own], seed=seed)
        else:
            self.stream = ShuffledRows(len(self.own), seed=seed)
        self.generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        self.n_drawn = 0
        self.weights: Tensor | None = None
        if recipe.weight_bounds is not None:
            low, high = recipe.weight_bounds
            found = class_weights(Y[self.own], lowest=low, highest=high)
            self.weights = torch.as_tensor(found, dtype=torch.float32, device=device)

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the rows and targets of a step."""
        # What was drawn before a checkpoint is drawn again: it costs nothing beside the steps themselves.
        while self.n_drawn < number:
            self._next()
        rows, kept = self._next()
        seen, targets = self._tensors(rows)
        if kept is not None:
            seen, targets = mix(seen, targets, weights=torch.from_numpy(kept).to(self.device))
        return seen, targets

    def _next(self) -> tuple[Integers, NDArray[np.float32] | None]:
        self.n_drawn += 1
        rows = self.own[self.stream.take(self.recipe.batch_size)]
        mixup = self.recipe.mixup
        return rows, None if mixup is None else mixup.draw(len(rows), self.generator)

    def _tensors(self, rows: Integers) -> tuple[Tensor, Tensor]:
        seen = torch.from_numpy(self.prepare(self.X[rows])).to(self.device)
        return seen, torch.from_numpy(self.Y[rows].astype(np.float32)).to(self.device)

    def loss(self, network: nn.Module, seen: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of rows and their targets."""
        return told_loss(network(seen), targets, weights=self.weights)

    @torch.no_grad()
    def held_loss(self, network: nn.Module) -> float:
        """Return the mean loss over what was told of the rows held out."""
        network.eval()
        total, n_told = 0.0, 0.0
        for start in range(0, self.held.size, _CHECKED_AT_ONCE):
            seen, targets = self._tensors(self.held[start : start + _CHECKED_AT_ONCE])
            told = float((targets >= 0).sum())
            total += float(self.loss(network, seen, targets)) * told
            n_told += told
        network.train()
        return total / n_told if n_told else math.inf


# --- The order in which a network sees its rows ---
#
# Both orders are endless, draw from one seed alone, and look at nothing but the rows they are given: a
# teacher's batches know of no other teacher's rows.


class ShuffledRows:
    """All rows in a random order, then all of them in another, and so on."""

    def __init__(self, n_rows: int, *, seed: int) -> None:
        require_count(n_rows=n_rows)
        self._deck = _Deck(np.arange(n_rows), np.random.default_rng(seed))

    def take(self, n_rows: int) -> Integers:
        """Return the next row numbers."""
        return np.array([self._deck.draw() for _ in range(n_rows)], dtype=np.int64)


class BalancedRows:
    """Rows drawn for one label after another, so that every label gets its turn equally often.

    Labels come in a random order, each once before any comes again; a label's turn shows the next of its own
    rows, each once before any comes again. A row has other labels too, so labels that accompany many others
    are still seen more often. Rows without any label are one more group with a turn of its own: a network
    that never heard nothing would hear something everywhere. A label that no row has gets no turn; what is
    not told (SILENT) does not count as a label.

    Guarantee: after n draws the turns of two groups differ by at most one, and so do the draws of two rows
               within one group's turns.
    Reference: the thesis on private audio tagging, section 4.4.2, which has no rows without a label.
    """

    def __init__(self, Y: ArrayLike, *, seed: int) -> None:
        given = np.asarray(Y)
        table = label_table(given, n_rows=len(given), silent=True) == 1
        self.n_labels = table.shape[1]
        rows = [np.flatnonzero(column) for column in table.T] + [np.flatnonzero(~table.any(axis=1))]
        order, own = np.random.SeedSequence(seed).spawn(2)
        generators = (np.random.default_rng(child) for child in own.spawn(len(rows)))
        self._rows = {
            group: _Deck(members, generator)
            for group, (members, generator) in enumerate(zip(rows, generators, strict=True))
            if members.size
        }
        self._groups = _Deck(np.array(list(self._rows)), np.random.default_rng(order))

    def draw(self, n_rows: int) -> tuple[Integers, Integers]:
        """Return the next row numbers, and whose turn each was; `n_labels` is that of rows without one."""
        turns = np.array([self._groups.draw() for _ in range(n_rows)], dtype=np.int64)
        return np.array([self._rows[int(turn)].draw() for turn in turns], dtype=np.int64), turns

    def take(self, n_rows: int) -> Integers:
        """Return the next row numbers."""
        return self.draw(n_rows)[0]


class _Deck:
    """Cards that are dealt to the last and then shuffled again."""

    def __init__(self, cards: Integers, generator: np.random.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._left: list[int] = []

    def draw(self) -> int:
        if not self._left:
            self._left = self._generator.permutation(self._cards).tolist()
        return self._left.pop()


# --- Mixup: two spectrograms become one, and so do their labels, in the same proportion ---


@dataclass(frozen=True)
class Mixup:
    """How much is mixed: `share` of the rows, in proportions from Beta(concentration, concentration).

    A share of one half is the thesis's: as many mixed rows as plain ones.

    Reference: the thesis on private audio tagging, section 4.4.3; Zhang et al. 2018.
    """

    concentration: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        require_positive(concentration=self.concentration)
        if not 0 <= self.share <= 1:
            raise ValueError(f"Expected a share of rows from 0 to 1, got share={self.share!r}.")

    def draw(self, n_rows: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Return how much of itself each row keeps: 1 where it is not mixed."""
        kept = generator.beta(self.concentration, self.concentration, n_rows)
        mixed = generator.random(n_rows) < self.share
        return np.where(mixed, kept, 1.0).astype(np.float32)


def mix(rows: Tensor, targets: Tensor, *, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return every row mixed with the next one of the batch, the last with the first, and targets alike.

    A label that is SILENT in one of two mixed rows is silent in the mixture: nobody knows what share it has.
    """
    kept = weights.view(-1, *[1] * (rows.dim() - 1))
    mixed = kept * rows + (1 - kept) * rows.roll(-1, 0)
    own, other, share = targets, targets.roll(-1, 0), weights[:, None]
    blended = share * own + (1 - share) * other
    unknown = (own < 0) | ((other < 0) & (share < 1))
    return mixed, torch.where(unknown, float(SILENT), torch.where(share < 1, blended, own))


# --- Answers of a trained network ---


@torch.no_grad()
def answer(
    factory: Callable[[], nn.Module],
    state: Mapping[str, NDArray[Any]],
    rows: NDArray[Any],
    *,
    prepare: Prepare,
    device: torch.device,
) -> NDArray[np.float64]:
    """Return the probability of every label, rows x labels, by a network with these weights."""
    network = laid_out(load_arrays(blank_network(factory), state).to(device).eval())
    said = [
        network(torch.from_numpy(prepare(rows[start : start + _AT_ONCE])).to(device)).double().sigmoid().cpu()
        for start in range(0, len(rows), _AT_ONCE)
    ]
    return np.asarray(torch.cat(said).numpy(), dtype=np.float64)


def laid_out(network: nn.Module) -> nn.Module:
    """Return a network with its weights in the order in which a CPU convolves and pools fastest."""
    if any(weight.device.type != "cpu" for weight in network.parameters()):
        return network
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def blank_network(factory: Callable[[], nn.Module]) -> nn.Module:
    """Return a network without numbers: none are drawn that are overwritten at once."""
    with torch.device("meta"):
        return factory()


# --- TensorBoard: its files hold losses of the rows that are learned from ---


class Board(Protocol):
    """Where numbers are written while a network learns, as TensorBoard's writer takes them."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""
        ...


def require_board(folder: str | PathLike[str] | None) -> None:
    """Refuse to log where TensorBoard is not installed, before anything is trained."""
    if folder is not None:
        _writer()


@contextmanager
def open_board(folder: str | PathLike[str] | None) -> "Iterator[Board | None]":
    """Open TensorBoard's files in a folder, and close them after; nothing where no folder is named.

    What a teacher writes there depends on its rows: the folder is as private as they are.
    """
    if folder is None:
        yield None
        return
    writer_of = _writer()
    Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    writer = writer_of(str(folder))
    try:
        yield writer
    finally:
        writer.close()


def _writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra(
            "Expected tensorboard for log_folder, found none: pip install 'tellers[tensorboard]', or leave "
            "log_folder out."
        ) from error
    return SummaryWriter
