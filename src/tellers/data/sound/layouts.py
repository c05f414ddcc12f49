"""Published layouts of recordings (ESC, UrbanSound8K, FSD50K, AudioSet) and your own folder."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import require_count
from ..clips import READ_OFF, Clips, label_matrix, left_out_note
from .decoding import find_recordings
from .ontology import Ontology, read_ontology


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a csv file that has these columns, and maybe others."""
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected a table at {path}, there is none. Check the path, or name the data set's own folder."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            there = list(reader.fieldnames or ())
            missing = [column for column in columns if column not in there]
            if missing:
                # Without any column that is known, the first line may be a row, and private.
                heading = ", ".join(there) if len(missing) < len(columns) else f"{len(there)} others"
                raise ValueError(
                    f"Expected the columns {', '.join(missing)} in {path.name}, got {heading}. Name them so "
                    "in its first line, with commas between."
                )
            rows = [{k: v or "" for k, v in row.items() if k is not None} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Expected a csv file in UTF-8, {path.name} is none ({error}).") from None
    if not rows:
        raise ValueError(f"Expected rows in {path.name}, got a heading alone. Add a line for each clip.")
    return rows


def sources_of(rows: Sequence[dict[str, str]], name: str, *, table: str) -> NDArray[np.str_]:
    """Return what each clip is from, without blanks around it; a row that does not say is refused."""
    found = [row[name].strip() for row in rows]
    if "" in found:
        raise ValueError(
            f"Expected a source for every clip in the column {name} of {table}, got none in line "
            f"{found.index('') + 2}. Where it is not known, name each clip's own."
        )
    return np.array(found)


def recordings_by_stem(folder: Path) -> dict[str, Path]:
    """Return the recordings in a folder and below it, by their name without its ending."""
    found: dict[str, Path] = {}
    for path in find_recordings(folder):
        if path.stem in found:
            raise ValueError(
                f"Expected one recording of each name, got {found[path.stem].name} and {path.name}. "
                "Keep one of the two."
            )
        found[path.stem] = path
    return found


# --- Selection of labels ---


def choose(
    name: str, rows: "Sequence[_Row]", names: dict[str, str], *, ontology: Ontology | None,
    keep: Iterable[str] | None, remove: Iterable[str], most: int | None, parents: bool,
) -> Clips:  # fmt: skip
    """Return the clips of a data set with the labels of the task; `names` are those of labels by their ids.

    A clip is of the task if a label of the task remains to it; another one is left out and keeps its place,
    without labels. How many labels are too many is counted after labels were removed and, where asked for,
    parents added. A label that no clip carries stays in the task if it was asked for by `keep`, so that
    classes are what was declared; without `keep` the task is made of the labels that occur.
    """
    if most is not None:
        require_count(most=most)
    if parents and ontology is None:
        raise ValueError("Expected an ontology where parents are to be added, got none.")
    allowed = _allowed(names, ontology, keep=keep, remove=tuple(remove))
    sets, n_none, n_many = list[set[str]](), 0, 0
    for row in rows:
        carried = ontology.imply(row.labels) if ontology is not None and parents else row.labels
        found = carried & allowed.keys()
        if not found:
            n_none += 1
        elif most is not None and len(found) > most:
            n_many, found = n_many + 1, set()
        sets.append(found)
    if not any(sets):
        raise ValueError("Expected clips that carry one of the labels, got none. Keep more labels.")
    occurring = set().union(*sets)
    chosen = [label for label in allowed if keep is not None or label in occurring]
    notes = left_out_note(n_none, "none of the labels")
    notes += left_out_note(n_many, f"more than {most} labels")
    called = [names[label] for label in chosen]
    return Clips(
        name=name,
        paths=tuple(row.path for row in rows),
        Y=label_matrix(sets, chosen),
        # Where two are called alike, with their ids.
        label_names=tuple(
            one if called.count(one) == 1 else f"{one} ({label})" for one, label in zip(called, chosen)
        ),
        sources=np.array([row.source for row in rows]),
        folds=np.array([row.fold for row in rows]),
        notes=notes + ((READ_OFF,) if keep is None else ()),
        left_out=np.array([not found for found in sets]),
    )


@dataclass(frozen=True)
class _Row:
    """A clip as its table has it, with labels by their ids."""

    path: Path
    labels: set[str]
    fold: str
    source: str


def _allowed(
    names: dict[str, str], ontology: Ontology | None, *, keep: Iterable[str] | None, remove: Sequence[str]
) -> dict[str, None]:
    """Return the ids of the task in a fixed order, as a set that remembers it."""
    if ontology is not None:
        chosen = ontology.select(keep, remove=remove)
        # Implied parents may not be in the vocabulary; their names come from the ontology.
        for label in chosen:
            names.setdefault(label, ontology.names[label])
        return dict.fromkeys(chosen)
    by_name = {name: label for label, name in names.items()}
    wanted = sorted(names) if keep is None else list(keep)
    unknown = sorted(one for one in (*wanted, *remove) if one not in names and one not in by_name)
    if unknown:
        raise ValueError(
            f"Expected labels of the data set, got {', '.join(unknown)}. For higher ones give an ontology."
        )
    removed = {by_name.get(one, one) for one in remove}
    return dict.fromkeys(one for one in (by_name.get(label, label) for label in wanted) if one not in removed)


# --- ESC-50 and ESC-10 ---
#
# FOLDER/meta/esc50.csv   filename, fold, target, category, esc10, src_file, ...     as published
# FOLDER/audio/1-100032-A-0.wav
#
# or, as a smaller copy, FOLDER/esc10.csv (or esc50.csv) beside FOLDER/audio, with recordings in any format. A
# name is `fold-source-take-target`: takes of one source are cuts of one recording, and lie in one fold.

_TABLES = ("meta/esc50.csv", "esc50.csv", "meta/esc10.csv", "esc10.csv")


def read_esc(folder: str | PathLike[str], *, ten: bool | None = None) -> Clips:
    """Read ESC-50 or ESC-10: one label for each clip, folds 1 to 5, sources kept apart.

    `ten=True` takes the ten classes of ESC-10 out of ESC-50; by default all that is there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "audio").mkdir()
    >>> (folder / "audio" / "1-17-A-0.ogg").touch()
    >>> _ = (folder / "esc10.csv").write_text("filename,fold,category\\n1-17-A-0.ogg,1,dog\\n")
    >>> read_esc(folder)
    Clips('ESC-10', n_clips=1, n_labels=1)
    """
    root = Path(folder)
    table = next((root / name for name in _TABLES if (root / name).is_file()), root / _TABLES[0])
    rows = read_rows(table, ["filename", "fold", "category"])
    is_ten = table.stem == "esc10"
    if ten and not is_ten:
        rows = [row for row in rows if row.get("esc10", "").strip().lower() == "true"]
        if not rows:
            raise ValueError(f"Expected clips marked esc10 in {table.name}, got none. Leave out ten=True.")
    return _one_label_each(
        "ESC-10" if ten or is_ten else "ESC-50", rows, table, audio=root / "audio", label="category",
        files=[row["filename"] for row in rows],
        sources=np.array([row.get("src_file", "").strip() or _source(row["filename"]) for row in rows]),
    )  # fmt: skip


def _source(filename: str) -> str:
    stem = Path(filename).stem
    parts = stem.split("-")
    return parts[1] if len(parts) == 4 else stem


def _one_label_each(
    name: str, rows: Sequence[dict[str, str]], table: Path, *, audio: Path, label: str, files: Sequence[str],
    sources: NDArray[np.str_],
) -> Clips:  # fmt: skip
    """Return clips of one label each, wherever in a folder they lie; one that is not there has its place."""
    there = recordings_by_stem(audio)
    if not there.keys() & {Path(file).stem for file in files}:
        raise ValueError(f"Expected the recordings of {table.name} in the folder audio, got none of them.")
    names = tuple(sorted({row[label] for row in rows}))
    return Clips(
        name=name,
        paths=tuple(there.get(Path(file).stem, audio / file) for file in files),
        Y=label_matrix([{row[label]} for row in rows], names),
        label_names=names,
        sources=sources,
        folds=np.array([int(row["fold"]) for row in rows]),
    )


# --- UrbanSound8K ---
#
# FOLDER/metadata/UrbanSound8K.csv      slice_file_name, fsID, fold, classID, class, ...
# FOLDER/audio/fold1/100032-3-0-0.wav
#
# Slices of one recording (`fsID`) lie in one fold. Folds are to be kept: other splits put a recording on both
# sides.


def read_urbansound(folder: str | PathLike[str]) -> Clips:
    """Read UrbanSound8K: one label for each clip, folds 1 to 10, the recording it was cut from as source.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "audio" / "fold1").mkdir(parents=True)
    >>> (folder / "metadata").mkdir()
    >>> (folder / "audio" / "fold1" / "7-3-0-0.wav").touch()
    >>> text = "slice_file_name,fsID,fold,class\\n7-3-0-0.wav,7,1,siren\\n"
    >>> _ = (folder / "metadata" / "UrbanSound8K.csv").write_text(text)
    >>> read_urbansound(folder).sources.tolist()
    ['7']
    """
    root = Path(folder)
    table = root / "metadata" / "UrbanSound8K.csv"
    rows = read_rows(table, ["slice_file_name", "fsID", "fold", "class"])
    return _one_label_each(
        "UrbanSound8K", rows, table, audio=root / "audio", label="class",
        files=[f"fold{row['fold']}/{row['slice_file_name']}" for row in rows],
        sources=sources_of(rows, "fsID", table=table.name),
    )  # fmt: skip


# --- FSD50K ---
#
# FOLDER/FSD50K.ground_truth/dev.csv          fname, labels, mids, split
# FOLDER/FSD50K.ground_truth/eval.csv         fname, labels, mids
# FOLDER/FSD50K.ground_truth/vocabulary.csv   number, label, mid (no heading)
# FOLDER/FSD50K.dev_audio/64760.wav           FOLDER/FSD50K.eval_audio/...
# FOLDER/FSD50K.metadata/dev_clips_info_FSD50K.json    who uploaded each, where it is there

_PARTS = ("dev", "eval")
_NOBODY = "who uploaded which clip is not known: FSD50K.metadata is not there, or not whole"


def read_fsd50k(
    folder: str | PathLike[str], *, ontology: Ontology | None = None, keep: Iterable[str] | None = None,
    remove: Iterable[str] = (), most: int | None = None, parents: bool = False,
) -> Clips:  # fmt: skip
    """Read FSD50K: many labels for each clip, folds "train", "val" and "eval", uploaders as sources.

    With an `ontology`, `keep` and `remove` name labels that stand for all below them and `parents` adds what
    labels imply; without, they are labels of the vocabulary. Clips with more than `most` labels are left out.
    Sources are not known where the files of FSD50K.metadata are not there; a clip without an uploader in
    these is a source by itself.

    >>> read_fsd50k("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a table at nowhere/FSD50K.ground_truth/dev.csv, there is none. ...
    """
    root = Path(folder)
    truth = root / "FSD50K.ground_truth"
    found: list[_Row] = []
    names: dict[str, str] = _vocabulary(truth / "vocabulary.csv")
    n_there, known = 0, True
    for part in _PARTS:
        rows = read_rows(truth / f"{part}.csv", ["fname", "labels", "mids"])
        place = root / f"FSD50K.{part}_audio"
        there = recordings_by_stem(place) if place.is_dir() else {}
        about = root / "FSD50K.metadata" / f"{part}_clips_info_FSD50K.json"
        uploaders, known = _uploaders(about), known and about.is_file()
        for row in rows:
            mids = [mid.strip() for mid in row["mids"].split(",") if mid.strip()]
            names.update(zip(mids, (label.strip() for label in row["labels"].split(","))))
            n_there += row["fname"] in there
            path = there.get(row["fname"], place / f"{row['fname']}.wav")  # if absent, in its place
            source = uploaders.get(row["fname"], f"clip {row['fname']}")
            found.append(_Row(path, set(mids), row.get("split") or part, source))
    if not n_there:
        raise ValueError("Expected the recordings of dev.csv and eval.csv in FSD50K.*_audio, got none.")
    clips = choose(
        "FSD50K", found, names, ontology=ontology, keep=keep, remove=remove, most=most, parents=parents
    )
    return clips if known else replace(clips, sources=None, notes=(*clips.notes, _NOBODY))


def _vocabulary(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row[2].strip(): row[1].strip() for row in csv.reader(file) if len(row) >= 3}


def _uploaders(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    about = json.loads(path.read_text(encoding="utf-8-sig"))
    names = {str(clip): str(one.get("uploader", "")).strip() for clip, one in about.items()}
    return {clip: f"uploader {name}" for clip, name in names.items() if name}


# --- AudioSet ---
#
# balanced_train_segments.csv     # comments, then: YTID, start_seconds, end_seconds, "/m/09x0r,/t/dd00088"
# ontology.json                   a list of labels with id, name and child_ids
# a folder of clips               <YTID>.wav, Y<YTID>.wav, <YTID>_<start>.wav or <YTID>_<start>_<end>.wav
#
# The clips themselves are not published; this reads those that you have. Starts and ends in file names may be
# seconds, with or without a decimal, or thousandths.


def read_audioset(
    segments: str | PathLike[str] | Sequence[str | PathLike[str]],
    ontology: str | PathLike[str] | Ontology,
    *,
    audio: str | PathLike[str],
    keep: Iterable[str] | None = None,
    remove: Iterable[str] = (),
    most: int | None = None,
    parents: bool = False,
) -> Clips:
    """Read AudioSet: many labels for each clip, the segment files as folds, the videos as sources.

    `keep` and `remove` name labels, by id or by name, that stand for all labels below them; a label below
    both is removed. With `parents`, a clip carries the labels above its own, too. Clips with more than `most`
    labels, counted after that, and those with none are left out. A segment whose clip is not there keeps its
    place. Where two segments of a video are listed, a file that says no times is taken for neither.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "abc.wav").touch()
    >>> _ = (folder / "eval.csv").write_text('# YTID, start, end, labels\\nabc, 30.000, 40.000, "/b"\\n')
    >>> tree = Ontology(names={"/v": "Vehicle", "/b": "Bus"}, children={"/v": ("/b",)})
    >>> clips = read_audioset(folder / "eval.csv", tree, audio=folder, parents=True)
    >>> clips, clips.labels_of(0), clips.folds.tolist()
    (Clips('AudioSet', n_clips=1, n_labels=2), ('Vehicle', 'Bus'), ['eval'])
    """
    files = [segments] if isinstance(segments, (str, PathLike)) else list(segments)
    tree = ontology if isinstance(ontology, Ontology) else read_ontology(ontology)
    there = recordings_by_stem(Path(audio))
    rows: list[_Row] = []
    n_there = 0
    listed = [(file, segment) for file in files for segment in _segments(Path(file))]
    times: dict[str, set[tuple[float, float]]] = {}
    for _, (video, start, end, _) in listed:
        times.setdefault(video, set()).add((start, end))
    for file, (video, start, end, carried) in listed:
        called = _names(video, start, end, alone=len(times[video]) == 1)
        path = next((there[name] for name in called if name in there), None)
        n_there += path is not None
        rows.append(_Row(path or Path(audio) / f"{called[0]}.wav", carried, Path(file).stem, video))
    if not n_there:
        raise ValueError("Expected clips of the segments in the audio folder, got none. Compare the names.")
    names = dict(tree.names)
    return choose(
        "AudioSet", rows, names, ontology=tree, keep=keep, remove=remove, most=most, parents=parents
    )


def _segments(path: Path) -> list[tuple[str, float, float, set[str]]]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file of segments at {path}, there is none.")
    found = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file, skipinitialspace=True), start=1):
            if not row or row[0].startswith("#"):
                continue
            try:
                video, start, end, labels = row
                found.append((video, float(start), float(end), {one.strip() for one in labels.split(",")}))
            except ValueError:
                raise ValueError(
                    f"Expected YTID, start, end and labels in line {number} of {path.name}, got others."
                ) from None
    return found


def _names(video: str, start: float, end: float, *, alone: bool) -> list[str]:
    """Return the file names under which tools store a segment, the most particular first."""
    found = []
    for form in ("{:.3f}", "{:.1f}", "{:.0f}"):
        found += [f"{form.format(start)}_{form.format(end)}", form.format(start)]
    found += [f"{start * 1000:.0f}_{end * 1000:.0f}", f"{start * 1000:.0f}"]
    named = [f"{video}_{times}" for times in found]
    # The video's name alone does not say which of two segments it is.
    return [*named, *(f"Y{name}" for name in named), *((video, f"Y{video}") if alone else ())]


# --- A folder and a table of your own ---


def read_clip_folder(
    folder: str | PathLike[str],
    table: str | PathLike[str],
    *,
    label_names: Sequence[str] | None = None,
    file_column: str = "file",
    label_column: str | None = "labels",
    separator: str = ";",
    source_column: str | None = None,
    fold_column: str | None = None,
    others: Literal["refuse", "ignore"] = "refuse",
) -> Clips:
    """Read clips of your own: names of files relative to the folder, labels separated, or a column for each.

    With `label_column=None` every name in `label_names` is a column of 0 and 1. Names that are not declared
    are those that occur, which is a look at the data that nothing protects: one clip with a rare label puts
    it into what is published. Declare them where labels are private; a declared one need not occur, and
    `others` says whether labels that were not declared are refused or ignored. A row whose recording is not
    there keeps its place.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.wav").touch()
    >>> _ = (folder / "clips.csv").write_text("file,labels\\na.wav,bell;siren\\n")
    >>> read_clip_folder(folder, folder / "clips.csv", label_names=["bell", "dog", "siren"]).Y.tolist()
    [[1, 0, 1]]
    """
    root, path = Path(folder), Path(table)
    wanted = [file_column, *([label_column] if label_column else label_names or ())]
    rows = read_rows(path, [*wanted, *(c for c in (source_column, fold_column) if c)])
    if label_column is None and not label_names:
        raise ValueError("Expected label_names where every label has its own column, got none.")
    sets: list[set[str]] = []
    for number, row in enumerate(rows, start=2):
        if label_column is not None:
            sets.append({one.strip() for one in row[label_column].split(separator) if one.strip()})
            continue
        marks = {name: row[name].strip() for name in label_names or ()}
        if not set(marks.values()) <= {"0", "1", ""}:
            raise ValueError(f"Expected 0 or 1 for every label in line {number} of {path.name}, got another.")
        sets.append({name for name, mark in marks.items() if mark == "1"})
    names = tuple(label_names) if label_names else tuple(sorted(set().union(*sets)))
    unknown = set().union(*sets) - set(names) if others == "refuse" else ()
    if unknown or not names:
        raise ValueError(
            f"Expected the declared labels in {path.name}, got others ({len(unknown)}). Declare every label."
        )
    paths = tuple(root / row[file_column] for row in rows)
    if not any(path.is_file() for path in paths):
        raise ValueError(
            f"Expected the files of {path.name} in {root}, got none of them. Name them as they lie in it."
        )
    return Clips(
        name=path.stem,
        paths=paths,
        Y=label_matrix(sets, names),
        label_names=names,
        sources=None if source_column is None else sources_of(rows, source_column, table=path.name),
        folds=None if fold_column is None else np.array([row[fold_column].strip() for row in rows]),
        notes=() if label_names else (READ_OFF,),
    )
