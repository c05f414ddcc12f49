"""Weights as bytes: fitted models, networks stacked by teacher, and public weights to begin with.

All files are safetensors: named numbers, and what they are as JSON. No code is in them.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .networks import HEADS, Shape

Arrays = dict[str, NDArray[Any]]
Tensors = dict[str, Tensor]
_ABOUT = "tellers"


def state_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Return tensors as arrays of their own, wherever they are."""
    return {name: values.detach().cpu().numpy().copy() for name, values in tensors.items()}


def load_arrays(network: nn.Module, state: Mapping[str, NDArray[Any]]) -> nn.Module:
    """Give a network its weights, or refuse those of another network."""
    blank = any(weight.is_meta for weight in network.parameters())
    try:
        tensors = {name: torch.tensor(values) for name, values in state.items()}
        network.load_state_dict(tensors, assign=blank)
    except RuntimeError as error:
        raise ValueError(f"Expected the weights of this network, got others: {error}") from None
    return network


# --- One fitted model ---


def pack_weights(state: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of weights and of what they are."""
    from safetensors.numpy import save

    # Arrays that are views of others would be written as what they are views of.
    arrays = {name: np.ascontiguousarray(values) for name, values in state.items()}
    content: bytes = save(arrays, {_ABOUT: json.dumps({**about, "format": 1}, default=_plain)})
    return content


def unpack_weights(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the weights and what they are; whatever is wrong with a file raises some error."""
    from safetensors.numpy import load

    return load(content), json.loads(_header(content)["__metadata__"][_ABOUT])


@contextmanager
def bytes_of(name: str) -> Iterator[None]:
    """Turn whatever is wrong with the bytes of a model into one kind of error."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"Expected the bytes of {name}.to_bytes(), got something else.") from error


def _header(content: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header


def _plain(value: Any) -> Any:
    """Return as JSON what JSON does not know; a function is not kept."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if callable(value):
        return None
    raise TypeError(f"Expected a parameter that JSON can hold, got {type(value).__name__}.")


# --- The networks of several teachers, stacked ---


def dump_states(states: Tensors, *, about: dict[str, Any] | None = None) -> bytes:
    """Return states as the bytes of a safetensors file, with words about them."""
    from safetensors.torch import save

    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else str(value)

    said = None if about is None else {_ABOUT: json.dumps(about, default=plain, sort_keys=True)}
    content: bytes = save({name: values.cpu().contiguous() for name, values in states.items()}, said)
    return content


def read_about(content: bytes) -> dict[str, Any]:
    """Return the words that a safetensors file of teachers holds about them."""
    try:
        about: dict[str, Any] = json.loads(_header(content)["__metadata__"][_ABOUT])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "Expected networks that say what they are, got others. They can be used where they were trained; "
            "train them again, into another folder, to load them elsewhere."
        ) from error
    return about


def n_stacked(content: bytes, name: str) -> int:
    """Return how many teachers a file holds, by the length of one of its tensors."""
    return int(_header(content)[name]["shape"][0])


def load_states(content: bytes, *, like: Tensors | None = None, n_teachers: int | None = None) -> Tensors:
    """Return the states of a safetensors file, refusing those of another network."""
    from safetensors.torch import load

    try:
        states: Tensors = load(content)
    except Exception as error:
        raise ValueError(
            "Expected teachers saved as safetensors, got something else. Delete the file to train them again."
        ) from error
    if like is not None:
        wanted = {name: (n_teachers, *values.shape) for name, values in like.items()}
        if {name: tuple(values.shape) for name, values in states.items()} != wanted:
            raise ValueError(
                "Expected teachers of this network, got those of another. Delete the file to train again."
            )
    return states


# --- Public weights that training begins with ---


@dataclass(frozen=True)
class Pretrained:
    """Which weights came from a file, which begin anew, and which of the file's were left there.

    `other_shape` has (name, the network's shape, the file's shape).
    """

    loaded: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]
    other_shape: tuple[tuple[str, Shape, Shape], ...]

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the weights outside the head that did not come from the file."""
        shapes = tuple(name for name, _, _ in self.other_shape)
        # How many batches a norm has seen is in newer files alone, and changes no answer.
        counted = (name for name in (*self.new, *shapes) if not name.endswith("num_batches_tracked"))
        return tuple(name for name in counted if not name.startswith(HEADS))

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} weights came from the file."]
        lines += [f"  {name}: begins anew, the file has none" for name in self.new]
        lines += [f"  {name}: expected {want}, the file has {got}" for name, want, got in self.other_shape]
        lines += [f"  {name}: in the file, not in the network" for name in self.unused]
        return "\n".join(lines)


def load_pretrained(network: nn.Module, path: str | PathLike[str]) -> Pretrained:
    """Load weights from a local file, safetensors or torch's own; the head may differ, nothing else.

    Torch files are read as weights alone: one that holds anything else is refused, and no code in it runs.

    Assumes:   the weights are public: they were learned from nobody's private rows.

    >>> import tempfile
    >>> from tellers.nn.networks import make_network
    >>> network = make_network("small", shape=(1, 64, 64), n_labels=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(network.state_dict(), Path(folder) / "weights.pt")
    ...     len(load_pretrained(network, Path(folder) / "weights.pt").loaded)
    26
    """
    place = Path(path)
    loaded = fit_weights(network, _read(place))
    if loaded.lacking:
        raise ValueError(
            f"Expected the weights of this network, head apart, in {place.name}, got others. Take the file "
            f"of the same network.\n{loaded}"
        )
    return loaded


def fit_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> Pretrained:
    """Give a network those weights that fit by name and shape; say of each what became of it."""
    own = network.state_dict()
    fitting, other_shape = {}, []
    for name in own.keys() & weights.keys():
        given = weights[name]
        if own[name].dim() == 4 and own[name].shape[1] == 1 and given.dim() == 4 and given.shape[1] == 3:
            given = given.sum(dim=1, keepdim=True)
        if given.shape == own[name].shape:
            fitting[name] = given.to(own[name].dtype)
        else:
            other_shape.append((name, tuple(own[name].shape), tuple(given.shape)))
    network.load_state_dict(fitting, strict=False)
    return Pretrained(
        loaded=tuple(name for name in own if name in fitting),
        new=tuple(name for name in own if name not in weights),
        unused=tuple(sorted(weights.keys() - own.keys())),
        other_shape=tuple(sorted(other_shape)),
    )


def _read(place: Path) -> Mapping[str, Tensor]:
    if not place.is_file():
        raise ValueError(f"Expected a file of weights at {place.name}, found none. Check the path.")
    try:
        if place.suffix == ".safetensors":
            from safetensors.torch import load_file

            weights: Any = load_file(place)
        else:
            weights = torch.load(place, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever is wrong with a file, it is one kind of error
        raise ValueError(
            f"Expected weights and nothing else in {place.name}, as safetensors or a torch state_dict, got "
            f"something else ({type(error).__name__}). Save network.state_dict() and name that file."
        ) from error
    if not isinstance(weights, Mapping) or not all(isinstance(one, Tensor) for one in weights.values()):
        raise ValueError(
            f"Expected tensors by name in {place.name}, got something else. Save network.state_dict()."
        )
    return dict(weights)
