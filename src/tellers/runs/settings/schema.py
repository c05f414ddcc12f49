"""The schema of settings files: options, sections and whole files, with everything that follows from them.

An option is declared once, as a field of a section: its type, bounds, default and meaning. From that come the
checks, messages with the line of a file, commented files, tables of the documentation, and a JSON schema.
"""

import copy
import dataclasses
import difflib
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
)

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, SkipJsonSchema
from pydantic_core import PydanticCustomError, PydanticUndefined

from ...errors import ConfigError
from ...mechanisms.base import Mechanism
from ._document import Key, key_lines, parse_document, read_text, toml_value

_WIDTH = 100


# --- What is wrong. ---


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the key it is about, the words, and other keys it depends on."""

    key: Key
    words: str
    related: tuple[Key, ...] = ()

    def line(self, lines: Mapping[Key, int]) -> int:
        """Return the line to look at: of the key, of what it depends on, or of the table it would be in."""
        tables = [key[:end] for key in (self.key, *self.related) for end in range(len(key) - 1, 0, -1)]
        return next((lines[key] for key in (self.key, *self.related, *tables) if key in lines), 1)

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.key))}: {self.words}"


def wrong(key: str | Key, words: str, *related: str | Key) -> Problem:
    """Return a problem of an option, written `section.option`, and the options that it depends on."""
    first, *others = (tuple(one.split(".")) if isinstance(one, str) else one for one in (key, *related))
    return Problem(first, words, tuple(others))


def only(key: str, condition: str, *related: str) -> Problem:
    """Return the problem of an option that says nothing where it stands."""
    return wrong(key, f"Expected it only with {condition}, got it without. Drop it.", *related)


def complain(problems: Iterable[Problem], source: str = "", lines: Mapping[Key, int] | None = None) -> None:
    """Raise one error for all problems there are, in the order of the file."""
    found = list(problems)
    if found and source:
        placed = sorted(((problem.line(lines or {}), problem) for problem in found), key=lambda p: p[0])
        raise ConfigError(f"{source}:{line}: {problem}" for line, problem in placed)
    if found:
        raise ConfigError(map(str, found))


RULE_WORDS = (
    "How the ledger holds the budget, fixed when it is begun. renyi: at one Rényi order. clock: more answers "
    "from the same budget, and the whole budget is stated; for mechanisms with a clock price, without groups."
)


def budget_rules(ledger: Any) -> Iterator[Problem]:
    """Return what a ledger that is named lacks of its budget."""
    for name, example in (("epsilon", "2.0"), ("delta", "1e-5")):
        if ledger.url and not getattr(ledger, name):
            words = f"Expected a number above 0 with url, got 0. For example: {name} = {example}"
            yield wrong(f"ledger.{name}", words, "ledger.url")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the words for a name that is none of the known ones."""
    names = list(known)
    expected = f"one of {', '.join(names)}" if names else "none"
    return f"Unknown {what}. Expected {expected}.{meant(name, names)}"


def meant(name: str, known: Iterable[str]) -> str:
    """Return a guess at what was meant by a name, as one more sentence, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


# --- Types of options beyond the plain ones. ---


def refuse(words: str) -> PydanticCustomError:
    """Return the error of a check of one's own, for a type of options."""
    return PydanticCustomError("told", "{words}", {"words": words})


def _some_text(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise refuse('Expected some text, got "".')
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise refuse(f'Expected a list of names such as ["no", "yes"], got {toml_value(value)}.')
    names: list[str] = []
    for entry in value:
        if isinstance(entry, bool) or not isinstance(entry, (str, int)) or not str(entry).strip():
            raise refuse(f"Expected names or whole numbers, got {toml_value(entry)}. Write it in quotes.")
        if str(entry) in names:
            raise refuse(f"Expected different names, got {toml_value(str(entry))} twice.")
        names.append(str(entry))
    return tuple(names)


def _name_lists(value: Any) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(g, (list, tuple)) and g for g in value):
        words = f'Expected lists of names such as [["rain", "wind"], ["snow"]], got {toml_value(value)}.'
        raise refuse(words)
    return tuple(map(_names, value))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refuse(f"Expected a table such as {{max_iter = 500}}, got {toml_value(value)}.")
    _require_plain(value)
    return copy.deepcopy(value)


def _require_plain(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            if not isinstance(name, str):
                raise refuse(f"Expected names as keys, got {name!r}.")
            _require_plain(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _require_plain(entry)
    elif not isinstance(value, (str, bool, int, float)) or value != value:
        raise refuse(f"Expected text, numbers, true or false, lists and tables, got {toml_value(value)}.")


Text = Annotated[str, BeforeValidator(_some_text), Field(validate_default=True)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names, json_schema_input_type=list[str | int])]
NameLists = Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_name_lists)]
Table = Annotated[dict[str, Any], BeforeValidator(_table)]

AS_LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""Takes the lists of a file for tuples."""
ONE_OR_MORE = BeforeValidator(
    lambda value: tuple(value) if isinstance(value, (list, tuple)) else (value,),
    json_schema_input_type=float | list[float],
)
"""Takes one value for a list of it."""


# --- Options and the sections they stand in. ---


CHECKS = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def option(default: Any, words: str, *, shown: str = "", **limits: Any) -> Any:
    """Return a field of a section: its default, what it means, and its limits as `pydantic.Field` takes them.

    `shown` stands for the default in words; `examples` show an option that is left out.
    """
    made = {"default_factory": default} if callable(default) else {"default": default}
    more: Any = {"shown": shown} if shown else None
    return Field(**made, description=words, json_schema_extra=more, **limits)


class Explaining(type):
    """The type of sections: what is wrong with a new one is told in our words, all of it at once."""

    def __call__(cls, *given: Any, **values: Any) -> Any:
        try:
            return super().__call__(*given, **values)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                if "error" in one.get("ctx", {}):  # the sections of a file do not go together
                    raise one["ctx"]["error"] from None
            complain(_problems(cls, error, values))
            raise


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Options(metaclass=Explaining):
    """A section of a settings file: a frozen record of options, checked when it is made."""

    title: ClassVar[str] = ""
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
        __pydantic_fields__: ClassVar[dict[str, FieldInfo]]

    def __init_subclass__(cls, *, title: str = "") -> None:
        super().__init_subclass__()
        cls.title = title
        checked_dataclass(cls, frozen=True, kw_only=True, config=CHECKS)

    @classmethod
    def declared(cls) -> dict[str, FieldInfo]:
        """Return the options by name, with their types, limits and meaning."""
        return {name: info for name, info in cls.__pydantic_fields__.items() if info.description}

    def told(self) -> dict[str, FieldInfo]:
        """Return the options that a written file shows."""
        return self.declared()

    def changed(self) -> list[str]:
        """Return the options that do not have their default."""
        usual = type(self)()
        return [name for name in self.declared() if getattr(self, name) != getattr(usual, name)]

    def _rules(self, _whole: Any) -> Iterator[Problem]:
        """Return what does not go together, in this section or with others of the file."""
        yield from ()


def _problems(kind: Any, error: ValidationError, values: Mapping[str, Any], key: Key = ()) -> list[Problem]:
    """Return what is wrong with the values of a section, each option once."""
    table = key or ((kind.title,) if kind.title else ())
    found: dict[Key, Problem] = {}
    for one in error.errors(include_url=False):
        name = str(one["loc"][0])
        info = {**getattr(kind, "__pydantic_fields__", {}), **kind.declared()}.get(name)
        if one["type"] == "told":
            words = one["ctx"]["words"]
        elif info is None:
            words = unknown("option", name, kind.declared())
        elif one["type"] == "missing":
            words = f"Expected a {name} here, got none."
        else:
            words = _words(one["type"], info, values.get(name, one["input"]))
        found.setdefault((*table, name), Problem((*table, name), words))
    return list(found.values())


_PLAIN: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
}
_LISTS = {float: "a number, or a list of numbers", int: "a list of whole numbers"}
_BOUNDS = {"ge": "at least", "le": "at most", "gt": "above", "lt": "below"}


def _words(error: str, info: FieldInfo, value: Any) -> str:
    """Return what was expected of an option, what came, and what to do."""
    kind, got = _without_none(info.annotation), toml_value(value)
    if get_origin(kind) is Literal and isinstance(value, str):
        choices = get_args(kind)
        return f"Expected one of {', '.join(map(toml_value, choices))}, got {got}.{meant(value, choices)}"
    if get_origin(kind) is tuple:
        number, limits = get_args(get_args(kind)[0])
        wanted = "" if error == "too_short" else f", {_bounds(limits)}"
        return f"Expected {_LISTS[number]}{wanted}, got {got}."
    kind = str if get_origin(kind) is Literal else kind
    if kind not in _PLAIN:
        return f"Expected a {kind.__name__}, got {type(value).__name__}."
    if error.startswith(("greater_than", "less_than")):
        return f"Expected {_PLAIN[kind]} {_bounds(info)}, got {got}."
    return f"Expected {_PLAIN[kind]}, got {got}.{_advice(value, kind)}"


def _without_none(annotation: Any) -> Any:
    parts = get_args(annotation)
    kind = next(part for part in parts if part is not NoneType) if NoneType in parts else annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _bounds(info: FieldInfo) -> str:
    said = {name: getattr(limit, name) for limit in info.metadata for name in _BOUNDS if hasattr(limit, name)}
    return " and ".join(f"{words} {said[name]}" for name, words in _BOUNDS.items() if name in said)


def _advice(value: object, kind: type) -> str:
    if kind is not str and isinstance(value, str):
        return " Write it without quotes."
    if kind is int and isinstance(value, float) and value.is_integer():
        return f" Write {int(value)}."
    if kind is str and not isinstance(value, (dict, list, tuple)):
        return f" Write {toml_value(str(value))}."
    return ""


def _checked(kind: Any, values: Mapping[str, Any], key: Key) -> tuple[Any, list[Problem]]:
    """Return a section with what is right, or None where that makes none, and what is wrong with the rest."""
    known = kind.declared()
    problems = [wrong((*key, n), unknown("option", n, known)) for n in values if n not in known]
    right = {name: value for name, value in values.items() if name in known}
    try:
        return type.__call__(kind, **right), problems
    except ValidationError as error:
        found = _problems(kind, error, right, key)
    bad = [problem.key[-1] for problem in found]
    try:
        made = kind(**{name: value for name, value in right.items() if name not in bad})
    except ConfigError:
        made = None
    return made, problems + found


def _checked_each(kind: Any, value: Any) -> tuple[Any, list[Problem]]:
    """Return the sections of an array of tables, or None where one of them makes none."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        words = f"Expected a section [[{kind.title}]] for each of them, got something else."
        return None, [wrong((kind.title,), words)]
    pairs = [_checked(kind, entry, (kind.title, number)) for number, entry in enumerate(value)]
    made = tuple(section for section, _ in pairs)
    return None if None in made else made, [problem for _, found in pairs for problem in found]


# --- Whole files. ---


class Settings(Options):
    """All settings of a file, checked one by one and against each other.

    `folder` is where relative paths start. `source` is the file they were read from and `lines` the line of
    each key in it, all empty for settings made in Python.
    """

    folder: Annotated[str, SkipJsonSchema()] = dataclasses.field(default="", repr=False, compare=False)
    source: Annotated[str, SkipJsonSchema()] = dataclasses.field(default="", repr=False, compare=False)
    lines: Annotated[dict[Key, int], SkipJsonSchema()] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    # What the file is usually called, what it begins with, and how one is written.
    file: ClassVar[str] = "tellers.toml"
    heading: ClassVar[str] = ""
    advice: ClassVar[str] = "Write one with: tellers init"
    # What is said where a section is missing that every file has, and written where one may be left out.
    needed: ClassVar[Mapping[str, str]] = {}
    left_out: ClassVar[Mapping[str, str]] = {}
    # Options that are gone: the value by which they said nothing, and why another one is refused.
    gone: ClassVar[Mapping[Key, tuple[Any, str]]] = {}

    def __post_init__(self) -> None:
        complain(self.problems(), self.source, self.lines)

    @classmethod
    def sections(cls) -> dict[str, Any]:
        """Return the classes of the sections, by the titles they have in the file."""
        annotations = [info.annotation for info in cls.__pydantic_fields__.values()]
        kinds = [kind for one in annotations for kind in (one, *get_args(one))]
        sections: list[Any] = [kind for kind in kinds if isinstance(kind, Explaining)]
        return {section.title: section for section in sections}

    def said(self) -> dict[str, Any]:
        """Return the sections that say something, by their titles."""
        every = {title: getattr(self, title, None) for title in self.sections()}
        return {title: section for title, section in every.items() if section is not None}

    def problems(self) -> Iterator[Problem]:
        """Return what does not go together."""
        for title in self.sections():
            section = getattr(self, title, None)
            yield from () if section is None else section._rules(self)
        yield from self._rules(self)

    def expect(
        self, key: str, wanted: Iterable[Any], when: str, *related: str, advice: str = ""
    ) -> Iterator[Problem]:
        """Return the problem of an option that has none of the wanted values."""
        section, name = key.split(".")
        value, choices = getattr(getattr(self, section), name), list(wanted)
        if value not in choices:
            listed = " or ".join(map(toml_value, choices))
            words = f"Expected {listed} {when}, got {toml_value(value)}. {advice}".rstrip()
            yield wrong(key, words, *related)

    def refuse(self, key: str, words: str) -> NoReturn:
        """Raise what turned out to be wrong with an option, with its line."""
        complain([wrong(key, words)], self.source, self.lines)
        raise AssertionError("one thing is wrong, and was said")

    def build_mechanism(self) -> Mechanism:
        """Return the mechanism that the section names."""
        mechanism: Mechanism = self.said()["mechanism"].build()
        return mechanism

    def _unfit_mechanism(self) -> str:
        """Return why the mechanism cannot be used here, whatever its parameters, or nothing if it can."""
        return ""

    def _mechanism_refusals(self) -> Iterator[Problem]:
        """Return what the mechanism itself refuses, once its parameters are all there."""
        try:
            self.build_mechanism()
        except ValueError as error:
            yield self.said()["mechanism"]._refusal(error)

    def path(self, text: str) -> Path:
        """Return a path of the file, from where relative ones start."""
        return Path(self.folder) / text

    def place(self, url: str) -> str:
        """Return a database's address as it is, or the path of a file in full."""
        return url if "://" in url else str(self.path(url))

    def where(self, *key: str) -> str:
        """Return where an option stands, for messages: file and line, or its name."""
        for end in range(len(key), 0, -1):
            if key[:end] in self.lines:
                return f"{self.source}:{self.lines[key[:end]]}"
        return ".".join(key)

    @classmethod
    def read(cls, path: str | PathLike[str], *, changes: Iterable[str] = ()) -> Self:
        """Read settings from a TOML file; paths in it are relative to its folder.

        What is left out has its default, except the parameters of a mechanism that is named. `changes` take
        the place of what the file says, each as `section.option=value`. All mistakes come as one error, one
        line each, beginning with the file and the line.

        >>> from tellers.runs import read_config
        >>> read_config("nowhere.toml")
        Traceback (most recent call last):
            ...
        tellers.errors.ConfigError: Expected a settings file, found nothing at nowhere.toml. Write one ...
        """
        place = Path(path)
        text = read_text(place, advice=cls.advice.format(name=place.name))
        return cls.parse(text, source=str(place), folder=place.resolve().parent, changes=changes)

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        source: str = "settings",
        folder: str | PathLike[str] | None = None,
        changes: Iterable[str] = (),
    ) -> Self:
        r"""Return the settings that a TOML text holds; `source` names it in errors, paths start at `folder`.

        >>> from tellers.runs import parse_config
        >>> parse_config("seed = 8\n", changes=["budget.epsilon=2"]).budget.epsilon
        2.0
        >>> parse_config("seed = 8\n\n[budget]\nepsilom = true\ndelta = 2\n")
        Traceback (most recent call last):
            ...
        tellers.errors.ConfigError: settings:4: budget.epsilom: Unknown option. ... Did you mean epsilon?
        settings:5: budget.delta: Expected a number above 0 and below 1, got 2.
        """
        document, lines = parse_document(text, source), key_lines(text)
        for change in changes:
            lines.pop(_apply(change, document), None)
        made, problems = cls._sorted_out(document)
        bad = {problem.key[:2] for problem in problems}
        # Defaults stand in for what is wrong: rules that look at one of those would speak of the default.
        for problem in cls._assumed_problems(made):
            parts = {part for key in (problem.key, *problem.related) for part in (key[:1], key[:2])}
            problems += [problem] if bad.isdisjoint(parts) else []
        complain(problems, source, lines)
        place = str(Path(folder).absolute()) if folder else ""
        return cls(**made, folder=place, source=source, lines=lines)

    @classmethod
    def _sorted_out(cls, document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """Return what is right of a document, by field, and what is wrong with the rest."""
        sections, made, problems = cls.sections(), dict[str, Any](), list[Problem]()
        for name, value in document.items():
            if name in cls.declared():
                right, found = _checked(cls, {name: value}, ())
                made[name] = getattr(right, name)
            elif name not in sections:
                found = [cls._unknown(name, value)]
            elif f"{name}s" in cls.__pydantic_fields__:
                made[f"{name}s"], found = _checked_each(sections[name], value)
            elif not isinstance(value, dict):
                got = "several" if isinstance(value, list) else "a value"
                found = [wrong((name,), f"Expected one section [{name}], got {got}. Write [{name}] once.")]
            else:
                gone = [one for one in value if (name, one) in cls.gone]
                rest = {one: said for one, said in value.items() if one not in gone}
                made[name], found = _checked(sections[name], rest, (name,))
                for one in gone:
                    empty, why = cls.gone[name, one]
                    found += [wrong((name, one), why)] if value[one] != empty else []
            problems += found
        problems += [wrong((name,), words) for name, words in cls.needed.items() if name not in document]
        return made, problems

    @classmethod
    def _unknown(cls, name: str, value: object) -> Problem:
        """Return what is wrong with a name at the top of a file that is no section and no option."""
        sections, beside = cls.sections(), list(cls.declared())
        homes = [title for title, kind in sections.items() if name in kind.declared()]
        if homes and not isinstance(value, dict):
            where = " or ".join(f"[{title}]" for title in homes)
            words = f"Expected {name} inside a section, got it above all of them. Move it below {where}."
            return wrong((name,), words)
        others = "".join(f" or {other}" for other in beside)
        words = f"Expected a section ({', '.join(sections)}){others}, got {name}."
        return wrong((name,), words + meant(name, [*sections, *beside]))

    @classmethod
    def _assumed_problems(cls, made: Mapping[str, Any]) -> list[Problem]:
        """Return what does not go together, with defaults where nothing, or nothing right, was said."""
        whole = object.__new__(cls)
        for name, info in cls.__pydantic_fields__.items():
            value = made.get(name, info.get_default(call_default_factory=True))
            if value is PydanticUndefined or (name in made and value is None):
                return []  # a section without which nothing can be said of the others
            object.__setattr__(whole, name, value)
        return list(whole.problems())

    def written(self, *, name: str = "") -> str:
        """Return a commented TOML file that reads back to the same settings; `name` is what it is called.

        >>> from tellers.runs import RunConfig, parse_config, write_config
        >>> parse_config(write_config(RunConfig(seed=8))) == RunConfig(seed=8)
        True
        """
        blocks = [comment(self.heading.format(name=name or self.file))]
        blocks += [_lines(self)] if self.declared() else []
        said = self.said()
        for title in self.sections():
            if title in said:
                summary = (type(said[title]).__doc__ or "").partition("\n")[0]
                blocks.append(f"{comment(summary)}\n[{title}]\n{_lines(said[title])}")
            elif title in self.left_out:
                blocks.append(comment(self.left_out[title]))
        return "\n\n".join(blocks) + "\n"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the file, by which editors complete and check it."""
        schema = TypeAdapter(cls).json_schema()
        named = {f"{title}s": title for title in cls.sections()}  # of an array of tables
        schema["properties"] = {named.get(name, name): one for name, one in schema["properties"].items()}
        for section in schema["$defs"].values():
            for one in section["properties"].values():
                if one.pop("shown", ""):
                    del one["default"]
        return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def _apply(change: str, document: dict[str, Any]) -> Key:
    """Put an option that was written `section.option=value` into a document, and return its key.

    Text needs no quotes.
    """
    key, _, value = change.partition("=")
    path = key.strip().split(".")
    if not value or not all(path):
        raise ConfigError(f"Expected SECTION.OPTION=VALUE, got {change}.")
    try:
        said = parse_document(f"value = {value}", change)["value"]
    except ConfigError:
        said = value.strip()
    for name in path[:-1]:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise ConfigError(f"Expected an option of a section, got {change}.")
    document[path[-1]] = said
    return tuple(path)


# --- Options as a person reads them. ---


def default_words(info: FieldInfo) -> str:
    """Return the default of an option as a file would write it, or "" where it has none."""
    if isinstance(info.json_schema_extra, dict):
        return str(info.json_schema_extra["shown"])
    usual = info.get_default(call_default_factory=True)
    return "" if info.is_required() or usual is None else toml_value(usual)


def _lines(section: Any) -> str:
    """Return the options of a section, each below its meaning."""
    lines = []
    for name, info in section.told().items():
        value, usual = getattr(section, name), default_words(info)
        words = f"{info.description} (default: {usual})" if usual else str(info.description)
        # What does not apply is shown, but as a comment: a written file has no values that say nothing.
        said = f"# {name} = {toml_value((info.examples or [None])[0])}" if value is None else ""
        lines.append(f"{comment(words)}\n{said or f'{name} = {toml_value(value)}'}")
    return "\n\n".join(lines)


def comment(words: str) -> str:
    """Return words as comment lines of a file."""
    wrapped = (textwrap.wrap(line, _WIDTH - 2, break_on_hyphens=False) for line in words.splitlines())
    return "\n".join(f"# {line}" for lines in wrapped for line in lines)


def plain(value: Any) -> Any:
    """Return a value of an option for JSON."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    # JSON has no word for it, and a parameter may well be infinite.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
