"""Votes of many networks at once: chunks of teachers look at chunks of queries."""

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..fallback import unheard
from .batched import Tensors, fold_layers, stack_states
from .networks import Shape

# Numbers in the largest layer of all teachers and queries of one pass: what the caches of a CPU, and the
# memory of a GPU, take well.
_NUMBERS = {"cpu": 2**22, "cuda": 2**29}
_TEACHERS = {"cpu": 4, "cuda": 256}
NO_ANSWER = "its answers are no finite numbers"


@torch.no_grad()
def cast_ballots(
    network: nn.Module, states: Tensors, queries: NDArray[np.float32], *, seen: Tensor, device: torch.device
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each teacher's class for each query, among the classes it has seen, and who does not answer.

    The class of a teacher that has seen none, or whose answers are no finite numbers, means nothing.

    >>> states = {"weight": torch.tensor([[[1.0], [-1.0]], [[-1.0], [1.0]]])}
    >>> cast_ballots(
    ...     nn.Linear(1, 2, bias=False), states, np.ones((3, 1), np.float32), seen=torch.ones(2, 2).bool(),
    ...     device=torch.device("cpu"),
    ... )
    (array([[0, 0, 0],
           [1, 1, 1]]), array([False, False]))
    """
    lost = ~seen.any(dim=1).cpu()
    ballots = torch.empty((len(seen), len(queries)), dtype=torch.int64, device=device)
    for some, rows, answers in _answers(network, states, queries, lost=lost, device=device):
        unseen = ~seen[some].to(device)[:, None, :]
        ballots[some, rows] = answers.masked_fill(unseen, -torch.inf).argmax(dim=2)
    return np.asarray(ballots.cpu().numpy(), dtype=np.int64), lost.numpy()


@torch.no_grad()
def cast_probabilities(
    network: nn.Module, states: Tensors, queries: NDArray[np.float32], *, seen: Tensor, device: torch.device
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each teacher's probability of each label for each query, and who does not answer: 0 to all.

    >>> states = {"weight": torch.tensor([[[0.0], [9.0]]])}
    >>> cast_probabilities(
    ...     nn.Linear(1, 2, bias=False), states, np.ones((1, 1), np.float32), seen=torch.ones(1, 2).bool(),
    ...     device=torch.device("cpu"),
    ... )[0].round(2)
    array([[[0.5, 1. ]]])
    """
    lost = ~seen.any(dim=1).cpu()
    said = torch.zeros((len(seen), len(queries), seen.shape[1]), dtype=torch.float64, device=device)
    for some, rows, answers in _answers(network, states, queries, lost=lost, device=device):
        said[some, rows] = torch.sigmoid(answers.double())
    said[lost.to(device)] = 0.0
    return np.asarray(said.cpu().numpy()), lost.numpy()


def _answers(
    network: nn.Module,
    states: Tensors,
    queries: NDArray[np.float32],
    *,
    lost: Tensor,
    device: torch.device,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield what some teachers say to some queries, (teachers, queries, outputs); mark who is `lost`."""
    n_teachers = len(lost)
    shape = queries.shape[1:]
    network = network.to(device).eval()
    rows = torch.as_tensor(queries, device=device)
    folded = _is_folded(network, shape)
    n_at_once = _TEACHERS.get(device.type, 64) if folded else 1
    per_teacher = largest_layer(network, shape, device=device)
    for first in range(0, n_teachers, n_at_once):
        some = slice(first, min(first + n_at_once, n_teachers))
        states_of_some = {name: values[some].to(device) for name, values in states.items()}
        answer = _teachers(network, states_of_some, shape)
        step = max(1, _NUMBERS.get(device.type, 2**24) // (per_teacher * (some.stop - some.start)))
        for start in range(0, len(rows), step):
            try:
                with unheard():
                    answers = answer(rows[start : start + step])
            except torch.OutOfMemoryError:
                raise
            except Exception:
                if folded:
                    raise  # known layers: what they learned does not make them raise
                lost[first] = True
                break
            lost[some] |= ~answers.isfinite().all(dim=2).all(dim=1).cpu()
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
