"""`tellers report`: render the report of a run again."""

import json
from pathlib import Path
from typing import Annotated

from . import options


def command(
    folder: Annotated[
        Path, options.argument("DIR", "The folder of a run, as `tellers run --out DIR` made it.")
    ],
    private: Annotated[
        bool,
        options.option("With private numbers, for the operator's eyes; in a file of its own.", "--private"),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Render the report of a run again, from the numbers in its folder.

    The report is one HTML file that needs nothing else: no network, no JavaScript. Private numbers are left
    out unless --private asks for them; they were kept only if the settings of the run said so ([report]
    private = true).

    Example: tellers report study
    """
    from ..runs.report.write import write_report
    from . import show

    path = write_report(folder, private=private)
    if as_json:
        print(json.dumps({"report": str(path), "private": private}))
        return
    console = show.console()
    console.print(f"Open {path}")
    if private:
        console.print(show.note("this report holds private numbers: do not pass it on."))
