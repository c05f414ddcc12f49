"""Settings files of runs: read with every mistake and its line, and written with comments."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from .schema import comment, plain
from .sections import RunConfig

_HEADING = """\
Settings of a run of tellers: from private data to a student, with what it cost on the books.
    tellers run {name}
Every option is here with its default; lines that begin with # are comments."""


def read_config(path: str | PathLike[str]) -> RunConfig:
    """Read the settings of a run from a TOML file; paths in it are relative to its folder.

    What is left out has its default, except the parameters of a mechanism that is named. All mistakes of a
    file come as one error, one line each, beginning with the file and the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tellers.toml"
    ...     _ = path.write_text("[budget]\\nepsilon = 2\\ndelta = 1e-5\\n")
    ...     config = read_config(path)
    >>> config.budget.epsilon, config.partition.n_teachers
    (2.0, 60)
    """
    return RunConfig.read(path)


def parse_config(
    text: str, *, source: str = "settings", folder: str | PathLike[str] | None = None
) -> RunConfig:
    r"""Return the settings that a TOML text holds; `source` names it in errors, paths start at `folder`.

    >>> parse_config("seed = 8\n").seed
    8
    >>> parse_config("seed = 8\n\n[budget]\nepsilom = true\ndelta = 2\n")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: settings:4: budget.epsilom: Unknown option. ... Did you mean epsilon?
    settings:5: budget.delta: Expected a number above 0 and below 1, got 2.
    """
    place = "" if folder is None else str(Path(folder).absolute())
    return RunConfig.parse(text, source=source, folder=place)


def write_config(config: RunConfig, *, name: str = "tellers.toml") -> str:
    """Return settings as a commented TOML file that `parse_config` reads back to the same settings.

    >>> config = RunConfig(seed=8)
    >>> parse_config(write_config(config)) == config
    True
    """
    return config.written(comment(_HEADING.format(name=name)))


def config_as_dict(config: RunConfig) -> dict[str, Any]:
    """Return settings as plain values for JSON, without the mechanism's parameters that do not apply.

    >>> config_as_dict(RunConfig())["queries"]["order"]
    'shuffled'
    """
    result: dict[str, Any] = {"seed": config.seed}
    for title, section in config.said().items():
        values = {name: getattr(section, name) for name in section.declared()}
        result[title] = {name: plain(value) for name, value in values.items() if value is not None}
    return result


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Return the same settings with every path in full, for a copy that is kept in another folder.

    >>> config = parse_config('[data]\\ndirectory = "published"\\n', folder="/study")
    >>> with_absolute_paths(config).data.directory
    '/study/published'
    """
    full: dict[str, Any] = {}
    for title, names in (
        ("data", ("private", "public", "test", "directory")),
        ("personal", ("file",)),
        ("cluster", ("folder", "ca", "certificate", "key")),
    ):
        section = getattr(config, title)
        written = {name: getattr(section, name) for name in names if "://" not in getattr(section, name)}
        places = {name: config.data.path(place) for name, place in written.items()}
        found = {name: str(place.absolute()) for name, place in places.items() if place is not None}
        full[title] = replace(section, **found)
    return replace(config, **full)
