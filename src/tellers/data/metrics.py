"""Metrics for many labels: scores and curves, label by label, then averaged."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy.release import SILENT
from ..privacy.sealed import Sealed

# All of them take rows x labels. Entries of `predicted` that are SILENT are left out, row by row for each
# label. A label for which a number is not defined (no row left, no positives, or no negatives) has NaN in its
# place; averages leave it out, and `measure` names it.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LabelMetrics:
    """Averages over labels, per-label numbers behind them, and the labels that an average had to leave out.

    `undefined` maps the name of a number to the labels without it; `n_silent` counts entries left out.
    """

    accuracy: float
    balanced_accuracy: float
    auc: float
    mean_average_precision: float
    micro_f1: float
    macro_f1: float
    per_label: dict[str, Floats]
    undefined: dict[str, tuple[int, ...]]
    n_silent: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Say in words what was left out."""
        said = []
        if self.n_silent:
            one = self.n_silent == 1
            said.append(f"{self.n_silent} silent {'entry was' if one else 'entries were'} left out.")
        for name, labels in self.undefined.items():
            which = ", ".join(str(label) for label in labels)
            words = f"label {which} was" if len(labels) == 1 else f"labels {which} were"
            said.append(f"{name}: {words} left out, undefined here.")
        return tuple(said)


@dataclass(frozen=True)
class LabelCounts:
    """How often each label was rightly and wrongly said and left out, or is expected to be."""

    hits: Floats
    misses: Floats
    false_alarms: Floats
    rejections: Floats

    @classmethod
    def of(cls, truth: ArrayLike, predicted: ArrayLike) -> "LabelCounts":
        """Return the counts of these answers, silent ones left out."""
        table, said = _pair(truth, predicted)
        return cls(
            *(
                np.sum((table == true) & (said == answer), axis=0, dtype=np.float64)
                for true, answer in ((1, 1), (1, 0), (0, 1), (0, 0))
            )
        )

    @property
    def together(self) -> "LabelCounts":
        """Return the counts of all labels, as of one."""
        every = (self.hits, self.misses, self.false_alarms, self.rejections)
        return LabelCounts(*(np.asarray(np.sum(each, keepdims=True)) for each in every))

    @property
    def accuracy(self) -> Floats:
        """Return the share of right answers, NaN where there is none."""
        right = self.hits + self.rejections
        return _divide(right, right + self.misses + self.false_alarms)

    @property
    def balanced_accuracy(self) -> Floats:
        """Return the mean of the recall of yes and of no, NaN where one of them was never asked for.

        Reference: Brodersen et al. 2010; the "mean recall per class" of Dullerud et al. 2022.
        """
        of_no = _divide(self.rejections, self.rejections + self.false_alarms)
        return np.asarray((self.recall + of_no) / 2)

    @property
    def precision(self) -> Floats:
        """Return the share of yes that were right, NaN where none was said."""
        return _divide(self.hits, self.hits + self.false_alarms)

    @property
    def recall(self) -> Floats:
        """Return the share of true labels that were said, NaN where there is none."""
        return _divide(self.hits, self.hits + self.misses)

    @property
    def f1(self) -> Floats:
        """Return 2 hits / (2 hits + misses + false alarms), NaN where that is nothing."""
        return _divide(2 * self.hits, 2 * self.hits + self.misses + self.false_alarms)


def measure(truth: ArrayLike, predicted: ArrayLike, *, scores: ArrayLike | None = None) -> LabelMetrics:
    """Return every number at once; `scores` rank rows for AUC and average precision.

    Without scores the predictions rank: 1 above 0, as the multi-winner paper has it for labels that were
    voted on, and the AUC of a label is then its balanced accuracy.

    Reference: Dullerud et al. 2022, section 4: accuracy, mean recall per class, AUC and mAP, over labels.

    >>> result = measure([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 0], [1, 1]])
    >>> round(result.accuracy, 3), result.balanced_accuracy, result.notes
    (0.833, 0.875, ())
    """
    table, said = _pair(truth, predicted)
    ranks = said if scores is None else scores
    told, counts = said != SILENT, LabelCounts.of(table, said)
    per_label = {
        "accuracy": counts.accuracy,
        "balanced_accuracy": counts.balanced_accuracy,
        "auc": _by_label(_auc, table, ranks, told=told),
        "average_precision": _by_label(_average_precision, table, ranks, told=told),
        "f1": counts.f1,
    }
    undefined = {
        name: tuple(int(i) for i in np.flatnonzero(np.isnan(values))) for name, values in per_label.items()
    }
    means = {name: mean_over_labels(values) for name, values in per_label.items()}
    return LabelMetrics(
        accuracy=means["accuracy"],
        balanced_accuracy=means["balanced_accuracy"],
        auc=means["auc"],
        mean_average_precision=means["average_precision"],
        micro_f1=micro_f1(table, said),
        macro_f1=means["f1"],
        per_label=per_label,
        undefined={name: labels for name, labels in undefined.items() if labels},
        n_silent=int((~told).sum()),
    )


def mean_over_labels(per_label: ArrayLike) -> float:
    """Return the mean of the labels that have the number, or NaN where none has."""
    values = np.asarray(per_label, dtype=np.float64)
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def balanced_accuracy(truth: ArrayLike, predicted: ArrayLike) -> Floats:
    """Return the balanced accuracy of every label, among the rows where it was told."""
    return LabelCounts.of(truth, predicted).balanced_accuracy


def micro_f1(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Return the F1 of all labels together."""
    return float(LabelCounts.of(truth, predicted).together.f1[0])


def auc(truth: ArrayLike, scores: ArrayLike) -> Floats:
    """Return how often a row with the label is ranked above one without, label by label; ties count half."""
    return _by_label(_auc, truth, scores)


def average_precision(truth: ArrayLike, scores: ArrayLike) -> Floats:
    """Return the area under the steps of precision over recall, label by label; its mean is the mAP."""
    return _by_label(_average_precision, truth, scores)


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision, recall and F1 of every label, their means over labels (macro), and of all together (micro).

    A label that is nowhere true has no recall, one that is nowhere said no precision: NaN, left out of means.
    """

    precision: Floats
    recall: Floats
    f1: Floats
    macro_precision: float
    macro_recall: float
    macro_f1: float
    micro_precision: float
    micro_recall: float
    micro_f1: float


def precision_recall(truth: ArrayLike, predicted: ArrayLike) -> PrecisionRecall:
    """Return how many of the labels that were said are true, and how many of the true ones were said."""
    counts = LabelCounts.of(truth, predicted)
    every = counts.together
    each = (counts.precision, counts.recall, counts.f1)
    together = (every.precision, every.recall, every.f1)
    return PrecisionRecall(
        *each, *(mean_over_labels(one) for one in each), *(float(one[0]) for one in together)
    )


METRICS = ("accuracy", "balanced_accuracy", "f1")  # of `LabelCounts`


def tune_thresholds(
    probabilities: ArrayLike, Y_public: ArrayLike, *, metric: str = "balanced_accuracy", n_steps: int = 99
) -> Floats:
    """Return for each label the probability from which on yes is best said, by a metric, on public rows.

    Both arguments are public: labelled rows that anyone may see, and what a model says of them that learned
    from public rows too. What teachers say of public rows was learned from private ones, and a threshold
    picked by it is a release that nobody paid for; so teachers hand out their probabilities sealed, and those
    are refused here. There is no way to tune on private rows. Among thresholds that do equally well the one
    nearest to one half is taken; a label for which the metric is not defined keeps one half.

    Guarantee: none is needed: nothing private goes in.
    Assumes:   `probabilities` come from a model of public rows.
    Reference: Dullerud et al. 2022, appendix I.10 (thresholds per label), which tunes on the ensemble.

    >>> tune_thresholds([[0.1, 0.2], [0.2, 0.9], [0.3, 0.1]], [[0, 0], [1, 1], [1, 0]])
    array([0.2, 0.5])
    """
    if isinstance(probabilities, Sealed):
        raise TypeError(
            "Expected probabilities of a model of public rows, got sealed ones, which were learned from "
            "private rows. Train a model on public rows and tune with that."
        )
    if metric not in METRICS:
        raise ValueError(f"Expected metric to be one of {', '.join(METRICS)}, got {metric!r}.")
    table = _truth(Y_public)
    chances = _scores(probabilities, table.shape)
    if ((chances < 0) | (chances > 1)).any():
        raise ValueError("Expected probabilities in [0, 1], got others.")
    grid = np.arange(1, n_steps + 1) / (n_steps + 1)
    # From one half outwards: the first of equally good ones is the nearest.
    grid = grid[np.argsort(np.abs(grid - 0.5), kind="stable")]
    best, chosen = np.full(table.shape[1], -np.inf), np.full(table.shape[1], 0.5)
    for threshold in grid:
        value = getattr(LabelCounts.of(table, chances >= threshold), metric)
        better = value > best + 1e-12
        best, chosen = np.where(better, value, best), np.where(better, threshold, chosen)
    return np.asarray(chosen)


def _truth(values: ArrayLike) -> Integers:
    table = np.asarray(values)
    if table.ndim != 2 or table.size == 0 or not np.isin(table, (0, 1)).all():
        raise ValueError(f"Expected true labels of 0 and 1, rows x labels, got shape {table.shape}.")
    return table.astype(np.int64)


def _pair(truth: ArrayLike, predicted: ArrayLike) -> tuple[Integers, Integers]:
    table, said = _truth(truth), np.asarray(predicted)
    if said.shape != table.shape or not np.isin(said, (0, 1, SILENT)).all():
        raise ValueError(
            f"Expected predictions of 0, 1 or SILENT = {SILENT} of shape {table.shape}, got others of shape "
            f"{said.shape}."
        )
    return table, said.astype(np.int64)


def _scores(values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    table = np.asarray(values, dtype=np.float64)
    if table.shape != shape or not np.isfinite(table).all():
        raise ValueError(f"Expected finite scores of shape {shape}, got shape {table.shape} or NaN.")
    return table


def _divide(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


def _by_label(
    number: Callable[[Integers, Floats], float],
    truth: ArrayLike,
    scores: ArrayLike,
    *,
    told: NDArray[np.bool_] | None = None,
) -> Floats:
    """Return a number of every label, of the rows where it was told."""
    table = _truth(truth)
    ranked = _scores(scores, table.shape)
    rows = np.ones(table.shape, dtype=np.bool_) if told is None else told
    columns = zip(table.T, ranked.T, rows.T, strict=True)
    return np.array([number(each[some], ranks[some]) for each, ranks, some in columns])


def _auc(truth: Integers, ranks: Floats) -> float:
    n_yes, n_no = int(truth.sum()), int((truth == 0).sum())
    if not n_yes or not n_no:
        return float("nan")
    _, place, count = np.unique(ranks, return_inverse=True, return_counts=True)
    # The mean place, from 1, of the rows that share a score.
    middle = np.cumsum(count) - (count - 1) / 2
    return float((middle[place.reshape(-1)][truth == 1].sum() - n_yes * (n_yes + 1) / 2) / (n_yes * n_no))


def _average_precision(truth: Integers, ranks: Floats) -> float:
    if not truth.any():
        return float("nan")
    _, hits, said = _steps(truth, ranks)
    return float((np.diff(hits / hits[-1], prepend=0.0) * (hits / said)).sum())


def _steps(truth: Integers, ranks: Floats) -> tuple[Floats, Floats, Floats]:
    """Return thresholds that change something, highest first, with the hits and the yes said from each."""
    order = np.argsort(-ranks, kind="stable")
    last = np.flatnonzero(np.append(np.diff(ranks[order]) != 0, True))
    hits = np.cumsum(truth[order])[last].astype(np.float64)
    return ranks[order][last], hits, (last + 1).astype(np.float64)


# --- Curves ---
#
# They are of rows whose labels are known, and as public or private as the scores.


@dataclass(frozen=True, eq=False)
class LabelCurve:
    """One label's curves at every threshold that changes something, from the highest down.

    `recall` is the rate of hits too. `area` is the average precision, `auc` the area under the rate of hits
    over that of false alarms.
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
    """
    areas, ranks = average_precision(truth, scores), auc(truth, scores)
    table, given = np.asarray(truth), np.asarray(scores, dtype=np.float64)
    curves = []
    for label, (column, values) in enumerate(zip(table.T, given.T, strict=True)):
        n_yes = int(np.count_nonzero(column))
        if n_yes in (0, len(column)):
            continue
        thresholds, hits, said = _steps(column, values)
        false_alarms = (said - hits) / (len(column) - n_yes)
        precision, recall = hits / said, hits / n_yes
        own = float(areas[label]), float(ranks[label])
        curves.append(LabelCurve(label, thresholds, precision, recall, false_alarms, *own))
    return curves


def best_and_worst(per_label: ArrayLike, *, n_labels: int = 5) -> tuple[list[int], list[int]]:
    """Return the labels with the largest and with the smallest numbers, extremes first; NaN is neither."""
    if n_labels < 1:
        raise ValueError(f"Expected n_labels >= 1, got {n_labels!r}.")
    values = np.asarray(per_label, dtype=np.float64)
    known = [int(i) for i in np.argsort(values, kind="stable") if not np.isnan(values[i])]
    return known[::-1][:n_labels], known[:n_labels]
