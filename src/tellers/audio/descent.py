"""Training on log-Mel pictures: balanced batches, mixup, weights, a stop in time, and a place to go on from.

Rows stay where they are, on disk if they are mapped from there; only a batch at a time goes to the device.
Rows that are held out to stop in time are taken from the very rows given: a teacher looks at its own alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import require_count, require_positive
from ..students.torch.checkpoints import Checkpoint, pack, pack_optimizer, unpack, unpack_optimizer
from .answers import laid_out
from .batches import BalancedRows, RowStream, ShuffledRows
from .mixup import Mixup, mix
from .weights import class_weights, weighted_loss

Arrays = dict[str, NDArray[Any]]
Progress = Callable[[int, int], object]
_AT_ONCE = 64


class Board(Protocol):
    """Where numbers are written while a network learns, as TensorBoard's writer takes them."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""
        ...


@dataclass(frozen=True, kw_only=True)
class AudioRecipe:
    """How a network is trained: Adam, whose rate falls along half a cosine, for so many batches.

    `held_out` is the share of the rows that are not learned from but looked at every `check_every` batches:
    the network is the one whose loss was smallest there, and after `patience` looks without a better one the
    training stops (0: it goes on to the end).

    Reference: the thesis on private audio tagging, sections 4.4 and 5.1.3 (rate 1e-4, batches of 64).

    >>> AudioRecipe(iterations=100, batch_size=64, learning_rate=1e-3).rate(50)
    0.0005
    >>> AudioRecipe(iterations=100, patience=3)
    Traceback (most recent call last):
        ...
    ValueError: Expected held_out > 0 with patience=3: without rows held out nobody can say when to stop. ...
    """

    iterations: int
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    balanced: bool = True
    mixup: Mixup | None = None
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
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / self.iterations))


@dataclass(frozen=True, eq=False)
class Trained:
    """What was learned, after how many batches, and the loss on the way: (step, learned from, held out)."""

    state: Arrays
    n_steps: int
    best_step: int
    history: tuple[tuple[int, float, float], ...] = ()
    finite: bool = True


@dataclass
class _Best:
    step: int = 0
    loss: float = math.inf
    state: dict[str, Tensor] = field(default_factory=dict)
    n_worse: int = 0


def split_rows(n_rows: int, held_out: float, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to learn from and those held out, at least one and two to learn from.

    >>> learn, held = split_rows(10, 0.2, seed=7)
    >>> len(learn), len(held), len(set(learn) | set(held))
    (8, 2, 10)
    """
    if held_out == 0:
        return np.arange(n_rows), np.empty(0, dtype=np.int64)
    if n_rows < 3:
        raise ValueError(f"Expected at least 3 rows to hold some out, got {n_rows}. Leave held_out at 0.")
    n_held = min(max(1, round(held_out * n_rows)), n_rows - 2)
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))).permutation(n_rows)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def train_network(
    network: nn.Module,
    X: NDArray[Any],
    Y: NDArray[np.int64],
    recipe: AudioRecipe,
    *,
    seed: int,
    device: torch.device,
    prepare: Callable[[NDArray[Any]], NDArray[np.float32]],
    checkpoint: Checkpoint | None = None,
    board: Board | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a network on rows and their labels, 1, 0 and SILENT; `prepare` makes its input of rows.

    >>> X, Y = np.random.default_rng(7).normal(size=(8, 2)), np.array([[0], [1]] * 4)
    >>> recipe, cpu = AudioRecipe(iterations=3, batch_size=4), torch.device("cpu")
    >>> as_float = lambda rows: rows.astype(np.float32)
    >>> train_network(nn.Linear(2, 1), X, Y, recipe, seed=7, device=cpu, prepare=as_float).n_steps
    3
    """
    lesson = _Lesson(network.to(device), X, Y, recipe, seed, device, prepare)
    begun = checkpoint.load() if checkpoint is not None else None
    if begun is not None:
        lesson.resume(begun)
    # A network may draw numbers of its own: then from this seed, and what others draw is not disturbed.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        while lesson.step < recipe.iterations and not lesson.stopped:
            lesson.learn()
            if lesson.step % recipe.check_every == 0 or lesson.step == recipe.iterations:
                lesson.look(board)
                if not lesson.finite:
                    break
                if progress is not None:
                    progress(lesson.step, recipe.iterations)
            if checkpoint is not None and lesson.step % checkpoint.every == 0:
                checkpoint.save(lesson.arrays())
    return lesson.trained()


class _Lesson:
    """A training as far as it has come; everything that later steps depend on goes in and out of arrays."""

    def __init__(
        self, network: nn.Module, X: NDArray[Any], Y: NDArray[np.int64], recipe: AudioRecipe, seed: int,
        device: torch.device, prepare: Callable[[NDArray[Any]], NDArray[np.float32]],
    ) -> None:  # fmt: skip
        self.network, self.recipe, self.device, self.prepare = laid_out(network), recipe, device, prepare
        self.X, self.Y = X, Y
        self.own, self.held = split_rows(len(X), recipe.held_out, seed=seed)
        self.stream: RowStream
        if recipe.balanced:
            self.stream = BalancedRows(Y[self.own], seed=seed)
        else:
            self.stream = ShuffledRows(len(self.own), seed=seed)
        self.generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        self.weights: Tensor | None = None
        if recipe.weight_bounds is not None:
            low, high = recipe.weight_bounds
            found = class_weights(Y[self.own], lowest=low, highest=high)
            self.weights = torch.as_tensor(found, dtype=torch.float32, device=device)
        learned = [weight for weight in network.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adam(
            learned, recipe.learning_rate, weight_decay=recipe.weight_decay, fused=device.type == "cpu"
        )
        self.step, self.best, self.finite = 0, _Best(), True
        self.history: list[tuple[int, float, float]] = []
        self.loss = torch.zeros((), device=device)
        self.n_summed = 0

    @property
    def stopped(self) -> bool:
        return bool(self.recipe.patience) and self.best.n_worse >= self.recipe.patience

    def _draw(self) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        rows = self.own[self.stream.take(self.recipe.batch_size)]
        mixup = self.recipe.mixup
        return rows, None if mixup is None else mixup.draw(len(rows), self.generator)

    def _batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        seen = torch.from_numpy(self.prepare(self.X[rows])).to(self.device)
        return seen, torch.from_numpy(self.Y[rows].astype(np.float32)).to(self.device)

    def learn(self) -> None:
        rows, kept = self._draw()
        seen, targets = self._batch(rows)
        if kept is not None:
            seen, targets = mix(seen, targets, weights=torch.from_numpy(kept).to(self.device))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(self.step)
        loss = weighted_loss(self.network.train()(seen), targets, weights=self.weights)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.loss += loss.detach()
        self.n_summed += 1
        self.step += 1

    def look(self, board: Board | None) -> None:
        """Write down how things go; keep the network if it is the best so far on rows it did not learn."""
        learned = float(self.loss) / max(1, self.n_summed)
        self.loss.zero_()
        self.n_summed = 0
        held = self._held_loss() if self.held.size else math.nan
        self.finite = math.isfinite(learned)
        self.history.append((self.step, learned, held))
        if self.held.size:
            if held < self.best.loss:
                state = {name: values.detach().clone() for name, values in self.network.state_dict().items()}
                self.best = _Best(self.step, held, state)
            else:
                self.best.n_worse += 1
        if board is not None:
            board.add_scalar("loss/learned from", learned, self.step)
            board.add_scalar("learning rate", self.recipe.rate(self.step), self.step)
            if self.held.size:
                board.add_scalar("loss/held out", held, self.step)

    @torch.no_grad()
    def _held_loss(self) -> float:
        self.network.eval()
        total, n_told = 0.0, 0.0
        for start in range(0, self.held.size, _AT_ONCE):
            seen, targets = self._batch(self.held[start : start + _AT_ONCE])
            told = float((targets >= 0).sum())
            total += float(weighted_loss(self.network(seen), targets, weights=self.weights)) * told
            n_told += told
        return total / n_told if n_told else math.inf

    def trained(self) -> Trained:
        best = self.best.step if self.best.state else self.step
        state = self.best.state or self.network.state_dict()
        arrays = {name: values.detach().cpu().numpy().copy() for name, values in state.items()}
        return Trained(arrays, self.step, best, tuple(self.history), self.finite)

    def arrays(self) -> Arrays:
        # Buffers too that no saved model has: how many dropout masks were drawn.
        return {
            **pack("weight", dict(self.network.named_parameters())),
            **pack("buffer", dict(self.network.named_buffers())),
            **pack("best", self.best.state),
            **pack_optimizer("adam", self.optimizer),
            "step": np.array(self.step),
            "sum": np.array([float(self.loss), self.n_summed]),
            "best step": np.array([self.best.step, self.best.loss, self.best.n_worse], dtype=np.float64),
            "history": np.array(self.history, dtype=np.float64).reshape(-1, 3),
        }

    def resume(self, arrays: Arrays) -> None:
        with torch.no_grad():
            for prefix, mine in (
                ("weight", dict(self.network.named_parameters())),
                ("buffer", dict(self.network.named_buffers())),
            ):
                for name, values in unpack(prefix, arrays).items():
                    mine[name].copy_(values)
            self.loss.fill_(float(arrays["sum"][0]))
        unpack_optimizer("adam", arrays, self.optimizer)
        self.n_summed = int(arrays["sum"][1])
        step, loss, n_worse = (float(value) for value in arrays["best step"])
        state = {name: values.to(self.device) for name, values in unpack("best", arrays).items()}
        self.best = _Best(int(step), loss, state, int(n_worse))
        self.history = [(int(at), float(own), float(held)) for at, own, held in arrays["history"]]
        # What was drawn before is drawn again: it costs nothing beside the steps themselves.
        for _ in range(int(arrays["step"])):
            self._draw()
        self.step = int(arrays["step"])
