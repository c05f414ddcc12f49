"""How a ledger looks in a terminal and as JSON; only public numbers are in it."""

from typing import TYPE_CHECKING, Any

from rich.text import Text

from . import show

if TYPE_CHECKING:
    from ..ledger import Entry
    from ..ledger.chained import ChainedLedger
    from ..release import Release
    from ..repricing import Repricing


def _plain(text: str) -> "Text":
    """Return words of others as they are: neither markup nor the codes of a terminal."""
    return Text("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text))


def state(ledger: "ChainedLedger", where: str) -> dict[str, Any]:
    """Return what there is to say about a ledger as a whole."""
    entries, lines = ledger.entries(), ledger.lines()
    budget, spent = ledger.accountant.budget, ledger.spent
    return {
        "where": where,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "held_at": ledger.accountant.held_at,
        "spent": ledger.accountant.epsilon(spent),
        "left": ledger.accountant.left(spent),
        "n_settled": sum(entry.is_settled for entry in entries),
        "n_open": sum(not entry.is_settled for entry in entries),
        "accounts": {
            name: {
                "epsilon": account.budget.epsilon,
                "delta": account.budget.delta,
                "spent": account.epsilon,
                "left": account.accountant.left(account.spent),
            }
            for name, account in ledger.accounts().items()
        },
        "lines": len(lines),
        "head": lines[-1].hash,
    }


def print_state(state: dict[str, Any]) -> None:
    """Print the state of a ledger for people."""
    screen = show.console()
    screen.print()
    screen.print(
        _plain(
            f"{state['where']}: {state['n_settled']:,} questions settled, {state['n_open']:,} open "
            "(charged in full)."
        )
    )
    screen.print(f"{state['lines']:,} lines, to hash {state['head']}\n", style="dim")
    rows = show.table("", "budget", "delta", "spent", "left", "", numbers=(1, 2, 3, 4))
    accounts = [("the data", state), *state["accounts"].items()]
    for name, account in accounts:
        rows.add_row(
            _plain(name),
            f"{account['epsilon']:g}",
            f"{account['delta']:g}",
            show.figure(account["spent"]),
            f"{100 * account['left']:.1f} %",
            show.bar(1 - account["left"], 1.0) if account["left"] < 1 else "",
            style="bold" if account is state else "",
        )
    screen.print(show.indented(rows))
    screen.print(
        "[dim]Epsilons at each delta. What is left is a share of the budget, at the Rényi order it is held "
        "at.[/dim]\n"
    )


def print_made(made: dict[str, Any]) -> None:
    """Say what `tellers ledger init` did."""
    screen = show.console()
    if "tables" in made:
        screen.print(_plain(f"Tables in {made['where']}: version {made['tables']}."))
    if "epsilon" in made:
        called = f"Ledger {made['name']!r} in" if made["name"] else "Ledger in"
        screen.print(
            _plain(f"{called} {made['where']}: epsilon {made['epsilon']:g} at delta {made['delta']:g}.")
        )
        for name in made["accounts"]:
            screen.print(_plain(f"Account {name}"))


def row(entry: "Entry", delta: float) -> dict[str, Any]:
    """Return one question as JSON shows it."""
    release = entry.release
    n_queries = entry.event.get("n_queries", None if release is None else len(release))
    return {
        "key": entry.key,
        "mechanism": entry.event.get("mechanism"),
        "noise": entry.event.get("noise"),
        "n_queries": n_queries,
        **_told(release),
        "reserved": entry.reserved.epsilon(delta),
        "charged": entry.charged.epsilon(delta),
        "state": _state(entry),
        "accounts": {name: paid.charged.epsilon(delta) for name, paid in entry.also.items()},
    }


def _told(release: "Release | None") -> dict[str, int | None]:
    """Return how many queries were answered; where each has many labels, one that was told is enough."""
    if release is None:
        return {"n_answered": None}
    told = release.answered
    if told.ndim == 1:
        return {"n_answered": int(told.sum())}
    return {"n_answered": int(told.any(axis=1).sum()), "n_told": int(told.sum()), "n_labels": told.shape[1]}


def _answers(each: dict[str, Any]) -> str:
    if each["n_answered"] is None:
        return ""
    labels = f" ({each['n_told']:,} labels)" if "n_told" in each else ""
    return f"{each['n_answered']:,}{labels}"


def _state(entry: "Entry") -> str:
    if not entry.is_settled:
        return "open"
    return "settled" if entry.release is not None else "overran"


def print_rows(rows: list[dict[str, Any]], *, n_entries: int, delta: float) -> None:
    """Print questions for people."""
    screen = show.console()
    if not rows:
        screen.print("No question on these books yet.")
        return
    numbers = (2, 3, 4, 5)
    shown = show.table(
        "key", "mechanism", "queries", "answered", "reserved", "charged", "state", "accounts", numbers=numbers
    )
    for each in rows:
        shown.add_row(
            _plain(each["key"]),
            _plain(each["mechanism"] or ""),
            "" if each["n_queries"] is None else f"{each['n_queries']:,}",
            _answers(each),
            show.figure(each["reserved"]),
            show.figure(each["charged"]),
            each["state"],
            _plain(", ".join(each["accounts"])),
            style="" if each["state"] == "settled" else "yellow",
        )
    screen.print()
    screen.print(show.indented(shown))
    older = n_entries - len(rows)
    more = f" {older:,} older ones are not shown: --limit 0 shows all." if older else ""
    screen.print(
        f"[dim]Each epsilon is of that question alone, at delta {delta:g}; they do not add up.{more}[/dim]\n"
    )


def print_verified(n_lines: int, head: str, *, compared: bool) -> None:
    """Say that the books are intact."""
    screen = show.console()
    screen.print(f"[green]Intact:[/green] {n_lines:,} lines, every hash fits.")
    screen.print(f"Hash of the last line: {head}")
    if compared:
        screen.print("The hash that was noted before is in the chain.")
    else:
        screen.print(
            show.note("keep this hash elsewhere and hand it back with --head: it shows if lines are missing.")
        )


def repriced(again: "Repricing", delta: float) -> dict[str, Any]:
    """Return a repricing as JSON shows it."""
    return {
        "delta": delta,
        "charged": again.charged.epsilon(delta),
        "repriced": again.repriced.epsilon(delta),
        "questions": [
            {
                "key": each.key,
                "mechanism": each.mechanism,
                "n_queries": each.n_queries,
                "charged": each.charged.epsilon(delta),
                "repriced": None if each.repriced is None else each.repriced.epsilon(delta),
                "why": each.why,
            }
            for each in again.questions
        ],
    }


def print_repriced(state: dict[str, Any]) -> None:
    """Print a repricing for people, one row per mechanism."""
    screen = show.console()
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in state["questions"]:
        groups.setdefault(each["mechanism"] or "(none named)", []).append(each)
    rows = show.table("mechanism", "questions", "queries", "changed", "unknown", numbers=(1, 2, 3, 4))
    for name, questions in groups.items():
        known = [q for q in questions if q["repriced"] is not None]
        changed = sum(abs(q["repriced"] - q["charged"]) > 1e-9 * max(1.0, q["charged"]) for q in known)
        n_queries = sum(q["n_queries"] or 0 for q in questions)
        rows.add_row(
            _plain(name),
            f"{len(questions):,}",
            f"{n_queries:,}",
            f"{changed:,}",
            f"{len(questions) - len(known):,}",
        )
    screen.print()
    screen.print(show.indented(rows))
    screen.print(f"Charged: epsilon {show.figure(state['charged'])} at delta {state['delta']:g}.")
    screen.print(f"Today:   epsilon {show.figure(state['repriced'])}.\n")
    for why in sorted({q["why"] for q in state["questions"] if q["why"]}):
        screen.print(show.note(_plain(f"kept as charged: {why}.").plain))
    screen.print("[dim]The ledger was not changed, and its budget is spent as it was charged.[/dim]\n")
