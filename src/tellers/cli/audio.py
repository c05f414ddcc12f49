"""`tellers audio`: from recordings to a student that tags them."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from . import options, sweep
from .run import Resume

if TYPE_CHECKING:
    from ..data.clips import Clips, Collection
    from ..runs.sound.tagging import Tagged


# --- Options of networks that hear, which teachers and students have in common. ---


NETWORK = "Network"
_LOOKS = 10  # at the clips held out, in the course of a training

Iterations: TypeAlias = Annotated[int, options.option("Batches to learn from.", panel=NETWORK, min=1)]
BatchSize: TypeAlias = Annotated[int, options.option("Clips in a batch.", panel=NETWORK, min=2)]
LearningRate: TypeAlias = Annotated[float, options.option("Near 1e-4 for large networks.", panel=NETWORK)]
Pretrained: TypeAlias = Annotated[
    Path | None, options.option("Public weights to begin with.", panel=NETWORK, metavar="FILE")
]
_HELD_OUT = "Hold out a share of the clips it learns from, and keep the network that is best there."
HeldOut: TypeAlias = Annotated[float, options.option(_HELD_OUT, panel=NETWORK, metavar="SHARE", min=0)]
_LOGS = "TensorBoard's files, as private as what is learned from."
LogFolder: TypeAlias = Annotated[Path | None, options.option(_LOGS, panel=NETWORK, metavar="DIR")]
Device: TypeAlias = Annotated[str, options.option("cpu, cuda or auto.", panel=NETWORK)]
_CLIPS = options.argument("CLIPS", "The folder of `tellers audio prepare`.")
_EARS = options.argument("EARS", "The folder of `tellers audio train`.")
Seed: TypeAlias = Annotated[int, options.option("Of the deal and of the training.", min=0)]
Student: TypeAlias = Annotated[float, options.option("Share of the clips that become the public pool.")]
Test: TypeAlias = Annotated[float, options.option("Share of the clips to test on, public too.")]
TestFold: TypeAlias = Annotated[str, options.option("Test on the publisher's own fold.", metavar="FOLD")]
BySource: TypeAlias = Annotated[
    bool | None,
    options.option(
        "Deal, and protect, whole sources (a speaker, a street, a video), or single clips. Without it: "
        "sources where they are known.",
        "--by-source/--by-clip",
        show_default=False,
    ),
]


def network_options(
    *, iterations: int, pretrained: Path | None, held_out: float, log_folder: Path | None, **given: Any
) -> dict[str, Any]:
    """Return parameters of a tagger; some are left out where nothing is said."""
    places = {"pretrained": pretrained, "log_folder": log_folder}
    given |= {name: str(place.absolute()) for name, place in places.items() if place}
    if held_out:
        given |= {"held_out": held_out, "check_every": max(1, iterations // _LOOKS)}
    return {"iterations": iterations, **given}


# --- `tellers audio prepare`: recordings to pictures, and a table of what could not be used. ---


_TASK = "Which labels"
_LAYOUTS = "esc, urbansound, fsd50k, audioset, or table for a csv of your own."


Layout = StrEnum("Layout", ["esc", "urbansound", "fsd50k", "audioset", "table"])
OnFinding = StrEnum("OnFinding", ["skip", "refuse"])


def prepare(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="The recordings, as their publisher lays them out."),
    ] = None,
    out: Annotated[Path, options.option("Where pictures and their table go.", metavar="DIR")] = Path("clips"),
    made: Annotated[
        int, options.option("Make up N clips of a city, in place of a folder.", metavar="N", min=0)
    ] = 0,
    layout: Annotated[Layout | None, options.option(_LAYOUTS)] = None,
    table: Annotated[
        Path | None, options.option("table: columns 'file' and 'labels' (a;b).", metavar="CSV")
    ] = None,
    source: Annotated[
        str, options.option("table: the column of who or what it is from.", metavar="COLUMN")
    ] = "",
    fold: Annotated[str, options.option("table: the column of folds.", metavar="COLUMN")] = "",
    segments: Annotated[
        list[Path] | None, options.option("audioset: a file of segments; may be repeated.", metavar="CSV")
    ] = None,
    ontology: Annotated[
        Path | None, options.option("audioset, fsd50k: the tree of labels.", metavar="JSON")
    ] = None,
    labels: Annotated[
        str,
        options.option(
            "Declare the labels, as bell,siren: these alone, whether or not they occur.", panel=_TASK
        ),
    ] = "",
    keep: Annotated[
        list[str] | None,
        options.option("A label of the tree with all below it; may be repeated.", panel=_TASK),
    ] = None,
    remove: Annotated[
        list[str] | None, options.option("A label without all below it, Music say.", panel=_TASK)
    ] = None,
    most: Annotated[
        int | None, options.option("Leave out clips with more labels than this.", panel=_TASK)
    ] = None,
    parents: Annotated[
        bool,
        options.option("Add what labels imply: a bus is a vehicle.", "--parents", panel=_TASK),
    ] = False,
    rate: Annotated[
        int | None,
        options.option("Resample to so many Hz. Without it: 44100, made-up clips 16000.", min=1000),
    ] = None,
    seconds: Annotated[
        float | None,
        options.option("Cut or fill up to this length. Without it: 10, made-up clips 2."),
    ] = None,
    window: Annotated[
        int | None, options.option("Samples in a frame. Without it: near 50 ms.", min=2)
    ] = None,
    hop: Annotated[
        int | None,
        options.option("Samples from frame to frame. Without it: 20 ms, 10 ms from 44100 Hz on.", min=1),
    ] = None,
    mels: Annotated[int, options.option("Bands of pitch in a picture.", min=1)] = 64,
    on_finding: Annotated[
        OnFinding, options.option("What broken, silent or short recordings are: skip, or refuse all.")
    ] = OnFinding.skip,
    keep_silent: Annotated[bool, options.option("Silent clips are clips too.", "--keep-silent")] = False,
    recheck: Annotated[
        bool, options.option("Read files again whose size and time did not change.", "--recheck")
    ] = False,
    jobs: Annotated[int, options.option("Processes at work.", min=1)] = 1,
    seed: Annotated[int, options.option("Of the made-up city.", min=0)] = 7,
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
    from ..data.sound.collection import features_for, prepare_collection
    from ..data.sound.decoding import Kind, findings_table
    from ..errors import ClipsRefused
    from .outcome import steps_shown

    chosen = {"table": table, "source": source, "fold": fold, "segments": segments}
    tree = {"ontology": ontology, "keep": keep, "remove": remove, "most": most, "parents": parents}
    declared = [name.strip() for name in labels.split(",")] if labels else []
    if rate is None:
        rate = 16_000 if made else 44_100
    if seconds is None:
        seconds = 2.0 if made else 10.0
    with steps_shown(wanted=not as_json) as show:
        if made:
            from ..data.sound.generator import make_city

            if folder is not None:
                raise ValueError(f"Expected a folder of recordings or --made, got both ({folder}). Keep one.")
            _require_taken("--made", {"layout": layout, **chosen, **tree}, taken=("most",))
            if show is not None:
                show("made", 0, 0)
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
        heard = features_for(rate=rate, seconds=seconds, n_mels=mels, window=window, hop=hop)
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
    shape = collection.features.shape
    said = {
        "folder": str(collection.folder), "name": collection.clips.name, "n_clips": len(collection.clips),
        "n_pictures": int(collection.usable.sum()), "n_known": collection.n_known, "shape": list(shape),
        "labels": list(collection.clips.label_names),
        "findings": [
            {"file": one.path, "kind": str(one.kind), "detail": one.detail} for one in collection.findings
        ],
        "notes": list(collection.clips.notes),
    }  # fmt: skip
    if as_json:
        print(json.dumps(said))
    else:
        _tell(collection, said)


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
    from ..data.sound import layouts
    from ..data.sound.ontology import read_ontology

    tree = {name: given[name] for name in ("keep", "most", "parents")} | {"remove": given["remove"] or ()}
    if layout is Layout.esc:
        return layouts.read_esc(folder)
    if layout is Layout.urbansound:
        return layouts.read_urbansound(folder)
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


def _tell(collection: "Collection", said: dict[str, Any]) -> None:
    from rich.markup import escape

    from . import show

    console = show.console()
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


# --- `tellers audio tag`: what a student hears in recordings. ---


def tag(
    files: Annotated[list[Path], options.argument("FILE...", "Recordings: wav, flac or ogg.")],
    student: Annotated[
        Path, options.option("The run that taught a student of sounds, or its student.", metavar="DIR")
    ] = Path("study"),
    top: Annotated[int, options.option("So many labels for each file.", min=1)] = 3,
    page: Annotated[
        Path | None,
        options.option("Also draw each log-Mel picture with its tags: an HTML file.", metavar="FILE"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Tag recordings with a trained student: its likeliest labels, with their scores.

    The student needs no teacher and no ledger; to use it costs nothing more. A recording that cannot be read
    is told with its reason, and the others are tagged.

    Example: tellers audio tag city/sounds/city-000003.wav --student study --page tags.html
    """
    from ..runs.sound.tagging import load_hearing

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
        from ..runs.sound._pages import write_tags

        write_tags(page, hearing, tagged, n_labels=top)
    if as_json:
        print(json.dumps({"files": [one.as_dict(top) for one in tagged], "page": page and str(page)}))
    else:
        _tell_tag(tagged, top, page)
    if all(one.scores is None for one in tagged):
        raise typer.Exit(2)


def _tell_tag(tagged: "list[Tagged]", top: int, page: Path | None) -> None:
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


# --- `tellers audio deal`: how clips would be dealt, to few teachers or to many. Private numbers. ---


_USUAL = [1, 10, 20, 50]


def deal(
    clips: Annotated[Path, _CLIPS],
    teachers: Annotated[
        str | None,
        options.option(
            "Numbers of teachers; 1 is the baseline.",
            metavar="N,N...",
            show_default="of 1,10,20,50 those that get a clip each",
        ),
    ] = None,
    student: Student = 0.15,
    test: Test = 0.1,
    test_fold: TestFold = "",
    by_source: BySource = None,
    seed: Seed = 7,
    show_private: Annotated[
        bool, options.option("Show the numbers, which are of the private clips.", "--show-private")
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
    from ..data.clips import read_collection
    from ..runs.sound.splitting import deal_experiments, deal_statistics, statistics_rows
    from ..runs.sound.teaching import fold_clips

    collection = read_collection(clips)
    numbers = _USUAL
    if teachers is not None:
        numbers = options.listed("--teachers", teachers, int, "numbers such as 1,10,20")
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
    _say_now("tellers run --until data")
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


# --- `tellers audio train`: teachers of clips, and what they say of the public pool. ---


Network = StrEnum("Network", ["small", "resnet18", "resnet34", "vgg11", "vgg19"])


def train(
    clips: Annotated[Path, _CLIPS],
    out: Annotated[
        Path, options.option("Where teachers and votes go: all of it private.", metavar="DIR")
    ] = Path("ears"),
    teachers: Annotated[int, options.option("How many teachers.", min=1)] = 30,
    student: Student = 0.15,
    test: Test = 0.1,
    test_fold: TestFold = "",
    by_source: BySource = None,
    mix: Annotated[
        int, options.option("Learn from N mixtures of every clip with one of its part.", metavar="N", min=0)
    ] = 0,
    one_class: Annotated[
        bool,
        options.option("Every clip has exactly one label: teachers name one class each.", "--one-class"),
    ] = False,
    resolution: Annotated[int, options.option("Count probabilities in so many parts of a vote.", min=1)] = 1,
    network: Annotated[
        Network, options.option("small (for a CPU), resnet18, resnet34, vgg11 or vgg19.", panel=NETWORK)
    ] = Network.small,
    iterations: Iterations = 60,
    batch_size: BatchSize = 8,
    learning_rate: LearningRate = 5e-3,
    mixup: Annotated[float, options.option("Blend clips of a batch; 0 for not.", panel=NETWORK, min=0)] = 1.0,
    balanced: Annotated[
        bool,
        options.option("Every label has its turn, or as they come.", "--balanced/--shuffled", panel=NETWORK),
    ] = True,
    weighted: Annotated[bool, options.option("Weigh rare labels up.", "--weighted", panel=NETWORK)] = False,
    pretrained: Pretrained = None,
    held_out: HeldOut = 0.0,
    log_folder: LogFolder = None,
    device: Device = "auto",
    jobs: Annotated[int, options.option("Teachers trained at a time; 0 to choose.", min=0)] = 0,
    seed: Seed = 7,
    as_json: options.Json = False,
) -> None:
    """Deal clips to teachers, train a network for each, and keep what they say of the public pool.

    Clips of teachers, pool and test are disjoint; mixtures are made within a part. Stopped and begun again
    with the same settings, it goes on. Votes are kept, so that sweep and student ask no teacher again. The
    folder is as private as the recordings.

    Example: tellers audio train city --out ears --teachers 30
    """
    from ..data.clips import read_collection
    from ..runs.sound.teaching import Teaching, teach
    from .outcome import say_record, steps_shown

    tagger = network_options(
        network=network.value, iterations=iterations, batch_size=batch_size, learning_rate=learning_rate,
        mixup=mixup, balanced=balanced, weighted=weighted, device=device, pretrained=pretrained,
        held_out=held_out, log_folder=log_folder,
    )  # fmt: skip
    settings = Teaching(
        n_teachers=teachers, seed=seed, student=student, test=test, test_fold=test_fold, by_source=by_source,
        mix=mix, resolution=resolution, one_class=one_class, tagger=tagger,
    )  # fmt: skip
    say_record(out / "record.json")
    with steps_shown(wanted=not as_json) as show:
        taught = teach(read_collection(clips), out, settings, n_jobs=jobs or None, show=show)
    _say_now("tellers run --until votes")
    said = {
        "folder": str(taught.folder), "n_teachers": taught.settings.n_teachers, "unit": taught.unit,
        "n_pool": len(taught.pool), "n_test": len(taught.test), "labels": list(taught.label_names),
        "one_class": taught.settings.one_class, "shape": list(taught.shape),
    }  # fmt: skip
    if as_json:
        print(json.dumps(said))
        return
    from . import show as screen

    table = screen.table("", "")
    table.add_row(
        "teachers", f"{said['n_teachers']}, each with clips of its own; {said['unit']} is protected"
    )
    table.add_row("public pool", f"{said['n_pool']} clips, on which they voted")
    table.add_row("test", f"{said['n_test']} clips, public too")
    console = screen.console()
    console.print()
    console.print(screen.indented(table))
    private = f"everything in {taught.folder} is private: votes, networks, and who has what."
    for line in (*taught.partition().notes, private):
        console.print(screen.note(line))
    console.print(
        f"Next: tellers audio student {quote(str(taught.folder))} --out study", markup=False, soft_wrap=True
    )


# --- `tellers audio student`: labels within a budget, a student, its card and its pages. ---


# Of the ensemble, where nothing is said: a label that all teachers agree on comes out right 39 times in 40.
_USUAL_NOISE = 0.25
# What can be asked of teachers that name one class each.
_OF_CLASSES = ("gnmax", "confident")


Learner = StrEnum("Learner", ["tagger", "multilabel_mixmatch", "mixmatch", "mean_teacher", "vat"])
_LEARNER = (
    "tagger: from what was told. multilabel_mixmatch (one class: mixmatch, mean_teacher, vat): from all of "
    "the pool."
)
_LEDGER = (
    "For the first student of these teachers: a file or a database that all of them are charged to. Without "
    "it: ledger.db in EARS."
)
# Those of many labels, and those of one class each.
_LEARNERS = {
    False: (Learner.tagger, Learner.multilabel_mixmatch),
    True: (Learner.tagger, Learner.mixmatch, Learner.mean_teacher, Learner.vat),
}


@options.takes_mechanism(after="sigma", but=("sigma", "gamma", "student_confidence", "groups"))
def student(
    ears: Annotated[Path, _EARS],
    out: Annotated[Path, options.option("Folder of the run: labels, student, report.", metavar="DIR")] = Path(
        "study"
    ),
    epsilon: Annotated[float, options.option("The budget of all students of these teachers together.")] = 8.0,
    delta: Annotated[float, options.option("Failure probability, well below 1 / private clips.")] = 1e-4,
    ledger: Annotated[str, options.option(_LEDGER, metavar="WHERE")] = "",
    queries: Annotated[int, options.option("Ask so many; 0: as the budget and the pool allow.", min=0)] = 0,
    mechanism: options.Mechanism = None,
    sigma: Annotated[
        float | None,
        options.option(
            "Gaussian noise on every sum, in votes. Without it: a quarter of the teachers.",
            panel="Mechanism",
        ),
    ] = None,
    learner: Annotated[Learner, options.option(_LEARNER, "--student", panel=NETWORK)] = (Learner.tagger),
    network: Annotated[str, options.option("tagger: as for train.", panel=NETWORK)] = "small",
    iterations: Iterations = 200,
    batch_size: BatchSize = 16,
    learning_rate: LearningRate = 3e-3,
    pretrained: Pretrained = None,
    held_out: HeldOut = 0.0,
    log_folder: LogFolder = None,
    device: Device = "auto",
    private: Annotated[
        bool, options.option("Write private pages and numbers too, for the operator's eyes.", "--private")
    ] = False,
    resume: Resume = False,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Release labels of the pool within a budget, and teach a student that may leave.

    Every answer is charged to the ledger before noise is drawn, and all students of the same teachers to the
    same ledger: a second one pays from what the first left of the budget. The folder is that of a run: the
    released labels, the student with its model card, report.html, and sound.html with what the student hears
    and the curves of every label. No teacher is asked again: what they said is kept. Said twice, it answers
    from what was released and charges nothing. Without --mechanism it is gnthreshold, and gnmax of teachers
    that were trained with --one-class.

    Example: tellers audio student ears --out study --epsilon 8 --delta 1e-4
    """
    from ..runs.settings.mechanism import MechanismConfig
    from ..runs.settings.sections import BudgetConfig
    from ..runs.sound.teaching import TAGGER, read_taught, student_config, teach_student
    from .outcome import say_record, say_warning, steps_shown, tell

    taught = read_taught(ears)
    one_class = taught.settings.one_class
    if one_class and mechanism is not None:
        _require_among("--mechanism", mechanism, _OF_CLASSES, one_class=True)
    name = str(mechanism or ("gnmax" if one_class else "gnthreshold"))
    _require_among("--student", learner, _LEARNERS[one_class], one_class=one_class)
    given["sigma"] = _USUAL_NOISE * taught.settings.n_teachers if sigma is None else sigma
    options.require_parameters(name, given)
    values = {p: options.parsed(p, value) for p, value in given.items() if value is not None}
    budget = BudgetConfig(epsilon=epsilon, delta=delta)
    if ledger:
        budget = replace(budget, ledger=ledger if "://" in ledger else str(Path(ledger).absolute()))
    config = student_config(
        taught, mechanism=MechanismConfig(name=name, **values), budget=budget, n_queries=queries,
        model=TAGGER if learner is Learner.tagger else learner.value,
        parameters=_parameters(
            learner, network=network, iterations=iterations, batch_size=batch_size,
            learning_rate=learning_rate, device=device, pretrained=pretrained, held_out=held_out,
            log_folder=log_folder,
        ),
        private=private,
    )  # fmt: skip
    say_record(out / "private" / "record.json")
    with steps_shown(wanted=not as_json) as show:
        result, _ = teach_student(taught, out, config, resume=resume, show=show, warn=say_warning)
    _say_now("tellers student")
    if as_json:
        print(json.dumps({**result.as_dict(), "folder": str(out)}))
        return
    tell(result, out)
    if not (out / "sound.html").exists():
        from . import show as screen

        screen.console().print(screen.note("no clips were set apart to test on, so there is no sound.html."))


def _require_among(option: str, chosen: str, known: Sequence[str], *, one_class: bool) -> None:
    if chosen not in known:
        *some, last = known
        what = "one class" if one_class else "many labels"
        raise ValueError(
            f"Expected {option} {', '.join(some)} or {last} where clips have {what}, got {chosen}."
        )


def _parameters(learner: Learner, **given: Any) -> dict[str, Any]:
    if learner is Learner.tagger:
        return network_options(**given)
    if any(given[name] for name in ("pretrained", "held_out", "log_folder")):
        raise ValueError(
            "Expected --pretrained, --held-out and --log-folder with --student tagger alone, got one with "
            f"--student {learner}. Leave it out."
        )
    kept = {name: given[name] for name in ("batch_size", "learning_rate", "device")}
    return {**kept, "steps": given["iterations"], "width": 8, "pool_batch_size": 2 * given["batch_size"]}


# --- `tellers audio`: from recordings to a student that tags them. ---


HELP = """From recordings to pictures that every run takes, and from a student to tags.

prepare makes pictures of recordings, tellers run and tellers student teach with them (tellers init --data
clips), and tag uses the student. Nothing needs a download: prepare --made makes a city up.
deal, train, sweep and student are what tellers run --until data, tellers run --until votes, tellers sweep and
tellers student were called when they were for sounds alone.

Example:

\b
tellers audio prepare --made 1000 --out city
tellers init city.toml --data clips
tellers run city.toml --out study
tellers audio tag city/sounds/city-000001.wav --student study
"""


def _say_now(now: str) -> None:
    """Warn that a verb for sounds has become one for every run."""
    from .outcome import say_warning

    say_warning(f"{now} does this for every run; the verb for sounds goes in 0.4 at the earliest.")


def _sweep(**given: Any) -> None:
    from ..runs.sound.teaching import read_taught

    ears = given.pop("ears")
    for place in ears:
        read_taught(place)  # other folders were never taken by this name
    sweep.command(ears, **given)
    _say_now("tellers sweep")


_sweep.__doc__ = sweep.command.__doc__
_runs, *_others = inspect.signature(sweep.command).parameters.values()
_sweep.__signature__ = inspect.Signature([_runs.replace(name="ears"), *_others])  # type: ignore[attr-defined]


COMMANDS = {
    "prepare": prepare,
    "deal": deal,
    "train": train,
    "sweep": _sweep,
    "student": student,
    "tag": tag,
}
