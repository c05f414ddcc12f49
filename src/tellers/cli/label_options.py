"""Options of mechanisms with many labels, and the vote files they go with."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from . import options

if TYPE_CHECKING:
    from ..teachers.label_store import LabelVoteFile
    from ..teachers.store import VoteFile

_LABELS = "Many labels per query"


class NormName(StrEnum):
    """The norms that a ballot can be clipped to."""

    l2 = "l2"
    l1 = "l1"


MaxNorm: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--max-norm", help="tau: clip every ballot to this norm, in votes.", rich_help_panel=_LABELS
    ),
]
Norm: TypeAlias = Annotated[
    NormName | None,
    typer.Option("--norm", help="tau: which norm. Without it: l2.", rich_help_panel=_LABELS),
]
MaxLabels: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-labels",
        help="powerset, gnthreshold: at most so many labels of a ballot count.",
        rich_help_panel=_LABELS,
    ),
]
Share: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--share",
        help="gnthreshold: share of the teachers that a sum must exceed, for all labels or a list. Without "
        "it: 0.5.",
        rich_help_panel=_LABELS,
    ),
]
Shares: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--shares",
        help="adaptive-gnthreshold: the shares to choose from, as 0.3,0.4,0.5. Without it: 0.1 to 0.9.",
        rich_help_panel=_LABELS,
    ),
]
Scale: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--scale", help="adaptive-gnthreshold: noise of that choice, in votes.", rich_help_panel=_LABELS
    ),
]
NTop: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--n-top",
        help="confident-gnthreshold: so many of the largest sums must reach --confident-share.",
        rich_help_panel=_LABELS,
    ),
]
ConfidentShare: TypeAlias = Annotated[
    float | None,
    typer.Option("--confident-share", help="confident-gnthreshold: see --n-top.", rich_help_panel=_LABELS),
]
SigmaGate: TypeAlias = Annotated[
    float | None,
    typer.Option("--sigma-gate", help="confident-gnthreshold: noise of that check.", rich_help_panel=_LABELS),
]
Groups: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="partial-powerset: labels that are voted on together, as '0,2;1,3'.",
        rich_help_panel=_LABELS,
    ),
]
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
    if not options.is_label_mechanism(name):
        from ..teachers.store import read_votes

        chosen = options.build_mechanism(name, **given)
        return read_votes(file, n_classes=classes), chosen
    options.require_parameters(name, given)
    if classes is not None:
        raise ValueError(
            f"Expected no --classes for --mechanism {name}: labels are counted in the file. Drop it."
        )
    values = {p: parsed(p, value) for p, value in given.items() if value is not None}
    threshold, parts = values.pop("label_threshold", None), values.pop("resolution", None)
    from ..mechanisms import LABEL_MECHANISMS
    from ..teachers.label_store import read_label_votes

    loaded = read_label_votes(file, resolution=parts, thresholds=threshold)
    votes = loaded.votes
    if "resolution" in options.OPTIONAL[name]:
        values["resolution"] = votes.resolution
    elif votes.resolution > 1:
        raise ValueError(
            f"Expected ballots of 0 and 1 for --mechanism {name}, got parts of votes in {file.name}. Choose "
            "binary or gnthreshold, or save the ballots as 0 and 1."
        )
    return loaded, LABEL_MECHANISMS[name](n_labels=votes.n_labels, **values)


def load_proxy(name: str, file: Path, like: Any, *, label_threshold: float | None) -> Any:
    """Return public votes to plan on, refusing those of other teachers, classes or labels."""
    if options.is_label_mechanism(name):
        from ..teachers.label_store import read_label_votes

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
    from ..calibrate import Consensus, LabelConsensus

    if options.is_label_mechanism(name):
        labels = LabelConsensus()
        made = labels.votes(like.n_teachers, like.n_labels, n_queries=400, seed=0, resolution=like.resolution)
        return made, str(labels)
    classes = Consensus()
    return classes.votes(like.n_teachers, like.n_classes, n_queries=1000, seed=0)[0], str(classes)


def parsed(parameter: str, value: Any) -> Any:
    """Return what a list on the command line says."""
    if parameter == "norm":
        return str(value.value)
    if parameter == "groups":
        return tuple(tuple(_numbers(parameter, group, int)) for group in value.split(";"))
    if parameter in ("share", "shares"):
        found = tuple(_numbers(parameter, value, float))
        return found[0] if parameter == "share" and len(found) == 1 else found
    return value


def _numbers(parameter: str, text: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        example = "'0,2;1,3'" if parameter == "groups" else "0.3,0.5"
        flag = options.flag(parameter)
        raise ValueError(f"Expected numbers such as {example} for {flag}, got {text!r}.") from None
