"""`tellers account`: price votes that were cast, from a file or from the folder of a run."""

import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape
from rich.text import Text

from . import options, show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..accounting.costs import Account, ClockCost, PrivateCost
    from ..runs._finished import FinishedRun, GroupAccount, PoolAccount
    from ..runs.result import PublishedCosts


# --- The folder of a run. ---

_PRIVATE = "[dim]What these very votes cost is private. --show-private shows it to you.[/dim]\n"


def account_run(folder: Path, *, show_private: bool, as_json: bool) -> None:
    """Show what a run cost, by its ledger; with `show_private` also exactly."""
    from ..runs import _finished as finished
    from ..runs.result import read_published

    run, published, notes = finished.read_finished(folder), read_published(folder), []
    if run.plan is not None:
        groups = finished.account_for_groups(run, private=show_private)
        if show_private and any(group.exact is None for group in groups):
            notes.append(
                "There are no exact costs of this run: either a student took part in the asking, or it is by "
                "upsampling, for which the settings must say `private = true` under [report]."
            )
        told = groups_as_dict(run, groups, published)
        for_people = partial(_print_groups, run, groups, published)
    else:
        books = finished.account_for_pool(run, private=show_private)
        if show_private and books.exact is None:
            notes.append(
                "There is no exact cost of this run: its mechanism has none, a student took part in the "
                "asking, or only sums of ballots were kept."
            )
        told = pool_as_dict(run, books, published)
        for_people = partial(_print_pool, run, books, published)
    show.tell({**told, "notes": notes}, for_people, as_json=as_json)


def groups_as_dict(
    run: "FinishedRun",
    books: "tuple[GroupAccount, ...]",
    published: "PublishedCosts | None",
) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
    assert run.plan is not None
    upper = {} if published is None else {group.name: group.epsilon_upper for group in published.groups}
    result: dict[str, Any] = {
        "queries": run.result.queries.n_asked,
        "teachers": run.result.partition.n_teachers,
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
    return result


def _print_groups(
    run: "FinishedRun",
    books: "tuple[GroupAccount, ...]",
    published: "PublishedCosts | None",
    told: dict[str, Any],
) -> None:
    assert run.plan is not None
    screen = show.console()
    result, delta = run.result, run.config.budget.delta
    screen.print(
        f"\n{result.queries.n_asked:,} queries by {result.partition.n_teachers:,} teachers, "
        f"{result.queries.n_answered:,} answered."
    )
    screen.print(f"{run.plan.summary[0]}\n", style="dim", markup=False)
    whose = f"at delta {delta:g}, for {result.partition.unit} of each group"
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
    exact = told.get("private", {}).get("exact", {})
    if not exact:
        _hide_private(screen, told)
        return
    rows = show.table("group", "exact epsilon", "", numbers=(1,))
    for name, epsilon in exact.items():
        bar = Text(show.bar(epsilon, max(exact.values())), style="red")
        rows.add_row(escape(name), show.figure(epsilon), bar)
    _print_panel(
        screen,
        rows,
        "The worst member of each group over all queries. These numbers look at the votes, so they are as "
        "private as the votes. Upper values nearly as small can be published with noise: tellers publish.",
    )


def _hide_private(screen: "Console", told: dict[str, Any]) -> None:
    """Say how private numbers are seen, unless a note says why there are none."""
    if not told["notes"]:
        screen.print(_PRIVATE)


def _print_panel(screen: "Console", rows: "Table", words: str) -> None:
    screen.print(show.private_panel(rows, Text(f"\n{words}", style="dim")))
    screen.print()


def pool_as_dict(
    run: "FinishedRun", books: "PoolAccount", published: "PublishedCosts | None"
) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
    result: dict[str, Any] = {
        "queries": books.n_queries,
        "teachers": run.result.partition.n_teachers,
        **({"labels": len(run.result.labels)} if run.result.labels else {}),
        "answered": books.n_answered,
        **({"told": books.n_told, "inferred": books.n_inferred} if run.result.labels else {}),
        "delta": run.config.budget.delta,
        "budget": run.config.budget.epsilon,
        **(
            {"rule": books.rule, "renyi": books.renyi}
            if books.rule == "clock"
            else {"charged": books.charged}
        ),
        "stated": books.stated,
        "budget_left": books.left,
        "published": None if published is None else published.epsilon_upper,
    }
    if books.exact is not None:
        result["private"] = {"exact": books.exact.reveal(), "kind": show.exact_kind(_why_bound(run))}
    return result


def _why_bound(run: "FinishedRun") -> str:
    from ..accounting._label_exact import bound_because

    return bound_because(run.config.build_mechanism())


def _print_pool(
    run: "FinishedRun", books: "PoolAccount", published: "PublishedCosts | None", told: dict[str, Any]
) -> None:
    screen = show.console()
    n_labels, budget = len(run.result.labels), run.config.budget
    asked = f"{books.n_queries:,} queries by {run.result.partition.n_teachers:,} teachers"
    if n_labels:
        inferred = f", and {books.n_inferred:,} follow from others" if books.n_inferred else ""
        screen.print(
            f"\n{asked} on {n_labels:,} labels each: {books.n_told:,} of {books.n_queries * n_labels:,} "
            f"labels told, in {books.n_answered:,} queries{inferred}."
        )
    else:
        screen.print(f"\n{asked}, {books.n_answered:,} answered.")
    chosen = run.mechanism if run.plan is None else run.config.build_mechanism()
    screen.print(f"{chosen}\n", style="dim", markup=False)
    screen.print(f"[bold green]Anyone may know[/bold green], at delta {budget.delta:g}:\n")
    rows = show.table("", "epsilon", "", numbers=(1,))
    if books.charged is None:
        rows.add_row("the budget, held on a clock", show.figure(books.stated), show.bar(1 - books.left, 1.0))
        words = "Rényi epsilon of the labels, to compare"
        rows.add_row(words, show.figure(books.renyi or 0.0), "")
    else:
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
    if books.charged is not None:
        rows.add_row("the budget", f"{budget.epsilon:g}", f"{books.left:.0%} left")
    screen.print(show.indented(rows))
    if books.charged is None:
        from ..privacy.budget import clock_words

        screen.print(f"{clock_words(budget.epsilon, books.left)}.\n", highlight=False)
    if books.exact is None:
        _hide_private(screen, told)
        return
    why, rows = _why_bound(run), show.table("", "epsilon", numbers=(1,))
    name = f"{show.exact_kind(why)}, the worst teacher over all queries"
    rows.add_row(name, show.figure(books.exact.reveal()))
    words = (
        "This number looks at the votes, so it is as private as the votes. An upper value nearly as small "
        "can be published with noise: tellers publish."
    )
    _print_panel(screen, rows, f"It is an upper bound: {why}.\n{words}" if why else words)


# --- A file of votes. ---


@options.takes_mechanism(after="file", votes=True)
def command(
    file: options.VotesOrRun,
    budget: Annotated[
        float | None,
        options.option("Epsilon of a ledger: what a run within it states, and how many queries it pays for."),
    ] = None,
    rule: Annotated[
        options.RuleName | None,
        options.option("How that ledger holds its budget: at one Rényi order, or on a clock."),
    ] = None,
    orders: Annotated[
        str | None,
        options.option(
            "Rényi orders: 2:50 for the integers from 2 to 50, or a list such as 1.5,2,8. "
            "Without it: a dense grid from 1.25 to 512."
        ),
    ] = None,
    show_private: options.ShowPrivate = False,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Price votes that were cast: what releasing their outcomes costs.

    The public epsilon holds whatever the votes were and may be shown to anyone. It is what a ledger charges
    for these queries; with --budget, what a run that is held to it states, and how many queries it pays for.
    With --rule clock it is the number of a ledger on a clock: its whole budget, or the smallest that pays for
    all of them.
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
    folder = options.folder_of(file, but={**given, "orders": orders, "budget": budget, "rule": rule})
    if folder is not None:
        account_run(folder, show_private=show_private, as_json=as_json)
        return
    grid = options.parse_orders(orders)
    from ..accounting.costs import account, clock_cost

    on_clock = rule == options.RuleName.clock
    votes, mechanism, delta = options.load(file, given)
    wanted = show_private and not as_json
    with show.progress_bar(votes.n_queries, "exact cost", wanted=wanted) as progress:
        books = account(
            mechanism,
            votes,
            delta=delta,
            budget=None if on_clock else budget,
            orders=grid,
            private=show_private,
            progress=progress,
        )
    shown = partial(print_account, show.console(), books, mechanism)
    told = as_dict(books, [*votes.notes, *books.notes])
    if on_clock:
        clock = clock_cost(mechanism, votes, delta=delta, budget=budget)
        told = clock_as_dict(clock, told, budget=budget)
        shown = partial(print_clock, show.console(), books, mechanism, clock)
    show.tell(told, shown, as_json=as_json)


def as_dict(books: "Account", notes: list[str]) -> dict[str, Any]:
    """Return what is printed as JSON; private numbers are in it only if they were asked for."""
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


def clock_as_dict(clock: "ClockCost", told: dict[str, Any], *, budget: float | None) -> dict[str, Any]:
    """Return what is printed as JSON of a ledger on a clock; the Rényi epsilon stands beside its number."""
    paid = {} if budget is None else {"budget": {"epsilon": budget}, "queries_paid": clock.n_queries}
    kept = {name: value for name, value in told.items() if name not in ("public", "charged", "budget_needed")}
    return {
        "rule": "clock",
        "public": {"method": "clock", "epsilon": clock.epsilon, "order": None},
        "budget_needed": clock.needed,
        "budget_left": clock.left,
        **paid,
        "renyi": told["public"],
        **kept,
    }


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
    "tested-rdp": "the price of one batch whose test passes",
}
_HOLDS = {
    "any run": "any run",
    "a fixed number of queries": "a fixed number",
    "continuous noise": "no claim",
}


def print_account(screen: "Console", books: "Account", mechanism: object, _told: dict[str, Any]) -> None:
    """Print the books for people."""
    best = books.public
    answers = "" if books.n_answered is None else f", {books.n_answered:,} of them answered"
    if books.n_labels is not None:
        answers = f" on {books.n_labels:,} labels each"
        answers += "" if books.n_answered is None else f", {books.n_answered:,} labels told"
    screen.print(f"\n{books.n_queries:,} queries by {books.n_teachers:,} teachers{answers}.")
    screen.print(f"{mechanism}\n", style="dim")
    at = f" at delta {books.delta:g} (Rényi order {best.order:g})."
    screen.print(show.headline("Anyone may know: ", f"epsilon {show.figure(best.epsilon)}", at))
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
        screen.print(_PRIVATE)


def print_clock(
    screen: "Console", books: "Account", mechanism: object, clock: "ClockCost", told: dict[str, Any]
) -> None:
    """Print what a ledger on a clock says of these queries, for people."""
    from ..privacy.budget import clock_words

    screen.print(f"\n{books.n_queries:,} queries by {books.n_teachers:,} teachers.")
    screen.print(f"{mechanism}\n", style="dim")
    at = f" at delta {books.delta:g}, on a clock."
    screen.print(show.headline("Anyone may know: ", f"epsilon {show.figure(clock.epsilon)}", at))
    screen.print(f"{clock_words(clock.epsilon, min(clock.left, 0.999999))}.\n")
    if "queries_paid" in told:
        screen.print(
            f"A ledger with a budget of {told['budget']['epsilon']:g} on a clock pays for at least "
            f"{clock.n_queries:,} of these {books.n_queries:,} queries, whatever comes out.\n"
        )
    needed = show.figure(clock.needed)
    screen.print(f"All of them are paid for, whatever comes out, from a budget of {needed} on.\n")
    rows = show.table("to compare, of all of them", "epsilon", "charges", "holds for", numbers=(1,))
    fixed = "a fixed number of queries" if books.one_price else "every query answered"
    rows.add_row("Rényi", show.figure(books.public.epsilon), _METHODS[books.public.method], fixed)
    for cost in books.compared:
        rows.add_row(
            cost.method, show.figure(cost.epsilon), _METHODS[cost.method], _HOLDS[cost.holds_for], style="dim"
        )
    screen.print(show.indented(rows))
    if books.private is not None:
        _print_private(screen, books.private.reveal())
    else:
        screen.print(_PRIVATE)


def _print_ledger(screen: "Console", books: "Account") -> None:
    """Say what a ledger has on its books after these answers, and how far a budget goes."""
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
    rows = show.table("", "epsilon", "order", "", "what it is", numbers=(1, 2))
    found: list[tuple[str, float | None, float | None, str]] = [
        (show.exact_kind(costs.bound_because), costs.exact_epsilon, costs.exact_order, _PER[costs.per]),
        ("published", costs.published_epsilon, costs.published_order, _KINDS[costs.kind]),
        ("", costs.published_classic, None, "the same, classic conversion"),
    ]
    told = [(name, epsilon, order, words) for name, epsilon, order, words in found if epsilon is not None]
    largest = max(epsilon for _, epsilon, _, _ in told)
    for name, epsilon, order, words in told:
        bar = Text(show.bar(epsilon, largest), style="red")
        rows.add_row(name, show.figure(epsilon), "" if order is None else f"{order:g}", bar, words)
    _print_panel(
        screen,
        rows,
        "These numbers look at the votes, so they are as private as the votes: keep them out of papers, "
        "logs and model cards. An epsilon nearly as small can be published with noise: tellers publish.",
    )
