"""`tellers run`: everything from one file of settings, from private rows to a student and its report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options

if TYPE_CHECKING:
    from ..runs.settings.sections import RunConfig


def command(
    config: Annotated[Path, options.argument("CONFIG", "Settings in TOML; `tellers init` writes one.")],
    out: Annotated[
        Path | None,
        options.option("Folder of the run. Without it: named after CONFIG, beside it.", metavar="DIR"),
    ] = None,
    resume: Annotated[
        bool,
        options.option("Go on with a run that was cut short; begin it if there is none.", "--resume"),
    ] = False,
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

    Example: tellers init tellers.toml && tellers run tellers.toml --out study
    """
    from ..runs.pipeline import run
    from ..runs.settings.files import read_config
    from .outcome import say_record, say_warning, show_groups, steps_shown, tell, tell_sound, warn_of_groups

    also = [f"cluster.address={cluster}"] if cluster else []
    settings = read_config(config, changes=[*(changes or ()), *also])
    folder = out if out is not None else config.with_name(f"{config.stem}-run")
    say_record(folder / "private" / "record.json")
    with steps_shown(wanted=not as_json) as show:
        shown = warn_of_groups if as_json else show_groups
        result = run(settings, folder, resume=resume, show=show, show_groups=shown, warn=say_warning)
        page = _sound_page(folder, settings)
    if as_json:
        print(json.dumps({**result.as_dict(), "folder": str(folder)}))
    else:
        tell(result, folder)
        if page is not None:
            tell_sound(page)


def _sound_page(folder: Path, settings: "RunConfig") -> Path | None:
    """Write the page of sound beside the report, where rows are clips."""
    if settings.data.name != "clips":
        return None
    from ..runs.sound._pages import write_run_sound

    return write_run_sound(folder, settings)
