"""Training of teachers' networks: one by itself, or many at once with the same result.

Every teacher takes batches of one size from a stream of its own shuffled rows, one shuffle after another, so
a part smaller than a batch simply comes round more often. The number of steps depends on the teacher's own
part, and everything drawn on its own seed: nothing here can tell whether other teachers exist.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .batched import Batched, Stack
from .devices import gpu_arithmetic, seeded
from .loop import GradientStep, Turn, half_cosine, mixed_precision, train
from .losses import row_losses, told_loss
from .networks import Shape
from .views import turn_and_shift
from .weights import Tensors

BLOCK = 64  # steps drawn at a time
_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8  # the defaults of Adam
_WARM_STEPS = 3  # before a CUDA graph is captured; they count


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a teacher is trained: Adam with a cosine schedule, on rows turned and shifted at random."""

    epochs: int
    batch_size: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0

    @property
    def augments(self) -> bool:
        return self.rotation > 0 or self.shift > 0

    def n_steps(self, n_rows: int) -> int:
        """Return how many batches a part of so many rows is trained on."""
        return self.epochs * max(1, n_rows // self.batch_size)

    def moved(self, batch: Tensor, moves: Tensor) -> Tensor:
        """Return images, turned and shifted where the recipe says so."""
        if not self.augments:
            return batch
        return turn_and_shift(batch, moves, rotation=self.rotation, shift=self.shift)

    def rate(self, step: int, n_steps: int) -> float:
        """Return the learning rate of one step: half a cosine, from the full rate down to nearly nothing."""
        # A teacher that is finished may be carried along: it keeps its last rate and is not looked at again.
        return self.learning_rate * half_cosine(min(step, n_steps - 1), n_steps)


Block = tuple[NDArray[np.int64], NDArray[np.float32]]


def batches(n_rows: int, recipe: Recipe, *, seed: int) -> Iterator[Block]:
    """Yield one teacher's batches, `BLOCK` at a time: row numbers, and three moves of each in [-1, 1)."""
    order, moves = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    shape, n_wanted = (BLOCK, recipe.batch_size), BLOCK * recipe.batch_size
    left = np.empty(0, dtype=np.int64)
    while True:
        n_shuffles = max(0, -(-(n_wanted - len(left)) // n_rows))
        sorted_rows = np.broadcast_to(np.arange(n_rows), (n_shuffles, n_rows))
        stream = np.concatenate([left, order.permuted(sorted_rows, axis=1).ravel()])
        left = stream[n_wanted:]
        moved = np.zeros((*shape, 0), dtype=np.float32)
        if recipe.augments:
            moved = moves.random((*shape, 3), dtype=np.float32) * 2 - 1
        yield stream[:n_wanted].reshape(shape), moved


@dataclass(frozen=True, eq=False, repr=False)
class TrainingSet:
    """The rows of some teachers, one part after another, and what training them draws from.

    `y` has a class per row, or rows x labels of 0.0 and 1.0; a student's may be -1.0, not told.
    """

    X: NDArray[np.float32]
    y: NDArray[Any]
    sizes: Sequence[int]
    seeds: Sequence[int]
    recipe: Recipe

    @property
    def n_steps(self) -> list[int]:
        return [self.recipe.n_steps(size) for size in self.sizes]

    def blocks(self) -> Iterator[Block]:
        """Yield the batches of all teachers, (steps, teachers, batch), rows counted through the whole set."""
        offsets = np.cumsum([0, *self.sizes[:-1]])
        streams = [batches(size, self.recipe, seed=seed) for size, seed in zip(self.sizes, self.seeds)]
        for blocks in zip(*streams):
            rows = np.stack([rows + offset for (rows, _), offset in zip(blocks, offsets)], axis=1)
            yield rows, np.stack([moves for _, moves in blocks], axis=1)


class Trained(NamedTuple):
    """The states of teachers, stacked, and who of them had a loss that is no number."""

    states: Tensors
    lost: list[int]


def train_alone(network: nn.Module, known: TrainingSet, *, device: torch.device) -> Trained:
    """Train one network on its rows, one plain step after another."""
    recipe, n_steps = known.recipe, known.n_steps[0]
    network = network.to(device).train()
    X, y = torch.as_tensor(known.X, device=device), torch.as_tensor(known.y, device=device)
    blocks, block = known.blocks(), list[Tensor]()
    partly = known.y.ndim > 1 and bool((known.y < 0).any())

    def draw(number: int) -> tuple[Tensor, Tensor]:
        if number % BLOCK == 0:
            block[:] = [torch.as_tensor(part[:, 0], device=device) for part in next(blocks)]
        rows, moves = (part[number % BLOCK] for part in block)
        return recipe.moved(X[rows], moves), y[rows]

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        rows, targets = batch
        answers = network(rows)
        if targets.dim() == 1:
            return F.cross_entropy(answers, targets)
        return told_loss(answers, targets) if partly else row_losses(answers, targets).mean()

    step = GradientStep(
        [Turn(network, loss)], device, draw=draw, rate=lambda number: recipe.rate(number, n_steps),
        optimizer=lambda turn: torch.optim.Adam(
            turn.module.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay
        ),
    )  # fmt: skip
    # A network may draw numbers of its own: then from this seed, and what others draw is not disturbed.
    with seeded(known.seeds[0], device):
        course = train(step, n_steps, device=device)
    states = {name: values.detach()[None].clone() for name, values in network.state_dict().items()}
    return Trained(states, [] if course.is_finite else [0])


def train_together(
    networks: Sequence[nn.Module], known: TrainingSet, *, shape: Shape, device: torch.device, options: Batched
) -> Trained:
    """Train many networks of one architecture at once, each on its own rows.

    Teachers with fewer steps than others are carried along to the end; their states are those of their own
    last step. So shapes and order of work do not depend on anybody's number of rows.
    """
    stack = Stack.of(
        networks, shape=shape, device=device, convolution=options.convolution_for(networks[0], device),
        channels_last=options.channels_last,
    )  # fmt: skip
    exact, benchmark = options.precision == "float32", options.benchmark
    with gpu_arithmetic(device, exact=exact, benchmark=benchmark, deterministic=not benchmark):
        step = _BatchedStep(stack, known, device=device, options=options)
        course = train(step, max(known.n_steps), device=device)
    return Trained(step.states, (~course.finite).nonzero().flatten().tolist())


class _BatchedStep:
    """One step of all teachers, on tensors that stay in place so that a CUDA graph can repeat it.

    `states` are those of each teacher after its own last step.
    """

    def __init__(self, stack: Stack, known: TrainingSet, *, device: torch.device, options: Batched) -> None:
        self.stack, self.recipe, self.device, self.options = stack, known.recipe, device, options
        self.ends, self.blocks = known.n_steps, known.blocks()
        self.X, self.y = torch.as_tensor(known.X, device=device), torch.as_tensor(known.y, device=device)
        n, size = len(stack), self.recipe.batch_size
        self.weights = [weight for weight in stack.weights.values() if weight.requires_grad]
        self.first = [torch.zeros_like(weight) for weight in self.weights]
        self.second = [torch.zeros_like(weight) for weight in self.weights]
        self.rows = torch.zeros((n, size), dtype=torch.int64, device=device)
        self.moves = torch.zeros((n, size, 3 if self.recipe.augments else 0), device=device)
        self.pace = torch.zeros((2, n), device=device)
        self.losses = torch.zeros(n, device=device)
        self.block: list[Tensor] = []
        self.states: Tensors = {}
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, number: int) -> Tensor:
        """Take the step of a number; return the loss of every teacher."""
        place = number % BLOCK
        if place == 0:
            # The program itself is queued on a GPU: drawing the next block costs it nothing.
            drawn = (*next(self.blocks), self._pace(number))
            self.block = [torch.as_tensor(part).to(self.device, non_blocking=True) for part in drawn]
        for own, part in zip((self.rows, self.moves, self.pace), self.block):
            own.copy_(part[place])
        self._take(number)
        self._keep([teacher for teacher, end in enumerate(self.ends) if end == number + 1])
        return self.losses

    def _keep(self, finished: list[int]) -> None:
        if not finished:
            return
        now = self.stack.states()
        if not self.states:
            self.states = now
            return
        for name, values in now.items():
            self.states[name][finished] = values[finished]

    def _pace(self, start: int) -> NDArray[np.float32]:
        """Return Adam's two scalars for each step of a block and each teacher.

        Its update lr / c1 * m / (sqrt(v) / sqrt(c2) + tiny), with c1, c2 the corrections of the first steps,
        is m / (sqrt(v) * p + q) with p = c1 / (lr * sqrt(c2)) and q = tiny * c1 / lr.
        """
        pace = np.empty((BLOCK, 2, len(self.ends)))
        for step in range(BLOCK):
            n = start + step + 1
            correct_1, correct_2 = 1 - _BETA_1**n, 1 - _BETA_2**n
            rates = {end: self.recipe.rate(start + step, end) for end in set(self.ends)}
            rate = np.array([rates[end] for end in self.ends])
            pace[step] = correct_1 / (rate * np.sqrt(correct_2)), _TINY * correct_1 / rate
        return pace.astype(np.float32)

    def _take(self, number: int) -> None:
        if self.device.type != "cuda" or not self.options.cuda_graph:
            self._step()
        elif self.graph is not None:
            self.graph.replay()
        else:
            side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream(self.device).wait_stream(side)
            if number + 1 >= _WARM_STEPS:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):  # recorded, not run: the next step is the first to use it
                    self._step()
                self.graph = graph

    def _step(self) -> None:
        n, rows = len(self.stack), self.rows.flatten()
        batch, targets = self.recipe.moved(self.X[rows], self.moves.flatten(0, 1)), self.y[rows]
        with mixed_precision(self.device.type if self.options.precision == "bfloat16" else None):
            answers = self.stack(batch.view(n, -1, *batch.shape[1:]), training=True)
        losses = row_losses(answers.flatten(0, 1).float(), targets).view(n, -1).mean(1)
        # A sum: each teacher's weights appear in its own loss alone, so this is everybody's own gradient.
        gradients = torch.autograd.grad(losses.sum(), self.weights)
        self.losses.copy_(losses.detach())
        with torch.no_grad():
            self._descend(gradients)

    def _descend(self, gradients: Sequence[Tensor]) -> None:
        for weight, gradient, first, second in zip(self.weights, gradients, self.first, self.second):
            if self.recipe.weight_decay:
                gradient = gradient.add(weight, alpha=self.recipe.weight_decay)
            first.lerp_(gradient, 1 - _BETA_1)
            second.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
            over, tiny = (values.view(-1, *[1] * (weight.dim() - 1)) for values in self.pace)
            weight.addcdiv_(first, torch.addcmul(tiny, second.sqrt(), over), value=-1)
