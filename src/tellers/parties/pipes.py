"""Messages between a party and its workers: a JSON head and raw whole numbers, lengths first; no pickle."""

import json
import math
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import LinkFailed

Integers = NDArray[np.int64]
_LENGTHS: Final = struct.Struct(">IQ")
_LONGEST_HEAD: Final = 1 << 20
_LONGEST_BODY: Final = 1 << 31


def write_message(fd: int, head: Mapping[str, Any], tables: Mapping[str, Integers] | None = None) -> None:
    """Write one message to a pipe.

    >>> here, there = os.pipe()
    >>> write_message(there, {"do": "run"}, {"x": np.array([[1, 2]])})
    >>> read_message(here, timeout=1.0)
    ({'do': 'run'}, {'x': array([[1, 2]])})
    """
    given = {name: np.ascontiguousarray(table, dtype="<i8") for name, table in (tables or {}).items()}
    shapes = {name: list(table.shape) for name, table in given.items()}
    text = json.dumps({"head": dict(head), "tables": shapes}).encode()
    body = b"".join(table.tobytes() for table in given.values())
    rest = memoryview(_LENGTHS.pack(len(text), len(body)) + text + body)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_message(fd: int, *, timeout: float | None) -> tuple[dict[str, Any], dict[str, Integers]]:
    """Read one message from a pipe, or fail when it is not whole in time.

    >>> here, there = os.pipe()
    >>> read_message(here, timeout=0.01)
    Traceback (most recent call last):
        ...
    tellers.errors.LinkFailed: Expected an answer within 0.01 s, got none.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    n_text, n_body = _LENGTHS.unpack(_read(fd, _LENGTHS.size, deadline, timeout))
    if n_text > _LONGEST_HEAD or n_body > _LONGEST_BODY:
        raise LinkFailed("Expected a message of sensible length, got a longer one.")
    said = json.loads(_read(fd, n_text, deadline, timeout))
    body = memoryview(_read(fd, n_body, deadline, timeout))
    tables, start = {}, 0
    for name, shape in said["tables"].items():
        end = start + 8 * math.prod(shape)
        tables[name] = np.frombuffer(body[start:end], dtype="<i8").astype(np.int64).reshape(shape)
        start = end
    return said["head"], tables


def _read(fd: int, n: int, deadline: float | None, timeout: float | None) -> bytes:
    parts, missing = [], n
    while missing:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([fd], [], [], left)
        if not ready:
            raise LinkFailed(f"Expected an answer within {timeout:g} s, got none.")
        piece = os.read(fd, min(missing, 1 << 20))
        if not piece:
            raise EOFError
        parts.append(piece)
        missing -= len(piece)
    return b"".join(parts)
