"""Settings files of runs: what they begin with, reading with every mistake and its line, writing."""

from dataclasses import fields, replace
from typing import Any

from ...data._records import NAMED
from ...mechanisms._fields import USUAL_SILENCE
from .schema import meant, plain
from .sections import RunConfig

read_config = RunConfig.read
parse_config = RunConfig.parse
write_config = RunConfig.written


def default_config(data: str = "digits") -> RunConfig:
    """Return settings to begin with for a named data set; for "files" names stand in for yours.

    A mechanism that can stay silent is told to expect a usual share of it.

    >>> default_config().partition.n_teachers, default_config("mnist").teachers.model
    (60, 'cnn')
    >>> default_config("files").data.private
    'private.csv'
    >>> default_config().mechanism.expected_silence
    0.5
    """
    if data not in NAMED:
        raise ValueError(f"Expected one of {', '.join(NAMED)}, got {data!r}.{meant(data, NAMED)}")
    kinds, begun = RunConfig.sections(), NAMED[data].begun
    said = {**begun, "data": {"name": data, **begun.get("data", {})}}
    config = RunConfig(**{title: kinds[title](**values) for title, values in said.items()})
    mechanism = config.mechanism
    if "expected_silence" not in {field.name for field in fields(mechanism.kind)}:
        return config
    given = {"expected_silence": USUAL_SILENCE, **mechanism.given}
    return replace(config, mechanism=type(mechanism)(name=mechanism.name, given=given))


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
