"""`tellers publish` on the folder of a run of any kind: plan, ask, charge its ledger, draw, show."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from . import show

if TYPE_CHECKING:
    from rich.console import Console

    from ..card.published import PublishedCosts
    from ..pipeline.publishing import Proposal
    from ..publishable import Method


def publish(
    folder: Path,
    *,
    method: "Method | None",
    confidence: float | None,
    proxy: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Publish what a run cost, or show what was published of it."""
    from ..pipeline.publishing import propose_publication, publish_run

    proposal = propose_publication(folder, method=method, confidence=confidence, proxy=proxy)
    screen, notes = show.console(stderr=as_json), list(proposal.notes)
    drawn = proposal.done is None and proposal.plan.method != "independent"
    if proposal.done is not None:
        notes.append(
            "This was published before and is shown as it was kept. Nothing was drawn and nothing was spent."
        )
    else:
        if not as_json:
            _print_plan(screen, proposal)
        spends = drawn and not proposal.is_charged
        if spends and not yes and not typer.confirm("Publish and spend this?", default=False):
            screen.print("Nothing was published and nothing was spent.")
            return
    published = publish_run(proposal)
    dearer = [group.name for group in published.groups if group.epsilon_upper > group.public]
    if dearer and published.is_drawn:
        whose = f"For {', '.join(dearer)} the" if published.kind == "groups" else "The"
        notes.append(
            f"{whose} public cost is the smaller number: the noise, or the price of publishing, was larger "
            "than what there was to gain."
        )
    if published.is_drawn and not proposal.run.folder.student.is_dir():
        notes.append("There is no student in the folder of the run: a card elsewhere does not tell of this.")
    record = proposal.run.folder.publication if published.is_drawn else None
    if as_json:
        print(json.dumps(as_dict(published, drawn=drawn, record=record, notes=notes), indent=2))
        return
    _print_published(screen, published, record)
    for text in notes:
        screen.print(show.note(text))


def as_dict(
    published: "PublishedCosts", *, drawn: bool, record: Path | None, notes: list[str]
) -> dict[str, Any]:
    """Return what is printed as JSON, the same for every kind of run; all of it is public."""
    told = published.as_dict()
    return {
        "kind": published.kind,
        "epsilon_upper": published.epsilon_upper,
        "groups": told["groups"],
        "confidence": published.plan.confidence,
        "order": published.plan.order,
        "method": published.plan.method,
        "delta": published.delta,
        "covers": published.covers,
        "unit": published.unit,
        "queries": published.n_queries,
        "drawn": drawn,
        "record": None if record is None else str(record),
        "meaning": told["meaning"],
        "notes": notes,
    }


def _print_plan(screen: "Console", proposal: "Proposal") -> None:
    plan, delta = proposal.plan, proposal.run.config.budget.delta
    each = " per group" if proposal.kind == "groups" else ""
    screen.print(f"\nTo publish an epsilon{each} for {proposal.n_queries:,} queries at delta {delta:g}:\n")
    rows = show.table("", "")
    rows.show_header = False
    rows.add_row("method", plan.method)
    rows.add_row("Rényi order", f"{plan.order:g}")
    if plan.method != "independent":
        rows.add_row("upper value with", f"{100 * plan.confidence:.8g} % confidence{' each' if each else ''}")
        rows.add_row("smoothness, noise", f"beta {plan.beta:.4g}, sigma {plan.sigma_release:.4g}")
        if plan.offset is not None:
            rows.add_row("on the logarithm of", f"1 + cost / {plan.offset:g}")
        for name, price in proposal.prices.items():
            at = float(price.values[price.orders == plan.order][0])
            whose = f" {escape(name)}" if each else ""
            rows.add_row(f"costs{whose}", f"{at:.4g} at that order, part of the epsilon published")
        paid = "already, by a call that was cut off" if proposal.is_charged else "the ledger of the run"
        rows.add_row("paid by" if not proposal.is_charged else "paid", paid)
    rows.add_row("expected, on public votes", f"epsilon about {show.figure(plan.expected_epsilon)}")
    screen.print(show.indented(rows))


def _print_published(screen: "Console", published: "PublishedCosts", record: Path | None) -> None:
    sure = f", with {published.confidence} confidence" if published.is_drawn else ""
    screen.print(f"[bold green]Anyone may know[/bold green], at delta {published.delta:g}{sure}:\n")
    first = "group" if published.kind == "groups" else "whose"
    headings = [first, "budget", "public cost", "published", "on the account now", "left"]
    table = show.table(*headings, numbers=range(1, 6))
    for group in published.groups:
        table.add_row(
            escape(group.name), f"{group.budget:.4g}", show.figure(group.public),
            show.figure(group.epsilon_upper), show.figure(group.after), f"{group.budget_left:.0%}",
        )  # fmt: skip
    screen.print(show.indented(table))
    for line in published.meaning:
        screen.print(line, markup=False)
    if record is not None:
        screen.print(f"Kept in {record}, and told in result, card and report of the run.", markup=False)
    screen.print()
