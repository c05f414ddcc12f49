"""How a run is watched while it goes on, and told when it is done."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from . import show

if TYPE_CHECKING:
    from ..runs.pipeline import Show
    from ..runs.result import PersonalPart, PrivateNumbers, RunResult


# While a run goes on

_WORDS = {
    "made": "Making up a city",
    "pictures": "Preparing recordings",
    "data": "Reading the data",
    "teachers": "Training teachers",
    "prior": "Buying how often each class or label is true",
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
                    whole = bars.tasks[task].total or 1
                    bars.update(task, total=whole, completed=whole)
            if step not in tasks:
                tasks[step] = bars.add_task(_WORDS[step], total=total or None)
            bars.update(tasks[step], total=total or None, completed=done)

        yield advance
        for task in tasks.values():
            # A run that stops early, at its budget say, is through with what it did, not with what it might.
            done = bars.tasks[task].completed or 1
            bars.update(task, total=done, completed=done)


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
    from ..runs._folder import say_where

    print(f"tellers: {say_where(folder)}", file=sys.stderr)


def _warnings(rows: list[dict[str, Any]], lines: tuple[str, ...]) -> tuple[str, ...]:
    # After the lines on the plan and on each group, which the table tells.
    return lines[1 + len(rows) :]


# When it is done

_MOST_LABELS = 20
_OF_LABELS = {
    "balanced_accuracy": "balanced accuracy", "auc": "AUC", "mean_average_precision": "mAP",
    "micro_f1": "F1 over all labels", "macro_f1": "F1, mean of the labels",
    "macro_precision": "precision", "macro_recall": "recall",
}  # fmt: skip
# Of classes all together are the accuracy.
_OF_CLASSES = {"macro_precision": "precision", "macro_recall": "recall", "macro_f1": "F1"}


def tell(result: "RunResult", folder: Path, *, public_data: bool = False) -> None:
    """Print what came out and what it cost; private numbers only where the settings ask for them."""
    spent, console = result.spent, show.console()
    console.print()
    accuracies = _accuracies(result, folder)
    if accuracies.row_count:  # without test rows there is nothing under the heading
        console.print(show.indented(accuracies))
    console.print(show.indented(_summary(result)))
    if result.labels:
        console.print(show.indented(_label_table(result)))
    if result.personal is not None:
        console.print(show.indented(_groups(result.personal, n_asked=result.queries.n_asked)))
        if result.personal.rounds_words:
            console.print(show.note(result.personal.rounds_words))
    if not spent.is_guarantee:
        console.print(show.note(spent.why))
    for warning in result.warnings:
        if warning != spent.why:
            console.print(show.note(warning))
    if public_data:
        words = "the digits are public, so private numbers are shown too; on your data they stay in "
        console.print(show.note(f"{words}{folder / 'private'}."))
    where = "There is no student." if result.is_void else f"The student and its card: {folder / 'student'}"
    console.print(f"Open {folder / 'report.html'} in a browser. {where}")
    sound = folder / "sound.html"
    if sound.exists():
        console.print(f"What it hears, and curves of every label: {sound}", markup=False, soft_wrap=True)


def _summary(result: "RunResult") -> Any:
    asked, student, spent = result.queries, result.student, result.spent
    table = show.table("", "")
    table.add_row("labels released", _released(result))
    if result.tested is not None:
        table.add_row("tested", f"{result.tested.words} ({result.tested.terms})")
    if student.labels_right is not None:
        table.add_row("of them right", f"{student.labels_right:.1%}")
    guarantee = f"epsilon {show.figure(spent.epsilon)} at delta {spent.delta:g}"
    table.add_row("privacy", f"{guarantee}, for {result.partition.unit}")
    if result.budget.rule == "clock":
        from ..privacy.budget import clock_words

        table.add_row("held", clock_words(result.budget.epsilon, result.budget.left))
    else:
        table.add_row("held", f"at a Rényi order (renyi), of a budget of epsilon {result.budget.epsilon:g}")
    if result.partition.relation is not None:
        table.add_row("neighbours", result.partition.relation.sentence)
    if spent.shared and spent.charged is not None:
        together = f"epsilon {show.figure(spent.charged)} of {result.budget.epsilon:g}"
        table.add_row("with all others", f"{together} is charged to the ledger so far")
    if result.is_void and spent.charged is not None:
        charged = f"epsilon {show.figure(spent.charged)} of {result.budget.epsilon:g}"
        table.add_row("spent", f"{charged}, for the test alone")
    table.add_row("stopped by", asked.stopped_by)
    found, words = student.known_scores, _OF_LABELS if result.labels else _OF_CLASSES
    scores = ", ".join(f"{word} {found[name]:.3f}" for name, word in words.items() if name in found)
    if scores:
        table.add_row("on the test rows", scores if result.labels else f"{scores} (means of the classes)")
    return table


def _released(result: "RunResult") -> str:
    asked, n_labels = result.queries, result.student.n_labels
    if result.labels:
        n_possible = asked.n_asked * len(result.labels)
        n_inferred = sum(label.n_inferred for label in result.labels)
        follow = f" ({n_inferred:,} follow from others)" if n_inferred else ""
        return f"{n_labels:,} of {n_possible:,}, in {asked.n_asked:,} queries{follow}"
    share = f"{asked.n_answered / max(1, asked.n_asked):.0%} answered by the teachers"
    apart = [
        (asked.n_silent, "met silence"),
        (asked.n_by_student, "were the student's own, confirmed"),
        (asked.n_lost, "were lost"),
    ]
    told = ", ".join(f"{n:,} {words}" for n, words in apart if n)
    return f"{n_labels:,} of {asked.n_asked:,} queries, {share}" + (f" ({told})" if told else "")


def _label_table(result: "RunResult") -> Any:
    """Return a row per label: how much was told, how much of it yes, and how good the student is."""
    head = ("label", "told", "yes", "balanced accuracy", "AUC", "precision", "recall", "F1")
    table = show.table(*head, numbers=range(1, 8))
    for label in result.labels[:_MOST_LABELS]:
        shares = ("–" if share is None else f"{share:.0%}" for share in (label.told, label.yes))
        scores = (label.balanced_accuracy, label.auc, label.precision, label.recall, label.f1)
        cells = ("–" if score is None else f"{score:.3f}" for score in scores)
        table.add_row(escape(label.name), *shares, *cells)
    if len(result.labels) > _MOST_LABELS:
        table.add_row(f"and {len(result.labels) - _MOST_LABELS} more, in the report", *[""] * 7)
    return table


def _groups(personal: "PersonalPart", *, n_asked: int) -> Any:
    headings = ("group", "epsilon at most", "budget", "left", "took part in", "labels")
    table = show.table(*headings, numbers=range(1, 6))
    for group in personal.groups:
        cells = [show.figure(group.stated), f"{group.epsilon:.4g}", f"{group.budget_left:.0%}"]
        cells += [f"{group.n_queries:,} of {n_asked:,}", f"{group.n_labels or 0:,}"]
        table.add_row(escape(group.name), *cells)
    return table


def _accuracies(result: "RunResult", folder: Path) -> Any:
    what = "labels of the test rows" if result.labels else "test rows"
    table = show.table(f"accuracy on the {what}", "", "", numbers=(1,))
    private, rows = _private(result, folder), []
    if private is not None:
        rows = [
            ("a model trained on the private rows", private.open_model_accuracy, "[red]private[/red]"),
            ("the teachers' plurality, without noise", private.plurality_accuracy, "[red]private[/red]"),
        ]
    for name, accuracy, kind in (*rows, ("the student", result.student.accuracy, "public")):
        if accuracy is not None:
            table.add_row(name, f"{accuracy:.1%}", kind)
    return table


def _private(result: "RunResult", folder: Path) -> "PrivateNumbers | None":
    from ..runs.result import read_private

    if not result.settings["report"]["private"]:
        return None
    try:
        return read_private(folder)
    except ValueError:
        return None
