"""What a run with many labels per row says of each of them, as `result.json` tells it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .entries import COUNT, SHARE, TABLE, TABLES, TEXT, Entries

SCORES = (
    "accuracy", "balanced_accuracy", "auc", "mean_average_precision", "micro_f1", "macro_f1",
    "micro_precision", "micro_recall", "macro_precision", "macro_recall",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LabelResult:
    """What was released of one label, and how well the student knows it; None where nothing can be said.

    >>> one = LabelResult(name="rain", n_yes=30, n_no=50, n_silent=20, n_inferred=0, n_test_yes=0)
    >>> one.told, one.yes
    (0.8, 0.375)
    """

    name: str
    n_yes: int
    n_no: int
    n_silent: int
    n_inferred: int
    n_test_yes: int
    labels_right: float | None = None
    accuracy: float | None = None
    balanced_accuracy: float | None = None
    auc: float | None = None
    average_precision: float | None = None
    f1: float | None = None
    precision: float | None = None
    recall: float | None = None

    @property
    def told(self) -> float | None:
        """Return the share of the questions to which a yes or a no came out."""
        total = self.n_yes + self.n_no + self.n_silent
        return (self.n_yes + self.n_no) / total if total else None

    @property
    def yes(self) -> float | None:
        """Return the share of yes among what came out."""
        told = self.n_yes + self.n_no
        return self.n_yes / told if told else None


def read_labels(table: Mapping[str, Any]) -> tuple[LabelResult, ...]:
    """Return the labels of a run, or none where each row has one class.

    >>> read_labels({"labels": [{"name": "rain", "n_yes": 3, "n_no": 1, "n_silent": 0}]})[0].yes
    0.75
    >>> read_labels({})
    ()
    """
    found = []
    for one in Entries(table).at("labels", TABLES, ()):
        read = Entries(one)
        shares = (
            "labels_right", "accuracy", "balanced_accuracy", "auc", "average_precision", "f1", "precision",
            "recall",
        )  # fmt: skip
        found.append(
            LabelResult(
                name=read.at("name", TEXT),
                n_yes=read.at("n_yes", COUNT),
                n_no=read.at("n_no", COUNT),
                n_silent=read.at("n_silent", COUNT),
                n_inferred=read.at("n_inferred", COUNT, 0),
                n_test_yes=read.at("n_test_yes", COUNT, 0),
                **{name: read.at(name, SHARE, None) for name in shares},
            )
        )
    return tuple(found)


def read_scores(table: Mapping[str, Any]) -> dict[str, float]:
    """Return the averages over labels on the test rows; what is not known is left out.

    >>> read_scores({"student": {"scores": {"auc": 0.9, "micro_f1": None}}})
    {'auc': 0.9}
    """
    scores: dict[str, Any] = Entries(table).at("student.scores", TABLE, {})
    return {name: Entries(scores).at(name, SHARE) for name in SCORES if scores.get(name) is not None}
