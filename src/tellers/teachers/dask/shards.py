"""Shards: the rows of one teacher each, in files on a path or an object store."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import MissingExtra
from ...privacy._files import TooLarge, load_npz
from ...privacy._rows import numeric_rows
from .._places import inside, read_bytes, write_bytes
from .._training import check_partition
from ..partitions import Partition

# --- Shards: the rows of one teacher each, in a file that its worker reads and nobody else has to. ---


@dataclass(frozen=True)
class Shard:
    """Where the rows of one teacher are: an `.npz` with X and y, at a path or URL that its worker can read.

    `at` names a resource of workers, for rows that only some of them have: a worker that was started with
    `--resources north=1` takes the shards at "north", and no other worker does.

    >>> Shard("/data/ward-3.npz", at="north")
    Shard(address='/data/ward-3.npz', at='north')
    """

    address: str
    at: str = ""


def write_shard(address: str, X: ArrayLike, y: ArrayLike) -> None:
    """Write the rows of one teacher; only the owner may read the file. The same rows are not written twice.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_shard(f"{folder}/part.npz", [[0.5], [0.7]], [0, 1])
    ...     read_shard(f"{folder}/part.npz")
    (array([[0.5],
           [0.7]]), array([0, 1]))
    """
    written = io.BytesIO()
    np.savez(written, X=np.asarray(X), y=np.asarray(y))
    content = written.getvalue()
    try:
        if read_bytes(address) == content:
            return
    except FileNotFoundError:
        pass
    write_bytes(address, content)


def write_shards(
    folder: str | PathLike[str], X: ArrayLike, y: ArrayLike, partition: Partition, *, at: str = ""
) -> tuple[Shard, ...]:
    """Write each part of a partition to a file of its own, and return where they are, teacher by teacher.

    >>> import tempfile
    >>> from tellers.teachers import partition
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards(folder, np.eye(4), [0, 1, 0, 1], partition(4, 2, seed=7))
    >>> len(shards)
    2
    """
    rows, answers = numeric_rows(X), np.asarray(y)
    if len(answers) != len(rows):
        raise ValueError(f"Expected y with an answer for each of {len(rows)} rows, got {len(answers)}.")
    check_partition(partition, n_rows=len(rows))
    addresses = [inside(fspath(folder), f"shard-{number:05d}.npz") for number in range(len(partition))]
    for address, part in zip(addresses, partition):
        write_shard(address, rows[part], answers[part])
    return tuple(Shard(address, at) for address in addresses)


def read_shard(address: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of a shard and their answers; Python objects in it are refused."""
    arrays = _arrays(address, ("X", "y"))
    return arrays["X"], arrays["y"]


def write_queries(address: str, X: ArrayLike) -> None:
    """Write public queries to a file that workers read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_queries(f"{folder}/queries.npz", [[0.5]])
    ...     read_queries(f"{folder}/queries.npz")
    array([[0.5]])
    """
    written = io.BytesIO()
    np.savez(written, X=numeric_rows(X))
    write_bytes(address, written.getvalue())


def read_queries(address: str) -> NDArray[Any]:
    """Return the public queries in a file; see `write_queries`."""
    return _arrays(address, ("X",))["X"]


def check_shards(shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """Return shards that are different files, one per teacher; two teachers of the same rows are refused."""
    if not shards or not all(isinstance(shard, Shard) for shard in shards):
        raise TypeError("Expected at least one Shard(address), got none or something else.")
    owner: dict[Shard, int] = {}
    for number, shard in enumerate(shards):
        first = owner.setdefault(shard, number)
        if first != number:
            raise ValueError(
                f"Expected a shard of its own for every teacher, got {shard.address} for teachers {first} "
                f"and {number}. A row that two teachers learn from is counted twice."
            )
    return tuple(shards)


def _arrays(address: str, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    what = "a shard" if "y" in names else "queries"
    try:
        content = read_bytes(address)
    except MissingExtra:
        raise
    except Exception:  # object stores raise many kinds of it
        raise ValueError(f"Expected {what} at {address}, found nothing a worker can read there.") from None
    try:
        arrays, _ = load_npz(content, names, name=address)
        return {name: arrays[name] for name in names}
    except TooLarge:
        raise
    except Exception:  # whatever is wrong with a file, it is one kind of error, and it quotes nothing of it
        raise ValueError(
            f"Expected {what} as an .npz with {' and '.join(names)} of plain numbers at {address}, got "
            "something else. Write it with numpy.savez."
        ) from None
