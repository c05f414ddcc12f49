"""`tellers keys`: who may ask a service."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .serve import Config

if TYPE_CHECKING:
    from ..service.keys import Key
    from ..service.settings import ServiceSettings


class Action(StrEnum):
    """What can be done with keys."""

    create = "create"
    list = "list"
    revoke = "revoke"


def command(
    action: Annotated[Action, typer.Argument(metavar="create|list|revoke", show_default=False)],
    key_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="revoke: the id of the key.", show_default=False)
    ] = None,
    config: Config = "service.toml",  # type: ignore[assignment]
    name: Annotated[
        str | None, typer.Option("--name", help="create: whose key it is.", show_default=False)
    ] = None,
    role: Annotated[str, typer.Option("--role", help="create: student, operator or auditor.")] = "student",
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="create: a budget of its own, for good.", show_default=False),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option("--delta", help="create: its delta; without it that of the data.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Make, list and revoke the keys of a service.

    A key is shown once, when it is made; only a hash of it is kept. A student asks for labels and sees what
    it has spent, an operator sees all that is public, an auditor reads and verifies the ledger. Two keys of
    one name are the same student, with one account. Revoking works at once, also while the service runs.

    Example:

    \b
    tellers keys create --name alice --epsilon 1.0
    tellers keys revoke abcdefghijkl
    """
    from ..service import read_settings
    from ..service.keys import KeyStore

    settings = read_settings(config)
    store = KeyStore(settings.place(settings.keys.store))
    try:
        if action is Action.create:
            _refuse(key_id is not None, "Expected no id with create; it is chosen by chance.")
            _create(settings, store, name, role, epsilon=epsilon, delta=delta, as_json=as_json)
        elif action is Action.revoke:
            if key_id is None:
                raise ValueError("Expected the id of the key to revoke; `tellers keys list` shows them.")
            key = store.revoke(key_id)
            print(json.dumps(_told(key)) if as_json else f"Revoked {key.id} of {key.name}.")
        else:
            _list(store.all(), as_json=as_json)
    finally:
        store.close()


def _create(
    settings: "ServiceSettings", store: Any, name: str | None, role: str, *, epsilon: float | None,
    delta: float | None, as_json: bool,
) -> None:  # fmt: skip
    if name is None:
        raise ValueError("Expected whose key it is, got none. For example: --name alice")
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
    from ..budget import Budget
    from ..service.books import account_name, open_books
    from ..service.teachers import open_served

    served = open_served(settings)
    budget = Budget(epsilon, served.budget.delta if delta is None else delta)
    with open_books(served.ledger, served.budget) as ledger:
        ledger.open_account(account_name(name), budget)
    return account_name(name)


def _list(keys: "list[Key]", *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_told(key) for key in keys]))
        return
    from . import show

    table = show.table("id", "name", "role", "made", "revoked")
    for key in keys:
        table.add_row(key.id, key.name, key.role, key.created[:16], (key.revoked or "")[:16])
    console = show.console()
    console.print(table if keys else "No keys yet. Make one: tellers keys create --name alice")


def _told(key: "Key") -> dict[str, Any]:
    return {
        "id": key.id, "name": key.name, "role": key.role, "created": key.created, "revoked": key.revoked
    }  # fmt: skip


def _refuse(wrong: bool, words: str) -> None:
    if wrong:
        raise ValueError(words)
