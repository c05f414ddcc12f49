"""`tellers audio deal`: how clips would be dealt, to few teachers or to many. Private numbers."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options

_USUAL = [1, 10, 20, 50]


def deal(
    clips: Annotated[
        Path,
        typer.Argument(metavar="CLIPS", help="The folder of `tellers audio prepare`.", show_default=False),
    ],
    teachers: Annotated[
        str | None,
        typer.Option(
            "--teachers",
            metavar="N,N...",
            help="Numbers of teachers; 1 is the baseline.",
            show_default="of 1,10,20,50 those that get a clip each",
        ),
    ] = None,
    student: Annotated[float, typer.Option("--student", help="As for train.")] = 0.15,
    test: Annotated[float, typer.Option("--test", help="As for train.")] = 0.1,
    test_fold: Annotated[str, typer.Option("--test-fold", metavar="FOLD", help="As for train.")] = "",
    by_source: Annotated[
        bool | None, typer.Option("--by-source/--by-clip", help="As for train.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="As for train.", min=0)] = 7,
    show_private: Annotated[
        bool, typer.Option("--show-private", help="Show the numbers, which are of the private clips.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show how many clips and labels a teacher would have, for one teacher and for several numbers of them.

    The table is in the form of the thesis's table 4.1: sizes of the parts, labels per clip, and the fewest
    and the most clips that a teacher has of a class. It looks at private clips, so it is shown to whoever
    asks for private numbers, and written nowhere. Nothing is dealt or trained: train does that, by the same
    settings.

    Example: tellers audio deal city --teachers 1,10,20 --show-private
    """
    from ..audio.collection import read_collection
    from ..audio.dealing import deal_experiments
    from ..audio.statistics import deal_statistics, statistics_rows
    from ..audio.teaching import fold_clips

    collection = read_collection(clips)
    numbers = _USUAL if teachers is None else _numbers(teachers)
    if not show_private:
        raise ValueError(
            "Expected --show-private: how many clips and labels a teacher would have are numbers of the "
            "private clips. Add it, and keep the table to yourself."
        )
    given: dict[str, Any] = {
        "seed": seed, "student": student, "by_source": by_source,
        "test": fold_clips(collection, test_fold) if test_fold else test,
    }  # fmt: skip
    deals: dict[str, Any] = {}
    for n in numbers:
        try:
            deals |= deal_experiments(collection.clips, (n,), **given)
        except ValueError:
            if n == 1 or teachers is not None:  # nobody asked for so many
                raise
    found = deal_statistics(deals, collection.clips.Y, usable=collection.usable).reveal()
    if as_json:
        print(json.dumps({"private": True, "deals": found}))
        return
    from . import show

    table: Any = show.table("data set", *found, numbers=range(1, 1 + len(found)))
    for row in statistics_rows(found):
        table.add_row(*row)
    console = show.console()
    console.print()
    console.print(show.private_panel(table))


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"Expected numbers such as 1,10,20 for --teachers, got {text!r}.") from None
