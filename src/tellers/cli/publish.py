"""`tellers publish`: release an epsilon for votes that were cast, from a file or a run."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from . import options, show

if TYPE_CHECKING:
    from rich.console import Console

    from ..accounting._publishable import Method
    from ..accounting.smooth import PublishedEpsilon, PublishPlan
    from ..runs.publishing import Proposal
    from ..runs.result import PublishedCosts


def publish_run(
    folder: Path,
    *,
    method: "Method | None",
    confidence: float | None,
    proxy: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Publish what a run cost, or show what was published of it."""
    from ..runs.publishing import propose_publication, publish_run

    proposal = propose_publication(folder, method=method, confidence=confidence, proxy=proxy)
    screen, notes = show.console(stderr=as_json), list(proposal.notes)
    drawn = proposal.done is None and proposal.plan.method != "independent"
    if proposal.done is not None:
        notes.append(
            "This was published before and is shown as it was kept. Nothing was drawn and nothing was spent."
        )
    else:
        if not as_json:
            _print_run_plan(screen, proposal)
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
        print(json.dumps(run_as_dict(published, drawn=drawn, record=record, notes=notes), indent=2))
        return
    _print_run_published(screen, published, record)
    for text in notes:
        screen.print(show.note(text))


def run_as_dict(
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


def _print_run_plan(screen: "Console", proposal: "Proposal") -> None:
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


def _print_run_published(screen: "Console", published: "PublishedCosts", record: Path | None) -> None:
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


# --- A file of votes. ---


class MethodName(StrEnum):
    """How the cost is bounded and released."""

    envelope = "envelope"
    gnss = "gnss"
    independent = "independent"


@options.takes_mechanism(after="delta")
def command(
    file: options.VotesOrRun,
    mechanism: options.Mechanism = None,
    delta: options.MaybeDelta = None,
    resolution: options.Resolution = None,
    label_threshold: options.LabelThreshold = None,
    classes: options.Classes = None,
    method: Annotated[
        MethodName | None,
        typer.Option(
            "--method",
            help="envelope: close to the exact cost. gnss: the papers' bound, one direction. independent: "
            "needs no release. Without it: the best on the proxy.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence", help="How surely the value is an upper one. [default: 0.95]", show_default=False
        ),
    ] = None,
    proxy: Annotated[
        Path | None,
        typer.Option(
            "--proxy",
            help="Public votes of as many teachers, and classes or labels, to choose order and noise on. "
            "Without it: the planner's default consensus.",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="Where to write what was spent. Without it: FILE with .publications.jsonl.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Publish an epsilon close to what these votes really cost.

    The exact cost of a run is private. This adds noise to a bound on it, charges for that, and returns an
    upper value that may be shown to anyone. Order and noise are chosen on public votes, never on these.

    Of a run, give its folder. The ledger of the run pays before noise is drawn; where people have budgets of
    their own, every group's account does, and there is a value for each. What came out is kept, and shown in
    the result, the card and the report of the run. Asked for again, also after a call that was cut off, it is
    the same number, and nothing is charged twice.

    Votes in a file that belongs to no run are charged to a record beside the file.

    Example:

    \b
    tellers publish study
    tellers publish study --confidence 0.99 --proxy public_votes.npz --yes --json
    tellers publish examples/mnist_votes.npz --classes 10 --delta 1e-5 \\
      --mechanism gnmax --sigma 40 --yes
    tellers publish tags.npz --mechanism binary --sigma 10 --delta 1e-5 --proxy public_tags.npz
    """
    given |= {"resolution": resolution, "label_threshold": label_threshold}
    from . import account as group_books

    but = {"mechanism": mechanism, "delta": delta, **given, "classes": classes, "record": record}
    folder = group_books.folder_of(file, but=but)
    if as_json and not yes:
        raise ValueError("Expected --yes with --json: publishing spends privacy, and scripts are not asked.")
    how: Method | None = None if method is None else method.value
    if folder is not None:
        publish_run(
            folder, method=how, confidence=confidence, proxy=proxy, yes=yes, as_json=as_json,
        )  # fmt: skip
        return
    around = group_books.run_around(file)
    if around is not None:
        raise ValueError(
            f"Expected votes that belong to no run, {file} is of the run in {around}, whose ledger must pay. "
            f"Nothing was charged. Publish what the run cost: tellers publish {around}"
        )
    named, delta = options.require_for_file(mechanism, delta)
    from ..accounting.smooth import PublicationRecord, publish
    from ..privacy import noise
    from ..runs.publication_plan import plan_publication

    loaded, chosen = options.load(named, file, classes=classes, given=given)
    votes, notes = loaded.votes, list(getattr(loaded, "notes", ()))
    book = PublicationRecord(record or file.with_name(file.name + ".publications.jsonl"))
    plan = book.plan()
    if plan is None:
        if proxy is not None:
            public = options.load_proxy(named, proxy, votes, label_threshold=label_threshold)
        else:
            public, assumed = options.assumed_votes(named, votes)
            notes.append(f"Order and noise were chosen on made-up votes: {assumed}.")
        plans = plan_publication(
            chosen,
            public,
            n_queries=len(votes),
            delta=delta,
            confidence=0.95 if confidence is None else confidence,
            method=how,
        )
        plan = plans[0]
    else:
        notes.append(
            f"These votes were published before, with the plan in {book.path.name}; it stays, and this "
            "publication pays on top of the earlier ones."
        )
    before = book.charged
    screen = show.console(stderr=as_json)
    if not as_json:
        _print_plan(screen, plan, before, len(votes), delta)
    if plan.method != "independent":
        if not yes and not typer.confirm("Publish and spend this?", default=False):
            screen.print("Nothing was published and nothing was spent.")
            return
        source = noise.secure()
        book.charge(chosen, plan, delta=delta, noise=source)
        published = publish(
            chosen,
            votes,
            source,
            plan=plan,
            delta=delta,
            answered=loaded.answered,
            charged_before=before,
        )
        book.settle(published)
    else:
        # Nothing is drawn and nothing is charged: the price was public all along.
        published = publish(chosen, votes, noise.secure(), plan=plan, delta=delta, answered=loaded.answered)
    if as_json:
        print(
            json.dumps(
                as_dict(published, book.path if plan.method != "independent" else None, notes), indent=2
            )
        )
    else:
        _print_published(screen, published, book.path)
        for text in notes:
            screen.print(show.note(text))


def as_dict(published: "PublishedEpsilon", record: Path | None, notes: list[str]) -> dict[str, Any]:
    """Return what is printed as JSON; all of it is public."""
    return {
        "epsilon_upper": published.epsilon_upper,
        "confidence": published.confidence,
        "order": published.order,
        "method": published.method,
        "charged": published.charged,
        "delta": published.delta,
        "covers": published.covers,
        "record": None if record is None else str(record),
        "notes": notes,
    }


def _print_plan(screen: "Console", plan: "PublishPlan", before: float, n_queries: int, delta: float) -> None:
    screen.print(f"\nTo publish an epsilon for {n_queries:,} queries at delta {delta:g}:\n")
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
    if before:
        rows.add_row("spent before", f"{before:.4g} at that order")
    rows.add_row("expected, on public votes", f"epsilon about {show.figure(plan.expected_epsilon)}")
    screen.print(show.indented(rows))


def _print_published(screen: "Console", published: "PublishedEpsilon", record: Path) -> None:
    from rich.text import Text

    sure = "" if published.method == "independent" else f" with {published.confidence:.0%} confidence"
    screen.print(
        Text.assemble(
            ("Anyone may know: ", "green"),
            (f"epsilon at most {show.figure(published.epsilon_upper)}", "bold green"),
            (f" at delta {published.delta:g}{sure}.", "green"),
        )
    )
    if published.method == "independent":
        screen.print("It holds whatever the votes were. Nothing was drawn and nothing was spent.\n")
        return
    if published.covers == "forward direction":
        screen.print("As in the papers, it covers one direction of the divergence only.", style="yellow")
    screen.print(
        "It holds between these votes and any that differ in one teacher, and contains what the publication "
        f"itself cost. Written to {record}.\n"
    )
