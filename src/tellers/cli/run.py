"""`tellers run`: everything from one file of settings, from private rows to a student and its report."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from . import options

if TYPE_CHECKING:
    from ..runs.settings.sections import RunConfig


NO_STUDENT = 3
"""The exit code of a run that came to its end without a student: its batch failed its test."""


class Step(StrEnum):
    """The steps of a run."""

    data = "data"
    teachers = "teachers"
    votes = "votes"
    labels = "labels"
    student = "student"
    report = "report"


Resume: TypeAlias = Annotated[
    bool, options.option("Go on with a run that was cut short; begin it if there is none.", "--resume")
]
Until: TypeAlias = Annotated[Step, options.option("End after this step; --resume goes on from there.")]


def command(
    config: Annotated[Path, options.argument("CONFIG", "Settings in TOML; `tellers init` writes one.")],
    out: Annotated[
        Path | None,
        options.option("Folder of the run. Without it: named after CONFIG, beside it.", metavar="DIR"),
    ] = None,
    resume: Resume = False,
    until: Until = Step.report,
    changes: options.Changes = None,
    cluster: Annotated[
        str,
        options.option(
            "Train teachers on a Dask cluster: local, tcp://host:port or tls://host:port.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Train teachers, let them vote, release labels within a budget, and teach a student.

    Everything comes from one file of settings and goes into one folder: the ledger, the released labels, the
    student with its model card, a report to read in a browser, and, in a folder of its own, what is private.
    A run that was cut short goes on with --resume: nothing is trained, charged or drawn a second time.
    Every teacher votes, whatever its rows are. Who could not learn, and how many public rows are copies of
    private ones, is written to private/record.json; copies are refused by overlap = "refuse" in the section
    data. People may have budgets of their own, by the section personal: the groups are shown before anything
    is trained, and each pays from its own account.
    With --until it ends after one of its steps: data, teachers, votes, labels, student or report. Labels are
    the first that cost anything. Once there are votes, tellers sweep and tellers student ask no teacher.

    Example: tellers init tellers.toml && tellers run tellers.toml --out study
    """
    from ..runs.settings.files import read_config

    also = [f"cluster.address={cluster}"] if cluster else []
    settings = read_config(config, changes=[*(changes or ()), *also])
    folder = out if out is not None else config.with_name(f"{config.stem}-run")
    carry_out(settings, folder, until, resume=resume, as_json=as_json)


def carry_out(
    settings: "RunConfig",
    folder: Path,
    until: Step,
    *,
    resume: bool,
    as_json: bool,
    first: Path | None = None,
) -> None:
    """Do the steps of a run, or of another one of the teachers of a first, and say what came of it."""
    from ..runs.pipeline import run_steps
    from .outcome import say_record, say_warning, show_groups, steps_shown, tell, warn_of_groups

    say_record(folder / "private" / "record.json")
    with steps_shown(wanted=not as_json) as show:
        done = run_steps(
            settings,
            folder,
            until=until.value,
            first=first,
            resume=resume,
            show=show,
            show_groups=warn_of_groups if as_json else show_groups,
            warn=say_warning,
        )
    if as_json:
        told = {"until": until.value} if done is None else done.result.as_dict()
        print(json.dumps({**told, "folder": str(folder)}))
    elif done is not None:
        tell(done.result, folder)
    else:
        from . import show as screen

        words = f"{folder} has come to its {until.value}. Go on with it: --resume."
        screen.console().print(screen.note(words))
    if done is not None and done.result.is_void:
        raise typer.Exit(NO_STUDENT)
