"""Which votes rounding may have turned."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tellers.parties.programs import VoteProgram

from .definitions import _walk, scores_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def near_ties(program: VoteProgram, model: Mapping[str, Integers], X: ArrayLike) -> Mask:
    """Say which queries are so close that rounding inputs and model may have turned the vote; private.

    Two scores, or a score and its threshold, are near if rounding the inputs (by as much as they were) and
    every weight (by half a unit) can move them past each other; an input is near the limit of a node on its
    way if it is within one unit of it.
    """
    x = program.encode(X)
    scores = scores_of(program, model, x)
    near: Mask = np.zeros(len(x), dtype=np.bool_)
    if program.model == "forest":
        # A node that does not split has a limit that no input comes near.
        close = np.abs(x @ model["features"] - model["limits"]) <= 1
        near = np.asarray((close & _visited(program, model, x)).any(axis=1))
        step: Floats = np.full(scores.shape, 1.0 + program.n_trees)
    else:
        rows = np.clip(np.asarray(X, dtype=np.float64), -program.input_bound, program.input_bound)
        step = _reach(program, model, x, np.abs(rows * 2**program.input_bits - x))
    if program.task == "multi":
        return np.asarray(near | (np.abs(scores) <= step).any(axis=1))
    if program.model == "forest" and program.n_trees == 1:
        return near
    if program.has_least:
        near = near | (np.abs(scores.max(axis=1) - model["least"]) <= step.max(axis=1) + 0.5)
    lead = scores.argmax(axis=1)[:, None]
    behind = np.take_along_axis(scores, lead, axis=1) - scores
    rivals = behind <= step + np.take_along_axis(step, lead, axis=1)
    np.put_along_axis(rivals, lead, False, axis=1)
    return np.asarray(near | rivals.any(axis=1))


def _reach(program: VoteProgram, model: Mapping[str, Integers], x: Integers, moved: Floats) -> Floats:
    """Bound how far each score moves if inputs move by `moved` units and each weight by half of its own."""
    values = x
    for layer in range(len(program.widths) - 1):
        weights, offsets = model[f"weights{layer}"], model[f"offsets{layer}"]
        # |w' x' - w x| <= |w| dx + dw (|x| + dx), summed over inputs, and half a unit for the offset.
        loose = 0.5 * (np.abs(values) + moved).sum(axis=1, keepdims=True) + 0.5
        moved = moved @ np.abs(weights).astype(np.float64) + loose
        values = np.maximum(values @ weights + offsets, 0)
    return moved


def _visited(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> Mask:
    visited = np.zeros((len(x), program.n_trees, 2**program.depth - 1), dtype=np.bool_)
    for nodes in _walk(program, model, x)[:-1]:
        np.put_along_axis(visited, nodes[:, :, None], True, axis=2)
    return visited.reshape(len(x), program.n_decisions)
