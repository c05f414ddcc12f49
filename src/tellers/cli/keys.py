"""`tellers keys`: who may ask a service."""

import json
import os
import stat
import sys
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .serve import Config

if TYPE_CHECKING:
    from ..service._keys import KeyStore
    from ..service.settings import ServiceSettings


HELP = """Make, list and revoke the keys of a service.

A student asks for labels and sees what it has spent, an operator sees all that is public, an auditor reads
and verifies the ledger. Two keys of one name are the same student, with one account.

Example: tellers keys create --name alice --epsilon 1.0 > alice.key
"""


def create(
    name: Annotated[str, options.option("Whose key it is.")],
    role: Annotated[str, options.option("student, operator or auditor.")] = "student",
    epsilon: Annotated[float | None, options.option("A budget of the student's own, for good.")] = None,
    delta: Annotated[float | None, options.option("Its delta. Without it: that of the data.")] = None,
    config: Config = Path("service.toml"),
    as_json: options.Json = False,
) -> None:
    """Make a key and show it, the only time: a hash of it is all that is kept.

    With --epsilon the student gets an account of its own in the ledger; a question is then paid by both, the
    data's budget and the student's, or by neither. A second key of the same name has the same account.
    Where the output goes to a file, only its owner can read that from then on (mode 0600).

    Example: tellers keys create --name alice --epsilon 1.0 > alice.key
    """
    if epsilon is None and delta is not None:
        raise ValueError("Expected --epsilon with --delta, got none.")
    if epsilon is not None and role != "student":
        raise ValueError(f"Expected no budget with --role {role}: it cannot spend.")
    settings, opened = _open(config)
    account = None
    with opened as store:
        token, key = store.create(name, role)
        if epsilon is not None:
            try:
                account = _open_account(settings, name, epsilon, delta)
            except BaseException:
                store.revoke(key.id)  # a key whose budget was refused would spend without one
                raise
    from . import show

    if not keep_to_owner():
        words = (
            "Others can read the file that the key goes to, and this user may not change it: let its owner "
            "chmod 600 it."
        )
        show.console(stderr=True).print(words)
    if as_json:
        print(json.dumps({**asdict(key), "key": token, "account": account}))
        return
    print(token)
    own = f" Its account: {account}, epsilon {epsilon:g}." if account else ""
    words = f"The key of {name}, {role}. It is not shown again: hand it over by a safe way.{own}"
    show.console(stderr=True).print(words)


def list_keys(config: Config = Path("service.toml"), as_json: options.Json = False) -> None:
    """List all keys by their ids; the keys themselves are not kept.

    Example: tellers keys list
    """
    _, opened = _open(config)
    with opened as store:
        keys = store.all()
    if as_json:
        print(json.dumps([asdict(key) for key in keys]))
        return
    from . import show

    table = show.table("id", "name", "role", "made", "revoked")
    for key in keys:
        table.add_row(key.id, key.name, key.role, key.created[:16], (key.revoked or "")[:16])
    console = show.console()
    console.print(table if keys else "No keys yet. Make one: tellers keys create --name alice")


def revoke(
    key_id: Annotated[str, options.argument("ID", "The id of the key.")],
    config: Config = Path("service.toml"),
    as_json: options.Json = False,
) -> None:
    """Revoke a key: it opens nothing from the next request on, also while the service runs.

    Example: tellers keys revoke abcdefghijkl
    """
    _, opened = _open(config)
    with opened as store:
        key = store.revoke(key_id)
    print(json.dumps(asdict(key)) if as_json else f"Revoked {key.id} of {key.name}.")


def keep_to_owner() -> bool:
    """Let nobody else read the file that stdout goes to, as in `> alice.key`, before there is a key in it.

    Return whether that is so: it is not where the file is somebody else's, as `sudo -u` has it.
    """
    with suppress(OSError, ValueError, AttributeError):  # no file, or no such modes here
        out = sys.stdout.fileno()
        if stat.S_ISREG(os.fstat(out).st_mode):
            with suppress(OSError):
                os.fchmod(out, 0o600)
            return not os.fstat(out).st_mode & 0o077
    return True


COMMANDS = {"create": create, "list": list_keys, "revoke": revoke}


def _open(config: Path) -> "tuple[ServiceSettings, closing[KeyStore]]":
    from ..service._keys import KeyStore
    from ..service.settings import read_settings

    settings = read_settings(config)
    return settings, closing(KeyStore(settings.place(settings.keys.store)))


def _open_account(settings: "ServiceSettings", name: str, epsilon: float, delta: float | None) -> str:
    from ..privacy.budget import Budget
    from ..service._ledger import account_name, open_service_ledger
    from ..service._teachers import open_served

    served = open_served(settings)
    budget = Budget(epsilon, served.budget.delta if delta is None else delta)
    with open_service_ledger(served.ledger, served.accountant, name=settings.ledger.name) as ledger:
        ledger.open_account(account_name(name), budget)
    return account_name(name)
