"""`tellers party price`: what queries cost, and what they would cost if guardian and asker colluded."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options

if TYPE_CHECKING:
    from ..parties.prices import SessionPrice


def price(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The settings of a party, in TOML.")
    ] = Path("party.toml"),
    queries: Annotated[
        int | None,
        typer.Option(
            "--queries", min=1, help="Queries in a batch; without it, the most.", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon", help="A budget. Without it: that of the party's books.", show_default=False
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option("--delta", help="Its delta. Without it: that of the books.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say what queries of a session cost before anybody asks; nothing is charged and nobody is called.

    The first lines are what the books will hold: prices do not depend on votes. The table is what hardening
    is worth: the epsilon towards a guardian and an asker who tell each other all they know, alone and with
    as many answering parties as n_colluding says. That is on no books.

    Example: tellers party price --config ann/party.toml --queries 100 --epsilon 10
    """
    from ..budget import Budget
    from ..config.party_files import read_party
    from ..parties.prices import session_price

    settings = read_party(config)
    books = settings.ledger
    at = delta if delta is not None else books.delta or 1e-5
    budget = None
    if epsilon is not None or (books.url and delta is not None):
        budget = Budget(epsilon=books.epsilon if epsilon is None else epsilon, delta=at)
    said = session_price(settings, n_queries=queries or settings.session.max_queries, delta=at, budget=budget)
    notes = remarks(said, pairwise=settings.hardening.pairwise, sigma=settings.hardening.noise_sigma)
    if as_json:
        print(json.dumps(_told(said, notes), indent=2))
    else:
        _show(said, notes)


def remarks(price: "SessionPrice", *, pairwise: bool, sigma: float | None) -> list[str]:
    """Return what remains, in words."""
    notes = []
    if sigma is None:
        seen = "the exact tally of every query" if pairwise else "every party's vote on every query"
        notes.append(
            f"Nobody but the guardian adds noise: with the asker it learns {seen}, and no epsilon bounds "
            "that. Agree on noise_sigma in [hardening] to leave noise that neither knows."
        )
    elif not pairwise:
        notes.append(
            "Masks do not cancel: each vote is below its own party's noise alone. Set pairwise = true."
        )
    notes.append(
        "What remains: parties that deviate from the program; whoever colludes with more answering parties "
        "than n_colluding; labels themselves, of which an asker may train a copy."
    )
    if price.n_affordable == 0:
        notes.insert(0, "The budget does not pay for a single query: agree on more noise or a larger budget.")
    return notes


def _told(price: "SessionPrice", notes: list[str]) -> dict[str, Any]:
    told = asdict(price)
    for one in told["collusions"]:
        for name in ("batch", "whole"):
            # JSON has no infinity: null stands for no bound, and the field beside says which it is.
            one[f"{name}_is_bounded"] = one[name] is not None and math.isfinite(one[name])
            one[name] = one[name] if one[f"{name}_is_bounded"] else None
    return told | {"notes": notes}


def _show(price: "SessionPrice", notes: list[str]) -> None:
    from . import show

    console = show.console()
    n, budget = price.n_queries, price.budget
    batch = f"A batch of {n} {'query' if n == 1 else 'queries'} costs epsilon {show.figure(price.batch)}"
    console.print(f"{batch} at delta {price.delta:g}.")
    if budget is not None:
        console.print(f"A budget of epsilon {budget.epsilon:g} pays for {price.n_affordable} queries in all.")
    heads = ["guardian and asker collude", "they see", f"epsilon of {n}"]
    rows = show.table(*heads, *(["of the whole budget"] if budget else []), numbers=(2, 3))
    for one in price.collusions:
        many = "ies" if one.n_colluding > 1 else "y"
        who = f"with {one.n_colluding} answering part{many}" if one.n_colluding else "alone"
        whole = [] if budget is None else ["-" if one.whole is None else show.figure(one.whole)]
        rows.add_row(who, one.sees, show.figure(one.batch), *whole)
    console.print(rows)
    for words in notes:
        console.print(show.note(words))
