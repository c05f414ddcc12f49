"""Options that several verbs share, and what turns them into objects. No maths and no heavy imports.

The parameters of mechanisms are options too, as the mechanisms declare them. They are looked up for the verb
that is asked for and for no other: a command says with `takes_mechanism` that it has them.
"""

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

if TYPE_CHECKING:
    from ..mechanisms.registry import Parameter
    from ..teachers.store import HeldVotes

_NOISE = "Mechanism"
_LABELS = "Many labels per query"
_MOST_ORDERS = 5000
C = TypeVar("C", bound=Callable[..., None])
N = TypeVar("N", int, float)


def option(words: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option: what it means, and the panel of the help that it stands in.

    Without `flags` it is called as its parameter is; a switch needs one, to have no opposite.
    """
    return typer.Option(*flags, help=words, rich_help_panel=panel, **more)


def argument(metavar: str, words: str) -> Any:
    """Return an argument: how the help calls it, and what it means."""
    return typer.Argument(metavar=metavar, help=words, show_default=False)


VotesOrRun: TypeAlias = Annotated[
    Path,
    argument(
        "FILE|RUN",
        "An .npy of ballots (teachers x queries), or an .npz with 'ballots' or 'counts' (queries x "
        "classes) and, where they apply, 'student' (queries x classes) and 'answered' (a mask). For many "
        "labels: 'label_ballots' (teachers x queries x labels). Or the folder of a run.",
    ),
]
Mechanism: TypeAlias = Annotated[
    str | None, option("How the votes of a file become outcomes.", panel=_NOISE, metavar="NAME")
]
DELTA = "Failure probability, well below 1 / private records."
MaybeDelta: TypeAlias = Annotated[
    float | None, option("Failure probability, well below 1 / private records; needed for a file.")
]
Delta: TypeAlias = Annotated[float, option(DELTA)]


class RuleName(StrEnum):
    """How a ledger holds its budget."""

    renyi = "renyi"
    clock = "clock"


RULE = (
    "How the ledger holds the budget, for good: at one Rényi order, or on a clock, which gives more labels "
    "and states the whole budget."
)
Rule: TypeAlias = Annotated[RuleName, option(RULE)]
Classes: TypeAlias = Annotated[
    int | None, option("Number of classes. Without it: the largest id in the ballots plus one.")
]
Resolution: TypeAlias = Annotated[
    int | None, option("binary, gnthreshold: count probabilities in so many parts of a vote.", panel=_LABELS)
]
LabelThreshold: TypeAlias = Annotated[
    float | None,
    option(
        "Turn probabilities into a yes where they reach this. Fixed before voting, or on public data.",
        panel=_LABELS,
    ),
]
ShowPrivate: TypeAlias = Annotated[
    bool,
    option("Also show data-dependent numbers. They are private: do not publish them.", "--show-private"),
]
Json: TypeAlias = Annotated[bool, option("Print JSON, errors included.", "--json")]

Changes: TypeAlias = Annotated[
    list[str] | None,
    option(
        "An option in place of what the settings say, e.g. budget.epsilon=2; again for more.",
        "--set",
        metavar="SECTION.OPTION=VALUE",
    ),
]


def flag(parameter: str) -> str:
    """Return how a parameter is written on the command line."""
    return "--" + parameter.replace("_", "-")


# --- The parameters of mechanisms, as options. ---


_marked: dict[Any, tuple[str, Collection[str], bool, bool]] = {}


def takes_mechanism(
    *, after: str, but: Collection[str] = (), votes: bool = False, sums: bool = False
) -> Callable[[C], C]:
    """Mark a command whose `**given` are the parameters of mechanisms, to stand after one of its options.

    `but` are those that it has options of its own for, or none. With `votes` it also has all that says how a
    file of votes is read: mechanism and delta, and what probabilities and classes are. With `sums` it takes
    mechanisms of whole pools too.
    """

    def mark(command: C) -> C:
        _marked[command] = (after, but, votes, sums)
        _sign(command, None, {})
        return command

    return mark


def derive(command: Callable[..., None]) -> None:
    """Give a command that takes a mechanism the options that the known mechanisms declare."""
    if command not in _marked:
        return
    from ..mechanisms.registry import LABEL_MECHANISMS, MECHANISMS, names, parameters

    of_classes, of_labels = list(MECHANISMS), list(LABEL_MECHANISMS)
    of_scores = names("scores") if _marked[command][3] else ()
    words = (
        f"How votes become outcomes: {', '.join(of_classes[:-1])} or {of_classes[-1]}. "
        f"Many labels: {', '.join(of_labels[:-1])} or {of_labels[-1]}."
    )
    if of_scores:
        words += f" A whole pool at once: {', '.join(of_scores)}."
    kind = choice("MechanismName", [*of_classes, *of_labels, *of_scores])
    own = _marked[command][1]
    found = {one.name: _maybe(*_kind_and_words(one)) for one in parameters().values() if one.name not in own}
    _sign(command, _maybe(kind, words, _NOISE, metavar="NAME"), found)


def _maybe(kind: Any, words: str, panel: str, **more: Any) -> Any:
    return Annotated[kind | None, option(words, panel=panel, **more)]


def _sign(command: Any, mechanism: Any, found: dict[str, Any]) -> None:
    """Say what a command takes: its own options, and those that were found in place of `**given`."""
    after, _, votes, _ = _marked[command]
    if votes:
        first = {"mechanism": mechanism or Mechanism, "delta": MaybeDelta}
        last = {"resolution": Resolution, "label_threshold": LabelThreshold, "classes": Classes}
        found = {**first, **found, **last}
    kept = {}
    vars(command).pop("__signature__", None)  # of an earlier time, when other mechanisms were known
    for name, parameter in inspect.signature(command).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            named = name == "mechanism" and mechanism is not None
            kept[name] = parameter.replace(annotation=mechanism) if named else parameter
        if name == after:
            for own, annotation in found.items():
                kept[own] = inspect.Parameter(own, parameter.kind, default=None, annotation=annotation)
    command.__signature__ = inspect.Signature(list(kept.values()))


def _kind_and_words(one: "Parameter") -> tuple[Any, str, str]:
    panel, form = _LABELS if one.for_labels else _NOISE, one.limits.get("form")
    if "choices" in one.limits:
        return choice(one.name, one.limits["choices"]), one.words, panel
    if form is None:
        return one.kind, one.words, panel
    example = "'0,2;1,3'" if form == "groups" else "0.3,0.5"
    return str, f"{one.words[:-1]}, as {example}.", panel


def choice(name: str, choices: Collection[str]) -> Any:
    """Return the words that an option may be."""
    return StrEnum(name, {choice.replace("-", "_"): choice for choice in choices})


def require_for_file(mechanism: str | None, delta: float | None) -> tuple[str, float]:
    """Return mechanism and delta, which a file of votes does not hold, or say that they are missing."""
    if mechanism is None or delta is None:
        missing = ["--mechanism"] * (mechanism is None) + ["--delta"] * (delta is None)
        raise ValueError(
            f"Expected {' and '.join(missing)} for a file of votes, got none. For example: "
            "--mechanism gnmax --sigma 40 --delta 1e-5"
        )
    return str(mechanism), delta


def is_label_mechanism(name: str) -> bool:
    """Say whether a mechanism answers with many labels."""
    from ..mechanisms.registry import LABEL_MECHANISMS

    return name in LABEL_MECHANISMS


def is_sum(name: str) -> bool:
    """Say whether a mechanism releases the scores of a whole pool at once."""
    from ..mechanisms.registry import answers_of, mechanism_named

    return answers_of(mechanism_named(name)) == "scores"


def require_parameters(name: str, given: dict[str, Any]) -> None:
    """Refuse parameters that are missing or belong to another mechanism."""
    from ..mechanisms.registry import counts_parts, declared_fields, mechanism_named

    kind: Any = mechanism_named(name)
    own = [one for one in declared_fields(kind) if not one.metadata.get("of_votes")]
    needed = {one.name: one.metadata.get("example") for one in own if one.default is MISSING}
    may = [one.name for one in own if one.name not in needed]
    may += ["resolution"] * counts_parts(kind) + ["label_threshold"] * is_label_mechanism(name)
    missing = [p for p in needed if given.get(p) is None]
    if missing:
        flags = " and ".join(flag(p) for p in missing)
        example = " ".join(f"{flag(p)} {_word(needed[p])}" for p in missing)
        raise ValueError(f"Expected {flags} for --mechanism {name}, got none. For example: {example}")
    foreign = [p for p, value in given.items() if value is not None and p not in needed and p not in may]
    if foreign:
        allowed = ", ".join(flag(p) for p in (*needed, *may))
        raise ValueError(
            f"Expected only {allowed} for --mechanism {name}, got {' and '.join(map(flag, foreign))} too. "
            "Drop it, or choose the mechanism it belongs to."
        )


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return repr(";".join(",".join(map(str, group)) for group in value))
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def build_mechanism(name: str, *, n_labels: int | None = None, **given: Any) -> Any:
    """Return the mechanism, refusing parameters that are missing or belong to another one."""
    require_parameters(name, given)
    from ..mechanisms.registry import mechanism_named

    values = {p: parsed(p, value) for p, value in given.items() if value is not None}
    if n_labels is not None:
        values["n_labels"] = n_labels
    return mechanism_named(name)(**values)


def listed(option: str, text: str, kind: Callable[[str], N], wanted: str) -> list[N]:
    """Return the numbers of a comma-separated list."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"Expected {wanted} for {option}, got {text!r}.") from None


def parse_orders(text: str | None) -> list[float] | None:
    """Return the Rényi orders of `a:b` (integers, both included) or of a comma-separated list."""
    if text is None:
        return None
    advice = "Write 2:50 for the integers from 2 to 50, or a list such as 1.5,2,8; orders are larger than 1."
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            if last - first >= _MOST_ORDERS:
                raise ValueError(f"Expected at most {_MOST_ORDERS} orders, got --orders {text}.")
            orders = [float(order) for order in range(first, last + 1)]
        else:
            orders = sorted({float(part) for part in text.split(",")})
    except ValueError as error:
        if str(error).startswith("Expected"):
            raise
        raise ValueError(f"Expected Rényi orders, got --orders {text}. {advice}") from None
    if not orders or not 1 < orders[0] <= orders[-1] < float("inf"):
        raise ValueError(f"Expected Rényi orders, got --orders {text}. {advice}")
    return orders


def require_place_for(option: str, path: Path, example: str = "page.html") -> None:
    """Refuse a file that could not be written, before what it is to hold is worked out or paid for."""
    if path.is_dir():
        raise ValueError(
            f"Expected a file for {option}, got the folder {path}. Name one in it, such as {path / example}"
        )
    if not path.parent.is_dir():
        raise ValueError(
            f"Expected a file in a folder that is there for {option}, got {path}. Make the folder "
            f"{path.parent}, or name another one."
        )
    if not os.access(path.parent, os.W_OK):
        raise ValueError(
            f"Expected a folder that may be written for {option}, {path.parent} may not. Name another one."
        )


def shown_place(where: str, name: str = "") -> str:
    """Return where a ledger is, as it may be printed: without a password, with its name in a database."""
    from ..ledger.opening import is_url

    if not is_url(where):
        return where
    from ..ledger.sql.connection import parse_url, shown

    return f"{name!r} in {shown(parse_url(where))}" if name else shown(parse_url(where))


# --- Vote files and runs. ---


def folder_of(path: Path, *, but: Mapping[str, object]) -> Path | None:
    """Return the folder of the run that a path means, if it means one; `but` are options of files alone."""
    folder = path.parent if path.name == "plan.json" else path
    if folder is path and (not path.is_dir() or (path / "votes.json").is_file()):
        return None  # votes alone, in a file or in a folder of parts
    refuse(but, "with the folder of a run, which keeps its settings")
    return folder


def refuse(given: Mapping[str, object], where: str, advice: str = "Leave it out.") -> None:
    """Refuse options that mean nothing where they were given."""
    foreign = [flag(name) for name, value in given.items() if value is not None]
    if foreign:
        raise ValueError(f"Expected no {' and no '.join(foreign)} {where}. {advice}")


def load(file: Path, given: dict[str, Any]) -> "tuple[HeldVotes, Any, float]":
    """Open a vote file; return what may be asked of it, the mechanism, and delta.

    Parameters are refused before anything is read.
    """
    own = dict(given)
    classes, threshold = own.pop("classes"), own["label_threshold"]
    name, delta = require_for_file(own.pop("mechanism"), own.pop("delta"))
    from ..teachers.store import open_votes

    if not is_label_mechanism(name):
        chosen = build_mechanism(name, **own)
        return open_votes(file, n_classes=classes), chosen, delta
    require_parameters(name, own)
    if classes is not None:
        raise ValueError(
            f"Expected no --classes for --mechanism {name}: labels are counted in the file. Drop it."
        )
    from ..mechanisms.registry import counts_parts, mechanism_named

    del own["label_threshold"]
    votes = open_votes(file, kind="labels", resolution=own.pop("resolution"), thresholds=threshold)
    if counts_parts(mechanism_named(name)):
        own["resolution"] = votes.resolution
    elif votes.resolution > 1:
        raise ValueError(
            f"Expected ballots of 0 and 1 for --mechanism {name}, got parts of votes in {file.name}. Choose "
            "binary or gnthreshold, or save the ballots as 0 and 1."
        )
    return votes, build_mechanism(name, n_labels=votes.width, **own), delta


def parsed(parameter: str, value: Any) -> Any:
    """Return what a word on the command line says: a list where the parameter is one."""
    from ..mechanisms.registry import parameters

    known = parameters().get(parameter)
    form = None if known is None else known.limits.get("form")
    if form == "groups":
        wanted = "numbers such as '0,2;1,3'"
        return tuple(tuple(listed(flag(parameter), group, int, wanted)) for group in value.split(";"))
    if form == "numbers":
        found = tuple(listed(flag(parameter), value, float, "numbers such as 0.3,0.5"))
        # One number stands for all, unless there is always a list of them.
        return found[0] if len(found) == 1 and isinstance(known.example, float) else found  # type: ignore[union-attr]
    return str(value) if isinstance(value, StrEnum) else value
