"""From a file to the settings of a service, or to every mistake in it with its line, and back."""

import dataclasses
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..config.checks import check_options, unknown_section
from ..config.document import parse_document, read_text
from ..config.lines import key_lines
from ..config.problems import Problem, complain
from ..config.writing import write_sections
from .settings import SECTIONS, ServiceSettings, service_rules

_HEADING = """\
# Settings of a service of tellers: labels for those who hold a key, each charged before it is drawn.
#     tellers serve --config {name}
# Every option is here with its default; lines that begin with # are comments."""
_RUNS_OWN = """\
# How votes become outcomes; without this section, the way of the run.
# [mechanism]
# name = "confident"
# sigma = 40.0
# threshold = 200.0
# sigma_threshold = 150.0"""


def read_settings(path: str | PathLike[str]) -> ServiceSettings:
    """Read the settings of a service from a TOML file; paths in it are relative to its folder.

    >>> read_settings("nowhere.toml")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: Expected a settings file, found nothing at nowhere.toml. Write one with: ...
    """
    place = Path(path)
    text = read_text(place, advice=f"Write one with: tellers serve --init {place.name}")
    return parse_settings(text, source=str(place), folder=str(place.resolve().parent))


def parse_settings(text: str, *, source: str = "settings", folder: str = "") -> ServiceSettings:
    r"""Return the settings that a TOML text holds; `source` names it in errors, paths start at `folder`.

    >>> parse_settings("[server]\nport = 9000\n").server.port
    9000
    >>> parse_settings("[server]\nprot = 9000\n")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: settings:2: server.prot: Unknown option. ... Did you mean port?
    """
    document, lines = parse_document(text, source), key_lines(text)
    right: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for name, value in document.items():
        if name not in SECTIONS:
            found = [unknown_section(name, value, sections=SECTIONS, beside=())]
        elif not isinstance(value, dict):
            found = [Problem((name,), f"Expected one section [{name}], got a value. Write [{name}] once.")]
        else:
            right[name], found = check_options(SECTIONS[name], value, (name,))
        problems += found
    bad = {problem.key[:2] for problem in problems}
    sections = {name: SECTIONS[name](**values) for name, values in right.items()}
    # With a default in place of what is wrong: rules that look at one of those would speak of the default.
    usual = {
        field.name: getattr(ServiceSettings(), field.name) for field in dataclasses.fields(ServiceSettings)
    }
    for problem in service_rules(SimpleNamespace(**{**usual, **sections})):
        looked_at = {part for key in (problem.key, *problem.related) for part in (key[:1], key[:2])}
        if bad.isdisjoint(looked_at):
            problems.append(problem)
    complain(problems, source, lines)
    return ServiceSettings(**sections, folder=folder, source=source, lines=lines)


def write_settings(settings: ServiceSettings, *, name: str = "service.toml") -> str:
    """Return settings as a commented TOML file that `parse_settings` reads back to the same settings.

    >>> parse_settings(write_settings(ServiceSettings())) == ServiceSettings()
    True
    """
    parts = [_HEADING.format(name=name)]
    if settings.mechanism is None:
        parts.append(_RUNS_OWN)
    sections = {title: getattr(settings, title) for title in SECTIONS}
    return write_sections(
        parts, {title: section for title, section in sections.items() if section is not None}
    )
