"""`tellers init`: write a commented settings file."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..data._records import NAMED
from . import options

if TYPE_CHECKING:
    from ..runs.settings.sections import RunConfig


SettingsOf = StrEnum("SettingsOf", ["run", "service", "party"])


def command(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="The file to write.", show_default="tellers.toml")
    ] = Path("tellers.toml"),
    data: Annotated[
        str,
        options.option(
            f"What to learn from: {', '.join(name for name, one in NAMED.items() if not one.files)}, files "
            "for tables of your own, or, with many labels, "
            f"{', '.join(name for name, one in NAMED.items() if one.files and not one.load)}.",
            metavar="NAME",
        ),
    ] = "digits",
    schema: Annotated[
        SettingsOf | None,
        options.option(
            "Print the JSON schema of settings files, by which editors complete and check them, and do "
            "nothing else."
        ),
    ] = None,
    force: Annotated[bool, options.option("Overwrite a file that is there.", "--force")] = False,
    as_json: options.Json = False,
) -> None:
    """Write a settings file: every option, with a comment and a value to begin with.

    Change what you like and hand it to tellers run. Nothing is trained and nothing is spent here.

    Example:

    \b
    tellers init --data digits
    """
    from ..runs.settings.files import default_config, write_config

    if schema is not None:
        from .. import runs, service

        kinds = {"run": runs.RunConfig, "service": service.ServiceSettings, "party": runs.PartySettings}
        print(json.dumps(kinds[schema].json_schema(), indent=2))
        return
    config = default_config(data)
    write_settings_file(file, write_config(config, name=file.name), force=force)
    if as_json:
        done = {"file": str(file), "data": data, "to_do": _to_do(config), "next": _next(file)}
        print(json.dumps(done, indent=2))
    else:
        _print(file, config)


def write_settings_file(file: Path, text: str, *, force: bool) -> None:
    from ..privacy._files import write_whole

    if file.is_dir():
        raise ValueError(f"Expected the name of a file, got the folder {file}. Try {file / 'tellers.toml'}")
    if file.exists() and not force:
        raise ValueError(
            f"Expected a new file, {file} is there already. Choose another name, or add --force."
        )
    try:
        write_whole(file, text.encode())
    except OSError as error:
        raise ValueError(
            f"Expected a folder to write {file.name} in, got: {error.strerror or error}. "
            "Nothing was written; choose another place."
        ) from error


def _to_do(config: "RunConfig") -> list[str]:
    """Return what must be done before the settings can be run."""
    if config.data.is_files:
        where = "your files are (private, public, test), and in [labels] all labels."
        if config.data.name == "files":
            where = "your rows are (private, public, test), which column is the target, and all classes."
        return [
            f"In [data], say where {where}",
            "In [budget], set delta well below 1 / the number of private records.",
        ]
    if "data_dir" in config.data.record.parameters():
        return [f"Have the files of {config.data.name} in the folder that directory or TELLERS_DATA names."]
    return []


def _next(file: Path) -> str:
    import shlex

    return f"tellers run {shlex.quote(str(file))}"


def _print(file: Path, config: "RunConfig") -> None:
    from rich.text import Text

    from . import show

    screen = show.console()
    budget = config.budget
    summary = (
        f"{config.data.name}, {config.partition.n_teachers} teachers ({config.teachers.model}), "
        f"{config.mechanism.name} voting, epsilon {budget.epsilon:g} at delta {budget.delta:g}."
    )
    screen.print(Text.assemble("\nWrote ", (str(file), "bold"), f": {summary}\n"))
    steps = [Text(step) for step in _to_do(config)]
    steps.append(Text.assemble("Run it: ", (_next(file), "bold green")))
    for number, step in enumerate(steps, start=1):
        screen.print(Text.assemble(f"  {number}. ", step) if len(steps) > 1 else step)
    screen.print()
