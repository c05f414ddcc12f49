"""Settings files of runs: read with every mistake and its line, and written with comments."""

from dataclasses import replace
from typing import Any

from .schema import plain
from .sections import RunConfig

read_config = RunConfig.read
parse_config = RunConfig.parse
write_config = RunConfig.written


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
