"""How a run is watched while it goes on, and told when it is done."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from . import label_outcome, show

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ..pipeline.steps import Show

_WORDS = {
    "made": "Making up a city",
    "pictures": "Preparing recordings",
    "data": "Reading the data",
    "teachers": "Training teachers",
    "votes": "Letting them vote",
    "labels": "Releasing labels",
    "anew": "Training teachers anew, without a group whose budget is used",
    "student": "Teaching the student",
    "report": "Writing the report",
    "canaries": "Laying canaries",
    "shadows": "Running shadows",
}


@contextmanager
def steps_shown(*, wanted: bool) -> "Iterator[Show | None]":
    """Show a bar per step on stderr, or a line per step where nobody watches a terminal."""
    if not wanted:
        yield None
        return
    if not sys.stderr.isatty():
        seen: set[str] = set()

        def say(step: str, _done: int, _total: int) -> None:
            if step not in seen:
                seen.add(step)
                print(f"{_WORDS[step]} ...", file=sys.stderr, flush=True)

        yield say
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=show.console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def advance(step: str, done: int, total: int) -> None:
            for other, task in tasks.items():
                # Teachers that are trained anew are an interlude: the labels go on afterwards.
                goes_on = step == "anew" and other == "labels"
                if other != step and not goes_on and not bars.tasks[task].finished:
                    bars.update(
                        task, total=bars.tasks[task].total or 1, completed=bars.tasks[task].total or 1
                    )
            if step not in tasks:
                tasks[step] = bars.add_task(_WORDS[step], total=total or None)
            bars.update(tasks[step], total=total or None, completed=done)

        yield advance
        for task in tasks.values():
            _finish(bars, task)


_TAKES_PART = {"weight": "votes each", "frequency": "of all queries", "copies": "teachers each"}


def show_groups(rows: list[dict[str, Any]], lines: tuple[str, ...]) -> None:
    """Print who has which budget and how each group takes part, before anything is trained."""
    how = next(name for name in _TAKES_PART if name in rows[0])
    headings = ["group", "epsilon", "persons", "share", "teachers", _TAKES_PART[how]]
    binned = any(row["waste"] for row in rows)
    table = show.table(*headings, *["unused"] * binned, numbers=range(1, 7))
    for row in rows:
        cells = [f"{row['epsilon']:.4g}", f"{row['n_persons']:,}", f"{row['share']:.1%}"]
        cells += [f"{row['n_teachers']:,}", f"{row[how]:.1%}" if how == "frequency" else f"{row[how]}"]
        table.add_row(escape(row["name"]), *cells, *[f"{row['waste']:.3g}"] * binned)
    console = show.console()
    console.print()
    console.print(show.indented(table))
    console.print(lines[0], markup=False)
    for warning in _warnings(rows, lines):
        console.print(show.note(warning))
    if binned:
        console.print(show.note("unused: what the people of a bin would have allowed on top, on average."))


def warn_of_groups(rows: list[dict[str, Any]], lines: tuple[str, ...]) -> None:
    """Print what is wrong with the budgets on stderr, before anything is trained, and nothing else."""
    for warning in _warnings(rows, lines):
        print(f"tellers: {warning}", file=sys.stderr)


def say_warning(words: str) -> None:
    """Print a warning on stderr, for whoever runs it."""
    print(f"tellers: warning: {words}", file=sys.stderr)


def say_record(folder: Path) -> None:
    """Print on stderr where a run keeps what its operator alone may know; the same line for every run."""
    from ..pipeline.record import say_where

    print(f"tellers: {say_where(folder)}", file=sys.stderr)


def _warnings(rows: list[dict[str, Any]], lines: tuple[str, ...]) -> tuple[str, ...]:
    # After the lines on the plan and on each group, which the table tells.
    return lines[1 + len(rows) :]


def _finish(bars: "Progress", task: "TaskID") -> None:
    # A run that stops early, at its budget say, is through with what it did and not with what it might have.
    done = bars.tasks[task].completed or 1
    bars.update(task, total=done, completed=done)


def tell_sound(page: Path) -> None:
    """Say where to see what a student hears."""
    show.console().print(f"What it hears, and curves of every label: {page}", markup=False, soft_wrap=True)


def tell(result: dict[str, Any], folder: Path, *, public_data: bool = False) -> None:
    """Print what came of a run: what it gives, what it cost, what is guaranteed, where everything is."""
    from ..card.groups import read_personal

    console = show.console()
    asked, student, spent = result["queries"], result["student"], result["spent"]
    console.print()
    accuracies = _accuracies(result, folder)
    if accuracies.row_count:  # without test rows there is nothing under the heading
        console.print(show.indented(accuracies))
    table = show.table("", "")
    share = f", {asked['n_answered'] / max(1, asked['n_asked']):.0%} answered by the teachers"
    asked_for = f"{student['n_labels']:,} of {asked['n_asked']:,} queries{share}{_silence(asked)}"
    table.add_row(*(label_outcome.told(result) if "labels" in result else ("labels released", asked_for)))
    if student["labels_right"] is not None:
        table.add_row("of them right", f"{student['labels_right']:.1%}")
    guarantee = f"epsilon {show.figure(spent['epsilon'])} at delta {spent['delta']:g}"
    table.add_row("privacy", f"{guarantee}, for {result['partition']['unit']}")
    if "relation" in result["partition"]:
        table.add_row("neighbours", result["partition"]["relation"]["sentence"])
    if spent.get("shared"):
        together = f"epsilon {show.figure(spent['charged'])} of {result['budget']['epsilon']:g}"
        table.add_row("with all others", f"{together} is charged to the ledger so far")
    table.add_row("stopped by", asked["stopped_by"])
    if label_outcome.scores(result):
        table.add_row("on the test rows", label_outcome.scores(result))
    console.print(show.indented(table))
    if "labels" in result:
        console.print(show.indented(label_outcome.label_table(result)))
    if "personal" in result:
        console.print(show.indented(_groups(result)))
        anew = read_personal(result)
        if anew is not None and anew.rounds_words:
            console.print(show.note(anew.rounds_words))
    if not spent["is_guarantee"]:
        console.print(show.note(spent["why"]))
    for warning in result["warnings"]:
        if warning != spent["why"]:
            console.print(show.note(warning))
    if public_data:
        console.print(
            show.note(
                "the digits are public, so private numbers are shown too; on your data they stay in "
                f"{folder / 'private'}."
            )
        )
    console.print(
        f"Open {folder / 'report.html'} in a browser. The student and its card: {folder / 'student'}"
    )


def _groups(result: dict[str, Any]) -> Any:
    headings = ("group", "epsilon at most", "budget", "left", "took part in", "labels")
    table = show.table(*headings, numbers=range(1, 6))
    n_asked = result["queries"]["n_asked"]
    for group in result["personal"]["groups"]:
        cells = [show.figure(group["stated"]), f"{group['epsilon']:.4g}", f"{group['budget_left']:.0%}"]
        cells += [f"{group['n_queries']:,} of {n_asked:,}", f"{group['n_labels']:,}"]
        table.add_row(escape(group["name"]), *cells)
    return table


def _accuracies(result: dict[str, Any], folder: Path) -> Any:
    what = "labels of the test rows" if "labels" in result else "test rows"
    table = show.table(f"accuracy on the {what}", "", "", numbers=(1,))
    private = _private(result, folder)
    rows = [
        ("a model trained on the private rows", private.get("open_model_accuracy"), "private"),
        ("the teachers' plurality, without noise", private.get("plurality_accuracy"), "private"),
        ("the student", result["student"]["accuracy"], "public"),
    ]
    for name, accuracy, kind in rows:
        if accuracy is not None:
            table.add_row(name, f"{accuracy:.1%}", f"[red]{kind}[/red]" if kind == "private" else kind)
    return table


def _private(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    if not result["settings"]["report"]["private"]:
        return {}
    try:
        numbers: dict[str, Any] = json.loads((folder / "private" / "summary.json").read_text())
    except (OSError, ValueError):
        return {}
    return numbers


def _silence(asked: dict[str, Any]) -> str:
    parts = []
    if asked["n_silent"]:
        parts.append(f"{asked['n_silent']:,} met silence")
    if asked["n_by_student"]:
        parts.append(f"{asked['n_by_student']:,} were the student's own, confirmed")
    if asked["n_lost"]:
        parts.append(f"{asked['n_lost']:,} were lost")
    return f" ({', '.join(parts)})" if parts else ""
