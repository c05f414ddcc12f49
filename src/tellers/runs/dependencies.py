"""Dependencies between labels: learned from public label sets, and what they saved and got right.

Two tables, in the form of the multi-winner paper: which label follows from which (its table 3), and how many
queries a budget answers, how well, with and without asking what follows (its table 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.metrics import measure
from ..errors import require_count
from ..mechanisms.base import Mechanism, price_of
from ..mechanisms.labels.dependent import Implications, find_cycle
from ..privacy._rows import label_table
from ..privacy.budget import Accountant, Budget
from ..privacy.noise import Noise
from ..privacy.release import SILENT, Cost, Release
from ..privacy.sealed import Sealed
from ..privacy.votes import LabelVotes
from .labelling import Labels

Floats = NDArray[np.float64]
Kind = Literal["negative", "positive"]
KINDS: tuple[Kind, ...] = ("negative", "positive")


def dependency_table(Y_public: ArrayLike, *, kind: Kind = "negative") -> Floats:
    """Return how often each label (column) follows from each other one (row), labels x labels.

    Negative: the share of rows without the column's label among those without the row's. Positive: the same
    with "with". The diagonal, and a row whose label never is that way, hold NaN. Y holds public label sets.

    Reference: Dullerud et al. 2022, table 3.

    >>> dependency_table([[1, 0], [0, 0], [0, 0], [1, 1]])
    array([[       nan, 1.        ],
           [0.66666667,        nan]])
    """
    table = label_table(Y_public, n_rows=np.shape(Y_public)[0])
    if kind not in KINDS:
        raise ValueError(f"Expected kind to be one of {', '.join(KINDS)}, got {kind!r}.")
    there = (table == (1 if kind == "positive" else 0)).astype(np.float64)
    both, alone = there.T @ there, there.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = both / alone[:, None]
    np.fill_diagonal(share, np.nan)
    return np.asarray(share)


def learn_implications(
    Y_public: ArrayLike,
    *,
    min_confidence: float = 0.95,
    min_rows: int = 20,
    kinds: Sequence[Kind] = KINDS,
    names: Sequence[str] = (),
) -> Implications:
    """Return the implications that public label sets bear out, surest first, none that closes a cycle.

    One is taken if its share in `dependency_table` reaches `min_confidence` and its cause is met in at least
    `min_rows` rows that way. The label sets are public: learned from private ones, implications would be a
    release that nobody paid for.

    Guarantee: none is needed: nothing private goes in.
    Assumes:   Y_public is public.
    Reference: Dullerud et al. 2022, appendix E.

    >>> learn_implications([[1, 0], [0, 0], [0, 0], [1, 1]], min_rows=2).negative
    ((0, 1),)
    """
    table = label_table(Y_public, n_rows=np.shape(Y_public)[0])
    require_count(min_rows=min_rows)
    if not 0.5 < min_confidence <= 1:
        raise ValueError(f"Expected min_confidence above 0.5 and up to 1, got {min_confidence!r}.")
    found = []
    for kind in kinds:
        share = dependency_table(table, kind=kind)
        met = (table == (1 if kind == "positive" else 0)).sum(axis=0)
        for cause, effect in np.argwhere(np.nan_to_num(share) >= min_confidence).tolist():
            if met[cause] >= min_rows:
                found.append((-share[cause, effect], -int(met[cause]), kind, cause, effect))
    kept: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS}
    for _, _, kind, cause, effect in sorted(found):
        pairs = [*kept["positive"], *kept["negative"], (cause, effect)]
        if not find_cycle(table.shape[1], pairs):
            kept[kind].append((cause, effect))
    return Implications(table.shape[1], tuple(kept["positive"]), tuple(kept["negative"]), names=tuple(names))


@dataclass(frozen=True)
class Inferences:
    """How many label questions were saved, and how often what was told or inferred was right.

    Shares are None where the truth is not known, or where there was nothing of the kind.
    """

    n_questions: int
    n_asked: int
    n_inferred: int
    share_saved: float
    inferred_right: float | None
    told_right: float | None


def inference_report(released: Release | Labels, *, truth: ArrayLike | None = None) -> Inferences:
    """Return what implications saved in a release, and how right they were where the truth is public.

    >>> from tellers import LabelVotes, noise
    >>> from tellers.mechanisms import DependentBinary
    >>> votes = LabelVotes.from_sums([[2, 30], [48, 45]], n_teachers=50)
    >>> release = DependentBinary(sigma=2.0, n_labels=2, negative=((0, 1),)).release(votes, noise.secure())
    >>> report = inference_report(release, truth=[[0, 1], [1, 1]])
    >>> report.n_asked, report.share_saved, report.inferred_right, report.told_right
    (3, 0.25, 0.0, 1.0)
    """
    labels = released.labels
    told = released.answered if isinstance(released, Release) else released.by_teachers
    if labels.ndim != 2:
        raise ValueError(f"Expected a release of rows x labels, got labels of shape {labels.shape}.")
    inferred = (labels != SILENT) & ~told
    right: list[float | None] = [None, None]
    if truth is not None:
        table = label_table(truth, n_rows=len(labels), n_labels=labels.shape[1])
        same = labels == table
        right = [float(same[some].mean()) if some.any() else None for some in (inferred, told)]
    n_inferred = int(inferred.sum())
    return Inferences(
        labels.size, labels.size - n_inferred, n_inferred, n_inferred / labels.size, right[0], right[1]
    )


def compare_mechanisms(
    mechanisms: Mapping[str, Mechanism], votes: LabelVotes, truth: ArrayLike, *, budget: Budget, noise: Noise
) -> Sealed[list[dict[str, Any]]]:
    """Return, for each mechanism, how many queries the budget answers and how good the answers are; sealed.

    Queries are asked in their order until the next one, at its full price, does not fit; what is not used
    flows back. A table in the form of the paper's table 4: asking all labels, asking all with more noise, and
    not asking what follows. It is a look at private votes that nobody pays for: for experiments.

    Reference: Dullerud et al. 2022, table 4.
    """
    table = label_table(truth, n_rows=len(votes), n_labels=votes.n_labels)
    rows = []
    for name, mechanism in mechanisms.items():
        accountant, price = Accountant(budget), price_of(mechanism, votes.unit, n_teachers=votes.n_teachers)
        spent, labels, told = price * 0, [], []
        for query in votes:
            if not accountant.affords(spent, price):
                break
            release = mechanism.release(query, noise)
            spent = spent + release.cost.worst
            labels.append(release.labels)
            told.append(release.answered)
        row: dict[str, Any] = {"name": name, "n_queries": len(labels)}
        if labels:
            said = np.concatenate(labels)
            result = measure(table[: len(said)], said)
            report = inference_report(Release(said, Cost(spent), np.concatenate(told)))
            for score in ("accuracy", "balanced_accuracy", "auc", "mean_average_precision"):
                row[score] = getattr(result, score)
            row["share_saved"] = report.share_saved
        rows.append(row)
    return Sealed(rows)
