"""`tellers demo`: the whole of it on embedded data, in about a minute."""

import json
from pathlib import Path
from typing import Annotated

import typer

from . import options


def command(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Folder of the run; one that is there is gone on with."),
    ] = Path("tellers-demo"),
    as_json: options.Json = False,
) -> None:
    """Teach a student handwritten digits from teachers that may not show theirs.

    Teachers learn from disjoint shares of scikit-learn's digits and vote on images nobody labelled; only
    noisy winners leave the room, each charged to a ledger before it is drawn. Needs no file and no network.
    The digits are public, so the private numbers are shown too, to see what they would say.

    Example: tellers demo --out demo
    """
    from dataclasses import replace

    from ..config import ReportConfig, default_config
    from ..pipeline import run
    from .outcome import steps_shown, tell

    settings = replace(default_config(), report=ReportConfig(private=True))
    with steps_shown(wanted=not as_json) as show:
        result = run(settings, out, resume=True, show=show)
    if as_json:
        print(json.dumps({**result, "folder": str(out)}))
    else:
        tell(result, out, public_data=True)
