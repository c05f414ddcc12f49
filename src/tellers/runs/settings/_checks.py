"""Checks of single options: unknown names, wrong types, values past their limits."""

import copy
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field
from typing import Any

from ...errors import ConfigError
from .._catalogue import MODELS, model_names
from ._document import Key
from ._fields import Problem, complain, options_of, toml_value
from .sections import SECTIONS

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    tuple: 'a list of names such as ["no", "yes"]',
    dict: "a table such as {max_iter = 500}",
}


def freeze(section: Any, *, sections: Mapping[str, type] = SECTIONS) -> None:
    """Check a section's options one by one and store them in their own types."""
    name = next(name for name, kind in sections.items() if kind is type(section))
    values = {option.name: getattr(section, option.name) for option in options_of(type(section))}
    checked, problems = check_options(type(section), values, (name,))
    complain(problems)
    for option, value in checked.items():
        object.__setattr__(section, option, value)


def check_options(
    section: type, values: Mapping[str, Any], table: Key
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the options that are right, in their own types, and what is wrong with the others."""
    known = {option.name: option for option in options_of(section)}
    right: dict[str, Any] = {}
    problems = []
    for name, value in values.items():
        key = (*table, name)
        if name not in known:
            problems.append(Problem(key, unknown("option", name, known)))
            continue
        try:
            right[name] = _checked(value, known[name].type, known[name])
        except ConfigError as error:
            problems.append(Problem(key, str(error)))
    return right, problems


def unknown_section(
    name: str, value: object, *, sections: Mapping[str, type] = SECTIONS, beside: Iterable[str] = ("seed",)
) -> Problem:
    """Return what is wrong with a name at the top of a file that is neither a section nor beside them."""
    if name not in sections and not isinstance(value, dict):
        homes = [title for title, kind in sections.items() if name in [o.name for o in options_of(kind)]]
        if homes:
            where = " or ".join(f"[{title}]" for title in homes)
            return Problem(
                (name,), f"Expected {name} inside a section, got it above all of them. Move it below {where}."
            )
    others = "".join(f" or {other}" for other in beside)
    words = f"Expected a section ({', '.join(sections)}){others}, got {name}."
    return Problem((name,), words + meant(name, [*sections, *beside]))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the words for a name that is none of the known ones."""
    names = list(known)
    expected = f"one of {', '.join(names)}" if names else "none"
    return f"Unknown {what}. Expected {expected}.{meant(name, names)}"


def meant(name: str, known: Iterable[str]) -> str:
    """Return a guess at what was meant by a name, as one more sentence, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _checked(value: Any, kind: Any, option: "Field[Any]") -> Any:
    """Return the value in the type of its option, or raise what is wrong with it."""
    limits = option.metadata
    if value is None and option.default is None:
        return None
    if "form" in limits:
        return _FORMS[limits["form"]](value, limits)
    base = _base(kind)
    if not _fits(value, base):
        raise ConfigError(f"Expected {_TYPES[base]}, got {toml_value(value)}.{_advice(value, base, limits)}")
    if base is tuple:
        return _names(value)
    if base is dict:
        _require_plain(value)
        return copy.deepcopy(dict(value))
    choices = limits.get("choices")
    if choices and value not in choices:
        wanted = ", ".join(map(toml_value, choices))
        raise ConfigError(f"Expected one of {wanted}, got {toml_value(value)}.{meant(value, choices)}")
    if limits.get("non_empty") and not value.strip():
        raise ConfigError('Expected some text, got "".')
    if limits.get("model") and not _PLACE.fullmatch(value) and value not in model_names():
        raise ConfigError(
            f"Expected one of {', '.join(MODELS)} (those of scikit-learn also as scaled_...) or "
            f"package.module:Name, got {toml_value(value)}.{meant(value, model_names())}"
        )
    bounds = [(word, limits[name]) for name, word in _BOUNDS.items() if name in limits]
    if base in (int, float) and not all(_WITHIN[word](value, bound) for word, bound in bounds):
        wanted = " and ".join(f"{word} {bound}" for word, bound in bounds)
        raise ConfigError(f"Expected {_TYPES[base]} {wanted}, got {toml_value(value)}.")
    return float(value) if base is float else value


def _number_list(value: Any, limits: Mapping[str, Any]) -> tuple[float, ...]:
    """Return one number, or a list of them, as a list."""
    found = value if isinstance(value, (list, tuple)) else (value,)
    bounds = [(word, limits[name]) for name, word in _BOUNDS.items() if name in limits]
    for number in found:
        if not _fits(number, float) or not all(_WITHIN[word](number, bound) for word, bound in bounds):
            wanted = " and ".join(f"{word} {bound}" for word, bound in bounds)
            raise ConfigError(f"Expected a number, or a list of numbers, {wanted}, got {toml_value(value)}.")
    if not found:
        raise ConfigError("Expected a number, or a list of numbers, got [].")
    return tuple(float(number) for number in found)


def _whole_list(value: Any, limits: Mapping[str, Any]) -> tuple[int, ...]:
    """Return a list of whole numbers, none where it is empty."""
    bounds = [(word, limits[name]) for name, word in _BOUNDS.items() if name in limits]
    right = isinstance(value, (list, tuple)) and all(_fits(number, int) for number in value)
    if not right or not all(_WITHIN[word](number, bound) for number in value for word, bound in bounds):
        wanted = " and ".join(f"{word} {bound}" for word, bound in bounds)
        raise ConfigError(f"Expected a list of whole numbers, {wanted}, got {toml_value(value)}.")
    return tuple(value)


def _name_lists(value: Any, _limits: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(g, (list, tuple)) and g for g in value):
        raise ConfigError(
            f'Expected lists of names such as [["rain", "wind"], ["snow"]], got {toml_value(value)}.'
        )
    return tuple(_names(group) for group in value)


_FORMS = {"numbers": _number_list, "whole": _whole_list, "groups": _name_lists}
_BOUNDS = {"least": "at least", "most": "at most", "above": "above", "below": "below"}
_WITHIN = {
    "at least": lambda value, bound: value >= bound,
    "at most": lambda value, bound: value <= bound,
    "above": lambda value, bound: value > bound,
    "below": lambda value, bound: value < bound,
}


def _base(kind: Any) -> type:
    """Return the plain type behind an annotation: float for `float | None`, str for a Literal."""
    for base in (bool, int, float, str):
        if kind is base or kind == base | None:
            return base
    origin = getattr(kind, "__origin__", kind)
    return {tuple: tuple, Mapping: dict}.get(origin, str)


def _fits(value: object, base: type) -> bool:
    if base is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if base is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, (tuple, list) if base is tuple else base)


def _advice(value: object, base: type, limits: Mapping[str, Any]) -> str:
    if base in (int, float, bool) and isinstance(value, str):
        return " Write it without quotes."
    if base is int and isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return f" Write {int(value)}."
    if base is str and not isinstance(value, (dict, list, tuple)):
        return f" Write {toml_value(str(value))}."
    return ""


def _names(value: Iterable[Any]) -> tuple[str, ...]:
    names = []
    for entry in value:
        if isinstance(entry, bool) or not isinstance(entry, (str, int)) or not str(entry).strip():
            raise ConfigError(
                f"Expected names or whole numbers, got {toml_value(entry)}. Write it in quotes."
            )
        names.append(str(entry))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"Expected different names, got {toml_value(twice[0])} twice.")
    return tuple(names)


def _require_plain(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            if not isinstance(name, str):
                raise ConfigError(f"Expected names as keys, got {name!r}.")
            _require_plain(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _require_plain(entry)
    elif not isinstance(value, (str, bool, int, float)) or value != value:
        raise ConfigError(
            f"Expected text, numbers, true or false, lists and tables, got {toml_value(value)}."
        )
