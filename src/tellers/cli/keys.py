"""`tellers keys`: who may ask a service."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import options
from .serve import Config

if TYPE_CHECKING:
    from ..service._keys import Key, KeyStore
    from ..service.settings import ServiceSettings


HELP = """Make, list and revoke the keys of a service.

A student asks for labels and sees what it has spent, an operator sees all that is public, an auditor reads
and verifies the ledger. Two keys of one name are the same student, with one account.
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

    Example: tellers keys create --name alice --epsilon 1.0
    """
    settings, store = _open(config)
    try:
        _create(settings, store, name, role, epsilon=epsilon, delta=delta, as_json=as_json)
    finally:
        store.close()


def list_keys(config: Config = Path("service.toml"), as_json: options.Json = False) -> None:
    """List all keys by their ids; the keys themselves are not kept.

    Example: tellers keys list
    """
    _, store = _open(config)
    keys = store.all()
    store.close()
    if as_json:
        print(json.dumps([_told(key) for key in keys]))
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
    _, store = _open(config)
    try:
        key = store.revoke(key_id)
    finally:
        store.close()
    print(json.dumps(_told(key)) if as_json else f"Revoked {key.id} of {key.name}.")


COMMANDS = {"create": create, "list": list_keys, "revoke": revoke}


def _open(config: Path) -> "tuple[ServiceSettings, KeyStore]":
    from ..service._keys import KeyStore
    from ..service.settings import read_settings

    settings = read_settings(config)
    return settings, KeyStore(settings.place(settings.keys.store))


def _create(
    settings: "ServiceSettings", store: "KeyStore", name: str, role: str, *, epsilon: float | None,
    delta: float | None, as_json: bool,
) -> None:  # fmt: skip
    _refuse(epsilon is None and delta is not None, "Expected --epsilon with --delta, got none.")
    _refuse(
        epsilon is not None and role != "student", f"Expected no budget with --role {role}: it cannot spend."
    )
    token, key = store.create(name, role)
    account = None
    if epsilon is not None:
        try:
            account = _open_account(settings, name, epsilon, delta)
        except BaseException:
            store.revoke(key.id)  # a key whose budget was refused would spend without one
            raise
    if as_json:
        print(json.dumps({**_told(key), "key": token, "account": account}))
        return
    from . import show

    print(token)
    console = show.console(stderr=True)
    own = f" Its account: {account}, epsilon {epsilon:g}." if account else ""
    console.print(f"The key of {name}, {role}. It is not shown again: hand it over by a safe way.{own}")


def _open_account(settings: "ServiceSettings", name: str, epsilon: float, delta: float | None) -> str:
    from ..privacy.budget import Budget
    from ..service._ledger import account_name, open_service_ledger
    from ..service._teachers import open_served

    served = open_served(settings)
    budget = Budget(epsilon, served.budget.delta if delta is None else delta)
    with open_service_ledger(served.ledger, served.budget, name=settings.ledger.name) as ledger:
        ledger.open_account(account_name(name), budget)
    return account_name(name)


def _told(key: "Key") -> dict[str, Any]:
    return {
        "id": key.id, "name": key.name, "role": key.role, "created": key.created, "revoked": key.revoked
    }  # fmt: skip


def _refuse(wrong: bool, words: str) -> None:
    if wrong:
        raise ValueError(words)
