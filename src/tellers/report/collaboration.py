"""The page about a collaboration: who asked, how good each was before and after, and what it cost whom."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..card.card import shown_epsilon, shown_parameter
from ..teachers.store import write_whole
from .drawing import Drawing
from .page import percent
from .plots import plot_before_after
from .write import page_template

SCORES = {"accuracy": "accuracy", "bac": "balanced accuracy", "auc": "AUC", "map": "mAP"}
WAYS = {"sound": "so that it holds", "published": "as the paper counts"}


def write_collaboration(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of a collaboration, of what `tellers collaborate --json` prints, and return its place.

    >>> import tempfile
    >>> turn = {"asker": "ann", "counting": "sound", "epsilon": 10.0, "n_queries": 5, "n_labels": 5,
    ...         "labels_right": 0.8, "published": 1.0, "per_asker": 4.0, "party": 9.9,
    ...         "after": {"accuracy": 0.8}}
    >>> asker = {"name": "ann", "before": {"accuracy": 0.5}, "turns": [turn]}
    >>> run = {"data": "digits", "n_parties": 50, "rows_each": 20, "multilabel": False, "which": "random",
    ...        "order": "random", "delta": 1e-5, "in_the_clear": "computed in one room",
    ...        "mechanism": {"name": "GNMax", "sigma": 8.0}, "askers": [asker]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_collaboration(Path(folder, "report.html"), {"repetitions": [run], "command": ""})
    ...     "80.0 %" in page.read_text()
    True
    """
    content = page_template("collaboration.html").render(describe_collaboration(result)).encode()
    write_whole(path, content, shared=True)
    return path


def describe_collaboration(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says, as text and drawings: the first repetition asker by asker.

    >>> run = {"data": "digits", "n_parties": 2, "rows_each": 20, "multilabel": False, "which": "random",
    ...        "order": "random", "delta": 1e-5, "in_the_clear": "computed in one room",
    ...        "mechanism": {"name": "GNMax", "sigma": 8.0}, "askers": []}
    >>> describe_collaboration({"repetitions": [run], "command": ""})["drawings"]
    []
    """
    first = result["repetitions"][0]
    main = "bac" if first["multilabel"] else "accuracy"
    names = [name for name in SCORES if first["askers"] and name in first["askers"][0]["before"]]
    return {
        "run": first,
        "mechanism": {key: value for key, value in first["mechanism"].items() if key != "name"},
        "shown": shown_parameter,
        "n_repetitions": len(result["repetitions"]),
        "command": result["command"],
        "score_names": [SCORES[name] for name in names],
        "askers": [_asker(at, asker, names) for at, asker in enumerate(first["askers"])],
        "drawings": _drawings(first["askers"], main),
        "delta": f"{first['delta']:g}",
    }


def _asker(at: int, asker: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    nothing = dict.fromkeys(("n_queries", "right", "published", "per_asker", "party"), "–")
    rows = [{"way": "before", **nothing, "scores": [percent(asker["before"][name]) for name in names]}]
    for turn in asker["turns"]:
        rows.append(
            {
                "way": f"epsilon {turn['epsilon']:g}, {WAYS[turn['counting']]}",
                "n_queries": turn["n_queries"],
                "right": percent(turn["labels_right"]), "published": shown_epsilon(turn["published"]),
                "per_asker": shown_epsilon(turn["per_asker"]), "party": shown_epsilon(turn["party"]),
                "scores": [percent(turn["after"][name]) for name in names],
            }
        )  # fmt: skip
    return {"number": at + 1, "name": asker["name"], "rows": rows}


def _drawings(askers: Sequence[Mapping[str, Any]], main: str) -> list[Drawing]:
    if not askers:
        return []
    made = []
    for at, counting in enumerate(WAYS):
        ways = [turn["epsilon"] for turn in askers[0]["turns"] if turn["counting"] == counting]
        after = [
            (
                f"after, epsilon {epsilon:g}",
                [
                    next(
                        turn["after"][main]
                        for turn in asker["turns"]
                        if turn["counting"] == counting and turn["epsilon"] == epsilon
                    )
                    for asker in askers
                ],
            )
            for epsilon in ways
        ]
        if not after:
            continue
        title = f"{SCORES[main].capitalize()} of every asker before and after, {WAYS[counting]}."
        svg = plot_before_after(
            [asker["before"][main] for asker in askers], after, what=SCORES[main], title=title
        )
        caption = (
            "The budget covers a party against all askers together, at a price that holds for any votes."
            if counting == "sound"
            else "The budget is each asker's own, and its cost depends on the votes: nobody could know it in "
            "a confidential query, and it is no guarantee. What it costs a party is in the table."
        )
        # Two drawings on a page must not share an id.
        made.append(
            Drawing(
                svg=svg.replace("before-after-", f"before-after-{at}-"),
                heading=f"Counted {WAYS[counting]}",
                caption=caption,
                mark="" if counting == "sound" else "no guarantee",
            )
        )
    return made
