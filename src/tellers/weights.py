"""A fitted network as bytes: named numbers, and what they are as JSON; no code in it."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def pack_weights(state: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of weights and of what they are.

    >>> unpack_weights(pack_weights({"weight": np.zeros(2)}, {"classes": [0, 1]}))[1]["classes"]
    [0, 1]
    """
    from safetensors.numpy import save

    # Arrays that are views of others would be written as what they are views of.
    arrays = {name: np.ascontiguousarray(values) for name, values in state.items()}
    content: bytes = save(arrays, {"tellers": json.dumps({**about, "format": 1})})
    return content


def unpack_weights(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the weights and what they are; whatever is wrong with a file raises some error.

    >>> unpack_weights(pack_weights({"weight": np.zeros(2)}, {}))[0]
    {'weight': array([0., 0.])}
    """
    from safetensors.numpy import load

    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), json.loads(header["__metadata__"]["tellers"])
