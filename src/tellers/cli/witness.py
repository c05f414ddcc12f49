"""`tellers witness`: remember elsewhere how far ledgers had come."""

import json
from pathlib import Path
from typing import Annotated, Any

from . import options

HELP = """Remember elsewhere how far ledgers had come, so that one that lost lines is noticed.

A service tells its witness the last line of its ledger before it hands out an answer, and does not start on
a ledger that does not hold what its witness saw. A file on another disk or another database can be one too.

Example: tellers witness serve /var/lib/witness --host 0.0.0.0
"""


def serve(
    folder: Annotated[Path, options.argument("FOLDER", "Where it keeps what it saw, its token and its key.")],
    host: Annotated[str, options.option("The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, options.option("The port; 0 = any that is free.", min=0, max=65_535)] = 8421,
    as_json: options.Json = False,
) -> None:
    """Be a witness over HTTP, on a machine that whoever restores the ledger's backups does not restore.

    The first start makes a token, which services need to be heard, and a key, by which it signs what it saw.
    It shows the public one, which services pin. Neither token nor anything private travels, so it needs no
    TLS. Ctrl-C or SIGTERM ends it.

    Example: tellers witness serve /var/lib/witness --host 0.0.0.0
    """
    import asyncio

    from ..ledger._witness_server import WitnessServer

    server = WitnessServer(folder)

    def ready(port: int) -> None:
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        told = {"url": url, "public_key": server.public_key, "token_file": str(server.token_file)}
        words = "\n".join(f'{name} = "{value}"' for name, value in told.items())
        print(json.dumps(told) if as_json else f"[witness]\n{words}", flush=True)

    asyncio.run(server.serve(host, port, ready=ready))


def check(
    where: Annotated[str, options.argument("LEDGER", "A file, or the address of a PostgreSQL database.")],
    witness: Annotated[str, options.argument("WITNESS", "A file, or a postgresql:// or http(s):// address.")],
    name: Annotated[str | None, options.option("Which ledger, where a database has several.")] = None,
    token_file: Annotated[str, options.option("http(s): the file with the token.", metavar="FILE")] = "",
    public_key: Annotated[str, options.option("http(s): the key that the witness shows.")] = "",
    as_json: options.Json = False,
) -> None:
    """Say whether a ledger holds the last line that a witness saw of it; a service's own is looked at by
    `tellers serve --check`.

    Example: tellers witness check spend.db /mnt/other/heads
    """
    from ..errors import LedgerConflict
    from ..ledger.opening import open_ledger
    from ..ledger.witness import Anchor, last, open_witness

    seen_by = open_witness(witness, token_file=token_file, public_key=public_key)
    which: dict[str, Any] = {} if name is None else {"name": name}
    try:
        opened = open_ledger(where, **which)
    except FileNotFoundError as missing:
        raise ValueError(f"{missing} Look for a slip in its name.") from None
    with opened as ledger:
        anchor = Anchor(ledger, seen_by)
        seen, head = last(seen_by, anchor.key), ledger.head
        anchor.require()
    if seen is None:
        raise LedgerConflict(
            f"Expected a ledger that {seen_by.name} saw before, it knows nothing of this one. Is it the "
            "right witness, and the right ledger? A service tells its witness when it starts."
        )
    told = {"number": head.number, "seen": seen.number, "when": seen.when, "hash": seen.hash}
    words = f"It is at line {head.number}, and holds line {seen.number}, which was seen at {seen.when}."
    print(json.dumps(told) if as_json else words)


COMMANDS = {"serve": serve, "check": check}
