"""Settings files: read with every mistake and its line, and written with comments."""

import dataclasses
import math
import textwrap
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ._checks import check_options, unknown_section
from ._document import Key, key_lines, parse_document, read_text
from ._fields import Problem, complain, options_of, toml_value
from ._rules import rules
from .sections import SECTIONS, RunConfig

_WIDTH = 100
_HEADING = """\
Settings of a run of tellers: from private data to a student, with what it cost on the books.
    tellers run {name}
Every option is here with its default; lines that begin with # are comments."""


def write_config(config: RunConfig, *, name: str = "tellers.toml") -> str:
    """Return settings as a commented TOML file that `parse_config` reads back to the same settings.

    >>> from tellers.runs import parse_config
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
    """Return the parts of a file and, below them, each section with the words of its options."""
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

    >>> from tellers.runs import parse_config
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
    """Return the default of an option as a file would write it, or "" where it has none."""
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


# --- From a file to settings, or to every mistake in it with its line. ---


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
    place = Path(path)
    return parse_config(read_text(place), source=str(place), folder=place.resolve().parent)


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
    document = parse_document(text, source)
    lines = key_lines(text)
    right, problems = _sort_out(document)
    bad = {problem.key[:2] for problem in problems}
    # With a default in place of what is wrong: rules that look at one of those would speak of the default.
    problems += [
        problem for problem in rules(_assumed(right)) if bad.isdisjoint(_parts(problem.key, *problem.related))
    ]
    complain(problems, source, lines)
    sections = {name: SECTIONS[name](**values) for name, values in right.items() if name in SECTIONS}
    config = RunConfig(**({"seed": right["seed"]} if "seed" in right else {}), **sections)
    data = dataclasses.replace(config.data, folder="" if folder is None else str(Path(folder).absolute()))
    return dataclasses.replace(config, data=data, source=source, lines=lines)


# Options that are gone, the value by which they said nothing, and why another one is refused.
_GONE = {
    ("partition", "balance"): (
        "persons",
        "This option is gone: where every teacher gets equally many rows, a person with one row more moves "
        "other persons, and no epsilon covers that. Drop it.",
    )
}


def _sort_out(document: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return what is right of a document, by section and option, and what is wrong with the rest."""
    right: dict[str, Any] = {}
    problems = []
    for name, value in document.items():
        if name == "seed":
            seed, found = check_options(RunConfig, {name: value}, ())
            right |= seed
        elif name not in SECTIONS:
            found = [unknown_section(name, value)]
        elif not isinstance(value, dict):
            got = "several" if isinstance(value, list) else "a value"
            found = [Problem((name,), f"Expected one section [{name}], got {got}. Write [{name}] once.")]
        else:
            gone = {option: _GONE[name, option] for option in value if (name, option) in _GONE}
            rest = {option: said for option, said in value.items() if option not in gone}
            right[name], found = check_options(SECTIONS[name], rest, (name,))
            found += [
                Problem((name, option), why)
                for option, (empty, why) in gone.items()
                if value[option] != empty
            ]
        problems += found
    return right, problems


def _assumed(right: dict[str, Any]) -> SimpleNamespace:
    """Return settings with defaults where nothing, or nothing right, was said."""
    whole = RunConfig()
    sections: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        # A mechanism that is named has the parameters it was given, not those of the default one.
        sections[name] = kind(**right[name]) if name in right else getattr(whole, name)
    return SimpleNamespace(seed=right.get("seed", whole.seed), **sections)


def _parts(*keys: Key) -> set[Key]:
    return {part for key in keys for part in (key[:1], key[:2])}
