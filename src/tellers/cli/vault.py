"""`tellers ledger vault` and `vault-key`: exact costs, which are private, for whoever has the key."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options

if TYPE_CHECKING:
    from ..ledger.chained import ChainedLedger
    from ..rdp import RdpCurve

PATH_TAKEN = (
    "A sum along the path that was taken, where answers decided what was asked next: what may be stated is "
    "the public one."
)
WARNING = "PRIVATE: these numbers look at the votes. Do not publish them, and do not act on them in public."


def make_key(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A new file, which its owner alone may read; without it, to the screen.",
            show_default=False,
        ),
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
    from ..label_costs import bound_because
    from ..mechanisms import EVENTS
    from . import show

    entries, at = ledger.entries(), ledger.accountant.budget.delta
    exact, kept, why = 0 * ledger.spent, 0, ""
    for entry in entries:
        cost = costs.get(entry.key)
        exact = exact + (entry.charged if cost is None else cost)
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
        "charged_epsilon": ledger.spent.epsilon(at),
        "exact_epsilon": exact.epsilon(at),
        "exact_kind": show.exact_kind(why),
        "exact_is_bound": why,
    }


def print_vault(told: dict[str, Any]) -> None:
    """Print what a vault holds, in the frame of what is private."""
    from . import show

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
