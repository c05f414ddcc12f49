"""Arithmetic of shares: whole numbers modulo 2^64, and uniform masks."""

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]
Shape = tuple[int, ...]


def fresh_mask(shape: Shape) -> Integers:
    """Return uniform numbers of the ring, from the operating system's generator; never use one twice.

    Guarantee: a share `vote - mask` is uniform whatever the vote, for whoever does not know the mask.
    Assumes:   a sound system generator, and that a mask hides one share only.
    Reference: additive secret sharing; the one-time pad.
    """
    n = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(os.urandom(8 * n), dtype="<i8").astype(np.int64).reshape(shape)


def ring_sum(parts: Iterable[Integers]) -> Integers:
    """Return the sum of arrays of one shape, wrapped around at 2^64."""
    arrays = [np.asarray(part, dtype=np.int64).view(np.uint64) for part in parts]
    if not arrays:
        raise ValueError("Expected at least one array to sum, got none.")
    total = np.zeros_like(arrays[0])
    for array in arrays:
        if array.shape != total.shape:
            raise ValueError(f"Expected arrays of one shape, got {total.shape} and {array.shape}.")
        total += array
    return total.view(np.int64)


def ring_scaled(array: Integers, factor: int) -> Integers:
    """Return an array times a whole number, wrapped around at 2^64."""
    whole = np.asarray(array, dtype=np.int64).view(np.uint64) * np.uint64(factor % 2**64)
    return whole.view(np.int64)


def whole_table(given: ArrayLike, shape: tuple[int, ...]) -> Integers:
    """Return whole numbers of this very shape, or say what came instead."""
    table = np.asarray(given)
    if table.shape != shape or table.dtype.kind not in "iu":
        raise ValueError(
            f"Expected whole numbers of shape {shape}, got {table.dtype} of shape {table.shape}."
        )
    return table.astype(np.int64)
