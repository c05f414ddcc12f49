"""`tellers account` on the folder of a run with one budget for all: one class per row, or many labels."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import show

if TYPE_CHECKING:
    from rich.console import Console

    from ..card.published import PublishedCosts
    from ..pipeline.closed_pool import ClosedPool, PoolAccount


def account(folder: Path, *, show_private: bool, as_json: bool) -> None:
    """Show what a run cost, by its ledger; with `show_private` also exactly."""
    from ..card.published import read_published
    from ..pipeline.closed_pool import account_for_pool, read_closed_pool

    run = read_closed_pool(folder)
    books = account_for_pool(run, private=show_private)
    published = read_published(folder)
    notes = []
    if show_private and books.exact is None:
        notes.append(
            "There is no exact cost of this run: its mechanism has none, a student took part in the asking, "
            "or only sums of ballots were kept."
        )
    if as_json:
        print(json.dumps(account_as_dict(run, books, published, notes), indent=2, allow_nan=False))
        return
    _print_account(show.console(), run, books, published, notes)


def account_as_dict(
    run: "ClosedPool", books: "PoolAccount", published: "PublishedCosts | None", notes: list[str]
) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
    result: dict[str, Any] = {
        "queries": books.n_queries,
        "teachers": run.result.n_teachers,
        **({"labels": len(run.result.labels)} if run.result.labels else {}),
        "answered": books.n_answered,
        **({"told": books.n_told, "inferred": books.n_inferred} if run.result.labels else {}),
        "delta": run.config.budget.delta,
        "budget": run.config.budget.epsilon,
        "charged": books.charged,
        "stated": books.stated,
        "budget_left": books.left,
        "published": None if published is None else published.epsilon_upper,
    }
    if books.exact is not None:
        result["private"] = {"exact": books.exact.reveal(), "kind": show.exact_kind(_why_bound(run))}
    result["notes"] = notes
    return result


def _why_bound(run: "ClosedPool") -> str:
    from ..label_costs import bound_because

    return bound_because(run.config.build_mechanism())


def _print_account(
    screen: "Console",
    run: "ClosedPool",
    books: "PoolAccount",
    published: "PublishedCosts | None",
    notes: list[str],
) -> None:
    n_labels, budget = len(run.result.labels), run.config.budget
    asked = f"{books.n_queries:,} queries by {run.result.n_teachers:,} teachers"
    if n_labels:
        inferred = f", and {books.n_inferred:,} follow from others" if books.n_inferred else ""
        screen.print(
            f"\n{asked} on {n_labels:,} labels each: {books.n_told:,} of {books.n_queries * n_labels:,} "
            f"labels told, in {books.n_answered:,} queries{inferred}."
        )
    else:
        screen.print(f"\n{asked}, {books.n_answered:,} answered.")
    screen.print(f"{run.config.build_mechanism()}\n", style="dim", markup=False)
    screen.print(f"[bold green]Anyone may know[/bold green], at delta {budget.delta:g}:\n")
    rows = show.table("", "epsilon", "", numbers=(1,))
    rows.add_row(
        "charged for the labels", show.figure(books.charged), show.bar(books.charged, budget.epsilon)
    )
    rows.add_row("held to, whatever comes out", show.figure(books.stated), "")
    if published is not None:
        rows.add_row(
            f"published, with {published.confidence} confidence",
            show.figure(published.epsilon_upper),
            "",
        )
    rows.add_row("the budget", f"{budget.epsilon:g}", f"{books.left:.0%} left")
    screen.print(show.indented(rows))
    if books.exact is not None:
        _print_exact(screen, books.exact.reveal(), _why_bound(run))
    elif not notes:
        screen.print("[dim]What these very votes cost is private. --show-private shows it to you.[/dim]\n")
    for text in notes:
        screen.print(show.note(text))


def _print_exact(screen: "Console", exact: float, why: str) -> None:
    from rich.text import Text

    rows = show.table("", "epsilon", numbers=(1,))
    rows.add_row(f"{show.exact_kind(why)}, the worst teacher over all queries", show.figure(exact))
    words = (f"\nIt is an upper bound: {why}." if why else "") + (
        "\nThis number looks at the votes, so it is as private as the votes. An upper value nearly as small "
        "can be published with noise: tellers publish."
    )
    screen.print(show.private_panel(rows, Text(words, style="dim")))
    screen.print()
