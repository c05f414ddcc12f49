"""`tellers publish`: release an epsilon for votes that were cast."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import label_options as labels
from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from ..publishable import Method
    from ..smooth import PublishedEpsilon, PublishPlan


class MethodName(StrEnum):
    """How the cost is bounded and released."""

    envelope = "envelope"
    gnss = "gnss"
    independent = "independent"


def command(
    file: options.VotesOrRun,
    mechanism: options.Mechanism = None,
    delta: options.MaybeDelta = None,
    gamma: options.Gamma = None,
    sigma: options.Sigma = None,
    threshold: options.Threshold = None,
    sigma_threshold: options.SigmaThreshold = None,
    student_confidence: options.StudentConfidence = None,
    max_norm: labels.MaxNorm = None,
    norm: labels.Norm = None,
    max_labels: labels.MaxLabels = None,
    share: labels.Share = None,
    shares: labels.Shares = None,
    scale: labels.Scale = None,
    n_top: labels.NTop = None,
    confident_share: labels.ConfidentShare = None,
    sigma_gate: labels.SigmaGate = None,
    groups: labels.Groups = None,
    resolution: labels.Resolution = None,
    label_threshold: labels.LabelThreshold = None,
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
    given = options.parameters_of(locals())
    from . import groups as group_books

    but = {"mechanism": mechanism, "delta": delta, **given, "classes": classes, "record": record}
    folder = group_books.folder_of(file, but=but)
    if as_json and not yes:
        raise ValueError("Expected --yes with --json: publishing spends privacy, and scripts are not asked.")
    how: Method | None = None if method is None else method.value
    if folder is not None:
        from . import publish_runs

        publish_runs.publish(
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
    from .. import noise
    from ..calibrate import plan_publication
    from ..publication import PublicationRecord
    from ..smooth import publish
    from . import show

    loaded, chosen = labels.load(named, file, classes=classes, given=given)
    votes, notes = loaded.votes, list(getattr(loaded, "notes", ()))
    book = PublicationRecord(record or file.with_name(file.name + ".publications.jsonl"))
    plan = book.plan()
    if plan is None:
        if proxy is not None:
            public = labels.load_proxy(named, proxy, votes, label_threshold=label_threshold)
        else:
            public, assumed = labels.assumed_votes(named, votes)
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
    from . import show

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

    from . import show

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
