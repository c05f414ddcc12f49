"""One declaration of a mechanism: its name, its parameters with their bounds, and where it is found.

A mechanism is a frozen dataclass whose fields are made by `parameter` and whose class is named by `register`.
Settings files, command lines and the books read that declaration. `MECHANISMS` and `LABEL_MECHANISMS` map the
names that files and command lines use to classes, for one class per query and for many labels; code passes
objects. What releases counts has no name there: command lines price labels. `EVENTS` maps the names that
stored events hold, which are those of the classes and never change.

A package of a stranger is found by its entry point in the group `tellers.mechanisms`, named as the mechanism:

    [project.entry-points."tellers.mechanisms"]
    exponential = "their_package:Exponential"
"""

import dataclasses
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from importlib import import_module, metadata
from typing import Any, Literal, TypeVar, get_args

from ..errors import require_count, require_finite, require_positive

Answers = Literal["classes", "labels", "scores"]
_NUMBERS = {int, float, type(None)}
_LIMITS = ("above", "below", "least", "most", "choices", "form")
_ORDER = (
    "lnmax", "gnmax", "confident", "interactive", "tested", "histogram", "gaussian_sum", "labels.binary",
    "labels.tau", "labels.powerset", "labels.gnthreshold", "labels.adaptive",
)  # fmt: skip
GROUP = "tellers.mechanisms"
"""The group of entry points under which other packages offer mechanisms."""

K = TypeVar("K", bound=type)
_named: dict[str, type] = {}
_events: dict[str, type] = {}
_words: dict[type, str] = {}


def register(name: str = "", words: str = "") -> Callable[[K], K]:
    """Name a mechanism's class, for settings files and command lines; without a name, for stored events only.

    `words` say in half a sentence what it does.

    >>> from dataclasses import dataclass
    >>> from tellers.mechanisms import GNMax, mechanism_named
    >>> mechanism_named("gnmax") is GNMax
    True
    """

    def add(kind: K) -> K:
        for known, key in ((_named, name), (_events, kind.__name__)):
            other = known.get(key)
            if other is not None and _place(other) != _place(kind):
                mine, theirs = (".".join(_place(one)) for one in (kind, other))
                raise ValueError(f"Expected a name of its own for {mine}, got {key!r}, which {theirs} has.")
            if key:
                known[key] = kind
        _words[kind] = words
        return kind

    return add


def parameter(words: str, *, default: Any = MISSING, **declared: Any) -> Any:
    """Return a field of a mechanism: what it means, its bounds, and a value that makes sense.

    Bounds are `above`, `below`, `least`, `most` and `choices`; `example` is a value for 250 teachers, or 50
    with many labels. `form` is "numbers" for one number or a list of them and "groups" for lists of labels,
    which the mechanism itself checks. What `of_votes` is True for comes with the votes, and nobody sets it.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Quiet:
    ...     sigma: float = parameter("standard deviation of the noise", above=0, example=40.0)
    ...     def __post_init__(self):
    ...         check_parameters(self)
    >>> Quiet(sigma=3)
    Quiet(sigma=3.0)
    >>> Quiet(sigma=-1)
    Traceback (most recent call last):
        ...
    ValueError: Expected sigma > 0 and finite, got sigma=-1.
    """
    return dataclasses.field(default=default, metadata={"words": words, **declared})


def check_parameters(mechanism: Any) -> None:
    """Refuse fields out of their declared bounds, and store them as plain numbers, so that they can be kept.

    >>> from tellers import GNMax
    >>> GNMax(sigma=9)  # which calls this
    GNMax(sigma=9.0)
    """
    for field in declared_fields(mechanism):
        name, value, said = field.name, getattr(mechanism, field.name), field.metadata
        if "form" in said or (value is None and type(None) in get_args(_kind(field))):
            continue
        if "choices" in said:  # names
            if value not in said["choices"]:
                raise ValueError(f"Expected {name} to be one of {', '.join(said['choices'])}, got {value!r}.")
            continue
        kind = _without_none(_kind(field))
        if kind is int:
            require_count(said.get("least", 1), **{name: value})
        elif said.get("above") == 0:
            require_positive(**{name: value})
        else:
            require_finite(**{name: value})
        bounds = [said[bound] for bound in ("least", "most") if bound in said]
        if len(bounds) == 2 and not bounds[0] <= value <= bounds[1]:
            raise ValueError(f"Expected {name} in [{bounds[0]}, {bounds[1]}], got {value}.")
        object.__setattr__(mechanism, name, kind(value))


def repr_of(mechanism: Any) -> str:
    """Return a mechanism as Python would make it, without what was left out.

    >>> from tellers import ConfidentGNMax
    >>> repr_of(ConfidentGNMax(sigma=5.0, threshold=20.0, sigma_threshold=9.0))
    'ConfidentGNMax(sigma=5.0, threshold=20.0, sigma_threshold=9.0)'
    """
    given = {field.name: (getattr(mechanism, field.name), field.default) for field in fields(mechanism)}
    said = [f"{name}={value!r}" for name, (value, usual) in given.items() if not (value is None is usual)]
    return f"{type(mechanism).__name__}({', '.join(said)})"


def declared_fields(kind: Any) -> "list[Field[Any]]":
    """Return the fields of a mechanism, or of its class, that `parameter` made."""
    return [field for field in fields(kind) if "words" in field.metadata]


def number_parameters(event: str) -> set[str]:
    """Return the parameters that are numbers, of the mechanism whose class has this name; none if unknown."""
    kind = EVENTS.get(event)
    declared = declared_fields(kind) if kind is not None else []
    return {field.name for field in declared if set(get_args(_kind(field)) or [_kind(field)]) <= _NUMBERS}


# --- Looking mechanisms up. ---


def mechanism_named(name: str) -> type:
    """Return the class of a mechanism by the name that settings files and command lines use.

    >>> mechanism_named("lnmax")(gamma=0.05)
    LNMax(gamma=0.05)
    >>> mechanism_named("gnmin")
    Traceback (most recent call last):
        ...
    ValueError: Expected the name of a mechanism, one of lnmax, gnmax, ...
    """
    _load_ours()
    if name not in _named:
        _load_strangers()
    if name not in _named:
        raise ValueError(f"Expected the name of a mechanism, one of {', '.join(names())}, got {name!r}.")
    return _named[name]


def names(answers: Answers | Literal["class"] | None = None) -> tuple[str, ...]:
    """Return the names of all mechanisms, or of those that answer with one class, or with many labels.

    >>> names(answers="classes")[:2]
    ('lnmax', 'gnmax')
    """
    _load()
    answers = "classes" if answers == "class" else answers  # as it was called before votes had a space
    kinds = [answers_of(kind) for kind in _named.values()]
    homes = [kind.__module__.removeprefix(f"{__package__}.") for kind in _named.values()]
    # Plain ones before those that build on them; then, as registered, all others.
    places = [_ORDER.index(home) if home in _ORDER else len(_ORDER) for home in homes]
    every = sorted(zip(kinds, places, range(len(kinds)), _named, strict=True))
    return tuple(name for what, _, _, name in every if answers in (None, what))


def answers_of(mechanism: Any) -> Answers:
    """Return which votes a mechanism, or its class, decides: those on classes, on labels or scores."""
    if getattr(mechanism, "of_scores", False):
        return "scores"
    return "labels" if getattr(mechanism, "multilabel", False) else "classes"


def listens(mechanism: Any) -> bool:
    """Return whether a mechanism, or its class, asks for the student's probabilities."""
    return "student" in inspect.signature(mechanism.release).parameters


def counts_parts(kind: Any) -> bool:
    """Return whether a mechanism's class counts probabilities in parts of a vote, as the votes come."""
    return not hasattr(kind, "votes_resolution") and "resolution" in [f.name for f in declared_fields(kind)]


def name_of(mechanism: object) -> str:
    """Return the name under which the class of a mechanism is registered, or "" where it has none."""
    return next((name for name, kind in _named.items() if kind is type(mechanism)), "")


def summary_of(name: str) -> str:
    """Return in half a sentence what the mechanism of this name does, or the first line of its docstring."""
    kind = mechanism_named(name)
    return _words.get(kind) or (kind.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Parameter:
    """A parameter as all mechanisms that have it declare it, under one name.

    `kind` is its type, and `limits` the bounds that all of them agree on; `example` is that of the first.
    """

    name: str
    kind: Any
    owners: tuple[str, ...]
    words: str
    limits: Mapping[str, Any]
    example: Any

    @property
    def for_labels(self) -> bool:
        """Return whether only mechanisms of many labels have it."""
        return all(answers_of(mechanism_named(owner)) == "labels" for owner in self.owners)


def parameters() -> dict[str, Parameter]:
    """Return the parameters that mechanisms declare and somebody sets, each with who has it, by name."""
    # What is asked for a whole pool at once is in no settings file yet.
    every = tuple(name for name in names() if answers_of(mechanism_named(name)) != "scores")
    found: dict[str, list[tuple[str, Field[Any]]]] = {}
    for owner in every:
        for field in declared_fields(mechanism_named(owner)):
            if not field.metadata.get("of_votes"):
                found.setdefault(field.name, []).append((owner, field))
    return {name: _merged(name, own, every) for name, own in found.items()}


def _merged(name: str, own: "list[tuple[str, Field[Any]]]", every: tuple[str, ...]) -> Parameter:
    first = own[0][1]
    said = {bound: first.metadata[bound] for bound in _LIMITS if bound in first.metadata}
    agreed = {
        bound: value
        for bound, value in said.items()
        if all(field.metadata.get(bound) == value for _, field in own)
    }
    return Parameter(
        name, _without_none(_kind(first)), tuple(owner for owner, _ in own), _said(own, every), agreed,
        first.metadata.get("example"),
    )  # fmt: skip


def _kind(field: "Field[Any]") -> Any:
    """Return the type of a field; that of a module with postponed annotations is a word."""
    return {"int": int, "float": float, "str": str}.get(str(field.type), field.type)


def _without_none(kind: Any) -> Any:
    """Return the type of what may be left out, where it is given; tuples of types stay as they are."""
    given = [one for one in get_args(kind) if one is not type(None)]
    return given[0] if type(None) in get_args(kind) and len(given) == 1 else kind


def _said(own: "list[tuple[str, Field[Any]]]", every: tuple[str, ...]) -> str:
    """Return who has a parameter and what it means to them; those who say the same are named together."""
    by_words: dict[str, list[str]] = {}
    for owner, field in own:
        by_words.setdefault(field.metadata["words"], []).append(owner)
    parts = []
    for words, owners in by_words.items():
        others = [name for name in every if name not in owners]
        whose = f"All but {', '.join(others)}" if len(others) < 3 else ", ".join(owners)
        parts.append(f"{whose}: {words}.")
    return " ".join(parts)


class _Registered(Mapping[str, type]):
    """The mechanisms that are registered now; other packages may add some at any time."""

    def __init__(self, answers: Answers | None) -> None:
        self._answers: Answers | None = answers

    def _all(self) -> dict[str, type]:
        _load()
        if self._answers is None:
            return _events
        found = {name: _named[name] for name in names(self._answers)}
        return {name: kind for name, kind in found.items() if not hasattr(kind, "releases_counts")}

    def __getitem__(self, name: str) -> type:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


MECHANISMS: Mapping[str, type] = _Registered("classes")
LABEL_MECHANISMS: Mapping[str, type] = _Registered("labels")
EVENTS: Mapping[str, type] = _Registered(None)


def _place(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


@cache
def _load_ours() -> None:
    for package in (__package__, f"{__package__}.labels"):
        for module in pkgutil.iter_modules(import_module(package).__path__):
            import_module(f"{package}.{module.name}")


@cache
def _load_strangers() -> None:
    for entry in metadata.entry_points(group=GROUP):
        try:
            kind = entry.load()
            if kind not in _named.values():  # it may have registered itself
                register(entry.name)(kind)
        except Exception as error:  # a broken package of others must not stop ours
            words = f"The mechanism {entry.name!r} of {entry.value} does not load: {error}"
            warnings.warn(words, stacklevel=2)


def _load() -> None:
    _load_ours()
    _load_strangers()
