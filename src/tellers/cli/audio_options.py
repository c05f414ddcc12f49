"""Options of networks that hear, which teachers and students have in common."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

NETWORK = "Network"
_LOOKS = 10  # at the clips held out, in the course of a training

Iterations: TypeAlias = Annotated[
    int, typer.Option("--iterations", help="Batches to learn from.", min=1, rich_help_panel=NETWORK)
]
BatchSize: TypeAlias = Annotated[
    int, typer.Option("--batch-size", help="Clips in a batch.", min=2, rich_help_panel=NETWORK)
]
LearningRate: TypeAlias = Annotated[
    float, typer.Option("--learning-rate", help="Near 1e-4 for large networks.", rich_help_panel=NETWORK)
]
Pretrained: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--pretrained", metavar="FILE", help="Public weights to begin with.", rich_help_panel=NETWORK
    ),
]
HeldOut: TypeAlias = Annotated[
    float,
    typer.Option(
        "--held-out",
        metavar="SHARE",
        help="Hold out a share of the clips it learns from, and keep the network that is best there.",
        min=0,
        rich_help_panel=NETWORK,
    ),
]
LogFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--log-folder",
        metavar="DIR",
        help="TensorBoard's files, as private as what is learned from.",
        rich_help_panel=NETWORK,
    ),
]
Device: TypeAlias = Annotated[
    str, typer.Option("--device", help="cpu, cuda or auto.", rich_help_panel=NETWORK)
]


def network_options(
    *, iterations: int, pretrained: Path | None, held_out: float, log_folder: Path | None
) -> dict[str, Any]:
    """Return parameters of a tagger that are left out where nothing is said."""
    places = {"pretrained": pretrained, "log_folder": log_folder}
    said: dict[str, Any] = {name: str(place.absolute()) for name, place in places.items() if place}
    if held_out:
        said |= {"held_out": held_out, "check_every": max(1, iterations // _LOOKS)}
    return said
