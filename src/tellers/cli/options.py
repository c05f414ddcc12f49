"""Options that several verbs share, and what turns them into objects. No maths and no heavy imports.

The parameters of mechanisms are options too, as the mechanisms declare them. They are looked up for the verb
that is asked for and for no other: a command says with `takes_mechanism` that it has them.
"""

import inspect
import os
from collections.abc import Callable, Collection
from dataclasses import MISSING
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

if TYPE_CHECKING:
    from ..mechanisms.registry import Parameter
    from ..teachers.store import LabelVoteFile, VoteFile

_NOISE = "Mechanism"
_LABELS = "Many labels per query"
_MOST_ORDERS = 5000
C = TypeVar("C", bound=Callable[..., None])

VotesOrRun: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|RUN",
        help="An .npy of ballots (teachers x queries), or an .npz with 'ballots' or 'counts' (queries x "
        "classes) and, where they apply, 'student' (queries x classes) and 'answered' (a mask). For many "
        "labels: 'label_ballots' (teachers x queries x labels). Or the folder of a run.",
        show_default=False,
    ),
]
Mechanism: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="How the votes of a file become outcomes.",
        rich_help_panel=_NOISE,
        show_default=False,
    ),
]
MaybeDelta: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="Failure probability, well below 1 / private records; needed for a file.",
        show_default=False,
    ),
]
MaybeBudget: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Epsilon of a ledger: what a run within it states, and how many queries it pays for.",
        show_default=False,
    ),
]
Classes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--classes",
        help="Number of classes. Without it: the largest id in the ballots plus one.",
        show_default=False,
    ),
]
Delta: TypeAlias = Annotated[
    float,
    typer.Option("--delta", help="Failure probability, well below 1 / private records.", show_default=False),
]
Orders: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--orders",
        help="Rényi orders: 2:50 for the integers from 2 to 50, or a list such as 1.5,2,8. "
        "Without it: a dense grid from 1.25 to 512.",
        show_default=False,
    ),
]
ShowPrivate: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--show-private", help="Also show data-dependent numbers. They are private: do not publish them."
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.")]


def flag(parameter: str) -> str:
    """Return how a parameter is written on the command line."""
    return "--" + parameter.replace("_", "-")


# --- The parameters of mechanisms, as options. ---


_marked: dict[Any, tuple[str, Collection[str]]] = {}


def takes_mechanism(*, after: str, but: Collection[str] = ()) -> Callable[[C], C]:
    """Mark a command whose `**given` are the parameters of mechanisms, to stand after one of its options.

    `but` are those that it has options of its own for, or none.
    """

    def mark(command: C) -> C:
        _marked[command] = (after, but)
        _sign(command, {})
        return command

    return mark


def derive(command: Callable[..., None]) -> None:
    """Give a command that takes a mechanism the options that the known mechanisms declare."""
    if command not in _marked:
        return
    from ..mechanisms.registry import LABEL_MECHANISMS, MECHANISMS, parameters

    of_classes, of_labels = list(MECHANISMS), list(LABEL_MECHANISMS)
    words = (
        f"How votes become outcomes: {', '.join(of_classes[:-1])} or {of_classes[-1]}. "
        f"Many labels: {', '.join(of_labels[:-1])} or {of_labels[-1]}."
    )
    kind = _choice("MechanismName", [*of_classes, *of_labels])
    found = {"mechanism": _option("mechanism", kind, words, _NOISE, metavar="NAME")}
    for one in parameters().values():
        if one.name not in _marked[command][1]:
            found[one.name] = _option(one.name, *_kind_and_words(one))
    _sign(command, found)


def _sign(command: Any, found: dict[str, Any]) -> None:
    """Say what a command takes: its own options, and those that were found in place of `**given`."""
    after, _ = _marked[command]
    kept = {}
    vars(command).pop("__signature__", None)  # of an earlier time, when other mechanisms were known
    for name, parameter in inspect.signature(command).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            shown = found.get(name)
            kept[name] = parameter if shown is None else parameter.replace(annotation=shown)
        if name == after:
            added = {p: note for p, note in found.items() if p != "mechanism"}
            kept |= {p: _keyword(p, note) for p, note in added.items()}
    command.__signature__ = inspect.Signature(list(kept.values()))


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
    )


def _option(name: str, kind: Any, words: str, panel: str, metavar: str | None = None) -> Any:
    made = typer.Option(flag(name), help=words, rich_help_panel=panel, metavar=metavar, show_default=False)
    return Annotated[kind | None, made]


def _kind_and_words(one: "Parameter") -> tuple[Any, str, str]:
    panel, form = _LABELS if one.for_labels else _NOISE, one.limits.get("form")
    if "choices" in one.limits:
        return _choice(one.name, one.limits["choices"]), one.words, panel
    if form is None:
        return one.kind, one.words, panel
    example = "'0,2;1,3'" if form == "groups" else "0.3,0.5"
    return str, f"{one.words[:-1]}, as {example}.", panel


def _choice(name: str, choices: Collection[str]) -> Any:
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


def require_place_for(option: str, path: Path) -> None:
    """Refuse a page that could not be written, before the work that it shows is done."""
    if path.is_dir():
        raise ValueError(
            f"Expected a file for {option}, got the folder {path}. Name a page in it, {path}/page.html"
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


# --- Vote files, and how they are read. ---


Resolution: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--resolution",
        help="binary, gnthreshold: count probabilities in so many parts of a vote.",
        rich_help_panel=_LABELS,
    ),
]
LabelThreshold: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--label-threshold",
        help="Turn probabilities into a yes where they reach this. Fixed before voting, or on public data.",
        rich_help_panel=_LABELS,
    ),
]


def load(
    name: str, file: Path, *, classes: int | None, given: dict[str, Any]
) -> "tuple[VoteFile | LabelVoteFile, Any]":
    """Return what a vote file holds, and the mechanism; parameters are refused before anything is read."""
    if not is_label_mechanism(name):
        from ..teachers.store import read_votes

        chosen = build_mechanism(name, **given)
        return read_votes(file, n_classes=classes), chosen
    require_parameters(name, given)
    if classes is not None:
        raise ValueError(
            f"Expected no --classes for --mechanism {name}: labels are counted in the file. Drop it."
        )
    from ..mechanisms.registry import counts_parts, mechanism_named
    from ..teachers.store import read_label_votes

    threshold, parts = given.pop("label_threshold", None), given.pop("resolution", None)
    loaded = read_label_votes(file, resolution=parts, thresholds=threshold)
    votes = loaded.votes
    if counts_parts(mechanism_named(name)):
        given["resolution"] = votes.resolution
    elif votes.resolution > 1:
        raise ValueError(
            f"Expected ballots of 0 and 1 for --mechanism {name}, got parts of votes in {file.name}. Choose "
            "binary or gnthreshold, or save the ballots as 0 and 1."
        )
    return loaded, build_mechanism(name, n_labels=votes.n_labels, **given)


def load_proxy(name: str, file: Path, like: Any, *, label_threshold: float | None) -> Any:
    """Return public votes to plan on, refusing those of other teachers, classes or labels."""
    if is_label_mechanism(name):
        from ..teachers.store import read_label_votes

        parts = like.resolution if like.resolution > 1 else None
        public: Any = read_label_votes(file, resolution=parts, thresholds=label_threshold).votes
        what, own, others = "labels", like.n_labels, public.n_labels
    else:
        from ..teachers.store import read_votes

        public = read_votes(file, n_classes=like.n_classes).votes
        what, own, others = "classes", like.n_classes, public.n_classes
    if (public.n_teachers, others) != (like.n_teachers, own):
        raise ValueError(
            f"Expected a proxy of {like.n_teachers} teachers and {own} {what}, got "
            f"{public.n_teachers} and {others}."
        )
    return public


def assumed_votes(name: str, like: Any) -> tuple[Any, str]:
    """Return made-up votes to plan on where there is no proxy, and what was assumed."""
    from ..accounting.plan import Consensus, LabelConsensus

    if is_label_mechanism(name):
        labels = LabelConsensus()
        made = labels.votes(like.n_teachers, like.n_labels, n_queries=400, seed=0, resolution=like.resolution)
        return made, str(labels)
    classes = Consensus()
    return classes.votes(like.n_teachers, like.n_classes, n_queries=1000, seed=0)[0], str(classes)


def parsed(parameter: str, value: Any) -> Any:
    """Return what a word on the command line says: a list where the parameter is one."""
    from ..mechanisms.registry import parameters

    known = parameters().get(parameter)
    form = None if known is None else known.limits.get("form")
    if form == "groups":
        return tuple(tuple(_numbers(parameter, group, int)) for group in value.split(";"))
    if form == "numbers":
        found = tuple(_numbers(parameter, value, float))
        # One number stands for all, unless there is always a list of them.
        return found[0] if len(found) == 1 and isinstance(known.example, float) else found  # type: ignore[union-attr]
    return str(value) if isinstance(value, StrEnum) else value


def _numbers(parameter: str, text: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        example = "'0,2;1,3'" if kind is int else "0.3,0.5"
        option = flag(parameter)
        raise ValueError(f"Expected numbers such as {example} for {option}, got {text!r}.") from None
