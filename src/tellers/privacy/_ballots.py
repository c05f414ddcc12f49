"""Checks of ballots and totals, as votes over every space of answers need them.

A message names the place of what is wrong, never the entry: that is private.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]

AXES = ("teacher", "query", "label")
# Ballots counted at once, and tallies they are counted into: small enough to stay in a cache.
_CELLS = 1 << 17
_PLURAL = {"teacher": "teachers", "query": "queries", "class": "classes"}
# Ballots are kept in the smallest type that holds them: 50 teachers x 10,000 queries x 20 labels are 10 MB.
LARGEST_RESOLUTION = 10_000


def whole_numbers(values: ArrayLike, *, name: str, axes: tuple[str, str]) -> Integers:
    table = np.asarray(values)
    if table.ndim != 2:
        hint = " A one-dimensional array looks like labels, not votes." if table.ndim == 1 else ""
        wanted = ", ".join(_PLURAL[axis] for axis in axes)
        raise ValueError(f"Expected {name} of shape ({wanted}), got shape {table.shape}.{hint}")
    if table.size == 0:
        raise ValueError(
            f"Expected {name} with at least one {axes[0]} and one {axes[1]}, got shape {table.shape}."
        )
    if table.dtype.kind not in "iuf":
        raise TypeError(f"Expected whole numbers in {name}, got dtype {table.dtype}.")
    if table.dtype.kind == "f":
        for bad, what in ((~np.isfinite(table), "NaN or infinity"), (table != np.floor(table), "a fraction")):
            place = first_place(bad, axes)
            if place:
                raise ValueError(f"Expected whole numbers in {name}, got {what} at {place}.")
    if float(table.max()) > 2.0**53 or float(table.min()) < -(2.0**53):
        place = first_place(np.abs(table.astype(np.float64)) > 2.0**53, axes)
        raise ValueError(f"Expected entries below 2**53 in size in {name}, got a larger one at {place}.")
    return table.astype(np.int64)


def tallied(ballots: Integers, n_classes: int) -> Integers:
    """Count the ballots of every query, a piece at a time: no second array of the size of all ballots."""
    n_teachers, n_queries = ballots.shape
    counts = np.zeros((n_queries, n_classes), dtype=np.int64)
    width = min(n_queries, max(1, _CELLS // n_classes))
    height = max(1, _CELLS // width)
    for first in range(0, n_queries, width):
        part = counts[first : first + width]
        places = np.arange(len(part)) * n_classes
        for top in range(0, n_teachers, height):
            cast = places + ballots[top : top + height, first : first + width]
            part += np.bincount(cast.ravel(), minlength=part.size).reshape(part.shape)
    return counts


def knowledge(knows: ArrayLike | None, n_teachers: int, n_labels: int) -> NDArray[np.bool_] | None:
    """Return which labels each teacher has, or None where all have all."""
    if knows is None:
        return None
    table = np.asarray(knows)
    if table.shape != (n_teachers, n_labels) or not np.isin(table, (0, 1)).all():
        raise ValueError(
            f"Expected knows as True and False of shape (teachers, labels) = ({n_teachers}, {n_labels}), got "
            f"shape {table.shape} or other values."
        )
    return None if table.all() else table.astype(np.bool_)


def n_who_know(known: NDArray[np.bool_] | None) -> Integers | None:
    return None if known is None else known.sum(axis=0, dtype=np.int64)


def checked_voters(n_voters: ArrayLike, n_teachers: int, space: Any) -> Integers | None:
    """Return how many teachers know each answer of a space, or None where all know all."""
    voters = np.asarray(n_voters)
    right = voters.shape == (space.n_answers,) and voters.dtype.kind in "iu"
    if not right or voters.min() < 0 or voters.max() > n_teachers:
        raise ValueError(
            f"Expected n_voters from 0 to {n_teachers} for each of {space.n_answers} {space.kind}, "
            "got another shape or number."
        )
    return None if (voters == n_teachers).all() else voters.astype(np.int64)


def is_sparse(ballots: Any) -> bool:
    return hasattr(ballots, "tocsr")


def as_table(given: Any, name: str) -> NDArray[Any]:
    wanted = f"Expected {name} of shape (teachers, queries, labels)"
    several = isinstance(given, Sequence) and any(is_sparse(one) for one in given)
    if is_sparse(given) or several:
        what = "some of them sparse" if several else "one sparse matrix"
        raise ValueError(f"{wanted}, or a list with one sparse matrix per teacher, got {what}.")
    try:
        return np.asarray(given)
    except ValueError:
        raise ValueError(f"{wanted}, got rows of different lengths.") from None


def in_range(table: NDArray[Any], n_labels: int, name: str, teacher: int | None = None) -> NDArray[Any]:
    if table.ndim != 3:
        raise ValueError(f"Expected {name} of shape (teachers, queries, labels), got shape {table.shape}.")
    if table.size == 0:
        raise ValueError(
            f"Expected {name} with at least one teacher, query and label, got shape {table.shape}."
        )
    if table.shape[2] != n_labels:
        raise ValueError(
            f"Expected {name} for the {n_labels} labels declared, got {table.shape[2]}. Declare the labels "
            "that the teachers vote on, no more and no fewer."
        )
    if table.dtype.kind not in "biuf":
        raise TypeError(f"Expected numbers in {name}, got dtype {table.dtype}.")
    if table.dtype.kind != "b":
        # NaN compares false with everything, so it is found here as well.
        place = _place(~((table >= 0) & (table <= 1)), teacher)
        if place:
            raise ValueError(f"Expected {name} in [0, 1], got an entry outside (or NaN) at {place}.")
    return table


def checked_ballots(
    table: NDArray[Any], n_labels: int, resolution: int, teacher: int | None = None
) -> NDArray[Any]:
    table = in_range(table, n_labels, "ballots", teacher)
    if resolution > 1:
        # In double precision: half precision has too few digits, and rounded up it could pass a whole vote.
        return np.asarray(np.rint(table.astype(np.float64) * resolution), dtype=np.int32)
    if table.dtype.kind == "f":
        place = _place(table != np.floor(table), teacher)
        if place:
            raise ValueError(
                f"Expected 0 or 1 in ballots, got a fraction at {place}. Probabilities are counted in parts "
                "of a vote with resolution=100, or turned into 0 and 1 by LabelVotes.from_probabilities."
            )
    return table.astype(np.uint8)


def _place(bad: NDArray[np.bool_], teacher: int | None) -> str:
    if teacher is None:
        return first_place(bad, AXES)
    return f"teacher {teacher}" if bad.any() else ""


def first_place(bad: NDArray[np.bool_], axes: tuple[str, ...]) -> str:
    """Say where the first offending entry is, or nothing; the entry itself stays private."""
    if not bad.any():
        return ""
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))


def read_only(table: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Return the table read-only; whose it was may still write to it."""
    kept = np.ascontiguousarray(table, dtype=dtype).view()
    kept.flags.writeable = False
    return kept
