"""`tellers audio tag`: what a student hears in recordings."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..audio.hearing import Tagged


def tag(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Recordings: wav, flac or ogg.", show_default=False),
    ],
    student: Annotated[
        Path,
        typer.Option("--student", metavar="DIR", help="The run of `tellers audio student`, or its student."),
    ] = Path("study"),
    top: Annotated[int, typer.Option("--top", help="So many labels for each file.", min=1)] = 3,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page", metavar="FILE", help="Also draw each log-Mel picture with its tags: an HTML file."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Tag recordings with a trained student: its likeliest labels, with their scores.

    The student needs no teacher and no ledger; to use it costs nothing more. A recording that cannot be read
    is told with its reason, and the others are tagged.

    Example: tellers audio tag city/sounds/city-000003.wav --student study --page tags.html
    """
    from ..audio.hearing import load_hearing

    folders = [str(file) for file in files if file.is_dir()]
    if folders:
        raise ValueError(
            f"Expected recordings, got the folder {folders[0]}. Name its files: {folders[0]}/*.wav"
        )
    if page is not None:
        options.require_place_for("--page", page)
    hearing = load_hearing(student)
    tagged = hearing.tag(files)
    if page is not None:
        from ..audio.sheets import write_tags

        write_tags(page, hearing, tagged, n_labels=top)
    if as_json:
        print(json.dumps({"files": [one.as_dict(top) for one in tagged], "page": page and str(page)}))
    else:
        _tell(tagged, top, page)
    if all(one.scores is None for one in tagged):
        raise typer.Exit(2)


def _tell(tagged: "list[Tagged]", top: int, page: Path | None) -> None:
    from rich.markup import escape

    from . import show

    table = show.table("file", "label", "score", "", numbers=(2,))
    table.columns[0].overflow = "fold"  # a name that is cut off names nothing
    for one in tagged:
        if one.scores is None and one.finding is not None:
            table.add_row(escape(one.path), f"[red]{one.finding.kind}[/red]", "", escape(one.finding.detail))
            continue
        said = "silent" if one.finding is not None else ""
        for number, (label, score) in enumerate(one.top(top)):
            name = escape(one.path) if number == 0 else ""
            table.add_row(name, escape(label), f"{score:.3f}", said or show.bar(score, 1.0))
    console = show.console()
    console.print()
    console.print(show.indented(table))
    if page is not None:
        console.print(f"Pictures: {page}", markup=False, soft_wrap=True)
