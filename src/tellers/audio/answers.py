"""What a trained network says of pictures, some at a time; and how many threads it takes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..errors import require_count

_AT_ONCE = 16  # what lies in a processor's own memory is faster than more at a time


@torch.no_grad()
def answer(
    factory: Callable[[], nn.Module],
    state: Mapping[str, NDArray[Any]],
    rows: NDArray[Any],
    *,
    prepare: Callable[[NDArray[Any]], NDArray[np.float32]],
    device: torch.device,
) -> NDArray[np.float64]:
    """Return the probability of every label, rows x labels, by a network with these weights.

    >>> state = {"weight": np.zeros((3, 2), dtype=np.float32), "bias": np.zeros(3, dtype=np.float32)}
    >>> as_float = lambda rows: rows.astype(np.float32)
    >>> answer(lambda: nn.Linear(2, 3), state, np.ones((1, 2)), prepare=as_float, device=torch.device("cpu"))
    array([[0.5, 0.5, 0.5]])
    """
    network = _blank(factory).to_empty(device=device).eval()
    network.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
    network = laid_out(network)
    said = [
        network(torch.from_numpy(prepare(rows[start : start + _AT_ONCE])).to(device)).double().sigmoid().cpu()
        for start in range(0, len(rows), _AT_ONCE)
    ]
    return np.asarray(torch.cat(said).numpy(), dtype=np.float64)


def laid_out(network: nn.Module) -> nn.Module:
    """Return a network with its weights in the order in which a CPU convolves and pools fastest.

    >>> laid_out(nn.Conv2d(2, 3, 3)).weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    if any(weight.device.type != "cpu" for weight in network.parameters()):
        return network
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def fit_state(state: Mapping[str, NDArray[Any]], factory: Callable[[], nn.Module]) -> dict[str, NDArray[Any]]:
    """Return weights in the shapes that a network has them in, or refuse those of another network.

    >>> state = {"weight": np.zeros((3, 2)), "bias": np.zeros(3)}
    >>> fit_state(state, lambda: nn.Linear(2, 3))["bias"].shape
    (3,)
    >>> fit_state(state, lambda: nn.Linear(2, 4))
    Traceback (most recent call last):
        ...
    ValueError: Expected the weights of this network, got those of another.
    """
    wanted = {name: tuple(values.shape) for name, values in _blank(factory).state_dict().items()}
    # A file has no single numbers, only lists of one.
    given = {name: values.shape or (1,) for name, values in state.items()}
    if given != {name: shape or (1,) for name, shape in wanted.items()}:
        raise ValueError("Expected the weights of this network, got those of another.")
    return {name: state[name].reshape(shape) for name, shape in wanted.items()}


def _blank(factory: Callable[[], nn.Module]) -> nn.Module:
    """Return a network without numbers: none are drawn that are overwritten at once."""
    with torch.device("meta"):
        return factory()


@contextmanager
def limited_threads(device: torch.device, n_threads: int) -> Iterator[None]:
    """Compute on so many threads of a CPU: sums change with their number, and processes take the others.

    >>> with limited_threads(torch.device("cpu"), 1):
    ...     torch.get_num_threads()
    1
    """
    require_count(n_threads=n_threads)
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(int(n_threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)
