"""`tellers serve`: put teachers behind a service that hands out labels only against budget."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import options

Config = Annotated[
    Path,
    typer.Option("--config", metavar="FILE", help="Settings in TOML; --init writes one."),
]


def command(
    config: Config = Path("service.toml"),
    init: Annotated[
        Path | None,
        typer.Option("--init", metavar="FILE", help="Write a commented settings file, and do nothing else."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load everything, say what would be served, and do nothing else.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a PostgreSQL server."),
    ] = 30.0,
    banner: Annotated[
        bool | None,
        typer.Option(
            "--banner/--no-banner",
            help="Say on stderr, for people, what is served and where. Without it: on a terminal.",
            show_default=False,
        ),
    ] = None,
    trust_ledger: Annotated[
        bool,
        typer.Option(
            "--trust-ledger",
            help="Serve a ledger that lost what was seen of it: a new one, or a backup that was checked.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Hand out labels to those who hold a key, each charged to the ledger before it is drawn.

    Who votes, with which noise and on which budget is in the settings; tellers keys makes keys, and tellers
    ask, or tellers.client, asks. The log is JSON on stderr and holds no row, no vote and no key. Ctrl-C or
    SIGTERM lets requests in flight finish. A database that does not answer yet is waited for.

    Example:

    \b
    tellers serve --init service.toml
    tellers serve --config service.toml
    """
    from ..service import ServiceSettings, read_settings, write_settings

    if init is not None:
        from .init import write_settings_file

        write_settings_file(init, write_settings(ServiceSettings(), name=init.name), force=False)
        words = f"Wrote {init}. Say in [data] what is served, then: tellers serve --config {init}"
        print(json.dumps({"file": str(init)}) if as_json else words)
        return
    settings = read_settings(config)
    from . import welcome

    if check:
        from .. import noise
        from ..service.books import open_books, open_vault, wait_for_databases
        from ..service.desk import Desk
        from ..service.teachers import open_served

        served = open_served(settings)
        if wait:
            wait_for_databases(settings, served.ledger, wait, say=None if as_json else welcome.waiting())
        open_vault(settings)
        with open_books(served.ledger, served.budget, name=settings.ledger.name) as ledger:
            left = Desk(served, ledger, noise.secure()).standing()
        told = {
            "address": settings.server.address, "source": settings.data.source, "n_pool": served.n_pool,
            "n_features": served.n_features, "n_classes": served.n_classes, "epsilon": left.epsilon,
            "epsilon_left": left.epsilon_left, "queries_left": left.queries_left,
            "vault": settings.vault.path or None,
        }  # fmt: skip
        print(json.dumps(told) if as_json else "\n".join(f"{name}: {value}" for name, value in told.items()))
        return
    from ..service.serving import serve

    # A log that a machine reads holds JSON alone; people are told where they can see it.
    is_watched = sys.stderr.isatty() if banner is None else banner
    say = welcome.waiting() if is_watched else None
    told_ready = welcome.announce if is_watched else None
    serve(settings, wait=wait, waiting=say, ready=told_ready, trust_ledger=trust_ledger)
