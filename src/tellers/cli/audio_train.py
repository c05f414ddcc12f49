"""`tellers audio train`: teachers of clips, and what they say of the public pool."""

import json
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import audio_options, options

if TYPE_CHECKING:
    from ..audio.taught import Taught


class Network(StrEnum):
    """The networks."""

    small = "small"
    resnet18 = "resnet18"
    resnet34 = "resnet34"
    vgg11 = "vgg11"
    vgg19 = "vgg19"


def train(
    clips: Annotated[
        Path,
        typer.Argument(metavar="CLIPS", help="The folder of `tellers audio prepare`.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where teachers and votes go: all of it private.")
    ] = Path("ears"),
    teachers: Annotated[int, typer.Option("--teachers", help="How many teachers.", min=1)] = 30,
    student: Annotated[
        float, typer.Option("--student", help="Share of the clips that become the public pool.")
    ] = 0.15,
    test: Annotated[float, typer.Option("--test", help="Share of the clips to test on, public too.")] = 0.1,
    test_fold: Annotated[
        str, typer.Option("--test-fold", metavar="FOLD", help="Test on the publisher's own fold.")
    ] = "",
    by_source: Annotated[
        bool | None,
        typer.Option(
            "--by-source/--by-clip",
            help="Deal, and protect, whole sources (a speaker, a street, a video), or single clips. Without "
            "it: sources where they are known.",
            show_default=False,
        ),
    ] = None,
    mix: Annotated[
        int,
        typer.Option(
            "--mix", metavar="N", help="Learn from N mixtures of every clip with one of its part.", min=0
        ),
    ] = 0,
    one_class: Annotated[
        bool,
        typer.Option("--one-class", help="Every clip has exactly one label: teachers name one class each."),
    ] = False,
    resolution: Annotated[
        int, typer.Option("--resolution", help="Count probabilities in so many parts of a vote.", min=1)
    ] = 1,
    network: Annotated[
        Network,
        typer.Option(
            "--network",
            help="small (for a CPU), resnet18, resnet34, vgg11 or vgg19.",
            rich_help_panel=audio_options.NETWORK,
        ),
    ] = Network.small,
    iterations: audio_options.Iterations = 60,
    batch_size: audio_options.BatchSize = 8,
    learning_rate: audio_options.LearningRate = 5e-3,
    mixup: Annotated[
        float,
        typer.Option(
            "--mixup", help="Blend clips of a batch; 0 for not.", min=0, rich_help_panel=audio_options.NETWORK
        ),
    ] = 1.0,
    balanced: Annotated[
        bool,
        typer.Option(
            "--balanced/--shuffled",
            help="Every label has its turn, or as they come.",
            rich_help_panel=audio_options.NETWORK,
        ),
    ] = True,
    weighted: Annotated[
        bool, typer.Option("--weighted", help="Weigh rare labels up.", rich_help_panel=audio_options.NETWORK)
    ] = False,
    pretrained: audio_options.Pretrained = None,
    held_out: audio_options.HeldOut = 0.0,
    log_folder: audio_options.LogFolder = None,
    device: audio_options.Device = "auto",
    jobs: Annotated[int, typer.Option("--jobs", help="Teachers trained at a time; 0 to choose.", min=0)] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Of the deal and of the training.", min=0)] = 7,
    as_json: options.Json = False,
) -> None:
    """Deal clips to teachers, train a network for each, and keep what they say of the public pool.

    Clips of teachers, pool and test are disjoint; mixtures are made within a part. Stopped and begun again
    with the same settings, it goes on. Votes are kept, so that sweep and student ask no teacher again. The
    folder is as private as the recordings.

    Example: tellers audio train city --out ears --teachers 30
    """
    from ..audio.collection import read_collection
    from ..audio.taught import teach
    from ..audio.teaching import Teaching
    from .outcome import say_record, steps_shown

    tagger: dict[str, Any] = {
        "network": network.value, "iterations": iterations, "batch_size": batch_size,
        "learning_rate": learning_rate, "mixup": mixup, "balanced": balanced, "weighted": weighted,
        "device": device,
    }  # fmt: skip
    tagger |= audio_options.network_options(
        iterations=iterations, pretrained=pretrained, held_out=held_out, log_folder=log_folder
    )
    settings = Teaching(
        n_teachers=teachers, seed=seed, student=student, test=test, test_fold=test_fold, by_source=by_source,
        mix=mix, resolution=resolution, one_class=one_class, tagger=tagger,
    )  # fmt: skip
    say_record(out / "record.json")
    with steps_shown(wanted=not as_json) as show:
        taught = teach(read_collection(clips), out, settings, n_jobs=jobs or None, show=show)
    if as_json:
        print(json.dumps(_said(taught)))
    else:
        _tell(taught)


def _said(taught: "Taught") -> dict[str, Any]:
    return {
        "folder": str(taught.folder), "n_teachers": taught.settings.n_teachers, "unit": taught.unit,
        "n_pool": len(taught.pool), "n_test": len(taught.test), "labels": list(taught.label_names),
        "one_class": taught.settings.one_class, "shape": list(taught.shape),
    }  # fmt: skip


def _tell(taught: "Taught") -> None:
    from . import show

    said = _said(taught)
    table = show.table("", "")
    table.add_row(
        "teachers", f"{said['n_teachers']}, each with clips of its own; {said['unit']} is protected"
    )
    table.add_row("public pool", f"{said['n_pool']} clips, on which they voted")
    table.add_row("test", f"{said['n_test']} clips, public too")
    console = show.console()
    console.print()
    console.print(show.indented(table))
    for line in taught.partition().notes:
        console.print(show.note(line))
    console.print(show.note(f"everything in {taught.folder} is private: votes, networks, and who has what."))
    console.print(
        f"Next: tellers audio student {quote(str(taught.folder))} --out study", markup=False, soft_wrap=True
    )
