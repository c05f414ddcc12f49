"""`tellers account` on the folder of a run with budgets per group, and which folder a path means."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from . import options, show

if TYPE_CHECKING:
    from rich.console import Console

    from ..card.published import PublishedCosts
    from ..pipeline.closed import ClosedRun, GroupAccount


def folder_of(path: Path, *, but: Mapping[str, object]) -> Path | None:
    """Return the folder of the run that a path means, if it means one; `but` are options of files alone."""
    folder = path.parent if path.name == "plan.json" else path
    if folder is path and (not path.is_dir() or (path / "votes.json").is_file()):
        return None  # votes alone, in a file or in a folder of parts
    foreign = [options.flag(name) for name, value in but.items() if value is not None]
    if foreign:
        raise ValueError(
            f"Expected no {' and no '.join(foreign)} with the folder of a run, which keeps its settings. "
            "Leave it out."
        )
    return folder


def run_around(path: Path) -> Path | None:
    """Return the folder of the run whose private part a path lies in, or None; links are followed."""
    place = path.resolve()
    for private in place.parents:
        if private.name == "private" and (private.parent / "config.toml").is_file():
            return private.parent
    return None


def account(folder: Path, *, show_private: bool, as_json: bool) -> None:
    """Show what a run cost each group, by its ledger; with `show_private` also exactly."""
    from ..card.published import read_published
    from ..pipeline.closed import account_for_groups, read_closed

    run = read_closed(folder)
    books = account_for_groups(run, private=show_private)
    published = read_published(folder)
    notes = []
    if show_private and any(group.exact is None for group in books):
        notes.append(
            "There are no exact costs of this run: either a student took part in the asking, or it is by "
            "upsampling, for which the settings must say `private = true` under [report]."
        )
    if as_json:
        print(json.dumps(account_as_dict(run, books, published, notes), indent=2, allow_nan=False))
        return
    _print_account(show.console(), run, books, published, notes)


def account_as_dict(
    run: "ClosedRun",
    books: "tuple[GroupAccount, ...]",
    published: "PublishedCosts | None",
    notes: list[str],
) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
    upper = {} if published is None else {group.name: group.epsilon_upper for group in published.groups}
    result: dict[str, Any] = {
        "queries": run.result.n_asked,
        "teachers": run.result.n_teachers,
        "delta": run.config.budget.delta,
        "variant": run.plan.variant,
        "groups": [
            {
                "name": group.name, "budget": group.budget, "public": group.public, "stated": group.stated,
                "published": upper.get(group.name), "on_account": group.on_account,
                "budget_left": group.left, "labels": group.n_labels,
            }
            for group in books
        ],
    }  # fmt: skip
    exact = {group.name: group.exact.reveal() for group in books if group.exact is not None}
    if exact:
        result["private"] = {"exact": exact}
    result["notes"] = notes
    return result


def _print_account(
    screen: "Console",
    run: "ClosedRun",
    books: "tuple[GroupAccount, ...]",
    published: "PublishedCosts | None",
    notes: list[str],
) -> None:
    result, delta = run.result, run.config.budget.delta
    screen.print(
        f"\n{result.n_asked:,} queries by {result.n_teachers:,} teachers, {result.n_answered:,} answered."
    )
    screen.print(f"{run.plan.summary[0]}\n", style="dim", markup=False)
    whose = f"at delta {delta:g}, for {result.unit} of each group"
    screen.print(f"[bold green]Anyone may know[/bold green], {whose}:\n")
    upper = {} if published is None else {group.name: group.epsilon_upper for group in published.groups}
    headings = ["group", "budget", "public cost", "held to", *["published"] * bool(upper), "left", "labels"]
    table = show.table(*headings, "", numbers=range(1, len(headings)))
    for group in books:
        cells = [f"{group.budget:.4g}", show.figure(group.public), show.figure(group.stated)]
        cells += [show.figure(upper[group.name])] if upper else []
        cells += [f"{group.left:.0%}", f"{group.n_labels:,}"]
        table.add_row(escape(group.name), *cells, show.bar(1 - group.left, 1.0))
    screen.print(show.indented(table))
    screen.print(
        "Public cost is what the ledger charged for the labels; what a group is held to stands whatever "
        "comes out.\n"
    )
    exact = [(group.name, group.exact.reveal()) for group in books if group.exact is not None]
    if exact:
        _print_exact(screen, exact)
    elif not notes:
        screen.print("[dim]What these very votes cost is private. --show-private shows it to you.[/dim]\n")
    for text in notes:
        screen.print(show.note(text))


def _print_exact(screen: "Console", exact: list[tuple[str, float]]) -> None:
    from rich.text import Text

    rows = show.table("group", "exact epsilon", "", numbers=(1,))
    largest = max(epsilon for _, epsilon in exact)
    for name, epsilon in exact:
        rows.add_row(escape(name), show.figure(epsilon), Text(show.bar(epsilon, largest), style="red"))
    words = (
        "\nThe worst member of each group over all queries. These numbers look at the votes, so they are as "
        "private as the votes. Upper values nearly as small can be published with noise: tellers publish."
    )
    screen.print(show.private_panel(rows, Text(words, style="dim")))
    screen.print()
