"""Votes of many networks at once: chunks of teachers look at chunks of queries."""

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import TeacherFailed
from .batched import Tensors, fold_layers, stack_states
from .networks import Shape

# Numbers in the largest layer of all teachers and queries of one pass: what the caches of a CPU, and the
# memory of a GPU, take well.
_NUMBERS = {"cpu": 2**22, "cuda": 2**29}
_TEACHERS = {"cpu": 4, "cuda": 256}


@torch.no_grad()
def cast_ballots(
    network: nn.Module, states: Tensors, queries: NDArray[np.float32], *, seen: Tensor, device: torch.device
) -> NDArray[np.int64]:
    """Return each teacher's class for each query, among the classes it has seen.

    >>> states = {"weight": torch.tensor([[[1.0], [-1.0]], [[-1.0], [1.0]]])}
    >>> cast_ballots(
    ...     nn.Linear(1, 2, bias=False), states, np.ones((3, 1), np.float32), seen=torch.ones(2, 2).bool(),
    ...     device=torch.device("cpu"),
    ... )
    array([[0, 0, 0],
           [1, 1, 1]])
    """
    ballots = torch.empty((len(seen), len(queries)), dtype=torch.int64, device=device)
    for some, rows, answers in _answers(network, states, queries, n_teachers=len(seen), device=device):
        unseen = ~seen[some].to(device)[:, None, :]
        ballots[some, rows] = answers.masked_fill(unseen, -torch.inf).argmax(dim=2)
    return np.asarray(ballots.cpu().numpy(), dtype=np.int64)


@torch.no_grad()
def cast_probabilities(
    network: nn.Module, states: Tensors, queries: NDArray[np.float32], *, n_labels: int, device: torch.device
) -> NDArray[np.float64]:
    """Return each teacher's probability of each label for each query.

    >>> states = {"weight": torch.tensor([[[0.0], [9.0]]])}
    >>> cast_probabilities(
    ...     nn.Linear(1, 2, bias=False), states, np.ones((1, 1), np.float32), n_labels=2,
    ...     device=torch.device("cpu"),
    ... ).round(2)
    array([[[0.5, 1. ]]])
    """
    n_teachers = len(next(iter(states.values())))
    said = torch.empty((n_teachers, len(queries), n_labels), dtype=torch.float64, device=device)
    for some, rows, answers in _answers(network, states, queries, n_teachers=n_teachers, device=device):
        said[some, rows] = torch.sigmoid(answers.double())
    return np.asarray(said.cpu().numpy())


def _answers(
    network: nn.Module,
    states: Tensors,
    queries: NDArray[np.float32],
    *,
    n_teachers: int,
    device: torch.device,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield what some teachers say to some queries, (teachers, queries, outputs)."""
    shape = queries.shape[1:]
    network = network.to(device).eval()
    rows = torch.as_tensor(queries, device=device)
    n_at_once = _TEACHERS.get(device.type, 64) if _is_folded(network, shape) else 1
    per_teacher = largest_layer(network, shape, device=device)
    for first in range(0, n_teachers, n_at_once):
        some = slice(first, min(first + n_at_once, n_teachers))
        states_of_some = {name: values[some].to(device) for name, values in states.items()}
        answer = _teachers(network, states_of_some, shape)
        step = max(1, _NUMBERS.get(device.type, 2**24) // (per_teacher * (some.stop - some.start)))
        for start in range(0, len(rows), step):
            answers = answer(rows[start : start + step])
            lost = (~answers.isfinite().all(dim=2).all(dim=1)).nonzero()
            if len(lost):
                number = first + int(lost[0])
                raise TeacherFailed(f"Teacher {number} could not vote: its answers are no finite numbers.")
            yield some, slice(start, start + step), answers


def _is_folded(network: nn.Module, shape: Shape) -> bool:
    return not isinstance(fold_layers(network, shape), str)


def _teachers(network: nn.Module, states: Tensors, shape: Shape) -> Callable[[Tensor], Tensor]:
    """Return the function from queries to the answers of some teachers."""
    if _is_folded(network, shape):
        stack = stack_states(network, states, shape=shape)
        return lambda rows: stack(rows, training=False, shared=True)
    network.load_state_dict({name: values[0] for name, values in states.items()})
    return lambda rows: cast(Tensor, network(rows))[None]


def largest_layer(network: nn.Module, shape: Shape, *, device: torch.device) -> int:
    """Return how many numbers the largest layer makes of one row.

    >>> largest_layer(nn.Sequential(nn.Linear(2, 50), nn.Linear(50, 3)), (2,), device=torch.device("cpu"))
    50
    """
    sizes = [int(np.prod(shape))]

    def note(_layer: nn.Module, _given: object, made: object) -> None:
        if isinstance(made, Tensor):
            sizes.append(made.numel())

    hooks = [layer.register_forward_hook(note) for layer in network.modules()]
    try:
        network(torch.zeros(1, *shape, device=device))
    finally:
        for hook in hooks:
            hook.remove()
    return max(sizes)
