"""From settings to a commented file, and to plain values."""

import dataclasses
import math
import textwrap
from collections.abc import Mapping
from typing import Any

from .fields import options_of
from .sections import SECTIONS, RunConfig
from .values import toml_value

_WIDTH = 100
_HEADING = """\
Settings of a run of tellers: from private data to a student, with what it cost on the books.
    tellers run {name}
Every option is here with its default; lines that begin with # are comments."""


def write_config(config: RunConfig, *, name: str = "tellers.toml") -> str:
    """Return settings as a commented TOML file that `parse_config` reads back to the same settings.

    >>> from tellers.config import parse_config
    >>> config = RunConfig(seed=8)
    >>> parse_config(write_config(config)) == config
    True
    """
    sections = {title: getattr(config, title) for title in _titles(config)}
    return write_sections(
        [_comment(_HEADING.format(name=name)), _section(RunConfig, config)], sections,
        for_labels=bool(config.labels.names),
    )  # fmt: skip


def _titles(config: RunConfig) -> list[str]:
    """Return the sections that say something: without labels there is nothing to be said of them."""
    return [title for title in SECTIONS if title != "labels" or config.labels.names]


def write_sections(parts: list[str], sections: Mapping[str, Any], *, for_labels: bool = False) -> str:
    """Return the parts of a file and, below them, each section with the words of its options.

    >>> print(write_sections(["# What is shown."], {"report": SECTIONS["report"]()}))
    # What is shown.
    <BLANKLINE>
    # What the report shows.
    [report]
    # Show private numbers too, ...
    private = false
    <BLANKLINE>
    """
    written = list(parts)
    for title, section in sections.items():
        summary = (type(section).__doc__ or "").partition("\n")[0]
        written.append(f"{_comment(summary)}\n[{title}]\n{_section(type(section), section, for_labels)}")
    return "\n\n".join(part.rstrip("\n") for part in written) + "\n"


def config_as_dict(config: RunConfig) -> dict[str, Any]:
    """Return settings as plain values for JSON, without the mechanism's parameters that do not apply.

    >>> config_as_dict(RunConfig())["queries"]["order"]
    'shuffled'
    """
    result: dict[str, Any] = {"seed": config.seed}
    for title in _titles(config):
        section = getattr(config, title)
        values = {option.name: getattr(section, option.name) for option in options_of(SECTIONS[title])}
        result[title] = {name: _plain(value) for name, value in values.items() if value is not None}
    return result


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Return the same settings with every path in full, for a copy that is kept in another folder.

    >>> from tellers.config import parse_config
    >>> config = parse_config('[data]\\ndirectory = "published"\\n', folder="/study")
    >>> with_absolute_paths(config).data.directory
    '/study/published'
    """
    data = config.data
    paths = {name: getattr(data, f"{name}_path") for name in ("private", "public", "test", "directory")}
    full: dict[str, Any] = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
    consent, personal = data.path(config.personal.file), config.personal
    if consent is not None:
        personal = dataclasses.replace(personal, file=str(consent.absolute()))
    cluster = config.cluster
    named = {name: getattr(cluster, name) for name in ("folder", "ca", "certificate", "key")}
    places = {name: data.path(place) for name, place in named.items() if "://" not in place}
    found: dict[str, Any] = {
        name: str(place.absolute()) for name, place in places.items() if place is not None
    }
    return dataclasses.replace(
        config, data=dataclasses.replace(data, **full), personal=personal,
        cluster=dataclasses.replace(cluster, **found),
    )  # fmt: skip


def default_words(option: "dataclasses.Field[Any]") -> str:
    """Return the default of an option as a file would write it, or "" where it has none.

    >>> [default_words(option) for option in options_of(SECTIONS["report"])]
    ['false']
    """
    if "shown" in option.metadata:
        return str(option.metadata["shown"])
    if option.default is None:
        return ""
    made = option.default_factory
    return toml_value(option.default if made is dataclasses.MISSING else made())


def _section(kind: type, section: Any, for_labels: bool = False) -> str:
    lines = []
    for option in options_of(kind):
        if option.metadata.get("for_labels") and not for_labels:
            continue
        value, usual = getattr(section, option.name), default_words(option)
        words = option.metadata["words"] + (f" (default: {usual})" if usual else "")
        # What does not apply is shown, but as a comment: a written file has no values that say nothing.
        shown = f"# {option.name} = {option.metadata.get('example')}" if value is None else ""
        lines.append(f"{_comment(words)}\n{shown or f'{option.name} = {toml_value(value)}'}\n")
    return "\n".join(lines)


def _comment(words: str) -> str:
    lines = [
        line
        for text in words.splitlines()
        for line in textwrap.wrap(text, _WIDTH - 2, drop_whitespace=True, break_on_hyphens=False)
    ]
    return "\n".join(f"# {line}" for line in lines)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    # JSON has no word for it, and a parameter may well be infinite.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
