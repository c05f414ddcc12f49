"""`tellers ledger`: make, watch, check, move, rewrite and reprice ledgers, and their vaults."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from rich.text import Text

from . import options, show

if TYPE_CHECKING:
    from ..ledger._chain import ChainedLedger
    from ..ledger._lines import Line
    from ..ledger.base import Entry
    from ..privacy.budget import Accountant
    from ..privacy.rdp import RdpCurve
    from ..privacy.release import Release
    from ..runs.repricing import Repricing


# --- How a ledger looks in a terminal and as JSON; only public numbers are in it. ---


def _plain(text: str) -> "Text":
    """Return words of others as they are: neither markup nor the codes of a terminal."""
    return Text("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text))


def state_of(ledger: "ChainedLedger", where: str) -> dict[str, Any]:
    """Return what there is to say about a ledger as a whole."""
    view = ledger.view()
    return {
        "where": where,
        "rule": ledger.accountant.rule,
        **_books(ledger.accountant, view.sums[None].spent),
        **({} if ledger.accountant.clock is not None else {"held_at": ledger.accountant.held_at}),
        "n_settled": view.n_settled,
        "n_open": view.n_questions - view.n_settled,
        "accounts": {
            name: _books(one.accountant, one.spent) for name, one in view.sums.items() if name is not None
        },
        "lines": view.head.number + 1,
        "head": view.head.hash,
    }


def _books(accountant: "Accountant", spent: "RdpCurve") -> dict[str, float]:
    """Return a budget, what is spent of it and what is left; on a clock, which is not spent, what is stated.

    There `renyi` stands beside it: the Rényi epsilon of the same releases.
    """
    budget, one = accountant.budget, accountant.epsilon(spent)
    told = {"spent": one}
    if accountant.clock is not None:
        told = {"stated": one, "renyi": spent.epsilon(budget.delta)}
    return {"epsilon": budget.epsilon, "delta": budget.delta, **told, "left": accountant.left(spent)}


def print_state(state: dict[str, Any]) -> None:
    screen = show.console()
    screen.print()
    settled = f"{state['n_settled']:,} questions settled, {state['n_open']:,} open (charged in full)."
    screen.print(_plain(f"{state['where']}: {settled}"))
    screen.print(f"{state['lines']:,} lines, to hash {state['head']}\n", style="dim")
    on_clock = state["rule"] == "clock"
    rows = show.table(
        "", "budget", "delta", "stated" if on_clock else "spent", "left", "", numbers=(1, 2, 3, 4)
    )
    for name, account in [("the data", state), *state["accounts"].items()]:
        rows.add_row(
            _plain(name),
            f"{account['epsilon']:g}",
            f"{account['delta']:g}",
            show.figure(account["stated" if on_clock else "spent"]),
            f"{100 * account['left']:.1f} %",
            show.bar(1 - account["left"], 1.0) if account["left"] < 1 else "",
            style="bold" if account is state else "",
        )
    screen.print(show.indented(rows))
    if on_clock:
        from ..privacy.budget import clock_words

        screen.print(f"The data: {clock_words(state['epsilon'], state['left'])}.", highlight=False)
        screen.print(
            "[dim]Stated is the budget, once something was asked; what is left is a share of the clock. To "
            f"compare: Rényi epsilon {show.figure(state['renyi'])} of the same releases, which holds where "
            "their list was fixed beforehand.[/dim]\n"
        )
        return
    screen.print(
        "[dim]Held at a Rényi order: the budget is guaranteed, and what is spent where the questions were "
        "fixed beforehand. What is left is a share of the budget, at that order.[/dim]\n"
    )


def print_made(made: dict[str, Any]) -> None:
    screen = show.console()
    if "tables" in made:
        screen.print(_plain(f"Tables in {made['where']}: version {made['tables']}."))
    if "epsilon" in made:
        called = f"Ledger {made['name']!r} in" if made["name"] else "Ledger in"
        how = ", held on a clock" if made["rule"] == "clock" else ""
        budget = f"epsilon {made['epsilon']:g} at delta {made['delta']:g}{how}."
        screen.print(_plain(f"{called} {made['where']}: {budget}"))
        for name in made["accounts"]:
            screen.print(_plain(f"Account {name}"))


def _of_clock(charged: "RdpCurve", start: int | None) -> dict[str, float]:
    """Return which share of the whole clock a question took, by the ticks that it begins with."""
    return {} if start is None else {"of_clock": getattr(charged, "ticks", 0) / start}


def row(entry: "Entry", delta: float, start: int | None = None) -> dict[str, Any]:
    """Return one question as JSON shows it; `start` are the ticks that a clock begins with.

    Of a batch that was tested it says whether it passed, and what the test took of delta. A note of
    confidential rounds, who was to blame for what, has no price.
    """
    from ..privacy._price import delta_of, epsilon_of

    release, own = entry.release, delta_of(entry.charged)
    n_queries = entry.event.get("n_queries", None if release is None else len(release))
    outcome = "settled" if release is not None else "overran"
    is_note = "note" in entry.event and not entry.reserved.values.any()
    return {
        "key": entry.key,
        "mechanism": entry.event.get("mechanism"),
        "noise": entry.event.get("noise"),
        "n_queries": n_queries,
        **_told(release),
        "reserved": epsilon_of(entry.reserved, delta),
        "charged": epsilon_of(entry.charged, delta),
        **_of_clock(entry.charged, start),
        **(
            {"delta": own, "passed": None if release is None else bool(release.answered.any())} if own else {}
        ),
        **({"note": str(entry.event["note"])} if is_note else {}),
        "state": outcome if entry.is_settled else "note" if is_note else "open",
        "accounts": {name: epsilon_of(paid.charged, delta) for name, paid in entry.also.items()},
    }


def _told(release: "Release | None") -> dict[str, int | None]:
    """Return how many queries were answered; where each has many labels, one that was told is enough."""
    if release is None:
        return {"n_answered": None}
    told = release.answered
    if told.ndim == 1:
        return {"n_answered": int(told.sum())}
    return {"n_answered": int(told.any(axis=1).sum()), "n_told": int(told.sum()), "n_labels": told.shape[1]}


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def print_rows(told: dict[str, Any], *, delta: float) -> None:
    screen, rows = show.console(), told["entries"]
    if not rows:
        screen.print("No question on these books yet.")
        return
    on_clock = "of_clock" in rows[0]
    headings = (
        "key",
        "mechanism",
        "queries",
        "answered",
        "reserved",
        "charged",
        *["of the clock"] * on_clock,
    )
    shown = show.table(*headings, "state", "accounts", numbers=range(2, len(headings)))
    for each in rows:
        labels = f" ({each['n_told']:,} labels)" if "n_told" in each else ""
        shown.add_row(
            _plain(each["key"]),
            _plain(each["mechanism"] or each.get("note", "")),
            _count(each["n_queries"]),
            _count(each["n_answered"]) + labels,
            show.figure(each["reserved"]),
            show.figure(each["charged"]),
            *([f"{100 * each['of_clock']:.2f} %"] if on_clock else []),
            {True: "passed its test", False: "failed its test"}.get(each.get("passed"), each["state"]),
            _plain(", ".join(each["accounts"])),
            style={"settled": "", "note": "dim"}.get(each["state"], "yellow"),
        )
    screen.print()
    screen.print(show.indented(shown))
    tests = {f"{each['delta']:g}" for each in rows if "delta" in each}
    if tests:
        screen.print(f"A test took delta {' or '.join(sorted(tests))}, whatever came out.")
    older = told["n_entries"] - len(rows)
    more = f" {older:,} older ones are not shown: --limit 0 shows all." if older else ""
    which = "Rényi epsilon" if on_clock else "epsilon"
    screen.print(
        f"[dim]Each {which} is of that question alone, at delta {delta:g}; they do not add up.{more}[/dim]\n"
    )


def print_verified(told: dict[str, Any], *, compared: bool) -> None:
    screen = show.console()
    screen.print(f"[green]Intact:[/green] {told['lines']:,} lines, every hash fits.")
    screen.print(f"Hash of the last line: {told['head']}")
    if compared:
        screen.print("The hash that was noted before is in the chain.")
        return
    words = "keep this hash elsewhere and hand it back with --head: it shows if lines are missing."
    screen.print(show.note(words))


def repriced(again: "Repricing", delta: float) -> dict[str, Any]:
    """Return a repricing as JSON shows it."""
    from ..privacy._price import epsilon_of

    return {
        "delta": delta,
        "charged": epsilon_of(again.charged, delta),
        "repriced": epsilon_of(again.repriced, delta),
        "questions": [
            {
                "key": each.key,
                "mechanism": each.mechanism,
                "n_queries": each.n_queries,
                "charged": epsilon_of(each.charged, delta),
                "repriced": None if each.repriced is None else epsilon_of(each.repriced, delta),
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
        counts = (len(questions), n_queries, changed, len(questions) - len(known))
        rows.add_row(_plain(name), *map(_count, counts))
    screen.print()
    screen.print(show.indented(rows))
    screen.print(f"Charged: epsilon {show.figure(state['charged'])} at delta {state['delta']:g}.")
    screen.print(f"Today:   epsilon {show.figure(state['repriced'])}.\n")
    for why in sorted({q["why"] for q in state["questions"] if q["why"]}):
        screen.print(show.note(_plain(f"kept as charged: {why}.").plain))
    screen.print("[dim]The ledger was not changed, and its budget is spent as it was charged.[/dim]\n")


# --- `tellers ledger vault` and `vault-key`: exact costs, which are private, for whoever has the key. ---


PATH_TAKEN = (
    "A sum along the path that was taken, where answers decided what was asked next: what may be stated is "
    "the public one."
)
WARNING = "PRIVATE: these numbers look at the votes. Do not publish them, and do not act on them in public."


def make_key(
    file: Annotated[
        Path | None,
        options.argument("FILE", "A new file, which its owner alone may read; without it, to the screen."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Make the key of a vault, in which exact costs are kept.

    Keep it elsewhere than the vault: who has both reads what the votes gave away. What is sealed with a key
    that is lost can never be read.

    Example: tellers ledger vault-key /etc/tellers/vault.key
    """
    from ..ledger.vault import Vault, write_key

    if file is None:
        key = Vault.new_key()
        print(json.dumps({"key": key}) if as_json else key)
        return
    write_key(file)
    words = f"A key in {file}, for its owner alone. Keep a copy elsewhere than the vault."
    print(json.dumps({"file": str(file)}) if as_json else words)


def read_vault(ledger: "ChainedLedger", costs: "dict[str, RdpCurve]") -> dict[str, Any]:
    """Return what a ledger's answers cost at these very votes; what the vault does not hold, as charged."""
    from ..accounting._label_exact import bound_because
    from ..mechanisms.registry import EVENTS
    from ..privacy._price import delta_of, epsilon_of, with_delta

    entries, at = ledger.entries(), ledger.accountant.budget.delta
    exact, kept, why = 0 * ledger.spent, 0, ""
    for entry in entries:
        cost = costs.get(entry.key)
        exact = exact + (entry.charged if cost is None else with_delta(cost, delta_of(entry.charged)))
        kept += cost is not None
        why = why or (bound_because(EVENTS.get(entry.event.get("mechanism", ""))) if cost is not None else "")
    if costs and not kept and entries:
        raise ValueError("Expected the vault of this ledger, got one that knows none of its questions.")
    return {
        "private": True,
        "warning": f"{WARNING} {PATH_TAKEN}",
        "is_guarantee": False,
        "delta": at,
        "n_questions": len(entries),
        "n_in_vault": kept,
        "n_elsewhere": len(costs) - kept,
        "charged_epsilon": epsilon_of(ledger.spent, at),
        "exact_epsilon": epsilon_of(exact, at),
        "exact_kind": show.exact_kind(why),
        "exact_is_bound": why,
    }


def print_vault(told: dict[str, Any]) -> None:
    rows = show.table("", "epsilon", numbers=(1,))
    rows.add_row("charged, whatever the votes (public)", show.figure(told["charged_epsilon"]))
    name = f"{told['exact_kind']}, at these very votes (private)"
    rows.add_row(name, show.figure(told["exact_epsilon"]), style="bold")
    held = f"{told['n_in_vault']:,} of {told['n_questions']:,} questions on the ledger are in the vault"
    rest = told["n_questions"] - told["n_in_vault"]
    words = f"{held}{'; the others count as they were charged' if rest else ''}. At delta {told['delta']:g}."
    if told["exact_is_bound"]:
        words += f" It is an upper bound: {told['exact_is_bound']}."
    other = told["n_elsewhere"]
    if other:
        words += f" The vault holds {other:,} of other ledgers."
    screen = show.console()
    screen.print()
    screen.print(show.private_panel(WARNING, "", rows, "", words, PATH_TAKEN))
    screen.print()


# --- `tellers ledger`: make, watch, check, move and reprice the books. ---


HELP = """The books: make a ledger, see what is spent and what is left, check that nobody changed it, move it.

WHERE is the path of a file, or the URL of a PostgreSQL database, postgresql://user@host/name. Leave the
password to PGPASSWORD or ~/.pgpass: what is on a command line can be read by others on the machine.

Example: tellers ledger init spend.db --epsilon 2 --delta 1e-5 && tellers ledger status spend.db
"""

Where: TypeAlias = Annotated[str, options.argument("WHERE", "A file, or postgresql://user@host/name.")]
Name: TypeAlias = Annotated[
    str, options.option("Which ledger, where a database has several.", "--name", metavar="NAME")
]


def init(
    where: Where,
    epsilon: Annotated[float | None, options.option("The budget of the data.")] = None,
    delta: Annotated[float | None, options.option(options.DELTA)] = None,
    rule: options.Rule = options.RuleName.renyi,
    account: Annotated[
        list[str] | None,
        options.option(
            "Open a named account with a budget of its own, at the same delta. May be repeated.",
            metavar="NAME=EPSILON",
        ),
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Make a ledger with its budget, and open named accounts in it.

    In a database this also makes the tables, or brings them up to date; without --epsilon and --delta it does
    only that. A ledger that is there keeps its budget for good; the same again changes nothing.

    Example: tellers ledger init spend.db --epsilon 2 --delta 1e-5 --account student/alice=0.5
    """
    from ..ledger.opening import is_url, open_ledger
    from ..privacy.budget import Accountant, Budget

    in_database = is_url(where)
    made: dict[str, Any] = {"where": options.shown_place(where), "name": name if in_database else None}
    if (epsilon is None) != (delta is None) or (epsilon is None and not in_database):
        raise ValueError(
            "Expected --epsilon and --delta, the budget of the data. For example: --epsilon 2 --delta 1e-5"
        )
    wanted = [_account(text) for text in account or []]
    if in_database:
        from ..ledger.sql.connection import migrate

        made["tables"] = migrate(where)
    if epsilon is not None and delta is not None:
        named = {"name": name} if in_database else {}
        with open_ledger(where, Accountant.by(rule.value, Budget(epsilon, delta)), **named) as ledger:
            for who, theirs in wanted:
                ledger.open_account(who, Budget(theirs, delta))
            made |= {"epsilon": epsilon, "delta": delta, "rule": rule.value}
            made |= {"accounts": list(ledger.accounts())}
    elif wanted:
        raise ValueError("Expected --epsilon and --delta of the ledger that --account belongs to, got none.")
    show.tell(made, print_made, as_json=as_json)


def status(where: Where, name: Name = "main", as_json: options.Json = False) -> None:
    """Show the budget, what is spent and what is left, for the data and for every named account.

    Example: tellers ledger status spend.db
    """
    with _opened(where, name) as ledger:
        state = state_of(ledger, options.shown_place(where))
    show.tell(state, print_state, as_json=as_json)


def list_(
    where: Where,
    account: Annotated[str | None, options.option("Only what this account paid for.")] = None,
    limit: Annotated[int, options.option("The newest so many; 0 for all.", min=0)] = 20,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """List the questions on the books, with what was reserved and what is charged.

    Example: tellers ledger list spend.db --account student/alice --limit 50
    """
    with _opened(where, name) as ledger:
        if account is not None and account not in ledger.accounts():
            raise ValueError(
                f"Expected an account of this ledger, got {account!r}. See: tellers ledger status"
            )
        shown, n_entries = _newest(ledger, account, limit)
        held = ledger.accountant
    delta, clock = held.budget.delta, held.clock
    start = None if clock is None else clock.start(held.budget.epsilon, delta)
    told = {"entries": [row(entry, delta, start) for entry in shown], "n_entries": n_entries}
    show.tell(told, partial(print_rows, delta=delta), as_json=as_json)


_PAGE = 1000


@contextmanager
def _counted(ledger: "ChainedLedger", *, wanted: bool) -> "Iterator[Callable[[Line], object] | None]":
    """Show how many lines of a ledger are read; what comes out is told every line."""
    with show.progress_bar(ledger.head.number + 1, "lines", wanted=wanted) as progress:

        def look(line: "Line") -> None:
            if progress is not None and line.number % _PAGE == _PAGE - 1:
                progress(_PAGE)

        yield None if progress is None else look


def _newest(ledger: "ChainedLedger", account: str | None, limit: int) -> "tuple[list[Entry], int]":
    """Return the newest questions, all of them at 0, of one account or of all, and how many there are."""
    total = ledger.count()
    if account is None:
        return ledger.entries(after=max(0, total - limit) if limit else 0), total
    kept: deque[Entry] = deque(maxlen=limit or None)
    n_paid = 0
    for at in range(0, total, _PAGE):
        page = [entry for entry in ledger.entries(after=at, limit=_PAGE) if account in entry.also]
        kept.extend(page)
        n_paid += len(page)
    return list(kept), n_paid


def verify(
    where: Where,
    head: Annotated[
        str | None, options.option("What an earlier verify printed: must still be there.", metavar="HASH")
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Read every line again and check its hash, and that the rules that keep the books append-only are there.

    Note the hash that it prints somewhere else, and hand it back the next time: a chain that was cut short,
    or a file that was replaced by an older copy, holds together and is only found that way.

    Example: tellers ledger verify spend.db --head 8cdd7e96...
    """
    with _opened(where, name) as ledger, _counted(ledger, wanted=not as_json) as look:
        last = ledger.verified(head, look=look)
    told = {"intact": True, "head": last.hash, "lines": last.number + 1}
    show.tell(told, partial(print_verified, compared=head is not None), as_json=as_json)


def export(
    where: Where,
    file: Annotated[
        Path | None, options.argument("FILE", "Where to write; without it, to the screen.")
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Write a ledger as JSON lines, hashes included, for a backup or to move it.

    Example: tellers ledger export spend.db spend.jsonl
    """
    import io

    from ..ledger.opening import export_ledger
    from ..privacy._files import whole_file

    # Line by line: a long ledger need not fit into memory.
    if file is None:
        with _opened(where, name) as ledger:
            export_ledger(ledger, sys.stdout)
        return
    with (
        _opened(where, name) as ledger,
        _counted(ledger, wanted=not as_json) as look,
        whole_file(file) as written,
    ):
        text = io.TextIOWrapper(written, encoding="utf-8", newline="\n")
        head = export_ledger(ledger, text, look=look)
        text.detach()
    with file.open("rb") as stream:
        said = {"file": str(file), "lines": sum(1 for _ in stream) - 2, "head": head}
    print(json.dumps(said) if as_json else f"{said['lines']} lines in {file}, to hash {head}")


def import_(
    file: Annotated[Path, options.argument("FILE", "What `tellers ledger export` wrote.")],
    where: Where,
    head: Annotated[str | None, options.option("A hash that must be in it.", metavar="HASH")] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Make a ledger from an export: a new file, or a free name in a database, with tables if it has none.

    Every line is checked before anything is written; the copy has the same lines, hashes and state. From then
    on spend on one of the two: each knows nothing of what the other spends.

    Example: tellers ledger import spend.jsonl copy.db
    """
    from ..ledger.opening import import_ledger, is_url

    if is_url(where):
        from ..ledger.sql.connection import migrate

        migrate(where)  # a fresh database has no tables yet; where they are there, this changes nothing
    with (
        file.open(encoding="utf-8") as stream,
        import_ledger(stream, where, head=head, name=name) as ledger,
    ):
        number, found = ledger.verified()
    said = {"where": options.shown_place(where), "lines": number + 1, "head": found}
    print(json.dumps(said) if as_json else f"{number + 1} lines in {said['where']}, to hash {found}")


def compact(
    where: Where,
    to: Annotated[
        str | None,
        options.option(
            "What to call the new ledger: a new file, or a free name in the database. Without it a file "
            "keeps its name, and in a database the new one is called NAME-4.",
            metavar="NEW",
        ),
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Rewrite a ledger of an earlier version as one of this version, which says the same in fewer bytes.

    Stop the programs that use it first. Every line is checked, and every question compared, before the old
    ledger gets a last line that closes it: it stays, to be read, as NAME.version-N.db, and nothing is spent
    from it again. If it is interrupted, run the same command again. The new ledger is a chain of its own: a
    service that has a witness is started once with --trust-ledger.

    Example: tellers ledger compact spend.db
    """
    from ..errors import LedgerConflict
    from ..ledger.compact import compact_ledger
    from ..ledger.opening import is_url

    try:
        with _opened(where, name) as ledger:
            n_lines = ledger.head.number + 1
    except LedgerConflict:
        n_lines = 0  # what a crash left may have two names; the command that is run again ends that
    with show.progress_bar(2 * n_lines, "lines", wanted=not as_json) as progress:
        found = compact_ledger(where, to=to, name=name, progress=progress)
    told = {
        "where": options.shown_place(where, found.where) if is_url(where) else found.where,
        "changed": found.old is not None,
        "version": found.version,
        "old": found.old,
        "lines_before": found.lines_before,
        "lines": found.lines,
        "head": found.head,
    }
    show.tell(told, print_compacted, as_json=as_json)


def print_compacted(told: dict[str, Any]) -> None:
    screen = show.console()
    if not told["changed"]:
        screen.print(_plain(f"{told['where']} is of version {told['version']}: nothing to do."))
        return
    screen.print(
        _plain(f"{told['where']}: {told['lines']:,} lines instead of {told['lines_before']:,}, all compared.")
    )
    screen.print(_plain(f"The old ledger, of version {told['version']}, is closed: {told['old']}"))
    screen.print(f"Hash of the last line: {told['head']}")
    screen.print(show.note("note the new hash; a service with a witness starts once with --trust-ledger."))


def reprice(where: Where, name: Name = "main", as_json: options.Json = False) -> None:
    """Price everything on the books again with today's accountant; the ledger stays as it is.

    Events say for good which mechanism answered, with which noise. A sharper proof lowers the price of what
    was released long ago: what may be stated about it gets better, what was spent does not come back.

    Example: tellers ledger reprice spend.db
    """
    from ..runs.repricing import reprice as price_again

    with _opened(where, name) as ledger:
        again, delta = price_again(ledger.entries()), ledger.accountant.budget.delta
    show.tell(repriced(again, delta), print_repriced, as_json=as_json)


def show_vault(
    where: Where,
    vault: Annotated[Path, options.option("The file of the vault.", metavar="FILE")],
    key_file: Annotated[
        Path | None,
        options.option("Its key. Without it: the environment variable TELLERS_VAULT_KEY.", metavar="FILE"),
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Show what all answers cost at these very votes. PRIVATE: for the operator, not for publication.

    A ledger holds prices that are the same for any votes; a vault beside it holds the exact costs, encrypted.
    A question that is not in the vault counts as it was charged. To publish such a number, pay for it: see
    tellers publish.

    Example: tellers ledger vault spend.db --vault costs.sealed --key-file vault.key
    """
    from ..ledger.vault import Vault, read_key

    if not vault.is_file():
        raise ValueError(f"Expected a vault at {vault}, found none.")
    key = read_key(variable="TELLERS_VAULT_KEY") if key_file is None else read_key(file=key_file)
    costs = Vault(vault, key).read().reveal()
    with _opened(where, name) as ledger:
        told = read_vault(ledger, costs)
    show.tell(told, print_vault, as_json=as_json)


COMMANDS = {
    "init": init,
    "status": status,
    "list": list_,
    "verify": verify,
    "export": export,
    "import": import_,
    "compact": compact,
    "reprice": reprice,
    "vault": show_vault,
    "vault-key": make_key,
}


def _opened(where: str, name: str) -> "ChainedLedger":
    from ..ledger.opening import is_url, open_ledger

    try:
        return open_ledger(where, name=name) if is_url(where) else open_ledger(where)
    except FileNotFoundError as missing:
        raise ValueError(f"{missing} Look for a slip, or make one with tellers ledger init.") from None


def _account(text: str) -> tuple[str, float]:
    name, _, epsilon = text.rpartition("=")
    try:
        theirs = float(epsilon)
    except ValueError:
        theirs = float("nan")
    if not name or theirs != theirs:
        raise ValueError(f"Expected --account NAME=EPSILON, got {text!r}. For example: student/alice=0.5")
    return name, theirs
