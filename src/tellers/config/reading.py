"""From a file to settings, or to every mistake in it with its line."""

import dataclasses
import re
import tomllib
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..errors import ConfigError
from .checks import check_options, unknown_section
from .lines import Key, key_lines
from .problems import Problem, complain
from .rules import rules
from .sections import SECTIONS, RunConfig


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
    return parse_config(_text(place), source=str(place), folder=place.resolve().parent)


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
    document = _parse(text, source)
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


def _text(place: Path) -> str:
    advice = "Write one with: tellers init"
    if place.is_dir():
        raise ConfigError(f"Expected a settings file, got the folder {place}. {advice}")
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"Expected a settings file, found nothing at {place}. {advice}") from None
    except OSError as error:
        raise ConfigError(f"Expected a readable file at {place}, got: {error.strerror or error}.") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{place}:{line}: Expected text in UTF-8, got other bytes. Save the file as UTF-8."
        ) from None


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(
            r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error), re.DOTALL
        )
        reason, line = (found[1], found[2]) if found else (str(error), None)
        number = int(line) if line else max(1, len(text.splitlines()))
        raise ConfigError(f"{source}:{number}: Expected TOML, got: {_plainly(reason)}") from None
    except RecursionError:
        raise ConfigError(f"{source}:1: Expected TOML, got brackets nested too deeply.") from None


def _plainly(reason: str) -> str:
    if re.search(r"overwrite|twice|[Dd]uplicate|redefine|already", reason):
        return f"{reason}. A key or a section stands here for the second time: keep one."
    return f"{reason}. Text needs quotes, lists brackets, true and false small letters."


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
            right[name], found = check_options(SECTIONS[name], value, (name,))
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
