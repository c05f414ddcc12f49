"""`tellers audio prepare`: recordings to pictures, and a table of what could not be used."""

import json
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options

if TYPE_CHECKING:
    from ..audio.clips import Clips
    from ..audio.collection import Collection

_TASK = "Which labels"
_MADE_RATE, _MADE_SECONDS = 16_000, 2.0


class Layout(StrEnum):
    """How the files of a data set are laid out."""

    esc = "esc"
    urbansound = "urbansound"
    fsd50k = "fsd50k"
    audioset = "audioset"
    table = "table"


class OnFinding(StrEnum):
    """What becomes of a run with recordings that cannot be used."""

    skip = "skip"
    refuse = "refuse"


def prepare(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="The recordings, as their publisher lays them out."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where pictures and their table go.")
    ] = Path("clips"),
    made: Annotated[
        int,
        typer.Option("--made", metavar="N", help="Make up N clips of a city, in place of a folder.", min=0),
    ] = 0,
    layout: Annotated[
        Layout | None,
        typer.Option("--layout", help="esc, urbansound, fsd50k, audioset, or table for a csv of your own."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--table", metavar="CSV", help="table: columns 'file' and 'labels' (a;b)."),
    ] = None,
    source: Annotated[
        str, typer.Option("--source", metavar="COLUMN", help="table: the column of who or what it is from.")
    ] = "",
    fold: Annotated[str, typer.Option("--fold", metavar="COLUMN", help="table: the column of folds.")] = "",
    segments: Annotated[
        list[Path] | None,
        typer.Option("--segments", metavar="CSV", help="audioset: a file of segments; may be repeated."),
    ] = None,
    ontology: Annotated[
        Path | None,
        typer.Option("--ontology", metavar="JSON", help="audioset, fsd50k: the tree of labels."),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            "--labels",
            help="Declare the labels, as bell,siren: these alone, whether or not they occur.",
            rich_help_panel=_TASK,
        ),
    ] = "",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", help="A label of the tree with all below it; may be repeated.", rich_help_panel=_TASK
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", help="A label without all below it, Music say.", rich_help_panel=_TASK),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--most", help="Leave out clips with more labels than this.", rich_help_panel=_TASK),
    ] = None,
    parents: Annotated[
        bool,
        typer.Option("--parents", help="Add what labels imply: a bus is a vehicle.", rich_help_panel=_TASK),
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            "--rate", help="Resample to so many Hz. Without it: 44100, made-up clips 16000.", min=1000
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Cut or fill up to this length. Without it: 10, made-up clips 2."),
    ] = None,
    window: Annotated[
        int | None, typer.Option("--window", help="Samples in a frame. Without it: near 50 ms.", min=2)
    ] = None,
    hop: Annotated[
        int | None,
        typer.Option(
            "--hop", help="Samples from frame to frame. Without it: 20 ms, 10 ms from 44100 Hz on.", min=1
        ),
    ] = None,
    mels: Annotated[int, typer.Option("--mels", help="Bands of pitch in a picture.", min=1)] = 64,
    on_finding: Annotated[
        OnFinding,
        typer.Option(
            "--on-finding", help="What broken, silent or short recordings are: skip, or refuse all."
        ),
    ] = OnFinding.skip,
    keep_silent: Annotated[bool, typer.Option("--keep-silent", help="Silent clips are clips too.")] = False,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Read files again whose size and time did not change.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes at work.", min=1)] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the made-up city.", min=0)] = 7,
    as_json: options.Json = False,
) -> None:
    """Make log-Mel pictures of recordings, once for each content, and list what cannot be used.

    A run that was stopped goes on where it was, and a second one reads nothing that did not change.
    Recordings that are broken, silent or too short become lines of a table; with --on-finding refuse any of
    them ends it, after all were looked at.

    Example:

    \b
    tellers audio prepare --made 1000 --out city
    tellers audio prepare recordings --layout table --table clips.csv --out clips
    """
    from ..audio.collection import features_for, prepare_collection
    from ..audio.decoding import Kind, findings_table
    from ..errors import ClipsRefused
    from .outcome import steps_shown

    chosen = {"table": table, "source": source, "fold": fold, "segments": segments}
    tree = {"ontology": ontology, "keep": keep, "remove": remove, "most": most, "parents": parents}
    declared = [name.strip() for name in labels.split(",")] if labels else []
    with steps_shown(wanted=not as_json) as show:
        if made:
            from ..audio.generator import make_city

            if folder is not None:
                raise ValueError(f"Expected a folder of recordings or --made, got both ({folder}). Keep one.")
            _require_taken("--made", {"layout": layout, **chosen, **tree}, taken=("most",))
            if show is not None:
                show("made", 0, 0)
            rate, seconds = (
                _MADE_RATE if rate is None else rate, _MADE_SECONDS if seconds is None else seconds
            )  # fmt: skip
            clips = make_city(out / "sounds", made, seed=seed, rate=rate, seconds=seconds, n_labels=(1, 2))
        else:
            clips = _read(folder, layout, declared=declared, **chosen, **tree)
        if declared:
            clips = clips.with_labels(declared)
        if most is not None:
            clips = clips.at_most(most)
        answers: Any = dict.fromkeys(Kind, on_finding.value)
        if keep_silent:
            answers[Kind.SILENT] = "keep"
        heard = features_for(
            rate=44_100 if rate is None else rate, seconds=10.0 if seconds is None else seconds, n_mels=mels,
            window=window, hop=hop,
        )  # fmt: skip
        try:
            collection = prepare_collection(
                clips, out, features=heard, n_jobs=jobs, on_finding=answers, recheck=recheck,
                progress=None if show is None else lambda done, total: show("pictures", done, total),
            )  # fmt: skip
        except ClipsRefused as refused:
            raise ClipsRefused(
                f"{findings_table(refused.findings)}\nMend these recordings, leave them out of the table, or "
                "take --on-finding skip.", refused.findings,
            ) from None  # fmt: skip
    if as_json:
        print(json.dumps(_said(collection)))
    else:
        _tell(collection)


# What the layouts take beside --most and --labels, which all of them take.
_TREE = ("ontology", "keep", "remove", "parents")
_TAKEN = {
    Layout.esc: (), Layout.urbansound: (), Layout.table: ("table", "source", "fold"), Layout.fsd50k: _TREE,
    Layout.audioset: ("segments", *_TREE),
}  # fmt: skip


def _require_taken(what: str, given: dict[str, Any], *, taken: tuple[str, ...]) -> None:
    """Refuse options that would be ignored: whoever removes Music must not find it there all the same."""
    ignored = [f"--{name}" for name, value in given.items() if value and name not in taken]
    if ignored:
        known = ", ".join(f"--{name}" for name in taken if name != "declared")
        raise ValueError(
            f"Expected {known} or --labels with {what}, got {' and '.join(ignored)}, which it does not take. "
            "Leave it out; labels are chosen with --labels."
        )


def _read(folder: Path | None, layout: Layout | None, **given: Any) -> "Clips":
    if folder is None or layout is None:
        missing = "a folder of recordings" if folder is None else "--layout"
        raise ValueError(
            f"Expected {missing}, got none. For example: tellers audio prepare ESC-50 --layout esc --out "
            "clips, or tellers audio prepare --made 1000 --out city"
        )
    if not folder.is_dir():
        found = "a file" if folder.exists() else "none"
        raise ValueError(f"Expected a folder of recordings at {folder}, there is {found}. Check the path.")
    _require_taken(f"--layout {layout}", given, taken=("most", "declared", *_TAKEN[layout]))
    from ..audio import layouts
    from ..audio.ontology import read_ontology

    tree = {name: given[name] for name in ("keep", "remove", "most")}
    tree = {name: value for name, value in tree.items() if value is not None} | {"parents": given["parents"]}
    if layout in (Layout.esc, Layout.urbansound):
        read = layouts.read_esc if layout is Layout.esc else layouts.read_urbansound
        return read(folder)
    if layout is Layout.fsd50k:
        ontology = None if given["ontology"] is None else read_ontology(given["ontology"])
        return layouts.read_fsd50k(folder, ontology=ontology, **tree)
    if layout is Layout.audioset:
        if not given["segments"] or given["ontology"] is None:
            raise ValueError(
                "Expected --segments and --ontology for --layout audioset, got at most one of them. For "
                "example: --segments balanced_train_segments.csv --ontology ontology.json"
            )
        return layouts.read_audioset(given["segments"], given["ontology"], audio=folder, **tree)
    if given["table"] is None:
        raise ValueError("Expected --table for --layout table, got none. For example: --table clips.csv")
    return layouts.read_clip_folder(
        folder, given["table"], source_column=given["source"] or None, fold_column=given["fold"] or None,
        label_names=given["declared"] or None, others="ignore" if given["declared"] else "refuse",
    )  # fmt: skip


def _said(collection: "Collection") -> dict[str, Any]:
    shape = collection.features.shape
    return {
        "folder": str(collection.folder), "name": collection.clips.name, "n_clips": len(collection.clips),
        "n_pictures": int(collection.usable.sum()), "n_known": collection.n_known, "shape": list(shape),
        "labels": list(collection.clips.label_names),
        "findings": [
            {"file": one.path, "kind": str(one.kind), "detail": one.detail} for one in collection.findings
        ],
        "notes": list(collection.clips.notes),
    }  # fmt: skip


def _tell(collection: "Collection") -> None:
    from rich.markup import escape

    from . import show

    console = show.console()
    said = _said(collection)
    frames, bins = said["shape"]
    table = show.table("", "")
    table.add_row("clips", f"{said['n_clips']:,} of {escape(said['name'])}")
    known = f", {said['n_known']:,} recordings known from before" if said["n_known"] else ""
    table.add_row("pictures", f"{said['n_pictures']:,} of {frames} x {bins}{known}")
    table.add_row(
        "labels", escape(", ".join(said["labels"][:12])) + (" ..." if len(said["labels"]) > 12 else "")
    )
    console.print()
    console.print(show.indented(table))
    if collection.findings:
        console.print(collection.findings_text(), markup=False, soft_wrap=True)
        console.print(show.note("they keep their place in the table, so that no other clip is dealt anew."))
    unheard = [name for name, n in zip(said["labels"], collection.clips.Y.sum(axis=0)) if not n]
    if unheard:
        console.print(show.note(f"no clip carries: {', '.join(unheard)} (declared labels stay)."))
    for line in said["notes"]:
        console.print(show.note(line))
    console.print(
        f"Next: tellers audio train {quote(str(collection.folder))} --out ears", markup=False, soft_wrap=True
    )
