"""A fitted student as bytes: numbers and their names, settings as JSON, no code."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...weights import pack_weights, unpack_weights
from .checkpoints import Arrays


def save_student(state: Arrays, parameters: Mapping[str, Any], about: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of weights, parameters and whatever else a student is.

    >>> content = save_student({"weight": np.zeros(2)}, {"network": "mlp"}, {"classes": [0, 1]})
    >>> read_student(content, name="VatStudent")[2]["classes"]
    [0, 1]
    """
    plain = {name: _plain(value) for name, value in parameters.items()}
    return pack_weights(state, {**about, "parameters": plain})


def read_student(content: bytes, *, name: str) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
    """Return the weights, the parameters and the rest of what `save_student` wrote.

    >>> read_student(b"something else", name="VatStudent")
    Traceback (most recent call last):
        ...
    ValueError: Expected the bytes of VatStudent.to_bytes(), got something else.
    """
    try:
        state, about = unpack_weights(content)
        parameters = dict(about["parameters"])
        if parameters.get("image_shape") is not None:
            parameters["image_shape"] = tuple(parameters["image_shape"])  # JSON has lists alone
        return state, parameters, about
    except Exception as error:  # whatever is wrong with a file, it is one kind of error
        raise ValueError(f"Expected the bytes of {name}.to_bytes(), got something else.") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return None if callable(value) else value
