"""What is told of a run with many labels per row."""

from typing import Any

from rich.markup import escape

from . import show

_MOST = 20
_OF_CLASSES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_SCORES = {
    "balanced_accuracy": "balanced accuracy", "auc": "AUC", "mean_average_precision": "mAP",
    "micro_f1": "F1 over all labels", "macro_f1": "F1, mean of the labels",
    "macro_precision": "precision", "macro_recall": "recall",
}  # fmt: skip


def told(result: dict[str, Any]) -> tuple[str, str]:
    """Return how a row of the summary is called, and what came out, in words."""
    asked, student = result["queries"], result["student"]
    n_possible = asked["n_asked"] * len(result["labels"])
    inferred = sum(label["n_inferred"] for label in result["labels"])
    words = f"{student['n_labels']:,} of {n_possible:,}, in {asked['n_asked']:,} queries"
    return "labels released", words + (f" ({inferred:,} follow from others)" if inferred else "")


def scores(result: dict[str, Any]) -> Any:
    """Return the numbers on the test rows that are averages over labels, or nothing."""
    found = result["student"].get("scores") or {}
    if "labels" not in result:  # of classes, where all together are the accuracy
        each = [
            f"{word} {found[f'macro_{name}']:.3f}"
            for name, word in _OF_CLASSES.items()
            if found.get(f"macro_{name}") is not None
        ]
        return f"{', '.join(each)} (means of the classes)" if each else ""
    shown = [f"{_SCORES[name]} {found[name]:.3f}" for name in _SCORES if found.get(name) is not None]
    return ", ".join(shown)


def label_table(result: dict[str, Any]) -> Any:
    """Return a row per label: how much was told, how much of it yes, and how good the student is."""
    head = ("label", "told", "yes", "balanced accuracy", "AUC", "precision", "recall", "F1")
    table = show.table(*head, numbers=range(1, 8))
    for label in result["labels"][:_MOST]:
        n_told = label["n_yes"] + label["n_no"]
        cells = [
            _share(n_told, n_told + label["n_silent"]),
            _share(label["n_yes"], n_told),
            _number(label.get("balanced_accuracy")),
            *(_number(label.get(name)) for name in ("auc", "precision", "recall", "f1")),
        ]
        table.add_row(escape(label["name"]), *cells)
    if len(result["labels"]) > _MOST:
        table.add_row(f"and {len(result['labels']) - _MOST} more, in the report", *[""] * 7)
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
