"""`tellers serve`: put teachers behind a service that hands out labels only against budget."""

import ipaddress
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.text import Text

from . import options, show

if TYPE_CHECKING:
    from ..service.app import Service


# --- What `tellers serve` says to a person when it begins, and while it waits for a database. ---


_EVERY_SECONDS = 5.0


def facts(service: "Service", address: str) -> dict[str, str]:
    """Return what is served, where, and on which budget; all of it public but for who may read a terminal."""
    settings, served, left = service.settings, service.labels.served, service.labels.budget_status()
    asked = [f"a pool of {served.n_pool:,} rows"] if served.n_pool else []
    asked += [f"rows of {served.n_features:,} numbers"] if served.n_features else []
    outputs = f"{served.n_labels} labels" if served.n_labels else f"{served.n_classes} classes"
    told = {
        "API": f"{address}/v1/labels",
        "OpenAPI": f"{address}/v1/openapi.json",
        "dashboard": f"{address}/dashboard",
        "teachers": f"{served.n_teachers:,} ({settings.data.source}: {settings.data.path}), "
        f"{outputs}, asked by {' or '.join(asked)}",
        "mechanism": repr(served.mechanism),
        "ledger": options.shown_place(served.ledger, settings.ledger.name),
        "budget": f"{show.standing(left)}; {left.queries_left:,} more queries at this setting",
        "vault": settings.vault.path or "none, exact costs are not kept",
    }
    if not service.authenticator.store.all():
        told["keys"] = "none yet: tellers keys create --name alice"
    return told


def announce(service: "Service", address: str) -> None:
    """Print where the service is and what it serves."""
    screen = show.console(stderr=True)
    if _is_anywhere(service.settings.server.host):
        # Nobody can go there: every address of this machine leads to it.
        scheme, _, port = address.rpartition(":")
        address = f"{scheme.partition('//')[0]}//localhost:{port}"
    screen.print()
    screen.print(Text.assemble(("tellers", "bold"), " hands out labels, each charged before it is drawn."))
    rows = show.table("", "")
    rows.show_header = False
    for name, words in facts(service, address).items():
        rows.add_row(Text(name, style="dim"), Text(words, overflow="fold"))
    screen.print(show.indented(rows))
    screen.print("[dim]Ctrl-C ends it; requests in flight are finished. The log follows, in JSON.[/dim]\n")


def waiting(screen: "Console | None" = None) -> Callable[[str, float], None]:
    """Return what says, now and then, that a database is waited for."""
    shown_at: dict[str, float] = {}

    def say(place: str, left: float) -> None:
        now = time.monotonic()
        if now - shown_at.get(place, -_EVERY_SECONDS) >= _EVERY_SECONDS:
            shown_at[place] = now
            words = f"Waiting for PostgreSQL: {place} does not answer. {left:.0f} more seconds; Ctrl-C stops."
            (screen or show.console(stderr=True)).print(Text(words))

    return say


def _is_anywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


# --- `tellers serve`: put teachers behind a service that hands out labels only against budget. ---


Config = Annotated[Path, options.option("Settings in TOML; --init writes one.", metavar="FILE")]


def command(
    config: Config = Path("service.toml"),
    changes: options.Changes = None,
    init: Annotated[
        Path | None,
        options.option("Write a commented settings file, and do nothing else.", metavar="FILE"),
    ] = None,
    check: Annotated[
        bool,
        options.option("Load everything, say what would be served, and do nothing else.", "--check"),
    ] = False,
    wait: Annotated[
        float, options.option("How long to wait for a PostgreSQL server.", metavar="SECONDS", min=0)
    ] = 30.0,
    banner: Annotated[
        bool | None,
        options.option("Say on stderr, for people, what is served and where. Without it: on a terminal."),
    ] = None,
    trust_ledger: Annotated[
        bool,
        options.option(
            "Serve a ledger that lacks what its witness saw: a new one, or a backup that was checked. For "
            "one start alone: it trusts whatever is there.",
            "--trust-ledger",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Hand out labels to those who hold a key, each charged to the ledger before it is drawn.

    Who votes, with which noise and on which budget is in the settings; tellers keys makes keys, and
    tellers ask, or tellers.service.Client, asks. The log is JSON on stderr and holds no row, no vote and
    no key. Ctrl-C or SIGTERM lets requests in flight finish. A database that does not answer yet is
    waited for.

    Example:

    \b
    tellers serve --init service.toml
    tellers serve --config service.toml
    """
    from ..service.settings import ServiceSettings, read_settings, write_settings

    if init is not None:
        from .init import write_settings_file

        write_settings_file(init, write_settings(ServiceSettings(), name=init.name), force=False)
        words = f"Wrote {init}. Say in [data] what is served, then: tellers serve --config {init}"
        print(json.dumps({"file": str(init)}) if as_json else words)
        return
    settings = read_settings(config, changes=changes or ())

    if check:
        from ..privacy import noise
        from ..service._keys import KeyStore
        from ..service._labels import LabelService
        from ..service._ledger import (
            open_anchors,
            open_groups,
            open_service_ledger,
            open_vault,
            wait_for_databases,
        )  # fmt: skip
        from ..service._teachers import open_served

        served = open_served(settings)
        if wait:
            wait_for_databases(settings, served.ledger, wait, say=None if as_json else waiting())
        open_vault(settings)
        with open_service_ledger(served.ledger, served.accountant, name=settings.ledger.name) as ledger:
            with closing(KeyStore(settings.place(settings.keys.store))) as store:
                for anchor in open_anchors(settings, store, ledger, served.ledger):
                    anchor.require()
            open_groups(settings, ledger, served.plan, delta=served.budget.delta)
            left = LabelService(served, ledger, noise.secure()).budget_status()
        told = {
            "address": settings.server.address, "source": settings.data.source, "n_pool": served.n_pool,
            "n_features": served.n_features, "n_classes": served.n_classes, "n_labels": served.n_labels,
            "epsilon": left.epsilon,
            **({"rule": "clock", "share_left": left.share_left} if left.epsilon_left is None
               else {"epsilon_left": left.epsilon_left}),
            "queries_left": left.queries_left,
            "groups": None if served.plan is None else [group.name for group in served.plan.groups],
            "vault": settings.vault.path or None,
        }  # fmt: skip
        print(json.dumps(told) if as_json else "\n".join(f"{name}: {value}" for name, value in told.items()))
        return
    from ..service._server import serve

    # A log that a machine reads holds JSON alone; people are told where they can see it.
    is_watched = sys.stderr.isatty() if banner is None else banner
    say = waiting() if is_watched else None
    told_ready = announce if is_watched else None
    serve(settings, wait=wait, waiting=say, ready=told_ready, trust_ledger=trust_ledger)
