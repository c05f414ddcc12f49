"""What `tellers serve` says to a person when it begins, and while it waits for a database."""

import ipaddress
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from . import show

if TYPE_CHECKING:
    from ..service.app import Service

_EVERY_SECONDS = 5.0


def facts(service: "Service", address: str) -> dict[str, str]:
    """Return what is served, where, and on which budget; all of it public but for who may read a terminal."""
    settings, served, left = service.settings, service.desk.served, service.desk.standing()
    asked = [f"a pool of {served.n_pool:,} rows"] if served.n_pool else []
    asked += [f"rows of {served.n_features:,} numbers"] if served.n_features else []
    told = {
        "API": f"{address}/v1/labels",
        "OpenAPI": f"{address}/v1/openapi.json",
        "dashboard": f"{address}/dashboard",
        "teachers": f"{served.n_teachers:,} ({settings.data.source}: {settings.data.path}), "
        f"{served.n_classes} classes, asked by {' or '.join(asked)}",
        "mechanism": repr(served.mechanism),
        "ledger": _ledger(service),
        "budget": f"epsilon {show.figure(left.epsilon_spent)} of {left.epsilon:g} at delta {left.delta:g} is "
        f"spent; {left.queries_left:,} more queries at this setting",
        "vault": settings.vault.path or "none, exact costs are not kept",
    }
    if not service.door.store.all():
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
            (screen or show.console(stderr=True)).print(
                Text(
                    f"Waiting for PostgreSQL: {place} does not answer. {left:.0f} more seconds; Ctrl-C stops."
                )
            )

    return say


def _is_anywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _ledger(service: Any) -> str:
    place: str = service.desk.served.ledger
    if "://" not in place:
        return place
    from ..ledger.sql.plain import shown
    from ..ledger.sql.tables import parse_url

    return f"{service.settings.ledger.name!r} in {shown(parse_url(place))}"  # without a password
