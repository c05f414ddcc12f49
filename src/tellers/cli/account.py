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
    budget: options.MaybeBudget = None,
    orders: options.Orders = None,
    show_private: options.ShowPrivate = False,
    as_json: options.Json = False,
) -> None:
    """Price votes that were cast: what releasing their outcomes costs.

    The public epsilon holds whatever the votes were and may be shown to anyone. It is what a ledger charges
    for these queries; with --budget, what a run that is held to it states, and how many queries it pays for.
    With --show-private come the exact cost of these votes and the bound of the papers, which look at the
    votes: for your eyes only.

    Of a run, give its folder: what it cost is shown, by its ledger, and with --show-private exactly; where
    people have budgets of their own, for each group.

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
    but["budget"] = budget
    folder = group_books.folder_of(file, but=but)
    if folder is not None:
        from ..report.folder import read_result
        from . import pool_runs

        books_of = pool_runs if read_result(folder).personal is None else group_books
        books_of.account(folder, show_private=show_private, as_json=as_json)
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
            budget=budget,
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
    from dataclasses import asdict

    from . import show

    held = books.afforded
    result: dict[str, Any] = {
        "queries": books.n_queries,
        "teachers": books.n_teachers,
        **({} if books.n_labels is None else {"labels": books.n_labels}),
        "delta": books.delta,
        "public": asdict(books.public),
        "budget_needed": books.budget_needed,
        **({} if books.charged is None else {"charged": asdict(books.charged)}),
        **({} if held is None else {"budget": {"epsilon": held.epsilon, "held_at": held.held_at}}),
        **({} if held is None else {"queries_paid": held.n_queries}),
        "compared": [asdict(cost) for cost in books.compared],
    }
    if books.private is not None:
        costs = books.private.reveal()
        result["private"] = {
            "exact": {
                "epsilon": costs.exact_epsilon,
                "order": costs.exact_order,
                "per": costs.per,
                "kind": show.exact_kind(costs.bound_because),
            },
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
    "argmax-rdp": "outcomes alone",
    "histogram-rdp": "all noisy counts",
    "histogram-pld": "all noisy counts",
    "histogram-gdp": "all noisy counts",
    "pure-dp-exact": "all noisy counts",
    "pure-dp-rdp": "pure privacy per query",
    "labels-rdp": "outcomes alone",
    "sums-rdp": "all noisy sums",
    "sums-gdp": "all noisy sums",
    "price-rdp": "the price of every query",
}
_HOLDS = {
    "any run": "any run",
    "a fixed number of queries": "a fixed number",
    "continuous noise": "no claim",
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
    order = f" (Rényi order {best.order:g})"
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
    _print_ledger(screen, books)
    rows = show.table("", "method", "epsilon", "order", "", "charges", "holds for", numbers=(2, 3))
    largest = max([best.epsilon, *(cost.epsilon for cost in books.compared)])
    row = [show.figure(best.epsilon), f"{best.order:g}"]
    bar = Text(show.bar(best.epsilon, largest, width=8), style="green")
    rows.add_row("▸", best.method, *row, bar, _METHODS[best.method], "any run", style="bold")
    for cost in books.compared:
        rows.add_row(
            "",
            cost.method,
            show.figure(cost.epsilon),
            f"{cost.order:g}" if cost.order is not None else "",
            Text(show.bar(cost.epsilon, largest, width=8), style="dim"),
            _METHODS[cost.method],
            _HOLDS[cost.holds_for],
            style="dim",
        )
    screen.print(show.indented(rows))
    if books.compared:
        screen.print(
            "[dim]▸ is what a ledger charges; the others are there to compare. A fixed number: of queries, "
            "declared before the first, and composed exactly. No claim: for continuous noise, which is not "
            "drawn.[/dim]\n"
        )
    if books.private is not None:
        _print_private(screen, books.private.reveal())
    else:
        screen.print("[dim]What these very votes cost is private. --show-private shows it to you.[/dim]\n")
    for text in notes:
        screen.print(show.note(text))
    if notes:
        screen.print()


def _print_ledger(screen: "Console", books: "Account") -> None:
    """Say what a ledger has on its books after these answers, and how far a budget goes."""
    from . import show

    if books.charged is not None:
        screen.print(
            f"On a ledger: epsilon {show.figure(books.charged.epsilon)} charged for these answers.\n"
        )
    if books.afforded is not None:
        paid, epsilon = books.afforded.n_queries, books.afforded.epsilon
        # A query that stays silent is cheaper: then the budget may go further.
        exactly = books.charged is not None or books.one_price
        screen.print(
            f"A ledger with a budget of {epsilon:g} pays for {'' if exactly else 'at least '}{paid:,} of "
            f"these {books.n_queries:,} queries, at Rényi order {books.afforded.held_at:g}.\n"
        )
    else:
        needed = show.figure(books.budget_needed)
        screen.print(f"A ledger pays for all of them, whatever comes out, from a budget of {needed} on.\n")


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
        (
            show.exact_kind(costs.bound_because),
            costs.exact_epsilon,
            f"{costs.exact_order:g}",
            _PER[costs.per],
        ),
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
