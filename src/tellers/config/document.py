"""The text of a settings file and what TOML makes of it, with mistakes in plain words."""

import re
import tomllib
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..file_sizes import MOST_SETTINGS, TooLarge, read_bounded
from .lines import deepest_key

_MOST_NAMES = 32
_LONG = "Settings are a few lines: is it another file? Data and labels go into files of their own."


def read_text(place: Path, *, advice: str = "Write one with: tellers init") -> str:
    """Return the text of a settings file, or say why there is none.

    >>> read_text(Path("nowhere.toml"))
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: Expected a settings file, found nothing at nowhere.toml. Write one with: ...
    """
    if place.is_dir():
        raise ConfigError(f"Expected a settings file, got the folder {place}. {advice}")
    try:
        content = read_bounded(place, most=MOST_SETTINGS, advice=_LONG)
    except TooLarge as error:
        raise ConfigError(str(error)) from None
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


def parse_document(text: str, source: str) -> dict[str, Any]:
    r"""Return what a TOML text holds, or the line at which it stops being TOML.

    >>> parse_document("[budget]\nepsilon = 2\n", "run.toml")
    {'budget': {'epsilon': 2}}
    """
    if len(text) > MOST_SETTINGS:
        raise ConfigError(f"{source}: Expected at most {MOST_SETTINGS} characters, got {len(text)}. {_LONG}")
    if deepest_key(text) > _MOST_NAMES:
        raise ConfigError(f"{source}: Expected keys of at most {_MOST_NAMES} names, got a longer one.")
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
