"""Ablations, classes and chances to flip, from what was kept."""

from collections.abc import Sequence

import numpy as np
from asking import label_votes
from forms import TITLES
from grids import Cell, Grid
from kept import Kept
from plan import ABLATED, ABLATIONS, DELTA, FOLDS, LARGEST, UNEVEN, Task

from tellers.data.metrics import LabelCurve, best_and_worst, label_curves
from tellers.runs.sound import SweepSetting, flip_buckets

# ESC-10's classes in the order of their columns, which is that of the alphabet.
CLASSES = (
    "chainsaw",
    "clock_tick",
    "crackling_fire",
    "crying_baby",
    "dog",
    "helicopter",
    "rain",
    "rooster",
    "sea_waves",
    "sneezing",
)
SETTING = SweepSetting(share=0.4, sigma=0.4, noise="variance")


def ablation(kept: Kept, network: str, kind: str) -> Grid:
    """One thing changed at a time: scores on the test, and the difference in every fold."""
    base = {
        score: kept.scores_of("multi", network, f"{kind}/as it is", score)
        for score in ("map", "auc", "macro_f1")
    }
    rows: dict[str, dict[str, Cell]] = {}
    for name in UNEVEN if kind == "uneven" else ABLATIONS:
        ours = {score: kept.scores_of("multi", network, f"{kind}/{name}", score) for score in base}
        if len(ours["map"]) != len(base["map"]) or not ours["map"]:
            continue
        cells: dict[str, Cell] = {"mAP": ours["map"], "AUC": ours["auc"], "macro F1": ours["macro_f1"]}
        if name != "as it is":
            for words, score in (("mAP, more", "map"), ("F1, more", "macro_f1")):
                cells[words] = [a - b for a, b in zip(ours[score], base[score], strict=True)]
        rows[name] = cells
    words = "five of ten classes made rare" if kind == "uneven" else "classes as they are"
    return Grid(
        f"multi/{network}/ablation/{kind}",
        f"{TITLES['multi']} ({network}): one thing changed, {words}",
        ("mAP", "AUC", "macro F1", "mAP, more", "F1, more"),
        rows,
        (
            f"Mean over folds, in each {ABLATED[network]} of the 5 teachers that share the private clips; "
            "standard errors are over folds.",
        ),
        first="changed",
    )


def pooled_curves(kept: Kept, task: Task, network: str, who: str) -> list[LabelCurve]:
    """Return curves over the tests of all folds together; each fold has a network of its own."""
    truth = np.concatenate([kept.truth(task, fold, "test") for fold in FOLDS[task]])
    said = np.concatenate([kept.answers[f"{task}/{fold}/{network}/{who}"] for fold in FOLDS[task]])
    return label_curves(truth, said.astype(np.float64))


def classes(kept: Kept, network: str) -> Grid:
    """Average precision and area under ROC, class by class, of the baseline and of students."""
    who = {
        "baseline": "baseline",
        "true labels": "student/1/truth",
        "5 teachers": "student/5/noiseless",
        "20 teachers": "student/20/noiseless",
    }
    curves = {name: pooled_curves(kept, "multi", network, key) for name, key in who.items()}
    best, _ = best_and_worst([curve.area for curve in curves["baseline"]], n_labels=len(CLASSES))
    rows: dict[str, dict[str, Cell]] = {}
    for label in best:
        rows[CLASSES[label].replace("_", " ")] = {
            **{f"AP, {name}": curves[name][label].area for name in who},
            **{f"AUC, {name}": curves[name][label].auc for name in ("baseline", "20 teachers")},
        }
    return Grid(
        f"multi/{network}/classes",
        f"{TITLES['multi']} ({network}): classes, best first, no noise",
        tuple(next(iter(rows.values()))),
        rows,
        ("Over the tests of all folds together, 160 mixtures each. Students learn the whole pool.",),
        first="class",
    )


def flips(kept: Kept, task: Task, network: str, folds: Sequence[int]) -> Grid:
    """Queries by q, the chance that the likeliest labels do not come out, and what 1000 would cost."""
    rows: dict[str, dict[str, Cell]] = {}
    for fold in folds:
        votes = label_votes(kept.said(task, fold, network, LARGEST[task]), parts=task != "city")
        buckets = flip_buckets(votes, SETTING, delta=DELTA[task], n_buckets=8).reveal()
        for low, high, n, epsilon in buckets:
            cells = rows.setdefault(f"{low:.2g} to {high:.2g}", {"queries": [], "epsilon of 1000": []})
            cells["queries"].append(float(n))  # type: ignore[union-attr]
            if np.isfinite(epsilon):
                cells["epsilon of 1000"].append(epsilon)  # type: ignore[union-attr]
    return Grid(
        f"{task}/{network}/flips",
        f"{TITLES[task]} ({network}): as figure 5.16, queries by q",
        ("queries", "epsilon of 1000"),
        rows,
        (
            f"{LARGEST[task]} teachers, th_e 0.4, sigma_e 0.4 as a variance, delta {DELTA[task]:g}; "
            "the published bound at a sound sensitivity. Private.",
        ),
        digits=1,
        first="q",
    )
