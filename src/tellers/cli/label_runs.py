"""`tellers account` and `tellers publish` on the folder of a run with many labels per row."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from . import show

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipeline.closed_labels import ClosedLabels, LabelProposal, LabelRunAccount
    from ..publishable import Method
    from ..smooth import PublishedEpsilon


def account(folder: Path, *, show_private: bool, as_json: bool) -> None:
    """Show what a run cost, by its ledger; with `show_private` also exactly."""
    from ..pipeline.closed_labels import account_for_labels, read_closed_labels, read_published_epsilon

    run = read_closed_labels(folder)
    books = account_for_labels(run, private=show_private)
    published = read_published_epsilon(run)
    notes = []
    if show_private and books.exact is None:
        notes.append("There is no exact cost of this run: only sums of ballots were kept.")
    if as_json:
        print(json.dumps(account_as_dict(run, books, published, notes), indent=2, allow_nan=False))
        return
    _print_account(show.console(), run, books, published, notes)


def account_as_dict(
    run: "ClosedLabels", books: "LabelRunAccount", published: "PublishedEpsilon | None", notes: list[str]
) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
    result: dict[str, Any] = {
        "queries": books.n_queries,
        "teachers": run.result.n_teachers,
        "labels": len(run.result.labels),
        "answered": books.n_answered,
        "told": books.n_told,
        "inferred": books.n_inferred,
        "delta": run.config.budget.delta,
        "budget": run.config.budget.epsilon,
        "charged": books.charged,
        "stated": books.stated,
        "budget_left": books.left,
        "published": None if published is None else published.epsilon_upper,
    }
    if books.exact is not None:
        why = _why_bound(run)
        result["private"] = {"exact": books.exact.reveal(), "kind": show.exact_kind(why)}
    result["notes"] = notes
    return result


def _why_bound(run: "ClosedLabels") -> str:
    from ..label_costs import bound_because

    return bound_because(run.config.build_mechanism())


def _print_account(
    screen: "Console",
    run: "ClosedLabels",
    books: "LabelRunAccount",
    published: "PublishedEpsilon | None",
    notes: list[str],
) -> None:
    n_labels, budget = len(run.result.labels), run.config.budget
    inferred = f", and {books.n_inferred:,} follow from others" if books.n_inferred else ""
    screen.print(
        f"\n{books.n_queries:,} queries by {run.result.n_teachers:,} teachers on {n_labels:,} labels each: "
        f"{books.n_told:,} of {books.n_queries * n_labels:,} labels told, in {books.n_answered:,} "
        f"queries{inferred}."
    )
    screen.print(f"{run.config.build_mechanism()}\n", style="dim", markup=False)
    screen.print(f"[bold green]Anyone may know[/bold green], at delta {budget.delta:g}:\n")
    rows = show.table("", "epsilon", "", numbers=(1,))
    rows.add_row(
        "charged for the labels", show.figure(books.charged), show.bar(books.charged, budget.epsilon)
    )
    rows.add_row("held to, whatever comes out", show.figure(books.stated), "")
    if published is not None:
        rows.add_row(
            f"published, with {published.confidence:.0%} confidence", show.figure(published.epsilon_upper), ""
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


def publish(
    folder: Path,
    *,
    method: "Method | None",
    confidence: float | None,
    proxy: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Publish what a run cost: plan, ask, charge its ledger, draw, show."""
    from ..pipeline.closed_labels import FILE, propose_label_publication, publish_label_run
    from ..teachers.label_store import read_label_votes

    public = None if proxy is None else read_label_votes(proxy).votes
    proposal = propose_label_publication(folder, method=method, confidence=confidence, proxy=public)
    screen, notes = show.console(stderr=as_json), list(proposal.notes)
    drawn = proposal.done is None and proposal.plan.method != "independent"
    if proposal.done is not None:
        published = proposal.done
        notes.append(
            "This was published before and is shown as it was kept. Nothing was drawn and nothing was spent."
        )
    else:
        if not as_json:
            _print_plan(screen, proposal)
        if drawn and not yes and not typer.confirm("Publish and spend this?", default=False):
            screen.print("Nothing was published and nothing was spent.")
            return
        published = publish_label_run(proposal)
    if published.epsilon_upper > proposal.run.result.epsilon and published.method != "independent":
        notes.append(
            "The epsilon that the run is held to is the smaller number: the noise, or the price of "
            "publishing, was larger than what there was to gain."
        )
    kept = folder / FILE if published.method != "independent" else None
    if as_json:
        record = None if kept is None else str(kept)
        print(json.dumps({**asdict(published), "drawn": drawn, "record": record, "notes": notes}, indent=2))
        return
    _print_published(screen, published, kept)
    for text in notes:
        screen.print(show.note(text))


def _print_plan(screen: "Console", proposal: "LabelProposal") -> None:
    plan, delta = proposal.plan, proposal.run.config.budget.delta
    n_labels = len(proposal.run.result.labels)
    screen.print(
        f"\nTo publish an epsilon for {proposal.n_queries:,} queries on {n_labels:,} labels each at delta "
        f"{delta:g}:\n"
    )
    rows = show.table("", "")
    rows.show_header = False
    rows.add_row("method", plan.method)
    rows.add_row("Rényi order", f"{plan.order:g}")
    if plan.method != "independent":
        rows.add_row("upper value with", f"{plan.confidence:.0%} confidence")
        rows.add_row("smoothness, noise", f"beta {plan.beta:.4g}, sigma {plan.sigma_release:.4g}")
        if plan.offset is not None:
            rows.add_row("on the logarithm of", f"1 + cost / {plan.offset:g}")
        rows.add_row("costs", f"{plan.price:.4g} at that order, part of the epsilon published")
        rows.add_row("paid by", "the budget of the run, on its ledger")
    rows.add_row("expected, on public votes", f"epsilon about {show.figure(plan.expected_epsilon)}")
    screen.print(show.indented(rows))


def _print_published(screen: "Console", published: "PublishedEpsilon", kept: Path | None) -> None:
    sure = "" if kept is None else f" with {published.confidence:.0%} confidence"
    screen.print(
        f"[green]Anyone may know:[/green] [bold green]epsilon at most {show.figure(published.epsilon_upper)}"
        f"[/bold green] [green]at delta {published.delta:g}{sure}.[/green]"
    )
    if kept is None:
        screen.print("It holds whatever the votes were. Nothing was drawn and nothing was spent.\n")
        return
    screen.print(
        "It holds between these votes and any that differ in one teacher, and contains what the publication "
        f"itself cost, which is on the ledger of the run. Kept in {kept}.\n",
        markup=False,
    )
