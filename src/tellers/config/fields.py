"""An option of a settings file: a field of a record that carries its words and its limits."""

from dataclasses import Field, field, fields
from typing import Any


def option(default: Any, words: str, **limits: Any) -> Any:
    """Return a field of a section: its default, the words above it in a file, and its limits.

    Limits are `choices`, `least`, `most`, `above`, `below`, `non_empty` and `model`; `form` says "numbers"
    for one or a list of them, "whole" for a list of whole ones, "groups" for lists of names. `shown` stands
    for the default in words, `example` is what a written file shows of an option that is left out; options
    `for_labels` are left out of a file without labels.

    >>> option(7, "A number.", least=0).metadata["least"]
    0
    """
    made = {"default_factory": default} if callable(default) else {"default": default}
    return field(**made, metadata={"words": words, **limits})


class Section:
    """A record of options, which are all checked when it is made.

    >>> from tellers.config import ReportConfig
    >>> ReportConfig(private="yes")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: report.private: Expected true or false, got "yes". Write it without quotes.
    """

    def __post_init__(self) -> None:
        from .checks import freeze

        freeze(self)


def options_of(section: type) -> "list[Field[Any]]":
    """Return the fields of a section that are options of the file.

    >>> from tellers.config import ReportConfig
    >>> [option.name for option in options_of(ReportConfig)]
    ['private']
    """
    return [option for option in fields(section) if "words" in option.metadata]
