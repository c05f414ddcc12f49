"""`tellers ledger`: make, watch, check, move and reprice the books."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from . import options
from .vault import make_key

if TYPE_CHECKING:
    from ..ledger.chained import ChainedLedger

HELP = """The books: make a ledger, see what is spent and what is left, check that nobody changed it, move it.

WHERE is the path of a file, or the URL of a PostgreSQL database, postgresql://user@host/name. Leave the
password to PGPASSWORD or ~/.pgpass: what is on a command line can be read by others on the machine.

Example: tellers ledger init spend.db --epsilon 2 --delta 1e-5 && tellers ledger status spend.db
"""

Where: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="WHERE", help="A file, or postgresql://user@host/name.", show_default=False),
]
Name: TypeAlias = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Which ledger, where a database has several.")
]


def init(
    where: Where,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="The budget of the data.", show_default=False)
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", help="Failure probability, well below 1 / private records.", show_default=False
        ),
    ] = None,
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            metavar="NAME=EPSILON",
            help="Open a named account with a budget of its own, at the same delta. May be repeated.",
            show_default=False,
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
    from ..budget import Accountant, Budget
    from ..ledger.opening import is_url, open_ledger

    in_database = is_url(where)
    made: dict[str, Any] = {"where": _shown(where), "name": name if in_database else None}
    if (epsilon is None) != (delta is None) or (epsilon is None and not in_database):
        raise ValueError(
            "Expected --epsilon and --delta, the budget of the data. For example: --epsilon 2 --delta 1e-5"
        )
    wanted = [_account(text) for text in account or []]
    if in_database:
        from ..ledger.sql import migrate

        made["tables"] = migrate(where)
    if epsilon is not None and delta is not None:
        named = {"name": name} if in_database else {}
        with open_ledger(where, Accountant(Budget(epsilon, delta)), **named) as ledger:
            for who, theirs in wanted:
                ledger.open_account(who, Budget(theirs, delta))
            made |= {"epsilon": epsilon, "delta": delta, "accounts": list(ledger.accounts())}
    elif wanted:
        raise ValueError("Expected --epsilon and --delta of the ledger that --account belongs to, got none.")
    if as_json:
        print(json.dumps(made))
        return
    from . import books

    books.print_made(made)


def status(where: Where, name: Name = "main", as_json: options.Json = False) -> None:
    """Show the budget, what is spent and what is left, for the data and for every named account.

    Example: tellers ledger status spend.db
    """
    from . import books

    with _opened(where, name) as ledger:
        state = books.state(ledger, _shown(where))
    if as_json:
        print(json.dumps(state, indent=2))
    else:
        books.print_state(state)


def list_(
    where: Where,
    account: Annotated[
        str | None, typer.Option("--account", help="Only what this account paid for.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="The newest so many; 0 for all.")] = 20,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """List the questions on the books, with what was reserved and what is charged.

    Example: tellers ledger list spend.db --account student/alice --limit 50
    """
    from . import books

    with _opened(where, name) as ledger:
        if account is not None and account not in ledger.accounts():
            raise ValueError(
                f"Expected an account of this ledger, got {account!r}. See: tellers ledger status"
            )
        entries = [e for e in ledger.entries() if account is None or account in e.also]
        delta = ledger.accountant.budget.delta
    shown = entries[-limit:] if limit else entries
    rows = [books.row(entry, delta) for entry in shown]
    if as_json:
        print(json.dumps({"entries": rows, "n_entries": len(entries)}, indent=2))
    else:
        books.print_rows(rows, n_entries=len(entries), delta=delta)


def verify(
    where: Where,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="HASH",
            help="What an earlier verify printed: must still be there.",
            show_default=False,
        ),
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Read every line again and check its hash, and that the rules that keep the books append-only are there.

    Note the hash that it prints somewhere else, and hand it back the next time: a chain that was cut short,
    or a file that was replaced by an older copy, holds together and is only found that way.

    Example: tellers ledger verify spend.db --head 8cdd7e96...
    """
    with _opened(where, name) as ledger:
        found = ledger.verify(head)
        n_lines = len(ledger.lines())
    if as_json:
        print(json.dumps({"intact": True, "lines": n_lines, "head": found}))
        return
    from . import books

    books.print_verified(n_lines, found, compared=head is not None)


def export(
    where: Where,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where to write; without it, to the screen.", show_default=False),
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Write a ledger as JSON lines, hashes included, for a backup or to move it.

    Example: tellers ledger export spend.db spend.jsonl
    """
    import io

    from ..ledger import export_ledger
    from ..teachers.store import write_whole

    text = io.StringIO()
    with _opened(where, name) as ledger:
        head = export_ledger(ledger, text)
    if file is None:
        sys.stdout.write(text.getvalue())
        return
    write_whole(file, text.getvalue().encode("utf-8"))
    said = {"file": str(file), "lines": text.getvalue().count("\n") - 2, "head": head}
    print(json.dumps(said) if as_json else f"{said['lines']} lines in {file}, to hash {head}")


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `tellers ledger export` wrote.", show_default=False)
    ],
    where: Where,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="HASH", help="A hash that must be in it.", show_default=False),
    ] = None,
    name: Name = "main",
    as_json: options.Json = False,
) -> None:
    """Make a ledger from an export: a new file, or a free name in a database, with tables if it has none.

    Every line is checked before anything is written; the copy has the same lines, hashes and state. From then
    on spend on one of the two: each knows nothing of what the other spends.

    Example: tellers ledger import spend.jsonl copy.db
    """
    from ..ledger import import_ledger
    from ..ledger.opening import is_url

    if is_url(where):
        from ..ledger.sql import migrate

        migrate(where)  # a fresh database has no tables yet; where they are there, this changes nothing
    with (
        file.open(encoding="utf-8") as stream,
        import_ledger(stream, where, head=head, name=name) as ledger,
    ):
        found, n_lines = ledger.verify(), len(ledger.lines())
    said = {"where": _shown(where), "lines": n_lines, "head": found}
    print(json.dumps(said) if as_json else f"{n_lines} lines in {said['where']}, to hash {found}")


def reprice(where: Where, name: Name = "main", as_json: options.Json = False) -> None:
    """Price everything on the books again with today's accountant; the ledger stays as it is.

    Events say for good which mechanism answered, with which noise. A sharper proof lowers the price of what
    was released long ago: what may be stated about it gets better, what was spent does not come back.

    Example: tellers ledger reprice spend.db
    """
    from ..repricing import reprice as price_again
    from . import books

    with _opened(where, name) as ledger:
        again, delta = price_again(ledger.entries()), ledger.accountant.budget.delta
    state = books.repriced(again, delta)
    if as_json:
        print(json.dumps(state, indent=2))
    else:
        books.print_repriced(state)


def show_vault(
    where: Where,
    vault: Annotated[
        Path, typer.Option("--vault", metavar="FILE", help="The file of the vault.", show_default=False)
    ],
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Its key. Without it: the environment variable TELLERS_VAULT_KEY.",
            show_default=False,
        ),
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
    from .vault import print_vault, read_vault

    if not vault.is_file():
        raise ValueError(f"Expected a vault at {vault}, found none.")
    key = read_key(variable="TELLERS_VAULT_KEY") if key_file is None else read_key(file=key_file)
    costs = Vault(vault, key).read().reveal()
    with _opened(where, name) as ledger:
        told = read_vault(ledger, costs)
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        print_vault(told)


COMMANDS = {
    "init": init,
    "status": status,
    "list": list_,
    "verify": verify,
    "export": export,
    "import": import_,
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


def _shown(where: str) -> str:
    """Return a place as it may be printed: without a password."""
    from ..ledger.opening import is_url

    if not is_url(where):
        return where
    from ..ledger.sql.plain import shown
    from ..ledger.sql.tables import parse_url

    return shown(parse_url(where))


def _account(text: str) -> tuple[str, float]:
    name, _, epsilon = text.rpartition("=")
    try:
        theirs = float(epsilon)
    except ValueError:
        theirs = float("nan")
    if not name or theirs != theirs:
        raise ValueError(f"Expected --account NAME=EPSILON, got {text!r}. For example: student/alice=0.5")
    return name, theirs
