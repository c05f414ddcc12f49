"""`tellers publish`: release an epsilon for votes that were cast, from a file or a run."""

from dataclasses import asdict
from enum import StrEnum
from functools import partial
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


# --- A run. ---


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
        if drawn and not proposal.is_charged and not _agreed(screen, yes):
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
    told = run_as_dict(published, drawn=drawn, record=record, notes=notes)
    show.tell(told, partial(_print_run_published, published), as_json=as_json)


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
    plan, groups, rows = proposal.plan, proposal.run.kind == "groups", []
    for name, price in proposal.prices.items():
        at = float(price.values[price.orders == plan.order][0])
        rows.append((f"costs {escape(name)}" if groups else "costs", _part(at)))
    if proposal.is_charged:
        rows.append(("paid", "already, by a call that was cut off"))
    else:
        rows.append(("paid by", "the ledger of the run"))
    _print_plan(screen, plan, proposal.n_queries, proposal.run.config.budget.delta, rows, groups=groups)


def _print_run_published(published: "PublishedCosts", told: dict[str, Any]) -> None:
    screen, record = show.console(), told["record"]
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


class BoundName(StrEnum):
    """How the cost is bounded and released."""

    envelope = "envelope"
    gnss = "gnss"
    independent = "independent"


@options.takes_mechanism(after="file", votes=True)
def command(
    file: options.VotesOrRun,
    method: Annotated[
        BoundName | None,
        options.option(
            "envelope: close to the exact cost. gnss: the papers' bound, one direction. independent: "
            "needs no release. Without it: the best on the proxy."
        ),
    ] = None,
    confidence: Annotated[
        float | None, options.option("How surely the value is an upper one. [default: 0.95]")
    ] = None,
    proxy: Annotated[
        Path | None,
        options.option(
            "Public votes of as many teachers, and classes or labels, to choose order and noise on. "
            "Without it: the planner's default consensus."
        ),
    ] = None,
    record: Annotated[
        Path | None,
        options.option("Where to write what was spent. Without it: FILE with .publications.jsonl."),
    ] = None,
    yes: Annotated[bool, options.option("Spend without asking.", "--yes")] = False,
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
    folder = options.folder_of(file, but={**given, "record": record})
    if as_json and not yes:
        raise ValueError("Expected --yes with --json: publishing spends privacy, and scripts are not asked.")
    how: Method | None = None if method is None else method.value
    if folder is not None:
        publish_run(folder, method=how, confidence=confidence, proxy=proxy, yes=yes, as_json=as_json)
        return
    around = _run_around(file)
    if around is not None:
        raise ValueError(
            f"Expected votes that belong to no run, {file} is of the run in {around}, whose ledger must pay. "
            f"Nothing was charged. Publish what the run cost: tellers publish {around}"
        )
    from ..runs.publishing import propose_for_file, publish_file

    votes, mechanism, delta = options.load(file, given)
    proposal = propose_for_file(
        votes,
        mechanism,
        record or file.with_name(file.name + ".publications.jsonl"),
        delta=delta,
        confidence=0.95 if confidence is None else confidence,
        method=how,
        proxy=proxy,
        thresholds=given["label_threshold"],
    )
    screen, before = show.console(stderr=as_json), proposal.charged_before
    if not as_json:
        rows = [("costs", _part(proposal.plan.price))]
        rows += [("spent before", f"{before:.4g} at that order")] if before else []
        _print_plan(screen, proposal.plan, votes.n_queries, delta, rows)
    if proposal.is_drawn and not _agreed(screen, yes):
        return
    published = publish_file(votes, mechanism, proposal, delta=delta)
    kept = proposal.record.path if proposal.is_drawn else None
    # All of it is public.
    told = {
        **asdict(published),
        "record": None if kept is None else str(kept),
        "notes": list(proposal.notes),
    }
    show.tell(told, partial(_print_published, published), as_json=as_json)


def _run_around(path: Path) -> Path | None:
    """Return the folder of the run whose private part a path lies in, or None; links are followed."""
    place = path.resolve()
    for private in place.parents:
        if private.name == "private" and (private.parent / "config.toml").is_file():
            return private.parent
    return None


def _agreed(screen: "Console", yes: bool) -> bool:
    if yes or typer.confirm("Publish and spend this?", default=False):
        return True
    screen.print("Nothing was published and nothing was spent.")
    return False


def _part(price: float) -> str:
    return f"{price:.4g} at that order, part of the epsilon published"


def _print_plan(
    screen: "Console",
    plan: "PublishPlan",
    n_queries: int,
    delta: float,
    paid: list[tuple[str, str]],
    *,
    groups: bool = False,
) -> None:
    """Print order and noise, and what is paid for them; a public price has neither."""
    each = " per group" if groups else ""
    screen.print(f"\nTo publish an epsilon{each} for {n_queries:,} queries at delta {delta:g}:\n")
    rows = show.table("", "")
    rows.show_header = False
    rows.add_row("method", plan.method)
    rows.add_row("Rényi order", f"{plan.order:g}")
    if plan.method != "independent":
        sure = f"{100 * plan.confidence:.8g} % confidence{' each' if groups else ''}"
        rows.add_row("upper value with", sure)
        rows.add_row("smoothness, noise", f"beta {plan.beta:.4g}, sigma {plan.sigma_release:.4g}")
        if plan.offset is not None:
            rows.add_row("on the logarithm of", f"1 + cost / {plan.offset:g}")
        for row in paid:
            rows.add_row(*row)
    rows.add_row("expected, on public votes", f"epsilon about {show.figure(plan.expected_epsilon)}")
    screen.print(show.indented(rows))


def _print_published(published: "PublishedEpsilon", told: dict[str, Any]) -> None:
    screen = show.console()
    sure = "" if published.method == "independent" else f" with {published.confidence:.0%} confidence"
    told_epsilon = f"epsilon at most {show.figure(published.epsilon_upper)}"
    screen.print(show.headline("Anyone may know: ", told_epsilon, f" at delta {published.delta:g}{sure}."))
    if published.method == "independent":
        screen.print("It holds whatever the votes were. Nothing was drawn and nothing was spent.\n")
        return
    if published.covers == "forward direction":
        screen.print("As in the papers, it covers one direction of the divergence only.", style="yellow")
    screen.print(
        "It holds between these votes and any that differ in one teacher, and contains what the publication "
        f"itself cost. Written to {told['record']}.\n"
    )
