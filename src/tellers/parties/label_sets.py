"""Parties that do not know every label: who votes on what, and models that say nothing of the rest.

Which labels a party knows is public and part of what all agree on; an empty set stands for all. A label is
decided by a majority, or a share, of those of the answering parties that know it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .models import NEVER, SHARE, encode_model, last_estimator
from .programs import Integers, VoteProgram

Labels = tuple[int, ...]


def require_labels(labels: Sequence[int], n_outputs: int) -> None:
    """Refuse a set of labels that is not among the agreed ones, each once and in order.

    >>> require_labels((0, 2), 3)
    >>> require_labels((0, 3), 3)
    Traceback (most recent call last):
        ...
    ValueError: Expected labels from 0 to 2, each once and in increasing order, got [0, 3].
    """
    if list(labels) != sorted(set(labels)) or any(not 0 <= label < n_outputs for label in labels):
        raise ValueError(
            f"Expected labels from 0 to {n_outputs - 1}, each once and in increasing order, got "
            f"{list(labels)}."
        )


def count_voters(parties: Iterable[str], label_sets: Mapping[str, Labels], n_outputs: int) -> Labels:
    """Return how many of some parties know each label, or nothing where all know all.

    >>> count_voters(("north", "south"), {"south": (0, 2)}, 3), count_voters(("north",), {"south": (0,)}, 3)
    ((2, 1, 2), ())
    """
    counts = np.zeros(n_outputs, dtype=np.int64)
    n = 0
    for party in parties:
        n += 1
        known = label_sets.get(party, ())
        counts[list(known) if known else slice(None)] += 1
    return () if (counts == n).all() else tuple(counts.tolist())


def n_model_outputs(estimator: Any) -> int:
    """Return on how many labels a fitted estimator votes.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> n_model_outputs(DecisionTreeClassifier(max_depth=2).fit([[0], [1]], [[0, 1, 1], [1, 0, 1]]))
    3
    """
    inner = last_estimator(estimator)
    if type(inner).__name__ in ("OneVsRestClassifier", "MultiOutputClassifier"):
        return len(inner.estimators_)
    if hasattr(inner, "n_outputs_"):
        return int(inner.n_outputs_)
    return int(np.atleast_2d(inner.coef_).shape[0])


def encode_known(
    program: VoteProgram,
    estimator: Any,
    labels: Sequence[int] = (),
    *,
    thresholds: ArrayLike | None = None,
    abstain_below: float | None = None,
) -> dict[str, Integers]:
    """Return the model of a party that knows some labels, as `encode_model` does; it says no to all others.

    The estimator votes on the party's own labels, in their order, or on all of them: then what it says of
    labels that the party does not claim is left out. Empty `labels` stand for all.

    Guarantee: whatever the input, the vote on a label that the party does not claim is 0: its weights are 0
               and its offset is out of reach.
    Assumes:   as `encode_model`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.multiclass import OneVsRestClassifier
    >>> fitted = OneVsRestClassifier(LogisticRegression()).fit([[0], [1], [2]], [[0, 1], [1, 1], [1, 0]])
    >>> program = VoteProgram(model="linear", task="multi", n_features=1, n_outputs=4, batch=1)
    >>> (encode_known(program, fitted, (1, 3))["weights0"] != 0).tolist()
    [[False, True, False, True]]
    """
    if program.task == "single":
        if labels:
            raise ValueError("Expected no set of labels where a vote is for one class, got one.")
        return encode_model(program, estimator, abstain_below=abstain_below)
    if abstain_below is not None:
        raise ValueError("Expected no abstain_below with many labels: say which labels this party knows.")
    n_own, own = n_model_outputs(estimator), list(labels) or list(range(program.n_outputs))
    require_labels(own, program.n_outputs)
    if n_own not in (len(own), program.n_outputs):
        words = f"the {len(own)} labels that this party claims, or for all {program.n_outputs}"
        if not labels:
            words = f"all {program.n_outputs} labels"
        raise ValueError(
            f"Expected a model for {words}, got one for {n_own}. Say which labels it knows by `labels` in "
            "[party] and on its card, or train on those."
        )
    if len(own) == program.n_outputs:
        return encode_model(program, estimator, thresholds=thresholds)
    taken = own if n_own == program.n_outputs else list(range(len(own)))
    encoded = encode_model(
        replace(program, n_outputs=n_own, max_labels=None), estimator, thresholds=thresholds
    )
    last = len(program.widths) - 2
    table, offset, never = ("leaves", "offsets", -SHARE) if program.model == "forest" else (
        f"weights{last}", f"offsets{last}", NEVER
    )  # fmt: skip
    wide = np.zeros((encoded[table].shape[0], program.n_outputs), dtype=np.int64)
    wide[:, own] = encoded[table][:, taken]
    offsets = np.full(program.n_outputs, never, dtype=np.int64)
    offsets[own] = encoded[offset][taken]
    return {**encoded, table: wide, offset: offsets}
