"""`tellers account`: price votes that were cast."""

import json
from typing import TYPE_CHECKING, Any

from . import label_options as labels
from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from ..accounting import Account, PrivateCost


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
    orders: options.Orders = None,
    show_private: options.ShowPrivate = False,
    as_json: options.Json = False,
) -> None:
    """Price votes that were cast: what releasing their outcomes costs.

    The public epsilon holds whatever the votes were and may be shown to anyone. With --show-private come the
    exact cost of these votes and the bound of the papers, which look at the votes: for your eyes only.

    Of a run in which people have budgets of their own, give the folder: what it cost each group is shown, by
    its ledger, and with --show-private exactly.

    Example:

    \b
    tellers account examples/mnist_votes.npz --classes 10 --delta 1e-5 \\
      --mechanism confident --sigma 40 --threshold 200 --sigma-threshold 150
    tellers account tags.npz --mechanism tau --sigma 10 --max-norm 1.8 --delta 1e-5
    tellers account study
    """
    given = options.parameters_of(locals())
    from . import groups as group_books

    but = {"mechanism": mechanism, "delta": delta, **given, "classes": classes, "orders": orders}
    folder = group_books.folder_of(file, but=but)
    if folder is not None:
        group_books.account(folder, show_private=show_private, as_json=as_json)
        return
    named, delta = options.require_for_file(mechanism, delta)
    grid = options.parse_orders(orders)
    from ..accounting import account
    from . import show

    loaded, chosen = labels.load(named, file, classes=classes, given=given)
    wanted = show_private and not as_json
    with show.progress_bar(len(loaded.votes), "exact cost", wanted=wanted) as progress:
        books = account(
            chosen,
            loaded.votes,
            delta=delta,
            orders=grid,
            student=getattr(loaded, "student", None),
            answered=loaded.answered,
            private=show_private,
            progress=progress,
        )
    notes = [*getattr(loaded, "notes", ()), *books.notes]
    if as_json:
        print(json.dumps(as_dict(books, notes), indent=2, allow_nan=False))
    else:
        screen = show.console()
        print_account(screen, books, chosen, notes)


def as_dict(books: "Account", notes: list[str]) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
    result: dict[str, Any] = {
        "queries": books.n_queries,
        "teachers": books.n_teachers,
        **({} if books.n_labels is None else {"labels": books.n_labels}),
        "delta": books.delta,
        "public": {
            "epsilon": books.public.epsilon,
            "order": books.public.order,
            "method": books.public.method,
        },
    }
    if books.private is not None:
        costs = books.private.reveal()
        result["private"] = {
            "exact": {"epsilon": costs.exact_epsilon, "order": costs.exact_order, "per": costs.per},
            "published": {
                "epsilon": costs.published_epsilon,
                "order": costs.published_order,
                "epsilon_classic": costs.published_classic,
                "kind": costs.kind,
            },
        }
    result["notes"] = notes
    return result


_METHODS = {
    "argmax-rdp": "outcomes alone, Rényi",
    "histogram-rdp": "all noisy counts, Rényi",
    "histogram-pld": "all noisy counts, exact",
    "histogram-gdp": "for continuous noise: no claim",
    "pure-dp-exact": "all noisy counts, exact",
    "pure-dp-rdp": "pure privacy per query, Rényi",
    "labels-rdp": "outcomes alone, Rényi",
    "sums-rdp": "all noisy sums, Rényi",
    "sums-gdp": "for continuous noise: no claim",
}


def print_account(screen: "Console", books: "Account", mechanism: object, notes: list[str]) -> None:
    """Print the books for people."""
    import math

    from rich.text import Text

    from . import show

    best = books.public
    answers = "" if books.n_answered is None else f", {books.n_answered:,} of them answered"
    if books.n_labels is not None:
        answers = f" on {books.n_labels:,} labels each"
        answers += "" if books.n_answered is None else f", {books.n_answered:,} labels told"
    screen.print(f"\n{books.n_queries:,} queries by {books.n_teachers:,} teachers{answers}.")
    screen.print(f"{mechanism}\n", style="dim")
    order = f" (Rényi order {best.order:g})" if best.order is not None else ""
    headline = Text.assemble(
        ("Anyone may know: ", "green"),
        (f"epsilon {show.figure(best.epsilon)}", "bold green"),
        (f" at delta {books.delta:g}{order}.", "green"),
    )
    screen.print(headline)
    factor = f" = {math.exp(best.epsilon):.3g}" if best.epsilon < 100 else ""
    screen.print(
        "Whatever the votes: had one teacher voted differently throughout, no result would be more than "
        f"e^{show.figure(best.epsilon)}{factor} times as likely, but for a chance of {books.delta:g}.\n"
    )
    rows = show.table("", "method", "epsilon", "order", "", "what is charged", numbers=(2, 3))
    largest = max(cost.epsilon for cost in books.candidates)
    for cost in books.candidates:
        chosen = cost is best
        style = "bold" if chosen else "" if cost.holds else "dim"
        rows.add_row(
            "▸" if chosen else "",
            cost.method,
            show.figure(cost.epsilon),
            f"{cost.order:g}" if cost.order is not None else "",
            Text(show.bar(cost.epsilon, largest), style="green" if chosen else "dim"),
            _METHODS[cost.method],
            style=style,
        )
    screen.print(show.indented(rows))
    if books.private is not None:
        _print_private(screen, books.private.reveal())
    else:
        screen.print("[dim]What these very votes cost is private. --show-private shows it to you.[/dim]\n")
    for text in notes:
        screen.print(show.note(text))
    if notes:
        screen.print()


_PER = {
    "teacher": "worst teacher over all queries",
    "query": "each query's worst ballot, summed",
}
_KINDS = {
    "bound": "the papers' bound",
    "expected": "the papers' bound, in expectation",
    "realised": "the papers' bound, answers as given",
}


def _print_private(screen: "Console", costs: "PrivateCost") -> None:
    from rich.text import Text

    from . import show

    rows = show.table("", "epsilon", "order", "", "what it is", numbers=(1, 2))
    largest = max(costs.exact_epsilon, costs.published_epsilon, costs.published_classic)
    for name, epsilon, order, words in (
        ("exact", costs.exact_epsilon, f"{costs.exact_order:g}", _PER[costs.per]),
        ("published", costs.published_epsilon, f"{costs.published_order:g}", _KINDS[costs.kind]),
        ("", costs.published_classic, "", "the same, classic conversion"),
    ):
        bar = Text(show.bar(epsilon, largest), style="red")
        rows.add_row(name, show.figure(epsilon), order, bar, words)
    words = (
        "\nThese numbers look at the votes, so they are as private as the votes: keep them out of papers, "
        "logs and model cards. An epsilon nearly as small can be published with noise: tellers publish."
    )
    screen.print(show.private_panel(rows, Text(words, style="dim")))
    screen.print()
