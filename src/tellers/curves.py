"""Curves of scores, label by label: precision over recall, hits over false alarms, and which labels do best.

They are of rows whose labels are known, and as public or private as the scores.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .metrics import auc, average_precision

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelCurve:
    """One label's curves at every threshold that changes something, from the highest down.

    `recall` is the rate of hits too. `area` is the average precision, `auc` the area under the rate of hits
    over that of false alarms.

    >>> curve = label_curves([[1], [0], [1]], [[0.9], [0.7], [0.5]])[0]
    >>> curve.thresholds, curve.precision.round(2), curve.recall, curve.false_alarms
    (array([0.9, 0.7, 0.5]), array([1.  , 0.5 , 0.67]), array([0.5, 0.5, 1. ]), array([0., 1., 1.]))
    """

    label: int
    thresholds: Floats
    precision: Floats
    recall: Floats
    false_alarms: Floats
    area: float
    auc: float


def label_curves(truth: ArrayLike, scores: ArrayLike) -> list[LabelCurve]:
    """Return the curves of every label that has a row with it and a row without; others are left out.

    A point is what saying yes from its threshold on would give. Rows with equal scores share a point.

    >>> [(curve.label, curve.area) for curve in label_curves([[1, 0], [0, 0]], [[0.9, 0.1], [0.2, 0.3]])]
    [(0, 1.0)]
    """
    areas, ranks = average_precision(truth, scores), auc(truth, scores)
    table, given = np.asarray(truth), np.asarray(scores, dtype=np.float64)
    curves = []
    for label, (column, values) in enumerate(zip(table.T, given.T, strict=True)):
        n_yes = int(np.count_nonzero(column))
        if n_yes in (0, len(column)):
            continue
        order = np.argsort(-values, kind="stable")
        last = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
        hits = np.cumsum(column[order])[last].astype(np.float64)
        said = (last + 1).astype(np.float64)
        curves.append(
            LabelCurve(
                label, values[order][last], hits / said, hits / n_yes, (said - hits) / (len(column) - n_yes),
                float(areas[label]), float(ranks[label]),
            )
        )  # fmt: skip
    return curves


def best_and_worst(per_label: ArrayLike, *, n_labels: int = 5) -> tuple[list[int], list[int]]:
    """Return the labels with the largest numbers and those with the smallest, extremes first; NaN is neither.

    >>> best_and_worst([0.2, float("nan"), 0.9, 0.5], n_labels=2)
    ([2, 3], [0, 3])
    """
    if n_labels < 1:
        raise ValueError(f"Expected n_labels >= 1, got {n_labels!r}.")
    values = np.asarray(per_label, dtype=np.float64)
    known = [int(i) for i in np.argsort(values, kind="stable") if not np.isnan(values[i])]
    return known[::-1][:n_labels], known[:n_labels]
