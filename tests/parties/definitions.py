"""What programs should come to, written down once more: votes and labels, without a circuit or an engine.

The same integers modulo 2^64 as on shares, so that equal means equal in every bit.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tellers.mechanisms.labels._rules import few_labels
from tellers.parties._ring import Integers
from tellers.parties.programs import DecisionProgram, VoteProgram

Mask = NDArray[np.bool_]


def scores_of(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> Integers:
    """Return the scores behind an answerer's votes, in units: queries x outputs; private."""
    with np.errstate(over="ignore"):
        if program.model == "forest":
            return _leaves(program, model, x) @ model["leaves"] + model["offsets"]
        values = x
        for layer in range(len(program.widths) - 1):
            values = values @ model[f"weights{layer}"] + model[f"offsets{layer}"]
            if layer + 2 < len(program.widths):
                values = np.maximum(values, 0)
        return values


def votes_of(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> Integers:
    """Return an answerer's votes without the mask: queries x outputs of 0 and 1; private."""
    scores = scores_of(program, model, x)
    if program.task == "multi":
        ballots = (scores > 0).astype(np.int64)
        most = program.n_outputs if program.max_labels is None else program.max_labels
        return np.asarray(few_labels(program.n_outputs, most).fit(ballots))
    if program.abstaining and not program.has_least:
        return scores  # the leaves of one tree hold the vote, or nothing
    votes = np.eye(program.n_outputs, dtype=np.int64)[scores.argmax(axis=1)]
    if program.has_least:
        votes = votes * (scores.max(axis=1, keepdims=True) >= model["least"])
    return np.asarray(votes)


def labels_of(program: DecisionProgram, shares: Integers, guardian: Mapping[str, Integers]) -> Integers:
    """Return the labels that asker and guardian would find, a class or a row of labels per query."""
    with np.errstate(over="ignore"):
        counts = shares * program.tie_scale + guardian["answer"]
        seen = shares + guardian["range"]
        told = (seen >= -program.reach) & (seen <= program.totals + program.reach) & (program.totals > 0)
        if not program.is_multilabel:
            told = told.all(axis=1)
        if program.is_multilabel:
            labels = (counts >= np.array(program.limits)).astype(np.int64)
        else:
            labels = counts.argmax(axis=1)
        if program.rule == "confident":
            told &= (shares + guardian["check"] >= np.array(program.bar)).any(axis=1)
        if program.rule == "confident_labels":
            yes = shares + guardian["check"] >= np.array(program.bar)
            told &= yes | (guardian["check_against"] - shares >= np.array(program.bar))
    return np.where(told, labels, -1).astype(np.int64)


def _decisions(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> Mask:
    right = x @ model["features"] > model["limits"]
    return np.asarray(right).reshape(len(x), program.n_trees, -1)


def _walk(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> list[Integers]:
    """Return the node each query stands on, tree by tree, at every level and at last the leaf."""
    right = _decisions(program, model, x)
    at = [np.zeros((len(x), program.n_trees), dtype=np.int64)]
    for _ in range(program.depth):
        turn = np.take_along_axis(right, at[-1][:, :, None], axis=2)[:, :, 0]
        at.append(2 * at[-1] + 1 + turn)
    return at


def _leaves(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> Integers:
    leaf = _walk(program, model, x)[-1] - (2**program.depth - 1)
    reached = np.zeros((len(x), program.n_trees, 2**program.depth), dtype=np.int64)
    np.put_along_axis(reached, leaf[:, :, None], 1, axis=2)
    return reached.reshape(len(x), program.n_leaves)
