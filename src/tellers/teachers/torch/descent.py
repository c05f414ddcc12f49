"""Training: one network as anybody would write it, and many at once with the same result.

Both take the same batches and the same steps of Adam; the first is what the second is measured and tested
against. A loss that is not a finite number is reported with the number of its teacher.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .batched import Stack, Tensors
from .batches import BLOCK, Batches, Recipe, stack_blocks, turn_and_shift
from .engines import Batched
from .networks import Shape

_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8  # the defaults of Adam
_WARM_STEPS = 3  # before a CUDA graph is captured; they count


@dataclass(frozen=True, eq=False, repr=False)
class Lesson:
    """The rows of some teachers, one part after another, and what training them draws from.

    `y` has a class per row, or rows x labels of 0.0 and 1.0; a student's may be -1.0, not told.

    >>> recipe = Recipe(epochs=4, batch_size=2)
    >>> Lesson(np.zeros((5, 2)), np.zeros(5), sizes=[1, 4], seeds=[7, 8], recipe=recipe).n_steps
    [4, 8]
    """

    X: NDArray[np.float32]
    y: NDArray[Any]
    sizes: Sequence[int]
    seeds: Sequence[int]
    recipe: Recipe

    @property
    def n_steps(self) -> list[int]:
        """Return how many steps each teacher takes."""
        return [self.recipe.n_steps(size) for size in self.sizes]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return where each teacher's rows begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def streams(self) -> list[Batches]:
        """Return each teacher's own stream of batches.

        >>> lesson = Lesson(np.zeros((5, 2)), np.zeros(5), [2, 3], [7, 8], Recipe(epochs=1, batch_size=2))
        >>> len(lesson.streams()), lesson.offsets.tolist()
        (2, [0, 2])
        """
        return [Batches(size, self.recipe, seed=seed) for size, seed in zip(self.sizes, self.seeds)]


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """What was learned: the states of the teachers, stacked, and who of them had a loss that is no number."""

    states: Tensors
    lost: list[int] = field(default_factory=list)


def train_alone(network: nn.Module, lesson: Lesson, *, device: torch.device) -> Learned:
    """Train one network on its rows, one plain step after another.

    >>> rows = np.random.default_rng(7).normal(size=(40, 2)).astype(np.float32)
    >>> lesson = Lesson(rows, (rows[:, 0] > 0).astype(int), [40], [7], Recipe(epochs=5, batch_size=10))
    >>> train_alone(nn.Linear(2, 2), lesson, device=torch.device("cpu")).states["weight"].shape
    torch.Size([1, 2, 2])
    """
    recipe, n_steps = lesson.recipe, lesson.n_steps[0]
    network = network.to(device).train()
    X, y = torch.as_tensor(lesson.X, device=device), torch.as_tensor(lesson.y, device=device)
    optimizer = torch.optim.Adam(network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    stream = lesson.streams()[0]
    sane = torch.ones((), dtype=torch.bool, device=device)
    partly = lesson.y.ndim > 1 and bool((lesson.y < 0).any())
    # A network may draw numbers of its own: then from this seed, and what others draw is not disturbed.
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        if devices:
            torch.manual_seed(lesson.seeds[0])
        else:
            torch.default_generator.manual_seed(lesson.seeds[0])
        rows = moves = torch.empty(0)
        for step in range(n_steps):
            if step % BLOCK == 0:
                rows, moves = (torch.as_tensor(part, device=device) for part in stream.block())
            batch, labels = X[rows[step % BLOCK]], y[rows[step % BLOCK]]
            if recipe.augments:
                batch = _moved(batch, moves[step % BLOCK], recipe)
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate(step, n_steps)
            answers = network(batch)
            if labels.dim() == 1:
                loss = F.cross_entropy(answers, labels)
            elif partly:
                loss = told_loss(answers, labels)
            else:
                loss = row_losses(answers, labels).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            sane &= loss.detach().isfinite()
    states = {name: values.detach()[None].clone() for name, values in network.state_dict().items()}
    return Learned(states, [] if sane else [0])


def row_losses(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every row: the cross-entropy of its class, or its mean over the row's labels.

    >>> row_losses(torch.zeros(1, 2), torch.tensor([1])), row_losses(torch.zeros(1, 3), torch.ones(1, 3))
    (tensor([0.6931]), tensor([0.6931]))
    """
    if targets.dim() == 1:
        return F.cross_entropy(answers, targets, reduction="none")
    return F.binary_cross_entropy_with_logits(answers, targets, reduction="none").mean(dim=1)


def told_loss(answers: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss over the labels of a batch that were told; a target of -1 was not.

    >>> told_loss(torch.zeros(2, 2), torch.tensor([[1.0, -1.0], [-1.0, -1.0]]))
    tensor(0.6931)
    """
    told = (targets >= 0).to(answers.dtype)
    losses = F.binary_cross_entropy_with_logits(answers, targets.clamp(min=0), reduction="none")
    return (losses * told).sum() / told.sum().clamp(min=1)


def train_together(
    networks: Sequence[nn.Module], lesson: Lesson, *, shape: Shape, device: torch.device, options: Batched
) -> Learned:
    """Train many networks of one architecture at once, each on its own rows.

    Teachers with fewer steps than others are carried along to the end; their states are those of their own
    last step. So shapes and order of work do not depend on anybody's number of rows.

    >>> rows = np.random.default_rng(7).normal(size=(40, 2)).astype(np.float32)
    >>> lesson = Lesson(rows, (rows[:, 0] > 0).astype(int), [30, 10], [7, 8], Recipe(epochs=5, batch_size=10))
    >>> networks, cpu = [nn.Linear(2, 2), nn.Linear(2, 2)], torch.device("cpu")
    >>> train_together(networks, lesson, shape=(2,), device=cpu, options=Batched()).states["weight"].shape
    torch.Size([2, 2, 2])
    """
    stack = Stack.of(
        networks, shape=shape, device=device, convolution=options.convolution_for(networks[0], device),
        channels_last=options.channels_last,
    )  # fmt: skip
    with _arithmetic(device, options):
        program = _Program(stack, lesson, device=device, options=options)
        states = program.run()
    lost = (~program.sane).nonzero().flatten().tolist()
    return Learned(states, lost)


class _Program:
    """One step of all teachers, on tensors that stay in place so that a CUDA graph can repeat it."""

    def __init__(self, stack: Stack, lesson: Lesson, *, device: torch.device, options: Batched) -> None:
        self.stack, self.lesson, self.recipe, self.device = stack, lesson, lesson.recipe, device
        self.options = options
        self.X = torch.as_tensor(lesson.X, device=device)
        self.y = torch.as_tensor(lesson.y, device=device)
        n, size = len(stack), self.recipe.batch_size
        self.weights = [weight for weight in stack.weights.values() if weight.requires_grad]
        self.first = [torch.zeros_like(weight) for weight in self.weights]
        self.second = [torch.zeros_like(weight) for weight in self.weights]
        self.rows = torch.zeros((n, size), dtype=torch.int64, device=device)
        self.moves = torch.zeros((n, size, 3 if self.recipe.augments else 0), device=device)
        self.pace = torch.zeros((2, n), device=device)
        self.sane = torch.ones(n, dtype=torch.bool, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> Tensors:
        """Take all steps; return each teacher's state after its own last one."""
        ends, streams = self.lesson.n_steps, self.lesson.streams()
        offsets, states = self.lesson.offsets, None
        n_steps = max(ends)
        for start in range(0, n_steps, BLOCK):
            # The program itself is queued on a GPU: drawing the next block costs it nothing.
            rows, moves = (
                torch.as_tensor(part).to(self.device, non_blocking=True)
                for part in stack_blocks(streams, offsets=offsets)
            )
            pace = torch.as_tensor(self._pace(start, ends)).to(self.device)
            for step in range(start, min(start + BLOCK, n_steps)):
                self.rows.copy_(rows[step - start])
                self.moves.copy_(moves[step - start])
                self.pace.copy_(pace[step - start])
                self._take(step)
                finished = [number for number, end in enumerate(ends) if end == step + 1]
                if finished and len(finished) == len(ends):
                    return self.stack.states()
                if finished:
                    states = self._keep(states, finished)
        assert states is not None  # somebody's last step is the last of all
        return states

    def _keep(self, states: Tensors | None, finished: list[int]) -> Tensors:
        now = self.stack.states()
        if states is None:
            return now
        for name, values in now.items():
            states[name][finished] = values[finished]
        return states

    def _pace(self, start: int, ends: Sequence[int]) -> NDArray[np.float32]:
        """Return Adam's two scalars for each step and teacher.

        Its update lr / c1 * m / (sqrt(v) / sqrt(c2) + tiny), with c1, c2 the corrections of the first steps,
        is m / (sqrt(v) * p + q) with p = c1 / (lr * sqrt(c2)) and q = tiny * c1 / lr.
        """
        pace = np.empty((BLOCK, 2, len(ends)))
        for step in range(BLOCK):
            n = start + step + 1
            correct_1, correct_2 = 1 - _BETA_1**n, 1 - _BETA_2**n
            rates = {end: self.recipe.rate(start + step, end) for end in set(ends)}
            rate = np.array([rates[end] for end in ends])
            pace[step] = correct_1 / (rate * np.sqrt(correct_2)), _TINY * correct_1 / rate
        return pace.astype(np.float32)

    def _take(self, step: int) -> None:
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
            if step + 1 >= _WARM_STEPS:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):  # recorded, not run: the next step is the first to use it
                    self._step()
                self.graph = graph

    def _step(self) -> None:
        n = len(self.stack)
        rows = self.rows.flatten()
        batch, labels = self.X[rows], self.y[rows]
        if self.recipe.augments:
            batch = _moved(batch, self.moves.flatten(0, 1), self.recipe)
        with torch.autocast(
            self.device.type,
            torch.bfloat16,
            enabled=self.options.precision == "bfloat16",
            cache_enabled=False,
        ):
            answers = self.stack(batch.view(n, -1, *batch.shape[1:]), training=True)
        losses = row_losses(answers.flatten(0, 1).float(), labels).view(n, -1).mean(1)
        # A sum: each teacher's weights appear in its own loss alone, so this is everybody's own gradient.
        gradients = torch.autograd.grad(losses.sum(), self.weights)
        self.sane &= losses.detach().isfinite()
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


def _moved(batch: Tensor, moves: Tensor, recipe: Recipe) -> Tensor:
    return turn_and_shift(batch, moves, rotation=recipe.rotation, shift=recipe.shift)


@contextmanager
def _arithmetic(device: torch.device, options: Batched) -> Iterator[None]:
    """Set how a GPU computes, and put it back."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    flags = cudnn.deterministic, cudnn.benchmark
    torch.set_float32_matmul_precision("highest" if options.precision == "float32" else "high")
    cudnn.deterministic, cudnn.benchmark = not options.benchmark, options.benchmark
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        cudnn.deterministic, cudnn.benchmark = flags
