"""From a file to settings, or to every mistake in it with its line."""

import dataclasses
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .checks import check_options, unknown_section
from .document import parse_document, read_text
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
