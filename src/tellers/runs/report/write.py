"""Writing report pages: of a run, of a collaboration, or a sheet of drawings and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...privacy._files import write_whole
from ..result import read_private, read_published, read_result
from ._page import page_template, write_page
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
    private, place = "private" in marks, Path(path)
    page = page_template("sheet.html").render(title=title, words=words, parts=parts, private=private)
    write_whole(place, page.encode(), shared=not private)
    return place


# The page about a collaboration

SCORES = {"accuracy": "accuracy", "bac": "balanced accuracy", "auc": "AUC", "map": "mAP"}
WAYS = {"sound": "so that it holds", "published": "as the paper counts"}


def write_collaboration(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of what `tellers collaborate --json` prints: the first repetition asker by asker."""
    first = result["repetitions"][0]
    scores = first["askers"][0]["before"] if first["askers"] else ()
    content = page_template("collaboration.html").render(
        run=first,
        n_repetitions=len(result["repetitions"]),
        command=result["command"],
        score_names={name: word for name, word in SCORES.items() if name in scores},
        ways=WAYS,
        drawings=_drawings(first["askers"], "bac" if first["multilabel"] else "accuracy"),
    )
    write_whole(path, content.encode(), shared=True)
    return path


def _drawings(askers: Sequence[Mapping[str, Any]], main: str) -> list[Drawing]:
    made = []
    for counting in WAYS:
        turns = [
            {turn["epsilon"]: turn["after"][main] for turn in asker["turns"] if turn["counting"] == counting}
            for asker in askers
        ]
        # Whoever is asked first says which budgets there were; all had the same.
        budgets = turns[0] if turns else {}
        after = [(f"after, epsilon {budget:g}", [own[budget] for own in turns]) for budget in budgets]
        if not after:
            continue
        title = f"{SCORES[main].capitalize()} of every asker before and after, {WAYS[counting]}."
        before = [asker["before"][main] for asker in askers]
        caption = (
            "The budget covers a party against all askers together, at a price that holds for any votes."
            if counting == "sound"
            else "The budget is each asker's own, and its cost depends on the votes: nobody could know it in "
            "a confidential query, and it is no guarantee. What it costs a party is in the table."
        )
        made.append(
            Drawing(
                svg=plot_before_after(title, before, after, what=SCORES[main]),
                heading=f"Counted {WAYS[counting]}",
                caption=caption,
                mark="" if counting == "sound" else "no guarantee",
            )
        )
    return made
