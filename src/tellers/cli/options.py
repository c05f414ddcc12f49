"""Options that several verbs share, and what turns them into objects. No maths and no heavy imports."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

_NOISE = "Mechanism"
_MOST_ORDERS = 5000


class MechanismName(StrEnum):
    """The names of the mechanisms, as files and command lines write them."""

    lnmax = "lnmax"
    gnmax = "gnmax"
    confident = "confident"
    interactive = "interactive"
    binary = "binary"
    confident_binary = "confident-binary"
    tau = "tau"
    confident_tau = "confident-tau"
    powerset = "powerset"
    confident_powerset = "confident-powerset"
    partial_powerset = "partial-powerset"
    gnthreshold = "gnthreshold"
    confident_gnthreshold = "confident-gnthreshold"
    adaptive_gnthreshold = "adaptive-gnthreshold"


# Which parameters a mechanism needs, with a value that makes sense for 250 teachers, or 50 with many labels.
PARAMETERS: dict[str, dict[str, float | str]] = {
    "lnmax": {"gamma": 0.05},
    "gnmax": {"sigma": 40},
    "confident": {"sigma": 40, "threshold": 200, "sigma_threshold": 150},
    "interactive": {"sigma": 40, "threshold": 100, "sigma_threshold": 150, "student_confidence": 0.8},
    "binary": {"sigma": 10},
    "confident-binary": {"sigma": 10, "threshold": 40, "sigma_threshold": 15},
    "tau": {"sigma": 10, "max_norm": 1.8},
    "confident-tau": {"sigma": 10, "max_norm": 1.8, "threshold": 40, "sigma_threshold": 15},
    "powerset": {"sigma": 7},
    "confident-powerset": {"sigma": 7, "threshold": 25, "sigma_threshold": 12},
    "partial-powerset": {"sigma": 7, "groups": "0,1;2,3"},
    "gnthreshold": {"sigma": 7},
    "confident-gnthreshold": {"sigma": 7, "n_top": 2, "confident_share": 0.6, "sigma_gate": 12},
    "adaptive-gnthreshold": {"sigma": 7, "scale": 10},
}
_PARTS = ("resolution", "label_threshold")
# What it may take on top. Only mechanisms of many labels have such parameters.
OPTIONAL: dict[str, tuple[str, ...]] = {
    "binary": _PARTS,
    "confident-binary": _PARTS,
    "tau": ("norm", "label_threshold"),
    "confident-tau": ("norm", "label_threshold"),
    "powerset": ("max_labels", "label_threshold"),
    "confident-powerset": ("max_labels", "label_threshold"),
    "partial-powerset": ("label_threshold",),
    "gnthreshold": ("share", "max_labels", *_PARTS),
    "confident-gnthreshold": ("share", "max_labels", *_PARTS),
    "adaptive-gnthreshold": ("shares", "max_labels", *_PARTS),
}

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
    MechanismName | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="How the votes of a file become outcomes: lnmax, gnmax, confident or interactive. Many labels: "
        "binary, tau, powerset, gnthreshold, confident-... of each, partial-powerset, adaptive-gnthreshold.",
        rich_help_panel=_NOISE,
        show_default=False,
    ),
]
Gamma: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--gamma", help="lnmax: Laplace noise of scale 1/gamma on every count.", rich_help_panel=_NOISE
    ),
]
Sigma: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--sigma", help="All others: Gaussian noise on every count, in votes.", rich_help_panel=_NOISE
    ),
]
Threshold: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        help="confident..., interactive: votes the noisy top count must reach (beyond the student's).",
        rich_help_panel=_NOISE,
    ),
]
SigmaThreshold: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--sigma-threshold", help="confident..., interactive: noise of that check.", rich_help_panel=_NOISE
    ),
]
StudentConfidence: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--student-confidence",
        help="interactive: a student surer than this keeps its own label.",
        rich_help_panel=_NOISE,
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


def require_for_file(mechanism: MechanismName | None, delta: float | None) -> tuple[str, float]:
    """Return mechanism and delta, which a file of votes does not hold, or say that they are missing."""
    if mechanism is None or delta is None:
        missing = ["--mechanism"] * (mechanism is None) + ["--delta"] * (delta is None)
        raise ValueError(
            f"Expected {' and '.join(missing)} for a file of votes, got none. For example: "
            "--mechanism gnmax --sigma 40 --delta 1e-5"
        )
    return mechanism.value, delta


def is_label_mechanism(name: str) -> bool:
    """Say whether a mechanism answers with many labels."""
    return name in OPTIONAL


def parameters_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of mechanisms among the arguments of a command, as `locals()` has them."""
    every = [*PARAMETERS.values(), *OPTIONAL.values()]
    return {parameter: arguments[parameter] for own in every for parameter in own}


def require_parameters(name: str, given: dict[str, Any]) -> None:
    """Refuse parameters that are missing or belong to another mechanism."""
    needed, may = PARAMETERS[name], OPTIONAL.get(name, ())
    missing = [p for p in needed if given.get(p) is None]
    if missing:
        flags = " and ".join(flag(p) for p in missing)
        example = " ".join(f"{flag(p)} {_word(needed[p])}" for p in missing)
        raise ValueError(f"Expected {flags} for --mechanism {name}, got none. For example: {example}")
    foreign = [p for p, value in given.items() if value is not None and p not in needed and p not in may]
    if foreign:
        own = ", ".join(flag(p) for p in (*needed, *may))
        raise ValueError(
            f"Expected only {own} for --mechanism {name}, got {' and '.join(flag(p) for p in foreign)} too. "
            "Drop it, or choose the mechanism it belongs to."
        )


def _word(value: float | str) -> str:
    return f"'{value}'" if isinstance(value, str) else f"{value:g}"


def build_mechanism(name: str, **given: Any) -> Any:
    """Return the mechanism, refusing parameters that are missing or belong to another one."""
    require_parameters(name, given)
    from ..mechanisms import MECHANISMS

    return MECHANISMS[name](**{p: given[p] for p in PARAMETERS[name]})


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
    """Refuse a page that could not be written, before the work that it shows is done.

    >>> require_place_for("--page", Path("nowhere/tags.html"))
    Traceback (most recent call last):
        ...
    ValueError: Expected a file in a folder that is there for --page, got nowhere/tags.html. ...
    """
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
