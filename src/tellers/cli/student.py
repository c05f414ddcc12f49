"""`tellers student`: another student of the teachers of a run, charged to its ledger."""

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .run import Resume, Step, Until, carry_out


def command(
    run: Annotated[Path, options.argument("RUN", "The folder of a run that has voted.")],
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="Settings of the student. Without it: those of RUN."),
    ] = None,
    out: Annotated[
        Path, options.option("Folder of the student: labels, model, report.", metavar="DIR")
    ] = Path("student"),
    until: Until = Step.report,
    resume: Resume = False,
    changes: options.Changes = None,
    as_json: options.Json = False,
) -> None:
    """Release labels of the votes of a run once more, by other settings, and teach another student.

    No teacher is trained or asked again: what they said is kept, after tellers run --until votes or any later
    step. The student may have a mechanism, a number of queries, a model and a report of its own; data,
    teachers, labels and budget are those of RUN. Every answer is charged to the ledger of RUN, as those of
    all other students of its teachers are: a second one pays from what the first left of the budget, and a
    ledger that is gone is refused. The folder is that of a run.

    Example:

    \b
    tellers run tellers.toml --out teachers --until votes
    tellers student teachers --out first --set queries.n_queries=100
    tellers student teachers --out second --set mechanism.sigma=60 --set student.model=forest
    """
    from ..runs.settings.files import read_config

    if not (run / "config.toml").is_file():
        raise ValueError(
            f"Expected the folder of a run, found none at {run}. Make it: tellers run CONFIG --out {run} "
            "--until votes. Teachers of tellers audio train are asked by tellers audio student."
        )
    settings = read_config(run / "config.toml" if config is None else config, changes=changes or ())
    carry_out(settings, out, until, resume=resume, as_json=as_json, first=run)
