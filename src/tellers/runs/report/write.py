"""Writing report pages: of a run, of a collaboration, or a sheet of drawings and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...privacy._files import write_whole
from .._private import read_private
from ..card import shown_epsilon, shown_parameter
from ..result import read_published, read_result
from ._page import page_template, percent, write_page
from ._plots import Drawing, plot_before_after


def write_report(folder: str | PathLike[str], *, private: bool = False) -> Path:
    """Write the report of a run into its folder and return where it is.

    The public report is `report.html`; nothing under `private/` is opened for it. With `private` the page
    holds private numbers too, in red frames: it becomes `private/report.private.html`, which only its owner
    may read. Written again from the same files, the page has the same bytes.

    >>> write_report("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    place = Path(folder)
    run = read_result(place)
    numbers = read_private(place) if private else None
    if run.published is None:
        # Earlier versions told of it in a file of its own alone.
        run = run.model_copy(update={"published": read_published(place)})
    return write_page(place, run, numbers)


# A sheet: drawings and tables with the look of the report, about something that is no whole run

Cell = str | float


@dataclass(frozen=True, kw_only=True)
class SheetTable:
    """A table on a sheet; a cell that is a number is a share; in a table of two columns it has a bar.

    `colours` says which line of the drawings beside it a row is: a number from 1, or 0 for none.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    mark: str = ""
    colours: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SheetPart:
    """A part of a sheet: a heading, a paragraph, and drawings and tables side by side."""

    heading: str
    words: str = ""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[SheetTable, ...] = ()


def write_sheet(
    path: str | PathLike[str], title: str, *, parts: Sequence[SheetPart], words: str = ""
) -> Path:
    """Write a page of parts and return where it is; one with anything private is for its owner alone.

    `words` stand below the title: what is shown, and who may see it.

    Whatever names contain, they stay text. The page needs nothing else, no network and no JavaScript.
    """
    marks = [one.mark for part in parts for one in part.drawings]
    marks += [one.mark for part in parts for one in part.tables]
    page = page_template("sheet.html").render(
        title=title, words=words, parts=parts, private="private" in marks
    )
    content = page.encode()
    place = Path(path)
    write_whole(place, content, shared="private" not in marks)
    return place


# The page about a collaboration

SCORES = {"accuracy": "accuracy", "bac": "balanced accuracy", "auc": "AUC", "map": "mAP"}
WAYS = {"sound": "so that it holds", "published": "as the paper counts"}


def write_collaboration(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of what `tellers collaborate --json` prints, and return its place."""
    content = page_template("collaboration.html").render(describe_collaboration(result)).encode()
    write_whole(path, content, shared=True)
    return path


def describe_collaboration(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says, as text and drawings: the first repetition asker by asker."""
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
