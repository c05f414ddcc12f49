"""What the page says of many labels per row: what was told of each, how clearly, how well it is known."""

from typing import Any

from ..card.labels import LabelResult
from ..card.result import RunResult
from .drawing import Drawing
from .folder import PrivateNumbers
from .plots import plot_gaps, plot_told

_WORDS = {
    "accuracy": ("Accuracy", "the share of right answers, over all rows and labels"),
    "balanced_accuracy": ("Balanced accuracy", "what is found of yes and no, on average; 50 % is guessing"),
    "auc": ("AUC", "how often a row with the label is ranked above one without it; 50 % is guessing"),
    "mean_average_precision": ("mAP", "the precision of a ranking by the label, averaged over its rows"),
    "micro_f1": ("F1, all labels", "precision and recall of yes in one, over all answers"),
    "macro_f1": ("F1, label by label", "the same of each label, averaged"),
    "micro_precision": ("Precision, all labels", "how many of the labels that it says are true"),
    "micro_recall": ("Recall, all labels", "how many of the true labels it says"),
    "macro_precision": ("Precision, label by label", "the same of each label, averaged"),
    "macro_recall": ("Recall, label by label", "the same of each label, averaged"),
}  # fmt: skip
# With more of them a table is long; what matters then is in the sums, the rest can be opened.
_MANY = 30


def describe_labels(run: RunResult) -> dict[str, Any] | None:
    """Return the labels as rows of a table, scores and a drawing, or None where each row has one class.

    >>> from types import SimpleNamespace
    >>> one = LabelResult(name="rain", n_yes=30, n_no=50, n_silent=20, n_inferred=0, n_test_yes=0)
    >>> run = SimpleNamespace(labels=(one,), scores={"auc": 0.9}, n_asked=100, n_labels=80)
    >>> page = describe_labels(run)
    >>> page["rows"][0]["told"], page["rows"][0]["yes"], page["scores"][0][:2]
    ((80.0, '80.0 %'), (37.5, '37.5 %'), ('AUC', '90.0 %'))
    """
    if not run.labels:
        return None
    tested = any(label.accuracy is not None for label in run.labels)
    silent, told = any(one.n_silent for one in run.labels), run.n_labels
    n_inferred = sum(one.n_inferred for one in run.labels)
    return {
        "rows": [_row(at, label) for at, label in enumerate(run.labels)],
        "many": len(run.labels) > _MANY,
        "tested": tested,
        "judged": any(label.labels_right is not None for label in run.labels),
        "n_possible": run.n_asked * len(run.labels),
        "n_inferred": n_inferred,
        "scores": [
            (_WORDS[name][0], _percent(value), _WORDS[name][1], round(100 * value, 2))
            for name, value in run.scores.items()
            if name in _WORDS
        ],
        "drawing": _told(run, told, silent=silent),
    }


def label_votes_drawn(run: RunResult, private: PrivateNumbers | None) -> list[Drawing]:
    """Return how clear the votes on every label were, for the private page; nothing for the public one.

    >>> label_votes_drawn(None, None)
    []
    """
    if private is None or not private.gaps:
        return []
    clear = sum(gap > run.n_teachers / 2 for gap in private.gaps) / len(private.gaps)
    svg = plot_gaps(
        private.gaps, n_teachers=run.n_teachers, private=True, between="votes between yes and no",
        of="% of labels asked", title="How far yes and no are apart, in votes. Private.",
    )  # fmt: skip
    caption = (
        f"On {_percent(clear)} of the labels that were asked, yes and no are more than half of the teachers "
        "apart. The further, the less noise can change the outcome, and the less one teacher matters. From "
        "the votes of this run."
    )
    return [Drawing(svg=svg, heading="How clear are the votes?", caption=caption, mark="private")]


def _row(at: int, label: LabelResult) -> dict[str, Any]:
    return {
        "number": at + 1,
        "name": label.name,
        "told": _bar(label.told),
        "yes": _bar(label.yes),
        "right": _percent(label.labels_right),
        "accuracy": _percent(label.accuracy),
        "balanced": _bar(label.balanced_accuracy),
        "auc": _percent(label.auc),
        "precision": _percent(label.average_precision),
        "f1": _percent(label.f1),
        "n_test_yes": label.n_test_yes,
    }


def _told(run: RunResult, told: int, *, silent: bool) -> Drawing:
    shares = [(label.n_yes, label.n_no, label.n_silent) for label in run.labels]
    svg = plot_told(shares, title=f"Yes, no and silence for each of {len(run.labels)} labels.")
    words = (
        f"What came out of {run.n_asked} questions, label by label, {told} answers in all; the numbers are "
        "those of the table. "
    )
    words += (
        "Where the teachers did not agree enough, nothing was said."
        if silent
        else "No label met with silence."
    )
    return Drawing(svg=svg, heading="What was told", caption=words)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _bar(share: float | None) -> tuple[float | None, str]:
    return None if share is None else round(100 * share, 2), _percent(share)
